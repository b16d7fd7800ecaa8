"""Burgers' equation on P2 elements: evaluations and time of a run and of its adjoint.

    python scripts/bench/finite_elements.py [--output results.json] [--repeat 3] [--levels 4 5]

On the unit square from a Gaussian of amplitude 1 and width 0.06 in both velocities, zero along the
boundary, 16 steps on [0, 2]; the cost is the square of the H1 norm at the end, the unknowns are the
initial velocities and the viscosity.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import skfem
from petsc4py import PETSc

import daeosens as ds
from daeosens.problem.grids import FiniteElements
from daeosens.tracing import WeakForm, trace_weak_form

METHODS = ("beuler", "cn")
STEPS, END, WIDTH, VISCOSITY = 16, 2.0, 0.06, 0.01


def burgers(_t: float, u: Any, p: Any) -> tuple[Any, list[Any]]:
    """Return source and flux of u_t + (u . grad) u = div (viscosity grad u)."""
    along_x, along_y = u.gradient()
    advection = u.value[0] * along_x + u.value[1] * along_y
    return -advection, [-p.viscosity * along_x, -p.viscosity * along_y]


def squares(_t: float, u: Any, _p: Any) -> Any:
    """Return the density of the square of the H1 norm."""
    along_x, along_y = u.gradient()
    return u.value @ u.value + along_x @ along_x + along_y @ along_y


def counted(model: WeakForm, calls: Counter[str]) -> WeakForm:
    """Return the model with its evaluations counted."""

    def counting(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return function(*arguments)

        return call

    jacobians = {
        name: replace(getattr(model, name), fill=counting(getattr(model, name).fill, "jacobian"))
        for name in ("rhs_u", "residual_u")
    }
    return replace(model, rhs_function=counting(model.rhs_function, "rhs"), **jacobians)


def measured(level: int, method: str, repeat: int) -> dict[str, Any]:
    """Return evaluations and least milliseconds."""
    basis = skfem.Basis(skfem.MeshTri().refined(level), skfem.ElementTriP2())
    space = FiniteElements(basis, ("u", "v"), dirichlet={"boundary": (0.0, 0.0)})

    def bump(x: Any) -> tuple[Any, Any]:
        profile = np.exp(-((x[0] - 0.5) ** 2 + (x[1] - 0.5) ** 2) / (2.0 * WIDTH**2))
        return profile, profile

    calls: Counter[str] = Counter()
    traced = trace_weak_form(burgers, space, ["viscosity"])
    model, start = counted(traced, calls), space.interpolate(bump)
    cost = traced.terminal(squares)
    stepping = ds.Stepping((0.0, END), method, dt=END / STEPS)
    seconds: list[tuple[float, float]] = []
    there, back = Counter[str](), Counter[str]()
    for _ in range(repeat):
        calls.clear()
        begin = time.perf_counter()
        run = ds.solve(model, start, [VISCOSITY], stepping)
        middle, there = time.perf_counter(), Counter(calls)
        calls.clear()
        ds.adjoint(run, cost)
        seconds.append((middle - begin, time.perf_counter() - middle))
        back = Counter(calls)
    forward, adjoint = (1e3 * min(part) for part in zip(*seconds, strict=True))
    return {
        "method": method,
        "unknowns": space.state.getSize(),
        "ranks": space.comm.size,
        "rhs": there["rhs"],
        "jacobians": there["jacobian"],
        "adjoint: rhs": back["rhs"],
        "adjoint: jacobians": back["jacobian"],
        "run [ms]": forward,
        "adjoint [ms]": adjoint,
        "ratio": adjoint / forward,
    }


def main() -> None:
    """Measure, print, and write the results if wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--levels", type=int, nargs="+", default=[4, 5])
    arguments = parser.parse_args()
    rows = [
        measured(level, method, arguments.repeat)
        for level in arguments.levels
        for method in METHODS
    ]
    if PETSc.COMM_WORLD.rank:
        return
    print("  ".join(rows[0]))
    for row in rows:
        told = (
            f"{v:>{len(k)}.3g}" if isinstance(v, float) else f"{v!s:>{len(k)}}"
            for k, v in row.items()
        )
        print("  ".join(told))
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
