"""Whether second derivatives can be had, found out before a run that would be lost without them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from petsc4py import PETSc

from daeosens.costs.cost import At, Cost, Densities, Instant, Observation, Scalar, change
from daeosens.errors import DaeosensError, InputError, SolveError, UnsupportedError
from daeosens.methods.events.consistent_reset import consistent_map
from daeosens.methods.events.event_function import lower_changes, lower_event, lower_reset
from daeosens.methods.step import Adjoint, SecondOrder
from daeosens.petsc.vectors import gather, read
from daeosens.problem.callback_guard import QUIET
from daeosens.problem.problem import Problem
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.trajectory import Trajectory


@QUIET
def evaluate_second_derivatives(
    problem: Problem, cost: Cost, stepping: Stepping, u: PETSc.Vec, p: Any
) -> None:
    """Evaluate every second derivative that a sweep over a run may need once.  Collective.

    With implicit events those in time as well: of the equations of every mode, of densities, and of
    costs whose time is that of an event.  Where there are algebraic variables any event solves for
    them anew, and their equations are differentiated in time there.

    Parameters
    ----------
    problem : Problem
        The dynamics.
    cost : Cost
        Lowered for the end of the span.
    stepping : Stepping
        Of the run.
    u, p : Vec [n], array or Vec [m]
        The start.  Nobody knows yet where events happen: their functions are evaluated with this
        state in the middle of the span, and may have no value there.

    Raises
    ------
    UnsupportedError
        Names the one that is missing.
    """
    first, last = stepping.t_span
    start = _Probe(problem, first, u, p)
    # the time of an implicit event depends on u0 and p, so that t is an unknown of the steps after
    # it: second derivatives in t are asked for
    moving = [event for event in problem.events if not event.explicit]
    # a monitor completes the state when the run begins: before that there may be no values
    incomplete = problem.monitor is not None
    for name, mode in (problem.modes or {"": problem}).items():
        in_time = bool(moving) or (bool(problem.events) and _is_algebraic(mode, start, stepping))
        with suppress(SolveError) if incomplete else nullcontext():
            _equations(name, mode, start, in_time=in_time)
    for _, density in cost.densities:
        with suppress(SolveError) if incomplete else nullcontext():
            start.scalar(density, in_time=bool(moving))
    # where events will happen is not known yet: the middle of the span stands for it
    inside = _Probe(problem, 0.5 * (first + last), u, p)
    names = {event.name for event in moving}
    # a run that an event ends has a final time that moves, and with it its terminal costs
    cut = any(event.terminal for event in moving)
    for time, _, scalar in cost.points:
        if isinstance(time, At):
            with suppress(SolveError):
                inside.scalar(scalar, in_time=time.event in names)
        else:
            # later states may be where the cost has a value though the first one is not
            moment = time.t if isinstance(time, Instant) else time
            later = incomplete or (isinstance(moment, float) and moment > start.t)
            with suppress(SolveError) if later else nullcontext():
                start.scalar(scalar, in_time=cut and time == last)
    for event in problem.events:
        when, reset = lower_event(problem, event).when, lower_reset(problem, event)
        scalars = [value for _, value in lower_changes(problem, event)]
        for scalar in scalars if when is None else [when, *scalars]:
            with suppress(SolveError):
                inside.scalar(scalar, in_time=True)
        if reset is not None:
            with suppress(SolveError):
                inside.equations(reset, in_time=True)


@QUIET
def evaluate_at_events(
    trajectory: Trajectory,
    costs: Mapping[int, Sequence[Observation]],
    densities: Densities,
) -> None:
    """Evaluate the second derivatives that only events ask for once.  Collective.

    Those of each event, where it first happened in the run, and of costs there; and those in time
    of the equations and densities, if the time of an event moves.  A sweep back would come to them
    late.

    Parameters
    ----------
    trajectory : Trajectory
        The run.
    costs : mapping
        The scalars of costs by the number of the state, from ``points_by_step``.
    densities : sequence of (float, Scalar)
        Running costs with their weights.

    Raises
    ------
    InputError, UnsupportedError
        Names the one that is missing, or has a wrong shape.
    """
    problem, states = trajectory.problem, trajectory.stored
    zero, nothing = problem.create_state(), problem.create_parameters()
    dp = nothing if problem.field_parameter else gather(nothing)
    out = (problem.create_state(), problem.create_parameters())
    # reversed, so that of each name the earliest is left
    first = {crossing.name: crossing.step for crossing in reversed(trajectory.crossings)}
    for n in first.values():
        step, record = trajectory.step(n), trajectory.records[n]
        before = trajectory.records[n - 1] if n else record
        probe = _Probe(problem, step.t, step.u, record.p)
        if before.ends_at is not None and before.ends_at.when is not None:
            probe.scalar(before.ends_at.when, in_time=True)
            with suppress(SolveError):  # the sweep sees other points
                probe.equations(problem.modes.get(before.mode, problem), in_time=True)
                for _, density in densities:
                    probe.scalar(density, in_time=True)
        if record.jump is not None:
            direction = SecondOrder(zero, zero, dp, nothing, *out)
            record.jump.second_order(step._replace(p=record.p), Adjoint(zero, nothing), [direction])
    seen: set[int] = set()
    # costs at states whose times move are differentiated in time, each function once
    for n in sorted(trajectory.moving.intersection(costs)):
        probe = _Probe(problem, float(trajectory.times[n]), states[n], trajectory.parameters(n))
        for observation in costs[n]:
            if id(observation.scalar) not in seen:
                seen.add(id(observation.scalar))
                probe.scalar(observation.scalar, in_time=True)


def _equations(name: str, mode: Problem, start: _Probe, *, in_time: bool) -> None:
    try:
        with suppress(SolveError) if name else nullcontext():  # a mode may begin elsewhere
            start.equations(mode, in_time=in_time)
    except UnsupportedError as error:
        if not name:
            raise
        raise UnsupportedError(f'mode "{name}": {error}') from error


def _is_algebraic(mode: Problem, start: _Probe, stepping: Stepping) -> bool:
    """Whether events solve for algebraic variables; what cannot be is for the run to say."""
    try:
        point = (start.t, start.u, start.p)
        # an event keeps the differential unknowns and solves for the others (index 1): where there
        # are such, there is a map
        return consistent_map(mode, *point, stepping.options) is not None
    except DaeosensError:
        return False


@contextmanager
def _by_its_name(first: Callable[[], object]) -> Generator[None]:
    """Let a first derivative of a wrong shape be told of as such, not as a second one."""
    try:
        yield
    except (InputError, ValueError):
        first()
        raise


@dataclass(frozen=True, eq=False)
class _Probe:
    """A point at which second derivatives are evaluated, along the vector of ones."""

    problem: Problem
    t: float
    u: PETSc.Vec
    p: Any

    def equations(self, equations: Problem, *, in_time: bool) -> None:
        w, zero = self._ones(), self.problem.create_state()
        outs = (self.problem.create_state(), self.problem.create_parameters())
        if equations.delays is not None:
            equations.delays.try_second_derivatives(self.t, read(self.u), self.p)
            return
        if equations.form == "rhs":
            point = (self.t, self.u, self.p)
            equations.rhs_hessian(point, w, (w, self._no_dp()), outs)
            if in_time:
                with _by_its_name(lambda: equations.rhs_t(*point, zero)):
                    equations.rhs_time_hessian(point, w, outs)
            return
        point = (self.t, self.u, zero, self.p)
        three = (outs[0], self.problem.create_state(), outs[1])
        equations.residual_hessian(point, w, (w, zero, self._no_dp()), three)
        if in_time:
            with _by_its_name(lambda: equations.residual_t(*point, three[1])):
                equations.residual_time_hessian(point, w, three)

    def scalar(self, scalar: Scalar, *, in_time: bool) -> None:
        outs = (self.problem.create_state(), self.problem.create_parameters())
        point = (self.t, self.u, self.p)
        with _by_its_name(lambda: change(scalar, self.problem, point, *outs, float(in_time))):
            scalar.add_hessian(1.0, point, (self._ones(), self._no_dp()), outs)
            if in_time:
                scalar.time_hessian(point, outs)

    def _ones(self) -> PETSc.Vec:
        w = self.problem.create_state()
        w.set(1.0)
        return w

    def _no_dp(self) -> Any:
        dp = self.problem.create_parameters()
        return dp if self.problem.field_parameter else gather(dp)
