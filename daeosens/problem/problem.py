"""Time-dependent problems as functions on PETSc vectors: all that the rest of the package knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError, is_iterable, is_whole, nearest, suggestion, together
from daeosens.petsc._kernels import Stencil, vec_to_fill
from daeosens.petsc.c_function import Native
from daeosens.petsc.ranks import agree
from daeosens.petsc.unpicklable import Unpicklable
from daeosens.petsc.vectors import Array, finite_array, scatter
from daeosens.problem.admission import admit_vec, numbers_by_name
from daeosens.problem.batched.protocol import Batch
from daeosens.problem.branches import Decisions
from daeosens.problem.breakpoints import inside_of_step
from daeosens.problem.callback_guard import on_every_rank
from daeosens.problem.delays import Delays
from daeosens.problem.event import Event
from daeosens.problem.matrices import Derivative
from daeosens.problem.monitor import Monitor

Form = Literal["rhs", "mass", "residual"]
Style = Literal["numpy", "petsc"]
PossiblyNamed: TypeAlias = "npt.ArrayLike | PETSc.Vec | Mapping[str, Any] | None"
"""Parameters as users give them: numbers [m] in order or by name, or a distributed field."""

VecFunction = Callable[..., None]
TimeHessian = Callable[..., float]

AUTONOMOUS = "autonomous"
COLORING = "coloring"
INDEPENDENT = "independent"
"""Said in place of a gradient: the cost does not depend on that argument."""


def as_they_are(p: Any) -> Any:
    """Return the parameters."""
    return p


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Unpicklable):
    """A lowered problem: functions that fill PETSc vectors and matrices.  Made by ODE and DAE.

    Attributes
    ----------
    form : str
        "rhs" (u' = f), "mass" (M u' = f) or "residual" (F(t, u, u', p) = 0).
    style : str
        Whether the user's callbacks speak NumPy or PETSc.
    state, parameter : Vec
        Templates for the state [n] and the parameters [m].
    state_names : tuple of str
        One name for each unknown; empty where only their number was given.
    parameter_names : tuple of str
        One name for each number; empty when the parameter is a field.
    field_parameter : bool
        The parameter is one distributed vector, given to callbacks as such.
    constant_mass : bool
        F_udot does not depend on the parameters.
    rhs_time_hessian_function, residual_time_hessian_function
        None where the equations do not depend on the time.
    mass_p, mass_hessian_function
        d(M(p) v)/dp at (t, p, v), and the Hessian products of w^T M(p) v at (v, p).
    udot_nonlinear : bool
        F_udot may depend on the state or its rate.
    faults : list of str
        The first value that is not finite which a PETSc-style callback gave on this rank.
    events : tuple of Event
        What may happen along a run.
    modes, mode : mapping of str to Problem, str or callable
        The equations of each mode, and the first one, or a function (t, u, p) -> str that names it;
        empty where there is one only.
    breakpoints : tuple of float
        Increasing times at which the equations may jump; steps end there.
    batch : Batch or None
        The right-hand side at many points at once, for NumPy-style callbacks that give matrices.
    sources : mapping
        Where each derivative comes from: "callback", "compiled", "products", "automatic",
        "autonomous", "coloring", "differences", or empty if it was not supplied.
    native : mapping of str to Native
        Those of the equations' callbacks that are C functions, by the keywords of ODE and DAE; of
        traced models also "pull": (t, u, p, w) -> (f_u^T w, f_p^T w).
    stencil : Stencil or None
        The functions of a grid's points, which TS and sweeps call without Python.
    read_by_points : callable
        What these read of the parameters, as an array: numbers as they are, or fields with what is
        around a rank's points.  Collective.
    monitor : callable or None
        Makes what follows a run and names events that are not known before it.
    delays : Delays or None
        What is delayed, of a delay equation.
    parts : (Problem, Problem) or None
        What is stepped implicitly and what explicitly, where the equations are the sum of both.

    Examples
    --------
    >>> from daeosens import ODE
    >>> ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    Problem(u' = f, 1 unknowns, parameters: rate)
    """

    _in_its_place: ClassVar[str] = (
        "a function that builds it, called in each process; or "
        "solve_batch(..., comm=MPI.COMM_WORLD) under mpiexec"
    )

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
    rhs_hessian_function: VecFunction
    residual_hessian_function: VecFunction
    rhs_time_hessian_function: TimeHessian | None = None
    residual_time_hessian_function: TimeHessian | None = None
    constant_mass: bool = True
    udot_nonlinear: bool = False
    mass_p: Derivative | None = None
    mass_hessian_function: VecFunction | None = None
    coloring: bool = False
    faults: list[str] = field(default_factory=list[str])
    batch: Batch | None = None
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    native: Mapping[str, Native] = field(default_factory=dict[str, Native])
    stencil: Stencil | None = None
    read_by_points: Callable[[Any], Array] = as_they_are
    state_names: tuple[str, ...] = ()
    breakpoints: tuple[float, ...] = ()
    branches: Callable[..., Decisions] | None = None
    events: tuple[Event, ...] = ()
    modes: Mapping[str, Problem] = field(default_factory=dict[str, "Problem"])
    mode: str | Callable[..., str] = ""
    monitor: Callable[[], Monitor] | None = None
    delays: Delays | None = None
    parts: tuple[Problem, Problem] | None = None

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        """Return the problem itself, which nothing changes."""
        return self

    def __repr__(self) -> str:
        """Return form, style and sizes."""
        equation = {"rhs": "u' = f", "mass": "M u' = f", "residual": "F(t, u, u', p) = 0"}
        names = ", ".join(self.parameter_names)
        parameters = f"a field of {self.n_parameters}" if self.field_parameter else names or "none"
        sizes = f"{self.size} unknowns, parameters: {parameters}"
        told = f"; {self.differences}" if self.differences else ""
        if self.delays is not None:
            return f"Problem(u' = f with {self.delays.count} delays, {sizes}{told})"
        return f"Problem({equation[self.form]}, {sizes}{told})"

    @cached_property
    def smooth(self) -> bool:
        """Whether a run has no events, and the mode that is known before."""
        return not self.events and isinstance(self.mode, str) and self.monitor is None

    @property
    def curved_mass(self) -> bool:
        """Whether F_udot may change with the state or the parameters."""
        return self.form == "residual" or not self.constant_mass

    @cached_property
    def comm(self) -> PETSc.Comm:
        """The communicator every function of the problem is collective on."""
        return self.state.comm

    @cached_property
    def size(self) -> int:
        """Number n of unknowns."""
        return self.state.size

    @cached_property
    def autonomous(self) -> bool:
        """Whether the equations are known not to depend on the time."""
        return AUTONOMOUS in (self.sources.get("rhs_t"), self.sources.get("residual_t"))

    @cached_property
    def differences(self) -> str:
        """Which derivatives of the equations are differences, in words; empty if none is."""
        every = (self, *self.modes.values())
        # modes have equations of their own
        names = {
            name
            for problem in every
            for name, source in problem.sources.items()
            if source == "differences"
        }
        return f"{', '.join(sorted(names))} by differences" if names else ""

    @property
    def n_start(self) -> int:
        """How many unknowns a start has to give: the first ones; the others are found."""
        return self.size

    @cached_property
    def n_parameters(self) -> int:
        """Number m of parameters."""
        return self.parameter.size

    def state_indices(self, states: str | int | Sequence[str | int]) -> list[int]:
        """Return the numbers of unknowns, each given by its name or number.

        Raises
        ------
        InputError
            There is none of that name (the nearest is named) or number.

        Examples
        --------
        >>> from daeosens import ODE
        >>> tanks = ODE(lambda t, u, p: -u, size=["upper", "lower"])
        >>> tanks.state_indices("lower"), tanks.state_indices(["lower", 0])
        ([1], [1, 0])
        """
        chosen: Any = states
        several = is_iterable(chosen) and not isinstance(chosen, str)
        listed: list[Any] = list(chosen) if several else [chosen]
        return [self._state_index(state) for state in listed]

    def _state_index(self, state: Any) -> int:
        names = self.state_names
        if isinstance(state, str) and state in names:
            return names.index(state)
        number: Any = state
        if is_whole(state) and 0 <= number < self.size:
            return int(number)
        if not isinstance(state, str):
            raise InputError(
                f"there is no unknown {state!r}", expected=f"a number from 0 to {self.size - 1}"
            )
        if not names:
            raise InputError(
                f'there is no unknown "{state}": the unknowns have no names',
                expected=f"a number from 0 to {self.size - 1}",
                remedy=f'ODE(f, size=["{state}", ...]), a name for each',
            )
        listed = ", ".join(f'"{name}"' for name in names[:20])
        raise InputError(
            f'there is no unknown "{state}"', expected=listed, remedy=nearest(state, names)
        )

    def inside(self, time: float, t: float, h: float) -> float:
        """Return a stage time of the step of size ``h`` from ``t``, as callbacks are to see it.

        At a breakpoint the equations have two values.  A step takes both ends from its inside, by a
        margin: callbacks may know the breakpoint by a number that rounding made another one.

        Examples
        --------
        >>> from daeosens import ODE
        >>> jumps = ODE(lambda t, u, p: -u if t < 0.3 else u, size=1, breakpoints=[0.1 * 3])
        >>> jumps.inside(0.3, t=0.2, h=0.1) < 0.3 < 0.1 * 3 < jumps.inside(0.3, t=0.3, h=0.1)
        True
        """
        if not self.breakpoints:
            return time
        return inside_of_step(self.breakpoints, time, t, h)

    def rhs(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with f(t, u, p)."""
        assert self.rhs_function is not None
        self.rhs_function(t, u, p, out)

    def residual(self, t: float, u: PETSc.Vec, udot: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with F(t, u, udot, p); M udot - f for an ODE."""
        if self.residual_function is not None:
            self.residual_function(t, u, udot, p, out)
            return
        # F = M u' - f
        self.rhs(t, u, p, out)
        out.scale(-1.0)
        self.add_udot_product(1.0, t, u, udot, p, udot, out)

    def residual_t(self, t: float, u: PETSc.Vec, udot: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with the partial derivative of F in t."""
        self.residual_t_function(t, u, udot, p, out)

    def rhs_t(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with the partial derivative of f in t."""
        self.rhs_t_function(t, u, p, out)

    def rhs_hessian(
        self,
        point: tuple[float, PETSc.Vec, Any],
        w: PETSc.Vec,
        direction: tuple[PETSc.Vec, Any],
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> None:
        """Fill ``out`` [n], [m] with the derivatives of f_u^T w and f_p^T w along ``direction``.

        The point is (t, u, p), the direction (du, dp); p and dp as callbacks see them.
        """
        self.rhs_hessian_function(*point, w, *direction, *out)

    def residual_hessian(
        self,
        point: tuple[float, PETSc.Vec, PETSc.Vec, Any],
        w: PETSc.Vec,
        direction: tuple[PETSc.Vec, PETSc.Vec, Any],
        out: tuple[PETSc.Vec, PETSc.Vec, PETSc.Vec],
    ) -> None:
        """Fill ``out`` [n], [n], [m] with the derivatives of F_u^T w, F_udot^T w and F_p^T w.

        The point is (t, u, udot, p), the direction (du, dudot, dp).
        """
        self.residual_hessian_function(*point, w, *direction, *out)

    def rhs_time_hessian(
        self,
        point: tuple[float, PETSc.Vec, Any],
        w: PETSc.Vec,
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> float:
        """Fill ``out`` [n], [m] with the derivatives of f_t^T w in u and p; return that in t."""
        if self.rhs_time_hessian_function is None:
            return _no_time(out)
        return self.rhs_time_hessian_function(*point, w, *out)

    def residual_time_hessian(
        self,
        point: tuple[float, PETSc.Vec, PETSc.Vec, Any],
        w: PETSc.Vec,
        out: tuple[PETSc.Vec, PETSc.Vec, PETSc.Vec],
    ) -> float:
        """Fill ``out`` with the derivatives of F_t^T w in u, udot and p; return that in t."""
        if self.residual_time_hessian_function is None:
            return _no_time(out)
        return self.residual_time_hessian_function(*point, w, *out)

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
        # one matrix and one vector for all calls: this is called at every stage
        works = _udot_works.of(self)
        if not works:  # made at a point of the run: a state of zeros may be outside of F's domain
            works.append((self.residual_udot.create(t, u, udot, p), self.create_state()))
        matrix, work = works[0]
        self.residual_udot.fill(t, u, udot, p, matrix)
        (matrix.multTranspose if transpose else matrix.mult)(v, work)
        out.axpy(factor, work)

    @cached_property
    def cached(self) -> dict[object, Any]:
        """What stages keep about it, by the ``ProblemCache`` that owns it; a copy has its own."""
        return {}

    @cached_property
    def branches_known(self) -> bool:
        """Whether branches of the equations are known, in one of their modes at least."""
        if self.delays is not None:
            return self.delays.branches is not None
        modes = self.modes.values() if self.modes else (self,)
        return any(mode.branches is not None for mode in modes)

    def create_state(self) -> PETSc.Vec:
        """Return a new vector of zeros [n]."""
        vec = vec_to_fill(self.state)
        vec.zeroEntries()
        return vec

    def create_parameters(self) -> PETSc.Vec:
        """Return a new vector of zeros [m]."""
        vec = self.parameter.duplicate()
        vec.zeroEntries()
        return vec

    def admit_state(
        self, u: npt.ArrayLike | PETSc.Vec | Mapping[str, float], name: str = "u0"
    ) -> PETSc.Vec:
        """Return a copy of the user's state as a vector [n], checked; a mapping goes by names.

        Collective.

        Raises
        ------
        InputError
            Wrong size (both named) or values that are not finite, on every rank.
        """
        if isinstance(u, Mapping):
            u = self._states_by_name(cast("Mapping[str, Any]", u), name)
        return admit_vec(u, name, self.state, ranks=self.comm.size)

    def _states_by_name(self, u: Mapping[str, Any], name: str) -> Array:
        """Return a state [n] from its numbers by name."""
        names = self.state_names
        if not names:
            raise InputError(
                f"{name} is a mapping, but the unknowns have no names",
                expected=f"an array [{self.size}]",
                remedy=f"ODE(f, size={list(u)!r}, ...)",
            )
        complaints = [f'"{key}" is missing' for key in names if key not in u]
        complaints += [
            f'there is no unknown "{key}"{suggestion(str(key), names)}'
            for key in u
            if key not in names
        ]
        if complaints:
            raise together(complaints, heading=name)
        return np.array([float(finite_array(u[key], f'{name}["{key}"]', ())) for key in names])

    def admit_parameter_vec(self, p: PETSc.Vec, name: str) -> PETSc.Vec:
        """Return a copy of the user's vector [m] of parameters or of a direction in them, checked.

        Collective.

        Raises
        ------
        InputError
            As for states.
        """
        return admit_vec(p, name, self.parameter, ranks=self.comm.size)

    def admit_parameter_direction(self, dp: PossiblyNamed, name: str = "dp") -> PETSc.Vec:
        """Return the user's direction in the parameters as a new vector [m], checked.

        Of a direction by name the other parameters are 0.

        Raises
        ------
        InputError
            As for parameters.
        """
        if isinstance(dp, PETSc.Vec):
            return self.admit_parameter_vec(dp, name)
        if self.field_parameter:
            raise InputError(
                f"{name} is {type(dp).__name__}", expected="a Vec: the parameter is a field"
            )
        if isinstance(dp, Mapping):
            values = numbers_by_name(dp, self.parameter_names, name, others=0.0)
        else:
            direction: Any = () if dp is None else dp
            values = finite_array(direction, name, (self.n_parameters,))
        return scatter(values, self.create_parameters())

    def admit_parameters(self, p: PossiblyNamed, name: str = "p") -> Any:
        """Return the user's parameters as callbacks want them: an array [m] or a vector [m].

        Numbers may be given by name: ``{"rate": 0.5, "A": array}``.  Collective.

        Raises
        ------
        InputError
            Wrong size (both named) or values that are not finite, on every rank.
        """
        if not self.field_parameter:
            if self.comm.size == 1:
                return self._numbers(p, name)
            agree(self.comm, "admit_parameters")
            with on_every_rank(self.comm):
                return self._numbers(p, name)
        agree(self.comm, "admit_parameters")
        with on_every_rank(self.comm):
            if not isinstance(p, PETSc.Vec):
                raise InputError(
                    f"{name} is {type(p).__name__}", expected="a Vec: the parameter is a field"
                )
        return self.admit_parameter_vec(p, name)

    def _numbers(self, p: PossiblyNamed, name: str) -> Array:
        """Return the user's parameters as an array [m] that cannot be written."""
        if isinstance(p, Mapping):
            array = numbers_by_name(p, self.parameter_names, name)
        else:
            values: Any = () if p is None else p
            array = finite_array(values, name)
        if array.shape != (self.n_parameters,):
            names = self.parameter_names
            listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise InputError(
                f"{name} has shape {array.shape}", expected=f"shape ({len(names)},): {listed}"
            )
        array.setflags(write=False)
        return array


def _no_time(outs: tuple[PETSc.Vec, ...]) -> float:
    for out in outs:
        out.zeroEntries()
    return 0.0


Value = TypeVar("Value")


class ProblemCache(Generic[Value]):
    """One value for each problem, made when it is asked for first.

    The module that defines the cache owns it; nobody else writes to it.  A value dies with its
    problem, and a changed copy of a problem (``dataclasses.replace``) starts without.

    Parameters
    ----------
    make : callable
        Returns the value of a problem that has none yet: an empty list or dict, usually.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make

    def of(self, problem: Problem) -> Value:
        """Return the value of a problem."""
        value = problem.cached.get(self)
        if value is None:  # asked for at each run: one look where there is one
            value = problem.cached[self] = self._make()
        return value


_udot_works: ProblemCache[list[tuple[PETSc.Mat, PETSc.Vec]]] = ProblemCache(list)
