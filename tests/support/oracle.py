"""Hessian products once more: the first-order adjoint of the tangent-augmented system.

z = (u, w) with w the tangent along a fixed direction; the cost is dJ along it, and its gradient in
(u0, p) is the Hessian product.  Where PETSc's TSAdjoint is exact it does the sweep, so nothing of
the second-order sweep is used; where it is refused, the first-order steps do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import forms
import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens import DAE, ODE, UnsupportedError, adjoint, tangent
from daeosens.costs.cost import Cost
from daeosens.costs.scalar import Callback
from daeosens.costs.scalar_derivatives import Derivatives
from daeosens.problem import Problem, imex
from daeosens.timestepping import Trajectory

N = 3


@dataclass(frozen=True)
class Differentiated:
    """dJ along (w, dp) of one of the costs of ``forms``, as an objective of the augmented state."""

    case: forms.CostCase
    dp: npt.NDArray[np.float64]

    @property
    def times(self) -> tuple[float, ...]:
        """The observation times."""
        return tuple(self.case.observed)

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return one scalar for each term."""
        case, dp = self.case, self.dp

        def scalar(by_u: Any, by_p: Any) -> Callback:
            def value(t: float, z: Any, p: Any) -> Any:
                u, w = z[:N], z[N:]
                return by_u(t, u, p) @ w + by_p(t, u, p) @ dp

            return Callback(problem, "dJ", value, Derivatives())

        points, densities = [], []
        if case.terminal is not None:
            points.append((final_time, 1.0, scalar(forms.terminal_u, forms.terminal_p)))
        if case.running is not None:
            weight = 0.7 if case.name == "sum" else 1.0
            densities.append((weight, scalar(forms.density_u, forms.density_p)))
        for k, t in enumerate(case.observed):
            points.append((t, 1.0, scalar(*_misfit(forms.DATA[k]))))
        if case.prior is not None:
            points.append((final_time, 1.0, scalar(lambda t, u, p: np.zeros(N), _prior_p)))
        return Cost(tuple(points), tuple(densities))


def _misfit(data: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def weigh(t: float, u: Any, p: Any) -> Any:
        return (forms.observe(t, u, p) - data) / forms.SIGMA**2

    return (
        lambda t, u, p: weigh(t, u, p) @ forms.observe_u(t, u, p),
        lambda t, u, p: weigh(t, u, p) @ forms.observe_p(t, u, p),
    )


def _prior_p(_t: float, _u: Any, p: Any) -> Any:
    slope = (np.log(p[[2, 0]]) - forms.PRIOR_MEAN) / forms.PRIOR_SIGMA**2 / p[[2, 0]]
    return np.array([slope[1], 0.0, slope[0]])


def products(
    form: forms.Form, run: Trajectory, costs: Sequence[forms.CostCase], du0: Any, dp: Any
) -> list[npt.NDArray[np.float64]]:
    """Return for each cost its Hessian times (du0, dp) [6], by the steps of a run."""
    tangents = tangent(run, du0, dp, "vectors").states
    states = []
    for u, w in zip(run.states, tangents, strict=True):
        z = PETSc.Vec().createSeq(2 * N, comm=PETSc.COMM_SELF)
        z.setArray(np.concatenate([u.getArray(readonly=True), w.getArray(readonly=True)]))
        states.append(z)
    augmented = Trajectory(
        _augmented(form, np.asarray(dp)),
        run.p,
        run.stepping,
        run.times,
        run.step_sizes,
        tuple(states),
        run.effort,
    )
    objectives = [Differentiated(case, np.asarray(dp)) for case in costs]
    try:
        gradients = adjoint(augmented, objectives, engine="tsadjoint")
    except UnsupportedError:
        gradients = adjoint(augmented, objectives)
    return [np.concatenate([gradient.u0[:N], gradient.p]) for gradient in gradients]


def _augmented(form: forms.Form, dp: Any) -> Problem:
    if form.name == "parts":

        def explicit(t: float, z: Any, p: Any) -> Any:
            u, w = z[:N], z[N:]
            change = forms.explicit_u(t, u, p) @ w + forms.explicit_p(t, u, p) @ dp
            return np.concatenate([forms.explicit(t, u, p), change])

        def implicit(t: float, z: Any, p: Any) -> Any:
            u, w = z[:N], z[N:]
            change = forms.rhs_u(t, u, p) @ w + forms.rhs_p(t, u, p) @ dp
            return np.concatenate([forms.rhs(t, u, p), change]) - explicit(t, z, p)

        return imex(
            implicit=ODE(implicit, 2 * N, forms.NAMES), explicit=ODE(explicit, 2 * N, forms.NAMES)
        )
    if form.name in ("rhs", "M", "M singular", "M(p)"):
        masses = {"M": forms.MASS, "M singular": forms.SINGULAR}

        def rhs(t: float, z: Any, p: Any) -> Any:
            u, w = z[:N], z[N:]
            change = forms.rhs_u(t, u, p) @ w + forms.rhs_p(t, u, p) @ dp
            return np.concatenate([forms.rhs(t, u, p), change])

        def mass(p: Any) -> Any:
            change = forms.MASS * dp[0] + np.diag([0, 2 * p[1] * dp[1], 0])
            return np.block([[forms.mass(p), np.zeros((N, N))], [change, forms.mass(p)]])

        keywords: dict[str, Any] = {}
        if form.name in masses:
            keywords["mass"] = np.kron(np.eye(2), masses[form.name])
        elif form.name == "M(p)":
            keywords["mass"] = mass
        return ODE(rhs, 2 * N, forms.NAMES, **keywords)

    def residual(t: float, z: Any, zdot: Any, p: Any) -> Any:
        point = (t, z[:N], zdot[:N], p)
        change = (
            form.residual_u(*point) @ z[N:]
            + form.residual_udot(*point) @ zdot[N:]
            + form.residual_p(*point) @ dp
        )
        return np.concatenate([form.residual(*point), change])

    return DAE(residual, 2 * N, forms.NAMES, linear_in_udot=form.name == "F linear")
