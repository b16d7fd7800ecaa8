"""Multiple shooting: the equations are integrated over short windows of samples.

Each window begins at a state of its own, which is unknown like the parameters.  So an error of the
parameters cannot grow along the whole run, and an oscillator does not lose its phase: sums of
squares of windows have few minima where that of the run has hundreds.  Windows are then made
longer, until one is the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
from petsc4py import PETSc
from scipy import sparse
from scipy.sparse.linalg import splu

from daeosens.costs.cost import Instant, Squares, Start
from daeosens.costs.objective import Objective
from daeosens.derivatives.engines.compiled.tangent import admit_rows, push_directions
from daeosens.derivatives.residual_jacobian import along_all, squares_of
from daeosens.derivatives.solve import solve_part
from daeosens.derivatives.tangent import tangent_sweep
from daeosens.errors import InputError, SolveError, UnsupportedError
from daeosens.functional.reduced import Reduced
from daeosens.methods.dae.consistent_state import ConsistentState
from daeosens.methods.events.consistent_reset import consistent_map
from daeosens.methods.step import Step
from daeosens.petsc.vectors import Array, gather, read, scatter, write
from daeosens.timestepping.method_choice import replaced
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.trajectory import Trajectory

LONGER = 2
"""How many times longer windows become from one stage to the next."""

LONGEST_STEP = 1.5
"""Parameters move by so many of their typical sizes in a step: of logarithms a factor of 4.5."""

MOST_STEPS = 5000
"""A window that takes more steps than this is a failed trial: the equations became stiff."""


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
    """

    run: Reduced
    misfit: Objective
    prior: Objective | None
    scale: Array
    level: Array

    @cached_property
    def terms(self) -> list[tuple[Any, float, Squares]]:
        """What is measured, by times in order; a prior at the start."""
        final = float(max(self.misfit.times))
        terms = squares_of(self.misfit.lower(self.run.problem, final))
        if self.prior is not None:
            terms += squares_of(self.prior.lower(self.run.problem, final))
        listed: list[Any] = terms
        # without events there is one state at a time
        return [(at.t if isinstance(at, Instant) else at, *rest) for at, *rest in listed]

    @cached_property
    def stepping(self) -> Stepping:
        """The steps of windows."""
        most = min(self.run.stepping.max_steps, MOST_STEPS)
        # residuals are looked up at ends of steps
        return replaced(self.run.stepping, max_steps=most, cut=True)


@dataclass(frozen=True, eq=False)
class Stage:
    """What one length of windows came to.

    Attributes
    ----------
    samples : int
        Times of measurements in a window.
    windows : int
        How many in all experiments.
    x : array [k]
    states : list of array [w, n]
        Where the windows of each experiment begin, the first ones left out.
    value : float
        Half the sum of squares.
    iterations : int
    degrees : int
        Residuals less unknowns.
    """

    samples: int
    windows: int
    x: Array
    states: list[Array]
    value: float
    iterations: int
    degrees: int

    @property
    def explained(self) -> bool:
        """Whether noise of the level of the misfit is all that is left: chi-square, to 5 sigma."""
        return 2.0 * self.value < self.degrees + 5.0 * np.sqrt(2.0 * self.degrees)


def cut(shot: Shot, samples: int) -> Array:
    """Return the times between windows of so many samples, with the ends of the run [w + 1]."""
    first = shot.run.stepping.t_span[0]
    times = np.unique(np.asarray(shot.misfit.times, dtype=float))
    # windows end at measurements, so that none lies in two of them
    inner = times[(times > first) & (times < times[-1])][samples - 1 :: samples]
    return np.array([first, *inner, times[-1]])


def refined_by_windows(
    shots: Sequence[Shot],
    x: Array,
    samples: int,
    guess: Sequence[Any],
    *,
    single: bool = False,
    begun: Stage | None = None,
    max_iterations: int = 40,
) -> list[Stage]:
    """Minimise over windows of ``samples`` samples, then over longer ones.

    Gauss-Newton with Levenberg and Marquardt's damping, all starts of windows and parameters at
    once; the derivatives are those of the discrete runs.  Jumps from one window to the next count
    as residuals with the noise level of the unknown, which also decides what was not measured.

    Parameters
    ----------
    shots : sequence of Shot
    x : array [k]
        Where to begin.
    samples : int
    guess : sequence of callable
        ``guess(times [w]) -> states [w, n]`` of each experiment: where windows begin.
    single : bool
        One length only.
    begun : Stage, optional
        What this length has come to already: goes on with the next.
    max_iterations : int
        For each length.

    Returns
    -------
    list of Stage
        Of one length after the other.

    Raises
    ------
    SolveError
        Some window cannot be integrated from the first guess.

    Source
    ------
    Bock, in: Modelling of Chemical Reaction Systems, Springer 1981.
    """
    _check(shots, samples)
    stages: list[Stage] = []
    before: tuple[list[Array], list[Array]] | None = None
    if begun is not None:
        edges = [cut(shot, samples) for shot in shots]
        stages, before, x = [begun], (edges, begun.states), begun.x
        if all(len(times) == 2 for times in edges):
            return stages
        samples *= LONGER
    while True:
        edges = [cut(shot, samples) for shot in shots]
        states: list[Array] = []
        for k, (shot, times) in enumerate(zip(shots, edges, strict=True)):
            inner = times[1:-1]
            if before is None:
                states.append(np.array(guess[k](inner)).reshape(len(inner), len(shot.scale)))
            else:  # edges of longer windows are edges of the shorter ones
                places = np.searchsorted(before[0][k][1:-1], inner)
                states.append(before[1][k][places])
        if stages and all(len(times) == 2 for times in edges):
            return stages  # one window is the run itself: that is what a fit minimises
        stage = _minimized(shots, edges, x, states, samples, max_iterations)
        stages.append(stage)
        x, before = stage.x, (edges, stage.states)
        if single or all(len(times) == 2 for times in edges):
            return stages
        samples *= LONGER


def _check(shots: Sequence[Shot], samples: int) -> None:
    if isinstance(samples, bool) or not isinstance(samples, (int, np.integer)) or samples < 1:
        raise InputError(f"windows = {samples!r}", expected="a number of samples, 1 or more")
    for k, shot in enumerate(shots):
        problem = shot.run.problem
        if problem.delays is not None:
            raise UnsupportedError(
                f"windows for a delay equation (experiments[{k}])",
                expected="a problem whose windows can begin with a state alone",
                remedy='fit(..., start="bilevel") without windows',
            )
        if problem.events or problem.monitor is not None or not problem.smooth:
            raise UnsupportedError(
                f"windows for a problem with events (experiments[{k}])",
                expected="a problem whose windows can begin anywhere, in the same mode",
                remedy="fit(...) without windows",
            )


def _minimized(
    shots: Sequence[Shot],
    edges: Sequence[Array],
    x: Array,
    states: list[Array],
    samples: int,
    max_iterations: int,
) -> Stage:
    """Minimise by damped Gauss-Newton steps from x and the starts of windows."""
    functional = shots[0].run
    bounds = functional.bounds()
    lower = np.full(len(x), -np.inf) if bounds is None else gather(bounds[0])
    upper = np.full(len(x), np.inf) if bounds is None else gather(bounds[1])
    typical = np.maximum(gather(functional.typical()[0]), 1e-8)
    runs = _runs(shots, edges, x, states)
    jacobian = _jacobian(shots, runs)
    value = 0.5 * float(runs.residual @ runs.residual)
    k, damping, iteration = len(x), 1e-3, 0
    while iteration < max_iterations:
        iteration += 1
        # sparse: each window's residuals depend on x, on its own start, and its jump on the next
        # one's
        matrix: Any = jacobian.T @ jacobian
        slope: Array = np.asarray(jacobian.T @ runs.residual, dtype=float)
        # Marquardt's scaling: damping in units of the diagonal of J^T J, so that units of unknowns
        # do not matter; the small addition is for unknowns that nothing depends on
        diagonal: Array = np.asarray(matrix.diagonal(), dtype=float)
        # what is at a bound and wants to leave it stays
        held = ((x <= lower) & (slope[:k] > 0)) | ((x >= upper) & (slope[:k] < 0))
        penalty = damping * (diagonal + 1e-12 * diagonal.max())
        penalty[:k][held] += 1e12 * diagonal.max()
        damped: Any = matrix + sparse.diags_array(penalty)
        step: Array = -np.asarray(splu(damped.tocsc()).solve(slope), dtype=float)
        # longer steps lead to parameters with which no window can be integrated
        dx = np.clip(step[:k], -LONGEST_STEP * typical, LONGEST_STEP * typical)
        trial = np.clip(x + dx, lower, upper)
        moved: list[Array] = []
        start = k
        for shot, starts in zip(shots, states, strict=True):
            part = step[start : start + starts.size].reshape(starts.shape)
            moved.append(starts + part * shot.scale)
            start += starts.size
        after, lowered = _trial(shots, edges, trial, moved)
        if after is not None and lowered < value:
            try:
                # of a trial that is taken alone: derivatives take most of the time
                jacobian = _jacobian(shots, after)
            except SolveError:
                lowered = np.inf
        if after is not None and lowered < value:
            # the next length, or the fit, begins here: no more digits than that are of use; but a
            # parameter on its way back from where little depends on it gains little at first
            longest = bool((np.abs(step[:k]) > LONGEST_STEP * typical).any())
            done = value - lowered < 1e-3 * value and not longest
            done = done or lowered < 1e-9 * len(after.residual)
            runs.destroy()
            x, states, runs, value = trial, moved, after, lowered
            damping = max(damping / 5.0, 1e-12)
            if done:
                break
        else:
            if after is not None:
                after.destroy()
            # past 1e8 steps are so short that values differ by rounding only
            damping *= 10.0
            if damping > 1e8:
                break
    runs.destroy()
    unknowns = len(x) + sum(starts.size for starts in states)
    return Stage(
        samples,
        sum(len(times) - 1 for times in edges),
        x,
        states,
        value,
        iteration,
        len(runs.residual) - unknowns,
    )


def _trial(
    shots: Sequence[Shot], edges: Sequence[Array], x: Array, states: Sequence[Array]
) -> tuple[Runs | None, float]:
    """Return the windows at a trial point and half their sum of squares, infinite if they fail."""
    try:
        runs = _runs(shots, edges, x, states)
    except SolveError:
        return None, np.inf
    return runs, 0.5 * float(runs.residual @ runs.residual)


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
    """

    trajectory: Trajectory
    terms: list[tuple[float, Squares, int]]
    follow: ConsistentState | None


@dataclass(frozen=True, eq=False)
class Runs:
    """All windows of all experiments at one x: residuals, and what their derivatives need.

    Attributes
    ----------
    x : array [k]
    windows : list of list of Window
        Of each experiment.
    residual : array
    """

    x: Array
    windows: list[list[Window]]
    residual: Array

    def destroy(self) -> None:
        """Free the states."""
        for window in chain.from_iterable(self.windows):
            window.trajectory.destroy()


def _runs(shots: Sequence[Shot], edges: Sequence[Array], x: Array, states: Sequence[Array]) -> Runs:
    """Integrate all windows."""
    windows: list[list[Window]] = []
    residuals: list[Array] = []
    try:
        for shot, times, own in zip(shots, edges, states, strict=True):
            windows.append([])
            _shoot(shot, times, x, own, windows[-1], residuals)
    except SolveError:
        Runs(x, windows, np.zeros(0)).destroy()
        raise
    return Runs(x, windows, np.concatenate(residuals))


def _shoot(
    shot: Shot,
    edges: Array,
    x: Array,
    states: Array,
    windows: list[Window],
    residuals: list[Array],
) -> None:
    """Add the windows of one experiment and their residuals."""
    run, problem = shot.run, shot.run.problem
    u0, p = run.control.unpack(problem, scatter(x, run.start()))
    for w, (first, last) in enumerate(pairwise(edges.tolist())):
        begin: Any = u0 if w == 0 else states[w - 1]
        follow = None
        if w and problem.form != "rhs":
            begin, follow = _consistent(run, first, begin, p)
        moments = [term[0] for term in shot.terms if isinstance(term[0], float)]
        within = np.unique([at for at in moments if first < at < last])
        trajectory = solve_part(problem, begin, p, shot.stepping, (first, last), within)
        final = w == len(edges) - 2
        terms = [
            (np.sqrt(weight), scalar, trajectory.index(at))
            for at, weight, scalar in shot.terms
            if (w == 0 if isinstance(at, Start) else first <= at < last or (final and at == last))
        ]
        windows.append(Window(trajectory, terms, follow))
        residuals += [root * scalar.residual(trajectory.point_at(n)) for root, scalar, n in terms]
        if not final:
            # continuity as a residual: where the next window begins need not be where this one
            # ends, until it pays
            residuals.append((gather(trajectory.stored[-1]) - states[w]) / shot.level)


def _jacobian(shots: Sequence[Shot], runs: Runs) -> Any:
    """Return the derivative of all residuals; columns are x, then the starts of windows, scaled.

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
        for w, window in enumerate(windows):
            # the state where a window begins is unknown, but that of the first one follows from x
            own = np.arange(column - n, column) if w else np.arange(0)
            places = np.concatenate([np.arange(k), own])
            if w == 1:
                du = np.vstack([np.zeros((k, n)), np.diag(shot.scale)])
                dp = np.vstack([dp, np.zeros((n, dp.shape[1]))])
            along = _tangents(window, du, dp)
            for root, scalar, number in window.terms:
                point = window.trajectory.point_at(number)
                blocks.append((root * along_all(scalar, point, along[number], dp).T, places))
            if w < len(windows) - 1:
                jump = np.hstack([along[-1].T, -np.diag(shot.scale)]) / shot.level[:, None]
                blocks.append((jump, np.concatenate([places, np.arange(column, column + n)])))
                column += n
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


def _tangents(window: Window, du: Array, dp: Array) -> Array:
    """Return the tangents of all states [N + 1, D, n]."""
    trajectory, directions = window.trajectory, du
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
