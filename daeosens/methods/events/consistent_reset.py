"""Jumps with consistent algebraic variables at their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from petsc4py import PETSc

from daeosens.methods.dae.consistent_state import ConsistentState
from daeosens.methods.dae.structure import algebraic_parts
from daeosens.methods.events.reset import Jump
from daeosens.methods.linear_solver import block_solver
from daeosens.methods.step import Adjoint, SecondOrder, Step
from daeosens.petsc.vectors import gather
from daeosens.problem.problem import Problem


def consistent_map(
    problem: Problem, t: float, u: PETSc.Vec, p: Any, options: Mapping[str, Any]
) -> ConsistentState | None:
    """Return the map that makes states of a problem consistent; None where there is nothing to do.

    Parameters and errors as for ``algebraic_parts``; ``options`` are PETSc's, of which those of
    the linear solver are used.  Collective.
    """
    make_solver = partial(block_solver, options=options)
    parts = algebraic_parts(problem, t, u, p, make_solver)
    return None if parts is None else ConsistentState(problem, parts, make_solver)


class ConsistentJump:
    """A jump after which the algebraic variables are solved for.

    Parameters
    ----------
    jump : Jump
        Gives the differential variables, the parameters, and guesses of the algebraic variables.
    consistent : ConsistentState
        Of the equations afterwards.
    p : array or Vec [m]
        Parameters afterwards.
    changes : bool
        Whether the jump changes parameters.
    """

    def __init__(self, jump: Jump, consistent: ConsistentState, p: Any, *, changes: bool) -> None:
        self._jump = jump
        self._consistent = consistent
        self._p = p
        self._changes = changes

    def apply(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> Any:
        """Fill ``out`` [n] with the state after the jump; return the parameters after it."""
        guess = out.duplicate()
        after = self._jump.apply(t, u, p, guess)
        return self._consistent.apply(t, guess, after, out)

    def tangent(
        self, step: Step, du: PETSc.Vec, dp: PETSc.Vec | None, dt: float
    ) -> PETSc.Vec | None:
        """Overwrite ``du`` [n] by the direction after the jump; return that in the parameters."""
        dp = self._jump.tangent(step, du, dp, dt)
        return self._consistent.tangent(self._second(step), du, dp, dt)

    def adjoint(self, step: Step, lam: Sequence[PETSc.Vec], mu: Sequence[PETSc.Vec]) -> list[float]:
        """Overwrite ``lam`` [n] and ``mu`` [m] by those before; return the adjoints of t."""
        later = self._consistent.adjoint(self._second(step), lam, mu)
        own = self._jump.adjoint(step, lam, mu)
        return [a + b for a, b in zip(own, later, strict=True)]

    def second_order(
        self, step: Step, first: Adjoint, directions: Sequence[SecondOrder]
    ) -> list[float]:
        """Carry one adjoint, unless it is known, and its derivatives along directions back."""
        after = directions
        if self._changes:
            after = [self._with_changed(step, direction) for direction in directions]
        later = self._consistent.second_order(self._second(step), first, after)
        own = self._jump.second_order(step, first, directions)
        return [a + b for a, b in zip(own, later, strict=True)]

    def _second(self, step: Step) -> Step:
        """Return what follows the jump itself: it ends in the state that the whole leads to."""
        return step._replace(u=step.u_next, p=self._p)

    def _with_changed(self, step: Step, along: SecondOrder) -> SecondOrder:
        """Return a direction with that of the parameters after the jump."""
        dp = self._jump.tangent(step, along.du.copy(), along.dp_vec, along.dt)
        assert dp is not None
        return replace(along, dp=gather(dp), dp_vec=dp)


class ConsistentReset:
    """What it takes along a run to make states consistent after events.

    Parameters
    ----------
    modes : mapping of str to Problem
        The equations of each mode.
    options : mapping
        PETSc's, of the linear solver.
    """

    def __init__(self, modes: Mapping[str, Problem], options: Mapping[str, Any]) -> None:
        self._modes = modes
        self._options = options
        self._maps: dict[str, ConsistentState | None] = {}

    def complete(
        self, jump: Jump, mode: str, t: float, after: PETSc.Vec, p: Any, *, changes: bool
    ) -> Jump:
        """Make the state ``after`` a jump consistent in the mode; return the whole jump.

        ``p`` are the parameters after it, which it may have changed.  Collective.
        """
        if self._modes[mode].curved_mass or mode not in self._maps:  # rows may be others elsewhere
            self._maps[mode] = consistent_map(self._modes[mode], t, after, p, self._options)
        consistent = self._maps[mode]
        if consistent is None:
            return jump
        # Newton's method changes algebraic variables alone: differential ones are what the reset
        # said
        guess = after.copy()
        consistent.apply(t, guess, p, after)
        guess.destroy()
        return ConsistentJump(jump, consistent, p, changes=changes)
