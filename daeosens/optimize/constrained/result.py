"""What a minimisation under constraints has found, told in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.optimize.constrained.kkt import KktIterate, SearchRecord
from daeosens.optimize.constrained.optimality import Optimality
from daeosens.optimize.methods import REASONS
from daeosens.petsc.unpicklable import Unpicklable
from daeosens.petsc.vectors import Array, write

CONSTRAINED_METHODS: Mapping[str, str] = {
    "almm": "augmented Lagrangian, first derivatives only",
    "ipopt": "interior point, second derivatives",
}
"""Methods that take constraints."""


@dataclass(frozen=True, eq=False, repr=False)
class ConstraintValue:
    """One constraint at the result.

    Parameters
    ----------
    value, lower, upper : array [q]
        Of its components.
    multiplier : array [q]
        v in dJ/dx + sum v dc/dx = 0: positive at an upper bound, negative at a lower one, 0 in
        between.  Moving the active bound by d changes the minimum of J by -v d.
    """

    value: Array
    lower: Array
    upper: Array
    multiplier: Array


@dataclass(frozen=True, eq=False)
class ConstrainedHistory:
    """The iterates, start included, as arrays.

    Parameters
    ----------
    value, stationarity, violation, complementarity, step : ndarray [N+1]
        As in ``KktIterate`` and ``Optimality``.
    evaluations, failed_solves : ndarray of int [N+1]
        Spent to reach each iterate from the one before.
    """

    value: Array
    stationarity: Array
    violation: Array
    complementarity: Array
    step: Array
    evaluations: npt.NDArray[np.int64]
    failed_solves: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class ConstrainedResult(Unpicklable):
    """What ``minimize`` with constraints found; prints itself.

    Parameters
    ----------
    x : Vec [k]
        The iterate nearest to optimal; belongs to the caller.
    value : float
        J there.
    optimality : Optimality
        Gradient of the Lagrangian, violation and complementarity there.
    constraints : dict of str to ConstraintValue
        Each constraint there, with its multipliers.
    method, reason, message : str
        Method; TAO's name for why it stopped, and the same in words.
    iterations, evaluations, failed_solves : int
        Totals.  Failed solves are among the evaluations.
    seconds : float
        Wall time.
    history : ConstrainedHistory
        One entry per iterate.

    Examples
    --------
    >>> from daeosens import ODE, Constraint, Parameter, Parameters, Reduced, Stepping, Terminal
    >>> from daeosens import minimize
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> control = Parameters({"rate": Parameter(0.3)}, initial_state=[1.0])
    >>> end = Terminal(lambda t, u, p: u[0])
    >>> functional = Reduced(decay, end, Stepping((0.0, 2.0), "rk4", dt=0.1), control)
    >>> slow = Constraint(lambda x: x[0], upper=0.5, name="slow")
    >>> result = minimize(functional, method="ipopt", constraints=[slow])
    >>> result.x.array.round(4), result.constraints["slow"].multiplier.round(3)
    (array([0.5]), array([0.736]))
    """

    _in_its_place: ClassVar[str] = (
        "optimize.save_result(result, path) and load_result, or arrays: petsc.gather(result.x)"
    )

    x: PETSc.Vec
    value: float
    optimality: Optimality
    constraints: dict[str, ConstraintValue]
    method: str
    reason: str
    message: str
    iterations: int
    evaluations: int
    failed_solves: int
    seconds: float
    history: ConstrainedHistory

    @property
    def converged(self) -> bool:
        """Whether the tolerances were met."""
        return self.reason.startswith("CONVERGED")

    @property
    def gradient_norm(self) -> float:
        """Norm of the projected gradient of the Lagrangian."""
        return self.optimality.gradient_norm

    @property
    def violation(self) -> float:
        """Largest violation, in the constraint's scale."""
        return self.optimality.violation

    @property
    def multipliers(self) -> dict[str, Array]:
        """Multipliers by constraint, each [q]."""
        return {name: outcome.multiplier for name, outcome in self.constraints.items()}

    def __repr__(self) -> str:
        """Return the summary, one fact a line."""
        how, failed = self.optimality, ""
        if self.failed_solves:
            failed = f", {self.failed_solves} of them failed solves"
        outcome = "converged" if self.converged else "NOT converged"
        iterations = f"{self.iterations} iteration{'s' if self.iterations != 1 else ''}"
        return "\n".join(
            [
                f"minimize: {outcome} after {iterations}, {self.seconds:.3g} s",
                f"  reason         {self.message} ({self.reason})",
                f"  method         {self.method}: {CONSTRAINED_METHODS[self.method]}",
                f"  value          {self.history.value[0]:.6e} -> {self.value:.6e}",
                f"  stationarity   {how.stationarity:.3e} (gradient norm {how.gradient_norm:.3e})",
                f"  violation      {how.violation:.3e}",
                f"  complementary  {how.complementarity:.3e}",
                f"  evaluations    {self.evaluations}{failed}",
                *self._table(),
            ]
        )

    def _table(self) -> list[str]:
        """Return a line for each component of each constraint."""
        rows: list[tuple[str, ...]] = [("constraint", "lower", "value", "upper", "multiplier")]
        for name, outcome in self.constraints.items():
            for i in range(len(outcome.value)):
                label = name if len(outcome.value) == 1 else f"{name}[{i}]"
                numbers = (
                    outcome.lower[i],
                    outcome.value[i],
                    outcome.upper[i],
                    outcome.multiplier[i],
                )
                rows.append((label, *(f"{number:.6g}" for number in numbers)))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        return [
            "  "
            + row[0].ljust(widths[0])
            + "".join(
                f"  {word.rjust(width)}" for word, width in zip(row[1:], widths[1:], strict=True)
            )
            for row in rows
        ]


def constrained_result(
    search: SearchRecord, method: str, reason: int, seconds: float
) -> ConstrainedResult:
    """Sum up."""
    law, iterates = search.lagrangian, search.iterates
    assert search.x is not None
    assert search.multipliers is not None
    assert search.outputs is not None
    x = law.x.duplicate()
    write(x, search.x)
    best = iterates[search.best]
    return ConstrainedResult(
        x=x,
        value=best.value,
        optimality=best.optimality,
        constraints={
            name: ConstraintValue(
                search.outputs[part],
                law.lower[part],
                law.upper[part],
                search.multipliers[part],
            )
            for name, part in law.slices.items()
        },
        method=method,
        reason=REASONS.get(reason, (f"reason {reason}",))[0],
        message=search.message,
        iterations=iterates[-1].iteration,
        evaluations=search.evaluations,
        failed_solves=search.failed_solves,
        seconds=seconds,
        history=_history(iterates),
    )


def _history(iterates: Sequence[KktIterate]) -> ConstrainedHistory:
    return ConstrainedHistory(
        np.array([iterate.value for iterate in iterates]),
        np.array([iterate.optimality.stationarity for iterate in iterates]),
        np.array([iterate.optimality.violation for iterate in iterates]),
        np.array([iterate.optimality.complementarity for iterate in iterates]),
        np.array([iterate.step for iterate in iterates]),
        np.diff([iterate.evaluations for iterate in iterates], prepend=0),
        np.diff([iterate.failed_solves for iterate in iterates], prepend=0),
    )
