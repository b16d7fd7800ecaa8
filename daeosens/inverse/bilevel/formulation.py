"""How measurements and equations become a least squares problem: from experiments to a functional.

Parameters are divided into those that f is linear in, which the inner problem solves for, and the
others; measurements of each experiment become a curve, and the integrals of f along it are rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from daeosens.costs.observation import paired_unknowns
from daeosens.errors import InputError, UnsupportedError, is_one_of, name_list, real_number
from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.inverse.bilevel.functional import BilevelFunctional, ExperimentRows
from daeosens.inverse.bilevel.inner import Row, admit_rows, linear_constraints
from daeosens.inverse.bilevel.interpolants import Kind
from daeosens.inverse.bilevel.samples import Samples, positive_columns, samples_of
from daeosens.inverse.likelihood.delays_in_reach import delays_in_reach
from daeosens.inverse.likelihood.experiments import Experiment, controls, tables
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.petsc.vectors import Array, finite_array
from daeosens.problem.delays import Delays
from daeosens.problem.problem import Problem
from daeosens.tracing import separate

if TYPE_CHECKING:  # it needs CasADi, which is optional
    from daeosens.tracing.separable import SeparableRhs


@dataclass(frozen=True, eq=False)
class Formulation:
    """How measurements and equations become a least squares problem; as for ``bilevel``."""

    linear: Sequence[str] | None = None
    interpolant: Kind = "cubic"
    nodes: int = 3
    block: int = 0
    sigma: npt.ArrayLike | None = None
    ridge: float = 0.0
    equalities: Sequence[Row] = ()
    inequalities: Sequence[Row] = ()
    form: Literal["integral", "weak"] = "integral"

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "ridge", real_number(self.ridge, "ridge", least=0.0))
        if self.linear is not None:
            set_field(self, "linear", name_list(self.linear, "linear"))
        for kind in ("equalities", "inequalities"):
            set_field(self, kind, admit_rows(getattr(self, kind), kind))
        if not is_one_of(self.form, "integral", "weak"):
            raise InputError(f"form = {self.form!r}", expected='"integral" or "weak"')
        if self.form == "weak" and self.block:
            raise InputError(
                f'block = {self.block!r} with form="weak"',
                expected="one of them: test functions begin anew everywhere",
            )


def bilevel_functional(
    model: Any,
    experiments: Sequence[Experiment],
    parameters: Parameters,
    formulation: Formulation = Formulation(),
    *,
    columns: Sequence[str] | None = None,
    observe: Any = None,
) -> tuple[BilevelFunctional, tuple[str, ...]]:
    """Return what ``bilevel`` minimises, and the free parameters that f does not depend on.

    Arguments and errors as for ``bilevel``.
    """
    if not isinstance(model, Problem):
        raise InputError(
            f"model is {type(model).__name__}",
            expected="a traced model",
            remedy="daeosens.trace(rhs, size, parameters)",
        )
    if model.events:
        raise UnsupportedError(
            "bilevel for a model with events",
            expected="states that are smooth between measurements",
            remedy="the data between two events as an experiment of their own",
        )
    measured, table = tables(experiments, columns)
    samples = samples_of_all(
        experiments,
        measured,
        paired_unknowns(model, observe, table.names),
        model.size,
        formulation,
    )
    return functional_of(
        separate(model), samples, experiments, parameters, formulation, model.delays
    )


def samples_of_all(
    experiments: Sequence[Experiment],
    measured: Sequence[Measurements],
    unknowns: npt.NDArray[np.intp],
    n: int,
    formulation: Formulation,
) -> list[Samples]:
    """Return the samples of each experiment; ``unknowns`` [q] says which each column is of."""
    sigma = _noise_levels(formulation.sigma, len(unknowns))
    positive = positive_columns(measured)
    result: list[Samples] = []
    for k, (data, experiment) in enumerate(zip(measured, experiments, strict=True)):
        label = f"experiments[{k}]{f' ({experiment.name})' if experiment.name else ''}: "
        result.append(
            samples_of(
                data,
                unknowns,
                n,
                formulation.interpolant,
                formulation.nodes,
                sigma,
                formulation.block,
                None if experiment.stepping is None else experiment.stepping.t_span[0],
                label if len(experiments) > 1 else "",
                positive,
                weak=formulation.form == "weak",
            )
        )
    return result


def functional_of(
    rhs: SeparableRhs,
    samples: Sequence[Samples],
    experiments: Sequence[Experiment],
    parameters: Parameters,
    formulation: Formulation,
    delays: Delays | None = None,
) -> tuple[BilevelFunctional, tuple[str, ...]]:
    """Return the functional of rates, and the free parameters that they do not depend on."""
    _, own = controls(rhs.names, parameters, experiments)
    for part in own:
        _refuse_missing(rhs.names, part)
    if delays is not None:
        lengths = [float(series.breaks[-1]) - series.first for series in samples]
        begins = [series.first for series in samples]
        limits = delays_in_reach(delays, rhs.names, own, begins, lengths)
        own = [replace(part, values={**part.entries, **limits}) for part in own]
    division = _divided(rhs.names, rhs, own, formulation.linear)
    rows = [_rows(rhs, samples[k], own[k], division, k, delays) for k in range(len(experiments))]
    linear = division.linear
    _refuse_too_few(rows, len(linear) + len(division.others), len(formulation.equalities))
    # what has logarithms is not negative: the inner problem knows linear bounds only
    lower = [max(e.lower, 0.0) if e.scale == "log" else e.lower for e in linear.values()]
    constraints = linear_constraints(
        list(linear),
        lower,
        [entry.upper for entry in linear.values()],
        formulation.equalities,
        formulation.inequalities,
    )
    functional = BilevelFunctional(
        tuple(rows), linear, division.others, constraints, formulation.ridge
    )
    return functional, division.unused


class _Division(NamedTuple):
    """Which parameters the inner problem solves for, and which the outer one.

    Attributes
    ----------
    linear, others : dict of str to Parameter
        Free entries that f is linear in, and the others that it depends on.
    unused : tuple of str
        Free entries that it does not depend on.
    numbers : list of (list of int, list of int)
        For each experiment which parameters of the model are its own linear and other ones.
    """

    linear: dict[str, Parameter]
    others: dict[str, Parameter]
    unused: tuple[str, ...]
    numbers: list[tuple[list[int], list[int]]]


def _divided(
    names: tuple[str, ...],
    rhs: SeparableRhs,
    own: Sequence[Parameters],
    declared: Sequence[str] | None,
) -> _Division:
    """Divide the free parameters; ``own`` says which entry stands for each in an experiment."""
    # an experiment's own values are known to its part alone
    free_here = [[part.entries[part.entry_of(name)].free for name in names] for part in own]
    free = [
        name for name, here in zip(names, zip(*free_here, strict=True), strict=True) if any(here)
    ]
    if not free:
        raise InputError("no parameter is free", expected="at least one Parameter(free=True)")
    # a largest set in which f is linear, read from the traced graph
    solved = rhs.linear(free, declared)
    division = _Division({}, {}, (), [])
    unused: dict[str, None] = {}
    for part, here in zip(own, free_here, strict=True):
        numbers: tuple[list[int], list[int]] = [], []
        for i, name in enumerate(names):
            entry = part.entry_of(name)
            if not here[i]:
                continue
            if not rhs.used[i]:
                unused[entry] = None
            elif name in solved:
                division.linear[entry] = part.entries[entry]
                numbers[0].append(i)
            else:
                division.others[entry] = part.entries[entry]
                numbers[1].append(i)
        division.numbers.append(numbers)
    return division._replace(unused=tuple(unused))


def _rows(
    rhs: SeparableRhs,
    samples: Samples,
    own: Parameters,
    division: _Division,
    number: int,
    delays: Delays | None,
) -> ExperimentRows:
    """Return the rows of the experiment of a number: its samples, and f at their nodes."""
    linear, others = division.numbers[number]
    entries = [own.entry_of(name) for name in rhs.names]
    # from the experiment's own parameters to those of all experiments
    places = [
        np.array([list(of_all).index(entries[i]) for i in of_own], dtype=np.intp)
        for of_all, of_own in ((division.linear, linear), (division.others, others))
    ]
    return ExperimentRows(
        samples,
        rhs.at_points(linear, others, len(samples.nodes)),
        np.array([own.entries[entry].value for entry in entries], dtype=float),
        places[0],
        places[1],
        delays,
    )


def _noise_levels(sigma: npt.ArrayLike | None, columns: int) -> Array | None:
    """Return the noise level of each column [q], or None."""
    if sigma is None:
        return None
    levels = finite_array(sigma, "sigma")
    if levels.shape not in ((), (columns,)):
        raise InputError(f"sigma has shape {levels.shape}", expected=f"a number, or [{columns}]")
    return np.broadcast_to(levels, (columns,))


def _refuse_too_few(rows: Sequence[ExperimentRows], unknown: int, equalities: int) -> None:
    """Refuse fewer measurements than there are unknown parameters and initial states."""
    if rows[0].samples.tests:
        count, needed = sum(len(experiment.target) for experiment in rows), unknown - equalities
        if count < needed:
            raise InputError(
                f"{count} test functions for {unknown} parameters",
                expected=f"at least {needed}",
                remedy='more samples, form="integral", or Parameter(..., free=False)',
            )
        return
    count = sum(experiment.samples.target.size for experiment in rows)
    # each unknown initial state takes one measurement away
    states = sum(experiment.samples.constants.shape[1] for experiment in rows)
    needed = unknown - equalities + states
    if count < needed:
        raise InputError(
            f"{count} measurements for {unknown} parameters and the initial state of "
            f"{len(rows)} experiment{'s' * (len(rows) > 1)}",
            expected=f"at least {needed}",
            remedy="more samples, or Parameter(..., free=False)",
        )


def _refuse_missing(names: Sequence[str], own: Parameters) -> None:
    """Refuse a parameter of the model that has no entry."""
    for name in names:
        if own.entry_of(name) not in own.entries:
            raise InputError(
                f'parameter "{name}" has no value',
                expected="an entry for each parameter of the model",
                remedy=f'{{"{name}": Parameter(1.0)}}, or a number if it is known',
            )
