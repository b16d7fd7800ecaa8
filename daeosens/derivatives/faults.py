"""Sweeps that fail: which derivative is not finite, where and when."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from daeosens.errors import SolveError
from daeosens.petsc.non_finite import note_fault
from daeosens.timestepping.trajectory.trajectory import Trajectory


@contextmanager
def named_faults(trajectory: Trajectory, *, back: bool) -> Generator[None]:
    """Add to the error of a sweep the first derivative on its way that is not finite.  Collective.

    For functions of a grid's points, and callbacks that fill PETSc's objects, whose derivatives are
    looked at only after a failure: others look at what they return.

    Parameters
    ----------
    trajectory : Trajectory
        Whose derivatives are swept.
    back : bool
        Whether the sweep begins with the last state.

    Raises
    ------
    SolveError
        In the place of the sweep's own error.
    """
    try:
        yield
    except SolveError as error:
        problem = trajectory.problem
        unseen = problem.form == "rhs" and (problem.stencil is not None or problem.batch is None)
        fault = _first_fault(trajectory, back=back) if unseen else ""
        if not fault:
            raise
        raise error.with_detail(fault) from error


def _first_fault(trajectory: Trajectory, *, back: bool) -> str:
    """Return the first product with ones of f_u and f_p that is not finite at a state, or ""."""
    problem, states = trajectory.problem, trajectory.stored
    point = (0.0, states[0], trajectory.p)
    # a product with ones has something of every entry: one that is not finite shows in it
    products = [("jacobian", problem.rhs_u, problem.create_state())]
    if problem.n_parameters:
        products.append(("jacobian_p", problem.rhs_p, problem.create_parameters()))
    matrices = [(name, product, product.create(*point), ones) for name, product, ones in products]
    out = problem.create_state()
    faults: list[str] = []
    # explicit steps do not linearise at the last state
    last = trajectory.n_steps - trajectory.stepping.resolved_method.explicit
    for n in range(last, -1, -1) if back else range(last + 1):
        t = float(trajectory.times[n])
        for name, derivative, matrix, ones in matrices:
            ones.set(1.0)
            derivative.fill(t, states[n], trajectory.parameters(n), matrix)
            matrix.mult(ones, out)
            note_fault(faults, name, t, out, problem.dm)
        # every rank has its own points: all hear of the first fault, and raise the same error
        messages = [
            text
            for rank_faults in problem.comm.tompi4py().allgather(faults)
            for text in rank_faults
        ]
        if messages:
            return messages[0]
    return ""
