"""Types of PETSc's TS with little overhead for small problems.

``dense_steps.c`` takes explicit, diagonally implicit and theta steps of C functions,
``dense_derivatives.c`` differentiates them; ``runge_kutta.c`` has the digits of TSRK,
``esdirk_ts.c`` solves stages by SNES for everything else, ``chained`` is for grids.  In comes a TS
of such a type, or a system with its tableau.

Read first: ``dense_steps.h``, then ``dense_steps.c``.
"""
