"""The bases that runs come to: each is a mode, whose equations are compiled functions with data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import SolveError
from daeosens.petsc._kernels import call_points
from daeosens.petsc.c_function import Native
from daeosens.petsc.vectors import Array
from daeosens.problem.event import Event
from daeosens.problem.problem import Problem
from daeosens.tracing.execution import with_data
from daeosens.tracing.linear_daeo.highs import Solver
from daeosens.tracing.linear_daeo.programme import (
    BASIC,
    FREE,
    LOWER,
    ROUNDING,
    UPPER,
    Basis,
    Sides,
)

BOUNDS = {LOWER: "lower", UPPER: "upper", FREE: "own"}

BEYOND = 1e-7
"""A bound that no flows can keep is passed by so much before the programme counts as infeasible:
states that should end at zero end beside it."""

MET = 1e-6
"""Relative to what it is made of, a distance is smaller where an event is located."""

PIVOTS = 1000
"""After so many steps of the dual simplex method at one point it goes round in circles."""


class Modes(dict[str, Problem]):
    """Problems by the names of bases, more of them as runs come to more: never taken for empty."""

    def __bool__(self) -> bool:
        return True


@dataclass(eq=False)
class Mode:
    """A basis with what is compiled for it.

    Attributes
    ----------
    name : str
    basis : Basis
    functions : mapping
        The compiled functions, with the flows of f as products with (1, z) as data.
    rows : array [W, 1 + n_z]
        The distances that are watched; of bounds that no flows can keep, to a little beyond.
    events : dict
        That a distance falls to zero, by its number among those that are watched.
    reasons : dict
        Why modes follow, by their names.
    loose : list of int or None
        What could change, and flows in f with it, without any objective; None before it is found.
    """

    name: str
    basis: Basis
    functions: Mapping[str, Any]
    rows: Array
    events: dict[int, Event] = field(default_factory=dict[int, Event])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    loose: list[int] | None = None


class _InfeasibleError(SolveError):
    """No flow can become basic in the place of one that is beyond its bound."""

    def __init__(self, basis: Basis, place: tuple[int, int]) -> None:
        super().__init__("the linear programme is infeasible")
        self.basis, self.place = basis, place


class Bases:
    """The bases of one model.

    Parameters
    ----------
    solver : Solver
        Of the programme.
    needed : array of int [F]
        The flows that f depends on.
    ready : mapping
        The compiled functions: "rhs" and its derivatives, "motion", (t, x, p) -> (z, dz/dt), and
        "bounds", (t, x, p) -> z.
    taking : set of str
        Those that take data.
    problem : callable
        Makes the problem of a mode from its functions.

    Attributes
    ----------
    modes : Modes
        The problems.
    n_z : int
        How many numbers the bounds depend on.
    """

    def __init__(
        self,
        solver: Solver,
        needed: npt.NDArray[np.intp],
        ready: Mapping[str, Any],
        taking: Collection[str],
        problem: Callable[[Mapping[str, Any]], Problem],
    ) -> None:
        self.programme, self.needed, self.ready = solver.programme, needed, ready
        self._taking = taking
        self.n_z = solver.programme.low.shape[1] - 1
        self.modes, self._problem = Modes(), problem
        self._bases: dict[bytes, Basis] = {}
        self._known: dict[bytes, Mode] = {}
        self._named: dict[str, Mode] = {}
        self._solver = solver
        self._start: Basis | None = None

    def __getitem__(self, name: str) -> Mode:
        return self._named[name]

    def mode(self, basis: Basis) -> Mode:
        """Return the mode of a basis."""
        key = basis.side.tobytes()
        if key not in self._known:
            name = f"basis {len(self._known)}"
            functions = self.bound(basis.values[self.needed])
            self._known[key] = self._named[name] = Mode(
                name, basis, functions, basis.distances[basis.watched]
            )
            self.modes[name] = self._problem(functions)
        return self._known[key]

    def bound(self, data: Array) -> Mapping[str, Any]:
        """Return the compiled functions that take data, with these."""
        return with_data({name: self.ready[name] for name in self._taking}, data)

    def motion(self, mode: Mode, t: Array, x: Array, p: Array) -> tuple[Array, Array]:
        """Return (1, z) and its derivative along the run [K, 1 + n_z] at points [K], [K, n_x]."""
        function: Any = mode.functions["motion"]
        out = np.empty((len(t), 2 * self.n_z))
        # compiled: all points in one call, without Python in between
        if isinstance(function, Native):
            inputs = np.ascontiguousarray(x), np.ascontiguousarray(p)
            call_points(
                *function.where,
                np.ascontiguousarray(t, dtype=float),
                inputs,
                (out,),
            )
        else:
            for k, point in enumerate(zip(t, x, strict=True)):
                out[k] = function(*point, p)
        z, rates = np.ones((len(t), 1 + self.n_z)), np.zeros((len(t), 1 + self.n_z))
        z[:, 1:], rates[:, 1:] = out[:, : self.n_z], out[:, self.n_z :]
        return z, rates

    def flows(self, places: Sequence[tuple[str, Array]], t: Array, x: Array) -> Array:
        """Return all flows [K, n_v] at points, each with a mode and parameters."""
        flows = np.empty((len(t), len(self.programme.flows)))
        # flows are linear in (1, z) in each basis: points of one basis and one p are one product
        kinds = [(mode, id(p)) for mode, p in places]
        for kind in set(kinds):
            here = np.array([kind_here == kind for kind_here in kinds])
            mode, p = self[kind[0]], places[int(np.argmax(here))][1]
            z, _ = self.motion(mode, t[here], x[here], p)
            flows[here] = z @ mode.basis.values[: flows.shape[1]].T
        return flows

    # ---- which basis -----------------------------------------------------------------------------

    def first(self, t: float, x: Array, p: Array) -> Mode:
        """Return the optimal basis at a point and a little later, from the linear programme.

        Raises
        ------
        SolveError
            The programme is infeasible or unbounded.
        """
        z = self._bounds(t, x, p)
        n = len(self.programme.flows)
        low, high = (_times(rows[:n], z) for rows in (self.programme.low, self.programme.high))
        if np.isnan(low).any() or np.isnan(high).any():
            k = int(np.argmax(np.isnan(low) | np.isnan(high)))
            raise SolveError(
                f"the bounds of {self.programme.name(k)} are {low[k]:g} and {high[k]:g} at "
                f"t = {t:.9g}, x = {x}",
                expected="numbers",
            )
        basis = None
        if self._start is not None:  # so that runs from near by have the same bases
            with suppress(SolveError):
                basis = self._feasible(self._start, z, np.zeros_like(z))
        if basis is None:
            self._start = self._solved(low, high, t)
            basis = self._within(self._start, t, z, np.zeros_like(z))
        return self.settled(self.mode(basis), t, x, p)

    def _solved(self, low: Array, high: Array, t: float) -> Basis:
        """Return the basis that HiGHS finds, certified to be optimal."""
        side = self._solver.solve(low, high, f"at t = {t:.9g}")
        basis = self._basis(side)
        # bounds that are one at this point, but not for ever: the one that the objectives press to
        met = np.zeros(len(side), dtype=bool)
        # A flow whose bounds meet may be held by either; reduced costs say by which it goes on.
        met[: len(low)] = (low == high) & (side[: len(low)] != BASIC)
        turned = side.copy()
        turned[met & (basis.rank_sign < 0)] = UPPER
        turned[met & (basis.rank_sign > 0)] = LOWER
        basis = self._basis(turned)
        if not basis.optimal:
            raise SolveError(
                f"no basis of the linear programme at t = {t:.9g} is certified to be optimal for "
                f"all {len(self.programme.costs)} objectives",
                remedy="flows of like sizes, fewer objectives",
            )
        return basis

    def settled(
        self, mode: Mode, t: float, x: Array, p: Array, left: tuple[int, int] | None = None
    ) -> Mode:
        """Return the basis that is feasible at a point and a little later, from an optimal one.

        Whose flows are feasible there.

        Parameters
        ----------
        left : (int, int), optional
            An unknown that leaves in any case, and its bound.

        Raises
        ------
        SolveError
            The programme is infeasible there, or a little later.
        """
        z, rates = (values[0] for values in self.motion(mode, np.array([t]), x[None], p))
        basis = self._within(mode.basis, t, z, rates, left)
        return mode if basis is mode.basis else self.mode(basis)

    def _within(
        self, basis: Basis, t: float, z: Array, rates: Array, left: tuple[int, int] | None = None
    ) -> Basis:
        """Return ``_feasible``, with the words of the error for users."""
        try:
            return self._feasible(basis, z, rates, left)
        except _InfeasibleError as error:
            raise self._infeasible(error.basis, t, z, *error.place) from None

    def _feasible(
        self, basis: Basis, z: Array, rates: Array, left: tuple[int, int] | None = None
    ) -> Basis:
        """Return a basis within bounds, and a little later as well, by the dual simplex method.

        A flow that is beyond a bound, or at it and moving on, leaves the basis, one after the
        other.  Where flows are the same in all of these bases, so are the ways (1, z)' of bounds.
        """
        for _ in range(PIVOTS):
            # Dual simplex method: reduced costs stay of the right sign, flows are brought within
            # bounds one by one. The objectives do not change, so optimality is kept.
            left = left or self._leaving(basis, z, rates)
            if left is None:
                return basis
            sides = basis.after(*left)
            if sides is None:
                raise _InfeasibleError(basis, left)
            basis, left = self._basis(sides), None
        raise SolveError(
            f"the dual simplex method finds no feasible basis in {PIVOTS} steps",
            expected="bounds that are not all active at once",
            remedy="objectives that tell more flows apart",
        )

    def check_met(self, mode: Mode, row: Array, t: float, x: Array, p: Array) -> None:
        """Refuse a distance that changes its sign without being zero: a bound has jumped.

        Raises
        ------
        SolveError
        """
        z, _ = self.motion(mode, np.array([t]), x[None], p)
        if abs(row @ z[0]) > MET * (np.abs(row) @ np.abs(z[0])):
            raise SolveError(
                f"a bound jumps at t = {t:.9g}",
                expected="bounds that are continuous along the run",
                remedy='a parameter in it that changes at an event: events=[Event(1.0, changes={"'
                'limit": lambda t, x, p: 2.0})]',
            )

    def _leaving(self, basis: Basis, z: Array, rates: Array) -> tuple[int, int] | None:
        """Return the unknown and the bound that it is beyond, or comes beyond at once, if any."""
        # Distances of basic flows from their bounds are linear in (1, z), and so are their rates.
        distances, slopes = basis.distances @ z, basis.distances @ rates
        size = ROUNDING * (np.abs(basis.distances) @ np.abs(z))
        speed = ROUNDING * (np.abs(basis.distances) @ np.abs(rates))
        # beyond a bound, or at it and on the way out: then it would be beyond at once
        falls = (distances < -size) | ((distances <= size) & (slopes < -speed))
        # the furthest beyond its bound first (the largest infeasibility); those on their way out
        # keep their order
        order = np.argsort(np.where(distances < -size, distances, 0.0), kind="stable")
        chosen: list[int] = order[falls[order]].tolist()
        for k in chosen:
            # a flow beyond by no more than rounding and without a successor stays: ``BEYOND`` is
            # its room
            if distances[k] < -BEYOND or basis.after(*basis.places[k]) is not None:
                return basis.places[k]
        return None

    def _basis(self, sides: Sides) -> Basis:
        key = sides.tobytes()
        if key not in self._bases:
            self._bases[key] = Basis(self.programme, sides)
        return self._bases[key]

    def check_kept(self, mode: Mode, t: float, x: Array, p: Array) -> None:
        """Refuse flows that are beyond their bounds: something has jumped.

        Raises
        ------
        SolveError
        """
        z, _ = self.motion(mode, np.array([t]), x[None], p)
        distances = mode.basis.distances @ z[0]
        if (distances < -10.0 * BEYOND).any():
            number, _ = mode.basis.places[int(np.argmin(distances))]
            raise SolveError(
                f"the flows jump at t = {t:.9g}: {self.programme.name(number)} is out of bounds",
                expected="bounds that are continuous, and events that the model knows",
                remedy="LinearDAEO(..., events=[...]) for an event that changes the state",
            )

    def _infeasible(self, basis: Basis, t: float, z: Array, number: int, bound: int) -> SolveError:
        """Return the error of a programme that becomes infeasible, in words of flows and bounds."""
        programme = self.programme
        low, high = (_times(rows, z) for rows in (programme.low, programme.high))
        if bound == BASIC:
            what = f"the lower bound of {programme.name(number)} comes above the upper one"
        else:
            held = [
                f"{programme.name(k)} is at its {BOUNDS[int(basis.side[k])]} bound "
                f"{(low if basis.side[k] == LOWER else high)[k]:.6g}"
                for k in np.flatnonzero(basis.row(number)).tolist()
                if k < len(programme.flows)
            ]
            more = f" and {len(held) - 5} more" if len(held) > 5 else ""
            what = (
                f"{programme.name(number)} cannot keep its {BOUNDS[bound]} bound "
                f"{(low if bound == LOWER else high)[number]:.6g}, because {', '.join(held[:5])}"
                f"{more}"
            )
        return SolveError(
            f"the linear programme is infeasible from t = {t:.9g} on: {what}",
            expected="flows that satisfy A v = b within all bounds",
            remedy="wider bounds; np.maximum(x[k], 0.0) in bounds of a state that should end at "
            "zero; an event that ends the run before; the run so far is error.run",
        )

    def check_unique(self, mode: Mode, t: float, x: Array, p: Array) -> None:
        """Refuse flows that f depends on and that could change without any objective.

        Raises
        ------
        SolveError
            Names some of them.
        """
        basis, programme = mode.basis, self.programme
        if mode.loose is None:
            mode.loose = self._loose(basis)
        if not mode.loose:
            return
        z, rates = (first_row[0] for first_row in self.motion(mode, np.array([t]), x[None], p))
        values, room = basis.values @ z, ROUNDING * (1.0 + np.abs(basis.values @ z))
        moves = basis.values @ rates
        # at a bound and not leaving it: then it can move in one direction only
        at_low = (values - _times(programme.low, z) <= room) & (
            moves - programme.low[:, 1:] @ rates[1:] <= room
        )
        at_high = (_times(programme.high, z) - values <= room) & (
            programme.high[:, 1:] @ rates[1:] - moves <= room
        )
        # A nonbasic unknown without reduced cost moves the optimum along its column: unique only
        # if each way is blocked by a basic flow at its bound
        for number in mode.loose:
            column = basis.column(number)
            changed = self.needed[np.abs(column[self.needed]) > ROUNDING].tolist()
            ways = {LOWER: (1.0,), UPPER: (-1.0,)}.get(int(basis.side[number]), (1.0, -1.0))
            for way in ways if changed else ():
                falls, rises = way * column < -ROUNDING, way * column > ROUNDING
                if ((falls & at_low) | (rises & at_high)).any():
                    continue
                names = [programme.name(k) for k in changed]
                raise SolveError(
                    f"the optimum of the linear programme is not unique at t = {t:.9g}: no "
                    f"objective says what {', '.join(names[:4])} should be",
                    expected="objectives that leave no choice of the flows in f",
                    remedy=f"one more objective, last in rank: {names[0]!r}",
                )

    def _loose(self, basis: Basis) -> list[int]:
        """Return the unknowns that no objective holds and with which flows in f change."""
        effect = np.zeros(len(basis.side))
        # rows of the tableau say with which nonbasic unknowns the flows in f change
        effect[self.needed] = 1.0
        for number in self.needed.tolist():
            if basis.side[number] == BASIC:
                effect += np.abs(basis.row(number))
        return [number for number in basis.indifferent if effect[number] > ROUNDING]

    def _bounds(self, t: float, x: Array, p: Array) -> Array:
        function: Any = self.ready["bounds"]
        out = np.empty((1, self.n_z))
        if isinstance(function, Native):
            inputs = np.ascontiguousarray(x[None]), np.ascontiguousarray(p)
            call_points(*function.where, np.array([float(t)]), inputs, (out,))
        else:
            out[0] = function(t, x, p)
        return np.concatenate([[1.0], out[0]])


def _times(rows: Array, z: Array) -> Array:
    """Return products with (1, z), where the first column may be infinite."""
    return rows[:, 0] + rows[:, 1:] @ z[1:]
