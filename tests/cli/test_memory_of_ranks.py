"""No rank of several has anything of the size of the whole: twice as many have half of it each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from daeosens.cli.launch import mpi_environment, mpiexec

PROGRAM = Path(__file__).parents[1] / "support" / "peak_memory.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.access("/proc/self/clear_refs", os.W_OK), reason="no peaks of memory (Linux)"
    ),
]


@pytest.fixture(autouse=True)
def only_where_all_is_tried(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("all"):
        pytest.skip("programs on seven ranks: --all")


@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_memory_of_a_rank_halves_with_twice_the_ranks(method: str):
    states = 8 * 2 * 448**2
    grown = {}
    for ranks in (1, 2, 4):
        command = [*mpiexec(ranks), sys.executable, str(PROGRAM), method]
        inherited = {k: v for k, v in mpi_environment(ranks).items() if not k.startswith("PMIX_")}
        done = subprocess.run(command, env=inherited, capture_output=True, text=True, check=True)
        small, large = map(int, done.stdout.split())
        grown[ranks] = large
        assert small < 0.2 * large
    assert grown[1] > 10 * states, grown  # there is something to halve
    # one rank takes other ways, in which vectors are used again sooner
    assert grown[2] < grown[1], grown
    # what is shared out halves; a vector of the whole grid on each rank would not
    assert 2.0 * grown[4] - grown[2] < 0.5 * states, grown
