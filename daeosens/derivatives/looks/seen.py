"""What looks at the runs of one problem have seen so far, and how often each was considered."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from petsc4py import PETSc

from daeosens.errors import DiscretizationWarning, warn
from daeosens.petsc.vectors import Array
from daeosens.problem.callback_guard import on_trial


@dataclass(eq=False)
class Seen:
    """What is known of the runs of a problem.

    Attributes
    ----------
    uses : dict of look to int
        How often the runs were of concern to a look.
    branches_change : bool
        Whether some branch has changed sides between two states.
    equations_jump : bool
        Whether the equations have jumped, or delays move past a jump or kink of theirs: then no
        error of steps is known.
    kink_terms : int or None
        The number of kinks that contribute to second derivatives of the run that was looked at
        last; None where one does whose part is left out.
    kink_left : float or None
        The last time of a kink, in the run that was looked at last, across which a step goes.
    events_uncertain : bool
        Whether the times of events were not known well enough, of the run that was looked at last.
    unresolved : bool
        Whether the steps of the last run that was looked at did not resolve derivatives.
    products_unresolved : bool
        The same of the last products with a Hessian that were looked at.
    start_follows : bool
        Whether the start's own derivative in the parameters is added to gradients.
    start_held : bool
        Whether derivatives in the start are not asked for, while that is so.
    gradients : callable or None
        Returns those of the costs that are looked at, in the start [M, n] and in the parameters
        [M, m], while they are known.
    """

    uses: dict[object, int] = field(default_factory=dict[object, int])
    branches_change: bool = False
    equations_jump: bool = False
    kink_terms: int | None = 0
    kink_left: float | None = None
    events_uncertain: bool = False
    unresolved: bool = False
    products_unresolved: bool = False
    start_follows: bool = False
    start_held: bool = False
    gradients: Callable[[], tuple[Array, Array]] | None = None


@contextmanager
def unseen_run() -> Generator[list[Exception]]:
    """Take another run than the user's, of which nobody is told: neither warnings nor errors.

    Its states are others: callbacks may have no value there and raise errors of any kind, while the
    derivatives that are looked at are there.  What was raised, by all ranks together, is put into
    the list.
    """
    failures = list[Exception]()
    with on_trial(), warnings.catch_warnings(action="ignore"):
        try:
            yield failures
        except Exception as failure:  # noqa: BLE001 - of any kind
            failures.append(failure)


def warn_of_no_look(what: str, failures: Sequence[Exception], comm: PETSc.Comm) -> None:
    """Warn that the run with finer steps has failed, so that nobody knows what they resolve."""
    why = "has other events" if not failures else f"failed ({_first_line(failures[0])})"
    warn(
        f"whether the steps resolve {what} is not known: the same run by finer steps {why}\n"
        "  try: another rtol or method, and compare",
        DiscretizationWarning,
        comm,
    )


def _first_line(failure: Exception) -> str:
    """Return the first line of an error, or its type where it says nothing."""
    return str(failure).partition("\n")[0] or type(failure).__name__
