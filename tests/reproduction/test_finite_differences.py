"""Gradients by differences: orders of the schemes, digits of the default steps."""

from functools import cache

import numpy as np
import pytest
from continuous import orders, stepping
from finite_differences import finite_differences
from forms import ANALYTIC_COST, FORMS, NAMES, P0, initial_state, initial_state_p
from petsc4py import PETSc

from daeosens import InputError, Parameter, Parameters, Reduced
from daeosens.petsc import gather, read, write


@cache
def functional():
    control = Parameters(
        {name: Parameter(value) for name, value in zip(NAMES, P0, strict=True)},
        initial_state,
        initial_state_p,
    )
    return Reduced(FORMS["rhs"].analytic, ANALYTIC_COST, stepping("rk4", 0.05), control)


def difference_error(scheme, step=None):
    exact = read(functional().gradient(functional().start()))
    differences = finite_differences(functional(), scheme=scheme, step=step)
    return np.linalg.norm(read(differences.gradient) - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize(("scheme", "order"), [("forward", 1), ("central", 2)])
def test_differences_converge_with_the_order_of_the_scheme(scheme, order):
    errors = [difference_error(scheme, step) for step in (4e-3, 2e-3, 1e-3)]
    np.testing.assert_allclose(orders(errors), order, atol=0.05)


@pytest.mark.parametrize(("scheme", "digits"), [("forward", 1e-7), ("central", 1e-9)])
def test_default_step_gives_half_or_two_thirds_of_the_digits(scheme, digits):
    assert difference_error(scheme) < digits


def test_differences_report_steps_and_evaluations():
    x = functional().start()
    eps = np.finfo(float).eps
    forward = finite_differences(functional(), x)
    np.testing.assert_allclose(read(forward.step), eps**0.5 * P0)
    assert forward.evaluations == 4
    central = finite_differences(functional(), x, "central")
    np.testing.assert_allclose(read(central.step), eps ** (1 / 3) * P0)
    assert central.evaluations == 6
    differences = finite_differences(functional(), x, "central", 1e-3)
    assert read(differences.step).tolist() == [1e-3] * 3
    assert str(differences) == "central differences: 6 evaluations, steps 0.001 ... 0.001"
    np.testing.assert_array_equal(read(x), P0)


def test_differences_refuse_bad_input():
    with pytest.raises(InputError, match="scheme = 'backward'"):
        finite_differences(functional(), scheme="backward")
    for step in (0.0, -1e-3, np.nan):
        with pytest.raises(InputError, match=f"step = {step}"):
            finite_differences(functional(), step=step)


@pytest.mark.mpi
def test_distributed_differences():
    """Of a quadratic: exact to rounding, every component by its owner."""

    class Quadratic:
        comm = PETSc.COMM_WORLD

        def start(self):
            x = PETSc.Vec().createMPI(7, comm=self.comm)
            start, end = x.getOwnershipRange()
            write(x, 1.0 + np.arange(start, end))
            return x

        def value(self, x):
            return 0.5 * x.dot(x) + 3.0 * x.sum()

    differences = finite_differences(Quadratic(), scheme="central")
    np.testing.assert_allclose(gather(differences.gradient), 4.0 + np.arange(7), rtol=1e-9)
    assert differences.evaluations == 14
