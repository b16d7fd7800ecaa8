"""Minima under constraints by TAO's almm and pdipm, and the result, told in words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens import interior_point
from daeosens.arrays import Array, read, write
from daeosens.augmented_lagrangian import AugmentedLagrangian
from daeosens.descent import Bounds
from daeosens.errors import InputError, OptionError, UnsupportedError
from daeosens.functional import Functional
from daeosens.interior_point import InteriorPoint
from daeosens.kkt import KktIterate, KktProgress, Search
from daeosens.lagrangian import Lagrangian, Optimality
from daeosens.options import Options, scoped_options, validate_names

CONSTRAINED_METHODS: Mapping[str, str] = {
    "almm": "augmented Lagrangian, first derivatives only",
    "pdipm": "primal-dual interior point, second derivatives",
}
"""TAO types that take constraints."""

PREFIXES = ("tao_almm_subsolver_",)
LARGEST_DENSE = 2000
"""Rows of the dense KKT matrix of pdipm beyond which it is refused."""

_Reason = PETSc.TAO.ConvergedReason
_NAMES: Mapping[int, str] = {
    _Reason.CONVERGED_GATOL: "CONVERGED_GATOL",
    _Reason.DIVERGED_MAXITS: "DIVERGED_MAXITS",
    _Reason.DIVERGED_LS_FAILURE: "DIVERGED_LS_FAILURE",
    _Reason.DIVERGED_USER: "DIVERGED_USER",
}


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
class ConstrainedResult:
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
        TAO type; TAO's name for why it stopped, and the same in words.
    iterations, evaluations, failed_solves : int
        Totals.  Failed solves are among the evaluations.
    seconds : float
        Wall time.
    history : ConstrainedHistory
        One entry per iterate.
    """

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
        return {name: each.multiplier for name, each in self.constraints.items()}

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
        rows = [("constraint", "lower", "value", "upper", "multiplier")]
        for name, each in self.constraints.items():
            for i in range(len(each.value)):
                label = name if len(each.value) == 1 else f"{name}[{i}]"
                numbers = (each.lower[i], each.value[i], each.upper[i], each.multiplier[i])
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


def check_constrained_method(method: str, constraints: object) -> list[str]:
    """Return what is wrong with a method where there are, or are no, constraints."""
    if constraints is None and method in CONSTRAINED_METHODS:
        return [f'method "{method}" needs constraints=; without: "lmvm", or "blmvm" with bounds']
    if constraints is not None and method not in CONSTRAINED_METHODS:
        able = ", ".join(f'"{name}"' for name in CONSTRAINED_METHODS)
        return [f'method "{method}" takes no constraints; try: {able}']
    return []


def minimize_constrained(
    functional: Functional,
    constraints: object,
    x: PETSc.Vec,
    *,
    method: str = "almm",
    limits: Bounds | None = None,
    gradient_tolerance: float = 1e-8,
    constraint_tolerance: float = 1e-8,
    max_iterations: int = 1000,
    options: Options | None = None,
    report: KktProgress | None = None,
) -> ConstrainedResult:
    """Minimise a functional under constraints by TAO; ``minimize`` checks the other arguments.

    Collective on ``functional.comm``.  J and the constraints are divided by the norms of their
    gradients at the start, so that the result does not depend on units.  A failed solve at a trial
    point shortens the step of "almm"; "pdipm" ends there with the best point so far.

    Parameters
    ----------
    functional : Functional
        J.
    constraints : Constraint or sequence of Constraint
        What the minimum has to satisfy.
    x : Vec [k]
        The start, within its bounds; not changed.  It need not satisfy the constraints.
    method : "almm" or "pdipm"
        First derivatives only and any k; or few iterations with the Hessian of the Lagrangian,
        dense, the same on every rank.
    limits : (Vec, Vec), optional
        Bounds of x.
    gradient_tolerance : float
        Largest stationarity and complementarity, see ``Optimality``.
    constraint_tolerance : float
        Largest violation, in the constraints' scales.
    max_iterations : int
        Outer iterations of "almm", Newton steps of "pdipm".
    options : mapping, optional
        PETSc options without the dash.
    report : callable, optional
        Gets (``KktIterate``, x) on every rank.

    Returns
    -------
    ConstrainedResult
        Also when the tolerances were not met.

    Raises
    ------
    InputError
        Constraints that do not fit the functional.
    UnsupportedError
        "pdipm" where second derivatives are missing, or for too many unknowns.
    OptionError
        An option that nothing reads, or that TAO refuses.
    SolveError
        J or a constraint does not exist at the start.

    Source
    ------
    Nocedal and Wright, Numerical Optimization, 2006, chapters 17 and 19.

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, Reduced, Running, Stepping, Terminal
    >>> from daeosens.constraints import Constraint
    >>> pull = ODE(lambda t, u, p: p[0] - u, size=1, parameters=["force"])
    >>> effort = Running(lambda t, u, p: p[0] ** 2)
    >>> control = Parameters({"force": Parameter(0.0)}, initial_state=[0.0])
    >>> functional = Reduced(pull, effort, Stepping((0.0, 1.0), "rk4", dt=0.1), control)
    >>> target = Constraint(Terminal(lambda t, u, p: u[0]), lower=1.0, name="position")
    >>> result = minimize_constrained(functional, target, functional.start())
    >>> result.converged, round(result.value, 4), result.multipliers["position"].round(3)
    (True, 2.5027, array([-5.005]))
    """
    begin = time.perf_counter()
    chosen: Options = {} if options is None else options
    validate_names(chosen, "minimize options", prefixes=PREFIXES)
    lagrangian = Lagrangian(functional, constraints, x)
    if method == "pdipm":
        _check_dense(lagrangian, limits)
        lagrangian.check_second_order()
    local = None if limits is None else (read(limits[0]).copy(), read(limits[1]).copy())
    search = Search(
        lagrangian, local, gradient_tolerance, constraint_tolerance, int(max_iterations), report
    )
    form = search.begin(x)
    here: PETSc.Vec = x.copy()
    wiring = (
        AugmentedLagrangian(search, form, here)
        if method == "almm"
        else InteriorPoint(search, form, here)
    )
    reason = _run(wiring, search, here, chosen, limits)
    return _result(search, method, reason, time.perf_counter() - begin)


def _check_dense(lagrangian: Lagrangian, limits: Bounds | None) -> None:
    rows = lagrangian.x.getSize() * (1 if limits is None else 5) + 3 * len(lagrangian.labels)
    if rows > LARGEST_DENSE:
        raise UnsupportedError(
            f"pdipm with about {rows} rows in its dense KKT matrix",
            expected=f"at most {LARGEST_DENSE}",
            remedy='method="almm"',
        )


def _run(
    wiring: AugmentedLagrangian | InteriorPoint,
    search: Search,
    x: PETSc.Vec,
    chosen: Options,
    limits: Bounds | None,
) -> int:
    """Set TAO up, run it and return its reason to stop."""
    almm = isinstance(wiring, AugmentedLagrangian)
    defaults: Options = {} if almm else interior_point.DEFAULTS
    tao = PETSc.TAO().create(x.comm if almm else PETSc.COMM_SELF)
    try:
        tao.setType("almm" if almm else "pdipm")
        tao.setTolerances(0.0, 0.0, 0.0)
        tao.setConstraintTolerances(0.0, 0.0)
        if isinstance(wiring, AugmentedLagrangian):
            tao.setSolution(x)
            if limits is not None:
                tao.setVariableBounds(limits)
        else:
            tao.setSolution(PETSc.Vec().createWithArray(wiring.start.copy(), comm=PETSc.COMM_SELF))
        views = {name: value for name, value in chosen.items() if "view" in name}
        others = {name: value for name, value in chosen.items() if "view" not in name}
        with (
            scoped_options(code=views),
            scoped_options(defaults=defaults, code=others) as scope,
        ):
            _read_options(tao, "almm" if almm else "pdipm")
            if PETSc.Options().hasName("tao_max_it"):
                search.max_iterations = tao.getMaximumIterations()
            tao.setMaximumIterations(PETSc.UNLIMITED)
            wiring.attach(tao)
            tao.setUp()
            scope.check_used()
            return wiring.run(tao, scope)
    finally:
        tao.destroy()
        wiring.destroy()
        x.destroy()


def _read_options(tao: PETSc.TAO, method: str) -> None:
    try:
        tao.setFromOptions()
    except PETSc.Error as error:
        cause = str(error).splitlines()[-1].partition("] ")[2]
        raise OptionError(f"TAO refuses an option: {cause}") from error
    if tao.getType() != method:
        raise InputError(
            f'option tao_type = {tao.getType()} with method "{method}" and constraints',
            expected="the method as an argument",
        )


def _result(search: Search, method: str, reason: int, seconds: float) -> ConstrainedResult:
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
        reason=_NAMES.get(reason, f"reason {reason}"),
        message=search.message,
        iterations=iterates[-1].iteration,
        evaluations=search.evaluations,
        failed_solves=search.failed_solves,
        seconds=seconds,
        history=_history(iterates),
    )


def _history(iterates: Sequence[KktIterate]) -> ConstrainedHistory:
    return ConstrainedHistory(
        np.array([each.value for each in iterates]),
        np.array([each.optimality.stationarity for each in iterates]),
        np.array([each.optimality.violation for each in iterates]),
        np.array([each.optimality.complementarity for each in iterates]),
        np.array([each.step for each in iterates]),
        np.diff([each.evaluations for each in iterates], prepend=0),
        np.diff([each.failed_solves for each in iterates], prepend=0),
    )
