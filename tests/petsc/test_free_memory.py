"""How much memory a rank may take yet."""

import resource

import psutil
import pytest
from mpi4py import MPI

from daeosens.petsc.free_memory import free_memory, left_in_group


def test_the_limit_of_the_process_counts():
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = psutil.Process().memory_info().vms + 2**27
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
        assert 2**26 < free_memory(MPI.COMM_SELF) <= 2**27
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert free_memory(MPI.COMM_SELF) > 2**27


@pytest.mark.parametrize(
    ("limit", "used"),
    [
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
)
def test_the_limit_of_a_job_counts_and_caches_of_files_are_free(tmp_path, limit, used):
    job = tmp_path / "job"
    job.mkdir()
    (job / limit).write_text("max\n")
    (tmp_path / limit).write_text("5000\n")
    (tmp_path / used).write_text("3000\n")
    (tmp_path / "memory.stat").write_text("anon 2000\ninactive_file 700\n")
    assert left_in_group(job) == 2700
    (job / limit).write_text("4000\n")
    (job / used).write_text("3000\n")
    (job / "memory.stat").write_text("anon 3000\n")
    assert left_in_group(job) == 1000


@pytest.mark.mpi(min_size=2)
def test_ranks_share_what_there_is_and_agree():
    comm = MPI.COMM_WORLD
    free = comm.allgather(free_memory(comm))
    assert len(set(free)) == 1
    assert free[0] <= 1.01 * psutil.virtual_memory().total / comm.size
