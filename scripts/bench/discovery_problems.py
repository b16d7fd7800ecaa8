"""Published problems of model discovery: the true reactions, measurements of them, candidates.

Each is a ``Case``; ``scripts/bench/discovery.py`` runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

import daeosens as ds
from daeosens import Experiment, Parameter
from daeosens.inverse import Discovery, Term
from daeosens.petsc.vectors import Array

REFERENCE = 373.0
"""Rate constants are those at this temperature, in K."""

GAS = 8.314e-3
"""The gas constant, in kJ/mol/K."""

ENERGY = Parameter(50.0, lower=0.0, upper=250.0)
"""Where activation energies begin, in kJ/mol."""


def arrhenius(energy: Any, temperature: Any) -> Any:
    """Return by how much a rate constant differs from that at the reference temperature."""
    return np.exp(-energy / GAS * (1.0 / temperature - 1.0 / REFERENCE))


@dataclass(frozen=True)
class Flow:
    """One term of a rate: ``constant * arrhenius(energy) * product of species``.

    Attributes
    ----------
    rate : int
        Of which reaction.
    species : str
        A letter for each.
    constant, energy : float
    """

    rate: int
    species: str
    constant: float
    energy: float

    @property
    def name(self) -> str:
        """What ``Discovery`` calls the coefficient."""
        return f"r{self.rate}: {' '.join(sorted(self.species))}"


@dataclass(frozen=True)
class Case:
    """Reactions whose terms are to be found.

    Attributes
    ----------
    title, source : str
    species : str
        A letter for each.
    reactions : tuple of str
        "AB>C": what each reaction takes away and makes.
    flows : tuple of Flow
        The truth.
    first : (float, float)
        Between which numbers initial concentrations lie.
    temperatures : tuple of float
        Of each experiment.
    times : array [K]
    candidates : tuple of str
        Those species of which each reaction's candidates are made.
    tolerance : float
        As for ``Discovery``.
    skipped : int
        So many first measurements are left out where terms are looked for: transients that no curve
        through so few points follows.
    noisy : float
        So many times the noise of species may stay unexplained of the course of a reaction's rate.
    """

    title: str
    source: str
    species: str
    reactions: tuple[str, ...]
    flows: tuple[Flow, ...]
    first: tuple[float, float]
    temperatures: tuple[float, ...]
    times: Array
    candidates: tuple[str, ...]
    tolerance: float
    skipped: int = 0
    noisy: float = 5.0

    @cached_property
    def stoichiometry(self) -> Array:
        """Rates of species by those of reactions [n, r]."""
        matrix = np.zeros((len(self.species), len(self.reactions)))
        for k, reaction in enumerate(self.reactions):
            for side, sign in zip(reaction.split(">"), (-1.0, 1.0), strict=True):
                for letter in side:
                    matrix[self.species.index(letter), k] += sign
        return matrix

    def model(self) -> Any:
        """Return the true equations, with constants and energies as parameters."""

        def rhs(_t: Any, u: Any, p: Any) -> Any:
            rates: list[Any] = [0.0] * len(self.reactions)
            for k, flow in enumerate(self.flows):
                product: Any = p[f"k{k}"] * arrhenius(p[f"E{k}"], p.T)
                for letter in flow.species:
                    product = product * u[self.species.index(letter)]
                rates[flow.rate] = rates[flow.rate] + product
            return self.stoichiometry @ np.array(rates)

        names = [f"{kind}{k}" for k in range(len(self.flows)) for kind in "kE"]
        return ds.trace(rhs, list(self.species), [*names, "T"])

    def experiments(self, noise: float = 0.0, seed: int = 0, count: int = 0) -> list[Experiment]:
        """Return measurements with noise: a part of each column's spread over all experiments."""
        rng = np.random.default_rng(seed)
        model = self.model()
        truth = {f"k{k}": flow.constant for k, flow in enumerate(self.flows)}
        truth |= {f"E{k}": flow.energy for k, flow in enumerate(self.flows)}
        span = (float(self.times[0]), float(self.times[-1]))
        stepping = ds.Stepping(span, "esdirk5", rtol=1e-9, atol=1e-11)
        rows: list[Array] = []
        temperatures = self.temperatures[: count or None]
        for temperature in temperatures:
            first = rng.uniform(*self.first, len(self.species))
            run = ds.solve(model, first, truth | {"T": temperature}, stepping, self.times[1:])
            rows.append(np.vstack([first, run.at(self.times[1:])]))
        spread = np.std(np.vstack(rows), axis=0)
        rows = [states + noise * spread * rng.standard_normal(states.shape) for states in rows]
        return [
            Experiment(
                {"time": self.times, **dict(zip(self.species, states.T, strict=True))},
                parameters={"T": temperature},
            )
            for states, temperature in zip(rows, temperatures, strict=True)
        ]

    def seen(self, experiments: Sequence[Experiment], noise: float = 0.0) -> list[Experiment]:
        """Return what terms are looked for in: beside noise transients say more than they cost."""
        first = 0 if noise else self.skipped
        return [
            replace(e, data={name: column[first:] for name, column in e.data.items()})
            for e in experiments
        ]

    def library(self, candidates: Sequence[str] = ()) -> list[Term]:
        """Return all monomials of degree one and two, with an activation energy in each rate."""
        rates: dict[str, list[str]] = {}
        for k, letters in enumerate(candidates or self.candidates):
            for degree in (1, 2):
                for chosen in combinations_with_replacement(sorted(letters), degree):
                    rates.setdefault("".join(chosen), []).append(f"r{k}")
        return [
            Term(" ".join(letters), self._term(letters), own=["E"], rates=of)
            for letters, of in rates.items()
        ]

    def _term(self, letters: str) -> Any:
        places = [self.species.index(letter) for letter in letters]

        def value(_t: Any, u: Any, p: Any) -> Any:
            product: Any = arrhenius(p.E, p.T)
            for place in places:
                product = product * u[place]
            return product

        return value

    def discovery(
        self, experiments: Sequence[Experiment], noise: float = 0.0, **options: Any
    ) -> Discovery:
        """Return how to look for the terms; with noise curves smooth, and explain less."""
        return Discovery(
            self.library(options.pop("candidates", ())),
            stoichiometry=self.stoichiometry,
            parameters={"E": ENERGY},
            sigma=self.spread(experiments),
            tolerance=max(self.tolerance, self.noisy * noise),
            interpolant="smooth" if noise else "cubic",
            **options,
        )

    def spread(self, experiments: Sequence[Experiment]) -> Array:
        """Return the standard deviation of each column over all experiments."""
        columns = [[e.data[letter] for letter in self.species] for e in experiments]
        return np.std(np.hstack(columns), axis=1)

    def errors(self, estimate: dict[str, float]) -> tuple[float, float]:
        """Return the largest relative errors of the true constants, and of the energies."""
        pairs = [(estimate[f.name], estimate[f"{f.name}: E"], f) for f in self.flows]
        return (
            max(abs(k / flow.constant - 1.0) for k, _, flow in pairs),
            max(abs(e / flow.energy - 1.0) for _, e, flow in pairs),
        )


def _reversible(
    reactions: Sequence[str],
    forward: Sequence[tuple[float, float]],
    back: Sequence[tuple[float, float]],
) -> tuple[Flow, ...]:
    flows: list[Flow] = []
    for k, (reaction, there, returned) in enumerate(zip(reactions, forward, back, strict=True)):
        left, right = reaction.split(">")
        flows += [Flow(k, left, *there), Flow(k, right, -returned[0], returned[1])]
    return tuple(flows)


_ESTERS = ("DF>EX", "BE>DG", "AG>CE", "BD>EJ", "AE>DK", "KX>DL")

CASES: dict[str, Case] = {
    "menten": Case(
        "Enzyme and substrate",
        "Prabhu, Kosir, Kothare, Rangarajan, Industrial & Engineering Chemistry Research, 2025",
        "ABCD",
        ("AB>C", "C>BD"),
        (Flow(0, "AB", 0.3, 20.0), Flow(0, "C", -0.4, 75.0), Flow(1, "C", 1.1, 75.0)),
        (4.0, 10.0),
        (365.0, 370.0, 380.0),
        np.linspace(1.0, 9.9, 90),
        ("ABC", "C"),
        0.01,
    ),
    "esters": Case(
        "Six reactions of eleven esters",
        "Prabhu, Kosir, Kothare, Rangarajan, Industrial & Engineering Chemistry Research, 2025",
        "ABCDEFGJKLX",
        _ESTERS,
        _reversible(
            _ESTERS,
            [(0.3, 94.8), (0.4, 65.9), (1.1, 109.0), (0.9, 48.8), (1.0, 77.4), (0.2, 109.0)],
            [(1.2, 85.8), (0.6, 27.7), (0.7, 40.5), (0.1, 55.9), (0.5, 11.4), (0.8, 34.6)],
        ),
        (4.0, 10.0),
        tuple([370.0, 375.0, 380.0, 385.0, 373.0] * 6),
        np.linspace(0.0, 9.95, 200),
        ("DEFX", "BDEG", "ACEG", "BDEJ", "ADEK", "DKLX"),
        0.01,
        2,
        12.0,
    ),
}

# a fifth of the times: 462 candidates, each with its energy, take their time
CASES["esters of any species"] = replace(
    CASES["esters"],
    title="The same, of any species",
    times=CASES["esters"].times[:40],
    candidates=("ABCDEFGJKLX",) * len(_ESTERS),
)
