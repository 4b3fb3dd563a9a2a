"""Changes are applied to a later run, once."""

import pytest

from umpteen.data.labels import LabelSet
from umpteen.errors import RunError
from umpteen.store import ChangeStore, NewLabel
from umpteen.store.carry import carry_changes

from .helpers import make_run, open_store


def test_changes_are_carried_to_a_later_run(run, tmp_path):
    old = open_store(run)
    old.add_labels([NewLabel("x", "new"), NewLabel("y", "newer"), NewLabel("z", "third", "more")])
    old.add_examples(["one", "two", "three"], [["L1", "z"], ["L5"], ["y", "L5"]])
    old.retire_labels(["L1", "y", "L7"])
    labels = LabelSet(["L1", "L2", "x"], ["one", "two", "trained x"])
    new = ChangeStore.open(make_run(tmp_path / "later", labels), labels)
    assert carry_changes(old, new) == {"added": 2, "retired": 2, "examples": 1}
    state = new.state()
    assert list(state.added.ids) == ["y", "z"]
    assert list(state.added.contents) == ["", "more"]
    assert state.retired_ids == ["L1", "y"]
    assert new.example_texts(state.examples.digests) == ["one"]
    assert state.example_label_ids(0) == ["z"]
    assert carry_changes(old, new) == {"added": 0, "retired": 0, "examples": 0}
    assert new.state() is state
    with pytest.raises(RunError, match="is both runs"):
        carry_changes(old, open_store(run))
