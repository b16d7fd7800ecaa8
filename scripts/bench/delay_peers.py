"""What ddeint and JiTCDDE make of a delay problem: rows in JSON; run by ``delays.py``.

peers/bin/python scripts/bench/delay_peers.py PROBLEM REPEAT
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import numpy as np
from ddeint import ddeint
from jitcdde import jitcdde, t, y

from delay_problems import PROBLEMS, DelayProblem

POINTS = (1000, 10000)
"""Of ddeint: its error falls with their square at most."""

TOLERANCES = (1e-4, 1e-7, 1e-10)


def by_ddeint(problem: DelayProblem) -> list[dict[str, Any]]:
    """Return rows of a package that interpolates linearly between points that are asked for."""

    def rhs(state: Any, t: float) -> Any:
        past = [np.atleast_1d(state(t - tau)) for tau in problem.delays]
        rates = problem.rhs(np.atleast_1d(state(t)), past)
        return np.array(rates) if len(rates) > 1 else rates[0]  # numbers, as in its manual

    def history(t: float) -> Any:
        state = problem.start if t >= 0.0 else problem.history
        return np.array(state) if len(state) > 1 else state[0]

    rows: list[dict[str, Any]] = []
    for count in POINTS:
        times, begin = np.linspace(0.0, problem.end, count + 1), time.process_time()
        end = ddeint(rhs, history, times)[-1]
        spent = 1e3 * (time.process_time() - begin)  # once: it takes seconds
        row = {"package": "ddeint", "setting": f"{count} points", "ms": spent}
        rows.append({**row, "state": np.atleast_1d(end).tolist()})
    return rows


def by_jitcdde(problem: DelayProblem, repeat: int) -> list[dict[str, Any]]:
    """Return rows of a compiled package whose steps end at discontinuities."""
    size = len(problem.start)
    now = [y(k) for k in range(size)]
    past = [[y(k, t - tau) for k in range(size)] for tau in problem.delays]
    rows: list[dict[str, Any]] = []
    for rtol in TOLERANCES:
        model = jitcdde(problem.rhs(now, past), verbose=False, max_delay=max(problem.delays))
        model.compile_C()
        times: list[float] = []
        end: Any = None
        for _ in range(repeat):
            # steps at discontinuities may lead beyond the end; then they are smoothed at the start
            for steps in (True, False):
                model.purge_past()
                model.constant_past(list(problem.history))
                jumps = problem.start != problem.history
                if jumps:
                    model.jump(np.subtract(problem.start, problem.history), 0.0)
                model.set_integration_parameters(rtol=rtol, atol=1e-3 * rtol, first_step=1e-3)
                begin = time.process_time()
                if steps and not jumps:
                    model.step_on_discontinuities(propagations=2)
                elif not jumps:
                    model.adjust_diff()
                if model.t < problem.end:
                    break
            end = model.integrate(problem.end)
            times.append(1e3 * (time.process_time() - begin))
        row = {
            "package": "JiTCDDE",
            "setting": f"{rtol:.0e}".replace("e-0", "e-"),
            "ms": min(times),
        }
        rows.append({**row, "state": np.asarray(end).tolist()})
    return rows


def main() -> None:
    """Print the rows of a problem."""
    name, repeat = sys.argv[1], int(sys.argv[2])
    problem = next(problem for problem in PROBLEMS if problem.name == name)
    warnings.simplefilter("ignore")
    rows = [*by_ddeint(problem), *by_jitcdde(problem, repeat)]
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
