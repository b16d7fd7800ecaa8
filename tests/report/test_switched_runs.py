"""Figures of runs that switch, and of curves with their tangents."""

import re

import numpy as np
import pytest
from matplotlib.image import imread

from daeosens.errors import InputError
from daeosens.report.switched_runs import (
    Course,
    Row,
    Tangents,
    TangentsPanel,
    switching_figure,
    tangents_figure,
)

TIMES = np.linspace(0.0, 4.0, 41)
ROWS = [
    Row("sensor [K]", [Course("start", TIMES, np.sin(TIMES))], {"switches off": 0.5}),
    Row("slope", [Course("", TIMES, np.cos(TIMES))]),
]


def parabola(at=(0.0, 1.0), slopes=(0.0, 2.0)):
    x, places = np.linspace(-1.0, 2.0, 31), np.asarray(at)
    return Tangents("J(x)", x, x**2, places, places**2, slopes, mark=0.25)


def test_courses_are_drawn_over_shaded_times(tmp_path):
    arguments = {"time_label": "t [h]", "shade_label": "heater on"}
    path = switching_figure(tmp_path / "s.png", ROWS, [(0.0, 1.0), (2.0, 3.0)], **arguments)
    pixels = imread(path)
    assert pixels.shape[1] > 900
    middle = pixels[int(0.4 * len(pixels)), :, :3]
    assert np.isclose(middle, 0.9, atol=0.01).all(axis=1).mean() > 0.3  # the shaded times


def test_names_and_labels_are_in_the_figure(tmp_path):
    arguments = {"time_label": "t [h]", "shade_label": "heater on"}
    text = switching_figure(tmp_path / "s.svg", ROWS, [(0.0, 1.0)], **arguments).read_text()
    for word in ("sensor [K]", "slope", "t [h]", "heater on", "start", "switches off"):
        assert f"<!-- {word} -->" in text


def test_names_of_the_legend_have_colours_of_their_own(tmp_path):
    """In whatever axes they are; the same name has the same colour again."""
    rows = [
        Row("split", [Course(name, TIMES, TIMES) for name in ("a", "b")]),
        Row("part of a", [Course(name, TIMES, TIMES) for name in ("vapour", "liquid")]),
        Row("left", [Course(name, TIMES, TIMES) for name in ("a", "b")], {"most": 2.0}),
    ]
    text = switching_figure(tmp_path / "s.svg", rows, [], time_label="t").read_text()
    legend = text[text.index("legend") :]
    colors = [color.lower() for color in re.findall(r"stroke: (#\w{6})", legend)]
    assert len(colors) == len(set(colors)) == 5


def test_without_names_there_is_no_legend(tmp_path):
    path = switching_figure(tmp_path / "s.svg", [ROWS[1]], [], time_label="t")
    assert "legend" not in path.read_text()


def test_course_of_another_length_is_named(tmp_path):
    row = Row("sensor [K]", [Course("", TIMES, TIMES[:3])])
    with pytest.raises(InputError, match=r'"sensor \[K\]" has times of shape \(41,\) and values'):
        switching_figure(tmp_path / "s.png", [row], [], time_label="t")


@pytest.mark.slow
def test_tangents_and_marks_are_drawn(tmp_path):
    panels = [TangentsPanel("x", "J", [parabola()], "optimum")]
    text = tangents_figure(tmp_path / "t.svg", panels).read_text()
    for word in ("J(x)", "optimum", "x"):
        assert f"<!-- {word} -->" in text
    assert imread(tangents_figure(tmp_path / "t.png", panels * 2)).shape[1] > 900


def test_tangents_of_another_number_than_points_are_named(tmp_path):
    with pytest.raises(InputError, match=r'"J\(x\)" has \[2, 2, 1\] points, values and slopes'):
        tangents_figure(tmp_path / "t.png", [TangentsPanel("x", "J", [parabola(slopes=(0.0,))])])
