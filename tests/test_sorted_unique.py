"""Distinct values by sorting are those of NumPy."""

import numpy as np
import pytest

from umpteen.sorted_unique import sorted_unique


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (3, 5), (1001,)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
def test_values_are_those_of_numpy(shape, dtype):
    values = np.random.default_rng(3).integers(0, 9, shape).astype(dtype)
    found = sorted_unique(values)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.unique(values))
