"""Gray-Scott initial state by Newton-CG and by L-BFGS: total work to the same gradient norm.

64 x 64 points, periodic box (0, 2.5)^2, RK4; the data are the final state of four spots, the first
guess is one broad spot.  Work is counted in forward solves: a sweep costs as many as its measured
time (median, relative to a solve on the same machine).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from petsc4py import PETSc

from daeosens import LeastSquares, Reduced, Stepping, minimize, solve
from daeosens.functional import InitialState
from daeosens.optimize import Result
from daeosens.problem.grids import Grid
from daeosens.tracing.pdes import gray_scott, spots

T, DT, POINTS = 5.0, 0.125, 64
REDUCTION = 1e-8

METHODS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("L-BFGS", "lmvm", {}),
    ("Newton-CG, trust region, exact Hessian", "ntr", {}),
    ("Newton-CG, line search, Gauss-Newton", "nls", {"hessian": "gauss_newton"}),
    ("Newton-CG, trust region, Gauss-Newton", "ntr", {"hessian": "gauss_newton"}),
)


@dataclass(frozen=True)
class Costs:
    """Times of the sweeps in forward solves."""

    gradient: float
    hessian: float
    gauss_newton: float


@dataclass(frozen=True)
class Run:
    """One minimisation: what it needed to bring the gradient norm down by ``REDUCTION``."""

    name: str
    result: Result
    forward: int
    adjoint: int
    products: int
    work: float


def functional(t_end: float = T, points: int = POINTS) -> Reduced:
    """Return the misfit as a function of the initial state."""
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (points, points), dof=2, comm=PETSc.COMM_SELF)
    problem = gray_scott(grid)
    stepping = Stepping((0.0, t_end), "rk4", dt=DT)
    data = solve(problem, spots(grid), None, stepping).final
    misfit = LeastSquares([t_end], [data])
    return Reduced(problem, misfit, stepping, InitialState(spots(grid, waves=2.0)))


def measured(reduced: Reduced, repeat: int = 5) -> Costs:
    """Time the sweeps in turn."""
    x = reduced.start()
    u0, p = reduced.control.unpack(reduced.problem, x)
    calls: list[Callable[[], object]] = [
        lambda: solve(reduced.problem, u0, p, reduced.stepping),
        lambda: reduced.gradient(x),
        lambda: reduced.hessian_product(x, x),
        lambda: reduced.gauss_newton_product(x, x),
    ]
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeat + 1):
        for call, log in zip(calls, times, strict=True):
            begin = time.perf_counter()
            call()
            log.append(time.perf_counter() - begin)
    forward, *sweeps = (statistics.median(log[1:]) for log in times)
    return Costs(*(sweep / forward for sweep in sweeps))


def compared(costs: Costs, t_end: float = T, points: int = POINTS) -> list[Run]:
    """Minimise by each method and add up the work."""
    runs: list[Run] = []
    for name, method, keywords in METHODS:
        reduced = functional(t_end, points)
        goal = REDUCTION * reduced.gradient(reduced.start()).norm()
        before = reduced.count.forward, reduced.count.adjoint
        result = minimize(reduced, method=method, gradient_tolerance=goal, **keywords)
        products = result.hessian_products
        forward = reduced.count.forward - before[0] + 1
        adjoint = result.evaluations
        value = costs.gauss_newton if keywords else costs.hessian
        work = forward + adjoint * costs.gradient + products * value
        runs.append(Run(name, result, forward, adjoint, products, work))
    return runs
