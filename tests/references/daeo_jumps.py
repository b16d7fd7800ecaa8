"""Make daeo_jumps.json: two DAEOs with tens of minimisers, by 34-digit arithmetic.

y is eliminated: wherever x' is needed, h_y = 0 is solved by Newton's method on the branch that is
the lowest.  The run is split where another branch becomes the lowest.  Each part is a few steps of
Gauss collocation with 20 points; the length of the last one makes both values of h equal.  Which
branch comes next is found by brute force: in double precision all minimisers are sought from a grid
of starts at every thousandth of a time unit.  Derivatives are differences of whole runs, central,
with a step of 1e-9 (first order; error 1e-18) and 1e-7 (products with the Hessian).

    python tests/references/daeo_jumps.py    # some minutes; `pip install gmpy2` makes it faster
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 34
POINTS = 20
DIGITS = 22


@dataclass(frozen=True)
class Case:
    """x' = f(t, x, y, p) with y = argmin h(t, x, y, p), and the cost J(x, y, p) at the end.

    ``f(m, ...)``, ``slopes(m, ...)`` -> (h, h_y, h_yy) and ``cost(m, ...)`` take sine and cosine
    from a module m: mpmath, or NumPy for many points at once.
    """

    name: str
    equations: str
    x0: list[str]
    p: list[str]
    end: str
    box: list[list[float]]
    direction: list[float]
    f: Callable[..., list[Any]]
    slopes: Callable[..., tuple[Any, list[Any], list[list[Any]]]]
    cost: Callable[..., Any]
    starts: int
    step: str


# ---- the cases -----------------------------------------------------------------------------------


def wells_f(m: Any, t: Any, x: Any, y: Any, p: Any) -> list[Any]:
    w, r, c = p[0], p[1], p[4]
    return [
        x[1] + c * y[0],
        -(w**2) * x[0] - x[1] / 10 + c * y[1],
        -r * x[2] + c * y[2] + y[3] * m.cos(t),
    ]


def wells_h(m: Any, t: Any, x: Any, y: Any, p: Any) -> tuple[Any, list[Any], list[list[Any]]]:
    d, k = p[2], p[3]
    pi = m.pi
    s, c = m.sin(y[1] - y[2]), m.cos(y[1] - y[2])
    tilt = 3 * m.sin(2 * t) / 10
    h = (
        d * (2 - m.cos(pi * y[0]) - m.cos(pi * y[1]))
        + (y[0] ** 2 + y[1] ** 2) / 10
        + (y[2] ** 2 - 1) ** 2
        + (y[3] ** 2 - 1) ** 2
        + k * (y[0] * y[1] + s + y[2] * y[3])
        - x[0] * y[0]
        - x[1] * y[1]
        - x[2] * y[2] / 2
        - tilt * y[3]
    )
    g = [
        d * pi * m.sin(pi * y[0]) + y[0] / 5 + k * y[1] - x[0],
        d * pi * m.sin(pi * y[1]) + y[1] / 5 + k * (y[0] + c) - x[1],
        4 * y[2] * (y[2] ** 2 - 1) + k * (y[3] - c) - x[2] / 2,
        4 * y[3] * (y[3] ** 2 - 1) + k * y[2] - tilt,
    ]
    o = 0 * y[0]
    hess = [
        [d * pi**2 * m.cos(pi * y[0]) + m.mpf(1) / 5, k + o, o, o],
        [k + o, d * pi**2 * m.cos(pi * y[1]) + m.mpf(1) / 5 - k * s, k * s, o],
        [o, k * s, 12 * y[2] ** 2 - 4 - k * s, k + o],
        [o, o, k + o, 12 * y[3] ** 2 - 4],
    ]
    return h, g, hess


def wells_cost(m: Any, x: Any, y: Any, p: Any) -> Any:
    return x[0] + x[1] ** 2 / 2 + m.sin(x[2]) + y[0] * x[1] + p[1] * y[2]


def waves_f(m: Any, t: Any, x: Any, y: Any, p: Any) -> list[Any]:
    w, c = p[0], p[3]
    return [-w * x[1] + c * y[0], w * x[0] + c * y[1] * m.cos(t)]


def waves_h(m: Any, t: Any, x: Any, y: Any, p: Any) -> tuple[Any, list[Any], list[list[Any]]]:
    a = p[1]
    first, second = 6 * y[0] + y[1] / 2, 6 * y[1] - 7 * y[0] / 10 + p[2]
    sa, ca, sb, cb = m.sin(first), m.cos(first), m.sin(second), m.cos(second)
    h = (y[0] - x[0]) ** 2 + (y[1] - x[1]) ** 2 + a * (sa + cb)
    g = [
        2 * (y[0] - x[0]) + a * (6 * ca + 7 * sb / 10),
        2 * (y[1] - x[1]) + a * (ca / 2 - 6 * sb),
    ]
    across = a * (-3 * sa + 42 * cb / 10)
    hess = [
        [2 + a * (-36 * sa - 49 * cb / 100), across],
        [across, 2 + a * (-sa / 4 - 36 * cb)],
    ]
    return h, g, hess


def waves_cost(m: Any, x: Any, y: Any, p: Any) -> Any:
    return x[0] ** 2 + m.sin(x[1]) + y[0] * x[1] + p[1] * y[1]


CASES = (
    Case(
        "wells",
        "n_x = 3, n_y = 4",
        ["0.6", "0.1", "-0.4"],
        ["2.1", "0.7", "1.1", "0.12", "0.15"],
        "2.5",
        [[-2.7, 2.7], [-2.7, 2.7], [-1.8, 1.8], [-1.8, 1.8]],
        [0.3, -0.5, 0.7, 0.2, -0.4, 0.6, 0.1, 0.8],
        wells_f,
        wells_h,
        wells_cost,
        5,
        "0.1",
    ),
    Case(
        "waves",
        "n_x = 2, n_y = 2",
        ["1.0", "0.2"],
        ["1.0", "1.0", "0.4", "0.3"],
        "2.0",
        [[-5.0, 5.0], [-5.0, 5.0]],
        [0.3, -0.5, 0.7, 0.2, -0.4, 0.6],
        waves_f,
        waves_h,
        waves_cost,
        41,
        "0.05",
    ),
)


# ---- by brute force, in double precision ---------------------------------------------------------


class Double:
    """NumPy, as the cases ask for it."""

    sin, cos, pi, mpf = np.sin, np.cos, np.pi, float


def minimisers(case: Case, t: float, x: Any, p: Any, starts: Any) -> tuple[Any, Any]:
    """Return all minimisers [K, n_y] that Newton's method finds from starts [n_y, S], and h."""
    y = starts.copy()
    n = len(y)
    for _ in range(30):
        _, g, hess = case.slopes(Double, t, x, y, p)
        matrix = np.array([[np.broadcast_to(e, y[0].shape) for e in row] for row in hess])
        matrix = np.moveaxis(matrix, 2, 0)
        # towards minima: eigenvalues made positive, steps cut
        values, vectors = np.linalg.eigh(matrix)
        values = np.maximum(np.abs(values), 1e-3)
        along = np.einsum("sij,is->sj", vectors, np.array(g))
        step = -np.einsum("sij,sj->is", vectors, along / values)
        size = np.abs(step).max(axis=0)
        y = y + step * np.minimum(1.0, 0.3 / np.maximum(size, 1e-300))
    h, g, hess = case.slopes(Double, t, x, y, p)
    matrix = np.moveaxis(
        np.array([[np.broadcast_to(e, y[0].shape) for e in row] for row in hess]), 2, 0
    )
    low, high = np.array(case.box).T
    good = (np.abs(np.array(g)).max(axis=0) < 1e-9) & (np.linalg.eigvalsh(matrix)[:, 0] > 0)
    good &= ((y >= low[:, None]) & (y <= high[:, None])).all(axis=0)
    y, h = y[:, good].T, np.broadcast_to(h, good.shape)[good]
    rounded = np.round(y, 6)
    _, first = np.unique(rounded, axis=0, return_index=True)
    assert first.size, n
    return y[first], h[first]


def sequence(case: Case) -> tuple[list[tuple[float, Any]], list[int]]:
    """Return from when on the lowest minimiser is which, and how many there are [N]."""
    low, high = np.array(case.box).T
    p, x = np.array(case.p, dtype=float), np.array(case.x0, dtype=float)
    grid = [np.linspace(a, b, case.starts) for a, b in zip(low, high, strict=True)]
    starts = np.array(list(itertools.product(*grid))).T
    dt, end = 1e-3, float(case.end)
    ways: list[tuple[float, Any]] = []
    counts: list[int] = []
    y = None
    for n in range(round(end / dt)):
        t = n * dt
        if n % 50 == 0:  # all from the grid; between, from those and from the grid's neighbours
            known, _ = minimisers(case, t, x, p, starts)
        known, h = minimisers(case, t, x, p, known.T)
        if n % 50 == 0:
            counts.append(len(known))
        lowest = known[int(np.argmin(h))]
        if y is None or np.abs(lowest - y).max() > 0.2:
            ways.append((t, lowest))
        y = lowest

        def rate(t: float, x: Any, y: Any) -> Any:
            for _ in range(3):
                _, g, hess = case.slopes(Double, t, x, y, p)
                y = y - np.linalg.solve(np.array(hess, dtype=float), np.array(g))
            return np.array(case.f(Double, t, x, y, p))

        k1 = rate(t, x, y)
        k2 = rate(t + dt / 2, x + dt / 2 * k1, y)
        k3 = rate(t + dt / 2, x + dt / 2 * k2, y)
        k4 = rate(t + dt, x + dt * k3, y)
        x = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return ways, counts


# ---- 34 digits -----------------------------------------------------------------------------------


def collocation(n: int) -> tuple[list[Any], list[list[Any]], list[Any]]:
    """Return Gauss points on [0, 1], the integrals of Lagrange's polynomials to them, and to 1."""
    guesses = np.polynomial.legendre.leggauss(n)[0].tolist()
    nodes = [mp.findroot(lambda z: mp.legendre(n, z), mp.mpf(guess)) for guess in guesses]
    values = [[mp.legendre(k, z) for k in range(n + 1)] for z in nodes]
    weights = [2 * (1 - z**2) / (n * v[n - 1]) ** 2 for z, v in zip(nodes, values, strict=True)]

    def integrals(v: Sequence[Any], z: Any) -> list[Any]:
        """Return the integrals of P_k from -1 to z."""
        return [z + 1, *((v[k + 1] - v[k - 1]) / (2 * k + 1) for k in range(1, n))]

    rows = []
    for z, v in [*zip(nodes, values, strict=True), (mp.mpf(1), [mp.mpf(1)] * (n + 1))]:
        of = integrals(v, z)
        rows.append(
            [
                weights[j] * mp.fsum((2 * k + 1) * values[j][k] * of[k] for k in range(n)) / 4
                for j in range(n)
            ]
        )
    return [(z + 1) / 2 for z in nodes], rows[:-1], rows[-1]


NODES, INTEGRALS, WHOLE = collocation(POINTS)


def newton(case: Case, t: Any, x: Any, y: Any, p: Any) -> tuple[list[Any], Any]:
    """Return y after a step of Newton's method, and its size."""
    _, g, hess = case.slopes(mp, t, x, y, p)
    n = len(y)
    rows = [[*hess[i], -g[i]] for i in range(n)]
    for i in range(n):
        for j in range(i + 1, n):
            factor = rows[j][i] / rows[i][i]
            for k in range(i, n + 1):
                rows[j][k] -= factor * rows[i][k]
    change = [mp.mpf(0)] * n
    for i in reversed(range(n)):
        rest = rows[i][n] - sum(rows[i][k] * change[k] for k in range(i + 1, n))
        change[i] = rest / rows[i][i]
    return [a + b for a, b in zip(y, change, strict=True)], max(map(abs, change))


def optimiser(case: Case, t: Any, x: Any, y: Any, p: Any) -> list[Any]:
    """Return the local optimiser near y."""
    for _ in range(40):
        y, size = newton(case, t, x, y, p)
        if size < mp.mpf(10) ** -20:  # it is squared by the next step
            return newton(case, t, x, y, p)[0]
    raise ArithmeticError(f"no optimiser near {y}")


def step(case: Case, t: Any, h: Any, x: Any, y: Any, p: Any) -> tuple[list[Any], list[Any]]:
    """Return x and y after a step of collocation, solved by Picard's iteration."""
    n = len(x)
    stages, near = [list(x) for _ in NODES], [list(y) for _ in NODES]
    for _ in range(200):
        rates = []
        for i, c in enumerate(NODES):
            near[i], _ = newton(case, t + c * h, stages[i], near[i], p)
            rates.append(case.f(mp, t + c * h, stages[i], near[i], p))
        change = mp.mpf(0)
        for i, row in enumerate(INTEGRALS):
            new = [x[k] + h * mp.fdot(row, (rate[k] for rate in rates)) for k in range(n)]
            change = max(change, *(abs(a - b) for a, b in zip(new, stages[i], strict=True)))
            stages[i] = new
        if change < mp.mpf(10) ** -32:
            break
    else:
        raise ArithmeticError(f"no convergence at t = {t}")
    after = [x[k] + h * mp.fdot(WHOLE, (rate[k] for rate in rates)) for k in range(n)]
    return after, optimiser(case, t + h, after, near[-1], p)


@dataclass(frozen=True)
class Outcome:
    """What a run comes to."""

    cost: Any
    x: list[Any]
    y: list[Any]
    jumps: list[tuple[Any, list[Any], list[Any], list[Any]]]


def run(
    case: Case, x: list[Any], p: list[Any], ways: Sequence[tuple[float, Any]], size: Any
) -> Outcome:
    """Run through the jumps, whose branches and rough times are known."""
    t, end = mp.mpf(0), mp.mpf(case.end)
    y = optimiser(case, t, x, [mp.mpf(float(v)) for v in ways[0][1]], p)
    jumps = []
    for about, other in ways[1:]:
        x, y, t = _to(case, t, x, y, p, mp.mpf(about) - mp.mpf(2) / 1000, size)
        z = [mp.mpf(float(v)) for v in other]

        def gap(h: Any, t: Any = t, x: Any = x, y: Any = y, z: Any = z) -> tuple[Any, ...]:
            x_h, y_h = step(case, t, h, x, y, p)
            z_h = optimiser(case, t + h, x_h, z, p)
            values = [case.slopes(mp, t + h, x_h, value, p)[0] for value in (y_h, z_h)]
            return values[0] - values[1], x_h, y_h, z_h

        a, b = mp.mpf(1) / 1000, mp.mpf(15) / 10000
        of_a, of_b = gap(a)[0], gap(b)[0]
        for _ in range(30):
            a, b, of_a = b, b - of_b * (b - a) / (of_b - of_a), of_b
            of_b, x_b, y_b, z_b = gap(b)
            if abs(b - a) < mp.mpf(10) ** -18 or of_b == of_a:
                break
        t, x, y = t + b, x_b, z_b
        jumps.append((t, x_b, y_b, z_b))
    x, y, t = _to(case, t, x, y, p, end, size)
    return Outcome(case.cost(mp, x, y, p), x, y, jumps)


def _to(case: Case, t: Any, x: Any, y: Any, p: Any, end: Any, size: Any) -> tuple[Any, Any, Any]:
    count = max(1, int(mp.ceil((end - t) / size)))
    h = (end - t) / count
    for k in range(count):
        x, y = step(case, t + k * h, h, x, y, p)
    return x, y, end


# ---- the file ------------------------------------------------------------------------------------


def described(case: Case) -> dict[str, Any]:
    """Return everything about one case."""
    ways, counts = sequence(case)
    print(case.name, [(round(t, 3), np.round(y, 2).tolist()) for t, y in ways], counts, flush=True)
    point = [mp.mpf(v) for v in (*case.x0, *case.p)]
    n, size = len(case.x0), mp.mpf(case.step)

    def quantities(z: list[Any], size: Any = size) -> list[Any]:
        """Return J, x at the end and the times of the jumps."""
        out = run(case, z[:n], z[n:], ways, size)
        return [out.cost, *out.x, *(jump[0] for jump in out.jumps)]

    whole = run(case, point[:n], point[n:], ways, size)
    values = quantities(point)
    other = quantities(point, size * mp.mpf("0.73"))
    agreement = max(abs(a - b) for a, b in zip(values, other, strict=True))
    print("agreement of two sizes of steps", mp.nstr(agreement, 3), flush=True)

    def moved(*ways: tuple[Any, Sequence[Any]]) -> list[Any]:
        z = list(point)
        for e, d in ways:
            z = [a + e * mp.mpf(b) for a, b in zip(z, d, strict=True)]
        return quantities(z)

    units = [[int(i == k) for i in range(len(point))] for k in range(len(point))]
    e = mp.mpf(10) ** -9
    first = [
        [(a - b) / (2 * e) for a, b in zip(moved((e, u)), moved((-e, u)), strict=True)]
        for u in units
    ]
    e = mp.mpf(10) ** -7
    second = []
    for u in units:
        corners = [moved((s * e, u), (r * e, case.direction)) for s in (1, -1) for r in (1, -1)]
        second.append([(a - b - c + d) / (4 * e**2) for a, b, c, d in zip(*corners, strict=True)])
    names = ["J", *(f"x{k}" for k in range(n)), *(f"t{k}" for k in range(len(ways) - 1))]

    def text(v: Any, digits: int = DIGITS) -> str:
        return str(mp.nstr(v, digits))

    return {
        "equations": case.equations,
        "x0": case.x0,
        "p": case.p,
        "t_end": case.end,
        "box": case.box,
        "direction": case.direction,
        "minimisers": [min(counts), max(counts)],
        "agreement": text(agreement, 3),
        "jumps": [
            {
                "t": text(t),
                "x": [text(v) for v in x],
                "y_before": [text(v) for v in before],
                "y_after": [text(v) for v in after],
            }
            for t, x, before, after in whole.jumps
        ],
        "y_end": [text(v) for v in whole.y],
        "quantities": names,
        "values": [text(v) for v in values],
        "gradient": {name: [text(row[k]) for row in first] for k, name in enumerate(names)},
        "hessian_product": {
            name: [text(row[k], 16) for row in second] for k, name in enumerate(names)
        },
    }


def main() -> None:
    """Write the file."""
    made = {
        "method": "y eliminated by Newton's method, split at the jumps, Gauss collocation of "
        f"{POINTS} points, {mp.mp.dps} digits; derivatives in (x0, p) by differences of whole runs",
        **{case.name: described(case) for case in CASES},
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
