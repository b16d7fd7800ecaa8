"""Data at events as sums of squares: residuals, Jacobians and Gauss-Newton move with the times."""

from __future__ import annotations

import numpy as np
import pytest
from petsc4py import PETSc

import daeosens as ds
from daeosens.costs import EventData
from daeosens.derivatives import evaluate, gauss_newton_product
from daeosens.inverse import covariance
from daeosens.verify import duality

NAMES = ("gravity", "drag", "restitution", "floor")


def fall(t, u, p):
    return np.array([u[1], -p[0] - p[1] * u[1] ** 3 + 0.3 * np.sin(3 * t)])


def rebound(t, u, p):
    return np.array([u[0], -p[2] * (1 + 0.1 * np.sin(t)) * u[1]])


BOUNCE = ds.Event(lambda t, u, p: u[0] - p[3] * np.sin(2 * t), rebound, direction=-1, name="bounce")
KICK = ds.Event(1.1, lambda t, u, p: u * [1.0, 0.9], name="kick")
BALL = ds.ODE(fall, 2, NAMES, events=[BOUNCE, KICK])
TRUTH = np.array([9.0, 0.05, 0.8, 0.02])
START = np.array([0.5, -0.3])
TIMES = [0.42, 1.08, 1.6]
IMPACTS = EventData("bounce", TIMES, [0.02, 0.03, 0.05])
SPEEDS = EventData(
    "bounce",
    [[-3.0, 0.4], [2.2, 1.5]],
    [0.3, 0.4],
    lambda t, u, p: np.array([u[1] * t, np.sin(t) * u[1] ** 2 * p[2]]),
    numbers=[1, -1],
    side="after",
)
MISFIT = (
    0.7 * IMPACTS
    + SPEEDS
    + ds.LeastSquares([0.3, 0.8], [[0.5, -2.0], [0.4, 0.5]], 0.2)
    + ds.Prior([9.81], 0.5, names=["gravity"])
)


def stepping(method):
    if method == "adaptive":  # where the times of all later steps move with the event
        return ds.Stepping((0.0, 1.7), "rk5dp", rtol=1e-6, atol=1e-6)
    tight = {} if method.startswith("rk") else {"snes_rtol": 1e-14, "snes_stol": 1e-15}
    return ds.Stepping((0.0, 1.7), method, dt=0.13, options=tight)


def reduced(method, objective=MISFIT):
    """Return the misfit as a function of height and all four parameters."""
    problem = ds.ODE(fall, 2, (*NAMES, "height"), events=[BOUNCE, KICK])
    values = {name: ds.Parameter(v) for name, v in zip(NAMES, TRUTH, strict=True)}
    values["height"] = ds.Parameter(START[0], scale="log")
    control = ds.Parameters(values, lambda p: np.array([p[4], START[1]]))
    return ds.Reduced(problem, objective, stepping(method), control)


def test_value_is_that_of_the_crossings():
    run = ds.solve(BALL, START, TRUTH, stepping("rk4"))
    bounces = [crossing for crossing in run.crossings if crossing.name == "bounce"]
    assert len(bounces) >= 3
    r = (np.array([bounce.t for bounce in bounces[:3]]) - TIMES) / [0.02, 0.03, 0.05]
    assert evaluate(run, IMPACTS) == pytest.approx(0.5 * r @ r, rel=1e-13)
    value = 0.0
    for crossing, row in zip((bounces[1], bounces[-1]), SPEEDS.data, strict=True):
        t, v = crossing.t, crossing.after.array[1]
        seen = np.array([v * t, np.sin(t) * v**2 * TRUTH[2]])
        value += 0.5 * (((seen - row) / [0.3, 0.4]) ** 2).sum()
    assert evaluate(run, SPEEDS) == pytest.approx(value, rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk4", "rk5dp", "cn", "midpoint"])
def test_gradient_and_jacobian_are_those_of_the_whole_program(method):
    functional = reduced(method)
    x = functional.start().array.copy()
    rows = functional.residual(x).array
    jacobian = functional.residual_jacobian(x).getDenseArray().copy()
    assert functional.residual_sweep == "tangent"
    assert functional.value(x) == pytest.approx(0.5 * rows @ rows, rel=1e-14)
    np.testing.assert_allclose(functional.gradient(x).array, jacobian.T @ rows, rtol=1e-10)
    h = 1e-4 * np.maximum(abs(x), 0.1)
    for k, unit in enumerate(np.eye(5)):
        samples = [functional.residual(x + j * h[k] * unit).array for j in (-3, -2, -1, 1, 2, 3)]
        slope = np.array([-1, 9, -45, 45, -9, 1]) @ samples / (60 * h[k])
        np.testing.assert_allclose(jacobian[:, k], slope, rtol=1e-7, atol=1e-8 * abs(slope).max())
    assert ds.taylor(functional, epsilons=[1e-4 * 0.5**k for k in range(5)]).order > 1.9
    assert duality(functional.trajectory(x), MISFIT) < 1e-12


@pytest.mark.parametrize("method", ["rk4", "rk5dp", "cn", "midpoint", "adaptive"])
def test_gauss_newton_is_the_normal_matrix_of_tangents_and_of_adjoints(method, rng):
    functional = reduced(method)
    x = functional.start().array.copy()
    by_tangents = functional.residual_jacobian(x).getDenseArray().copy()
    functional.sweep_for = lambda rows, columns: "adjoint"
    by_adjoints = functional.residual_jacobian(x).getDenseArray().copy()
    np.testing.assert_allclose(by_adjoints, by_tangents, rtol=1e-11, atol=1e-11)
    dx = rng.standard_normal(5)
    product = functional.gauss_newton_product(x, dx).array
    np.testing.assert_allclose(product, by_tangents.T @ (by_tangents @ dx), rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk4", "rk5dp", "cn", "midpoint", "adaptive"])
def test_hessian_is_that_of_the_whole_program(method):
    """Adaptive steps: the derivative holds their sizes fixed, so differences do not tell."""
    functional = reduced(method)
    x = functional.start().array.copy()
    hessian = functional.hessian(x)
    size = abs(hessian).max()
    column = functional.hessian_product(x, [0.0, 1.0, 0.0, 0.0, 0.0]).array
    np.testing.assert_allclose(column, hessian[:, 1], rtol=0, atol=1e-11 * size)
    normal = functional.residual_jacobian(x).getDenseArray()
    assert abs(hessian - normal.T @ normal).max() > 1e-2 * size  # residuals bend
    if method == "adaptive":
        return
    h = 3e-4 * np.maximum(abs(x), 0.1)
    for k, unit in enumerate(np.eye(5)):
        samples = [functional.gradient(x + j * h[k] * unit).array for j in (-3, -2, -1, 1, 2, 3)]
        slope = np.array([-1, 9, -45, 45, -9, 1]) @ samples / (60 * h[k])
        np.testing.assert_allclose(hessian[:, k], slope, rtol=0, atol=1e-7 * abs(slope).max())
    assert ds.taylor(functional, hessian=True, epsilons=[1e-3 * 0.5**k for k in range(5)]).passed


def test_hessian_with_derivatives_that_are_given():
    """The same from the derivatives of the observation, not from the callback itself."""

    def observe(t, u, p):
        return np.array([u[1] * t**2 * p[2], u[0] + np.sin(t) * p[1]])

    derivatives = {
        "observe_t": lambda t, u, p: np.array([2 * t * u[1] * p[2], np.cos(t) * p[1]]),
        "observe_u": lambda t, u, p: np.array([[0.0, t**2 * p[2]], [1.0, 0.0]]),
        "observe_p": lambda t, u, p: np.array(
            [[0.0, 0.0, u[1] * t**2, 0.0], [0.0, np.sin(t), 0.0, 0.0]]
        ),
    }
    run = ds.solve(BALL, START, TRUTH, stepping("rk4"))
    data = [[0.3, 0.2], [1.0, -0.4]]
    products = [
        ds.hessian_product(
            run, EventData("bounce", data, 0.3, observe, **keywords), dp=[1, 2, -1, 3]
        )
        for keywords in ({}, derivatives)
    ]
    np.testing.assert_allclose(products[0].p, products[1].p, rtol=1e-11)
    np.testing.assert_allclose(products[0].u0, products[1].u0, rtol=1e-11)


def test_hessian_of_an_observation_that_sees_the_time_in_one_of_its_entries():
    """The same as with the time in the other entry too, where it counts for nothing."""
    run = ds.solve(BALL, START, TRUTH, stepping("rk4"))
    products = [
        ds.hessian_product(
            run,
            EventData("bounce", [[0.3, 0.2], [1.0, -0.4]], 0.3, observe),
            du0=[0.2, -1.0],
            dp=[1, 2, -1, 3],
        )
        for observe in (
            lambda t, u, p: np.array([u[1] * t**2 * p[2], u[0] + p[1]]),
            lambda t, u, p: np.array([u[1] * t**2 * p[2], u[0] + p[1] + 0.0 * t]),
        )
    ]
    np.testing.assert_allclose(products[0].p, products[1].p, rtol=1e-13)
    np.testing.assert_allclose(products[0].u0, products[1].u0, rtol=1e-13)


def test_rows_keep_their_order_when_an_impact_passes_an_observation():
    first = ds.solve(BALL, START, TRUTH, stepping("rk4")).crossings[0].t
    watched = ds.Stepping((0.0, 1.7), "rk4", dt=0.13)
    objective = IMPACTS + ds.LeastSquares([first], [[0.0, 0.0]])
    rows = []
    for height in (0.499, 0.501):
        values = dict(zip(NAMES, TRUTH, strict=True)) | {"drag": ds.Parameter(TRUTH[1])}
        control = ds.Parameters(values, [height, START[1]])
        functional = ds.Reduced(BALL, objective, watched, control)
        rows.append(functional.residual(functional.start()).array)
    early, late = (
        ds.solve(BALL, [height, START[1]], TRUTH, watched, [first]).crossings[0].t < first
        for height in (0.499, 0.501)
    )
    assert early
    assert not late
    assert len(rows[0]) == 5
    np.testing.assert_allclose(rows[0][2:], rows[1][2:], atol=0.1)


# ---- the inverse problem -------------------------------------------------------------------------


def parabola(t, u, p):
    return np.array([u[1], -p[0] + 0 * u[0]])


PLAIN = ds.ODE(
    parabola,
    2,
    ["gravity", "restitution"],
    events=[
        ds.Event(
            lambda t, u, p: u[0], lambda t, u, p: np.array([u[0], -p[1] * u[1]]), -1, name="hit"
        )
    ],
)


def impacts(p, count=5):
    """Return the times of the impacts of a ball that falls from height 1; p may be complex."""
    first = np.sqrt(2 / p[0])
    return np.array(
        [first * (1 + 2 * sum(p[1] ** j for j in range(1, k + 1))) for k in range(count)]
    )


def plain(data, sigma, start, t_end=3.5, **keywords):
    names = ("gravity", "restitution")
    values = {name: ds.Parameter(v, **keywords) for name, v in zip(names, start, strict=True)}
    control = ds.Parameters(values, [1.0, 0.0])
    run = ds.Stepping((0.0, t_end), "rk4", dt=0.4)
    return ds.Reduced(PLAIN, EventData("hit", data, sigma), run, control)


def noisy(sigma):
    return impacts((9.81, 0.85)) + sigma * np.array([0.4, -1.2, 0.3, 0.9, -0.5])


@pytest.mark.slow
def test_gravity_and_restitution_are_those_of_the_closed_form():
    """The fit by ours against Gauss-Newton steps on the closed form, and its covariance."""
    data, sigma = noisy(5e-3), 5e-3
    p = np.array([9.81, 0.85])
    for _ in range(30):
        slopes = np.array([impacts(p + 1e-30j * unit).imag / 1e-30 for unit in np.eye(2)]).T
        p = p - np.linalg.lstsq(slopes, impacts(p) - data, rcond=None)[0]
    functional = plain(data, sigma, [9.0, 0.8])
    optimum = ds.minimize(functional, method="brgn", gradient_tolerance=1e-9)
    assert optimum.converged
    np.testing.assert_allclose(optimum.x.array, p, rtol=1e-10)
    known = covariance(functional, optimum.x, hessian="gauss_newton")
    expected = sigma**2 * np.linalg.inv(slopes.T @ slopes)
    np.testing.assert_allclose(known.matrix, expected, rtol=1e-4)


@pytest.mark.slow
def test_trial_point_with_too_few_impacts_is_a_failed_solve_that_is_survived():
    """The run ends 0.05 after the fifth impact: with a little less gravity there are only four."""
    functional = plain(noisy(0.0), 1e-3, [14.0, 0.85], t_end=2.95)
    with pytest.raises(ds.SolveError, match='event "hit" happened 4 times, number 4 is wanted'):
        functional.value([9.0, 0.85])
    optimum = ds.minimize(functional, method="brgn", gradient_tolerance=1e-6)
    assert optimum.failed_solves > 0
    np.testing.assert_allclose(optimum.x.array, [9.81, 0.85], rtol=1e-6)


def test_start_with_too_few_impacts_is_named():
    functional = plain(noisy(0.0), 1e-3, [9.0, 0.85], t_end=2.95)
    with pytest.raises(ds.SolveError, match='at the start: event "hit" happened 4 times'):
        ds.minimize(functional, method="brgn")


# ---- what is checked -----------------------------------------------------------------------------


def test_wrong_derivative_in_time_is_named():
    def observe(t, u, p):
        return np.array([u[1] * t**2])

    right = EventData("bounce", [[1.0]], 1.0, observe, observe_t=lambda t, u, p: 2 * t * u[[1]])
    wrong = EventData("bounce", [[1.0]], 1.0, observe, observe_t=lambda t, u, p: t * u[[1]])
    point = (BALL, START, TRUTH, 0.3)
    assert ds.check(*point, objective=right).passed
    assert ds.check(*point, objective=EventData("bounce", [[1.0]], 1.0, observe)).passed
    assert ds.check(*point, objective=wrong).wrong == ("observe_t",)


@pytest.mark.parametrize(
    ("describe", "message"),
    [
        (lambda: EventData("bounce", [1.0], side="left"), "side = 'left'"),
        (lambda: EventData("bounce", [[[1.0]]]), r"data has shape \(1, 1, 1\)"),
        (lambda: EventData("bounce", []), r"data has shape \(0, 1\)"),
        (lambda: EventData("bounce", [np.nan]), "data"),
        (lambda: EventData("bounce", [[1.0, 2.0]]), "times of events with 2 columns"),
        (lambda: EventData("bounce", [1.0], 0.0), "sigma = 0"),
        (lambda: EventData("bounce", [1.0], [1.0, 2.0]), r"sigma has shape \(2,\)"),
        (
            lambda: EventData("bounce", [1.0], numbers=[0, 1]),
            r"numbers = \[0, 1\](.|\n)*1 integers",
        ),
        (lambda: EventData("bounce", [1.0], numbers=[0.5]), r"numbers = \[0\.5\]"),
        (
            lambda: EventData("bounce", [1.0, 0.5]),
            r'times of event "bounce" decrease: data\[0\] = 1 for number 0, data\[1\] = 0\.5 for',
        ),
        (
            lambda: EventData("bounce", [2.0, 3.0, 1.0], numbers=[-1, 0, -2][::-1]),
            r"data\[0\] = 2 for number -2, data\[2\] = 1 for number -1",
        ),
        (lambda: EventData("bonce", [1.0]).lower(BALL, 1.0), r'no event is named "bonce"'),
    ],
)
def test_wrong_descriptions_are_named(describe, message):
    with pytest.raises(ds.InputError, match=message):
        describe()


def test_times_of_events_go_with_their_numbers():
    """In any order of the rows; from the end and from the start they cannot be compared."""
    assert EventData("bounce", [3.0, 1.0, 2.0], numbers=[2, 0, 1]).numbers == (2, 0, 1)
    assert EventData("bounce", [3.0, 1.0], numbers=[0, -1]).numbers == (0, -1)
    assert EventData("bounce", [1.0, 1.0]).numbers == (0, 1)
    assert EventData("bounce", [[2.0], [1.0]], observe=lambda t, u, p: u[:1]).numbers == (0, 1)


# ---- several ranks -------------------------------------------------------------------------------


def heated(comm):
    """Return a row of cells, heated while the first is cold; both thresholds are parameters."""
    state = PETSc.Vec().createMPI(7, comm=comm)
    first, last = state.getOwnershipRange()
    matrix = PETSc.Mat().createAIJ((state.getSizes(), state.getSizes()), nnz=3, comm=comm)
    for i in range(first, last):
        matrix.setValue(i, i, -2.0)
        for j in (i - 1, i + 1):
            if 0 <= j < 7:
                matrix.setValue(i, j, 1.0)
    matrix.assemble()

    def make(on):
        def rhs(t, u, p, out):
            matrix.mult(u, out)
            out.shift(on * p[0])

        def jacobian_p(t, u, p, out):
            out.zeroEntries()
            out.getDenseArray()[:, 0] = on
            out.assemble()

        return ds.ODE(
            rhs,
            state=state,
            parameters=["power", "low", "high"],
            jacobian=lambda t, u, p, out: matrix.copy(out),
            jacobian_p=jacobian_p,
            rhs_t="autonomous",
            jacobian_matrix=matrix.duplicate(),
            hessian_product=bend,
        )

    def bend(*arguments):  # all is linear
        arguments[-1].zeroEntries()
        return np.zeros(3)

    def cell(u):
        own = u.getArray(readonly=True)[0] if first == 0 and last > 0 else 0.0
        return comm.tompi4py().allreduce(float(own))

    def cell_u(t, u, p, out):
        out.zeroEntries()
        if first == 0 and last > 0:
            out.setValue(0, 1.0)
        out.assemble()

    def event(k, direction, mode, name):
        return ds.Event(
            lambda t, u, p: cell(u) - p[k],
            direction=direction,
            mode=mode,
            name=name,
            when_u=cell_u,
            when_p=lambda t, u, p: -np.eye(3)[k],
            when_t="autonomous",
            when_hessian=bend,
        )

    events = [event(2, 1, "off", "hot"), event(1, -1, "on", "cold")]
    return ds.hybrid({"on": make(1.0), "off": make(0.0)}, "on", events), state


@pytest.mark.mpi
def test_times_of_switches_on_any_number_of_ranks():
    answers = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        problem, state = heated(comm)
        run = ds.solve(problem, state, [3.0, 0.4, 0.7], ds.Stepping((0.0, 3.0), "rk4", dt=0.1))
        misfit = EventData("hot", [0.3, 0.9], 0.1) + EventData("cold", [0.6], 0.2)
        gradient = ds.adjoint(run, misfit)
        assert duality(run, misfit) < 1e-12
        answers.append([[gradient.value], gradient.p, gradient.gather()[0]])
        for product in (gauss_newton_product, ds.hessian_product):
            multiplied = product(run, misfit, dp=[0.3, -0.2, 0.5])
            answers[-1] += [multiplied.p, multiplied.gather()[0]]
        with pytest.raises(ds.UnsupportedError, match="states observed at events of a PETSc-style"):
            EventData("hot", [1.0], 1.0, lambda t, u, p: u).lower(problem, 3.0)
    for ours, alone in zip(*answers, strict=True):
        np.testing.assert_allclose(ours, alone, rtol=1e-10, atol=1e-12)
