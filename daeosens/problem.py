"""Time-dependent problems: what the user supplies, lowered to functions on PETSc vectors.

``ODE`` is M u' = f(t, u, p), ``DAE`` is F(t, u, u', p) = 0; both return a ``Problem``, the only
thing the rest of the package knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.arrays import (
    Array,
    check_output,
    finite_array,
    guarded,
    install_abort_hook,
    largest,
    read,
    write,
)
from daeosens.derivatives import ComplexStep
from daeosens.errors import InputError, UnsupportedError
from daeosens.matrices import (
    Derivative,
    Products,
    constant,
    dense,
    from_numpy,
    from_petsc,
    mass_matrix,
    negative,
    refused,
)

Form = Literal["rhs", "mass", "residual"]
Style = Literal["numpy", "petsc"]
VecFunction = Callable[..., None]
Matrix = Callable[..., Any] | Products

AUTONOMOUS = "autonomous"
COLORING = "coloring"


@dataclass(frozen=True, eq=False)
class Problem:
    """A lowered problem: functions that fill PETSc vectors and matrices.  Made by ODE and DAE.

    Attributes
    ----------
    form : str
        "rhs" (u' = f), "mass" (M u' = f) or "residual" (F(t, u, u', p) = 0).
    style : str
        Whether the user's callbacks speak NumPy or PETSc.
    state, parameter : Vec
        Templates for the state [n] and the parameters [m].
    parameter_names : tuple of str
        One name for each number; empty when the parameter is a field.
    field_parameter : bool
        The parameter is one distributed vector, given to callbacks as such.
    constant_mass : bool
        F_udot does not depend on the parameters.
    udot_nonlinear : bool
        F_udot may depend on the state or its rate.
    algebraic : bool
        The mass matrix is known to have rows of zeros.
    """

    form: Form
    style: Style
    state: PETSc.Vec
    parameter: PETSc.Vec
    parameter_names: tuple[str, ...]
    field_parameter: bool
    dm: PETSc.DM | None
    rhs_function: VecFunction | None
    residual_function: VecFunction | None
    rhs_u: Derivative
    rhs_p: Derivative
    rhs_t_function: VecFunction
    residual_u: Derivative
    residual_udot: Derivative | None
    residual_p: Derivative
    residual_t_function: VecFunction
    constant_mass: bool = True
    udot_nonlinear: bool = False
    algebraic: bool = False
    coloring: bool = False

    @property
    def comm(self) -> PETSc.Comm:
        """The communicator every function of the problem is collective on."""
        return self.state.comm

    @property
    def size(self) -> int:
        """Number n of unknowns."""
        return self.state.size

    @property
    def n_parameters(self) -> int:
        """Number m of parameters."""
        return self.parameter.size

    def rhs(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with f(t, u, p)."""
        assert self.rhs_function is not None
        self.rhs_function(t, u, p, out)

    def residual(self, t: float, u: PETSc.Vec, udot: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with F(t, u, udot, p); M udot - f for an ODE."""
        if self.residual_function is not None:
            self.residual_function(t, u, udot, p, out)
            return
        self.rhs(t, u, p, out)
        out.scale(-1.0)
        self.add_udot_product(1.0, t, u, udot, p, udot, out)

    def residual_t(self, t: float, u: PETSc.Vec, udot: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with the partial derivative of F in t."""
        self.residual_t_function(t, u, udot, p, out)

    def rhs_t(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with the partial derivative of f in t."""
        self.rhs_t_function(t, u, p, out)

    def add_udot_product(
        self,
        factor: float,
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        p: Any,
        v: PETSc.Vec,
        out: PETSc.Vec,
        *,
        transpose: bool = False,
    ) -> None:
        """Add ``factor`` F_udot v, or its transpose's product, to ``out`` [n]."""
        if self.residual_udot is None:
            out.axpy(factor, v)
            return
        matrix, work = self._udot_work
        self.residual_udot.fill(t, u, udot, p, matrix)
        (matrix.multTranspose if transpose else matrix.mult)(v, work)
        out.axpy(factor, work)

    @cached_property
    def _udot_work(self) -> tuple[PETSc.Mat, PETSc.Vec]:
        assert self.residual_udot is not None
        zero, point = self.create_state(), self.create_state()
        return self.residual_udot.create(0.0, point, zero, self._any_p()), self.create_state()

    def _any_p(self) -> Any:
        return self.parameter if self.field_parameter else np.ones(self.n_parameters)

    def create_state(self) -> PETSc.Vec:
        """Return a new vector of zeros [n]."""
        vec = self.state.duplicate()
        vec.zeroEntries()
        return vec

    def create_parameters(self) -> PETSc.Vec:
        """Return a new vector of zeros [m]."""
        vec = self.parameter.duplicate()
        vec.zeroEntries()
        return vec

    def admit_state(self, u: npt.ArrayLike | PETSc.Vec, name: str = "u0") -> PETSc.Vec:
        """Return a copy of the user's state as a vector [n], checked.

        Raises
        ------
        InputError
            Wrong size (both named) or values that are not finite, on every rank.
        """
        return _admit(u, name, self.state, ranks=self.comm.size)

    def admit_parameters(self, p: npt.ArrayLike | PETSc.Vec | None, name: str = "p") -> Any:
        """Return the user's parameters as callbacks want them: an array [m] or a vector [m].

        Raises
        ------
        InputError
            Wrong size (both named) or values that are not finite, on every rank.
        """
        if self.field_parameter:
            if not isinstance(p, PETSc.Vec):
                raise InputError(
                    f"{name} is {type(p).__name__}", expected="a Vec: the parameter is a field"
                )
            return _admit(p, name, self.parameter, ranks=self.comm.size)
        values: Any = () if p is None else p
        array = finite_array(values, name, (self.n_parameters,))
        array.flags.writeable = False
        return array


def ODE(  # noqa: N802 (a noun of the public interface)
    rhs: Callable[..., Any],
    size: int | None = None,
    parameters: int | Sequence[str] | PETSc.Vec = (),
    *,
    state: PETSc.Vec | PETSc.DM | None = None,
    jacobian: Matrix | str | None = None,
    jacobian_p: Matrix | None = None,
    rhs_t: Callable[..., Any] | str | None = None,
    mass: Any = None,
    mass_p: Callable[..., Any] | None = None,
    jacobian_matrix: PETSc.Mat | None = None,
) -> Problem:
    """Describe M u' = f(t, u, p); M may be singular (an index-1 DAE) or depend on p.

    Parameters
    ----------
    rhs : callable
        NumPy style ``rhs(t, u, p) -> array [n]``, or PETSc style ``rhs(t, u, p, out)`` on vectors.
    size : int
        Number n of unknowns: chooses NumPy style, which is serial.
    parameters : int, sequence of str, or Vec
        How many parameters or their names (callbacks get an array [m], the same on every rank), or
        a template of a distributed field (callbacks get a vector [m]).
    state : Vec or DM
        Template of the state: chooses PETSc style, on its communicator.
    jacobian, jacobian_p : callable or Products, optional
        f_u [n, n] and f_p [n, m]: ``(t, u, p) -> array or SciPy sparse``, or ``(t, u, p, out)``
        filling a Mat, or ``Products``.  NumPy style: by complex step where missing.
        ``jacobian="coloring"`` lets PETSc difference ``rhs`` by colouring (no adjoint then).
    rhs_t : callable or "autonomous", optional
        f_t [n]; only needed where step times are differentiated.
    mass : array, sparse matrix, Mat or callable, optional
        M [n, n]; ``mass(p)`` (PETSc style ``mass(p, out)``) when it depends on the parameters.
    mass_p : callable, optional
        The matrix [n, m] of d(M(p) v)/dp, ``mass_p(p, v)`` (PETSc style ``mass_p(p, v, out)``).
    jacobian_matrix : Mat, optional
        PETSc style: template (type and pattern) of f_u; by default the DM's matrix or a dense one.

    Returns
    -------
    Problem

    Raises
    ------
    InputError
        Neither or both of ``size`` and ``state``; bad names or shapes.

    Examples
    --------
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> decay.size, decay.parameter_names
    (1, ('rate',))
    """
    frame = _frame(rhs, size, state, parameters, jacobian_matrix, "rhs")
    lower = _Lowering(frame, "rhs", 3)
    coloring = jacobian == COLORING
    rhs_u = _state_derivative(lower, rhs, jacobian, "jacobian", 1, frame)
    rhs_p = _parameter_derivative(lower, rhs, jacobian_p, frame)
    rhs_t_function = lower.time_derivative(rhs, rhs_t, "rhs_t")
    residual_udot, mass_u = _mass(mass, frame)
    residual_p = negative(rhs_p)
    if mass_u is not None:
        residual_p = _with_mass_p(residual_p, _mass_p(mass, mass_p, frame), frame)

    def residual_t(t: float, u: PETSc.Vec, _udot: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        rhs_t_function(t, u, p, out)
        out.scale(-1.0)

    return Problem(
        form="rhs" if mass is None else "mass",
        rhs_function=lower.function(rhs),
        residual_function=None,
        rhs_u=rhs_u,
        rhs_p=rhs_p,
        rhs_t_function=rhs_t_function,
        residual_u=negative(rhs_u),
        residual_udot=residual_udot,
        residual_p=residual_p,
        residual_t_function=residual_t,
        constant_mass=mass_u is None,
        algebraic=_has_zero_rows(residual_udot, frame) if mass_u is None else False,
        coloring=coloring,
        **frame.fields(),
    )


def DAE(  # noqa: N802 (a noun of the public interface)
    residual: Callable[..., Any],
    size: int | None = None,
    parameters: int | Sequence[str] | PETSc.Vec = (),
    *,
    state: PETSc.Vec | PETSc.DM | None = None,
    jacobian: Matrix | str | None = None,
    jacobian_udot: Matrix | None = None,
    jacobian_p: Matrix | None = None,
    residual_t: Callable[..., Any] | str | None = None,
    jacobian_matrix: PETSc.Mat | None = None,
    linear_in_udot: bool = False,
) -> Problem:
    """Describe F(t, u, u', p) = 0, of index at most one.

    Parameters
    ----------
    residual : callable
        NumPy style ``residual(t, u, udot, p) -> array [n]``; PETSc style with ``out`` added.
    size, parameters, state, jacobian_matrix
        As for ``ODE``.
    jacobian, jacobian_udot, jacobian_p : callable or Products, optional
        F_u, F_udot [n, n] and F_p [n, m] at ``(t, u, udot, p)``; NumPy style: by complex step
        where missing.
    residual_t : callable or "autonomous", optional
        F_t [n]; only needed where step times are differentiated.
    linear_in_udot : bool
        F = M u' - f(t, u, p) with M constant: lets PETSc's own adjoint be used (it is wrong for a
        mass that depends on u, or on p with the midpoint rule; PETSc 3.26).

    Returns
    -------
    Problem

    Examples
    --------
    >>> pendulum = DAE(lambda t, u, udot, p: udot + p[0] * u, size=1, parameters=1)
    >>> pendulum.form
    'residual'
    """
    frame = _frame(residual, size, state, parameters, jacobian_matrix, "residual")
    lower = _Lowering(frame, "residual", 4)
    udot_spec = jacobian_udot
    if udot_spec is None and frame.style == "numpy":
        udot_spec = ComplexStep(residual, 2, "residual", "jacobian_udot=callback")
    p_derivative = _parameter_derivative(lower, residual, jacobian_p, frame)
    never = refused("rhs", "an implicit method: beuler, cn, theta:<value> or midpoint")
    return Problem(
        form="residual",
        rhs_function=None,
        residual_function=lower.function(residual),
        rhs_u=never,
        rhs_p=never,
        rhs_t_function=never.fill,
        residual_u=_state_derivative(lower, residual, jacobian, "jacobian", 1, frame),
        residual_udot=lower.square(udot_spec, "jacobian_udot"),
        residual_p=p_derivative,
        residual_t_function=lower.time_derivative(residual, residual_t, "residual_t"),
        constant_mass=linear_in_udot,
        udot_nonlinear=not linear_in_udot,
        coloring=jacobian == COLORING,
        **frame.fields(),
    )


@dataclass(frozen=True, eq=False)
class _Frame:
    """What ODE and DAE have in common: style, layouts and names."""

    style: Style
    state: PETSc.Vec
    parameter: PETSc.Vec
    parameter_names: tuple[str, ...]
    field_parameter: bool
    dm: PETSc.DM | None
    template: Callable[[], PETSc.Mat]

    def fields(self) -> dict[str, Any]:
        names = ("style", "state", "parameter", "parameter_names", "field_parameter", "dm")
        return {name: getattr(self, name) for name in names}


class _Lowering:
    """Wrap user callbacks of either style as functions and derivatives on PETSc objects."""

    def __init__(self, frame: _Frame, name: str, arguments: int) -> None:
        self.frame = frame
        self.name = name
        self.time_arguments = arguments

    def function(self, callback: Callable[..., Any]) -> VecFunction:
        call = guarded(callback, self.name, self.frame.state.comm)
        if self.frame.style == "petsc":
            return call
        return _numpy_function(call, self.name, self.frame.state.size)

    def square(self, spec: Matrix | None, name: str) -> Derivative:
        frame = self.frame
        if spec is None:
            return refused(name, f"{name}=callback")
        if frame.style == "numpy":
            return from_numpy(spec, name, frame.state, frame.state)
        return from_petsc(spec, name, frame.state, frame.state, frame.template)

    def rectangular(self, spec: Matrix | None, name: str) -> Derivative:
        frame = self.frame
        if spec is None:
            return refused(name, f"{name}=callback")
        if frame.style == "numpy":
            return from_numpy(spec, name, frame.state, frame.parameter)
        return from_petsc(
            spec, name, frame.state, frame.parameter, lambda: dense(frame.state, frame.parameter)
        )

    def time_derivative(
        self, callback: Callable[..., Any], given: Callable[..., Any] | str | None, name: str
    ) -> VecFunction:
        if given == AUTONOMOUS:
            return lambda *arguments: arguments[-1].zeroEntries()
        if isinstance(given, str):
            raise InputError(f"{name} = {given!r}", expected=f'a callback or "{AUTONOMOUS}"')
        n = self.frame.state.size
        if given is not None:
            call = guarded(given, name, self.frame.state.comm)
            return call if self.frame.style == "petsc" else _numpy_function(call, name, n)
        if self.frame.style == "petsc":
            return refused(name, f'{name}=callback, or {name}="{AUTONOMOUS}"').fill
        step = ComplexStep(callback, 0, self.name, f'{name}=callback or "{AUTONOMOUS}"')
        return _numpy_function(lambda *point: step(*point)[:, 0], name, n)


def _state_derivative(
    lower: _Lowering,
    callback: Callable[..., Any],
    given: Matrix | str | None,
    name: str,
    position: int,
    frame: _Frame,
) -> Derivative:
    if given == COLORING:
        remedy = "an analytic jacobian: a coloured difference has no exact transpose"
        return refused(name, remedy)
    if isinstance(given, str):
        raise InputError(f"{name} = {given!r}", expected=f'a callback, Products or "{COLORING}"')
    if given is None and frame.style == "numpy":
        given = ComplexStep(callback, position, lower.name, f"{name}=callback")
    return lower.square(given, name)


def _parameter_derivative(
    lower: _Lowering, callback: Callable[..., Any], given: Matrix | None, frame: _Frame
) -> Derivative:
    if given is None and frame.style == "numpy":
        position = lower.time_arguments - 1
        given = ComplexStep(callback, position, lower.name, "jacobian_p=callback")
    return lower.rectangular(given, "jacobian_p")


def _numpy_function(call: Callable[..., Any], name: str, n: int) -> VecFunction:
    def fill(*arguments: Any) -> None:
        *point, out = arguments
        values = call(*(read(a) if isinstance(a, PETSc.Vec) else a for a in point))
        write(out, check_output(values, name, (n,), point[0]))

    return fill


def _mass(mass: Any, frame: _Frame) -> tuple[Derivative | None, Callable[..., Any] | None]:
    """Return F_udot of M u' - f, and the callback if M depends on the parameters."""
    if mass is None:
        return None, None
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


def _has_zero_rows(mass: Derivative | None, frame: _Frame) -> bool:
    """Return whether a constant mass matrix has algebraic rows: M x = 0 there for a generic x."""
    if mass is None:
        return False
    x, product = frame.state.duplicate(), frame.state.duplicate()
    start, end = x.getOwnershipRange()
    write(x, np.cos(1.0 + np.arange(start, end)))
    mass.create().mult(x, product)
    product.abs()
    least: Any = product.min()
    return least[1] == 0.0


def _mass_p(
    mass: Callable[..., Any], mass_p: Callable[..., Any] | None, frame: _Frame
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


def _with_mass_p(residual_p: Derivative, mass_p: Derivative, frame: _Frame) -> Derivative:
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


def _frame(
    callback: Callable[..., Any],
    size: int | None,
    state: PETSc.Vec | PETSc.DM | None,
    parameters: int | Sequence[str] | PETSc.Vec,
    jacobian_matrix: PETSc.Mat | None,
    name: str,
) -> _Frame:
    if not callable(callback):
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
    if template.comm.size > 1:
        install_abort_hook()
    parameter, names = _parameter_layout(parameters, template.comm)

    def matrix() -> PETSc.Mat:
        if jacobian_matrix is not None:
            return jacobian_matrix.duplicate()
        return dense(template, template) if dm is None else dm.createMat()

    return _Frame(
        style="numpy" if size is not None else "petsc",
        state=template,
        parameter=parameter,
        parameter_names=names,
        field_parameter=isinstance(parameters, PETSc.Vec),
        dm=dm,
        template=matrix,
    )


def _parameter_layout(
    parameters: int | Sequence[str] | PETSc.Vec, comm: PETSc.Comm
) -> tuple[PETSc.Vec, tuple[str, ...]]:
    if isinstance(parameters, PETSc.Vec):
        return parameters.duplicate(), ()
    if isinstance(parameters, (int, np.integer)):
        names = tuple(f"p{i}" for i in range(int(parameters)))
    else:
        names = tuple(parameters)
    if isinstance(parameters, str) or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"parameters = {parameters!r}", expected='a number, or names such as ["rate", "size"]'
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"parameter names {repeated} appear more than once")
    vec = PETSc.Vec().create(comm=comm)
    vec.setSizes(len(names))
    vec.setType(PETSc.Vec.Type.STANDARD)
    return vec, names


def _admit(
    values: npt.ArrayLike | PETSc.Vec, name: str, template: PETSc.Vec, *, ranks: int
) -> PETSc.Vec:
    vec = template.duplicate()
    if isinstance(values, PETSc.Vec):
        if values.getSizes() != template.getSizes():
            raise InputError(
                f"{name} has (local, global) sizes {values.getSizes()}",
                expected=f"{template.getSizes()}",
            )
        values.copy(vec)
    else:
        if ranks > 1:
            raise InputError(
                f"{name} is {type(values).__name__}", expected="a distributed Vec on several ranks"
            )
        write(vec, finite_array(values, name, (template.size,)))
    if not np.isfinite(largest(vec)):
        raise InputError(f"{name} contains values that are not finite", expected="finite numbers")
    return vec


__all__ = ["AUTONOMOUS", "COLORING", "DAE", "ODE", "Array", "Problem", "Products"]
