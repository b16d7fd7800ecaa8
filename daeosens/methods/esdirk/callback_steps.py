"""ESDIRK steps of small problems in C that call NumPy callbacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from daeosens.methods.esdirk.tableau import Esdirk
from daeosens.petsc._kernels import DenseSteps, PythonFunctions
from daeosens.problem.lowering import ArrayFunction
from daeosens.problem.problem import Problem

LARGEST = 64
"""Up to how many unknowns matrices are dense, and factorised for each stage."""

LARGEST_OF_CALLBACKS = 200
"""The same of NumPy callbacks, of which an evaluation takes as long as a factorisation.

Runs with sparse matrices take twice the evaluations, and from about here on less time.
"""


FEW = 8
"""Up to so many unknowns stages begin at the rate of the stage before.

Extrapolated ones save a seventh of the evaluations of larger models.
"""


def python_functions(problem: Problem, p: Any, *, derivative: bool) -> PythonFunctions | None:
    """Return the NumPy callbacks of u' = f as C functions that call them, or None.

    ``derivative`` says that f_u is needed too.
    """
    of_rhs, of_jacobian = problem.rhs_function, problem.rhs_u.on_arrays
    several = problem.comm.size > 1 or problem.field_parameter or problem.form != "rhs"
    if several or not isinstance(of_rhs, ArrayFunction):
        return None
    if derivative and (of_jacobian is None or problem.coloring):
        return None
    return PythonFunctions(problem.size, (of_rhs.call, of_rhs.check), of_jacobian, p)


def callback_steps(problem: Problem, scheme: Esdirk, p: Any) -> DenseSteps | None:
    """Return steps in C whose functions call NumPy, or None where PETSc's solvers take them.

    They are the steps of the type ``ESDIRK`` of TS, to rounding.  For u' = f on one processor with
    up to ``LARGEST_OF_CALLBACKS`` unknowns; PETSc's options do not reach them.
    """
    if problem.size > LARGEST_OF_CALLBACKS or problem.native:
        return None
    python = python_functions(problem, p, derivative=True)
    if python is None:
        return None
    assert scheme.b_embedded is not None  # all of them estimate errors
    b = np.ascontiguousarray(scheme.b)
    coefficients = scheme.a, b, scheme.c, scheme.b_embedded
    breakpoints = np.array(problem.breakpoints, dtype=float)
    functions = python.addresses
    return DenseSteps(
        problem.size,
        coefficients,
        scheme.order,
        functions,
        None,
        breakpoints,
        p,
        python=python,
        guess=scheme.guess if problem.size > FEW else None,
    )
