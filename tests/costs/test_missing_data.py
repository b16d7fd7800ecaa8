"""Missing data: the same as the data that are there, a ``LeastSquares`` for each column."""

import math

import numpy as np
import pytest
from closed_forms import DECAY_STEPPING, decay, decay_control
from distributed import averages, averaging, make
from petsc4py import PETSc
from scipy import stats

import daeosens as ds
from daeosens.costs.missing_data import measured_array
from daeosens.inverse import LogNormal, Normal
from daeosens.petsc import gather

NAN = math.nan
TIMES = np.array([0.2, 0.5, 0.8, 1.1, 1.5])
FULL = np.random.default_rng(5).uniform(0.3, 1.2, (5, 2))
MISSING = np.array([[0, 1], [0, 0], [1, 0], [1, 0], [0, 0]], dtype=bool)
DATA = np.where(MISSING, NAN, FULL)
SIGMA = np.random.default_rng(6).uniform(0.1, 0.4, (5, 2))
POINT = [0.7, 0.4]


def rhs(t, u, p):
    return np.array([p[0] * u[0] - u[0] * u[1], u[0] * u[1] - p[1] * u[1]])


def numpy_problem():
    return ds.ODE(rhs, size=2, parameters=["growth", "death"])


def traced_problem():
    return ds.trace(rhs, size=2, parameters=["growth", "death"])


def control():
    return ds.Parameters(
        {"growth": ds.Parameter(POINT[0], scale="log"), "death": ds.Parameter(POINT[1])},
        initial_state=lambda p: np.array([1.0 + p[0] ** 2, 0.5 * p[1]]),
    )


def outputs(t, u, p):
    return np.array([u[0] * p[0] + t, np.exp(u[1])])


def outputs_u(t, u, p):
    """The rows of what is missing hold what may come of it."""
    gone = MISSING[np.abs(TIMES - t).argmin()]
    matrix = np.array([[p[0], 0.0], [0.0, np.exp(u[1])]])
    matrix[gone] = np.inf
    return matrix


def outputs_p(t, u, p):
    return np.array([[u[0], 0.0], [0.0, 0.0]])


def missing_outputs(t, u, p):
    values = outputs(t, u, p)
    values[MISSING[np.abs(TIMES - np.real(t)).argmin()]] = np.nan
    return values


def by_column(observe, sigma=SIGMA):
    """Return a sum of what was observed of each column alone."""

    def only(j):
        if callable(observe):
            return lambda t, u, p: outputs(t, u, p)[[j]]
        return [j if observe is None else observe[j]]

    return sum(
        ds.LeastSquares(TIMES[there], DATA[there, j], sigma[there, j][:, None], only(j))
        for j, there in enumerate((~MISSING).T)
    )


def misfit(observe, *jacobians):
    return ds.LeastSquares(TIMES, DATA, SIGMA, observe, *jacobians)


def functionals(problem, method, *misfits, **extra):
    stepping = ds.Stepping((0.0, 1.5), method, dt=0.1)
    return [ds.Reduced(problem, misfit, stepping, control(), **extra) for misfit in misfits]


OBSERVED = {
    "state": (None,),
    "indices": ([1, 0],),
    "complex step": (outputs,),
    "jacobians": (outputs, outputs_u, outputs_p),
    "nan where missing": (missing_outputs,),
}


@pytest.mark.parametrize("watch", OBSERVED)
@pytest.mark.parametrize(
    ("make_problem", "method", "engine"),
    [
        (numpy_problem, "rk4", "vectors"),
        (numpy_problem, "cn", "vectors"),
        (traced_problem, "rk4", "auto"),
        (traced_problem, "esdirk4", "auto"),
        (traced_problem, "rk4", "arrays"),
        (traced_problem, "rk4", "tsadjoint"),
    ],
)
def test_missing_entries_count_for_nothing(watch, make_problem, method, engine):
    observe = OBSERVED[watch]
    here, there = functionals(
        make_problem(), method, misfit(*observe), by_column(observe[0]), engine=engine
    )
    x = here.start()
    assert here.value(x) == pytest.approx(there.value(x), rel=1e-14)
    np.testing.assert_allclose(gather(here.gradient(x)), gather(there.gradient(x)), rtol=1e-11)
    dx = [0.3, -0.8]
    np.testing.assert_allclose(
        gather(here.gauss_newton_product(x, dx)),
        gather(there.gauss_newton_product(x, dx)),
        rtol=1e-11,
    )
    assert here.residual(x).size == there.residual(x).size == 7
    for sweep in ("tangent", "adjoint"):
        here.sweep_for = lambda _rows, _columns, chosen=sweep: chosen
        jacobian = here.residual_jacobian(x).getDenseArray()
        np.testing.assert_allclose(
            jacobian.T @ gather(here.residual(x)), gather(here.gradient(x)), rtol=1e-11
        )
    if watch != "jacobians":  # infinity has no complex step
        np.testing.assert_allclose(here.hessian(x), there.hessian(x), rtol=1e-10)
        assert min(ds.taylor(here, x)) > 1.9
        assert min(ds.taylor(here, x, hessian=True)) > 2.9


def test_jacobians_that_can_be_stepped_give_hessians_of_what_is_there():
    def by_u(t, u, p):
        return np.array([[p[0], 0.0], [0.0, np.exp(u[1])]])

    def by_p(t, u, p):
        return np.array([[u[0], 0.0], [0.0 * u[0], 0.0]])

    here, there = functionals(
        numpy_problem(), "rk4", misfit(outputs, by_u, by_p), by_column(outputs)
    )
    x = here.start()
    np.testing.assert_allclose(here.hessian(x), there.hessian(x), rtol=1e-10)


@pytest.mark.mpi
@pytest.mark.parametrize("world", [True, False])
def test_vectors_may_have_missing_entries_on_any_number_of_ranks(world):
    case = make(PETSc.COMM_WORLD if world else PETSc.COMM_SELF, "dmda", field=False)
    times = (0.06, 0.13)
    data = [case.ring.vec(lambda x, t=t: 0.4 + 0.1 * np.sin(2 * np.pi * x + t)) for t in times]
    gaps = [vec.copy() for vec in data]
    kept = []
    for step, vec in zip((3, 2), gaps, strict=True):
        start, end = vec.getOwnershipRange()
        gone = np.arange(start, end) % step == 0
        vec.getArray()[gone] = NAN
        kept.append(np.arange(start, end)[~gone])
    means = averages(case.ring, data[0])
    some = means.copy()
    some.getArray()[:1] = NAN

    def rows(vec, chosen, of):
        """Select what is there, after the Mat ``of``."""
        picked = PETSc.Vec().createMPI((len(chosen), PETSc.DETERMINE), comm=vec.comm)
        first, _ = picked.getOwnershipRange()
        matrix = PETSc.Mat().createAIJ((picked.getSizes(), vec.getSizes()), nnz=1, comm=vec.comm)
        for i, j in enumerate(chosen.tolist()):
            matrix.setValue(first + i, j, 1.0)
        matrix.assemble()
        matrix.mult(vec, picked)
        return ds.LeastSquares(
            [times[data.index(vec)] if vec in data else times[0]],
            [picked],
            0.5,
            matrix if of is None else matrix.matMult(of),
        )

    start, end = means.getOwnershipRange()
    matrix = averaging(case.ring)
    with_gaps = ds.LeastSquares(times, gaps, 0.5) + ds.LeastSquares(times[:1], [some], 0.5, matrix)
    whole = sum(rows(vec, there, None) for vec, there in zip(data, kept, strict=True)) + rows(
        means, np.arange(start + 1, end), matrix
    )
    values = {"a": ds.Parameter(case.p[0], scale="log"), "r": ds.Parameter(case.p[1])}
    parameters = ds.Parameters(values, case.u0)
    stepping = ds.Stepping((0.0, 0.2), "cn", dt=0.03)
    here, there = (
        ds.Reduced(case.problem, value, stepping, parameters) for value in (with_gaps, whole)
    )
    x, dx = here.start(), [0.4, -0.7]
    assert here.residual(x).size == there.residual(x).size
    assert here.value(x) == pytest.approx(there.value(x), rel=1e-13)
    for product in ("hessian_product", "gauss_newton_product"):
        ours, other = (getattr(value, product)(x, dx) for value in (here, there))
        np.testing.assert_allclose(gather(ours), gather(other), rtol=1e-9)
    np.testing.assert_allclose(gather(here.gradient(x)), gather(there.gradient(x)), rtol=1e-10)
    assert min(ds.taylor(here, x)) > 1.9
    nothing = case.ring.vec(lambda x: NAN * x)
    endless = case.ring.vec(lambda x: np.where(x < 0.1, np.inf, x))
    with pytest.raises(ds.InputError, match=r"no measurements at t = 0\.13: data\[1\] is NaN"):
        ds.Reduced(case.problem, ds.LeastSquares(times, [data[0], nothing]), stepping, parameters)
    with pytest.raises(ds.InputError, match=r"data\[0\] is infinite"):
        ds.Reduced(case.problem, ds.LeastSquares(times[:1], [endless]), stepping, parameters)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"data": [[1.0, NAN], [NAN, NAN]]},
            r"column 1 of data has no measurements: all 2(.|\n)*functional\.Joint",
        ),
        ({"data": [[1.0, np.inf], [NAN, 1.0]]}, r"data is inf at index \[0, 1\](.|\n)*try: NaN"),
        ({"sigma": [0.1, np.inf]}, r"sigma = inf(.|\n)*finite sigma > 0(.|\n)*try: NaN in the"),
        ({"sigma": [0.1, NAN]}, r"sigma = nan(.|\n)*try: NaN in the data"),
        ({"sigma": -0.1}, r"sigma = -0\.1"),
        ({"times": [1.0, NAN]}, r"observation times is nan"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    values = {"times": [1.0, 2.0], "data": [[1.0, 2.0], [NAN, 1.0]], **change}
    with pytest.raises(ds.InputError, match=message):
        ds.LeastSquares(**values)


def test_masked_data_are_missing():
    masked = np.ma.masked_array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(measured_array(masked, "data"), [[1.0, NAN], [3.0, 4.0]])
    np.testing.assert_array_equal(measured_array([1.0, None], "data"), [1.0, NAN])
    with pytest.raises(ds.InputError, match=r"data is inf\n"):
        measured_array(np.inf, "data")


def test_outputs_of_another_shape_are_told_as_they_are():
    data = ds.LeastSquares([0.5, 1.0], [[1.0, NAN], [1.0, 2.0]], 1.0, lambda t, u, p: u[:1])
    stepping = ds.Stepping((0.0, 1.5), "rk4", dt=0.1)
    with pytest.raises(ds.InputError, match=r"'observe' returned shape \(1,\)(.|\n)*shape \(2,\)"):
        ds.Reduced(numpy_problem(), data, stepping, control()).value(POINT)


# ---- fits ----------------------------------------------------------------------------------------

# log(amount) - rate t, seen twice, and once with another factor: straight lines
RATE, AMOUNT = 0.7, 3.0
CLOCK = np.array([0.1, 0.3, 0.5, 0.9, 1.2, 1.7, 2.0])
GONE = np.array([[0, 1], [0, 0], [1, 0], [0, 1], [1, 0], [0, 0], [0, 1]], dtype=bool)
LOGS = (
    math.log(AMOUNT)
    - RATE * CLOCK[:, None]
    + [0.0, math.log(2.0)]
    + np.random.default_rng(31).standard_normal((7, 2)) * [0.15, 0.3]
)
TABLE = {
    "time": CLOCK,
    "first": np.where(GONE[:, 0], NAN, np.exp(LOGS[:, 0])),
    "second": np.where(GONE[:, 1], NAN, np.exp(LOGS[:, 1])),
}
HERE = ~GONE.ravel()
DESIGN = np.column_stack([-np.repeat(CLOCK, 2), np.ones(14)])[HERE]
RIGHT = (LOGS - [0.0, math.log(2.0)]).ravel()[HERE]
COUNT = int(HERE.sum())


def twice(t, u, p):
    return np.array([u[0], 2.0 * u[0]])


def fitted(data=TABLE, noise=None, **extra):
    return ds.fit(
        decay(),
        data,
        decay_control(),
        DECAY_STEPPING,
        noise=LogNormal() if noise is None else noise,
        **{"observe": twice, "gradient_tolerance": 1e-9, **extra},
    )


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
def test_a_fit_is_the_regression_of_what_was_observed(hessian):
    estimate = fitted(hessian=hessian)
    best, squares = np.linalg.lstsq(DESIGN, RIGHT)[:2]
    inverse = np.linalg.inv(DESIGN.T @ DESIGN)
    variance = squares[0] / (COUNT - 2)
    assert estimate.estimate["rate"] == pytest.approx(best[0], rel=1e-8)
    assert estimate.estimate["amount"] == pytest.approx(math.exp(best[1]), rel=1e-8)
    assert estimate.degrees_of_freedom == pytest.approx(COUNT - 2)
    np.testing.assert_allclose(estimate.sigma, math.sqrt(variance), rtol=1e-9)
    np.testing.assert_allclose(estimate.covariance.scaled, variance * inverse, rtol=1e-7)
    np.testing.assert_array_equal(np.isnan(estimate.residuals), GONE)
    rest = (RIGHT - DESIGN @ best) / math.sqrt(variance)
    np.testing.assert_allclose(estimate.residuals[~GONE], rest, rtol=1e-6, atol=1e-9)
    assert estimate.chi_square == pytest.approx(COUNT - 2)
    assert f"fit: {COUNT} observations" in repr(estimate)
    times = np.array([0.1, 3.0])
    rows = np.column_stack([-times, np.ones(2)])
    error = np.sqrt(variance * np.einsum("ki,ij,kj->k", rows, inverse, rows))
    bands = estimate.prediction(times)
    np.testing.assert_allclose(bands.standard_error, np.column_stack([error] * 2), rtol=1e-6)
    reach = stats.t.ppf(0.975, COUNT - 2) * math.sqrt(variance * inverse[0, 0])
    ends = (best[0] - reach, best[0] + reach)
    assert estimate.intervals()["rate"] == pytest.approx(ends, rel=1e-6)
    assert estimate.profile(["rate"], tolerance=1e-5)["rate"].interval == pytest.approx(
        ends, rel=1e-4
    )


@pytest.mark.slow
def test_a_given_level_and_a_prior_go_with_missing_data():
    levels = np.array([0.15, 0.3])
    estimate = fitted(noise=LogNormal(levels), priors=ds.Prior([0.9], 0.05, names=["rate"]))
    weights = 1.0 / np.tile(levels, 7)[HERE]
    design = np.vstack([DESIGN * weights[:, None], [1.0 / 0.05, 0.0]])
    right = np.append(RIGHT * weights, 0.9 / 0.05)
    best = np.linalg.lstsq(design, right)[0]
    np.testing.assert_allclose(estimate.covariance.x, best, rtol=1e-7)
    np.testing.assert_allclose(
        estimate.covariance.scaled, np.linalg.inv(design.T @ design), rtol=1e-6
    )
    rest = RIGHT * weights - (DESIGN * weights[:, None]) @ best
    assert estimate.chi_square == pytest.approx(rest @ rest, rel=1e-6)
    degrees = COUNT - 2 + estimate.covariance.scaled[0, 0] / 0.05**2
    assert estimate.p_value == pytest.approx(stats.chi2.sf(rest @ rest, degrees), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("item", [False, True])
@pytest.mark.parametrize("prior", [None, (-1.0, 0.5)])
def test_derivatives_of_the_likelihood_are_exact(item, prior):
    noise = Normal(each_column=item, prior=prior)
    functional = fitted(noise=noise).functional
    x = functional.start()
    assert min(ds.taylor(functional, x)) > 1.9
    assert min(ds.taylor(functional, x, hessian=True)) > 2.9
    np.testing.assert_array_equal(functional.counts, [5, 4] if item else [9])
    dense = functional.hessian(x)
    np.testing.assert_allclose(
        gather(functional.hessian_product(x, scattered(x, [0.3, -1.0]))), dense @ [0.3, -1.0]
    )


def scattered(x, values):
    vec = x.duplicate()
    vec.setArray(values)
    return vec


@pytest.mark.slow
def test_an_output_that_was_not_observed_may_have_no_logarithm():
    """A product starts at zero: no logarithm, so that it is left out there."""
    grow = ds.ODE(lambda t, u, p: np.array([-p[0] * u[0], p[0] * u[0]]), 2, parameters=["rate"])
    times = np.array([0.0, 1.0, 2.0])
    exact = np.exp(-0.5 * times)
    noise = np.exp(0.05 * np.random.default_rng(3).standard_normal((3, 2)))
    data = np.column_stack([exact, 1.0 - exact]) * noise
    data[0, 1] = NAN
    rates = ds.Parameters({"rate": ds.Parameter(1.0)}, initial_state=[1.0, 0.0])
    stepping = ds.Stepping((0.0, 2.0), "rk4", dt=0.05)

    def state(t, u, p):
        return u

    def state_u(t, u, p):
        return np.eye(2) + 0.0 * u[0]

    def state_p(t, u, p):
        return np.zeros((2, 1)) + 0.0 * u[0]

    values = [
        ds.fit(grow, data, rates, stepping, times=times, noise=LogNormal(), **observed)
        for observed in (
            {},
            {"observe": [0, 1]},
            {"observe": state, "observe_u": state_u, "observe_p": state_p},
        )
    ]
    for item in values:
        assert item.estimate["rate"] == pytest.approx(0.5, abs=0.05)
        assert item.estimate["rate"] == pytest.approx(values[0].estimate["rate"], rel=1e-6)
        np.testing.assert_allclose(item.covariance.scaled, values[0].covariance.scaled, rtol=1e-4)
    data[0, 1] = 1e-3
    with pytest.raises(
        ds.SolveError, match="what is observed is 0 at t = 0, with log-normal noise"
    ):
        ds.fit(grow, data, rates, stepping, times=times, noise=LogNormal())


@pytest.mark.slow
def test_missing_cells_of_a_file_are_read_and_counted(tmp_path):
    path = tmp_path / "decay.csv"
    cells = [
        ",".join("" if np.isnan(value) else f"{value:.17g}" for value in row)
        for row in zip(*TABLE.values(), strict=True)
    ]
    path.write_text("\n".join(["time,first,second", *cells]) + "\n")
    estimate = fitted(path)
    table = estimate.data
    np.testing.assert_array_equal(table.observed, ~GONE)
    assert table.count == COUNT
    assert estimate.estimate == fitted().estimate


@pytest.mark.parametrize(
    ("data", "noise", "message"),
    [
        (
            {"time": [0.5, 1.0], "a": [1.0, NAN], "b": [NAN, 2.0]},
            LogNormal(),
            "2 observations for 2 free parameters and a noise level",
        ),
        (
            {"time": [0.5, 1.0, 1.5], "a": [1.0, NAN, NAN], "b": [2.0, 2.0, 1.0]},
            LogNormal(each_column=True),
            'column "a" has one observation, and a noise level of its own',
        ),
    ],
)
def test_too_few_observations_are_counted(data, noise, message):
    with pytest.raises(ds.InputError, match=message):
        fitted(data, noise)
