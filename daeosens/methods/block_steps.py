"""Blocks of steps: what the sweeps over many steps, points and costs at once have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from scipy.linalg import lapack

from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array
from daeosens.problem.batched.protocol import Batch

_LAPACK: Any = lapack  # its stubs leave the routines untyped


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


Factors: TypeAlias = "tuple[tuple[Any, Any], ...]"
"""LAPACK's factors and pivots of the transposed matrix of each step; none of explicit steps."""


@dataclass(frozen=True, eq=False)
class LinearBlock:
    """A block of steps and its equations linearised: all that sweeps in either direction need.

    Attributes
    ----------
    block : Block
        The steps.
    points : Points
        Where they evaluate the equations.
    jacobians : array [K, n, n]
        f_u there.
    factors : tuple of (array [n, n], array [n])
        One for each implicit step, which serves all solves.
    """

    block: Block
    points: Points
    jacobians: Array
    factors: Factors


@dataclass(frozen=True, eq=False)
class BlockTangent:
    """Derivatives of a block along D directions: of its S+1 states, and of the states at K points.

    Attributes
    ----------
    states : array [S+1, D, n]
    points : array [K, D, n]
    """

    states: Array
    points: Array


Seed = Callable[[int, Array], None]
"""``seed(number of a state, lam [M, n])`` adds what costs say about that state."""


class BlockSteps(Protocol):
    """The linearised steps of one method, for a block of steps and many vectors at once."""

    @property
    def points_per_step(self) -> int:
        """At how many points a step evaluates the equations, at most."""
        ...

    def points(self, block: Block) -> Points:
        """Return the points of a block's steps."""
        ...

    def factors(self, block: Block, jacobians: Array) -> Factors:
        """Return the factors of the matrices that the steps solve with."""
        ...

    def push(self, linear: LinearBlock, du: Array, sources: Array | None) -> BlockTangent:
        """Carry tangents from before the first step to after the last one.

        Parameters
        ----------
        linear : LinearBlock
            The steps.
        du : array [D, n]
            Tangents of the state before the first step; kept.
        sources : array [K, D, n], optional
            What is added to f_u du at the points: f_p dp.
        """
        ...

    def carry(self, linear: LinearBlock, lam: Array, sources: Array | None, seed: Seed) -> Array:
        """Carry ``lam`` [M, n] from after the last step to before the first one, in place.

        Parameters
        ----------
        linear : LinearBlock
            The steps.
        lam : array [M, n]
            Adjoints of the state after the last step; what costs say there is in it already.
        sources : array [K, M, n], optional
            What is added to f_u^T w at the points: the gradients of running costs, with the shares
            of the points, or second derivatives.
        seed : callable
            Called with the number of every other state and its adjoints, going back.

        Returns
        -------
        array [K, M, n]
            Weights w of the points: the adjoints of the parameters grow by the sum of f_p^T w.
        """
        ...


def factorised(matrix: Array, t: float, regular: str, remedy: str) -> tuple[Any, Any]:
    """Return LAPACK's factors and pivots of a transposed matrix [n, n], which is overwritten.

    Raises
    ------
    SolveError
        It is singular: the step from ``t`` needs a ``regular`` one.
    """
    # a matrix in row order is its transpose in LAPACK's order
    factors, pivots, fault = _LAPACK.dgetrf(matrix.T, overwrite_a=1)
    if fault:
        raise SolveError(
            f"the matrix of the step from t = {t:.9g} is singular",
            expected=f"a regular matrix {regular}",
            remedy=remedy,
        )
    return factors, pivots


def solved(factors: tuple[Any, Any], right: Array, *, transposed: bool = False) -> Array:
    """Return the rows x [M, n] with x A = right or, transposed, A x^T = right^T."""
    # the rows of the right-hand side are LAPACK's columns, and what is factorised is A^T
    solution: Array = _LAPACK.dgetrs(*factors, right.T, trans=int(transposed))[0].T
    return solution


def linearised(steps: BlockSteps, block: Block, batch: Batch) -> LinearBlock:
    """Return a block of steps with its Jacobians evaluated and, for implicit ones, factorised."""
    points = steps.points(block)
    # callbacks see these arrays: one that writes to them would spoil the linearisation in silence
    points.u.flags.writeable = False
    jacobians = batch.jacobian(points.t, points.u, block.p)
    return LinearBlock(block, points, jacobians, steps.factors(block, jacobians))
