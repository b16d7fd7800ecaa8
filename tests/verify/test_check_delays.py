"""What ``check`` says of delay equations."""

from dataclasses import replace

import numpy as np
import pytest

from daeosens import DDE, check, trace

PARAMETERS = ["growth", "loss", "delay"]


def rhs(t, u, z, p):
    return np.array([p[0] * u[0] * np.sin(t) - p[1] * u[1] * z[0, 1], z[1, 0] ** 2 - p[2] * u[1]])


def history(t, p):
    return np.array([np.cos(t) * p[1], p[2] + 0.0 * t])


@pytest.mark.parametrize("make", [DDE, trace])
def test_all_derivatives_of_a_delay_equation_are_compared(make):
    delays = ["delay", lambda p: 2.0 * p[0]]
    problem = make(rhs, 2, PARAMETERS, delays=delays, history=history)
    found = check(problem, [0.5, 0.3], [0.2, 1.0, 2.0], t=0.3)
    assert [row.name for row in found.rows] == [
        "jacobian",
        "jacobian of delayed states",
        "jacobian_p",
        "rhs_t",
        "delays p",
        "history t",
        "history p",
    ]
    assert all(row.verdict == "right" and row.error < 1e-8 for row in found.rows)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        (
            {"rate": lambda y, p: np.array([p[0] * y[3] - y[1], y[0] * y[4] * p[1] + y[5] ** 3])},
            {"jacobian", "jacobian of delayed states", "jacobian_p", "rhs_t"},
        ),
        ({"lag": lambda p: np.array([p[2], p[0] * p[1]])}, {"delays p"}),
        ({"history": lambda t, p: np.array([t, p[0]])}, {"history t", "history p"}),
    ],
)
def test_each_wrong_derivative_is_named(changes, wrong):
    delays = ["delay", lambda p: 2.0 * p[0]]
    problem = DDE(rhs, 2, PARAMETERS, delays=delays, history=history)
    other = replace(problem, delays=replace(problem.delays, **changes))
    assert set(check(other, [0.5, 0.3], [0.2, 1.0, 2.0], t=0.3).wrong) == wrong


def test_a_delay_equation_without_parameters_has_no_rows_for_them():
    problem = DDE(lambda t, u, z, p: -z[0], 1, delays=1.0, history=[1.0])
    names = [row.name for row in check(problem, [1.0], None).rows]
    assert names == ["jacobian", "jacobian of delayed states", "rhs_t", "history t"]
