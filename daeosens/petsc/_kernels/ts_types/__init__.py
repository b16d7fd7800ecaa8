"""Types of PETSc's TS with little overhead for small problems."""
