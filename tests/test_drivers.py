"""Every driver with its small configuration, serially and on two ranks; no exclusion list."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
DRIVERS = sorted(path.stem for path in (ROOT / "drivers").glob("*.py"))


def small(driver):
    return ROOT / "configs" / f"{driver}.small.toml"


def test_there_are_drivers_and_each_has_both_configurations():
    assert {"aircraft", "lynx_hare", "gray_scott_initial"} <= set(DRIVERS)
    for driver in DRIVERS:
        assert small(driver).is_file()
        assert (ROOT / "configs" / f"{driver}.toml").is_file()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("driver", DRIVERS)
def test_driver_converges_and_leaves_complete_results(driver, ranks, run_mpi, tmp_path):
    folder = tmp_path / "results"
    program = ROOT / "drivers" / f"{driver}.py"
    done = run_mpi(ranks, [program, small(driver), "--output", folder], timeout=300.0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "converged"
    assert summary["ranks"] == ranks
    assert (folder / "config.toml").read_text() == small(driver).read_text()
    assert "converged" in (folder / "log.txt").read_text()
    assert any(picture.read_bytes()[:4] == b"\x89PNG" for picture in folder.glob("*.png"))
    with h5py.File(folder / "results.h5") as file:
        assert len(file) > 0


@pytest.mark.parametrize("driver", DRIVERS)
def test_derivatives_of_the_driver_pass_its_check(driver):
    command = [sys.executable, "-m", "daeosens.cli", "check", str(small(driver))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "right" in done.stdout


@pytest.mark.parametrize("driver", DRIVERS)
def test_help_of_the_driver_names_its_keys(driver):
    command = [sys.executable, str(ROOT / "drivers" / f"{driver}.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0
    for word in ("stepping", "--output", "mpiexec"):
        assert word in done.stdout


def test_lynx_hare_fit_is_near_the_published_bayesian_posterior(run_mpi, tmp_path):
    program = ROOT / "drivers" / "lynx_hare.py"
    config = ROOT / "configs" / "lynx_hare.toml"
    done = run_mpi(2, [program, config, "--output", tmp_path / "out"], timeout=300.0)
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads((tmp_path / "out" / "summary.json").read_text())["facts"]
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


AIRCRAFT = [2.88134, 2.79477, 2.68143, 2.52676, 2.30725, 1.99478, 1.59983, 1.22992, 0.98469]
AIRCRAFT += [0.860197]
"""Headings printed by PETSc's tutorial, which stops a few 1e-6 from the optimum."""


def test_aircraft_finds_the_published_optimum_whatever_the_steps(run_mpi, tmp_path):
    program, config = ROOT / "drivers" / "aircraft.py", ROOT / "configs" / "aircraft.toml"
    done = run_mpi(1, [program, config, "--output", tmp_path / "out"], timeout=300.0)
    assert done.returncode == 0, done.stdout + done.stderr
    with h5py.File(tmp_path / "out" / "results.h5") as file:
        speeds, headings = file["speeds"][:], file["headings"][:]
    assert (speeds == 2.0).all()
    np.testing.assert_allclose(headings, AIRCRAFT, rtol=0, atol=6e-6)
    table = done.stdout.partition("largest change of a control\n")[2].splitlines()[:4]
    rows = [line.split() for line in table]
    assert [row[0] for row in rows] == ["10", "20", "40", "80"]
    for row in rows:
        assert float(row[2]) == pytest.approx(0.849936571568556, abs=1e-13)
        assert float(row[3]) < 5e-6
