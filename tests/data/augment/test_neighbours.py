"""The strongest correlations of a label, in numbers, lines and pictures."""

import pytest

from umpteen.data.augment.neighbours import (
    draw_neighbours,
    draw_neighbours_file,
    neighbours,
    neighbours_figure,
)
from umpteen.data.dataset import Dataset
from umpteen.errors import DataError, UmpteenError

DATA = Dataset.from_lists(
    ["1", "2", "3", "4"],
    [["a", "b", "c"], ["a", "c"], ["a", "b", "c"], ["a", "d"]],
    label_texts={"a": "apple", "b": "banana", "c": "cherry", "d": "date", "e": "elder"},
)


def test_neighbours_come_heaviest_first_with_their_shares():
    found = neighbours(DATA, "a")
    assert (found["text"], found["queries"]) == ("apple", 4)
    assert [(n["id"], n["queries"], n["weight"], n["back"]) for n in found["neighbours"]] == [
        ("c", 3, 0.75, 1.0),
        ("b", 2, 0.5, 1.0),
        ("d", 1, 0.25, 1.0),
    ]
    assert [n["id"] for n in neighbours(DATA, "a", most=1)["neighbours"]] == ["c"]
    assert neighbours(DATA, "d")["neighbours"][0]["back"] == 0.25


def test_a_label_that_comes_alone_says_so():
    assert draw_neighbours(neighbours(DATA, "e")) == [
        "elder (0 training queries)",
        "comes with no other label",
    ]


def test_an_unknown_label_is_named():
    with pytest.raises(DataError, match="no label has the id 'x'"):
        neighbours(DATA, "x")


def test_the_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    draw_neighbours_file(neighbours(DATA, "a"), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert "cherry" in text
    assert "apple" in text
    with pytest.raises(UmpteenError, match=r"must end in \.png or \.svg"):
        draw_neighbours_file(neighbours(DATA, "a"), tmp_path / "a.gif")


@pytest.mark.parametrize("n", [1, 4, 11])
def test_texts_of_the_picture_do_not_lie_on_each_other(n):
    agg = pytest.importorskip("matplotlib.backends.backend_agg")
    long = "a rather long text of a label in $, with many words that no box could hold in a line"
    near = [{"text": long, "weight": 1.0}] * n
    figure = neighbours_figure({"text": long, "queries": 3, "neighbours": near})
    canvas = agg.FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in figure.axes[0].texts]
    assert len(boxes) == n + 1
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[place + 1 :])
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
