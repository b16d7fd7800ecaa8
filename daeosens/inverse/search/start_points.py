"""Starts spread over bounds and priors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy
from scipy.special import ndtr, ndtri

from daeosens.errors import InputError, is_one_of, is_whole, name_list, together, whole_number
from daeosens.functional.functional import Functional
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, finite_array, gather

Sampling: TypeAlias = Literal["sobol", "latin_hypercube"]


MOST_STARTS = 1_000_000
"""More starts than this are a mistake."""


def _normal_laws(normal: object, size: int) -> dict[int, tuple[float, float]]:
    """Return the means and standard deviations of variables by their numbers, checked."""
    laws: dict[int, tuple[float, float]] = {}
    table: Any = normal
    pairs: list[Any] = [*table.items()] if isinstance(normal, Mapping) else [(None, None)]
    for i, law in pairs:
        pair = finite_array(law, f"normal[{i!r}]") if is_whole(i) and 0 <= i < size else None
        if pair is None or pair.shape != (2,) or pair[1] <= 0.0:
            raise InputError(
                f"normal = {normal!r}",
                expected="{number of a variable: (mean, standard deviation > 0)}",
            )
        laws[int(i)] = (float(pair[0]), float(pair[1]))
    return laws


def starting_points(
    functional: Functional,
    count: int,
    *,
    names: Sequence[str] = (),
    normal: Mapping[int, tuple[float, float]] | None = None,
    sampling: Sampling = "sobol",
    seed: int = 0,
) -> Array:
    """Return starts [count, n] spread over the bounds, or over priors; the first is the usual one.

    In the optimiser's scale: uniform in the logarithm for ``scale="log"``.  Collective.

    Parameters
    ----------
    functional : Functional
        Its start and its bounds.
    count : int
        Number of starts.
    names : sequence of str [n], optional
        For messages.
    normal : mapping of int to (mean, sigma), optional
        Components that have a normal prior: spread as it is, within the bounds.
    sampling : "sobol" or "latin_hypercube"
        Low-discrepancy points, or one point in each of ``count`` slices of every component.
    seed : int
        The same seed gives the same starts.

    Raises
    ------
    InputError
        A component has neither a prior nor two finite bounds.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.36], sigma=0.1)
    >>> rates = Parameters({"rate": Parameter(0.5, lower=0.1, upper=2.0)}, initial_state=[1.0])
    >>> functional = Reduced(decay, misfit, Stepping((0.0, 2.0), "rk4", dt=0.1), rates)
    >>> starting_points(functional, 3).round(3).tolist()
    [[0.5], [0.879], [1.532]]
    """
    if not (callable(getattr(functional, "start", None)) and hasattr(functional, "bounds")):
        raise InputError(
            f"functional is {type(functional).__name__}",
            expected="a functional",
            remedy="Reduced(problem, objective, stepping, control)",
        )
    count = whole_number(count, "number of starts", least=1, most=MOST_STARTS)
    seed = whole_number(seed, "seed")
    agree(
        functional.comm,
        "starting_points",
        count=count,
        normal=normal,
        sampling=sampling,
        seed=seed,
    )
    if not is_one_of(sampling, "sobol", "latin_hypercube"):
        raise InputError(f"sampling = {sampling!r}", expected='"sobol" or "latin_hypercube"')
    start = gather(functional.start())
    size = len(start)
    bounds = functional.bounds()
    lower = np.full(size, -math.inf) if bounds is None else gather(bounds[0])
    upper = np.full(size, math.inf) if bounds is None else gather(bounds[1])
    laws = {} if normal is None else _normal_laws(normal, size)
    labels = name_list(names, "names") or tuple(f"x[{i}]" for i in range(size))
    if len(labels) != size:
        raise InputError(f"names = {names!r}", expected=f"{size} names, one for each variable")
    complaints = [
        f'"{labels[i]}" lies in [{lower[i]:g}, {upper[i]:g}] in the optimiser\'s scale; expected: '
        "two finite bounds (positive ones on a log scale), or a prior"
        for i in range(size)
        if i not in laws and not math.isfinite(upper[i] - lower[i])
    ]
    if count > 1 and complaints:
        raise together(complaints, heading="starts")
    if count == 1:
        return start[None, :]
    shares = _unit_points(int(count) - 1, size, sampling, seed)
    points = np.empty_like(shares)
    for i in range(size):
        if i in laws:
            mean, sigma = laws[i]
            # A normal cut at the bounds: shares between the probabilities of its two ends,
            # through the inverse of the distribution.
            ends = ndtr((np.array([lower[i], upper[i]]) - mean) / sigma)
            share = np.clip(ends[0] + shares[:, i] * (ends[1] - ends[0]), 1e-12, 1.0 - 1e-12)
            points[:, i] = np.clip(mean + sigma * ndtri(share), lower[i], upper[i])
        else:
            points[:, i] = lower[i] + shares[:, i] * (upper[i] - lower[i])
    # the user's own start is the first one, whatever the seed
    return np.vstack([start, points])


def _unit_points(count: int, size: int, sampling: Sampling, seed: int) -> Array:
    """Return points [count, size] in the unit cube."""
    qmc = scipy.stats.qmc  # imported here: it takes longer than all the rest of SciPy together
    if sampling == "latin_hypercube":
        return np.asarray(qmc.LatinHypercube(size, rng=seed).random(count), dtype=float)
    # Sobol points are balanced in powers of two only
    powers = max(0, math.ceil(math.log2(count)))
    return np.asarray(qmc.Sobol(size, rng=seed).random_base2(powers)[:count], dtype=float)
