"""One descent by PETSc TAO: its iterates, when they end, how it goes on after failed searches."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.functional.parameters import own_sizes
from daeosens.optimize.evaluations import Evaluation, Evaluations
from daeosens.optimize.failed_solve_barrier import ARMIJO, MORE_THUENTE
from daeosens.optimize.methods import NEWTON, TRUST_REGION
from daeosens.optimize.restart import RecordedFunctional
from daeosens.optimize.result import Iterate, Progress
from daeosens.optimize.start import Bounds, point_complaints
from daeosens.optimize.stopping import Stopping, free_norm, free_part, projected_norm
from daeosens.optimize.tao.newton import HessianOperator, forcing
from daeosens.petsc.options import Scope
from daeosens.petsc.vectors import Array, dot, gather, norm
from daeosens.petsc.watchdog import beat
from daeosens.problem.callback_guard import unwrapped

_Reason = PETSc.TAO.ConvergedReason

PROGRESS = 1e-10
"""A relative decrease of J that is worth another search."""

FAR = 10.0
"""Own sizes that a Gauss-Newton step spans at most.

Three took more runs from near starts, thirty as few from far ones.
"""

FALLING = "(stp-stx)"
"""In the error that PETSc 3.26 raises from More-Thuente's search where J has no lower bound."""


@dataclass
class TaoRun:
    """TAO's callbacks and what they must remember.

    Parameters
    ----------
    evaluations : Evaluations
        J where it has been looked at.
    method : str
        What the user has chosen.
    algorithm : str
        TAO type that minimises: the method, or its subsolver's.
    limits : (Vec, Vec) or None
        Lower and upper bounds [n].
    stopping : Stopping
        The rules.
    x : Vec [n]
        The last accepted iterate.  A copy, because PETSc 3.26 loses it when a line search fails.
    report : callable or None
        Gets each iterate.
    record : RecordedFunctional or None
        Gets each accepted iterate, and tells whether it is new.
    hessian : HessianOperator or None
        What is multiplied with.
    iterates : list of Iterate
        So far.
    slopes : list of float
        Norms of their gradients, without what bounds hold.

    Notes
    -----
    TAO's Newton methods are given J in a unit near the first |J|: PETSc 3.26, NTR accepts any step
    that changes J by less than 1e-6, the BNK family by less than 4e-11 max(1, |J|), and all shift
    an indefinite Hessian by 1e-4 or more, whatever the units of J.
    """

    evaluations: Evaluations
    method: str
    algorithm: str
    limits: Bounds | None
    stopping: Stopping
    x: PETSc.Vec
    report: Progress | None
    record: RecordedFunctional | None = None
    hessian: HessianOperator | None = None
    restarts: int = 0
    iterates: list[Iterate] = field(default_factory=list[Iterate])
    slopes: list[float] = field(default_factory=list[float])
    why: tuple[str, str] | None = None
    monotone: bool = True
    scope: Scope | None = None
    resuming: bool = False
    resumed_at: int = -1
    notes: list[str] = field(default_factory=list[str])
    idle: int = 0
    unbounded: bool = False

    @property
    def failed_in_search(self) -> bool:
        """Whether a solve has failed since the last accepted iterate."""
        return bool(self.iterates) and self.evaluations.failed > self.iterates[-1].failed_solves

    @property
    def gradient(self) -> PETSc.Vec:
        """Gradient [n] at the last accepted iterate."""
        accepted = self.evaluations.accepted
        assert accepted is not None
        assert accepted.gradient is not None
        return accepted.gradient

    def attach(self, tao: PETSc.TAO) -> None:
        """Become the callbacks of ``tao``, in place of its stopping rules.

        PETSc 3.26: BQNLS, BNCG and the BNK family test the norm of the Fischer-Burmeister residual,
        BLMVM that of a projected gradient, BNCG counts an iteration late, and none looks at the
        change of the value.  Testing here makes the rules the same for all.
        """
        options = PETSc.Options()
        self.monotone = not options.hasName("tao_ls_armijo_memory_size")
        # PETSc 3.26: the BNK family's interpolation of the first radius depends on the unit of J
        recipe = options.getString("tao_bnk_init_type", "") == "interpolation"
        if self.hessian is None or recipe or options.hasName("tao_fmin"):
            self.evaluations.measure(1.0)
        tao.setTolerances(0.0, 0.0, 0.0)
        tao.setMaximumIterations(PETSc.UNLIMITED)
        tao.setObjectiveGradient(self.evaluations.evaluate)
        if self.algorithm in TRUST_REGION:
            tao.setObjective(self.evaluations.objective)
            tao.setGradient(self.evaluations.slope)
        tao.setMonitor(self.accept)

    def run(self, tao: PETSc.TAO, x: PETSc.Vec, scope: Scope) -> int:
        """Run TAO from ``x`` [n] and return its reason to stop.

        Where failed solves defeat a line search, TAO is run again from the last iterate, which
        begins with the gradient direction, and so it is from the best point of a search that failed
        although it came lower.  TAO itself means to do the former, but, PETSc 3.26, LMVM's
        second search takes the first direction reversed (its MatSolve writes into the gradient)
        and BNCG's third one begins at a rejected point.  The Newton methods' own second search,
        along the gradient, is sound, and a second run would only repeat the first.
        """
        self.scope = scope
        while True:
            try:
                unwrapped(tao.solve)()
            except PETSc.Error as error:
                # J has no lower bound along the search: a result with its reason, not an error.
                # Other errors of PETSc are raised as they are.
                if not self.iterates or FALLING not in str(error):
                    raise
                self.unbounded = True
                self.why = ("DIVERGED_LS_FAILURE", "J seems to fall without end along the search")
                return _Reason.DIVERGED_LS_FAILURE
            reason: Any = tao.getConvergedReason()
            if reason != _Reason.DIVERGED_LS_FAILURE:
                return reason
            # No iterate since the last restart: a third run would begin as the second did.
            stuck = self.resumed_at == len(self.iterates) or self.algorithm in NEWTON
            again = self.failed_in_search and not stuck
            if not self._lowered(tao) and not again:
                return reason
            self.x.copy(x)
            # TAO evaluates where it begins; this answers from what is known, at no cost, with the
            # gradient that belongs to the iterate.
            self.evaluations.last = Evaluation(
                self.x.copy(), self.iterates[-1].value, self.gradient
            )
            self.resuming = True
            self.resumed_at = len(self.iterates)
            self.restarts += 1

    def _lowered(self, tao: PETSc.TAO) -> bool:
        """Make the best point the last iterate if it is lower; say whether that is progress.

        More-Thuente's search comes lower and fails where J has a kink or falls to a pole.
        """
        best, last = self.evaluations.best, self.iterates[-1]
        if best is None or best.value >= last.value or best.gradient is None:
            return False
        if point_complaints(best.x, self.limits, "x"):
            return False
        # x_k - x of the new iterate; its norm is the step, before x becomes the new iterate.
        self.x.axpy(-1.0, best.x)
        step = norm(self.x)
        best.x.copy(self.x)
        self._record(tao, best, step)
        return last.value - best.value > PROGRESS * max(abs(last.value), abs(best.value))

    def move_hessian(
        self, tao: PETSc.TAO, x: PETSc.Vec, _hessian: PETSc.Mat, _same: PETSc.Mat
    ) -> None:
        """Take the Hessian to x [n] and choose how well to solve with it, for TAO."""
        assert self.hessian is not None
        self.hessian.unit = self.evaluations.unit
        self.hessian.move(x, self._caution(), self._damping() if self.hessian.damped else None)
        tune(tao, self)

    def _caution(self) -> float:
        """Return what to add to the Hessian's diagonal beside a region without solutions.

        Newton's direction would lead there again and again, each step half as long as the one
        before.  With |g| / |s|, s the last step, the next one is about as long and turns towards
        the gradient.
        """
        if len(self.iterates) < 2:
            return 0.0
        before, last = self.iterates[-2:]
        failed = last.failed_solves > before.failed_solves
        return last.gradient_norm / last.step if failed and last.step > 0.0 else 0.0

    def _damping(self) -> Array:
        """Return what to add to the diagonal of R^T R [n], so that no step goes far.

        A direction that data do not feel has neither curvature nor, but for rounding, a gradient:
        a step along it goes anywhere, to rates of 1e200, where equations are stiff and no
        parameter is felt any more.  With |D g| / (``FAR`` D_i^2), D the own sizes, a step is never
        longer than ``FAR`` of these.  It vanishes with the gradient, so that convergence stays as
        fast as it was, and depends on no unit.

        Source
        ------
        Levenberg, Quarterly of Applied Mathematics 2, 1944; by the norm of the gradient: Li,
        Fukushima, Qi, Yamashita, Computational Optimization and Applications 28, 2004.
        """
        sizes = own_sizes(self.evaluations.functional, self.x)
        slope = gather(self.gradient)
        if self.limits is not None:
            # what a bound holds back has a gradient at the minimum too
            slope = free_part(gather(self.x), slope, *map(gather, self.limits))
        # one that begins at zero has no size yet
        inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0.0)
        return float(np.linalg.norm(sizes * slope)) / FAR * inverse**2

    # ---- iterates --------------------------------------------------------------------------------

    def accept(self, tao: PETSc.TAO) -> None:
        """Record an iterate, report it and decide whether to stop; TAO's monitor."""
        reason: Any = tao.getConvergedReason()
        if reason != _Reason.CONTINUE_ITERATING:
            return  # PETSc 3.26: LMVM and BQNLS show the old iterate again after a failed search
        self.evaluations.tighten(tao)
        self._shorten_first_step(tao)
        x = tao.getSolution()
        if self.algorithm in NEWTON and not self.resuming and self._stayed(tao, x):
            return
        trial = self.evaluations.last
        assert trial is not None
        assert trial.gradient is not None
        if self.resuming:
            self.resuming = False
            self._take(trial.gradient)
            self.decide(tao, math.nan)
            return
        if self.iterates and self._worthless(tao, trial):
            reason = _Reason.DIVERGED_LS_FAILURE
            tao.setConvergedReason(reason)
            return
        # x_k - x_{k+1}: norm and, in _promised, the negative step.
        self.x.axpy(-1.0, x)
        step = norm(self.x)
        promised = self._promised(tao, trial.value)
        x.copy(self.x)
        self._record(tao, trial, step)
        self.decide(tao, promised)

    def _shorten_first_step(self, tao: PETSc.TAO) -> None:
        """Let LMVM's first search begin at the step that BLMVM's begins at, and later ones at 1.

        PETSc 3.26: LMVM's first direction is the gradient as it is, of any length, because it does
        not tell its matrix the scale 2 |J| / |g|^2 that BLMVM and BQNLS do.  A search from there
        may end far away: weights of neural networks in the saturated part of tanh, from where no
        later search comes back.
        """
        if self.algorithm != "lmvm" or PETSc.Options().hasName("tao_ls_stepinit"):
            return
        trial, length = self.evaluations.last, 1.0
        if tao.getIterationNumber() == 0 and trial is not None and trial.gradient is not None:
            # 2 |J| / |g|^2 in TAO's unit: both are divided by it, and the square by its square.
            squared = norm(trial.gradient) ** 2 / self.evaluations.unit
            if trial.value != 0.0 and squared > 0.0:
                length = min(1.0, 2.0 * abs(trial.value) / squared)
        tao.getLineSearch().setInitialStepLength(length)

    def _record(self, tao: PETSc.TAO, trial: Evaluation, step: float) -> None:
        """Add a trial to the iterates and tell of it."""
        assert trial.gradient is not None
        gradient_norm = projected_norm(trial.x, trial.gradient, self.limits)
        self.slopes.append(free_norm(trial.x, trial.gradient, self.limits))
        counts = (self.evaluations.count, self.evaluations.failed)
        products = 0 if self.hessian is None else self.hessian.count
        number = len(self.iterates)
        self.iterates.append(Iterate(number, trial.value, gradient_norm, step, *counts, products))
        self.evaluations.best = None
        self._take(trial.gradient)
        self.tell()

    def _take(self, gradient: PETSc.Vec) -> None:
        """Make ``x`` with its gradient [n] the point that searches begin at."""
        self.evaluations.accepted = Evaluation(self.x, self.iterates[-1].value, gradient)

    def tell(self) -> None:
        """Save and report the last iterate; after a first step, all options must have been read."""
        beat()
        if self.scope is not None and len(self.iterates) == 2:
            self.scope.check_used(final=True)
        new = self.record is None or self.record.accept(self.iterates[-1], self.x)
        if self.report is not None and new:
            self.report(self.iterates[-1], self.x)

    def _stayed(self, tao: PETSc.TAO, x: PETSc.Vec) -> bool:
        """Say whether x [n] is still the last iterate, and end what stays for ever.

        PETSc 3.26: NTR shows the old iterate again after each rejected step, and has no smallest
        radius.
        """
        if not self.iterates or not x.equal(self.x):
            self.idle = 0
            return False
        self.idle += 1
        trust: Any = tao.getCurrentTrustRegionRadius()
        if self.algorithm not in TRUST_REGION or self.idle > 30 or trust < 1e-16 * norm(x):
            reason: Any = _Reason.DIVERGED_TR_REDUCTION
            if self.algorithm not in TRUST_REGION:
                reason = _Reason.DIVERGED_LS_FAILURE
            tao.setConvergedReason(reason)
        return True

    def decide(self, tao: PETSc.TAO, promised: float) -> None:
        """Tell TAO whether to stop at the last iterate."""
        size = self.stopping.size_of(self.iterates[-1].value, self.iterates[0].value)
        scaled = self.stopping.scaled_norm(self.x, self.gradient, self.limits, size)
        reason: Any
        reason, self.why = self.stopping.reason(self.iterates, scaled, promised)
        tao.setConvergedReason(reason)

    def _promised(self, tao: PETSc.TAO, value: float) -> float:
        """Return the relative decrease that the model promised for a full Newton step, or NaN.

        For s = -H^-1 g it is -g.s/2.  ``x`` holds the last iterate minus this one.
        """
        if self.stopping.predicted_decrease <= 0.0 or not self.iterates:
            return math.nan
        # PETSc 3.26: NTR shows its radius there
        full: Any = 1.0 if self.algorithm == "ntr" else tao.getSolutionStatus()[4]
        krylov: Any = tao.getKSP().getConvergedReason()
        # Only where the Krylov solver has converged is the step Newton's; at the edge of a trust
        # region or at negative curvature the model has promised something else.
        good = (PETSc.KSP.ConvergedReason.CONVERGED_RTOL, PETSc.KSP.ConvergedReason.CONVERGED_ATOL)
        if full < 1.0 or krylov not in good:
            return math.nan
        size = self.stopping.size_of(value, self.iterates[0].value)
        return 0.5 * dot(self.x, self.gradient) / max(size, sys.float_info.min)

    def _worthless(self, tao: PETSc.TAO, trial: Evaluation) -> bool:
        """Say whether the new iterate is one that its line search should not have accepted.

        PETSc 3.26: when two searches in a row fail, BNCG starts the third one from the last trial
        point, or with its value, instead of the last iterate: J rises.  And More-Thuente lets it
        stay or rise by a relative 1e-10, beside failed solves for ever.
        """
        if self.algorithm in TRUST_REGION:
            return False
        line_search = tao.getLineSearch().getType()
        if line_search != MORE_THUENTE and not (line_search == ARMIJO and self.monotone):
            return False
        last = self.iterates[-1]
        # Beside failed solves the search was told to be content with a lower J: a step that gains
        # nothing there has to flatten the gradient at least.
        if self.failed_in_search and trial.value >= last.value:
            assert trial.gradient is not None
            size = projected_norm(trial.x, trial.gradient, self.limits)
            return size > 0.9 * last.gradient_norm
        return trial.value > last.value + 1e-9 * abs(last.value)


def tune(tao: PETSc.TAO, descent: TaoRun) -> None:
    """Set how well TAO's Krylov solver shall solve, unless an option says so."""
    ksp = tao.getKSP()
    if PETSc.Options().hasName(f"{ksp.getOptionsPrefix() or ''}ksp_rtol"):
        return
    first, last = descent.iterates[0], descent.iterates[-1]
    stopping = descent.stopping
    # The loosest of the rules ends the descent, so that is as far as solving well pays.
    target = max(
        stopping.gradient,
        stopping.by_first * first.gradient_norm,
        stopping.by_value * abs(last.value),
    )
    ksp.setTolerances(rtol=forcing(first.gradient_norm, last.gradient_norm, target))
