"""Problems as data: equations with their derivatives, starting values, costs, exact solutions.

``FORMS`` holds one nonlinear, non-autonomous problem (3 states, 3 parameters) in every form that a
problem can take, ``COSTS`` every kind of cost for it; both can be evaluated with complex numbers,
which ``frozen.py`` uses.  ``DECAY`` has a closed form.  ``distributed.py`` holds the problems that
need a communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from daeosens import DAE, ODE, LeastSquares, Prior, Running, Stepping, Terminal
from daeosens.costs.objective import Objective
from daeosens.methods import find_method
from daeosens.methods.esdirk.tableau import TABLEAUX
from daeosens.methods.imex.tableau import TABLEAUX as PAIRS
from daeosens.methods.rk.method import EXPLICIT as RUNGE_KUTTA
from daeosens.problem import Problem, imex

EXPLICIT = tuple(method.name for method in RUNGE_KUTTA)
IMPLICIT = ("beuler", "cn", "theta:0.7", "theta:1", "midpoint")
DIAGONAL = tuple(TABLEAUX)
METHODS = EXPLICIT + IMPLICIT + DIAGONAL
ADDITIVE = tuple(PAIRS)
NO_ESTIMATE = ("rk1fe", "rk2b", "rk3", "rk4", "ars222")

# ---- three states, three parameters --------------------------------------------------------------

P0 = np.array([0.7, 1.3, 0.4])
U0 = np.array([0.8, -0.3, P0[0] * P0[1] * 0.8 + P0[2] * 0.027])  # satisfies f_3 = 0 at t = 0
T_END = 0.97  # no multiple of DT: the last step is cut
DT = 0.1

MASS = np.array([[2.0, 0.3, 0.0], [0.1, 1.5, 0.2], [0.0, -0.2, 1.0]])
SINGULAR = np.diag([1.0, 1.0, 0.0])


def rhs(t, u, p):
    return np.array(
        [
            -p[0] * u[0] + p[1] * u[1] * u[2] + p[2] * np.sin(2 * t),
            u[0] ** 2 * p[1] - p[2] * u[1] * np.cos(u[2]) + p[0] ** 2 * u[2],
            -u[2] + p[0] * p[1] * u[0] * np.exp(-t) - p[2] * u[1] ** 3,
        ]
    )


def rhs_u(t, u, p):
    return np.array(
        [
            [-p[0], p[1] * u[2], p[1] * u[1]],
            [2 * u[0] * p[1], -p[2] * np.cos(u[2]), p[2] * u[1] * np.sin(u[2]) + p[0] ** 2],
            [p[0] * p[1] * np.exp(-t), -3 * p[2] * u[1] ** 2, -1.0],
        ]
    )


def rhs_p(t, u, p):
    decay = np.exp(-t)
    return np.array(
        [
            [-u[0], u[1] * u[2], np.sin(2 * t)],
            [2 * p[0] * u[2], u[0] ** 2, -u[1] * np.cos(u[2])],
            [p[1] * u[0] * decay, p[0] * u[0] * decay, -(u[1] ** 3)],
        ]
    )


def rhs_t(t, u, p):
    return np.array([2 * p[2] * np.cos(2 * t), 0.0, -p[0] * p[1] * u[0] * np.exp(-t)])


def rhs_hessian(t, u, p, w, du, dp):
    """Derivatives of f_u^T w and f_p^T w along (du, dp)."""
    e, cos, sin = np.exp(-t), np.cos(u[2]), np.sin(u[2])
    by_u = np.array(
        [
            -dp[0] * w[0]
            + 2 * (du[0] * p[1] + u[0] * dp[1]) * w[1]
            + (dp[0] * p[1] + p[0] * dp[1]) * e * w[2],
            (dp[1] * u[2] + p[1] * du[2]) * w[0]
            - (dp[2] * cos - p[2] * sin * du[2]) * w[1]
            - 3 * (dp[2] * u[1] ** 2 + 2 * p[2] * u[1] * du[1]) * w[2],
            (dp[1] * u[1] + p[1] * du[1]) * w[0]
            + ((dp[2] * u[1] + p[2] * du[1]) * sin + p[2] * u[1] * cos * du[2]) * w[1]
            + 2 * p[0] * dp[0] * w[1],
        ]
    )
    by_p = np.array(
        [
            -du[0] * w[0]
            + 2 * (dp[0] * u[2] + p[0] * du[2]) * w[1]
            + (dp[1] * u[0] + p[1] * du[0]) * e * w[2],
            (du[1] * u[2] + u[1] * du[2]) * w[0]
            + 2 * u[0] * du[0] * w[1]
            + (dp[0] * u[0] + p[0] * du[0]) * e * w[2],
            -(du[1] * cos - u[1] * sin * du[2]) * w[1] - 3 * u[1] ** 2 * du[1] * w[2],
        ]
    )
    return by_u, by_p


# the part of f that IMEX methods step explicitly


def explicit(t, u, p):
    return np.array(
        [
            p[1] * u[1] * u[2] + p[2] * np.sin(2 * t),
            -p[2] * u[1] * np.cos(u[2]),
            p[0] * p[1] * u[0] * np.exp(-t),
        ]
    )


def explicit_u(t, u, p):
    return np.array(
        [
            [0.0, p[1] * u[2], p[1] * u[1]],
            [0.0, -p[2] * np.cos(u[2]), p[2] * u[1] * np.sin(u[2])],
            [p[0] * p[1] * np.exp(-t), 0.0, 0.0],
        ]
    )


def explicit_p(t, u, p):
    decay = np.exp(-t)
    return np.array(
        [
            [0.0, u[1] * u[2], np.sin(2 * t)],
            [0.0, 0.0, -u[1] * np.cos(u[2])],
            [p[1] * u[0] * decay, p[0] * u[0] * decay, 0.0],
        ]
    )


def explicit_hessian(t, u, p, w, du, dp):
    e, cos, sin = np.exp(-t), np.cos(u[2]), np.sin(u[2])
    by_u = np.array(
        [
            (dp[0] * p[1] + p[0] * dp[1]) * e * w[2],
            (dp[1] * u[2] + p[1] * du[2]) * w[0] - (dp[2] * cos - p[2] * sin * du[2]) * w[1],
            (dp[1] * u[1] + p[1] * du[1]) * w[0]
            + ((dp[2] * u[1] + p[2] * du[1]) * sin + p[2] * u[1] * cos * du[2]) * w[1],
        ]
    )
    by_p = np.array(
        [
            (dp[1] * u[0] + p[1] * du[0]) * e * w[2],
            (du[1] * u[2] + u[1] * du[2]) * w[0] + (dp[0] * u[0] + p[0] * du[0]) * e * w[2],
            -(du[1] * cos - u[1] * sin * du[2]) * w[1],
        ]
    )
    return by_u, by_p


def implicit(t, u, p):
    return rhs(t, u, p) - explicit(t, u, p)


def implicit_hessian(*point_and_direction):
    both, part = rhs_hessian(*point_and_direction), explicit_hessian(*point_and_direction)
    return tuple(whole - other for whole, other in zip(both, part, strict=True))


def mass(p):
    """M(p), regular."""
    return MASS * (1 + p[0]) + np.diag([0, 1, 0]) * p[1] ** 2


def mass_p(p, v):
    """d(M(p) v)/dp."""
    return np.column_stack([MASS @ v, np.array([0, 2 * p[1], 0]) * v, 0 * v])


def mass_hessian(v, p, w, dv, dp):
    """Derivatives of M^T w and (M_p v)^T w along (dv, dp)."""
    change = MASS * dp[0] + np.diag([0, 2 * p[1] * dp[1], 0])
    by_p = [w @ MASS @ dv, 2 * w[1] * (dp[1] * v[1] + p[1] * dv[1]), 0.0]
    return change.T @ w, np.array(by_p)


def initial_state(p):
    """An initial state that follows the parameters and satisfies f_3 = 0."""
    first, second = 0.8 * p[0] / P0[0], -0.3 + 0.2 * np.sin(p[2] - P0[2])
    return np.array([first, second, p[0] * p[1] * first - p[2] * second**3])


def initial_state_p(p):
    second, slope = -0.3 + 0.2 * np.sin(p[2] - P0[2]), 0.2 * np.cos(p[2] - P0[2])
    return np.array(
        [
            [0.8 / P0[0], 0.0, 0.0],
            [0.0, 0.0, slope],
            [
                2 * p[0] * p[1] * 0.8 / P0[0],
                0.8 * p[0] ** 2 / P0[0],
                -(second**3) - 3 * p[2] * second**2 * slope,
            ],
        ]
    )


@dataclass(frozen=True)
class Form:
    """One way to write the problem: F(t, u, udot, p), its derivatives, and two lowered versions.

    ``automatic`` leaves the derivatives to the library, ``analytic`` supplies all of them.
    """

    name: str
    heading: str
    automatic: Problem
    analytic: Problem
    residual: Callable[..., Any]
    residual_u: Callable[..., Any]
    residual_udot: Callable[..., Any]
    residual_p: Callable[..., Any]
    residual_t: Callable[..., Any]
    methods: tuple[str, ...] = IMPLICIT
    explicit: Callable[..., Any] | None = None
    explicit_u: Callable[..., Any] | None = None


NAMES = ("a", "b", "c")
ANALYTIC = {
    "jacobian": rhs_u,
    "jacobian_p": rhs_p,
    "rhs_t": rhs_t,
    "hessian_product": rhs_hessian,
}


def _minus(function):
    return lambda t, u, _udot, p: -function(t, u, p)


def _linear_form(name, heading, keywords, matrix, methods=IMPLICIT, matrix_p=None):
    """Return the form M u' = f; ``matrix`` maps p to M, ``matrix_p`` (p, v) to d(M v)/dp."""
    more = {} if matrix_p is None else {"mass_p": matrix_p, "mass_hessian": mass_hessian}
    by_p = matrix_p or (lambda p, v: 0.0)
    return Form(
        name,
        heading,
        ODE(rhs, 3, NAMES, **keywords),
        ODE(rhs, 3, NAMES, **keywords, **more, **ANALYTIC),
        lambda t, u, udot, p: matrix(p) @ udot - rhs(t, u, p),
        _minus(rhs_u),
        lambda t, u, udot, p: matrix(p),
        lambda t, u, udot, p: by_p(p, udot) - rhs_p(t, u, p),
        _minus(rhs_t),
        methods,
    )


def _factor(u, p):
    """How the mass of the general residual form depends on the state and the parameters."""
    return (1 + 0.1 * u[0] ** 2) * p[0]


def _general():
    def residual(t, u, udot, p):
        return MASS @ udot * _factor(u, p) - rhs(t, u, p)

    def residual_u(t, u, udot, p):
        return np.outer(MASS @ udot, [0.2 * u[0] * p[0], 0, 0]) - rhs_u(t, u, p)

    def residual_udot(t, u, udot, p):
        return MASS * _factor(u, p)

    def residual_p(t, u, udot, p):
        return np.outer(MASS @ udot, [1 + 0.1 * u[0] ** 2, 0, 0]) - rhs_p(t, u, p)

    def hessian(t, u, udot, p, w, du, dudot, dp):
        by_u, by_p = rhs_hessian(t, u, p, w, du, dp)
        by_u, by_p = -by_u, -by_p
        m, dm = w @ MASS @ udot, w @ MASS @ dudot
        by_u[0] += 0.2 * (du[0] * p[0] * m + u[0] * dp[0] * m + u[0] * p[0] * dm)
        by_p[0] += 0.2 * u[0] * du[0] * m + (1 + 0.1 * u[0] ** 2) * dm
        change = 0.2 * u[0] * du[0] * p[0] + (1 + 0.1 * u[0] ** 2) * dp[0]
        return by_u, MASS.T @ w * change, by_p

    return _residual_form(
        "F", "F(t, u, u', p) = 0", residual, residual_u, residual_udot, residual_p, hessian
    )


def _linear_residual():
    return _residual_form(
        "F linear",
        "F = M u' - f",
        lambda t, u, udot, p: MASS @ udot - rhs(t, u, p),
        _minus(rhs_u),
        lambda t, u, udot, p: MASS,
        _minus(rhs_p),
        _minus_hessian,
        linear_in_udot=True,
    )


def _minus_hessian(t, u, udot, p, w, du, dudot, dp):
    by_u, by_p = rhs_hessian(t, u, p, w, du, dp)
    return -by_u, np.zeros(3), -by_p


def _residual_form(name, heading, residual, by_u, by_udot, by_p, hessian, **keywords):
    by_t = _minus(rhs_t)
    analytic = {
        "jacobian": by_u,
        "jacobian_udot": by_udot,
        "jacobian_p": by_p,
        "residual_t": by_t,
        "hessian_product": hessian,
    }
    return Form(
        name,
        heading,
        DAE(residual, 3, NAMES, **keywords),
        DAE(residual, 3, NAMES, **analytic, **keywords),
        residual,
        by_u,
        by_udot,
        by_p,
        by_t,
    )


def _two_parts():
    """Return u' = f with f as a sum, part of which is stepped explicitly."""
    of_explicit = {
        "jacobian": explicit_u,
        "jacobian_p": explicit_p,
        "rhs_t": rhs_t,  # f_t is all of this part
        "hessian_product": explicit_hessian,
    }
    of_implicit = {
        "jacobian": lambda t, u, p: rhs_u(t, u, p) - explicit_u(t, u, p),
        "jacobian_p": lambda t, u, p: rhs_p(t, u, p) - explicit_p(t, u, p),
        "rhs_t": "autonomous",
        "hessian_product": implicit_hessian,
    }
    form = _linear_form("parts", "u' = f + g", {}, lambda p: np.eye(3), ADDITIVE)
    automatic, analytic = (
        imex(
            implicit=ODE(implicit, 3, NAMES, **(of_implicit if known else {})),
            explicit=ODE(explicit, 3, NAMES, **(of_explicit if known else {})),
        )
        for known in (False, True)
    )
    return replace(
        form, automatic=automatic, analytic=analytic, explicit=explicit, explicit_u=explicit_u
    )


FORMS: Mapping[str, Form] = {
    form.name: form
    for form in (
        _linear_form("rhs", "u' = f", {}, lambda p: np.eye(3), METHODS),
        _linear_form("M", "M u' = f", {"mass": MASS}, lambda p: MASS, IMPLICIT + DIAGONAL),
        _linear_form(
            "M singular", "singular M", {"mass": SINGULAR}, lambda p: SINGULAR, IMPLICIT + DIAGONAL
        ),
        _linear_form("M(p)", "M(p) u' = f", {"mass": mass}, mass, matrix_p=mass_p),
        _general(),
        _linear_residual(),
        _two_parts(),
    )
}

CELLS = [(form.name, method) for form in FORMS.values() for method in form.methods]
"""Every form with the methods that can step it."""

TIGHT = {"snes_rtol": 1e-14, "snes_stol": 1e-15}
"""Newton's iteration to rounding, where states are compared to 1e-12."""


def make_stepping(method: str, *, adaptive: bool = False) -> Stepping:
    """Some ten steps over (0, T_END); adaptive ones begin too large, so that one is rejected."""
    chosen = find_method(method)
    options = {} if chosen.explicit else TIGHT
    if not adaptive:
        return Stepping((0.0, T_END), method, dt=DT, options=options)
    tolerance = {1: 1e-3, 2: 1e-3, 3: 1e-5}.get(chosen.order, 1e-7)
    if method in ADDITIVE:
        tolerance *= 0.1  # or a look would warn of derivatives by the embedded solution's errors
    return Stepping((0.0, T_END), method, dt=0.3, rtol=tolerance, atol=tolerance, options=options)


def can_adapt(form: str, method: str) -> bool:
    """Whether adaptive steps are possible (see docs/support.md for the others)."""
    return method not in NO_ESTIMATE and (form, method) != ("M singular", "midpoint")


RUNS = [
    (name, method, adaptive)
    for name, method in CELLS
    for adaptive in (False, True)
    if not adaptive or can_adapt(name, method)
]
"""Every form, with its methods, with fixed and (where possible) adaptive steps."""

# ---- costs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CostCase:
    """One cost: the objective, and what it is made of, in functions that take complex numbers."""

    name: str
    objective: Objective
    terminal: Callable[..., Any] | None = None
    running: Callable[..., Any] | None = None
    observed: Mapping[float, Callable[..., Any]] = field(default_factory=dict)
    prior: Callable[..., Any] | None = None


def terminal(t, u, p):
    return u[0] ** 2 * p[2] + u[1] * u[2]


def terminal_u(t, u, p):
    return np.array([2 * u[0] * p[2], u[2], u[1]])


def terminal_p(t, u, p):
    return np.array([0.0, 0.0, u[0] ** 2])


def terminal_hessian(t, u, p, du, dp):
    by_u = np.array([2 * (du[0] * p[2] + u[0] * dp[2]), du[2], du[1]])
    return by_u, np.array([0.0, 0.0, 2 * u[0] * du[0]])


def density(t, u, p):
    return u[0] ** 2 * p[0] + t * u[1] * p[1] + u[2] ** 3


def density_u(t, u, p):
    return np.array([2 * u[0] * p[0], t * p[1], 3 * u[2] ** 2])


def density_p(t, u, p):
    return np.array([u[0] ** 2, t * u[1], 0.0])


def density_hessian(t, u, p, du, dp):
    by_u = np.array([2 * (du[0] * p[0] + u[0] * dp[0]), t * dp[1], 6 * u[2] * du[2]])
    return by_u, np.array([2 * u[0] * du[0], t * du[1], 0.0])


def density_t(t, u, p):
    return u[1] * p[1]


def observe(t, u, p):
    return np.array([u[0] * p[1], u[1] + u[2] ** 2])


def observe_u(t, u, p):
    return np.array([[p[1], 0.0, 0.0], [0.0, 1.0, 2 * u[2]]])


def observe_p(t, u, p):
    return np.array([[0.0, u[0], 0.0], [0.0, 0.0, 0.0]])


OBSERVATION_TIMES = (0.3, 0.55, T_END)
DATA = np.array([[0.1, 0.2], [0.3, 0.1], [0.0, 0.2]])
SIGMA = np.array([0.5, 0.4])
PRIOR_MEAN, PRIOR_SIGMA = np.array([-0.2, 0.1]), np.array([0.3, 0.6])


def _misfit(data):
    return lambda t, u, p: 0.5 * (((observe(t, u, p) - data) / SIGMA) ** 2).sum()


def _prior(p):
    return 0.5 * (((np.log(p[[2, 0]]) - PRIOR_MEAN) / PRIOR_SIGMA) ** 2).sum()


_TERMINAL = Terminal(terminal)
_RUNNING = Running(density)
_OBSERVATIONS = LeastSquares(OBSERVATION_TIMES, DATA, SIGMA, observe)
_PRIOR = Prior(PRIOR_MEAN, PRIOR_SIGMA, names=["c", "a"], scale="log")
_OBSERVED = {t: _misfit(row) for t, row in zip(OBSERVATION_TIMES, DATA, strict=True)}

ANALYTIC_COST = (
    Terminal(terminal, terminal_u, terminal_p, terminal_hessian)
    + 0.7 * Running(density, density_u, density_p, density_t, density_hessian)
    + LeastSquares(OBSERVATION_TIMES, DATA, SIGMA, observe, observe_u, observe_p)
    + _PRIOR
)
"""The sum of all costs with every derivative supplied."""

COSTS: Mapping[str, CostCase] = {
    case.name: case
    for case in (
        CostCase("terminal", _TERMINAL, terminal=terminal),
        CostCase("running", _RUNNING, running=density),
        CostCase("observations", _OBSERVATIONS, observed=_OBSERVED),
        CostCase("prior", _PRIOR, prior=_prior),
        CostCase(
            "sum",
            _TERMINAL + 0.7 * _RUNNING + _OBSERVATIONS + _PRIOR,
            terminal=terminal,
            running=lambda t, u, p: 0.7 * density(t, u, p),
            observed=_OBSERVED,
            prior=_prior,
        ),
    )
}

ALL_OBJECTIVES: Sequence[Objective] = [case.objective for case in COSTS.values()]

# ---- a closed form -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exact:
    """A problem whose solution is known: u(t), du(t)/du0 and du(t)/dp."""

    problem: Problem
    u0: np.ndarray
    p: np.ndarray
    solution: Callable[[float], float]
    by_u0: Callable[[float], float]
    by_p: Callable[[float], np.ndarray]


def _driven_decay() -> Exact:
    """Return u' = -a u + b cos(t), u(0) = u0."""
    a, b, u0 = 0.6, 1.5, 0.7
    norm = a * a + 1

    def forced(t):
        return (a * np.cos(t) + np.sin(t)) / norm

    def solution(t):
        return (u0 - b * a / norm) * np.exp(-a * t) + b * forced(t)

    def by_p(t):
        forced_a = np.cos(t) / norm - 2 * a * forced(t) / norm
        start_a = 1 / norm - 2 * a * a / norm**2
        free = (u0 - b * a / norm) * -t * np.exp(-a * t) - b * start_a * np.exp(-a * t)
        return np.array([free + b * forced_a, forced(t) - a / norm * np.exp(-a * t)])

    problem = ODE(lambda t, u, p: -p[0] * u + p[1] * np.cos(t), 1, ["a", "b"])
    return Exact(
        problem, np.array([u0]), np.array([a, b]), solution, lambda t: np.exp(-a * t), by_p
    )


DECAY = _driven_decay()
