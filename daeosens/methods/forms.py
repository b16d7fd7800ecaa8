"""Which forms of equations each method takes."""

from __future__ import annotations

from daeosens.errors import UnsupportedError
from daeosens.methods.method import Method
from daeosens.problem.problem import Problem

_IMPLICIT = '"cn", "beuler", "midpoint" or "theta:<value>"'


def takes_esdirk(problem: Problem) -> bool:
    """Return whether ESDIRK methods take the form of the equations."""
    return problem.form != "residual" and problem.constant_mass


def takes_both_rates(problem: Problem, theta: float, *, endpoint: bool) -> bool:
    """Return whether a theta step takes the rate of the step at its start too.

    PETSc's TSTHETA takes none there, which is the same if F is linear in u' with coefficients that
    do not change, and of first order otherwise.
    """
    return problem.udot_nonlinear and endpoint and theta < 1.0


def refuse_form(problem: Problem, method: Method) -> None:
    """Refuse a method that does not take the form of the equations.

    Raises
    ------
    UnsupportedError
        A mass or F(t, u, u', p) = 0 with an explicit method; F, or parameters in the mass, with an
        ESDIRK method.
    """
    if method.explicit and problem.form != "rhs":
        raise UnsupportedError(
            f'method = "{method.name}" for a problem in {problem.form} form',
            expected="u' = f(t, u, p) without a mass matrix",
            remedy=f'"esdirk4", {_IMPLICIT}' if takes_esdirk(problem) else _IMPLICIT,
        )
    if method.esdirk and not takes_esdirk(problem):
        form = "residual form" if problem.form == "residual" else "the form M(p) u' = f"
        raise UnsupportedError(
            f'method = "{method.name}" for a problem in {form}',
            expected="u' = f(t, u, p), or M u' = f(t, u, p) with a constant M",
            remedy=_IMPLICIT,
        )
