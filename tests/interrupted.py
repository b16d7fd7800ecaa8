"""Work that the user interrupts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest


def part_done(work: Callable[[], Any]) -> float:
    """Interrupt ``work`` after a tenth of its time; return what part of its time it took.

    In processor time, of which others who use the machine take none.
    """
    work()
    start = process_time()
    work()
    whole = process_time() - start

    def interrupted() -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.1 * whole)
        work()

    earlier = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    try:
        start = process_time()
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        return (process_time() - start) / whole
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, earlier)
