"""Restart files: what a functional has returned is on the disk, and later runs take it from there.

A run that goes on begins again at the same start, and is given what is on record instead of sweeps.
So the optimiser comes to the last iterate by the way it went, whatever it remembers of that: pairs
of L-BFGS, conjugate directions, trust radii, failed searches.  From there it goes on as if nothing
had happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.functional.functional import Functional, HasTrials
from daeosens.io.saved import check_same
from daeosens.optimize.restart_file import (
    ANOTHER_NAME,
    ITERATE,
    Place,
    Record,
    RestartFile,
    sum_of,
)
from daeosens.optimize.result import Iterate
from daeosens.optimize.start import Bounds
from daeosens.petsc.vectors import Array, read, write

OPTIONAL = ("hessian_product", "gauss_newton_product", "hessian", "gauss_newton_matrix")
"""Calls that are recorded where a functional has them.

Others are passed on: "brgn" computes its residual Jacobians again.
"""

SAME = 1e-8
"""Part of a step by which points may differ from those on record, on another number of ranks."""

Answer: TypeAlias = "float | PETSc.Vec | Array | tuple[float, PETSc.Vec]"


class RecordedFunctional:
    """A functional that answers from a restart file as long as that goes, and adds to it.

    Parameters
    ----------
    functional : Functional
        J.
    path : Path
        The file.
    identity : mapping of str
        The problem in words, see ``identity_of``.
    x : Vec [n]
        The start; becomes that of the file, if there is one.

    Raises
    ------
    InputError
        On every rank: not a restart file, or one of another problem; a folder that is not there, or
        that cannot be written to.
    SolveError
        J does not exist at the last iterate of the file.
    """

    def __init__(
        self, functional: Functional, path: Path, identity: Mapping[str, str], x: PETSc.Vec
    ) -> None:
        self._functional = functional
        self._mpi = x.comm.tompi4py()
        self._x = x.duplicate()
        low, high = x.getOwnershipRange()
        # any fixed vector whose entries differ from one another
        self._weights = np.cos(np.arange(low, high)) / np.sqrt(x.getSize())
        self._step = np.inf
        self.notes: list[str] = []
        for name in OPTIONAL:
            method = getattr(functional, name, None)
            if callable(method):
                setattr(self, name, partial(self._answer, name, method))
        if isinstance(functional, HasTrials):
            self.limit_steps = self._limit_steps
        self._file = RestartFile(path, identity, x)
        self._left: deque[Place] = deque(self._file.places())
        self.iterates = sum(place.record.call == ITERATE for place in self._left)
        if self.iterates == 0:  # nothing to go on from
            self._file.keep(0)
            self._left.clear()
        else:
            self._begin(x)
            self.notes.append(f"continued from iterate {self.iterates - 1} in {path.name}")

    def __getattr__(self, name: str) -> Any:
        """Be the functional in everything else."""
        if name == "_functional":  # while it is not there yet
            raise AttributeError(name)
        return getattr(self._functional, name)

    @property
    def comm(self) -> PETSc.Comm:
        """That of the functional."""
        return self._functional.comm

    def start(self) -> PETSc.Vec:
        """Return that of the functional."""
        return self._functional.start()

    def bounds(self) -> Bounds | None:
        """Return those of the functional."""
        return self._functional.bounds()

    def value(self, x: PETSc.Vec) -> float:
        """Return J(x)."""
        return self._answer("value", self._functional.value, x)

    def gradient(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return dJ/dx [n]."""
        return self._answer("gradient", self._functional.gradient, x)

    def value_and_gradient(self, x: PETSc.Vec) -> tuple[float, PETSc.Vec]:
        """Return J(x) and dJ/dx [n]."""
        return self._answer("value_and_gradient", self._functional.value_and_gradient, x)

    def accept(self, iterate: Iterate, x: PETSc.Vec) -> bool:
        """Record an iterate at x [n], and bring all to the disk; say whether it is new."""
        marks = [self._mark(x)]
        known = self._next(ITERATE, marks) is not None
        if iterate.step > 0.0:
            self._step = iterate.step
        if not known:
            self._file.add(Record(ITERATE, marks, iterate.value, []), read(x))
        return not known

    def close(self) -> None:
        """Close the files."""
        self._file.close()

    # ---- answers ---------------------------------------------------------------------------------

    def _begin(self, x: PETSc.Vec) -> None:
        """Make x [n] the start, once J is seen to be the same at the last iterate."""
        iterates = [place for place in self._left if place.record.call == ITERATE]
        first, last = (abs(float(iterates[k].record.number or 0.0)) for k in (0, -1))
        compared = {"last": iterates[-1]}
        if last <= 1e-6 * first:
            # next to nothing, as it is with any weight; the last one still comes last, as the
            # steps of later runs may be limited by those of the run there
            compared = {"first": iterates[0], **compared}
        for name, place in compared.items():
            write(x, self._file.stored(place))
            try:
                value = self._functional.value(x)
            except SolveError as error:
                raise SolveError(
                    f"the functional cannot be evaluated at the {name} iterate of "
                    f"{self._file.path}: {error}",
                    remedy="the same functional as when it was written, or another file name",
                ) from error
            expected = float(place.record.number or 0.0)
            size = abs(expected) + 1e-6 * first
            told = f"its value at the {name} iterate is {expected:.12g}, {value:.12g} here"
            off = abs(value - expected)
            check_same(off, size, self._file.path, "restart file", told, ANOTHER_NAME)
        write(x, self._file.stored(iterates[0]))

    def _limit_steps(self, *, limited: bool) -> None:
        """Pass it on; what is on record had its limits when it was computed."""
        if isinstance(self._functional, HasTrials) and not (limited and self._left):
            self._functional.limit_steps(limited=limited)

    def _answer(self, call: str, method: Callable[..., Any], *points: PETSc.Vec) -> Any:
        marks = [self._mark(point) for point in points]
        place = self._next(call, marks)
        if place is not None:
            return self._again(place)
        try:
            answer: Answer = method(*points)
        except SolveError as error:
            self._file.add(Record(call, marks, error=error.what))
            raise
        number, other = answer if isinstance(answer, tuple) else (None, answer)
        number = None if number is None else float(number)
        if isinstance(other, PETSc.Vec):
            record, values = Record(call, marks, number, []), read(other)
        elif isinstance(other, np.ndarray):
            record, values = Record(call, marks, number, list(other.shape)), other.ravel()
        elif isinstance(other, float):
            record, values = Record(call, marks, float(other)), None
        else:
            return answer  # the caller says what is wrong with it
        self._file.add(record, values)
        return answer

    def _again(self, place: Place) -> Any:
        """Return what is on record."""
        record = place.record
        if record.error is not None:
            raise SolveError(record.error)
        if record.array is None:
            return record.number
        values = self._file.stored(place)
        if record.array:
            return values.reshape(record.array)
        vec = self._x.duplicate()
        write(vec, values)
        return vec if record.number is None else (record.number, vec)

    def _mark(self, x: PETSc.Vec) -> list[float]:
        values = read(x)
        squares, along = self._mpi.allreduce(np.array([values @ values, values @ self._weights]))
        return [float(np.sqrt(squares)), float(along)]

    def _next(self, call: str, marks: list[list[float]]) -> Place | None:
        """Return the next record if it is of this call, or None where the file ends."""
        if not self._left:
            return None
        place = self._left[0]
        record = place.record
        same = record.call == call and len(record.marks) == len(marks)
        for k, (here, there) in enumerate(zip(marks, record.marks, strict=False)):
            # directions are compared with their own length
            step = min(self._step, here[0]) if k == 0 else here[0]
            near = SAME * step + 1e-13 * here[0]
            same = same and max(abs(a - b) for a, b in zip(here, there, strict=True)) <= near
        if not same:
            self._forget()
            return None
        self._left.popleft()
        if not self._left:
            self._limit_steps(limited=True)  # by the run at the last iterate
        return place

    def _forget(self) -> None:
        """Take what is left off the record: the run goes elsewhere."""
        left = sum(place.record.call == ITERATE for place in self._left)
        self.notes.append(
            f"after iterate {self.iterates - left - 1} it goes another way than what was on record "
            "(other options, or another number of ranks)"
        )
        self._file.keep(len(self._file.places()) - len(self._left))
        self._left.clear()
        self._limit_steps(limited=True)


def identity_of(
    method: str, x: PETSc.Vec, limits: Bounds | None, further: Mapping[str, str]
) -> dict[str, str]:
    """Describe a problem in words, the same on every rank; bounds by a checksum."""
    comm = x.comm.tompi4py()
    words = {"method": method, "size": str(x.getSize()), **further}
    for name, side in zip(("lower bound", "upper bound"), limits or (None, None), strict=True):
        if side is None:
            words[name] = "none"
            continue
        values = read(side)
        finite = int(comm.allreduce(int(np.isfinite(values).sum())))
        sums = np.array([sum_of(values, side.getOwnershipRange()[0])], dtype=np.uint64)
        comm.Allreduce(MPI.IN_PLACE, sums)
        words[name] = f"{finite} finite, checksum {int(sums[0]):x}"
    return words
