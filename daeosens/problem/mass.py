"""Mass matrices M of M u' = f, constant or of the parameters, and what they add to residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from petsc4py import PETSc

from daeosens.errors import InputError, UnsupportedError
from daeosens.petsc.c_function import admit_native
from daeosens.petsc.vectors import finite_array
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.callback_guard import guarded
from daeosens.problem.layout import CallbackLayout
from daeosens.problem.matrices import (
    Derivative,
    constant,
    dense,
    from_numpy,
    from_petsc,
    is_sparse,
    refused,
)


def check_of_mass(mass: object, **callbacks: object) -> None:
    """Refuse derivatives of the mass that are none, or that nothing would read.

    Raises
    ------
    InputError
        Names the derivative.
    """
    for name, callback in callbacks.items():
        if callback is None:
            continue
        if not callable(callback):
            raise InputError(f"{name} = {callback!r}", expected="a callback")
        if not callable(mass) or isinstance(mass, PETSc.Mat):
            raise InputError(
                f"{name} is given, and the mass does not depend on the parameters",
                expected="mass=callback",
                remedy=f"no {name}",
            )


def mass_matrix(mass: Any, state: PETSc.Vec) -> PETSc.Mat:
    """Turn a constant mass matrix (array, SciPy sparse or Mat [n, n]) into a Mat."""
    n = state.size
    if isinstance(mass, PETSc.Mat):
        if tuple(mass.getSize()) != (n, n):
            raise InputError(f"mass has shape {tuple(mass.getSize())}", expected=f"({n}, {n})")
        return mass
    if is_sparse(mass):
        if mass.shape != (n, n):
            raise InputError(f"mass has shape {mass.shape}", expected=f"({n}, {n})")
        finite_array(mass.data, "the data of the sparse mass")
    else:
        mass = finite_array(mass, "mass", (n, n))
    # a matrix of numbers is a derivative that does not depend on the point: one way for both
    derivative = from_numpy(lambda _t, _u: mass, "mass", state, state)
    matrix = derivative.create(0.0, state)
    derivative.fill(0.0, state, matrix)
    return matrix


def mass_derivative(
    mass: Any, frame: CallbackLayout
) -> tuple[Derivative | None, Callable[..., Any] | None]:
    """Return F_udot of M u' - f, and the callback if M depends on the parameters."""
    if mass is None:
        return None, None
    if admit_native(mass) is not None:
        raise InputError("mass is a C function", expected="a matrix, or a Python callback mass(p)")
    if not callable(mass) or isinstance(mass, PETSc.Mat):
        return constant(mass_matrix(mass, frame.state)), None
    if frame.style == "numpy":
        # F = M(p) u' - f(t, u, p), so that F_udot is M(p), wherever the state is
        inner = from_numpy(lambda _t, p: mass(p), "mass", frame.state, frame.state)
        return (
            Derivative(
                lambda t, _u, _udot, p: inner.create(t, p),
                lambda t, _u, _udot, p, out: inner.fill(t, p, out),
            ),
            mass,
        )
    call = guarded(mass, "mass", frame.state.comm)

    def fill(_t: float, _u: PETSc.Vec, _udot: PETSc.Vec, p: Any, out: PETSc.Mat) -> None:
        call(p, out)
        if not out.isAssembled():
            out.assemble()

    return Derivative(lambda *_point: frame.template(), fill), mass


def mass_p_derivative(
    mass: Callable[..., Any], mass_p: Callable[..., Any] | None, frame: CallbackLayout
) -> Derivative:
    """Return d(M(p) v)/dp as a derivative at the point (t, p, v)."""
    if frame.style == "numpy":
        if mass_p is None:
            # F_p has d(M(p) u')/dp besides -f_p: a product with a rate, never a tensor [n, n, m]
            step = AutomaticJacobian(lambda p, v: mass(p) @ v, 0, "mass", "mass_p=callback")
            return from_numpy(lambda _t, p, v: step(p, v), "mass_p", frame.state, frame.parameter)
        return from_numpy(lambda _t, p, v: mass_p(p, v), "mass_p", frame.state, frame.parameter)
    if mass_p is None:
        return refused("mass_p", "mass_p=callback(p, v, out)")
    call = guarded(mass_p, "mass_p", frame.state.comm)
    return from_petsc(
        lambda _t, p, v, out: call(p, v, out),
        "mass_p",
        frame.state,
        frame.parameter,
        lambda: dense(frame.state, frame.parameter),
    )


def with_mass_p(residual_p: Derivative, mass_p: Derivative, frame: CallbackLayout) -> Derivative:
    """Return -f_p + d(M(p) udot)/dp."""
    if not residual_p.assembled:
        raise UnsupportedError(
            "jacobian_p is given by products while the mass depends on the parameters",
            expected="a jacobian_p callback that returns or fills a matrix",
            remedy="DAE(residual, ...), whose jacobian_p covers both parts",
        )
    work: list[PETSc.Mat] = []

    def fill(t: float, u: PETSc.Vec, udot: PETSc.Vec, p: Any, out: PETSc.Mat) -> None:
        residual_p.fill(t, u, udot, p, out)
        # made at the first use: M without derivatives in p never needs it
        if not work:
            work.append(dense(frame.state, frame.parameter))
        mass_p.fill(t, p, udot, work[0])
        out.axpy(1.0, work[0])

    return Derivative(lambda *_point: dense(frame.state, frame.parameter), fill)
