"""Algebraic variables after events: solved for anew, and differentiated with the rest."""

from __future__ import annotations

import numpy as np
import pytest
from petsc4py import PETSc

import daeosens as ds
from daeosens.costs import AtEvent, EventTime
from daeosens.errors import OptionError
from daeosens.petsc import gather, scatter, write
from daeosens.problem import INDEPENDENT, Products
from daeosens.verify import duality

# ---- the map alone -------------------------------------------------------------------------------
# z, x, y with x' = ..., in an order in which neither algebraic row has its variable on the diagonal


def scrambled(t, u, p):
    z, x, y = u
    return np.array([-x + y * z, z**3 + z - p[1] * x * y, y - np.exp(-p[0] * y) * x - np.sin(t)])


def scrambled_residual(t, u, udot, p):
    moving = np.array([2.0 * udot[1] + 0.1 * udot[1] ** 3, 0.0 * udot[0], 0.0 * udot[0]])
    return moving - scrambled(t, u, p)


def scrambled_u(t, u, p):
    return np.array([scrambled(t, u + step, p).imag / 1e-30 for step in 1e-30j * np.eye(3)]).T


MASS = np.zeros((3, 3))
MASS[0, 1] = 2.0
SCRAMBLED = {
    "mass": ds.ODE(scrambled, 3, ["a", "b"], mass=MASS),
    "residual": ds.DAE(scrambled_residual, 3, ["a", "b"]),
    "products": ds.ODE(
        scrambled,
        3,
        ["a", "b"],
        mass=MASS,
        jacobian=Products(
            lambda t, u, p, v: scrambled_u(t, u, p) @ v,
            lambda t, u, p, w: scrambled_u(t, u, p).T @ w,
        ),
    ),
}
POINT = (0.3, np.array([0.2, 1.1, 0.5]), np.array([0.7, 1.3]))


DIFFERENCE = (np.array([-3, -2, -1, 1, 2, 3]), np.array([-1, 9, -45, 45, -9, 1]) / 60)
"""Points and weights of a difference of order 6."""


def follow(problem, t, u, p):
    return ds.consistent_state(problem, u, p, t).array.copy()


@pytest.mark.parametrize("form", SCRAMBLED)
def test_algebraic_variables_solve_their_equations_to_rounding(form):
    t, u, p = POINT
    after = follow(SCRAMBLED[form], t, u, p)
    assert after[1] == u[1]
    assert abs(scrambled(t, after, p)[1:]).max() < 1e-15
    np.testing.assert_array_equal(follow(SCRAMBLED[form], t, after, p), after)


def test_start_is_made_consistent_and_stays_as_it_is_without_algebraic_variables():
    t, u, p = POINT
    start = ds.consistent_state(SCRAMBLED["mass"], u, p, t)
    assert abs(scrambled(t, start.array, p)[1:]).max() < 1e-15
    plain = ds.ODE(lambda t, u, p: -u, 2)
    np.testing.assert_array_equal(ds.consistent_state(plain, [1.0, 2.0], None).array, [1.0, 2.0])
    rotated = ds.ODE(lambda t, u, p: -u, 2, mass=[[0.0, 2.0], [1.0, 0.0]])
    np.testing.assert_array_equal(ds.consistent_state(rotated, [1.0, 2.0], None).array, [1.0, 2.0])


def test_equations_hold_on_the_later_side_of_a_breakpoint():
    problem = ds.ODE(
        lambda t, u, p: np.array([-u[0], u[1] - (1.0 if t < 0.3 else 2.0)]),
        2,
        mass=np.diag([1.0, 0.0]),
        breakpoints=[0.1 + 0.2],
    )
    assert follow(problem, 0.3, [1.0, 0.0], None)[1] == 2.0  # one rounding before it


def test_badly_scaled_equations_are_solved_to_rounding():
    """Rows and variables of very different size, and a start far away."""

    def rhs(t, u, p):
        x, y, z = u
        return np.array([-x, 1e12 * (np.exp(y) - 2.0 - x), 1e-9 * (1e6 * z + y * x - 3.0)])

    problem = ds.ODE(rhs, 3, mass=np.diag([1.0, 0.0, 0.0]))
    after = follow(problem, 0.0, [1.0, 9.0, 1e3], None)
    np.testing.assert_allclose(after[1:], [np.log(3.0), (3.0 - np.log(3.0)) * 1e-6], rtol=1e-14)


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mass", "zeros"),
    [
        ([[1.0, 1.0], [1.0, 1.0]], "0 rows and 0 columns"),
        ([[1.0, 1.0], [0.0, 0.0]], "1 rows and 0 columns"),
        ([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], "1 rows and 1 columns"),
    ],
)
def test_mass_of_parameters_that_is_singular_in_another_way_is_refused(mass, zeros):
    n = len(mass)
    problem = ds.ODE(lambda t, u, p: -u, n, 1, mass=lambda p: p[0] * np.array(mass))
    with pytest.raises(ds.UnsupportedError, match=f"singular mass matrix.*\n?.*{zeros} are zero"):
        ds.consistent_state(problem, np.ones(n), [1.0])


def test_index_two_is_an_error():
    problem = ds.ODE(
        lambda t, u, p: np.array([u[1], u[0] - np.sin(t)]), 2, mass=np.diag([1.0, 0.0])
    )
    with pytest.raises(
        ds.SolveError, match=r"at t = 0\.5 the algebraic equations do not determine"
    ):
        ds.consistent_state(problem, [np.sin(0.5), 0.0], None, 0.5)


def test_equations_that_depend_on_each_other_are_an_error():
    """Solvable at this point, but not uniquely: rounding alone makes the Jacobian regular."""
    problem = ds.ODE(
        lambda t, u, p: np.array([-u[0], 0.1 * u[1] + 0.3 * u[2], 0.2 * u[1] + 0.6 * u[2]]),
        3,
        mass=np.diag([1.0, 0.0, 0.0]),
    )
    with pytest.raises(ds.SolveError, match="their Jacobian is singular"):
        ds.consistent_state(problem, [1.0, 0.0, 0.0], None)


def test_equations_without_solution_are_an_error():
    problem = ds.ODE(
        lambda t, u, p: np.array([-u[0], u[1] ** 2 + u[0]]), 2, mass=np.diag([1.0, 0.0])
    )
    with pytest.raises(ds.SolveError, match=r"no consistent algebraic variables.*residual 1"):
        ds.consistent_state(problem, [1.0, 0.4], None)


def test_equations_that_cannot_be_evaluated_far_away_are_solved_by_shorter_steps():
    problem = ds.ODE(
        lambda t, u, p: np.array([-u[0], np.log(u[1]) - u[0]]), 2, mass=np.diag([1.0, 0.0])
    )
    assert follow(problem, 0.0, [-1.0, 30.0], None)[1] == pytest.approx(np.exp(-1), rel=1e-15)
    with pytest.raises(ds.SolveError, match="returned nan"):
        ds.consistent_state(problem, [-1.0, -1.0], None)


def test_wrong_start_is_named():
    with pytest.raises(ds.InputError, match=r"u0 has shape \(2,\)"):
        ds.consistent_state(SCRAMBLED["mass"], [1.0, 2.0], POINT[2])


# ---- whole runs: two modes, a surface of both kinds of variables, a reset, new parameters --------
# x' = -x y + c + ..., exp(y) = 1 + a x^2 + 0.1 t  or  y^3 + 0.2 y = b x (1 + 0.1 sin t)


def first(t, u, p):
    x, y = u
    return np.array([-x * y + p[1] + 0.2 * np.cos(3 * t), np.exp(y) - 1 - p[0] * x**2 - 0.1 * t])


def second(t, u, p):
    x, y = u
    return np.array([-0.5 * x * y + p[1], y**3 + 0.2 * y - p[2] * x * (1 + 0.1 * np.sin(t))])


def residual_of(rhs):
    """Return F with a mass that depends on the algebraic variable."""

    def residual(t, u, udot, p):
        f, g = rhs(t, u, p)
        return np.array([udot[0] * (1 + 0.1 * u[1]) - f, -g])

    return residual


NAMES = ("a", "c", "b", "kicked")
P = np.array([1.3, 0.1, 0.9, 1.1347])
EVENTS = (
    ds.Event(
        lambda t, u, p: u[0] - 0.8 + 0.1 * t - 0.05 * p[0] * u[1],
        mode="second",
        within=["first"],
        changes={"b": lambda t, u, p: p[2] * (1 + 0.1 * u[0] * t)},
        name="low",
    ),
    ds.Event(
        "kicked", lambda t, u, p: np.array([u[0] * (1 + 0.2 * p[0] * t) + 0.3 * u[1], 4 * u[0]])
    ),
    ds.Event(
        lambda t, u, p: u[1] - 0.86, mode="first", within=["second"], direction=-1, name="back"
    ),
    ds.Event(1.7, name="seen"),
)


def modes(form):
    if form == "mass":
        return {
            name: ds.ODE(rhs, 2, NAMES, mass=np.diag([1.0, 0.0]))
            for name, rhs in (("first", first), ("second", second))
        }
    return {
        name: ds.DAE(residual_of(rhs), 2, NAMES)
        for name, rhs in (("first", first), ("second", second))
    }


TWO_MODES = {form: ds.hybrid(modes(form), "first", EVENTS) for form in ("mass", "residual")}
OBJECTIVE = (
    ds.Terminal(lambda t, u, p: u[0] ** 2 + u[1] * p[2])
    + ds.Running(lambda t, u, p: u[1] ** 2 * u[0] + t * p[1])
    + AtEvent(lambda t, u, p: u[1] * t, "low", 0, "after")
    + EventTime("low")
)
METHODS = ("beuler", "cn", "midpoint", "theta:0.6")
TIGHT = {"snes_rtol": 1e-14, "snes_stol": 1e-15}


def start(p):
    x = 1.0 + 0.1 * p[1]
    return np.array([x, np.log(1 + p[0] * x**2)])


def coarse(method):
    return ds.Stepping((0.0, 2.4), method, dt=0.17, options=TIGHT)


def functional(form, method):
    values = {name: ds.Parameter(value) for name, value in zip(NAMES, P, strict=True)}
    return ds.Reduced(TWO_MODES[form], OBJECTIVE, coarse(method), ds.Parameters(values, start))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", TWO_MODES)
def test_gradients_and_hessians_are_exact_at_coarse_steps(form, method):
    reduced = functional(form, method)
    run = reduced.trajectory(reduced.start())
    assert [event.name for event in run.crossings] == ["low", "event", "seen", "back"]
    for crossing in run.crossings:
        rhs = first if crossing.mode == "first" else second
        assert abs(rhs(crossing.t, crossing.after.array, crossing.p)[1]) < 1e-15
    assert duality(run, OBJECTIVE) < 1e-12
    orders = ds.taylor(reduced, epsilons=[5e-4 * 0.5**k for k in range(4)], hessian=True)
    assert orders.order > 1.9, orders
    assert orders.hessian_order > 2.9, orders


@pytest.mark.parametrize("form", TWO_MODES)
def test_hessian_is_symmetric_and_its_kept_multipliers_serve_again(form, rng):
    reduced = functional(form, "cn")
    x = reduced.start()
    values, other = (scatter(rng.normal(size=4), x.duplicate()) for _ in range(2))
    products = [reduced.hessian_product(x, value).copy() for value in (values, other, values)]
    first_way, second_way = products[0].dot(other), products[1].dot(values)
    assert first_way == pytest.approx(second_way, rel=1e-12)
    np.testing.assert_allclose(products[2].array, products[0].array, rtol=1e-13)


@pytest.mark.parametrize("method", ["cn", "midpoint"])
def test_gradient_is_that_of_the_whole_program(method):
    reduced = functional("mass", method)
    gradient = reduced.value_and_gradient(reduced.start())[1].array
    h = 1e-3
    for k, slope in enumerate(gradient):
        points = [scatter(P + e * h * np.eye(4)[k], reduced.start()) for e in DIFFERENCE[0]]
        expected = DIFFERENCE[1] @ [reduced.value(point) for point in points] / h
        assert slope == pytest.approx(expected, rel=1e-7, abs=1e-9)


def eliminated_first(t, x, p):
    return np.log(1 + p[0] * x**2 + 0.1 * t)


def eliminated_second(t, x, p):
    """Return the real root of y^3 + 0.2 y = q."""
    q, k = p[2] * x * (1 + 0.1 * np.sin(t)), 0.2
    return 2 * np.sqrt(k / 3) * np.sinh(np.arcsinh(1.5 * q / k * np.sqrt(3 / k)) / 3)


def eliminated():
    """Return the same system as an ODE of x alone."""
    y1, y2 = eliminated_first, eliminated_second

    def rhs(full, y):
        return lambda t, u, p: full(t, np.array([u[0], y(t, u[0], p)]), p)[:1]

    def low(t, u, p):
        return EVENTS[0].when(t, np.array([u[0], y1(t, u[0], p)]), p)

    def kick(t, u, p):
        return EVENTS[1].reset(t, np.array([u[0], y2(t, u[0], p)]), p)[:1]

    events = [
        ds.Event(low, mode="second", within=["first"], changes=EVENTS[0].changes, name="low"),
        ds.Event("kicked", kick),
        ds.Event(
            lambda t, u, p: y2(t, u[0], p) - 0.86, None, -1, False, "first", ["second"], "back"
        ),
    ]
    problems = {
        "first": ds.ODE(rhs(first, y1), 1, NAMES),
        "second": ds.ODE(rhs(second, y2), 1, NAMES),
    }
    return ds.hybrid(problems, "first", events)


def answers(problem, method, dt, *, hessian=False):
    """Return value, gradient and a Hessian product of a cost of x and of event times."""
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2 * p[2]) + EventTime("low") + EventTime("back")
    values = {name: ds.Parameter(value) for name, value in zip(NAMES, P, strict=True)}
    control = ds.Parameters(values, lambda p: start(p)[: problem.size])
    options = TIGHT if dt == 0.17 else {}
    reduced = ds.Reduced(
        problem, cost, ds.Stepping((0.0, 2.4), method, dt=dt, options=options), control
    )
    x = reduced.start()
    value, gradient = reduced.value_and_gradient(x)
    product = [0.0]
    if hessian:
        product = reduced.hessian_product(x, scatter([0.3, -0.2, 0.5, 0.4], x.duplicate())).array
    return np.array([value, *gradient.array, *product])


@pytest.mark.parametrize("method", ["beuler", "cn", "theta:0.6"])
def test_same_numbers_as_without_algebraic_variables(method):
    """On consistent states these methods are themselves, applied to x' = f(x, y(x))."""
    ours = answers(TWO_MODES["mass"], method, 0.17, hessian=True)
    expected = answers(eliminated(), method, 0.17, hessian=True)
    np.testing.assert_allclose(ours, expected, rtol=1e-11)


def test_midpoint_converges_to_the_numbers_without_algebraic_variables():
    """It carries y over, and the events look at y: their derivatives are of order 1."""
    exact = answers(eliminated(), "rk8vr", 0.02)
    errors = [answers(TWO_MODES["mass"], "midpoint", dt) - exact for dt in (0.02, 0.005)]
    assert abs(errors[1][0]) < 1e-6
    ratio = abs(errors[0]).max() / abs(errors[1]).max()
    assert np.log2(ratio) / 2 == pytest.approx(1.0, abs=0.1)


def test_event_without_consequences_leaves_the_run_as_it_is():
    runs = []
    for events in ([], [ds.Event(0.5, name="seen"), ds.Event(1.0, name="last", terminal=True)]):
        problem = ds.ODE(first, 2, NAMES, mass=np.diag([1.0, 0.0]), events=events)
        runs.append(ds.solve(problem, start(P), P, ds.Stepping((0.0, 1.0), "cn", dt=0.1)))
    np.testing.assert_allclose(runs[1].final.array, runs[0].final.array, rtol=1e-13)


def test_run_ends_where_the_algebraic_equations_become_singular():
    """y^2 = x falls to zero: the terminal event is reached, nothing is solved for there."""
    end = ds.Event(lambda t, u, p: u[1] - 1e-3, terminal=True, name="fold")
    problem = ds.ODE(
        lambda t, u, p: np.array([-1.0 + 0 * u[0], u[1] ** 2 - u[0]]),
        2,
        mass=np.diag([1.0, 0.0]),
        events=[end],
    )
    run = ds.solve(problem, [1.0, 1.0], None, ds.Stepping((0.0, 2.0), "beuler", dt=0.05))
    assert run.times[-1] == pytest.approx(1.0 - 1e-6, rel=1e-12)


@pytest.mark.parametrize("method", ["cn", "midpoint"])
def test_event_at_a_breakpoint_mends_algebraic_equations_that_jump_in_time(method):
    """Y = 1 for t < 0.5, then 2; x' = y - x.  Without the event these methods are refused."""

    def rhs(t, u, p):
        return np.array([u[1] - u[0], u[1] - (1.0 if t < 0.5 else 2.0) - 0.1 * u[0]])

    def error(dt):
        problem = ds.ODE(
            rhs, 2, mass=np.diag([1.0, 0.0]), breakpoints=[0.5], events=[ds.Event(0.5, name="jump")]
        )
        run = ds.solve(problem, [0.0, 1.0], None, ds.Stepping((0.0, 1.0), method, dt=dt))
        x = (1.0 - np.exp(-0.45)) / 0.9
        return abs(run.final.array[0] - (2.0 / 0.9 + (x - 2.0 / 0.9) * np.exp(-0.45)))

    assert np.log2(error(0.05) / error(0.025)) == pytest.approx(2.0, abs=0.05)


# ---- several ranks -------------------------------------------------------------------------------
# x_k' = -x_k + y_k + coupling, y_k + y_k^3 = s x_k + p1 sin(t) x_(k+1); unknowns: all x, then all
# y; equations: algebraic ones first, shifted.  Rows and variables belong to different ranks

N = 7


def ring(s):
    def whole(t, u, p):
        x, y = u[:N], u[N:]
        after = np.roll(x, -1)
        algebraic = y + y**3 - s * x - p[1] * np.sin(t) * after
        return np.concatenate([np.roll(algebraic, 1), -x + p[0] * y + 0.1 * np.roll(y, 1)])

    def derivative(t, u, p, position):
        """Return that in u (1) or p (2), of the whole."""
        point = [t, u, p]
        columns = []
        for unit in np.eye(len(point[position])):
            moved = list(point)
            moved[position] = moved[position] + 1e-30j * unit
            columns.append(whole(*moved).imag / 1e-30)
        return np.column_stack(columns)

    def own(vec):
        return slice(*vec.getOwnershipRange())

    def rhs(t, u, p, out):
        write(out, whole(t, gather(u), p)[own(u)])

    def jacobian(t, u, p, out):
        rows, values = own(u), derivative(t, gather(u), p, 1)
        for k in range(rows.start, rows.stop):
            out.setValues([k], list(range(2 * N)), values[k])
        out.assemble()

    def jacobian_p(t, u, p, out):
        out.getDenseArray()[...] = derivative(t, gather(u), p, 2)[own(u)]

    def rhs_t(t, u, p, out):
        write(out, whole(t + 1e-30j, gather(u), p).imag[own(u)] / 1e-30)

    return rhs, {"jacobian": jacobian, "jacobian_p": jacobian_p, "rhs_t": rhs_t}


def distributed(comm):
    template = PETSc.Vec().createMPI(2 * N, comm=comm)
    sizes = [template.getSizes(), template.getSizes()]
    mass = PETSc.Mat().createAIJ(sizes, comm=comm)
    mass.setUp()
    for k in range(*template.getOwnershipRange()):
        if k >= N:
            mass.setValue(k, k - N, 1.0)
    mass.assemble()
    problems = {}
    for name, s in (("weak", 0.6), ("strong", 2.0)):
        rhs, value = ring(s)
        problems[name] = ds.ODE(rhs, parameters=["a", "b"], state=template, mass=mass, **value)

    def level(t, u, p):
        return gather(u)[N:].mean() - 0.32 - 0.1 * p[1]

    def level_u(t, u, p, out):
        start, end = out.getOwnershipRange()
        write(out, np.where(np.arange(start, end) >= N, 1 / N, 0.0))

    below = ds.Event(
        level,
        mode="strong",
        when_u=level_u,
        when_p=lambda t, u, p: np.array([0.0, -0.1]),
        when_t="autonomous",
        within=["weak"],
        name="low",
    )
    return ds.hybrid(problems, "weak", [below, ds.Event(0.9, mode="weak", name="again")])


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["beuler", "cn", "midpoint"])
def test_answers_do_not_depend_on_the_number_of_ranks(method):
    """The Jacobian has no useful diagonal: every rank factorises all of it."""
    cost = ds.Terminal(
        lambda t, u, p: float((gather(u) ** 2).sum()),
        gradient_u=lambda t, u, p, out: (u.copy(out), out.scale(2.0)),
        gradient_p=INDEPENDENT,
    ) + EventTime("low")
    options = TIGHT | {"ksp_type": "preonly", "pc_type": "redundant"}
    values = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        problem = distributed(comm)
        p = np.array([0.8, 0.25])
        guess = problem.create_state()
        scatter(np.concatenate([np.linspace(0.5, 0.9, N), np.full(N, 0.4)]), guess)
        u0 = ds.consistent_state(problem, guess, p)
        run = ds.solve(problem, u0, p, ds.Stepping((0.0, 1.2), method, dt=0.1, options=options))
        assert [crossing.name for crossing in run.crossings] == ["low", "again"]
        after = gather(run.crossings[1].after)
        rest = problem.create_state()
        problem.modes["weak"].rhs(0.9, run.crossings[1].after, p, rest)
        assert abs(gather(rest)[:N]).max() < 1e-15
        assert duality(run, cost) < 1e-12
        gradient = ds.adjoint(run, cost)
        values.append(np.concatenate([gather(u0), after, *gradient.gather()]))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-10, atol=1e-12)


@pytest.mark.mpi
def test_refusals_are_the_same_on_every_rank():
    template = PETSc.Vec().createMPI(2 * N, comm=PETSc.COMM_WORLD)
    sizes = [template.getSizes(), template.getSizes()]
    mass = PETSc.Mat().createAIJ(sizes, comm=template.comm)
    mass.setUp()
    start, end = template.getOwnershipRange()
    for k in range(start, end):
        mass.setValues([k], [k, (k + 1) % (2 * N)], [1.0, -1.0])
    mass.assemble()
    rhs, value = ring(1.0)

    def mass_of(p, out):
        mass.copy(out, structure=PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN)

    problem = ds.ODE(rhs, parameters=["a", "b"], state=template, mass=mass_of, **value)
    with pytest.raises(ds.UnsupportedError, match="0 rows and 0 columns are zero"):
        ds.consistent_state(problem, template, [1.0, 1.0])


def test_wrong_options_and_times_are_named():
    start = ([1.0, 1.0], None)
    with pytest.raises(ds.InputError, match=r"options is int\n  expected: a Mapping"):
        ds.consistent_state(ROOT, *start, options=3)
    with pytest.raises(ds.InputError, match="t = 'now'\n  expected: a finite number"):
        ds.consistent_state(ROOT, *start, "now")
    with pytest.raises(OptionError, match='"pc_tpye": did you mean "pc_type"'):
        ds.consistent_state(ROOT, *start, options={"pc_tpye": "lu"})


ROOT = ds.ODE(lambda t, u, p: np.array([u[1], u[0] - u[1] ** 2]), 2, mass=np.diag([1.0, 0.0]))


def test_a_consistent_start_prints_its_numbers():
    circuit = ds.ODE(lambda t, u, p: np.array([u[1], u[0] - u[1]]), 2, mass=np.diag([1.0, 0.0]))
    start = ds.consistent_state(circuit, [3.0, 0.0], None)
    assert repr(start) == "State([3., 3.])"
    start.array[0] = 4.0  # the caller's own
    assert start.copy().array.tolist() == [4.0, 3.0]
    assert repr(ds.consistent_state(ds.ODE(lambda t, u, p: -u, 1), [2.0], None)) == "State([2.])"


def test_a_start_without_a_solution_is_not_told_of_a_reset_alone():
    nowhere = ds.ODE(
        lambda t, u, p: np.array([u[1], u[0] ** 2 + np.exp(u[1])]), 2, mass=np.diag([1.0, 0.0])
    )
    with pytest.raises(ds.SolveError, match="no consistent algebraic variables") as caught:
        ds.consistent_state(nowhere, [1.0, 0.0], None)
    assert "to begin with: in the start or, after an event" in str(caught.value)
