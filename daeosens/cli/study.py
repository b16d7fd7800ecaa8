"""What every driver does around its study: arguments, configuration, results folder, exit code.

A driver is a file like this::

    '''Fit the rates of ... (this text is the driver's --help).'''

    @dataclass(frozen=True)
    class Config:
        stepping: Stepping
        data: Annotated[Path, existing_file(), "observations, CSV"]

    def study(config: Config, results: Results) -> bool:
        ...
        return result.converged

    if __name__ == "__main__":
        sys.exit(drive(__doc__, Config, study))
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeGuard, TypeVar

from mpi4py import MPI
from petsc4py import PETSc

from daeosens.cli.signals import (
    Terminated,
    end_with,
    interrupted,
    let_finish,
    own_signals,
    terminal_is_gone,
    terminated,
)
from daeosens.errors import DaeosensError, InputError, OptionError
from daeosens.io.config.arguments import Arguments, parse_arguments
from daeosens.io.config.read import build_config, parse_toml
from daeosens.io.files import is_of_the_disk, read_text
from daeosens.io.json import json_text
from daeosens.io.results import Results, close_results, open_results, write_summary
from daeosens.io.tasks import Helped, as_helper
from daeosens.optimize.interruption import interruptions
from daeosens.petsc.agreement import all_arrive, on_every_rank, on_first_rank
from daeosens.petsc.options import check_command_line, validate_names
from daeosens.petsc.ranks import abort, exit_code
from daeosens.petsc.watchdog import watched

C = TypeVar("C")
PATIENCE = 5.0
"""Seconds that a rank whose study failed waits for the others before it ends the job."""

WATCHDOG = 3600.0
"""Seconds without a sign of life after which a study is ended, unless its configuration says."""


_AT_START = (
    *("checkstack", "fp_trap", "info", "malloc", "malloc_debug", "malloc_test", "malloc_view"),
    *("no_signal_handler", "on_error_abort", "on_error_attach_debugger", "on_error_mpiabort"),
    *("options_file", "options_monitor", "start_in_debugger", "version"),
)
"""Options that PETSc 3.26 reads when it starts, which importing it does, before a driver runs."""


class Report(Protocol):
    """What a driver's ``check`` returns: prints itself, and knows whether all is right."""

    @property
    def passed(self) -> bool:
        """Whether every derivative is right."""
        ...


def drive(
    doc: str | None,
    config_class: type[C],
    study: Callable[[C, Results], bool],
    check: Callable[[C], Report] | None = None,
    *,
    prefixes: Sequence[str] = (),
    argv: Sequence[str] | None = None,
) -> int:
    """Run a driver on all ranks and return its exit code.  Collective on all ranks.

    Whatever is wrong with arguments, configuration, options or results folder is reported by rank
    0 before any work, with exit code 2 on every rank.  A rank that fails alone does not leave the
    others waiting: it ends the whole job, as does any exception that is not ours, and a
    watchdog where nothing has been heard for an hour, or for ``watchdog`` seconds of the
    configuration (0: never).

    Parameters
    ----------
    doc : str
        The driver's docstring: its --help.
    config_class : type
        The dataclass of its configuration (:mod:`daeosens.io.config.schema`).
    study : callable
        ``study(config, results) -> bool``: do the work, say whether it converged.
    check : callable, optional
        ``check(config) -> report``: test the derivatives (``daeosens check``).
    prefixes : sequence of str
        PETSc options prefixes that the study uses; an option behind another prefix is an error.
    argv : sequence of str, optional
        Program and arguments, default ``sys.argv``.

    Returns
    -------
    int
        0 converged, 1 not converged or failed, 2 bad input, 130 interrupted from the keyboard; 75
        interrupted by SIGTERM, SIGUSR1 or the time limit, with something new saved to go on from by
        ``--restart``, 143 without.
    """
    program, *words = sys.argv if argv is None else argv
    comm = MPI.COMM_WORLD.Dup()  # ours alone: never mixed up with the study's messages
    try:
        with own_signals():
            code = _driven(comm, doc, config_class, study, check, prefixes, Path(program), words)
    except DaeosensError as error:
        code = _report(comm, error)
    comm.Free()  # not where another exception ends the job: the other ranks may be elsewhere
    return code


def _driven(
    comm: MPI.Intracomm,
    doc: str | None,
    config_class: type[C],
    study: Callable[[C, Results], bool],
    check: Callable[[C], Report] | None,
    prefixes: Sequence[str],
    program: Path,
    words: list[str],
) -> int:
    """Read arguments and configuration, run the driver, and return its exit code."""
    arguments = on_first_rank(comm, lambda: parse_arguments(doc, config_class, program.name, words))
    if isinstance(arguments, int):
        return arguments
    _insert_petsc(arguments.petsc, prefixes)
    text = on_first_rank(comm, lambda: read_text(arguments.config, "configuration"))
    table = parse_toml(arguments.config, text)
    patience = on_every_rank(comm, lambda: _watchdog(table, arguments.config))
    time_limit = on_every_rank(comm, lambda: _time_limit(table, arguments))
    config = on_every_rank(
        comm, lambda: build_config(table, config_class, arguments.config, program.stem)
    )
    if arguments.check:
        return _check(comm, check, config, arguments)
    run = {"driver": program.stem, "arguments": words}
    results = open_results(
        arguments.output,
        comm,
        config_text=text,
        run=run,
        restart=arguments.restart,
        task=arguments.task,
    )
    end_with(results)
    if time_limit is not None:
        signal.setitimer(signal.ITIMER_REAL, time_limit)
    work = partial(watched, lambda: study(config, results), patience)
    return _run(results, work if not arguments.task else partial(_help, work), prefixes)


def _help(work: Callable[[], bool]) -> bool:
    """Do tasks of a study until all are taken; that is all that a program that helps does."""
    with as_helper():
        try:
            work()
        except Helped:
            return True
    raise InputError(
        "--task: the study has nothing that several programs could share",
        expected="a multistart or an ensemble with a folder",
        remedy='folder=results.restart_folder("starts"), or the study without --task',
    )


def _watchdog(table: dict[str, Any], path: Path) -> float:
    """Take the seconds of the watchdog out of a configuration."""
    seconds = table.pop("watchdog", WATCHDOG)
    if not _is_seconds(seconds):
        raise InputError(
            f"{path}: watchdog = {seconds!r}",
            expected="seconds without a sign of life after which the run is ended; 0: never",
        )
    return float(seconds)


def _time_limit(table: dict[str, Any], arguments: Arguments) -> float | None:
    """Take the seconds of the time limit out of a configuration; the command line wins."""
    seconds = table.pop("time_limit", None)
    if seconds is None:
        return arguments.time_limit
    if not _is_seconds(seconds) or not seconds:
        raise InputError(
            f"{arguments.config}: time_limit = {seconds!r}",
            expected="seconds after which the run ends by itself, to be continued by --restart",
        )
    return float(seconds) if arguments.time_limit is None else arguments.time_limit


def _is_seconds(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0.0 <= value <= 1e8


def _run(
    results: Results,
    study: Callable[[], bool],
    prefixes: Sequence[str],
) -> int:
    results.say(
        f"{results.run['driver']}: {_count(results.comm.size)}, results in {results.folder}"
    )
    error: DaeosensError | None = None
    converged = False
    before = interruptions()
    try:
        converged = bool(study())
        let_finish()
    except DaeosensError as failure:
        let_finish()
        error = failure
    except (KeyboardInterrupt, Terminated) as stop:
        return interrupted(results, stop)
    except BaseException as failure:
        if isinstance(failure, OSError) and terminal_is_gone():
            # closed, or that of mpiexec, which somebody has killed: no fault of the disk; what is
            # still to be printed goes nowhere
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), 1)
            return interrupted(results, terminated(results, signal.SIGHUP))
        if isinstance(failure, OSError) and is_of_the_disk(failure):
            error = DaeosensError(str(failure), remedy="free disk space, or another folder")
        else:
            write_summary(results, "crashed", f"{type(failure).__name__}: {failure}")
            if results.comm.size > 1 and isinstance(failure, SystemExit):
                abort(failure)  # of other exceptions the hook tells
            raise
    try:
        _agree(results.comm, error, results)
        on_every_rank(results.comm, lambda: check_command_line(prefixes=prefixes, final=True))
    except DaeosensError as failure:
        results.log(f"{type(failure).__name__}: {failure}")
        with suppress(DaeosensError):  # the first failure is told
            close_results(results, "failed", str(failure))
        code = _report(results.comm, failure)
        _tell_facts(results)
        return code
    status = "converged" if converged else "not converged"
    if interruptions() > before and not converged:
        status = "interrupted"
    results.say(f"{status}; results in {results.folder}")
    try:
        close_results(results, status)
    except DaeosensError:
        _tell_facts(results)
        raise
    return 0 if converged else 1


def _tell_facts(results: Results) -> None:
    """Print what a failed run has found out and where it has put it."""
    if results.comm.rank == 0 and results.facts:
        text = json_text(results.facts)
        sys.stdout.write(f"results so far in {results.folder}, and these facts:\n{text}")
        sys.stdout.flush()


def _agree(
    comm: MPI.Intracomm, error: DaeosensError | None, results: Results | None = None
) -> None:
    """Meet the other ranks after the study; raise on all what one of them met with."""
    if error is None:
        all_arrive(comm, math.inf)
    elif not all_arrive(comm, PATIENCE):  # they are busy, or wait for this rank
        if results is not None:
            write_summary(results, "failed", str(error))
        abort(error)

    def own() -> None:
        if error is not None:
            raise error

    on_every_rank(comm, own)


def _check(
    comm: MPI.Intracomm, check: Callable[[C], Report] | None, config: C, arguments: Arguments
) -> int:
    lines = [f"{arguments.config}: the configuration is right"]
    passed = True
    if check is None:
        lines.append("the driver has no check of its derivatives")
    else:
        error: DaeosensError | None = None
        try:
            report = check(config)
            passed = report.passed
            lines.append(str(report))
        except DaeosensError as failure:
            error = failure
        _agree(comm, error)
    if comm.rank == 0:
        sys.stdout.write("\n".join(lines) + "\n")
    return 0 if passed else 1


def _insert_petsc(options: Mapping[str, str | None], prefixes: Sequence[str]) -> None:
    """Put the command line's options into PETSc's database, where they win over all others."""
    for name in _AT_START:
        if name in options:
            raise OptionError(
                f"-{name} is read when PETSc starts, before the driver does",
                expected="it in the environment",
                remedy=f'PETSC_OPTIONS="-{name}" python driver.py ...',
            )
    validate_names(options, "command line", prefixes=prefixes)
    database = PETSc.Options()
    for name, value in options.items():
        database.setValue(name, value)
    if database.hasName("log_view"):  # which also marks it as used
        PETSc.Log.begin()


def _report(comm: MPI.Intracomm, error: DaeosensError) -> int:
    if comm.rank == 0:
        sys.stdout.flush()
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
    return exit_code(error)


def _count(n_ranks: int) -> str:
    return f"{n_ranks} rank{'s' if n_ranks > 1 else ''}"
