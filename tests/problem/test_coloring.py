"""Large Jacobians of NumPy callbacks with few entries: found by colors, never wrong for that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import daeosens as ds
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.coloring import Coloring

N = 90


def _reaction(_t: float, u: Any, p: Any) -> Any:
    padded = np.concatenate([[0.0], u, [0.0]])
    return p[0] * np.diff(padded, 2) * N**2 + p[1] * u * (1.0 - u) * u[N // 2]


def _both(function: Any, u: Any, t: float = 0.0) -> tuple[Any, Any, AutomaticJacobian]:
    p = np.array([0.3, 1.7])
    colored = AutomaticJacobian(function, 1, "rhs", "", colored=True)
    dense = AutomaticJacobian(function, 1, "rhs", "")
    return colored(t, u, p), dense(t, u, p), colored


@pytest.mark.parametrize("seed", range(5))
def test_colors_have_no_row_in_common_and_give_back_every_entry(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix: Any = sparse.random_array((70, 70), density=0.04, rng=rng).tocsr()
    coloring = Coloring(matrix)
    u = rng.normal(size=70)
    assert coloring.count < 40
    computed = coloring.matrix(matrix @ coloring.seeds(u), u)
    assert abs(computed - matrix).max() <= 1e-15
    np.testing.assert_array_equal(coloring.array(matrix @ coloring.seeds(u), u), computed.toarray())


@pytest.mark.parametrize("seed", range(20))
def test_an_entry_that_is_not_in_the_pattern_is_noticed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pattern: Any = sparse.random_array((70, 70), density=0.05, rng=rng).tolil()
    row, column = rng.integers(0, 70, 2)
    pattern[row, column] = 0.0
    full = pattern.copy()
    full[row, column] = 1e-6
    coloring = Coloring(pattern.tocsr())
    u = rng.normal(size=70)
    slopes = full.tocsr() @ coloring.seeds(u)
    assert coloring.matrix(slopes, u) is None
    assert coloring.array(slopes, u) is None


def test_an_entry_small_beside_its_row_is_noticed_where_its_unknown_is_large() -> None:
    u = np.ones(70)
    u[3] = 1e9
    matrix: Any = sparse.eye_array(70).tolil()
    coloring = Coloring(matrix.tocsr())
    matrix[8, 3] = 1e-12  # moves row 8 by 1e-3 of its size as u[3] doubles
    assert coloring.matrix(matrix.tocsr() @ coloring.seeds(u), u) is None


def test_entries_that_are_zero_at_first_are_found_when_they_appear() -> None:
    def rhs(t: float, u: Any, p: Any) -> Any:
        far = np.roll(u, 7) if t > 1.0 else 0.0 * u
        return -p[0] * u + np.where(u > 2.0, np.roll(u, 3), 0.0) + far * u

    colored = AutomaticJacobian(rhs, 1, "rhs", "", colored=True)
    dense = AutomaticJacobian(rhs, 1, "rhs", "")
    rng = np.random.default_rng(1)
    p = np.array([0.4])
    entries: list[int] = []
    for t, scale in ((0.0, 1.0), (0.5, 1.0), (0.5, 3.0), (2.0, 3.0), (2.0, 4.0), (0.0, 1.0)):
        u = scale * rng.uniform(0.1, 1.0, N)
        jacobian: Any = colored(t, u, p)
        assert jacobian.format == "csr"
        assert np.array_equal(jacobian.toarray(), dense(t, u, p))
        entries.append(jacobian.nnz)
    assert entries[3] > entries[0]


def test_a_full_jacobian_stays_dense() -> None:
    def rhs(_t: float, u: Any, p: Any) -> Any:
        return p[0] * np.sin(u[:, None] - u).sum(axis=1)

    result, dense, _ = _both(rhs, np.linspace(0.0, 1.0, N))
    assert isinstance(result, np.ndarray)
    assert np.array_equal(result, dense)


def test_numbers_that_are_not_finite_are_no_pattern() -> None:
    u = np.linspace(0.1, 1.0, N)
    result, dense, colored = _both(_reaction, u)
    assert np.array_equal(result.toarray(), dense)
    u[4] = np.nan
    assert np.isnan(np.asarray(colored(0.0, u, np.ones(2)))).any()
    assert sparse.issparse(colored(0.0, np.ones(N), np.ones(2)))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["esdirk5", "cn", "rk6vr"])
def test_gradients_by_colors_are_those_of_dense_jacobians(method: str) -> None:
    u0, p = np.sin(np.pi * np.arange(1, N + 1) / (N + 1)) + 0.3, np.array([1e-2, 1.0])
    sizes: dict[str, Any] = {"dt": 0.01} if method == "cn" else {"rtol": 1e-6}
    stepping = ds.Stepping((0.0, 0.05), method, **sizes)
    cost = ds.Terminal(lambda _t, u, _p: u @ u)
    gradients: list[Any] = []
    for problem in (
        ds.ODE(_reaction, N, 2),
        ds.ODE(_reaction, N, 2, jacobian=AutomaticJacobian(_reaction, 1, "rhs", "")),
    ):
        run: Any = ds.solve(problem, u0, p, stepping)
        gradient = ds.adjoint(run, cost)
        rng = np.random.default_rng(3)
        du0, dp = rng.normal(size=N), rng.normal(size=2)
        moved: Any = ds.tangent(run, du0, dp)
        pushed = 2.0 * run.final @ moved.final
        pulled = gradient.u0 @ du0 + gradient.p @ dp
        assert abs(pushed - pulled) <= 1e-12 * abs(pushed)  # duality
        gradients.append(np.concatenate([gradient.u0, gradient.p]))
    assert np.allclose(*gradients, rtol=1e-9, atol=1e-9 * np.abs(gradients[0]).max())


@pytest.mark.slow
def test_a_run_goes_on_where_a_sparse_jacobian_becomes_full() -> None:
    def rhs(t: float, u: Any, p: Any) -> Any:
        local = -p[0] * u + p[1] * np.roll(u, 1) ** 2
        return local if t < 0.1 else local - 0.01 * np.sum(u**2) * u

    u0, p = np.linspace(0.2, 1.0, N), np.array([2.0, 0.5])
    stepping = ds.Stepping((0.0, 0.2), "esdirk4", rtol=1e-6)
    results: list[Any] = []
    for jacobian in (None, AutomaticJacobian(rhs, 1, "rhs", "")):
        problem = ds.ODE(rhs, N, 2, jacobian=jacobian, breakpoints=[0.1])
        run: Any = ds.solve(problem, u0, p, stepping)
        gradient = ds.adjoint(run, ds.Terminal(lambda _t, u, _p: u @ u))
        results.append(np.concatenate([run.final, gradient.u0, gradient.p]))
    assert np.allclose(*results, rtol=1e-10, atol=1e-10)
