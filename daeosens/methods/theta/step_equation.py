"""The equation of a theta step, linearised: where, with which matrices, and in which weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from petsc4py import PETSc

from daeosens.costs.cost import Densities
from daeosens.methods.dae.structure import split_equations
from daeosens.methods.factored_matrix import FactoredMatrix, MakeSolver, shared
from daeosens.methods.linear_solver import block_solver
from daeosens.methods.state_rate import Partials, Rate
from daeosens.methods.step import Step
from daeosens.methods.theta.time_and_size import Point
from daeosens.petsc.vectors import dot, largest
from daeosens.problem.implicit_matrix import Elsewhere, SystemMatrix
from daeosens.problem.matrices import DENSE_TYPES, PointMatrix
from daeosens.problem.problem import Problem

SHORT = 1e-8
"""Part of the time: of shorter steps the difference of both ends has few digits."""


def takes_both_rates(problem: Problem, theta: float, *, endpoint: bool) -> bool:
    """Return whether a theta step takes the rate of the step at its start too.

    PETSc's TSTHETA takes none there, which is the same if F is linear in u' with coefficients that
    do not change, and of first order otherwise.
    """
    return problem.udot_nonlinear and endpoint and theta < 1.0


class LinearChange:
    """The matrix of a slot, or the difference of two, at one step after the other.

    Parameters
    ----------
    work : Vec [n]
        Room for a product.
    """

    def __init__(self, work: PETSc.Vec) -> None:
        self._work = work
        self._difference: PETSc.Mat | None = None
        self._keeps = False
        self._terms: list[tuple[float, PETSc.Mat]] = []

    def of_matrix(self, matrix: PETSc.Mat) -> LinearChange:
        """Let it be a matrix."""
        self._terms = [(1.0, matrix)]
        return self

    def of(self, first: FactoredMatrix, second: FactoredMatrix) -> LinearChange:
        """Let it be the matrix of the first slot, less that of the second one.

        Both have the same shift; they may be the same slot.
        """
        self._terms = []
        if first is not second and first.assembled:
            # entries cancel where products would leave rounding
            self._terms = [(1.0, self._subtracted(first.matrix, second.matrix))]
        elif first is not second:
            self._terms = [(1.0, first.matrix), (-1.0, second.matrix)]
        return self

    def _subtracted(self, minuend: PETSc.Mat, subtrahend: PETSc.Mat) -> PETSc.Mat:
        structure: Any = PETSc.Mat.Structure
        if self._difference is not None and self._keeps:
            minuend.copy(self._difference, structure.SAME_NONZERO_PATTERN)
            self._difference.axpy(-1.0, subtrahend, structure.SAME_NONZERO_PATTERN)
            return self._difference
        if self._difference is not None:
            self._difference.destroy()
        self._difference = minuend.duplicate(copy=True)
        # a dense one is kept for the next step; the patterns of others may differ there
        self._keeps = self._difference.getType() in DENSE_TYPES
        self._difference.axpy(-1.0, subtrahend, structure.UNKNOWN_NONZERO_PATTERN)
        return self._difference

    def add(self, factor: float, v: PETSc.Vec, out: PETSc.Vec, *, transpose: bool = False) -> None:
        """Add ``factor`` times the product with v [n], or the transposed one."""
        for sign, matrix in self._terms:
            (matrix.multTranspose if transpose else matrix.mult)(v, self._work)
            out.axpy(sign * factor, self._work)


class ThetaEquation:
    """F(t, u, u', p) + rest F at the start = 0, F linearised at the end or at the stage.

    The endpoint form takes one rate at both ends, (u1 - u0)/h.  Where F_udot is the same at both,
    the rate at the start is put to that at the end, which then is (u1 - u0)/(theta h).

    Parameters
    ----------
    problem : Problem
        In any form.
    theta : float
        Weight of the end of the step, in (0, 1].
    make_solver : callable
        Makes the linear solver of a matrix.
    endpoint : bool
        Endpoint form; otherwise one-stage.

    Attributes
    ----------
    at_end : bool
        F is linearised at the state after the step.
    rest : float
        Weight of F at the start.
    both_rates : bool
        F at the start has the rate of the step: F_udot may be another one there.
    reach : float
        Where in the step F is linearised, as a part of its size.
    share : float
        Weight of running costs there.
    of_state : float
        Weight of shift F_udot u0 in the equation as it is solved, see ``change``.
    of_next, keep : float
        Of the adjoint after the step: in the right-hand side, and in the adjoint before it; of the
        tangent before the step in the one after it.
    zero : Vec [n]
        The rate at the start.
    """

    def __init__(
        self, problem: Problem, theta: float, make_solver: MakeSolver, *, endpoint: bool
    ) -> None:
        self.theta, self.endpoint = theta, endpoint
        # Backward Euler has one stage, which is the end of the step: no stage state has to be
        # made.
        self.at_end = endpoint or theta == 1.0
        self.rest = (1.0 - theta) / theta if endpoint else 0.0
        self.both_rates = takes_both_rates(problem, theta, endpoint=endpoint)
        self.reach = 1.0 if endpoint else theta
        self.share = theta if endpoint else 1.0
        self.of_next = 1.0 if endpoint else 1.0 / theta
        # F_u at the start is written as the matrix J of the end and a change (``change``). J holds
        # F_u' as well, so the weights of that add up: 1 + (1 - theta)/theta = 1/theta.
        self.of_state = 1.0 / theta if endpoint and not self.both_rates else 1.0
        self.keep = 0.0 if self.both_rates else 1.0 - 1.0 / theta
        self._problem = problem
        self._make_solver = shared(make_solver)
        # Where F_u does not depend on udot one matrix serves both neighbouring steps.
        self._reusable = problem.form == "rhs" or (problem.form == "mass" and problem.constant_mass)
        self._slots: list[FactoredMatrix] = []
        self._stage, self._udot = problem.create_state(), problem.create_state()
        self.zero, self._work = problem.create_state(), problem.create_state()
        self._residual_p = PointMatrix(problem.residual_p)
        self._start_u, self._product = PointMatrix(problem.residual_u), problem.create_state()
        self._system: tuple[tuple[Point, Point], FactoredMatrix] | None = None
        self._by_parameters: tuple[float, PETSc.Vec, Any, PETSc.Mat] | None = None
        self._change = LinearChange(self._work)

    def ends(self, step: Step, *, rate: bool = True) -> tuple[float, tuple[Point, Point]]:
        """Return the shift, and where F is evaluated: linearised, and at the start.

        The shift is 1/(theta h), or 1/h for one rate at both ends.  Times are as callbacks see
        them.  The rate may be any without ``rate``.
        """
        t, h, u, _, p, _ = step
        inside, shift = self._problem.inside, 1.0 / (h if self.both_rates else self.theta * h)
        end = (inside(t + self.reach * h, t, h), *self._state_and_rate(step, shift, rate), p)
        at_start = end[2] if self.both_rates else self.zero
        return shift, (end, (inside(t, t, h), u, at_start, p))

    def _state_and_rate(self, step: Step, shift: float, rate: bool) -> tuple[PETSc.Vec, PETSc.Vec]:
        t, h, u, u_next, *_ = step
        if self.at_end and not rate:
            return u_next, self.zero
        # The run keeps states only; the stage and the rate follow from both ends, as the step is
        # linear in them: X = u0 + theta (u1 - u0).
        self._udot.waxpy(-1.0, u, u_next)
        if not self.at_end:
            u.copy(self._stage)
            self._stage.axpy(self.theta, self._udot)
            shift = 1.0 / h
        short = h < SHORT * abs(t) and largest(self._udot) < SHORT * largest(u_next)
        self._udot.scale(shift)
        state = u_next if self.at_end else self._stage
        if short:
            self._take_rate_from_equations(step, state, shift * h)
        return state, self._udot

    def _take_rate_from_equations(self, step: Step, state: PETSc.Vec, factor: float) -> None:
        """Replace the rate of a step whose ends differ by rounding, up to a factor.

        Such a step is left where an event is next to an observation.  The rate is that of the
        stage, or the mean of those at both ends by their weights.
        """
        inside, (t, h, u, _, p, _) = self._problem.inside, step
        self._fill_rate(inside(t + self.reach * h, t, h), state, p, self._udot)
        if self.rest:
            self._fill_rate(inside(t, t, h), u, p, self._work)
            self._udot.axpby(1.0 - self.theta, self.theta, self._work)
        self._udot.scale(factor)

    def _fill_rate(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with the rate of a state, as the equations have it."""
        problem = self._problem
        if problem.form == "rhs":
            problem.rhs(t, u, p, out)
            return
        solver = partial(block_solver, options={})
        split = split_equations(problem, t, u, p, solver)
        if not self.at_end:  # algebraic variables miss their equations, and F lacks their rates
            split = replace(split, algebraic=None)
        with closing(Rate(problem, Partials(problem), split, solver, (t, u, p))) as rate:
            rate.v.copy(out)

    def quadrature_points(self, step: Step) -> list[tuple[float, float, PETSc.Vec]]:
        """Return weights, times and states [n] at which running costs are evaluated."""
        _, (end, start) = self.ends(step, rate=False)
        points = ((1.0 - self.share, *start[:2]), (self.share, *end[:2]))
        return [point for point in points if point[0]]

    def time_slopes(
        self,
        h: float,
        ends: tuple[Point, Point],
        solutions: Sequence[PETSc.Vec],
        densities: Sequence[Densities],
    ) -> list[tuple[float, float]]:
        """Return the derivatives with respect to t and h for each cost."""
        problem, work, rest, reach = self._problem, self._work, self.rest, self.reach
        end, start = ends
        problem.residual_t(*end, work)
        by_t = [-dot(work, solution) for solution in solutions]
        # The end is at t + reach h; the start does not move with h.
        by_h = [reach * slope for slope in by_t]
        if rest:
            problem.residual_t(*start, work)
            by_t = [a - rest * dot(work, s) for a, s in zip(by_t, solutions, strict=True)]
        work.zeroEntries()
        # dF/dh = -F_u' u'/h at fixed states, and the slope is -nu.dF/dh, hence the plus.
        self.add_udot_product(1.0 / h, ends, end[2], work)
        by_h = [a + dot(work, s) for a, s in zip(by_h, solutions, strict=True)]
        points = ((1.0 - self.share, start, 0.0), (self.share, end, reach))
        for k, densities_k in enumerate(densities):
            for weight, density in densities_k:
                for share, (time, state, _, p), along in points:
                    if not share:
                        continue
                    slope = weight * share * h * density.value_t(time, state, p)
                    by_t[k] += slope
                    by_h[k] += along * slope + weight * share * density.value(time, state, p)
        return list(zip(by_t, by_h, strict=True))

    def add_partials(
        self,
        factor: float,
        point: Point,
        dp: PETSc.Vec | None,
        dt: float,
        out: PETSc.Vec,
    ) -> None:
        """Add ``factor`` (F_p dp + F_t dt) to ``out`` [n]."""
        if dp is not None and self._problem.n_parameters:
            self._matrix_p(point).mult(dp, self._work)
            out.axpy(factor, self._work)
        if dt:
            self._problem.residual_t(*point, self._work)
            out.axpy(factor * dt, self._work)

    def _matrix_p(self, point: Point) -> PETSc.Mat:
        """Return F_p, refilled only if it was last filled at another point."""
        t, u, _, p = point
        # The end of one step is the start of the next one.  F_p of M u' = f may depend on the rate.
        shared = bool(self.rest) and self._problem.form == "rhs"
        if shared and self._by_parameters is not None:
            time, state, parameters, matrix = self._by_parameters
            if time == t and state.handle == u.handle and parameters is p:
                return matrix
        self._by_parameters = None  # nothing holds if a callback raises
        matrix = self._residual_p.at(*point)
        if shared:
            self._by_parameters = (t, u, p, matrix)
        return matrix

    def add_parameter_part(
        self,
        factor: float,
        point: Point,
        solutions: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
    ) -> None:
        """Subtract ``factor`` F_p^T nu from each mu."""
        if self._problem.n_parameters == 0:
            return
        matrix = self._matrix_p(point)
        work = mu[0].duplicate()
        for solution, mu_k in zip(solutions, mu, strict=True):
            matrix.multTranspose(solution, work)
            mu_k.axpy(-factor, work)
        work.destroy()

    def pull_to_start(
        self,
        system: FactoredMatrix,
        shift: float,
        ends: tuple[Point, Point],
        solutions: Sequence[PETSc.Vec],
        lam: Sequence[PETSc.Vec],
    ) -> None:
        """Replace right-hand sides of adjoint equations by adjoints before the step.

        In the one-stage form those of before are made of the adjoints after the step.
        """
        factor = shift * self.of_state
        for lam_k, solution in zip(lam, solutions, strict=True):
            # J^T nu = lam, so keep J^T nu is keep lam: the large rows of J are not multiplied at
            # all.
            lam_k.scale(self.keep)
            self.add_udot_product(factor, ends, solution, lam_k, transpose=True)
        if self.rest:
            change = self.change(system, shift, ends)
            for lam_k, solution in zip(lam, solutions, strict=True):
                change.add(-self.rest, solution, lam_k, transpose=True)

    def change(
        self, system: FactoredMatrix, shift: float, ends: tuple[Point, Point]
    ) -> LinearChange:
        """Return F_u at the start less that of the system, where F_udot is the same at both ends.

        The rows of J = F_u + F_udot/(theta h) are large on fine grids, 4/d^2, and the error of a
        product with them is rounding of that size, which the next solve takes for a force.  With

            F_udot/(theta h) - rest F_u(start) = keep J + F_udot/(theta^2 h) - rest change

        no product has large rows: those of diffusion cancel in ``change`` exactly.  Otherwise it is
        F_u at the start, and ``keep`` is 0.
        """
        if self.both_rates:
            return self._change.of_matrix(self._start_u.at(*ends[1]))
        return self._change.of(self.slot(*ends[1], shift), system)

    def add_udot_product(
        self,
        factor: float,
        ends: tuple[Point, Point],
        v: PETSc.Vec,
        out: PETSc.Vec,
        *,
        transpose: bool = False,
    ) -> None:
        """Add ``factor`` D v, or its transpose's product, to ``out`` [n]; D is by the rate."""
        known, (end, start) = self._system, ends
        if known is not None and known[0] is ends:
            # the matrix of this step was filled from both: not evaluated again
            work, parts = self._product, known[1].udot_parts
            for weight, matrix in zip((factor, self.rest * factor), parts, strict=True):
                assert matrix is not None
                (matrix.multTranspose if transpose else matrix.mult)(v, work)
                out.axpy(weight, work)
            return
        self._problem.add_udot_product(factor, *end, v, out, transpose=transpose)
        # The rate of the step stands in F at the start as well, with the weight of that.
        if self.both_rates:
            factor *= self.rest
            self._problem.add_udot_product(factor, *start, v, out, transpose=transpose)

    def system(self, ends: tuple[Point, Point], shift: float) -> FactoredMatrix:
        """Return the matrix of the step's equation in the state that it is solved for."""
        if not self.both_rates:
            return self.slot(*ends[0], shift)
        self._system = None  # nothing holds if a callback raises
        slot = self.slot(*ends[0], shift, (self.rest * shift, ends[1]))
        self._system = ends, slot
        return slot

    def slot(
        self,
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        p: Any,
        shift: float,
        other: Elsewhere | None = None,
    ) -> FactoredMatrix:
        """Return F_u + shift F_udot, refilled only if neither slot holds the point already."""
        reusable = self._reusable and u is not self._stage
        for slot in self._slots:
            if reusable and slot.holds(t, u, p, shift):
                # The end of one step is the start of the next; only the shift differs if sizes
                # do.
                slot.reshift(shift)
                self._slots.remove(slot)
                # the slot used last goes to the end, so that the older one is refilled
                self._slots.append(slot)
                return slot
        if len(self._slots) < (2 if self.endpoint else 1):
            slot = FactoredMatrix(
                SystemMatrix(self._problem.residual_u, self._problem.residual_udot, t, u, udot, p),
                self._make_solver,
            )
        else:
            slot = self._slots.pop(0)
        self._slots.append(slot)
        slot.fill(t, u, udot, p, shift, other)
        return slot
