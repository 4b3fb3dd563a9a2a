"""The list of labels is searched, sorted and paged."""

import numpy as np

from umpteen.data.labels import LabelSet
from umpteen.store import NewLabel, StoreState
from umpteen.store.listing import list_labels

from .helpers import COUNTS, open_store


def test_the_list_is_searched_ordered_and_paged(run):
    store = open_store(run)
    store.add_labels([NewLabel("x", "Brand NEW label"), NewLabel("y", "old")])
    store.retire_labels(["L3", "y"])
    state = store.state()
    everything = list_labels(state, COUNTS)
    assert [label.id for label in everything.labels] == [f"L{n}" for n in range(10)] + ["x", "y"]
    states = [label.state for label in everything.labels]
    assert (states[2], states[3], states[10], states[11]) == (
        "trained", "retired", "added", "retired"
    )  # fmt: skip
    assert (everything.labels[1].count, everything.labels[10].count) == (16, 0)
    found = list_labels(state, COUNTS, search="label new")
    assert [label.id for label in found.labels] == ["x"]
    rare = list_labels(state, COUNTS, order="rare", offset=1, limit=2)
    assert [label.id for label in rare.labels] == ["x", "y"]
    assert rare.total == 12
    frequent = list_labels(state, COUNTS, order="frequent", limit=1)
    assert frequent.labels[0].id == "L0"
    changed = list_labels(state, COUNTS, changed=True)
    assert [label.id for label in changed.labels] == ["L3", "x", "y"]
    assert list_labels(state, COUNTS, search="label", changed=True).total == 2
    assert changed.as_json()["labels"][0] == {
        "id": "L3", "text": "label 3", "count": 12, "state": "retired"
    }  # fmt: skip


def test_the_search_finds_what_a_look_at_every_label_finds():
    rng = np.random.default_rng(2)
    parts = ["Ash", "OAK", "elm-tree", "straße", "İ", "a.b", "fir", "pine"]
    titles = [" ".join(rng.choice(parts, rng.integers(0, 4))) for _ in range(120)]
    labels = LabelSet([f"id{n}" for n in range(120)], titles)
    state, counts = StoreState.empty(labels), np.ones(120, np.int64)
    for search in ("ash", "oak FIR", "tree", "STRASSE", "a.b", "id7", "e", "nothing", "i id1 pine"):
        wanted = [
            label_id
            for label_id, title in zip(labels.ids, titles, strict=True)
            if all(word in f"{label_id} {title}".casefold() for word in search.casefold().split())
        ]
        found = list_labels(state, counts, search=search, limit=500)
        assert [label.id for label in found.labels] == wanted, search
