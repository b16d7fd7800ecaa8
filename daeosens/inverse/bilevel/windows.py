"""Multiple shooting: the equations are integrated over short windows of samples.

Each window begins at a state of its own, which is unknown like the parameters.  So an error of the
parameters cannot grow along the whole run, and an oscillator does not lose its phase: sums of
squares of windows have few minima where that of the run has hundreds.  Jumps between windows are
then made smaller, until they are one run.

Where all unknowns were measured, windows may be held first where measurements have them: parameters
alone are a small problem, and states cannot make up for what is wrong with them.

Windows of a delay equation look back into those before them, jumps and all.  They are one run that
is restarted where windows begin, and each depends on the starts of all that came before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc
from scipy import sparse
from scipy.sparse.linalg import splu

from daeosens.costs.cost import Instant, Squares, Start
from daeosens.costs.objective import Objective
from daeosens.derivatives.engines.compiled.tangent import admit_rows, push_directions
from daeosens.derivatives.engines.delays.program import DelayedProgram
from daeosens.derivatives.residual_jacobian import along_all, squares_of
from daeosens.derivatives.solve import solve_part
from daeosens.derivatives.tangent import tangent_sweep
from daeosens.errors import InputError, SolveError, UnsupportedError
from daeosens.functional.parameters import Parameters
from daeosens.functional.reduced import Reduced
from daeosens.methods.dae.consistent_state import ConsistentState
from daeosens.methods.events.consistent_reset import consistent_map
from daeosens.methods.step import Step
from daeosens.petsc.vectors import Array, gather, read, scatter, write
from daeosens.timestepping.delayed_run import run_delayed
from daeosens.timestepping.method_choice import by_form, replaced
from daeosens.timestepping.stepping import Stepping, pinned_times
from daeosens.timestepping.trajectory.trajectory import Trajectory

SMALLER = 10.0
"""By what jumps between windows are divided from one stage to the next."""

SMALLEST_LEVEL = 1e-4
"""Of jumps, in units of the noise level: below, rounding and tolerances of steps are the rest."""

CLOSED = 0.1
"""Windows are one run if jumps add no more to half the sum of squares: far below a standard error.
"""

LONGEST_STEP = 1.5
"""Parameters move by so many of their typical sizes in a step: of logarithms a factor of 4.5."""

LINEAR = 0.25
"""A step that comes to less than this part of what the linear model expects is bent once."""

NEAREST = 0.1
"""So much of what cannot be negative is left by a step."""

WIDTH = np.log(10.0)
"""Standard deviation of logarithms about where windows began, in the normal law that holds them."""

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
    positive : array [n] of bool
        Which of them cannot be negative.
    """

    run: Reduced
    misfit: Objective
    prior: Objective | None
    scale: Array
    level: Array
    positive: npt.NDArray[np.bool_]

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
    """What windows came to at one level of jumps.

    Attributes
    ----------
    samples : int
        Times of measurements in a window.
    windows : int
        How many in all experiments.
    x : array [k]
    states : list of array [w, n]
        Where the windows of each experiment begin, the first ones left out.
    level : float
        Of jumps, in units of the noise level.
    value : float
        Half the sum of squares.
    jumps : float
        What jumps add to it.
    iterations : int
    degrees : int
        Residuals less unknowns.
    held : bool
        Whether windows were held where they began.
    """

    samples: int
    windows: int
    x: Array
    states: list[Array]
    level: float
    value: float
    jumps: float
    iterations: int
    degrees: int
    held: bool

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


def held_windows(
    shots: Sequence[Shot],
    x: Array,
    samples: int,
    guess: Sequence[Any],
    *,
    known: bool = True,
    max_iterations: int = 100,
) -> Stage:
    """Minimise over the parameters, with windows that stay where they begin.

    What noise does to their beginnings is not corrected, so that the minimum is not where that of
    the run is; but it is found from far away.  Starts that are free would move the spikes of an
    oscillator at no cost: shortly before, its states are small beside their noise levels.

    Arguments and errors as for ``refined_by_windows``.
    """
    _check(shots, samples)
    edges = [cut(shot, samples) for shot in shots]
    states = _guessed(shots, edges, guess)
    return _minimized(shots, edges, x, states, samples, 1.0, x, known, max_iterations, held=True)


def refined_by_windows(
    shots: Sequence[Shot],
    x: Array,
    samples: int,
    guess: Sequence[Any],
    *,
    single: bool = False,
    begun: Stage | None = None,
    known: bool = True,
    max_iterations: int = 100,
) -> list[Stage]:
    """Minimise over windows of ``samples`` samples, then with ever smaller jumps between them.

    Gauss-Newton with Levenberg and Marquardt's damping, all starts of windows and parameters at
    once; the derivatives are those of the discrete runs.  Jumps from one window to the next count
    as residuals, at first with the noise level of the unknown, which also decides what was not
    measured.  Then their level goes to zero, until the windows are one run: what jumps add to the
    sum of squares is, to first order, what the run lacks.

    Longer windows would also end at the run.  But where two windows become one, the second begins
    where the first ends, all of a sudden, and an oscillator with noisy data slips.

    Parameters
    ----------
    shots : sequence of Shot
    x : array [k]
        Where to begin, or what has begun.
    samples : int
    guess : sequence of callable
        ``guess(times [w]) -> states [w, n]`` of each experiment: where windows begin.
    single : bool
        The first stage only.
    begun : Stage, optional
        What that has come to already: goes on with smaller jumps.
    known : bool
        Whether levels of noise are known, and not only sizes of the unknowns.
    max_iterations : int
        For each level.

    Returns
    -------
    list of Stage
        Of one level after the other.

    Raises
    ------
    SolveError
        Some window cannot be integrated from the first guess.

    Source
    ------
    Bock, in: Modelling of Chemical Reaction Systems, Springer 1981; jumps as penalties: Nocedal and
    Wright, Numerical Optimization, 2006, section 17.1.
    """
    _check(shots, samples)
    edges = [cut(shot, samples) for shot in shots]
    if begun is None:
        states = _guessed(shots, edges, guess)
        begun = _minimized(shots, edges, x, states, samples, 1.0, x, known, max_iterations)
    stages = [begun]
    while not single and stages[-1].level > SMALLEST_LEVEL:
        last = stages[-1]
        if last.jumps <= CLOSED * (1.0 if known else 2.0 * last.value / max(last.degrees, 1)):
            break
        level = last.level / SMALLER
        stages.append(
            _minimized(shots, edges, last.x, last.states, samples, level, x, known, max_iterations)
        )
    return stages


def _guessed(shots: Sequence[Shot], edges: Sequence[Array], guess: Sequence[Any]) -> list[Array]:
    """Return the states [w, n] where the windows of each experiment begin, by its guess."""
    return [
        np.array(states(times[1:-1])).reshape(len(times) - 2, len(shot.scale))
        for shot, times, states in zip(shots, edges, guess, strict=True)
    ]


def _check(shots: Sequence[Shot], samples: int) -> None:
    if isinstance(samples, bool) or not isinstance(samples, (int, np.integer)) or samples < 1:
        raise InputError(f"windows = {samples!r}", expected="a number of samples, 1 or more")
    for k, shot in enumerate(shots):
        problem = shot.run.problem
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
    level: float,
    centre: Array,
    known: bool,
    max_iterations: int,
    *,
    held: bool = False,
) -> Stage:
    """Minimise by damped Gauss-Newton steps from x and the starts of windows, or with these held.

    A normal law of logarithms about ``centre``, one decade wide, is part of what is minimised; in
    the unit of the residuals, where levels of noise are not known.
    """
    functional = shots[0].run
    bounds = functional.bounds()
    lower = np.full(len(x), -np.inf) if bounds is None else gather(bounds[0])
    upper = np.full(len(x), np.inf) if bounds is None else gather(bounds[1])
    longest = LONGEST_STEP * np.maximum(gather(functional.typical()[0]), 1e-8)
    runs = _runs(shots, edges, x, states, level)
    # windows with jumps fit data with less than the run needs: a rate may go to zero on the way,
    # and its logarithm does not come back from there by itself
    unit = 1.0 if known else 2.0 * runs.value / len(runs.residual)
    pull = np.where(_logarithms(functional), unit / WIDTH**2, 0.0)
    jacobian = _jacobian(shots, runs, level, held=held)
    value = runs.value + 0.5 * float(pull @ (x - centre) ** 2)
    k, iteration = len(x), 0
    damping, growth = 1e-3, 2.0

    def tried(step: Array) -> tuple[Runs | None, float]:
        """Return the windows after a step, and the value."""
        after = _trial(shots, edges, x + step[:k], _moved(shots, states, step[k:]), level)
        if after is None:
            return None, np.inf
        return after, after.value + 0.5 * float(pull @ (x + step[:k] - centre) ** 2)

    while iteration < max_iterations:
        iteration += 1
        # sparse: each window's residuals depend on x, on its own start, and its jump on the next
        # one's
        matrix: Any = jacobian.T @ jacobian
        slope: Array = np.asarray(jacobian.T @ runs.residual, dtype=float)
        slope[:k] += pull * (x - centre)
        matrix = matrix + sparse.diags_array(np.concatenate([pull, np.zeros(len(slope) - k)]))
        # longer steps lead to parameters with which no window can be integrated
        low = np.concatenate([np.maximum(-longest, lower - x), _lowest(shots, states)])[
            : len(slope)
        ]
        high = np.concatenate([np.minimum(longest, upper - x), np.full(len(slope) - k, np.inf)])
        step, solved = _damped(matrix, slope, damping, low, high)
        expected = -float(slope @ step) - 0.5 * float(step @ (matrix @ step))
        after, lowered = tried(step)
        if after is not None and value - lowered < LINEAR * expected:
            # valleys of windows are narrow and bent: the step follows the bend that it has seen
            bend = after.residual - runs.residual - jacobian @ step
            bent = np.clip(step + solved(-(jacobian.T @ bend)), low, high)
            other, lowest = tried(bent)
            if lowest < lowered:
                step, lowered, after, other = bent, lowest, other, after
            if other is not None:
                other.destroy()
        if after is not None and lowered < value:
            try:
                # of a trial that is taken alone: derivatives take most of the time
                jacobian = _jacobian(shots, after, level, held=held)
            except SolveError:
                lowered = np.inf
        # the next level, or the fit, begins here: no more digits than that are of use; where
        # damping or limits make steps short they say nothing of how far the minimum is
        within = bool((np.abs(step[:k]) < longest).all())
        done = abs(expected) < 1e-3 * value and damping < 0.1 and within
        if after is None or not lowered < value:
            if after is not None:
                after.destroy()
            # past 1e8 steps are so short that values differ by rounding only
            damping, growth = damping * growth, 2.0 * growth
            if done or damping > 1e8:
                break
            continue
        # limits of the step may leave nothing to be expected, and yet it leads down
        gain = 0.5 if expected <= 0.0 else min((value - lowered) / expected, 1.0)
        done = done or after.value < 1e-9 * len(after.residual)
        runs.destroy()
        x, states, runs, value = x + step[:k], _moved(shots, states, step[k:]), after, lowered
        # as far as the linear model has held (Nielsen)
        damping *= max(0.1, 1.0 - (2.0 * gain - 1.0) ** 3)
        damping, growth = max(damping, 1e-12), 2.0
        if done:
            break
    runs.destroy()
    unknowns = jacobian.shape[1]
    return Stage(
        samples,
        sum(len(times) - 1 for times in edges),
        x,
        states,
        level,
        runs.value,
        runs.jumps,
        iteration,
        len(runs.residual) - unknowns,
        held,
    )


def _damped(
    matrix: Any, slope: Array, damping: float, low: Array, high: Array
) -> tuple[Array, Callable[[Array], Array]]:
    """Return Marquardt's step within limits, and the inverse of its matrix.

    Damping is in units of the diagonal of J^T J, so that units of unknowns do not matter; the small
    addition is for unknowns that nothing depends on.  What would go too far ends at its limit, and
    the others follow: if they did not, the sum of squares would often grow along such a step.
    """
    diagonal: Array = np.asarray(matrix.diagonal(), dtype=float)
    penalty = damping * (diagonal + 1e-12 * diagonal.max())
    damped: Any = (matrix + sparse.diags_array(penalty)).tocsc()
    step, free = np.zeros(len(slope)), np.arange(len(slope))

    def solved(rows: Array) -> Array:
        result = np.zeros(len(rows))
        if free.size:
            result[free] = splu(damped[:, free][free].tocsc()).solve(rows[free])
        return result

    while True:
        step -= solved(slope + damped @ step)
        outside = (step < low) | (step > high)
        np.clip(step, low, high, out=step)
        if not outside[free].any():
            return step, solved
        free = free[~outside[free]]


def _lowest(shots: Sequence[Shot], states: Sequence[Array]) -> Array:
    """Return the least step of the starts of windows, in units of their sizes."""
    # what is not negative stays so: right-hand sides have poles there
    parts = [
        np.where(shot.positive & (starts > 0.0), (NEAREST - 1.0) * starts / shot.scale, -np.inf)
        for shot, starts in zip(shots, states, strict=True)
    ]
    return np.concatenate([part.ravel() for part in parts])


def _moved(shots: Sequence[Shot], states: Sequence[Array], step: Array) -> list[Array]:
    """Return starts of windows after a step; without one, of those that are held, as they are."""
    if not step.size:
        return list(states)
    moved: list[Array] = []
    first = 0
    for shot, starts in zip(shots, states, strict=True):
        part = step[first : first + starts.size]
        moved.append(starts + part.reshape(starts.shape) * shot.scale)
        first += starts.size
    return moved


def _logarithms(functional: Reduced) -> npt.NDArray[np.bool_]:
    """Return which entries of x are logarithms [k]."""
    control = functional.control
    if not isinstance(control, Parameters):
        return np.zeros(functional.start().size, dtype=bool)
    return np.array([control.entries[name].scale == "log" for name in control.free_names])


def _trial(
    shots: Sequence[Shot],
    edges: Sequence[Array],
    x: Array,
    states: Sequence[Array],
    level: float,
) -> Runs | None:
    """Return the windows at a trial point, None if they fail."""
    try:
        return _runs(shots, edges, x, states, level)
    except SolveError:
        return None


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


def _runs(
    shots: Sequence[Shot],
    edges: Sequence[Array],
    x: Array,
    states: Sequence[Array],
    level: float = 1.0,
) -> Runs:
    """Integrate all windows; jumps count in units of ``level`` times the noise level."""
    windows: list[list[Window]] = []
    residuals: list[Array] = []
    jumps: list[Array] = [np.zeros(0)]
    try:
        for shot, times, own in zip(shots, edges, states, strict=True):
            windows.append([])
            for window in _shoot(shot, times, x, own):
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


def _shoot(shot: Shot, edges: Array, x: Array, states: Array) -> Iterator[Window]:
    """Yield the windows of one experiment."""
    run, problem = shot.run, shot.run.problem
    u0, p = run.control.unpack(problem, scatter(x, run.start()))
    moments = [term[0] for term in shot.terms if isinstance(term[0], float)]
    if problem.delays is not None:
        yield _restarted(shot, edges, u0, p, states, moments)
        return
    for w, (first, last) in enumerate(pairwise(edges.tolist())):
        begin: Any = u0 if w == 0 else states[w - 1]
        follow = None
        if w and problem.form != "rhs":
            begin, follow = _consistent(run, first, begin, p)
        within = np.unique([at for at in moments if first < at < last])
        trajectory = solve_part(problem, begin, p, shot.stepping, (first, last), within)
        final = w == len(edges) - 2
        terms = [
            (np.sqrt(weight), scalar, trajectory.index(at))
            for at, weight, scalar in shot.terms
            if (w == 0 if isinstance(at, Start) else first <= at < last or (final and at == last))
        ]
        ends = [] if final else [(trajectory.n_steps, w)]
        yield Window(trajectory, terms, follow, range(max(w - 1, 0), w), ends)


def _restarted(
    shot: Shot, edges: Array, u0: Any, p: Any, states: Array, moments: Sequence[float]
) -> Window:
    """Return all windows of a delay equation: one run that is restarted where they begin."""
    problem, stepping = shot.run.problem, shot.stepping
    stepping = replaced(
        stepping,
        t_span=(edges[0], edges[-1]),
        max_steps=min(shot.run.stepping.max_steps, MOST_STEPS * (len(edges) - 1)),
    )
    inner = edges[1:-1].tolist()
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


def _jacobian(shots: Sequence[Shot], runs: Runs, level: float = 1.0, *, held: bool = False) -> Any:
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
            own = 0 if held else n * len(window.starts)
            first = column + n * window.starts.start
            places = np.concatenate([np.arange(k), np.arange(first, first + own)])
            along = _tangents(window, du, dp, shot.scale, held=held)
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
        if not held:
            column += n * sum(len(window.ends) for window in windows)
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


def _tangents(window: Window, du: Array, dp: Array, scale: Array, *, held: bool = False) -> Array:
    """Return the tangents of all states [N + 1, D, n], along x and along its starts, scaled."""
    trajectory, k, n = window.trajectory, len(dp), len(scale)
    own = 0 if held else len(window.starts)
    if held and window.starts:
        du = np.zeros_like(du)
    if trajectory.problem.delays is not None:
        restarts = np.zeros((own, k + own * n, n))
        for start in range(own):
            restarts[start, k + start * n : k + (start + 1) * n] = np.diag(scale)
        none = np.zeros((own * n, n)), np.zeros((own * n, dp.shape[1]))
        program = DelayedProgram(trajectory)
        tangents = program.tangents(np.vstack([du, none[0]]), np.vstack([dp, none[1]]), restarts)
        return tangents.du.transpose(0, 2, 1)
    if own:
        du = np.vstack([np.zeros((k, n)), np.diag(scale)])
        dp = np.vstack([dp, np.zeros((n, dp.shape[1]))])
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
