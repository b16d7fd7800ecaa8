"""Kinks: products with the Hessian have the term of the moving time, or warn that they lack it."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from fields import alone
from mpi4py import MPI

import daeosens as ds
from daeosens.derivatives.branches.branch_changes import decisions_at_ends, equations_of
from daeosens.derivatives.step_placement.kinks_inside import kinks_inside
from daeosens.errors import KinkWarning
from daeosens.problem import PiecewiseConstant
from daeosens.problem.grids import Grid
from daeosens.tracing import trace_residual

LEVEL = ds.Terminal(lambda t, u, p: u[0])
TANK = {"size": 1, "parameters": ["inflow", "outflow"]}
STEPPING = ds.Stepping((0.0, 2.0), "rk6vr", rtol=1e-10, atol=1e-13)
START, RATES = [0.2], [0.8, 1.5]
# u = u0 + 0.8 t until u = 1 at t_1, then u - 1 = 0.8/1.5 (1 - exp(-1.5 (2 - t_1)))
EXACT = -(1.5 / 0.8) * np.exp(-1.5)


def with_maximum(t, u, p):
    return p[0] - p[1] * np.maximum(u - 1.0, 0.0)


def with_abs(t, u, p):
    return p[0] - p[1] * 0.5 * (np.abs(u - 1.0) + u - 1.0)


def with_where(t, u, p):
    return p[0] - p[1] * np.where(u > 1.0, u - 1.0, 0.0)


def with_if(t, u, p):
    return np.array([p[0] - p[1] * (u[0] - 1.0 if u[0] > 1.0 else 0.0)])


def curvature(problem, stepping=STEPPING):
    return ds.hessian_product(
        ds.solve(problem, START, RATES, stepping), LEVEL, [1.0], [0.0, 0.0]
    ).u0[0]


def with_sign(t, u, p):
    return p[0] - p[1] * (u - 1.0) * 0.5 * (np.sign(u - 1.0) + 1.0)


def with_heaviside(t, u, p):
    return p[0] - p[1] * (u - 1.0) * np.heaviside(u - 1.0, 0.5)


def with_abs_of_a_number(t, u, p):
    return np.array([p[0] - p[1] * 0.5 * (abs(u[0] - 1.0) + u[0] - 1.0)])


IN_NUMPY = [with_if, with_sign, with_heaviside, with_abs_of_a_number]


FIXED = ds.Stepping((0.0, 2.0), "rk6vr", dt=0.13)


@pytest.mark.slow
@pytest.mark.parametrize("rhs", [with_maximum, with_abs, with_where, *IN_NUMPY])
def test_a_kink_inside_a_step_is_told_with_its_time(rhs):
    with pytest.warns(KinkWarning, match=r"near t = 1\.0008(.|\n)*try: an event there"):
        lacking = curvature(ds.ODE(rhs, **TANK), FIXED)
    assert abs(lacking - EXACT) > 0.1


@pytest.mark.parametrize("rhs", [with_maximum, with_abs, with_where])
def test_a_kink_of_a_traced_model_is_told_too(rhs):
    with pytest.warns(KinkWarning, match=r"near t = 1\.0008"):
        curvature(ds.trace(rhs, **TANK), FIXED)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("make", "rhs"),
    [(make, rhs) for make in (ds.ODE, ds.trace) for rhs in (with_maximum, with_abs, with_where)]
    + [(ds.ODE, rhs) for rhs in IN_NUMPY],
)
def test_the_moving_time_of_a_kink_that_steps_end_at_is_brought_in(make, rhs):
    assert curvature(make(rhs, **TANK)) == pytest.approx(EXACT, rel=1e-8)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_an_event_on_the_kink_brings_the_term_in(make):
    overflow = ds.Event(lambda t, u, p: u[0] - 1.0, name="overflow")
    fine = replace(STEPPING, rtol=1e-11, atol=1e-14)
    bent = curvature(make(with_maximum, **TANK, events=[overflow]), fine)
    assert bent == pytest.approx(EXACT, rel=1e-8)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("method", ["rk4", "esdirk4"])
def test_taylor_orders_through_an_event_on_the_kink(make, method):
    overflow = ds.Event(lambda t, u, p: u[0] - 1.0, name="overflow")
    tank = make(with_maximum, **TANK, events=[overflow])
    values = {"inflow": ds.Parameter(0.8), "outflow": ds.Parameter(1.5)}
    control = ds.Parameters(values, initial_state=lambda p: np.array([0.25 * p[0]]))
    functional = ds.Reduced(tank, LEVEL, ds.Stepping((0.0, 2.0), method, dt=0.13), control)
    assert 1.9 < min(ds.taylor(functional)) < 2.1
    assert 2.9 < min(ds.taylor(functional, hessian=True)) < 3.1


def test_equations_that_jump_are_told_too():
    relay = ds.ODE(lambda t, u, p: np.where(u > 1.0, 0.5 * p[0], p[0]), **TANK)
    with pytest.warns(KinkWarning, match="jump near t = 1,"):
        curvature(relay)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rhs",
    [
        lambda t, u, p: p[0] - p[1] * np.maximum(u - 1.0, 0.0) ** 2,  # f_u is continuous
        lambda t, u, p: p[0] - p[1] * np.maximum(u + 1.0, 0.0),  # never crossed
        lambda t, u, p: p[0] - p[1] * u * (1.0 if t < 0.7 else 1.1),  # of the time alone
        lambda t, u, p: np.interp(t, [0.0, 0.7, 3.0], [p[0], 2.0, p[0]]) - p[1] * u,  # fixed knots
    ],
)
def test_what_does_not_matter_is_not_told(rhs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curvature(ds.ODE(rhs, **TANK))


@pytest.mark.slow
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_knots_of_a_table_are_told_too(make):
    def table(t, u, p):
        return np.array([p[0] * np.interp(u[0], [0.0, 1.0, 2.0], [1.0, 3.0, 2.0]) + 0.0 * p[1]])

    with pytest.warns(KinkWarning, match=r"near t = 0\.4748"):
        curvature(make(table, **TANK), FIXED)


def with_lag(t, u, p):
    return np.where(t > p[0], 1.0, 0.0) - p[1] * u


def with_threshold(t, u, p):
    return np.where(u > 0.5, p[0], p[1])


SWEEPS = [
    lambda run: ds.adjoint(run, LEVEL),
    lambda run: ds.tangent(run, [1.0], [0.0, 0.0]),
    ds.sensitivities,
]


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("rhs", [with_lag, with_threshold])
@pytest.mark.parametrize("sweep", SWEEPS)
def test_gradients_of_equations_that_jump_are_told(sweep, rhs, make):
    """A start time as a parameter has the gradient 0 without an event: the exact one is not 0."""
    run = ds.solve(make(rhs, **TANK), START, RATES, STEPPING)
    with pytest.warns(KinkWarning, match="the equations jump near t = "):
        sweep(run)


def snowfall(t, u, p):
    """Return the rate of a snow pack under a season: it snows below a temperature."""
    warmth = 5.0 - 12.0 * np.cos(2.0 * np.pi * (t - 20.0) / 365.0)
    return np.where(warmth < p[0], 3.0, 0.0) - p[1] * u


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-8, 1e-10, 1e-12])
def test_jumps_are_told_however_near_to_them_steps_end(rtol, make):
    """Adaptive steps meet the jump in the limit: as short as 1e-12 of the run, or ending on it."""
    stepping = ds.Stepping((40.0, 200.0), "rk6vr", rtol=rtol)
    run = ds.solve(make(snowfall, 1, ["threshold", "loss"]), [0.0], [0.5, 0.1], stepping)
    with pytest.warns(KinkWarning, match=r"the equations jump near t = 88.9198"):
        assert ds.adjoint(run, LEVEL).p[0] == 0.0


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("steps", [{"rtol": 1e-8}, {"method": "rk4", "dt": 0.01}], ids=str)
def test_a_breakpoint_that_stays_where_parameters_move_the_jump_is_told(make, steps):
    """Steps end there and stay: the gradient in the time was 0 without a word."""

    def dose(t, u, p):
        return np.stack([-u[0] + np.where(t < p[0], 1.0, 3.0)])

    def final(off):  # closed form of u(2)
        return 3.0 + (1.0 - 0.8 * math.exp(-off) - 3.0) * math.exp(off - 2.0)

    def modes():
        sides = {
            "before": make(lambda t, u, p: 1.0 - u, 1, ["off"]),
            "after": make(lambda t, u, p: 3.0 - u, 1, ["off"]),
        }
        return ds.hybrid(sides, "before", [ds.Event("off", mode="after")])

    stepping = ds.Stepping((0.0, 2.0), **steps)
    run = ds.solve(make(dose, 1, ["off"], breakpoints=[0.5]), [0.2], [0.5], stepping)
    with pytest.warns(KinkWarning, match=r"jump at t = 0\.5(.|\n)*Event\(\"off\", mode"):
        assert ds.adjoint(run, LEVEL).p[0] == 0.0
    assert run.u[-1][0] == pytest.approx(final(0.5), rel=1e-7)
    exact = (final(0.5 + 1e-5) - final(0.5 - 1e-5)) / 2e-5
    right = ds.solve(modes(), [0.2], [0.5], stepping)
    assert ds.adjoint(right, LEVEL).p[0] == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_a_breakpoint_that_stays_where_parameters_move_a_kink_is_told_to_products(make):
    """The gradient is right: -1 + exp(off - 2); the product is not, and would be exp(off - 2)."""

    def ramp(t, u, p):
        return np.stack([-u[0] + np.maximum(t - p[0], 0.0)])

    equations = make(ramp, 1, ["off"], breakpoints=[0.5])
    run = ds.solve(equations, [0.2], [0.5], ds.Stepping((0.0, 2.0), rtol=1e-8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ds.adjoint(run, LEVEL).p[0] == pytest.approx(math.exp(-1.5) - 1.0, rel=1e-7)
    with pytest.warns(KinkWarning, match=r"kink at t = 0\.5(.|\n)*products with the Hessian"):
        ds.hessian_product(run, LEVEL, [0.0], [1.0])


@pytest.mark.parametrize(
    "rate",
    [
        lambda t, u, p: np.stack([-p[0] * u[0] + np.interp(t, [0.0, 0.5, 2.0], [0.0, 1.0, 0.0])]),
        lambda t, u, p: np.stack([-p[0] * u[0] + np.where(t < 0.5, 1.0, 3.0)]),
    ],
    ids=["table", "switch"],
)
def test_breakpoints_at_times_that_no_parameter_moves_are_right(rate):
    run = ds.solve(
        ds.ODE(rate, 1, ["decay"], breakpoints=[0.5]),
        [0.2],
        [0.5],
        ds.Stepping((0.0, 2.0), rtol=1e-8),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.adjoint(run, LEVEL)
        ds.hessian_product(run, LEVEL, [0.0], [1.0])


@pytest.mark.filterwarnings("error")
def test_a_jump_at_a_breakpoint_is_no_moving_one():
    def supply(t, u, p):
        return np.where(t < 0.1 * 3 + p[0] * 0.0, 3.0, 0.0) - p[1] * u

    model = ds.ODE(supply, 1, ["none", "loss"], breakpoints=[0.3])
    run = ds.solve(model, [0.0], [0.0, 0.1], ds.Stepping((0.0, 1.0), "rk6vr", rtol=1e-8))
    assert ds.adjoint(run, LEVEL).p[0] == 0.0


@pytest.mark.parametrize("sweep", SWEEPS)
def test_gradients_of_equations_with_a_kink_are_right_and_not_told(sweep):
    run = ds.solve(ds.ODE(with_maximum, **TANK), START, RATES, STEPPING)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep(run)


TABLE, EDGES = np.array([0.0, 0.0, 1.5]), np.array([0.0, 1.0, 3.0])


def by_searchsorted(t, u, p):
    k = np.searchsorted(EDGES, u, side="right")
    return p[0] - p[1] * TABLE[k] / 1.5 * (u - EDGES[k - 1])


def by_int(t, u, p):
    return np.array([p[0] - p[1] * int(u[0]) * (u[0] - 1.0)])


def by_floor(t, u, p):
    return p[0] - p[1] * np.minimum(np.floor(u), 1.0) * (u - 1.0)


def by_math_floor(t, u, p):
    return np.array([p[0] - p[1] * (math.floor(u[0]) * (u[0] - 1.0))])


def by_quotient(t, u, p):
    return p[0] - p[1] * (u // 1.0) * (u - 1.0)


def by_argmax(t, u, p):
    pair = np.array([1.0, u[0]])
    return np.array([p[0] - p[1] * (pair[np.argmax(pair)] - 1.0)])


def by_sorting(t, u, p):
    return np.array([p[0] - p[1] * (np.sort(np.array([1.0, u[0]]))[1] - 1.0)])


def by_hypot(t, u, p):
    return p[0] - p[1] * 0.5 * (np.hypot(u - 1.0, 0.0) + u - 1.0)


def by_complex_size(t, u, p):
    return p[0] - p[1] * 0.5 * (np.abs((u - 1.0) * 1j) + u - 1.0)


def by_norm(t, u, p):
    return p[0] - p[1] * 0.5 * (np.linalg.norm(u - 1.0) + u - 1.0)


DECIDED = [by_searchsorted, by_int, by_floor, by_math_floor, by_quotient, by_argmax, by_sorting]
AT_ZERO = [by_hypot, by_complex_size, by_norm]


@pytest.mark.slow
@pytest.mark.parametrize("rhs", [*DECIDED, *AT_ZERO])
def test_whole_numbers_and_sizes_decide_as_well(rhs):
    with pytest.warns(KinkWarning, match=r"(kink|jump) near t = 1\.0008"):
        assert abs(curvature(ds.ODE(rhs, **TANK), FIXED) - EXACT) > 0.1


def test_rounding_of_a_traced_model_decides():
    with pytest.warns(KinkWarning, match=r"(kink|jump) near t = 1\.0008"):
        curvature(ds.trace(by_floor, **TANK), FIXED)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.filterwarnings("error")
def test_slopes_without_a_bounded_slope_are_resolved(make):
    """A ball falls onto a Hertz spring: f is smooth but for its second derivative."""

    def ball(t, u, p):
        spring = p[0] * np.maximum(-u[0], 0.0) ** 1.5
        return np.array([u[1], -9.81 + spring * (1.0 - p[1] * u[1])])

    run = ds.solve(
        make(ball, 2, ["k", "c"]),
        [0.5, 0.0],
        [2e4, 0.3],
        ds.Stepping((0.0, 0.5), "rk6vr", rtol=1e-6),
    )
    product = ds.hessian_product(run, LEVEL, [1.0, 0.0])
    # short steps across are far shorter than those at other kinks: with these it is 15 % off
    assert product.u0[0] == pytest.approx(-1.7312, rel=3e-3)
    # steps end beside the kink, at distances that grow: without these it is 13 % off
    assert ds.adjoint(run, LEVEL).u0[0] == pytest.approx(-0.0253845403, rel=5e-4)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize(("power", "told"), [(0.5, True), (1.5, False), (3.0, False)])
def test_odd_powers_have_equal_slopes_on_both_sides_and_are_told(make, power, told):
    """Two tanks whose levels cross: sign(d) |d|^a of what flows from one to the other."""

    def tanks(t, u, p):
        d = u[0] - u[1]
        between = p[0] * np.sign(d) * np.abs(d) ** power
        return np.array([p[1] - between, between - 0.4 * u[1]])

    run = ds.solve(make(tanks, 2, 2), [1.0, 2.0], [0.5, 0.6], ds.Stepping((0.0, 5.0), rtol=1e-6))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        product = ds.hessian_product(run, LEVEL, dp=[1.0, 0.0])
    messages = [str(item.message) for item in caught if item.category is KinkWarning]
    assert any("no bounded second derivative near t" in message for message in messages) == told
    if power == 1.5:  # the product is right; differences of runs with rtol 1e-13
        assert product.p[0] == pytest.approx(2.5500865, rel=2e-5)
    assert bool(messages) == told


def by_runs(t, u, p):
    """Decay by max(u, 0.6) above 0.3 and by 0.1 below."""
    return -p[0] * np.where(u > 0.3, np.maximum(u, 0.6), 0.1)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_a_later_run_that_meets_a_jump_is_told_after_one_that_met_a_kink(make):
    problem = make(by_runs, 1, ["k"])
    run = ds.solve(problem, [1.0], [0.8], ds.Stepping((0.0, 1.0), "rk6vr", rtol=1e-8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.hessian_product(run, LEVEL, dp=[1.0])
        ds.adjoint(run, LEVEL)
    run = ds.solve(problem, [1.0], [0.8], ds.Stepping((0.0, 3.0), "rk6vr", rtol=1e-8))
    with pytest.warns(KinkWarning, match="the equations jump near t = 1.26"):
        ds.adjoint(run, LEVEL)


def residual(t, u, udot, p):
    return udot - with_maximum(t, u, p)


@pytest.mark.slow
@pytest.mark.parametrize("make", [ds.DAE, trace_residual])
def test_residuals_are_looked_at_too(make):
    run = ds.solve(make(residual, **TANK), START, RATES, ds.Stepping((0.0, 2.0), "cn", dt=0.013))
    with pytest.warns(KinkWarning, match=r"(kink|jump) near t = (1|1\.0000|0\.9999)"):
        ds.hessian_product(run, LEVEL, [1.0], [0.0, 0.0])


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_modes_are_looked_at_each_by_its_own_equations(make):
    """A kink in the first mode; in the second one there is none, and other branches."""
    other = make(lambda t, u, p: p[0] - p[1] * np.where(u > 9.0, 1.0, 0.2), **TANK)
    first = {"a": make(with_maximum, **TANK), "b": other}
    for stepping, told_of in ((FIXED, True), (STEPPING, False)):
        for switch, passed in ((0.5, False), (1.5, True)):
            problem = ds.hybrid(
                first, start="a", events=[ds.Event(switch, mode="b", name="switch")]
            )
            run = ds.solve(problem, START, RATES, stepping)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                product = ds.hessian_product(run, LEVEL, [1.0], [0.0, 0.0])
            assert any(item.category is KinkWarning for item in told) == (passed and told_of)
            if stepping is STEPPING:  # as EXACT, until the switch
                expected = -(1.5 / 0.8) * np.exp(-1.5 * (switch - 1.0)) if passed else 0.0
                assert product.u0[0] == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_a_mode_without_branches_follows_one_with_several(make):
    """An upper limit, which is never met, beside the kink; from 1.5 on the level rises steadily."""
    modes = {
        "drained": make(lambda t, u, p: p[0] - p[1] * np.clip(u - 1.0, 0.0, 9.0), **TANK),
        "closed": make(lambda t, u, p: p[0] + 0.0 * u, **TANK),
    }
    close = ds.Event(1.5, mode="closed", name="close")
    run = ds.solve(ds.hybrid(modes, start="drained", events=[close]), START, RATES, STEPPING)
    gradient = ds.adjoint(run, LEVEL)
    product = ds.hessian_product(run, LEVEL, [1.0], [0.0, 0.0])
    assert gradient.u0[0] == pytest.approx(np.exp(-0.75), rel=1e-9)
    assert product.u0[0] == pytest.approx(-(1.5 / 0.8) * np.exp(-0.75), rel=1e-8)


GRID = Grid(((0.0, 1.0),), (8,), "neumann", comm=MPI.COMM_SELF)
MEAN = ds.Terminal(
    lambda t, u, p: u.sum() / 8,
    lambda t, u, p, out: out.set(1 / 8),
    "independent",
    hessian_product=lambda t, u, p, du, dp, out: (out.set(0.0), 0 * dp)[1],
)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk4", "cn"])
@pytest.mark.parametrize(
    ("law", "jumps"),
    [
        (lambda t, u, p: -p.k * np.maximum(u.center, 0.5), False),
        (lambda t, u, p: -p.k * np.where(u.center > 0.5, u.center, 0.25), True),
        (lambda t, u, p: -p.k * (0.25 + 0.75 * np.floor(2.0 * u.center)), True),
        (lambda t, u, p: -p.k * u.center**2, None),
        (lambda t, u, p: -np.maximum(t - p.k, 0.0) * u.center, False),
        (lambda t, u, p: -p.k * np.maximum(t - 0.5, 0.0) * u.center, None),
        (lambda t, u, p: -p.k * np.where(t > 0.5, 0.2, 0.1) * u.center, None),
    ],
    ids=["kink", "jump", "floor", "smooth", "kink in time", "at a fixed time", "jump at one"],
)
def test_points_of_a_grid_are_looked_at(law, jumps, method):
    start, along = GRID.create_vec(), GRID.create_vec()
    start.set(0.9)
    along.set(1.0)
    run = ds.solve(
        ds.trace_stencil(law, GRID, ["k"]), start, [0.8], ds.Stepping((0, 2.0), method, dt=0.013)
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ds.adjoint(run, MEAN)
    words = [str(item.message) for item in told if item.category is KinkWarning]
    assert any("the equations jump near t = 0." in word for word in words) == bool(jumps)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ds.hessian_product(run, MEAN, along)
    words = [str(item.message) for item in told if item.category is KinkWarning]
    found = any(" kink near t = 0." in word or " jump near t = 0." in word for word in words)
    assert found == (jumps is not None)


def told_of(law, grid):
    """Return what is told of a gradient and of a product with the Hessian."""
    start, along = grid.create_vec(), grid.create_vec()
    grid.writable(start)[..., 0] = 0.5 + 0.45 * grid.coordinates()[0]
    along.set(1.0)
    run = ds.solve(
        ds.trace_stencil(law, grid, ["k"]), start, [0.8], ds.Stepping((0, 1.0), "rk4", dt=0.03)
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ds.adjoint(run, MEAN)
        ds.hessian_product(run, MEAN, along)
    return [str(item.message) for item in told if item.category is KinkWarning]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("law", "count"),
    [
        (lambda t, u, p: 0.01 * u.laplacian() - p.k * np.maximum(u.center, 0.52), 1),
        (lambda t, u, p: 0.01 * u.laplacian() - p.k * np.where(u.center > 0.52, 1.0, 0.25), 2),
        (lambda t, u, p: 0.01 * u.laplacian() - p.k * u.center**2, 0),
    ],
    ids=["kink", "jump", "smooth"],
)
def test_points_of_all_ranks_are_looked_at(law, count):
    """The first point changes sides first, and the same is told by all."""
    grid = Grid(((0.0, 1.0),), (12,), "neumann")
    told = told_of(law, grid)
    assert told == told_of(law, alone(grid))
    assert len(told) == count


@pytest.mark.slow
def test_later_runs_are_looked_at_ever_more_rarely():
    problem, looks = ds.ODE(with_threshold, **TANK), []
    for k in range(1, 20):
        run = ds.solve(problem, START, RATES, STEPPING)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            ds.adjoint(run, LEVEL)
        looks += [k] * bool(told)
    assert looks == [1, 2, 4, 8, 16]


def weather(t, u, p):
    """Fill a reservoir, by a daily table that is read by the number of the day."""
    return np.array([1.0 + int(t) ** 2 * p[1] - 0.1 * u[0]])


def refilled(**options):
    refill = ds.Event(lambda t, u, p: u[0] - p[0], reset=lambda t, u, p: 0.0 * u, direction=1)
    return ds.ODE(weather, 1, ["level", "rain"], events=[refill], **options)


def level_at_the_end(level, rain):
    """Return u(5.5) in closed form, day by day."""
    t, u = 0.0, 0.0
    while t < 5.5:
        end, rest = min(np.floor(t + 1e-12) + 1.0, 5.5), 10.0 * (1.0 + int(t + 1e-12) ** 2 * rain)
        full = t + 10.0 * np.log((rest - u) / (rest - level))
        if full < end:
            t, u = full, 0.0
        else:
            t, u = end, rest - (rest - u) * np.exp(-0.1 * (end - t))
    return u


@pytest.mark.slow
@pytest.mark.parametrize(
    "derive", [ds.adjoint, lambda *run: ds.hessian_product(*run, dp=[1.0, 0.0])]
)
def test_steps_that_follow_an_event_past_a_jump_in_time_are_told(derive):
    stepping, values = ds.Stepping((0.0, 5.5), "rk6vr", rtol=1e-8), [2.5, 0.3]
    with pytest.warns(KinkWarning, match=r"jump near t = \d inside a step that follows an event"):
        derive(ds.solve(refilled(), [0.0], values, stepping), LEVEL)


def test_with_breakpoints_steps_that_follow_an_event_are_right():
    stepping, values = ds.Stepping((0.0, 5.5), "rk6vr", rtol=1e-8), np.array([2.5, 0.3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = ds.solve(refilled(breakpoints=[1.0, 2.0, 3.0, 4.0, 5.0]), [0.0], values, stepping)
        gradient = ds.adjoint(run, LEVEL)
    moves = 1e-5 * np.eye(2)
    exact = [
        (level_at_the_end(*(values + move)) - level_at_the_end(*(values - move))) / 2e-5
        for move in moves
    ]
    assert abs(gradient.value - level_at_the_end(*values)) < 1e-7
    np.testing.assert_allclose(gradient.p, exact, rtol=1e-6)


def test_jumps_in_time_are_nothing_to_steps_that_stay():
    problem = ds.ODE(weather, 1, ["level", "rain"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = ds.solve(problem, [0.0], [2.5, 0.3], ds.Stepping((0.0, 5.5), "rk6vr", rtol=1e-8))
        ds.adjoint(run, LEVEL)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_controls_that_jump_beside_a_time_that_moves(make):
    """Of the package's own controls too, where their breakpoints are not given."""
    control = PiecewiseConstant([0.0, 2.0, 4.0, 6.0])
    dose = ds.Event("dose", lambda t, u, p: u + 1.0)

    def treated(t, u, p):
        return -p[0] * u + control(t, p[2:])

    names, stepping = (
        ["rate", "dose", *control.names("c")],
        ds.Stepping((0.0, 6.0), "rk6vr", rtol=1e-8),
    )
    p = [0.4, 1.3, 1.0, 0.0, 1.0]
    for breakpoints in ((), control.breakpoints):
        problem = make(treated, 1, names, events=[dose], breakpoints=breakpoints)
        slope = ds.adjoint(ds.solve(problem, [1.0], p, stepping), LEVEL).p[1]
        assert slope == pytest.approx(0.4 * np.exp(-0.4 * 4.7), rel=1e-7)


def test_jumps_at_given_times_that_turn_a_limit_on_are_not_told():
    """A house whose target jumps at 7: the heater's limit changes sides with the time alone."""

    def house(t, u, p):
        target = 21.0 if 7.0 <= t % 24.0 < 22.0 else 17.0
        return np.array([min(max(p[0] * (target - u[0]), 0.0), p[1]) - 0.1 * (u[0] - 5.0)])

    def later(t, u, p):
        target = 21.0 if t >= p[2] else 17.0
        return np.array([min(max(p[0] * (target - u[0]), 0.0), p[1]) - 0.1 * (u[0] - 5.0)])

    last = ds.Terminal(lambda t, u, p: u[0])
    stepping = ds.Stepping((0.0, 30.0), "rk6vr", rtol=1e-6)
    gradients = []
    for breakpoints in ((), (7.0, 22.0)):
        problem = ds.ODE(house, 1, 2, breakpoints=breakpoints)
        gradients.append(ds.adjoint(ds.solve(problem, [19.0], [2.0, 4.0], stepping), last).p)
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-3, atol=1e-6)
    run = ds.solve(ds.ODE(later, 1, 3), [19.0], [2.0, 4.0, 7.0], stepping)
    with pytest.warns(KinkWarning, match="jump near t = 7"):
        ds.adjoint(run, last)


def two_springs(t, u, p):
    """Push from both sides of a gap, which may have no width."""
    return np.stack([2.0 - 0.5 * t * (np.maximum(u[0] - p[0], 0) - np.maximum(p[1] - u[0], 0))])


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize(("method", "rtol"), [("rk8vr", 1e-12), ("rk6vr", 1e-8), ("esdirk5", 1e-8)])
def test_kinks_that_cancel_at_these_parameters_alone_are_told(make, method, rtol):
    """Without a gap f is a straight line in u, whose second derivative in the gap is not zero."""
    problem = make(two_springs, 1, ["upper", "lower"])
    run = ds.solve(problem, [0.0], [1.0, 1.0], ds.Stepping((0.0, 3.0), method, rtol=rtol))
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2)
    with pytest.warns(KinkWarning, match="change sides at once near t = 0.490016"):
        ds.hessian_product(run, cost, dp=[1.0, 0.3])


@pytest.mark.filterwarnings("error::daeosens.errors.KinkWarning")
def test_two_branches_of_one_surface_without_a_kink_are_none():
    problem = ds.ODE(
        lambda t, u, p: np.stack([2.0 - np.maximum(u[0] - p[0], 0) - np.minimum(u[0] - p[0], 0)]),
        1,
        ["level"],
    )
    run = ds.solve(problem, [0.0], [1.0], ds.Stepping((0.0, 3.0), "rk6vr", rtol=1e-8))
    product = ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[0] ** 2), dp=[1.0])
    assert product.p[0] == pytest.approx(2.0 * (1.0 - np.exp(-3.0)) ** 2, rel=1e-6)


def spin(t, u, p, passes=None):
    """Return the rates of a moon's angle on an ellipse, by Newton's method for Kepler's equation.

    It goes on to a limit of its own, or makes so many passes.
    """
    e, oblate, drag = p
    anomaly, change, count = t + e * np.sin(t), 1.0, 0
    while count < passes if passes else abs(change) > 1e-13:
        change = (anomaly - e * np.sin(anomaly) - t) / (1.0 - e * np.cos(anomaly))
        anomaly, count = anomaly - change, count + 1
    r = 1.0 - e * np.cos(anomaly)
    place = 2.0 * np.arctan(np.sqrt((1.0 + e) / (1.0 - e)) * np.tan(anomaly / 2.0))
    late = drag / r**6 * (u[1] - np.sqrt(1.0 - e * e) / r**2)
    return np.array([u[1], -1.5 * oblate / r**3 * np.sin(2.0 * (u[0] - place)) - late])


@pytest.mark.filterwarnings("error::daeosens.errors.KinkWarning")
def test_how_often_a_loop_goes_on_to_its_limit_leaves_no_kink():
    """Limits of several passes are met at once; what rounds no worse on either side is no kink."""
    products = []
    for rates in (spin, lambda t, u, p: spin(t, u, p, passes=7)):
        stepping = ds.Stepping((0.0, 6.0), "rk6vr", rtol=1e-9)
        run = ds.solve(ds.ODE(rates, 2, 3), [0.1, 1.52], [0.2056, 0.02, 0.002], stepping)
        cost = ds.Terminal(lambda t, u, p: u[0] + u[1])
        product = ds.hessian_product(run, cost, [0.1, 0.2], [0.2, 0.01, 0.003])
        products.append(np.concatenate([product.u0, product.p]))
    np.testing.assert_allclose(*products, rtol=1e-5)


def test_what_rounding_leaves_of_derivatives_beside_the_last_pass_of_a_loop_is_no_kink():
    """Differences of derivatives 1e-5 of a step apart are rounding: 16 steps more ended at some."""
    stepping = ds.Stepping((0.0, 40.0), "rk6vr", rtol=1e-8)
    run = ds.solve(ds.ODE(spin, 2, 3), [0.1, 1.52], [0.2056, 0.02, 0.002], stepping)
    for least in (1e-8, 1e-9, 1e-10):
        assert kinks_inside(run, least) == []


@pytest.mark.parametrize("style", [ds.ODE, ds.trace])
@pytest.mark.parametrize("moves", [False, True], ids=["events", "breakpoints"])
def test_what_decides_is_found_for_all_steps_at_once(style, moves):
    """Through events and breakpoints too, at both of their sides."""
    if moves:
        model = style(
            lambda t, u, p: p[0] * np.where(t < 0.5, 1.0, -1.0) * u + p[1] * np.abs(u - 0.7),
            1,
            2,
            breakpoints=[0.5, 0.6],
        )
        run = ds.solve(model, [1.0], [0.7, 0.8], ds.Stepping((0.0, 1.0), "rk4", dt=0.02))
    else:
        bounce = ds.Event(
            lambda t, u, p: u[0], lambda t, u, p: np.array([0.0 * u[0], -p[1] * u[1]])
        )
        model = style(
            lambda t, u, p: np.array([u[1], -p[0] - np.abs(u[1]) - np.maximum(u[0] - 0.5, 0.0)]),
            2,
            2,
            events=[bounce],
        )
        run = ds.solve(model, [1.0, 0.0], [9.81, 0.8], ds.Stepping((0.0, 2.0), "rk4", dt=0.02))
        assert len(run.crossings) > 1
    equations = equations_of(run)
    assert equations is not None
    assert equations.along is not None
    ends, largest = decisions_at_ends(run, equations)
    singly, same = decisions_at_ends(run, replace(equations, along=None))
    assert np.array_equal(largest, same)
    assert len(ends) == run.n_steps
    for pair, other in zip(ends, singly, strict=True):
        for decided, single in zip(pair, other, strict=True):
            assert np.array_equal(decided.values, single.values)
