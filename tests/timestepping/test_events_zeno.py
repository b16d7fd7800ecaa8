"""Events that accumulate."""

import pytest

from daeosens import SolveError, Stepping, solve
from tests.problem.test_event import PROBLEM


def test_accumulation_says_how_many_events_in_how_short_a_time():
    """All flights together take (1 + e) / (1 - e) times the first fall, which ends at t = 1."""
    message = r"events accumulate: 30 within (\d\.\d+e-0[78]) before t = (9|8\.99999)"
    for stepping in ({"method": "rk4", "dt": 0.1}, {"method": "rk5dp", "rtol": 1e-8}):
        with pytest.raises(SolveError, match=message):
            solve(PROBLEM, [5.0, 0.0], [10.0, 0.8], Stepping((0.0, 12.0), **stepping))


def test_ball_at_rest_on_the_floor_is_an_error():
    with pytest.raises(SolveError, match=r'events accumulate: 1 within 0 before t = 0 \("bounce"'):
        solve(PROBLEM, [0.0, 0.0], [10.0, 0.8], Stepping((0.0, 1.0), "rk4", dt=0.05))
