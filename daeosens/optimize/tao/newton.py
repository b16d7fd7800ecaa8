"""Newton's equations for TAO: the Hessian as products, their preconditioner, how well to solve."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, SolveError
from daeosens.petsc.vectors import Array, gather, norm, scatter
from daeosens.problem.callback_guard import guarded

Product: TypeAlias = Callable[[PETSc.Vec, PETSc.Vec], PETSc.Vec]
"""(x, dx) -> a linear map at x applied to dx, in a new vector [n]."""

Preconditioner: TypeAlias = "str | PETSc.Mat | Product"
"""What approximates the inverse Hessian.

"auto": "dense" for up to 10 variables, or 100 where the functional has the Gauss-Newton matrix as a
whole and that is asked for; else "none".  "dense": the whole Hessian at each iterate, by
n products (or ``functional.hessian``), and its eigenvalues in absolute value: Newton's equations
are solved directly, which ill-conditioned ones need (PETSc 3.26: STCG, NASH and GLTR stop after n
steps, converged or not).  "lmvm": PETSc's limited-memory matrix, learnt from the gradients, one
pair an iterate.  "none".  A Mat [n, n]: its product approximates H^-1 r (a prior's covariance).  A
callable (x, r) -> Vec [n]: the same, and it may follow x.  Both must be symmetric, positive
definite, and linear in r.  Where bounds are active, r is zero there and only the other entries of
the answer are taken.
"""

FEW, FEW_WHOLE = 10, 100
"""Variables up to which "auto" means "dense", and where the matrix needs no products."""

NAMED = ("auto", "dense", "lmvm", "none")

LOOSEST, TIGHTEST = 1e-2, 1e-12
"""Limits of the relative residual to which Newton's equations are solved."""


class HessianOperator:
    """Context of the shell Mat that TAO multiplies with, shifts and restricts.

    Parameters
    ----------
    product : callable
        (x, dx) -> H(x) dx.
    whole : callable, optional
        x -> H(x) as an array [n, n] on every rank; then products are taken with that.
    damped : bool
        Whether a diagonal is added to the whole matrix that keeps steps from going far.
    """

    def __init__(
        self,
        product: Product,
        whole: Callable[[PETSc.Vec], Array] | None = None,
        *,
        damped: bool = False,
    ) -> None:
        self.product = product
        self.whole = whole
        self.damped = damped and whole is not None
        self.dense: Array | None = None
        self.x: PETSc.Vec | None = None
        self.diagonal = 0.0
        self.unit = 1.0
        self.count = 0
        self.shifted = False

    def move(self, x: PETSc.Vec, shift: float = 0.0, damping: Array | None = None) -> None:
        """Go to another point, with a shift and a diagonal [n] in the place of any other."""
        # TAO may ask again at the same x, when it is run again for example; a dense Hessian costs
        # up to n products and is kept.
        moved = self.x is None or not x.equal(self.x)
        self.x = x.copy()
        if moved and self.whole is not None:
            matrix = self.whole(self.x)
            self.count += len(matrix)
            # Its eigenvalues are wanted, and eigh looks at one triangle.
            self.dense = 0.5 * (matrix + matrix.T)
            _check_finite(self.dense)
            if damping is not None:
                self.dense[np.diag_indices_from(self.dense)] += damping
        # The shift comes in the user's units of J, TAO's own shifts in TAO's.
        self.diagonal = shift / self.unit
        self.shifted = False

    def apply(self, dx: PETSc.Vec) -> PETSc.Vec:
        """Return H dx in TAO's unit of J, without the shift."""
        assert self.x is not None
        if self.dense is not None:
            result = scatter(self.dense @ gather(dx), dx.duplicate())
        else:
            self.count += 1
            result = self.product(self.x, dx)
            # This error names the cause, which a Krylov solver that meets a NaN would not.
            _check_finite(norm(result))
        result.scale(1.0 / self.unit)
        return result

    def mult(self, _mat: PETSc.Mat, dx: PETSc.Vec, result: PETSc.Vec) -> None:
        """Multiply, for PETSc."""
        self.apply(dx).copy(result)
        result.axpy(self.diagonal, dx)

    def shift(self, _mat: PETSc.Mat, shift: float) -> None:
        """Add to the diagonal until the next move, for PETSc."""
        self.diagonal += shift
        self.shifted = True

    def createSubMatrix(  # noqa: N802 (petsc4py's name)
        self, mat: PETSc.Mat, rows: PETSc.IS, _columns: PETSc.IS, _out: PETSc.Mat | None
    ) -> PETSc.Mat:
        """Return the block of the variables that are free, for PETSc."""
        sizes = (rows.getLocalSize(), rows.getSize())
        # PETSc asks for this where bounds are active: only free variables take part in the step.
        return _shell(mat.comm, sizes, Restricted(self, rows))


class Restricted:
    """Context of a block of the Hessian; knows its indices."""

    def __init__(self, whole: HessianOperator, indices: PETSc.IS) -> None:
        self.whole = whole
        self.indices = indices
        # The shift so far; a later one of the block is its own.
        self.diagonal = whole.diagonal

    def mult(self, _mat: PETSc.Mat, dx: PETSc.Vec, result: PETSc.Vec) -> None:
        """Multiply, for PETSc."""
        assert self.whole.x is not None
        # H_ff dx_f = (H [dx_f; 0])_f: one product of the whole Hessian.
        extended = _extend(dx, self.indices, self.whole.x)
        _restrict(self.whole.apply(extended), self.indices, result)
        result.axpy(self.diagonal, dx)

    def shift(self, _mat: PETSc.Mat, shift: float) -> None:
        """Add to the diagonal, for PETSc."""
        self.diagonal += shift
        self.whole.shifted = True


class DensePreconditioner:
    """Context of the shell PC that inverts the Hessian, its eigenvalues made positive."""

    def __init__(self, operator: HessianOperator) -> None:
        self.operator = operator
        self.made_of: tuple[Any, Any, float] = (None, None, 0.0)
        self.inverse: tuple[Array, Array] | None = None

    def apply(self, pc: PETSc.PC, residual: PETSc.Vec, result: PETSc.Vec) -> None:
        """Apply it, for PETSc."""
        whole = self.operator.dense
        context: Any = pc.getOperators()[0].getPythonContext()
        before = self.made_of
        # Eigenvectors are computed once for each matrix, set of free variables and shift.
        # Matrices and blocks are new objects when they change, so identity tells.
        same = before[0] is whole and before[1] is context and before[2] == context.diagonal
        if self.inverse is None or not same:
            self.made_of = (whole, context, context.diagonal)
            self.inverse = self._inverse(context)
        inverses, vectors = self.inverse
        scatter(vectors @ (inverses * (vectors.T @ gather(residual))), result)

    def _inverse(self, context: HessianOperator | Restricted) -> tuple[Array, Array]:
        """Return 1 / |eigenvalue| and the eigenvectors of the whole Hessian or its free block."""
        matrix = self.operator.dense
        assert matrix is not None
        if isinstance(context, Restricted):
            # Indices in the order of the ranks, as gather() returns the vectors of the block.
            free = context.indices.allGather().getIndices()
            matrix = matrix[np.ix_(free, free)]
        shift = context.diagonal * np.eye(len(matrix))
        values, vectors = np.linalg.eigh(matrix / self.operator.unit + shift)
        # Preconditioned with |H|^-1 the model has eigenvalues 1 and -1 only: conjugate gradients
        # need at most two products, and see negative curvature at once.
        sizes = np.abs(values)
        return 1.0 / np.maximum(sizes, max(1e-14 * sizes.max(), sys.float_info.min)), vectors


class UserPreconditioner:
    """Context of the shell PC around a user's approximate inverse."""

    def __init__(self, inverse: Product, operator: HessianOperator) -> None:
        self.inverse = inverse
        self.operator = operator

    def apply(self, pc: PETSc.PC, residual: PETSc.Vec, result: PETSc.Vec) -> None:
        """Apply it, for PETSc."""
        x = self.operator.x
        assert x is not None
        context: Any = pc.getOperators()[0].getPythonContext()
        if isinstance(context, Restricted):
            extended = _extend(residual, context.indices, x)
            _restrict(self.inverse(x, extended), context.indices, result)
        else:
            self.inverse(x, residual).copy(result)
        # TAO solves with H / unit, whose inverse is unit H^-1.
        result.scale(self.operator.unit)


def newton_matrix(operator: HessianOperator, x: PETSc.Vec) -> PETSc.Mat:
    """Return the shell Mat [n, n] of an operator, laid out like x [n]."""
    sizes: Any = x.getSizes()
    return _shell(x.comm, sizes, operator)


def checked_preconditioner(preconditioner: object, x: PETSc.Vec, few: int = FEW) -> str | Product:
    """Return "dense", "lmvm", "none" or a callable (x, r) -> Vec.

    ``few`` is the number of variables up to which "auto" means "dense".

    Raises
    ------
    InputError
        Something else, or a Mat of another layout than x.
    """
    if isinstance(preconditioner, PETSc.Mat):
        mat = preconditioner
        wanted = x.getSizes()
        pairs: Any = x.comm.tompi4py().allgather((tuple(mat.getSizes()), (wanted, wanted)))
        if any(tuple(map(tuple, mine)) != tuple(map(tuple, theirs)) for mine, theirs in pairs):
            raise InputError(
                f"preconditioner: a Mat of {mat.getSize()} in another layout than x",
                expected=f"{x.getSize()} rows and columns, distributed like x",
            )

        def multiply(_x: PETSc.Vec, residual: PETSc.Vec) -> PETSc.Vec:
            result: PETSc.Vec = residual.duplicate()
            mat.mult(residual, result)
            return result

        return multiply
    if isinstance(preconditioner, str) and preconditioner in NAMED:
        chosen = "dense" if x.getSize() <= few else "none"
        return chosen if preconditioner == "auto" else preconditioner
    if callable(preconditioner):
        return guarded(preconditioner, "preconditioner", x.comm)
    raise InputError(
        f"preconditioner = {preconditioner!r}",
        expected=f"{', '.join(map(repr, NAMED))}, a Mat or a callable (x, r) -> Vec",
    )


def set_preconditioner(tao: PETSc.TAO, chosen: str | Product, operator: HessianOperator) -> None:
    """Give a preconditioner to the Krylov solver of a TAO."""
    ksp = tao.getKSP()
    unpreconditioned: Any = PETSc.KSP.NormType.UNPRECONDITIONED
    ksp.setNormType(unpreconditioned)  # that of the gradient, as the forcing is
    pc = ksp.getPC()
    if isinstance(chosen, str) and chosen != "dense":
        pc.setType(chosen)
        return
    pc.setType("python")
    if isinstance(chosen, str):
        pc.setPythonContext(DensePreconditioner(operator))
    else:
        pc.setPythonContext(UserPreconditioner(chosen, operator))


def dense_by_products(product: Product, x: PETSc.Vec) -> Array:
    """Return the matrix [n, n] of a product at x [n], column by column, on every rank."""
    n = x.getSize()
    columns = (gather(product(x, scatter(np.eye(n)[i], x.duplicate()))) for i in range(n))
    return np.column_stack(list(columns))


def forcing(first: float, now: float, target: float) -> float:
    """Return the relative residual to which to solve Newton's equations.

    min(1e-2, |g_k| / |g_0|) makes the convergence quadratic in the end; not less than a tenth of
    what would reach the target, because more would be in vain.

    Parameters
    ----------
    first, now, target : float
        Gradient norm at the start, here, and where to stop.

    Examples
    --------
    >>> [round(forcing(1.0, 1e-4, target), 6) for target in (0.0, 1e-6)]
    [0.0001, 0.001]

    Source
    ------
    Eisenstat, Walker, SIAM J. Sci. Comput. 17(1), 1996; Kelley, Iterative Methods for Linear and
    Nonlinear Equations, section 6.3 (against oversolving).
    """
    if now <= 0.0:
        return LOOSEST
    enough = 0.1 * target / now
    return min(LOOSEST, max(TIGHTEST, enough, now / first if first > 0.0 else 0.0))


def _check_finite(values: Array | float) -> None:
    if not np.isfinite(values).all():
        raise SolveError(
            "a product with the Hessian is not finite",
            remedy="a method without Hessian, or smaller time steps",
        )


def _shell(comm: PETSc.Comm, sizes: tuple[int, int], context: object) -> PETSc.Mat:
    mat = PETSc.Mat().createPython((sizes, sizes), context, comm=comm)
    symmetric: Any = PETSc.Mat.Option.SYMMETRIC
    mat.setOption(symmetric, True)
    mat.setUp()
    mat.assemble()
    return mat


def _extend(part: PETSc.Vec, indices: PETSc.IS, like: PETSc.Vec) -> PETSc.Vec:
    """Return a vector like another that is ``part`` at the indices and 0 elsewhere."""
    whole: PETSc.Vec = like.duplicate()
    whole.zeroEntries()
    # A sub-vector may be a copy: only restoring it writes back.
    view = whole.getSubVector(indices)
    part.copy(view)
    whole.restoreSubVector(indices, view)
    return whole


def _restrict(whole: PETSc.Vec, indices: PETSc.IS, part: PETSc.Vec) -> None:
    """Copy the entries at the indices."""
    view = whole.getSubVector(indices)
    view.copy(part)
    whole.restoreSubVector(indices, view)
