"""Checkpoints: the theory of binomial ones, what runs keep, and how many steps are taken again."""

import gc
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import daeosens as ds
from daeosens import ODE, InputError, Stepping, Terminal, adjoint, solve, trace_stencil
from daeosens.problem.grids import Grid
from daeosens.timestepping import Checkpoints
from daeosens.timestepping.trajectory import hierarchical
from daeosens.timestepping.trajectory import trajectory as trajectory_module
from daeosens.timestepping.trajectory.hierarchical import Hierarchical
from daeosens.timestepping.trajectory.schedule import advance, repeated_steps
from daeosens.timestepping.trajectory.stay import Stay


@cache
def least(steps, slots):
    """The recursion of Griewank and Walther, with the steps of the run itself."""
    if steps == 1:
        return 0
    if slots == 1:
        return steps * (steps - 1) // 2
    return min(m + least(m, slots) + least(steps - m, slots - 1) for m in range(1, steps))


def test_closed_forms_are_those_of_the_recursion():
    for steps in range(1, 40):
        for slots in range(1, 9):
            assert repeated_steps(steps, slots) == least(steps, slots) - (steps - 1)
            if steps > 1 and slots > 1:
                m = advance(steps, slots)
                assert m + least(m, slots) + least(steps - m, slots - 1) == least(steps, slots)


DECAY = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
LAST = Terminal(lambda t, u, p: u[0])


@pytest.mark.parametrize("memory", [1, 2, 5, 20, 99, 100, 1000])
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_a_sweep_back_takes_as_few_steps_again_as_can_be(method, memory):
    steps = 100 if memory > 1 else 30
    stepping = Stepping((0.0, 1.0), method, dt=1.0 / steps)
    run = solve(DECAY, [1.0], [0.5], stepping, checkpoint=Checkpoints(memory))
    assert run.n_steps == steps
    assert len(run.stored.made) <= min(memory, steps) + 3
    gradient = adjoint(run, LAST, "vectors")
    assert run.stored.steps == repeated_steps(steps, memory)
    assert len(run.stored.made) <= min(memory, steps) + 3
    plain = adjoint(solve(DECAY, [1.0], [0.5], stepping), LAST, "vectors")
    assert (gradient.p, gradient.u0) == (plain.p, plain.u0)
    again = adjoint(run, LAST, "vectors")  # which begins with the run itself
    assert again.p == gradient.p
    lost = steps - 1 if memory < steps else 0
    assert run.stored.steps <= 2 * repeated_steps(steps, memory) + lost


# ---- a disk that costs time


def least_with_a_disk(steps, memory, disk, write, read):
    """The recursion of Herrmann and Pallez; the first state is in memory all the time."""

    @cache
    def kept(steps, disk):
        cuts = (m + reached(steps - m, disk) + kept(m, disk) for m in range(1, steps) if disk)
        return min([least(steps, memory), *cuts])

    @cache
    def reached(steps, disk):
        return min([least(steps, memory - 1), *(write + cost for cost in cuts(steps, disk))])

    @cache
    def filed(steps, disk):
        return min([least(steps, memory - 1), *cuts(steps, disk)])

    def cuts(steps, disk):
        parts = range(1, steps if disk else 1)
        return [m + reached(steps - m, disk - 1) + read + filed(m, disk) for m in parts]

    return kept(steps, disk)


COSTS = [(0.1, 0.1), (0.5, 0.25), (2.0, 1.0), (0.0, 1.0)]


@pytest.mark.parametrize(("write", "read"), COSTS)
@pytest.mark.parametrize(("memory", "disk"), [(2, 1), (3, 4), (5, 2), (2, 30)])
def test_steps_writing_and_reading_cost_as_little_as_can_be(memory, disk, write, read):
    for steps in (1, 2, 3, 7, 20, 37):
        cost = Hierarchical(memory, disk, write, read).cost(steps)
        together = cost.repeated + steps - 1 + write * cost.writes + read * cost.reads
        expected = least_with_a_disk(steps, memory, disk, write, read)
        assert together == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("memory", "disk", "write", "read", "steps", "expected"),
    [
        (3, 2, 0.5, 0.25, 40, 94.75),
        (3, 6, 2.0, 1.0, 60, 153.0),
        (2, 3, 0.1, 0.1, 50, 123.9),
        (4, 3, 1.0, 1.0, 80, 207.0),
    ],
)
def test_costs_of_parts_are_those_of_another_program(memory, disk, write, read, steps, expected):
    """``get_hopt_table`` of checkpoint_schedules 1.0.4: the first state is not kept beside."""
    table = hierarchical._table(steps, memory + 1, disk, write, read)
    assert table.swept("reached", steps, disk) == pytest.approx(expected, rel=1e-14)


def test_places_farther_away_are_no_better(monkeypatch):
    for memory, disk, write, read in [(2, 8, 0.05, 0.05), (5, 40, 0.3, 0.0), (3, 3, 9.0, 20.0)]:
        near = hierarchical._table(300, memory, disk, write, read)
        with monkeypatch.context() as patched:
            patched.setattr(hierarchical, "WIDTH", 300)
            every = hierarchical._table.__wrapped__(300, memory, disk, write, read)
        for begins in ("kept", "reached", "filed"):
            np.testing.assert_allclose(near.costs[begins], every.costs[begins], rtol=1e-14)


def test_of_many_steps_states_on_disk_lie_at_multiples():
    table = hierarchical._table(20_000, 200, 500, 0.3, 0.2)
    assert table.block == 10  # of steps
    cost = Hierarchical(200, 500, 0.3, 0.2).cost(20_000)
    assert repeated_steps(20_000, 700) <= cost.repeated < repeated_steps(20_000, 200)


@pytest.mark.parametrize(("write", "read"), COSTS)
@pytest.mark.parametrize(("memory", "disk"), [(2, 1), (3, 4), (2, 30)])
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_a_sweep_back_costs_what_the_theory_says(method, memory, disk, write, read):
    steps = 60
    stepping = Stepping((0.0, 1.0), method, dt=1.0 / steps)
    start = DECAY, [1.0], [0.5], stepping
    run = solve(*start, checkpoint=Checkpoints(memory, disk, write=write, read=read))
    most = len(run.stored.made)
    gradient = adjoint(run, LAST, "vectors")
    found = run.stored.steps, run.stored.writes, run.stored.reads
    assert found == Hierarchical(memory, disk, write, read).cost(steps)
    assert max(most, len(run.stored.made)) <= memory + 3
    plain = solve(*start)
    reference = adjoint(plain, LAST, "vectors")
    assert (gradient.p, gradient.u0) == (reference.p, reference.u0)
    for number in range(steps, -1, -1):
        assert run.states[number].array == plain.states[number].array
        assert len(run.stored.made) <= memory + 3


@pytest.mark.parametrize(("memory", "disk"), [(3, 5), (10, 40)])
def test_adaptive_runs_with_a_disk_are_as_good_up_to_the_distance_of_what_they_leave(memory, disk):
    stepping = Stepping((0.0, 20.0), "rk5dp", rtol=1e-9, atol=1e-12)
    problem = ODE(lambda t, u, p: np.array([u[1], -p[0] * np.sin(u[0])]), 2, ["k"])
    few = Checkpoints(memory, disk, write=0.3, read=0.2)
    run = solve(problem, [1.0, 0.0], [1.3], stepping, checkpoint=few)
    plain = solve(problem, [1.0, 0.0], [1.3], stepping)
    steps = run.n_steps
    ours, reference = adjoint(run, LAST, "vectors"), adjoint(plain, LAST, "vectors")
    np.testing.assert_array_equal(ours.p, reference.p)
    np.testing.assert_array_equal(ours.u0, reference.u0)
    best = Hierarchical(memory, disk, 0.3, 0.2).cost(steps)
    together = run.stored.steps + 0.3 * run.stored.writes + 0.2 * run.stored.reads
    least = best.repeated + 0.3 * best.writes + 0.2 * best.reads
    # the run writes states that it drops again
    assert together <= 1.05 * least + 2 * steps / (memory + disk) + 0.3 * steps


def test_costs_of_a_disk_need_one():
    for name, cost in (("write", -1.0), ("read", np.nan), ("write", np.inf), ("read", "slow")):
        with pytest.raises(InputError, match=f"{name} = .*\n.*a number of steps >= 0"):
            Checkpoints(5, 5, **{name: cost})
    for memory, disk in ((5, 0), (1, 5)):
        with pytest.raises(InputError, match=f"write = 0.5 with memory = {memory}, disk = {disk}"):
            Checkpoints(memory, disk, write=0.5)


# ---- adaptive steps


@pytest.mark.parametrize("memory", [4, 10, 40])
def test_adaptive_runs_are_as_good_up_to_the_distance_of_what_they_leave(memory):
    stepping = Stepping((0.0, 20.0), "rk5dp", rtol=1e-9, atol=1e-12)
    problem = ODE(lambda t, u, p: np.array([u[1], -p[0] * np.sin(u[0])]), 2, ["k"])
    run = solve(problem, [1.0, 0.0], [1.3], stepping, checkpoint=Checkpoints(memory))
    plain = solve(problem, [1.0, 0.0], [1.3], stepping)
    np.testing.assert_array_equal(run.times, plain.times)
    steps = run.n_steps
    assert steps > 300
    assert len(run.stored.made) <= memory + 3
    ours, reference = adjoint(run, LAST, "vectors"), adjoint(plain, LAST, "vectors")
    np.testing.assert_array_equal(ours.p, reference.p)
    np.testing.assert_array_equal(ours.u0, reference.u0)
    best = repeated_steps(steps, memory)
    assert best <= run.stored.steps <= 1.05 * best + 2 * steps / memory


def test_what_stays_is_thinned_as_a_run_goes_on():
    stay, states = Stay(4), [0]
    stay.watch(states, 0, {8})
    for number in range(1, 40):
        states.append(number)
        stay.note(states, 0)
        assert sum(state is not None for state in states) <= 4 + 3
    assert [state for state in states if state is not None] == [0, 8, 16, 32, 38, 39]


@pytest.mark.parametrize("style", ["numpy", "traced"])
def test_peak_of_memory(style):
    """States that are alive at one time, of a run and a sweep whose callbacks count them."""
    n = 2000

    def rhs(t, u, p):
        return -p.rate * u

    if style == "traced":
        problem = ds.trace(rhs, n, {"rate": ()})
    else:
        problem = ODE(lambda t, u, p: -p[0] * u, n, ["rate"])
    stepping = Stepping((0.0, 1.0), "rk4", dt=1.0 / 500)
    run = solve(problem, np.ones(n), [0.5], stepping, checkpoint=Checkpoints(10))
    assert len(run.stored.made) <= 13
    steps = 0
    for number in range(500, -1, -1):
        assert run.states[number].array[0] > 0.0
        assert len(run.stored.made) <= 13
        steps = run.stored.steps
    assert steps == repeated_steps(500, 10)


@pytest.mark.slow
@pytest.mark.parametrize("memory", [3, 10, 30])
def test_tangents_are_kept_by_the_same_schedule(memory):
    problem = ODE(lambda t, u, p: np.array([p[0] * u[1], -np.sin(u[0])]), 2, ["rate"])
    stepping = Stepping((0.0, 5.0), "rk4", dt=5.0 / 200)
    cost = Terminal(lambda t, u, p: u[0] ** 2)
    run = solve(problem, [1.0, 0.0], [0.5], stepping, checkpoint=Checkpoints(memory))
    whole = solve(problem, [1.0, 0.0], [0.5], stepping)
    products = [
        ds.hessian_product(trajectory, cost, np.eye(2), [[1.0], [0.5]], engine="vectors")
        for trajectory in (run, whole)
    ]
    # forward, and back as a gradient; the end of a window is taken twice now and then
    assert run.stored.steps <= run.n_steps + 1.05 * repeated_steps(run.n_steps, memory)
    for ours, reference in zip(*products, strict=True):
        np.testing.assert_array_equal(ours.u0, reference.u0)
        np.testing.assert_array_equal(ours.p, reference.p)
    along = ds.tangent(run, [1.0, 0.0], [1.0], engine="vectors")
    reference = ds.tangent(whole, [1.0, 0.0], [1.0], engine="vectors").u
    assert len(along.states.made) <= memory + 3
    for number in range(run.n_steps, -1, -1):
        np.testing.assert_array_equal(along.states[number].array, reference[number])
        assert len(along.states.made) <= memory + 3
        assert len(run.stored.made) <= memory + 4


@pytest.mark.parametrize("engine", ["vectors", "arrays"])
def test_values_of_data_cost_no_step_more(engine):
    times = np.linspace(0.05, 1.0, 20)
    data = ds.LeastSquares(times, np.exp(-0.7 * times)) + ds.Terminal(lambda t, u, p: p[0] * u[0])
    stepping = Stepping((0.0, 1.0), "rk4", dt=1.0 / 100)
    run = solve(DECAY, [1.0], [0.5], stepping, times, checkpoint=Checkpoints(10))
    ours = adjoint(run, [data, LAST], engine)
    assert run.stored.steps == repeated_steps(100, 10)
    whole = solve(DECAY, [1.0], [0.5], stepping, times)
    for gradient, reference in zip(ours, adjoint(whole, [data, LAST], engine), strict=True):
        assert gradient.value == reference.value
        np.testing.assert_allclose(gradient.p, reference.p, rtol=1e-14)


def test_a_number_of_states_below_one_is_refused():
    for number in (0, -3, 2.5, True):
        with pytest.raises(InputError, match=f"memory = {number}"):
            Checkpoints(number)


def test_what_needs_all_states_is_refused():
    start = DECAY, [1.0], [0.5]
    stepping = Stepping((0.0, 1.0), "rk5dp", rtol=1e-6, control="sensitivities")
    with pytest.raises(ds.UnsupportedError, match=r"memory=3, .*\) with control = 'sensitivities'"):
        solve(*start, stepping, checkpoint=Checkpoints(3))
    stepping = Stepping((0.0, 1.0), "rk4", dt=0.1)
    with pytest.raises(ds.UnsupportedError, match=r'memory=3, .*\) with petsc_trajectory = "disk"'):
        solve(*start, stepping, checkpoint=Checkpoints(3), petsc_trajectory="disk")


def test_sweeps_in_c_take_no_step_more_again():
    model = ds.trace(lambda t, u, p: -p.rate * u, 3, {"rate": ()})
    stepping = Stepping((0.0, 1.0), "rk4", dt=1.0 / 300)
    run = solve(model, np.ones(3), [0.5], stepping, checkpoint=Checkpoints(10))
    gradient = adjoint(run, LAST, "compiled")
    assert run.stored.steps == repeated_steps(300, 10)
    assert abs(gradient.p[0] + np.exp(-0.5)) < 1e-9


def test_sweeps_in_c_through_events_never_ask_for_all_states(monkeypatch):
    half = ds.Event(lambda t, u, p: u[0] - 0.5, lambda t, u, p: 3.0 * u, direction=-1, name="half")
    model = ds.trace(lambda t, u, p: -p.rate * u, 1, {"rate": ()}, events=[half])
    stepping = Stepping((0.0, 2.0), "rk4", dt=0.01)
    most, of_all = [], trajectory_module.rows_of

    def counted(states):
        most.append(len(states))
        return of_all(states)

    monkeypatch.setattr(trajectory_module, "rows_of", counted)
    run = solve(model, [1.0], [0.5], stepping, checkpoint=Checkpoints(10))
    gradient = adjoint(run, LAST, "compiled")
    assert gradient.engine == "compiled"
    assert max(most) <= 10 + 3  # what is promised: the checkpoints, and what a sweep works with
    whole = solve(model, [1.0], [0.5], stepping)
    assert len(whole.crossings) == 1
    np.testing.assert_allclose(gradient.p, adjoint(whole, LAST, "vectors").p, rtol=1e-13)


# ---- what fits into memory

IN_LITTLE_MEMORY = """
import json, resource
import numpy as np, psutil
import daeosens as ds
from daeosens.timestepping import Checkpoints

SIZE, STEPS = 200_000, 200  # 320 MB of states
rates = np.linspace(0.5, 1.0, SIZE)
product = lambda t, u, p, v: -p[0] * rates * v
decay = ds.ODE(
    lambda t, u, p: -p[0] * rates * u,
    SIZE,
    ["rate"],
    jacobian=ds.problem.Products(product, product),
    jacobian_p=lambda t, u, p: (-rates * u)[:, None],
)
mean = ds.Terminal(lambda t, u, p: u.mean(), lambda t, u, p: np.full(SIZE, 1.0 / SIZE))
stepping = ds.Stepping((0.0, 1.0), "rk2a", dt=1.0 / STEPS)
u0 = np.ones(SIZE)
# room for the buffers of OpenBLAS too, which asks for them for ever where there is none
limit = psutil.Process().memory_info().vms + 320 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
found = {}
# first, as long as nothing that was freed lies in pieces
adaptive = ds.solve(decay, u0, [0.5], ds.Stepping((0.0, 1.0), "rk3bs", rtol=1e-3))
found["adaptive"] = [adaptive.n_steps, len(adaptive.stored.made)]
del adaptive
run = ds.solve(decay, u0, [0.5], stepping)
found["kept"], found["told"] = len(run.stored.made), str(run)
ours = ds.adjoint(run, mean)
del run
control = ds.Parameters({"rate": ds.Parameter(0.5)}, u0)
functional = ds.Reduced(decay, mean, stepping, control)
_, gradient = functional.value_and_gradient(functional.start())
found["gradients"] = [float(ours.p[0]), float(gradient.array[0])]
found["exact"] = float((-rates * np.exp(-0.5 * rates)).mean())
del functional
try:
    ds.solve(decay, u0, [0.5], stepping, checkpoint="states")
except ds.InputError as error:
    found["refused"] = str(error)
resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 10 * 2**20, limit))
try:
    ds.solve(decay, u0, [0.5], stepping)
except ds.InputError as error:
    found["hopeless"] = str(error)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_run_keeps_as_many_states_as_fit_into_memory():
    command = [sys.executable, "-c", IN_LITTLE_MEMORY]
    # a thread reserves 64 MB for what it allocates, however little that is
    alone = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=alone
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert 20 < answer["kept"] < 120  # of 201
    assert answer["told"].endswith(f"keeps {answer['kept']} of 201 states")
    np.testing.assert_allclose(answer["gradients"], answer["exact"], rtol=1e-5)
    assert answer["gradients"][0] == answer["gradients"][1]
    assert 'checkpoint = "states": 201 states take 322 MB a rank, and' in answer["refused"]
    assert "try: checkpoint=timestepping.Checkpoints(" in answer["refused"]
    steps, kept = answer["adaptive"]
    assert kept == steps + 1  # there was room for all of them
    assert "a state takes 1.6 MB a rank, of which" in answer["hopeless"]


def resident(line="VmRSS"):
    """Return the bytes that this process has in memory, or had at most (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{line}:")[2].split()[0])


@pytest.mark.mpi
def test_no_more_states_are_in_memory_than_are_kept_on_any_number_of_ranks():
    """Four hundred states have 100 MB; objects of several ranks are freed late by petsc4py."""
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (128, 128), dof=2)
    model = trace_stencil(lambda t, u, p: p.k * u.laplacian() - u.center**3, grid, ["k"])
    u0 = grid.create_vec()
    u0.set(1.0)
    energy = Terminal(
        lambda t, u, p: 0.5 * u.dot(u), lambda t, u, p, out: u.copy(out), "independent"
    )
    stepping = Stepping((0.0, 0.4), "rk4", dt=1e-3)
    run = solve(model, u0, [1e-3], stepping, checkpoint=Checkpoints(20))
    state = 8 * u0.getLocalSize()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the largest size begins at what is in use now
    begin = resident()
    adjoint(run, energy)
    assert resident("VmHWM") - begin < 60 * state + 8e6


@pytest.mark.parametrize("time", [1.3, 1.7, 2.1, 2.5])
def test_adaptive_runs_pass_events_wherever_the_state_before_is_not_kept(time):
    """The look for jumps of the equations at an event was handed a state that was not there."""
    kick = ds.Event(time, reset=lambda t, u, p: u + p[0])
    problem = ds.ODE(lambda t, u, p: -p[0] * u * u, 1, 1, events=[kick])
    stepping, cost = ds.Stepping((0.0, 3.0), "rk3bs", rtol=1e-7), ds.Terminal(lambda t, u, p: u[0])
    numbers = []
    for memory in ("states", Checkpoints(2), Checkpoints(3)):
        run = ds.solve(problem, [1.0], [0.7], stepping, checkpoint=memory)
        gradient = ds.adjoint(run, cost, "vectors")
        numbers.append((gradient.u0[0], gradient.p[0]))
    assert numbers == 3 * numbers[:1]
