"""Tasks that processes share by a folder: each is done once, and again where a process dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mpi4py import MPI

from daeosens.errors import DaeosensError
from daeosens.io.tasks import LOCKS, as_helper, claimed, helping

NAMES = [f"task{k}" for k in range(6)]
PROGRAM = """
import os, sys, time
from pathlib import Path
from mpi4py import MPI
from daeosens.io.tasks import claimed
folder = Path(sys.argv[1])
for k in claimed(folder, [f"task{k}" for k in range(6)], MPI.COMM_SELF):
    (folder / "begun").open("a").write(f"{k} {os.getpid()}\\n")
    time.sleep(float(sys.argv[2]))
    (folder / f"task{k}").write_text(str(os.getpid()))
"""


def start(folder: Path, pause: float) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), str(pause)])


@pytest.mark.mpi
def test_ranks_do_each_task_once(comm, shared_tmp_path):
    mine = []
    for k in claimed(shared_tmp_path, NAMES, MPI.COMM_SELF, first=comm.rank):
        mine.append(k)
        time.sleep(0.02)
        (shared_tmp_path / NAMES[k]).write_text("done")
    assert sorted(k for part in comm.allgather(mine) for k in part) == [0, 1, 2, 3, 4, 5]
    assert not list(claimed(shared_tmp_path, NAMES, MPI.COMM_SELF))


def test_task_of_a_process_that_is_killed_is_done_by_another(tmp_path):
    hanging = start(tmp_path, 1000.0)
    limit = time.monotonic() + 60.0
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < limit
        time.sleep(0.02)
    # that one is at the first task, and nobody else takes it as long as it lives
    with as_helper():
        assert helping()
        for k in claimed(tmp_path, NAMES, MPI.COMM_SELF):
            assert k != 0
            (tmp_path / NAMES[k]).write_text("done")
    assert not helping()
    assert not (tmp_path / NAMES[0]).exists()
    os.kill(hanging.pid, signal.SIGKILL)
    hanging.wait()
    again = claimed(tmp_path, NAMES, MPI.COMM_SELF)
    assert next(again) == 0
    (tmp_path / NAMES[0]).write_text("done")
    assert list(again) == []


def test_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(DaeosensError, match=f"{LOCKS}: cannot be written"):
        next(claimed(tmp_path / "nowhere", NAMES, MPI.COMM_SELF))
