"""Model discovery: which terms of a library the measurements speak for, and with what coefficients.

The right-hand side is a sum of candidate terms with unknown coefficients, which enter linearly: a
bi-level problem (``inverse.bilevel``), in integral form, so that no derivative of measurements is
taken.  Terms leave it one after the other, or all that are small, and each time it is solved again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from daeosens.errors import (
    InputError,
    is_iterable,
    is_one_of,
    is_real,
    require,
)
from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.inverse.bilevel import Bilevel, bilevel
from daeosens.inverse.bilevel.inner import Row, admit_rows
from daeosens.inverse.bilevel.interpolants import Kind
from daeosens.inverse.likelihood.experiments import Experiment, tables
from daeosens.inverse.term_library import Term
from daeosens.petsc.vectors import Array, as_float, finite_array
from daeosens.tracing import trace

ROUNDING = 1e-24
"""Sums of squares are not taken for smaller than this part of what they are without a model."""


@dataclass(frozen=True)
class Step:
    """What one set of terms came to.

    Attributes
    ----------
    terms : tuple of str
        The coefficients that were left.
    value : float
        Half the sum of squares.
    aic, bic : float
        Akaike's and Schwarz's criteria.
    smallest : float
        The smallest share of a term: of what changes an equation's unknown, its part.
    dropped : tuple of str
        Which coefficients left after that.
    """

    terms: tuple[str, ...]
    value: float
    aic: float
    bic: float
    smallest: float
    dropped: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Discovered:
    """The terms that are left; prints itself.

    Attributes
    ----------
    model : Model
        An ordinary traced model with these terms alone: ``fit`` goes on with it.
    estimate : dict of str to float
        Coefficients, and parameters inside of terms.
    equations : tuple of str
        What each rate is the sum of.
    path : tuple of Step
        All sets of terms that were tried, the largest first.
    """

    model: Any
    estimate: dict[str, float]
    equations: tuple[str, ...]
    path: tuple[Step, ...]
    _rates: Callable[[Array, Array], Array] = field(repr=False)

    def predict(self, states: npt.ArrayLike, times: npt.ArrayLike | None = None) -> Array:
        """Return rates [Q, n] at states [Q, n]."""
        n = self.model.size
        points = finite_array(states, "states")
        if points.ndim != 2 or points.shape[1] != n:
            raise InputError(f"states have shape {points.shape}", expected=f"(Q, {n})")
        moments = np.zeros(len(points)) if times is None else times
        return self._rates(finite_array(moments, "times", (len(points),)), points)

    def score(
        self, states: npt.ArrayLike, rates: npt.ArrayLike, times: npt.ArrayLike | None = None
    ) -> float:
        """Return the share of the variance of rates [Q, n] that is predicted (R squared)."""
        predicted = self.predict(states, times)
        truth = finite_array(rates, "rates", predicted.shape)
        spread = float(np.sum((truth - truth.mean(axis=0)) ** 2)) if truth.size else 0.0
        if spread == 0.0:
            raise InputError("the rates are all the same", expected="rates that have a variance")
        return 1.0 - float(np.sum((truth - predicted) ** 2)) / spread

    def parameters(self, initial_state: Any) -> Parameters:
        """Return the coefficients as starts of a fit."""
        entries = {name: Parameter(self.estimate[name]) for name in self.model.parameter_names}
        return Parameters(entries, initial_state)

    def table(self) -> str:
        """Return the path as a table."""
        lines = ["terms   half the sum of squares          AIC          BIC   smallest  dropped"]
        lines += [
            f"{len(step.terms):5d} {step.value:25.5g} {step.aic:12.5g} {step.bic:12.5g} "
            f"{step.smallest:10.3g}  {', '.join(step.dropped)}"
            for step in self.path
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return the equations."""
        return "\n".join(self.equations)


@dataclass(frozen=True)
class Discovery:
    """How to look for equations: ``fit(data)`` does it.

    Parameters
    ----------
    library : sequence of Term
        Candidates of every equation, or of every reaction.
    stoichiometry : array_like [n, r], optional
        Rates of the unknowns are this matrix times those of r reactions; by default every unknown
        has a rate of its own.
    parameters : mapping of str to Parameter or float
        What is inside of terms, as an activation energy, or known for an experiment.
    threshold : float, optional
        Terms whose share is smaller leave all at once, until none is; a share is what a term
        contributes to the course of an equation's unknown, as a part of that.  By default the
        weakest term leaves, that is the one with the smallest ratio of coefficient and standard
        error, until there is none, and the criterion decides where that went too far.
    criterion : "bic" or "aic"
    equalities, inequalities : sequence of ({name: weight}, value)
        Between coefficients, "<equation>: <term>", as for ``bilevel``.
    ridge, interpolant, block, sigma, starts
        As for ``bilevel``; the ridge settles what is not determined until enough terms have left.

    Source
    ------
    Brunton, Proctor, Kutz, PNAS 113, 2016 (thresholding); Schaeffer, McCalla, Physical Review E
    96, 2017 (the integral form).

    Examples
    --------
    >>> from daeosens.inverse import polynomials
    >>> t = np.linspace(0.0, 10.0, 201)
    >>> data = {"t": t, "x": np.cos(2.0 * t), "y": -np.sin(2.0 * t)}
    >>> Discovery(polynomials(["x", "y"]), threshold=0.01).fit(data)
    x' = 2 y
    y' = -2 x
    """

    library: Sequence[Term]
    stoichiometry: Any = None
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    threshold: float | None = None
    criterion: Literal["bic", "aic"] = "bic"
    equalities: Sequence[Row] = ()
    inequalities: Sequence[Row] = ()
    ridge: float = 1e-12
    interpolant: Kind = "cubic"
    block: int = 0
    sigma: npt.ArrayLike | None = None
    starts: int = 1

    def __post_init__(self) -> None:
        terms: Any = self.library
        library: tuple[Any, ...] = tuple(terms) if is_iterable(terms) else (terms,)
        for term in library:
            require(term, Term, "an entry of the library", 'polynomials(["x", "y"])')
        object.__setattr__(self, "library", library)
        names = [term.name for term in library]
        if not names:
            raise InputError("library is empty", expected="one Term at least")
        if len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f'library has "{twice}" twice', expected="terms of different names")
        if not is_one_of(self.criterion, "bic", "aic"):
            raise InputError(f"criterion = {self.criterion!r}", expected='"bic" or "aic"')
        least = self.threshold
        if least is not None and not (is_real(least) and 0.0 <= least < 1.0):
            raise InputError(f"threshold = {self.threshold!r}", expected="a share, 0 to 1, or None")
        if not (is_real(self.ridge) and 0.0 < as_float(self.ridge) < math.inf):
            raise InputError(
                f"ridge = {self.ridge!r}",
                expected="a positive number: whole libraries are seldom determined",
            )
        require(self.parameters, Mapping, "parameters", '{"K": Parameter(1.0)}')
        for kind in ("equalities", "inequalities"):
            object.__setattr__(self, kind, admit_rows(getattr(self, kind), kind))
        if self.stoichiometry is not None:
            matrix = finite_array(self.stoichiometry, "stoichiometry")
            object.__setattr__(self, "stoichiometry", matrix)

    def fit(self, data: Any, *, columns: Sequence[str] | None = None) -> Discovered:
        """Return the terms that data speak for.

        Parameters
        ----------
        data : table, or list of Experiment
            As for ``bilevel``; every column is an unknown.
        columns : sequence of str, optional
            Those columns that are.

        Raises
        ------
        InputError
            Another number of rows in the stoichiometry than unknowns; terms in which coefficients
            do not stay linear; data that leave no term; what ``bilevel`` refuses.
        """
        listed = isinstance(data, (list, tuple)) and bool(data) and isinstance(data[0], Experiment)
        experiments: list[Experiment] = list(data) if listed else [Experiment(data)]
        unknowns = list(tables(experiments, columns)[1].names)
        n = len(unknowns)
        # u' = S r: rates r of reactions are sums of terms, each unknown is a sum of rates
        matrix: Any = np.eye(n) if self.stoichiometry is None else np.array(self.stoichiometry)
        if matrix.ndim != 2 or len(matrix) != n:
            raise InputError(
                f"stoichiometry has shape {matrix.shape} for {n} unknowns",
                expected=f"({n}, number of reactions)",
            )
        own = self.stoichiometry is None
        rates = unknowns if own else [f"r{k}" for k in range(matrix.shape[1])]
        # one coefficient for each rate and each term
        pairs = [(r, term) for r in range(len(rates)) for term in self.library]
        names = [f"{rates[r]}: {term.name}" for r, term in pairs]
        more = [*self.parameters]
        more += [
            k for experiment in experiments for k in (experiment.parameters or {}) if k not in more
        ]
        more = list(dict.fromkeys(more))
        whole = _model(unknowns, matrix, pairs, names, more)
        active = list(names)
        path: list[Step] = []
        solutions: list[Bilevel] = []
        # sequential thresholding (Brunton, Proctor, Kutz): solve, drop what is small, solve again;
        # without a threshold backward elimination, one term at a time
        while active:
            solution = self._solved(whole, experiments, columns, names, active)
            shares, strengths = _shares(solution, active)
            small = [a for a, share in zip(active, shares, strict=True) if share < _least(self)]
            if self.threshold is None:
                small = [active[int(np.argmin(strengths))]]
            path.append(_step(solution, active, float(shares.min()), small))
            solutions.append(solution)
            if not small:
                break
            active = [name for name in active if name not in small]
        if self.threshold is None:
            # the path goes from all terms to none: the criterion says where to stop
            best = min(range(len(path)), key=lambda k: getattr(path[k], self.criterion))
        else:
            best = len(path) - 1
        if self.threshold is not None and not active:
            raise InputError(
                f"threshold = {self.threshold:g} leaves no term",
                expected=f"less than {path[-1].smallest:.3g}",
            )
        kept = path[best].terms
        chosen = [pair for pair, name in zip(pairs, names, strict=True) if name in kept]
        model = _model(unknowns, matrix, chosen, kept, more)
        estimate = {name: solutions[best].estimate[name] for name in kept}
        estimate |= {name: solutions[best].estimate[name] for name in self.parameters}
        equations = _words(rates, chosen, [estimate[name] for name in kept])
        p = np.array([estimate.get(name, math.nan) for name in model.parameter_names])

        def rate_of(t: Array, u: Array) -> Array:
            held = model.unpack(p)
            result = np.zeros((matrix.shape[1], len(u)))
            for (r, term), name in zip(chosen, kept, strict=True):
                result[r] += estimate[name] * term.value(t, u.T, held)
            return (matrix @ result).T

        return Discovered(model, estimate, equations, tuple(path), rate_of)

    def _solved(
        self,
        model: Any,
        experiments: list[Experiment],
        columns: Sequence[str] | None,
        names: Sequence[str],
        active: Sequence[str],
    ) -> Bilevel:
        entries: dict[str, Any] = {
            name: Parameter(1.0) if name in active else Parameter(0.0, free=False) for name in names
        }
        # what has left is zero; a row between two that have left says nothing any more
        equalities = [_left(row, active) for row in self.equalities]
        inequalities = [_left(row, active) for row in self.inequalities]
        return bilevel(
            model,
            experiments,
            entries | dict(self.parameters),
            columns=columns,
            linear=list(active),
            interpolant=self.interpolant,
            block=self.block,
            sigma=self.sigma,
            ridge=self.ridge,
            equalities=[row for row in equalities if row[0]],
            inequalities=[row for row in inequalities if row[0]],
            starts=self.starts,
        )


def _least(discovery: Discovery) -> float:
    return 0.0 if discovery.threshold is None else discovery.threshold


def _left(row: Row, active: Sequence[str]) -> Row:
    return {name: weight for name, weight in row[0].items() if name in active}, row[1]


def _model(
    unknowns: Sequence[str],
    matrix: Array,
    pairs: Sequence[tuple[int, Term]],
    names: Sequence[str],
    more: Sequence[str],
) -> Any:
    """Return the sum of terms as a traced model."""
    size = matrix.shape[1]

    def rhs(t: Any, u: Any, p: Any) -> Any:
        sums: list[Any] = [0.0 * u[0]] * size
        # a term in several rates is traced once
        known = {id(term): term.value(t, u, p) for _, term in pairs}
        for k, (r, term) in enumerate(pairs):
            sums[r] = sums[r] + p[k] * known[id(term)]
        return matrix @ np.array(sums)

    return trace(rhs, list(unknowns), [*names, *more])


def _shares(solution: Bilevel, active: Sequence[str]) -> tuple[Array, Array]:
    """Return each coefficient's share, and the square of its ratio to its standard error."""
    at = solution.functional.at(solution.x)
    order = [solution.linear.index(name) for name in active]
    # how much a term moves its equations over all data, beside how much all terms together do: a
    # share that does not depend on units
    sizes = np.abs(at.inner.p) * np.linalg.norm(at.matrix, axis=0)
    whole = np.abs(at.matrix @ at.inner.p)
    touched = (at.matrix != 0.0).T.astype(float)  # rows of those equations that a term is in
    courses = np.sqrt(touched @ whole**2)
    # the diagonal of (A^T A)^-1, variances of coefficients but for the noise
    inverse = np.diag(at.inner.newton(np.eye(len(at.inner.p))))
    strengths = at.inner.p**2 / np.maximum(inverse, 1e-300)
    shares = sizes / np.maximum(courses, 1e-300)
    return shares[order], strengths[order]


def _step(solution: Bilevel, active: Sequence[str], smallest: float, small: Sequence[str]) -> Step:
    rows = solution.functional.experiments
    count = sum(rows_of.target.size - rows_of.samples.constants.shape[1] for rows_of in rows)
    nothing = sum(float(rows_of.target @ rows_of.target) for rows_of in rows)
    k = len(solution.linear) + len(solution.nonlinear)
    # -2 log of the likelihood of Gaussian noise whose level is estimated too
    least = max(ROUNDING * nothing, count * np.finfo(float).tiny)  # of weights that are tiny, too
    fit = count * math.log(max(2.0 * solution.value, least) / count)
    return Step(
        tuple(active),
        solution.value,
        fit + 2 * k,
        fit + k * math.log(count),
        smallest,
        tuple(small),
    )


def _words(
    rates: Sequence[str], chosen: Sequence[tuple[int, Term]], values: Sequence[float]
) -> tuple[str, ...]:
    lines: list[str] = []
    for r, rate in enumerate(rates):
        parts = [(v, term.name) for (k, term), v in zip(chosen, values, strict=True) if k == r]
        words = [f"{v:.4g}" if name == "1" else f"{v:.4g} {name}" for v, name in parts]
        text = " + ".join(words).replace("+ -", "- ") or "0"
        lines.append(f"{rate}' = {text}")
    return tuple(lines)
