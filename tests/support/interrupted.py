"""Work that the user interrupts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest


def part_done(work: Callable[[], Any]) -> float:
    """Interrupt ``work`` after a tenth of its time; return what part of its time it took.

    In processor time, of which others who use the machine take none, but which they lengthen: the
    least of ten. The alarm counts real time: it is exact where that of processor time waits for
    the next tick of the kernel, and comes the sooner in the work, the more others take.
    """
    work()
    start = process_time()
    work()
    whole = process_time() - start

    def alarmed() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.1 * whole)
        work()

    def interrupted() -> float:
        start = process_time()
        with pytest.raises(KeyboardInterrupt):
            alarmed()
        return process_time() - start

    earlier = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        return min(interrupted() for _ in range(10)) / whole
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, earlier)
