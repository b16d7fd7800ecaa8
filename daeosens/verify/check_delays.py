"""The derivatives of a delay equation, its delays and its history, against differences of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from petsc4py import PETSc

from daeosens.petsc.vectors import Array, gather, read, write
from daeosens.problem.batched.protocol import Batch
from daeosens.problem.delays import Delays
from daeosens.verify.check_point import CheckPoint


def check_delays(bench: CheckPoint, delays: Delays) -> None:
    """Check the derivatives of f in u, in delayed states, p and t, of delays, and of the history.

    Where a run would begin: delayed states are those of the history.
    """
    n, t, p = bench.problem.size, bench.t, np.asarray(bench.p, dtype=float)
    y, source = delays.start(t, gather(bench.u), p), bench.origin(None)
    n_p = len(p)

    def judge(
        name: str, batch: Batch, state: Array, columns: slice, value: Callable[[Array], Array]
    ) -> None:
        """Check the derivative of the first rates in some entries of a state."""
        rows = slice(1, n + 1) if batch is delays.rates else slice(0, n)

        def moved(x: PETSc.Vec) -> Array:
            other = state.copy()
            other[columns] = read(x)
            return value(other)

        def jacobian() -> Array:
            return batch.jacobian(np.array([t]), state[None], p)[0][rows, columns]

        bench.judge_jacobian(name, source, jacobian, (), _vector(state[columns]), moved)

    def judge_p(
        name: str, batch: Batch, state: Array, rows: slice, value: Callable[[Array], Array]
    ) -> None:
        if not n_p:
            return

        def jacobian() -> Array:
            along = batch.push_parameters(np.array([t]), state[None], p, np.eye(n_p))
            return np.asarray(along).reshape(n_p, -1)[:, rows].T

        bench.judge_jacobian(name, source, jacobian, (), _vector(p), lambda x: value(read(x)))

    def rate(point: Array) -> Array:
        return delays.rate(point, p)

    judge("jacobian", delays.rates, y, slice(1, n + 1), rate)
    judge("jacobian of delayed states", delays.rates, y, slice(n + 1, None), rate)
    judge_p("jacobian_p", delays.rates, y, slice(1, n + 1), lambda q: delays.rate(y, q))
    judge("rhs_t", delays.rates, y, slice(0, 1), rate)
    lags = delays.lag(p)
    judge_p("delays p", delays.lags, lags, slice(None), delays.lag)
    before = np.zeros(n)
    before[0] = t - float(lags.min())
    earlier = float(before[0])
    judge("history t", delays.past, before, slice(0, 1), lambda s: delays.history(float(s[0]), p))
    judge_p("history p", delays.past, before, slice(0, n), lambda q: delays.history(earlier, q))


def _vector(values: Array) -> PETSc.Vec:
    vector = PETSc.Vec().createSeq(len(values), comm=PETSc.COMM_SELF)
    write(vector, values)
    return vector
