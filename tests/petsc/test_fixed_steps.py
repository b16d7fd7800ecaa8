"""Steps of fixed size: how many there are, and how long the next one is."""

import pytest

from daeosens import ODE, Stepping, solve
from daeosens.petsc._kernels import count_steps, next_step

DECAY = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])


def test_steps_of_fixed_size_are_counted_as_they_are_taken():
    for dt, times in ((0.01, ()), (0.03, (0.31, 0.5)), (0.2999, (0.05, 0.7))):
        run = solve(DECAY, [1.0], [0.5], Stepping((0.0, 1.0), "rk4", dt=dt), times)
        assert count_steps(0.0, dt, [*times, 1.0], 10**6) == run.n_steps
    assert count_steps(0.0, 0.01, [1.0], 7) == 7


@pytest.mark.parametrize(
    ("t", "expected"),
    [
        (0.0, 0.1),
        (0.3, 0.1),  # exactly two steps are left
        (0.301, 0.0995),  # less than two: two equal ones
        (0.4, 0.1),
        (0.3995, 0.1005),  # half a per cent longer
        (0.45, 0.05),
        (0.5, 0.1),  # on to the next end
        (2.0, 0.1),  # beyond all ends
    ],
)
def test_fixed_steps_end_at_the_next_time(t, expected):
    assert next_step(t, 0.1, [0.5, 1.0]) == pytest.approx(expected, rel=1e-12)


def test_fixed_steps_reach_the_end_in_spite_of_rounding(rng):
    """Where t + (end - t) < end, a further step of one unit in the last place would follow."""
    short = 0
    for t, end in zip(rng.uniform(0, 0.5, 1000), rng.uniform(1, 2, 1000), strict=True):
        short += t + (end - t) < end
        assert t + next_step(t, 3.0, [end]) >= end
    assert short > 0
