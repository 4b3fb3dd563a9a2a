"""Recall by hand-made answers."""

import numpy as np
import pytest

from umpteen.index.recall import recall
from umpteen.types import TopK


class Fixed:
    """An index that gives the same answer to everything."""

    n_labels = 9

    def __init__(self, rows):
        self.rows = np.array(rows)

    def search(self, queries, k):
        return TopK(self.rows[:, :k], np.zeros(self.rows[:, :k].shape, np.float32))


@pytest.mark.parametrize(
    ("found", "share"),
    [
        ([[1, 2, 3], [4, 5, -1]], 1.0),
        ([[3, 2, 1], [5, 4, -1]], 1.0),  # order does not matter
        ([[4, 5, 8], [1, 2, 3]], 0.0),  # the other query's labels do not count
        ([[1, 8, 7], [5, -1, -1]], 2 / 5),  # empty places are neither wanted nor found
    ],
)
def test_share_of_the_wanted_that_is_found(found, share):
    exact = Fixed([[1, 2, 3], [4, 5, -1]])
    assert recall(Fixed(found), exact, None, 3) == pytest.approx(share)


def test_nothing_to_find_is_all_found():
    nothing = Fixed([[-1, -1]])
    assert recall(nothing, nothing, None, 2) == 1.0
