"""What can be minimised and Taylor-tested: a value with its gradient on PETSc vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from petsc4py import PETSc

from daeosens.derivatives.divided import difference, richardson
from daeosens.errors import InputError
from daeosens.petsc.vectors import Array, norm


class Functional(Protocol):
    """A differentiable real function J of a distributed vector x [n].

    ``Reduced`` is one; anything else with these names will do.  Every method is collective on
    ``comm`` and gives the same number on every rank.  A returned vector belongs to the caller: the
    functional neither keeps nor changes it afterwards.  An argument is only read, numbers of it by
    ``x.getArray(readonly=True)``: it may be locked, and ``x.array`` is for writing.

    Where J does not exist (the forward solve fails), ``value``, ``gradient`` and
    ``value_and_gradient`` raise ``SolveError``, on every rank or on none.

    Examples
    --------
    >>> from petsc4py import PETSc
    >>> class Norm:
    ...     comm = PETSc.COMM_SELF
    ...     def start(self):
    ...         return PETSc.Vec().createWithArray([3.0, 4.0], comm=self.comm)
    ...     def bounds(self):
    ...         return None
    ...     def value(self, x):
    ...         return 0.5 * x.dot(x)
    ...     def gradient(self, x):
    ...         return x.copy()
    ...     def value_and_gradient(self, x):
    ...         return self.value(x), self.gradient(x)
    >>> functional: Functional = Norm()
    >>> functional.value(functional.start())
    12.5
    """

    @property
    def comm(self) -> PETSc.Comm:
        """The communicator x lives on."""
        ...

    def start(self) -> PETSc.Vec:
        """Return a new vector [n] with the point to begin at; it also fixes the layout of x."""
        ...

    def bounds(self) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return lower and upper bounds [n] (infinite: none there), or None for no bounds."""
        ...

    def value(self, x: PETSc.Vec) -> float:
        """Return J(x)."""
        ...

    def gradient(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return dJ/dx [n] in a new vector with the layout of x."""
        ...

    def value_and_gradient(self, x: PETSc.Vec) -> tuple[float, PETSc.Vec]:
        """Return J(x) and dJ/dx [n] from one forward and one adjoint sweep."""
        ...


def normal_matrix(jacobian: PETSc.Mat) -> Array:
    """Return J^T J [k, k] of a dense matrix [q, k] on every rank.  Collective."""
    local: Any = jacobian.getDenseArray()
    # rows are spread over ranks, columns are not: sums of products of rows
    total: Array = jacobian.comm.tompi4py().allreduce(local.T @ local)
    return total


def require_functional(functional: object) -> None:
    """Refuse what is no functional: a cost, or a plain function, for instance.

    Raises
    ------
    InputError
        Names its type.
    """
    if not callable(getattr(functional, "start", None)):  # a range has another one
        raise InputError(
            f"functional is {type(functional).__name__}",
            expected="Reduced(problem, objective, stepping, control), or what has its methods",
        )


def require_vec(result: object, functional: object, method: str) -> None:
    """Refuse a result that is no vector.

    Raises
    ------
    InputError
        Names the functional, its method and what that returned.
    """
    if not isinstance(result, PETSc.Vec):
        raise InputError(
            f"{type(functional).__name__}.{method}() returned {type(result).__name__}",
            expected="a PETSc.Vec",
            remedy="PETSc.Vec().createWithArray(array, comm=PETSc.COMM_SELF)",
        )


@runtime_checkable
class HasHessian(Protocol):
    """Optional ability: products with the exact Hessian, for Newton methods."""

    def hessian_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return H(x) dx [n] in a new vector.  Collective."""
        ...


@runtime_checkable
class HasDenseHessian(Protocol):
    """Optional ability: the exact Hessian whole, cheaper than by n products."""

    def hessian(self, x: PETSc.Vec) -> Array:
        """Return H(x) [n, n] on every rank.  Collective."""
        ...


@runtime_checkable
class HasGaussNewton(Protocol):
    """Optional ability: products with the Gauss-Newton matrix, for ``hessian="gauss_newton"``."""

    def gauss_newton_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return R^T R dx [n], R the derivative of the residual, in a new vector.  Collective."""
        ...


@runtime_checkable
class HasDenseGaussNewton(Protocol):
    """Optional ability: the Gauss-Newton matrix whole, cheaper than by n products."""

    def gauss_newton_matrix(self, x: PETSc.Vec) -> Array:
        """Return R^T R [n, n] on every rank.  Collective."""
        ...


@runtime_checkable
class HasResidual(Protocol):
    """Optional ability: J = |r(x)|^2 / 2."""

    def residual(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return r(x) [q] in a new vector; SolveError as for ``value``.  Collective."""
        ...


@runtime_checkable
class HasResidualJacobian(HasResidual, Protocol):
    """Optional ability: dr/dx as well, for "brgn".

    An attribute ``residual_sweep`` ("tangent" or "adjoint") says which sweep gives it.
    """

    def residual_jacobian(self, x: PETSc.Vec) -> PETSc.Mat:
        """Return dr/dx [q, n], a dense matrix.  Collective."""
        ...


@runtime_checkable
class HasTypical(Protocol):
    """Optional ability: sizes below which x and J no longer matter, for scaled tolerances."""

    def typical(self) -> tuple[PETSc.Vec, float]:
        """Return typical sizes of x [n], positive, and of J (0: that of the first J)."""
        ...


@runtime_checkable
class HasTrials(Protocol):
    """Optional ability: trial points that take far more steps than the best run count as failed."""

    def limit_steps(self, *, limited: bool) -> None:
        """Limit the steps of later runs by those of the last one, or no longer.  Collective."""
        ...


@runtime_checkable
class HasTolerance(Protocol):
    """Optional ability: how many digits of J mean something."""

    @property
    def tolerance(self) -> float:
        """Relative tolerance of adaptive runs, the loosest one; 0 of fixed steps."""
        ...


@runtime_checkable
class HasRefined(Protocol):
    """Optional ability: the same functional with divided steps, for discretisation errors."""

    @property
    def order(self) -> int:
        """Order of the method of its runs."""
        ...

    def value_and_gradient(self, x: PETSc.Vec) -> tuple[float, PETSc.Vec]:
        """Return J(x) and dJ/dx [n]."""
        ...

    def refined(self, x: PETSc.Vec) -> tuple[HasRefined, int]:
        """Return the functional by runs with parts of the steps of those at x.  Collective.

        And how many parts.
        """
        ...


@runtime_checkable
class HasRepeated(Protocol):
    """Optional ability: the same functional by the steps of its run at a point."""

    def repeated(self, x: PETSc.Vec) -> Functional | None:
        """Return the functional by runs that take the steps of those at x, or None.  Collective."""
        ...


@dataclass(frozen=True, eq=False)
class FunctionalError:
    """Estimated discretisation errors of a functional at a point: computed minus exact.

    Attributes
    ----------
    value : float
    gradient : Vec [k]
    size : float
        Norm of the latter.
    """

    value: float
    gradient: PETSc.Vec
    size: float

    def __str__(self) -> str:
        """Return both in a line; not collective."""
        return f"value {self.value:.2g}, gradient {self.size:.2g}: computed minus exact"


def functional_error(functional: HasRefined, x: PETSc.Vec) -> FunctionalError:
    """Estimate the discretisation error of J(x) and its gradient, as ``derivative_error``.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> control = Parameters({"rate": Parameter(0.3)}, initial_state=[1.0])
    >>> misfit, stepping = LeastSquares([1.0], [0.6]), Stepping((0.0, 1.0), "cn", dt=0.1)
    >>> functional = Reduced(decay, misfit, stepping, control)
    >>> print(f"{functional_error(functional, functional.start()).value:.2g}")
    -2.3e-06
    """
    # J(h) - J = c h^q, so that J(h) - J(h/2) tells c
    computed, (refined, parts) = functional.value_and_gradient(x), functional.refined(x)
    factor, finer = richardson(functional.order, parts), refined.value_and_gradient(x)
    error = difference(computed[1], finer[1], factor)
    return FunctionalError(factor * (computed[0] - finer[0]), error, norm(error))
