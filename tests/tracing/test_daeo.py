"""DAEOs against closed forms: the jump, its time, and derivatives of all of it, by every method."""

import numpy as np
import pytest
from daeo_runs import three_wells, times_of
from scipy.interpolate import CubicSpline

import daeosens as ds
from daeosens.costs import AtEvent, EventTime
from daeosens.verify import duality

P = [2.0, 1.0, 0.5, np.pi / 2.0]
FINAL = 0.23174952587773142
JUMP = np.log(2.0) / 3.0

# by 34-digit arithmetic: derivatives in (x0, p0, p1, p2, p3), first and second
BY_FINAL = [0.0772498419592438, -0.196052519109231, 0.0768092700449987, 0.308999367836975]
BY_FINAL += [-0.00428888974070804]
BY_JUMP = [1 / 3, -0.0770163533955495, -0.0361089433370573, -2 / 3, 0.00305479879191327]
SECOND_FINAL = [
    [-0.05149989463951, -0.01385094506355, -0.02122514789421, 0.1029997892791, 0.004518508174847],
    [-0.01385094506355, 0.1420560144053, -0.06240927515875, -0.3644031480914, -0.0006761117463364],
    [-0.02122514789421, -0.06240927515875, 0.006364057317734, 0.1896667800048, -0.0009467468137099],
    [0.1029997892791, -0.3644031480914, 0.1896667800048, -0.2059995785582, -0.02576614653702],
    [
        0.004518508174847,
        -0.0006761117463364,
        -9.467468137099e-4,
        -0.02576614653702,
        -5.267840883911e-3,
    ],
]
SECOND_JUMP = [
    [-1 / 3, -1 / 9, -0.04813286309553, 0.0, 0.009450865568561],
    [-1 / 9, 0.05134423559704, 0.02407262889139, 2 / 9, -0.002036532527942],
    [-0.04813286309553, 0.02407262889139, 0.02525519311806, 0.1006503729336, -0.0005741626027289],
    [0.0, 2 / 9, 0.1006503729336, 4 / 3, -0.01331902551490],
    [
        0.009450865568561,
        -0.002036532527942,
        -5.741626027289e-4,
        -0.0133190255149,
        3.784081285217e-3,
    ],
]


def decay(t, x, y, p):
    return -(p.p0 + y) * x


def two_wells(t, x, y, p):
    return (p.p1 - y[0] ** 2) ** 2 - (x[0] - p.p2) * np.sin(p.p3 * y[0])


@pytest.fixture(scope="module")
def simple():
    return ds.DAEO(decay, two_wells, size=(1, 1), parameters=4, box=[(-6.0, 6.0)])


def run_of(model, method, x0=1.0, p=P, end=1.0, **steps):
    return ds.solve(model, [x0], p, ds.Stepping((0.0, end), method, **steps))


def row(gradient):
    """Return the derivatives in x0 and p; y is found at the start, and nothing depends on it."""
    assert gradient.u0[1] == 0.0
    return np.array([gradient.u0[0], *gradient.p])


@pytest.mark.parametrize("method", ["rk6vr", "rk8vr", "esdirk5"])
def test_jump_and_derivatives_are_those_of_the_closed_form(simple, method):
    run = run_of(simple, method, rtol=1e-12)
    assert [crossing.name for crossing in run.crossings] == ["start", "jump"]
    assert run.crossings[1].t == pytest.approx(JUMP, abs=1e-12)
    assert run.u[-1, 0] == pytest.approx(FINAL, abs=1e-12)
    assert run.u[0, 1] == 0.0  # the middle of the box: before the search
    np.testing.assert_allclose(run.crossings[1].before.array, [0.5, 1.0, 0.0], atol=1e-11)
    np.testing.assert_allclose(run.crossings[1].after.array, [0.5, -1.0, 0.0], atol=1e-11)
    final = simple.terminal(lambda t, x, y, p: x[0])
    units = [([row[0], 0.0, 0.0], row[1:]) for row in np.eye(5)]
    for cost, first, second in (
        (final, BY_FINAL, SECOND_FINAL),
        (EventTime("jump"), BY_JUMP, SECOND_JUMP),
    ):
        np.testing.assert_allclose(row(ds.adjoint(run, cost)), first, atol=2e-11)
        products = [row(item) for item in ds.hessian_product(run, cost, *zip(*units, strict=True))]
        np.testing.assert_allclose(products, second, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("method", "order"), [("beuler", 1), ("cn", 2), ("rk2a", 2), ("rk4", 4), ("esdirk4", 4)]
)
def test_jump_is_passed_with_the_order_of_the_method(simple, method, order):
    steps = np.array([0.1, 0.05, 0.025, 0.0125])
    errors = [abs(run_of(simple, method, dt=dt).u[-1, 0] - FINAL) for dt in steps]
    rate = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert rate > order - 0.15


@pytest.mark.parametrize(
    ("method", "errors"),
    [("rk4", [1.95e-4, 1.52e-8, 1.47e-12]), ("cn", [2.94e-3, 3.37e-5, 3.43e-7])],
)
def test_errors_are_those_of_the_table_in_the_docs(simple, method, errors):
    for dt, error in zip([0.25, 0.025, 0.0025], errors, strict=True):
        run = run_of(simple, method, dt=dt)
        assert abs(run.u[-1, 0] - FINAL) == pytest.approx(error, rel=0.01, abs=2e-14)
        assert abs(run.crossings[1].t - JUMP) < 5.0 * error


def test_without_location_the_order_is_one():
    """The optimiser in closed form, without an event, as a step of fixed size meets it."""
    searched = ds.ODE(lambda t, u, p: -(2.0 + (1.0 if u[0] > 0.5 else -1.0)) * u, size=1)
    steps = 1.0 / np.array([10, 20, 40, 80, 160, 320])
    errors = [abs(run_of(searched, "rk4", p=[], dt=dt).u[-1, 0] - FINAL) for dt in steps]
    assert errors[-1] > 1e-5
    assert 0.6 < np.polyfit(np.log(steps), np.log(errors), 1)[0] < 1.6


@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk4", "beuler"])
def test_adjoint_is_the_transpose_of_the_tangent(simple, method):
    run = run_of(simple, method, dt=0.03)
    final = simple.terminal(lambda t, x, y, p: x[0] * np.exp(y[0]) + p.p1 * t)
    there = AtEvent(lambda t, u, p: u[1] * u[0] ** 2 + t, "jump", side="after")
    for cost in (final, EventTime("jump"), there):
        assert duality(run, cost) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk4"])
@pytest.mark.parametrize("what", ["state", "optimiser", "integral", "time"])
def test_taylor_remainders_fall_with_orders_two_and_three(what, method):
    model = ds.DAEO(
        decay,
        two_wells,
        size=(1, 1),
        parameters=4,
        box=[(-6.0, 6.0)],
        running=lambda t, x, y, p: np.cos(t) * x[0] * y[0] + p.p0 * y[0] ** 2,
    )
    cost = {
        "state": model.terminal(lambda t, x, y, p: x[0] ** 2),
        "optimiser": model.terminal(lambda t, x, y, p: y[0] ** 3),
        "integral": model.running,
        "time": EventTime("jump"),
    }[what]
    free = ds.Parameters(
        {f"p{k}": ds.Parameter(value) for k, value in enumerate([2.0, 1.1, 0.45, 1.5])},
        initial_state=lambda p: np.array([p[0] / 2.0]),
    )
    functional = ds.Reduced(model, cost, ds.Stepping((0.0, 1.0), method, dt=0.05), free)
    assert min(ds.taylor(functional)) > 1.9
    assert min(ds.taylor(functional, hessian=True)) > 2.85


def test_raw_optimiser_in_the_state_has_the_derivatives_of_the_discrete_program(simple):
    """What a user's own callbacks see of u: y as it is carried along."""
    cost = ds.Terminal(lambda t, u, p: u[1])
    run = run_of(simple, "rk6vr", p=[2.0, 1.2, 0.5, 1.4], rtol=1e-12)
    exact = simple.terminal(lambda t, x, y, p: y[0])
    np.testing.assert_allclose(
        row(ds.adjoint(run, cost)), row(ds.adjoint(run, exact)), rtol=0, atol=1e-10
    )
    assert duality(run, cost) < 1e-12


@pytest.mark.slow
def test_parameters_are_found_again_from_data_on_both_sides_of_the_jump(simple):
    times = np.linspace(0.0, 1.0, 21)
    exact = ds.solve(simple, [1.0], P, ds.Stepping((0.0, 1.0), "rk4", dt=0.01), t_eval=times[1:-1])
    noise = 1e-4 * np.random.default_rng(1).standard_normal(times.size)
    data = {"t": times, "x": exact.at(times)[:, 0] + noise}
    model = ds.DAEO(
        decay, two_wells, size=(["x"], ["y"]), parameters=["p0", "p1", "p2", "p3"], box=(-6.0, 6.0)
    )
    free = ds.Parameters(
        {"p0": ds.Parameter(1.6), "p1": 1.0, "p2": ds.Parameter(0.6), "p3": P[3]},
        initial_state=[1.0],
    )
    fitted = ds.fit(model, data, free, ds.Stepping((0.0, 1.0), "rk4", dt=0.05), columns=["x"])
    assert fitted.estimate["p0"] == pytest.approx(2.0, abs=1e-3)
    assert fitted.estimate["p2"] == pytest.approx(0.5, abs=1e-3)
    for name, true in (("p0", 2.0), ("p2", 0.5)):
        assert abs(fitted.estimate[name] - true) < 4.0 * fitted.covariance.error(name)


# ---- several jumps, optimisers that emerge -------------------------------------------------------


def grow(t, x, y, p):
    return p.c * y


def waves(t, x, y, p):
    return (x[0] - y[0]) ** 2 + p.a * np.sin(5.0 * y[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "steps", "error"),
    [
        ("rk6vr", {"rtol": 1e-12}, 1e-12),
        ("esdirk5", {"rtol": 1e-11}, 1e-10),
        ("rk4", {"dt": 0.02}, 1e-11),
        ("rk4", {"dt": 0.5}, 1e-6),  # a jump to an optimiser that has emerged in the same step
    ],
)
def test_optimisers_that_emerge_are_jumped_to(method, steps, error):
    model = ds.DAEO(grow, waves, size=(1, 1), parameters=["c", "a"], box=(-20.0, 20.0))
    run = run_of(model, method, p=[1.0, 1.0], end=1.5, **steps)
    jumps = times_of(run, "jump")
    assert jumps == pytest.approx([0.589768358332684, 1.16128314279983], abs=max(error, 2e-14))
    assert run.u[-1, 0] == pytest.approx(3.99678984652447, abs=error)
    # at the switches x = pi/2 + 2 pi k/5
    places = [crossing.before.array[0] for crossing in run.crossings[1:]]
    assert places == pytest.approx([np.pi / 2, 0.9 * np.pi], abs=1e-12)
    report = run.report
    assert [(jump.before, jump.after) for jump in report.jumps] == [(2, 3), (3, 4)]
    assert [branch.born for branch in report.branches[:5]] == [0.0] * 5
    # the folds of h_y, by the method's own x: where 5 cos(5y) = 2 (x - y), 25 sin(5y) = 2
    exact = [0.26293, 1.01830, 1.43343]
    assert [branch.died for branch in report.branches[:3]] == pytest.approx(exact, abs=2e-3)
    cost = model.terminal(lambda t, x, y, p: x[0] * y[0])
    assert duality(run, cost) < 1e-12


@pytest.mark.slow
def test_optimisers_live_from_fold_to_fold():
    """h_y = 0 and h_yy = 0: sin(5y) = 2/25, and x is what makes y stationary."""
    model = ds.DAEO(grow, waves, size=(1, 1), parameters=["c", "a"], box=(-20.0, 20.0))
    run = run_of(model, "rk4", p=[1.0, 1.0], end=2.0, dt=0.01)
    times, places = np.unique(run.times, return_index=True)
    path = CubicSpline(times, run.u[places, 0])
    last = run.u[-1, 0]
    angle = np.arcsin(2 / 25)
    births = np.array([(np.pi - angle + 2 * np.pi * k) / 5 for k in range(-9, 20)])
    deaths = np.array([(angle + 2 * np.pi * k) / 5 for k in range(-9, 20)])
    # minimisers lie between the folds at which they are born and die, from low y to high
    lives = [
        (y - 2.5 * abs(np.cos(5 * y)), z + 2.5 * abs(np.cos(5 * z)))
        for y, z in zip(births, deaths[1:], strict=False)
    ]
    expected = [(born, died) for born, died in lives if died > 1.0 and born < last]
    assert len(run.report) == len(expected) == 9
    for branch, (born, died) in zip(run.report.branches, expected, strict=True):
        if born > 1.0:
            assert path(branch.born) == pytest.approx(born, abs=2e-5)
        else:
            assert branch.born == 0.0
        if died < last:
            assert path(branch.died) == pytest.approx(died, abs=2e-5)
        else:
            assert branch.died == np.inf


@pytest.mark.slow
def test_gradients_through_two_jumps_are_those_of_differences():
    model = ds.DAEO(grow, waves, size=(1, 1), parameters=["c", "a"], box=(-20.0, 20.0))

    def final(x0, c, a):
        return run_of(model, "rk6vr", x0, [c, a], 1.5, rtol=1e-12).u[-1, 0]

    run = run_of(model, "rk6vr", p=[1.0, 1.0], end=1.5, rtol=1e-12)
    gradient = row(ds.adjoint(run, model.terminal(lambda t, x, y, p: x[0])))
    h = 1e-3
    for k, value in enumerate(gradient):
        e = h * np.eye(3)[k]
        near, far = ((final(*(1 + n * e)) - final(*(1 - n * e))) / (2 * n * h) for n in (1, 2))
        assert value == pytest.approx((4 * near - far) / 3, abs=2e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk6vr", "rk4", "esdirk4"])
def test_two_jumps_within_one_step_are_both_found(method):
    """0.007 apart: a run that looks at the ends of its steps sees one, and a third optimum."""
    model = ds.DAEO(
        lambda t, x, y, p: y - x, three_wells, size=(1, 1), parameters=2, box=(-5.0, 5.0)
    )
    p = np.array([0.52, 0.527])
    steps = {"rtol": 1e-12} if method == "rk6vr" else {"dt": 0.1}
    run = run_of(model, method, p=p, **steps)
    assert [crossing.t for crossing in run.crossings] == pytest.approx([0.0, *p], abs=1e-13)
    assert [(jump.before, jump.after) for jump in run.report.jumps] == [(0, 1), (1, 2)]
    exact = np.exp(-1.0) - 4 * (np.exp(p[0] - 1) - np.exp(-1.0)) + 4 * (1 - np.exp(p[1] - 1))
    error = 1e-11 if method == "rk6vr" else 2e-6
    assert run.u[-1, 0] == pytest.approx(exact, abs=error)
    gradient = ds.adjoint(run, model.terminal(lambda t, x, y, p: x[0])).p
    np.testing.assert_allclose(gradient, -4 * np.exp(p - 1), atol=10 * error)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk6vr", "rk4"])
def test_a_jump_there_and_back_within_a_step_is_found(method):
    def h(t, x, y, p):
        b = (t - p[0]) * (t - p[1])
        wells = (y[0] ** 2 - 1.0) ** 2
        return wells + b * (3.0 * y[0] - y[0] ** 3) / 4.0  # -b/2 at -1, b/2 at 1, no slope there

    model = ds.DAEO(lambda t, x, y, p: y - x, h, size=(1, 1), parameters=2, box=(-2.0, 1.9))
    p = np.array([0.52, 0.527])
    steps = {"rtol": 1e-12} if method == "rk6vr" else {"dt": 0.1}
    run = run_of(model, method, x0=0.0, p=p, **steps)
    assert [crossing.t for crossing in run.crossings] == pytest.approx([0.0, *p], abs=1e-12)
    way = np.exp(p - 1)
    exact = -((way[0] - np.exp(-1.0)) - (way[1] - way[0]) + (1.0 - way[1]))
    assert run.u[-1, 0] == pytest.approx(exact, abs=1e-11 if method == "rk6vr" else 2e-6)


# ---- what is refused -----------------------------------------------------------------------------


def refused(h, x0, f=lambda t, x, y, p: -y, box=(-2.0, 2.0)):
    model = ds.DAEO(f, h, size=(1, 1), box=box)
    return run_of(model, "rk4", x0, [], dt=0.1)


def test_sliding_along_a_switching_surface_is_an_error():
    with pytest.raises(ds.SolveError, match="slides along a switching surface") as caught:
        refused(lambda t, x, y, p: (y[0] ** 2 - 1.0) ** 2 - 0.5 * x[0] * y[0], 0.5)
    assert caught.value.run.times[-1] == pytest.approx(0.5, abs=0.05)


def test_a_tie_at_the_start_is_an_error():
    with pytest.raises(ds.SolveError, match="two optimisers are lowest"):
        refused(lambda t, x, y, p: (y[0] ** 2 - 1.0) ** 2 - 0.5 * x[0] * y[0], 0.0)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ((1.0, -1.0), r"box\[0\] = \(1, -1\)"),
        ((-np.inf, 1.0), "finite bounds"),
        ([(-1.0, 1.0)] * 2, "a lower and an upper bound for each of 1 y"),
        ("everywhere", "box is not an array of real numbers"),
    ],
)
def test_boxes_that_are_none(box, message):
    with pytest.raises(ds.InputError, match=message):
        refused(lambda t, x, y, p: y[0] ** 2, 1.0, box=box)
