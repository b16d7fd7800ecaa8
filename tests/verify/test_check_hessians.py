"""Callbacks for second derivatives: right ones are confirmed, wrong ones named."""

import forms
import numpy as np
import pytest
from fields import random_field
from grid_callbacks import gray_scott
from petsc4py import PETSc

from daeosens import DAE, ODE, Parameter, Parameters, Running, Terminal, check
from daeosens.problem.grids import Grid

CONTROL = Parameters(
    {name: Parameter(value) for name, value in zip(forms.NAMES, forms.P0, strict=True)},
    forms.initial_state,
    forms.initial_state_p,
)


def spoiled(callback, output, entry):
    """Return the callback with one entry of one output made wrong."""

    def wrong(*arguments):
        result = [np.array(item) for item in callback(*arguments)]
        result[output][entry] += 0.1 * sum(float(np.sum(d)) for d in arguments[-2:])
        return tuple(result)

    return wrong


@pytest.mark.parametrize("form", forms.FORMS)
def test_right_ones_are_confirmed(form):
    problem = forms.FORMS[form].analytic
    verdicts = check(
        problem, forms.U0, forms.P0, 0.3, objective=forms.ANALYTIC_COST, control=CONTROL
    )
    assert verdicts.passed, verdicts
    assert verdicts["hessian_product du"].error < 1e-8
    assert verdicts["hessian_product dp"].error < 1e-8
    assert verdicts["terminal hessian_product dp"].error < 1e-8
    assert verdicts["running hessian_product du"].error < 1e-8
    if form == "F":
        assert verdicts["hessian_product dudot"].error < 1e-8
    if form == "M(p)":
        assert verdicts["mass_hessian dv"].error < 1e-8
        assert verdicts["mass_hessian dp"].error < 1e-8


def test_wrong_ones_are_named():
    supplied = {"jacobian": forms.rhs_u, "jacobian_p": forms.rhs_p}
    problem = ODE(
        forms.rhs, 3, forms.NAMES, **supplied, hessian_product=spoiled(forms.rhs_hessian, 1, 2)
    )
    assert set(check(problem, forms.U0, forms.P0, 0.3).wrong) == {
        "hessian_product du",
        "hessian_product dp",
    }
    problem = ODE(
        forms.rhs, 3, forms.NAMES, mass=forms.mass, mass_hessian=spoiled(forms.mass_hessian, 0, 1)
    )
    wrong = check(problem, forms.U0, forms.P0, 0.3).wrong
    assert set(wrong) == {"mass_hessian dv", "mass_hessian dp"}


def test_wrong_one_of_a_residual():
    def hessian(t, u, udot, p, w, du, dudot, dp):
        return np.zeros(3), np.zeros(3), dudot

    problem = DAE(
        lambda t, u, udot, p: forms.MASS @ udot * p[0] + p * u, 3, 3, hessian_product=hessian
    )
    wrong = check(problem, forms.U0, forms.P0).wrong
    assert {"hessian_product dudot", "hessian_product dp", "hessian_product du"} == set(wrong)


def test_wrong_costs_and_initial_states():
    cost = Terminal(
        forms.terminal, hessian_product=spoiled(forms.terminal_hessian, 0, 0)
    ) + Running(forms.density, hessian_product=spoiled(forms.density_hessian, 1, 1))
    control = Parameters(
        CONTROL.values, forms.initial_state, initial_state_hessian=lambda p, w, dp: dp
    )
    problem = forms.FORMS["rhs"].automatic
    wrong = check(problem, forms.U0, forms.P0, 0.3, objective=cost, control=control).wrong
    assert set(wrong) == {
        "terminal hessian_product du",
        "terminal hessian_product dp",
        "running hessian_product du",
        "running hessian_product dp",
        "initial_state_hessian",
    }


@pytest.mark.mpi
def test_callbacks_of_a_grid():
    grid = Grid(((0.0, 1.0), (0.0, 2.0)), (6, 5), dof=2, comm=PETSc.COMM_WORLD)
    verdicts = check(gray_scott(grid), random_field(grid, 1), np.linspace(0.1, 0.4, 4))
    assert verdicts.passed, verdicts
    assert verdicts["hessian_product du"].error < 1e-8
    assert verdicts["hessian_product dp"].error < 1e-8
