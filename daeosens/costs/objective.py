"""Costs: terminal, running, at an event and its time; sums of them.

A cost is lowered to scalar functions of (t, u, p): some at fixed times, some integrated in time
with the quadrature of the method.  The sweeps know nothing else (docs/mathematics.md, section 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral, Real
from typing import Any, Literal, Protocol

from daeosens.costs.cost import At, Cost, Scalar, When
from daeosens.costs.scalar import callback_of
from daeosens.costs.scalar_derivatives import Derivatives, Keywords
from daeosens.errors import InputError, is_one_of, nearest, require
from daeosens.problem.branches import Branches
from daeosens.problem.problem import INDEPENDENT, Problem


class Objective(Protocol):
    """What can be differentiated: anything that lowers itself to a ``Cost``."""

    @property
    def times(self) -> tuple[float, ...]:
        """Observation times [time unit] which the steps have to hit; the final time excepted."""
        ...

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return the cost on PETSc vectors, after checking shapes."""
        ...


def is_objective(thing: object) -> bool:
    """Whether something lowers itself to a cost; words have a method of that name."""
    return callable(getattr(thing, "lower", None)) and not isinstance(thing, (str, bytes, type))


class Addable:
    """The operators of objectives: sums, differences and multiples of them."""

    def __add__(self: Any, other: Any) -> Sum:
        return Sum(((1.0, self), (1.0, other))) if is_objective(other) else NotImplemented

    def __radd__(self: Any, zero: object) -> Any:
        # the 0 that Python's ``sum`` begins with
        return self if isinstance(zero, int) and zero == 0 else NotImplemented

    def __sub__(self: Any, other: Any) -> Sum:
        return Sum(((1.0, self), (-1.0, other))) if is_objective(other) else NotImplemented

    def __neg__(self: Any) -> Sum:
        """Return the objective with the other sign, to be maximised."""
        return Sum(((-1.0, self),))

    def __mul__(self: Any, weight: float) -> Sum:
        if not isinstance(weight, Real):
            return NotImplemented
        if not math.isfinite(weight):
            raise InputError(f"an objective times {weight}", expected="a finite weight")
        return Sum(((float(weight), self),))

    __rmul__ = __mul__


def require_objective(objective: object) -> None:
    """Refuse what is no objective: a bare function, for instance.

    Raises
    ------
    InputError
        Names its type.
    """
    if not is_objective(objective):
        kind = type(objective).__name__
        if isinstance(objective, type):
            kind = f"the class {objective.__name__}"
        raise InputError(
            f"the objective is {kind}",
            expected="Terminal, Running, LeastSquares and the like, or a sum of them",
            remedy="Terminal(function), or model.terminal(function) of a traced model",
        )


@dataclass(frozen=True, eq=False)
class Sum(Addable):
    """A weighted sum of objectives; written ``2.0 * first + second``."""

    terms: tuple[tuple[float, Objective], ...]

    @property
    def times(self) -> tuple[float, ...]:
        """Observation times of all terms, sorted."""
        return tuple(sorted({time for _, term in self.terms for time in term.times}))

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Collect the lowered terms."""
        points: list[tuple[When, float, Scalar]] = []
        densities: list[tuple[float, Scalar]] = []
        for weight, term in self.terms:
            cost = term.lower(problem, final_time)
            # Sums of sums become one flat list; weights multiply.
            points += [(time, weight * factor, scalar) for time, factor, scalar in cost.points]
            densities += [(weight * factor, scalar) for factor, scalar in cost.densities]
        return Cost(tuple(points), tuple(densities))


@dataclass(frozen=True, eq=False)
class Terminal(Addable):
    """psi(T, u(T), p).

    Parameters
    ----------
    value : callable
        ``value(t, u, p) -> float``, the same on every rank; u an array [n] or, PETSc style, a Vec.
    gradient_u : callable, optional
        NumPy style ``(t, u, p) -> array [n]``, automatic where missing; PETSc style
        ``(t, u, p, out)``.
    gradient_p : callable or "independent", optional
        ``(t, u, p) -> array [m]``; for a field ``(t, u, p, out)``.
    hessian_product : callable, optional
        The derivatives of both gradients along (du, dp): NumPy style
        ``(t, u, p, du, dp) -> (array [n], array [m])``, automatic where missing; PETSc style
        ``(t, u, p, du, dp, out) -> array [m]``, for a field ``(..., out_u, out_p)``.
    value_t : callable or "autonomous", optional
        ``(t, u, p) -> float``; only needed where an event ends the run.
    hessian_t : callable or "independent", optional
        The derivatives of ``value_t`` in u, p and t, for Hessians where it is needed: NumPy style
        ``(t, u, p) -> (array [n], array [m], float)``, automatic where missing; PETSc style
        ``(t, u, p, out) -> (array [m], float)``, for a field ``(..., out_u, out_p) -> float``.
        "independent": ``value_t`` is constant.
    branches : callable, optional
        What ``value`` compares, of traced costs; known of NumPy functions.  For ``KinkWarning``.

    Examples
    --------
    >>> energy = Terminal(lambda t, u, p: 0.5 * u[0] ** 2)
    """

    value: Callable[..., Any]
    gradient_u: Callable[..., Any] | None = None
    gradient_p: Callable[..., Any] | str | None = None
    hessian_product: Callable[..., Any] | None = None
    value_t: Callable[..., Any] | str | None = None
    hessian_t: Callable[..., Any] | str | None = None
    branches: Branches | None = field(default=None, repr=False)

    @property
    def times(self) -> tuple[float, ...]:
        """None: the final time is always a step."""
        return ()

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return one scalar at the final time."""
        scalar = callback_of(
            self, problem, "terminal", self.value, self._derivatives, branches=self.branches
        )
        return Cost(points=((final_time, 1.0, scalar),))

    @cached_property
    def _derivatives(self) -> Derivatives:
        return Derivatives(
            self.gradient_u, self.gradient_p, self.value_t, self.hessian_product, self.hessian_t
        )


@dataclass(frozen=True, eq=False)
class AtEvent(Addable):
    """A function of time, state and parameters at an event.

    Parameters
    ----------
    value : callable
        ``value(t, u, p) -> float``, as for ``Terminal``.
    event : str
        Its name.
    number : int
        Which of those with that name; 0 is the first one, -1 the last.
    side : "before" or "after"
        Which state: that before the reset or the one after it.
    gradient_u, gradient_p, value_t, hessian_product, hessian_t
        As for ``Terminal``.

    Raises
    ------
    InputError
        Another side.

    Examples
    --------
    >>> AtEvent(lambda t, u, p: u[1], "bounce").times
    ()
    """

    value: Callable[..., Any]
    event: str
    number: int = 0
    side: Literal["before", "after"] = "before"
    gradient_u: Callable[..., Any] | str | None = None
    gradient_p: Callable[..., Any] | str | None = None
    value_t: Callable[..., Any] | str | None = None
    hessian_product: Callable[..., Any] | None = None
    hessian_t: Callable[..., Any] | str | None = None

    def __post_init__(self) -> None:
        require(self.event, str, "event", 'AtEvent(function, "name of the event")')
        if isinstance(self.number, bool) or not isinstance(self.number, Integral):
            raise InputError(f"number = {self.number!r}", expected="an integer: 0, 1, ..., or -1")
        if not is_one_of(self.side, "before", "after"):
            raise InputError(f"side = {self.side!r}", expected='"before" or "after"')

    @property
    def times(self) -> tuple[float, ...]:
        """None: the event decides."""
        return ()

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return one scalar at the event."""
        require_event(problem, self.event)
        derivatives = Derivatives(
            self.gradient_u, self.gradient_p, self.value_t, self.hessian_product, self.hessian_t
        )
        scalar = callback_of(self, problem, f'at event "{self.event}"', self.value, derivatives)
        return Cost(points=((At(self.event, self.number, self.side == "after"), 1.0, scalar),))


def require_event(problem: Problem, event: str) -> None:
    """Refuse an event that the problem does not have.

    Raises
    ------
    InputError
        Names those that it has.
    """
    # Those that a monitor finds on the way are not declared, but it knows their names.
    names = [known.name for known in problem.events]
    if problem.monitor is not None:
        names += problem.monitor().names
    if event not in names:
        raise InputError(
            f'no event is named "{event}"',
            expected=", ".join(names) or "a problem with events",
            remedy=nearest(event, names),
        )


def EventTime(event: str, number: int = 0) -> AtEvent:  # noqa: N802 (a noun, like Terminal)
    """Return the time of an event as a cost.

    Parameters
    ----------
    event, number
        As for ``AtEvent``.

    Examples
    --------
    >>> EventTime("bounce", -1).number
    -1
    """
    return AtEvent(
        # A cost of any form at the event whose value is the time itself: all that is said of its
        # derivatives is that d/dt = 1.
        lambda t, _u, _p: t,
        event,
        number,
        gradient_u=INDEPENDENT,
        gradient_p=INDEPENDENT,
        value_t=lambda _t, _u, _p: 1.0,
        hessian_t=INDEPENDENT,
    )


@dataclass(frozen=True, eq=False)
class Running(Addable):
    """int r(t, u, p) dt over the time span, with the quadrature of the method itself.

    Runge-Kutta: h sum b_i r_i; theta: h [(1 - theta) r_n + theta r_{n+1}]; midpoint: h r(stage).

    Parameters
    ----------
    density : callable
        ``density(t, u, p) -> float`` [cost / time unit], the same on every rank.
    gradient_u, gradient_p, hessian_product, hessian_t
        As for ``Terminal``.
    density_t : callable or "autonomous", optional
        ``(t, u, p) -> float``; only needed where step times are differentiated.
    branches : callable, optional
        What ``density`` compares, of traced costs; known of NumPy functions.  For ``KinkWarning``.

    Examples
    --------
    >>> effort = Running(lambda t, u, p: p[0] ** 2)
    """

    density: Callable[..., Any]
    gradient_u: Callable[..., Any] | None = None
    gradient_p: Callable[..., Any] | str | None = None
    density_t: Callable[..., Any] | str | None = None
    hessian_product: Callable[..., Any] | None = None
    hessian_t: Callable[..., Any] | str | None = None
    branches: Branches | None = field(default=None, repr=False)

    @property
    def times(self) -> tuple[float, ...]:
        """None: the quadrature uses the steps as they come."""
        return ()

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return one density."""
        derivatives = Derivatives(
            self.gradient_u, self.gradient_p, self.density_t, self.hessian_product, self.hessian_t
        )
        # The integral is taken by the sweeps, stage by stage, with the weights of the method
        # (docs/mathematics.md, section 2).
        keywords = Keywords(t="density_t")
        scalar = callback_of(
            self, problem, "running", self.density, derivatives, keywords, self.branches
        )
        return Cost(densities=((1.0, scalar),))
