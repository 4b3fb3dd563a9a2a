"""``umpteen index``: build a search index for a run and measure what it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from umpteen.cli._options import json_option, memory_option, sentences, write_json, write_table
from umpteen.head_names import COMBINED, HEADS


@click.command()
@click.argument("run")
@click.option(
    "--kind",
    help="exact; or faiss or ivfpq (an extra). Default: ivfpq from 5 million labels on, and where "
    "the vectors of a head exceed --max-memory; otherwise exact.",
)
@click.option("--factory", metavar="STRING", help='faiss: such as "HNSW32_SQ8,RFlat".')
@memory_option("--max-memory", help="ivfpq: memory that the build may use. Default: 2GiB.")
@click.option("--head", "heads", multiple=True, type=click.Choice([*HEADS, COMBINED]))
@click.option("-k", default=10, show_default=True, type=click.IntRange(1), help="For the recall.")
@json_option
@sentences
def index(run: str, k: int, as_json: bool, **options: Any) -> None:
    """Build a search index for RUN; predictions use it from then on.

    Prints its recall of the exact top k on the run's example queries, and the time per query of
    both. --kind exact removes an index that was built before.
    """
    from umpteen.label_indexes import build_label_indexes
    from umpteen.predictor import Predictor
    from umpteen.run_folder import RunFolder

    folder = RunFolder(run).require()
    predictor = Predictor.load(run, device="cpu", with_indexes=False, with_ensemble=False)
    queries = predictor.vectors(_example_texts(folder.examples))
    rows = build_label_indexes(folder, predictor.label_vectors, queries, k=k, **options)
    if as_json:
        write_json(rows)
        return
    write_table(
        ["head", "index", f"recall@{k}", "ms per query", "exact ms"],
        [[r["head"], r["index"], r["recall"], r["ms"], r["exact_ms"]] for r in rows],
    )


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
