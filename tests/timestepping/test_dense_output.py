"""``run(t)``: states between the ends of steps."""

import math

import numpy as np
import pytest
from distributed import make
from petsc4py import PETSc

import daeosens as ds
from daeosens import ODE, Event, InputError, Stepping, solve
from daeosens.timestepping import Checkpoints

ORDERS = {"beuler": 1, "cn": 2, "midpoint": 2, "rk3bs": 3, "esdirk4": 4, "rk5ts": 5, "rk8vr": 8}
TIMES = np.array([0.123, 0.771, 1.2345, 1.9])


def driven(t, u, p):
    """Return the rate of exp(-p sin t) and of a component beside it."""
    return np.array([-p[0] * u[0] * np.cos(t), u[0] - 2.0 * u[1]])


def spring(t, u, p):
    return np.array([u[1], -p[0] * u[0] - 0.1 * u[1] ** 3])


@pytest.mark.parametrize("method", ORDERS)
def test_the_order_between_steps_is_that_of_the_method(method):
    problem, order = ODE(driven, 2, ["rate"]), ORDERS[method]
    steps = {1: (100, 200), 2: (20, 40), 8: (3, 6)}.get(order, (8, 16))
    times = np.linspace(0.05, 1.95, 39)
    errors = [
        np.abs(run(times)[:, 0] - np.exp(-0.9 * np.sin(times))).max()
        for run in (
            solve(problem, [1.0, 0.3], [0.9], Stepping((0.0, 2.0), method, dt=2.0 / n))
            for n in steps
        )
    ]
    assert math.log2(errors[0] / errors[1]) > order - 0.4


@pytest.mark.parametrize("method", ["beuler", "cn", "esdirk5"])
def test_algebraic_equations_hold_between_steps(method):
    def rhs(t, u, p):
        return np.array([-p[0] * u[1], u[1] - u[0] ** 2 - np.sin(t)])

    problem = ODE(rhs, 2, ["rate"], mass=np.diag([1.0, 0.0]))
    run = solve(problem, [1.0, 1.0], [0.7], Stepping((0.0, 2.0), method, dt=0.25))
    states = run(TIMES)
    np.testing.assert_allclose(states[:, 1], states[:, 0] ** 2 + np.sin(TIMES), rtol=1e-9)


def test_ends_of_steps_are_the_states_of_the_run():
    run = solve(ODE(spring, 2, ["k"]), [1.0, 0.0], [2.0], Stepping((0.0, 2.0), "rk4", dt=0.3))
    np.testing.assert_array_equal(run(run.times), run.u)
    assert run(2.0) is run.final
    assert run(0.4).array.shape == (2,)
    assert run([]).shape == (0, 2)
    later = np.nextafter(run.times[3], 2.0)
    np.testing.assert_allclose(run(later).array, run.u[3], rtol=1e-14)


def test_traced_runs_and_those_with_checkpoints_give_the_same():
    stepping = Stepping((0.0, 2.0), "rk5ts", rtol=1e-6)
    numpy = ODE(spring, 2, ["k"]), [1.0, 0.0], [2.0], stepping
    run, few = solve(*numpy), solve(*numpy, checkpoint=Checkpoints(3))
    traced = solve(ds.trace(spring, 2, ["k"]), [1.0, 0.0], [2.0], stepping)
    np.testing.assert_array_equal(few(TIMES), run(TIMES))
    np.testing.assert_allclose(traced(TIMES), run(TIMES), rtol=1e-12)


def test_an_event_has_two_sides():
    """A ball is dropped from 1 with g = 2: it bounces at t = 1, and comes to 1/4 at t = 1.5."""

    def fall(t, u, p):
        return np.array([u[1], -p[0]])

    bounce = Event(lambda t, u, p: u[0], lambda t, u, p: np.array([0.0, -0.5 * u[1]]), direction=-1)
    problem = ODE(fall, 2, ["g"], events=[bounce])
    run = solve(problem, [1.0, 0.0], [2.0], Stepping((0.0, 1.7), "rk4", dt=0.17))
    impact = run.crossings[0].t
    np.testing.assert_allclose(run(impact, side="before").array, [0.0, -2.0], atol=1e-13)
    np.testing.assert_allclose(run(impact).array, [0.0, 1.0], atol=1e-13)
    near = run([impact - 1e-3, impact + 1e-3, 1.5])
    np.testing.assert_allclose(near[:2, 1], [-1.998, 0.998], atol=1e-12)
    np.testing.assert_allclose(near[2], [0.25, 0.0], atol=1e-12)


def test_an_event_that_changes_the_mode_and_parameters():
    charge = ODE(lambda t, u, p: np.array([p[0]]), 1, ["rate"])
    decay = ODE(lambda t, u, p: -p[0] * u, 1, ["rate"])
    switch = Event(0.5, mode="decay", changes={"rate": lambda t, u, p: 3.0 * p[0]})
    problem = ds.hybrid({"charge": charge, "decay": decay}, "charge", [switch])
    run = solve(problem, [0.0], [2.0], Stepping((0.0, 1.0), "rk8vr", dt=0.05))
    np.testing.assert_allclose(
        run([0.3, 0.5, 0.63]).ravel(), [0.6, 1.0, math.exp(-6.0 * 0.13)], rtol=1e-10
    )


@pytest.mark.mpi
@pytest.mark.parametrize(("method", "form"), [("rk5dp", "rhs"), ("cn", "rhs"), ("esdirk4", "rhs")])
def test_distributed_runs(method, form):
    case = make(PETSc.COMM_WORLD, "vec", form=form)
    alone = make(PETSc.COMM_SELF, "vec", form=form)
    options = {"ksp_type": "gmres", "ksp_rtol": 1e-13, "pc_type": "jacobi"}
    stepping = Stepping((0.0, 0.2), method, dt=0.02, options={} if method == "rk5dp" else options)
    times = [0.033, 0.1, 0.1777]
    run = solve(case.problem, case.u0, case.p, stepping)
    reference = solve(alone.problem, alone.u0, alone.p, stepping)(times)
    first, last = run.final.getOwnershipRange()
    np.testing.assert_allclose(run(times), reference[:, first:last], rtol=1e-9)


@pytest.mark.parametrize(
    ("t", "side", "message"),
    [
        (2.5, "after", r"t = 2\.5 lies outside the time span\n  expected: times in \[0, 2\]"),
        ([0.1, -0.3], "after", r"t = -0\.3 lies outside the time span"),
        (math.nan, "after", "t"),
        ([[0.1]], "after", r"t has shape \(1, 1\)\n  expected: a time, or shape \(K,\)"),
        (0.1, "left", 'side = \'left\'\n  expected: "before" or "after"'),
    ],
)
def test_what_is_refused(t, side, message):
    run = solve(ODE(spring, 2, ["k"]), [1.0, 0.0], [2.0], Stepping((0.0, 2.0), "rk4", dt=0.5))
    with pytest.raises(InputError, match=message):
        run(t, side)
