"""Global search: all minimisers, on the surface of the box too, proven or plainly not."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from daeosens.errors import BudgetError, InputError
from daeosens.tracing.daeo.intervals import Along, interval_function
from daeosens.tracing.daeo.search import Search


def waves(t, x, y, p):
    return (x[0] - y[0]) ** 2 + np.sin(5 * y[0])


def make(h, box, n_x=0, n_p=0):
    return Search(interval_function(h, n_x, len(box), n_p), box)


def find(h, box, mode="all", **options):
    return make(h, box).find(0.0, [], mode=mode, **options)


# ---- known answers -------------------------------------------------------------------------------


def test_all_minimisers_of_a_function_of_one_variable():
    minimizers = make(waves, [[-20, 20]], n_x=1).find(0.0, [1.0])
    known = [-1.3306699, -0.212854226, 0.946738999, 2.10734064, 3.23458679]
    assert minimizers.points[:, 0] == pytest.approx(known, abs=6e-9)
    assert minimizers.best == 2
    assert minimizers.complete
    # stationary to rounding, and enclosed as tightly
    y = minimizers.points[:, 0]
    assert np.abs(-2 * (1 - y) + 5 * np.cos(5 * y)).max() < 1e-13
    assert (minimizers.enclosures[..., 1] - minimizers.enclosures[..., 0]).max() < 1e-14
    assert (minimizers.value_bounds[:, 0] <= minimizers.values).all()
    assert np.ptp(minimizers.value_bounds, axis=1).max() < 1e-13
    assert minimizers.boxes < 100
    assert str(minimizers).splitlines()[3].endswith("h = -0.996936301 (lowest)  certified")
    assert str(minimizers).endswith("everywhere else there is none: proven")


@pytest.mark.parametrize("x", [1.0, 0.5, -1.0])
def test_a_minimiser_near_the_end_of_where_h_is_defined_is_proven(x):
    minimizers = make(lambda t, x, y, p: y[0] * np.log(y[0]) - y[0] * x[0], [[0.01, 5]], 1)
    minimizers = minimizers.find(0.0, [x])
    assert minimizers.complete
    assert minimizers.points == pytest.approx(np.array([[np.exp(x - 1.0)]]), abs=1e-14)


def griewank(t, x, y, p):
    roots = np.sqrt(np.arange(1, len(y) + 1))
    return 1 + np.sum(y**2) / 4000 - np.prod(np.cos(y / roots))


def rastrigin(t, x, y, p):
    return 10 * len(y) + np.sum(y**2 - 10 * np.cos(2 * np.pi * y))


def ackley(t, x, y, p):
    n = len(y)
    size = np.sqrt(np.sum(y**2) / n)
    return -20 * np.exp(-0.2 * size) - np.exp(np.sum(np.cos(2 * np.pi * y)) / n) + 20 + np.e


def rosenbrock(t, x, y, p):
    return np.sum(100 * (y[1:] - y[:-1] ** 2) ** 2 + (1 - y[:-1]) ** 2)


def camel(t, x, y, p):
    u, v = y
    return (4 - 2.1 * u**2 + u**4 / 3) * u**2 + u * v + (4 * v**2 - 4) * v**2


A = np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14]])
A = np.vstack([A, [[3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]])
P = np.array([[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991]])
P = np.vstack([P, [[2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]])


def hartmann(t, x, y, p):
    distances = np.sum(A * (y - 1e-4 * P) ** 2, axis=1)
    return -np.sum(np.array([1, 1.2, 3, 3.2]) * np.exp(-distances))


def coupled(t, x, y, p):
    """Separable with a weak coupling: 2^n minimisers."""
    return np.sum((y**2 - 1) ** 2 + 0.1 * y) + 0.05 * np.sum(y[1:] * y[:-1])


# name, function, n_y, box, mode, minimisers, lowest value, boxes
PROBLEMS = [
    ("griewank 2", griewank, 2, [-600, 700], "global", 1, 0.0, 300),
    ("griewank 10", griewank, 10, [-600, 700], "global", 1, 0.0, 4000),
    ("griewank 2", griewank, 2, [-20, 21], "all", 74, 0.0, 4000),
    ("rastrigin 2", rastrigin, 2, [-5.12, 5.12], "all", 121, 0.0, 3000),
    ("rastrigin 10", rastrigin, 10, [-5.12, 5.12], "global", 1, 0.0, 400),
    ("ackley 2", ackley, 2, [-32, 30], "global", 1, 0.0, 400),
    ("ackley 2", ackley, 2, [-5, 4], "all", 100, 0.0, 8000),
    ("ackley 10", ackley, 10, [-32, 30], "global", 1, 0.0, 4000),
    ("rosenbrock 2", rosenbrock, 2, [-5, 10], "all", 1, 0.0, 3000),
    ("rosenbrock 4", rosenbrock, 4, [-5, 10], "all", 2, 0.0, 10_000),
    ("rosenbrock 10", rosenbrock, 10, [-5, 10], "global", 1, 0.0, 500),
    ("six-hump camel", camel, 2, [-3, 3], "all", 6, -1.0316284534898774, 500),
    ("hartmann 6", hartmann, 6, [0, 1], "global", 1, -3.322368011415515, 2000),
    ("hartmann 6", hartmann, 6, [0, 1], "all", 2, -3.322368011415515, 50_000),
    ("coupled 10", coupled, 10, [-2, 2], "all", 1024, -0.55947223350, 160_000),
    ("coupled 10", coupled, 10, [-2, 2], "global", 2, -0.55947223350, 110_000),
]


@pytest.mark.parametrize(
    ("name", "h", "n", "box", "mode", "count", "lowest", "budget"),
    PROBLEMS,
    ids=[f"{problem[0]}-{problem[4]}" for problem in PROBLEMS],
)
def test_functions_that_others_test_with(name, h, n, box, mode, count, lowest, budget):
    minimizers = find(h, [box] * n, mode, budget=budget)
    assert len(minimizers) == count
    assert minimizers.values.min() == pytest.approx(lowest, abs=1e-10)
    assert not len(minimizers.undecided)
    # Ackley's function has a kink at 0: its minimiser is shown to exist, not to be smooth
    uncertified = minimizers.points[~minimizers.certified]
    if name.startswith("ackley"):
        assert np.abs(uncertified).max() < 1e-8
        assert len(uncertified) == 1
    else:
        assert minimizers.complete


def test_counts_by_another_way():
    """Griewank's and Rastrigin's minimisers by counting cells of a grid lower than all around."""
    for h, box, count in ((griewank, [-20, 21], 74), (rastrigin, [-5.12, 5.12], 121)):
        axis = np.linspace(*box, 1201)
        mesh = np.meshgrid(axis, axis, indexing="ij")
        if h is griewank:
            values = 1 + (mesh[0] ** 2 + mesh[1] ** 2) / 4000
            values = values - np.cos(mesh[0]) * np.cos(mesh[1] / np.sqrt(2))
        else:
            values = sum(x**2 - 10 * np.cos(2 * np.pi * x) for x in mesh)
        padded = np.pad(values, 1, constant_values=np.inf)
        lowest = np.ones_like(values, dtype=bool)
        for i, j in np.ndindex(3, 3):
            lowest &= values <= padded[i : i + 1201, j : j + 1201]
        assert lowest.sum() == count


# ---- random functions ----------------------------------------------------------------------------


def random_function(rng, n):
    """Return waves, a quadratic form and a bent: (h of NumPy arrays [..., n], for tracing too)."""
    count = rng.integers(2, 6)
    sizes, waves_, phases = (
        rng.normal(size=count),
        2 * rng.normal(size=(count, n)),
        rng.uniform(0, 6, count),
    )
    form, slope, bent = 0.3 * rng.normal(size=(n, n)), rng.normal(size=n), rng.integers(0, 4)

    def h(y, shift=0.0):
        columns = [y[..., i] if isinstance(y, np.ndarray) else y[i] for i in range(n)]
        total = shift * columns[0]
        for size, wave, phase in zip(sizes, waves_, phases, strict=True):
            total = total + size * np.sin(
                sum(w * c for w, c in zip(wave, columns, strict=True)) + phase
            )
        for i in range(n):
            total = total + slope[i] * columns[i]
            for j in range(n):
                total = total + form[i, j] * columns[i] * columns[j]
        bents = (
            lambda z: z,
            np.arctan,
            lambda z: z + np.exp(columns[0]),
            lambda z: z + np.tanh(3 * columns[-1]),
        )
        return bents[bent](total)

    low = rng.uniform(-3, 0, n)
    return h, np.stack([low, low + rng.uniform(0.5, 5, n)], axis=-1)


def on_grid(h, box, points):
    """Return the minimisers of a grid, refined by a quasi-Newton method."""
    n = len(box)
    axes = [np.linspace(low, high, points) for low, high in box]
    mesh = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    values = h(mesh)
    padded = np.pad(values, 1, constant_values=np.inf)
    lowest = np.ones_like(values, dtype=bool)
    for corner in np.ndindex(*(3,) * n):
        lowest &= values <= padded[tuple(slice(k, k + points) for k in corner)]
    refined = []
    for start in mesh[lowest]:
        y = minimize(
            h, start, bounds=box, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}
        ).x
        if not any(np.abs(y - other).max() < 1e-4 for other in refined):
            refined.append(y)
    return np.array(refined)


@pytest.mark.parametrize("seed", range(100))
def test_minimisers_are_those_of_a_grid(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 3))
    h, box = random_function(rng, n)
    minimizers = make(lambda t, x, y, p: h(y), box).find(0.0, [])
    assert minimizers.complete
    distances = np.abs(on_grid(h, box, 2001 if n == 1 else 141)[:, None] - minimizers.points).max(
        axis=2
    )
    assert distances.min(axis=1).max() < 2e-4  # none is missed
    around = 1e-4 * rng.normal(size=(500, n))
    for point, value in zip(minimizers.points, minimizers.values, strict=True):  # and each is one
        assert h(np.clip(point + around, box[:, 0], box[:, 1])).min() >= value - 1e-13
    lowest = make(lambda t, x, y, p: h(y), box).find(0.0, [], mode="global")
    assert lowest.points == pytest.approx(minimizers.points[[minimizers.best]], abs=1e-14)


@pytest.mark.parametrize("seed", range(60))
def test_unchanged_is_never_wrong(seed):
    """Where it is shown that minimisers only moved, a search everywhere finds as many."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 3))
    h, box = random_function(rng, n)
    search = make(lambda t, x, y, p: h(y, x[0]), box, n_x=1)
    mode = "all" if seed % 3 else "global"
    minimizers, shown = search.find(0.0, [0.0], mode=mode), []
    for width in (1e-6, 1e-3, 1e-2, 0.1, 0.3, 1.0):
        shown.append(search.unchanged(0.0, [[-width, width]], (), minimizers))
        if shown[-1]:
            for x in np.linspace(-width, width, 9):
                others = search.find(0.0, [x], mode=mode)
                assert np.abs(others.points - minimizers.points).max() < 30 * width
                ends = np.array(box).T[:, None]
                beside = np.abs(others.points - ends).min(axis=0) < 30 * width
                assert ((others.active == minimizers.active) | beside).all()
    assert shown[0]
    assert shown == sorted(shown, reverse=True)


def test_unchanged_is_shown_near_by_and_not_where_a_minimiser_vanishes():
    search = make(waves, [[-20, 20]], n_x=1)
    minimizers = search.find(0.0, [1.0])
    assert search.unchanged([0.0, 1.0], [[0.95, 1.05]], (), minimizers)
    assert not search.unchanged([0.0, 1.0], [[0.0, 3.0]], (), minimizers)
    lowest = search.find(0.0, [1.0], mode="global")
    assert search.unchanged(0.0, [[0.95, 1.05]], (), lowest)
    # at pi/2 the lowest is undercut, though all stay where they are
    assert not search.unchanged(0.0, [[1.56, 1.58]], (), search.find(0.0, [1.56], mode="global"))
    assert search.unchanged(0.0, [[1.56, 1.58]], (), search.find(0.0, [1.56]))
    assert not search.unchanged(0.0, [[1.0, 1.0]], (), replace(minimizers, proof=()))


@pytest.mark.parametrize("seed", range(40))
def test_unchanged_along_a_path_is_never_wrong(seed):
    """Of a path x = (s, s^2 + a s) it shows more than of the box around it, and nothing wrong."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 3))
    h, box = random_function(rng, n)
    slope, mode = rng.normal(), "all" if seed % 3 else "global"
    search = make(lambda t, x, y, p: h(y, x[0]) + np.sin(x[1] * y[0]) * 0.3, box, n_x=2)

    def place(s):
        return np.array([s, s**2 + slope * s])

    minimizers, shown, by_box = search.find(0.0, place(0.0), mode=mode), [], []
    for end in (1e-6, 1e-3, 1e-2, 0.1, 0.3, 1.0):
        points = np.array([place(s) for s in np.linspace(0.0, end, 9)])
        rates = np.array([[1.0, 1.0], [slope, slope + 2.0 * end]])
        low = min(0.0, place(end)[1], place(min(max(-0.5 * slope, 0.0), end))[1])
        x = np.array([[0.0, end], [low, max(0.0, place(end)[1])]])
        along = Along(0.5 * end, place(0.5 * end), rates)
        shown.append(search.unchanged([0.0, end], x, (), minimizers, along))
        by_box.append(search.unchanged([0.0, end], x, (), minimizers))
        if shown[-1]:
            others = [search.find(0.0, place, mode=mode) for place in points]
            beside = np.abs(minimizers.points - np.array(box).T[:, None]).min(axis=0) < 30 * end
            same = [other.active == minimizers.active for other in others]
            assert all((item | beside).all() for item in same)
    assert shown[0]
    assert sum(shown) >= sum(by_box)


def test_of_what_cancels_along_a_path_more_is_shown():
    """Minimisers that depend on x_0 + x_1 stay where they are if one grows as the other falls."""
    search = make(lambda t, x, y, p: waves(t, [x[0] + x[1]], y, p), [[-20, 20]], n_x=2)
    minimizers = search.find(0.0, [1.0, 0.0])
    x = np.array([[1.0, 3.0], [-2.0, 0.0]])
    along = Along(0.5, np.array([2.0, -1.0]), np.array([[2.0, 2.0], [-2.0, -2.0]]))
    assert search.unchanged([0.0, 1.0], x, (), minimizers, along)
    assert not search.unchanged([0.0, 1.0], x, (), minimizers)
    # and where the sum passes the fold of the first minimiser, x = 1.26: not
    faster = Along(0.5, np.array([2.0, -0.8]), np.array([[2.0, 2.0], [-1.6, -1.6]]))
    assert not search.unchanged([0.0, 1.0], x, (), minimizers, faster)


def test_minimisers_that_meet_are_not_taken_for_two():
    """y^4 - x y^2 has two minimisers until x = 0, from where on it has one."""
    search = make(lambda t, x, y, p: y[0] ** 4 - x[0] * y[0] ** 2, [[-3, 3]], n_x=1)
    minimizers = search.find(0.0, [1.0])
    for end, only_move in ((0.9, True), (0.0, False), (-0.5, False)):
        along = Along(0.5, np.array([0.5 + 0.5 * end]), np.array([[end - 1.0, end - 1.0]]))
        x = [[end, 1.0]]
        assert search.unchanged([0.0, 1.0], x, (), minimizers, along) == only_move


def test_unchanged_through_a_bound_that_becomes_active_or_inactive():
    """Where h is convex beside the bound; where it is concave the minimiser vanishes there."""
    convex = make(lambda t, x, y, p: (y[0] - x[0]) ** 2 + y[1] ** 2 + y[0] * y[1], [[-2, 1]] * 2, 1)
    for x in (0.7, 0.8):  # free, at its bound
        minimizers = convex.find(0.0, [x])
        assert minimizers.active.any() == (x > 0.75)
        assert convex.unchanged(0.0, [[0.68, 0.82]], (), minimizers)
        assert convex.unchanged(0.0, [[-1.5, 0.82]], (), minimizers)  # convex all over the box
    concave = make(lambda t, x, y, p: x[0] * y[0] - y[0] ** 2 + y[0] ** 4, [[-0.1, 2]], 1)
    minimizers = concave.find(0.0, [0.1])
    assert minimizers.active.tolist() == [[-1], [0]]
    assert concave.unchanged(0.0, [[0.05, 0.15]], (), minimizers)
    assert not concave.unchanged(0.0, [[-0.3, 0.15]], (), minimizers)
    assert len(concave.find(0.0, [-0.3])) == 1


def test_unchanged_of_many_minimisers():
    search = make(lambda t, x, y, p: np.sum((x[0] - y) ** 2 + np.sin(5 * y)), [[-20, 20]] * 3, 1)
    minimizers = search.find(0.0, [1.0])
    assert len(minimizers) == 125
    assert minimizers.complete
    assert search.unchanged(0.0, [[0.999, 1.001]], (), minimizers)


# ---- bounds, kinks, degenerate minimisers --------------------------------------------------------


def test_minimisers_at_bounds_and_corners():
    minimizers = find(lambda t, x, y, p: -(y[0] ** 2) + (y[1] - 0.5) ** 2, [[-1, 1.5], [-1, 3]])
    assert minimizers.points.tolist() == [[-1, 0.5], [1.5, 0.5]]
    assert minimizers.active.tolist() == [[-1, 0], [1, 0]]
    minimizers = find(lambda t, x, y, p: -(y[0] ** 2) - y[1] ** 2, [[-1, 1.5], [-1, 3]])
    assert minimizers.active.tolist() == [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    assert minimizers.values.tolist() == [-2, -10, -3.25, -11.25]
    assert minimizers.complete
    assert "y[0] at its upper bound, y[1] at its lower bound" in str(minimizers)


def test_a_bound_where_the_gradient_is_not_finite():
    minimizers = find(lambda t, x, y, p: np.sqrt(y[0]) + (y[0] - 0.5) ** 2, [[0, 1]])
    assert minimizers.points.tolist() == [[0.0]]
    assert minimizers.complete


@pytest.mark.parametrize(
    ("h", "at", "remark"),
    [
        (lambda t, x, y, p: np.abs(y[0] - 0.3), 0.3, "not continuous"),
        (lambda t, x, y, p: y[0] ** 4, 0.0, "singular"),
        (lambda t, x, y, p: (y[0] - 2.0) ** 2, 2.0, "vanishes at a bound"),
    ],
)
def test_what_is_not_certified_is_told(h, at, remark):
    minimizers = find(h, [[-1, 2]])
    assert minimizers.points == pytest.approx(np.array([[at]]), abs=1e-8)
    assert minimizers.certified.tolist() == [False]
    assert remark in minimizers.remarks[0]
    assert remark in str(minimizers)
    assert not minimizers.complete
    assert not make(h, [[-1, 2]]).unchanged(0.0, [], (), minimizers)


def test_what_is_neither_shown_nor_excluded_is_told():
    minimizers = find(lambda t, x, y, p: y[0] ** 3, [[-1, 2]])
    assert minimizers.points.tolist() == [[-1.0]]
    ((low, high),) = minimizers.undecided[0]
    assert low < 0 < high < 1e-8
    assert "not excluded: 1 boxes" in str(minimizers)
    assert not minimizers.complete


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("h", "message"),
    [
        (lambda t, x, y, p: 1 / y[0], r"h is not finite at y = \[0\]"),
        (lambda t, x, y, p: 1 / (y[0] - 0.3), r"cannot be shown to be finite at y in \[0.3, 0.3"),
        (lambda t, x, y, p: np.log(y[0]), r"h is not finite at y = "),
        (lambda t, x, y, p: np.tan(y[0]), r"cannot be shown to be finite at y in \[1.57079"),
        (lambda t, x, y, p: np.exp(1000 * y[0]), r"h is not finite at y = \[2\]"),
    ],
)
@pytest.mark.parametrize("mode", ["all", "global"])
def test_where_h_is_not_finite_is_an_error_with_the_place(h, message, mode):
    with pytest.raises(InputError, match=message):
        find(h, [[-1, 2]], mode)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ([[0, np.inf]], r"box\[0\] = \[0, inf\] is not bounded"),
        ([[np.nan, 1]], r"box\[0\] = \[nan, 1\] is not bounded"),
        ([[1, 1]], r"box\[0\] = \[1, 1\]"),
        ([[0, 1], [0, 1]], r"box has the shape \(2, 2\)"),
    ],
)
def test_boxes_that_cannot_be_searched(box, message):
    h = interval_function(lambda t, x, y, p: y[0], 0, 1)
    with pytest.raises(InputError, match=message):
        Search(h, box)


def test_other_bad_arguments():
    search = make(waves, [[-1, 1]], n_x=1)
    with pytest.raises(InputError, match="mode = 'local'"):
        search.find(0.0, [1.0], mode="local")
    with pytest.raises(InputError, match="budget = 0"):
        search.find(0.0, [1.0], budget=0)
    with pytest.raises(InputError, match="width = -1"):
        search.find(0.0, [1.0], width=-1)
    with pytest.raises(InputError, match="expected: finite numbers"):
        search.find(0.0, [np.inf])
    with pytest.raises(InputError, match="no parameters"):
        search.find(0.0, [1.0], [1.0])


def test_a_budget_used_up_keeps_what_was_found():
    with pytest.raises(BudgetError, match="the budget of 300 boxes is used up") as caught:
        find(rastrigin, [[-5.12, 5.12]] * 2, budget=300)
    minimizers = caught.value.minimizers
    assert 0 < len(minimizers) < 121
    assert minimizers.certified.all()
    assert not minimizers.complete
    # what is left and what was found are together where all minimisers are
    for point in find(rastrigin, [[-5.12, 5.12]] * 2).points:
        left = (minimizers.undecided[:, :, 0] <= point) & (point <= minimizers.undecided[:, :, 1])
        assert left.all(axis=1).any() or np.abs(minimizers.points - point).max(axis=1).min() < 1e-12


def test_a_plateau_is_an_error():
    with pytest.raises(BudgetError, match="apart from each other"):
        find(lambda t, x, y, p: 0.0 * y[0] + 1.0, [[-1, 2]], budget=1000)


# ---- parameters, extensions of users -------------------------------------------------------------


def test_parameters_by_name_and_time():
    def h(t, x, y, p):
        return (y[0] - t * p.a[0]) ** 2 + p.b * y[1] ** 2 + 0 * x[0]

    search = make(h, [[-5, 5], [-1, 2]], n_x=1, n_p={"a": (2,), "b": ()})
    minimizers = search.find(2.0, [0.0], {"a": [1.5, 0.0], "b": 1.0})
    assert minimizers.points == pytest.approx(np.array([[3.0, 0.0]]), abs=1e-14)


def test_an_extension_of_the_user():
    """For an h that cannot be traced: here (y - x)^2, rounded outwards by hand."""

    def extension(t, x, y, p):
        outwards = np.array([-np.inf, np.inf])
        away = np.nextafter(y[:, 0] - x[:, 0, ::-1], outwards)
        largest = np.abs(away).max(axis=1)
        smallest = np.where(
            (away > 0).all(axis=1) | (away < 0).all(axis=1), np.abs(away).min(axis=1), 0
        )
        value = np.nextafter(np.stack([smallest**2, largest**2], axis=-1), outwards)
        return value, 2 * away[:, None], np.full((len(y), 1, 1, 2), 2.0)

    def untraceable(t, x, y, p):
        return float(y[0])

    with pytest.raises(InputError, match="cannot trace"):
        interval_function(untraceable, 1, 1)
    search = Search(interval_function(untraceable, 1, 1, extension=extension), [[-5, 5]])
    minimizers = search.find(0.0, [1.25])
    assert minimizers.points == pytest.approx(np.array([[1.25]]), abs=1e-12)
    assert minimizers.complete
    assert search.unchanged(0.0, [[1.0, 1.5]], (), minimizers)


def test_what_an_extension_raises_is_not_lost():
    def broken(t, x, y, p):
        raise ValueError("no table for this temperature")

    search = Search(interval_function(waves, 1, 1, extension=broken), [[-5, 5]])
    with pytest.raises(ValueError, match="no table"):
        search.find(0.0, [1.0])

    def misshapen(t, x, y, p):
        return y[:, 0], y, y

    search = Search(interval_function(waves, 1, 1, extension=misshapen), [[-5, 5]])
    with pytest.raises(InputError, match="extension returned the shapes"):
        search.find(0.0, [1.0])
