"""How often looks are taken at the runs of a problem."""

import warnings

import numpy as np

from daeosens import ODE, Stepping, Terminal, adjoint, solve
from daeosens.derivatives.cadence import is_due
from daeosens.errors import KinkWarning


def test_powers_of_eight_are_due():
    assert [use for use in range(1, 600) if is_due(use)] == [1, 8, 64, 512]


def told(run, cost):
    """Return whether a gradient warns of a kink or jump."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adjoint(run, cost)
    return any(issubclass(warning.category, KinkWarning) for warning in caught)


def test_uses_are_counted_by_problem():
    """A branch that changes sides is looked at by powers of two, each problem on its own."""

    def jump(t, u, p):
        return np.where(u > 0.7, -1.0, -2.0) * p[0]

    cost, stepping = Terminal(lambda t, u, p: u[0]), Stepping((0.0, 1.0), "rk4", dt=0.13)
    runs = [solve(ODE(jump, 1, ["rate"]), [1.0], [0.5], stepping) for _ in range(2)]
    assert [use for use in range(1, 10) if told(runs[0], cost)] == [1, 2, 4, 8]
    assert told(runs[1], cost)
