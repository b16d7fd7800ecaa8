"""Results of minimisations in files, read back on any number of ranks."""

from __future__ import annotations

from pathlib import Path

from mpi4py import MPI

from daeosens.errors import require
from daeosens.functional.functional import Functional, require_functional
from daeosens.io.files import admit_path
from daeosens.io.saved import check_same, read_value, writable_path, write_value
from daeosens.optimize.constrained.result import ConstrainedResult
from daeosens.optimize.result import Result
from daeosens.petsc.ranks import agree

FORMAT = "daeosens result 1"


def save_result(result: Result | ConstrainedResult, path: str | Path) -> None:
    """Write what ``minimize`` has returned into a file.  Collective on ``result.x``.

    Each rank writes its own part of x, as ``timestepping.save_run`` does.

    Parameters
    ----------
    result : Result or ConstrainedResult
        From ``minimize``.
    path : path or str
        The file, HDF5.

    Raises
    ------
    DaeosensError
        On every rank: the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping, minimize
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> control = Parameters({"rate": Parameter(0.3)}, initial_state=[1.0])
    >>> misfit, stepping = LeastSquares([1.0], [0.6]), Stepping((0.0, 1.0), "rk4", dt=0.1)
    >>> result = minimize(Reduced(decay, misfit, stepping, control))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_result(result, f"{folder}/result.h5")
    ...     again = load_result(f"{folder}/result.h5")
    >>> again.value == result.value, str(again) == str(result)
    (True, True)
    """
    if not isinstance(result, ConstrainedResult):
        require(result, Result, "result", "what minimize returned")
    path = writable_path(path)
    agree(result.x.comm, "save_result", path=str(path))
    write_value(path, result.x.comm.tompi4py(), FORMAT, result)


def load_result(path: str | Path, functional: Functional | None = None) -> Result:
    """Read what ``save_result`` has written.  Collective on ``functional.comm``.

    Parameters
    ----------
    path : path or str
        The file; those of the ranks that wrote it lie beside it.
    functional : Functional, optional
        What was minimised, on any number of ranks: x has its layout, and one evaluation tells
        whether it is the same.  Without it each rank that calls has all of x.

    Returns
    -------
    Result or ConstrainedResult

    Raises
    ------
    InputError
        On every rank: no file of a result, or of another version; a damaged one; another
        functional.

    Examples
    --------
    >>> import tempfile
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping, minimize
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> control = Parameters({"rate": Parameter(0.3)}, initial_state=[1.0])
    >>> misfit, stepping = LeastSquares([1.0], [0.6]), Stepping((0.0, 1.0), "rk4", dt=0.1)
    >>> functional = Reduced(decay, misfit, stepping, control)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_result(minimize(functional), f"{folder}/result.h5")
    ...     result = load_result(f"{folder}/result.h5", functional)
    >>> result.x.array.round(4)
    array([0.5108])
    """
    path = admit_path(path, "path")
    if functional is None:
        return read_value(path, MPI.COMM_SELF, FORMAT)
    require_functional(functional)
    agree(functional.comm, "load_result", path=str(path))
    result: Result = read_value(path, functional.comm.tompi4py(), FORMAT, functional.start)
    value = functional.value(result.x)
    size = abs(result.value) + 1e-6 * abs(float(result.history.value[0]))
    told = f"its value is {result.value:.12g} in the file, {value:.12g} here"
    check_same(abs(value - result.value), size, path, "result", told)
    return result
