"""Types of bicgstab.pyx, whose docstrings tell the rest."""

from petsc4py import PETSc

BICGSTAB: str

def take_passes(ksp: PETSc.KSP, matrix: PETSc.Mat) -> None: ...
