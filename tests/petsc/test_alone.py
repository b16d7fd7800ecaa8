"""Every public collective, entered by one rank of two alone: it is named, and nobody waits."""

import re
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "support" / "alone.py"
TABLE = re.findall(r'^        "([^"]+)": ', PROGRAM.read_text(), re.MULTILINE)
FOUND = re.compile(r"found: .*rank 0 has waited 0\.1 s for other ranks of 2, which do not make")


def test_a_rank_that_is_alone_is_told_which_call_it_is_alone_with(run_mpi):
    assert len(TABLE) > 60
    job = run_mpi(2, [PROGRAM], timeout=60.0 + 2.0 * len(TABLE))
    lines = dict(line.split(" -> ") for line in job.stdout.splitlines() if " -> " in line)
    wrong = {
        name: lines.get(name, "waits for ever")
        for name in TABLE
        if not FOUND.match(lines.get(name, ""))
    }
    assert not wrong, job.stderr[-2000:]
