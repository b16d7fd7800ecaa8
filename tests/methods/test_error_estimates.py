"""Parts of tolerances that make errors of methods alike, and steps that are seldom rejected."""

import numpy as np
import pytest
from order_conditions import principal_error

from daeosens import ODE, Stepping, solve
from daeosens.methods.error_estimates import (
    ERROR_BESIDE_ESTIMATE,
    FEW_REJECTED,
    LEAST_SHARE,
    WANTED,
    share_of_tolerance,
)
from daeosens.methods.registry import find_method


def decay(mass):
    return ODE(lambda t, u, p: -u, 2, 1, mass=None if mass == 1 else np.diag([1.0, mass]))


def error_beside_estimate(method):
    tableau, order = method.tableau, method.order
    error = principal_error(tableau.a, tableau.b, order + 1)
    return error / principal_error(tableau.a, tableau.b_embedded, order)


@pytest.mark.parametrize("name", ERROR_BESIDE_ESTIMATE)
def test_shares_of_tolerance_make_errors_those_of_the_default_method(name):
    """Of the tolerance at least a tenth: third order would need too many steps for less."""
    method = find_method(name)
    beside = error_beside_estimate(method)
    assert ERROR_BESIDE_ESTIMATE[name] == pytest.approx(beside, rel=5e-3)
    share, wanted = method.share_of_tolerance(decay(1)), WANTED[method.explicit]
    assert share == share_of_tolerance(name, method.explicit)
    assert LEAST_SHARE <= share <= 1.0
    if LEAST_SHARE < share < 1.0:
        assert share * beside == pytest.approx(wanted, rel=5e-3)


def test_errors_that_are_wanted_are_those_of_the_default_method():
    default = find_method("rk6vr")
    beside, shorter = error_beside_estimate(default), FEW_REJECTED["ts_adapt_safety"] / 0.9
    assert WANTED[True] == pytest.approx(beside, rel=5e-3)
    assert WANTED[False] == pytest.approx(beside * shorter**default.order, rel=0.12)


def test_methods_that_are_not_named_keep_their_tolerances():
    names = ("rk3bs", "rk5dp", "rk7vr", "arkimex4", "cn")
    assert {find_method(name).share_of_tolerance(decay(1)) for name in names} == {1.0}


def test_equations_with_algebraic_ones_keep_their_tolerances():
    shares = [find_method("esdirk5").share_of_tolerance(decay(mass)) for mass in (1, 2.0, 0)]
    assert shares == [share_of_tolerance("esdirk5", False)] * 2 + [1.0]


def orbit(t, u, p):
    return np.array([u[2], u[3], *(-u[:2] / np.hypot(u[0], u[1]) ** 3)])


@pytest.mark.parametrize("method", ["rk5dp", "rk6vr", "rk8vr"])
def test_steps_leave_a_margin_that_seldom_rejects_them(method):
    """Less than two thirds of what PETSc's margin rejects, fewer trials and smaller errors."""
    satellite, end = ODE(orbit, size=4), 4.0 * np.pi  # two periods
    sums = []
    for options in ({}, {"ts_adapt_safety": 0.9}):
        rejected, attempts, errors = 0, 0, []
        for eccentricity in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
            nearest = 1.0 - eccentricity
            start = np.array([nearest, 0.0, 0.0, np.sqrt((1.0 + eccentricity) / nearest)])
            for rtol in (1e-4, 1e-6, 1e-8):
                stepping = Stepping((0.0, end), method, rtol=rtol, options=options)
                run = solve(satellite, start, None, stepping)
                rejected += run.effort.rejected
                attempts += run.n_steps + run.effort.rejected
                errors.append(abs(run.u[-1] - start).max())
        sums.append((rejected, attempts, np.log(errors).mean()))
    ours, petsc = sums
    assert ours[0] < petsc[0] * 2 / 3
    assert ours[1] < petsc[1]
    assert ours[2] < petsc[2] + np.log(0.9)
