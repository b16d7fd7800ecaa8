"""Types of stencils.pyx, whose docstrings tell the rest."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

from daeosens.petsc.c_function import LateAddress

class Stencil:
    def __init__(
        self,
        dm: PETSc.DM | None,
        ghosts: int,
        n: Sequence[int],
        first: Sequence[float],
        spacing: Sequence[float],
        periodic: bool,
        work: NDArray[np.float64],
    ) -> None: ...
    def add(
        self,
        name: str,
        address: int | LateAddress,
        around: Sequence[bool],
        reach: int,
        keeps: Any,
    ) -> None: ...
    def add_chain(
        self, name: str, address: int | LateAddress, vector: int, work: NDArray[np.float64]
    ) -> None: ...
    @property
    def chains(self) -> bool: ...
    def add_loops(self, turn: int, weigh: int, reduce: int, compare: int, advance: int) -> None: ...
    def apply(
        self,
        name: str,
        t: float,
        p: NDArray[np.float64],
        inputs: tuple[PETSc.Vec, ...],
        out: PETSc.Vec | None = None,
        alpha: float = 1.0,
        add: PETSc.Vec | None = None,
        beta: float = 1.0,
        dp: NDArray[np.float64] | None = None,
        sums: int | None = None,
    ) -> NDArray[np.float64]: ...
    def pull_steps(
        self,
        times: Sequence[float],
        sizes: Sequence[float],
        p: NDArray[np.float64],
        stages: Sequence[Sequence[PETSc.Vec]],
        lam: PETSc.Vec,
        work: Sequence[PETSc.Vec],
        a: NDArray[np.float64],
        b: NDArray[np.float64],
        c: NDArray[np.float64],
        sums: NDArray[np.float64],
    ) -> None: ...
