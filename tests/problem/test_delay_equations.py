"""What ``DDE`` and ``trace`` with delays take, and what they refuse."""

import re

import numpy as np
import pytest

import daeosens as ds
from daeosens import DDE, InputError, Stepping, UnsupportedError, solve
from daeosens.errors import SolveError
from daeosens.problem.modes import add_events


def decay(t, u, z, p):
    return -p[0] * z[0]


def test_a_delay_equation_says_what_it_is():
    problem = DDE(decay, ["x"], ["rate", "lag"], delays=["lag", 2.5], history=[1.0])
    assert repr(problem) == "Problem(u' = f with 2 delays, 1 unknowns, parameters: rate, lag)"
    assert problem.state_names == ("x",)
    assert problem.delays.names == ('"lag"', "delays[1]")
    np.testing.assert_allclose(problem.delays.values(np.array([1.0, 0.3])), [0.3, 2.5])


def test_delays_may_be_functions_of_parameters():
    def twice(p):
        return 2.0 * p[1]

    problem = DDE(decay, 1, 2, delays=[twice, lambda p: p[1]], history=[1.0])
    assert problem.delays.names == ('"twice"', "delays[1]")
    np.testing.assert_allclose(problem.delays.values(np.array([1.0, 0.3])), [0.6, 0.3])
    np.testing.assert_allclose(
        problem.delays.lags.pull_parameters(
            np.zeros(1), np.zeros((1, 2)), np.array([1.0, 0.3]), np.eye(2)[:, None]
        ),
        [[0.0, 2.0], [0.0, 1.0]],
    )


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"delays": []}, InputError, r"delays is empty\n  expected: one at least"),
        ({"delays": [-1.0]}, InputError, r"delays\[0\] = -1\.0\n  expected: a positive number"),
        ({"delays": [1.0, 0.0]}, InputError, r"delays\[1\] = 0\.0"),
        ({"delays": {"a": 1.0}}, InputError, r"delays = \{'a': 1\.0\}\n  expected: a number, the"),
        ({"delays": None}, InputError, r"delays = None"),
        (
            {"delays": ["lagg"]},
            InputError,
            r'delays\[0\] = "lagg" is no parameter\n  expected: one of rate, lag(.|\n)*try: .*lag',
        ),
        ({"history": [1.0, 2.0]}, InputError, r"history has shape \(2,\)"),
        (
            {"rhs": lambda t, u, p: u},
            InputError,
            r"rhs takes 3 arguments\n  expected: rhs\(t, u, z, p\) (.|\n)*try: ODE\(rhs, size",
        ),
        (
            {"rhs": lambda t, u, z, dz, p: u},
            UnsupportedError,
            r"rhs takes 5 arguments: with a delayed rate u'\(t - tau\) the equation is neutral",
        ),
        ({"size": 0}, InputError, "size = 0"),
    ],
)
def test_what_is_refused_at_once(changes, error, message):
    arguments = {"rhs": decay, "size": 1, "delays": ["lag"], "history": [1.0]} | changes
    rhs, size = arguments.pop("rhs"), arguments.pop("size")
    with pytest.raises(error, match=message):
        DDE(rhs, size, ["rate", "lag"], **arguments)


STEPPING = Stepping((0.0, 2.0), "rk4", dt=0.1)


@pytest.mark.parametrize(
    ("stepping", "checkpoint", "message"),
    [
        (Stepping((0.0, 2.0), "cn", dt=0.1), "states", r'method = "cn" for a delay equation'),
        (
            Stepping((0.0, 2.0), "rk4", dt=0.1, options={"ts_monitor": None}),
            "states",
            "PETSc options for a delay equation: ts_monitor",
        ),
        (
            Stepping((0.0, 2.0), "rk5ts", rtol=1e-4, control="sensitivities"),
            "states",
            "control = 'sensitivities' for a delay equation",
        ),
        (STEPPING, "memory", 'petsc_trajectory = "memory" for a delay equation'),
        (
            STEPPING,
            ds.timestepping.Checkpoints(4),
            r"Checkpoints\(memory=4, .*\) for a delay equation",
        ),
    ],
)
def test_steps_that_are_refused(stepping, checkpoint, message):
    problem = DDE(decay, 1, ["rate"], delays=1.0, history=[1.0])
    kept = {"checkpoint": checkpoint}
    if checkpoint == "memory":
        kept = {"petsc_trajectory": "memory"}
    with pytest.raises(UnsupportedError, match=message):
        solve(problem, [1.0], [1.0], stepping, **kept)


def test_events_that_change_more_than_the_state_are_refused():
    problem = DDE(decay, 1, ["rate"], delays=1.0, history=[1.0])
    event = ds.Event(lambda t, u, p: u[0] - 0.5, changes={"rate": lambda t, u, p: 2.0})
    with pytest.raises(UnsupportedError, match=r"changes = .*\n.*\n.*an unknown more of rate 0"):
        solve(add_events(problem, [event]), [1.0], [1.0], STEPPING)
    modes = ds.hybrid({"on": problem, "off": problem}, "on")
    with pytest.raises(UnsupportedError, match="modes of a delay equation"):
        solve(modes, [1.0], [1.0], STEPPING)


@pytest.mark.parametrize(("value", "told"), [(-0.25, "-0.25"), (0.0, "0")])
def test_a_delay_that_is_not_positive_is_named(value, told):
    problem = DDE(decay, 1, ["rate", "lag"], delays=["lag"], history=[1.0])
    message = re.escape(f'delay "lag" = {told}\n  expected: a positive delay')
    with pytest.raises(SolveError, match=message):
        solve(problem, [1.0], [1.0, value], STEPPING)


@pytest.mark.parametrize("sizes", [{"dt": 0.1}, {"rtol": 1e-6}])
def test_a_history_that_ends_too_early_is_named_with_the_delay(sizes):
    def history(t, p):
        return np.array([np.nan if t < -1.0 else 1.0])

    problem = DDE(decay, 1, ["rate", "lag"], delays=["lag"], history=history)
    message = r"the history is not finite at t = -2, to which delay \"lag\" = 2 looks back"
    with pytest.raises(SolveError, match=message):
        solve(problem, [1.0], [1.0, 2.0], ds.Stepping((0.0, 3.0), "rk5ts", **sizes))


def test_too_many_steps_are_refused_before_they_are_taken():
    problem = DDE(decay, 1, ["rate", "lag"], delays=["lag"], history=[1.0])
    message = r"more than max_steps = 1000000 steps; none is longer than the smallest delay, 1e-08"
    with pytest.raises(SolveError, match=message):
        solve(problem, [1.0], [1.0, 1e-8], STEPPING)


@pytest.mark.parametrize("name", ["rhs", "history", "delays"])
def test_other_shapes_are_named(name):
    functions = {
        "rhs": lambda t, u, z, p: np.zeros(2) if name == "rhs" else -z[0],
        "history": lambda t, p: np.zeros(2) if name == "history" else np.ones(1),
        "delays": [lambda p: np.ones(2) if name == "delays" else 1.0],
    }
    problem = DDE(functions.pop("rhs"), 1, **functions)
    with pytest.raises(InputError, match=rf"callback '{name}.*' returned shape \(2,\)"):
        solve(problem, [1.0], None, STEPPING)


def test_what_a_traced_delay_equation_cannot_have():
    def rhs(t, u, z, p):
        return -p.rate * z[0]

    with pytest.raises(InputError, match="delays without history"):
        ds.trace(rhs, 1, ["rate"], delays=[1.0])
    with pytest.raises(UnsupportedError, match="mass beside delays"):
        ds.trace(rhs, 1, ["rate"], delays=1.0, history=[1.0], mass=np.eye(1))
    with pytest.raises(InputError, match="rhs takes 3 arguments"):
        ds.trace(lambda t, u, p: u, 1, ["rate"], delays=1.0, history=[1.0])
