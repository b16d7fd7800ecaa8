"""What runs and gradients take and leave: measured in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
BENCH = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.mark.slow
def test_long_runs_in_numpy_take_little_more_than_their_states():
    """80 bytes a step are the ten unknowns, 16 time and size; a vector each would take 2000."""
    options = ["--steps", "20000", "--derivatives", "given"]
    command = [sys.executable, BENCH / "long_runs.py", *options]
    bytes_of = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert bytes_of["steps"] == 20000
    for moment in ("run", "run at most", "gradient", "gradient at most"):
        assert bytes_of[moment] <= 200.0, bytes_of
    assert bytes_of["seconds of both"] <= 10.0


@pytest.mark.slow
def test_cycles_of_solve_and_adjoint_leave_nothing_on_two_ranks(run_mpi):
    """130 bytes a cycle were left once; a list that grows now and then is not a leak."""
    job = run_mpi(2, [SUPPORT / "cycles.py", "400"])
    assert job.returncode == 0, job.stderr
    for line in job.stdout.splitlines():
        _style, _method, *grown = line.split()
        assert len(grown) == 2
        assert max(map(float, grown)) < 64.0, job.stdout
    assert len(job.stdout.splitlines()) == 2
