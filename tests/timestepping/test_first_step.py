"""The first adaptive step is short enough where the first rates are large."""

import mpmath as mp
import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import DAE, ODE, Event, Stepping, Terminal, hessian_product, hybrid, solve
from daeosens.problem import Products
from daeosens.timestepping.first_step import shortened


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


def bound(rhs, u0, longest, order=5):
    problem = ODE(rhs, len(u0))
    start = 0.0, problem.admit_state(u0), problem.admit_parameters(None)
    return shortened(problem, start, longest, order, 1e-6, 1e-9)


def test_ordinary_starts_take_the_longest():
    assert bound(lambda t, u, p: -u, [1.0], 1e-6) == 1e-6
    assert bound(lambda t, u, p: 0 * u, [1.0], 1e-6) == 1e-6
    assert bound(lambda t, u, p: 1 + 0 * u, [0.0], 1e-6) == 1e-6


def test_the_bound_is_that_of_hairer():
    """From u = 1 a rate of 1e9: a hundred times the step that moves u by a hundredth, or less."""
    rate, order = 1e9, 5
    step = bound(lambda t, u, p: -rate * u, [1.0], 1e-6, order)
    weight = 1e-9 + 1e-6
    bend = rate**2 / weight
    assert step == pytest.approx(min(1.0 / rate, (0.01 / bend) ** (1 / (order + 1))), rel=1e-6)


@pytest.mark.filterwarnings("ignore:overflow")
def test_rates_that_overflow_shorten_the_step():
    assert 0.0 < bound(lambda t, u, p: -np.exp(600 * u), [1.0], 1e-6) < 1e-250
    assert 0.0 < bound(lambda t, u, p: np.exp(np.exp(8 * u)), [0.75], 1e-6) < 1e-150


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
