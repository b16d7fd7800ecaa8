"""Hybrid systems: equations that change at events, and problems with more events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from petsc4py import PETSc

from daeosens.errors import InputError, nearest, require, suggestion, together
from daeosens.petsc.vectors import read
from daeosens.problem.breakpoints import admit_breakpoints
from daeosens.problem.callback_guard import guarded
from daeosens.problem.event import EventLike, admit_events, admit_known_events, unknown_modes
from daeosens.problem.problem import Problem


def hybrid(
    modes: Mapping[str, Problem],
    start: str | Callable[..., str],
    events: Iterable[EventLike] = (),
) -> Problem:
    """Describe equations that change at events: one problem for each mode.

    Parameters
    ----------
    modes : mapping of str to Problem
        The equations; unknowns, parameters, style and communicator are those of all.
    start : str or callable
        The first mode, or ``start(t, u, p) -> str``, the same on every rank.
    events : sequence of Event
        Those with ``mode="..."`` switch.

    Returns
    -------
    Problem

    Raises
    ------
    InputError
        An unknown mode, or modes that do not fit together.

    Examples
    --------
    >>> from daeosens import ODE, Event
    >>> heating = ODE(lambda t, u, p: p[0] - u, size=1, parameters=["power"])
    >>> cooling = ODE(lambda t, u, p: -u, size=1, parameters=["power"])
    >>> hot = Event(lambda t, u, p: u[0] - 0.8, direction=1, mode="off", name="hot")
    >>> cold = Event(lambda t, u, p: u[0] - 0.4, direction=-1, mode="on", name="cold")
    >>> hybrid({"on": heating, "off": cooling}, "on", [hot, cold]).mode
    'on'
    """
    require(modes, Mapping, "modes", 'hybrid({"on": problem, "off": problem}, "on", events)')
    for name, problem in modes.items():
        require(name, str, f"mode {name!r}", "names of modes")
        require(problem, Problem, f'mode "{name}"', "ODE(f, size, parameters) for each mode")
    if not modes:
        raise InputError(
            "there are no modes", expected="at least one", remedy="ODE(..., events=events)"
        )
    if not isinstance(start, str) and not callable(start):
        raise InputError(f"start = {start!r}", expected="a name, or a function (t, u, p) -> name")
    events = admit_events(events)
    complaints = unknown_modes(events, modes)
    if isinstance(start, str) and start not in modes:
        expected = f"expected: {', '.join(modes)}{suggestion(start, modes)}"
        complaints.append(f'it starts in the unknown mode "{start}"; {expected}')
    first = next(iter(modes.values()), None)
    for name, problem in modes.items():
        assert first is not None
        if (problem.size, problem.parameter_names, problem.style) != (
            first.size,
            first.parameter_names,
            first.style,
        ):
            complaints.append(f'mode "{name}" is {problem}; expected: the shape of {first}')
        if problem.monitor is not None:
            complaints.append(
                f'mode "{name}" is a DAEO, whose optimisers would not be followed; expected: one '
                "DAEO, with a parameter in f and h that its events change"
            )
        if problem.events or problem.modes:
            complaints.append(f'mode "{name}" has events of its own; expected: all in one list')
    if complaints:
        raise together(complaints, heading="hybrid")
    # which mode will be on at a breakpoint is not known before the run: all of them hit those of
    # each
    times = admit_breakpoints(sorted({t for mode in modes.values() for t in mode.breakpoints}))
    alike = {name: replace(problem, breakpoints=times) for name, problem in modes.items()}
    # layouts and sizes are those of any mode; equations are asked of the mode that is on
    shape = alike[start] if isinstance(start, str) else next(iter(alike.values()))
    return replace(shape, events=events, modes=alike, mode=start)


def add_events(problem: Problem, events: Iterable[EventLike]) -> Problem:
    """Return the problem with more events.

    Raises
    ------
    InputError
        A mode that the problem has not.

    Examples
    --------
    >>> from daeosens import ODE, Event
    >>> decay = ODE(lambda t, u, p: -u, size=1)
    >>> len(add_events(decay, [Event(0.5, lambda t, u, p: u + 1.0)]).events)
    1
    """
    require(problem, Problem, "problem", "ODE(f, size, parameters)")
    more = admit_known_events(events, problem.modes)
    return replace(problem, events=(*problem.events, *more))


def entered_mode(
    problem: Problem, mode: str | Callable[..., str], t: float, u: PETSc.Vec, p: Any
) -> str:
    """Return the mode that is entered with a state [n].

    Raises
    ------
    InputError
        A function names a mode that there is not.
    """
    if isinstance(mode, str):
        return mode
    comm = problem.comm
    named = guarded(mode, "mode", comm)(t, read(u) if problem.style == "numpy" else u, p)
    # a function of the rank's own part of the state may name different modes
    every = [named] if comm.size == 1 else comm.tompi4py().allgather(named)
    wrong = [name for name in every if not isinstance(name, str) or name not in problem.modes]
    if wrong:
        raise InputError(
            f"the mode at t = {t:.9g} is {wrong[0]!r}",
            expected=f"one of {', '.join(problem.modes)}",
            remedy=nearest(str(wrong[0]), problem.modes),
        )
    if len(set(every)) > 1:
        raise InputError(
            f"the mode at t = {t:.9g} is {' and '.join(dict.fromkeys(every))}, by rank",
            expected="the same on every rank",
        )
    return named
