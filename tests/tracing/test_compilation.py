"""The cache of compiled models: kept, shared, mended, and done without."""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from petsc4py import PETSc

import daeosens as ds
from daeosens import Stepping
from daeosens.errors import DaeosensError
from daeosens.problem.grids import Grid
from daeosens.tracing import compilation, execution

MODEL = """
import numpy as np
import daeosens as ds
from mpi4py import MPI

def rhs(t, u, p):
    return np.array([u[1], -p.k * np.sin(u[0]) - {damping} * u[1]])

model = ds.trace(rhs, 2, {{"k": ()}}, comm=MPI.COMM_SELF)
run = ds.solve(model, [1.0, 0.0], [1.5], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
print(repr(run.final.array[0]))
"""


@pytest.fixture
def cache(shared_tmp_path, comm, monkeypatch):
    """An empty cache, and a compiler that notes its calls."""
    folder = shared_tmp_path / "cache"
    compiler = shared_tmp_path / "counting-cc"
    if comm.rank == 0:
        compiler.write_text(
            f'#!/bin/sh\ncase "$*" in *" -o "*) echo call >>{shared_tmp_path}/calls;; esac\n'
            f'sleep ${{DELAY:-0}}\nexec {shutil.which("cc")} "$@"\n'
        )
        compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    comm.barrier()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(shared_tmp_path / "data"))
    monkeypatch.setenv("CC", str(compiler))
    return folder / "daeosens" / "traced"


def calls(cache):
    noted = cache.parents[2] / "calls"
    return len(noted.read_text().split()) if noted.exists() else 0


def checksum_of(library):
    return library.parents[3] / "data" / "daeosens" / "checksums" / f"{library.stem}.sha256"


def pendulum(comm=MPI.COMM_SELF, *, damping=0.1):
    def rhs(t, u, p):
        return np.array([u[1], -p.k * np.sin(u[0]) - damping * u[1]])

    return ds.trace(rhs, 2, {"k": ()}, comm=comm)


def swing(model):
    return ds.solve(
        model, [1.0, 0.0], [1.5], Stepping((0.0, 1.0), "rk4", dt=0.1)
    ).final.array.copy()


def test_a_model_is_compiled_once_and_again_if_it_changes(cache):
    first = swing(pendulum())
    assert calls(cache) == 1
    np.testing.assert_array_equal(swing(pendulum()), first)
    assert calls(cache) == 1
    assert swing(pendulum(damping=0.2))[0] != first[0]
    assert calls(cache) == 2
    assert not list(cache.glob("compiling-*"))


@pytest.mark.slow
def test_another_process_finds_what_was_compiled(cache):
    first = swing(pendulum())
    (process,) = start(1, damping=0.1)
    assert process.communicate()[0].strip() == repr(first[0])
    assert calls(cache) == 1


def start(count, damping):
    return [
        subprocess.Popen(
            [sys.executable, "-c", MODEL.format(damping=damping)],
            env=os.environ | {"PYTHONPATH": str(Path(ds.__file__).parents[1])},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]


@pytest.mark.slow
def test_of_concurrent_processes_one_compiles(cache, monkeypatch):
    monkeypatch.setenv("DELAY", "1")
    running = start(2, damping=0.3)
    results = {item.communicate()[0] for item in running}
    assert [item.returncode for item in running] == [0, 0]
    assert len(results) == 1
    assert calls(cache) == 1


@pytest.mark.parametrize("damage", ["emptied", "cut", "changed", "no checksum"])
def test_a_damaged_file_is_made_again(cache, damage):
    first = swing(pendulum(damping=0.4))
    (library,) = cache.glob("*.so")
    content = library.read_bytes()
    library.unlink()  # the process goes on with the old one
    if damage == "no checksum":
        library.write_bytes(content)
        checksum_of(library).unlink()
    else:
        parts = {"emptied": b"", "cut": content[: len(content) // 2], "changed": content[::-1]}
        library.write_bytes(parts[damage])
    np.testing.assert_array_equal(swing(pendulum(damping=0.4)), first)
    assert calls(cache) == 2
    assert library.stat().st_size == len(content)


def test_who_can_write_to_the_cache_alone_plants_nothing(cache):
    """A library with its own checksum beside it is not loaded: it is made again."""
    first = swing(pendulum(damping=0.8))
    (library,) = cache.glob("*.so")
    planted = library.read_bytes() + b"planted"
    library.unlink()
    library.write_bytes(planted)
    library.with_suffix(".sha256").write_text(hashlib.sha256(planted).hexdigest())
    np.testing.assert_array_equal(swing(pendulum(damping=0.8)), first)
    assert calls(cache) == 2
    assert b"planted" not in library.read_bytes()[-7:]


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o000])
def test_files_and_folders_are_the_user_s_alone_whatever_the_umask(cache, umask):
    before = os.umask(umask)
    try:
        swing(pendulum(damping=0.9))
    finally:
        os.umask(before)
    (library,) = cache.glob("*.so")
    checksum = checksum_of(library)
    folders = [cache, *list(cache.parents)[:2], checksum.parent, *list(checksum.parents)[1:3]]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in (library, checksum)} == {0o600}


@pytest.mark.parametrize("place", ["folder", "library", "checksum", "checksums"])
@pytest.mark.parametrize("change", ["mode", "owner"])
def test_what_others_may_write_to_is_not_loaded(cache, place, change, monkeypatch):
    swing(pendulum(damping=1.1))
    (library,) = cache.glob("*.so")
    checksum = checksum_of(library)
    places = {"folder": cache, "library": library, "checksum": checksum}
    path = places.get(place, checksum.parent)
    if change == "mode":
        path.chmod(path.stat().st_mode | stat.S_IWGRP)
        told = r"mode 0[67][276]0"
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        told = "expected: owner 12345"
    with pytest.raises(
        compilation.UnsafeCacheError, match=rf"others may have written(.|\n)*{told}"
    ):
        pendulum(damping=1.1)
    assert calls(cache) == 1


@pytest.mark.parametrize("above", [1, 2])
def test_a_cache_that_others_may_exchange_is_not_loaded(cache, above):
    """They would put their own in its place between the check and the loading."""
    swing(pendulum(damping=1.2))
    folder = cache.parents[above - 1]
    folder.chmod(0o777)
    told = rf"{folder}: others may exchange what is in it .*mode 0777(.|\n)*try: chmod o-w {folder}"
    with pytest.raises(compilation.UnsafeCacheError, match=told):
        pendulum(damping=1.2)
    folder.chmod(0o1777)  # as /tmp
    pendulum(damping=1.2)
    assert calls(cache) == 1


def test_a_cache_below_a_folder_of_another_user_is_not_loaded(tmp_path):
    if os.geteuid() == 0:
        os.chown(tmp_path, 12345, -1)
        with pytest.raises(compilation.UnsafeCacheError, match=r"exchange .*owner 12345"):
            compilation.private_folder(tmp_path / "traced")
    else:  # root's are everybody's
        assert compilation.private_folder(tmp_path / "traced").is_dir()


def test_links_are_looked_at_on_both_ways(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "real").mkdir()
    (tmp_path / "open" / "link").symlink_to(tmp_path / "real")
    with pytest.raises(compilation.UnsafeCacheError, match=r"open: others may exchange"):
        compilation.private_folder(tmp_path / "open" / "link" / "traced")


def test_a_cache_that_cannot_be_written_is_done_without(cache, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    first = swing(pendulum())
    np.testing.assert_array_equal(swing(pendulum()), first)
    assert calls(cache) == 1


@pytest.mark.parametrize("broken", ["missing", "failing"])
def test_without_a_compiler_there_is_one_warning_and_the_right_numbers(cache, broken, monkeypatch):
    compiled = swing(pendulum(damping=0.5))
    monkeypatch.setenv("CC", "no-such-compiler" if broken == "missing" else "false")
    execution._warn.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"without being compiled(.|\n)*try: a C compiler"):
        model = pendulum(damping=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pendulum(damping=0.5)
    for value in (model, again):
        np.testing.assert_allclose(swing(value), compiled, rtol=1e-14)
    assert model.native == {}


def test_the_compiler_may_have_arguments(cache, monkeypatch):
    monkeypatch.setenv("CC", f"{os.environ['CC']} -DUNUSED=1")
    swing(pendulum())
    assert calls(cache) == 1


def test_what_the_compiler_says_is_in_the_error(cache):
    with pytest.raises(compilation.CompilerError, match="counting-cc failed: "):
        compilation.load("int f(void) { return missing; }", MPI.COMM_SELF)


@pytest.mark.mpi
def test_the_first_rank_compiles_for_all(cache, comm):
    value = swing(pendulum(comm, damping=0.6))[0]
    assert comm.allgather(value) == [value] * comm.size
    assert calls(cache) == 1


@pytest.mark.mpi
@pytest.mark.filterwarnings("ignore:traced models run without being compiled")
def test_ranks_without_a_compiler_all_go_on(cache, comm, monkeypatch):
    expected = swing(pendulum(comm, damping=0.7))
    monkeypatch.setenv("CC", "no-such-compiler")
    np.testing.assert_allclose(swing(pendulum(comm, damping=0.7)), expected, rtol=1e-14)
    comm.barrier()


def decay(t, u, p):
    return p.rate * u.laplacian() - u.center**3


@pytest.mark.mpi
def test_functions_of_points_are_compiled_when_they_are_called(cache, comm):
    grid = Grid([(0.0, 1.0)], [12], comm=PETSc.COMM_WORLD)
    model = ds.trace_stencil(decay, grid, ["rate"])
    assert calls(cache) == 1  # f
    state = model.state.duplicate()
    state.set(1.5)
    run = ds.solve(model, state, [0.1], Stepping((0.0, 0.1), "rk4", dt=0.01))
    stages = comm.size == 1  # of a step at once
    assert calls(cache) == 1 + stages
    energy = ds.Terminal(lambda t, u, p: u.dot(u) / 2, lambda t, u, p, out: u.copy(out))
    gradient = ds.adjoint(run, energy)
    assert calls(cache) == 2 + stages  # transposed products with f_u and f_p
    # the field stays uniform: u' = -u^3
    final = 1.5 / np.sqrt(1.0 + 2.0 * 0.1 * 1.5**2)
    np.testing.assert_allclose(run.final.array, final, rtol=1e-6)
    np.testing.assert_allclose(gradient.u0_vec.array, final * (final / 1.5) ** 3, rtol=1e-6)


@pytest.mark.mpi
def test_functions_that_a_rank_cannot_compile_any_more_are_errors_everywhere(
    cache, comm, monkeypatch
):
    model = ds.trace_stencil(decay, Grid([(0.0, 1.0)], [12], comm=PETSc.COMM_WORLD), ["rate"])
    run = ds.solve(model, model.state, [0.1], Stepping((0.0, 0.1), "beuler", dt=0.05))
    energy = ds.Terminal(lambda t, u, p: u.dot(u) / 2, lambda t, u, p, out: u.copy(out))
    if comm.rank == comm.size - 1:
        monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(DaeosensError, match="no C compiler no-such-compiler"):
        ds.adjoint(run, energy)
    monkeypatch.undo()
