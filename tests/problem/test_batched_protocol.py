"""Evaluations at many points: the same as at single points, and faults are named."""

import batched
import forms
import numpy as np
import pytest
from scipy import sparse

import daeosens as ds
from daeosens.problem import Products
from daeosens.problem.batched.hessians import TEMPORARY
from daeosens.problem.batched.protocol import make_batch

K, M, D = 5, 2, 4


def PRODUCTS(t, u, p, w, du, dp):  # noqa: N802 (stands for what ODE makes of its callbacks)
    return forms.rhs_hessian(t, u, p, w, du, dp)


@pytest.fixture
def points(rng):
    return rng.uniform(0.0, 1.0, K), forms.U0 + 0.3 * rng.normal(size=(K, 3))


def expected(t, u, w):
    values = list(zip(t, u, strict=True))
    return (
        np.array([forms.rhs(*point, forms.P0) for point in values]),
        np.array([forms.rhs_u(*point, forms.P0) for point in values]),
        sum(w[:, k] @ forms.rhs_p(*point, forms.P0) for k, point in enumerate(values)),
    )


def evaluations(batch, t, u, w):
    p = forms.P0
    return batch.rhs(t, u, p), batch.jacobian(t, u, p), batch.pull_parameters(t, u, p, w)


def one_by_one():
    loops = {"automatic": {}, "matrices": {"jacobian": forms.rhs_u, "jacobian_p": forms.rhs_p}}
    loops["second derivatives"] = forms.ANALYTIC
    loops["products"] = {
        "jacobian": lambda t, u, p: sparse.csr_array(forms.rhs_u(t, u, p)),
        "jacobian_p": Products(
            lambda t, u, p, v: forms.rhs_p(t, u, p) @ v,
            lambda t, u, p, w: forms.rhs_p(t, u, p).T @ w,
        ),
    }
    return {name: ds.ODE(forms.rhs, 3, 3, **entry).batch for name, entry in loops.items()}


BATCHES = {f"one by one, {name}": batch for name, batch in one_by_one().items()} | {
    f"at once, {name}": batched.batched_problem("rhs", name).batch for name in batched.GIVEN
}


@pytest.mark.parametrize("name", BATCHES)
def test_many_points_give_what_each_of_them_gives(name, points, rng):
    w = rng.normal(size=(M, K, 3))
    for ours, reference in zip(
        evaluations(BATCHES[name], *points, w), expected(*points, w), strict=True
    ):
        assert ours.shape == reference.shape
        assert abs(ours - reference).max() < 1e-14 * abs(reference).max()
    assert BATCHES[name].at_once == name.startswith("at once")


@pytest.mark.parametrize("name", BATCHES)
def test_products_along_many_directions_are_those_at_each_point(name, points, rng):
    t, u = points
    w, du, dp = rng.normal(size=(K, 3)), rng.normal(size=(D, K, 3)), rng.normal(size=(D, 3))
    rates = BATCHES[name].push_parameters(t, u, forms.P0, dp)
    by_u, by_p = BATCHES[name].hessian_product(t, u, forms.P0, w, du, dp)
    assert (rates.shape, by_u.shape, by_p.shape) == ((D, K, 3), (D, K, 3), (D, 3))
    sums = np.zeros((D, 3))
    for k, d in np.ndindex(K, D):
        push = forms.rhs_p(t[k], u[k], forms.P0) @ dp[d]
        assert abs(rates[d, k] - push).max() < 1e-14
        expected_u, expected_p = forms.rhs_hessian(t[k], u[k], forms.P0, w[k], du[d, k], dp[d])
        assert abs(by_u[d, k] - expected_u).max() < 1e-13
        sums[d] += expected_p
    assert abs(by_p - sums).max() < 1e-13 * abs(sums).max()


def test_batched_callbacks_are_called_once_for_all_points(points, rng):
    calls = []

    def counted(name):
        def call(t, u, p, *more):
            calls.append((name, np.ndim(t)))
            return getattr(batched, name)(t, u, p, *more)

        return call

    by_p = Products(counted("apply_p"), counted("pull_p"))
    batch = make_batch(counted("rhs"), counted("rhs_u"), by_p, None, PRODUCTS, (3, 3), batched=True)
    w = rng.normal(size=(M, K, 3))
    evaluations(batch, *points, w)  # compared with single points here
    calls.clear()
    evaluations(batch, *points, w)
    assert calls == [("rhs", 1), ("rhs_u", 1), ("pull_p", 1)]


def test_products_with_the_hessian_are_compared_with_differences_once(points, rng):
    calls = []

    def counted(name):
        def call(t, u, p):
            calls.append(name)
            return getattr(batched, name)(t, u, p)

        return call

    derivatives = counted("rhs_u"), counted("rhs_p")
    batch = make_batch(batched.rhs, *derivatives, None, PRODUCTS, (3, 3), batched=True)
    t, u = points
    along = rng.normal(size=(K, 3)), rng.normal(size=(1, K, 3)), rng.normal(size=(1, 3))
    first = batch.hessian_product(t, u, forms.P0, *along)
    assert calls.count("rhs_p") > 2
    calls.clear()
    again = batch.hessian_product(t, u, forms.P0, *along)
    assert calls == ["rhs_u", "rhs_p"]
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])


def test_jacobians_in_the_parameters_are_evaluated_for_as_many_points_as_memory_allows(rng):
    seen = []

    def by_p(t, u, p):
        seen.append(len(np.atleast_1d(t)) if np.ndim(t) else 0)
        return batched.rhs_p(t, u, p)

    at_once = TEMPORARY // (3 * 3 * 8)
    count = 2 * at_once + 5
    t, u = rng.uniform(size=count), forms.U0 + 0.3 * rng.normal(size=(count, 3))

    batch = make_batch(batched.rhs, batched.rhs_u, by_p, None, PRODUCTS, (3, 3), batched=True)
    w = rng.normal(size=(1, count, 3))
    batch.pull_parameters(t[:K], u[:K], forms.P0, w[:, :K])  # is compared with single points
    seen.clear()
    whole = batch.pull_parameters(t, u, forms.P0, w)
    assert seen == [at_once, at_once, 5]
    by_hand = np.einsum("ki,kij->j", w[0], batched.rhs_p(t, u, forms.P0))
    np.testing.assert_allclose(whole[0], by_hand, rtol=1e-10, atol=1e-8)


def test_parameters_that_are_never_read_cost_nothing(points):
    calls = []

    def rhs(t, u, _p):
        calls.append(t)
        return -u

    for many in (False, True):
        batch = make_batch(rhs, None, None, None, PRODUCTS, (3, 2), batched=many)
        assert (batch.pull_parameters(*points, np.ones(2), np.ones((M, K, 3))) == 0.0).all()
    assert not calls


def test_there_is_no_batch_of_a_jacobian_that_is_given_by_products():
    by_u = Products(lambda t, u, p, v: -v, lambda t, u, p, w: -w)
    assert make_batch(lambda t, u, p: -u, by_u, None, None, PRODUCTS, (3, 0), batched=False) is None


# ---- faults --------------------------------------------------------------------------------------

MATRIX = np.array([[-1.0, 0.5, 0.0], [0.0, -2.0, 0.3], [0.1, 0.0, -1.0]])


def wrong(**value):
    callbacks = {"rhs": batched.rhs, "jacobian": batched.rhs_u, "jacobian_p": batched.rhs_p}
    callbacks |= value
    return make_batch(*callbacks.values(), None, PRODUCTS, (3, 3), batched=True)


def test_points_that_are_mixed_up_are_named_with_both_values():
    """A [n, n] times u [K, n] has the right shape for K = n."""
    batch = wrong(rhs=lambda t, u, p: MATRIX @ u)
    t, u = np.zeros(3), np.arange(9.0).reshape(3, 3)
    match = (
        r"callback 'rhs' gives 0.5 in entry \[2\] of point 0 of 3, and -2 at single points\n"
        r"  expected: the same, as batched=True promises\n  try: u\[..., i\]"
    )
    with pytest.raises(ds.InputError, match=match):
        batch.rhs(t, u, forms.P0)


def test_a_wrong_batched_jacobian_is_named(points):
    def transposed(t, u, p):
        values = batched.rhs_u(t, u, p)
        return values.swapaxes(-1, -2) if values.ndim == 3 else values

    with pytest.raises(ds.InputError, match=r"callback 'jacobian' gives .* in entry \[\d, \d\] of"):
        wrong(jacobian=transposed).jacobian(*points, forms.P0)


def test_a_sum_of_products_that_is_none_is_named(points):
    def last_only(t, u, p, w):
        return batched.pull_p(t[-1:], u[-1:], p, w[..., -1:, :])

    batch = wrong(jacobian_p=Products(batched.apply_p, last_only))
    match = r"'jacobian_p.apply_transpose' gives .* of a sum over 3 points, and"
    with pytest.raises(ds.InputError, match=match):
        batch.pull_parameters(*points, forms.P0, np.ones((M, K, 3)))


def test_a_wrong_batched_matrix_of_the_parameters_is_named(points):
    def by_p(t, u, p):
        return batched.rhs_p(t, u, p) if np.ndim(t) == 0 else 2.0 * batched.rhs_p(t, u, p)

    with pytest.raises(
        ds.InputError, match=r"callback 'jacobian_p' gives .* of a sum over 3 points"
    ):
        wrong(jacobian_p=by_p).pull_parameters(*points, forms.P0, np.ones((M, K, 3)))


def test_a_wrong_shape_is_named_with_the_right_one(points):
    batch = wrong(rhs=lambda t, u, p: batched.rhs(t, u, p).T)
    with pytest.raises(ds.InputError, match=r"'rhs' returned shape .*\n  expected: shape \(5, 3\)"):
        batch.rhs(points[0][:5], np.ones((5, 3)), forms.P0)


def test_one_point_alone_proves_nothing(points):
    """With K = 1 mixed-up points cannot be told apart, so the next call is compared as well."""
    batch = wrong(rhs=lambda t, u, p: u - u.mean(axis=0) if u.ndim == 2 and len(u) > 1 else u)
    t, u = points
    batch.rhs(t[:1], u[:1], forms.P0)
    with pytest.raises(ds.InputError, match="callback 'rhs' gives"):
        batch.rhs(t, u, forms.P0)


def test_values_that_are_not_finite_are_named(points):
    batch = wrong(rhs=lambda t, u, p: u / 0.0)
    match = r"callback 'rhs' returned -?inf in entry \[0, 0\]"
    with pytest.raises(ds.SolveError, match=match), np.errstate(divide="ignore"):
        batch.rhs(*points, forms.P0)


def test_batched_is_for_callbacks_that_return_arrays():
    from petsc4py import PETSc  # noqa: PLC0415

    template = PETSc.Vec().createSeq(2, comm=PETSc.COMM_SELF)
    with pytest.raises(ds.InputError, match="batched = True for PETSc-style or C callbacks"):
        ds.ODE(lambda t, u, p, out: u.copy(out), state=template, batched=True)


def test_a_wrong_batched_product_is_named(points, rng):
    def once_too_often(t, u, p, w, du, dp):
        by_u, by_p = batched.hessian(t, u, p, w, du, dp)
        return by_u, (by_p if u.ndim == 1 else 2.0 * by_p)

    values = {"jacobian": batched.rhs_u, "jacobian_p": batched.rhs_p}
    batch = ds.ODE(batched.rhs, 3, 3, batched=True, hessian_product=once_too_often, **values).batch
    du = rng.normal(size=(1, K, 3))
    match = r"callback 'hessian_product' gives .* of a sum over 3 points, and"
    with pytest.raises(ds.InputError, match=match):
        batch.hessian_product(*points, forms.P0, du[0], du, np.ones((1, 3)))


def test_a_wrong_batched_action_is_named(points):
    by_p = Products(lambda t, u, p, v: (1.0 + np.ndim(t)) * batched.apply_p(t, u, p, v), None)
    batch = wrong(jacobian_p=Products(by_p.apply, batched.pull_p))
    with pytest.raises(
        ds.InputError, match=r"callback 'jacobian_p.apply' gives .* of 3 points, and"
    ):
        batch.push_parameters(*points, forms.P0, np.ones((1, 3)))


def test_jacobians_that_take_no_complex_numbers_are_not_stepped(points, rng):
    """``np.abs`` loses the derivative in silence: then each point is evaluated on its own."""

    def rhs_u(t, u, p):
        return batched.rhs_u(t, np.abs(u), p)

    problem = ds.ODE(batched.rhs, 3, 3, jacobian=rhs_u, jacobian_p=batched.rhs_p, batched=True)
    t, u = points
    w, du, dp = rng.normal(size=(K, 3)), rng.normal(size=(D, K, 3)), rng.normal(size=(D, 3))
    u = np.abs(u)
    by_u, by_p = problem.batch.hessian_product(t, u, forms.P0, w, du, dp)
    reference = BATCHES["at once, matrices"].hessian_product(t, u, forms.P0, w, du, dp)
    assert abs(by_u - reference[0]).max() < 1e-13
    assert abs(by_p - reference[1]).max() < 1e-12


def reusing(callback):
    """Fill the same array in every call, as careful programmers do."""
    kept = {}

    def fill(*arguments):
        values = callback(*arguments)
        values = values if isinstance(values, tuple) else (values,)
        for k, value in enumerate(values):
            kept.setdefault(k, np.empty_like(value))[...] = value
        return kept[0] if len(values) == 1 else tuple(kept[k] for k in range(len(values)))

    return fill


@pytest.mark.parametrize("method", ["rk5dp", "cn"])
def test_callbacks_may_fill_the_same_array_every_time(method):
    fresh = {
        "jacobian": forms.rhs_u,
        "jacobian_p": forms.rhs_p,
        "hessian_product": forms.rhs_hessian,
    }
    stepping, end = ds.Stepping((0.0, 0.5), method, dt=0.05), ds.Terminal(lambda t, u, p: u @ u)
    results = []
    for wrap in (lambda callback: callback, reusing):
        wrapped = {name: wrap(callback) for name, callback in fresh.items()}
        problem = ds.ODE(wrap(forms.rhs), 3, forms.NAMES, **wrapped)
        run = ds.solve(problem, forms.U0, forms.P0, stepping)
        gradient = ds.adjoint(run, end, engine="arrays")
        product = ds.hessian_product(run, end, np.ones(3), np.ones(3), engine="arrays")
        tangents = ds.sensitivities(run)
        results.append(np.concatenate([gradient.u0, gradient.p, product.u0, product.p]))
        results[-1] = np.append(results[-1], tangents.p.ravel())
    np.testing.assert_array_equal(*results)


def test_both_derivatives_at_a_point_come_from_one_evaluation(points, rng):
    t, u = points
    calls = []

    def rhs(time, state, p):
        calls.append(type(state))
        return forms.rhs(time, state, p)

    n, m = 3, forms.P0.size
    batch = make_batch(rhs, None, None, None, PRODUCTS, (n, m), batched=False)
    batch.linearize(t, u, forms.P0, M)  # with the comparisons of first uses
    calls.clear()
    linear = batch.linearize(t, u, forms.P0, M)
    assert calls.count(np.ndarray) <= 3  # of values and slopes with differences, once in a while
    assert len(calls) - calls.count(np.ndarray) == K
    w = rng.normal(size=(M, K, n))
    linear.weights[...] = w.swapaxes(0, 1)
    mu = np.ones((M, m))
    linear.collect(mu, True)
    assert np.allclose(mu, expected(t, u, w)[2], rtol=1e-13, atol=1e-13)
