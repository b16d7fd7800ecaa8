"""C programs against the PETSc that petsc4py was built with, as shared libraries."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

from petsc4py import PETSc

from daeosens.petsc._kernels.build import compiler, petsc_folders
from daeosens.tracing.compilation import cache_folder, private_folder

# what -ffast-math stands for: by that name GCC also links code that makes all of the process, where
# the library is loaded, take numbers below 1e-308 for zero
FAST_MATH = (
    *("-fno-math-errno", "-ffinite-math-only", "-fno-signed-zeros", "-fno-trapping-math"),
    *("-fassociative-math", "-freciprocal-math", "-fcx-limited-range"),
)
FLAGS = ("-O3", "-march=native", *FAST_MATH, "-shared", "-fPIC")


def build(source: Path) -> ctypes.CDLL:
    """Compile a C file, once for each content, and load it.

    Raises
    ------
    ImportError
        What the compiler says: the contestant is missing then.
    """
    if not PETSc.Sys.isInitialized():
        raise ImportError("PETSc is not initialised")
    folders = petsc_folders()
    paths = [f"-I{folder / 'include'}" for folder in folders]
    # petsc4py has loaded the library of that name, wherever it is
    paths += [*(f"-L{folder / 'lib'}" for folder in folders), "-lpetsc", "-lm"]
    command = [compiler(), *FLAGS, str(source), *paths]
    sources = b"".join(path.read_bytes() for path in sorted(source.parent.glob("*.c")))
    name = hashlib.sha256(sources + " ".join(command).encode()).hexdigest()[:16]
    library = private_folder(cache_folder().with_name("benchmarks")) / f"{name}.so"
    if not library.exists():
        unfinished = library.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [*command, "-o", str(unfinished)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ImportError(f"{source.name} does not compile: {done.stderr.strip()[:300]}")
        unfinished.replace(library)
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def pointer(array: Any) -> Any:
    """Return the address of a contiguous array of doubles."""
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def check(code: int) -> None:
    """Raise what a function of a library returned, unless it is 0."""
    if code:
        raise RuntimeError(f"PETSc error {code}")
