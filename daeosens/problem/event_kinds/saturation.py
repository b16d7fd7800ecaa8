"""A component that stays at a limit for as long as its rate points outwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from petsc4py import PETSc

from daeosens.errors import InputError, SolveError, UnsupportedError, require
from daeosens.problem.event import Event
from daeosens.problem.event_kinds.affine import entry, surface
from daeosens.problem.event_kinds.held_component import Rate, held
from daeosens.problem.event_kinds.options import Component, Number
from daeosens.problem.event_kinds.state_names import Quantity, System, system_of
from daeosens.problem.modes import hybrid
from daeosens.problem.problem import Problem

AT_LIMIT = 1e-10
"""So near to a limit, relative to the limits, a component is taken to be at it."""


def saturation(
    system: System,
    *,
    component: Annotated[Component, "what is limited"],
    lower: Number | None = None,
    upper: Number | None = None,
) -> Callable[[Problem], Problem]:
    """Let a component that reaches a limit stay there until its rate points back inside.

    This needs more modes, not only events: see ``saturated``.

    Parameters
    ----------
    system : System
        Names.
    component : str or int
        What is limited.
    lower, upper : float or str, optional
        The limits, at least one of them: numbers or parameters.

    Returns
    -------
    callable
        ``(problem) -> problem``: adds modes and events.

    Raises
    ------
    InputError
        Names that there are not, no limit, limits the wrong way round.

    Examples
    --------
    >>> from daeosens import ODE
    >>> tank = System(["level"], ["rim"])
    >>> limit = saturation(tank, component="level", upper="rim")
    >>> sorted(limit(ODE(lambda t, u, p: 1.0 + 0 * u, 1, ["rim"])).modes)
    ['free', 'level at upper']
    """
    require(system, System, "system", 'System(["height", "speed"], ["gravity"])')
    index = system.index(component)
    bounds = {"lower": lower, "upper": upper}
    limits = {side: system.quantity(bound) for side, bound in bounds.items() if bound is not None}
    if not limits:
        raise InputError("lower and upper are missing", expected="at least one of them")
    if limits.get("lower") == limits.get("upper"):
        raise InputError(f"lower and upper are both {lower!r}", expected="two limits")
    if all(isinstance(bound, (int, float)) for bound in (lower, upper)) and lower > upper:  # type: ignore[operator]
        raise InputError(f"lower = {lower:g} is above upper = {upper:g}")
    return lambda problem: _saturate(problem, system, index, limits)


def saturated(
    problem: Problem,
    component: str | int,
    *,
    lower: float | str | None = None,
    upper: float | str | None = None,
    system: System | None = None,
) -> Problem:
    """Return a problem one of whose components has limits.

    At a limit its rate is 0 for as long as the free one points outwards; where that crosses zero it
    leaves.  Each mode of the problem gets another one for each limit: "free" and "x at upper", or
    "on" and "on, x at upper" of a ``hybrid``.  Events are called "x reaches upper" and "x leaves
    upper".  Other events keep what they do; afterwards, and at the start, the mode is the one that
    the state asks for.  May be used again for another component.

    Parameters
    ----------
    problem : Problem
        u' = f(t, u, p), or a ``hybrid`` of such; with or without events.
    component : str or int
        The component x, by name if ``system`` is given.
    lower, upper : float or str, optional
        The limits, at least one of them: numbers or parameters.
    system : System, optional
        Names of unknowns.

    Returns
    -------
    Problem

    Raises
    ------
    InputError
        Names that there are not, no limit, limits the wrong way round.
    UnsupportedError
        Equations of another form, or with breakpoints: where the rate jumps, the mode would have to
        be found anew.
    SolveError
        In a run: the component starts beyond a limit, or an event puts it there.

    Examples
    --------
    >>> import numpy as np
    >>> from daeosens import ODE, Stepping, solve
    >>> fill = ODE(lambda t, u, p: p[0] * np.cos(t) + 0 * u, 1, ["flow"])
    >>> run = solve(saturated(fill, 0, upper=0.5), [0.0], [1.0], Stepping((0, 2), "rk4", dt=0.1))
    >>> [crossing.name for crossing in run.crossings]
    ['unknown 0 reaches upper', 'unknown 0 leaves upper']
    """
    require(problem, Problem, "problem", "ODE(f, size, parameters)")
    names = system_of(problem) if system is None else system
    return saturation(names, component=component, lower=lower, upper=upper)(problem)


def _saturate(
    problem: Problem, system: System, index: int, limits: Mapping[str, Quantity]
) -> Problem:
    name = system.name(index)
    bases = dict(problem.modes) or {"": replace(problem, events=())}
    for equations in bases.values():
        if equations.form != "rhs":
            raise UnsupportedError(
                f"limits of {name} in {equations}",
                expected="equations u' = f(t, u, p)",
                remedy="ODE(...) without mass",
            )
    # where the rate jumps inside a mode no event function crosses zero
    if problem.breakpoints:
        raise UnsupportedError(
            f"limits of {name} in equations with breakpoints",
            expected="equations that do not jump: at a jump it may have to leave its limit",
        )
    variants = {
        base: {side: _joined(base, f"{name} at {side}" if side else "") for side in ("", *limits)}
        for base in bases
    }
    rates = {base: Rate(equations, index) for base, equations in bases.items()}
    side_of = _chooser(name, index, limits, problem)

    def entered(base: str | Callable[..., str]) -> Callable[..., str]:
        """Return the mode that a state asks for, as a function of (t, u, p)."""

        def mode(t: float, u: Any, p: Any) -> str:
            known = base if isinstance(base, str) else base(t, u, p)
            return variants[known][side_of(t, u, p, rates[known])]

        return mode

    events: list[Event] = []
    for event in problem.events:
        events += _lifted(event, variants, entered)
    for base in bases:
        for side, limit in limits.items():
            # reached from inside only; left where the free rate turns inwards through zero
            outwards = 1 if side == "upper" else -1
            free, at = variants[base][""], variants[base][side]
            reaches, leaves = f"{name} reaches {side}", f"{name} leaves {side}"
            events += [
                Event(
                    **surface(system, index, limit),
                    direction=outwards,
                    mode=at,
                    within=(free,),
                    name=reaches,
                ),
                Event(
                    **rates[base].surface(),
                    direction=-outwards,
                    mode=free,
                    within=(at,),
                    name=leaves,
                ),
            ]
    modes = {
        mode: held(equations, index) if side else equations
        for base, equations in bases.items()
        for side, mode in variants[base].items()
    }
    return hybrid(modes, entered(problem.mode), events)


def _joined(base: str, side: str) -> str:
    if not side:
        return base or "free"
    return side if base in ("", "free") else f"{base}, {side}"


def _lifted(
    event: Event,
    variants: Mapping[str, Mapping[str, str]],
    entered: Callable[[str | Callable[..., str]], Callable[..., str]],
) -> list[Event]:
    """Return what an event of the problem without limits becomes."""

    def all_of(bases: Any) -> tuple[str, ...]:
        return tuple(mode for base in bases for mode in variants[base].values())

    bases = [base for base in variants if event.active(base)]
    # It chooses the base mode; the limit is found anew from the state behind it.
    if event.mode is not None:
        return [replace(event, within=all_of(bases), mode=entered(event.mode))]
    # nothing changes, so the mode stays as it is
    if event.reset is None and not event.changes:
        return [replace(event, within=all_of(bases))]
    return [replace(event, within=all_of([base]), mode=entered(base)) for base in bases]


def _chooser(
    name: str, index: int, limits: Mapping[str, Quantity], problem: Problem
) -> Callable[..., str]:
    """Return the function that says at which limit a state is held: "lower", "upper" or ""."""
    vec = problem.create_state()

    def side_of(t: float, u: Any, p: Any, rate: Rate) -> str:
        if isinstance(u, PETSc.Vec):
            state = u
        else:
            vec.getArray()[...] = u
            state = vec
        values = {side: float(limit(p)) for side, limit in limits.items()}
        # located to rounding, not exactly at the limit
        near = AT_LIMIT * (max(map(abs, values.values())) or 1.0)
        x = entry(state, index)
        for side, limit in values.items():
            outwards = 1.0 if side == "upper" else -1.0
            beyond = outwards * (x - limit)
            if beyond > near:
                raise SolveError(
                    f"{name} = {x:.9g} is beyond its {side} limit {limit:.9g} at t = {t:.9g}",
                    expected="a start, and events, that put it between its limits",
                )
            if beyond >= -near and outwards * rate.value(t, state, p) > 0.0:
                return side
        return ""

    return side_of
