"""``umpteen demo``: the main job, start to end, on a small real data set."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from umpteen.cli._options import log, sentences, write_lines, write_table

if TYPE_CHECKING:
    from umpteen.predictor import Predictor

QUESTIONS = ("heart attack", "broken wrist after a fall", "bitten by a dog")
SETTINGS = ("train.epochs=10", "validation.every_epochs=2")
SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@10")


@click.command()
@click.option("--out", default="demo-run", show_default=True, metavar="RUN")
@sentences
def demo(out: str) -> None:
    """Train on clinical terms and their ICD-10-CM codes, on the CPU, and label three texts.

    The terms come from the public-domain tables inside the package simple-icd-10-cm, with some
    everyday names of our own for training. Nothing is downloaded. A second call with the same RUN
    predicts without training.
    """
    predictor = _trained(Path(out))
    for question in QUESTIONS:
        _answer(predictor, question)
    if sys.stdin.isatty() and sys.stdout.isatty():
        _converse(predictor)
    command = _command()
    log(
        f"\nThe run is in {out}. Try:\n"
        f"  {command} serve {out}\n"
        f"  {command} report {out}\n"
        f"  echo 'bee sting' | {command} predict {out} -k 3"
    )


def _command() -> str:
    """Return how to call umpteen; ``make demo`` runs a script of an inactive environment."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "umpteen" and not shutil.which("umpteen") else "umpteen"


def _trained(run: Path) -> Predictor:
    from umpteen.data.sources import icd10
    from umpteen.evaluation import evaluate
    from umpteen.predictor import Predictor
    from umpteen.run_folder import RunFolder
    from umpteen.training.reporters import Terminal
    from umpteen.training.run import train

    if _finished(run):
        log(f"{run} exists; using it")
        return Predictor.load(run, device="cpu")
    log("Clinical terms (simple-icd-10-cm) and everyday names, and the ICD-10-CM codes they mean:")
    data = icd10.build()
    query, labels = data["test"].titles[0], data["test"].targets[0].indices
    log(
        f"  {len(data['train']):,} terms to learn from, {len(data['test']):,} held out, "
        f"{len(data.labels):,} codes. One of those held out:\n"
        f"  “{query}” → "
        + ", ".join(f"{data.labels.ids[row]} {data.labels.titles[row]}" for row in labels)
        + "\n"
    )
    resume = RunFolder(run).config.is_file()
    model = train(
        data,
        out=run,
        overrides=() if resume else SETTINGS,
        device="cpu",
        resume=resume,
        reporters=[Terminal()],
    )
    log("\nTest texts (percent; dual: label texts, classifier: one vector per label):")
    result = evaluate(model, data, metrics=SHOWN)
    write_table(["", *SHOWN], [[head, *r.values.values()] for head, r in result.heads.items()])
    return model


def _finished(run: Path) -> bool:
    from umpteen.errors import UmpteenError
    from umpteen.files import read_json
    from umpteen.run_folder import RunFolder

    folder = RunFolder(run)
    try:
        history = read_json(folder.metrics)["validation"]
        return bool(history[-1]["epoch"] == folder.read_settings()["train"]["epochs"])
    except (UmpteenError, LookupError, TypeError):
        return False  # training says what is wrong, if anything is


def _answer(predictor: Predictor, question: str) -> None:
    top = predictor.predict(question, k=5)
    write_lines("", question)
    for label_id, text, score in zip(top.ids[0], top.texts[0], top.scores[0], strict=True):
        write_lines(f"  {score:5.2f}  {label_id:<7} {text}")


def _converse(predictor: Predictor) -> None:
    log("\nYour own words (an empty line ends):")
    while question := click.prompt("", default="", show_default=False, prompt_suffix="> ").strip():
        _answer(predictor, question)
