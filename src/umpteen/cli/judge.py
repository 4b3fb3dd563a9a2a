"""``umpteen judge``: a teacher grades the best labels of texts."""

from __future__ import annotations

import json
from pathlib import Path

import click

from umpteen.cli._options import device_option, log, sentences
from umpteen.cli._table_options import input_options
from umpteen.cli.predict import open_texts
from umpteen.display import counted


@click.command()
@click.argument("run")
@click.argument("file", metavar="TEXTS", type=click.Path(exists=True))
@click.option(
    "--teacher",
    "spec",
    required=True,
    metavar="SPEC",
    help="module:Name of a callable, the address of an OpenAI-compatible endpoint, the folder of a "
    "run, or a file with text, label and relevance.",
)
@click.option("--model", default="default", show_default=True, help="Model of the endpoint.")
@click.option("--out", required=True, metavar="FILE", help="Training data to write, JSON lines.")
@click.option("-k", default=10, show_default=True, type=click.IntRange(1), help="Labels a text.")
@click.option(
    "--labelled",
    is_flag=True,
    help="TEXTS is training data: its labels count as right, other labels are judged.",
)
@click.option(
    "--min-relevance",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Leave out labels below it.",
)
@click.option("--store", metavar="FILE", help="Judgements; by default RUN/judgements.sqlite.")
@click.option("--yes", is_flag=True, help="Do not ask before judging.")
@device_option
@sentences
@input_options
def judge(
    run: str,
    file: str,
    spec: str,
    model: str,
    out: str,
    k: int,
    labelled: bool,
    min_relevance: float,
    store: str | None,
    yes: bool,
    device: str,
    table: object,
) -> None:
    """Let a teacher grade the best labels of TEXTS, and write training data.

    A few pairs are judged first, to estimate the cost. Judgements are stored with their source; a
    command that was stopped continues where it ended. Train with umpteen train FILE: labels with a
    smaller relevance count less.
    """
    from umpteen import judgements
    from umpteen.data.formats import load_dataset
    from umpteen.data.formats.table_options import TableOptions
    from umpteen.files import atomic_file, require_writable
    from umpteen.predictor import Predictor
    from umpteen.teachers import load_teacher

    require_writable(Path(out))  # before anything is judged
    teacher = load_teacher(spec, model=model, device=device)
    predictor = Predictor.load(run, device=device)
    which, known = predictor.text_config.text, None
    if labelled:
        data = load_dataset(file)
        texts = data["train"].texts(which)
        known = judgements.labels_of(data, "train", predictor)
    else:
        assert isinstance(table, TableOptions)
        reader = open_texts(predictor, file, table, None)
        batches = () if reader is None else reader.batches()
        texts = [text for batch in batches for text in batch.texts(which)]
    questions = judgements.ask(predictor, texts, k, known)
    kept = judgements.JudgementStore(store or Path(run) / "judgements.sqlite", teacher.name)
    try:
        found = judgements.estimate(questions, teacher, kept)
        log(found.sentence())
        if found.pairs and not yes:
            click.confirm("Judge them?", abort=True, err=True)
        for done in judgements.judge(questions, teacher, kept):
            log(f"Judged {done:,} of {counted(len(questions), 'text')}")
        lines = [
            json.dumps(record, ensure_ascii=False)
            for record in judgements.records(questions, kept, min_relevance=min_relevance)
        ]
    finally:
        kept.close()
    with atomic_file(Path(out)) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    log(f"Wrote {counted(len(lines), 'text')} to {out}. Next: umpteen train {out} --out NEW")
