"""A real Slurm on one machine: a study is submitted, runs out of time, is requeued, and ends.

Needs ``slurmctld``, ``slurmd``, ``slurm-client`` and ``munge`` of Debian, and a superuser.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from daeosens.cli import main as cli
from tests.cli.test_restart import SHARED, STUDY

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue")
CONFIGURATION = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, NEEDED)), reason="no Slurm, or no superuser"
    ),
]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def environment() -> dict[str, str]:
    """Return this one without what MPI has put into it: the job finds what it wants by itself."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_"))}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run a cluster of this machine."""
    folder = tmp_path / "slurm"
    folder.mkdir(mode=0o755)
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(host=host, folder=folder, ports=free_ports(2)), encoding="utf-8"
    )
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o600)
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    parts = {"key-file": "key", "socket": "munge.socket", "log-file": "munge.log"}
    files = [f"--{option}={folder / name}" for option, name in parts.items()]
    files += [f"--seed-file={folder / 'seed'}", f"--pid-file={folder / 'munge.pid'}"]
    programs = [
        # in the foreground, so that they can be ended as what they are: children of this test
        ["munged", "--foreground", "--force", *files],
        ["slurmctld", "-D", "-i"],
        ["slurmd", "-D"],
    ]
    running: list[subprocess.Popen[bytes]] = []
    with (folder / "output").open("wb") as output:
        for program in programs:
            running.append(
                subprocess.Popen(program, stdout=output, stderr=output, env=environment())
            )
            time.sleep(0.5)
        yield folder
        for program in running[::-1]:
            program.terminate()
            try:
                program.wait(10.0)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()


def told(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    return done.stdout + done.stderr


@pytest.fixture(autouse=True)
def only_where_all_is_tried(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("all"):
        pytest.skip("half a minute: --all")


def test_job_runs_out_of_time_is_requeued_and_ends(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fit.py").write_text(STUDY, encoding="utf-8")
    Path("fit.toml").write_text('driver = "fit"\npause = 0.5\n', encoding="utf-8")
    words = ["--scheduler", "slurm", "-n", "2", "--time", "0:03", "--output", "out"]
    assert cli.main(["batch", "fit.toml", *words]) == 0
    script = Path("fit.slurm")
    text = script.read_text(encoding="utf-8")
    assert "--time-limit 120" in text
    script.write_text(text.replace("--time-limit 120", "--time-limit 4"), encoding="utf-8")
    limit = time.monotonic() + 120.0
    while not (submitted := re.search(r"batch job (\d+)", answer := told("sbatch", "fit.slurm"))):
        assert time.monotonic() < limit, answer
        time.sleep(0.2)
    number, statuses = submitted[1], []
    while (
        state := re.search(r"JobState=(\w+)", told("scontrol", "show", "job", number))
    ) is None or (state[1] not in ("COMPLETED", "FAILED")):
        assert time.monotonic() < limit, (statuses, (slurm / "slurmctld.log").read_text())
        time.sleep(0.2)
        if state is None:
            continue
        if state[1] != (statuses or [""])[-1]:
            statuses.append(state[1])
        # Slurm lets a requeued job wait two minutes
        if state[1] == "PENDING" and "RUNNING" in statuses:
            told("scontrol", "update", f"jobid={number}", "StartTime=now")
    log = Path(f"fit-{number}.log").read_text(encoding="utf-8")
    assert state[1] == "COMPLETED", (log, statuses, (slurm / "slurmd.log").read_text())
    assert statuses.count("RUNNING") > 1, statuses
    summary = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "converged"
    # the later part has not begun at the beginning
    assert summary["facts"]["steps_taken"] < len(summary["facts"]["values"])


def test_array_loses_an_element_and_ends(slurm, tmp_path, monkeypatch):
    """Two elements share six starts; one is killed in its first start, and has no second life."""
    monkeypatch.chdir(tmp_path)
    Path("fit.py").write_text(SHARED, encoding="utf-8")
    Path("fit.toml").write_text('driver = "fit"\nvictim = 1\n', encoding="utf-8")
    words = ["--scheduler", "slurm", "--time", "0:03", "--tasks", "2", "--output", "out"]
    assert cli.main(["batch", "fit.toml", *words]) == 0
    limit = time.monotonic() + 240.0
    while not (submitted := re.search(r"batch job (\d+)", answer := told("sbatch", "fit.slurm"))):
        assert time.monotonic() < limit, answer
        time.sleep(0.2)
    states: list[str] = []
    while len(states) != 2 or not {*states} <= {"COMPLETED", "FAILED"}:
        assert time.monotonic() < limit, (states, (slurm / "slurmctld.log").read_text())
        time.sleep(0.2)
        states = re.findall(r"JobState=(\w+)", told("scontrol", "show", "job", submitted[1]))
    logs = {path.name: path.read_text(encoding="utf-8") for path in Path().glob("*.log")}
    assert sorted(states) == ["COMPLETED", "FAILED"], logs
    assert sorted(logs) == [f"fit-{submitted[1]}-{k}.log" for k in range(2)]
    summary = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "converged"
    assert len(summary["facts"]["ends"]) == 6
