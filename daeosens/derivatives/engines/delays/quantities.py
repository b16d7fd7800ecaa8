"""What sweeps over a run of a delay equation carry: tangents, adjoints, what enters them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from petsc4py import PETSc

from daeosens.costs.scalar import Callback
from daeosens.petsc.vectors import Array


@dataclass(frozen=True, eq=False)
class Tangents:
    """Derivatives along D directions.

    Attributes
    ----------
    dp, dclock : array [D, m], [D, c]
        Of parameters and clocks.
    du, dk : array [N+1, n, D], [N, S, n, D]
        Of states and rates.
    """

    dp: Array
    dclock: Array
    du: Array
    dk: Array


@dataclass(frozen=True, eq=False)
class Adjoints:
    """M adjoints.

    Attributes
    ----------
    lam : array [N+1, M, n]
        Of the states, with all that comes after them.
    rates : array [N, S, M, n]
        Of f at the stages.
    stages, delayed : array [N, S, M, n], [N, S, d, M, n]
        Of X and z.
    clock, p : array [M, c], [M, m]
        Of the clocks, and of what events see of the parameters.
    multipliers : dict of int to array [M]
        Of the functions of events at states, by the step that ends there.
    """

    lam: Array
    rates: Array
    stages: Array
    delayed: Array
    clock: Array
    p: Array
    multipliers: dict[int, Array]


@dataclass(frozen=True, eq=False)
class Forcing:
    """What derivatives of the relations bring into derivatives of an adjoint along D directions.

    Attributes
    ----------
    first : Adjoints
        The one adjoint.
    dh, dg : array [N, D], [N, S, d, S, D]
        Derivatives of step sizes, and of the weights of rates in z.
    of_f : array [N, S, D, 1+n+dn]
        Those of f_y^T l, without l's own.
    of_history : array [D, H]
        Those of phi_t^T zbar, likewise.
    by_p : array [D, m]
        Those of f_p^T l and phi_p^T zbar, summed up, likewise.
    """

    first: Adjoints
    along: Tangents
    dh: Array
    dg: Array
    of_f: Array
    of_history: Array
    by_p: Array


@dataclass(frozen=True, eq=False)
class Sources:
    """What running costs add to M adjoints, or to the derivatives of one.

    Attributes
    ----------
    stages : array [N, S, M, n]
        To those of X.
    clock : array [N, M, c]
        To those of the clocks, by each step.
    p : array [M, m]
        To those of the parameters.
    """

    stages: Array
    clock: Array
    p: Array


@dataclass(frozen=True, eq=False)
class Located:
    """An event at a state where a step ends, g(t, U, p) = 0: the time solves that.

    Attributes
    ----------
    clock : int
        The number of its time.
    when : Callback
        g.
    point : (float, Vec, array)
        Where it is zero.
    by_u, by_p : array [n], [m]
        Its gradients there.
    by_t : float
        Its partial derivative in t.
    rates, end : array [S, n], [n]
        How the stages and the end of the step move with its time.
    """

    clock: int
    when: Callback
    point: tuple[float, PETSc.Vec, Array]
    by_u: Array
    by_p: Array
    by_t: float
    rates: Array
    end: Array

    @property
    def slope(self) -> float:
        """The derivative of g in the time, along the program."""
        return float(self.by_t + self.by_u @ self.end)


Terms: TypeAlias = "tuple[Forcing | None, Sources | None]"
"""What enters a sweep back besides what is observed at states."""
