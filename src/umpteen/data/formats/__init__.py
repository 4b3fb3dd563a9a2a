"""Data sets on disk: the table of formats, and ``load_dataset``. One file per format."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.data.formats.recognise import Format, recognise
from umpteen.data.formats.table_options import TableOptions
from umpteen.errors import DataError
from umpteen.registry import Registry

FORMATS = Registry(
    "umpteen.formats",
    {
        "annif-csv": "umpteen.data.formats.annif_documents:CSV",
        "annif-folder": "umpteen.data.formats.annif_folder:",
        "annif-jsonl": "umpteen.data.formats.annif_documents:JSONL",
        "annif-tsv": "umpteen.data.formats.annif_documents:TSV",
        "csv": "umpteen.data.formats.delimited:CSV",
        "jsonl": "umpteen.data.formats.jsonl:",
        "lf-json": "umpteen.data.formats.lf_json:",
        "npz": "umpteen.data.formats.npz:",
        "parquet": "umpteen.data.formats.parquet:",
        "tsv": "umpteen.data.formats.delimited:TSV",
        "xc-text": "umpteen.data.formats.xc_text:",
    },
)

READ_ONLY = {
    "fasttext": "umpteen.data.formats.fasttext:",
    "hugging-face": "umpteen.data.formats.hugging_face:",
}
"""Formats of other programs, for reading."""

LOOKED_FOR = {
    "annif-csv": "train.csv, test.csv or one file with the columns text and subject_uris",
    "annif-folder": "one .txt file per text, its labels in a .tsv or .key file of the same name",
    "annif-jsonl": "train.jsonl, test.jsonl or one file of JSON objects with text and subjects",
    "annif-tsv": "train.tsv, test.tsv or one file; a text, a tab and <uri> <uri> per line",
    "csv": "train.csv, test.csv or one file with text and labels columns",
    "fasttext": "train.txt, test.txt or one file with __label__NAME in its lines",
    "hugging-face": "dataset_dict.json or state.json, as save_to_disk writes them",
    "jsonl": "train.jsonl, test.jsonl or one file of JSON objects, one per line or in an array",
    "lf-json": "trn.json, tst.json, lbl.json",
    "npz": "Y.trn.npz, Y.tst.npz, raw/Y.txt",
    "parquet": "train.parquet, test.parquet or one file",
    "tsv": "train.tsv, test.tsv or one file with text and labels columns",
    "xc-text": "trn_X.txt, trn_X_Y.txt, Y.txt",
}

logger = logging.getLogger(__name__)


def find_format(
    path: str | Path, format: str | None = None, options: TableOptions | None = None
) -> tuple[str, Format]:
    """Name and format of a path; see ``recognise``."""
    return recognise(path, format, {**FORMATS, **READ_ONLY}, options)


def load_dataset(
    path: str | Path,
    format: str | None = None,
    *,
    options: TableOptions | None = None,
    vocabulary: str | Path | None = None,
    language: str | None = None,
) -> Dataset:
    """Read a data set.

    Args:
        path: A folder or file, plain or gzip; ``-`` reads jsonl, csv or tsv from standard input.
        format: A name of ``FORMATS`` or ``READ_ONLY``, or ``"package.module:part"``; recognised
            if left out.
        options: Columns, separators and header of tables (csv, tsv, parquet, jsonl); found in the
            data where they are left out.
        vocabulary: A file with the labels and their texts (SKOS, or Annif's TSV or CSV); labels
            of the data that it does not have are left out and counted.
        language: The language of the label texts, where the vocabulary has several.

    Returns:
        The data set. Empty texts and rows without labels are kept. ``notes`` says how the data was
        read where that may be otherwise than meant.

    Raises:
        DataError: If it is damaged, or in none of the formats.
    """
    from umpteen.data.statistics import unlabelled_notes

    options = options or TableOptions()
    if vocabulary is not None or language is not None:
        options = replace(options, vocabulary=vocabulary, language=language)
    try:
        dataset = read_format(path, *find_format(path, format, options), options)
    except MemoryError as error:
        raise DataError(
            "the data does not fit into the memory of this machine", path=path
        ) from error
    notes = (*dataset.notes, *unlabelled_notes(dataset))
    for note in notes:
        logger.info(note)
    return replace(dataset, notes=notes)


def read_format(path: str | Path, name: str, part: Format, options: TableOptions) -> Dataset:
    """Read a data set whose format is known.

    Args:
        path: A folder, a file, or ``-``.
        name: What the format is called.
        part: The format.
        options: Columns, separators and header; only formats of tables take them.

    Raises:
        DataError: If it is damaged, or the format has no columns to choose.
    """
    given = options.given()
    if given and not hasattr(part, "read_table"):
        raise DataError(f"{given[0]} is for tables (csv, tsv, parquet, jsonl); {path} is {name}")
    if options.vocabulary is None and options.language is None:
        return _read(path, part, options)
    from umpteen.data.vocabulary import require_vocabulary, with_vocabulary

    labels = require_vocabulary(Path(path), options.vocabulary, options.language)
    if getattr(part, "READS_VOCABULARY", False):
        return part.read(Path(path), labels)  # type: ignore[call-arg]
    return with_vocabulary(_read(path, part, options), labels)


def _read(path: str | Path, part: Format, options: TableOptions) -> Dataset:
    if hasattr(part, "read_table"):
        dataset: Dataset = part.read_table(Path(path), options)
        return dataset
    return part.read(Path(path))
