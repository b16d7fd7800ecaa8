"""Controls that are whole vectors: the initial state, or a distributed parameter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.derivatives.adjoint import Gradient
from daeosens.derivatives.hessian import HessianProduct
from daeosens.errors import InputError, is_real
from daeosens.functional.consistent_initial_state import SolvedStart, solved_start
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import as_float, finite_array, keep_unshared
from daeosens.problem.problem import Problem
from daeosens.timestepping.stepping import Stepping


@dataclass(frozen=True, eq=False)
class InitialState:
    """The whole initial state is optimised; the parameters are fixed.

    Arrays and vectors are copied: collective if one is distributed.

    Parameters
    ----------
    start_value : array or Vec [n]
        First guess.
    p : array or Vec [m]
        Parameters.
    lower, upper : float
        Bounds, the same for every component.
    consistent : bool
        The algebraic variables of an index-1 DAE are solved for, and differentiated: x holds the
        differential variables, and guesses of the algebraic ones, in which derivatives are zero.
    stepping : Stepping, optional
        Of the runs, for the time of a start that is to be consistent; ``Reduced`` fills it in.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Reduced, Stepping, minimize
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> stepping, misfit = Stepping((0.0, 2.0), "rk4", dt=0.1), LeastSquares([2.0], [0.5])
    >>> result = minimize(Reduced(decay, misfit, stepping, InitialState([1.0], [0.5])))
    >>> result.x.array.round(4)
    array([1.3591])
    """

    start_value: npt.ArrayLike | PETSc.Vec
    p: Any = None
    lower: float = -math.inf
    upper: float = math.inf
    consistent: bool = False
    stepping: Stepping | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        keep_unshared(self, "start_value", "p")
        if not isinstance(self.consistent, (bool, np.bool_)):
            raise InputError(f"consistent = {self.consistent!r}", expected="True or False")

    def of_runs(self, stepping: Stepping) -> InitialState:
        """Return the same, with the start made consistent for runs with a Stepping."""
        return replace(self, stepping=stepping) if self.consistent else self

    def check(self, problem: Problem) -> None:
        """Check sizes, values and bounds."""
        agree(
            problem.comm,
            "InitialState",
            p=self.p,
            lower=self.lower,
            upper=self.upper,
            consistent=self.consistent,
        )
        vec = problem.admit_state(self.start_value, "the initial guess")
        _check_bounds(vec, self.lower, self.upper)
        problem.admit_parameters(self.p)

    def start(self, problem: Problem) -> PETSc.Vec:
        """Return the first guess [n]."""
        return problem.admit_state(self.start_value, "the initial guess")

    def bounds(self, problem: Problem) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return the bounds [n], or None."""
        return _uniform_bounds(problem.create_state, self.lower, self.upper)

    def unpack(self, problem: Problem, x: PETSc.Vec) -> tuple[Any, Any]:
        """Return (u0, p)."""
        # The identity, or the projection onto consistent states, whose derivative in the
        # algebraic guesses is 0.
        return (self._solved(problem, x).step.u_next.copy() if self.consistent else x), self.p

    def pull_back(self, problem: Problem, x: PETSc.Vec, gradient: Gradient) -> PETSc.Vec:
        """Return dJ/dx."""
        return (
            self._solved(problem, x).adjoint(gradient.u0_vec)
            if self.consistent
            else gradient.u0_vec
        )

    def push_forward(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec
    ) -> tuple[PETSc.Vec | None, PETSc.Vec | None]:
        """Return (du0, None)."""
        return (self._solved(problem, x).tangent(dx) if self.consistent else dx), None

    def pull_back_second(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec, product: HessianProduct
    ) -> PETSc.Vec:
        """Return the Hessian product in x; the product itself where the map is the identity."""
        if not self.consistent:
            return product.u0_vec
        solved = self._solved(problem, x)
        if product.gradient is None:
            # Gauss-Newton: without the curvature of the map.
            return solved.adjoint(product.u0_vec)
        # (c_u^T lam)_dot = c_u^T lam_dot + (lam^T c_uu) dx.
        return solved.adjoint_along(product.gradient.u0_vec, product.u0_vec, dx)

    def _solved(self, problem: Problem, x: PETSc.Vec) -> SolvedStart:
        if self.stepping is None:
            raise InputError(
                "consistent=True without the time of the start",
                expected="the Stepping of the runs",
                remedy="Reduced(...), which tells it, or InitialState(..., stepping=stepping)",
            )
        return solved_start(
            problem,
            self.stepping.t_span[0],
            x,
            problem.admit_parameters(self.p),
            self.stepping.options,
        )


@dataclass(frozen=True, eq=False)
class FieldParameter:
    """A distributed parameter field is optimised; the initial state is fixed.

    Arrays and vectors are copied: collective if one is distributed.

    Parameters
    ----------
    start_value : Vec [m]
        First guess.
    initial_state : Vec or array [n]
        Initial state.
    lower, upper : float
        Bounds, the same for every component.

    Examples
    --------
    >>> from petsc4py import PETSc
    >>> from daeosens import ODE
    >>> field = PETSc.Vec().createSeq(3, comm=PETSc.COMM_SELF)
    >>> field.set(0.5)
    >>> decay = ODE(
    ...     lambda t, u, p, out: out.pointwiseMult(-p, u), state=field, parameters=field
    ... )
    >>> FieldParameter(field, initial_state=[1.0, 2.0, 3.0], lower=0.0).start(decay).array
    array([0.5, 0.5, 0.5])
    """

    start_value: PETSc.Vec
    initial_state: Any
    lower: float = -math.inf
    upper: float = math.inf

    def __post_init__(self) -> None:
        keep_unshared(self, "start_value", "initial_state")

    def check(self, problem: Problem) -> None:
        """Check sizes, values and bounds."""
        agree(problem.comm, "FieldParameter", lower=self.lower, upper=self.upper)
        if not problem.field_parameter:
            raise InputError(
                "FieldParameter for a problem whose parameters are numbers",
                expected="Parameters({...})",
                remedy="ODE(..., parameters=template_vec) for a field",
            )
        _check_bounds(problem.admit_parameters(self.start_value), self.lower, self.upper)
        problem.admit_state(self.initial_state, "initial_state").destroy()

    def start(self, problem: Problem) -> PETSc.Vec:
        """Return the first guess [m]."""
        return problem.admit_parameters(self.start_value)

    def bounds(self, problem: Problem) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return the bounds [m], or None."""
        return _uniform_bounds(problem.create_parameters, self.lower, self.upper)

    def unpack(self, problem: Problem, x: PETSc.Vec) -> tuple[Any, Any]:
        """Return (u0, x)."""
        return self.initial_state, x

    def pull_back(self, problem: Problem, x: PETSc.Vec, gradient: Gradient) -> PETSc.Vec:
        """Return dJ/dp."""
        return gradient.p_vec

    def push_forward(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec
    ) -> tuple[PETSc.Vec | None, PETSc.Vec | None]:
        """Return (None, dx)."""
        return None, dx

    def pull_back_second(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec, product: HessianProduct
    ) -> PETSc.Vec:
        """Return the product itself: the map is linear."""
        return product.p_vec


def _uniform_bounds(
    create: Callable[[], PETSc.Vec], lower: float, upper: float
) -> tuple[PETSc.Vec, PETSc.Vec] | None:
    lower, upper = as_float(lower), as_float(upper)
    # Methods without bounds are possible where there are none.
    if math.isinf(lower) and math.isinf(upper):
        return None
    low, high = create(), create()
    low.set(lower)
    high.set(upper)
    return low, high


def _check_bounds(vec: PETSc.Vec, lower: float, upper: float) -> None:
    for name, bound in (("lower", lower), ("upper", upper)):
        if not is_real(bound) or math.isnan(as_float(bound)):
            raise InputError(f"{name} = {bound!r}", expected="a number, which may be infinite")
    lower, upper = as_float(lower), as_float(upper)
    # Collective, so that every rank comes to the same verdict.
    least, greatest = vec.min()[1], vec.max()[1]
    if not lower <= upper:
        raise InputError(f"bounds [{lower:g}, {upper:g}]", expected="lower <= upper")
    if least < lower or greatest > upper:
        raise InputError(
            f"the start has values in [{least:g}, {greatest:g}]",
            expected=f"values within the bounds [{lower:g}, {upper:g}]",
        )
    finite_array([least, greatest], "start")
    vec.destroy()
