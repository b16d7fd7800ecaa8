"""The parts that events are made of, with their derivatives, for callbacks of either style."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from petsc4py import PETSc
from scipy import sparse

from daeosens.arrays import Array, read
from daeosens.cost import INDEPENDENT
from daeosens.event_kinds.system import Quantity, System
from daeosens.matrices import Products
from daeosens.problem import AUTONOMOUS

Keywords = dict[str, Any]
"""Keyword arguments of ``Event``."""


def surface(system: System, index: int, level: Quantity) -> Keywords:
    """Return the surface where the unknown of a number has a level: u_i = c.

    Returns
    -------
    dict
        ``when`` and its derivatives.
    """
    by_p = slope(system, level * -1.0)
    if system.style == "petsc":

        def distance(_t: float, u: PETSc.Vec, p: Any) -> float:
            return entry(u, index) - level(p)

        def unit(_t: float, _u: PETSc.Vec, _p: Any, out: PETSc.Vec) -> None:
            out.zeroEntries()
            set_entry(out, index, 1.0)

        return {"when": distance, "when_u": unit, "when_p": by_p, "when_t": AUTONOMOUS}
    row = np.zeros(system.size)
    row[index] = 1.0
    row.flags.writeable = False
    return {
        "when": lambda _t, u, p: u[index] - level(p),
        "when_u": lambda _t, _u, _p: row,
        "when_p": by_p,
        "when_t": AUTONOMOUS,
    }


def slope(system: System, quantity: Quantity) -> Any:
    """Return the derivative of a quantity in the parameters, as ``when_p``."""
    if quantity.index is None:
        return INDEPENDENT
    row = np.zeros(len(system.parameters))
    row[quantity.index] = quantity.scale
    row.flags.writeable = False
    return lambda _t, _u, _p: row


def changes(
    system: System, factors: Mapping[int, Quantity], summands: Mapping[int, Quantity]
) -> Keywords:
    """Return the reset that multiplies some unknowns and adds to some: u_i -> a_i u_i + b_i.

    Returns
    -------
    dict
        ``reset`` and its derivatives; nothing if there is nothing to change.
    """
    if not factors and not summands:
        return {}
    if system.style == "petsc":
        return _petsc_changes(system, factors, summands)
    n, m = system.size, len(system.parameters)
    factor, factor_p = _affine(n, m, factors, 1.0)
    summand, summand_p = _affine(n, m, summands, 0.0)

    def reset(_t: float, u: Array, p: Any) -> Any:
        return (factor + factor_p @ p) * u + (summand + summand_p @ p)

    def reset_u(_t: float, _u: Array, p: Any) -> Any:
        return sparse.diags_array(factor + factor_p @ p)

    def reset_p(_t: float, u: Array, _p: Any) -> Any:
        return u[:, None] * factor_p + summand_p

    return {"reset": reset, "reset_u": reset_u, "reset_p": reset_p, "reset_t": AUTONOMOUS}


def _affine(
    n: int, m: int, quantities: Mapping[int, Quantity], otherwise: float
) -> tuple[Array, Array]:
    """Return a [n] and A [n, m] with a + A p the quantities."""
    constant, by_p = np.full(n, otherwise), np.zeros((n, m))
    for index, quantity in quantities.items():
        constant[index] = quantity.scale if quantity.index is None else 0.0
        if quantity.index is not None:
            by_p[index, quantity.index] = quantity.scale
    return constant, by_p


def _petsc_changes(
    system: System, factors: Mapping[int, Quantity], summands: Mapping[int, Quantity]
) -> Keywords:
    def multiply(p: Any, out: PETSc.Vec) -> Array:
        values = own(out)
        for index, factor in factors.items():
            values[index] *= factor(p)
        return values


    def reset(_t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        ...
    return {}
