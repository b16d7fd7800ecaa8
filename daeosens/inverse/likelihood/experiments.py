"""Experiments: measurements, and the run in which they were taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError, UnsupportedError, is_one_of, require, suggestion, together
from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.inverse.likelihood.measurements import Measurements, measurements
from daeosens.petsc.vectors import keep_unshared
from daeosens.problem.doses import Doses, admit_doses, with_doses
from daeosens.problem.problem import Problem
from daeosens.timestepping.stepping import Stepping


@dataclass(frozen=True, eq=False)
class Experiment:
    """Measurements, and the run in which they were taken: one of several in a ``fit``.

    Parameters
    ----------
    data : Table, mapping, path of a CSV file, or array_like [K, q]
        As for ``fit``; the same columns in every experiment.
    stepping : Stepping, optional
        Time span, method and step sizes; that of ``fit`` by default.
    initial_state : array [n], mapping of str to float, or callable, optional
        As for ``Parameters``; theirs by default.
    parameters : mapping of str to Parameter or float, optional
        Parameters that have a value of their own in this experiment, in the place of that in
        ``Parameters``: a number that is known, as a feed or a temperature, or a ``Parameter`` that
        is fitted for this experiment alone, as the volume of a patient.
    times : str or array_like [K], optional
        As for ``fit``.
    doses : Doses or table, optional
        What is given to the system along this run, as for ``with_doses``.
    name : str, optional
        What it is called in tables and messages, and in the names of its own parameters, "V
        (patient 2)"; by default its number.  Experiments of one name share their own parameters.

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, fit
    >>> tank = ODE(lambda t, u, p: p[1] - p[0] * u, size=1, parameters=["rate", "feed"])
    >>> unknown = Parameters({"rate": Parameter(1.0, scale="log"), "feed": 0.0}, [1.0])
    >>> batch = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> fed = {"time": [1.0, 2.0], "mass": [0.25, 0.37]}
    >>> experiments = [
    ...     Experiment(batch, Stepping((0.0, 3.0), "rk4", dt=0.1)),
    ...     Experiment(fed, Stepping((0.0, 2.0), "rk4", dt=0.1), [0.0], {"feed": 0.3}),
    ... ]
    >>> fitted = fit(tank, experiments, unknown)
    >>> print(fitted.estimate["rate"].__round__(3), fitted.covariance.error("rate").__round__(3))
    0.501 0.012
    """

    data: Any
    stepping: Any = None
    initial_state: Any = None
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    times: str | npt.ArrayLike | None = None
    name: str = ""
    doses: Any = None

    def __post_init__(self) -> None:
        if self.stepping is not None:
            if self.doses is not None:
                object.__setattr__(self, "doses", _given_in_time(self.doses, self.stepping))
            require(self.stepping, Stepping, "stepping", 'Stepping((0.0, 1.0), "rk6vr", rtol=1e-6)')
        require(self.parameters, Mapping, "parameters", '{"feed": 0.3, "V": Parameter(20.0)}')
        require(self.name, str, "name", '"patient 2"')
        keep_unshared(self, "initial_state")

    def own(self, label: str) -> dict[str, tuple[str, Parameter]]:
        """Return its own parameters: the name of the entry, and the entry, of each."""
        entries = Parameters(self.parameters, None).entries
        return {name: (f"{name} ({label})", entry) for name, entry in entries.items()}


def _given_in_time(table: Any, stepping: Any) -> Doses:
    """Return a dose table; what was given before the start of the run is refused."""
    require(stepping, Stepping, "stepping", 'Stepping((0.0, 1.0), "rk6vr", rtol=1e-6)')
    doses = admit_doses(table)
    first = stepping.t_span[0]
    for k, dose in enumerate(doses.rows):
        if dose.time < first:
            raise InputError(
                f"doses: row {k} is given at {dose.time:g}, before the start of the run, {first:g}",
                expected="doses from the start on",
                remedy="an earlier start of t_span, or initial_state=",
            )
    return doses


def treatments(problem: Problem, experiments: Sequence[Experiment]) -> list[Problem]:
    """Return the problem of each experiment, with its doses.

    Raises
    ------
    InputError
        Compartments or parameters that there are not, with the number of the experiment.
    """
    treated: list[Problem] = []
    for k, experiment in enumerate(experiments):
        if experiment.doses is None:
            treated.append(problem)
            continue
        try:
            treated.append(with_doses(problem, experiment.doses))
        except (InputError, UnsupportedError) as error:
            if len(experiments) == 1:
                raise
            raise type(error)(f"{_called(k, experiment)}: {error}") from error
    return treated


def observed_side(
    side: Any, experiments: Sequence[Experiment]
) -> Literal["before", "after"] | None:
    """Return the side of events on which data were taken: that given, "before" beside doses."""
    if side is not None and not is_one_of(side, "before", "after"):
        raise InputError(f"side = {side!r}", expected='"before" or "after"')
    dosed = any(experiment.doses is not None for experiment in experiments)
    return "before" if side is None and dosed else side


def controls(
    known: Sequence[str], parameters: Parameters, experiments: Sequence[Experiment]
) -> tuple[Parameters, list[Parameters]]:
    """Return all parameters of several experiments, and those of each, of the same unknowns.

    ``known`` are the names of the problem's parameters.

    Raises
    ------
    InputError
        A parameter that the problem does not have; experiments of one name whose own parameters
        differ.
    """
    own = [member.own(member.name or str(k)) for k, member in enumerate(experiments)]
    complaints = [
        f'experiments[{k}]: parameters["{name}"] is not one of the problem\'s'
        f"{suggestion(name, known)}"
        for k, labels in enumerate(own)
        for name in labels
        if name not in known
    ]
    if complaints:
        raise together(complaints, heading="experiments")
    # A free parameter that every experiment has a value for would move nothing: it is left out of
    # x.
    everywhere = {name for name in known if all(name in labels for labels in own)}
    shared = {
        name: entry
        for name, entry in parameters.entries.items()
        if not (entry.free and name in everywhere)
    }
    # Free in one experiment is unknown in all: even where another gives a number, its entry needs
    # a name of its own beside the unknown ones.
    free = {name for labels in own for name, (_, entry) in labels.items() if entry.free}
    free |= {name for name, entry in shared.items() if entry.free}
    more: dict[str, Parameter] = {}
    for k, entries_here in enumerate(own):
        for name, (label, entry) in entries_here.items():
            # Entries of one label are one unknown: experiments of one name share it.
            if name in free and more.setdefault(label, entry) != entry:
                raise InputError(
                    f'experiments[{k}]: parameters["{name}"] = {entry}, but {more[label]} in '
                    f'another experiment of the name "{experiments[k].name}"',
                    expected="the same, since they share it",
                    remedy="another name=",
                )
    whole = replace(parameters, values={**shared, **more})
    parts: list[Parameters] = []
    for entries_here, experiment in zip(own, experiments, strict=True):
        # what no experiment fits needs no name of its own
        known_here = {name: entry for name, (_, entry) in entries_here.items() if name not in free}
        renamed = {name: label for name, (label, _) in entries_here.items() if name in free}
        # All unknowns in each, in the same order, so that x means the same in every experiment;
        # "own" says which of them stand for its parameters.
        changes: dict[str, Any] = {"values": {**shared, **known_here, **more}}
        if more:
            changes["own"] = renamed
        if experiment.initial_state is not None:
            changes |= {"initial_state": experiment.initial_state}
            # Derivatives of another initial state would be wrong.
            changes |= {"initial_state_p": None, "initial_state_hessian": None}
        parts.append(replace(parameters, **changes))
    return whole, parts


def listed_experiments(
    data: Any, stepping: Any, times: str | npt.ArrayLike | None, doses: Any = None
) -> list[Experiment]:
    """Return the experiments of a ``fit``: those given, or the only one.

    Raises
    ------
    InputError
        An experiment without stepping; a common one that none of them takes; other things among
        them.
    """
    listed: list[Any] = [*data] if isinstance(data, (list, tuple)) else [data]
    if not any(isinstance(entry, Experiment) for entry in listed):
        require(stepping, Stepping, "stepping", 'Stepping((0.0, 1.0), "rk6vr", rtol=1e-6)')
        return [Experiment(data, stepping, times=times, doses=doses)]
    for k, entry in enumerate(listed):
        require(entry, Experiment, f"experiments[{k}]", "Experiment(data, stepping)")
    own = [entry.stepping is not None for entry in listed]
    if stepping is None and not all(own):
        raise InputError(
            f"experiments[{own.index(False)}] has no stepping",
            expected="one in each experiment, or one for all",
            remedy="fit(problem, experiments, parameters, stepping)",
        )
    beside = {"stepping": stepping if all(own) else None, "times": times, "doses": doses}
    for name, value in beside.items():
        if value is not None:
            raise InputError(
                f"{name}= beside experiments",
                expected="one in each experiment",
                remedy="Experiment(data, stepping, times=..., doses=...)",
            )
    # again checked by the experiment, with its doses
    return [
        entry if has else replace(entry, stepping=stepping)
        for entry, has in zip(listed, own, strict=True)
    ]


def tables(
    experiments: Sequence[Experiment], columns: Sequence[str] | None
) -> tuple[list[Measurements], Measurements]:
    """Return the measurements of each experiment, and all of them, one after another.

    Raises
    ------
    InputError
        Data that are no measurements, with the number of the experiment; columns that differ.
    """
    measured: list[Measurements] = []
    for k, experiment in enumerate(experiments):
        try:
            measured.append(measurements(experiment.data, experiment.times, columns))
        except InputError as error:
            if len(experiments) == 1:
                raise
            raise type(error)(f"{_called(k, experiment)}: {error}") from error
    for k, table in enumerate(measured):
        if table.names != measured[0].names:
            raise InputError(
                f"{_called(k, experiments[k])} has the columns {', '.join(table.names)}",
                expected=f"{', '.join(measured[0].names)}, as experiments[0]",
                remedy="columns=[...], the same in each; or Joint, with an observe= for each",
            )
    if len(measured) == 1:
        return measured, measured[0]
    times, values = (
        np.concatenate([getattr(table, name) for table in measured]) for name in ("times", "values")
    )
    # Row numbers of the tables one after another.
    starts = np.cumsum([0, *(len(table.times) for table in measured)])
    order = np.concatenate(
        [first + table.order for first, table in zip(starts, measured, strict=False)]
    )
    clock = next((table.clock for table in measured if table.clock), "")
    return measured, Measurements(times, values, measured[0].names, order, clock)


def _called(k: int, experiment: Experiment) -> str:
    return f"experiments[{k}]" + (f" ({experiment.name})" if experiment.name else "")
