"""Fill a tank at a constant rate; what else happens to it is in the configuration."""

import sys
from dataclasses import dataclass
from typing import Annotated

import numpy as np

import daeosens as ds
from daeosens.cli import drive
from daeosens.io import Results
from daeosens.problem.event_kinds import fits

TANK = ds.problem.System(["level"], parameters=["inflow", "mark", "depth"])


@dataclass(frozen=True)
class Config:
    stepping: ds.Stepping
    inflow: float
    mark: float
    depth: float
    events: Annotated[
        tuple[ds.problem.NamedEvent, ...], fits(TANK), "what happens to the tank"
    ] = ()


def study(config: Config, results: Results) -> bool:
    fill = ds.ODE(lambda t, u, p: p[0] + 0 * u, size=1, parameters=TANK.parameters)
    problem = ds.problem.with_events(fill, config.events, TANK)
    p = [config.inflow, config.mark, config.depth]
    run = ds.solve(problem, [0.0], p, config.stepping)
    results.say(run)
    final = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
    results.record("level", final.value)
    results.record("gradient", dict(zip(TANK.parameters, final.p.tolist(), strict=True)))
    results.write("times", np.array([crossing.t for crossing in run.crossings]))
    return True


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study))
