"""XDMF files: what they say about the grid is true of the datasets they name."""

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import h5py
import numpy as np
import pytest
from petsc4py import PETSc

import daeosens as ds
from daeosens.errors import InputError
from daeosens.io.hdf5 import write_array
from daeosens.io.results import open_results
from daeosens.io.xdmf import Snapshot, UniformGrid, write_xdmf
from daeosens.problem.grids import Grid
from tests.io.test_results import field

GRID = UniformGrid((0.5, 0.25), (1.0, 2.0))
VALUES = np.arange(70.0).reshape(5, 7, 2)


def numbers(element: ET.Element) -> list[int]:
    return [int(word) for word in (element.text or "").split()]


def read_attributes(path: Path) -> dict[tuple[float, str], np.ndarray]:
    """Read as an XDMF reader does: follow the items, take the slabs, check every stated size."""
    outcome = {}
    for grid in ET.parse(path).getroot().iterfind(".//Grid[@GridType='Uniform']"):
        time = float(grid.find("Time").get("Value"))
        points = tuple(map(int, grid.find("Topology").get("Dimensions").split()))
        for attribute in grid.iterfind("Attribute"):
            item = attribute.find("DataItem")
            source = item if item.get("Format") == "HDF" else item.find("DataItem[@Format='HDF']")
            file_name, _, dataset = source.text.partition(":")
            with h5py.File(path.parent / file_name, "r") as file:
                values = file[dataset][()]
            assert source.get("Dimensions").split() == [str(n) for n in values.shape]
            if item is not source:
                words = numbers(item.find("DataItem[@Format='XML']"))
                start, stride, count = np.reshape(words, (3, -1))
                values = values[tuple(map(slice, start, start + count * stride, stride))]
                assert item.get("Dimensions").split() == [str(n) for n in points]
            assert values.size == np.prod(points)
            outcome[time, attribute.get("Name")] = values.squeeze()
    return outcome


def test_series_of_components_is_read_back(tmp_path):
    hdf5 = tmp_path / "results.h5"
    write_array(hdf5, "u/0", VALUES)
    write_array(hdf5, "u/1", 10 * VALUES)
    write_array(hdf5, "flat", VALUES[..., 0])
    snapshots = [Snapshot(0.0, {"u": "u/0"}), Snapshot(1.5, {"u": "u/1", "flat": "flat"})]
    path = write_xdmf(tmp_path / "fields.xdmf", hdf5, GRID, snapshots, ("a", "b"))
    attributes = read_attributes(path)
    assert set(attributes) == {(0, "u_a"), (0, "u_b"), (1.5, "u_a"), (1.5, "u_b"), (1.5, "flat")}
    np.testing.assert_array_equal(attributes[0, "u_b"], VALUES[..., 1])
    np.testing.assert_array_equal(attributes[1.5, "u_a"], 10 * VALUES[..., 0])
    np.testing.assert_array_equal(attributes[1.5, "flat"], VALUES[..., 0])


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3)])
def test_states_of_a_saved_run_are_shown_by_one_call(tmp_path, shape):
    sizes = np.arange(1.0, 1.0 + len(shape))
    grid = Grid(tuple((0.0, size) for size in sizes), shape, dof=2, comm=PETSc.COMM_SELF)

    def double(t, u, p, out):
        u.copy(out)
        out.scale(2.0)

    def decay(t, u, p, out):
        u.copy(out)
        out.scale(-p[0])

    dose = ds.Event(0.5, double, name="dose")

    problem = ds.ODE(decay, state=grid.dm, parameters=["rate"], events=[dose])
    u0 = grid.create_vec()
    u0.array[:] = np.arange(u0.size)
    run = ds.solve(problem, u0, [0.5], ds.Stepping((0.0, 1.0), "rk4", dt=0.25))
    ds.timestepping.save_run(run, tmp_path / "run.h5")
    points = UniformGrid(grid.spacing, grid.origin)
    path = write_xdmf(tmp_path / "run.xdmf", tmp_path / "run.h5", points)
    attributes = read_attributes(path)
    assert len(run.times) == 6  # two of them at the dose
    assert {time for time, _ in attributes} == {0.0, 0.25, 0.5, 0.75, 1.0}
    for number in (0, 1, 3, 5):  # that after the dose
        values = grid.values(run.states[number])
        for k in (0, 1):
            np.testing.assert_array_equal(attributes[run.times[number], f"u_{k}"], values[..., k])
    named = read_attributes(write_xdmf(path, tmp_path / "run.h5", points, components="ab"))
    assert {name for _, name in named} == {"u_a", "u_b"}
    # without the problem, and without a step
    read = ds.timestepping.load_run(tmp_path / "run.h5").to_xarray()
    np.testing.assert_array_equal(read["u"].values, run.to_xarray()["u"].values)
    read.to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
    wrong = UniformGrid((0.1,) * (5 - len(shape)))
    with pytest.raises(InputError, match='dataset "states" has shape'):
        write_xdmf(path, tmp_path / "run.h5", wrong)


def test_what_is_no_run_on_a_grid_is_refused(tmp_path):
    run = ds.solve(
        ds.ODE(lambda t, u, p: -u, 2), [1.0, 2.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.5)
    )
    ds.timestepping.save_run(run, tmp_path / "run.h5")
    with pytest.raises(InputError, match="states of a run on a grid, from timestepping"):
        write_xdmf(tmp_path / "f.xdmf", tmp_path / "run.h5", GRID)
    write_array(tmp_path / "results.h5", "u", VALUES)
    with pytest.raises(InputError, match="states"):
        write_xdmf(tmp_path / "f.xdmf", tmp_path / "results.h5", GRID)


def test_boxes_are_read_back(tmp_path):
    hdf5, box = tmp_path / "results.h5", np.arange(120.0).reshape(3, 4, 5, 2)
    write_array(hdf5, "u", box)
    write_array(hdf5, "one", box[..., 0])
    grid, snapshot = UniformGrid((0.5, 0.25, 0.125)), Snapshot(0.0, {"u": "u", "one": "one"})
    path = write_xdmf(tmp_path / "fields.xdmf", hdf5, grid, [snapshot], ("a", "b"))
    attributes = read_attributes(path)
    np.testing.assert_array_equal(attributes[0, "u_b"], box[..., 1])
    np.testing.assert_array_equal(attributes[0, "one"], box[..., 0])
    items = ET.parse(path).getroot().iterfind(".//Geometry/DataItem")
    assert [item.text for item in items] == ["0.0 0.0 0.0", "0.125 0.25 0.5"]
    with pytest.raises(InputError, match="dx, dy, dz"):
        UniformGrid((1.0,))


def test_points_lie_where_the_grid_says(tmp_path):
    write_array(tmp_path / "results.h5", "u", VALUES)
    path = write_xdmf(
        tmp_path / "f.xdmf", tmp_path / "results.h5", GRID, [Snapshot(0, {"u": "u"})], "ab"
    )
    grid = ET.parse(path).getroot().find(".//Grid[@GridType='Uniform']")
    assert grid.find("Topology").get("Dimensions") == "1 5 7"  # z, y, x: the slowest first
    assert [item.text for item in grid.find("Geometry")] == ["0.0 2.0 1.0", "1.0 0.25 0.5"]


@pytest.mark.mpi
def test_field_of_several_ranks_is_read_from_a_moved_folder(comm, shared_tmp_path):
    results = open_results(shared_tmp_path / "run", comm)
    results.write("fields/u", field(comm))
    results.once(
        lambda: write_xdmf(
            results.path("f.xdmf"), results.hdf5, GRID, [Snapshot(0, {"u": "fields/u"})], "ab"
        )
    )
    if comm.rank == 0:
        moved = shutil.move(results.folder, shared_tmp_path / "elsewhere")
        attributes = read_attributes(Path(moved) / "f.xdmf")
        np.testing.assert_array_equal(attributes[0, "u_b"], VALUES[..., 1])
    comm.Barrier()


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (VALUES[:, :, :1], r'dataset "u" has shape \[5, 7, 1\]\n.*\[5, 7\] or \[5, 7, 2\]'),
        (VALUES.ravel(), r'dataset "u" has shape \[70\]'),
    ],
)
def test_shapes_that_do_not_match_are_named(tmp_path, values, what):
    write_array(tmp_path / "results.h5", "u", values)
    with pytest.raises(InputError, match=what):
        write_xdmf(
            tmp_path / "f.xdmf", tmp_path / "results.h5", GRID, [Snapshot(0, {"u": "u"})], "ab"
        )


def test_missing_dataset_is_named(tmp_path):
    write_array(tmp_path / "results.h5", "u", VALUES)
    with pytest.raises(InputError, match='no dataset "w"'):
        write_xdmf(
            tmp_path / "f.xdmf", tmp_path / "results.h5", GRID, [Snapshot(0, {"w": "w"})], "ab"
        )


def test_paths_may_be_strings(tmp_path):
    write_array(tmp_path / "results.h5", "true", VALUES)
    paths = str(tmp_path / "fields.xdmf"), str(tmp_path / "results.h5")
    path = write_xdmf(*paths, GRID, [Snapshot(0.0, {"true": "true"})], ["u", "v"])
    assert path == tmp_path / "fields.xdmf"
    assert len(read_attributes(path)) == 2
