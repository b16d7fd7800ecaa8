"""Terms of equations left out, one after the other or many at once, and what each set came to.

Sets are compared by what they leave of measurements in the integral form: a linear problem each,
but for what is inside of terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from daeosens.errors import InputError
from daeosens.inverse.rate_groups import RateGroup, Solved
from daeosens.petsc.vectors import Array

ROUNDING = 1e-24
"""Sums of squares are not taken for smaller than this part of what they are without a model."""

FINE, ROUGH = 1e-8, 1e-2
"""Of gradients: where terms are what is asked for; where only the weakest of them are, as a part of
what may stay unexplained."""

FEW = 50
"""Iterations for the latter: weak terms leave what is inside of them undetermined."""


@dataclass(frozen=True)
class Step:
    """What one set of terms came to.

    Attributes
    ----------
    terms : tuple of str
        The coefficients that were left.
    value : float
        Half the sum of squares.
    aic, bic : float
        Akaike's and Schwarz's criteria.
    smallest : float
        The smallest share of a term: of what changes an equation's unknown, its part.
    dropped : tuple of str
        Which coefficients left after that.
    """

    terms: tuple[str, ...]
    value: float
    aic: float
    bic: float
    smallest: float
    dropped: tuple[str, ...]


def eliminated(
    groups: Sequence[RateGroup], threshold: float | None, criterion: Literal["bic", "aic"]
) -> tuple[list[Solved], list[Step]]:
    """Drop what is small until nothing is, or the weakest term until there is none."""
    active = [list(group.names) for group in groups]
    solved: list[Solved | None] = [None] * len(groups)
    path: list[Step] = []
    sets: list[list[Solved]] = []
    # sequential thresholding (Brunton, Proctor, Kutz): solve, drop what is small, solve again;
    # without a threshold backward elimination, one term at a time
    while any(active):
        now = [
            old
            if old is not None and old.active == tuple(names)
            else group.solved(names, old, FINE)
            for group, names, old in zip(groups, active, solved, strict=True)
        ]
        names = [name for of_group in now for name in of_group.active]
        shares, strengths = (
            np.concatenate([getattr(of_group, kind) for of_group in now])
            for kind in ("shares", "strengths")
        )
        small = [a for a, share in zip(names, shares, strict=True) if share < (threshold or 0.0)]
        if threshold is None:
            small = [names[int(np.argmin(strengths))]]
        path.append(_step(now, float(shares.min()), small))
        sets.append(now)
        if not small:
            break
        active = [[name for name in of_group if name not in small] for of_group in active]
        solved = list(now)
    if threshold is None:
        # the path goes from all terms to none: the criterion says where to stop
        best = min(range(len(path)), key=lambda k: getattr(path[k], criterion))
        return sets[best], path
    if not any(active):
        smallest = path[-1].smallest
        if smallest <= 0.0:
            raise InputError(
                "no term explains anything", expected="data in which the unknowns change"
            )
        raise InputError(
            f"threshold = {threshold:g} leaves no term", expected=f"less than {smallest:.3g}"
        )
    return sets[-1], path


def restricted(
    groups: Sequence[RateGroup], names: Sequence[str]
) -> tuple[list[Solved], list[Step]]:
    """Solve for these terms alone."""
    now = [group.solved([n for n in group.names if n in names], None, FINE) for group in groups]
    smallest = min(float(of_group.shares.min()) for of_group in now if len(of_group.shares))
    return now, [_step(now, smallest, [])]


def within_tolerance(
    groups: Sequence[RateGroup], tolerance: float
) -> tuple[list[Solved], list[Step]]:
    """Drop the weakest terms while the rest explains the courses of all rates."""
    # many terms explain much with what is inside of them anywhere: which of them are weak shows
    # where it has moved to what the data say
    rough = ROUGH * tolerance**2
    solved = [group.solved(group.names, None, rough, FEW) for group in groups]
    worst = max(of_group.unexplained for of_group in solved)
    if worst > tolerance:
        raise InputError(
            f"tolerance = {tolerance:g}, but all terms together leave {worst:.3g} of the "
            "course of a rate unexplained",
            expected=f"more than {worst:.3g}, or a larger library",
        )
    path: list[Step] = []
    needed: list[set[str]] = [set() for _ in groups]
    most = [len(group.names) for group in groups]
    going = True
    while going:
        before, dropped, going = list(solved), list[str](), False
        for g, group in enumerate(groups):
            now = solved[g]
            # what would be missing without a term, as a part of its rate's course
            shares: Array = now.strengths / np.maximum(now.courses, 1e-300)
            order: list[int] = np.argsort(shares).tolist()
            weakest = [now.active[k] for k in order if now.active[k] not in needed[g]]
            if not weakest:
                continue
            going = True
            at_once = weakest[: max(min(most[g], len(weakest) // 5), 1)]
            left = [name for name in now.active if name not in at_once]
            trial = group.solved(left, now, rough, FEW)
            if trial.unexplained <= tolerance:
                solved[g] = trial
                dropped += at_once
            elif len(at_once) == 1:
                needed[g].update(at_once)
            else:
                most[g] = len(at_once) // 2
        if dropped:
            path.append(_step(before, _smallest(before), dropped))
    final = [
        group.solved(of_group.active, of_group, FINE)
        for group, of_group in zip(groups, solved, strict=True)
    ]
    path.append(_step(final, _smallest(final), ()))
    return final, path


def _smallest(solved: Sequence[Solved]) -> float:
    return min((float(s.shares.min()) for s in solved if s.active), default=0.0)


def _step(solved: Sequence[Solved], smallest: float, dropped: Sequence[str]) -> Step:
    count, nothing = sum(s.count for s in solved), sum(s.nothing for s in solved)
    value, k = sum(s.value for s in solved), sum(s.unknown for s in solved)
    # -2 log of the likelihood of Gaussian noise whose level is estimated too
    least = max(ROUNDING * nothing, count * np.finfo(float).tiny)  # of weights that are tiny, too
    fit = count * math.log(max(2.0 * value, least) / count)
    return Step(
        tuple(name for s in solved for name in s.active),
        value,
        fit + 2 * k,
        fit + k * math.log(count),
        smallest,
        tuple(dropped),
    )
