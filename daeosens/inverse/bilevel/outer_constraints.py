"""Constraints of the outer problem: on nonlinear parameters, and linear ones that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daeosens.errors import InputError
from daeosens.inverse.bilevel.functional import BilevelFunctional
from daeosens.optimize.constrained.constraints import Constraint, named, unknown_parameter
from daeosens.petsc.vectors import Array, real_array
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.callback_guard import guarded


@dataclass(frozen=True, eq=False)
class Followed:
    """Named parameters as functions of x: the linear ones solve the inner problem there.

    Attributes
    ----------
    functional : BilevelFunctional
    names : tuple of str [n]
    known : mapping of str to float
        Values of those that are neither linear nor nonlinear.
    """

    functional: BilevelFunctional
    names: tuple[str, ...]
    known: Mapping[str, float]

    def values(self, x: Array) -> Array:
        """Return the parameters [n] in their own units."""
        functional = self.functional
        values = dict(self.known)
        values |= zip(functional.others, functional.unscaled(x).tolist(), strict=True)
        values |= zip(functional.linear, functional.at(x).inner.p.tolist(), strict=True)
        return np.array([values[name] for name in self.names])

    def jacobian(self, x: Array) -> Array:
        """Return their derivatives [n, k], for the active set of the inner problem at x."""
        functional = self.functional
        others, linear = list(functional.others), list(functional.linear)
        result = np.zeros((len(self.names), len(others)))
        following = functional.linear_jacobian(functional.vector(x))
        slopes = functional.slopes(x)
        for row, name in enumerate(self.names):
            if name in functional.others:
                column = others.index(name)
                result[row, column] = slopes[column]
            elif name in functional.linear:
                result[row] = following[linear.index(name)]
        return result


def outer_constraints(
    constraints: object, functional: BilevelFunctional, known: Mapping[str, float]
) -> list[Constraint]:
    """Return constraints on named parameters as constraints on x.

    Raises
    ------
    InputError
        No function of named parameters; a name that is unknown, or none that may change; no
        nonlinear parameter that could satisfy them.
    """
    items = named(constraints)
    if not functional.others:
        raise InputError(
            f'constraint "{items[0].name}", but all free parameters are linear',
            expected="a nonlinear parameter, which the outer problem can move",
            remedy="equalities= or inequalities=, or linear=[...] without what it names",
        )
    return [_of_x(item, functional, known) for item in items]


def _of_x(
    item: Constraint, functional: BilevelFunctional, known: Mapping[str, float]
) -> Constraint:
    if item.kind != "function" or item.parameters is None:
        raise InputError(
            f'constraint "{item.name}" names no parameters',
            expected="a function of parameters by name",
            remedy='Constraint(lambda p: p[0] * p[1], upper=1.0, parameters=["a", "b"])',
        )
    if item.hessian is not None:
        raise InputError(
            f'constraint "{item.name}" has hessian=, of which bilevel makes no use',
            expected="at most jacobian=",
        )
    names = tuple(item.parameters)
    for name in names:
        if name not in known:
            raise unknown_parameter(item, name, list(known))
    if not any(name in functional.others or name in functional.linear for name in names):
        raise InputError(
            f'constraint "{item.name}" is on parameters that are not estimated: {", ".join(names)}',
            expected=f"one of {', '.join([*functional.linear, *functional.others])}",
        )
    followed = Followed(functional, names, known)
    call = guarded(item.what, item.name, functional.comm)
    rows = _rows(item, call, functional)
    return Constraint(
        lambda x: call(followed.values(x)),
        item.lower,
        item.upper,
        name=item.name,
        jacobian=lambda x: rows(followed.values(x)) @ followed.jacobian(x),
        scale=item.scale,
    )


def _rows(
    item: Constraint, call: Callable[..., Any], functional: BilevelFunctional
) -> Callable[[Array], Array]:
    """Return the function of parameters [n] that gives the constraint's derivatives [q, n]."""
    if item.jacobian is None:
        return AutomaticJacobian(call, 0, item.name, f'Constraint(jacobian=...) of "{item.name}"')
    own = guarded(item.jacobian, f"{item.name} jacobian", functional.comm)

    def rows(p: Array) -> Array:
        matrix = np.atleast_2d(real_array(own(p), f'the jacobian of constraint "{item.name}"'))
        if matrix.shape[1] != len(p):
            raise InputError(
                f'the jacobian of constraint "{item.name}" has shape {matrix.shape}',
                expected=f"{len(p)} columns",
            )
        return matrix

    return rows


def constraint_values(constraints: Sequence[Constraint], x: Array) -> dict[str, tuple[str, Array]]:
    """Return each constraint at x, by name: in words, and its components [q]."""
    return {
        item.name: (str(item), np.atleast_1d(np.asarray(item.what(x), dtype=float)))
        for item in constraints
    }
