"""E. coli in batch by dynamic flux balance: glucose first, then the acetate it has made of it.

Four ways to make a gram of cells (Mahadevan, Edwards, Doyle, Biophysical Journal 83, 2002):

    39.43 acetate + 35    oxygen  ->  cells
     9.46 glucose + 12.92 oxygen  ->  cells
     9.84 glucose + 12.73 oxygen  ->  cells +  1.24 acetate
    19.23 glucose                 ->  cells + 12.12 acetate

in mmol.  At every instant the cells grow as fast as uptakes allow, a linear programme: glucose and
acetate by Michaelis and Menten, oxygen by what is dissolved, which aeration replaces.  Which of the
ways are taken changes along the run; each change is an event.  From measurements of cells, glucose
and acetate with noise the rates of uptake and of aeration are estimated, by gradients that go
through all changes.

    python drivers/diauxie.py configs/diauxie.toml   (or mpiexec -n 2 python ...)

Results: diauxie.png (concentrations and the four rates of growth), states, flows and estimates in
results.h5.
"""

import sys
from dataclasses import dataclass
from typing import Annotated

import numpy as np

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.io import Results, positive
from daeosens.tracing import LinearDAEO, LinearDAEOModel

STATES = ("cells", "glucose", "acetate", "oxygen")
WAYS = ("acetate_aerobic", "glucose_aerobic", "overflow", "fermentation")
SHOWN = {
    "glucose_aerobic": "of glucose",
    "acetate_aerobic": "of acetate",
    "overflow": "overflow",
    "fermentation": "fermentation",
}
FLOWS = (*WAYS, "glucose", "oxygen", "acetate", "waste", "growth")
USED = [[0, 9.46, 9.84, 19.23], [35, 12.92, 12.73, 0], [39.43, 0, 0, 0], [0, 0, 1.24, 12.12]]
BALANCES = np.block([[np.array(USED), -np.eye(4, 5)], [np.ones((1, 4)), -np.eye(5)[4:]]])
PARAMETERS = ("glucose_rate", "acetate_rate", "oxygen_rate", "aeration")
MEASURED = ("cells", "glucose", "acetate")
FREE = ("glucose_rate", "oxygen_rate", "aeration")


@dataclass(frozen=True)
class Config:
    stepping: ds.Stepping
    cells: Annotated[float, positive(), "at the start [g/l]"] = 0.01
    glucose: Annotated[float, positive(), "at the start [mmol/l]"] = 10.8
    acetate: Annotated[float, positive(), "at the start [mmol/l]"] = 0.4
    oxygen: Annotated[float, positive(), "where saturated [mmol/l]"] = 0.21
    glucose_rate: Annotated[float, positive(), "largest [mmol/g/h]"] = 10.0
    acetate_rate: Annotated[float, positive(), "largest [mmol/g/h]"] = 6.0
    oxygen_rate: Annotated[float, positive(), "largest [mmol/g/h]"] = 15.0
    aeration: Annotated[float, positive(), "kLa [1/h]"] = 7.5
    half: Annotated[float, positive(), "of glucose and acetate at half the rates [mmol/l]"] = 0.5
    half_oxygen: Annotated[float, positive(), "of oxygen [mmol/l]"] = 0.02
    noise: Annotated[float, positive(), "of measurements, relative to the largest"] = 0.02
    measurements: Annotated[int, positive(), "times of them"] = 20
    guess: Annotated[float, positive(), "factor between truth and first guess"] = 1.3
    seed: int = 1

    @property
    def truth(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in PARAMETERS}

    @property
    def start(self) -> list[float]:
        return [self.cells, self.glucose, self.acetate, self.oxygen]


def culture(config: Config) -> LinearDAEOModel:
    def bounds(t, x, p):
        glucose, acetate, oxygen = (np.maximum(x[k], 0.0) for k in (1, 2, 3))
        return {
            "glucose": (0.0, p.glucose_rate * glucose / (config.half + glucose)),
            "acetate": (0.0, p.acetate_rate * acetate / (config.half + acetate)),
            "oxygen": (0.0, p.oxygen_rate * oxygen / (config.half_oxygen + oxygen)),
        }

    def rates(t, x, v, p):
        air = p.aeration * (config.oxygen - x[3])
        taken = [v.growth, -v.glucose, v.waste - v.acetate, -v.oxygen]
        return x[0] * np.array(taken) + air * np.array([0.0, 0.0, 0.0, 1.0])

    objectives = ["growth", {"oxygen": -1.0}, {"waste": -1.0}]
    return LinearDAEO(
        rates, BALANCES, objectives, bounds, size=(STATES, FLOWS), parameters=PARAMETERS
    )


def functional(config: Config, model: LinearDAEOModel) -> tuple[ds.Reduced, np.ndarray]:
    """Return the misfit as a function of the rates, and the measurements [K, 4]."""
    first, last = config.stepping.t_span
    times = np.linspace(first, last, config.measurements + 1)[1:]
    p = model.pack(config.truth)
    run = ds.solve(model, config.start, p, config.stepping, t_eval=times)
    states = run.u[np.searchsorted(run.times, times - 1e-9)]
    columns = [STATES.index(name) for name in MEASURED]
    sigma = config.noise * states[:, columns].max(axis=0)
    noise = np.random.default_rng(config.seed).normal(size=(len(times), len(columns)))
    data = states[:, columns] + sigma * noise
    misfit = ds.LeastSquares(times, data, sigma=sigma, observe=MEASURED)
    values = {
        name: ds.Parameter(
            value * (config.guess if name in FREE else 1.0), name in FREE, scale="log"
        )
        for name, value in config.truth.items()
    }
    control = ds.Parameters(values, initial_state=config.start)
    return ds.Reduced(model, misfit, config.stepping, control), np.column_stack([times, data])


def check(config: Config) -> ds.verify.Taylor:
    return ds.taylor(functional(config, culture(config))[0], hessian=True)


def study(config: Config, results: Results) -> bool:
    evidence = check(config)
    results.say(evidence)
    model = culture(config)
    p = model.pack(config.truth)
    run = ds.solve(model, config.start, p, config.stepping)
    results.say(f"\n{run}\n\n{run.report}")
    cells = model.terminal(lambda t, x, p: x[0])
    gradient = model.unpack(ds.adjoint(run, cells).p)
    results.say(f"\ncells at the end: {run.u[-1, 0]:.6g} g/l; by the logarithm of")
    for name, value in config.truth.items():
        results.say(f"  {name:14s}{value * gradient[name]:12.6f}")
    reduced, data = functional(config, model)
    optimum = ds.minimize(
        reduced,
        method="bntr",
        gradient_tolerance=1e-6,
        restart=results.restart("minimisation.h5"),
    )
    results.say(f"\n{optimum}")
    assert isinstance(reduced.control, ds.Parameters)
    estimates = reduced.control.values_at(model, optimum.x)
    for name in FREE:
        results.say(f"  {name:14s}{estimates[name]:10.5f}   (truth {config.truth[name]:g})")
    results.record("estimates", {name: estimates[name] for name in FREE})
    results.record("changes", [crossing.t for crossing in run.crossings])
    flows = model.flows(run)
    for name, values in {"times": run.times, "states": run.u, "flows": flows}.items():
        results.write(name, values)
    results.write("measurements", data)
    results.once(lambda: draw(results, run, flows))
    return evidence.passed and optimum.converged


def draw(results: Results, run: ds.timestepping.Trajectory, flows: np.ndarray) -> None:
    from daeosens.report.switched_runs import (  # noqa: PLC0415 (optional extra)
        Course,
        Row,
        switching_figure,
    )

    times = [*(crossing.t for crossing in run.crossings), float(run.times[-1])]
    named = {name: run.u[:, k] for k, name in enumerate(STATES)}
    rows = [
        Row("cells [g/l]", [Course("", run.times, named["cells"])]),
        Row(
            "concentration\n[mmol/l]",
            [Course(name, run.times, named[name]) for name in ("glucose", "acetate")],
        ),
        Row(
            "growth by\neach way [1/h]",
            [Course(words, run.times, flows[:, WAYS.index(name)]) for name, words in SHOWN.items()],
        ),
    ]
    switching_figure(
        results.path("diauxie.png"),
        rows,
        list(zip(times[::2], times[1::2], strict=False)),
        time_label="t [h]",
        shade_label="every other basis",
    )


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
