"""Equations with a constant input, and amounts that are products of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.batched.linearization import Linearization, by_matrices
from daeosens.problem.batched.protocol import Batch
from daeosens.problem.breakpoints import admit_breakpoints
from daeosens.problem.hessian_products import residual_hessian
from daeosens.problem.matrices import Derivative, shell
from daeosens.problem.problem import Problem


@dataclass(frozen=True)
class Amount:
    """A number times parameters: ``scale * p[i] * p[j] * ...``, and its derivatives.

    Examples
    --------
    >>> half = Amount(0.5, (0, 2))
    >>> half.value([4.0, 0.0, 3.0]), half.gradient(np.array([4.0, 0.0, 3.0]))
    (6.0, array([1.5, 0. , 2. ]))
    """

    scale: float
    factors: tuple[int, ...] = ()

    def value(self, p: Any) -> Any:
        """Return the amount for parameters [m]."""
        result: Any = self.scale
        for k in self.factors:
            result = result * p[k]
        return result

    def gradient(self, p: Array) -> Array:
        """Return its derivative in the parameters [m]."""
        result = np.zeros(len(p))
        for i, k in enumerate(self.factors):
            # product rule by position: a parameter that is a factor twice counts twice
            result[k] += Amount(self.scale, self.factors[:i] + self.factors[i + 1 :]).value(p)
        return result

    def curvature(self, p: Array, dp: Array) -> Array:
        """Return the derivative of the gradient along dp [m]."""
        result = np.zeros(len(p))
        for i, k in enumerate(self.factors):
            # the gradient of the other factors: the second derivative of a product
            rest = Amount(self.scale, self.factors[:i] + self.factors[i + 1 :])
            result[k] += float(rest.gradient(p) @ dp)
        return result


class Input:
    """What is added to single unknowns, or to their rates: sums of amounts.

    Parameters
    ----------
    n, m : int
        Numbers of unknowns and parameters.
    parts : sequence of (int, Amount)
        The unknown, and what comes to it.
    """

    def __init__(self, n: int, m: int, parts: Sequence[tuple[int, Amount]]) -> None:
        self._n, self._m, self._parts = n, m, tuple(parts)
        self.fixed = all(not amount.factors for _, amount in parts)

    def value(self, p: Any) -> Array:
        """Return the sums [n]."""
        result = np.zeros(self._n)
        for k, amount in self._parts:
            result[k] += amount.value(p)
        return result

    def by_p(self, p: Array) -> Array:
        """Return their derivatives in the parameters [n, m]."""
        result = np.zeros((self._n, self._m))
        for k, amount in self._parts:
            result[k] += amount.gradient(p)
        return result

    def curvature(self, p: Array, w: Array, dp: Array) -> Array:
        """Return the derivative of ``w @ by_p(p)`` along dp [m]."""
        result = np.zeros(self._m)
        for k, amount in self._parts:
            result += w[k] * amount.curvature(p, dp)
        return result

    def reset(self) -> dict[str, Any]:
        """Return the reset u -> u + value(p), with its derivatives, as keywords of ``Event``."""
        unit, nothing = np.eye(self._n), np.zeros(self._n)

        def hessian(_t: float, _u: Array, p: Array, w: Array, _du: Array, dp: Array) -> Any:
            return nothing, self.curvature(p, w, dp)

        return {
            "reset": lambda _t, u, p: u + self.value(p),
            "reset_u": lambda _t, _u, _p: unit,
            "reset_p": lambda _t, _u, p: self.by_p(p),
            "reset_t": "autonomous",
            "reset_hessian": hessian,
        }


def with_input(problem: Problem, doses: Input) -> Problem:
    """Return M u' = f(t, u, p) + an input, that of a serial problem of this form."""

    def rhs(t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        problem.rhs(t, u, p, out)
        out.getArray()[...] += doses.value(p)

    def hessian(
        t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, du: PETSc.Vec, dp: Any, *out: PETSc.Vec
    ) -> None:
        problem.rhs_hessian_function(t, u, p, w, du, dp, *out)
        if not doses.fixed:
            # an input depends on p alone: only f_pp has a term of it
            out[1].getArray()[...] += doses.curvature(p, read(w), dp)

    rhs_p = problem.rhs_p if doses.fixed else _added(problem.rhs_p, doses, 1.0)
    residual_p = problem.residual_p if doses.fixed else _added(problem.residual_p, doses, -1.0)
    of_mass = problem.mass_hessian_function
    parts = problem.parts
    if parts is not None:  # an input is not stiff
        parts = (parts[0], with_input(parts[1], doses))
    return replace(
        problem,
        rhs_function=rhs,
        rhs_p=rhs_p,
        residual_p=residual_p,
        rhs_hessian_function=hessian,
        residual_hessian_function=residual_hessian(hessian, of_mass),
        # C functions are those of f without its input; events are those of the problem around it
        native={},
        batch=None if problem.batch is None else _BatchWithInput(problem.batch, doses),
        stencil=None,
        parts=parts,
        events=(),
        modes={},
        mode="",
    )


class _BatchWithInput:
    """A right-hand side at many points, with an input added to it: a ``Batch``."""

    rhs_in_c = None

    def __init__(self, inner: Batch, doses: Input) -> None:
        self._inner, self._doses = inner, doses
        self.at_once, self.rows_at_once = inner.at_once, inner.rows_at_once

    def rhs(self, t: Array, u: Array, p: Array) -> Array:
        """Return f at every point [K, n]."""
        return self._inner.rhs(t, u, p) + self._doses.value(p)

    def jacobian(self, t: Array, u: Array, p: Array) -> Array:
        """Return f_u at every point [K, n, n]."""
        return self._inner.jacobian(t, u, p)

    def pull_parameters(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        """Return the sum over the points of f_p^T w [M, m]."""
        result = self._inner.pull_parameters(t, u, p, w)
        # the input is the same at all points, so that their weights add up first
        return result if self._doses.fixed else result + w.sum(axis=1) @ self._doses.by_p(p)

    def linearize(self, t: Array, u: Array, p: Array, rows: int) -> Linearization:
        """Return f_u and f_p at the points, for M rows."""
        linear = self._inner.linearize(t, u, p, rows)
        if self._doses.fixed:
            return linear
        # a linearisation that keeps products of its own cannot be added to: it is made anew
        if linear.weights is None:  # the products keep what the input would need
            pull = partial(self.pull_parameters, t, u, p)
            return by_matrices(self.jacobian(t, u, p), pull, rows)
        weights, by_p = linear.weights, self._doses.by_p(p)

        def collect(mu: Array, fresh: bool) -> None:
            linear.collect(mu, fresh)
            mu += weights.sum(axis=0) @ by_p

        return replace(linear, collect=collect)

    def push_parameters(self, t: Array, u: Array, p: Array, dp: Array) -> Array:
        """Return f_p dp at every point [D, K, n]."""
        result = self._inner.push_parameters(t, u, p, dp)
        if self._doses.fixed:
            return result
        return result + (dp @ self._doses.by_p(p).T)[:, np.newaxis]

    def hessian_product(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return the derivatives of f_u^T w [D, K, n] and, summed over the points, f_p^T w."""
        by_u, by_p = self._inner.hessian_product(t, u, p, w, du, dp)
        if self._doses.fixed:
            return by_u, by_p
        total = w.sum(axis=0)
        return by_u, by_p + np.array([self._doses.curvature(p, total, row) for row in dp])


class _Sum:
    """Context of a shell matrix: the products of another one, and of an input's derivative."""

    def __init__(self, inner: PETSc.Mat, shape: tuple[int, int]) -> None:
        self.inner = inner
        self.added = np.zeros(shape)

    def mult(self, _matrix: PETSc.Mat, x: PETSc.Vec, out: PETSc.Vec) -> None:
        self.inner.mult(x, out)
        out.getArray()[...] += self.added @ read(x)

    def multTranspose(self, _matrix: PETSc.Mat, x: PETSc.Vec, out: PETSc.Vec) -> None:  # noqa: N802
        self.inner.multTranspose(x, out)
        out.getArray()[...] += read(x) @ self.added


def _added(derivative: Derivative, doses: Input, sign: float) -> Derivative:
    """Return the derivative in p of what an input is added to."""

    def create(*point: Any) -> PETSc.Mat:
        matrix = derivative.create(*point)
        vecs: Any = matrix.createVecs()
        columns, rows = vecs
        return shell(rows, columns, _Sum(matrix, (rows.size, columns.size)))

    def fill(*point_and_out: Any) -> None:
        *point, out = point_and_out
        context = out.getPythonContext()
        derivative.fill(*point, context.inner)
        context.added = sign * doses.by_p(point[-1])
        # PETSc keeps what it knows of a matrix (norms, factors) until its state number changes
        out.stateIncrease()

    return Derivative(create, fill, assembled=False)


@dataclass(frozen=True)
class Infusion:
    """What comes to the rate of an unknown between two times."""

    begin: float
    end: float
    unknown: int
    rate: Amount


def with_infusions_of_delays(problem: Problem, infusions: Sequence[Infusion]) -> Problem:
    """Return a delay equation with infusions at known times.

    These are terms of f that jump at breakpoints, so that steps end there and where delays have
    passed since.
    """
    delays = problem.delays
    assert delays is not None
    rates = _InfusedRates(delays.rates, problem.n_parameters, infusions)

    def rate(y: Array, p: Array) -> Array:
        return delays.rate(y, p) + rates.of_unknowns(float(y[0]), p, problem.size)

    infused = replace(delays, rates=rates, rate=rate)

    def start_rate(t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        write(out, rate(infused.start(t, read(u), p), p))

    times = {time for infusion in infusions for time in (infusion.begin, infusion.end)}
    return replace(
        problem,
        delays=infused,
        rhs_function=start_rate,
        breakpoints=admit_breakpoints(sorted({*problem.breakpoints, *times})),
    )


class _InfusedRates:
    """(0, f, 0) of points (t, u, z), with infusions added to f: a ``Batch`` of a delay equation."""

    rhs_in_c = None

    def __init__(self, inner: Batch, m: int, infusions: Sequence[Infusion]) -> None:
        self._inner, self._m, self._infusions = inner, m, tuple(infusions)
        self._begins = np.array([infusion.begin for infusion in infusions])
        self._ends = np.array([infusion.end for infusion in infusions])
        # an unknown is behind the time in a point
        self._columns = np.array([1 + infusion.unknown for infusion in infusions])
        self.at_once, self.rows_at_once = inner.at_once, inner.rows_at_once

    def of_unknowns(self, t: float, p: Array, n: int) -> Array:
        """Return what comes to the rates [n] at a time."""
        result = np.zeros(n)
        for infusion in self._infusions:
            if infusion.begin <= t < infusion.end:
                result[infusion.unknown] += infusion.rate.value(p)
        return result

    def rhs(self, t: Array, u: Array, p: Array) -> Array:
        """Return f at every point [K, n]."""
        return self._inner.rhs(t, u, p) + self._spread(u, self._values(p)[np.newaxis])[0]

    def jacobian(self, t: Array, u: Array, p: Array) -> Array:
        """Return f_u at every point [K, n, n]."""
        return self._inner.jacobian(t, u, p)

    def pull_parameters(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        """Return the sum over the points of f_p^T w [M, m]."""
        return self._inner.pull_parameters(t, u, p, w) + self._totals(u, w) @ self._slopes(p)

    def linearize(self, t: Array, u: Array, p: Array, rows: int) -> Linearization:
        """Return f_u and f_p at the points, for M rows."""
        return by_matrices(self.jacobian(t, u, p), partial(self.pull_parameters, t, u, p), rows)

    def push_parameters(self, t: Array, u: Array, p: Array, dp: Array) -> Array:
        """Return f_p dp at every point [D, K, n]."""
        return self._inner.push_parameters(t, u, p, dp) + self._spread(u, dp @ self._slopes(p).T)

    def hessian_product(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return the derivatives of f_u^T w [D, K, n] and, summed over the points, f_p^T w."""
        by_u, by_p = self._inner.hessian_product(t, u, p, w, du, dp)
        totals = self._totals(u, w[np.newaxis])[0]
        bent = [
            sum(
                total * infusion.rate.curvature(p, row)
                for total, infusion in zip(totals.tolist(), self._infusions, strict=True)
            )
            for row in dp
        ]
        return by_u, by_p + np.reshape(bent, by_p.shape)

    def _under_way(self, u: Array) -> npt.NDArray[np.bool_]:
        """Return which infusions there are at points [K, J], whose first entry is the time."""
        return (self._begins <= u[:, :1]) & (u[:, :1] < self._ends)

    def _values(self, p: Array) -> Array:
        return np.array([infusion.rate.value(p) for infusion in self._infusions], dtype=float)

    def _slopes(self, p: Array) -> Array:
        return np.array([infusion.rate.gradient(p) for infusion in self._infusions])

    def _spread(self, u: Array, amounts: Array) -> Array:
        """Return amounts [D, J] of infusions where they are under way [D, K, n]."""
        result = np.zeros((len(amounts), *u.shape))
        under_way = self._under_way(u)
        for j, column in enumerate(self._columns.tolist()):
            result[:, :, column] += np.multiply.outer(amounts[:, j], under_way[:, j])
        return result

    def _totals(self, u: Array, w: Array) -> Array:
        """Return the sums of weights [M, K, n] over the points of each infusion [M, J]."""
        return np.einsum("MKJ,KJ->MJ", w[:, :, self._columns], self._under_way(u))
