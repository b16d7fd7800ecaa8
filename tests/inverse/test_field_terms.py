"""Priors and penalties of fields and numbers; a field and two rates found from noisy snapshots."""

from types import SimpleNamespace

import numpy as np
import pytest
from fields import own_part
from petsc4py import PETSc

import daeosens as ds
from daeosens.functional import FieldParameters
from daeosens.inverse import (
    FieldPenalty,
    GaussianPrior,
    Regularized,
    joint_prior,
    laplace,
    matern,
    total_variation,
)
from daeosens.petsc import gather
from daeosens.problem.grids import Grid

SELF, WORLD = PETSc.COMM_SELF, PETSc.COMM_WORLD
SIGMA = 0.02
RATES = {"eps": (np.log(0.15), 0.5), "b": (0.5, 0.5)}


def excitable(t, u, p):
    """FitzHugh-Nagumo in a tissue."""
    v, w = u.center
    return [u.laplacian(p.k)[0] + v - v**3 - w + 0.05, p.eps * (v - p.b * w)]


def make(comm, n=6, *, coarse=False):
    """Return a misfit to noisy snapshots of a tissue, the same on any number of ranks."""
    grid = Grid(((0.0, 10.0), (0.0, 10.0)), (n, n), "neumann", dof=2, comm=comm)
    model = ds.trace_stencil(excitable, grid, ["eps", "b"], fields=["k"])
    x, y = grid.coordinates()
    u0 = grid.create_vec()
    grid.writable(u0)[..., 0] = 1.5 * np.exp(-((x - 2) ** 2 + (y - 3) ** 2) / 2) - 0.3
    log_k = np.log(0.1) + 0.6 * np.cos(0.5 * x) * np.cos(0.4 * y)
    times, stepping = [2.0, 4.0, 6.0, 8.0], ds.Stepping((0.0, 8.0), "cn", dt=0.5)
    run = ds.solve(model, u0, model.pack(eps=0.12, b=0.6, k=np.exp(log_k)), stepping, times)
    noise = SIGMA * np.random.default_rng(1).standard_normal((len(times), n, n, 2))
    data = [run.at(t).copy() for t in times]
    for vec, several in zip(data, noise, strict=True):
        grid.writable(vec)[...] += own_part(grid, several)
    mesh = Grid(grid.box, (3, 4), "neumann", comm=comm) if coarse else model.fields.grid
    control = FieldParameters(
        {
            "eps": ds.Parameter(0.2, scale="log"),
            "b": ds.Parameter(0.5, lower=0.0),
            "k": ds.Parameter(0.1, scale="log"),
        },
        u0,
        {"k": mesh} if coarse else {},
    )
    functional = ds.Reduced(model, ds.LeastSquares(times, data, SIGMA), stepping, control)
    mean = mesh.create_vec()
    mean.set(np.log(0.1))
    smooth = matern(mesh, mean, sigma=0.5, length=5.0)
    return SimpleNamespace(
        model=model, control=control, functional=functional, smooth=smooth, log_k=log_k
    )


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_matern_fields_have_their_variance_in_every_dimension(dimensions):
    """On the grid, and in the limit of many points sigma^2."""
    n, length = (64, 24, 12)[dimensions - 1], 0.8
    grid = Grid(((0.0, 4.0),) * dimensions, (n,) * dimensions, comm=SELF)
    prior = matern(grid, grid.create_vec(), sigma=0.7, length=length)
    column = grid.create_vec()
    column.setValue(0, 1.0)
    column.assemble()
    kappa = 8 * (2 - dimensions / 2) / length**2

    def variance(n):
        """By the Fourier series on so many points; weights are proportional to the cell."""
        waves = (2 - 2 * np.cos(2 * np.pi * np.arange(n) / n)) * (n / 4.0) ** 2
        symbol = kappa + sum(np.meshgrid(*[waves] * dimensions, sparse=True))
        weight = prior.weight * (grid.shape[0] / n) ** dimensions
        return (1.0 / (weight * symbol**2)).mean()

    assert prior.solve(column).array[0] == pytest.approx(variance(n), rel=1e-10)
    fine = (1024, 512, 128)[dimensions - 1]
    assert variance(fine) == pytest.approx(0.49, rel=(1e-3, 1e-3, 0.05)[dimensions - 1])


def test_joint_priors_know_their_variances():
    of = make(SELF)
    prior = joint_prior(of.functional, {**RATES, "k": of.smooth})
    solved = GaussianPrior(prior.mean, prior.operator).variance()
    np.testing.assert_allclose(prior.variance().array, solved.array, rtol=1e-12)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("shape", "boundary", "dof"),
    [
        ((9,), "zero", 1),
        ((6, 9), ("periodic", "neumann"), 2),
        ((6, 5, 8), ("zero", "neumann", "periodic"), 1),
    ],
)
def test_variances_without_solves_are_those_of_solves(shape, boundary, dof):
    box = ((0.0, 1.0), (0.0, 2.0), (0.0, 1.5))[: len(shape)]
    grid = Grid(box, shape, boundary, dof)
    prior = matern(grid, grid.create_vec(), sigma=0.7, length=0.4)
    exact = {"ksp_rtol": 1e-14}
    solved = GaussianPrior(prior.mean, prior.operator, prior.weight, exact).variance()
    assert (prior.variance() - solved).norm() < 1e-12 * solved.norm()


@pytest.mark.mpi
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_matern_fields_have_no_slope_across_edges(dimensions):
    grid = Grid(((0.0, 1.0),) * dimensions, (7, 6, 5)[:dimensions], "neumann", comm=WORLD)
    prior = matern(grid, grid.create_vec(), sigma=0.7, length=0.5)
    ones, out = grid.create_vec(), grid.create_vec()
    ones.set(1.0)
    prior.operator.mult(ones, out)
    assert np.allclose(out.array, 8 * (2 - dimensions / 2) / 0.25, rtol=1e-12)
    assert prior.operator.isSymmetric(1e-12)


@pytest.mark.mpi
@pytest.mark.parametrize("coarse", [False, True])
def test_joint_priors_have_the_blocks_of_theirs(coarse):
    case = make(WORLD, coarse=coarse)
    prior = joint_prior(case.functional, {**RATES, "k": case.smooth})
    x = case.functional.start()
    start, end = x.getOwnershipRange()
    x.setArray(np.cos(np.arange(start, end)))
    parts = case.control.parts(case.model)
    field = case.smooth.mean.duplicate()
    field.setArray(x.array[parts["k"][0]])
    # numbers are on the first rank
    numbers = gather(x)[:2]
    of_rates = sum(
        ((value - mean) / sigma) ** 2
        for value, (mean, sigma) in zip(numbers, RATES.values(), strict=True)
    )
    expected = 0.5 * of_rates + case.smooth.value(field)
    assert prior.value(x) == pytest.approx(expected, rel=1e-12)
    of_field = case.smooth.gradient(field).array
    gradient = prior.gradient(x).array[parts["k"][0]]
    assert np.allclose(gradient, of_field, rtol=1e-11, atol=1e-11 * abs(of_field).max(initial=0.0))
    back = prior.root_solve(prior.root(x))
    assert (back - x).norm() < 1e-9 * x.norm()


@pytest.mark.mpi
@pytest.mark.parametrize("coarse", [False, True])
def test_total_variation_is_right_with_its_derivatives(coarse):
    case = make(WORLD, coarse=coarse)
    functional, smoothing = case.functional, 0.05
    penalty = total_variation(functional, "k", smoothing=smoothing, weight=3.0)
    x = functional.start()
    at, grid = case.control.parts(case.model)["k"]
    (x0, x1), (h0, h1) = grid.coordinates(), grid.spacing
    values = x.array.copy()
    values[at] += (np.sin(x0) + 0.3 * x1).ravel()
    x.setArray(values)
    axes = [
        start + h * np.arange(n)
        for start, h, n in zip(grid.origin, grid.spacing, grid.shape, strict=True)
    ]
    whole = np.sin(axes[0])[None, :] + 0.3 * axes[1][:, None]
    east = np.diff(whole, axis=1, append=whole[:, -1:]) / h0
    north = np.diff(whole, axis=0, append=whole[-1:]) / h1
    expected = 3.0 * h0 * h1 * np.sqrt(east**2 + north**2 + smoothing**2).sum()
    assert penalty.value(x) == pytest.approx(expected, rel=1e-12)
    both = Regularized(Regularized(functional, penalty), penalty)
    dx = x.duplicate()
    start, end = dx.getOwnershipRange()
    dx.setArray(np.sin(1.0 + np.arange(start, end)))
    for function, product in (
        (penalty.value, penalty.gradient(x).dot(dx)),
        (lambda at: penalty.gradient(at).dot(dx), penalty.hessian_product(x, dx).dot(dx)),
        (both.value, both.gradient(x).dot(dx)),
    ):

        def along(eps, function=function):
            moved = x.copy()
            moved.axpy(eps, dx)
            return function(moved)

        def central(eps, along=along):
            return (along(eps) - along(-eps)) / (2 * eps)

        differences = (64 * central(2.5e-4) - 20 * central(5e-4) + central(1e-3)) / 45
        assert differences == pytest.approx(product, rel=1e-7)


def test_taylor_of_all_together():
    case = make(SELF)
    prior = joint_prior(case.functional, {**RATES, "k": case.smooth})
    jumps = total_variation(case.functional, "k", smoothing=0.1)
    orders = ds.taylor(Regularized(Regularized(case.functional, prior), jumps), hessian=True)
    assert orders.order == pytest.approx(2.0, abs=0.05)
    assert orders.hessian_order == pytest.approx(3.0, abs=0.1)


def fitted(comm):
    case = make(comm, 8)
    prior = joint_prior(case.functional, {**RATES, "k": case.smooth})
    result = ds.minimize(Regularized(case.functional, prior), method="bqnls")
    return case, prior, result


@pytest.mark.slow
def test_a_diffusivity_and_two_rates_are_found_from_noisy_snapshots():
    case, prior, result = fitted(SELF)
    posterior = laplace(case.functional, result.x, prior, rank=30)
    deviations = np.sqrt(posterior.variance().array)
    truth = np.concatenate([[np.log(0.12), 0.6], case.log_k.ravel()])
    errors = (result.x.array - truth) / deviations
    assert abs(errors[:2]).max() < 3.0
    assert np.sqrt((errors[2:] ** 2).mean()) < 1.5
    # measurements tell of rates, and of the field, more than was known
    assert (deviations[:2] < 0.1 * 0.5).all()
    before = np.sqrt(prior.variance().array)
    assert (deviations < before).all()
    assert deviations[2:].mean() < 0.8 * before[2:].mean()
    count = 4 * 2 * 64
    assert 2 * case.functional.value(result.x) == pytest.approx(count, abs=4 * np.sqrt(2 * count))


@pytest.mark.slow
@pytest.mark.mpi(min_size=2)
def test_fits_do_not_depend_on_the_number_of_ranks():
    (case, _, together), (_, _, alone) = (fitted(comm) for comm in (WORLD, SELF))
    assert together.value == pytest.approx(alone.value, rel=1e-8)
    numbers, expected = gather(together.x)[:2], alone.x.array[:2]
    assert np.allclose(numbers, expected, rtol=1e-4)
    grid = case.model.fields.grid
    mine = together.x.array[case.control.parts(case.model)["k"][0]]
    theirs = own_part(grid, alone.x.array[2:].reshape(8, 8)).ravel()
    assert np.allclose(mine, theirs, atol=1e-3)


WRONG = {
    "missing": ({"b": (0.5, 0.5)}, '"eps" is free and has no prior'),
    "unknown": ({**RATES, "c": (0.0, 1.0)}, 'there is no free parameter "c"'),
    "no pair": ({**RATES, "eps": 0.5}, r"expected: \(mean, sigma\)"),
    "sigma": ({**RATES, "eps": (0.5, 0.0)}, "expected: sigma > 0"),
    "field": ({**RATES, "k": (0.0, 1.0)}, "expected: a GaussianPrior on its grid"),
    "grid": (
        {**RATES, "k": GaussianPrior(PETSc.Vec().createSeq(3, comm=SELF))},
        'the prior of "k" has size 3',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_priors_are_refused(name):
    case = make(SELF)
    priors, message = WRONG[name]
    with pytest.raises(ds.InputError, match=message):
        joint_prior(case.functional, {"k": case.smooth, **priors})


def test_wrong_penalties_are_refused():
    case = make(SELF)
    with pytest.raises(ds.InputError, match="there is no free field 'eps'"):
        total_variation(case.functional, "eps", smoothing=0.1)
    with pytest.raises(ds.InputError, match="smoothing"):
        total_variation(case.functional, "k", smoothing=0.0)
    with pytest.raises(ds.InputError, match="weight"):
        FieldPenalty(case.functional, "k", lambda q: q.center[0] ** 2, weight=-1.0)
