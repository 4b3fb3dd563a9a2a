"""From a file to predictions, and from predictions and a split to a report. No metric here."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import zlib
from array import array
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from umpteen.data.dataset import Propensity, Split
from umpteen.data.formats.lines import Unzipped
from umpteen.data.formats.recognise import find_table_format
from umpteen.data.formats.row_batches import open_rows
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.labels import LabelSet
from umpteen.data.record_output import separator_for
from umpteen.display import counted
from umpteen.errors import DataError
from umpteen.metrics import DEFAULT_METRICS, parse_all
from umpteen.metrics.base import PerQuery
from umpteen.metrics.bins import contributions
from umpteen.metrics.hits import drop_filtered, find_hits, put_in_order
from umpteen.metrics.propensity import inverse_propensities
from umpteen.types import TopK

"""The metrics of a report when none are named."""
TIE_RULE = "ties: in the order of the labels"
TABLES = ("csv", "tsv", "parquet")
BIN_K = 5
MAX_PLACES = 1 << 29
"""The largest queries times longest line that is read into memory (6 GB)."""


@dataclass(frozen=True)
class Report:
    """Metrics in percent, with everything that shaped them."""

    values: dict[str, float]
    """Metric to percent, in the order asked for."""
    n: int
    """Queries, those without positives included; they count as 0."""
    propensity: Propensity
    bins: tuple[float, ...]
    """What each of five label-frequency bins, head to tail, brings to P@5 (their sum), percent."""
    n_without_positives: int
    """Queries without positives once filters are applied."""
    n_filters: int
    """Filter pairs taken out of truth and predictions."""
    width: int
    """Places per query that were given; beyond them everything is a miss."""
    per_query: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Metric to the (n,) values of its queries, percent, where they were asked for."""

    def __getitem__(self, metric: str) -> float:
        if metric not in self.values:
            raise KeyError(f"no metric {metric!r}; there are {', '.join(self.values)}")
        return self.values[metric]

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON document."""
        return {
            "metrics": dict(self.values),
            "propensity": asdict(self.propensity),
            "n": self.n,
            "bins": list(self.bins),
            "queries_without_positives": self.n_without_positives,
            "filter_pairs": self.n_filters,
            "width": self.width,
        }


def score(
    topk: TopK,
    split: Split,
    *,
    label_counts: NDArray[np.int64],
    n_train: int,
    propensity: Propensity,
    metrics: Sequence[str] = DEFAULT_METRICS,
    per_query: bool = False,
) -> Report:
    """Compare predictions with a split.

    Filter pairs leave the truth and the predictions, later places moving up, so search more than k
    where there are filters. Every query counts: one without positives adds 0 to P, nDCG, R, RP
    and MRR, and nothing to either side of PSP and PSnDCG.

    Args:
        topk: Predictions for every query of the split.
        split: The truth and its filters.
        label_counts: (L,) training queries of each label, before any augmentation.
        n_train: Training queries, before any augmentation.
        propensity: The data set's constants.
        metrics: What to compute, such as ``["P@1", "PSP@5"]``.
        per_query: Whether to keep the values of each query, of metrics that are averages.

    Returns:
        The report.

    Raises:
        ConfigError: If metrics are not known, all of them named.
        DataError: If the parts do not fit together.
    """
    chosen = parse_all(metrics)
    counts = np.asarray(label_counts)
    if counts.size and counts.max() > n_train:
        raise DataError(
            f"a label counts {counts.max()} training queries of {n_train}; "
            "counts and number must come from the same training split"
        )
    weights = inverse_propensities(counts, n_train, propensity.a, propensity.b)
    kept = drop_filtered(put_in_order(topk), split.filters, split.targets.shape[1])
    hits = find_hits(
        kept, split.filtered_targets(), inverse_propensities=weights, label_counts=counts
    )
    averages = [each for each in chosen if per_query and isinstance(each, PerQuery)]
    return Report(
        values={str(metric): 100.0 * metric.mean(hits) for metric in chosen},
        n=len(hits),
        propensity=propensity,
        bins=tuple((100.0 * contributions(hits, BIN_K)).tolist()),
        n_without_positives=int(np.count_nonzero(hits.n_positives == 0)),
        n_filters=len(split.filters),
        width=topk.rows.shape[1],
        per_query={str(metric): 100.0 * metric.per_query(hits) for metric in averages},
    )


def read_predictions(
    handle: IO[bytes], labels: LabelSet, n: int, *, name: str = "predictions"
) -> tuple[TopK, int]:
    """Read one JSON line per query: ``{"labels": [ids, best first]}``, plain or gzip.

    An element is an id or ``{"id": .., "score": ..}``. The order of the line is what counts, so
    the scores of the result are minus the place; scores in the file are only checked for falling.
    An id that no label has keeps its place as a miss (row -1 with a score).

    Args:
        handle: An open binary file.
        labels: The data's labels.
        n: How many lines there must be.
        name: What the file is called in errors.

    Returns:
        The predictions, and how many ids were not known.

    Raises:
        DataError: With file and line, if a line is damaged, repeats an id, is not in order of
            its scores, or if the number of lines is not n.
    """
    rows, lengths = array("q"), array("q")
    unknown = lines = 0
    with contextlib.closing(_read_lines(handle, name)) as all_lines:
        for lines, line in enumerate(all_lines, start=1):
            try:
                ids = _parse_line(line)
            except ValueError as error:
                raise DataError(str(error), path=name, line=lines) from None
            found = [labels.rows.get(label_id, -1) for label_id in ids]
            unknown += found.count(-1)
            rows.extend(found)
            lengths.append(len(ids))
    if lines != n:
        raise DataError(
            f"{counted(lines, 'line')} for {counted(n, 'text')}; write one line per text", path=name
        )
    longest = max(lengths, default=0)
    if lines * longest > MAX_PLACES:
        raise DataError(
            f"{lines} lines of up to {longest} labels are too many to hold; "
            f"cut lines at {MAX_PLACES // lines} labels",
            path=name,
        )
    return _pad(np.asarray(rows), np.asarray(lengths, np.int64), labels), unknown


def table_lines(path: Path, labels: LabelSet) -> IO[bytes] | None:
    """Return the predictions of a csv, tsv or parquet file as JSON lines; None for other files.

    Args:
        path: A file with a column ``labels``, as ``umpteen predict --out`` writes it: ids with a
            separator between them, or a JSON list.
        labels: The data's labels; the separator is one that no id holds.

    Raises:
        DataError: If the file cannot be read or has no such column.
    """
    if not path.is_file() or find_table_format(path, TableOptions()) not in TABLES:
        return None
    try:
        table = open_rows(path, TableOptions(text_columns=("labels",))).table
    except DataError as error:  # there is no option for the column of predictions
        raise DataError(str(error).replace(" (--text-column)", "")) from error
    mark, lines = separator_for(labels.ids), io.BytesIO()
    for number, record in table.rows(["labels"]):
        try:
            ids = _ids_of_cell(record.get("labels"), mark)
        except ValueError as error:
            raise DataError(f"labels: not a JSON list: {error}", path=path, line=number) from None
        lines.write(json.dumps({"labels": ids}).encode() + b"\n")
    lines.seek(0)
    return lines


def _ids_of_cell(cell: Any, mark: str | None) -> list[Any]:
    """Return the labels of a cell, in their order."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        return list(json.loads(cell))
    if isinstance(cell, str):
        return [part for part in (cell.split(mark) if mark else [cell]) if part]
    return [] if cell is None else list(cell)


def _read_lines(handle: IO[bytes], name: str) -> Generator[bytes, None, None]:
    buffered = io.BufferedReader(cast(io.RawIOBase, handle))
    try:
        packed = buffered.peek(2)[:2] == b"\x1f\x8b"
        lines = io.BufferedReader(Unzipped(buffered, name)) if packed else buffered
        # Not "yield from": that would close the file together with the generator.
        for line in lines:  # noqa: UP028
            yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"the gzip file is damaged: {error}", path=name) from error
    finally:
        buffered.detach()  # the handle is the caller's to close, and may be stdin


def _parse_line(line: bytes) -> list[str]:
    """Return the ids of one line; a ValueError says what is wrong with it."""
    if not line.strip():
        raise ValueError('an empty line; write {"labels": []} where there is no prediction')
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    elements = value.get("labels") if isinstance(value, dict) else None
    if not isinstance(elements, list):
        raise ValueError('expected an object with a list, {"labels": [ids, best first]}')
    objects = [element for element in elements if isinstance(element, dict)]
    if objects and len(objects) < len(elements):
        raise ValueError("ids and objects are mixed; write one or the other")
    ids = [_as_id(element.get("id") if objects else element) for element in elements]
    if len(set(ids)) != len(ids):
        double = next(label_id for place, label_id in enumerate(ids) if label_id in ids[:place])
        raise ValueError(f"label id {double!r} is there twice; a label can be predicted once")
    scores = [_as_score(element.get("score")) for element in objects if "score" in element]
    if any(left < right for left, right in zip(scores, scores[1:], strict=False)):
        raise ValueError("scores rise along the line; write the best label first")
    return ids


def _as_id(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"expected a label id (text or whole number), got {json.dumps(value)[:60]}")


def _as_score(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise ValueError(f"expected a finite score for every label, got {json.dumps(value)[:60]}")


def _pad(rows: NDArray[np.int64], lengths: NDArray[np.int64], labels: LabelSet) -> TopK:
    shape = (len(lengths), max(1, int(lengths.max(initial=0))))
    filled = np.arange(shape[1]) < lengths[:, None]  # (N, K), in the order the values came
    all_rows = np.full(shape, -1, np.int64)
    all_rows[filled] = rows
    scores = np.where(filled, -np.arange(shape[1], dtype=np.float32), np.float32(-np.inf))
    return TopK(all_rows, scores, labels)
