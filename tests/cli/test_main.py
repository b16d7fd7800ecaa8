"""The command ``daeosens``: finds drivers, starts them, passes on arguments and exit codes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daeosens import __version__
from daeosens.cli import doctor
from daeosens.cli import main as cli
from daeosens.errors import InputError

ECHO = """
import os, sys
lines = f"arguments {' '.join(sys.argv[1:])}\\nthreads {os.environ.get('OMP_NUM_THREADS')}\\n"
os.write(1, lines.encode())  # in one piece: what ranks print in pieces is mixed
sys.exit(3)
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Make configs/echo.toml, and drivers/echo.py, which prints its arguments and exits with 3."""
    for name, text in (("drivers/echo.py", ECHO), ("configs/echo.toml", 'driver = "echo"\n')):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
    return tmp_path / "configs" / "echo.toml"


def test_run_passes_arguments_and_exit_code(
    config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(config.parent)
    words = ["run", "echo.toml", "--output", "out", "-ts_dt", "-1e-3", "-ts_view"]
    assert cli.main(words) == 3
    printed = capfd.readouterr().out
    assert "arguments echo.toml --output out -ts_dt -1e-3 -ts_view\n" in printed


def test_check_asks_the_driver_to_check(config: Path, capfd: pytest.CaptureFixture[str]):
    assert cli.main(["check", str(config)]) == 3
    assert f"arguments {config} --check\n" in capfd.readouterr().out


def test_run_on_ranks_starts_as_many(
    config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cli.main(["run", "-n", "3", str(config)]) == 3
    printed = capfd.readouterr().out
    assert printed.count(f"arguments {config}\n") >= 1
    assert "threads 1" in printed


def test_a_program_runs_on_ranks_with_its_own_words(
    config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    for name in ("OMP_NUM_THREADS", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.delenv(name, raising=False)
    program = config.parent.parent / "drivers" / "echo.py"
    assert (
        cli.main(["run", "-n", "3", str(program), "-n", "7", "a.toml", "--output=x", "-ksp"]) == 3
    )
    printed = capfd.readouterr().out
    assert printed.count("arguments -n 7 a.toml --output=x -ksp\n") >= 1
    assert "threads 1" in printed
    assert cli.main(["run", str(program)]) == 3  # without MPI


@pytest.mark.parametrize("option", [["--output", "out"], ["--restart"], ["--tasks", "2"]])
def test_options_of_studies_are_refused_for_programs(
    config: Path, capsys: pytest.CaptureFixture[str], option: list[str]
):
    program = config.parent.parent / "drivers" / "echo.py"
    assert cli.main(["run", *option, str(program)]) == 2
    assert f"{option[0]} with the program" in capsys.readouterr().err
    assert cli.main(["run", str(program.with_name("ecko.py"))]) == 2
    assert 'did you mean "echo.py"' in capsys.readouterr().err


def test_run_on_ranks_starts_from_a_process_with_mpi(config: Path):
    # as a notebook does that has imported daeosens
    program = (
        "import subprocess, sys; from mpi4py import MPI;"
        f"command = [sys.executable, '-m', 'daeosens', 'run', '-n', '2', {str(config)!r}];"
        "sys.exit(subprocess.run(command).returncode)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert done.stdout.count(f"arguments {config}\n") >= 1


def test_driver_may_be_a_path(config: Path, capfd: pytest.CaptureFixture[str]):
    config.write_text('driver = "../drivers/echo.py"\n', encoding="utf-8")
    assert cli.main(["run", str(config)]) == 3
    assert f"arguments {config}\n" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('driver = "ecko"', r"ecko\.py: no such file(.|\n)*\"echo.py\""),
        ('driver = "other/echo.py"', r"other/echo\.py: no such file(.|\n)*there is no folder"),
        ("driver = 3", r"echo\.toml: driver = 3 is no name"),
        ('drivr = "echo"', r"echo\.toml: names no driver, but has a key \"drivr\"\n"),
        ("", r"echo\.toml: names no driver"),
    ],
)
def test_missing_driver_is_explained(config: Path, text: str, message: str):
    config.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        cli.find_driver(config)


def test_a_configuration_far_from_the_drivers_is_told_how_to_name_its_own(tmp_path: Path):
    config = tmp_path / "here" / "echo.toml"
    config.parent.mkdir()
    config.write_text('driver = "echo"', encoding="utf-8")
    message = r"neither .*drivers/echo\.py nor .*here/echo\.py(.|\n)*PATH/echo\.py"
    with pytest.raises(InputError, match=message):
        cli.find_driver(config)


def test_bad_input_exits_with_2(config: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["run", str(config.parent / "ecko.toml")]) == 2
    assert 'did you mean "echo.toml"' in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["walk"], ["run"], ["run", "-n", "0", "a"], ["run", "-n"]])
def test_usage_errors_exit_with_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert cli.main(words) == 2
    assert "usage: daeosens" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["-h"], ["run", "--help"], ["check", "-h"], ["doctor", "-h"]])
def test_help_exits_with_0(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert cli.main(words) == 0
    assert "usage: daeosens" in capsys.readouterr().out


def test_version_is_told(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"daeosens {__version__}\n"


def test_driver_ended_by_a_signal_has_the_exit_code_of_a_shell(config: Path):
    config.parent.parent.joinpath("drivers/echo.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", encoding="utf-8"
    )
    assert cli.main(["run", str(config)]) == 128 + signal.SIGKILL


def test_interrupted_run_exits_with_130(config: Path):
    """Ctrl-C to this process alone is passed on, and the driver ends."""
    config.parent.parent.joinpath("drivers/echo.py").write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(130))\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "time.sleep(60)\n",
        encoding="utf-8",
    )
    assert cli.main(["run", str(config)]) == 130


def test_missing_mpiexec_is_explained(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PATH", "")
    assert cli.main(["run", "-n", "2", str(config)]) == 2
    assert "neither mpiexec nor mpirun" in capsys.readouterr().err


@pytest.mark.parametrize(("healthy", "code"), [(True, 0), (False, 1)])
def test_doctor_prints_its_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], healthy: bool, code: int
):
    monkeypatch.setattr(doctor, "report", lambda: ("PETSc 3.26.1", healthy))
    assert cli.main(["doctor"]) == code
    assert capsys.readouterr().out == "PETSc 3.26.1\n"


@pytest.mark.slow
def test_module_runs_as_a_program():
    run = subprocess.run(
        [sys.executable, "-m", "daeosens.cli.main", "run", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0
    assert "daeosens run -n 2" in run.stdout


@pytest.mark.slow
def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "daeosens", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert __version__ in done.stdout


def test_driver_beside_its_configuration_is_found(config: Path):
    tank = config.parent / "tank.py"
    tank.touch()
    config.write_text('driver = "tank"', encoding="utf-8")
    assert cli.find_driver(config) == tank
    config.write_text('driver = "echo"', encoding="utf-8")
    (config.parent / "echo.py").touch()
    assert cli.find_driver(config).parent.name == "drivers"  # as before
