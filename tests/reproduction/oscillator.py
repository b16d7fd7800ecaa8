"""A damped harmonic oscillator: x' = v, v' = -x - c v; cost (x^2 + v^2)/2 at T = 10.

The solution is u(T) = M u(0) with M = exp(-g T) [[C + g S, S], [-S, C - g S]], where g = c/2,
w^2 = 1 - g^2, C = cos(w T), S = sin(w T)/w.  Gradient and Hessian in (x(0), v(0), c) follow by
differentiating M twice in g: C' = T g S, S' = -g (T C - S)/w^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens import ODE, Parameter, Parameters, Reduced, Stepping, Terminal

Array = npt.NDArray[np.float64]

NAMES = ("x0", "v0", "damping")
POINT = (0.0, 1.0, 0.151)
T_END = 10.0
PUBLISHED_GRADIENT = (0.0090664603, 0.2067384712, -1.0761234134)
PUBLISHED_HESSIAN = (
    (0.236450520, 0.00906646, -0.04121396),
    (0.00906646, 0.206738471, -2.15224722),
    (-0.04121396, -2.15224722, 11.2591836),
)


@dataclass(frozen=True)
class Exact:
    """Value, gradient [3] and Hessian [3, 3] in (x(0), v(0), damping)."""

    value: float
    gradient: Array
    hessian: Array


def closed_form(point: npt.ArrayLike = POINT, t: float = T_END) -> Exact:
    """Return the exact derivatives; weak damping, |c| < 2."""
    x0, v0, c = np.asarray(point, dtype=float)
    g, start = c / 2, np.array([x0, v0])
    w2 = 1 - g**2
    cos, sin = np.cos(np.sqrt(w2) * t), np.sin(np.sqrt(w2) * t) / np.sqrt(w2)
    cos_1, bracket = t * g * sin, (t * cos - sin) / w2
    sin_1 = -g * bracket
    cos_2 = t * sin + t * g * sin_1
    sin_2 = -bracket - g * ((t * cos_1 - sin_1) / w2 + 2 * g * bracket / w2)

    def matrix(cos: float, sin: float, g_sin: float) -> Array:
        return np.array([[cos + g_sin, sin], [-sin, cos - g_sin]])

    plain = matrix(cos, sin, g * sin)
    first = matrix(cos_1, sin_1, sin + g * sin_1)
    second = matrix(cos_2, sin_2, 2 * sin_1 + g * sin_2)
    decay = np.exp(-g * t)
    m = decay * plain
    m_c = 0.5 * decay * (first - t * plain)
    m_cc = 0.25 * decay * (second - 2 * t * first + t**2 * plain)
    u = m @ start
    by = np.column_stack([m, m_c @ start])
    twice = np.zeros((2, 3, 3))
    twice[:, :2, 2] = twice[:, 2, :2] = m_c
    twice[:, 2, 2] = m_cc @ start
    hessian = by.T @ by + np.einsum("k,kij->ij", u, twice)
    return Exact(0.5 * float(u @ u), by.T @ u, hessian)


def functional(stepping: Stepping) -> Reduced:
    """Return the cost as a function of (x(0), v(0), damping)."""

    def rhs(t: float, u: Any, p: Any) -> Any:
        return np.array([u[1], -u[0] - p[2] * u[1]])

    problem = ODE(rhs, 2, NAMES)
    start = {name: Parameter(value) for name, value in zip(NAMES, POINT, strict=True)}
    control = Parameters(start, initial_state=lambda p: p[:2])
    return Reduced(problem, Terminal(lambda t, u, p: 0.5 * (u**2).sum()), stepping, control)
