"""Compile the extension against the PETSc that petsc4py was built with (run by setuptools only).

pyproject.toml names the extension and this command; what it cannot know are the include and library
folders, which depend on where PETSc is.  petsc4py must therefore be installed before:
``pip install --no-build-isolation .``
"""

import os
import shutil
from pathlib import Path

import numpy as np
import petsc4py
from setuptools import Extension
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
HEADERS = [HERE, HERE / "sweeps", HERE / "ts_types", HERE / "grids"]


def petsc_folders() -> list[Path]:
    """List the folders that hold PETSc's ``include`` and ``lib``."""
    configuration = petsc4py.get_config()
    prefix = Path(configuration["PETSC_DIR"])
    arch = configuration.get("PETSC_ARCH", "").split(os.pathsep)[0]
    return [prefix / arch, prefix] if arch else [prefix]


def compiler() -> str:
    """Name the C compiler: CC, else the MPI wrapper of MPICC or the PATH, else plain cc."""
    return os.environ.get("CC") or os.environ.get("MPICC") or shutil.which("mpicc") or "cc"


class BuildExtension(build_ext):
    """setuptools' ``build_ext`` with the folders of PETSc, petsc4py and NumPy added."""

    def finalize_options(self) -> None:
        """Keep the generated C file out of the source tree, and choose the compiler."""
        super().finalize_options()
        self.cython_c_in_temp = True
        os.environ["CC"] = compiler()

    def build_extension(self, ext: Extension) -> None:
        """Compile one extension."""
        folders = petsc_folders()
        ext.include_dirs += [str(folder / "include") for folder in folders]
        ext.include_dirs += [petsc4py.get_include(), np.get_include(), *map(str, HEADERS)]
        ext.library_dirs += [str(folder / "lib") for folder in folders]
        ext.define_macros.append(("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION"))
        super().build_extension(ext)
