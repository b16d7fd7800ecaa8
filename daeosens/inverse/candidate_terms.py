"""The terms that each rate may have, and which rates know nothing of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daeosens.errors import InputError, nearest
from daeosens.functional.parameters import Parameters
from daeosens.inverse.bilevel.formulation import Formulation
from daeosens.inverse.bilevel.inner import Row
from daeosens.inverse.bilevel.samples import Samples, combined
from daeosens.inverse.likelihood.experiments import Experiment
from daeosens.inverse.rate_groups import (
    Coefficient,
    RateGroup,
    joined,
    sum_of_terms,
    told_apart,
)
from daeosens.inverse.term_library import Term
from daeosens.petsc.vectors import Array
from daeosens.tracing import separate_rates


@dataclass(frozen=True, eq=False)
class Candidates:
    """What a search for equations begins with.

    Attributes
    ----------
    library : sequence of Term
    parameters : mapping of str to Parameter or float
        What is inside of terms, as of ``Discovery``.
    equalities, inequalities : sequence of ({name: weight}, value)
        Between coefficients.
    matrix : array [n, r]
        Rates of unknowns by those of reactions.
    rates : sequence of str
        What the latter are called.
    coefficients : sequence of Coefficient
        The candidates of each rate.
    """

    library: Sequence[Term]
    parameters: Mapping[str, Any]
    equalities: Sequence[Row]
    inequalities: Sequence[Row]
    matrix: Array
    rates: Sequence[str]
    coefficients: Sequence[Coefficient]

    def shared(self, experiments: Sequence[Experiment]) -> list[str]:
        """Return the parameters that are the same in all rates."""
        own = {name for term in self.library for name in term.own}
        known = [name for experiment in experiments for name in experiment.parameters]
        return [name for name in dict.fromkeys([*self.parameters, *known]) if name not in own]

    def groups(
        self,
        samples: list[Samples],
        experiments: Sequence[Experiment],
        ridge: float,
        starts: int,
    ) -> list[RateGroup]:
        """Return the rates in groups that know nothing of each other."""
        count, matrix, coefficients = len(self.rates), self.matrix, self.coefficients
        apart = told_apart(matrix, samples)
        shared = self.shared(experiments)
        links: list[list[int]] = [] if apart is not None else [list(range(count))]
        place = {c.name: c.rate for c in coefficients}
        links += [
            [place[name] for name in row] for row, _ in (*self.equalities, *self.inequalities)
        ]
        own_values = [Parameters(e.parameters, None).entries for e in experiments]
        entries = [Parameters(self.parameters, None).entries, *own_values]
        unknown = [name for name in shared if any(name in e and e[name].free for e in entries)]
        if unknown:
            used = [
                _used([c for c in coefficients if c.rate == k], shared, len(matrix))
                for k in range(count)
            ]
            links += [[k for k in range(count) if name in used[k]] for name in unknown]
        groups: list[RateGroup] = []
        for members in joined(count, links):
            chosen = list(members)
            if apart is None:
                outputs, of_group = matrix, samples
            else:
                labels = [self.rates[k] for k in chosen]
                outputs = np.eye(len(chosen))
                of_group = [combined(s, apart[chosen], labels) for s in samples]
            mine = tuple(c for c in coefficients if c.rate in chosen)
            inside = {c.name for c in mine}
            formulation = Formulation(
                None,
                ridge=ridge,
                equalities=[row for row in self.equalities if {*row[0]} & inside],
                inequalities=[row for row in self.inequalities if {*row[0]} & inside],
            )
            groups.append(
                RateGroup(
                    members,
                    mine,
                    outputs,
                    of_group,
                    len(matrix),
                    experiments,
                    self.parameters,
                    tuple(shared),
                    formulation,
                    starts,
                )
            )
        return groups


def candidates_of(
    library: Sequence[Term],
    stoichiometry: Array | None,
    parameters: Mapping[str, Any],
    equalities: Sequence[Row],
    inequalities: Sequence[Row],
    unknowns: list[str],
) -> Candidates:
    """Return the candidates of the rates of unknowns.

    Raises
    ------
    InputError
        Another number of rows in the stoichiometry than unknowns; a term of a rate that is not
        there, or whose own parameter has no start; constraints between what is no coefficient.
    """
    matrix, rates = _rates(stoichiometry, unknowns)
    coefficients = _coefficients(library, parameters, rates)
    names = [c.name for c in coefficients]
    for kind, rows in (("equalities", equalities), ("inequalities", inequalities)):
        for k, (row, _) in enumerate(rows):
            for name in row:
                if name not in names:
                    raise InputError(
                        f'{kind}[{k}] names "{name}"',
                        expected='coefficients, "<rate>: <term>"',
                        remedy=nearest(name, names),
                    )
    return Candidates(library, parameters, equalities, inequalities, matrix, rates, coefficients)


def _rates(stoichiometry: Array | None, unknowns: list[str]) -> tuple[Array, list[str]]:
    """Return the rates of unknowns by those of reactions [n, r], and what these are called."""
    n = len(unknowns)
    if stoichiometry is None:
        return np.eye(n), unknowns
    # u' = S r: rates r of reactions are sums of terms, each unknown is a sum of rates
    matrix = np.array(stoichiometry)
    if matrix.ndim != 2 or len(matrix) != n:
        raise InputError(
            f"stoichiometry has shape {matrix.shape} for {n} unknowns",
            expected=f"({n}, number of reactions)",
        )
    return matrix, [f"r{k}" for k in range(matrix.shape[1])]


def _coefficients(
    library: Sequence[Term], parameters: Mapping[str, Any], rates: Sequence[str]
) -> list[Coefficient]:
    """Return the candidates of each rate."""
    for term in library:
        for name in term.rates:
            if name not in rates:
                raise InputError(
                    f'term "{term.name}" is a candidate of "{name}"',
                    expected=f"rates: {', '.join(rates)}",
                    remedy=nearest(name, rates),
                )
        for name in term.own:
            if name not in parameters:
                raise InputError(
                    f'term "{term.name}": its own "{name}" has no start',
                    expected=f'parameters={{"{name}": Parameter(...)}}',
                )
    result: list[Coefficient] = []
    for k, rate in enumerate(rates):
        for term in library:
            if not term.rates or rate in term.rates:
                name = f"{rate}: {term.name}"
                own = {inside: f"{name}: {inside}" for inside in term.own}
                result.append(Coefficient(k, term, name, own))
    return result


def _used(coefficients: Sequence[Coefficient], shared: Sequence[str], size: int) -> set[str]:
    """Return the shared parameters that a rate depends on."""
    sums = sum_of_terms(coefficients, [coefficients[0].rate] if coefficients else [])
    names = [
        *(c.name for c in coefficients),
        *(full for c in coefficients for full in c.own.values()),
        *shared,
    ]
    rhs = separate_rates(lambda t, u, p: np.array(sums(t, u, p)), size, names, 1)
    return {name for name, used in zip(names, rhs.used, strict=True) if used and name in shared}
