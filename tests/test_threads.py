"""Work that several threads share."""

import gc
import multiprocessing
import os
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from mpi4py import MPI
from threadpoolctl import threadpool_info, threadpool_limits

from daeosens import threads
from daeosens.threads import one_blas_thread, share, thread_count


def _blas_threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_piece_is_done_once(count: int) -> None:
    done: list[list[int]] = [[] for _ in range(count)]
    share(range(20), [each.append for each in done])
    assert sorted(piece for each in done for piece in each) == list(range(20))


def test_workers_work_at_the_same_time() -> None:
    """Each waits for the others: one after the other they would wait for ever."""
    meeting = threading.Barrier(3, timeout=60)
    share(range(3), [lambda _piece: meeting.wait()] * 3)


def test_the_first_worker_is_that_of_the_caller() -> None:
    meeting, found = threading.Barrier(2, timeout=60), {}

    def note(name: str) -> None:
        meeting.wait()
        found[name] = threading.current_thread()

    share(range(2), [lambda _piece: note("first"), lambda _piece: note("second")])
    assert found["first"] is threading.current_thread() is not found["second"]


def test_blas_takes_one_thread_beside_others() -> None:
    seen = []
    with threadpool_limits(2, user_api="blas"):
        share(range(2), [lambda _piece: seen.append(_blas_threads())] * 2)
        assert _blas_threads() == {2}
    assert seen == [{1}, {1}]


def test_blas_takes_one_thread_and_as_many_as_before() -> None:
    with threadpool_limits(3, user_api="blas"):
        with one_blas_thread(), suppress(ValueError):
            assert _blas_threads() == {1}
            raise ValueError
        assert _blas_threads() == {3}
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            print(1 / 0)
        assert _blas_threads() == {3}


def test_a_fault_ends_the_work_and_reaches_the_caller() -> None:
    begun = []

    def work(piece: int) -> None:
        begun.append(piece)
        if piece == 0:
            raise ValueError("piece 0")
        time.sleep(0.01)

    with pytest.raises(ValueError, match="piece 0"):
        share(range(1000), [work, work])
    assert len(begun) < 1000
    share(range(3), [begun.append] * 2)  # the threads are there for the next work


def test_a_lack_of_an_index_in_a_worker_is_a_fault() -> None:
    with pytest.raises(IndexError):
        share([5], [[].__getitem__, [].__getitem__])


def test_threads_end_with_their_pool() -> None:
    """Another number of workers takes other threads; those of before would wait for ever."""
    for count in (3, 2, 3, 2):
        share(range(count), [lambda _piece: None] * count)
    gc.collect()  # the error of another test may hold a pool
    end = time.monotonic() + 60
    while sum(each.name.startswith("daeosens") for each in threading.enumerate()) > 1:
        assert time.monotonic() < end
        time.sleep(0.01)


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


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system tells no cores")
def test_threads_keep_to_cores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one core")
    assert threads._core() in allowed
    found = {}
    share(range(2), [lambda _piece: None] * 2)  # the thread is there
    for core in allowed:
        meeting = threading.Barrier(2, timeout=60)

        def note(name: str, meeting: threading.Barrier = meeting) -> None:
            meeting.wait()
            found[name] = os.sched_getaffinity(0)

        monkeypatch.setattr(threads, "_core", lambda core=core: core)
        workers = [lambda _piece, name=name: note(name) for name in ("first", "second")]
        share(range(2), workers)
        assert found == {"first": {core}, "second": allowed - {core}}
        assert os.sched_getaffinity(0) == allowed


def _forbid(_number: int, _cores: set[int]) -> None:
    raise PermissionError("not in this container")


@pytest.mark.parametrize("tells", [True, False])
def test_work_is_shared_where_cores_cannot_be_chosen(
    tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container forbids it, or the system does not even tell which ones there are."""
    if tells:
        monkeypatch.setattr(os, "sched_setaffinity", _forbid, raising=False)
    else:
        monkeypatch.setattr(threads, "_core", lambda: -1)
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    done: list[int] = []
    for _ in range(2):  # the second time the thread is there
        share(range(4), [done.append] * 2)
    assert sorted(done) == [0, 0, 1, 1, 2, 2, 3, 3]


def _product(out: "multiprocessing.SimpleQueue[float]") -> None:
    found = np.zeros(2)

    def work(k: int) -> None:
        found[k] = np.dot(np.full(100, 1.0), np.full(100, k + 1.0))

    share(range(2), [work, work])
    out.put(float(found.sum()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on
def test_a_fork_has_threads_of_its_own() -> None:
    share(range(4), [lambda _piece: None] * 2)
    context = multiprocessing.get_context("fork")
    out = context.SimpleQueue()
    child = context.Process(target=_product, args=(out,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert out.get() == 300.0
