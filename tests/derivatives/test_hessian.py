"""Second-order sweeps: several directions, Gauss-Newton, sources of second derivatives, refusals.

That each cell is right is the subject of ``test_support.py``, several ranks of
``test_distributed.py``.
"""

from dataclasses import replace

import distributed
import forms
import numpy as np
import pytest
from petsc4py import PETSc

import daeosens
import daeosens as ds
from daeosens.derivatives import gauss_newton_product
from daeosens.derivatives.hessian import Memory, hessian_sweep
from daeosens.derivatives.residual_jacobian import residual
from daeosens.derivatives.sweeps import second_order
from daeosens.methods import find_method

RNG = np.random.default_rng(11)
DIRECTIONS = [tuple(pair) for pair in RNG.normal(size=(5, 2, 3))]


def run(form, method, objective=forms.ANALYTIC_COST):
    problem = forms.FORMS[form].analytic
    return ds.solve(problem, forms.U0, forms.P0, forms.make_stepping(method), objective.times)


def flat(product):
    return np.concatenate([product.u0, product.p])


@pytest.mark.parametrize(
    ("form", "method"), [("rhs", "rk5dp"), ("rhs", "rk8vr"), ("F", "cn"), ("M(p)", "midpoint")]
)
@pytest.mark.parametrize("engine", ["auto", "vectors"])
def test_several_directions_are_the_directions_one_by_one(form, method, engine):
    trajectory = run(form, method)
    together = hessian_sweep(trajectory, forms.ANALYTIC_COST, DIRECTIONS, engine=engine)
    for product, (du0, dp) in zip(together, DIRECTIONS, strict=True):
        alone = ds.hessian_product(trajectory, forms.ANALYTIC_COST, du0, dp, engine)
        np.testing.assert_allclose(flat(product), flat(alone), rtol=1e-13)


@pytest.mark.parametrize(("form", "method"), [("rhs", "rk4"), ("F", "cn"), ("M singular", "cn")])
def test_the_sweep_gives_the_gradient_as_well(form, method):
    trajectory = run(form, method)
    product = ds.hessian_product(trajectory, forms.ANALYTIC_COST, *DIRECTIONS[0])
    gradient = ds.adjoint(trajectory, forms.ANALYTIC_COST)
    assert product.gradient.value == gradient.value
    np.testing.assert_allclose(product.gradient.u0, gradient.u0, rtol=1e-13)
    np.testing.assert_allclose(product.gradient.p, gradient.p, rtol=1e-13)


def test_products_along_the_state_and_along_a_parameter_are_symmetric():
    trajectory = run("rhs", "rk4")
    along_u = ds.hessian_product(trajectory, forms.ANALYTIC_COST, du0=[1.0, 0.0, 0.0])
    along_p = ds.hessian_product(trajectory, forms.ANALYTIC_COST, dp=[0.0, 1.0, 0.0])
    assert along_u.p[1] == pytest.approx(along_p.u0[0], rel=1e-12)


def test_direction_that_was_forgotten_is_an_error():
    with pytest.raises(ds.InputError, match="neither du0 nor dp was given"):
        ds.hessian_product(run("rhs", "rk4"), forms.ANALYTIC_COST)


def test_a_problem_without_parameters():
    """The closed form of u' = -u^2: u(T) = u0 / (1 + u0 T), d2u/du0^2 = -2 T / (1 + u0 T)^3."""
    problem = ds.ODE(lambda t, u, p: -(u**2), 1)
    trajectory = ds.solve(problem, [0.8], None, ds.Stepping((0.0, 1.0), "rk8vr", dt=0.05))
    product = ds.hessian_product(trajectory, ds.Terminal(lambda t, u, p: u[0]), [1.0])
    assert product.u0[0] == pytest.approx(-2 / 1.8**3, rel=1e-11)
    assert product.p.size == 0


@pytest.mark.parametrize(("form", "method"), [("rhs", "rk5dp"), ("F", "cn")])
def test_gauss_newton_is_the_product_of_the_jacobian(form, method):
    objective = forms.COSTS["observations"].objective + 2.5 * forms.COSTS["prior"].objective
    trajectory = run(form, method, objective)
    du0, dp = DIRECTIONS[0]
    eps = 1e-4

    def moved(factor):
        problem, stepping = trajectory.problem, trajectory.stepping
        u0, p = forms.U0 + factor * eps * du0, forms.P0 + factor * eps * dp
        again = ds.solve(problem, u0, p, stepping, objective.times)
        return residual(again, objective).getArray()

    change = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * eps)
    product = gauss_newton_product(trajectory, objective, du0, dp)
    slope = product.u0 @ du0 + product.p @ dp
    assert slope == pytest.approx(change @ change, rel=1e-9)
    assert product.gradient is None
    value = residual(trajectory, objective).getArray()
    assert 0.5 * value @ value == pytest.approx(
        daeosens.derivatives.evaluate(trajectory, objective)
    )


def test_gauss_newton_is_exact_where_nothing_is_left_to_fit():
    """With zero residuals the neglected term vanishes."""
    start = run("rhs", "rk4", ds.LeastSquares(forms.OBSERVATION_TIMES, forms.DATA))
    data = [forms.observe(t, start.at(t).getArray(), forms.P0) for t in forms.OBSERVATION_TIMES]
    objective = ds.LeastSquares(forms.OBSERVATION_TIMES, data, forms.SIGMA, forms.observe)
    trajectory = run("rhs", "rk4", objective)
    exact = ds.hessian_product(trajectory, objective, *DIRECTIONS[1])
    approximate = gauss_newton_product(trajectory, objective, *DIRECTIONS[1])
    np.testing.assert_allclose(flat(exact), flat(approximate), rtol=1e-12)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (ds.Terminal(lambda t, u, p: u[0]), "a Terminal cost in a sum of squares"),
        (ds.Running(lambda t, u, p: u[0]), "a Running cost in a sum of squares"),
        (-1.0 * ds.Prior([0.0] * 3), "a negative weight in a sum of squares"),
    ],
)
def test_gauss_newton_refuses_what_is_no_sum_of_squares(objective, message):
    with pytest.raises(ds.UnsupportedError, match=f"{message}(?s:.*)exact Hessian"):
        gauss_newton_product(run("rhs", "rk4", objective), objective, *DIRECTIONS[0])


def test_wrong_directions_are_named():
    trajectory = run("rhs", "rk4")
    with pytest.raises(ds.InputError, match=r"du0 has shape \(2,\)"):
        ds.hessian_product(trajectory, forms.ANALYTIC_COST, du0=[1.0, 2.0])
    with pytest.raises(ds.InputError, match=r"dp has shape \(1,\)"):
        ds.hessian_product(trajectory, forms.ANALYTIC_COST, dp=[1.0])
    with pytest.raises(ds.InputError, match="no direction given"):
        hessian_sweep(trajectory, forms.ANALYTIC_COST, [])
    with pytest.raises(
        ds.InputError, match=r"directions is int\n  expected: at least one \(du0, dp\)"
    ):
        hessian_sweep(trajectory, forms.ANALYTIC_COST, 3)


# ---- what is kept -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "adaptive"),
    [run[1:] for run in forms.RUNS if run[0] == "rhs" and run[1] in forms.EXPLICIT],
)
def test_sweeps_over_kept_stages_are_those_over_recomputed_ones(method, adaptive):
    problem, objective = forms.FORMS["rhs"].analytic, forms.ANALYTIC_COST
    stepping = forms.make_stepping(method, adaptive=adaptive)
    arguments = (problem, forms.U0, forms.P0, stepping, objective.times)
    kept, plain = ds.solve(*arguments, checkpoint="stages"), ds.solve(*arguments)
    # the one stage of forward Euler is the state
    assert len(kept.stages) == (kept.n_steps if find_method(method).n_stages > 1 else 0)
    assert not plain.stages
    ours, reference = (
        ds.adjoint(kept, objective, "vectors"),
        ds.adjoint(plain, objective, "vectors"),
    )
    np.testing.assert_allclose(ours.u0, reference.u0, rtol=1e-14)
    np.testing.assert_allclose(ours.p, reference.p, rtol=1e-14)
    product = ds.hessian_product(kept, objective, *DIRECTIONS[0], "vectors")
    expected = ds.hessian_product(plain, objective, *DIRECTIONS[0], "vectors")
    np.testing.assert_allclose(flat(product), flat(expected), rtol=1e-13)


def test_stages_of_some_steps_are_as_good_as_none():
    arguments = (forms.FORMS["rhs"].analytic, forms.U0, forms.P0, forms.make_stepping("rk4"))
    every, none = ds.solve(*arguments, checkpoint="stages"), ds.solve(*arguments)
    some = replace(every, kept={n: every.stages[n] for n in range(5)})
    assert len(some.stages) == 5 < some.n_steps
    objective = ds.Terminal(forms.terminal)
    np.testing.assert_allclose(
        ds.adjoint(some, objective).p, ds.adjoint(none, objective).p, rtol=1e-14
    )


@pytest.mark.parametrize(("form", "method"), [("rhs", "rk5dp"), ("F", "cn"), ("M(p)", "midpoint")])
@pytest.mark.parametrize("limit", [2**28, 0])
def test_products_at_the_same_point_share_the_first_order_adjoint(monkeypatch, form, method, limit):
    monkeypatch.setattr(second_order, "STAGE_MEMORY", limit)
    trajectory = run(form, method)
    memory = Memory()
    for du0, dp in DIRECTIONS[:3]:
        products = hessian_sweep(trajectory, forms.ANALYTIC_COST, [(du0, dp)], memory, "vectors")
        expected = ds.hessian_product(trajectory, forms.ANALYTIC_COST, du0, dp, "vectors")
        np.testing.assert_allclose(flat(products[0]), flat(expected), rtol=1e-13)
        gradient = products[0].gradient
        assert gradient.value == expected.gradient.value
        np.testing.assert_allclose(gradient.p, expected.gradient.p, rtol=1e-14)
    assert (memory.first.adjoint is None) == (limit == 0)


# ---- the reduced functional ----------------------------------------------------------------------

FOLLOWING = ds.Parameters(
    {
        "a": ds.Parameter(forms.P0[0], scale="log"),
        "b": ds.Parameter(forms.P0[1], scale="log"),
        "c": ds.Parameter(forms.P0[2]),
    },
    forms.initial_state,
)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "method"), [("rhs", "rk5bs"), ("F", "cn"), ("M(p)", "beuler")])
@pytest.mark.parametrize("supplied", [False, True])
def test_reduced_hessian_passes_the_taylor_test(form, method, supplied):
    case = forms.FORMS[form]
    problem = case.analytic if supplied else case.automatic
    objective = forms.ANALYTIC_COST if supplied else forms.COSTS["sum"].objective
    control = FOLLOWING
    if supplied:
        control = ds.Parameters(FOLLOWING.values, forms.initial_state, forms.initial_state_p)
    functional = ds.Reduced(problem, objective, forms.make_stepping(method), control)
    functional.check_second_order()
    orders = ds.taylor(functional, hessian=True)
    assert min(orders) > 2.9, orders
    assert orders.passed
    x = functional.start()
    matrix = functional.hessian(x)
    for unit, row in zip(np.eye(3), matrix, strict=True):
        dx = x.duplicate()
        dx.setArray(unit)
        np.testing.assert_allclose(functional.hessian_product(x, dx).getArray(), row, rtol=1e-12)
    assert functional.count.second_order == 7


def test_second_derivatives_that_are_missing_are_named_before_any_run():
    def rhs(t, u, p):
        return np.array([float(u[0]) * p[0]])

    problem = ds.ODE(rhs, 1, ["a"], jacobian=lambda t, u, p: np.array([[float(p[0])]]))
    control = ds.Parameters({"a": ds.Parameter(1.0)}, [1.0])
    objective = ds.LeastSquares([1.0], [1.0])
    functional = ds.Reduced(problem, objective, ds.Stepping((0.0, 1.0), "rk4", dt=0.1), control)
    with pytest.raises(ds.UnsupportedError, match="second derivatives of callback 'rhs'"):
        functional.check_second_order()
    assert functional.count.forward == 0


def test_residual_jacobian_by_either_sweep():
    objective = forms.COSTS["observations"].objective + forms.COSTS["prior"].objective
    problem = forms.FORMS["rhs"].analytic
    functional = ds.Reduced(problem, objective, forms.make_stepping("rk4"), FOLLOWING)
    x = functional.start()
    assert functional.residual_sweep == "tangent"
    by_tangent = functional.residual_jacobian(x).getDenseArray().copy()
    tangents = functional.count.tangent
    functional.sweep_for = lambda _rows, _columns: "adjoint"
    by_adjoint = functional.residual_jacobian(x).getDenseArray()
    assert tangents == 3
    assert functional.count.adjoint == 8
    np.testing.assert_allclose(by_adjoint, by_tangent, rtol=1e-12, atol=1e-14)
    assert ds.Reduced.sweep_for(8, 100) == "adjoint"
    gradient = by_tangent.T @ functional.residual(x).getArray()
    np.testing.assert_allclose(gradient, functional.gradient(x).getArray(), rtol=1e-12)


@pytest.mark.parametrize(
    "arguments", [{"method": "brgn"}, {"method": "bntr", "hessian": "gauss_newton"}]
)
def test_least_squares_methods_refuse_another_cost_before_any_run(arguments):
    functional = ds.Reduced(
        forms.FORMS["rhs"].analytic,
        ds.Terminal(forms.terminal),
        forms.make_stepping("rk4"),
        FOLLOWING,
    )
    with pytest.raises(ds.UnsupportedError, match="a Terminal cost in a sum of squares"):
        daeosens.minimize(functional, **arguments)
    assert functional.count.forward == 0


def test_typical_sizes_do_not_depend_on_the_unit_of_a_logarithm():
    values = {"a": ds.Parameter(1.0, scale="log"), "b": ds.Parameter(-3.0)}
    values["c"] = ds.Parameter(7.0, scale="log")
    problem = forms.FORMS["rhs"].analytic
    control = ds.Parameters(values, forms.U0)
    functional = ds.Reduced(
        problem, ds.Terminal(forms.terminal), forms.make_stepping("rk4"), control
    )
    sizes, of_value = functional.typical()
    np.testing.assert_array_equal(sizes.array, [1.0, 3.0, 1.0])
    assert of_value == 0.0


@pytest.mark.mpi
@pytest.mark.parametrize("place", ["u0", "p"])
def test_a_product_that_is_not_finite_on_one_rank_is_an_error_on_all(monkeypatch, place):
    """Callbacks that fill vectors return what they like: the gradient was looked at alone."""
    right = distributed.Model.hessian_product

    def wrong(self, t, u, p, w, du, dp, out):
        by_p = right(self, t, u, p, w, du, dp, out)
        if place == "p":
            return by_p * np.nan
        if u.comm.rank == u.comm.size - 1:
            out.setArray(np.full(u.getLocalSize(), np.nan))
        return by_p

    monkeypatch.setattr(distributed.Model, "hessian_product", wrong)
    case = distributed.make(PETSc.COMM_WORLD, "vec")
    run = ds.solve(case.problem, case.u0, case.p, ds.Stepping((0.0, 0.005), "rk4", dt=1e-3))
    cost = ds.Terminal(
        lambda t, u, p: u.dot(u),
        lambda t, u, p, out: out.waxpy(1.0, u, u),
        "independent",
        hessian_product=lambda t, u, p, du, dp, out: (out.waxpy(1.0, du, du), np.zeros(2))[1],
    )
    told = {
        "u0": "the product with the Hessian in u0 is not finite",
        "p": "'hessian_product' returned",
    }
    with pytest.raises(ds.SolveError, match=told[place]):
        ds.hessian_product(run, cost, *case.direction())
