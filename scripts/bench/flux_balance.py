"""Dynamic flux balance with tracked bases, against a linear programme in every right-hand side.

    python scripts/bench/flux_balance.py [--output results.json] [--repeat 7]

The core model of E. coli (99 fluxes with those of xylose, 75 metabolites; cobra has the file) in
batch on glucose, xylose and oxygen over 8 hours, by rk6vr with rtol 1e-6.  Once as a LinearDAEO,
and once as an ODE whose right-hand side asks HiGHS, which begins with the last basis; for growth
alone, whose fluxes need not be unique, and for four objectives in their order, as the LinearDAEO
has them.  Least processor times; both take about the same steps.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np

import daeosens as ds
from daeosens.petsc.vectors import Array
from daeosens.tracing import LinearDAEO
from daeosens.tracing.linear_daeo.highs import Solver

BOUND = 50.0
"""So many times as fast as a programme in every right-hand side, at least."""

GROWTH, GLUCOSE, XYLOSE, OXYGEN = "Biomass_Ecoli_core", "EX_glc__D_e", "EX_xyl__D_e", "EX_o2_e"
OBJECTIVES = (GROWTH, {"EX_etoh_e": -1.0}, {"EX_ac_e": -1.0}, OXYGEN)
EXCHANGED = (GROWTH, GLUCOSE, XYLOSE, OXYGEN, "EX_etoh_e", "EX_ac_e")
STATES = ("cells", "glucose", "xylose", "oxygen", "ethanol", "acetate")
PARAMETERS = {
    "v_g": 10.5,
    "K_g": 0.015,
    "v_z": 6.0,
    "K_z": 0.11,
    "K_i": 0.03,
    "v_o": 15.0,
    "K_o": 0.024,
    "kla": 100.0,
}
START = (0.03, 80.0, 50.0, 0.21, 0.0, 0.0)
STEPPING = ds.Stepping((0.0, 8.0), "rk6vr", rtol=1e-6, atol=1e-8)


@dataclass(frozen=True)
class Row:
    """One line of the table: milliseconds, and how many times as fast the first line is."""

    how: str
    steps: int
    run: float
    gradient: float | None
    ratio: float
    cells: float


def bounds(_t: Any, x: Any, p: Any) -> dict[str, tuple[Any, float]]:
    """Return those of the uptakes: Michaelis and Menten, xylose inhibited by glucose."""
    glucose, xylose, oxygen = (np.maximum(x[k], 0.0) for k in (1, 2, 3))
    return {
        GLUCOSE: (-p.v_g * glucose / (p.K_g + glucose), 0.0),
        XYLOSE: (-p.v_z * xylose / (p.K_z + xylose) / (1.0 + glucose / p.K_i), 0.0),
        OXYGEN: (-p.v_o * oxygen / (p.K_o + oxygen), 0.0),
    }


def rates(_t: Any, x: Any, v: Any, p: Any) -> Any:
    """Return those of the states."""
    air = p.kla * (0.21 - x[3])
    exchanged = np.array([v[name] for name in EXCHANGED])
    return x[0] * exchanged + np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0]) * air


def tracked(network: Any) -> Any:
    """Return the LinearDAEO."""
    return LinearDAEO(
        rates,
        network.matrix,
        OBJECTIVES,
        bounds,
        size=(STATES, network.flows),
        parameters=[*PARAMETERS],
        lower=network.lower,
        upper=network.upper,
    )


def by_programmes(network: Any, model: Any, objectives: int) -> Any:
    """Return the ODE whose right-hand side solves programmes."""
    programme = model.bases.programme
    solver = Solver(programme)
    solver.objectives = objectives
    p = model.unpack(model.pack(PARAMETERS))
    places: dict[str, int] = {
        name: network.flows.index(name) for name in (*EXCHANGED, GLUCOSE, XYLOSE, OXYGEN)
    }
    low: Array = network.lower.copy()
    high: Array = network.upper.copy()

    def rhs(t: float, x: Array, _p: Array) -> Array:
        for name, (left, right) in bounds(t, x, p).items():
            low[places[name]], high[places[name]] = left, right
        solver.solve(low, high, f"at t = {t:.9g}")
        v = solver.values
        return rates(t, x, {name: v[k] for name, k in places.items()}, p)

    return ds.ODE(rhs, size=list(STATES), jacobian="differences")


def least(times: list[float]) -> float:
    """Return the least of them in milliseconds."""
    return 1e3 * min(times)


def main() -> None:
    """Print the table and write the numbers."""
    parser = argparse.ArgumentParser(description="Dynamic flux balance.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    support = Path(__file__).parents[2] / "tests" / "support" / "e_coli_core.py"
    network = run_path(str(support))["e_coli_core"]()
    network.lower[network.flows.index("ATPM")] = 0.0
    model = tracked(network)
    p, cost = model.pack(PARAMETERS), model.terminal(lambda _t, x, _p: x[0])
    runs, gradients, run = list[float](), list[float](), ds.solve(model, START, p, STEPPING)
    for _ in range(max(arguments.repeat, 2)):
        begin = time.process_time()
        run = ds.solve(model, START, p, STEPPING)
        middle = time.process_time()
        ds.adjoint(run, cost)
        runs.append(middle - begin)
        gradients.append(time.process_time() - middle)
    first = least(runs)
    rows = [Row("tracked bases", run.n_steps, first, least(gradients), 1.0, float(run.u[-1, 0]))]
    for objectives in (1, len(OBJECTIVES)):
        problem = by_programmes(network, model, objectives)
        begin = time.process_time()
        run = ds.solve(problem, START, [], STEPPING)
        taken = 1e3 * (time.process_time() - begin)
        how = f"HiGHS, {objectives} objective{'s' if objectives > 1 else ''}"
        rows.append(Row(how, run.n_steps, taken, None, taken / first, float(run.u[-1, 0])))
    print(f"{'':<22}{'steps':>7}{'run, ms':>10}{'gradient, ms':>14}{'ratio':>8}{'cells':>12}")
    for row in rows:
        swept = "" if row.gradient is None else f"{row.gradient:.1f}"
        print(
            f"{row.how:<22}{row.steps:>7}{row.run:>10.1f}{swept:>14}{row.ratio:>8.0f}"
            f"{row.cells:>12.6f}"
        )
    print(f"bound: {BOUND:g} times as fast")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
