"""TS for problems: the only maker of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from petsc4py import PETSc

from daeosens.errors import InputError, NotFiniteError, UnsupportedError
from daeosens.methods.esdirk.callback_steps import python_functions
from daeosens.methods.method import Method
from daeosens.petsc._kernels import (
    DENSE,
    ExplicitSteps,
    Registered,
    RegisteredStencil,
    rk_tableau,
    take_point,
)
from daeosens.petsc.step_rejection import not_finite, retry
from daeosens.petsc.vectors import is_finite
from daeosens.problem.c_callback import Compiled
from daeosens.problem.implicit_matrix import SystemMatrix
from daeosens.problem.problem import Problem
from daeosens.timestepping.c_rhs import Held, runs_in_c
from daeosens.timestepping.dense_ts import dense_steps, steps_by_callbacks
from daeosens.timestepping.trajectory.trajectory import Recording

FEW = 1000
"""Up to how many unknowns explicit steps are taken on plain numbers."""

FEW_FACTORISED = 64
"""Up to how many unknowns a matrix is sooner filled and factorised in C than Python sees that it
has not changed."""

_TYPE, _STEPS = "daeosens type", "daeosens steps"
"""Names under which a TS keeps what takes its steps alive."""

_TS: Any = PETSc.TS  # the stubs of petsc4py 3.26 give enumerations the wrong type


def make_ts(
    problem: Problem,
    method: Method,
    t: float,
    u: PETSc.Vec,
    held: Held,
    *,
    record: Recording,
    plain: bool = False,
) -> PETSc.TS:
    """Return a TS of the method for the problem, without options and times.  Collective.

    ``plain`` says that there will be no options: then small dense systems need no SNES and KSP, and
    explicit steps of small problems no TSRK.

    Raises
    ------
    InputError, UnsupportedError
        A method or a Jacobian that does not go with the problem.
    """
    method.refuse(problem)
    ts = PETSc.TS().create(comm=problem.comm)
    ts.setProblemType(_TS.ProblemType.NONLINEAR)
    # a step that fails is told by the converged reason: messages are ours
    ts.setErrorIfStepFails(False)
    dense = None
    plain = plain and record not in ("memory", "disk")
    if plain:
        dense = dense_steps(problem, method, held.p) or steps_by_callbacks(problem, method, held.p)
    if dense is not None:
        ts.setType(DENSE)
        dense.attach(ts)
        held.keep(ts, dense)
        return ts
    ts.setAttr(_TYPE, method.set_type(ts, problem))
    if method.explicit:
        _set_rhs(ts, problem, method, held, plain=plain)
        if record in ("memory", "disk"):
            _set_rhs_derivatives(ts, problem, t, u, held.p)
    else:
        implicit, explicit = method.stepped(problem)
        _set_residual(ts, implicit, method, (t, u), held, record)
        if explicit is not None:
            _set_rhs(ts, explicit, method, held, plain=False)
    return ts


def _inside(problem: Problem) -> Callable[[PETSc.TS, float], float]:
    """Return the function of time that keeps the stages of a step inside it, at breakpoints."""

    def inside(ts: PETSc.TS, t: float) -> float:
        return problem.inside(t, ts.getTime(), ts.getTimeStep()) if problem.breakpoints else t

    return inside


def _retry(
    ts: PETSc.TS, t: float, error: NotFiniteError, problem: Problem, *, jacobian: bool = False
) -> None:
    """Let TS try a smaller step; right of a breakpoint callbacks see its start at another time."""
    start = ts.getTime()
    # ``retry`` knows a fault at the start of a step, which no shorter step avoids, by its time:
    # that of TS, and not the one that callbacks saw.
    at_start = problem.breakpoints and t == problem.inside(start, start, ts.getTimeStep())
    retry(ts, start if at_start else t, error, problem.faults, jacobian=jacobian)


def _set_rhs(ts: PETSc.TS, problem: Problem, method: Method, held: Held, *, plain: bool) -> None:
    """Set f(t, u, p); ``plain`` steps of few unknowns are taken without TSRK."""
    work, of_python = problem.create_state(), None
    few = problem.comm.size == 1 and problem.size <= FEW and method.tableau is not None
    in_c = runs_in_c(problem, method)
    if not in_c and plain and few:
        of_python = python_functions(problem, held.p, derivative=False)
    if not in_c and of_python is None:
        inside = _inside(problem)

        def rhs(ts: PETSc.TS, t: float, u: PETSc.Vec, out: PETSc.Vec) -> None:
            t = inside(ts, t)
            try:
                problem.rhs(t, u, held.p, out)
            except NotFiniteError as error:
                _retry(ts, t, error, problem)
                # NaN makes TS reject the step and try a shorter one
                out.set(math.nan)

        ts.setRHSFunction(rhs, work)
        return
    registered = held.register(ts, problem, of_python)
    registered.set_rhs(ts, work)
    if plain and few and isinstance(registered, Registered):  # vectors take longer than numbers
        steps = ExplicitSteps(registered, rk_tableau(ts))
        steps.attach(ts)
        ts.setAttr(_STEPS, steps)


def _set_rhs_derivatives(ts: PETSc.TS, problem: Problem, t: float, u: PETSc.Vec, p: Any) -> None:
    matrix_u = problem.rhs_u.create(t, u, p)

    def jacobian(
        _ts: PETSc.TS, t: float, u: PETSc.Vec, matrix: PETSc.Mat, _preconditioner: PETSc.Mat
    ) -> None:
        problem.rhs_u.fill(t, u, p, matrix)

    ts.setRHSJacobian(jacobian, matrix_u, matrix_u)
    if problem.n_parameters:
        matrix_p = problem.rhs_p.create(t, u, p)

        def jacobian_p(_ts: PETSc.TS, t: float, u: PETSc.Vec, matrix: PETSc.Mat) -> None:
            problem.rhs_p.fill(t, u, p, matrix)

        ts.setRHSJacobianP(jacobian_p, matrix_p)


def _set_residual(
    ts: PETSc.TS,
    problem: Problem,
    method: Method,
    start: tuple[float, PETSc.Vec],
    held: Held,
    record: Recording,
) -> None:
    """Set F(t, u, u', p) and its derivatives."""
    (t, u), work, inside = start, problem.create_state(), _inside(problem)
    in_c = runs_in_c(problem, method)

    equations = StepResidual(problem, method)

    def residual(ts: PETSc.TS, t: float, u: PETSc.Vec, udot: PETSc.Vec, out: PETSc.Vec) -> None:
        # whether F is evaluated at the start of the step, before t is moved to the inside
        begins, t = t == ts.getTime(), inside(ts, t)
        try:
            equations.evaluate(t, u, udot, held.p, out, begins=begins)
        except NotFiniteError as error:
            _retry(ts, t, error, problem)
            out.set(math.nan)

    if not in_c:
        ts.setIFunction(residual, work)
    if problem.coloring:
        _set_coloring(ts, problem, record)
        return
    udot, p = problem.create_state(), held.p
    problem.residual(t, u, udot, p, work)  # wrong callbacks are named before their derivatives are
    if not is_finite(work):
        raise not_finite(problem.faults, problem.comm)
    system = SystemMatrix(problem.residual_u, problem.residual_udot, t, u, udot, p)

    def jacobian(
        ts: PETSc.TS,
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        shift: float,
        matrix: PETSc.Mat,
        _preconditioner: PETSc.Mat,
    ) -> None:
        t = inside(ts, t)
        try:
            equations.fill(system, t, u, udot, held.p, shift)
        except NotFiniteError as error:
            _retry(ts, t, error, problem, jacobian=True)
        if matrix != system.matrix:
            take_point(matrix)

    if in_c:
        _set_compiled_residual(ts, problem, held, system, work)
    # a matrix that is not filled again keeps its factors: Python can tell, C fills it each time
    kept = system.constant and problem.size > FEW_FACTORISED
    if not in_c or kept or (problem.stencil is not None and system.assembled):
        ts.setIJacobian(jacobian, system.matrix, system.matrix)
    if record in ("memory", "disk") and problem.n_parameters:
        _set_residual_p(ts, problem, (t, u, udot), p)


def _set_compiled_residual(
    ts: PETSc.TS,
    problem: Problem,
    held: Held,
    system: SystemMatrix,
    work: PETSc.Vec,
) -> None:
    registered = held.register(ts, problem)
    if isinstance(registered, RegisteredStencil):
        registered.set_residual(ts, work, None if system.assembled else system.matrix)
        return
    native = problem.native["jacobian"]
    compiled = Compiled(native, "jacobian", ((problem.size, problem.size),), returns=False)
    registered.set_residual(
        ts,
        work,
        native.where,
        compiled.scratch,
        compiled.places,
        *system.parts,
        system.matrix,
        problem.create_state(),
    )


def _set_residual_p(
    ts: PETSc.TS, problem: Problem, point: tuple[float, PETSc.Vec, PETSc.Vec], p: Any
) -> None:
    matrix_p = problem.residual_p.create(*point, p)

    def jacobian_p(
        _ts: PETSc.TS,
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        _shift: float,
        matrix: PETSc.Mat,
    ) -> None:
        problem.residual_p.fill(t, u, udot, p, matrix)

    ts.setIJacobianP(jacobian_p, matrix_p)


def _set_coloring(ts: PETSc.TS, problem: Problem, record: Recording) -> None:
    if problem.dm is None:
        raise InputError(
            'jacobian = "coloring" without a DM',
            expected="state=DMDA, whose stencil gives the sparsity pattern",
            remedy="jacobian=callback or Products",
        )
    if record in ("memory", "disk"):
        raise UnsupportedError(
            'PETSc\'s trajectory with jacobian = "coloring"',
            expected="an analytic jacobian: a coloured difference has no exact transpose",
            remedy="jacobian=callback or Products",
        )
    ts.setDM(problem.dm.clone())


class StepResidual:
    """F, or in steps that average over their ends the mean of F at both of them.

    PETSc's TSTHETA, in the endpoint form, adds (1 - theta)/theta F(t, u0, 0, p) to F at the end
    with the rate (u1 - u0)/(theta h), which is of first order where F_udot changes with t or u, and
    converges to something else where F is not linear in u'.  There the former is zero for TSTHETA,
    and each residual adds (1 - theta)/theta F(t, u0, k, p) to F at the end, with the rate
    k = (u1 - u0)/h in both.

    Parameters
    ----------
    problem : Problem
        With F.
    method : Method
        Of the steps.

    Source
    ------
    docs/mathematics.md, section 1.
    """

    def __init__(self, problem: Problem, method: Method) -> None:
        self._problem = problem
        theta = method.averaged(problem)
        self._averages = bool(theta)
        if self._averages:
            create = problem.create_state
            # theta F(end) + (1 - theta) F(start) = 0, divided by theta
            self._theta, self._rest = theta, (1.0 - theta) / theta
            self._start, self._rate, self._work = create(), create(), create()
            self._time = 0.0

    def evaluate(
        self, t: float, u: PETSc.Vec, udot: PETSc.Vec, p: Any, out: PETSc.Vec, *, begins: bool
    ) -> None:
        """Fill ``out`` [n]; ``begins`` says that TSTHETA asks for F at the start of a step."""
        problem = self._problem
        if not self._averages:
            problem.residual(t, u, udot, p, out)
        elif begins:
            problem.residual(t, u, udot, p, out)  # what is not finite there ends the run
            # TSTHETA adds its own multiple of this: of zero nothing comes
            out.zeroEntries()
            u.copy(self._start)
            self._time = t
        else:
            self._see(udot)
            problem.residual(t, u, self._rate, p, out)
            problem.residual(self._time, self._start, self._rate, p, self._work)
            out.axpy(self._rest, self._work)

    def fill(
        self,
        system: SystemMatrix,
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        p: Any,
        shift: float,
    ) -> None:
        """Fill the matrix of its derivative in u, where u' has the derivative ``shift``."""
        if not self._averages:
            system.fill(t, u, udot, p, shift)
            return
        self._see(udot)
        # TSTHETA's rate is (u1 - u0)/(theta h); that of the step is theta times it, and so its
        # derivative
        shift *= self._theta
        at_start = self._time, self._start, self._rate, p
        system.fill(t, u, self._rate, p, shift, (self._rest * shift, at_start))

    def _see(self, udot: PETSc.Vec) -> None:
        udot.copy(self._rate)
        self._rate.scale(self._theta)
