"""Explanations are read as JSON values, text by text, in the order of the predictions."""

import numpy as np
import pytest

from umpteen.ranking.explanations import Explanations, joined


def made(n, k, seed=0):
    rng = np.random.default_rng(seed)
    tables = {
        part: {name: rng.random((n, k)).astype(np.float32) for name in ("dual", "knn")}
        for part in ("scores", "contributions")
    }
    return Explanations(tables, rng.integers(0, k + 1, n))


def test_an_entry_a_prediction_with_the_values_of_its_place():
    told = made(5, 3)
    assert len(told) == 5
    for place, line in enumerate(told):
        assert len(line) == told.lengths[place]
        for rank, entry in enumerate(line):
            for part, table in told.tables.items():
                assert entry[part] == {
                    name: pytest.approx(values[place, rank]) for name, values in table.items()
                }
                assert all(type(value) is float for value in entry[part].values())
    assert told[1:3] == [told[1], told[2]]
    assert told[-1] == told[4]
    with pytest.raises(IndexError):
        told[5]


def test_another_order_moves_entries():
    told = made(2, 3)
    order = np.array([[2, 0, 1], [0, 1, 2]])
    moved = told.reordered(order, np.array([3, 1]))
    whole = Explanations(told.tables, np.array([3, 3]))
    assert moved[0] == [whole[0][2], whole[0][0], whole[0][1]]
    assert moved[1] == whole[1][:1]


def test_blocks_are_joined():
    first, second = made(2, 3, 1), made(3, 3, 2)
    assert list(joined([first, second])) == [*first, *second]
