"""The compiled extensions: what libpetsc has and petsc4py lacks, and calls of C functions."""

# First petsc4py: the extension finds libpetsc because petsc4py has loaded the library of that name,
# which holds for every way of installing PETSc.
from petsc4py import PETSc as _PETSc  # noqa: F401  # pyright: ignore[reportUnusedImport]

from daeosens._petsc.bindings import multipliers, rk_tableau, stages
from daeosens._petsc.natives import call_into, call_number, fill_dense, fill_sparse

__all__ = [
    "call_into",
    "call_number",
    "fill_dense",
    "fill_sparse",
    "multipliers",
    "rk_tableau",
    "stages",
]
