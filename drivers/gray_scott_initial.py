"""Recover the initial state of the Gray-Scott system from its final state, by several methods.

    u_t = D1 Laplace u - u v^2 + gamma (1 - u)
    v_t = D2 Laplace v + u v^2 - (gamma + kappa) v      in the periodic box (0, 2.5)^2

The true initial state has four spots, the first guess one broad spot in their place (as in PETSc's
tutorial ts/ex5opt_ic).  For each [[stepping]] in turn the final state of the true one is the data;
L-BFGS moves all unknowns of the initial state, with the discrete adjoint's gradient, until the misfit
has fallen by ``reduction``.  It is an ill-posed problem: diffusion forgets, so a longer t_span needs
many more iterations (t = 2.5: 25, t = 5: 57, t = 10: 310).

    mpiexec -n 2 python drivers/gray_scott_initial.py configs/gray_scott_initial.toml

Any number of ranks gives the same history, to 1e-8 of each value.  Results: states and histories in
results.h5, METHOD.xdmf for ParaView (states at both times), fields.png, history.png.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import daeosens as ds
from daeosens.grids import Grid, gray_scott, spots
from daeosens.io import Results, Snapshot, UniformGrid, between, length, positive, write_xdmf
from daeosens.io.hdf5 import read_array
from daeosens.study import drive

BOX = ((0.0, 2.5), (0.0, 2.5))
STATES = ("true", "first_guess", "recovered")


@dataclass(frozen=True)
class Config:
    stepping: Annotated[tuple[ds.Stepping, ...], length(1), "how to step; one study for each"]
    points: Annotated[int, between(4), "grid points along each side"] = 64
    reduction: Annotated[float, positive(), between(0.0, 1.0), "of the misfit"] = 1e-10
    max_iterations: Annotated[int, positive(), "of L-BFGS"] = 200


def functional(config: Config, stepping: ds.Stepping) -> tuple[Grid, ds.Reduced]:
    grid = Grid(BOX, (config.points, config.points), dof=2)
    explicit = stepping.resolved_method.explicit
    problem = gray_scott(grid, jacobian="products" if explicit else "assembled")
    data = ds.solve(problem, spots(grid), None, stepping).final
    misfit = ds.LeastSquares(stepping.t_span[1:], [data])
    control = ds.InitialState(spots(grid, waves=2.0))
    return grid, ds.Reduced(problem, misfit, stepping, control)


def check(config: Config) -> ds.Taylor:
    tests = [ds.taylor(functional(config, stepping)[1]) for stepping in config.stepping]
    return min(tests, key=lambda test: test.order)


def study(config: Config, results: Results) -> bool:
    reached = [recover(config, stepping, results) for stepping in config.stepping]
    results.once(lambda: draw(config, results))
    return all(reached)


def recover(config: Config, stepping: ds.Stepping, results: Results) -> bool:
    grid, reduced = functional(config, stepping)
    method, (start, end) = stepping.method, stepping.t_span
    results.say(f"\n{method}, {stepping.first_step:g} a step up to t = {end:g}")
    taylor = ds.taylor(reduced)
    results.say(taylor)
    goal = config.reduction * reduced.value(reduced.start())
    results.say(ds.optimize.HEADING)
    found = ds.minimize(
        reduced,
        gradient_tolerance=0.0,
        max_iterations=config.max_iterations,
        options={"tao_fmin": goal},
        progress=lambda iterate, _x: results.say(iterate),
    )
    results.say(found)
    true, guess = spots(grid), reduced.start()
    error = (found.x - true).norm() / (guess - true).norm()
    results.say(
        f"misfit reduced by {found.value / found.history.value[0]:.2e}, error by {error:.2e}"
    )
    for name, state in zip(STATES, (true, guess, found.x), strict=True):
        results.write(f"{method}/{name}/initial", state)
        results.write(f"{method}/{name}/final", reduced.trajectory(state).final)
    results.write(f"{method}/misfit", found.history.value)
    results.write(f"{method}/gradient_norm", found.history.gradient_norm)
    results.record(
        method,
        {
            "iterations": found.iterations,
            "evaluations": found.evaluations,
            "seconds": found.seconds,
            "reduction": found.value / found.history.value[0],
            "error": error,
            "order": taylor.order,
        },
    )
    snapshots = [
        Snapshot(time, {name: f"{method}/{name}/{which}" for name in STATES})
        for time, which in ((start, "initial"), (end, "final"))
    ]
    points = UniformGrid(grid.spacing, grid.origin)
    path = results.path(f"{method}.xdmf")
    results.once(lambda: write_xdmf(path, results.hdf5, points, snapshots, ("u", "v")))
    return found.value <= goal


def draw(config: Config, results: Results) -> None:
    from daeosens.report.figures import History, fields_figure, history_figure  # noqa: PLC0415

    methods = [stepping.method for stepping in config.stepping]
    columns = {
        "true": "true/initial",
        "first guess": "first_guess/initial",
        "recovered": "recovered/initial",
        "final, the data": "true/final",
    }
    fields = [read_array(results.hdf5, f"{methods[-1]}/{name}") for name in columns.values()]
    rows = {name: [field[:, :, k] for field in fields] for k, name in enumerate("uv")}
    fields_figure(results.path("fields.png"), rows, list(columns), extent=(*BOX[0], *BOX[1]))
    histories = [
        History(
            m, *(read_array(results.hdf5, f"{m}/{name}") for name in ("misfit", "gradient_norm"))
        )
        for m in methods
    ]
    history_figure(results.path("history.png"), histories, value_label="misfit")


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
