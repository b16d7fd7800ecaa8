"""Narrow smooth peaks in time, and those of tables, are seen between the stages of steps."""

import math
import warnings

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator
from scipy.special import expit

from daeosens import ODE, Stepping, Terminal, adjoint, solve, trace
from daeosens.errors import DiscretizationWarning

LAST = Terminal(lambda t, u, p: u[0])
TABLE = [0.0, 60.0, 60.05, 60.1, 100.0], [0.0, 0.0, 1.0, 0.0, 0.0]
HOURS = np.arange(101.0)
SPLINE = PchipInterpolator(HOURS, HOURS == 60.0)
CENTRES = np.array([20.0, 60.0, 90.0])
WIDTH = 0.05 * math.sqrt(math.pi)  # the integral of a peak

# what is made of the time, and when and how large its peaks are
PEAKS = {
    "gauss": (lambda t: np.exp(-(((t - 60) / 0.05) ** 2)), {60.0: WIDTH}),
    "math": (lambda t: math.exp(-((t - 60) ** 2) / 0.05**2), {60.0: WIDTH}),
    "sech": (lambda t: 1 / np.cosh((t - 60) / 0.05) ** 2, {60.0: 0.1}),
    "lorentz": (lambda t: 1 / (1 + ((t - 60) / 1e-4) ** 2), {60.0: 1e-4 * math.pi}),
    "two tanh": (
        lambda t: 0.5 * (np.tanh((t - 60) / 0.01) - np.tanh((t - 60.3) / 0.01)),
        {60.15: 0.3},
    ),
    "expit": (lambda t: expit((t - 60) / 0.01) - expit((t - 60.3) / 0.01), {60.15: 0.3}),
    "table": (lambda t: np.interp(t, *TABLE), {60.05: 0.05}),
    "spline": (lambda t: float(SPLINE(t)), {60.0: 1.0}),
    "spline as it is": (SPLINE, {60.0: 1.0}),
    "periodic": (
        lambda t: np.exp(-(((t % 25 - 12) / 0.05) ** 2)),
        dict.fromkeys((12.0, 37.0, 62.0, 87.0), WIDTH),
    ),
    "array": (
        lambda t: np.sum(np.exp(-(((t - CENTRES) / 0.05) ** 2))),
        dict.fromkeys(CENTRES, WIDTH),
    ),
    "loop": (
        lambda t: sum(math.exp(-(((t - c) / 0.05) ** 2)) for c in (20.0, 60.0)),
        dict.fromkeys((20.0, 60.0), WIDTH),
    ),
    "gamma": (lambda t: max(t - 60, 0) / 0.1 * np.exp(-max(t - 60, 0) / 0.1), {60.2: 0.1}),
    "alpha": (lambda t: (t - 60) / 0.1 * math.exp((60 - t) / 0.1) if t > 60 else 0.0, {60.2: 0.1}),
    "decay": (lambda t: np.where(t >= 60, np.exp((60 - t) / 0.1), 0.0), {60.1: 0.1}),
    "two scales": (
        lambda t: np.exp(-(((t - 40) / 10) ** 2)) + 20 * np.exp(-(((t - 60) / 0.02) ** 2)),
        {60.0: 20 * 0.02 * math.sqrt(math.pi), 40.0: 0.0},
    ),
}
SLOW = 1e-3


def forced(shape):
    return lambda t, u, p: np.array([-p[0] * u[0] + p[1] * shape(t)])


def left(peaks, rate=SLOW):
    """What is left of the peaks at t = 100, whose widths do not matter."""
    return sum(size * math.exp(-rate * (100.0 - at)) for at, size in peaks.items())


@pytest.mark.parametrize("method", ["auto", "rk6vr", "esdirk5", "rk3bs"])
@pytest.mark.parametrize("name", [name for name in PEAKS if name not in ("two scales", "spline")])
def test_a_peak_is_seen(name, method):
    shape, peaks = PEAKS[name]
    run = solve(
        ODE(forced(shape), 1, 2), [1.0], [SLOW, 3.0], Stepping((0.0, 100.0), method, rtol=1e-6)
    )
    gradient = adjoint(run, LAST)
    assert gradient.p[1] == pytest.approx(left(peaks), rel=2e-3)
    assert gradient.value == pytest.approx(math.exp(-0.1) + 3.0 * left(peaks), rel=2e-4)


def test_a_peak_is_seen_from_rest_and_at_a_time_that_is_hit():
    # a stage at t = 60, where nothing has begun
    shape, peaks = PEAKS["alpha"]
    stepping = Stepping((0.0, 100.0), rtol=1e-6, t_eval=[20.0, 60.0, 90.0])
    run = solve(ODE(forced(shape), 1, 2), [0.0], [SLOW, 1.0], stepping)
    assert run.u[-1, 0] == pytest.approx(left(peaks), rel=2e-3)


def test_a_peak_on_top_of_a_wide_one_is_seen():
    shape, _ = PEAKS["two scales"]
    stepping = Stepping((0.0, 100.0), rtol=1e-8)
    run, smooth = (
        solve(ODE(forced(f), 1, 2), [1.0], [0.1, 1.0], stepping)
        for f in (shape, lambda t: np.exp(-(((t - 40) / 10) ** 2)))
    )
    narrow = 20 * 0.02 * math.sqrt(math.pi) * math.exp(-4.0 + (0.1 * 0.02) ** 2 / 4)
    assert run.u[-1, 0] - smooth.u[-1, 0] == pytest.approx(narrow, rel=1e-5)


def test_a_peak_of_a_parameter_is_seen_by_traced_models():
    def rhs(t, u, p):
        return np.array([-p.rate * u[0] + np.exp(-(((t - p.at) / 0.05) ** 2))])

    model = trace(rhs, 1, ["rate", "at"])
    run = solve(model, [1.0], [0.1, 60.0], Stepping((0.0, 100.0), rtol=1e-8))
    gradient = adjoint(run, LAST)
    exact = WIDTH * math.exp(-4.0 + (0.1 * 0.05) ** 2 / 4)
    assert gradient.value == pytest.approx(exact + math.exp(-10.0), rel=1e-6)
    assert gradient.p[1] == pytest.approx(0.1 * exact, rel=1e-5)


# forcing that steps see by themselves
RESOLVED = {
    "sine": np.sin,
    "square of a sine": lambda t: np.sin(t) ** 2,
    "decay": lambda t: np.exp(-t / 3),
    "wide": lambda t: np.exp(-(((t - 20) / 5) ** 2)),
    "step": lambda t: np.tanh((t - 10) / 2),
    "saw tooth": lambda t: (t % 5) / 5,
    "switch": lambda t: 1.0 if t % 2 < 0.7 else 0.0,
    "table": lambda t: np.interp(t, np.arange(13), [1, 2, 4, 6, 7, 9, 8, 7, 5, 3, 2, 1, 1]),
    "places": lambda t: float([3, 1, 4, 1, 5, 9, 2, 6][int(t) % 8]),
    "decay that begins": lambda t: np.exp(-(t - 5)) if t > 5 else 0.0,
    "square": lambda t: t**2 - 3 * t,
}


@pytest.mark.parametrize("rtol", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("method", ["rk6vr", "esdirk5"])
@pytest.mark.parametrize("name", RESOLVED)
def test_what_steps_see_by_themselves_takes_no_further_ones(name, method, rtol, monkeypatch):
    rhs, stepping = forced(RESOLVED[name]), Stepping((0.0, 24.0), method, rtol=rtol)
    run = solve(ODE(rhs, 1, 2), [1.0], [0.3, 1.0], stepping)
    monkeypatch.setattr("daeosens.derivatives.step_placement.pulses.peaks_missed", lambda *_: [])
    alone = solve(ODE(rhs, 1, 2), [1.0], [0.3, 1.0], stepping)
    if name == "table" and rtol > 1e-4:
        # steps longer than the table's rows may end at some of them
        assert abs(run.n_steps - alone.n_steps) < 5
    else:
        np.testing.assert_array_equal(run.times, alone.times)


@pytest.mark.parametrize("name", PEAKS)
def test_steps_of_fixed_size_tell_of_a_peak_they_pass(name):
    problem = ODE(forced(PEAKS[name][0]), 1, 2)
    values = 1.0, [0.1, 1.0]
    if not name.startswith("spline") and name != "lorentz":  # an hour wide, and of no size
        with pytest.warns(DiscretizationWarning, match="pulse near t ="):
            solve(problem, [values[0]], values[1], Stepping((0.0, 100.0), "rk4", dt=1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(problem, [values[0]], values[1], Stepping((0.0, 100.0), "rk4", dt=0.01))


@pytest.mark.parametrize("name", RESOLVED)
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_steps_of_fixed_size_say_nothing_of_what_they_see(name, method):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(
            ODE(forced(RESOLVED[name]), 1, 2),
            [1.0],
            [0.3, 1.0],
            Stepping((0.0, 24.0), method, dt=0.1),
        )


def test_a_comparison_between_the_steps_of_fixed_size_is_told():
    problem = ODE(lambda t, u, p: -p[0] * u + np.where((t > 10.02) & (t < 10.04), 5.0, 0.0), 1, 1)
    with pytest.warns(DiscretizationWarning, match="pulse near t = 10.03"):
        solve(problem, [1.0], [0.1], Stepping((0.0, 20.0), "rk4", dt=0.1))
