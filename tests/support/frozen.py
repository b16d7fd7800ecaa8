"""The same discrete programs once more in NumPy, written from the textbook, for complex numbers.

Nothing of the library is used but the Butcher tableaux (which ``test_forward.py`` checks by their
orders of convergence).  The steps are given, so a derivative by complex step is that of the program
that was really run, exact to rounding, for adaptive steps too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from forms import CostCase, Form

from daeosens.methods import find_method
from daeosens.methods.esdirk.tableau import TABLEAUX, Esdirk
from daeosens.methods.imex.tableau import TABLEAUX as PAIRS
from daeosens.methods.rk.method import ExplicitMethod
from daeosens.methods.rk.tableau import tableau
from daeosens.methods.theta.method import ThetaMethod

Values = npt.NDArray[Any]
STEP = 1e-30


@dataclass(frozen=True)
class Step:
    """The state after a step; where running costs are evaluated: (share of h, time, state)."""

    end: Values
    nodes: list[tuple[float, Any, Values]]


def step(form: Form, method: str, t: Any, h: Any, u: Values, p: Values) -> Step:
    """Take one step; every argument may be complex."""
    chosen = find_method(method)
    if isinstance(chosen, ExplicitMethod):
        return _runge_kutta(form, chosen.kind, t, h, u, p)
    if method in TABLEAUX:
        return _diagonal(form, TABLEAUX[method], t, h, u, p)
    if method in PAIRS:
        return _additive(form, PAIRS[method], t, h, u, p)
    assert isinstance(chosen, ThetaMethod)
    return (_endpoint if chosen.endpoint else _one_stage)(form, chosen.theta, t, h, u, p)


def _runge_kutta(form: Form, kind: str, t: Any, h: Any, u: Values, p: Values) -> Step:
    table = tableau(kind)
    rates: list[Values] = []
    nodes = []
    for a, b, c in zip(table.a, table.b, table.c, strict=True):
        increments = [a_ij * k for a_ij, k in zip(a, rates, strict=False)]
        stage = u + h * sum(increments, np.zeros_like(u))
        rates.append(-form.residual(t + c * h, stage, np.zeros(len(u)), p))
        nodes.append((b, t + c * h, stage))
    return Step(u + h * sum(b * k for b, k in zip(table.b, rates, strict=True)), nodes)


def _endpoint(form: Form, theta: float, t: Any, h: Any, u: Values, p: Values) -> Step:
    """Solve theta F(t+h, u1, k) + (1 - theta) F(t, u, k) = 0 with k = (u1 - u)/h."""

    def equation(end):
        rate = (end - u) / h
        after, before = (t + h, end, rate, p), (t, u, rate, p)
        matrix = theta * (h * form.residual_u(*after) + form.residual_udot(*after))
        value = theta * h * form.residual(*after)
        if theta < 1:
            matrix = matrix + (1 - theta) * form.residual_udot(*before)
            value = value + (1 - theta) * h * form.residual(*before)
        return value, matrix

    end = _newton(equation, u, h, p, t)
    return Step(end, [(1 - theta, t, u), (theta, t + h, end)])


def _one_stage(form: Form, theta: float, t: Any, h: Any, u: Values, p: Values) -> Step:
    """Solve F(t + theta h, u + theta h k, k) = 0 for the stage; u1 = u + h k."""

    def equation(stage):
        point = (t + theta * h, stage, (stage - u) / (theta * h), p)
        matrix = theta * h * form.residual_u(*point) + form.residual_udot(*point)
        return theta * h * form.residual(*point), matrix

    stage = _newton(equation, u, h, p, t)
    return Step(u + (stage - u) / theta, [(1.0, t + theta * h, stage)])


def _diagonal(form: Form, scheme: Esdirk, t: Any, h: Any, u: Values, p: Values) -> Step:
    """Solve F(t + c_i h, U_i, k_i) = 0 for each stage, the first one for its rate in u' alone."""
    mass = form.residual_udot(t, u, np.zeros(len(u)), p)
    regular = mass.any(axis=1)
    rates = [np.zeros(len(u), np.result_type(t, h, u, p))]
    start = -form.residual(t, u, np.zeros(len(u)), p)
    rates[0][regular] = np.linalg.solve(mass[np.ix_(regular, regular)], start[regular])
    nodes = [(scheme.a[-1, 0], t, u)]
    for a, c in zip(scheme.a[1:], scheme.c[1:], strict=True):
        base = u + h * sum(a_ij * k for a_ij, k in zip(a, rates, strict=False))
        scale = h * scheme.gamma

        def equation(stage, time=t + c * h, base=base, scale=scale):
            point = (time, stage, (stage - base) / scale, p)
            matrix = scale * form.residual_u(*point) + form.residual_udot(*point)
            return scale * form.residual(*point), matrix

        stage = _newton(equation, nodes[-1][2], h, p, t)
        rates.append((stage - base) / scale)
        nodes.append((scheme.a[-1, len(nodes)], t + c * h, stage))
    return Step(nodes[-1][2], nodes)


def _additive(form: Form, pair: Esdirk, t: Any, h: Any, u: Values, p: Values) -> Step:
    """Solve U_i = u + h sum a_ij f_j + h sum e_ij g_j; u1 = u + h sum (b_i f_i + b^_i g_i)."""
    assert form.explicit is not None
    assert form.explicit_u is not None
    zero = np.zeros(len(u))
    rates: list[Values] = []
    added: list[Values] = []
    nodes = []
    for i, (b, c) in enumerate(zip(pair.a[-1], pair.c, strict=True)):
        base = u + h * sum((pair.a[i, j] * rate for j, rate in enumerate(rates)), 0.0 * u)
        base = base + h * sum((pair.a_explicit[i, j] * rate for j, rate in enumerate(added)), 0.0)
        scale, time, stage = h * pair.a[i, i], t + c * h, base
        if pair.a[i, i]:

            def equation(stage, time=time, base=base, scale=scale):
                point = (time, stage, zero, p)
                rate = -form.residual(*point) - form.explicit(time, stage, p)
                slope = -form.residual_u(*point) - form.explicit_u(time, stage, p)
                return stage - base - scale * rate, np.eye(len(u)) - scale * slope

            stage = _newton(equation, nodes[-1][2], h, p, t)
        added.append(form.explicit(time, stage, p))
        rates.append(-form.residual(time, stage, zero, p) - added[-1])
        nodes.append((b, time, stage))
    ends = (pair.a[-1], rates), (pair.b_explicit, added)
    terms = [b * rate for weights, given in ends for b, rate in zip(weights, given, strict=True)]
    return Step(u + h * sum(terms, 0.0 * u), nodes)


def _newton(equation, start: Values, *inputs: Any) -> Values:
    """Iterate until real and imaginary parts stand still, each measured by its own size."""
    x = np.array(start, dtype=np.result_type(start, *inputs))
    previous = np.inf
    for _ in range(30):
        value, matrix = equation(x)
        change = np.linalg.solve(matrix, value)
        x = x - change
        parts = [(change.real, x.real)]
        if np.iscomplexobj(x):
            parts.append((change.imag / STEP, x.imag / STEP))
        size = max(abs(d).max() / (abs(y).max() + 1e-3) for d, y in parts)
        if size < 1e-13 and size >= 0.1 * previous:
            return x
        previous = size
        if size == 0.0:
            return x
    raise AssertionError(f"Newton's iteration does not converge: {size:g}")


def run(
    form: Form, method: str, times: Values, sizes: Values, u0: Values, p: Values
) -> tuple[list[Values], list[Step]]:
    """Take the given steps; return the states and the steps."""
    states, steps = [np.asarray(u0)], []
    for t, h in zip(times, sizes, strict=False):
        steps.append(step(form, method, t, h, states[-1], p))
        states.append(steps[-1].end)
    return states, steps


def values(
    form: Form,
    method: str,
    log: tuple[Values, Values],
    costs: Sequence[CostCase],
    u0: Values,
    p: Values,
) -> Values:
    """Return the value of each cost on the steps ``log`` = (times, sizes)."""
    times, sizes = log
    states, steps = run(form, method, times, sizes, u0, p)
    result = [0.0 * (states[-1][0] + p[0]) for _ in costs]
    for k, case in enumerate(costs):
        if case.terminal is not None:
            result[k] += case.terminal(times[-1], states[-1], p)
        if case.prior is not None:
            result[k] += case.prior(p)
        for t, misfit in case.observed.items():
            n = int(np.argmin(abs(times - t)))
            result[k] += misfit(times[n], states[n], p)
        if case.running is not None:
            for h, taken in zip(sizes, steps, strict=True):
                for share, t, state in taken.nodes:
                    result[k] += h * share * case.running(t, state, p)
    return np.array(result)


def gradients(
    form: Form,
    method: str,
    log: tuple[Values, Values],
    costs: Sequence[CostCase],
    u0: Values,
    p: Values,
) -> tuple[Values, Values]:
    """Return the gradients of the costs in u0 and in p, [number of costs, n] and [..., m]."""
    n, m = len(u0), len(p)
    by_u0, by_p = np.empty((len(costs), n)), np.empty((len(costs), m))
    for j in range(n):
        moved = u0 + 1j * STEP * np.eye(n)[j]
        by_u0[:, j] = values(form, method, log, costs, moved, p).imag / STEP
    for j in range(m):
        moved = p + 1j * STEP * np.eye(m)[j]
        by_p[:, j] = values(form, method, log, costs, u0 + 0j, moved).imag / STEP
    return by_u0, by_p
