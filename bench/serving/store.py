"""Time the store of changes: polls, cold and incremental reads, and changes.

    python -m bench serving store [--labels 50000] [--examples 100000]

Prints one table. The store lies in a temporary folder; changes are synced to its disk.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from bench.common.tables import print_rows
from bench.common.timing import each, seconds
from umpteen.data.labels import LabelSet
from umpteen.store import ChangeStore, NewLabel


def timed(work, repeats):
    """Median seconds of one call."""
    return statistics.median(each(work, range(repeats)))


def read_after_each(change, reader, repeats):
    """Median seconds of an incremental read after each change."""
    found = []
    for n in range(repeats):
        change(n)
        found += seconds(reader.state, repeats=1)
    return statistics.median(found)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", type=int, default=50_000)
    parser.add_argument("--examples", type=int, default=100_000)


def main(given: argparse.Namespace) -> None:
    trained = LabelSet([f"L{n}" for n in range(1000)], [f"label {n}" for n in range(1000)])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        store = ChangeStore.open(run, trained)
        rows.append(("poll, no changes yet", timed(lambda _: store.revision, 10_000)))
        labels = [NewLabel(f"n{n}", f"text of label {n}") for n in range(given.labels)]
        rows.append((f"add {len(labels):,} labels", timed(lambda _: store.add_labels(labels), 1)))
        texts = [f"some text about a thing with number {n}" for n in range(given.examples)]
        own = [[f"L{n % 1000}", f"L{n % 7}"] for n in range(given.examples)]
        work = timed(lambda _: store.add_examples(texts, own), 1)
        rows.append((f"add {len(texts):,} examples", work))
        work = timed(lambda _: ChangeStore.open(run, trained).state(), 5)
        rows.append(("read all, cold", work))
        state = store.state()
        work = timed(lambda _: store.example_texts(state.examples.digests), 1)
        rows.append(("read all texts", work))
        rows.append(("poll", timed(lambda _: store.revision, 10_000)))
        rows.append(("state, unchanged", timed(lambda _: store.state(), 10_000)))
        reader = ChangeStore.open(run, trained)
        reader.state()
        changes = {
            "label": lambda n: store.add_labels([NewLabel(f"one{n}", "t")]),
            "example": lambda n: store.add_examples([f"one {n}"], [["L1"]]),
            "relabelled example": lambda n: store.add_examples([texts[n]], [["L9"]]),
            "retired label": lambda n: store.retire_labels([f"n{n}"]),
        }
        for name, change in changes.items():
            rows.append((f"read after one {name}", read_after_each(change, reader, 50)))
        rows.append(
            ("add one label", timed(lambda n: store.add_labels([NewLabel(f"x{n}", "t")]), 50))
        )
        size = (run / "changes.sqlite").stat().st_size
    print(f"{given.labels:,} added labels, {given.examples:,} examples")
    print_rows([{"work": name, "ms": 1000 * took} for name, took in rows], digits=3)
    print(f"\n{size / 1e6:.1f} MB on disk")
