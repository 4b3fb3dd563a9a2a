"""Any sequence of changes by two writers gives what a plain model of them gives."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from umpteen.errors import DataError
from umpteen.store import ChangeStore, NewLabel, text_digest

from .helpers import LABELS, facts

IDS = st.sampled_from([*LABELS.ids[:3], "x", "y", "z", "\x00", "ä"])
TEXTS = st.sampled_from(["a", "b", "\U0001f600 c\x00d", "label 1", " "])


class Changes(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.run = Path(tempfile.mkdtemp())
        self.stores = [ChangeStore.open(self.run, LABELS) for _ in range(2)]
        self.added, self.retired, self.examples, self.revision = {}, set(), {}, 0
        self.state = self.stores[0].state()

    def teardown(self):
        for store in self.stores:
            store.close()
        shutil.rmtree(self.run, ignore_errors=True)

    def known(self, label_id):
        if label_id in self.added:
            return self.added[label_id]
        return dict(zip(LABELS.ids, LABELS.titles, strict=True)).get(label_id)

    def expect(self, change, allowed, changed):
        if not allowed:
            with pytest.raises(DataError):
                change()
            return False
        assert change() == changed
        self.revision += changed > 0
        return True

    @rule(which=st.integers(0, 1), new=st.lists(st.tuples(IDS, TEXTS), max_size=3))
    def add_labels(self, which, new):
        wanted, allowed = {}, True
        for label_id, text in new:
            known = wanted.get(label_id, self.known(label_id))
            taken = known is not None and known != text
            retired = label_id in self.retired and label_id not in wanted
            allowed = allowed and text.strip() and label_id.strip() and not taken and not retired
            if known is None:
                wanted[label_id] = text
        labels = [NewLabel(*pair) for pair in new]
        if self.expect(lambda: self.stores[which].add_labels(labels), allowed, len(wanted)):
            self.added.update(wanted)

    @rule(which=st.integers(0, 1), ids=st.lists(IDS, max_size=3), retire=st.booleans())
    def retire_or_restore(self, which, ids, retire):
        store = self.stores[which]
        change = store.retire_labels if retire else store.restore_labels
        allowed = all(self.known(label_id) is not None for label_id in ids)
        touched = {i for i in ids if (i in self.retired) != retire}
        if self.expect(lambda: change(ids), allowed, len(touched)):
            self.retired ^= touched

    @rule(
        which=st.integers(0, 1),
        pairs=st.lists(st.tuples(TEXTS, st.lists(IDS, max_size=2)), max_size=3),
    )
    def add_examples(self, which, pairs):
        allowed = all(
            text.strip()
            and ids
            and all(self.known(i) is not None and i not in self.retired for i in ids)
            for text, ids in pairs
        )
        new = {text: tuple(dict.fromkeys(ids)) for text, ids in pairs}
        changed = sum(self.examples.get(text) != ids for text, ids in new.items())
        texts, labels = [text for text, _ in pairs], [ids for _, ids in pairs]
        if self.expect(lambda: self.stores[which].add_examples(texts, labels), allowed, changed):
            self.examples.update(new)

    @invariant()
    def every_reader_sees_the_same(self):
        expected = {
            "revision": self.revision,
            "ids": [*LABELS.ids, *self.added],
            "texts": [*LABELS.titles, *self.added.values()],
            "retired": [i for i in [*LABELS.ids, *self.added] if i in self.retired],
            "examples": {text_digest(text): ids for text, ids in self.examples.items()},
        }
        self.state = self.stores[0].read(self.state)
        assert facts(self.state) == expected
        assert facts(self.stores[1].state()) == expected
        cold = ChangeStore(self.run, LABELS)
        assert facts(cold.state()) == expected
        texts = cold.example_texts(cold.state().examples.digests)
        assert texts == list(self.examples)
        cold.close()


Changes.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)
TestLaws = Changes.TestCase
