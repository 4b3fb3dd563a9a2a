"""``umpteen index``: build a search index for a run and measure what it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from umpteen.cli._options import json_option, sentences, write_json, write_table


@click.command()
@click.argument("run")
@click.option("--kind", default="exact", show_default=True, help="exact, or faiss (an extra).")
@click.option("--factory", metavar="STRING", help='faiss: such as "HNSW32" or "IVF256,PQ32".')
@click.option("--head", "heads", multiple=True, type=click.Choice(["de", "clf", "combined"]))
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
    import time

    from umpteen.errors import ConfigError
    from umpteen.files import atomic_folder, write_json
    from umpteen.index import INDEXES
    from umpteen.index.exact import ExactIndex
    from umpteen.index.recall import recall
    from umpteen.predictor import Predictor
    from umpteen.registry import resolve
    from umpteen.runs import RunFolder

    folder = RunFolder(run).require()
    builder = resolve(INDEXES, kind, kind="index")
    if factory and kind != "faiss":
        raise ConfigError("--factory is for --kind faiss")
    shutil.rmtree(folder.index, ignore_errors=True)
    predictor = Predictor.load(run, device="cpu")
    texts = [json.loads(line)["text"] for line in folder.examples.read_text("utf-8").splitlines()]
    rows = []
    for head in heads or predictor.heads:
        vectors = predictor.label_vectors(head)
        built = builder.build(vectors, **({"factory": factory} if factory else {}))
        exact = ExactIndex.build(vectors)
        queries = predictor.vectors(texts)[:, predictor.columns(head)]
        times = {}
        for name, part in (("ms", built), ("exact_ms", exact)):
            part.search(queries[:1], k)
            start = time.perf_counter()
            part.search(queries, k)
            times[name] = 1000 * (time.perf_counter() - start) / len(texts)
        description = built.describe()
        rows.append(
            {
                "head": head,
                "index": str(description.get("factory", kind)),
                "recall": 100 * recall(built, exact, queries, k),
                **times,
            }
        )
        if kind != "exact":
            with atomic_folder(folder.index / head, replace=True) as temporary:
                built.save(temporary / "index")
                about = {"kind": kind, "model": folder.model("best").name}
                write_json(temporary / "about.json", about)
    return rows
