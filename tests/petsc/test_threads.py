"""How many threads share work, and how many of them BLAS takes."""

import pytest
from mpi4py import MPI
from threadpoolctl import threadpool_info, threadpool_limits

from daeosens.petsc import threads
from daeosens.petsc.threads import one_blas_thread, thread_count


def _blas_threads() -> set[int]:
    return {item["num_threads"] for item in threadpool_info() if item["user_api"] == "blas"}


def test_blas_takes_one_thread_and_as_many_as_before() -> None:
    with threadpool_limits(3, user_api="blas"):
        with one_blas_thread():
            assert _blas_threads() == {1}
        assert _blas_threads() == {3}
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            print(1 / 0)
        assert _blas_threads() == {3}


@pytest.mark.parametrize("count", [1, 3])
def test_the_count_is_that_of_blas(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(count))  # ranks beside others have to say so
    with threadpool_limits(count, user_api="blas"):
        assert thread_count() == count


@pytest.mark.mpi
def test_ranks_are_the_threads_unless_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with threadpool_limits(2, user_api="blas"):
        assert thread_count() == (2 if MPI.COMM_WORLD.size == 1 else 1)
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        assert thread_count() == 2
