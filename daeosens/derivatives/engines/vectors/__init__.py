"""Sweeps on PETSc vectors, one step after the other: for every method, form, event and rank."""
