"""What every test may use, and what keeps the ranks together under mpiexec.

Tests marked ``mpi`` (pytest-mpi's mark; ``min_size`` where they need ranks) run serially and under
``mpiexec -n 2`` and ``-n 3`` (scripts/test).  There only rank 0 prints.  After each test the ranks
meet; failures of other ranks are shown by rank 0, and a rank whose test failed while the others
hang in it prints its traceback and ends the job.

Of a test with many cases a run takes a sample, the same on every rank and in every run with the
same ``--sample-seed``.  On another number of ranks it takes others, and fewer; of tests that are
marked ``slow`` fewer still; of tests marked ``whole``, whose cases share no code, every case on
one rank.  ``--all`` takes every case, ``--quick`` one of each that is not slow.
"""

from __future__ import annotations

import ctypes
import io
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from petsc4py import PETSc

ROOT = Path(__file__).parents[1]
# seconds that a failed rank waits for the others before it ends the job
GRACE = float(os.environ.get("DAEOSENS_TEST_GRACE", "20"))
# the same for a rank whose test passed; a test that hangs is ended before (pyproject.toml)
PATIENCE = 600.0

if MPI.COMM_WORLD.size > 1:
    # ranks that tidy up after earlier runs in one folder would meet there, and end the job
    name = f"daeosens-pytest-{os.getuid()}-rank-{MPI.COMM_WORLD.rank}"
    own = Path(tempfile.gettempdir(), name)
    own.mkdir(exist_ok=True)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(own)


def mpi_environment() -> dict[str, str]:
    """Read the settings for mpiexec that scripts/test uses too."""
    lines = (ROOT / "scripts" / "mpi-environment").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


# ---- fixtures ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def c(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Compile native_model.c."""
    library = tmp_path_factory.mktemp("native") / "model.so"
    source = Path(__file__).with_name("support") / "native_model.c"
    # the same roundings as NumPy's: no fused multiply-add
    options = ["-O2", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["cc", *options, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture
def comm() -> MPI.Intracomm:
    """All ranks of this run: one serially, more under mpiexec."""
    return MPI.COMM_WORLD


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that are the same in every run and on every rank, different for each test."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def shared_tmp_path(tmp_path: Path, comm: MPI.Intracomm) -> Path:
    """The same temporary folder on every rank (rank 0's)."""
    return Path(comm.bcast(str(tmp_path)))


@pytest.fixture(autouse=True)
def petsc_options_left_as_they_were() -> Iterator[None]:
    """Fail a test after which PETSc's global options are not what they were."""
    options = PETSc.Options()
    before = options.getAll()
    yield
    after = options.getAll()
    for name in after.keys() - before.keys():
        options.delValue(name)
    for name, value in before.items():
        options.setValue(name, value)
    assert after == before


RunMpi = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run_mpi() -> RunMpi:
    """Run ``mpiexec -n ranks python *arguments`` from the checkout, output captured, not checked.

    ``run_mpi(ranks, arguments)``.  A subprocess.TimeoutExpired is a failure: a job must never hang.
    On a busy machine it may take long.  For serial tests only: MPI does not nest.
    """

    def run(ranks: int, arguments: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        outer = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "HYDRA_", "MPI_LOCAL")
        inherited = {key: os.environ[key] for key in os.environ if not key.startswith(outer)}
        environment = {**mpi_environment(), **inherited}
        command = ["mpiexec", "-n", str(ranks), sys.executable, *map(str, arguments)]
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240.0,  # before the test counts as one that hangs (pyproject.toml)
            check=False,
        )

    return run


# ---- which cases run -----------------------------------------------------------------------------


# of one test at most, in a normal run on one, two, and more ranks; exhaustive sweeps are for --all
CASES = (4, 1, 1)
CASES_SLOW = (2, 1, 1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that say how many cases of each test run."""
    group = parser.getgroup("daeosens", "which cases of tests with many cases run")
    group.addoption("--all", action="store_true", help="run every case of every test")
    group.addoption("--quick", action="store_true", help="run one case of each test, no slow ones")
    group.addoption("--sample-seed", type=int, default=0, help="another sample of the cases")


def share(counts: Sequence[int]) -> tuple[int, int]:
    """Return which of the cases in their random order run on so many ranks: the first, how many."""
    place = min(MPI.COMM_WORLD.size, len(counts)) - 1
    return sum(counts[:place]), counts[place]


@pytest.hookimpl(trylast=True)  # after "-m mpi"
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not in the sample; a case that is asked for by its name always runs."""
    if config.getoption("all") or any("[" in argument for argument in config.args):
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    seed, quick = config.getoption("sample_seed"), config.getoption("quick")

    def shuffled(item: pytest.Item) -> int:
        return zlib.crc32(f"{seed} {item.nodeid}".encode())

    sample: set[pytest.Item] = set()
    for group in cases.values():
        slow = group[0].get_closest_marker("slow") is not None
        first, count = (0, 0 if slow else 1) if quick else share(CASES_SLOW if slow else CASES)
        whole = group[0].get_closest_marker("whole") is not None
        if whole and not quick and MPI.COMM_WORLD.size == 1:
            count = len(group)
        group.sort(key=shuffled)
        sample.update(group[(first + k) % len(group)] for k in range(min(count, len(group))))
    config.hook.pytest_deselected(items=[item for item in items if item not in sample])
    items[:] = [item for item in items if item in sample]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Save which lines ran, if they are counted, before the process is told to end.

    pytest-xdist kills a worker that has not ended ten seconds after its last test: on a busy
    machine PETSc and MPI take as long to leave, and what coverage saves at exit would be lost.
    """
    counter = sys.modules.get("coverage")
    counting = counter and counter.Coverage.current()
    if counting:
        counting.stop()
        counting.save()


# ---- ranks ---------------------------------------------------------------------------------------


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Under mpiexec: silence all ranks but the first, and make the ranks meet after each test."""
    if MPI.COMM_WORLD.size == 1:
        return
    config.pluginmanager.register(Ranks(), "daeosens-ranks")
    if MPI.COMM_WORLD.rank > 0:
        config.pluginmanager.unregister(name="terminalreporter")
        silent = pytest.TerminalReporter(config, io.StringIO())
        config.pluginmanager.register(silent, "terminalreporter")


class Ranks:
    """The pytest plug-in that keeps the ranks in step."""

    def __init__(self) -> None:
        self.comm = MPI.COMM_WORLD.Dup()  # ours alone: never mixed up with the tests' messages
        self.own: list[str] = []  # failures of the running test on this rank
        self.elsewhere: list[str] = []  # failures of all tests on the other ranks
        self.n_failed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure of this rank."""
        if report.failed:
            self.own.append(f"{report.nodeid} ({report.when})\n{report.longreprtext}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run one test, then wait for the other ranks and exchange failures."""
        self.own = []
        result = yield
        self.meet(item.nodeid)
        for rank, failures in enumerate(self.comm.allgather(self.own)):
            self.n_failed += len(failures)
            if rank != self.comm.rank:
                self.elsewhere += [f"[rank {rank}] {text}" for text in failures]
        return result

    def meet(self, nodeid: str) -> None:
        """Wait for the other ranks, not for ever."""
        limit = time.monotonic() + (GRACE if self.own else PATIENCE)
        arrived = self.comm.Ibarrier()
        while not arrived.Test():
            if time.monotonic() > limit:
                why = "\n".join(self.own) or f"{nodeid}: passed"
                print(
                    f"\n[rank {self.comm.rank}] {why}\n"
                    f"[rank {self.comm.rank}] other ranks hang in {nodeid}: ending the job",
                    file=sys.__stderr__,
                    flush=True,
                )
                self.comm.Abort(1)
            time.sleep(0.0005)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show on rank 0 what failed elsewhere."""
        if self.elsewhere:
            terminalreporter.section("failures on other ranks", red=True)
            for text in self.elsewhere:
                terminalreporter.write_line(text)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Make every rank's exit code tell of every rank's failures."""
        if self.n_failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
