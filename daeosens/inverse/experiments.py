"""Experiments: measurements, and the run in which they were taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.arrays import keep_unshared
from daeosens.errors import InputError, nearest, require
from daeosens.inverse.measurements import Measurements, measurements
from daeosens.parameters import Parameters
from daeosens.stepping import Stepping


@dataclass(frozen=True, eq=False)
class Experiment:
    """Measurements, and the run in which they were taken: one of several in a ``fit``.

    Parameters
    ----------
    data : Table, mapping, path of a CSV file, or array_like [K, q]
        As for ``fit``; the same columns in every experiment.
    stepping : Stepping
        Time span, method and step sizes.
    initial_state : array [n] or callable, optional
        As for ``Parameters``; theirs by default.
    fixed : mapping of str to float, optional
        Values of parameters that are not fitted, in place of those of ``Parameters``: a feed, a
        temperature.
    times : str or array_like [K], optional
        As for ``fit``.

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
    >>> found = fit(tank, experiments, unknown)
    >>> print(found.estimate["rate"].__round__(3), found.covariance.error("rate").__round__(3))
    0.501 0.012
    """

    data: Any
    stepping: Stepping
    initial_state: Any = None
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    times: str | npt.ArrayLike | None = None

    def __post_init__(self) -> None:
        require(self.stepping, Stepping, "stepping", 'Stepping((0.0, 1.0), "rk6vr", rtol=1e-6)')
        require(self.fixed, Mapping, "fixed", '{"feed": 0.3}')
        keep_unshared(self, "initial_state")

    def control(self, parameters: Parameters, k: int) -> Parameters:
        """Return the parameters of this experiment, the k-th.

        Raises
        ------
        InputError
            A fixed value of a parameter that is free, or no number.
        """
        state = parameters.initial_state if self.initial_state is None else self.initial_state
        own = Parameters(self.fixed, state).entries
        for name, entry in own.items():
            if entry.free or name in parameters.free_names:
                raise InputError(
                    f'experiments[{k}]: fixed["{name}"] of a parameter that is fitted',
                    expected="a number for one that is not",
                    remedy="a parameter of its own, which the other experiments do not use",
                )
            if name not in parameters.entries:
                raise InputError(
                    f'experiments[{k}]: fixed["{name}"] is not in Parameters',
                    expected=", ".join(parameters.entries),
                    remedy=nearest(name, [*parameters.entries])
                    or f'Parameters({{..., "{name}": {entry.value!r}}})',
                )
        changes: dict[str, Any] = {"values": {**parameters.entries, **own}}
        if self.initial_state is not None:
            changes |= {"initial_state_p": None, "initial_state_hessian": None}
        return replace(parameters, initial_state=state, **changes)


def listed_experiments(
    data: Any, stepping: Any, times: str | npt.ArrayLike | None
) -> list[Experiment]:
    """Return the experiments of a ``fit``: those given, or the only one.

    Raises
    ------
    InputError
        No stepping for the only one, or one for several; other things among them.
    """
    given: list[Any] = [*data] if isinstance(data, (list, tuple)) else [data]
    if not any(isinstance(each, Experiment) for each in given):
        return [Experiment(data, stepping, times=times)]
    for k, each in enumerate(given):
        require(each, Experiment, f"experiments[{k}]", "Experiment(data, stepping)")
    if stepping is not None or times is not None:
        raise InputError(
            f"{'stepping' if times is None else 'times'}= beside experiments",
            expected="one in each experiment",
            remedy="Experiment(data, stepping, times=...)",
        )
    return given


def tables(
    experiments: Sequence[Experiment], columns: Sequence[str] | None
) -> tuple[list[Measurements], Measurements]:
    """Return the measurements of each experiment, and all of them, one after another.

    Raises
    ------
    InputError
        Data that are no measurements, with the number of the experiment; columns that differ.
    """
    each: list[Measurements] = []
    for k, one in enumerate(experiments):
        try:
            each.append(measurements(one.data, one.times, columns))
        except InputError as error:
            if len(experiments) == 1:
                raise
            raise type(error)(f"experiments[{k}]: {error}") from error
    for k, table in enumerate(each):
        if table.names != each[0].names:
            raise InputError(
                f"experiments[{k}] has the columns {', '.join(table.names)}",
                expected=f"{', '.join(each[0].names)}, as experiments[0]",
                remedy="columns=[...], the same in each; or Joint, with an observe= for each",
            )
    if len(each) == 1:
        return each, each[0]
    times, values = (
        np.concatenate([getattr(table, name) for table in each]) for name in ("times", "values")
    )
    return each, Measurements(times, values, each[0].names)
