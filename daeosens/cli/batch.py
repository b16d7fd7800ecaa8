"""Job scripts for clusters: ``daeosens batch`` writes what a scheduler is given.

A job runs a driver on its ranks with ``--restart`` and a time limit a little below its own.  The
driver ends before the scheduler would end it, with everything saved and exit code 75; the script
then hands the job in again, which goes on where it ended.

An array of jobs runs the driver as so many programs that share its tasks by the results folder: the
first goes to the end of the study, the others end where nothing is left to take.  Nothing is put
together afterwards, and it does not matter when an element begins, or whether it dies.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from daeosens.errors import InputError
from daeosens.io.config.arguments import TRY_AGAIN

SchedulerName = Literal["slurm", "pbs", "lsf"]

GRACE = 0.05
"""Part of a job's time that is left for its last evaluation, for writing, and for its end,"""

SHORTEST_GRACE, LONGEST_GRACE = 60, 900
"""but at least and at most so many seconds."""


@dataclass(frozen=True)
class Scheduler:
    """What is different between schedulers.

    Attributes
    ----------
    directive : str
        What begins a line that the scheduler reads.
    lines : tuple of str
        Its options; one that names something the user has not given is left out.
    submit, again : str
        The command for the user, and that of a job which hands itself in again.
    array_lines : tuple of str
        Its options of an array, in the place of those of ``lines`` that begin in the same way.
    task : str
        In the script: the number of an element of an array, from 0.
    again_in_array : str
        The command of an element which hands itself in again.
    """

    directive: str
    lines: tuple[str, ...]
    submit: str
    again: str
    array_lines: tuple[str, ...]
    task: str
    again_in_array: str


SCHEDULERS: dict[SchedulerName, Scheduler] = {
    "slurm": Scheduler(
        "#SBATCH",
        (
            "--job-name={name}",
            "--nodes={nodes}",
            "--ntasks={ranks}",
            "--time={hours}:{minutes:02d}:{seconds:02d}",
            "--mem-per-cpu={memory}M",
            "--partition={queue}",
            "--account={account}",
            "--output={name}-%j.log",
            "--open-mode=append",
            "--requeue",
        ),
        "sbatch {script}",
        'scontrol requeue "$SLURM_JOB_ID"',
        ("--array=0-{last}", "--output={name}-%A-%a.log"),
        "$SLURM_ARRAY_TASK_ID",
        'scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$task"',
    ),
    "pbs": Scheduler(
        "#PBS",
        (
            "-N {name:.15}",
            "-l select={chunks}:ncpus={per_chunk}:mpiprocs={per_chunk}{chunk_memory}",
            "-l walltime={hours:02d}:{minutes:02d}:{seconds:02d}",
            "-q {queue}",
            "-A {account}",
            "-j oe",
        ),
        "qsub {script}",
        "qsub {script}",
        ("-J 0-{last}",),
        "${PBS_ARRAY_INDEX:-$DAEOSENS_TASK}",
        # by itself: arrays of one element are refused
        "sed '/^#PBS -J/d' {script} | qsub -v DAEOSENS_TASK=\"$task\"",
    ),
    "lsf": Scheduler(
        "#BSUB",
        (
            "-J {name}",
            "-n {ranks}",
            '-R "span[ptile={per_chunk}]"',
            '-R "rusage[mem={memory}]"',
            "-W {hours}:{minutes:02d}",
            "-q {queue}",
            "-P {account}",
            "-o {name}-%J.log",
        ),
        "bsub < {script}",
        "bsub < {script}",
        ('-J "{name}[1-{tasks}]"', "-o {name}-%J-%I.log"),
        "$((LSB_JOBINDEX - 1))",
        'sed "s/^#BSUB -J .*/#BSUB -J {name}[$LSB_JOBINDEX]/" {script} | bsub',
    ),
}
"""PBS is OpenPBS and PBS Professional; memory is in MB for a rank."""


@dataclass(frozen=True)
class Job:
    """What a user asks of a cluster.

    Attributes
    ----------
    ranks : int
        Number of MPI ranks.
    time : int
        Limit of the job [s].
    nodes : int, optional
        Divides the number of ranks.
    memory : int, optional
        Of a rank [MB].
    queue, account : str
        Where the cluster wants them named.
    modules : sequence of str
        Environment modules to load first.
    launcher : str
        The command that starts the ranks, ``mpiexec`` of the MPI in use, or ``srun``, which works
        with an MPI that was built for it.
    tasks : int
        Number of such jobs that share what the study can share, as an array.
    """

    ranks: int
    time: int
    nodes: int | None = None
    memory: int | None = None
    queue: str = ""
    account: str = ""
    modules: Sequence[str] = ()
    launcher: str = "mpiexec"
    tasks: int = 1

    def __post_init__(self) -> None:
        """Refuse what no scheduler would take."""
        if self.nodes is not None and (self.nodes < 1 or self.ranks % self.nodes):
            raise InputError(
                f"--nodes {self.nodes} for {self.ranks} ranks",
                expected="a number of nodes that divides the number of ranks",
            )
        if self.time <= 2 * SHORTEST_GRACE:
            raise InputError(
                f"--time: {self.time} s",
                expected=f"more than {2 * SHORTEST_GRACE} s: the last {SHORTEST_GRACE} are kept "
                "for saving",
            )
        if self.memory is not None and self.memory < 1:
            raise InputError(f"--memory {self.memory}", expected="a number of MB, at least 1")

    @property
    def time_limit(self) -> int:
        """Seconds after which the driver ends by itself."""
        # the last evaluation under way has to end before the scheduler does
        grace = min(max(round(GRACE * self.time), SHORTEST_GRACE), LONGEST_GRACE)
        return self.time - grace


def parse_time(text: str) -> int:
    """Return the seconds of "[days-]hours:minutes[:seconds]".

    Raises
    ------
    InputError
        Another form.

    Examples
    --------
    >>> parse_time("4:00"), parse_time("00:30:00"), parse_time("1-12:00:00")
    (14400, 1800, 129600)
    """
    parts = re.fullmatch(r"(?:(\d+)-)?(\d+):([0-5]\d)(?::([0-5]\d))?", text)
    if parts is None:
        raise InputError(f"--time {text}", expected="[days-]hours:minutes[:seconds], as 04:00:00")
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return ((24 * days + hours) * 60 + minutes) * 60 + seconds


def job_script(
    scheduler: SchedulerName,
    job: Job,
    driver: Path,
    config: Path,
    script: Path,
    words: Sequence[str] = (),
) -> str:
    """Return the script of a job, for bash.

    Parameters
    ----------
    scheduler : str
        "slurm", "pbs" or "lsf".
    job : Job
    driver, config, script : Path
        The driver, its configuration, and where the script will be: a job may hand itself in again.
    words : sequence of str
        Further arguments of the driver.

    Examples
    --------
    >>> text = job_script("slurm", Job(4, 3600), Path("a.py"), Path("a.toml"), Path("a.slurm"))
    >>> print(text.splitlines()[2])
    #SBATCH --ntasks=4
    """
    kind = SCHEDULERS[scheduler]
    hours, rest = divmod(job.time, 3600)
    minutes, seconds = divmod(rest, 60)
    chunks = job.nodes or 1
    values: dict[str, object] = {
        "name": config.stem,
        "ranks": job.ranks,
        "nodes": job.nodes,
        "hours": hours,
        "minutes": minutes,
        "seconds": seconds,
        "memory": job.memory,
        "queue": job.queue,
        "account": job.account,
        "chunks": chunks,
        "per_chunk": job.ranks // chunks,
        "chunk_memory": f":mem={job.memory * (job.ranks // chunks)}mb" if job.memory else "",
        "script": shlex.quote(str(script)),
        "tasks": job.tasks,
        "last": job.tasks - 1,
    }
    if scheduler == "lsf" and job.nodes is None:
        values["per_chunk"] = None  # wherever there is room
    # what was not asked for has no line: the cluster's default holds
    absent = [name for name, value in values.items() if value in (None, "")]
    directives = [
        f"{kind.directive} {line.format_map(values)}"
        for line in _lines(kind, array=job.tasks > 1)
        if not any(re.search(rf"{{{name}\b", line) for name in absent if name != "chunk_memory")
    ]
    arguments = [driver, config, "--restart", "--time-limit", job.time_limit, *words]
    command = " ".join(shlex.quote(str(word)) for word in ("python", *arguments))
    again = kind.again
    if job.tasks > 1:
        command += ' --task "$task"'
        again = kind.again_in_array
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *directives,
            "",
            f"cd {shlex.quote(os.fspath(Path.cwd()))} || exit 2",
            *(f"module load {shlex.quote(module)}" for module in job.modules),
            *_environment(),
            "export OMP_NUM_THREADS=1 # the ranks are the threads",
            # in containers; Open MPI asks for both
            *["export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"] * _as_root(),
            *[f'task="{kind.task}"'] * (job.tasks > 1),
            "",
            "# goes on with what an earlier part of this job has saved, if there is one",
            f"{job.launcher} -n {job.ranks} {command}",
            "code=$?",
            f'if [ "$code" -eq {TRY_AGAIN} ]; then # out of time, and everything is saved',
            f"    {again.format_map(values)}",
            "fi",
            'exit "$code"',
            "",
        ]
    )


def _lines(kind: Scheduler, *, array: bool) -> list[str]:
    """Return the options of a scheduler, for an array if that is wanted."""
    if not array:
        return [*kind.lines]
    instead = [line.split()[0].split("=")[0] for line in kind.array_lines]
    kept = [line for line in kind.lines if line.split()[0].split("=")[0] not in instead]
    return [*kept, *kind.array_lines]


def _as_root() -> bool:
    return os.geteuid() == 0


def _environment() -> list[str]:
    """Return the lines that make this Python the job's."""
    if sys.prefix != sys.base_prefix:
        return [f". {shlex.quote(os.path.join(sys.prefix, 'bin', 'activate'))}"]  # noqa: PTH118
    if conda := os.environ.get("CONDA_PREFIX"):
        return [f"export PATH={shlex.quote(conda + '/bin')}:$PATH"]
    return [f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"]
