"""Distinct values of integer arrays by sorting.

``np.unique`` hashes since NumPy 2.3, which takes some hundred times as long as a sort where most
of many values are distinct.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def sorted_unique(values: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct values, ascending, as ``np.unique`` does.

    Example:
        >>> sorted_unique(np.array([[3, 1], [3, 2]]))
        array([1, 2, 3])
    """
    ordered = np.sort(values, axis=None)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
