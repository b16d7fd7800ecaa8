"""DAEOs with linear inner problems as problems: equations, bases, what follows runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from scipy import sparse

from daeosens.costs.objective import Terminal
from daeosens.errors import InputError, is_iterable, is_whole, nearest
from daeosens.petsc.c_function import Native
from daeosens.petsc.vectors import Array, real_array
from daeosens.problem.branches import Branches
from daeosens.problem.equations import ODE
from daeosens.problem.event import Event, EventLike, admit_events
from daeosens.problem.layout import MOST_NAMED, admit_size
from daeosens.problem.problem import AUTONOMOUS, Problem
from daeosens.tracing import derivative_set as parts
from daeosens.tracing.casadi import casadi
from daeosens.tracing.derivatives import DATA, Generated, Graph, derive, derived, expand
from daeosens.tracing.linear_daeo.bases import Bases
from daeosens.tracing.linear_daeo.highs import Solver
from daeosens.tracing.linear_daeo.programme import Programme
from daeosens.tracing.linear_daeo.watch import Watcher
from daeosens.tracing.model import LinearDAEOModel
from daeosens.tracing.named_parameters import Shapes, admit_shapes
from daeosens.tracing.symbols import Symbol
from daeosens.tracing.tracer import Tracer, traced_value


def build_linear_daeo(
    f: Callable[..., Any],
    a: Any,
    objectives: Sequence[Any],
    lower: npt.ArrayLike,
    upper: npt.ArrayLike,
    bounds: Callable[..., Any],
    size: tuple[int | Sequence[str], int | Sequence[str]],
    parameters: int | Sequence[str] | Mapping[str, Any],
    b: npt.ArrayLike | None,
    events: Iterable[EventLike],
    running: Callable[..., Any] | None,
    comm: MPI.Comm,
) -> LinearDAEOModel:
    """Return the model of ``daeosens.LinearDAEO``, whose arguments these are."""
    n_x, state_names, flows = _admit_sizes(size)
    n_v = len(flows)
    tracer = Tracer(n_x, admit_shapes(parameters), comm)
    matrix = _admit_matrix(a, n_v)
    low, high = (
        _admit_vector(bound, name, n_v) for bound, name in ((lower, "lower"), (upper, "upper"))
    )
    right = _admit_vector(0.0 if b is None else b, "b", matrix.shape[0])
    costs = _admit_objectives(objectives, flows)
    named_flows = Shapes(dict.fromkeys(flows, ()))
    moving, values = _traced_bounds(bounds, tracer, flows)
    z, rows_low, rows_high = _affine(low, high, right, moving, values)
    if not z.numel():
        raise InputError(
            "bounds(t, x, p) returns numbers only, so that the flows never change",
            expected="a bound that depends on time, state or parameters",
            remedy='{"uptake": (-p.vmax * x[0] / (p.K + x[0]), 0.0)}',
        )
    # rows r = A v are unknowns like the flows, with bounds b: then every constraint is a bound
    programme = Programme(
        sparse.csc_array(sparse.hstack([matrix, -sparse.eye_array(matrix.shape[0])])),
        # objectives are maximised, programmes minimise; rows r = A v cost nothing
        np.concatenate([-costs, np.zeros((len(costs), matrix.shape[0]))], axis=1),
        rows_low,
        rows_high,
        flows,
    )
    solver = Solver(programme)
    rate = _rate(f, tracer, named_flows)
    graphs, needed = _graphs(rate, values, z)
    named = {f"event{k}": event for k, event in enumerate(admit_events(events))}
    plain = [g for name, event in named.items() for g in parts.event_graphs(tracer, event, name)]
    if running is not None:
        plain.append(tracer.graph(running, "running", ()))
    functions = [*graphs, *(derivative for graph in plain for derivative in derive(graph).values())]
    ready = tracer.executable(functions)
    taking = {generated.name for generated in functions if DATA in generated.function.name_in()}

    def equations(bound: Mapping[str, Any]) -> Problem:
        problem = ODE(
            bound["rhs"],
            state_names or n_x,
            tracer.shapes.names,
            jacobian=bound["rhs_u"],
            jacobian_p=parts.by_parameters(tracer, "rhs", bound),
            rhs_t=bound.get("rhs_t", AUTONOMOUS),
            hessian_product=bound["rhs_hessian"],
            hessian_t=bound.get("rhs_hessian_t"),
        )
        products = {name: bound[f"rhs_{name}"] for name in ("pull", "push")}
        if all(isinstance(product, Native) for product in products.values()):
            problem = replace(problem, native={**problem.native, **products})
        return problem

    # one set of compiled functions for all bases: each mode has data of its own
    bases = Bases(solver, needed, ready, taking, equations)

    def first(t: float, u: Any, p: Any) -> str:
        return bases.first(t, np.asarray(u), np.asarray(p)).name

    def trace_terminal(value: Callable[..., Any]) -> Terminal:
        made = tracer.compiled([tracer.graph(value, "value", ())])
        return parts.terminal("value", made, Branches(value, tracer.shapes.split))

    def user_event(event: Event, name: str, made: Mapping[str, Any]) -> Event:
        traced = parts.traced_event(tracer, event, name, made)
        jumps = event.reset is not None or event.changes
        # a jump of the state may make another basis optimal: it is found anew
        return replace(traced, mode=first) if jumps and not event.terminal else traced

    def trace_event(event: Event) -> Event:
        return user_event(
            event, "event", tracer.compiled(parts.event_graphs(tracer, event, "event"))
        )

    density = None
    if running is not None:
        density = parts.running("running", ready, Branches(running, tracer.shapes.split))
    # the problem outside of all modes: its equations are never stepped
    nowhere = np.full((len(needed), 1 + z.numel()), np.nan)
    problem = replace(
        equations(bases.bound(nowhere)),
        events=tuple(user_event(event, name, ready) for name, event in named.items()),
        modes=bases.modes,
        mode=first,
        monitor=lambda: Watcher(bases, partial(parts.surface, "distance")),
    )
    attributes: dict[str, Any] = {
        field.name: getattr(problem, field.name) for field in fields(problem)
    }
    return LinearDAEOModel(
        **attributes,
        shapes=tracer.shapes,
        traced_running=density,
        trace_terminal=trace_terminal,
        trace_event=trace_event,
        flow_names=flows,
        bases=bases,
    )


# ---- graphs --------------------------------------------------------------------------------------


def _traced_bounds(
    bounds: Callable[..., Any], tracer: Tracer, flows: Sequence[str]
) -> tuple[list[int], Graph]:
    """Return the flows whose bounds are functions, and these [2 K], lower and upper by turns."""
    chosen: list[int] = []

    def listed(t: Any, u: Any, p: Any) -> Any:
        returned: Any = bounds(t, u, p)
        pairs: dict[Any, Any] = dict(returned) if isinstance(returned, Mapping) else {}
        if not pairs:
            raise InputError(
                f"bounds(t, x, p) returned {returned!r}",
                expected="a mapping of flows to pairs: {flow: (lower, upper)}",
            )
        chosen[:] = [_number(flow, flows) for flow in pairs]
        every: list[Any] = []
        for flow, pair in pairs.items():
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise InputError(f"bounds[{flow!r}] is {pair!r}", expected="(lower, upper)")
            every += pair
        return every

    n, m = tracer.size, tracer.shapes.size
    sizes = {"t": (), "u": (n,), "p": (m,)}
    inputs = {
        name: Symbol(casadi.MX.sym(name, *of), of, constant=True) for name, of in sizes.items()
    }
    traced_value(listed, "bounds", inputs["t"], inputs["u"], tracer.shapes.split(inputs["p"]))
    return [*chosen], expand(tracer.graph(listed, "bounds", (2 * len(chosen),)))


def _affine(
    low: Array, high: Array, right: Array, moving: Sequence[int], values: Graph
) -> tuple[Any, Array, Array]:
    """Return z, and the bounds of flows and of rows as products with (1, z)."""
    different: list[Any] = []
    places: list[tuple[int, int, int | float]] = []
    for k in range(2 * len(moving)):
        entry = values.value[k]
        if entry.is_constant():
            number: int | float = float(entry)
        else:
            # equal bounds share a number of z, as lower and upper ones of a fixed flow do
            same = [j for j, other in enumerate(different) if casadi.is_equal(entry, other, 20)]
            number = same[0] if same else len(different)
            if not same:
                different.append(entry)
        places.append((moving[k // 2], k % 2, number))
    count = 1 + len(different)
    rows = [np.zeros((len(low) + len(right), count)) for _ in range(2)]
    for of, constant in zip(rows, (low, high), strict=True):
        of[:, 0] = np.concatenate([constant, right])
    for flow, side, number in places:
        # each bound is one row of numbers, to be multiplied by (1, z): a constant, or one entry of
        # z
        rows[side][flow] = 0.0
        if isinstance(number, int):
            rows[side][flow, 1 + number] = 1.0
        else:
            rows[side][flow, 0] = number
    return casadi.vertcat(*different) if different else casadi.SX(0, 1), rows[0], rows[1]


def _rate(f: Callable[..., Any], tracer: Tracer, flows: Shapes) -> Graph:
    """Trace f as a function of u = (x, v)."""
    n_x = tracer.size
    whole = replace(tracer, size=n_x + flows.size)
    return expand(whole.graph(lambda t, u, p: f(t, u[:n_x], flows.split(u[n_x:]), p), "f", (n_x,)))


def _graphs(rate: Graph, bounds: Graph, z: Any) -> tuple[list[Generated], npt.NDArray[np.intp]]:
    """Return all functions with their derivatives, and the numbers of the flows that f takes."""
    t, x, p, n_z = bounds.t, bounds.u, bounds.p, z.numel()
    n_x = x.numel()
    v = rate.u[n_x:]
    needed = np.unique(casadi.jacobian_sparsity(rate.value, v).get_triplet()[1]).astype(np.intp)
    if not len(needed):
        raise InputError(
            "f does not depend on a flow", expected="f(t, x, v, p) with flows v", remedy="ODE(...)"
        )
    of_flows = casadi.SX.sym(DATA, len(needed) * (1 + n_z))
    # flows of f are (1, z) times data, which the basis supplies: one compiled function serves all
    # bases
    coefficients = casadi.reshape(of_flows, 1 + n_z, len(needed)).T
    one_z = casadi.vertcat(1.0, z)
    flows = casadi.SX(v.numel(), 1)
    for row, k in enumerate(needed.tolist()):
        flows[k] = casadi.dot(coefficients[row, :].T, one_z)
    whole = casadi.Function("f", [rate.t, rate.u, rate.p], [rate.value])
    value = whole(t, casadi.vertcat(x, flows), p)
    of_row = casadi.SX.sym(DATA, 1 + n_z)
    functions = [
        *derived(Graph("rhs", t, x, p, casadi.densify(value), False, data=of_flows)).values(),
        *derived(Graph("distance", t, x, p, casadi.dot(of_row, one_z), True, data=of_row)).values(),
    ]
    # dz/dt along the run: z_x f + z_t, by which the basis a little later is known
    along = casadi.jtimes(z, x, value) + casadi.jtimes(z, t, 1.0)
    inputs, names = [t, x, p], ["t", "u", "p"]
    motion = casadi.Function(
        "motion",
        [*inputs, of_flows],
        [casadi.densify(casadi.vertcat(z, along))],
        [*names, DATA],
        ["out"],
    )
    plain = casadi.Function("bounds", inputs, [casadi.densify(z)], names, ["out"])
    return [*functions, Generated(motion, (2 * n_z,)), Generated(plain, (n_z,))], needed


# ---- arguments -----------------------------------------------------------------------------------


def _admit_sizes(size: Any) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Return n_x, the names of states, empty where only a number was given, and those of flows."""
    if not isinstance(size, (tuple, list)) or len(size) != 2 or isinstance(size[0], str):
        raise InputError(
            f"size = {size!r}",
            expected="numbers of states and of flows, or their names",
            remedy='size=(2, 95), or size=(["biomass", "glucose"], names)',
        )
    n_x, states = admit_size(size[0], MOST_NAMED)
    n_v, flows = admit_size(size[1], MOST_NAMED)
    return n_x, tuple(states), tuple(flows) or tuple(f"v{k}" for k in range(n_v))


def _admit_matrix(a: Any, n: int) -> Any:
    try:
        matrix = sparse.csc_array(a, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"A is no matrix: {error}", expected=f"an array [m, {n}]") from error
    if matrix.ndim != 2 or matrix.shape[1] != n or not matrix.shape[0]:
        raise InputError(f"A has the shape {matrix.shape}", expected=f"(m, {n}), a column a flow")
    if not np.isfinite(matrix.data).all():
        raise InputError("A has entries that are not finite", expected="numbers")
    return matrix


def _admit_vector(values: Any, name: str, n: int) -> Array:
    array = real_array(values, name)
    if array.shape not in ((), (n,)):
        raise InputError(f"{name} has the shape {array.shape}", expected=f"a number, or ({n},)")
    if np.isnan(array).any() or (name == "b" and np.isinf(array).any()):
        raise InputError(f"{name} = {array} has NaN", expected="numbers")
    return np.array(np.broadcast_to(array, (n,)))


def _admit_objectives(objectives: Any, flows: Sequence[str]) -> Array:
    """Return the objectives [k, n], each to be maximised."""
    single = isinstance(objectives, (str, Mapping)) or not is_iterable(objectives)
    every: list[Any] = [objectives] if single else list(objectives)
    rows: list[Array] = []
    for objective in every:
        row = np.zeros(len(flows))
        if isinstance(objective, Mapping):
            weights: dict[Any, Any] = dict(objective)
            for flow, weight in weights.items():
                row[_number(flow, flows)] = weight
        elif not is_iterable(objective) or isinstance(objective, str):
            row[_number(objective, flows)] = 1.0
        else:
            row = _admit_vector(objective, "objective", len(flows))
        if not np.isfinite(row).all() or not row.any():
            raise InputError(
                f"objective {objective!r}",
                expected="a flow, weights of flows {flow: weight}, or an array of them, not all 0",
            )
        rows.append(row)
    if not rows:
        raise InputError("there is no objective", expected="at least one", remedy='["growth"]')
    return np.array(rows)


def _number(flow: Any, flows: Sequence[str]) -> int:
    """Return the number of a flow that is given by its name or number."""
    if isinstance(flow, str):
        if flow in flows:
            return flows.index(flow)
        raise InputError(f"there is no flow {flow!r}", remedy=nearest(flow, flows))
    if is_whole(flow) and 0 <= flow < len(flows):
        return int(flow)
    raise InputError(f"there is no flow {flow!r}", expected=f"names, or 0 to {len(flows) - 1}")
