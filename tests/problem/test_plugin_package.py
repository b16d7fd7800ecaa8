"""A package of somebody else that registers a kind of event, used by a configuration."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from daeosens.cli import doctor
from daeosens.problem import NamedEvent

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "tests" / "plugins"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the package with pip, offline, into a folder of its own."""
    folder = tmp_path_factory.mktemp("plugins")
    source = shutil.copytree(PLUGINS / "daeosens_hiccup", folder / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--no-compile"]
    command = [sys.executable, "-m", "pip", "install", *options, "--disable-pip-version-check"]
    command += ["--root-user-action", "ignore", "--target", folder / "site", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def run(arguments, *folders):
    path = os.pathsep.join(map(str, [*folders, ROOT]))
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.slow
def test_configuration_uses_the_kind_of_another_package(installed, tmp_path):
    """The level rises at rate 1, falls back by 0.4 from 1, and gets 0.05 at t = 2.3."""
    arguments = [PLUGINS / "tank.py", PLUGINS / "tank.toml", "--output", tmp_path / "out"]
    done = run(arguments, installed)
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads((tmp_path / "out" / "summary.json").read_text())["facts"]
    assert facts["level"] == pytest.approx(2.8 - 5 * 0.4 + 0.05, rel=1e-13)
    expected = {"inflow": 2.8, "mark": 0.0, "depth": -5.0}
    assert facts["gradient"] == pytest.approx(expected, rel=1e-12, abs=1e-12)
    with h5py.File(tmp_path / "out" / "results.h5") as file:
        times = file["times"][:]
    np.testing.assert_allclose(times, [1.0, 1.4, 1.8, 2.2, 2.3, 2.55], rtol=1e-13)


@pytest.mark.slow
def test_without_the_package_its_kind_is_unknown(tmp_path):
    done = run([PLUGINS / "tank.py", PLUGINS / "tank.toml", "--output", tmp_path / "out"])
    assert done.returncode == 2
    assert 'events[0].kind: there is no kind of event "hiccup"' in done.stderr
    assert not (tmp_path / "out").exists()


def test_help_and_doctor_name_the_package(installed, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    lines = NamedEvent.help_lines("events[].")
    summary = "Let an unknown that rises to a level fall back."
    assert f'events[].kind = "hiccup": component, level, [depth], [name]; {summary}' in lines
    assert "hiccup, of daeosens-hiccup 0.1.0 (daeosens_hiccup:hiccup)" in doctor.report()[0]


@pytest.mark.parametrize(
    "source", ["daeosens_hiccup/daeosens_hiccup.py", "daeosens_hiccup/pyproject.toml", "tank.toml"]
)
def test_documentation_shows_what_is_tested_here(source):
    """Every code block of the section is a piece of a file, but for what it imports first."""
    text = (ROOT / "docs" / "events.md").read_text()
    section = text.partition("## Events by name")[2].partition("\n## What")[0]
    blocks = [block.partition("\n")[2] for block in section.split("```")[1::2]]
    blocks = [re.sub(r"\A(?:(?:(?:from|import) .*)?\n)+", "", block) for block in blocks]
    assert any(block in (PLUGINS / source).read_text() for block in blocks)
    sources = [*PLUGINS.glob("*/*.*"), *PLUGINS.glob("*.*"), ROOT / "tests" / "test_event_kinds.py"]
    for block in blocks:
        assert any(block in path.read_text() for path in sources), block
