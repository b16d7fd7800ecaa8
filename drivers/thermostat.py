"""Set a thermostat: the heat equation with a heater that switches on a measured temperature.

    u_t = a Laplace u + [on] power heater(x),  u = 0 at the walls (degrees above outdoors)

in a room of 4 m x 3 m, on a grid shared by the ranks.  The sensor measures the average of u over a
patch; at "high" it switches the heater off, at "low" on again, each time late, because heat has to
travel.  The thresholds minimise

    int (sensor - target)^2 + price * (heat lost through the walls) dt + wear / (high - low)

The heat lost is the heat bought less what is left in the room at the end.  The wear stands for the
number of switches, which has no derivative and goes about like 1 / (high - low).

    mpiexec -n 2 python drivers/thermostat.py configs/thermostat.toml

The cost is smooth in pieces only.  A switch that comes in at the end of the run changes the cost by
the square of the time that is left, so its first derivative stays continuous, the second one jumps;
a switch that passes the end of a step makes a kink of the size of the error of that step, which all
later switches amplify.  A gradient method gets through if the steps are fine enough, Newton's
method too; Taylor tests need small moves; and each iterate is printed with its number of switches.

Results: switching times, the sensor's course with its derivative in "high" and the fields in
results.h5, fields.xdmf for ParaView, sensor.png, fields.png.
"""

import sys
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from petsc4py import PETSc

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.io import (
    Results,
    Snapshot,
    UniformGrid,
    between,
    increasing,
    positive,
    read_array,
    write_xdmf,
)
from daeosens.petsc import gather, read
from daeosens.problem.grids import Grid
from daeosens.tracing.pdes import first_mode, heat

ROOM = ((0.0, 4.0), (0.0, 3.0))  # m
DIFFUSIVITY = np.array([1.0])  # m^2/h, of air that moves
HEATER, SENSOR = ((1.0, 1.5), 0.4), ((2.6, 1.5), 0.3)  # middle and width of a patch [m]
NAMES = ("power", "low", "high")
NAME = {"hot": "switched off", "cold": "switched on"}
SMALL = tuple(4e-5 * 0.5**k for k in range(4))  # moves that take no switch past the end of a step


@dataclass(frozen=True)
class Optimizer:
    method: Literal["blmvm", "bqnls", "bncg", "bnls", "bntr", "bntl"] = "blmvm"
    gradient_tolerance: Annotated[float, positive(), "largest gradient norm at the end"] = 1e-6
    max_iterations: Annotated[int, positive()] = 50


@dataclass(frozen=True)
class Config:
    stepping: ds.Stepping
    points: Annotated[tuple[int, int], "grid points along x and y"] = (40, 30)
    power: Annotated[float, positive(), "of the heater [K m^2/h]"] = 800.0
    low: Annotated[float, "switches on; where the search begins [K]"] = 18.0
    high: Annotated[float, "switches off [K]"] = 22.0
    low_bounds: Annotated[tuple[float, float], increasing(), "[K]"] = (17.0, 19.5)
    high_bounds: Annotated[tuple[float, float], increasing(), "above those of low [K]"] = (
        20.0,
        23.0,
    )
    target: Annotated[float, "comfortable, above outdoors [K]"] = 20.0
    start: Annotated[float, between(0.0), "in the middle of the room [K]"] = 15.0
    price: Annotated[float, between(0.0), "of heat [K^2 h / (K m^2)]"] = 0.01
    wear: Annotated[float, between(0.0), "[K^3 h]"] = 20.0
    optimizer: Optimizer = Optimizer()

    def __post_init__(self) -> None:
        if not self.low_bounds[1] < self.high_bounds[0]:
            raise ds.InputError(
                f"low_bounds = {self.low_bounds}, high_bounds = {self.high_bounds}",
                expected="low always below high",
            )


@dataclass(frozen=True)
class Room:
    """The grid and the problem; weights of sensor and heat loss; the field at the start."""

    grid: Grid
    problem: ds.problem.Problem
    sensor: PETSc.Vec
    loss: PETSc.Vec
    start: PETSc.Vec


def room(config: Config, comm: PETSc.Comm = PETSc.COMM_WORLD) -> Room:
    grid = Grid(ROOM, config.points, "zero", comm=comm)
    conduction, cell = heat(grid, jacobian="assembled"), grid.spacing[0] * grid.spacing[1]
    sensor, heater, start = patch(grid, *SENSOR), patch(grid, *HEATER), first_mode(grid)
    heater.scale(1.0 / cell)  # power is that of the whole patch
    start.scale(config.start)
    ones, loss = grid.create_vec(), grid.create_vec()
    ones.set(1.0)
    conduction.rhs(0.0, ones, DIFFUSIVITY, loss)  # the Laplacian is its own transpose
    loss.scale(-cell)

    def mode(on: float) -> ds.problem.Problem:
        def rhs(t, u, p, out):
            conduction.rhs(t, u, DIFFUSIVITY, out)
            out.axpy(on * p[0], heater)

        def jacobian(t, u, p, out):
            conduction.rhs_u.fill(t, u, DIFFUSIVITY, out)

        def jacobian_p(t, u, p, out):
            columns = out.getDenseArray()
            columns[...] = 0.0
            columns[:, 0] = on * heater.getArray(readonly=True)

        return ds.ODE(
            rhs,
            state=grid.dm,
            parameters=NAMES,
            jacobian=jacobian,
            jacobian_matrix=conduction.rhs_u.create(0.0, ones, DIFFUSIVITY),
            jacobian_p=jacobian_p,
            rhs_t="autonomous",
            hessian_product=no_curvature,
        )

    def threshold(name, k, direction, within, mode):
        unit = np.eye(3)[k]
        return ds.Event(
            lambda t, u, p: sensor.dot(u) - p[k],
            direction=direction,
            within=[within],
            mode=mode,
            name=name,
            when_u=lambda t, u, p, out: sensor.copy(out),
            when_p=lambda t, u, p: -unit,
            when_t="autonomous",
            when_hessian=no_curvature,
        )

    events = [threshold("hot", 2, 1, "on", "off"), threshold("cold", 1, -1, "off", "on")]
    problem = ds.hybrid({"on": mode(1.0), "off": mode(0.0)}, "on", events)
    return Room(grid, problem, sensor, loss, start)


def no_curvature(*arguments):
    """Second derivatives of what is linear; the vector to fill comes last."""
    arguments[-1].zeroEntries()
    return np.zeros(len(NAMES))


def patch(grid: Grid, middle: tuple[float, float], width: float) -> PETSc.Vec:
    """Return weights that add up to 1, like those of a normal distribution."""
    vec, (x, y) = grid.create_vec(), grid.coordinates()
    square = ((x - middle[0]) ** 2 + (y - middle[1]) ** 2) / width**2
    grid.writable(vec)[..., 0] = np.exp(-0.5 * square)
    vec.scale(1.0 / vec.sum())
    return vec


def cost(config: Config, house: Room):
    sensor, loss = house.sensor, house.loss

    def gradient_u(t, u, p, out):
        sensor.copy(out)
        out.scale(2.0 * (sensor.dot(u) - config.target))
        out.axpy(config.price, loss)

    def hessian_product(t, u, p, du, dp, out):
        sensor.copy(out)
        out.scale(2.0 * sensor.dot(du))
        return np.zeros(3)

    comfort_and_heat = ds.Running(
        lambda t, u, p: (sensor.dot(u) - config.target) ** 2 + config.price * loss.dot(u),
        gradient_u=gradient_u,
        gradient_p=ds.problem.INDEPENDENT,
        density_t="autonomous",
        hessian_product=hessian_product,
    )
    band = np.array([0.0, -1.0, 1.0])

    def wear_hessian(t, u, p, du, dp, out):
        out.zeroEntries()
        return 2.0 * config.wear / (band @ p) ** 3 * (band @ dp) * band

    wear = ds.Terminal(
        lambda t, u, p: config.wear / (band @ p),
        gradient_u=ds.problem.INDEPENDENT,
        gradient_p=lambda t, u, p: -config.wear / (band @ p) ** 2 * band,
        hessian_product=wear_hessian,
    )
    return comfort_and_heat + wear


def functional(config: Config, house: Room, *free: str) -> ds.Reduced:
    """Return the cost as a function of the parameters named; of the first field if none is."""
    start = dict(zip(NAMES, (config.power, config.low, config.high), strict=True))
    control = ds.functional.InitialState(house.start, [*start.values()])
    if free:
        bounds = {"low": config.low_bounds, "high": config.high_bounds}
        values = {
            name: ds.Parameter(value, name in free, *bounds.get(name, (0.0, np.inf)))
            for name, value in start.items()
        }
        control = ds.Parameters(values, house.start)
    return ds.Reduced(house.problem, cost(config, house), config.stepping, control)


def check(config: Config) -> ds.verify.Taylor:
    house = room(config)
    tests = [
        ds.taylor(functional(config, house, *NAMES), hessian=True, epsilons=SMALL),
        ds.taylor(functional(config, house), epsilons=SMALL),
    ]
    return min(tests, key=lambda test: test.passed)


def study(config: Config, results: Results) -> bool:
    evidence = check(config)
    results.say(evidence)
    if not evidence.passed:
        return False
    house = room(config)
    say_derivatives(config, house, results)
    reduced, counts = functional(config, house, "low", "high"), []

    def progress(iterate, x):
        counts.append(len(reduced.trajectory(x).crossings))
        changed = len(counts) > 1 and counts[-1] != counts[-2]
        results.say(f"{iterate} {counts[-1]:9d}{' (changed)' if changed else ''}")

    results.say(f"\n{ds.optimize.result.HEADING}  switches")
    restart = results.restart("minimisation.h5")
    optimum = ds.minimize(reduced, restart=restart, progress=progress, **vars(config.optimizer))
    results.say(optimum)
    low, high = (float(threshold) for threshold in gather(optimum.x))
    results.say(f"  thresholds     {config.low:g}, {config.high:g} -> {low:.6g}, {high:.6g}")
    run = reduced.trajectory(optimum.x)
    results.say(f"\n{run}")
    facts = {"low": low, "high": high, "value": optimum.value, "iterations": optimum.iterations}
    facts |= {"switches": [crossing.t for crossing in run.crossings], "counts": counts}
    for name, fact in facts.items():
        results.record(name, fact)
    results.write("times", run.times)
    results.write("sensor", [house.sensor.dot(state) for state in run.states])
    results.write("sensitivity", sensitivity(house, run))
    moments = [
        (NAME[crossing.name], crossing.t, crossing.before) for crossing in run.crossings[-2:]
    ]
    moments = moments or [("end", float(run.times[-1]), run.final)]
    for name, _, state in moments:
        results.write(name, state)
    snapshots = [Snapshot(t, {"u": name}) for name, t, _ in moments]
    points, xdmf = UniformGrid(house.grid.spacing, house.grid.origin), results.path("fields.xdmf")
    results.once(lambda: write_xdmf(xdmf, results.hdf5, points, snapshots, ("u",)))
    switches = [crossing.t for crossing in run.crossings]
    shown = {name: f"{name}, t = {t:.3g} h" for name, t, _ in moments}
    results.once(lambda: draw(config, results, house.grid.spacing, switches, shown, (low, high)))
    return optimum.converged


def say_derivatives(config: Config, house: Room, results: Results) -> None:
    """Print the switches of the first run, and the derivatives of its cost."""
    run = ds.solve(
        house.problem, house.start, (config.power, config.low, config.high), config.stepping
    )
    results.say(f"\n{run}")
    gradient = ds.adjoint(run, cost(config, house))
    mismatch = ds.verify.duality(run, cost(config, house))
    results.say(f"\nJ = {gradient.value:.9g}; derivatives by adjoint, duality {mismatch:.0e}")
    for name, slope in zip(NAMES, gradient.p, strict=True):
        results.say(f"  {name:6s}{slope:16.9f}")
    results.say(f"  first field: norm {gradient.u0_vec.norm():.9f}")


def sensitivity(house: Room, run: ds.timestepping.Trajectory) -> np.ndarray:
    """Return the derivative of the sensor's temperature in "high", at fixed times."""
    own = ds.derivatives.at_fixed_times(ds.tangent(run, dp=[0.0, 0.0, 1.0])) @ read(house.sensor)
    return house.grid.comm.tompi4py().allreduce(own)


def draw(config, results, spacing, switches, shown, thresholds) -> None:
    from daeosens.report.figures import fields_figure  # noqa: PLC0415 (optional extra)
    from daeosens.report.switched_runs import Course, Row, switching_figure  # noqa: PLC0415

    start, end = config.stepping.t_span
    ends = [start, *switches, end]
    times = read_array(results.hdf5, "times")
    levels = dict(zip(("switches on", "switches off"), thresholds, strict=True))
    switching_figure(
        results.path("sensor.png"),
        [
            Row(
                "sensor\n[K above outdoors]",
                [Course("", times, read_array(results.hdf5, "sensor"))],
                levels,
            ),
            Row("d sensor / d high", [Course("", times, read_array(results.hdf5, "sensitivity"))]),
        ],
        list(zip(ends[::2], ends[1::2], strict=False)),
        time_label="t [h]",
        shade_label="heater on",
    )
    fields = [read_array(results.hdf5, name)[:, :, 0] for name in shown]
    (west, east), (south, north) = ROOM
    hx, hy = (0.5 * h for h in spacing)  # points at the walls are none
    extent = (west + hx, east - hx, south + hy, north - hy)
    fields_figure(
        results.path("fields.png"),
        {"u [K above\noutdoors]": fields},
        list(shown.values()),
        extent=extent,
        axis_labels=("x [m]", "y [m]"),
    )


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
