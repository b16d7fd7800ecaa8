"""Ranks that agree: errors of one are raised on all, and absent ones are noticed."""

import pytest

from daeosens.errors import DaeosensError, InputError
from daeosens.petsc.agreement import all_arrive, on_every_rank, on_first_rank


@pytest.mark.mpi
def test_failure_on_the_last_rank_is_raised_on_all(comm):
    def fail_on_last() -> int:
        if comm.rank == comm.size - 1:
            raise InputError("bad data")
        return comm.rank

    with pytest.raises(InputError, match="bad data") as caught:
        on_every_rank(comm, fail_on_last)
    assert (f"on rank {comm.size - 1} of {comm.size}" in str(caught.value)) == (
        comm.rank < comm.size - 1
    )


@pytest.mark.mpi
def test_failure_on_the_first_rank_is_raised_on_all(comm):
    def fail() -> None:
        raise ValueError("odd")

    with pytest.raises(ValueError if comm.rank == 0 else DaeosensError, match="odd"):
        on_first_rank(comm, fail)


@pytest.mark.mpi
def test_value_that_cannot_be_sent_is_an_error_on_all(comm):
    with pytest.raises(Exception, match="pickle"):
        on_first_rank(comm, lambda: lambda: None)


@pytest.mark.mpi
def test_error_classes_of_the_user_reach_the_others_as_ours(comm):
    class LocalError(InputError):
        pass

    def fail() -> None:
        raise LocalError("mine")

    with pytest.raises(InputError, match="mine"):
        on_first_rank(comm, fail)


@pytest.mark.mpi
def test_values_come_back_from_collective_calls(comm):
    assert on_every_rank(comm, lambda: comm.rank) == comm.rank
    assert on_first_rank(comm, lambda: comm.rank) == 0


@pytest.mark.mpi(min_size=2)
def test_absent_rank_is_noticed(comm):
    private = comm.Dup()
    if comm.rank == 0:
        assert not all_arrive(private, 0.05)
    comm.Barrier()
    if comm.rank > 0:
        assert all_arrive(private, 10.0)
    comm.Barrier()


@pytest.mark.mpi
def test_ranks_that_all_come_have_arrived(comm):
    assert all_arrive(comm, 10.0)
