"""Gauss-Newton for J = |r|^2 / 2 by TAO's BRGN: r's Jacobian, and BRGN's regularisations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, OptionError, SolveError
from daeosens.functional.functional import (
    Functional,
    HasResidual,
    HasResidualJacobian,
    normal_matrix,
)
from daeosens.optimize.tao.run import TaoRun, tune
from daeosens.petsc.options import Options
from daeosens.petsc.vectors import Array, dot, norm, read

TYPE, WEIGHT = "tao_brgn_regularization_type", "tao_brgn_regularizer_weight"
SMOOTHING = "tao_brgn_l1_smooth_epsilon"
SUBSOLVER = "tao_brgn_subsolver_"
ALGORITHMS = ("bnls", "bntr", "bntl")

DEFAULTS: Options = {
    f"{SUBSOLVER}tao_bnk_init_type": "direction",
    f"{SUBSOLVER}tao_bnk_as_tol": 0.0,
    # PETSc 3.26: with "lm" a unit step, which goes uphill and does not survive a failed solve
    f"{SUBSOLVER}tao_ls_type": "more-thuente",
}
PLAIN: Options = {TYPE: "l2pure", WEIGHT: 0.0}
"""BRGN as J alone."""


class GaussNewton:
    """R^T R by the Jacobian R [q, n] of the residual, computed once for each x."""

    def __init__(self, functional: HasResidualJacobian) -> None:
        self.functional = functional
        self.x: PETSc.Vec | None = None
        self.jacobian: PETSc.Mat | None = None
        self.count = 0

    def at(self, x: PETSc.Vec) -> PETSc.Mat:
        """Return R at x [n]."""
        # One Jacobian serves all products of the Krylov solver at this x; it costs several
        # sweeps.
        if self.jacobian is None or self.x is None or not self.x.equal(x):
            self.jacobian = self.functional.residual_jacobian(x)
            self.x = x.copy()
            self.count += 1
        return self.jacobian

    def note(self) -> str:
        """Say which sweep gave the Jacobians, and how often."""
        sweep = getattr(self.functional, "residual_sweep", "an unnamed")
        return f"{self.count} residual Jacobian{'s' * (self.count != 1)} by the {sweep} sweep"

    def product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return R^T R dx in a new vector."""
        jacobian = self.at(x)
        image: PETSc.Vec = jacobian.createVecLeft()
        result: PETSc.Vec = dx.duplicate()
        jacobian.mult(dx, image)
        jacobian.multTranspose(image, result)
        return result

    def whole(self, x: PETSc.Vec) -> Array:
        """Return R^T R [n, n] on every rank."""
        return normal_matrix(self.at(x))


@dataclass(frozen=True)
class BRGNRegularized:
    """J plus what an option of BRGN adds: weight |x|^2 / 2, or a smoothed weight |x|_1.

    Parameters
    ----------
    functional : Functional
        J.
    kind : str
        "l2pure", "l1dict", or "lm", which adds nothing.
    weight, smoothing : float
        Factor of the term; its sum_i (sqrt(x_i^2 + smoothing^2) - smoothing) for "l1dict".
    """

    functional: Functional
    kind: str
    weight: float
    smoothing: float

    @property
    def comm(self) -> PETSc.Comm:
        """That of J."""
        return self.functional.comm

    def start(self) -> PETSc.Vec:
        """Return that of J."""
        return self.functional.start()

    def bounds(self) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return those of J."""
        return self.functional.bounds()

    def value(self, x: PETSc.Vec) -> float:
        """Return the sum."""
        return self.functional.value(x) + self._term(x)

    def gradient(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return that of the sum."""
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x: PETSc.Vec) -> tuple[float, PETSc.Vec]:
        """Return both of the sum."""
        value, gradient = self.functional.value_and_gradient(x)
        if self.kind == "l2pure":
            gradient.axpy(self.weight, x)
        elif self.kind == "l1dict":
            point = read(x)
            # The derivative of sqrt(x^2 + e^2) - e, which is |x| but for a rounded kink of width
            # e.
            slope = point / np.sqrt(point**2 + self.smoothing**2)
            gradient.getArray()[...] += self.weight * slope
        return value + self._term(x), gradient

    def _term(self, x: PETSc.Vec) -> float:
        if self.kind == "l2pure":
            return 0.5 * self.weight * dot(x, x)
        if self.kind == "lm":
            return 0.0
        smooth = np.sqrt(read(x) ** 2 + self.smoothing**2) - self.smoothing
        return self.weight * x.comm.tompi4py().allreduce(float(np.sum(smooth)))


def chosen_algorithm() -> str:
    """Return BRGN's subsolver, which an option may have changed.

    Raises
    ------
    OptionError
        One without Hessian.
    """
    # Asked before TAO exists, because callbacks and the matrix depend on it.
    name = PETSc.Options().getString(f"{SUBSOLVER}tao_type", "bnls")
    if name not in ALGORITHMS:
        raise OptionError(
            f'{SUBSOLVER}tao_type = "{name}" has no use for a Jacobian',
            expected=", ".join(ALGORITHMS),
        )
    return name


def regularized(functional: Functional) -> Functional:
    """Return the functional with the term that BRGN's options ask for.

    Raises
    ------
    OptionError
        PETSc 3.26: "l2prox" begins with the origin as its centre and keeps a gradient of the centre
        before; "user" needs callbacks.
    """
    options = PETSc.Options()
    if not options.hasName(TYPE):
        return functional
    kind = options.getString(TYPE, "")
    if kind not in ("l2pure", "l1dict", "lm"):
        raise OptionError(
            f'{TYPE} = "{kind}" is not supported',
            expected='"lm", "l2pure" or "l1dict"',
            remedy="a Prior in the objective, which is also what the result is then judged by",
        )
    # PETSc's own defaults, so that J is what BRGN minimises.
    return BRGNRegularized(
        functional, kind, options.getReal(WEIGHT, 1e-4), options.getReal(SMOOTHING, 1e-6)
    )


def plain(functional: object) -> HasResidualJacobian:
    """Return J without what BRGN adds."""
    inner: Any = functional.functional if isinstance(functional, BRGNRegularized) else functional
    return inner


def set_preconditioner(tao: PETSc.TAO, inverse: object) -> None:
    """Give a preconditioner to the Krylov solver of a regularised BRGN, whose matrix is its own.

    Raises
    ------
    InputError
        One that needs to know the matrix.
    """
    if inverse not in ("none", "lmvm", "dense"):
        raise InputError(
            "preconditioner: not with a regularisation of BRGN",
            expected='"auto", "none" or "lmvm"',
        )
    tao.getKSP().getPC().setType("lmvm" if inverse == "lmvm" else "none")


def residual_at_start(functional: HasResidual, x: PETSc.Vec) -> PETSc.Vec:
    """Return r(x) [q], or the error of a start without solution.

    Raises
    ------
    InputError
        Something else than a vector on the communicator of x.
    SolveError
        No solution there.
    """
    try:
        residual: object = functional.residual(x)
    except SolveError as error:
        raise SolveError(
            f"the functional cannot be evaluated at the start: {error}",
            remedy="another x0, or smaller steps",
        ) from error
    if not isinstance(residual, PETSc.Vec) or residual.comm.size != x.comm.size:
        raise InputError(f"residual(x) returned {residual!r}", expected="a Vec [q], distributed")
    if not np.isfinite(norm(residual)):
        raise SolveError("the residual at the start is not finite", remedy="another x0")
    return residual


def give_residual(tao: PETSc.TAO, descent: TaoRun, x: PETSc.Vec, curvature: GaussNewton) -> None:
    """Give BRGN the residual and Jacobian that its own regularised Hessian needs."""
    functional = plain(descent.evaluations.functional)
    start = residual_at_start(functional, x)
    sizes: Any = (start.getSizes(), x.getSizes())
    jacobian = PETSc.Mat().createDense(sizes, comm=x.comm)
    jacobian.setUp()
    jacobian.assemble()

    def residual(_tao: PETSc.TAO, point: PETSc.Vec, values: PETSc.Vec) -> None:
        functional.residual(point).copy(values)

    def derivative(sub: PETSc.TAO, point: PETSc.Vec, values: PETSc.Mat, _same: PETSc.Mat) -> None:
        # BRGN keeps one matrix for the whole run, so the numbers are copied into it.
        values.getDenseArray()[...] = curvature.at(point).getDenseArray()
        values.assemble()
        # Before the first iterate there is no gradient norm to choose a forcing by.
        if descent.iterates:
            tune(sub, descent)

    tao.setResidual(residual, start)
    tao.setJacobianResidual(derivative, jacobian)


def give_nothing(tao: PETSc.TAO, matrix: PETSc.Mat, x: PETSc.Vec) -> None:
    """Satisfy BRGN's set-up, where its subsolver has callbacks and a Hessian of ours."""

    # BRGN refuses to be set up without both, but never calls them where the subsolver has its
    # own.
    def never(*_arguments: object) -> None:
        raise AssertionError

    tao.setResidual(never, x.duplicate())
    tao.setJacobianResidual(never, matrix)
