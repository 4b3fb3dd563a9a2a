"""``umpteen index``: build a search index for a run and measure what it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umpteen.cli._options import json_option, sentences, write_json, write_table
from umpteen.head_names import COMBINED, HEADS

if TYPE_CHECKING:
    from umpteen.index.base import LabelIndex
    from umpteen.predictor import Predictor


@click.command()
@click.argument("run")
@click.option("--kind", default="exact", show_default=True, help="exact, or faiss (an extra).")
@click.option("--factory", metavar="STRING", help='faiss: such as "HNSW32_SQ8,RFlat".')
@click.option("--head", "heads", multiple=True, type=click.Choice([*HEADS, COMBINED]))
@click.option("-k", default=10, show_default=True, type=click.IntRange(1), help="For the recall.")
@json_option
@sentences
def index(
    run: str, kind: str, factory: str | None, heads: tuple[str, ...], k: int, as_json: bool
) -> None:
    """Build a search index for RUN; predictions use it from then on.

    Prints its recall of the exact top k on the run's example queries, and the time per query of
    both. --kind exact removes an index that was built before.
    """
    rows = build(Path(run), kind=kind, factory=factory, heads=heads, k=k)
    if as_json:
        write_json(rows)
        return
    write_table(
        ["head", "index", f"recall@{k}", "ms per query", "exact ms"],
        [[r["head"], r["index"], r["recall"], r["ms"], r["exact_ms"]] for r in rows],
    )


def build(
    run: Path, *, kind: str, factory: str | None, heads: tuple[str, ...], k: int
) -> list[dict[str, Any]]:
    """Build the indexes and compare them with exact search; see the command."""
    import shutil

    from umpteen.errors import ConfigError
    from umpteen.files import atomic_folder, disk_errors, write_json
    from umpteen.index import INDEXES
    from umpteen.predictor import Predictor
    from umpteen.registry import resolve
    from umpteen.run_folder import RunFolder

    folder = RunFolder(run).require()
    builder = resolve(INDEXES, kind, kind="index")
    if factory and kind != "faiss":
        raise ConfigError("--factory is for --kind faiss")
    predictor = Predictor.load(run, device="cpu", with_indexes=False)
    texts = _example_texts(folder.examples)
    options = {"factory": factory} if factory else {}
    built = {
        head: builder.build(predictor.label_vectors.numpy(head), **options)
        for head in heads or predictor.vector_heads
    }
    rows = [_measure(predictor, head, each, texts, k) for head, each in built.items()]
    if kind == "exact":
        shutil.rmtree(folder.index, ignore_errors=True)
        return rows
    # All at once, and only now: what was there before serves until the new one is whole.
    again = disk_errors(folder.index, advice="build the index again")
    with again, atomic_folder(folder.index, replace=True) as temporary:
        for head, each in built.items():
            (temporary / head).mkdir()
            each.save(temporary / head / "index")
            about = {"kind": kind, "model": folder.model("best").name}
            write_json(temporary / head / "about.json", about)
    return rows


def _example_texts(file: Path) -> list[str]:
    from umpteen.errors import RunError
    from umpteen.files import LOAD_ERRORS

    try:
        lines = file.read_text("utf-8").split("\n")  # a text may hold other line breaks
        texts = [json.loads(line)["text"] for line in lines if line]
    except LOAD_ERRORS as error:
        raise RunError(f"{file} is missing or damaged: {error}") from error
    if not texts:
        raise RunError(f"{file} holds no example query to measure the index with")
    return texts


def _measure(
    predictor: Predictor, head: str, built: LabelIndex, texts: list[str], k: int
) -> dict[str, Any]:
    """Return recall of the exact top k and the time per query of both."""
    import time

    from umpteen.index.exact import ExactIndex
    from umpteen.index.recall import recall

    exact = ExactIndex.build(predictor.label_vectors.numpy(head))
    queries = predictor.vectors(texts)[:, predictor.label_vectors.columns[head]]
    times = {}
    for name, part in (("ms", built), ("exact_ms", exact)):
        part.search(queries[:1], k)
        start = time.perf_counter()
        part.search(queries, k)
        times[name] = 1000 * (time.perf_counter() - start) / len(texts)
    description = built.describe()
    return {
        "head": head,
        "index": str(description.get("factory", description.get("kind", "exact"))),
        "recall": 100 * recall(built, exact, queries, k),
        **times,
    }
