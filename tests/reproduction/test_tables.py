"""Published results are found again; docs/reproduce.md shows the same numbers as tables."""

from __future__ import annotations

import json
from functools import cache
from math import exp
from pathlib import Path

import numpy as np
import pytest
from forms import EXPLICIT

from daeosens.methods import find_method
from reproduction import gray_scott, heat, newton_cg, tutorials, van_der_pol
from reproduction.heat import CONTINUUM, Case
from reproduction.tutorials import PRINTED

HEAT = json.loads((Path(__file__).parents[1] / "references" / "heat2d.json").read_text())["values"]

# ---- van der Pol, mu = 1e3 -----------------------------------------------------------------------

run = cache(van_der_pol.run)


def digits(result):
    """Return x(0.5), dx/dmu and dv/dmu with v(0) held, dx/dmu with v(0) following, as published."""
    (x, _), held, (following, _) = result.u, result.held, result.following
    return [f"{x:.8f}", f"{held[0, 2]:.8e}", f"{held[1, 2]:.8e}", f"{following:.7e}"]


PUBLISHED = ["1.59698078", "-2.11577766e-07", "-1.28208466e-06", "-2.1164116e-07"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "stepping"),
    [
        ("rk5dp", {"dt": 0.5 / 4096}),
        ("rk7vr", {"dt": 0.5 / 2048}),
        ("rk8vr", {"dt": 0.5 / 2048}),
        ("rk5dp", {"rtol": 1e-12, "atol": 1e-12}),
    ],
)
def test_van_der_pol_has_all_published_digits(method, stepping):
    assert digits(run(method, **stepping)) == PUBLISHED
    assert digits(van_der_pol.reference()) == PUBLISHED


@pytest.mark.slow
@pytest.mark.parametrize("stepping", [{"dt": 0.5 / 4096}, {"rtol": 1e-8, "dt": 1e-6}])
def test_van_der_pol_by_crank_nicolson(stepping):
    assert max(van_der_pol.errors(run("cn", **stepping))) < 2e-7


def test_initial_velocity_following_mu_by_chain_rule_and_by_parameters():
    stepping = {"dt": 1e-3}
    by_parameters = van_der_pol.run_reduced("cn", **stepping)
    np.testing.assert_allclose(by_parameters, run("cn", **stepping).following, rtol=1e-12)


@pytest.mark.parametrize("method", [*EXPLICIT, "cn", "midpoint", "beuler"])
def test_sensitivities_converge_with_the_order_of_the_method(method):
    coarse, fine = (van_der_pol.errors(run(method, dt=0.5 / n)) for n in (1024, 2048))
    expected = find_method(method).order
    for before, after in zip(coarse[1:], fine[1:], strict=True):
        assert np.log2(before / after) > expected - 0.1
    assert np.log2(coarse[0] / fine[0]) > expected - 0.1 or fine[0] < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "tolerances", "first_step"),
    [("rk5dp", (1e-7, 1e-9, 1e-11), None), ("cn", (1e-4, 1e-6, 1e-8), 1e-6)],
)
def test_sensitivities_converge_with_the_tolerance(method, tolerances, first_step):
    errors = [
        van_der_pol.errors(run(method, rtol=tolerance, atol=tolerance, dt=first_step))
        for tolerance in tolerances
    ]
    assert (np.diff(np.log10(errors), axis=0) < -1).all()


def test_loose_explicit_steps_leave_the_stability_interval_and_derivatives_suffer():
    state, held, following = van_der_pol.errors(run("rk5dp", rtol=1e-5, atol=1e-5))
    assert state < 1e-5
    assert min(held, following) > 1e-2
    assert van_der_pol.steps_outside(1e-5) > 0.3
    assert van_der_pol.steps_outside(1e-8) == 0


@pytest.mark.slow
def test_first_step_of_crank_nicolson_is_not_controlled():
    large, by_default = (
        van_der_pol.errors(run("cn", rtol=1e-9, atol=1e-9, dt=first)) for first in (5e-4, None)
    )
    assert large[1] > 1e-8  # the fast transient after moving mu with v(0) held
    assert large[2] < 3e-9  # no transient
    assert max(by_default) < 3e-9


# ---- heat equation -------------------------------------------------------------------------------

DT = 5e-5
case = cache(Case)
CASES = [
    (n, method, dt)
    for n, dt in ((10, 5e-5), (30, 5e-5), (50, 5e-5), (10, 1e-5), (30, 1e-5))
    for method in heat.STABILITY
]


@pytest.mark.parametrize(
    ("key", "edge_included"), [("Np30_interior", False), ("Np30_with_boundary", True)]
)
def test_semi_discrete_closed_form(key, edge_included):
    expected = float(HEAT[key]["factor_du_dalpha_over_u0"])
    assert case(30, edge_included).semi_discrete() == pytest.approx(expected, rel=1e-13)


def percent(value):
    """Return the error against the continuum [%], three digits."""
    return f"{100 * abs(value / CONTINUUM - 1):.3g}"


@pytest.mark.parametrize(("n_points", "published"), [(10, "0.726"), (30, "0.0104"), (50, "0.0615")])
def test_published_errors_of_the_adjoint_count_the_edge_as_points(n_points, published):
    assert percent(heat.by_adjoint(case(n_points), "rk1fe", DT)) == published
    interior = case(n_points, edge_included=False)
    assert percent(interior.discrete("rk1fe", DT)) != published


@pytest.mark.slow
@pytest.mark.parametrize(("n_points", "method", "dt"), CASES)
def test_adjoint_tangent_and_forward_equations_are_exact_for_the_scheme(n_points, method, dt):
    expected = case(n_points).discrete(method, dt)
    for derivative in (heat.by_adjoint, heat.by_tangent, heat.by_continuous_forward):
        assert derivative(case(n_points), method, dt) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("n_points", "method"), [(10, "rk1fe"), (30, "rk4"), (50, "rk1fe")])
def test_differences_lose_digits(n_points, method):
    expected = case(n_points).discrete(method, DT)
    errors = {
        scheme: abs(heat.by_differences(case(n_points), method, DT, scheme) / expected - 1)
        for scheme in ("forward", "central")
    }
    assert errors["forward"] < 1e-6
    assert errors["central"] < 2e-9


@pytest.mark.parametrize("n_points", [10, 30, 50])
def test_interpolating_continuous_adjoint_differs_by_the_order_of_the_scheme(n_points):
    grid = case(n_points)
    euler = heat.by_continuous_adjoint(grid, "rk1fe", DT, "interpolating").derivative
    factor = 1 - grid.rate * DT  # sum of lam_{k+1} L u_{k+1} instead of lam_{k+1} L u_k
    assert euler == pytest.approx(factor * grid.discrete("rk1fe", DT), rel=1e-12)
    rk4 = heat.by_continuous_adjoint(grid, "rk4", DT, "interpolating").derivative
    assert rk4 == pytest.approx(grid.semi_discrete(), rel=1e-12)


@pytest.mark.parametrize("method", heat.STABILITY)
def test_backsolve_is_unstable_from_thirty_points_on(method):
    ten, thirty, fifty = (
        heat.by_continuous_adjoint(case(n), method, DT, "backsolve") for n in (10, 30, 50)
    )
    assert ten.drift < 1e-3
    assert thirty.drift > 1e6
    assert fifty.drift > 1e30
    assert abs(fifty.derivative) > 1e12
    growths = [heat.backward_growth(case(n), method, DT) for n in (10, 30, 50)]
    assert growths[0] < 1e3
    assert growths[1] > 1e24
    assert growths[2] > 1e57


@pytest.mark.slow
def test_backsolve_ruins_the_derivatives_in_a_field_of_diffusivities():
    assert heat.field_error(case(30), "rk4", DT) < 1e-12
    assert heat.field_error(case(30), "rk4", DT, "interpolating") < 1e-12
    assert heat.field_error(case(30), "rk4", DT, "backsolve") > 1e6


# ---- Gray-Scott ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_gradient_check_of_gray_scott_has_order_two():
    check = gray_scott.check(n_components=30)
    np.testing.assert_allclose(check.orders, 2.0, atol=0.02)
    assert check.relative[-1] < 1e-7


# ---- PETSc's tutorials ---------------------------------------------------------------------------


def six(values):
    """Return the values as %g prints them."""
    return [f"{value:.6g}" for value in values]


@pytest.mark.parametrize("name", PRINTED["ex20adj"])
def test_ex20adj(name):
    expected = PRINTED["ex20adj"][name]
    assert [six(row) for row in tutorials.ex20adj(name)] == [expected["dy"], expected["dz"]]


@pytest.mark.parametrize(
    ("name", "rtol"),
    [
        ("ex16fwd", 2e-14),
        ("ex20fwd", 1e-8),  # the tutorial's Newton iteration stops at a residual of 1e-8
    ],
)
def test_forward_sensitivities(name, rtol):
    expected = PRINTED[name]
    state, matrix = getattr(tutorials, name)()
    assert six(state) == expected["u"]
    printed = np.array([expected["dy"], expected["dz"]], dtype=float)
    np.testing.assert_allclose(matrix, printed, rtol=rtol)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "x", "dc"), [("cn", "x", "dc"), ("beuler", "x_beuler", "dc_beuler")]
)
def test_ex23fwdadj(method, x, dc):
    expected = PRINTED["ex23fwdadj"]
    state, derivative = tutorials.ex23fwdadj(method)
    assert six([state]) == [expected[x]]
    assert derivative == pytest.approx(float(expected[dc]), rel=1e-13)


def test_ex23fwdadj_prints_crank_nicolson_not_backward_euler():
    z = 4 / 3 * 1e-3
    x = 2 * ((1 + z / 2) / (1 - z / 2)) ** 1000
    by_cn = -x * 4 / 9 / (1 - z**2 / 4)
    by_beuler = -2 * 4 / 9 * (1 - z) ** -1001
    printed = PRINTED["ex23fwdadj"]
    assert by_cn == pytest.approx(float(printed["dc"]), rel=1e-12)
    assert by_beuler == pytest.approx(float(printed["dc_beuler"]), rel=1e-12)
    assert by_cn == pytest.approx(-8 / 9 * exp(4 / 3), rel=1e-6)


def test_ex20td():
    result, expected = tutorials.ex20td(), PRINTED["ex20td"]
    for name in ("u", "mu1", "mu2", "u0"):
        assert six(getattr(result, name)) == expected[name]
        pieces = getattr(tutorials.ex20td_by_pieces(), name)
        np.testing.assert_allclose(getattr(result, name), pieces, rtol=1e-9)


def test_nodal_values_of_a_continuous_parameter_add_up_to_those_of_the_intervals():
    intervals, nodal = tutorials.ex20td(), tutorials.nodal_gradient()
    np.testing.assert_allclose(nodal.u, intervals.u, rtol=1e-12)
    np.testing.assert_allclose(nodal.u0, intervals.u0, rtol=1e-9)
    assert nodal.mu1.sum() == pytest.approx(intervals.mu1.sum(), rel=1e-10)
    assert nodal.mu2.sum() == pytest.approx(intervals.mu2.sum(), rel=1e-8)


@pytest.mark.parametrize("method", ["cn", "midpoint", "rk4"])
def test_gradient_in_a_parameter_that_changes_with_time(method):
    check = tutorials.nodal_check(method)
    assert check.size == 12
    assert check.max() < 1e-7


@pytest.mark.slow
def test_newton_cg_needs_less_work_than_lbfgs():
    """On a coarser grid for a third of the time; sweeps with typical costs in forward solves."""
    runs = newton_cg.compared(
        newton_cg.Costs(gradient=2.0, hessian=5.0, gauss_newton=4.0), t_end=1.5, points=16
    )
    first_order, *second_order = runs
    for run in runs:
        assert run.result.converged, run
    for run in second_order:
        assert run.work < 0.5 * first_order.work, run
        assert run.result.gradient_norm <= newton_cg.REDUCTION * run.result.history.gradient_norm[0]
