"""Products with second derivatives on PETSc vectors: the callback's own, or automatic.

The Hessian of w^T f along a direction d is the derivative of the products f_x^T w along d, for all
arguments x at once.  All second-order sweeps see is a ``VecFunction`` that fills one vector for
each argument.  The time is kept apart: one more function gives the derivatives of f_t^T w.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import UnsupportedError, keyword
from daeosens.petsc.vectors import Array, read, scatter, write
from daeosens.problem.automatic_hessian import AutomaticHessian, in_time
from daeosens.problem.c_callback import Compiled
from daeosens.problem.callback_guard import check_output, check_tuple, guarded
from daeosens.problem.differences import DIFFERENCES, is_by_differences
from daeosens.problem.layout import CallbackLayout
from daeosens.problem.problem import AUTONOMOUS, TimeHessian, VecFunction


def array_products(
    frame: CallbackLayout,
    function: Callable[..., Any],
    first: Mapping[int, Any],
    supplied: Callable[..., Any] | None,
    name: str,
    called: str,
) -> Callable[..., tuple[Array, ...]]:
    """Return the products of the Hessian of w^T f with a direction, f of NumPy style, on arrays.

    Parameters
    ----------
    frame : CallbackLayout
        Style and layouts.
    function : callable
        NumPy style f.
    first : mapping of int to callable, Products, str or None
        Positions of the arguments x, in order and the parameters last, with the first derivatives.
    supplied : callable or None
        The user's own ``(*point, w, *directions) -> (array, ...)``.
    name, called : str
        The names of f and of ``supplied`` in messages.

    Returns
    -------
    callable
        ``(*point, w, *directions) -> (array, ...)``, one for each argument x; it refuses where
        second derivatives are neither given nor to be had.
    """
    positions = tuple(first)
    sizes, parts = _results(frame, len(positions))
    # refused at the call and not here: gradients need no second derivatives
    if supplied is None and not _automatic(frame, function, first):
        return _refusing(called, first)
    if supplied is not None:
        call = guarded(supplied, called, frame.state.comm)
    else:
        product = AutomaticHessian(
            guarded(function, name, frame.state.comm),
            _python(first),
            name,
            f"{keyword(called)}=callback",
        )

        def call(*arguments: Any) -> tuple[Array, ...]:
            point, w, directions = _split(arguments, len(positions))
            result = product(point, w, dict(zip(positions, directions, strict=True)))
            return tuple(result[position] for position in positions)

    def checked(*arguments: Any) -> tuple[Array, ...]:
        # the mass has no time among its arguments; messages name one
        t = arguments[0] if isinstance(arguments[0], float) else 0.0
        results = check_tuple(call(*arguments), called, *parts)
        # a list: a generator takes longer than the checks
        return tuple(
            [
                check_output(value, called, (size,), t) if size else np.empty(0)
                for value, size in zip(results, sizes, strict=True)
            ]
        )

    return checked


def lower_hessian(
    frame: CallbackLayout,
    function: Callable[..., Any],
    first: Mapping[int, Any],
    supplied: Callable[..., Any] | None,
    name: str,
    called: str,
) -> VecFunction:
    """Lower the products of the Hessian of w^T f, f a callback of either style, with a direction.

    Parameters as for ``array_products``; the user's own products in PETSc style see ``ODE``.

    Returns
    -------
    callable
        ``(*point, w, *directions, *outs)``: fills one vector for each argument x.
    """
    if supplied is not None and frame.style == "petsc":
        return _petsc_hessian(guarded(supplied, called, frame.state.comm), called, frame)
    if isinstance(supplied, Compiled) and frame.parameter.size and called != "mass_hessian":
        count, compiled = len(first), supplied

        def fill(t: float, *arrays: Any) -> None:
            compiled.fill_all(called, t, arrays[:-count], arrays[-count:])

        return fill
    return on_vectors(array_products(frame, function, first, supplied, name, called), len(first))


def on_vectors(products: Callable[..., tuple[Array, ...]], count: int) -> VecFunction:
    """Return a function of arrays that returns ``count`` of them as one that fills vectors."""

    def fill(*arguments: Any) -> None:
        inputs, outs = arguments[:-count], arguments[-count:]
        results = products(*[read(a) if isinstance(a, PETSc.Vec) else a for a in inputs])
        for value, out in zip(results, outs, strict=True):
            if value.size:
                write(out, value)

    return fill


def lower_time_hessian(
    frame: CallbackLayout,
    function: Callable[..., Any],
    first: Mapping[int, Any],
    supplied: Callable[..., Any] | None,
    name: str,
    called: str,
) -> TimeHessian | None:
    """Lower the derivatives of f_t^T w in all arguments: the column of the time in the Hessian.

    Parameters
    ----------
    frame, function, name, called
        As for ``lower_hessian``.
    first : mapping of int to callable, Products, str or None
        As for ``lower_hessian``, with the time as argument 0.
    supplied : callable or None
        The user's own ``(*point, w) -> (array, ..., number)``; PETSc style see ``ODE``.

    Returns
    -------
    callable or None
        ``(*point, w, *outs) -> float``: fills one vector for each argument but the time, and
        returns the second derivative in time; None if f does not depend on the time.
    """
    user = None if supplied is None else guarded(supplied, called, frame.state.comm)
    # f_t is zero, and so is the whole column
    if first[0] == AUTONOMOUS:
        return None
    positions = tuple(first)[1:]
    sizes, parts = _results(frame, len(positions))
    if user is not None:
        call = user
        if frame.style == "petsc":
            return _petsc_time_hessian(call, called, frame)
    elif not _automatic(frame, function, first):
        return _refusing(called, first, f', or {keyword(name)}_t="{AUTONOMOUS}"')
    else:
        product = in_time(
            guarded(function, name, frame.state.comm),
            _python(first),
            name,
            f"{keyword(called)}=callback",
        )

        def call(*arguments: Any) -> tuple[Any, ...]:
            t, *point, w = arguments
            # along dt = 1 alone: by symmetry the derivative of f_x^T w in t is that of f_t^T w in
            # x
            result = product((t, *point), w, {0: np.ones(1)})
            return (*(result[position] for position in positions), result[0][0])

    def fill(*arguments: Any) -> float:
        inputs, outs = arguments[: -len(positions)], arguments[-len(positions) :]
        values: Any = call(*[read(a) if isinstance(a, PETSc.Vec) else a for a in inputs])
        *results, by_t = check_tuple(values, called, *parts, "number")
        for value, size, out in zip(results, sizes, outs, strict=True):
            if size:
                write(out, check_output(value, called, (size,), inputs[0]))
        return float(check_output(by_t, called, (), inputs[0]))

    return fill


def lower_mass_hessian(
    frame: CallbackLayout,
    mass: Callable[..., Any],
    mass_p: Callable[..., Any] | None,
    supplied: Callable[..., Any] | None,
) -> VecFunction:
    """Lower the products of the Hessian of w^T M(p) v, at the point (v, p), along (dv, dp)."""

    def product(v: Any, p: Any) -> Any:
        return mass(p) @ v

    def by_v(_v: Any, p: Any) -> Any:
        return mass(p)

    def by_p(v: Any, p: Any) -> Any:
        assert mass_p is not None
        return mass_p(p, v)

    first = {0: by_v, 1: None if mass_p is None else by_p}
    return lower_hessian(frame, product, first, supplied, "mass", "mass_hessian")


def residual_hessian(rhs_hessian: VecFunction, mass_hessian: VecFunction | None) -> VecFunction:
    """Return the Hessian products of w^T (M u' - f), given those of w^T f and w^T M(p) v."""

    def fill(
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        p: Any,
        w: PETSc.Vec,
        du: PETSc.Vec,
        dudot: PETSc.Vec,
        dp: Any,
        out_u: PETSc.Vec,
        out_udot: PETSc.Vec,
        out_p: PETSc.Vec,
    ) -> None:
        rhs_hessian(t, u, p, w, du, dp, out_u, out_p)
        # -f in F
        out_u.scale(-1.0)
        if mass_hessian is None:
            out_p.scale(-1.0)
            out_udot.zeroEntries()
            return
        # F = M(p) u' - f: w^T F_p takes from the mass with a plus, from f with a minus
        by_p = out_p.copy()
        mass_hessian(udot, p, w, dudot, dp, out_udot, out_p)
        out_p.axpy(-1.0, by_p)
        by_p.destroy()

    return fill


def residual_time_hessian(rhs_time_hessian: TimeHessian | None) -> TimeHessian | None:
    """Return the derivatives of w^T F_t, F = M u' - f, given those of w^T f_t."""
    if rhs_time_hessian is None:
        return None

    def fill(
        t: float,
        u: PETSc.Vec,
        _udot: PETSc.Vec,
        p: Any,
        w: PETSc.Vec,
        out_u: PETSc.Vec,
        out_udot: PETSc.Vec,
        out_p: PETSc.Vec,
    ) -> float:
        by_t = rhs_time_hessian(t, u, p, w, out_u, out_p)
        out_u.scale(-1.0)
        out_p.scale(-1.0)
        # F_udot = M does not depend on the time
        out_udot.zeroEntries()
        return -by_t

    return fill


def _results(frame: CallbackLayout, count: int) -> tuple[list[int], list[str]]:
    """Return sizes and descriptions of derivatives in ``count`` arguments, the parameters last."""
    states = count - 1
    sizes = [frame.state.size] * states + [frame.parameter.size]
    return sizes, ["array [n]"] * states + ["array [m]"]


def _python(first: Mapping[int, Any]) -> dict[int, Any]:
    """Return the first derivatives that can be differentiated; None for the others."""
    return {
        k: None if isinstance(derivative, (str, Compiled)) else derivative
        for k, derivative in first.items()
    }


def _automatic(
    frame: CallbackLayout, function: Callable[..., Any], first: Mapping[int, Any]
) -> bool:
    """Whether second derivatives can be found: from first ones, or from the function."""
    return (
        frame.style == "numpy"
        # differences of differences would be noise
        and not any(is_by_differences(derivative) for derivative in first.values())
        and (not isinstance(function, Compiled) or None not in _python(first).values())
    )


def _split(arguments: tuple[Any, ...], count: int) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
    return arguments[: -count - 1], arguments[-count - 1], arguments[-count:]


def _petsc_hessian(call: Callable[..., Any], called: str, frame: CallbackLayout) -> VecFunction:
    if frame.field_parameter:
        return call
    m = frame.parameter.size

    def fill(*arguments: Any) -> None:
        *rest, out = arguments
        values = call(*rest)
        if m:
            scatter(check_output(values, called, (m,), arguments[0]), out)

    return fill


def _petsc_time_hessian(
    call: Callable[..., Any], called: str, frame: CallbackLayout
) -> TimeHessian:
    if frame.field_parameter:
        return call
    m = frame.parameter.size

    def fill(*arguments: Any) -> float:
        *rest, out = arguments
        by_p, by_t = check_tuple(call(*rest), called, "array [m]", "number")
        if m:
            scatter(check_output(by_p, called, (m,), arguments[0]), out)
        return float(check_output(by_t, called, (), arguments[0]))

    return fill


def _refusing(called: str, first: Mapping[int, Any], alternative: str = "") -> Callable[..., Any]:
    differences = any(is_by_differences(derivative) for derivative in first.values())
    of = f'callbacks with derivatives by "{DIFFERENCES}"'
    of = of if differences else "PETSc-style and compiled callbacks"

    def refuse(*_arguments: Any) -> Any:
        raise UnsupportedError(
            f"'{called}' is needed and was not supplied",
            expected=f"{keyword(called)}=callback{alternative}: second derivatives of {of} cannot "
            "be found automatically",
            remedy=f"{keyword(called)}=..., or a method that needs gradients only; for least "
            'squares and fits hessian="gauss_newton"',
        )

    return refuse
