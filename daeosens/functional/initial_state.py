"""Initial states that follow the parameters: a map p -> u0 with its first two derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import UnsupportedError
from daeosens.petsc.vectors import Array, gather, scatter
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.automatic_hessian import AutomaticHessian
from daeosens.problem.callback_guard import check_output, guarded
from daeosens.problem.matrices import Products
from daeosens.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class StartMap:
    """The initial state eta [n] as a function of the parameters [m].

    Parameters
    ----------
    value : callable
        ``p -> array [n]``; PETSc style ``(p, out)``.
    by_p, hessian
        Its derivatives, as those of ``Parameters``.
    """

    value: Callable[..., Any]
    by_p: Callable[..., Any] | Products | None = None
    hessian: Callable[..., Any] | None = None

    def at(self, problem: Problem, p: Array) -> Any:
        """Return eta(p) as ``solve`` takes it."""
        call = guarded(self.value, "initial_state", problem.comm)
        if problem.style == "petsc":
            u0 = problem.create_state()
            call(p, u0)
            return u0
        values = call(p)
        try:
            own_shape = np.shape(values)
        except ValueError:  # lists of uneven length, which are refused below
            own_shape = ()
        # Some problems complete a state from fewer numbers: a map may give these, or all of it.
        shape = (problem.n_start if own_shape == (problem.n_start,) else problem.size,)
        return check_output(values, "initial_state", shape, 0.0)

    def tangent(self, problem: Problem, p: Array, dp: Array) -> PETSc.Vec:
        """Return eta_p dp [n] as a new vector."""
        du0 = problem.create_state()
        if problem.style == "numpy":
            return scatter(self._jacobian(problem)(p) @ dp, du0)
        if not isinstance(self.by_p, Products):
            raise UnsupportedError(
                "a tangent through a PETSc-style initial_state",
                expected="initial_state_p=Products(apply, apply_transpose)",
                remedy="Reduced.gradient, which needs only the transposed product",
            )
        guarded(self.by_p.apply, "initial_state_p.apply", problem.comm)(p, dp, du0)
        return du0

    def transposed(self, problem: Problem, p: Array, lam: PETSc.Vec) -> Array:
        """Return eta_p^T lam [m] on every rank."""
        if problem.style == "numpy":
            return gather(lam) @ self._jacobian(problem)(p)
        if self.by_p is None:
            raise UnsupportedError(
                "'initial_state_p' is needed and was not supplied",
                expected="initial_state_p=callback(p, w) -> array [m]",
            )
        call = self.by_p.apply_transpose if isinstance(self.by_p, Products) else self.by_p
        values = guarded(call, "initial_state_p", problem.comm)(p, lam)
        return _numbers(values, "initial_state_p", problem)

    def curvature(self, problem: Problem, p: Array, lam: PETSc.Vec, dp: Array) -> Array:
        """Return the derivative of eta_p^T lam along dp [m] on every rank."""
        if self.hessian is not None:
            # Rows that the map does not give are zero in eta_p, so their lam does not count.
            w = gather(lam)[: self._count(problem, p)] if problem.style == "numpy" else lam
            call = guarded(self.hessian, "initial_state_hessian", problem.comm)
            return _numbers(call(p, w, dp), "initial_state_hessian", problem)
        if problem.style == "petsc":
            raise UnsupportedError(
                "'initial_state_hessian' is needed and was not supplied",
                expected="initial_state_hessian=callback",
            )
        # sum_i lam_i (eta_i)_pp dp.
        return self._bend((p,), gather(lam)[: self._count(problem, p)], {0: dp})[0]

    @cached_property
    def _bend(self) -> AutomaticHessian:
        """Second derivatives, automatic where they are missing."""
        remedy = "initial_state_hessian=callback"
        return AutomaticHessian(self.value, {0: self.by_p}, "initial_state", remedy)

    def _jacobian(self, problem: Problem) -> Callable[[Array], Array]:
        assert not isinstance(self.by_p, Products)  # refused by ``Parameters.check``
        remedy = "initial_state_p=callback"
        step = self.by_p
        if step is None:
            step = AutomaticJacobian(self.value, 0, "initial_state", remedy)
        else:
            step = guarded(step, "initial_state_p", problem.comm)

        def whole(p: Array) -> Array:
            """Return eta_p, with rows of 0 for what a start need not give."""
            rows = self._count(problem, p)
            matrix = check_output(step(p), "initial_state_p", (rows, problem.n_parameters), 0.0)
            return np.concatenate([matrix, np.zeros((problem.size - rows, matrix.shape[1]))])

        return whole

    def _count(self, problem: Problem, p: Array) -> int:
        """Return how many entries of the state the map gives: all, or those a start needs."""
        if problem.n_start == problem.size:
            return problem.size
        return len(self.at(problem, p))


def _numbers(values: object, name: str, problem: Problem) -> Array:
    return np.asarray(check_output(values, name, (problem.n_parameters,), 0.0), dtype=float)
