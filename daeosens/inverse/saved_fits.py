"""Fits in files: what needs no model at once, and with the model all of the fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.costs.prior import Prior
from daeosens.errors import DaeosensError, InputError, require
from daeosens.functional.parameters import Parameters
from daeosens.inverse.fit_discretization import Discretization
from daeosens.inverse.fit_result import Fit, Statistics
from daeosens.inverse.likelihood.likelihood import modelled
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.inverse.likelihood.noise import Noise, Observation
from daeosens.inverse.uncertainty.covariance import Covariance
from daeosens.io.files import admit_path
from daeosens.io.saved import (
    check_same,
    of_another_problem,
    read_value,
    writable_path,
    write_value,
)
from daeosens.optimize import Result
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem
from daeosens.timestepping.stepping import Stepping

FORMAT = "daeosens fit 1"


@dataclass(frozen=True, eq=False, repr=False)
class SavedFit(Statistics):
    """A fit without its model; prints itself as the fit did.

    Attributes
    ----------
    data, noise, result, sigma, degrees_of_freedom, residuals, uncertainty, discretization
        As of a ``Fit``, and so are ``covariance``, ``intervals()``, ``p_value`` and the like.
    estimate : dict of str to float
        All parameters by name, fixed ones too, in their own units.
    undetermined : tuple of str
        Parameters whose standard error is larger than they are.
    iterations : int
    summary : str
        What the fit printed.

    Examples
    --------
    >>> import tempfile
    >>> from daeosens import ODE, Parameter, Parameters, Stepping, fit
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0, scale="log")}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> model = decay, data, rates, Stepping((0.0, 3.0), "rk4", dt=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_fit(fit(*model), f"{folder}/fit.h5")
    ...     numbers = load_fit(f"{folder}/fit.h5")
    >>> round(numbers.estimate["rate"], 3), numbers.converged
    (0.5, True)
    """

    data: Measurements
    noise: Noise
    result: Result
    sigma: Array
    degrees_of_freedom: float
    residuals: Array
    uncertainty: Covariance | DaeosensError
    discretization: Discretization | DaeosensError
    estimate: dict[str, float]
    undetermined: tuple[str, ...]
    iterations: int
    summary: str

    def __repr__(self) -> str:
        """Return the summary."""
        return self.summary


def save_fit(fitted: Fit | SavedFit, path: str | Path) -> None:
    """Write a fit into a file.

    Parameters
    ----------
    fitted : Fit or SavedFit
        From ``fit`` or ``load_fit``.
    path : path or str
        The file, HDF5.

    Raises
    ------
    DaeosensError
        The file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from daeosens import ODE, Parameter, Parameters, Stepping, fit
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0, scale="log")}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> model = decay, data, rates, Stepping((0.0, 3.0), "rk4", dt=0.1)
    >>> fitted = fit(*model)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_fit(fitted, f"{folder}/fit.h5")
    ...     numbers = load_fit(f"{folder}/fit.h5")
    ...     again = load_fit(f"{folder}/fit.h5", *model)
    >>> str(numbers) == str(fitted), numbers.covariance.error("rate").__round__(3)
    (True, 0.014)
    >>> str(again) == str(fitted), again.prediction([4.0]).value.shape
    (True, (1, 1))
    """
    require(fitted, Statistics, "fitted", "what fit returned")
    path = writable_path(path)
    same = ("data", "noise", "result", "sigma", "degrees_of_freedom", "residuals")
    same += ("uncertainty", "discretization", "estimate", "undetermined", "iterations")
    numbers = SavedFit(**{name: getattr(fitted, name) for name in same}, summary=str(fitted))
    # the same on every rank, each of which may write it
    write_value(path, MPI.COMM_SELF, FORMAT, numbers)


def load_fit(
    path: str | Path,
    problem: Problem | None = None,
    data: Any = None,
    parameters: Parameters | None = None,
    stepping: Stepping | None = None,
    *,
    times: str | npt.ArrayLike | None = None,
    columns: Sequence[str] | None = None,
    observe: Any = None,
    observe_u: Callable[..., Any] | None = None,
    observe_p: Callable[..., Any] | None = None,
    side: Literal["before", "after"] | None = None,
    doses: Any = None,
    priors: Prior | Sequence[Prior] = (),
) -> Fit | SavedFit:
    """Read a fit that ``save_fit`` has written.

    Parameters
    ----------
    path : path or str
        The file.
    problem, data, parameters, stepping, and the keywords
        As for ``fit``, for predictions and profiles; the likelihood is evaluated once, at the
        estimate, which tells another model.  The noise is that of the file.  None of them: the
        numbers alone, without a solve.

    Returns
    -------
    SavedFit or, with the model, Fit
        Without its ``starts`` and ``preparation``.

    Raises
    ------
    InputError
        No file of a fit, or of another version; a damaged one; other data, or another model.

    Examples
    --------
    >>> import tempfile
    >>> from daeosens import ODE, Parameter, Parameters, Stepping, fit
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0, scale="log")}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> model = decay, data, rates, Stepping((0.0, 3.0), "rk4", dt=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_fit(fit(*model), f"{folder}/fit.h5")
    ...     again = load_fit(f"{folder}/fit.h5", *model)
    >>> again.prediction([4.0]).value.round(2)
    array([[0.14]])
    """
    path = admit_path(path, "path")
    saved: SavedFit = read_value(path, MPI.COMM_SELF, FORMAT)
    if problem is None:
        return saved
    if parameters is None:
        raise InputError("load_fit with a problem alone", expected="the arguments of fit")
    observation, noise = Observation(observe, observe_u, observe_p, side), saved.noise
    if np.ndim(noise.sigma) == 2:  # in the order of the data, which was that of a table
        noise = replace(noise, sigma=np.asarray(noise.sigma)[np.argsort(saved.data.order)])
    model, table, observation = modelled(
        problem, data, parameters, stepping, times, columns, observation, doses, noise, priors
    )
    if not (
        table.names == saved.data.names
        and np.array_equal(table.times, saved.data.times)
        and np.array_equal(table.values, saved.data.values, equal_nan=True)
    ):
        raise of_another_problem(path, "fit", "the data are others")
    functional, x = model.functional, saved.result.x
    names = model.parameters.free_names
    if len(names) != x.getSize() or not {*names} <= {*saved.estimate}:
        raise of_another_problem(path, "fit", f"free parameters are {', '.join(names)}")
    value = functional.value(x)
    told = f"its value is {saved.objective:.12g} in the file, {value:.12g} here"
    check_same(abs(value - saved.objective), max(1.0, abs(saved.objective)), path, "fit", told)
    return Fit(
        saved.data,
        saved.noise,
        model.parameters,
        functional,
        observation,
        saved.result,
        None,
        saved.sigma,
        saved.degrees_of_freedom,
        saved.residuals,
        saved.uncertainty,
        saved.discretization,
    )
