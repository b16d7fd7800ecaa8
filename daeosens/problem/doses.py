"""Dose tables: what is given to a system, when, how much, how long and where."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from daeosens.errors import (
    InputError,
    UnsupportedError,
    is_iterable,
    is_real,
    nearest,
    real_number,
    require,
    suggestion,
    together,
)
from daeosens.io.tables import columns_by_name, read_table
from daeosens.problem.dose_input import (
    Amount,
    Infusion,
    Input,
    with_infusions_of_delays,
    with_input,
)
from daeosens.problem.event import Event
from daeosens.problem.modes import add_events, hybrid
from daeosens.problem.problem import Problem

NOTHING = "no infusion"
"""The mode in which nothing is infused."""

COLUMNS = ("time", "amount", "duration", "compartment")


@dataclass(frozen=True)
class Dose:
    """One row of a dose table.

    Attributes
    ----------
    time, duration : float
        Duration 0 is a bolus, a jump of the state.
    amount : float or str
        A number, or the parameter of this name.
    compartment : str or int
        The unknown that it comes to; -1 where the table does not say.
    """

    time: float
    amount: float | str
    duration: float = 0.0
    compartment: str | int = -1


@dataclass(frozen=True, eq=False)
class Doses:
    """A dose table, with bioavailability and lag.

    Parameters
    ----------
    table : mapping, Table, data frame, path of a CSV file, or array_like [K, 2 ... 4]
        Columns ``time``, ``amount`` (numbers, or names of parameters), ``duration`` (0 or missing:
        a bolus, at once; else an infusion at the constant rate amount / duration) and
        ``compartment`` (names or numbers of unknowns; may be missing where there is one only); an
        array has them in this order.
    bioavailability : float, str or mapping, optional
        The fraction of each amount that arrives, a number or a parameter; by compartment where it
        is a mapping, and 1 in the others.
    lag : float, str or mapping, optional
        How much later than in the table doses begin; likewise, 0 by default.

    Raises
    ------
    InputError
        Columns that are missing or unknown, times or durations that are no numbers, negative
        durations or amounts.

    Examples
    --------
    >>> Doses({"time": [0.0, 12.0], "amount": [100.0, "second"]}, lag="delay").rows[1]
    Dose(time=12.0, amount='second', duration=0.0, compartment=-1)
    """

    table: Any
    bioavailability: float | str | Mapping[str | int, float | str] = 1.0
    lag: float | str | Mapping[str | int, float | str] = 0.0

    rows: tuple[Dose, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", _rows(self.table))


def admit_doses(doses: Any) -> Doses:
    """Return a dose table as ``Doses``."""
    return doses if isinstance(doses, Doses) else Doses(doses)


def with_doses(problem: Problem, doses: Any) -> Problem:
    """Return a problem to which doses are given.

    A bolus is an event, a jump of the state at its time.  Infusions make the equations change at
    events: there is a mode for each rate at which something is infused, in which the rate is added
    to the right-hand side (that of M u' = f); of a delay equation they are terms that jump at
    breakpoints.  Derivatives in amounts, bioavailability and lag are
    exact.  The state at the time of a dose is the one before or the one after it: ``side=`` of
    ``LeastSquares``, ``fit`` and ``Trajectory.at``.

    Parameters
    ----------
    problem : Problem
        NumPy style, M u' = f(t, u, p).
    doses : Doses, or a table as for it
        Doses behind the end of a run never happen; before its start they are an error.

    Returns
    -------
    Problem

    Raises
    ------
    InputError
        Compartments or parameters that there are not; amounts of no known compartment.
    UnsupportedError
        PETSc-style callbacks; infusions of a problem with modes, or in the form F(t, u, u', p) = 0;
        infusions with lags that differ, or of a delay equation with a lag that is a parameter.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> blood = ODE(lambda t, u, p: -p[0] * u, ["drug"], ["rate", "F"])
    >>> table = {"time": [0.0, 6.0], "amount": [10.0, 8.0], "duration": [0.0, 2.0]}
    >>> treated = with_doses(blood, Doses(table, bioavailability="F"))
    >>> run = solve(treated, [0.0], [0.3, 0.5], Stepping((0.0, 12.0), "rk6vr", rtol=1e-8))
    >>> [(crossing.name, float(crossing.t)) for crossing in run.crossings]
    [('dose 0', 0.0), ('dose 1', 6.0), ('dose 1 ends', 8.0)]
    """
    require(problem, Problem, "problem", "ODE(f, size, parameters)")
    admitted = admit_doses(doses)
    if problem.style != "numpy" or problem.field_parameter:
        raise UnsupportedError(
            "doses for PETSc-style callbacks",
            expected="a NumPy-style problem, ODE(..., size=n)",
            remedy="Event(time, reset=...)",
        )
    schedule = _schedule(problem, admitted)
    infused = any(moment.starts or moment.ends for moment in schedule)
    if not infused:
        events = [moment.event(problem) for moment in schedule]
        return add_events(problem, events)
    _check_infusions(problem, schedule)
    if problem.delays is not None:
        events = [moment.event(problem) for moment in schedule]
        return with_infusions_of_delays(add_events(problem, events), _infusions(schedule))
    return _with_infusions(problem, schedule)


@dataclass(frozen=True)
class _Moment:
    """What begins or ends at one time: boluses, infusions by number."""

    time: float
    lag: str | None
    boluses: tuple[tuple[int, Amount], ...]
    starts: tuple[tuple[int, int, Amount], ...]
    """Row, unknown, rate."""
    ends: tuple[int, ...]
    name: str

    def event(self, problem: Problem, mode: str | None = None) -> Event:
        reset: dict[str, Any] = {}
        if self.boluses:
            reset = Input(problem.size, problem.n_parameters, self.boluses).reset()
        when: Any = self.time if self.lag is None else (self.time, self.lag)
        return Event(when, **reset, mode=mode, name=self.name, late="ignore")


def _with_infusions(problem: Problem, schedule: Sequence[_Moment]) -> Problem:
    """Return the problem with a mode for each set of infusions that there is at a time."""
    n, m = problem.size, problem.n_parameters
    # an event of the problem belongs to all modes: it stays with the whole
    modes: dict[str, Problem] = {NOTHING: replace(problem, events=())}
    names: dict[Any, str] = {frozenset(): NOTHING}
    # infusions under way by row of the table; which of them run decides the mode
    running: dict[int, tuple[int, Amount]] = {}
    events: list[Event] = []
    for moment in schedule:
        if not (moment.starts or moment.ends):
            events.append(moment.event(problem))
            continue
        for row in moment.ends:
            del running[row]
        for row, k, rate in moment.starts:
            running[row] = (k, rate)
        # equal rates share equations, whichever doses they come from
        key = frozenset(_counted(running.values()))
        if key not in names:
            names[key] = f"infusion {len(names)}"
            modes[names[key]] = with_input(problem, Input(n, m, list(running.values())))
        events.append(moment.event(problem, names[key]))
    return hybrid(modes, NOTHING, [*problem.events, *events])


def _infusions(schedule: Sequence[_Moment]) -> list[Infusion]:
    """Return the infusions of a schedule."""
    ends = {row: moment.time for moment in schedule for row in moment.ends}
    return [
        Infusion(moment.time, ends[row], k, rate)
        for moment in schedule
        for row, k, rate in moment.starts
    ]


def _counted(parts: Any) -> list[tuple[Any, int]]:
    parts = list(parts)
    return [(part, parts.count(part)) for part in set(parts)]


def _check_infusions(problem: Problem, schedule: Sequence[_Moment]) -> None:
    if problem.monitor is not None:
        raise UnsupportedError(
            "infusions into a DAEO: y, which the state carries along, would not follow them",
            expected="boluses, or rates in f",
            remedy="the rate in f, with an event at its start and end that changes a parameter",
        )
    lags = {moment.lag for moment in schedule if moment.starts or moment.ends}
    if problem.delays is not None and lags != {None}:
        raise UnsupportedError(
            "infusions into a delay equation with a lag that is a parameter",
            expected="lags that are numbers, or boluses",
            remedy="an unknown more of rate 0 that f adds: Event(time, reset=...) adds "
            "amount / duration to it, and another one takes that off",
        )
    if problem.modes:
        raise UnsupportedError(
            "infusions into a problem with modes",
            expected="one set of equations",
            remedy="the rate in the equations of each mode, with breakpoints=",
        )
    if problem.form == "residual":
        raise UnsupportedError(
            "infusions into F(t, u, u', p) = 0: there is no right-hand side to add a rate to",
            expected="ODE(f, ..., mass=M)",
            remedy="the rate in the equations, with breakpoints=",
        )
    if len(lags) > 1:
        raise UnsupportedError(
            f"infusions with the lags {', '.join(sorted(str(lag or 0) for lag in lags))}",
            expected="one lag for all infusions, of whatever compartments",
        )


def _schedule(problem: Problem, doses: Doses) -> list[_Moment]:
    """Return what happens, in order; what happens at one time is one event."""
    names = problem.parameter_names
    parts: dict[tuple[float, str], dict[str, list[Any]]] = {}

    def at(time: float, lag: str | None) -> dict[str, list[Any]]:
        empty: dict[str, list[Any]] = {"boluses": [], "starts": [], "ends": [], "name": []}
        return parts.setdefault((time, lag or ""), empty)

    for number, dose in enumerate(doses.rows):
        where = f"doses: row {number}"
        k = _compartment(problem, dose, where)
        fraction = _of(doses.bioavailability, problem, k, 1.0, "bioavailability")
        lag = _of(doses.lag, problem, k, 0.0, "lag")
        time, delay = (dose.time, lag) if isinstance(lag, str) else (dose.time + lag, None)
        amount = _product(names, (dose.amount, fraction), where)
        if delay is not None and delay not in names:
            raise _unknown(delay, names, "lag")
        # lags that are numbers are in the time already; those that are parameters stay with the
        # event, whose time then has a derivative
        moment = at(time, delay)
        moment["name"].append(f"dose {number}")
        if dose.duration == 0.0:
            moment["boluses"].append((k, amount))
            continue
        # an infusion gives its amount at a constant rate
        rate = Amount(amount.scale / dose.duration, amount.factors)
        moment["starts"].append((number, k, rate))
        end = at(time + dose.duration, delay)
        end["ends"].append(number)
        end["name"].append(f"dose {number} ends")
    return [
        _Moment(
            time,
            lag or None,
            tuple(what["boluses"]),
            tuple(what["starts"]),
            tuple(what["ends"]),
            ", ".join(what["name"]),
        )
        for (time, lag), what in sorted(parts.items())
    ]


def _of(amount: Any, problem: Problem, k: int, otherwise: float, what: str) -> float | str:
    """Return what a compartment has of a bioavailability or a lag."""
    value: Any = amount
    if isinstance(amount, Mapping):
        # an unknown may be given by its name or number: as numbers they are compared
        by_number = {
            problem.state_indices(key)[0]: number
            for key, number in cast("Mapping[Any, Any]", amount).items()
        }
        value = by_number.get(k, otherwise)
    if not (isinstance(value, str) or is_real(value)):
        raise InputError(f"{what} = {value!r}", expected="a number or the name of a parameter")
    if isinstance(value, str):
        return value
    return real_number(value, what, least=0.0)


def _compartment(problem: Problem, dose: Dose, where: str) -> int:
    if dose.compartment == -1:
        if problem.size == 1:
            return 0
        raise InputError(
            f"{where} names no compartment of {problem.size}",
            expected='a column "compartment"',
            remedy=", ".join(problem.state_names) or f"a number from 0 to {problem.size - 1}",
        )
    try:
        return problem.state_indices(dose.compartment)[0]
    except InputError as error:
        raise InputError(f'{where}, column "compartment": {error}') from error


def _product(names: Sequence[str], factors: Sequence[float | str], where: str) -> Amount:
    scale, indices = 1.0, list[int]()
    for factor in factors:
        if not isinstance(factor, str):
            scale *= factor
        elif factor in names:
            indices.append(names.index(factor))
        else:
            raise _unknown(factor, names, where)
    return Amount(scale, tuple(indices))


def _unknown(name: str, names: Sequence[str], where: str) -> InputError:
    return InputError(
        f'{where} names the parameter "{name}"',
        expected=", ".join(names) or "a number: the problem has no parameters",
        remedy=nearest(name, names),
    )


# ---- tables --------------------------------------------------------------------------------------


def _rows(table: Any) -> tuple[Dose, ...]:
    """Return the rows of a table in any form."""
    source: Any = read_table(table) if isinstance(table, (str, Path)) else table
    named = columns_by_name(source)
    columns: dict[str, list[Any]]
    if named is not None:
        columns = {name: _listed(values, name) for name, values in named.items()}
    else:
        rows = _as_rows(source)
        longest = max(len(row) for row in rows)
        columns = {
            name: [row[j] if j < len(row) else None for row in rows]
            for j, name in enumerate(COLUMNS[:longest])
        }
    complaints = [f'there is no column "{name}"' for name in COLUMNS[:2] if name not in columns]
    complaints += [
        f'column "{name}" means nothing; expected: {", ".join(COLUMNS)}{suggestion(name, COLUMNS)}'
        for name in columns
        if name not in COLUMNS
    ]
    # a table by columns may have columns of its own lengths
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        complaints.append(f"columns of different lengths: {lengths}")
    if complaints:
        raise together(complaints, heading="doses")
    count = lengths["time"]
    if not count:
        raise InputError("doses: no rows", expected="at least one dose")
    filled = {name: columns.get(name, [None] * count) for name in COLUMNS}
    # all rows are read before any is complained of
    parsed = [_row(k, *values) for k, values in enumerate(zip(*filled.values(), strict=True))]
    wrong = [row for row in parsed if isinstance(row, str)]
    if wrong:
        raise together(wrong, heading="doses")
    return tuple(row for row in parsed if isinstance(row, Dose))


def _listed(values: Any, name: str) -> list[Any]:
    """Return the entries of a column."""
    flat = not isinstance(values, (str, Mapping)) and getattr(values, "ndim", 1) == 1
    if not (is_iterable(values) and flat):
        raise InputError(
            f'doses["{name}"] = {values!r}', expected="a column: one value for each dose"
        )
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _as_rows(source: Any) -> list[list[Any]]:
    rows: list[list[Any]] = []
    if isinstance(source, (list, tuple, np.ndarray)) and is_iterable(source):
        listed = cast("Sequence[Any]", source)
        kinds = (list, tuple, np.ndarray)
        rows = [list(row) for row in listed if isinstance(row, kinds) and is_iterable(row)]
        if len(rows) != len(listed):
            rows = []
    if not rows or not all(2 <= len(row) <= len(COLUMNS) for row in rows):
        raise InputError(
            f"doses is {type(source).__name__}",
            expected="columns by name, or rows of time, amount, duration, compartment",
            remedy='{"time": [0.0, 12.0], "amount": [100.0, 100.0]}',
        )
    return rows


def _row(k: int, time: Any, amount: Any, duration: Any, compartment: Any) -> Dose | str:
    """Return a dose, or what is wrong with it."""
    numbers: dict[str, float] = {}
    for name, value in (("time", time), ("duration", duration)):
        number = 0.0 if name == "duration" and _missing(value) else _number(value)
        if number is None or (name == "duration" and number < 0):
            wanted = "a finite number" if name == "time" else "a number >= 0"
            return f'row {k}, column "{name}": {value!r}; expected: {wanted}'
        numbers[name] = number
    quantity = amount if isinstance(amount, str) else _number(amount)
    if quantity is None or (not isinstance(quantity, str) and quantity < 0):
        return (
            f'row {k}, column "amount": {amount!r}; expected: a number >= 0, or the name of a '
            "parameter"
        )
    place: str | int = -1
    if not _missing(compartment):
        # a table of numbers has numbers of compartments as floats: 1.0 is the second unknown
        number = _number(compartment)
        if isinstance(compartment, str):
            place = compartment
        elif number is not None and number == int(number) >= 0:
            place = int(number)
        else:
            return (
                f'row {k}, column "compartment": {compartment!r}; expected: the name or number of '
                "an unknown"
            )
    return Dose(numbers["time"], quantity, numbers["duration"], place)


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or value == ""


def _number(value: Any) -> float | None:
    """Return a finite number; None if it is something else."""
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float, np.number)):
        return None
    return float(value) if math.isfinite(value) else None
