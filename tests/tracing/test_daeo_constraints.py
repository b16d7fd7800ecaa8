"""Inner problems with constraints g <= 0: closed forms, a program by SciPy, derivatives, errors."""

import itertools

import numpy as np
import pytest
from daeo_runs import METHODS, solved, times_of
from scipy.integrate import solve_ivp
from scipy.optimize import root

import daeosens as ds
from daeosens.costs import EventTime
from daeosens.errors import ComplementarityError
from daeosens.verify import duality

# ---- closed forms --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def disc():
    """Of y, the point of a disc of radius r that is nearest to (x, 0): y = (min(x, r), 0)."""
    return ds.DAEO(
        lambda t, x, y, p: [p[0] * y[0]],
        lambda t, x, y, p: 0.5 * (y[0] - x[0]) ** 2 + 0.5 * y[1] ** 2,
        size=(1, 2),
        parameters=2,
        box=[(-2.0, 2.0)] * 2,
        constraints=lambda t, x, y, p: [y[0] ** 2 + y[1] ** 2 - p[1] ** 2],
        running=lambda t, x, y, p: x[0] * y[0] + p[1] * t * y[0] ** 2,
    )


X0, RATE, RADIUS, END = 0.5, 1.2, 0.9, 1.5
WHEN = np.log(RADIUS / X0) / RATE
FINAL = RADIUS * (1.0 + RATE * END - np.log(RADIUS / X0))
BY_FINAL = [RADIUS / X0, RADIUS * END, RATE * END - np.log(RADIUS / X0)]  # by x0, rate, radius
BY_WHEN = [-1.0 / (X0 * RATE), -WHEN / RATE, 1.0 / (RADIUS * RATE)]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "steps"), METHODS)
def test_a_constraint_becomes_active_where_the_closed_form_says(disc, method, steps):
    run = solved(disc, [X0], [RATE, RADIUS], method, END, **steps)
    error = 2e-11 if method == "rk6vr" else 2e-8
    assert times_of(run) == pytest.approx([WHEN], abs=error)
    assert run.u[-1, 0] == pytest.approx(FINAL, abs=error)
    assert run.u[-1, 1:] == pytest.approx([RADIUS, 0.0, 16.0], abs=1e-12)
    assert run.report.unproven == []
    assert "constraint 0 becomes active" in str(run.report)
    final = disc.terminal(lambda t, x, y, p: x[0])
    for cost, exact in ((final, BY_FINAL), (EventTime("active set"), BY_WHEN)):
        by = ds.adjoint(run, cost)
        assert [by.u0[0], *by.p] == pytest.approx(exact, abs=20 * error)
        assert duality(run, cost) < 1e-12
    by = ds.adjoint(run, disc.terminal(lambda t, x, y, p: y[0] + y[1])).p
    assert by == pytest.approx([0.0, 1.0], abs=1e-12)


@pytest.mark.parametrize(("method", "order"), [("rk4", 4), ("cn", 2), ("esdirk4", 4)])
def test_a_constraint_becomes_active_with_the_order_of_the_method(disc, method, order):
    steps = WHEN / (np.array([4, 8, 16, 32]) + 0.4)
    runs = [solved(disc, [X0], [RATE, RADIUS], method, END, dt=dt) for dt in steps]
    errors = [abs(run.u[-1, 0] - FINAL) for run in runs]
    assert np.polyfit(np.log(steps), np.log(errors), 1)[0] > order - 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "method"),
    [("state", "rk4"), ("optimiser", "cn"), ("integral", "esdirk4"), ("time", "rk4")],
)
def test_taylor_remainders_fall_with_orders_two_and_three(disc, what, method):
    cost = {
        "state": disc.terminal(lambda t, x, y, p: x[0] ** 2),
        "optimiser": disc.terminal(lambda t, x, y, p: y[0] ** 3 * p[0] + x[0] * y[1]),
        "integral": disc.running,
        "time": EventTime("active set"),
    }[what]
    free = ds.Parameters(
        {"p0": ds.Parameter(RATE), "p1": ds.Parameter(RADIUS)},
        initial_state=lambda p: np.array([p[0] / 2.4]),
    )
    functional = ds.Reduced(disc, cost, ds.Stepping((0.0, 1.0), method, dt=0.1), free)
    assert min(ds.taylor(functional)) > 1.9
    assert min(ds.taylor(functional, hessian=True)) > 2.85


def test_bounds_given_as_constraints_are_the_same():
    """The graphs, the search and the proofs are others; states and derivatives are not."""

    def pulled(t, x, y, p):
        return y[0] ** 2 + p[0] * y[0] * y[1] + y[1] ** 2 - np.sin(2.0 * t) * y[0] - x[0] * y[1]

    def rate(t, x, y, p):
        return [y[0] + y[1] + p[0] * np.cos(t)]

    limits = (
        {"box": [(-0.3, 0.35), (-3.0, 3.0)]},
        {
            "box": [(-3.0, 3.0)] * 2,
            "constraints": lambda t, x, y, p: [-0.3 - y[0], y[0] - 0.35],
        },
    )
    answers = []
    for kind in limits:
        model = ds.DAEO(rate, pulled, size=(1, 2), parameters=1, **kind)
        run = solved(model, [0.4], [0.6], "rk4", 2.5, dt=0.1)
        assert len(times_of(run)) >= 3
        answers.append([run.u[-1, :3], times_of(run)])
        for cost in (model.terminal(lambda t, x, y, p: x[0] * y[1]), EventTime("active set", 1)):
            gradient = ds.adjoint(run, cost)
            along = [1.0, 0.0, 0.0, 0.0], [0.5]
            product = ds.hessian_product(run, cost, *along)
            answers[-1] += [gradient.u0[:1], gradient.p, product.u0[:1], product.p]
    for item, other in zip(*answers, strict=True):
        np.testing.assert_allclose(item, other, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_a_linear_programme_goes_from_vertex_to_vertex():
    """H is linear: its curvature is 0, and all that holds y are bounds and constraints."""
    model = ds.DAEO(
        lambda t, x, y, p: [p[0] * y[1]],
        lambda t, x, y, p: -y[1] - x[0] * y[0],
        size=(1, 2),
        parameters=1,
        box=[(0.0, 3.0)] * 2,
        constraints=lambda t, x, y, p: [y[0] + y[1] - 1.0 - 0.5 * t, 2.0 * y[0] + y[1] - 1.5],
    )
    run = solved(model, [0.2], [0.1], end=1.5)
    # y = (0, 1 + t/2) until t = 1, where the other constraint takes the place of the first
    assert times_of(run) == pytest.approx([1.0], abs=1e-13)
    assert run.u[-1] == pytest.approx([0.4, 0.0, 1.5, 1.0 + 32.0], abs=1e-12)
    changes = [(change.constraint, change.active) for change in run.report.changes]
    assert changes == [("constraint 0", False), ("constraint 1", True)]
    assert duality(run, EventTime("active set")) < 1e-12


# ---- a program that knows nothing of ours --------------------------------------------------------

TWO = np.array([1.3, 0.9, 0.4])


def moved(t, x, y, p):
    return np.array([y[1] - 0.3 * x[0], p[2] * y[0] * (1.0 + x[1])])


def bowl(t, x, y, p):
    pull = (p[0] * np.sin(2.0 * t) + x[0]) * y[0] + (p[1] * np.cos(3.0 * t) - 0.5 * x[1]) * y[1]
    return y[0] ** 2 + p[2] * y[0] * y[1] + 0.75 * y[1] ** 2 + 0.1 * y[0] ** 4 - pull


def limits(t, x, y, p):
    oval = y[0] ** 2 + 1.5 * y[1] ** 2 - 0.3 - 0.1 * x[0]
    return [oval, y[0] + y[1] * (1.0 + 0.2 * x[1]) - 0.5 * p[1]]


def program(x0, p, end):
    """Return x at the end and the times of changes, by SciPy: active sets by enumeration."""

    def slopes(t, x, y):
        pull = np.array([p[0] * np.sin(2 * t) + x[0], p[1] * np.cos(3 * t) - 0.5 * x[1]])
        rows = np.array([[2.0, p[2]], [p[2], 1.5]])
        of_h = rows @ y + np.array([0.4 * y[0] ** 3, 0.0]) - pull
        return of_h, np.array([[2.0 * y[0], 3.0 * y[1]], [1.0, 1.0 + 0.2 * x[1]]])

    def optimum(t, x, active, start):
        def conditions(z):
            of_h, of_g = slopes(t, x, z[:2])
            multipliers = np.zeros(2)
            multipliers[active] = z[2:]
            return [*(of_h + multipliers @ of_g), *np.array(limits(t, x, z[:2], p))[active]]

        z = root(conditions, [*start, *([0.5] * len(active))], tol=1e-14).x
        return z[:2], z[2:]

    def distances(t, x, active, start):
        y, multipliers = optimum(t, x, active, start)
        value = -np.array(limits(t, x, y, p))
        value[active] = multipliers
        return value

    t, x, y, times = 0.0, np.array(x0, dtype=float), np.array([0.0, 0.45]), []
    sets = [list(k) for count in range(3) for k in itertools.combinations(range(2), count)]
    while True:
        ahead = t + 1e-9, x + 1e-9 * moved(t, x, y, p)
        (active,) = [computed for computed in sets if (distances(*ahead, computed, y) > 0).all()]

        def rate(t, x, active=active, y=y):
            return moved(t, x, optimum(t, x, active, y)[0], p)

        ends = []
        for k in range(2):

            def end_of(t, x, k=k, active=active, y=y):
                return distances(t, x, active, y)[k]

            end_of.terminal, end_of.direction = True, -1
            ends.append(end_of)
        piece = solve_ivp(rate, (t, end), x, "DOP853", events=ends, rtol=1e-11, atol=1e-12)
        t, x = piece.t[-1], piece.y[:, -1]
        y = optimum(t, x, active, y)[0]
        if t == end:
            return x, np.array(times)
        times.append(t)


@pytest.mark.slow
def test_values_times_and_gradients_are_those_of_a_program_by_scipy():
    model = ds.DAEO(
        moved, bowl, size=(2, 2), parameters=3, box=[(-2.0, 2.0)] * 2, constraints=limits
    )
    x0, end = np.array([0.2, -0.1]), 0.8
    run = solved(model, x0, TWO, end=end)
    x, times = program(x0, TWO, end)
    assert len(times) == 3
    assert times_of(run) == pytest.approx(times, abs=1e-9)
    assert run.u[-1, :2] == pytest.approx(x, abs=1e-10)
    active = [(change.constraint[-1], change.active) for change in run.report.changes]
    assert active == [("0", False), ("0", True), ("1", False)]
    by_x = ds.adjoint(run, model.terminal(lambda t, x, y, p: x[0] + 2.0 * x[1]))
    by_t = ds.adjoint(run, EventTime("active set", 2))
    step = np.array([3e-4, -1e-4, 2e-4])
    (up, late), (down, early) = (program(x0, TWO + s * step, end) for s in (1.0, -1.0))
    assert by_x.p @ step == pytest.approx((up - down) @ [0.5, 1.0], abs=1e-9)
    assert by_t.p @ step == pytest.approx((late - early)[2] / 2.0, abs=1e-9)
    cost = model.terminal(lambda t, x, y, p: x[0] * y[0] + y[1] * p[1])
    for value in (cost, EventTime("active set", 1)):
        assert duality(run, value) < 1e-12


# ---- jumps, and what is refused ------------------------------------------------------------------


def test_a_jump_between_two_arcs_of_the_boundary():
    """Outside of an ellipse the point nearest to (x, 0) is on one side of it, then on the other.

    Above y[1] = 0.6 these are corners, as near where x = 0.
    """
    model = ds.DAEO(
        lambda t, x, y, p: [p[0] + 0.2 * y[0]],
        lambda t, x, y, p: 0.5 * (y[0] - x[0]) ** 2 + 0.5 * y[1] ** 2,
        size=(1, 2),
        parameters=1,
        box=[(-2.0, 2.0), (0.6, 2.5)],
        constraints=lambda t, x, y, p: [1.0 - y[0] ** 2 - 0.25 * y[1] ** 2],
    )
    run = solved(model, [-0.3], [1.0])
    side = np.sqrt(0.91)
    slow, fast = 1.0 - 0.2 * side, 1.0 + 0.2 * side
    assert times_of(run, "jump") == pytest.approx([0.3 / slow], abs=1e-13)
    assert run.u[-1, 0] == pytest.approx(fast * (1.0 - 0.3 / slow), abs=1e-12)
    assert run.u[-1, 1:] == pytest.approx([side, 0.6, 4.0 + 16.0], abs=1e-12)
    assert duality(run, EventTime("jump")) < 1e-12
    assert ds.adjoint(run, EventTime("jump")).p == pytest.approx([-0.3 / slow**2], abs=1e-12)


def test_a_start_without_strict_complementarity_is_an_error(disc):
    with pytest.raises(ComplementarityError, match="strict complementarity is lost at the start"):
        solved(disc, [RADIUS], [RATE, RADIUS])


@pytest.mark.parametrize(
    ("x0", "message"),
    [(-0.5, "no y in the box satisfies the constraints"), (0.2, "leave no room for y at t = 0.2")],
)
def test_constraints_that_nothing_satisfies_are_an_error(x0, message):
    """At the start, and when the disc has become a point."""
    model = ds.DAEO(
        lambda t, x, y, p: [-1.0],
        lambda t, x, y, p: y[0] + 0.2 * y[1],
        size=(1, 2),
        box=[(-2.0, 2.0)] * 2,
        constraints=lambda t, x, y, p: [y[0] ** 2 + y[1] ** 2 - x[0]],
    )
    with pytest.raises(ds.SolveError, match=message):
        solved(model, [x0], [], method="rk4", dt=0.1)


@pytest.mark.slow
def test_a_constraint_that_says_what_a_bound_does_is_an_error():
    model = ds.DAEO(
        lambda t, x, y, p: y,
        lambda t, x, y, p: 0.5 * (y[0] - x[0]) ** 2,
        size=(1, 1),
        box=[(-2.0, 1.0)],
        constraints=lambda t, x, y, p: [2.0 * y[0] - 2.0],
    )
    told = r"y\[0\] at its upper bound and constraint 0 become active together near t = 0.7"
    with pytest.raises(ds.SolveError, match=told):
        solved(model, [0.5], [], "rk4", dt=0.1)


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (lambda t, x, y, p: y[0] - 1.0, r"'constraints' returned shape \(\)"),
        (lambda t, x, y, p: [y[0] - 1.0, x[0] - 2.0], "constraint 1 does not depend on y"),
        (lambda t, x, y, p: [np.inf], "constraint 0 does not depend on y"),
        (lambda t, x, y, p: [y[0]] * 60, "at most 46 of 2 y"),
    ],
)
def test_constraints_that_are_none(constraints, message):
    with pytest.raises(ds.InputError, match=message):
        ds.DAEO(
            lambda t, x, y, p: -y[:1],
            lambda t, x, y, p: y[0] ** 2 + y[1] ** 2,
            size=(1, 2),
            box=[(-2.0, 2.0)] * 2,
            constraints=constraints,
        )
