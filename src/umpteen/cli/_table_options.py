"""Options of every command that reads DATA: columns, separators and header of tables."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from umpteen.cli._options import Function, log

if TYPE_CHECKING:
    from umpteen.data.dataset import Dataset
    from umpteen.data.formats.table_options import TableOptions

VOCABULARY = click.option(
    "--vocabulary", metavar="FILE", help="The labels: SKOS, or Annif's TSV or CSV."
)
LANGUAGE = click.option(
    "--language", metavar="CODE", help="Language of the label texts in the vocabulary, as en."
)
TEXT_COLUMN = click.option(
    "--text-column",
    "text_columns",
    multiple=True,
    metavar="NAME",
    help="The column with the text; several are joined. title=NAME and content=NAME keep two "
    "fields.",
)
LABEL_COLUMN = click.option(
    "--label-column",
    multiple=True,
    metavar="NAME",
    help="The column with the labels. Several: of 0 and 1 for each label, or one label a cell.",
)
ID_COLUMN = click.option("--id-column", metavar="NAME", help="The column with the ids of the rows.")
SEPARATOR = click.option(
    "--separator",
    metavar="CHARACTER",
    help="Stands between the labels of a cell: ; | , or tab, space, none (one label).",
)
DELIMITER = click.option(
    "--delimiter", metavar="CHARACTER", help="Stands between the fields of a csv or tsv file."
)
NO_HEADER = click.option(
    "--no-header",
    is_flag=True,
    help="The first row is data. Columns are named 1, 2, ...; of two columns the one with the "
    "longer cells is the text.",
)
OPTIONS = (
    TEXT_COLUMN, LABEL_COLUMN, ID_COLUMN, SEPARATOR, DELIMITER, NO_HEADER, VOCABULARY, LANGUAGE,
)  # fmt: skip
TEXT_OPTIONS = (TEXT_COLUMN, ID_COLUMN, DELIMITER, NO_HEADER)
"""Of texts without labels."""


def table_options(function: Function) -> Function:
    """Add the options of tables to a command; it receives them as ``table``.

    Goes below ``sentences``, so that a wrong value is one sentence.
    """

    @functools.wraps(function)
    def wrapped(
        *args: Any,
        text_columns: tuple[str, ...],
        label_column: tuple[str, ...],
        id_column: str | None,
        separator: str | None,
        delimiter: str | None,
        no_header: bool,
        vocabulary: str | None,
        language: str | None,
        **kwargs: Any,
    ) -> Any:
        from umpteen.data.formats.table_options import TableOptions, one_or_several

        one, several = one_or_several(label_column)
        table = TableOptions(
            text_columns, one, id_column, separator, delimiter, not no_header,
            vocabulary=vocabulary, language=language, label_columns=several,
        )  # fmt: skip
        return function(*args, table=table, **kwargs)

    for option in reversed(OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


rows_format_option = click.option(
    "--format",
    "data_format",
    type=click.Choice(["csv", "tsv", "jsonl", "parquet", "fasttext", "lines"]),
    help="The file's format, if it is not recognised.",
)


def input_options(function: Function) -> Function:
    """Add the options of tables of texts, which need no labels; received as ``table``.

    Goes below ``sentences``, so that a wrong value is one sentence.
    """

    @functools.wraps(function)
    def wrapped(
        *args: Any,
        text_columns: tuple[str, ...],
        id_column: str | None,
        delimiter: str | None,
        no_header: bool,
        **kwargs: Any,
    ) -> Any:
        from umpteen.data.formats.table_options import TableOptions

        table = TableOptions(
            text_columns, id_column=id_column, delimiter=delimiter, header=not no_header
        )
        return function(*args, table=table, **kwargs)

    for option in reversed(TEXT_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def read_data(path: str, data_format: str | None, table: TableOptions) -> Dataset:
    """Read a data set and print how it was read where that may be otherwise than meant."""
    from umpteen.data.formats import load_dataset

    dataset = load_dataset(path, data_format, options=table)
    for note in dataset.notes:
        log(note)
    return dataset
