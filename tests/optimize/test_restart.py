"""Restart files: a run that goes on has the iterates of one that was left alone."""

import json
import resource
from hashlib import blake2b

import h5py
import numpy as np
import pytest
from closed import Closed, Curved, N, Residual, mixed, rosenbrock, rosenbrock_hessian
from petsc4py import PETSc

from daeosens.errors import DaeosensError, InputError, SolveError
from daeosens.optimize import minimize
from daeosens.optimize.methods import METHODS, UNBOUNDED
from daeosens.optimize.restart_file import MARK, TAIL


@pytest.fixture(autouse=True)
def sums_in_one_order():
    """PETSc's products with several vectors are of one order wherever these lie in memory."""
    options, names = PETSc.Options(), ("vec_mdot_use_gemv", "vec_maxpy_use_gemv")
    for name in names:
        options[name] = False
    yield
    for name in names:
        options.delValue(name)


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


# ---- the same iterates ---------------------------------------------------------------------------

CASES = [
    (method, bounded)
    for method in METHODS
    for bounded in (False, True)
    if not (bounded and method in UNBOUNDED)
]


def functional_for(method, comm=PETSc.COMM_SELF):
    return Residual(pieces, START, comm=comm) if method == "brgn" else valley(comm)


def assert_equal_history(whole, parts):
    for column in (*COLUMNS, "evaluations"):
        np.testing.assert_array_equal(
            getattr(parts.history, column), getattr(whole.history, column)
        )
    assert (parts.x - whole.x).norm() == 0.0
    assert (parts.evaluations, parts.reason) == (whole.evaluations, whole.reason)


@pytest.mark.parametrize(("method", "bounded"), CASES)
def test_iterates_are_those_of_an_uninterrupted_run(tmp_path, method, bounded):
    extra = {"method": method, "gradient_tolerance": 1e-7, "max_iterations": 20}
    if bounded:
        extra["bounds"] = (-1.0, np.where(np.arange(12) % 5 == 3, 0.8, 2.0))
    whole = minimize(functional_for(method), **extra)
    assert whole.iterations > 5
    path = tmp_path / "run.h5"
    for most in sorted({2, 5, whole.iterations - 2}):
        parts = minimize(functional_for(method), restart=path, **{**extra, "max_iterations": most})
        assert parts.iterations == most
    functional = functional_for(method)
    parts = minimize(functional, restart=path, **extra)
    assert_equal_history(whole, parts)
    assert parts.notes[0] == f"continued from iterate {most} in run.h5"
    # one more at the last iterate, which tells whether it is the same J
    assert len(functional.points) < 8 + whole.evaluations - whole.history.evaluations[:most].sum()


@pytest.mark.parametrize("inverse", ["dense", "none", "lmvm"])
def test_preconditioners_continue(tmp_path, inverse):
    extra = {"method": "bntr", "preconditioner": inverse, "gradient_tolerance": 1e-10}
    whole = minimize(valley(), **extra)
    path = tmp_path / "run.h5"
    minimize(valley(), max_iterations=3, restart=path, **extra)
    functional = valley()
    assert_equal_history(whole, minimize(functional, restart=path, **extra))
    assert functional.n_products < whole.hessian_products


def test_wells_with_an_indefinite_hessian_continue(tmp_path):
    def wells(x):
        return np.sum((x * x - 1.0) ** 2) / 4.0, x**3 - x

    def functional():
        return Curved(wells, [0.1, 0.2], hessian=lambda x: np.diag(3.0 * x * x - 1.0))

    path = tmp_path / "run.h5"
    minimize(functional(), method="nls", max_iterations=1, restart=path)
    parts = minimize(functional(), method="nls", restart=path)
    assert_equal_history(minimize(functional(), method="nls"), parts)


def test_regularized_least_squares_continue(tmp_path):
    extra = {"method": "brgn", "options": {"tao_brgn_regularization_type": "lm"}}
    extra |= {"gradient_tolerance": 1e-5}
    path = tmp_path / "run.h5"
    minimize(Residual(pieces, START[:3]), max_iterations=2, restart=path, **extra)
    parts = minimize(Residual(pieces, START[:3]), restart=path, **extra)
    assert_equal_history(minimize(Residual(pieces, START[:3]), **extra), parts)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "brgn"])
def test_failed_solves_are_remembered(tmp_path, method):
    def functional():
        return Curved(rosenbrock, [-1.2, 1.0], domain=lambda x: np.hypot(*x) < 1.6)

    whole = minimize(functional(), method=method, max_iterations=20)
    path = tmp_path / "run.h5"
    for most in (0, 5, 12):
        minimize(functional(), method=method, restart=path, max_iterations=most)
    parts = minimize(functional(), method=method, restart=path, max_iterations=20)
    assert_equal_history(whole, parts)
    assert parts.failed_solves == whole.failed_solves


@pytest.mark.slow
def test_finished_run_is_read_again_with_few_evaluations(tmp_path):
    path = tmp_path / "run.h5"
    whole = minimize(valley(), restart=path)
    before = path.read_bytes()
    functional = valley()
    assert_equal_history(whole, minimize(functional, restart=path))
    # next to nothing at the end, so the value at the start is compared as well
    assert len(functional.points) == 2
    assert path.read_bytes() == before


def test_iterates_are_told_once(tmp_path, capsys):
    path = tmp_path / "run.h5"
    extra = {"gradient_tolerance": 1e-3, "restart": path, "progress": True}
    minimize(valley(), max_iterations=4, **extra)
    capsys.readouterr()
    result = minimize(valley(), **extra)
    note = "continued from iterate 4 in run.h5"
    assert result.notes == (note,)
    assert note in str(result)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == note
    assert lines[1].split()[0] == "iter"
    assert lines[2].split()[0] == "5"


def test_other_options_go_another_way_which_is_told(tmp_path):
    path = tmp_path / "run.h5"
    extra = {"options": {"tao_lmvm_mat_lmvm_hist_size": 1}, "max_iterations": 20}
    minimize(valley(), restart=path, max_iterations=20)
    parts = minimize(valley(), restart=path, **extra)
    assert_equal_history(minimize(valley(), **extra), parts)
    assert parts.notes[1].startswith("after iterate 2 it goes another way")
    assert_equal_history(parts, minimize(valley(), restart=path, **extra))


def test_start_is_that_of_the_file(tmp_path):
    path = tmp_path / "run.h5"
    minimize(valley(), restart=path, max_iterations=4)
    parts = minimize(valley(), CONVEX, restart=path, max_iterations=20)
    assert_equal_history(minimize(valley(), max_iterations=20), parts)


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
        r"its value at the last iterate is \S+, 1\.\d+ here",
    ),
}


@pytest.mark.parametrize(("run", "message"), STRANGERS.values(), ids=STRANGERS)
def test_file_of_another_problem_is_refused(tmp_path, run, message):
    path = tmp_path / "run.h5"
    minimize(valley(), method="bnls", max_iterations=6, restart=path)
    before = path.read_bytes()
    with pytest.raises(
        InputError,
        match=f"the restart file is of another problem; .*{message}",
    ):
        run(path)
    assert path.read_bytes() == before


@pytest.mark.slow
def test_another_weight_of_a_cost_that_vanishes_is_noticed(tmp_path):
    def weighted(weight):
        return Closed(lambda x: tuple(weight * part for part in soft(x)), START)

    path = tmp_path / "run.h5"
    whole = minimize(weighted(1.0), restart=path, gradient_tolerance=1e-12)
    assert whole.value < 1e-12 * whole.history.value[0]
    with pytest.raises(InputError, match="its value at the first iterate is"):
        minimize(weighted(2.0), restart=path, gradient_tolerance=1e-12)
    again = minimize(weighted(1.0), restart=path, gradient_tolerance=1e-12)
    assert_equal_history(whole, again)


def test_bounds_that_moved_are_noticed(tmp_path):
    path = tmp_path / "run.h5"
    extra = {"method": "bnls", "restart": path}
    minimize(valley(), bounds=(-1.0, 2.0), max_iterations=2, **extra)
    with pytest.raises(InputError, match=r"upper bound: 12 finite, checksum [0-9a-f]+ in the file"):
        minimize(valley(), bounds=(-1.0, 2.5), **extra)


def test_file_that_is_none(tmp_path):
    path = tmp_path / "run.h5"
    path.write_text("not one")
    functional = valley()
    with pytest.raises(InputError, match=r"run\.h5 is not a restart file, or it is damaged"):
        minimize(functional, restart=path)
    with h5py.File(path, "w") as file:
        file["x"] = 1.0
    with pytest.raises(InputError, match="as restart files of earlier versions were"):
        minimize(functional, restart=path)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=r"run\.h5 cannot be read \(Is a directory\)"):
        minimize(functional, restart=path)
    with pytest.raises(InputError, match=r"nowhere is not there\n  try: another one"):
        minimize(functional, restart=tmp_path / "nowhere" / "run.h5")
    assert functional.points == []


def changed(path, **changes):
    """Change what a restart file says, and give it the right checksum again."""
    content = {**json.loads(path.read_bytes()[:-TAIL]), **changes}
    image = json.dumps(content).encode()
    path.write_bytes(image + MARK + blake2b(image, digest_size=32).digest())


def test_file_of_another_version_is_told(tmp_path):
    path = tmp_path / "run.h5"
    minimize(valley(), max_iterations=2, restart=path)
    changed(path, format="daeosens restart 9", versions={"daeosens": "7.0"})
    with pytest.raises(InputError, match=r'format is "daeosens restart 9", of daeosens 7\.0'):
        minimize(valley(), restart=path)


@pytest.mark.parametrize("damage", ["bit", "cut", "gone"])
def test_damaged_vectors_are_an_error(tmp_path, damage):
    path = tmp_path / "run.h5"
    minimize(valley(), max_iterations=3, restart=path)
    (data,) = tmp_path.glob("run.*.rank0000")
    content = bytearray(data.read_bytes())
    if damage == "gone":
        data.unlink()
    else:
        content[200] ^= 1
        data.write_bytes(content if damage == "bit" else content[:-20])
    with pytest.raises(InputError, match=r"it is damaged|cannot be read"):
        minimize(valley(), restart=path)


def test_file_that_another_process_writes_to_is_not_written_over(tmp_path):
    """As ranks do that all minimise for themselves, with the same file."""
    path = tmp_path / "run.h5"

    def intrude(iterate, _x):
        if iterate.iteration == 2:
            changed(path, writer="process 7 of moon")

    with pytest.raises(InputError, match=r"process 7 of moon has written to it since process \d+"):
        minimize(valley(), method="bnls", restart=path, progress=intrude)


def test_full_disk_is_told_and_leaves_the_last_iterate(tmp_path):
    path = tmp_path / "run.h5"
    before: list[bytes] = []

    def fill(iterate, _x):
        if iterate.iteration == 3:
            before.append(path.read_bytes())
            resource.setrlimit(resource.RLIMIT_FSIZE, (900, limits[1]))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(DaeosensError, match=r"run\.h5: cannot be written \(File too large\)"):
            minimize(valley(), method="bnls", restart=path, progress=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.read_bytes()] == before
    assert_equal_history(
        minimize(valley(), method="bnls"), minimize(valley(), method="bnls", restart=path)
    )


def test_start_of_a_continued_run_may_fail(tmp_path):
    path = tmp_path / "run.h5"
    minimize(valley(), method="bnls", max_iterations=3, restart=path)
    with pytest.raises(SolveError, match="cannot be evaluated at the last iterate of"):
        minimize(valley(domain=lambda x: False), method="bnls", restart=path)


# ---- several ranks -------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["lmvm", "blmvm", "bqnls", "bntr"])
def test_same_iterates_on_several_ranks(shared_tmp_path, comm, method):
    path = shared_tmp_path / "run.h5"
    extra = {"method": method, "gradient_tolerance": 1e-6, "max_iterations": 8}
    whole = minimize(valley(PETSc.COMM_WORLD), **extra)
    for most in (2, 5):
        minimize(valley(PETSc.COMM_WORLD), restart=path, **{**extra, "max_iterations": most})
    assert len(list(shared_tmp_path.glob("run.*.rank*"))) == 2 * comm.size
    functional = valley(PETSc.COMM_WORLD)
    parts = minimize(functional, restart=path, **extra)
    # PETSc's sums over ranks may differ in the last digit between two runs
    assert_same_history(whole, parts, rtol=1e-6)
    assert len(functional.points) < whole.evaluations
    comm.Barrier()
    if comm.rank == 0:  # and on one rank, from the files of several
        alone = valley()
        extra["max_iterations"] = 9
        parts = minimize(alone, restart=path, **extra)
        assert len(parts.notes) == 1
        np.testing.assert_allclose(parts.history.value[:9], whole.history.value[:9], rtol=1e-6)
        assert len(alone.points) < 8
    comm.Barrier()
    further = valley(PETSc.COMM_WORLD)  # from those of one rank again
    extra["max_iterations"] = 10
    parts = minimize(further, restart=path, **extra)
    assert len(further.points) < 8
    assert len(parts.notes) == 1


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
