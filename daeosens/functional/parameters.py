"""What an optimiser moves: named parameters, and an initial state that may follow them.

Each control is one differentiable map from the optimisation variables x to (u0, p).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.prior import shape_of
from daeosens.derivatives.adjoint import Gradient
from daeosens.derivatives.hessian import HessianProduct
from daeosens.errors import InputError, nearest, require, together
from daeosens.functional.consistent_initial_state import ConsistentStart
from daeosens.functional.functional import Functional
from daeosens.functional.initial_state import StartMap
from daeosens.functional.parameter import Parameter, entries_of, exponential
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, created, gather, keep_unshared, refuse_not_finite, scatter
from daeosens.problem.matrices import Products
from daeosens.problem.problem import Problem
from daeosens.timestepping.stepping import Stepping


class Control(Protocol):
    """A differentiable map x -> (u0, p); every method is collective on the problem's comm."""

    def check(self, problem: Problem) -> None:
        """Raise ``InputError`` for anything that does not fit the problem."""
        ...

    def start(self, problem: Problem) -> PETSc.Vec:
        """Return a new vector with the starting point."""
        ...

    def bounds(self, problem: Problem) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return lower and upper bounds of x, or None."""
        ...

    def unpack(self, problem: Problem, x: PETSc.Vec) -> tuple[Any, Any]:
        """Return (u0, p) as ``solve`` takes them."""
        ...

    def pull_back(self, problem: Problem, x: PETSc.Vec, gradient: Gradient) -> PETSc.Vec:
        """Return the gradient in x, given the one in (u0, p)."""
        ...

    def push_forward(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec
    ) -> tuple[PETSc.Vec | None, PETSc.Vec | None]:
        """Return the direction (du0, dp) of a direction in x."""
        ...

    def pull_back_second(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec, product: HessianProduct
    ) -> PETSc.Vec:
        """Return the Hessian product in x, given the one in (u0, p) along ``push_forward``.

        Without a gradient in ``product`` (Gauss-Newton) the map's own curvature is left out.
        """
        ...


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where the free parameters are among the m of a problem, and among the k of x.

    Attributes
    ----------
    values : array [m]
        All parameters at the start.
    positions : array of int
        Those that are free, among the problem's.
    free : array of int
        Where the same are in x, which may have those of other experiments too.
    logs : array of bool
        Which of these are on a log scale.
    log_places : list of int
        Their numbers.
    """

    values: Array
    positions: npt.NDArray[np.intp]
    free: npt.NDArray[np.intp]
    logs: npt.NDArray[np.bool_]
    log_places: list[int]


@dataclass(frozen=True, eq=False)
class Parameters:
    """Named numbers, some of them free, and the initial state as a function of them.

    What it makes of vectors, and of a problem, is collective on their communicator.

    Parameters
    ----------
    values : mapping of str to Parameter or float, or to arrays of them
        One entry for each of ``problem.parameter_names``; a plain number is a fixed parameter.  An
        array, or a ``Parameter`` of one, for a vector or matrix of a traced model; single entries,
        ``"A[0,1]"``, may be named beside it, and go first.
    initial_state : array or Vec [n], or callable
        The initial state, of which a copy is kept (collective if it is distributed: gradients and
        values that are remembered would belong to another one), or ``p -> array [n]`` (PETSc style
        ``(p, out)``), differentiated.
    initial_state_p : callable or Products, optional
        Its Jacobian, ``p -> array [n, m]``; automatic where missing.  PETSc style:
        ``(p, w) -> array [m]``, the transposed Jacobian times a Vec ``w`` [n], on every rank; where
        tangents or Hessians are needed ``Products`` of ``(p, dp, out)`` and that.
    initial_state_hessian : callable, optional
        ``(p, w, dp) -> array [m]``, the derivative of the transposed Jacobian times ``w`` along
        ``dp``; NumPy style: automatic where missing.
    consistent : bool
        Whether the algebraic variables of the initial state are solved for at each p, as
        ``consistent_state`` does at one, and differentiated; ``initial_state`` gives the
        differential ones, and guesses.
    stepping : Stepping, optional
        Of the runs, for the time of their start and the options of the linear solver, where that is
        to be consistent; ``Reduced`` fills it in.
    own : mapping of str to str, optional
        Names of entries that stand for parameters of the problem: {"V": "V (patient 2)"}.  So
        several ``Parameters`` with the same entries, in a ``Joint``, have parameters of their own;
        entries that belong to the others are then known to this one too.

    Raises
    ------
    InputError
        All that is wrong with the entries, at once.

    Examples
    --------
    >>> rates = Parameters({"rate": Parameter(0.5, lower=0.0)}, initial_state=[1.0])
    >>> blocks = {"r": Parameter([0.5, 0.2]), "A": np.eye(2), "A[0,1]": Parameter(0.1)}
    >>> Parameters(blocks, initial_state=[1.0, 1.0]).free_names
    ('r[0]', 'r[1]', 'A[0,1]')
    """

    values: Mapping[str, Any]
    initial_state: Any
    initial_state_p: Callable[..., Any] | Products | None = None
    initial_state_hessian: Callable[..., Any] | None = None
    consistent: bool = False
    stepping: Stepping | None = field(default=None, repr=False)
    own: Mapping[str, str] | None = field(default=None, repr=False)
    entries: dict[str, Parameter] = field(init=False)

    def __post_init__(self) -> None:
        require(self.values, Mapping, "values", 'Parameters({"rate": Parameter(1.0)}, ...)')
        complaints = [
            f"the name {name!r} is no str" for name in self.values if not isinstance(name, str)
        ]
        entries: dict[str, Parameter] = {}
        for name, value in self.values.items():
            block = entries_of(name, value)
            # an entry that is named itself goes first, wherever it stands
            entries |= {
                label: entry
                for label, entry in block.items()
                if label == name or label not in entries
            }
        if not isinstance(self.consistent, (bool, np.bool_)):
            complaints.append(f"consistent = {self.consistent!r}; expected: True or False")
        complaints += [line for name, entry in entries.items() for line in entry.complaints(name)]
        aliases: Any = self.own
        pairs: list[Any] = list(aliases.items()) if isinstance(aliases, Mapping) else []  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
        named = isinstance(aliases, Mapping) and all(
            isinstance(word, str) for pair in pairs for word in pair
        )
        if aliases is not None and not named:
            complaints.append(f"own = {aliases!r}; expected: names of entries by parameters")
        elif missing := [word for _, word in pairs if word not in entries]:
            complaints.append(
                f"own names the entry {missing[0]!r}; expected: one of {', '.join(entries)}"
            )
        for name in ("initial_state_p", "initial_state_hessian"):
            callback: Any = getattr(self, name)
            if callback is not None and not (callable(callback) or isinstance(callback, Products)):
                complaints.append(f"{name} = {callback!r}; expected: a callback")
        if self.stepping is not None and not isinstance(self.stepping, Stepping):
            complaints.append(f"stepping = {self.stepping!r}; expected: a Stepping")
        if complaints:
            raise together(complaints, heading="Parameters")
        object.__setattr__(self, "entries", entries)
        keep_unshared(self, "initial_state")

    @cached_property
    def free_names(self) -> tuple[str, ...]:
        """Names of the parameters that the optimiser moves, in the order of x."""
        return tuple(name for name, entry in self.entries.items() if entry.free)

    @cached_property
    def start_map(self) -> StartMap | None:
        """The initial state as a function of the parameters; None where it is fixed."""
        if not callable(self.initial_state):
            return None
        return StartMap(self.initial_state, self.initial_state_p, self.initial_state_hessian)

    @cached_property
    def _start(self) -> StartMap | ConsistentStart | None:
        """The start of runs as a function of the parameters; None where it is fixed."""
        if not self.consistent:
            return self.start_map
        start = self.initial_state if self.start_map is None else self.start_map
        if self.stepping is None:
            raise InputError(
                "consistent=True without the time of the start",
                expected="the Stepping of the runs",
                remedy="Reduced(...), which tells it, or Parameters(..., stepping=stepping)",
            )
        return ConsistentStart(start, self.stepping.t_span[0], self.stepping.options)

    def of_runs(self, stepping: Stepping) -> Parameters:
        """Return the same, with the start made consistent for runs with a Stepping."""
        return replace(self, stepping=stepping) if self.consistent else self

    def check(self, problem: Problem) -> None:
        """Compare the names with the problem's."""
        agree(
            problem.comm,
            "Parameters",
            names=list(self.entries),
            entries=self.entries,
            initial_state=self.initial_state,
            consistent=self.consistent,
        )
        if problem.field_parameter:
            raise InputError(
                "Parameters for a problem whose parameters are fields",
                expected="FieldParameters({...}, initial_state), of a model with fields, "
                "or FieldParameter(...)",
            )
        known = problem.parameter_names
        complaints: list[str] = []
        if self.own is None:
            complaints = [_unknown(name, known) for name in self.entries if name not in known]
        complaints += [
            f'parameter "{name}" has no value; expected: an entry for it'
            for name in known
            if self.entry_of(name) not in self.entries
            and name.partition("[")[0] not in self.entries
        ]
        if not self.free_names:
            complaints.append("no parameter is free; expected: at least one Parameter(free=True)")
        if isinstance(self.initial_state_p, Products) and problem.style == "numpy":
            complaints.append(
                "initial_state_p is Products for a NumPy-style problem; "
                "expected: a callback p -> array [n, m]"
            )
        if complaints:
            raise together(complaints, heading="Parameters")
        if self.start_map is not None:
            self.start_map.at(problem, self._layout(problem).values.copy())
        else:
            problem.admit_state(self.initial_state, "initial_state").destroy()

    def start(self, problem: Problem) -> PETSc.Vec:
        """Return the starting values of the free parameters, scaled [k].  Collective."""
        agree(problem.comm, "Parameters.start")
        return scatter(self._scaled_start, self._new_vec(problem))

    @cached_property
    def _scaled_start(self) -> Array:
        return np.array(
            [entry.scaled(entry.value) for entry in self.entries.values() if entry.free]
        )

    def bounds(self, problem: Problem) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return the scaled bounds [k], or None if there are none.  Collective."""
        agree(problem.comm, "Parameters.bounds")
        free = [entry for entry in self.entries.values() if entry.free]
        if all(math.isinf(entry.lower) and math.isinf(entry.upper) for entry in free):
            return None
        # The logarithm is monotone, so bounds go over one by one; a lower bound of 0 or less is
        # none there.
        lower = [entry.scaled(entry.lower) for entry in free]
        upper = [entry.scaled(entry.upper) for entry in free]
        return scatter(lower, self._new_vec(problem)), scatter(upper, self._new_vec(problem))

    def values_at(self, problem: Problem, x: PETSc.Vec) -> dict[str, float]:
        """Return all parameters by name at x, in their own units.  Collective."""
        require(problem, Problem, "problem", "functional.problem")
        agree(problem.comm, "Parameters.values_at")
        p = self._p(problem, self._admitted(x))
        return dict(zip(problem.parameter_names, p.tolist(), strict=True))

    def estimates_at(self, x: PETSc.Vec) -> dict[str, float]:
        """Return all entries by name at x, in their own units.  Collective."""
        agree(created(x, "x", "result.x").comm, "Parameters.estimates_at")
        values = {name: float(entry.value) for name, entry in self.entries.items()}
        numbers = gather(self._admitted(x)).tolist()
        for name, value in zip(self.free_names, numbers, strict=True):
            log = self.entries[name].scale == "log"
            values[name] = exponential(value, name) if log else value
        return values

    def _admitted(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return a point that the user gave."""
        size = created(x, "x", "result.x").getSize()
        if size != len(self.free_names):
            raise InputError(f"x has size {size}", expected=f"size {len(self.free_names)}")
        return refuse_not_finite(x, "x")

    def entry_of(self, name: str) -> str:
        """Return the name of the entry that stands for a parameter of the problem."""
        require(name, str, "name", "one of problem.parameter_names")
        return name if self.own is None else self.own.get(name, name)

    def unpack(self, problem: Problem, x: PETSc.Vec) -> tuple[Any, Any]:
        """Return (u0, p)."""
        p = self._p(problem, x)
        return self.initial_state if self._start is None else self._start.at(problem, p), p

    def pull_back(self, problem: Problem, x: PETSc.Vec, gradient: Gradient) -> PETSc.Vec:
        """Return (eta_p^T dJ/du0 + dJ/dp) restricted to the free parameters and scaled [k]."""
        p = self._p(problem, x)
        by_p = gradient.p
        if self._start is not None:
            # u0 = eta(p): lam_0 reaches the parameters through eta_p as well.
            by_p = by_p + self._start.transposed(problem, p, gradient.u0_vec)
        layout, slopes = self._chain(problem, p)
        return self._in_x(problem, layout, by_p[layout.positions] * slopes)

    def push_forward(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec
    ) -> tuple[PETSc.Vec | None, PETSc.Vec | None]:
        """Return (eta_p dp, dp)."""
        p = self._p(problem, x)
        layout, slopes = self._chain(problem, p)
        dp = np.zeros(problem.n_parameters)
        # dp/dx is p for x = log p and 1 else; parameters that are fixed do not move.
        dp[layout.positions] = gather(dx)[layout.free] * slopes
        direction = scatter(dp, problem.create_parameters())
        du0 = None if self._start is None else self._start.tangent(problem, p, dp)
        return du0, direction

    def pull_back_second(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec, product: HessianProduct
    ) -> PETSc.Vec:
        """Return the Hessian product in the free parameters, scaled [k]."""
        p = self._p(problem, x)
        layout, slopes = self._chain(problem, p)
        by_p = product.p
        start = self._start
        if start is not None:
            # eta_p^T lam_dot_0 + mu_dot_0; the term with eta_pp follows, as it needs lam_0.
            by_p = by_p + start.transposed(problem, p, product.u0_vec)
        if product.gradient is None:
            return self._in_x(problem, layout, by_p[layout.positions] * slopes)
        along = gather(dx)[layout.free]
        gradient = product.gradient.p
        if start is not None:
            # (lam_0^T eta_pp) dp.
            dp = np.zeros(problem.n_parameters)
            dp[layout.positions] = along * slopes
            lam = product.gradient.u0_vec
            by_p = by_p + start.curvature(problem, p, lam, dp)
            gradient = gradient + start.transposed(problem, p, lam)
        result = by_p[layout.positions] * slopes
        # The scale bends too: p = exp(x) has d^2p/dx^2 = p, so the Hessian gains (dJ/dp) p on its
        # diagonal, with the whole dJ/dp, start included.
        bends = gradient[layout.positions] * p[layout.positions] * along
        result += np.where(layout.logs, bends, 0.0)
        return self._in_x(problem, layout, result)

    def _in_x(self, problem: Problem, layout: _Layout, values: Array) -> PETSc.Vec:
        """Return a new vector [k] with numbers in the places of what this problem uses of x."""
        whole = np.zeros(len(self.free_names))
        whole[layout.free] = values
        return scatter(whole, self._new_vec(problem))

    def _p(self, problem: Problem, x: PETSc.Vec) -> Array:
        layout = self._layout(problem)
        values = gather(x)[layout.free]
        for k in layout.log_places:
            values[k] = exponential(values[k], self.free_names[layout.free[k]])
        p = layout.values.copy()
        p[layout.positions] = values
        return p

    def _layout(self, problem: Problem) -> _Layout:
        """Return the layout for a problem: many parameters are looked up once only."""
        layout = self._layouts.get(problem)
        if layout is None:
            # Three orders meet: the parameters of the problem, the entries of this control, and
            # x, which has the free entries in the order they were named, those of other
            # experiments among them.
            used = [self.entry_of(name) for name in problem.parameter_names]
            places = {name: k for k, name in enumerate(used)}
            free = [k for k, name in enumerate(self.free_names) if name in places]
            names = [self.free_names[k] for k in free]
            logs = np.array([self.entries[name].scale == "log" for name in names], bool)
            layout = self._layouts[problem] = _Layout(
                np.array(
                    [self.entries[name].value for name in used], dtype=float
                ),  # of whole numbers too
                np.array([places[name] for name in names], dtype=int),
                np.array(free, dtype=int),
                logs,
                np.flatnonzero(logs).tolist(),
            )
        return layout

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: all but the layouts, which belong to problems of this process."""
        return {name: value for name, value in vars(self).items() if name != "_layouts"}

    @cached_property
    def _layouts(self) -> WeakKeyDictionary[Problem, _Layout]:
        return WeakKeyDictionary()

    def _chain(self, problem: Problem, p: Array) -> tuple[_Layout, Array]:
        """Return where the free parameters are, and dp/dx."""
        layout = self._layout(problem)
        return layout, np.where(layout.logs, p[layout.positions], 1.0)

    def _new_vec(self, problem: Problem) -> PETSc.Vec:
        vec = PETSc.Vec().create(comm=problem.comm)
        # PETSc splits x over the ranks; every rank needs all parameters, so x is gathered where
        # it is used.
        vec.setSizes(len(self.free_names))
        vec.setType(PETSc.Vec.Type.STANDARD)
        return vec


def labels(
    functional: Functional, size: int
) -> tuple[tuple[str, ...], tuple[Literal["linear", "log"], ...]]:
    """Return names and scales of the components of x; ``x[i]`` where the functional has none."""
    control = getattr(functional, "control", None)
    if isinstance(control, Parameters):
        names = control.free_names
        return names, tuple(control.entries[name].scale for name in names)
    scales: list[Literal["linear", "log"]] = ["linear"] * size
    return tuple(f"x[{i}]" for i in range(size)), tuple(scales)


def own_sizes(functional: Functional, x: PETSc.Vec) -> Array:
    """Return by how much each unknown [n] changes where its parameter changes by its own size.

    Zero where it and its start are zero.
    """
    _, scales = labels(functional, x.getSize())
    # d log p = 1 is a change by the own size; on a linear scale the start counts where the
    # parameter has gone to zero.
    own = np.maximum(np.abs(gather(x)), np.abs(gather(functional.start())))
    return np.where([scale == "log" for scale in scales], 1.0, own)


def _unknown(name: str, known: Sequence[str]) -> str:
    """Say what to write in the place of a name that the problem does not have."""
    if block := [label for label in known if label.startswith(f"{name}[")]:
        return (
            f'parameter "{name}" is one number for {block[0]} ... {block[-1]}; '
            f"expected: an array, Parameter(np.full({shape_of(block[-1])}, value))"
        )
    return (
        f'parameter "{name}" is not one of the problem\'s; '
        f"try: {nearest(name, known) or ', '.join(known)}"
    )
