"""An ordinary problem, as data: what its user writes, and what is asked of it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Function = Callable[..., Any]
MARKS = Path(__file__).with_name("marks.toml")


@cache
def all_marks() -> dict[str, dict[str, str]]:
    """Return what is known not to work, by style and name."""
    return tomllib.loads(MARKS.read_text())


def marked(name: str, style: str) -> str:
    """Return "right", or how a case is known to fail in a style and why."""
    return all_marks().get(style, {}).get(name, "right")


@dataclass(frozen=True)
class Case:
    """M u' = rhs(t, u, p) or residual(t, u, u', p) = 0, a cost, and how a first-time user runs it.

    The gradient is asked for in x = (u0, p), along ``directions``; the Hessian product is that of
    ``hessian_direction``.  Both are scaled, so that entry i answers to a relative change of x_i.
    """

    name: str
    source: str
    u0: Sequence[float]
    p: Mapping[str, float]
    span: tuple[float, float]
    rhs: Function | None = None
    method: str = "rk6vr"
    rtol: float | None = 1e-8
    atol: float | None = None
    dt: float | None = None
    residual: Function | None = None
    mass: Any = None
    """A matrix or a function of p."""
    terminal: Function | None = None
    running: Function | None = None
    observed: tuple[Sequence[float], Sequence[int], Sequence[Sequence[float]], float] | None = None
    """Times, observed components, data [times, components], sigma."""
    events: Sequence[Mapping[str, Any]] = ()
    """Keyword arguments of ds.Event."""
    breakpoints: Sequence[float] = ()
    modes: Mapping[str, Function] = field(default_factory=dict)
    """Right-hand sides by mode, in the place of ``rhs``, with the first mode ``start``."""
    start: str = ""
    event_time: tuple[str, int] | None = None
    """The cost is the time of an event: its name and number."""
    stencil: tuple[Function, Mapping[str, Any]] | None = None
    """For ds.trace_stencil: f at a point and arguments of Grid; the cost is the mean square."""
    truth: Function | None = None
    """The cost as a function of x in closed form (mpmath), or by a program of its own (NumPy)."""
    exact: bool = True
    """Whether ``truth`` is a closed form, to be evaluated with 50 digits."""
    truth_of: str = ""
    """Another case, with the same solution: a constraint differentiated more often."""
    truth_tolerance: float = 1e-8
    """Of steps of the integrated truth, by which sensitivities may be amplified."""
    published: Mapping[int, float] = field(default_factory=dict)
    """Components of the last state as published with the test set."""
    published_digits: float = 1e-9
    accuracy: tuple[float, float, float] | None = None
    """Relative errors of value, gradient, Hessian product that a user expects of a fixed dt."""
    fixed_start: bool = False
    """Whether derivatives are by p alone: a start that algebraic equations hold."""
    n_directions: int | None = None
    """Directions in u0: all entries by default, so many random ones for large states."""

    @property
    def marks(self) -> dict[str, str]:
        """What each style is expected to do: "right", or what else and why."""
        return {style: marked(self.name, style) for style in self.styles}

    @property
    def styles(self) -> tuple[str, ...]:
        """The ways in which it is written: ds.ODE, ds.trace, ds.trace_stencil."""
        if self.residual is not None:
            return ("numpy",)
        return ("numpy", "traced") if self.stencil is None else ("numpy", "traced", "stencil")

    @property
    def x(self) -> np.ndarray:
        """(u0, p) [n + m]."""
        return np.array([*self.u0, *self.p.values()], dtype=float)

    @property
    def scales(self) -> np.ndarray:
        """Sizes of the entries of x: their own, of zeros that of the others."""
        n = len(self.u0)

        def sizes(values: np.ndarray) -> np.ndarray:
            largest = abs(values).max(initial=0.0) or 1.0
            return np.where(values == 0, largest, abs(values))

        return np.concatenate([sizes(self.x[:n]), sizes(self.x[n:])])

    @property
    def directions(self) -> np.ndarray:
        """Directions in x [k, n + m] along which derivatives are compared."""
        n, size = len(self.u0), len(self.x)
        unit = np.eye(size)
        if self.consistent or self.fixed_start:
            unit = unit[n:]
        elif self.n_directions is not None:
            rng = np.random.default_rng(1)
            mixed = np.zeros((self.n_directions, size))
            mixed[:, :n] = rng.normal(size=(self.n_directions, n))
            unit = np.concatenate([mixed, unit[n:]])
        return unit * self.scales

    @property
    def hessian_direction(self) -> np.ndarray:
        """The direction [n + m] of the Hessian product."""
        rng = np.random.default_rng(2)
        kinds = rng.uniform(0.5, 1.0, len(self.x)) * rng.choice([-1.0, 1.0], len(self.x))
        if self.consistent or self.fixed_start:
            kinds[: len(self.u0)] = 0.0
        return kinds * self.scales

    @property
    def consistent(self) -> bool:
        """Whether the start has to satisfy algebraic equations, and follows p therefore."""
        if self.residual is not None:
            return not self.fixed_start
        if self.mass is None or callable(self.mass) or self.fixed_start:
            return False
        return np.linalg.matrix_rank(np.asarray(self.mass)) < len(self.u0)

    @property
    def tolerances(self) -> tuple[float, float, float]:
        """Relative errors that are accepted: of the value, the gradient, the Hessian product."""
        if self.accuracy is not None:
            return self.accuracy
        assert self.rtol is not None, f"{self.name}: fixed steps need accuracy="
        return 100 * self.rtol, 1000 * self.rtol, 1000 * self.rtol
