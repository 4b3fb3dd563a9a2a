"""The folder ``index/`` of a run: what ``umpteen index`` built, loaded for its heads."""

from __future__ import annotations

from umpteen.errors import LabelMismatch, RunError
from umpteen.files import read_json
from umpteen.index import INDEXES
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.registry import resolve_saved
from umpteen.run_folder import RunFolder


def load_label_indexes(folder: RunFolder, model: str, label_vectors: LabelVectors) -> None:
    """Search heads with the indexes that were built for them.

    Args:
        folder: The run.
        model: The name of the model folder in use.
        label_vectors: Gets the indexes.

    Raises:
        RunError: If an index is damaged or of an unknown kind.
        LabelMismatch: If it was built for another model.
    """
    for head in label_vectors.heads:
        place = folder.index / head
        if not place.is_dir():
            continue
        about = read_json(place / "about.json", error=RunError)
        again = f"build it again with: umpteen index {folder.path}"
        if not isinstance(about, dict) or not {"model", "kind"} <= set(about):
            raise RunError(f"{place / 'about.json'} is damaged; {again}")
        if about["model"] != model:
            raise LabelMismatch(
                f"{place} was built for the model {about['model']}, the run now uses {model}; "
                f"{again}"
            )
        kind = resolve_saved(INDEXES, about["kind"], kind="index", source=place / "about.json")
        label_vectors.use_index(head, kind.load(place / "index"))
