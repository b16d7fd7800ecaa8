"""Restart files: nothing accepted is lost, and what can continue exactly does."""

import io
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from closed import Curved, N, Residual, mixed, rosenbrock, rosenbrock_hessian
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import DaeosensError, InputError, SolveError
from daeosens.optimize import minimize
from daeosens.optimize.methods import FIRST_ORDER, MEMORY, METHODS, NEWTON, UNBOUNDED
from daeosens.optimize.restart import MARK, TAIL, _checksum

CONVEX = np.linspace(0.8, 1.8, 12)
START = np.full(12, 0.5)


def soft(x):
    return rosenbrock(x, weight=10.0)


def valley(comm=PETSc.COMM_SELF, start=START, **extra):
    return Curved(
        soft, start, hessian=lambda x: rosenbrock_hessian(x, weight=10.0), comm=comm, **extra
    )


def pieces(x):
    """Rosenbrock's chain as residuals, and one that stays."""
    a, b = x[:-1], x[1:]
    n = len(x)
    r = np.concatenate([3.0 * (b - a * a), 1.0 - a, [0.5]])
    jacobian = np.zeros((2 * n - 1, n))
    i = np.arange(n - 1)
    jacobian[i, i], jacobian[i, i + 1], jacobian[n - 1 + i, i] = -6.0 * a, 3.0, -1.0
    return r, jacobian


COLUMNS = ("value", "gradient_norm", "step", "failed_solves", "hessian_products")


def assert_same_history(whole, parts, rtol=1e-12):
    assert whole.iterations == parts.iterations
    for column in COLUMNS:
        expected = getattr(whole.history, column)
        scale = np.abs(expected).max() * 1e-3 if column != "value" else 0.0
        np.testing.assert_allclose(
            getattr(parts.history, column), expected, rtol=rtol, atol=rtol * scale
        )
    np.testing.assert_allclose(parts.x.getArray(), whole.x.getArray(), rtol=rtol)


# ---- exact continuation --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "bounded"),
    [(m, b) for m in NEWTON for b in (False, True) if not (b and m in UNBOUNDED)],
)
@pytest.mark.parametrize("inverse", ["dense", "none"])
def test_newton_continues_the_same_history(tmp_path, method, inverse, bounded):
    extra = {"method": method, "preconditioner": inverse, "gradient_tolerance": 1e-12}
    upper = np.where(np.arange(12) % 5 == 3, 0.8, 2.0)
    if bounded:
        extra["bounds"] = (-1.0, upper)
    convex = np.minimum(CONVEX, np.where(upper < 1.0, 0.75, 1.6)) if bounded else CONVEX
    start = START if method in ("ntr", "bntr") else convex
    whole = minimize(valley(start=start), **extra)
    assert whole.iterations > 5
    path = tmp_path / "run.h5"
    for most in range(whole.iterations + 3):
        parts = minimize(valley(start=start), max_iterations=most, restart=path, **extra)
        assert most == 0 or parts.notes[0].endswith("exactly")
        assert parts.iterations == min(most, whole.iterations)
    assert_same_history(whole, parts)
    assert parts.reason == "CONVERGED_GATOL"
    assert parts.notes == (f"continued from iterate {whole.iterations} in run.h5, exactly",)


@pytest.mark.parametrize("subsolver", ["bnls", "bntr", "bntl"])
def test_gauss_newton_continues_the_same_history(tmp_path, subsolver):
    extra = {
        "method": "brgn",
        "gradient_tolerance": 1e-11,
        "options": {"tao_brgn_subsolver_tao_type": subsolver},
    }
    whole = minimize(Residual(pieces, START), **extra)
    assert whole.iterations > 4
    path = tmp_path / "run.h5"
    minimize(Residual(pieces, START), max_iterations=3, restart=path, **extra)
    parts = minimize(Residual(pieces, START), restart=path, **extra)
    assert_same_history(whole, parts)
    assert parts.notes[0] == "continued from iterate 3 in run.h5, exactly"


def test_evaluations_go_on_counting(tmp_path):
    path = tmp_path / "run.h5"
    functional = valley(start=CONVEX)
    whole = minimize(functional, method="bnls")
    functional.points = []
    minimize(functional, method="bnls", max_iterations=4, restart=path)
    parts = minimize(functional, method="bnls", restart=path)
    assert parts.evaluations == len(functional.points) == whole.evaluations + 1
    again = minimize(functional, method="bnls", restart=path)
    assert again.iterations == parts.iterations
    assert again.converged


@pytest.mark.parametrize("method", NEWTON)
def test_failed_solves_are_remembered(tmp_path, method):
    def domain(x):
        return np.hypot(*x) < 1.6

    def functional():
        return Curved(rosenbrock, [-1.2, 1.0], domain=domain)

    whole = minimize(functional(), method=method)
    path = tmp_path / "run.h5"
    for most in range(0, whole.iterations + 2, 2):
        parts = minimize(functional(), method=method, restart=path, max_iterations=most)
    parts = minimize(functional(), method=method, restart=path)
    assert parts.converged
    if "exactly" in parts.notes[0] and method in ("ntr", "bntr"):
        assert_same_history(whole, parts, rtol=1e-9)


# ---- methods with a memory -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "inverse", "memory"),
    [
        *((method, "auto", "quasi-Newton memory") for method in FIRST_ORDER if method != "bncg"),
        ("bncg", "auto", "conjugate direction"),
        ("bntr", "lmvm", "limited-memory preconditioner"),
    ],
)
def test_what_starts_anew_is_told(tmp_path, capsys, method, inverse, memory):
    path = tmp_path / "run.h5"
    extra = {"method": method, "preconditioner": inverse, "restart": path}
    extra["gradient_tolerance"] = 1e-3
    first = minimize(valley(), max_iterations=4, **extra)
    assert first.notes == ()
    capsys.readouterr()
    result = minimize(valley(), progress=True, **extra)
    note = f"continued from iterate 4 in run.h5; the {memory} starts anew"
    assert result.notes == (note,)
    assert note in str(result)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == note
    assert lines[1].split()[0] == "iter"
    assert lines[2].split()[0] == "5"
    assert result.converged
    np.testing.assert_array_equal(result.history.value[:5], first.history.value)
    np.testing.assert_allclose(result.x.getArray(), 1.0, atol=1e-2)


def test_shift_of_an_indefinite_hessian_is_told(tmp_path):
    def wells(x):
        return np.sum((x * x - 1.0) ** 2) / 4.0, x**3 - x

    functional = Curved(wells, [0.1, 0.2], hessian=lambda x: np.diag(3.0 * x * x - 1.0))
    path = tmp_path / "run.h5"
    minimize(functional, method="nls", max_iterations=1, restart=path)
    result = minimize(functional, method="nls", restart=path)
    assert result.converged
    assert result.notes[0].endswith("; the shift of the indefinite Hessian starts anew")


def test_radius_that_options_choose_is_told(tmp_path):
    path = tmp_path / "run.h5"
    extra = {"method": "bntr", "restart": path, "options": {"tao_bnk_init_type": "interpolation"}}
    minimize(valley(), max_iterations=2, **extra)
    result = minimize(valley(), **extra)
    assert result.converged
    assert result.notes[0].endswith("; the trust radius starts anew")


def test_regularized_least_squares_go_on(tmp_path):
    def functional():
        return Residual(pieces, START[:3])

    extra = {"method": "brgn", "gradient_tolerance": 1e-5, "restart": tmp_path / "run.h5"}
    extra["options"] = {"tao_brgn_regularization_type": "lm"}
    first = minimize(functional(), max_iterations=2, **extra)
    result = minimize(functional(), **extra)
    assert result.converged
    assert " anew" in result.notes[0]
    np.testing.assert_array_equal(result.history.value[:3], first.history.value)
    assert result.iterations > first.iterations


# ---- files ---------------------------------------------------------------------------------------


def other(**changes):
    return lambda path: minimize(valley(), **{"method": "bnls", "restart": path, **changes})


STRANGERS = {
    "method": (other(method="bntr"), "method: bnls in the file, bntr here"),
    "bounds": (other(bounds=(-1.0, 1.0)), "lower bound: none in the file, 12 finite"),
    "preconditioner": (other(preconditioner="lmvm"), "preconditioner: none in the file, lmvm"),
    "size": (
        lambda path: minimize(Curved(mixed, np.ones(N) / 2), method="bnls", restart=path),
        "size: 12 in the file, 7 here",
    ),
    "functional": (
        lambda path: minimize(
            Curved(lambda x: (soft(x)[0] + 1.0, soft(x)[1]), START, hessian=rosenbrock_hessian),
            method="bnls",
            restart=path,
        ),
        r"another problem; value \S+ at its last iterate, 1\.\d+ here",
    ),
}


@pytest.mark.parametrize(("run", "message"), STRANGERS.values(), ids=STRANGERS)
def test_file_of_another_problem_is_refused(tmp_path, run, message):
    path = tmp_path / "run.h5"
    minimize(valley(), method="bnls", max_iterations=6, restart=path)
    before = path.read_bytes()
    with pytest.raises(
        InputError,
        match=f"the file is of another problem.*{message}" if "value" not in message else message,
    ):
        run(path)
    assert path.read_bytes() == before


def test_bounds_that_moved_are_noticed(tmp_path):
    path = tmp_path / "run.h5"
    extra = {"method": "bnls", "restart": path}
    minimize(valley(), bounds=(-1.0, 2.0), max_iterations=2, **extra)
    with pytest.raises(InputError, match="upper bound: 12 finite, checksum 156 in the file"):
        minimize(valley(), bounds=(-1.0, 2.5), **extra)


def test_file_that_is_none(tmp_path):
    path = tmp_path / "run.h5"
    path.write_text("not HDF5")
    functional = valley()
    with pytest.raises(InputError, match=r"run\.h5 is not a restart file, or it is damaged"):
        minimize(functional, restart=path)
    with h5py.File(path, "w") as file:
        file["x"] = 1.0
    with pytest.raises(InputError, match="is not a restart file"):
        minimize(functional, restart=path)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=r"run\.h5 cannot be read \(Is a directory\)"):
        minimize(functional, restart=path)
    with pytest.raises(InputError, match=r"nowhere is not there\n  try: another one"):
        minimize(functional, restart=tmp_path / "nowhere" / "run.h5")
    assert functional.points == []


def changed(path, change):
    """Change what a restart file holds, and give it the right checksum again."""
    held = io.BytesIO(path.read_bytes()[:-TAIL])
    with h5py.File(held, "r+") as file:
        change(file)
    image = held.getvalue()
    path.write_bytes(image + MARK + _checksum(image))


def put(name, values):
    def change(file):
        del file[name]
        file[name] = values

    return change


WRONG = {
    "format": (lambda file: file.attrs.modify("format", "other"), "its format is 'other'"),
    "shape": (put("x", np.ones((12, 1))), r"x has shape \[12, 1\], its size is 12"),
    "size": (put("x", np.ones(5)), r"x has shape \[5\], its size is 12"),
    "not finite": (put("x", np.full(12, np.nan)), "no iterates, or numbers that are not finite"),
    "text": (put("x", ["one"] * 12), "[Oo]peration not defined|onversion"),
    "lengths": (put("history/value", [1.0]), "shorter|longer"),
    "radius": (lambda file: file.attrs.modify("radius", -1.0), "no iterates, or numbers"),
    "history": (lambda file: file.pop("history"), "not found"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_whole_file_with_wrong_contents_is_refused(tmp_path, change, message):
    path = tmp_path / "run.h5"
    minimize(valley(), method="bnls", max_iterations=2, restart=path)
    changed(path, change)
    with pytest.raises(InputError, match=rf"run\.h5 cannot be read \(.*({message})"):
        minimize(valley(), method="bnls", restart=path)


def test_file_that_another_process_writes_to_is_not_written_over(tmp_path):
    """As ranks do that all minimise for themselves, with the same file."""
    path = tmp_path / "run.h5"

    def intrude(iterate, _x):
        if iterate.iteration == 2:
            changed(path, lambda file: file.attrs.modify("writer", "process 7 of moon"))

    with pytest.raises(InputError, match=r"process 7 of moon has written to it since process \d+"):
        minimize(valley(), method="bnls", restart=path, progress=intrude)


def test_full_disk_is_told_and_leaves_the_last_iterate(tmp_path):
    path = tmp_path / "run.h5"
    before: list[bytes] = []

    def fill(iterate, _x):
        if iterate.iteration == 3:
            before.append(path.read_bytes())
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(DaeosensError, match=r"run\.h5: cannot be written \(File too large\)"):
            minimize(valley(), method="bnls", restart=path, progress=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.read_bytes()] == before
    assert list(tmp_path.iterdir()) == [path]


def test_start_of_a_continued_run_may_fail(tmp_path):
    path = tmp_path / "run.h5"
    minimize(valley(), method="bnls", max_iterations=3, restart=path)
    with pytest.raises(SolveError, match="cannot be evaluated at the start"):
        minimize(valley(domain=lambda x: False), method="bnls", restart=path)


KILLED = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {root!r}]
from tests.optimize.test_restart import *
functional = valley()
formula = functional.formula
def deadly(x):
    if len(functional.points) == {last}:
        os.kill(os.getpid(), signal.SIGKILL)
    return formula(x)
functional.formula = deadly
print("begin", flush=True)
minimize(functional, method="bntr", restart={path!r}, gradient_tolerance=1e-12,
         progress=lambda iterate, x: print(iterate.iteration, flush=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize("last", [12, 20])
def test_killed_run_loses_nothing_accepted(tmp_path, last):
    path = tmp_path / "run.h5"
    tests = Path(__file__).parents[1] / "support"
    code = KILLED.format(tests=str(tests), root=str(tests.parents[1]), last=last, path=str(path))
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )
    assert run.returncode == -signal.SIGKILL
    accepted = int(run.stdout.split()[-1])
    extra = {"method": "bntr", "gradient_tolerance": 1e-12}
    parts = minimize(valley(), restart=path, **extra)
    assert parts.notes == (f"continued from iterate {accepted} in run.h5, exactly",)
    assert accepted > 1
    assert_same_history(minimize(valley(), **extra), parts)


# ---- several ranks -------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["bntr", "lmvm"])
def test_any_number_of_ranks_continues(shared_tmp_path, method):
    path = shared_tmp_path / "run.h5"

    functional = valley
    extra = {"method": method, "gradient_tolerance": 1e-6, "restart": path}
    first = minimize(functional(PETSc.COMM_WORLD), max_iterations=3, **extra)
    result = minimize(functional(PETSc.COMM_WORLD), **extra)
    assert result.converged
    np.testing.assert_array_equal(result.history.value[:4], first.history.value)
    MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.rank == 0:
        alone = minimize(functional(PETSc.COMM_SELF), **extra)
        assert alone.iterations == result.iterations
    MPI.COMM_WORLD.Barrier()


@pytest.mark.mpi
def test_bad_file_is_an_error_on_every_rank(shared_tmp_path, comm):
    path = shared_tmp_path / "run.h5"
    if comm.rank == 0:
        path.write_text("nonsense")
    comm.Barrier()
    with pytest.raises(InputError) as caught:
        minimize(valley(PETSc.COMM_WORLD), restart=path)
    assert len(set(comm.allgather(str(caught.value)))) == 1
    with pytest.raises(DaeosensError) as caught:
        minimize(valley(PETSc.COMM_WORLD), restart=shared_tmp_path / "no" / "run.h5")
    assert len(set(comm.allgather(str(caught.value)))) == 1


def test_every_method_with_a_memory_is_described():
    assert set(MEMORY) == set(METHODS) - set(NEWTON)
