"""Runs as xarray's datasets and in NetCDF."""

import sys

import numpy as np
import pytest
from distributed import make
from petsc4py import PETSc

import daeosens as ds
from daeosens import DaeosensError, Stepping, solve

xarray = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")


def test_named_unknowns_in_netcdf(tmp_path):
    predation = ds.ODE(
        lambda t, u, p: np.array([u[0] - p[0] * u[0] * u[1], u[0] * u[1] - u[1]]),
        ["prey", "predator"],
        ["appetite"],
    )
    run = solve(predation, [1.0, 0.5], [1.2], Stepping((0.0, 1.0), "rk4", dt=0.1))
    run.to_xarray().to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "run.nc", engine="h5netcdf") as again:
        np.testing.assert_array_equal(again["time"], run.times)
        np.testing.assert_array_equal(again["predator"], run.u[:, 1])
        assert again.attrs["appetite"] == 1.2


@pytest.mark.mpi
@pytest.mark.parametrize("style", ["dmda", "vec"])
def test_each_rank_has_its_own_part(comm, style):
    case = make(PETSc.COMM_WORLD, style)
    run = solve(case.problem, case.u0, case.p, Stepping((0.0, 0.1), "rk4", dt=0.02))
    data = run.to_xarray()
    axis = "x" if style == "dmda" else "unknown"
    start, end = case.problem.state.getOwnershipRange()
    assert data[axis].values.tolist() == list(range(start, end))
    np.testing.assert_array_equal(data["u"].values.reshape(run.u.shape), run.u)


def test_without_xarray_the_remedy_is_told(monkeypatch):
    decay = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate"])
    run = solve(decay, [1.0], [0.5], Stepping((0.0, 1.0), "rk4", dt=0.5))
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(DaeosensError, match=r"pip install daeosens\[netcdf\]"):
        run.to_xarray()
