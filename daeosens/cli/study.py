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
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import DaeosensError, InputError, OptionError
from daeosens.io.config.arguments import Arguments, parse_arguments
from daeosens.io.config.read import build_config, parse_toml
from daeosens.io.files import read_text
from daeosens.io.results import Results, close_results, open_results, write_summary
from daeosens.petsc.agreement import all_arrive, on_every_rank, on_first_rank
from daeosens.petsc.options import check_command_line, validate_names
from daeosens.petsc.ranks import install_abort_hook

C = TypeVar("C")
PATIENCE = 5.0
"""Seconds that a rank whose study failed waits for the others before it ends the job."""

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
    others waiting: it ends the whole job, as does any exception that is not ours.

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
        0 converged, 1 not converged or failed, 2 bad input, 130 interrupted from the keyboard.
    """
    program, *words = sys.argv if argv is None else argv
    install_abort_hook()
    comm = MPI.COMM_WORLD.Dup()  # ours alone: never mixed up with the study's messages
    try:
        with _ended_by_closed_pipe():
            code = _driven(comm, doc, config_class, study, check, prefixes, Path(program), words)
    except DaeosensError as error:
        code = _report(comm, error)
    comm.Free()  # not where another exception ends the job: the other ranks may be elsewhere
    return code


@contextmanager
def _ended_by_closed_pipe() -> Generator[None]:
    """Let ``driver | head`` end in silence, as other programs do: to PETSc it would be a crash."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


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
    config = on_every_rank(
        comm, lambda: build_config(table, config_class, arguments.config, program.stem)
    )
    if arguments.check:
        return _check(comm, check, config, arguments)
    run = {"driver": program.stem, "arguments": words}
    results = open_results(arguments.output, comm, config_text=text, run=run)
    return _run(results, study, config, prefixes)


def _run(
    results: Results,
    study: Callable[[C, Results], bool],
    config: C,
    prefixes: Sequence[str],
) -> int:
    results.say(
        f"{results.run['driver']}: {_count(results.comm.size)}, results in {results.folder}"
    )
    error: DaeosensError | None = None
    converged = False
    try:
        converged = bool(study(config, results))
    except DaeosensError as failure:
        error = failure
    except KeyboardInterrupt:
        write_summary(results, "interrupted", "")
        if results.comm.size > 1:
            raise  # mpiexec ends the job
        results.say(f"interrupted; results so far in {results.folder}")
        return 130  # as a shell says it
    except BaseException as failure:
        write_summary(results, "crashed", f"{type(failure).__name__}: {failure}")
        raise  # with several ranks the hook ends the job
    try:
        _agree(results.comm, error, results)
        on_every_rank(results.comm, lambda: check_command_line(prefixes=prefixes, final=True))
    except DaeosensError as failure:
        results.log(f"{type(failure).__name__}: {failure}")
        close_results(results, "failed", str(failure))
        return _report(results.comm, failure)
    status = "converged" if converged else "not converged"
    results.say(f"{status}; results in {results.folder}")
    close_results(results, status)
    return 0 if converged else 1


def _agree(
    comm: MPI.Intracomm, error: DaeosensError | None, results: Results | None = None
) -> None:
    """Meet the other ranks after the study; raise on all what one of them met with."""
    if error is None:
        all_arrive(comm, math.inf)
    elif not all_arrive(comm, PATIENCE):
        _end_job(comm, error, results)

    def own() -> None:
        if error is not None:
            raise error

    on_every_rank(comm, own)


def _end_job(comm: MPI.Intracomm, error: DaeosensError, results: Results | None) -> NoReturn:
    """End the job from the one rank that failed, while the others are busy or wait for it."""
    if results is not None:
        write_summary(results, "failed", str(error))
    sys.stdout.flush()
    sys.stderr.write(f"[rank {comm.rank}] {''.join(traceback.format_exception(error))}")
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(_exit_code(error))
    raise AssertionError  # pragma: no cover (Abort does not return)


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
    return _exit_code(error)


def _exit_code(error: DaeosensError) -> int:
    return 2 if isinstance(error, InputError) else 1


def _count(n_ranks: int) -> str:
    return f"{n_ranks} rank{'s' if n_ranks > 1 else ''}"
