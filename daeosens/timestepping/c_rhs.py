"""C functions that TS calls itself, and the parameters that they see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import NotFiniteError
from daeosens.methods.method import Method
from daeosens.petsc._kernels import DenseSteps, PythonFunctions, Registered, RegisteredStencil
from daeosens.petsc.step_rejection import with_trials
from daeosens.problem.callback_guard import check_output
from daeosens.problem.problem import Problem, as_they_are

_REGISTERED = "daeosens registered"
"""Name under which a TS keeps the C functions that it calls alive."""


class Held:
    """The parameters of a TS as callbacks see them; events may put others in their place."""

    def __init__(self, p: Any) -> None:
        self._p = p
        self._registered: list[Registered | RegisteredStencil | DenseSteps] = []
        self._read: Callable[[Any], Any] = as_they_are

    @property
    def p(self) -> Any:
        """The parameters [m]."""
        return self._p

    @p.setter
    def p(self, values: Any) -> None:
        self._p = values
        # C functions have a copy of the numbers: events that change p have to reach it
        for functions in self._registered:
            functions.hold(self._read(values))

    def register(
        self, ts: PETSc.TS, problem: Problem, python: PythonFunctions | None = None
    ) -> Registered | RegisteredStencil:
        """Return the C functions of a problem for a TS, which see these parameters.

        Those that call ``python``, if it is given.
        """
        if problem.stencil is not None and python is None:
            self._read = problem.read_by_points
            registered = RegisteredStencil(problem.stencil, self._read(self._p))
        else:
            where = problem.native["rhs"].where if python is None else python.addresses["rhs"]
            breakpoints = np.array(problem.breakpoints, dtype=float)
            registered = Registered(problem.size, where, self._p, breakpoints, python)
        self.keep(ts, registered)
        return registered

    def keep(self, ts: PETSc.TS, registered: Registered | RegisteredStencil | DenseSteps) -> None:
        """Let the C functions of a TS see these parameters from now on, and live as long as it."""
        self._registered.append(registered)
        # PETSc has their addresses only: Python must not free them before the TS
        ts.setAttr(_REGISTERED, registered)


def runs_in_c(problem: Problem, method: Method) -> bool:
    """Whether TS calls the C functions of a problem itself, so that no Python runs in a step."""
    if problem.stencil is not None:
        return not (problem.breakpoints or method.stagewise)
    python = problem.field_parameter or not problem.constant_mass
    return method.functions <= problem.native.keys() and not python


def repeats_python(problem: Problem, method: Method) -> bool:
    """Whether a sweep on one rank finds stages again by Newton's method and callbacks in Python."""
    alone = problem.comm.size == 1
    return method.stagewise and alone and not runs_in_c(problem, method)


def registered_with(ts: PETSc.TS) -> Registered | RegisteredStencil | DenseSteps | None:
    """Return the C functions that a TS calls; None if it calls Python."""
    registered: Any = ts.getAttr(_REGISTERED)
    return registered


def python_functions_of(ts: PETSc.TS) -> PythonFunctions | None:
    """Return the callbacks that the C functions of a TS call, if they are Python's."""
    registered = registered_with(ts)
    if registered is None or isinstance(registered, RegisteredStencil):
        return None
    return registered.python


def compiled_fault(ts: PETSc.TS) -> NotFiniteError | None:
    """Return what C functions gave that is not finite in the step under way, if they did."""
    registered = registered_with(ts)
    fault = None if registered is None else registered.fault()
    if fault is None:
        return None
    name, t, values = fault
    if t < ts.getTime():  # of a trial that was survived
        return None
    python = python_functions_of(ts)
    if python is not None:
        return python.error
    try:
        check_output(values, name, values.shape, t)
    except NotFiniteError as error:
        return error
    return None


def note_cause(ts: PETSc.TS, failure: PETSc.Error) -> None:
    """Make an exception of a callback that C called the cause of a failure, as petsc4py does."""
    python = python_functions_of(ts)
    exception = None if python is None else python.take_exception()
    if exception is not None:
        failure.__cause__ = exception


def raise_fault(ts: PETSc.TS) -> None:
    """Raise what C functions gave that is not finite, if that is why a TS failed.

    Raises
    ------
    NotFiniteError
        As for the callbacks of other problems.
    """
    fault = compiled_fault(ts)
    if fault is not None:
        raise with_trials(fault, ts)
