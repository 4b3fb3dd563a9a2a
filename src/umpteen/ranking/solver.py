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
MAX_RESTARTS = 6
"""The solver restarts where its tolerance was not relative to a much larger loss, and where it
stops at a point with a gradient: with bounds, a poor step can look like convergence."""
TOLERANCE = 1e-6
"""Largest component of the projected gradient at a minimum, relative to ``max(1, loss)``."""
ACCEPTED = 1e-3
"""A solution with a larger projected gradient counts as not converged."""
PRIOR_QUERIES = 25.0
"""Queries at which the ridge toward a prior is 1."""
PRIOR_FADE = 3.0
"""Exponent by which that ridge falls with the number of queries."""

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
    """
    x = np.asarray(start, np.float64)
    bounds = None if lower is None else [(low, None) for low in lower]
    value, gradient = loss(x)
    iterations, message = 0, ""
    for _ in range(MAX_RESTARTS):
        size = max(1.0, abs(value))
        result = minimize(
            lambda x, size=size: tuple(part / size for part in loss(x)),
            x,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": MAX_ITERATIONS, "maxcor": 30, "ftol": 1e-13, "gtol": TOLERANCE},
        )
        iterations, message = iterations + int(result.nit), str(result.message)
        found, found_gradient = loss(np.asarray(result.x, np.float64))
        if np.isfinite(found) and found <= value:
            x, value, gradient = np.asarray(result.x, np.float64), found, found_gradient
        gap = _projected(gradient, x, lower) / max(1.0, abs(value))
        if value > 0.1 * size and gap <= ACCEPTED:
            break
    converged = bool(np.isfinite(gap) and gap <= ACCEPTED)
    if not converged:
        log.warning(
            "The fit of %s did not converge after %d iterations (gradient %.1e): %s",
            name,
            iterations,
            gap,
            message,
        )
    return Solution(x, float(value), converged, iterations)


def prior_ridge(n_queries: int) -> float:
    """Return the ridge toward the prior beyond the decay.

    Below some 20 queries a fit without it ranks worse than the prior alone; with some hundred the
    ridge hardly matters.

    Example:
        >>> [round(prior_ridge(n), 3) for n in (5, 25, 100, 2000)]
        [125.0, 1.0, 0.016, 0.0]
    """
    return (PRIOR_QUERIES / n_queries) ** PRIOR_FADE


def _projected(
    gradient: NDArray[np.float64], x: NDArray[np.float64], lower: Sequence[float | None] | None
) -> float:
    """Return the largest gradient component that a step within the bounds could follow."""
    if lower is not None:
        limits = np.array([-np.inf if low is None else low for low in lower])
        gradient = np.where((x <= limits) & (gradient > 0), 0.0, gradient)
    return float(np.abs(gradient).max(initial=0.0))
