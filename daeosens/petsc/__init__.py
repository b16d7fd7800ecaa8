"""PETSc objects and what petsc4py lacks: vectors, matrices, options, ranks, C functions.

The lowest stage.  Everything above hands PETSc vectors, matrices and option dictionaries down to
this package and gets arrays, errors on every rank and calls of C functions back; nothing here
knows of problems or derivatives.  The compiled extension is in ``_kernels``.

Read first: ``vectors`` (views of vectors as arrays), ``ranks`` (how ranks agree), ``options`` (what
may be given to PETSc, and by whom).
"""

from daeosens.petsc.vectors import gather, read, scatter, write

__all__ = ["gather", "read", "scatter", "write"]
