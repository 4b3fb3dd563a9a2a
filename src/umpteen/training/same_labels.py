"""Check that data has the labels of a run, row by row. Changes nothing."""

from __future__ import annotations

from itertools import zip_longest

from umpteen.data.dataset import Dataset
from umpteen.errors import LabelMismatch
from umpteen.predictor import Predictor
from umpteen.run_folder import RunFolder


def require_same_labels(predictor: Predictor, data: Dataset, folder: RunFolder) -> None:
    """Refuse data whose labels are not those of the run, in their order.

    Raises:
        LabelMismatch: Says which row differs first.
    """
    ours, theirs = predictor.labels.ids, data.labels.ids
    if len(ours) == len(theirs) and all(a == b for a, b in zip(ours, theirs, strict=True)):
        return
    pairs = enumerate(zip_longest(ours, theirs))
    row, (own, other) = next((row, pair) for row, pair in pairs if pair[0] != pair[1])
    raise LabelMismatch(
        f"the labels of {data.name} are not those of {folder.path}: row {row + 1} is "
        f"{_shown(other)}, in the run {_shown(own)}; use the data that the run was trained on, or "
        f"train again with: umpteen train DATA --out NEW --from {folder.path}"
    )


def _shown(label_id: str | None) -> str:
    return "missing" if label_id is None else repr(label_id)
