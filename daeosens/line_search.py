"""Line searches of Newton's method in steps of TS: where they help, and where rounding misleads."""

from __future__ import annotations

from petsc4py import PETSc

from daeosens._petsc import DENSE
from daeosens.stepping import Stepping

SHORT, SHORTER = 1e-3, 1e-5
"""Steps are tiny below the first part of a fixed step, or the second one of the span."""


def tiny_step(ts: PETSc.TS, stepping: Stepping, size: float) -> float:
    """Return below which size Newton's steps are taken in full; 0 for other line searches.

    ``size`` is that of fixed steps.
    """
    solved = ts.getType() != DENSE and not stepping.resolved_method.explicit
    if not solved or ts.getSNES().getLineSearch().getType() != "bt":
        return 0.0
    if not stepping.adaptive:
        return SHORT * size
    first, last = stepping.t_span
    return SHORTER * (last - first)


def search_lines(ts: PETSc.TS, *, wanted: bool) -> None:
    """Let Newton's method shorten its steps until the residual falls (PETSc's default), or not.

    In a tiny step of size h nothing but the rounding of M (u1 - u0)/h is soon left of the residual
    of the differential equations: a Newton step that is right for the algebraic ones would be
    shortened, and the solve given up, because the whole norm does not fall.
    """
    search = ts.getSNES().getLineSearch()
    kind = "bt" if wanted else "basic"
    if search.getType() != kind:
        search.setType(kind)
