"""PETSc's tutorials of the nine-bus network (ts/tutorials/power_grid/stability_9bus).

What they print is computed again here, the way they do it, to say what it is.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

import daeosens as ds

Array = npt.NDArray[np.float64]

LOSSES = (1e-4, 1e-4)  # resistance and charging of transformers in their data file
POWERS = (0.716786142395021, 1.63, 0.85)  # of the load flow
DISPATCH = (0.69, 1.59, 0.69)  # at which the optimisation begins
DT = 0.01

EX9BUS_CEILING = "1.08949"
"""Time at which the regulator of machine 3 reaches its ceiling (ex9bus)."""

EX9BUSADJ = {
    "cn": "11.6375 0.0861221 -0.253414 -1.00472 -1.43108e-06 1.97944e-07 0.335652 7.00999 0.209158 "
    "6.45601 0.0887732 -0.0771249 -0.307392 1.07132e-05 -5.6431e-07 0.255522 5.25261 0.158339",
    "beuler": "12.0182 0.0889896 -0.261012 -1.03543 0 0 0.346 7.21997 0.215548 "
    "6.66203 0.0919621 -0.0794117 -0.316973 0 0 0.263349 5.41105 0.163176",
}
"""Derivative of the first state at the end in the states at the start (ex9busadj)."""

EX9BUSOPT = {"value": "0.000217269", "norm": "0.0152858", "next": 1.08986e-05}
EX9BUSOPT_POWERS = (0.682262, 1.58035, 0.664403)
EX9BUSOPTFD = {"value": "0.000314853", "norm": "0.0212525", "next": 1.26655e-05}
EX9BUSOPTFD_POWERS = (0.681825, 1.57999, 0.663337)
"""First value and gradient norm, and value and powers after one iteration, where both stop."""


def _driver() -> ModuleType:
    path = Path(__file__).parents[2] / "drivers" / "nine_bus.py"
    spec = importlib.util.spec_from_file_location("nine_bus_driver", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRIVER: Any = _driver()
NETWORK = DRIVER.Network(LOSSES)


def config(end: float, powers: Sequence[float], method: str = "cn", **changes: Any) -> Any:
    """Return the driver's configuration of a run as in the tutorials."""
    stepping = ds.Stepping((0.0, end), method, dt=DT)
    plain = DRIVER.Config(stepping, tuple(powers), ceilings=(), losses=LOSSES)
    return replace(plain, **changes)


def first_state(method: str = "cn", *, dt: float = DT) -> ds.derivatives.Gradient:
    """Return the derivative of the first state at t = 5, by states and parameters."""
    setting = config(5.0, POWERS, method)
    setting = replace(setting, stepping=replace(setting.stepping, dt=dt))
    reduced = DRIVER.functional(setting, NETWORK)
    run = reduced.trajectory(reduced.start())
    unit = np.eye(45)[0]
    return ds.adjoint(
        run, ds.Terminal(lambda t, u, p: u[0], lambda t, u, p: unit, ds.problem.INDEPENDENT)
    )


def excess(powers: Sequence[float] = DISPATCH) -> tuple[float, Array]:
    """Return value and gradient of the frequencies' excess at t = 1.3."""
    reduced = DRIVER.functional(config(1.3, powers), NETWORK)
    value, gradient = reduced.value_and_gradient(reduced.start())
    return value, gradient.array.copy()


# ---- the tutorials' own programs -----------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """A theta method (endpoint form) for M u' = residual, with torques and references."""

    torques: Array
    references: Array
    theta: float

    def step(self, faulty: bool, u: Array) -> Array:
        """Return the state after a step."""
        y, rest = admittances(faulty), (1.0 - self.theta) / self.theta
        inertia = DRIVER.MASS / (self.theta * DT)
        old = rest * DRIVER.residual(y, u, self.torques, self.references)
        new, move = u, np.ones(1)
        while abs(move).max() > 1e-11:
            error = inertia @ (new - u) - old
            error -= DRIVER.residual(y, new, self.torques, self.references)
            move = np.linalg.solve(inertia - DRIVER.residual_u(y, new), error)
            new = new - move
        return new

    def back(self, faulty: bool, pair: tuple[Array, Array], lam: Array) -> tuple[Array, Array]:
        """Return the adjoint before a step, and that of its equation."""
        y, rest = admittances(faulty), (1.0 - self.theta) / self.theta
        inertia = DRIVER.MASS / (self.theta * DT)
        nu = np.linalg.solve((inertia - DRIVER.residual_u(y, pair[1])).T, lam)
        return inertia @ nu + rest * DRIVER.residual_u(y, pair[0]).T @ nu, nu


def admittances(faulty: bool) -> Array:
    """Return the network's matrix [18, 18], with the fault at bus 9."""
    result: Array = NETWORK.real.copy()
    if faulty:
        result[[16, 17], [17, 16]] += 1e4
    return result


def consistent(faulty: bool, u: Array) -> Array:
    """Return the state with its algebraic variables solved for, which they enter linearly."""
    u, rows = u.copy(), DRIVER.ALGEBRAIC
    y = admittances(faulty)
    block = DRIVER.residual_u(y, u)[np.ix_(rows, rows)]
    u[rows] -= np.linalg.solve(block, DRIVER.residual(y, u, 0.0, 0.0)[rows])
    return u


def as_ex9busadj(method: str) -> Array:
    """Return what ex9busadj computes: 500 steps before the fault, up to t = 5 instead of 1.

    Then 20 with the fault and 380 after it, all swept back with the Jacobian of the healthy
    network, and nothing for the jumps of the algebraic variables.
    """
    start = NETWORK.start(POWERS)
    theta = {"cn": 0.5, "beuler": 1.0}[method]
    program = Program(start.torques, start.references, theta)
    pairs: list[tuple[Array, Array]] = []
    u = start.state
    for count, faulty in ((500, False), (20, True), (380, False)):
        u = consistent(faulty, u) if pairs else u
        for _ in range(count):
            pairs.append((u, program.step(faulty, u)))
            u = pairs[-1][1]
    lam = np.eye(45)[0]
    for pair in reversed(pairs):
        lam, _ = program.back(False, pair, lam)
    return lam


def as_ex9busopt(powers: Sequence[float] = DISPATCH) -> tuple[float, Array, float]:
    """Return value and gradient as ex9busopt computes them, and the value of ex9busoptfd.

    The gradient has the torques' and the start's part, but not that of the voltage references,
    and nothing for the jumps of the algebraic variables, of which those of the start are taken
    as they were before they were solved for.  The finite-difference variant sums the integral in a
    monitor that is called once more after each jump: the integrand's mean over the last step before
    it and the first state after it counts twice.
    """
    start = NETWORK.start(tuple(powers))
    program = Program(start.torques, start.references, 0.5)

    def over(u: Array) -> tuple[float, Array]:
        result: tuple[float, Array] = DRIVER.excess((59.0, 61.0), u)
        return result

    pairs: list[tuple[Array, Array, bool]] = []
    u, value, again = start.state, 0.0, 0.0
    for count, faulty in ((100, False), (20, True), (10, False)):
        if pairs:
            u = consistent(faulty, u)
            again += 0.5 * DT * (over(pairs[-1][0])[0] + over(u)[0])
        for _ in range(count):
            pairs.append((u, program.step(faulty, u), faulty))
            value += 0.5 * DT * sum(over(pair)[0] for pair in pairs[-1][:2])
            u = pairs[-1][1]
    lam, mu = np.zeros(45), np.zeros(3)
    for before, after, faulty in reversed(pairs):
        lam += 0.5 * DT * over(after)[1]
        lam, nu = program.back(faulty, (before, after), lam)
        lam += 0.5 * DT * over(before)[1]
        mu += 2.0 * nu[DRIVER.SPEED] / DRIVER.INERTIA
    return value, mu + NETWORK.machines_at_rest(tuple(powers)).state_p.T @ lam, value + again
