"""User callbacks of either style, lowered to functions and derivatives on PETSc objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.arrays import finite_array, read, write
from daeosens.compiled import Compiled, Role, Roles
from daeosens.derivatives import ComplexStep, ignores
from daeosens.errors import InputError, UnsupportedError, keyword
from daeosens.faults import note_fault
from daeosens.guards import check_output, guarded
from daeosens.matrices import (
    Derivative,
    Products,
    constant,
    dense,
    from_numpy,
    from_petsc,
    mass_matrix,
    refused,
)
from daeosens.native import Native, admit_native
from daeosens.problem import AUTONOMOUS, COLORING, Style, VecFunction
from daeosens.ranks import anchor, install_abort_hook

Matrix = Callable[..., Any] | Products


@dataclass(frozen=True, eq=False)
class Frame:
    """What ODE and DAE have in common: style, layouts and names."""

    style: Style
    state: PETSc.Vec
    parameter: PETSc.Vec
    parameter_names: tuple[str, ...]
    field_parameter: bool
    dm: PETSc.DM | None
    template: Callable[[], PETSc.Mat]
    faults: list[str] = field(default_factory=list[str])

    def fields(self) -> dict[str, Any]:
        """Return what goes into a ``Problem`` as it is."""
        names = (
            "style",
            "state",
            "parameter",
            "parameter_names",
            "field_parameter",
            "dm",
            "faults",
        )
        return {name: getattr(self, name) for name in names}


class Lowering:
    """Wrap user callbacks of either style as functions and derivatives on PETSc objects."""

    def __init__(self, frame: Frame, name: str, arguments: int) -> None:
        self.frame = frame
        self.name = name
        self.time_arguments = arguments

    def function(self, callback: Callable[..., Any]) -> VecFunction:
        """Lower the right-hand side or the residual itself."""
        if isinstance(callback, Compiled):
            return _compiled_function(callback, self.name)
        call = guarded(callback, self.name, self.frame.state.comm)
        if self.frame.style == "petsc":
            return _watched(call, self.name, self.frame)
        return _numpy_function(call, self.name, self.frame.state.size)

    def square(self, spec: Matrix | None, name: str) -> Derivative:
        """Lower a derivative [n, n]."""
        frame = self.frame
        if spec is None:
            return refused(name, f"{keyword(name)}=callback")
        if frame.style == "numpy":
            return from_numpy(spec, name, frame.state, frame.state)
        return from_petsc(spec, name, frame.state, frame.state, frame.template)

    def rectangular(self, spec: Matrix | None, name: str) -> Derivative:
        """Lower a derivative [n, m]."""
        frame = self.frame
        if spec is None:
            return refused(name, f"{keyword(name)}=callback")
        if frame.style == "numpy":
            return from_numpy(spec, name, frame.state, frame.parameter)
        return from_petsc(
            spec, name, frame.state, frame.parameter, lambda: dense(frame.state, frame.parameter)
        )

    def time_derivative(
        self, callback: Callable[..., Any], given: Callable[..., Any] | str | None, name: str
    ) -> VecFunction:
        """Lower a partial derivative in time [n]."""
        if isinstance(given, str):
            if given == AUTONOMOUS:
                return lambda *arguments: arguments[-1].zeroEntries()
            raise InputError(f"{name} = {given!r}", expected=f'a callback or "{AUTONOMOUS}"')
        n = self.frame.state.size
        if isinstance(given, Compiled):
            return _compiled_function(given, name)
        if given is not None:
            call = guarded(given, name, self.frame.state.comm)
            return call if self.frame.style == "petsc" else _numpy_function(call, name, n)
        if not steps_complex(self.frame, callback):
            spoken = keyword(name)
            return refused(name, f'{spoken}=callback, or {spoken}="{AUTONOMOUS}"').fill
        step = ComplexStep(callback, 0, self.name, f'{keyword(name)}=callback or "{AUTONOMOUS}"')
        return _numpy_function(lambda *point: step(*point)[:, 0], name, n)


def known_in_time(callback: Callable[..., Any], given: Any) -> Any:
    """Return the derivative in t as given; a function that never reads t needs none."""
    return AUTONOMOUS if given is None and ignores(callback, 0) else given


def steps_complex(frame: Frame, callback: object) -> bool:
    """Whether missing derivatives come from complex steps: of Python callbacks, if NumPy style."""
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


def admit_natives(frame: Frame, states: int, **callbacks: Any) -> dict[str, Any]:
    """Return the callbacks of equations, by their keywords, with C functions made callable.

    ``states`` is how many arrays [n] they take.

    Raises
    ------
    InputError
        C functions of another signature, or for a problem of PETSc style.
    """
    roles = Roles(frame.state.size, frame.parameter.size, states, numpy=frame.style == "numpy")
    return {name: roles.admit(_ROLES[name], each, name) for name, each in callbacks.items()}


def natives(callbacks: Mapping[str, Any]) -> dict[str, Native]:
    """Return those of the callbacks that are C functions."""
    return {
        name: callback.native
        for name, callback in callbacks.items()
        if isinstance(callback, Compiled)
    }


def sources(frame: Frame, callback: object, **supplied: Any) -> dict[str, str]:
    """Say where each derivative of a callback comes from, for ``check``."""

    def describe(given: Any) -> str:
        if given is None:
            return "complex step" if steps_complex(frame, callback) else ""
        if isinstance(given, Compiled):
            return "compiled"
        if isinstance(given, str):
            return given
        return "products" if isinstance(given, Products) else "callback"

    return {name: describe(given) for name, given in supplied.items()}


def state_derivative(
    lower: Lowering,
    callback: Callable[..., Any],
    given: Matrix | str | None,
    name: str,
    position: int,
    frame: Frame,
) -> Derivative:
    """Lower the derivative in u [n, n]; by complex step where missing, if NumPy style."""
    if isinstance(given, str) and given == COLORING:
        remedy = "an analytic jacobian: a coloured difference has no exact transpose"
        return refused(name, remedy)
    if isinstance(given, str):
        raise InputError(f"{name} = {given!r}", expected=f'a callback, Products or "{COLORING}"')
    if given is None and steps_complex(frame, callback):
        given = ComplexStep(callback, position, lower.name, f"{keyword(name)}=callback")
    return lower.square(given, name)


def parameter_derivative(
    lower: Lowering,
    callback: Callable[..., Any],
    given: Matrix | None,
    frame: Frame,
    name: str = "jacobian_p",
) -> Derivative:
    """Lower the derivative in p [n, m]; by complex step where missing, if NumPy style."""
    position = lower.time_arguments - 1
    if given is None and frame.style == "numpy" and ignores(callback, position):
        nothing = np.zeros((frame.state.size, frame.parameter.size))
        return from_numpy(lambda *_point: nothing, name, frame.state, frame.parameter)
    if given is None and steps_complex(frame, callback):
        given = ComplexStep(callback, position, lower.name, f"{keyword(name)}=callback")
    return lower.rectangular(given, name)


def _watched(call: Callable[..., Any], name: str, frame: Frame) -> VecFunction:
    """Note the first value that is not finite."""

    def fill(*arguments: Any) -> None:
        call(*arguments)
        note_fault(frame.faults, name, arguments[0], arguments[-1], frame.dm)

    return fill


def _compiled_function(call: Compiled, name: str) -> VecFunction:
    def fill(t: float, *arrays: Any) -> None:
        call.fill(name, t, arrays[:-1], arrays[-1])

    return fill


def _numpy_function(call: Callable[..., Any], name: str, n: int) -> VecFunction:
    shape = (n,)

    def fill(*arguments: Any) -> None:
        t, *states, p, out = arguments
        seen = read(p) if isinstance(p, PETSc.Vec) else p
        values = call(t, *[read(state) for state in states], seen)
        write(out, check_output(values, name, shape, t))

    return fill


def mass_derivative(mass: Any, frame: Frame) -> tuple[Derivative | None, Callable[..., Any] | None]:
    """Return F_udot of M u' - f, and the callback if M depends on the parameters."""
    if mass is None:
        return None, None
    if admit_native(mass) is not None:
        raise InputError("mass is a C function", expected="a matrix, or a Python callback mass(p)")
    if not callable(mass) or isinstance(mass, PETSc.Mat):
        return constant(mass_matrix(mass, frame.state)), None
    if frame.style == "numpy":
        inner = from_numpy(lambda _t, p: mass(p), "mass", frame.state, frame.state)
        return (
            Derivative(
                lambda t, _u, _udot, p: inner.create(t, p),
                lambda t, _u, _udot, p, out: inner.fill(t, p, out),
            ),
            mass,
        )
    call = guarded(mass, "mass", frame.state.comm)

    def fill(_t: float, _u: PETSc.Vec, _udot: PETSc.Vec, p: Any, out: PETSc.Mat) -> None:
        call(p, out)
        if not out.isAssembled():
            out.assemble()

    return Derivative(lambda *_point: frame.template(), fill), mass


def mass_p_derivative(
    mass: Callable[..., Any], mass_p: Callable[..., Any] | None, frame: Frame
) -> Derivative:
    """Return d(M(p) v)/dp as a derivative at the point (t, p, v)."""
    if frame.style == "numpy":
        if mass_p is None:
            step = ComplexStep(lambda p, v: mass(p) @ v, 0, "mass", "mass_p=callback")
            return from_numpy(lambda _t, p, v: step(p, v), "mass_p", frame.state, frame.parameter)
        return from_numpy(lambda _t, p, v: mass_p(p, v), "mass_p", frame.state, frame.parameter)
    if mass_p is None:
        return refused("mass_p", "mass_p=callback(p, v, out)")
    call = guarded(mass_p, "mass_p", frame.state.comm)
    return from_petsc(
        lambda _t, p, v, out: call(p, v, out),
        "mass_p",
        frame.state,
        frame.parameter,
        lambda: dense(frame.state, frame.parameter),
    )


def with_mass_p(residual_p: Derivative, mass_p: Derivative, frame: Frame) -> Derivative:
    """Return -f_p + d(M(p) udot)/dp."""
    if not residual_p.assembled:
        raise UnsupportedError(
            "jacobian_p is given by products while the mass depends on the parameters",
            expected="a jacobian_p callback that returns or fills a matrix",
            remedy="DAE(residual, ...), whose jacobian_p covers both parts",
        )
    work: list[PETSc.Mat] = []

    def fill(t: float, u: PETSc.Vec, udot: PETSc.Vec, p: Any, out: PETSc.Mat) -> None:
        residual_p.fill(t, u, udot, p, out)
        if not work:
            work.append(dense(frame.state, frame.parameter))
        mass_p.fill(t, p, udot, work[0])
        out.axpy(1.0, work[0])

    return Derivative(lambda *_point: dense(frame.state, frame.parameter), fill)


def make_frame(
    callback: Callable[..., Any],
    size: int | None,
    state: PETSc.Vec | PETSc.DM | None,
    parameters: int | Sequence[str] | PETSc.Vec,
    jacobian_matrix: PETSc.Mat | None,
    name: str,
) -> Frame:
    """Check what ODE and DAE have in common and return the layouts.

    Raises
    ------
    InputError
        Neither or both of ``size`` and ``state``, wrong types, repeated names.
    """
    if not callable(callback) and admit_native(callback) is None:
        raise InputError(f"{name} is {type(callback).__name__}", expected="a function")
    if (size is None) == (state is None):
        raise InputError(
            "both size and state are given" if size is not None else "neither size nor state given",
            expected="size=n for NumPy-style callbacks, or state=template for PETSc-style ones",
        )
    dm: PETSc.DM | None = None
    if size is not None:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise InputError(f"size = {size!r}", expected="an integer of at least 1")
        template = PETSc.Vec().createSeq(int(size), comm=PETSc.COMM_SELF)
    elif isinstance(state, PETSc.DM):
        dm = state
        template = state.createGlobalVec()
    elif isinstance(state, PETSc.Vec):
        template = state.duplicate()
    else:
        raise InputError(f"state is {type(state).__name__}", expected="a PETSc Vec or DM")
    anchor(template.comm)
    if template.comm.size > 1:
        install_abort_hook()
    if jacobian_matrix is not None and (
        size is not None or not isinstance(jacobian_matrix, PETSc.Mat)
    ):
        raise InputError(
            f"jacobian_matrix is {type(jacobian_matrix).__name__}"
            f"{' beside size' * (size is not None)}",
            expected="a PETSc Mat, for PETSc-style callbacks",
            remedy="state=template, or no jacobian_matrix",
        )
    parameter, names = _parameter_layout(parameters, template.comm)

    def matrix() -> PETSc.Mat:
        if jacobian_matrix is not None:
            return jacobian_matrix.duplicate()
        return dense(template, template) if dm is None else dm.createMat()

    return Frame(
        style="numpy" if size is not None else "petsc",
        state=template,
        parameter=parameter,
        parameter_names=names,
        field_parameter=isinstance(parameters, PETSc.Vec),
        dm=dm,
        template=matrix,
    )


def admit_breakpoints(breakpoints: npt.ArrayLike) -> tuple[float, ...]:
    """Return the times at which the equations may jump, checked.

    Raises
    ------
    InputError
        Not finite, not a list of numbers, or not increasing.
    """
    times = finite_array(breakpoints, "breakpoints")
    if times.ndim != 1:
        raise InputError(f"breakpoints have shape {times.shape}", expected="shape (K,)")
    if (np.diff(times) <= 0).any():
        k = int(np.argmax(np.diff(times) <= 0))
        raise InputError(
            f"breakpoints are not increasing: {times[k]:g} is followed by {times[k + 1]:g}",
            expected="strictly increasing times",
        )
    return tuple(times.tolist())


def _parameter_layout(
    parameters: int | Sequence[str] | PETSc.Vec, comm: PETSc.Comm
) -> tuple[PETSc.Vec, tuple[str, ...]]:
    if isinstance(parameters, PETSc.Vec):
        return parameters.duplicate(), ()
    names: tuple[str, ...] | None = None
    if isinstance(parameters, (int, np.integer)) and parameters >= 0:
        names = tuple(f"p{i}" for i in range(int(parameters)))
    # of a mapping the values, or shapes, would be lost
    elif isinstance(parameters, Iterable) and not isinstance(parameters, (str, Mapping)):
        names = tuple(parameters)
    if names is None or not all(isinstance(name, str) and name for name in names):
        raise InputError(
            f"parameters = {parameters!r}", expected='a number, or names such as ["rate", "size"]'
        )
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise InputError(f"parameter names {repeated} appear more than once")
    vec = PETSc.Vec().create(comm=comm)
    vec.setSizes(len(names))
    vec.setType(PETSc.Vec.Type.STANDARD)
    return vec, names
