"""Apply the changes of one run to another, for example after training again."""

from __future__ import annotations

from umpteen.errors import RunError
from umpteen.store.change_store import ChangeStore
from umpteen.store.checks import NewLabel

EXAMPLES_AT_ONCE = 4096


def carry_changes(old: ChangeStore, new: ChangeStore, *, who: str = "") -> dict[str, int]:
    """Apply the changes of one run to another, as far as they are not in it already.

    Args:
        old: The store to read.
        new: The store to change; its run may have been trained with other labels.
        who: The person or program, for the audit trail.

    Returns:
        How many labels were ``added`` and ``retired``, and how many ``examples`` were added. An
        example keeps the labels that the new run has; one without any is left out.

    Raises:
        RunError: If both are the same store.
        DataError: If an id belongs to another label in the new run.
    """
    if old.path.resolve() == new.path.resolve():
        raise RunError(f"{old.path.parent} is both runs; name another run to carry changes to")
    before, known = old.state(), new.state().labels.rows
    added = before.added
    fields = zip(added.ids, added.texts, added.contents, strict=True)
    labels = [NewLabel(*values) for values in fields if values[0] not in known]
    counts = {"added": new.add_labels(labels, who=who), "retired": 0, "examples": 0}
    known = new.state().labels.rows
    retired = [label_id for label_id in before.retired_ids if label_id in known]
    counts["retired"] = new.retire_labels(retired, who=who)
    gone = set(new.state().retired_ids)
    for start in range(0, len(before.examples), EXAMPLES_AT_ONCE):
        positions = range(start, min(start + EXAMPLES_AT_ONCE, len(before.examples)))
        texts = old.example_texts(before.examples.digests[positions.start : positions.stop])
        pairs = [
            (text, [i for i in before.example_label_ids(place) if i in known and i not in gone])
            for place, text in zip(positions, texts, strict=True)
        ]
        pairs = [(text, ids) for text, ids in pairs if text and ids]
        counts["examples"] += new.add_examples(
            [text for text, _ in pairs], [ids for _, ids in pairs], who=who
        )
    return counts
