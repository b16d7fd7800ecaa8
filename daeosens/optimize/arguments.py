"""The arguments of ``minimize``, checked in one go before the first evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError, nearest
from daeosens.functional.functional import Functional, HasTypical
from daeosens.optimize.methods import METHODS, NEWTON, PRODUCTS, WITHDRAWN, listed
from daeosens.optimize.start import first_bad, vector_like
from daeosens.optimize.stopping import Stopping
from daeosens.petsc.vectors import read


def argument_complaints(
    method: object, tolerances: Mapping[str, object], max_iterations: object, progress: object
) -> list[str]:
    """Say what is wrong with the arguments that every method has."""
    complaints: list[str] = []
    if str(method) in WITHDRAWN:
        complaints.append(f'method "{method}" is not offered: {WITHDRAWN[str(method)]}')
    elif method not in METHODS:
        near = nearest(str(method), METHODS) or '"lmvm", or "blmvm" with bounds'
        complaints.append(f"unknown method {method!r}; expected: {listed(METHODS)}; try: {near}")
    for name, value in tolerances.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float, np.number))
            or not (math.isfinite(value) and value >= 0.0)
        ):
            complaints.append(f"{name} = {value!r}; expected: a finite number >= 0")
    if (
        isinstance(max_iterations, bool)
        or not isinstance(max_iterations, (int, np.integer))
        or max_iterations < 0
    ):
        complaints.append(f"max_iterations = {max_iterations!r}; expected: an integer >= 0")
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        complaints.append(f"progress = {progress!r}; expected: None, True, False or a callable")
    return complaints


def newton_complaints(
    method: object, hessian: object, preconditioner: object, predicted: object
) -> list[str]:
    """Say what is wrong with those of the Newton methods, or not used by this one."""
    complaints: list[str] = []
    if hessian not in PRODUCTS:
        complaints.append(f"hessian = {hessian!r}; expected: {listed(PRODUCTS)}")
    if method not in METHODS:
        return complaints
    solvers = (*NEWTON, "brgn")
    for name, is_default, users in (
        ("hessian", hessian == "exact", NEWTON),
        ("preconditioner", isinstance(preconditioner, str) and preconditioner == "auto", solvers),
        ("predicted_decrease_tolerance", predicted == 0.0, solvers),
    ):
        if not is_default and method not in users:
            complaints.append(f'{name}: not used by method "{method}", but by {listed(users)}')
    return complaints


def scales_of(
    stopping: Stopping,
    functional: Functional,
    typical: tuple[PETSc.Vec | npt.ArrayLike, float] | None,
    x: PETSc.Vec,
    *,
    needed: bool,
) -> Stopping:
    """Return the rules with typical sizes of x and J."""
    typical_sizes: Any = typical
    if typical_sizes is None and isinstance(functional, HasTypical):
        typical_sizes = functional.typical()
    if typical_sizes is None:
        sizes, of_value, name = x.copy(), 0.0, "start (x has no other typical size)"
        sizes.abs()
    else:
        if not (
            isinstance(typical_sizes, tuple) and len(cast("tuple[Any, ...]", typical_sizes)) == 2
        ):
            raise InputError(f"typical = {typical_sizes!r}", expected="(sizes of x [n], size of J)")
        of_x, of_value = cast("tuple[Any, Any]", typical_sizes)
        sizes, name = vector_like(of_x, x, "typical x"), "typical x"
        number = isinstance(of_value, (int, float, np.number)) and not isinstance(of_value, bool)
        if not (number and math.isfinite(of_value) and of_value >= 0.0):
            raise InputError(f"typical J = {of_value!r}", expected="a finite number >= 0")
    if needed:
        values = read(sizes)
        bad = first_bad(x, ~((values > 0.0) & np.isfinite(values)), values)
        if bad is not None:
            raise InputError(
                f"{name} is {bad[1]:g} at index {bad[0]}",
                expected="positive numbers, which scaled_gradient_tolerance divides by",
                remedy="typical=(sizes of x, size of J)",
            )
    return replace(stopping, typical_x=sizes, typical_value=float(of_value))
