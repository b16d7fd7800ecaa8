"""Gray-Scott: the initial state recovered, the same on any number of ranks; the driver."""

import re
from pathlib import Path

import numpy as np
import pytest
from driver_modules import driven
from fields import close, random_field
from petsc4py import PETSc

import daeosens as ds
from daeosens.functional import InitialState
from daeosens.io import read_array
from daeosens.problem.grids import Grid
from daeosens.tracing.pdes import RATES, gray_scott, spots

ROOT = Path(__file__).parents[1]
DRIVER = "gray_scott_initial"
SMALL = ROOT / "configs" / f"{DRIVER}.small.toml"
BOX = ((0.0, 2.5), (0.0, 2.5))
STRONG = [0.02, 0.01, 0.3, 0.2]  # rates that make every term matter
SELF = PETSc.COMM_SELF
SAME_ON_ALL_RANKS = {"ksp_type": "gmres", "pc_type": "pbjacobi", "ksp_rtol": 1e-13}


def grid_of(nx, ny=None, comm=None):
    return Grid(BOX, (nx, ny or nx), dof=2, comm=comm or PETSc.COMM_WORLD)


def steps(method, end, dt):
    options = {} if method == "rk4" else SAME_ON_ALL_RANKS
    return ds.Stepping((0.0, end), method, dt=dt, options=options)


@pytest.mark.parametrize("name", ["jacobi", "ilu"])
@pytest.mark.parametrize("method", ["cn", "esdirk3"])
def test_a_preconditioner_that_does_not_solve_the_system_is_iterated_with(method, name):
    grid = grid_of(9, 8, SELF)
    problem = gray_scott(grid, *STRONG)
    gradients = []
    for options in ({}, {"pc_type": name}):
        stepping = ds.Stepping((0.0, 1.0), method, dt=0.2, options=options)
        run = ds.solve(problem, random_field(grid, 4), None, stepping)
        gradients.append(ds.adjoint(run, ds.LeastSquares([1.0], [random_field(grid, 5)])).u0_vec)
    assert close(*gradients) < 1e-10


# ---- gradient check ------------------------------------------------------------------------------


@pytest.mark.mpi
def test_gradient_check_in_feed_and_removal_rate_has_order_two():
    """As published, on 50 x 50 points with RK4; the initial state's is in test_reproduce."""
    grid = grid_of(50)
    problem = gray_scott(grid, parameters=["gamma", "kappa"])
    stepping, p = steps("rk4", 5.0, 0.5), np.array([RATES["gamma"], RATES["kappa"]])
    total = ds.Terminal(
        lambda t, u, p: 0.5 * u.dot(u), lambda t, u, p, out: u.copy(out), "independent"
    )

    def gradient(p):
        return ds.adjoint(ds.solve(problem, spots(grid), p, stepping), total)

    exact = gradient(p).p
    differences = []
    for h in (5e-3, 5e-4, 5e-5):
        moves = h * np.eye(2)
        central = [(gradient(p + d).value - gradient(p - d).value) / (2 * h) for d in moves]
        differences.append(np.linalg.norm(central - exact))
    assert np.log10(differences[0] / differences[1]) == pytest.approx(2.0, abs=0.01)
    assert np.log10(differences[1] / differences[2]) == pytest.approx(2.0, abs=0.1)


# ---- initial state -------------------------------------------------------------------------------


def inverse_problem(grid, method):
    problem = gray_scott(grid)
    stepping = steps(method, 2.5, 0.5)
    data = ds.solve(problem, spots(grid), None, stepping).final
    return ds.Reduced(
        problem, ds.LeastSquares([2.5], [data]), stepping, InitialState(spots(grid, waves=2.0))
    )


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["beuler", "cn", "rk4"])
def test_initial_state_is_recovered_with_one_history_on_any_number_of_ranks(method):
    histories = []
    for grid in (grid_of(20), grid_of(20, comm=SELF)):
        reduced = inverse_problem(grid, method)
        first = reduced.value(reduced.start())
        result = ds.minimize(reduced, gradient_tolerance=0.0, options={"tao_fmin": 1e-10 * first})
        assert result.converged
        assert result.value <= 1e-10 * first
        assert close(result.x, spots(grid)) < 1e-5
        histories.append(result.history.value)
    np.testing.assert_allclose(histories[0], histories[1], rtol=1e-8)


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
