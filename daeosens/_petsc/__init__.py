"""The one compiled extension: what libpetsc has and petsc4py lacks."""

# First petsc4py: the extension finds libpetsc because petsc4py has loaded the library of that name,
# which holds for every way of installing PETSc.
from petsc4py import PETSc as _PETSc  # noqa: F401  # pyright: ignore[reportUnusedImport]

from daeosens._petsc.bindings import multipliers, rk_tableau, stages

__all__ = ["multipliers", "rk_tableau", "stages"]
