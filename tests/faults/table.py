"""The table of faults: place x fault x ranks, what is promised, and how each is tried for real.

``python tests/faults/table.py`` tries all of it and writes docs/reliability.md; test_faults.py
tries a few in each run of the tests, and all with ``--all``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAM, DESCENT = HERE / "faulty.py", HERE / "descent.py"
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from closed import Curved, Residual, mixed, rosenbrock, rosenbrock_hessian  # noqa: E402
from descent import descend  # noqa: E402

from daeosens.cli import mpi_environment  # noqa: E402
from daeosens.errors import InputError, SolveError  # noqa: E402
from daeosens.io import close_results, open_results, read_status  # noqa: E402
from daeosens.optimize import minimize  # noqa: E402

START = 30.0  # seconds that interpreters may take to begin on a busy machine
ENDS = 10.0  # seconds within which a job ends, as is promised


@dataclass(frozen=True)
class Family:
    """Faults of one kind.

    Parameters
    ----------
    title, promise : str
        A row of docs/reliability.md.
    attempt : callable
        (folder, *case): tries one, and raises if the promise is not kept.
    cases : list of tuple
        The arguments.
    few : int
        How many of them each run of the tests tries.
    """

    title: str
    promise: str
    attempt: Callable[..., None]
    cases: list[tuple[Any, ...]]
    few: int = 1


# ---- jobs ----------------------------------------------------------------------------------------


@dataclass
class Job:
    """Processes that are known by a word in their environment, wherever they are."""

    process: subprocess.Popen[str]
    word: str
    output: Path

    def members(self) -> list[int]:
        numbers: list[int] = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                alive = " Z " not in (folder / "stat").read_text().rpartition(")")[2][:3]
                if alive and self.word.encode() in (folder / "environ").read_bytes():
                    numbers.append(int(folder.name))
        return numbers

    def printed(self) -> str:
        return self.output.read_text(errors="replace")

    def wait(self, seconds: float) -> int:
        """Return the exit code; an error if the job, or any process of it, is still there then."""
        limit = time.monotonic() + seconds
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"hangs: {self.printed()[-2000:]}") from None
        while self.members():
            if time.monotonic() > limit:
                raise AssertionError(f"orphans {self.members()}")
            time.sleep(0.02)
        return code

    def wait_for(self, word: str) -> None:
        """Wait until the job has printed a word, or is over."""
        limit = time.monotonic() + START
        while word not in self.printed() and self.process.poll() is None:
            assert time.monotonic() < limit, f"does not begin: {self.printed()[-2000:]}"
            time.sleep(0.005)


@contextlib.contextmanager
def started(
    folder: Path, ranks: int, *words: str, by: str = "", program: Path = PROGRAM
) -> Iterator[Job]:
    """Start a job, and leave nothing of it behind."""
    word = f"DAEOSENS_FAULT={uuid.uuid4()}"
    name, _, value = word.partition("=")
    outer = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "HYDRA_", "MPI_LOCAL")
    own = {key: os.environ[key] for key in os.environ if not key.startswith(outer)}
    settings = (ROOT / "scripts" / "mpi-environment").read_text().splitlines()
    mpi = dict(line.split("=", 1) for line in settings if line and not line.startswith("#"))
    environment = {**mpi_environment(ranks), **mpi, **own, name: value, "OMP_NUM_THREADS": "1"}
    if by:
        command = [sys.executable, "-m", "daeosens", "run", *["-n", str(ranks)][: 2 * (ranks > 1)]]
    else:
        command = [*["mpiexec", "-n", str(ranks)][: 3 * (ranks > 1)], sys.executable, str(program)]
    output = folder / "printed"
    with output.open("w") as file:
        process = subprocess.Popen(
            [*command, *words], cwd=ROOT, env=environment, stdout=file, stderr=file, text=True
        )
    job = Job(process, word, output)
    try:
        yield job
    finally:
        for pid in job.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def configuration(folder: Path, **keys: object) -> Path:
    """Write a configuration of the faulty driver."""
    path = folder / "faulty.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in keys.items()]
    path.write_text("\n".join([f'driver = "{PROGRAM}"', *lines]) + "\n")
    return path


# ---- one rank fails ------------------------------------------------------------------------------

PLACES = ("rhs", "jacobian", "jacobian_p", "cost", "cost gradient", "progress", "outside")
TOLD = {
    "exit": r"sys\.exit|SystemExit",
    "interrupt": "KeyboardInterrupt",
    "memory": "MemoryError: lost on one rank",
    "value": "ValueError: lost on one rank",
    "solve": "SolveError: .*lost on one rank",
}


def one_rank_fails(folder: Path, style: str, place: str, fault: str, ranks: int) -> None:
    """The others wait for a sum."""
    with started(folder, ranks, "plain", style, place, fault) as job:
        code = job.wait(START + ENDS)
        printed = job.printed()
    if code == 0:  # a copy of the problem has survived it: a failed solve, or an early end
        assert style == "numpy", printed
        assert fault in ("solve", "interrupt"), printed
        return
    assert re.search(TOLD[fault], printed), printed
    assert f"[rank {ranks - 1}]" in printed, printed


def rank_is_not_heard(folder: Path, place: str, fault: str, ranks: int) -> None:
    """The watchdog of two seconds tells where the others wait."""
    config = configuration(folder, place=place, fault=fault, calls=2, watchdog=2.0)
    with started(folder, ranks, str(config), "--output", str(folder / "run")) as job:
        job.wait_for("begin")
        code = job.wait(START)
        printed = job.printed()
    assert code != 0
    assert "Timeout (0:00:02)" in printed, printed
    assert re.search(rf'File "rank \d of {ranks}"', printed), printed
    if fault == "sleep":
        assert "in <lambda>" in printed or "faulty.py" in printed, printed


# ---- kills ---------------------------------------------------------------------------------------


def killed(folder: Path, target: str, number: int, ranks: int, seed: int) -> None:
    """Whenever it comes, nothing of the job is left, and the folder can be read and used again."""
    chance = random.Random(seed)
    run = folder / "run"
    config = configuration(folder, pause=0.03)
    by = target if target == "daeosens run" else ""
    with started(folder, ranks, str(config), "--output", str(run), by=by) as job:
        if seed % 4:  # else at any moment of the start
            job.wait_for("begin")
            time.sleep(chance.uniform(0.0, 1.2))
        else:
            time.sleep(chance.uniform(0.2, 2.0))
        pid = job.process.pid
        if target == "rank":
            with contextlib.suppress(OSError, ValueError, KeyError):
                pid = int(json.loads((run / "summary.json").read_text())["process"]["pid"])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        code = job.wait(START if seed % 4 == 0 else 2.0 * ENDS)
        printed = job.printed()
    assert "Segmentation" not in printed, printed
    summary = run / "summary.json"
    if summary.exists():
        json.loads(summary.read_text())
        limit = time.monotonic() + ENDS
        while (status := read_status(run)) == "running" and time.monotonic() < limit:
            time.sleep(0.02)  # it has lost its memory, but not yet its number
        finished = ("converged", "interrupted", "not converged")
        assert status in finished, (status, printed)
        assert status != "converged" or code == 0 or "converged" in printed, printed
    for path in run.glob("results*.h5"):
        with h5py.File(path) as file:
            file.visititems(lambda _name, _item: None)
    results = open_results(run, MPI.COMM_SELF)
    close_results(results, "converged")
    assert read_status(run) == "converged"
    assert not list(run.glob(".*.new"))


def minimisation_is_killed(folder: Path, ranks: int, seed: int) -> None:
    """It goes on, on one rank, from an iterate no earlier than the last it told of, as alone."""
    chance = random.Random(seed)
    path = folder / "run.h5"
    if ranks == 1:  # a copy of this process needs no time to begin
        printed = _killed_copy(path, chance.uniform(0.02, 0.7))
    else:
        with started(folder, ranks, str(path), program=DESCENT) as job:
            job.wait_for("accepted 0")
            time.sleep(chance.uniform(0.0, 1.0))
            victims = job.members() if seed % 2 else [job.process.pid]
            for pid in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            job.wait(2.0 * ENDS)
            printed = job.printed()
    told = re.findall(r"^accepted (\d+)$", printed, re.M)
    whole = descend(PETSc.COMM_SELF, None)
    with contextlib.redirect_stdout(io.StringIO()):
        resumed = descend(PETSc.COMM_SELF, str(path))
    if told:
        (note,) = resumed.notes
        went_on = re.fullmatch(r"continued from iterate (\d+) in run\.h5", note)
        assert went_on, note
        assert int(went_on[1]) >= int(told[-1]), (told[-1], note)
    if ranks == 1:
        assert np.array_equal(resumed.history.value, whole.history.value)
    else:
        np.testing.assert_allclose(
            resumed.history.value[:20], whole.history.value[:20], rtol=1e-6, atol=1e-12
        )
        assert resumed.converged


def _killed_copy(path: Path, seconds: float) -> str:
    """Kill a copy of this process that minimises, after so long; return what it has printed."""
    output = path.with_name("printed")
    copy = os.fork()
    if copy == 0:
        with output.open("w") as file, contextlib.redirect_stdout(file):
            descend(PETSc.COMM_SELF, str(path), pause=0.002)
        os._exit(0)
    time.sleep(seconds)
    os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)
    return output.read_text()


# ---- full disks ----------------------------------------------------------------------------------


def files_are_limited(folder: Path, ranks: int, size: int) -> None:
    """No file may be longer than so many bytes."""
    _no_room(folder, folder / "run", ranks, configuration(folder, file_size=size, numbers=20000))


def disk_is_full(folder: Path, ranks: int, room: int) -> None:
    """A disk of 2 MB has so much room left."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    try:
        (disk / "others").write_bytes(bytes(2 * 2**20 - room))
        _no_room(folder, disk / "run", ranks, configuration(folder, numbers=20000))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _no_room(folder: Path, run: Path, ranks: int, config: Path) -> None:
    with started(folder, ranks, str(config), "--output", str(run)) as job:
        code = job.wait(START + ENDS)
        printed = job.printed()
    assert "Traceback" not in printed, printed
    assert "Segmentation" not in printed, printed
    assert code in (0, 1, 2), (code, printed)
    status = read_status(run) if (run / "summary.json").exists() else "none"
    if code == 0:
        assert status == "converged", printed
        return
    assert len(re.findall(r"^(DaeosensError|InputError): .*cannot be written", printed, re.M)) == 1
    if status == "interrupted" and code == 1:  # no room even for the summary
        assert "it would say:" in printed, printed
        assert '"status": "failed"' in printed, printed
    else:
        assert status in (("failed",) if code == 1 else ("none", "interrupted")), (status, printed)
    if code == 1:
        assert '"value":' in printed, printed  # the result so far
        for path in run.glob("results*.h5"):
            with h5py.File(path) as file:
                file.visititems(lambda _name, _item: None)


# ---- damaged files -------------------------------------------------------------------------------


def restart_file_is_damaged(folder: Path, damage: str, seed: int) -> None:
    """An error that names the file, or the same run."""
    chance = random.Random(f"{damage} {seed}")
    path = folder / "run.h5"
    extra: dict[str, Any] = {"method": "bnls", "gradient_tolerance": 1e-10}

    def functional() -> Curved:
        return Curved(rosenbrock, [-1.0, 0.8], hessian=rosenbrock_hessian)

    whole = minimize(functional(), **extra)
    minimize(functional(), max_iterations=4, restart=path, **extra)
    (beside,) = folder.glob("run.*.rank0000")
    path = path if seed % 2 else beside
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content))
    if damage == "cut":
        content = content[:place]
    elif damage == "bit":
        content[place] ^= 1 << chance.randrange(8)
    elif damage == "zeros":
        end = min(len(content), place + chance.randrange(1, 512))
        content[place:end] = bytes(end - place)
    else:
        content += bytes(chance.randrange(1, 512))
    path.write_bytes(content)
    try:
        resumed = minimize(functional(), restart=folder / "run.h5", **extra)
    except InputError as error:
        assert "run.h5" in str(error)  # noqa: PT017
    else:
        assert np.array_equal(resumed.x.getArray(), whole.x.getArray())


# ---- failed solves -------------------------------------------------------------------------------


def _wells(x: np.ndarray) -> tuple[float, np.ndarray]:
    return float(np.sum((x**2 - 1.0) ** 2 + 0.3 * x)), 4.0 * x * (x**2 - 1.0) + 0.3


def _bowl(x: np.ndarray) -> tuple[float, np.ndarray]:
    return float(0.5 * x @ x), x.copy()


def _far(x: np.ndarray) -> tuple[float, np.ndarray]:
    return float(np.sum(np.cosh(x) - 1.0)), np.sinh(x)


MINIMIZERS = ["lmvm", "blmvm", "bqnls", "bncg", "nls", "ntr", "bnls", "bntr", "bntl", "brgn"]

PROBLEMS: dict[str, tuple[Callable[..., Any], list[float]]] = {
    "rosenbrock": (rosenbrock, [-1.0, 0.8]),
    "far rosenbrock": (rosenbrock, [-1.9, 2.0, 1.4]),
    "flat rosenbrock": (partial(rosenbrock, weight=1.0), [-1.0, 1.0, 0.5, -0.5]),
    "steep rosenbrock": (partial(rosenbrock, weight=1e4), [0.5, 0.8]),
    "mixed": (mixed, [0.5] * 5),
    "many": (mixed, [0.2] * 12),
    "wells": (_wells, [0.1, -0.2]),
    "bowl": (_bowl, [3.0, -2.0, 1.0]),
    "cosh": (_far, [4.0, -3.0]),
    "one": (_wells, [2.5]),
}


def half_of_all_solves_fail(_folder: Path, name: str, method: str, how: str) -> None:
    """By chance, the same at the same point: the optimiser ends with a result."""
    formula, start = PROBLEMS[name]

    def broken(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = formula(x)
        if not np.array_equal(x, start) and zlib.crc32(x.tobytes() + method.encode()) % 2:
            if how == "error":
                raise SolveError("no solution")
            return (np.nan, gradient) if how == "value" else (value, gradient * np.nan)
        return value, gradient

    if method == "brgn":

        def pieces(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            value, gradient = broken(x)
            return np.concatenate([np.sqrt([2.0 * abs(value) + 1.0]), gradient]), np.vstack(
                [gradient / np.sqrt(2.0 * abs(value) + 1.0), np.eye(len(x))]
            )

        functional: Any = Residual(pieces, start)
    else:
        functional = Curved(broken, start, hessian=lambda x: 4.0 * np.eye(len(x)))
    optimum = minimize(functional, method=method, max_iterations=60)
    assert np.isfinite(optimum.value)
    assert np.isfinite(optimum.x.getArray()).all()


# ---- the table -----------------------------------------------------------------------------------

_ROOT = os.geteuid() == 0
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)

TABLE = (
    Family(
        "an exception, `sys.exit` or Ctrl-C on one rank, in any callback or outside",
        "the job ends, at most some 5 seconds later, with the message and the rank; copies "
        "of NumPy-style problems survive failed solves",
        one_rank_fails,
        [
            (style, place, fault, ranks)
            for ranks in (2, 3)
            for style in ("petsc", "numpy")
            for place in (PLACES if ranks == 2 else ("rhs", "outside"))
            for fault in TOLD
        ],
    ),
    Family(
        "a rank that sleeps or stops, in a callback or outside, with a driver",
        "the watchdog ends the job after its time, and shows where each rank is",
        rank_is_not_heard,
        [
            (place, fault, 2)
            for place in ("rhs", "cost", "progress", "outside")
            for fault in ("sleep", "stop")
        ],
    ),
    Family(
        "a driver killed (KILL, TERM, INT) at a random moment: it, one of its ranks, `mpiexec`, "
        "`daeosens run`",
        "no process is left after 10 seconds; the status is true; files are whole; the folder "
        "can be used again",
        killed,
        [
            (target, number, ranks, seed)
            for seed in range(6)
            for number in _SIGNALS
            for target in ("job", "rank", "daeosens run")
            for ranks in (1, 2)
        ],
    ),
    Family(
        "a minimisation with a restart file killed at a random moment",
        "it goes on from the last iterate that it told of, or a later one, with the same iterates "
        "as one that was left alone",
        minimisation_is_killed,
        [(ranks, seed) for seed in range(25) for ranks in (1, 2)],
    ),
    Family(
        "files that cannot grow further while results are written",
        "one message, status failed, exit code 1, the facts so far on the screen, no half file",
        files_are_limited,
        [(ranks, 8192 + 18000 * level) for ranks in (1, 2) for level in range(10)],
    ),
    Family(
        "a disk of 2 MB that is full while results are written",
        "the same; where it is full at the start, exit code 2 before any work",
        disk_is_full,
        [(ranks, 4096 * (1 + 12 * level)) for ranks in (1, 2) for level in range(20)] * _ROOT,
        few=0,
    ),
    Family(
        "a restart file that is cut, has a bit flipped, zeros or more bytes",
        "an error that names the file, or the same run",
        restart_file_is_damaged,
        [(damage, seed) for damage in ("cut", "bit", "zeros", "more") for seed in range(75)],
        few=8,
    ),
    Family(
        "half of all evaluations fail: an error, a value or a gradient that is not finite",
        "a result: the best point that was found",
        half_of_all_solves_fail,
        [
            (name, method, how)
            for name in PROBLEMS
            for method in MINIMIZERS
            for how in ("error", "value", "gradient")
        ],
        few=30,
    ),
)

PAGE = ROOT / "docs" / "reliability.md"
HEAD = """\
# Reliability

What goes wrong around a computation, and what then holds.  Written by
`python tests/faults/table.py`, which does each of these things for real; every run of the tests
repeats a few of them, and `scripts/test --all` all.

| fault | what is promised | cases | tried last | kept |
|---|---|---|---|---|
"""


def page(kept: dict[str, list[int]]) -> str:
    """Write docs/reliability.md; ``kept``: cases of each family tried, and those that held."""
    rows = [
        f"| {family.title} | {family.promise} | {len(family.cases)} "
        f"| {kept[family.title][0]} | {kept[family.title][1]} |\n"
        for family in TABLE
        if family.title in kept
    ]
    version = ".".join(map(str, PETSc.Sys.getVersion()))
    mpi = MPI.Get_library_version().split(",")[0].strip("\0 ")
    told = f"Linux, Python {platform.python_version()}, PETSc {version}, {mpi}"
    return f"{HEAD}{''.join(rows)}\nWith {told}.\n\n{REST}"


REST = """\
How:

- Files of results appear in one go: written beside, made safe on the disk, renamed.  HDF5 writes
  into memory.  `summary.json` is the first of them; it names host and process, so that
  `daeosens.io.read_status` knows a run that was killed from one that goes on.
- An exception that nothing catches ends the job of all ranks; `sys.exit` of one rank does so if the
  others do not leave as well, and exceptions that ranks may raise together (`SolveError`, Ctrl-C)
  do so if one is alone with them ([MPI](mpi.md)).
- Calls of this package are compared between ranks.  One that waits longer than
  `DAEOSENS_PATIENCE` seconds names those that are missing; in drivers a watchdog of an hour
  (`watchdog = seconds` in the configuration) covers what happens inside of PETSc and of callbacks.
- `daeosens run` passes signals on, and the system ends what it has started when it dies itself
  (Linux).
- Restart files hold checksums of all their bytes, and nothing of a damaged one is looked at.
- A point where J or its gradient does not exist counts as infinitely bad to every optimiser.

What is not covered: two runs that begin in one folder at the same moment; results on file systems
whose renaming is not atomic; a rank that is blocked in the kernel; a loss of power on disks that
lie about what they have written.
"""


def main(seconds: float = 5400.0) -> int:
    """Try everything, tell what does not hold, write the page."""
    limit = time.monotonic() + seconds
    wanted = sys.argv[1:]
    kept: dict[str, list[int]] = {}
    record = Path(tempfile.gettempdir()) / f"daeosens-faults-{os.getuid()}.json"
    if wanted and record.exists():
        kept = json.loads(record.read_text())
    bad = 0
    for family in TABLE:
        if not family.cases or (wanted and family.attempt.__name__ not in wanted):
            continue
        kept[family.title] = [0, 0]
        for case in family.cases:
            if time.monotonic() > limit:
                print("out of time")
                return 1
            folder = Path(tempfile.mkdtemp(prefix="daeosens-fault-"))
            kept[family.title][0] += 1
            try:
                family.attempt(folder, *case)
                kept[family.title][1] += 1
            except Exception as error:  # noqa: BLE001 (told, and counted)
                bad += 1
                print(f"NOT KEPT {family.attempt.__name__}{case}: {error}"[:3000], flush=True)
                if not isinstance(error, AssertionError):
                    traceback.print_exc()
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        print(family.attempt.__name__, kept[family.title], "of", len(family.cases), flush=True)
        record.write_text(json.dumps(kept))
    if all(family.title in kept for family in TABLE if family.cases):
        PAGE.write_text(page(kept))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
