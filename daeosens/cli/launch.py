"""Programs on ranks: what starts them, what MPI is to be told, and which signals reach them."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from daeosens.errors import InputError

OF_A_PROCESS = (
    *("PMIX_", "ORTE_", "OMPI_APP_CTX_"),
    *("OMPI_MCA_ess", "OMPI_MCA_orte_", "OMPI_MCA_pmix"),
)
"""How variables begin with which Open MPI 4 describes a process that is no part of a job."""

KILLED = 128 + signal.SIGKILL
"""Exit code of mpiexec where a rank was killed."""


def start_jobs(program: Sequence[str], n_ranks: int | None, tasks: int = 1) -> int:
    """Run a Python program; return its exit code.

    Parameters
    ----------
    program : sequence of str
        Its file and its arguments.
    n_ranks, tasks : int
        Run it by mpiexec on so many ranks; so many programs, each of them on these ranks.

    Raises
    ------
    InputError
        There is no mpiexec.
    """
    command = [*mpiexec(n_ranks), sys.executable, *program]
    last = signal.SIGKILL if n_ranks is None else signal.SIGTERM  # which mpiexec passes on
    environment = mpi_environment(n_ranks)
    if tasks > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")

    def start(task: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*command, *(["--task", str(task)] if task else [])],
            env=environment,
            stdout=subprocess.DEVNULL if task else None,  # it is in their logs
            preexec_fn=_dying_with_us(last),  # noqa: PLW1509 (there are no threads)
        )

    jobs = [start(task) for task in range(tasks)]
    stopping: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        stopping.append(number)
        for job in jobs:
            job.send_signal(number)

    def interrupt(number: int, frame: object) -> None:
        stopping.append(number)
        if not _in_foreground():  # Ctrl-C of a terminal reaches the jobs by itself
            pass_on(number, frame)

    handlers: dict[int, Any] = {signal.SIGINT: interrupt, signal.SIGTERM: pass_on}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        code = jobs[0].wait()
        # what others have done, and what it has saved itself, is kept
        for _ in range(tasks - 1):
            if stopping or not (code < 0 or code == KILLED):
                break
            sys.stderr.write(f"{Path(program[0]).name}: killed; begins again with what is saved\n")
            jobs[0] = start(0)
            code = jobs[0].wait()
        for job in jobs[1:]:
            if code and job.poll() is None:
                job.terminate()
            job.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code  # ended by a signal: as a shell says it


def _in_foreground() -> bool:
    """Tell whether a terminal sends its signals to this process and those it has started."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _dying_with_us(number: int) -> Callable[[], None] | None:
    """Return what makes a child get a signal when this process dies, however it does (Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    library, parent = ctypes.CDLL(None), os.getpid()

    def prepare() -> None:
        library.prctl(1, number)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it is dead already
            os.kill(os.getpid(), number)

    return prepare


def mpiexec(n_ranks: int | None) -> list[str]:
    """Return the launcher and its arguments, nothing for a run without MPI.

    Raises
    ------
    InputError
        There is no launcher.
    """
    if n_ranks is None:
        return []
    launcher = shutil.which("mpiexec") or shutil.which("mpirun")
    if launcher is None:
        raise InputError(
            "-n: there is neither mpiexec nor mpirun",
            expected="the MPI with which mpi4py and PETSc were built",
            remedy="daeosens doctor",
        )
    return [launcher, "-n", str(n_ranks)]


def mpi_environment(n_ranks: int | None) -> dict[str, str]:
    """Return the environment for a run on one machine; what is set already is left alone.

    Each setting is ignored by the MPI libraries it is not for.
    """
    ours: dict[str, str] = {}
    if n_ranks is not None:
        ours["OMP_NUM_THREADS"] = "1"  # the ranks are the threads
        if n_ranks > (os.cpu_count() or 1):
            ours["OMPI_MCA_rmaps_base_oversubscribe"] = "1"  # Open MPI 4
            ours["OMPI_MCA_hwloc_base_binding_policy"] = "none"
            ours["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"  # Open MPI 5
        if os.geteuid() == 0:
            ours["OMPI_ALLOW_RUN_AS_ROOT"] = ours["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    inherited = dict(os.environ)
    # a process that is no job, a notebook for instance, leaves what Open MPI 4 has told it there:
    # an mpiexec that reads it ends at once without a word
    if inherited.get("OMPI_MCA_ess") == "singleton":
        inherited = {key: inherited[key] for key in inherited if not key.startswith(OF_A_PROCESS)}
    return {**ours, **inherited}
