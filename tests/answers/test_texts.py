"""Beginnings of texts are what they were, cut where they are long, and damage is told."""

import numpy as np
import pytest

from umpteen.answers.texts import LONGEST_SHOWN, Beginnings
from umpteen.errors import RunError

TEXTS = ["apple", "", "Ä pear, 🍐", "x" * LONGEST_SHOWN, "long " * 100, "half \ud800 sign"]


def test_texts_survive_the_disk(tmp_path):
    kept = Beginnings.of(TEXTS)
    kept.save(tmp_path)
    read = Beginnings.load(tmp_path, len(TEXTS))
    assert [read[row] for row in range(4)] == TEXTS[:4]
    assert len(read[4]) == LONGEST_SHOWN
    assert read[4][:-1] == TEXTS[4][: LONGEST_SHOWN - 1]
    assert read[5] == "half ? sign"
    assert len(read) == len(TEXTS)
    assert read.n_bytes == kept.n_bytes


@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_no_text_at_all_is_kept_too(tmp_path, texts):
    Beginnings.of(texts).save(tmp_path)
    assert [
        t for t in map(Beginnings.load(tmp_path, len(texts)).__getitem__, range(len(texts)))
    ] == texts


def test_none_where_none_were_kept(tmp_path):
    assert Beginnings.load(tmp_path, 3) is None


@pytest.mark.parametrize(
    "offsets", [[0, 5], [0, 5, 4, 9], [0, 5, 9, 99], [1, 5, 9, 14], [0.0, 5.0, 9.0, 14.0]]
)
def test_damage_is_told(tmp_path, offsets):
    Beginnings.of(["apple", "pear", "peach"]).save(tmp_path)
    np.save(tmp_path / "texts_offsets.npy", np.array(offsets), allow_pickle=False)
    with pytest.raises(RunError, match="fit it again"):
        Beginnings.load(tmp_path, 3)


def test_a_lost_file_is_told(tmp_path):
    Beginnings.of(["apple"]).save(tmp_path)
    (tmp_path / "texts.npy").unlink()
    with pytest.raises(RunError, match="damaged"):
        Beginnings.load(tmp_path, 1)
