"""Predictions of Arrow tables, and of parquet files part by part: for Ray, Spark and loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from umpteen.errors import ConfigError, DataError, RunError
from umpteen.extras import require
from umpteen.files import LOAD_ERRORS, atomic_file, read_json, write_json
from umpteen.predictor import Predictor
from umpteen.run_files import run_digest
from umpteen.types import TopK

TEXTS_AT_ONCE = 1024
MANIFEST = "_manifest.json"
"""Readers of parquet folders leave out names that begin with an underscore."""


class ArrowPredictor:
    """Adds predictions to Arrow tables: the columns ``labels`` and ``note``.

    ``labels`` is a list of ``{id, text, score}`` as ``umpteen predict`` writes them. The run is
    loaded when the object is made. Processes of one machine share its mapped files.

    Args:
        run: The run folder, at a path that every process can read.
        text_column: The column with the texts; several are joined with a space.
        device: ``auto``, ``cpu`` or ``cuda``.
        **options: Of ``Predictor.predict``: ``k``, ``head``, ``threshold``, ``without``.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        text_column: str | Sequence[str] = "text",
        device: str = "auto",
        **options: Any,
    ) -> None:
        self._pa = require("pyarrow", extra="parquet")
        self.columns = [text_column] if isinstance(text_column, str) else list(text_column)
        self.options = options
        self.model = Predictor.load(run, device=device)

    def __call__(self, table: Any) -> Any:
        """Return a ``pyarrow.Table`` or ``RecordBatch`` with the predictions of its rows.

        Raises:
            DataError: If a text column is missing.
        """
        missing = [name for name in self.columns if name not in table.schema.names]
        if missing:
            raise DataError(
                f"no column {missing[0]!r}; the table has: {', '.join(table.schema.names)}; name "
                "the column of the texts with text_column"
            )
        joined = zip(*(table.column(name).to_pylist() for name in self.columns), strict=True)
        texts = [" ".join(str(each) for each in some if each is not None) for some in joined]
        found: dict[str, list[Any]] = {"labels": [], "note": []}
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            top = self.model.predict(texts[start : start + TEXTS_AT_ONCE], **self.options)
            found["labels"].append(_label_lists(self._pa, top))
            notes = top.notes if top.notes is not None else [None] * len(top.rows)
            found["note"].append(self._pa.array(notes, self._pa.string()))
        types = {"labels": label_type(self._pa), "note": self._pa.string()}
        for name, arrays in found.items():
            whole = self._pa.concat_arrays([self._pa.array([], types[name]), *arrays])
            if name in table.schema.names:
                table = table.drop_columns([name])
            table = table.append_column(name, whole)
        return table

    def batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield each ``RecordBatch`` with its predictions: what Spark's ``mapInArrow`` calls."""
        return map(self, batches)


@dataclass(frozen=True)
class Part:
    """Row groups of one parquet file that are predicted together."""

    number: int
    file: str
    row_groups: list[int]
    rows: int

    @property
    def name(self) -> str:
        """Return the file name of the predictions."""
        return f"part-{self.number:06d}.parquet"


def plan_parts(
    run: str | Path,
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    options: Mapping[str, Any],
    rows_per_part: int = 100_000,
) -> list[Part]:
    """Write the manifest of an output folder, or check the one that is there.

    Returns:
        All parts; those whose file is there are done.

    Raises:
        ConfigError: If the folder belongs to other inputs, options or another run.
        DataError: If an input is no parquet file.
    """
    parts: list[Part] = []
    for file in _files(inputs):
        groups = _row_groups(file)
        start = 0
        for stop in range(1, len(groups) + 1):
            rows = sum(groups[start:stop])
            if rows >= rows_per_part or stop == len(groups):
                parts.append(Part(len(parts), str(file), list(range(start, stop)), rows))
                start = stop
    wanted = {
        "run": run_digest(Path(run)),
        "options": {name: list(v) if isinstance(v, tuple) else v for name, v in options.items()},
        "parts": [asdict(part) for part in parts],
    }
    manifest = Path(out) / MANIFEST
    if manifest.exists():
        known = read_json(manifest, error=RunError)
        for name, value in wanted.items():
            if not isinstance(known, dict) or known.get(name) != value:
                raise ConfigError(
                    f"{out} holds predictions with another {name.rstrip('s')}; name another folder"
                )
    else:
        Path(out).mkdir(parents=True, exist_ok=True)
        write_json(manifest, wanted)
    return parts


def predict_part(predictor: ArrowPredictor, part: Part, out: str | Path) -> int:
    """Write the predictions of a part; the file is there whole or not at all."""
    pa = require("pyarrow", extra="parquet")
    parquet = require("pyarrow.parquet", extra="parquet")
    path, writer, rows = Path(out) / part.name, None, 0
    with parquet.ParquetFile(part.file) as source, atomic_file(path) as temporary:
        empty = predictor(source.schema_arrow.empty_table())
        with parquet.ParquetWriter(temporary, empty.schema) as writer:
            # Few rows at a time: memory does not grow with the part.
            for batch in source.iter_batches(TEXTS_AT_ONCE, row_groups=part.row_groups):
                writer.write_table(predictor(pa.Table.from_batches([batch])))
                rows += len(batch)
        if rows != part.rows:
            raise DataError(f"{part.file} has changed: {rows} rows instead of {part.rows}")
    return rows


def missing_parts(parts: Sequence[Part], out: str | Path) -> list[Part]:
    """Return the parts whose predictions are not there."""
    return [part for part in parts if not (Path(out) / part.name).is_file()]


def label_type(pa: Any) -> Any:
    """Return the Arrow type of the column ``labels``."""
    label = pa.struct([("id", pa.string()), ("text", pa.string()), ("score", pa.float64())])
    return pa.list_(label)


def _label_lists(pa: Any, top: TopK) -> Any:
    kept = top.rows >= 0
    rows, places = np.unique(top.rows[kept], return_inverse=True)
    assert top.labels is not None
    names = rows.tolist()
    fields = [
        pa.array([top.labels.ids[row] for row in names], pa.string()).take(pa.array(places)),
        pa.array([top.labels.texts[row] for row in names], pa.string()).take(pa.array(places)),
        pa.array(np.round(top.scores[kept].astype(np.float64), 6)),
    ]
    ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int32)
    labels = pa.StructArray.from_arrays(fields, fields=list(label_type(pa).value_type))
    return pa.ListArray.from_arrays(pa.array(ends), labels, type=label_type(pa))


def _files(inputs: Sequence[str | Path]) -> list[Path]:
    found: list[Path] = []
    for given in map(Path, inputs):
        own = sorted(given.glob("*.parquet")) if given.is_dir() else [given]
        if not own:
            raise DataError(f"{given} holds no file that ends in .parquet")
        found += [file.absolute() for file in own]
    return found


def _row_groups(file: Path) -> list[int]:
    parquet = require("pyarrow.parquet", extra="parquet")
    try:
        about = parquet.read_metadata(file)
        return [about.row_group(group).num_rows for group in range(about.num_row_groups)]
    except LOAD_ERRORS as error:
        raise DataError(f"cannot be read as parquet: {error}", path=file) from error
