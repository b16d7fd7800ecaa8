"""GRI-Mech 3.0 at constant temperature and volume: mass action with the published rates."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("gri_mech.txt")
GAS_CONSTANT = 8.31446261815324  # J / (mol K)
CALORIE, ATMOSPHERE, CUBIC_CENTIMETRE = 4.184, 101325.0, 1e-6

TEMPERATURE = 1500.0  # K
START = {"CH4": 1.0, "O2": 2.0, "N2": 7.52}
"""Methane and air, stoichiometric, at one atmosphere; they ignite after 1.5 ms."""
MILLISECOND = 1e-3


@dataclass(frozen=True)
class Reaction:
    """Numbers of the species on both sides, and coefficients as in the file."""

    reactants: tuple[int, ...]
    products: tuple[int, ...]
    reversible: bool
    high: Sequence[float]
    low: Sequence[float] = ()
    troe: Sequence[float] = ()
    bodies: Sequence[float] | None = None  # weights of all species as third bodies; None: no third


@dataclass(frozen=True)
class Mechanism:
    """Species with their atoms [53, 5] and NASA's coefficients [53, 7], and reactions."""

    species: tuple[str, ...]
    atoms: Any
    thermal: Any
    reactions: tuple[Reaction, ...]


@cache
def mechanism() -> Mechanism:
    """Read the file."""
    lines = [line for line in FILE.read_text().splitlines() if line[0] != "#"]
    rows = [line.split(": ", 1) for line in lines if "=" not in line]
    names = tuple(name for name, _ in rows)
    fields = [rest.split("; ") for _, rest in rows]
    counts = [dict(re.findall(r"([A-Z][a-z]?)(\d*)", atoms)) for atoms, _ in fields]
    elements = ("C", "H", "O", "N", "Ar")
    atoms = np.array([[int(count.get(e, 0) or 1) for e in elements] for count in counts])
    atoms *= np.array([[e in count for e in elements] for count in counts])
    thermal = np.array([[float(x) for x in numbers.split()] for _, numbers in fields])
    reactions = tuple(_reaction(line, names) for line in lines if "=" in line)
    return Mechanism(names, atoms, thermal, reactions)


def _reaction(line: str, names: Sequence[str]) -> Reaction:
    equation, high, *rest = line.split("; ")
    parts = {kind: text.split() for kind, text in (entry.split(" ", 1) for entry in rest)}
    efficiencies = parts.get("M", [])
    bodies = np.ones(len(names))
    for name, weight in zip(efficiencies[::2], efficiencies[1::2], strict=True):
        bodies[names.index(name)] = float(weight)
    left, right = (_side(side, names) for side in re.split(" =>? ", equation))
    return Reaction(
        left,
        right,
        " => " not in equation,
        [float(x) for x in high.split()],
        [float(x) for x in parts.get("low", [])],
        [float(x) for x in parts.get("troe", [])],
        bodies if re.search(r"\+ ?M\b", equation) else None,
    )


def _side(text: str, names: Sequence[str]) -> tuple[int, ...]:
    species: list[int] = []
    for term in text.replace("(+M)", "").split(" + "):
        count, name = re.fullmatch(r"(?:(\d) )?(\S+)", term.strip()).groups()  # type: ignore[union-attr]
        if name != "M":
            species += [names.index(name)] * int(count or 1)
    return tuple(species)


def forward_rate(reaction: Reaction, temperature: float, mixture: Any) -> float:
    """Return the rate coefficient [cm^3, mol, s] among third bodies [mol / cm^3]."""

    def arrhenius(a: float, n: float, energy: float) -> float:
        return a * temperature**n * math.exp(-energy * CALORIE / (GAS_CONSTANT * temperature))

    high = arrhenius(*reaction.high)
    if reaction.bodies is None:
        return high
    third = float(np.dot(reaction.bodies, mixture))
    if not reaction.low:
        return high * third
    reduced = arrhenius(*reaction.low) * third / high
    return high * reduced / (1.0 + reduced) * _broadening(reaction.troe, temperature, reduced)


def _broadening(troe: Sequence[float], temperature: float, reduced: float) -> float:
    """Return F of Gilbert, Luther and Troe, Ber. Bunsenges. Phys. Chem. 87, 1983, 169-177."""
    if not troe:
        return 1.0
    a, t3, t1, *t2 = troe
    centre = (1.0 - a) * math.exp(-temperature / t3) + a * math.exp(-temperature / t1)
    centre = math.log10(centre + sum(math.exp(-scale / temperature) for scale in t2))
    x = math.log10(reduced) - 0.4 - 0.67 * centre
    return 10.0 ** (centre / (1.0 + (x / (0.75 - 1.27 * centre - 0.14 * x)) ** 2))


def equilibrium(reaction: Reaction, temperature: float) -> float:
    """Return the equilibrium constant in concentrations [mol / cm^3]."""
    t = temperature
    by_rt = np.array([1.0, t / 2, t**2 / 3, t**3 / 4, t**4 / 5, 1 / t, 0.0])  # of the enthalpy
    by_r = np.array([math.log(t), t, t**2 / 2, t**3 / 3, t**4 / 4, 0.0, 1.0])  # of the entropy
    gibbs = mechanism().thermal @ (by_rt - by_r)
    change = sum(gibbs[k] for k in reaction.products) - sum(gibbs[k] for k in reaction.reactants)
    standard = ATMOSPHERE / (GAS_CONSTANT * t) * CUBIC_CENTIMETRE
    return math.exp(-change) * standard ** (len(reaction.products) - len(reaction.reactants))


@dataclass(frozen=True)
class Isothermal:
    """u' = rhs(u, p), u in the concentration of all molecules at the start, t in ms.

    Third bodies are those of the mixture at the start, which is mostly nitrogen.
    """

    start: tuple[float, ...]
    parameters: tuple[float, ...]  # forward rate coefficients
    backward: tuple[float, ...]  # those of the way back, over them

    def rhs(self, u: Any, p: Any) -> list[Any]:
        """Return the rates of change [1 / ms]."""
        change: list[Any] = [0.0 * u[0]] * len(self.start)
        for k, reaction in enumerate(mechanism().reactions):
            speed = p[k] * _product(u, reaction.reactants)
            if reaction.reversible:
                speed = speed - p[k] * self.backward[k] * _product(u, reaction.products)
            for species in reaction.reactants:
                change[species] = change[species] - speed
            for species in reaction.products:
                change[species] = change[species] + speed
        return change

    def tables(self) -> tuple[Any, Any, Any, Any]:
        """Return the same for arrays: reactants and products [325, 3], way back, net numbers.

        Net numbers are [53, 325]; where species are missing stands 53, for a concentration of 1.
        """
        reactions, n = mechanism().reactions, len(self.start)
        left, right = np.full((2, len(reactions), 3), n)
        net = np.zeros((n + 1, len(reactions)))
        for k, reaction in enumerate(reactions):
            left[k, : len(reaction.reactants)] = reaction.reactants
            right[k, : len(reaction.products)] = reaction.products
            np.add.at(net[:, k], left[k], -1.0)
            np.add.at(net[:, k], right[k], 1.0)
        backward = [b * r.reversible for b, r in zip(self.backward, reactions, strict=True)]
        return left, right, np.array(backward), net[:n]


def _product(u: Any, species: Sequence[int]) -> Any:
    product = u[species[0]]
    for place in species[1:]:
        product = product * u[place]
    return product


@cache
def isothermal() -> Isothermal:
    """Return the mixture ``START`` at ``TEMPERATURE``."""
    known = mechanism()
    amounts = np.array([START.get(name, 0.0) for name in known.species])
    start = amounts / amounts.sum()
    total = ATMOSPHERE / (GAS_CONSTANT * TEMPERATURE) * CUBIC_CENTIMETRE
    forward, backward = [], []
    for reaction in known.reactions:
        rate = forward_rate(reaction, TEMPERATURE, start * total)
        forward.append(rate * MILLISECOND * total ** (len(reaction.reactants) - 1))
        difference = len(reaction.products) - len(reaction.reactants)
        backward.append(total**difference / equilibrium(reaction, TEMPERATURE))
    return Isothermal(tuple(start.tolist()), tuple(forward), tuple(backward))
