"""Unknowns that the tolerances of a run do not see, and what warnings say of them."""

import re
import warnings

import numpy as np
import numpy.typing as npt
import pytest

import daeosens as ds
from daeosens.errors import DiscretizationWarning

Array = npt.NDArray[np.float64]

UNIT = 2e-11  # mol/L
RATES = [1e5, 5e-3, 5e-8]


def binding(t: float, u: Array, p: Array) -> Array:
    """Return the rates of a ligand that binds to a surface, and is washed away after 300 s."""
    bound = p[0] * p[2] * u[0] - p[1] * u[1] if t < 300.0 else -p[1] * u[1]
    return np.array([-bound, bound])


def test_a_warning_names_an_atol_by_which_steps_are_right() -> None:
    problem = ds.ODE(binding, ["free", "bound"], ["on", "off", "ligand"])
    cost = ds.Terminal(lambda t, u, p: u[1])
    run = ds.solve(problem, [UNIT, 0.0], RATES, ds.Stepping((0.0, 600.0), rtol=1e-6))
    with pytest.warns(DiscretizationWarning, match="unknowns free, bound are not seen") as told:
        ds.adjoint(run, cost)
    named = re.search(r"atol=([0-9.e-]+),", str(told[0].message))
    assert named is not None
    stepping = ds.Stepping((0.0, 600.0), rtol=1e-6, atol=float(named[1]))
    with warnings.catch_warnings():  # derivatives may be told to need shorter steps than states
        warnings.simplefilter("ignore", DiscretizationWarning)
        seen = ds.adjoint(ds.solve(problem, [UNIT, 0.0], RATES, stepping), cost)
    rate = RATES[0] * RATES[2] + RATES[1]
    bound = UNIT * RATES[0] * RATES[2] / rate * (1.0 - np.exp(-rate * 300.0))
    assert seen.value == pytest.approx(bound * np.exp(-RATES[1] * 300.0), rel=1e-5)
