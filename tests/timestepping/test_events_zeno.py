"""Events that accumulate."""

import numpy as np
import pytest

from daeosens import DDE, ODE, Event, SolveError, Stepping, solve
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


def bouncing(restitution: float, level: float, direction: int) -> ODE:
    bounce = Event(
        lambda t, u, p: u[0] - level,
        lambda t, u, p: np.array([u[0], -restitution * u[1]]),
        direction,
        name="bounce",
    )
    return ODE(lambda t, u, p: np.array([u[1], -p[0]]), 2, ["gravity"], events=[bounce])


ACCUMULATE = r"events accumulate: .* goes on through it|events accumulate: .* ever faster"


@pytest.mark.parametrize("direction", [-1, 0])
@pytest.mark.parametrize("level", [0.0, 0.25, 1000.0])
@pytest.mark.parametrize("restitution", [0.0, 0.05, 0.25, 0.6])
@pytest.mark.parametrize(
    "stepping",
    [
        {"method": "rk4", "dt": 0.1},
        {"method": "rk5dp", "rtol": 1e-8},
        {"method": "cn", "dt": 0.07},
        {"method": "esdirk4", "rtol": 1e-6},
        {"method": "beuler", "dt": 0.02},
    ],
    ids=lambda stepping: stepping["method"],
)
def test_no_ball_falls_through_the_floor_where_its_flights_end(
    stepping, restitution, level, direction
):
    """After the last flight that numbers can tell from rest it is not let through the surface."""
    ball = bouncing(restitution, level, direction)
    with pytest.raises(SolveError, match=ACCUMULATE):
        solve(ball, [level + 1.0, 0.0], [9.81], Stepping((0.0, 4.0), **stepping))


@pytest.mark.parametrize("fall", [0.04970989, 0.05, 0.3449185523, 8.680122561])
def test_speeds_that_backward_euler_leaves_of_flights_shorter_than_its_steps_are_rounding(fall):
    """These flights end at rest, and a reset that turns rounding upside down sends it through."""
    for restitution in (0.17, 0.29, 0.47, 0.62):
        ball = bouncing(restitution, 0.0, -1)
        stepping = Stepping((0.0, 8.0 * fall**0.5), "beuler", dt=0.02 * fall**0.5)
        with pytest.raises(SolveError, match=ACCUMULATE):
            solve(ball, [fall, 0.0], [9.81], stepping)


def test_what_a_reset_has_stopped_may_be_pushed_on_by_another_event():
    """It stops at 1 and is pushed on from t = 2 by a force of 1: x(3) = 3/2."""
    stop = Event(
        lambda t, u, p: u[0] - 1.0, lambda t, u, p: np.array([u[0], 0.0 * u[1]]), name="stop"
    )
    push = Event(2.0, changes={"force": lambda t, u, p: 1.0})
    cart = ODE(lambda t, u, p: np.array([u[1], p[0]]), 2, ["force"], events=[stop, push])
    for stepping in ({"method": "rk4", "dt": 0.1}, {"method": "esdirk4", "rtol": 1e-6}):
        run = solve(cart, [0.0, 1.0], [0.0], Stepping((0.0, 3.0), **stepping))
        assert len(run.crossings) == 2
        assert abs(run.final.array[0] - 1.5) < 1e-10


def test_threshold_that_brakes_is_passed_in_either_direction():
    brake = Event(
        lambda t, u, p: u[0] - 1.0, lambda t, u, p: np.array([u[0], 0.5 * u[1]]), name="brake"
    )
    cart = ODE(lambda t, u, p: np.array([u[1], 0.0 * u[0]]), 2, [], events=[brake])
    for start, speed in ((0.0, 1.0), (2.0, -1.0)):
        run = solve(cart, [start, speed], [], Stepping((0.0, 2.0), "rk4", dt=0.3))
        assert abs(run.final.array[0] - (1.0 + 0.5 * speed)) < 1e-12


@pytest.mark.parametrize("direction", [-1, 0])
def test_delay_equations_let_no_ball_through_the_floor(direction):
    for level, restitution in ((0.0, 0.0), (0.25, 0.1), (100.0, 0.3)):
        ball = DDE(
            lambda t, u, z, p: np.array([u[1], -p[0] + 0.0 * z[0][0]]),
            2,
            ["gravity", "delay"],
            delays=["delay"],
            history=[level + 1.0, 0.0],
            events=bouncing(restitution, level, direction).events,
        )
        with pytest.raises(SolveError, match=ACCUMULATE):
            solve(ball, [level + 1.0, 0.0], [9.81, 0.05], Stepping((0.0, 2.0), "rk4", dt=0.02))
