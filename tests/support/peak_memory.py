"""A program: by how much the memory of each rank grows in a run, a gradient and a Hessian product.

``mpiexec -n N python peak_memory.py METHOD`` prints the largest of the ranks, in bytes, of a small
grid and of a large one.
"""

import sys
from pathlib import Path

import numpy as np
from petsc4py import PETSc

import daeosens as ds
from daeosens.problem.grids import Grid


def resident(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.partition(f"{name}:")[2].split()[0])


def growth(method: str, points: int) -> int:
    """Return the most that is in memory above what is there before, on the rank that has most."""

    def reaction(_t, u, p):
        a, b = u.center
        of_a, of_b = u.laplacian()
        return [p.d * of_a - a * b * b + p.k * (1.0 - a), p.d * of_b + a * b * b - p.k * b]

    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (points, points), dof=2)
    problem = ds.trace_stencil(reaction, grid, ["d", "k"], jacobian="products")
    start = grid.create_vec()
    start.getArray()[...] = 0.5 + 0.1 * np.sin(np.arange(start.getLocalSize()))
    cost = ds.Terminal(
        lambda _t, u, _p: 0.5 * u.dot(u),
        lambda _t, u, _p, out: u.copy(out),
        "independent",
        lambda _t, _u, _p, du, _dp, out: (du.copy(out), np.zeros(2))[1],
    )
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    before = resident("VmRSS")
    stepping = ds.Stepping((0.0, 0.04), method, dt=0.01)
    p = (1e-4, 0.05)
    run = ds.solve(problem, start, p, stepping, checkpoint="states")
    ds.adjoint(run, cost)
    ds.hessian_product(run, cost, start, p)
    grown = resident("VmHWM") - before
    return PETSc.COMM_WORLD.tompi4py().allreduce(grown, max)


if __name__ == "__main__":
    growth(sys.argv[1], 16)  # what is made once
    numbers = [growth(sys.argv[1], points) for points in (64, 448)]
    if PETSc.COMM_WORLD.rank == 0:
        print(*numbers)
