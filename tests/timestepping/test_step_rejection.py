"""Trial steps that leave the domain of the equations are tried again, smaller, without a trace."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import frozen
import numpy as np
import pytest
from forms import CostCase
from petsc4py import PETSc

import daeosens as ds
from daeosens import ODE, Event, SolveError, Stepping, Terminal, adjoint, solve, tangent, trace
from daeosens.errors import NotFiniteError
from daeosens.problem.grids import Grid
from daeosens.timestepping.c_rhs import registered_with
from daeosens.timestepping.ts_cache import IDLE_TS

LOOSE, MILD = {"rtol": 1e-1, "atol": 1e-1}, {"rtol": 1e-3, "atol": 1e-3}
PLAIN = {"snes_linesearch_type": "basic", "snes_rtol": 1e-13}  # others come back from NaN
SAFETY = {"ts_adapt_safety": 0.85}  # any option lets PETSc take the steps
WORLD = PETSc.COMM_WORLD


def root(t, u, p):
    """The first unknown sinks to 0 at t = 2, for p_0 = 1; behind, there is no root."""
    return [-p[0] * np.sqrt(u[0]), u[0] - p[1] * u[1] * u[1]]


def brusselator(t, u, p):
    return [p[0] + u[0] ** 2 * u[1] - 4.0 * u[0], 3.0 * p[1] * u[0] - u[0] ** 2 * u[1]]


def last(t, u, p):
    return (u[0] + 2.0 * u[1]) ** 2 * p[1]


@dataclass(frozen=True)
class Model:
    """Equations, with what ``frozen`` wants to know of them."""

    rhs: Callable[..., Any]
    rhs_u: Callable[..., Any]
    start: tuple[float, float]
    p: tuple[float, float]
    end: float

    def residual(self, t, u, udot, p):
        return udot - np.array(self.rhs(t, u, p))

    def residual_u(self, t, u, udot, p):
        return -np.array(self.rhs_u(t, u, p))

    def residual_udot(self, t, u, udot, p):
        return np.eye(2)


ROOT = Model(
    root,
    lambda t, u, p: [[-0.5 * p[0] / np.sqrt(u[0]), 0.0], [1.0, -2.0 * p[1] * u[1]]],
    (1.0, 0.2),
    (1.0, 0.7),
    1.9,
)
BRUSSELATOR = Model(
    brusselator,
    lambda t, u, p: [
        [2.0 * u[0] * u[1] - 4.0, u[0] ** 2],
        [3.0 * p[1] - 2.0 * u[0] * u[1], -(u[0] ** 2)],
    ],
    (1.5, 3.0),
    (1.0, 1.0),
    20.0,
)


class Counted:
    """A function of NumPy, and how often it gave values that are not finite."""

    def __init__(self, function):
        self.function, self.count = function, 0

    def __call__(self, t, u, p):
        values = np.array(self.function(t, u, p))
        self.count += not np.isfinite(values).all()
        return values


@pytest.fixture(scope="module")
def traced():
    return {model: ds.trace(model.rhs, 2, 2) for model in (ROOT, BRUSSELATOR)}


def in_python(model):
    counted = Counted(model.rhs)
    return ODE(counted, size=2, parameters=["a", "b"]), counted


def check_derivatives(model, run, method):
    """Gradient and tangent are those of the accepted steps, whoever takes them."""
    cost = Terminal(last) if not run.problem.native else run.problem.terminal(last)
    case = CostCase("last", cost, last)
    u0, p = np.array(model.start), np.array(model.p)
    log = (run.times, run.step_sizes)
    by_u0, by_p = frozen.gradients(model, method, log, [case], u0, p)
    states, _ = frozen.run(model, method, *log, u0, p)
    np.testing.assert_allclose(run.u, states, rtol=1e-12, atol=1e-13)
    gradient = adjoint(run, cost)
    np.testing.assert_allclose(gradient.u0, by_u0[0], rtol=1e-11, atol=1e-12 * abs(by_u0).max())
    np.testing.assert_allclose(gradient.p, by_p[0], rtol=1e-11, atol=1e-12 * abs(by_p).max())
    du0, dp = np.array([0.3, -0.8]), np.array([0.5, 0.2])
    slope = gradient.u0 @ du0 + gradient.p @ dp
    scale = abs(gradient.u0) @ abs(du0) + abs(gradient.p) @ abs(dp)
    assert abs(tangent(run, du0, dp).derivative(cost) - slope) < 1e-12 * scale
    return gradient


NATIVE = [
    ("rk2a", LOOSE, {}),
    ("rk3bs", MILD, {}),
    ("rk5dp", MILD, {}),
    ("rk8vr", LOOSE, {}),
    ("esdirk4", MILD, {}),
    ("rk3bs", MILD, SAFETY),
    ("rk5dp", MILD, SAFETY),
    ("rk8vr", LOOSE, SAFETY),
    ("esdirk4", MILD, SAFETY),
    ("cn", LOOSE, PLAIN),
]
PYTHON = [
    ("rk2a", LOOSE, {}),
    ("rk3bs", MILD, {}),
    ("rk5dp", MILD, {"ts_adapt_type": "dsp"}),
    ("rk5f", LOOSE, {"ts_adapt_wnormtype": "infinity"}),
    ("esdirk4", MILD, {}),
    ("cn", LOOSE, PLAIN),
]


@pytest.mark.parametrize(("method", "tolerances", "options"), NATIVE)
def test_trials_of_c_functions_leave_no_trace(traced, method, tolerances, options):
    problem = traced[ROOT]
    stepping = Stepping((0.0, ROOT.end), method, **tolerances, options=options)
    IDLE_TS.of(problem).clear()
    run = solve(problem, ROOT.start, ROOT.p, stepping)
    assert run.effort.rejected
    if not options:  # otherwise TS is not kept
        name, _t, values = registered_with(IDLE_TS.of(problem)[0].ts).fault()
        assert name in ("rhs", "jacobian")
        assert not np.isfinite(values).all()
    check_derivatives(ROOT, run, method)
    again = solve(problem, ROOT.start, ROOT.p, stepping, checkpoint="stages")
    np.testing.assert_array_equal(again.times, run.times)
    check_derivatives(ROOT, again, method)


@pytest.mark.parametrize(("method", "tolerances", "options"), PYTHON)
def test_trials_of_callbacks_leave_no_trace(method, tolerances, options):
    problem, counted = in_python(ROOT)
    stepping = Stepping((0.0, ROOT.end), method, **tolerances, options=options)
    run = solve(problem, ROOT.start, ROOT.p, stepping)
    # no later stage sees what is not finite; one is tried from a second guess
    tries = 2 if method == "esdirk4" and not options else 1
    assert 0 < counted.count <= tries * run.effort.rejected
    tried = counted.count
    check_derivatives(ROOT, run, method)
    assert counted.count == tried


@pytest.mark.parametrize("kept", ["memory", "disk"])
@pytest.mark.parametrize("method", ["rk3bs", "rk5dp", "cn"])
def test_petsc_records_and_replays_accepted_steps_alone(method, kept):
    problem, counted = in_python(ROOT)
    stepping = Stepping((0.0, ROOT.end), method, **LOOSE, options=PLAIN if method == "cn" else {})
    plain, recorded = (
        solve(problem, ROOT.start, ROOT.p, stepping, petsc_trajectory=recorded)
        for recorded in (None, kept)
    )
    assert counted.count
    tried = counted.count
    expected = adjoint(plain, Terminal(last))
    for run in (recorded, plain):  # the latter is replayed
        gradient = adjoint(run, Terminal(last), "tsadjoint")
        np.testing.assert_allclose(gradient.u0, expected.u0, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-12, atol=1e-13)
    assert counted.count == tried


@pytest.mark.parametrize("method", ["rk3bs", "rk5f", "rk7vr", "rk8vr", "cn", "beuler"])
@pytest.mark.parametrize("python", [False, True])
def test_trials_that_overflow_or_do_not_converge_leave_no_trace(traced, method, python):
    """PETSc 3.26 comes back from a trial of 1e50 with the rounding of it."""
    problem = in_python(BRUSSELATOR)[0] if python else traced[BRUSSELATOR]
    stepping = Stepping((0.0, BRUSSELATOR.end), method, **LOOSE)
    run = solve(problem, BRUSSELATOR.start, BRUSSELATOR.p, stepping)
    assert run.effort.rejected
    states, _ = frozen.run(
        BRUSSELATOR, method, run.times, run.step_sizes, *map(np.array, (run.u[0], BRUSSELATOR.p))
    )
    np.testing.assert_allclose(run.u[:8], states[:8], rtol=1e-11)
    for u, u_next, t, h in zip(run.u, run.u[1:], run.times, run.step_sizes, strict=False):
        end = frozen.step(BRUSSELATOR, method, t, h, u, np.array(BRUSSELATOR.p)).end
        np.testing.assert_allclose(u_next, end, rtol=1e-10)
    if method in ("cn", "beuler"):
        with pytest.raises(SolveError, match="DIVERGED_NONLINEAR_SOLVE"):
            solve(
                problem,
                BRUSSELATOR.start,
                BRUSSELATOR.p,
                replace(stepping, options={"ts_max_snes_failures": 1}),
            )


def test_a_jacobian_that_is_not_finite_is_tried_again():
    calls = []

    def jacobian(t, u, p):
        calls.append(float(u[0]))
        return [[np.nan if u[0] > 2.5 else 2.0 * u[0]]]

    problem = ODE(lambda t, u, p: u**2, size=1, jacobian=jacobian)
    run = solve(problem, [1.0], None, Stepping((0.0, 0.45), "beuler", **LOOSE, dt=0.45))
    assert max(calls) > 2.5
    assert run.effort.rejected
    assert run.times[-1] == 0.45
    with pytest.raises(SolveError, match="'jacobian' returned nan in entry"):
        solve(problem, [1.0], None, Stepping((0.0, 0.8), "beuler", dt=0.05))


@pytest.mark.parametrize("method", ["rk5dp", "esdirk4"])
@pytest.mark.parametrize("python", [False, True])
def test_runs_with_events_survive_trials(method, python):
    """The second unknown is halved where it passes 0.35; the root's last steps come afterwards."""
    event = Event(
        lambda t, u, p: u[1] - 0.35 * p[1], lambda t, u, p: [u[0], 0.5 * u[1]], direction=1
    )
    counted = Counted(root)
    problem = (
        ODE(counted, size=2, parameters=["a", "b"], events=[event])
        if python
        else ds.trace(root, 2, 2, events=[event])
    )
    stepping = Stepping((0.0, ROOT.end), method, **MILD)
    run = solve(problem, ROOT.start, ROOT.p, stepping)
    assert len(run.crossings) > 1
    assert run.effort.rejected
    assert counted.count or not python
    cost = problem.terminal(last) if not python else Terminal(last)
    gradient = adjoint(run, cost)
    du0, dp = np.array([0.3, -0.8]), np.array([0.1, 0.2])
    slope = gradient.u0 @ du0 + gradient.p @ dp
    assert tangent(run, du0, dp).derivative(cost) == pytest.approx(slope, rel=1e-12)
    exact = adjoint(solve(problem, ROOT.start, ROOT.p, replace(stepping, rtol=1e-11)), cost)
    np.testing.assert_allclose(gradient.p, exact.p, rtol=0.05, atol=0.02)


# ---- on any number of ranks ----------------------------------------------------------------------

POINTS = 9


def speeds(low, high):
    """Of some points; the root of the first one sinks fastest."""
    return 1.0 - 0.9 * np.arange(low, high) / POINTS


def roots_in_python(comm):
    """Roots that sink to 0 at different speeds; how often rates of a rank were not finite."""
    state = PETSc.Vec().createMPI(POINTS, comm=comm)
    state.set(1.0)
    low, high = state.getOwnershipRange()
    own, seen = speeds(low, high), []

    def rhs(t, u, p, out):
        out.setArray(-p[0] * own * np.sqrt(u.getArray(readonly=True)))
        seen.append(bool(np.isfinite(out.getArray(readonly=True)).all()))

    def jacobian(t, u, p, out):
        values = -0.5 * p[0] * own / np.sqrt(u.getArray(readonly=True))
        for i, value in zip(range(low, high), values, strict=True):
            out.setValue(i, i, value)
        out.assemble()

    def jacobian_p(t, u, p, out):
        out.getDenseArray()[:, 0] = -own * np.sqrt(u.getArray(readonly=True))
        out.assemble()

    problem = ODE(rhs, state=state, parameters=["a"], jacobian=jacobian, jacobian_p=jacobian_p)
    return problem, state, seen


def roots_in_c(comm):
    grid = Grid(((0.0, 1.0),), (POINTS,), comm=comm)
    problem = ds.trace_stencil(
        lambda t, u, p: -p.a * (1.0 - 0.9 * u.x[0]) * np.sqrt(u.center), grid, ["a"]
    )
    state = grid.create_vec()
    state.set(1.0)
    return problem, state, None


def energy():
    return Terminal(lambda t, u, p: u.dot(u), lambda t, u, p, out: u.copy(out), "independent")


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("roots", "method"),
    [
        *((roots_in_python, method) for method in ("rk3bs", "rk5dp", "rk8vr", "esdirk4", "cn")),
        *((roots_in_c, method) for method in ("rk3bs", "rk5dp", "rk8vr", "cn")),
    ],
)
def test_all_ranks_reject_what_one_of_them_finds(roots, method):
    options = PLAIN if method == "cn" else {}
    first = 1.9 if method == "cn" else None
    stepping = Stepping((0.0, 1.9), method, **LOOSE, dt=first, options=options)
    problem, state, seen = roots(WORLD)
    alone, state_alone, _ = roots(PETSc.COMM_SELF)
    run, expected = (
        solve(*value, [1.0], stepping) for value in ((problem, state), (alone, state_alone))
    )
    assert run.effort.rejected == expected.effort.rejected > 0
    np.testing.assert_allclose(run.times, expected.times, rtol=1e-9)
    if seen is not None:
        ranks = WORLD.tompi4py().allgather(all(seen))
        assert not ranks[0]
        assert WORLD.size == 1 or ranks[-1]  # which finds nothing itself
    low, high = run.states[-1].getOwnershipRange()
    closed = (1.0 - 0.95 * speeds(low, high)) ** 2
    np.testing.assert_allclose(run.states[-1].getArray(), closed, atol=0.1)
    gradient = adjoint(run, energy(), "vectors")
    assert gradient.p == pytest.approx(adjoint(expected, energy(), "vectors").p, rel=1e-8)
    du = run.states[0].duplicate()
    du.set(0.3)
    slope = 0.3 * gradient.gather()[0].sum() + 0.7 * gradient.p[0]
    assert tangent(run, du, [0.7]).derivative(energy()) == pytest.approx(slope, rel=1e-12)


@pytest.mark.mpi
@pytest.mark.parametrize("roots", [roots_in_python, roots_in_c])
@pytest.mark.parametrize("method", ["rk5dp", "cn", "beuler"])
def test_a_start_outside_the_domain_is_named_on_every_rank(roots, method):
    problem, state, seen = roots(WORLD)
    low, high = state.getOwnershipRange()
    if low <= 3 < high:
        state.setValue(3, -1.0)
    state.assemble()
    with pytest.raises(SolveError, match=r"'rhs' gave nan .* at t = \S+ \(rank \d\)"):
        solve(problem, state, [1.0], Stepping((0.0, 1.0), method, **MILD))
    assert seen is None or len(seen) < 10  # none is tried again


# ---- what no smaller step mends ------------------------------------------------------------------


@pytest.mark.parametrize("method", ["rk2a", "rk3bs", "rk5dp", "esdirk4", "cn", "midpoint"])
@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize("options", [{}, SAFETY])
def test_a_wall_ends_the_run_with_the_fault_and_the_size_of_steps(method, python, options):
    def wall(t, u, p):
        return [np.sqrt(0.3 - t) - u[0]]

    problem = (
        ODE(lambda t, u, p: np.array(wall(t, u, p)), size=1, jacobian=lambda t, u, p: [[-1.0]])
        if python
        else ds.trace(wall, 1, 0)
    )
    stepping = Stepping((0.0, 1.0), method, **MILD, options=options)
    named = r"callback 'rhs' returned nan in entry \[0\] at t = 0\.3\S* \(rank 0\)"
    sizes = r"(have shrunk to|steps down to h =) \S+e-(1[3-9]|2)"
    with pytest.raises(SolveError, match=named) as caught:
        solve(problem, [1.0], None, stepping)
    assert caught.match(sizes)


@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize("options", [{}, SAFETY])
def test_stages_that_run_into_nan_are_not_taken_for_solved(traced, python, options):
    """PETSc 3.26 did so where an earlier solve had converged, and stepped over the end at t = 2."""
    problem = in_python(ROOT)[0] if python else traced[ROOT]
    with pytest.raises(SolveError, match=r"returned (nan|-?inf) in entry \S+ at t = (2|1\.999)"):
        solve(problem, ROOT.start, ROOT.p, Stepping((0.0, 3.0), "esdirk4", **MILD, options=options))


@pytest.mark.parametrize("python", [False, True])
def test_trials_that_were_survived_are_not_named_by_other_errors(traced, python):
    problem = in_python(ROOT)[0] if python else traced[ROOT]
    stepping = Stepping((0.0, ROOT.end), "rk5dp", **LOOSE, dt=ROOT.end)
    for steps in range(1, solve(problem, ROOT.start, ROOT.p, stepping).n_steps):
        with pytest.raises(
            SolveError, match=rf"after {steps} steps \(CONVERGED_ITS\); the last step was"
        ):
            solve(problem, ROOT.start, ROOT.p, replace(stepping, max_steps=steps))


def test_adaptive_steps_are_tried_a_hundred_times():
    def rhs(t, u, p, out):
        out.set(1.0 if t == 0.0 else np.nan)

    state = PETSc.Vec().createSeq(1)
    problem = ODE(rhs, state=state, jacobian=lambda t, u, p, out: out.zeroEntries())
    with pytest.raises(
        SolveError, match=r"REJECTED\): callback 'rhs' gave nan .* h = \S+e-\d+ were"
    ):
        solve(problem, state, None, Stepping((0.0, 1.0), "beuler", **MILD, dt=0.1))


@pytest.mark.parametrize("method", ["rk3bs", "rk5dp", "esdirk4", "cn", "beuler"])
@pytest.mark.parametrize("python", [False, True])
def test_fixed_steps_and_starts_outside_the_domain_fail_at_once(traced, method, python):
    problem, counted = in_python(ROOT) if python else (traced[ROOT], Counted(root))
    named = (
        r"^callback '(rhs|jacobian)' returned nan in entry \[0[^;]* at t = {} \(rank 0\)"
        r"(: invalid value in root, [^\n]*, at `np.sqrt\(u\[0\]\)`)?\n"
    )
    with pytest.raises(NotFiniteError, match=named.format(r"2\.\S+|2|1\.\S+")):
        solve(problem, ROOT.start, ROOT.p, Stepping((0.0, 4.0), method, dt=0.4))
    # once more to tell which operation it was, and of a stage from another guess
    assert counted.count <= 2 + (method == "esdirk4")
    counted.count = 0
    with pytest.raises(NotFiniteError, match=named.format("0")):
        solve(problem, [-1.0, 0.0], ROOT.p, Stepping((0.0, 1.0), method, **MILD))
    # of which one is for the size of the first step, two for what is made of the time, two for the
    # knots of controls, one for the message
    assert counted.count <= 7


@pytest.mark.parametrize("kind", [ValueError, KeyError, FloatingPointError, SolveError])
@pytest.mark.parametrize("method", ["rk5dp", "esdirk4", "cn"])
def test_exceptions_of_callbacks_stop_a_run_at_once(method, kind):
    raised = []

    def rhs(t, u, p):
        if t > 0.5:
            raised.append(t)
            raise kind("mine")
        return -u

    problem = ODE(rhs, size=1, jacobian=lambda t, u, p: [[-1.0]])
    with pytest.raises(kind, match="mine"):
        solve(problem, [1.0], None, Stepping((0.0, 1.0), method, **MILD))
    assert len(raised) <= 1 + (method == "esdirk4")  # a stage is tried from a second guess


@pytest.mark.parametrize("method", ["rk5dp", "rk3bs", "esdirk4", "cn"])
def test_what_is_not_finite_right_of_a_breakpoint_ends_a_run_at_once(method):
    problem = ODE(lambda t, u, p: -u if t < 0.5 else u * np.nan, 1, breakpoints=[0.5])
    with pytest.raises(NotFiniteError, match="returned nan") as caught:
        solve(problem, [1.0], None, Stepping((0.0, 1.0), method, rtol=1e-4))
    assert "were tried" not in str(caught.value)


@pytest.mark.parametrize("method", ["rk5dp", "esdirk4", "cn"])
def test_what_is_not_finite_right_of_a_breakpoint_ends_a_compiled_run_at_once(method):
    model = trace(lambda t, u, p: np.where(t < 0.5, -u, u * np.nan), 1, breakpoints=[0.5])
    with pytest.raises(NotFiniteError, match="returned nan") as caught:
        solve(model, [1.0], None, Stepping((0.0, 1.0), method, rtol=1e-4))
    assert "were tried" not in str(caught.value)
