"""What is proved through events: a covering design of methods, forms, events, costs and steps.

Every pair of values of any two axes occurs in some cell, but those that are refused, such as
Runge-Kutta with a mass matrix.  Each run meets an event "first" before the cell's own one, so that
everything at that one moves; between the two lie two steps.  What is proved is compared with the
same programs in NumPy (``frozen_events.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import frozen_events
import numpy as np
from forms import METHODS, NO_ESTIMATE, TIGHT
from frozen_events import FiredEvent, System

import daeosens as ds
from daeosens.costs import AtEvent, EventTime
from daeosens.functional import InitialState
from daeosens.methods import find_method
from daeosens.methods.esdirk.tableau import TABLEAUX
from daeosens.verify import duality

NAMES = ("drive", "stiffness", "bend", "moment")
P0 = np.array([1.1, 4.0, 0.9, 1.3])
U0 = np.array([-0.6, 0.8, 0.3513270886707446])  # the last, algebraic one for a singular mass only
T_END, DT = 2.0, 0.4
OBSERVED = (0.35, 1.7)

AXES = {
    "method": METHODS,
    "form": ("rhs", "M", "M singular", "M(p)", "F", "two modes"),
    "event": (
        *("reset", "mode switch", "given time", "parameter's time", "terminal", "parameter change"),
    ),
    "cost": ("Terminal", "Running", "LeastSquares", "AtEvent before", "AtEvent after", "EventTime"),
    "derivative": ("u0", "p", "u0(p)"),
    "steps": ("fixed", "adaptive"),
}


@dataclass(frozen=True)
class Cell:
    """One value of each axis."""

    method: str
    form: str
    event: str
    cost: str
    derivative: str
    steps: str

    def __str__(self) -> str:
        return " ".join(self.values)

    @property
    def values(self) -> tuple[str, ...]:
        """The values in the order of the axes."""
        return tuple(getattr(self, axis) for axis in AXES)

    @property
    def pairs(self) -> tuple:
        """All pairs of (axis, value)."""
        return tuple(itertools.combinations(zip(AXES, self.values, strict=True), 2))


def possible(cell: Cell) -> bool:
    """Whether the cell is not refused (the refusals are those of the table without events)."""
    explicit = find_method(cell.method).explicit
    unsound = cell.method in NO_ESTIMATE or (cell.method, cell.form) == ("midpoint", "M singular")
    return not (
        (explicit and cell.form not in ("rhs", "two modes"))
        or (cell.method in TABLEAUX and cell.form in ("M(p)", "F"))
        or (cell.steps == "adaptive" and unsound)
    )


def _some_cell(pair, rng) -> Cell | None:
    """Return a random cell with the values of a pair; None if sixty of them are refused."""
    for numbers in rng.integers(2**30, size=(60, len(AXES))):
        pairs = zip(AXES.items(), numbers, strict=True)
        drawn = {axis: values[k % len(values)] for (axis, values), k in pairs}
        cell = Cell(**{**drawn, **dict(pair)})
        if possible(cell):
            return cell
    return None


@cache
def design() -> tuple[Cell, ...]:
    """Return cells in which each possible pair occurs: greedily the best of some random ones."""
    rng = np.random.default_rng(4)
    axes = [[(axis, value) for value in values] for axis, values in AXES.items()]
    two = [pair for a, b in itertools.combinations(axes, 2) for pair in itertools.product(a, b)]
    missing = {pair: None for pair in two if _some_cell(pair, rng) is not None}
    chosen: list[Cell] = []
    while missing:
        wanted = next(iter(missing))
        draws = filter(None, (_some_cell(wanted, rng) for _ in range(30)))
        best = max(draws, key=lambda cell: sum(pair in missing for pair in cell.pairs))
        chosen.append(best)
        missing = {pair: None for pair in missing if pair not in best.pairs}
    return tuple(sorted(chosen, key=lambda cell: METHODS.index(cell.method)))


# ---- equations and events, in functions of numbers and of columns --------------------------------

SKEW = np.array([[1.3, 0.2], [0.1, 0.9]])


def swing(t, u, p):
    drive = p[0] * np.sin(3 * t) - 0.2 * u[1] * (1 + u[0] ** 2)
    return _bound([u[1], -p[1] * np.sin(u[0]) + drive], t, u, p)


def sink(t, u, p):
    rates = [0.8 * u[1] - 0.3 * p[2] * u[0], p[0] * np.cos(2 * t) - 0.6 * p[1] * u[0] - 0.4 * u[1]]
    return _bound(rates, t, u, p)


def _bound(rates, t, u, p):
    """Add 0 = u0^2 + p2 t u1/10 - y - y^3/5 where there is a y, and what it does to the others."""
    for y in u[2:]:
        algebraic = u[0] ** 2 + 0.1 * p[2] * t * u[1] - y - 0.2 * y**3
        return [rates[0] + 0.3 * y * p[0], rates[1] - 0.2 * y * u[1], algebraic]
    return rates


def _times_skew(udot):
    return [*(row[0] * udot[0] + row[1] * udot[1] for row in SKEW), *(0 * y for y in udot[2:])]


def residual_of(form, rhs):
    """Return F(t, u, u', p) of a form with the right-hand side ``rhs``, as a list."""

    def residual(t, u, udot, p):
        f = rhs(t, u, p)
        if form == "rhs":
            carried = udot
        elif form in ("M", "M singular"):
            carried = _times_skew(udot)
        else:
            carried = [(0.9 + 0.1 * p[2] ** 2) * item for item in _times_skew(udot)]
        if form == "F":
            carried = [a + 0.1 * t * x**2 * v for a, x, v in zip(carried, u, udot, strict=True)]
        return [a - b for a, b in zip(carried, f, strict=True)]

    return residual


def size_of(form):
    return 3 if form == "M singular" else 2


def problem_of(form, rhs, events=()):
    keywords = {"size": size_of(form), "parameters": NAMES, "events": events}
    if form == "F":
        return ds.DAE(_array(residual_of("F", rhs)), **keywords)
    singular = np.pad(SKEW, (0, 1))
    mass = {"M": SKEW, "M singular": singular, "M(p)": lambda p: (0.9 + 0.1 * p[2] ** 2) * SKEW}
    return ds.ODE(_array(rhs), **keywords, **({"mass": mass[form]} if form in mass else {}))


def _array(function):
    """Return what the library calls: an array of numbers."""
    return lambda *point: np.array(function(*point))


def _columns(function):
    """Return what the reference calls: an array of columns, every argument complex."""

    def call(*point):
        return np.array(np.broadcast_arrays(*function(*point), point[1][0])[:-1])

    return call


def kicked(t, u, p):
    return [u[0] + 0.05 * p[0] * t, -0.6 * u[1] * p[2] + 0.1 * np.sin(t + u[0]), *u[2:]]


def turned(t, u, p):
    return [u[0] - 0.1 * p[2] * t, 0.7 * u[1] + 0.05 * p[1] * u[0] * t, *u[2:]]


def rises(t, u, p):
    return u[0] - 0.2 * p[2] - 0.05 * t * u[1]


def falls(t, u, p):
    return u[0] + 0.25 * p[2] - 0.1 * p[0] * np.sin(t) + 0.1 * u[1]


WORN = {
    "drive": lambda t, u, p: 1.4 * p[0] + 0.2 * np.sin(t) * u[1] ** 2 * p[2],
    "bend": lambda t, u, p: 0.7 * p[2] - 0.05 * u[1] ** 2 * t,
}


EVENTS = {
    "reset": {"when": falls, "reset": turned, "direction": -1},
    "mode switch": {"when": falls, "direction": -1},
    "given time": {"when": 1.3, "reset": turned},
    "parameter's time": {"when": "moment", "reset": turned},
    "terminal": {"when": falls, "terminal": True, "direction": -1},
    "parameter change": {"when": falls, "changes": WORN, "direction": -1},
}


def hybrid_of(cell):
    """Return the problem of a cell, and the same for the reference."""
    switch = cell.event == "mode switch"
    two = cell.form == "two modes"
    forms = (cell.form, cell.form)
    if two:
        forms = ("M", "rhs") if cell.method in TABLEAUX else ("M(p)", "F")
        forms = ("rhs", "rhs") if find_method(cell.method).explicit else forms
    after_first = {"mode": "two"} if two else {}
    after = {"mode": "one" if two else "two"} if switch else {}
    values = {
        "first": {"when": rises, "reset": kicked, "direction": 1, **after_first},
        "event": {**EVENTS[cell.event], **after},
    }
    events = [ds.Event(name=name, **_lowered(entry)) for name, entry in values.items()]
    if two or switch:
        modes = {"one": problem_of(forms[0], swing), "two": problem_of(forms[1], sink)}
        problem = ds.hybrid(modes, "one", events)
    else:
        problem = problem_of(forms[0], swing, events)
    residuals = {
        "one": _columns(residual_of(forms[0], swing)),
        "two": _columns(residual_of(forms[1], sink)),
    }
    start = "one" if two or switch else ""
    residuals[start] = residuals["one"]
    happenings = {name: _happening(event) for name, event in values.items()}
    return problem, System(residuals, start, happenings, size_of(forms[0]) - 2)


def _lowered(event):
    return {**event, "reset": _array(event["reset"])} if "reset" in event else event


def _happening(event):
    when = event["when"]
    return FiredEvent(
        NAMES.index(when) if isinstance(when, str) else when,
        _columns(event["reset"]) if "reset" in event else None,
        {NAMES.index(name): value for name, value in event.get("changes", {}).items()},
        event.get("mode"),
        stops=event.get("terminal", False),
    )


# ---- costs ---------------------------------------------------------------------------------------


def value(t, u, p):
    return u[0] ** 2 * p[2] + u[1] * p[0] + 0.3 * t * u[0] + sum(0.4 * y**2 * p[0] for y in u[2:])


def density(t, u, p):
    return u[0] ** 2 * p[0] + t * u[1] * p[2] + sum(y * u[0] for y in u[2:])


def seen(t, u, p):
    return [u[0] * p[2], u[1] + 0.2 * u[0] ** 2 + 0.1 * t]


DATA = np.array([[0.1, 0.2], [0.3, -0.1]])


def cost_of(cell):
    """Return the cost of a cell, and the same as a function of the reference's points."""
    times = OBSERVED if cell.event != "terminal" else OBSERVED[:1]

    def misfit(run, points):
        result = 0.0
        for time, data in zip(times, DATA, strict=False):
            at = points[run.index(time)]
            result = result + sum(
                0.5 * ((x - d) / 0.5) ** 2
                for x, d in zip(seen(at.t, at.u, at.p), data, strict=True)
            )
        return result

    def running(_run, points):
        return sum(w * density(t, u, point.p) for point in points for w, t, u in point.nodes)

    def at(function, after):
        def call(run, points):
            step = next(crossing.step for crossing in run.crossings if crossing.name == "event")
            point = points[step + after]
            return function(point.t, point.u, point.p)

        return call

    return {
        "Terminal": (
            ds.Terminal(value),
            lambda _run, points: value(points[-1].t, points[-1].u, points[-1].p),
        ),
        "Running": (ds.Running(density), running),
        "LeastSquares": (
            ds.LeastSquares(times, DATA[: len(times)], 0.5, observe=_array(seen)),
            misfit,
        ),
        "AtEvent before": (AtEvent(value, "event"), at(value, 0)),
        "AtEvent after": (AtEvent(value, "event", side="after"), at(value, 1)),
        "EventTime": (EventTime("event"), at(lambda t, u, p: t + 0 * u[0], 0)),
    }[cell.cost]


# ---- what is optimised ---------------------------------------------------------------------------


def start_following(p):
    """Return an initial state that follows the parameters."""
    return [
        -0.6 * p[0] / P0[0],
        0.8 * p[2] / P0[2] + 0.1 * np.sin(p[1] - P0[1]),
        U0[2] * p[2] / P0[2],
    ]


def control_of(cell):
    """Return the control, its start x, and the map from columns of x to those of u0 and p."""
    n = size_of(cell.form)
    if cell.derivative == "u0":
        return InitialState(U0[:n], P0), U0[:n], lambda x: (x, P0[:, None] + 0 * x[:1])
    if cell.derivative == "p":
        entries = {name: ds.Parameter(v) for name, v in zip(NAMES, P0, strict=True)}
        return ds.Parameters(entries, U0[:n]), P0, lambda x: (U0[:n, None] + 0 * x[:1], x)
    entries = {name: ds.Parameter(v, scale="log") for name, v in zip(NAMES, P0, strict=True)}

    def columns(x):
        p = np.exp(x)
        return np.array(start_following(p)[:n]), p

    control = ds.Parameters(entries, lambda p: np.array(start_following(p)[:n]))
    return control, np.log(P0), columns


def stepping_of(cell):
    chosen = find_method(cell.method)
    options = {} if chosen.explicit else TIGHT
    if cell.steps == "fixed":
        return ds.Stepping((0.0, T_END), cell.method, dt=DT, options=options)
    tolerance = {1: 3e-2, 2: 1e-2, 3: 1e-3}.get(chosen.order, 1e-4)
    return ds.Stepping(
        (0.0, T_END), cell.method, dt=DT, rtol=tolerance, atol=tolerance, options=options
    )


# ---- proof ---------------------------------------------------------------------------------------

EPSILONS = 8e-3 * 0.5 ** np.arange(9)


@dataclass(frozen=True)
class Proof:
    """What was measured in a cell; errors are relative.

    ``program`` is the difference of costs from the reference's, of another run of the whole program
    too if its steps are fixed; ``rest`` what the Taylor remainder of third order sinks to.
    """

    names: tuple[str, ...]
    duality: float
    symmetry: float
    gradient: float
    hessian: float
    program: float
    orders: tuple[float, float]
    rest: float


@cache
def prove(cell: Cell) -> Proof:
    """Measure one cell."""
    problem, system = hybrid_of(cell)
    objective, cost = cost_of(cell)
    control, x, columns = control_of(cell)
    functional = ds.Reduced(problem, objective, stepping_of(cell), control)
    run = functional.trajectory(x)
    first, second = 0.5 * np.random.default_rng(6).normal(size=(2, len(x))) * abs(x)
    value, gradient = functional.value_and_gradient(x)
    gradient = gradient.array.copy()
    products = [
        hessian_product.array.copy()
        for hessian_product in functional.hessian_products(x, [first, second])
    ]
    dual = duality(run, objective)

    pinned = (*objective.times, *([1.3] if cell.event == "given time" else []))
    steps = frozen_events.plan(system, run, pinned)

    def program(points):
        states = frozen_events.repeat(system, cell.method, steps, *columns(points))
        return cost(run, states) + 0 * points[0]

    exact = frozen_events.derivatives(program, x, first, EPSILONS)
    again = 0.0
    # a start that moves by itself leaves the algebraic equations, which theta methods refuse
    consistent = cell.form != "M singular" or cell.derivative != "u0"
    if cell.steps == "fixed" and consistent:  # the whole program finds its steps and events anew
        again = abs(functional.value(x + EPSILONS[0] * first) - exact.along[0]) / abs(value)
    slope, bend = gradient @ first, products[0] @ first
    size = max(abs(value), abs(slope), abs(bend))
    remainders = abs(exact.along - value - EPSILONS * slope)
    bent = abs(exact.along - value - EPSILONS * slope - 0.5 * EPSILONS**2 * bend)
    orders = [_order(item, k, size) for k, item in enumerate((remainders, bent), start=2)]
    sizes = [np.linalg.norm(number) for number in (*products, first, second)]
    return Proof(
        tuple(crossing.name for crossing in run.crossings),
        dual,
        abs(products[0] @ second - products[1] @ first) / max(sizes[0] * sizes[3], 1e-3),
        _error(gradient, exact.gradient),
        _error(products[0], exact.product),
        max(again, abs(value - exact.value) / abs(value)),
        (orders[0], orders[1]),
        bent[-1] / size,
    )


def _error(ours, reference):
    return abs(ours - reference).max() / max(abs(reference).max(), 1e-3)


def _order(remainders, expected, size):
    """Return the order between the last two above the rounding; the expected one if there are none.

    The finest ones, because a term that happens to be small is hidden by the next one before.
    """
    clear = np.flatnonzero(remainders > 1e-13 * size)
    if len(clear) < 2:
        return float(expected)
    return float(np.log2(remainders[clear[-2]] / remainders[clear[-1]]))


# ---- the page ------------------------------------------------------------------------------------

HEAD = """\
## Events

Runs through two events, by steps of which two lie between them: the first event moves everything
at the second one, which is of the kind of the column.  {cells} cells combine methods, forms
({forms}), kinds of event, costs
({costs}),
derivatives (with respect to u0, p, and parameters that u0 follows) and fixed or adaptive steps:
any two values of two of these occur together, unless a note above refuses them.  In each cell

- adjoint and tangent are dual, and the Hessian is symmetric, to 1e-12;
- the gradient agrees to 1e-12, and a Hessian product to 1e-10, with an independent program that is
  differentiated by complex step (with the sizes of adaptive steps held fixed);
- Taylor remainders are of second and third order and sink into the rounding; where the steps are
  fixed, the whole program, run anew at a displaced point, has the same value to 1e-12.

Entries are the smallest observed orders with the gradient and with the Hessian, then the largest
errors.

| method | {kinds} | duality | symmetry | gradient | Hessian |
|---|{rules}
"""


def section(prove: Callable[[Cell], Proof]) -> str:
    """Return what docs/support.md says of events, with what ``prove`` measures."""
    lines = HEAD.format(
        cells=len(design()),
        forms=", ".join(AXES["form"]),
        costs=", ".join(AXES["cost"]),
        kinds=" | ".join(AXES["event"]),
        rules="---|" * (len(AXES["event"]) + 4),
    )
    for method in METHODS:
        cells = [cell for cell in design() if cell.method == method]
        entries = []
        for kind in AXES["event"]:
            orders = [prove(cell).orders for cell in cells if cell.event == kind]
            entries.append(" / ".join(f"{min(item):.1f}" for item in zip(*orders, strict=True)))
        names = ("duality", "symmetry", "gradient", "hessian")
        worst = [max(getattr(prove(cell), name) for cell in cells) for name in names]
        entries += [f"{item:.0e}" for item in worst]
        lines += f"| {method} | {' | '.join(entries)} |\n"
    return lines
