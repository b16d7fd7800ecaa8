"""Functions of ``math`` of the time, at many points in one call."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import daeosens as ds

Array = npt.NDArray[np.float64]

TIMES = np.linspace(0.1, 9.0, 300)


@pytest.mark.parametrize(
    "of_time",
    [
        lambda t: max(0.0, math.sin(math.pi * (t - 6.0) / 12.0)),
        lambda t: math.exp(-((t - 3.0) ** 2)) + math.log(1.0 + t, 2.0) + math.log10(1.0 + t),
        lambda t: math.erf(t) + math.lgamma(1.0 + t) + math.gamma(1.0 + 0.1 * t),
        lambda t: math.fmod(t, 2.0) * math.pow(t, 1.5) + math.copysign(1.0, t - 5.0),
        lambda t: math.hypot(t, 1.0) + math.atan2(t, 3.0) + math.degrees(t) + math.fabs(t - 5.0),
    ],
)
def test_derivatives_of_all_points_take_few_calls(of_time: Callable[[Any], Any]) -> None:
    calls: list[float] = []

    def rhs(t: Any, u: Array, p: Array) -> Array:
        calls.append(1.0)
        return np.array([u[1] - p[0] * of_time(t), -u[0] * u[1] * of_time(t)])

    states = np.random.default_rng(0).uniform(1.0, 2.0, (TIMES.size, 2))
    rate = np.array([0.7])
    batch: Any = ds.ODE(rhs, 2, ["rate"]).batch
    batch.jacobian(TIMES, states, rate)
    calls.clear()
    by_u = batch.jacobian(TIMES, states, rate)
    by_p = batch.push_parameters(TIMES, states, rate, np.eye(1))[0]
    assert len(calls) < 30
    values = np.array([of_time(t) for t in TIMES.tolist()])
    assert np.allclose(by_p[:, 0], -values, rtol=1e-14, atol=0.0)
    assert np.allclose(by_u[:, 1, 0], -states[:, 1] * values, rtol=1e-14, atol=0.0)
    assert np.allclose(by_u[:, 1, 1], -states[:, 0] * values, rtol=1e-14, atol=0.0)
