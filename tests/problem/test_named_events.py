"""Events by name: in configurations, from plug-ins, and what is said of all that is wrong."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, fields
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest

from daeosens import ODE, Event, InputError, Stepping, hybrid, solve
from daeosens.cli import doctor
from daeosens.io import config_help, read_config
from daeosens.problem import NamedEvent, System, events_named, with_events
from daeosens.problem.event import admit_event
from daeosens.problem.event_kinds import fits
from daeosens.problem.event_kinds.registry import BUILT_IN, GROUP, describe, find_kind, known_kinds

ROOT = Path(__file__).parents[2]
BALL = System(["height", "speed"], ["gravity", "restitution"])


@dataclass(frozen=True)
class Config:
    dt: float
    events: Annotated[tuple[NamedEvent, ...], fits(BALL), "what happens to the ball"] = ()


@pytest.fixture
def read(tmp_path):
    def read_text(text):
        path = tmp_path / "config.toml"
        path.write_text(text, encoding="utf-8")
        return read_config(path, Config)

    return read_text


def complaints(call, *arguments):
    with pytest.raises(InputError) as caught:
        call(*arguments)
    return [line.removeprefix("  - ") for line in str(caught.value).splitlines()[1:]]


IMPACT = """
[[events]]
kind = "impact"
position = "height"
speed = "speed"
restitution = "restitution"
"""


def test_events_of_a_configuration(read):
    config = read(f"dt = 0.1\n{IMPACT}")
    assert config.events[0].kind == "impact"
    assert config.events[0].options["floor"] == 0.0
    (bounce,) = events_named(config.events, BALL)
    assert (bounce.name, bounce.direction) == ("impact", -1)
    np.testing.assert_array_equal(bounce.reset(0.0, np.array([0.0, -2.0]), [9.81, 0.5]), [0.0, 1.0])
    assert read("dt = 0.1").events == ()


def test_all_that_is_wrong_with_a_configuration_comes_at_once(read):
    text = """
    [[events]]
    kind = "impact"
    position = "hight"
    speed = 2
    restitution = "restitutoin"
    [[events]]
    kind = "impulse"
    at = ["gravitas", 1.0]
    add = {spead = "restitution", height = "size"}
    [[events]]
    kind = "threshold"
    component = "height"
    level = 1.0
    """
    names, numbers = '"height", "speed"', 'a number, or one of "gravity", "restitution"'
    assert complaints(read, f"dt = 0.1\n{text}") == [
        f'events[0].position: there is no unknown "hight"; expected: {names}; try: "height"',
        "events[0].speed: there is no unknown 2; expected: a number from 0 to 1",
        f'{PARAMETER.format("[0].restitution", "restitutoin", numbers)}; try: "restitution"',
        f'{PARAMETER.format("[1].at[0]", "gravitas", numbers)}; try: "gravity"',
        f'events[1].add.spead: there is no unknown "spead"; expected: {names}; try: "speed"',
        PARAMETER.format("[1].add.height", "size", numbers),
    ]


PARAMETER = 'events{}: there is no parameter "{}"; expected: {}'


def test_wrong_types_of_options_come_with_all_other_problems(read):
    text = """
    dt = "small"
    [[events]]
    kind = "impact"
    position = 1.5
    side = "abov"
    flor = 0.0
    [[events]]
    kind = "impcat"
    [[events]]
    position = "height"
    [[events]]
    kind = 3
    """
    messages = complaints(read, text)
    kinds = ", ".join(f'"{name}"' for name in known_kinds())
    name = "expected a string or an integer that names an unknown"
    assert messages == [
        'dt = "small": expected a number',
        f"events[0].position = 1.5: {name}",
        'events[0].side = "abov": expected one of "above", "below"; did you mean "above"?',
        'events[0].flor: unknown key; did you mean "floor"?',
        f"events[0].speed: missing; {name}; add speed = ...",
        f'events[1].kind: there is no kind of event "impcat"; expected: {kinds}; try: "impact"',
        f"events[2].kind: missing; expected one of {kinds}",
        f"events[3].kind: 3 is no name; expected one of {kinds}",
    ]


def test_what_a_kind_itself_refuses_is_reported_with_its_key(read):
    text = IMPACT.replace('"speed"', '"height"').replace('"restitution"', "-1.0", 1)
    assert complaints(read, f"dt = 0.1\n{text}{IMPACT}")[0] == (
        "events[0]: position and speed are both height; expected: two unknowns"
    )


def test_help_lists_the_kinds_and_the_names():
    lines = config_help(Config).splitlines()
    assert (
        "events: an array for the unknowns height, speed and the parameters gravity, restitution, "
        "each entry a table (default []); what happens to the ball" in lines
    )
    assert (
        'events[].kind = "impact": position, speed, [floor], [restitution], [side], [terminal], '
        "[mode], [within], [name]; Throw a body back where it hits a floor: "
        "v -> -restitution v." in lines
    )


def test_several_problems_in_code_come_at_once():
    wrong = [{"kind": "impact", "position": "x"}, {"kind": "fall"}]
    messages = complaints(events_named, wrong, BALL)
    assert messages[0].startswith("events[0].speed: missing")
    assert messages[1].startswith('events[1].kind: there is no kind of event "fall"')
    lost = [{"kind": "impact", "position": "x", "speed": "v"}]
    assert [line.split(";")[0] for line in complaints(events_named, lost, BALL)] == [
        'events[0].position: there is no unknown "x"',
        'events[0].speed: there is no unknown "v"',
    ]


def test_names_of_modes_are_checked():
    room = System(1, modes=["on", "off"])
    entry = {"kind": "hysteresis", "component": 0, "upper": 1, "lower": 0} | {
        "above": "of",
        "below": "on",
    }
    assert complaints(events_named, [entry], room) == [
        'events[0].above: there is no mode "of"; expected: "on", "off"; try: "off"'
    ]
    entry = {"kind": "threshold", "component": 0, "level": 0, "within": ("on", "of")}
    with pytest.raises(InputError, match=r"events\[0\].within\[1\]: there is no mode"):
        events_named([entry | {"within": ["on", "of"]}], room)


def test_limits_are_no_events_alone():
    entry = {"kind": "saturation", "component": "height", "lower": 0.0}
    with pytest.raises(InputError, match=r"brings modes of its own(?s:.*)try: with_events"):
        events_named([entry], BALL)


def test_system_has_to_be_that_of_the_problem():
    fall = ODE(lambda t, u, p: np.array([u[1], -p[0]]), 2, ["gravity", "restitution"])
    assert len(with_events(fall, [NamedEvent("impulse", {"at": 1.0, "add": {0: 1}})], BALL).events)
    with pytest.raises(InputError, match=r"problem is str\n  expected: a Problem"):
        with_events("fall", [], BALL)
    with pytest.raises(InputError, match=r"system is list\n  expected: a System"):
        with_events(fall, [], ["height", "speed"])
    with pytest.raises(InputError, match=r"events is int\n  expected: a sequence of tables"):
        with_events(fall, 3, BALL)
    with pytest.raises(InputError, match=r"\(3, \(\), 'numpy', False\)"):
        with_events(fall, [], System(3))
    with pytest.raises(InputError, match='names the unknown mode "off"; there are none'):
        with_events(fall, [{"kind": "threshold", "component": 0, "level": 0, "mode": "off"}], BALL)


def test_documentation_names_every_kind_and_option():
    text = (ROOT / "docs" / "events.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    documented = {row[1].strip(" `"): row[3] for row in rows if len(row) == 5}
    common = {"terminal", "mode", "within", "name"}
    for name in BUILT_IN:
        for option in {field.name for field in fields(find_kind(name).options)} - common:
            assert f"`{option}`" in documented[name]
    assert set(documented) == set(BUILT_IN)


# ---- any object with the attributes of an event --------------------------------------------------


class Bounce:
    """Knows nothing of this package."""

    name = "bounce"
    direction = -1

    def when(self, t, u, p):
        return u[0]

    def reset(self, t, u, p):
        return u * np.array([1.0, -p[1]])


def test_an_object_with_the_attributes_of_an_event_is_one():
    def fall(t, u, p):
        return np.array([u[1], -p[0] + 0 * u[0]])

    own = Event(lambda t, u, p: u[0], lambda t, u, p: u * [1.0, -p[1]], -1, name="bounce")
    stepping, start, p = Stepping((0.0, 3.0), "rk4", dt=0.3), [5.0, -0.1], [10.0, 0.8]
    answers = [
        solve(ODE(fall, 2, ["g", "e"], events=[value]), start, p, stepping)
        for value in (Bounce(), own)
    ]
    assert [c.name for c in answers[0].crossings] == ["bounce", "bounce"]
    np.testing.assert_array_equal(answers[0].final.array, answers[1].final.array)
    modes = {"only": ODE(fall, 2, ["g", "e"])}
    again = solve(hybrid(modes, "only", [Bounce()]), start, p, stepping)
    np.testing.assert_array_equal(again.final.array, answers[1].final.array)
    assert admit_event(own) is own


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (Bounce, r"the class Bounce is given as an event\n.*\n  try: Bounce\(...\)"),
        (3.0, "3.0 is given as an event, but has no attribute 'when'"),
    ],
)
def test_what_is_no_event_is_named(thing, message):
    with pytest.raises(InputError, match=message):
        ODE(lambda t, u, p: -u, 1, events=[thing])


def test_events_are_a_sequence():
    with pytest.raises(InputError, match=r"events is Bounce\n.*\n  try: events=\[event\]"):
        ODE(lambda t, u, p: -u, 1, events=Bounce())
    with pytest.raises(InputError, match=r"within = 'on'\n.*: within=\[\"on\"\]"):
        Event(1.0, within="on")


# ---- plug-ins ------------------------------------------------------------------------------------


def test_built_in_kinds_are_those_of_the_entry_points():
    with (ROOT / "pyproject.toml").open("rb") as file:
        registered = tomllib.load(file)["project"]["entry-points"][GROUP]
    assert set(registered) == set(BUILT_IN)
    assert set(known_kinds()) >= set(BUILT_IN)
    for name, value in registered.items():
        module, _, attribute = value.partition(":")
        number = getattr(__import__(module, fromlist=[attribute]), attribute)
        assert number is BUILT_IN[name]
        assert find_kind(name).source == "daeosens"
        assert find_kind(name).summary.endswith((".", ":"))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package with entry points, by hand, into a folder on the path."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name, code, points, group=GROUP):
        (tmp_path / f"{name}.py").write_text(code)
        metadata = tmp_path / f"{name}-1.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        lines = [f"{kind} = {value}" for kind, value in points.items()]
        (metadata / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
        installed.append(name)

    installed = []
    yield install
    for name in installed:
        sys.modules.pop(name, None)


GOOD = """
from daeosens import Event

def jolt(system, *, at: float, size: float = 1.0, tags: tuple[str, ...] = ()):
    '''Add to all unknowns.'''
    return Event(at, lambda t, u, p: u + size)

class Tick:
    '''A marker.'''
    def __init__(self, system, every: float):
        self.when = every

def holds(system, *, value: float):
    def add(problem):
        from daeosens.problem.modes import add_events
        return add_events(problem, [Event(value, name="held")])
    return add
"""


def test_kinds_of_other_packages(package):
    points = {"jolt": "shaky:jolt", "tick": "shaky:Tick", "holds": "shaky:holds"}
    package("shaky", GOOD, points)
    assert {"jolt", "tick", "impact"} <= set(known_kinds())
    kind = find_kind("jolt")
    assert kind.source == "shaky 1.2 (shaky:jolt)"
    assert kind.summary == "Add to all unknowns."
    decay = ODE(lambda t, u, p: 0 * u, 1)
    entries = [
        {"kind": "jolt", "at": 0.5, "size": 2.0},
        {"kind": "tick", "every": 0.7},
        {"kind": "holds", "value": 0.9},
    ]
    problem = with_events(decay, entries, System(1))
    trajectory = solve(problem, [0.0], None, Stepping((0.0, 1.0), "rk4", dt=0.1))
    assert trajectory.final.array[0] == 2.0
    assert [c.t for c in trajectory.crossings] == pytest.approx([0.5, 0.7, 0.9])
    with pytest.raises(InputError, match=r"events\[0\].at: missing"):
        events_named([{"kind": "jolt"}], System(1))
    text, healthy = doctor.report()
    assert healthy
    assert "jolt, of shaky 1.2 (shaky:jolt)" in text
    assert f"{', '.join(sorted(BUILT_IN))} (daeosens)" in text


@pytest.mark.parametrize(
    ("code", "value", "reason"),
    [
        ("import no_such_thing", "shaky:jolt", "ModuleNotFoundError: No module named"),
        ("", "shaky:jolt", "AttributeError: module 'shaky' has no attribute 'jolt'"),
        ("1 / 0", "shaky:jolt", "ZeroDivisionError: division by zero"),
        ("jolt = 3", "shaky:jolt", "TypeError: 3 is not callable"),
        ("def jolt(): ...", "shaky:jolt", "TypeError: its factory takes no system"),
        ("def jolt(*, system): ...", "shaky:jolt", "TypeError: its factory takes no system"),
        ("def jolt(s, *, at): ...", "shaky:jolt", 'parameter "at" of its factory has no type hint'),
        ("def jolt(s, **at): ...", "shaky:jolt", r'parameter "\*\*at" of its factory is no keyw'),
        ("def jolt(s, kind: str): ...", "shaky:jolt", 'parameter "kind" of its factory'),
        ("def jolt(s, at: complex): ...", "shaky:jolt", 'no configuration can hold parameter "at'),
        ("def jolt(s, at: 'Time'): ...", "shaky:jolt", "NameError: name 'Time' is not defined"),
    ],
)
def test_broken_plugins_are_named_with_package_and_entry_point(package, code, value, reason):
    package("shaky", code, {"jolt": value})
    with pytest.raises(InputError, match=reason) as caught:
        events_named([{"kind": "jolt"}], System(1))
    assert 'the kind of event "jolt" of shaky 1.2 (shaky:jolt) cannot be used' in str(caught.value)
    assert events_named([{"kind": "impulse", "at": 1.0, "add": {"0": 1.0}}], System(1))
    assert 'events[].kind = "jolt": the kind of event "jolt" of shaky' in config_help(Config)
    text, healthy = doctor.report()
    assert not healthy
    assert "jolt  BROKEN" in text
    assert "(shaky:jolt) cannot be used" in text


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return None", "returned None, which is no event"),
        ("return []", r"returned \[\], which is no event"),
        ("return 'event'", "returned 'event', which is no event"),
        ("return [3]", "returned no event: 3 is given as an event"),
        ("return open('/no/such/file')", "failed: FileNotFoundError"),
    ],
)
def test_plugins_that_make_no_event_are_named(package, body, reason):
    package("shaky", f"def jolt(system):\n    {body}", {"jolt": "shaky:jolt"})
    with pytest.raises(InputError, match=reason) as caught:
        events_named([{"kind": "jolt"}], System(1))
    assert "shaky 1.2 (shaky:jolt)" in str(caught.value)


def test_kinds_that_are_registered_twice_are_refused(package):
    package("shaky", GOOD, {"jolt": "shaky:jolt", "impact": "shaky:jolt"})
    package("wobbly", GOOD, {"jolt": "wobbly:jolt"})
    with pytest.raises(InputError) as caught:
        events_named([{"kind": "jolt", "at": 1.0}], System(1))
    for source in ("shaky 1.2 (shaky:jolt)", "wobbly 1.2 (wobbly:jolt)", "uninstall one of them"):
        assert source in str(caught.value)
    with pytest.raises(InputError, match=r'"impact" is registered by daeosens and by shaky 1.2'):
        find_kind("impact")
    assert not doctor.report()[1]


def test_packages_without_metadata_are_described_by_their_entry_point():
    (point,) = entry_points(group="console_scripts", name="daeosens")
    assert describe(point).endswith("(daeosens.cli.main:main)")
    assert describe(type(point)("a", "b:c", GROUP)) == "(b:c)"
