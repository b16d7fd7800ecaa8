"""Gradients by differences, to compare with; the docstring says when they fail."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.functional.functional import Functional
from daeosens.petsc import gather, write
from daeosens.petsc.ranks import agree
from daeosens.verify.extrapolated_differences import typical_sizes, unit

Scheme = Literal["forward", "central"]

ORDERS: dict[str, int] = {"forward": 1, "central": 2}
"""Difference schemes and their orders."""


@dataclass(frozen=True, eq=False)
class Differences:
    """A gradient by differences.

    Attributes
    ----------
    gradient : Vec [n]
        dJ/dx.
    step : Vec [n]
        The step that was taken in each component.
    evaluations : int
        How often J was evaluated.
    scheme : str
        "forward" or "central".
    """

    gradient: PETSc.Vec
    step: PETSc.Vec
    evaluations: int
    scheme: Scheme

    def __str__(self) -> str:
        least, most = (float(bound[1]) for bound in _ends(self.step))
        return (
            f"{self.scheme} differences: {self.evaluations} evaluations, "
            f"steps {least:.3g} ... {most:.3g}"
        )


def finite_differences(
    functional: Functional,
    x: PETSc.Vec | None = None,
    scheme: Scheme = "forward",
    step: float | None = None,
) -> Differences:
    """Return the gradient of a functional by differences, one component at a time.  Collective.

    Fails by design: n (central: 2n) evaluations, and at best half (central: two thirds) of the
    digits of J, which themselves are no more than the solver's tolerances leave.  A step that suits
    one component may be too large or too small for another; with adaptive steps J jumps by about
    their tolerance, and small steps see only that.

    Parameters
    ----------
    functional : Functional
        Anything with ``start`` and ``value``.
    x : Vec [n], optional
        The point; ``functional.start()`` by default.
    scheme : "forward" or "central"
        (J(x + h) - J(x)) / h, or (J(x + h) - J(x - h)) / 2h.
    step : float, optional
        The same step h for every component.  By default sqrt(eps) or eps^(1/3) times the size of
        each component, which balances truncation and rounding where the scale of J is that of x.

    Returns
    -------
    Differences

    Raises
    ------
    InputError
        Unknown scheme, or a step that is not positive.
    SolveError
        J does not exist at one of the points.

    Source
    ------
    Gill, Murray, Saunders, Wright, SIAM J. Sci. Stat. Comput. 4(2), 1983 (choice of the step).
    """
    agree(functional.comm, "finite_differences", scheme=scheme, step=step)
    if scheme not in ORDERS:
        raise InputError(f"scheme = {scheme!r}", expected='"forward" or "central"')
    if step is not None and not (math.isfinite(step) and step > 0):
        raise InputError(f"step = {step!r}", expected="a positive number")
    x = functional.start() if x is None else x
    steps = typical_sizes(x)
    if step is None:
        steps.scale(sys.float_info.epsilon ** (1.0 / (1 + ORDERS[scheme])))
    else:
        steps.set(step)
    gradient = x.duplicate()
    here = functional.value(x) if scheme == "forward" else 0.0
    evaluations = 1 if scheme == "forward" else 0
    sizes = gather(steps)
    slopes = np.empty(x.size)
    for j in range(x.size):
        h = float(sizes[j])
        ahead = _moved(functional, x, j, h)
        if scheme == "forward":
            slopes[j] = (ahead - here) / h
        else:
            slopes[j] = (ahead - _moved(functional, x, j, -h)) / (2 * h)
        evaluations += ORDERS[scheme]
    start, end = gradient.getOwnershipRange()
    write(gradient, slopes[start:end])
    return Differences(gradient, steps, evaluations, scheme)


def _moved(functional: Functional, x: PETSc.Vec, component: int, h: float) -> float:
    moved = unit(x, component, h)
    moved.axpy(1.0, x)
    value = functional.value(moved)
    moved.destroy()
    return value


def _ends(vec: PETSc.Vec) -> tuple[Any, Any]:
    return vec.min(), vec.max()
