"""Coefficients of the IMEX methods: order conditions of both parts together, and stability."""

import itertools
import math

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens.methods.imex.tableau import TABLEAUX

OF_PETSC = {"arkimex3": "3", "arkimex4": "4", "arkimex5": "5"}


def conditions(pair):
    """Yield the orders and the errors of all conditions with rates of either part anywhere."""
    matrices, c = (pair.a, pair.a_explicit), pair.c
    for b in (pair.b, pair.b_explicit):
        for k in range(5):
            yield k + 1, b @ c**k - 1 / (k + 1)
        for a in matrices:
            yield 3, b @ a @ c - 1 / 6
            yield 4, b @ (c * (a @ c)) - 1 / 8
            yield 4, b @ a @ c**2 - 1 / 12
            yield 5, b @ a @ c**3 - 1 / 20
            yield 5, b @ (c**2 * (a @ c)) - 1 / 10
            yield 5, b @ (c * (a @ c**2)) - 1 / 15
        for first, second in itertools.product(matrices, repeat=2):
            yield 4, b @ first @ second @ c - 1 / 24
            yield 5, b @ ((first @ c) * (second @ c)) - 1 / 20
            yield 5, b @ first @ second @ c**2 - 1 / 60
            yield 5, b @ (c * (first @ second @ c)) - 1 / 30
            yield 5, b @ first @ (c * (second @ c)) - 1 / 40
        for three in itertools.product(matrices, repeat=3):
            yield 5, b @ three[0] @ three[1] @ three[2] @ c - 1 / 120


@pytest.mark.parametrize("name", TABLEAUX)
def test_both_parts_have_the_order_together_and_no_more(name):
    pair = TABLEAUX[name]
    assert np.allclose(pair.a.sum(axis=1), pair.c, atol=1e-15)
    assert np.allclose(pair.a_explicit.sum(axis=1), pair.c, atol=1e-15)
    errors = {k: max(abs(e) for n, e in conditions(pair) if n == k) for k in range(1, 6)}
    assert max(errors[k] for k in range(1, pair.order + 1)) < 2e-15
    if pair.order < 5:
        assert errors[pair.order + 1] > 1e-3


@pytest.mark.parametrize("name", TABLEAUX)
def test_the_fastest_modes_of_the_implicit_part_are_forgotten(name):
    """By the solution; by the embedded one their errors are at most about those of the state."""
    pair, z = TABLEAUX[name], -1e9
    stages = np.linalg.solve(np.eye(len(pair.c)) - z * pair.a, np.ones(len(pair.c)))
    assert abs(1 + z * pair.b @ stages) < 1e-6
    if pair.b_embedded is None:
        return
    of_stages, (_, _, of_rates) = pair.embedded, pair.additive
    assert abs(of_stages @ stages) < 1.0
    assert math.isclose(of_stages.sum(), 1.0, rel_tol=1e-13)
    assert abs(of_rates.sum() + of_stages @ pair.a_explicit.sum(axis=1) - 1.0) < 1e-13


@pytest.mark.parametrize("name", OF_PETSC)
def test_one_step_is_that_of_petsc(name):
    """TSARKIMEX with its default type of equations, which evaluates f at the first stage."""
    pair, h, u0 = TABLEAUX[name], 0.1, np.array([0.8, -0.3])

    def of_implicit(t, u):
        return np.array([-(u[0] ** 3) + np.sin(5 * t), -4 * (u[1] - u[0])])

    def slope(u):
        return np.array([[-3 * u[0] ** 2, 0.0], [4.0, -4.0]])

    def of_explicit(t, u):
        return np.array([u[0] * u[1] + np.cos(t), np.sin(u[0])])

    rates, added = [], []
    for i, c in enumerate(pair.c):
        base = u0 + h * sum(
            (
                a * f + e * g
                for a, e, f, g in zip(pair.a[i], pair.a_explicit[i], rates, added, strict=False)
            ),
            np.zeros(2),
        )
        stage, scale = base.copy(), h * pair.a[i, i]
        for _ in range(10):
            stage -= np.linalg.solve(
                np.eye(2) - scale * slope(stage),
                stage - base - scale * of_implicit(c * h, stage),
            )
        rates.append(of_implicit(c * h, stage))
        added.append(of_explicit(c * h, stage))
    end = u0 + h * (pair.b @ np.array(rates) + pair.b_explicit @ np.array(added))

    ts = PETSc.TS().create(comm=PETSc.COMM_SELF)
    ts.setType(PETSc.TS.Type.ARKIMEX)
    ts.setARKIMEXType(OF_PETSC[name])
    matrix = PETSc.Mat().createDense([2, 2], comm=PETSc.COMM_SELF)
    matrix.setUp()
    u = matrix.createVecLeft()

    def residual(_ts, t, u, rate, out):
        out.setArray(rate.array_r - of_implicit(t, u.array_r))

    def jacobian(_ts, _t, u, _rate, shift, matrix, _preconditioner):
        matrix.getDenseArray()[...] = shift * np.eye(2) - slope(u.array_r)
        matrix.assemble()

    ts.setIFunction(residual, u.duplicate())
    ts.setIJacobian(jacobian, matrix, matrix)
    ts.setRHSFunction(lambda _ts, t, u, out: out.setArray(of_explicit(t, u.array_r)), u.duplicate())
    ts.setTimeStep(h)
    ts.setMaxSteps(1)
    ts.setMaxTime(1.0)
    options = PETSc.Options()
    options["ts_adapt_type"] = "none"
    ts.setFromOptions()
    options.delValue("ts_adapt_type")
    snes = ts.getSNES()
    snes.setTolerances(rtol=1e-14, atol=1e-14, stol=1e-15, max_it=20)
    snes.getKSP().setType("preonly")
    snes.getKSP().getPC().setType("lu")
    u.setArray(u0)
    ts.solve(u)
    assert np.allclose(u.array_r, end, rtol=0, atol=1e-14)
    ts.destroy()
