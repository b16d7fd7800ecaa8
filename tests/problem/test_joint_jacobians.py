"""Jacobians in several arguments: one evaluation at each point, each error for who needs it."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.errors import InputError
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.joint_jacobians import FEW_COLUMNS, KEPT, JointJacobians
from daeosens.verify import duality

REMEDIES = {1: "jacobian=", 2: "jacobian_udot=", 3: "jacobian_p="}


def residual(t, u, udot, p):
    """Nonlinear in everything."""
    mixed = np.roll(u, 1) * p[0] + np.sin(t) * p[1]
    return (1.0 + u**2) * udot + 0.1 * udot**3 + u * mixed


def counted(function):
    """Return the function, and how often it was called, in a list."""
    calls = [0]

    def call(*arguments):
        calls[0] += 1
        return function(*arguments)

    return call, calls


def point(n=3, seed=1):
    rng = np.random.default_rng(seed)
    return 0.3, rng.normal(size=n), rng.normal(size=n), rng.normal(size=2)


@pytest.mark.parametrize("n", [3, FEW_COLUMNS])
def test_they_are_those_of_each_alone_and_evaluated_once(n):
    function, calls = counted(residual)
    joint = JointJacobians(function, "residual", REMEDIES)
    places = [point(n, seed) for seed in range(9 + KEPT)]
    for at in places[:9]:  # comparisons at the uses 1 and 8 are over
        for k in REMEDIES:
            alone = AutomaticJacobian(residual, k, "residual", "")(*at)
            np.testing.assert_array_equal(joint.of(k)(*at), alone)
    calls[0] = 0
    for _ in range(2):
        for at in places[9:]:
            for k in (3, 1, 2, 1):
                joint.of(k)(*at)
    # few columns are found together, many apart; neither twice
    assert calls[0] == KEPT * (1 if n == 3 else 3)


def test_changed_arrays_are_other_points():
    joint = JointJacobians(residual, "residual", REMEDIES)
    t, u, udot, p = point()
    before = joint.of(1)(t, u, udot, p).copy()
    for x in (u, udot, p):
        np.multiply(x, 1.5, out=x)
        now = joint.of(1)(t, u, udot, p)
        assert not np.array_equal(now, before)
        alone = AutomaticJacobian(residual, 1, "residual", "")(t, u, udot, p)
        np.testing.assert_array_equal(now, alone)
        before = now.copy()


@pytest.mark.parametrize("method", ["beuler", "cn", "midpoint"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_what_a_callback_reads_beside_its_arguments_may_change_between_runs(steps, method):
    """At rest all points of both runs are the same, and their Jacobians are not."""
    beside = {"rate": 1.0}
    model = ds.DAE(lambda t, u, udot, p: udot + beside["rate"] * p * u, 1, 1)
    cost = ds.Terminal(lambda t, u, p: u[0])
    for rate in (1.0, 3.0):
        beside["rate"] = rate
        run = ds.solve(model, [0.0], [1.0], ds.Stepping((0.0, 1.0), method, dt=1.0 / steps))
        gradient, product = ds.adjoint(run, cost), ds.hessian_product(run, cost, dp=[1.0])
        z = rate / steps
        factor = 1 / (1 + z) if method == "beuler" else (1 - z / 2) / (1 + z / 2)
        slope = -rate / steps / (1 + z if method == "beuler" else 1 + z / 2) ** 2
        assert gradient.u0[0] == pytest.approx(factor**steps, rel=1e-13, abs=1e-14)
        expected = steps * factor ** (steps - 1) * slope
        assert product.u0[0] == pytest.approx(expected, rel=1e-12)


def test_what_is_not_asked_for_is_not_evaluated():
    """A run needs no derivatives by parameters, which may have none, or be many."""

    def rounded(t, u, udot, p):
        return udot + float(p[0]) * u

    joint = JointJacobians(rounded, "residual", REMEDIES)
    at = point()
    np.testing.assert_array_equal(joint.of(1)(*at), at[3][0] * np.eye(3))
    np.testing.assert_array_equal(joint.of(2)(*at), np.eye(3))
    for _ in range(2):
        with pytest.raises(InputError, match=r"float(.|\n)*jacobian_p="):
            joint.of(3)(*at)
    later = point(seed=2)
    np.testing.assert_array_equal(joint.of(1)(*later), later[3][0] * np.eye(3))
    with pytest.raises(InputError, match="jacobian_p="):
        joint.of(3)(*later)


def test_points_without_values_do_not_end_it():
    function, calls = counted(residual)

    def picky(t, u, udot, p):
        if u[0] > 1.0:
            raise ValueError("too far")
        return function(t, u, udot, p)

    joint = JointJacobians(picky, "residual", REMEDIES)
    near, far, at = point(seed=3), point(), point(seed=4)
    near[1][0], far[1][0], at[1][0] = 0.5, 2.0, 0.4
    for k in REMEDIES:
        joint.of(k)(*near)
        with pytest.raises(Exception, match="too far"):
            joint.of(k)(*far)
    calls[0] = 0
    for k in REMEDIES:
        joint.of(k)(*at)
    assert calls[0] == 1


def test_where_one_is_infinite_others_are_those_of_each_alone():
    """A bubble has a pressure of its radius to a negative power, and F_udot for any radius."""

    def bubble(t, u, udot, p):
        with np.errstate(all="ignore"):
            pressure = p[0] / u[0] ** (3 * p[1])
        return np.array([udot[0] - u[1], u[0] * udot[1] + 1.5 * u[1] ** 2 - pressure])

    function, calls = counted(bubble)
    joint = JointJacobians(function, "residual", REMEDIES)
    p = np.array([1.0, 1.4])
    near, at_zero = (0.0, np.array([1.0, 0.1]), np.zeros(2), p), (0.0, *np.zeros((2, 2)), p)
    for k in REMEDIES:
        joint.of(k)(*near)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(joint.of(2)(*at_zero), [[1.0, 0.0], [0.0, 0.0]])
        assert not np.isfinite(joint.of(1)(*at_zero)).all()
    # such a point does not end that they are found together
    later = (0.0, np.array([1.1, 0.1]), np.zeros(2), p)
    calls[0] = 0
    for k in REMEDIES:
        joint.of(k)(*later)
    assert calls[0] == 1

    model = ds.DAE(bubble, 2, 2)
    run = ds.solve(model, [1.0, 0.0], p, ds.Stepping((0.0, 1.0), "cn", dt=0.01))
    assert duality(run, ds.Terminal(lambda t, u, p: u[0] * u[1])) < 1e-12


@pytest.mark.parametrize("method", ["cn", "theta:0.7", "beuler", "midpoint"])
def test_derivatives_of_runs_evaluate_the_residual_few_times_a_step(method):
    """Gradient and product are those of callbacks, of a residual that is nonlinear in all."""
    function, calls = counted(residual)

    def by_u(t, u, udot, p):
        return AutomaticJacobian(residual, 1, "residual", "")(t, u, udot, p)

    def by_udot(t, u, udot, p):
        return AutomaticJacobian(residual, 2, "residual", "")(t, u, udot, p)

    def by_p(t, u, udot, p):
        return AutomaticJacobian(residual, 3, "residual", "")(t, u, udot, p)

    supplied = ds.DAE(residual, 3, 2, jacobian=by_u, jacobian_udot=by_udot, jacobian_p=by_p)
    joint = ds.DAE(function, 3, 2)
    cost = ds.Terminal(lambda t, u, p: u[0] + u[1] * u[2])
    u0, p, along = [0.4, -0.3, 0.8], [0.7, 0.2], [1.0, -0.5]
    results = []
    for model in (supplied, joint):
        run = ds.solve(model, u0, p, ds.Stepping((0.0, 1.0), method, dt=0.02))
        ds.hessian_product(run, cost, dp=along)  # with its comparisons, and looks
        calls[0] = 0
        gradient = ds.adjoint(run, cost)
        product = ds.hessian_product(run, cost, [0.3, 0.1, -0.2], along)
        results.append([*gradient.u0, *gradient.p, *product.u0, *product.p])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-12)
    # both ends, or one of them: in the adjoint, the tangent, and twice in the product
    ends = 2 if method in ("cn", "theta:0.7") else 1
    assert calls[0] <= 50 * ends * 4 + 10
    assert duality(run, cost) < 1e-12
