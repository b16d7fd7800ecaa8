"""What is known of the optimisers of a run, for users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.active_set import words

SHOWN = 12
"""So many optimisers are printed."""


@dataclass(eq=False)
class Branch:
    """A local optimiser along a run.

    Attributes
    ----------
    number : int
        Counted from 0, in the order in which they were found.
    born, died : float
        When it emerged, or the run began, and when it vanished; infinite if it outlives the run.
    parts : list
        Times, y, h and the numbers of active sets there, piece by piece.
    """

    number: int
    born: float
    died: float = np.inf
    parts: list[tuple[Array, Array, Array, Array]] = field(
        default_factory=list[tuple[Array, Array, Array, Array]]
    )

    @property
    def times(self) -> Array:
        """Times [N] at which it is known."""
        return np.concatenate([part[0] for part in self.parts])

    @property
    def y(self) -> Array:
        """Where it is [N, n_y]."""
        return np.concatenate([part[1] for part in self.parts])

    @property
    def values(self) -> Array:
        """H there [N]."""
        return np.concatenate([part[2] for part in self.parts])

    @property
    def active(self) -> Array:
        """Numbers of its active sets [N], as in the state."""
        return np.concatenate([part[3] for part in self.parts])


@dataclass(frozen=True)
class Jump:
    """Where another optimiser becomes the lowest: a time, and the numbers of both branches."""

    t: float
    before: int
    after: int


@dataclass(frozen=True)
class Change:
    """Where the active set of an optimiser changes.

    Attributes
    ----------
    t : float
    branch : int
        Number of the optimiser.
    constraint : str
        The constraint, in words.
    active : bool
        Whether it becomes active.
    """

    t: float
    branch: int
    constraint: str
    active: bool


@dataclass(eq=False)
class Branches:
    """All local optimisers of a run, which of them was the lowest, and how sure that is.

    Attributes
    ----------
    names : sequence of str
        Those of y.
    branches : list of Branch
        Every optimiser that was there.
    active : list of (float, int)
        From when on which of them was the global one.
    jumps : list of Jump
        Its jumps.
    changes : list of Change
        Bounds that become active or inactive, of all optimisers.
    searches : list of float
        When all of them were searched for.
    unproven : list of (float, float)
        Between these times, at which a search was complete, nothing proves that no optimiser
        emerged and vanished again: mostly where one emerges or vanishes.  Between all others it is
        proven that the optimisers only moved.
    incomplete : list of float
        Times of searches that could not decide everything.
    search_boxes, proof_boxes : int
        How many boxes were looked at in searches, and for proofs between them.
    """

    names: Sequence[str] = ()
    branches: list[Branch] = field(default_factory=list[Branch])
    active: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    jumps: list[Jump] = field(default_factory=list[Jump])
    changes: list[Change] = field(default_factory=list[Change])
    searches: list[float] = field(default_factory=list[float])
    unproven: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    incomplete: list[float] = field(default_factory=list[float])
    search_boxes: int = 0
    proof_boxes: int = 0

    def __len__(self) -> int:
        """Return how many optimisers there were."""
        return len(self.branches)

    def __getitem__(self, number: int) -> Branch:
        """Return a branch by its number."""
        return self.branches[number]

    def __str__(self) -> str:
        """Return tables of jumps and optimisers, and what is proven."""
        # what outlives the run has no end of its own
        last = max((float(branch.times[-1]) for branch in self.branches), default=np.nan)
        rows = [["jump", "t", "from", "to"]]
        for number, jump in enumerate(self.jumps, 1):
            ends = [f"{k} (y = {_row(self._at(k, jump.t))})" for k in (jump.before, jump.after)]
            rows.append([str(number), f"{jump.t:.9g}", *ends])
        turns = [["active set", "t", "branch", ""]]
        for number, change in enumerate(self.changes, 1):
            what = "becomes active" if change.active else "becomes inactive"
            told = f"{change.constraint} {what}"
            turns.append([str(number), f"{change.t:.9g}", str(change.branch), told])
        rows += [] if len(turns) == 1 else turns
        # of many optimisers few are ever the lowest: these are marked
        lowest = {k for _, k in self.active}
        table = [["branch", "from", "to", "y at first", "y at last", ""]]
        for branch in self.branches[:SHOWN]:
            ends = [f"{branch.born:.6g}", "end" if branch.died > last else f"{branch.died:.6g}"]
            places = [_row(branch.y[0]), _row(branch.y[-1])]
            told = ["lowest at times"] if branch.number in lowest else []
            told += [f"at last {words(branch.active[-1], self.names)}"] if branch.active[-1] else []
            table.append([str(branch.number), *ends, *places, ", ".join(told)])
        more = len(self.branches) - SHOWN
        lines = [*_aligned(rows), *_aligned(table)]
        lines += [f"... and {more} more"] if more > 0 else []
        return "\n".join([*lines, self._proof()])

    def _proof(self) -> str:
        # searches are complete at their times; between them the proof is that no box outside of the
        # tracked optimisers can hold another
        count, left = len(self.searches), sum(end - start for start, end in self.unproven)
        told = f"{count} searches ({self.search_boxes} boxes, {self.proof_boxes} for proofs); "
        told += "between them "
        if not self.unproven:
            told += "it is proven that the optimisers only moved"
        else:
            longest = max(end - start for start, end in self.unproven)
            told += (
                f"it is proven that the optimisers only moved, but for {len(self.unproven)} "
                f"intervals of length {left:.3g} in all, {longest:.3g} at most"
            )
        if self.incomplete:
            told += f"; {len(self.incomplete)} could not decide everything"
        return told

    def _at(self, number: int, t: float) -> Array:
        branch = self.branches[number]
        return branch.y[int(np.argmin(np.abs(branch.times - t)))]


def _row(y: Array) -> str:
    return ", ".join(f"{value:.6g}" for value in y)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
