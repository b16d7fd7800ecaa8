"""Contestants timed in turn: each is a process of its own, all are children of this one."""

from __future__ import annotations

import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
LEAST = 0.01
"""Seconds of one turn: shorter tasks are called several times."""


@dataclass(frozen=True)
class Contestant:
    """A module with ``prepare``; a peer is imported by the interpreter that has the peers."""

    name: str
    module: str
    peer: bool = False


@dataclass(frozen=True)
class Limits:
    """How long to measure: turns, seconds of all turns of one task, seconds of one answer.

    After so many minutes no other setting is begun.
    """

    turns: int = 15
    budget: float = 1.0
    patience: float = 300.0
    minutes: float = math.inf


@dataclass
class Row:
    """One contestant, one task, one setting; what could not be measured has a note instead."""

    setting: dict[str, Any]
    contestant: str
    task: str
    milliseconds: float | None = None
    ratio: float | None = None  # to the first contestant that has the task
    error: float | None = None  # relative, Euclidean norm over all entries
    megabytes: float | None = None  # most memory beyond the idle process
    first: float | None = None  # seconds of the first call with all compilation
    turns: int = 0
    note: str = ""


@dataclass
class Process:
    """A contestant's process, and what it last could not do."""

    contestant: Contestant
    python: str
    patience: float
    words: Path  # what it prints
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    note: str = ""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def __enter__(self) -> Process:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer; ``note`` says why there is none."""
        if self.process is None:
            return {}
        self.note = ""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.note = self.note or answer.pop("refused", "")
        return answer

    def _start(self) -> None:
        folder = os.environ.get("PYTHONPATH")
        paths = [str(HERE), str(HERE.parents[1]), *([folder] if folder else [])]
        with self.words.open("w") as words:
            self.process = subprocess.Popen(
                [self.python, str(HERE / "worker.py"), self.contestant.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
                env=os.environ | self.environment | {"PYTHONPATH": os.pathsep.join(paths)},
            )
        missing = self._answer().get("missing")
        if missing:
            self._stop()
            self.note = f"missing: {missing}"

    def _answer(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], self.patience)[0]:
            note = f"over {self.patience:g} s"
        else:
            line = self.process.stdout.readline()
            if line:
                return json.loads(line)
            last = self.words.read_text().strip().splitlines()[-1:]
            note = " ".join(["ended by itself:", *last])
        self._stop()
        self._start()  # ready for the next setting
        self.note = note
        return {}

    def _stop(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        self.process.communicate()
        self.process = None


def hold(
    contestants: tuple[Contestant, ...],
    settings: tuple[Mapping[str, Any], ...],
    limits: Limits,
    reference: Contestant | None = None,
    tasks: Sequence[str] = (),
    peers: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    report: Callable[[Row], None] = lambda _row: None,
) -> list[Row]:
    """Measure all contestants at all settings.

    Parameters
    ----------
    contestants : tuple of Contestant
        The first is what the others are compared with.
    settings : tuple of mapping
        What ``prepare`` gets.
    limits : Limits
        How long to measure.
    reference : Contestant, optional
        Whose results are exact; otherwise those of the first contestant that has the task.
    tasks : sequence of str
        Which tasks; all of them by default.
    peers : str
        The interpreter that has the peers.
    environment : mapping of str to str, optional
        Variables of all contestants beside those of this process.
    report : callable
        Called with each row as soon as it is known.
    """
    rows: list[Row] = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:

        def started(contestant: Contestant) -> Process:
            python = peers if contestant.peer else sys.executable
            words = Path(folder) / f"{contestant.module}.txt"
            arguments = contestant, python, limits.patience, words, environment or {}
            return stack.enter_context(Process(*arguments))

        exact = started(reference) if reference else None
        processes = [started(contestant) for contestant in contestants]
        for setting in settings:
            if time.monotonic() - begin > 60.0 * limits.minutes:
                break
            known: dict[str, Any] = {}
            if exact is not None:
                for task in exact.ask(ask="prepare", setting=setting).get("tasks", ()):
                    known[task] = _result(exact, task, Path(folder))[0]
                if not known:  # what has no error has no place in a comparison
                    rows.append(Row(dict(setting), exact.contestant.name, "", note=exact.note))
                    report(rows[-1])
                    continue
            measured = _measure(dict(setting), processes, limits, known, tasks, Path(folder))
            for row in measured:
                report(row)
            rows += measured
    return rows


def _measure(
    setting: dict[str, Any],
    processes: list[Process],
    limits: Limits,
    known: dict[str, Any],
    tasks: Sequence[str],
    folder: Path,
) -> list[Row]:
    rows: list[Row] = []
    running: list[tuple[Process, Row, list[float]]] = []
    for process in processes:
        answer = process.ask(ask="prepare", setting=setting)
        name = process.contestant.name
        if process.note:
            rows.append(Row(setting, name, "", note=process.note))
        for task in answer.get("tasks", ()):
            if tasks and task not in tasks:
                continue
            row = Row(setting, name, task)
            rows.append(row)
            first = process.ask(ask="first", task=task)
            computed, row.megabytes = _result(process, task, folder) if first else (None, None)
            if computed is None:
                row.note = process.note
            else:
                row.first = answer["seconds"] + first["seconds"]
                row.error = _distance(computed, known.setdefault(task, computed))
                running.append((process, row, []))
    for _ in range(limits.turns):
        for process, row, seconds in running:
            if len(seconds) < 3 or sum(seconds) < limits.budget:
                answer = process.ask(ask="clock", task=row.task, least=LEAST)
                seconds.extend(answer.values())
    compared: dict[str, float] = {}
    for _, row, seconds in running:
        if seconds:
            row.milliseconds = 1e3 * statistics.median(seconds)
            row.turns = len(seconds)
            row.ratio = row.milliseconds / compared.setdefault(row.task, row.milliseconds)
    return rows


def _result(process: Process, task: str, folder: Path) -> tuple[Any, float | None]:
    path = folder / "result.npy"
    answer = process.ask(ask="result", task=task, path=str(path))
    return (np.load(path) if answer else None), answer.get("megabytes")


def _distance(computed: Any, exact: Any) -> float | None:
    if computed.shape != exact.shape:
        raise ValueError(f"results of shapes {computed.shape} and {exact.shape}")
    return float(np.linalg.norm(computed - exact) / (np.linalg.norm(exact) or 1.0))
