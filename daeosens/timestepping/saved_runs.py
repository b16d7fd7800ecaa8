"""Runs in files: the log of steps with all states, read back on any number of ranks.

What a file cannot hold are the equations.  With the problem that it is given, a loaded run is asked
for anything that the run itself could be asked for; a step is taken again first, which tells
whether it is the same problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import InputError, UnsupportedError, require
from daeosens.io.files import admit_path
from daeosens.io.hdf5 import RowBlock, block_of
from daeosens.io.json import plain
from daeosens.io.saved import (
    check_same,
    described,
    of_another_problem,
    read_description,
    writable_path,
)
from daeosens.io.vec_series import Series, read_series, read_small, write_series
from daeosens.methods.events.consistent_reset import ConsistentReset
from daeosens.methods.events.event_function import Switch, lower_events
from daeosens.methods.events.event_step import StepRecord
from daeosens.methods.events.reset import Jump, Reset
from daeosens.petsc.agreement import on_first_rank
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, largest, read
from daeosens.problem.equations import ODE
from daeosens.problem.problem import Problem
from daeosens.timestepping.events.simultaneous import FiredEvent, HybridState
from daeosens.timestepping.smooth_run import states_inside
from daeosens.timestepping.step_log import FLAT
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.crossing import Crossing
from daeosens.timestepping.trajectory.states import States, rows_of, view_of
from daeosens.timestepping.trajectory.trajectory import Effort, Stages, Trajectory, check_trajectory

Integers: TypeAlias = npt.NDArray[np.int64]

FORMAT = "daeosens run 1"

LOOKS = 16
"""Steps, at most, whose ends are compared with the functions of events."""


def save_run(run: Trajectory, path: str | Path) -> None:
    """Write a run into a file, from which ``load_run`` makes it again.  Collective.

    On several ranks each writes its own part into a file beside the named one, which shows them as
    one; nothing is gathered.  A file that is there is replaced when the new one is whole.

    Parameters
    ----------
    run : Trajectory
        From ``solve``; steps that checkpoints have left out are taken again.
    path : path or str
        The file, HDF5.

    Raises
    ------
    DaeosensError
        On every rank: the file cannot be written.
    UnsupportedError
        Events change a distributed parameter field.

    Examples
    --------
    >>> import tempfile
    >>> from daeosens import ODE, Stepping, Terminal, adjoint, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_run(run, f"{folder}/run.h5")
    ...     again = load_run(f"{folder}/run.h5", decay)
    >>> last = Terminal(lambda t, u, p: u[0])
    >>> bool(adjoint(again, last).p == adjoint(run, last).p)
    True
    """
    check_trajectory(run)
    path = writable_path(path)
    problem = run.problem
    comm = problem.comm.tompi4py()
    agree(problem.comm, "save_run", path=str(path))
    if any(
        isinstance(crossing.p, PETSc.Vec) and crossing.p is not run.p for crossing in run.crossings
    ):
        raise UnsupportedError(
            "a file of a run whose events change a parameter field",
            remedy="run.states, written one by one",
        )
    block = block_of(problem.state)
    series = {"states": Series(run.stored, len(run.times), block)}
    stage_steps, stages = _stages(run)
    if len(stage_steps):
        n_rest = run.stepping.resolved_method.n_stages - 1
        series["stages"] = Series(stages, n_rest * len(stage_steps), block)
    small: dict[str, Any] = {
        "run": described(FORMAT, _description(run, block)),
        "times": np.array(run.times),
        "step_sizes": np.array(run.step_sizes),
        "stage_steps": stage_steps,
    }
    if isinstance(run.p, PETSc.Vec):
        series["p"] = Series([run.p], 1, block_of(run.p))
    else:
        # those after each event besides
        small["p"] = np.array([run.p, *(crossing.p for crossing in run.crossings)], dtype=float)
    write_series(path, comm, series, small)


def _stages(run: Trajectory) -> tuple[Integers, Iterator[PETSc.Vec]]:
    """Return the numbers of the steps whose stages were kept, and these but the first of each."""
    if isinstance(run.kept, np.ndarray):
        steps = list(range(min(len(run.kept), run.n_steps)))
    else:
        steps = sorted(run.kept)
    return np.array(steps, dtype=np.int64), (vec for n in steps for vec in run.stages[n][1:])


def _description(run: Trajectory, block: RowBlock) -> dict[str, Any]:
    problem, stepping = run.problem, run.stepping
    switches: Sequence[Switch] = () if problem.smooth else lower_events(problem)
    where = {id(switch): number for number, switch in enumerate(switches)}
    return {
        "form": problem.form,
        "shape": list(block.shape),
        "state_names": list(problem.state_names),
        "parameter_names": list(problem.parameter_names),
        "field_parameter": problem.field_parameter,
        "stepping": plain({f.name: getattr(stepping, f.name) for f in fields(stepping) if f.init}),
        "choice": stepping.choice,
        "effort": list(run.effort),
        "events": [
            [crossing.name, crossing.t, crossing.step, crossing.mode, crossing.mode_before]
            for crossing in run.crossings
        ],
        "records": [
            [
                record.mode,
                record.slope,
                record.timed,
                record.changed,
                # of an event that only a monitor knows the number is -1
                None if record.ends_at is None else where.get(id(record.ends_at), -1),
                record.jump is not None,
            ]
            for record in run.records
        ],
    }


def load_run(path: str | Path, problem: Problem | None = None) -> Trajectory:
    """Read a run that ``save_run`` has written.  Collective on ``problem.comm``.

    Parameters
    ----------
    path : path or str
        The file; those of the ranks that wrote it lie beside it.
    problem : Problem, optional
        The same equations, on any number of ranks.  The first and the last step are compared, and
        where events happen and lead.  Without them the states, times and events can be looked at,
        on one rank; each that calls reads all of them.

    Returns
    -------
    Trajectory
        Derivatives are those of the run that was saved: to the last digit by ``engine="vectors"``
        on as many ranks, else to rounding.

    Raises
    ------
    InputError
        On every rank: no file of a run, or of another format; a damaged one; another problem, whose
        step or event leads elsewhere, or whose event is not where it was.
    UnsupportedError
        A problem with delays or embedded optimisers, whose runs know more than a file keeps.

    Examples
    --------
    >>> import tempfile
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_run(run, f"{folder}/run.h5")
    ...     again = load_run(f"{folder}/run.h5")
    >>> again.final
    State([0.36787946])
    """
    path = admit_path(path, "path")
    if problem is not None:
        require(problem, Problem, "problem", "that of the run: ODE(f, size, parameters)")
        agree(problem.comm, "load_run", path=str(path))
        if problem.delays is not None or problem.monitor is not None:
            raise UnsupportedError(
                "derivatives of a loaded run with delays or embedded optimisers",
                expected="load_run(path) without the problem, for its states",
                remedy="solve(...) again",
            )
    comm = MPI.COMM_SELF if problem is None else problem.comm.tompi4py()
    told, small = on_first_rank(comm, lambda: _read_small(path))
    stepping = _stepping(told)
    if problem is None:
        problem = _without_equations(told, path)
    else:
        _check_names(problem, told, path)
    state = problem.state
    states = read_series(path, "states", comm, block_of(state), problem.create_state)
    if len(states) != len(small["times"]):
        raise InputError(f"{path}: {len(states)} states at {len(small['times'])} times")
    p, later = _parameters(problem, told, small, path, comm)
    stored: Sequence[PETSc.Vec] = tuple(states)
    # as logs of runs keep those of small systems
    flat = state.comm.size == 1 and state.size <= FLAT and not told["records"]
    if flat and problem.stencil is None:
        stored = States(rows_of(states), states[0])
    run = Trajectory(
        problem,
        p,
        stepping,
        _fixed(small["times"]),
        _fixed(small["step_sizes"]),
        stored,
        Effort(*told["effort"]),
        inside=states_inside,
    )
    run = _with_stages(run, path, small["stage_steps"], flat=isinstance(stored, States))
    if told["records"]:
        run = _with_events(run, told, later, path)
    if "field" not in problem.sources:
        _check_steps(run, path)
        _check_events(run, path)
    return run


def _fixed(values: Array) -> Array:
    values.setflags(write=False)  # what sweeps follow
    return values


def _read_small(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is told of a run, and the arrays that every rank has."""
    told = read_description(path, "run", FORMAT)
    names = ["times", "step_sizes", "stage_steps"] + ["p"] * (not told["field_parameter"])
    return told, {name: read_small(path, name) for name in names}


def _stepping(told: Mapping[str, Any]) -> Stepping:
    stepping = Stepping(**told["stepping"])
    object.__setattr__(stepping, "choice", told["choice"])
    return stepping


def _without_equations(told: Mapping[str, Any], path: Path) -> Problem:
    """Return a problem of which nothing but the layout is known."""

    def refuse(*_arguments: Any) -> Any:
        raise InputError(
            f"{path} has the states of a run, and not its equations",
            expected="the problem, for anything else",
            remedy=f'load_run("{path.name}", problem)',
        )

    shape, names = told["shape"], told["state_names"]
    numbers: list[str] = [] if told["field_parameter"] else told["parameter_names"]
    if len(shape) == 1:
        problem = ODE(refuse, names or shape[0], numbers, jacobian=refuse, jacobian_p=refuse)
    else:
        *points, dof = shape
        sizes = cast("Any", tuple(points[::-1]))
        grid = PETSc.DMDA().create(sizes, dof=dof, comm=PETSc.COMM_SELF)
        problem = ODE(refuse, state=grid, parameters=numbers)
    return replace(problem, sources={**problem.sources, "field": "none"})


def _check_names(problem: Problem, told: Mapping[str, Any], path: Path) -> None:
    pairs = [
        ("form", problem.form, told["form"]),
        ("shape of a state", list(block_of(problem.state).shape), told["shape"]),
        ("unknowns", list(problem.state_names), told["state_names"]),
        ("parameters", list(problem.parameter_names), told["parameter_names"]),
    ]
    for what, here, there in pairs:
        if here != there:
            raise of_another_problem(path, "run", f"{what}: {there} in the file, {here} here")


def _parameters(
    problem: Problem,
    told: Mapping[str, Any],
    small: Mapping[str, Any],
    path: Path,
    comm: MPI.Intracomm,
) -> tuple[Any, list[Any]]:
    """Return the parameters at the start, and those after each event."""
    if told["field_parameter"] and problem.field_parameter:
        new: Callable[[], PETSc.Vec] = problem.parameter.duplicate
        p: Any = read_series(path, "p", comm, block_of(problem.parameter), new)[0]
        return p, [p] * len(told["events"])
    if told["field_parameter"]:  # a problem without equations needs none
        return np.empty(0), [np.empty(0)] * len(told["events"])
    first, *later = small["p"]
    several = [problem.admit_parameters(first)]
    for p in later:  # one object as long as no event changes them
        several.append(several[-1] if np.array_equal(several[-1], p) else p)
    return several[0], several[1:]


def _with_stages(run: Trajectory, path: Path, steps: Integers, *, flat: bool) -> Trajectory:
    """Add the stages that were kept."""
    if not len(steps):
        return run
    state = run.problem.state
    comm = state.comm.tompi4py()
    vecs = read_series(path, "stages", comm, block_of(state), run.problem.create_state)
    n_rest = len(vecs) // len(steps)
    if flat:
        shape = (len(steps), n_rest, state.local_size)
        return replace(run, kept=np.array([read(vec) for vec in vecs]).reshape(shape))
    kept: Stages = {
        int(n): [run.stored[int(n)], *vecs[n_rest * k : n_rest * (k + 1)]]
        for k, n in enumerate(steps)
    }
    return replace(run, kept=kept)


def _with_events(
    run: Trajectory, told: Mapping[str, Any], later: Sequence[Any], path: Path
) -> Trajectory:
    """Add the events of a run, with what sweeps need of each: its function and its jump."""
    problem, states = run.problem, run.stored
    known = "field" not in problem.sources
    switches = list(lower_events(problem)) if known else list[Switch]()
    crossings = tuple(
        Crossing(name, t, step, view_of(states[step]), view_of(states[step + 1]), mode, p, before)
        for (name, t, step, mode, before), p in zip(told["events"], later, strict=True)
    )
    run = replace(run, crossings=crossings)
    nothing = Switch("", None, Reset(problem, None))
    jumps = dict(zip((crossing.step for crossing in crossings), crossings, strict=True))
    firing = _Firing(run, switches, path) if known else None
    records: list[StepRecord] = []
    for n, (mode, slope, timed, changed, ends_at, jumped) in enumerate(told["records"]):
        ends: Switch | None = None
        jump: Jump | None = None
        if ends_at is not None:
            ends = nothing
            if known:
                if not 0 <= ends_at < len(switches):
                    raise of_another_problem(path, "run", f"it has {len(switches)} events")
                ends = switches[int(ends_at)]
        if jumped:
            jump = nothing.jump if firing is None else firing.jump(jumps[n])
        p = run.parameters(n)
        records.append(StepRecord(mode, p, slope, timed, changed, ends, jump))
    return replace(run, records=tuple(records))


class _Firing:
    """Lets the events of a loaded run happen once more, at the states before them."""

    def __init__(self, run: Trajectory, switches: Sequence[Switch], path: Path) -> None:
        problem = run.problem
        modes = problem.modes or {"": problem}
        smooth = {
            name: replace(mode, events=(), modes={}, monitor=None) for name, mode in modes.items()
        }
        self._run, self._path = run, path
        self._consistency = ConsistentReset(smooth, run.stepping.options)
        self._events = list(zip(problem.events, switches, strict=True))

    def jump(self, crossing: Crossing) -> Jump:
        """Return the map of an event.

        Raises
        ------
        InputError
            There is no such event, or it leads elsewhere.
        UnsupportedError
            Several have its name.
        """
        run, n = self._run, crossing.step
        named = [pair for pair in self._events if pair[0].name == crossing.name]
        if not named:
            raise of_another_problem(self._path, "run", f'no event "{crossing.name}" here')
        if len(named) > 1:
            raise UnsupportedError(
                f'a loaded run of a problem with {len(named)} events named "{crossing.name}"',
                remedy="a name for each",
            )
        event, switch = named[0]
        moves = event.reset is not None or event.mode is not None or event.changes
        before = HybridState(crossing.t, run.stored[n], run.parameters(n), crossing.mode_before)
        consistency = self._consistency if moves or not event.terminal else None
        jump, after = FiredEvent(switch, event.mode).apply(run.problem, before, consistency)
        differs = after.state.copy()
        differs.axpy(-1.0, run.stored[n + 1])
        off = largest(differs) if after.mode == crossing.mode else np.inf
        why = f'event "{crossing.name}" leads elsewhere'
        check_same(off, 1e-6 + largest(after.state), self._path, "run", why)
        return jump


def _check_steps(run: Trajectory, path: Path) -> None:
    """Take the first and the last step again: they tell another problem from this one."""
    plain_steps = [n for n in range(run.n_steps) if not run.records or run.records[n].plain]
    taken = [n for n in plain_steps if run.step_sizes[n] > 0.0]
    for n in {*taken[:1], *taken[-1:]}:
        (end,) = states_inside(run, [(n, float(run.times[n] + run.step_sizes[n]))])
        change = run.stored[n + 1].copy()
        change.axpy(-1.0, run.stored[n])
        end.axpy(-1.0, run.stored[n + 1])
        off, size = largest(end), largest(change) + 1e-6 * largest(run.stored[n + 1])
        why = f"its step from t = {run.times[n]:.9g} ends {off:.3g} elsewhere"
        check_same(off, size, path, "run", why)


def _check_events(run: Trajectory, path: Path) -> None:
    """Ask the functions of events where steps end at them: they are zero there."""
    ended = [(n, record.ends_at) for n, record in enumerate(run.records) if record.ends_at]
    for n, switch in ended[:LOOKS]:
        when, mode = switch.when, run.records[n].mode
        if when is None:
            continue
        alike = [k for k, record in enumerate(run.records) if record.mode == mode]
        size = largest(run.stored[n + 1])
        for k in alike[:: 1 + len(alike) // LOOKS]:
            size = max(size, abs(when.value(float(run.times[k]), run.stored[k], run.parameters(k))))
        t = float(run.times[n + 1])
        off = abs(when.value(t, run.stored[n + 1], run.parameters(n)))
        why = f'event "{switch.name}" is not at t = {t:.9g}, where its function is {off:.3g}'
        check_same(off, size, path, "run", why)
