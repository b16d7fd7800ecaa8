"""Which parameters, and which combinations of them, the data determine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from daeosens.errors import (
    InputError,
    UnsupportedError,
    is_iterable,
    is_one_of,
    name_list,
    real_number,
)
from daeosens.petsc.vectors import Array, finite_array

Scale: TypeAlias = Literal["linear", "log"]

TOLERANCE = 1e-10
"""Curvatures below this part of what single parameters have are taken for zero."""

INDEFINITE = "the Hessian is indefinite"
"""In the error that says so."""

FALLING = 1e3
"""How many times the tolerance a negative curvature has to be: a minimum is met to some gradient
norm only, which tilts a flat valley that is curved."""


@dataclass(frozen=True, eq=False, repr=False)
class Identifiability:
    """Which combinations of parameters J tells apart; prints itself.

    Attributes
    ----------
    names : tuple of str [k]
        The parameters.
    scales : tuple of str [k]
        "linear" or "log".
    curvatures : array [k]
        Eigenvalues, ascending, of the Hessian scaled to a unit diagonal: 1 each for independent
        parameters, 0 for a combination that J does not depend on, negative at a saddle.
    weights : array [k, k]
        Their eigenvectors as columns: shares of the parameters, in units of the standard error that
        each would have if the others were known.
    directions : array [k, k]
        The same in the optimiser's scale, of length 1.
    tolerance : float
        Curvatures this small count as zero; negative ones that are a thousand times larger too.
    """

    names: tuple[str, ...]
    scales: tuple[Scale, ...]
    curvatures: Array
    weights: Array
    directions: Array
    tolerance: float

    @property
    def falling(self) -> str:
        """The combination along which J falls most, or an empty string at a minimum."""
        # Eigenvalues ascend, so the first is the lowest.
        least = self.curvatures[0] if self.curvatures.size else 1.0
        return self.combination(0) if least < -FALLING * self.tolerance else ""

    @property
    def unidentifiable(self) -> tuple[str, ...]:
        """Combinations on which J does not depend, to second order."""
        return tuple(self.combination(j) for j in self.flat)

    @property
    def flat(self) -> tuple[int, ...]:
        """Their numbers."""
        values = self.curvatures
        flat = (values >= -FALLING * self.tolerance) & (values <= self.tolerance)
        return tuple(np.flatnonzero(flat).tolist())

    def members(self, j: int) -> tuple[str, ...]:
        """Return the parameters that combination ``j`` is made of."""
        shares = np.abs(self.weights[:, j])
        return tuple(self.names[i] for i in np.flatnonzero(shares > 0.05 * shares.max()))

    def combination(self, j: int) -> str:
        """Return combination ``j`` in words: "0.71 log(a) - 0.71 log(b)"."""
        members = self.members(j)
        column = self.directions[:, j]
        sign = math.copysign(1.0, column[self.names.index(members[0])])
        terms: list[str] = []
        for name in members:
            i = self.names.index(name)
            value = sign * float(column[i])
            label = f"log({name})" if self.scales[i] == "log" else name
            if len(members) == 1:
                return label
            joint = ("- " if value < 0 else "+ ") if terms else ""
            terms.append(f"{joint}{abs(value):.2g} {label}")
        return " ".join(terms)

    def __repr__(self) -> str:
        """Return one line for each combination, the least known first."""
        lines = ["curvature   combination (1: as if alone, 0: cannot be told)"]
        lines += [
            f"{value:10.3e}  {self.combination(j)}" for j, value in enumerate(self.curvatures)
        ]
        return "\n".join(lines)


def identifiability(
    hessian: npt.ArrayLike,
    names: Sequence[str],
    scales: Sequence[Scale] | None = None,
    *,
    tolerance: float = TOLERANCE,
) -> Identifiability:
    """Return which combinations of parameters a Hessian tells apart.

    Parameters
    ----------
    hessian : array_like [k, k]
        Of J, in the optimiser's scale.
    names : sequence of str [k]
        The parameters.
    scales : sequence of "linear", "log", optional
        For the words; linear by default.
    tolerance : float
        Curvatures this small, where a single parameter has 1, count as zero.

    Examples
    --------
    >>> identifiability([[2.0, 2.0], [2.0, 2.0]], ["a", "b"]).unidentifiable
    ('0.71 a - 0.71 b',)
    """
    matrix = finite_array(hessian, "the Hessian")
    names = name_list(names, "names")
    tolerance = real_number(tolerance, "tolerance", least=0.0)
    size = len(names)
    matrix = symmetric(finite_array(matrix, "the Hessian", (size, size)))
    diagonal = np.diag(matrix)
    # A unit diagonal makes curvatures free of the units of the parameters.
    sizes = np.sqrt(np.abs(diagonal))
    kinds: tuple[Scale, ...] = ("linear",) * size
    if is_iterable(scales):
        kinds = tuple(scales)
    if scales is not None and (
        not is_iterable(scales)
        or len(kinds) != size
        or not all(is_one_of(kind, "linear", "log") for kind in kinds)
    ):
        raise InputError(f"scales = {scales!r}", expected=f'{size} words, "linear" or "log"')
    logs = np.array([kind == "log" for kind in kinds], dtype=bool)
    # a logarithm known to a million is rounding, not knowledge
    sizes[(diagonal == 0.0) | (logs & (np.abs(diagonal) <= 1e-12))] = 1.0
    eigenvalues, weights = np.linalg.eigh(matrix / np.outer(sizes, sizes))
    # Weights are in units of 1 / sizes; back to the scale of the optimiser, where the words are
    # about.
    directions = weights / sizes[:, None]
    directions /= np.maximum(np.linalg.norm(directions, axis=0), 1e-300)
    return Identifiability(tuple(names), kinds, eigenvalues, weights, directions, tolerance)


def refuse_flat(report: Identifiability) -> None:
    """Raise ``UnsupportedError`` where there is no covariance, naming the combination."""
    if report.falling:
        raise UnsupportedError(
            f"no covariance: {INDEFINITE}, J falls on both sides of the estimate along "
            f"{report.falling} (curvature {report.curvatures[0]:.2g} of that of single parameters)",
            expected="a minimum",
            remedy="minimize further or from another start (multistart); a prior; or "
            'hessian="gauss_newton", which is never negative',
        )
    if report.unidentifiable:
        members = [name for j in report.flat for name in report.members(j)]
        raise UnsupportedError(
            "no covariance: the data do not determine "
            f"{', '.join(dict.fromkeys(members))}: J does not change along "
            f"{'; '.join(report.unidentifiable)}",
            expected="data that depend on each parameter in its own way",
            remedy="a prior, fixing one of them (free=False), or other observations",
        )


def symmetric(matrix: Array) -> Array:
    """Return the symmetric part of a matrix."""
    return 0.5 * (matrix + matrix.T)
