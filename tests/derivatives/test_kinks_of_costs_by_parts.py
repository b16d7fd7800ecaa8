"""Kinks of running costs inside of adaptive steps: right without a declaration, by closed forms."""

import gc
import warnings
import weakref

import numpy as np
import pytest

import daeosens as ds
from daeosens.derivatives import evaluate
from daeosens.errors import KinkWarning

RATE, LEVEL, END = 0.8, 0.5, 3.0
P = ["rate", "level"]
WAY = np.array([0.3, -0.7, 0.5])


def decay(t, u, p):
    return np.array([-p[0] * u[0]])


def distance(t, u, p):
    return np.abs(u[0] - p[1])


def distance_by_if(t, u, p):
    return u[0] - p[1] if u[0] > p[1] else p[1] - u[0]


def distance_by_maximum(t, u, p):
    return np.maximum(u[0] - p[1], p[1] - u[0])


def distance_by_table(t, u, p):
    return np.interp(u[0] - p[1], [-1.0, 0.0, 2.0], [1.0, 0.0, 2.0])


DISTANCES = [distance, distance_by_if, distance_by_maximum, distance_by_table]


def truth():
    """Return value, gradient and Hessian of int |u - level| dt in (u0, rate, level) at u0 = 1."""
    r, level, t = RATE, LEVEL, END
    late = np.exp(-r * t)
    e = (1 - late) / r
    e_r = (t * late - e) / r
    e_rr = (-t * t * late - 2 * e_r) / r
    log = np.log(1 / level)
    above = 2 * (1 - level) - 2 * level * log
    gradient = [2 / r - 2 * level / r - e, -above / r**2 - e_r, t - 2 * log / r]
    hessian = [
        [2 * level / r, -2 / r**2 + 2 * level / r**2 - e_r, -2 / r],
        [-2 / r**2 + 2 * level / r**2 - e_r, 2 * above / r**3 - e_rr, 2 * log / r**2],
        [-2 / r, 2 * log / r**2, 2 / (r * level)],
    ]
    return above / r - e + level * t, np.array(gradient), np.array(hessian)


def made(make=ds.ODE, **more):
    return make(decay, size=1, parameters=P, **more)


def run_of(problem, method="rk6vr", rtol=1e-8, start=(1.0,), **more):
    stepping = ds.Stepping((0.0, END), method, rtol=rtol)
    return ds.solve(problem, start, [RATE, LEVEL], stepping, **more)


def errors(run, cost, engine="auto"):
    """Return relative errors of value, gradient and product; warnings are errors."""
    along = np.full(run.problem.size, WAY[0])  # other unknowns follow the first one
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = ds.adjoint(run, cost, engine)
        product = ds.hessian_product(run, cost, along, WAY[1:], engine)
        forward = ds.tangent(run, along, WAY[1:]).derivative(cost)
    value, by_x, hessian = truth()
    assert forward == pytest.approx(gradient.u0 @ along + gradient.p @ WAY[1:], rel=1e-12)
    assert evaluate(run, cost) == gradient.value
    ours = (
        gradient.value,
        np.r_[gradient.u0.sum(), gradient.p],
        np.r_[product.u0.sum(), product.p],
    )
    theirs = value, by_x, hessian @ WAY
    return [float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(ours, theirs, strict=True)]


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("density", DISTANCES)
def test_a_kink_inside_a_step_is_right_and_not_told(density, make):
    if make is ds.trace and density is distance_by_if:
        pytest.skip("no numbers to compare where a model is traced")
    value, gradient, product = errors(run_of(made(make)), ds.Running(density))
    assert value < 1e-8
    assert gradient < 3e-8
    assert product < 1e-7


@pytest.mark.parametrize("rtol", [1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize("method", ["rk3bs", "rk6vr", "rk8vr", "esdirk3", "esdirk4", "esdirk5"])
def test_derivatives_are_as_accurate_as_those_of_one_more_unknown(method, rtol):
    """Whose steps end at the kink; its errors are measured by the same closed form."""
    if method in ("rk3bs", "esdirk3") and rtol < 1e-8:
        pytest.skip("thousands of steps")

    def with_integral(t, u, p):
        return np.array([-p[0] * u[0], np.abs(u[0] - p[1])])

    ours = errors(run_of(made(), method, rtol), ds.Running(distance))
    run = run_of(ds.ODE(with_integral, size=2, parameters=P), method, rtol, (1.0, 0.0))
    end = ds.Terminal(lambda t, u, p: u[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gradient = ds.adjoint(run, end)
        product = ds.hessian_product(run, end, [WAY[0], 0.0], WAY[1:])
    _, by_x, hessian = truth()
    theirs = [np.r_[gradient.u0[0], gradient.p], np.r_[product.u0[0], product.p]]
    for error, other, exact in zip(ours[1:], theirs, (by_x, hessian @ WAY), strict=True):
        limit = float(np.abs(other - exact).max() / np.abs(exact).max())
        assert error < max(5.0 * limit, 10.0 * rtol)


@pytest.mark.parametrize("engine", ["vectors", "arrays"])
def test_engines_agree(engine):
    assert max(errors(run_of(made()), ds.Running(distance), engine)) < 1e-7


def test_a_traced_density_is_swept_in_c_as_before():
    problem = made(ds.trace, running=distance)
    run = run_of(problem, "esdirk5")
    assert max(errors(run, problem.running)) < 1e-7
    assert ds.adjoint(run, problem.running).engine == "compiled"


@pytest.mark.parametrize(
    ("problem", "method", "rtol"),
    [
        (
            ds.DAE(
                lambda t, u, v, p: np.array([v[0] + p[0] * u[1], u[1] - u[0]]),
                size=2,
                parameters=P,
            ),
            "cn",
            1e-6,
        ),
        (
            ds.ODE(
                lambda t, u, p: np.array([-p[0] * u[1], u[1] - u[0]]),
                size=2,
                parameters=P,
                mass=np.diag([1.0, 0.0]),
            ),
            "esdirk4",
            1e-8,
        ),
    ],
)
def test_algebraic_unknowns_and_theta_methods(problem, method, rtol):
    value, gradient, product = errors(
        run_of(problem, method, rtol, (1.0, 1.0)), ds.Running(distance)
    )
    assert max(value, gradient, product) < 10 * rtol


@pytest.mark.parametrize(
    "more",
    [
        {"checkpoint": ds.timestepping.Checkpoints(3)},
        {"checkpoint": "stages"},
        {"t_eval": [np.log(2.0) / RATE]},  # a step ends on the kink
    ],
)
def test_what_is_kept_of_a_run_does_not_matter(more):
    assert max(errors(run_of(made(), **more), ds.Running(distance))) < 1e-7


@pytest.mark.parametrize(
    "more",
    [
        {"breakpoints": [0.7]},
        {"events": [ds.Event(0.6, lambda t, u, p: u, name="clock")]},
        {"events": [ds.Event(lambda t, u, p: u[0] - 0.3, name="later")]},
    ],
)
@pytest.mark.parametrize("method", ["rk6vr", "esdirk4"])
def test_breakpoints_and_events_at_fixed_times_or_afterwards(method, more):
    assert max(errors(run_of(made(**more), method), ds.Running(distance))) < 1e-7


@pytest.mark.parametrize("at", [0.7, 0.52, 0.499])
@pytest.mark.parametrize("method", ["rk6vr", "esdirk4"])
def test_steps_that_move_with_an_event_and_those_that_end_at_it(method, at):
    """The kink is in a step after the event, or in the one before it."""
    event = ds.Event(lambda t, u, p: u[0] - at, name="passing")
    assert max(errors(run_of(made(events=[event]), method), ds.Running(distance))) < 5e-7


def test_an_event_on_the_kink_that_moves_with_it():
    event = ds.Event(lambda t, u, p: u[0] - p[1], name="passing")
    assert max(errors(run_of(made(events=[event])), ds.Running(distance))) < 1e-7


def length(x):
    """Return the way of a ball from (height, speed), with (gravity, restitution), until t = 2.6.

    Up, down to the ground, up again and some way down.
    """
    height, speed, gravity, restitution = x
    top = height + speed**2 / (2 * gravity)
    since = 2.6 - speed / gravity - (1 + restitution) * np.sqrt(2 * top / gravity)
    return speed**2 / (2 * gravity) + top * (1 + restitution**2) + gravity * since**2 / 2


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("method", ["rk6vr", "rk8vr", "esdirk4"])
def test_the_way_of_a_bouncing_ball(method, make):
    """Of int |v| dt: kinks at the tops, before a reset and after it, in steps that move."""
    bounce = ds.Event(
        lambda t, u, p: u[0],
        lambda t, u, p: np.array([u[0], -p[1] * u[1]]),
        name="bounce",
        direction=-1,
    )
    ball = make(
        lambda t, u, p: np.array([u[1], -p[0]]),
        size=2,
        parameters=["gravity", "restitution"],
        events=[bounce],
    )
    x, way = np.array([1.0, 0.4, 2.0, 0.7]), np.array([0.3, -0.5, 0.7, 0.4])
    run = ds.solve(ball, x[:2], x[2:], ds.Stepping((0.0, 2.6), method, rtol=1e-8))
    assert len(run.crossings) == 1
    cost = ds.Running(lambda t, u, p: np.abs(u[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = ds.adjoint(run, cost)
        product = ds.hessian_product(run, cost, way[:2], way[2:])
    forward = ds.tangent(run, way[:2], way[2:]).derivative(cost)

    def slopes(point):
        return np.array([length(point + 1e-30j * unit).imag / 1e-30 for unit in np.eye(4)])

    bend = [(slopes(x + h * way) - slopes(x - h * way)) / (2 * h) for h in (1e-4, 2e-4)]
    by_x, along = np.r_[gradient.u0, gradient.p], np.r_[product.u0, product.p]
    assert forward == pytest.approx(by_x @ way, rel=1e-12)
    assert gradient.value == pytest.approx(length(x), rel=1e-8)
    assert by_x == pytest.approx(slopes(x), rel=1e-7)
    assert along == pytest.approx((4 * bend[0] - bend[1]) / 3, rel=1e-6)


@pytest.mark.parametrize("level", [0.5, 1.07])
@pytest.mark.parametrize("method", ["rk8vr", "esdirk5"])
def test_one_step_goes_up_through_a_level_and_down_again(method, level):
    """A throw, which methods of high order take in few steps: int max(y - level, 0) dt."""
    throw = ds.ODE(lambda t, u, p: np.array([u[1], -p[0]]), size=2, parameters=["gravity", "level"])
    stepping = ds.Stepping((0.0, 2.0), method, rtol=1e-6)
    run = ds.solve(throw, [0.0, 2.09], [2.0, level], stepping)
    top = 2.09**2 / 4 - level
    half = np.sqrt(top)  # y - level = top - t^2 around the top
    cost = ds.Running(lambda t, u, p: np.maximum(u[0] - p[1], 0.0))
    gradient = ds.adjoint(run, cost)
    product = ds.hessian_product(run, cost, dp=[0.0, 1.0])
    assert gradient.value == pytest.approx(4 / 3 * half**3, rel=1e-5)
    assert gradient.p[1] == pytest.approx(-2 * half, rel=1e-5)
    assert product.p[1] == pytest.approx(1 / half, rel=1e-5)


def test_several_costs_and_their_sum():
    run = run_of(made())
    cost, other = ds.Running(distance), ds.Running(lambda t, u, p: np.maximum(u[0] - 0.4, 0) ** 2)
    first, second = ds.adjoint(run, [cost, other])
    both = ds.adjoint(run, cost + 2.0 * other)
    assert both.value == pytest.approx(first.value + 2.0 * second.value, rel=1e-12)
    assert both.p == pytest.approx(first.p + 2.0 * second.p, rel=1e-12)
    assert both.u0 == pytest.approx(first.u0 + 2.0 * second.u0, rel=1e-12)


def test_a_run_is_freed_with_what_is_known_of_its_costs():
    """Fits take thousands of runs: what is made by parts for one must not keep it."""
    run = run_of(made(events=[ds.Event(lambda t, u, p: u[0] - 0.499, name="passing")]))
    ds.hessian_product(run, ds.Running(distance), dp=WAY[1:])
    known = weakref.ref(run)
    del run
    gc.collect()
    assert known() is None


# -- an oscillation: kinks crossed up and down, and there and back in one step

SPAN = (0.0, 6.0)
NUMBERS = [4.0, 0.3]  # u'' = -4 u: u = cos(2 t) from (1, 0)


def swing(t, u, p):
    return np.array([u[1], -p[0] * u[0]])


def excess(power):
    return lambda t, u, p: np.maximum(u[0] - p[1], 0.0) ** power


def by_level(power):
    """Return first and second derivatives in the level of int max(cos 2t - level, 0)^power dt."""
    level = NUMBERS[1]
    half = 0.5 * np.arccos(level)
    # above the level until half, and around pi; from there to 6 once more, cut at its end by none
    times = [(0.0, half), (np.pi - half, min(np.pi + half, SPAN[1]))]
    t = np.concatenate([np.linspace(*ends, 200001) for ends in times]).reshape(2, -1)

    def integral(values):
        h = t[:, 1] - t[:, 0]
        odd, even = values[:, 1:-1:2].sum(axis=1), values[:, 2:-1:2].sum(axis=1)
        return float((h / 3 * (values[:, 0] + 4 * odd + 2 * even + values[:, -1])).sum())

    s = np.cos(2 * t) - level
    if power == 1:
        speed = 2 * np.sqrt(1 - level**2)
        return -integral(s**0), 3 / speed
    return -2 * integral(s), 2 * integral(s**0)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("method", ["rk6vr", "rk8vr", "esdirk5"])
def test_levels_crossed_up_and_down(method, power):
    """Second derivatives: of int max(s, 0) the sum of 1 / |s'|, of max(s, 0)^2 the time above."""
    problem = ds.ODE(swing, size=2, parameters=["k", "level"])
    run = ds.solve(problem, [1.0, 0.0], NUMBERS, ds.Stepping((0.0, 4.0), method, rtol=1e-9))
    cost = ds.Running(excess(power))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = ds.adjoint(run, cost)
        product = ds.hessian_product(run, cost, dp=[0.0, 1.0])
    first, second = by_level(power)
    assert gradient.p[1] == pytest.approx(first, rel=1e-7)
    assert product.p[1] == pytest.approx(second, rel=1e-7)


def test_a_level_passed_there_and_back_in_one_step():
    """At the top of cos(2 t), at t = pi, shortly above the level."""
    level = 0.997
    problem = ds.ODE(swing, size=2, parameters=["k", "level"])
    stepping = ds.Stepping((1.0, 4.5), "rk8vr", rtol=1e-8)
    start = [np.cos(2.0), -2 * np.sin(2.0)]
    run = ds.solve(problem, start, [4.0, level], stepping)
    half = 0.5 * np.arccos(level)
    assert not np.any(np.abs(run.times - np.pi) < half)
    gradient = ds.adjoint(run, ds.Running(excess(1)))
    product = ds.hessian_product(run, ds.Running(excess(1)), dp=[0.0, 1.0])
    assert gradient.p[1] == pytest.approx(-2 * half, rel=1e-5)
    assert product.p[1] == pytest.approx(2 / (2 * np.sqrt(1 - level**2)), rel=1e-5)


def test_slopes_without_a_bound():
    """Of max(s, 0)^1.5: first derivatives are right, and second ones are told."""
    problem = ds.ODE(swing, size=2, parameters=["k", "level"])
    stepping = ds.Stepping((0.0, 4.0), "rk6vr", rtol=1e-7)
    run = ds.solve(problem, [1.0, 0.0], NUMBERS, stepping)
    cost = ds.Running(excess(1.5))
    t = np.linspace(0.0, 1.0, 400001)
    # t = half sin(...) takes the roots at both ends out of the integral
    half = 0.5 * np.arccos(NUMBERS[1])
    angle = 0.5 * np.pi * t
    u = np.cos(2 * half * np.sin(angle)) - NUMBERS[1]
    density = np.sqrt(np.maximum(u, 0.0)) * half * np.cos(angle) * 0.5 * np.pi
    exact = -1.5 * 3 * float(np.sum(0.5 * (density[1:] + density[:-1])) * (t[1] - t[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ds.adjoint(run, cost).p[1] == pytest.approx(exact, rel=3e-6)
    with pytest.warns(KinkWarning, match="second derivatives have no bound"):
        ds.hessian_product(run, cost, dp=[0.0, 1.0])


def test_tracking_in_the_mean_of_distances():
    """|x - r(t)|, whose kinks are on a curve: Taylor remainders of orders two and three."""
    problem = ds.ODE(swing, size=2, parameters=["k", "rate"])
    cost = ds.Running(lambda t, u, p: np.abs(u[0] - 0.4 * np.sin(p[1] * t)))
    control = ds.Parameters(
        {"k": ds.Parameter(4.0), "rate": ds.Parameter(0.3)}, initial_state=[1.0, 0.2]
    )
    functional = ds.Reduced(problem, cost, ds.Stepping(SPAN, "rk8vr", rtol=1e-10), control)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = ds.taylor(functional, [4.0, 0.3], hessian=True)
    assert result.passed


def two_decays(density):
    """Return the gradient and a product of a cost of two equal decays."""
    problem = ds.ODE(lambda t, u, p: -p[0] * u, size=2, parameters=["rate"])
    run = ds.solve(problem, [1.0, 1.0], [RATE], ds.Stepping((0.0, END), rtol=1e-8))
    cost = ds.Running(density)
    return ds.adjoint(run, cost), ds.hessian_product(run, cost, [1.0, 0.0], [0.0])


def test_one_surface_may_be_compared_twice():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, product = two_decays(
            lambda t, u, p: np.abs(u[0] - LEVEL) + np.maximum(u[0] - LEVEL, 0.0)
        )
    assert product.u0 == pytest.approx([3 * LEVEL / RATE, 0.0], rel=1e-7)


def test_the_largest_of_several_changes_over():
    """From u_1 - 0.45 to 0.5 - u_0, where both are 0.475: the gradient jumps by (-1, -1)."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, product = two_decays(lambda t, u, p: np.max(np.abs(u - np.array([0.5, 0.45]))))
    bend = 0.475**2 / (2 * RATE * 0.475)
    assert product.u0 == pytest.approx([bend, bend], rel=1e-7)


def test_two_surfaces_at_one_place_are_told_to_products():
    with pytest.warns(KinkWarning, match="several change at once"):
        gradient, _ = two_decays(lambda t, u, p: np.abs(u[0] - LEVEL) + np.abs(u[1] - LEVEL))
    assert gradient.u0 == pytest.approx(
        [2 * (1 - LEVEL) / RATE - (1 - np.exp(-RATE * END)) / RATE] * 2, rel=1e-7
    )


def test_derivatives_that_are_supplied():
    """Of max(u - level, 0), without one in time."""
    run = run_of(made())
    cost = ds.Running(
        lambda t, u, p: np.maximum(u[0] - LEVEL, 0.0),
        gradient_u=lambda t, u, p: np.array([1.0 if u[0] > LEVEL else 0.0]),
        gradient_p="independent",
        hessian_product=lambda t, u, p, du, dp: (np.zeros(1), np.zeros(2)),
    )
    product = ds.hessian_product(run, cost, [1.0], [0.0, 0.0])
    assert product.gradient.u0 == pytest.approx([(1 - LEVEL) / RATE], rel=1e-7)
    assert product.u0 == pytest.approx([LEVEL / RATE], rel=1e-7)


def test_fixed_steps_stay_what_they_are():
    run = ds.solve(made(), [1.0], [RATE, LEVEL], ds.Stepping((0.0, END), "rk4", dt=0.5))
    cost = ds.Running(lambda t, u, p: np.abs(u[0] - p[1]))  # that no look has counted yet
    with pytest.warns(KinkWarning, match="its gradient may be off"):
        gradient = ds.adjoint(run, cost)
    assert abs(gradient.p[1] / truth()[1][2] - 1) > 1e-3


def test_minimisation_of_a_hinge():
    """The level at which a decay is above it for a given time is found in some iterations."""
    problem = made()
    cost = ds.Running(distance)
    control = ds.Parameters({"rate": RATE, "level": ds.Parameter(0.3)}, initial_state=[1.0])
    stepping = ds.Stepping((0.0, END), rtol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = ds.minimize(ds.Reduced(problem, cost, stepping, control))
    assert result.converged
    # the median of the decay over time
    assert result.x[0] == pytest.approx(np.exp(-RATE * END / 2), rel=1e-5)
