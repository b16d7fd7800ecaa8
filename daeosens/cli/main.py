"""The command ``daeosens``: run a study from its configuration, check it, look at the installation.

A configuration names its driver, ``driver = "lynx_hare"``: ``lynx_hare.py`` in the folder
``drivers`` beside the folder of the configuration, or, where there is none, beside the
configuration itself; or a path, ``driver = "../lynx_hare.py"``, which
starts at that folder.  ``run`` and ``check`` execute that file: a configuration from elsewhere is
to be trusted like a program.  ``run`` starts any Python program besides.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from daeosens.cli import batch, doctor
from daeosens.cli.launch import start_jobs
from daeosens.errors import InputError, nearest
from daeosens.io.config.arguments import EXIT_CODES, default_output, split_petsc
from daeosens.io.config.read import parse_toml
from daeosens.io.files import read_text, require_file
from daeosens.io.results import begin_again

RUN = """Run the study that CONFIG describes: the driver it names, on N ranks if -n is given.

  daeosens run configs/lynx_hare.toml
  daeosens run -n 2 configs/gray_scott_initial.toml --output results/try -tao_monitor
  daeosens run --tasks 4 configs/dose_estimation.toml
  daeosens run -n 4 program.py [WORD ...]

A Python program in its place is started with all words behind it, on ranks with what MPI wants to
be told as root or on few cores.

With --tasks N so many programs share the starts of a multistart or the members of an ensemble; one
that dies loses the start that it is at, which another one does again.

The same as: mpiexec -n N python drivers/DRIVER.py CONFIG [--output DIR] [-petsc_option value ...]
`python drivers/DRIVER.py --help` lists the keys of its configuration.
"""
CHECK = """Check CONFIG and, where the driver can, every derivative of its model; compute no more.

  daeosens check configs/lynx_hare.toml
"""
BATCH = """Write the script of a cluster job that runs the study of CONFIG; print how to submit it.

  daeosens batch configs/lynx_hare.toml --scheduler slurm -n 64 --time 4:00:00

A few minutes before its time is over the study saves what it has and ends; the script hands the job
in again, which goes on from there, until the study is done.  With --tasks N it is an array of N
jobs, which share the starts of a multistart or the members of an ensemble.
"""
DOCTOR = """Print the versions of what daeosens stands on, what is missing, and how to get it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments, default ``sys.argv[1:]``.

    Returns
    -------
    int
        Exit code: 0 success, 1 failure, 2 bad input.
    """
    line = list(sys.argv[1:] if argv is None else argv)
    # all that comes after a program is its own
    end = next((k for k, word in enumerate(line, 1) if word.endswith((".py", ".toml"))), 0)
    program = line[:1] == ["run"] and line[end - 1].endswith(".py")
    line, own = (line[:end], line[end:]) if program else (line, [])
    ours, petsc = split_petsc(line, {"-h": 0, "-n": 1})
    try:
        arguments = _parser().parse_args(ours)
    except SystemExit as stop:
        return int(stop.code or 0)
    if arguments.command == "doctor":
        text, healthy = doctor.report()
        sys.stdout.write(f"{text}\n")
        return 0 if healthy else 1
    words = ["--check"] if arguments.command == "check" else []
    if arguments.command != "check" and arguments.output:
        words = ["--output", arguments.output]
    if arguments.command == "run" and arguments.restart:
        words += ["--restart"]
    words += [word for name, value in petsc.items() for word in (f"-{name}", value) if word]
    try:
        if program:
            return _run_program(arguments, [*words, *own])
        if arguments.command == "batch":
            return _write_job(arguments, words)
        tasks = arguments.tasks if arguments.command == "run" else 1
        if tasks > 1 and not arguments.restart:
            begin_again(arguments.output or default_output(Path(arguments.config)))
            words += ["--restart"]  # whichever of them comes first
        return run(Path(arguments.config), words, arguments.n, tasks)
    except InputError as error:
        sys.stderr.write(f"InputError: {error}\n")
        return 2


def _run_program(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """Run a program that has no configuration; return its exit code."""
    program = require_file(Path(arguments.config), "program")
    named = {"--output": arguments.output, "--restart": arguments.restart}
    for option, value in {**named, "--tasks": arguments.tasks > 1}.items():
        if value:
            raise InputError(
                f"{option} with the program {program}",
                expected=f"a configuration, which {option} is for",
                remedy=f"{program} {option} ..., if the program knows that",
            )
    return start_jobs([str(program), *words], arguments.n)


def run(config: Path, words: Sequence[str], n_ranks: int | None, tasks: int = 1) -> int:
    """Run the driver of a configuration; return its exit code.

    Parameters
    ----------
    config : Path
        The configuration, which names its driver.
    words : sequence of str
        Further arguments of the driver.
    n_ranks : int, optional
        Run it by mpiexec on so many ranks.
    tasks : int
        So many programs, each of them on these ranks, share what the study can share.

    Raises
    ------
    InputError
        No such configuration or driver, or no mpiexec.
    """
    driver = find_driver(config)
    if "--check" in words:
        sys.stdout.write(f"{config}: runs the driver {driver.resolve()}\n")
        sys.stdout.flush()
    return start_jobs([str(driver), str(config), *words], n_ranks, tasks)


def _write_job(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """Write a job script, and say how to submit it."""
    config = Path(arguments.config)
    job = batch.Job(
        ranks=arguments.n or 1,
        time=batch.parse_time(arguments.time),
        nodes=arguments.nodes,
        memory=arguments.memory,
        queue=arguments.queue,
        account=arguments.account,
        modules=arguments.module,
        launcher=arguments.launcher,
        tasks=arguments.tasks,
    )
    script = Path(arguments.script or f"{config.stem}.{arguments.scheduler}").absolute()
    text = batch.job_script(
        arguments.scheduler, job, find_driver(config).resolve(), config.absolute(), script, words
    )
    try:
        script.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{script}: cannot be written ({error.strerror})",
            expected="a folder with permission to write",
            remedy="--script PATH",
        ) from error
    submit = batch.SCHEDULERS[arguments.scheduler].submit.format(script=shlex.quote(str(script)))
    sys.stdout.write(f"{script} is written; submit it by\n  {submit}\n")
    return 0


def find_driver(config: Path) -> Path:
    """Return the driver file that a configuration names.

    Raises
    ------
    InputError
        No such configuration, it names no driver (the key most like it is named), or no such driver
        (the nearest is named).
    """
    keys = parse_toml(config, read_text(config, "configuration"))
    named = keys.get("driver")
    if not isinstance(named, str):
        misspelt = nearest("driver", [key for key, value in keys.items() if isinstance(value, str)])
        problem = f"names no driver{f', but has a key {misspelt}' if misspelt else ''}"
        if "driver" in keys:
            problem = f"driver = {named!r} is no name"
        raise InputError(
            f"{config}: {problem}",
            expected='driver = "lynx_hare" (drivers/lynx_hare.py) before the first [section]',
            remedy=f"python DRIVER.py {config}",
        )
    if "/" in named or named.endswith(".py"):
        return require_file(config.parent / named, "driver")
    folder = config.resolve().parent
    usual = folder.parent / "drivers" / f"{named}.py"
    beside = folder / f"{named}.py"
    if beside.is_file() and not usual.is_file():
        return beside
    if not usual.parent.is_dir():
        raise InputError(
            f'{config}: driver = "{named}" is neither {usual} nor {beside}',
            expected="a driver file",
            remedy=f'driver = "PATH/{named}.py", where PATH is absolute or begins at {folder}',
        )
    return require_file(usual, "driver")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number, at least 1")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="daeosens",
        description="Sensitivities and inverse problems of ODEs, DAEs, PDEs, from configurations.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    version = f"%(prog)s {importlib.metadata.version('daeosens')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text, usage in (
        (
            "run",
            RUN,
            (
                "%(prog)s [-n N] [--tasks N] CONFIG [--output DIR] [--restart]\n"
                "       [-petsc_option ...]\n"
                "       %(prog)s [-n N] PROGRAM.py [WORD ...]"
            ),
        ),
        ("check", CHECK, "%(prog)s [-n N] CONFIG [-petsc_option [value] ...]"),
        (
            "batch",
            BATCH,
            (
                "%(prog)s CONFIG --scheduler {slurm,pbs,lsf} -n N --time H:MM:SS [--nodes N]\n"
                "       [--memory MB] [--queue Q] [--account A] [--module M ...] [--launcher L]\n"
                "       [--tasks N] [--script FILE] [--output DIR] [-petsc_option [value] ...]"
            ),
        ),
        ("doctor", DOCTOR, "%(prog)s"),
    ):
        command = commands.add_parser(
            name,
            help=text.partition(".")[0].partition(":")[0],
            description=text,
            usage=usage,
            epilog=EXIT_CODES if name != "doctor" else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name == "doctor":
            continue
        command.add_argument("config", metavar="CONFIG", help="TOML file that names its driver")
        command.add_argument("-n", metavar="N", type=_positive, help="run on N ranks by mpiexec")
        if name != "check":
            command.add_argument("--output", metavar="DIR", help="results folder")
            command.add_argument(
                "--tasks",
                type=_positive,
                default=1,
                metavar="N",
                help="programs, each on -n ranks, that share starts and members",
            )
        if name == "run":
            command.add_argument(
                "--restart", action="store_true", help="go on from what an earlier run has saved"
            )
        if name == "batch":
            _add_job(command)
        command.add_argument_group(
            "PETSc options", "-petsc_option [value] ..., after CONFIG; they win over CONFIG"
        )
    return parser


def _add_job(command: argparse.ArgumentParser) -> None:
    """Add the arguments that describe a job."""
    add = command.add_argument
    add("--scheduler", required=True, choices=sorted(batch.SCHEDULERS), help="of the cluster")
    add("--time", required=True, metavar="H:MM:SS", help="limit of the job, as 4:00:00")
    add("--nodes", type=_positive, metavar="N", help="number of nodes, each with as many ranks")
    add("--memory", type=_positive, metavar="MB", help="memory of a rank")
    add("--queue", default="", metavar="Q", help="queue, or partition")
    add("--account", default="", metavar="A", help="account, or project, that pays")
    add("--module", action="append", default=[], metavar="M", help="environment module to load")
    add("--launcher", default="mpiexec", metavar="L", help="what starts the ranks, or srun")
    add("--script", metavar="FILE", help="the script (default: CONFIG's name, .slurm, ...)")


if __name__ == "__main__":
    sys.exit(main())
