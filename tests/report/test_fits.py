"""Figures of fits: written where asked, with what they must show."""

import math

import numpy as np
import pytest
from closed_forms import Formula
from matplotlib.figure import Figure
from matplotlib.image import imread
from mpi4py import MPI

from daeosens import InputError, Parameter, Parameters
from daeosens.inverse import (
    Discovery,
    Prediction,
    covariance,
    multistart,
    polynomials,
    profile,
    starting_points,
)
from daeosens.report.fits import (
    bands_figure,
    correlation_figure,
    profiles_figure,
    terms_figure,
    waterfall_figure,
)

TIMES = np.linspace(0.0, 2.0, 21)


@pytest.fixture
def drawn(monkeypatch):
    """Keep every figure that is written."""
    figures = []
    save = Figure.savefig

    def keep(self, *arguments, **keywords):
        figures.append(self)
        return save(self, *arguments, **keywords)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def shown(path):
    pixels = imread(path)
    assert pixels.std() > 0.05
    return pixels.shape


def prediction(noise=0.1, size=2):
    value = np.column_stack([np.exp(-TIMES), 2.0 + np.sin(TIMES)])[:, :size]
    level = np.full_like(value, noise)
    return Prediction(TIMES, value, "log", 0.05 * np.ones_like(value), level, 0.9, 1.645)


def lopsided():
    """-log likelihood of a log-normal level: open to the right in its second component."""
    return Formula(
        lambda x: 4 * (x[0] + (math.exp(-2 * x[0]) - 1) / 2) + 1.5 * (1 - math.exp(-x[1])) ** 2,
        lambda x: np.array(
            [4 * (1 - math.exp(-2 * x[0])), 3 * (1 - math.exp(-x[1])) * math.exp(-x[1])]
        ),
        lambda x: np.diag([8.0, 3.0]),
        [0.0, 0.0],
        control=Parameters(
            {"level": Parameter(1.0, scale="log"), "rate": Parameter(0.0)}, initial_state=[1.0]
        ),
    )


# ---- bands ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_bands_show_data_fit_and_both_bands(tmp_path, drawn, noise):
    data = np.column_stack([np.exp(-TIMES[::5]), 2.0 + np.sin(TIMES[::5])])
    path = bands_figure(
        tmp_path / "bands.png",
        prediction(noise),
        TIMES[::5],
        data,
        time_label="time [s]",
        value_labels=["mass [kg]", "height [m]"],
        title="A decay",
    )
    assert shown(path)[1] > 1000
    figure = drawn[0]
    first, second = figure.axes
    assert (first.get_ylabel(), second.get_ylabel()) == ("mass [kg]", "height [m]")
    assert second.get_xlabel() == "time [s]"
    assert len(first.collections) == (2 if noise else 1)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:3] == ["data", "fit", "90 % confidence"]
    assert labels[3:] == (["90 % prediction, with noise"] if noise else [])
    # the outer band is the wider one
    spans = [np.ptp(collection.get_paths()[0].vertices[:, 1]) for collection in first.collections]
    assert spans == sorted(spans, reverse=True)


@pytest.mark.slow
def test_bands_of_one_column(tmp_path):
    figure = bands_figure(
        tmp_path / "one.pdf",
        prediction(size=1),
        TIMES,
        np.exp(-TIMES),
        time_label="t",
        value_labels=["u"],
    )
    assert figure.stat().st_size > 1000


def test_columns_that_do_not_match_are_refused(tmp_path):
    with pytest.raises(InputError, match="1 columns of data and 2 labels"):
        bands_figure(
            tmp_path / "bands.png",
            prediction(),
            TIMES,
            np.exp(-TIMES),
            time_label="t",
            value_labels=["a", "b"],
        )


# ---- profiles ------------------------------------------------------------------------------------


def test_profiles_show_threshold_and_quadratic(tmp_path, drawn):
    functional = lopsided()
    profiles = profile(functional, covariance(functional, functional.start()))
    path = profiles_figure(tmp_path / "profiles.png", profiles, {"level": "noise level [V]"})
    shown(path)
    first, second = drawn[0].axes
    assert first.get_xlabel() == "noise level [V]"
    assert second.get_xlabel() == "rate"
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert labels == ["95 % threshold", "quadratic", "symmetric quadratic", "profile", "estimate"]
    lines = {line.get_label(): line for line in first.get_lines()}
    assert lines["estimate"].get_xdata()[0] == 1.0  # in its own unit
    np.testing.assert_allclose(lines["{percent} threshold"].get_ydata(), 1.9207, rtol=1e-4)
    # the drawn quadratic reaches the threshold at the quadratic interval
    curve = lines["quadratic"]
    height = np.interp(
        profiles["level"].quadratic_interval[1], curve.get_xdata(), curve.get_ydata()
    )
    assert height == pytest.approx(1.9207, rel=0.01)
    drawn_profile = lines["profile"]
    x = drawn_profile.get_xdata()
    inside = np.isfinite(drawn_profile.get_ydata())
    exact = 4 * (np.log(x) + (x**-2.0 - 1) / 2)
    np.testing.assert_allclose(drawn_profile.get_ydata()[inside], exact[inside], atol=0.03)
    # one crossing and one open end: a single dotted line
    assert sum(line.get_linestyle() == ":" for line in second.get_lines()) == 1


@pytest.mark.slow
def test_panels_without_a_profile_are_removed(tmp_path, drawn):
    functional = lopsided()
    profiles = profile(functional, covariance(functional, functional.start()), points=3)
    profiles_figure(tmp_path / "column.png", profiles, columns=1)
    assert len(drawn[0].axes) == 2
    three = type(profiles)(0.95, (*profiles.entries, profiles.entries[0]))
    profiles_figure(tmp_path / "grid.png", three, columns=2)
    assert len(drawn[1].axes) == 3


# ---- correlations --------------------------------------------------------------------------------


@pytest.mark.slow
def test_correlations_are_written_in_the_matrix(tmp_path, drawn):
    matrix = np.array([[1.0, -0.9, math.nan], [-0.9, 1.0, math.nan], [math.nan] * 3])
    path = correlation_figure(tmp_path / "c.png", ["growth", "loss", "share"], matrix, title="r")
    shown(path)
    texts = [text.get_text() for text in drawn[0].axes[0].texts]
    assert texts == ["1.00", "\N{MINUS SIGN}0.90", "\N{MINUS SIGN}0.90", "1.00"]
    with pytest.raises(InputError, match=r"correlation has shape \(3, 3\)"):
        correlation_figure(tmp_path / "c.png", ["growth"], matrix)


# ---- waterfalls ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_waterfall_is_sorted_and_counts_failures(tmp_path, drawn):
    wells = Formula(
        lambda x: np.sum((x**2 - 1) ** 2 + 0.2 * x),
        lambda x: 4 * x * (x**2 - 1) + 0.2,
        lambda x: np.diag(12 * x**2 - 4),
        [0.9, 0.9],
        bounds=(-2.0, 2.0),
        domain=lambda x: x[0] < 1.5,
    )
    starts = multistart(
        lambda _comm: wells,
        starting_points(wells, 24),
        comm=MPI.COMM_SELF,
        method="blmvm",
        max_iterations=8,
    )
    path = waterfall_figure(tmp_path / "waterfall.png", starts)
    shown(path)
    axes = drawn[0].axes[0]
    heights = axes.get_lines()[0].get_ydata()
    assert (np.diff(heights) >= 0).all()
    assert axes.get_yscale() == "log"
    failed = sum(not math.isfinite(attempt.value) for attempt in starts.attempts)
    assert failed > 0
    assert axes.get_xlabel() == f"start, best first ({failed} more failed)"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert set(labels) <= {"converged", "not converged"}


def test_the_path_of_terms_marks_the_set_that_is_kept(tmp_path, drawn):
    times = np.linspace(0.0, 4.0, 41)
    data = {"t": times, "x": 2.0 * np.exp(-0.5 * times) + 1.0}  # x' = 0.5 - 0.5 x
    result = Discovery(polynomials(["x"])).fit(data)
    assert {*result.estimate} == {"x: 1", "x: x"}
    shown(terms_figure(tmp_path / "terms.png", result))
    upper, lower = drawn[0].axes
    for axes, kind in ((upper, "value"), (lower, "smallest")):
        line, kept, tried = axes.get_lines()
        assert line.get_xdata().tolist() == [3, 2, 1]
        np.testing.assert_array_equal(
            line.get_ydata(), [getattr(step, kind) for step in result.path[:3]]
        )
        assert kept.get_xdata().tolist() == [2]
        assert tried.get_xdata().tolist() == [3, 1]
        assert axes.get_yscale() == "log"
    assert lower.get_xlabel() == "terms"


def test_missing_data_leave_the_axis_at_zero(tmp_path, drawn):
    """The band reaches below zero, the data that are there do not."""
    ones = np.ones((3, 1))
    bands = Prediction(TIMES[:3], 0.1 * ones, "linear", 0.1 * ones, 0.2 * ones, 0.95, 1.96)
    labels = {"time_label": "time", "value_labels": ["mass"]}
    bands_figure(tmp_path / "bands.svg", bands, TIMES[:3], [0.1, math.nan, 0.2], **labels)
    assert drawn[0].axes[0].get_ylim()[0] == 0.0
