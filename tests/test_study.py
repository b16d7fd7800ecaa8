"""Drivers run by ``drive``: exit codes, messages and what they leave, on one rank and on several."""

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from daeosens.io.arguments import Arguments, parse_arguments, split_petsc

DRIVER = '''
"""Do what the configuration says (a driver for tests)."""

import sys
import time
from dataclasses import dataclass
from typing import Annotated, Literal

from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import DaeosensError, InputError, SolveError
from daeosens.io.schema import positive
from daeosens.study import drive

RANK = MPI.COMM_WORLD.rank
ERRORS = {"solve": SolveError, "input": InputError, "value": ValueError}


@dataclass(frozen=True)
class Config:
    error: Literal["none", "solve", "input", "value"] = "none"
    alone: bool = False
    converges: bool = True
    dt: Annotated[float, positive(), "time step [years]"] = 0.1
    right: bool = True
    field: int = 4


@dataclass(frozen=True)
class Report:
    passed: bool

    def __str__(self):
        return "jacobian: " + ("right" if self.passed else "wrong")


def study(config, results):
    results.say(f"dt = {config.dt}")
    results.record("dt", config.dt)
    vec = PETSc.Vec().createMPI(config.field)
    vec.set(config.dt)
    results.write("u", vec)
    if config.error != "none" and RANK == (MPI.COMM_WORLD.size - 1 if config.alone else RANK):
        raise ERRORS[config.error](f"trouble on rank {RANK}")
    if config.alone:
        MPI.COMM_WORLD.Barrier()  # for ever, if somebody failed
    if config.field == 5:
        ts = PETSc.TS().create()
        ts.setFromOptions()
    return config.converges


def check(config):
    return Report(config.right)


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check, prefixes=("heat_",)))
'''


@dataclass(frozen=True)
class Empty:
    pass


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    path = tmp_path / "drivers" / "tiny.py"
    path.parent.mkdir()
    path.write_text(textwrap.dedent(DRIVER).lstrip(), encoding="utf-8")
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "configs" / "tiny.toml"
    path.parent.mkdir()
    path.write_text('driver = "tiny"\n', encoding="utf-8")
    return path


@pytest.fixture
def execute(driver, config, tmp_path, run_mpi):
    """Run the driver on so many ranks with so much more configuration and so many more words."""

    def run(ranks: int, text: str = "", *words: str, output: Path | None = None):
        config.write_text(f'driver = "tiny"\n{text}\n', encoding="utf-8")
        arguments = [driver, config, "--output", output or tmp_path / "run", *words]
        return run_mpi(ranks, arguments, timeout=60.0)

    return run


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_converged_run_leaves_its_results_and_exits_with_0(execute, tmp_path, ranks):
    run = execute(ranks, "dt = 0.25")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == [
        f"tiny: {ranks} rank{'s' * (ranks > 1)}, results in {tmp_path / 'run'}",
        "dt = 0.25",
        f"converged; results in {tmp_path / 'run'}",
    ]
    assert (tmp_path / "run" / "log.txt").read_text(encoding="utf-8") == run.stdout
    told = summary(tmp_path / "run")
    assert (told["status"], told["facts"], told["ranks"]) == ("converged", {"dt": 0.25}, ranks)
    assert told["run"]["driver"] == "tiny"


def test_run_that_does_not_converge_exits_with_1(execute, tmp_path):
    run = execute(2, "converges = false")
    assert run.returncode == 1
    assert run.stdout.splitlines()[-1].startswith("not converged")
    assert summary(tmp_path / "run")["status"] == "not converged"


@pytest.mark.parametrize(("error", "code"), [("solve", 1), ("input", 2)])
@pytest.mark.parametrize("ranks", [1, 2])
def test_error_of_all_ranks_is_told_once(execute, tmp_path, error, code, ranks):
    run = execute(ranks, f'error = "{error}"')
    assert run.returncode == code
    assert run.stderr.count("trouble") == 1
    assert "Traceback" not in run.stderr
    told = summary(tmp_path / "run")
    assert (told["status"], told["facts"]) == ("failed", {"dt": 0.1})
    assert told["error"] == "trouble on rank 0"
    assert "trouble" in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [("solve", 1, "failed"), ("input", 2, "failed"), ("value", 1, "crashed")],
)
def test_rank_that_fails_alone_ends_the_job(execute, tmp_path, error, code, status):
    run = execute(3, f'error = "{error}"\nalone = true')
    assert run.returncode == code
    assert "[rank 2] Traceback" in run.stderr
    assert "trouble on rank 2" in run.stderr
    told = summary(tmp_path / "run")
    assert told["status"] == status
    assert "trouble on rank 2" in told["error"]


def test_error_of_one_rank_that_nobody_waits_for_is_told_as_such(execute, driver, tmp_path):
    text = driver.read_text(encoding="utf-8")
    driver.write_text(text.replace("MPI.COMM_WORLD.Barrier()", "pass"), encoding="utf-8")
    run = execute(2, 'error = "solve"\nalone = true')
    assert run.returncode == 1
    assert "SolveError: trouble on rank 1\n  on rank 1 of 2" in run.stderr


def test_bug_on_a_single_rank_shows_its_traceback(execute, tmp_path):
    run = execute(1, 'error = "value"')
    assert run.returncode == 1
    assert "ValueError: trouble on rank 0" in run.stderr
    told = summary(tmp_path / "run")
    assert (told["status"], told["error"]) == ("crashed", "ValueError: trouble on rank 0")


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("dt = -1\nfeild = 3", [], "2 problems\n  - dt = -1: expected a number > 0"),
        ("dt = ", [], "not TOML"),
        ("", ["-ts_montor"], "ts_monitor"),
        ("", ["-info"], 'PETSC_OPTIONS="-info"'),
        ("", ["--outptu", "x"], "unrecognized arguments: --outptu x"),
    ],
)
def test_bad_input_exits_with_2_before_any_work(execute, tmp_path, text, words, message):
    run = execute(2, text, *words)
    assert run.returncode == 2
    assert message in run.stderr
    assert run.stderr.count("Error") <= 1 or "mpiexec" in run.stderr
    assert run.stdout == ""
    assert not (tmp_path / "run").exists()


def test_unwritable_results_folder_exits_with_2(execute, tmp_path):
    (tmp_path / "file").touch()
    run = execute(2, output=tmp_path / "file" / "run")
    assert run.returncode == 2
    assert "the results folder cannot be written" in run.stderr


def test_missing_configuration_exits_with_2(driver, run_mpi, tmp_path):
    run = run_mpi(2, [driver, tmp_path / "nothing.toml"])
    assert run.returncode == 2
    assert "nothing.toml: no such file" in run.stderr
    run = run_mpi(1, [driver, "-ts_view", "a.toml"])
    assert run.returncode == 2
    assert "try: CONFIG before -ts_view" in run.stderr
    run = run_mpi(1, [driver])
    assert "try: tiny.py --help" in run.stderr


def test_option_that_nothing_reads_is_an_error(execute, tmp_path):
    run = execute(2, "", "-ts_max_steps", "3")
    assert run.returncode == 2
    assert "ts_max_steps" in run.stderr
    assert summary(tmp_path / "run")["status"] == "failed"


def test_options_reach_petsc(execute):
    run = execute(2, "field = 5", "-ts_max_steps", "3", "-log_view")
    assert (run.returncode, run.stderr) == (0, "")
    assert "PETSc Performance Summary" in run.stdout


def test_help_tells_keys_options_and_exit_codes(driver, run_mpi):
    run = run_mpi(2, [driver, "--help"])
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("usage:") == 1
    for part in (
        "Do what the configuration says",
        "dt: a number > 0 (default 0.1); time step [years]",
        "-petsc_option",
        "exit codes:",
    ):
        assert part in run.stdout


@pytest.mark.parametrize(("text", "code"), [("", 0), ("right = false", 1), ("right = 1", 2)])
def test_check_tells_whether_the_derivatives_are_right(execute, tmp_path, text, code):
    run = execute(2, text, "--check")
    assert run.returncode == code
    if code < 2:
        assert f"jacobian: {'right' if code == 0 else 'wrong'}\n" in run.stdout
    assert not (tmp_path / "run").exists()


def test_check_of_a_driver_without_one_says_so(execute, driver):
    text = driver.read_text(encoding="utf-8")
    driver.write_text(text.replace("study, check", "study"), encoding="utf-8")
    run = execute(1, "", "--check")
    assert run.returncode == 0
    assert "the driver has no check" in run.stdout


def test_petsc_options_are_parted_as_petsc_does():
    words = "a.toml -x -1 --output b -y --check -z -inf -n 3 -w w.1 -v".split()
    ours, petsc = split_petsc(words, {"-n": 1})
    assert ours == ["a.toml", "--output", "b", "--check", "-n", "3"]
    assert petsc == {"x": "-1", "y": None, "z": "-inf", "w": "w.1", "v": None}


def test_results_folder_is_named_after_the_configuration():
    arguments = parse_arguments("", Empty, "tiny.py", ["configs/tiny.toml"])
    assert arguments == Arguments(Path("configs/tiny.toml"), Path("results/tiny"), False, {})
