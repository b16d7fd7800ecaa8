"""What a search over a box has found, and what it could not decide."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.petsc.vectors import Array

BOUND_UNDECIDED = "a component of the gradient vanishes at a bound: active and inactive at once"


DEGENERATE = "h_yy is singular there, or nearly: not one minimiser, but a degenerate one or several"


@dataclass(frozen=True)
class Minimizers:
    """Minimisers of h over the box of y, sorted by their coordinates.

    Attributes
    ----------
    points : array [K, n_y]
        Where they are.
    values : array [K]
        h there.
    active : array of int8 [K, n_y + m]
        -1 where the lower bound of y holds it, 1 where the upper one does, 0 where it is free; of
        a search with constraints then 1 for each that is active.
    enclosures : array [K, n_y, 2]
        Boxes that contain them, as exact numbers.
    certified : array of bool [K]
        There is exactly one minimiser in the enclosure, with a positive definite Hessian among the
        free coordinates and multipliers that are not zero: proven.  Where False at least one is
        proven to be there, such as one at a kink (or, where h jumps, values below those around).
    remarks : tuple of str [K]
        Why a point is not certified; empty if it is.
    value_bounds : array [K, 2]
        Enclosures of the values.
    undecided : array [B, n_y, 2]
        Boxes in which further minimisers were neither shown nor excluded.  Everywhere else there
        are none but the points.
    reasons : tuple of str [B]
        Why.
    mode : str
        "all", local minimisers too, or "global".
    boxes : int
        How many boxes were looked at.
    proof : tuple
        For ``Search.unchanged``: regions of the minimisers, and the boxes that were excluded.
    """

    points: Array
    values: Array
    active: npt.NDArray[np.int8]
    enclosures: Array
    certified: npt.NDArray[np.bool_]
    remarks: tuple[str, ...]
    value_bounds: Array
    undecided: Array
    reasons: tuple[str, ...]
    mode: str
    boxes: int
    proof: tuple[Any, ...] = field(repr=False, default=())

    @property
    def complete(self) -> bool:
        """Whether each minimiser is certified and everything else is excluded."""
        return bool(self.certified.all()) and not len(self.undecided)

    @property
    def best(self) -> int:
        """Number of the point of lowest value."""
        return int(np.argmin(self.values))

    def __len__(self) -> int:
        return len(self.points)

    def __str__(self) -> str:
        kind = "global " if self.mode == "global" else ""
        count = len(self.points)
        lines = [f"{count} {kind}minimiser{'s' if count != 1 else ''} of h, {self.boxes} boxes"]
        for k, point in enumerate(self.points):
            held = [
                f"y[{i}] at its {'lower' if side < 0 else 'upper'} bound"
                if i < len(point)
                else f"constraint {i - len(point)} active"
                for i, side in enumerate(self.active[k])
                if side
            ]
            marks = [
                *held,
                "certified" if self.certified[k] else f"at least one: {self.remarks[k]}",
            ]
            lowest = " (lowest)" if k == self.best and count > 1 else ""
            lines.append(
                f"  y = {row_text(point)}  h = {self.values[k]:.9g}{lowest}  {', '.join(marks)}"
            )
        if self.complete:
            lines.append("  everywhere else there is none: proven")
            return "\n".join(lines)
        lines += [f"not excluded: {len(self.undecided)} boxes" if len(self.undecided) else ""]
        lines += [
            f"  y in {box_text(box)}: {reason}"
            for box, reason in list(zip(self.undecided, self.reasons, strict=True))[:8]
        ]
        if len(self.undecided) > 8:
            lines.append(f"  ... and {len(self.undecided) - 8} more")
        return "\n".join(line for line in lines if line)


def row_text(point: Array) -> str:
    """Return the coordinates of a point, for messages."""
    return "[" + ", ".join(f"{coordinate:.9g}" for coordinate in point) + "]"


def box_text(box: Array) -> str:
    """Return the sides of a box, for messages."""
    return " x ".join(f"[{lower:.9g}, {upper:.9g}]" for lower, upper in box)
