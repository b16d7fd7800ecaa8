"""Results in files: as they were, on any number of ranks; another functional or version is told."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
from closed import Curved, rosenbrock
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.optimize import Constraint, Result, load_result, minimize, save_result

START = np.full(5, 0.5)


def valley(comm=PETSc.COMM_SELF, weight=100.0):
    return Curved(
        lambda x: rosenbrock(x, weight), START, hessian=lambda x: np.eye(len(x)), comm=comm
    )


def assert_same(result, again):
    assert type(again) is type(result)
    # seconds are those of the first rank
    assert str(again) == str(replace(result, seconds=again.seconds))
    np.testing.assert_array_equal(again.history.value, result.history.value)
    np.testing.assert_array_equal(again.history.evaluations, result.history.evaluations)
    assert (again.converged, again.notes) == (result.converged, result.notes)


@pytest.mark.parametrize("method", ["lmvm", "bqnls", "bntr"])
def test_result_is_as_it_was(tmp_path, method):
    result = minimize(valley(), method=method, max_iterations=15)
    save_result(result, tmp_path / "result.h5")
    functional = valley()
    for again in (
        load_result(tmp_path / "result.h5"),
        load_result(tmp_path / "result.h5", functional),
    ):
        assert_same(result, again)
        np.testing.assert_array_equal(again.x.array, result.x.array)
    assert len(functional.points) == 1
    with h5py.File(tmp_path / "result.h5") as file:  # for other programs too
        np.testing.assert_array_equal(file["history/value"], result.history.value)
        np.testing.assert_array_equal(file["x"][0], result.x.array)


def test_result_under_constraints(tmp_path):
    limit = Constraint(lambda x: np.array([x.sum()]), upper=2.0, name="sum")
    result = minimize(valley(), constraints=limit, method="almm", max_iterations=30)
    save_result(result, tmp_path / "result.h5")
    again = load_result(tmp_path / "result.h5")
    assert str(again) == str(result)
    np.testing.assert_array_equal(
        again.constraints["sum"].multiplier, result.constraints["sum"].multiplier
    )


def test_another_functional_is_told(tmp_path):
    save_result(minimize(valley(), max_iterations=5), tmp_path / "result.h5")
    with pytest.raises(InputError, match="of another problem; its value is "):
        load_result(tmp_path / "result.h5", valley(weight=90.0))
    with pytest.raises(InputError, match=r"vectors of shape \[5\]"):
        load_result(tmp_path / "result.h5", Curved(rosenbrock, np.ones(4)))


def changed(path, change):
    with h5py.File(path, "r+") as file:
        told = json.loads(bytes(file["about"][()]))
        change(told)
        del file["about"]
        file["about"] = np.frombuffer(json.dumps(told).encode(), np.uint8)


def test_another_version_is_told(tmp_path):
    path = tmp_path / "result.h5"
    save_result(minimize(valley(), max_iterations=5), path)
    changed(
        path, lambda told: told.update(format="daeosens result 9", versions={"daeosens": "7.0"})
    )
    with pytest.raises(InputError, match=r'format is "daeosens result 9", of daeosens 7\.0'):
        load_result(path)
    changed(path, lambda told: told.update(format="daeosens result 1"))
    changed(path, lambda told: told["value"]["fields"].pop("notes"))
    with pytest.raises(InputError, match=r"Result of daeosens 7\.0 is another one than here"):
        load_result(path)
    changed(path, lambda told: told["value"].update({"class": ["os", "system"]}))
    with pytest.raises(InputError, match="system of daeosens"):
        load_result(path)


def test_files_that_are_none(tmp_path):
    (tmp_path / "text").write_text("none")
    with pytest.raises(InputError, match="not readable as HDF5"):
        load_result(tmp_path / "text")
    with pytest.raises(InputError, match="no such file"):
        load_result(tmp_path / "nothing")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["about"] = [1, 2]
    with pytest.raises(InputError, match="not the file of a result"):
        load_result(tmp_path / "other.h5")
    with pytest.raises(InputError, match="there is no folder"):
        save_result(minimize(valley(), max_iterations=1), tmp_path / "no" / "result.h5")


@pytest.mark.mpi
def test_results_on_other_ranks(shared_tmp_path, comm):
    path = shared_tmp_path / "result.h5"
    result: Result = minimize(valley(PETSc.COMM_WORLD), max_iterations=6)
    save_result(result, path)
    assert len(list(shared_tmp_path.glob("result.*.rank*.h5"))) == (comm.size > 1) * comm.size
    again = load_result(path, valley(PETSc.COMM_WORLD))
    assert_same(result, again)
    np.testing.assert_array_equal(again.x.array, result.x.array)
    alone = load_result(path)
    whole = np.concatenate(comm.allgather(result.x.array))
    np.testing.assert_array_equal(alone.x.array, whole)
    comm.Barrier()
    if comm.rank == 0:
        save_result(alone, shared_tmp_path / "alone.h5")
    comm.Barrier()
    assert_same(result, load_result(shared_tmp_path / "alone.h5", valley(PETSc.COMM_WORLD)))
