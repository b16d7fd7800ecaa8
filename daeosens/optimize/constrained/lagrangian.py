"""J and constraints at a point, with derivatives: J(x) + sum_j v_j c_j(x).

All components of all constraints are numbered through, j = 0 ... m-1.  A multiplier v_j belongs to
each: positive where the upper bound pushes back, negative where the lower one does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.costs.objective import Objective, Sum
from daeosens.derivatives.adjoint import adjoint
from daeosens.errors import InputError, SolveError, UnsupportedError
from daeosens.functional.functional import Functional
from daeosens.functional.reduced import Reduced
from daeosens.optimize.constrained.constraint_function import ConstraintFunction
from daeosens.optimize.constrained.constraints import Constraint, named, sides
from daeosens.optimize.tao.newton import dense_by_products
from daeosens.petsc.vectors import Array, gather, read
from daeosens.problem.callback_guard import QUIET


@dataclass(frozen=True, eq=False)
class Point:
    """All that is known at one x without second derivatives.

    Attributes
    ----------
    x : array [k_local]
        The point, this rank's part.
    value : float
        J.
    gradient : array [k_local]
        dJ/dx, this rank's part.
    outputs : array [m]
        c, on every rank.
    jacobian : array [m, k_local]
        dc/dx, this rank's columns.
    """

    x: Array
    value: float
    gradient: Array
    outputs: Array
    jacobian: Array


class Lagrangian:
    """A functional and its constraints on the same x.  Collective on ``functional.comm``.

    Functions of x are evaluated here once, at the start; nothing else is.

    Parameters
    ----------
    functional : Functional
        J.
    constraints : Constraint or sequence of Constraint
        At least one.
    x : Vec [k]
        The start; kept as the pattern of further ones, and not changed.

    Attributes
    ----------
    labels : tuple of str
        A name for each of the m components.
    slices : dict of str to slice
        Which components belong to which constraint.
    lower, upper : array [m]
        Their bounds; equal for equalities.

    Raises
    ------
    InputError
        Shapes, names or kinds that do not fit the functional.
    """

    def __init__(self, functional: Functional, constraints: object, x: PETSc.Vec) -> None:
        self.functional = functional
        self.x = x
        self._constraints = named(constraints)
        self._functions: dict[str, ConstraintFunction] = {}
        self._outputs: list[Objective] = []
        self.slices: dict[str, slice] = {}
        parts: list[tuple[Array, Array, Array]] = []
        labels: list[str] = []
        start = gather(x)
        for item in self._constraints:
            size = self._compile(item, start)
            parts.append(sides(item, size))
            self.slices[item.name] = slice(len(labels), len(labels) + size)
            labels += [item.name] if size == 1 else [f"{item.name}[{i}]" for i in range(size)]
        self.labels = tuple(labels)
        table: Array = np.hstack([np.stack(part) for part in parts])
        self.lower: Array = table[0]
        self.upper: Array = table[1]
        self.given_scale: Array = table[2]
        self._runs = self._shared_runs()

    @property
    def comm(self) -> MPI.Comm:
        """The communicator of x."""
        return self.x.comm.tompi4py()

    @property
    def equality(self) -> npt.NDArray[np.bool_]:
        """Which components are equalities [m]."""
        return self.lower == self.upper

    def _compile(self, item: Constraint, start: Array) -> int:
        """Check one constraint against the functional and return its number of components."""
        if item.kind == "function":
            function = ConstraintFunction(item, self.functional, start)
            self._functions[item.name] = function
            return function.size
        if item.kind == "functional":
            # The Jacobian takes the rows of both from vectors of one layout, so the split over
            # ranks has to agree, not only the length.
            other: Any = item.what
            theirs: Any = other.start().getSizes()
            mine: Any = self.x.getSizes()
            if any(self.comm.allgather(theirs != mine)):
                raise InputError(
                    f'constraint "{item.name}" is on a functional of {theirs[1]} variables',
                    expected=f"the {mine[1]} of the functional, distributed in the same way",
                )
            return 1
        functional = self.functional
        if not isinstance(functional, Reduced):
            raise InputError(
                f'constraint "{item.name}" is on an output of a run, but the functional is a '
                f"{type(functional).__name__}",
                expected="a Reduced",
            )
        outputs = _as_outputs(item)
        for output in outputs:
            output.lower(functional.problem, functional.stepping.t_span[1])
        self._outputs += outputs
        return len(outputs)

    def _shared_runs(self) -> Reduced | None:
        """Return what makes the runs: the functional, or another that also hits output times."""
        functional = self.functional
        if not isinstance(functional, Reduced) or not self._outputs:
            return None
        # States are known only where steps end. Where an output is observed at times that J does
        # not pin, J is joined by the outputs with weight 0: the run then hits their times, and J
        # keeps its value.
        extra = {time for output in self._outputs for time in output.times}
        if extra <= {*functional.objective.times, functional.stepping.t_span[1]}:
            return functional
        nothing = [(0.0, output) for output in self._outputs]
        return _like(functional, Sum(((1.0, functional.objective), *nothing)))

    @QUIET
    def evaluate(self, x: PETSc.Vec) -> Point:
        """Return everything at x.

        Raises
        ------
        SolveError
            J or a constraint does not exist there, on every rank.
        """
        # Functions of x see all of x on every rank; of their rows dc/dx [q, k] each rank keeps
        # the columns of its own entries.
        value, gradient, outputs, slopes = self._run(x)
        everything = gather(x)
        first, last = x.getOwnershipRange()
        values: list[Array] = []
        rows: list[Array] = []
        for item in self._constraints:
            if item.kind == "function":
                function = self._functions[item.name]
                values.append(function.value(everything))
                rows.append(function.jacobian(everything)[:, first:last])
            elif item.kind == "functional":
                other, vec = item.what.value_and_gradient(x)
                values.append(np.array([float(other)]))
                rows.append(read(vec)[None].copy())
            else:
                for _ in _as_outputs(item):
                    values.append(np.array([outputs.pop(0)]))
                    rows.append(slopes.pop(0)[None])
        point = Point(read(x).copy(), value, gradient, np.concatenate(values), np.vstack(rows))
        self._check(point)
        return point

    def same(self, point: Point, x: PETSc.Vec) -> bool:
        """Return, on every rank, whether a point was evaluated at x."""
        return self.comm.allreduce(bool(np.array_equal(point.x, read(x))), MPI.LAND)

    def _run(self, x: PETSc.Vec) -> tuple[float, Array, list[float], list[Array]]:
        """Return J, its gradient, the outputs and theirs, from one run and one adjoint sweep."""
        runs = self._runs
        if runs is None:
            value, gradient = self.functional.value_and_gradient(x)
            return float(value), read(gradient).copy(), [], []
        objectives = [runs.objective, *self._outputs]
        # J is the first cost of the block and every output another one: one sweep, lam [n, 1 +
        # outputs].
        swept = adjoint(runs.trajectory(x), objectives, runs.engine)
        runs.count.adjoint += 1
        slopes = [read(runs.control.pull_back(runs.problem, x, row)).copy() for row in swept]
        values = [row.value for row in swept]
        return values[0], slopes[0], values[1:], slopes[1:]

    def _check(self, point: Point) -> None:
        """Raise ``SolveError``, on every rank, where something is not finite."""
        if not math.isfinite(point.value):
            raise SolveError(f"the value is {point.value:g}")
        for label, output in zip(self.labels, point.outputs, strict=True):
            if not math.isfinite(output):
                raise SolveError(f'constraint "{label}" is {output:g}')
        mine = bool(np.isfinite(point.gradient).all() and np.isfinite(point.jacobian).all())
        if not self.comm.allreduce(mine, MPI.LAND):
            raise SolveError("a gradient is not finite")

    def check_second_order(self) -> None:
        """Refuse, before any run, what lacks second derivatives.

        Raises
        ------
        UnsupportedError
            Names what lacks them.
        """
        _check_hessian(self.functional, "the functional")
        for item in self._constraints:
            if item.kind == "functional":
                _check_hessian(item.what, f'constraint "{item.name}"')
        if self._outputs and isinstance(self.functional, Reduced):
            # With weights of 1 the check covers every output.
            weighted = self._weighted(np.ones(len(self.labels)))
            _check_hessian(weighted, "an output of the run")

    def hessian(self, x: PETSc.Vec, multipliers: Array, weight: float = 1.0) -> Array:
        """Return the Hessian [k, k] of weight J + sum_j v_j c_j, on every rank.

        Outputs of the run share the second-order sweeps of J.
        """
        if self._outputs:
            # A weighted sum is one cost: its second-order sweeps serve J and all outputs.
            total = dense_hessian(self._weighted(multipliers, weight), x)
        elif weight:
            total = weight * dense_hessian(self.functional, x)
        else:  # where feasibility alone is sought
            total = np.zeros((x.getSize(), x.getSize()))
        everything = gather(x)
        for item in self._constraints:
            part = multipliers[self.slices[item.name]]
            if not part.any():
                continue
            if item.kind == "function":
                total += self._functions[item.name].hessian(everything, part)
            elif item.kind == "functional":
                total += part[0] * dense_hessian(item.what, x)
        # Products are symmetric but for rounding; solvers that factorise one triangle want them
        # exactly so.
        return 0.5 * (total + total.T)

    def _weighted(self, multipliers: Array, weight: float = 1.0) -> Functional:
        """Return the functional weight J + sum of v_j times the outputs of the run."""
        functional = self.functional
        if not self._outputs or not isinstance(functional, Reduced):
            return functional
        terms: list[tuple[float, Objective]] = [(weight, functional.objective)]
        for item in self._constraints:
            if item.kind == "outputs":
                part = multipliers[self.slices[item.name]].tolist()
                terms += zip(part, _as_outputs(item), strict=True)
        return _like(functional, Sum(tuple(terms)))

    def length(self, part: Array) -> float:
        """Return the 2-norm of a vector like x, given this rank's part."""
        return math.sqrt(self.comm.allreduce(float(part @ part)))

    def size(self, x: Array) -> float:
        """Return max(1, |x|), given this rank's part."""
        return max(1.0, self.length(x))


def dense_hessian(functional: Functional, x: PETSc.Vec) -> Array:
    """Return the Hessian [k, k] on every rank, by its products where it comes in no other way.

    Raises
    ------
    UnsupportedError
        The functional has no second derivatives.
    """
    able: Any = functional
    if hasattr(able, "hessian"):
        return np.array(able.hessian(x), dtype=float)
    if not hasattr(able, "hessian_product"):
        raise _no_hessian(functional, "the functional")
    return dense_by_products(able.hessian_product, x)


def _check_hessian(functional: Functional, what: str) -> None:
    able: Any = functional
    if not (hasattr(able, "hessian") or hasattr(able, "hessian_product")):
        raise _no_hessian(functional, what)
    if hasattr(able, "check_second_order"):
        able.check_second_order()


def _no_hessian(functional: Functional, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what} ({type(functional).__name__}) has no second derivatives",
        expected="hessian(x) or hessian_product(x, dx)",
        remedy='method="almm", which needs none',
    )


def _as_outputs(item: Constraint) -> list[Objective]:
    what: Any = item.what
    return list(what) if isinstance(what, (list, tuple)) else [what]


def _like(functional: Reduced, objective: Objective) -> Reduced:
    """Return the same reduced functional with another objective."""
    make: Callable[..., Reduced] = type(functional)
    return make(
        functional.problem,
        objective,
        functional.stepping,
        functional.control,
        engine=functional.engine,
    )
