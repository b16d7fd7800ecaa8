"""Functions that callbacks hold by names of their own, ``from math import sin``, replaced."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from daeosens.problem.derivative_arrays.callback_at_work import is_users

Namespace = dict[str, Any]


class Replacements:
    """What takes the place of functions of libraries while a callback is called.

    In the namespaces of their libraries, ``np.zeros``, and where the callback's module or a module
    of its helpers has imported them by name, ``from numpy import zeros``.

    Parameters
    ----------
    tables : pairs of dict and mapping
        Namespaces of libraries, and the functions that are replaced there, by their names.
    """

    def __init__(self, *tables: tuple[Namespace, Mapping[str, Callable[..., Any]]]) -> None:
        self._tables = [
            (namespace, {name: namespace[name] for name in new}, dict(new))
            for namespace, new in tables
        ]
        self._by_identity = {
            id(namespace[name]): (namespace[name], function)
            for namespace, new in tables
            for name, function in new.items()
        }
        self._known: WeakKeyDictionary[Callable[..., Any], _Known] = WeakKeyDictionary()

    def in_libraries(self) -> None:
        """Replace the functions in the namespaces of their libraries."""
        for namespace, _, new in self._tables:
            namespace.update(new)

    def take_back(self) -> None:
        """Put them back into the namespaces of their libraries."""
        for namespace, original, _ in self._tables:
            namespace.update(original)

    def in_names_of(self, callback: Callable[..., Any]) -> Sequence[Place]:
        """Replace them where a callback or its helpers hold them by name; return these places."""
        try:
            known = self._known.get(callback)
        except TypeError:  # no reference to it is possible: it is of a library, as a ufunc is
            return ()
        if known is None or known.has_grown:
            known = self._known[callback] = self._search(callback)
        if not known.places:
            return ()
        # another callback at work may have replaced them already, and puts them back itself
        places = [place for place in known.places if place.holds(place.original)]
        for place in places:
            place.put(place.new)
        return places

    def _search(self, callback: Callable[..., Any]) -> _Known:
        """Return where a callback and the functions and modules that it can reach hold them."""
        places: list[Place] = []
        searched: list[Namespace] = []
        seen: set[int] = set()
        waiting: list[Any] = [callback]
        while waiting:
            thing = _function_in(waiting.pop())
            if isinstance(thing, ModuleType):
                namespace, file = vars(thing), getattr(thing, "__file__", None)
                if file is None:  # of Python itself
                    continue
            elif isinstance(thing, FunctionType):
                namespace, file = thing.__globals__, thing.__code__.co_filename
                for cell in thing.__closure__ or ():
                    held = _contents(cell)
                    if id(held) in self._by_identity:
                        places.append(InClosure(*self._by_identity[id(held)], cell))
                    elif callable(held) and id(cell) not in seen:
                        seen.add(id(cell))
                        waiting.append(held)
            else:
                continue
            if id(namespace) in seen or not is_users(file, namespace):
                continue
            seen.add(id(namespace))
            searched.append(namespace)
            for name, value in list(namespace.items()):
                if id(value) in self._by_identity:
                    places.append(InModule(*self._by_identity[id(value)], namespace, name))
                elif isinstance(value, (FunctionType, ModuleType)):
                    waiting.append(value)
        return _Known(places, searched, [*map(len, searched)])


@dataclass(frozen=True)
class Place:
    """A name by which a function is held.

    Attributes
    ----------
    original, new : callable
        What it is, and what replaces it.
    """

    original: Any
    new: Any

    def holds(self, function: Any) -> bool:
        """Return whether it is this function now."""
        raise NotImplementedError

    def put(self, function: Any) -> None:
        """Make it another function."""
        raise NotImplementedError


@dataclass(frozen=True)
class InModule(Place):
    """A global name of a module."""

    namespace: Namespace
    name: str

    def holds(self, function: Any) -> bool:
        """Return whether it is this function now."""
        return self.namespace.get(self.name) is function

    def put(self, function: Any) -> None:
        """Make it another function."""
        self.namespace[self.name] = function


@dataclass(frozen=True)
class InClosure(Place):
    """A name of a function around the callback."""

    cell: CellType

    def holds(self, function: Any) -> bool:
        """Return whether it is this function now."""
        return _contents(self.cell) is function

    def put(self, function: Any) -> None:
        """Make it another function."""
        self.cell.cell_contents = function


def put_back(places: Sequence[Place]) -> None:
    """Make names what they were."""
    for place in places:
        # a callback may have made the name something else, ``global sin``
        if place.holds(place.new):
            place.put(place.original)


class _Known(NamedTuple):
    """Places of a callback, and the namespaces that were searched with their sizes."""

    places: list[Place]
    searched: list[Namespace]
    sizes: list[int]

    @property
    def has_grown(self) -> bool:
        """Whether a module has got more names since, as notebooks do."""
        return [*map(len, self.searched)] != self.sizes  # asked at each evaluation


def _function_in(thing: Any) -> Any:
    """Return the function of a partial one, a method, or an object that is called."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    if isinstance(thing, ModuleType):
        return thing
    if callable(thing) and not isinstance(thing, (FunctionType, MethodType, type)):
        thing = type(thing).__call__
    thing = inspect.unwrap(thing) if callable(thing) else thing
    return thing.__func__ if isinstance(thing, MethodType) else thing


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None
