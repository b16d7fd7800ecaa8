"""Costs: terminal, running, misfit at observation times, prior; sums of them.

A cost is lowered to scalar functions of (t, u, p): some at fixed times, some integrated in time
with the quadrature of the method.  The sweeps know nothing else (docs/mathematics.md, section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.arrays import Array, check_output, finite_array, guarded
from daeosens.complex_hessian import HessianByComplexStep
from daeosens.cost import (
    INDEPENDENT,
    START,
    At,
    Cost,
    Derivatives,
    Instant,
    Keywords,
    Scalar,
    When,
    callback_of,
)
from daeosens.derivatives import ComplexStep
from daeosens.errors import InputError, UnsupportedError, nearest
from daeosens.misfits import (
    ArrayResidual,
    FieldPriorResidual,
    NumbersPriorResidual,
    SumOfSquares,
    VectorResidual,
)
from daeosens.problem import Problem

Observation: TypeAlias = tuple[
    Callable[..., Any],
    Callable[..., Any],
    Callable[..., Any] | None,
    HessianByComplexStep | None,
]
"""observe, observe_u, observe_p and second derivatives; None where they are zero."""


class Objective(Protocol):
    """What can be differentiated: anything that lowers itself to a ``Cost``."""

    @property
    def times(self) -> tuple[float, ...]:
        """Observation times [time unit] which the steps have to hit; the final time excepted."""
        ...

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return the cost on PETSc vectors, after checking shapes."""
        ...


def plus(self: Any, other: Any) -> Sum:
    """Return the sum of two objectives: their ``+``."""
    if not hasattr(other, "lower"):
        return NotImplemented
    return Sum(((1.0, self), (1.0, other)))


def _any_vec(rows: Sequence[Any]) -> bool:
    return any(isinstance(row, PETSc.Vec) for row in rows)


def multiple(self: Any, weight: float) -> Sum:
    """Return a multiple of an objective: its ``*``."""
    return Sum(((float(weight), self),))


@dataclass(frozen=True, eq=False)
class Sum:
    """A weighted sum of objectives; written ``2.0 * first + second``."""

    terms: tuple[tuple[float, Objective], ...]

    @property
    def times(self) -> tuple[float, ...]:
        """Observation times of all terms, sorted."""
        return tuple(sorted({time for _, term in self.terms for time in term.times}))

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Collect the lowered terms."""
        points: list[tuple[When, float, Scalar]] = []
        densities: list[tuple[float, Scalar]] = []
        for weight, term in self.terms:
            cost = term.lower(problem, final_time)
            points += [(time, weight * factor, scalar) for time, factor, scalar in cost.points]
            densities += [(weight * factor, scalar) for factor, scalar in cost.densities]
        return Cost(tuple(points), tuple(densities))

    __add__ = plus
    __mul__ = __rmul__ = multiple


@dataclass(frozen=True, eq=False)
class Terminal:
    """psi(T, u(T), p).

    Parameters
    ----------
    value : callable
        ``value(t, u, p) -> float``, the same on every rank; u an array [n] or, PETSc style, a Vec.
    gradient_u : callable, optional
        NumPy style ``(t, u, p) -> array [n]``, by complex step where missing; PETSc style
        ``(t, u, p, out)``.
    gradient_p : callable or "independent", optional
        ``(t, u, p) -> array [m]``; for a field ``(t, u, p, out)``.
    hessian_product : callable, optional
        The derivatives of both gradients along (du, dp): NumPy style
        ``(t, u, p, du, dp) -> (array [n], array [m])``, by complex step where missing; PETSc style
        ``(t, u, p, du, dp, out) -> array [m]``, for a field ``(..., out_u, out_p)``.
    value_t : callable or "autonomous", optional
        ``(t, u, p) -> float``; only needed where an event ends the run.
    hessian_t : callable or "independent", optional
        The derivatives of ``value_t`` in u, p and t, for Hessians where it is needed: NumPy style
        ``(t, u, p) -> (array [n], array [m], float)``, by complex step where missing; PETSc style
        ``(t, u, p, out) -> (array [m], float)``, for a field ``(..., out_u, out_p) -> float``.
        "independent": ``value_t`` is constant.

    Examples
    --------
    >>> energy = Terminal(lambda t, u, p: 0.5 * u[0] ** 2)
    """

    value: Callable[..., Any]
    gradient_u: Callable[..., Any] | None = None
    gradient_p: Callable[..., Any] | str | None = None
    hessian_product: Callable[..., Any] | None = None
    value_t: Callable[..., Any] | str | None = None
    hessian_t: Callable[..., Any] | str | None = None

    @property
    def times(self) -> tuple[float, ...]:
        """None: the final time is always a step."""
        return ()

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return one scalar at the final time."""
        given = Derivatives(
            self.gradient_u, self.gradient_p, self.value_t, self.hessian_product, self.hessian_t
        )
        scalar = callback_of(self, problem, "terminal", self.value, given)
        return Cost(points=((final_time, 1.0, scalar),))

    __add__ = plus
    __mul__ = __rmul__ = multiple


@dataclass(frozen=True, eq=False)
class AtEvent:
    """A function of time, state and parameters at an event.

    Parameters
    ----------
    value : callable
        ``value(t, u, p) -> float``, as for ``Terminal``.
    event : str
        Its name.
    number : int
        Which of those with that name; 0 is the first one, -1 the last.
    side : "before" or "after"
        Which state: that before the reset or the one after it.
    gradient_u, gradient_p, value_t, hessian_product, hessian_t
        As for ``Terminal``.

    Raises
    ------
    InputError
        Another side.

    Examples
    --------
    >>> AtEvent(lambda t, u, p: u[1], "bounce").times
    ()
    """

    value: Callable[..., Any]
    event: str
    number: int = 0
    side: Literal["before", "after"] = "before"
    gradient_u: Callable[..., Any] | str | None = None
    gradient_p: Callable[..., Any] | str | None = None
    value_t: Callable[..., Any] | str | None = None
    hessian_product: Callable[..., Any] | None = None
    hessian_t: Callable[..., Any] | str | None = None

    def __post_init__(self) -> None:
        if self.side not in ("before", "after"):
            raise InputError(f"side = {self.side!r}", expected='"before" or "after"')

    @property
    def times(self) -> tuple[float, ...]:
        """None: the event decides."""
        return ()

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return one scalar at the event."""
        check_event(problem, self.event)
        given = Derivatives(
            self.gradient_u, self.gradient_p, self.value_t, self.hessian_product, self.hessian_t
        )
        scalar = callback_of(self, problem, f'at event "{self.event}"', self.value, given)
        return Cost(points=((At(self.event, self.number, self.side == "after"), 1.0, scalar),))

    __add__ = plus
    __mul__ = __rmul__ = multiple


def check_event(problem: Problem, event: str) -> None:
    """Refuse an event that the problem does not have.

    Raises
    ------
    InputError
        Names those that it has.
    """
    names = [each.name for each in problem.events]
    if event not in names:
        raise InputError(
            f'no event is named "{event}"',
            expected=", ".join(names) or "a problem with events",
            remedy=nearest(event, names),
        )


def EventTime(event: str, number: int = 0) -> AtEvent:  # noqa: N802 (a noun, like Terminal)
    """Return the time of an event as a cost.

    Parameters
    ----------
    event, number
        As for ``AtEvent``.

    Examples
    --------
    >>> EventTime("bounce", -1).number
    -1
    """
    return AtEvent(
        lambda t, _u, _p: t,
        event,
        number,
        gradient_u=INDEPENDENT,
        gradient_p=INDEPENDENT,
        value_t=lambda _t, _u, _p: 1.0,
        hessian_t=INDEPENDENT,
    )


@dataclass(frozen=True, eq=False)
class Running:
    """int r(t, u, p) dt over the time span, with the quadrature of the method itself.

    Runge-Kutta: h sum b_i r_i; theta: h [(1 - theta) r_n + theta r_{n+1}]; midpoint: h r(stage).

    Parameters
    ----------
    density : callable
        ``density(t, u, p) -> float`` [cost / time unit], the same on every rank.
    gradient_u, gradient_p, hessian_product, hessian_t
        As for ``Terminal``.
    density_t : callable or "autonomous", optional
        ``(t, u, p) -> float``; only needed where step times are differentiated.

    Examples
    --------
    >>> effort = Running(lambda t, u, p: p[0] ** 2)
    """

    density: Callable[..., Any]
    gradient_u: Callable[..., Any] | None = None
    gradient_p: Callable[..., Any] | str | None = None
    density_t: Callable[..., Any] | str | None = None
    hessian_product: Callable[..., Any] | None = None
    hessian_t: Callable[..., Any] | str | None = None

    @property
    def times(self) -> tuple[float, ...]:
        """None: the quadrature uses the steps as they come."""
        return ()

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return one density."""
        given = Derivatives(
            self.gradient_u, self.gradient_p, self.density_t, self.hessian_product, self.hessian_t
        )
        scalar = callback_of(self, problem, "running", self.density, given, Keywords(t="density_t"))
        return Cost(densities=((1.0, scalar),))

    __add__ = plus
    __mul__ = __rmul__ = multiple


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """1/2 sum_k | (observe(t_k, u(t_k), p) - data_k) / sigma |^2.

    Parameters
    ----------
    times : array_like [K]
        Observation times, increasing, inside the time span (both ends allowed) [time unit].
    data : array_like [K, q] or sequence of Vec
        Measurements; [K] is taken as [K, 1].  Vectors where the whole distributed state, or the
        product with a Mat, is observed.
    sigma : float or array_like [q] or [K, q]
        Noise level, in the data's unit.
    observe : None, sequence of int, callable or Mat
        None: the whole state.  Indices of components.  NumPy style ``(t, u, p) -> array [q]``.
        A Mat [q, n] for linear observation of a distributed state.
    observe_u, observe_p : callable, optional
        Jacobians [q, n], [q, m] of a callable ``observe``; by complex step where missing.
    side : "before" or "after", optional
        Which state is observed where an event happens at an observation time.

    Raises
    ------
    InputError
        Shapes that do not match (both named), NaN in data, times not increasing, sigma <= 0,
        another side.

    Examples
    --------
    >>> misfit = LeastSquares([0.5, 1.0], [[0.6], [0.4]], sigma=0.1, observe=[0])
    >>> misfit.times
    (0.5, 1.0)
    """

    times: Any
    data: Any
    sigma: npt.ArrayLike = 1.0
    observe: Any = None
    observe_u: Callable[..., Any] | None = None
    observe_p: Callable[..., Any] | None = None
    side: Literal["before", "after"] | None = None
    vectors: bool = field(init=False)

    def __post_init__(self) -> None:
        if self.side not in (None, "before", "after"):
            raise InputError(f"side = {self.side!r}", expected='"before" or "after"')
        times = finite_array(self.times, "observation times")
        if times.ndim != 1 or times.size == 0:
            raise InputError(f"observation times have shape {times.shape}", expected="shape (K,)")
        if (np.diff(times) <= 0).any():
            k = int(np.argmax(np.diff(times) <= 0))
            raise InputError(
                f"observation times are not increasing: {times[k]:g} is followed by "
                f"{times[k + 1]:g} at index {k + 1}",
                expected="strictly increasing times",
                remedy="sort times and data together, and merge repeated times",
            )
        vectors = isinstance(self.data, (list, tuple)) and _any_vec(self.data)
        object.__setattr__(self, "times", tuple(times.tolist()))
        object.__setattr__(self, "vectors", vectors)
        rows = len(self.data) if hasattr(self.data, "__len__") else 0
        if rows != times.size:
            raise InputError(
                f"{times.size} observation times but {rows} rows of data",
                expected="as many rows as times",
            )
        shape = (times.size,)
        if not vectors:
            data = finite_array(self.data, "data")
            data = data[:, None] if data.ndim == 1 else data
            if data.ndim != 2:
                raise InputError(f"data has shape {data.shape}", expected="shape (K, q)")
            shape = data.shape
            object.__setattr__(self, "data", data)
        sigma = finite_array(self.sigma, "sigma")
        if (sigma <= 0).any():
            raise InputError(f"sigma = {sigma.min():g}", expected="sigma > 0")
        if vectors and sigma.ndim:
            raise InputError(f"sigma has shape {sigma.shape}", expected="one number for vectors")
        try:
            object.__setattr__(self, "sigma", np.broadcast_to(sigma, shape))
        except ValueError as error:
            raise InputError(
                f"sigma has shape {sigma.shape}",
                expected=f"a number, or shape {shape[1:]} or {shape}",
            ) from error

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return one scalar for each observation time."""
        sigma: Any = self.sigma
        if self.vectors:
            matrix = self.observe if isinstance(self.observe, PETSc.Mat) else None
            if self.observe is not None and matrix is None:
                raise UnsupportedError(
                    "data given as vectors with an observe that is not a Mat",
                    expected="observe=None or a Mat [q, n]",
                    remedy="arrays as data for observe callbacks and indices",
                )
            for k, row in enumerate(self.data):
                expected = problem.state.size if matrix is None else matrix.getSize()[0]
                if row.size != expected:
                    raise InputError(f"data[{k}] has size {row.size}", expected=str(expected))
            residuals: list[Any] = [
                VectorResidual(row, float(s), matrix)
                for row, s in zip(self.data, sigma, strict=True)
            ]
        else:
            sizes = (problem.size, problem.n_parameters)
            observation = self._observation(problem)
            residuals = [
                ArrayResidual(*sizes, *observation, row, s)
                for row, s in zip(self.data, sigma, strict=True)
            ]
        moments = [time if self.side is None else Instant(time, self.side) for time in self.times]
        pairs = zip(moments, residuals, strict=True)
        return Cost(
            points=tuple((time, 1.0, SumOfSquares(each, problem.comm)) for time, each in pairs)
        )

    def _observation(self, problem: Problem) -> Observation:
        """Return observe, its Jacobians in u and p, and its second derivatives."""
        if problem.comm.size > 1 or problem.style == "petsc":
            raise UnsupportedError(
                "data given as arrays for a PETSc-style problem",
                expected="data as a sequence of Vec, and observe=None or a Mat [q, n]",
            )
        n, q = problem.size, self.data.shape[1]
        if callable(self.observe):
            return lower_observe(problem, self.observe, self.observe_u, self.observe_p, q)
        indices = np.arange(n) if self.observe is None else np.asarray(self.observe)
        if indices.shape != (q,):
            raise InputError(
                f"data has {q} columns but {indices.size} components are observed",
                expected="one column for each observed component",
                remedy="observe=[indices] for a partial observation",
            )
        if not np.issubdtype(indices.dtype, np.integer) or ((indices < 0) | (indices >= n)).any():
            raise InputError(f"observe = {indices.tolist()}", expected=f"indices from 0 to {n - 1}")
        selection = np.zeros((q, n))
        selection[np.arange(q), indices] = 1.0

        def select(_t: float, u: Array, _p: Any) -> Array:
            return u[indices]

        def select_u(_t: float, _u: Array, _p: Any) -> Array:
            return selection

        return select, select_u, None, None

    __add__ = plus
    __mul__ = __rmul__ = multiple


def lower_observe(
    problem: Problem,
    observe: Callable[..., Any],
    observe_u: Callable[..., Any] | None,
    observe_p: Callable[..., Any] | None,
    size: int,
) -> Observation:
    """Return a NumPy-style observation [q], checked, and its derivatives."""
    call = guarded(observe, "observe", problem.comm)

    def checked(t: float, u: Array, p: Any) -> Any:
        return check_output(call(t, u, p), "observe", (size,), t, real=False)

    remedy = "observe_u=, observe_p=callbacks"
    curvature = HessianByComplexStep(call, {1: observe_u, 2: observe_p}, "observe", "Gauss-Newton")
    return (
        checked,
        observe_u or ComplexStep(checked, 1, "observe", remedy),
        observe_p or ComplexStep(checked, 2, "observe", remedy),
        curvature,
    )


def _each(values: Array, count: int, name: str) -> Array:
    """Return the values [count], one for each; a single one stands for all."""
    if values.shape not in ((), (count,)):
        raise InputError(
            f"{name} has shape {values.shape}", expected=f"a number, or shape ({count},)"
        )
    return np.broadcast_to(values, (count,))


@dataclass(frozen=True, eq=False)
class Prior:
    """1/2 sum_i ((s(p_i) - mean_i) / sigma_i)^2, with s the identity or the logarithm.

    Parameters
    ----------
    mean : array_like [k] or Vec [m]
        Expected values (of the logarithm if ``scale="log"``); a Vec for a field parameter.
    sigma : float or array_like [k]
        Standard deviations.
    names : sequence of str, optional
        The k parameters meant; all of them by default.
    scale : "linear" or "log"
        Normal or log-normal prior.

    Examples
    --------
    >>> Prior([0.5], 0.1, names=["rate"]).times
    ()
    """

    mean: Any
    sigma: npt.ArrayLike = 1.0
    names: Sequence[str] | None = None
    scale: Literal["linear", "log"] = "linear"

    @property
    def times(self) -> tuple[float, ...]:
        """None."""
        return ()

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return a scalar of the parameters alone."""
        sigma = finite_array(self.sigma, "prior sigma")
        if (sigma <= 0).any():
            raise InputError(f"prior sigma = {sigma.min():g}", expected="sigma > 0")
        if self.scale not in ("linear", "log"):
            raise InputError(f"prior scale = {self.scale!r}", expected='"linear" or "log"')
        if problem.field_parameter:
            if not isinstance(self.mean, PETSc.Vec) or sigma.ndim or self.scale == "log":
                raise UnsupportedError(
                    "this prior for a field parameter",
                    expected='mean as a Vec, one number as sigma, scale="linear"',
                )
            residual: Any = FieldPriorResidual(self.mean, float(sigma))
        else:
            residual = self._of_numbers(problem, sigma)
        return Cost(points=((START, 1.0, SumOfSquares(residual, problem.comm)),))

    def _of_numbers(self, problem: Problem, sigma: Array) -> NumbersPriorResidual:
        known = problem.parameter_names
        names = known if self.names is None else tuple(self.names)
        for name in names:
            if name not in known:
                raise InputError(
                    f'prior names parameter "{name}"',
                    expected=", ".join(known),
                    remedy=nearest(name, known),
                )
        mean = _each(finite_array(self.mean, "prior mean"), len(names), "prior mean")
        sigma = _each(sigma, len(names), "prior sigma")
        return NumbersPriorResidual(
            names,
            [known.index(name) for name in names],
            mean,
            sigma,
            problem.comm,
            logarithmic=self.scale == "log",
        )

    __add__ = plus
    __mul__ = __rmul__ = multiple
