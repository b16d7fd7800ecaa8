"""One contestant in a process of its own: asked by lines of JSON, answers by lines of JSON.

    python scripts/bench/worker.py lotka_volterra.ours

A contestant is a module with ``prepare(setting) -> {task: call}``; each call returns an array.  In
the place of a call there may be a pair: what is done before, and the call with what that gave; only
the second one is timed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Task = Callable[[], Any] | tuple[Callable[[], Any], Callable[[Any], Any]]
Tasks = dict[str, Task]
STATUS = Path("/proc/self/status")


def memory(name: str) -> float:
    """Return VmRSS (now) or VmHWM (most since ``forget_peak``) [MB]."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def forget_peak() -> None:
    """Let VmHWM begin at what is in use now."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def ready(task: Task) -> Callable[[], Any]:
    """Do what comes before, and return the call."""
    if isinstance(task, tuple):
        before, call = task
        return partial(call, before())
    return task


def timed(task: Task) -> float:
    """Return the seconds of one call."""
    call = ready(task)
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


class Worker:
    """What can be asked: each public method is a request, its result the answer."""

    def __init__(self, module: str) -> None:
        self._contestant = importlib.import_module(module)
        self._tasks: Tasks = {}
        self._idle = memory("VmRSS")

    def prepare(self, setting: dict[str, Any]) -> dict[str, Any]:
        """Make the tasks of a setting, and tell their names and the seconds it took."""
        self._tasks = {}
        begin = time.perf_counter()
        self._tasks = self._contestant.prepare(setting)
        return {"tasks": list(self._tasks), "seconds": time.perf_counter() - begin}

    def first(self, task: str) -> dict[str, Any]:
        """Return the seconds of the first call, which compiles what is to be compiled."""
        return {"seconds": timed(self._task(task))}

    def clock(self, task: str, least: float) -> dict[str, Any]:
        """Return the seconds of one call, the mean of as many as take ``least`` seconds.

        Neither the other contestants' turns nor the collection of garbage shall count, which empty
        the caches: the first call is not timed where there are several.
        """
        chosen, total, count = self._task(task), 0.0, 0
        gc.collect()
        first = timed(chosen)
        if first >= least:
            return {"seconds": first}
        while total < least or not count:
            total += timed(chosen)
            count += 1
        return {"seconds": total / count}

    def result(self, task: str, path: str) -> dict[str, Any]:
        """Save what a task returns, and tell the most memory it took beyond the idle process."""
        forget_peak()
        result = np.asarray(ready(self._task(task))())
        peak = memory("VmHWM") - self._idle
        np.save(path, result)
        return {"megabytes": peak}

    def _task(self, name: str) -> Task:
        if name not in self._tasks:
            raise NotImplementedError("not tried: the process of the setting has ended")
        return self._tasks[name]


def serve(module: str) -> None:
    """Answer until the input ends."""
    # libraries print to the standard output: the answers get a pipe of their own
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker: Worker | None = None
    try:
        worker = Worker(module)
        answer: dict[str, Any] = {}
    except ImportError as error:
        answer = {"missing": str(error)}
    print(json.dumps(answer), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("ask"))(**request)
        except NotImplementedError as error:
            answer = {"refused": str(error)}
        except Exception as error:  # noqa: BLE001 (any failure of a contestant is a line of the table)
            words = str(error).strip().splitlines() or [""]
            answer = {"refused": f"failed: {type(error).__name__}: {words[-1][:160]}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
