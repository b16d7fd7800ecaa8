"""Where a fit of a delay equation begins: at several delays, of which windows tell the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy

from daeosens.errors import SolveError
from daeosens.inverse.bilevel.bilevel_starts import APART, CANDIDATES
from daeosens.inverse.bilevel.shooting import Shot
from daeosens.inverse.bilevel.windows import Stage
from daeosens.inverse.likelihood.likelihood import Likelihood
from daeosens.petsc.vectors import Array

OTHERS = 7
"""So many other delays windows begin at, while those that were given lead nowhere."""

DELAYS = (1e-2, 0.5)
"""Between these parts of the longest run they lie."""

AS_NOISY = 2.0
"""Chi-square of held windows near the truth is at most so large: they begin at measurements."""


def other_delays(likelihood: Likelihood, shots: Sequence[Shot], x: Array, seed: int) -> list[Array]:
    """Return x with other delays: parts of the longest run within their bounds, evenly by log."""
    names = likelihood.parameters.free_names
    lasting = max(max(shot.misfit.times) - shot.run.stepping.t_span[0] for shot in shots)
    qmc = scipy.stats.qmc  # imported here: it takes longer than all the rest of SciPy together
    # a sequence, which is even however few of them are tried
    halton = qmc.Halton(len(likelihood.limits), rng=np.random.default_rng(seed))
    points = np.tile(x, (OTHERS, 1))
    for (name, delay), share in zip(
        likelihood.limits.items(), halton.random(OTHERS).T, strict=True
    ):
        low, high = np.clip(np.multiply(DELAYS, lasting), delay.lower, delay.upper)
        if low == high:  # bounds beyond these parts of the longest run
            low = max(delay.lower, 0.1 * high)
            high = min(delay.upper, 10.0 * low)
        values = low * (high / low) ** share
        points[:, names.index(name)] = [delay.scaled(value) for value in values.tolist()]
    return [*points]


def held_from_delays(
    points: Sequence[Array], held_at: Callable[[Array], Stage], hopeless: float, *, known: bool
) -> list[tuple[Array, Stage]]:
    """Return held windows from several delays and where each began, best first.

    Delays have minima of their own, to each of which rates are found that do best with them.  Held
    windows come there in seconds; where noise levels are known, until one is near the truth.
    """
    stages: list[tuple[Array, Stage]] = []
    for point in points:
        try:
            stage = held_at(point)
        except SolveError:
            continue
        stages.append((point, stage))
        if known and 2.0 * stage.value < AS_NOISY * stage.degrees:
            return [stages[-1]]
    stages.sort(key=lambda attempt: attempt[1].value)
    different: list[tuple[Array, Stage]] = []
    for point, stage in stages:
        if all(np.abs(stage.x - other.x).max() > APART for _, other in different):
            different.append((point, stage))
    # without noise levels nothing tells when to go on to the next
    best = different[: CANDIDATES if known else 1]
    return [attempt for attempt in best if attempt[1].value <= hopeless] or best[:1]
