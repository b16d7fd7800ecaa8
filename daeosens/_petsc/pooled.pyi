"""Types of pooled.pyx, whose docstrings tell the rest."""

from petsc4py import PETSc

def pool_memory(vec: PETSc.Vec) -> None: ...
