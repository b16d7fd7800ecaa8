"""What TAO is shown where J does not exist, so that it comes back."""

from __future__ import annotations

import sys

from petsc4py import PETSc

from daeosens.petsc.options import scoped_options
from daeosens.petsc.vectors import dot

MORE_THUENTE, ARMIJO = "more-thuente", "armijo"
"""TAO's line searches that can come back from a failed solve."""

CURVATURE = "tao_ls_gtol"

FAILED_VALUE = 1e250
"""Value of J that trust regions are shown.

PETSc 3.26: BNTR and BNTL end with an error at infinity; NTR would take it.
"""


def wall(
    x: PETSc.Vec, gradient: PETSc.Vec, last: PETSc.Vec, value: float, slope: PETSc.Vec
) -> float:
    """Return a value, and fill a gradient, that turn a More-Thuente search back.

    Parameters
    ----------
    x, gradient : Vec [n]
        Where a solve failed, and what is filled.
    last, value, slope : Vec [n], float, Vec [n]
        x_k, J and dJ/dx there.
    """
    x.copy(gradient)
    gradient.axpy(-1.0, last)
    rise, factor = steepness(dot(gradient, slope), value)
    slope.copy(gradient)
    gradient.scale(factor)
    return value + rise


def steepness(slope: float, value: float) -> tuple[float, float]:
    """Return how much the wall rises, and what the last gradient is multiplied with.

    Infinity would end it (PETSc 3.26: the cubic through an infinite value is not a number, the step
    becomes 0 and the search fails).  A steep rise from the last iterate x_k is as good: with
    J_k + r and slope (1 + 6 r/d) d, d = |dJ_k (x - x_k)|, the cubic has its minimum halfway, so
    that the next trial lies at 1/4 to 1/2 of the failed step.  r >= 1e-9 |J_k| exceeds the relative
    1e-10 by which PETSc lets J rise: the point is never accepted.

    Parameters
    ----------
    slope, value : float
        dJ_k (x - x_k), and J_k.

    Examples
    --------
    >>> steepness(-2.0, 1.0)
    (2.0, -7.0)
    """
    # Nothing is divided by 0 where the slope vanishes.
    descent = max(abs(slope), sys.float_info.min)
    rise = max(descent, 1e-9 * abs(value))
    return rise, -1.0 - 6.0 * min(rise / descent, 1e9)


def relax(search: PETSc.TAOLineSearch, *, relaxed: bool) -> None:
    """Make a line search, even a running one, content with a lower J, or undo that.

    More-Thuente wants J to fall *and* to flatten.  Beside a region without solutions there may be
    no such point, and the search closes in on the edge until it fails.  petsc4py 3.26 has only an
    option for the wanted flatness, which a line search reads whenever it is told to.  The command
    line's stays.
    """
    code = {CURVATURE: 1e10} if relaxed else {}
    prefix = search.getOptionsPrefix() or ""
    with scoped_options(defaults={CURVATURE: 0.9}, code=code, prefix=prefix):
        search.setFromOptions()
