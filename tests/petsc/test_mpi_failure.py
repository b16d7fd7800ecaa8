"""An exception on one rank ends the whole job, with that rank's traceback and a non-zero code."""

import re
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "support" / "failing_rank.py"

CALLBACKS = [
    ("rhs", "rk4"),
    ("rhs", "cn"),
    ("jacobian", "cn"),
    ("jacobian.apply", "cn"),
    ("jacobian.apply_transpose", "rk4"),
    ("jacobian_p", "rk4"),
    ("terminal", "rk4"),
    ("terminal gradient_u", "rk4"),
]


def run(run_mpi, *arguments):
    return run_mpi(2, [PROGRAM, *arguments])


@pytest.mark.slow
@pytest.mark.parametrize(("callback", "method"), CALLBACKS)
def test_exception_of_one_rank_ends_the_job_with_its_traceback(run_mpi, callback, method):
    """The other rank waits for ghost values or a sum, and would wait for ever."""
    job = run(run_mpi, callback, method, "KeyError")
    assert job.returncode != 0
    assert "KeyError: 'no data for this region'" in job.stderr
    assert "[rank 1] Traceback (most recent call last):" in job.stderr
    assert re.search(r'File ".*failing_rank\.py", line \d+, in call', job.stderr)
    note = rf"in callback '{re.escape(callback)}' at t = 0\.[0-9]+ \(rank 1\)"
    assert re.search(note, job.stderr)
    assert "[rank 0] Traceback" not in job.stderr


@pytest.mark.slow
def test_exception_in_a_callback_without_time_names_it_too(run_mpi):
    job = run(run_mpi, "initial_state", "rk4", "KeyError")
    assert job.returncode != 0
    assert "KeyError: 'no data for this region'" in job.stderr
    assert "in callback 'initial_state' (rank 1)" in job.stderr


@pytest.mark.slow
@pytest.mark.parametrize("where", ["when", "reset"])
@pytest.mark.parametrize("rank", [0, 2])
def test_exception_in_a_function_of_an_event_names_it_too(run_mpi, where, rank):
    """Of the first rank as of the last; the others wait in the right-hand side."""
    job = run_mpi(3, [PROGRAM.with_name("failing_event.py"), where, str(rank)])
    assert job.returncode != 0
    assert f"[rank {rank}] Traceback" in job.stderr
    assert "MemoryError: lost on one rank" in job.stderr
    note = rf"in callback 'event \"event\" {where}' at t = [0-9.]+ \(rank {rank}\)"
    assert re.search(note, job.stderr)


def test_bad_input_found_by_one_rank_only_ends_the_job_too(run_mpi):
    job = run(run_mpi, "rhs", "rk4", "InputError")
    assert job.returncode != 0
    assert "InputError: no data for this region" in job.stderr
    assert "in callback 'rhs' at t = 0.1" in job.stderr


@pytest.mark.slow
def test_failed_solves_of_all_ranks_can_be_caught(run_mpi):
    """SolveError is exempt: whoever raises it does so on every rank."""
    job = run(run_mpi, "rhs", "rk4", "SolveError")
    assert job.returncode == 0
    for rank in (0, 1):
        assert f"rank {rank}: SolveError: no data for this region" in job.stdout


@pytest.mark.slow
def test_uncaught_exception_outside_callbacks_ends_the_job(run_mpi, tmp_path):
    """In the script itself, while the other rank waits in a sum."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; sys.path.insert(0, 'tests/support')\n"
        "from petsc4py import PETSc\n"
        "from distributed import make\n"
        "case = make(PETSc.COMM_WORLD)\n"
        "if case.problem.comm.rank == 1:\n"
        "    raise LookupError('lost on one rank')\n"
        "case.u0.sum()\n"
    )
    job = run_mpi(2, [script])
    assert job.returncode != 0
    assert "[rank 1] Traceback" in job.stderr
    assert "LookupError: lost on one rank" in job.stderr


@pytest.mark.slow
def test_a_call_that_only_some_ranks_make_ends_the_job_and_is_named(run_mpi, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time; sys.path.insert(0, 'tests/support')\n"
        "os.environ['DAEOSENS_PATIENCE'] = '1'\n"
        "from petsc4py import PETSc\n"
        "from distributed import make\n"
        "from daeosens import Stepping, solve\n"
        "case = make(PETSc.COMM_WORLD)\n"
        "if case.problem.comm.rank == 0:\n"
        "    solve(case.problem, case.u0, case.p, Stepping((0.0, 1.0), 'rk4', dt=0.1))\n"
        "time.sleep(600)\n"
    )
    job = run_mpi(2, [script])
    assert job.returncode != 0
    assert "solve: rank 0 has waited 1 s for other ranks of 2, which do not make this" in job.stderr
    assert "in <module>" in job.stderr  # where the call stands
    assert "[rank 1] Traceback" not in job.stderr


LEAVING = """
import sys, time; sys.path.insert(0, 'tests/support')
from petsc4py import PETSc
from distributed import make
from daeosens import Stepping, solve

case = make(PETSc.COMM_WORLD)
comm, last = PETSc.COMM_WORLD, PETSc.COMM_WORLD.size - 1
stepping = Stepping((0.0, 1.0), 'rk4', dt=0.1)
if sys.argv[1] == 'missing' and comm.rank < last:
    solve(case.problem, case.u0, case.p, stepping)
if sys.argv[1] == 'late':  # a rank that is slow, or has more to do, is none that is missing
    time.sleep(2.5 * (comm.rank == last))
    solve(case.problem, case.u0, case.p, stepping)
    time.sleep(2.5 * (comm.rank == 0))
print(f'rank {comm.rank} is at its end', flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_call_that_a_rank_cannot_make_any_more_ends_the_job_at_once(run_mpi, tmp_path, ranks):
    """Its program is at its end: nobody has to be patient (60 s by default)."""
    script = tmp_path / "script.py"
    script.write_text(LEAVING)
    job = run_mpi(ranks, [script, "missing"])
    assert job.returncode == 2
    told = rf"solve: rank \d waits for rank {ranks - 1}, whose program is at its end"
    assert re.search(told, job.stderr)
    assert "in <module>" in job.stderr


@pytest.mark.slow
def test_ranks_that_are_late_are_waited_for(run_mpi, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(LEAVING)
    job = run_mpi(2, [script, "late"])
    assert job.returncode == 0, job.stderr
    assert {f"rank {rank} is at its end" for rank in (0, 1)} <= set(job.stdout.splitlines())
