"""What linear solvers leave is added up where it is asked for, and nowhere else."""

import numpy as np

from daeosens import ODE, Stepping, Terminal, adjoint, solve
from daeosens.methods.remainders import Remainders

ITERATIVE = {"ksp_type": "gmres", "ksp_rtol": 1e-10, "pc_type": "none"}


def test_nothing_is_counted_outside():
    def chain(t, u, p):
        return p[0] * (np.roll(u, 1) - 2.0 * u) - u**3

    stepping = Stepping((0.0, 1.0), "cn", dt=0.1, options=ITERATIVE)
    run = solve(ODE(chain, 40, 1), np.linspace(0.5, 1.0, 40), [3.0], stepping)
    cost = Terminal(lambda t, u, p: u @ u)
    with Remainders() as left:
        adjoint(run, cost, "vectors")
    assert 0.0 < left.total < 1e-7
    with Remainders() as outer:
        with Remainders() as inner:
            pass
        assert inner.total == 0.0
        adjoint(run, cost, "vectors")
    assert (outer.total, inner.total) == (left.total, 0.0)
