"""Where densities of running costs have kinks inside of adaptive steps, and what is made of that.

Steps end at kinks of the equations, and not at those of costs: a run does not know which costs will
be differentiated along it.  It need not, since such a kink costs the integral alone.  Here it is
located, and the costs of its step are taken by parts (``costs_by_parts``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.cost import Cost, Numbered, Scalar
from daeosens.derivatives.branches.branch_changes import (
    NEARER,
    SIDE,
    Piecewise,
    changed_by_rounding,
    density_of,
)
from daeosens.derivatives.costs_by_parts import CostByParts, Crossing, MapByParts
from daeosens.derivatives.engines.request import window_of
from daeosens.derivatives.step_placement.branch_passages import (
    OFTEN,
    SEVERAL,
    Inside,
    Part,
    ends_of,
    state_at,
)
from daeosens.derivatives.step_placement.kink_cuts import FARTHER
from daeosens.derivatives.step_placement.kinks_inside import BOUNDED
from daeosens.errors import DaeosensError, InputError, NotFiniteError, SolveError
from daeosens.methods.step import Step
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.branches import Branches, Decisions
from daeosens.problem.problem import Problem
from daeosens.timestepping.runner import repeating
from daeosens.timestepping.trajectory.trajectory import Trajectory

NEAR = 1e-10
"""Part of a step around a kink that is a part of its own: so much of the kink's effect is left."""

ROUNDINGS = 128.0
"""It is at least so many roundings of the time, between which nothing can be told apart."""

LONGEST = 1e-3
"""A longer part of a step is not next to nothing: of such steps nothing is made by parts."""

AHEAD = (1 / 2, 1 / 4, 1 / 12, 1 / 64, 1 / 1024, 1 / 131072, 3e-8)
"""Parts of a step before a kink at which parts of it end.

Stages are off by about the square of the part of the step that they belong to, and must lie on its
side of the kink.  So ends are the farther apart the farther they are from it.
"""

BESIDE = 1e-6
"""Part of a step on either side of a kink at which gradients are compared."""

CLOSE = 1e-6
"""Part of a step before a kink in which differences of states are not taken: they are rounding."""

SHORTLY = 1 / 12
"""Part of a step behind its end at which its last stages may be."""

ACROSS = 1e-6
"""Rate at which a kink is crossed, at least, relative to its terms."""

NO_JUMP = 1e-8
"""Part of gradients that is no jump, but what rounding leaves of it."""

GAP = 10.0
"""Where densities jump they change more than so many times as much as beside that place."""

BENDS = 1e-6
"""Part of a slope that tells how it changes towards a kink."""

INSIDE = (0.25, 0.5, 0.75)
"""Places in a step at which what decides is looked at."""

NEARLY = 0.05
"""What turns nearer to zero than this part of its changes in a step may have passed it."""

KNOTS = 64
"""Places of one table that a step may pass."""


@dataclass(frozen=True)
class KinkInside:
    """A branch of a density that changes sides inside a step, at a place in [0, 1].

    ``state`` [n] is that of the run there, ``sharp`` whether slopes of derivatives have no bound:
    then steps beside it have it too, at a place outside of [0, 1].  ``several`` tells that branches
    change sides there by different functions of the state.
    """

    place: float
    state: Array
    sharp: bool
    several: bool = False


class _Known:
    """What is known of the costs along a run."""

    def __init__(self) -> None:
        self.kinks: dict[Scalar, dict[int, list[KinkInside]]] = {}
        self.made: dict[tuple[tuple[float, Scalar], ...], dict[int, CostByParts]] = {}
        self.moving: dict[int, dict[tuple[Any, ...], CostByParts]] = {}


_KNOWN: WeakKeyDictionary[Trajectory, _Known] = WeakKeyDictionary()

_SMOOTH: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Whether functions have no branches."""


def by_parts(run: Trajectory, cost: Cost) -> Cost:
    """Return a lowered cost that is right where its densities have kinks inside of steps.

    Of adaptive runs, and of those that repeat their steps.
    """
    if not cost.densities or not _admits(run):
        return cost
    densities = [
        (weight, scalar)
        for weight, scalar in cost.densities
        if getattr(scalar, "branches", None) is not None and not _is_smooth(run, scalar)
    ]
    if not densities:
        return cost
    known, key = _KNOWN.setdefault(run, _Known()), tuple(densities)
    if key not in known.made:
        known.made[key] = _made(run, densities)
    points: list[tuple[Numbered, float, Scalar]] = []
    for n, made in known.made[key].items():
        if not run.records or run.records[n].plain:
            points.append((Numbered(n), 1.0, made))
            continue
        # the time of the step has a part in it: the map of the step knows that
        of_step = known.moving.setdefault(n, {})
        of_step[tuple(cost.densities)] = made
        run.refined[n] = partial(MapByParts, made=of_step)
    return replace(cost, points=(*cost.points, *points))


def parts_of(run: Trajectory, cost: Cost) -> dict[int, CostByParts]:
    """Return what ``by_parts`` has made of a cost, by the numbers of steps."""
    known = _KNOWN.get(run)
    if known is None:
        return {}
    key = tuple(entry for entry in cost.densities if entry[1] in known.kinks)
    return known.made.get(key, {})


def steps_by_parts(run: Trajectory, scalar: Scalar, *, second: bool = False) -> frozenset[int]:
    """Return the numbers of the steps whose costs of a density are taken by parts.

    If ``second``, of those whose second derivatives are right as well.
    """
    known = _KNOWN.get(run)
    if known is None:
        return frozenset()
    steps = known.kinks.get(scalar, {})
    if not second:
        return frozenset(steps)
    sharp = {n for n, kinks in steps.items() if any(kink.sharp for kink in kinks)}
    unknown = {
        n
        for of_cost in known.made.values()
        for n, made in of_cost.items()
        for crossing in made.crossings
        if crossing.scalar is scalar and not crossing.along
    }
    return frozenset(steps) - sharp - unknown


def _admits(run: Trajectory) -> bool:
    """Return whether kinks of costs are located in a run."""
    problem, stepping = run.problem, run.stepping
    return (
        (stepping.adaptive or stepping.of_adaptive)
        and run.n_steps > 0
        and problem.comm.size == 1
        and problem.delays is None
        and problem.monitor is None
    )


def _is_smooth(run: Trajectory, scalar: Any) -> bool:
    """Return whether a density has no branches."""
    branches = scalar.branches
    function = getattr(branches, "function", None)
    try:
        known = _SMOOTH.get(function)
    except TypeError:  # what cannot be referred to weakly
        known = None
    if known is not None:
        return known
    t, u = state_at(run, 0, 0.0)
    decided = branches(t, u, np.asarray(run.p), in_time=True)
    smooth = not (decided.values.size or getattr(branches, "forks", True))
    if isinstance(branches, Branches):
        with suppress(TypeError):
            _SMOOTH[function] = smooth
    return smooth


def _made(run: Trajectory, densities: Sequence[tuple[float, Scalar]]) -> dict[int, CostByParts]:
    """Return what is made by parts of densities, by the numbers of steps."""
    known = _KNOWN[run]
    for _, scalar in densities:
        if scalar not in known.kinks:
            known.kinks[scalar] = _kinks_inside(run, scalar)
    numbers = sorted({n for _, scalar in densities for n in known.kinks[scalar]})
    result: dict[int, CostByParts] = {}
    for n in numbers:
        concerned = [(w, scalar, known.kinks[scalar].get(n, [])) for w, scalar in densities]
        made = _of_step(run, n, [entry for entry in concerned if entry[2]])
        if made is None:
            for _, scalar in densities:
                known.kinks[scalar].pop(n, None)
        else:
            result[n] = made
    return result


# -- where kinks are


def _kinks_inside(run: Trajectory, scalar: Any) -> dict[int, list[KinkInside]]:
    """Return the kinks of a density inside of steps, by the numbers of these.

    None of steps in which it jumps: the time of a jump has a part in first derivatives.
    """
    function = _density(run, scalar)
    steps = np.flatnonzero(run.step_sizes > 0.0)
    if run.records:
        steps = np.array([n for n in steps.tolist() if run.records[n].jump is None], dtype=int)
    kinks: dict[int, list[KinkInside]] = {}
    jumping: set[int] = set()
    for n, place, state, _ in _places(run, function, steps, long=not run.thinned):
        jump, sharp = _judged(run, function, n, place, state)
        if jump:
            jumping.add(n)
        kinks.setdefault(n, []).append(KinkInside(place, state, sharp))
    kinks = {n: those for n, those in kinks.items() if n not in jumping}
    inside = [(n, kink) for n, those in kinks.items() for kink in those]
    for n, kink in inside:
        for m, outside in _beside(run, n, kink, set(steps.tolist()) - jumping):
            kinks.setdefault(m, []).append(outside)
    return kinks


def _beside(
    run: Trajectory, n: int, kink: KinkInside, steps: Set[int]
) -> Iterator[tuple[int, KinkInside]]:
    """Yield the steps beside step n that have something of a kink in it, as it is seen from there.

    The one before, whose last stages may lie behind a kink that is shortly after its end; of sharp
    ones all that are longer than they are far from it.
    """
    time = float(run.times[n] + kink.place * run.step_sizes[n])
    for way in (-1, 1):
        m = n + way
        while m in steps:
            start, h = float(run.times[m]), float(run.step_sizes[m])
            place = (time - start) / h
            if kink.sharp and max(-place, place - 1.0) >= 1.0 / (FARTHER - 1.0):
                break
            if not kink.sharp and not 1.0 <= place < 1.0 + SHORTLY:
                break
            yield m, KinkInside(place, kink.state, kink.sharp)
            m += way


def _density(run: Trajectory, scalar: Any) -> Piecewise:
    """Return a density, with what is decided by the time alone if there is such."""
    t, u = state_at(run, 0, 0.0)
    counts = [
        scalar.branches(t, u, np.asarray(run.p), in_time=in_time).values.size
        for in_time in (False, True)
    ]
    in_time = counts[0] != counts[1] or bool(getattr(scalar.branches, "forks", True))
    function = density_of(run, scalar, in_time=in_time)
    # some states are there one after the other
    return replace(function, along=None) if run.thinned else function


def _places(
    run: Trajectory, function: Piecewise, steps: npt.NDArray[np.int_], *, long: bool = False
) -> list[tuple[int, float, Array, int]]:
    """Return where in steps something decides differently.

    Numbers of steps, places in them, states there, and numbers of what decides.  ``long`` steps may
    pass there and back.
    """
    if not steps.size:
        return []
    ends = ends_of(run, function, steps, _nothing)
    changes = ends.changes()
    if len(changes) > SEVERAL + OFTEN * run.n_steps:
        return []
    with ExitStack() as runners:
        inside = Inside(run, function, runners)
        parts = inside.passages(ends, changes, ends.suspects(run.step_sizes[steps]))
        # a running cost has no error estimate that would make steps shorter
        for number, decided in _on_the_way(run, function, steps) if long else ():
            n, before, after = ends.of(number)
            more = _several_times(inside, n, [before, *decided, after])
            known = {k for k, _ in more}
            parts = [part for part in parts if not (part[0] == n and part[1] in known)]
            parts += [(n, k, part) for k, part in more]
        return [
            (n, place, state, k)
            for n, k, part in parts
            for place, state in _located(inside, n, k, part)
        ]


def _on_the_way(
    run: Trajectory, function: Piecewise, steps: npt.NDArray[np.int_]
) -> Iterator[tuple[int, Sequence[Decisions]]]:
    """Yield the places in ``steps`` of those of u' = f, and what decides at ``INSIDE`` of them.

    At states of the cubic through both ends with the rates there.
    """
    numbers: list[int] = []
    points: list[tuple[float, Array]] = []
    x = np.array(INSIDE)[:, None]
    for number, n in enumerate(steps.tolist()):
        (problem, p), h = run.equations(n), float(run.step_sizes[n])
        if problem.form != "rhs" or problem.parts is not None:
            continue
        slopes: list[Array] = []
        for place, out in zip(
            (0, 1), (problem.create_state(), problem.create_state()), strict=True
        ):
            problem.rhs(state_at(run, n, place)[0], run.stored[n + place], p, out)
            slopes.append(h * read(out))
        (t, u), (_, u_next) = (state_at(run, n, place) for place in (0.0, 1.0))
        moved, bent = u_next - u, x * (x - 1.0)
        inside = u + x * moved + bent * (1.0 - 2.0 * x) * moved
        inside = inside + bent * ((x - 1.0) * slopes[0] + x * slopes[1])
        numbers.append(number)
        points += [
            (problem.inside(t + place * h, t, h), state)
            for place, state in zip(INSIDE, inside, strict=True)
        ]
    if function.along is not None and points:
        decided = function.along(np.array([t for t, _ in points]), np.array([u for _, u in points]))
    else:
        of = [int(steps[number]) for number in numbers for _ in INSIDE]
        decided = [function.decide(n, *point) for n, point in zip(of, points, strict=True)]
    for k, number in enumerate(numbers):
        yield number, [decided[len(INSIDE) * k + i] for i in range(len(INSIDE))]


def _several_times(inside: Inside, n: int, nodes: Sequence[Decisions]) -> list[tuple[int, Part]]:
    """Return what changes sides more often inside step n than at its ends, and where about.

    What nodes on the way show is asked of the run.
    """
    if not nodes[0].values.size or len({node.values.size for node in nodes}) > 1:
        return []
    x = [0.0, *INSIDE, 1.0]
    parts: list[tuple[int, Part]] = []
    if _changes(nodes):
        start, h = float(inside.run.times[n]), float(inside.run.step_sizes[n])
        times = [start + place * h for place in INSIDE]
        way = [inside.function.decide(n, t, inside(n, t)[0]) for t in times]
        nodes = [nodes[0], *way, nodes[-1]]
        if len({node.values.size for node in nodes}) == 1:
            changes = _changes(nodes)
            parts = [(k, Part(x[i], x[i + 1], nodes[i], nodes[i + 1])) for i, k in changes]
    values = np.array([node.values for node in nodes])
    for k in np.flatnonzero(~nodes[0].whole).tolist():
        if _may_touch(values[:, k]):
            parts += [(k, part) for part in inside.there_and_back(n, k, nodes[0], nodes[-1])]
    return parts


def _may_touch(values: Array) -> bool:
    """Return whether values [5] at equal distances, all on one side, turn near zero between two."""
    sizes = np.abs(values)
    k = int(np.argmin(sizes))
    if k in (0, len(values) - 1) or np.any(values * values[0] <= 0.0):
        return False
    before, here, after = sizes[k - 1 : k + 2]
    bend = before - 2.0 * here + after
    turn = here - (after - before) ** 2 / (8.0 * bend) if bend > 0.0 else here
    return bool(turn < NEARLY * float(np.ptp(sizes)))


def _changes(nodes: Sequence[Decisions]) -> list[tuple[int, int]]:
    """Return behind which nodes decisions change sides, and their numbers, if several times."""
    signs = np.array([node.values > 0.0 for node in nodes])
    changed = signs[1:] != signs[:-1]
    often = (changed.sum(axis=0) > 1) & ~nodes[0].whole
    return [(int(i), int(k)) for i, k in np.argwhere(changed & often)]


def _nothing(_run: Trajectory) -> Array:
    return np.empty(0)


def _located(inside: Inside, n: int, k: int, part: Part) -> list[tuple[float, Array]]:
    """Return the places in a step at which something decides differently, and the states there.

    More than one where a step passes several places of a table.
    """
    located: list[tuple[float, Array]] = []
    for _ in range(KNOTS):
        place, state, _ = inside.located(n, k, part, NEAR)
        located.append((place, np.array(state)))
        if not part.before.whole[k] or place >= 1.0 - BESIDE:
            break
        t = float(inside.run.times[n] + (place + NEAR) * inside.run.step_sizes[n])
        here = inside.function.decide(n, t, inside(n, t)[0])
        if k >= here.values.size or here.values[k] == part.after.values[k]:
            break
        part = Part(place + NEAR, 1.0, here, part.after)
    return located


def _judged(
    run: Trajectory, function: Piecewise, n: int, place: float, state: Array
) -> tuple[bool, bool]:
    """Return whether a density or a slope of it without bound jumps at a place in a step.

    And whether slopes of derivatives have no bound there, as those of |x|^1.5.
    """
    start, h = float(run.times[n]), float(run.step_sizes[n])
    slope = read(run.stored[n + 1]) - read(run.stored[n])

    def value(offset: float) -> float:
        return float(function.value(n, start + (place + offset) * h, state + offset * slope)[0])

    distances = [SIDE, SIDE / NEARER, SIDE / NEARER**2]
    try:
        near = np.array([[value(side * x) for x in distances] for side in (-1.0, 1.0)])
        far = np.array([[value(2.0 * side * x) for x in distances] for side in (-1.0, 1.0)])
    except (InputError, NotFiniteError):  # the edge of its domain
        return True, False
    rng, rounding = np.random.default_rng(1), 1e-12 * float(np.abs(near).max())
    for side in (-1.0, 1.0):
        at = start + (place + side * SIDE) * h, state + side * SIDE * slope
        rounding += float(changed_by_rounding(function, rng, n, *at, side).max())
    gap, bent = abs(near[1, -1] - near[0, -1]), float(np.abs(far - near)[:, -1].sum())
    if gap > GAP * bent + rounding:
        return True, False
    slopes = (far - near) / np.array(distances)
    changes = np.abs(np.diff(slopes, axis=1))
    left = rounding / distances[-1] + BENDS * float(np.abs(slopes).max())
    for first, second in changes.tolist():
        if second > left and second > first:
            return True, False
    sharp = any(
        second > left and NEARER**-BOUNDED * first < second for first, second in changes.tolist()
    )
    return False, sharp


# -- what is made of them


def _of_step(
    run: Trajectory, n: int, concerned: Sequence[tuple[float, Any, Sequence[KinkInside]]]
) -> CostByParts | None:
    """Return the costs of step n by parts, or None where it is too short."""
    t, h, u, u_next, _, _ = run.step(n)
    problem, p = run.equations(n)
    near = max(NEAR, ROUNDINGS * float(np.spacing(abs(t) + h)) / h)
    if near > LONGEST:
        return None
    start = u.copy()
    try:
        with repeating(problem, p, run.stepping, start) as runner:

            def states_at(places: Sequence[float]) -> list[PETSc.Vec]:
                times = t + h * np.array(places)
                sizes = h * np.diff(places)
                return [state.copy() for state in runner.again(start.copy(), times, sizes)]

            # what parts make of the way to a kink is more accurate than the step: it is elsewhere
            cuts = _ahead([kink.place for *_, kinks in concerned for kink in kinks], near)
            way = _way(run, n, cuts, states_at(cuts))
            along = [
                (weight, scalar, _again(way, scalar, cuts, kinks, near))
                for weight, scalar, kinks in concerned
            ]
            kinks = [kink for *_, kinks in along for kink in kinks]
            cuts = _around(cuts, kinks, near)
            states = states_at(cuts)
    except SolveError:
        return None
    parts = [
        Step(t + h * begin, h * (end - begin), before, after, p, -1)
        for begin, end, before, after in zip(cuts, cuts[1:], states, states[1:], strict=False)
    ]
    method, options = run.stepping.resolved_method, run.stepping.options
    maps = method.step_map(problem, options, {}), method.step_map(problem, options, {})
    whole = Step(t, h, start, u_next, p, -1)

    def cross() -> list[Crossing]:  # without the run, which would keep itself alive
        located = [
            _crossing(problem, whole, cuts, states, near, (weight, scalar), kink)
            for weight, scalar, kinks in along
            for kink in kinks
        ]
        return [crossing for crossing in located if crossing is not None]

    densities = [(weight, scalar) for weight, scalar, _ in concerned]
    return CostByParts(problem, maps, whole, parts, densities, cross)


def _ahead(places: Sequence[float], near: float) -> list[float]:
    """Return the places in [0, 1] at which parts of a step end before those of kinks."""
    wanted = {place - part for place in places for part in AHEAD}
    clear = {x for x in wanted if all(abs(x - place) > 2.0 * near for place in places)}
    return sorted({0.0, 1.0} | {x for x in clear if near < x < 1.0 - near})


def _around(cuts: Sequence[float], kinks: Sequence[KinkInside], near: float) -> list[float]:
    """Return the places of cuts, and those on both sides of kinks."""
    added: set[float] = set()
    for kink in kinks:
        added |= {kink.place - near, kink.place + near}
        distance = FARTHER * near
        while kink.sharp and distance < 1.0:
            added |= {kink.place - distance, kink.place + distance}
            distance *= FARTHER
    inside = {x for x in {*cuts, *added} if 0.0 < x < 1.0}
    # none inside of the part across a kink
    clear = {x for x in inside if all(abs(x - kink.place) > 0.99 * near for kink in kinks)}
    return sorted({0.0, 1.0} | clear)


def _way(run: Trajectory, n: int, cuts: Sequence[float], states: Sequence[PETSc.Vec]) -> Trajectory:
    """Return a step by its parts as a run of its own."""
    window = window_of(run, n, n + 1)
    times = float(run.times[n]) + float(run.step_sizes[n]) * np.array(cuts)
    return replace(window, times=times, step_sizes=np.diff(times), stored=states, kept={})


def _again(
    way: Trajectory,
    scalar: Any,
    cuts: Sequence[float],
    kinks: Sequence[KinkInside],
    near: float,
) -> list[KinkInside]:
    """Return the kinks of a density along the parts of a step.

    One of those at one place: of what is compared twice, or at the end of one part and the start of
    the next.
    """
    sharp, function = any(kink.sharp for kink in kinks), _density(way, scalar)
    located = [
        (KinkInside(cuts[n] + place * (cuts[n + 1] - cuts[n]), state, sharp), n, k)
        for n, place, state, k in _places(way, function, np.arange(way.n_steps))
    ]
    result = [kink for kink in kinks if not 0.0 <= kink.place <= 1.0]
    last = 0
    for kink, n, k in sorted(located, key=lambda entry: entry[0].place):
        if not result or kink.place - result[-1].place > 2.0 * near:
            result.append(kink)
        elif k != last and not _same(way, function, n, kink.state, (last, k)):
            result[-1] = replace(result[-1], several=True)
        last = k
    return result


def _same(
    way: Trajectory, function: Piecewise, n: int, state: Array, numbers: tuple[int, int]
) -> bool:
    """Return whether two decisions change sides together where the state is moved as well."""
    rng, t = np.random.default_rng(1), float(way.times[n])
    sizes = 1e-3 * np.maximum(np.abs(state), 1e-3 * np.abs(state).max(initial=0.0))
    sides: list[bool] = []
    for _ in range(8):
        values = function.decide(n, t, state + rng.normal(size=state.size) * sizes).values
        if max(numbers) >= values.size:
            return False
        first, second = (values[number] > 0.0 for number in numbers)
        sides.append(bool(first == second))
    return all(sides) or not any(sides)


def _crossing(
    problem: Problem,
    step: Step,
    cuts: Sequence[float],
    states: Sequence[PETSc.Vec],
    near: float,
    density: tuple[float, Any],
    kink: KinkInside,
) -> Crossing | None:
    """Return what the moving time of a kink contributes; None at the start of a step.

    A kink at the end of one step and the start of the next is that of the former.
    """
    if not 0.0 < kink.place <= 1.0:
        return None
    h, p = step.h, step.p
    part = int(np.searchsorted(cuts, kink.place - near))
    part = min(part, len(cuts) - 2)
    t = step.t + kink.place * h
    rate = _rate((problem, p), t, kink, cuts, states, h)
    beside = max(BESIDE, 10.0 * near) * h
    # what the gradient changes besides grows with the distance
    try:
        (before, after), farther = (
            [
                _gradient(problem, density, t + side, kink.state + side * rate, p)
                for side in (-distance, distance)
            ]
            for distance in (beside, 2.0 * beside)
        )
    except DaeosensError:  # the edge of its domain
        before = after = np.full(problem.size + problem.create_parameters().size + 1, np.nan)
        farther = [before, after]
    jump, size = 2.0 * (after - before) - (farther[1] - farther[0]), np.abs(before) + np.abs(after)
    n_u = problem.size
    rates = np.concatenate([rate, np.zeros(jump.size - n_u - 1), [1.0]])
    along, terms = float(jump @ rates), float(np.abs(jump * rates).sum())
    if terms <= NO_JUMP * float(size @ np.abs(rates)):
        return None
    if not abs(along) > ACROSS * terms or kink.several:
        along = 0.0  # nothing is known
    by_u, by_p = problem.create_state(), problem.create_parameters()
    write(by_u, jump[:n_u])
    write(by_p, jump[n_u:-1])
    return Crossing(part, density[1], by_u, by_p, float(jump[-1]), along)


def _gradient(problem: Problem, density: tuple[float, Any], t: float, u: Array, p: Any) -> Array:
    """Return the weighted gradient of a density in state, parameters and time [n + m + 1]."""
    weight, scalar = density
    point, by_u, by_p = problem.create_state(), problem.create_state(), problem.create_parameters()
    write(point, u)
    scalar.add_u(weight, t, point, p, by_u)
    scalar.add_p(weight, t, point, p, by_p)
    return np.concatenate([read(by_u), read(by_p), [weight * scalar.value_t(t, point, p)]])


def _rate(
    equations: tuple[Problem, Any],
    t: float,
    kink: KinkInside,
    cuts: Sequence[float],
    states: Sequence[PETSc.Vec],
    h: float,
) -> Array:
    """Return u' [n] at a kink: f where the equations are u' = f, elsewhere that of a parabola.

    Through the last three states before it that are far enough apart for differences.
    """
    problem, p = equations
    if problem.form == "rhs" and problem.parts is None:
        state, out = problem.create_state(), problem.create_state()
        write(state, kink.state)
        problem.rhs(t, state, p, out)
        return read(out).copy()
    before = [k for k, x in enumerate(cuts) if x <= kink.place - CLOSE]
    if len(before) < 2:
        k = max(int(np.searchsorted(cuts, kink.place)) - 1, 0)
        return (read(states[k + 1]) - read(states[k])) / (h * (cuts[k + 1] - cuts[k]))
    x = [h * (cuts[k] - kink.place) for k in before[-3:]]
    u = [read(states[k]) for k in before[-3:]]
    last = (u[-1] - u[-2]) / (x[-1] - x[-2])
    if len(x) < 3:
        return last
    bend = (last - (u[1] - u[0]) / (x[1] - x[0])) / (x[2] - x[0])
    return last - bend * (x[2] + x[1])
