"""The errors daeosens raises, and the one way their messages are built."""

from __future__ import annotations

import difflib
import math
import numbers
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, Self, TypeGuard, cast

import numpy as np

_BETWEEN = tuple(str(Path(file).parent) for file in (__file__, np.__file__))


class DaeosensError(Exception):
    """Base of all errors of this package; the message says what, what was expected, what to try.

    Parameters
    ----------
    what : str
        What happened, with the values.
    expected : str, optional
        What would have been right.
    remedy : str, optional
        What the user can do now.

    Examples
    --------
    >>> print(DaeosensError("dt = -1", expected="dt > 0", remedy="dt=0.1"))
    dt = -1
      expected: dt > 0
      try: dt=0.1
    """

    def __init__(self, what: str, *, expected: str = "", remedy: str = "") -> None:
        lines = [what]
        if expected:
            lines.append(f"  expected: {expected}")
        if remedy:
            lines.append(f"  try: {remedy}")
        super().__init__("\n".join(lines))

    @property
    def what(self) -> str:
        """The first line: what happened."""
        return str(self).split("\n", 1)[0]

    def in_one_line(self) -> str:
        """Return the message for where there is one line only.

        Examples
        --------
        >>> DaeosensError("dt = -1", expected="dt > 0", remedy="dt=0.1").in_one_line()
        'dt = -1; expected: dt > 0; try: dt=0.1'
        """
        return "; ".join(line.strip() for line in str(self).splitlines())

    def with_detail(self, detail: str) -> Self:
        """Return the same error that says more of what happened.

        Examples
        --------
        >>> print(SolveError("no solution", remedy="smaller steps").with_detail("log(-1)"))
        no solution: log(-1)
          try: smaller steps
        """
        return type(self)(str(self).replace(self.what, f"{self.what}: {detail}", 1))


class InputError(DaeosensError):
    """Input that cannot be right: found before any expensive work; drivers exit with code 2."""


class OptionError(InputError):
    """A PETSc option that nothing reads, or that contradicts another."""


class SolveError(DaeosensError):
    """The time integration failed: same on every rank, so an optimiser may treat it as infinity.

    A problem with events keeps the run up to there as ``run``, a fit what came of its starts as
    ``starts``.
    """

    run: object = None
    starts: object = None


class StiffError(SolveError):
    """An explicit run took all the steps it was allowed: stability held them small."""

    time: float = math.nan


class ChatterError(SolveError):
    """Steps became ever shorter at a jump to which the equations lead back from both sides."""

    ahead: float = math.inf
    """Steps that the rest of the run would take, of the size of the last ones."""


class NewtonError(SolveError):
    """Newton's method did not find the end of an implicit step."""


class LinearSolverError(SolveError):
    """An iterative solver did not solve the linear system of an implicit step or of a sweep."""


class SingularMatrixError(SolveError):
    """The matrix of a linear system cannot be factorised: no unique solution."""


class NotFiniteError(SolveError):
    """A callback gave infinity or NaN: the solution, or a trial step, has left its domain.

    ``operations`` returns what in the callback made it, if that is known; it is called where the
    error is told, since most trial steps are survived.
    """

    operations: Callable[[], str] | None = None


class UnsupportedError(DaeosensError):
    """A combination that is refused because its result would be wrong; names the alternative."""


class ComplementarityError(SolveError):
    """A constraint that is neither active nor inactive: its multiplier and its slack are zero."""


class BudgetError(SolveError):
    """A global search looked at as many boxes as it may; what it has are its ``minimizers``."""

    minimizers: object = None


class GrazingError(DaeosensError):
    """An event whose time is not differentiable: the state only touches the surface."""


class DiscretizationWarning(UserWarning):
    """Discretisation errors exceed what was asked for: tolerances, or a statistical error."""


class NoiseWarning(UserWarning):
    """One noise level is estimated for columns whose residuals differ in size."""


class KinkWarning(UserWarning):
    """Derivatives of equations or costs with a kink or jump between two steps lack a term."""


class StartWarning(UserWarning):
    """Derivatives hold a start fixed that other parameters do not admit."""


class SolverErrorWarning(UserWarning):
    """What Newton's method or a linear solver left in the steps makes derivatives inexact."""


def warn(message: str, category: type[Warning], comm: Any = None) -> None:
    """Warn, at the line that called this package, however many functions lie between.

    Of what all ranks of ``comm`` have found together only the first one prints.  On the others
    it is a warning all the same: recorded, or raised, where filters say so.
    """
    frame, level = sys._getframe(1), 2  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame, level = frame.f_back, level + 1
    printed = nullcontext() if comm is None or comm.rank == 0 else redirect_stderr(StringIO())
    with printed:
        warnings.warn(message, category, stacklevel=level)


def require(value: object, kind: type, name: str, remedy: str) -> None:
    """Refuse an argument of another type.

    Raises
    ------
    InputError
        Names both types.

    Examples
    --------
    >>> require(3, str, "name", 'name="x"')
    Traceback (most recent call last):
        ...
    daeosens.errors.InputError: name is int
      expected: a str
      try: name="x"
    """
    if not isinstance(value, kind):
        raise InputError(
            f"{name} is {type(value).__name__}", expected=f"a {kind.__name__}", remedy=remedy
        )


def refuse_uncallable(**callbacks: object) -> None:
    """Refuse callbacks, each by its name, that are given and cannot be called.

    Raises
    ------
    InputError
        Names the first one.

    Examples
    --------
    >>> refuse_uncallable(observe_u=None, observe_p=[0.0])
    Traceback (most recent call last):
        ...
    daeosens.errors.InputError: observe_p = [0.0]
      expected: a callback
    """
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise InputError(f"{name} = {callback!r}", expected="a callback")


def is_one_of(value: object, *words: str) -> bool:
    """Whether a value is one of some words; of arrays and data frames == would be another one.

    Examples
    --------
    >>> is_one_of("log", "linear", "log"), is_one_of(np.array(["log", "a"]), "linear", "log")
    (True, False)
    """
    return isinstance(value, str) and value in words


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of Python or NumPy: no truth value, no span of time.

    Examples
    --------
    >>> is_whole(np.int64(3)), is_whole(True), is_whole(np.timedelta64(1, "s")), is_whole(3.0)
    (True, False, False, False)
    """
    # NumPy counts spans of time among its integers
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def is_real(value: object) -> TypeGuard[float]:
    """Whether a value is one real number, infinite or NaN too: no truth value, no span of time.

    Examples
    --------
    >>> is_real(np.float32(0.5)), is_real(10**400), is_real(True), is_real("0.5")
    (True, True, False, False)
    """
    return isinstance(value, numbers.Real) and not isinstance(
        value, (bool, np.bool_, np.timedelta64)
    )


def real_number(
    value: object,
    name: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    inside: bool = False,
    remedy: str = "",
) -> float:
    """Return an argument that has to be a finite number of a range, ``inside``: not at its ends.

    Raises
    ------
    InputError
        It is none, or outside of the range.

    Examples
    --------
    >>> real_number(1, "level", least=0.0, most=1.0, inside=True)
    Traceback (most recent call last):
        ...
    daeosens.errors.InputError: level = 1
      expected: a number between 0 and 1
    """
    try:
        number = float(value) if is_real(value) else math.nan
    except OverflowError:
        number = math.inf
    within = least < number < most or (not inside and number in (least, most))
    if math.isfinite(number) and within:
        return number
    ends = math.isfinite(least), math.isfinite(most)
    told = {
        (False, False): "a finite number",
        (True, False): f"a finite number {'>' if inside else '>='} {least:g}",
        (False, True): f"a finite number {'<' if inside else '<='} {most:g}",
        (True, True): f"a number between {least:g} and {most:g}"
        if inside
        else f"a number from {least:g} to {most:g}",
    }
    raise InputError(f"{name} = {value!r}", expected=told[ends], remedy=remedy)


def is_iterable(values: object) -> TypeGuard[Iterable[Any]]:
    """Whether there are entries: arrays without an axis have none, but say that they do.

    Examples
    --------
    >>> is_iterable([]), is_iterable(np.array(1.0)), is_iterable(1.0)
    (True, False, False)
    """
    return isinstance(values, Iterable) and getattr(values, "ndim", 1) != 0


def whole_number(value: object, name: str, *, least: int = 0, most: int | None = None) -> int:
    """Return an argument that has to be an integer of a range.

    Raises
    ------
    InputError
        It is none, or outside of the range.

    Examples
    --------
    >>> whole_number(-1, "seed")
    Traceback (most recent call last):
        ...
    daeosens.errors.InputError: seed = -1
      expected: an integer of at least 0
    """
    if is_whole(value) and value >= least and (most is None or value <= most):
        return int(value)
    expected = f"an integer of at least {least}{'' if most is None else f' and at most {most}'}"
    raise InputError(f"{name} = {value!r}", expected=expected)


def name_list(names: object, argument: str) -> tuple[str, ...]:
    """Return names, and refuse a string, whose letters would be taken for them.

    Examples
    --------
    >>> name_list(["rate", "feed"], "names")
    ('rate', 'feed')
    """
    if isinstance(names, str):
        raise InputError(
            f'{argument} = "{names}", a string', expected="a list of names", remedy=f'["{names}"]'
        )
    listed = tuple(names) if is_iterable(names) else (names,)
    if not all(isinstance(name, str) for name in listed):
        raise InputError(
            f"{argument} = {names!r}", expected="a list of names", remedy='["rate", "feed"]'
        )
    return cast("tuple[str, ...]", listed)


def keyword(name: str) -> str:
    """Return what the user writes before "=" to supply the callback of this name.

    Examples
    --------
    >>> keyword('event "bounce" reset_u')
    'reset_u'
    """
    return name.rsplit(" ", 1)[-1]


def nearest(word: object, known: Iterable[str]) -> str:
    """Name the known word most like ``word``, quoted, or return an empty string.

    Examples
    --------
    >>> nearest("Beular", ["beuler", "cn"])
    '"beuler"'
    """
    if not isinstance(word, str):
        return ""
    folded = {candidate.casefold(): candidate for candidate in known}
    cutoff = 0.5 if len(word) < 4 else 0.55  # of a short word one letter is much
    matches = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=cutoff)
    return f'"{folded[matches[0]]}"' if matches else ""


def suggestion(word: object, known: Iterable[str]) -> str:
    """Return what a complaint ends with: the known word most like ``word``, or nothing.

    Examples
    --------
    >>> suggestion("beular", ["beuler", "cn"])
    '; try: "beuler"'
    """
    near = nearest(word, known)
    return f"; try: {near}" if near else ""


def together(problems: Iterable[str], *, heading: str, remedy: str = "") -> InputError:
    """Make one error of several complaints, so that they can be mended in one go.

    Examples
    --------
    >>> print(together(["a: missing", "b = nan"], heading="config.toml"))
    config.toml: 2 problems
      - a: missing
      - b = nan
    """
    listed = list(problems)
    count = f"{len(listed)} problem{'s' if len(listed) != 1 else ''}"
    what = "\n".join([f"{heading}: {count}", *(f"  - {line}" for line in listed)])
    return InputError(what, remedy=remedy)
