"""Butcher tableaux of explicit methods."""

import numpy as np
import pytest
from order_conditions import defects

from daeosens.methods.rk.method import EXPLICIT
from daeosens.methods.rk.tableau import tableau


def test_tableau_is_petscs_and_consistent():
    for kind in [method.kind for method in EXPLICIT]:
        table = tableau(kind)
        assert table is tableau(kind)
        np.testing.assert_allclose(table.a.sum(axis=1), table.c, rtol=0, atol=2e-14)
        assert table.b.sum() == pytest.approx(1.0, abs=1e-14)
        assert (np.triu(table.a) == 0).all()


@pytest.mark.parametrize("method", EXPLICIT, ids=lambda method: method.name)
def test_order_conditions(method):
    """Those of PETSc's tableaux, and of ours."""
    table = method.tableau
    assert max(max(defects(table.a, table.b, k)) for k in range(1, method.order + 1)) < 2e-14
    if table.b_embedded is not None:
        embedded = [max(defects(table.a, table.b_embedded, k)) for k in range(1, method.order + 1)]
        assert max(embedded[:-1]) < 2e-14
        assert embedded[-1] > 1e-5
