"""Priors and low-rank posteriors of fields against dense algebra."""

import math

import numpy as np
import pytest
from closed_forms import Formula
from distributed import averaging, make, make_ring
from petsc4py import PETSc

import daeosens as ds
from daeosens.functional import InitialState
from daeosens.inverse.uncertainty.gaussian_prior import GaussianPrior, matern, white_noise
from daeosens.inverse.uncertainty.laplace import laplace
from daeosens.inverse.uncertainty.regularized import Regularized
from daeosens.petsc import gather, scatter
from daeosens.problem.grids import Grid

pytestmark = pytest.mark.mpi

N, DATA, NOISE = 24, 7, 0.1
WORLD = PETSc.COMM_WORLD
SIGMA = 0.8


def tridiagonal(diagonal=3.0, comm=WORLD):
    matrix = PETSc.Mat().createAIJ((N, N), nnz=3, comm=comm)
    for i in range(*matrix.getOwnershipRange()):
        for j, value in ((i - 1, -1.0), (i, diagonal), (i + 1, -1.0)):
            if 0 <= j < N:
                matrix.setValue(i, j, value)
    matrix.assemble()
    return matrix


A = 3.0 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)
RNG = np.random.default_rng(5)
FORWARD = RNG.standard_normal((DATA, N))
MEAN = np.linspace(-1.0, 1.0, N)
SAMPLE = RNG.standard_normal(DATA)
H = FORWARD.T @ FORWARD / NOISE**2


def vector(values, comm=WORLD):
    vec = PETSc.Vec().createMPI(N, comm=comm)
    vec.setArray(np.broadcast_to(values, (N,))[slice(*vec.getOwnershipRange())])
    return vec


def misfit():
    """1/2 |F x - d|^2 / noise^2."""

    def residual(x):
        return (FORWARD @ x - SAMPLE) / NOISE

    functional = Formula(
        lambda x: 0.5 * residual(x) @ residual(x),
        lambda x: FORWARD.T @ residual(x) / NOISE,
        lambda x: H,
        np.zeros(N),
        comm=WORLD,
    )
    functional.gauss_newton_product = functional.hessian_product
    return functional


PRIORS = {
    "independent": (lambda: GaussianPrior(vector(MEAN), weight=SIGMA**-2), np.eye(N) / SIGMA**2),
    "smooth": (lambda: GaussianPrior(vector(MEAN), tridiagonal(), 2.5), 2.5 * A @ A),
}


@pytest.fixture(params=PRIORS)
def case(request):
    make, precision = PRIORS[request.param]
    prior = make()
    covariance = np.linalg.inv(H + precision)
    x = covariance @ (FORWARD.T @ SAMPLE / NOISE**2 + precision @ MEAN)
    return prior, precision, covariance, x


# ---- priors --------------------------------------------------------------------------------------


def test_prior_products_are_those_of_the_matrix(case):
    prior, precision, _, _ = case
    v = np.sin(np.arange(N))
    np.testing.assert_allclose(gather(prior.apply(vector(v))), precision @ v, rtol=1e-12)
    solved = np.linalg.solve(precision, v)
    np.testing.assert_allclose(gather(prior.solve(vector(v))), solved, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(gather(prior.root_solve(prior.root(vector(v)))), v, atol=1e-10)
    assert prior.value(vector(v)) == pytest.approx(0.5 * (v - MEAN) @ precision @ (v - MEAN))
    np.testing.assert_allclose(
        gather(prior.gradient(vector(v))), precision @ (v - MEAN), rtol=1e-10
    )
    exact = np.diag(np.linalg.inv(precision))
    np.testing.assert_allclose(gather(prior.variance()), exact, rtol=1e-9)
    assert prior.trace() == pytest.approx(exact.sum())
    assert prior.value(prior.mean) == 0.0


def test_prior_samples_have_its_covariance(case):
    prior, precision, _, _ = case
    exact = np.linalg.inv(precision)
    factor = np.array([gather(prior.root_solve(vector(e))) for e in np.eye(N)]).T
    np.testing.assert_allclose(factor @ factor.T, exact, atol=1e-9)
    drawn = gather(prior.sample(3))
    noise = gather(white_noise(prior.mean, 3))
    np.testing.assert_allclose(drawn, MEAN + factor @ noise, atol=1e-9)
    many = gather(prior.variance(samples=2000))
    np.testing.assert_allclose(many, np.diag(exact), rtol=0.2)


def test_white_noise_is_normal_and_the_same_on_any_number_of_ranks():
    noise = gather(white_noise(vector(0.0), 11))
    alone = gather(white_noise(vector(0.0, PETSc.COMM_SELF), 11))
    np.testing.assert_array_equal(noise, alone)
    long = PETSc.Vec().createSeq(100_000, comm=PETSc.COMM_SELF)
    values = white_noise(long, 1).getArray()
    assert abs(values.mean()) < 0.01
    assert abs(values.var() - 1.0) < 0.02
    assert abs((values**4).mean() - 3.0) < 0.1


def test_matern_fields_have_their_variance_and_correlation():
    grid = Grid(((0.0, 4.0), (0.0, 4.0)), (64, 64), comm=WORLD)
    length = 1.0
    prior = matern(grid, grid.create_vec(), sigma=0.7, length=length)
    column = grid.create_vec()
    if column.getOwnershipRange()[0] == 0:
        column.setValue(0, 1.0)
    column.assemble()
    covariance = prior.solve(column)
    natural = grid.dm.createNaturalVec()
    grid.dm.globalToNatural(covariance, natural)
    values = gather(natural).reshape(64, 64)
    # the discrete covariance by Fourier series
    h = 4.0 / 64
    waves = (2 - 2 * np.cos(2 * np.pi * np.arange(64) / 64)) / h**2
    symbol = prior.weight * (8 / length**2 + waves[:, None] + waves[None, :]) ** 2
    exact = np.fft.ifft2(1.0 / symbol).real
    np.testing.assert_allclose(values, exact, atol=1e-11)
    assert values[0, 0] == pytest.approx(0.49, rel=0.03)  # sigma^2, up to discretisation
    assert values[0, 16] / values[0, 0] == pytest.approx(0.14, abs=0.02)


def test_matern_on_a_zero_boundary_is_positive_definite():
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (7, 5), "zero", dof=2, comm=WORLD)
    prior = matern(grid, grid.create_vec(), sigma=1.0, length=0.5)
    v = white_noise(grid.create_vec(), 4)
    assert prior.value(v) > 0
    back = prior.solve(prior.apply(v))
    np.testing.assert_allclose(gather(back), gather(v), atol=1e-8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": 0.0}, "prior weight = 0"),
        ({"weight": math.nan}, "prior weight = nan"),
    ],
)
def test_bad_priors_are_refused(change, message):
    with pytest.raises(ds.InputError, match=message):
        GaussianPrior(vector(0.0), **change)
    short = PETSc.Vec().createMPI(N - 1, comm=WORLD)
    with pytest.raises(ds.InputError, match=r"prior operator has size \(24, 24\)"):
        GaussianPrior(short, tridiagonal())
    with pytest.raises(ds.InputError, match="samples = 0"):
        GaussianPrior(vector(0.0), tridiagonal()).variance(samples=0)
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (5, 5), comm=WORLD)
    with pytest.raises(ds.InputError, match="prior length = -1"):
        matern(grid, grid.create_vec(), 1.0, -1.0)
    with pytest.raises(ds.InputError, match="prior sigma = 'small'"):
        matern(grid, grid.create_vec(), "small", 1.0)


def test_a_solver_that_fails_is_an_error():
    options = {"ksp_type": "cg", "pc_type": "none", "ksp_max_it": 2, "ksp_rtol": 1e-12}
    prior = GaussianPrior(vector(0.0), tridiagonal(2.0), options=options)
    with pytest.raises(ds.SolveError, match="the prior's solver stopped"):
        prior.solve(vector(MEAN**2))


# ---- posteriors ----------------------------------------------------------------------------------


def test_posterior_of_a_linear_problem_is_exact(case):
    prior, precision, covariance, x = case
    posterior = laplace(misfit(), vector(x), prior)
    assert posterior.complete  # seven data, seven modes
    assert len(posterior.eigenvalues) == DATA
    root = np.linalg.inv(np.linalg.cholesky(precision))
    exact = np.linalg.eigvalsh(root @ H @ root.T)[::-1][:DATA]
    np.testing.assert_allclose(posterior.eigenvalues, exact, rtol=1e-10)
    np.testing.assert_allclose(gather(posterior.variance()), np.diag(covariance), atol=1e-10)
    assert posterior.trace() == pytest.approx(np.trace(covariance), abs=1e-10)
    v = np.cos(np.arange(N))
    np.testing.assert_allclose(
        gather(posterior.covariance_product(vector(v))), covariance @ v, atol=1e-10
    )
    factor = np.array([gather(posterior.shape(vector(e))) for e in np.eye(N)]).T
    np.testing.assert_allclose(factor @ factor.T, covariance, atol=1e-10)
    noise = gather(white_noise(posterior.x, 2))
    np.testing.assert_allclose(gather(posterior.sample(2)), x + factor @ noise, atol=1e-10)
    divergence = 0.5 * (
        np.trace(precision @ covariance)
        - N
        + (x - MEAN) @ precision @ (x - MEAN)
        - np.linalg.slogdet(precision @ covariance)[1]
    )
    assert posterior.information_gain() == pytest.approx(divergence, rel=1e-10)
    assert "7 modes, no others" in repr(posterior)


def test_modes_are_orthonormal_in_the_prior(case):
    prior, precision, _, x = case
    posterior = laplace(misfit(), vector(x), prior, rank=4, oversampling=2, seed=9)
    modes = np.array([gather(mode) for mode in posterior.modes])
    np.testing.assert_allclose(modes @ precision @ modes.T, np.eye(4), atol=1e-10)
    assert not posterior.complete
    assert posterior.products == 12
    assert "the others are left out" in repr(posterior)


def test_the_map_point_is_found_with_the_prior(case):
    prior, _, _, x = case
    both = Regularized(misfit(), prior)
    assert min(ds.taylor(both)) > 1.9
    result = ds.minimize(both, method="nls", gradient_tolerance=1e-9)
    error = np.linalg.norm(gather(result.x) - x)
    least, *_, largest = np.linalg.eigvalsh(H + case[1])
    rounding = np.finfo(float).eps * largest * np.linalg.norm(x)  # of the gradient, at the end
    assert error <= (1.01 * result.gradient_norm + rounding) / least
    assert result.gradient_norm < 1e-6
    assert both.bounds() is None
    v = vector(MEAN)
    np.testing.assert_allclose(gather(both.hessian_product(v, v)), (H + case[1]) @ MEAN, rtol=1e-10)
    np.testing.assert_allclose(
        gather(both.gauss_newton_product(v, v)), (H + case[1]) @ MEAN, rtol=1e-10
    )
    assert both.value(v) == pytest.approx(misfit().value(v))
    np.testing.assert_allclose(gather(both.gradient(v)), gather(misfit().gradient(v)), rtol=1e-10)
    assert not hasattr(both, "check_second_order")


def decaying(rate, hessian=None):
    """Misfit whose eigenvalues relative to the identity are 100 rate^j, in random directions."""
    directions, _ = np.linalg.qr(np.random.default_rng(8).standard_normal((N, N)))
    values = 100.0 * rate ** np.arange(N)
    dense = (directions * values) @ directions.T if hessian is None else hessian
    functional = Formula(
        lambda x: 0.5 * x @ dense @ x, lambda x: dense @ x, lambda x: dense, np.zeros(N), comm=WORLD
    )
    return functional, values


@pytest.mark.parametrize(("rate", "modes"), [(0.2, 10), (0.65, 20)])
def test_the_rank_grows_until_eigenvalues_are_small(rate, modes):
    functional, values = decaying(rate)
    prior = GaussianPrior(vector(0.0))
    posterior = laplace(functional, vector(0.0), prior, hessian="exact", oversampling=3)
    assert len(posterior.eigenvalues) == modes
    assert posterior.eigenvalues[-1] < 0.1
    assert modes == 10 or values[modes // 2 - 1] >= 0.1
    above = values > 0.1
    np.testing.assert_allclose(posterior.eigenvalues[: above.sum()], values[above], rtol=1e-3)


def test_without_information_the_posterior_is_the_prior():
    functional, _ = decaying(0.5, np.zeros((N, N)))
    prior = GaussianPrior(vector(0.0), weight=4.0)
    posterior = laplace(functional, vector(0.0), prior, hessian="exact")
    assert posterior.complete
    assert not posterior.modes
    assert posterior.trace() == pytest.approx(N / 4.0)
    assert posterior.information_gain() == 0.0
    assert "0 modes" in repr(posterior)


def test_a_saddle_is_refused():
    functional, _ = decaying(0.5, np.diag([-2.0] + [1.0] * (N - 1)))
    prior = GaussianPrior(vector(0.0))
    with pytest.raises(ds.UnsupportedError, match="not convex at x: eigenvalue -2"):
        laplace(functional, vector(0.0), prior, hessian="exact")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rank": 0}, ds.InputError, "rank = 0"),
        ({"cutoff": 0.0}, ds.InputError, "cutoff = 0"),
        ({"oversampling": -1}, ds.InputError, "oversampling = -1"),
        ({"hessian": "newton"}, ds.InputError, "hessian = 'newton'"),
        ({"hessian": "gauss_newton"}, ds.UnsupportedError, "without gauss_newton_product"),
    ],
)
def test_bad_arguments_are_refused(change, error, message):
    functional, _ = decaying(0.5)
    with pytest.raises(error, match=message):
        laplace(functional, vector(0.0), GaussianPrior(vector(0.0)), **change)


# ---- with trajectories ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["gauss_newton", "exact"])
def test_posterior_of_an_initial_state_agrees_with_dense_algebra(comm, hessian):
    case = make(comm)
    matrix = averaging(make_ring(comm, dm=True))
    times = (0.06, 0.13)
    data = [matrix.createVecLeft() for _ in times]
    for row in data:
        row.set(0.4)
    misfit = ds.Reduced(
        case.problem,
        ds.LeastSquares(times, data, 0.05, matrix),
        ds.Stepping((0.0, 0.13), "cn", dt=0.02),
        InitialState(case.u0, case.p),
    )
    x = misfit.start()
    precision = tridiagonal().duplicate(copy=True)
    # the ring of the problem and the chain of the prior have the same number of points and layout
    assert precision.getLocalSize()[0] == x.getLocalSize()
    prior = GaussianPrior(x, precision, 2.0)
    posterior = laplace(misfit, x, prior, hessian=hessian, cutoff=1e-12)
    chosen = misfit.gauss_newton_product if hessian == "gauss_newton" else misfit.hessian_product
    units = [scatter(row, x.duplicate()) for row in np.eye(N)]
    dense = np.array([gather(chosen(x, unit)) for unit in units])
    covariance = np.linalg.inv(0.5 * (dense + dense.T) + 2.0 * A @ A)
    np.testing.assert_allclose(gather(posterior.variance()), np.diag(covariance), rtol=1e-8)
    assert posterior.trace() == pytest.approx(np.trace(covariance), rel=1e-8)
    assert posterior.trace() < 0.9 * prior.trace()


def test_the_prior_must_be_gaussian():
    with pytest.raises(ds.InputError, match="prior is NoneType"):
        laplace(misfit(), vector(0.0), None)
