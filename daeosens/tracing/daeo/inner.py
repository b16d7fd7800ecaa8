"""The inner problem as graphs: its optimisers by Newton's method, and what depends on them.

A local optimiser Y(t, x, p) solves h_y = 0.  Two steps of Newton's method from a number c near it,

    y_1 = c - h_yy(c)^-1 h_y(c),  y_2 = y_1 - h_yy(y_1)^-1 h_y(y_1),

are as functions of (t, x, p) what Y is, in value and in derivatives up to the third: c may be taken
for a constant, because it differs from Y by rounding.  So c is found first, by more steps of
Newton's method that nobody differentiates, and graphs are differentiated with c as an input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from daeosens.tracing.casadi import casadi
from daeosens.tracing.derivatives import DATA, Generated, Graph, derived, expand
from daeosens.tracing.tracer import Tracer

APPROACH = 2
"""Steps of Newton's method to c, from what the state carries along."""


@dataclass(frozen=True, eq=False)
class Inner:
    """f and h of a DAEO as graphs of scalars in t, u = (x, y) and p.

    Attributes
    ----------
    n_x, n_y : int
        Numbers of states and of variables of the inner problem.
    t, u, p : casadi.SX
        The inputs.
    f, h : casadi.Function
        Of (t, x, y, p).
    newton : casadi.Function
        (t, x, y, p) -> y after one step, the pivots of h_yy.
    """

    n_x: int
    n_y: int
    t: Any
    u: Any
    p: Any
    f: Any
    h: Any
    newton: Any
    slopes: Any

    @property
    def x(self) -> Any:
        """The states."""
        return self.u[: self.n_x]

    @property
    def y(self) -> Any:
        """What the state carries along of the optimiser."""
        return self.u[self.n_x :]

    def approach(self, start: Any, p: Any) -> Any:
        """Return c, which nobody differentiates, from ``start`` [n_y]."""
        for _ in range(APPROACH):
            start, _ = self.newton(self.t, self.x, start, p)
        return start

    def optimiser(self, c: Any, p: Any) -> Any:
        """Return Y(t, x, p) near c, with derivatives."""
        for _ in range(2):
            c, _ = self.newton(self.t, self.x, c, p)
        return c

    def rate(self, y: Any, p: Any) -> Any:
        """Return (x', dY/dt along the run) [n_x + n_y]."""
        rate = self.f(self.t, self.x, y, p)
        by_t, by_x, _, _ = self.slopes(self.t, self.x, y, p)
        return casadi.vertcat(rate, by_t + by_x @ rate)


def make_inner(
    f: Callable[..., Any], h: Callable[..., Any], n_x: int, n_y: int, tracer: Tracer
) -> Inner:
    """Trace f and h.

    Raises
    ------
    InputError
        As ``Tracer.graph``.
    """
    of_f = expand(tracer.graph(lambda t, u, p: f(t, u[:n_x], u[n_x:], p), "f", (n_x,)))
    of_h = expand(tracer.graph(lambda t, u, p: h(t, u[:n_x], u[n_x:], p), "h", ()))
    t, x, y, p = of_h.t, casadi.SX.sym("x", n_x), casadi.SX.sym("y", n_y), of_h.p
    u = casadi.vertcat(x, y)
    point = [t, x, y, p]
    whole_h = casadi.Function("h", [of_h.t, of_h.u, of_h.p], [of_h.value])
    whole_f = casadi.Function("f", [of_f.t, of_f.u, of_f.p], [of_f.value])
    value = whole_h(t, u, p)
    gradient = casadi.gradient(value, y)
    curvature = casadi.jacobian(gradient, y)
    change, pivots = solve_symmetric(curvature, -gradient)
    newton = casadi.Function("newton", point, [y + change, pivots])
    by_t, _ = solve_symmetric(curvature, -casadi.jacobian(gradient, t))
    by_x, _ = solve_symmetric(curvature, -casadi.jacobian(gradient, x))
    slopes = casadi.Function(
        "slopes",
        point,
        [by_t, by_x, casadi.jacobian(value, t), casadi.jacobian(value, x)],
    )
    return Inner(
        n_x,
        n_y,
        t,
        casadi.SX.sym("u", n_x + n_y),
        p,
        casadi.Function("f", point, [whole_f(t, u, p)]),
        casadi.Function("h", point, [value]),
        newton,
        slopes,
    )


def solve_symmetric(matrix: Any, right: Any) -> tuple[Any, Any]:
    """Return the solution [n, k] of a symmetric system as a graph, and its n pivots.

    Without exchanges: h_yy is positive definite where it matters, and the pivots tell.
    """
    n = matrix.shape[0]
    lower: Any = casadi.SX.eye(n)
    pivots: list[Any] = []
    for j in range(n):
        pivots.append(matrix[j, j] - sum(lower[j, k] ** 2 * pivots[k] for k in range(j)))
        for i in range(j + 1, n):
            inner = sum(lower[i, k] * lower[j, k] * pivots[k] for k in range(j))
            lower[i, j] = (matrix[i, j] - inner) / pivots[j]
    rows: list[Any] = [right[i, :] for i in range(n)]
    for i in range(n):
        for k in range(i):
            rows[i] = rows[i] - lower[i, k] * rows[k]
    rows = [row / pivot for row, pivot in zip(rows, pivots, strict=True)]
    for i in reversed(range(n)):
        for k in range(i + 1, n):
            rows[i] = rows[i] - lower[k, i] * rows[k]
    return casadi.vertcat(*rows), casadi.vertcat(*pivots)


def equations(inner: Inner, name: str = "rhs") -> list[Generated]:
    """Return x' = f(t, x, Y, p), y' = dY/dt with all derivatives; u = (x, y)."""
    c = casadi.SX.sym("c", inner.n_y)
    rate = inner.rate(inner.optimiser(c, inner.p), inner.p)
    return _generated(inner, name, rate, (c, inner.approach(inner.y, inner.p)))


def scalar(inner: Inner, name: str, value: Callable[..., Any], tracer: Tracer) -> list[Generated]:
    """Return a number (t, x, Y, p) with all derivatives, as a function of u = (x, y)."""
    n_x = inner.n_x
    of = expand(tracer.graph(lambda t, u, p: value(t, u[:n_x], u[n_x:], p), name, ()))
    whole = casadi.Function("value", [of.t, of.u, of.p], [of.value])
    c = casadi.SX.sym("c", inner.n_y)
    y = inner.optimiser(c, inner.p)
    graph = whole(inner.t, casadi.vertcat(inner.x, y), inner.p)
    return _generated(inner, name, graph, (c, inner.approach(inner.y, inner.p)), number=True)


def switches(inner: Inner) -> list[Generated]:
    """Return what a switch to another optimiser is made of.

    ``jump_when`` is h(Y) - h(Z), where Z is the optimiser near the point that comes along as data,
    and ``jump_reset`` the state (x, Z).
    """
    p, other = inner.p, casadi.SX.sym(DATA, inner.n_y)
    c, d = casadi.SX.sym("c", inner.n_y), casadi.SX.sym("d", inner.n_y)
    y, z = inner.optimiser(c, p), inner.optimiser(d, p)
    h = [inner.h(inner.t, inner.x, each, p) for each in (y, z)]
    of_y, of_z = inner.approach(inner.y, p), inner.approach(other, p)
    held = casadi.vertcat(c, d), casadi.vertcat(of_y, of_z)
    when = _generated(inner, "jump_when", h[0] - h[1], held, number=True, data=other)
    after = casadi.vertcat(inner.x, z)
    return [*when, *_generated(inner, "jump_reset", after, (d, of_z), data=other)]


def followed(inner: Inner) -> Generated:
    """Return what is to be known of an optimiser along a run, as one array, see ``Layout``."""
    t, x, p, y = inner.t, inner.x, inner.p, inner.y
    last = y
    for _ in range(APPROACH):
        last = y
        y, _ = inner.newton(t, x, y, p)
    _, pivots = inner.newton(t, x, y, p)
    by_t, by_x, h_t, h_x = inner.slopes(t, x, y, p)
    values = casadi.vertcat(
        y,
        casadi.mmax(casadi.fabs(y - last)),
        casadi.mmin(pivots),
        inner.h(t, x, y, p),
        h_t,
        casadi.vec(h_x),
        by_t,
        casadi.vec(by_x.T),
    )
    function = casadi.Function(
        "followed", [t, inner.u, p], [casadi.densify(values)], ["t", "u", "p"], ["out"]
    )
    return Generated(function, (values.numel(),))


def _generated(
    inner: Inner,
    name: str,
    value: Any,
    held: tuple[Any, Any],
    *,
    number: bool = False,
    data: Any = None,
) -> list[Generated]:
    """Return ``value`` with all derivatives; ``held`` as for ``Graph``."""
    value = casadi.densify(value)
    graph = Graph(name, inner.t, inner.u, inner.p, value, number, held=held, data=data)
    return list(derived(graph).values())
