"""What the unknowns, parameters and modes of a system are called: what a kind of event may ask."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from daeosens.errors import (
    InputError,
    is_iterable,
    is_one_of,
    is_real,
    is_whole,
    nearest,
    require,
    whole_number,
)
from daeosens.petsc.vectors import as_float
from daeosens.problem.problem import Problem, Style


@dataclass(frozen=True)
class Quantity:
    """A number, or a multiple of a parameter: ``scale`` or ``scale * p[index]``."""

    scale: float
    index: int | None = None

    def __call__(self, p: Any) -> Any:
        """Return the value for parameters [m]."""
        return self.scale if self.index is None else self.scale * p[self.index]

    def __mul__(self, factor: float) -> Quantity:
        """Return a multiple."""
        return Quantity(factor * self.scale, self.index)


@dataclass(frozen=True)
class System:
    """What the unknowns, parameters and modes are called, and in which style callbacks are written.

    Parameters
    ----------
    unknowns : sequence of str or int
        Their names, or how many there are.
    parameters : sequence of str
        Their names; none for a field parameter.
    modes : sequence of str
        The modes of ``hybrid``.
    style : "numpy" or "petsc"
        The style of the callbacks.
    field_parameter : bool
        The parameter is one distributed vector.

    Raises
    ------
    InputError
        No unknowns, repeated names, a style that is none.

    Examples
    --------
    >>> ball = System(["height", "speed"], ["gravity", "restitution"])
    >>> ball.index("speed"), ball.quantity("gravity")
    (1, Quantity(scale=1.0, index=0))
    """

    unknowns: Sequence[str] | int
    parameters: Sequence[str] = ()
    modes: Sequence[str] = ()
    style: Style = "numpy"
    field_parameter: bool = False

    def __post_init__(self) -> None:
        for name in ("unknowns", "parameters", "modes"):
            values: Any = getattr(self, name)
            if name == "unknowns" and isinstance(values, int) and values > 0:
                continue
            names = _several(values)
            if names is None or not all(isinstance(entry, str) for entry in names):
                raise InputError(f"{name} = {values!r}", expected='names, such as ["a", "b"]')
            if len(set(names)) < len(names) or (name == "unknowns" and not names):
                raise InputError(f"{name} = {values!r}", expected="names that differ, at least one")
            object.__setattr__(self, name, names)
        if not is_one_of(self.style, "numpy", "petsc"):
            raise InputError(f"style = {self.style!r}", expected='"numpy" or "petsc"')

    @property
    def size(self) -> int:
        """Number n of unknowns."""
        return self.unknowns if isinstance(self.unknowns, int) else len(self.unknowns)

    def index(self, unknown: str | int) -> int:
        """Return the number of an unknown, from 0.

        Raises
        ------
        InputError
            There is none of that name or number.
        """
        names = () if isinstance(self.unknowns, int) else self.unknowns
        if isinstance(unknown, str) and unknown in names:
            return names.index(unknown)
        number: Any = unknown
        if isinstance(unknown, str) and not names and unknown.isdecimal():
            number = int(unknown)  # the key of a table
        if is_whole(number) and 0 <= number < self.size:
            return int(number)
        expected = f"a number from 0 to {self.size - 1}"
        if names and isinstance(unknown, str):
            expected = _listed(names)
        raise InputError(
            f"there is no unknown {_shown(unknown)}",
            expected=expected,
            remedy=nearest(str(unknown), names),
        )

    def name(self, index: int) -> str:
        """Return what the unknown of that number is called."""
        index = whole_number(index, "index", most=self.size - 1)
        return f"unknown {index}" if isinstance(self.unknowns, int) else self.unknowns[index]

    def quantity(self, value: float | str) -> Quantity:
        """Return a number, or the parameter of that name, as a function of the parameters.

        Raises
        ------
        InputError
            There is no parameter of that name, or the number is not finite.
        """
        if isinstance(value, str):
            if value in self.parameters:
                return Quantity(1.0, self.parameters.index(value))
            names = f"a number, or one of {_listed(self.parameters)}"
            raise InputError(
                f"there is no parameter {_shown(value)}",
                expected=names if self.parameters else "a number: there are no parameters by name",
                remedy=nearest(value, self.parameters),
            )
        if not is_real(value):
            raise InputError(f"{value!r} is given as a number", expected="a number, or a name")
        if not math.isfinite(as_float(value)):
            raise InputError(f"{value} is given as a number", expected="a finite one")
        return Quantity(float(value))

    def check_mode(self, mode: str) -> None:
        """Check the name of a mode; where the system does not say its modes, ``hybrid`` will.

        Raises
        ------
        InputError
            There is none of that name.
        """
        require(mode, str, "mode", '"on"')
        if self.modes and mode not in self.modes:
            raise InputError(
                f"there is no mode {_shown(mode)}",
                expected=_listed(self.modes),
                remedy=nearest(mode, self.modes),
            )


def system_of(problem: Problem, unknowns: Sequence[str] | None = None) -> System:
    """Return what a problem says of its names; those of unknowns may be given in their place.

    Examples
    --------
    >>> from daeosens import ODE
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=["level"], parameters=["rate"])
    >>> system_of(decay).index("level")
    0
    """
    if unknowns is not None and len(unknowns) != problem.size:
        raise InputError(
            f"{len(unknowns)} names of unknowns", expected=f"{problem.size}, one for each"
        )
    return System(
        unknowns or problem.state_names or problem.size,
        problem.parameter_names,
        tuple(problem.modes),
        problem.style,
        problem.field_parameter,
    )


def _several(values: object) -> tuple[object, ...] | None:
    """Return what is in a sequence that is no word."""
    if isinstance(values, (str, bytes)) or not is_iterable(values):
        return None
    return tuple(cast("Iterable[object]", values))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _shown(name: object) -> str:
    return f'"{name}"' if isinstance(name, str) else repr(name)
