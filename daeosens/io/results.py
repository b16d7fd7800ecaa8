"""A results folder: all that a run leaves behind, enough to look at, to restart from, to repeat.

========================  ========================================================================
``config.toml``           the configuration as it was
``log.txt``               the progress lines
``results.h5``            arrays and fields; at the end also configuration, log, versions (``run/``)
``results.rank*.h5``      the blocks of distributed fields (only with several ranks)
``summary.json``          status, facts, times, versions; written first ("running"), always whole
``*.png``, ``*.xdmf``     figures; fields for ParaView
``restart/``              what an interrupted run goes on from, and what others help it with
========================  ========================================================================

A folder that an earlier run made is used again: the files of the kinds above are removed first.
A folder that holds anything else is refused, and one that a running process writes to.  Files
appear in one go, so that a kill at any moment leaves a folder that can be read and used again;
what was "running" then is told by :func:`read_status`.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import DaeosensError, InputError, require, whole_number
from daeosens.io.files import UNFINISHED, admit_path, replace_file
from daeosens.io.hdf5 import read_array, read_vec, write_array, write_vec
from daeosens.io.json import json_text, plain
from daeosens.io.run_status import is_gone, refuse_running, summary_of, this_process
from daeosens.io.tasks import LOCKS
from daeosens.io.versions import versions
from daeosens.petsc.agreement import on_first_rank
from daeosens.petsc.ranks import admit_comm, agree
from daeosens.petsc.vectors import created
from daeosens.petsc.watchdog import beat

T = TypeVar("T")
RESTART = "restart"
"""The folder of what an interrupted run goes on from."""

_OURS = ("config.toml", "log.txt", "results*.h5", "*.png", "*.xdmf", UNFINISHED)
"""Besides the summary, which is replaced."""


@dataclass(frozen=True)
class Results:
    """An open results folder; the same on every rank.  Made by :func:`open_results`.

    Parameters
    ----------
    folder : Path
        Where the files are.
    comm : MPI.Intracomm
        The ranks that share it.
    run : Mapping
        What is run: driver, configuration, command line; part of the summary.
    facts : dict
        Numbers worth keeping, from :meth:`record`; part of the summary.
    started : float
        Seconds since the epoch.
    lines : list of str
        The log so far.
    shared : Path, optional
        The results folder of the run that this one helps.
    """

    folder: Path
    comm: MPI.Intracomm
    run: Mapping[str, Any]
    facts: dict[str, Any]
    started: float
    lines: list[str] = field(default_factory=list[str])
    shared: Path | None = None

    @property
    def hdf5(self) -> Path:
        """The file of arrays and fields."""
        return self.folder / "results.h5"

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder, say of a figure."""
        return self.folder / admit_path(name, "name")

    def restart(self, name: str) -> Path:
        """Return the path of a file that a run which goes on (``--restart``) finds again.

        Each rank has its own: problems of NumPy style are minimised by each rank for itself.  Of a
        distributed problem that of the first rank is used, on any number of ranks.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     results = open_results(folder, MPI.COMM_SELF)
        ...     results.restart("minimisation.h5").relative_to(folder).as_posix()
        'restart/rank0/minimisation.h5'
        """
        path = self.folder / RESTART / f"rank{self.comm.rank}" / admit_path(name, "name")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def restart_folder(self, name: str) -> Path:
        """Return the path of such a folder, one for all ranks: of starts, ``fit(folder=...)``.

        Programs that help this one (``--task``) have the same.
        """
        return (self.shared or self.folder) / RESTART / admit_path(name, "name")

    @property
    def progressed(self) -> bool:
        """Whether this run has saved something that another one can go on from."""
        saved = [self.path(RESTART), self.restart_folder("")]
        files = [path for folder in saved for path in folder.rglob("*") if path.name != LOCKS]
        times = [path.stat().st_mtime for path in files if path.is_file()]
        return max(times, default=0.0) >= self.started

    def say(self, text: object = "") -> None:
        """Print a progress line, and keep it in log.txt; on rank 0 only."""
        beat()
        if self.comm.rank == 0:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
            self.log(text)

    def log(self, text: object) -> None:
        """Keep a line in log.txt without printing it; on rank 0 only."""
        if self.comm.rank > 0:
            return
        self.lines.append(f"{text}\n")
        try:
            with self.path("log.txt").open("a", encoding="utf-8") as log:
                log.write(self.lines[-1])
        except OSError:
            pass  # written as a whole at the end, which tells what is wrong

    def record(self, name: str, value: object) -> None:
        """Keep a number, text, array or dataclass for summary.json (call it on every rank)."""
        require(name, str, "name", 'results.record("value", 1.0)')
        self.facts[name] = plain(value)

    def write(self, name: str, values: npt.ArrayLike | PETSc.Vec) -> None:
        """Write a dataset of results.h5, such as "fields/recovered".  Collective.

        Parameters
        ----------
        name : str
            The dataset; slashes make groups.
        values : array_like or Vec
            A small array, the same on every rank (rank 0 writes it), or a Vec: a field on a DMDA
            becomes [ny, nx, dof], any other Vec [n].

        Raises
        ------
        DaeosensError
            On every rank, if one cannot write.
        """
        agree(self.comm, "Results.write", dataset=name)
        if isinstance(values, PETSc.Vec):
            created(values, "values")
        if not isinstance(values, PETSc.Vec):
            on_first_rank(self.comm, lambda: write_array(self.hdf5, name, values))
        elif values.comm.size == self.comm.size:
            write_vec(self.hdf5, name, values)
        else:  # every rank holds the whole vector
            local = values.getArray(readonly=True)
            on_first_rank(self.comm, lambda: write_array(self.hdf5, name, local))

    def read(self, name: str, out: PETSc.Vec) -> None:
        """Read a dataset of results.h5 into a Vec of any distribution.  Collective.

        Raises
        ------
        InputError
            On every rank: no such dataset, another shape, a damaged file.
        """
        agree(self.comm, "Results.read", dataset=name)
        read_vec(self.hdf5, name, out)

    def array(self, name: str) -> npt.NDArray[np.float64]:
        """Return a whole dataset of results.h5 on every rank.  Collective.

        Raises
        ------
        InputError
            On every rank: no such dataset, a damaged file.
        """
        agree(self.comm, "Results.array", dataset=name)
        return on_first_rank(self.comm, lambda: read_array(self.hdf5, name))

    def once(self, action: Callable[[], T]) -> T:
        """Call ``action`` on rank 0 (say, draw a figure); every rank gets its value or error.

        Collective.
        """
        if not callable(action):
            raise InputError(f"action = {action!r}", expected="a function without arguments")
        return on_first_rank(self.comm, action)


def open_results(
    folder: str | Path,
    comm: MPI.Intracomm,
    *,
    config_text: str = "",
    run: Mapping[str, Any] | None = None,
    restart: bool = False,
    task: int = 0,
) -> Results:
    """Make or clear a results folder, before any work is done.  Collective.

    Parameters
    ----------
    folder : str or Path
        The folder; its parents are made too.
    comm : MPI.Intracomm
        The ranks that share it.
    config_text : str
        The configuration, kept as config.toml.
    run : Mapping
        What is run, for the summary.
    restart : bool
        Leave there what an interrupted run has saved to go on from.
    task : int
        Above 0: of a program that helps the run with this folder, with its own results beside it.

    Raises
    ------
    InputError
        On every rank: the folder cannot be written, or holds files that are not ours.
    """
    comm = admit_comm(comm)
    require(config_text, str, "config_text", 'config_text="sigma = 0.1"')
    require(restart, bool, "restart", "restart=True")
    if run is not None:
        require(run, Mapping, "run", 'run={"driver": "lynx_hare"}')
    whole_number(task, "task", least=0)
    own = place = admit_path(folder, "folder")
    if task:
        own = place.with_name(f"{place.name}.tasks") / str(task)
    shared = place if task else None
    results = Results(own, comm, run or {}, {}, time.time(), shared=shared)
    on_first_rank(comm, lambda: _prepare(results, config_text, restart=restart))
    return results


def close_results(results: Results, status: str, error: str = "") -> None:
    """Write the summary, and configuration, log and versions into results.h5.  Collective.

    Parameters
    ----------
    results : Results
        The folder.
    status : str
        "converged", "not converged", "failed".
    error : str
        What went wrong, for the summary.

    Raises
    ------
    DaeosensError
        On every rank: a file cannot be written.  The summary says so then ("failed").
    """

    def finish() -> None:
        try:
            log = "".join(results.lines)
            replace_file(results.path("log.txt"), log.encode())
            write_array(results.hdf5, "run/log.txt", log)
            config = results.path("config.toml").read_text(encoding="utf-8")
            write_array(results.hdf5, "run/config.toml", config)
            write_array(results.hdf5, "run/versions.json", json.dumps(versions(), indent=1))
        except DaeosensError as failure:
            told = error if str(failure) in error else f"{error}\n{failure}".strip()
            write_summary(results, "failed", told)
            raise
        write_summary(results, status, error)

    on_first_rank(results.comm, finish)


def write_summary(results: Results, status: str, error: str = "") -> None:
    """Write summary.json.  Not collective: the rank that fails alone calls it too.

    Where there is no room for another file it is written over the old one, or, if that is
    impossible too, to stderr.
    """
    text = _summary(results, status, error)
    path = results.path("summary.json")
    try:
        replace_file(path, text.encode())
    except DaeosensError as failure:
        if not _written_over(path, text.encode()):
            sys.stderr.write(f"{failure.what}; it would say:\n{text}")
            sys.stderr.flush()


def read_status(folder: str | Path) -> str:
    """Return the status of the run that a folder is of.  Not collective.

    Parameters
    ----------
    folder : str or Path
        A results folder.

    Returns
    -------
    str
        "running", "converged", "not converged", "failed", "crashed", or "interrupted": also where
        the summary says "running" and the process that wrote it was one of this machine, and is no
        more.

    Raises
    ------
    InputError
        Not a results folder.
    """
    summary = summary_of(Path(folder))
    if summary is None:
        raise InputError(f"{folder}: not a results folder", expected="one with a summary.json")
    status = str(summary.get("status"))
    return "interrupted" if status == "running" and is_gone(summary) else status


def _summary(results: Results, status: str, error: str) -> str:
    summary = {
        "status": status,
        "error": error,
        "facts": results.facts,
        "run": plain(results.run),
        "ranks": results.comm.size,
        "process": this_process(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(results.started)),
        "seconds": round(time.time() - results.started, 3),
        "versions": versions(),
    }
    return json_text(summary)


def _written_over(path: Path, content: bytes) -> bool:
    """Write a file over the old one where that has as much room; tell whether it has worked."""
    try:
        if path.stat().st_blocks * 512 < len(content):
            return False
        before = path.read_bytes()
        with path.open("r+b", buffering=0) as file:
            written = file.write(content)
            if written < len(content):  # a limit on the length of files: as it was
                file.seek(0)
                file.write(before[:written])
                return False
            file.truncate()
    except OSError:
        return False
    return True


def _prepare(results: Results, config_text: str, *, restart: bool) -> None:
    folder = results.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = summary_of(folder)
        ours = {*folder.glob(UNFINISHED)}
        if restart:  # a program that helps may have been there before
            ours.add(folder / RESTART)
        if earlier is None and {*folder.iterdir()} - ours:
            raise InputError(
                f"{folder}: not empty, and not a results folder",
                expected="a new or empty folder, or one an earlier run made",
                remedy="--output another_folder",
            )
        refuse_running(folder, earlier or {})
        # first of all: what a kill leaves from here on is a results folder
        replace_file(results.path("summary.json"), _summary(results, "running", "").encode())
        for old in [path for pattern in _OURS for path in folder.glob(pattern)]:
            old.unlink()
        if not restart and results.path(RESTART).is_dir():
            shutil.rmtree(results.path(RESTART))
        replace_file(results.path("config.toml"), config_text.encode())
        replace_file(results.path("log.txt"), b"")
    except (OSError, DaeosensError) as failure:
        error = failure.__cause__ if isinstance(failure, DaeosensError) else failure
        if not isinstance(error, OSError):
            raise
        raise InputError(
            f"{folder}: the results folder cannot be written ({error.strerror})",
            expected="a folder with permission to write",
            remedy="--output another_folder",
        ) from error


def begin_again(folder: str | Path) -> None:
    """Remove what an interrupted run has saved to go on from, if a folder is one of results.

    Raises
    ------
    InputError
        A running process writes there.
    """
    place = admit_path(folder, "folder")
    earlier = summary_of(place)
    if earlier is not None:
        refuse_running(place, earlier)
        shutil.rmtree(place / RESTART, ignore_errors=True)
