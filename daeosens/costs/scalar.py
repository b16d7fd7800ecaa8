"""Scalar functions of (t, u, p) given by callbacks: of costs, observations and events.

What is missing among their derivatives is automatic, or refused where it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeGuard
from weakref import WeakKeyDictionary

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.costs.cost import Direction, Point
from daeosens.errors import DaeosensError, InputError, UnsupportedError
from daeosens.petsc.vectors import Array, add_to, read, scatter, write
from daeosens.problem.automatic_derivatives import AutomaticJacobian, Differentiated, ignores
from daeosens.problem.automatic_hessian import AutomaticHessian, in_time
from daeosens.problem.batched.many_points import (
    FEW_POINTS,
    SMALL,
    hessians_at_points,
    slopes_at_points,
)
from daeosens.problem.branches import Branches
from daeosens.problem.c_callback import Compiled, Role, Roles
from daeosens.problem.callback_guard import check_output, check_tuple, guarded, raise_together
from daeosens.problem.problem import AUTONOMOUS, INDEPENDENT, Problem

Address: TypeAlias = tuple[int, int]
"""Of a C function, and of its user data; both 0 for a gradient that is zero."""

SAME = 1e-9
"""Values of two ranks that differ by more than this part of the largest one so far are two: near a
zero they may differ by rounding."""


@dataclass(frozen=True)
class Keywords:
    """What a scalar is to the user, and what its derivatives are called where they are given.

    ``value`` is empty where the scalar goes by its title alone.
    """

    kind: str = "cost"
    value: str = ""
    u: str = "gradient_u"
    p: str = "gradient_p"
    t: str = "value_t"
    hessian: str = "hessian_product"
    hessian_t: str = "hessian_t"


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of a scalar as the user gave them: callbacks, words, or None."""

    u: Callable[..., Any] | str | None = None
    p: Callable[..., Any] | str | None = None
    t: Callable[..., Any] | str | None = None
    hessian: Callable[..., Any] | None = None
    hessian_t: Callable[..., Any] | str | None = None


class Callback:
    """A scalar given by user callbacks of either style; what is missing is automatic.

    Attributes
    ----------
    title : str
        Whose callbacks these are: the name of each is this and its keyword.
    supplied : Derivatives
        What the user supplied.
    keywords : Keywords
        What he calls it.
    problem : Problem
        Whose states it sees.
    function : callable
        The scalar itself.
    branches : Branches or None
        What it compares, where that is known.
    """

    def __init__(
        self,
        problem: Problem,
        title: str,
        value: Callable[..., Any],
        supplied: Derivatives,
        keywords: Keywords = Keywords(),
    ) -> None:
        self.title = title
        value, self.supplied = _with_natives(problem, title, value, supplied, keywords)
        self.function = value
        supplied = _with_known(self.supplied, value)
        self.keywords = keywords
        self.problem = problem
        self._name = self.name(keywords.value)
        self._numpy = problem.style == "numpy"
        self._compiled = value if isinstance(value, Compiled) else None
        # Derivatives by propagation need Python code on arrays: neither PETSc vectors nor C can
        # be seen through.
        self._automatic = self._numpy and self._compiled is None
        self.branches = Branches(value) if self._automatic else None
        self._value = guarded(value, self._name, problem.comm)
        self._u = self._derivative(value, supplied.u, 1, keywords.u)
        self._p = self._derivative(value, supplied.p, 2, keywords.p)
        self._t = self._derivative(value, supplied.t, 0, keywords.t)
        self._hessian = self._second(supplied)
        self._hessian_t = self._second_in_time(supplied)
        self._at_points = self._of_many_points(value, supplied)
        self._work: PETSc.Vec | None = None
        self._largest = 0.0

    @cached_property
    def in_c(self) -> tuple[Address | None, ...]:
        """Return where the function, its gradients in u and p and its Hessian product are in C.

        None for what is in Python.
        """
        supplied = self.supplied
        return tuple(map(_address, (self.function, supplied.u, supplied.p, supplied.hessian)))

    @property
    def sees_parameters(self) -> bool:
        """Whether the gradient in p may be other than zero."""
        return self._p is not None

    def name(self, keyword: str) -> str:
        """Return what a callback is called in messages."""
        return f"{self.title} {keyword}" if keyword else self.title

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the value."""
        if self._compiled is not None:
            value = self._compiled.number(t, u, p)
        else:
            value = self._value(t, read(u) if self._numpy else u, p)
        if self.problem.comm.size > 1:
            return self._common(value, t)
        # The usual case without the general check, which would be seen in small problems.
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        return float(check_output(value, self._name, (), t, self.keywords.kind))

    def _common(self, value: object, t: float) -> float:
        """Return the value that all ranks have: those with another would go another way."""
        error: DaeosensError | None = None
        ends = np.zeros(3)
        try:
            number = float(check_output(value, self._name, (), t, self.keywords.kind))
            # One reduction by MAX gives the largest, minus the smallest, and whether any rank has
            # an error.
            ends[:2] = number, -number
        except DaeosensError as found:
            error, ends[2] = found, 1.0
        self.problem.comm.tompi4py().Allreduce(MPI.IN_PLACE, ends, MPI.MAX)
        if ends[2]:
            raise_together(self.problem.comm, error)
        highest, lowest = float(ends[0]), -float(ends[1])
        # Relative to the largest value seen: a cost may pass through zero, where ranks differ by
        # rounding of what was added up.
        self._largest = max(self._largest, abs(highest), abs(lowest))
        if highest - lowest > SAME * self._largest:
            raise InputError(
                f"{self.keywords.kind} '{self._name}' returned {lowest:.9g} on one rank and "
                f"{highest:.9g} on another at t = {t:.9g}",
                expected="the same on every rank",
                remedy="comm.allreduce(...) of what the ranks have",
            )
        return highest

    def add_u(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in u."""
        if self._u is None:
            return
        compiled = self.supplied.u
        if self._numpy and not isinstance(compiled, Compiled):
            values = self._u(t, self._see(u), p)
            name = self.name(self.keywords.u)
            out.getArray()[...] += weight * check_output(values, name, (out.size,), t)
            return
        if self._work is None:
            self._work = self.problem.create_state()
        # A compiled function fills PETSc vectors by itself, without a NumPy view in between.
        if isinstance(compiled, Compiled):
            compiled.fill(self.name(self.keywords.u), t, (u, p), self._work)
        else:
            self._u(t, u, p, self._work)
        out.axpy(weight, self._work)

    def add_p(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in p."""
        if self._p is None or out.size == 0:
            return
        # Numbers: the whole gradient [m] on every rank, of which add_to keeps what the vector has
        # here.
        if not self.problem.field_parameter:
            values = self._p(t, self._see(u), p)
            add_to(out, weight, check_output(values, self.name(self.keywords.p), (out.size,), t))
            return
        work = out.duplicate()
        self._p(t, self._see(u), p, work)
        out.axpy(weight, work)
        work.destroy()

    def gradients(self, t: Array, u: Array, p: Any) -> tuple[Array, Array] | None:
        """Return the gradients in u [K, n] and p [K, m] at many points, from few evaluations.

        None where they are quicker one after the other, or cannot be had in another way.
        """
        (count, n), m = u.shape, self.problem.n_parameters
        columns = range(n if self._u is None else 0, n if self._p is None else n + m)
        function = self._of_many(u, p)
        if function is None:
            return None

        def at_one(k: int) -> Array:
            point = float(t[k]), u[k], p
            parts = [np.ravel(slope(*point)) for slope in (self._u, self._p) if slope is not None]
            return np.concatenate(parts)[None]

        slopes = slopes_at_points(function, (), (t, u, p), columns, at_one)
        if slopes is None:
            self._at_points = None
            return None
        gradients = np.zeros((count, n + m))
        gradients[:, columns] = slopes[:, 0]
        return gradients[:, :n], gradients[:, n:]

    def hessian_products(
        self, t: Array, u: Array, p: Any, du: Array, dp: Array
    ) -> tuple[Array, Array] | None:
        """Return the derivatives of the gradients along directions: [D, K, n] and [D, K, m].

        From few evaluations, or None, as of ``gradients``; du [D, K, n], dp [D, m].
        """
        function = self._of_many(u, p)
        if function is None or self._hessian is None or self.supplied.hessian is not None:
            return None
        second, (count, n) = self._hessian, u.shape

        def at_one(k: int) -> Array:
            point = float(t[k]), u[k], p
            along = zip(du[:, k], dp, strict=True)
            return np.array([np.concatenate(second(*point, *direction)) for direction in along])

        ones, directions = np.ones((count, 1)), (du, dp)
        products = hessians_at_points(function, (), (t, u, p), ones, directions, at_one)
        if products is None:
            self._at_points = None
            return None
        return products[..., :n], products[..., n:]

    def _of_many(self, u: Array, p: Any) -> Differentiated | None:
        """Return the function if points u [K, n] are to be evaluated together."""
        (count, n), m = u.shape, self.problem.n_parameters
        many = count >= FEW_POINTS and n * (n + m) <= SMALL and type(p) is np.ndarray
        return self._at_points if many else None

    def value_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the partial derivative in t."""
        if self._t is None:
            return 0.0
        name = self.name(self.keywords.t)
        return float(check_output(self._t(t, self._see(u), p), name, (), t))

    def add_hessian(
        self,
        weight: float,
        point: Point,
        direction: Direction,
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> None:
        """Add ``weight`` times the derivative of the gradient along a direction."""
        if self._hessian is None:
            return
        name = self.name(self.keywords.hessian)
        t, u, p = point
        du, dp = direction
        out_u, out_p = out
        m = out_p.size
        compiled = self.supplied.hessian
        if isinstance(compiled, Compiled):
            work = self._work_of_hessian
            compiled.fill_all(name, t, (u, p, du, dp), work)
            # H (du, dp) = (psi_uu du + psi_up dp, psi_pu du + psi_pp dp).
            out_u.axpy(weight, work[0])
            out_p.axpy(weight, work[1])
            return
        if self._numpy:
            values = self._hessian(t, read(u), p, read(du), dp)
            by_u, by_p = check_tuple(values, name, "array [n]", "array [m]")
            add_to(out_u, weight, check_output(by_u, name, (out_u.size,), t))
            if m:
                add_to(out_p, weight, check_output(by_p, name, (m,), t))
            return
        work_u, work_p = out_u.duplicate(), out_p.duplicate()
        if self.problem.field_parameter:
            self._hessian(t, u, p, du, dp, work_u, work_p)
        else:
            by_p = self._hessian(t, u, p, du, dp, work_u)
            if m:
                scatter(check_output(by_p, name, (m,), t), work_p)
        out_u.axpy(weight, work_u)
        if m:
            out_p.axpy(weight, work_p)
        work_u.destroy()
        work_p.destroy()

    @cached_property
    def _work_of_hessian(self) -> tuple[PETSc.Vec, PETSc.Vec]:
        return self.problem.create_state(), self.problem.create_parameters()

    def time_hessian(self, point: Point, out: tuple[PETSc.Vec, PETSc.Vec]) -> float:
        """Fill ``out`` with the derivatives of ``value_t`` in u and p; return that in t."""
        t, u, p = point
        out_u, out_p = out
        out_u.zeroEntries()
        out_p.zeroEntries()
        if self._hessian_t is None:
            return 0.0
        name, m = self.name(self.keywords.hessian_t), out_p.size
        if not self._numpy and self.problem.field_parameter:
            return float(self._hessian_t(t, u, p, out_u, out_p))
        if self._numpy:
            values = self._hessian_t(t, read(u), p)
            by_u, by_p, by_t = check_tuple(values, name, "array [n]", "array [m]", "number")
            write(out_u, check_output(by_u, name, (out_u.size,), t))
        else:
            values = self._hessian_t(t, u, p, out_u)
            by_p, by_t = check_tuple(values, name, "array [m]", "number")
        if m:
            scatter(check_output(by_p, name, (m,), t), out_p)
        return float(check_output(by_t, name, (), t))

    def _see(self, u: PETSc.Vec) -> Any:
        return read(u) if self._numpy else u

    def _derivative(
        self,
        value: Callable[..., Any],
        derivative: Callable[..., Any] | str | None,
        position: int,
        keyword: str,
    ) -> Callable[..., Any] | None:
        name = self.name(keyword)
        if isinstance(derivative, str) and derivative in (INDEPENDENT, AUTONOMOUS):
            return None
        if callable(derivative):
            return guarded(derivative, name, self.problem.comm)
        word = INDEPENDENT if position else AUTONOMOUS
        if derivative is not None:
            raise InputError(f"{name} = {derivative!r}", expected=f'a callback or "{word}"')
        if self._automatic:
            step = AutomaticJacobian(value, position, self._name, f"{keyword}=callback")
            # A scalar is an observation of one row: its Jacobian [1, n] without the first axis.
            if position:
                return lambda *point: step(*point)[0]
            return lambda *point: step(*point)[0, 0]
        return _refusing(name, f'{keyword}=callback, or "{word}"')

    def _of_many_points(
        self, value: Callable[..., Any], supplied: Derivatives
    ) -> Differentiated | None:
        """Return what evaluates it at many points at once, where its slopes are automatic."""
        written = [slope for slope in (supplied.u, supplied.p) if slope not in (None, INDEPENDENT)]
        if not self._automatic or written or (self._u is None and self._p is None):
            return None
        return Differentiated(value, self._name, f"{self.keywords.u}=callback")

    def _second(self, supplied: Derivatives) -> Callable[..., Any] | None:
        """Return the user's second derivatives, automatic ones, or their refusal."""
        keyword = self.keywords.hessian
        name = self.name(keyword)
        if supplied.hessian is not None:
            return guarded(supplied.hessian, name, self.problem.comm)
        gradients = {1: supplied.u, 2: supplied.p}
        # A gradient that is zero by declaration has no second derivatives, mixed ones included.
        wanted = {k: gradient for k, gradient in gradients.items() if gradient != INDEPENDENT}
        if not wanted:
            return None
        # Gradients that the user gave in Python are differentiated once; where they are missing
        # the value is, twice.
        first = {
            k: _row(gradient) if _in_python(gradient) else None for k, gradient in wanted.items()
        }
        if not self._automatic and (not self._numpy or None in first.values()):
            return _refusing(name, f"{keyword}=callback{_NOT_AUTOMATIC}", "gradients only")
        product = AutomaticHessian(self._value, first, self._name, f"{keyword}=callback")
        nothing = (np.zeros(self.problem.size), np.zeros(self.problem.n_parameters))

        def call(t: float, u: Array, p: Any, du: Array, dp: Any) -> tuple[Array, Array]:
            directions = {1: du, 2: dp}
            result = product((t, u, p), np.ones(1), {k: directions[k] for k in wanted})
            return result.get(1, nothing[0]), result.get(2, nothing[1])

        return call

    def _second_in_time(self, supplied: Derivatives) -> Callable[..., Any] | None:
        """Return the derivatives of ``value_t``, like ``_second``."""
        keyword = self.keywords.hessian_t
        name = self.name(keyword)
        user = supplied.hessian_t
        if isinstance(user, str) and user != INDEPENDENT:
            raise InputError(f"{name} = {user!r}", expected=f'a callback or "{INDEPENDENT}"')
        if user is not None and not isinstance(user, str):
            user = guarded(user, name, self.problem.comm)
        # value_t is zero or a constant: nothing to differentiate.
        if self._t is None or isinstance(user, str):
            return None
        if user is not None:
            return user
        gradients: dict[int, Any] = {0: supplied.t, 1: supplied.u, 2: supplied.p}
        wanted = {k: gradient for k, gradient in gradients.items() if gradient != INDEPENDENT}
        first: dict[int, Any] = {
            k: (_row(gradient) if k else gradient) if _in_python(gradient) else None
            for k, gradient in wanted.items()
        }
        if not self._automatic and (not self._numpy or None in first.values()):
            other = f' or {self.keywords.t}="{AUTONOMOUS}"'
            return _refusing(name, f"{keyword}=callback{other}{_NOT_AUTOMATIC}", "gradients only")
        product = in_time(self._value, first, self._name, f"{keyword}=callback")
        nothing = (np.zeros(self.problem.size), np.zeros(self.problem.n_parameters))

        def call(t: float, u: Array, p: Any) -> tuple[Array, Array, float]:
            # Along t: (psi_ut, psi_pt, psi_tt).
            result = product((t, u, p), np.ones(1), {0: np.ones(1)})
            by_u, by_p = result.get(1, nothing[0]), result.get(2, nothing[1])
            return by_u, by_p, float(result[0][0])

        return call


def in_c(scalar: object, first: int, last: int) -> tuple[Address, ...] | None:
    """Return some of a scalar's value, gradients in u and p, and Hessian product: where they are.

    None if one of them is no C function.
    """
    functions = scalar.in_c[first:last] if isinstance(scalar, Callback) else (None,)
    return None if None in functions else functions  # pyright: ignore[reportReturnType]


_LAST: WeakKeyDictionary[object, Callback] = WeakKeyDictionary()


def callback_of(
    owner: object,
    problem: Problem,
    title: str,
    value: Callable[..., Any],
    supplied: Derivatives,
    keywords: Keywords = Keywords(),
    branches: Branches | None = None,
) -> Callback:
    """Return the scalar of an objective; that of the last call again, if the problem is the same.

    Small problems would notice what it takes to look at all callbacks.
    """
    # Weak: the callbacks of an objective live as long as it does.
    last = _LAST.get(owner)
    if last is None or last.problem is not problem:
        last = _LAST[owner] = Callback(problem, title, value, supplied, keywords)
        if branches is not None:
            last.branches = branches
    return last


_NOT_AUTOMATIC = (
    ": second derivatives of PETSc-style and compiled callbacks cannot be found automatically"
)


def _with_natives(
    problem: Problem, title: str, value: Any, supplied: Derivatives, keywords: Keywords
) -> tuple[Any, Derivatives]:
    """Return the callbacks with C functions made callable."""
    roles = Roles(
        problem.size, problem.n_parameters, weighted=False, numpy=problem.style == "numpy"
    )

    def admit(role: Role, callback: Any, keyword: str) -> Any:
        if callback is None or isinstance(callback, str):
            return callback
        return roles.admit(role, callback, f"{title} {keyword}".strip())

    function = admit("number", value, keywords.value)
    if not callable(function):
        raise InputError(f"{title} = {value!r}", expected="a function (t, u, p) -> float")
    return function, Derivatives(
        admit("slope_u", supplied.u, keywords.u),
        admit("slope_p", supplied.p, keywords.p),
        admit("number", supplied.t, keywords.t),
        admit("hessian", supplied.hessian, keywords.hessian),
        admit("hessian_t", supplied.hessian_t, keywords.hessian_t),
    )


def _address(function: object) -> Address | None:
    if isinstance(function, Compiled):
        return function.native.where
    return (0, 0) if function == INDEPENDENT else None


def _in_python(derivative: object) -> TypeGuard[Callable[..., Any]]:
    """Whether a derivative is a callback that can be differentiated."""
    return callable(derivative) and not isinstance(derivative, Compiled)


def _with_known(supplied: Derivatives, value: Callable[..., Any]) -> Derivatives:
    """Say of missing derivatives which are zero, because the function never reads the argument."""
    words = {"t": AUTONOMOUS, "u": INDEPENDENT, "p": INDEPENDENT}
    known = {
        name: word
        for position, (name, word) in enumerate(words.items())
        if getattr(supplied, name) is None and ignores(value, position)
    }
    return replace(supplied, **known) if known else supplied


def _row(gradient: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *point: np.reshape(gradient(*point), (1, -1))


def _refusing(name: str, expected: str, enough: str = "") -> Callable[..., Any]:
    def refuse(*_arguments: Any) -> Any:
        raise UnsupportedError(
            f"'{name}' is needed and was not supplied",
            expected=expected,
            remedy=f"{name.rsplit(maxsplit=1)[-1]}=..., or a method that needs {enough}"
            if enough
            else "",
        )

    return refuse
