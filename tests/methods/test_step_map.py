"""Step maps, linearised in the state, the parameters, the time and the step size."""

import frozen
import numpy as np
import pytest
from forms import (
    ANALYTIC_COST,
    CELLS,
    DECAY,
    FORMS,
    MASS,
    NAMES,
    P0,
    U0,
    density,
    rhs,
    rhs_p,
    rhs_t,
    rhs_u,
)
from petsc4py import PETSc

from daeosens import ODE, SolveError, UnsupportedError
from daeosens.methods.registry import METHODS, find_method
from daeosens.methods.rk import tableau as tableaux
from daeosens.methods.rk.method import EXPLICIT
from daeosens.methods.rk.step import RungeKuttaStep
from daeosens.methods.rk.tableau import Tableau, tableau
from daeosens.methods.step import Step
from daeosens.petsc import read, write
from daeosens.problem import Products

T, H = 0.35, 0.13


class LinearisedStep:
    """One step of a form by a method, between NumPy arrays."""

    def __init__(self, form, method, problem=None):
        self.problem = problem or form.analytic
        self.form, self.method = form, method
        self.map = find_method(method).step_map(self.problem, {})
        self.end = self.independent(T, H, U0, P0).end
        self.step = Step(T, H, self.vec(U0), self.vec(self.end), P0)
        (self.density,) = ANALYTIC_COST.lower(self.problem, 1.0).densities

    def independent(self, t, h, u, p):
        return frozen.step(self.form, self.method, t, h, u, p)

    def running(self, t, h, u, p):
        """The step's part of 0.7 int r dt."""
        nodes = self.independent(t, h, u, p).nodes
        return 0.7 * sum(h * share * density(time, state, p) for share, time, state in nodes)

    def vec(self, values):
        vec = self.problem.create_state()
        write(vec, values)
        return vec

    def p_vec(self, values):
        vec = self.problem.create_parameters()
        write(vec, values)
        return vec

    def tangent(self, du=None, dp=None, dt=0.0, dh=0.0, densities=None):
        after = self.vec(np.zeros(3) if du is None else du)
        direction = None if dp is None else self.p_vec(dp)
        densities = (self.density,) if densities is None else densities
        running = self.map.tangent(self.step, after, direction, dt, dh, densities=densities)
        return read(after).copy(), running

    def adjoint(self, lams, densities, *, times=True):
        lam = [self.vec(row) for row in lams]
        mu = [self.problem.create_parameters() for _ in lams]
        slopes = self.map.adjoint(self.step, lam, mu, densities, times=times)
        return [read(row).copy() for row in lam], [read(row).copy() for row in mu], slopes


@pytest.fixture(params=CELLS, ids=" ".join)
def linearised(request):
    name, method = request.param
    return LinearisedStep(FORMS[name], method)


def directions(rng):
    """One direction in each input alone, and one in all of them."""
    du, dp, dt, dh = rng.normal(size=3), rng.normal(size=3), *rng.normal(size=2)
    return {
        "u": {"du": du},
        "p": {"dp": dp},
        "t": {"dt": dt},
        "h": {"dh": dh},
        "all": {"du": du, "dp": dp, "dt": dt, "dh": dh},
    }


def test_tangent_is_the_derivative_of_an_independent_step(linearised, rng):
    eps = 1j * frozen.STEP
    for name, direction in directions(rng).items():
        du, dp = direction.get("du", np.zeros(3)), direction.get("dp", np.zeros(3))
        t, h = T + eps * direction.get("dt", 0.0), H + eps * direction.get("dh", 0.0)
        point = (t, h, U0 + eps * du, P0 + eps * dp)
        expected = linearised.independent(*point).end.imag / frozen.STEP
        expected_running = linearised.running(*point).imag / frozen.STEP
        after, running = linearised.tangent(**direction)
        assert abs(after - expected).max() < 1e-12 * abs(expected).max(), name
        assert abs(running - expected_running) < 1e-12 * max(abs(expected_running), 0.01), name


def test_adjoint_is_the_transpose_of_the_tangent(linearised, rng):
    """Two costs at once: one without running part, one without terminal part."""
    lams = [rng.normal(size=3), np.zeros(3)]
    densities = [(), (linearised.density,)]
    lam, mu, slopes = linearised.adjoint(lams, densities)
    for name, direction in directions(rng).items():
        for k in range(2):
            after, running = linearised.tangent(**direction, densities=densities[k])
            forward = [*(lams[k] * after), running]
            backward = [
                *(lam[k] * direction.get("du", 0.0)),
                *(mu[k] * direction.get("dp", 0.0)),
                slopes[k][0] * direction.get("dt", 0.0),
                slopes[k][1] * direction.get("dh", 0.0),
            ]
            scale = np.abs(forward).sum() + np.abs(backward).sum()
            assert abs(sum(forward) - sum(backward)) < 1e-12 * scale, (name, k)


def test_adjoint_without_times_is_the_same_and_returns_no_time_derivatives(linearised, rng):
    lams, densities = [rng.normal(size=3)], [(linearised.density,)]
    lam, mu, slopes = linearised.adjoint(lams, densities)
    lam_only, mu_only, nothing = linearised.adjoint(lams, densities, times=False)
    assert len(slopes) == 1
    assert nothing == []
    np.testing.assert_array_equal(lam, lam_only)
    np.testing.assert_array_equal(mu, mu_only)


def test_derivatives_found_automatically_give_the_same_linearisation(linearised, rng):
    own = LinearisedStep(linearised.form, linearised.method, linearised.form.automatic)
    for direction in directions(rng).values():
        expected, expected_running = linearised.tangent(**direction)
        after, running = own.tangent(**direction)
        np.testing.assert_allclose(after, expected, rtol=0, atol=1e-14)
        assert running == pytest.approx(expected_running, abs=1e-14)


def test_quadrature_is_that_of_the_independent_step(linearised):
    cost = (linearised.density,)
    value = linearised.map.quadrature(linearised.step, cost)
    assert value == pytest.approx(linearised.running(T, H, U0, P0), rel=1e-13)
    assert linearised.map.quadrature(linearised.step, ()) == 0.0


@pytest.mark.parametrize("kind", [method.kind for method in EXPLICIT])
def test_advance_takes_the_independent_step(kind):
    step = RungeKuttaStep(FORMS["rhs"].analytic, tableau(kind))
    u, out = step._problem.create_state(), step._problem.create_state()
    write(u, U0)
    step.advance(T, H, u, P0, out)
    expected = frozen.step(FORMS["rhs"], f"rk{kind}", T, H, U0, P0).end
    np.testing.assert_allclose(read(out), expected, rtol=0, atol=1e-15)
    step.advance(T, 0.3 * H, u, P0, out, again=True)
    expected = frozen.step(FORMS["rhs"], f"rk{kind}", T, 0.3 * H, U0, P0).end
    np.testing.assert_allclose(read(out), expected, rtol=0, atol=1e-15)


def test_a_step_taken_again_knows_its_first_rate():
    times = []

    def rhs(t, u, p):
        times.append(t)
        return -t * u

    problem = ODE(rhs, 1)
    step, u, out = RungeKuttaStep(problem, tableau("4")), *(problem.create_state() for _ in "uo")
    step.advance(0.5, 0.1, u, np.empty(0), out)
    step.advance(0.5, 0.2, u, np.empty(0), out, again=True)
    np.testing.assert_allclose(times, [0.5, 0.55, 0.55, 0.6, 0.6, 0.6, 0.7], rtol=1e-15)


@pytest.mark.parametrize("kind", [method.kind for method in EXPLICIT])
def test_tangent_agrees_with_richardson_differences_of_advance(kind, rng):
    """Real numbers only: independent of complex arithmetic and of the NumPy step."""
    problem = FORMS["rhs"].automatic
    step = RungeKuttaStep(problem, tableau(kind))
    du, dp, dt, dh = rng.normal(size=3), rng.normal(size=3), *rng.normal(size=2)

    def moved(eps):
        u, out = problem.create_state(), problem.create_state()
        write(u, U0 + eps * du)
        step.advance(T + eps * dt, H + eps * dh, u, P0 + eps * dp, out)
        return read(out).copy()

    def central(eps):
        return (moved(eps) - moved(-eps)) / (2 * eps)

    expected = (64 * central(1e-3) - 20 * central(2e-3) + central(4e-3)) / 45
    u, after, direction = (
        problem.create_state(),
        problem.create_state(),
        problem.create_parameters(),
    )
    write(u, U0)
    write(after, du)
    write(direction, dp)
    step.tangent(Step(T, H, u, u, P0), after, direction, dt, dh)
    assert abs(read(after) - expected).max() < 1e-11 * abs(expected).max()


def test_step_of_a_problem_without_parameters(rng):
    problem = ODE(lambda t, u, p: np.array([u[1], -np.sin(u[0]) * (1 + t)]), 2)
    for method in ("rk4", "cn", "beuler", "midpoint"):
        steps = find_method(method).step_map(problem, {})
        u, u_next = problem.create_state(), problem.create_state()
        write(u, [0.3, 0.1])
        write(u_next, [0.31, 0.07])
        du, lam = problem.create_state(), problem.create_state()
        before, weight = rng.normal(size=2), rng.normal(size=2)
        write(du, before)
        write(lam, weight)
        step = Step(0.1, 0.2, u, u_next, np.empty(0))
        steps.tangent(step, du, None)
        steps.adjoint(step, [lam], [problem.create_parameters()], [()])
        assert weight @ read(du) == pytest.approx(before @ read(lam), rel=1e-13)


def test_orders_and_error_estimates_are_petscs():
    for method in EXPLICIT:
        ts = PETSc.TS().create(comm=PETSc.COMM_SELF)
        ts.setType("rk")
        ts.setRKType(method.kind)
        embedded, petsc_order = tableaux.rk_tableau(ts)[3:5]
        ts.destroy()
        assert (method.order, method.adaptive) == (petsc_order, embedded is not None)


def test_explicit_step_of_a_mass_form_is_refused_and_names_implicit_methods():
    for name in ("M", "M(p)", "F"):
        form = FORMS[name].analytic.form
        first = {"M": '"esdirk4", ', "M(p)": r"a regular M\(p\) as a part .*; or ", "F": ""}[name]
        with pytest.raises(UnsupportedError, match=rf'in {form} form(.|\n)*try: {first}"cn", "be'):
            METHODS["rk4"].step_map(FORMS[name].analytic, {})


def test_trailing_stages_without_weight_are_left_out():
    """First-same-as-last: the last stage of 5dp does not enter the step."""
    table = tableau("5dp")
    assert table.b[-1] == 0.0
    step = RungeKuttaStep(DECAY.problem, Tableau(table.a, table.b, table.c))
    assert len(step._tableau.b) == len(table.b) - 1


def test_failure_of_the_linear_solver_is_a_solve_error_with_its_numbers():
    """One GMRES iteration cannot solve for three unknowns."""
    options = {"ksp_type": "gmres", "pc_type": "none", "ksp_max_it": 1}
    form = FORMS["M"]
    steps = METHODS["cn"].step_map(form.analytic, options)
    u, u_next, du = (form.analytic.create_state() for _ in range(3))
    for vec, values in ((u, U0), (u_next, U0 + 0.1), (du, [1.0, 2.0, 3.0])):
        write(vec, values)
    message = (
        r"stopped after 1 iterations \(DIVERGED_MAX_IT\), residual [0-9.e-]+\n.*ksp_rtol\n.*lu"
    )
    with pytest.raises(SolveError, match=message):
        steps.tangent(Step(T, H, u, u_next, P0), du, None)


def test_products_are_solved_for_by_gmres_as_tightly_as_by_factors(rng):
    """Matrix-free: the same step, by an iterative solver."""
    products = Products(
        lambda t, u, p, v: rhs_u(t, u, p) @ v, lambda t, u, p, w: rhs_u(t, u, p).T @ w
    )
    problem = ODE(rhs, 3, NAMES, mass=MASS, jacobian=products, jacobian_p=rhs_p, rhs_t=rhs_t)
    for method in ("beuler", "cn", "midpoint"):
        exact = LinearisedStep(FORMS["M"], method)
        free = LinearisedStep(FORMS["M"], method, problem)
        for direction in directions(rng).values():
            np.testing.assert_allclose(
                free.tangent(**direction)[0], exact.tangent(**direction)[0], rtol=0, atol=1e-11
            )
        lams = [rng.normal(size=3)]
        for item, other in zip(free.adjoint(lams, [()]), exact.adjoint(lams, [()]), strict=True):
            np.testing.assert_allclose(item[0], other[0], rtol=0, atol=1e-11)
