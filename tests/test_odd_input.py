"""Numbers that no float holds, lists of uneven length, counts beyond PETSc's: always our errors."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.petsc.vectors import MOST

HUGE = 10**400
UNEVEN = [[1.0], [1.0, 2.0]]
TOO_LARGE = "int too large to convert to float"


def decay():
    """Exponential decay."""
    return ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])


def last():
    """The last state."""
    return ds.Terminal(lambda t, u, p: u[0])


STEPS = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)


def run():
    """A run of ten steps."""
    return ds.solve(decay(), [1.0], [0.5], STEPS)


def reduced(**bounds):
    """The last state over the rate."""
    rate = ds.Parameter(0.5, **bounds)
    return ds.Reduced(decay(), last(), STEPS, ds.Parameters({"rate": rate}, initial_state=[1.0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ds.Stepping((0.0, HUGE), dt=0.1), rf"t_span = \(0\.0, {HUGE}\)"),
        (lambda: ds.Stepping((0.0, 1.0), dt=HUGE), f"dt = {HUGE}"),
        (lambda: ds.Stepping((0.0, 1.0), rtol=HUGE), f"rtol = {HUGE}"),
        (lambda: ds.solve(decay(), [HUGE], [0.5], STEPS), f"u0 is not .*{TOO_LARGE}"),
        (lambda: ds.solve(decay(), [1.0], HUGE, STEPS), f"p is not .*{TOO_LARGE}"),
        (lambda: ds.solve(decay(), [1.0], [0.5], STEPS, t_eval=[HUGE]), f"t_eval.*{TOO_LARGE}"),
        (lambda: ds.LeastSquares([0.5], [[1.0]], sigma=HUGE), f"sigma is not .*{TOO_LARGE}"),
        (lambda: ds.LeastSquares([0.5], [[HUGE]], sigma=1.0), f"data is not .*{TOO_LARGE}"),
        (lambda: ds.ODE(lambda t, u, p: u, size=HUGE), f"size = {HUGE}"),
        (lambda: ds.ODE(lambda t, u, p: u, size=1, parameters=HUGE), f"parameters = {HUGE}"),
        (lambda: ds.Event(HUGE), f"when = {HUGE}"),
        (lambda: run().at(HUGE), f"t = {HUGE}\n"),
        (lambda: run().at(np.inf), r"t = inf\n"),
        (lambda: ds.tangent(run(), [HUGE], [1.0]), f"du0 is not .*{TOO_LARGE}"),
        (lambda: ds.tangent(run(), UNEVEN, [1.0]), "du0 is not an array of real numbers"),
        (lambda: ds.tangent(run(), [1.0], UNEVEN), "dp is not an array of real numbers"),
        (lambda: ds.hessian_product(run(), last(), [1.0], [HUGE]), f"dp is not .*{TOO_LARGE}"),
        (lambda: reduced().gradient([HUGE]), f"x is not .*{TOO_LARGE}"),
        (lambda: reduced(upper=HUGE), f'"rate": upper = {HUGE} is larger than any float'),
        (lambda: reduced(lower=-HUGE), f'"rate": lower = -{HUGE} is larger than any float'),
        (lambda: ds.minimize(reduced(), x0=[HUGE]), f"x0 is not .*{TOO_LARGE}"),
        (lambda: ds.taylor(reduced(), [HUGE]), f"x is not .*{TOO_LARGE}"),
    ],
)
def test_numbers_that_no_float_holds_and_uneven_lists_are_named(call, message):
    with pytest.raises(ds.InputError, match=message):
        call()


def test_counts_end_where_petsc_ends():
    for too_many in (MOST + 1, 2**70):
        with pytest.raises(
            ds.InputError, match=f"max_steps = {too_many}; expected: at most {MOST}"
        ):
            ds.Stepping((0.0, 1.0), dt=0.1, max_steps=too_many)
        with pytest.raises(ds.InputError, match=f"size = {too_many}\n.*at most {MOST} unknowns"):
            ds.ODE(lambda t, u, p: u, size=too_many)
        with pytest.raises(ds.InputError, match=f"parameters = {too_many}\n.*at most {MOST}"):
            ds.ODE(lambda t, u, p: u, size=1, parameters=too_many)
    most = ds.Stepping((0.0, 1.0), "rk4", dt=0.1, max_steps=MOST)
    assert ds.solve(decay(), [1.0], [0.5], most).n_steps == 10


def test_longdouble_is_taken_as_float():
    """Values, states, parameters and costs in extended precision give the numbers of floats."""
    unit = np.longdouble(1)
    extended = ds.ODE(lambda t, u, p: -p[0] * unit * u, size=1, parameters=["rate"])
    cost = ds.Terminal(lambda t, u, p: unit * u[0])
    start = np.array([1.0], dtype=np.longdouble)
    for method in ("rk4", "cn"):
        steps = ds.Stepping((0.0, 1.0), method, dt=0.1)
        ours = ds.adjoint(ds.solve(extended, start, start / 2, steps), cost)
        reference = ds.adjoint(ds.solve(decay(), [1.0], [0.5], steps), last())
        np.testing.assert_allclose(ours.p, reference.p, rtol=1e-14)
