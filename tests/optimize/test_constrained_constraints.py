"""Descriptions of constraints, and outputs of runs as constraints."""

import math

import numpy as np
import pytest
import scipy.optimize
from distributed import make, make_cost
from mpi4py import MPI
from petsc4py import PETSc

import daeosens as ds
from daeosens.errors import InputError, UnsupportedError
from daeosens.functional import FieldParameter, InitialState
from daeosens.optimize.constrained.constraints import named, sides
from daeosens.optimize.constrained.lagrangian import Lagrangian, dense_hessian
from daeosens.optimize.constrained.result import CONSTRAINED_METHODS
from daeosens.petsc import gather, read, scatter
from daeosens.problem import INDEPENDENT

METHODS = list(CONSTRAINED_METHODS)


# ---- descriptions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"upper": 2.5}, "c <= 2.5"),
        ({"lower": 0}, "0 <= c"),
        ({"lower": -1, "upper": 1e6}, "-1 <= c <= 1e+06"),
        ({"equals": [1, 2]}, "c = [1, 2]"),
        ({"lower": 3, "upper": 3}, "c = 3"),
    ],
)
def test_constraint_prints_its_relation(arguments, text):
    assert str(ds.Constraint(len, name="c", **arguments)) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lower": 2.0, "upper": 1.0}, r'constraint "c": bounds \[2, 1\] exclude each other'),
        ({"lower": [0, 2], "upper": 1}, r"bounds \[2, 1\] exclude each other in component 1"),
        ({"lower": math.inf}, r"bounds \[inf, inf\] exclude"),
        ({}, 'constraint "c" bounds nothing'),
        ({"lower": [0, -math.inf]}, "bounds nothing in component 1"),
        ({"equals": 1.0, "upper": 2.0}, "both equals and bounds"),
        ({"equals": math.inf}, "equals = inf"),
        ({"upper": math.nan}, "upper = nan"),
        ({"upper": "much"}, "upper is not .*much"),
        ({"upper": np.ones((2, 2))}, "upper = array"),
        ({"lower": [1, 2], "upper": [1, 2, 3]}, r"lower has shape \(2,\), upper \(3,\)"),
        ({"upper": 1.0, "scale": 0.0}, "scale = 0"),
    ],
)
def test_contradictory_bounds_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        ds.Constraint(len, name="c", **arguments)


@pytest.mark.parametrize(
    ("what", "arguments", "message"),
    [
        (3.0, {}, "is on a float(.|\n)*a function of x, an objective"),
        ([], {}, "is on a list"),
        ([len], {}, "is on a list"),
        (ds.Prior([0.0]), {"jacobian": len}, "has jacobian= but is no function"),
        ([ds.Prior([0.0])], {"parameters": ["a"]}, "has parameters= but is no function"),
    ],
)
def test_what_cannot_be_constrained_is_refused(what, arguments, message):
    with pytest.raises(InputError, match=message):
        ds.Constraint(what, upper=1.0, **arguments)


def test_constraints_get_names_and_keep_all_else():
    value = ds.Constraint(
        len, [0, 1], 5.0, parameters="rate", jacobian=max, hessian=min, scale=[1.0, 2.0]
    )
    first, second = named([value, ds.Constraint(len, equals=[1, 2], name="mine")])
    assert (first.name, second.name) == ("constraint 1", "mine")
    assert (first.parameters, first.jacobian, first.hessian) == (("rate",), max, min)
    lower, upper, scale = sides(first, 2)
    np.testing.assert_array_equal([lower, upper, scale], [[0, 1], [5, 5], [1, 2]])
    lower, upper, scale = sides(second, 2)
    np.testing.assert_array_equal([lower, upper], [[1, 2], [1, 2]])
    assert np.isnan(scale).all()


# ---- a double integrator -------------------------------------------------------------------------

N = 6
H = 1.0 / N


def force(t, p):
    return p[min(int(np.real(t) / H + 1e-9), N - 1)]


def double_integrator(comm=None):
    """Least effort: x'' = w(t), w constant on N intervals, Euler's method in steps as long."""
    names = [f"w{i}" for i in range(N)]
    extra = {} if comm is None else {"comm": comm}
    problem = ds.ODE(
        lambda t, u, p: np.array([u[1], force(t, p)]), size=2, parameters=names, **extra
    )
    effort = ds.Running(lambda t, u, p: 0.5 * force(t, p) ** 2)
    control = ds.Parameters({name: ds.Parameter(0.0) for name in names}, initial_state=[0.0, 0.0])
    return ds.Reduced(problem, effort, ds.Stepping((0.0, 1.0), "1fe", dt=H), control)


ARRIVAL = ds.Constraint(
    [ds.Terminal(lambda t, u, p: u[0]), ds.Terminal(lambda t, u, p: u[1])],
    equals=[1.0, 0.0],
    name="arrival",
)


def least_effort():
    """The exact minimum of the discrete problem and its multipliers."""
    ahead = N - 1.0 - np.arange(N)
    rows = np.vstack([H * H * ahead, np.full(N, H)])
    v = -H * np.linalg.solve(rows @ rows.T, [1.0, 0.0])
    return -rows.T @ v / H, v


@pytest.mark.parametrize("method", METHODS)
def test_least_effort_of_a_double_integrator(method):
    functional = double_integrator()
    result = ds.minimize(functional, method=method, constraints=ARRIVAL)
    force_exact, v = least_effort()
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), force_exact, atol=1e-7)
    np.testing.assert_allclose(result.multipliers["arrival"], v, atol=1e-6)
    assert result.value == pytest.approx(0.5 * H * force_exact @ force_exact, rel=1e-8)
    np.testing.assert_allclose(result.constraints["arrival"].value, [1.0, 0.0], atol=1e-7)
    if method == "ipopt":  # Newton's method on a quadratic
        assert result.iterations == 1


@pytest.mark.parametrize("method", METHODS)
def test_implicit_methods_keep_their_own_solvers(method):
    functional = ds.Reduced(
        DECAY,
        ds.Prior([1.0, 0.0]),
        ds.Stepping((0.0, 2.0), "cn", dt=0.1),
        ds.Parameters({"rate": ds.Parameter(0.5), "feed": ds.Parameter(0.3)}, initial_state=[1.0]),
    )
    end = ds.Constraint(ds.Terminal(lambda t, u, p: u[0]), equals=0.6, name="end")
    result = ds.minimize(functional, method=method, constraints=end)
    assert result.converged
    rate, feed = result.x.getArray()
    growth = (1.0 - 0.05 * rate) / (1.0 + 0.05 * rate)
    level = feed / rate
    assert level + (1.0 - level) * growth**20 == pytest.approx(0.6, abs=1e-7)


def test_outputs_share_one_run_and_one_sweep_with_the_objective():
    functional = double_integrator()
    result = ds.minimize(functional, method="almm", constraints=ARRIVAL)
    assert functional.count.forward == functional.count.adjoint == result.evaluations


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_active_speed_limit(method):
    """The quadratic mean of the speed, halfway to its least value, against SciPy."""
    speed = H * np.tril(np.ones((N, N)), -1)  # at the beginnings of the steps
    free = least_effort()[0]
    limit = 0.5 * (N / (N - 1) + H * np.sum((speed @ free) ** 2))
    functional = double_integrator()
    spread = ds.Constraint(ds.Running(lambda t, u, p: u[1] ** 2), upper=limit, name="speed")
    result = ds.minimize(functional, method=method, constraints=[ARRIVAL, spread])
    assert result.converged
    reference = scipy.optimize.minimize(
        lambda w: 0.5 * H * w @ w,
        np.zeros(N),
        jac=lambda w: H * w,
        method="SLSQP",
        constraints=[
            {
                "type": "eq",
                "fun": lambda w: np.array([H * H * (N - 1 - np.arange(N)) @ w - 1.0, H * w.sum()]),
            },
            {
                "type": "ineq",
                "fun": lambda w: limit - H * np.sum((speed @ w) ** 2),
                "jac": lambda w: -2 * H * speed.T @ (speed @ w),
            },
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(result.x.getArray(), reference.x, atol=2e-5)
    assert result.value == pytest.approx(reference.fun, rel=1e-7)
    assert result.value > 0.5 * H * free @ free + 1e-2
    assert result.constraints["speed"].value[0] == pytest.approx(limit, abs=1e-7)
    assert result.multipliers["speed"][0] > 0.1


# ---- other outputs, parameters by name -----------------------------------------------------------

DECAY = ds.ODE(lambda t, u, p: -p[0] * u + p[1], size=1, parameters=["rate", "feed"])
STEPS = ds.Stepping((0.0, 2.0), "4", dt=0.1)


def decay(objective, **entries):
    chosen = {"rate": ds.Parameter(0.5, scale="log"), "feed": ds.Parameter(0.3), **entries}
    return ds.Reduced(DECAY, objective, STEPS, ds.Parameters(chosen, initial_state=[1.0]))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_discrepancy_principle_hits_times_the_objective_does_not_know(method):
    """The least parameters that fit the data to its noise (Morozov): the prior is the objective."""
    data = ds.LeastSquares([0.33, 0.77, 1.9], [0.9, 0.8, 0.75], sigma=0.05)
    functional = decay(ds.Prior([0.1, 0.1]), rate=ds.Parameter(0.5))
    result = ds.minimize(
        functional, method=method, constraints=ds.Constraint(data, upper=1.5, name="fit")
    )
    assert result.converged
    assert result.constraints["fit"].value[0] == pytest.approx(1.5, abs=1e-6)
    misfit = decay(data, rate=ds.Parameter(0.5))
    value, gradient = misfit.value_and_gradient(result.x)
    assert value == pytest.approx(1.5, abs=1e-6)
    slope = functional.gradient(result.x).getArray()
    v = result.multipliers["fit"][0]
    np.testing.assert_allclose(slope, -v * gradient.getArray(), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("value", ["nothing", "rows", "a row"])
def test_named_parameters_in_their_own_units(method, scale, value):
    """The product of two parameters is fixed; which multiplier belongs to it is known."""
    functional = decay(ds.Prior([1.0, 0.0], sigma=1.0), rate=ds.Parameter(0.5, scale=scale))
    extra = {}
    if value != "nothing":
        extra = {
            "jacobian": lambda p: [[p[1], p[0]]] if value == "rows" else [p[1], p[0]],
            "hessian": lambda p, v: v[0] * np.array([[0.0, 1.0], [1.0, 0.0]]),
        }
    constraint = ds.Constraint(
        lambda p: p[0] * p[1], equals=0.5, parameters=["feed", "rate"], name="product", **extra
    )
    result = ds.minimize(functional, method=method, constraints=constraint)
    assert result.converged
    values = functional.control.values_at(DECAY, result.x)
    rate, feed = values["rate"], values["feed"]
    assert rate * feed == pytest.approx(0.5, abs=1e-7)
    v = result.multipliers["product"][0]
    np.testing.assert_allclose([rate - 1.0 + v * feed, feed + v * rate], 0.0, atol=1e-6)


def test_fixed_parameters_may_be_named_too():
    functional = decay(ds.Prior([1.0], names=["rate"]), feed=0.25)
    constraint = ds.Constraint(lambda p: p[0] / p[1], equals=8.0, parameters=["rate", "feed"])
    result = ds.minimize(functional, method="almm", constraints=constraint)
    assert math.exp(result.x.getArray()[0]) == pytest.approx(2.0, rel=1e-7)


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (
            ds.Constraint(lambda p: p[0], upper=1.0, parameters=["rat"], name="c"),
            'constraint "c" names parameter "rat"(.|\n)*expected: rate, feed(.|\n)*try: "rate"',
        ),
        (
            ds.Constraint(lambda p: p[0], upper=1.0, parameters="feed", name="c"),
            'constraint "c" is on fixed parameters only(.|\n)*rate',
        ),
        (
            ds.Constraint(ds.LeastSquares([0.5, 3.0], [1.0, 1.0]), upper=1.0, name="c"),
            "observation time 3 lies outside the time span",
        ),
        (
            ds.Constraint(ds.LeastSquares([0.5], [[1.0, 2.0]]), upper=1.0, name="c"),
            "data has 2 columns",
        ),
        (
            ds.Constraint([ds.Terminal(len), ds.Terminal(len)], upper=[1.0, 2.0, 3.0], name="c"),
            'constraint "c" has 2 components',
        ),
    ],
)
def test_constraints_that_do_not_fit_are_named_before_the_first_run(constraint, message):
    functional = decay(ds.Prior([1.0], names=["rate"]), feed=0.25)
    with pytest.raises(InputError, match=message):
        ds.minimize(functional, method="almm", constraints=constraint)
    assert functional.count.forward == 0


# ---- the Lagrangian ------------------------------------------------------------------------------


@pytest.mark.slow
def test_hessian_of_the_lagrangian_is_the_derivative_of_its_gradient():
    functional = decay(ds.Prior([1.0, 0.0]) + ds.Running(lambda t, u, p: u[0] ** 2))
    constraints = [
        ds.Constraint(
            [ds.Terminal(lambda t, u, p: u[0] ** 3), ds.LeastSquares([0.5], [0.7])], upper=1.0
        ),
        ds.Constraint(lambda x: x[0] * np.exp(x[1]), upper=1.0),
        ds.Constraint(decay(ds.Terminal(lambda t, u, p: u[0] * p[0])), upper=1.0),
        ds.Constraint(lambda p: p[0] ** 2 * p[1], upper=1.0, parameters=["rate", "feed"]),
    ]
    x = functional.start()
    law = Lagrangian(functional, constraints, x)
    assert law.labels[:2] == ("constraint 1[0]", "constraint 1[1]")
    v = np.array([0.7, -1.2, 0.4, 2.0, -0.5])

    def slope(values):
        point = law.evaluate(scatter(values, x.duplicate()))
        return 2.0 * point.gradient + v @ point.jacobian

    at, h = read(x).copy(), 1e-4
    expected = np.column_stack(
        [(slope(at + h * unit) - slope(at - h * unit)) / (2 * h) for unit in np.eye(2)]
    )
    np.testing.assert_allclose(law.hessian(x, v, 2.0), expected, rtol=1e-5, atol=1e-6)


def test_gradients_agree_with_differences_of_the_outputs():
    functional = decay(ds.Prior([1.0, 0.0]))
    constraints = [
        ds.Constraint(
            [ds.Terminal(lambda t, u, p: u[0] ** 3), ds.LeastSquares([0.55], [0.7])], upper=1.0
        ),
        ds.Constraint(lambda p: p[0] ** 2 * p[1], upper=1.0, parameters=["rate", "feed"]),
    ]
    x = functional.start()
    law = Lagrangian(functional, constraints, x)
    point, at, h = law.evaluate(x), read(x).copy(), 1e-5
    for j, unit in enumerate(np.eye(2)):
        pair = [
            law.evaluate(scatter(at + sign * h * unit, x.duplicate())).outputs for sign in (1, -1)
        ]
        np.testing.assert_allclose(
            point.jacobian[:, j], (pair[0] - pair[1]) / (2 * h), rtol=1e-7, atol=1e-8
        )


def test_functional_without_second_derivatives_is_refused():
    class First:
        def value_and_gradient(self, x):
            return 0.0, x

    with pytest.raises(UnsupportedError, match=r"First\) has no second derivatives"):
        dense_hessian(First(), PETSc.Vec().createSeq(1))


# ---- several ranks -------------------------------------------------------------------------------


def state_on_the_ring(comm, *, field):
    """Move the initial state, or the field of rates, under a constraint on the end and on x."""
    case = make(comm, field=field)
    control = FieldParameter(case.p, case.u0, lower=0.0) if field else InitialState(case.u0, case.p)
    stepping = ds.Stepping((0.0, 0.2), "rk4", dt=0.02)
    # the state is observed at the start too: diffusion hides its ripples later
    functional = ds.Reduced(case.problem, make_cost(case, (0.0, 0.14)), stepping, control)

    def total(t, u, p):
        return u.sum() / 24

    def total_u(t, u, p, out):
        out.set(1.0 / 24)

    end = ds.Terminal(total, total_u, INDEPENDENT)
    constraints = [
        ds.Constraint(end, lower=0.55, name="end"),
        ds.Constraint(lambda x: x[3] - x[15], equals=0.1, jacobian=difference, name="difference"),
    ]
    return functional, constraints


def difference(x):
    row = np.zeros((1, len(x)))
    row[0, [3, 15]] = 1.0, -1.0
    return row


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("field", [False, True], ids=["state", "field"])
def test_distributed_variables(field):
    values = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        functional, constraints = state_on_the_ring(comm, field=field)
        result = ds.minimize(functional, method="almm", constraints=constraints)
        assert result.converged
        # no subproblem goes on where rounding hides the rest of its gradient
        assert functional.count.forward < 400
        assert result.constraints["end"].value[0] == pytest.approx(0.55, abs=1e-6)
        assert result.multipliers["end"][0] < -0.01
        values.append((gather(result.x), result.value, result.multipliers))
    (x, value, spread), (x_alone, value_alone, alone) = values
    np.testing.assert_allclose(x, x_alone, atol=1e-6)
    assert value == pytest.approx(value_alone, rel=1e-8)
    for name in alone:
        np.testing.assert_allclose(spread[name], alone[name], rtol=1e-5)
    assert len(set(MPI.COMM_WORLD.allgather((value, *x)))) == 1
    assert x[3] - x[15] == pytest.approx(0.1, abs=1e-6)


@pytest.mark.mpi
@pytest.mark.parametrize("method", METHODS)
def test_bad_input_is_an_error_on_every_rank(method):
    functional, _ = state_on_the_ring(PETSc.COMM_WORLD, field=False)
    with pytest.raises(InputError) as caught:
        ds.minimize(functional, method=method, constraints=ds.Constraint(lambda x: x, upper=[0, 1]))
    assert len(set(MPI.COMM_WORLD.allgather(str(caught.value)))) == 1
    assert functional.count.forward == 0
