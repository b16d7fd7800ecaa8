"""Parameters by name: arrays of any shape, side by side in one flat vector."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from daeosens.errors import InputError, is_iterable, is_whole, nearest, together
from daeosens.petsc.vectors import Array, finite_array
from daeosens.problem.layout import numbered_parameters

Place: TypeAlias = tuple[int, int, tuple[int, ...]]
"""Number of the first entry, number of entries, and shape."""

LISTED = 20
"""So many names are listed at most."""


class UnknownParameterError(InputError, AttributeError):
    """There is no parameter of that name: as attributes that are missing, for ``hasattr``."""


class Named(NDArrayOperatorsMixin):
    """The parameters as a function sees them: ``p.A``, ``p["A"]``, or by number as one vector.

    Has no attributes but the parameters', so these may have any name.  Each is taken out of the
    vector when it is first asked for: there may be very many.
    """

    __slots__ = ("__flat", "__parts", "__places")

    def __init__(
        self, flat: Any, places: Mapping[str, Place], fields: Mapping[str, Any] | None = None
    ) -> None:
        self.__flat = flat
        self.__places = places
        # fields are beside the vector, under their names
        self.__parts: dict[str, Any] = dict(fields or {})

    def __getattribute__(self, name: str) -> Any:
        # every other attribute is a parameter, "shape" and "T" included
        if name.startswith(("__", "_Named__")):
            return object.__getattribute__(self, name)
        return self.__part(name)

    def __repr__(self) -> str:
        return f"Named({', '.join(f'{name}={self.__part(name)}' for name in self.__places)})"

    def __getitem__(self, key: Any) -> Any:
        return self.__part(key) if isinstance(key, str) else self.__flat[key]

    def __part(self, name: str) -> Any:
        if name not in self.__parts:
            if name not in self.__places:
                raise _unknown_error(name, {**self.__places, **self.__parts})
            start, size, shape = self.__places[name]
            flat = self.__flat
            # taken out once: a second look is the same symbol, and the graph stays small
            part = flat[start : start + size].reshape(shape) if shape else flat[start]
            self.__parts[name] = part
        return self.__parts[name]

    def __len__(self) -> int:
        return len(self.__flat)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.__flat)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self.__flat, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(_plain(operand) for operand in inputs), **options)

    def __array_function__(self, function: Any, _types: Any, inputs: Any, options: Any) -> Any:
        return function(*(_plain(operand) for operand in inputs), **options)


@dataclass(frozen=True)
class Shapes:
    """The names and shapes of the parameters, in the order of the flat vector.

    Examples
    --------
    >>> shapes = admit_shapes({"rate": (), "A": (2, 2)})
    >>> shapes.size, shapes.names
    (5, ('rate', 'A[0,0]', 'A[0,1]', 'A[1,0]', 'A[1,1]'))
    >>> shapes.pack({"rate": 3.0, "A": [[1.0, 2.0], [4.0, 5.0]]})
    array([3., 1., 2., 4., 5.])
    """

    shapes: Mapping[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """Number m of all entries."""
        return sum(prod(shape) for shape in self.shapes.values())

    @property
    def names(self) -> tuple[str, ...]:
        """One name for each entry."""
        return tuple(
            f"{name}[{','.join(map(str, index))}]" if shape else name
            for name, shape in self.shapes.items()
            for index in np.ndindex(shape)
        )

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """Where the entries of each parameter begin, how many there are, and its shape."""
        sizes = [prod(shape) for shape in self.shapes.values()]
        starts = accumulate(sizes, initial=0)
        layout = zip(self.shapes.items(), starts, sizes, strict=False)
        return {name: (start, size, shape) for (name, shape), start, size in layout}

    def split(self, flat: Any, fields: Mapping[str, Any] | None = None) -> Named:
        """Return the parameters by name from a flat vector [m]; views where NumPy gives views.

        With fields, whose values are not in the vector.
        """
        return Named(flat, self.places, fields)

    def pack(self, values: Mapping[str, npt.ArrayLike]) -> Array:
        """Return the flat vector [m].

        Raises
        ------
        InputError
            A name that is missing or unknown, another shape, or a value that is not finite.
        """
        complaints = [f"{name} is missing" for name in self.shapes if name not in values]
        complaints += [_unknown(name, self.shapes) for name in values if name not in self.shapes]
        if complaints:
            raise together(complaints, heading="parameters")
        parts = [finite_array(values[name], name, shape) for name, shape in self.shapes.items()]
        return np.concatenate([part.ravel() for part in parts]) if parts else np.empty(0)


def admit_shapes(parameters: int | Sequence[str] | Mapping[str, Any]) -> Shapes:
    """Return names and shapes of the parameters from a number, names, or shapes by name.

    Raises
    ------
    InputError
        Something else, or a shape that is none.

    Examples
    --------
    >>> admit_shapes(2).names, admit_shapes(["a", "b"]).names
    (('p0', 'p1'), ('a', 'b'))
    """
    if is_whole(parameters):
        return Shapes(dict.fromkeys(numbered_parameters(parameters), ()))
    if isinstance(parameters, Mapping):
        return Shapes({str(name): _shape(name, shape) for name, shape in parameters.items()})
    names_or_count: Any = parameters
    several = is_iterable(names_or_count) and not isinstance(names_or_count, str)
    names: list[Any] = list(names_or_count) if several else [names_or_count]
    if not several or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"parameters = {parameters!r}",
            expected='a number, names as ["rate"], or shapes as {"rate": (), "A": (3, 3)}',
        )
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise InputError(f"parameter names {repeated} appear more than once")
    return Shapes(dict.fromkeys(names, ()))


def _shape(name: Any, size: Any) -> tuple[int, ...]:
    shape: Any = (size,) if is_whole(size) else size
    try:
        sizes = tuple(operator.index(length) for length in shape)
    except TypeError:
        sizes = (0,)
    if len(sizes) > 2 or min(sizes, default=1) < 1:
        raise InputError(
            f'parameters["{name}"] = {size!r}',
            expected="the shape of a number (), a vector (n,) or a matrix (n, m)",
        )
    return sizes


def _plain(value: Any) -> Any:
    return value[:] if isinstance(value, Named) else value


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    near = nearest(name, known)
    return f"there is no parameter {name!r}" + (f"; try {near}" if near else "")


def _unknown_error(name: str, known: Mapping[str, Any]) -> UnknownParameterError:
    names = [*known][:LISTED]
    if len(known) > LISTED:
        names.append(f"... ({len(known)})")
    return UnknownParameterError(
        _unknown(name, {}),
        expected=", ".join(names) or f'parameters={{"{name}": ()}} where the model is described',
        remedy=nearest(name, known),
    )
