"""How often checks look at the runs of a problem."""

from daeosens import ODE
from daeosens.derivatives.looks import Looks, is_due


def test_powers_of_eight_are_due():
    assert [count for count in range(1, 600) if is_due(count)] == [1, 8, 64, 512]


def test_uses_are_counted_by_problem():
    looks, problem, other = Looks(), ODE(lambda t, u, p: -u, 1), ODE(lambda t, u, p: u, 1)
    assert [looks.due(problem) for _ in range(9)] == [True, *[False] * 6, True, False]
    assert looks.due(other)
    assert looks.count(problem) == 10
