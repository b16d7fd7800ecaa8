"""Signals that end a study: from the keyboard, of batch systems, and of its own clock."""

from __future__ import annotations

import select
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager

from daeosens.io.config.arguments import TRY_AGAIN
from daeosens.io.results import Results, write_summary
from daeosens.petsc.ranks import abort, exit_code

ENDING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM)
"""Signals that end a run, which another one may go on with."""


class Terminated(SystemExit):
    """SIGTERM or SIGUSR1, as batch systems and ``mpiexec`` send them, or the time limit."""


@contextmanager
def own_signals() -> Generator[None]:
    """Handle signals that are crashes to PETSc.

    ``driver | head`` ends in silence, as other programs do; SIGTERM and SIGUSR1 end the run, as
    does SIGALRM, the clock of the time limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(_signal: int, _frame: object) -> None:
        raise Terminated(128 + signal.SIGTERM)  # as a shell says it

    before = {
        signal.SIGPIPE: signal.signal(signal.SIGPIPE, signal.SIG_DFL),
        **{number: signal.signal(number, terminate) for number in ENDING},
    }
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with(results: Results) -> None:
    """Note from now on in the results that a signal has ended the run.

    The signal may come in a callback of one rank, which then ends the job with the exit code of
    this exception, wherever the others are.
    """

    def terminate(_signal: int, _frame: object) -> None:
        write_summary(results, "interrupted")
        raise terminated(results, signal.SIGTERM)

    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            signal.signal(number, terminate)


def terminated(results: Results, number: int) -> Terminated:
    """Return what ends a run that has got a signal, with its exit code."""
    return Terminated(TRY_AGAIN if results.progressed else 128 + number)  # as a shell says it


def let_finish() -> None:
    """Take no notice of a limit that comes while results are written: one rank alone would end."""
    if threading.current_thread() is threading.main_thread():
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number in ENDING:
            signal.signal(number, lambda _signal, _frame: None)


def interrupted(results: Results, stop: BaseException) -> int:
    """Note Ctrl-C or SIGTERM, and return the exit code; with several ranks, end the job."""
    write_summary(results, "interrupted")
    if results.comm.size > 1:
        abort(stop.with_traceback(None))
    results.say(f"interrupted; results so far in {results.folder}")
    return exit_code(stop)


def terminal_is_gone() -> bool:
    """Whether standard output went to a terminal that has been closed."""
    output = select.poll()
    output.register(1, 0)
    return any(event & select.POLLHUP for _, event in output.poll(0))
