import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umpteen.report.charts import LARGE, SMALL, Band, Line, bar_chart, line_chart, round_ticks

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


@given(FINITE, FINITE, st.booleans())
def test_ticks_rise_evenly_and_cover_the_range(one, other, whole):
    low, high = min(one, other), max(one, other)
    ticks = round_ticks(low, high, whole=whole)
    slack = 1e-6 * max(1.0, abs(low), abs(high))
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert all(a < b for a, b in zip(ticks, ticks[1:], strict=False))
    assert 2 <= len(ticks) <= 12
    if whole:
        assert all(tick == int(tick) for tick in ticks)


def shapes(markup, name):
    root = ElementTree.fromstring(markup)  # well formed, too
    return [element for element in root.iter() if element.tag == name]


def test_bars_have_heights_in_proportion_and_values_written():
    markup = bar_chart(
        "t", ["P@1", "P@5"], [("A", "dual", [40.0, 20.0]), ("B", "classifier", [10.0, 0.0])]
    )
    heights = [float(bar.get("height")) for bar in shapes(markup, "rect")]
    assert heights[0] == pytest.approx(2 * heights[2], abs=0.2)
    assert heights[0] == pytest.approx(4 * heights[1], abs=0.3)
    assert heights[3] == 0.0
    written = [t.text for t in shapes(markup, "text") if t.get("class") == "value"]
    assert written == ["40.0", "10.0", "20.0", "0.0"]
    many = bar_chart("t", list("abcde"), [(name, "dual", [99.96] * 5) for name in "ABCD"])
    written = [t.text for t in shapes(many, "text") if t.get("class") == "value"]
    assert written == ["100"] * 20


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_lines_stay_inside_the_picture_and_fall_where_values_fall(size):
    markup = line_chart(
        "loss",
        [Line("loss", "train", [1, 2, 5], [3.0, 2.0, -1.0])],
        x_title="step",
        band=Band([1, 2, 5], [2.5, 1.0, -2.0], [4.0, 3.0, 0.0]),
        mark=(5, "best"),
        size=size,
    )
    line = next(p for p in shapes(markup, "path") if p.get("class") == "line train")
    points = [tuple(map(float, pair.split())) for pair in line.get("d")[1:].split("L")]
    assert all(0 <= x <= size[0] and 0 <= y <= size[1] for x, y in points)
    (x1, y1), (x2, y2), (x3, y3) = points
    assert x3 - x2 == pytest.approx(3 * (x2 - x1), abs=0.3)
    assert y3 - y2 == pytest.approx(3 * (y2 - y1), abs=0.3)  # down the page is down in value


@pytest.mark.parametrize("value", [0.0, 12.5])
def test_a_single_point_is_drawn(value):
    markup = line_chart("t", [Line("a", "dual", [4], [value])], x_title="epoch")
    assert "nan" not in markup
    signs = [p for p in shapes(markup, "path") if p.get("class") == "sign dual"]
    assert [sign[0].text for sign in signs] == [f"a, 4: {value:.2f}"]


def test_every_chart_has_a_title_for_those_who_cannot_see_it():
    root = ElementTree.fromstring(bar_chart("What <it> shows", ["a"], [("A", "dual", [0.0])]))
    assert root[0].tag == "title"
    assert root[0].text == "What <it> shows"
    assert root.get("role") == "img"
