"""Print what pyproject.toml requires, one requirement a line, for scripts/setup.

Arguments: names of the extras wanted, and ``--without NAME`` for what is there already.
"""

import sys
import tomllib
from pathlib import Path

arguments = sys.argv[1:]
without = arguments[arguments.index("--without") + 1] if "--without" in arguments else None
tables = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
project = tables["project"]
requirements = [*tables["build-system"]["requires"], *project["dependencies"]]
for extra, listed in project["optional-dependencies"].items():
    if extra in arguments:
        requirements += listed
for requirement in sorted(set(requirements)):
    if without is None or not requirement.startswith(without):
        print(requirement)
