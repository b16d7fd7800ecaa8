"""Minimisers at bounds of the box: closed forms, a program by SciPy, orders, derivatives."""

import itertools

import numpy as np
import pytest
from daeo_runs import METHODS, solved, times_of
from scipy.integrate import quad, solve_ivp
from scipy.optimize import brentq

import daeosens as ds
from daeosens.costs import AtEvent, EventTime
from daeosens.errors import ComplementarityError
from daeosens.verify import duality

# ---- a bound that becomes active -----------------------------------------------------------------


def growth(t, x, y, p):
    return p[0] * y


def nearest(t, x, y, p):
    return 0.5 * (y[0] - x[0]) ** 2


@pytest.fixture(scope="module")
def clipped():
    """Of y = min(x, 1), where x = 1 + p T + log x0 at the end, and y = 1 from -log(x0)/p on."""
    return ds.DAEO(growth, nearest, size=(1, 1), parameters=1, box=[(-2.0, 1.0)])


X0, RATE, END = 0.5, 1.2, 1.5
FINAL = 1.0 + RATE * END + np.log(X0)
WHEN = -np.log(X0) / RATE


@pytest.mark.parametrize(("method", "steps"), METHODS)
def test_a_bound_becomes_active_where_the_closed_form_says(clipped, method, steps):
    run = solved(clipped, [X0], [RATE], method, END, **steps)
    error = 2e-11 if method == "rk6vr" else 2e-8
    assert times_of(run) == pytest.approx([WHEN], abs=error)
    assert run.u[-1] == pytest.approx([FINAL, 1.0, 2.0], abs=error)  # upper bound of y[0]: 2
    after = run.times > WHEN + 1e-6
    assert (run.u[after, 1] == 1.0).all()  # exactly
    final = clipped.terminal(lambda t, x, y, p: x[0])
    by = ds.adjoint(run, final)
    assert [by.u0[0], *by.p] == pytest.approx([1.0 / X0, END], abs=10 * error)
    by = ds.adjoint(run, EventTime("active set"))
    exact = [-1.0 / (X0 * RATE), np.log(X0) / RATE**2]
    assert [by.u0[0], *by.p] == pytest.approx(exact, abs=10 * error)


@pytest.mark.parametrize(("method", "order"), [("rk4", 4), ("cn", 2), ("esdirk4", 4)])
def test_a_bound_becomes_active_with_the_order_of_the_method(clipped, method, order):
    steps = WHEN / (np.array([5, 10, 20, 40]) + 0.4)  # gradients depend on how the step is cut
    runs = [solved(clipped, [X0], [RATE], method, END, dt=dt) for dt in steps]
    errors = [abs(run.u[-1, 0] - FINAL) for run in runs]
    assert np.polyfit(np.log(steps), np.log(errors), 1)[0] > order - 0.2
    final = clipped.terminal(lambda t, x, y, p: x[0])
    errors = [abs(ds.adjoint(run, final).p[0] - END) for run in runs]
    assert np.polyfit(np.log(steps), np.log(errors), 1)[0] > order - 0.2


def infinite():
    """Of y = -log(1 - t), which comes to its bound 2 at t = 1 - exp(-2), and to infinity at 1."""
    return ds.DAEO(
        lambda t, x, y, p: [1.0, y[0]],
        lambda t, x, y, p: (1.0 - x[0]) * np.exp(y[0]) - y[0],
        size=(2, 1),
        box=[(-1.0, 2.0)],
    )


CORNER = 1.0 - np.exp(-2.0)


@pytest.mark.parametrize(
    ("method", "dt", "error"),
    [
        *(("cn", 0.35, 0.05), ("esdirk4", 0.35, 0.01), ("rk4", 0.35, 0.01)),
        *(("beuler", 0.29, 0.35), ("midpoint", 0.35, 0.05)),
    ],
)
def test_steps_may_end_where_there_is_no_optimiser_any_more(method, dt, error):
    run = solved(infinite(), [0.0, 0.0], [], method, 1.5, dt=dt)
    assert times_of(run) == pytest.approx([CORNER], abs=1e-12)
    area = 1.0 - 3.0 * np.exp(-2.0) + 2.0 * (1.5 - CORNER)
    assert run.u[-1] == pytest.approx([1.5, area, 2.0, 2.0], abs=error)


def test_steps_of_backward_euler_that_end_there_are_refused_with_a_shorter_one():
    with pytest.raises(ds.SolveError, match=r"(?s)active set changes at t = 0\.8646647.*dt=0\.147"):
        solved(infinite(), [0.0, 0.0], [], "beuler", 1.5, dt=0.35)
    assert times_of(solved(infinite(), [0.0, 0.0], [], "beuler", 1.5, dt=0.147)) == pytest.approx(
        [CORNER], abs=1e-12
    )


@pytest.mark.slow
def test_a_bound_that_holds_at_the_start_is_released_where_the_closed_form_says():
    """Of y = min(p1 sin(t), 0.5), first and last free; of y = max(-x, -0.5), at first not."""
    model = ds.DAEO(
        growth,
        lambda t, x, y, p: 0.5 * (y[0] - p[1] * np.sin(t)) ** 2,
        size=(1, 1),
        parameters=2,
        box=[(-2.0, 0.5)],
    )
    p, start, end = np.array([1.2, 0.8]), 0.3, 3.0
    angle = np.arcsin(0.5 / p[1])
    exact = p[1] * (1.0 - 2.0 * np.cos(angle) - np.cos(end)) + 0.5 * (np.pi - 2.0 * angle)
    run = solved(model, [start], p, end=end)
    assert times_of(run) == pytest.approx([angle, np.pi - angle], abs=1e-13)
    assert run.u[-1, 0] == pytest.approx(start + p[0] * exact, abs=1e-12)
    assert run.u[-1, 1:] == pytest.approx([p[1] * np.sin(end), 0.0], abs=1e-12)
    by = ds.adjoint(run, EventTime("active set", 1)).p
    slope = 0.5 / p[1] ** 2 / np.cos(angle)
    assert by == pytest.approx([0.0, slope], abs=1e-12)
    assert run.report.unproven == []  # h is convex beside the bound
    changes = [(change.constraint, change.active) for change in run.report.changes]
    upper = "y[0] at its upper bound"
    assert changes == [(upper, True), (upper, False)]
    assert f"{upper} becomes inactive" in str(run.report)

    held = ds.DAEO(growth, lambda t, x, y, p: 0.5 * (y[0] + x[0]) ** 2, (1, 1), 1, box=(-0.5, 2.0))
    run = solved(held, [0.8], [1.0])
    assert times_of(run) == pytest.approx([0.6], abs=1e-13)
    assert run.u[-1, 0] == pytest.approx(0.5 * np.exp(-0.4), abs=1e-12)


# ---- several optimisers --------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "steps"), METHODS)
def test_bang_bang_control_is_a_jump_between_bounds(method, steps):
    """Where h is concave in y, it is least at bounds, between which x - p2 switches."""
    model = ds.DAEO(
        lambda t, x, y, p: p[0] + p[1] * y,
        lambda t, x, y, p: -0.5 * y[0] ** 2 + (x[0] - p[2]) * y[0],
        size=(1, 1),
        parameters=3,
        box=[(-1.0, 1.0)],
    )
    p = np.array([1.0, 0.4, 0.6])
    switch = p[2] / (p[0] + p[1])
    run = solved(model, [0.0], p, method, **steps)
    assert times_of(run, "jump") == pytest.approx([switch], abs=1e-14)
    assert run.u[-1] == pytest.approx([p[2] + (p[0] - p[1]) * (1 - switch), -1.0, 1.0], abs=1e-14)
    assert run.report.unproven == []
    by = ds.adjoint(run, EventTime("jump")).p
    assert by == pytest.approx(np.array([-switch, -switch, 1.0]) / (p[0] + p[1]), abs=1e-13)


@pytest.mark.slow
def test_an_optimiser_that_a_bound_lets_go_where_h_is_concave_vanishes():
    """Of x y - y^2 + y^4/4 the bound y = 0 is a minimiser until x = 0, and the lowest before."""
    model = ds.DAEO(
        lambda t, x, y, p: -np.ones(1),
        lambda t, x, y, p: x[0] * y[0] - y[0] ** 2 + 0.25 * y[0] ** 4,
        size=(1, 1),
        box=[(0.0, 2.0)],
    )
    run = solved(model, [2.0], [], "rk4", 3.0, dt=0.1)
    # y^3 - 2 y + x = 0 and x - y + y^3/4 = 0 where both are as low: 3 y^2 = 4
    assert times_of(run, "jump") == pytest.approx([2.0 - 4.0 / np.sqrt(27.0)], abs=1e-12)
    assert run.report.branches[0].died == pytest.approx(2.0, abs=1e-8)
    last = ds.adjoint(run, model.terminal(lambda t, x, y, p: y[0])).value
    assert last == pytest.approx(0.5 * (1.0 + np.sqrt(5.0)), abs=1e-12)


LIMIT, TILT = 0.97, 0.8


def tilted(t, x, y, p):
    return (y[0] ** 2 - 1.0) ** 2 - (x[0] - p[1]) * y[0]


def drift(t, x, y, p):
    return p[0] * (1.0 + 0.2 * y)


def left_well(tilt):
    return brentq(lambda y: 4.0 * y * (y * y - 1.0) - tilt, -1.5, -0.6, xtol=1e-15)


def height(y, tilt):
    return (y * y - 1.0) ** 2 - tilt * y


@pytest.mark.parametrize(
    ("method", "steps", "error"),
    [
        ("rk6vr", {"rtol": 1e-12}, 1e-12),
        ("rk4", {"dt": 0.05}, 1e-10),
        ("esdirk4", {"dt": 0.05}, 1e-10),
        ("rk4", {"dt": 0.75}, 1e-6),  # the other optimiser comes to its bound in the same step
    ],
)
def test_a_jump_from_the_interior_to_an_optimiser_that_has_come_to_its_bound(method, steps, error):
    model = ds.DAEO(drift, tilted, size=(1, 1), parameters=2, box=[(-2.0, LIMIT)])
    tie = brentq(lambda d: height(left_well(d), d) - height(LIMIT, d), -0.1, 0.5, xtol=1e-15)
    x = TILT + tie
    jump = quad(lambda x: 1.0 / (1.0 + 0.2 * left_well(x - TILT)), 0.0, x, epsabs=1e-13)[0]
    run = solved(model, [0.0], [1.0, TILT], method, 1.5, **steps)
    assert times_of(run, "jump") == pytest.approx([jump], abs=error)
    exact = x + (1.0 + 0.2 * LIMIT) * (1.5 - jump)
    assert run.u[-1] == pytest.approx([exact, LIMIT, 2.0], abs=error)
    (change,) = run.report.changes
    there = np.interp(change.t, run.times, run.u[:, 0])
    assert there == pytest.approx(TILT + 4.0 * LIMIT * (LIMIT**2 - 1.0), abs=5e-3)
    assert (change.branch, change.active) == (1, True)
    cost = model.terminal(lambda t, x, y, p: x[0] * y[0])
    assert duality(run, cost) < 1e-12
    assert duality(run, EventTime("jump")) < 1e-12


# ---- two variables, and a program that knows nothing of ours -------------------------------------

BOX = np.array([[-0.6, 0.7], [-0.5, 0.55]])
TWO = np.array([1.3, 0.9, 0.4])


def pulled(t, x, y, p):
    forces = p[0] * np.sin(2.0 * t) + x[0], p[1] * np.cos(3.0 * t) - 0.5 * x[1]
    bowl = y[0] ** 2 + p[2] * y[0] * y[1] + 0.75 * y[1] ** 2 + 0.1 * y[0] ** 4
    return bowl - forces[0] * y[0] - forces[1] * y[1]


def moved(t, x, y, p):
    return np.array([y[1] - 0.3 * x[0], p[2] * y[0] * (1.0 + x[1])])


def program(x0, p, end):
    """Return x at the end and the times of changes, by SciPy: active sets by enumeration."""

    def gradient(t, x, y):
        force = np.array([p[0] * np.sin(2 * t) + x[0], p[1] * np.cos(3 * t) - 0.5 * x[1]])
        rows = np.array([[2.0, p[2]], [p[2], 1.5]])
        return rows @ y + np.array([0.4 * y[0] ** 3, 0.0]) - force, rows

    def optimum(t, x, side):
        y, free = np.where(side < 0, BOX[:, 0], np.where(side > 0, BOX[:, 1], 0.0)), side == 0
        for _ in range(40 if free.any() else 0):
            g, rows = gradient(t, x, y)
            rows = rows + np.diag([1.2 * y[0] ** 2, 0.0])
            step = np.linalg.solve(rows[np.ix_(free, free)], g[free])
            y[free] -= step
            if np.abs(step).max() < 1e-15:
                break
        return y

    def distances(t, x, side):
        y = optimum(t, x, side)
        g, _ = gradient(t, x, y)
        inside = np.minimum(y - BOX[:, 0], BOX[:, 1] - y)
        return np.where(side == 0, inside, -side * g)

    t, x, times = 0.0, np.array(x0, dtype=float), []
    while True:
        ahead = x + 1e-9 * moved(t, x, optimum(t, x, np.zeros(2)).clip(*BOX.T), p)
        sides = [np.array(side) for side in itertools.product((-1, 0, 1), repeat=2)]
        (side,) = [side for side in sides if (distances(t + 1e-9, ahead, side) > 0).all()]

        def rate(t, x, side=side):
            return moved(t, x, optimum(t, x, side), p)

        ends = []
        for k in range(2):

            def end_of(t, x, k=k, side=side):
                return distances(t, x, side)[k]

            end_of.terminal, end_of.direction = True, -1
            ends.append(end_of)
        piece = solve_ivp(rate, (t, end), x, "DOP853", events=ends, rtol=1e-12, atol=1e-13)
        t, x = piece.t[-1], piece.y[:, -1]
        if t == end:
            return x, np.array(times)
        times.append(t)


@pytest.fixture(scope="module")
def two():
    return ds.DAEO(
        moved,
        pulled,
        size=(2, 2),
        parameters=3,
        box=BOX,
        running=lambda t, x, y, p: np.cos(t) * x[0] * y[0] + p[1] * y[1] ** 2,
    )


@pytest.mark.slow
def test_values_times_and_gradients_are_those_of_a_program_by_scipy(two):
    x0, end = np.array([0.2, -0.1]), 2.5
    run = solved(two, x0, TWO, end=end)
    x, times = program(x0, TWO, end)
    assert len(times) >= 4
    assert times_of(run) == pytest.approx(times, abs=1e-9)
    assert run.u[-1, :2] == pytest.approx(x, abs=1e-10)
    by_x = ds.adjoint(run, two.terminal(lambda t, x, y, p: x[0] + 2.0 * x[1]))
    by_t = ds.adjoint(run, EventTime("active set", 2))
    for k in range(2):
        step = 1e-4 * np.eye(3)[k]
        (up, late), (down, early) = (program(x0, TWO + s * step, end) for s in (1.0, -1.0))
        assert by_x.p[k] == pytest.approx((up - down) @ [1.0, 2.0] / 2e-4, abs=2e-6)
        assert by_t.p[k] == pytest.approx((late - early)[2] / 2e-4, abs=2e-6)


@pytest.mark.parametrize(("method", "order"), [("rk4", 4), ("cn", 2), ("esdirk4", 4)])
def test_changes_in_two_variables_keep_the_order(two, method, order):
    x0, end = [0.2, -0.1], 2.5
    exact = solved(two, x0, TWO, end=end).u[-1, :2]
    steps = np.array([0.05, 0.025, 0.0125])
    errors = [np.abs(solved(two, x0, TWO, method, end, dt=dt).u[-1, :2] - exact) for dt in steps]
    rate = np.polyfit(np.log(steps), np.log(np.max(errors, axis=1)), 1)[0]
    assert rate > order - 0.3


def costs_of(model):
    return {
        "state": model.terminal(lambda t, x, y, p: x[0] ** 2 + x[1]),
        "optimiser": model.terminal(lambda t, x, y, p: y[0] ** 3 + y[1] * p[0] + y[1] ** 2),
        "integral": model.running,
        "time": EventTime("active set", 2),
    }


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk4"])
def test_adjoint_is_the_transpose_of_the_tangent(two, method):
    run = solved(two, [0.2, -0.1], TWO, method, 2.5, dt=0.03)
    there = AtEvent(lambda t, u, p: u[2] * u[0] ** 2 + t, "active set", 1, side="after")
    for cost in (*costs_of(two).values(), there):
        assert duality(run, cost) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "method"),
    [
        ("state", "cn"),
        ("optimiser", "rk4"),
        ("optimiser", "esdirk4"),
        ("integral", "cn"),
        ("integral", "esdirk4"),
        ("time", "rk4"),
    ],
)
def test_taylor_remainders_fall_with_orders_two_and_three(two, what, method):
    free = ds.Parameters(
        {f"p{k}": ds.Parameter(value) for k, value in enumerate(TWO)},
        initial_state=lambda p: np.array([p[0] / 6.5, -0.1]),
    )
    steps = ds.Stepping((0.0, 1.2), method, dt=0.05)  # at the end one bound is active
    functional = ds.Reduced(two, costs_of(two)[what], steps, free)
    assert min(ds.taylor(functional)) > 1.9
    assert min(ds.taylor(functional, hessian=True)) > 2.85


# ---- what is refused -----------------------------------------------------------------------------


def test_a_start_without_strict_complementarity_is_an_error(clipped):
    with pytest.raises(ComplementarityError, match="strict complementarity is lost at the start"):
        solved(clipped, [1.0], [RATE])
