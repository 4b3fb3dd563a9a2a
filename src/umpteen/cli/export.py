"""``umpteen export``: options in, a function of ``umpteen.export`` called."""

from __future__ import annotations

import inspect
import re
from typing import Any

import click

from umpteen.cli._options import device_option, format_option, log, sentences

# \b keeps click from filling the list into a paragraph.
HELP = """Write the encoder or the label vectors of RUN for other programs.

For a table of predictions use umpteen predict RUN TEXTS --out predictions.csv.

\b
sentence-transformers  encoder and a head: SentenceTransformer(OUT)
onnx, openvino         encoder and heads of a transformer, as one network
pgvector               label vectors: OUT is postgresql://user@host/database
lancedb, qdrant        label vectors: OUT is a folder (qdrant: or http://host:6333)
parquet                label vectors: OUT is a file

A network in RUN/backends/onnx or RUN/backends/openvino is used by --backend of predict and serve.
"""


@click.command(help=HELP)
@click.argument("run")
@click.argument("out")
@click.option("--to", required=True, metavar="FORMAT", help="What to write; see above.")
@click.option(
    "--head",
    type=click.Choice(["dual", "classifier", "combined"]),
    help="The head whose vectors are exported; dual by default.",
)
@click.option("--table", metavar="NAME", help="Of a vector store; labels by default.")
@click.option(
    "--precision", type=click.Choice(["fp32", "int8"]), help="Of an ONNX network; fp32 by default."
)
@click.option("--data", metavar="DATA", help="Validation data that int8 is measured on.")
@device_option
@format_option
@sentences
def export(
    run: str,
    out: str,
    to: str,
    head: str | None,
    table: str | None,
    precision: str | None,
    data: str | None,
    device: str,
    data_format: str | None,
) -> None:
    """Write RUN for other programs; HELP is what the command prints."""
    from umpteen.data.formats import load_dataset
    from umpteen.export import EXPORTS
    from umpteen.predictor import Predictor
    from umpteen.registry import resolve

    write = resolve(EXPORTS, to, kind="export format")
    given: dict[str, Any] = {"head": head, "table": table, "precision": precision, "data": data}
    given = {name: value for name, value in given.items() if value is not None}
    unused = given.keys() - inspect.signature(write).parameters.keys()
    if unused:
        raise click.UsageError(f"--{min(unused)} is no option of --to {to}")
    if data is not None:
        given["data"] = load_dataset(data, data_format)
    measured = data is not None
    predictor = Predictor.load(run, device=device, with_indexes=False, with_ensemble=measured)
    written = write(predictor, out, **given)
    log(f"Wrote {_without_password(out)}: {written}")


def _without_password(place: str) -> str:
    """Return a place without the password that an address may have."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1@", place)
