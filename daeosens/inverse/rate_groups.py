"""Rates that are looked for together, in the equations that a ``Discovery`` looks for.

Where each unknown has a rate of its own, or the rates of reactions can be told from the unknowns,
coefficients of one rate know nothing of those of another: each rate is a problem of its own, as
large as its candidates, and memory is linear in the library.  Rates are one group if they share a
parameter inside of their terms or a constraint, or if stoichiometry does not tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.inverse.bilevel.estimate import minimized
from daeosens.inverse.bilevel.formulation import Formulation, functional_of
from daeosens.inverse.bilevel.functional import ExperimentRows, spread_starts
from daeosens.inverse.bilevel.inner import Row
from daeosens.inverse.bilevel.samples import Samples
from daeosens.inverse.likelihood.experiments import Experiment
from daeosens.inverse.term_library import Term
from daeosens.petsc.vectors import Array
from daeosens.tracing import separate_rates, trace

DECADES = 1.0
"""Starts of what is inside of terms lie within so many powers of ten, as those of ``bilevel``."""


@dataclass(frozen=True, eq=False)
class Coefficient:
    """What a term is multiplied by in a rate.

    Attributes
    ----------
    rate : int
    term : Term
    name : str
        "<rate>: <term>".
    own : dict of str to str
        What the parameters are called that the term has of its own here.
    """

    rate: int
    term: Term
    name: str
    own: dict[str, str]

    def value(self, t: Any, u: Any, p: Any) -> Any:
        """Return the term, with its own parameters where it has any."""
        return self.term.value(t, u, _Renamed(p, self.own) if self.own else p)


class _Renamed:
    """Parameters as a term sees them: its own ones by their short names."""

    __slots__ = ("_names", "_p")

    def __init__(self, p: Any, names: Mapping[str, str]) -> None:
        self._p, self._names = p, names

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, name: str) -> Any:
        return self._p[self._names.get(name, name)]


def sum_of_terms(coefficients: Sequence[Coefficient], rates: Sequence[int]) -> Any:
    """Return ``rates(t, u, p)``, a list of the sums of terms with coefficients from p."""
    place = {rate: k for k, rate in enumerate(rates)}

    def sums(t: Any, u: Any, p: Any) -> list[Any]:
        result: list[Any] = [0.0 * u[0]] * len(rates)
        known: dict[int, Any] = {}
        for coefficient in coefficients:
            # what is the same in several rates is traced once
            key = id(coefficient if coefficient.own else coefficient.term)
            if key not in known:
                known[key] = coefficient.value(t, u, p)
            k = place[coefficient.rate]
            result[k] = result[k] + p[coefficient.name] * known[key]
        return result

    return sums


def traced_sum(
    unknowns: Sequence[str],
    matrix: Array,
    coefficients: Sequence[Coefficient],
    names: Sequence[str],
) -> Any:
    """Return equations as a traced model: a matrix [n, r] times the sums of terms of r rates."""
    sums = sum_of_terms(coefficients, range(matrix.shape[1]))

    def rhs(t: Any, u: Any, p: Any) -> Any:
        return matrix @ np.array(sums(t, u, p))

    return trace(rhs, list(unknowns), list(names))


@dataclass(frozen=True, eq=False)
class Solved:
    """What a set of terms came to.

    Attributes
    ----------
    active : tuple of str
        Their coefficients.
    estimate : dict of str to float
        These, and the parameters inside.
    value : float
        Half the sum of squares.
    nothing : float
        The sum of squares without any term.
    count, unknown : int
        How many measurements there are but for initial states, and how many parameters.
    shares : array
        How much each term moves its rates, as a part of how much all terms together do.
    strengths : array
        By how much the sum of squares grows if one term leaves and the others, but not what is
        inside of them, follow.
    courses : array
        The sum of squares of what the rates that a term is in are to explain.
    unexplained : float
        The largest part of the course of a rate that is left.
    x : dict of str to float
        The parameters inside, in their scales.
    """

    active: tuple[str, ...]
    estimate: dict[str, float]
    value: float
    nothing: float
    count: int
    unknown: int
    shares: Array
    strengths: Array
    courses: Array
    unexplained: float
    x: dict[str, float]


@dataclass(frozen=True, eq=False)
class RateGroup:
    """Rates that are looked for together.

    Attributes
    ----------
    rates : tuple of int
    coefficients : tuple of Coefficient
        All candidates.
    outputs : array [r, rates]
        What is compared with measurements are these sums of the rates.
    samples : list of Samples
        Of each experiment.
    size : int
        Number of unknowns.
    experiments : sequence of Experiment
    parameters : mapping
        What is inside of terms, by the names that terms know.
    shared : tuple of str
        Those of them that are the same everywhere, and what experiments know.
    formulation : Formulation
    starts : int
    """

    rates: tuple[int, ...]
    coefficients: tuple[Coefficient, ...]
    outputs: Array
    samples: list[Samples]
    size: int
    experiments: Sequence[Experiment]
    parameters: Mapping[str, Any]
    shared: tuple[str, ...]
    formulation: Formulation
    starts: int

    @property
    def names(self) -> tuple[str, ...]:
        """All coefficients."""
        return tuple(coefficient.name for coefficient in self.coefficients)

    def solved(
        self,
        active: Sequence[str],
        before: Solved | None,
        gradient_tolerance: float,
        max_iterations: int = 200,
    ) -> Solved:
        """Return what these coefficients come to, beginning where more of them ended."""
        if not active:
            return self._nothing()
        chosen = [c for c in self.coefficients if c.name in {*active}]
        own = {full: name for c in chosen for name, full in c.own.items()}
        entries: dict[str, Any] = {name: Parameter(1.0) for name in active}
        entries |= {full: self.parameters[name] for full, name in own.items()}
        entries |= {name: self.parameters[name] for name in self.shared if name in self.parameters}
        sums, outputs = sum_of_terms(chosen, self.rates), self.outputs
        alone = np.array_equal(outputs, np.eye(len(outputs)))

        def rates(t: Any, u: Any, p: Any) -> Any:
            values = np.array(sums(t, u, p))
            return values if alone else outputs @ values

        rhs = separate_rates(rates, self.size, [*active, *own, *self.shared], len(outputs))
        parameters = Parameters(entries, None)
        functional, _ = functional_of(
            rhs, self.samples, self.experiments, parameters, self._formulation(active)
        )
        points = spread_starts(functional, self.starts, DECADES, 0)
        if before is not None:
            points[0] = [
                before.x.get(name, points[0][k]) for k, name in enumerate(functional.others)
            ]
        _, x = minimized(
            functional, points, DECADES, gradient_tolerance, max_iterations=max_iterations
        )
        at = functional.at(x)
        order = [list(functional.linear).index(name) for name in active]
        values = {name: float(entry.value) for name, entry in parameters.entries.items()}
        values |= dict(zip(functional.linear, at.inner.p.tolist(), strict=True))
        values |= dict(zip(functional.others, functional.unscaled(x).tolist(), strict=True))
        target = np.concatenate([rows.target for rows in functional.experiments])
        sizes = np.abs(at.inner.p) * np.linalg.norm(at.matrix, axis=0)
        touched = (at.matrix != 0.0).T.astype(float)  # rows of those rates that a term is in
        explained = np.sqrt(touched @ (at.matrix @ at.inner.p) ** 2)
        # the diagonal of (A^T A)^-1, variances of coefficients but for the noise
        inverse = np.diag(at.inner.newton(np.eye(len(at.inner.p))))
        return Solved(
            tuple(active),
            values,
            functional.value(functional.vector(x)),
            float(target @ target),
            self._count(),
            len(functional.linear) + len(functional.others),
            (sizes / np.maximum(explained, 1e-300))[order],
            (at.inner.p**2 / np.maximum(inverse, 1e-300))[order],
            (touched @ target**2)[order],
            self._unexplained(at.residual, target),
            dict(zip(functional.others, x.tolist(), strict=True)),
        )

    def _formulation(self, active: Sequence[str]) -> Formulation:
        """Return the formulation with the constraints of what is left."""
        whole = self.formulation

        def left(rows: Sequence[Row]) -> list[Row]:
            # what has left is zero; a row between those that have left says nothing any more
            kept = [
                ({name: w for name, w in row.items() if name in active}, to) for row, to in rows
            ]
            return [row for row in kept if row[0]]

        return Formulation(
            tuple(active),
            ridge=whole.ridge,
            equalities=left(whole.equalities),
            inequalities=left(whole.inequalities),
        )

    def _nothing(self) -> Solved:
        """Return what no term comes to."""
        empty = np.zeros(0)
        none = np.zeros(0, dtype=np.intp)
        rows = [ExperimentRows(s, None, empty, none, none, None).target for s in self.samples]
        target = np.concatenate(rows)
        nothing, count = float(target @ target), self._count()
        return Solved((), {}, 0.5 * nothing, nothing, count, 0, empty, empty, empty, 1.0, {})

    def _count(self) -> int:
        return sum(s.freedom for s in self.samples)

    def _unexplained(self, residual: Array, target: Array) -> float:
        rates = np.concatenate([s.residual_states for s in self.samples])
        left, whole = (np.bincount(rates, values**2) for values in (residual, target))
        return float(np.sqrt(np.max(left / np.maximum(whole, 1e-300))))


def told_apart(stoichiometry: Array, samples: Sequence[Samples]) -> Array | None:
    """Return combinations [r, n] of the unknowns whose rates are those of the reactions, or None.

    That is where each unknown has a rate of its own, or else where no reaction is a sum of others
    and all unknowns are measured at the same times.
    """
    together = all(np.array_equal(s.places[0], at) for s in samples for at in s.places[1:])
    # least squares with the weights that measurements have, unless these are beyond numbers
    weights = np.sqrt(np.mean([s.weights**2 for s in samples], axis=0))
    independent = np.linalg.matrix_rank(stoichiometry) == stoichiometry.shape[1]
    if np.array_equal(stoichiometry, np.eye(len(stoichiometry))):
        return stoichiometry
    if not (together and independent and np.isfinite(weights).all() and (weights > 0.0).all()):
        return None
    weighted: Array = weights[:, None] * stoichiometry
    return np.linalg.pinv(weighted) * weights


def joined(count: int, links: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return the classes of 0, ..., count - 1 in which those of each link are together.

    Examples
    --------
    >>> joined(4, [[0, 2], [2, 3]])
    [(0, 2, 3), (1,)]
    """
    label = list(range(count))
    for link in links:
        together = {label[k] for k in link}
        label = [min(together) if k in together else k for k in label]
    return [tuple(k for k in range(count) if label[k] == first) for first in sorted({*label})]
