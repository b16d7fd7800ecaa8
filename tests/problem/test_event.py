"""Runs through events, and derivatives that are exact for the steps that were taken."""

from __future__ import annotations

import numpy as np
import pytest
from continuous_adjoint import continuous_adjoint
from continuous_tangent import continuous_forward
from petsc4py import PETSc

import daeosens as ds
from daeosens.costs import AtEvent, EventTime
from daeosens.derivatives import evaluate
from daeosens.errors import GrazingError
from daeosens.verify import duality

METHODS = ("rk2a", "rk4", "rk5dp", "rk8vr", "cn", "midpoint", "theta:0.6")
BALL = np.array([5.0, -0.1, 10.0, 0.8])  # height, speed, gravity, restitution


def fall(t, u, p):
    return np.array([u[1], -p[0] + 0 * u[0]])


def rebound(t, u, p):
    return np.array([u[0], -p[1] * u[1]])


BOUNCE = ds.Event(lambda t, u, p: u[0], rebound, direction=-1, name="bounce")
PROBLEM = ds.ODE(fall, 2, ["gravity", "restitution"], events=[BOUNCE])


def flight(x, t_end):
    """Return height and speed at ``t_end``, and the times of the bounces; x may be complex."""
    z, v, g, e = x
    t, times = 0.0 * z, []
    while True:
        duration = (v + np.sqrt(v * v + 2 * g * z)) / g
        if np.real(t + duration) > t_end:
            rest = t_end - t
            return z + v * rest - g * rest**2 / 2, v - g * rest, times
        t, v, z = t + duration, -(v - g * duration) * e, 0.0 * z
        times.append(np.real(t))


def exact_gradient(function):
    steps = 1e-30j * np.eye(4)
    return np.array([function(BALL + step).imag / 1e-30 for step in steps])


def run(method, t_end, dt, **keywords):
    stepping = ds.Stepping((0.0, t_end), method, dt=dt, **keywords)
    return ds.solve(PROBLEM, BALL[:2], BALL[2:], stepping)


ENERGY = ds.Terminal(lambda t, u, p: p[0] * u[0] + 0.3 * u[1] ** 2)


@pytest.mark.parametrize(("t_end", "bounces"), [(1.9, 1), (4.3, 3), (6.2, 5), (8.885, 20)])
@pytest.mark.parametrize("method", ["rk2a", "rk4", "rk8vr", "cn"])
def test_bouncing_ball_is_the_closed_form(method, t_end, bounces):
    """The methods integrate a parabola without error, so at any step size: here half a flight."""
    trajectory = run(method, t_end, 0.5)
    z, v, times = flight(BALL, t_end)
    assert len(times) == len(trajectory.crossings) == bounces
    np.testing.assert_allclose([crossing.t for crossing in trajectory.crossings], times, rtol=1e-13)
    np.testing.assert_allclose(trajectory.final.array, [z, v], rtol=1e-9, atol=1e-11)

    def energy(x):
        z, v, _ = flight(x, t_end)
        return x[2] * z + 0.3 * v**2

    expected = exact_gradient(energy)
    gradient = ds.adjoint(trajectory, ENERGY)
    ours = np.concatenate([gradient.u0, gradient.p])
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-9 * abs(expected).max())
    assert duality(trajectory, ENERGY) < 1e-12


def test_published_numbers_of_the_bouncing_ball():
    trajectory = run("rk4", 1.9, 0.4)
    crossing = trajectory.crossings[0]
    assert crossing.t == pytest.approx((-0.1 + np.sqrt(0.01 + 100)) / 10, rel=1e-15)
    matrices = ds.sensitivities(trajectory)
    assert matrices.u0[0, 0] == pytest.approx(0.83782811, abs=5e-9)
    before = ds.tangent(trajectory, dp=[1.0, 0.0]).states[crossing.step].array
    # the speed before the impact, whose time moves with g: d sqrt(v0^2 + 2 g z0)/dg
    assert before[1] == pytest.approx(-5 / np.sqrt(100.01), rel=1e-13)
    pinned = ds.Event(crossing.t, rebound, name="pinned")
    problem = ds.ODE(fall, 2, ["gravity", "restitution"], events=[pinned])
    again = ds.solve(problem, BALL[:2], BALL[2:], ds.Stepping((0.0, 1.9), "rk4", dt=0.4))
    np.testing.assert_allclose(again.final.array, trajectory.final.array, rtol=1e-13)
    assert ds.sensitivities(again).u0[0, 0] == pytest.approx(1.0, rel=1e-14)
    before = ds.tangent(again, dp=[1.0, 0.0]).states[again.crossings[0].step].array
    assert before[1] == pytest.approx(-0.99005, abs=1e-7)


# ---- a nonlinear system, several events, every kind of cost --------------------------------------


def swing(t, u, p):
    drive = p[0] * np.sin(3 * t) - 0.2 * u[1] * (1 + u[0] ** 2)
    return np.array([u[1], -p[1] * np.sin(u[0]) + drive])


def struck(t, u, p):
    return np.array([u[0] + 0.05 * p[0] * t, -0.7 * u[1] * p[2] + 0.1 * np.sin(t)])


def height(t, u, p):
    return u[0] - 0.2 * p[2] - 0.05 * t * u[1]


NONLINEAR = (
    ds.Event(height, struck, direction=1, name="struck"),
    ds.Event(0.55, lambda t, u, p: u * (1 + 0.1 * p[2]) + 0.05 * t * p[0], name="kick"),
)
SWING = ds.ODE(swing, 2, ["drive", "stiffness", "reset"], events=NONLINEAR)
RESIDUAL_SWING = ds.ODE(
    swing,
    2,
    ["drive", "stiffness", "reset"],
    mass=np.array([[1.3, 0.2], [0.1, 0.9]]),
    events=NONLINEAR,
)
P = np.array([1.1, 4.0, 0.9])
START = np.array([-0.6, 0.8])
OBJECTIVE = (
    ds.Terminal(lambda t, u, p: u[0] ** 2 * p[2] + u[1])
    + 0.6 * ds.Running(lambda t, u, p: u[0] ** 2 * p[0] + t * u[1] * p[1])
    + ds.LeastSquares([0.4, 1.3], [[0.1, 0.2], [0.3, -0.1]], 0.5)
)


@pytest.mark.parametrize(
    ("problem", "method"),
    [
        *((SWING, method) for method in METHODS),
        *((RESIDUAL_SWING, method) for method in METHODS if not method.startswith("rk")),
    ],
)
def test_taylor_and_duality_through_events_at_coarse_steps(problem, method):
    stepping = ds.Stepping((0.0, 3.0), method, dt=0.17, options=tight(method))
    values = {name: ds.Parameter(v) for name, v in zip(problem.parameter_names, P, strict=True)}
    control = ds.Parameters(values, lambda p: np.array([-0.6 * p[0] / 1.1, 0.8 * p[2] / 0.9]))
    functional = ds.Reduced(problem, OBJECTIVE, stepping, control)
    trajectory = functional.trajectory(functional.start())
    assert [crossing.name for crossing in trajectory.crossings].count("struck") >= 1
    assert duality(trajectory, OBJECTIVE) < 1e-12
    orders = ds.taylor(functional, epsilons=[2e-4 * 0.5**k for k in range(5)])
    assert orders.order > 1.9, orders


def tight(method):
    return {} if method.startswith("rk") else {"snes_rtol": 1e-14, "snes_stol": 1e-15}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk4", "rk5dp", "cn", "midpoint"])
def test_gradient_is_that_of_the_whole_program(method):
    stepping = ds.Stepping((0.0, 3.0), method, dt=0.17, options=tight(method))
    trajectory = ds.solve(SWING, START, P, stepping, OBJECTIVE.times)
    gradient = ds.adjoint(trajectory, OBJECTIVE)
    ours = np.concatenate([gradient.u0, gradient.p])
    h, point = 2e-4, np.concatenate([START, P])

    def value(x):
        return evaluate(ds.solve(SWING, x[:2], x[2:], stepping, OBJECTIVE.times), OBJECTIVE)

    for unit, slope in zip(np.eye(5), ours, strict=True):
        samples = [value(point + k * h * unit) for k in (-3, -2, -1, 1, 2, 3)]
        expected = np.dot([-1, 9, -45, 45, -9, 1], samples) / (60 * h)
        assert slope == pytest.approx(expected, rel=1e-8, abs=1e-8)
    matrices = ds.sensitivities(trajectory)
    du0, dp = np.array([0.3, -0.7]), np.array([0.2, 0.5, -0.4])
    along = ds.tangent(trajectory, du0, dp).final.array
    np.testing.assert_allclose(along, matrices.u0 @ du0 + matrices.p @ dp, rtol=1e-11)


@pytest.mark.slow
def test_adaptive_steps_converge_to_the_exact_derivative():
    functionals = []
    for tolerance in (1e-6, 1e-10):
        stepping = ds.Stepping((0.0, 3.0), "rk5dp", rtol=tolerance, atol=tolerance)
        trajectory = ds.solve(SWING, START, P, stepping, OBJECTIVE.times)
        assert duality(trajectory, OBJECTIVE) < 1e-12
        functionals.append(ds.adjoint(trajectory, OBJECTIVE).p)
    fine = ds.solve(SWING, START, P, ds.Stepping((0.0, 3.0), "rk8vr", dt=5e-3), OBJECTIVE.times)
    exact = ds.adjoint(fine, OBJECTIVE).p
    errors = [abs(functional - exact).max() / abs(exact).max() for functional in functionals]
    assert errors[0] < 1e-3
    assert errors[1] < 1e-7


# ---- modes ---------------------------------------------------------------------------------------

FIRST, SECOND = np.array([[1.0, -100.0], [10.0, 1.0]]), np.array([[1.0, 10.0], [-100.0, 1.0]])
OSCILLATOR = ds.hybrid(
    {
        "first": ds.ODE(lambda t, u, p: FIRST @ u, 2, ["steep", "flat"]),
        "second": ds.ODE(lambda t, u, p: SECOND @ u, 2, ["steep", "flat"]),
    },
    "first",
    [
        ds.Event(lambda t, u, p: u[1] - p[0] * u[0], mode="second", within=["first"], name="steep"),
        ds.Event(lambda t, u, p: u[1] - p[1] * u[0], mode="first", within=["second"], name="flat"),
    ],
)
SLOPES = np.array([2.75, 0.36])


def test_switched_oscillator_converges_to_the_published_digits():
    stepping = ds.Stepping((0.0, 0.125), "rk8vr", dt=1e-3)
    trajectory = ds.solve(OSCILLATOR, [0.0, 1.0], SLOPES, stepping)
    assert [crossing.mode for crossing in trajectory.crossings] == ["second", "first"]
    times = [crossing.t for crossing in trajectory.crossings]
    np.testing.assert_allclose(times, [0.095725421094859, 0.11477575380689], rtol=1e-12)
    final = [-0.3161266569964, -0.23814498194319]
    np.testing.assert_allclose(trajectory.final.array, final, rtol=1e-11)
    by_p = ds.sensitivities(trajectory).p
    expected = [[-0.102723187869, 0.787880910997], [0.070304141626, -0.533828556887]]
    np.testing.assert_allclose(by_p, expected, rtol=1e-10)


def test_switched_oscillator_by_coarse_steps_has_the_derivative_of_the_discrete_program():
    stepping = ds.Stepping((0.0, 0.125), "cn", dt=1 / 256, options=tight("cn"))
    by_p = ds.sensitivities(ds.solve(OSCILLATOR, [0.0, 1.0], SLOPES, stepping)).p
    np.testing.assert_allclose(by_p[:, 0], [-0.10152497, 0.07041081], rtol=0, atol=6e-9)


# ---- single features -----------------------------------------------------------------------------


def injection(method="rk8vr", p=(1.0, 0.5, 0.3)):
    """Return the run of u' = p0 - u with p2 added where u = p1."""
    event = ds.Event(
        lambda t, u, p: u[0] - p[1], lambda t, u, p: u + p[2], direction=1, name="inject"
    )
    problem = ds.ODE(lambda t, u, p: p[0] - u, 1, ["feed", "threshold", "dose"], events=[event])
    return ds.solve(problem, [0.0], p, ds.Stepping((0.0, 2.0), method, dt=0.1))


def test_injection_at_a_threshold_that_is_a_parameter():
    """u(T) = p0 - (p0 - c - p2) p0/(p0 - c) e^-T."""

    def exact(p):
        return p[0] - (p[0] - p[1] - p[2]) * p[0] / (p[0] - p[1]) * np.exp(-2)

    p = np.array([1.0, 0.5, 0.3])
    trajectory = injection()
    assert trajectory.final.array[0] == pytest.approx(exact(p), rel=1e-12)
    slopes = [exact(p + 1e-30j * unit).imag / 1e-30 for unit in np.eye(3)]
    np.testing.assert_allclose(ds.sensitivities(trajectory).p[0], slopes, rtol=1e-10, atol=1e-12)


def test_terminal_event_ends_the_run():
    event = ds.Event(lambda t, u, p: u[0] - p[1], terminal=True, name="reached")
    problem = ds.ODE(lambda t, u, p: p[0] - u, 1, ["feed", "threshold"], events=[event])
    trajectory = ds.solve(problem, [0.0], [1.0, 0.5], ds.Stepping((0.0, 5.0), "rk8vr", dt=0.1))
    assert trajectory.times[-1] == pytest.approx(np.log(2), rel=1e-12)
    assert trajectory.final.array[0] == pytest.approx(0.5, rel=1e-14)
    np.testing.assert_allclose(ds.sensitivities(trajectory).p, [[0.0, 1.0]], atol=1e-13)


@pytest.mark.parametrize(
    ("direction", "expected"), [(1, [0.5, 2.5]), (-1, [1.5]), (0, [0.5, 1.5, 2.5])]
)
def test_directions(direction, expected):
    event = ds.Event(lambda t, u, p: u[0], direction=direction)
    problem = ds.ODE(lambda t, u, p: np.array([np.pi * np.sin(np.pi * t)]), 1, events=[event])
    trajectory = ds.solve(problem, [-1.0], None, ds.Stepping((0.0, 2.9), "rk8vr", dt=0.1))
    times = [crossing.t for crossing in trajectory.crossings]
    np.testing.assert_allclose(times, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("speed", [1.0, 0.3])
def test_start_on_the_surface_is_no_event(speed):
    trajectory = ds.solve(PROBLEM, [0.0, speed], BALL[2:], ds.Stepping((0.0, 0.25), "rk4", dt=0.02))
    expected = 2 * speed / 10
    assert trajectory.crossings[0].t == pytest.approx(expected, rel=1e-12)


def test_bounces_shorter_than_a_step_are_not_missed():
    trajectory = run("rk4", 8.885, 2.0)
    assert len(trajectory.crossings) == 20
    assert min(state.array[0] for state in trajectory.states) > -1e-12


def test_event_at_the_end_happens():
    problem = ds.ODE(
        lambda t, u, p: -u, 1, events=[ds.Event(1.0, lambda t, u, p: 2 * u, name="last")]
    )
    trajectory = ds.solve(problem, [1.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    assert trajectory.final.array[0] == pytest.approx(2 * np.exp(-1), rel=1e-6)
    assert evaluate(trajectory, ds.Terminal(lambda t, u, p: u[0])) == trajectory.final.array[0]
    assert ds.sensitivities(trajectory).u0[0, 0] == pytest.approx(2 * np.exp(-1), rel=1e-6)
    assert str(trajectory).splitlines()[2].split()[:4] == ["1", "last", "1", "10"]


# ---- refusals ------------------------------------------------------------------------------------


def test_events_that_accumulate_are_an_error():
    with pytest.raises(ds.SolveError, match=r"events accumulate|goes on through the surface"):
        run("rk4", 12.0, 0.1)


def test_grazing_is_an_error():
    event = ds.Event(lambda t, u, p: u[0], name="touch")
    problem = ds.ODE(lambda t, u, p: np.array([3 * (t - 1) ** 2]), 1, events=[event])
    trajectory = ds.solve(problem, [-1.0], None, ds.Stepping((0.0, 2.0), "rk4", dt=0.3))
    with pytest.raises(GrazingError, match='event "touch" at t = 1'):
        ds.adjoint(trajectory, ds.Terminal(lambda t, u, p: u[0]))
    with pytest.raises(GrazingError, match="is grazed"):
        ds.tangent(trajectory, [1.0])


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        # the state is doubled, or gains something: not the same in both orders
        (lambda u: [u[0], u[1], 2 * u[2]], lambda u: [u[0], u[1], u[2] + 0.3], "the states differ"),
        # here it gains nothing at the meeting itself, but something nearby
        (
            lambda u: [u[0], u[1], 2 * u[2]],
            lambda u: [u[0], u[1], u[2] + 7 * (u[0] - 0.5)],
            "the derivatives differ",
        ),
        # the second one does not happen any more
        (lambda u: [u[0], u[1] + 1, u[2]], lambda u: [u[0], u[1], 2 * u[2]], "one event at a time"),
    ],
)
def test_two_events_at_one_instant_are_refused_if_their_order_matters(first, second, reason):
    events = [
        ds.Event(lambda t, u, p: u[0] - 0.5, lambda t, u, p: np.array(first(u)), name="a"),
        ds.Event(lambda t, u, p: u[1] - 0.5, lambda t, u, p: np.array(second(u)), name="b"),
    ]
    problem = ds.ODE(lambda t, u, p: np.array([-1.0, -1.0, 0.0]) + 0 * u, 3, events=events)
    with pytest.raises(ds.SolveError, match=f'events "a" and "b" at one instant(?s:.*){reason}'):
        ds.solve(problem, [1.0, 1.0, 1.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.07))


def test_what_petsc_cannot_do_is_refused():
    trajectory = run("rk4", 1.9, 0.4)
    with pytest.raises(ds.UnsupportedError, match=r'for a run with the implicit event "bounce"'):
        ds.adjoint(trajectory, ENERGY, engine="tsadjoint")
    with pytest.raises(
        ds.UnsupportedError, match='petsc_trajectory = "memory" for a problem with events'
    ):
        ds.solve(
            PROBLEM,
            BALL[:2],
            BALL[2:],
            ds.Stepping((0.0, 1.0), "rk4", dt=0.1),
            petsc_trajectory="memory",
        )


def test_continuous_sensitivities_refuse_events():
    stepping = ds.Stepping((0.0, 1.9), "rk4", dt=0.4)
    with pytest.raises(ds.UnsupportedError, match="continuous_adjoint for a problem with events"):
        continuous_adjoint(PROBLEM, BALL[:2], BALL[2:], stepping, ENERGY)
    with pytest.raises(ds.UnsupportedError, match="continuous_forward for a problem with events"):
        continuous_forward(PROBLEM, BALL[:2], BALL[2:], stepping)


def test_breakpoints_of_every_mode_are_hit():
    modes = {
        "one": ds.ODE(lambda t, u, p: 0 * u + 1.0, 1),
        "two": ds.ODE(lambda t, u, p: 0 * u + (1.0 if t < 1.33 else 2.0), 1, breakpoints=[1.33]),
    }
    problem = ds.hybrid(modes, "one", [ds.Event(0.5, mode="two")])
    trajectory = ds.solve(problem, [0.0], None, ds.Stepping((0.0, 2.0), "rk4", dt=0.1))
    assert trajectory.final.array[0] == pytest.approx(2.67, rel=1e-13)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"when": np.nan}, r'event "event": when = nan\n  expected: a function'),
        ({"when": 1.0, "direction": 2}, "direction = 2"),
        ({"when": True}, r'event "event": when = True\n  expected: a function'),
        ({"when": 1.0, "reset": 3.0}, "reset = 3.0"),
        ({"when": 1.0, "terminal": "no"}, "terminal = 'no'\n  expected: True or False"),
        ({"when": 1.0, "mode": 3}, "mode = 3\n  expected: the name of a mode"),
        ({"when": 1.0, "within": 3}, "within = 3\n  expected: a sequence of names"),
        ({"when": 1.0, "changes": {1: abs}}, r"changes = \{1: .*\n  expected: a mapping"),
        ({"when": 1.0, "name": 3}, 'event "3": name = 3\n  expected: a str'),
        ({"when": 1.0, "direction": np.zeros(2)}, "direction = array"),
    ],
)
def test_wrong_events_are_named(arguments, message):
    with pytest.raises(ds.InputError, match=message):
        ds.Event(**arguments)


@pytest.mark.parametrize("when", [1.0, np.int64(1), "clearing"])
@pytest.mark.parametrize(
    ("keyword", "value"), [("direction", 1), ("twice", "refuse"), ("when_t", "autonomous")]
)
def test_a_given_time_is_not_crossed_in_a_direction(when, keyword, value):
    """Nothing would read it: the event would happen all the same."""
    message = rf'event "kick": {keyword} = .* with the time when = .*\n.*\n  try: no {keyword}, or'
    with pytest.raises(ds.InputError, match=message):
        ds.Event(when, name="kick", **{keyword: value})


def test_derivatives_of_no_reset_are_refused():
    with pytest.raises(
        ds.InputError, match=r"reset_u = .* without reset\n.*\n  try: no reset_u, or"
    ):
        ds.Event(1.0, reset_u=lambda t, u, p: np.eye(1))


def test_event_at_the_end_of_the_span_up_to_rounding_happens_there():
    kick = ds.Event(0.1 * 3, lambda t, u, p: u + 1.0, name="kick")
    run = ds.solve(
        ds.ODE(lambda t, u, p: 0 * u, 1, events=[kick]),
        [1.0],
        None,
        ds.Stepping((0.0, 0.3), "rk4", dt=0.1),
    )
    assert run.crossings[0].t == pytest.approx(0.3, rel=1e-15)
    assert run.u[-1, 0] == 2.0


def test_time_outside_the_span_is_named():
    problem = ds.ODE(lambda t, u, p: -u, 1, events=[ds.Event(3.0, name="late")])
    with pytest.raises(ds.InputError, match=r'event "late" at t = 3 lies outside the time span'):
        ds.solve(problem, [1.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))


# ---- several ranks -------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_thermostat_on_any_number_of_ranks(method):
    """A heat equation that is heated while its middle is cold; the switches follow a parameter."""
    answers = [thermostat(comm, method) for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF)]
    assert len(answers[0][0]) >= 3
    for ours, alone in zip(*answers, strict=True):
        np.testing.assert_allclose(ours, alone, rtol=1e-9, atol=1e-12)


def thermostat(comm, method, n=12):
    """Return the times of the switches, the final mean and its gradient in (power, low)."""
    state = PETSc.Vec().createMPI(n, comm=comm)
    first, last = state.getOwnershipRange()
    laplacian = PETSc.Mat().createAIJ((state.getSizes(), state.getSizes()), nnz=3, comm=comm)
    for i in range(first, last):
        laplacian.setValue(i, i, -2.0)
        for j in (i - 1, i + 1):
            if 0 <= j < n:
                laplacian.setValue(i, j, 1.0)
    laplacian.assemble()
    laplacian.scale(8.0)

    def make(on):
        def rhs(t, u, p, out):
            laplacian.mult(u, out)
            out.shift(on * p[0])

        def jacobian(t, u, p, out):
            laplacian.copy(out)

        def jacobian_p(t, u, p, out):
            out.zeroEntries()
            out.getDenseArray()[:, 0] = on
            out.assemble()

        return ds.ODE(
            rhs,
            state=state,
            parameters=["power", "low"],
            jacobian=jacobian,
            jacobian_p=jacobian_p,
            rhs_t="autonomous",
            jacobian_matrix=laplacian.duplicate(),
        )

    def middle(u):
        own = u.getArray(readonly=True)[n // 2 - first] if first <= n // 2 < last else 0.0
        return comm.tompi4py().allreduce(float(own))

    def point(t, u, p, out):
        out.zeroEntries()
        if first <= n // 2 < last:
            out.setValue(n // 2, 1.0)
        out.assemble()

    def event(level, level_p, direction, mode, name):
        return ds.Event(
            lambda t, u, p: middle(u) - level(p),
            direction=direction,
            mode=mode,
            name=name,
            when_u=point,
            when_p=lambda t, u, p: np.array(level_p),
            when_t="autonomous",
        )

    problem = ds.hybrid(
        {"on": make(1.0), "off": make(0.0)},
        "on",
        [
            event(lambda p: p[1] + 0.3, [0.0, -1.0], 1, "off", "hot"),
            event(lambda p: p[1], [0.0, -1.0], -1, "on", "cold"),
        ],
    )
    direct = {"ksp_type": "preonly", "pc_type": "redundant"} if method == "cn" else {}
    stepping = ds.Stepping((0.0, 3.0), method, dt=0.02, options=direct)
    trajectory = ds.solve(problem, state, [4.0, 1.0], stepping)
    mean = ds.Terminal(
        lambda t, u, p: u.sum() / n, lambda t, u, p, out: out.set(1.0 / n), "independent"
    )
    gradient = ds.adjoint(trajectory, mean)
    assert duality(trajectory, mean) < 1e-12
    times = [crossing.t for crossing in trajectory.crossings]
    return times, [gradient.value], gradient.p, gradient.gather()[0]


# ---- times and states of events as outputs -------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_times_and_speeds_of_bounces_are_the_closed_form(method):
    trajectory = run(method, 6.2, 0.5)
    for number in range(5):

        def time(x, number=number):
            z, v, g, e = x
            first = (v + np.sqrt(v * v + 2 * g * z)) / g
            speed = np.sqrt(v * v + 2 * g * z)
            return first + 2 * speed / g * sum(e**k for k in range(1, number + 1))

        def speed(x, number=number):
            z, v, g, e = x
            return -np.sqrt(v * v + 2 * g * z) * e**number

        outputs = [
            EventTime("bounce", number),
            AtEvent(lambda t, u, p: u[1], "bounce", number),
            AtEvent(lambda t, u, p: u[1] * t, "bounce", number, side="after"),
        ]
        expected = [time, speed, lambda x: -x[3] * speed(x) * time(x)]
        for output, function, item in zip(
            outputs, expected, ds.adjoint(trajectory, outputs), strict=True
        ):
            assert item.value == pytest.approx(np.real(function(BALL)), rel=1e-12)
            slopes = exact_gradient(lambda x, function=function: function(x + 0j))
            ours = np.concatenate([item.u0, item.p])
            np.testing.assert_allclose(ours, slopes, rtol=1e-11, atol=1e-12)
            assert duality(trajectory, output) < 1e-12


def test_last_event_and_missing_events():
    trajectory = run("rk4", 4.3, 0.5)
    last = evaluate(trajectory, EventTime("bounce", -1))
    assert last == trajectory.crossings[-1].t
    with pytest.raises(ds.SolveError, match='event "bounce" happened 3 times, number 3 is wanted'):
        evaluate(trajectory, EventTime("bounce", 3))
    with pytest.raises(ds.InputError, match=r'no event is named "bonce"(?s:.*)"bounce"'):
        evaluate(trajectory, EventTime("bonce"))
    with pytest.raises(ds.InputError, match="side = 'left'"):
        AtEvent(lambda t, u, p: t, "bounce", side="left")


def test_cost_where_an_event_ends_the_run():
    """U = 1 - e^-t reaches c at t = -log(1 - c)."""
    event = ds.Event(lambda t, u, p: u[0] - p[0], terminal=True, name="reached")
    problem = ds.ODE(lambda t, u, p: 1 - u, 1, ["level"], events=[event])
    trajectory = ds.solve(problem, [0.0], [0.5], ds.Stepping((0.0, 5.0), "rk8vr", dt=0.1))
    cost = ds.Terminal(lambda t, u, p: t**2 * u[0])
    gradient = ds.adjoint(trajectory, cost)
    assert gradient.value == pytest.approx(0.5 * np.log(2) ** 2, rel=1e-12)
    expected = np.log(2) ** 2 + 2 * np.log(2) * 0.5 / 0.5
    assert gradient.p[0] == pytest.approx(expected, rel=1e-11)
    assert duality(trajectory, cost) < 1e-12


@pytest.mark.slow
def test_gravity_and_restitution_from_times_of_impacts():
    """An inverse problem whose data are times of events, solved by Newton's gradient method."""
    truth = np.array([9.81, 0.75])
    stepping = ds.Stepping((0.0, 6.0), "rk4", dt=0.25)
    measured = [
        crossing.t for crossing in ds.solve(PROBLEM, BALL[:2], truth, stepping).crossings[:4]
    ]

    def misfit(number):
        shifted = measured[number]
        return AtEvent(
            lambda t, u, p: 0.5 * (t - shifted) ** 2,
            "bounce",
            number,
            gradient_u="independent",
            gradient_p="independent",
        )

    cost = misfit(0) + misfit(1) + misfit(2) + misfit(3)
    start = {
        "gravity": ds.Parameter(8.0, scale="log"),
        "restitution": ds.Parameter(0.8, scale="log"),
    }
    functional = ds.Reduced(PROBLEM, cost, stepping, ds.Parameters(start, BALL[:2]))
    assert ds.taylor(functional, epsilons=[1e-4 * 0.5**k for k in range(5)]).order > 1.9
    result = ds.minimize(functional, gradient_tolerance=1e-12)
    values = functional.control.values_at(PROBLEM, result.x)
    np.testing.assert_allclose(list(values.values()), truth, rtol=1e-8)


# ---- observations at the time of an event, and the table -----------------------------------------


KICKED = ds.ODE(
    lambda t, u, p: -p[0] * u,
    1,
    ["rate"],
    events=[
        ds.Event(0.5, lambda t, u, p: 2.0 * u, name="double"),
        ds.Event(0.5, lambda t, u, p: u + 1.0, name="add"),
        ds.Event(1.0, lambda t, u, p: 3.0 * u, name="triple"),
    ],
)


def test_an_observation_at_the_time_of_an_event_needs_a_side():
    trajectory = ds.solve(
        KICKED, [1.0], [0.3], ds.Stepping((0.0, 1.0), "rk8vr", dt=0.1), [0.25, 0.5]
    )
    before = np.exp(-0.15)
    with pytest.raises(
        ds.InputError, match=r't = 0\.5 is the time of event "double" and "add"'
    ) as told:
        evaluate(trajectory, ds.LeastSquares([0.25, 0.5], [0.0, 0.0]))
    assert "side=" in str(told.value)
    for side, value in (("before", before), ("after", 2 * before + 1)):
        cost = ds.LeastSquares([0.5], [0.0], side=side)
        assert evaluate(trajectory, cost) == pytest.approx(0.5 * value**2, rel=1e-12)
        assert trajectory.at(0.5, side).array[0] == pytest.approx(value, rel=1e-12)
        slope = {"before": -0.5 * before, "after": -before}[side]
        assert ds.adjoint(trajectory, cost).p[0] == pytest.approx(value * slope, rel=1e-12)
        assert duality(trajectory, cost) < 1e-12
    end = (2 * before + 1) * np.exp(-0.15)
    assert trajectory.at(1.0).array[0] == pytest.approx(3 * end, rel=1e-12)
    assert trajectory.at(1.0, "before").array[0] == pytest.approx(end, rel=1e-12)
    with pytest.raises(ds.InputError, match="side = 'left'"):
        ds.LeastSquares([0.5], [0.0], side="left")


def test_an_observation_at_the_time_of_an_event_that_moves_needs_a_side():
    """A failed evaluation, which optimisers survive: the next time may be another one."""
    event = ds.Event(lambda t, u, p: t - 0.5, lambda t, u, p: 2.0 * u, name="half")
    problem = ds.ODE(lambda t, u, p: -u, 1, events=[event])
    trajectory = ds.solve(problem, [1.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1), [0.5])
    with pytest.raises(ds.SolveError, match=r'"half", which moves(?s:.*)side="before"') as error:
        evaluate(trajectory, ds.LeastSquares([0.5], [0.0]))
    assert "side" not in str(error.value).splitlines()[0]
    ratio = trajectory.at(0.5, "after").array[0] / trajectory.at(0.5, "before").array[0]
    assert ratio == pytest.approx(2.0, rel=1e-15)
    without = ds.solve(problem, [1.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    for side in ("before", "after"):  # no step goes back from the event to a time that is fixed
        with pytest.raises(ds.SolveError, match=f'which moves.* no step ends .*side="{side}"'):
            without.at(0.5, side)


def test_events_at_the_very_start():
    event = ds.Event(0.0, lambda t, u, p: u + p[0], name="now")
    problem = ds.ODE(lambda t, u, p: -u, 1, ["dose"], events=[event])
    trajectory = ds.solve(problem, [1.0], [0.5], ds.Stepping((0.0, 1.0), "rk8vr", dt=0.1))
    assert trajectory.final.array[0] == pytest.approx(1.5 * np.exp(-1.0), rel=1e-12)
    gradient = ds.adjoint(trajectory, ds.Terminal(lambda t, u, p: u[0]))
    assert gradient.p[0] == pytest.approx(np.exp(-1.0), rel=1e-12)
    assert gradient.u0[0] == pytest.approx(np.exp(-1.0), rel=1e-12)


def test_a_run_prints_its_events_as_a_table():
    lines = str(run("rk4", 4.3, 0.5)).splitlines()
    assert lines[1].split() == ["event", "t", "step", "state", "before", "state", "after"]
    assert [line.split()[:3] for line in lines[2:]] == [
        ["1", "bounce", "0.990049999"],
        ["2", "bounce", "2.59013"],
        ["3", "bounce", "3.870194"],
    ]
    switched = ds.solve(
        ds.hybrid(
            {name: ds.ODE(lambda t, u, p: -u, 5) for name in ("on", "off")},
            "on",
            [ds.Event(0.5, mode="off", name="switch")],
        ),
        np.ones(5),
        None,
        ds.Stepping((0.0, 1.0), "rk4", dt=0.1),
    )
    assert str(switched).splitlines()[1:] == [
        "   event   t    step  mode",
        "1  switch  0.5  5     on -> off",
    ]
