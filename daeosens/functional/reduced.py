"""The reduced functional: optimisation variables in, value and gradient out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, TypeAlias
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.objective import Objective, require_objective
from daeosens.derivatives.adjoint import Gradient, adjoint, evaluate, shared
from daeosens.derivatives.divided import divided, repeated
from daeosens.derivatives.engines.arrays.hessian import DIRECTIONS
from daeosens.derivatives.engines.choice import Engine, Sweep, check_engine, choose_sweep
from daeosens.derivatives.hessian import HessianProduct, Memory, hessian_sweep
from daeosens.derivatives.looks.look import note_that_start_follows, start_held
from daeosens.derivatives.preflight import evaluate_second_derivatives
from daeosens.derivatives.residual_jacobian import (
    gauss_newton_product,
    residual,
    residual_adjoint,
    residual_tangents,
    squares_of,
)
from daeosens.derivatives.solve import Checkpoint, check_checkpoint
from daeosens.derivatives.tangent import Tangent, tangent_sweep
from daeosens.errors import InputError, SolveError, is_iterable, require
from daeosens.functional.distributed_controls import InitialState
from daeosens.functional.functional import normal_matrix
from daeosens.functional.parameters import Control, Parameters
from daeosens.functional.runs import Count, Runs
from daeosens.methods.events.event_function import lower_events
from daeosens.petsc.ranks import agree
from daeosens.petsc.unpicklable import Undivided
from daeosens.petsc.vectors import (
    Array,
    created,
    finite_array,
    gather,
    is_finite,
    refuse_not_finite,
    scatter,
)
from daeosens.problem.callback_guard import QUIET
from daeosens.problem.matrices import dense
from daeosens.problem.modes import entered_mode
from daeosens.problem.problem import Problem
from daeosens.timestepping.method_choice import by_form
from daeosens.timestepping.step_times import inside_span
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.trajectory import Trajectory

Vector: TypeAlias = "PETSc.Vec | npt.ArrayLike"
"""A point or a direction: a vector laid out like ``start()``, or an array of all its numbers."""

TOGETHER = 16
"""How many directions or rows share a sweep by steps: bounds its memory."""


class Reduced(Undivided):
    """x -> J(u(x), p(x)) with gradients and Hessian products by discrete adjoints.

    Every x and dx may be a vector laid out like ``start()`` or an array [k].
    What can be checked is checked here, before the first run.  Collective on ``problem.comm``.

    Parameters
    ----------
    problem : Problem
        The dynamics.
    objective : Objective
        The cost; its observation times are hit by steps.
    stepping : Stepping
        Method and step sizes.
    control : Parameters, InitialState or FieldParameter
        What x means.
    engine : "auto", "vectors", "arrays" or "tsadjoint"
        Which adjoint; see ``adjoint``.  Tangents and second order by "vectors" for the last one.
    checkpoint : "auto", "states", "stages", Checkpoints or a schedule
        What runs keep; see ``solve``.  "auto": the states, and the stages where computing
        them again takes longer; as many states as fit where all of them do not.

    Raises
    ------
    InputError
        Names, sizes or times that do not fit together.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.4])
    >>> stepping = Stepping((0.0, 2.0), "rk4", dt=0.1)
    >>> control = Parameters({"rate": Parameter(0.3)}, initial_state=[1.0])
    >>> functional = Reduced(decay, misfit, stepping, control)
    >>> value, gradient = functional.value_and_gradient([0.3])
    >>> functional.hessian([0.3]).round(4)
    array([[2.1846]])
    """

    _in_its_place: ClassVar[str] = "a function that builds it, called in each process"

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        stepping: Stepping,
        control: Control,
        *,
        engine: Engine = "auto",
        checkpoint: Checkpoint = "auto",
    ) -> None:
        self.problem = problem
        self.objective = objective
        self.control = control
        self.engine: Engine = engine
        self.checkpoint: Checkpoint = checkpoint
        # PETSc's own adjoint is for gradients alone; all other sweeps go by vectors.
        check_engine(engine)
        self._sweep: Sweep = "vectors" if engine == "tsadjoint" else engine
        self.count = Count()
        require(problem, Problem, "problem", "ODE(f, size, parameters), or trace(f, ...) compiled")
        agree(
            problem.comm,
            "Reduced",
            objective=objective,
            times=getattr(objective, "times", ()),
            sigma=getattr(objective, "sigma", None),
            stepping=stepping,
            control=type(control).__name__,
            engine=engine,
            checkpoint=checkpoint,
        )
        check_checkpoint(checkpoint)
        require_objective(objective)
        require(stepping, Stepping, "stepping", 'Stepping((0.0, 1.0), "rk6vr", rtol=1e-6)')
        if not hasattr(control, "unpack"):
            raise InputError(
                f"control is {type(control).__name__}",
                expected="Parameters, InitialState or FieldParameter",
                remedy='Parameters({"rate": Parameter(1.0)}, initial_state=u0)',
            )
        if isinstance(control, (Parameters, InitialState)):
            # A consistent start is one of the algebraic equations at the time of the start, which
            # Stepping knows.
            self.control = control.of_runs(by_form(problem, stepping))
        first, last = stepping.t_span
        inside_span((first, last), np.array(objective.times, dtype=float), "observation time")
        self._runs = Runs(
            problem,
            by_form(problem, stepping),
            self.control,
            objective.times,
            engine,
            checkpoint,
            self.count,
        )
        control.check(problem)
        # Lowered here only to be checked; each sweep lowers it for itself.
        objective.lower(problem, last)
        lower_events(problem)
        if _start_follows(self.control):
            note_that_start_follows(problem)
        self._check_start(first)
        # What second-order sweeps share belongs to one run, and does not keep it.
        self._memory = Memory()
        self._swept: ReferenceType[Trajectory] | None = None
        self._n_residuals: int | None = None

    @property
    def stepping(self) -> Stepping:
        """Method and step sizes; after the first run the method that was chosen."""
        return self._runs.stepping

    @property
    def tolerance(self) -> float:
        """Relative tolerance of adaptive runs; 0 of fixed steps."""
        stepping = self._runs.stepping
        return stepping.tolerances[0] if stepping.adaptive else 0.0

    def _by(self, stepping: Stepping, objective: Objective) -> Reduced:
        """Return another functional of the same problem and control."""
        return Reduced(
            self.problem,
            objective,
            stepping,
            self.control,
            engine=self.engine,
            checkpoint=self.checkpoint,
        )

    def reweighted(self, objective: Objective) -> Reduced:
        """Return the functional with other weights in its objective, by the runs of this one.

        Parameters
        ----------
        objective : Objective
            With the same times.
        """
        other = self._by(self.stepping, objective)
        # The states do not depend on weights, so runs are shared and counted once.
        other._runs, other.count = self._runs, self.count
        return other

    def limit_steps(self, *, limited: bool) -> None:
        """Give later runs no more steps than a multiple of those of the last one, or all again.

        Where parameters far from the best ones make the equations stiff, an explicit method would
        take ``max_steps``, a million, before the trial counts as failed.
        """
        self._runs.limit_steps(limited=limited)

    @QUIET
    def _check_start(self, t: float) -> None:
        """Refuse a start at which the equations have no value: later it would be a failed solve."""
        problem = self.problem
        if problem.monitor is not None:  # which completes the state before anything is evaluated
            return
        u0, p = self.control.unpack(problem, self.start())
        state, parameters = problem.admit_state(u0), problem.admit_parameters(p)
        zero, out = problem.create_state(), problem.create_state()
        try:
            mode = entered_mode(problem, problem.mode, t, state, parameters)
            problem.modes.get(mode, problem).residual(t, state, zero, parameters, out)
        except SolveError as error:
            raise InputError(f"at the start: {error}") from error
        if not is_finite(out):
            name = "rhs" if problem.rhs_function is not None else "residual"
            raise InputError(
                f"at the start: callback '{name}' gives values that are not finite at t = {t:.9g}",
                expected="finite values",
                remedy="another starting point",
            )

    @property
    def comm(self) -> PETSc.Comm:
        """The communicator of x and of every method."""
        return self.problem.comm

    def start(self) -> PETSc.Vec:
        """Return a new vector with the control's starting point.  Collective."""
        agree(self.comm, "Reduced.start")
        return self.control.start(self.problem)

    def bounds(self) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return the bounds of x, or None.  Collective."""
        agree(self.comm, "Reduced.bounds")
        return self.control.bounds(self.problem)

    def point(self, x: Vector) -> PETSc.Vec:
        """Return x as a vector [k]: itself, or made of an array with all its numbers.  Collective.

        Raises
        ------
        InputError
            An array of another shape, or with values that are not finite.
        """
        agree(self.comm, "Reduced.point")
        if isinstance(x, PETSc.Vec):
            return refuse_not_finite(created(x, "x", "functional.start()"), "x")
        like = self._start_point
        return scatter(finite_array(x, "x", (like.size,)), like.duplicate())

    @cached_property
    def _start_point(self) -> PETSc.Vec:
        return self.start()

    def trajectory(self, x: Vector) -> Trajectory:
        """Return the run at x; the last one is kept.  Collective.

        Raises
        ------
        InputError
            An x of another shape.
        SolveError
            The run failed, the same on every rank.
        """
        agree(self.comm, "Reduced.trajectory")
        run = self._runs.at(self.point(x))
        if self._swept is None or self._swept() is not run:
            self._swept, self._memory = ref(run), Memory()
        return run

    @property
    def order(self) -> int:
        """Order of the method of its runs."""
        return self.stepping.resolved_method.order

    def refined(self, x: Vector) -> tuple[Reduced, int]:
        """Return the same functional by runs with parts of the steps of the one at x.

        And how many parts.  For ``functional_error``, which says how far discretisation has moved
        J and its gradient.
        """
        stepping, parts = divided(self.trajectory(x))
        return self._by(stepping, self.objective), parts

    def repeated(self, x: Vector) -> Reduced | None:
        """Return the same functional by runs that take the steps of the one at x.

        That is what the derivatives at x belong to if steps are adaptive: ``taylor`` compares them
        with it.  None where these steps move with the parameters, after an event at a time that
        does.  Collective.
        """
        if not self.stepping.adaptive:
            return self
        run = self.trajectory(x)
        # Other events than those at given times move with x, and so do the steps that end at
        # them; those of a delay equation are told by their shares.
        moving = self.problem.monitor is not None
        moving = moving or not all(event.explicit for event in self.problem.events)
        if run.crossings and moving and self.problem.delays is None:
            return None
        stepping = repeated(run)
        return self._by(stepping, self.objective)

    def value(self, x: Vector) -> float:
        """Return J(x).  Collective."""
        agree(self.comm, "Reduced.value")
        return evaluate(self.trajectory(x), self.objective)

    def gradient(self, x: Vector) -> PETSc.Vec:
        """Return the gradient of J at x as a new vector."""
        return self.value_and_gradient(x)[1]

    @QUIET
    def value_and_gradient(self, x: Vector) -> tuple[float, PETSc.Vec]:
        """Return J(x) and its gradient as a new vector.  Collective."""
        agree(self.comm, "Reduced.value_and_gradient")
        x = self.point(x)
        result = gradient_of(self, self.trajectory(x), self.objective)
        return result.value, self.control.pull_back(self.problem, x, result)

    def derivative(self, x: Vector, dx: Vector) -> float:
        """Return the directional derivative of J at x by the tangent-linear sweep."""
        return self.tangents(x, [dx])[0].derivative(self.objective)

    def hessian_product(self, x: Vector, dx: Vector) -> PETSc.Vec:
        """Return the Hessian of J at x times dx as a new vector.

        Raises
        ------
        UnsupportedError
            A second derivative that is missing; names it.
        """
        return self.hessian_products(x, [dx])[0]

    @QUIET
    def hessian_products(self, x: Vector, directions: Sequence[Vector]) -> list[PETSc.Vec]:
        """Return the Hessian of J at x times several directions, in one sweep.  Collective."""
        agree(self.comm, "Reduced.hessian_products")
        x, along = self.point(x), self._directions(directions)
        pushed = [self.control.push_forward(self.problem, x, dx) for dx in along]
        # (du0, dp) of every direction first, then all of them go through one tangent and one
        # second-order sweep.
        run = self.trajectory(x)
        # (u0, p) -> H (du0, dp); the curvature of the map x -> (u0, p), with lam_0 and mu, is
        # added by pull_back_second.
        with start_held(self.problem, held=not _start_follows(self.control)):
            products = hessian_sweep(run, self.objective, pushed, self._memory, self._sweep)
        self.count.tangent += len(along)
        self.count.second_order += len(along)
        return [
            self.control.pull_back_second(self.problem, x, dx, product)
            for dx, product in zip(along, products, strict=True)
        ]

    @QUIET
    def gauss_newton_product(self, x: Vector, dx: Vector) -> PETSc.Vec:
        """Return J_r^T J_r dx for J = 1/2 |r|^2 as a new vector.

        Raises
        ------
        UnsupportedError
            The cost is no sum of squares.
        """
        agree(self.comm, "Reduced.gauss_newton_product")
        x, dx = self.point(x), self.point(dx)
        pushed = self.control.push_forward(self.problem, x, dx)
        # Without a gradient in the product, pull_back_second leaves the curvature of the control
        # out, as Gauss-Newton does with that of r.
        product = gauss_newton_product(self.trajectory(x), self.objective, *pushed, self._sweep)
        self.count.tangent += 1
        self.count.adjoint += 1
        return self.control.pull_back_second(self.problem, x, dx, product)

    @QUIET
    def gauss_newton_matrix(self, x: Vector) -> Array:
        """Return J_r^T J_r [k, k] for J = 1/2 |r|^2, the same on every rank; for small k.

        Raises
        ------
        UnsupportedError
            The cost is no sum of squares.
        """
        agree(self.comm, "Reduced.gauss_newton_matrix")
        jacobian = self.residual_jacobian(x)
        matrix = normal_matrix(jacobian)
        jacobian.destroy()
        return matrix

    def hessian(self, x: Vector) -> Array:
        """Return the dense Hessian of J at x [k, k], the same on every rank; for small k."""
        agree(self.comm, "Reduced.hessian")
        x = self.point(x)
        units = _units(x)
        count = self._together(x)
        # Directions in blocks, whose tangents are in memory at one time.
        columns = [
            gather(product)
            for start in range(0, len(units), count)
            for product in self.hessian_products(x, units[start : start + count])
        ]
        matrix = np.array(columns)
        return 0.5 * (matrix + matrix.T)

    def residual(self, x: Vector) -> PETSc.Vec:
        """Return r(x) [q], J = 1/2 |r|^2.

        Raises
        ------
        UnsupportedError
            The cost is no sum of squares.
        """
        agree(self.comm, "Reduced.residual")
        return residual(self.trajectory(x), self.objective)

    def residual_jacobian(self, x: Vector) -> PETSc.Mat:
        """Return dr/dx as a dense matrix [q, k]: by k tangents or q adjoints, if these are fewer.

        ``residual_sweep`` says which.
        """
        agree(self.comm, "Reduced.residual_jacobian")
        x = self.point(x)
        rows = self.residual(x)
        self._n_residuals = rows.size
        matrix, count = dense(rows, x), self._together(x)
        # Columns by tangents: dr/dx e_j. Every rank has its rows of r along each of them.
        if self.sweep_for(rows.size, x.size) == "tangent":
            units = _units(x)
            for start in range(0, x.size, count):
                several = units[start : start + count]
                (columns,) = self.residual_tangents(x, several, [self.objective])
                matrix.getDenseArray()[:, start : start + len(several)] = columns
        else:
            first, last = rows.getOwnershipRange()
            for start in range(0, rows.size, count):
                block = range(start, min(start + count, rows.size))
                # e_k of the global row k: zero on every rank but the one that holds it, where k -
                # first is its place.
                weights = [np.eye(1, last - first, k - first).ravel() for k in block]
                run = self.trajectory(x)
                products = residual_adjoint(run, self.objective, weights, self._sweep)
                self.count.adjoint += len(block)
                for k, (lam, mu) in zip(block, products, strict=True):
                    # A row of dr/d(u0, p) is pulled back to x like a gradient.
                    row_gradient = Gradient(0.0, lam, mu, shared_p=shared(self.problem, mu))
                    row = gather(self.control.pull_back(self.problem, x, row_gradient))
                    if first <= k < last:
                        matrix.getDenseArray()[k - first] = row
        matrix.assemble()
        return matrix

    @property
    def residual_sweep(self) -> str:
        """Which sweep gives ``residual_jacobian``: "tangent" or "adjoint".

        Takes a run at the start if none was made yet: observations may have any size.  Collective.
        """
        agree(self.comm, "Reduced.residual_sweep")
        x = self.start()
        if self._n_residuals is None:
            self._n_residuals = self.residual(x).size
        return self.sweep_for(self._n_residuals, x.size)

    @staticmethod
    def sweep_for(n_residuals: int, n_variables: int) -> str:
        """Return the cheaper of "tangent" and "adjoint" for a Jacobian of these sizes."""
        return "tangent" if n_variables <= n_residuals else "adjoint"

    def check_squares(self) -> None:
        """Say whether J is a sum of squares, without a run.

        Raises
        ------
        UnsupportedError
            A term that is none.
        """
        squares_of(self.objective.lower(self.problem, self.stepping.t_span[1]))

    def typical(self) -> tuple[PETSc.Vec, float]:
        """Return sizes of x [k] below which nothing matters, and 0 for J: its start decides.

        1 for the logarithm of a parameter, whatever its unit; else the start's absolute values.
        Collective.
        """
        sizes = self.start()
        sizes.abs()
        if isinstance(self.control, Parameters):
            entries = [self.control.entries[name] for name in self.control.free_names]
            values = [1.0 if e.scale == "log" else abs(e.value) for e in entries]
            scatter(values, sizes)
        return sizes, 0.0

    def check_second_order(self) -> None:
        """Evaluate every second derivative once, those of events as well, without a run.

        Collective.

        Raises
        ------
        UnsupportedError
            Names the one that is missing.
        """
        agree(self.comm, "Reduced.check_second_order")
        problem, x, stepping = self.problem, self.start(), self.stepping
        u0, p = self.control.unpack(problem, x)
        state, parameters = problem.admit_state(u0), problem.admit_parameters(p)
        cost = self.objective.lower(problem, stepping.t_span[1])
        evaluate_second_derivatives(problem, cost, stepping, state, parameters)
        ones, by_p = problem.create_state(), problem.create_parameters()
        ones.set(1.0)
        same = shared(self.problem, by_p)
        gradient = Gradient(0.0, ones, by_p, shared_p=same)
        product = HessianProduct(gradient, ones, by_p, shared_p=same)
        # With any numbers: that the derivatives of the start exist is what is asked.
        self.control.push_forward(problem, x, x)
        self.control.pull_back_second(problem, x, x, product)

    def _together(self, x: PETSc.Vec) -> int:
        """Return how many directions or rows share a sweep."""
        in_blocks = choose_sweep(self.trajectory(x), self._sweep, x.size).engine == "arrays"
        return DIRECTIONS if in_blocks else TOGETHER

    def _directions(self, directions: Sequence[Vector]) -> list[PETSc.Vec]:
        """Return directions as vectors [k]."""
        if not is_iterable(directions):
            raise InputError(f"directions = {directions!r}", expected="a sequence of directions")
        return [self.point(dx) for dx in directions]

    def tangents(self, x: Vector, directions: Sequence[Vector]) -> list[Tangent]:
        """Return the tangent of the run at x along each of several directions.  Collective."""
        agree(self.comm, "Reduced.tangents")
        x, along = self.point(x), self._directions(directions)
        pushed = [self.control.push_forward(self.problem, x, dx) for dx in along]
        self.count.tangent += len(along)
        return tangent_sweep(self.trajectory(x), pushed, self._sweep)

    @QUIET
    def residual_tangents(
        self, x: Vector, directions: Sequence[Vector], objectives: Sequence[Objective]
    ) -> list[Array]:
        """Return the derivatives of residuals along directions, each [q_local, D].  Collective.

        The objectives are sums of squares: all of the cost, or parts of it.
        """
        agree(self.comm, "Reduced.residual_tangents")
        x, along = self.point(x), self._directions(directions)
        pushed = [self.control.push_forward(self.problem, x, dx) for dx in along]
        self.count.tangent += len(along)
        return residual_tangents(self.trajectory(x), objectives, pushed, self._sweep)


def gradient_of(functional: Reduced, run: Trajectory, objective: Objective) -> Gradient:
    """Return the gradient of a cost along a run of a functional, in (u0, p); counted."""
    with start_held(functional.problem, held=not _start_follows(functional.control)):
        gradient = adjoint(run, objective, functional.engine)
    functional.count.adjoint += 1
    return gradient


def _start_follows(control: Control) -> bool:
    """Return whether the start's own derivative in the unknowns is part of the gradient."""
    if not isinstance(control, Parameters):
        return True
    return callable(control.initial_state) or bool(control.consistent)


def _units(x: PETSc.Vec) -> list[PETSc.Vec]:
    """Return the unit vectors laid out like x [k]."""
    return [scatter(unit, x.duplicate()) for unit in np.eye(x.size)]
