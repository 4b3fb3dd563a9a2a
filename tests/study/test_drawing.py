"""Which bars stand side by side."""

import pytest

from umpteen.study.drawing import _bars


@pytest.mark.parametrize(
    ("groups", "names", "values"),
    [
        ([{"a": 1, "b": 2}, {"b": 3, "a": 4}], ["a", "b"], [[1, 4], [2, 3]]),
        ([{"a": 1, "b": 2}, {"b": 3, "c": 4}], ["b"], [[2, 3]]),
        # Each preset has its own names, as many as the others: by their order.
        ([{"a": 1, "b": 2}, {"c": 3, "d": 4}], ["a / c", "b / d"], [[1, 3], [2, 4]]),
        ([{"a": 1}, {"b": 2}, {"c": 3}], [], [[1, 2, 3]]),
        ([{"a": 1, "b": 2}, {"c": 3}], [], [[1, 3]]),
    ],
)
def test_switches_are_set_side_by_side(groups, names, values):
    bars, found = _bars(groups)
    assert found == names
    assert [row for _, _, row in bars] == values
    assert len({look for _, look, _ in bars}) == len(bars)
