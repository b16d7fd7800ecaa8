"""Windows of multiple shooting: exact derivatives, of DAEs and of delay equations too."""

import numpy as np
import pytest
from bilevel_data import NAMES, TIMES, TRUTH, measured, predators

import daeosens as ds
from daeosens import Parameter, Parameters
from daeosens.errors import SolveError
from daeosens.inverse import Normal
from daeosens.inverse.bilevel import shooting
from daeosens.inverse.bilevel.shooting import Shot, cut, jacobian_of, shoot
from daeosens.petsc import gather

NO = np.zeros(2, dtype=bool)


@pytest.fixture(scope="module")
def model():
    return ds.trace(predators, ["prey", "predator"], NAMES)


def order_of_remainders(jacobian, shot, edges, x, states, size):
    """Return the order of what Taylor's formula leaves of the rows of windows; seeded."""
    rng = np.random.default_rng(0)
    dx, dstates = rng.standard_normal(len(x)), rng.standard_normal(states.shape)
    along = jacobian @ np.concatenate([dx, dstates.ravel()])
    rows, gaps = shoot([shot], [edges], x, [states]), []
    for eps in (size, size / 2):
        moved = shoot([shot], [edges], x + eps * dx, [states + eps * dstates * shot.scale])
        gaps.append(np.linalg.norm(moved.residual - rows.residual - eps * along))
    return np.log2(gaps[0] / gaps[1])


def test_derivatives_of_windows_are_those_of_their_runs(model):
    data = measured(model, TIMES[:40:2], noise=0.05)
    entries = {
        name: Parameter(value, scale="log") for name, value in zip(NAMES, TRUTH, strict=True)
    }
    values = np.column_stack([data["prey"], data["predator"]])
    values[5, 0] = np.nan
    misfit = ds.LeastSquares(data["time"], values, 0.1)
    fixed = ds.Stepping((0.0, 3.8), "rk4", dt=0.05)
    start = Parameters(entries, lambda p: np.array([p[0], 0.5 * p[1]]))
    run = ds.Reduced(model, misfit, fixed, start)
    shot = Shot(run, misfit, ds.Prior([1.0], [0.3], ["grow"]), np.array([1.0, 2.0]), np.ones(2), NO)
    edges = cut(shot, 6)
    assert edges == pytest.approx([0.0, 1.2, 2.4, 3.6, 3.8])
    x = gather(run.start())
    states = values[[6, 12, 18]] + 0.1
    rows = shoot([shot], [edges], x, [states])
    jacobian = jacobian_of([shot], rows)
    assert len(rows.residual) == 39 + 6 + 1
    assert order_of_remainders(jacobian, shot, edges, x, states, 1e-2) > 1.9
    # of windows that are held the same without what starts do
    alone = jacobian_of([shot], rows, held=True)
    assert alone.shape == (len(rows.residual), 5)
    assert abs(jacobian[:, :5] - alone).max() < 1e-12 * abs(alone).max()


def algebraic(t, u, p):
    return np.array([-p[0] * u[0] * u[1], u[1] - u[0] ** 2 - p[1]])


def measured_dae(noise=0.0):
    times = np.linspace(0.2, 4.0, 20)
    problem = ds.ODE(algebraic, ["x", "z"], ["k", "b"], mass=np.diag([1.0, 0.0]))
    stepping = ds.Stepping((0.0, 4.0), "cn", dt=0.05)
    run = ds.solve(problem, [1.0, 1.2], [0.8, 0.2], stepping, t_eval=times)
    values = np.array([gather(run.at(time)) for time in times])
    values += noise * np.random.default_rng(0).standard_normal(values.shape)
    start = {"k": Parameter(0.3, scale="log"), "b": Parameter(0.4)}
    control = Parameters(start, lambda p: np.array([1.0, 1.0 + p[1]]))
    return problem, {"time": times, "x": values[:, 0], "z": values[:, 1]}, control, stepping


def test_windows_of_a_dae_begin_at_consistent_states_and_have_exact_derivatives():
    problem, data, control, stepping = measured_dae(noise=0.02)
    values = np.column_stack([data["x"], data["z"]])
    misfit = ds.LeastSquares(data["time"], values, 0.02)
    run = ds.Reduced(problem, misfit, stepping, control)
    shot = Shot(run, misfit, None, np.array([0.5, 0.5]), np.full(2, 0.02), NO)
    edges = cut(shot, 5)
    x, states = gather(run.start()), values[[4, 9, 14]]  # not consistent: measurements
    rows = shoot([shot], [edges], x, [states])
    jacobian = jacobian_of([shot], rows)
    assert order_of_remainders(jacobian, shot, edges, x, states, 1e-3) > 1.9
    # an algebraic variable where a window begins has no effect but on the jump to it
    assert np.count_nonzero(jacobian[:, [3, 5, 7]].toarray()) == 3
    alone, windowed = (
        ds.fit(problem, data, control, stepping, noise=Normal(0.02), windows=windows)
        for windows in (None, 5)
    )
    assert windowed.objective == pytest.approx(alone.objective, rel=1e-8)
    assert windowed.estimate["k"] == pytest.approx(alone.estimate["k"], rel=1e-5)


def late_hunters(t, u, z, p):
    eaten = p.eat * u[0] * u[1]
    return np.array([u[0] * (p.grow - z[0, 0]) - eaten, p.gain * z[1, 0] * z[1, 1] - 0.6 * u[1]])


LATE = {"grow": 1.2, "eat": 0.7, "gain": 0.6, "maturing": 0.53, "hunting": 0.87}


def delayed_shot(stepping, **others):
    """Delays longer than steps and shorter than windows; history and start with parameters."""
    first = LATE | others
    model = ds.trace(
        late_hunters,
        ["prey", "predator"],
        list(LATE),
        delays=["maturing", "hunting"],
        history=lambda t, p: [p.grow + 0.2 * t, 0.5 * p.eat],
    )
    times = np.linspace(0.1, 4.0, 40)
    rng = np.random.default_rng(3)
    values = np.column_stack([1.0 + 0.3 * np.sin(times), 0.8 + 0.2 * np.cos(times)])
    values += 0.05 * rng.standard_normal(values.shape)
    values[7, 1] = np.nan
    misfit = ds.LeastSquares(times, values, 0.1)
    entries = {name: Parameter(value, scale="log") for name, value in first.items()}
    control = Parameters(entries, lambda p: np.array([p[0], 0.5 * p[1]]))
    run = ds.Reduced(model, misfit, stepping, control)
    shot = Shot(run, misfit, ds.Prior([1.0], [0.3], ["gain"]), np.array([1.0, 2.0]), np.ones(2), NO)
    edges = cut(shot, 10)
    states = values[[9, 19, 29]] + 0.1
    return shot, edges, gather(run.start()), states


@pytest.mark.parametrize("method", ["rk4", "rk5ts"])
def test_derivatives_of_windows_of_a_delay_equation_are_those_of_their_run(method):
    shot, edges, x, states = delayed_shot(ds.Stepping((0.0, 4.0), method, dt=0.05))
    assert edges == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0])
    rows = shoot([shot], [edges], x, [states], 0.5)
    jacobian = jacobian_of([shot], rows, 0.5)
    assert len(rows.residual) == 79 + 6 + 1
    # a window knows nothing of those after it, but of all before it
    blocks = jacobian.toarray()[:, 5:]
    assert not blocks[:17].any()
    assert not blocks[17:37, 2:].any()
    assert blocks[57:79, :2].any()
    rng = np.random.default_rng(0)
    dx, dstates = rng.standard_normal(5), rng.standard_normal((3, 2))
    along = jacobian @ np.concatenate([dx, dstates.ravel()])
    slope, gaps, rests = rows.residual @ along, [], []
    for eps in (1e-3, 5e-4):
        moved = shoot([shot], [edges], x + eps * dx, [states + eps * dstates * shot.scale], 0.5)
        gaps.append(np.linalg.norm(moved.residual - rows.residual - eps * along))
        rests.append(abs(moved.value - rows.value - eps * slope))
    assert np.log2(gaps[0] / gaps[1]) > 1.95
    assert np.log2(rests[0] / rests[1]) > 1.95


def test_windows_of_a_delay_equation_that_are_held_move_with_parameters_alone():
    shot, edges, x, states = delayed_shot(ds.Stepping((0.0, 4.0), "rk5ts", dt=0.05))
    rows = shoot([shot], [edges], x, [states], 0.5)
    held = jacobian_of([shot], rows, 0.5, held=True).toarray()
    free = jacobian_of([shot], rows, 0.5).toarray()
    assert held.shape == (86, 5)
    assert abs(held - free[:, :5]).max() < 1e-14 * abs(held).max()


def test_windows_of_a_delay_equation_that_begin_at_its_run_are_that_run():
    """So that windows without jumps are what is fitted."""
    shot, edges, x, _ = delayed_shot(ds.Stepping((0.0, 4.0), "rk5ts", rtol=1e-10, atol=1e-12))
    run = shot.run.trajectory(x)
    states = np.array([gather(run.at(time)) for time in edges[1:-1]])
    rows = shoot([shot], [edges], x, [states])
    assert rows.jumps < 1e-14
    prior = 0.5 * ((LATE["gain"] - 1.0) / 0.3) ** 2
    assert rows.value == pytest.approx(shot.run.value(shot.run.start()) + prior, rel=1e-7)


@pytest.mark.parametrize("delays", [{}, {"maturing": 2.1, "hunting": 2.5}, {"hunting": 2.1}])
def test_columns_of_starts_are_carried_as_far_as_delays_reach(monkeypatch, delays):
    """And are what they are if each is carried along all steps."""
    stepping = ds.Stepping((0.0, 4.0), "rk5ts", rtol=1e-8)
    shot, edges, x, states = delayed_shot(stepping, **delays)
    rows = shoot([shot], [edges], x, [states])
    jacobian = jacobian_of([shot], rows).toarray()
    third, last = jacobian[38:58], jacobian[58:80]
    # the second window begins at the start in columns 5 and 6
    assert third[:, 5:7].any() == (delays.get("maturing", 0.0) < 2.0)
    assert last[:, 5:7].any()
    assert last[:, 7:9].any() == (delays.get("maturing", 0.0) < 2.0)

    def along_all_steps(program, du0, dp, restarts):
        """Of directions that all move the parameters as the first one does, which is then left."""
        by_first = du0 + du0[:1], dp + dp[:1], restarts + restarts[:, :1]
        result = push_forward(program, *by_first)
        result.du[...] -= 0.5 * result.du[..., :1].copy()
        return result

    push_forward = shooting.push_forward
    monkeypatch.setattr(shooting, "push_forward", along_all_steps)
    whole = jacobian_of([shot], rows).toarray()
    assert abs(jacobian - whole).max() < 1e-13 * abs(whole).max()


def test_a_trial_whose_delay_is_far_shorter_fails_before_its_steps():
    stepping = ds.Stepping((0.0, 4.0), "rk5ts", rtol=1e-6)
    shot, edges, x, states = delayed_shot(stepping)
    best = shoot([shot], [edges], x, [states])
    taken = best.windows[0][0].trajectory.n_steps
    assert taken < 1000
    near, far = x.copy(), x.copy()
    near[3], far[3] = np.log(0.05), np.log(1e-3)
    assert shoot([shot], [edges], near, [states], best=best).value > 0.0
    # 4444 steps of nine tenths of the delay at least
    assert shoot([shot], [edges], far, [states]).windows[0][0].trajectory.n_steps > 4444
    with pytest.raises(SolveError, match=r"max_steps = \d+ steps; none is longer than .* 0\.001"):
        shoot([shot], [edges], far, [states], best=best)
