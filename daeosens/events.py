"""Events: what may happen to a state along a run, as descriptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from daeosens.errors import InputError


@dataclass(frozen=True, eq=False)
class Event:
    """Something that happens where a function of (t, u, p) crosses zero, or at a given time.

    Parameters
    ----------
    when : callable or float
        ``when(t, u, p) -> float``, the same on every rank, whose zero the run finds; or a time.
    reset : callable, optional
        ``reset(t, u, p) -> array [n]``, PETSc style ``(t, u, p, out)``: the state afterwards.
    direction : -1, 0 or 1
        Only falling, all, or only rising crossings.
    terminal : bool
        The run ends there.
    mode : str, optional
        The mode that the equations go on in, see ``hybrid``.
    within : sequence of str
        The modes in which it can happen; in all of them where empty.
    name : str
        For tables and messages.
    twice : "resolve" or "refuse"
        What to do where the surface is crossed more than once within one step: find the first
        crossing that counts, like any other, or end with an error.
    when_u, when_p, when_t : callable, optional
        Derivatives of ``when``, as those of ``Terminal``; by complex step where missing, if NumPy
        style.  ``when_t`` may be "autonomous".
    reset_u, reset_p, reset_t : callable, optional
        Derivatives of ``reset``, as those of the rhs of an ``ODE``.

    Raises
    ------
    InputError
        A direction that is none, a time that is not finite, a callback that cannot be called,
        another word for ``twice``.

    Examples
    --------
    >>> bounce = Event(lambda t, u, p: u[0], lambda t, u, p: u * [1.0, -0.8], direction=-1)
    >>> bounce.explicit
    False
    """

    when: Callable[..., Any] | float
    reset: Callable[..., Any] | None = None
    direction: int = 0
    terminal: bool = False
    mode: str | None = None
    within: Sequence[str] = ()
    name: str = "event"
    twice: Literal["resolve", "refuse"] = "resolve"
    when_u: Callable[..., Any] | None = None
    when_p: Callable[..., Any] | str | None = None
    when_t: Callable[..., Any] | str | None = None
    reset_u: Any = None
    reset_p: Any = None
    reset_t: Callable[..., Any] | str | None = None

    def __post_init__(self) -> None:
        if self.direction not in (-1, 0, 1):
            raise InputError(
                f'event "{self.name}": direction = {self.direction!r}',
                expected="-1 (falling), 0 (both) or 1 (rising)",
            )
        if self.twice not in ("resolve", "refuse"):
            raise InputError(
                f'event "{self.name}": twice = {self.twice!r}', expected='"resolve" or "refuse"'
            )
        if not callable(self.when) and not (
            isinstance(self.when, (int, float)) and math.isfinite(self.when)
        ):
            raise InputError(
                f'event "{self.name}": when = {self.when!r}',
                expected="a function (t, u, p) -> float, or a finite time",
            )
        if self.reset is not None and not callable(self.reset):
            raise InputError(
                f'event "{self.name}": reset = {self.reset!r}',
                expected="a function (t, u, p) -> array [n]",
            )

    def active(self, mode: str) -> bool:
        """Whether it can happen in a mode."""
        return not self.within or mode in self.within

    @property
    def explicit(self) -> bool:
        """Whether it happens at a given time."""
        return not callable(self.when)
