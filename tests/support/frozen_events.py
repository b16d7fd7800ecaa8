"""Runs with events once more in NumPy, from the definition, at many complex points at once.

Nothing of the library is used but the Butcher tableaux and, of the run that is repeated, which
steps it took: sizes of steps that follow an error estimate, the order of events, the mode of each
step.  Whatever moves with state and parameters is computed anew: the times of events, the step that
ends there, the steps that go on from there to a time that is fixed.  A point is a column: states
are arrays [n, B], parameters [m, B], times [B].  Derivatives are by complex step, second ones by
differences of high order of those, along with Taylor remainders in one sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.methods import find_method
from daeosens.methods.esdirk.tableau import TABLEAUX, Esdirk
from daeosens.methods.theta.method import ThetaMethod

Values = npt.NDArray[Any]
STEP = 1e-30


@dataclass(frozen=True)
class FiredEvent:
    """An event: ``when`` is a function, a time or the number of a parameter.

    ``stops`` says that nothing but the end of the run is its effect.
    """

    when: Callable[..., Any] | float | int
    reset: Callable[..., Any] | None = None
    changes: Mapping[int, Callable[..., Any]] = field(default_factory=dict)
    mode: str | None = None
    stops: bool = False

    def value(self, t: Any, u: Values, p: Values) -> Any:
        """Return the function whose zero it is."""
        return t - p[self.when] if isinstance(self.when, int) else self.when(t, u, p)


@dataclass(frozen=True)
class System:
    """F(t, u, u', p) = 0 in each mode, and the events by name; all of it on columns.

    The last ``algebraic`` variables have no rate, and the last equations none at all.
    """

    residuals: Mapping[str, Callable[..., Any]]
    start: str
    events: Mapping[str, FiredEvent]
    algebraic: int = 0


@dataclass(frozen=True)
class Plan:
    """What a run did, one entry a step: mode, size, slope dh/dt; name and kind if it is special.

    ``kind`` is "" for a step, "cut" for one that ends at an implicit event, "jump" for an event.
    """

    times: Values
    states: Values
    steps: tuple[tuple[str, str, str, float, float], ...]


def plan(system: System, run: Any, pinned: Sequence[float]) -> Plan:
    """Return the plan of a run; ``pinned`` are the times that adaptive steps have to hit."""
    jumps = {crossing.step: crossing.name for crossing in run.crossings}
    fixed = sorted({*pinned, run.stepping.t_span[1]})
    mode, steps = system.start, []
    for n, (t, h) in enumerate(zip(run.times, run.step_sizes, strict=False)):
        name = jumps.get(n + 1, "")
        if n in jumps:
            steps.append(("jump", jumps[n], mode, 0.0, 0.0))
            mode = system.events[jumps[n]].mode or mode
        elif name and not isinstance(system.events[name].when, float):
            steps.append(("cut", name, mode, h, 0.0))
        else:
            slope = -1.0
            if run.stepping.adaptive:
                rest = next(time for time in fixed if time > t + 1e-12) - t
                slope = {1: -1.0, 2: -0.5}.get(round(rest / h), 0.0)
                slope *= abs(rest / h - round(rest / h)) < 1e-9
            steps.append(("", "", mode, float(h), slope))
    return Plan(run.times, run.u, tuple(steps))


@dataclass(frozen=True)
class Piece:
    """A point of a run, and the nodes of the step that ends there: (weight h, time, state)."""

    t: Any
    u: Values
    p: Values
    nodes: Sequence[tuple[Any, Any, Values]] = ()


def repeat(system: System, method: str, plan: Plan, u0: Values, p: Values) -> list[Piece]:
    """Take the steps of a plan from u0 [n, B] with p [m, B]; return all points."""
    t = np.full(p.shape[1:], plan.times[0])
    pieces = [Piece(t, u0, p)]
    for n, (kind, name, mode, h, slope) in enumerate(plan.steps):
        if kind == "jump":
            event = system.events[name]
            after = u0 if event.reset is None else event.reset(t, u0, p)
            changed = p.copy() + 0 * u0[0]
            for k, value in event.changes.items():
                changed[k] = value(t, u0, p)
            u0, p = after, changed
            if system.algebraic and not event.stops:
                residual, near = system.residuals[event.mode or mode], plan.states[n + 1, :, None]
                u0 = _consistent(residual, system.algebraic, (t, u0, p), near)
            pieces.append(Piece(t, u0, p))
            continue
        residual, near = system.residuals[mode], plan.states[n : n + 2, :, None]
        size: Any = h + slope * (t - plan.times[n])
        if kind == "cut":
            size = _root(residual, method, system.events[name], (t, h, u0, p), near)
        u0, nodes = step(residual, method, (t, size, u0, p), near)
        t = t + size
        pieces.append(Piece(t, u0, p, nodes))
    return pieces


def step(
    residual: Any, method: str, start: tuple[Any, Any, Values, Values], near: Values
) -> tuple[Values, list]:
    """Take one step from (t, h, u, p); return the end and the nodes of the quadrature.

    ``near`` are states [2, n, 1] before and after it, from which Newton's iteration begins.
    """
    t, h, u, p = start
    chosen = find_method(method)
    if chosen.explicit:
        table = chosen.tableau
        rates: list[Values] = []
        nodes = []
        for a, b, c in zip(table.a, table.b, table.c, strict=True):
            parts = (a_ij * k for a_ij, k in zip(a, rates, strict=False) if a_ij)
            stage = u + h * sum(parts, 0 * u)
            rates.append(-residual(t + c * h, stage, 0 * u, p))
            nodes.append((b * h, t + c * h, stage))
        return u + h * sum(b * k for b, k in zip(table.b, rates, strict=True)), nodes
    if method in TABLEAUX:
        return _diagonal(residual, TABLEAUX[method], start, near)
    assert isinstance(chosen, ThetaMethod)
    theta = chosen.theta
    if chosen.endpoint:

        def ends(x: Values) -> Values:
            rate = (x - u) / h
            left = (1 - theta) * residual(t, u, rate, p) if theta < 1 else 0.0
            return theta * residual(t + h, x, rate, p) + left

        end = _solve(ends, u + near[1] - near[0] + 0 * (t + h + p[0]))
        return end, [((1 - theta) * h, t, u), (theta * h, t + h, end)]

    def equation(x: Values) -> Values:
        return residual(t + theta * h, x, (x - u) / (theta * h), p)

    stage = _solve(equation, u + theta * (near[1] - near[0]) + 0 * (t + h + p[0]))
    return u + (stage - u) / theta, [(h, t + theta * h, stage)]


def _diagonal(
    residual: Any, scheme: Esdirk, start: tuple[Any, Any, Values, Values], near: Values
) -> tuple[Values, list]:
    """Solve F(t + c_i h, U_i, k_i) = 0 for each stage, the first one for its rate in u' alone."""
    t, h, u, p = start
    at_rest = residual(t, u, 0 * u, p)
    units = np.eye(len(u))[..., None]
    mass = np.stack([(residual(t, u, unit + 0 * u, p) - at_rest)[:, 0] for unit in units], axis=1)
    carried = np.flatnonzero(abs(mass).max(axis=1) > 1e-12)
    rates = [0 * at_rest]
    rates[0][carried] = -np.linalg.solve(mass[np.ix_(carried, carried)].real, at_rest[carried])
    nodes = [(scheme.a[-1, 0] * h, t, u)]
    for a, b, c in zip(scheme.a[1:], scheme.a[-1, 1:], scheme.c[1:], strict=True):
        base = u + h * sum(a_ij * k for a_ij, k in zip(a, rates, strict=False))
        scale = h * scheme.gamma

        def equation(x: Values, time: Any = t + c * h, base: Any = base, scale: Any = scale) -> Any:
            return residual(time, x, (x - base) / scale, p)

        stage = _solve(equation, u + c * (near[1] - near[0]) + 0 * (t + h + p[0]))
        rates.append((stage - base) / scale)
        nodes.append((b * h, t + c * h, stage))
    return stage, nodes


LARGER, INNER = 1e-20, 1e-10
"""Imaginary steps for slopes along the size of a step and its stages: the smaller ones of what is
outside do not count beside them, and the square of the last one is rounding."""


def _solve(equation: Callable[[Values], Values], start: Values) -> Values:
    """Solve for x [n, B] by Newton's iteration.

    Imaginary parts are exact one iteration after the real ones.
    """
    x = np.array(start, dtype=complex)
    units = np.eye(len(x))[..., None]
    settled = 0
    for _ in range(40):
        columns = [equation(x + INNER * 1j * unit).imag.T / INNER for unit in units]
        matrix = np.stack(columns, axis=-1)
        change = np.linalg.solve(matrix, equation(x).T[..., None])[..., 0].T
        x = x - change
        settled += bool(abs(change.real).max() <= 1e-13 * (1.0 + abs(x.real).max()))
        if settled == 3:
            return x
    raise AssertionError("Newton's iteration does not converge")


def _consistent(
    residual: Any, count: int, point: tuple[Any, Values, Values], near: Values
) -> Values:
    """Return the state [n, B] whose last variables solve the last equations."""
    t, u, p = point

    def equation(y: Values) -> Values:
        state = np.concatenate([u[:-count] + 0 * y[:1], y])
        return residual(t, state, 0 * state, p)[-count:]

    y = _solve(equation, near[-count:] + 0 * (t + u[:1] + p[0]))
    return np.concatenate([u[:-count] + 0 * y[:1], y])


def _root(
    residual: Any,
    method: str,
    event: FiredEvent,
    start: tuple[Any, float, Values, Values],
    near: Values,
) -> Any:
    """Return the size of the step that ends where the event function is zero, near the given h."""
    t, h, u, p = start

    def value(size: Any) -> Any:
        return event.value(t + size, step(residual, method, (t, size, u, p), near)[0], p)

    size = np.full(p.shape[1:], h, dtype=complex)
    settled = 0
    for _ in range(40):
        change = value(size) / (value(size + LARGER * 1j).imag / LARGER)
        size = size - change
        settled += bool(abs(change.real).max() <= 1e-13 * (abs(t).max() + h))
        if settled == 3:
            return size
    raise AssertionError("the event is not found")


# ---- derivatives ---------------------------------------------------------------------------------

DISTANCES = np.array([1.0, 2.0, 3.0, 4.0])
WEIGHTS = np.array([4 / 5, -1 / 5, 4 / 105, -1 / 280])
"""Central differences of eighth order."""


@dataclass(frozen=True)
class Reference:
    """Value, gradient [k], Hessian times the direction [k], values along it at ``epsilons``."""

    value: float
    gradient: Values
    product: Values
    along: Values


def derivatives(
    function: Callable[[Values], Values],
    x: Values,
    direction: Values,
    epsilons: Values,
    distance: float = 5e-3,
) -> Reference:
    """Return derivatives at x [k] of a function of columns [k, B], which is called once."""
    k = len(x)
    shifts = distance * np.concatenate([DISTANCES, -DISTANCES])
    real = np.concatenate([[0.0], np.repeat(np.concatenate([[0.0], shifts]), k), epsilons])
    points = x[:, None] + np.outer(direction, real) + 0j
    points[:, 1 : 1 + 9 * k] += 1j * STEP * np.tile(np.eye(k), 9)
    values = function(points)
    slopes = values[1 : 1 + 9 * k].imag.reshape(9, k) / STEP
    product = WEIGHTS @ (slopes[1:5] - slopes[5:]) / distance
    return Reference(values[0].real, slopes[0], product, values[1 + 9 * k :].real)
