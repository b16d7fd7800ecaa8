"""The inner problem as graphs: its optimisers by Newton's method, and what depends on them.

A local optimiser Y(t, x, p) has an active set: the bounds of the box that it is at, and the
constraints g that are 0 there.  At its bounds it is whatever t, x and p, and its other variables
solve h_y = 0, or h_y + l g_y = 0 and g = 0.  Steps from a number c near it,

    y_1 = c - A h_y(c),  y_2 = y_1 - A h_y(y_1),  y_3 = y_2 - A h_y(y_2),  A = h_yy(c)^-1,

where rows and columns of variables at bounds are those of the identity, are as functions of
(t, x, p) what Y is: in value, and y_k in derivatives up to the k-th, since each step multiplies the
error by I - A h_yy, which vanishes where derivatives are taken.  c may be taken for a constant,
because it differs from Y by rounding, and so may A.  Both are found first, by Newton's method that
nobody differentiates (``derivatives.Held``), and graphs are differentiated with them as inputs.
Its steps lead down, are not too long, and stay near the box: implicit methods try y from which
others would not come back to the optimiser, and times at which there is none.

The active set is a number that the state carries along, u = (x, y, active set), as y is; see
``active_set``.  It is a constant of every graph, and one compiled function serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array
from daeosens.tracing.casadi import casadi
from daeosens.tracing.daeo.active_set import MOST
from daeosens.tracing.daeo.kkt import Kkt
from daeosens.tracing.derivatives import DATA, HELD, Generated, Graph, Held, derived, expand
from daeosens.tracing.symbols import Symbol
from daeosens.tracing.tracer import Tracer, traced_value

FAR = 0.25
"""A step of Newton's method goes over this part of the box at most."""

SLOWER = 0.05
"""At this part of the box outside of it y is half as fast as its optimiser."""


@dataclass(frozen=True, eq=False)
class Near:
    """An optimiser near a point: what its derivatives take for constants, as symbols.

    Attributes
    ----------
    start : casadi.SX
        The point [n_y].
    bits : casadi.SX
        Which constraints are active, as a graph [n_c].
    c, inverse, active : casadi.SX
        The optimiser itself [n_y], A [n_y, n_y + m], and which constraints are active [n_c].
    """

    start: Any
    bits: Any
    c: Any
    inverse: Any
    active: Any

    @property
    def symbols(self) -> Any:
        """All of them side by side."""
        return casadi.vertcat(self.c, casadi.vec(self.inverse), self.active)


@dataclass(frozen=True, eq=False)
class Inner:
    """f and h of a DAEO as graphs of scalars in t, u = (x, y, active set) and p.

    Attributes
    ----------
    n_x, n_y, n_c : int
        Numbers of states, of variables of the inner problem, and of its constraints.
    t, u, p : casadi.SX
        The inputs.
    active : casadi.SX
        Which constraints are active, 1 or 0 [n_c].
    box : array [n_y, 2]
        Lower and upper bounds of y.
    f, h : casadi.Function
        Of (t, x, y, p).
    newton : casadi.Function
        (t, x, y, p, active) -> y after one step, the pivots of h_yy.
    residual : casadi.Function
        (t, x, y, p, active) -> what vanishes at an optimiser, by free variables and g.
    inverse : casadi.Function
        (t, x, y, p, active) -> by what a step of Newton's method multiplies it.
    slopes : casadi.Function
        (t, x, y, p, active) -> derivatives of the optimiser in t and x, and of its value.
    distances : casadi.Function
        (t, x, y, p, active) -> how far the optimiser is from another active set [n_c], and the
        derivatives of that in t and x along it.
    """

    n_x: int
    n_y: int
    n_c: int
    t: Any
    u: Any
    p: Any
    active: Any
    box: Array
    f: Any
    h: Any
    newton: Any
    residual: Any
    inverse: Any
    slopes: Any
    distances: Any

    @property
    def x(self) -> Any:
        """The states."""
        return self.u[: self.n_x]

    @property
    def y(self) -> Any:
        """What the state carries along of the optimiser."""
        return self.u[self.n_x : self.n_x + self.n_y]

    @property
    def carried(self) -> Any:
        """The active set, as a number."""
        return self.u[self.n_x + self.n_y]

    def bits(self, number: Any) -> Any:
        """Return which constraints are active [n_c]."""
        # bit k of the number: floor(a / 2^k) - 2 floor(a / 2^(k+1))
        halves: list[Any] = [casadi.floor(number / 2.0**k) for k in range(self.n_c + 1)]
        return casadi.vertcat(*(halves[k] - 2.0 * halves[k + 1] for k in range(self.n_c)))

    @cached_property
    def here(self) -> Near:
        """The optimiser that the state carries along."""
        return self.near("", self.y, self.bits(self.carried), self.active)

    @cached_property
    def held(self) -> Held:
        """The constants of it."""
        return self.constants("here", [self.here])

    def near(self, name: str, start: Any, bits: Any, active: Any) -> Near:
        """Return the optimiser near ``start`` [n_y] with an active set, under a name."""
        c, shape = casadi.SX.sym(f"c{name}", self.n_y), self.inverse.size_out(0)
        return Near(start, bits, c, casadi.SX.sym(f"A{name}", *shape), active)

    def constants(self, name: str, optimisers: Sequence[Near], data: Any = None) -> Held:
        """Return what derivatives take for constants in some optimisers, found together."""
        n, inputs = self.n_y, [self.t, self.u, self.p, *([] if data is None else [data])]
        point = casadi.SX.sym("point", n * len(optimisers))
        parts = [
            (self.t, self.x, point[n * k : n * (k + 1)], self.p, near.bits)
            for k, near in enumerate(optimisers)
        ]
        steps = casadi.vertcat(*(self._nearby(self.newton(*part)[0]) for part in parts))
        width = casadi.DM([*(self.box[:, 1] - self.box[:, 0])] * len(optimisers))
        # how far a step goes, relative to the box: the iteration ends where it is small
        far = casadi.mmax(casadi.fabs(steps - point) / width)
        values = [
            casadi.vertcat(part[2], casadi.vec(self.inverse(*part)), part[4]) for part in parts
        ]

        def function(ending: str, inputs: list[Any], *outputs: Any) -> Any:
            dense = [casadi.densify(output) for output in outputs]
            return casadi.Function(f"{name}_{ending}", inputs, dense, {"cse": True})

        return Held(
            name,
            casadi.vertcat(*(near.symbols for near in optimisers)),
            function("start", inputs, casadi.vertcat(*(near.start for near in optimisers))),
            function("step", [*inputs, point], steps, far),
            function("values", [*inputs, point], casadi.vertcat(*values)),
        )

    def _nearby(self, y: Any) -> Any:
        """Return y, or if it is outside of the box by more than its width, the point there."""
        width = self.box[:, 1] - self.box[:, 0]
        low, high = casadi.DM(self.box[:, 0] - width), casadi.DM(self.box[:, 1] + width)
        # minima and maxima would make numbers of what is none
        return casadi.if_else(y < low, low, casadi.if_else(y > high, high, y))

    def optimiser(self, near: Near, steps: int = 2) -> Any:
        """Return Y(t, x, p), with derivatives up to the number of steps."""
        y = near.c
        for _ in range(steps):
            # y_k+1 = y_k - A h_y(y_k); A holds the sign
            y = y + near.inverse @ self.residual(self.t, self.x, y, self.p, near.active)
        return y

    def rate(self) -> Any:
        """Return (x', dY/dt along the run, 0) [n_x + n_y + 1], with two derivatives.

        Outside of the box y goes slower: it may go to infinity there, and need only be near Y.
        """
        rate = self.f(self.t, self.x, self.optimiser(self.here), self.p)
        y = self.optimiser(self.here, 3)
        along = casadi.vertcat(rate, casadi.SX.zeros(self.n_y + 1))
        # dY/dt = Y_t + Y_x x', with one step of Newton's method more, since it is a derivative
        # itself
        change = casadi.jacobian(y, self.t) + casadi.jtimes(y, self.u, along)
        low, high = self.box.T
        outside = casadi.fmax(0.0, casadi.fmax(low - self.here.c, self.here.c - high))
        slower = 1.0 + (outside / (SLOWER * (high - low))) ** 2
        return casadi.vertcat(rate, change / slower, 0.0)


def make_inner(
    f: Callable[..., Any],
    h: Callable[..., Any],
    g: Callable[..., Any] | None,
    n_x: int,
    box: Array,
    tracer: Tracer,
) -> Inner:
    """Trace f, h and g.

    Raises
    ------
    InputError
        As ``Tracer.graph``.
    """
    n_y = len(box)
    t, p = casadi.SX.sym("t"), casadi.SX.sym("p", tracer.shapes.size)
    x, y = casadi.SX.sym("x", n_x), casadi.SX.sym("y", n_y)
    point, u = [t, x, y, p], casadi.vertcat(x, y, 0.0)

    def traced(function: Callable[..., Any], name: str, shape: tuple[int, ...]) -> Any:
        of = expand(tracer.graph(lambda t, u, p: function(t, u[:n_x], u[n_x:-1], p), name, shape))
        return casadi.Function(name, [of.t, of.u, of.p], [of.value])(t, u, p)

    value = traced(h, "h", ())
    limits = casadi.SX(0, 1)
    if g is not None:
        limits = traced(g, "constraints", (_count(g, n_x, n_y, tracer),))
    n_c = 2 * n_y + limits.numel()
    active = casadi.SX.sym("active", n_c)
    # bits by turns: lower and upper bound of each y, then the constraints
    low, high = active[0 : 2 * n_y : 2], active[1 : 2 * n_y : 2]
    free = 1.0 - low - high
    held_at = low * box[:, 0] + high * box[:, 1]
    kkt = Kkt.make(point, value, limits, active[2 * n_y :], free)
    change, pivots = kkt.solve(kkt.gradient, limits, downhill=True)
    width = casadi.DM(box[:, 1] - box[:, 0])
    # all components by one factor, so that the direction stays that of descent
    change = change * casadi.fmin(1.0, FAR / casadi.mmax(casadi.fabs(change) / width))
    newton = casadi.Function("newton", [*point, active], [free * y + held_at + change, pivots])
    m = limits.numel()
    residual = casadi.vertcat(kkt.stationary, limits)
    # A by columns: the answers to unit right-hand sides of h_y, and of g
    steps = [
        kkt.solve(casadi.SX.eye(n_y), casadi.SX.zeros(m, n_y))[0],
        kkt.solve(casadi.SX.zeros(n_y, m), casadi.SX.eye(m))[0],
    ]
    at_bounds = [t, x, free * y + held_at, p, active]  # where bounds hold it, whatever is carried
    by_t, by_x = (kkt.solve(kkt.by(theta), casadi.jacobian(limits, theta))[0] for theta in (t, x))
    slopes = [by_t, by_x, kkt.value_by(t), kkt.value_by(x)]
    gradient = kkt.stationary
    # At a bound the multiplier, which is h_y + l g_y there (>= 0 at the lower one, <= 0 at the
    # upper one); else the way to it.
    from_low = low * gradient + (1.0 - low) * (y - box[:, 0])
    from_high = (1.0 - high) * (box[:, 1] - y) - high * gradient
    distances = casadi.vertcat(
        casadi.vec(casadi.horzcat(from_low, from_high).T),
        kkt.multipliers - (1.0 - kkt.active) * limits,
    )
    along = casadi.jacobian(distances, y)
    # d/d theta along the optimiser: the partial one, and that by y times dY/d theta
    moved = [casadi.jacobian(distances, theta) + along @ by for theta, by in ((t, by_t), (x, by_x))]
    return Inner(
        n_x,
        n_y,
        n_c,
        t,
        casadi.SX.sym("u", n_x + n_y + 1),
        p,
        active,
        box,
        casadi.Function("f", point, [traced(f, "f", (n_x,))]),
        casadi.Function("h", point, [value]),
        casadi.Function("newton", [*point, active], newton(*at_bounds)),
        casadi.Function("residual", [*point, active], [residual]),
        casadi.Function("inverse", [*point, active], [casadi.densify(casadi.horzcat(*steps))]),
        casadi.Function("slopes", [*point, active], slopes),
        casadi.Function("distances", [*point, active], [distances, *moved]),
    )


def _count(g: Callable[..., Any], n_x: int, n_y: int, tracer: Tracer) -> int:
    """Return how many values g has.

    Raises
    ------
    InputError
        None, or it is no vector; there are too many.
    """
    sizes = {"t": (), "x": (n_x,), "y": (n_y,), "p": (tracer.shapes.size,)}
    t, x, y, p = (Symbol(casadi.MX.sym(name, *of), of, constant=True) for name, of in sizes.items())
    split = tracer.shapes.split(p)
    values = traced_value(lambda *_: g(t, x, y, split), "constraints", t, x, split)
    shape = values.shape
    if len(shape) != 1 or not 0 < shape[0] <= MOST - 2 * n_y:
        raise InputError(
            f"'constraints' returned shape {shape}",
            expected=f"(m,), values that are not above 0, at most {MOST - 2 * n_y} of {n_y} y",
            remedy="constraints=lambda t, x, y, p: [y[0] + y[1] - p.most]",
        )
    for k, value in enumerate(casadi.vertsplit(values.graph)):
        if not casadi.depends_on(value, y.graph):
            raise InputError(
                f"constraint {k} does not depend on y",
                expected="constraints of the y that minimise h",
                remedy="an event, for what is to happen at values of t, x and p",
            )
    return int(shape[0])


def equations(inner: Inner, name: str = "rhs") -> list[Generated]:
    """Return x' = f(t, x, Y, p), y' = dY/dt with all derivatives."""
    return _generated(inner, name, inner.rate(), inner.held)


def scalar(inner: Inner, name: str, value: Callable[..., Any], tracer: Tracer) -> list[Generated]:
    """Return a number (t, x, Y, p) with all derivatives, as a function of u."""
    graph = _at_optimiser(inner, name, value, tracer, ())
    return _generated(inner, name, graph, inner.held, number=True)


def vector(
    inner: Inner,
    name: str,
    value: Callable[..., Any],
    tracer: Tracer,
    whole: Callable[[Any], Any],
) -> list[Generated]:
    """Return ``whole`` of x afterwards, a function (t, x, Y, p), with all derivatives."""
    graph = _at_optimiser(inner, name, value, tracer, (inner.n_x,))
    return _generated(inner, name, whole(graph), inner.held)


def _at_optimiser(
    inner: Inner, name: str, value: Callable[..., Any], tracer: Tracer, shape: tuple[int, ...]
) -> Any:
    """Return a user's function (t, x, Y, p) as a graph."""
    n_x, n_y = inner.n_x, inner.n_y
    of = expand(tracer.graph(lambda t, u, p: value(t, u[:n_x], u[n_x : n_x + n_y], p), name, shape))
    graph = casadi.Function("value", [of.t, of.u, of.p], [of.value])
    u = casadi.vertcat(inner.x, inner.optimiser(inner.here), 0.0)
    return graph(inner.t, u, inner.p)


def jumps(inner: Inner) -> list[Generated]:
    """Return what a jump to another optimiser is made of.

    ``jump_when`` is h(Y) - h(Z), where Z is the optimiser near the point (z, active set) that comes
    along as data, and ``jump_reset`` the state (x, Z, active set).
    """
    other = casadi.SX.sym(DATA, inner.n_y + 1)
    active = casadi.SX.sym("active_there", inner.n_c)
    there = inner.near("_there", other[:-1], inner.bits(other[-1]), active)
    z = inner.optimiser(there)
    # Where no constraint holds y, h_y is 0 at both: the first derivatives of h(Y) - h(Z) are h_t
    # and h_x alone (envelope theorem), and second ones need those of Y and Z.
    h = [inner.h(inner.t, inner.x, y, inner.p) for y in (inner.optimiser(inner.here), z)]
    both = inner.constants("both", [inner.here, there], other)
    when = _generated(inner, "jump_when", h[0] - h[1], both, number=True, data=other)
    after, held = casadi.vertcat(inner.x, z, other[-1]), inner.constants("there", [there], other)
    return [*when, *_generated(inner, "jump_reset", after, held, data=other)]


def changes(inner: Inner) -> list[Generated]:
    """Return what a change of the active set is made of.

    ``change_when`` is minus the distance of Y to the change of a constraint, ``change_reset`` the
    state (x, Y, active set) afterwards.  The constraint comes along as data, a unit vector [n_c],
    and then those that turn, 1 or 0 [n_c].
    """
    data = casadi.SX.sym(DATA, 2 * inner.n_c)
    watched, chosen = data[: inner.n_c], data[inner.n_c :]
    place = inner.t, inner.x, inner.optimiser(inner.here), inner.p, inner.active
    distances, _, _ = inner.distances(*place)
    before_it = inner.constants("unchanged", [inner.here], data)
    when = _generated(
        inner, "change_when", -casadi.dot(watched, distances), before_it, number=True, data=data
    )
    before = inner.bits(inner.carried)
    # bits that turn: 0 to 1 and 1 to 0
    after = before + chosen * (1.0 - 2.0 * before)
    number = inner.carried + sum(
        2.0**k * chosen[k] * (1.0 - 2.0 * before[k]) for k in range(inner.n_c)
    )
    changed = inner.near("", inner.y, after, inner.active)
    whole = casadi.vertcat(inner.x, inner.optimiser(changed), number)
    held = inner.constants("changed", [changed], data)
    return [*when, *_generated(inner, "change_reset", whole, held, data=data)]


def followed(inner: Inner) -> Generated:
    """Return what is to be known of an optimiser along a run, as one array, see ``Layout``."""
    t, x, p, last = inner.t, inner.x, inner.p, inner.here.c
    active = inner.here.active
    y, pivots = inner.newton(t, x, last, p, active)
    by_t, by_x, h_t, h_x = inner.slopes(t, x, y, p, active)
    distances, distances_t, distances_x = inner.distances(t, x, y, p, active)
    values = casadi.vertcat(
        y,
        inner.carried,
        casadi.mmax(casadi.fabs(y - last)),
        casadi.mmin(pivots),
        inner.h(t, x, y, p),
        h_t,
        casadi.vec(h_x),
        by_t,
        casadi.vec(by_x.T),
        distances,
        distances_t,
        casadi.vec(distances_x.T),
    )
    function = casadi.Function(
        "followed",
        [t, inner.u, p, inner.held.symbols],
        [casadi.densify(values)],
        ["t", "u", "p", HELD],
        ["out"],
        {"cse": True},
    )
    return Generated(function, (values.numel(),), held=inner.held)


def _generated(
    inner: Inner,
    name: str,
    value: Any,
    held: Held,
    *,
    number: bool = False,
    data: Any = None,
) -> list[Generated]:
    """Return ``value`` with all derivatives; ``held`` as for ``Graph``."""
    value = casadi.densify(value)
    graph = Graph(name, inner.t, inner.u, inner.p, value, number, held=held, data=data)
    return list(derived(graph).values())
