"""What a minimum has to satisfy: bounds on functions of x, of parameters, and on run outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError, name_list, nearest, require
from daeosens.petsc.vectors import Array, real_array

Kind: TypeAlias = Literal["function", "outputs", "functional"]


@dataclass(frozen=True, eq=False)
class Constraint:
    """lower <= what <= upper, or what = equals; each side a number or one per component.

    Parameters
    ----------
    what : callable, Objective, sequence of Objective, or Functional
        A function ``x -> number`` or ``array [q]`` of all optimisation variables [k], as the
        optimiser sees them (a logarithm where the scale is "log"), or of ``parameters``.  Outputs
        of the run that a ``Reduced`` makes: ``Terminal``, ``Running``, ``LeastSquares``, ...; one
        adjoint sweep serves all of them and the objective.  Another functional of the same x.
    lower, upper : float or array_like [q]
        Bounds; infinite where there is none.
    equals : float or array_like [q], optional
        Instead of bounds: the value to be met.
    name : str
        What reports call it.
    parameters : sequence of str, optional
        The function is one of these parameters [len(parameters)], in their own units.
    jacobian : callable, optional
        Of a function, ``x -> array [q, k]``; automatic where missing.
    hessian : callable, optional
        Of a function, ``(x, v) -> array [k, k]``, sum_j v_j times the Hessian of component j; by
        differences of the Jacobian where missing.  Only "ipopt" needs it.
    scale : float or array_like [q], optional
        The change of ``what`` that matters as much as a change of x by max(1, |x0|): violations are
        measured in it.  Default: the norm of the gradient at the start, times max(1, |x0|).

    Raises
    ------
    InputError
        Bounds that exclude each other or bound nothing, shapes that differ, what cannot be used.

    Examples
    --------
    >>> from daeosens import Running
    >>> budget = Constraint(Running(lambda t, u, p: p[0] ** 2), upper=2.5, name="effort")
    >>> print(budget)
    effort <= 2.5
    >>> print(Constraint(lambda x: x[0] + x[1], equals=1.0, name="mass"))
    mass = 1
    """

    what: Any
    lower: npt.ArrayLike = -math.inf
    upper: npt.ArrayLike = math.inf
    _: KW_ONLY
    equals: npt.ArrayLike | None = None
    name: str = ""
    parameters: Sequence[str] | None = None
    jacobian: Callable[..., Any] | None = None
    hessian: Callable[..., Any] | None = None
    scale: npt.ArrayLike | None = None
    kind: Kind = field(init=False)

    def __post_init__(self) -> None:
        require(self.name, str, "the name of a constraint", 'name="area"')
        where = f'constraint "{self.name}"' if self.name else "a constraint"
        set_field = object.__setattr__
        set_field(self, "kind", _kind(self.what, where))
        lower, upper = _side(self.lower, where, "lower"), _side(self.upper, where, "upper")
        if self.equals is not None:
            if (lower != -math.inf).any() or (upper != math.inf).any():
                raise InputError(
                    f"{where} has both equals and bounds", expected="either equals, or lower, upper"
                )
            # an equation is two equal bounds: all solvers see lower <= c <= upper
            lower = upper = _side(self.equals, where, "equals")
            if not np.isfinite(lower).all():
                raise InputError(f"{where}: equals = {lower}", expected="finite numbers")
        _check_sides(lower, upper, where)
        set_field(self, "lower", lower)
        set_field(self, "upper", upper)
        if self.scale is not None:
            scale = _side(self.scale, where, "scale")
            least = np.finfo(float).tiny  # what can be divided by
            if not ((scale >= least) & np.isfinite(scale)).all():
                raise InputError(f"{where}: scale = {scale}", expected="finite numbers > 0")
            set_field(self, "scale", scale)
        if self.parameters is not None:
            value: Any = self.parameters
            names = (value,) if isinstance(value, str) else value
            set_field(self, "parameters", name_list(names, f"{where}: parameters"))
        only_functions = {
            "jacobian": self.jacobian,
            "hessian": self.hessian,
            "parameters": self.parameters,
        }
        for word in ("jacobian", "hessian"):
            value = getattr(self, word)
            if value is not None and not callable(value):
                raise InputError(f"{where}: {word} = {value!r}", expected="a callable")
        for word, value in only_functions.items():
            if value is not None and self.kind != "function":
                raise InputError(
                    f"{where} has {word}= but is no function of x", expected="a callable"
                )

    def __str__(self) -> str:
        """Return the relation in words."""
        name = self.name or "constraint"
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        if np.array_equal(lower, upper):
            return f"{name} = {_shown(lower)}"
        left = f"{_shown(lower)} <= " if (lower > -math.inf).any() else ""
        right = f" <= {_shown(upper)}" if (upper < math.inf).any() else ""
        return f"{left}{name}{right}"


def named(constraints: object) -> list[Constraint]:
    """Return the constraints as a list in which each has a name of its own.

    Raises
    ------
    InputError
        Something else than constraints, none at all, a name given twice.
    """
    if isinstance(constraints, Constraint):
        constraints = [constraints]
    if not isinstance(constraints, (list, tuple)) or not constraints:
        raise InputError(
            f"constraints = {constraints!r}", expected="one Constraint or a list of them"
        )
    items = cast("Sequence[Any]", constraints)
    named_items: list[Constraint] = []
    for index, item in enumerate(items):
        if not isinstance(item, Constraint):
            raise InputError(
                f"constraints[{index}] is a {type(item).__name__}", expected="a Constraint"
            )
        named_items.append(item if item.name else _renamed(item, f"constraint {index + 1}"))
    names = [item.name for item in named_items]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f'two constraints are called "{twice[0]}"', expected="different names")
    return named_items


def sides(constraint: Constraint, size: int) -> tuple[Array, Array, Array]:
    """Return lower, upper and scale (NaN: to be chosen) of a constraint's components, each [q].

    Raises
    ------
    InputError
        There are more numbers than components, or fewer.
    """
    # NaN is put in the place of a scale: it is chosen later, by the gradient at the start
    scale: Any = math.nan if constraint.scale is None else constraint.scale
    arguments = {"lower": constraint.lower, "upper": constraint.upper, "scale": scale}
    sides_and_scale: list[Array] = []
    for word, values in arguments.items():
        array = np.asarray(values, dtype=float)
        if array.shape not in ((), (size,)):
            raise InputError(
                f'constraint "{constraint.name}" has {size} components, '
                f"but {word} has shape {array.shape}",
                expected=f"a number, or shape ({size},)",
            )
        sides_and_scale.append(np.broadcast_to(array, (size,)))
    lower, upper, scale = sides_and_scale
    return lower, upper, scale


def unknown_parameter(constraint: Constraint, name: str, known: Sequence[str]) -> InputError:
    """Return the error for a parameter that is not there."""
    near = nearest(name, known)
    return InputError(
        f'constraint "{constraint.name}" names parameter "{name}"',
        expected=", ".join(known),
        remedy=near,
    )


def _kind(what: Any, where: str) -> Kind:
    # by what it can do, not by its class: a cost is anything that can be lowered, a functional what
    # has values with gradients
    if hasattr(what, "lower") and hasattr(what, "times"):
        return "outputs"
    if hasattr(what, "value_and_gradient"):
        return "functional"
    if callable(what):
        return "function"
    if isinstance(what, (list, tuple)) and what:
        items = cast("Sequence[Any]", what)
        if all(hasattr(item, "lower") and hasattr(item, "times") for item in items):
            return "outputs"
    raise InputError(
        f"{where} is on a {type(what).__name__}",
        expected="a function of x, an objective or a list of them, or a functional",
    )


def _side(values: npt.ArrayLike, where: str, word: str) -> Array:
    array = real_array(values, f"{where}: {word}")
    if array.ndim > 1 or np.isnan(array).any():
        raise InputError(f"{where}: {word} = {values!r}", expected="a number, or an array [q]")
    return array


def _check_sides(lower: Array, upper: Array, where: str) -> None:
    try:
        # one number is a bound of all components, however many there will be
        low, high = np.broadcast_arrays(np.atleast_1d(lower), np.atleast_1d(upper))
    except ValueError as error:
        raise InputError(
            f"{where}: lower has shape {lower.shape}, upper {upper.shape}", expected="equal shapes"
        ) from error
    impossible = (low > high) | (low == math.inf) | (high == -math.inf)
    if impossible.any():
        j = int(np.argmax(impossible))
        raise InputError(
            f"{where}: bounds [{low[j]:g}, {high[j]:g}] exclude each other"
            + (f" in component {j}" if len(low) > 1 else ""),
            expected="lower <= upper",
        )
    nothing = (low == -math.inf) & (high == math.inf)
    if nothing.any():
        j = int(np.argmax(nothing))
        raise InputError(
            f"{where} bounds nothing" + (f" in component {j}" if len(low) > 1 else ""),
            expected="lower=, upper= or equals=",
        )


def _renamed(constraint: Constraint, name: str) -> Constraint:
    """Return a copy with a name.  Not dataclasses.replace, which would set equals and bounds."""
    return Constraint(
        constraint.what,
        constraint.lower,
        constraint.upper,
        name=name,
        parameters=constraint.parameters,
        jacobian=constraint.jacobian,
        hessian=constraint.hessian,
        scale=constraint.scale,
    )


def _shown(values: Array) -> str:
    numbers = [f"{value:g}" for value in np.atleast_1d(values)]
    return numbers[0] if values.ndim == 0 else f"[{', '.join(numbers)}]"
