"""Kinks and jumps of functions of a point on finite elements, which derivatives miss, are told."""

import warnings

import numpy as np
import pytest
import skfem
from petsc4py import PETSc

from daeosens import Stepping, adjoint, hessian_product, solve
from daeosens.errors import KinkWarning
from daeosens.problem.grids import FiniteElements
from daeosens.tracing import trace_weak_form

LINE = skfem.Basis(skfem.MeshLine().refined(3), skfem.ElementLineP2())
FIXED = Stepping((0.0, 0.5), "cn", dt=0.08)  # the last step is cut short


def kink(t, u, p):
    return p.k * np.maximum(u.value - 0.5, 0.0), [-0.1 * u.gradient()[0]]


def jump(t, u, p):
    return p.k * np.where(u.value > 0.5, 1.0, 0.0), [-0.1 * u.gradient()[0]]


def smooth(t, u, p):
    return p.k * u.value**2, [-0.1 * u.gradient()[0]]


def at_known_times(t, u, p):
    """Other equations at times and places which nothing moves."""
    return p.k * np.where(t > 0.23, 1.0, 0.0) * np.maximum(u.x[0] - 0.3, 0.0), [
        -0.1 * u.gradient()[0]
    ]


def square(t, u, p):
    return u.value[0] ** 2


def warned(
    rhs,
    density=square,
    stepping=FIXED,
    *,
    fields=False,
    running=False,
    outflow=None,
    comm=PETSc.COMM_WORLD,
):
    """Return what is told of a gradient, and of a product with the Hessian."""
    space = FiniteElements(LINE, comm=comm)
    known = {"fields": ["k"]} if fields else {"parameters": ["k"]}
    model = trace_weak_form(rhs, space, **known, outflow=outflow)
    cost = model.running(density) if running else model.terminal(density)
    u0 = space.interpolate(lambda x: 0.4 + 0.2 * x[0])
    p, dp = model.pack(k=2.0), model.pack(k=1.0)
    told = []
    run = solve(model, u0, p, stepping)
    for differentiate in (adjoint, lambda *of: hessian_product(*of, u0, dp)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            differentiate(run, cost)
        told.append(" ".join(str(w.message) for w in caught if w.category is KinkWarning))
    return told


@pytest.mark.mpi
@pytest.mark.parametrize("fields", [False, True], ids=["number", "field"])
@pytest.mark.parametrize(
    "stepping", [FIXED, Stepping((0.0, 0.5), "esdirk4", rtol=1e-4)], ids=["fixed", "adaptive"]
)
def test_kinks_and_jumps_in_the_state_are_told(fields, stepping):
    first, second = warned(kink, stepping=stepping, fields=fields)
    assert "jump" not in first
    assert "the equations have a kink" in second
    if not stepping.adaptive:  # Newton's method does not end across a jump at any tolerance
        first, second = warned(jump, stepping=stepping, fields=fields)
        assert "the equations jump" in first
        assert "the equations have a jump" in second


@pytest.mark.mpi
def test_jumps_on_a_boundary_are_told():
    def inwards(t, u, p):
        return -0.1 * p.k * np.where(u.value > 0.55, 1.02, 1.0)

    assert "the equations jump" in warned(smooth, outflow={"boundary": inwards})[0]


@pytest.mark.mpi
@pytest.mark.parametrize("rhs", [smooth, at_known_times])
def test_what_no_derivative_misses_is_not_told(rhs):
    assert warned(rhs) == ["", ""]


def test_costs_with_kinks_and_jumps_are_told():
    def step(t, u, p):
        return np.where(u.value[0] > 0.5, 1.0, 0.0)

    assert "the running cost jumps" in warned(smooth, step, running=True)[0]
    assert warned(smooth, lambda t, u, p: np.abs(u.value[0] - 0.55)) == ["", ""]
    assert (
        "the running cost has a kink"
        in (warned(smooth, lambda t, u, p: np.abs(u.value[0] - 0.45), running=True)[1])
    )
