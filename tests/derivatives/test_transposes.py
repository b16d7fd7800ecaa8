"""Products with Hessians whose sweep back is impossible are refused before the sweep forward."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.derivatives import gauss_newton_product
from daeosens.derivatives.engines.choice import refuse_one_way_solver

JACOBIANS = []


def decay(rate):
    """Return equations whose Jacobians, which every sweep by steps asks for, are counted."""

    def jacobian(t, u, p):
        JACOBIANS.append(t)
        return np.array([[-rate * p[0], 2.0 * u[1]], [0.0, -1.0]])

    def rhs(t, u, p):
        return np.array([-rate * p[0] * u[0] + u[1] ** 2, -u[1]])

    return rhs, jacobian


EQUATIONS = {name: decay(rate) for name, rate in (("slow", 1.0), ("fast", 3.0))}
SLOW, FAST = (ds.ODE(rhs, 2, ["rate"], jacobian=by_u) for rhs, by_u in EQUATIONS.values())
START_KICK = ds.Event(0.0, lambda t, u, p: 1.5 * u, mode="fast", name="kick")
PROBLEMS = {
    "smooth": SLOW,
    "event": ds.ODE(
        EQUATIONS["slow"][0],
        2,
        ["rate"],
        jacobian=EQUATIONS["slow"][1],
        events=[ds.Event(0.5, lambda t, u, p: 2 * u)],
    ),
    "modes": ds.hybrid({"slow": SLOW, "fast": FAST}, "slow", [START_KICK]),
}
ONE_WAY = {"ksp_type": "gmres", "pc_type": "sor"}


def run(name, method, options):
    stepping = ds.Stepping((0.0, 1.0), method, dt=0.1, options=options)
    return ds.solve(PROBLEMS[name], [1.0, 0.5], [0.7], stepping)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk4"])
def test_no_tangent_is_swept_where_the_adjoint_is_refused(name, method):
    trajectory = run(name, method, ONE_WAY)
    assert np.isfinite(ds.tangent(trajectory, dp=[1.0], engine="vectors").final.array).all()
    JACOBIANS.clear()
    cost, misfit = ds.Terminal(lambda t, u, p: u[0] ** 2), ds.LeastSquares([1.0], [[0.1, 0.2]])
    for call in (
        lambda: ds.hessian_product(trajectory, cost, dp=[1.0], engine="vectors"),
        lambda: gauss_newton_product(trajectory, misfit, dp=[1.0], engine="vectors"),
        lambda: ds.adjoint(trajectory, cost, "vectors"),
    ):
        with pytest.raises(ds.UnsupportedError, match=r'an adjoint with pc_type "sor"\n'):
            call()
        assert len(JACOBIANS) < trajectory.n_steps  # a sweep asks for one in each step
        JACOBIANS.clear()


@pytest.mark.parametrize("method", ["cn", "rk4", "esdirk3"])
def test_nothing_is_factorised_where_the_solver_is_the_librarys(method):
    trajectory = run("smooth", method, {})
    JACOBIANS.clear()
    refuse_one_way_solver(trajectory)
    assert not JACOBIANS


def test_what_is_no_sum_of_squares_is_refused_before_the_sweeps():
    trajectory = run("smooth", "cn", {})
    JACOBIANS.clear()
    with pytest.raises(ds.UnsupportedError, match="a Terminal cost in a sum of squares"):
        gauss_newton_product(trajectory, ds.Terminal(lambda t, u, p: u[0]), dp=[1.0])
    assert not JACOBIANS
