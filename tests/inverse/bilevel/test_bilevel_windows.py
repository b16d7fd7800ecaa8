"""Windows, and ``fit(..., start="bilevel")``: truth where single shooting fails, refusals."""

import numpy as np
import pytest
from bilevel_data import NAMES, TIMES, TRUTH, measured, predators, unknowns
from mpi4py import MPI
from scipy import sparse

import daeosens as ds
from daeosens import Experiment, InputError, Parameter, Parameters, SolveError, UnsupportedError
from daeosens.inverse import Normal, bilevel, likelihood
from daeosens.inverse.bilevel import bilevel_starts, estimate
from daeosens.inverse.bilevel import start as preparation
from daeosens.inverse.bilevel.shooting import Shot
from daeosens.inverse.bilevel.windows import (
    _damped,
    _lowest,
    _moved,
    refined_by_windows,
)
from daeosens.petsc import gather

NO = np.zeros(2, dtype=bool)
STEPPING = ds.Stepping((0.0, 15.0), "rk6vr", rtol=1e-9, atol=1e-11)


@pytest.fixture(scope="module")
def model():
    return ds.trace(predators, ["prey", "predator"], NAMES)


def ratios(fitted):
    return np.array([fitted.estimate[name] for name in NAMES]) / TRUTH


def test_a_fit_without_a_guess_ends_at_the_truth_with_its_covariance(model):
    data = measured(model, TIMES[::3], noise=0.01, seed=1)
    start = Parameters(unknowns(), lambda p: np.array([p[5], p[6]]))
    free = ds.trace(predators, ["prey", "predator"], [*NAMES, "x0", "y0"])
    start = Parameters(unknowns(x0=Parameter(3.0), y0=Parameter(3.0)), start.initial_state)
    fitted = ds.fit(free, data, start, STEPPING, noise=Normal(0.01), start="bilevel")
    assert fitted.converged
    errors = np.array([fitted.covariance.error(name) for name in NAMES if name != "half"])
    values = np.array([fitted.estimate[name] for name in NAMES if name != "half"])
    assert np.abs((values - TRUTH[[0, 1, 3, 4]]) / errors).max() < 3.0
    assert fitted.estimate["x0"] == pytest.approx(1.0, abs=0.03)
    held, *stages = fitted.preparation.stages
    assert held.held
    assert not any(stage.held for stage in stages)
    assert [stage.windows for stage in stages] == [10] * (len(stages) - 1) + [1]
    *jumping, whole = stages
    assert [stage.level for stage in jumping] == pytest.approx(
        [0.1**k for k in range(len(jumping))]
    )
    assert whole.level == whole.jumps == 0.0
    # jumps were closed until they are nothing beside the noise, and no further
    assert jumping[-1].jumps < 0.1 < jumping[-2].jumps
    # the last stage is the fit
    assert fitted.objective == pytest.approx(jumping[-1].value, rel=1e-2)
    assert fitted.objective == pytest.approx(whole.value, abs=1e-3)
    assert "bi-level" in repr(fitted.preparation)
    near = ds.fit(
        free,
        data,
        Parameters(
            dict(zip(NAMES, map(Parameter, TRUTH), strict=True))
            | {"x0": Parameter(1.0), "y0": Parameter(0.5)},
            start.initial_state,
        ),
        STEPPING,
        noise=Normal(0.01),
    )
    assert fitted.objective == pytest.approx(near.objective, rel=1e-6)


def test_windows_find_what_was_not_measured(model):
    data = {
        name: values for name, values in measured(model, TIMES[::2]).items() if name != "predator"
    }
    guess = {
        name: Parameter(1.2 * value, scale="log") for name, value in zip(NAMES, TRUTH, strict=True)
    }
    guess["feed"] = 0.05
    fitted = ds.fit(
        model,
        data,
        Parameters(guess, [1.0, 0.5]),
        STEPPING,
        observe=["prey"],
        windows=8,
        noise=Normal(1e-3),
    )
    assert ratios(fitted) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.slow
def test_windows_recover_an_oscillator_with_a_delay_from_its_protein_alone():
    """Hes1 (Monk, Current Biology 13, 2003) from starts within a factor of three of the truth."""

    def hes1(t, u, z, p):
        made = 1.0 / (1.0 + (z[0, 1] / p.half) ** p.steep)
        return np.array([made - p.decay * u[0], p.make * u[0] - p.lose * u[1]])

    truth = {"half": 1.0, "steep": 5.0, "decay": 0.03, "make": 0.03, "lose": 0.03, "tau": 18.5}
    start = [3.0, 1.0]
    model = ds.trace(hes1, ["rna", "protein"], list(truth), delays="tau", history=start)
    times = np.linspace(10.0, 720.0, 72)
    stepping = ds.Stepping((0.0, 720.0), "rk5ts", rtol=1e-6, atol=1e-8)
    states = ds.solve(model, start, truth, stepping, times).at(times)
    level = 0.05 * states.std(axis=0)
    rng = np.random.default_rng(1)
    data = {"time": times, "protein": (states + level * rng.standard_normal(states.shape))[:, 1]}
    guess = {
        name: Parameter(value * 10.0 ** rng.uniform(-0.5, 0.5), scale="log")
        for name, value in truth.items()
    }
    fitted = ds.fit(
        model,
        data,
        Parameters(guess, start),
        stepping,
        observe=["protein"],
        noise=Normal(level[1]),
        hessian="gauss_newton",
        windows=5,
    )
    assert fitted.converged
    assert 2.0 * fitted.objective < 72.0 + 3.0 * 12.0
    assert fitted.preparation.stages[-1].jumps < 0.1
    errors = [abs(np.log(fitted.estimate[k] / v)) for k, v in truth.items()]
    assert max(errors) < 0.12  # single shooting ends with rates that are wrong by 2000


def test_several_experiments_share_windows(model):
    experiments = [
        Experiment(
            measured(model, TIMES[:76:2]), ds.Stepping((0.0, 7.4), "rk6vr", rtol=1e-8), [1.0, 0.5]
        ),
        Experiment(
            measured(model, TIMES[:50:2], (0.4, 1.2)),
            ds.Stepping((0.0, 4.8), "rk6vr", rtol=1e-8),
            [0.4, 1.2],
        ),
    ]
    fitted = ds.fit(
        model,
        experiments,
        Parameters(unknowns(), None),
        start="bilevel",
        windows=4,
        noise=Normal(1e-3),
    )
    assert ratios(fitted) == pytest.approx(1.0, rel=1e-5)


def test_what_cannot_be_prepared_is_refused_by_name(model):
    data, start = measured(model, TIMES[:40]), Parameters(unknowns(), [1.0, 0.5])
    short = ds.Stepping((0.0, 3.9), "rk4", dt=0.1)
    with pytest.raises(InputError, match="start = 'spline'"):
        ds.fit(model, data, start, short, start="spline")
    with pytest.raises(InputError, match=r"windows = 2\.5"):
        ds.fit(model, data, start, short, windows=2.5)
    with pytest.raises(InputError, match="with a function observe="):
        ds.fit(model, data, start, short, observe=lambda t, u, p: u, start="bilevel")
    event = ds.Event(lambda t, u, p: u[0] - 9.0, reset=lambda t, u, p: 0.5 * u)
    hybrid = ds.trace(predators, ["prey", "predator"], NAMES, events=[event])
    with pytest.raises(
        UnsupportedError, match=r"windows for a problem with events \(experiments\[0\]\)"
    ):
        ds.fit(hybrid, data, start, short, windows=5)
    explosive = ds.trace(lambda t, u, p: p.a * u**3, ["x"], ["a"])
    wild = {"t": np.linspace(0.0, 1.0, 11), "x": np.linspace(5.0, 6.0, 11)}
    with pytest.raises(SolveError, match="no window could be integrated"):
        ds.fit(
            explosive,
            wild,
            Parameters({"a": Parameter(100.0)}, [5.0]),
            ds.Stepping((0.0, 1.0), "rk6vr", rtol=1e-6),
            windows=5,
        )


def refined(model, data, sigma, *, known, positive=NO, start=2.0, **settings):
    values = np.column_stack([data["prey"], data["predator"]])
    truth = zip(NAMES, TRUTH, strict=True)
    entries = {name: Parameter(start * value, scale="log") for name, value in truth}
    misfit = ds.LeastSquares(data["time"], values, sigma)
    stepping = ds.Stepping((0.0, float(data["time"][-1])), "rk6vr", rtol=1e-8)
    run = ds.Reduced(model, misfit, stepping, Parameters(entries, [1.0, 0.5]))
    shot = Shot(run, misfit, None, np.ones(2), np.full(2, sigma), positive)
    lookup = [lambda times: values[np.searchsorted(data["time"], times)]]
    return refined_by_windows([shot], gather(run.start()), 5, lookup, known=known, **settings)


def test_without_noise_levels_their_unit_is_of_no_account(model):
    data = measured(model, TIMES[:76:3], noise=0.02, seed=4)
    first, second = (refined(model, data, sigma, known=False) for sigma in (1.0, 1e-3))
    assert len(first) == len(second) > 1
    assert second[-1].x == pytest.approx(first[-1].x, rel=1e-6)
    assert second[-1].value == pytest.approx(1e6 * first[-1].value, rel=1e-6)
    assert np.exp(first[-1].x[[0, 1, 3]]) == pytest.approx(TRUTH[[0, 1, 3]], rel=0.1)


def test_a_parameter_that_data_do_not_tell_stays_within_reach(model):
    # neither is measured where saturation shows: the normal law is all that is known of it
    data = measured(model, TIMES[:16:3], p=TRUTH * [1.0, 1.0, 1.0, 1.0, 1e-9], noise=0.05, seed=1)
    (stage,) = refined(model, data, 0.05, known=True, single=True, start=1.0)
    feed = stage.x[NAMES.index("feed")] - np.log(TRUTH[-1])
    assert -4.0 * np.log(10.0) < feed < 0.0


def test_what_is_not_negative_stays_positive_in_a_step(model):
    data = measured(model, TIMES[:31:3])
    misfit = ds.LeastSquares(data["time"], np.ones((11, 2)), 1.0)
    stepping = ds.Stepping((0.0, 3.0), "rk4", dt=0.1)
    run = ds.Reduced(model, misfit, stepping, Parameters(unknowns(), [1.0, 0.5]))
    scale = np.array([1.0, 2.0])
    shot = Shot(run, misfit, None, scale, np.ones(2), np.array([True, False]))
    states = [np.array([[0.5, 0.5], [0.2, 0.2]])]
    low = _lowest([shot], states)
    assert low == pytest.approx([-0.45, -np.inf, -0.18, -np.inf])
    (moved,) = _moved([shot], states, np.maximum(low, -1.0))
    assert moved == pytest.approx(np.array([[0.05, -1.5], [0.02, -1.8]]))


def test_what_is_at_its_limit_moves_the_others_to_where_it_leaves_them():
    matrix = sparse.csr_array(np.array([[2.0, 1.0], [1.0, 3.0]]))
    free, _ = _damped(matrix, np.array([4.0, 1.0]), 0.0, np.full(2, -9.0), np.full(2, 9.0))
    assert free == pytest.approx([-2.2, 0.4])
    held, solved = _damped(
        matrix, np.array([4.0, 1.0]), 0.0, np.array([-0.5, -9.0]), np.full(2, 9.0)
    )
    # -1/3 (1 - 0.5)
    assert held == pytest.approx([-0.5, -1.0 / 6.0])
    assert solved(np.ones(2)) == pytest.approx([0.0, 1.0 / 3.0])
    none, solved = _damped(matrix, np.array([4.0, 1.0]), 0.0, np.zeros(2), np.zeros(2))
    assert not none.any()
    assert not solved(np.ones(2)).any()


def test_one_window_alone_is_single_shooting(model):
    data = measured(model, TIMES[:40])
    start = Parameters(unknowns(1.0), [1.0, 0.5])
    values = np.column_stack([data["prey"], data["predator"]])
    short = ds.Stepping((0.0, 3.9), "rk6vr", rtol=1e-8)
    run = ds.Reduced(model, ds.LeastSquares(data["time"], values, 1.0), short, start)
    shot = Shot(run, run.objective, None, np.ones(2), np.ones(2), NO)
    *_, stage = refined_by_windows([shot], gather(run.start()), 100, [lambda times: times])
    assert stage.windows == 1
    assert stage.value < 1e-3 * run.value(run.start())
    whole = likelihood(model, data, start, short, noise=Normal(1.0))
    assert whole.value(stage.x) == pytest.approx(stage.value, rel=1e-6)


def oregonator(t, u, p):
    return np.array(
        [
            p.k1 * (u[1] + p.k4 * u[0] - u[0] * u[1] - p.k5 * u[0] ** 2),
            (u[2] - p.k2 * u[1] - u[0] * u[1]) / p.k1,
            p.k3 * (u[0] - u[2]),
        ]
    )


@pytest.mark.slow
def test_windows_that_are_held_find_spikes_of_five_decades():
    truth = {"k1": 77.27, "k2": 1.0, "k3": 0.161, "k4": 1.0, "k5": 8.375e-6}
    model = ds.trace(oregonator, ["x", "y", "z"], list(truth))
    t, first = np.linspace(0.0, 60.0, 301), [0.3, 0.3, 0.3]
    stepping = ds.Stepping((0.0, 60.0), "esdirk5", rtol=1e-7, atol=1e-7)
    states = np.vstack([first, ds.solve(model, first, truth, stepping, t[1:]).at(t[1:])])
    data = {"t": t, **dict(zip("xyz", states.T, strict=True))}
    start = {"k1": 5.0, "k2": 0.3, "k3": 0.5, "k4": 3.0, "k5": 1e-5}
    entries = {name: Parameter(value, scale="log") for name, value in start.items()}
    fitted = ds.fit(
        model,
        data,
        Parameters(entries, first),
        stepping,
        noise=Normal(1e-4 * states.std(axis=0)),
        hessian="gauss_newton",
        start="bilevel",
    )
    held = fitted.preparation.stages[0]
    assert held.held
    # curves miss how spikes rise; windows that are held see it, and there is no noise to hurt them
    assert abs(fitted.preparation.bilevel.estimate["k1"] / truth["k1"] - 1.0) > 0.1
    assert np.exp(held.x) == pytest.approx([truth[name] for name in start], rel=1e-4)
    assert [*fitted.estimate.values()] == pytest.approx([truth[name] for name in start], rel=1e-6)


@pytest.mark.mpi
def test_ranks_share_the_starts_and_end_where_one_does():
    model = ds.trace(predators, ["prey", "predator"], NAMES, comm=MPI.COMM_SELF)
    data = measured(model, TIMES[:76:3], noise=0.01)
    alone = bilevel(model, data, unknowns(20.0), starts=4, comm=MPI.COMM_SELF)
    shared = bilevel(model, data, unknowns(20.0), starts=4, comm=MPI.COMM_WORLD)
    assert shared.estimate == alone.estimate
    assert [attempt.index for attempt in shared.starts.attempts] == [0, 1, 2, 3]
    stepping = ds.Stepping((0.0, 7.5), "rk6vr", rtol=1e-7)
    start = Parameters(unknowns(20.0), [1.0, 0.5])
    fits = [
        ds.fit(model, data, start, stepping, noise=Normal(0.01), start="bilevel", comm=comm)
        for comm in (MPI.COMM_SELF, MPI.COMM_WORLD)
    ]
    assert fits[1].estimate == fits[0].estimate


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", [ZeroDivisionError, ds.SolveError])
@pytest.mark.parametrize(
    ("module", "name"),
    [
        (estimate, "bilevel_functional"),
        (estimate, "ran_away"),
        (estimate, "pulled"),
        (estimate, "_best_determined"),
        (estimate, "_result"),
        (bilevel_starts, "_with_starts"),
        (preparation, "held_windows"),
    ],
)
@pytest.mark.parametrize("where", [0, 1])
def test_what_fails_on_one_rank_is_the_same_result_or_an_error_on_all(
    comm, module, name, where, kind, monkeypatch
):
    """Where and whatever it is: no rank waits for another."""
    model = ds.trace(predators, ["prey", "predator"], NAMES, comm=MPI.COMM_SELF)
    data = measured(model, TIMES[:76:3], noise=0.01)
    stepping = ds.Stepping((0.0, 7.5), "rk6vr", rtol=1e-7)
    guess = Parameters(unknowns(20.0), [1.0, 0.5])
    real = getattr(module, name)

    def fails(*arguments, **options):
        if comm.rank == where:
            raise kind("no memory")
        return real(*arguments, **options)

    def fitted():
        return ds.fit(model, data, guess, stepping, noise=Normal(0.01), start="bilevel", comm=comm)

    estimates = fitted().estimate
    if name == "pulled":  # one that ran away, on every rank
        monkeypatch.setattr(estimate, "ran_away", lambda *_: True)
    monkeypatch.setattr(module, name, fails)
    try:
        told = fitted().estimate
    except (kind, ds.DaeosensError) as error:
        told = "no memory" in str(error)
    answers = comm.allgather(told)
    assert all(answer == answers[0] for answer in answers)
    assert told is True or (where > 0 and told == estimates)


def test_a_search_that_leads_nowhere_ends_and_says_how_far_it_came():
    saturated = ds.trace(lambda t, u, p: -p.v * u / (p.K + u), ["u"], ["v", "K"])
    t = np.linspace(0.0, 4.0, 41)
    data = {"t": t, "u": 2.0 + np.random.default_rng(0).uniform(-1.0, 1.0, 41)}
    parameters = Parameters(
        {name: Parameter(1.0, scale="log") for name in ("v", "K")}, initial_state=[2.0]
    )
    stepping = ds.Stepping((0.0, 4.0), "rk5dp", dt=0.1)
    with pytest.raises(SolveError, match=r"windows from 2 bi-level estimates leave 1?\d\d% of the"):
        ds.fit(saturated, data, parameters, stepping, noise=Normal(1e-3), start="bilevel")
