"""Whether the run that a results folder is of still goes on: which process wrote its summary."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from daeosens.errors import InputError


def this_process() -> dict[str, Any]:
    """Return what a summary says of the process that writes it."""
    number = os.getpid()
    return {"host": socket.gethostname(), "pid": number, "began": _began(number)}


def is_gone(summary: Mapping[str, Any]) -> bool:
    """Tell whether a summary was written by a process of this machine that is no more."""
    process = _process_of(summary)
    if process.get("host") != socket.gethostname():
        return False
    number = process.get("pid")
    if not isinstance(number, int):
        return True
    foreign = False
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    except OSError:  # of another user
        foreign = True
    began = _began(number)
    if began is None:  # ended meanwhile, or not to be seen
        return not foreign and Path("/proc/self/stat").exists()
    return process.get("began", began) != began


def _began(number: int) -> int | None:
    """Return when a process began, in ticks of the system; None where it is no more (Linux).

    Numbers of processes are soon given again, so a number alone does not tell one.
    """
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # a killed one that nobody has waited for yet has a number still, and is a zombie
    return None if fields[0] in "ZX" else int(fields[19])


def _process_of(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    process: object = summary.get("process")
    return cast("dict[str, Any]", process) if isinstance(process, dict) else {}


def refuse_running(folder: Path, earlier: Mapping[str, Any]) -> None:
    """Refuse a folder to which a running process of this machine writes.

    Raises
    ------
    InputError
        Names the process.
    """
    process = _process_of(earlier)
    here = process.get("host") == socket.gethostname() and process.get("pid") != os.getpid()
    if earlier.get("status") == "running" and here and not is_gone(earlier):
        raise InputError(
            f"{folder}: process {process.get('pid')} of this machine writes its results there",
            expected="a folder for each run",
            remedy=f"--output another_folder, or kill {process.get('pid')}",
        )


def summary_of(folder: Path) -> dict[str, Any] | None:
    """Return the summary of an earlier run, or None where there is none of ours."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return summary if "daeosens" in summary["versions"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
