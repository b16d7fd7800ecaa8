"""Steps of small dense systems whose equations are C functions, without PETSc's solvers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from daeosens.methods.esdirk.callback_steps import LARGEST, callback_steps
from daeosens.methods.esdirk.tableau import Esdirk
from daeosens.methods.method import Method
from daeosens.petsc._kernels import DenseSteps
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem, ProblemCache

_STEPS: ProblemCache[dict[str, DenseSteps | None]] = ProblemCache(dict)
"""By the name of the method and of what is carried; None where nothing can be."""

LARGEST_EXPLICIT = 1000
"""Up to how many unknowns directions are carried by explicit steps, which need products only."""


def dense_steps(problem: Problem, method: Method, p: Any) -> DenseSteps | None:
    """Return diagonally implicit steps in C, or None where PETSc's own take them.

    They are the steps of the type ``ESDIRK`` of TS, to rounding.  For u' = f on one processor with
    f and f_u in C and up to ``LARGEST`` unknowns; PETSc's options do not reach them.
    """
    if not method.stagewise:
        return None
    if not ({"rhs", "jacobian"} <= problem.native.keys() and _small(problem)):
        return None
    names = ("rhs", "jacobian", "jacobian_p", "pull")
    return _steps(problem, names, _coefficients(method), method.order, p)


def steps_by_callbacks(problem: Problem, method: Method, p: Any) -> DenseSteps | None:
    """Return diagonally implicit steps in C that call NumPy, or None."""
    scheme = method.tableau
    if not isinstance(scheme, Esdirk) or scheme.a_explicit is not None:
        return None
    return callback_steps(problem, scheme, p)


def directed_steps(problem: Problem, method: Method) -> DenseSteps | None:
    """Return the steps of an ESDIRK or explicit method for products along directions, or None.

    As ``dense_steps``, of problems whose products of first and second derivatives are in C as well:
    traced models.  Made once for all runs, whose parameters ``LinearSteps`` puts in.
    """
    key = f"along directions: {method.name}"
    steps = _STEPS.of(problem)
    if key not in steps:
        steps[key] = _directed(problem, method)
    return steps[key]


def error_steps(problem: Problem, method: Method) -> DenseSteps | None:
    """Return the steps from u to u + the error estimate, as ``directed_steps``, or None."""
    key = f"errors along directions: {method.name}"
    steps = _STEPS.of(problem)
    if key not in steps:
        steps[key] = _directed(problem, method, errors=True)
    return steps[key]


def _directed(problem: Problem, method: Method, *, errors: bool = False) -> DenseSteps | None:
    names = sorted(method.functions | {"push", "pull", "hessian_product"})
    # explicit steps need products only; implicit ones factorise dense matrices
    most = LARGEST_EXPLICIT if method.explicit else LARGEST
    if not (problem.native.keys() >= set(names) and _small(problem, most)):
        return None
    if method.tableau is None:
        return None
    p = np.zeros(problem.n_parameters)
    coefficients = _of_error(method) if errors else _coefficients(method)
    return _steps(problem, names, coefficients, method.order, p)


@cache
def _coefficients(method: Method) -> tuple[Array, Array, Array, Array]:
    """Return a, b and c, and the weights of the embedded solution, if they are of all stages."""
    assert method.tableau is not None
    of_step = method.tableau.of_step
    a, b, c = (np.ascontiguousarray(part) for part in (of_step.a, of_step.b, of_step.c))
    return a, b, c, b if of_step.b_embedded is None else of_step.b_embedded


@cache
def _of_error(method: Method) -> tuple[Array, Array, Array, Array]:
    """Return the coefficients of the step from u to u + the error estimate."""
    scheme = method.tableau
    assert scheme is not None
    assert scheme.b_embedded is not None
    a, c = np.ascontiguousarray(scheme.a), np.ascontiguousarray(scheme.c)
    # these weights take u to u + h sum (b - b_embedded) k, the estimate beside u itself
    difference = scheme.b - scheme.b_embedded
    return a, difference, c, difference


def _small(problem: Problem, most: int = LARGEST) -> bool:
    """Whether dense matrices in C, or none at all, can be all there is to a problem."""
    python = problem.field_parameter or problem.form != "rhs"
    return problem.size <= most and problem.comm.size == 1 and not python


def _steps(
    problem: Problem,
    names: Sequence[str],
    coefficients: tuple[Array, Array, Array, Array],
    order: int,
    p: Any,
) -> DenseSteps:
    native = problem.native
    functions = {
        name: native[name].where
        for name in names
        if name in native and (name != "jacobian_p" or native[name].pattern is None)
    }
    places = _places(problem) if "jacobian" in functions else None
    breakpoints = np.array(problem.breakpoints, dtype=float)
    return DenseSteps(problem.size, coefficients, order, functions, places, breakpoints, p)


def _places(problem: Problem) -> Any:
    """Return where the entries of a sparse Jacobian belong in a dense one by rows."""
    pattern = problem.native["jacobian"].pattern
    if pattern is None:
        return None
    starts, columns = (np.asarray(numbers) for numbers in pattern)
    # row of each entry, from the starts of rows (CSR)
    rows = np.repeat(np.arange(problem.size), np.diff(starts))
    return (rows * problem.size + columns).astype(np.int32)
