"""Measurements taken at events, as a sum of squares: times of impacts, states at switches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from daeosens.costs.cost import At, Cost
from daeosens.costs.objective import Addable, require_event
from daeosens.costs.observation import lower_observe
from daeosens.costs.sum_of_squares import ArrayResidual, SumOfSquares, TimeResidual
from daeosens.errors import (
    InputError,
    UnsupportedError,
    is_iterable,
    is_one_of,
    is_whole,
    refuse_uncallable,
    require,
)
from daeosens.petsc.vectors import MOST, Array, finite_array
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.automatic_hessian import in_time
from daeosens.problem.branches import Branches
from daeosens.problem.callback_guard import guarded
from daeosens.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class EventData(Addable):
    """1/2 sum_k | (observe(t_k, u_k, p) - data_k) / sigma |^2 over events k of one name.

    t_k is the time of the event and u_k the state there; both move with state and parameters, and
    are differentiated.  A run in which one of the events does not happen is a ``SolveError``, which
    optimisers survive like any other failed run.

    Parameters
    ----------
    event : str
        Its name.
    data : array_like [K] or [K, q]
        Measurements at the first K events of that name, or at those of ``numbers``: their times
        [time unit], or what ``observe`` gives.  [K] is taken as [K, 1].
    sigma : float or array_like [q] or [K, q]
        Noise level, in the data's unit.
    observe : callable, optional
        NumPy style ``(t, u, p) -> array [q]``, say of the speed; the time where it is missing.
    numbers : sequence of int [K], optional
        Which events were measured, where some were missed: 0 is the first, -1 the last of the run.
    side : "before" or "after"
        Which state: that before the reset or the one after it.
    observe_t, observe_u, observe_p : callable, optional
        Derivatives [q], [q, n], [q, m] of ``observe``; automatic where missing.

    Raises
    ------
    InputError
        Shapes that do not match (both named), NaN in data, sigma <= 0, another side, times that
        decrease while the numbers of the events increase.

    Examples
    --------
    >>> impacts = EventData("bounce", [0.553, 1.459, 2.202], sigma=0.005)
    >>> speeds = EventData("bounce", [[-5.4], [-4.4], [-3.6]], 0.05, lambda t, u, p: u[[1]])
    >>> len((impacts + speeds).terms)
    2
    """

    event: str
    data: Any
    sigma: npt.ArrayLike = 1.0
    observe: Callable[..., Any] | None = None
    numbers: Sequence[int] | None = None
    side: Literal["before", "after"] = "before"
    observe_t: Callable[..., Any] | None = None
    observe_u: Callable[..., Any] | None = None
    observe_p: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        require(self.event, str, "event", 'EventData("name of the event", times)')
        if not is_one_of(self.side, "before", "after"):
            raise InputError(f"side = {self.side!r}", expected='"before" or "after"')
        refuse_uncallable(
            observe=self.observe,
            observe_t=self.observe_t,
            observe_u=self.observe_u,
            observe_p=self.observe_p,
        )
        data = finite_array(self.data, "data")
        data = data[:, None] if data.ndim == 1 else data
        if data.ndim != 2 or data.size == 0:
            raise InputError(f"data has shape {data.shape}", expected="shape (K, q)")
        if self.observe is None and data.shape[1] != 1:
            raise InputError(
                f"times of events with {data.shape[1]} columns",
                expected="one time for each event",
                remedy="observe=callback for data of the state",
            )
        sigma = finite_array(self.sigma, "sigma")
        if (sigma <= 0).any():
            raise InputError(f"sigma = {sigma.min():g}", expected="sigma > 0")
        # Data [K] have become [K, 1]; so do noise levels, one an event.
        sigma = sigma[:, None] if sigma.shape == (len(data),) and data.shape[1] == 1 else sigma
        try:
            object.__setattr__(self, "sigma", np.broadcast_to(sigma, data.shape))
        except ValueError as error:
            raise InputError(
                f"sigma has shape {sigma.shape}",
                expected=f"a number, or shape {data.shape[1:]} or {data.shape}",
            ) from error
        crossings = range(len(data)) if self.numbers is None else self.numbers
        listed: Any = list(crossings) if is_iterable(crossings) else []
        sound = all(is_whole(k) and abs(int(k)) <= MOST for k in listed)
        numbers = np.array(listed if sound else [], dtype=np.int64)
        if len(listed) != len(data) or not sound:
            raise InputError(
                f"numbers = {crossings!r}",
                expected=f"{len(data)} integers, one for each row of data",
            )
        if self.observe is None:
            _check_order(self.event, data[:, 0], numbers)
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "numbers", tuple(numbers.tolist()))

    @property
    def times(self) -> tuple[float, ...]:
        """None: the events decide."""
        return ()

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return one scalar for each event."""
        require_event(problem, self.event)
        residuals = self._residuals(problem)
        branches = None if self.observe is None else Branches(self.observe)
        after = self.side == "after"
        assert self.numbers is not None
        return Cost(
            points=tuple(
                (
                    # The time of the event moves with u0 and p: the residual is given twice, the
                    # second time to be differentiated in t.
                    At(self.event, number, after),
                    1.0,
                    SumOfSquares(residual, problem.comm, residual, branches),
                )
                for number, residual in zip(self.numbers, residuals, strict=True)
            )
        )

    def _residuals(self, problem: Problem) -> list[Any]:
        sigma: Any = self.sigma
        rows = zip(self.data, sigma, strict=True)
        if self.observe is None:
            return [TimeResidual(float(row[0]), float(s[0]), problem.comm) for row, s in rows]
        if problem.comm.size > 1 or problem.style == "petsc":
            raise UnsupportedError(
                "states observed at events of a PETSc-style problem",
                expected="times of events (observe=None)",
                remedy="AtEvent(value, ...), a cost of any form",
            )
        size = self.data.shape[1]
        observation = lower_observe(problem, self.observe, self.observe_u, self.observe_p, size)
        # Argument 0 of observe is the time.
        step = AutomaticJacobian(observation[0], 0, "observe", "observe_t=callback")

        def along_t(t: float, u: Array, p: Any) -> Array:
            return step(t, u, p)[:, 0]

        sizes = (problem.size, problem.n_parameters)
        first = {0: self.observe_t, 1: self.observe_u, 2: self.observe_p}
        call = guarded(self.observe, "observe", problem.comm)
        timed = (self.observe_t or along_t, in_time(call, first, "observe", "Gauss-Newton"))
        return [ArrayResidual(*sizes, *observation, row, s, *timed) for row, s in rows]


def _check_order(event: str, times: Array, numbers: npt.NDArray[np.integer[Any]]) -> None:
    """Refuse times that decrease; numbers from the end are compared among themselves."""
    # Whether number 2 comes before number -1 is not known before the run.
    for chosen in (numbers >= 0, numbers < 0):
        rows = np.flatnonzero(chosen)
        rows = rows[np.argsort(numbers[rows], kind="stable")]
        for before, after in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True):
            if numbers[before] < numbers[after] and times[before] > times[after]:
                raise InputError(
                    f'times of event "{event}" decrease: data[{before}] = '
                    f"{times[before]:.16g} for number {numbers[before]}, data[{after}] = "
                    f"{times[after]:.16g} for number {numbers[after]}",
                    expected="later times for later events of one name",
                    remedy="sorted times, or numbers=... where some were missed",
                )
