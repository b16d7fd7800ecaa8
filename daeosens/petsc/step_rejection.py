"""Trial steps that leave the domain of the equations: TS tries smaller ones, if they may help."""

from __future__ import annotations

from petsc4py import PETSc

from daeosens.errors import NotFiniteError
from daeosens.petsc._kernels import reject_trial, smallest_trial


def retry(
    ts: PETSc.TS, t: float, error: NotFiniteError, faults: list[str], *, jacobian: bool = False
) -> None:
    """Tell a TS that a callback gave values that are not finite, so that it tries a smaller step.

    Not collective: the callback fills in NaN, of which other ranks learn by norms.

    Parameters
    ----------
    ts : TS
        That called.
    t : float
        Time at which it called [time unit].
    error : NotFiniteError
        What the callback gave.
    faults : list of str
        Of this rank; the error takes the place of what is there.
    jacobian : bool
        Whether it was a Jacobian.

    Raises
    ------
    NotFiniteError
        Steps are fixed, or all of them begin with this value.
    """
    if not reject_trial(ts, t, jacobian=jacobian):
        raise with_trials(error, ts)
    faults[:] = [error.what]


def not_finite(faults: list[str], comm: PETSc.Comm) -> NotFiniteError:
    """Return the error for a start outside the domain, with the fault of any rank.  Collective."""
    # The fault may be on another rank than the one that has to tell it.
    messages = [text for rank_faults in comm.tompi4py().allgather(faults) for text in rank_faults]
    return NotFiniteError(
        messages[0] if messages else "the residual at the start is not finite",
        expected="finite values",
        remedy="another starting point, or bounds on the parameters",
    )


def with_trials(error: NotFiniteError, ts: PETSc.TS) -> NotFiniteError:
    """Return an error that says how small the steps were that a TS has tried."""
    what, *rest = str(error).split("\n")
    tried = trials(ts)
    if not tried:
        return error
    told = NotFiniteError("\n".join([what + tried, *rest]))
    told.operations = error.operations
    return told


def trials(ts: PETSc.TS) -> str:
    """Return how small the steps were that a TS has tried, for a message; "" if there was one."""
    smallest = smallest_trial(ts)
    return f"; steps down to h = {smallest:.3g} were tried" if smallest else ""
