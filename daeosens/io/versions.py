"""The versions that a result depends on."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import h5py
from mpi4py import MPI
from petsc4py import PETSc

_h5: Any = h5py  # untyped


def versions() -> dict[str, str]:
    """Return name and version of Python, this package, PETSc, MPI and the libraries in between."""
    packages = ("daeosens", "petsc4py", "mpi4py", "numpy", "scipy", "h5py")
    return {
        "python": platform.python_version(),
        **{name: _installed(name) for name in packages},
        "petsc": ".".join(map(str, PETSc.Sys.getVersion())),
        "mpi": MPI.Get_library_version().split("\0")[0].splitlines()[0].split(", package")[0],
        "hdf5": str(_h5.version.hdf5_version),
    }


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
