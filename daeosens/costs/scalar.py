"""Scalar functions of (t, u, p) given by callbacks: of costs, observations and events.

What is missing among their derivatives is automatic, or refused where it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.costs.cost import Direction, Point
from daeosens.costs.scalar_at_points import scalar_at_points
from daeosens.costs.scalar_derivatives import (
    COST,
    Derivatives,
    Keywords,
    ScalarDerivatives,
    named,
    with_known,
    with_natives,
)
from daeosens.errors import DaeosensError, InputError
from daeosens.petsc.vectors import add_to, read, scatter, write
from daeosens.problem.branches import Branches
from daeosens.problem.c_callback import Compiled
from daeosens.problem.callback_guard import check_output, check_tuple, guarded, raise_together
from daeosens.problem.problem import INDEPENDENT, Problem

Address: TypeAlias = tuple[int, int]
"""Of a C function, and of its user data; both 0 for a gradient that is zero."""

SAME = 1e-9
"""Values of two ranks that differ by more than this part of the largest one so far are two: near a
zero they may differ by rounding."""


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
    at_points : ScalarAtPoints or None
        Its derivatives at many points at once, where it can be evaluated there.
    """

    def __init__(
        self,
        problem: Problem,
        title: str,
        value: Callable[..., Any],
        supplied: Derivatives,
        keywords: Keywords = COST,
    ) -> None:
        self.title = title
        self.function, self.supplied = with_natives(problem, title, value, supplied, keywords)
        self.keywords = keywords
        self.problem = problem
        self._name = self.name(keywords.value)
        self._numpy = problem.style == "numpy"
        self._compiled = self.function if isinstance(self.function, Compiled) else None
        self._value = guarded(self.function, self._name, problem.comm)
        known = with_known(self.supplied, self.function)
        derivatives = ScalarDerivatives(problem, title, self.function, self._value, known, keywords)
        self.branches = Branches(self.function) if derivatives.automatic else None
        self._u, self._p, self._t = (derivatives.first(position) for position in (1, 2, 0))
        self._hessian = derivatives.second()
        self._hessian_t = derivatives.second_in_time()
        self.at_points = scalar_at_points(derivatives, (self._u, self._p), self._hessian)
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
        return named(self.title, keyword)

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
    keywords: Keywords = COST,
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


def _address(function: object) -> Address | None:
    if isinstance(function, Compiled):
        return function.native.where
    return (0, 0) if function == INDEPENDENT else None
