"""Several experiments in one functional: the same unknowns, each experiment its own run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import InputError, require
from daeosens.functional.parameters import Control, Parameters
from daeosens.functional.reduced import Reduced, Vector
from daeosens.functional.runs import Count
from daeosens.petsc.ranks import agree
from daeosens.petsc.unpicklable import Undivided
from daeosens.petsc.vectors import Array, read
from daeosens.problem.matrices import dense


class Joint(Undivided):
    """x -> the sum of reduced functionals of the same x: several experiments in one fit.

    All that it gives is collective on ``comm``.

    Each has its own problem, data, time span, initial state and fixed parameters.  The joint one
    has every ability of a ``Reduced`` but constraints on runs; ``predict`` takes the experiment
    that is meant.  Give a prior to one of them only.

    Parameters
    ----------
    experiments : sequence of Reduced
        With the same free parameters, in the same order, with the same starts, scales and bounds.

    Attributes
    ----------
    experiments : tuple of Reduced

    Raises
    ------
    InputError
        Controls whose x differ (the first difference is named), other communicators, none at all.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Stepping, minimize
    >>> decay = ODE(lambda t, u, p: p[1] - p[0] * u, size=1, parameters=["rate", "feed"])
    >>> stepping = Stepping((0.0, 2.0), "rk4", dt=0.1)
    >>> rate = Parameter(1.0)
    >>> batch = Parameters({"rate": rate, "feed": 0.0}, initial_state=[1.0])
    >>> fed = Parameters({"rate": rate, "feed": 0.3}, initial_state=[0.0])
    >>> first = Reduced(decay, LeastSquares([1.0, 2.0], [0.62, 0.36], 0.01), stepping, batch)
    >>> second = Reduced(decay, LeastSquares([1.5], [0.31], 0.01), stepping, fed)
    >>> both = Joint([first, second])
    >>> print(f"{minimize(both, method='brgn').x[0]:.3f}")
    0.499
    """

    _in_its_place: ClassVar[str] = "a function that builds it, called in each process"

    def __init__(self, experiments: Sequence[Reduced]) -> None:
        if not isinstance(experiments, Sequence) or not experiments:  # type: ignore[redundant-expr]
            raise InputError(
                f"experiments = {experiments!r}", expected="one Reduced or more, in a list"
            )
        for k, experiment in enumerate(experiments):
            require(
                experiment,
                Reduced,
                f"experiments[{k}]",
                "Reduced(problem, objective, stepping, ...)",
            )
        self.experiments = tuple(experiments)
        first = self.experiments[0]
        agree(first.comm, "Joint", experiments=len(self.experiments))
        for k, experiment in enumerate(self.experiments[1:], start=1):
            _compare(first, experiment, k)

    @property
    def comm(self) -> PETSc.Comm:
        """The communicator of x and of every method."""
        return self.experiments[0].comm

    @property
    def control(self) -> Control:
        """The control of the first experiment, which says what x means."""
        return self.experiments[0].control

    @property
    def count(self) -> Count:
        """How often the experiments have run, all together."""
        counts = [experiment.count for experiment in self.experiments]
        return Count(
            sum(member.forward for member in counts),
            sum(member.adjoint for member in counts),
            sum(member.tangent for member in counts),
            sum(member.second_order for member in counts),
        )

    @property
    def tolerance(self) -> float:
        """Loosest relative tolerance of adaptive runs; 0 of fixed steps."""
        return max(experiment.tolerance for experiment in self.experiments)

    def limit_steps(self, *, limited: bool) -> None:
        """Limit the steps of later runs of each experiment, or of none: ``Reduced.limit_steps``."""
        for experiment in self.experiments:
            experiment.limit_steps(limited=limited)

    def start(self) -> PETSc.Vec:
        """Return a new vector with the controls' starting point."""
        # The same x for all, which _compare has checked.
        return self.experiments[0].start()

    def bounds(self) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return the bounds of x, or None."""
        return self.experiments[0].bounds()

    def typical(self) -> tuple[PETSc.Vec, float]:
        """Return sizes of x [k] below which nothing matters, and 0 for J: its start decides."""
        return self.experiments[0].typical()

    def point(self, x: Vector) -> PETSc.Vec:
        """Return x as a vector [k], as the experiments do.  Collective."""
        return self.experiments[0].point(x)

    @property
    def order(self) -> int:
        """The lowest order of the methods of the experiments."""
        return min(experiment.order for experiment in self.experiments)

    def refined(self, x: Vector) -> tuple[Joint, int]:
        """Return the same functional by runs with parts of the steps of those at x.

        And how many parts, at least.
        """
        refined = [experiment.refined(x) for experiment in self.experiments]
        return Joint([finer for finer, _ in refined]), min(parts for _, parts in refined)

    def repeated(self, x: Vector) -> Joint | None:
        """Return the same functional by runs that take the steps of those at x, or None."""
        experiments = [experiment.repeated(x) for experiment in self.experiments]
        known = [experiment for experiment in experiments if experiment is not None]
        # All or none: a sum of which one part has other steps is another functional.
        return Joint(known) if len(known) == len(experiments) else None

    def value(self, x: Vector) -> float:
        """Return J(x)."""
        return sum(experiment.value(x) for experiment in self.experiments)

    def gradient(self, x: Vector) -> PETSc.Vec:
        """Return the gradient of J at x as a new vector."""
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x: Vector) -> tuple[float, PETSc.Vec]:
        """Return J(x) and its gradient as a new vector."""
        pairs = [experiment.value_and_gradient(x) for experiment in self.experiments]
        return sum(value for value, _ in pairs), _total([gradient for _, gradient in pairs])

    def derivative(self, x: Vector, dx: Vector) -> float:
        """Return the directional derivative of J at x by tangent-linear sweeps."""
        return sum(experiment.derivative(x, dx) for experiment in self.experiments)

    def hessian_product(self, x: Vector, dx: Vector) -> PETSc.Vec:
        """Return the Hessian of J at x times dx as a new vector.

        Raises
        ------
        UnsupportedError
            A second derivative that is missing; names it.
        """
        return _total([experiment.hessian_product(x, dx) for experiment in self.experiments])

    def gauss_newton_product(self, x: Vector, dx: Vector) -> PETSc.Vec:
        """Return J_r^T J_r dx for J = 1/2 |r|^2 as a new vector.

        Raises
        ------
        UnsupportedError
            The cost is no sum of squares.
        """
        return _total([experiment.gauss_newton_product(x, dx) for experiment in self.experiments])

    def gauss_newton_matrix(self, x: Vector) -> Array:
        """Return J_r^T J_r [k, k] for J = 1/2 |r|^2, the same on every rank; for small k."""
        return np.sum(
            [experiment.gauss_newton_matrix(x) for experiment in self.experiments], axis=0
        )

    def hessian(self, x: Vector) -> Array:
        """Return the dense Hessian of J at x [k, k], the same on every rank; for small k."""
        return np.sum([experiment.hessian(x) for experiment in self.experiments], axis=0)

    def residual(self, x: Vector) -> PETSc.Vec:
        """Return r(x) [q], J = 1/2 |r|^2: on each rank its rows of one experiment after another.

        Raises
        ------
        UnsupportedError
            The cost is no sum of squares.
        """
        parts = [experiment.residual(x) for experiment in self.experiments]
        rows = PETSc.Vec().create(comm=self.comm)
        # Each rank keeps what it has: r of the joint functional is in another order than its
        # experiments' one after the other, but |r| and R^T R do not depend on it.
        rows.setSizes((sum(part.getLocalSize() for part in parts), PETSc.DETERMINE))
        rows.setType(PETSc.Vec.Type.STANDARD)
        rows.getArray()[...] = np.concatenate([read(part) for part in parts])
        return rows

    def residual_jacobian(self, x: Vector) -> PETSc.Mat:
        """Return dr/dx as a dense matrix [q, k], in the order of ``residual``."""
        x = self.point(x)
        rows = [experiment.residual_jacobian(x).getDenseArray() for experiment in self.experiments]
        matrix = dense(self.residual(x), x)
        # Rows of each rank in the order of residual, all columns.
        matrix.getDenseArray()[...] = np.concatenate(rows)
        matrix.assemble()
        return matrix

    @property
    def residual_sweep(self) -> str:
        """Which sweeps give ``residual_jacobian``: "tangent", "adjoint" or both."""
        return " and ".join(
            dict.fromkeys(experiment.residual_sweep for experiment in self.experiments)
        )

    def check_squares(self) -> None:
        """Say whether J is a sum of squares, without a run; ``UnsupportedError`` if not."""
        for experiment in self.experiments:
            experiment.check_squares()

    def check_second_order(self) -> None:
        """Raise ``UnsupportedError`` where a second derivative is missing, without a run."""
        for experiment in self.experiments:
            experiment.check_second_order()


def _compare(first: Reduced, other: Reduced, k: int) -> None:
    """Refuse an experiment whose x is not that of the first one.  Collective."""
    ranks, others = first.comm.tompi4py(), other.comm.tompi4py()
    if MPI.Comm.Compare(ranks, others) not in (MPI.IDENT, MPI.CONGRUENT):
        raise InputError(
            f"experiments[{k}] is on {other.comm.size} ranks, experiments[0] on {first.comm.size}",
            expected="one communicator",
        )
    # Names and their scales, in order: x of equal length may mean something else.
    names = [_names(functional.control) for functional in (first, other)]
    told = f"experiments[0] and experiments[{k}]"
    if names[0] != names[1]:
        raise InputError(
            f"{told} have the free parameters {names[0]} and {names[1]}",
            expected="the same in the same order",
            remedy="one Parameter(...) for all; numbers where an experiment has a value of its own",
        )
    kinds = ("start", "lower bound", "upper bound")
    for kind, vector, another in zip(kinds, _numbers(first), _numbers(other), strict=True):
        if not _equal(vector, another):
            raise InputError(
                f"{told}: another {kind}, or another layout, of x",
                expected="the same unknowns",
                remedy="the same Parameter(...) in each",
            )


def _names(control: Control) -> dict[str, str] | str:
    if not isinstance(control, Parameters):
        return type(control).__name__
    return {name: control.entries[name].scale for name in control.free_names}


def _numbers(functional: Reduced) -> tuple[PETSc.Vec | None, ...]:
    return (functional.start(), *(functional.bounds() or (None, None)))


def _equal(vector: PETSc.Vec | None, another: PETSc.Vec | None) -> bool:
    if vector is None or another is None:
        return vector is another
    # Layouts first, with the answer of all ranks: Vec.equal of different layouts would be an
    # error on some.
    alike = vector.comm.tompi4py().allreduce(vector.getSizes() == another.getSizes(), MPI.LAND)
    return alike and bool(vector.equal(another))


def _total(vectors: Sequence[PETSc.Vec]) -> PETSc.Vec:
    total, *others = vectors
    for other in others:
        total.axpy(1.0, other)
        other.destroy()
    return total
