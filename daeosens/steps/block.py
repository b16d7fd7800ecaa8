"""Blocks of steps: what the sweeps over many steps, points and costs at once have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from daeosens.arrays import Array


@dataclass(frozen=True, eq=False)
class Block:
    """Some successive steps of a run.

    Attributes
    ----------
    first : int
        Number of the state before the first of the S steps.
    times, sizes : array [S]
        Where the steps begin, and how long they are [time unit].
    states : array [S+1, n]
        The states before and after them.
    p : array [m]
        The parameters.
    stages : array [S, s, n], optional
        Stage states of Runge-Kutta steps, if they were kept.
    """

    first: int
    times: Array
    sizes: Array
    states: Array
    p: Array
    stages: Array | None = None


@dataclass(frozen=True, eq=False)
class Points:
    """The K points at which a block of steps evaluates the equations.

    Attributes
    ----------
    t : array [K]
        Times as callbacks see them [time unit].
    u : array [K, n]
        States.
    share : array [K]
        Weights of the points in the quadrature of running costs [time unit].
    """

    t: Array
    u: Array
    share: Array


Seed = Callable[[int, Array], None]
"""``seed(number of a state, lam [M, n])`` adds what costs say about that state."""


class BlockSteps(Protocol):
    """The transposed steps of one method, for a block of steps and M costs at once."""

    @property
    def points_per_step(self) -> int:
        """At how many points a step evaluates the equations, at most."""
        ...

    def points(self, block: Block) -> Points:
        """Return the points of a block's steps."""
        ...

    def carry(
        self, block: Block, jacobians: Array, lam: Array, slopes: Array | None, seed: Seed
    ) -> Array:
        """Carry ``lam`` [M, n] from after the last step to before the first one, in place.

        Parameters
        ----------
        block : Block
            The steps.
        jacobians : array [K, n, n]
            f_u at the points.
        lam : array [M, n]
            Adjoints of the state after the last step; what costs say there is in it already.
        slopes : array [K, M, n], optional
            Gradients of the running costs at the points.
        seed : callable
            Called with the number of every other state and its adjoints, going back.

        Returns
        -------
        array [K, M, n]
            Weights w of the points: the adjoints of the parameters grow by the sum of f_p^T w.
        """
        ...
