"""Equations that change at events; test_events.py runs them."""

import pytest

from daeosens import ODE, Event, InputError, hybrid
from daeosens.problem.modes import add_events

ONE = ODE(lambda t, u, p: -u, 1, ["a"])
OTHER = ODE(lambda t, u, p: -u, 2, ["a"])
KICK = Event(0.5, lambda t, u, p: 2 * u, name="kick")


def switch(mode):
    return Event(lambda t, u, p: u[0], mode=mode, name="off")


@pytest.mark.parametrize(
    ("modes", "start", "events", "message"),
    [
        ((ONE, ONE), "on", [switch("of")], r'unknown mode "of"; expected: on, off; try: "off"'),
        ((ONE, ONE), "in", [], r'starts in the unknown mode "in"; expected: on, off; try: "on"'),
        ((ONE, OTHER), "on", [], 'mode "off" is (.*); expected: the shape of'),
        ((ONE, add_events(ONE, [KICK])), "on", [], 'mode "off" has events of its own'),
    ],
)
def test_wrong_modes_are_named(modes, start, events, message):
    with pytest.raises(InputError, match=message):
        hybrid(dict(zip(("on", "off"), modes, strict=True)), start, events)


@pytest.mark.parametrize(
    ("modes", "start", "message"),
    [
        ([ONE], "on", r"modes is list\n  expected: a Mapping"),
        ({}, "on", "there are no modes"),
        ({"on": lambda t, u, p: -u}, "on", r'mode "on" is function\n  expected: a Problem'),
        ({1: ONE}, "on", r"mode 1 is int\n  expected: a str"),
        ({"on": ONE}, 3, r"start = 3\n  expected: a name, or a function"),
    ],
)
def test_what_are_no_modes_is_named(modes, start, message):
    with pytest.raises(InputError, match=message):
        hybrid(modes, start, [])


def test_events_are_added_to_those_there_are():
    both = hybrid({"on": ONE, "off": ONE}, "on", [switch("off")])
    assert [event.name for event in add_events(both, [KICK]).events] == ["off", "kick"]
    with pytest.raises(InputError, match='names the unknown mode "half"; expected: on, off'):
        add_events(both, [switch("half")])


def test_breakpoints_are_those_of_all_modes():
    late = ODE(lambda t, u, p: -u, 1, ["a"], breakpoints=[0.7])
    early = ODE(lambda t, u, p: -u, 1, ["a"], breakpoints=[0.3, 0.7])
    assert hybrid({"on": late, "off": early}, "on").breakpoints == (0.3, 0.7)
    rounded = ODE(lambda t, u, p: -u, 1, ["a"], breakpoints=[0.1 * 3])
    assert hybrid({"on": rounded, "off": early}, "on").breakpoints == (0.3, 0.7)
