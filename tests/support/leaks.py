"""What a program leaves behind of PETSc's objects, as PETSc tells at its end."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
KINDS = ("Vec", "Mat", "Tao", "SNES", "KSP", "PC", "IS")

BEFORE = """
import petsc4py
petsc4py.init(["-objects_dump"])
import sys
sys.path[:0] = [{tests!r}, {root!r}]
"""


def left_behind(code: str) -> list[str]:
    """Return the lines about objects that a program has not freed."""
    before = BEFORE.format(tests=str(TESTS / "support"), root=str(TESTS.parent))
    command = [sys.executable, "-c", before + code]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (run.stdout + run.stderr).splitlines()
    return [line for line in lines if any(f" {kind} " in line for kind in KINDS)]
