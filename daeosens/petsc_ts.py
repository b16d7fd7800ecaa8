"""TS for problems: the only maker of them."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petsc4py import PETSc

from daeosens._petsc import (
    DENSE,
    EXPLICIT,
    DenseSteps,
    ExplicitSteps,
    Registered,
    RegisteredStencil,
    rk_tableau,
    set_chained,
    take_passes,
    time_of_stage,
)
from daeosens.compiled import Compiled
from daeosens.dense import dense_steps
from daeosens.errors import InputError, UnsupportedError
from daeosens.guards import check_output
from daeosens.methods import Method
from daeosens.problem import Problem
from daeosens.refusals import refuse_other_method
from daeosens.stepping import Stepping
from daeosens.steps import refuse_esdirk, registered_type, tableau
from daeosens.steps.linear import coarsen_points, linear_defaults
from daeosens.steps.stages import NEWTON_DEFAULTS, STAGE_DEFAULTS
from daeosens.system_matrix import SystemMatrix
from daeosens.trajectory import Checkpoint

SMALLER_STEPS: Mapping[str, Any] = {"snes_max_it": 10, "ts_max_snes_failures": -1}
"""Where Newton's method fails, or takes long, an adaptive step is tried again with another size."""

SHORT, SHORTER = 1e-3, 1e-5
"""Steps are tiny below the first part of a fixed step, or the second one of the span."""

_REGISTERED = "daeosens registered"
"""Name under which a TS keeps the C functions that it calls alive."""

_STEPS = "daeosens steps"
"""Name under which it keeps what takes its steps alive."""

FEW = 1000
"""Up to how many unknowns explicit steps are taken on plain numbers."""

_TS: Any = PETSc.TS  # the stubs of petsc4py 3.26 give enumerations the wrong type


class Held:
    """The parameters of a TS as callbacks see them; events may put others in their place."""

    def __init__(self, p: Any) -> None:
        self._p = p
        self._registered: list[Registered | RegisteredStencil | DenseSteps] = []

    @property
    def p(self) -> Any:
        """The parameters [m]."""
        return self._p

    @p.setter
    def p(self, values: Any) -> None:
        self._p = values
        for each in self._registered:
            each.hold(values)

    def register(self, problem: Problem) -> Registered | RegisteredStencil:
        """Return the C functions of a problem, which see these parameters."""
        if problem.stencil is not None:
            registered = RegisteredStencil(problem.stencil, self._p)
        else:
            rhs = problem.native["rhs"]
            registered = Registered(problem.size, (rhs.address, rhs.user_data), self._p)
        self.keep(registered)
        return registered

    def keep(self, registered: Registered | RegisteredStencil | DenseSteps) -> None:
        """Let C functions see these parameters from now on."""
        self._registered.append(registered)


def make_ts(
    problem: Problem,
    method: Method,
    t: float,
    u: PETSc.Vec,
    held: Held,
    *,
    record: Checkpoint,
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
    if method.explicit and problem.form != "rhs":
        raise UnsupportedError(
            f'method = "{method.name}" for a problem in {problem.form} form',
            expected="u' = f(t, u, p) without a mass matrix",
            remedy='"cn", "beuler", "midpoint" or "theta:<value>"',
        )
    if method.esdirk:
        refuse_esdirk(problem, method.name)
    ts = PETSc.TS().create(comm=problem.comm)
    ts.setProblemType(_TS.ProblemType.NONLINEAR)
    ts.setErrorIfStepFails(False)
    dense = dense_steps(problem, method, held.p) if plain else None
    if dense is not None:
        ts.setType(DENSE)
        held.keep(dense)
        dense.attach(ts)
        ts.setAttr(_REGISTERED, dense)
        return ts
    work = problem.create_state()

    def inside(ts: PETSc.TS, t: float) -> float:
        if method.esdirk:
            t = time_of_stage(ts, t)
        return problem.inside(t, ts.getTime(), ts.getTimeStep()) if problem.breakpoints else t

    if method.explicit:
        ts.setType(PETSc.TS.Type.RK)
        ts.setRKType(method.runge_kutta)
        if runs_in_c(problem, method):
            registered = held.register(problem)
            registered.set_rhs(ts, work)
            ts.setAttr(_REGISTERED, registered)
            if plain and record in ("states", "stages"):
                _step_on_numbers(ts, problem, registered)
        else:
            ts.setRHSFunction(
                lambda ts, t, u, out: problem.rhs(inside(ts, t), u, held.p, out), work
            )
        if record in ("memory", "disk"):
            _set_rhs_derivatives(ts, problem, t, u, held.p)
        return ts
    _set_implicit(ts, method)
    in_c = runs_in_c(problem, method)
    if not in_c:
        ts.setIFunction(
            lambda ts, t, u, udot, out: problem.residual(inside(ts, t), u, udot, held.p, out), work
        )
    if problem.coloring:
        _set_coloring(ts, problem, record)
        return ts
    udot, p = problem.create_state(), held.p
    problem.residual(t, u, udot, p, work)  # wrong callbacks are named before their derivatives are
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
        system.fill(inside(ts, t), u, udot, held.p, shift)
        if matrix != system.matrix:  # of -snes_mf_operator, which takes the point then
            matrix.assemble()

    if in_c:
        _set_compiled_residual(ts, problem, held, system, work, begins=method.esdirk)
    if not in_c or (problem.stencil is not None and system.assembled):
        ts.setIJacobian(jacobian, system.matrix, system.matrix)
    if record in ("memory", "disk") and problem.n_parameters:
        matrix_p = problem.residual_p.create(t, u, udot, p)

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
    return ts


def _step_on_numbers(
    ts: PETSc.TS, problem: Problem, registered: Registered | RegisteredStencil
) -> None:
    """Replace TSRK where the overhead of its vectors would show."""
    if isinstance(registered, Registered) and problem.comm.size == 1 and problem.size <= FEW:
        steps = ExplicitSteps(registered, rk_tableau(ts))
        steps.attach(ts)
        ts.setAttr(_STEPS, steps)


def _set_implicit(ts: PETSc.TS, method: Method) -> None:
    if method.esdirk:
        ts.setType(PETSc.TS.Type.DIRK)
        ts.setDIRKType(registered_type(method.name))
        return
    ts.setType(PETSc.TS.Type.THETA)
    ts.setTheta(method.theta)
    ts.setThetaEndpoint(method.endpoint)
    if method.name in ("cn", "beuler"):
        ts.setType(method.name)


def runs_in_c(problem: Problem, method: Method) -> bool:
    """Whether TS calls the C functions of a problem itself, so that no Python runs in a step."""
    needed = {"rhs"} if method.explicit else {"rhs", "jacobian"}
    python = problem.breakpoints or problem.field_parameter or not problem.constant_mass
    if problem.stencil is not None:
        return not (python or method.esdirk)
    return needed <= problem.native.keys() and not python


def _set_compiled_residual(
    ts: PETSc.TS,
    problem: Problem,
    held: Held,
    system: SystemMatrix,
    work: PETSc.Vec,
    *,
    begins: bool,
) -> None:
    registered = held.register(problem)
    ts.setAttr(_REGISTERED, registered)
    if isinstance(registered, RegisteredStencil):
        registered.set_residual(ts, work, None if system.assembled else system.matrix)
        return
    given = problem.native["jacobian"]
    compiled = Compiled(given, "jacobian", ((problem.size, problem.size),), returns=False)
    registered.set_residual(
        ts,
        work,
        (given.address, given.user_data),
        compiled.scratch,
        compiled.places,
        *system.parts,
        system.matrix,
        problem.create_state(),
        begins,
    )


def raise_fault(ts: PETSc.TS) -> None:
    """Raise what C functions gave that is not finite, if that is why a TS failed.

    Raises
    ------
    SolveError
        As for the callbacks of other problems.
    """
    registered: Any = ts.getAttr(_REGISTERED)
    fault = None if registered is None else registered.fault()
    if fault is not None:
        name, t, values = fault
        check_output(values, name, values.shape, t)


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


def _set_coloring(ts: PETSc.TS, problem: Problem, record: Checkpoint) -> None:
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


def default_options(
    problem: Problem, stepping: Stepping, ts: PETSc.TS, checkpoint: Checkpoint
) -> dict[str, Any]:
    """Return the library's PETSc options for a TS."""
    defaults: dict[str, Any] = {"ts_adapt_type": "basic" if stepping.adaptive else "none"}
    if stepping.max_step is not None:
        defaults["ts_adapt_dt_max"] = stepping.max_step
    method = stepping.resolved_method
    if not method.explicit:
        defaults |= STAGE_DEFAULTS if method.esdirk else NEWTON_DEFAULTS
        if method.esdirk and stepping.adaptive:
            defaults |= SMALLER_STEPS
        if problem.coloring:
            defaults["snes_fd_color"] = None
        elif ts.getType() != DENSE:
            defaults |= linear_defaults(ts.getIJacobian()[0], stepping.options)
    if checkpoint in ("memory", "disk"):
        ts.setSaveTrajectory()
        defaults["ts_trajectory_type"] = "memory" if checkpoint == "memory" else "basic"
        if checkpoint == "disk":
            defaults["ts_trajectory_dirname"] = _shared_folder(problem.comm)
            # PETSc 3.26 writes options beside each state, and reads them back into the database.
            defaults["viewer_binary_skip_info"] = None
    return defaults


def _shared_folder(comm: PETSc.Comm) -> str:
    """Name a temporary folder, which PETSc makes and removes with the trajectory.  Collective.

    It must not exist yet: PETSc 3.26 takes an existing folder for one in use.
    """
    name = f"daeosens-{uuid.uuid4().hex}" if comm.rank == 0 else ""
    return str(Path(tempfile.gettempdir()) / comm.tompi4py().bcast(name))


def set_up(ts: PETSc.TS, u: PETSc.Vec, stepping: Stepping, checkpoint: Checkpoint) -> None:
    """Give a TS times, steps, PETSc's options and a copy of the state [n], and set it up.

    Raises
    ------
    OptionError
        Options that change the method.
    """
    ts.setTime(stepping.t_span[0])
    ts.setMaxTime(stepping.t_span[1])
    ts.setTimeStep(stepping.first_step)
    ts.setMaxSteps(stepping.max_steps)
    ts.setExactFinalTime(_TS.ExactFinalTime.MATCHSTEP)
    if stepping.adaptive:
        rtol = 1e-6 if stepping.rtol is None else stepping.rtol
        atol = 1e-9 if stepping.atol is None else stepping.atol
        ts.setTolerances(rtol=rtol, atol=atol)
    ts.setFromOptions()
    if ts.getType() not in (DENSE, EXPLICIT):  # those have no options
        refuse_other_method(ts, stepping.resolved_method)
        _solve_in_passes(ts, stepping.resolved_method)
    if checkpoint in ("states", "stages") and not stepping.adaptive:
        _step_in_passes(ts, stepping.resolved_method)
    ts.setSolution(u.copy())
    ts.setUp()
    if not stepping.resolved_method.explicit and ts.getType() != DENSE:
        coarsen_points(ts.getSNES().getKSP(), u.getDM())  # TSDIRK has set another DM by now


def _solve_in_passes(ts: PETSc.TS, method: Method) -> None:
    """Replace KSPBCGS where an iteration can be a few passes over the vectors."""
    if not method.explicit:
        matrix = ts.getIJacobian()[0]
        if matrix:  # there is none yet where PETSc colors
            take_passes(ts.getSNES().getKSP(), matrix)


def _step_in_passes(ts: PETSc.TS, method: Method) -> None:
    """Replace TSRK where each stage can be one pass over the vectors of compiled points."""
    registered: Any = ts.getAttr(_REGISTERED)
    controlled = PETSc.Options().getString("ts_adapt_type", "none") != "none"
    if controlled or not method.explicit or not isinstance(registered, RegisteredStencil):
        return
    steps = tableau(method.runge_kutta).of_step
    if steps.chained:
        set_chained(ts, registered, *steps.of_passes)


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
