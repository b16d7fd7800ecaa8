"""Multiple shooting: the equations are integrated over short windows of samples.

Each window begins at a state of its own, which is unknown like the parameters.  So an error of the
parameters cannot grow along the whole run, and an oscillator does not lose its phase: sums of
squares of windows have few minima where that of the run has hundreds.  Windows are then made
longer, until one is the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from petsc4py import PETSc
from scipy import sparse
from scipy.sparse.linalg import splu

from daeosens.costs.objective import Objective
from daeosens.derivatives.engines.compiled.tangent import admit_rows, push_directions
from daeosens.derivatives.residual_jacobian import squares_of
from daeosens.derivatives.solve import solve
from daeosens.derivatives.tangent import tangent_sweep
from daeosens.errors import InputError, SolveError, UnsupportedError
from daeosens.functional.reduced import Reduced
from daeosens.methods.events.consistent_reset import consistent_map
from daeosens.methods.step import Step
from daeosens.petsc.vectors import Array, gather, read, scatter, write
from daeosens.timestepping.method_choice import replaced
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


@dataclass(frozen=True, eq=False)
class Rows:
    """Residuals, and their derivative in x and in all starts of windows, scaled."""

    residual: Array
    jacobian: Any


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
    rows = _rows(shots, edges, x, states)
    value = 0.5 * float(rows.residual @ rows.residual)
    k, damping, iteration = len(x), 1e-3, 0
    while iteration < max_iterations:
        iteration += 1
        # sparse: each window's residuals depend on x, on its own start, and its jump on the next
        # one's
        matrix: Any = rows.jacobian.T @ rows.jacobian
        slope: Array = np.asarray(rows.jacobian.T @ rows.residual, dtype=float)
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
        try:
            after = _rows(shots, edges, trial, moved)
            lowered = 0.5 * float(after.residual @ after.residual)
        except SolveError:
            after, lowered = rows, np.inf
        if lowered < value:
            # the next length, or the fit, begins here: no more digits than that are of use; but a
            # parameter on its way back from where little depends on it gains little at first
            longest = bool((np.abs(step[:k]) > LONGEST_STEP * typical).any())
            done = value - lowered < 1e-3 * value and not longest
            done = done or lowered < 1e-9 * len(after.residual)
            x, states, rows, value = trial, moved, after, lowered
            damping = max(damping / 5.0, 1e-12)
            if done:
                break
        else:
            damping *= 10.0
            if damping > 1e8:
                break
    unknowns = len(x) + sum(starts.size for starts in states)
    return Stage(
        samples,
        sum(len(times) - 1 for times in edges),
        x,
        states,
        value,
        iteration,
        len(rows.residual) - unknowns,
    )


def _rows(shots: Sequence[Shot], edges: Sequence[Array], x: Array, states: Sequence[Array]) -> Rows:
    """Return all residuals and their derivatives; columns are x, then the starts of windows."""
    total = len(x) + sum(starts.size for starts in states)
    residuals: list[Array] = []
    blocks: list[tuple[Array, list[int]]] = []
    column = len(x)
    for shot, times, own in zip(shots, edges, states, strict=True):
        _shoot(shot, times, x, own, column, residuals, blocks)
        column += own.size
    data: list[Array] = []
    rows: list[Any] = []
    columns: list[Any] = []
    start = 0
    for block, places in blocks:
        count = len(block)
        rows.append(np.repeat(np.arange(start, start + count), len(places)))
        columns.append(np.tile(places, count))
        data.append(block.ravel())
        start += count
    entries = (np.concatenate(data), (np.concatenate(rows), np.concatenate(columns)))
    if not np.isfinite(entries[0]).all():
        raise SolveError("a derivative of a window is not finite")
    jacobian = sparse.coo_array(entries, shape=(start, total)).tocsr()
    return Rows(np.concatenate(residuals), jacobian)


def _shoot(
    shot: Shot,
    edges: Array,
    x: Array,
    states: Array,
    column: int,
    residuals: list[Array],
    blocks: list[tuple[Array, list[int]]],
) -> None:
    """Add the residuals of one experiment and their derivatives."""
    run, problem, n, k = shot.run, shot.run.problem, len(shot.scale), len(x)
    vec = scatter(x, run.start())
    u0, p = run.control.unpack(problem, vec)
    units: list[PETSc.Vec] = [scatter(unit, run.start()) for unit in np.eye(k)]
    pushed = [run.control.push_forward(problem, vec, unit) for unit in units]
    by_start = [(scale * unit, None) for scale, unit in zip(shot.scale, np.eye(n), strict=True)]
    du = problem.create_state()
    terms = squares_of(shot.misfit.lower(problem, float(edges[-1])))
    at_start = [] if shot.prior is None else squares_of(shot.prior.lower(problem, float(edges[1])))
    for w, (first, last) in enumerate(pairwise(edges.tolist())):
        final = w == len(edges) - 2
        inside = [term for term in terms if first <= term[0] < last or (final and term[0] == last)]
        moments: list[Any] = [term[0] for term in inside]
        within = sorted({float(at) for at in moments if first < at < last})
        stepping = replaced(
            run.stepping,
            t_span=(float(first), float(last)),
            max_steps=min(run.stepping.max_steps, MOST_STEPS),
            cut=True,  # residuals are looked up at ends of steps
        )
        own = [] if w == 0 else by_start
        places = list(range(k))
        if w:
            places += range(column + n * (w - 1), column + n * w)
        begin: Any = u0 if w == 0 else states[w - 1]
        directions: Any = [pair if w == 0 else (None, pair[1]) for pair in pushed] + own
        if w and problem.form != "rhs":
            begin, directions = _consistent(run, first, begin, p, directions)
        trajectory = solve(problem, begin, p, stepping, within, "states")
        along, dp = _tangents(trajectory, directions)
        for term in [*inside, *(at_start if w == 0 else [])]:
            at, weight, scalar = term
            number = trajectory.index(at)
            state = trajectory.stored[number]
            point = (float(trajectory.times[number]), state, trajectory.parameters(number))
            residuals.append(np.sqrt(weight) * scalar.residual(point))
            changes: list[Array] = []
            for row, by_p in zip(along[number], dp, strict=True):
                write(du, row)
                changes.append(scalar.residual_tangent(point, (du, by_p)))
            blocks.append((np.sqrt(weight) * np.array(changes).T, places))
        if not final:
            end = gather(trajectory.stored[-1])
            # continuity as a residual: where the next window begins need not be where this one
            # ends, until it pays
            residuals.append((end - states[w]) / shot.level)
            jump = np.hstack([along[-1].T, -np.diag(shot.scale)]) / shot.level[:, None]
            blocks.append((jump, [*places, *range(column + n * w, column + n * (w + 1))]))
        trajectory.destroy()


def _tangents(trajectory: Trajectory, directions: Any) -> tuple[Array, Array]:
    """Return the tangents of all states [N + 1, D, n], and dp of the directions [D, m].

    In one piece, where C does it: a short window has more directions than steps, and a vector for
    each state of each direction would take most of the time.
    """
    du, dp = admit_rows(trajectory.problem, directions)
    along = push_directions(trajectory, du, dp)
    if along is None:
        sweeps = tangent_sweep(trajectory, directions)
        along = np.array([[read(state) for state in sweep.states] for sweep in sweeps])
        along = along.transpose(1, 0, 2)
    return along, dp


def _consistent(
    run: Reduced, t: float, state: Array, p: Any, directions: Any
) -> tuple[PETSc.Vec, list[tuple[PETSc.Vec, PETSc.Vec | None]]]:
    """Return a start of a window whose algebraic variables follow the others, and directions of it.

    Those of the unknown state are guesses; the jump from the window before, to which they come
    nearest, gives them.
    """
    problem = run.problem
    u, parameters = problem.admit_state(state), problem.admit_parameters(p)
    follow = consistent_map(problem, t, u, parameters, run.stepping.options)
    start = u.copy()
    if follow is not None:
        follow.apply(t, u, parameters, start)
    following: list[tuple[PETSc.Vec, PETSc.Vec | None]] = []
    for du, dp in zip(*admit_rows(problem, directions), strict=True):
        moved, along = problem.create_state(), problem.admit_parameter_direction(dp)
        write(moved, du)
        if follow is not None:
            follow.tangent(Step(t, 0.0, start, start, parameters), moved, along, 0.0)
        following.append((moved, along))
    return start, following
