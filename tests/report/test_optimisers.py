"""Figures of optimisers along runs of DAEOs."""

import re

import numpy as np
import pytest
from matplotlib.image import imread

import daeosens as ds
from daeosens.report.optimisers import landscape, optimisers_figure, stretches


def waves(t, x, y, p):
    return (x[0] - y[0]) ** 2 + np.sin(5.0 * y[0])


@pytest.fixture(scope="module")
def run():
    """Return a run with two jumps, two births and three deaths."""
    model = ds.DAEO(lambda t, x, y, p: y, waves, size=(["x"], ["y"]), box=(-2.0, 6.0))
    return ds.solve(model, [1.0], [], ds.Stepping((0.0, 1.5), "rk4", dt=0.05))


def test_the_lowest_optimiser_is_drawn_from_jump_to_jump(run):
    first, second, third = stretches(run.report, 1.5)
    jumps = [jump.t for jump in run.report.jumps]
    assert [first.number, second.number, third.number] == [2, 3, 4]
    assert [first.t[0], second.t[0], third.t[0]] == [0.0, *jumps]
    assert [first.t[-1], second.t[-1], third.t[-1]] == [*jumps, 1.5]
    for stretch in (first, second, third):
        x = np.interp(stretch.t, run.times, run.u[:, 0])
        slope = 2.0 * (stretch.y[:, 0] - x) + 5.0 * np.cos(5.0 * stretch.y[:, 0])
        np.testing.assert_allclose(slope, 0.0, atol=1e-9)


def test_colours_are_those_of_h_above_its_lowest_value(run):
    t, y, values = landscape(run, run.problem, 60)
    assert values.shape == (60, 60)
    assert values.min(axis=0).tolist() == [0.0] * 60
    x = np.interp(t, run.times, run.u[:, 0])
    exact = waves(None, [x], [y[:, None]], None)
    np.testing.assert_allclose(values, exact - exact.min(axis=0), atol=1e-12)
    lowest = [
        np.interp(t, stretch.t, stretch.y[:, 0], np.nan, np.nan)
        for stretch in stretches(run.report, 1.5)
    ]
    assert np.nanmax(np.abs(np.nanmin(np.abs(lowest - y[values.argmin(axis=0)]), axis=0))) < 0.15


@pytest.mark.slow
def test_all_optimisers_births_deaths_and_jumps_are_in_the_figure(run, tmp_path):
    text = optimisers_figure(tmp_path / "o.svg", run, time_label="t [s]").read_text()
    for word in ("t [s]", "x", "y", "the lowest", "birth", "death", "h above its lowest value"):
        assert f"<!-- {word} -->" in text
    ids = re.findall(r'id="((?:branch|lowest|jump|state) \d+|births|deaths)"', text)
    assert sorted({computed for computed in ids if computed.startswith("branch")}) == [
        f"branch {k}" for k in range(7)
    ]
    assert [computed for computed in ids if computed.startswith("lowest")] == [
        "lowest 2",
        "lowest 3",
        "lowest 4",
    ]
    assert ids.count("jump 0") == ids.count("jump 1") == 2  # in both panels
    assert {"births", "deaths", "state 0"} <= {*ids}
    assert text.count("<image") == 2  # the landscape and its colours
    births = re.search(r'<g id="births">(.*?)</g>\s*</g>', text, re.DOTALL).group(1)
    deaths = re.search(r'<g id="deaths">(.*?)</g>\s*</g>', text, re.DOTALL).group(1)
    assert births.count("<use") == 2
    assert deaths.count("<use") == 3


@pytest.mark.slow
def test_the_lowest_one_is_thick_and_lies_where_h_is_darkest(run, tmp_path):
    pixels = imread(optimisers_figure(tmp_path / "o.png", run))[..., :3]
    orange = np.abs(pixels - np.array([0xD5, 0x5E, 0x00]) / 255.0).max(axis=2) < 0.02
    columns = np.flatnonzero(orange[len(pixels) // 3 :].any(axis=0))
    assert len(columns) > 0.7 * pixels.shape[1]
    assert np.median(orange[len(pixels) // 3 :].sum(axis=0)[columns]) >= 5  # points of 200 dpi


@pytest.mark.slow
def test_more_optimisation_variables_have_a_panel_each(tmp_path):
    model = ds.DAEO(
        lambda t, x, y, p: y[0] - x,
        lambda t, x, y, p: (y[0] ** 2 - 1.0) ** 2 + (y[1] - x[0]) ** 2 - (t - 0.5) * y[0],
        size=(["speed"], ["side", "aim"]),
        box=[(-2.0, 2.0)] * 2,
    )
    run = ds.solve(model, [0.2], [], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    labels = {"state_labels": ["speed [m/s]"], "optimiser_labels": ["side [m]", "aim [m]"]}
    text = optimisers_figure(tmp_path / "o.svg", run, **labels).read_text()
    for word in ("speed [m/s]", "side [m]", "aim [m]"):
        assert f"<!-- {word} -->" in text
    assert text.count('id="lowest 1"') == text.count('id="lowest 0"') == 2
    assert "<image" not in text


def test_what_is_no_run_of_a_daeo_is_named(run, tmp_path):
    plain = ds.solve(
        ds.ODE(lambda t, u, p: -u, 1), [1.0], [], ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    )
    with pytest.raises(ds.InputError, match="a run of a DAEO"):
        optimisers_figure(tmp_path / "o.svg", plain)
    with pytest.raises(ds.InputError, match=r"2 labels \['a', 'b'\]"):
        optimisers_figure(tmp_path / "o.svg", run, state_labels=["a", "b"])
