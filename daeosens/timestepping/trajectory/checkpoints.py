"""What users say of the states that a run keeps."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path

from daeosens.errors import InputError, is_real, is_whole
from daeosens.petsc.vectors import MOST
from daeosens.timestepping.trajectory.hierarchical import Hierarchical
from daeosens.timestepping.trajectory.schedule import Binomial, Schedule


@dataclass(frozen=True)
class Checkpoints:
    """Keep some states of a run; derivatives take the steps between them again.

    A sweep back from the last state to the first takes a run of N steps again in the least possible
    number of steps, that of binomial checkpoints, by ``repeated_steps``.  Results are bit for bit
    those of a run that keeps all, as long as linear systems are solved directly.

    Parameters
    ----------
    memory : int
        How many states are in memory at most, the first one among them.  Besides: three that a
        sweep works with, the last one among them, and three at each event.
    disk : int
        How many more are in a file, one of each rank, written behind the computation: those that
        are needed last and least often.
    folder : str or Path, optional
        Where that file lies, best on a disk of the machine itself; the system's folder for
        temporary files by default.  It has no name, and is gone with the run.
    write, read : float
        What it costs to write a state to the disk and to read one, in steps of the run; ``plan``
        measures both.  Where they are given, steps, writing and reading together cost as little as
        can be, by ``Hierarchical``; by default the steps alone are as few as can be.

    Raises
    ------
    InputError
        No state at all; costs of a disk without states there, or with one state in memory only.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, adjoint, solve
    >>> from daeosens.timestepping.trajectory.schedule import repeated_steps
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> stepping = Stepping((0.0, 2.0), "rk4", dt=0.02)
    >>> run = solve(decay, [1.0], [0.5], stepping, checkpoint=Checkpoints(10))
    >>> float(adjoint(run, Terminal(lambda t, u, p: u[0])).p[0].round(6)), run.stored.steps
    (-0.735759, 123)
    >>> repeated_steps(100, 10)
    123
    """

    memory: int
    disk: int = 0
    folder: str | Path | None = None
    write: float = 0.0
    read: float = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers that leave no state, and costs of nothing."""
        for name, least in (("memory", 1), ("disk", 0)):
            number: object = getattr(self, name)
            if not (is_whole(number) and least <= number <= MOST):
                raise InputError(f"{name} = {number!r}", expected=f"a number of states >= {least}")
        if not isinstance(self.folder, (str, Path, type(None))):
            raise InputError(f"folder = {self.folder!r}", expected="a path, or None")
        for name in ("write", "read"):
            cost: object = getattr(self, name)
            if not (is_real(cost) and 0.0 <= cost < inf):
                raise InputError(f"{name} = {cost!r}", expected="a number of steps >= 0")
            if cost and not (self.disk and self.memory > 1):
                raise InputError(
                    f"{name} = {cost:g} with memory = {self.memory}, disk = {self.disk}",
                    expected="at least two states in memory and one on disk",
                    remedy=f"memory=2, disk=1 or more, or no {name}",
                )

    def schedule(self, marks: tuple[int, ...] = (), end: int = -1) -> Schedule:
        """Return which states are kept, for a run of ``end`` steps that has left ``marks``."""
        if self.write or self.read:
            costs = float(self.write), float(self.read)
            return Hierarchical(self.memory, self.disk, *costs, marks, end)
        return Binomial(self.slots, self.memory, marks, end)

    @property
    def slots(self) -> int:
        """How many states are kept at one time."""
        return self.memory + self.disk
