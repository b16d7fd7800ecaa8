"""What a minimisation leaves behind: its iterates, their history, its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.functional.functional import FunctionalError
from daeosens.optimize.methods import METHODS
from daeosens.petsc.unpicklable import Unpicklable
from daeosens.petsc.vectors import Array

Integers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Iterate:
    """One accepted iterate; number 0 is the start.

    Parameters
    ----------
    iteration : int
        Its number.
    value : float
        J.
    gradient_norm : float
        2-norm of x - P(x - dJ/dx), P the projection onto the bounds; without bounds that of dJ/dx.
    step : float
        2-norm of the change of x since the iterate before.
    evaluations, failed_solves : int
        Evaluations of J so far, and how many of them failed.
    hessian_products : int
        Hessian (or Gauss-Newton) products so far.
    """

    iteration: int
    value: float
    gradient_norm: float
    step: float
    evaluations: int
    failed_solves: int
    hessian_products: int = 0

    def __str__(self) -> str:
        """Return the progress line, to stand under ``HEADING``."""
        return (
            f"{self.iteration:6d} {self.value: .10e}  {self.gradient_norm:.3e}  {self.step:.3e} "
            f"{self.evaluations:6d} {self.failed_solves:7d} {self.hessian_products:9d}"
        )


HEADING = "  iter             value   gradient       step  evals  failed  products"

Progress: TypeAlias = Callable[[Iterate, PETSc.Vec], object]


@dataclass(frozen=True, eq=False)
class History:
    """The accepted iterates, start included.

    Parameters
    ----------
    value, gradient_norm, step : ndarray [N+1]
        As in ``Iterate``.
    evaluations, failed_solves, hessian_products : ndarray of int [N+1]
        Spent to reach each iterate from the one before; a last, vain search is not in it.
    """

    value: Array
    gradient_norm: Array
    step: Array
    evaluations: Integers
    failed_solves: Integers
    hessian_products: Integers


def history_of(iterates: Sequence[Iterate]) -> History:
    """Turn iterates, whose counts are totals, into a history of differences."""
    return History(
        np.array([iterate.value for iterate in iterates]),
        np.array([iterate.gradient_norm for iterate in iterates]),
        np.array([iterate.step for iterate in iterates]),
        np.diff([iterate.evaluations for iterate in iterates], prepend=0),
        np.diff([iterate.failed_solves for iterate in iterates], prepend=0),
        np.diff([iterate.hessian_products for iterate in iterates], prepend=0),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Result(Unpicklable):
    """What ``minimize`` found; prints itself.

    Parameters
    ----------
    x : Vec [n]
        The last accepted iterate; belongs to the caller.
    value, gradient_norm : float
        There, as in ``Iterate``.
    method : str
        TAO type.
    reason : str
        TAO's name for why it stopped, or that of a rule of ours.
    message : str
        The same in words.
    iterations, evaluations, failed_solves, restarts, hessian_products : int
        Totals.  Failed solves are among the evaluations; restarts follow line searches they
        defeated.
    seconds : float
        Wall time.
    history : History
        One entry per accepted iterate.
    notes : tuple of str
        What else to know: what a continued run has forgotten, which sweep gave the Jacobian.
    discretization : FunctionalError or None
        Estimated discretisation errors of value and gradient there, where they were asked for.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping, minimize
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> control = Parameters({"rate": Parameter(0.3)}, initial_state=[1.0])
    >>> stepping, misfit = Stepping((0.0, 2.0), "rk4", dt=0.1), LeastSquares([1.0], [0.6])
    >>> result = minimize(Reduced(decay, misfit, stepping, control), method="bnls")
    >>> fitted = result.x.array.round(4)
    >>> result.converged, fitted, len(result.history.value) == result.iterations + 1
    (True, array([0.5108]), True)
    """

    _in_its_place: ClassVar[str] = (
        "optimize.save_result(result, path) and load_result, or arrays: petsc.gather(result.x)"
    )

    x: PETSc.Vec
    value: float
    gradient_norm: float
    method: str
    reason: str
    message: str
    iterations: int
    evaluations: int
    failed_solves: int
    restarts: int
    seconds: float
    history: History
    hessian_products: int = 0
    notes: tuple[str, ...] = ()
    discretization: FunctionalError | None = None

    @property
    def converged(self) -> bool:
        """Whether a tolerance was met."""
        return self.reason.startswith("CONVERGED")

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C stopped it."""
        return self.reason == "INTERRUPTED"

    def __repr__(self) -> str:
        """Return the summary, one fact a line."""
        first = self.history
        failed = f", {self.failed_solves} of them failed solves" if self.failed_solves else ""
        failed += f", restarts: {self.restarts}" if self.restarts else ""
        outcome = "converged" if self.converged else "NOT converged"
        iterations = f"{self.iterations} iteration{'s' if self.iterations != 1 else ''}"
        lines = [
            f"minimize: {outcome} after {iterations}, {self.seconds:.3g} s",
            f"  reason         {self.message} ({self.reason})",
            f"  method         {self.method}: {METHODS[self.method]}",
            f"  value          {first.value[0]:.6e} -> {self.value:.6e}",
            f"  gradient norm  {first.gradient_norm[0]:.3e} -> {self.gradient_norm:.3e}",
            f"  evaluations    {self.evaluations}{failed}",
        ]
        if self.hessian_products:
            lines.append(f"  products       {self.hessian_products} with the Hessian")
        if self.discretization is not None:
            lines.append(f"  discretisation {self.discretization}")
        return "\n".join([*lines, *(f"  note           {note}" for note in self.notes)])
