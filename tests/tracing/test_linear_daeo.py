"""DAEOs with linear inner problems: bases along runs, and sensitivities through their changes."""

import importlib.util
import sys
from contextlib import suppress

import numpy as np
import pytest
from mpi4py import MPI
from scipy.integrate import solve_ivp
from scipy.optimize import linprog

import daeosens as ds
from daeosens.costs import AtEvent, EventTime
from daeosens.errors import GrazingError, InputError, SolveError, UnsupportedError
from daeosens.problem import add_events
from daeosens.tracing import LinearDAEO
from daeosens.verify import duality
from tests.support.e_coli_core import e_coli_core

pytest.importorskip("highspy")

FLOWS = ["uptake", "second", "oxygen", "respire", "ferment", "grow"]
A = np.array([[1, 1, 0, -1, -1, -1], [0, 0, 0, 4, 1, -2], [0, 0, 1, -1, 0, 0]])
"""Precursors, energy and oxygen: growth takes a precursor and two of energy."""


def bounds(t, x, p):
    return {
        "uptake": (0.0, p.v1 * x[1] / (p.K + x[1])),
        "second": (0.0, p.v2 * x[2] / (p.K + x[2]) / (1 + x[1] / p.I)),
        "oxygen": (0.0, p.kla * 0.2 / (1.0 + x[0])),
    }


def rates(t, x, v, p):
    return np.array([v.grow * x[0], -v.uptake * x[0], -v.second * x[0], v.ferment * x[0]])


STATES = ["cells", "first", "second", "waste"]
P = {"v1": 2.0, "v2": 1.5, "K": 0.1, "I": 0.2, "kla": 5.0}
X0 = [0.1, 5.0, 5.0, 0.0]
FINE = ds.Stepping((0.0, 6.0), "rk8vr", rtol=1e-12, atol=1e-13)


def make(objectives=("grow", {"ferment": -1.0}), **options):
    arguments = {"size": (STATES, FLOWS), "parameters": [*P]} | options
    f = arguments.pop("f", rates)
    return LinearDAEO(f, A, objectives, arguments.pop("bounds", bounds), **arguments)


@pytest.fixture(scope="module")
def culture():
    return make()


def by_hand(x, p):
    """The optimal flows in closed form: what cannot be respired is fermented."""
    cells, first, second, _ = x
    v1 = p["v1"] * first / (p["K"] + first)
    v2 = p["v2"] * second / (p["K"] + second) / (1 + first / p["I"])
    air = p["kla"] * 0.2 / (1 + cells)
    respire = min((v1 + v2) / 3, air)
    grow = (v1 + v2) / 3 + respire if respire == air else 2 * respire
    return np.array([v1, v2, respire, respire, 2 * grow - 4 * respire, grow])


def by_hand_run(p, times, x0=X0):
    """The run by a program that knows nothing of bases, cut where fermentation begins and ends."""

    def rhs(_t, x):
        v = by_hand(x, p)
        return np.array([v[5], -v[0], -v[1], v[4]]) * x[0]

    pieces, start, now = [], times[0], np.array(x0)
    lack = lambda t, x: sum(by_hand(x, p)[:2]) / 3 - p["kla"] * 0.2 / (1 + x[0])  # noqa: E731
    lack.terminal = True
    jumps = []
    while start < times[-1]:
        done = solve_ivp(
            rhs,
            (start, times[-1]),
            now,
            "DOP853",
            rtol=1e-13,
            atol=1e-14,
            events=lack,
            first_step=1e-6,
            max_step=0.02,  # events lie on an interpolation
        )
        pieces.append(done)
        start, now = done.t[-1], done.y[:, -1]
        if done.status:
            jumps.append(start)
            short = solve_ivp(rhs, (start, start + 1e-7), now, "DOP853", rtol=1e-13, atol=1e-14)
            start, now = short.t[-1], short.y[:, -1]
    return now, jumps


# ---- runs ----------------------------------------------------------------------------------------


def test_a_run_is_that_of_flows_in_closed_form(culture):
    run = ds.solve(culture, X0, culture.pack(P), FINE)
    end, jumps = by_hand_run(P, (0.0, 6.0))
    assert np.abs(run.u[-1] - end).max() < 1e-11
    assert [crossing.t for crossing in run.crossings] == pytest.approx(jumps, abs=1e-11)
    assert len(jumps) == 2
    v = culture.flows(run)
    assert v.shape == (len(run.times), 6)
    assert np.abs(v @ A.T).max() < 1e-14
    expected = np.array([by_hand(x, P) for x in run.u])
    assert np.abs(v - expected).max() < 1e-13
    report = str(run.report).splitlines()
    assert report[2].endswith("oxygen at its upper bound")
    assert report[3].endswith("ferment at its lower bound")


@pytest.mark.parametrize(("method", "order"), [("rk4", 4), ("esdirk4", 4), ("cn", 2)])
def test_methods_keep_their_order_through_changes(culture, method, order):
    p = culture.pack(P)
    end = ds.solve(culture, X0, p, FINE).u[-1]
    errors = []
    for dt in (0.02, 0.01, 0.005):
        run = ds.solve(culture, X0, p, ds.Stepping((0.0, 6.0), method, dt))
        errors.append(np.abs(run.u[-1] - end).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert orders[-1] > order - 0.35, (errors, orders)


def random_model(seed):
    """A programme of nine flows whose bounds are waves in time and state; its bounds as well."""
    rng = np.random.default_rng(seed)
    m, n = 3, 9
    matrix = np.round(rng.normal(size=(m, n)), 1) * (rng.random((m, n)) < 0.6)
    matrix[:, -m:] += np.eye(m)
    waves, phases = rng.uniform(0.5, 3.0, (n, 2)), rng.uniform(0, 6, (n, 2))
    weights = rng.normal(size=(3, n)) * (rng.random((3, n)) < 0.5)
    weights[:, 0] += 1.0
    gains = rng.normal(size=(2, n))

    def moving(t, x, p):
        return {
            k: (
                -1.0 - 0.5 * np.sin(waves[k, 0] * t + phases[k, 0] + x[0]),
                1.0 + 0.8 * np.sin(waves[k, 1] * t + phases[k, 1] - p.a * x[1]),
            )
            for k in range(n)
        }

    def f(t, x, v, p):
        return 0.2 * (gains @ v[:]) - x

    model = LinearDAEO(f, matrix, weights, moving, size=(2, n), parameters=["a"])
    return model, matrix, weights, moving


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("method", "steps"), [("rk6vr", {"rtol": 1e-9}), ("rk4", {"dt": 0.25}), ("cn", {"dt": 0.1})]
)
def test_flows_are_optimal_everywhere(seed, method, steps):
    """Of random programmes, with large steps too: by a solver, objective after objective."""
    model, matrix, weights, moving = random_model(seed)
    run = ds.solve(model, [0.1, 0.2], [0.5], ds.Stepping((0.0, 4.0), method, **steps))
    assert len(run.crossings) >= 4
    v, p = model.flows(run), model.unpack(run.p)
    for k in range(0, len(run.times), max(1, len(run.times) // 12)):
        pairs = [(float(a), float(b)) for a, b in moving(run.times[k], run.u[k], p).values()]
        reached = []
        for c in weights:
            optimum = linprog(
                -c,
                A_eq=np.vstack([matrix, *weights[: len(reached)]]),
                b_eq=[0.0] * len(matrix) + reached,
                bounds=pairs,
            )
            if optimum.status:  # the values before, to rounding
                break
            reached.append(float(c @ optimum.x))
            assert c @ v[k] == pytest.approx(reached[-1], abs=1e-6)
        assert reached
        low, high = np.array(pairs).T
        assert (v[k] >= low - 1e-12).all()
        assert (v[k] <= high + 1e-12).all()
        assert np.abs(matrix @ v[k]).max() < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_gradients_of_random_programmes_are_differences_of_whole_runs(seed):
    model, *_ = random_model(seed)
    stepping = ds.Stepping((0.0, 4.0), "rk8vr", rtol=1e-12, atol=1e-13)
    cost = model.terminal(lambda t, x, p: x[0] + x[1] ** 2)
    run = ds.solve(model, [0.1, 0.2], [0.5], stepping)
    gradient = ds.adjoint(run, cost)

    def value(a, first):
        end = ds.solve(model, [first, 0.2], [a], stepping).u[-1]
        return end[0] + end[1] ** 2

    weights = np.array([1, -8, 8, -1]) / 12e-4
    by_a = weights @ [value(0.5 + 1e-4 * k, 0.1) for k in (-2, -1, 1, 2)]
    by_first = weights @ [value(0.5, 0.1 + 1e-4 * k) for k in (-2, -1, 1, 2)]
    assert gradient.p[0] == pytest.approx(by_a, rel=1e-7)
    assert gradient.u0[0] == pytest.approx(by_first, rel=1e-7)


# ---- sensitivities -------------------------------------------------------------------------------


def cost_of(model):
    return model.terminal(lambda t, x, p: x[0] + 0.1 * x[3] ** 2 + p.K * x[1] * t)


@pytest.mark.parametrize("method", ["rk4", "esdirk4", "cn"])
def test_adjoint_is_the_transpose_of_the_tangent(culture, method):
    run = ds.solve(culture, X0, culture.pack(P), ds.Stepping((0.0, 6.0), method, 0.02))
    assert len(run.crossings) == 2
    for cost in (
        cost_of(culture),
        EventTime("basis", 1),
        AtEvent(lambda t, u, p: u[3] * t, "basis"),
    ):
        assert duality(run, cost) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk4", "esdirk4"])
@pytest.mark.parametrize("what", ["state", "integral", "time"])
def test_taylor_remainders_fall_with_orders_two_and_three(method, what):
    model = make(running=lambda t, x, p: np.cos(t) * x[0] * x[3] + p.v1 * x[1] ** 2)
    cost = {"state": cost_of(model), "integral": model.running, "time": EventTime("basis", 1)}[what]
    free = ds.Parameters(
        {name: ds.Parameter(value) for name, value in P.items()},
        initial_state=lambda p: np.array([0.05 * p[0], 5.0, 5.0 * p[2] / 0.1, 0.0]),
    )
    functional = ds.Reduced(model, cost, ds.Stepping((0.0, 6.0), method, dt=0.02), free)
    assert min(ds.taylor(functional)) > 1.9
    assert min(ds.taylor(functional, hessian=True)) > 2.9


@pytest.mark.slow
def test_gradients_are_those_of_the_closed_form(culture):
    """Against differences of fourth order of a program that knows nothing of bases."""
    run = ds.solve(culture, X0, culture.pack(P), FINE)
    gradient = ds.adjoint(run, culture.terminal(lambda t, x, p: x[0])).p
    time = ds.adjoint(run, EventTime("basis", 1)).p
    for k, name in enumerate(P):
        ends, times = [], []
        for part in (-3, -2, -1, 1, 2, 3):
            changed = P | {name: P[name] * (1 + 1e-2 * part)}
            end, jumps = by_hand_run(changed, (0.0, 6.0))
            ends.append(end[0])
            times.append(jumps[1])
        weights = np.array([-1, 9, -45, 45, -9, 1]) / (60 * 1e-2 * P[name])
        assert gradient[k] == pytest.approx(weights @ ends, rel=1e-8, abs=1e-9)
        assert time[k] == pytest.approx(weights @ times, rel=2e-8, abs=1e-8)


# ---- events of users, ties, errors ---------------------------------------------------------------


@pytest.mark.slow
def test_feeding_jumps_to_another_basis_and_derivatives_go_through():
    """A pulse at a fixed time, and one where the waste has reached a level."""
    feeds = [
        ds.Event(2.0, lambda t, x, p: x + np.array([0.0, 4.0, 0.0, 0.0])),
        ds.Event(
            lambda t, x, p: x[3] - p.level,
            lambda t, x, p: x * np.array([0.05, 1.0, 1.0, 0.5]),
            direction=1,
            name="harvest",
        ),
    ]
    model = make(events=feeds, parameters=[*P, "level"])
    cost = model.terminal(lambda t, x, p: x[0] + x[3] * x[2])
    p = model.pack(P | {"level": 2.0})
    stepping = ds.Stepping((0.0, 4.0), "rk8vr", rtol=1e-12, atol=1e-13)
    run = ds.solve(model, X0, p, stepping)
    names = [crossing.name for crossing in run.crossings]
    assert "harvest" in names
    jump = run.crossings[names.index("harvest")]
    assert jump.mode_before != jump.mode  # from air in short supply to enough of it
    gradient = ds.adjoint(run, cost)
    direction = np.array([0.3, -0.2, 0.02, 0.03, 0.4, 0.5])

    def value(part):
        end = ds.solve(model, X0, p + part * direction, stepping).u[-1]
        return end[0] + end[3] * end[2]

    h = 1e-3
    parts = [value(k * h) for k in (-3, -2, -1, 1, 2, 3)]
    slope = np.array([-1, 9, -45, 45, -9, 1]) @ parts / (60 * h)
    assert gradient.p @ direction == pytest.approx(slope, rel=1e-8)
    low, high = (np.array([item[k] for item in BOUNDS(run, model)]) for k in range(2))
    v = model.flows(run)
    assert (v >= low - 1e-9).all()
    assert (v <= high + 1e-9).all()
    # an event that the model was not told of in time cannot say which basis follows
    told_late = add_events(make(), [ds.Event(2.0, lambda t, u, p: u * [0.05, 1, 1, 1])])
    with pytest.raises(SolveError, match=r"the flows jump at t = 2\b.*\n.*\n.*events="):
        ds.solve(told_late, X0, make().pack(P), stepping)


def BOUNDS(run, model):  # noqa: N802
    named = model.unpack(run.p)
    for t, x in zip(run.times, run.u, strict=True):
        pairs = np.array([[0.0, np.inf]] * 6)
        for flow, pair in bounds(t, x, named).items():
            pairs[FLOWS.index(flow)] = pair
        yield pairs.T


def two_ways(objectives, f=None):
    """Two reactions that do the same, one of them a little later in the list of flows."""
    matrix = [[1.0, -1.0, -1.0]]
    return LinearDAEO(
        f or (lambda t, x, v, p: np.array([v.left, v.right])),
        matrix,
        objectives,
        lambda t, x, p: {"in": (0.0, 1.0 + p.a * t), "left": (0.0, 0.6 + 0.2 * t)},
        size=(2, ["in", "left", "right"]),
        parameters=["a"],
        upper=10.0,
    )


def test_later_objectives_decide_between_optima():
    span = ds.Stepping((0.0, 1.0), "rk4", 0.1)
    left = ds.solve(two_ways(["in", "left"]), [0.0, 0.0], [0.5], span)
    assert left.u[-1] == pytest.approx([0.7, 1.25 - 0.7], abs=1e-14)
    right = ds.solve(two_ways(["in", {"left": -1.0}]), [0.0, 0.0], [0.5], span)
    assert right.u[-1] == pytest.approx([0.0, 1.25], abs=1e-14)
    with pytest.raises(
        SolveError, match=r"not unique at t = 0: no objective says what left, right"
    ):
        ds.solve(two_ways(["in"]), [0.0, 0.0], [0.5], span)
    # what f does not take may be left open
    total = two_ways(["in"], lambda t, x, v, p: np.array([v["in"], 0.0 * x[0]]))
    assert ds.solve(total, [0.0, 0.0], [0.5], span).u[-1, 0] == pytest.approx(1.25, abs=1e-14)


def maintained(x0, **options):
    """A demand that uptake cannot meet for ever."""
    model = LinearDAEO(
        lambda t, x, v, p: np.array([-v[0] * x[1], v[2] * x[1]]),
        [[1.0, -1.0, -1.0]],
        [2],
        lambda t, x, p: {0: (0.0, p.v * x[0] / (1.0 + x[0])), 1: (0.3, np.inf)},
        size=(2, 3),
        parameters=["v"],
        **options,
    )
    return ds.solve(model, x0, [1.0], ds.Stepping((0.0, 20.0), "rk6vr", rtol=1e-10))


def test_parameters_that_change_at_an_event():
    change = ds.Event(1.0, changes={"a": lambda t, x, p: 2.0 * p.a}, name="more")
    model = LinearDAEO(
        lambda t, x, v, p: np.array([v.out]),
        [[1.0, -1.0]],
        ["out"],
        lambda t, x, p: {"in": (0.0, p.a)},
        size=(1, ["in", "out"]),
        parameters=["a"],
        events=[change],
    )
    run = ds.solve(model, [0.0], [1.5], ds.Stepping((0.0, 2.0), "rk4", 0.25))
    assert run.u[-1, 0] == pytest.approx(4.5, abs=1e-14)
    assert model.flows(run)[[0, -1]].tolist() == [[1.5, 1.5], [3.0, 3.0]]
    cost = model.terminal(lambda t, x, p: x[0])
    assert ds.adjoint(run, cost).p == pytest.approx([3.0], abs=1e-14)
    with pytest.raises(InputError, match="another model"):
        two_ways(["in", "left"]).flows(run)


def test_an_infeasible_programme_is_named_with_its_time_and_the_run_so_far():
    with pytest.raises(SolveError, match="infeasible from t = ") as caught:
        maintained([4.0, 1.0])
    message = str(caught.value)
    assert "v2 cannot keep its lower bound 0, because v0 is at its upper bound 0.3" in message
    assert "v1 is at its lower bound 0.3" in message
    run = caught.value.run
    t = float(message.split("t = ")[1].split(" ", 1)[0])
    assert run.times[-1] == pytest.approx(t, rel=1e-8)
    x = run.u[-1, 0]
    assert x / (1 + x) == pytest.approx(0.3, abs=2e-7)  # the tolerance of a bound
    with pytest.raises(SolveError, match="infeasible at t = 0"):
        maintained([0.2, 1.0])


@pytest.mark.slow
def test_other_programmes_without_a_solution():
    span = ds.Stepping((0.0, 1.0), "rk4", 0.1)

    def solved(objectives=("out",), pair=None, **options):
        model = LinearDAEO(
            lambda t, x, v, p: np.array([v["out"]]),
            [[1.0, -1.0]],
            objectives,
            lambda t, x, p: {"in": pair(t, x) if pair else (0.0, 1.0 + t)},
            size=(1, ["in", "out"]),
            **options,
        )
        return ds.solve(model, [0.0], [], span)

    with pytest.raises(SolveError, match="unbounded"):
        solved(pair=lambda t, x: (-1.0 - t, np.inf))
    with pytest.raises(SolveError, match="infeasible at t = 0: the bounds of in are 2 and 1"):
        solved(pair=lambda t, x: (2.0 + t, 1.0))
    with pytest.raises(SolveError, match="the lower bound of in comes above the upper one"):
        solved(pair=lambda t, x: (2.0 * t, 1.0))
    with pytest.raises(SolveError, match="bounds of in are nan"):
        solved(pair=lambda t, x: (0.0, np.sqrt(x[0] - 1.0)))
    with pytest.raises(SolveError, match="infeasible at t = 0"):
        solved(b=[5.0], upper=3.0)
    with pytest.raises(SolveError, match=r"a bound jumps at t = 0\.(5|49)"):
        solved(pair=lambda t, x: (0.0, np.where(t < 0.5, 1.0, 3.0)), upper=2.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 4}, "size = 4"),
        ({"objectives": []}, "there is no objective"),
        ({"objectives": ["growth"]}, "there is no flow 'growth'"),
        ({"objectives": [{"grow": 0.0}]}, "objective {'grow': 0.0}"),
        ({"objectives": [[1.0, 2.0]]}, r"objective has the shape \(2,\)"),
        ({"lower": [0.0, 1.0]}, r"lower has the shape \(2,\)"),
        ({"upper": np.nan}, "upper = nan"),
        ({"b": [0.0, np.inf, 0.0]}, "b = "),
        ({"size": (STATES, FLOWS[:-1])}, r"A has the shape \(3, 6\)"),
        ({"bounds": lambda t, x, p: [0.0, 1.0]}, r"bounds\(t, x, p\) returned"),
        ({"bounds": lambda t, x, p: {"oxigen": (0.0, x[0])}}, "there is no flow 'oxigen'"),
        ({"bounds": lambda t, x, p: {"oxygen": x[0]}}, "is .*expected: .lower, upper"),
        ({"bounds": lambda t, x, p: {"oxygen": (0.0, 1.0)}}, "returns numbers only"),
        ({"f": lambda t, x, v, p: -x}, "f does not depend on a flow"),
        ({"f": lambda t, x, v, p: v.grow * x[:2]}, "'f' returned shape"),
        ({"f": lambda t, x, v, p: v.growth * x}, "growth"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(InputError, match="(?s)" + message):
        make(**change)


@pytest.mark.parametrize("curved", [0.0, 1.0])
def test_flows_that_come_to_their_bounds_together(curved):
    """At one instant, in proportion before or not: with a closed form, and with its derivative."""
    model = LinearDAEO(
        lambda t, x, v, p: np.array([v.a + v.b]),
        [[1, -1, 0, 0], [0, 0, 1, -1]],
        [{"a": 1.0, "b": 1.0}],
        lambda t, x, p: {
            "to_a": (0.0, 0.5 + p.rate * t),
            "to_b": (0.0, 1.0 + 2.0 * p.rate * t + curved * (t - 0.5) ** 2),
        },
        size=(1, ["to_a", "a", "to_b", "b"]),
        parameters=["rate"],
        upper=[9.0, 1.0, 9.0, 2.0],
    )
    run = ds.solve(model, [0.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", 0.07))
    assert [crossing.t for crossing in run.crossings] == pytest.approx([0.5] * len(run.crossings))
    assert run.u[-1, 0] == pytest.approx(0.375 + 0.5 + 0.75 + 1.0 + curved / 24, abs=1e-14)
    assert model.flows(run)[-1].tolist() == [1.0, 1.0, 2.0, 2.0]
    gradient = ds.adjoint(run, model.terminal(lambda t, x, p: x[0]))
    assert gradient.p == pytest.approx([0.125 + 0.25], abs=1e-14)


def test_parameters_are_estimated_from_a_run(culture):
    p = culture.pack(P)
    times = np.linspace(0.5, 6.0, 12)
    stepping = ds.Stepping((0.0, 6.0), "rk6vr", rtol=1e-9, atol=1e-10)
    run = ds.solve(culture, X0, p, stepping, t_eval=times)
    data = np.array([run.u[np.argmin(np.abs(run.times - t))] for t in times])
    free = ds.Parameters(
        {
            name: ds.Parameter(value * (1.3 if name in ("v1", "kla") else 1.0), scale="log")
            for name, value in P.items()
        }
        | {"K": P["K"], "I": P["I"]},
        initial_state=X0,
    )
    cost = ds.LeastSquares(times, data)
    reduced = ds.Reduced(culture, cost, stepping, free)
    values = free.values_at(culture, ds.minimize(reduced).x)
    for name in ("v1", "v2", "kla"):
        assert values[name] == pytest.approx(P[name], rel=1e-5)


@pytest.mark.filterwarnings("ignore:traced models run without being compiled")
def test_without_a_compiler_the_numbers_are_the_same(culture, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    slow = make()
    stepping = ds.Stepping((0.0, 3.0), "rk4", 0.05)
    runs = [ds.solve(model, X0, model.pack(P), stepping) for model in (culture, slow)]
    assert len(runs[0].crossings) == 1
    assert runs[1].u == pytest.approx(runs[0].u, abs=1e-13)
    gradients = [
        ds.adjoint(run, cost_of(model)).p for run, model in zip(runs, (culture, slow), strict=True)
    ]
    assert gradients[1] == pytest.approx(gradients[0], rel=1e-11)


def test_without_highs_there_is_an_error_before_anything_is_compiled(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(UnsupportedError, match="package highspy"):
        make()


# ---- the core model of E. coli -------------------------------------------------------------------

needs_cobra = pytest.mark.skipif(
    importlib.util.find_spec("cobra") is None, reason="the core model of E. coli comes with cobra"
)

GLUCOSE, XYLOSE, OXYGEN = "EX_glc__D_e", "EX_xyl__D_e", "EX_o2_e"
GROWTH = "Biomass_Ecoli_core"
UPTAKE = {"v_g": 10.5, "K_g": 0.015, "v_z": 6.0, "K_z": 0.11, "K_i": 0.03}
UPTAKE |= {"v_o": 15.0, "K_o": 0.024, "kla": 100.0}
BATCH = [0.03, 80.0, 50.0, 0.21, 0.0, 0.0]


def uptakes(t, x, p):
    glucose, xylose, oxygen = (np.maximum(x[k], 0.0) for k in (1, 2, 3))
    return {
        GLUCOSE: (-p.v_g * glucose / (p.K_g + glucose), 0.0),
        XYLOSE: (-p.v_z * xylose / (p.K_z + xylose) / (1 + glucose / p.K_i), 0.0),
        OXYGEN: (-p.v_o * oxygen / (p.K_o + oxygen), 0.0),
    }


def batch(t, x, v, p):
    made = np.array([v[k] for k in (GROWTH, GLUCOSE, XYLOSE, OXYGEN, "EX_etoh_e", "EX_ac_e")])
    air = p.kla * (0.21 - x[3])
    return x[0] * made + np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0]) * air


@pytest.fixture(scope="module")
def e_coli():
    network = e_coli_core()
    assert network.matrix.shape == (72 + 3, 95 + 4)
    lower = network.lower.copy()
    lower[network.flows.index("ATPM")] = 0.0  # otherwise nothing lives without sugar
    return LinearDAEO(
        batch,
        network.matrix,
        [GROWTH, {"EX_etoh_e": -1.0}, {"EX_ac_e": -1.0}, OXYGEN],
        uptakes,
        size=(["cells", "glucose", "xylose", "oxygen", "ethanol", "acetate"], network.flows),
        parameters=[*UPTAKE],
        lower=lower,
        upper=network.upper,
    )


@needs_cobra
def test_e_coli_core_grows_as_others_say():
    network = e_coli_core(xylose=False)
    assert network.matrix.shape == (72, 95)
    optimum = linprog(
        -(np.array(network.flows) == GROWTH).astype(float),
        A_eq=network.matrix,
        b_eq=np.zeros(72),
        bounds=list(zip(network.lower, network.upper, strict=True)),
    )
    assert -optimum.fun == pytest.approx(0.8739215069684279, rel=1e-9)  # cobra's slim_optimize()


@needs_cobra
def test_e_coli_takes_glucose_first_then_xylose(e_coli):
    p = e_coli.pack(UPTAKE)
    run = ds.solve(e_coli, BATCH, p, ds.Stepping((0.0, 10.0), "esdirk4", rtol=1e-8, atol=1e-9))
    v, names = e_coli.flows(run), e_coli.flow_names
    glucose, xylose = (v[:, names.index(k)] for k in (GLUCOSE, XYLOSE))
    early, late = run.times < 6.5, (run.times > 7.3) & (run.times < 8.3)
    assert (glucose[early] < -10.0).all()
    assert (xylose[early] > -0.01).all()
    assert (glucose[late] > -1e-6).all()
    assert (xylose[late] < -5.0).all()
    assert run.u[-1, 0] == pytest.approx(6.80138, abs=1e-5)
    assert len(run.report) >= 6
    low, high = uptakes(0.0, run.u.T, e_coli.unpack(p))[GLUCOSE]
    assert (glucose >= low - 1e-9).all()
    assert (glucose <= high + 1e-9).all()


@needs_cobra
def test_flows_of_e_coli_are_optimal_all_the_way(e_coli):
    p = e_coli.pack(UPTAKE)
    run = ds.solve(e_coli, BATCH, p, ds.Stepping((0.0, 8.5), "rk6vr", rtol=1e-8, atol=1e-9))
    v, names = e_coli.flows(run), list(e_coli.flow_names)
    network = e_coli_core()
    for k in np.linspace(0, len(run.times) - 1, 12).astype(int):
        low, high = network.lower.copy(), network.upper.copy()
        low[names.index("ATPM")] = 0.0
        for flow, pair in uptakes(run.times[k], run.u[k], e_coli.unpack(p)).items():
            low[names.index(flow)], high[names.index(flow)] = pair
        unit = (np.array(names) == GROWTH).astype(float)
        pairs = list(zip(low, high, strict=True))
        optimum = linprog(-unit, A_eq=network.matrix, b_eq=np.zeros(75), bounds=pairs)
        assert v[k, names.index(GROWTH)] == pytest.approx(-optimum.fun, abs=1e-8)
        assert (v[k] >= low - 1e-9).all()
        assert (v[k] <= high + 1e-9).all()
        assert np.abs(network.matrix @ v[k]).max() < 1e-10


@needs_cobra
def test_final_biomass_of_e_coli_by_uptake_rates_against_whole_runs(e_coli):
    p = e_coli.pack(UPTAKE)
    stepping = ds.Stepping((0.0, 8.0), "rk8vr", rtol=1e-12, atol=1e-13)
    run = ds.solve(e_coli, BATCH, p, stepping)
    assert [crossing.name for crossing in run.crossings] == ["basis"] * 3
    cost = e_coli.terminal(lambda t, x, p: x[0])
    gradient = e_coli.unpack(ds.adjoint(run, cost).p)
    for name in ("v_g", "v_z", "v_o", "kla"):
        ends = []
        for part in (-2, -1, 1, 2):
            changed = e_coli.pack(UPTAKE | {name: UPTAKE[name] * (1 + 1e-4 * part)})
            ends.append(ds.solve(e_coli, BATCH, changed, stepping).u[-1, 0])
        slope = np.array([1, -8, 8, -1]) @ ends / (12e-4 * UPTAKE[name])
        assert gradient[name] == pytest.approx(slope, rel=1e-8)


@needs_cobra
def test_e_coli_starves_with_a_demand_for_energy(e_coli):
    network = e_coli_core()
    model = LinearDAEO(
        batch,
        network.matrix,
        [GROWTH, {"EX_etoh_e": -1.0}, {"EX_ac_e": -1.0}, OXYGEN],
        uptakes,
        size=(6, network.flows),
        parameters=[*UPTAKE],
        lower=network.lower,
        upper=network.upper,
    )
    stepping = ds.Stepping((0.0, 12.0), "esdirk4", rtol=1e-7, atol=1e-8)
    with pytest.raises(SolveError, match="infeasible from t = ") as caught:
        ds.solve(model, BATCH, model.pack(UPTAKE), stepping)
    assert 7.0 < caught.value.run.times[-1] < 10.0


@pytest.mark.mpi
def test_ranks_trace_together_and_run_alike():
    comm = MPI.COMM_WORLD
    model = make()
    run = ds.solve(model, X0, model.pack(P), ds.Stepping((0.0, 6.0), "rk4", 0.02))
    gradient = ds.adjoint(run, cost_of(model)).p
    ends = comm.allgather((run.u[-1].tolist(), gradient.tolist(), [*model.modes]))
    assert all(end == ends[0] for end in ends)
    assert len(run.crossings) == 2
    if comm.size > 1:
        with pytest.raises(InputError, match=r"lower is 0\.0 on rank 0 and 1\.0 on rank 1"):
            make(lower=float(comm.rank))


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("off", [0.0, 1e-17, 1e-15, -1e-15, 3e-13])
@pytest.mark.parametrize("dt", [0.05, 0.03])
def test_flows_that_rest_at_a_bound_before_they_would_leave_it(power, off, dt):
    """The uptake comes to what can be used at 0.5, stays there, and rises from 0.75 on."""
    model = LinearDAEO(
        lambda t, x, v, p: np.array([v.used]),
        [[1, -1]],
        ["used"],
        lambda t, x, p: {
            "taken": (
                0.0,
                np.minimum(1.0 + off, 0.5 + t) + p.c * np.maximum(t - 0.75, 0.0) ** power,
            )
        },
        size=(1, ["taken", "used"]),
        parameters=["c"],
        upper=[9.0, 1.0],
    )
    run = ds.solve(model, [0.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt))
    v = model.flows(run)[:, 1]
    assert v.max() <= 1.0 + 1e-12
    assert v == pytest.approx(np.minimum(1.0, 0.5 + run.times), abs=1e-12)
    assert run.u[-1, 0] == pytest.approx(0.875, abs=1e-9)
    assert len(run.crossings) == 1
    cost = model.terminal(lambda t, x, p: x[0])
    with suppress(GrazingError):  # the time of the change is not one: right, or no derivative
        assert ds.adjoint(run, cost).p == pytest.approx([0.0], abs=1e-12)
