"""What holds objects of PETSc, which live in one process, and says so where it is pickled."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, ClassVar, NoReturn, Self, SupportsIndex

from daeosens.errors import UnsupportedError


class Unpicklable:
    """Base of classes whose objects cannot be sent to other processes, which name what can.

    Copies of them share what is inside; ``copy.deepcopy`` copies vectors too.

    Examples
    --------
    >>> import pickle
    >>> from daeosens import ODE
    >>> pickle.dumps(ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"]))
    Traceback (most recent call last):
        ...
    daeosens.errors.UnsupportedError: a Problem cannot be pickled: it holds objects of PETSc...
      try: a function that builds it, called in each process...
    """

    _in_its_place: ClassVar[str]
    """What can be sent, or done, instead."""

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn:
        """Refuse to be pickled, also as a part of something else.

        Raises
        ------
        UnsupportedError
            Says what to do instead.
        """
        raise self._refusal("pickled")

    def _refusal(self, done: str) -> UnsupportedError:
        name = type(self).__name__
        article = "an" if name[0] in "AEIOU" else "a"
        return UnsupportedError(
            f"{article} {name} cannot be {done}: it holds objects of PETSc, which live in one "
            "process",
            remedy=self._in_its_place,
        )

    def __copy__(self) -> Self:
        """Return another object with the same contents."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return another object with copies of the contents."""
        other = object.__new__(type(self))
        memo[id(self)] = other
        other.__dict__.update(deepcopy(self.__dict__, memo))
        return other


class Undivided(Unpicklable):
    """Base of those of which there is no copy in depth either: they hold solvers, or a cache."""

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        """Refuse to be copied in depth.

        Raises
        ------
        UnsupportedError
            Says what to do instead.
        """
        raise self._refusal("copied in depth")
