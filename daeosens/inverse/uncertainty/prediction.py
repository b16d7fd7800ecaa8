"""Outputs of a fitted model with bands: how uncertain parameters and noise make them.

To first order: the covariance of the estimate goes through the tangents of the trajectory, exact
for outputs that are linear in the parameters over the width of the band.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.observation import observed_indices
from daeosens.derivatives.solve import solve
from daeosens.derivatives.tangent import tangent
from daeosens.errors import InputError, UnsupportedError, is_one_of, require
from daeosens.functional.parameters import Control
from daeosens.inverse.identifiability import Scale
from daeosens.inverse.uncertainty.covariance import Covariance
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, finite_array, gather, read, scatter
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.callback_guard import QUIET, check_output, guarded
from daeosens.problem.problem import Problem
from daeosens.timestepping.step_times import span_rounding
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.trajectory import Side


class Model(Protocol):
    """What predictions need of ``Reduced``."""

    @property
    def problem(self) -> Problem:
        """The dynamics."""
        ...

    @property
    def stepping(self) -> Stepping:
        """Method and step sizes."""
        ...

    @property
    def control(self) -> Control:
        """What x means."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """Outputs at given times, with bands.

    Attributes
    ----------
    times : array [K]
        Time unit.
    value : array [K, q]
        The outputs of the estimate, in their own unit.
    scale : str
        "linear", or "log": then ``standard_error`` and ``noise`` are those of the logarithm.
    standard_error : array [K, q]
        What the uncertainty of the parameters makes.
    noise : array [K, q]
        Noise level of a measurement; zero if none was given.
    level : float
        Probability of the bands, each time and output by itself.
    quantile : float
        Standard errors to each side.

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, Stepping, fit
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0, scale="log")}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> fitted = fit(decay, data, rates, Stepping((0.0, 3.0), "rk4", dt=0.1))
    >>> fitted.prediction([4.0, 5.0])
    Prediction(1 outputs at 2 times, 4 ... 5, 95 %)
    >>> fitted.prediction([4.0]).value.round(3)
    array([[0.135]])
    """

    times: Array
    value: Array
    scale: Scale
    standard_error: Array
    noise: Array
    level: float
    quantile: float

    def __repr__(self) -> str:
        """Return sizes, times and level."""
        first, last = self.times[0], self.times[-1]
        shape = f"{self.value.shape[1]} outputs at {self.times.size} times, {first:g} ... {last:g}"
        return f"Prediction({shape}, {100 * self.level:g} %)"

    @property
    def confidence(self) -> tuple[Array, Array]:
        """Lower and upper ends [K, q] of the band for the outputs themselves."""
        return self._band(self.standard_error)

    @property
    def prediction(self) -> tuple[Array, Array]:
        """Lower and upper ends [K, q] of the band for a new measurement, noise included."""
        # A new measurement has its own noise, independent of that in the estimate.
        return self._band(np.hypot(self.standard_error, self.noise))

    def _band(self, error: Array) -> tuple[Array, Array]:
        reach = self.quantile * error
        if self.scale == "log":
            return self.value * np.exp(-reach), self.value * np.exp(reach)
        return self.value - reach, self.value + reach


@QUIET
def predict(
    model: Model,
    estimate: Covariance,
    times: npt.ArrayLike,
    *,
    observe: Any = None,
    observe_u: Callable[..., Any] | None = None,
    observe_p: Callable[..., Any] | None = None,
    noise: npt.ArrayLike = 0.0,
    scale: Scale = "linear",
    level: float = 0.95,
    side: Side | None = None,
) -> Prediction:
    """Return outputs of the model at an estimate, with bands.  Collective.

    One forward solve, beyond the end of ``model.stepping`` if the times ask for it, and a tangent
    for each parameter.

    Parameters
    ----------
    model : Reduced
        Problem, stepping and control.
    estimate : Covariance
        From ``covariance``.
    times : array_like [K]
        Increasing times; not before the start of the time span.
    observe, observe_u, observe_p
        The outputs [q], as for ``LeastSquares``; the whole state by default.
    noise : float or array_like [q] or [K, q]
        Noise level of a measurement in this scale, for prediction bands.
    scale : "linear" or "log"
        "log" for positive outputs with log-normal noise.
    level : float
        Probability of the bands.
    side : "before" or "after", optional
        Which state is meant at the time of an event.

    Returns
    -------
    Prediction

    Raises
    ------
    InputError
        Bad times, noise, level; outputs that are not positive on a log scale.
    SolveError
        The run beyond the end of the data fails.
    UnsupportedError
        A distributed problem with an ``observe`` that is not a Mat.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.36], sigma=0.1)
    >>> rates = Parameters({"rate": Parameter(0.5, lower=0.1, upper=2.0)}, initial_state=[1.0])
    >>> functional = Reduced(decay, misfit, Stepping((0.0, 2.0), "rk4", dt=0.1), rates)
    >>> from daeosens import minimize
    >>> from daeosens.inverse import covariance
    >>> estimate = covariance(functional, minimize(functional, method="bnls").x)
    >>> predict(functional, estimate, [1.0, 2.0]).standard_error.round(4).tolist()
    [[0.064], [0.0768]]
    """
    if not all(hasattr(model, name) for name in ("problem", "stepping", "control")):
        raise InputError(
            f"model is {type(model).__name__}",
            expected="what has problem, stepping and control",
            remedy="Reduced(problem, objective, stepping, control)",
        )
    problem, control = model.problem, model.control
    agree(
        problem.comm,
        "predict",
        times=times,
        observe=observe,
        noise=noise,
        scale=scale,
        level=level,
        side=side,
    )
    require(estimate, Covariance, "estimate", "covariance(functional, x)")
    if not is_one_of(scale, "linear", "log"):
        raise InputError(f"scale = {scale!r}", expected='"linear" or "log"')
    quantile = estimate.quantile(level)
    points = finite_array(times, "times")
    stepping = _stretched(model.stepping, points)
    output, change = _outputs(problem, observe, observe_u, observe_p)
    start = control.start(problem)
    x = scatter(estimate.x, start)
    # A run of its own: steps end at the times that are asked for.
    run = solve(problem, *control.unpack(problem, x), stepping, points)
    steps = [run.index(float(time), side) for time in points]
    moments = [(float(run.times[n]), run.stored[n], run.p) for n in steps]
    values = np.array([output(*moment) for moment in moments])
    slopes = np.ones_like(values)
    if scale == "log":
        if (values <= 0).any():
            k = int(np.argwhere(values <= 0)[0][0])
            raise InputError(
                f"an output is {values[k].min():g} at t = {points[k]:g}, on a log scale",
                expected="positive outputs",
                remedy='scale="linear"',
            )
        # d log y = dy / y.
        slopes = 1.0 / values
    # Parameters on a bound have no variance, and need no tangent.
    moving = np.flatnonzero(np.diag(estimate.scaled) > 0)
    columns: list[Array] = []
    for i in moving.tolist():
        # e_i in x, pushed to (du0, dp): scales and starts that follow parameters included.
        direction = scatter(np.eye(len(estimate.x))[i], x.duplicate())
        du0, dp = control.push_forward(problem, x, direction)
        along = tangent(run, du0, dp)
        rows = [
            change(*moment, along.states[n], along.dp)
            for moment, n in zip(moments, steps, strict=True)
        ]
        columns.append(slopes * np.array(rows))
    variance = np.zeros_like(values)
    if columns:
        gradient = np.stack(columns, axis=-1)
        inner = estimate.scaled[np.ix_(moving, moving)]
        # G C G^T at each time and output, G [K, q, k] the derivatives: diagonal only.
        variance = np.einsum("kqi,ij,kqj->kq", gradient, inner, gradient)
    error = np.sqrt(np.maximum(variance, 0.0))
    return Prediction(points, values, scale, error, _noise(noise, values), level, quantile)


def _stretched(stepping: Stepping, times: Array) -> Stepping:
    """Return the stepping, long enough for the times, which steps end at."""
    first, last = stepping.t_span
    if times.ndim != 1 or times.size == 0:
        raise InputError(f"times have shape {times.shape}", expected="shape (K,)")
    if times.min() < first - span_rounding((first, last)):
        raise InputError(
            f"time {times.min():g} lies before the start {first:g}", expected="later times"
        )
    # later times only go on with the run; earlier ones change nothing, the steps are those of the
    # fit up to the times that are hit besides
    span = (first, max(last, float(times.max())))
    return dataclasses.replace(stepping, t_span=span, cut=True)


def _noise(noise: npt.ArrayLike, values: Array) -> Array:
    levels = finite_array(noise, "noise")
    if (levels < 0).any():
        raise InputError(f"noise = {levels.min():g}", expected="noise >= 0")
    try:
        return np.broadcast_to(levels, values.shape)
    except ValueError as error:
        raise InputError(
            f"noise has shape {levels.shape}",
            expected=f"a number, or shape {values.shape[1:]} or {values.shape}",
        ) from error


def _outputs(
    problem: Problem,
    observe: Any,
    observe_u: Callable[..., Any] | None,
    observe_p: Callable[..., Any] | None,
) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return the outputs [q] at (t, u, p), and their change along (du, dp)."""
    if isinstance(observe, PETSc.Mat):
        if observe.getSize()[1] != problem.size:
            raise InputError(
                f"observe has size {tuple(observe.getSize())}", expected=f"[q, {problem.size}]"
            )
        return _matrix_outputs(observe)
    if callable(observe):
        if problem.style == "petsc":
            raise UnsupportedError(
                "predictions of a PETSc-style problem with an observe callback",
                expected="observe=None or a Mat [q, n]",
            )
        return _callback_outputs(problem, observe, observe_u, observe_p)
    indices = observed_indices(problem, observe).tolist()

    def output(_t: float, u: PETSc.Vec, _p: Any) -> Array:
        return gather(u)[indices]

    def change(_t: float, _u: PETSc.Vec, _p: Any, du: PETSc.Vec, _dp: PETSc.Vec | None) -> Array:
        return gather(du)[indices]

    return output, change


def _matrix_outputs(matrix: PETSc.Mat) -> tuple[Callable[..., Array], Callable[..., Array]]:
    def times(u: PETSc.Vec) -> Array:
        product = matrix.createVecLeft()
        matrix.mult(u, product)
        return gather(product)

    def output(_t: float, u: PETSc.Vec, _p: Any) -> Array:
        return times(u)

    def change(_t: float, _u: PETSc.Vec, _p: Any, du: PETSc.Vec, _dp: PETSc.Vec | None) -> Array:
        return times(du)

    return output, change


def _callback_outputs(
    problem: Problem,
    observe: Callable[..., Any],
    observe_u: Callable[..., Any] | None,
    observe_p: Callable[..., Any] | None,
) -> tuple[Callable[..., Array], Callable[..., Array]]:
    call = guarded(observe, "observe", problem.comm)
    remedy = "observe_u=, observe_p=callbacks"
    by_u = observe_u or AutomaticJacobian(call, 1, "observe", remedy)
    by_p = observe_p or AutomaticJacobian(call, 2, "observe", remedy)

    def output(t: float, u: PETSc.Vec, p: Any) -> Array:
        returned = call(t, read(u), p)
        try:
            values = np.asarray(returned)
        except ValueError as error:  # rows of several lengths
            raise InputError(f"observe: {error}", expected="a number or an array [q]") from error
        shape: Sequence[int] = values.shape if values.ndim == 1 else (1,)
        return np.asarray(check_output(values, "observe", tuple(shape), t), dtype=float)

    def change(t: float, u: PETSc.Vec, p: Any, du: PETSc.Vec, dp: PETSc.Vec | None) -> Array:
        # observe_u du + observe_p dp, by the tangent at that time.
        result: Array = np.asarray(by_u(t, read(u), p)) @ read(du)
        if dp is not None:
            result = result + np.asarray(by_p(t, read(u), p)) @ read(dp)
        return result

    return output, change
