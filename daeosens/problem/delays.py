"""What is delayed in a problem, at many points at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daeosens.errors import NotFiniteError, SolveError
from daeosens.petsc.vectors import Array
from daeosens.problem.batched.protocol import Batch
from daeosens.problem.branches import Branches


@dataclass(frozen=True, eq=False)
class Delays:
    """What is delayed in a problem, and its equations at many points at once.

    Attributes
    ----------
    names : tuple of str
        How messages call each of the d delays.
    rates : Batch
        (0, f, 0) [1+n+dn] of points y = (t, u, z): an ODE in which the point is the state.
    lags : Batch
        The delays [d], which depend on p alone, of states [d] that they do not read.
    past : Batch
        phi [n] of states [n] of which the first entry is the time.
    rate, lag, history : callable
        f [n] at (y, p), the delays [d] at p, phi [n] at (t, p).
    branches, branches_of_past : Branches or None
        What decides in f, at (t, (u, z), p), and in phi, at (t, anything, p).
    """

    names: tuple[str, ...]
    rates: Batch
    lags: Batch
    past: Batch
    rate: Callable[[Array, Array], Array]
    lag: Callable[[Array], Array]
    history: Callable[[float, Array], Array]
    branches: Branches | None = None
    branches_of_past: Branches | None = None

    @property
    def count(self) -> int:
        """Number d of delays."""
        return len(self.names)

    def values(self, p: Array) -> Array:
        """Return the delays [d].

        Raises
        ------
        SolveError
            One is not positive at these parameters; names it.
        """
        tau = self.lag(p)
        if (tau <= 0.0).any():
            k = int(np.argmin(tau))
            raise SolveError(
                f"delay {self.names[k]} = {tau[k]:g}",
                expected="a positive delay",
                remedy='bounds of parameters, or Parameter(..., scale="log")',
            )
        return tau

    def seen(self, number: int, tau: float, t: float, p: Array) -> Array:
        """Return the history [n] at a time ``t``, as a delay of that value sees it.

        Raises
        ------
        NotFiniteError
            It has none; names the delay.
        """
        try:
            return self.history(t, p)
        except NotFiniteError as error:
            raise NotFiniteError(
                f"the history is not finite at t = {t:.6g}, to which delay {self.names[number]} = "
                f"{tau:.6g} looks back",
                expected="finite values at all times that delays look back to",
                remedy="a history that goes back further, a shorter delay, or upper= of a "
                "Parameter",
            ) from error

    def start(self, t: float, u: Array, p: Array) -> Array:
        """Return the point y where a run begins: all that is delayed is history."""
        delays = enumerate(self.values(p).tolist())
        past = [self.seen(number, tau, t - tau, p) for number, tau in delays]
        return np.concatenate([[t], u, *past])

    def try_second_derivatives(self, t: float, u: Array, p: Array) -> None:
        """Evaluate every second derivative once where a run begins.

        Raises
        ------
        UnsupportedError
            One that cannot be had; names the function.
        """
        y, dp = self.start(t, u, p), np.ones((1, len(p)))
        earlier = np.zeros_like(u)
        earlier[0] = t - float(self.lag(p).min())
        for batch, point in ((self.rates, y), (self.past, earlier), (self.lags, self.lag(p))):
            ones = np.ones((1, 1, len(point)))
            batch.hessian_product(np.zeros(1), point[None], p, ones[0], ones, dp)
