"""Model discovery: which terms of a library the measurements speak for, and with what coefficients.

The right-hand side is a sum of candidate terms with unknown coefficients, which enter linearly: a
bi-level problem (``inverse.bilevel``), in integral form, so that no derivative of measurements is
taken.  Terms leave it one after the other, or all that are small, and each time it is solved again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from daeosens.errors import (
    InputError,
    is_iterable,
    is_one_of,
    is_real,
    real_number,
    require,
    whole_number,
)
from daeosens.functional.parameters import Parameters
from daeosens.inverse.bilevel.formulation import Formulation, samples_of_all
from daeosens.inverse.bilevel.inner import Row, admit_rows
from daeosens.inverse.bilevel.interpolants import Kind
from daeosens.inverse.candidate_terms import Candidates, candidates_of
from daeosens.inverse.discovered_model import Discovered
from daeosens.inverse.likelihood.experiments import Experiment, tables
from daeosens.inverse.likelihood.noise import Noise, is_estimated
from daeosens.inverse.rate_groups import (
    Coefficient,
    RateGroup,
    Solved,
    traced_sum,
)
from daeosens.inverse.search.start_points import MOST_STARTS
from daeosens.inverse.term_elimination import Step, eliminated, restricted, within_tolerance
from daeosens.inverse.term_library import Term
from daeosens.inverse.term_selection import Selected, TermSelection, with_steppings
from daeosens.inverse.term_votes import elected, shares_of_members
from daeosens.petsc.vectors import Array, as_float, finite_array
from daeosens.timestepping.stepping import Stepping


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
        What is inside of terms, as an activation energy, or known for an experiment.  Of those that
        are a term's ``own`` this is the start of each.
    threshold : float, optional
        Terms whose share is smaller leave all at once, until none is; a share is what a term
        contributes to the course of an equation's unknown, as a part of that.
    tolerance : float, optional
        The weakest terms leave while the rest leaves no more than this part of any rate's course
        unexplained: a fifth of them at once, then fewer, at last each by itself.
    criterion : "bic" or "aic"
        Without threshold and tolerance the weakest term leaves, that is the one with the smallest
        ratio of coefficient and standard error, until there is none, and the criterion decides
        where that went too far.
    equalities, inequalities : sequence of ({name: weight}, value)
        Between coefficients, "<equation>: <term>", as for ``bilevel``.
    ridge, interpolant, block, sigma, starts, form
        As for ``bilevel``; the ridge settles what is not determined until enough terms have left.

    Source
    ------
    Brunton, Proctor, Kutz, PNAS 113, 2016 (thresholding); Schaeffer, McCalla, Physical Review E
    96, 2017 (the integral form); Messenger, Bortz, Multiscale Modeling & Simulation 19, 2021 (the
    weak form).

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
    tolerance: float | None = None
    criterion: Literal["bic", "aic"] = "bic"
    equalities: Sequence[Row] = ()
    inequalities: Sequence[Row] = ()
    ridge: float = 1e-12
    interpolant: Kind = "cubic"
    block: int = 0
    sigma: npt.ArrayLike | None = None
    starts: int = 1
    form: Literal["integral", "weak"] = "integral"

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
        for kind in ("threshold", "tolerance"):
            part = getattr(self, kind)
            if part is not None and not (is_real(part) and 0.0 <= as_float(part) < 1.0):
                raise InputError(f"{kind} = {part!r}", expected="a part, 0 to 1, or None")
        if self.threshold is not None and self.tolerance is not None:
            raise InputError(
                f"threshold = {self.threshold!r} beside tolerance = {self.tolerance!r}",
                expected="one of them, or none",
            )
        if not (is_real(self.ridge) and 0.0 < as_float(self.ridge) < math.inf):
            raise InputError(
                f"ridge = {self.ridge!r}",
                expected="a positive number: whole libraries are seldom determined",
            )
        starts = whole_number(self.starts, "starts", least=1, most=MOST_STARTS)
        object.__setattr__(self, "starts", starts)
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
        if self.tolerance is not None:
            return self._of_those_left(
                data, columns, partial(within_tolerance, tolerance=self.tolerance)
            )
        by_size = partial(eliminated, threshold=self.threshold, criterion=self.criterion)
        return self._of_those_left(data, columns, by_size)

    def ensemble(
        self,
        data: Any,
        *,
        columns: Sequence[str] | None = None,
        members: int = 20,
        part: float = 0.7,
        votes: float = 0.8,
        seed: int = 0,
    ) -> Discovered:
        """Return the terms that most parts of the data speak for.

        Each member looks for terms in a random part of the times.  What noise makes up differs from
        part to part, and what is there does not: the terms of most members are kept, and solved for
        with all data.

        Parameters
        ----------
        data, columns
            As for ``fit``.
        members : int
        part : float
            Of the times of each experiment, those that a member sees; the first is always seen.
        votes : float
            The share of members that a term needs.
        seed : int
            Of the parts.

        Returns
        -------
        Discovered
            Its ``inclusion`` has the share of members in which each term was.

        Raises
        ------
        InputError
            No term has so many votes; what ``fit`` refuses, of a part of the data too.

        Source
        ------
        Fasel, Kutz, Brunton, Brunton, Proceedings of the Royal Society A 478, 2022.

        Examples
        --------
        >>> import numpy as np
        >>> from daeosens.inverse import polynomials
        >>> t = np.linspace(0.0, 4.0, 101)
        >>> data = {"t": t, "x": 2.0 * np.exp(-0.5 * t)}
        >>> search = Discovery(polynomials(["x"]), threshold=0.01)
        >>> result = search.ensemble(data, members=5)
        >>> result.equations, result.inclusion
        (("x' = -0.5 x",), {'x: x': 1.0})
        """
        members = whole_number(members, "members", least=1, most=MOST_STARTS)
        part = real_number(part, "part", least=0.0, most=1.0)
        votes = real_number(votes, "votes", least=0.0, most=1.0)
        rng = np.random.default_rng(whole_number(seed, "seed"))
        experiments = _experiments(data)
        measured, table = tables(experiments, columns)
        candidates = [c.name for c in self._candidates(list(table.names)).coefficients]

        def terms_of(parts: list[dict[str, Array]]) -> Iterable[str]:
            seen = [
                replace(experiment, data=own, times=None)
                for experiment, own in zip(experiments, parts, strict=True)
            ]
            try:
                return self.fit(seen).estimate
            except InputError as error:
                # of what was given if it is refused as well, else of the part that nobody gave
                self.fit(data, columns=columns)
                times = [len(next(iter(own.values()))) for own in parts]
                of_all = ", ".join(
                    f"{count} of {len(table.times)}"
                    for count, table in zip(times, measured, strict=True)
                )
                raise InputError(
                    f"part = {part:g}: a member that sees {of_all} times is refused, as "
                    f"{error.what} would be",
                    expected="parts of the data that fit takes",
                    remedy="a larger part, up to 1, or more samples",
                ) from error

        inclusion = shares_of_members(terms_of, measured, candidates, members, part, rng)
        names = elected(inclusion, votes)
        return replace(
            self._of_those_left(data, columns, partial(restricted, names=names)),
            inclusion=inclusion,
        )

    def _of_those_left(
        self,
        data: Any,
        columns: Sequence[str] | None,
        leave_out: Callable[[Sequence[RateGroup]], tuple[list[Solved], list[Step]]],
    ) -> Discovered:
        """Return what is left of all candidates."""
        experiments = _experiments(data)
        measured, table = tables(experiments, columns)
        unknowns = list(table.names)
        n = len(unknowns)
        candidates = self._candidates(unknowns)
        matrix = candidates.matrix
        formulation = Formulation(
            None, self.interpolant, block=self.block, sigma=self.sigma, form=self.form
        )
        samples = samples_of_all(experiments, measured, np.arange(n), n, formulation)
        groups = candidates.groups(samples, experiments, self.ridge, self.starts)
        solved, path = leave_out(groups)
        kept = [name for of_group in solved for name in of_group.active]
        chosen = [c for c in candidates.coefficients if c.name in {*kept}]
        names = [c.name for c in chosen]
        inside = [full for c in chosen for full in c.own.values()]
        estimate = {name: value for of_group in solved for name, value in of_group.estimate.items()}
        shared = candidates.shared(experiments)
        # in the order of the model; a parameter that is not in any term keeps its start
        starts = Parameters(self.parameters, None).entries
        values = {name: float(starts[name].value) for name in shared if name in starts} | estimate
        order = [*names, *inside, *(name for name in shared if name in values)]
        model = traced_sum(unknowns, matrix, chosen, [*names, *inside, *shared])
        p = np.array([values.get(name, math.nan) for name in model.parameter_names])
        equations = _words(candidates.rates, chosen, [values[name] for name in names])

        def rate_of(t: Array, u: Array) -> Array:
            held = model.unpack(p)
            result = np.zeros((matrix.shape[1], len(u)))
            for c in chosen:
                result[c.rate] += values[c.name] * c.value(t, u.T, held)
            return (matrix @ result).T

        estimate = {name: values[name] for name in order}
        return Discovered(model, estimate, equations, tuple(path), rate_of)

    def select(
        self,
        discovered: Discovered,
        data: Any,
        stepping: Stepping | None = None,
        *,
        noise: Noise,
    ) -> Selected:
        """Return the terms that Schwarz's criterion chooses by fits of the equations.

        From the terms that were found, by one term less or more at a time, each time with
        coefficients and initial states fitted anew.  It takes dozens of fits, and needs noise
        levels; where measurements are noisy it tells terms apart that curves through them do not.

        Parameters
        ----------
        discovered : Discovered
            From ``fit`` of the same data.
        data : table, or list of Experiment
        stepping : Stepping, optional
            Of experiments without their own.
        noise : Normal or LogNormal
            With levels.

        Raises
        ------
        InputError
            An estimated noise level; constraints between coefficients; no stepping.
        SolveError
            The equations that were found cannot be fitted.

        Examples
        --------
        >>> import daeosens as ds
        >>> from daeosens.inverse import Normal, polynomials
        >>> t = np.linspace(0.0, 4.0, 41)
        >>> data = {"t": t, "x": 2.0 * np.exp(-0.5 * t)}
        >>> search = Discovery(polynomials(["x"]), threshold=0.01)
        >>> steps = ds.Stepping((0.0, 4.0), "rk6vr", rtol=1e-8)
        >>> search.select(search.fit(data), data, steps, noise=Normal(0.01)).terms
        ('x: x',)
        """
        require(discovered, Discovered, "discovered", "discovery.fit(data)")
        require(noise, Noise, "noise", "Normal(0.01)")
        if is_estimated(noise):
            raise InputError(
                "noise of unknown level",
                expected="its level: chi-square decides between terms",
                remedy="Normal(sigma)",
            )
        if self.equalities or self.inequalities:
            raise InputError("constraints between coefficients", expected="terms that are free")
        experiments = with_steppings(_experiments(data), stepping)
        for k, experiment in enumerate(experiments):
            require(experiment.stepping, Stepping, f"experiments[{k}].stepping", "Stepping(...)")
        unknowns = list(discovered.model.state_names)
        candidates = self._candidates(unknowns)
        selection = TermSelection(
            unknowns,
            candidates.matrix,
            candidates.coefficients,
            self.parameters,
            candidates.shared(experiments),
            experiments,
            noise,
        )
        return selection.selected(discovered.path[-1].terms, discovered.estimate)

    def _candidates(self, unknowns: list[str]) -> Candidates:
        return candidates_of(
            self.library,
            self.stoichiometry,
            self.parameters,
            self.equalities,
            self.inequalities,
            unknowns,
        )


def _experiments(data: Any) -> list[Experiment]:
    """Return the experiments that data are, or the only one that has them."""
    listed = isinstance(data, (list, tuple)) and bool(data) and isinstance(data[0], Experiment)
    return list(data) if listed else [Experiment(data)]


def _words(
    rates: Sequence[str], chosen: Sequence[Coefficient], values: Sequence[float]
) -> tuple[str, ...]:
    lines: list[str] = []
    for r, rate in enumerate(rates):
        parts = [(v, c.term.name) for c, v in zip(chosen, values, strict=True) if c.rate == r]
        words = [f"{v:.4g}" if name == "1" else f"{v:.4g} {name}" for v, name in parts]
        text = " + ".join(words).replace("+ -", "- ") or "0"
        lines.append(f"{rate}' = {text}")
    return tuple(lines)
