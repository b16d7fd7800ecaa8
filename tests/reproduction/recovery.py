"""Van der Pol's parameter, or initial state, recovered from one final state.

The tutorials ex20opt_p, ex20opt_ic (y'' = mu ((1 - y^2) y' - y)) and ex16opt_p, ex16opt_ic
(y'' = mu (1 - y^2) y' - y) of PETSc: cost |u(0.5) - data|^2, the data from a run with the true
parameter or initial state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import daeosens as ds
from daeosens.functional import InitialState
from daeosens.optimize import Result
from daeosens.problem import INDEPENDENT, Problem
from reproduction.van_der_pol import initial_state, initial_state_p, van_der_pol

Array = npt.NDArray[np.float64]
Unknown = Literal["mu", "initial state"]
SPAN = (0.0, 0.5)
BEGIN = np.array([2.0, 0.66666654321])
"""Initial state of the ex16 family (the sign of the velocity is that of the tutorials)."""


@dataclass(frozen=True, eq=False)
class Case:
    """One of the tutorials' tests."""

    name: str
    unknown: Unknown
    mu: float
    stepping: ds.Stepping
    start: tuple[float, ...]
    data_stepping: ds.Stepping | None = None
    """Steps for the data, if others than the model's."""

    @property
    def stiff_form(self) -> bool:
        """Whether mu multiplies the whole right-hand side (ex20), or the damping only (ex16)."""
        return self.name.startswith("ex20")

    @property
    def truth(self) -> Array:
        """What the data were made with."""
        if self.unknown == "mu":
            return np.array([self.mu])
        return self.begin

    @property
    def begin(self) -> Array:
        """The true initial state."""
        return np.array(initial_state([self.mu]) if self.stiff_form else BEGIN)


def _fixed(method: str, dt: float) -> ds.Stepping:
    return ds.Stepping(SPAN, method, dt=dt)


# what PETSc does by default
_PETSC = {"ts_adapt_wnormtype": "2", "ts_adapt_clip": "0.1,10", "ts_adapt_safety": "0.9"}
_LOOSE = ds.Stepping(SPAN, "rk3bs", dt=0.1, rtol=1e-4, atol=1e-4, options=_PETSC)
_TIGHT = ds.Stepping(SPAN, "rk3bs", dt=1e-3, rtol=1e-7, atol=1e-7, options=_PETSC)

CASES: Sequence[Case] = (
    Case("ex20opt_p_1", "mu", 10.0, _fixed("rk3bs", 0.1), (1.2,)),
    Case("ex20opt_p_2", "mu", 10.0, _fixed("rk3bs", 0.01), (1.2,)),
    Case("ex20opt_p_3", "mu", 100.0, _fixed("cn", 0.01), (1.2,)),
    Case("ex20opt_p_4", "mu", 100.0, _fixed("cn", 0.01), (1.2,)),
    Case("ex20opt_ic_1", "initial state", 1e3, _fixed("cn", 1 / 32), (2.2, -0.7)),
    Case("ex20opt_ic_2", "initial state", 100.0, _fixed("beuler", 0.01), (2.2, -0.7)),
    Case("ex20opt_ic_3", "initial state", 100.0, _fixed("cn", 0.01), (2.2, -0.7)),
    Case("ex16opt_p", "mu", 1.0, _LOOSE, (6.0,)),
    Case("ex16opt_ic", "initial state", 1.0, _TIGHT, (2.1, 0.7), data_stepping=_LOOSE),
)


def functional(case: Case) -> ds.Reduced:
    """Return |u(0.5) - data|^2 as a function of the unknown."""
    problem = van_der_pol() if case.stiff_form else damped()
    steps = case.data_stepping or case.stepping
    data = ds.solve(problem, case.begin, [case.mu], steps).u[-1]
    misfit = ds.Terminal(
        lambda t, u, p: ((u - data) ** 2).sum(), lambda t, u, p: 2 * (u - data), INDEPENDENT
    )
    if case.unknown == "initial state":
        return ds.Reduced(problem, misfit, case.stepping, InitialState(case.start, p=[case.mu]))
    bounds = {} if case.stiff_form else {"lower": 0.0, "upper": 100.0}
    control = ds.Parameters(
        {"mu": ds.Parameter(case.start[0], **bounds)},
        initial_state=initial_state if case.stiff_form else BEGIN,
        initial_state_p=initial_state_p if case.stiff_form else None,
    )
    return ds.Reduced(problem, misfit, case.stepping, control)


def recover(case: Case, method: str = "blmvm", gradient_tolerance: float = 1e-12) -> Result:
    """Minimise the misfit."""
    return ds.minimize(
        functional(case),
        method=method,
        gradient_tolerance=gradient_tolerance,
        max_iterations=200,
    )


def damped() -> Problem:
    """Return y'' = mu (1 - y^2) y' - y."""

    def rhs(t: float, u: Any, p: Any) -> Any:
        return np.array([u[1], p[0] * (1 - u[0] ** 2) * u[1] - u[0]])

    def rhs_u(t: float, u: Any, p: Any) -> Any:
        return np.array([[0.0, 1.0], [-2 * p[0] * u[0] * u[1] - 1, p[0] * (1 - u[0] ** 2)]])

    def rhs_p(t: float, u: Any, p: Any) -> Any:
        return np.array([[0.0], [(1 - u[0] ** 2) * u[1]]])

    return ds.ODE(rhs, 2, ["mu"], jacobian=rhs_u, jacobian_p=rhs_p, rhs_t="autonomous")


def determined(case: Case, state: npt.ArrayLike) -> Array:
    """Return the singular values [2] of d u(0.5)/d u(0): what the data say about the state."""
    problem = van_der_pol() if case.stiff_form else damped()
    run = ds.solve(problem, state, [case.mu], case.stepping)
    return np.linalg.svd(ds.sensitivities(run, with_respect_to=["u0"]).u0, compute_uv=False)
