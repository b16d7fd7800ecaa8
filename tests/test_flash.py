"""The flash driver: phases in equilibrium, by energy and volume and of three substances too."""

from __future__ import annotations

import numpy as np
import pytest
from driver_modules import driver

import daeosens as ds

FLASH = driver("flash")
R, P_0 = FLASH.R, FLASH.P_0


def configuration(specification="TP", three=False, end=2.0, dt=0.1, **keys):
    mixture = (
        {"substances": ("acetone", "methanol", "water"), "margules": (0.65, 1.5, 0.55)}
        if three
        else {}
    )
    stepping = ds.Stepping((0.0, end), "rk4", dt=dt)
    return FLASH.Config(stepping, specification, **mixture | keys)


HEATED = {"specification": "UV", "volume": 0.008, "heat": 4000.0, "start": 342.0}
THREE = {"three": True, "start": 336.0, "heat": 1.5}


def solved(config, model=None, parameters=None):
    model = model or FLASH.drum(config)
    p = model.pack(parameters or config.parameters)
    return model, ds.solve(model, config.start_of, p, config.stepping)


def fugacities(config, run):
    """Return those of all substances over 1 atm, in vapour and in liquid, where both are there."""
    n, x = len(config.substances), run.u
    y = x[:, len(config.states) : len(config.states) + n]
    both = (np.abs(y) < 0.999 * FLASH.FAR).all(axis=1) & (run.times > 0.0)
    x, y, t = x[both].T, y[both].T, run.times[both]
    vapour, liquid = x[:n] / (1.0 + np.exp(-y)), x[:n] / (1.0 + np.exp(y))
    if config.specification == "TP":
        temperature, pressure = config.start + config.heat * t, np.full(t.size, P_0)
        volumes = np.zeros(n)
    else:
        _, temperature, room = FLASH.thermal(config, x, y)
        pressure = vapour.sum(axis=0) * R * temperature / room
        volumes = np.array([data.volume for data in config.data])
    part = liquid / liquid.sum(axis=0)
    margules = np.zeros((n, n))
    for (i, j), value in zip(config.pairs, config.margules, strict=True):
        margules[i, j] = margules[j, i] = value
    activity = margules @ part - 0.5 * np.einsum("ik,ij,jk->k", part, margules, part)
    saturated = np.array([boiling(data, temperature) for data in config.data])
    poynting = volumes[:, None] * pressure / (R * temperature)
    in_liquid = part * np.exp(activity + saturated + poynting)
    return vapour / vapour.sum(axis=0) * pressure / P_0, in_liquid


def boiling(data, temperature):
    """Return ln of the vapour pressure of a pure liquid over 1 atm, by Clausius and Clapeyron."""
    more = data.vapour + R - data.liquid
    enthalpy = data.evaporation + more * (temperature - data.boils)
    entropy = data.evaporation / data.boils + more * np.log(temperature / data.boils)
    return entropy / R - enthalpy / (R * temperature)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "error"),
    [(HEATED, 5e-4), (THREE, 1e-7)],  # entropies are smooth below 1 K, where no split can be
    ids=["energy and volume", "three substances"],
)
def test_phases_are_in_equilibrium_and_derivatives_are_those_of_whole_runs(changes, error):
    config = configuration(end=0.4, **changes)
    model, run = solved(config)
    assert not run.report.incomplete
    in_vapour, in_liquid = fugacities(config, run)
    assert in_vapour.shape[1] == 4
    np.testing.assert_allclose(in_vapour, in_liquid, rtol=error)
    place = config.states.index(f"{config.substances[0]}_out")
    gradient = ds.adjoint(run, model.terminal(lambda t, x, y, p: x[place])).p
    by_name = model.unpack(gradient)
    part = 1e-3
    along = sum(part * value * by_name[name] for name, value in config.parameters.items())
    ends = [
        solved(config, model, {k: v * (1.0 + side * part) for k, v in config.parameters.items()})
        for side in (-1, 1)
    ]
    difference = 0.5 * (ends[1][1].u[-1, place] - ends[0][1].u[-1, place])
    assert along == pytest.approx(difference, rel=1e-4)


@pytest.mark.slow
def test_energy_is_kept():
    """Of a drum that nothing enters or leaves: U rises by the heat, and the amounts stay."""
    config = configuration(end=0.4, **HEATED | {"feed": 1e-9, "drain": 1e-9, "vent": 1e-9})
    _, run = solved(config)
    n = len(config.substances)
    np.testing.assert_allclose(run.u[:, :n], config.amount / n, rtol=1e-8)
    np.testing.assert_allclose(
        run.u[:, 2 * n], config.start_of[-1] + config.heat * run.times, rtol=1e-8
    )


@pytest.mark.slow
def test_activities_are_estimated_by_energy_and_volume():
    """A_12 = 0.55 from a guess of 0.6, and data of four digits."""
    config = configuration(end=0.3, noise=1e-4, measurements=3, guess=0.05, **HEATED)
    model = FLASH.drum(config)
    reduced, _ = FLASH.functional(config, model)
    optimum = ds.minimize(reduced, method="bntr", gradient_tolerance=1e-6)
    assert optimum.converged
    estimate = reduced.control.values_at(model, optimum.x)["A_methanol_water"]
    assert estimate == pytest.approx(0.55, abs=1e-3)


def test_mixtures_that_are_none():
    with pytest.raises(ds.InputError, match=r"substances = \['water', 'water'\]"):
        configuration(substances=("water", "water"))
    with pytest.raises(ds.InputError, match="3 numbers, one for each pair"):
        configuration(substances=("acetone", "methanol", "water"), margules=(0.5,))
