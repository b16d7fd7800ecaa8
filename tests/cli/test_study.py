"""Drivers run by ``drive``: exit codes, messages, what they leave, on one rank and on several."""

import json
import os
import signal
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Annotated, Literal

import pytest
from mpi4py import MPI
from petsc4py import PETSc

import daeosens.cli.study as module
from daeosens.cli.study import drive
from daeosens.errors import InputError, SolveError
from daeosens.io import Results, open_results, positive

ROOT = Path(__file__).parents[2]
WORLD = MPI.COMM_WORLD
ERRORS = {"solve": SolveError, "input": InputError, "value": ValueError, "stop": KeyboardInterrupt}
DOC = "Do what the configuration says."


@dataclass(frozen=True)
class Config:
    error: Literal["none", "solve", "input", "value", "stop"] = "none"
    alone: bool = False  # only the last rank fails
    waits: bool = False  # the others wait for it
    converges: bool = True
    dt: Annotated[float, positive(), "time step [years]"] = 0.1
    right: bool = True
    reads_options: bool = False


@dataclass(frozen=True)
class Report:
    passed: bool

    def __str__(self) -> str:
        return "jacobian: " + ("right" if self.passed else "wrong")


def study(config: Config, results: Results) -> bool:
    results.say(f"dt = {config.dt}")
    results.record("dt", config.dt)
    vec = PETSc.Vec().createMPI(4)
    vec.set(config.dt)
    results.write("u", vec)
    if config.error != "none" and (WORLD.rank == WORLD.size - 1 or not config.alone):
        raise ERRORS[config.error](f"trouble on rank {WORLD.rank}")
    if config.waits:
        WORLD.Barrier()
    if config.reads_options:
        PETSc.TS().create().setFromOptions()
    return config.converges


def check(config: Config) -> Report:
    if config.error != "none" and (WORLD.rank == WORLD.size - 1 or not config.alone):
        raise ERRORS[config.error](f"trouble on rank {WORLD.rank}")
    return Report(config.right)


@pytest.fixture
def execute(shared_tmp_path, capfd):
    """Drive the study in this process; return the exit code and what this rank printed."""

    def run(text: str = "", *words: str, output: str = "run", study=study, check=check):
        config = shared_tmp_path / "tiny.toml"
        if WORLD.rank == 0:
            config.write_text(text, encoding="utf-8")
        WORLD.Barrier()
        argv = ["drivers/tiny.py", str(config), "--output", str(shared_tmp_path / output), *words]
        code = drive(DOC, Config, study, check, prefixes=("heat_",), argv=argv)
        assert WORLD.allgather(code) == [code] * WORLD.size
        return code, *capfd.readouterr()

    return run


def summary(folder: Path) -> dict:
    return json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))


# ---- on every rank the same ----------------------------------------------------------------------


@pytest.mark.mpi
def test_converged_run_leaves_its_results_and_exits_with_0(execute, shared_tmp_path):
    code, printed, complaints = execute("dt = 0.25")
    folder = shared_tmp_path / "run"
    n = WORLD.size
    expected = (
        f"tiny: {n} rank{'s' * (n > 1)}, results in {folder}\n"
        f"dt = 0.25\nconverged; results in {folder}\n"
    )
    assert (code, complaints) == (0, "")
    assert printed == (expected if WORLD.rank == 0 else "")
    assert (folder / "log.txt").read_text(encoding="utf-8") == expected
    told = summary(shared_tmp_path)
    assert (told["status"], told["facts"], told["ranks"]) == ("converged", {"dt": 0.25}, n)
    assert told["run"]["driver"] == "tiny"


@pytest.mark.mpi
def test_run_that_does_not_converge_exits_with_1(execute, shared_tmp_path):
    code, printed, _ = execute("converges = false")
    assert code == 1
    assert ("\nnot converged; " in printed) == (WORLD.rank == 0)
    assert summary(shared_tmp_path)["status"] == "not converged"


@pytest.mark.mpi
@pytest.mark.parametrize(("error", "code"), [("solve", 1), ("input", 2)])
def test_error_of_all_ranks_is_told_by_the_first(execute, shared_tmp_path, error, code):
    returned, _, complaints = execute(f'error = "{error}"')
    assert returned == code
    kind = ERRORS[error].__name__
    assert complaints == (f"{kind}: trouble on rank 0\n" if WORLD.rank == 0 else "")
    told = summary(shared_tmp_path)
    assert (told["status"], told["facts"]) == ("failed", {"dt": 0.1})
    assert told["error"] == "trouble on rank 0"
    log = (shared_tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    assert f"{kind}: trouble on rank 0" in log


@pytest.mark.mpi(min_size=2)
def test_error_of_one_rank_that_nobody_waits_for_is_raised_on_all(execute):
    code, _, complaints = execute('error = "solve"\nalone = true')
    last = WORLD.size - 1
    told = f"SolveError: trouble on rank {last}\n  on rank {last} of {WORLD.size}\n"
    assert (code, complaints) == (1, told if WORLD.rank == 0 else "")


def test_interrupted_study_ends_quietly(execute, shared_tmp_path):
    code, printed, complaints = execute('error = "stop"')
    assert (code, complaints) == (130, "")
    assert printed.endswith(f"interrupted; results so far in {shared_tmp_path / 'run'}\n")
    assert summary(shared_tmp_path)["status"] == "interrupted"


@pytest.mark.mpi
@pytest.mark.parametrize("error", ["none", "solve"])
def test_communicator_of_a_run_is_freed(execute, error):
    seen = []

    def remembered(config: Config, results: Results) -> bool:
        seen.append(results.comm)
        return study(config, results)

    execute(f'error = "{error}"', study=remembered)
    assert seen == [MPI.COMM_NULL]


@pytest.mark.mpi
def test_bug_is_not_hidden(execute, shared_tmp_path):
    with pytest.raises(ValueError, match="trouble on rank"):
        execute('error = "value"')
    WORLD.Barrier()
    told = summary(shared_tmp_path)
    assert told["status"] == "crashed"
    assert told["error"].startswith("ValueError: trouble on rank")
    WORLD.Barrier()


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("dt = -1\nerorr = 3", [], "2 problems\n  - dt = -1: expected a number > 0"),
        ("dt = ", [], "not TOML"),
        (
            'driver = "../lynx_hare.py"\nrates = 1',
            [],
            '"waits"?\n  try: "lynx_hare", the driver it names, in the place of "tiny"',
        ),
        ("", ["-ts_montor"], "ts_monitor"),
        ("", ["-info"], 'PETSC_OPTIONS="-info"'),
        ("", ["--outptu", "x"], "unrecognized arguments: --outptu x"),
        ("", ["--output", "{}/tiny.toml/run"], "the results folder cannot be written"),
    ],
)
def test_bad_input_exits_with_2_before_any_work(execute, shared_tmp_path, text, words, message):
    code, printed, complaints = execute(text, *[w.format(shared_tmp_path) for w in words])
    assert (code, printed) == (2, "")
    if WORLD.rank == 0:
        assert message in complaints
    else:
        assert complaints == ""
    assert not (shared_tmp_path / "run").exists()


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.toml"], "nothing.toml: no such file"),
        (["-ts_view", "a.toml"], "try: CONFIG before -ts_view"),
        ([], "try: tiny.py --help"),
    ],
)
def test_missing_configuration_exits_with_2(capfd, words, message):
    assert drive(DOC, Config, study, argv=["tiny.py", *words]) == 2
    assert (message in capfd.readouterr().err) == (WORLD.rank == 0)


@pytest.mark.mpi
def test_help_tells_keys_options_and_exit_codes(capfd):
    assert drive(DOC, Config, study, argv=["tiny.py", "--help"]) == 0
    printed, complaints = capfd.readouterr()
    assert complaints == ""
    assert (printed == "") == (WORLD.rank > 0)
    parts = (
        DOC,
        "dt: a number > 0 (default 0.1); time step [years]",
        "-petsc_option",
        "exit codes:",
    )
    assert all((part in printed) == (WORLD.rank == 0) for part in parts)


@pytest.mark.mpi
@pytest.mark.parametrize(("text", "code"), [("", 0), ("right = false", 1), ("right = 1", 2)])
def test_check_tells_whether_the_derivatives_are_right(execute, shared_tmp_path, text, code):
    returned, printed, _ = execute(text, "--check")
    assert returned == code
    if code < 2:
        told = f"jacobian: {'right' if code == 0 else 'wrong'}\n"
        assert (told in printed) == (WORLD.rank == 0)
    assert not (shared_tmp_path / "run").exists()


@pytest.mark.mpi
def test_error_of_a_check_is_raised_on_all(execute):
    code, _, complaints = execute('error = "solve"\nalone = true', "--check")
    assert code == 1
    assert (f"SolveError: trouble on rank {WORLD.size - 1}" in complaints) == (WORLD.rank == 0)


@pytest.mark.mpi
def test_check_of_a_driver_without_one_says_so(execute):
    code, printed, _ = execute("", "--check", check=None)
    assert code == 0
    assert ("the driver has no check" in printed) == (WORLD.rank == 0)


# ---- whole jobs ----------------------------------------------------------------------------------


DRIVER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import daeosens.cli.study
from daeosens.cli.study import drive
from tests.cli.test_study import Config, study
daeosens.cli.study.PATIENCE = 0.5
sys.exit(drive(None, Config, study))
"""


@pytest.fixture
def start(tmp_path, run_mpi):
    """Start a job of the study on so many ranks."""
    driver, config = tmp_path / "tiny.py", tmp_path / "tiny.toml"
    driver.write_text(textwrap.dedent(DRIVER), encoding="utf-8")

    def run(ranks: int, text: str, *words: str):
        config.write_text(text, encoding="utf-8")
        arguments = [driver, config, "--output", tmp_path / "run", *words]
        return run_mpi(ranks, arguments)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "code", "status"),
    [("solve", 1, "failed"), ("input", 2, "failed"), ("value", 1, "crashed")],
)
def test_rank_that_fails_alone_ends_the_job(start, tmp_path, error, code, status):
    run = start(2, f'error = "{error}"\nalone = true\nwaits = true')
    assert run.returncode == code
    assert "[rank 1] Traceback" in run.stderr
    assert "trouble on rank 1" in run.stderr
    told = summary(tmp_path)
    assert told["status"] == status
    assert "trouble on rank 1" in told["error"]


def test_rank_that_waited_in_vain_says_so_and_aborts(tmp_path, monkeypatch):
    """The same in this process, with ranks that are not there."""

    def abort(error: Exception) -> None:
        raise error

    never = SimpleNamespace(Test=lambda: False)
    lonely = SimpleNamespace(rank=1, size=2, Ibarrier=lambda: never)
    results = replace(open_results(tmp_path / "run", MPI.COMM_SELF), comm=lonely)
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    monkeypatch.setattr(module, "abort", abort)
    with pytest.raises(InputError, match="trouble"):
        module._agree(lonely, InputError("trouble"), results)
    assert summary(tmp_path)["status"] == "failed"


@pytest.mark.slow
def test_option_that_nothing_reads_is_an_error(start, tmp_path):
    run = start(1, "", "-ts_max_steps", "3")
    assert run.returncode == 2
    assert "-ts_max_steps" in run.stderr
    assert summary(tmp_path)["status"] == "failed"


@pytest.mark.slow
def test_options_reach_petsc(start):
    run = start(2, "reads_options = true", "-ts_max_steps", "3", "-log_view")
    assert (run.returncode, run.stderr) == (0, "")
    assert "PETSc Performance Summary" in run.stdout


@pytest.mark.slow
def test_closed_pipe_ends_a_driver_in_silence(tmp_path):
    words = ["bouncing_ball.py", "../configs/bouncing_ball.small.toml", "--output", tmp_path]
    command = [sys.executable, *map(str, words)]
    with Popen(command, cwd=ROOT / "drivers", stdout=PIPE, stderr=PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"bouncing_ball: 1 rank")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


@pytest.mark.slow
def test_run_whose_terminal_is_closed_is_interrupted(tmp_path):
    words = [
        "bouncing_ball.py",
        "../configs/bouncing_ball.small.toml",
        "--output",
        tmp_path / "run",
    ]
    command = [sys.executable, *map(str, words)]
    ours, its = os.openpty()
    with Popen(command, cwd=ROOT / "drivers", stdout=its, stderr=PIPE) as process:
        os.close(its)
        assert os.read(ours, 100).startswith(b"bouncing_ball: 1 rank")
        os.close(ours)
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGHUP
    assert summary(tmp_path)["status"] == "interrupted"
