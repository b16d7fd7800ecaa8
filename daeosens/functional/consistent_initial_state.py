"""Initial states whose algebraic variables follow from the equations at each p, differentiated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from petsc4py import PETSc

from daeosens.functional.initial_state import StartMap
from daeosens.methods.dae.consistent_state import ConsistentState
from daeosens.methods.events.consistent_reset import consistent_map
from daeosens.methods.step import Adjoint, SecondOrder, Step
from daeosens.petsc.vectors import Array, gather, scatter
from daeosens.problem.modes import entered_mode
from daeosens.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class ConsistentStart:
    """The map p -> u0 = c(t, eta(p), p) with G(t, c, p) = 0 that keeps differential variables.

    Its derivatives are those of the implicit function theorem, chained with those of eta.  Newton's
    method starts from eta(p) at each p, so that u0 does not depend on the points before.

    Parameters
    ----------
    start : StartMap, array or Vec [n]
        eta, or a constant state: differential variables, and guesses of the algebraic ones.
    t : float
        Time of the start.
    options : mapping
        PETSc's, of the linear solver.

    Source
    ------
    docs/mathematics.md, section 4.
    """

    start: Any
    t: float
    options: Mapping[str, Any]
    _maps: dict[Problem, ConsistentState | None] = field(
        default_factory=dict[Problem, "ConsistentState | None"], init=False
    )
    _last: list[SolvedStart] = field(default_factory=list["SolvedStart"], init=False)

    def at(self, problem: Problem, p: Array) -> PETSc.Vec:
        """Return u0(p) [n] as a new vector.

        Raises
        ------
        SolveError, UnsupportedError
            As ``consistent_state``.
        """
        return self._solved(problem, p).step.u_next.copy()

    def tangent(self, problem: Problem, p: Array, dp: Array) -> PETSc.Vec:
        """Return du0/dp dp [n] as a new vector."""
        if isinstance(self.start, StartMap):
            # First the guess moves by eta_p dp, of which the consistent map keeps the
            # differential part and replaces the algebraic one: c_y = -G_y^-1 (G_x dx + G_p dp).
            du0 = self.start.tangent(problem, p, dp)
        else:
            du0 = problem.create_state()
        _, step, consistent = self._solved(problem, p)
        if consistent is not None:
            consistent.tangent(step, du0, scatter(dp, problem.create_parameters()), 0.0)
        return du0

    def transposed(self, problem: Problem, p: Array, lam: PETSc.Vec) -> Array:
        """Return (du0/dp)^T lam [m] on every rank."""
        _, step, consistent = self._solved(problem, p)
        # The transposed chain: through the consistent map, which turns lam into that of the guess
        # and adds to mu, then through eta.
        before, mu = lam.copy(), problem.create_parameters()
        if consistent is not None:
            consistent.adjoint(step, [before], [mu])
        return self._pulled(problem, p, before, mu)

    def curvature(self, problem: Problem, p: Array, lam: PETSc.Vec, dp: Array) -> Array:
        """Return the derivative of (du0/dp)^T lam along dp [m] on every rank."""
        _, step, consistent = self._solved(problem, p)
        create, own = problem.create_state, problem.create_parameters
        first = Adjoint(lam.copy(), own())
        # G is bent at the consistent state, so the direction after the map counts; the one before
        # enters linearly, and is left 0.
        along = SecondOrder(
            create(),
            self.tangent(problem, p, dp),
            dp,
            scatter(dp, own()),
            create(),
            own(),
        )
        if consistent is not None:
            consistent.second_order(step, first, [along])
        bend = self._pulled(problem, p, along.lam_dot, along.mu_dot)
        if isinstance(self.start, StartMap):
            # By lam of the guess, which second_order has left in first.lam.
            bend = bend + self.start.curvature(problem, p, first.lam, dp)
        return bend

    def _solved(self, problem: Problem, p: Array) -> SolvedStart:
        """Return the way from the guess at p to the solution; the last one is kept."""
        # Gradient, tangents and products at one x need the same solution, each of which is a
        # Newton iteration.
        for kept in self._last:
            if kept.problem is problem and np.array_equal(kept.step.p, p):
                return kept
        start, t = self.start, self.t
        moves = isinstance(start, StartMap)
        guess = problem.admit_state(start.at(problem, p) if moves else start, "initial_state")
        seen = problem.admit_parameters(p.copy())
        self._last[:] = [solved_start(problem, t, guess, seen, self.options, self._maps)]
        return self._last[0]

    def _pulled(self, problem: Problem, p: Array, lam: PETSc.Vec, mu: PETSc.Vec) -> Array:
        """Return mu + eta_p^T lam [m]."""
        total = gather(mu)
        if isinstance(self.start, StartMap):
            total = total + self.start.transposed(problem, p, lam)
        return total


class SolvedStart(NamedTuple):
    """A step of no size from the guess to the consistent state, and the map that takes it."""

    problem: Problem
    step: Step
    consistent: ConsistentState | None

    def tangent(self, dx: PETSc.Vec) -> PETSc.Vec:
        """Return the direction of the start [n] along one of the guess, as a new vector."""
        du = dx.copy()
        if self.consistent is not None:
            self.consistent.tangent(self.step, du, None, 0.0)
        return du

    def adjoint(self, lam: PETSc.Vec) -> PETSc.Vec:
        """Return the transposed product with ``lam`` [n] as a new vector."""
        before = lam.copy()
        if self.consistent is not None:
            self.consistent.adjoint(self.step, [before], [self.problem.create_parameters()])
        return before

    def adjoint_along(self, lam: PETSc.Vec, lam_dot: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return the derivative of the transposed product along a direction of the guess [n]."""
        own = self.problem.create_parameters
        still = self.problem.admit_parameters(
            own() if self.problem.field_parameter else np.zeros(self.problem.n_parameters)
        )
        along = SecondOrder(dx, self.tangent(dx), still, own(), lam_dot.copy(), own())
        if self.consistent is not None:
            self.consistent.second_order(self.step, Adjoint(lam.copy(), own()), [along])
        return along.lam_dot


def solved_start(
    problem: Problem,
    t: float,
    guess: PETSc.Vec,
    p: Any,
    options: Mapping[str, Any],
    maps: dict[Problem, ConsistentState | None] | None = None,
) -> SolvedStart:
    """Return the consistent start near a guess [n], by the equations of the mode it is in.

    Parameters and errors as for ``consistent_state``; p as callbacks see them; ``maps`` are those
    that are known, by their equations.
    """
    maps = {} if maps is None else maps
    equations = problem.modes.get(entered_mode(problem, problem.mode, t, guess, p), problem)
    if equations.curved_mass or equations not in maps:  # rows may be others elsewhere
        maps[equations] = consistent_map(equations, t, guess, p, options)
    # None where no variable is algebraic: the state is as it was given.
    consistent, after = maps[equations], guess.copy()
    if consistent is not None:
        consistent.apply(t, guess, p, after)
    return SolvedStart(problem, Step(t, 0.0, guess, after, p), consistent)
