"""ESDIRK steps of small dense systems in C: TSDIRK's, without its solvers."""

from dataclasses import replace

import numpy as np
import pytest
from forms import DIAGONAL
from petsc4py import PETSc
from support.sweeps import in_c

import daeosens as ds
from daeosens.functional import InitialState
from daeosens.methods import find_method
from daeosens.problem import Native
from daeosens.timestepping import runner
from daeosens.timestepping.dense_ts import LARGEST, dense_steps, directed_steps
from daeosens.verify import duality

TSDIRK = {"snes_rtol": 1e-13}
"""An option of PETSc, which only its own steps read: stages as exact as those here."""


def van_der_pol():
    model = ds.trace(
        lambda t, u, p: np.array([u[1], p.mu * ((1 - u[0] ** 2) * u[1] - u[0]) + 0.1 * np.sin(t)]),
        size=2,
        parameters={"mu": ()},
        running=lambda t, u, p: u[0] ** 2 * u[1] + p.mu * np.cos(t) * u[1],
    )
    return model, np.array([2.0, -0.66]), np.array([100.0]), (0.0, 0.5)


def chain(n):
    """Return a stiff chain of reactions with diffusion; its Jacobian has a pattern for large n."""

    def rhs(t, u, p):
        flow = p.rate[0] * u[:-1] * u[1:] - p.rate[1] * (u[:-1] - u[1:])
        out = np.zeros_like(u)
        out[:-1] -= flow
        out[1:] += flow
        return out + p.source * np.cos(t)

    model = ds.trace(
        rhs,
        size=n,
        parameters={"rate": (2,), "source": ()},
        running=lambda t, u, p: np.sin(t) * u @ u + p.rate[0] * u[1],
    )
    u0 = 1.0 + 0.5 * np.sin(np.arange(n))
    return model, u0, np.array([3.0, -200.0, 0.3]), (0.0, 1.0)


CASES = {
    "2 unknowns": van_der_pol,
    "12 unknowns": lambda: chain(12),
    "20 with a pattern": lambda: chain(20),
    "40 by LAPACK": lambda: chain(40),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]()


def close(fast, slow):
    """Compare derivatives to a part of the largest number: others may be differences of such."""
    for name in ("u0", "p"):
        ours, theirs = getattr(fast, name), getattr(slow, name)
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-12 * np.abs(theirs).max())


@pytest.mark.parametrize("method", DIAGONAL)
def test_steps_are_those_of_tsdirk(case, method):
    model, u0, p, span = case
    for sizes in ({"dt": 0.05}, {"rtol": 1e-6, "atol": 1e-8, "dt": 1e-3}):
        here = ds.solve(model, u0, p, ds.Stepping(span, method, **sizes))
        there = ds.solve(model, u0, p, ds.Stepping(span, method, **sizes, options=TSDIRK))
        assert here.effort.linear_iterations == 0 < there.effort.linear_iterations
        assert here.effort.rejected == there.effort.rejected
        # stages are solved to about 1e-12, beside which an error of 1e-6 is estimated: the times
        # move by a part of the quotient
        bound = 1e-6 if "rtol" in sizes else 1e-12
        np.testing.assert_allclose(here.times, there.times, rtol=bound)
        np.testing.assert_allclose(here.u, there.u, rtol=0.0, atol=bound * np.abs(there.u).max())


@pytest.mark.parametrize("method", DIAGONAL)
def test_gradients_are_those_of_the_sweep_by_steps(case, method, monkeypatch):
    model, u0, p, span = case
    run = ds.solve(model, u0, p, ds.Stepping(span, method, dt=0.03))  # its last steps are cut short
    end = model.terminal(lambda t, u, p: 0.5 * u @ u + u[0] * p[0])
    times = run.times[[0, 3, 5, -1]]
    data = ds.LeastSquares(times, np.ones((4, model.size)), 0.1)
    others = [end, data, 0.3 * data + model.running]
    assert in_c(run, [other.lower(model, run.times[-1]) for other in others]) is not None
    gradients = ds.adjoint(run, others)
    matrices = ds.sensitivities(run)
    earlier = ds.sensitivities(run, float(run.times[5]))
    for fast, slow in zip(gradients, ds.adjoint(run, others, "vectors"), strict=True):
        assert fast.value == pytest.approx(slow.value, rel=1e-12)
        close(fast, slow)
    close(matrices, ds.sensitivities(run, engine="vectors"))
    close(earlier, ds.sensitivities(run, float(run.times[5]), engine="vectors"))


@pytest.mark.parametrize("method", ["esdirk3", "esdirk6"])
def test_sweeps_use_the_stages_that_were_kept(case, method, monkeypatch):
    model, u0, p, span = case
    stepping = ds.Stepping(span, method, dt=0.05)
    plain, kept = (
        ds.solve(model, u0, p, stepping, checkpoint=name) for name in ("states", "stages")
    )
    few = 8 * model.size * 5 * plain.n_stages // plain.n_steps
    monkeypatch.setitem(runner.STAGES, "stages", few)
    some = ds.solve(model, u0, p, stepping, checkpoint="stages")
    assert 0 < len(some.kept) < len(kept.kept) == kept.n_steps
    cost = model.terminal(lambda t, u, p: 0.5 * u @ u + u[0] * p[0])
    expected = ds.adjoint(plain, cost)
    for run in (kept, some):
        gradient = ds.adjoint(run, cost)
        np.testing.assert_allclose(gradient.u0, expected.u0, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-12, atol=1e-13)
    assert len(kept.stages) == kept.n_steps
    gradient = ds.adjoint(kept, cost, "vectors")
    np.testing.assert_allclose(gradient.u0, expected.u0, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("method", DIAGONAL)
def test_taylor_and_duality(method):
    model, u0, p, span = van_der_pol()
    cost = model.terminal(lambda t, u, p: u @ u) + model.running
    stepping = ds.Stepping(span, method, dt=0.03)
    for control, x in (
        (InitialState(u0, p), u0),
        (ds.Parameters({"mu": ds.Parameter(float(p[0]))}, u0), p),
    ):
        assert ds.taylor(ds.Reduced(model, cost, stepping, control), x).order > 1.9
    assert duality(ds.solve(model, u0, p, stepping), cost) < 1e-12


def test_gradient_against_differences_of_the_program():
    model, u0, p, span = chain(12)
    cost = model.terminal(lambda t, u, p: u[0] * u[1])
    stepping = ds.Stepping(span, "esdirk4", dt=0.1)
    gradient = ds.adjoint(ds.solve(model, u0, p, stepping), cost)
    for k, step in enumerate((1e-5, 1e-4, 1e-5)):
        move = step * np.eye(3)[k]
        high, low = (ds.solve(model, u0, value, stepping).u[-1] for value in (p + move, p - move))
        slope = (high[0] * high[1] - low[0] * low[1]) / (2 * step)
        assert gradient.p[k] == pytest.approx(slope, rel=1e-7)


def test_adaptive_steps_recover_from_failing_newton_iterations():
    model, u0, p, _ = van_der_pol()
    run = ds.solve(
        model, u0, p, ds.Stepping((0.0, 200.0), "esdirk4", rtol=1e-5, atol=1e-5, dt=50.0)
    )
    assert run.effort.rejected > 0
    assert np.abs(run.u[:, 0]).max() < 2.1


def test_fixed_steps_that_cannot_be_solved_are_an_error():
    model = ds.trace(lambda t, u, p: 1.0 + u**2, size=1)
    with pytest.raises(ds.SolveError, match=r"Newton|TS stopped|NONLINEAR"):
        ds.solve(model, [1.0], [], ds.Stepping((0.0, 10.0), "esdirk4", dt=2.0))


@pytest.mark.parametrize("name", ["rhs", "jacobian"])
def test_what_is_not_finite_is_named(name):
    ctypes = pytest.importorskip("ctypes")
    values = {"rhs": 1.0, "jacobian": 0.0}

    def function(kind):
        signature = ctypes.CFUNCTYPE(
            None, ctypes.c_double, *(3 * [ctypes.POINTER(ctypes.c_double)]), ctypes.c_void_p
        )

        def call(t, u, p, out, data):
            out[0] = float("nan") if kind == name and t > 0.5 else values[kind]

        made = signature(call)
        return Native(ctypes.cast(made, ctypes.c_void_p).value, keeps=made)

    problem = ds.ODE(function("rhs"), 1, 0, jacobian=function("jacobian"), rhs_t="autonomous")
    with pytest.raises(ds.SolveError, match=rf"'{name}'"):
        ds.solve(problem, [1.0], [], ds.Stepping((0.0, 1.0), "esdirk4", dt=0.1))


def test_where_petsc_takes_the_steps():
    model, u0, p, span = van_der_pol()
    assert dense_steps(model, find_method("esdirk4"), p) is not None
    assert dense_steps(model, find_method("cn"), p) is None
    large, *_ = chain(LARGEST + 1)
    assert dense_steps(large, find_method("esdirk4"), np.zeros(3)) is None
    database = PETSc.Options()
    database["snes_max_it"] = 40
    try:
        run = ds.solve(model, u0, p, ds.Stepping(span, "esdirk4", dt=0.05))
    finally:
        database.delValue("snes_max_it")
    assert run.effort.linear_iterations > 0


def ring(t, u, p):
    """Robertson's reactions three times over, around three species."""
    after, third = u[[1, 2, 0]], u[[2, 0, 1]]
    slow, fast, back = p[0] * u, p[1] * after**2, p[2] * after * third
    return -slow + back + (slow - fast - back)[[2, 0, 1]] + fast[[1, 2, 0]]


def test_rounding_in_very_stiff_systems_rejects_few_steps():
    """Stages are not known better; steps were made smaller until they were, a thousand times."""
    p, u0 = np.array([0.04, 3e7, 1e4]), np.array([0.7, 0.04, 0.75])
    model = ds.trace(ring, 3, 3)
    stepping = ds.Stepping((0.0, 170.0), "esdirk5", rtol=0.03, atol=3e-5)
    runs = [ds.solve(model, u0, p, stepping, checkpoint=kept) for kept in ("states", "stages")]
    assert runs[0].effort.steps < 100
    assert runs[0].effort.rejected < 100
    cost = ds.Terminal(lambda t, u, p: u @ u)
    again, kept = (ds.adjoint(run, cost) for run in runs)
    np.testing.assert_array_equal(again.u0, kept.u0)  # found again to the bit, after rejected steps
    np.testing.assert_array_equal(again.p, kept.p)
    forth = ds.tangent(runs[0], u0, p).derivative(cost)
    assert again.u0 @ u0 + again.p @ p == pytest.approx(forth, rel=1e-6)  # the condition is 1e9


def kuramoto_sivashinsky(t, u, p):
    h = p[0] / len(u)
    after, before = np.roll(u, -1), np.roll(u, 1)
    second = after - 2.0 * u + before
    fourth = np.roll(u, -2) - 4.0 * after + 6.0 * u - 4.0 * before + np.roll(u, 2)
    return -second / h**2 - p[1] * fourth / h**4 - (after**2 - before**2) / (4.0 * h)


@pytest.mark.parametrize("method", ["esdirk4", "esdirk6"])
def test_unknowns_that_are_zero_but_for_rounding_need_no_shorter_steps(method):
    """Each iteration changes them by any part of themselves; runs failed, or took twice as many."""
    x = 2.0 * np.pi * np.arange(32) / 32
    u0, stepping = np.cos(x) * (1.0 + np.sin(x)), ds.Stepping((0.0, 4.0), method, dt=0.1)
    run, compiled = (
        ds.solve(make(kuramoto_sivashinsky, 32, 2), u0, [22.0, 1.0], stepping)
        for make in (ds.ODE, ds.trace)
    )
    assert run.n_steps == 40
    assert run.effort.newton_iterations < 2 * compiled.effort.newton_iterations
    np.testing.assert_allclose(run.u[-1], compiled.u[-1], rtol=0.0, atol=1e-10)


def test_stages_that_are_not_found_again_name_the_remedy():
    model = ds.trace(lambda t, u, p: p[0] * u**2, 1, 1)
    run = ds.solve(model, [1.0], [1.0], ds.Stepping((0.0, 0.5), "esdirk4", dt=0.1))
    other = replace(run, step_sizes=1e3 * run.step_sizes)  # for which the stages have no solution
    cost = ds.Terminal(lambda t, u, p: u[0])
    for call in (ds.adjoint, lambda *value: ds.hessian_product(*value, [1.0])):
        with pytest.raises(ds.SolveError, match=r'was not found again(.*\n)*.*checkpoint="stages"'):
            call(other, cost)


def test_what_has_no_directed_steps_in_c():
    model, *_ = van_der_pol()
    assert directed_steps(model, find_method("cn")) is None
    large, *_ = chain(LARGEST + 1)
    assert directed_steps(large, find_method("esdirk4")) is None
    by_hand = ds.ODE(
        model.native["rhs"], 2, 1, jacobian=model.native["jacobian"], rhs_t="autonomous"
    )
    assert directed_steps(by_hand, find_method("esdirk4")) is None
