"""Minimize small convex functions with a library solver and check convergence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

log = logging.getLogger(__name__)

MAX_ITERATIONS = 500
TOLERANCE = 1e-6
"""Largest component of the projected gradient at a minimum, relative to ``max(1, loss)``."""
ACCEPTED = 1e-3
"""A solution with a larger projected gradient counts as not converged."""

Loss = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


@dataclass(frozen=True)
class Solution:
    """Result of a minimization."""

    x: NDArray[np.float64]
    loss: float
    converged: bool
    iterations: int


def minimize_convex(
    loss: Loss,
    start: NDArray[np.float64],
    *,
    name: str,
    lower: Sequence[float | None] | None = None,
) -> Solution:
    """Minimize a smooth convex function with L-BFGS-B.

    The result is never worse than the starting point. A warning is logged when the solver does not
    converge.

    Args:
        loss: Returns the value and the gradient.
        start: (P,) where to start; within the bounds.
        name: What is fitted, for the warning.
        lower: Lower bound of each parameter, None for none.

    Returns:
        The solution.
    """
    start = np.asarray(start, np.float64)
    bounds = None if lower is None else [(low, None) for low in lower]
    before, gradient = loss(start)
    size = max(1.0, abs(before))
    result = minimize(
        lambda x: tuple(part / size for part in loss(x)),
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": MAX_ITERATIONS, "maxcor": 30, "ftol": 1e-13, "gtol": TOLERANCE},
    )
    x = np.asarray(result.x, np.float64)
    value, gradient = loss(x)
    if not (np.isfinite(value) and np.isfinite(x).all() and value <= before):
        x, value = start, before
        gradient = loss(start)[1]
    gap = _projected(gradient, x, lower) / max(1.0, abs(value))
    converged = bool(np.isfinite(gap) and gap <= ACCEPTED)
    if not converged:
        log.warning(
            "The fit of %s did not converge after %d iterations (gradient %.1e): %s",
            name,
            result.nit,
            gap,
            result.message,
        )
    return Solution(x, float(value), converged, int(result.nit))


def _projected(
    gradient: NDArray[np.float64], x: NDArray[np.float64], lower: Sequence[float | None] | None
) -> float:
    """Return the largest gradient component that a step within the bounds could follow."""
    if lower is not None:
        limits = np.array([-np.inf if low is None else low for low in lower])
        gradient = np.where((x <= limits) & (gradient > 0), 0.0, gradient)
    return float(np.abs(gradient).max(initial=0.0))
