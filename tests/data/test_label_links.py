"""Which texts are labels, and links between labels: against loops, and with odd texts."""

import numpy as np

from umpteen.data.dataset import Split, targets_from_rows
from umpteen.data.label_links import (
    MAX_SAME,
    LabelKeys,
    count_links,
    first_keys,
    text_keys,
    two_way,
)
from umpteen.data.labels import LabelSet


def test_links_in_both_directions_are_counted_among_those_that_could_be():
    links = np.array([[0, 1], [0, 2], [1, 0], [2, 3], [4, 0]])
    # 2 -> 3 has no way back, since 3 has no links; 4 -> 0 and 0 -> 2 are one-way.
    assert two_way(links, 5) == (2, 4)
    assert two_way(np.zeros((0, 2), np.int64), 5) == (0, 0)


def test_keys_ignore_case_and_spaces_and_accept_any_text():
    keys = text_keys(["A  b", " a B\n", "ab", "", "\ud800"])
    assert keys[0] == keys[1]
    assert len(set(keys.tolist())) == 4
    empty = LabelKeys(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    assert empty.groups(["a", ""]).tolist() == [-1, -1]


def test_counts_equal_a_loop_over_texts():
    rng = np.random.default_rng(2)
    labels = LabelSet([f"i{row}" for row in range(31)], [f"item {row}" for row in range(31)])
    names = [f"Item  {row}" for row in rng.permutation(40)[:29]]
    rows = [sorted({*rng.integers(0, 31, 5).tolist()}) for _ in names]
    filters = np.array([[0, rows[0][0]]])
    split = Split(names, targets_from_rows(rows, 31), filters=filters)
    item = {f"item {row}": row for row in range(31)}
    own = [item.get(" ".join(name.lower().split()), -1) for name in names]
    rows[0] = rows[0][1:]
    links = {(a, b) for a, each in zip(own, rows, strict=True) for b in each if a >= 0 and a != b}
    sources = {a for a, _ in links}
    possible = [(a, b) for a, b in links if b in sources]
    found = count_links(labels, split)
    assert found == {
        "texts": sum(a >= 0 for a in own),
        "links": len(possible),
        "both": sum((b, a) in links for a, b in possible),
    }
    assert 0 < found["both"] < found["links"]


def test_empty_texts_and_texts_of_very_many_labels_are_no_items():
    names = ["", " ", *["untitled"] * (MAX_SAME + 1), *["same"] * MAX_SAME, "alone"]
    keys, groups = LabelKeys.of(names)
    assert len(keys.keys) == 2
    assert (groups[: MAX_SAME + 3] == -1).all()
    assert len(set(groups[MAX_SAME + 3 : -1].tolist())) == 1
    assert keys.groups(["", "Untitled", "SAME", "alone"]).tolist() == [
        -1,
        -1,
        groups[-2],
        groups[-1],
    ]


def test_first_words_have_the_keys_of_texts():
    text = "Red  SOFA\tof Straße wood"
    words = text.split()
    wanted = frozenset({1, 3, 5, 9})
    expected = text_keys([" ".join(words[:n]) for n in (1, 3, 5)]).tolist()
    assert list(first_keys(text, wanted)) == expected
    assert list(first_keys("", wanted)) == []
