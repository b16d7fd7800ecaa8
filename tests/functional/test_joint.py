"""Several experiments: one larger system, a regression of all data, any number of ranks."""

import math

import numpy as np
import pytest
from distributed import make, make_cost
from petsc4py import PETSc
from scipy import stats
from scipy.integrate import solve_ivp

import daeosens as ds
from daeosens.functional import FieldParameter, InitialState, Joint
from daeosens.inverse import (
    GaussianPrior,
    Regularized,
    covariance,
    multistart,
    predict,
    profile,
    starting_points,
)
from daeosens.petsc import gather

# ---- two nonlinear experiments, and both as one system of twice the size -------------------------

NAMES = ["growth", "death", "feed"]
RATES = {"growth": ds.Parameter(0.7, scale="log"), "death": ds.Parameter(0.4, lower=0.0, upper=2.0)}
FEEDS = (0.0, 0.3)
STARTS = ([1.0, 0.5], [0.4, 0.9])
TIMES = ([0.4, 1.0], [0.3, 0.8, 1.2])
LAST = 1.2


def rhs(t, u, p):
    return np.array([p[0] * u[0] - u[0] * u[1] + p[2], u[0] * u[1] - p[1] * u[1]])


def twice(t, u, p):
    """Both experiments side by side."""
    first = rhs(t, u[:2], np.array([p[0], p[1], 0.0]))
    second = rhs(t, u[2:], np.array([p[0], p[1], 0.3]))
    return np.concatenate([first, second])


def start(k):
    return lambda p: np.array([STARTS[k][0] + 0.1 * p[0], STARTS[k][1]])


def measured(k):
    """Return data with noise and a gap, of other parameters than those of the start."""
    p = [0.9, 0.5, FEEDS[k]]
    run = solve_ivp(rhs, (0.0, LAST), start(k)(p), t_eval=TIMES[k], args=(p,), rtol=1e-8)
    data = run.y.T * np.exp(0.05 * np.random.default_rng(k).standard_normal(run.y.T.shape))
    data[1, 0] = np.nan if k else data[1, 0]
    return data


DATA = [measured(0), measured(1)]


def joint(problem, method="rk4", prior=ds.Prior([0.5], 0.3, names=["death"])):  # noqa: B008
    parts = []
    for k in range(2):
        objective = ds.LeastSquares(TIMES[k], DATA[k], 0.2)
        parts.append(
            ds.Reduced(
                problem,
                objective + prior if k == 0 else objective,
                ds.Stepping((0.0, LAST), method, dt=0.1),
                ds.Parameters({**RATES, "feed": FEEDS[k]}, start(k)),
            )
        )
    return Joint(parts)


def whole(method="rk4"):
    """Return the same as one problem."""
    objective = sum(
        (ds.LeastSquares(TIMES[k], DATA[k], 0.2, [2 * k, 2 * k + 1]) for k in range(2)),
        start=ds.Prior([0.5], 0.3, names=["death"]),
    )
    control = ds.Parameters(
        {**RATES, "feed": 0.0}, lambda p: np.concatenate([start(k)(p) for k in range(2)])
    )
    stepping = ds.Stepping((0.0, LAST), method, dt=0.1)
    return ds.Reduced(ds.ODE(twice, size=4, parameters=NAMES), objective, stepping, control)


@pytest.mark.parametrize("method", ["rk4", "cn"])
@pytest.mark.parametrize("make_problem", [ds.ODE, ds.trace])
def test_two_experiments_are_one_system_of_twice_the_size(make_problem, method):
    both = joint(make_problem(rhs, size=2, parameters=NAMES), method)
    number = whole(method)
    # other steps end at the observations of the other experiment: at the same times
    times = sorted({*TIMES[0], *TIMES[1]})
    for part in both.experiments:
        nothing = ds.LeastSquares(times, np.zeros((len(times), 2)))
        part.objective = part.objective + 0.0 * nothing
    x, dx = both.start(), [0.4, -0.7]
    assert both.value(x) == pytest.approx(number.value(x), rel=1e-13)
    value, gradient = both.value_and_gradient(x)
    assert value == pytest.approx(both.value(x), rel=1e-14)
    np.testing.assert_allclose(gather(gradient), gather(number.gradient(x)), rtol=1e-9)
    assert both.derivative(x, dx) == pytest.approx(gather(gradient) @ dx, rel=1e-11)
    np.testing.assert_allclose(both.hessian(x), number.hessian(x), rtol=1e-8)
    for product in ("hessian_product", "gauss_newton_product"):
        np.testing.assert_allclose(
            gather(getattr(both, product)(x, dx)),
            gather(getattr(number, product)(x, dx)),
            rtol=1e-8,
        )


def test_its_derivatives_are_exact():
    both = joint(ds.trace(rhs, size=2, parameters=NAMES))
    assert min(ds.taylor(both)) > 1.9
    assert min(ds.taylor(both, hessian=True)) > 2.9
    x = both.start()
    rows, jacobian = both.residual(x), both.residual_jacobian(x)
    assert rows.size == 2 * 2 + 1 + 5
    assert 0.5 * rows.dot(rows) == pytest.approx(both.value(x), rel=1e-13)
    gradient = x.duplicate()
    jacobian.multTranspose(rows, gradient)
    np.testing.assert_allclose(gather(gradient), gather(both.gradient(x)), rtol=1e-10)
    matrix = jacobian.getDenseArray()
    product = gather(both.gauss_newton_product(x, [0.4, -0.7]))
    np.testing.assert_allclose(matrix.T @ (matrix @ [0.4, -0.7]), product, rtol=1e-10)
    both.check_squares()
    both.check_second_order()
    assert both.residual_sweep == "tangent"
    assert (
        both.count.forward == sum(experiment.count.forward for experiment in both.experiments) > 2
    )
    assert both.count.adjoint > 2
    assert both.typical()[0].getArray().tolist() == [1.0, 0.4]


def test_every_minimiser_finds_the_same():
    both = joint(ds.trace(rhs, size=2, parameters=NAMES))
    values = [
        ds.minimize(both, method=method, gradient_tolerance=1e-8)
        for method in ("brgn", "bnls", "bqnls")
    ]
    for item in values:
        assert item.converged
        np.testing.assert_allclose(gather(item.x), gather(values[0].x), atol=1e-7)
    regularized = Regularized(both, GaussianPrior(values[0].x))
    again = ds.minimize(regularized, method="bnls", gradient_tolerance=1e-8)
    np.testing.assert_allclose(gather(again.x), gather(values[0].x), atol=1e-7)


# ---- straight lines: the regression of all data --------------------------------------------------

# u' = slope * feed from a level of its own, seen with a common offset
SLOPE, OFFSET = 0.8, 0.3
LINES = (
    (1.0, 0.5, np.array([0.5, 1.0, 2.0]), 0.1),
    (-2.0, 0.0, np.array([0.25, 1.5]), 0.2),
    (0.5, 1.0, np.array([1.0, 3.0, 4.0]), 0.05),
)
RNG = np.random.default_rng(8)
SEEN = [
    level + SLOPE * feed * t + OFFSET + sigma * RNG.standard_normal(len(t))
    for feed, level, t, sigma in LINES
]
DESIGN = np.vstack([np.column_stack([feed * t, np.ones_like(t)]) / s for feed, _, t, s in LINES])
RIGHT = np.concatenate(
    [(seen - level) / sigma for seen, (_, level, _, sigma) in zip(SEEN, LINES, strict=True)]
)


def line():
    return ds.ODE(
        lambda t, u, p: np.array([p[0] * p[2]]),
        size=1,
        parameters=["slope", "offset", "feed"],
    )


def lines():
    problem = line()
    unknown = {
        "slope": ds.Parameter(0.1, lower=-3.0, upper=3.0),
        "offset": ds.Parameter(0.0, upper=5.0),
    }
    return Joint(
        [
            ds.Reduced(
                problem,
                ds.LeastSquares(times, seen, sigma, lambda t, u, p: u + p[1]),
                ds.Stepping((0.0, times[-1]), "rk4", dt=0.25),
                ds.Parameters({**unknown, "feed": feed}, [level]),
            )
            for (feed, level, times, sigma), seen in zip(LINES, SEEN, strict=True)
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
def test_uncertainty_is_that_of_the_regression_of_all_data(hessian):
    functional = lines()
    result = ds.minimize(functional, method="bnls", gradient_tolerance=1e-9)
    best = np.linalg.lstsq(DESIGN, RIGHT)[0]
    inverse = np.linalg.inv(DESIGN.T @ DESIGN)
    np.testing.assert_allclose(gather(result.x), best, rtol=1e-9)
    estimate = covariance(functional, result.x, hessian=hessian)
    assert estimate.names == ("slope", "offset")
    np.testing.assert_allclose(estimate.matrix, inverse, rtol=1e-9)
    reach = stats.norm.ppf(0.975) * math.sqrt(inverse[0, 0])
    slope = profile(functional, estimate, ["slope"], tolerance=1e-5)["slope"]
    assert slope.interval == pytest.approx((best[0] - reach, best[0] + reach), rel=1e-4)
    for (feed, level, *_), part in zip(LINES, functional.experiments, strict=True):
        bands = predict(part, estimate, [0.5, 5.0], observe=lambda t, u, p: u + p[1])
        rows = np.array([[0.5 * feed, 1.0], [5.0 * feed, 1.0]])
        np.testing.assert_allclose(bands.value[:, 0], level + rows @ best, rtol=1e-9)
        error = np.sqrt(np.einsum("ki,ij,kj->k", rows, inverse, rows))
        np.testing.assert_allclose(bands.standard_error[:, 0], error, rtol=1e-8)


@pytest.mark.mpi
def test_many_starts_on_any_number_of_ranks(comm):
    points = starting_points(lines(), 4, seed=3, names=["slope", "offset"], normal={1: (0.0, 1.0)})
    optima = multistart(lambda _group: lines(), points, comm=comm, method="brgn")
    best = np.linalg.lstsq(DESIGN, RIGHT)[0]
    np.testing.assert_allclose(optima.best.x, best, atol=1e-5)


# ---- distributed ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("field", [False, True])
def test_answers_do_not_depend_on_the_number_of_ranks(field):
    answers = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        case = make(comm, "dmda", field=field)
        cooler = case.u0.copy()
        cooler.scale(0.8)
        values = {"a": ds.Parameter(1e-2, scale="log"), "r": ds.Parameter(1.2, upper=3.0)}
        parts = [
            ds.Reduced(
                case.problem,
                make_cost(case, times, squares=True),
                ds.Stepping((0.0, end), "cn", dt=0.03),
                FieldParameter(case.p, u0, lower=0.0) if field else ds.Parameters(values, u0),
            )
            for u0, end, times in ((case.u0, 0.2, (0.06, 0.13)), (cooler, 0.1, (0.05, 0.1)))
        ]
        both = Joint(parts)
        x = both.start()
        dx = x.duplicate()
        first, last = dx.getOwnershipRange()
        dx.setArray(np.cos(np.arange(first, last)))
        rows, jacobian = both.residual(x), both.residual_jacobian(x)
        assert 0.5 * rows.dot(rows) == pytest.approx(both.value(x), rel=1e-12)
        gradient = x.duplicate()
        jacobian.multTranspose(rows, gradient)
        here = [gather(both.gradient(x)), gather(both.hessian_product(x, dx))]
        np.testing.assert_allclose(gather(gradient), here[0], rtol=1e-9, atol=1e-12)
        answers.append([np.array([both.value(x)]), *here, gather(both.gauss_newton_product(x, dx))])
        if not field:
            result = ds.minimize(both, method="brgn", gradient_tolerance=1e-8)
            assert result.converged
            answers[-1].append(gather(result.x))
    for ours, alone in zip(*answers, strict=True):
        np.testing.assert_allclose(ours, alone, rtol=1e-7, atol=1e-11)


# ---- what does not go together -------------------------------------------------------------------


def member(values=None, initial=(1.0,), objective=None):
    unknown = {"slope": ds.Parameter(0.1), "offset": ds.Parameter(0.0), "feed": 1.0}
    return ds.Reduced(
        line(),
        ds.LeastSquares([1.0], [1.0]) if objective is None else objective,
        ds.Stepping((0.0, 1.0), "rk4", dt=0.5),
        ds.Parameters({**unknown, **(values or {})}, list(initial)),
    )


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"offset": 0.0}, r"experiments\[0\] and experiments\[1\] have the free parameters"),
        ({"offset": ds.Parameter(1.0, scale="log")}, r"'offset': 'linear'.*'offset': 'log'"),
        ({"offset": ds.Parameter(0.5)}, r"experiments\[1\]: another start"),
        ({"offset": ds.Parameter(0.0, lower=-1.0)}, "another lower bound"),
    ],
)
def test_unknowns_that_differ_are_refused(other, message):
    with pytest.raises(ds.InputError, match=message):
        Joint([member(), member(other)])


def test_what_is_no_experiment_is_refused():
    with pytest.raises(ds.InputError, match=r"experiments = \[\]"):
        Joint([])
    with pytest.raises(ds.InputError, match=r"experiments = <daeosens"):
        Joint(member())
    with pytest.raises(ds.InputError, match=r"experiments\[1\] is LeastSquares"):
        Joint([member(), ds.LeastSquares([1.0], [1.0])])
    state = ds.Reduced(
        line(),
        ds.LeastSquares([1.0], [1.0]),
        ds.Stepping((0.0, 1.0), "rk4", dt=0.5),
        InitialState([1.0], [1.0, 0.0, 1.0]),
    )
    with pytest.raises(ds.InputError, match=r"have the free parameters .* and InitialState"):
        Joint([member(), state])


def test_what_it_cannot_do_is_told():
    running = member(objective=ds.Running(lambda t, u, p: u[0] ** 2))
    both = Joint([member(), running])
    with pytest.raises(ds.UnsupportedError, match="a Running cost in a sum of squares"):
        both.check_squares()
    held = ds.Constraint(ds.Terminal(lambda t, u, p: u[0]), upper=1.0, name="held")
    with pytest.raises(ds.InputError, match="a Reduced"):
        ds.minimize(both, method="almm", constraints=[held])


@pytest.mark.mpi(min_size=2)
def test_experiments_of_different_ranks_are_refused():
    case, own = make(PETSc.COMM_WORLD, "dmda"), make(PETSc.COMM_SELF, "dmda")
    stepping = ds.Stepping((0.0, 0.1), "rk4", dt=0.05)
    values = {"a": ds.Parameter(1e-2), "r": ds.Parameter(1.2)}
    parts = [
        ds.Reduced(
            value.problem, make_cost(value, (0.05,)), stepping, ds.Parameters(values, value.u0)
        )
        for value in (case, own)
    ]
    with pytest.raises(ds.InputError, match=r"experiments\[1\] is on 1 ranks, experiments\[0\] on"):
        Joint(parts)


def test_taylor_compares_adaptive_runs_with_runs_of_the_same_steps():
    """By steps that each run chooses anew the remainders fall with order one."""
    problem = ds.trace(rhs, size=2, parameters=NAMES)
    control = ds.Parameters({name: ds.Parameter(0.8) for name in NAMES}, initial_state=[1.0, 0.5])
    parts = [
        ds.Reduced(
            problem,
            ds.LeastSquares([t], [[0.3, 0.2]]),
            ds.Stepping((0.0, t), "rk5dp", rtol=1e-4),
            control,
        )
        for t in (1.0, 1.5)
    ]
    both = Joint(parts)
    assert min(ds.taylor(both)) > 1.95
    assert min(ds.taylor(both, hessian=True)) > 2.9
    assert both.repeated(both.start()).value(both.start()) == pytest.approx(
        both.value(both.start()), rel=1e-14
    )
