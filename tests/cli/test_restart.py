"""Studies that run out of time, and go on: the same iterates as of a study that is left alone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import ANY

import pytest
from mpi4py import MPI

from daeosens.cli import main as cli
from daeosens.cli.launch import mpi_environment, mpiexec
from daeosens.io import open_results

STUDY = """
import sys, time
from dataclasses import dataclass
import numpy as np
import daeosens as ds
from daeosens.cli.study import drive

@dataclass(frozen=True)
class Config:
    pause: float = 0.0

def study(config, results):
    decay = ds.ODE(lambda t, u, p: -p[0] * u ** 3 + p[1], size=1, parameters=["rate", "gain"])
    misfit = ds.LeastSquares([0.5, 1.0, 2.0], [[0.8], [0.7], [0.65]], sigma=0.01)
    start = {"rate": ds.Parameter(9.0), "gain": ds.Parameter(5.0)}
    steps = ds.Stepping((0.0, 2.0), "rk4", dt=0.02)
    reduced = ds.Reduced(decay, misfit, steps, ds.Parameters(start, initial_state=[1.0]))
    told = []
    def progress(iterate, x):
        told.append(iterate)
        results.say(iterate)
        time.sleep(config.pause)
    restart = results.restart("minimisation.h5")
    found = ds.minimize(reduced, method="brgn", restart=restart, progress=progress)
    results.record("x", found.x.array.tolist())
    results.record("steps_taken", len(told))
    results.record("values", found.history.value)
    return found.converged

if __name__ == "__main__":
    sys.exit(drive("Fit.", Config, study))
"""


Run: TypeAlias = "Callable[..., tuple[int, dict[str, Any]]]"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs the study; returns its exit code and summary."""
    (tmp_path / "fit.py").write_text(STUDY, encoding="utf-8")
    (tmp_path / "fit.toml").write_text("pause = 0.0\n", encoding="utf-8")
    (tmp_path / "slow.toml").write_text("pause = 0.5\n", encoding="utf-8")

    def run(config: str, *words: str, ranks: int | None = None) -> tuple[int, dict[str, Any]]:
        command = [*mpiexec(ranks), sys.executable, "fit.py", config, "--output", "out", *words]
        inherited = {k: v for k, v in mpi_environment(ranks).items() if not k.startswith("PMIX_")}
        environment = {
            name: value
            for name, value in inherited.items()
            if not name.startswith("OMPI_") or "ALLOW" in name or name.startswith("OMPI_MCA_rmaps")
        }
        # The alarm may come inside of the lock of coverage's tracer, whose trace of the handler
        # then waits for that lock for ever.
        environment.pop("COVERAGE_PROCESS_CONFIG", None)
        done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, timeout=240)
        text = (tmp_path / "out" / "summary.json").read_text(encoding="utf-8")
        return done.returncode, json.loads(text)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [None, 2])
def test_study_out_of_time_goes_on_with_the_same_iterates(run: Run, ranks: int | None):
    code, summary = run("slow.toml", "--time-limit", "1.7", ranks=ranks)
    assert (code, summary["status"]) == (75, "interrupted")
    code, continued = run("fit.toml", "--restart", ranks=ranks)
    assert (code, continued["status"]) == (0, "converged")
    code, alone = run("fit.toml", ranks=ranks)  # without --restart it begins again
    assert (code, alone["status"]) == (0, "converged")
    assert continued["facts"]["values"] == alone["facts"]["values"]
    assert continued["facts"]["x"] == alone["facts"]["x"]
    assert continued["facts"]["steps_taken"] < alone["facts"]["steps_taken"]


IN_A_CALLBACK = """
import os, signal, sys
from dataclasses import dataclass
from petsc4py import PETSc
import daeosens as ds
from daeosens.cli.study import drive

@dataclass(frozen=True)
class Config:
    pause: float = 0.0

def study(config, results):
    told = []
    def rhs(t, u, p, out):
        if len(told) > 1 and u.comm.rank == u.comm.size - 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        u.copy(out)
        out.scale(-p[0])
    def jacobian(t, u, p, out):
        out.zeroEntries()
        out.shift(-p[0])
    def jacobian_p(t, u, p, out):
        column = out.getDenseColumnVec(0)
        u.copy(column)
        column.scale(-1.0)
        out.restoreDenseColumnVec(0)
    u0 = PETSc.Vec().createMPI(4, comm=PETSc.COMM_WORLD)
    u0.set(1.0)
    entries = PETSc.Mat().createConstantDiagonal((u0.sizes, u0.sizes), 1.0)
    decay = ds.ODE(
        rhs, state=u0, parameters=["rate"], jacobian=jacobian, jacobian_p=jacobian_p,
        jacobian_matrix=entries.convert("aij"),
    )
    squares = ds.Terminal(
        lambda t, u, p: (u - 0.5).norm() ** 2,
        lambda t, u, p, out: out.waxpy(2.0, u, u * 0.0 - 1.0),
        "independent",
    )
    steps = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    reduced = ds.Reduced(decay, squares, steps, ds.Parameters({"rate": ds.Parameter(3.0)}, u0))
    restart = results.restart("minimisation.h5")
    ds.minimize(reduced, restart=restart, progress=lambda iterate, x: told.append(iterate))
    return False

if __name__ == "__main__":
    sys.exit(drive("Fit.", Config, study))
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_signal_in_a_callback_of_one_rank(run: Run, ranks: int | None, tmp_path: Path):
    """The others are in that callback too, or wait in it for ever."""
    (tmp_path / "fit.py").write_text(IN_A_CALLBACK, encoding="utf-8")
    code, summary = run("fit.toml", ranks=ranks)
    assert (code, summary["status"]) == (75, "interrupted")


@pytest.mark.slow
def test_limit_may_stand_in_the_configuration(run: Run, tmp_path: Path):
    with (tmp_path / "slow.toml").open("a", encoding="utf-8") as config:
        config.write("time_limit = 1.5\n")
    assert run("slow.toml") == (75, ANY)
    (tmp_path / "fit.toml").write_text("time_limit = -1\n", encoding="utf-8")
    code, _ = run("fit.toml", "--restart")
    assert code == 2


def test_nothing_new_is_not_to_be_tried_again(run: Run):
    """A job that cannot get anywhere in its time is not handed in for ever."""
    code, summary = run("slow.toml", "--time-limit", "0.001")
    assert (code, summary["status"]) == (128 + signal.SIGTERM, "interrupted")


def test_files_to_go_on_from_are_kept_by_restart_alone(tmp_path: Path):
    first = open_results(tmp_path / "out", MPI.COMM_SELF)
    assert not first.progressed
    saved = first.restart("minimisation.h5")
    saved.write_bytes(b"iterate")
    assert first.progressed
    os.utime(saved, (1.0, 1.0))
    kept = open_results(tmp_path / "out", MPI.COMM_SELF, restart=True)
    assert saved.read_bytes() == b"iterate"
    assert not kept.progressed
    open_results(tmp_path / "out", MPI.COMM_SELF)
    assert not saved.exists()


LATE = """
import os, signal, sys
from dataclasses import dataclass
from pathlib import Path
from daeosens.cli import study
from daeosens.io import results as folder

@dataclass(frozen=True)
class Config:
    pass

whole = folder.write_array
def late(path, name, values):
    if name == "run/log.txt":  # on the first rank alone, while the others wait
        os.kill(os.getpid(), signal.SIGTERM)
    whole(path, name, values)
folder.write_array = late

if __name__ == "__main__":
    sys.exit(study.drive("Late.", Config, lambda config, results: True))
"""


@pytest.mark.parametrize("ranks", [None, 2])
def test_signal_while_results_are_written(run: Run, ranks: int | None, tmp_path: Path):
    (tmp_path / "fit.py").write_text(LATE, encoding="utf-8")
    (tmp_path / "fit.toml").write_text("", encoding="utf-8")
    code, summary = run("fit.toml", ranks=ranks)
    assert (code, summary["status"]) == (0, "converged")


# ---- programs that share a study -----------------------------------------------------------------

SHARED = """
import os, signal, sys, time
from dataclasses import dataclass
from pathlib import Path
import daeosens as ds
from daeosens.cli.study import drive
from daeosens.inverse import multistart

@dataclass(frozen=True)
class Config:
    victim: int = -1
    shares: bool = True

def study(config, results):
    decay = ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    misfit = ds.LeastSquares([1.0, 2.0], [0.6, 0.36], sigma=0.1)
    unknown = ds.Parameters({"rate": ds.Parameter(0.5, lower=0.1, upper=2.0)}, initial_state=[1.0])
    reduced = ds.Reduced(decay, misfit, ds.Stepping((0.0, 2.0), "rk4", dt=0.1), unknown)
    if not config.shares:
        return True
    calls, task = Path("calls"), sys.argv[-1] if "--task" in sys.argv else "0"
    class Noted:
        def __getattr__(self, name):
            return getattr(reduced, name)
        def start(self):
            with calls.open("a") as file:  # a line for each start
                file.write(f"{task}\\n")
            lines = calls.read_text().split()
            while len({*lines}) < 2 and len(lines) < 2:  # none is done before both are there
                time.sleep(0.02)
                lines = calls.read_text().split()
            if config.victim == int(task) and lines.count(task) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return reduced.start()
    starts = [[0.2 + 0.1 * k] for k in range(6)]
    folder = results.restart_folder("starts")
    found = multistart(lambda comm: Noted(), starts, method="bnls", folder=folder)
    results.record("ends", [attempt.x.tolist() for attempt in found.attempts])
    return found.n_at_best() == 6

if __name__ == "__main__":
    sys.exit(drive("Fit from several starts.", Config, study))
"""


@pytest.mark.parametrize("victim", [-1, 0, 1])
def test_a_program_that_is_killed_loses_its_start_only(
    victim: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """The start is done again by another one; the first is begun again, and goes to the end."""
    monkeypatch.chdir(tmp_path)
    Path("fit.py").write_text(SHARED, encoding="utf-8")
    Path("fit.toml").write_text(f'driver = "fit"\nvictim = {victim}\n', encoding="utf-8")
    saved = Path("results/fit/restart/starts")
    assert cli.main(["run", "--tasks", "2", "fit.toml"]) == 0
    assert len([*saved.glob("start_*.json")]) == 6
    summary = json.loads(Path("results/fit/summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "converged"
    assert len(summary["facts"]["ends"]) == 6
    assert ("killed; begins again" in capfd.readouterr().err) == (victim == 0)
    helper = json.loads(Path("results/fit.tasks/1/summary.json").read_text(encoding="utf-8"))
    assert helper["status"] == ("converged" if victim != 1 else "running")


def test_a_study_without_tasks_tells_those_that_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("fit.py").write_text(SHARED, encoding="utf-8")
    Path("fit.toml").write_text("shares = false\n", encoding="utf-8")
    command = [sys.executable, "fit.py", "fit.toml", "--task", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nothing that several programs could share" in done.stderr
