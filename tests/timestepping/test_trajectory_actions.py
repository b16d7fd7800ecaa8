"""Schedules of checkpoint_schedules: their steps and memory, and the same bits."""

import copy
import errno
import os

import checkpoint_schedules as library
import numpy as np
import pytest
from checkpoint_schedules import (
    Copy,
    DiskRevolve,
    EndForward,
    EndReverse,
    Forward,
    HRevolve,
    MixedCheckpointSchedule,
    Move,
    MultistageCheckpointSchedule,
    PeriodicDiskRevolve,
    Reverse,
    Revolve,
    SingleDiskStorageSchedule,
    SingleMemoryStorageSchedule,
    StorageType,
    TwoLevelCheckpointSchedule,
)
from distributed import make, make_cost
from petsc4py import PETSc

import daeosens as ds
from daeosens.timestepping.trajectory.actions import follow
from daeosens.timestepping.trajectory.schedule import repeated_steps
from daeosens.timestepping.trajectory.scratch import Scratch

RAM, DISK = StorageType.RAM, StorageType.DISK

SCHEDULES = {
    "multistage": lambda n: MultistageCheckpointSchedule(n, 10, 0),
    "multistage, disk": lambda n: MultistageCheckpointSchedule(n, 4, 6),
    "two levels": lambda n: TwoLevelCheckpointSchedule(10, 4, binomial_storage=RAM),
    "two levels, disk": lambda n: TwoLevelCheckpointSchedule(7, 4),
    "mixed": lambda n: MixedCheckpointSchedule(n, 10, storage=RAM),
    "mixed, disk": lambda n: MixedCheckpointSchedule(n, 30),
    "h-revolve": lambda n: HRevolve(n, 4, 6),
    "h-revolve, cheap disk": lambda n: HRevolve(n, 4, 30, wd=0.1, rd=0.1),
    "disk revolve": lambda n: DiskRevolve(n, 4),
    "periodic disk revolve": lambda n: PeriodicDiskRevolve(n, 4),
    "revolve": lambda n: Revolve(n, 10),
    "memory": lambda n: SingleMemoryStorageSchedule(),
    "disk": lambda n: SingleDiskStorageSchedule(),
    "disk, moved": lambda n: SingleDiskStorageSchedule(move_data=True),
}
every_schedule = pytest.mark.parametrize("make_schedule", SCHEDULES.values(), ids=SCHEDULES)


def theory(schedule, steps):
    """What the actions say: steps taken again, states written and read, and how many there are.

    Without the first state, which is in memory all the time, and steps that find again what their
    own adjoint needs: the sweep does that, from the states before them.
    """
    schedule = copy.deepcopy(schedule)
    again = writes = reads = 0
    ended, there, most = False, set(), {RAM: 0, DISK: 0}
    for action in schedule:
        if isinstance(action, Forward):
            end = min(action.n1, steps)
            if (action.write_ics or action.write_adj_deps) and action.storage in most and action.n0:
                writes += action.storage is DISK
                there.add((action.n0, action.storage))
            if ended:
                # of steps that are swept back together the states between them are needed
                found = action.write_adj_deps and action.storage is StorageType.WORK
                again += end - action.n0 - found
            if schedule.max_n is None and end == steps:
                schedule.finalize(steps)
        elif isinstance(action, (Copy, Move)):
            reads += bool(action.n) and action.from_storage is DISK
            if isinstance(action, Move):
                there.discard((action.n, action.from_storage))
            if action.n and action.to_storage in most:
                there.add((action.n, action.to_storage))
        ended = ended or isinstance(action, EndForward)
        most = {place: max(n, sum(at is place for _, at in there)) for place, n in most.items()}
        if isinstance(action, EndReverse):
            break
    return int(again), writes, reads, most[RAM], most[DISK]


class Watched(Scratch):
    """A file that counts the states in it."""

    most = 0

    def store(self, state):
        filed = super().store(state)
        Watched.most = max(Watched.most, self._slots - len(self._free))
        return filed


def pendulum(events=(), **more):
    return ds.ODE(
        lambda t, u, p: np.array([u[1], -p[0] * np.sin(u[0])]), 2, ["k"], events=events, **more
    )


LAST = ds.Terminal(lambda t, u, p: u[0])
START = [1.0, 0.0], [1.3]


def gradient(run, engine="vectors", cost=LAST):
    found = ds.adjoint(run, cost, engine)
    return np.array([*found.u0, *found.p])


# checkpoint_schedules 1.0.4 makes no tables of one or two steps
SOME = [(name, n) for name in SCHEDULES for n in (1, 2, 60) if n == 60 or "revolve" not in name]


@pytest.mark.parametrize(("name", "steps"), SOME)
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_steps_and_memory_are_what_the_actions_say(method, name, steps, monkeypatch):
    make_schedule = SCHEDULES[name]
    monkeypatch.setattr("daeosens.timestepping.thinning.Scratch", Watched)
    Watched.most = 0
    stepping = ds.Stepping((0.0, 3.0), method, dt=3.0 / steps)
    schedule = make_schedule(steps)
    again, writes, reads, memory, disk = theory(schedule, steps)
    start = pendulum(), *START, stepping
    run = ds.solve(*start, checkpoint=schedule)
    # besides the first and the last one, and two that a sweep works with
    room = memory + 4 if name != "memory" else steps + 1
    assert len(run.stored.made) <= room
    np.testing.assert_array_equal(gradient(run), gradient(ds.solve(*start)))
    if isinstance(schedule, TwoLevelCheckpointSchedule):
        # the run itself leaves the states that the first sweep would take again behind the last
        # one on disk
        period = schedule._period
        assert again - period < run.stored.steps <= again
    else:
        assert run.stored.steps == again
    # the last state on disk is read when it is still in memory, and not written where it is moved
    assert writes - 1 <= run.stored.writes <= writes
    assert reads - 1 <= run.stored.reads <= reads
    assert Watched.most <= disk
    again = ds.solve(*start, checkpoint=schedule)  # the object is still as it was
    whole = ds.solve(*start)
    for number in range(steps, -1, -1):
        np.testing.assert_array_equal(again.states[number].array, whole.states[number].array)
        assert len(again.stored.made) <= room
    assert again.stored.steps == run.stored.steps


@pytest.mark.slow
def test_binomial_schedules_and_ours_take_as_many_steps():
    for steps, memory in [(30, 3), (100, 10), (61, 5)]:
        for schedule in (
            MultistageCheckpointSchedule(steps, memory, 0),
            MixedCheckpointSchedule(steps, memory, storage=RAM),
            Revolve(steps, memory),
        ):
            stepping = ds.Stepping((0.0, 1.0), "rk2a", dt=1.0 / steps)
            run = ds.solve(pendulum(), *START, stepping, checkpoint=schedule)
            gradient(run)
            assert run.stored.steps == repeated_steps(steps, memory)


def turning():
    return ds.Event(lambda t, u, p: u[0], reset=lambda t, u, p: u * [1.0, 0.9], name="turn")


def traced(events=()):
    return ds.trace(lambda t, u, p: np.array([u[1], -p[0] * np.sin(u[0])]), 2, ["k"], events=events)


RUNS = {
    "adaptive": (pendulum, (), {"rtol": 1e-7, "atol": 1e-10}, "rk5dp"),
    "implicit": (pendulum, (), {"rtol": 1e-5, "atol": 1e-7}, "esdirk4"),
    "events": (pendulum, [turning()], {"rtol": 1e-7, "atol": 1e-10}, "rk5dp"),
    "events, fixed": (pendulum, [turning()], {"dt": 0.1}, "esdirk3"),
    "compiled": (traced, (), {"rtol": 1e-7, "atol": 1e-10}, "rk5dp"),
    "compiled, events": (traced, [turning()], {"dt": 0.1}, "cn"),
}


@pytest.mark.slow
@every_schedule
@pytest.mark.parametrize("setting", RUNS.values(), ids=RUNS)
def test_bits_of_both_orders(setting, make_schedule):
    style, events, sizes, method = setting
    start = style(events=events), *START, ds.Stepping((0.0, 9.0), method, **sizes)
    whole = ds.solve(*start)
    schedule = make_schedule(whole.n_steps)
    assert len(whole.crossings) == 3 * len(events)
    run = ds.solve(*start, checkpoint=schedule)
    np.testing.assert_array_equal(gradient(run), gradient(whole))
    np.testing.assert_array_equal(gradient(run), gradient(whole))  # once more
    np.testing.assert_allclose(
        gradient(run, "auto"), gradient(whole, "auto"), rtol=1e-12, atol=1e-13
    )
    rng = np.random.default_rng(5)
    along = rng.standard_normal((2, 2)), rng.standard_normal((2, 1))
    squares = ds.LeastSquares([9.0], [[0.4, 0.1]]) + ds.Terminal(lambda t, u, p: u[0] * p[0] ** 2)
    run = ds.solve(*start, checkpoint=schedule)
    products = (ds.hessian_product(one, squares, *along, engine="vectors") for one in (run, whole))
    for ours, reference in zip(*products, strict=True):
        np.testing.assert_array_equal(ours.u0, reference.u0)
        np.testing.assert_array_equal(ours.p, reference.p)
    np.testing.assert_array_equal(run.u, whole.u)


@pytest.mark.parametrize("name", ["multistage, disk", "two levels", "mixed", "h-revolve"])
def test_functionals_take_a_copy_for_each_run(name):
    times = [0.33, 1.1]
    setting = (
        pendulum(),
        ds.LeastSquares(times, [[0.9, 0.1], [0.2, -0.4]]),
        ds.Stepping((0.0, 2.0), "esdirk4", dt=0.05),
        ds.Parameters({"k": ds.Parameter(0.8)}, [1.0, 0.2]),
    )
    steps = ds.solve(setting[0], [1.0, 0.2], [0.8], setting[2], times).n_steps
    found = []
    for checkpoint in ("states", SCHEDULES[name](steps)):
        functional = ds.Reduced(*setting, checkpoint=checkpoint)
        x = functional.start()
        dx = x.duplicate()
        dx.set(1.0)
        for value in (0.8, 0.9):
            x.set(value)
            vectors = (
                functional.gradient(x),
                functional.hessian_product(x, dx),
                functional.gauss_newton_product(x, dx),
            )
            found.append(np.concatenate([vec.array for vec in vectors]))
    np.testing.assert_allclose(found[2:], found[:2], rtol=1e-12)


def test_two_levels_serve_a_second_sweep_and_others_begin_with_the_run():
    stepping = ds.Stepping((0.0, 3.0), "rk4", dt=0.03)
    for name, second in [
        ("two levels", theory(SCHEDULES["two levels"](100), 100)[0]),
        ("disk", 0),
        ("multistage", 99 + repeated_steps(100, 10)),
    ]:
        run = ds.solve(pendulum(), *START, stepping, checkpoint=SCHEDULES[name](100))
        first = gradient(run)
        before = run.stored.steps
        np.testing.assert_array_equal(gradient(run), first)
        assert second - 2 <= run.stored.steps - before <= second


class Random(library.CheckpointSchedule):
    """Actions at random: several steps at a time, memory and disk, copies from one to the other."""

    def __init__(self, steps, seed):
        super().__init__(steps)
        self.seed, self.done = seed, False

    def uses_storage_type(self, storage_type):
        return True

    @property
    def is_exhausted(self):
        return self.done

    def _iterator(self):
        rng = np.random.default_rng(self.seed)
        places = list[StorageType]([RAM, DISK])
        stack = []

        def forward(first, last):
            # to ``last``, from where all steps of a part are swept back together
            while first < last:
                n1 = int(rng.integers(first + 1, last + 1))
                writes = rng.random() < 0.4 and all(first != n for n, _ in stack)
                place = places[rng.integers(2)] if writes else StorageType.WORK
                if writes:
                    stack.append((first, place))
                self._n = n1
                yield Forward(first, n1, bool(writes), False, place)
                first = n1

        if self._max_n > 1:
            stack.append((0, RAM))
        here = int(rng.integers(1, self._max_n)) if self._max_n > 1 else 0
        if here:
            self._n = here
            yield Forward(0, here, True, False, RAM)
        begin = max(here, self._max_n - int(rng.integers(1, 4)))
        yield from forward(here, begin)
        self._n = self._max_n
        yield Forward(begin, self._max_n, False, True, StorageType.WORK)
        yield EndForward()
        end = self._max_n
        while True:
            self._r = self._max_n - begin
            yield Reverse(end, begin, True)
            end = begin
            if not end:
                break
            while stack[-1][0] >= end:
                yield Move(*stack.pop(), StorageType.NONE)
            n, place = stack[-1]
            if place is DISK and rng.random() < 0.5:
                yield Copy(n, DISK, RAM)
                yield Move(n, DISK, StorageType.NONE)
                stack[-1] = n, RAM
                place = RAM
            yield Copy(n, place, StorageType.WORK)
            begin = max(n, end - int(rng.integers(1, 4)))
            yield from forward(n, begin)
            yield Forward(begin, end, False, True, StorageType.WORK)
        self.done = True
        yield EndReverse()


@pytest.mark.parametrize("seed", range(12))
def test_schedules_at_random(seed):
    event = [turning()] if seed % 3 == 0 else []
    sizes = {"dt": 0.1} if seed % 2 else {"rtol": 1e-5, "atol": 1e-7}
    start = pendulum(event), *START, ds.Stepping((0.0, 4.0), "rk5dp", **sizes)
    whole = ds.solve(*start)
    schedule = Random(whole.n_steps, seed)
    run = ds.solve(*start, checkpoint=schedule)
    np.testing.assert_array_equal(gradient(run), gradient(whole))
    again, _, reads, memory, _ = theory(schedule, whole.n_steps)
    if not event:
        assert run.stored.steps <= again
        assert run.stored.reads <= reads
    run = ds.solve(*start, checkpoint=schedule)
    for number in range(run.n_steps, -1, -1):
        np.testing.assert_array_equal(run.states[number].array, whole.states[number].array)
        # three steps at most are swept back together; beside events three states are kept
        assert len(run.stored.made) <= memory + 6 + 3 * len(run.crossings)


# ---- what is refused


def test_a_schedule_of_another_number_of_steps_is_known_before_the_first_one():
    calls = []
    problem = ds.ODE(lambda t, u, p: (calls.append(t), -p[0] * u)[1], 1, ["k"])
    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.01)
    told = r"MultistageCheckpointSchedule of 90 steps, and the run takes 100"
    with pytest.raises(ds.InputError, match=told):
        ds.solve(problem, [1.0], [0.5], stepping, None, MultistageCheckpointSchedule(90, 5, 0))
    assert calls in ([], [0.0, 0.0])  # what is asked about the knots of controls


def test_adaptive_runs_tell_how_many_steps_a_schedule_is_to_have():
    stepping = ds.Stepping((0.0, 3.0), "rk5dp", rtol=1e-6)
    steps = ds.solve(pendulum(), *START, stepping).n_steps
    for wrong in (steps - 3, steps + 5):
        told = f"Revolve of {wrong} steps, and the run takes {steps}"
        with pytest.raises(ds.InputError, match=told):
            ds.solve(pendulum(), *START, stepping, checkpoint=Revolve(wrong, 4))
    run = ds.solve(pendulum(), *START, stepping, checkpoint=Revolve(steps, 4))
    assert run.n_steps == steps


def test_what_cannot_be_followed_is_refused():
    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    used = MultistageCheckpointSchedule(10, 3, 0)
    next(used)
    with pytest.raises(ds.InputError, match=r"MultistageCheckpointSchedule.* has come to step \d"):
        ds.solve(pendulum(), *START, stepping, checkpoint=used)
    over = TwoLevelCheckpointSchedule(3, 2)
    for action in over:
        if isinstance(action, Forward) and action.n1 >= 10 and over.max_n is None:
            over.finalize(10)
        if isinstance(action, EndReverse):
            break
    with pytest.raises(ds.InputError, match="has come to step"):
        ds.solve(pendulum(), *START, stepping, checkpoint=over)
    with pytest.raises(ds.InputError, match=r"NoneCheckpointSchedule.*: step 0 is not swept back"):
        ds.solve(pendulum(), *START, stepping, checkpoint=library.NoneCheckpointSchedule())
    with pytest.raises(ds.InputError, match="a schedule of the library checkpoint_schedules"):
        ds.solve(pendulum(), *START, stepping, checkpoint=Revolve)

    class Lost(Random):
        def _iterator(self):
            yield Forward(0, self._max_n, False, True, StorageType.WORK)
            yield Copy(3, RAM, StorageType.WORK)

    with pytest.raises(ds.InputError, match=r"Copy\(3, .*: nothing has been written there"):
        ds.solve(pendulum(), *START, stepping, checkpoint=Lost(10, 0))

    class Rushing(Random):
        def _iterator(self):
            yield EndForward()

    adaptive = ds.Stepping((0.0, 1.0), "rk5dp", rtol=1e-5)
    with pytest.raises(
        ds.InputError, match=r"EndForward\(\): no step forward while the run goes on"
    ):
        ds.solve(pendulum(), *START, adaptive, checkpoint=Rushing(None, 0))

    class Ending(Random):
        def _iterator(self):
            yield Forward(0, 2, True, False, RAM)

    with pytest.raises(ds.InputError, match="None: no step forward while the run goes on"):
        ds.solve(pendulum(), *START, adaptive, checkpoint=Ending(None, 0))

    class Endless(Random):
        def _iterator(self):
            while True:
                yield EndForward()

    with pytest.raises(ds.InputError, match="actions without a step back or an end"):
        ds.solve(pendulum(), *START, stepping, checkpoint=Endless(10, 0))


def test_what_needs_all_states_is_refused():
    start, schedule = (pendulum(), *START), SCHEDULES["two levels"](10)
    stepping = ds.Stepping((0.0, 1.0), "rk5dp", rtol=1e-6, control="sensitivities")
    with pytest.raises(
        ds.UnsupportedError, match=r"TwoLevelCheckpointSchedule with control = 'sens"
    ):
        ds.solve(*start, stepping, checkpoint=schedule)
    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    with pytest.raises(
        ds.UnsupportedError, match="TwoLevelCheckpointSchedule with petsc_trajectory"
    ):
        ds.solve(*start, stepping, checkpoint=schedule, petsc_trajectory="memory")
    delayed = ds.DDE(lambda t, u, past, p: -p[0] * past[0], 1, ["k"], delays=0.5, history=[1.0])
    with pytest.raises(
        ds.UnsupportedError, match="TwoLevelCheckpointSchedule for a delay equation"
    ):
        ds.solve(delayed, [1.0], [0.5], stepping, checkpoint=schedule)


def test_a_disk_that_is_full_in_the_end_is_an_error_of_the_sweep_alone(monkeypatch):
    write = os.pwrite

    def full(file, data, place):
        if place >= 10 * 16:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data, place)

    monkeypatch.setattr(os, "pwrite", full)
    stepping = ds.Stepping((0.0, 3.0), "rk5dp", rtol=1e-10, atol=1e-12)
    run = ds.solve(pendulum(), *START, stepping, checkpoint=SingleDiskStorageSchedule())
    assert run.n_steps > 40
    assert np.isfinite(run.final.array).all()
    with pytest.raises(ds.SolveError, match="could not be kept: No space left on device"):
        gradient(run)


# ---- on several ranks


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["multistage, disk", "two levels", "mixed", "h-revolve", "disk"])
@pytest.mark.parametrize(("style", "method"), [("dmda", "cn"), ("dense", "rk5dp")])
def test_on_several_ranks(style, method, name):
    case = make(PETSc.COMM_WORLD, style)
    sizes = {"rtol": 1e-3, "atol": 1e-3} if method == "rk5dp" else {}
    stepping = ds.Stepping((0.0, 0.4), method, dt=0.01, **sizes)
    cost = make_cost(case)
    start = case.problem, case.u0, case.p, stepping, cost.times
    whole = ds.solve(*start)
    run = ds.solve(*start, checkpoint=SCHEDULES[name](whole.n_steps))
    ours, reference = (ds.adjoint(one, cost, "vectors") for one in (run, whole))
    assert run.thinned
    assert ours.value == reference.value
    np.testing.assert_array_equal(ours.u0, reference.u0)
    np.testing.assert_array_equal(ours.p, reference.p)
    product, expected = (
        ds.hessian_product(one, cost, case.u0, engine="vectors") for one in (run, whole)
    )
    np.testing.assert_array_equal(product.u0_vec.array, expected.u0_vec.array)


@pytest.mark.mpi
def test_another_schedule_on_one_rank_is_an_error_on_all():
    comm = PETSc.COMM_WORLD
    if comm.size == 1:
        pytest.skip("needs several ranks")
    case = make(comm, "dmda")
    stepping = ds.Stepping((0.0, 0.1), "rk4", dt=0.01)
    for few in (
        MultistageCheckpointSchedule(10, 3 + comm.rank, 0),
        Revolve(10, 3, wd=comm.rank) if comm.rank else Revolve(10, 4),
    ):
        with pytest.raises(ds.InputError, match="schedule is"):
            ds.solve(case.problem, case.u0, case.p, stepping, checkpoint=few)


# ---- many steps


def test_ways_of_many_steps_take_little_memory():
    schedule = MultistageCheckpointSchedule(20_000, 50, 0)
    followed = follow(schedule, 20_000)
    assert follow(schedule, 20_000) is followed  # for the next run of a fit
    assert (followed.memory, followed.disk) == (49, 0)
    again, at = 0, 20_000
    for number in range(19_999, -1, -1):
        first, last, filed, held = followed.way(0, 20_000, number)
        assert (first, last, filed) == (number, number + 1, [])
        assert len(held) <= 49
        at = number
    assert (again, at) == (0, 0)
