"""A linear oscillator that switches between two modes at lines through the origin.

    u' = A u,  A = [[1, -100], [10, 1]] in mode "wide" and [[1, 10], [-100, 1]] in mode "tall"

It starts at (0, 1) in mode "wide", goes on as "tall" where y = steep x and as "wide" again where
y = flat x, with the slopes 2.75 and 0.36 as parameters.  The derivative of u(T) by the slopes jumps
at the switches, although the state does not.

Each method takes smaller and smaller steps: u(T), the times of the switches and the derivatives
by both slopes converge with its order, the second derivatives with one order less (the size of the
step that a switch cuts is differentiated twice) and with the fraction of the step at which it does.
All derivatives are exact for the steps that were taken.

    mpiexec -n 2 python drivers/switched_oscillator.py configs/switched_oscillator.toml

PETSc's tutorials ts/tutorials/hybrid/ex1*.c solve the same problem with Crank-Nicolson, dt = 1/256.
Its differences (ex1fd) print -0.101525, 0.070411 for du(T)/d steep, which is the derivative of the
discrete program; its adjoint (ex1adj), with the jump of the continuous problem, -0.1016157,
0.0704264.

Results: plane.png, convergence.png, and the numbers in results.h5.
"""

import sys
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.io import Results, between, length

END, SLOPES, START = 0.125, np.array([2.75, 0.36]), [0.0, 1.0]
# the solution and its derivatives, by matrix exponentials in high precision
FINAL = np.array([-0.3161266569964, -0.23814498194319])
TIMES = np.array([0.095725421094859, 0.11477575380689])
BY_SLOPES = np.array([[-0.102723187869, 0.787880910997], [0.070304141626, -0.533828556887]])
TWICE = np.array(
    [
        [[0.09208297769, -0.5330208751], [-0.5330208751, 0.9979956644]],
        [[-0.0477818129, 0.05285344979], [0.05285344979, 0.1935040261]],
    ]
)  # second derivatives of both components
DISCRETE = np.array([[-0.10152497, 0.77932811], [0.07041081, -0.53474455]])
DIGITS = 1e-11  # below it the error is that of the digits above
MATRICES = {
    "wide": np.array([[1.0, -100.0], [10.0, 1.0]]),
    "tall": np.array([[1.0, 10.0], [-100.0, 1.0]]),
}


@dataclass(frozen=True)
class Config:
    stepping: Annotated[tuple[ds.Stepping, ...], length(1), "first steps of each method"]
    refinements: Annotated[int, between(1, 12), "how often the steps are halved"] = 4

    def __post_init__(self) -> None:
        spans = [stepping.t_span for stepping in self.stepping if stepping.t_span != (0.0, END)]
        if spans:
            raise ds.InputError(
                f"t_span = {spans[0]}", expected=f"[0, {END}], whose solution is known"
            )


def mode(matrix) -> ds.problem.Problem:
    return ds.ODE(
        lambda t, u, p: matrix @ u,
        size=2,
        parameters=["steep", "flat"],
        jacobian=lambda t, u, p: matrix,
        jacobian_p=lambda t, u, p: np.zeros((2, 2)),
    )


OSCILLATOR = ds.hybrid(
    {name: mode(matrix) for name, matrix in MATRICES.items()},
    "wide",
    [
        ds.Event(lambda t, u, p: u[1] - p[0] * u[0], mode="tall", within=["wide"], name="steep"),
        ds.Event(lambda t, u, p: u[1] - p[1] * u[0], mode="wide", within=["tall"], name="flat"),
    ],
)


def solve(stepping: ds.Stepping, refinement: int = 1) -> ds.timestepping.Trajectory:
    finer = replace(stepping, dt=stepping.first_step / refinement)
    return ds.solve(OSCILLATOR, START, SLOPES, finer)


def check(config: Config) -> ds.verify.Taylor:
    values = dict(zip(("steep", "flat"), map(ds.Parameter, SLOPES), strict=True))
    control = ds.Parameters(values, START)
    output = ds.Terminal(lambda t, u, p: u[0] + 0.4 * u[1] ** 2)
    tests = [
        ds.taylor(ds.Reduced(OSCILLATOR, output, stepping, control), hessian=True)
        for stepping in config.stepping
    ]
    return min(tests, key=lambda test: (test.passed, test.order))


def second(run: ds.timestepping.Trajectory) -> np.ndarray:
    """Return the second derivatives [2, 2, 2] of both components of u(T) by the slopes."""
    outputs = [ds.Terminal(lambda t, u, p: u[0]), ds.Terminal(lambda t, u, p: u[1])]
    products = [ds.hessian_product(run, output, dp=np.eye(2)) for output in outputs]
    return np.array([[column.p for column in row] for row in products])


def study(config: Config, results: Results) -> bool:
    evidence = check(config)
    results.say(evidence)
    first = config.stepping[0]
    run = solve(first)
    results.say(f"\n{run}\nu(T) = {run.final.array}, exact {FINAL}")
    name = f"{first.method}, dt = 1/{1 / first.first_step:g}"
    tables = ((name, ds.sensitivities(run).p), ("reference for cn, dt = 1/256", DISCRETE))
    for words, matrix in (*tables, ("exact", BY_SLOPES)):
        results.say(f"du(T)/d(steep, flat), {words}:\n{np.array2string(matrix, precision=8)}")
    results.write("du_dslopes", tables[0][1])
    results.say(
        "\nerrors (order)   switches          u(T)              du(T)/d(steep, flat)"
        "   second derivatives"
    )
    errors = {stepping.method: refine(config, stepping, results) for stepping in config.stepping}
    orders = {name: order(rows[:, 2]) for name, rows in errors.items()}
    results.say("\nmethod    order of du(T)/d(steep, flat), all halvings together")
    for stepping in config.stepping:
        expected = stepping.resolved_method.order
        results.say(f"{stepping.method:8s}  {orders[stepping.method]:.2f} (expected {expected})")
    results.record("orders", orders)
    results.once(lambda: draw(config, results, errors))
    right = [
        orders[stepping.method] > stepping.resolved_method.order - 0.25
        for stepping in config.stepping
    ]
    return evidence.passed and all(right)


def refine(config: Config, stepping: ds.Stepping, results: Results) -> np.ndarray:
    """Return the errors [refinements + 1, 4] of switches, final state and its derivatives."""
    rows = []
    for k in range(config.refinements + 1):
        run = solve(stepping, 2**k)
        times, slopes = [crossing.t for crossing in run.crossings], ds.sensitivities(run).p
        pairs = (
            (times, TIMES),
            (run.final.array, FINAL),
            (slopes, BY_SLOPES),
            (second(run), TWICE),
        )
        rows.append([abs(ours - exact).max() for ours, exact in pairs])
        orders = np.log2(np.divide(*rows[-2:])) if k else [np.nan] * 4
        cells = [f"{error:.2e} ({o:4.2f})" for error, o in zip(rows[-1], orders, strict=True)]
        dt = f"1/{2**k / stepping.first_step:<6.0f}"
        results.say(f"{stepping.method:8s} {dt}  " + "   ".join(cells).replace("( nan)", "      "))
    results.write(f"errors/{stepping.method}", rows)
    return np.array(rows)


def order(errors: np.ndarray) -> float:
    """Return the mean observed order, down to the last known digits."""
    seen = errors[errors > DIGITS]
    return float(np.log2(seen[0] / seen[-1]) / (len(seen) - 1)) if len(seen) > 1 else np.nan


def draw(config: Config, results: Results, errors: dict[str, np.ndarray]) -> None:
    from daeosens.report import figures  # noqa: PLC0415 (optional extra)
    from daeosens.report import hybrid_runs as hybrid  # noqa: PLC0415 (optional extra)

    run = solve(replace(config.stepping[-1], dt=END / 500))
    events = hybrid.events_of(run)
    panels = []
    for k, name in enumerate(("steep", "flat")):
        slopes = ds.derivatives.at_fixed_times(ds.tangent(run, dp=np.eye(2)[k]))
        lines = [
            hybrid.JumpSeries(letter if k == 0 else "", run.times, slopes[:, j], events)
            for j, letter in enumerate("xy")
        ]
        panels.append(hybrid.Panel(f"d(x, y) / d {name}", lines))
    hybrid.plane_figure(
        results.path("plane.png"),
        hybrid.PlaneCurve(run.u, events, ["wide", *(crossing.mode for crossing in run.crossings)]),
        [
            hybrid.Surface(f"y = {slope:g} x ({name})", -slope, 1.0)
            for slope, name in zip(SLOPES, ("steep", "flat"), strict=True)
        ],
        panels,
        axis_labels=("x", "y"),
        time_label="t",
        moments=[crossing.t for crossing in run.crossings],
    )
    steps = {
        stepping.method: [stepping.first_step / 2**k for k in range(config.refinements + 1)]
        for stepping in config.stepping
    }
    figures.work_precision_figure(
        results.path("convergence.png"),
        [
            figures.Curve(f"{name}, order {order(rows[:, 2]):.2f}", steps[name], rows[:, 2])
            for name, rows in errors.items()
        ],
        x_label="dt",
        y_label="error of du(T)/d(steep, flat)",
    )


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
