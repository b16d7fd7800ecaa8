"""Compute truth.json: value, gradient and Hessian product of every case, by no code of ours.

``python tests/zoo/truth.py [--missing] [name ...]``.  Closed forms are differentiated with 60
digits.  Everything else is integrated by the Radau IIA method with five stages (order 9; Hairer and
Wanner, Solving ODEs II, IV.5) with its variational equations of first and second order, whose
coefficients CasADi derives; states and sensitivities of a step and of its halves agree to 1e-8.
What is stored says how much it differs from a run with a hundred times that tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import casadi as ca
import mpmath
import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

sys.path.insert(0, str(Path(__file__).parents[1]))

from zoo import CASES, FITS, WAITING
from zoo.case import Case
from zoo.fits import FitCase

STORE = Path(__file__).with_name("truth.json")
RELAXING = 0.7
"""Part of the sizes that errors are judged by that lasts to the next step."""

STAGES = 5
ORDER = 2 * STAGES - 1

# ---- NumPy functions as CasADi graphs ------------------------------------------------------------


class Symbol:
    """A scalar of a CasADi graph that NumPy takes for a number."""

    def __init__(self, graph: Any) -> None:
        self.graph = ca.SX(graph)

    __array_ufunc__ = None

    def __bool__(self) -> bool:
        raise TypeError("a branch that goes by a symbol")


def graph(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    return value.graph if isinstance(value, Symbol) else float(value)


def lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    return np.frompyfunc(
        lambda *values: Symbol(function(*map(graph, values))), function.__code__.co_argcount, 1
    )


del Symbol.__array_ufunc__
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "truediv": lambda a, b: a / b,
    "pow": lambda a, b: 0 * b if isinstance(a, float) and a == 0 else a**b,  # 0^p has no log(0)
    "mod": lambda a, b: a - b * ca.floor(a / b),
}
COMPARISONS = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: ca.logic_and(a, b),  # noqa: PLW0108 - names of arguments
    "or": lambda a, b: ca.logic_or(a, b),  # noqa: PLW0108
}


def install() -> None:
    """Give ``Symbol`` its operators and the methods that NumPy calls."""

    def binary(function: Callable[..., Any]) -> tuple[Any, Any]:
        def forward(self: Any, other: Any) -> Any:
            if isinstance(other, np.ndarray):
                if function not in COMPARISONS.values():
                    return NotImplemented
                # NumPy would make true or false of each
                return np.frompyfunc(lambda x: forward(self, x), 1, 1)(other)
            return Symbol(function(self.graph, graph(other)))

        def backward(self: Any, other: Any) -> Any:
            return Symbol(function(graph(other), self.graph))

        return forward, backward

    for name, function in {**BINARY, **COMPARISONS}.items():
        forward, backward = binary(function)
        setattr(Symbol, f"__{name}__", forward)
        if name in BINARY or name in ("and", "or"):
            setattr(Symbol, f"__r{name}__", backward)
    for name in [
        "exp",
        "log",
        "sqrt",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "log1p",
        "expm1",
        "floor",
    ]:
        function = getattr(ca, name)
        setattr(Symbol, name, lambda self, function=function: Symbol(function(self.graph)))
    for name, known in (("arcsin", ca.asin), ("arccos", ca.acos), ("arctan", ca.atan)):
        setattr(Symbol, name, lambda self, function=known: Symbol(function(self.graph)))
    Symbol.arctan2 = lambda self, other: Symbol(ca.atan2(self.graph, graph(other)))
    Symbol.hypot = lambda self, other: Symbol(ca.sqrt(self.graph**2 + graph(other) ** 2))
    Symbol.log10 = lambda self: Symbol(ca.log(self.graph) / np.log(10.0))
    Symbol.square = lambda self: Symbol(self.graph**2)
    Symbol.__neg__ = lambda self: Symbol(-self.graph)
    Symbol.__pos__ = lambda self: self
    Symbol.__abs__ = lambda self: Symbol(ca.fabs(self.graph))
    Symbol.conjugate = lambda self: self


install()


class Linalg:
    """What of numpy.linalg is needed."""

    norm = staticmethod(lambda x: np.sqrt((np.asarray(x) ** 2).sum()))

    @staticmethod
    def solve(a: Any, b: Any) -> np.ndarray:
        symbols = [ca.SX(ca.vertcat(*[graph(v) for v in np.ravel(x)])) for x in (a, b)]
        n = len(np.asarray(b))
        matrix = ca.reshape(symbols[0], n, n).T
        solution = ca.inv(matrix) @ symbols[1]
        return np.array([Symbol(solution[i]) for i in range(n)], dtype=object)


class SymbolicNumpy:
    """NumPy, with what does not work for arrays of symbols replaced."""

    linalg = Linalg
    where = staticmethod(lifted(lambda c, a, b: ca.if_else(c, a, b)))  # noqa: PLW0108
    maximum = staticmethod(lifted(lambda a, b: ca.fmax(a, b)))  # noqa: PLW0108
    minimum = staticmethod(lifted(lambda a, b: ca.fmin(a, b)))  # noqa: PLW0108
    sign = staticmethod(lifted(lambda a: ca.sign(a)))  # noqa: PLW0108
    heaviside = staticmethod(lifted(lambda a, b: ca.if_else(a > 0, 1.0, ca.if_else(a < 0, 0.0, b))))
    clip = staticmethod(lifted(lambda x, a, b: ca.fmin(ca.fmax(x, a), b)))
    abs = staticmethod(lifted(lambda a: ca.fabs(a)))  # noqa: PLW0108
    zeros = staticmethod(lambda shape: np.zeros(shape, dtype=object))
    zeros_like = staticmethod(lambda x: np.zeros(np.shape(x), dtype=object))
    empty = zeros
    empty_like = zeros_like
    ones = staticmethod(lambda shape: np.ones(shape, dtype=object))
    mod = staticmethod(lifted(lambda a, b: a - b * ca.floor(a / b)))

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def symbolic(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with symbols; what its module calls np knows them."""
    symbols = [
        np.array([Symbol(a[i]) for i in range(a.numel())], dtype=object)
        if isinstance(a, ca.SX) and vector
        else Symbol(a)
        for a, vector in arguments
    ]
    names, own = function.__globals__, SymbolicNumpy()
    before = names["np"]
    names["np"] = own
    try:
        result = function(*symbols)
    finally:
        names["np"] = before
    return ca.vertcat(*[graph(v) for v in np.ravel(np.asarray(result, dtype=object))])


# ---- Radau IIA -----------------------------------------------------------------------------------


def radau(stages: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes c and matrix A, whose last row are the weights."""
    x = np.polynomial.Polynomial([0.0, 1.0])
    c = np.sort(((x ** (stages - 1)) * (x - 1) ** stages).deriv(stages - 1).roots().real)
    c[-1] = 1.0
    powers = np.vander(c, stages, increasing=True)
    integrals = c[:, None] ** np.arange(1, stages + 1) / np.arange(1, stages + 1)
    return c, np.linalg.solve(powers.T, integrals.T).T


C, A = radau(STAGES)


class Equations:
    """F(t, u, u', p) = 0 of a case with its running cost as last unknown, and all derivatives."""

    def __init__(self, case: Case) -> None:
        n, m = len(case.u0), len(case.p)
        t, p = ca.SX.sym("t"), ca.SX.sym("p", m)
        u, udot = ca.SX.sym("u", n + 1), ca.SX.sym("udot", n + 1)
        args = (t, False), (u[:n], True)
        if case.residual is not None:
            f = symbolic(case.residual, *args, (udot[:n], True), (p, True))
        else:
            right = symbolic(case.rhs, *args, (p, True))
            if case.mass is None:
                matrix = ca.SX.eye(n)
            elif callable(case.mass):
                matrix = ca.reshape(symbolic(case.mass, (p, True)), n, n).T
            else:
                matrix = ca.SX(ca.DM(np.asarray(case.mass, dtype=float)))
            f = matrix @ udot[:n] - right
        density = ca.SX(0) if case.running is None else symbolic(case.running, *args, (p, True))
        f = ca.vertcat(f, udot[n] - density)
        self.n, self.p = n + 1, np.array(list(case.p.values()), dtype=float)
        self.case = case
        directions = case.directions
        self.k = len(directions)
        s, sdot = ca.SX.sym("s", n + 1, self.k), ca.SX.sym("sdot", n + 1, self.k)
        dp = ca.SX(ca.DM(directions[:, n:].T)) if m else ca.SX(0, self.k)
        f_u, f_udot, f_p = (ca.jacobian(f, x) for x in (u, udot, p))
        first = f_u @ s + f_udot @ sdot + f_p @ dp
        w, wdot = ca.SX.sym("w", n + 1), ca.SX.sym("wdot", n + 1)
        dv = ca.SX(ca.DM(case.hessian_direction[n:])) if m else ca.SX(0, 1)
        moving, along = ca.vertcat(u, udot, p), ca.vertcat(w, wdot, dv)
        flat = ca.jtimes(ca.vec(first), moving, along)
        second = ca.reshape(flat, n + 1, self.k)
        last = ca.SX(0)
        if case.terminal is not None:
            last = symbolic(case.terminal, *args, (p, True))
        point = [t, u, udot, p]
        self.f = ca.Function("f", point, [f, f_u, f_udot])
        self.parameter_part = ca.Function("fp", point, [f_p @ dp, f_p @ dv])
        self.second = ca.Function("second", [*point, s, sdot, w, wdot], [second])
        self.last = self.cost("last", last + u[n], t, u, p, s, w, dp, dv)
        self.seen = None
        if case.observed is not None:
            _, indices, _, sigma = case.observed
            y = ca.SX.sym("y", len(indices))
            misfit = sum(((u[i] - y[j]) / sigma) ** 2 for j, i in enumerate(indices)) / 2
            self.seen = self.cost("seen", misfit, t, u, p, s, w, dp, dv, y)

    def cost(self, name: str, j: Any, t: Any, u: Any, p: Any, s: Any, w: Any, *rest: Any) -> Any:
        dp, dv, *more = rest
        slope = ca.jacobian(j, u) @ s + ca.jacobian(j, p) @ dp
        curve = ca.jtimes(slope.T, ca.vertcat(u, p), ca.vertcat(w, dv))
        q = ca.SX.sym("q", self.n, self.k)
        curve = curve.T + ca.jacobian(j, u) @ q
        return ca.Function(name, [t, u, p, s, w, q, *more], [j, slope, curve])


class State:
    """u, its derivatives along the directions s and along v, and those of s along v."""

    def __init__(self, u: np.ndarray, s: np.ndarray, w: np.ndarray, q: np.ndarray) -> None:
        self.parts = u, s, w, q

    @property
    def all(self) -> np.ndarray:
        u, s, w, q = self.parts
        return np.column_stack([u, w, s, q])


def factorised(matrix: Any, n: int) -> Callable[[np.ndarray], np.ndarray]:
    if n > 160:
        return scipy.sparse.linalg.splu(scipy.sparse.csc_matrix(matrix)).solve
    pair = scipy.linalg.lu_factor(matrix, check_finite=False)
    return lambda right: scipy.linalg.lu_solve(pair, right, check_finite=False)


def step(equations: Equations, t: float, h: float, state: State) -> State | None:
    """Take one step, or return None where Newton's iteration does not converge."""
    u0, s0, w0, q0 = state.parts
    n, p, k = equations.n, equations.p, np.zeros((STAGES, equations.n))
    times = t + h * C
    previous = np.inf
    for _ in range(15):
        stages = u0 + h * (A @ k)
        if not np.isfinite(stages).all():
            return None
        values = [equations.f(times[j], stages[j], k[j], p) for j in range(STAGES)]
        f = np.array([np.asarray(value[0]).ravel() for value in values])
        if n > 160:
            by_u = [value[1].sparse() for value in values]
            by_udot = [value[2].sparse() for value in values]
            blocks = [
                [
                    h * A[i, j] * by_u[i] + (by_udot[i] if i == j else 0 * by_udot[i])
                    for j in range(STAGES)
                ]
                for i in range(STAGES)
            ]
            matrix = scipy.sparse.bmat(blocks)
        else:
            by_u = [np.asarray(value[1]) for value in values]
            by_udot = [np.asarray(value[2]) for value in values]
            matrix = np.block(
                [
                    [h * A[i, j] * by_u[i] + (i == j) * by_udot[i] for j in range(STAGES)]
                    for i in range(STAGES)
                ]
            )
        if not np.isfinite(f).all():
            return None
        try:
            solve = factorised(matrix, n)
            change = solve(-f.ravel()).reshape(STAGES, n)
        except (RuntimeError, ValueError, np.linalg.LinAlgError):
            return None
        k = k + change
        largest = abs(u0 + h * (A @ k)).max(axis=0)
        moved = abs(h * (A @ change)) / (largest + 1e-12 * largest.max() + 1e-300)
        size = np.nan_to_num(moved, nan=np.inf).max()
        if size < 1e-15 or (size < 1e-3 and size >= previous / 2):  # rounding
            break
        previous = size
    else:
        return None
    stages = u0 + h * (A @ k)
    first, along = [], []
    for j in range(STAGES):
        by_directions, by_v = equations.parameter_part(times[j], stages[j], k[j], p)
        first.append(-(by_u[j] @ s0) - np.asarray(by_directions))
        along.append(-(by_u[j] @ w0) - np.asarray(by_v).ravel())
    rates = solve(np.concatenate(first)).reshape(STAGES, n, -1)
    w_rates = solve(np.concatenate(along)).reshape(STAGES, n)
    s_stages = s0 + h * np.einsum("ij,jnk->ink", A, rates)
    w_stages = w0 + h * (A @ w_rates)
    second = []
    for j in range(STAGES):
        point = times[j], stages[j], k[j], p
        source = equations.second(*point, s_stages[j], rates[j], w_stages[j], w_rates[j])
        second.append(-(by_u[j] @ q0) - np.asarray(source))
    q_rates = solve(np.concatenate(second)).reshape(STAGES, n, -1)
    q1 = q0 + h * np.einsum("j,jnk->nk", A[-1], q_rates)
    return State(stages[-1], s_stages[-1], w_stages[-1], q1)


def integrate(case: Case, tolerance: float, equations: Equations) -> dict[str, Any]:
    """Return value, gradient and Hessian product of a case, and its last state."""
    n = len(case.u0)
    directions = case.directions
    zero = np.zeros((1, len(directions)))
    state = State(
        np.append(np.array(case.u0, dtype=float), 0.0),
        np.concatenate([directions[:, :n].T, zero]),
        np.append(case.hessian_direction[:n], 0.0),
        np.zeros((n + 1, len(directions))),
    )
    value, slope, curve = 0.0, np.zeros(len(directions)), np.zeros(len(directions))
    observed = list(case.observed[0]) if case.observed is not None else []
    ends = sorted({*observed, *case.breakpoints, case.span[1]})
    # of higher indices the first matrices are singular to rounding where steps are tiny
    t, h = case.span[0], (1e-3 if case.consistent else 1e-6) * (case.span[1] - case.span[0])
    sizes = abs(state.all)
    steps = 0
    # the unknowns of a field have one size, zeros among them; others have each their own
    floor = 1e-3 if case.n_directions or case.fixed_start else 1e-12 if case.mass is None else 1e-6

    def see(index: int) -> None:
        nonlocal value, slope, curve
        u, s, w, q = state.parts
        data = case.observed[2][index]
        j, by, second = equations.seen(t, u, equations.p, s, w, q, data)
        value += float(j)
        slope = slope + np.asarray(by).ravel()
        curve = curve + np.asarray(second).ravel()

    for index, time_seen in enumerate(observed):
        if time_seen == t:
            see(index)
    for end in ends:
        while t < end:
            last = t + 1.0001 * h >= end
            size = end - t if last else h
            whole = step(equations, t, size, state)
            half = whole and step(equations, t, size / 2, state)
            both = half and step(equations, t + size / 2, size / 2, half)
            if not both:
                h = size / 4
                if t + h == t:
                    raise RuntimeError(f"steps too small at {t}")
                continue
            # derivatives are huge in layers, and are not to be lost beside that behind them
            new = np.maximum(RELAXING * sizes, abs(both.all))
            # each unknown by its own size, sensitivities by the largest of their row
            scale = np.concatenate(
                [new[:, :1], np.broadcast_to(new[:, 1:].max(1, keepdims=True), new[:, 1:].shape)], 1
            )
            scale = np.maximum(scale, floor * scale.max(axis=0)) + 1e-300
            error = (abs(both.all - whole.all) / scale).max() / tolerance
            steps += 1
            factor = 0.85 * (1 / max(error, 1e-12)) ** (1 / (ORDER + 1))
            if error <= 1:
                t, state, sizes = (end if last else t + size), both, new
                h = max(h, size) if last and factor > 1 else size
                h = h * min(4.0, max(0.3, factor)) if not last else size * min(4.0, factor)
            else:
                h = size * max(0.2, factor)
            if steps > 60000 or t + h == t:
                raise RuntimeError(f"no end at {t}, h = {h}")
        for index, time_seen in enumerate(observed):
            if time_seen == t:
                see(index)
    u, s, w, q = state.parts
    j, by, second = equations.last(t, u, equations.p, s, w, q)
    return {
        "value": value + float(j),
        "gradient": (slope + np.asarray(by).ravel()).tolist(),
        "hessian": (curve + np.asarray(second).ravel()).tolist(),
        "final": u[:n].tolist(),
        "steps": steps,
    }


def variational(case: Case) -> dict[str, Any]:
    equations = Equations(case)
    fine = integrate(case, case.truth_tolerance, equations)
    coarse = integrate(case, 100 * case.truth_tolerance, equations)
    steps = fine.pop("steps")
    fine["uncertainty"] = {
        key: distance(coarse[key], fine[key]) for key in ("value", "gradient", "hessian")
    }
    fine["how"] = f"Radau IIA of order 9 with variational equations, {2 * steps} steps"
    return fine


def distance(ours: Any, truth: Any) -> float:
    ours, truth = np.atleast_1d(ours), np.atleast_1d(truth)
    return float(abs(ours - truth).max() / (abs(truth).max() or 1.0))


# ---- closed forms, programs ----------------------------------------------------------------------


def closed(case: Case) -> dict[str, Any]:
    with mpmath.workdps(60):
        x = [mpmath.mpf(float(v)) for v in case.x]
        v = [mpmath.mpf(float(c)) for c in case.hessian_direction]

        def at(a: Any, d: Sequence[Any], b: Any) -> Any:
            return case.truth([xi + a * di + b * vi for xi, di, vi in zip(x, d, v, strict=True)])

        h = mpmath.mpf(10) ** -12
        rows = [[mpmath.mpf(float(c)) for c in d] for d in case.directions]
        slope = [
            float(
                (8 * (at(h, d, 0) - at(-h, d, 0)) - at(2 * h, d, 0) + at(-2 * h, d, 0)) / (12 * h)
            )
            for d in rows
        ]
        curve = [
            float((at(h, d, h) - at(h, d, -h) - at(-h, d, h) + at(-h, d, -h)) / (4 * h * h))
            for d in rows
        ]
        value = float(at(0, v, 0))
    none = {"value": 1e-16, "gradient": 1e-15, "hessian": 1e-15}
    how = "closed form, differentiated with 60 digits"
    return {"value": value, "gradient": slope, "hessian": curve, "uncertainty": none, "how": how}


SLOPES = {6: {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}, 4: {1: 2 / 3, 2: -1 / 12}}
CURVES = {6: {1: 3 / 2, 2: -3 / 20, 3: 1 / 90}, 4: {1: 4 / 3, 2: -1 / 12}}


def by_program(case: Case, h: float = 3e-4) -> dict[str, Any]:
    """Differentiate an independent program by differences of order six, checked by order four."""
    value, v = float(case.truth(case.x)), case.hessian_direction

    def along(d: np.ndarray, size: float) -> dict[int, float]:
        steps = (*range(-3, 0), *range(1, 4))
        return {k: float(case.truth(case.x + k * size * d)) for k in steps}

    def slope(values: dict[int, float], order: int, size: float) -> float:
        return sum(w * (values[k] - values[-k]) for k, w in SLOPES[order].items()) / size

    def curve(values: dict[int, float], order: int, size: float) -> float:
        terms = (w * (values[k] - 2 * value + values[-k]) for k, w in CURVES[order].items())
        return sum(terms) / size**2

    results: dict[int, tuple[list[float], list[float]]] = {6: ([], []), 4: ([], [])}
    for d in case.directions:
        alone, plus, minus = along(d, h), along(d + v, 2 * h), along(d - v, 2 * h)
        for order, (slopes, curves) in results.items():
            slopes.append(slope(alone, order, h))
            curves.append((curve(plus, order, 2 * h) - curve(minus, order, 2 * h)) / 4)
    fine, coarse = results[6], results[4]
    uncertainty = {
        "value": 1e-12,
        "gradient": distance(coarse[0], fine[0]),
        "hessian": distance(coarse[1], fine[1]),
    }
    how = "differences of order six of an independent program"
    return {
        "value": value,
        "gradient": fine[0],
        "hessian": fine[1],
        "uncertainty": uncertainty,
        "how": how,
    }


# ---- fits ----------------------------------------------------------------------------------------


def fitted(case: FitCase) -> dict[str, Any]:
    """Return estimates and standard errors by SciPy, with the Hessian of the sum of squares."""
    times, *rows = (np.array(column, dtype=float) for column in case.data.values())
    measured = np.array(rows)

    def residuals(logs: np.ndarray) -> np.ndarray:
        p = np.exp(logs)
        solution = solve_ivp(
            lambda t, u: np.asarray(case.rhs(t, u, p), dtype=float),
            case.span,
            case.u0,
            "DOP853",
            t_eval=np.maximum(times, 0.0),
            rtol=1e-12,
            atol=1e-13 * max(1.0, np.max(np.abs(case.u0))),
        )
        return (solution.y[list(case.observe)] - measured).ravel()

    tight = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "jac": "3-point", "x_scale": "jac"}
    logs = np.log(list(case.guess.values()))
    logs = least_squares(residuals, logs, max_nfev=400, **tight).x
    k, size = len(logs), 3e-3

    def half_sum(d: np.ndarray) -> float:
        return float(residuals(logs + d) @ residuals(logs + d)) / 2

    hessian, middle = np.zeros((k, k)), half_sum(np.zeros(k))

    def curve(d: np.ndarray) -> float:
        near, far = (half_sum(c * d) + half_sum(-c * d) - 2 * middle for c in (1, 2))
        return (16 * near - far) / 12 / size**2

    unit = size * np.eye(k)
    for i in range(k):
        for j in range(i):
            hessian[i, j] = (curve(unit[i] + unit[j]) - curve(unit[i] - unit[j])) / 4
            hessian[j, i] = hessian[i, j]
        hessian[i, i] = curve(unit[i])
    variance = 2 * middle / (measured.size - k)
    errors = np.exp(logs) * np.sqrt(variance * np.diag(np.linalg.inv(hessian)))
    estimate = np.exp(logs)
    values = {"estimate": estimate.tolist(), "standard_error": errors.tolist()}
    if case.certified:
        off = abs(estimate / list(case.certified.values()) - 1).max()
        values["published"] = float(off)
    values["uncertainty"] = {"estimate": 1e-7, "standard_error": 1e-4}
    values["how"] = "SciPy: least_squares with DOP853 at 1e-12, differences for the Hessian"
    return values


def truth(case: Case | FitCase) -> dict[str, Any]:
    if isinstance(case, FitCase):
        return fitted(case)
    if case.truth_of:
        known = json.loads(STORE.read_text())[case.truth_of]
        parts = ("value", "gradient", "hessian", "uncertainty")
        return {key: known[key] for key in parts} | {"how": f"that of {case.truth_of}"}
    if case.truth is None:
        solution = variational(case)
    else:
        solution = closed(case) if case.exact else by_program(case)
    if case.published:
        off = max(
            abs(solution["final"][i] - value) / abs(value) for i, value in case.published.items()
        )
        solution["published"] = off
        if off > case.published_digits:
            print(f"  {case.name}: published digits are {off:.1e} away")
    return solution


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--skip", default="")
    options = parser.parse_args()
    stored = json.loads(STORE.read_text()) if STORE.exists() else {}
    for case in [*CASES, *WAITING, *FITS]:
        stored = json.loads(STORE.read_text()) if STORE.exists() else {}
        if options.skip and case.name in options.skip.split(","):
            continue
        if options.names and not any(part in case.name for part in options.names):
            continue
        if options.missing and case.name in stored:
            continue
        begin = time.perf_counter()
        try:
            exact = truth(case)
        except Exception as error:  # noqa: BLE001 - the next case may do
            print(f"{case.name}: {type(error).__name__}: {error}", flush=True)
            continue
        worst = exact["uncertainty"]
        taken = time.perf_counter() - begin
        print(f"{case.name}: {taken:.1f} s, {exact['how']}, {worst}", flush=True)
        stored = json.loads(STORE.read_text()) if STORE.exists() else {}
        stored[case.name] = exact
        new = STORE.with_suffix(".new")
        lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(stored.items()))
        new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        new.replace(STORE)  # at once: others read it meanwhile


if __name__ == "__main__":
    main()
