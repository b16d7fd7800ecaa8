"""Published problems of bi-level estimation: equations, true parameters, wide starts.

Each is a ``Study``; ``scripts/bench/bilevel.py`` runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

import daeosens as ds
from daeosens.petsc.vectors import Array


@dataclass(frozen=True)
class Study:
    """A model whose parameters are to be found again.

    Attributes
    ----------
    title, source : str
    rhs : callable
        As for ``ds.trace``.
    states : tuple of str
    truth : dict of str to float
    linear : tuple of str
        Parameters of the inner problem: a bi-level estimate needs no start of these.
    spans : dict of str to (float, float)
        Between which powers of ten starts of the others lie.
    first : array [n] or [E, n]
        The initial state, which is known; that of each experiment.
    times : array [K]
        Of measurements, after the initial one.
    stepping : Stepping
    known : tuple of dict
        Parameters that are known in each experiment.
    delays : tuple of str
        As for ``ds.trace``; history is the initial state.
    observed : tuple of str
        What is measured; by default all states.
    growing : tuple of float
        Ends of short runs, of which each is fitted from the one before.
    """

    title: str
    source: str
    rhs: Callable[..., Any]
    states: tuple[str, ...]
    truth: dict[str, float]
    linear: tuple[str, ...]
    spans: dict[str, tuple[float, float]]
    first: Array
    times: Array
    stepping: ds.Stepping
    known: tuple[dict[str, float], ...] = ({},)
    delays: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()
    growing: tuple[float, ...] = ()

    @property
    def starts(self) -> Array:
        """Initial states [E, n] of all experiments."""
        return np.broadcast_to(self.first, (len(self.known), len(self.states)))

    @property
    def columns(self) -> list[int]:
        """Numbers of the states that are measured."""
        return [self.states.index(name) for name in self.observed or self.states]

    def model(self) -> Any:
        """Return the traced model."""
        names = [*self.truth, *self.known[0]]
        history = self.first if self.delays else None
        return ds.trace(self.rhs, self.states, names, delays=self.delays, history=history)


def calcium(_t: Any, x: Any, p: Any) -> Any:
    """Return x' of calcium oscillations in hepatocytes."""
    lost = p.k3 * x[1] * x[0] / (x[0] + p.Km1) + p.k4 * x[2] * x[0] / (x[0] + p.Km2)
    released = p.k7 * x[1] * x[2] * x[3] / (x[3] + p.Km4)
    stored = p.k11 * x[2] / (x[2] + p.Km6)
    return np.array(
        [
            p.k1 + p.k2 * x[0] - lost,
            p.k5 * x[0] - p.k6 * x[1] / (x[1] + p.Km3),
            released + p.k8 * x[1] + p.k9 * x[0] - p.k10 * x[2] / (x[2] + p.Km5) - stored,
            stored - released,
        ]
    )


def epidemic(_t: Any, x: Any, z: Any, p: Any) -> Any:
    """Return x' of Kermack and McKendrick's epidemic with two delays."""
    infections = x[0] * z[0, 1]
    return np.array(
        [
            -p.k1 * infections + p.k2 * z[1, 1],
            p.k3 * infections - p.k4 * x[1],
            p.k5 * x[1] - p.k6 * z[1, 1],
        ]
    )


def three_steps(_t: Any, x: Any, p: Any) -> Any:
    """Return x' of a pathway of three enzymes, their messengers and two metabolites."""
    before = [p.S, x[6], x[7]]
    messengers = [
        p[f"V{k}"]
        / (1.0 + (p.P / p[f"Ki{k}"]) ** p[f"ni{k}"] + (p[f"Ka{k}"] / signal) ** p[f"na{k}"])
        - p[f"k{k}"] * x[k - 1]
        for k, signal in zip((1, 2, 3), before, strict=True)
    ]
    enzymes = [
        p[f"V{k}"] * x[k - 4] / (p[f"K{k}"] + x[k - 4]) - p[f"k{k}"] * x[k - 1] for k in (4, 5, 6)
    ]
    after = [x[6], x[7], p.P]
    flows = [
        p[f"kcat{k}"]
        * x[2 + k]
        / p[f"Km{2 * k - 1}"]
        * (a - b)
        / (1.0 + a / p[f"Km{2 * k - 1}"] + b / p[f"Km{2 * k}"])
        for k, a, b in zip((1, 2, 3), before, after, strict=True)
    ]
    return np.array([*messengers, *enzymes, flows[0] - flows[1], flows[1] - flows[2]])


def oregonator(_t: Any, x: Any, p: Any) -> Any:
    """Return x' of the Belousov-Zhabotinsky reaction in scaled concentrations."""
    return np.array(
        [
            p.k1 * (x[1] + p.k4 * x[0] - x[0] * x[1] - p.k5 * x[0] ** 2),
            (x[2] - p.k2 * x[1] - x[0] * x[1]) / p.k1,
            p.k3 * (x[0] - x[2]),
        ]
    )


def glycolysis(_t: Any, s: Any, p: Any) -> Any:
    """Return s' of yeast glycolysis: sugars, NADH (s[4]), ATP (s[5]) and what leaves the cell."""
    consumed = p.k1 * s[0] * s[5] / (1.0 + (s[5] / p.K1) ** p.q)
    oxidised = p.k2 * s[1] * (p.N - s[4])
    phosphorylated = p.k3 * s[2] * (p.A - s[5])
    reduced, lost = p.k4 * s[3] * s[4], p.k6 * s[1] * s[4]
    leaving = p.kappa * (s[3] - s[6])
    return np.array(
        [
            p.J0 - consumed,
            2.0 * consumed - oxidised - lost,
            oxidised - phosphorylated,
            phosphorylated - reduced - leaving,
            oxidised - reduced - lost,
            2.0 * phosphorylated - 2.0 * consumed - p.k5 * s[5],
            p.psi * leaving - p.k * s[6],
        ]
    )


def stirred_tank(_t: Any, x: Any, p: Any) -> Any:
    """Return x' of concentration and temperature in a cooled tank."""
    reacted = p.kref * np.exp(-1e4 * p.E * (1.0 / x[1] - 1.0 / 350.0)) * x[0]
    cooling = p.U * (340.0 - x[1])
    return np.array([2.0 - x[0] - reacted, 130.0 * reacted + 323.0 - x[1] + cooling])


def fermentation(_t: Any, x: Any, p: Any) -> Any:
    """Return x' of biomass, sugar, ethanol and glycerol."""
    biomass, sugar, ethanol, glycerol = x

    def rate(largest: Any, half: Any, by_sugar: Any, inhibitions: Any) -> Any:
        """Haldane's law of sugar, times the inhibition by each product."""
        value = largest * sugar / (half + sugar + sugar**2 / by_sugar)
        for amount, first, second in inhibitions:
            value = value * first / (first + amount + amount**2 / second)
        return value * biomass

    growth = rate(p.mu, p.ks, p.ki, [(ethanol, p.ke, p.kee), (glycerol, p.kg, p.kgg)])
    to_ethanol = rate(p.v1, p.ks1, p.ki1, [(ethanol, p.ke1, p.kee1)])
    to_glycerol = rate(p.v2, p.ks2, p.ki2, [(glycerol, p.kg2, p.kgg2)])
    consumed = to_ethanol / p.Y1 + to_glycerol / p.Y2
    return np.array([growth, -consumed, to_ethanol, to_glycerol])


CALCIUM_RATES = (0.09, 2.0, 1.27, 3.73, 1.27, 32.24, 2.0, 0.05, 13.58, 153.0, 4.85)
CALCIUM_CONSTANTS = (0.19, 0.73, 29.09, 2.67, 0.16, 0.05)
TIGHT: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-10}


def numbered(prefix: str, values: tuple[float, ...], first: int = 1) -> dict[str, float]:
    """Return values by the names prefix1, prefix2, ..."""
    return {f"{prefix}{k}": value for k, value in enumerate(values, first)}


def _mendes() -> Study:
    rates = numbered("V", (1.0, 1.0, 1.0, 0.1, 0.1, 0.1)) | numbered("k", (1.0,) * 3 + (0.1,) * 3)
    rates |= numbered("kcat", (1.0,) * 3)
    constants: dict[str, float] = {}
    for k in (1, 2, 3):
        constants |= {f"Ki{k}": 1.0, f"ni{k}": 2.0, f"Ka{k}": 1.0, f"na{k}": 2.0}
    constants |= numbered("K", (1.0,) * 3, 4) | numbered("Km", (1.0,) * 6)
    half = {name: (np.log10(2.0) - 0.5, np.log10(2.0) + 0.5) for name in constants}
    return Study(
        "Pathway of three enzymes",
        "Moles, Mendes, Banga, Genome Research 13, 2003",
        three_steps,
        ("G1", "G2", "G3", "E1", "E2", "E3", "M1", "M2"),
        rates | constants,
        tuple(rates),
        half,
        np.array([0.66667, 0.57254, 0.41758, 0.4, 0.36409, 0.29457, 1.419, 0.93464]),
        np.linspace(0.0, 120.0, 241)[1:],
        ds.Stepping((0.0, 120.0), "rk5bs", rtol=1e-7, atol=1e-9),
        tuple(
            {"S": s, "P": p}
            for s, p in product((0.1, 0.46416, 2.1544, 10.0), (0.05, 0.13572, 0.3684, 1.0))
        ),
    )


def _fermentation() -> Study:
    linear = {"mu": 0.6397, "v1": 3.429, "v2": 1.748}
    constants = {"ke": 90.35, "ke1": 460.4, "kg2": 32.26, "ks": 4.895, "kg": 10.0, "ks1": 17.45}
    constants |= {"ks2": 499.4, "ki": 1115.1, "kee": 12.89, "kgg": 12.45, "ki1": 110.3}
    constants |= {"kee1": 3.71, "ki2": 27.78, "kgg2": 0.3797}
    yields = {"Y1": 0.505, "Y2": 0.1955}
    rng = np.random.default_rng(20)
    first = rng.uniform((2.0, 50.0, 0.0, 0.0), (10.0, 100.0, 10.0, 10.0), (15, 4))
    return Study(
        "Fermentation to ethanol and glycerol",
        "Wang, Su, Jang, Industrial & Engineering Chemistry Research 40, 2001",
        fermentation,
        ("biomass", "sugar", "ethanol", "glycerol"),
        linear | constants | yields,
        tuple(linear),
        # concentrations are up to 100 g/l
        dict.fromkeys(constants, (0.0, 3.0)) | dict.fromkeys(yields, (-1.0, 0.0)),
        first,
        np.linspace(0.0, 13.9, 140)[1:],
        ds.Stepping((0.0, 13.9), "esdirk5", rtol=1e-7, atol=1e-9),
        ({},) * len(first),
    )


STUDIES: dict[str, Study] = {
    "calcium": Study(
        "Calcium oscillations",
        "Kummer et al., Biophysical Journal 79, 2000",
        calcium,
        ("G", "P", "C", "E"),
        numbered("k", CALCIUM_RATES) | numbered("Km", CALCIUM_CONSTANTS),
        tuple(numbered("k", CALCIUM_RATES)),
        dict.fromkeys(numbered("Km", CALCIUM_CONSTANTS), (-1.0, 1.0)),
        np.array([0.12, 0.31, 0.0058, 4.3]),
        np.linspace(0.0, 20.0, 201)[1:],
        # something decays within 0.001 between the spikes: stability would hold explicit steps
        # small, and derivatives of such steps may be anything
        ds.Stepping((0.0, 20.0), "esdirk5", rtol=1e-7, atol=1e-9),
    ),
    "epidemic": Study(
        "Epidemic with two delays",
        "Kermack and McKendrick; Hairer, Norsett, Wanner, section II.17",
        epidemic,
        ("susceptible", "infected", "removed"),
        numbered("k", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)) | {"latency": 1.0, "immunity": 10.0},
        tuple(numbered("k", (0.0,) * 6)),
        {"latency": (-1.0, 1.3), "immunity": (-1.0, 1.3)},
        np.array([5.0, 0.1, 1.0]),
        np.linspace(0.0, 40.0, 401)[1:],
        ds.Stepping((0.0, 40.0), "rk5ts", **TIGHT),
        delays=("latency", "immunity"),
    ),
    "mendes": _mendes(),
    "glycolysis": Study(
        "Yeast glycolysis",
        "Ruoff, Christensen, Wolf, Heinrich, Biophysical Chemistry 106, 2003",
        glycolysis,
        tuple(f"S{k}" for k in range(1, 8)),
        {"J0": 2.5, **numbered("k", (100.0, 6.0, 16.0, 100.0, 1.28, 12.0)), "k": 1.8, "psi": 0.1}
        | {"q": 4.0, "K1": 0.52, "kappa": 13.0, "N": 1.0, "A": 4.0},
        ("J0", *numbered("k", (0.0,) * 6), "k", "psi"),
        dict.fromkeys(("K1", "kappa", "N", "A"), (-1.0, 1.0)) | {"q": (0.0, 1.0)},
        np.array([0.501, 1.955, 0.198, 0.148, 0.161, 0.161, 0.064]),
        np.linspace(0.0, 9.9, 100)[1:],
        ds.Stepping((0.0, 9.9), "esdirk5", rtol=1e-7, atol=1e-9),
    ),
    "oregonator": Study(
        "Oregonator",
        "Field, Noyes, Journal of Chemical Physics 60, 1974; Hairer, Wanner, section IV.10",
        oregonator,
        ("bromous acid", "bromide", "cerium"),
        {"k2": 1.0, "k3": 0.161, "k4": 1.0, "k5": 8.375e-6, "k1": 77.27},
        ("k2", "k3", "k4", "k5"),
        {"k1": (-1.0, 3.0)},
        np.random.default_rng(10).uniform(0.1, 0.5, (2, 3)),
        np.linspace(0.0, 400.0, 4001)[1:],
        ds.Stepping((0.0, 400.0), "esdirk5", rtol=1e-7, atol=1e-7),
        ({}, {}),
        growing=(1.0, 3.0, 10.0, 30.0),
    ),
    "tank": Study(
        "Cooled tank, temperature alone",
        "Ramsay, Hooker, Campbell, Cao, Journal of the Royal Statistical Society B 69, 2007",
        stirred_tank,
        ("concentration", "temperature"),
        {"U": 5.3417, "kref": 0.461, "E": 0.833},
        ("U", "kref"),
        {"E": (-1.0, 1.0)},
        np.array([1.6, 340.0]),
        np.linspace(0.0, 9.9, 100)[1:],
        ds.Stepping((0.0, 9.9), "esdirk5", rtol=1e-7, atol=1e-9),
        observed=("temperature",),
    ),
    "fermentation": _fermentation(),
}


def exact(study: Study) -> list[Array]:
    """Return states [K + 1, n] of each experiment, the initial one first."""
    model = study.model()
    tight = replace(study.stepping, rtol=1e-10, atol=1e-12)
    rows: list[Array] = []
    for known, first in zip(study.known, study.starts, strict=True):
        run = ds.solve(model, first, study.truth | known, tight, t_eval=study.times)
        rows.append(np.vstack([first, run.at(study.times)]))
    return rows


def measured(states: list[Array], noise: float, seed: int) -> tuple[list[Array], Array]:
    """Return states with noise, and its level [n]: a part of each column's spread."""
    spread = np.std(np.vstack(states), axis=0)
    rng = np.random.default_rng(1000 + seed)
    return [rows + noise * spread * rng.standard_normal(rows.shape) for rows in states], spread
