"""The solver reports whether it converged and never ends above its start."""

import logging

import numpy as np
import pytest

from umpteen.ranking import solver
from umpteen.ranking.solver import minimize_convex


def bowl(x):
    """A badly scaled quadratic with its minimum at (1, 2)."""
    gap = np.array([1.0, 2.0]) - x
    scale = np.array([1.0, 1e4])
    return float(scale @ gap**2), -2 * scale * gap


def test_a_minimum_is_found_and_bounds_are_kept():
    found = minimize_convex(bowl, np.zeros(2), name="a bowl")
    assert found.converged
    np.testing.assert_allclose(found.x, [1, 2], atol=1e-4)
    bounded = minimize_convex(bowl, np.array([3.0, 0.0]), name="a bowl", lower=[1.5, None])
    assert bounded.converged
    np.testing.assert_allclose(bounded.x, [1.5, 2], atol=1e-4)


def test_no_convergence_is_a_flag_and_a_warning(monkeypatch, caplog):
    monkeypatch.setattr(solver, "MAX_ITERATIONS", 1)
    with caplog.at_level(logging.WARNING):
        found = minimize_convex(bowl, np.array([50.0, 90.0]), name="the bowl")
    assert not found.converged
    assert "the bowl did not converge" in caplog.text
    assert found.loss <= bowl(np.array([50.0, 90.0]))[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_leaves_the_start(bad, caplog):
    def cliff(x):
        return (1.0, np.array([1.0])) if x[0] == 0 else (bad, np.array([bad]))

    found = minimize_convex(cliff, np.zeros(1), name="a cliff")
    assert found.x.tolist() == [0]
    assert not found.converged


def test_a_stop_at_a_point_with_a_gradient_is_followed_by_a_restart(monkeypatch):
    def valley(x):
        value, gradient = bowl(x)
        return 5 + np.log1p(value), gradient / (1 + value)

    monkeypatch.setattr(solver, "MAX_ITERATIONS", 3)
    start = np.array([4.0, 2.1])
    once = solver.minimize(valley, start, jac=True, method="L-BFGS-B", options={"maxiter": 3})
    assert np.abs(valley(once.x)[1]).max() > 0.01
    found = minimize_convex(valley, start, name="a valley")
    assert found.converged
    np.testing.assert_allclose(found.x, [1, 2], atol=1e-3)
