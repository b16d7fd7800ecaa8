"""Figures: written where asked, with what they must show; refused when they cannot be drawn."""

import importlib
import sys

import numpy as np
import pytest
from matplotlib.image import imread

import daeosens.report
from daeosens.errors import DaeosensError, InputError
from daeosens.report.figures import (
    Curve,
    History,
    fields_figure,
    history_figure,
    work_precision_figure,
)
from daeosens.report.paths import ControlSeries, Route, motion_figure


def is_drawn(path) -> bool:
    """Tell whether a picture is wide enough to print and not blank."""
    pixels = imread(path)
    return pixels.shape[1] > 900 and pixels[..., :3].std() > 0.02


@pytest.mark.slow
def test_rows_of_fields_are_drawn(tmp_path):
    fields = [np.random.default_rng(k).random((5, 7)) for k in range(3)]
    path = fields_figure(
        tmp_path / "fields.png",
        {"u": fields, "v": [2 * field for field in fields]},
        ["true", "first guess", "recovered"],
        extent=(0, 7, 0, 5),
    )
    assert is_drawn(path)


def test_labels_of_fields_are_upright(tmp_path):
    path = fields_figure(
        tmp_path / "fields.svg",
        {"temperature [K]": [300.0 + 1e-4 * np.arange(20.0).reshape(4, 5)]},
        ["recovered"],
        extent=(0, 5, 0, 4),
        axis_labels=("x [m]", "y [m]"),
    )
    text = path.read_text(encoding="utf-8")
    assert all(f"<!-- {word} -->" in text for word in ("temperature [K]", "y [m]", "300.001"))
    assert "rotate(" not in text


@pytest.mark.parametrize("fields", [[np.zeros((2, 2))], [np.zeros((2, 2)), np.zeros(4)]])
def test_fields_that_do_not_match_the_titles_are_refused(tmp_path, fields):
    with pytest.raises(InputError, match=f'row "u" has {len(fields)} fields of shapes'):
        fields_figure(tmp_path / "f.png", {"u": fields}, ["a", "b"], extent=(0, 1, 0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("values", [10.0 ** -np.arange(9), np.linspace(1, -1, 9)])
def test_histories_of_either_sign_are_drawn(tmp_path, values):
    histories = [History("CN", values, abs(values) + 1), History("RK4", values / 2, abs(values))]
    assert is_drawn(history_figure(tmp_path / "history.png", histories, value_label="misfit"))


def test_single_history_needs_no_legend(tmp_path):
    path = history_figure(tmp_path / "history.svg", [History("CN", [2, 1], [2, 1])])
    assert "<!-- CN -->" not in path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_work_and_precision_are_drawn_with_slopes(tmp_path):
    h = 2.0 ** -np.arange(5)
    curves = [Curve("RK4", h, h**4), Curve("CN", h, h**2)]
    path = work_precision_figure(
        tmp_path / "work.svg", curves, x_label="step", y_label="error", orders=(2, 4)
    )
    text = path.read_text(encoding="utf-8")
    assert all(f"<!-- {word} -->" in text for word in ("RK4", "CN", "slope 2", "slope 4", "error"))


def test_short_log_axes_have_few_and_plain_labels(tmp_path):
    curves = [Curve("CN", [2e-3, 4e-3], [1e-4, 4e-4])]
    path = work_precision_figure(tmp_path / "work.svg", curves, x_label="step", y_label="error")
    text = path.read_text(encoding="utf-8")
    assert [f"<!-- {x} -->" in text for x in ("0.002", "0.003", "0.0025")] == [True, True, False]


def test_value_without_logarithm_is_refused(tmp_path):
    with pytest.raises(InputError, match='curve "CN" holds 0'):
        work_precision_figure(
            tmp_path / "work.png", [Curve("CN", [1, 2], [1, 0])], x_label="x", y_label="y"
        )


@pytest.mark.parametrize("name", ["no folder/fit.png", "fit.nonsense"])
def test_figure_that_cannot_be_written_is_an_error(tmp_path, name):
    with pytest.raises(DaeosensError, match="cannot be written"):
        history_figure(tmp_path / name, [History("cn", [2.0, 1.0], [1.0, 0.1])], value_label="J")


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DaeosensError, match=r"matplotlib(.|\n)*daeosens\[plot\]"):
        importlib.reload(daeosens.report)


def motion(path, **changes):
    routes = [Route("leader", np.eye(3, 2)), Route("follower", -np.eye(3, 2))]
    controls = [
        ControlSeries("v", [0.0, 0.5, 1.0], [1.0, 2.0], (0.0, 2.0)),
        ControlSeries("w [rad]", [0.0, 1.0], [1.0, 3.0]),
    ]
    return motion_figure(path, **{"routes": routes, "controls": controls, **changes})


@pytest.mark.slow
def test_routes_and_controls_are_drawn(tmp_path):
    assert is_drawn(motion(tmp_path / "motion.png"))
    text = motion(tmp_path / "motion.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {word} -->" in text for word in ("leader", "follower", "w [rad]", "t"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"routes": [Route("a", np.eye(3, 2)), Route("b", np.eye(2))]}, "the same N"),
        ({"routes": []}, "the same N"),
        ({"controls": [ControlSeries("v", [0.0, 1.0], [1.0, 2.0, 3.0])]}, "2 times and 3 values"),
    ],
)
def test_motions_that_do_not_fit_are_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        motion(tmp_path / "motion.png", **changes)
