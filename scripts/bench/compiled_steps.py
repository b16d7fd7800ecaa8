"""What a step and a whole call of a compiled model cost, against C programs on PETSc.

    python scripts/bench/compiled_steps.py [--output results.json] [--repeat 7]

The C program (compiled_steps.c) calls the same functions (compiled_models.c), is made once, and
keeps the states of all steps.  Both run in turn; the tables have the least times.  Bounds: 1.5 for
a step, 150 microseconds for a run of ten steps and its gradient.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from c_library import build, check, pointer
from daeosens import ODE, Reduced, Stepping, Terminal, adjoint, solve
from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.problem import Native

FOLDER = Path(__file__).parent
ENOUGH = 1e-3  # seconds of one measurement


@dataclass(frozen=True)
class Row:
    """One line of the tables: microseconds of a step, or of a call."""

    task: str
    model: str
    method: str
    steps: int
    daeosens: float
    c: float

    @property
    def ratio(self) -> float:
        """Ours over that of C."""
        return self.daeosens / self.c


class Model:
    """A model in C, as a problem and as a program; u_0 at the end is the cost."""

    def __init__(
        self, name: str, start: Sequence[float], p: Sequence[float], gradient: str
    ) -> None:
        models = build(FOLDER / "compiled_models.c")
        self.name = name
        self.start, self.p = np.array(start), np.array(p)
        functions = [getattr(models, name + ending) for ending in ("", "_u", "_p")]
        self._addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
        rhs, by_u, by_p = [Native(address, keeps=models) for address in self._addresses]
        self.problem = ODE(
            rhs,
            len(start),
            len(p),
            jacobian=by_u,
            jacobian_p=by_p,
            rhs_t="autonomous",
        )
        value, by_state = (
            Native(ctypes.cast(getattr(models, name), ctypes.c_void_p).value or 0, keeps=models)
            for name in ("first", gradient)
        )
        self.cost = Terminal(value, by_state, "independent")

    def _first_size(self, stepping: Stepping) -> float:
        """Return the size of the first step, which may be shorter than asked for."""
        return float(solve(self.problem, self.start, self.p, stepping).step_sizes[0])

    def program(self, stepping: Stepping, *, gradients: bool) -> Callable[[], Any]:
        """Return the program in C: a function that runs it.

        The function returns the number of steps, or the gradient in p [m].
        """
        library = build(FOLDER / "compiled_steps.c")
        made, number = ctypes.c_void_p(), ctypes.c_double
        check(
            library.create(
                (ctypes.c_void_p * 3)(*self._addresses),
                self.start.size,
                self.p.size,
                pointer(self.start),
                pointer(self.p),
                stepping.method.removeprefix("rk").encode(),
                number(stepping.t_span[1]),
                number(self._first_size(stepping)),
                number(stepping.rtol or 0.0),
                int(gradients),
                ctypes.byref(made),
            )
        )
        last, by_p, steps = np.empty(self.start.size), np.empty(self.p.size), ctypes.c_long()
        at_last, at_gradient = pointer(last), pointer(by_p)

        def call() -> Any:
            check(library.run(made, at_last, ctypes.byref(steps)))
            if not gradients:
                return steps.value
            check(library.gradient(made, at_gradient))
            return by_p

        weakref.finalize(call, library.destroy, made)
        return call


def least(calls: Sequence[Callable[[], Any]], repeat: int) -> list[float]:
    """Return the least seconds of each call, measured in turn."""
    seconds = [min(_seconds(call, 1) for _ in range(10)) for call in calls]
    counts = [max(1, int(ENOUGH / duration)) for duration in seconds]
    for _ in range(40 * repeat):
        for k, (call, count) in enumerate(zip(calls, counts, strict=True)):
            seconds[k] = min(seconds[k], _seconds(call, count))
    return seconds


def _seconds(call: Callable[[], Any], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def steps_of(model: Model, stepping: Stepping, repeat: int) -> Row:
    """Measure the cost of a step: the difference between a long run and a short one."""
    long, short = (
        stepping,
        Stepping(
            (0.0, 0.05 * stepping.t_span[1]),
            stepping.method,
            stepping.dt,
            stepping.rtol,
            stepping.atol,
        ),
    )
    calls: list[Callable[[], Any]] = []
    for span in (long, short):
        calls.append(lambda span=span: solve(model.problem, model.start, model.p, span).n_steps)
        calls.append(model.program(span, gradients=False))
    counts = [call() for call in calls]
    if counts[::2] != counts[1::2]:
        raise RuntimeError(f"{model.name}, {stepping.method}: other steps in C: {counts}")
    times = least(calls, repeat)
    more = counts[0] - counts[2]
    span = [1e6 * (times[k] - times[k + 2]) / more for k in range(2)]
    return Row("step", model.name, stepping.method, counts[0], *span)


def calls_of(model: Model, repeat: int) -> list[Row]:
    """Measure whole calls: ten steps, and with the gradient."""
    stepping = Stepping((0.0, 1.0), "rk4", dt=0.1)
    names = model.problem.parameter_names
    control = Parameters(
        {name: Parameter(value) for name, value in zip(names, model.p.tolist(), strict=True)},
        initial_state=model.start,
    )
    reduced = Reduced(model.problem, model.cost, stepping, control)
    points = [model.p, 1.01 * model.p]

    def run() -> Any:
        return solve(model.problem, model.start, model.p, stepping)

    def value_and_gradient() -> Any:
        points.reverse()  # a functional keeps the run at its last point
        return reduced.value_and_gradient(points[0])

    in_c = model.program(stepping, gradients=True)
    if not np.allclose(adjoint(run(), model.cost).p, in_c(), rtol=1e-12):
        raise RuntimeError(f"{model.name}: another gradient in C")
    calls = [
        run,
        model.program(stepping, gradients=False),
        lambda: adjoint(run(), model.cost),
        in_c,
        value_and_gradient,
    ]
    times = [1e6 * duration for duration in least(calls, repeat)]
    tasks = (("run", 0, 1), ("run and gradient", 2, 3), ("Reduced", 4, 3))
    return [Row(task, model.name, "rk4", 10, times[a], times[b]) for task, a, b in tasks]


def main() -> None:
    """Print the tables and write the numbers."""
    parser = argparse.ArgumentParser(description="Cost of steps and calls of compiled models.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    models = [
        Model("oscillator", [2.0, 0.0], [1.0], "first_of_two"),
        Model("species", [0.1] * 10, [3.0] * 10, "first_of_ten"),
    ]
    rows: list[Row] = []
    print(
        f"{'microseconds':<18}{'model':<12}{'method':<8}{'steps':>6}{'daeosens':>10}{'C':>9}{'ratio':>7}"
    )

    def show(row: Row) -> None:
        rows.append(row)
        print(
            f"{row.task:<18}{row.model:<12}{row.method:<8}{row.steps:>6}{row.daeosens:>10.2f}"
            f"{row.c:>9.2f}{row.ratio:>7.2f}",
            flush=True,
        )

    for model in models:
        show(steps_of(model, Stepping((0.0, 10.0), "rk4", dt=0.01), arguments.repeat))
        show(
            steps_of(model, Stepping((0.0, 10.0), "rk5dp", rtol=1e-9, atol=1e-9), arguments.repeat)
        )
    for model in models:
        for row in calls_of(model, arguments.repeat):
            show(row)
    if arguments.output is not None:
        numbers = [{**asdict(row), "ratio": row.ratio} for row in rows]
        arguments.output.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
