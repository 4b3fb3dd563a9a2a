"""Data sets on disk: the table of formats, and ``load_dataset``. One file per format."""

from __future__ import annotations

from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.data.formats.recognise import Format, recognise

FORMATS = {
    "csv": "umpteen.data.formats.delimited:CSV",
    "jsonl": "umpteen.data.formats.jsonl:",
    "lf-json": "umpteen.data.formats.lf_json:",
    "npz": "umpteen.data.formats.npz:",
    "parquet": "umpteen.data.formats.parquet:",
    "tsv": "umpteen.data.formats.delimited:TSV",
    "xc-text": "umpteen.data.formats.xc_text:",
}

LOOKED_FOR = {
    "csv": "train.csv, test.csv or one file with text and labels columns",
    "jsonl": "train.jsonl, test.jsonl or one file of JSON objects",
    "lf-json": "trn.json, tst.json, lbl.json",
    "npz": "Y.trn.npz, Y.tst.npz, raw/Y.txt",
    "parquet": "train.parquet, test.parquet or one file",
    "tsv": "train.tsv, test.tsv or one file with text and labels columns",
    "xc-text": "trn_X.txt, trn_X_Y.txt, Y.txt",
}


def find_format(path: str | Path, format: str | None = None) -> tuple[str, Format]:
    """Name and format of a path; see ``recognise``."""
    return recognise(path, format, FORMATS, LOOKED_FOR)


def load_dataset(path: str | Path, format: str | None = None) -> Dataset:
    """Read a data set.

    Args:
        path: A folder or file, plain or gzip; ``-`` reads jsonl from standard input.
        format: A name of ``FORMATS`` or ``"package.module:part"``; recognised if left out.

    Returns:
        The data set. Empty texts and rows without labels are kept.

    Raises:
        DataError: If it is damaged, or in none of the formats.
    """
    return find_format(path, format)[1].read(Path(path))
