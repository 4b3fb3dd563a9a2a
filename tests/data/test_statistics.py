from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data.dataset import Dataset, Split
from umpteen.data.frequency_plot import draw_file, draw_text
from umpteen.data.labels import LabelSet
from umpteen.data.statistics import count_words, describe, describe_bins, find_oddities, spread
from umpteen.errors import UmpteenError


def _dataset() -> Dataset:
    train = Split(
        ["one", "two words", "  ", "three words here", "x"],
        sp.csr_matrix(
            np.array([[1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0]], np.float32)
        ),
        filters=np.array([[0, 2]]),
    )
    test = Split(["a b"], sp.csr_matrix(np.array([[0, 0, 1]], np.float32)), ["c d e"])
    return Dataset(LabelSet(["a", "b", "c"], ["A", "", "C c"]), {"train": train, "test": test})


def test_describe_counts_by_hand():
    found = describe(_dataset(), np.array([0, 3, 4]))
    train, labels = found["splits"]["train"], found["labels"]
    assert train["queries"] == 5
    assert train["positives"] == 6
    assert train["without_labels"] == 1
    assert train["filter_pairs"] == 1
    assert train["positives_per_query"] == {
        "mean": 1.2,
        "min": 0,
        "median": 1.0,
        "p90": 2.0,
        "max": 2,
    }
    assert found["splits"]["test"]["words"]["mean"] == 5
    assert found["splits"]["test"]["title_words"]["mean"] == 2
    assert labels["without_training_query"] == 1
    assert labels["share_with_few_queries"] == 1.0
    assert labels["queries_per_label"]["max"] == 4
    assert [each["labels"] for each in labels["bins"]] == [1, 0, 0, 1, 1]
    assert [each["pairs"] for each in labels["bins"]] == [4, 0, 0, 2, 0]


def test_describe_without_train_leaves_frequencies_out():
    data = _dataset()
    found = describe(Dataset(data.labels, {"test": data["test"]}))
    assert "queries_per_label" not in found["labels"]


def test_spread_of_nothing_is_zero():
    assert set(spread(np.zeros(0, np.int64)).values()) == {0}


def test_words_are_separated_by_any_blank():
    assert count_words(["", " a\tb\nc ", "one"]).tolist() == [0, 3, 1]


def test_oddities_name_file_and_line_and_count_the_rest():
    said = find_oddities(_dataset(), {"train": "d/trn.json"}, unit="line")
    assert said[0] == "d/trn.json, line 3: empty text"
    assert said[1] == "d/trn.json, line 4: no labels"
    assert said[2] == "1 labels have an empty text, first 'b'"
    many = Split([""] * 8, sp.csr_matrix(np.ones((8, 1), np.float32)))
    data = Dataset(LabelSet(["a"], ["A"]), {"train": many})
    assert find_oddities(data) == ["train, rows 1, 2, 3, 4, 5 and 3 more: empty text"]


def test_bars_are_in_proportion_and_never_vanish():
    counts = np.repeat([100, 1], [1, 200])
    lines = draw_text(describe_bins(counts, np.repeat([0, 1], [1, 200]), 2), width=20)
    assert [line.count("#") for line in lines] == [0, 1, 20]
    assert "1 head" in lines[1]
    assert "2 tail" in lines[2]


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_pictures_are_written_in_the_kind_of_their_name(name, magic, tmp_path):
    pytest.importorskip("matplotlib")
    draw_file(_dataset(), np.array([0, 3, 4]), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_other_pictures_are_refused(tmp_path):
    with pytest.raises(UmpteenError, match=r"must end in \.png or \.svg"):
        draw_file(_dataset(), np.array([0, 3, 4]), tmp_path / "a.gif")
