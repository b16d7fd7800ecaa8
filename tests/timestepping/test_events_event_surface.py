"""Which steps stay on their side of a surface beyond doubt."""

from typing import Any

import numpy as np
import pytest

from daeosens import Event
from daeosens.timestepping.events.event_surface import Surface

STEP = 0.1


def surface(last, before, h=STEP):
    """A surface on whose upper side the last two values were."""
    switch: Any = None
    event = Event(lambda t, u, p: u[0])
    return Surface(event, switch, side=1.0, value=last, earlier=(h, before))


@pytest.mark.parametrize("end", [1.0, 0.1, 1e-3])
def test_a_steady_approach_is_not_looked_at(end):
    assert surface(end + 1.0, end + 2.1).far(end, STEP)
    assert surface(end + 1.0, end + 1.9).far(end, STEP)  # ever faster
    assert not surface(end + 1.0, end + 6.0).far(end, STEP)  # about to turn round


def test_a_step_that_crosses_or_ends_on_the_surface_is_looked_at():
    assert not surface(1.0, 2.0).far(-1e-3, STEP)
    assert not surface(1.0, 2.0).far(1e-9, STEP)


@pytest.mark.parametrize("steps", [8, 12, 20])
def test_no_dip_of_a_wave_passes_for_an_approach(steps):
    """Cos(x) + 1 + 1e-6 at the ends of steps, wherever the bottom lies in the last one."""
    h = 2 * np.pi / steps
    for part in np.linspace(1e-3, 1.0 - 1e-3, 999):
        before, last, end = (np.cos(np.pi + h * (k - part)) + 1.0 + 1e-6 for k in (-1, 0, 1))
        assert not surface(last, before, h).far(end, h)
