"""Recover the initial state of the Gray-Scott system from its final state, by several methods.

    u_t = D1 Laplace u - u v^2 + gamma (1 - u)
    v_t = D2 Laplace v + u v^2 - (gamma + kappa) v      in the periodic box (0, 2.5)^2

The true initial state has four spots, the first guess one broad spot in their place (as in PETSc's
tutorial ts/ex5opt_ic).  For each [[stepping]] in turn the final state of the true one is the data;
L-BFGS moves all unknowns of the initial state, with the gradient of the discrete adjoint, until
the misfit has fallen by the factor "reduction".

Diffusion forgets: a longer time span needs many more iterations (64 x 64 points: 25 for 2.5, 57
for 5, 310 for 10).  Up to 3 the history is the same on any number of ranks, to 1e-8 of each value;
from 5 on, L-BFGS amplifies the rounding of sums to the size of the last, smallest values.

    mpiexec -n 2 python drivers/gray_scott_initial.py configs/gray_scott_initial.toml

Results: states and histories in results.h5, METHOD.xdmf for ParaView (the states at both times),
fields.png, history.png.
"""

import sys
from dataclasses import dataclass
from typing import Annotated

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.io import (
    Results,
    Snapshot,
    UniformGrid,
    between,
    length,
    positive,
    read_array,
    write_xdmf,
)
from daeosens.problem.grids import Grid
from daeosens.tracing.pdes import gray_scott, spots

BOX = ((0.0, 2.5), (0.0, 2.5))
SHOWN = (0.8, 1.7)  # the part of the box, along x and y, that the figure shows
STATES = ("true", "first_guess", "recovered")


@dataclass(frozen=True)
class Config:
    """What the configuration may hold."""

    stepping: Annotated[tuple[ds.Stepping, ...], length(1), "how to step; one study for each"]
    points: Annotated[int, between(12), "grid points along each side"] = 64
    reduction: Annotated[float, positive(), between(most=1.0), "of the misfit"] = 1e-10
    max_iterations: Annotated[int, positive(), "of L-BFGS"] = 200

    def __post_init__(self) -> None:
        """Refuse results that would overwrite each other."""
        methods = [stepping.method for stepping in self.stepping]
        if len(set(methods)) < len(methods):
            raise ds.InputError(f"methods {methods}", expected="each [[stepping]] with its own")


def functional(config: Config, stepping: ds.Stepping) -> tuple[Grid, ds.Reduced]:
    """Return the grid, and the misfit as a function of the initial state."""
    grid = Grid(BOX, (config.points, config.points), dof=2)
    problem = gray_scott(grid)
    data = ds.solve(problem, spots(grid), None, stepping).final
    misfit = ds.LeastSquares(stepping.t_span[1:], [data])
    return grid, ds.Reduced(
        problem, misfit, stepping, ds.functional.InitialState(spots(grid, waves=2.0))
    )


def check(config: Config) -> ds.verify.Taylor:
    """Return the worst of the methods' Taylor tests."""
    tests = [ds.taylor(functional(config, stepping)[1]) for stepping in config.stepping]
    return min(tests, key=lambda test: test.order)


def study(config: Config, results: Results) -> bool:
    """Solve the inverse problem once for each way of stepping."""
    reached = [recover(config, stepping, results) for stepping in config.stepping]
    results.once(lambda: draw(config, results))
    return all(reached)


def recover(config: Config, stepping: ds.Stepping, results: Results) -> bool:
    """Solve it for one; return whether the misfit has fallen as far as it should."""
    grid, reduced = functional(config, stepping)
    method, (start, end) = stepping.method, stepping.t_span
    results.say(f"\n{method}, steps of {stepping.first_step:g} up to t = {end:g}")
    taylor = ds.taylor(reduced)
    results.say(taylor)
    if not taylor.passed:
        return False
    goal = config.reduction * reduced.value(reduced.start())
    results.say(ds.optimize.result.HEADING)
    optimum = ds.minimize(
        reduced,
        gradient_tolerance=0.0,
        max_iterations=config.max_iterations,
        options={"tao_fmin": goal},
        restart=results.restart(f"{method}.h5"),
        progress=lambda iterate, _x: results.say(iterate),
    )
    true, guess = spots(grid), reduced.start()
    error = (optimum.x - true).norm() / (guess - true).norm()
    reduction = optimum.value / optimum.history.value[0]
    results.say(optimum)
    results.say(f"  reduction      misfit {reduction:.2e}, error of the state {error:.2e}")
    for name, state in zip(STATES, (true, guess, optimum.x), strict=True):
        results.write(f"{method}/{name}/initial", state)
        results.write(f"{method}/{name}/final", reduced.trajectory(state).final)
    results.write(f"{method}/misfit", optimum.history.value)
    results.write(f"{method}/gradient_norm", optimum.history.gradient_norm)
    facts = {"iterations": optimum.iterations, "evaluations": optimum.evaluations, "error": error}
    facts |= {"reduction": reduction, "taylor_order": taylor.order, "seconds": optimum.seconds}
    results.record(method, facts)
    snapshots = [
        Snapshot(time, {name: f"{method}/{name}/{which}" for name in STATES})
        for time, which in ((start, "initial"), (end, "final"))
    ]
    points = UniformGrid(grid.spacing, grid.origin)
    xdmf = results.path(f"{method}.xdmf")
    results.once(lambda: write_xdmf(xdmf, results.hdf5, points, snapshots, ("u", "v")))
    return optimum.value <= goal


def draw(config: Config, results: Results) -> None:
    """Draw the states of the last method, and all histories."""
    from daeosens.report.figures import (  # noqa: PLC0415 (optional extra)
        History,
        fields_figure,
        history_figure,
    )

    methods = [stepping.method for stepping in config.stepping]
    columns = {
        "true": "true/initial",
        "first guess": "first_guess/initial",
        f"recovered ({methods[-1]})": "recovered/initial",
        f"final, t = {config.stepping[-1].t_span[1]:g}": "true/final",
    }
    first, last = (round(x / BOX[0][1] * config.points) for x in SHOWN)
    middle = slice(first, last + 1)
    fields = [
        read_array(results.hdf5, f"{methods[-1]}/{name}")[middle, middle]
        for name in columns.values()
    ]
    rows = {name: [field[:, :, k] for field in fields] for k, name in enumerate("uv")}
    edges = [BOX[0][1] / config.points * (k - 0.5) for k in (first, last + 1)]
    fields_figure(results.path("fields.png"), rows, list(columns), extent=(*edges, *edges))
    histories = [
        History(
            method,
            read_array(results.hdf5, f"{method}/misfit"),
            read_array(results.hdf5, f"{method}/gradient_norm"),
        )
        for method in methods
    ]
    history_figure(results.path("history.png"), histories, value_label="misfit")


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
