"""The command line of a driver: its own options, and those of PETSc."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from daeosens.io.config.arguments import Arguments, parse_arguments, split_petsc


@dataclass
class Config:
    """Nothing to configure."""


def test_petsc_options_are_parted_as_petsc_does():
    words = ["a.toml", "-x", "-1", "--output", "b", "-y", "--check", "-z", "-inf", "-n", "3", "-v"]
    ours, petsc = split_petsc(words, {"-n": 1})
    assert ours == ["a.toml", "--output", "b", "--check", "-n", "3"]
    assert petsc == {"x": "-1", "y": None, "z": "-inf", "v": None}


def test_results_folder_is_named_after_the_configuration():
    arguments = parse_arguments("", Config, "tiny.py", ["configs/tiny.toml"])
    assert arguments == Arguments(
        Path("configs/tiny.toml"), Path("results/tiny"), False, False, None, 0, {}
    )


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan"])
def test_time_limits_that_are_none_are_named(text, tmp_path, capfd):
    words = [str(tmp_path / "fit.toml"), "--time-limit", text]
    assert parse_arguments("Fit.", Config, "fit.py", words) == 2
    assert f"{text}: expected a number of seconds, above 0" in capfd.readouterr().err
