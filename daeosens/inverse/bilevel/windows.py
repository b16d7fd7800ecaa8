"""Multiple shooting: the equations are integrated over short windows of samples.

Each window begins at a state of its own, which is unknown like the parameters.  So an error of the
parameters cannot grow along the whole run, and an oscillator does not lose its phase: sums of
squares of windows have few minima where that of the run has hundreds.  Jumps between windows are
then made smaller, until they are one run.

Where all unknowns were measured, windows may be held first where measurements have them: parameters
alone are a small problem, and states cannot make up for what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import splu

from daeosens.errors import InputError, SolveError, UnsupportedError
from daeosens.functional.parameters import Parameters
from daeosens.functional.reduced import Reduced
from daeosens.inverse.bilevel.shooting import Runs, Shot, cut, jacobian_of, shoot
from daeosens.petsc.vectors import Array, gather

SMALLER = 10.0
"""By what jumps between windows are divided from one stage to the next."""

SMALLEST_LEVEL = 1e-4
"""Of jumps, in units of the noise level: below, rounding and tolerances of steps are the rest."""

CLOSED = 0.1
"""Windows are one run if jumps add no more to half the sum of squares: far below a standard error.
"""

ENOUGH = 1e-3
"""The next level, or the fit, goes on from a minimum: no more digits of the value are of use."""

SETTLED = 1e-3
"""Likewise of the run itself, in units of the residuals: a twentieth of a standard error."""

PATIENCE = 5
"""Steps that come to less than that each, together, are the last ones."""

LONGEST_STEP = 1.5
"""Parameters move by so many of their typical sizes in a step: of logarithms a factor of 4.5."""

LINEAR = 0.25
"""A step that comes to less than this part of what the linear model expects is bent once."""

NEAREST = 0.1
"""So much of what cannot be negative is left by a step."""

WIDTH = np.log(10.0)
"""Standard deviation of logarithms about where windows began, in the normal law that holds them."""


@dataclass(frozen=True, eq=False)
class Stage:
    """What windows came to at one level of jumps.

    Attributes
    ----------
    samples : int
        Times of measurements in a window; 0 for all.
    windows : int
        How many in all experiments.
    x : array [k]
    states : list of array [w, n]
        Where the windows of each experiment begin, the first ones left out.
    level : float
        Of jumps, in units of the noise level; 0 without any.
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


def held_windows(
    shots: Sequence[Shot],
    x: Array,
    samples: int,
    guess: Sequence[Any],
    *,
    known: bool = True,
    limits: tuple[Array, Array] | None = None,
    max_iterations: int = 50,
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
    return _minimized(
        shots, edges, x, states, samples, 1.0, x, known, limits, max_iterations, held=True
    )


def refined_by_windows(
    shots: Sequence[Shot],
    x: Array,
    samples: int,
    guess: Sequence[Any],
    *,
    single: bool = False,
    begun: Stage | None = None,
    known: bool = True,
    limits: tuple[Array, Array] | None = None,
    max_iterations: int = 100,
) -> list[Stage]:
    """Minimise over windows of ``samples`` samples, then with ever smaller jumps between them.

    Gauss-Newton with Levenberg and Marquardt's damping, all starts of windows and parameters at
    once; the derivatives are those of the discrete runs.  Jumps from one window to the next count
    as residuals, at first with the noise level of the unknown, which also decides what was not
    measured.  Then their level goes to zero, until the windows are one run: what jumps add to the
    sum of squares is, to first order, what the run lacks.

    The last stage is the run, without jumps or any law of parameters: what is not determined lies
    in valleys that are narrow and bent, in which steps that follow the bend come further.

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
    limits : (array [k], array [k]), optional
        What bounds a search, in the place of the bounds of the parameters.
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
        begun = _minimized(shots, edges, x, states, samples, 1.0, x, known, limits, max_iterations)
    stages = [begun]
    if single:
        return stages
    while stages[-1].level > SMALLEST_LEVEL:
        last = stages[-1]
        if last.jumps <= CLOSED * (1.0 if known else 2.0 * last.value / max(last.degrees, 1)):
            break
        level = last.level / SMALLER
        settings = (samples, level, x, known, limits, max_iterations)
        stages.append(_minimized(shots, edges, last.x, last.states, *settings))
    last = stages[-1]
    ends = [times[[0, -1]] for times in edges]
    none = [np.zeros((0, len(shot.scale))) for shot in shots]
    try:
        run = _minimized(shots, ends, last.x, none, 0, 0.0, None, known, limits, max_iterations)
    except SolveError:
        return stages  # windows had no need of what ends the run
    return [*stages, run]


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
    centre: Array | None,
    known: bool,
    limits: tuple[Array, Array] | None,
    max_iterations: int,
    *,
    held: bool = False,
) -> Stage:
    """Minimise by damped Gauss-Newton steps from x and the starts of windows, or with these held.

    A normal law of logarithms about ``centre``, one decade wide, is part of what is minimised; in
    the unit of the residuals, where levels of noise are not known.  Without it, the run itself.
    """
    functional = shots[0].run
    lower, upper = _bounds(functional, len(x)) if limits is None else limits
    longest = LONGEST_STEP * np.maximum(gather(functional.typical()[0]), 1e-8)
    runs = shoot(shots, edges, x, states, level)
    unit = 1.0 if known else 2.0 * runs.value / len(runs.residual)
    whole = centre is None
    # windows with jumps fit data with less than the run needs: a rate may go to zero on the way,
    # and its logarithm does not come back from there by itself
    pull = np.where(_logarithms(functional) & (not whole), unit / WIDTH**2, 0.0)
    centre = x if centre is None else centre
    jacobian = jacobian_of(shots, runs, level, held=held)
    value = runs.value + 0.5 * float(pull @ (x - centre) ** 2)
    k, iteration, damping, growth, values = len(x), 0, 1e-3, 2.0, [value]

    def tried(step: Array) -> tuple[Runs | None, float]:
        """Return the windows after a step, and the value."""
        after = _trial(shots, edges, x + step[:k], _moved(shots, states, step[k:]), level, runs)
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
                jacobian = jacobian_of(shots, after, level, held=held)
            except SolveError:
                lowered = np.inf
        # where damping or limits make steps short, what is expected of them says nothing of how far
        # the minimum is; what some of them have come to does
        within = bool((np.abs(step[:k]) < longest).all())
        little = SETTLED * unit if whole else ENOUGH * min(value, lowered)
        done = abs(expected) < little and damping < 0.1 and within
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
        runs.destroy()
        x, states, runs = x + step[:k], _moved(shots, states, step[k:]), after
        value, values = lowered, [*values[-PATIENCE:], lowered]
        # as far as the linear model has held (Nielsen)
        damping *= max(0.1, 1.0 - (2.0 * gain - 1.0) ** 3)
        damping, growth = max(damping, 1e-12), 2.0
        if done or after.value < 1e-9 * len(after.residual) or _stalled(values, little):
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


def _bounds(functional: Reduced, size: int) -> tuple[Array, Array]:
    """Return the bounds of x, infinite where there are none."""
    bounds = functional.bounds()
    if bounds is None:
        return np.full(size, -np.inf), np.full(size, np.inf)
    return gather(bounds[0]), gather(bounds[1])


def _stalled(values: Sequence[float], little: float) -> bool:
    """Whether the last steps have come to too little to go on."""
    return len(values) > PATIENCE and values[0] - values[-1] < PATIENCE * little


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
    best: Runs,
) -> Runs | None:
    """Return the windows at a trial point, None if they fail."""
    try:
        return shoot(shots, edges, x, states, level, best)
    except SolveError:
        return None
