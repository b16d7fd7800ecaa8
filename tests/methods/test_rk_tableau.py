"""Butcher tableaux of explicit methods."""

import numpy as np
import pytest

from daeosens.methods.rk.method import EXPLICIT
from daeosens.methods.rk.tableau import tableau


def test_tableau_is_petscs_and_consistent():
    for kind in [method.kind for method in EXPLICIT]:
        table = tableau(kind)
        assert table is tableau(kind)
        np.testing.assert_allclose(table.a.sum(axis=1), table.c, rtol=0, atol=2e-14)
        assert table.b.sum() == pytest.approx(1.0, abs=1e-14)
        assert (np.triu(table.a) == 0).all()
