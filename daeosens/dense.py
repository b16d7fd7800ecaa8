"""Steps of small dense systems whose equations are C functions, without PETSc's solvers."""

from __future__ import annotations

from typing import Any

import numpy as np

from daeosens._petsc import DenseSteps
from daeosens.methods import Method
from daeosens.problem import Problem
from daeosens.steps.esdirk import ESDIRK

LARGEST = 64
"""Up to how many unknowns matrices are dense, and factorised for each stage."""


def dense_steps(problem: Problem, method: Method, p: Any) -> DenseSteps | None:
    """Return the steps of an ESDIRK method in C, or None where PETSc's own take them.

    They are the steps that TSDIRK takes, to rounding.  For u' = f on one processor with f and f_u
    in C and up to ``LARGEST`` unknowns; PETSc's options do not reach them.
    """
    native = problem.native
    in_c = {"rhs", "jacobian"} <= native.keys()
    python = problem.breakpoints or problem.field_parameter or problem.form != "rhs"
    small = problem.size <= LARGEST and problem.comm.size == 1
    if not (method.esdirk and in_c and small) or python:
        return None
    scheme = ESDIRK[method.name]
    names = ("rhs", "jacobian", "jacobian_p", "pull")
    functions = {
        name: (native[name].address, native[name].user_data)
        for name in names
        if name in native and (name != "jacobian_p" or native[name].pattern is None)
    }
    return DenseSteps(
        problem.size,
        (scheme.a, scheme.c, scheme.b_embedded),
        scheme.order,
        functions,
        _places(problem),
        p,
    )


def _places(problem: Problem) -> Any:
    """Return where the entries of a sparse Jacobian belong in a dense one by rows."""
    pattern = problem.native["jacobian"].pattern
    if pattern is None:
        return None
    starts, columns = (np.asarray(each) for each in pattern)
    rows = np.repeat(np.arange(problem.size), np.diff(starts))
    return (rows * problem.size + columns).astype(np.int32)
