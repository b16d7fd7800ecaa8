"""The parts that events are made of, with their derivatives, for callbacks of either style."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from petsc4py import PETSc
from scipy import sparse

from daeosens.petsc.vectors import Array, read
from daeosens.problem.event_kinds.state_names import Quantity, System
from daeosens.problem.matrices import Products
from daeosens.problem.problem import AUTONOMOUS, INDEPENDENT

Keywords = dict[str, Any]
"""Keyword arguments of ``Event``."""


def surface(system: System, index: int, level: Quantity) -> Keywords:
    """Return the surface where the unknown number ``index`` is at a level: u_i - c(p) = 0.

    Returns
    -------
    dict
        ``when`` and its derivatives.
    """
    row_p = np.zeros(len(system.parameters))
    if level.index is not None:
        # u_i - scale p_k
        row_p[level.index] = -level.scale

    def gradient_p(_t: float, _u: Any, _p: Any) -> Array:
        return row_p

    by_p = INDEPENDENT if level.index is None else gradient_p
    if system.style == "petsc":
        return {
            "when": lambda _t, u, p: entry(u, index) - level(p),
            "when_u": lambda _t, _u, _p, out: set_unit(out, index),
            "when_p": by_p,
            "when_t": AUTONOMOUS,
            "when_hessian": _petsc_nothing(system),
        }
    row = np.zeros(system.size)
    row[index] = 1.0
    return {
        "when": lambda _t, u, p: u[index] - level(p),
        "when_u": lambda _t, _u, _p: row,
        "when_p": by_p,
        "when_t": AUTONOMOUS,
        "when_hessian": lambda *_point: (np.zeros(system.size), np.zeros(len(row_p))),
    }


def affine(
    system: System, factors: Mapping[int, Quantity], summands: Mapping[int, Quantity]
) -> Keywords:
    """Return the reset u_i -> a_i(p) u_i + b_i(p) of the unknowns whose numbers are given.

    Returns
    -------
    dict
        ``reset`` and its derivatives; empty if nothing changes.
    """
    if not factors and not summands:
        return {}
    if system.style == "petsc":
        return _petsc_affine(system, factors, summands)
    n, m = system.size, len(system.parameters)
    factor, factor_p = _coefficients(n, m, factors, 1.0)
    summand, summand_p = _coefficients(n, m, summands, 0.0)

    def reset(_t: float, u: Array, p: Any) -> Any:
        return (factor + factor_p @ p) * u + (summand + summand_p @ p)

    def reset_u(_t: float, _u: Array, p: Any) -> Any:
        return sparse.diags_array(factor + factor_p @ p)

    def reset_p(_t: float, u: Array, _p: Any) -> Any:
        return u[:, None] * factor_p + summand_p

    def hessian(
        _t: float, _u: Array, _p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        # u_i+ = a_i(p) u_i + b_i(p) with a, b affine in p: only a_ip is left in second
        # derivatives
        return w * (factor_p @ dp), (w * du) @ factor_p

    return {
        "reset": reset,
        "reset_u": reset_u,
        "reset_p": reset_p,
        "reset_t": AUTONOMOUS,
        "reset_hessian": hessian,
    }


def _coefficients(
    n: int, m: int, quantities: Mapping[int, Quantity], otherwise: float
) -> tuple[Array, Array]:
    """Return a [n] and A [n, m] such that a + A p are the quantities."""
    constant, by_p = np.full(n, otherwise), np.zeros((n, m))
    for index, quantity in quantities.items():
        constant[index] = quantity.scale if quantity.index is None else 0.0
        if quantity.index is not None:
            by_p[index, quantity.index] = quantity.scale
    return constant, by_p


def _petsc_affine(
    system: System, factors: Mapping[int, Quantity], summands: Mapping[int, Quantity]
) -> Keywords:
    touched = factors.keys() | summands.keys()

    def reset(_t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        u.copy(out)
        values: Any = out.getArray()
        for index, k in owned(u, touched):
            if index in factors:
                values[k] *= factors[index](p)
            if index in summands:
                values[k] += summands[index](p)

    def scale(_t: float, _u: PETSc.Vec, p: Any, v: PETSc.Vec, out: PETSc.Vec) -> None:
        v.copy(out)
        values: Any = out.getArray()
        for index, k in owned(v, factors):
            values[k] *= factors[index](p)

    def by_p(_t: float, u: PETSc.Vec, _p: Any, out: PETSc.Mat) -> None:
        out.zeroEntries()
        values: Any = out.getDenseArray()
        for index, k in owned(u, touched):
            for quantity, weight in ((factors.get(index), read(u)[k]), (summands.get(index), 1.0)):
                if quantity is not None and quantity.index is not None:
                    values[k, quantity.index] += weight * quantity.scale
        out.assemble()

    def hessian(
        _t: float, _u: PETSc.Vec, _p: Any, w: PETSc.Vec, du: PETSc.Vec, dp: Any, out: PETSc.Vec
    ) -> Array:
        out.zeroEntries()
        values: Any = out.getArray()
        products = np.zeros(len(system.parameters))
        for index, k in owned(w, factors):
            factor = factors[index]
            if factor.index is not None:
                # w_i a_ip dp in the row of u_i, w_i a_ip du_i in that of p
                values[k] = factor.scale * read(w)[k] * dp[factor.index]
                products[factor.index] += factor.scale * read(w)[k] * read(du)[k]
        return w.comm.tompi4py().allreduce(products)

    def zero(*arguments: Any) -> None:
        arguments[-1].zeroEntries()

    return {
        "reset": reset,
        "reset_u": Products(scale, scale),
        "reset_p": Products(zero, zero) if system.field_parameter else by_p,
        "reset_t": AUTONOMOUS,
        "reset_hessian": _petsc_nothing(system) if system.field_parameter else hessian,
    }


def _petsc_nothing(system: System) -> Callable[..., Any]:
    """Return second derivatives that are zero."""

    def of_numbers(*arguments: Any) -> Array:
        arguments[-1].zeroEntries()
        return np.zeros(len(system.parameters))

    def of_field(*arguments: Any) -> None:
        for out in arguments[-2:]:
            out.zeroEntries()

    return of_field if system.field_parameter else of_numbers


# ---- entries of distributed vectors --------------------------------------------------------------


def owned(vec: PETSc.Vec, indices: Any) -> list[tuple[int, int]]:
    """Return those global indices that this rank owns, with their local ones."""
    start, end = vec.getOwnershipRange()
    return [(index, index - start) for index in indices if start <= index < end]


def entry(vec: PETSc.Vec, index: int) -> float:
    """Return one entry, on every rank.  Collective on ``vec.comm``."""
    value = sum(float(read(vec)[k]) for _, k in owned(vec, [index]))
    return value if vec.comm.size == 1 else vec.comm.tompi4py().allreduce(value)


def set_unit(vec: PETSc.Vec, index: int) -> None:
    """Overwrite a vector with the unit vector of an index."""
    vec.zeroEntries()
    values: Any = vec.getArray()
    for _, k in owned(vec, [index]):
        values[k] = 1.0
