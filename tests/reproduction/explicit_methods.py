"""Explicit methods on standard problems: evaluations for a given error of the gradient.

The cost is the sum of the final state, the gradient its discrete adjoint in the initial state and
the parameters; its error is relative to the gradient at the tightest tolerance (2-norms).

Sources: the problems of DETEST are those of Hull, Enright, Fellen, Sedgwick, SIAM J. Numer. Anal.
9(4), 1972; Arenstorf's orbit is that of Hairer, Nørsett, Wanner, Solving ODEs I, section II.0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens import SolveError, Stepping, adjoint, solve, trace

Array = npt.NDArray[np.float64]

STAGES = {
    "rk3bs": 3,
    "rk5f": 6,
    "rk5dp": 6,
    "rk5bs": 7,
    "rk5ts": 6,
    "rk6vr": 8,
    "rk7vr": 10,
    "rk8vr": 13,
}
"""New ones of each step: without the last one where it is the first of the next step."""

ERRORS = (1e-3, 1e-5, 1e-7, 1e-9)
TOLERANCES = 10.0 ** -np.arange(2, 13.5, 1 / 8)
"""From the loosest to the tightest, eight a decade."""

TIGHTEST = 3e-14


def lorenz(t: float, u: Any, p: Any) -> Any:
    """Return the rate of a convecting fluid."""
    x, y, z = u
    return np.stack([p.sigma * (y - x), x * (p.rho - z) - y, x * y - p.beta * z])


def orbit(t: float, u: Any, p: Any) -> Any:
    """Return the rate of a body around another one."""
    return np.concatenate([u[2:], -p.mass * u[:2] / (u[:2] @ u[:2]) ** 1.5])


def van_der_pol(t: float, u: Any, p: Any) -> Any:
    """Return the rate of the oscillator with a limit cycle."""
    return np.stack([u[1], p.mu * (1 - u[0] ** 2) * u[1] - u[0]])


def populations(t: float, u: Any, p: Any) -> Any:
    """Return the rate of prey and predators."""
    return np.stack([p.growth * (u[0] - u[0] * u[1]), p.death * (u[0] * u[1] - u[1])])


def rigid_body(t: float, u: Any, p: Any) -> Any:
    """Return the rate of a body's angular momentum without torque."""
    return np.stack([u[1] * u[2], -u[0] * u[2], -p.inertia * u[0] * u[1]])


def satellite(t: float, u: Any, p: Any) -> Any:
    """Return the rate of a satellite of earth and moon, in axes that turn with them."""
    x, y, v, w = u
    mu, rest = p.mu, 1 - p.mu
    earth = rest / ((x + mu) ** 2 + y**2) ** 1.5
    moon = mu / ((x - rest) ** 2 + y**2) ** 1.5
    pull_x = earth * (x + mu) + moon * (x - rest)
    return np.stack([v, w, x + 2 * w - pull_x, y - 2 * v - (earth + moon) * y])


@dataclass(frozen=True, eq=False)
class Case:
    """A standard problem.

    Attributes
    ----------
    name : str
        With its source.
    rhs : callable
        f(t, u, p).
    start : tuple of float
        u(0).
    parameters : dict
        Their values.
    end : float
        The last time.
    """

    name: str
    rhs: Callable[[float, Any, Any], Any]
    start: tuple[float, ...]
    parameters: dict[str, float]
    end: float

    def work(self, errors: tuple[float, ...] = ERRORS) -> dict[str, list[int]]:
        """Return for each method the evaluations of f that reach each of the errors.

        Those of accepted steps, at the loosest tolerance from which on all are accurate enough.
        """
        gradient = self.gradients()
        exact, _ = gradient("rk8vr", TIGHTEST)
        numbers: dict[str, list[int]] = {}
        for method in STAGES:
            runs = [(np.inf, 0)]
            for tolerance in TOLERANCES:
                try:
                    values, evaluations = gradient(method, tolerance)
                except SolveError:  # loose tolerances may lead into the planet
                    runs.append((np.inf, 0))
                    continue
                error = np.linalg.norm(values - exact) / np.linalg.norm(exact)
                runs.append((float(error), evaluations))
                if error < 0.1 * min(errors):
                    break
            numbers[method] = [
                min(work for k, (_, work) in enumerate(runs) if max(runs[k:])[0] <= wanted)
                for wanted in errors
            ]
        return numbers

    def gradients(self) -> Callable[[str, float], tuple[Array, int]]:
        """Return a function of method and tolerance: the gradient, and evaluations of f."""
        model = trace(self.rhs, len(self.start), dict.fromkeys(self.parameters, ()))
        total = model.terminal(lambda t, u, p: u.sum())
        p = model.pack(**self.parameters)

        def gradient(method: str, tolerance: float) -> tuple[Array, int]:
            stepping = Stepping((0.0, self.end), method, rtol=tolerance, atol=tolerance)
            run = solve(model, self.start, p, stepping)
            gradient = adjoint(run, total)
            return np.concatenate([gradient.u0, gradient.p]), STAGES[method] * run.n_steps

        return gradient


CASES = (
    Case("orbit, DETEST D3", orbit, (0.5, 0.0, 0.0, 3**0.5), {"mass": 1.0}, 20.0),
    Case("populations, DETEST B1", populations, (1.0, 3.0), {"growth": 2.0, "death": 1.0}, 20.0),
    Case("rigid body, DETEST B5", rigid_body, (0.0, 1.0, 1.0), {"inertia": 0.51}, 20.0),
    Case("van der Pol, DETEST E2", van_der_pol, (2.0, 0.0), {"mu": 1.0}, 20.0),
    Case(
        "Lorenz, chaotic",
        lorenz,
        (1.0, 1.0, 1.0),
        {"sigma": 10.0, "rho": 28.0, "beta": 8 / 3},
        5.0,
    ),
    Case(
        "satellite, Arenstorf",
        satellite,
        (0.994, 0.0, 0.0, -2.0015851063790825),
        {"mu": 0.012277471},
        17.065216560157963,
    ),
)


def ratios(work: list[dict[str, list[int]]]) -> dict[str, Array]:
    """Return for each method the geometric mean of its evaluations over those of rk5dp."""
    counts = {method: np.log([item[method] for item in work]) for method in STAGES}
    return {
        method: np.exp((count - counts["rk5dp"]).mean(axis=0)) for method, count in counts.items()
    }
