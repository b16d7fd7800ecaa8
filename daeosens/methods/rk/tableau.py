"""Butcher tableaux of explicit Runge-Kutta methods."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from petsc4py import PETSc

from daeosens.petsc._kernels import register_rk, rk_tableau
from daeosens.petsc.vectors import Array


@dataclass(frozen=True)
class Tableau:
    """Butcher tableau: ``a`` [s, s] strictly lower triangular, ``b`` [s], ``c`` [s].

    ``b_embedded`` [s] are the weights of the error estimate's companion; None where there is none.
    """

    a: Array
    b: Array
    c: Array
    b_embedded: Array | None = None

    @property
    def of_error(self) -> Tableau:
        """The tableau of u + the error estimate, whose weights are the difference of both."""
        assert self.b_embedded is not None
        return Tableau(self.a, self.b - self.b_embedded, self.c)

    @property
    def of_step(self) -> Tableau:
        """Return the tableau without the last stage of a first-same-as-last method."""
        return self._of_step

    @cached_property
    def _of_step(self) -> Tableau:
        s = len(self.b)
        # A last stage without weight is the first one of the next step: nothing of this step
        # depends on it, and its adjoint would be zero.
        while self.b[s - 1] == 0.0:
            s -= 1
        return Tableau(self.a[:s, :s], self.b[:s], self.c[:s])

    @cached_property
    def behind(self) -> Array:
        """Row i [s, s+1]: of lam, l_{s-1}, ..., l_{i+1} in w_i / h."""
        s = len(self.b)
        rows = np.zeros((s, s + 1))
        for i in range(s):
            rows[i, 0] = self.b[i]
            # column i of a from the last row up, in the order in which the sweep finds the l_j
            rows[i, 1 : s - i] = self.a[:i:-1, i]
        return rows

    @cached_property
    def ahead(self) -> Array:
        """Row i [s+1, s], the last one for the end of the step: of dk_0, ..., dk_{i-1}."""
        return np.vstack([self.a, self.b])

    @cached_property
    def numbers(self) -> tuple[list[tuple[list[int], list[float]]], list[float], list[float]]:
        """Where the rows of ``a`` are not zero and what is there, b and c.

        Quicker than arrays, stage by stage.
        """
        rows = [[int(j) for j in np.flatnonzero(row)] for row in self.a]
        values = [row[numbers].tolist() for row, numbers in zip(self.a, rows, strict=True)]
        return list(zip(rows, values, strict=True)), self.b.tolist(), self.c.tolist()

    @cached_property
    def below(self) -> Array:
        """What is below the diagonal [s]: a_{i,i-1}, and first 0."""
        return np.append(0.0, np.diag(self.a, -1))

    @property
    def of_passes(self) -> tuple[Array, Array, Array]:
        """What steps in passes read: ``below``, b and c."""
        return self.below, self.b, self.c

    @cached_property
    def chained(self) -> bool:
        """Whether there are two or four stages, and each reads the rate of the one before only."""
        # passes are written for these two numbers of stages
        known = len(self.b) in (2, 4) and bool(self.below[1:].all())
        return known and bool((self.a == np.diag(self.below[1:], -1)).all())


HEUN = Tableau(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0.5, 0.5]), np.array([0.0, 1.0]))
"""Heun's method, of order two."""


_LAST = [
    *(0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742),
    *(-3.290069515436081, 2.324710524099774, 0.0),
]
_ROWS = [
    [],
    [0.161],
    [-0.008480655492356989, 0.335480655492357],
    [2.8971530571054935, -6.359448489975075, 4.3622954328695815],
    [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525],
    [
        *(5.86145544294642, -12.92096931784711, 8.159367898576159),
        *(-0.071584973281401, -0.028269050394068383),
    ],
    _LAST,
]
_A = np.array([[*row, *[0.0] * (7 - len(row))] for row in _ROWS])
_B = np.array(_LAST)
_B_EMBEDDED = np.array(
    [
        *(0.098240777870291, 0.010816434459656747, 0.47200877240423758),
        *(1.523719581277005, -3.8724266808886362, 2.7827926300289612, -1 / 66),
    ]
)
"""The pair 5(4) of Tsitouras, Computers & Mathematics with Applications 62, 2011.

The last stage is the first one of the next step.  PETSc has it not: it becomes a type of TSRK.
"""

register_rk("5ts", 5, _A, _B, _B_EMBEDDED)


@cache
def tableau(runge_kutta: str) -> Tableau:
    """Return PETSc's own Butcher tableau of a TSRK type."""
    ts = PETSc.TS().create(comm=PETSc.COMM_SELF)  # never steps: asked for its coefficients only
    ts.setType(PETSc.TS.Type.RK)
    ts.setRKType(runge_kutta)
    coefficients = rk_tableau(ts)[:4]
    ts.destroy()
    return Tableau(*coefficients)
