"""Adjoints in blocks through events: the numbers of the sweep by steps."""

import batched
import event_support
import numpy as np
import pytest

import daeosens as ds
from daeosens.derivatives.engines.arrays import adjoint as array_adjoint
from daeosens.derivatives.engines.choice import no_arrays
from daeosens.derivatives.hessian import hessian_sweep
from daeosens.derivatives.sweeps import second_order
from daeosens.derivatives.tangent import tangent_sweep
from daeosens.methods import find_method


def possible(cell):
    problem, _ = event_support.hybrid_of(cell)
    return not no_arrays(problem, event_support.stepping_of(cell).resolved_method)


CELLS = [cell for cell in event_support.design() if possible(cell)]


def difference(ours, reference):
    return abs(ours - reference).max() / max(abs(reference).max(), 1e-3)


def assert_equal(run, costs):
    block, steps = (ds.adjoint(run, costs, engine) for engine in ("arrays", "vectors"))
    for ours, reference in zip(block, steps, strict=True):
        assert ours.engine == "arrays"
        assert difference(ours.u0, reference.u0) < 1e-12
        if reference.p.size:
            assert difference(ours.p, reference.p) < 1e-12


def test_most_cells_can_be_swept():
    assert len(CELLS) > 40
    methods = {method for method in event_support.METHODS if not find_method(method).in_blocks}
    assert {cell.method for cell in CELLS} == methods


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_every_kind_of_event_and_method(cell):
    problem, _ = event_support.hybrid_of(cell)
    objective, _ = event_support.cost_of(cell)
    control, x, _ = event_support.control_of(cell)
    functional = ds.Reduced(problem, objective, event_support.stepping_of(cell), control)
    run = functional.trajectory(x)
    assert run.crossings
    final = ds.Terminal(lambda t, u, p: u[0] * u[1])
    assert_equal(run, [objective, final])
    assert ds.adjoint(run, objective).engine == "arrays"
    if run.p.size:  # rows are fewer than columns
        block, steps = (ds.sensitivities(run, engine=engine) for engine in ("arrays", "vectors"))
        assert (block.engine, block.sweep) == ("arrays", "adjoint")
        assert difference(block.u0, steps.u0) < 1e-12
        assert difference(block.p, steps.p) < 1e-12


# ---- which steps make up pieces ------------------------------------------------------------------


def ball(drag, autonomous):
    """A ball that bounces with the restitution p[1]; the drag p[2] may depend on the time."""

    def rhs(t, u, p):
        rate = p[2] if autonomous else p[2] * np.cos(t)
        return np.array([u[1], -p[0] - drag * rate * u[1]])

    value = {"rhs_t": "autonomous"} if autonomous else {}
    bounce = ds.Event(
        lambda t, u, p: u[0],
        lambda t, u, p: np.array([0.0 * u[0], -p[1] * u[1]]),
        direction=-1,
        name="bounce",
    )
    problem = ds.ODE(rhs, 2, ["gravity", "restitution", "drag"], events=[bounce], **value)
    stepping = ds.Stepping((0.0, 3.0), "rk5dp", dt=0.05, rtol=1e-8, atol=1e-8)
    return ds.solve(problem, [1.0, 0.0], [9.81, 0.8, 0.1], stepping, [1.7])


COST = ds.Terminal(lambda t, u, p: u[0] * u[1] + p[2] ** 2) + ds.LeastSquares([1.7], [[0.1, 0.2]])


@pytest.mark.filterwarnings("ignore:a running cost varies faster")
@pytest.mark.parametrize("autonomous", [True, False])
@pytest.mark.parametrize("running", [True, False])
def test_steps_whose_time_matters_are_no_pieces(autonomous, running, monkeypatch):
    run = ball(1.0, autonomous)
    assert len(run.crossings) > 3
    cost = COST + ds.Running(lambda t, u, p: t * u[0] ** 2) if running else COST
    carried = []
    value = array_adjoint.sweep_rows

    def counted(piece, lam, last, *more):
        carried.append(last)
        return value(piece, lam, last, *more)

    monkeypatch.setattr(array_adjoint, "sweep_rows", counted)
    assert_equal(run, [cost])
    records = run.records
    smooth = [record for record in records if record.jump is None and record.ends_at is None]
    timed = sum(item.timed for item in smooth)
    fixed = sum(item.slope == 0.0 for item in smooth if item.timed)
    assert 0 < fixed < timed < len(smooth)  # observations fix the times from there on
    invariant = autonomous and not running
    assert sum(carried) == len(smooth) - timed + (fixed if invariant else 0)


def test_the_closed_form_of_a_falling_ball():
    """After one bounce, at the time T: u = v e (T - s) - g (T - s)^2 / 2, s^2 = 2/g, v = g s."""
    g, e, end = 9.81, 0.8, 0.7
    run = ball(0.0, True)
    problem, stepping = run.problem, ds.Stepping((0.0, end), "rk4", dt=0.05)
    run = ds.solve(problem, [1.0, 0.0], [g, e, 0.0], stepping)
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]), "arrays")
    s = np.sqrt(2 / g)
    rest, by_s = end - s, -s / (2 * g)
    assert gradient.value == pytest.approx(g * s * e * rest - g * rest**2 / 2, rel=1e-12)
    assert gradient.p[1] == pytest.approx(g * s * rest, rel=1e-11)
    by_g = s * e * rest - rest**2 / 2 + by_s * (g * e * rest - g * s * e + g * rest)
    assert gradient.p[0] == pytest.approx(by_g, rel=1e-11)


def test_modes_have_their_own_pieces():
    heating = ds.ODE(lambda t, u, p: p[0] - u, 1, ["power"], jacobian=lambda t, u, p: [[-1.0]])
    cooling = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["power"])
    hot = ds.Event(lambda t, u, p: u[0] - 0.8, direction=1, mode="off", name="hot")
    cold = ds.Event(lambda t, u, p: u[0] - 0.4, direction=-1, mode="on", name="cold")
    problem = ds.hybrid({"on": heating, "off": cooling}, "off", [hot, cold])
    for end in (4.0, 0.1):  # the latter without any event
        run = ds.solve(problem, [0.7], [1.1], ds.Stepping((0.0, end), "cn", dt=0.02))
        assert bool(run.crossings) == (end == 4.0)
        assert_equal(run, [ds.Terminal(lambda t, u, p: u[0] ** 2)])


def test_jacobians_of_residuals_through_events():
    run = ball(1.0, True)
    objective = ds.LeastSquares([1.7], [[0.1, 0.2]])
    ours, reference = (
        batched.residual_rows(run, objective, engine) for engine in ("arrays", "vectors")
    )
    assert difference(ours, reference) < 1e-12


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_tangents_and_second_order_of_windows_are_those_by_steps(cell):
    problem, _ = event_support.hybrid_of(cell)
    objective, _ = event_support.cost_of(cell)
    control, x, _ = event_support.control_of(cell)
    run = ds.Reduced(problem, objective, event_support.stepping_of(cell), control).trajectory(x)
    rng = np.random.default_rng(7)
    pairs = [
        (rng.standard_normal(run.problem.size), rng.standard_normal(run.problem.n_parameters))
        for _ in range(3)
    ]
    block, steps = (tangent_sweep(run, pairs, engine) for engine in ("arrays", "vectors"))
    for ours, reference in zip(block, steps, strict=True):
        assert ours.engine == "arrays"
        assert difference(ours.u, reference.u) < 1e-12
        assert difference(ours.times, reference.times) < 1e-12
    block, steps = (
        hessian_sweep(run, objective, pairs, engine=engine) for engine in ("arrays", "vectors")
    )
    for ours, reference in zip(block, steps, strict=True):
        assert ours.engine == "arrays"
        assert difference(ours.gradient.u0, reference.gradient.u0) < 1e-12
        assert difference(ours.u0, reference.u0) < 1e-11
        if reference.p.size:
            assert difference(ours.p, reference.p) < 1e-11


@pytest.mark.parametrize("method", ["rk4", "esdirk4"])
def test_what_windows_were_linearised_by_serves_the_way_back(method, monkeypatch):
    """Where memory suffices: the same digits with fewer evaluations, at most six gradients'."""
    evaluations = [0]

    def falling(t, u, p):
        evaluations[0] += 1
        return np.array([u[1], -p[0] - 0.1 * u[1] * p[1]])

    bounce = ds.Event(lambda t, u, p: u[0], lambda t, u, p: np.array([0.0 * u[0], -p[1] * u[1]]))
    problem = ds.ODE(falling, 2, 2, events=[bounce])
    run = ds.solve(problem, [1.0, 0.0], [9.81, 0.8], ds.Stepping((0.0, 2.5), method, dt=0.01))
    assert len(run.crossings) > 3
    cost = ds.Terminal(lambda t, u, p: u[0] * u[1])
    ways = [(np.array([1.0, 0.3]), np.array([0.2, 1.0])), (None, np.array([0.0, 1.0]))]

    def counted(work):
        work()  # what is looked at once
        evaluations[0] = 0
        return work(), evaluations[0]

    _, of_gradient = counted(lambda: ds.adjoint(run, cost, "arrays"))
    kept, with_memory = counted(lambda: hessian_sweep(run, cost, ways, engine="arrays"))
    monkeypatch.setattr(second_order, "LITTLE_MEMORY", 0)
    again, without = counted(lambda: hessian_sweep(run, cost, ways, engine="arrays"))
    assert with_memory < without
    assert with_memory < 6 * of_gradient
    for ours, reference in zip(kept, again, strict=True):
        assert np.array_equal(ours.u0, reference.u0)
        assert np.array_equal(ours.p, reference.p)
