"""Constraints that leave less and less room for y: a named error, and no false alarm."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.tracing.daeo.constrained_search import ConstrainedSearch
from daeosens.tracing.daeo.intervals import interval_function
from daeosens.tracing.daeo.room import Room


def disc(rate=-1.0):
    """Return y nearest to (2, 1) in a disc of radius sqrt(x), which shrinks."""
    return ds.DAEO(
        lambda t, x, y, p: [rate + 0.1 * y[0]],
        lambda t, x, y, p: (y[0] - 2.0) ** 2 + (y[1] - 1.0) ** 2,
        size=(1, 2),
        box=[(-3.0, 3.0), (-3.0, 3.0)],
        constraints=lambda t, x, y, p: [y[0] ** 2 + y[1] ** 2 - x[0]],
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["esdirk4", "rk6vr"])
def test_a_feasible_set_that_shrinks_to_a_point_ends_the_run_just_before(method):
    """With x' = -1 + 0.1 y0, y0 = sqrt(0.8 x): x is 0 at t = 0.52213526..., by separation."""
    c = 0.1 * np.sqrt(0.8)
    r = np.sqrt(0.5)
    end = -2.0 / c * (r + np.log(1.0 - c * r) / c)
    stepping = ds.Stepping((0.0, 1.0), method, rtol=1e-4)
    with pytest.raises(ds.SolveError, match=r"leave no room for y at t = 0\.5221") as raised:
        ds.solve(disc(), [0.5], None, stepping)
    reached = float(str(raised.value).split("t = ")[1].split(",")[0])
    assert 0.0 < end - reached < 2e-6


def test_room_that_is_small_for_a_while_is_room_enough():
    """|y| <= (t - 0.5)^2 + 1e-4, h falls with y: y is at the upper side."""
    model = ds.DAEO(
        lambda t, x, y, p: [y[0]],
        lambda t, x, y, p: 0.1 * y[0] ** 2 - y[0],
        size=(1, 1),
        box=[(-3.0, 3.0)],
        constraints=lambda t, x, y, p: [
            y[0] - (t - 0.5) ** 2 - 1e-4,
            -y[0] - (t - 0.5) ** 2 - 1e-4,
        ],
    )
    run = ds.solve(model, [0.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.05))
    assert run.final.array[0] == pytest.approx(1.0 / 12.0 + 1e-4, rel=1e-9)


def test_constraints_without_room_from_the_start_are_not_looked_at():
    """y0 + y1 = x as two inequalities, at x = 1 and where there is less than nothing."""
    above = interval_function(lambda t, x, y, p: y[0] + y[1] - x[0], 1, 2, 0)
    below = interval_function(lambda t, x, y, p: x[0] - y[0] - y[1] + t, 1, 2, 0)
    search = ConstrainedSearch([above, above, below], np.array([[-3.0, 3.0]] * 2))
    Room(search.enclosures(0.0, [1.0], ())).check(
        1.0, np.ones(1), search.enclosures(1.0, [1.0], ())
    )
    room = Room(search.enclosures(-1.0, [1.0], ()))
    with pytest.raises(ds.SolveError, match=r"no room for y at t = 0, x = \[1\.\]"):
        room.check(0.0, np.ones(1), search.enclosures(0.0, [1.0], ()))
