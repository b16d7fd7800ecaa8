"""Figures of runs with events: broken at jumps, with what they must show; refused otherwise."""

import re

import numpy as np
import pytest
from matplotlib.patches import Ellipse

from daeosens import ODE, Event, Parameter, Parameters, Reduced, Stepping, Terminal, solve
from daeosens.errors import InputError
from daeosens.inverse import covariance
from daeosens.report.event_fits import EventFit, event_fit_figure
from daeosens.report.hybrid_runs import (
    JumpSeries,
    Panel,
    PlaneCurve,
    Surface,
    events_of,
    jumps_figure,
    pieces,
    plane_figure,
)
from tests.report.test_figures import is_drawn

TIMES = np.array([0.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0])
EVENTS = (2, 4)


def series(name="ball", **changes):
    return JumpSeries(name, TIMES, TIMES % 2.5, EVENTS, **changes)


def words(path):
    return re.findall("<!-- (.*) -->", path.read_text(encoding="utf-8"))


def test_events_of_a_run_are_the_states_before_its_jumps():
    bounce = Event(lambda t, u, p: u[0], lambda t, u, p: u * [1.0, -0.5], direction=-1)
    ball = ODE(lambda t, u, p: np.array([u[1], -1.0 + 0 * u[0]]), 2, events=[bounce])
    run = solve(ball, [1.0, 0.0], None, Stepping((0.0, 3.0), "rk4", dt=0.5))
    steps = events_of(run)
    assert len(steps) == 2
    for step in steps:
        assert run.times[step] == run.times[step + 1]
        assert run.u[step + 1, 1] == pytest.approx(-0.5 * run.u[step, 1], rel=1e-14)


def test_pieces_hold_every_state_once():
    parts = pieces(7, EVENTS)
    assert [list(range(7))[part] for part in parts] == [[0, 1, 2], [3, 4], [5, 6]]
    assert pieces(3, ()) == [slice(0, 3)]


@pytest.mark.parametrize("events", [(4, 2), (6,), (-1,)])
def test_events_without_a_state_after_them_are_refused(events):
    with pytest.raises(InputError, match=re.escape(f"events after states {list(events)} of 7")):
        pieces(7, events)


@pytest.mark.slow
def test_jumps_are_drawn_with_labels_titles_and_legend(tmp_path):
    columns = [
        [Panel("height [m]", [series(), series("other", style="faint")])],
        [Panel("speed [m/s]", [series("", style="line"), series("steps", style="points")])],
    ]
    labels = {"time_label": "t [s]", "titles": ["motion", "slope"], "moments": [2.0, 3.0]}
    assert is_drawn(jumps_figure(tmp_path / "jumps.png", columns, **labels))
    text = words(jumps_figure(tmp_path / "jumps.svg", columns, **labels))
    for word in ("height [m]", "speed [m/s]", "ball", "other", "steps", "t [s]", "motion", "slope"):
        assert word in text


@pytest.mark.slow
def test_columns_that_show_the_same_quantity_have_the_same_scale(tmp_path):
    high = JumpSeries("", TIMES, 30.0 + TIMES)
    for label, count in (("height [m]", 2), ("other height [m]", 1)):
        columns = [[Panel("height [m]", [series()])], [Panel(label, [high])]]
        text = words(jumps_figure(tmp_path / "jumps.svg", columns, time_label="t [s]"))
        assert text.count("30") == count


def test_line_is_broken_at_jumps_and_marked_on_both_sides(tmp_path):
    """Counted in the picture's paths: as many lines as pieces, as many marks as jumps."""
    path = jumps_figure(tmp_path / "j.svg", [[Panel("z", [series("")])]], time_label="t")
    text = path.read_text(encoding="utf-8")
    curves = re.findall(r'd="M [^"]*"[^>]*stroke: #0072b2; stroke-width: 1.4', text)
    assert len(curves) == 3
    groups = re.findall(r"<use [^>]*fill: (#\w+); stroke: #0072b2", text)
    assert groups.count("#ffffff") == 2
    assert groups.count("#0072b2") == 2


@pytest.mark.slow
def test_plane_shows_modes_and_lines_of_the_switches(tmp_path):
    angles = np.linspace(0.0, 4.0, 7)
    curve = PlaneCurve(np.column_stack([np.cos(angles), np.sin(angles)]), EVENTS, "aba")
    surfaces = [Surface("steep", -2.0, 1.0), Surface("upright", 1.0, 0.0, 0.5)]
    keywords = {"axis_labels": ("x [m]", "y [m]"), "time_label": "t [s]", "moments": [2.0]}
    panels = [Panel("slope", [series()])]
    assert is_drawn(plane_figure(tmp_path / "plane.png", curve, surfaces, panels, **keywords))
    text = words(plane_figure(tmp_path / "plane.svg", curve, surfaces, panels, **keywords))
    for word in ("x [m]", "y [m]", "a", "b", "steep", "upright", "slope", "t [s]", "start"):
        assert word in text
    assert text.count("a") == 1  # one entry in the legend for both its pieces


@pytest.mark.parametrize(
    ("columns", "titles", "message"),
    [
        ([], (), r"columns of \[\] panels"),
        ([[Panel("z", [])], []], (), r"columns of \[1, 0\] panels"),
        ([[Panel("z", [])]], ("a", "b"), "2 titles"),
        ([[Panel("z", [JumpSeries("a", [0.0, 1.0], [1.0])])]], (), 'series "a" has'),
    ],
)
def test_panels_that_do_not_fit_are_refused(tmp_path, columns, titles, message):
    with pytest.raises(InputError, match=message):
        jumps_figure(tmp_path / "j.png", columns, time_label="t", titles=titles)


@pytest.mark.parametrize(
    ("positions", "modes", "message"),
    [
        (np.zeros((7, 3)), "aba", r"positions have shape \(7, 3\)"),
        (np.zeros((7, 2)), "ab", "2 modes for 3 pieces"),
    ],
)
def test_planes_that_do_not_fit_are_refused(tmp_path, positions, modes, message):
    curve = PlaneCurve(positions, EVENTS, modes)
    with pytest.raises(InputError, match=message):
        plane_figure(tmp_path / "p.png", curve, [], [], axis_labels=("x", "y"), time_label="t")


HESSIAN, BEST = np.array([[400.0, 30.0], [30.0, 9.0]]), np.array([0.8, 9.8])
ESTIMATE = covariance(
    Reduced(
        ODE(lambda t, u, p: 0.0 * u, 1, ["e", "g"]),
        Terminal(lambda t, u, p: 0.5 * (p - BEST) @ HESSIAN @ (p - BEST)),
        Stepping((0.0, 1.0), "rk1fe", dt=1.0),
        Parameters({"e": Parameter(0.8), "g": Parameter(9.8)}, [1.0]),
    ),
    BEST,
)


def fit(path, names=("g", "e"), residuals=(0.5, -1.0), **changes):
    kinds = [
        EventFit("height [m]", series("fit"), [1.9, 3.1], [0.0, 0.0], residuals, 0.1),
        EventFit("speed [m/s]", series("fit"), [1.9, 3.1], [1.0, 2.0], residuals, None, 0.2),
    ]
    labels = {"time_label": "t [s]", "axis_labels": ("gravity [m/s^2]", "restitution")}
    return event_fit_figure(path, kinds, ESTIMATE, names, **labels, **changes)


@pytest.mark.slow
def test_fit_residuals_and_region_are_drawn(tmp_path):
    assert is_drawn(fit(tmp_path / "fit.png", truth=(9.81, 0.82)))
    text = words(fit(tmp_path / "fit.svg", truth=(9.81, 0.82), level=0.9))
    for word in ("height [m]", "speed [m/s]", "data", "gravity [m/s^2]", "truth", "both, 90 %"):
        assert word in text
    assert "truth" not in words(fit(tmp_path / "fit.svg"))


@pytest.mark.slow
def test_region_holds_its_probability(tmp_path, monkeypatch):
    """Its area is pi times the root of the determinant times the chi-square quantile."""
    drawn = []

    def ellipse(center, width, height, **look):
        drawn.append((center, width, height, look["angle"]))
        return Ellipse(center, width, height, **look)

    monkeypatch.setattr("daeosens.report.event_fits.Ellipse", ellipse)
    fit(tmp_path / "fit.png")
    ((center, width, height, angle),) = drawn
    matrix = ESTIMATE.matrix[::-1, ::-1]
    assert center == (9.8, 0.8)
    area = np.pi * width * height / 4
    assert area == pytest.approx(np.pi * np.sqrt(np.linalg.det(matrix)) * 5.991465, rel=1e-6)
    axis = np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
    half = np.sqrt(5.991465 * axis @ matrix @ axis)
    assert width / 2 == pytest.approx(half, rel=1e-6)  # the half axis along its direction


def test_fits_that_cannot_be_drawn_are_refused(tmp_path):
    with pytest.raises(InputError, match=r'"mass" was not estimated(.|\n)*two of e, g'):
        fit(tmp_path / "fit.png", names=("g", "mass"))
    with pytest.raises(InputError, match=r'"height \[m\]": \[2, 2, 1\] times'):
        fit(tmp_path / "fit.png", residuals=(0.5,))
