"""Gray-Scott: derivatives, orders, the inverse problem, the same on any number of ranks."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from driver_modules import driven
from fields import alone, close, own_part, random_field
from petsc4py import PETSc

from daeosens import (
    InputError,
    LeastSquares,
    Reduced,
    Stepping,
    Terminal,
    adjoint,
    check,
    minimize,
    solve,
    taylor,
)
from daeosens.functional import InitialState
from daeosens.io import read_array
from daeosens.problem.grids import RATES, Grid, gray_scott, spots
from daeosens.verify import duality

ROOT = Path(__file__).parents[2]
DRIVER = "gray_scott_initial"
SMALL = ROOT / "configs" / f"{DRIVER}.small.toml"
BOX = ((0.0, 2.5), (0.0, 2.5))
STRONG = [0.02, 0.01, 0.3, 0.2]  # rates that make every term matter
SELF = PETSc.COMM_SELF
METHODS = ["rk4", "cn", "beuler", "midpoint"]
SAME_ON_ALL_RANKS = {"ksp_type": "gmres", "pc_type": "pbjacobi", "ksp_rtol": 1e-13}


def grid_of(nx, ny=None, comm=None):
    return Grid(BOX, (nx, ny or nx), dof=2, comm=comm or PETSc.COMM_WORLD)


def steps(method, end, dt):
    options = {} if method == "rk4" else SAME_ON_ALL_RANKS
    return Stepping((0.0, end), method, dt=dt, options=options)


# ---- right-hand side and derivatives -------------------------------------------------------------


@pytest.mark.mpi
def test_rhs_is_the_formula():
    grid = grid_of(12, 9)
    state, out = random_field(grid, 1), grid.create_vec()
    gray_scott(grid, *STRONG).rhs(0.0, state, np.array([]), out)
    whole = alone(grid)
    u, v = np.moveaxis(whole.values(random_field(whole, 1)), 2, 0)
    hx, hy = grid.spacing

    def laplacian(w):
        along_x = np.roll(w, 1, 1) + np.roll(w, -1, 1) - 2 * w
        along_y = np.roll(w, 1, 0) + np.roll(w, -1, 0) - 2 * w
        return along_x / hx**2 + along_y / hy**2

    d1, d2, gamma, kappa = STRONG
    expected = np.stack(
        [
            d1 * laplacian(u) - u * v**2 + gamma * (1 - u),
            d2 * laplacian(v) + u * v**2 - (gamma + kappa) * v,
        ],
        axis=2,
    )
    np.testing.assert_allclose(grid.values(out), own_part(grid, expected), atol=1e-14)


@pytest.mark.mpi
@pytest.mark.parametrize("jacobian", ["assembled", "products"])
@pytest.mark.parametrize("names", [(), ("gamma", "kappa"), ("kappa", "D2"), tuple(RATES)])
def test_derivatives_are_right(names, jacobian):
    grid = grid_of(9, 8)
    rates = dict(zip(RATES, STRONG, strict=True))
    problem = gray_scott(grid, **rates, parameters=names, jacobian=jacobian)
    assert problem.parameter_names == names
    report = check(problem, random_field(grid, 2), [rates[name] for name in names])
    assert report.passed, str(report)


@pytest.mark.mpi
def test_parameters_take_the_place_of_fixed_rates():
    grid = grid_of(8)
    state, fixed, value = random_field(grid, 3), grid.create_vec(), grid.create_vec()
    gray_scott(grid, *STRONG).rhs(0.0, state, np.array([]), fixed)
    varied = gray_scott(grid, parameters=["kappa", "D1", "gamma", "D2"])
    varied.rhs(0.0, state, np.array(list(RATES.values()))[[3, 0, 2, 1]], value)
    assert close(value, fixed) > 0.1  # other values first: nothing is kept
    varied.rhs(0.0, state, np.array(STRONG)[[3, 0, 2, 1]], value)
    assert value.equal(fixed)


@pytest.mark.mpi
@pytest.mark.parametrize("jacobian", ["assembled", "products"])
@pytest.mark.parametrize("method", METHODS)
def test_adjoint_is_the_transpose_of_the_tangent(method, jacobian):
    grid = grid_of(9, 8)
    problem = gray_scott(grid, parameters=list(RATES), jacobian=jacobian)
    options = {} if method == "rk4" else {"ksp_type": "gmres", "ksp_rtol": 1e-13}
    stepping = Stepping((0.0, 1.0), method, dt=0.2, options=options)
    run = solve(problem, random_field(grid, 4), STRONG, stepping)
    misfit = LeastSquares([0.4, 1.0], [random_field(grid, 5), random_field(grid, 6)])
    assert duality(run, misfit) < 1e-11


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk4", "cn", "beuler"])
def test_both_engines_agree(method):
    grid = grid_of(9, 8)
    problem = gray_scott(grid, parameters=["gamma", "kappa"])
    run = solve(problem, random_field(grid, 4), STRONG[2:], steps(method, 1.0, 0.2))
    misfit = LeastSquares([1.0], [random_field(grid, 5)])
    ours, petsc = adjoint(run, misfit), adjoint(run, misfit, engine="tsadjoint")
    assert close(ours.u0_vec, petsc.u0_vec) < 1e-12
    np.testing.assert_allclose(ours.p, petsc.p, rtol=1e-11)


@pytest.mark.mpi
@pytest.mark.parametrize("method", METHODS)
def test_products_and_matrix_give_one_answer(method):
    grid = grid_of(9, 8)
    finals, gradients = [], []
    for jacobian, preconditioner in (("assembled", "jacobi"), ("products", "none")):
        options = {"ksp_type": "gmres", "pc_type": preconditioner, "ksp_rtol": 1e-13}
        stepping = Stepping((0.0, 1.0), method, dt=0.2, options={} if method == "rk4" else options)
        problem = gray_scott(grid, *STRONG, jacobian=jacobian)
        run = solve(problem, random_field(grid, 4), None, stepping)
        finals.append(run.final)
        gradients.append(adjoint(run, LeastSquares([1.0], [random_field(grid, 5)])).u0_vec)
    assert close(*finals) < 1e-12
    assert close(*gradients) < 1e-11


@pytest.mark.parametrize("name", ["jacobi", "ilu"])
@pytest.mark.parametrize("method", ["cn", "esdirk3"])
def test_a_preconditioner_that_does_not_solve_the_system_is_iterated_with(method, name):
    grid = grid_of(9, 8, SELF)
    problem = gray_scott(grid, *STRONG)
    gradients = []
    for options in ({}, {"pc_type": name}):
        stepping = Stepping((0.0, 1.0), method, dt=0.2, options=options)
        run = solve(problem, random_field(grid, 4), None, stepping)
        gradients.append(adjoint(run, LeastSquares([1.0], [random_field(grid, 5)])).u0_vec)
    assert close(*gradients) < 1e-10


@pytest.mark.parametrize(("method", "order"), [("rk4", 4.0), ("cn", 2.0), ("beuler", 1.0)])
def test_steps_have_their_order(method, order):
    grid = grid_of(12, comm=SELF)
    problem = gray_scott(grid, *STRONG)
    runs = [
        solve(problem, random_field(grid, 7), None, steps(method, 2.0, dt)).final
        for dt in (0.1, 0.05, 0.025, 0.0125)
    ]
    changes = [(b - a).norm() for a, b in pairwise(runs)]
    assert np.log2(changes[1] / changes[2]) == pytest.approx(order, abs=0.1)


@pytest.mark.mpi
def test_runs_are_the_same_on_any_number_of_ranks():
    grid = grid_of(16)
    whole = alone(grid)
    for method, tolerance in (("rk4", 1e-14), ("cn", 1e-12), ("beuler", 1e-12)):
        pair = []
        for value in (grid, whole):
            run = solve(gray_scott(value), spots(value), None, steps(method, 5.0, 0.5))
            gradient = adjoint(run, LeastSquares([5.0], [spots(value, 2.0)])).u0_vec
            pair.append([value.values(run.final), value.values(gradient)])
        for mine, everything in zip(*pair, strict=True):
            size = np.abs(everything).max()
            np.testing.assert_allclose(mine, own_part(grid, everything), atol=tolerance * size)


# ---- gradient check ------------------------------------------------------------------------------


@pytest.mark.mpi
def test_gradient_check_in_feed_and_removal_rate_has_order_two():
    """As published, on 50 x 50 points with RK4; the initial state's is in test_reproduce."""
    grid = grid_of(50)
    problem = gray_scott(grid, parameters=["gamma", "kappa"])
    stepping, p = steps("rk4", 5.0, 0.5), np.array([RATES["gamma"], RATES["kappa"]])
    total = Terminal(
        lambda t, u, p: 0.5 * u.dot(u), lambda t, u, p, out: u.copy(out), "independent"
    )

    def gradient(p):
        return adjoint(solve(problem, spots(grid), p, stepping), total)

    exact = gradient(p).p
    differences = []
    for h in (5e-3, 5e-4, 5e-5):
        moves = h * np.eye(2)
        central = [(gradient(p + d).value - gradient(p - d).value) / (2 * h) for d in moves]
        differences.append(np.linalg.norm(central - exact))
    assert np.log10(differences[0] / differences[1]) == pytest.approx(2.0, abs=0.01)
    assert np.log10(differences[1] / differences[2]) == pytest.approx(2.0, abs=0.1)


# ---- initial state -------------------------------------------------------------------------------


@pytest.mark.mpi
def test_spots_are_four_or_one():
    grid = grid_of(40)
    state = spots(grid)
    u, v = np.moveaxis(grid.values(state), 2, 0)
    np.testing.assert_array_equal(u, 1.0 - 2.0 * v)
    x, y = grid.coordinates()
    inside = (x >= 1.0) & (x <= 1.5) & (y >= 1.0) & (y <= 1.5)
    assert not v[~inside].any()
    np.testing.assert_allclose(
        v[inside], (0.5 * np.sin(4 * np.pi * x) * np.sin(4 * np.pi * y))[inside] ** 2
    )
    for waves in (4.0, 2.0):
        v_sum = spots(grid, waves).strideNorm(1, PETSc.NormType.NORM_1)
        assert v_sum * np.prod(grid.spacing) == pytest.approx(1 / 64, rel=1e-12)  # the integral


def inverse_problem(grid, method):
    problem = gray_scott(grid, jacobian="products" if method == "rk4" else "assembled")
    stepping = steps(method, 2.5, 0.5)
    data = solve(problem, spots(grid), None, stepping).final
    return Reduced(
        problem, LeastSquares([2.5], [data]), stepping, InitialState(spots(grid, waves=2.0))
    )


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["beuler", "cn", "rk4"])
def test_initial_state_is_recovered_with_one_history_on_any_number_of_ranks(method):
    histories = []
    for grid in (grid_of(20), grid_of(20, comm=SELF)):
        reduced = inverse_problem(grid, method)
        first = reduced.value(reduced.start())
        result = minimize(reduced, gradient_tolerance=0.0, options={"tao_fmin": 1e-10 * first})
        assert result.converged
        assert result.value <= 1e-10 * first
        assert close(result.x, spots(grid)) < 1e-5
        histories.append(result.history.value)
    np.testing.assert_allclose(histories[0], histories[1], rtol=1e-8)


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["beuler", "cn", "rk4"])
def test_gradient_in_the_initial_state_passes_its_taylor_test(method):
    assert min(taylor(inverse_problem(grid_of(16), method))) > 1.99


# ---- driver --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.mpi(min_size=3)
def test_driver_gets_there_on_three_ranks_too(comm, shared_tmp_path, capsys):
    output = shared_tmp_path / "results"
    assert driven(DRIVER, SMALL, "--output", output) == 0
    comm.barrier()
    orders = re.findall(r"order ([\d.]+), rounding", (output / "log.txt").read_text())
    assert len(orders) == 3
    assert min(map(float, orders)) > 1.99
    for method in ("beuler", "cn", "rk4"):
        misfits = read_array(output / "results.h5", f"{method}/misfit")
        assert misfits[-1] <= 1e-10 * misfits[0]
        assert (output / f"{method}.xdmf").is_file()


@pytest.mark.slow
def test_driver_that_does_not_get_there_says_so_by_its_exit_code(tmp_path, capsys):
    config = tmp_path / "impatient.toml"
    text = SMALL.read_text().replace("max_iterations = 200", "max_iterations = 3")
    config.write_text(text)
    assert driven(DRIVER, config, "--output", tmp_path / "out") == 1
    assert "not converged" in capsys.readouterr().out


def test_driver_refuses_results_that_would_overwrite_each_other(tmp_path, capsys):
    config = tmp_path / "twice.toml"
    config.write_text(SMALL.read_text().replace('"cn"', '"beuler"'))
    assert driven(DRIVER, config, "--output", tmp_path / "out") == 2
    assert "methods ['beuler', 'beuler', 'rk4']" in capsys.readouterr().err


# ---- bad input -----------------------------------------------------------------------------------


def test_bad_arguments_are_reported_all_at_once():
    grid = Grid(BOX, (8, 8), dof=1, comm=SELF)
    with pytest.raises(InputError) as caught:
        gray_scott(grid, parameters=["gama"], jacobian="dense")
    message = str(caught.value)
    assert "3 problems" in message
    assert 'unknown parameter "gama"; expected: D1, D2, gamma, kappa; try: "gamma"' in message
    assert "dof = 1" in message
    assert "jacobian = 'dense'" in message


def test_rates_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="kappa = nan"):
        gray_scott(grid_of(8, comm=SELF), kappa=np.nan)
