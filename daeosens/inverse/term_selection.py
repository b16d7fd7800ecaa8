"""Terms of equations chosen by fits of the equations themselves.

Curves through noisy measurements mislead about terms that are nearly dependent: what a curve misses
is explained by terms that are not there.  Fits of the true equations, with unknown initial states,
are misled by nothing but noise, so that Schwarz's criterion may decide between sets of terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from daeosens.errors import DaeosensError, SolveError
from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.inverse.bilevel.interpolants import interpolant
from daeosens.inverse.fit import fit
from daeosens.inverse.fit_result import Fit
from daeosens.inverse.likelihood.experiments import Experiment, tables
from daeosens.inverse.likelihood.likelihood import likelihood
from daeosens.inverse.likelihood.noise import Noise
from daeosens.inverse.rate_groups import Coefficient, traced_sum
from daeosens.petsc.vectors import Array, gather
from daeosens.timestepping.stepping import Stepping

MOST_ITERATIONS = 100
"""Of a fit: sets with terms that are not there leave much undetermined."""

DOUBTFUL = 10.0
"""A term whose coefficient is less than so many standard errors is tried without first."""

MOST_ADDED = 2
"""So many terms are tried in addition, those that promise most."""


@dataclass(frozen=True)
class Choice:
    """A set of terms that was fitted.

    Attributes
    ----------
    terms : tuple of str
    change : str
        What it differs in from the best one before.
    chi_square, bic : float
        The sum of squares in units of the noise level, and Schwarz's criterion.
    """

    terms: tuple[str, ...]
    change: str
    chi_square: float
    bic: float


@dataclass(frozen=True, eq=False, repr=False)
class Selected:
    """Terms chosen by Schwarz's criterion; prints itself.

    Attributes
    ----------
    terms : tuple of str
    fit : Fit
        Of the equations with these terms, and of the initial state of each experiment.
    path : tuple of Choice
        All sets that were fitted.

    Examples
    --------
    >>> import daeosens as ds
    >>> from daeosens.inverse import Discovery, Normal, polynomials
    >>> t = np.linspace(0.0, 4.0, 41)
    >>> data = {"t": t, "x": 2.0 * np.exp(-0.5 * t)}
    >>> search = Discovery(polynomials(["x"]), threshold=0.01)
    >>> steps = ds.Stepping((0.0, 4.0), "rk6vr", rtol=1e-8)
    >>> selected = search.select(search.fit(data), data, steps, noise=Normal(0.01))
    >>> print(f"{selected.fit.estimate['x: x']:.4f}")
    -0.5000
    """

    terms: tuple[str, ...]
    fit: Fit
    path: tuple[Choice, ...]

    def __repr__(self) -> str:
        """Return the path and the fit."""
        lines = [f"{'change':32s} terms  chi-square         BIC"]
        lines += [
            f"{choice.change:32s} {len(choice.terms):5d} {choice.chi_square:11.5g} "
            f"{choice.bic:11.5g}"
            for choice in self.path
        ]
        return "\n".join([*lines, repr(self.fit)])


@dataclass(frozen=True, eq=False)
class TermSelection:
    """What is to be chosen from.

    Attributes
    ----------
    unknowns : sequence of str
    matrix : array [n, r]
        Rates of unknowns by those of reactions.
    candidates : sequence of Coefficient
    parameters : mapping of str to Parameter or float
        What is inside of terms.
    shared : sequence of str
        Those of them that are the same everywhere, and what experiments know.
    experiments : sequence of Experiment
        With their steppings.
    noise : Noise
        Of known level.
    """

    unknowns: Sequence[str]
    matrix: Array
    candidates: Sequence[Coefficient]
    parameters: Mapping[str, Any]
    shared: Sequence[str]
    experiments: Sequence[Experiment]
    noise: Noise

    def selected(self, terms: Sequence[str], values: Mapping[str, float]) -> Selected:
        """Return the best set of terms that steps from these lead to, by one term at a time.

        First without a doubtful term, then with one more that promises to pay, then without any
        other, then with another in its place; the first that lowers the criterion is taken.

        Raises
        ------
        SolveError
            The equations cannot be fitted with the terms to begin with.
        """
        best = self._fitted(frozenset(terms), values)
        score = self._bic(best, terms)
        path = [Choice(tuple(terms), "as found", 2.0 * best.objective, score)]
        current, fits = frozenset(terms), {frozenset(terms): best}
        tried = {current}
        going = True
        while going:
            going = False
            near = self._neighbours(current, best)
            for change, others in chain(near, self._exchanges(current, fits)):
                if others in tried or not others:
                    continue
                tried.add(others)
                try:
                    fitted = self._fitted(others, best.estimate)
                except DaeosensError:
                    continue  # no equations of these data
                fits[others] = fitted
                trial = self._bic(fitted, others)
                path.append(Choice(self._ordered(others), change, 2.0 * fitted.objective, trial))
                if trial < score:
                    best, score, current, going = fitted, trial, others, True
                    break
        return Selected(self._ordered(current), best, tuple(path))

    def _ordered(self, terms: frozenset[str]) -> tuple[str, ...]:
        return tuple(c.name for c in self.candidates if c.name in terms)

    def _bic(self, fitted: Fit, terms: Sequence[str] | frozenset[str]) -> float:
        """Return Schwarz's criterion; initial states count for all sets alike."""
        count = sum(1 + len(c.own) for c in self.candidates if c.name in terms)
        return 2.0 * fitted.objective + count * float(np.log(fitted.data.count))

    def _neighbours(self, terms: frozenset[str], fitted: Fit) -> list[tuple[str, frozenset[str]]]:
        """Return sets that differ by a term, those that promise most first."""
        functional: Any = fitted.functional
        matrix = functional.gauss_newton_matrix(fitted.result.x)
        sizes = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
        # what data do not determine has a large error, and is doubtful
        bent = matrix / np.outer(sizes, sizes) + 1e-12 * np.eye(len(sizes))
        errors = np.sqrt(np.diag(np.linalg.inv(bent))) / sizes
        names = list(fitted.parameters.free_names)
        certain = {
            name: abs(fitted.estimate[name]) / float(errors[names.index(name)]) for name in terms
        }
        weak = sorted(certain, key=lambda name: certain[name])
        without = [(f"without {name}", terms - {name}) for name in weak]
        gains = self._gains(terms, fitted)
        price = float(np.log(fitted.data.count))
        cost = {c.name: price * (1 + len(c.own)) for c in self.candidates}
        pays = [name for name in gains if gains[name] > cost[name]]
        added = sorted(pays, key=lambda name: -gains[name])[:MOST_ADDED]
        doubtful = sum(certain[name] < DOUBTFUL for name in weak[:1])
        plus = [(f"with {name}", terms | {name}) for name in added]
        return [*without[:doubtful], *plus, *without[doubtful:]]

    def _exchanges(
        self, terms: frozenset[str], fits: Mapping[frozenset[str], Fit]
    ) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield sets with the term that promises most in the place of another."""
        for name in self._ordered(terms):
            left = terms - {name}
            if left in fits:
                gains = self._gains(left, fits[left])
                if gains.pop(name, None) is not None and gains:
                    best = max(gains, key=gains.__getitem__)
                    yield f"{best} for {name}", left | {best}

    def _gains(self, terms: frozenset[str], fitted: Fit) -> dict[str, float]:
        """Return by how much chi-square falls with one more term, to first order (score tests)."""
        others = [c.name for c in self.candidates if c.name not in terms]
        if not others:
            return {}
        values = dict(fitted.estimate) | dict.fromkeys(others, 0.0)
        held = {full for c in self.candidates if c.name in others for full in c.own.values()}
        try:
            model, listed, parameters = self._problem(self.candidates, values, held)
            functional = likelihood(model, listed, parameters, noise=self.noise)
            x = functional.start()
            slope, matrix = gather(functional.gradient(x)), functional.gauss_newton_matrix(x)
        except SolveError:
            return dict.fromkeys(others, 0.0)
        control: Any = functional.experiments[0].control
        names: list[str] = list(control.free_names)
        new = [names.index(name) for name in others]
        old = [k for k in range(len(names)) if k not in {*new}]
        sizes = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
        matrix, slope = matrix / np.outer(sizes, sizes), slope / sizes
        # what the others, which follow, leave of the slope and the curvature of each
        follow = np.linalg.pinv(matrix[np.ix_(old, old)], rcond=1e-10, hermitian=True)
        across = follow @ matrix[np.ix_(old, new)]
        left = slope[new] - across.T @ slope[old]
        bend = np.diag(matrix)[new] - np.sum(matrix[np.ix_(old, new)] * across, axis=0)
        # one that the others are as good as has no curvature of its own
        gains = np.where(bend > 1e-8, left**2 / np.maximum(bend, 1e-8), 0.0)
        return dict(zip(others, gains.tolist(), strict=True))

    def _fitted(self, terms: frozenset[str], values: Mapping[str, float]) -> Fit:
        chosen = [c for c in self.candidates if c.name in terms]
        model, listed, parameters = self._problem(chosen, values, set())
        return fit(
            model,
            listed,
            parameters,
            noise=self.noise,
            hessian="gauss_newton",
            max_iterations=MOST_ITERATIONS,
            progress=False,
        )

    def _problem(
        self, chosen: Sequence[Coefficient], values: Mapping[str, float], held: set[str]
    ) -> tuple[Any, list[Experiment], Parameters]:
        """Return the model of terms, experiments with unknown initial states, and starts."""
        inside = [full for c in chosen for full in c.own.values()]
        firsts = [f"{unknown}(start)" for unknown in self.unknowns]
        names = [*(c.name for c in chosen), *inside, *self.shared, *firsts]
        model = traced_sum(self.unknowns, self.matrix, chosen, names)
        starts = Parameters(self.parameters, None).entries
        short = {full: name for c in chosen for name, full in c.own.items()}
        entries: dict[str, Any] = {c.name: Parameter(values.get(c.name, 0.0)) for c in chosen}
        for full in inside:
            entry = starts[short[full]]
            value = min(max(values.get(full, entry.value), entry.lower), entry.upper)
            entries[full] = replace(entry, value=value, free=entry.free and full not in held)
        for name in self.shared:
            if name in starts:
                entries[name] = replace(starts[name], value=values.get(name, starts[name].value))
        listed: list[Experiment] = []
        measured, _ = tables(self.experiments, None)
        for k, (experiment, data) in enumerate(zip(self.experiments, measured, strict=True)):
            label = experiment.name or str(k)
            own: dict[str, Any] = dict(experiment.parameters)
            for column, name in enumerate(firsts):
                seen = data.observed[:, column]
                curve = interpolant(data.times[seen], data.values[seen, column], "smooth")
                begin = float(curve(np.array([experiment.stepping.t_span[0]]))[0])
                own[name] = Parameter(values.get(f"{name} ({label})", begin))
            listed.append(replace(experiment, parameters=own, name=label))
        places = [model.parameter_names.index(name) for name in firsts]
        # of all experiments; each has its own in their place
        entries |= {name: 0.0 for name in (*self.shared, *firsts) if name not in entries}
        return model, listed, Parameters(entries, lambda p: np.array([p[k] for k in places]))


def with_steppings(
    experiments: Sequence[Experiment], stepping: Stepping | None
) -> list[Experiment]:
    """Return experiments with the common stepping where they have none."""
    return [
        experiment if experiment.stepping is not None else replace(experiment, stepping=stepping)
        for experiment in experiments
    ]
