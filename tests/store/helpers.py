"""A small run for tests of the store."""

import numpy as np

from umpteen.data.labels import LabelSet
from umpteen.run_folder import RunFolder
from umpteen.store import ChangeStore

LABELS = LabelSet([f"L{n}" for n in range(10)], [f"label {n}" for n in range(10)])
COUNTS = np.arange(10)[::-1] * 2


def make_run(path, labels=LABELS):
    path.mkdir()
    (path / "config.json").write_text("{}")
    RunFolder(path).write_labels(labels, COUNTS[: len(labels)])
    return path


def open_store(run, **options):
    # Several writers take turns at random: on a busy machine one of them may wait for long.
    return ChangeStore.open(run, LABELS, **{"busy_seconds": 180.0, **options})


def facts(state):
    """Everything a state says, as plain values."""
    return {
        "revision": state.revision,
        "ids": list(state.labels.ids),
        "texts": list(state.labels.texts),
        "retired": state.retired_ids,
        "examples": {
            digest: tuple(state.example_label_ids(place))
            for place, digest in enumerate(state.examples.digests)
        },
    }
