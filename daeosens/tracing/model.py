"""A problem that was traced, and what can be traced for it later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.objective import Running, Terminal
from daeosens.errors import InputError
from daeosens.petsc.vectors import Array, finite_array
from daeosens.problem.event import Event
from daeosens.problem.grids import FiniteElements
from daeosens.problem.problem import Problem
from daeosens.tracing.fields import FieldLayout
from daeosens.tracing.named_parameters import Named, Shapes


def _require_mapping(values: object, names: tuple[str, ...]) -> None:
    """Refuse what is no mapping in the place of parameters by name."""
    if values is not None and not isinstance(values, Mapping):
        raise InputError(
            f"pack({values!r})",
            expected=f"parameters by name: {', '.join(names)}",
            remedy="pack(name=value, ...); an array [m] of all of them is p already",
        )


@dataclass(frozen=True, eq=False, repr=False)
class Parametrized(Problem):
    """A ``Problem`` whose parameters have names and shapes.

    Attributes
    ----------
    shapes : Shapes
        Those of the parameters.

    Examples
    --------
    >>> import daeosens as ds
    >>> from petsc4py import PETSc
    >>> from daeosens.problem.grids import Grid
    >>> line = Grid(((0.0, 1.0),), (8,), comm=PETSc.COMM_SELF)
    >>> heat = ds.trace_stencil(lambda t, u, p: p.alpha * u.laplacian(), line, ["alpha"])
    >>> heat.pack(alpha=0.1)
    array([0.1])
    """

    shapes: Shapes = field(default_factory=lambda: Shapes({}))

    def pack(self, values: Mapping[str, npt.ArrayLike] | None = None, **more: Any) -> Array:
        """Return the vector [m] of parameters given by name, row by row.

        Raises
        ------
        InputError
            A name that is missing or unknown, another shape, or a value that is not finite.
        """
        _require_mapping(values, tuple(self.shapes.shapes))
        return self.shapes.pack({**(values or {}), **more})

    def unpack(self, p: Array) -> Named:
        """Return the parameters by name from a vector [m] of them, or of their gradient.

        Raises
        ------
        InputError
            Another shape.
        """
        try:
            flat = np.asarray(p)
        except ValueError as error:  # rows of different lengths
            raise InputError(f"p = {p!r}", expected=f"shape ({self.shapes.size},)") from error
        if flat.shape != (self.shapes.size,):
            raise InputError(f"p has shape {flat.shape}", expected=f"shape ({self.shapes.size},)")
        return self.shapes.split(flat)


@dataclass(frozen=True, eq=False, repr=False)
class FieldModel(Problem):
    """A ``Problem`` on a grid whose parameters are fields, and numbers beside them.

    Attributes
    ----------
    fields : FieldLayout
        Where they are in the vector of all parameters; ``fields.grid.create_vec()`` is a field.

    Examples
    --------
    >>> import daeosens as ds
    >>> from petsc4py import PETSc
    >>> from daeosens.problem.grids import Grid
    >>> line = Grid(((0.0, 1.0),), (4,), comm=PETSc.COMM_SELF)
    >>> def rhs(t, u, p):
    ...     return u.laplacian(p.k) - p.loss * u.center
    >>> heat = ds.trace_stencil(rhs, line, ["loss"], fields=["k"])
    >>> p = heat.pack(loss=2.0, k=0.5)
    >>> heat.unpack(p).k.array
    array([0.5, 0.5, 0.5, 0.5])
    """

    fields: FieldLayout = None  # type: ignore[assignment]

    def pack(self, values: Mapping[str, Any] | None = None, **more: Any) -> PETSc.Vec:
        """Return the vector of all parameters from numbers and fields by name.  Collective.

        A field is a vector of ``fields.grid``, an array of the values at the rank's own points, or
        one number for all.

        Raises
        ------
        InputError
            A name that is missing or unknown, another shape, or a value that is not finite.
        """
        _require_mapping(values, (*self.fields.shapes.shapes, *self.fields.names))
        return self.fields.pack({**(values or {}), **more})

    def unpack(self, p: PETSc.Vec) -> Named:
        """Return numbers and fields by name, from a vector of all or of their gradient.

        Numbers are arrays on every rank, fields new vectors of ``fields.grid``.  Collective.

        Raises
        ------
        InputError
            A vector that is laid out in another way.
        """
        return self.fields.unpack(p)


@dataclass(frozen=True, eq=False, repr=False)
class Model(Parametrized):
    """A ``Problem`` from one traced function, accepted wherever a problem is.

    Attributes
    ----------
    traced_running : Running or None
        What ``running`` returns.
    trace_terminal, trace_event : callable
        What ``terminal`` and ``event`` do.
    graph : Graph or None
        The right-hand side of ``trace``, as it was recorded.
    trace_delayed : callable or None
        Records delays and history of a delay equation too; returns all three graphs.

    Examples
    --------
    >>> import daeosens as ds
    >>> model = ds.trace(lambda t, u, p: p.A @ u, size=2, parameters={"A": (2, 2)})
    >>> model.pack(A=[[0.0, 1.0], [-1.0, 0.0]])
    array([ 0.,  1., -1.,  0.])
    >>> energy = model.terminal(lambda t, u, p: 0.5 * u @ u)
    """

    traced_running: Running | None = None
    trace_terminal: Callable[[Callable[..., Any]], Terminal] | None = None
    trace_event: Callable[[Event], Event] | None = None
    graph: Any = None
    trace_delayed: Callable[[], Any] | None = None

    @property
    def running(self) -> Running:
        """The cost of the density that was traced as ``running``.

        Raises
        ------
        InputError
            The model was traced without one.
        """
        if self.traced_running is None:
            raise InputError(
                "the model has no running cost",
                expected="trace(..., running=density) with density(t, u, p) -> number",
                remedy="that, or daeosens.Running(density), whose derivatives are not compiled",
            )
        return self.traced_running

    def terminal(self, value: Callable[..., Any]) -> Terminal:
        """Return the terminal cost of a traced function (t, u, p) -> number.  Collective."""
        assert self.trace_terminal is not None
        return self.trace_terminal(value)

    def event(self, event: Event) -> Event:
        """Return an event with traced functions, for ``hybrid`` and ``add_events``.  Collective."""
        assert self.trace_event is not None
        return self.trace_event(event)


@dataclass(frozen=True, eq=False, repr=False)
class _Integrals:
    """What problems on finite elements can trace: integrals over the domain.

    Attributes
    ----------
    space : FiniteElements
        The functions.
    """

    space: FiniteElements | None = None
    trace_terminal: Callable[[Callable[..., Any]], Terminal] | None = None
    trace_running: Callable[[Callable[..., Any]], Running] | None = None

    def terminal(self, density: Callable[..., Any]) -> Terminal:
        """Return the integral of a traced function of a point at the final time.  Collective.

        Parameters
        ----------
        density : callable
            ``density(t, u, p) -> number``, u as in ``trace_weak_form``.
        """
        assert self.trace_terminal is not None
        return self.trace_terminal(density)

    def running(self, density: Callable[..., Any]) -> Running:
        """Return the integral of such a function over the domain and over time.  Collective."""
        assert self.trace_running is not None
        return self.trace_running(density)


@dataclass(frozen=True, eq=False, repr=False)
class WeakForm(_Integrals, Parametrized):
    """A problem on finite elements, for whose integrals over the domain costs can be traced.

    Attributes
    ----------
    space : FiniteElements
        Its functions.

    Examples
    --------
    >>> import daeosens as ds
    >>> import skfem
    >>> from petsc4py import PETSc
    >>> from daeosens.problem.grids import FiniteElements
    >>> from daeosens.tracing import trace_weak_form
    >>> line = skfem.Basis(skfem.MeshLine().refined(3), skfem.ElementLineP1())
    >>> space = FiniteElements(line, comm=PETSc.COMM_SELF)
    >>> growth = trace_weak_form(lambda t, u, p: (p.rate * u.value, 0.0), space, ["rate"])
    >>> mean = growth.terminal(lambda t, u, p: u.value[0])
    >>> run = ds.solve(
    ...     growth, space.interpolate(lambda x: x[0]), [1.0], ds.Stepping((0.0, 1.0), "cn", dt=0.01)
    ... )
    >>> round(ds.adjoint(run, mean).value, 3)
    1.359
    """


@dataclass(frozen=True, eq=False, repr=False)
class FieldWeakForm(_Integrals, FieldModel):
    """A problem on finite elements whose parameters are fields, and numbers beside them.

    Attributes
    ----------
    space : FiniteElements
        Its functions.

    Examples
    --------
    >>> import daeosens as ds
    >>> import skfem
    >>> from petsc4py import PETSc
    >>> from daeosens.problem.grids import FiniteElements
    >>> from daeosens.tracing import trace_weak_form
    >>> line = skfem.Basis(skfem.MeshLine().refined(1), skfem.ElementLineP1())
    >>> space = FiniteElements(line, comm=PETSc.COMM_SELF)
    >>> growth = trace_weak_form(lambda t, u, p: (p.rate * u.value, 0.0), space, fields=["rate"])
    >>> p = growth.pack(rate=2.0)
    >>> growth.unpack(p).rate.array
    array([2., 2., 2.])
    """


@dataclass(frozen=True, eq=False, repr=False)
class DAEOModel(Model):
    """A DAEO as a ``Problem``: u = (x, y, active set), with the global optimiser y.

    The last one is a number: 4^i times 1 or 2 is added up for every y[i] that is at its lower or
    upper bound.

    Attributes
    ----------
    n_x, n_y : int
        Numbers of states and of variables of the inner problem.
    box : array [n_y, 2]
        Where the optimisers lie.
    values : callable
        ``values(t [N], x [N, n_x], y [N, n_y], p [m])``: h [N] at N points.

    Examples
    --------
    >>> import daeosens as ds
    >>> def h(t, x, y, p):
    ...     return (y[0] - x[0]) ** 2
    >>> model = ds.DAEO(lambda t, x, y, p: -y, h, size=(["x"], ["y"]), box=[(-2.0, 2.0)])
    >>> model.admit_state([1.0]).array
    array([1., 0., 0.])
    """

    n_x: int = 0
    n_y: int = 0
    box: Array = None  # type: ignore[assignment]
    values: Callable[..., Array] = None  # type: ignore[assignment]

    @property
    def n_start(self) -> int:
        """How many entries of a start are enough: those of x."""
        return self.n_x

    def admit_state(
        self, u: npt.ArrayLike | PETSc.Vec | Mapping[str, float], name: str = "u0"
    ) -> PETSc.Vec:
        """Return a copy of a state as a vector; of a start x is enough: the rest is found.

        Raises
        ------
        InputError
            As for every problem.
        """
        rest = [*self.box.mean(axis=1).tolist(), 0.0]
        if isinstance(u, Mapping):
            names = self.state_names[self.n_x :]
            u = {**dict(zip(names, rest, strict=True)), **u}
        elif not isinstance(u, PETSc.Vec) and np.shape(u) in ((self.n_x,), (self.size - 1,)):
            u = finite_array(u, name)
            u = np.concatenate([u, rest[len(u) - self.size :]])
        return super().admit_state(u, name)


@dataclass(frozen=True, eq=False, repr=False)
class LinearDAEOModel(Model):
    """A DAEO with a linear inner problem, as a ``Problem`` whose modes are the optimal bases.

    Attributes
    ----------
    flow_names : tuple of str
        Those of v.
    bases : Bases
        All that runs have come to.

    Examples
    --------
    Cells that grow on what they take up of sugar, and of another thing that there is enough of:

    >>> import daeosens as ds
    >>> model = ds.tracing.LinearDAEO(
    ...     lambda t, x, v, p: [x[0] * v.grow, -x[0] * v.sugar],
    ...     [[1, 1, -1]],
    ...     ["grow"],
    ...     lambda t, x, p: {"sugar": (0.0, p.fast * x[1]), "other": (0.0, 0.1)},
    ...     size=(["cells", "medium"], ["sugar", "other", "grow"]),
    ...     parameters=["fast"],
    ... )
    >>> run = ds.solve(model, [0.1, 1.0], [0.5], ds.Stepping((0.0, 1.0), "rk6vr", rtol=1e-10))
    >>> model.flow_names, model.flows(run)[0]
    (('sugar', 'other', 'grow'), array([0.5, 0.1, 0.6]))
    """

    flow_names: tuple[str, ...] = ()
    bases: Any = None

    def flows(self, run: Any) -> Array:
        """Return all flows v [N+1, n_v] at the times of a run of this model.

        Parameters
        ----------
        run : Trajectory

        Raises
        ------
        InputError
            Of another model.
        """
        if getattr(getattr(run, "problem", None), "modes", None) is not self.modes:
            raise InputError(
                "the run is one of another model", remedy="model.flows(solve(model, ...))"
            )
        # flows belong to the basis of a step and to its parameters; at an event to those before it
        places = [(record.mode, record.p) for record in run.records]  # where a step begins
        for crossing in run.crossings:
            places[crossing.step] = crossing.mode_before, run.records[crossing.step].p
        last, jumped = run.records[-1], run.crossings and run.records[-1].jump is not None
        places.append((last.mode, run.crossings[-1].p if jumped else last.p))
        flows: Array = self.bases.flows(places, run.times, run.u)
        return flows
