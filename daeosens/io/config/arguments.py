"""The arguments of a driver: ``CONFIG [--output DIR] ... [-petsc_option value ...]``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daeosens.errors import InputError
from daeosens.io.config.read import config_help

EXIT_CODES = """exit codes:
  0  converged (with --check: all derivatives right)
  1  not converged, or the computation failed
  2  bad input: arguments, configuration, data, PETSc options
 75  out of time (--time-limit, SIGTERM): saved, and to be continued by --restart"""

TRY_AGAIN = 75
"""Exit code EX_TEMPFAIL of sysexits.h: to be tried again."""

_PETSC_KEY = re.compile(r"-(?!(?:inf|nan)(?:inity)?$)[A-Za-z][\w.-]*$", re.IGNORECASE)


@dataclass(frozen=True)
class Arguments:
    """What a driver was asked to do.

    Parameters
    ----------
    config : Path
        The configuration file.
    output : Path
        The results folder.
    check : bool
        Check the derivatives instead of running the study.
    restart : bool
        Go on from what an earlier run has saved.
    time_limit : float or None
        Seconds after which the run ends by itself.
    task : int
        Above 0: help the run with this results folder.
    petsc : Mapping
        PETSc options by name without dash; None for an option without a value.
    """

    config: Path
    output: Path
    check: bool
    restart: bool
    time_limit: float | None
    task: int
    petsc: Mapping[str, str | None]


def split_petsc(
    arguments: Sequence[str], own: Mapping[str, int]
) -> tuple[list[str], dict[str, str | None]]:
    """Part our arguments from PETSc's, which begin with one dash and a letter.

    Like PETSc, take the word after an option as its value unless it is an option too (a negative
    number is a value).

    Parameters
    ----------
    arguments : sequence of str
        The command line without the program.
    own : Mapping of str to int
        Our own arguments with one dash, and how many values each takes: ``{"-h": 0, "-n": 1}``.

    Examples
    --------
    >>> split_petsc(["a.toml", "-ts_dt", "-1e-3", "-ts_view", "--output", "b"], {"-h": 0})
    (['a.toml', '--output', 'b'], {'ts_dt': '-1e-3', 'ts_view': None})
    """
    ours: list[str] = []
    petsc: dict[str, str | None] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word in own:
            ours += [word, *words[: own[word]]]
            del words[: own[word]]
        elif _PETSC_KEY.match(word):
            # PETSc's rule: a word is a value unless it looks like an option
            valued = words and not words[0].startswith("--") and not _PETSC_KEY.match(words[0])
            petsc[word[1:]] = words.pop(0) if valued else None
        else:
            ours.append(word)
    return ours, petsc


def parse_arguments(
    description: str | None, config_class: type[Any], program: str, arguments: Sequence[str]
) -> Arguments | int:
    """Parse a driver's command line; after --help or a usage error return the exit code.

    Raises
    ------
    InputError
        No configuration named.
    """
    ours, petsc = split_petsc(arguments, {"-h": 0})
    keys = "\n".join(f"  {line}" for line in config_help(config_class).splitlines())
    parser = argparse.ArgumentParser(
        prog=program,
        usage="%(prog)s CONFIG [--output DIR] [--check] [--restart] [--time-limit SECONDS]\n"
        "       [--task K] [-petsc_option [value] ...]",
        description=description,
        epilog=f"keys of CONFIG:\n{keys}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="TOML file, its keys are below")
    parser.add_argument(
        "--output", metavar="DIR", help="results folder (default: results/<name of CONFIG>)"
    )
    parser.add_argument(
        "--check", action="store_true", help="check CONFIG and the derivatives, compute no more"
    )
    parser.add_argument(
        "--restart", action="store_true", help="go on from what an earlier run has saved, if any"
    )
    parser.add_argument(
        "--time-limit", metavar="SECONDS", type=_seconds, help="end then by itself, with code 75"
    )
    parser.add_argument(
        "--task",
        metavar="K",
        type=_number,
        default=0,
        help="K > 0: help a run with the same DIR, with which --task 0 goes to the end",
    )
    parser.add_argument_group(
        "PETSc options",
        "-ts_view, -tao_monitor, -snes_rtol 1e-10, ... after CONFIG; they win over CONFIG",
    )
    try:
        namespace = parser.parse_args(ours)
    except SystemExit as stop:
        return int(stop.code or 0)
    if namespace.config is None:
        # CONFIG after an option without a value was taken for that value
        swallowed = [name for name, value in petsc.items() if value and value.endswith(".toml")]
        remedy = f"CONFIG before -{swallowed[0]}" if swallowed else f"{program} --help"
        raise InputError("no configuration named", expected=f"{program} CONFIG", remedy=remedy)
    config = Path(namespace.config)
    output = Path(namespace.output or default_output(config))
    return Arguments(
        config,
        output,
        namespace.check,
        namespace.restart,
        namespace.time_limit,
        namespace.task,
        petsc,
    )


def default_output(config: Path) -> Path:
    """Return the results folder of a configuration where none is named."""
    return Path("results") / config.stem


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number, 0 or above")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds <= 1e8:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds, above 0")
    return seconds
