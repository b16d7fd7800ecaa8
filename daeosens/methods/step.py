"""A step, what sweeps carry over it, and what they ask of the map that it is."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from petsc4py import PETSc

from daeosens.costs.cost import Densities, Point
from daeosens.petsc.vectors import Array

Kept: TypeAlias = "Mapping[int, Sequence[PETSc.Vec]]"
"""Stage states by the number of the step."""

Weights: TypeAlias = "dict[tuple[int, str], list[PETSc.Vec]]"
"""Adjoints of stages by the number of the step and the name of a part."""


class Step(NamedTuple):
    """From the state u [n] at time t to u_next [n] at t + h, with parameters p; a jump has h = 0.

    The parameters are as callbacks see them; ``number`` is that of the step in its run.
    """

    t: float
    h: float
    u: PETSc.Vec
    u_next: PETSc.Vec
    p: Any
    number: int = 0


def weighted(points: Sequence[Point], weights: Array, densities: Densities) -> float:
    """Return sum_i b_i r_i of the densities at the stages of a step, with weights b [s]."""
    return sum(
        b * factor * density.value(*point)
        for b, point in zip(weights.tolist(), points, strict=True)
        if b
        for factor, density in densities
    )


@dataclass(frozen=True, eq=False)
class Adjoint:
    """The adjoints lam [n] and mu [m] of one cost.

    Attributes
    ----------
    weights : mapping or None
        The adjoints of each step's stages by the number of the step, and what else a part of a
        jump needs by its name; kept for later sweeps of the same cost.
    multipliers : mapping
        Those of event functions, by the number of the step; kept with the weights.
    known : bool
        They are all there: lam and mu need not be carried.
    """

    lam: PETSc.Vec
    mu: PETSc.Vec
    weights: Weights | None = None
    multipliers: dict[int, float] = field(default_factory=dict[int, float])
    known: bool = False

    def keep(self, step: Step, weight: PETSc.Vec, part: str = "") -> None:
        """Keep the adjoint of one more stage of a step, or of a part of a jump."""
        if self.weights is not None:
            # products with one Hessian along several directions share the adjoints of all stages
            self.weights.setdefault((step.number, part), []).append(weight.copy())

    def kept(self, step: Step, part: str = "") -> list[PETSc.Vec] | None:
        """Return what was kept of a step where the adjoint is known, in the order of keeping."""
        return self.weights[step.number, part] if self.known and self.weights else None


@dataclass(frozen=True, eq=False)
class SecondOrder:
    """One direction on one step.

    Attributes
    ----------
    du, du_next : Vec [n]
        The tangent before and after the step.
    dp : array or Vec [m]
        Direction in the parameters, as callbacks see them.
    dp_vec : Vec [m]
        The same as a vector.
    lam_dot, mu_dot : Vec [n], Vec [m]
        Derivatives of the adjoints along the direction.
    dt, dh : float
        Derivatives of the time before the step and of its size.
    """

    du: PETSc.Vec
    du_next: PETSc.Vec
    dp: Any
    dp_vec: PETSc.Vec
    lam_dot: PETSc.Vec
    mu_dot: PETSc.Vec
    dt: float = 0.0
    dh: float = 0.0


class SecondOrderMap(Protocol):
    """The adjoint of a step together with its derivatives along directions."""

    def __call__(
        self,
        step: Step,
        first: Adjoint,
        directions: Sequence[SecondOrder],
        densities: Densities,
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry one adjoint and its derivatives along several directions back over one step.

        Parameters
        ----------
        step : Step
            From which state, with which size and parameters.
        first : Adjoint
            lam [n], overwritten, and mu [m], added to.
        directions : sequence of SecondOrder
            The tangent before the step, and lam_dot [n], overwritten, mu_dot [m], added to.
        densities : sequence of (float, Scalar)
            Running costs with their weights.
        times : bool
            Differentiate in t and h too, and return those derivatives.

        Returns
        -------
        list of (float, float)
            The adjoints of t and of h (zeros if they are known), and their derivative along each
            direction; empty without ``times``.
        """
        ...


class StepMap(Protocol):
    """u_{n+1} = Phi(u_n, p, t_n, h_n): derivative of one step, forward and transposed."""

    @property
    def dt(self) -> float:
        """The derivative of the time of the state that a tangent has reached."""
        ...

    @property
    def dp(self) -> PETSc.Vec | None:
        """The derivative of the parameters there, if events have changed it."""
        ...

    def quadrature(self, step: Step, densities: Densities) -> float:
        """Return the step's part of the running costs."""
        ...

    def tangent(
        self,
        step: Step,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        dt: float = 0.0,
        dh: float = 0.0,
        densities: Densities = (),
    ) -> float:
        """Overwrite ``du`` [n] before the step with the one after it.

        Parameters
        ----------
        step : Step
            From which state, with which size and parameters.
        du, dp : Vec [n], Vec [m] or None
            Direction in the state (overwritten) and in the parameters.
        dt, dh : float
            Direction in the start and the size of the step.
        densities : sequence of (float, Scalar)
            Running costs with their weights.

        Returns
        -------
        float
            Directional derivative of the step's part of the running costs.
        """
        ...

    def adjoint(
        self,
        step: Step,
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
        densities: Sequence[Densities],
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry the adjoints of several costs back over one step.

        Parameters
        ----------
        step : Step
            From which state, with which size and parameters.
        lam, mu : sequences of Vec [n], Vec [m]
            Adjoints of the state after the step (overwritten by those before it) and of the
            parameters (added to), one for each cost.
        densities : sequence of sequences of (float, Scalar)
            Running costs with their weights, for each cost.
        times : bool
            Return the adjoints of t and h too.

        Returns
        -------
        list of (float, float)
            For each cost the derivatives with respect to t and to h; empty without ``times``.
        """
        ...

    def add_time(self, k: int, slope: float) -> None:
        """Add to the adjoint of the time of the state reached, for cost k: runs with events."""
        ...

    @property
    def second_order(self) -> SecondOrderMap:
        """What carries one adjoint and its derivatives along directions back over one step."""
        ...


class FixedTimes:
    """What step maps of smooth runs say of times and parameters: nothing moves them."""

    dt, dp = 0.0, None

    def add_time(self, k: int, slope: float) -> None:
        """Do nothing: the times of smooth steps are fixed."""


@runtime_checkable
class SharedMap(Protocol):
    """A step map that several directions go by, one after the other at each step."""

    def share(self) -> None:
        """Keep what a step is linearised by until the next one."""
        ...


@runtime_checkable
class LooksAhead(Protocol):
    """A step map that evaluates derivatives at the points of several steps at once."""

    @property
    def block(self) -> int:
        """How many steps are to be announced at a time; 1 if nothing is gained by it."""
        ...

    def ahead(self, steps: Sequence[Step]) -> None:
        """Be told which steps follow, in any order."""
        ...


def announced(
    steps: StepMap, numbers: range, step: Callable[[int], Step], *, thinned: bool
) -> Generator[Step]:
    """Yield the steps with these numbers, of which the map is told some ahead.

    None of a ``thinned`` run, which takes its states again one window after the other.
    """
    # whether it has all that a protocol asks for takes longer than a small step through an event
    block = 1 if thinned or len(numbers) < 2 else getattr(steps, "block", 1)
    if block == 1:
        yield from map(step, numbers)
        return
    assert isinstance(steps, LooksAhead)
    for first in range(0, len(numbers), block):
        following = [step(number) for number in numbers[first : first + block]]
        steps.ahead(following)
        yield from following


@runtime_checkable
class TakesSteps(Protocol):
    """What the step map of an explicit method does besides: it takes steps itself.

    In search of an event, where a step of TS would take longer.
    """

    def advance(
        self, t: float, h: float, u: PETSc.Vec, p: Any, out: PETSc.Vec, *, again: bool = False
    ) -> None:
        """Fill ``out`` [n] with the state after one step of size ``h`` from ``u`` [n] at ``t``.

        ``again`` says that the last step began just there.
        """
        ...


ErrorMap: TypeAlias = "Callable[[Step, PETSc.Vec, PETSc.Vec | None], None]"
"""``error(step, du, dp)`` overwrites the tangent before a step with that of its error estimate."""

QuadratureError: TypeAlias = "Callable[[Step, Densities], float]"
"""``error(step, densities)``: what a step's part of running costs differs by from another rule."""
