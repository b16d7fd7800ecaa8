"""Matrices by few of their rows: where it pays, and only where all values keep their digits."""

import numpy as np
import pytest

from daeosens.petsc.low_rank_rows import ROUNDING, WINDOWS, few_rows

K, N = 300, 200
T = np.linspace(0.0, 1.0, K)[:, None]
RATES = np.linspace(0.0, 2.0, N)

SMOOTH = {
    "decaying": np.exp(-T * RATES),
    "oscillating": np.cos(20.0 * T * RATES),
    "badly scaled": np.exp(-T * RATES) * 10.0 ** np.linspace(0.0, -200.0, N),
    "with columns of zeros": np.exp(-T * RATES) * (np.arange(N) % 3 > 0),
    "few columns": np.exp(-T * RATES[::2]),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_what_is_smooth_has_few_rows_to_rounding(name, rng):
    values = SMOOTH[name]
    few = few_rows(values, 40000)
    rank = len(few.rows)
    assert rank < 40
    assert few.weights.shape == (K, rank)
    assert abs(few.weights).max() < 10.0
    largest = abs(values).max(axis=0)
    assert (abs(few.weights @ few.rows - values) <= 1e-14 * largest * WINDOWS).all()
    left = rng.uniform(size=(3, K, 5))
    ours, direct = (few.weights.T @ left).mT @ few.rows, left.mT @ values
    assert (abs(ours - direct) <= ROUNDING * K * largest).all()
    assert (abs(ours - direct) <= 1e-13 * abs(direct).max(axis=(0, 1))).all()


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        (np.random.default_rng(1).normal(size=(K, N)), 40000),  # of full rank
        (np.exp(-10.0 * T * RATES), 40000),  # late values would lose their digits
        (SMOOTH["decaying"], N),  # too little work
        (SMOOTH["decaying"][:10], 40000),
        (np.zeros((K, N)), 40000),
    ],
)
def test_otherwise_all_rows_remain(values, columns):
    few = few_rows(values, columns)
    assert few.rows is values
    assert few.weights is None


def test_the_same_rows_are_found_again():
    first, second = (few_rows(SMOOTH["decaying"], 40000) for _ in range(2))
    assert np.array_equal(first.weights, second.weights)
