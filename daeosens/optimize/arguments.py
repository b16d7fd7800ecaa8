"""The arguments of ``minimize``, checked in one go before the first evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError, is_one_of, is_real, is_whole, nearest
from daeosens.functional.functional import Functional, HasTypical
from daeosens.optimize.methods import METHODS, NEWTON, PRODUCTS, WITHDRAWN, listed
from daeosens.optimize.start import first_bad, vector_like
from daeosens.optimize.stopping import Stopping
from daeosens.petsc.vectors import MOST, as_float, read


def argument_complaints(
    method: object, tolerances: Mapping[str, object], max_iterations: object, progress: object
) -> list[str]:
    """Say what is wrong with the arguments that every method has."""
    complaints: list[str] = []
    if isinstance(method, str) and method in WITHDRAWN:
        complaints.append(f'method "{method}" is not offered: {WITHDRAWN[method]}')
    elif not is_one_of(method, *METHODS):
        near = nearest(str(method), METHODS) or '"lmvm", or "blmvm" with bounds'
        complaints.append(f"unknown method {method!r}; expected: {listed(METHODS)}; try: {near}")
    for name, value in tolerances.items():
        if not (is_real(value) and 0.0 <= as_float(value) < math.inf):
            complaints.append(f"{name} = {value!r}; expected: a finite number >= 0")
    if not (is_whole(max_iterations) and 0 <= max_iterations <= MOST):
        complaints.append(f"max_iterations = {max_iterations!r}; expected: an integer >= 0")
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        complaints.append(f"progress = {progress!r}; expected: None, True, False or a callable")
    return complaints


def is_zero(value: object) -> bool:
    """Whether a tolerance is the number 0."""
    return is_real(value) and value == 0.0


def newton_complaints(
    method: object, hessian: object, preconditioner: object, predicted: object
) -> list[str]:
    """Say what is wrong with those of the Newton methods, or not used by this one."""
    complaints: list[str] = []
    if not is_one_of(hessian, *PRODUCTS):
        complaints.append(f"hessian = {hessian!r}; expected: {listed(PRODUCTS)}")
    if not is_one_of(method, *METHODS) or complaints:
        return complaints
    solvers = (*NEWTON, "brgn")
    for name, is_default, users in (
        ("hessian", hessian == "exact", NEWTON),
        ("preconditioner", isinstance(preconditioner, str) and preconditioner == "auto", solvers),
        ("predicted_decrease_tolerance", not is_real(predicted) or is_zero(predicted), solvers),
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
        if not (is_real(of_value) and 0.0 <= as_float(of_value) < math.inf):
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
