"""Random damage to any file of any format gives a data set or an error of ours, no surprise."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.data.dataset import Dataset
from umpteen.data.formats import FORMATS, load_dataset
from umpteen.errors import UmpteenError
from umpteen.registry import resolve

JUNK = [
    b"\x00",
    b"\xff\xfe",
    b'"',
    b"[",
    b"{}",
    b"\n\n",
    b"\r",
    b"99:1 ",
    b"-1",
    b"NaN",
    b"\\ud800",
]


def _cut(raw, place, _):
    return raw[: int(place * len(raw))]


def _flip(raw, place, byte):
    at = min(int(place * len(raw)), len(raw) - 1)
    return raw[:at] + bytes([raw[at] ^ (byte or 1)]) + raw[at + 1 :] if raw else raw


def _drop_line(raw, place, _):
    lines = raw.splitlines(keepends=True)
    at = int(place * len(lines))
    return b"".join(lines[:at] + lines[at + 1 :])


def _repeat_line(raw, place, _):
    lines = raw.splitlines(keepends=True)
    at = int(place * len(lines))
    return b"".join(lines[: at + 1] + lines[at:])


def _insert(raw, place, byte):
    at = int(place * len(raw))
    return raw[:at] + JUNK[byte % len(JUNK)] + raw[at:]


DAMAGE = [_cut, _flip, _drop_line, _repeat_line, _insert]
damages = st.lists(
    st.tuples(st.sampled_from(DAMAGE), st.floats(0, 0.999), st.integers(0, 255)),
    min_size=1,
    max_size=3,
)


def _whole(name) -> dict[str, bytes]:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    data = Dataset.from_lists(
        ["one text", 'two, "quoted"', "three\nlines", "četyre"],
        [["a", "b;c"], ["a"], [], ["b;c", "d"]],
        label_texts={"a": "A", "b;c": "B", "d": "D"},
        test_texts=["five"],
        test_labels=[["d"]],
    )
    with tempfile.TemporaryDirectory() as folder:
        resolve(FORMATS, name, kind="format").write(data, Path(folder))
        (Path(folder) / "filter_labels_test.txt").write_text("0 1\n0 0\n")
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


WHOLE: dict[str, dict[str, bytes]] = {}


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60)
@given(which=st.integers(0, 9), damage=damages, inside_gzip=st.booleans(), recognise=st.booleans())
def test_damage_never_surprises(name, which, damage, inside_gzip, recognise):
    files = WHOLE.setdefault(name, _whole(name)) if name not in WHOLE else WHOLE[name]
    victim = sorted(files)[which % len(files)]
    raw = files[victim]
    zipped = raw.startswith(b"\x1f\x8b") and inside_gzip
    if zipped:
        raw = gzip.decompress(raw)
    for change, place, byte in damage:
        raw = change(raw, place, byte)
    given_bytes = {**files, victim: gzip.compress(raw) if zipped else raw}
    with tempfile.TemporaryDirectory() as folder:
        for file, content in given_bytes.items():
            (Path(folder) / file).parent.mkdir(exist_ok=True)
            (Path(folder) / file).write_bytes(content)
        try:
            data = load_dataset(folder, None if recognise else name)
        except UmpteenError:
            pass
        else:
            for split in data.splits.values():
                assert split.targets.nnz > 0
                assert ((split.targets.data > 0) & (split.targets.data <= 1)).all()
                assert split.targets.indices.max() < len(data.labels)
                "".join([*split.texts(), *data.labels.texts]).encode("utf-8")
        after = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in Path(folder).rglob("*")
            if path.is_file()
        }
    assert after == given_bytes
