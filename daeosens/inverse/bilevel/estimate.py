"""``bilevel``: parameters from interpolated measurements, without solving the equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.costs.observation import paired_unknowns
from daeosens.errors import InputError, UnsupportedError, name_list, real_number, whole_number
from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.inverse.bilevel.functional import (
    BilevelFunctional,
    ExperimentRows,
    pulled,
    ran_away,
    spread_starts,
)
from daeosens.inverse.bilevel.inner import Row, admit_rows, combination, linear_constraints
from daeosens.inverse.bilevel.interpolants import Kind
from daeosens.inverse.bilevel.samples import samples_of
from daeosens.inverse.likelihood.experiments import Experiment, controls, tables
from daeosens.inverse.search.multistart import Multistart, multistart
from daeosens.inverse.search.start_points import MOST_STARTS
from daeosens.petsc.ranks import admit_comm
from daeosens.petsc.vectors import Array, finite_array, gather
from daeosens.problem.problem import Problem
from daeosens.tracing import separate


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

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "ridge", real_number(self.ridge, "ridge", least=0.0))
        if self.linear is not None:
            set_field(self, "linear", name_list(self.linear, "linear"))
        for kind in ("equalities", "inequalities"):
            set_field(self, kind, admit_rows(getattr(self, kind), kind))


@dataclass(frozen=True, eq=False, repr=False)
class Bilevel:
    """What ``bilevel`` has found; prints itself.

    Attributes
    ----------
    estimate : dict of str to float
        All parameters, those that were fixed too.
    linear, nonlinear, unused : tuple of str
        Which free parameters were solved for in the inner problem, which in the outer one, and
        which the right-hand side does not depend on: these keep their start.
    value : float
        Half the sum of squares.
    functional : BilevelFunctional
    x : array [k]
        The nonlinear parameters in their scales.
    starts : Multistart or None
        All attempts.
    active, degenerate : tuple of str
        Constraints that hold as equalities; those of them at which the derivative is one-sided.
    unidentified : tuple of str
        Combinations on which the data do not depend.

    Examples
    --------
    >>> import daeosens as ds
    >>> model = ds.trace(lambda t, u, p: -p.rate * u, size=1, parameters=["rate"])
    >>> t = np.linspace(0.0, 2.0, 21)
    >>> result = bilevel(model, {"t": t, "u": np.exp(-0.5 * t)}, {"rate": Parameter(1.0)})
    >>> result.linear, round(result.estimate["rate"], 4)
    (('rate',), 0.5)
    """

    estimate: dict[str, float]
    linear: tuple[str, ...]
    nonlinear: tuple[str, ...]
    unused: tuple[str, ...]
    value: float
    functional: BilevelFunctional
    x: Array
    starts: Multistart | None
    active: tuple[str, ...]
    degenerate: tuple[str, ...]
    unidentified: tuple[str, ...]

    def __repr__(self) -> str:
        """Return the estimates and what to know about them."""
        lines = [f"bi-level estimate: half the sum of squares is {self.value:.4g}"]
        for kind, names in (("linear", self.linear), ("nonlinear", self.nonlinear)):
            lines += [f"  {name:20s} {self.estimate[name]:12.6g}  {kind}" for name in names]
        if self.active:
            lines.append(f"active: {', '.join(self.active)}")
        if self.unidentified:
            lines.append(f"not determined by the data: {', '.join(self.unidentified)}")
        return "\n".join(lines)


def bilevel(
    model: Any,
    data: Any,
    parameters: Parameters | Mapping[str, Any],
    *,
    times: str | npt.ArrayLike | None = None,
    columns: Sequence[str] | None = None,
    observe: Any = None,
    linear: Sequence[str] | None = None,
    interpolant: Kind = "cubic",
    nodes: int = 3,
    block: int = 0,
    sigma: npt.ArrayLike | None = None,
    ridge: float = 0.0,
    equalities: Sequence[Row] = (),
    inequalities: Sequence[Row] = (),
    starts: int = 1,
    decades: float = 1.0,
    seed: int = 0,
    gradient_tolerance: float = 1e-8,
    max_iterations: int = 200,
    comm: MPI.Intracomm | None = None,
) -> Bilevel:
    """Estimate parameters of u' = f(t, u, p) by putting interpolated measurements into f.

    Then nothing has to be integrated but known functions of time.  Parameters in which f is linear
    solve a linear least squares problem, exactly; the others are minimised over (bi-level).  No
    guess is needed of the linear ones, and hardly one of the others.  The result is as good as the
    interpolation: it is the place from which ``fit`` or ``fit_windows`` go on.

    The residuals are, for each unknown and each of its times, what was measured minus the integral
    of f from the first time on; the state at the first time is estimated along with the rest.

    Parameters
    ----------
    model : Model
        From ``trace``, with delays or without.  History holds until the run of an ``Experiment``
        begins, or else until the first measurement.
    data, times, columns, observe
        As for ``fit``: a table, or a list of ``Experiment``, NaN where nothing was measured.  All
        unknowns have to be measured.
    parameters : Parameters, or mapping of str to Parameter
        Starts, bounds and scales.  Of the linear ones starts are of no account; ``scale="log"``
        makes them non-negative.
    linear : sequence of str, optional
        Parameters of the inner problem; by default a largest set in which f is linear.
    interpolant : "cubic", "hermite", "pchip", "akima" or "smooth"
        Through the measurements, or near them ("smooth").  Where measurements are not negative,
        or not by more than their noise, neither is the curve.
    nodes : int
        Gauss points in each interval between neighbouring times.
    block : int
        Begin integrals anew after so many times, from another unknown state.  What curves miss
        then does not add up along the run, but slow changes count for less.
    sigma : float or array_like [q], optional
        Noise level of each column; weights are one over its standard deviation otherwise.
    ridge : float
        Adds ridge/2 |p|^2, in units that make each column of the linear problem of length one.
    equalities, inequalities : sequence of ({name: weight}, value)
        The weighted sum of linear parameters is the value, or at least the value.
    starts : int
        Starts of the nonlinear parameters: between their bounds, or within ``decades`` powers of
        ten of the start where they have none.  Delays without bounds lie between a tenth of the
        time between measurements and the length of the run.
    decades, seed
        As said.
    gradient_tolerance, max_iterations
        As for ``minimize``; the former relative to half the number of measurements, which is the
        value without a model.
    comm : MPI.Intracomm, optional
        Ranks that share the starts.

    Returns
    -------
    Bilevel

    Raises
    ------
    InputError
        A model that is not linear in what was declared so; an unknown that was not measured; too
        few samples; constraints that contradict each other; a linear problem of deficient rank,
        with the combination that the data do not determine.
    SolveError
        No start leads anywhere: delays that are not positive, for instance.

    Source
    ------
    Golub, Pereyra, Inverse Problems 19, 2003; Kaufman, BIT 15, 1975 (variable projection).

    Examples
    --------
    >>> import daeosens as ds
    >>> model = ds.trace(lambda t, u, p: -p.v * u / (p.K + u), size=1, parameters=["v", "K"])
    >>> t = np.linspace(0.0, 4.0, 21)
    >>> run = ds.solve(model, [2.0], [1.3, 0.7], ds.Stepping((0.0, 4.0), "rk4", dt=0.1), t_eval=t)
    >>> data = {"time": run.times[::2], "u": run.u[::2, 0]}
    >>> start = {"v": Parameter(1.0), "K": Parameter(10.0, scale="log")}
    >>> result = bilevel(model, data, start)
    >>> result.linear, round(result.estimate["v"], 3), round(result.estimate["K"], 3)
    (('v',), 1.3, 0.7)
    """
    if not isinstance(parameters, Parameters):
        parameters = Parameters(parameters, None)
    if comm is not None:
        admit_comm(comm)
    starts = whole_number(starts, "starts", least=1, most=MOST_STARTS)
    seed = whole_number(seed, "seed")
    decades = real_number(decades, "decades", least=0.0)
    tolerance = real_number(gradient_tolerance, "gradient_tolerance", least=0.0)
    formulation = Formulation(
        linear, interpolant, nodes, block, sigma, ridge, equalities, inequalities
    )
    functional, unused = bilevel_functional(
        model, _listed(data, times), parameters, formulation, columns=columns, observe=observe
    )
    attempts: Multistart | None = None
    x = np.zeros(0)
    if functional.others:
        settings = _settings(functional, tolerance, max_iterations)
        settings["comm"] = MPI.COMM_SELF if comm is None else comm
        points = spread_starts(functional, starts, decades, seed)
        attempts = multistart(lambda _comm: functional, points, **settings)
        attempts = _brought_back(functional, attempts, decades, settings)
        x = _best_determined(functional, attempts)
    return _result(functional, x, parameters, unused, attempts)


def _brought_back(
    functional: BilevelFunctional, attempts: Multistart, decades: float, settings: dict[str, Any]
) -> Multistart:
    """Return the attempts, with those that ran away minimised again under a pull to the start.

    They rank by what they come to with the pull, which is no less than without.
    """
    away = [
        attempt
        for attempt in attempts.attempts
        if np.isfinite(attempt.value) and ran_away(functional, attempt.x, decades)
    ]
    if not away:
        return attempts
    lowest = min(away, key=lambda attempt: attempt.value)
    held = pulled(functional, lowest.x, decades)
    again = multistart(lambda _comm: held, [attempt.start for attempt in away], **settings)
    back = {
        attempt.index: replace(result, index=attempt.index)
        for attempt, result in zip(away, again.attempts, strict=True)
    }
    return replace(
        attempts,
        attempts=tuple(back.get(attempt.index, attempt) for attempt in attempts.attempts),
        interrupted=attempts.interrupted or again.interrupted,
    )


def _settings(
    functional: BilevelFunctional, gradient_tolerance: float, max_iterations: int
) -> dict[str, Any]:
    """Return arguments of ``minimize``.

    Steps are at most two units long, of logarithms a factor of seven: longer ones end where a
    parameter is so large, or small, that nothing depends on it any more.
    """
    longest = 2.0 * float(np.max(gather(functional.typical()[0]), initial=0.0))
    return {
        "method": "bntr",
        "hessian": "gauss_newton",
        "gradient_tolerance": gradient_tolerance * functional.typical()[1],
        "max_iterations": max_iterations,
        "options": {"tao_bnk_max_radius": max(longest, 1e-8)},
    }


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
    size = model.size
    if model.events:
        raise UnsupportedError(
            "bilevel for a model with events",
            expected="states that are smooth between measurements",
            remedy="the data between two events as an experiment of their own",
        )
    measured, table = tables(experiments, columns)
    whole, parts = controls(model, parameters, experiments)
    names: tuple[str, ...] = model.parameter_names
    rhs = separate(model)
    # each experiment has parameters of its own names; which are free is asked of the entry that
    # stands for each
    free_here = [
        [name for name in names if whole.entries[part.entry_of(name)].free]
        if all(part.entry_of(name) in whole.entries for name in names)
        else _missing(names, part, whole)
        for part in parts
    ]
    free = [name for name in names if any(name in here for here in free_here)]
    if not free:
        raise InputError("no parameter is free", expected="at least one Parameter(free=True)")
    # a largest set in which f is linear, read from the traced graph
    solved = rhs.linear(free, formulation.linear)
    used = {name for name, read in zip(names, rhs.used, strict=True) if read}
    linear_entries: dict[str, Parameter] = {}
    others: dict[str, Parameter] = {}
    unused: dict[str, None] = {}
    for part, here in zip(parts, free_here, strict=True):
        for name in here:
            entry = part.entry_of(name)
            if name not in used:
                unused[entry] = None
            elif name in solved:
                linear_entries[entry] = whole.entries[entry]
            else:
                others[entry] = whole.entries[entry]
    places = [{entry: k for k, entry in enumerate(entries)} for entries in (linear_entries, others)]
    sigma = formulation.sigma
    if sigma is not None:
        levels = finite_array(sigma, "sigma")
        if levels.shape not in ((), (len(table.names),)):
            raise InputError(
                f"sigma has shape {levels.shape}", expected=f"a number, or [{len(table.names)}]"
            )
        sigma = np.broadcast_to(levels, (len(table.names),))
    rows: list[ExperimentRows] = []
    for k, (part, here, measurements, experiment) in enumerate(
        zip(parts, free_here, measured, experiments, strict=True)
    ):
        label = f"experiments[{k}]{f' ({experiment.name})' if experiment.name else ''}: "
        samples = samples_of(
            measurements,
            paired_unknowns(model, observe, measurements.names),
            size,
            formulation.interpolant,
            formulation.nodes,
            sigma,
            formulation.block,
            None if experiment.stepping is None else experiment.stepping.t_span[0],
            label if len(parts) > 1 else "",
        )
        of_linear = [i for i, name in enumerate(names) if name in here and name in solved]
        of_others = [
            i
            for i, name in enumerate(names)
            if name in here and name in used and name not in solved
        ]
        # from the experiment's own parameters to those of all experiments
        at = [
            [place[part.entry_of(names[i])] for i in chosen]
            for place, chosen in zip(places, (of_linear, of_others), strict=True)
        ]
        rows.append(
            ExperimentRows(
                samples,
                rhs.at_points(of_linear, of_others, len(samples.nodes)),
                np.array([whole.entries[part.entry_of(name)].value for name in names], dtype=float),
                np.array(at[0], dtype=np.intp),
                np.array(at[1], dtype=np.intp),
                model.delays,
            )
        )
    states = sum(experiment.samples.constants.shape[1] for experiment in rows)
    # each unknown initial state takes one measurement away
    count = sum(experiment.samples.target.size for experiment in rows) - states
    unknown = len(linear_entries) + len(others)
    needed = unknown - len(formulation.equalities)
    if count < needed:
        raise InputError(
            f"{count + states} measurements for {unknown} parameters and the initial state of "
            f"{len(rows)} experiment{'s' * (len(rows) > 1)}",
            expected=f"at least {needed + states}",
            remedy="more samples, or Parameter(..., free=False)",
        )
    others |= {
        name: _told_by(rows, others[name]) for name in _named_delays(model) if name in others
    }
    # what has logarithms is not negative: the inner problem knows linear bounds only
    lower = [max(e.lower, 0.0) if e.scale == "log" else e.lower for e in linear_entries.values()]
    constraints = linear_constraints(
        list(linear_entries),
        lower,
        [entry.upper for entry in linear_entries.values()],
        formulation.equalities,
        formulation.inequalities,
    )
    functional = BilevelFunctional(
        tuple(rows), linear_entries, others, constraints, formulation.ridge
    )
    return functional, tuple(unused)


def _named_delays(model: Problem) -> list[str]:
    """Return those parameters that are delays themselves."""
    called = () if model.delays is None else model.delays.names
    return [name for name in model.parameter_names if f'"{name}"' in called]


def _told_by(rows: Sequence[ExperimentRows], delay: Parameter) -> Parameter:
    """Return a delay within what data can tell of it, where it has no bounds.

    One that is as long as the run sees nothing but history; one that is a small part of the time
    between measurements sees the present.  Minima out there are at infinity.
    """
    samples = [experiment.samples for experiment in rows]
    longest = max(float(series.breaks[-1]) - series.first for series in samples)
    shortest = min(float(np.median(np.diff(series.breaks))) for series in samples)
    lower = delay.lower if delay.lower > 0.0 else 0.1 * shortest
    upper = delay.upper if np.isfinite(delay.upper) else longest
    if not lower <= delay.value <= upper:
        lower, upper = delay.lower, delay.upper  # the start knows better
    return replace(delay, lower=lower, upper=upper)


def _listed(data: Any, times: str | npt.ArrayLike | None) -> list[Experiment]:
    entries: list[Any] = [*data] if isinstance(data, (list, tuple)) else [data]
    if any(isinstance(experiment, Experiment) for experiment in entries):
        for k, experiment in enumerate(entries):
            if not isinstance(experiment, Experiment):
                raise InputError(
                    f"experiments[{k}] is {type(experiment).__name__}", expected="an Experiment"
                )
            if experiment.doses is not None:
                raise UnsupportedError(
                    f"experiments[{k}] has doses",
                    expected="states that are smooth between measurements",
                    remedy="the data between two doses as an experiment of their own",
                )
        return entries
    return [Experiment(data, times=times)]


def _missing(names: Sequence[str], part: Parameters, whole: Parameters) -> list[str]:
    missing = [name for name in names if part.entry_of(name) not in whole.entries]
    raise InputError(
        f'parameter "{missing[0]}" has no value',
        expected="an entry for each parameter of the model",
        remedy=f'{{"{missing[0]}": Parameter(1.0)}}, or a number if it is known',
    )


def _best_determined(functional: BilevelFunctional, attempts: Multistart) -> Array:
    """Return the best x whose inner problem has a unique solution, or else the best."""
    # an estimate with a parameter that the data do not determine is no better for its value
    for attempt in attempts.ranked:
        finite = np.isfinite(attempt.value)
        if finite and not functional.at(attempt.x).inner.unidentified.size:
            return attempt.x
    return attempts.best.x


def _result(
    functional: BilevelFunctional,
    x: Array,
    parameters: Parameters,
    unused: tuple[str, ...],
    attempts: Multistart | None,
) -> Bilevel:
    """Sum up, and refuse an inner problem of deficient rank."""
    at = functional.at(x)
    linear, others = tuple(functional.linear), tuple(functional.others)
    lost = at.inner.unidentified
    words = tuple(combination(lost[:, k], linear) for k in range(lost.shape[1]))
    if words and functional.ridge == 0.0:
        raise InputError(
            f"the data do not determine {' nor '.join(words)} "
            "(linear parameters, each in units of the length of its column)",
            expected="columns of the linear problem that are independent",
            remedy="one of them fixed, an equality between them, other experiments, or ridge=1e-6",
        )
    estimate = {name: float(entry.value) for name, entry in parameters.entries.items()}
    estimate |= dict(zip(linear, at.inner.p.tolist(), strict=True))
    estimate |= dict(zip(others, functional.unscaled(x).tolist(), strict=True))
    labels = functional.constraints.labels[len(functional.constraints.equal) :]
    return Bilevel(
        estimate,
        linear,
        others,
        unused,
        functional.value(functional.vector(x)),
        functional,
        x,
        attempts,
        tuple(labels[k] for k in at.inner.active),
        tuple(labels[k] for k in at.inner.degenerate),
        words,
    )
