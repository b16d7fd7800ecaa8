"""Results folders and HDF5: what is written is read back on any number of ranks, or refused."""

import contextlib
import json
import os
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import DaeosensError, InputError
from daeosens.io import versions
from daeosens.io.hdf5 import (
    read_array,
    read_vec,
    write_array,
    write_vec,
)
from daeosens.io.json import plain
from daeosens.io.results import close_results, open_results, read_status, write_summary

NX, NY, DOF = 7, 5, 2


def field(comm: MPI.Intracomm, sizes: tuple[int, ...] = (NX, NY), dof: int = DOF) -> PETSc.Vec:
    """Return a vector whose entry [.., y, x, c] is its own index in the stored array."""
    da = PETSc.DMDA().create(sizes, dof=dof, comm=PETSc.Comm(comm))
    vec = da.createGlobalVec()
    starts, extents = da.getCorners()
    whole = np.arange(np.prod(sizes) * dof, dtype=float).reshape(*sizes[::-1], dof)
    own = tuple(slice(s, s + e) for s, e in zip(starts[::-1], extents[::-1], strict=True))
    vec.getArray()[...] = whole[own].ravel()
    return vec


def plain_vec(comm: MPI.Intracomm, n: int = 11) -> PETSc.Vec:
    vec = PETSc.Vec().createMPI(n, comm=PETSc.Comm(comm))
    start, end = vec.getOwnershipRange()
    vec.getArray()[...] = np.arange(start, end)
    return vec


# ---- HDF5 ----------------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("sizes", [(NX, NY), (9,), (4, 5, 6)])
def test_field_is_stored_in_natural_order(comm, shared_tmp_path, sizes):
    path = shared_tmp_path / "results.h5"
    write_vec(path, "fields/u", field(comm, sizes))
    stored = read_array(path, "fields/u", (*sizes[::-1], DOF))
    np.testing.assert_array_equal(stored.ravel(), np.arange(stored.size))


@pytest.mark.mpi
def test_vector_shorter_than_the_number_of_ranks_is_stored(comm, shared_tmp_path):
    path = shared_tmp_path / "results.h5"
    write_vec(path, "tiny", plain_vec(comm, 1))
    np.testing.assert_array_equal(read_array(path, "tiny"), [0.0])


@pytest.mark.mpi
@pytest.mark.parametrize("make", [field, plain_vec])
def test_vector_is_read_back_into_another_distribution(comm, shared_tmp_path, make):
    path = shared_tmp_path / "results.h5"
    write_vec(path, "u", make(comm))
    everything = make(MPI.COMM_SELF)
    out = everything.duplicate()
    for rank in range(comm.size):  # each rank alone, as a job of one rank would
        if rank == comm.rank:
            read_vec(path, "u", out)
        comm.Barrier()
    assert out.equal(everything)
    again = make(comm)
    again.set(0.0)
    read_vec(path, "u", again)
    assert again.equal(make(comm))


@pytest.mark.mpi
def test_writing_again_replaces(comm, shared_tmp_path):
    path = shared_tmp_path / "results.h5"
    vec = field(comm)
    write_vec(path, "u", vec)
    vec.scale(2.0)
    write_vec(path, "u", vec)
    assert read_array(path, "u").max() == 2.0 * (NX * NY * DOF - 1)
    write_vec(path, "u", plain_vec(comm))
    assert read_array(path, "u").shape == (11,)


@pytest.mark.mpi
def test_moved_folder_is_still_whole(comm, shared_tmp_path):
    here, there = shared_tmp_path / "here", shared_tmp_path / "there"
    if comm.rank == 0:
        here.mkdir()
    comm.Barrier()
    write_vec(here / "results.h5", "u", field(comm))
    comm.Barrier()
    if comm.rank == 0:
        here.rename(there)
    comm.Barrier()
    assert read_array(there / "results.h5", "u").sum() == sum(range(NX * NY * DOF))
    comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_missing_block_of_another_rank_is_refused(comm, shared_tmp_path):
    path = shared_tmp_path / "results.h5"
    write_vec(path, "u", field(comm))
    comm.Barrier()
    if comm.rank == 0:
        (shared_tmp_path / "results.rank0001.h5").unlink()
    comm.Barrier()
    with pytest.raises(InputError, match=r"rank0001\.h5: no such file"):
        read_vec(path, "u", field(comm))
    with pytest.raises(InputError, match=r"rank0001\.h5: no such file"):
        read_array(path, "u")


@pytest.mark.mpi(min_size=2)
def test_block_of_another_run_is_refused(comm, shared_tmp_path):
    path = shared_tmp_path / "results.h5"
    write_vec(path, "u", plain_vec(comm, 12))
    comm.Barrier()
    if comm.rank == 0:
        write_array(shared_tmp_path / "results.rank0000.h5", "u", np.zeros(99))
    comm.Barrier()
    with pytest.raises(InputError, match=r"rank0000.h5: dataset \"u\" has shape \[99\]"):
        read_vec(path, "u", plain_vec(comm, 12))


@pytest.mark.mpi
def test_wrong_shape_names_dataset_and_both_shapes(comm, shared_tmp_path):
    path = shared_tmp_path / "results.h5"
    write_vec(path, "fields/u", field(comm))
    out = field(comm, (NX, NY + 1))
    before = out.copy()
    with pytest.raises(
        InputError, match=r'dataset "fields/u" has shape \[5, 7, 2\]\n.*shape \[6, 7, 2\]'
    ):
        read_vec(path, "fields/u", out)
    assert out.equal(before)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "remedy"), [("fields/v", 'try: "fields/u"'), ("fields", "one of")]
)
def test_missing_dataset_names_the_nearest(comm, shared_tmp_path, name, remedy):
    path = shared_tmp_path / "results.h5"
    write_vec(path, "fields/u", field(comm))
    with pytest.raises(InputError, match=f'no dataset "{name}"(.|\n)*{remedy}'):
        read_vec(path, name, field(comm))


@pytest.mark.mpi
def test_damaged_file_is_refused_on_every_rank(comm, shared_tmp_path):
    path = shared_tmp_path / "results.h5"
    write_vec(path, "u", field(comm))
    comm.Barrier()
    if comm.rank == 0:
        os.truncate(path, 600)
    comm.Barrier()
    with pytest.raises(InputError, match=r"results\.h5: not readable as HDF5"):
        read_vec(path, "u", field(comm))


def test_every_truncation_and_overwriting_is_refused_or_read_right(tmp_path):
    """Damage at any place is either noticed or does not matter; it is never a crash."""
    path = tmp_path / "results.h5"
    values = np.arange(40.0)
    write_array(path, "group/u", values)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 97):
        for damaged in (whole[:cut], whole[:cut] + b"\xff" * 97 + whole[cut + 97 :]):
            path.write_bytes(damaged)
            with contextlib.suppress(InputError):
                assert read_array(path, "group/u").shape == (40,)


def test_values_that_are_not_finite_are_refused(tmp_path):
    path = tmp_path / "results.h5"
    write_array(path, "u", [1.0, np.nan, np.inf])
    with pytest.raises(InputError, match="2 values that are not finite"):
        read_array(path, "u")


def test_text_is_not_read_as_numbers(tmp_path):
    path = tmp_path / "results.h5"
    write_array(path, "note", "hello")
    with pytest.raises(InputError, match='"note" holds text'):
        read_array(path, "note")


@pytest.mark.mpi
def test_unwritable_file_is_an_error_on_every_rank(comm, shared_tmp_path):
    path = shared_tmp_path / "no folder" / "results.h5"
    with pytest.raises(DaeosensError, match="cannot be written"):
        write_vec(path, "u", field(comm))


# ---- folders -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    value: float
    deviations: np.ndarray


@pytest.mark.mpi
def test_folder_holds_all_that_a_run_leaves(comm, shared_tmp_path, capsys):
    folder = shared_tmp_path / "deep" / "run"
    results = open_results(folder, comm, config_text="dt = 0.1\n", run={"driver": "test"})
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "running"
    results.say("step 1")
    results.record("estimate", Estimate(1.5, np.array([0.1, np.nan])))
    results.write("u", field(comm))
    results.write("history/value", [3.0, 2.0])
    results.write("whole", plain_vec(MPI.COMM_SELF))
    assert results.array("history/value").tolist() == [3.0, 2.0]
    out = field(comm)
    out.set(0.0)
    results.read("u", out)
    assert out.equal(field(comm))
    drawn = results.once(lambda: results.path("fit.png"))
    close_results(results, "converged")

    assert drawn == folder / "fit.png"
    assert capsys.readouterr().out == ("step 1\n" if comm.rank == 0 else "")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "converged"
    assert summary["facts"] == {"estimate": {"value": 1.5, "deviations": [0.1, "nan"]}}
    assert summary["run"] == {"driver": "test"}
    assert summary["ranks"] == comm.size
    assert summary["versions"]["petsc"].startswith("3.")
    with h5py.File(results.hdf5, "r") as file:
        assert file["run/config.toml"][()] == b"dt = 0.1\n"
        assert file["run/log.txt"][()] == b"step 1\n"
        assert json.loads(file["run/versions.json"][()]) == summary["versions"]
    assert (folder / "config.toml").read_text(encoding="utf-8") == "dt = 0.1\n"
    comm.Barrier()


@pytest.mark.mpi
def test_folder_of_an_earlier_run_is_cleared_of_our_files_only(comm, shared_tmp_path):
    results = open_results(shared_tmp_path, comm)
    results.write("u", field(comm))
    if comm.rank == 0:
        (shared_tmp_path / "results.rank0009.h5").touch()
        (shared_tmp_path / "notes.txt").touch()
    open_results(shared_tmp_path, comm)
    names = {path.name for path in shared_tmp_path.iterdir()}
    assert names == {"config.toml", "log.txt", "summary.json", "notes.txt"}
    comm.Barrier()


@pytest.mark.mpi
@pytest.mark.parametrize("summary", [None, "{}", "[]", "not json"])
def test_folder_of_somebody_else_is_refused(comm, shared_tmp_path, summary):
    if comm.rank == 0:
        (shared_tmp_path / "thesis.tex").touch()
        if summary is not None:
            (shared_tmp_path / "summary.json").write_text(summary, encoding="utf-8")
    with pytest.raises(InputError, match="not empty, and not a results folder"):
        open_results(shared_tmp_path, comm)
    comm.Barrier()
    assert (shared_tmp_path / "thesis.tex").exists()


@pytest.mark.mpi
def test_unwritable_folder_is_refused_on_every_rank(comm, shared_tmp_path):
    if comm.rank == 0:
        (shared_tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot be written \((Not a directory|File exists)\)"):
        open_results(shared_tmp_path / "file" / "run", comm)


@pytest.mark.mpi
def test_summary_can_be_written_by_one_rank_alone(comm, shared_tmp_path):
    results = open_results(shared_tmp_path, comm)
    if comm.rank == comm.size - 1:
        write_summary(results, "crashed", "ValueError: odd")
    comm.Barrier()
    summary = json.loads((shared_tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert (summary["status"], summary["error"]) == ("crashed", "ValueError: odd")
    comm.Barrier()


def test_plain_values_are_what_json_knows():
    values = {
        "a": np.float64(1.5),
        2: (np.int64(3), True),
        "p": Path("x/y"),
        "n": None,
        "i": -np.inf,
    }
    assert plain(values) == {"a": 1.5, "2": [3, True], "p": "x/y", "n": None, "i": "-inf"}


def test_missing_package_is_told_as_such(monkeypatch):
    def refuse(name: str) -> str:
        raise versions.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(versions.metadata, "version", refuse)
    assert versions.versions()["scipy"] == "not installed"


def summarize(folder, **changes):
    path = folder / "summary.json"
    summary = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**summary, **changes}), encoding="utf-8")


def test_status_of_a_run_that_is_no_more_is_interrupted(tmp_path):
    open_results(tmp_path, MPI.COMM_SELF)
    with subprocess.Popen(["sleep", "60"]) as other:
        here = socket.gethostname()
        summarize(tmp_path, process={"host": here, "pid": other.pid})
        assert read_status(tmp_path) == "running"
        # the same number, but another process
        summarize(tmp_path, process={"host": here, "pid": other.pid, "began": 1})
        assert read_status(tmp_path) == "interrupted"
        summarize(tmp_path, process={"host": here, "pid": other.pid})
        told = f"process {other.pid} of this machine writes its results there"
        with pytest.raises(InputError, match=told):
            open_results(tmp_path, MPI.COMM_SELF)
        other.kill()
        while read_status(tmp_path) == "running":  # also while nobody has waited for it
            time.sleep(0.001)
    assert read_status(tmp_path) == "interrupted"
    summarize(tmp_path, process={"host": "elsewhere", "pid": 1})
    assert read_status(tmp_path) == "running"
    open_results(tmp_path, MPI.COMM_SELF)


def test_status_of_another_folder_is_an_error(tmp_path):
    with pytest.raises(InputError, match=f"{tmp_path}: not a results folder"):
        read_status(tmp_path)


def test_folder_of_a_run_that_was_killed_at_once_is_used(tmp_path):
    (tmp_path / ".summary.json.1-2.new").write_text("{")
    open_results(tmp_path, MPI.COMM_SELF)
    assert read_status(tmp_path) == "running"
    assert not list(tmp_path.glob(".*"))


def test_summary_without_room_is_written_over_the_old_one_or_told(tmp_path, monkeypatch, capsys):
    results = open_results(tmp_path, MPI.COMM_SELF)

    def full(path, _content):
        raise DaeosensError(f"{path}: cannot be written (No space left on device)")

    monkeypatch.setattr("daeosens.io.results.replace_file", full)
    write_summary(results, "failed", "the disk is full")
    assert read_status(tmp_path) == "failed"
    results.record("numbers", np.arange(3000))
    write_summary(results, "converged")
    assert read_status(tmp_path) == "failed"
    told = capsys.readouterr().err
    assert "summary.json: cannot be written (No space left on device); it would say:" in told
    assert '"status": "converged"' in told
