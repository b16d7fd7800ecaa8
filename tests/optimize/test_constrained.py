"""Minimisation under constraints: Hock-Schittkowski's problems, control, units, failures, ranks."""

import math
import re
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from closed import Closed
from leaks import left_behind
from mpi4py import MPI
from petsc4py import PETSc

from daeosens import minimize
from daeosens.errors import InputError, OptionError, SolveError, UnsupportedError
from daeosens.optimize.constrained.constraints import Constraint
from daeosens.optimize.constrained.result import CONSTRAINED_METHODS
from daeosens.petsc import gather

METHODS = list(CONSTRAINED_METHODS)


class Exact(Closed):
    """From a formula that takes complex numbers."""

    def slope(self, x):
        return np.array([self.formula(x + 1e-30j * unit).imag / 1e-30 for unit in np.eye(len(x))])

    def value_and_gradient(self, x):
        point = gather(x)
        self.points.append(point)
        if self.domain is not None and not self.domain(point):
            raise SolveError(f"no solution at {point[0]:.2f}")
        return float(self.formula(point)), self.vector(self.slope(point))


class Twice(Exact):
    """With second derivatives: differences of exact first ones."""

    def hessian(self, x):
        point, h = gather(x), 1e-5
        units = np.eye(len(point))
        return np.array(
            [(self.slope(point + h * u) - self.slope(point - h * u)) / 2 / h for u in units]
        )


@dataclass
class Problem:
    """Formula, start, constraints, bounds, minimum and multipliers."""

    formula: Any
    start: Any
    constraints: Any
    minimum: Any
    multipliers: Any
    bounds: Any = None

    def functional(self, **extra):
        return Twice(self.formula, self.start, bounds=self.bounds, **extra)


def constraint_on(function, name="c", **sides):
    return [Constraint(function, name=name, **sides)]


ROOT7 = math.sqrt(7.0)
# Hock and Schittkowski, Test Examples for Nonlinear Programming Codes, 1981.  Multipliers: v in
# dJ + v dc = 0, from their gradients at the minimum.
HOCK_SCHITTKOWSKI = {
    6: Problem(
        lambda x: (1 - x[0]) ** 2,
        [-1.2, 1],
        constraint_on(lambda x: 10 * (x[1] - x[0] ** 2), equals=0),
        [1, 1],
        [0],
    ),
    7: Problem(
        lambda x: np.log(1 + x[0] ** 2) - x[1],
        [2, 2],
        constraint_on(lambda x: (1 + x[0] ** 2) ** 2 + x[1] ** 2, equals=4),
        [0, math.sqrt(3)],
        [0.5 / math.sqrt(3)],
    ),
    10: Problem(
        lambda x: x[0] - x[1],
        [-10, 10],
        constraint_on(lambda x: -3 * x[0] ** 2 + 2 * x[0] * x[1] - x[1] ** 2 + 1, lower=0),
        [0, 1],
        [-0.5],
    ),
    14: Problem(
        lambda x: (x[0] - 2) ** 2 + (x[1] - 1) ** 2,
        [2, 2],
        [
            Constraint(lambda x: x[0] - 2 * x[1], equals=-1, name="line"),
            Constraint(lambda x: x[0] ** 2 / 4 + x[1] ** 2, upper=1, name="ellipse"),
        ],
        [(ROOT7 - 1) / 2, (ROOT7 + 1) / 4],
        [1.594491115, 1.846591438],
    ),
    21: Problem(
        lambda x: 0.01 * x[0] ** 2 + x[1] ** 2 - 100,
        [2, -1],
        constraint_on(lambda x: 10 * x[0] - x[1], lower=10),
        [2, 0],
        [0],
        bounds=([2, -50], [50, 50]),
    ),
    35: Problem(
        lambda x: (
            9 - 8 * x[0] - 6 * x[1] - 4 * x[2] + 2 * x[0] ** 2 + 2 * x[1] ** 2 + x[2] ** 2
            + 2 * x[0] * x[1] + 2 * x[0] * x[2]
        ),
        [0.5, 0.5, 0.5],
        constraint_on(lambda x: x[0] + x[1] + 2 * x[2], upper=3),
        [4 / 3, 7 / 9, 4 / 9],
        [2 / 9],
        bounds=(0.0, math.inf),
    ),
    39: Problem(
        lambda x: -x[0],
        [2, 2, 2, 2],
        constraint_on(
            lambda x: np.array([x[1] - x[0] ** 3 - x[2] ** 2, x[0] ** 2 - x[1] - x[3] ** 2]),
            equals=0,
        ),
        [1, 1, 0, 0],
        [-1, -1],
    ),
    40: Problem(
        lambda x: -x[0] * x[1] * x[2] * x[3],
        [0.8] * 4,
        constraint_on(
            lambda x: np.array(
                [x[0] ** 3 + x[1] ** 2 - 1, x[0] ** 2 * x[3] - x[2], x[3] ** 2 - x[1]]
            ),
            equals=[0, 0, 0],
        ),
        [2 ** (-1 / 3), 2**-0.5, 2 ** (-11 / 12), 2**-0.25],
        [0.5, -(2 ** (-13 / 12)), 2**-1.5],
    ),
    43: Problem(
        lambda x: (
            x[0] ** 2 + x[1] ** 2 + 2 * x[2] ** 2 + x[3] ** 2
            - 5 * x[0] - 5 * x[1] - 21 * x[2] + 7 * x[3]
        ),
        [0, 0, 0, 0],
        constraint_on(
            lambda x: np.array([
                (x**2).sum() + x[0] - x[1] + x[2] - x[3],
                x[0] ** 2 + 2 * x[1] ** 2 + x[2] ** 2 + 2 * x[3] ** 2 - x[0] - x[3],
                2 * x[0] ** 2 + x[1] ** 2 + x[2] ** 2 + 2 * x[0] - x[1] - x[3],
            ]),
            upper=[8, 10, 5],
        ),
        [0, 1, 2, -1],
        [1, 0, 2],
    ),
    71: Problem(
        lambda x: x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2],
        [1, 5, 5, 1],
        [
            Constraint(lambda x: x[0] * x[1] * x[2] * x[3], lower=25, name="product"),
            Constraint(lambda x: (x**2).sum(), equals=40, name="sphere"),
        ],
        [1, 4.742999637, 3.821149984, 1.379408294],
        [-0.552293660, 0.161468567],
        bounds=(1.0, 5.0),
    ),
}  # fmt: skip


def multipliers_of(result):
    return np.concatenate(list(result.multipliers.values()))


def active_multipliers(problem):
    """Find v by least squares from the gradients at the minimum, bounds of x as constraints."""
    x = np.asarray(problem.minimum, dtype=float)
    functional = problem.functional()
    rows = []
    for constraint in problem.constraints:
        function = constraint.what
        values = np.atleast_1d(function(x))
        rows += [
            Exact(lambda y, f=function, i=i: np.atleast_1d(f(y))[i], x).slope(x)
            for i in range(len(values))
        ]
    fixed = np.zeros(len(x), dtype=bool)
    if problem.bounds is not None:
        low, high = (np.broadcast_to(side, len(x)) for side in problem.bounds)
        fixed = (np.abs(x - low) < 1e-6) | (np.abs(x - high) < 1e-6)
    v = np.zeros(len(rows))
    active = np.array([abs(multiplier) > 0 for multiplier in problem.multipliers])
    if active.any():
        matrix = np.array(rows)[active][:, ~fixed]
        v[active] = np.linalg.lstsq(matrix.T, -functional.slope(x)[~fixed])[0]
    return v


# ---- minima --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("problem", HOCK_SCHITTKOWSKI.values(), ids=HOCK_SCHITTKOWSKI)
def test_known_minimum_and_multipliers_are_found(problem, method):
    functional = problem.functional()
    result = minimize(
        functional, method=method, constraints=problem.constraints, constraint_tolerance=1e-9
    )
    assert result.converged
    x = result.x.getArray()
    np.testing.assert_allclose(x, problem.minimum, atol=5e-7)
    assert result.value == pytest.approx(problem.formula(np.array(problem.minimum)), abs=1e-6)
    np.testing.assert_allclose(multipliers_of(result), active_multipliers(problem), atol=1e-5)
    assert max(result.violation, result.optimality.stationarity) <= 1e-8
    assert result.optimality.complementarity <= 1e-8
    assert result.value == problem.formula(x)
    assert result.evaluations == len(functional.points)


def test_tables_multipliers_are_those_of_the_gradients():
    for problem in HOCK_SCHITTKOWSKI.values():
        np.testing.assert_allclose(active_multipliers(problem), problem.multipliers, atol=1e-8)


def random_program(seed):
    """A convex quadratic with equalities, intervals and bounds, and SciPy's minimum of it."""
    rng = np.random.default_rng(seed)
    n = 6
    root = rng.normal(size=(n, n))
    matrix, linear = root @ root.T + 0.1 * np.eye(n), rng.normal(size=n)
    equal, between = rng.normal(size=(2, n)), rng.normal(size=(3, n))
    inside = rng.uniform(-0.5, 0.5, size=n)
    target, middle = equal @ inside, between @ inside
    sides = middle - 0.1, middle + 0.1
    problem = Problem(
        lambda x: 0.5 * x @ matrix @ x + linear @ x,
        np.zeros(n),
        [
            Constraint(lambda x: equal @ x, equals=target, name="equal"),
            Constraint(lambda x: between @ x, *sides, name="between"),
        ],
        None,
        None,
        bounds=(-0.6, 0.6),
    )
    reference = scipy.optimize.minimize(
        lambda x: 0.5 * x @ matrix @ x + linear @ x,
        np.zeros(n),
        jac=lambda x: matrix @ x + linear,
        method="SLSQP",
        bounds=[(-0.6, 0.6)] * n,
        constraints=[
            {"type": "eq", "fun": lambda x: equal @ x - target, "jac": lambda x: equal},
            {"type": "ineq", "fun": lambda x: between @ x - sides[0], "jac": lambda x: between},
            {"type": "ineq", "fun": lambda x: sides[1] - between @ x, "jac": lambda x: -between},
        ],
        options={"ftol": 1e-13, "maxiter": 300},
    )
    assert reference.success
    return problem, reference.x, np.vstack([equal, between]), (matrix, linear)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_scipy_finds_the_same_minimum(seed, method):
    problem, expected, rows, (matrix, linear) = random_program(seed)
    result = minimize(
        problem.functional(),
        method=method,
        constraints=problem.constraints,
        gradient_tolerance=1e-9,
    )
    assert result.converged
    x = result.x.getArray()
    np.testing.assert_allclose(x, expected, atol=1e-6)
    # multipliers and signs certify the minimum of a convex problem
    slope = matrix @ x + linear + multipliers_of(result) @ rows
    free = np.abs(x) < 0.6 - 1e-5
    np.testing.assert_allclose(slope[free], 0.0, atol=1e-6)
    assert np.all(slope[~free] * x[~free] < 1e-6)
    between = result.constraints["between"]
    assert np.all(between.multiplier[between.value < between.upper - 1e-5] < 1e-6)
    assert np.all(between.multiplier[between.value > between.lower + 1e-5] > -1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_multiplier_is_the_derivative_of_the_minimum_by_the_bound(method):
    def least(level):
        constraint = Constraint(lambda x: x[0] ** 2 + x[1] ** 2, upper=level)
        rosenbrock = Twice(lambda x: 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2, [-1.2, 1])
        return minimize(rosenbrock, method=method, constraints=constraint)

    result, above, below = least(1.5), least(1.501), least(1.499)
    slope = (above.value - below.value) / 0.002
    assert -result.multipliers["constraint 1"][0] == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("units", "of_constraints"), [(1e8, 1.0), (1e-7, 1e-5), (1.0, 1e6)])
def test_units_do_not_matter(method, units, of_constraints):
    problem = HOCK_SCHITTKOWSKI[71]
    plain = minimize(problem.functional(), method=method, constraints=problem.constraints)
    scaled = [
        Constraint(lambda x: of_constraints * x.prod(), lower=25 * of_constraints, name="product"),
        Constraint(lambda x: (x**2).sum(), equals=40, name="sphere"),
    ]
    functional = Twice(lambda x: units * problem.formula(x), problem.start, bounds=problem.bounds)
    result = minimize(functional, method=method, constraints=scaled)
    assert result.converged
    assert abs(result.evaluations - plain.evaluations) <= 0.2 * plain.evaluations
    np.testing.assert_allclose(result.x.getArray(), problem.minimum, atol=1e-6)
    expected = problem.multipliers[0] * units / of_constraints
    assert result.multipliers["product"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_fixed_variables_stay(method):
    functional = Twice(lambda x: (x**2).sum(), [3.0, 1.0, 2.0])
    result = minimize(
        functional,
        method=method,
        bounds=([3.0, -9, -9], [3.0, 9, 9]),
        constraints=Constraint(lambda x: x.sum(), equals=5.0),
    )
    np.testing.assert_allclose(result.x.getArray(), [3.0, 1.0, 1.0], atol=1e-7)


def test_ipopt_never_leaves_the_bounds():
    functional = Twice(lambda x: -np.log(x[0]) + x[1] ** 2, [1.0, 1.0], bounds=(0.0, [9.0, 5.0]))
    result = minimize(
        functional, method="ipopt", constraints=Constraint(lambda x: x[0] + x[1], upper=3.0)
    )
    assert result.converged
    points = np.array(functional.points)
    assert np.all((points > 0.0) & (points < [9.0, 5.0]))
    np.testing.assert_allclose(result.x.getArray(), [3.0, 0.0], atol=1e-7)


def test_upper_bounds_alone_bound_ipopt():
    functional = Twice(lambda x: ((x - 2.0) ** 2).sum(), [0.0, 0.0], bounds=(-math.inf, [1.0, 9.0]))
    result = minimize(
        functional, method="ipopt", constraints=Constraint(lambda x: x[0] - x[1], upper=5.0)
    )
    np.testing.assert_allclose(result.x.getArray(), [1.0, 2.0], atol=1e-7)


# ---- derivatives of constraints ------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_callbacks_for_derivatives_are_used(method):
    used = set()

    def jacobian(x):
        used.add("jacobian")
        return [[2.0 * x[0], 2.0 * x[1]]]

    def hessian(x, v):
        used.add("hessian")
        return 2.0 * v[0] * np.eye(2)

    disc = Constraint(
        lambda x: abs(x[0]) ** 2 + x[1] ** 2, upper=1.5, jacobian=jacobian, hessian=hessian
    )
    functional = Twice(lambda x: (x[0] - 2) ** 2 + (x[1] - 2) ** 2, [0.1, 0.2])
    result = minimize(functional, method=method, constraints=disc)
    np.testing.assert_allclose(result.x.getArray(), math.sqrt(0.75), atol=1e-7)
    assert used == ({"jacobian", "hessian"} if method == "ipopt" else {"jacobian"})


@pytest.mark.parametrize("method", METHODS)
def test_another_functional_may_be_constrained(method):
    functional = Twice(lambda x: x[0] + x[1], [1.0, 0.5])
    disc = Twice(lambda x: (x**2).sum(), [0.0, 0.0])
    result = minimize(functional, method=method, constraints=Constraint(disc, upper=2.0, name="r"))
    np.testing.assert_allclose(result.x.getArray(), [-1.0, -1.0], atol=1e-7)
    assert result.multipliers["r"][0] == pytest.approx(0.5, rel=1e-6)


def test_hessian_products_will_do_for_ipopt():
    class Products(Exact):
        def hessian_product(self, x, dx):
            return self.vector(2.0 * gather(dx))

    functional = Products(lambda x: (x**2).sum(), [3.0, 1.0])
    result = minimize(
        functional, method="ipopt", constraints=Constraint(lambda x: x.sum(), equals=1.0)
    )
    assert result.iterations == 1
    np.testing.assert_allclose(result.x.getArray(), 0.5, rtol=1e-12)


# ---- result, history, stopping -------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_history_agrees_with_the_result(method):
    problem = HOCK_SCHITTKOWSKI[71]
    seen = []
    result = minimize(
        problem.functional(),
        method=method,
        constraints=problem.constraints,
        progress=lambda iterate, x: seen.append((iterate, x.getArray().copy())),
    )
    history = result.history
    assert len(history.value) == result.iterations + 1 == len(seen)
    assert history.value[-1] == result.value
    assert history.violation[-1] == result.violation
    assert history.stationarity[-1] == result.optimality.stationarity
    assert history.evaluations.sum() <= result.evaluations
    steps = np.linalg.norm(np.diff([x for _, x in seen], axis=0), axis=1)
    np.testing.assert_allclose(history.step[1:], steps, rtol=1e-12, atol=1e-15)
    assert [problem.formula(x) for _, x in seen] == list(history.value)


def test_result_prints_itself():
    problem = HOCK_SCHITTKOWSKI[71]
    result = minimize(problem.functional(), method="ipopt", constraints=problem.constraints)
    shape = r"""minimize: converged after 1\d iterations, \S+ s
  reason         stationary and complementary within gradient_tolerance, feasible .*_GATOL\)
  method         ipopt: interior point, second derivatives
  value          \S+ -> 1\.701402e\+01
  stationarity   \S+ \(gradient norm \S+\)
  violation      \S+
  complementary  \S+
  evaluations    1\d
  constraint  lower  value  upper  multiplier
  product        25     25    inf   -0\.552294
  sphere         40     40     40    0\.161469"""
    assert re.fullmatch(shape, str(result))


def test_progress_is_one_aligned_line_per_iterate(capsys):
    problem = HOCK_SCHITTKOWSKI[14]
    result = minimize(
        problem.functional(), method="almm", constraints=problem.constraints, progress=True
    )
    heading, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == result.iterations + 1
    assert {len(line) for line in lines} == {len(heading)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("most", [0, 1, 3])
def test_max_iterations_is_exact(method, most):
    problem = HOCK_SCHITTKOWSKI[43]
    result = minimize(
        problem.functional(), method=method, constraints=problem.constraints, max_iterations=most
    )
    assert (result.iterations, result.reason) == (most, "DIVERGED_MAXITS")
    assert not result.converged
    assert f"NOT converged after {most} iteration{'s' * (most != 1)}," in str(result)


@pytest.mark.parametrize("method", METHODS)
def test_infeasible_constraint_is_named(method):
    constraints = [
        Constraint(lambda x: x[0] + x[1], upper=9.0, name="easy"),
        Constraint(lambda x: x[0] ** 2 + x[1] ** 2, upper=-1.0, name="impossible"),
    ]
    functional = Twice(lambda x: (x**2).sum(), [1.0, 2.0])
    result = minimize(functional, method=method, constraints=constraints, max_iterations=60)
    assert not result.converged
    assert '"impossible" = ' in result.message or result.reason == "DIVERGED_USER"
    assert result.constraints["impossible"].value[0] > -1e-6


def test_best_point_is_returned_when_a_search_ends_early():
    problem = HOCK_SCHITTKOWSKI[39]
    result = minimize(
        problem.functional(), method="ipopt", constraints=problem.constraints, max_iterations=8
    )
    history = result.history
    worst = np.maximum(history.stationarity, np.maximum(history.violation, history.complementarity))
    assert max(result.optimality.stationarity, result.violation) == worst.min()


def test_start_at_the_minimum_takes_no_iteration():
    problem = HOCK_SCHITTKOWSKI[21]
    result = minimize(
        problem.functional(), [2.0, 0.0], method="almm", constraints=problem.constraints
    )
    assert (result.iterations, result.evaluations) == (0, 1)
    assert result.converged


# ---- options -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_options_reach_tao():
    problem = HOCK_SCHITTKOWSKI[71]
    extra = {"constraints": problem.constraints}
    default = minimize(problem.functional(), method="almm", **extra)
    other = minimize(
        problem.functional(),
        method="almm",
        options={"tao_almm_subsolver_tao_type": "bncg"},
        **extra,
    )
    assert default.converged
    assert other.converged
    assert other.evaluations != default.evaluations
    few = minimize(problem.functional(), method="almm", options={"tao_max_funcs": 12}, **extra)
    assert few.reason == "DIVERGED_MAXFCN"
    assert "more than tao_max_funcs" in str(few)


def test_options_reach_ipopt():
    problem = HOCK_SCHITTKOWSKI[71]
    extra = {"method": "ipopt", "constraints": problem.constraints}
    short = minimize(problem.functional(), options={"max_iter": 2}, **extra)
    assert (short.iterations, short.reason) == (2, "DIVERGED_MAXITS")
    assert "IPOPT ended: Maximum Iterations Exceeded" in str(short)
    plain = minimize(problem.functional(), **extra)
    adaptive = minimize(problem.functional(), options={"mu_strategy": "adaptive"}, **extra)
    assert adaptive.converged
    assert list(adaptive.history.value) != list(plain.history.value)
    with pytest.raises(OptionError, match="No such IPOPT option: mu_stategy"):
        minimize(problem.functional(), options={"mu_stategy": "adaptive"}, **extra)


def test_ipopt_is_asked_for_before_the_first_evaluation(monkeypatch):
    functional = HOCK_SCHITTKOWSKI[6].functional()
    monkeypatch.setitem(sys.modules, "casadi", None)
    with pytest.raises(InputError, match=r'"ipopt" needs CasADi(.|\n)*pip install casadi'):
        minimize(functional, method="ipopt", constraints=HOCK_SCHITTKOWSKI[6].constraints)
    assert functional.points == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tao_gatoll": 1e-3}, "tao_gatoll"),
        ({"ts_dt": 1}, "ts_dt = 1"),
        ({"tao_type": "lmvm"}, 'option tao_type = lmvm with method "almm"'),
        ({"tao_almm_type": "nonsense"}, "PETSc option tao_almm_type = nonsense: "),
        ({"tao_almm_type": "classic"}, 'tao_almm_type = classic(.|\n)*"phr"'),
    ],
)
def test_options_nobody_can_use_are_errors(options, message):
    problem = HOCK_SCHITTKOWSKI[6]
    with pytest.raises(InputError, match=message):
        minimize(
            problem.functional(), method="almm", constraints=problem.constraints, options=options
        )


# ---- failed solves -------------------------------------------------------------------------------

DOMAINS = {
    "half plane": lambda x: -1.25 < x[0] < 1.0,
    "disc": lambda x: np.hypot(*x) < 1.6,
    "narrow box": lambda x: np.all(np.abs(x) < 1.21),
    "outside a disc": lambda x: np.hypot(x[0] + 0.2, x[1] - 0.75) > 0.3,
}
DISC_MINIMUM = [0.9072339605, 0.8227554566]


def rosenbrock(x):
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_failed_solves_are_survived(domain, method):
    functional = Twice(rosenbrock, [-1.2, 1], domain=domain)
    disc = Constraint(lambda x: x[0] ** 2 + x[1] ** 2, upper=1.5)
    result = minimize(functional, method=method, constraints=disc)
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), DISC_MINIMUM, atol=1e-7)
    failed = sum(not domain(point) for point in functional.points)
    assert result.failed_solves == failed
    assert (f"{failed} of them failed solves" in str(result)) == (failed > 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("hole", [1, 2, 3, 5])
def test_a_hole_at_a_trial_point_is_walked_around(method, hole):
    problem = HOCK_SCHITTKOWSKI[71]
    undisturbed = problem.functional()
    minimize(undisturbed, method=method, constraints=problem.constraints)
    middle = undisturbed.points[hole + (method == "ipopt")]
    functional = problem.functional(domain=lambda x: np.linalg.norm(x - middle) > 1e-3)
    result = minimize(functional, method=method, constraints=problem.constraints)
    assert result.converged
    assert result.failed_solves > 0
    np.testing.assert_allclose(result.x.getArray(), problem.minimum, atol=5e-7)


@pytest.mark.parametrize("method", METHODS)
def test_best_point_survives_where_no_step_leads_on(method):
    functional = Twice(rosenbrock, [-1.2, 1], domain=lambda x: np.hypot(*x) < 1.6)
    curve = Constraint(lambda x: x[0] + x[1] ** 2, equals=1)
    result = minimize(functional, method=method, constraints=curve)
    assert not result.converged
    assert re.search("no step leads on: no solution at|no better point", result.message)
    assert result.failed_solves > 0
    assert functional.domain(result.x.getArray())
    assert result.evaluations < (500 if method == "almm" else 2000)  # IPOPT halves on
    assert result.violation < result.history.violation[0]


@pytest.mark.parametrize("method", METHODS)
def test_failure_at_the_start_is_an_error(method):
    functional = Twice(rosenbrock, [-1.2, 1], domain=lambda x: False)
    with pytest.raises(
        SolveError, match=r"cannot be evaluated at the start: no solution at -1\.20"
    ):
        minimize(functional, method=method, constraints=constraint_on(lambda x: x[0], upper=1.0))


def test_failure_inside_the_bounds_is_an_error_for_ipopt():
    functional = Twice(rosenbrock, [-1.2, 1], bounds=(-1.2, 2.0), domain=lambda x: x[0] == -1.2)
    with pytest.raises(SolveError, match="at the start moved inside its bounds: no solution"):
        minimize(functional, method="ipopt", constraints=constraint_on(lambda x: x[0], upper=1.0))


def test_value_that_is_not_finite_is_a_failed_solve():
    with np.errstate(invalid="ignore"):
        functional = Twice(lambda x: (x - np.log(x)).sum(), [0.3, 5.0])
        result = minimize(
            functional, method="almm", constraints=constraint_on(lambda x: x[0] * x[1], lower=2.0)
        )
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), math.sqrt(2.0), atol=1e-6)


def test_line_search_that_cannot_come_back_says_so():
    functional = Twice(rosenbrock, [-1.2, 1], domain=lambda x: x[0] < -1.19)
    with pytest.raises(SolveError, match='line search "unit" cannot come back: no solution at'):
        minimize(
            functional,
            method="almm",
            constraints=constraint_on(lambda x: x[0] + x[1], equals=1.0),
            options={"tao_almm_subsolver_tao_ls_type": "unit"},
        )


def test_problem_without_a_minimum_ends():
    functional = Twice(lambda x: -(x[0] ** 4) + x[1], [1.0, 1.0])
    result = minimize(
        functional, method="almm", constraints=constraint_on(lambda x: x[1], lower=0.0)
    )
    assert not result.converged
    assert "no minimum" in result.message or "no step leads on" in result.message


# ---- exceptions ----------------------------------------------------------------------------------


class PrivateError(Exception):
    pass


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("when", [1, 2, 4])
@pytest.mark.parametrize("where", ["formula", "constraint"])
def test_exceptions_come_out_as_raised(method, when, where):
    problem = HOCK_SCHITTKOWSKI[71]
    functional = problem.functional()

    def faulty(function):
        def call(x):
            if len(functional.points) >= when:
                raise PrivateError(when)
            return function(x)

        return call

    constraints = problem.constraints
    if where == "formula":
        functional.formula = faulty(functional.formula)
    else:
        constraints = constraint_on(faulty(lambda x: x.sum()), equals=12.0)
    with pytest.raises(PrivateError) as caught:
        minimize(functional, method=method, constraints=constraints)
    assert caught.value.args == (when,)


# ---- bad input -----------------------------------------------------------------------------------

SUM = Constraint(lambda x: x.sum(), upper=1.0, name="sum")
BAD = {
    "lmvm": ({"method": "lmvm"}, 'method "lmvm" takes no constraints; try: "almm", "ipopt"'),
    "misspelt": ({"method": "alm"}, "unknown method 'alm'; .*try: \"almm\""),
    "none": ({"constraints": None}, 'method "almm" needs constraints='),
    "empty": ({"constraints": []}, r"constraints = \[\]"),
    "other": ({"constraints": [SUM, 3]}, r"constraints\[1\] is a int"),
    "twice": ({"constraints": [SUM, SUM]}, 'two constraints are called "sum"'),
    "outside": ({"bounds": (-1, 1)}, r"start\(\) = -1\.2 at index 0 lies outside its bounds"),
    "tolerance": ({"constraint_tolerance": -1.0}, "constraint_tolerance = -1.0"),
    "unused": ({"value_tolerance": 1e-3}, "value_tolerance does nothing with constraints"),
    "output": (
        {
            "constraints": Constraint(
                type("O", (), {"lower": 0, "times": ()})(), upper=1.0, name="o"
            )
        },
        'constraint "o" is on an output of a run, but the functional is a Twice',
    ),
    "names": (
        {"constraints": Constraint(lambda p: p[0], upper=1.0, parameters=["a"], name="n")},
        'constraint "n" names parameters, but the functional has none',
    ),
    "components": (
        {"constraints": Constraint(lambda x: x, upper=[1.0, 2.0, 3.0], name="c")},
        r'constraint "c" has 2 components, but upper has shape \(3,\)',
    ),
    "matrix": (
        {"constraints": Constraint(lambda x: np.outer(x, x), upper=1.0, name="m")},
        r'constraint "m" returned float64 values of shape \(2, 2\)',
    ),
    "nan": (
        {"constraints": Constraint(lambda x: x * math.nan, upper=1.0, name="n")},
        r'constraint "n" is \[nan nan\] at the start',
    ),
    "size": (
        {"constraints": Constraint(Exact(rosenbrock, [1.0, 2.0, 3.0]), upper=1.0, name="f")},
        r'constraint "f" is on a functional of 3 variables',
    ),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named_before_the_first_evaluation(arguments, message):
    functional = Twice(rosenbrock, [-1.2, 1])
    with pytest.raises(InputError, match=message):
        minimize(functional, **{"method": "almm", "constraints": SUM, **arguments})
    assert functional.points == []


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (Constraint(lambda x: x, upper=1, jacobian=lambda x: np.eye(3)), r"jacobian .* \(3, 3\)"),
        (
            Constraint(lambda x: x[0], upper=1, hessian=lambda x, v: np.eye(3)),
            r"hessian .* \(3, 3\)",
        ),
        (Constraint(lambda x: float(x[0]) * x[1], upper=1), "cannot be differentiated"),
    ],
)
def test_wrong_derivatives_are_named(constraint, message):
    with pytest.raises(InputError, match=message):
        minimize(Twice(rosenbrock, [-1.2, 1]), method="ipopt", constraints=constraint)


def test_components_may_not_change_their_number():
    functional = Twice(rosenbrock, [-1.2, 1])
    changing = Constraint(lambda x: x[: 1 + (len(functional.points) > 3)], upper=-0.5)
    with pytest.raises(InputError, match=r"returned .* of shape \(2,\)"):
        minimize(functional, method="almm", constraints=changing)


def test_ipopt_without_second_derivatives_names_almm():
    functional = Exact(rosenbrock, [-1.2, 1])
    with pytest.raises(UnsupportedError, match=r'functional \(Exact\) has no second(.|\n)*"almm"'):
        minimize(functional, method="ipopt", constraints=SUM)
    other = Constraint(Exact(rosenbrock, [-1.2, 1]), upper=1.0, name="other")
    with pytest.raises(UnsupportedError, match=r'constraint "other" .* has no second'):
        minimize(Twice(rosenbrock, [-1.2, 1]), method="ipopt", constraints=other)
    assert functional.points == []


def test_what_check_second_order_refuses_comes_out():
    class Refusing(Twice):
        def check_second_order(self):
            raise UnsupportedError("rhs_uu is missing")

    with pytest.raises(UnsupportedError, match="rhs_uu is missing"):
        minimize(Refusing(rosenbrock, [-1.2, 1]), method="ipopt", constraints=SUM)


def test_ipopt_refuses_large_problems():
    functional = Twice(lambda x: (x**2).sum(), np.ones(2100))
    with pytest.raises(UnsupportedError, match=r'about 2101 rows(.|\n)*"almm"'):
        minimize(functional, method="ipopt", constraints=SUM)


# ---- several ranks -------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number", [7, 14, 35, 43, 71])
def test_same_minimum_on_any_number_of_ranks(number, method):
    problem = HOCK_SCHITTKOWSKI[number]
    extra = {"method": method, "constraints": problem.constraints}
    spread = minimize(problem.functional(comm=PETSc.COMM_WORLD), **extra)
    alone = minimize(problem.functional(), **extra)
    assert spread.converged
    np.testing.assert_allclose(gather(spread.x), alone.x.getArray(), atol=2e-8)
    np.testing.assert_allclose(multipliers_of(spread), multipliers_of(alone), rtol=1e-6, atol=1e-7)
    n = min(len(spread.history.value), len(alone.history.value), 5)
    np.testing.assert_allclose(spread.history.value[:n], alone.history.value[:n], rtol=1e-7)
    numbers = (spread.iterations, spread.evaluations, spread.value, spread.violation)
    assert len(set(MPI.COMM_WORLD.allgather(numbers))) == 1


@pytest.mark.mpi
@pytest.mark.parametrize("method", METHODS)
def test_failed_solves_on_any_number_of_ranks(method):
    functional = Twice(rosenbrock, [-1.2, 1], domain=DOMAINS["narrow box"], comm=PETSc.COMM_WORLD)
    disc = Constraint(lambda x: x[0] ** 2 + x[1] ** 2, upper=1.5)
    result = minimize(functional, method=method, constraints=disc)
    assert result.converged
    np.testing.assert_allclose(gather(result.x), DISC_MINIMUM, atol=1e-7)


@pytest.mark.mpi
def test_progress_is_written_by_rank_0_only(capfd):
    functional = HOCK_SCHITTKOWSKI[14].functional(comm=PETSc.COMM_WORLD)
    minimize(
        functional, method="ipopt", constraints=HOCK_SCHITTKOWSKI[14].constraints, progress=True
    )
    assert bool(capfd.readouterr().out) == (MPI.COMM_WORLD.rank == 0)


# ---- memory --------------------------------------------------------------------------------------

LEAK = """
from tests.optimize.test_constrained import *
problem = HOCK_SCHITTKOWSKI[71]
for method in METHODS:
    for most in (0, 1000):
        result = minimize(
            problem.functional(),
            method=method,
            constraints=problem.constraints,
            max_iterations=most,
        )
        result.x.destroy()
    try:
        minimize(
            problem.functional(),
            method=method,
            constraints=problem.constraints,
            progress=lambda iterate, x: 1 / 0,
        )
    except ZeroDivisionError:
        pass
del result
"""


@pytest.mark.slow
def test_no_petsc_object_is_left_behind():
    assert left_behind(LEAK) == []
