"""Events at fixed times and at one instant, of problems with a mass or in residual form."""

import numpy as np
import pytest
from forms import TIGHT
from petsc4py import PETSc
from scipy.linalg import hilbert

import daeosens as ds
from daeosens.methods.registry import find_method
from daeosens.methods.step import Step
from daeosens.petsc import gather, read, scatter, write
from daeosens.problem import INDEPENDENT, add_events
from daeosens.verify import duality
from tests.timestepping.test_consistent_start import N, distributed

NAMES = ["rate", "lag", "level"]
U0 = np.array([1.0, 0.4, 0.2])
MASS = np.array([[2.0, 0.5, 0.0], [0.1, 1.0, 0.0], [0.0, 0.0, 0.0]])


def sides(t, u, p):
    """Two equations with rates, and one that gives the last unknown."""
    x, z, y = u
    return np.array(
        [
            -p[0] * x * (1 + 0.3 * np.sin(t)) + 0.2 * y * y,
            x * y - 0.3 * z * t,
            y + 0.3 * y**3 - x * p[0] - 0.2 * z - 0.1 * np.cos(t * p[1]),
        ]
    )


def mass(p):
    return MASS * np.array([[1 + p[0] ** 2], [1.0], [1.0]])


def residual(t, u, udot, p):
    """The coefficients of the rates depend on time and state."""
    value = sides(t, u, p)
    return np.array(
        [
            2.0 * udot[0] * (1 + 0.1 * u[0] + 0.2 * t) + 0.5 * udot[1] - value[0],
            0.1 * udot[0] + udot[1] * (1 + 0.1 * t) - value[1],
            -value[2],
        ]
    )


FORMS = {
    "M singular": ds.ODE(sides, 3, NAMES, mass=MASS),
    "M(p)": ds.ODE(sides, 3, NAMES, mass=mass),
    "F": ds.DAE(residual, 3, NAMES),
    "M": ds.ODE(sides, 3, NAMES, mass=np.diag([2.0, 1.0, -1.0]) + 0.1),
}
METHODS = ["cn", "beuler", "midpoint", "theta:0.7", "esdirk4"]
CELLS = [
    (form, method)
    for form in FORMS
    for method in METHODS
    if method != "esdirk4" or form in ("M singular", "M")
]


def reset(t, u, p):
    return np.array([u[0] ** 2 / 3 + 2 * p[0] + t + 0.2 * u[2], u[1] + 0.1 * u[0], u[2]])


def dosed(form, cost, method, end, when):
    """Return lag -> the reduced functional over [0, ``end``] of a problem with a dose."""
    dose = ds.Event(when, reset, direction=0 if isinstance(when, str) else 1, name="dose")
    problem = add_events(FORMS[form], [dose])
    stepping = ds.Stepping((0.0, end), method, dt=0.1, options=TIGHT)

    def functional(lag, level=0.3):
        entries = {
            "rate": ds.Parameter(0.5),
            "lag": ds.Parameter(lag),
            "level": ds.Parameter(level),
        }

        def start(p):
            return np.array([1.0 + 0.2 * p[0], 0.4 * p[2], 0.2 + 0 * p[0]])

        return ds.Reduced(problem, cost, stepping, ds.Parameters(entries, start, consistent=True))

    return functional


def slopes(functional):
    """Return the gradient, and the Hessian's product with a direction."""
    x = functional.start()
    along = x.duplicate()
    write(along, [0.3, 0.2, 1.0])
    return [
        read(value).copy()
        for value in (functional.gradient(x), functional.hessian_product(x, along))
    ]


AT_END = ds.Terminal(lambda t, u, p: u[0] ** 2 * (1 + 0.1 * t * p[1]) + u[1] * u[2] + u[2] ** 2)
ALONG = ds.Running(lambda t, u, p: (u[0] + u[2]) ** 2 * (1 + t))


@pytest.mark.slow
@pytest.mark.parametrize(("form", "method"), CELLS)
@pytest.mark.parametrize(("lag", "inwards"), [(0.0, 1.0), (2.0, -1.0)])
def test_derivatives_of_events_at_the_ends_are_those_from_the_inside(form, method, lag, inwards):
    """The limit of those beside, one-sided differences, and Taylor's third order."""
    functional = dosed(form, AT_END + ALONG, method, 2.0, "lag")
    values, near = (slopes(functional(lag + away)) for away in (0.0, inwards * 1e-8))
    np.testing.assert_allclose(near[0], values[0], rtol=1e-6)
    np.testing.assert_allclose(near[1], values[1], rtol=1e-6, atol=1e-6)
    at = functional(lag)
    unit = at.start()
    write(unit, [0.0, 1.0, 0.0])
    bend = read(at.hessian_product(at.start(), unit))[1]

    def value(away):
        there = functional(lag + inwards * away)
        return there.value(there.start())

    rests = [
        abs(value(e) - value(0.0) - inwards * e * values[0][1] - e * e / 2 * bend)
        for e in (8e-3, 4e-3)
    ]
    assert np.log2(rests[0] / rests[1]) > 2.95


@pytest.mark.parametrize(("form", "method"), CELLS)
def test_sweeps_are_dual_where_the_state_decides_on_the_last_moment(form, method):
    """The surface is met just at the end, from a state and with algebraic variables that jump."""
    dose = ds.Event(lambda t, u, p: t - p[1] + 0.1 * (u[0] - p[2]), reset, direction=1, name="dose")
    problem = add_events(FORMS[form], [dose])
    stepping = ds.Stepping((0.0, 2.0), method, dt=0.1, options=TIGHT)
    p = np.array([0.5, 2.0, 0.0])
    u0 = read(ds.consistent_state(problem, U0, p)) if form != "M" else U0
    p[2] = ds.solve(FORMS[form], u0, p, stepping).final.array[0]
    run = ds.solve(problem, u0, p, stepping)
    assert [(crossing.name, crossing.t) for crossing in run.crossings] == [("dose", 2.0)]
    cost = AT_END + ALONG
    assert duality(run, cost) < 1e-12
    values, two = ([0.3, -0.2, 0.0], [0.2, 0.1, -0.3]), ([0.1, 0.4, 0.0], [-0.3, 0.2, 0.5])
    first, second = (ds.hessian_product(run, cost, *value) for value in (values, two))
    left = first.u0 @ two[0] + first.p @ two[1]
    right = second.u0 @ values[0] + second.p @ values[1]
    assert left == pytest.approx(right, rel=1e-11)


@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk4"])
@pytest.mark.parametrize("lag", [1.0, 1.234])
def test_observations_beside_an_event_that_moves(method, lag):
    """Derivatives are those of the side after it, to the error of a step."""
    cost = ds.LeastSquares(
        [0.25, lag, 1.7],
        [[0.2], [0.3], [0.5]],
        observe=lambda t, u, p: u[:1] * (1 + 0.2 * t + p[1]) + u[2:],
        side="after",
    )
    functional = dosed("M singular", cost, method, 2.0, "lag")
    values, near = (slopes(functional(lag - away)) for away in (0.0, 1e-8))
    error = {"cn": 1e-4, "beuler": 6e-3, "esdirk4": 1e-6}[method]
    assert abs(near[0] - values[0]).max() < error * abs(values[0]).max()
    assert abs(near[1] - values[1]).max() < 4 * error * abs(values[1]).max()


def test_the_midpoint_rule_has_no_state_beside_an_event_with_algebraic_variables():
    cost = ds.LeastSquares([1.0], [[0.3]], observe=lambda t, u, p: u[:1], side="before")
    functional = dosed("M singular", cost, "midpoint", 2.0, "lag")(1.0)
    with pytest.raises(ds.SolveError, match=r'"dose", which moves(.|\n)*no "midpoint" with a mass'):
        functional.gradient(functional.start())


# ---- the same problem without algebraic variables, or without a mass -----------------------------


def doses(problem):
    """Two doses that commute, at times that are parameters."""

    def dose(which, amount):
        return ds.Event(which, lambda t, u, p: u + amount * (np.arange(len(u)) == 0), name=which)

    return add_events(problem, [dose("one", 0.7), dose("two", 1.1)])


def full(t, u, p, bend=1.0):
    rate = -p[0] * (1 + bend * u[0]) * u[1] * (1 + t)
    return np.array([rate, u[1] - u[0] - bend * np.sin(u[0]) - 0.5 * p[1] * t])


def reduced(t, u, p, bend=1.0):
    return -p[0] * (1 + bend * u) * (u + bend * np.sin(u) + 0.5 * p[1] * t) * (1 + t) / 2


@pytest.mark.parametrize("method", ["cn", "beuler", "midpoint", "theta:0.8", "esdirk4"])
@pytest.mark.parametrize("times", [(0.0, 0.0), (1.0, 2.0), (0.0, 2.0)])
def test_eliminating_mass_and_algebraic_variables_changes_nothing(method, times):
    """M u' = f with 0 = y - g(x), M u' = f and u' = f: at the start, together, and at the end.

    Doses at one time commute if the equations are linear.
    """
    bend = float(times[0] != times[1])
    names, stepping = ["rate", "one", "two"], ds.Stepping((0.0, 2.0), method, dt=0.1, options=TIGHT)
    problems = [
        ds.ODE(lambda t, u, p: full(t, u, p, bend), 2, names, mass=np.diag([2.0, 0.0])),
        ds.ODE(lambda t, u, p: 2 * reduced(t, u, p, bend), 1, names, mass=np.array([[2.0]])),
        ds.ODE(lambda t, u, p: reduced(t, u, p, bend), 1, names),
    ]
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2) + ds.Running(
        lambda t, u, p: u[0] * (1 + t * p[1])
    )

    def start(size):
        return lambda p: np.array([1.0 + 0.3 * p[0], 0 * p[0]])[:size]

    numbers = []
    for problem in map(doses, problems):
        values = dict(zip(names, (0.6, *times), strict=True))
        entries = {name: ds.Parameter(value) for name, value in values.items()}
        control = ds.Parameters(entries, start(problem.size), consistent=problem.size == 2)
        functional = ds.Reduced(problem, cost, stepping, control)
        numbers.append([functional.value(functional.start()), *np.ravel(slopes(functional))])
    np.testing.assert_allclose(numbers[1], numbers[2], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(numbers[0], numbers[2], rtol=1e-9, atol=1e-11)


def test_the_last_time_may_be_a_breakpoint():
    """The equations that hold before it decide."""

    def rhs(t, u, p):
        return -u * (1.0 if t.real < 2.0 else 5.0)

    for form in ({}, {"mass": np.array([[2.0]])}):
        dose = ds.Event("lag", lambda t, u, p: u + 2.0, name="dose")
        problem = ds.ODE(rhs, 1, ["lag"], breakpoints=[2.0], events=[dose], **form)
        runs = [
            ds.solve(problem, [1.0], [lag], ds.Stepping((0.0, 2.0), "cn", dt=0.1))
            for lag in (2.0, 2.0 - 1e-9)
        ]
        cost = ds.Terminal(lambda t, u, p: u[0])
        values, near = (ds.adjoint(run, cost).p[0] for run in runs)
        assert values == pytest.approx(near, rel=1e-6)
        assert duality(runs[0], cost) < 1e-12


# ---- several ranks -------------------------------------------------------------------------------


def squares(t, u, p, du, dp, out):
    du.copy(out)
    out.scale(2.0)
    return np.zeros(2)


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["beuler", "cn", "midpoint"])
@pytest.mark.parametrize("end", [0.25, 0.6])
def test_answers_do_not_depend_on_the_number_of_ranks(method, end):
    """An event at the last time, or two at one instant; equations far from their variables."""
    cost = ds.Terminal(
        lambda t, u, p: float((gather(u) ** 2).sum()),
        gradient_u=lambda t, u, p, out: (u.copy(out), out.scale(2.0)),
        gradient_p=INDEPENDENT,
        hessian_product=squares,
    )
    options = TIGHT | {"ksp_type": "preonly", "pc_type": "redundant"}
    values = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        weak = distributed(comm).modes["weak"]
        scaled = [
            ds.Event(
                "b",
                lambda t, u, p, out, factor=factor: (u.copy(out), out.scale(factor)),
                reset_u=lambda t, u, p, out, factor=factor: (out.zeroEntries(), out.shift(factor)),
                reset_p=lambda t, u, p, out: out.zeroEntries(),
                reset_t="autonomous",
                name=name,
            )
            for name, factor in (("one", 1.25), ("two", 0.7))
        ]
        problem = add_events(weak, scaled[: 1 if end == 0.25 else 2])
        p = np.array([0.8, 0.25])
        guess = problem.create_state()
        scatter(np.concatenate([np.linspace(0.5, 0.9, N), np.full(N, 0.4)]), guess)
        u0 = ds.consistent_state(problem, guess, p)
        run = ds.solve(problem, u0, p, ds.Stepping((0.0, end), method, dt=0.05, options=options))
        assert len(run.crossings) == (1 if end == 0.25 else 2)
        assert duality(run, cost) < 1e-12
        gradient = ds.adjoint(run, cost)
        values.append(np.concatenate(gradient.gather()))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-10, atol=1e-12)


# ---- refusals ------------------------------------------------------------------------------------


def test_a_state_that_misses_its_algebraic_equations_has_no_rate():
    """An implicit event at the start, which backward Euler would forget but the jump does not."""
    problem = ds.ODE(full, 2, ["rate", "level"], mass=np.diag([2.0, 0.0]))
    level = ds.Event(lambda t, u, p: u[0] - p[1], direction=-1, terminal=False, name="level")
    problem = add_events(problem, [level])
    run = ds.solve(problem, [1.0, 3.0], [0.6, 1.0], ds.Stepping((0.0, 1.0), "beuler", dt=0.1))
    assert run.crossings[0].t == 0.0
    with pytest.raises(ds.SolveError, match=r"event at t = 0, .* miss their equations by 1\.16"):
        ds.adjoint(run, AT_END_OF_TWO)
    ok = ds.solve(
        problem, [1.0, 1.0 + np.sin(1.0)], [0.6, 1.0], ds.Stepping((0.0, 1.0), "beuler", dt=0.1)
    )
    assert duality(ok, AT_END_OF_TWO) < 1e-12


AT_END_OF_TWO = ds.Terminal(lambda t, u, p: u[0] * u[1])


def test_singular_matrices_and_rates_that_cannot_be_found_are_named():
    """Of an index above one, and of an equation without a real rate."""
    hidden = ds.ODE(lambda t, u, p: np.array([u[1], u[0]]), 2, mass=np.diag([1.0, 0.0]))
    no_rate = ds.DAE(lambda t, u, udot, p: udot**2 + 1.0 + u, 1)
    for problem, why in ((hidden, "singular"), (no_rate, "not converge|singular")):
        u = problem.create_state()
        step = Step(0.5, 0.0, u, u, np.empty(0))
        instant = find_method("beuler").instant_map(problem, {})
        with pytest.raises(ds.SolveError, match=f"(?s)event at t = 0.5, .*({why}).*index one"):
            instant.adjoint(step, [problem.create_state()], [], [()], times=True)


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("linear", [False, True])
def test_rates_of_residuals_with_nearly_singular_matrices_are_those_of_masses(n, linear):
    """Of Hilbert matrices: Newton's steps fall no further than to the rounding of the matrix."""
    mass, stiffness = hilbert(n), np.eye(n) + 0.1 * np.arange(n * n).reshape(n, n) / n**2
    names = ["rate", "lag"]
    problems = (
        ds.ODE(lambda t, u, p: -p[0] * (stiffness @ u), n, names, mass=mass),
        ds.DAE(
            lambda t, u, udot, p: mass @ udot + p[0] * (stiffness @ u),
            n,
            names,
            linear_in_udot=linear,
        ),
    )
    start = np.linalg.eigh(mass)[1][:, -1]
    values = []
    for problem in problems:
        dosed = add_events(problem, [ds.Event("lag", lambda t, u, p: 1.1 * u, name="dose")])
        run = ds.solve(dosed, start, [0.5, 1.0], ds.Stepping((0.0, 1.0), "beuler", dt=0.1))
        values.append(ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0] ** 2 + u[-1])).p)
    assert abs(values[1] - values[0]).max() < 1e-14 * np.linalg.cond(mass) * abs(values[0]).max()
