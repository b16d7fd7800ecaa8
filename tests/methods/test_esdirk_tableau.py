"""Coefficients of the ESDIRK methods: orders, stability, and what PETSc has been told of them."""

import numpy as np
import pytest
from order_conditions import defects, trees

from daeosens.methods.esdirk.method import DIAGONALLY_IMPLICIT
from daeosens.methods.esdirk.tableau import TABLEAUX

each_scheme = pytest.mark.parametrize("scheme", TABLEAUX.values(), ids=TABLEAUX)


def test_there_are_as_many_conditions_as_rooted_trees():
    assert [len(trees(order)) for order in range(1, 8)] == [1, 1, 2, 4, 9, 20, 48]


def test_methods_know_the_orders():
    assert {name: scheme.order for name, scheme in TABLEAUX.items()} == {
        method.name: method.order for method in DIAGONALLY_IMPLICIT
    }


@each_scheme
def test_order_conditions(scheme):
    b, order = scheme.a[-1], scheme.order
    assert max(max(defects(scheme.a, b, k)) for k in range(1, order + 1)) < 3e-15
    assert max(defects(scheme.a, b, order + 1)) > 1e-3
    assert max(max(defects(scheme.a, scheme.b_embedded, k)) for k in range(1, order)) < 3e-15
    assert max(defects(scheme.a, scheme.b_embedded, order)) > 1e-3


@each_scheme
def test_first_guesses_of_rates_extrapolate_parabolas(scheme):
    guess, c = scheme.guess, scheme.c
    assert not np.triu(guess).any()
    for i in range(1, len(c)):
        for power in range(min(3, i)):
            assert guess[i] @ c**power == pytest.approx(c[i] ** power, abs=1e-12)
    assert np.abs(guess).sum(axis=1).max() < 16.0


@each_scheme
def test_structure(scheme):
    """Explicit first stage, one diagonal coefficient, stages of order two inside of the step."""
    a, c = scheme.a, scheme.c
    assert (np.triu(a, 1) == 0.0).all()
    assert (np.diag(a) == [0.0] + [scheme.gamma] * (len(c) - 1)).all()
    np.testing.assert_allclose(a.sum(axis=1), c, rtol=0, atol=1e-15)
    np.testing.assert_allclose(a @ c, c**2 / 2, rtol=0, atol=1e-15)
    assert (c[0], c[-1]) == (0.0, 1.0)
    assert c.min() == 0.0
    assert c.max() == 1.0


def growth(scheme, z):
    """The factor by which a step multiplies u in u' = (z/h) u."""
    inverse = np.linalg.solve(np.eye(len(scheme.c)) - z * scheme.a, np.ones(len(scheme.c)))
    return 1 + z * scheme.a[-1] @ inverse


@each_scheme
def test_l_stability(scheme):
    """|R| <= 1 on the imaginary axis (R has its poles at 1/gamma), and 0 at infinity."""
    assert max(abs(growth(scheme, 1j * y)) for y in np.logspace(-3, 7, 5000)) < 1 + 1e-14
    at_infinity = np.linalg.solve(scheme.a[1:, 1:], scheme.a[1:, 0])
    assert abs(at_infinity[-1]) < 2e-14
    # nor does the error estimate hold on to the rate at the start: algebraic variables need none
    embedded = scheme.b_embedded
    assert abs(embedded[0] - embedded[1:] @ at_infinity) < 2e-14
