"""The continuous adjoint equations, integrated backward: to compare the discrete adjoint with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from augmented_system import (
    Augmented,
    Block,
    Filled,
    augmented_equations,
    refuse_other_forms,
)
from petsc4py import PETSc

from daeosens import Stepping, solve
from daeosens.costs.cost import Cost, Observation
from daeosens.costs.objective import Objective
from daeosens.derivatives import Gradient, evaluate
from daeosens.derivatives.engines.request import points_by_step
from daeosens.errors import InputError, UnsupportedError
from daeosens.petsc import read, write
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, norm
from daeosens.problem import Problem
from daeosens.timestepping import Trajectory

Mode = Literal["backsolve", "interpolating"]


@dataclass(frozen=True, eq=False)
class ContinuousAdjoint:
    """A gradient by the continuous adjoint equations.

    Attributes
    ----------
    gradient : Gradient
        Value (of the discrete run) and gradient.
    forward : Trajectory
        The forward run.
    mode : str
        Where the state came from: "backsolve" or "interpolating".
    steps : int
        Number of backward steps.
    drift : float
        Relative distance of the re-integrated initial state from the true one; 0 if interpolated.
    """

    gradient: Gradient
    forward: Trajectory
    mode: Mode
    steps: int
    drift: float

    @property
    def value(self) -> float:
        """The cost."""
        return self.gradient.value

    @property
    def u0(self) -> Array:
        """Derivative with respect to the initial state, gathered [n].  Collective."""
        return self.gradient.gather()[0]

    @property
    def p(self) -> Array:
        """Derivative with respect to the parameters, gathered [m].  Collective."""
        return self.gradient.gather()[1]

    def __str__(self) -> str:
        return (
            f"continuous adjoint ({self.mode}): {self.steps} backward steps, "
            f"re-integrated initial state off by {self.drift:.2g}"
        )


def continuous_adjoint(
    problem: Problem,
    u0: npt.ArrayLike | PETSc.Vec,
    p: npt.ArrayLike | PETSc.Vec | None,
    stepping: Stepping,
    objective: Objective,
    mode: Mode = "backsolve",
    backward: Stepping | None = None,
) -> ContinuousAdjoint:
    """Integrate lam' = -f_u^T lam - r_u, mu' = -f_p^T lam - r_p backward in time.

    Fails by design: the result is not the gradient of the computed cost, only of its limit for
    small steps, so an optimiser stalls where the two differ, and Taylor tests fail.  "backsolve"
    also integrates u' = f backward: what decays forward grows backward, so for diffusive or stiff
    problems rounding grows as exp(|lambda| T) until the gradient is huge or a ``SolveError`` ends
    the run; see ``drift``.  "interpolating" takes the state from the forward run by cubic Hermite
    interpolation, which is stable, keeps all states, and limits the order to 4.  Collective on
    ``problem.comm``.

    Parameters
    ----------
    problem : Problem
        u' = f(t, u, p), without a mass matrix.
    u0, p, stepping
        As for ``solve``: the forward run.
    objective : Objective
        A cost; lam jumps at its observation times.
    mode : "backsolve" or "interpolating"
        Where the state comes from on the way back.
    backward : Stepping, optional
        Method, steps and tolerances of the way back (its ``t_span`` is not used); those of the
        forward run by default.

    Returns
    -------
    ContinuousAdjoint

    Raises
    ------
    InputError
        Unknown mode.
    UnsupportedError
        A problem that is not u' = f(t, u, p), or one with breakpoints.
    SolveError
        One of the integrations failed, in "backsolve" perhaps because it is unstable.

    Source
    ------
    Sapienza et al., Differentiable programming for differential equations: a review, 2024; Chen et
    al., Neural ordinary differential equations, NeurIPS 2018 (backsolve).

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> stepping, final = Stepping((0.0, 2.0), "rk4", dt=0.1), Terminal(lambda t, u, p: u[0])
    >>> continuous_adjoint(decay, [1.0], [0.5], stepping, final).p.round(5)
    array([-0.73576])
    """
    agree(problem.comm, "continuous_adjoint", mode=mode, backward=backward)
    refuse_other_forms(problem, "continuous_adjoint", "adjoint(trajectory, objective)")
    if problem.breakpoints:
        raise UnsupportedError(
            "continuous_adjoint for a problem with breakpoints",
            expected="equations without jumps",
            remedy="adjoint(trajectory, objective)",
        )
    if mode not in ("backsolve", "interpolating"):
        raise InputError(f"mode = {mode!r}", expected='"backsolve" or "interpolating"')
    forward = solve(problem, u0, p, stepping, objective.times)
    value = evaluate(forward, objective)
    cost = objective.lower(problem, float(forward.times[-1]))
    points = points_by_step(forward, [cost])
    sweep = _Backward(forward, cost, mode, stepping if backward is None else backward)
    end = forward.n_steps
    for step in sorted({*points, 0, end}, reverse=True):
        if step < end:
            sweep.integrate(float(forward.times[end]), float(forward.times[step]))
            end = step
        sweep.jump(step, points.get(step, ()))
    gradient = Gradient(value, sweep.lam, sweep.mu)
    return ContinuousAdjoint(gradient, forward, mode, sweep.steps, sweep.drift())


class _Backward:
    """The adjoint, and when re-integrated the state, on their way back."""

    def __init__(self, forward: Trajectory, cost: Cost, mode: Mode, stepping: Stepping) -> None:
        problem = forward.problem
        self._problem, self._p = problem, forward.p
        self._forward = forward
        self._densities = cost.densities
        self._backsolve = mode == "backsolve"
        self._stepping = stepping
        self._interpolant = None if self._backsolve else _Hermite(forward)
        templates = [problem.state, problem.parameter]
        self._augmented = Augmented([problem.state] * self._backsolve + templates)
        self._end = 0.0
        self.u = forward.final.copy()
        self.lam, self.mu = problem.create_state(), problem.create_parameters()
        point = (float(forward.times[-1]), self.u, forward.p)
        self._by_u = Filled(problem.rhs_u, *point)
        self._by_p = Filled(problem.rhs_p, *point) if problem.n_parameters else None
        self._state, self._lam = problem.create_state(), problem.create_state()
        self._rate, self._rate_p = problem.create_state(), problem.create_parameters()
        self.steps = 0

    def jump(self, step: int, points: Sequence[Observation]) -> None:
        """Add the gradients of costs at a time."""
        time = float(self._forward.times[step])
        state = self.u if self._backsolve else self._forward.states[step]
        for seen in points:
            seen.scalar.add_u(seen.weight, time, state, self._p, self.lam)
            seen.scalar.add_p(seen.weight, time, state, self._p, self.mu)

    def integrate(self, end: float, start: float) -> None:
        """Carry state, lam and mu from ``end`` back to ``start``, in the time end - t."""
        self._end, span = end, end - start
        dt = self._stepping.dt
        stepping = replace(
            self._stepping, t_span=(0.0, span), dt=None if dt is None else min(dt, span)
        )
        parts = [self.u] * self._backsolve + [self.lam, self.mu]
        begin = self._augmented.join(parts)
        equations = augmented_equations(
            self._problem, self._rhs, self._blocks, self._augmented, begin, stepping
        )
        run = solve(equations, begin, None, stepping)
        for part, values in zip(parts, self._augmented.split(run.final), strict=True):
            write(part, values)
        self.steps += run.n_steps
        run.destroy()

    def drift(self) -> float:
        """Return how far the re-integrated initial state is from the true one."""
        if not self._backsolve:
            return 0.0
        first = self._forward.states[0]
        difference = self.u.copy()
        difference.axpy(-1.0, first)
        return norm(difference) / (norm(first) or 1.0)

    def _rhs(self, s: float, whole: PETSc.Vec, _p: Any, out: PETSc.Vec) -> None:
        t, problem, p = self._end - s, self._problem, self._p
        parts, rates = self._augmented.split(whole), self._augmented.opened(out)
        self._see(t, whole)
        write(self._lam, parts[-2])
        if self._backsolve:
            problem.rhs(t, self._state, p, self._rate)
            rates[0][...] = -read(self._rate)
        self._by_u.at(t, self._state).multTranspose(self._lam, self._rate)
        for weight, density in self._densities:
            density.add_u(weight, t, self._state, p, self._rate)
        rates[-2][...] = read(self._rate)
        if self._by_p is not None:
            self._by_p.at(t, self._state).multTranspose(self._lam, self._rate_p)
            for weight, density in self._densities:
                density.add_p(weight, t, self._state, p, self._rate_p)
            rates[-1][...] = read(self._rate_p)

    def _blocks(self, s: float, whole: PETSc.Vec) -> list[Block]:
        self._see(self._end - s, whole)
        matrix = self._by_u.at(self._end - s, self._state)
        own = [Block(matrix, -1.0)] * self._backsolve
        return [*own, Block(matrix, transpose=True), Block(None)]

    def _see(self, t: float, whole: PETSc.Vec) -> None:
        """Put the state at time t into its work vector."""
        if self._interpolant is None:
            write(self._state, self._augmented.split(whole)[0])
        else:
            self._interpolant.at(t, self._state)


class _Hermite:
    """Cubic Hermite interpolation of a forward run; the rates are evaluated when needed."""

    def __init__(self, forward: Trajectory) -> None:
        self._forward = forward
        self._rates: dict[int, PETSc.Vec] = {}

    def at(self, t: float, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with the state at any time of the run."""
        times, states = self._forward.times, self._forward.states
        n = int(np.clip(np.searchsorted(times, t, side="right") - 1, 0, len(times) - 2))
        h = float(times[n + 1] - times[n])
        x = (t - float(times[n])) / h
        if len(self._rates) > 2:
            self._rates = {k: self._rates[k] for k in (n, n + 1) if k in self._rates}
        out.zeroEntries()
        out.maxpy(
            [
                (1 + 2 * x) * (1 - x) ** 2,
                x**2 * (3 - 2 * x),
                h * x * (1 - x) ** 2,
                h * x**2 * (x - 1),
            ],
            [states[n], states[n + 1], self._rate(n), self._rate(n + 1)],
        )

    def _rate(self, n: int) -> PETSc.Vec:
        if n not in self._rates:
            problem, forward = self._forward.problem, self._forward
            self._rates[n] = problem.create_state()
            problem.rhs(float(forward.times[n]), forward.states[n], forward.p, self._rates[n])
        return self._rates[n]
