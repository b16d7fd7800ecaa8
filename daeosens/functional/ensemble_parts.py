"""Some members of an ensemble, and the files that keep them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from daeosens.errors import InputError
from daeosens.io.files import replace_file
from daeosens.io.saved import ANOTHER_FOLDER, of_another_problem
from daeosens.petsc.vectors import Array

MOST_FILES = 256
"""Members are in so many files at most: file systems of clusters do not like many small ones."""


@dataclass(frozen=True, eq=False)
class Part:
    """What came of some members.

    Attributes
    ----------
    numbers : sequence of int
        Which they are.
    states : array [B, K, n]
    values : array [B] or [0]
    gradients_u0, gradients_p : array [B, n], [B, m] or [0, ...]
    failures : dict of int to str
        Why members have failed, by their numbers.
    """

    numbers: Sequence[int]
    states: Array
    values: Array
    gradients_u0: Array
    gradients_p: Array
    failures: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """All arrays, in the order of the attributes."""
        return self.states, self.values, self.gradients_u0, self.gradients_p


def shares(members: int) -> list[range]:
    """Return which members are in each file.

    Examples
    --------
    >>> shares(3)
    [range(0, 3, 3), range(1, 3, 3), range(2, 3, 3)]
    """
    count = min(members, MOST_FILES)
    return [range(number, members, count) for number in range(count)]


def file_name(number: int) -> str:
    """Return the name of a file of members."""
    return f"members_{number:03d}.npz"


def write_part(path: Path, part: Part, settings: str) -> None:
    """Write some members in one go.

    Raises
    ------
    DaeosensError
        The file cannot be written.
    """
    names = ("states", "values", "gradients_u0", "gradients_p")
    content = io.BytesIO()
    np.savez(
        content,
        settings=np.array(settings),
        failures=np.array(json.dumps(part.failures)),
        **dict(zip(names, part.arrays, strict=True)),
    )
    replace_file(path, content.getbuffer())


def read_part(path: Path, like: Part, settings: str) -> Part:
    """Read some members.

    Raises
    ------
    InputError
        Something else is in the file, or members of another ensemble.
    """
    try:
        with np.load(path, allow_pickle=False) as content:
            theirs = str(content["settings"])
            part = Part(
                like.numbers,
                content["states"],
                content["values"],
                content["gradients_u0"],
                content["gradients_p"],
                {int(k): str(why) for k, why in json.loads(str(content["failures"])).items()},
            )
    except Exception as error:
        raise InputError(
            f"{path}: no members of an ensemble ({type(error).__name__}: {error})",
            expected="a file that solve_batch wrote",
            remedy=f"rm {path}",
        ) from error
    pairs = zip(part.arrays, like.arrays, strict=True)
    if theirs != settings or any(a.shape != b.shape for a, b in pairs):
        raise of_another_problem(path, "ensemble", "other members or settings", ANOTHER_FOLDER)
    return part
