"""J and its gradient where TAO asks for them: once at each point, also beside failed solves."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.functional.functional import Functional, HasTrials, require_vec
from daeosens.optimize.failed_solve_barrier import ARMIJO, FAILED_VALUE, MORE_THUENTE, relax, wall
from daeosens.optimize.interruption import Interruption
from daeosens.petsc.vectors import norm


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An evaluation that succeeded: x [n], J(x), and dJ/dx [n] if it was needed."""

    x: PETSc.Vec
    value: float
    gradient: PETSc.Vec | None


@dataclass
class Evaluations:
    """What has been evaluated.

    Parameters
    ----------
    functional : Functional
        J.
    count, failed : int
        Evaluations so far, and those among them that failed.
    accepted : Evaluation or None
        The last accepted iterate.
    last : Evaluation or None
        The last evaluation that succeeded.
    best : Evaluation or None
        The lowest one with a gradient since the last accepted iterate.
    unit : float
        TAO gets J / ``unit``; 0: not chosen yet.
    relaxed : bool
        Whether More-Thuente's search has been told of walls.
    lowest : float
        The lowest J so far.
    failure : str
        Why the last evaluation that failed did.
    interruption : Interruption or None
        Whether the user wants to stop.
    """

    functional: Functional
    count: int = 0
    failed: int = 0
    accepted: Evaluation | None = None
    last: Evaluation | None = None
    best: Evaluation | None = None
    unit: float = 0.0
    relaxed: bool = False
    lowest: float = math.inf
    failure: str = ""
    interruption: Interruption | None = None

    def begin(self) -> None:
        """Count an evaluation; on several ranks, stop before it if the user wants to."""
        if self.interruption is not None:
            self.interruption.check()
        self.count += 1

    def measure(self, size: float) -> None:
        """Choose the unit of J, a power of 2, by its size."""
        # A power of 2 changes no digit of J or of its gradient.
        self.unit = 2.0 ** round(math.log2(size)) if size > sys.float_info.min else 1.0

    def evaluate(self, tao: PETSc.TAO, x: PETSc.Vec, gradient: PETSc.Vec) -> float:
        """Return J(x) and fill ``gradient`` [n], for TAO."""
        try:
            trial = self._tried(x)
        except SolveError as error:
            value = self._failed(tao, x, gradient, error)
        else:
            assert trial.gradient is not None
            trial.gradient.copy(gradient)
            value = trial.value
        gradient.scale(1.0 / self.unit)
        return value / self.unit

    def objective(self, _tao: PETSc.TAO, x: PETSc.Vec) -> float:
        """Return J(x), for trust regions.

        They ask for the gradient after they have accepted a step, when it is too late for one that
        does not exist: where they will accept it, it is computed here.
        """
        try:
            if not self._known(x):
                self.begin()
                value = self.functional.value(x)
                if not math.isfinite(value):
                    raise SolveError(f"value {value:g}")  # noqa: TRY301 (one way to fail)
                self.last = Evaluation(x.copy(), value, None)
                self._note_best(value)
            # A value that the trust region may accept needs its gradient now, see above; a high
            # one is spared the sweep.
            assert self.last is not None
            if self._is_low(self.last.value):
                self._tried(x)
        except SolveError as error:
            self._count_failure(error)
            # A failed point must not answer for its value at the next question.
            self.last = None
            return FAILED_VALUE
        return self.last.value / self.unit

    def _is_low(self, value: float) -> bool:
        """Whether a trust region may accept a value: lower than the last, but for rounding."""
        assert self.accepted is not None
        # A little more than TAO's own rounding rules (4e-11): a gradient too many costs one
        # sweep, one too few ends the descent at a failed solve.
        return value <= self.accepted.value + 1e-9 * abs(self.accepted.value)

    def slope(self, _tao: PETSc.TAO, x: PETSc.Vec, gradient: PETSc.Vec) -> None:
        """Fill ``gradient`` [n] at an accepted x, for trust regions."""
        computed = self._tried(x).gradient
        assert computed is not None
        computed.copy(gradient)
        gradient.scale(1.0 / self.unit)

    def tighten(self, tao: PETSc.TAO) -> None:
        """Let the line search forget walls."""
        if self.relaxed:
            relax(tao.getLineSearch(), relaxed=False)
            self.relaxed = False

    def _known(self, x: PETSc.Vec) -> bool:
        """Whether the last trial was at x: TAO asks for some points twice."""
        return self.last is not None and bool(self.last.x.equal(x))

    def _tried(self, x: PETSc.Vec) -> Evaluation:
        """Return value and gradient at x [n], or raise SolveError."""
        if not self._known(x):
            self.begin()
        elif self.last is not None and self.last.gradient is not None:
            return self.last
        value, gradient = self.functional.value_and_gradient(x)
        require_vec(gradient, self.functional, "value_and_gradient")
        # A collective norm, so that all ranks see the same NaN.
        size = norm(gradient)
        if not (math.isfinite(value) and math.isfinite(size)):
            raise SolveError(f"value {value:g} with a gradient of norm {size:g}")
        self.last = Evaluation(x.copy(), value, gradient)
        # Searches that fail may have passed lower points than the one they return; TaoRun goes on
        # from the lowest.
        if self.best is None or value < self.best.value:
            self.best = self.last
        if self.unit == 0.0:
            self.measure(abs(value))
        self._note_best(value)
        return self.last

    def _note_best(self, value: float) -> None:
        """Let the steps of the best run so far say how many a trial may take."""
        if value < self.lowest:
            self.lowest = value
            self.limit_steps(limited=True)

    def limit_steps(self, *, limited: bool) -> None:
        """Limit the steps of trials, or no longer."""
        if isinstance(self.functional, HasTrials):
            self.functional.limit_steps(limited=limited)

    def _count_failure(self, error: SolveError) -> None:
        self.failed += 1
        self.failure = error.what
        if self.accepted is None:
            raise SolveError(
                f"the functional cannot be evaluated at the start: {error}",
                remedy="another x0, or smaller steps",
            ) from error

    def _failed(
        self, tao: PETSc.TAO, x: PETSc.Vec, gradient: PETSc.Vec, error: SolveError
    ) -> float:
        """Give TAO what makes its line search come back from a failed solve."""
        self._count_failure(error)
        search = tao.getLineSearch()
        if search.getType() == MORE_THUENTE:
            # Once for each search: tighten() undoes it at the next iterate.
            if not self.relaxed:
                relax(search, relaxed=True)
                self.relaxed = True
            last = self.accepted
            assert last is not None
            assert last.gradient is not None
            return wall(x, gradient, last.x, last.value, last.gradient)
        if search.getType() == ARMIJO:
            return math.inf  # it halves the step, and does not look at the gradient
        raise SolveError(
            "a forward solve failed, from which the line search "
            f'"{search.getType()}" cannot come back: {error}',
            expected=f'tao_ls_type "{MORE_THUENTE}" or "{ARMIJO}"',
        ) from error
