"""What is no functional is named by all that take one, before anything runs."""

import pytest

import daeosens as ds

COST = ds.Terminal(lambda t, u, p: u[0])


@pytest.mark.parametrize(
    "call",
    [
        ds.minimize,
        ds.taylor,
        ds.optimize.scipy_functions,
        lambda cost: ds.inverse.covariance(cost, [1.0]),
        lambda cost: ds.inverse.profile(cost, None),
        lambda cost: ds.inverse.laplace(cost, [1.0], None),
        lambda cost: ds.inverse.Regularized(cost, None),
    ],
    ids=["minimize", "taylor", "scipy", "covariance", "profile", "laplace", "Regularized"],
)
def test_a_cost_is_no_functional(call):
    message = r"functional is Terminal\n  expected: Reduced\(problem, objective"
    with pytest.raises(ds.InputError, match=message):
        call(COST)
