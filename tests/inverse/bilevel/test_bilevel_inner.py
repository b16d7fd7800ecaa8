"""The inner problem: optimality by its own conditions, ranks, contradictions."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from daeosens import InputError, SolveError
from daeosens.inverse.bilevel import inner
from daeosens.inverse.bilevel.inner import combination, linear_constraints, solve_inner

INF = np.inf


def problem(seed, rows=30, m=6):
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-3, 3, m)  # columns of very different length
    return rng.standard_normal((rows, m)) * scales, rng.standard_normal(rows), scales


def names(m):
    return [f"p{k}" for k in range(m)]


@pytest.mark.parametrize("seed", range(4))
def test_bounds_give_what_an_active_set_method_gives(seed):
    a, b, scales = problem(seed)
    lower, upper = -0.05 / scales, 0.1 / scales
    solution = solve_inner(a, b, linear_constraints(names(6), lower, upper))
    other = lsq_linear(a * (1 / scales), b, (lower * scales, upper * scales), "bvls", tol=1e-14)
    assert solution.p * scales == pytest.approx(other.x, abs=1e-12)
    assert solution.active
    assert not solution.degenerate


@pytest.mark.parametrize("seed", range(4))
def test_nonnegative_solutions_satisfy_the_conditions_of_optimality(seed):
    a, b, _ = problem(seed)
    solution = solve_inner(a, b, linear_constraints(names(6), np.zeros(6), np.full(6, INF)))
    slope = a.T @ (a @ solution.p - b) * solution.scale
    active = list(solution.active)
    assert solution.p.min() >= 0.0
    assert slope[active].min(initial=0.0) >= 0.0
    assert np.abs(np.delete(slope, active)).max(initial=0.0) < 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_equalities_and_inequalities_satisfy_the_conditions_of_optimality(seed):
    a, b, scales = problem(seed)
    rng = np.random.default_rng(seed + 100)
    weights = rng.standard_normal((5, 6)) * scales
    rows = [
        (dict(zip(names(6), row, strict=True)), v)
        for row, v in zip(weights, [0.5, 0.1, 0.2, -0.1, 0.3], strict=True)
    ]
    limits = linear_constraints(names(6), np.full(6, -INF), np.full(6, INF), rows[:1], rows[1:])
    solution = solve_inner(a, b, limits)
    assert limits.equal @ solution.p == pytest.approx(limits.equal_to, abs=1e-12)
    slack = limits.above @ solution.p - limits.least
    assert slack.min() > -1e-12
    held = np.vstack([limits.equal, limits.above[list(solution.active)]])
    slope = a.T @ (a @ solution.p - b)
    multipliers = np.linalg.lstsq((held * solution.scale).T, slope * solution.scale)[0]
    assert held.T @ multipliers * solution.scale == pytest.approx(slope * solution.scale, abs=1e-12)
    assert multipliers[1:].min(initial=0.0) >= -1e-12
    assert np.abs(slack[list(solution.active)]).max(initial=0.0) < 1e-12


def test_a_constraint_with_a_zero_multiplier_is_called_degenerate():
    a = np.eye(3)
    solution = solve_inner(a, [1.0, 0.0, 2.0], linear_constraints(names(3), np.zeros(3), [INF] * 3))
    assert solution.degenerate == solution.active == (1,)


@pytest.mark.parametrize("seed", range(3))
def test_derivatives_where_a_bound_holds_by_itself_are_those_of_one_side(seed):
    """Beside an active set method on the whole problem, on either side of the kink."""
    rng = np.random.default_rng(seed)
    a, db = rng.standard_normal((20, 3)), rng.standard_normal(20)
    aside = rng.standard_normal(20)
    aside -= a @ np.linalg.lstsq(a, aside)[0]
    # the minimum without bounds lies on the first one
    b = a @ np.array([0.0, 0.5, 1.0]) + aside
    bounds = linear_constraints(names(3), np.zeros(3), [INF] * 3)
    solution = solve_inner(a, b, bounds)
    assert solution.degenerate == solution.active == (0,)

    def exact(data):
        return lsq_linear(a, data, (0.0, INF), "bvls", tol=1e-14).x

    h = 1e-3
    ahead, behind = (exact(b + h * db) - exact(b)) / h, (exact(b) - exact(b - h * db)) / h
    assert np.abs(ahead - behind).max() > 0.01
    slope = solution.newton(a.T @ db)
    assert min(np.abs(slope - side).max() for side in (ahead, behind)) < 1e-9
    # the value has one derivative from both sides
    values = [0.5 * np.sum((a @ exact(b + s * db) - b - s * db) ** 2) for s in (h, 0.0, -h)]
    along = float((b - a @ solution.p) @ db)
    for value, step in zip((values[0], values[2]), (h, -h), strict=True):
        assert value - values[1] == pytest.approx(step * along, abs=50.0 * h**2)
    other = solve_inner(a, b + h * db, bounds)
    assert other.p == pytest.approx(exact(b + h * db), abs=1e-12)


def test_rows_that_only_repeat_others_are_active_but_not_degenerate():
    none = [-INF] * 3, [INF] * 3
    rows = [({"p0": 1.0}, 0.0), ({"p0": 5.0}, 0.0), ({"p0": 1.0, "p1": -1.0}, 0.0)]
    rows += [({"p1": 1.0}, 0.0)]
    # p0 is held at zero with a multiplier of one; p1 comes to zero by itself
    solution = solve_inner(
        np.eye(3), [-1.0, 0.0, 2.0], linear_constraints(names(3), *none, (), rows)
    )
    assert solution.p == pytest.approx([0.0, 0.0, 2.0], abs=1e-14)
    assert solution.active == (0, 1, 2, 3)
    assert set(solution.degenerate) == {2, 3}


def random_rows(seed, spread, repeated):
    """A problem with 30 inequalities that a known point satisfies."""
    rng = np.random.default_rng(seed)
    m = 12
    columns = 10.0 ** rng.uniform(-spread, spread, m)
    u, v = (np.linalg.qr(rng.standard_normal((size, m)))[0] for size in (40, m))
    a = (u * np.geomspace(1.0, 10.0**-spread, m)) @ v
    inside, rows = rng.standard_normal(m), rng.standard_normal((30, m))
    slack = rng.random(30) * np.linalg.norm(rows, axis=1)
    data = a @ (inside + rng.standard_normal(m)) + 0.1 * rng.standard_normal(40)
    if repeated:
        slack[:15], rows[1] = 0.0, rows[0]
        data = a @ inside - np.linalg.lstsq(a.T, rows[0])[0]
    units = 10.0 ** rng.uniform(-spread, spread, 30)
    weights = (rows * columns * units[:, None]).tolist()
    entries = [dict(zip(names(m), row, strict=True)) for row in weights]
    values = ((rows @ inside - slack) * units).tolist()
    pairs = list(zip(entries, values, strict=True))
    return a * columns, data, linear_constraints(names(m), [-INF] * m, [INF] * m, (), pairs)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("spread", "repeated"), [(0.0, True), (5.0, False)])
def test_degenerate_and_badly_scaled_problems_are_solved(seed, spread, repeated):
    a, b, limits = random_rows(seed, spread, repeated)
    solution = solve_inner(a, b, limits)
    rows = limits.above * solution.scale
    lengths = np.linalg.norm(rows, axis=1)
    rows, slack = rows / lengths[:, None], (limits.above @ solution.p - limits.least) / lengths
    size = 1.0 + np.linalg.norm(solution.p / solution.scale)
    slope = (a * solution.scale).T @ (a @ solution.p - b)
    # the gradient is a sum of rows that hold, with weights that are not negative
    held = rows[list(solution.active)]
    weights = lsq_linear(held.T, slope, (0.0, INF), "bvls", tol=1e-15)
    assert slack.min() > -1e-9 * size
    assert np.sqrt(2.0 * weights.cost) < 1e-9 * np.linalg.norm(b)


def test_what_scipy_calls_a_minimum_is_checked(monkeypatch):
    monkeypatch.setattr(inner, "nnls", lambda matrix, target: (np.ones(matrix.shape[1]), 1.0))
    a, b, _ = problem(0)
    solution = solve_inner(a, b, linear_constraints(names(6), np.zeros(6), np.full(6, INF)))
    assert solution.p == pytest.approx(lsq_linear(a, b, (0.0, INF), "bvls").x, rel=1e-8)


def test_equalities_in_units_far_apart_all_hold():
    a, b, _ = problem(1)
    none = [-INF] * 6, [INF] * 6
    rows = [({"p0": 1e8, "p1": 1e8}, 1e8), ({"p2": 1e-8, "p3": 1e-8}, 2e-8)]
    solution = solve_inner(a, b, linear_constraints(names(6), *none, rows))
    assert solution.p[0] + solution.p[1] == pytest.approx(1.0, rel=1e-12)
    assert solution.p[2] + solution.p[3] == pytest.approx(2.0, rel=1e-12)


def test_dependent_columns_are_found_whatever_their_units():
    a, b, scales = problem(0)
    a[:, 3] = 1e5 * a[:, 1] + 1e-4 * a[:, 2]
    solution = solve_inner(a, b, linear_constraints(names(6), [-INF] * 6, [INF] * 6))
    assert solution.unidentified.shape == (6, 1)
    moved = a @ (solution.scale * solution.unidentified[:, 0])
    assert np.abs(moved).max() < 1e-12
    others = np.delete(a / scales, 3, axis=1)  # of one length: lstsq loses digits of the short ones
    best = np.linalg.lstsq(others, b)[0]
    assert a @ solution.p == pytest.approx(others @ best, rel=1e-12, abs=1e-14)
    assert "p1" in combination(solution.unidentified[:, 0], names(6))


def test_a_ridge_weighs_parameters():
    a, b, _ = problem(2)
    free = linear_constraints(names(6), [-INF] * 6, [INF] * 6)
    weights = np.linspace(0.5, 1.5, 6) * np.linalg.norm(a, axis=0)
    solution = solve_inner(a, b, free, weights)
    exact = np.linalg.solve(a.T @ a + np.diag(weights**2), a.T @ b)
    assert solution.p == pytest.approx(exact, rel=1e-9)


def test_contradictions_are_named_row_by_row():
    low, high = np.array([1.0, -INF, 0.0]), np.full(3, INF)
    rows = [({"a": 1.0, "b": 1.0}, 0.5)]
    more = [({"b": 1.0}, 0.0), ({"c": 1.0}, 3.0)]
    with pytest.raises(
        InputError, match=r"contradict each other: 1 a \+ 1 b = 0\.5; a >= 1; 1 b >= 0"
    ):
        linear_constraints(["a", "b", "c"], low, high, rows, more)
    with pytest.raises(InputError, match='equalities\\[0\\] names "d"'):
        linear_constraints(["a", "b", "c"], low, high, [({"d": 1.0}, 0.5)])


def test_numbers_that_are_not_finite_are_a_failed_solve():
    with pytest.raises(SolveError, match="not finite at the states that were measured"):
        solve_inner(np.full((3, 1), np.nan), np.ones(3), linear_constraints(["a"], [0], [INF]))
