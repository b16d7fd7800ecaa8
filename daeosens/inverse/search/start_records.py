"""What came of one start, and the folder that keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daeosens.errors import DaeosensError, InputError
from daeosens.io.files import replace_file
from daeosens.io.json import json_text, plain
from daeosens.io.saved import ANOTHER_FOLDER, of_another_problem
from daeosens.petsc.vectors import Array


@dataclass(frozen=True, eq=False)
class Attempt:
    """What came of one start.

    Attributes
    ----------
    index : int
        Number of the start.
    start, x : array [n]
        Where it began and ended; the start itself if the solve failed there.
    value, gradient_norm : float
        At x; infinite if the solve failed at the start.
    converged : bool
        Whether a tolerance was met.
    message : str
        Why it ended.
    iterations, evaluations : int
    seconds : float
    """

    index: int
    start: Array
    x: Array
    value: float
    gradient_norm: float
    converged: bool
    message: str
    iterations: int
    evaluations: int
    seconds: float


def file_name(index: int) -> str:
    """Return the name of the file of one attempt."""
    return f"start_{index:05d}.json"


def write_attempt(folder: Path, attempt: Attempt, settings: Mapping[str, Any]) -> None:
    """Write one attempt in one go."""
    path = folder / file_name(attempt.index)
    try:
        replace_file(path, json_text({"settings": settings, "attempt": attempt}).encode())
    except OSError as error:
        raise DaeosensError(
            f"{path}: cannot be written ({error.strerror})", expected="a writable folder"
        ) from error


def finished(folder: Path | None, points: Array, settings: Mapping[str, Any]) -> dict[int, Attempt]:
    """Return the attempts that the folder holds, checked against the starts; make the folder."""
    if folder is None:
        return {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be made ({error.strerror})", expected="a folder for the attempts"
        ) from error
    attempts: dict[int, Attempt] = {}
    for index, start in enumerate(points):
        path = folder / file_name(index)
        if path.is_file():
            attempts[index] = _read(path, start, settings)
    return attempts


def _read(path: Path, start: Array, settings: Mapping[str, Any]) -> Attempt:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entry = content["attempt"]
        attempt = Attempt(
            int(entry["index"]),
            np.array(entry["start"], dtype=float),
            np.array(entry["x"], dtype=float),
            float(entry["value"]),
            float(entry["gradient_norm"]),
            bool(entry["converged"]),
            str(entry["message"]),
            int(entry["iterations"]),
            int(entry["evaluations"]),
            float(entry["seconds"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not an attempt of a multistart ({type(error).__name__}: {error})",
            expected="a file that multistart wrote",
            remedy=f"rm {path}",
        ) from error
    # another seed or tolerance: its results would not be those of this search
    if not np.array_equal(attempt.start, start) or content["settings"] != plain(settings):
        raise of_another_problem(path, "multistart", "other starts or settings", ANOTHER_FOLDER)
    return attempt
