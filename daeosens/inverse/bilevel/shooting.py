"""The windows of multiple shooting: runs from states of their own, residuals, and derivatives.

Residuals are those of what was measured, and the jumps from the end of each window to where the
next one begins.

Windows of a delay equation look back into those before them, jumps and all.  They are one run that
is restarted where windows begin, and each depends on the starts of all that came before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc
from scipy import sparse

from daeosens.costs.cost import Instant, Squares, Start
from daeosens.costs.objective import Objective
from daeosens.derivatives.engines.compiled.tangent import admit_rows, push_directions
from daeosens.derivatives.engines.delays.program import DelayedProgram
from daeosens.derivatives.engines.delays.tangents import push_forward
from daeosens.derivatives.residual_jacobian import along_all, squares_of
from daeosens.derivatives.solve import solve_part
from daeosens.derivatives.tangent import tangent_sweep
from daeosens.errors import SolveError
from daeosens.functional.reduced import Reduced
from daeosens.functional.runs import most_steps
from daeosens.methods.dae.consistent_state import ConsistentState
from daeosens.methods.events.consistent_reset import consistent_map
from daeosens.methods.step import Step
from daeosens.petsc.vectors import Array, gather, read, scatter, write
from daeosens.timestepping.delayed_run import run_delayed
from daeosens.timestepping.method_choice import by_form, replaced
from daeosens.timestepping.stepping import Stepping, pinned_times
from daeosens.timestepping.trajectory.trajectory import Trajectory

MOST_STEPS = 5000
"""A window that takes more steps than this is a failed trial: the equations became stiff."""

EXACT = 1e-2
"""Errors of steps beside jumps between windows: digits beyond are of no use before these close."""


@dataclass(frozen=True, eq=False)
class Shot:
    """One experiment to be cut into windows.

    Attributes
    ----------
    run : Reduced
        Problem, steps, and what x means.
    misfit : Objective
        A sum of squares with its noise levels.
    prior : Objective or None
        Of the parameters; counted with the first window.
    scale : array [n]
        Sizes of the unknowns.
    level : array [n]
        Their noise levels: a jump between windows counts like a residual.
    positive : array [n] of bool
        Which of them cannot be negative.
    noise : float
        The least noise level of what was measured, in units of its spread; 0 where none is known.
    """

    run: Reduced
    misfit: Objective
    prior: Objective | None
    scale: Array
    level: Array
    positive: npt.NDArray[np.bool_]
    noise: float = 0.0

    @cached_property
    def terms(self) -> list[tuple[Any, float, Squares]]:
        """What is measured, by times in order; a prior at the start."""
        final = float(max(self.misfit.times))
        terms = squares_of(self.misfit.lower(self.run.problem, final))
        if self.prior is not None:
            terms += squares_of(self.prior.lower(self.run.problem, final))
        listed: list[Any] = terms
        # without events there is one state at a time
        terms = [(at.t if isinstance(at, Instant) else at, *rest) for at, *rest in listed]
        return sorted(terms, key=lambda term: -np.inf if isinstance(term[0], Start) else term[0])

    @cached_property
    def moments(self) -> Array:
        """The times of ``terms``, that of a prior before all others."""
        return np.array([-np.inf if isinstance(at, Start) else at for at, *_ in self.terms])

    def stepping(self, level: float, windows: int, best: Sequence[Window]) -> Stepping:
        """Return the steps of windows: those of the run once jumps of this level are small.

        ``windows`` are in one run, of a delay equation; ``best`` are those of the best run so far.
        """
        stepping = self.run.stepping
        most = min(stepping.max_steps, MOST_STEPS * windows)
        if best and stepping.adaptive:
            most = min(most, most_steps(max(window.trajectory.n_steps for window in best)))
        # residuals are looked up at ends of steps
        changes: dict[str, Any] = {"max_steps": most, "cut": True}
        if stepping.adaptive:
            rtol, atol = stepping.tolerances
            looser = max(EXACT * level * self.noise / rtol, 1.0)
            changes |= {"rtol": looser * rtol, "atol": looser * atol}
        return replaced(stepping, **changes)


def cut(shot: Shot, samples: int) -> Array:
    """Return the times between windows of so many samples, with the ends of the run [w + 1]."""
    first = shot.run.stepping.t_span[0]
    times = np.unique(np.asarray(shot.misfit.times, dtype=float))
    # windows end at measurements, so that none lies in two of them
    inner = times[(times > first) & (times < times[-1])][samples - 1 :: samples]
    return np.array([first, *inner, times[-1]])


@dataclass(frozen=True, eq=False)
class Window:
    """A run over a window, and what depends on it.

    Attributes
    ----------
    trajectory : Trajectory
    terms : list of (float, Squares, int)
        What was measured in it: the root of the weight, the residual, the number of the state.
    follow : ConsistentState or None
        What makes its start consistent, where a DAE asks for it.
    starts : range
        Numbers of the unknown starts that it depends on.
    ends : list of (int, int)
        Numbers of the states from which there is a jump, and of the starts that it leads to.
    """

    trajectory: Trajectory
    terms: list[tuple[float, Squares, int]]
    follow: ConsistentState | None
    starts: range
    ends: list[tuple[int, int]]

    def jumps(self, states: Array) -> list[Array]:
        """Return the jumps [n] to the starts of windows [w, n]."""
        stored = self.trajectory.stored
        return [gather(stored[number]) - states[start] for number, start in self.ends]

    def residuals(self) -> list[Array]:
        """Return those of what was measured."""
        at = self.trajectory.point_at
        return [root * scalar.residual(at(n)) for root, scalar, n in self.terms]


@dataclass(frozen=True, eq=False)
class Runs:
    """All windows of all experiments at one x: residuals, and what their derivatives need.

    Attributes
    ----------
    x : array [k]
    windows : list of list of Window
        Of each experiment.
    residual : array
    jumps : float
        What jumps add to half its square.
    """

    x: Array
    windows: list[list[Window]]
    residual: Array
    jumps: float

    @property
    def value(self) -> float:
        """Half the sum of squares."""
        return 0.5 * float(self.residual @ self.residual)

    def destroy(self) -> None:
        """Free the states."""
        for window in chain.from_iterable(self.windows):
            window.trajectory.destroy()


def shoot(
    shots: Sequence[Shot],
    edges: Sequence[Array],
    x: Array,
    states: Sequence[Array],
    level: float = 1.0,
    best: Runs | None = None,
) -> Runs:
    """Integrate all windows; jumps count in units of ``level`` times the noise level.

    A trial that takes far more steps than the ``best`` runs so far has failed.
    """
    known: list[list[Window]] = [[] for _ in shots] if best is None else best.windows
    windows: list[list[Window]] = []
    residuals: list[Array] = []
    jumps: list[Array] = [np.zeros(0)]
    try:
        for shot, times, own, other in zip(shots, edges, states, known, strict=True):
            windows.append([])
            together = 1 if shot.run.problem.delays is None else len(times) - 1
            stepping = shot.stepping(level, together, other)
            for window in _windows(shot, times, x, own, stepping):
                windows[-1].append(window)
                residuals += window.residuals()
                # continuity as a residual: where the next window begins need not be where this one
                # ends, until it pays
                now = [jump / (level * shot.level) for jump in window.jumps(own)]
                jumps += now
                residuals += now
    except SolveError:
        Runs(x, windows, np.zeros(0), 0.0).destroy()
        raise
    jump = np.concatenate(jumps)
    return Runs(x, windows, np.concatenate(residuals), 0.5 * float(jump @ jump))


def _windows(
    shot: Shot, edges: Array, x: Array, states: Array, stepping: Stepping
) -> Iterator[Window]:
    """Yield the windows of one experiment."""
    run, problem = shot.run, shot.run.problem
    u0, p = run.control.unpack(problem, scatter(x, run.start()))
    if problem.delays is not None:
        yield _restarted(shot, edges, u0, p, states, stepping)
        return
    # a window has what was measured from its first time on, the last one to its end
    places = np.searchsorted(shot.moments, edges)
    places[0], places[-1] = 0, len(shot.terms)
    for w, (first, last) in enumerate(pairwise(edges.tolist())):
        begin: Any = u0 if w == 0 else states[w - 1]
        follow = None
        if w and problem.form != "rhs":
            begin, follow = _consistent(run, first, begin, p)
        own = slice(places[w], places[w + 1])
        moments = shot.moments[own]
        within = np.unique(moments[(moments > first) & (moments < last)])
        trajectory = solve_part(problem, begin, p, stepping, (first, last), within)
        terms = [
            (np.sqrt(weight), scalar, number)
            for (_, weight, scalar), number in zip(
                shot.terms[own], _numbers(trajectory, moments), strict=True
            )
        ]
        ends = [] if w == len(edges) - 2 else [(trajectory.n_steps, w)]
        yield Window(trajectory, terms, follow, range(max(w - 1, 0), w), ends)


def _numbers(trajectory: Trajectory, moments: Array) -> list[int]:
    """Return the numbers of the states at times, of which there are thousands."""
    numbers = np.searchsorted(trajectory.times, moments)
    steps = trajectory.times[np.minimum(numbers, trajectory.n_steps)]
    # a prior is before the first of them
    wrong = (steps != moments) & np.isfinite(moments)
    # where rounding has moved a time it is looked for more closely, or refused
    numbers[wrong] = [trajectory.index(at) for at in moments[wrong].tolist()]
    return numbers.tolist()


def _restarted(
    shot: Shot, edges: Array, u0: Any, p: Any, states: Array, stepping: Stepping
) -> Window:
    """Return all windows of a delay equation: one run that is restarted where they begin."""
    problem = shot.run.problem
    stepping = replaced(stepping, t_span=(edges[0], edges[-1]))
    inner = edges[1:-1].tolist()
    moments = shot.moments[np.isfinite(shot.moments)]
    trajectory = run_delayed(
        problem,
        problem.admit_state(u0),
        problem.admit_parameters(p),
        by_form(problem, stepping),
        pinned_times(stepping, np.unique([*moments, *inner]), problem.breakpoints),
        "states",
        dict(zip(inner, states, strict=True)),
    )
    # the state before a restart, which is the first of its time, is where the window before ends;
    # what was measured then is seen after it
    ends = list(zip(trajectory.report.restarts, range(len(inner)), strict=True))
    after = {time: number + 1 for time, (number, _) in zip(inner, ends, strict=True)}
    terms = [
        (np.sqrt(weight), scalar, after.get(at) or trajectory.index(at))
        for at, weight, scalar in shot.terms
    ]
    return Window(trajectory, terms, None, range(len(inner)), ends)


def jacobian_of(
    shots: Sequence[Shot], runs: Runs, level: float = 1.0, *, held: bool = False
) -> Any:
    """Return the derivative of all residuals.

    Columns are x, then the starts of windows, scaled, unless these are held.

    Raises
    ------
    SolveError
        A derivative that is not finite.
    """
    k = len(runs.x)
    blocks: list[tuple[Array, Any]] = []
    column = k
    for shot, windows in zip(shots, runs.windows, strict=True):
        n, vec = len(shot.scale), scatter(runs.x, shot.run.start())
        problem, control = shot.run.problem, shot.run.control
        units = [scatter(unit, shot.run.start()) for unit in np.eye(k)]
        du, dp = admit_rows(problem, [control.push_forward(problem, vec, unit) for unit in units])
        for window in windows:
            # the states where windows begin are unknown, but that of the first one follows from x
            starts = range(0) if held else window.starts
            own = n * len(starts)
            first = column + n * starts.start
            places = np.concatenate([np.arange(k), np.arange(first, first + own)])
            along = _tangents(window, du, dp, shot.scale, starts)
            beside = np.vstack([dp, np.zeros((own, dp.shape[1]))])
            for root, scalar, number in window.terms:
                point = window.trajectory.point_at(number)
                blocks.append((root * along_all(scalar, point, along[number], beside).T, places))
            for number, start in window.ends:
                jump, of_jump = along[number].T, places
                if not held:
                    jump = np.hstack([jump, -np.diag(shot.scale)])
                    of_jump = np.append(places, column + n * start + np.arange(n))
                blocks.append((jump / (level * shot.level[:, None]), of_jump))
        column += 0 if held else n * sum(len(window.ends) for window in windows)
    counts = [len(block) for block, _ in blocks]
    starts = np.cumsum([0, *counts])
    rows: list[Any] = [
        np.repeat(np.arange(first, first + len(block)), len(places))
        for first, (block, places) in zip(starts, blocks, strict=False)
    ]
    columns: list[Any] = [np.tile(places, len(block)) for block, places in blocks]
    entries = np.concatenate([block.ravel() for block, _ in blocks])
    if not np.isfinite(entries).all():
        raise SolveError("a derivative of a window is not finite")
    where = (np.concatenate(rows), np.concatenate(columns))
    return sparse.coo_array((entries, where), shape=(starts[-1], column)).tocsr()


def _tangents(window: Window, du: Array, dp: Array, scale: Array, starts: range) -> Array:
    """Return the tangents of all states [N + 1, D, n], along x and along starts, scaled."""
    trajectory, k, n = window.trajectory, len(dp), len(scale)
    own = len(starts)
    if trajectory.problem.delays is not None:
        restarts = np.zeros((own, k + own * n, n))
        for start in range(own):
            restarts[start, k + start * n : k + (start + 1) * n] = np.diag(scale)
        none = np.zeros((own * n, n)), np.zeros((own * n, dp.shape[1]))
        program = DelayedProgram(trajectory)
        columns = np.vstack([du, none[0]]), np.vstack([dp, none[1]])
        # windows that are held begin where they do, whatever x is
        tangents = push_forward(program, *columns, restarts if own else None)
        return tangents.du.transpose(0, 2, 1)
    if window.starts:  # from which such a window begins, and not from what x says
        du = np.vstack([np.zeros((k, n)), np.diag(scale)[: own * n]])
        dp = np.vstack([dp, np.zeros((own * n, dp.shape[1]))])
    directions = du
    if window.follow is not None:
        directions = _following(window.follow, trajectory, du, dp)
    # in one piece, where C does it: a short window has more directions than steps, and a vector for
    # each state of each direction would take most of the time
    along = push_directions(trajectory, directions, dp)
    if along is None:
        sweeps = tangent_sweep(trajectory, list(zip(directions, dp, strict=True)))
        along = np.array([[read(state) for state in sweep.states] for sweep in sweeps])
        along = along.transpose(1, 0, 2)
    return along


def _consistent(
    run: Reduced, t: float, state: Array, p: Any
) -> tuple[PETSc.Vec, ConsistentState | None]:
    """Return a start of a window whose algebraic variables follow the others, and what they follow.

    Those of the unknown state are guesses; the jump from the window before, to which they come
    nearest, gives them.
    """
    problem = run.problem
    u, parameters = problem.admit_state(state), problem.admit_parameters(p)
    follow = consistent_map(problem, t, u, parameters, run.stepping.options)
    start = u.copy()
    if follow is not None:
        follow.apply(t, u, parameters, start)
    return start, follow


def _following(follow: ConsistentState, trajectory: Trajectory, du: Array, dp: Array) -> Array:
    """Return the directions [D, n] of a consistent start."""
    problem, (t, start, p) = trajectory.problem, trajectory.point_at(0)
    rows: list[Array] = []
    for by_u, by_p in zip(du, dp, strict=True):
        moved = problem.create_state()
        write(moved, by_u)
        along = problem.admit_parameter_direction(by_p)
        follow.tangent(Step(t, 0.0, start, start, p), moved, along, 0.0)
        rows.append(gather(moved))
    return np.array(rows)
