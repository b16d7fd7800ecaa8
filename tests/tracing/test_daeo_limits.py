"""DAEOs where little is needed to be wrong: short lives, folds, degenerate minimisers, ties."""

import numpy as np
import pytest
from daeo_runs import three_wells, times_of
from scipy.integrate import quad
from scipy.optimize import brentq

import daeosens as ds
from daeosens.tracing.daeo import piece as pieces
from daeosens.tracing.daeo import tracker


def run_of(f, h, x0, box, method="rk4", end=1.0, p=(), **steps):
    model = ds.DAEO(f, h, size=(1, 1), parameters=len(p), box=box)
    return ds.solve(model, [x0], p, ds.Stepping((0.0, end), method, **steps))


def forwards(t, x, y, p):
    return y


def constant(value):
    return lambda t, x, y, p: np.full(1, value)


# ---- lives that are shorter than a step ----------------------------------------------------------


def short_lived(t, x, y, p):
    """A well near 1.5 that is there from 0.379 to 0.621, and the lowest between."""
    deep = np.exp(-(((t - 0.5) / 0.08) ** 2))
    return 0.1 * y[0] ** 2 - deep * np.exp(-8.0 * (y[0] - 1.5) ** 2)


def wells(t):
    """Return the minimisers of this near 0 and near 1.5, by Newton's method."""
    deep, values = np.exp(-(((t - 0.5) / 0.08) ** 2)), []
    for start in (0.0, 1.45):
        y = start
        for _ in range(40):
            z = y - 1.5
            well = deep * np.exp(-8.0 * z**2)
            y -= (0.2 * y + 16.0 * z * well) / (0.2 + 16.0 * well * (1.0 - 16.0 * z**2))
        values.append(y)
    return values


def gap(t):
    low, high = (short_lived(t, None, [y], None) for y in wells(t))
    return low - high


@pytest.mark.parametrize(
    ("method", "steps", "error"),
    [
        ("rk4", {"dt": 0.5}, 0.05),
        ("rk4", {"dt": 0.3}, 0.1),  # born in a step, and higher again at its end
        ("rk4", {"dt": 0.1}, 0.01),
        ("rk8vr", {"rtol": 1e-10}, 1e-8),
    ],
)
def test_an_optimiser_that_lives_within_a_step_is_jumped_to_and_from(method, steps, error):
    run = run_of(forwards, short_lived, 1.0, (-3.0, 3.0), method, **steps)
    exact = brentq(gap, 0.38, 0.45, xtol=1e-15), brentq(gap, 0.55, 0.615, xtol=1e-15)
    assert times_of(run, "jump") == pytest.approx(exact, abs=1e-10)
    others = sum(quad(lambda t: wells(t)[0], *span)[0] for span in ((0, exact[0]), (exact[1], 1)))
    final = 1.0 + quad(lambda t: wells(t)[1], *exact, epsabs=1e-12)[0] + others
    assert run.u[-1, 0] == pytest.approx(final, abs=error)
    assert len(run.report) == 2


def test_steps_that_lose_the_optimiser_are_an_error():
    """Over 0.6 the rate of y, with a fold, is anything."""
    with pytest.raises(ds.SolveError, match="has lost the optimiser") as caught:
        run_of(forwards, short_lived, 1.0, (-3.0, 3.0), dt=1.0)
    assert caught.value.run.times[-1] < 0.62


def dipping(t, x, y, p):
    """Return wells at -1 and 1, of which the second one is lower for a short time about p0."""
    b = 0.3 - 0.6 * np.exp(-(((t - p[0]) / p[1]) ** 2))
    return (y[0] ** 2 - 1.0) ** 2 + b * (3.0 * y[0] - y[0] ** 3) / 4.0


@pytest.mark.parametrize("p", [(0.5, 0.02), (0.53, 0.02), (0.52, 0.01), (0.47, 0.004)])
@pytest.mark.parametrize("steps", [("rk4", 0.25), ("rk4", 0.1), ("rk4", 0.03), ("rk8vr", None)])
def test_a_dip_within_a_step_is_found(p, steps):
    """rk8vr takes the whole run in three steps, as x' does not change but at the jumps."""
    method, dt = steps
    sizes = {"rtol": 1e-10} if dt is None else {"dt": dt}
    run = run_of(forwards, dipping, 1.0, (-2.0, 1.9), method, p=p, **sizes)
    half = p[1] * np.sqrt(np.log(2.0))
    assert times_of(run, "jump") == pytest.approx([p[0] - half, p[0] + half], abs=1e-12)
    assert run.u[-1, 0] == pytest.approx(4.0 * half, abs=1e-12)


@pytest.mark.parametrize("dt", [0.1, 0.125, 0.25, 0.3])
def test_a_jump_where_a_step_ends_is_found(dt):
    """At 0.5 both values are the same number."""

    def turning(t, x, y, p):
        return (y[0] ** 2 - 1.0) ** 2 + (0.5 - t) * (3.0 * y[0] - y[0] ** 3) / 4.0

    run = run_of(forwards, turning, 1.0, (-2.0, 1.9), dt=dt)
    assert times_of(run, "jump") == pytest.approx([0.5], abs=1e-14)
    assert run.u[-1, 0] == pytest.approx(1.0, abs=1e-14)


# ---- folds and degenerate minimisers -------------------------------------------------------------


@pytest.mark.parametrize("steps", [("rk4", {"dt": 0.1}), ("rk8vr", {"rtol": 1e-10})])
def test_before_the_lowest_optimiser_vanishes_another_one_is_lower(steps):
    """The fold is at p, y = -sqrt(p - t) before; the bound y = 1 is lower from 3/4 p^(1/2) on."""
    p = np.array([0.5])
    method, sizes = steps
    fold = lambda t, x, y, p: (p[0] - t) * y[0] - y[0] ** 3 / 3.0  # noqa: E731
    run = run_of(forwards, fold, 1.0, (-1.0, 1.0), method, p=p, **sizes)
    assert times_of(run, "jump") == pytest.approx([0.25], abs=1e-13)
    final = 1.0 - 2.0 / 3.0 * (0.5**1.5 - 0.25**1.5) + 0.75
    assert run.u[-1, 0] == pytest.approx(final, abs=1e-8 if method == "rk8vr" else 1e-5)
    assert run.report[0].died == pytest.approx(0.5, abs=1e-8)


CUBE_ROOT = lambda t, x, y, p: 0.25 * y[0] ** 4 - (t - 0.5) * y[0]  # noqa: E731
PITCHFORK = lambda t, x, y, p: 0.25 * y[0] ** 4 - 0.5 * (t - 0.5) * y[0] ** 2  # noqa: E731


@pytest.mark.parametrize("h", [CUBE_ROOT, PITCHFORK])
@pytest.mark.parametrize("dt", [0.1, 0.125])  # 0.5 is the end of a step, or not
def test_where_the_second_derivative_vanishes_is_an_error(h, dt):
    with pytest.raises(ds.SolveError, match=r"vanishes at t = 0\.5, .*h_yy is singular") as caught:
        run_of(constant(1.0), h, 0.0, (-2.0, 2.0), dt=dt)
    run = caught.value.run
    assert 0.5 - 1.01 * dt <= run.times[-1] <= 0.5 + 1e-9
    assert run.u[-1, 0] == pytest.approx(run.times[-1], abs=1e-12)


def test_after_a_pitchfork_both_are_as_low():
    """No step ends where h_yy = 0."""
    with pytest.raises(ds.SolveError, match=r"vanishes at t = 0\.5, ") as caught:
        run_of(constant(1.0), PITCHFORK, 0.0, (-2.0, 2.0), "rk8vr", rtol=1e-8)
    assert caught.value.run.times[-1] <= 0.5


def test_a_minimiser_without_curvature_is_an_error():
    with pytest.raises(ds.SolveError, match="is degenerate: h_yy is singular there"):
        run_of(forwards, lambda t, x, y, p: (y[0] - x[0]) ** 4, 1.0, (-2.0, 2.9), dt=0.1)


# ---- ties ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [("rk4", {"dt": 0.1}), ("rk8vr", {"rtol": 1e-10})])
def test_three_lowest_optimisers_at_one_instant_are_an_error(steps):
    with pytest.raises(ds.SolveError, match=r"at one instant, t = 0\.52") as caught:
        run_of(forwards, three_wells, 1.0, (-5.0, 5.0), steps[0], p=[0.52, 0.52], **steps[1])
    assert caught.value.run.times[-1] == pytest.approx(0.52, abs=1e-12)


@pytest.mark.parametrize("steps", [("rk4", {"dt": 0.1}), ("rk4", {"dt": 0.125}), ("rk8vr", {})])
def test_values_that_only_touch_make_no_jump(steps):
    """At t = 0.5, which is the end of a step, or not."""

    def touching(t, x, y, p):
        return (y[0] ** 2 - 1.0) ** 2 + (t - 0.5) ** 2 * (3.0 * y[0] - y[0] ** 3) / 4.0

    run = run_of(forwards, touching, 1.0, (-2.0, 1.9), steps[0], **(steps[1] or {"rtol": 1e-9}))
    assert not times_of(run, "jump")
    assert run.u[-1, 0] == pytest.approx(0.0, abs=1e-12)


def test_a_third_optimiser_that_is_lower_at_a_jump_is_an_error(monkeypatch):
    """Looking away from the second well, a run comes to where the third is as low as the first."""
    rising = pieces.rising

    def blind(h, values, slopes):
        doubts = rising(h, values, slopes)
        if values.shape[1] == 3:
            doubts[:, 1] = False
        return doubts

    monkeypatch.setattr(pieces, "rising", blind)
    monkeypatch.setattr(tracker, "first_dip", lambda _functions, _piece, limit: limit)
    with pytest.raises(ds.SolveError, match=r"a third optimiser is lower .* t = 0\.5246"):
        run_of(forwards, three_wells, 1.0, (-5.0, 5.0), p=[0.52, 0.527], dt=0.1)


def test_an_h_without_a_part_of_some_y_is_refused_before_a_search():
    with pytest.raises(ds.InputError, match=r"h does not depend on y\[1\]: each value of it"):
        ds.DAEO(
            lambda t, x, y, p: [-y[0]],
            lambda t, x, y, p: (y[0] - x[0]) ** 2,
            size=(1, 2),
            box=[(-1.0, 1.0)] * 2,
        )


@pytest.mark.parametrize(
    "h",
    [
        lambda t, x, y, p: np.maximum(np.abs(y[0]) - 1.0, 0.0) ** 2,
        lambda t, x, y, p: np.maximum(y[0], 0.0) ** 3,
    ],
)
def test_an_h_that_is_flat_in_a_part_of_the_box_is_refused_before_a_search(h):
    model = ds.DAEO(lambda t, x, y, p: [-y[0]], h, size=(1, 1), box=[(-3.0, 3.0)])
    with pytest.raises(
        ds.InputError, match=r"h is constant for y in \[-[0-9.]+, -[0-9.]+\] at t = 0"
    ):
        ds.solve(model, [1.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
