"""Global search with constraints: all minimisers against a grid, proofs that are never wrong."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

from daeosens.errors import SolveError
from daeosens.tracing.daeo.constrained_search import ConstrainedSearch
from daeosens.tracing.daeo.exclusion import bounded_by
from daeosens.tracing.daeo.intervals import interval_function
from daeosens.tracing.daeo.parts import Enclosures


def make(h, constraints, box, n_x=1):
    functions = [interval_function(value, n_x, len(box), 0) for value in (h, *constraints)]
    return ConstrainedSearch(functions, np.array(box, dtype=float))


def disc(t, x, y, p):
    return y[0] ** 2 + y[1] ** 2 - 1.0


def nearest(t, x, y, p):
    return (y[0] - x[0]) ** 2 + (y[1] - 1.0) ** 2


@pytest.mark.slow
def test_the_nearest_point_of_a_disc_and_of_what_is_outside_of_it():
    search = make(nearest, [disc], [[-2, 2]] * 2)
    for x in (0.3, 1.5, -0.2):
        minimizers = search.find(0.0, [x])
        assert minimizers.complete
        exact = np.array([[x, 1.0]]) / np.hypot(x, 1.0)
        assert minimizers.points == pytest.approx(exact, abs=1e-7)
        assert minimizers.active.tolist() == [[0, 0, 1]]
    assert "constraint 0 active, certified" in str(minimizers)
    outside = make(nearest, [lambda t, x, y, p: -disc(t, x, y, p)], [[-2, 2]] * 2)
    minimizers = outside.find(0.0, [-0.2])  # a saddle is on the other side of the disc
    assert minimizers.complete
    assert minimizers.points == pytest.approx(np.array([[-0.2, 1.0]]), abs=1e-7)
    assert not minimizers.active.any()


def test_concave_and_linear_functions_are_least_in_corners():
    corner = [lambda t, x, y, p: 1.0 - y[0] - y[1], lambda t, x, y, p: y[0] - 2.0 * y[1]]
    search = make(lambda t, x, y, p: y[0] + y[1] * x[0], corner, [[-2, 2]] * 2)
    minimizers = search.find(0.0, [1.5])
    assert minimizers.complete
    assert minimizers.points == pytest.approx(np.array([[2 / 3, 1 / 3]]), abs=1e-9)
    assert minimizers.active.tolist() == [[0, 0, 1, 1]]
    minimizers = search.find(0.0, [0.3])
    assert minimizers.points == pytest.approx(np.array([[-1.0, 2.0]]), abs=1e-9)
    assert minimizers.active.tolist() == [[0, 1, 1, 0]]


def random_problem(rng):
    """Return h and g of x and y, which are smooth and have several minimisers."""
    a, b, c = rng.normal(size=(3, 2)), rng.normal(size=3), rng.uniform(1.0, 2.5, size=3)
    center, size = rng.uniform(-0.5, 0.5, size=2), rng.uniform(0.5, 1.2)
    normal, offset = rng.normal(size=2), rng.uniform(0.0, 0.8)

    def h(t, x, y, p):
        waves = sum(
            b[k] * np.sin(c[k] * (a[k, 0] * y[0] + a[k, 1] * y[1]) + x[0]) for k in range(3)
        )
        return waves + 0.3 * y[0] ** 2 + 0.2 * y[1] ** 2

    def oval(t, x, y, p):
        return (y[0] - center[0]) ** 2 + 1.5 * (y[1] - center[1]) ** 2 - size - 0.3 * x[0]

    def edge(t, x, y, p):
        return normal[0] * y[0] + normal[1] * y[1] + 0.2 * np.sin(2.0 * y[0]) - offset

    return h, [oval, edge]


def by_many_starts(h, constraints, x, box):
    """Return local minimisers that SciPy comes to from a grid of starts."""
    limits = [{"type": "ineq", "fun": lambda y, g=g: -g(0.0, x, y, ())} for g in constraints]
    values = []
    for start in np.stack(np.meshgrid(*[np.linspace(*side, 7) for side in box]), -1).reshape(-1, 2):
        result = minimize(
            lambda y: h(0.0, x, y, ()),
            start,
            bounds=box,
            constraints=limits,
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 200},
        )
        feasible = max(g(0.0, x, result.x, ()) for g in constraints) < 1e-7
        if result.success and feasible:
            around = result.x + 2e-3 * np.random.default_rng(0).normal(size=(300, 2))
            around = np.clip(around, *np.array(box).T)
            inside = [max(g(0.0, x, y, ()) for g in constraints) <= 0 for y in around]
            others = [h(0.0, x, y, ()) for y in around[inside]]
            if min(others, default=np.inf) > result.fun - 1e-9 and not any(
                np.abs(result.x - other).max() < 1e-3 for other in values
            ):
                values.append(result.x)
    return np.array(values)


@pytest.mark.parametrize("seed", range(6))
def test_minimisers_are_those_of_many_starts(seed):
    h, constraints = random_problem(np.random.default_rng(seed))
    box = [[-1.5, 1.0], [-1.0, 1.5]]
    minimizers = make(h, constraints, box).find(0.0, [0.1])
    assert minimizers.complete
    others = by_many_starts(h, constraints, [0.1], box)
    apart = np.abs(others[:, None] - minimizers.points[None]).max(axis=2)
    assert apart.min(axis=1).max() < 1e-3  # none is missed
    assert apart.min(axis=0).max() < 1e-3  # and none too many


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_unchanged_is_never_wrong(seed):
    h, constraints = random_problem(np.random.default_rng(seed))
    search = make(h, constraints, [[-1.5, 1.0], [-1.0, 1.5]])
    minimizers, shown = search.find(0.0, [0.0]), []
    for width in (1e-6, 1e-2, 0.1, 0.5):
        shown.append(search.unchanged(0.0, [[-width, width]], (), minimizers))
        if shown[-1]:
            for x in np.linspace(-width, width, 3):
                others = search.find(0.0, [x])
                assert len(others) == len(minimizers)
                assert np.abs(others.points - minimizers.points).max() < 30 * width
    assert shown[0]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_computed_of_enclosures_is_widened_by_its_rounding(seed):
    """Values and gradients over boxes that are a few units in the last place wide, far from 0."""
    rng = np.random.default_rng(seed)
    a = [int(k) for k in rng.integers(-9, 10, size=6)]

    def h(t, x, y, p):
        first, second = y[0], y[1]
        square = a[0] * first * first + a[1] * first * second + a[2] * second * second
        return square + a[3] * first + a[4] * second + a[5]

    low = rng.uniform(1.0, 2.0, size=2) * 10.0 ** rng.integers(0, 4, size=2)
    boxes = np.stack([low, low + np.spacing(low) * rng.integers(1, 2000, size=2)], axis=1)[None]
    enclosures = Enclosures([interval_function(h, 0, 2)], 4.0 * boxes[0], np.zeros((3, 2)))
    parts = enclosures.second(enclosures.first(boxes))
    for corner in np.ndindex(2, 2):
        first, second = (Fraction(boxes[0, i, side]) for i, side in enumerate(corner))
        value = h(None, None, [first, second], None)
        slopes = 2 * a[0] * first + a[1] * second + a[3], a[1] * first + 2 * a[2] * second + a[4]
        assert Fraction(parts.value[0, 0, 0]) <= value <= Fraction(parts.value[0, 0, 1])
        for i, slope in enumerate(slopes):
            middle, radius = Fraction(parts.middle[0, 0, i]), Fraction(parts.radius[0, 0, i])
            assert abs(slope - middle) <= radius


@pytest.mark.parametrize("seed", range(40))
def test_bounds_of_what_bounds_itself_are_never_too_small(seed):
    """Of |l| <= start + rest |l|, by fractions; and none where there are none."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    rest = rng.uniform(0.0, 1.0, (n, n)) * rng.uniform(0.0, 0.9, (n, 1)) / n
    start = rng.uniform(0.0, 1.0, n) * 10.0 ** rng.integers(-12, 3, n)
    bounds = bounded_by(rest, start)
    assert bounds is not None
    exact = [[Fraction(i == j) - Fraction(rest[i, j]) for j in range(n)] for i in range(n)]
    right = [Fraction(coordinate) for coordinate in start]
    for i in range(n):  # by elimination: the matrix is dominated by its diagonal
        for j in range(n):
            if j != i:
                factor = exact[j][i] / exact[i][i]
                exact[j] = [b - factor * a for a, b in zip(exact[i], exact[j], strict=True)]
                right[j] -= factor * right[i]
    solution = [right[i] / exact[i][i] for i in range(n)]
    for v, value in zip(bounds.tolist(), solution, strict=True):
        assert value <= Fraction(v) <= value + max(solution) * Fraction(1, 10**8)
    assert bounded_by(np.full((n, n), 1.0 / n), start) is None


def test_constraints_that_nothing_satisfies_are_an_error():
    search = make(nearest, [lambda t, x, y, p: 1.0 - y[0] - y[1]], [[-2, 0]] * 2)
    with pytest.raises(SolveError, match="no y in the box satisfies the constraints"):
        search.find(0.0, [0.3])
