"""What others reach with the same tolerances, where our derivatives are less accurate than hoped.

``python tests/zoo/peers.py [part of a name ...]`` writes peers.json, for the problems marked as
inaccurate or warned of, which the page shows.  Two peers, by errors of value, gradient and Hessian
product as ``runner.distance`` measures them:

- the variational equations of first and second order, integrated by SciPy's DOP853 (Radau for what
  is stiff) with the errors of the states in control, which is what tools reach that differentiate
  the steps of a run, and with those of the sensitivities as well;
- CVODES by CasADi's ``integrator``, the adjoint equations with error control of their own.

Variational equations of more than LARGEST unknowns are left out: their matrices are dense.  Beside
them ours, as they are and with ``control="sensitivities"``, which warnings and docs suggest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
from scipy.integrate import DOP853, Radau

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from zoo import CASES, TRUTH
from zoo.case import Case
from zoo.runner import derivatives, distance
from zoo.truth import Equations, symbolic

STORE = Path(__file__).with_name("peers.json")
LARGEST = 600
Result = tuple[float, np.ndarray, np.ndarray]


def tolerances(case: Case) -> tuple[float, float]:
    """Return rtol and atol as ``Stepping`` takes them."""
    assert case.rtol is not None
    return case.rtol, case.atol or min(1e-3 * case.rtol, 1e-9)


def variational(case: Case, *, controlled: bool) -> Result | None:
    """Return value, gradient and Hessian product by SciPy's steps for states, or for all."""
    equations = Equations(case)
    n, k = equations.n, equations.k
    parts = n * (2 + 2 * k)
    if parts > LARGEST and case.method.startswith("esdirk"):
        return None
    t, y = ca.SX.sym("t"), ca.SX.sym("y", parts)
    u, w = y[:n], y[n : 2 * n]
    s, q = (ca.reshape(y[first : first + n * k], n, k) for first in (2 * n, 2 * n + n * k))
    none, nothing = ca.SX.zeros(n, 1), ca.SX.zeros(n, k)
    f, f_u, _ = equations.f(t, u, none, equations.p)
    by_directions, by_v = equations.parameter_part(t, u, none, equations.p)
    bent = equations.second(t, u, none, equations.p, s, nothing, w, none)
    rates = [-f, -(f_u @ w + by_v), ca.vec(-(f_u @ s + by_directions)), ca.vec(-(bent + f_u @ q))]
    right = ca.vertcat(*rates)
    rhs = ca.Function("rhs", [t, y], [right])
    stiff = case.method.startswith("esdirk")
    options: dict[str, Any] = {}
    if stiff:
        matrix = ca.Function("matrix", [t, y], [ca.jacobian(right, y)])
        options["jac"] = lambda t, y: np.asarray(matrix(t, y))
    rtol, atol = tolerances(case)
    # SciPy takes the mean square over all unknowns: that over the states alone is larger
    share = np.sqrt((n - 1) / parts)
    watched = np.zeros(parts, dtype=bool)
    watched[: parts if controlled else n] = True
    watched[n - 1 :: n] = False  # integrals
    weights = np.where(watched, rtol * share, 1e-300), np.where(watched, atol * share, np.inf)
    state = np.zeros(parts)
    state[: n - 1] = case.u0
    state[n : 2 * n - 1] = case.hessian_direction[: n - 1]
    starts = np.zeros((k, n))
    starts[:, : n - 1] = case.directions[:, : n - 1]
    state[2 * n : 2 * n + n * k] = starts.ravel()
    times = list(case.observed[0]) if case.observed is not None else []
    now, size = case.span[0], None
    value, gradient, product = 0.0, np.zeros(k), np.zeros(k)

    def add(cost: Any, *data: Any) -> None:
        nonlocal value, gradient, product
        rows = state.reshape(2 + 2 * k, n)
        s, w, q = rows[2 : 2 + k].T, rows[1], rows[2 + k :].T
        j, slope, curve = cost(now, rows[0], equations.p, s, w, q, *data)
        value += float(j)
        gradient = gradient + np.asarray(slope).ravel()
        product = product + np.asarray(curve).ravel()

    for end in sorted({*times, *case.breakpoints, case.span[1]}):
        if end > now:
            first = min(size, end - now) if size else None
            method = Radau if stiff else DOP853
            solver = method(
                lambda t, y: np.asarray(rhs(t, y)).ravel(),
                now,
                state,
                end,
                first_step=first,
                **options,
            )
            solver.rtol, solver.atol = weights
            if stiff:
                solver.newton_tol = 1e-3
            while solver.status == "running":
                failure = solver.step()
                if failure:
                    raise RuntimeError(failure)
                size = solver.h_abs
            state, now = solver.y, end
        if end in times:
            add(equations.seen, case.observed[2][times.index(end)])
    add(equations.last)
    return value, gradient, product


def cvodes(case: Case) -> Result:
    """Return value, gradient and Hessian product by CVODES, as CasADi differentiates it."""
    n, m = len(case.u0), len(case.p)
    t, u, p = ca.SX.sym("t"), ca.SX.sym("u", n), ca.SX.sym("p", m)
    arguments = (t, False), (u, True), (p, True)
    density = ca.SX(0) if case.running is None else symbolic(case.running, *arguments)
    model = {"t": t, "x": u, "p": p, "ode": symbolic(case.rhs, *arguments), "quad": density}
    rtol, atol = tolerances(case)
    options = {"reltol": rtol, "abstol": atol, "max_num_steps": 1_000_000}
    times = list(case.observed[0]) if case.observed is not None else []
    ends = sorted({time for time in times if time > case.span[0]} | {case.span[1]})
    start, values = ca.MX.sym("start", n), ca.MX.sym("values", m)
    run = ca.integrator("run", "cvodes", model, case.span[0], ends, options)(x0=start, p=values)
    states = ca.horzsplit(run["xf"])
    cost = run["qf"][:, -1]
    if case.terminal is not None:
        last = ca.Function("last", [t, u, p], [symbolic(case.terminal, *arguments)])
        cost = cost + last(case.span[1], states[-1], values)
    if case.observed is not None:
        _, indices, data, sigma = case.observed
        for time, row in zip(times, data, strict=True):
            state = start if time == case.span[0] else states[ends.index(time)]
            for i, y in zip(indices, row, strict=True):
                cost = cost + ((state[i] - y) / sigma) ** 2 / 2
    slope = ca.vertcat(ca.gradient(cost, start), ca.gradient(cost, values))
    v = ca.DM(case.hessian_direction)
    curve = ca.jtimes(slope, start, v[:n]) + ca.jtimes(slope, values, v[n:])
    results = ca.Function("all", [start, values], [cost, slope, curve])(
        case.u0, list(case.p.values())
    )
    directions = case.directions
    return (
        float(results[0]),
        directions @ np.asarray(results[1]).ravel(),
        directions @ np.asarray(results[2]).ravel(),
    )


def ours(case: Case, **more: Any) -> Result:
    """Return value, gradient and Hessian product by traced equations."""
    style = next((s for s in case.styles[1:] if case.marks[s] != "right"), "traced")
    return derivatives(case, style, **more)


TANGENTS = 100
"""Up to so many tangents control steps."""


def controlled(case: Case) -> Result:
    """Return ours with steps that resolve the tangents; of large states those of some unknowns."""
    n = len(case.u0)
    some = [*case.p, 0, n // 3, n // 2]
    return ours(case, control="sensitivities" if n + len(case.p) <= TANGENTS else some)


PEERS = {
    "ours": ours,
    "ours, controlled": controlled,
    "SciPy, states": lambda case: variational(case, controlled=False),
    "SciPy, all": lambda case: variational(case, controlled=True),
    "CVODES": cvodes,
}


def errors(case: Case, result: Result | None) -> list[float] | None:
    """Return the errors of value, gradient and Hessian product."""
    if result is None:
        return None
    truth = TRUTH[case.name]
    wanted = truth["value"], truth["gradient"], truth["hessian"]
    return [float(f"{distance(a, b):.1e}") for a, b in zip(result, wanted, strict=True)]


def main() -> None:
    names = sys.argv[1:]
    stored = json.loads(STORE.read_text()) if names else {}
    for case in CASES:
        if names and not any(name in case.name for name in names):
            continue
        marks = [mark for mark in case.marks.values() if mark.startswith(("inaccurate", "warned"))]
        if not marks or case.rhs is None or case.events or case.mass is not None:
            continue
        stored[case.name] = {name: errors(case, peer(case)) for name, peer in PEERS.items()}
        print(case.name, stored[case.name], flush=True)
        lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(stored.items()))
        STORE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
