"""Explicit Runge-Kutta methods: tableaux from PETSc, stages, the step's derivatives."""
