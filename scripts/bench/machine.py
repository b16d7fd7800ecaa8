"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("daeosens", "petsc4py", "numpy", "scipy", "casadi", "jax", "jaxlib", "diffrax", "numba")

LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
ONE_FOR_XLA = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def threads(*, all_cores: bool) -> dict[str, str]:
    """Return the environment in which programs compute on one core, or on all that there are."""
    count = len(os.sched_getaffinity(0)) if all_cores else 1
    xla = {} if all_cores else {"XLA_FLAGS": ONE_FOR_XLA}
    return dict.fromkeys(LIBRARIES, str(count)) | {"JAX_PLATFORMS": "cpu"} | xla


def processor() -> str:
    """Return the CPU, with the family and model that tell those of one name apart."""
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return platform.machine()
    lines = (line.partition(":") for line in information.read_text().splitlines())
    known = {name.strip(): value.strip() for name, _, value in lines}
    numbers = [f"{name} {known[name]}" for name in ("cpu family", "model") if name in known]
    return " ".join([known.get("model name", platform.machine()), f"({', '.join(numbers)})"])


def describe() -> dict[str, Any]:
    """Return processor, cores, memory [GiB], system and date."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory": round(pages * size / 2**30),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def installed() -> dict[str, str]:
    """Return the versions of the packages that this interpreter has."""
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def versions(*interpreters: str) -> dict[str, str]:
    """Return the versions of packages over all interpreters, the first one's where both have it."""
    by_package: dict[str, str] = {}
    for interpreter in interpreters:
        lines = subprocess.run(
            [interpreter, str(Path(__file__))], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        by_package = dict(line.split(" ") for line in lines) | by_package
    return by_package


if __name__ == "__main__":
    for package, version in installed().items():
        print(package, version)
