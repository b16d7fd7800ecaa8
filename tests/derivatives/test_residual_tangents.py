"""Derivatives of residuals along several directions at once."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.derivatives.residual_jacobian import residual_tangent, residual_tangents
from daeosens.derivatives.solve import solve_part
from daeosens.derivatives.tangent import tangent_rows

TIMES = np.linspace(0.25, 2.0, 8)
P = np.array([0.7, 1.3])


def rhs(t, u, p):
    return np.array([u[1], -p.stiffness * np.sin(u[0]) - p.damping * u[1]])


def observed(t, u, p):
    return np.array([u[0] * u[1], u[1] + p[0] * u[0]])


@pytest.fixture(scope="module")
def model():
    return ds.trace(rhs, 2, ["stiffness", "damping"])


@pytest.mark.parametrize("cut", [True, False], ids=["at ends of steps", "inside of steps"])
def test_columns_are_those_of_one_direction_after_the_other(model, cut):
    stepping = ds.Stepping((0.0, 2.0), "rk5bs", rtol=1e-6, cut=cut)
    misfit = ds.LeastSquares(TIMES, np.ones((8, 2)), 0.3, observe=observed)
    prior = ds.Prior([1.0, 1.0], [0.5, 2.0], ["damping", "stiffness"], scale="log")
    run = ds.solve(model, [1.0, 0.2], P, stepping, TIMES)
    rng = np.random.default_rng(0)
    du, dp = rng.standard_normal((3, 2)), rng.standard_normal((3, 2))
    assert tangent_rows(run, list(zip(du, dp, strict=True))) is not None
    columns = residual_tangents(run, [2.0 * misfit, prior], list(zip(du, dp, strict=True)))
    assert [part.shape for part in columns] == [(16, 3), (2, 3)]
    for k, along in enumerate(ds.tangent(run, du, dp)):
        for part, cost in zip(columns, (2.0 * misfit, prior), strict=True):
            assert part[:, k] == pytest.approx(residual_tangent(along, cost), rel=1e-13)
    # without functions in C the sweep is by vectors: the same numbers
    slow = residual_tangents(run, [misfit], list(zip(du, dp, strict=True)), "vectors")
    assert np.sqrt(2.0) * slow[0] == pytest.approx(columns[0], rel=1e-12)


def test_parts_of_a_span_are_runs_of_their_own(model):
    stepping = ds.Stepping((0.0, 2.0), "rk5bs", dt=0.125)
    whole = ds.solve(model, [1.0, 0.2], P, stepping, TIMES)
    first = solve_part(model, [1.0, 0.2], P, stepping, (0.0, 1.0), np.array([0.25]))
    second = solve_part(model, first.stored[-1], P, stepping, (1.0, 2.0), np.empty(0))
    assert np.array_equal(np.vstack([first.u, second.u[1:]]), whole.u)
    assert [float(second.times[0]), float(second.times[-1])] == [1.0, 2.0]


@pytest.mark.parametrize(
    "changes", [{"method": "auto", "dt": None, "rtol": 1e-8}, {"t_eval": [0.3, 0.9]}]
)
def test_parts_that_need_a_stepping_of_their_own_are_runs_as_well(model, changes):
    settings = {"t_span": (0.0, 2.0), "method": "rk5bs", "dt": 0.125} | changes
    run = solve_part(model, [1.0, 0.2], P, ds.Stepping(**settings), (0.5, 1.5), np.array([1.0]))
    exact = ds.solve(model, [1.0, 0.2], P, ds.Stepping((0.5, 1.5), "rk8vr", dt=0.01))
    assert run.u[-1] == pytest.approx(exact.u[-1], abs=1e-5)
    assert 1.0 in run.times
    assert ("t_eval" in changes) == (0.9 in run.times)
