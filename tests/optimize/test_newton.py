"""Newton methods: exact Hessians, quadratic convergence, preconditioners, failed solves."""

import itertools
import traceback

import numpy as np
import pytest
from closed import TARGET, Closed, Curved, N, mixed, quadratic, rosenbrock, rosenbrock_hessian
from leaks import left_behind
from mpi4py import MPI
from petsc4py import PETSc

from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
from daeosens.errors import InputError, SolveError, UnsupportedError
from daeosens.optimize import minimize
from daeosens.optimize.methods import NEWTON, UNBOUNDED
from daeosens.optimize.tao.newton import forcing
from daeosens.petsc import gather

BOUNDED = [name for name in NEWTON if name not in UNBOUNDED]
INVERSES = ["dense", "none", "lmvm"]


def soft(x):
    """Rosenbrock's chain with weight 10: gradients round below 1e-13."""
    return rosenbrock(x, weight=10.0)


def soft_hessian(x):
    return rosenbrock_hessian(x, weight=10.0)


def valley(n=20, **extra):
    return Curved(soft, np.full(n, 0.5), hessian=soft_hessian, **extra)


def assert_quadratic(norms):
    """Each of the last reductions at least squares the relative gradient norm, up to a factor."""
    late = norms[norms < 1e-1 * norms[0]]
    assert len(late) >= 2
    for before, after in itertools.pairwise(late):
        assert after <= max(300.0 * before**2, 2e-13)


# ---- convergence ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", NEWTON)
@pytest.mark.parametrize("inverse", ["dense", "none"])
def test_final_convergence_is_quadratic(method, inverse):
    functional = valley()
    result = minimize(functional, method=method, gradient_tolerance=1e-13, preconditioner=inverse)
    assert result.reason == "CONVERGED_GATOL"
    assert result.gradient_norm <= 1e-13
    assert result.iterations <= 20
    assert_quadratic(result.history.gradient_norm)
    np.testing.assert_allclose(result.x.getArray(), 1.0, atol=1e-13)
    assert result.hessian_products >= functional.n_products > 0
    assert result.hessian_products == result.history.hessian_products.sum()
    assert np.all(result.history.hessian_products[1:] > 0)


@pytest.mark.parametrize("method", BOUNDED)
@pytest.mark.parametrize("inverse", INVERSES)
def test_final_convergence_within_bounds_is_quadratic(method, inverse):
    upper = np.where(np.arange(20) % 7 == 3, 0.8, 2.0)
    functional = valley(bounds=(-1.0, upper))
    result = minimize(functional, method=method, gradient_tolerance=1e-13, preconditioner=inverse)
    assert result.gradient_norm <= 1e-13
    assert result.iterations <= 15
    x = result.x.getArray()
    gradient = soft(x)[1]
    active = x == upper
    assert active.sum() == 3
    assert np.all(gradient[active] < -1e-2)
    assert np.abs(gradient[~active]).max() < 1e-13
    if inverse != "lmvm":
        assert_quadratic(result.history.gradient_norm)


@pytest.mark.parametrize("method", BOUNDED)
@pytest.mark.parametrize("inverse", INVERSES)
@pytest.mark.parametrize("start", [2.5, 2.0 + 1e-4 / 3.0, 2.0])
def test_minimum_at_a_corner_is_found(method, inverse, start):
    functional = Curved(quadratic, np.full(N, start), bounds=(2.0, 3.0))
    result = minimize(functional, method=method, preconditioner=inverse)
    assert result.converged
    np.testing.assert_array_equal(result.x.getArray(), 2.0)
    assert result.gradient_norm == 0.0


@pytest.mark.parametrize("method", NEWTON)
def test_newton_needs_far_fewer_iterations_than_bfgs(method):
    newton = minimize(valley(), method=method, gradient_tolerance=1e-10)
    bfgs = minimize(valley(), method="lmvm", gradient_tolerance=1e-10)
    assert 3 * newton.iterations < bfgs.iterations


@pytest.mark.parametrize("method", NEWTON)
@pytest.mark.parametrize("inverse", INVERSES)
def test_negative_curvature_is_left(method, inverse):
    """J = sum (x^2 - 1)^2 / 4 has a maximum near the start; minima at -1 and 1."""

    def wells(x):
        return np.sum((x * x - 1.0) ** 2) / 4.0, x**3 - x

    functional = Curved(wells, [0.1, -0.2, 0.3], hessian=lambda x: np.diag(3.0 * x * x - 1.0))
    result = minimize(functional, method=method, preconditioner=inverse)
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), [1.0, -1.0, 1.0], atol=1e-8)


@pytest.mark.parametrize("method", NEWTON)
def test_quadratic_takes_one_step_with_a_direct_solve(method):
    functional = Curved(quadratic, np.zeros(N))
    result = minimize(functional, method=method, gradient_tolerance=1e-12)
    assert result.iterations == 1
    assert result.hessian_products == N
    np.testing.assert_allclose(result.x.getArray(), TARGET, atol=1e-13)


@pytest.mark.parametrize("method", NEWTON)
@pytest.mark.parametrize("factor", [2.0**-60, 2.0**60])
def test_iterates_do_not_depend_on_the_unit_of_the_value(method, factor):
    def scaled(x):
        value, gradient = soft(x)
        return factor * value, factor * gradient

    plain = minimize(
        valley(), method=method, gradient_tolerance=0.0, relative_gradient_tolerance=1e-9
    )
    functional = Curved(scaled, np.full(20, 0.5), hessian=lambda x: factor * soft_hessian(x))
    result = minimize(
        functional, method=method, gradient_tolerance=0.0, relative_gradient_tolerance=1e-9
    )
    np.testing.assert_array_equal(result.x.getArray(), plain.x.getArray())
    np.testing.assert_array_equal(result.history.value, factor * plain.history.value)


@pytest.mark.parametrize("method", NEWTON)
def test_rounding_is_recognised(method):
    functional = Curved(mixed, np.full(9, 0.5))
    functional.formula = lambda x: tuple(map(np.add, mixed(x), (7.0, 1e-15 * np.sin(1e9 * x))))
    result = minimize(functional, method=method, gradient_tolerance=0.0)
    assert result.gradient_norm < 1e-12
    assert result.iterations < 40
    assert not result.converged
    assert "rounding reached" in result.message


def test_gauss_newton_is_a_choice_of_its_own():
    functional = Closed(quadratic, np.zeros(N))
    functional.gauss_newton_product = lambda x, dx: functional.vector(
        (1.0 + np.arange(N) ** 2) * gather(dx)
    )
    result = minimize(functional, method="nls", hessian="gauss_newton")
    assert result.iterations == 1


def squares(residual, jacobian, start, **extra):
    """Return |r|^2 / 2 with its Gauss-Newton matrix."""

    def formula(x):
        return 0.5 * residual(x) @ residual(x), jacobian(x).T @ residual(x)

    functional = Closed(formula, start, **extra)
    functional.gauss_newton_matrix = lambda x: jacobian(gather(x)).T @ jacobian(gather(x))
    functional.gauss_newton_product = lambda x, dx: functional.vector(
        functional.gauss_newton_matrix(x) @ gather(dx)
    )
    return functional


@pytest.mark.parametrize("unit", [1.0, 1e-9, 2.0**40])
def test_gauss_newton_steps_go_no_farther_than_ten_times_the_own_size(unit):
    """Where the residual hardly changes: a whole step would be a million times as long as x."""
    slope = np.array([[1e-6 / unit]])
    functional = squares(lambda x: slope @ x - 1.0, lambda x: slope, [unit])
    points = []
    result = minimize(
        functional,
        method="bntr",
        hessian="gauss_newton",
        gradient_tolerance=0.0,
        relative_gradient_tolerance=1e-12,
        progress=lambda _, x: points.append(gather(x)[0] / unit),
    )
    assert result.converged
    assert points[-1] == pytest.approx(1e6, rel=1e-12)
    assert points[1] == pytest.approx(11.0, rel=1e-4)
    sizes = np.maximum(points[:-1], 1.0)
    assert np.all(np.diff(points) <= 10.0 * sizes * (1.0 + 1e-9))
    assert len(points) <= 14


def test_what_a_bound_holds_back_does_not_slow_gauss_newton_down():
    """Its gradient stays, that of the other unknown falls quadratically."""
    functional = squares(
        lambda x: np.array([x[0] + 20.0, np.exp(x[1]) - 2.0]),
        lambda x: np.array([[1.0, 0.0], [0.0, np.exp(x[1])]]),
        [1.0, 1.0],
        bounds=(0.0, 10.0),
    )
    result = minimize(functional, method="bntr", hessian="gauss_newton", gradient_tolerance=1e-13)
    assert result.converged
    assert result.iterations <= 8
    np.testing.assert_allclose(gather(result.x), [0.0, np.log(2.0)], atol=1e-14)


def test_dense_hessian_of_the_functional_is_taken():
    functional = valley(5)
    functional.hessian = lambda x: soft_hessian(gather(x))
    result = minimize(functional, method="ntr")
    assert result.converged
    assert functional.n_products == 0
    assert result.hessian_products == 5 * result.iterations


# ---- Krylov --------------------------------------------------------------------------------------

STEEP = np.logspace(0.0, 4.0, 40)
TURN = np.linalg.qr(np.random.default_rng(3).normal(size=(40, 40)))[0]
MATRIX = TURN @ np.diag(STEEP) @ TURN.T


def ill_conditioned(comm=PETSc.COMM_SELF, **extra):
    return Curved(
        lambda x: (0.5 * x @ MATRIX @ x + 0.25 * np.sum(x**4), MATRIX @ x + x**3),
        np.ones(40),
        hessian=lambda x: MATRIX + np.diag(3.0 * x * x),
        comm=comm,
        **extra,
    )


def inverse_mat(like):
    inverse = np.linalg.inv(MATRIX)
    mat = PETSc.Mat().createDense((like.getSizes(), like.getSizes()), comm=like.comm)
    mat.getDenseArray()[...] = inverse[slice(*like.getOwnershipRange())]
    mat.assemble()
    return mat


@pytest.mark.mpi
@pytest.mark.parametrize("method", NEWTON)
def test_user_preconditioner_saves_products(method, comm):
    functional = ill_conditioned(PETSc.COMM_WORLD)
    extra = {"method": method, "gradient_tolerance": 1e-9}
    plain = minimize(functional, preconditioner="none", **extra)
    mat = inverse_mat(functional.start())
    by_mat = minimize(functional, preconditioner=mat, **extra)
    points = []

    def inverse(x, r):
        points.append(gather(x))
        return functional.vector(np.linalg.solve(MATRIX + np.diag(3.0 * gather(x) ** 2), gather(r)))

    followed = minimize(functional, preconditioner=inverse, **extra)
    assert plain.converged
    assert by_mat.converged
    assert followed.converged
    assert 8 * by_mat.hessian_products < plain.hessian_products
    assert followed.hessian_products <= 3 * followed.iterations
    assert len(np.unique(points, axis=0)) == followed.iterations


@pytest.mark.mpi
@pytest.mark.parametrize("method", BOUNDED)
def test_user_preconditioner_where_bounds_are_active(method, comm):
    functional = ill_conditioned(PETSc.COMM_WORLD, bounds=(0.1, 2.0))
    inverse = functional.vector(1.0 / np.diag(MATRIX))
    calls = []

    def diagonal(x, r):
        calls.append(np.count_nonzero(gather(r)))
        result = r.duplicate()
        result.pointwiseMult(inverse, r)
        return result

    extra = {"method": method, "gradient_tolerance": 1e-9}
    result = minimize(functional, preconditioner=diagonal, **extra)
    direct = minimize(functional, preconditioner="dense", **extra)
    assert result.converged
    assert direct.converged
    np.testing.assert_allclose(gather(result.x), gather(direct.x), atol=1e-9)
    assert np.sum(gather(result.x) == 0.1) > 3
    assert min(calls) < 40


def test_option_of_the_krylov_solver_wins():
    loose = minimize(
        valley(), method="bnls", preconditioner="none", options={"tao_bnk_ksp_rtol": 0.5}
    )
    tight = minimize(valley(), method="bnls", preconditioner="none")
    assert loose.converged
    assert loose.iterations > tight.iterations


def test_forcing_neither_solves_too_well_nor_too_badly():
    assert forcing(1.0, 1.0, 0.0) == 1e-2
    assert forcing(1.0, 1e-5, 0.0) == 1e-5
    assert forcing(1.0, 1e-5, 1e-8) == pytest.approx(1e-4)
    assert forcing(1.0, 1e-14, 0.0) == 1e-12
    assert forcing(0.0, 0.0, 0.0) == 1e-2


# ---- failed solves, exceptions -------------------------------------------------------------------

DOMAINS = {
    "half plane": lambda x: x[0] > -1.25 and x[0] < 1.05,
    "disc": lambda x: np.hypot(*x) < 1.6,
    "narrow box": lambda x: np.all(np.abs(x) < 1.21),
    "outside a disc": lambda x: np.hypot(x[0] + 0.2, x[1] - 0.75) > 0.3,
}


@pytest.mark.parametrize("method", NEWTON)
@pytest.mark.parametrize("inverse", INVERSES)
@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_failed_solves_are_survived(method, inverse, domain):
    functional = Curved(rosenbrock, [-1.2, 1.0], domain=domain)
    result = minimize(functional, method=method, preconditioner=inverse)
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), 1.0, atol=1e-6)
    distinct = np.unique([point for point in functional.points if not domain(point)], axis=0)
    assert len(distinct) <= result.failed_solves <= result.evaluations
    assert np.all(np.diff(result.history.value) < 0.0)


@pytest.mark.parametrize("method", NEWTON)
def test_failure_of_the_first_step_is_survived_and_counted(method):
    functional = Curved(quadratic, np.zeros(N), domain=lambda x: np.abs(x).max() < 1.2)
    functional.formula = quadratic
    result = minimize(functional, method=method, max_iterations=30)
    assert result.failed_solves > 0
    assert result.value < 0.9 * result.history.value[0]
    assert np.abs(result.x.getArray()).max() < 1.2
    failed = sum(np.abs(point).max() >= 1.2 for point in functional.points)
    assert result.failed_solves == failed


@pytest.mark.parametrize("method", NEWTON)
@pytest.mark.parametrize("when", [1, 2, 6])
def test_exceptions_come_out_as_raised(method, when):
    def faulty_formula(x):
        if len(functional.points) == when:
            raise ZeroDivisionError(when)
        return rosenbrock(x)

    functional = Curved(rosenbrock, [-1.2, 1.0])
    functional.formula = faulty_formula
    with pytest.raises(ZeroDivisionError) as caught:
        minimize(functional, method=method)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "faulty_formula"
    functional.formula = rosenbrock
    assert minimize(functional, method=method).converged


@pytest.mark.parametrize("method", NEWTON)
@pytest.mark.parametrize("inverse", ["dense", "none"])
def test_exceptions_of_products_come_out_as_raised(method, inverse):
    functional = valley()

    def product(x, dx):
        raise SolveError("no second order here")

    functional.hessian_product = product
    with pytest.raises(SolveError, match="no second order here"):
        minimize(functional, method=method, preconditioner=inverse)
    functional.hessian_product = lambda x, dx: functional.vector(np.nan)
    with pytest.raises(SolveError, match="product with the Hessian is not finite"):
        minimize(functional, method=method, preconditioner=inverse)


def test_exceptions_of_preconditioners_come_out_as_raised():
    with pytest.raises(ZeroDivisionError) as caught:
        minimize(valley(), method="bnls", preconditioner=lambda x, r: 1 / 0)
    assert "in callback 'preconditioner'" in caught.value.__notes__[0]


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", NEWTON)
def test_functional_without_hessian_is_refused_before_the_first_evaluation(method):
    functional = Closed(rosenbrock, [-1.2, 1.0])
    with pytest.raises(UnsupportedError) as caught:
        minimize(functional, method=method)
    assert str(caught.value).startswith(
        f'hessian="exact" of method "{method}" needs hessian_product, which Closed lacks'
    )
    assert 'try: method "lmvm", "blmvm"' in str(caught.value)
    functional.gauss_newton_product = lambda x, dx: dx
    with pytest.raises(UnsupportedError, match='or hessian="gauss_newton"'):
        minimize(functional, method=method)
    assert functional.points == []


def test_missing_second_derivatives_are_told_before_the_first_evaluation():
    def check():
        raise UnsupportedError("f_uu is missing")

    functional = valley()
    functional.check_second_order = check
    with pytest.raises(UnsupportedError, match="f_uu is missing"):
        minimize(functional, method="bntr")
    assert functional.points == []
    functional.gauss_newton_product = functional.hessian_product
    assert minimize(functional, method="bntr", hessian="gauss_newton").converged


BAD = {
    "bounds": (
        {"method": "ntr", "bounds": (-2, 2)},
        'method "ntr" ignores bounds, .*try: "bnls", "bntr", "bntl"',
    ),
    "hessian": (
        {"method": "nls", "hessian": "inexact"},
        "hessian = 'inexact'; expected: \"exact\"",
    ),
    "inverse": ({"method": "nls", "preconditioner": "ilu"}, "preconditioner = 'ilu'"),
    "number": ({"method": "nls", "preconditioner": 3}, "preconditioner = 3"),
    "unused": ({"preconditioner": "none"}, 'preconditioner: not used by method "lmvm"'),
    "unused too": ({"hessian": "gauss_newton"}, 'hessian: not used by method "lmvm"'),
    "decrease": ({"predicted_decrease_tolerance": 1e-3}, "predicted_decrease_tolerance: not used"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named_before_the_first_evaluation(arguments, message):
    functional = valley()
    with pytest.raises(InputError, match=message):
        minimize(functional, **arguments)
    assert functional.points == []


def test_preconditioner_of_another_size_is_refused():
    mat = PETSc.Mat().createDense((3, 3), comm=PETSc.COMM_SELF)
    with pytest.raises(InputError, match=r"Mat of \(3, 3\) in another layout(.|\n)*20 rows"):
        minimize(valley(), method="nls", preconditioner=mat)


# ---- several ranks -------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("method", NEWTON)
@pytest.mark.parametrize("inverse", INVERSES)
def test_same_history_on_any_number_of_ranks(method, inverse):
    start = np.linspace(-0.5, 0.8, N)
    extra = {"method": method, "preconditioner": inverse, "gradient_tolerance": 1e-11}
    if method in BOUNDED:
        extra["bounds"] = (-2.0, [0.7] + [3.0] * (N - 1))
    spread = minimize(Curved(mixed, start, comm=PETSc.COMM_WORLD), **extra)
    alone = minimize(Curved(mixed, start), **extra)
    assert spread.converged
    assert alone.converged
    np.testing.assert_allclose(gather(spread.x), alone.x.getArray(), rtol=0, atol=1e-9)
    n = min(len(spread.history.value), len(alone.history.value)) - 1
    # on one rank, with x0 changed by 1e-15, "lmvm" with "bntl" differs by 1e-5 from iterate 5 on
    n = min(n, 4) if inverse == "lmvm" else n
    np.testing.assert_allclose(
        spread.history.value[:n], alone.history.value[:n], rtol=1e-7, atol=1e-13
    )
    numbers = (spread.iterations, spread.evaluations, spread.value, spread.hessian_products)
    assert len(set(MPI.COMM_WORLD.allgather(numbers))) == 1


@pytest.mark.mpi
@pytest.mark.parametrize("method", NEWTON)
def test_failed_solves_on_any_number_of_ranks(method):
    def domain(x):
        return np.abs(x).max() < 1.2

    functional = Curved(quadratic, np.zeros(N), domain=domain, comm=PETSc.COMM_WORLD)
    result = minimize(functional, method=method, max_iterations=10)
    assert result.failed_solves > 0
    assert domain(gather(result.x))
    numbers = (result.iterations, result.evaluations, result.failed_solves, result.value)
    assert len(set(MPI.COMM_WORLD.allgather(numbers))) == 1


# ---- an ODE --------------------------------------------------------------------------------------


class Differenced:
    """A reduced functional with products by central differences of its adjoint gradient."""

    def __init__(self, reduced):
        self.reduced = reduced

    def __getattr__(self, name):
        return getattr(self.reduced, name)

    def hessian_product(self, x, dx):
        h = 1e-5 / dx.norm()
        sides = [self.reduced.gradient(x + sign * h * dx) for sign in (1.0, -1.0)]
        return (sides[0] - sides[1]) / (2.0 * h)


@pytest.mark.slow
@pytest.mark.parametrize("method", NEWTON)
def test_parameters_of_an_ode_are_recovered(method):
    times = np.linspace(0.5, 5.0, 10)
    exact = 1.0 / (1.0 + 9.0 * np.exp(-1.5 * times))
    growth = ODE(
        lambda t, u, p: p[0] * u * (1.0 - u / p[1]), size=1, parameters=["rate", "capacity"]
    )
    reduced = Reduced(
        growth,
        LeastSquares(times, exact),
        Stepping((0.0, 5.0), "rk4", dt=0.1),
        Parameters({"rate": Parameter(0.7), "capacity": Parameter(1.6)}, initial_state=[0.1]),
    )
    result = minimize(Differenced(reduced), method=method, gradient_tolerance=1e-10)
    assert result.converged
    assert result.iterations <= 15
    np.testing.assert_allclose(result.x.getArray(), [1.5, 1.0], rtol=1e-4)
    # a trust region's value and gradient, and the products, share what they can
    products = 2 * result.hessian_products
    assert reduced.count.forward <= result.evaluations + products + result.iterations


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", NEWTON)
def test_gradient_that_does_not_exist_where_the_value_does_is_a_failed_point(method):
    def formula(x):
        value, gradient = rosenbrock(x)
        return value, gradient * np.nan if np.hypot(*x) > 1.5 else gradient

    functional = Curved(formula, [-1.0, 0.8], hessian=rosenbrock_hessian)
    optimum = minimize(functional, method=method)
    assert optimum.converged
    assert optimum.failed_solves == sum(np.hypot(*point) > 1.5 for point in functional.points)
    np.testing.assert_allclose(optimum.x.getArray(), 1.0, atol=1e-6)


LEAK = """
from tests.optimize.test_newton import *
from tests.costs.test_least_squares import fit
for inverse in INVERSES:
    for method in NEWTON:
        bounds = None if method in UNBOUNDED else (-1.0, 0.9)
        functional = Curved(rosenbrock, [-1.0, 0.8], domain=DOMAINS["disc"], bounds=bounds)
        minimize(functional, method=method, preconditioner=inverse).x.destroy()
        try:
            minimize(functional, method=method, progress=lambda iterate, x: 1 / 0)
        except ZeroDivisionError:
            pass
minimize(fit(), method="brgn", gradient_tolerance=1e-5).x.destroy()
lm = {"tao_brgn_regularization_type": "lm"}
minimize(fit(), method="brgn", options=lm).x.destroy()
del functional
"""


@pytest.mark.slow
def test_no_petsc_object_is_left_behind():
    assert left_behind(LEAK) == []
