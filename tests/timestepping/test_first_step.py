"""The first adaptive step is short enough where the first rates are large."""

import mpmath as mp
import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import (
    DAE,
    DDE,
    ODE,
    Event,
    Parameter,
    Parameters,
    Reduced,
    Stepping,
    Terminal,
    adjoint,
    hessian_product,
    hybrid,
    solve,
    taylor,
    trace,
)
from daeosens.problem import Products
from daeosens.timestepping import Checkpoints
from daeosens.timestepping.first_step import starting


def diode(t, u, p):
    """Two volts at a diode of 1e-9 A: rates of 1e24."""
    return np.array([u[1] - u[0], (1.0 - u[1]) / 1e-3 - 1e-9 * (np.exp(u[1] / 0.026) - 1)])


STEEP = {
    "exponential": (diode, [0.0, 2.0], 10.0),
    "cubic": (lambda t, u, p: np.array([-1e9 * u[0] ** 3 + u[1], u[0] - u[1]]), [100.0, 0.0], 1e3),
    "explosion": (lambda t, u, p: 1e4 * np.exp(-1e3 * u) - u, [-0.02], 10.0),
}


@pytest.mark.parametrize("method", ["esdirk4", "esdirk5", "rk6vr"])
@pytest.mark.parametrize("name", STEEP)
def test_steep_starts_reject_few_steps(name, method):
    """Steps of a millionth of the span failed 11 to 42 times before the first that did not."""
    rhs, u0, end = STEEP[name]
    end = 1e-6 * end if method == "rk6vr" else end
    run = solve(ODE(rhs, len(u0)), u0, None, Stepping((0.0, end), method, rtol=1e-6))
    assert run.effort.rejected <= 10
    assert run.step_sizes[0] < 1e-7 * end


def bound(rhs, u0, bounds=(1e-6, 1e-2), order=5, rtol=1e-6):
    problem = ODE(rhs, len(u0))
    start = 0.0, problem.admit_state(u0), problem.admit_parameters(None)
    return starting(problem, start, bounds, order, rtol, 1e-3 * rtol)


def test_starts_at_rest_take_the_least():
    assert bound(lambda t, u, p: 0 * u, [1.0]) == 1e-6


def test_slow_starts_take_the_longest():
    assert bound(lambda t, u, p: -u, [1.0]) == 1e-2
    assert bound(lambda t, u, p: 1 + 0 * u, [1.0]) == 1e-2


@pytest.mark.parametrize("rate", [1e9, 10.0])
def test_the_bound_is_that_of_hairer(rate):
    """A hundred times the step that moves u by a hundredth, or less, and one that sees the mode."""
    order, rtol = 5, 1e-6
    step = bound(lambda t, u, p: -rate * u, [1.0], (1e-6 / rate, 1.0), order, rtol)
    bend = rate**2 / (1e-3 * rtol + rtol)
    hairer = (0.01 / bend) ** (1 / (order + 1))
    assert step == pytest.approx(min(1.0 / rate, hairer, 0.1 / rate), rel=1e-5)


@pytest.mark.parametrize("fast", [1e2, 1e4, 1e8])
def test_modes_that_the_state_does_not_excite_are_seen(fast):
    """On its slow manifold the state allows a hundredth; perturbations decay in 1/fast."""

    def rhs(t, u, p):
        return np.array([-u[0], fast * (np.cos(u[0]) - u[1])])

    step = bound(rhs, [1e-3, np.cos(1e-3)])
    assert step == pytest.approx(max(1e-6, 0.1 / fast), rel=0.3)


def test_chains_of_unknowns_are_no_fast_modes():
    """A zero beside a large unknown: of f_u only its decays count, and not what fills the zero."""
    step = bound(lambda t, u, p: np.array([-0.1 * u[0], 0.1 * u[0]]), [1.0, 0.0])
    assert step == pytest.approx(1e-3, rel=2e-3)


def test_a_look_beside_the_start_leaves_no_domain():
    """No unknown of a start changes its sign, and those at zero move as their rates say."""
    seen = []

    def rhs(t, u, p):
        seen.append(np.array(u, dtype=float))
        return np.array([-u[0], u[0] - 2.0 * u[1], -1.0, 1e-3 * u[1]])

    bound(rhs, [1.0, 1e-9, 0.0, -1e-12])
    assert len(seen) == 4
    signs = np.sign(seen)
    assert (signs[:, 0] == 1).all()
    assert (signs[:, 1] == 1).all()
    assert (signs[1:, 2] <= 0).all()
    assert (signs[:, 3] == -1).all()


def test_compiled_and_other_callbacks_take_the_same_first_step():
    def rhs(t, u, p):
        return np.array([u[1], -p[0] * np.sin(u[0]) - p[1] * u[1]])

    stepping = Stepping((0.0, 10.0), "rk6vr", rtol=1e-8)
    sizes = [
        solve(problem, [1.0, 0.0], [4.0, 0.1], stepping).step_sizes[0]
        for problem in (ODE(rhs, 2, 2), trace(rhs, 2, {"stiffness": (), "damping": ()}))
    ]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-9)
    assert sizes[0] > 2e-5


@pytest.mark.parametrize(("method", "steps"), [("rk6vr", 6), ("esdirk5", 8)])
def test_a_smooth_start_saves_the_growth_from_nothing(method, steps):
    """From a millionth of the span, growing four times a step: 12 and 15 steps where 6 and 8 do."""
    decay = ODE(lambda t, u, p: -p * u, 1, 1)
    run = solve(decay, [1.0], [1.0], Stepping((0.0, 1.0), method, rtol=1e-6))
    assert run.step_sizes[0] == 1e-2
    assert run.n_steps <= steps


def test_the_first_step_ends_where_steps_have_to():
    decay = ODE(lambda t, u, p: -p * u, 1, 1)
    run = solve(decay, [1.0], [1.0], Stepping((0.0, 1.0), "rk6vr", rtol=1e-6), t_eval=[1e-3])
    assert run.step_sizes[0] == 1e-3


def test_delay_equations_begin_so_too():
    """And within the least delay, of which a look at the start does not know the end."""
    stepping = Stepping((0.0, 10.0), "rk5dp", rtol=1e-6)
    for delay, size in ((5.0, 0.1), (1e-2, 1e-2 * 0.9)):
        late = DDE(lambda t, u, z, p: -z[0], 1, ["tau"], delays="tau", history=[1.0])
        run = solve(late, [1.0], [delay], stepping)
        assert 0.4 * size < run.step_sizes[0] <= 1.2 * size


def test_derivatives_hold_the_first_step_fixed():
    """Steps are constants of the discrete program: second order of what a gradient leaves."""
    model = ODE(lambda t, u, p: np.array([u[1], -p[0] * np.sin(u[0])]), 2, ["stiffness"])
    stepping = Stepping((0.0, 5.0), "rk6vr", rtol=1e-6)
    cost = Terminal(lambda t, u, p: u[0] ** 2)
    functional = Reduced(
        model, cost, stepping, Parameters({"stiffness": Parameter(2.0)}, initial_state=[1.0, 0.3])
    )
    assert min(taylor(functional)) > 1.9
    run = solve(model, [1.0, 0.3], [2.0], stepping)
    again = solve(model, [1.0, 0.3], [2.0], stepping, checkpoint=Checkpoints(3))
    assert (run.step_sizes == again.step_sizes).all()
    assert np.array(run.final).tolist() == np.array(again.final).tolist()
    np.testing.assert_allclose(adjoint(run, cost).p, adjoint(again, cost).p, rtol=1e-13)


def test_max_step_bounds_the_first_one():
    decay = ODE(lambda t, u, p: -p * u, 1, 1)
    run = solve(decay, [1.0], [1.0], Stepping((0.0, 1.0), "rk6vr", rtol=1e-6, max_step=2e-3))
    assert run.step_sizes[0] == 2e-3


def test_the_look_at_the_start_takes_the_side_of_the_run_at_breakpoints():
    """Equations that jump at the start: the first step is that of the equations after it."""
    seen = []

    def rhs(t, u, p):
        after = bool(t > 0.5)
        seen.append(after)
        return -u if after else -1e9 * u

    problem = ODE(rhs, 1, breakpoints=[0.5])
    run = solve(problem, [1.0], None, Stepping((0.5, 1.5), "rk6vr", rtol=1e-6))
    assert all(seen)
    assert run.step_sizes[0] == 1e-2


@pytest.mark.filterwarnings("ignore:overflow")
def test_rates_that_overflow_shorten_the_step():
    assert 0.0 < bound(lambda t, u, p: -np.exp(600 * u), [1.0]) < 1e-250
    assert 0.0 < bound(lambda t, u, p: np.exp(np.exp(8 * u)), [0.75]) < 1e-150


def test_starts_at_which_derivatives_change_fast_are_resolved():
    """A fall from rest: |v| v has a kink at the start, passed by a first step of the span/1000."""

    def fall(t, u, p):
        return np.array([u[1], -p[0] - p[1] * np.abs(u[1]) * u[1]])

    run = solve(ODE(fall, 2, 2), [10.0, 0.0], [9.81, 0.1], Stepping((0.0, 1.0), "rk6vr", rtol=1e-8))
    product = hessian_product(run, Terminal(lambda t, u, p: u[0]), [0.0, -1.0])
    mp.mp.dps = 40
    g, k = mp.mpf(9.81), mp.mpf(0.1)

    def last(speed):  # downwards
        begin = mp.atanh(speed * mp.sqrt(k / g))
        return 10 - mp.log(mp.cosh(begin + mp.sqrt(g * k)) / mp.cosh(begin)) / k

    exact = float(mp.diff(last, 0, 2))  # of the branch that goes down
    assert product.u0[1] == pytest.approx(-exact, rel=1e-5)


# ---- methods that take the first step as it is ---------------------------------------------------


def spring(t, u, p):
    return np.array([u[1], -25.0 * u[0]])


@pytest.mark.parametrize("form", ["rhs", "mass", "residual"])
@pytest.mark.parametrize(("method", "error"), [("cn", 2e-4), ("beuler", 2e-2), ("theta:0.7", 2e-2)])
def test_a_first_step_that_is_too_large_is_not_taken(method, error, form):
    """TSTHETA accepted it unseen: 0.3 for a period of 1.26, an error of 0.2 at any tolerance."""
    problem = {
        "rhs": lambda: ODE(spring, 2),
        "mass": lambda: ODE(spring, 2, mass=np.eye(2)),
        "residual": lambda: DAE(lambda t, u, du, p: du - spring(t, u, p), 2),
    }[form]()
    run = solve(problem, [1.0, 0.0], None, Stepping((0.0, 1.0), method, dt=0.3, rtol=1e-4))
    assert abs(run.u[-1, 0] - np.cos(5.0)) < error
    assert run.step_sizes[0] < 0.05


def test_a_first_step_that_is_good_is_taken():
    run = solve(ODE(spring, 2), [1.0, 0.0], None, Stepping((0.0, 1.0), "cn", dt=2e-3, rtol=1e-4))
    assert run.step_sizes[0] == 2e-3


def test_first_steps_after_events_are_judged_too():
    """The spring gets stiff where the mass passes the middle; the step before was a large one."""
    modes = {
        name: ODE(lambda t, u, p, k=k: np.array([u[1], -k * u[0]]), 2)
        for name, k in {"soft": 1.0, "stiff": 1e4}.items()
    }
    middle = Event(lambda t, u, p: -u[0], direction=1, name="middle", mode="stiff", within=["soft"])
    problem = hybrid(modes, "soft", [middle])
    run = solve(problem, [1.0, 0.0], None, Stepping((0.0, 1.7), "cn", rtol=1e-5))
    assert run.crossings[0].t == pytest.approx(np.pi / 2, abs=1e-4)
    expected = -0.01 * np.sin(100.0 * (1.7 - run.crossings[0].t))
    assert run.u[-1, 0] == pytest.approx(expected, abs=2e-4)


@pytest.mark.mpi
def test_the_judge_is_the_same_on_all_ranks():
    """Of springs on every rank the last rank's is the stiffest."""
    comm = PETSc.COMM_WORLD
    template = PETSc.Vec().createMPI((2, None), comm=comm)

    def springs(t, u, p, out):
        position, speed = u.getArray(readonly=True)
        out.setArray([speed, -(1.0 + 24.0 * (comm.rank + 1 == comm.size)) * position])

    def product(t, u, p, v, out):
        springs(t, v, p, out)

    problem = ODE(springs, state=template, jacobian=Products(product, None))
    u0 = template.duplicate()
    u0.setArray([1.0, 0.0])
    run = solve(problem, u0, None, Stepping((0.0, 1.0), "cn", dt=0.3, rtol=1e-4))
    assert run.step_sizes[0] < 0.05
    rate = 5.0 if comm.rank + 1 == comm.size else 1.0
    assert abs(run.states[-1].getArray()[0] - np.cos(rate)) < 2e-4


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk6vr", "esdirk5"])
def test_the_first_step_is_the_same_on_all_ranks(method):
    """The last rank's unknowns are the fastest, and only they are what the start allows."""
    comm = PETSc.COMM_WORLD
    template = PETSc.Vec().createMPI((2, None), comm=comm)

    def decays(t, u, p, out):
        rates = np.array([1.0, 2.0 + 1e4 * (comm.rank + 1 == comm.size)])
        out.setArray(-rates * (u.getArray(readonly=True) - np.array([0.0, 1.0])))

    def product(t, u, p, v, out):
        decays(t, v, p, out)
        out.setArray(out.getArray() - np.array([0.0, 2.0 + 1e4 * (comm.rank + 1 == comm.size)]))

    problem = ODE(decays, state=template, jacobian=Products(product, None))
    u0 = template.duplicate()
    u0.setArray([1.0, 1.0])
    run = solve(problem, u0, None, Stepping((0.0, 0.1), method, rtol=1e-6))
    sizes = comm.tompi4py().allgather(run.step_sizes.tolist())
    assert all(of_rank == sizes[0] for of_rank in sizes)
    assert 3e-6 < sizes[0][0] < 3e-5  # a tenth of what decays in 1e-4
