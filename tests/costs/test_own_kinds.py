"""Kinds of costs that are not this package's."""

from dataclasses import dataclass

import pytest
from forms import FORMS, P0, U0, terminal, terminal_p, terminal_u

from daeosens import check
from daeosens.costs.cost import Cost
from daeosens.costs.scalar import Callback
from daeosens.costs.scalar_derivatives import Derivatives
from daeosens.problem import AUTONOMOUS
from tests.verify.test_taylor import T, sign


@pytest.mark.parametrize("title", ["own", "cost"])
def test_own_kinds_of_costs_are_checked(title):
    """Callbacks go by their title, scalars of another class by "cost"."""

    class Hidden:
        def __init__(self, scalar):
            self.value, self.add_u, self.add_p = scalar.value, scalar.add_u, scalar.add_p

    @dataclass(frozen=True)
    class Own:
        times = ()

        def lower(self, problem, final_time):
            scalar = Callback(
                problem, "own", terminal, Derivatives(sign(terminal_u), terminal_p, AUTONOMOUS)
            )
            scalar = Hidden(scalar) if title == "cost" else scalar
            return Cost(points=((final_time, 1.0, scalar),), densities=((2.0, scalar),))

    verdicts = check(FORMS["rhs"].analytic, U0, P0, T, objective=Own())
    assert verdicts.wrong == (f"{title} gradient_u", f"{title} gradient_u 2")
