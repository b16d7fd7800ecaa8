"""The directions along which looks compare derivatives: changes of all parts by parts of these."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.derivatives.engines.choice import choose_sweep
from daeosens.derivatives.tangent_errors import DENSE, Start, consistent_directions
from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array, maxima, read, scatter, write
from daeosens.timestepping.trajectory.states import States
from daeosens.timestepping.trajectory.trajectory import Trajectory

GROUPS, MANY_UNKNOWNS = 6, 1000
"""So many directions of each kind, at most.  One of them where there are many unknowns, as a
direction takes half as long as a gradient there."""


def relative_directions(
    trajectory: Trajectory, *, start_held: bool = False
) -> tuple[list[Start], int] | None:
    """Return directions of three kinds, and how many are not of states from zero.

    Changes of parameters, and of initial states that are not zero, by parts of themselves; of
    initial states that are zero by parts of what these states become.  Of parameters alone if the
    start is held.  Each direction is one of these where they are few, else a group of them, of
    random signs and sizes: beside a sum of all, errors of small ones are not seen.  None where
    there is nothing to change, or algebraic equations at the start cannot be solved for them.  The
    same on any number of ranks, if unknowns have the same numbers there or are those of a grid.
    Collective.
    """
    problem = trajectory.problem
    start, p = np.abs(read(trajectory.stored[0])), sizes_of_parameters(trajectory)
    # single steps take one direction after the other, small ones with the same factors
    by_steps = choose_sweep(trajectory, "auto").engine == "vectors"
    many = problem.size > (DENSE if by_steps else MANY_UNKNOWNS)
    most = 1 if many or trajectory.moving else GROUPS
    changes: list[Start] = []
    raised: list[Start] = []
    for part in _groups(problem.parameter, p, most, 1):
        by_p = problem.create_parameters()
        write(by_p, part)
        changes.append((problem.create_state(), by_p))
    if not start_held:
        for sizes, directions in ((start, changes), (_from_zero(trajectory), raised)):
            for part in _groups(problem.state, sizes, most, 0):
                moved = problem.create_state()
                write(moved, part)
                directions.append((moved, None))
    # algebraic variables follow the others, or the first step would have to bring them there
    try:
        pairs = consistent_directions(trajectory, changes)
        relative = len(pairs)
        pairs += consistent_directions(trajectory, raised)
    except SolveError:  # of index two and more there are none here, but there is a gradient
        return None
    return (pairs, relative) if pairs else None


def _groups(vec: PETSc.Vec, sizes: Array, most: int, sample: int) -> Iterator[Array]:
    """Yield sizes [n_local] with random signs, each time those of other entries, and zeros.

    In so many groups, at most.  Collective.
    """
    there, numbers = sizes > 0.0, entry_numbers(vec)
    parts = random_parts(numbers, sample) * sizes
    # in turn, as neighbours are often alike, and by their numbers: ranks of a grid share these
    # otherwise than in order; where all are in one group, it is enough whether there are any
    own = numbers[there] if most > 1 else numbers[there][:1]
    every = np.sort(np.concatenate(vec.comm.tompi4py().allgather(own)))
    turn = np.searchsorted(every, numbers) % most
    for group in range(min(most, every.size)):
        yield np.where(turn == group, parts, 0.0)


def sizes_of_parameters(trajectory: Trajectory) -> Array:
    """Return the sizes [m_local] of parameters: of numbers, which all ranks have, a part."""
    problem = trajectory.problem
    if problem.field_parameter:
        return np.abs(read(trajectory.p))
    return np.abs(read(scatter(trajectory.p, problem.create_parameters())))


def largest_sizes(trajectory: Trajectory) -> Array:
    """Return the largest absolute values [n_local] of unknowns along a run."""
    stored = trajectory.stored
    if isinstance(stored, States):
        return np.abs(stored.rows).max(axis=0)
    sizes = np.abs(read(stored[0]))
    for state in stored:
        np.maximum(sizes, np.abs(read(state)), out=sizes)
    return sizes


def _from_zero(trajectory: Trajectory) -> Array:
    """Return the largest sizes [n_local] of those unknowns that start at zero.  Collective."""
    most, start = largest_sizes(trajectory), read(trajectory.stored[0])
    typical = float(maxima(np.array([most.max(initial=0.0)]), trajectory.problem.comm)[0]) or 1.0
    return np.where(start == 0.0, np.where(most > 0.0, most, typical), 0.0)


def entry_numbers(vec: PETSc.Vec) -> npt.NDArray[np.uint64]:
    """Return numbers of this rank's entries [n_local], the same however many ranks share them.

    On a grid those along its axes: PETSc counts through the box of one rank after the other.

    Examples
    --------
    >>> grid = PETSc.DMDA().create([3, 2], dof=2, comm=PETSc.COMM_SELF)
    >>> entry_numbers(grid.createGlobalVec()).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    """
    dm = vec.getDM()
    if not isinstance(dm, PETSc.DMDA):
        return np.arange(*vec.getOwnershipRange(), dtype=np.uint64)
    # the first axis is the fastest, and unknowns of a point follow one another
    numbers, stride = np.arange(dm.getDof()), dm.getDof()
    for first, count, size in zip(*dm.getCorners(), dm.getSizes(), strict=True):
        along = stride * np.arange(first, first + count)
        numbers, stride = (along[:, np.newaxis] + numbers).ravel(), stride * size
    return numbers.astype(np.uint64)


def random_parts(numbers: npt.NDArray[np.uint64], sample: int) -> Array:
    """Return numbers of random signs and sizes from 0.5 to 1, each by that of its entry.

    A generator would have to draw those of all ranks on each of them.

    Examples
    --------
    >>> every = random_parts(np.arange(4, dtype=np.uint64), 0)
    >>> every.round(2).tolist()
    [0.94, -0.72, 0.51, -0.99]
    >>> bool(random_parts(np.array([2], dtype=np.uint64), 0)[0] == every[2])
    True
    """
    # SplitMix64 of Steele, Lea and Flood: unsigned numbers that wrap around
    z = (numbers + np.uint64(sample << 40)) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    signs = np.where(z & np.uint64(1), 1.0, -1.0)
    return signs * (0.5 + 0.5 * (z >> np.uint64(11)).astype(float) * 2.0**-53)
