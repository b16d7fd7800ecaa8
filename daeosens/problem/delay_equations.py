"""Delay equations: u' = f(t, u, z, p) with z_l = u(t - tau_l(p)), and u = phi(t, p) before the run.

A delay equation is three functions, f, tau and phi, and each is lowered to what there is: the
right-hand side of an ODE, whose derivatives at many points at once ``problem/batched`` knows.  For
f that is the ODE of the point y = (t, u, z), so that derivatives in time and in delayed states are
columns of its Jacobian as those in u are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError, UnsupportedError, is_iterable, is_real, nearest
from daeosens.petsc.vectors import Array, as_float, finite_array, read, write
from daeosens.problem.batched.protocol import Batch
from daeosens.problem.branches import Branches
from daeosens.problem.callback_guard import check_output, guarded
from daeosens.problem.delays import Delays
from daeosens.problem.derivative_arrays import as_array
from daeosens.problem.equations import ODE
from daeosens.problem.event import EventLike
from daeosens.problem.layout import make_frame
from daeosens.problem.matrices import refused
from daeosens.problem.problem import Problem

Delay: TypeAlias = "float | str | Callable[[Any], Any]"
"""A number, the name of a parameter, or a function of the parameters."""

History: TypeAlias = "npt.ArrayLike | Callable[..., Any]"

NOT_DELAYED = "a delay equation: its sweeps evaluate derivatives of f at all stages themselves"


def DDE(  # noqa: N802 (a noun of the public interface)
    rhs: Callable[..., Any],
    size: int | Sequence[str],
    parameters: int | Sequence[str] = (),
    *,
    delays: Delay | Sequence[Delay],
    history: History,
    breakpoints: npt.ArrayLike = (),
    events: Iterable[EventLike] = (),
) -> Problem:
    """Describe u'(t) = f(t, u(t), u(t - tau_1), ..., u(t - tau_d), p).

    Runs, gradients, Hessians and fits take it as they take an ``ODE``, by explicit Runge-Kutta
    methods on one processor; derivatives are exact for the steps that were taken, also those in the
    delays.  ``trace(f, size, parameters, delays=..., history=...)`` compiles f.

    Parameters
    ----------
    rhs : callable
        ``rhs(t, u, z, p) -> array [n]``; ``z`` [d, n] holds the delayed states, ``z[l]`` is that of
        the delay number l.
    size : int or sequence of str
        How many unknowns or their names, as for ``ODE``.
    parameters : int or sequence of str
        How many parameters or their names, as for ``ODE``.
    delays : number, str or callable, or a sequence of them
        Each positive: a number, the name of a parameter, or a function ``(p) -> number``.
    history : callable or array [n]
        ``history(t, p) -> array [n]``, the state before the run, or a constant one.  A run begins
        with the u0 that it is given, which may be another state than ``history(t_0, p)``.
    breakpoints : array_like [K], optional
        Times at which f or the history jumps or has a kink in t, as for ``ODE``: steps end there,
        and where sums of delays have passed since.
    events : sequence of Event, optional
        As for ``ODE``: what is delayed sees the state before and after each of them.  They reset
        the state or end the run; modes and ``changes`` of parameters are refused.

    Returns
    -------
    Problem

    Raises
    ------
    InputError
        No delay, one that is not positive, an unknown name, another signature or shape, breakpoints
        that do not increase.
    UnsupportedError
        A right-hand side that takes delayed rates as well (a neutral equation); an event that
        changes more than the state.

    Source
    ------
    docs/delays.md; Bellen and Zennaro, Numerical Methods for Delay Differential Equations, 2003.

    Examples
    --------
    >>> from daeosens import DDE, Stepping, Terminal, adjoint, solve
    >>> def rhs(t, u, z, p):
    ...     return -p[0] * z[0]
    >>> problem = DDE(rhs, 1, ["rate", "delay"], delays="delay", history=[1.0])
    >>> run = solve(problem, [1.0], [1.0, 1.0], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> float(run.u[-1, 0].round(9))  # 1 - 2 + 1 / 2
    -0.5
    >>> adjoint(run, Terminal(lambda t, u, p: u[0])).p.round(9)
    array([-1., -1.])
    """
    frame = make_frame(rhs, size, None, parameters, None, "rhs")
    n, names = frame.state.size, frame.parameter_names
    refuse_signature(rhs)
    specifications = admit_delays(delays, names)
    d = len(specifications)
    call = guarded(rhs, "rhs", PETSc.COMM_SELF)

    # y = (t, u, z) is one state of 1 + n + d n unknowns: an ODE of it brings all derivatives, in u,
    # in the delayed states and in the time, at many points too
    def function(_time: float, y: Any, p: Any) -> Any:
        t = y[0]
        values = rhs(t, y[1 : n + 1], y[n + 1 :].reshape(d, n), p)
        values = check_output(values, "rhs", (n,), t, differentiated=True)
        # as many rates as there are unknowns of y; only those of u are read
        return np.concatenate([np.zeros(1), values, np.zeros(d * n)])

    function.__module__ = getattr(rhs, "__module__", "")  # whose helpers are the user's
    batch = ODE(function, 1 + n + d * n, names).batch
    assert batch is not None

    def rate(y: Array, p: Array) -> Array:
        t = float(y[0])
        values = call(t, y[1 : n + 1], y[n + 1 :].reshape(d, n), p)
        return check_output(values, "rhs", (n,), t, names=frame.state_names)

    def at_point(t: Any, v: Any, p: Any) -> Any:
        return rhs(t, v[:n], v[n:].reshape(d, n), p)

    at_point.__module__ = function.__module__
    equations = equations_of_delays(size, names, breakpoints, events)
    past = admit_history(history, n)
    return delayed(equations, batch, rate, specifications, past, branches=Branches(at_point))


def delayed(
    equations: Problem,
    rates: Batch,
    rate: Callable[[Array, Array], Array],
    delays: Sequence[tuple[str, Any]],
    history: Callable[..., Any],
    view: Callable[[Any], Any] = lambda p: p,
    branches: Branches | None = None,
) -> Problem:
    """Return the problem of a delay equation.

    Parameters
    ----------
    equations : Problem
        An ODE of the same unknowns and parameters, whose functions are not read.
    rates, rate
        As of ``Delays``.
    delays : sequence of (str, number or callable)
        Names and values, from ``admit_delays``.
    history : callable
        ``history(t, p)``, from ``admit_history``.
    view : callable
        Makes what delays and history see of the parameters.
    branches : Branches, optional
        What decides in f at (t, (u, z), p).
    """
    n, d, names = equations.size, len(delays), equations.parameter_names
    guarded_history = guarded(history, "history", PETSc.COMM_SELF)

    def lags(_t: float, _y: Any, p: Any) -> Any:
        seen = view(p)
        values = [value(seen) if callable(value) else value for _, value in delays]
        return check_output(as_array(values), "delays", (d,), _t, differentiated=True)

    def past(_t: float, y: Any, p: Any) -> Any:
        values = history(y[0], view(p))
        return check_output(values, "history", (n,), y[0], differentiated=True)

    def decided_past(t: Any, _u: Any, p: Any) -> Any:
        return history(t, view(p))

    past.__module__ = decided_past.__module__ = getattr(history, "__module__", "")
    lags.__module__ = next(
        (getattr(value, "__module__", "") for _, value in delays if callable(value)), ""
    )

    def history_at(t: float, p: Array) -> Array:
        return check_output(guarded_history(t, view(p)), "history", (n,), t)

    def lag(p: Array) -> Array:
        return np.asarray(lags(0.0, None, p), dtype=float)

    # tau(p) and phi(t, p) as right-hand sides: derivatives of first and second order come with them
    of_lags, of_past = ODE(lags, d, names).batch, ODE(past, n, names).batch
    assert of_lags is not None
    assert of_past is not None
    delay_functions = Delays(
        tuple(name for name, _ in delays),
        rates,
        of_lags,
        of_past,
        rate,
        lag,
        history_at,
        branches,
        Branches(decided_past),
    )

    def start_rate(t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        # the only f without a run: at its start, where all delayed states are history
        write(out, rate(delay_functions.start(t, read(u), p), p))

    never = refused("rhs", NOT_DELAYED)
    return replace(
        equations,
        rhs_function=start_rate,
        rhs_u=never,
        rhs_p=never,
        rhs_t_function=never.fill,
        residual_u=never,
        residual_p=never,
        residual_t_function=never.fill,
        rhs_hessian_function=never.fill,
        residual_hessian_function=never.fill,
        rhs_time_hessian_function=None,
        residual_time_hessian_function=None,
        batch=None,
        branches=None,
        sources={},
        delays=delay_functions,
    )


def equations_of_delays(
    size: int | Sequence[str],
    names: Sequence[str],
    breakpoints: npt.ArrayLike,
    events: Iterable[EventLike],
) -> Problem:
    """Return an ODE of the unknowns, parameters and events of a delay equation.

    Raises
    ------
    UnsupportedError
        An event that changes more than the state.
    """
    equations = ODE(not_read, size, names, breakpoints=breakpoints, events=events)
    refuse_modes(equations)
    return equations


def refuse_modes(problem: Problem) -> None:
    """Refuse what events of a delay equation cannot do.

    Raises
    ------
    UnsupportedError
        Names the event.
    """
    remedy = "an unknown more of rate 0 in the place of what changes: events reset it, f reads it"
    if problem.modes:
        raise UnsupportedError(
            "modes of a delay equation", expected="one right-hand side", remedy=remedy
        )
    for event in problem.events:
        told = {"mode": event.mode, "within": event.within, "changes": event.changes}
        for name, value in told.items():
            if value:
                raise UnsupportedError(
                    f'event "{event.name}" of a delay equation: {name} = {value!r}',
                    expected="events that reset the state or end the run",
                    remedy=remedy,
                )


def not_read(_t: float, u: Array, _p: Array) -> Array:
    """Stand for the right-hand side of an ODE whose layouts alone are wanted."""
    return u


def refuse_signature(rhs: Callable[..., Any]) -> None:
    """Refuse a right-hand side that cannot take (t, u, z, p).

    Raises
    ------
    InputError, UnsupportedError
        Says how many arguments it takes; one more would be a delayed rate.
    """
    try:
        parameters = inspect.signature(rhs).parameters.values()
    except (TypeError, ValueError):  # what is written in C
        return
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return
    positional = [parameter for parameter in parameters if parameter.kind in (0, 1)]
    needed = sum(parameter.default is parameter.empty for parameter in positional)
    if needed <= 4 <= len(positional):
        return
    if needed == 5:
        raise UnsupportedError(
            "rhs takes 5 arguments: with a delayed rate u'(t - tau) the equation is neutral, and "
            "its solution has kinks at all breaking points",
            expected="rhs(t, u, z, p) with z [d, n], the delayed states",
        )
    raise InputError(
        f"rhs takes {len(positional)} arguments",
        expected="rhs(t, u, z, p) with z [d, n], the delayed states",
        remedy="" if len(positional) != 3 else "ODE(rhs, size, parameters), if nothing is delayed",
    )


def admit_delays(
    delays: Delay | Sequence[Delay], parameters: Sequence[str]
) -> list[tuple[str, Any]]:
    """Return the name of each delay, and its value: a number, or a function of p.

    Raises
    ------
    InputError
        None, one that is not positive, an unknown name.

    Examples
    --------
    >>> [name for name, _ in admit_delays([1.5, "lag"], ["rate", "lag"])]
    ['delays[0]', '"lag"']
    """
    listed = listed_delays(delays)
    if not listed:
        raise InputError("delays is empty", expected="one at least", remedy="ODE(f, size)")
    return [_admit_delay(k, delay, parameters) for k, delay in enumerate(listed)]


def listed_delays(delays: Any) -> list[Any]:
    """Return delays as they were given, one or several, as a list."""
    if isinstance(delays, (str, Real)) or callable(delays):
        return [delays]
    if is_iterable(delays) and not isinstance(delays, Mapping):
        return list(delays)
    raise InputError(
        f"delays = {delays!r}",
        expected="a number, the name of a parameter or a function of p, or a sequence of them",
    )


def _admit_delay(k: int, delay: Any, parameters: Sequence[str]) -> tuple[str, Any]:
    if callable(delay):
        name = getattr(delay, "__name__", "<lambda>")
        return f"delays[{k}]" if name == "<lambda>" else f'"{name}"', guarded_delay(delay, k)
    if isinstance(delay, str):
        if delay not in parameters:
            raise InputError(
                f'delays[{k}] = "{delay}" is no parameter',
                expected=f"one of {', '.join(parameters) or 'none'}, a number or a function of p",
                remedy=nearest(delay, parameters),
            )
        index = list(parameters).index(delay)

        def named(p: Any) -> Any:
            return p[index]

        return f'"{delay}"', named
    if is_real(delay) and 0.0 < as_float(delay) < np.inf:
        return f"delays[{k}]", float(delay)
    raise InputError(
        f"delays[{k}] = {delay!r}",
        expected="a positive number, the name of a parameter, or a function (p) -> number",
    )


def guarded_delay(delay: Callable[..., Any], k: int) -> Callable[..., Any]:
    """Return a delay as a function of p that gives one number."""
    call = guarded(delay, f"delays[{k}]", PETSc.COMM_SELF)

    def value(p: Any) -> Any:
        return check_output(call(p), f"delays[{k}]", (), 0.0, differentiated=True)

    value.__module__ = getattr(delay, "__module__", "")
    return value


def admit_history(history: History, n: int) -> Callable[..., Any]:
    """Return the history as a function (t, p) -> array [n].

    Raises
    ------
    InputError
        A constant of another shape.
    """
    if callable(history):
        return history
    constant = finite_array(history, "history", (n,))

    def call(_t: Any, _p: Any) -> Array:
        return constant.copy()

    return call
