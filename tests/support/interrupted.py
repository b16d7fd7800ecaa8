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
    least of three.
    """
    work()
    start = process_time()
    work()
    whole = process_time() - start

    def interrupted() -> float:
        start = process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.1 * whole)
        with pytest.raises(KeyboardInterrupt):
            work()
        return process_time() - start

    earlier = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    try:
        return min(interrupted() for _ in range(3)) / whole
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, earlier)
