"""The second-order sweep: tangents forward, one adjoint and its derivatives back.

As the sweep back (``backward.py``): windows between events by the engine, the rest by the steps.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from petsc4py import PETSc

from daeosens.costs.cost import Cost
from daeosens.derivatives.engines.arrays import hessian as arrays
from daeosens.derivatives.engines.arrays.hessian import FirstOrder
from daeosens.derivatives.engines.choice import Sweep, refuse_one_way_solver
from daeosens.derivatives.engines.compiled import hessian as compiled
from daeosens.derivatives.engines.compiled.hessian import CompiledFirst
from daeosens.derivatives.engines.delays.sweep import second_over_delays
from daeosens.derivatives.engines.request import (
    SecondRows,
    no_rows,
    points_by_step,
    window_of,
    windows,
)
from daeosens.derivatives.engines.vectors.hessian import TangentStates, VectorSecondOrder
from daeosens.derivatives.preflight import evaluate_at_events
from daeosens.derivatives.sweeps.forward import (
    PushedWindows,
    direction_arrays,
    sweep_forward,
)
from daeosens.derivatives.sweeps.kink_terms import KinkTerm, parts_between
from daeosens.methods.events.event_step import HybridStep
from daeosens.methods.step import Adjoint, Weights
from daeosens.petsc.vectors import Array, read, write
from daeosens.timestepping.trajectory.states import vectors_of
from daeosens.timestepping.trajectory.trajectory import (
    LITTLE_MEMORY,
    STAGE_MEMORY,
    Trajectory,
)


@dataclass
class FirstOrderMemory:
    """What products with one Hessian have in common: the adjoints of all stages.

    One vector for each stage of each step, if they take no more than ``STAGE_MEMORY``; for sweeps
    on arrays the Jacobians as well, if the run fits into one block, and factors for those in C.
    """

    adjoint: Adjoint | None = None
    arrays: FirstOrder | None = None
    compiled: CompiledFirst | None = None
    evaluated: bool = False  # the second derivatives that only events ask for


class SecondOrderSweep:
    """One adjoint and its derivatives along directions: carried back over a run.

    Parameters
    ----------
    trajectory : Trajectory
        The run.
    cost : Cost
        What is differentiated.
    directions : sequence of (Vec [n], Vec [m])
        Directions in the initial state and the parameters.
    engine : "vectors", "arrays" or "compiled"
        That of ``choose_sweep``.
    memory : FirstOrderMemory
        From earlier sweeps of the same run and cost, and for later ones.
    kinks : sequence of KinkTerm
        What kinks contribute.
    """

    def __init__(
        self,
        trajectory: Trajectory,
        cost: Cost,
        directions: Sequence[tuple[PETSc.Vec, PETSc.Vec]],
        engine: Sweep,
        memory: FirstOrderMemory,
        kinks: Sequence[KinkTerm] = (),
    ) -> None:
        self._trajectory = trajectory
        self._observed = points_by_step(trajectory, [cost])
        self._densities = cost.densities
        self._directions = directions
        self._engine: Sweep = engine
        self._memory = memory
        self._kinks = kinks
        self._rows: SecondRows | None = None  # zero
        self._pushed: PushedWindows = {}

    # ---- by steps

    @cached_property
    def _vectors(self) -> VectorSecondOrder:
        """What carries the rows over events."""
        run, memory = self._trajectory, self._memory
        refuse_one_way_solver(run)
        if run.crossings and not memory.evaluated:
            evaluate_at_events(run, self._observed, self._densities)
            memory.evaluated = True
        first = memory.adjoint
        if first is None or self._engine != "vectors":  # windows keep no adjoints of stages
            first = self._new_adjoint(keep=self._engine == "vectors")
        problem = run.problem
        dots = [(problem.create_state(), problem.create_parameters()) for _ in self._directions]
        return VectorSecondOrder(run, self._observed, self._densities, self._tangents, first, dots)

    def _new_adjoint(self, *, keep: bool) -> Adjoint:
        run, problem = self._trajectory, self._trajectory.problem
        fits = 8 * run.n_stages * problem.size / problem.comm.size <= STAGE_MEMORY
        weights: Weights | None = {} if keep and fits else None
        return Adjoint(problem.create_state(), problem.create_parameters(), weights)

    def _tangents(self) -> list[TangentStates]:
        copies = [(du.copy(), dp) for du, dp in self._directions]
        run = self._trajectory
        # Jacobians and factors of all stages, and the tangents there
        size = 8 * run.n_stages * run.problem.size * (2 * run.problem.size + 2 * len(copies) + 4)
        little = bool(run.crossings) and size <= LITTLE_MEMORY
        # what windows were linearised by on the way forward serves the way back
        along = sweep_forward(run, copies, self._engine, pushed=self._pushed if little else None)
        return [TangentStates(way.states, way.times, way.parameters) for way in along]

    @contextmanager
    def _on_vectors(self) -> Generator[VectorSecondOrder]:
        """Hand the rows to vectors, and take them back afterwards."""
        vectors = self._vectors
        if self._rows is None:
            du, dp = self._along(0)
            self._rows = no_rows(du, dp)
        rows = self._rows
        pairs = [
            (vectors.first.lam, rows.lam),
            (vectors.first.mu, rows.mu),
            *zip((lam for lam, _ in vectors.dots), rows.lam_dot, strict=True),
            *zip((mu for _, mu in vectors.dots), rows.mu_dot, strict=True),
        ]
        for vec, row in pairs:
            write(vec, row)
        yield vectors
        for vec, row in pairs:
            row[...] = read(vec)

    def _by_steps(self, first: int, last: int) -> None:
        """Carry the rows over single steps, with what is observed before them."""
        with self._on_vectors() as vectors:
            # the final state is in no window, so it is observed where the sweep begins
            if last == self._trajectory.n_steps:
                vectors.observe(last)
            vectors.back(first, last)

    # ---- by windows

    def _carry(self) -> None:
        """Carry the rows from the final state to the first one."""
        run, last = self._trajectory, self._trajectory.n_steps
        steps = self._vectors.steps if run.crossings else None
        assert steps is None or isinstance(steps, HybridStep)
        parts = parts_between(windows(run, steps, [self._densities], last), self._kinks)
        waiting: int | None = None  # the state up to which single steps wait for those before them
        for first, end, smooth in reversed(parts):
            window = smooth and self._engine != "vectors"
            if window and run.crossings and end == first + 1:
                window = False  # a step by itself is as quick
            if window and waiting is not None:
                self._by_steps(end, waiting)
                waiting = None
            if not (window and self._over_window(first, end)):
                waiting = end if waiting is None else waiting
            behind = [kink for kink in self._kinks if kink.state == first]
            if waiting is not None and (behind or not first):
                self._by_steps(first, waiting)
                waiting = None
            for kink in behind:
                assert self._rows is not None
                self._rows = kink.added(self._rows, *self._along(first))

    def _over_window(self, first: int, last: int) -> bool:
        """Carry the rows over a window, with what is observed there; return whether it was done."""
        run, moving = self._trajectory, self._trajectory.moving
        # A state at an implicit event moves in time, which windows do not know of: vectors observe
        # it, with the adjoint of that time (``event_step``).
        inside = range(first + (first in moving), last + (last == run.n_steps))
        observed = {n - first: seen for n, seen in self._observed.items() if n in inside}
        window = window_of(run, first, last)
        # first-order work is kept for the next product of the same Hessian, if one window is the
        # run
        whole = (first, last) == (0, run.n_steps)
        memory = self._memory if whole else FirstOrderMemory()
        along = self._along(first)
        if self._engine == "compiled":
            done = compiled.carry_second(window, observed, along, self._rows, memory.compiled)
            if done is None:
                return False
            self._rows, memory.compiled = done
        else:
            self._rows, memory.arrays = arrays.carry_second(
                window,
                observed,
                self._densities,
                along,
                self._rows,
                memory.arrays,
                self._pushed.pop((first, last), ()),
            )
        if run.crossings:
            steps = self._vectors.steps
            assert isinstance(steps, HybridStep)
            steps.pass_by(first)
            if first in moving and first in self._observed:
                with self._on_vectors() as vectors:
                    vectors.observe(first)
        return True

    def _along(self, first: int) -> tuple[Array, Array]:
        """Return the tangents of a state [D, n], and of the parameters there [D, m]."""
        pairs = self._directions
        if first:
            pairs = [(way.states[first], way.parameters[first]) for way in self._vectors.tangents]
        return direction_arrays(self._trajectory, pairs)

    def vectors(self) -> list[tuple[PETSc.Vec, PETSc.Vec]]:
        """Carry all back; return the gradient (u0 [n], p [m]) and the products."""
        if self._trajectory.problem.delays is not None:
            arrays_of_directions = direction_arrays(self._trajectory, self._directions)
            return second_over_delays(
                self._trajectory, self._observed, self._densities, *arrays_of_directions
            )
        if self._engine == "vectors" and not self._kinks:
            sweep, last = self._vectors, self._trajectory.n_steps
            sweep.observe(last)
            sweep.back(0, last)
            # tangents of all states may be as large as the run: freed before the next product
            for vec in (vec for way in sweep.tangents for vec in vectors_of(way.states)):
                vec.destroy()
            if sweep.first.weights is not None:
                self._memory.adjoint = replace(sweep.first, known=True)
            return [(sweep.first.lam, sweep.first.mu), *sweep.dots]
        self._carry()
        assert self._rows is not None
        lam, mu, lam_dot, mu_dot = self._rows
        problem = self._trajectory.problem
        result: list[tuple[PETSc.Vec, PETSc.Vec]] = []
        for by_u, by_p in [(lam, mu), *zip(lam_dot, mu_dot, strict=True)]:
            pair = problem.create_state(), problem.create_parameters()
            write(pair[0], by_u)
            write(pair[1], by_p)
            result.append(pair)
        return result
