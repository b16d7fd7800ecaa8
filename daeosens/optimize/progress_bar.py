"""Progress of a minimisation on a terminal, by tqdm."""

from __future__ import annotations

import sys
from typing import Any

from mpi4py import MPI
from petsc4py import PETSc
from tqdm import tqdm

from daeosens.optimize.result import Iterate


class Bar:
    """One line on stderr that each iterate writes anew, and that is gone at the end."""

    def __init__(self, title: str) -> None:
        self._line: Any = tqdm(
            desc=title, unit=" iterations", file=sys.stderr, leave=False, dynamic_ncols=True
        )

    def __call__(self, iterate: Iterate, _x: PETSc.Vec) -> None:
        """Show an iterate."""
        self._line.set_postfix_str(
            f"value {iterate.value:.8g}, gradient {iterate.gradient_norm:.1e}, "
            f"{iterate.evaluations} runs",
            refresh=False,
        )
        self._line.update(iterate.iteration - self._line.n)
        self._line.refresh()

    def close(self) -> None:
        """Remove the line."""
        self._line.close()


def bar_on_terminal(title: str) -> Bar | None:
    """Return a bar, on the first of all ranks and if there is a terminal to show it on."""
    if MPI.COMM_WORLD.rank > 0 or sys.stderr is None or not sys.stderr.isatty():
        return None
    return Bar(title)
