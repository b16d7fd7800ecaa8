"""Candidate terms of equations that are looked for: polynomials, and libraries of features."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError, name_list, require, whole_number
from daeosens.petsc.vectors import finite_array


@dataclass(frozen=True)
class Term:
    """One candidate.

    Parameters
    ----------
    name : str
    value : callable
        ``value(t, u, p) -> number``, traced; u [n], and p with the parameters inside of terms.
    own : sequence of str
        Those of them of which each rate that the term is in has one of its own, as an activation
        energy.
    rates : sequence of str
        The rates that it is a candidate of: unknowns, or "r0", "r1", ... of reactions; all by
        default.

    Examples
    --------
    >>> Term("A / (K + A)", lambda t, u, p: u[0] / (p.K + u[0])).name
    'A / (K + A)'
    """

    name: str
    value: Callable[..., Any]
    own: Sequence[str] = ()
    rates: Sequence[str] = ()

    def __post_init__(self) -> None:
        for kind in ("own", "rates"):
            listed = name_list(getattr(self, kind), f'{kind} of term "{self.name}"')
            object.__setattr__(self, kind, tuple(listed))
        require(self.name, str, "the name of a term", 'Term("x y", lambda t, u, p: u[0] * u[1])')
        if not callable(self.value):
            raise InputError(f'term "{self.name}": value = {self.value!r}', expected="a function")


MOST_TERMS = 1_000_000
"""A library of more terms is a mistake."""


def polynomials(unknowns: Sequence[str], degree: int = 2) -> tuple[Term, ...]:
    """Return all monomials up to a degree, the constant first.

    Examples
    --------
    >>> [term.name for term in polynomials(["x", "y"])]
    ['1', 'x', 'y', 'x x', 'x y', 'y y']
    """
    unknowns = name_list(unknowns, "unknowns")
    degree = whole_number(degree, "degree", most=20)
    if len(unknowns) ** degree > MOST_TERMS:
        raise InputError(
            f"degree = {degree} of {len(unknowns)} unknowns",
            expected=f"at most about {MOST_TERMS} terms",
        )
    terms: list[Term] = []
    for size in range(degree + 1):
        for places in combinations_with_replacement(range(len(unknowns)), size):
            name = " ".join(unknowns[k] for k in places) or "1"
            terms.append(Term(name, _monomial(places)))
    return tuple(terms)


def _monomial(places: tuple[int, ...]) -> Callable[..., Any]:
    def value(_t: Any, u: Any, _p: Any) -> Any:
        result: Any = 1.0
        for k in places:
            result = result * u[k]
        return result

    return value


def feature_library(
    library: Any, unknowns: Sequence[str], states: npt.ArrayLike
) -> tuple[Term, ...]:
    """Return the terms of a feature library with PySINDy's interface.

    That is ``fit(x)``, ``transform(x)`` and ``get_feature_names(names)``.  A name, such as
    "x0^2 x1" or "sin(2 x0)", is read as a formula, which has to give what ``transform`` does.

    Parameters
    ----------
    library : object
    unknowns : sequence of str
    states : array_like [Q, n]
        Where names and values are compared.

    Raises
    ------
    InputError
        A name that is no formula, or another one than is computed.

    Examples
    --------
    >>> class Squares:
    ...     def fit(self, x):
    ...         return self
    ...     def transform(self, x):
    ...         return x**2
    ...     def get_feature_names(self, names):
    ...         return [f"{name}^2" for name in names]
    >>> [term.name for term in feature_library(Squares(), ["x", "y"], [[1.0, 2.0], [3.0, 4.0]])]
    ['x^2', 'y^2']
    """
    unknowns = name_list(unknowns, "unknowns")
    points: Any = finite_array(states, "states")
    if points.ndim != 2 or points.shape[1] != len(unknowns) or not points.size:
        raise InputError(f"states have shape {points.shape}", expected=f"(Q, {len(unknowns)})")
    for name in ("fit", "transform", "get_feature_names"):
        if isinstance(library, type) or not callable(getattr(library, name, None)):
            raise InputError(
                f"library is {type(library).__name__}",
                expected="fit(x), transform(x), get_feature_names(names)",
                remedy="pysindy.PolynomialLibrary(degree=2)",
            )
    fitted = library.fit(points)
    library = library if fitted is None else fitted
    values: Any = np.asarray(library.transform(points), dtype=float)
    symbols = [f"x{k}" for k in range(len(unknowns))]
    formulas = [str(name) for name in library.get_feature_names(symbols)]
    names = [str(name) for name in library.get_feature_names(list(unknowns))]
    terms: list[Term] = []
    for k, (name, formula) in enumerate(zip(names, formulas, strict=True)):
        # "x0^2 x1" is Python once blanks between factors are products
        text = re.sub(r"(?<=[\w)])\s+(?=[\w(])", " * ", formula).replace("^", "**")
        # nothing is evaluated but unknowns, numbers and known functions
        words = set(re.findall(r"[A-Za-z_]\w*", text)) - {*symbols, *_FUNCTIONS}
        if words or not re.fullmatch(r"[\w\s.+\-*/()]*", text):
            raise InputError(
                f'feature {k} is called "{name}", which is no formula of the unknowns',
                expected=f"products, powers and {', '.join(_FUNCTIONS)} of {', '.join(symbols)}",
                remedy="Term(name, lambda t, u, p: ...)",
            )
        value = _formula(compile(text, f"<feature {name}>", "eval"), symbols)
        # the name is trusted only where it gives the same numbers as the library
        mine = np.broadcast_to(value(0.0, points.T, None), len(points))
        if not np.allclose(mine, values[:, k], rtol=1e-10, atol=1e-12):
            raise InputError(
                f'feature {k} is called "{name}", but is another function: '
                f"{values[0, k]:g} instead of {mine[0]:g} at the first state",
                expected="features that are what their names say",
                remedy="Term(name, lambda t, u, p: ...)",
            )
        terms.append(Term(name, value))
    return tuple(terms)


_FUNCTIONS: dict[str, Any] = {
    name: getattr(np, name) for name in ("sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "abs")
}


def _formula(code: Any, symbols: Sequence[str]) -> Callable[..., Any]:
    def value(_t: Any, u: Any, _p: Any) -> Any:
        known = {name: u[k] for k, name in enumerate(symbols)}
        return eval(code, {"__builtins__": {}}, _FUNCTIONS | known)

    return value
