"""Hybrid systems with published or closed-form derivatives: a bouncing ball, an oscillator.

The ball is that of ``drivers/bouncing_ball.py``, whose closed form is there; the oscillator that of
``drivers/switched_oscillator.py`` (PETSc's ts/tutorials/hybrid/ex1*.c).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from driver_modules import driver

from daeosens import Reduced, Stepping, sensitivities
from daeosens.timestepping import Trajectory

Array = npt.NDArray[np.float64]

BALL, OSCILLATOR = driver("bouncing_ball"), driver("switched_oscillator")
TIGHT = {"snes_rtol": 1e-14, "snes_stol": 1e-15}

EXACT_START = np.array([[-0.238144981943, -0.316126656996], [0.0316126656996, -0.238144981943]])
"""du(T)/du(0), in high precision."""
EXACT_SWITCHES = np.array(
    [[0.01, 0.0, 0.00130505709625, 0.0], [0.01, 0.0, 0.00699900727418, -0.00987205812668]]
)
"""Derivatives of both switching times in (x(0), y(0), steep, flat)."""


def _symmetric(entries: dict[tuple[int, int], float]) -> Array:
    matrix = np.zeros((4, 4))
    for (i, j), value in entries.items():
        matrix[i, j] = matrix[j, i] = value
    return matrix


_X, _Y = 0, 1
_STEEP, _FLAT = 2, 3
EXACT_HESSIANS = (
    _symmetric(
        {
            (_X, _STEEP): 0.07030414163,
            (_X, _FLAT): -0.5338285569,
            (_Y, _STEEP): -0.1027231879,
            (_Y, _FLAT): 0.787880911,
            (_STEEP, _STEEP): 0.09208297769,
            (_STEEP, _FLAT): -0.5330208751,
            (_FLAT, _FLAT): 0.9979956644,
        }
    ),
    _symmetric(
        {
            (_X, _STEEP): 0.01027231879,
            (_X, _FLAT): -0.0787880911,
            (_Y, _STEEP): 0.07030414163,
            (_Y, _FLAT): -0.5338285569,
            (_STEEP, _STEEP): -0.0477818129,
            (_STEEP, _FLAT): 0.05285344979,
            (_FLAT, _FLAT): 0.1935040261,
        }
    ),
    _symmetric({(_X, _Y): -0.01, (_STEEP, _STEEP): -9.367457135e-4}),
    _symmetric(
        {(_X, _Y): -0.01, (_STEEP, _STEEP): -0.002719904488, (_FLAT, _FLAT): 7.016942279e-4}
    ),
)
"""Hessians of x(T), y(T) and both switching times, in high precision."""
DISCRETE = np.array(
    [
        [-0.23747937, -0.31956997, -0.10152497, 0.77932811],
        [0.03194354, -0.23755786, 0.07041081, -0.53474455],
    ]
)
"""Derivative of the discrete program, Crank-Nicolson with dt = 1/256, in the same four."""
EX1FD = (("-0.237478", "-0.319570", "-0.101525"), ("0.031943", "-0.237558", "0.070411"))
"""Printed by ts/tutorials/hybrid/ex1fd, by differences, in the first three."""
EX1ADJ = ("-0.1016157", "0.0704264")
"""Printed by ex1adj and ex1fwd for the first slope, with the jump of the continuous problem."""


@cache
def oscillator(method: str = "cn", dt: float = 1 / 256) -> Trajectory:
    """Return a run."""
    options = {} if method.startswith("rk") else TIGHT
    stepping = Stepping((0.0, OSCILLATOR.END), method, dt=dt, options=options)
    return OSCILLATOR.solve(stepping)


def oscillator_derivatives(method: str = "cn", dt: float = 1 / 256) -> Array:
    """Return du(T)/d(x(0), y(0), steep, flat) [2, 4]."""
    matrices = sensitivities(oscillator(method, dt))
    assert matrices.u0 is not None
    assert matrices.p is not None
    return np.hstack([matrices.u0, matrices.p])


def ball(end: float, method: str = "rk4", dt: float = 0.5, output: str = "height") -> Reduced:
    """Return the final height or speed as a function of (height, speed, gravity, restitution)."""
    config = BALL.Config(Stepping((0.0, end), method, dt=dt))
    return BALL.functional(config, BALL.OUTPUTS[output])
