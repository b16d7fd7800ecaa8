"""Every driver with its small configuration on one rank and on two, those on grids on three."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from driver_modules import driven
from driver_modules import driver as module_of
from mpi4py import MPI
from odd_configurations import with_mistakes

from daeosens import InputError, Stepping, UnsupportedError
from daeosens.cli import drive
from daeosens.io import build_config, open_results, parse_toml

ROOT = Path(__file__).parents[1]
DRIVERS = sorted(path.stem for path in (ROOT / "drivers").glob("*.py"))
ON_GRIDS = ["gray_scott_initial", "thermostat", "tissue"]


def small(driver):
    return ROOT / "configs" / f"{driver}.small.toml"


def test_there_are_drivers_and_each_has_both_configurations():
    assert {"aircraft", "lynx_hare", "gray_scott_initial", "impact_times"} <= set(DRIVERS)
    for driver in DRIVERS:
        module = module_of(driver)
        for path in (small(driver), ROOT / "configs" / f"{driver}.toml"):
            assert isinstance(configured(module, path), module.Config)
        last = "sys.exit(drive(__doc__, Config, study, check))\n"  # as ``driven`` runs them
        assert (ROOT / "drivers" / f"{driver}.py").read_text().endswith(last)


def configured(module, path):
    return build_config(parse_toml(path, path.read_text()), module.Config, path)


class Right:
    """A report of derivatives that are right."""

    passed = True


def test_configurations_with_mistakes_give_no_traceback(tmp_path, capsys, request):
    """Their numbers: 0 where the mistake is none, 2 with one message where it is."""
    configs = sorted((ROOT / "configs").glob("*.toml"))
    modules = {driver: module_of(driver) for driver in DRIVERS}
    for table in (ROOT / "configs").glob("*.csv"):
        (tmp_path / table.name).write_bytes(table.read_bytes())
    path, codes = tmp_path / "mistaken.toml", []
    first = 1500 * request.config.getoption("sample_seed")
    for seed in range(first, first + (1500 if request.config.getoption("all") else 100)):
        text = configs[seed % len(configs)].read_text(encoding="utf-8")
        driver = parse_toml(path, text)["driver"]
        path.write_bytes(with_mistakes(text, seed))
        module = modules[driver]
        words = [f"{driver}.py", str(path), "--check"]
        codes.append(drive("", module.Config, module.study, lambda config: Right(), argv=words))
        told = capsys.readouterr().err
        assert bool(told) == (codes[-1] == 2), (seed, told)
        assert "Traceback" not in told, (seed, told)
    assert set(codes) == {0, 2}
    assert codes.count(2) > 0.8 * len(codes)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.whole
@pytest.mark.parametrize("driver", ON_GRIDS if MPI.COMM_WORLD.size > 2 else DRIVERS)
def test_driver_converges_and_leaves_complete_results(driver, comm, shared_tmp_path, capsys):
    folder = shared_tmp_path / "results"
    assert driven(driver, small(driver), "--output", folder) == 0
    assert capsys.readouterr().err == ""
    comm.barrier()
    facts = are_complete(folder, driver, comm.size)
    if driver == "lynx_hare":
        is_near_the_published_bayesian_posterior(facts)
    if driver == "tissue":
        is_the_same_on_any_ranks(facts["tissue"])


@pytest.mark.slow
def test_driver_is_a_program(run_mpi, tmp_path):
    driver, folder = "bouncing_ball", tmp_path / "results"
    program = ROOT / "drivers" / f"{driver}.py"
    done = run_mpi(2, [program, small(driver), "--output", folder])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    are_complete(folder, driver, 2)


def is_the_same_on_any_ranks(facts):
    """To what solvers leave; and within its standard deviations of the truth."""
    found = [facts["error_beside_prior"]]
    for rate in ("eps", "b"):
        found += [facts[rate]["estimate"], facts[rate]["sd_of_log"]]
        assert abs(facts[rate]["off"]) < 2.0
    expected = [0.649493739, 0.120677967, 0.064995179, 0.597424021, 0.138796009]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert 0.6 < facts["mean_square"] < 1.4


def is_near_the_published_bayesian_posterior(facts):
    published = {
        "growth": (0.55, 0.065),
        "predation": (0.028, 0.004),
        "death": (0.80, 0.092),
        "conversion": (0.024, 0.004),
    }
    for name, (mean, deviation) in published.items():
        assert abs(facts["parameters"][name] / mean - 1.0) < 0.035
        # printed with one or two digits; the posterior is wider than its Laplace approximation
        assert 0.8 < facts["standard_errors"][name] / deviation < 1.0
    # 95 % intervals of a sampler for the same posterior: the profile finds them, skewness included
    lower, upper = facts["profile_intervals"]["death"]
    assert abs(lower - 0.638) < 0.01
    assert abs(upper - 0.992) < 0.01
    for level in facts["sigma"]:
        assert abs(level - 0.25) < 0.02


def are_complete(folder, driver, ranks):
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "converged"
    assert summary["ranks"] == ranks
    assert (folder / "config.toml").read_text() == small(driver).read_text()
    assert "converged" in (folder / "log.txt").read_text()
    assert any(picture.read_bytes()[:4] == b"\x89PNG" for picture in folder.glob("*.png"))
    with h5py.File(folder / "results.h5") as file:
        assert len(file) > 0
    return summary["facts"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_derivatives_of_the_driver_pass_its_check(driver, capsys):
    assert driven(driver, small(driver), "--check") == 0
    assert "right" in capsys.readouterr().out


@pytest.mark.parametrize("driver", DRIVERS)
def test_help_of_the_driver_names_its_keys(driver, capsys):
    assert driven(driver, "--help") == 0
    printed = capsys.readouterr().out
    for word in ("stepping", "--output", "mpiexec"):
        assert word in printed


# ---- what the studies find, with their own configurations ----------------------------------------


def studied(name, tmp_path, **changes):
    """Run a driver's study with its configuration; return the facts and the folder."""
    module = module_of(name)
    config = replace(configured(module, ROOT / "configs" / f"{name}.toml"), **changes)
    results = open_results(tmp_path / "results", MPI.COMM_WORLD)
    assert module.study(config, results)
    return results.facts, results.folder


def test_alpha_pinene_finds_the_published_optimum_without_a_guess(tmp_path):
    """That of COPS 3.0."""
    facts, _ = studied("alpha_pinene", tmp_path, points=1)
    assert facts["sum_of_squares"] == pytest.approx(19.8722, abs=5e-5)


def test_school_influenza_finds_the_published_rates(tmp_path):
    """To the digits that Murray prints, and their least squares."""
    facts, _ = studied("school_influenza", tmp_path, points=1)
    r, a = facts["parameters"]["r"], facts["parameters"]["a"]
    assert r == pytest.approx(2.18e-3, abs=1e-5)
    assert a / r == pytest.approx(202.0, abs=1.0)
    assert facts["sum_of_squares"] == pytest.approx(4121.9415, abs=1e-3)


AIRCRAFT = [2.88134, 2.79477, 2.68143, 2.52676, 2.30725, 1.99478, 1.59983, 1.22992, 0.98469]
AIRCRAFT += [0.860197]
"""Headings printed by PETSc's tutorial, which stops a few 1e-6 from the optimum."""


@pytest.mark.slow
def test_aircraft_finds_the_published_optimum_whatever_the_steps(tmp_path, capsys):
    _, folder = studied("aircraft", tmp_path, refinements=(1, 4))
    with h5py.File(folder / "results.h5") as file:
        speeds, headings = file["speeds"][:], file["headings"][:]
    assert (speeds == 2.0).all()
    np.testing.assert_allclose(headings, AIRCRAFT, rtol=0, atol=6e-6)
    table = capsys.readouterr().out.partition("largest change of a control\n")[2].splitlines()[:2]
    rows = [line.split() for line in table]
    assert [row[0] for row in rows] == ["10", "40"]
    for row in rows:
        assert float(row[2]) == pytest.approx(0.849936571568556, abs=1e-13)
        assert float(row[3]) < 5e-6


@pytest.mark.slow
def test_bouncing_ball_prints_the_published_digits(tmp_path, capsys):
    facts, _ = studied("bouncing_ball", tmp_path)
    printed = capsys.readouterr().out
    assert "0.990049998750063" in printed
    rows = printed.partition("\nend [s]")[2].splitlines()[1:5]
    assert [row.split()[1] for row in rows] == ["1", "3", "5", "20"]
    assert facts["largest_error"] < 1e-12
    digits = {"rtol": 0, "atol": 5e-9}
    np.testing.assert_allclose(facts["where z = 0"], [0.83782811, -0.99995, -0.499975], **digits)
    np.testing.assert_allclose(facts["at the same times"], [1.0, 0.0, -0.99005], **digits)


@pytest.mark.slow
def test_switched_oscillator_converges_with_every_method(tmp_path):
    facts, folder = studied("switched_oscillator", tmp_path, refinements=1)
    expected = {"cn": 2, "beuler": 1, "rk2a": 2, "rk3bs": 3, "rk4": 4, "rk5dp": 5}
    assert facts["orders"] == pytest.approx(expected, abs=0.1)
    with h5py.File(folder / "results.h5") as file:
        published = [[-0.10152497, 0.77932811], [0.07041081, -0.53474455]]
        np.testing.assert_allclose(file["du_dslopes"][:], published, rtol=0, atol=5.1e-9)
        assert file["errors/rk5dp"][-1, 2] < 1e-9
        assert file["errors/rk5dp"][-1, 3] < 2e-9


@pytest.mark.slow
def test_impact_times_finds_the_truth_within_its_intervals(tmp_path):
    facts, _ = studied("impact_times", tmp_path)
    truth = {"gravity": 9.81, "restitution": 0.82, "height": 1.5, "speed": 0.4}
    assert facts["parameters"].keys() == truth.keys()
    for name, value in truth.items():
        assert abs(facts["parameters"][name] - value) < 1.96 * facts["standard_errors"][name]
    for name, (lower, upper) in facts["profile_intervals"].items():
        assert lower < truth[name] < upper
    assert 2 * facts["value"] < 23.2  # 99 % of chi-square with 10 degrees of freedom


def test_times_alone_do_not_tell_the_height_from_gravity(tmp_path):
    """They depend on height / gravity and speed / gravity only."""
    message = "the data do not determine gravity, height: J does not change along"
    with pytest.raises(UnsupportedError, match=message):
        studied("impact_times", tmp_path, speed_sigma=None)


REFUSED = {
    "forecast before the data": (
        "lynx_hare",
        ("forecast = 1922.0", "forecast = 1850.0"),
        "forecast = 1850\n.*a year after the first of stepping.t_span, 1900",
    ),
    "a parameter twice": (
        "impact_times",
        ('"restitution"]', '"gravity"]'),
        r"estimate = \['gravity', 'gravity'\]\n.*each name once",
    ),
    "cleared after the end": (
        "swing_equation",
        ("[0.1, 0.2]", "[0.1, 2.0]"),
        r"fault = \(0.1, 2.0\)\n.*before the end of stepping.t_span, 1",
    ),
    "steps of no size": (
        "swing_equation",
        ("refinements = [2]", "refinements = [0]"),
        r"refinements\[0\] = 0: expected an integer > 0",
    ),
    "four powers": (
        "nine_bus",
        ("[0.69, 1.59, 0.69]", "[0.69, 1.59, 0.69, 1.0]"),
        "powers = .*: expected an array of length 2 to 3",
    ),
    "no such machine": (
        "nine_bus",
        ("ceilings = []", "ceilings = [7]"),
        r"ceilings\[0\] = 7: expected an integer in \[1, 3\]",
    ),
    "cleared before it begins": (
        "nine_bus",
        ("[optimizer]", "[fault]\nclearing = 0.5\n[optimizer]"),
        "fault.start = 1, clearing = 0.5\n.*start < clearing",
    ),
    "fault after the end": (
        "nine_bus",
        ("[optimizer]", "[fault]\nclearing = 1.5\n[optimizer]"),
        "fault.clearing = 1.5\n.*before the end of stepping.t_span, 1.3",
    ),
}


@pytest.mark.parametrize(("driver", "change", "message"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_is_refused_before_the_run(driver, change, message):
    text = small(driver).read_text()
    assert change[0] in text
    table = parse_toml(small(driver), text.replace(*change))
    with pytest.raises(InputError, match=message):
        build_config(table, module_of(driver).Config, small(driver))


def test_switched_oscillator_with_another_span_is_refused(tmp_path):
    steps = (Stepping((0.0, 0.25), "cn", dt=0.01),)
    with pytest.raises(InputError, match=r"t_span = \(0\.0, 0\.25\)(.|\n)*solution is known"):
        studied("switched_oscillator", tmp_path, stepping=steps)
