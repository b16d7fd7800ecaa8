"""Events: what may happen to a state along a run, as descriptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from daeosens.errors import InputError


@dataclass(frozen=True, eq=False)
class Event:
    """Something that happens where a function of (t, u, p) crosses zero, or at a given time.

    Parameters
    ----------
    when : callable, float or str
        ``when(t, u, p) -> float``, the same on every rank, whose zero the run finds; or a time; or
        the name of a parameter that is the time.
    reset : callable, optional
        ``reset(t, u, p) -> array [n]``, PETSc style ``(t, u, p, out)``: the state afterwards.
    changes : mapping of str to callable
        Parameters that have another value afterwards: ``{name: (t, u, p) -> float}``, functions of
        time, state and parameters before the event.  A ``Terminal`` in place of a function carries
        its derivatives.  Costs see the parameters of their time, a ``Prior`` those of the start.
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
    when_u, when_p, when_t, when_hessian, when_hessian_t : callable, optional
        Derivatives of ``when``, as those of ``Terminal``; by complex step where missing, if NumPy
        style.  ``when_t`` may be "autonomous".
    reset_u, reset_p, reset_t, reset_hessian, reset_hessian_t : callable, optional
        Derivatives of ``reset``, as those of the rhs of an ``ODE``.

    Raises
    ------
    InputError
        A direction that is none, a time that is not finite, a callback that cannot be called.

    Examples
    --------
    >>> bounce = Event(lambda t, u, p: u[0], lambda t, u, p: u * [1.0, -0.8], direction=-1)
    >>> bounce.explicit
    False
    """

    when: Callable[..., Any] | float | str
    reset: Callable[..., Any] | None = None
    direction: int = 0
    terminal: bool = False
    mode: str | None = None
    within: Sequence[str] = ()
    name: str = "event"
    when_u: Callable[..., Any] | None = None
    when_p: Callable[..., Any] | str | None = None
    when_t: Callable[..., Any] | str | None = None
    reset_u: Any = None
    reset_p: Any = None
    reset_t: Callable[..., Any] | str | None = None
    when_hessian: Callable[..., Any] | None = None
    when_hessian_t: Callable[..., Any] | str | None = None
    reset_hessian: Callable[..., Any] | None = None
    reset_hessian_t: Callable[..., Any] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.direction not in (-1, 0, 1):
            raise InputError(
                f'event "{self.name}": direction = {self.direction!r}',
                expected="-1 (falling), 0 (both) or 1 (rising)",
            )
        if not callable(self.when) and not (
            isinstance(self.when, str)
            or (isinstance(self.when, (int, float)) and math.isfinite(self.when))
        ):
            raise InputError(
                f'event "{self.name}": when = {self.when!r}',
                expected="a function (t, u, p) -> float, a finite time, or a parameter's name",
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
        """Whether it happens at a time that does not depend on the parameters."""
        return isinstance(self.when, (int, float))
