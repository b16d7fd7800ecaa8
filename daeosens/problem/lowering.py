"""User callbacks of either style, lowered to functions and derivatives on PETSc objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, NotFiniteError, keyword
from daeosens.petsc._kernels import put_finite_numbers
from daeosens.petsc.c_function import Native
from daeosens.petsc.non_finite import note_fault
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.automatic_derivatives import AutomaticJacobian, ignores
from daeosens.problem.batched.jacobians import jacobians_at_points
from daeosens.problem.c_callback import Compiled, Role, Roles
from daeosens.problem.callback_guard import check_output, guarded
from daeosens.problem.callback_source import operations_that_fail
from daeosens.problem.differences import DIFFERENCES, is_by_differences
from daeosens.problem.layout import CallbackLayout
from daeosens.problem.matrices import Derivative, Products, dense, from_numpy, from_petsc, refused
from daeosens.problem.problem import AUTONOMOUS, COLORING, VecFunction

Matrix = Callable[..., Any] | Products


class Lowering:
    """Wrap user callbacks of either style as functions and derivatives on PETSc objects."""

    def __init__(self, frame: CallbackLayout, name: str, arguments: int) -> None:
        self.frame = frame
        self.name = name
        self.time_arguments = arguments

    def function(self, callback: Callable[..., Any]) -> VecFunction:
        """Lower the right-hand side or the residual itself."""
        # C functions are called by address; what they return is looked at by their own wrapper
        if isinstance(callback, Compiled):
            return _compiled_function(callback, self.name)
        call = guarded(callback, self.name, self.frame.state.comm)
        if self.frame.style == "petsc":
            return _watched(call, self.name, self.frame)
        return ArrayFunction(call, self.name, self.frame)

    def square(self, spec: Matrix | None, name: str) -> Derivative:
        """Lower a derivative [n, n]."""
        return self._derivative(spec, name, self.frame.state, self.frame.template)

    def rectangular(self, spec: Matrix | None, name: str) -> Derivative:
        """Lower a derivative [n, m]."""
        state, parameter = self.frame.state, self.frame.parameter
        return self._derivative(spec, name, parameter, lambda: dense(state, parameter))

    def _derivative(
        self,
        spec: Matrix | None,
        name: str,
        columns: PETSc.Vec,
        template: Callable[[], PETSc.Mat],
    ) -> Derivative:
        rows = self.frame.state
        if spec is None:
            return refused(name, f"{keyword(name)}=callback")
        if self.frame.style == "numpy":
            derivative = from_numpy(spec, name, rows, columns)
            # of f(t, u, p) in u or p, on one rank
            alone = self.time_arguments == 3 and rows.comm.size == 1
            if alone and isinstance(spec, AutomaticJacobian):
                return replace(derivative, at_points=partial(jacobians_at_points, spec))
            return derivative
        return from_petsc(spec, name, rows, columns, template)

    def time_derivative(
        self, callback: Callable[..., Any], derivative: Callable[..., Any] | str | None, name: str
    ) -> VecFunction:
        """Lower a partial derivative in time [n]."""
        if isinstance(derivative, str):
            if derivative == AUTONOMOUS:
                return lambda *arguments: arguments[-1].zeroEntries()
            raise InputError(f"{name} = {derivative!r}", expected=f'a callback or "{AUTONOMOUS}"')
        if isinstance(derivative, Compiled):
            return _compiled_function(derivative, name)
        if derivative is not None:
            call = guarded(derivative, name, self.frame.state.comm)
            return call if self.frame.style == "petsc" else ArrayFunction(call, name, self.frame)
        if not is_automatic(self.frame, callback):
            spoken = keyword(name)
            return refused(name, f'{spoken}=callback, or {spoken}="{AUTONOMOUS}"').fill
        # t is one more argument: its derivative is a Jacobian of one column
        step = AutomaticJacobian(
            callback, 0, self.name, f'{keyword(name)}=callback, "{DIFFERENCES}" or "{AUTONOMOUS}"'
        )
        return ArrayFunction(lambda *point: step(*point)[:, 0], name, self.frame)


def known_in_time(callback: Callable[..., Any], derivative: Any) -> Any:
    """Return the derivative in t as given; a function that never reads t needs none."""
    return AUTONOMOUS if derivative is None and ignores(callback, 0) else derivative


def is_automatic(frame: CallbackLayout, callback: object) -> bool:
    """Whether missing derivatives are found automatically: of Python callbacks, if NumPy style."""
    return frame.style == "numpy" and not isinstance(callback, Compiled)


_ROLES: Mapping[str, Role] = {
    "rhs": "vector",
    "residual": "vector",
    "jacobian": "by_u",
    "jacobian_udot": "by_u",
    "jacobian_p": "by_p",
    "rhs_t": "vector",
    "residual_t": "vector",
    "hessian_product": "hessian",
    "hessian_t": "hessian_t",
}


def admit_natives(frame: CallbackLayout, states: int, **callbacks: Any) -> dict[str, Any]:
    """Return the callbacks of equations, by their keywords, with C functions made callable.

    ``states`` is how many arrays [n] they take.

    Raises
    ------
    InputError
        C functions of another signature, or for a problem of PETSc style.
    """
    roles = Roles(frame.state.size, frame.parameter.size, states, numpy=frame.style == "numpy")
    return {name: roles.admit(_ROLES[name], function, name) for name, function in callbacks.items()}


def natives(callbacks: Mapping[str, Any]) -> dict[str, Native]:
    """Return those of the callbacks that are C functions."""
    return {
        name: callback.native
        for name, callback in callbacks.items()
        if isinstance(callback, Compiled)
    }


def sources(frame: CallbackLayout, callback: object, **supplied: Any) -> dict[str, str]:
    """Say where each derivative of a callback comes from, for ``check``."""

    def describe(derivative: Any) -> str:
        if derivative is None:
            return "automatic" if is_automatic(frame, callback) else ""
        if isinstance(derivative, Compiled):
            return "compiled"
        if isinstance(derivative, str):
            return derivative
        if is_by_differences(derivative):
            return DIFFERENCES
        return "products" if isinstance(derivative, Products) else "callback"

    return {name: describe(derivative) for name, derivative in supplied.items()}


def state_derivative(
    lower: Lowering,
    callback: Callable[..., Any],
    derivative: Matrix | str | None,
    name: str,
    position: int,
    *,
    colored: bool = False,
) -> Derivative:
    """Lower the derivative in u [n, n]; automatic where missing, if NumPy style."""
    if isinstance(derivative, str) and derivative == COLORING:
        remedy = "an analytic jacobian: a coloured difference has no exact transpose"
        return refused(name, remedy)
    if isinstance(derivative, str):
        raise InputError(
            f"{name} = {derivative!r}",
            expected=f'a callback, Products, "{DIFFERENCES}" or "{COLORING}"',
        )
    if derivative is None and is_automatic(lower.frame, callback):
        remedy = f'{keyword(name)}=callback or "{DIFFERENCES}"'
        derivative = AutomaticJacobian(callback, position, lower.name, remedy, colored=colored)
    return lower.square(derivative, name)


def parameter_derivative(
    lower: Lowering,
    callback: Callable[..., Any],
    derivative: Matrix | None,
    name: str = "jacobian_p",
) -> Derivative:
    """Lower the derivative in p [n, m]; automatic where missing, if NumPy style."""
    frame, position = lower.frame, lower.time_arguments - 1
    if derivative is None and frame.style == "numpy" and ignores(callback, position):
        # known from its code: not evaluated, and not zero by accident of a point
        nothing = np.zeros((frame.state.size, frame.parameter.size))
        return from_numpy(lambda *_point: nothing, name, frame.state, frame.parameter)
    if derivative is None and is_automatic(frame, callback):
        remedy = f'{keyword(name)}=callback or "{DIFFERENCES}"'
        derivative = AutomaticJacobian(callback, position, lower.name, remedy)
    return lower.rectangular(derivative, name)


def _watched(call: Callable[..., Any], name: str, frame: CallbackLayout) -> VecFunction:
    """Note the first value that is not finite."""

    def fill(*arguments: Any) -> None:
        call(*arguments)
        note_fault(frame.faults, name, arguments[0], arguments[-1], frame.dm)

    return fill


def _compiled_function(call: Compiled, name: str) -> VecFunction:
    def fill(t: float, *arrays: Any) -> None:
        call.fill(name, t, arrays[:-1], arrays[-1])

    return fill


class ArrayFunction:
    """A NumPy-style callback as a function that fills a vector [n].

    Parameters
    ----------
    call : callable
        The callback, guarded.
    name : str
        Its name in messages.
    frame : CallbackLayout
        Shapes and names.
    """

    def __init__(self, call: Callable[..., Any], name: str, frame: CallbackLayout) -> None:
        self.call, self._name = call, name
        self._shape, self._names = (frame.state.size,), frame.state_names
        self._whole = frame.state.comm.size == 1

    def __call__(self, *arguments: Any) -> None:
        """Fill the last argument."""
        t, *states, p, out = arguments
        # numbers of parameters are an array already, fields are vectors
        seen = read(p) if isinstance(p, PETSc.Vec) else p
        point = t, *[read(state) for state in states], seen
        values = self.call(*point)
        # nearly always in one pass in C, at every stage of every step
        if not (self._whole and put_finite_numbers(out, values)):
            write(out, self.check(values, *point))

    def check(self, values: Any, t: float, *point: Any) -> Array:
        """Return what the callback gave at a point as an array [n].

        Raises
        ------
        InputError, NotFiniteError
            As ``check_output``.
        """
        try:
            return check_output(values, self._name, self._shape, t, names=self._names)
        except NotFiniteError as error:
            error.operations = operations_that_fail(self._name, (t, *point))
            raise
