"""A results folder: all that a run leaves behind, enough to look at, to restart from, to repeat.

========================  ========================================================================
``config.toml``           the configuration as it was
``log.txt``               the progress lines
``results.h5``            arrays and fields; at the end also configuration, log, versions (``run/``)
``results.rank*.h5``      the blocks of distributed fields (only with several ranks)
``summary.json``          status, facts, times, versions; there from the start ("running")
``*.png``, ``*.xdmf``     figures; fields for ParaView
========================  ========================================================================

A folder that an earlier run made is used again: the files of the kinds above are removed first.
A folder that holds anything else is refused.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.io.hdf5 import read_array, read_vec, write_array, write_vec
from daeosens.io.json import plain, write_json
from daeosens.io.versions import versions
from daeosens.petsc.agreement import on_first_rank

T = TypeVar("T")
_OURS = ("config.toml", "log.txt", "results*.h5", "summary.json", "*.png", "*.xdmf")


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
    """

    folder: Path
    comm: MPI.Intracomm
    run: Mapping[str, Any]
    facts: dict[str, Any]
    started: float

    @property
    def hdf5(self) -> Path:
        """The file of arrays and fields."""
        return self.folder / "results.h5"

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder, say of a figure."""
        return self.folder / name

    def say(self, text: object = "") -> None:
        """Print a progress line, and keep it in log.txt; on rank 0 only."""
        if self.comm.rank == 0:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
            self.log(text)

    def log(self, text: object) -> None:
        """Keep a line in log.txt without printing it; on rank 0 only."""
        if self.comm.rank == 0:
            with self.path("log.txt").open("a", encoding="utf-8") as log:
                log.write(f"{text}\n")

    def record(self, name: str, value: object) -> None:
        """Keep a number, text, array or dataclass for summary.json (call it on every rank)."""
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
        read_vec(self.hdf5, name, out)

    def array(self, name: str) -> npt.NDArray[np.float64]:
        """Return a whole dataset of results.h5 on every rank.  Collective.

        Raises
        ------
        InputError
            On every rank: no such dataset, a damaged file.
        """
        return on_first_rank(self.comm, lambda: read_array(self.hdf5, name))

    def once(self, action: Callable[[], T]) -> T:
        """Call ``action`` on rank 0 (say, draw a figure); every rank gets its value or error."""
        return on_first_rank(self.comm, action)


def open_results(
    folder: str | Path,
    comm: MPI.Intracomm,
    *,
    config_text: str = "",
    run: Mapping[str, Any] | None = None,
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

    Raises
    ------
    InputError
        On every rank: the folder cannot be written, or holds files that are not ours.
    """
    results = Results(Path(folder), comm, run or {}, {}, time.time())
    on_first_rank(comm, lambda: _prepare(results, config_text))
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
    """

    def finish() -> None:
        for name in ("config.toml", "log.txt"):
            text = results.path(name).read_text(encoding="utf-8")
            write_array(results.hdf5, f"run/{name}", text)
        write_array(results.hdf5, "run/versions.json", json.dumps(versions(), indent=1))
        write_summary(results, status, error)

    on_first_rank(results.comm, finish)


def write_summary(results: Results, status: str, error: str = "") -> None:
    """Write summary.json.  Not collective: the rank that fails alone calls it too."""
    summary = {
        "status": status,
        "error": error,
        "facts": results.facts,
        "run": plain(results.run),
        "ranks": results.comm.size,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(results.started)),
        "seconds": round(time.time() - results.started, 3),
        "versions": versions(),
    }
    write_json(results.path("summary.json"), summary)


def _prepare(results: Results, config_text: str) -> None:
    folder = results.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not _made_by_us(folder):
            raise InputError(
                f"{folder}: not empty, and not a results folder",
                expected="a new or empty folder, or one an earlier run made",
                remedy="--output another_folder",
            )
        for old in [path for pattern in _OURS for path in folder.glob(pattern)]:
            old.unlink()
        results.path("config.toml").write_text(config_text, encoding="utf-8")
        results.path("log.txt").write_text("", encoding="utf-8")
        write_summary(results, "running")
    except OSError as error:
        raise InputError(
            f"{folder}: the results folder cannot be written ({error.strerror})",
            expected="a folder with permission to write",
            remedy="--output another_folder",
        ) from error


def _made_by_us(folder: Path) -> bool:
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return "daeosens" in summary["versions"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
