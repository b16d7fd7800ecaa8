"""A constraint that is a function of x or of named parameters: value, Jacobian, Hessian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError, SolveError
from daeosens.functional.functional import Functional
from daeosens.functional.parameters import Parameters
from daeosens.optimize.constrained.constraints import Constraint, unknown_parameter
from daeosens.petsc.vectors import Array, real_array
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.callback_guard import guarded

DIFFERENCE = 6e-6
"""Relative step of central differences of an exact first derivative."""


class ConstraintFunction:
    """A constraint that is a function of x or of named parameters, as a function of x."""

    def __init__(self, item: Constraint, functional: Functional, start: Array) -> None:
        self._name = item.name
        self._call = guarded(item.what, item.name, functional.comm)
        self._given_jacobian, self._given_hessian = (
            None if callback is None else guarded(callback, f"{item.name} {word}", functional.comm)
            for word, callback in (("jacobian", item.jacobian), ("hessian", item.hessian))
        )
        self._chain = None
        if item.parameters is not None:
            self._chain = chain(item, functional)
        # Differentiates through the chain of log scales as well: its values are complex where x
        # is.
        self._step = AutomaticJacobian(
            self._raw, 0, item.name, f'Constraint(jacobian=...) of "{item.name}"'
        )
        try:
            at_start = self._raw(start)
        except SolveError as error:
            raise InputError(f'constraint "{item.name}" at the start: {error}') from error
        try:
            values = np.asarray(at_start)
        except ValueError as error:  # rows of different lengths
            raise InputError(f'constraint "{item.name}" returned no array: {error}') from error
        if values.dtype.kind not in "biuf" or values.ndim > 1 or values.size == 0:
            raise InputError(
                f'constraint "{item.name}" returned {values.dtype} values of shape {values.shape}',
                expected="a real number, or an array [q] of them",
            )
        if not np.isfinite(values).all():
            raise InputError(
                f'constraint "{item.name}" is {values} at the start', expected="finite values"
            )
        self._shape = values.shape
        self.size = int(values.size)

    def _raw(self, x: npt.NDArray[Any]) -> Any:
        return self._call(x.copy() if self._chain is None else self._chain.values(x))

    def value(self, x: Array) -> Array:
        """Return the components [q]."""
        values = np.asarray(self._raw(x))
        if values.shape != self._shape or values.dtype.kind not in "biuf":
            raise InputError(
                f'constraint "{self._name}" returned {values.dtype} values of shape '
                f"{values.shape} at x = {x}",
                expected=f"real values of shape {self._shape}, as at the start",
            )
        return np.atleast_1d(values).astype(float)

    def jacobian(self, x: npt.NDArray[Any]) -> Array:
        """Return [q, k]."""
        if self._given_jacobian is None:
            return self._step(x)
        if self._chain is None:
            return self._rows(x.copy())
        return self._chain.pull_back(x, self._rows(self._chain.values(x)))

    def _rows(self, p: Array) -> Array:
        """Return the Jacobian in the function's own argument p [n], as [q, n]."""
        if self._given_jacobian is None:
            return AutomaticJacobian(self._call, 0, self._name, "jacobian=")(p)
        rows = real_array(self._given_jacobian(p), f'the jacobian of constraint "{self._name}"')
        if rows.ndim == 1 and self.size == 1:
            rows = rows[None]
        if rows.shape != (self.size, len(p)):
            raise InputError(
                f'the jacobian of constraint "{self._name}" has shape {rows.shape}',
                expected=f"shape {(self.size, len(p))}",
            )
        return rows

    def hessian(self, x: Array, multipliers: Array) -> Array:
        """Return sum_j v_j c_j'' [k, k]."""
        if self._given_hessian is None:
            return self._differences(x, multipliers)
        p = x.copy() if self._chain is None else self._chain.values(x)
        matrix = real_array(
            self._given_hessian(p, multipliers.copy()), f'the hessian of constraint "{self._name}"'
        )
        if matrix.shape != (len(p), len(p)):
            raise InputError(
                f'the hessian of constraint "{self._name}" has shape {matrix.shape}',
                expected=f"shape {(len(p), len(p))}",
            )
        if self._chain is None:
            return matrix
        first = self._chain.pull_back(x, np.eye(len(p)))
        # d^2 c(p(x)) = p_x^T c_pp p_x + sum_i c_{p_i} (p_i)_xx, both weighted by the multipliers.
        return first.T @ matrix @ first + self._chain.curvature(x, multipliers @ self._rows(p))

    def _differences(self, x: Array, multipliers: Array) -> Array:
        """Return central differences of the exact Jacobian: wrong by about 1e-10 of its size."""
        columns: list[Array] = []
        for j in range(len(x)):
            # About the cube root of the rounding unit, which balances the h^2 of central
            # differences with rounding / h.
            h = DIFFERENCE * max(1.0, abs(x[j]))
            above, below = x.copy(), x.copy()
            above[j] += h
            below[j] -= h
            rows = self.jacobian(above) - self.jacobian(below)
            # The distance that the two points really have, not 2 h: x + h is rounded.
            columns.append(multipliers @ rows / (above[j] - below[j]))
        matrix = np.column_stack(columns)
        return 0.5 * (matrix + matrix.T)


@dataclass(frozen=True, eq=False)
class Chain:
    """The map from x [k] to a few named parameters [n]."""

    position: npt.NDArray[np.int64]
    fixed: Array
    logarithmic: npt.NDArray[np.bool_]

    def values(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the parameters, complex where x is."""
        unknowns = np.where(self.position >= 0, x[self.position], self.fixed)
        # Exponentials only of logarithms: a linear unknown of 1000 would overflow, though where()
        # drops it.
        exponent = np.where(self.logarithmic, unknowns, 0.0)
        return np.where(self.logarithmic, np.exp(exponent), unknowns)

    def pull_back(self, x: Array, rows: Array) -> Array:
        """Return rows [q, n] of derivatives in the parameters as rows [q, k] in x."""
        # dp/dx of p = exp(x) is p, of p = x it is 1; fixed parameters have no column.
        slopes = np.where(self.logarithmic, self.values(x), 1.0)
        result = np.zeros((len(rows), len(x)))
        for column, position in enumerate(self.position):
            if position >= 0:
                result[:, position] += rows[:, column] * slopes[column]
        return result

    def curvature(self, x: Array, slope: Array) -> Array:
        """Return sum_i slope_i p_i'' [k, k]."""
        result = np.zeros(len(x))
        values = self.values(x)
        for column, position in enumerate(self.position):
            # Each p_i depends on one unknown alone, so the second derivative is diagonal; for exp
            # it is p again.
            if position >= 0 and self.logarithmic[column]:
                result[position] += slope[column] * values[column]
        return np.diag(result)


def chain(item: Constraint, functional: Functional) -> Chain:
    """Return the map to the parameters a constraint names.

    Raises
    ------
    InputError
        The functional has no parameters by name, or not these, or all of them are fixed.
    """
    control: Any = getattr(functional, "control", None)
    if not isinstance(control, Parameters):
        raise InputError(
            f'constraint "{item.name}" names parameters, but the functional has none by name',
            expected="a Reduced with Parameters as control",
            remedy="a function of x",
        )
    names: Sequence[str] = item.parameters or ()
    for name in names:
        if name not in control.entries:
            raise unknown_parameter(item, name, list(control.entries))
    free = control.free_names
    if not any(name in free for name in names):
        raise InputError(
            f'constraint "{item.name}" is on fixed parameters only',
            expected=f"at least one of the free ones: {', '.join(free)}",
        )
    entries = [control.entries[name] for name in names]
    return Chain(
        np.array([free.index(name) if name in free else -1 for name in names]),
        np.array([entry.value for entry in entries]),
        np.array([entry.free and entry.scale == "log" for entry in entries]),
    )
