"""DAEOs in everything that takes a problem: stores, ranks, fits, profiles; and what is refused."""

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.optimize import minimize as scipy_minimize

import daeosens as ds
from daeosens.costs import EventTime
from daeosens.tracing import SearchEffort


def decay(t, x, y, p):
    return -(p.rate + y) * x


def two_wells(t, x, y, p):
    """Return wells at 1 and -1, wherever x is; the first one is lower where x > switch."""
    return (1.0 - y[0] ** 2) ** 2 - (x[0] - p.switch) * np.sin(0.5 * np.pi * y[0])


def exact(t, x0, rate, switch):
    """Return x in closed form."""
    jump = np.log(x0 / switch) / (rate + 1.0)
    before = x0 * np.exp(-(rate + 1.0) * t)
    return np.where(t < jump, before, switch * np.exp(-(rate - 1.0) * (t - jump)))


@pytest.fixture(scope="module")
def model():
    return ds.DAEO(
        decay, two_wells, size=(["x"], ["y"]), parameters=["rate", "switch"], box=(-6.0, 6.0)
    )


STEPPING = ds.Stepping((0.0, 1.0), "rk6vr", rtol=1e-10)


@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk4"])
def test_thinned_runs_have_the_same_derivatives(model, method):
    start = model, [1.0], [2.0, 0.5], ds.Stepping((0.0, 1.0), method, dt=0.02)
    run = ds.solve(*start)
    few = ds.solve(*start, checkpoint=ds.timestepping.Checkpoints(7))
    direction = [1.0, 0.0, 0.0], [0.3, -0.2]
    for cost in (model.terminal(lambda t, x, y, p: x[0] * y[0] ** 3), EventTime("jump")):
        for engine, error in (("vectors", 0.0), ("auto", 1e-13)):  # blocks are added up otherwise
            values, other = (ds.adjoint(value, cost, engine) for value in (run, few))
            np.testing.assert_allclose(values.p, other.p, rtol=error, atol=error)
            np.testing.assert_allclose(values.u0, other.u0, rtol=error, atol=error)
            first, second = (
                ds.hessian_product(value, cost, *direction, engine=engine) for value in (run, few)
            )
            np.testing.assert_allclose(first.p, second.p, rtol=error, atol=error)
            np.testing.assert_allclose(first.u0, second.u0, rtol=error, atol=error)
    assert few.stored.replays > 0


@pytest.mark.mpi
def test_each_rank_follows_its_own_copy(model, comm):
    """As with all NumPy-style problems."""
    x0 = 1.0 + 0.1 * comm.rank
    run = ds.solve(model, [x0], [2.0, 0.5], STEPPING)
    assert run.u[-1, 0] == pytest.approx(exact(1.0, x0, 2.0, 0.5), abs=1e-9)
    gradient = ds.adjoint(run, EventTime("jump"))
    jump = np.log(2.0 * x0) / 3.0
    np.testing.assert_allclose(gradient.p, [-jump / 3.0, -2.0 / 3.0], atol=1e-9)
    with pytest.raises(ds.SolveError, match="two optimisers are lowest"):
        ds.solve(model, [0.5], [2.0, 0.5], STEPPING)


@pytest.mark.mpi(min_size=2)
def test_boxes_that_differ_by_rank_are_an_error(comm):
    with pytest.raises(ds.InputError, match="rank"):
        ds.DAEO(decay, two_wells, size=(1, 1), parameters=2, box=(-6.0, 6.0 + comm.rank))


TIMES = np.linspace(0.0, 1.0, 21)
STARTS = (1.0, 0.8, 1.3)


@pytest.fixture(scope="module")
def fitted(model):
    """Return a fit to three experiments, in each of which y jumps at another time."""
    rng = np.random.default_rng(3)
    data = [exact(TIMES, x0, 2.0, 0.5) + 1e-3 * rng.standard_normal(TIMES.size) for x0 in STARTS]
    experiments = [
        ds.Experiment({"t": TIMES, "x": values}, initial_state=[x0])
        for x0, values in zip(STARTS, data, strict=True)
    ]
    free = ds.Parameters({"rate": ds.Parameter(1.7), "switch": ds.Parameter(0.6)}, [1.0])
    return np.array(data), ds.fit(model, experiments, free, STEPPING, columns=["x"])


def test_experiments_are_fitted_as_by_scipy(fitted):
    data, outcome = fitted

    def residuals(z):
        return np.concatenate(
            [exact(TIMES, x0, *z) - values for x0, values in zip(STARTS, data, strict=True)]
        )

    other = least_squares(residuals, [1.9, 0.52], "2-point", xtol=1e-14, ftol=1e-14, gtol=1e-14)
    variance = 2.0 * other.cost / (data.size - 2)
    errors = np.sqrt(np.diag(np.linalg.inv(other.jac.T @ other.jac)) * variance)
    for name, estimate, error in zip(("rate", "switch"), other.x, errors, strict=True):
        assert outcome.estimate[name] == pytest.approx(estimate, abs=1e-3 * error)
        assert outcome.covariance.error(name) == pytest.approx(error, rel=0.02)


def test_profiles_go_through_jumps(fitted):
    """Of a noise this small they are parabolas: the intervals are those of the covariance."""
    _, outcome = fitted
    profile = outcome.profile(["switch"], points=3)
    low, high = profile["switch"].interval
    error, estimate = outcome.covariance.error("switch"), outcome.estimate["switch"]
    assert low == pytest.approx(estimate - 2.0 * error, abs=0.05 * error)
    assert high == pytest.approx(estimate + 2.0 * error, abs=0.05 * error)


def test_optima_are_those_of_the_closed_form(model):
    free = ds.Parameters({"rate": ds.Parameter(2.3), "switch": ds.Parameter(0.55)}, [1.0])
    cost = model.terminal(
        lambda t, x, y, p: (
            (x[0] - 0.2) ** 2 + 0.01 * (p.rate - 1.5) ** 2 + 0.1 * (p.switch - 0.6) ** 2
        )
    )
    result = ds.minimize(ds.Reduced(model, cost, STEPPING, free))

    def value(z):
        x = exact(1.0, 1.0, *z)
        return (x - 0.2) ** 2 + 0.01 * (z[0] - 1.5) ** 2 + 0.1 * (z[1] - 0.6) ** 2

    other = scipy_minimize(
        value, [2.3, 0.55], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-16}
    )
    np.testing.assert_allclose(result.x, other.x, atol=1e-5)


# ---- what is refused -----------------------------------------------------------------------------


def ahead(t, x, y, p):
    return np.ones(1)


def refused(f, h, **more):
    daeo = ds.DAEO(f, h, size=(1, 1), box=(-2.0, 2.0), **more)
    return ds.solve(daeo, [1.0], [], ds.Stepping((0.0, 1.5), "rk4", dt=0.1))


def test_h_that_is_not_finite_at_the_start_is_an_input_error():
    with pytest.raises(ds.InputError, match=r"h is not finite at y = \[0\] \(t = 0.0"):
        refused(ahead, lambda t, x, y, p: np.log(y[0]))


@pytest.mark.parametrize(
    ("h", "until"),
    [
        (lambda t, x, y, p: (y[0] - 0.5) ** 2 + np.log(1.25 - t), 1.25),  # everywhere
        (lambda t, x, y, p: (y[0] - 0.5) ** 2 + np.sqrt(4.05 - x[0] + y[0]), 1.05),  # at y = -2
    ],
)
def test_h_that_is_not_finite_later_ends_the_run(h, until):
    with pytest.raises(ds.SolveError, match="h is not finite at y") as caught:
        refused(ahead, h)
    times = caught.value.run.times
    assert until - 0.25 < times[-1] <= until
    assert caught.value.run.u[-1, 0] == pytest.approx(1.0 + times[-1], abs=1e-12)


def test_f_that_is_not_defined_where_y_jumps_to_is_named():
    """Of f = sqrt(y): y jumps from 1 to -1 at x = 1.5."""
    with pytest.raises(ds.SolveError, match=r"f is not finite at t = 0\.5, .* y = \[-1") as caught:
        refused(
            lambda t, x, y, p: np.sqrt(y),
            lambda t, x, y, p: (y[0] ** 2 - 1.0) ** 2 - (1.5 - x[0]) * np.sin(0.5 * np.pi * y[0]),
        )
    assert [crossing.name for crossing in caught.value.run.crossings] == ["start", "jump"]


@pytest.mark.parametrize("constraints", [None, lambda t, x, y, p: [y[0] ** 2 - 3.0]])
def test_a_budget_that_is_exhausted_is_told(constraints):
    few = SearchEffort(boxes=20)
    with pytest.raises(ds.errors.BudgetError, match="the budget of 20 boxes is used up") as caught:
        refused(
            ahead,
            lambda t, x, y, p: (x[0] - y[0]) ** 2 + np.sin(40.0 * y[0]),
            effort=few,
            constraints=constraints,
        )
    assert "SearchEffort(boxes=200)" in str(caught.value)
    assert caught.value.run.times.tolist() == [0.0]


def test_a_budget_that_is_exhausted_later_keeps_the_run():
    """Wells that part of the run has and others not: the box of the wave narrows with t."""
    with pytest.raises(ds.errors.BudgetError, match="the budget of 60 boxes") as caught:
        refused(
            ahead,
            lambda t, x, y, p: (y[0] - 0.3) ** 2 + 0.2 * np.sin((3.0 + 60.0 * t) * y[0]),
            effort=SearchEffort(boxes=60),
        )
    assert 0.0 < caught.value.run.times[-1] < 1.0


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"boxes": 0}, "boxes=0"),
        ({"boxes": 1e6}, r"boxes=1000000\.0"),
        ({"proof": -1}, "proof=-1"),
        ({"proof_per_step": True}, "proof_per_step=True"),
        ({"interval": -0.5}, r"interval=-0\.5"),
        ({"interval": np.nan}, "interval=nan"),
        ({"apart": 1.0}, r"apart=1\.0"),
        ({"apart": "near"}, "apart='near'"),
    ],
)
def test_efforts_that_are_none(option, message):
    with pytest.raises(ds.InputError, match=message):
        SearchEffort(**option)


def test_effort_says_when_is_searched_and_how_much_is_proven():
    """By its own choice, after every step, at intervals, and without proofs: the same run."""
    efforts = {
        "chosen": SearchEffort(),
        "every step": SearchEffort(interval=0.0),
        "intervals": SearchEffort(interval=0.25),
        "no proof": SearchEffort(proof=0, proof_per_step=0),
    }
    runs = {
        name: ds.solve(
            ds.DAEO(decay, two_wells, (1, 1), ["rate", "switch"], box=(-6.0, 6.0), effort=effort),
            [1.0],
            [2.0, 0.5],
            ds.Stepping((0.0, 1.0), "rk4", dt=0.05),
        )
        for name, effort in efforts.items()
    }
    reports = {name: run.report for name, run in runs.items()}
    assert len({run.u[-1, 0] for run in runs.values()}) == 1
    chosen, every = reports["chosen"], reports["every step"]
    assert len(chosen.searches) <= 4
    assert chosen.proof_boxes > 0
    assert not chosen.unproven
    assert sorted(set(every.searches)) == sorted(set(runs["every step"].times.tolist()))
    assert every.search_boxes > chosen.search_boxes
    gaps = np.diff(np.unique(reports["intervals"].searches))
    assert gaps.max() <= 0.25 + 0.05 + 1e-9  # and the rest of a step
    without = reports["no proof"]
    assert without.proof_boxes == 0
    gaps = [end - start for start, end in without.unproven]
    assert sum(gaps) == pytest.approx(1.0, abs=0.05)  # the step of the jump is looked at twice
    assert "boxes" in str(chosen)


@pytest.mark.parametrize(
    ("f", "h", "message"),
    [
        (ahead, lambda t, x, y, p: y[0] ** 2 if y[0] > 0 else 0.0, "a branch depends on the data"),
        (ahead, lambda t, x, y, p: float(y[0]) ** 2, "cannot trace"),
        (ahead, lambda t, x, y, p: y**2, r"'h' returned shape \(1,\)"),
        (lambda t, x, y, p: [y[0], y[0]], lambda t, x, y, p: y[0] ** 2, "'f' returned shape"),
    ],
)
def test_functions_that_cannot_be_traced_are_named(f, h, message):
    with pytest.raises(ds.InputError, match=message):
        refused(f, h)


def enclosed(t, x, y, p):
    """Return (y^2 - 1)^2 - (x - 0.5) y over boxes, and its derivatives, a little too wide."""
    low, high = y[:, 0, 0], y[:, 0, 1]

    def wide(values, corners):
        spread = np.array(corners)
        error = 1e-12 * (1.0 + np.abs(spread).max(axis=0))
        return np.stack([values[0] - error, values[1] + error], axis=-1)

    def powers(k):
        ends = np.stack([low**k, high**k])
        least = np.where((low < 0) & (high > 0) & (k % 2 == 0), 0.0, ends.min(axis=0))
        return least, ends.max(axis=0)

    tilt = x[:, 0] - 0.5
    products = np.stack([a * b for a in tilt.T for b in (low, high)])
    (y4l, y4h), (y2l, y2h), (y3l, y3h) = powers(4), powers(2), powers(3)
    value = (
        y4l - 2.0 * y2h + 1.0 - products.max(axis=0),
        y4h - 2.0 * y2l + 1.0 - products.min(axis=0),
    )
    slope = 4.0 * y3l - 4.0 * high - tilt[:, 1], 4.0 * y3h - 4.0 * low - tilt[:, 0]
    curve = 12.0 * y2l - 4.0, 12.0 * y2h - 4.0
    return (
        wide(value, value),
        wide(slope, slope)[:, None],
        wide(curve, curve)[:, None, None],
    )


def test_enclosures_of_the_user_are_taken():
    runs = [
        ds.solve(
            ds.DAEO(
                lambda t, x, y, p: -x * (2.0 + y),
                lambda t, x, y, p: (y[0] ** 2 - 1.0) ** 2 - (x[0] - 0.5) * y[0],
                size=(1, 1),
                box=(-2.0, 2.0),
                extension=extension,
            ),
            [1.0],
            [],
            STEPPING,
        )
        for extension in (None, enclosed)
    ]
    times = [[crossing.t for crossing in run.crossings] for run in runs]
    assert len(times[0]) == 2
    assert times[0] == times[1]
    np.testing.assert_array_equal(runs[0].u, runs[1].u)
    with pytest.raises(ds.UnsupportedError, match="beside constraints"):
        refused(
            ahead,
            lambda t, x, y, p: y[0] ** 2,
            extension=enclosed,
            constraints=lambda *a: [a[2][0]],
        )
