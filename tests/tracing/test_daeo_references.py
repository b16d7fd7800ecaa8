"""DAEOs with tens of minimisers against a program of 34 digits that eliminates y."""

import json
from pathlib import Path

import numpy as np
import pytest

import daeosens as ds
from daeosens.costs import EventTime
from daeosens.verify import duality

REFERENCES = json.loads((Path(__file__).parents[1] / "references" / "daeo_jumps.json").read_text())


def wells_f(t, x, y, p):
    return [
        x[1] + p.c * y[0],
        -(p.w**2) * x[0] - 0.1 * x[1] + p.c * y[1],
        -p.r * x[2] + p.c * y[2] + y[3] * np.cos(t),
    ]


def wells_h(t, x, y, p):
    deep = p.d * (2.0 - np.cos(np.pi * y[0]) - np.cos(np.pi * y[1]))
    wells = (y[2] ** 2 - 1.0) ** 2 + (y[3] ** 2 - 1.0) ** 2
    coupled = p.k * (y[0] * y[1] + np.sin(y[1] - y[2]) + y[2] * y[3])
    tilted = x[0] * y[0] + x[1] * y[1] + 0.5 * x[2] * y[2] + 0.3 * np.sin(2.0 * t) * y[3]
    return deep + 0.1 * (y[0] ** 2 + y[1] ** 2) + wells + coupled - tilted


def wells_cost(t, x, y, p):
    return x[0] + 0.5 * x[1] ** 2 + np.sin(x[2]) + y[0] * x[1] + p.r * y[2]


def waves_f(t, x, y, p):
    return [-p.w * x[1] + p.c * y[0], p.w * x[0] + p.c * y[1] * np.cos(t)]


def waves_h(t, x, y, p):
    waves = np.sin(6.0 * y[0] + 0.5 * y[1]) + np.cos(6.0 * y[1] - 0.7 * y[0] + p.s)
    return (y[0] - x[0]) ** 2 + (y[1] - x[1]) ** 2 + p.a * waves


def waves_cost(t, x, y, p):
    return x[0] ** 2 + np.sin(x[1]) + y[0] * x[1] + p.a * y[1]


PROBLEMS = {
    "wells": (wells_f, wells_h, wells_cost, ["w", "r", "d", "k", "c"]),
    "waves": (waves_f, waves_h, waves_cost, ["w", "a", "s", "c"]),
}


def made(name):
    """Return the reference, the model, its cost and a run."""
    f, h, cost, names = PROBLEMS[name]
    true = REFERENCES[name]
    n_x, n_y = len(true["x0"]), len(true["y_end"])
    model = ds.DAEO(f, h, size=(n_x, n_y), parameters=names, box=true["box"])
    x0, p = (np.array(true[name], dtype=float) for name in ("x0", "p"))
    stepping = ds.Stepping((0.0, float(true["t_end"])), "rk8vr", rtol=1e-12)
    return true, model, model.terminal(cost), ds.solve(model, x0, p, stepping)


def numbers(texts):
    return np.array(texts, dtype=float)


def row(gradient, n_x):
    assert not gradient.u0[n_x:].any()  # y is found where the run begins
    return np.concatenate([gradient.u0[:n_x], gradient.p])


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_runs_and_derivatives_are_those_of_the_reference(name):
    true, model, cost, run = made(name)
    check_states(true, cost, run)
    check_minimisers(true, run)
    check_derivatives(true, model, cost, run)


def check_states(true, cost, run):
    jumps = [crossing for crossing in run.crossings if crossing.name == "jump"]
    np.testing.assert_allclose(
        [jump.t for jump in jumps], numbers([jump["t"] for jump in true["jumps"]]), atol=1e-10
    )
    for jump, exact in zip(jumps, true["jumps"], strict=True):
        for state, y in ((jump.before, "y_before"), (jump.after, "y_after")):
            np.testing.assert_allclose(
                state.array[:-1], numbers([*exact["x"], *exact[y]]), rtol=0, atol=1e-10
            )
    n_x = len(true["x0"])
    np.testing.assert_allclose(run.u[-1, :n_x], numbers(true["values"][1 : 1 + n_x]), atol=1e-10)
    np.testing.assert_allclose(run.u[-1, n_x:-1], numbers(true["y_end"]), atol=1e-9)
    value = ds.adjoint(run, cost).value
    assert value == pytest.approx(float(true["values"][0]), abs=1e-10)


def check_minimisers(true, run):
    fewest, most = true["minimisers"]
    for t in np.linspace(0.0, float(true["t_end"]), 23):
        alive = [branch for branch in run.report.branches if branch.born <= t < branch.died]
        assert fewest - 1 <= len(alive) <= most + 1  # the reference looks at some times only
    lowest = [run.report.active[0][1], *(jump.after for jump in run.report.jumps)]
    assert [number for _, number in run.report.active] == lowest


def check_derivatives(true, model, cost, run):
    n_x = len(true["x0"])
    direction = numbers(true["direction"])
    along = [*direction[:n_x], *np.zeros(model.size - n_x)], direction[n_x:]
    costs = {"J": cost}
    costs |= {f"t{k}": EventTime("jump", k) for k in range(len(true["jumps"]))}
    tangent = ds.tangent(run, *along)
    for name, quantity in costs.items():
        first, second = (numbers(true[what][name]) for what in ("gradient", "hessian_product"))
        gradient = row(ds.adjoint(run, quantity), n_x)
        np.testing.assert_allclose(gradient, first, rtol=1e-8, atol=1e-8)
        product = row(ds.hessian_product(run, quantity, *along), n_x)
        np.testing.assert_allclose(product, second, rtol=1e-8, atol=1e-8)
        assert duality(run, quantity) < 1e-12
    for k in range(n_x):
        exact = numbers(true["gradient"][f"x{k}"]) @ direction
        assert tangent.states[-1].array[k] == pytest.approx(exact, abs=1e-8)
