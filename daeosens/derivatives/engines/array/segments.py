"""Adjoint sweeps in blocks through events: smooth pieces in blocks, what is between by steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from daeosens.costs.cost import Cost, Densities
from daeosens.derivatives.engines.array.adjoint import Adder, gradients_by_step, seed_of, sweep_rows
from daeosens.derivatives.segments import piece_of, pieces
from daeosens.methods.events.event_step import HybridStep
from daeosens.petsc.vectors import Array, read, write
from daeosens.timestepping.trajectory.trajectory import Trajectory, steps_of


def block_sweep(trajectory: Trajectory, costs: Sequence[Cost]) -> tuple[Array, Array]:
    """Return the adjoints lam_0 [M, n] and mu [M, m] of M costs.

    As ``adjoint`` by steps, of the same numbers in another order of operations.
    """
    densities = [cost.densities for cost in costs]
    return sweep_points(trajectory, gradients_by_step(trajectory, costs), densities)


def sweep_points(
    trajectory: Trajectory,
    observed: Mapping[int, Sequence[tuple[int, Adder]]],
    densities: Sequence[Densities],
) -> tuple[Array, Array]:
    """Return the adjoints lam_0 [M, n] and mu [M, m] of what is said about states and points.

    Steps of fixed size that are not at events make up pieces, each a run of its own.  Those whose
    time depends on parameters count only where nothing depends on the time.

    Parameters
    ----------
    trajectory : Trajectory
        A run that can be swept in blocks (``no_block``).
    observed : mapping of int to sequence of (int, callable)
        By the number of the state, for which row something is added.
    densities : sequence of sequences of (float, Scalar)
        Running costs with their weights, for each of the M rows.
    """
    lam = np.zeros((len(densities), trajectory.problem.size))
    mu = np.zeros((len(densities), trajectory.problem.n_parameters))
    if trajectory.crossings:
        _through_events(trajectory, observed, densities, lam, mu)
    else:
        seed, last = seed_of(trajectory, observed, mu), trajectory.n_steps
        seed(last, lam)
        earlier = seed if any(number < last for number in observed) else None
        mu += sweep_rows(piece_of(trajectory, 0, last), lam, last, earlier, densities)
    return lam, mu


def _through_events(
    trajectory: Trajectory,
    observed: Mapping[int, Sequence[tuple[int, Adder]]],
    densities: Sequence[Densities],
    lam: Array,
    mu: Array,
) -> None:
    """Fill ``lam`` [M, n] and ``mu`` [M, m], which are zero."""
    problem = trajectory.problem
    steps = steps_of(trajectory)
    assert isinstance(steps, HybridStep)
    seed = seed_of(trajectory, observed, mu, steps.add_time)
    seed(trajectory.n_steps, lam)
    lam_vecs = [problem.create_state() for _ in densities]
    mu_vecs = [problem.create_parameters() for _ in densities]
    both = [*zip(lam_vecs, lam, strict=True), *zip(mu_vecs, mu, strict=True)]
    for first, last, smooth in reversed(list(pieces(trajectory, steps, densities))):
        if smooth:
            steps.pass_by(first)
            piece = piece_of(trajectory, first, last)

            def within(number: int, lam: Array, first: int = first) -> None:
                seed(first + number, lam)

            mu += sweep_rows(piece, lam, last - first, within, densities)
            continue
        for vec, row in both:
            write(vec, row)
        steps.adjoint(trajectory.step(first), lam_vecs, mu_vecs, densities)
        for vec, row in both:
            row[...] = read(vec)
        seed(first, lam)
