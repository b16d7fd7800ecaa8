"""``solve``: a run from its start to its end, through the events on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy.typing as npt
from petsc4py import PETSc

from daeosens.derivatives.step_placement.bends_in_time import with_bends_in_time
from daeosens.derivatives.step_placement.decays import damp_decays
from daeosens.derivatives.step_placement.kink_cuts import cut_at_kinks
from daeosens.derivatives.step_placement.knots import with_knots
from daeosens.derivatives.step_placement.oscillations import resolve_oscillations
from daeosens.derivatives.step_placement.poles import warn_of_poles
from daeosens.derivatives.step_placement.pulses import see_pulses, warn_of_pulses
from daeosens.derivatives.step_placement.rests import divide_rest
from daeosens.derivatives.step_placement.step_control import resolved
from daeosens.errors import InputError, UnsupportedError, is_one_of, require
from daeosens.petsc._kernels import no_options
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.problem.problem import PossiblyNamed, Problem
from daeosens.timestepping.c_rhs import repeats_python
from daeosens.timestepping.delayed_run import run_delayed
from daeosens.timestepping.events.event_loop import run_of
from daeosens.timestepping.method_choice import AUTO, by_form, replaced, run_chosen
from daeosens.timestepping.smooth_run import smooth_run
from daeosens.timestepping.step_log import FLAT
from daeosens.timestepping.stepping import Stepping, pinned_times, refuse_reserved
from daeosens.timestepping.thinning import checkpointed, fitting, refuse_other_steps, staying
from daeosens.timestepping.trajectory.actions import (
    CheckpointSchedule,
    is_schedule,
    name_of,
    refuse_used,
)
from daeosens.timestepping.trajectory.checkpoints import Checkpoints
from daeosens.timestepping.trajectory.trajectory import Recording, Trajectory

Checkpoint: TypeAlias = "Literal['auto', 'states', 'stages'] | Checkpoints | CheckpointSchedule"
"""What runs keep for their derivatives."""


@QUIET
@unwrapped
def solve(
    problem: Problem,
    u0: npt.ArrayLike | PETSc.Vec | Mapping[str, float],
    p: PossiblyNamed,
    stepping: Stepping,
    t_eval: npt.ArrayLike | None = None,
    checkpoint: Checkpoint = "auto",
    petsc_trajectory: Literal["memory", "disk"] | None = None,
) -> Trajectory:
    """Integrate a problem in time and keep the log of its accepted steps.

    Collective on ``problem.comm``.

    Parameters
    ----------
    problem : Problem
        From ``ODE`` or ``DAE``.
    u0 : array or Vec [n], or mapping of str to float
        Initial state, by name if the unknowns have names; for a DAE it has to satisfy the algebraic
        equations.
    p : array or Vec [m], or mapping of str to number or array
        Parameters: in order, or by name, ``{"rate": 0.5}``.
    stepping : Stepping
        Method and step sizes.
    t_eval : array_like [K], optional
        Increasing times inside the span that steps must hit exactly; a time that rounding alone
        tells from an end of the span is that end.
    checkpoint : {"auto", "states", "stages"}, Checkpoints or a schedule
        What is kept for derivatives: "states", every state; "stages": also the stages of
        Runge-Kutta steps, up to 256 MiB a rank, which saves sweeps their recomputation;
        ``Checkpoints(n)``, n states at a time, from which sweeps take the others again; a schedule
        of the library checkpoint_schedules, of which each run takes a copy: those that it says.
        "auto" keeps every state while they take up to half of the memory that is free, and as many
        as fit there otherwise.
    petsc_trajectory : {"memory", "disk"}, optional
        Keep PETSc's own trajectory as well, for ``adjoint(..., engine="tsadjoint")``.

    Returns
    -------
    Trajectory

    Raises
    ------
    InputError
        Anything that does not fit together, before the first step.
    SolveError
        TS stopped early, or the state is no longer finite; the same on every rank.

    Examples
    --------
    >>> from daeosens import ODE
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> float(run.u[-1, 0].round(6))
    0.367879
    """
    require(problem, Problem, "problem", "ODE(f, size, parameters), or trace(f, ...) compiled")
    if problem.comm.size > 1:
        agree(
            problem.comm,
            "solve",
            stepping=stepping,
            t_eval=() if t_eval is None else t_eval,
            checkpoint=checkpoint,
            petsc_trajectory=petsc_trajectory,
            form=problem.form,
            coloring=problem.coloring,
            breakpoints=problem.breakpoints,
            events=[event.name for event in problem.events],
            modes=list(problem.modes),
        )
        PETSc.garbage_cleanup(problem.comm)  # petsc4py delays the destruction of parallel objects
    check_checkpoint(checkpoint)
    few = None if isinstance(checkpoint, str) else checkpoint
    record: Recording = "stages" if checkpoint == "stages" else "states"
    if checkpoint == "auto":
        record = "first stages"
    if petsc_trajectory is not None:
        record = _own_of_petsc(petsc_trajectory, checkpoint)
    require(stepping, Stepping, "stepping", 'Stepping((0.0, 1.0), "rk6vr", rtol=1e-6)')
    problem.faults.clear()
    if not no_options():
        refuse_reserved(PETSc.Options().getAll(), "command line")
    # copies: the run's log must not change with the user's arrays
    state, parameters = problem.admit_state(u0), problem.admit_parameters(p)
    if not (stepping.cut or (problem.smooth and problem.delays is None)):
        raise UnsupportedError(
            "cut = False for a problem with events or delays",
            expected="steps that end at the times of costs",
            remedy="Stepping without cut=False; run(t) is the state at any time",
        )
    # tsadjoint has no breakpoints
    problem = problem if petsc_trajectory else with_knots(problem, state, parameters, stepping)
    # Steps hit breakpoints in any case: f may jump there.
    asked = pinned_times(stepping, t_eval, problem.breakpoints)
    pinned = asked if stepping.cut else pinned_times(stepping, None, problem.breakpoints)
    agree(problem.comm, "solve", p=parameters)
    whole = _needs_all(problem, stepping, petsc_trajectory)
    if few is not None and whole:
        raise _refused_checkpoints(few, petsc_trajectory, stepping)
    if few is None:
        # only "auto" may thin a run whose states do not fit
        asked_for_all = "" if checkpoint == "auto" else f'checkpoint = "{checkpoint}"'
        few = fitting(problem, stepping, pinned, whole or asked_for_all)
    if problem.delays is not None:
        delayed = by_form(problem, stepping)

        def take_delayed(start: PETSc.Vec, times: Array) -> Trajectory:
            return run_delayed(problem, start, parameters, delayed, times, record)

        run = take_delayed(state, pinned)
        if not delayed.adaptive:
            warn_of_pulses(run)
        if not delayed.adaptive or delayed.shares:
            return run
        return cut_at_kinks(*see_pulses(run, pinned, take_delayed), take_delayed)
    if not problem.smooth and petsc_trajectory is not None:
        raise UnsupportedError(
            f'petsc_trajectory = "{petsc_trajectory}" for a problem with events',
            expected="no trajectory of PETSc's, which has no jumps",
            remedy='adjoint(..., engine="vectors")',
        )

    def cut(steps: Stepping, run: Trajectory, hit: Array) -> Trajectory:
        # states that do not fit into memory are not all looked at
        warn_of_poles(run)
        if not steps.adaptive:
            warn_of_pulses(run)
        if not steps.adaptive or petsc_trajectory is not None or (few and checkpoint == "auto"):
            return run

        def take(start: PETSc.Vec, times: Array) -> Trajectory:
            return _taken(problem, start, parameters, steps, record, times, few)

        return cut_at_kinks(*divide_rest(*see_pulses(run, hit, take), take), take)

    def hit_by(steps: Stepping) -> Array:
        def tried(few_steps: Stepping) -> Trajectory:
            return _taken(problem, state.copy(), parameters, few_steps, "states", pinned[:0])

        return with_bends_in_time(pinned, problem, state, parameters, steps, tried)

    def taken(steps: Stepping, start: PETSc.Vec) -> Trajectory:
        hit = hit_by(steps)
        run = _taken(problem, start, parameters, steps, record, hit, few)
        if petsc_trajectory is None:

            def by(finer: Stepping) -> Trajectory:
                return _taken(problem, run.stored[0].copy(), parameters, finer, record, hit, few)

            run = damp_decays(
                resolve_oscillations(run, stepping.max_steps, by), stepping.max_steps, by
            )
        return cut(run.stepping, run, hit)

    if stepping.control == "states" and stepping.method == AUTO:
        # the equations decide which method "auto" is, so the run is taken by whoever asks them
        def chosen(steps: Stepping) -> Trajectory:
            return taken(steps, state.copy())

        return refuse_other_steps(
            run_chosen(
                *(problem, state, parameters, stepping, chosen),
                of_petsc=petsc_trajectory is not None,
            ),
            few,
        )
    if stepping.control == "states":
        return refuse_other_steps(taken(stepping, state), few)
    if petsc_trajectory is not None:
        raise UnsupportedError(
            f'petsc_trajectory = "{petsc_trajectory}" with control = {stepping.control!r}',
            expected="no trajectory of PETSc's, which knows one run alone",
            remedy='adjoint(..., engine="vectors")',
        )

    def controlled(steps: Stepping) -> Trajectory:
        kept = record if steps.resolved_method.explicit else "stages"  # tangents need them

        def take(times: Array) -> Trajectory:
            return _taken(problem, state.copy(), parameters, steps, kept, times)

        return resolved(problem, steps, hit_by(steps), take)

    return run_chosen(problem, state, parameters, stepping, controlled)


@QUIET
@unwrapped
def solve_part(
    problem: Problem,
    u0: npt.ArrayLike | PETSc.Vec,
    p: PossiblyNamed,
    stepping: Stepping,
    span: tuple[float, float],
    times: Array,
) -> Trajectory:
    """Integrate over a part of the span of a stepping; all parts share one TS.

    For many short runs of a problem without events and delays, which would spend most of their time
    on setting up.

    Parameters
    ----------
    problem, u0, p, stepping
        As for ``solve``; the stepping cuts steps at times.
    span : (float, float)
        The part.
    times : array [K]
        Increasing times inside that steps hit.

    Raises
    ------
    SolveError
        As ``solve``.
    """
    whole = stepping.t_eval or problem.breakpoints or problem.comm.size > 1
    if whole or stepping.method == AUTO or stepping.control != "states":
        inside = tuple(t for t in stepping.t_eval if span[0] <= t <= span[1])
        return solve(problem, u0, p, replaced(stepping, t_span=span, t_eval=inside), times)
    problem.faults.clear()
    state, parameters = problem.admit_state(u0), problem.admit_parameters(p)
    completed = with_knots(problem, state, parameters, stepping)
    if completed is not problem:
        return solve(completed, u0, p, replaced(stepping, t_span=span), times)
    return smooth_run(problem, state, parameters, stepping, times, "states", span=span)


def check_checkpoint(checkpoint: object) -> None:
    """Refuse what says nothing of what runs keep.

    Raises
    ------
    InputError
        Names those that do.
    """
    if isinstance(checkpoint, Checkpoints) or is_one_of(checkpoint, "auto", "states", "stages"):
        return
    if is_schedule(checkpoint):
        refuse_used(checkpoint)
        return
    remedy = ""
    if is_one_of(checkpoint, "memory", "disk"):
        remedy = f'petsc_trajectory="{checkpoint}", for engine="tsadjoint"'
    expected = (
        '"auto", "states", "stages", timestepping.Checkpoints(n) or a schedule of the library '
        "checkpoint_schedules"
    )
    raise InputError(f"checkpoint = {checkpoint!r}", expected=expected, remedy=remedy)


def _own_of_petsc(petsc_trajectory: Any, checkpoint: Checkpoint) -> Recording:
    """Return where PETSc's own trajectory is kept.

    Raises
    ------
    InputError
        A name that means nothing, or stages besides.
    """
    if not is_one_of(petsc_trajectory, "memory", "disk"):
        expected = '"memory", "disk", or None'
        raise InputError(f"petsc_trajectory = {petsc_trajectory!r}", expected=expected)
    if checkpoint == "stages":
        raise InputError(
            f'checkpoint = "stages" with petsc_trajectory = "{petsc_trajectory}"',
            expected="one of them: PETSc's own trajectory is for its own adjoint",
        )
    return petsc_trajectory


def _taken(
    problem: Problem,
    state: PETSc.Vec,
    parameters: Any,
    stepping: Stepping,
    record: Recording,
    pinned: Array,
    checkpoints: Checkpoints | CheckpointSchedule | None = None,
) -> Trajectory:
    """Return a run from ``state`` [n], which becomes the first one of its log."""
    taken = run_of(problem)
    if record == "first stages" and (
        checkpoints is not None or not _repeats_python(problem, stepping)
    ):
        record = "states"
    if checkpoints is None:
        return taken(problem, state, parameters, stepping, pinned, record)
    stay = staying(checkpoints, problem, stepping, pinned, state)
    run = taken(problem, state, parameters, stepping, pinned, record, stay)
    return checkpointed(run, checkpoints, stay)


def _repeats_python(problem: Problem, stepping: Stepping) -> bool:
    """Whether a sweep would find stages again by Newton's method and callbacks in Python."""
    small = problem.size <= FLAT and problem.smooth
    return small and repeats_python(problem, stepping.resolved_method)


def _needs_all(problem: Problem, stepping: Stepping, petsc_trajectory: str | None) -> str:
    """Return what makes a run need all of its states, or nothing."""
    if petsc_trajectory is not None:
        return f'petsc_trajectory = "{petsc_trajectory}"'
    if problem.delays is not None:
        return "a delay equation"
    return "" if stepping.control == "states" else f"control = {stepping.control!r}"


def _refused_checkpoints(
    checkpoints: Checkpoints | CheckpointSchedule,
    petsc_trajectory: str | None,
    stepping: Stepping,
) -> UnsupportedError:
    """Return why a run cannot keep some of its states only."""
    asked = str(checkpoints) if isinstance(checkpoints, Checkpoints) else name_of(checkpoints)
    if petsc_trajectory is not None:
        return UnsupportedError(
            f'{asked} with petsc_trajectory = "{petsc_trajectory}"',
            expected="one of them: PETSc's own trajectory keeps all states",
            remedy='engine="vectors", which needs no trajectory of PETSc\'s',
        )
    if stepping.control == "states":
        return UnsupportedError(
            f"{asked} for a delay equation",
            expected="all states: delayed ones are read as the run goes on",
            remedy='checkpoint="states"',
        )
    return UnsupportedError(
        f"{asked} with control = {stepping.control!r}",
        expected='control = "states": tangents that control steps need all states',
        remedy='checkpoint="states"',
    )
