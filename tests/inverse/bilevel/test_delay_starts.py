"""Where fits of delay equations begin: at other delays, which windows rank; delays in reach."""

import sys

import numpy as np
import pytest

import daeosens as ds
from daeosens import Experiment, Parameter, Parameters, SolveError
from daeosens.inverse import Normal
from daeosens.inverse.bilevel.delay_starts import held_from_delays, other_delays
from daeosens.inverse.bilevel.shooting import Shot
from daeosens.inverse.bilevel.start import prepared
from daeosens.inverse.bilevel.windows import (
    Stage,
    held_windows,
    refined_by_windows,
    shoot,
)
from daeosens.inverse.likelihood.likelihood import modelled
from daeosens.inverse.likelihood.noise import Observation
from daeosens.petsc import gather

PREPARATION = sys.modules[prepared.__module__]
NO = np.zeros(1, dtype=bool)


def blood_cells(delay, starts=1):
    """Fit Mackey and Glass's equation by windows, from a delay that is wrong."""
    truth = {"make": 2.0, "lose": 1.0, "tau": 2.0}
    model = ds.trace(
        lambda t, u, z, p: p.make * z[0] / (1.0 + z[0] ** 10) - p.lose * u,
        ["cells"],
        list(truth),
        delays="tau",
        history=[0.5],
    )
    times = np.linspace(0.2, 20.0, 100)
    stepping = ds.Stepping((0.0, 20.0), "rk5ts", rtol=1e-7)
    values = ds.solve(model, [0.5], truth, stepping, times).at(times)[:, 0]
    values += 0.01 * np.random.default_rng(0).standard_normal(100)
    limits = {"make": (0.1, 10.0), "lose": (0.1, 10.0), "tau": (None, 20.0)}
    guess = {"make": 1.0, "lose": 3.0, "tau": delay}
    if starts > 1:  # which lie between bounds
        limits["tau"] = (0.02, 20.0)
    entries = {
        name: Parameter(
            guess[name], scale="log", upper=upper, **({"lower": lower} if lower else {})
        )
        for name, (lower, upper) in limits.items()
    }
    return ds.fit(
        model,
        {"time": times, "cells": values},
        Parameters(entries, [0.5]),
        stepping,
        noise=Normal(0.01),
        hessian="gauss_newton",
        windows=5,
        starts=starts,
    )


@pytest.mark.slow
def test_windows_of_a_delay_equation_are_held_first_and_keep_delays_in_reach(monkeypatch):
    """Towards zero runs take ever more steps."""
    shortest = []

    def noted(shots, edges, x, *rest):
        shortest.append(float(np.exp(x[2])))
        return shoot(shots, edges, x, *rest)

    monkeypatch.setattr(sys.modules[refined_by_windows.__module__], "shoot", noted)
    fitted = blood_cells(0.03)
    first, *others = fitted.preparation.stages
    assert first.held
    assert not any(stage.held for stage in others)
    assert min(shortest) > 0.0199  # a thousandth of the run
    assert 2.0 * fitted.objective < 97.0 + 3.0 * 14.0
    assert fitted.estimate["tau"] == pytest.approx(2.0, abs=0.01)


@pytest.mark.slow
def test_windows_begin_at_other_delays_or_starts_until_one_explains_the_data(monkeypatch):
    """Four times the delay is a minimum of its own."""
    begun = []

    def noted(shots, x, *rest, **settings):
        stage = held_windows(shots, x, *rest, **settings)
        begun.append((float(np.exp(x[2])), float(np.exp(stage.x[2])), stage.value))
        return stage

    monkeypatch.setattr(PREPARATION, "held_windows", noted)
    for starts in (1, 4):
        begun.clear()
        fitted = blood_cells(8.0, starts)
        assert fitted.estimate["tau"] == pytest.approx(2.0, abs=0.01)
        assert fitted.objective < 100.0
        (first, led_to, value), *others = begun
        assert first == pytest.approx(8.0)
        assert led_to > 5.0
        assert min(least for *_, least in others) < 0.5 * value


def test_other_delays_lie_evenly_within_the_longest_run_and_bounds():
    model = ds.trace(
        lambda t, u, z, p: p.a * z[0] - p.b * z[1],
        1,
        ["a", "b", "short", "long"],
        delays=["short", "long"],
        history=[1.0],
    )
    entries = {"a": Parameter(1.0), "b": Parameter(2.0), "short": Parameter(0.3, upper=0.5)}
    start = Parameters(entries | {"long": Parameter(3.0, scale="log", lower=1.0)}, [1.0])
    data = {"time": [5.0, 7.0, 10.0, 20.0], "u": [1.0, 2.0, 3.0, 1.0]}
    experiments = [Experiment(data, ds.Stepping((0.0, 20.0), "rk5ts", rtol=1e-6))]
    made, *_ = modelled(
        model,
        experiments,
        start,
        None,
        None,
        None,
        Observation(None, None, None),
        None,
        Normal(1.0),
        (),
    )
    functional = made.functional
    x = gather(functional.start())
    shots = [
        Shot(run, misfit, None, np.ones(1), np.ones(1), NO)
        for run, misfit in zip(functional.experiments, made.misfits, strict=True)
    ]
    points = np.array(other_delays(made, shots, x, 0))
    assert points.shape == (7, 4)
    np.testing.assert_array_equal(points[:, :2], np.tile(x[:2], (7, 1)))
    short, long = points[:, 2], np.exp(points[:, 3])
    # a hundredth to half of 20
    assert 0.2 < short.min() < short.max() < 0.5
    # each third of the range has some of them, however few are tried
    thirds = np.floor(3.0 * np.log10(long))
    assert set(thirds[:6].tolist()) == {0.0, 1.0, 2.0}
    np.testing.assert_array_equal(points, np.array(other_delays(made, shots, x, 0)))


def test_held_windows_from_several_delays_are_ranked_and_the_same_minimum_counts_once():
    def stage(x, value, degrees=100):
        return Stage(5, 9, np.array([x]), [], 1.0, value, 0.0, 3, degrees, True)

    by_point = {0.0: stage(4.0, 900.0), 1.0: stage(4.1, 910.0), 3.0: stage(8.0, 300.0)}

    def held_at(point):
        if point[0] not in by_point:
            raise SolveError("a delay from which nothing can be integrated")
        return by_point[point[0]]

    points = [np.array([value]) for value in (0.0, 1.0, 2.0, 3.0)]
    ranked = held_from_delays(points, held_at, np.inf, known=True)
    assert [(point[0], stage.value) for point, stage in ranked] == [(3.0, 300.0), (0.0, 900.0)]
    assert len(held_from_delays(points, held_at, np.inf, known=False)) == 1
    assert len(held_from_delays(points, held_at, 500.0, known=True)) == 1
    # what leaves more is gone on with if there is nothing else
    assert held_from_delays(points, held_at, 100.0, known=True)[0][1].value == 300.0
    # as good as states with noise at the beginnings of windows let it be: no other is tried
    by_point[1.0] = stage(6.0, 90.0)
    assert [p[0] for p, _ in held_from_delays(points, held_at, np.inf, known=True)] == [1.0]
    assert held_from_delays(points, held_at, np.inf, known=False)[0][1].value == 90.0
