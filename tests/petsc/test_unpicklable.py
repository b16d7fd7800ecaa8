"""What holds objects of PETSc says what to send in its place, and the remedy works."""

import copy
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from petsc4py import PETSc

import daeosens as ds
from daeosens.petsc import gather

STEPPING = ds.Stepping((0.0, 3.0), "rk4", dt=0.1)
DATA = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
RATES = ds.Parameters({"rate": ds.Parameter(1.0, scale="log")}, initial_state=[1.0])


def decay():
    return ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])


def reduced():
    return ds.Reduced(decay(), ds.LeastSquares([1.0], [0.6], sigma=0.1), STEPPING, RATES)


def run():
    return ds.solve(decay(), [1.0], [0.5], STEPPING)


CASES = {
    "Problem": (decay, "a function that builds it"),
    "Reduced": (reduced, "a function that builds it"),
    "Fit": (lambda: ds.fit(decay(), DATA, RATES, STEPPING), "save_fit"),
    "Trajectory": (run, "save_run"),
    "Gradient": (lambda: ds.adjoint(run(), ds.Terminal(lambda t, u, p: u[0])), "its arrays"),
    "Tangent": (lambda: ds.tangent(run(), [1.0]), "its arrays"),
    "Result": (lambda: ds.minimize(reduced()), "save_result"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_pickled_says_what_can(name):
    make, remedy = CASES[name]
    item = make()
    for whole in (item, {"kept": [item]}):
        with pytest.raises(
            ds.UnsupportedError, match=f"a {name} cannot be pickled(.|\\n)*{remedy}"
        ):
            pickle.dumps(whole)
    assert vars(copy.copy(item)) == vars(item)
    if name in ("Reduced", "Fit", "Trajectory", "Tangent"):
        with pytest.raises(ds.UnsupportedError, match=f"{name} cannot be copied(.|\\n)*{remedy}"):
            copy.deepcopy(item)


def test_copies_in_depth_of_problems_are_these_and_those_of_results_have_vectors_of_their_own():
    problem = decay()
    ds.solve(problem, [1.0], [0.5], STEPPING)  # has a solver by now
    kept = copy.deepcopy({"model": problem})
    assert kept["model"] is problem
    gradient, result = CASES["Gradient"][0](), CASES["Result"][0]()
    other, again = copy.deepcopy(gradient), copy.deepcopy(result)
    before = gradient.p.copy(), gather(result.x)
    other.p_vec.set(7.0)
    again.x.set(7.0)
    np.testing.assert_array_equal(gradient.p, before[0])
    np.testing.assert_array_equal(gather(result.x), before[1])
    assert isinstance(again.x, PETSc.Vec)
    assert again.history.value.tolist() == result.history.value.tolist()


def test_parameters_that_have_been_used_can_be_pickled():
    fitted = ds.fit(decay(), DATA, RATES, STEPPING)
    again = pickle.loads(pickle.dumps(RATES))
    assert again.entries == RATES.entries
    assert ds.fit(decay(), DATA, again, STEPPING).estimate == fitted.estimate
    covariance = pickle.loads(pickle.dumps(fitted.covariance))
    assert covariance.error("rate") == fitted.covariance.error("rate")


@pytest.mark.slow
def test_processes_that_build_their_own_problem(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import multiprocessing
            import daeosens as ds

            def final(rate):
                decay = ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
                run = ds.solve(decay, [1.0], [rate], ds.Stepping((0.0, 2.0), "rk4", dt=0.1))
                return run.u[-1]

            if __name__ == "__main__":
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(*(state.item() for state in pool.map(final, [0.5, 1.0])))
            """
        )
    )
    job = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=120, check=True
    )
    np.testing.assert_allclose([float(x) for x in job.stdout.split()], np.exp([-1.0, -2.0]), 1e-5)
