"""ESDIRK methods: what TS steps with, stiff problems, kept stages, and what is refused."""

from dataclasses import replace

import frozen
import numpy as np
import pytest
from forms import COSTS, DIAGONAL, FORMS, MASS, NAMES, P0, SINGULAR, TIGHT, U0, rhs, rhs_p, rhs_u
from petsc4py import PETSc
from scipy.integrate import solve_ivp

import daeosens as ds
from daeosens.derivatives import evaluate
from daeosens.errors import OptionError
from daeosens.methods.esdirk.stages import StageEquation, StageSolver
from daeosens.methods.esdirk.tableau import TABLEAUX
from daeosens.methods.registry import find_method
from daeosens.petsc import read
from daeosens.problem import Products, imex

PETSC_SELF = PETSc.COMM_SELF
each_method = pytest.mark.parametrize("method", DIAGONAL)
LATE = (0.4, 1.3)
SUM = COSTS["terminal"].objective + COSTS["running"].objective
RUNNING = COSTS["running"].objective


def late(method, **more):
    return ds.Stepping(LATE, method, options=TIGHT, **({"dt": 0.2} | more))


# ---- the discrete map is that of the tableau -----------------------------------------------------


@each_method
@pytest.mark.parametrize("name", ["rhs", "M", "M singular"])
def test_steps_of_ts_are_those_of_the_tableau(name, method):
    """From a time other than 0, after a rejected step, and in a second run by the same TS."""
    form = FORMS[name]
    u0 = ds.consistent_state(form.analytic, U0, P0, t=LATE[0]).array
    for more in ({}, {"rtol": 1e-6, "atol": 1e-6, "dt": 0.9}):
        run = ds.solve(form.analytic, u0, P0, late(method, **more))
        states, _ = frozen.run(form, method, run.times, run.step_sizes, u0, P0)
        np.testing.assert_allclose(run.u, states, rtol=1e-12, atol=1e-13)
    assert run.effort.rejected
    kick = ds.Event(0.77, lambda t, u, p: np.array([1.5 * u[0], u[1], u[2]]), name="kick")
    run = ds.solve(replace(form.analytic, events=(kick,)), u0, P0, late(method))
    after = run.crossings[0].step + 1
    log = run.times[after:], run.step_sizes[after:]
    states, _ = frozen.run(form, method, *log, run.u[after], P0)
    np.testing.assert_allclose(run.u[after:], states, rtol=1e-12, atol=1e-13)


# ---- stages --------------------------------------------------------------------------------------


@each_method
@pytest.mark.parametrize("name", ["rhs", "M", "M singular"])
def test_kept_stages_are_those_of_the_tableau_and_change_nothing(name, method):
    form, stepping = FORMS[name], ds.Stepping((0.0, 0.9), method, dt=0.3, options=TIGHT)
    kept = ds.solve(form.analytic, U0, P0, stepping, checkpoint="stages")
    _, steps = frozen.run(form, method, kept.times, kept.step_sizes, U0, P0)
    assert kept.n_stages == 3 * len(steps[0].nodes)
    for number, step in enumerate(steps):
        stages = [read(stage) for stage in kept.stages[number]]
        expected = [node[2] for node in step.nodes]
        np.testing.assert_allclose(stages, expected, rtol=1e-12, atol=1e-13)
    again = ds.solve(form.analytic, U0, P0, stepping, checkpoint="states")
    assert not again.stages
    assert abs(evaluate(kept, RUNNING) - evaluate(again, RUNNING)) < 1e-13
    for value, other in ((ds.adjoint(kept, SUM), ds.adjoint(again, SUM)),):
        np.testing.assert_allclose(value.p, other.p, rtol=1e-12)
        np.testing.assert_allclose(value.u0, other.u0, rtol=1e-12, atol=1e-14)


def test_stages_that_are_not_found_again_name_the_remedy():
    problem = FORMS["rhs"].analytic
    run = ds.solve(problem, U0, P0, ds.Stepping((0.0, 0.1), "esdirk4", dt=0.1))
    density = RUNNING.lower(problem, 1.0).densities
    steps = find_method("esdirk4").step_map(problem, {"snes_max_it": 0})
    with pytest.raises(ds.SolveError, match=r'not found again(.|\n)*checkpoint="stages"'):
        steps.quadrature(run.step(0), density)


# ---- stiff problems ------------------------------------------------------------------------------


def prothero_robinson(stiffness):
    """U = sin t; the exact solution on both sides of any stiffness."""
    return ds.ODE(lambda t, u, p: -p * (u - np.sin(t)) + np.cos(t), 1, ["stiffness"]), [stiffness]


@each_method
def test_stages_found_again_are_right_to_rounding_unless_told_otherwise(method):
    """They err less than 1e-11 of the first residual, where Newton's method of a run ends."""
    form, step = FORMS["rhs"].analytic, 0.2
    run = ds.solve(form, U0, P0, late(method, dt=step), checkpoint="stages")
    kept = run.stages[0]
    errors = []
    for options in ({}, {"snes_rtol": 1e-3}):
        finder = StageSolver(form, TABLEAUX[method], options)
        minimisers = finder.find(run.step(0))
        pairs = zip(minimisers[1:-1], kept[1:-1], strict=True)
        errors.append(max(np.abs(read(ours) / read(theirs) - 1).max() for ours, theirs in pairs))
    assert errors[0] < 1e-13 < 1e-9 < errors[1]


@each_method
def test_order_where_the_problem_is_stiff(method):
    """The order falls to that of the stages, with the stiffness in the error's denominator.

    Prothero, Robinson, Mathematics of Computation 28, 1974.
    """
    problem, p = prothero_robinson(1e6)
    errors = []
    for dt in (0.1, 0.05):
        run = ds.solve(problem, [0.0], p, ds.Stepping((0.0, 2.0), method, dt=dt))
        errors.append(abs(run.u[-1, 0] - np.sin(2.0)))
    assert max(errors) < 2e-9
    assert np.log2(errors[0] / errors[1]) > 1.8


MU = 1e3


def van_der_pol(t, u, p):
    return np.array([u[1], p[0] ** 2 * (1 - u[0] ** 2) * u[1] - p[0] ** 2 * u[0]])


def van_der_pol_u(t, u, p):
    return np.array(
        [[0.0, 1.0], [-(p[0] ** 2) * (2 * u[0] * u[1] + 1), p[0] ** 2 * (1 - u[0] ** 2)]]
    )


def van_der_pol_p(t, u, p):
    return np.array([[0.0], [2 * p[0] * ((1 - u[0] ** 2) * u[1] - u[0])]])


VAN_DER_POL = ds.ODE(
    van_der_pol,
    2,
    ["mu"],
    jacobian=van_der_pol_u,
    jacobian_p=van_der_pol_p,
    rhs_t="autonomous",
)
FIRST = ds.Terminal(lambda t, u, p: u[0])


@pytest.fixture(scope="module")
def exact():
    """x(2) and dx/dmu of u'' = mu^2 ((1 - u^2) u' - u), by the variational equation (LSODA)."""

    def augmented(t, z):
        u, w = z[:2], z[2:]
        slope = van_der_pol_u(t, u, [MU]) @ w + van_der_pol_p(t, u, [MU])[:, 0]
        return np.concatenate([van_der_pol(t, u, [MU]), slope])

    run = solve_ivp(augmented, (0.0, 2.0), [2.0, -0.66, 0.0, 0.0], "LSODA", rtol=1e-12, atol=1e-14)
    return run.y[0, -1], run.y[2, -1]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::daeosens.errors.DiscretizationWarning"
)  # by the loose tolerance
@each_method
def test_errors_follow_the_tolerance_for_van_der_pol(method, exact):
    """A jump of the relaxation oscillation lies between 0 and 2."""
    x, slope = exact
    errors = []
    for tolerance in (1e-5, 1e-7):
        stepping = ds.Stepping((0.0, 2.0), method, rtol=tolerance, atol=tolerance)
        run = ds.solve(VAN_DER_POL, [2.0, -0.66], [MU], stepping, checkpoint="stages")
        gradient = ds.adjoint(run, FIRST)
        along = ds.tangent(run, dp=[1.0])
        largest = abs(np.array([read(du) for du in along.states])).max()
        assert abs(along.derivative(FIRST) - gradient.p[0]) < 1e-12 * largest
        errors.append((abs(run.u[-1, 0] - x), abs(gradient.p[0] - slope) * MU))
    assert errors[0][0] > 2 * errors[1][0]  # the loose one may be lucky
    assert errors[0][1] > 5 * errors[1][1]
    assert errors[1][0] < 3e-6
    assert errors[1][1] < 3e-3


# ---- the rate at the start -----------------------------------------------------------------------


@pytest.mark.parametrize("mass", [None, np.eye(1)], ids=["rhs", "M"])
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@each_method
def test_answers_scale_with_the_start_of_any_size(method, make, mass):
    """A mass tells which variables are algebraic, and not a rate beside which others vanish."""
    value = {} if mass is None else {"mass": mass}
    decay, values = make(lambda t, u, p: -p[0] * u, 1, ["rate"], **value), []
    for size in (1.0, 1e-20, 1e16, 1e20, 1e100):
        run = ds.solve(decay, [size], [1.0], ds.Stepping((0.0, 1.0), method, dt=0.1))
        values.append([*run.u[:, 0] / size, ds.adjoint(run, FIRST).p[0] / size])
    np.testing.assert_allclose(values, [values[0]] * 5, rtol=1e-12)
    assert abs(values[0][-2] - np.exp(-1)) < 1e-5


@each_method
@pytest.mark.parametrize("name", ["rhs", "M", "M singular"])
def test_the_step_after_a_tiny_one_begins_anew(name, method):
    """The rate that the tiny one ends with has lost all digits."""
    form = FORMS[name]
    u0 = ds.consistent_state(form.analytic, U0, P0, t=LATE[0]).array
    run = ds.solve(form.analytic, u0, P0, late(method, dt=1e-15, rtol=1e-6))
    assert run.step_sizes[0] < 1.1e-15
    states, _ = frozen.run(form, method, run.times, run.step_sizes, u0, P0)
    np.testing.assert_allclose(run.u, states, rtol=1e-10, atol=1e-11)


# ---- other ways of giving the equations ----------------------------------------------------------


@pytest.mark.parametrize(("name", "mass"), [("rhs", None), ("M", MASS), ("M singular", SINGULAR)])
def test_jacobian_products_give_the_same_derivatives(name, mass):
    """Without entries: TS solves for the rate at the start with a scaled shell matrix."""
    form = FORMS[name]
    products = Products(
        lambda t, u, p, v: rhs_u(t, u, p) @ v, lambda t, u, p, v: rhs_u(t, u, p).T @ v
    )
    problem = ds.ODE(rhs, 3, NAMES, mass=mass, jacobian=products, jacobian_p=rhs_p)
    stepping = late("esdirk4")
    u0 = ds.consistent_state(form.analytic, U0, P0, t=LATE[0]).array
    ours, theirs = (ds.solve(value, u0, P0, stepping) for value in (problem, form.analytic))
    assert ours.effort.linear_iterations > theirs.effort.linear_iterations
    np.testing.assert_allclose(ours.u, theirs.u, rtol=1e-11)
    values, other = (ds.adjoint(run, SUM) for run in (ours, theirs))
    np.testing.assert_allclose(values.p, other.p, rtol=1e-10)
    np.testing.assert_allclose(values.u0, other.u0, rtol=1e-10, atol=1e-12)


def test_a_coloured_jacobian_gives_the_same_steps():
    """PETSc differences its own equation for the rate at the start."""
    dm = PETSc.DMDA().create([8], dof=1, stencil_width=1, comm=PETSC_SELF)
    ring = np.eye(8, k=1) + np.eye(8, k=-1) - 2 * np.eye(8)

    def heat(t, u, p, out):
        out.setArray(30 * ring @ read(u) + np.cos(3 * t))

    u0 = dm.createGlobalVec()
    u0.setArray(np.sin(np.arange(8)))
    stepping = ds.Stepping(LATE, "esdirk4", dt=0.1)
    coloured = ds.solve(ds.ODE(heat, state=dm, jacobian="coloring"), u0, None, stepping)
    plain = ds.ODE(
        lambda t, u, p: 30 * ring @ u + np.cos(3 * t), 8, jacobian=lambda t, u, p: 30 * ring
    )
    expected = ds.solve(plain, np.sin(np.arange(8)), None, stepping)
    np.testing.assert_allclose(coloured.u, expected.u, rtol=1e-10, atol=1e-12)


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "form"), [("M(p)", r"M\(p\) u' = f"), ("F", "residual form")])
def test_other_forms_are_refused_with_the_alternative(name, form):
    with pytest.raises(ds.UnsupportedError, match=rf'"esdirk5" .*{form}(.|\n)*try: .*"cn"'):
        ds.solve(FORMS[name].analytic, U0, P0, late("esdirk5"))


@pytest.mark.parametrize(("engine", "name"), [("tsadjoint", "rhs"), ("arrays", "M")])
def test_other_engines_are_refused(engine, name):
    run = ds.solve(FORMS[name].analytic, U0, P0, late("esdirk3"))
    with pytest.raises(ds.UnsupportedError, match=r'(.|\n)*try: .*engine="vectors"'):
        ds.adjoint(run, SUM, engine)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ts_type": "beuler"}, 'the method "beuler" where Stepping has "esdirk4"'),
        ({"ts_type": "dirk", "ts_dirk_type": "es213sal"}, 'the method "dirk" where Stepping'),
        ({"ts_dirk_type": "es213sal"}, "ts_dirk_type"),
    ],
)
def test_another_method_by_options_is_refused(options, message):
    stepping = ds.Stepping((0.0, 1.0), "esdirk4", dt=0.1, options=options)
    with pytest.raises(OptionError, match=message):
        ds.solve(FORMS["rhs"].analytic, U0, P0, stepping)


@pytest.mark.parametrize(
    "options", [{}, {"ksp_type": "gmres", "pc_type": "jacobi"}], ids=["lu", "gmres"]
)
def test_stages_of_affine_equations_are_found_again_by_one_iteration(options, monkeypatch):
    calls, n, residual = [], 12, StageEquation.residual

    def counted(self, *arguments):
        calls.append(1)
        residual(self, *arguments)

    def spread(t, u, p):
        padded = np.concatenate([[0.0], u, [0.0]])
        return 40.0 * (padded[:-2] - 2.0 * u + padded[2:]) + np.cos(t)

    parts = [ds.trace(f, n, ["rate"]) for f in (spread, lambda t, u, p: p[0] * u**2)]
    problem = imex(implicit=parts[0], explicit=parts[1])
    assert problem.parts[0].residual_u.constant
    stepping = ds.Stepping((0.0, 0.4), "arkimex4", dt=0.1, options=options)
    start = problem, np.linspace(0.5, 1.0, n), [0.3], stepping
    cost = ds.Terminal(lambda t, u, p: u @ u, lambda t, u, p: 2.0 * u)
    kept, run = (ds.solve(*start, checkpoint=all_of) for all_of in ("stages", "states"))
    reference = ds.adjoint(kept, cost)
    monkeypatch.setattr(StageEquation, "residual", counted)
    ours = ds.adjoint(run, cost)
    assert len(calls) == run.n_steps * 5 * 2  # before the iteration and after it
    np.testing.assert_allclose(ours.u0, reference.u0, rtol=1e-12)
    np.testing.assert_allclose(ours.p, reference.p, rtol=1e-12)
