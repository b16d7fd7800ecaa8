"""What binomial checkpoints cost in time, beside what their theory says in steps.

    python scripts/bench/checkpoints.py [--output results.json] [--repeat 2] [--points 512]

Gray-Scott on points x points x 2 unknowns by RK4 and by Crank-Nicolson, a tenth of the states kept.
A gradient would take the time of a run, of a sweep back over states that are all there, and of the
steps that the theory says are taken again, each as long as a step of the run: the ratio is what it
takes over that.  Least processor seconds of laps in turn, in one process.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daeosens.timestepping import Checkpoints
from daeosens.timestepping.trajectory.schedule import repeated_steps
from gray_scott.ours import tasks

SETTINGS = (("rk4", 100, 5), ("cn", 50, 1))
"""Methods, numbers of steps, and laps for each that is asked for: short ones vary more."""

SHARE = 10
"""One of so many states is kept."""


def seconds_of(call: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return processor seconds of a call, and its result."""
    begin = time.process_time()
    result = call(*arguments)
    return time.process_time() - begin, result


def measured(points: int, method: str, steps: int, repeat: int) -> dict[str, Any]:
    """Return one line of the table."""
    dt = min(0.5, 0.2 * (2.5 / points) ** 2 / 8e-5) if method == "rk4" else 0.5
    setting = {"points": points, "method": method, "dt": dt, "steps": steps}
    kept = steps // SHARE
    run, back = tasks(setting, {"checkpoint": "states"})["adjoint sweep"]
    few = tasks(setting, {"checkpoint": Checkpoints(kept)})["gradient"]
    laps: list[tuple[float, float, float]] = []
    for _ in range(1 + repeat):  # the first one compiles and fills caches
        forward, trajectory = seconds_of(run)
        sweep, _ = seconds_of(back, trajectory)
        del trajectory
        laps.append((forward, sweep, seconds_of(few)[0]))
    forward, sweep, gradient = map(min, zip(*laps[1:], strict=True))
    again = repeated_steps(steps, kept)
    theory = forward * (1.0 + again / steps) + sweep
    return {
        "method": method,
        "points": points,
        "steps": steps,
        "states": kept,
        "steps again": again,
        "run": forward,
        "sweep": sweep,
        "by theory": theory,
        "gradient": gradient,
        "ratio": gradient / theory,
    }


def main() -> None:
    """Measure, print, and write the results if wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--points", type=int, default=512)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for method, steps, laps in SETTINGS:
        rows.append(measured(arguments.points, method, steps, laps * arguments.repeat))
        if len(rows) == 1:
            print("  ".join(rows[0]))
        told = (
            f"{v:>{len(k)}.3g}" if isinstance(v, float) else f"{v:>{len(k)}}"
            for k, v in rows[-1].items()
        )
        print("  ".join(told), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
