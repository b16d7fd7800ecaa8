"""What daeosens stands on: versions, MPI, PETSc's options, what is missing and how to get it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import h5py
import petsc4py
from mpi4py import MPI
from petsc4py import PETSc
from threadpoolctl import threadpool_info

from daeosens.errors import InputError
from daeosens.problem.event_kinds.registry import BUILT_IN, find_kind, known_kinds

REQUIRED = (3, 26)
"""The series of PETSc that events, evaluation times and the sweeps were tested with."""

PARALLEL_SOLVERS = ("mumps", "superlu_dist", "strumpack", "mkl_cpardiso")
COMPILER = "needed to install, and to compile traced models"
OPTIONAL = {
    "casadi": ("trace, trace_stencil", 'pip install --no-build-isolation "daeosens[trace]"'),
    "highspy": ("LinearDAEO", 'pip install --no-build-isolation "daeosens[flux]"'),
    "matplotlib": ("figures", 'pip install --no-build-isolation "daeosens[plot]"'),
    "pytest": ("tests", "scripts/setup"),
}


def report() -> tuple[str, bool]:
    """Return a table of what is installed, and whether all that is needed is there.

    Examples
    --------
    >>> text, healthy = report()
    >>> "PETSc" in text
    True
    """
    version = PETSc.Sys.getVersion()
    right = tuple(version[:2]) == REQUIRED
    needs: list[str] = []
    if not right:
        series = ".".join(map(str, REQUIRED))
        needs.append(
            f"PETSc {'.'.join(map(str, version))} is not of the {series} series: scripts/setup "
            f"builds it, or conda install -c conda-forge petsc4py={series}"
        )
    launcher = shutil.which("mpiexec")
    if launcher is None:
        needs.append("no mpiexec on PATH: apt install openmpi-bin, or your cluster's MPI module")
    options, solvers = _petsc_build()
    rows = [
        ("Python", f"{platform.python_version()} ({sys.executable})"),
        ("daeosens", importlib.metadata.version("daeosens")),
        ("PETSc", ".".join(map(str, version)) + ("" if right else "  WRONG SERIES")),
        ("petsc4py", petsc4py.__version__),
        ("built with", options),
        ("scalars", f"{PETSc.ScalarType.__name__}, indices {PETSc.IntType.__name__}"),
        ("parallel LU", ", ".join(solvers) or "none: GMRES is used on several ranks"),
        ("MPI", MPI.Get_library_version().splitlines()[0].rstrip("\0").split(", package")[0]),
        ("mpi4py", importlib.metadata.version("mpi4py")),
        ("mpiexec", launcher or "MISSING"),
        ("compiler", shutil.which("mpicc") or shutil.which("cc") or f"none: {COMPILER}"),
        ("numpy", importlib.metadata.version("numpy")),
        ("scipy", importlib.metadata.version("scipy")),
        ("BLAS", blas()),
        ("h5py", f"{h5py.__version__}, HDF5 {h5py.version.hdf5_version}"),
    ]
    for name, (purpose, remedy) in OPTIONAL.items():
        installed = importlib.util.find_spec(name) is not None
        there = importlib.metadata.version(name) if installed else f"missing ({purpose}): {remedy}"
        rows.append((name, there))
    kinds, broken = _kinds_of_events()
    rows += kinds
    needs += broken
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{name:{width}}{value}" for name, value in rows]
    lines += ["", *(needs or ["all that is needed is there"])]
    return "\n".join(lines), not needs


def blas() -> str:
    """Return the BLAS that SciPy brings, and what to set where it takes the wrong kernels.

    OpenBLAS up to 0.3.31 does not know AMD's Zen 5 (its issue 6029), and computes with half of the
    width of the registers.

    Examples
    --------
    >>> bool(blas())
    True
    """
    libraries: list[dict[str, Any]] = threadpool_info()  # pyright: ignore[reportUnknownVariableType]
    blas_libraries = [library for library in libraries if library["user_api"] == "blas"]
    if not blas_libraries:
        return "unknown"
    # wheels of NumPy and SciPy bring one each, in folders of their own
    own = (
        library for library in blas_libraries if "scipy" in Path(library["filepath"]).parent.name
    )
    library = next(own, blas_libraries[0])
    kernels = str(library.get("architecture", "unknown"))
    name = f"{library['internal_api']} {library['version']}, {kernels} kernels"
    narrow = kernels in ("Haswell", "Zen") and "avx512f" in _processor_flags()
    advice = "; OPENBLAS_CORETYPE=SkylakeX makes products of matrices twice as fast here"
    return name + advice * narrow


def _processor_flags() -> list[str]:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    return next((line.split() for line in lines if line.startswith("flags")), [])


def _kinds_of_events() -> tuple[list[tuple[str, str]], list[str]]:
    """Return rows of the kinds of events with their packages, and what is wrong with some."""
    rows = [("events", f"{', '.join(sorted(BUILT_IN))} (daeosens)")]
    broken: list[str] = []
    for name in known_kinds():
        try:
            kind = find_kind(name)
        except InputError as error:
            rows.append(("", f"{name}  BROKEN"))
            broken.append(str(error))
            continue
        if name not in BUILT_IN:
            rows.append(("", f"{name}, of {kind.source}"))
    return rows, broken


def _petsc_build() -> tuple[str, list[str]]:
    """Return PETSc's configure options and its parallel direct solvers, from its own headers."""
    config = petsc4py.get_config()
    base = Path(config["PETSC_DIR"])
    include = base / config.get("PETSC_ARCH", "") / "include"
    options = "unknown"
    info = include / "petscconfiginfo.h"
    if info.is_file():
        words = info.read_text().split('"')
        options = words[1] if len(words) > 1 else options
    header = include / "petscconf.h"
    text = header.read_text().lower() if header.is_file() else ""
    return options, [name for name in PARALLEL_SOLVERS if f"petsc_have_{name} " in text]
