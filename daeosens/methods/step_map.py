"""Step maps: one step of each method, linearised in u, p, t and h."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities
from daeosens.methods.dae.structure import null_projection
from daeosens.methods.esdirk.stages import StageSolver
from daeosens.methods.esdirk.step import ALMOST_NONE, DirkStep
from daeosens.methods.esdirk.tableau import ESDIRK
from daeosens.methods.forms import refuse_form
from daeosens.methods.linear_solver import block_solver, linear_solver
from daeosens.methods.method import Method
from daeosens.methods.rk.grid_step import Passes
from daeosens.methods.rk.stages import Kept
from daeosens.methods.rk.step import RungeKuttaStep
from daeosens.methods.rk.tableau import Tableau, tableau
from daeosens.methods.step import Adjoint, SecondOrder, Step
from daeosens.methods.theta.grid_step import ThetaPasses
from daeosens.methods.theta.step import ThetaStep
from daeosens.methods.zero_step import InstantStep
from daeosens.petsc._kernels import EsdirkSteps
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem

__all__ = [
    "ALMOST_NONE",
    "Passes",
    "RungeKuttaStep",
    "StepMap",
    "ThetaPasses",
    "coefficients",
    "error_map",
    "esdirk_steps",
    "instant_map",
    "n_stages",
    "quadrature_error",
    "refuse_form",
    "step_map",
    "tableau",
    "theta_passes",
]


class StepMap(Protocol):
    """u_{n+1} = Phi(u_n, p, t_n, h_n): derivative of one step, forward and transposed."""

    @property
    def dt(self) -> float:
        """The derivative of the time of the state that a tangent has reached."""
        ...

    @property
    def dp(self) -> PETSc.Vec | None:
        """The derivative of the parameters there, if events have changed it."""
        ...

    def quadrature(self, step: Step, densities: Densities) -> float:
        """Return the step's part of the running costs."""
        ...

    def tangent(
        self,
        step: Step,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        dt: float = 0.0,
        dh: float = 0.0,
        densities: Densities = (),
    ) -> float:
        """Overwrite ``du`` before the step with the one after it; return the running change."""
        ...

    def adjoint(
        self,
        step: Step,
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
        densities: Sequence[Densities],
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Overwrite ``lam`` after the step with the one before it; add to ``mu``."""
        ...

    def add_time(self, k: int, slope: float) -> None:
        """Add to the adjoint of the time of the state reached, for cost k: runs with events."""
        ...

    def second_order(
        self,
        step: Step,
        first: Adjoint,
        directions: Sequence[SecondOrder],
        densities: Densities,
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry one adjoint and its derivatives along directions back, like ``adjoint``."""
        ...


def step_map(
    problem: Problem, method: Method, options: Mapping[str, Any], kept: Kept | None = None
) -> StepMap:
    """Return the step map of a method for a problem, with its work space.

    Parameters
    ----------
    problem : Problem
        What is stepped.
    method : Method
        How.
    options : mapping
        PETSc options; those of the linear solver (``ksp_...``, ``pc_...``) are used, and of
        Newton's method where stages are solved for again.
    kept : mapping, optional
        Stage states of Runge-Kutta steps by the number of the step.

    Raises
    ------
    UnsupportedError
        A method that does not take the form of the equations.
    """
    refuse_form(problem, method)
    if method.explicit:
        return RungeKuttaStep(problem, tableau(method.runge_kutta), kept)
    make_solver = partial(linear_solver, options=options, dm=problem.dm)
    if method.esdirk:
        scheme = ESDIRK[method.name]
        return DirkStep(problem, scheme, make_solver, StageSolver(problem, scheme, options, kept))
    return ThetaStep(problem, method.theta, make_solver, endpoint=method.endpoint)


ErrorMap: TypeAlias = "Callable[[Step, PETSc.Vec, PETSc.Vec | None], None]"
"""``error(step, du, dp)`` overwrites the tangent before a step with that of its error estimate."""


def error_map(problem: Problem, method: Method, options: Mapping[str, Any]) -> ErrorMap:
    """Return the tangents of the error estimates of steps with an embedded method.

    Parameters as for ``step_map``.
    """
    if method.esdirk:
        step = step_map(problem, method, options)
        assert isinstance(step, DirkStep)
        return step.error
    explicit = RungeKuttaStep(problem, tableau(method.runge_kutta).of_error)

    def error(step: Step, du: PETSc.Vec, dp: PETSc.Vec | None) -> None:
        before = du.copy()
        explicit.tangent(step, du, dp)
        du.axpy(-1.0, before)
        before.destroy()

    return error


QuadratureError: TypeAlias = "Callable[[Step, Densities], float]"
"""``error(step, densities)``: what a step's part of running costs differs by from another rule."""


def quadrature_error(
    problem: Problem, method: Method, options: Mapping[str, Any], kept: Kept | None = None
) -> QuadratureError:
    """Return the estimated errors of running costs, of a method with an error estimate.

    By the weights of the embedded method; of theta methods by Simpson's rule, with the state
    halfway on the chord.  Parameters as for ``step_map``.
    """
    if method.explicit:
        return RungeKuttaStep(problem, tableau(method.runge_kutta).of_error, kept).quadrature
    if method.esdirk:
        step = step_map(problem, method, options, kept)
        assert isinstance(step, DirkStep)
        return step.quadrature_error
    middle = problem.create_state()

    def by_simpson(step: Step, densities: Densities) -> float:
        t, h, u, u_next, p, _ = step
        middle.waxpy(1.0, u, u_next)
        middle.scale(0.5)
        ends = (1.0 - method.theta, t, u), (method.theta, t + h, u_next)
        total = 0.0
        for weight, density in densities:
            own = sum(part * density.value(time, state, p) for part, time, state in ends)
            third = density.value(t, u, p) + density.value(t + h, u_next, p)
            third = (third + 4.0 * density.value(t + 0.5 * h, middle, p)) / 6.0
            total += weight * h * (own - third)
        return total

    return by_simpson


def coefficients(method: Method) -> tuple[Array, Array, Array, Array]:
    """Return a, b, c and the embedded weights of a Runge-Kutta method with an error estimate.

    Of a first-same-as-last method with its last stage.
    """
    if method.esdirk:
        scheme = ESDIRK[method.name]
        return scheme.a, scheme.a[-1], scheme.c, scheme.b_embedded
    explicit = tableau(method.runge_kutta)
    assert explicit.b_embedded is not None
    return explicit.a, explicit.b, explicit.c, explicit.b_embedded


def theta_passes(
    problem: Problem, method: Method, options: Mapping[str, Any]
) -> ThetaPasses | None:
    """Return the transposed theta steps on a grid; None where Python has a part in them.

    Parameters as for ``step_map``.
    """
    theta = not (method.explicit or method.esdirk)
    at_end = theta and (method.endpoint or method.theta == 1.0)
    if problem.stencil is None or problem.residual_u.assembled or not at_end:
        return None
    make_solver = partial(linear_solver, options=options)
    return ThetaPasses(problem, method.theta, method.endpoint, make_solver)


def instant_map(problem: Problem, method: Method, options: Mapping[str, Any]) -> StepMap:
    """Return the map of a step of size 0, with the first two derivatives of the method in its size.

    Parameters as for ``step_map``.  For u' = f that of a theta method is an explicit one whose
    stages are those that theta has for h -> 0: in endpoint form the start and its Euler step, else
    the Euler step to t + theta h.  An ESDIRK method, of order three at least, has the first two
    derivatives of Heun's method.
    """
    if problem.form != "rhs":
        return InstantStep(problem, method, options)
    if method.explicit:
        return RungeKuttaStep(problem, tableau(method.runge_kutta))
    theta = method.theta
    if method.esdirk:
        theta = 0.5
    endpoint = method.endpoint or method.esdirk
    a = 1.0 if endpoint else theta
    b = [1.0 - theta, theta] if endpoint else [0.0, 1.0]
    return RungeKuttaStep(
        problem, Tableau(np.array([[0.0, 0.0], [a, 0.0]]), np.array(b), np.array([0.0, a]))
    )


def esdirk_steps(problem: Problem, method: Method) -> EsdirkSteps:
    """Return the steps of an ESDIRK method for a TS of type ``ESDIRK``.

    Raises
    ------
    UnsupportedError
        A singular mass of which it cannot be told what equations are algebraic.
    """
    scheme = ESDIRK[method.name]
    mass = None
    if problem.residual_udot is not None:
        mass = problem.residual_udot.create(0.0, problem.state, problem.state, None)
    null = null_projection(problem, partial(block_solver, options={}))
    return EsdirkSteps((scheme.a, scheme.c, scheme.embedded), scheme.order, mass, null)


def n_stages(method: Method) -> int:
    """Return at how many points of a step the equations are evaluated.

    Examples
    --------
    >>> from daeosens.methods.method import find_method
    >>> n_stages(find_method("rk4")), n_stages(find_method("esdirk4")), n_stages(find_method("cn"))
    (4, 6, 1)
    """
    if method.esdirk:
        return len(ESDIRK[method.name].c)
    return len(tableau(method.runge_kutta).b) if method.explicit else 1
