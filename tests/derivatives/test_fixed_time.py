"""Derivatives at fixed times, where the times of a run move with its events."""

import numpy as np
import pytest
from petsc4py import PETSc

import daeosens as ds
from daeosens.derivatives import at_fixed_times
from daeosens.problem import INDEPENDENT, Products

E, G = 0.8, 10.0
BOUNCE = ds.Event(lambda t, u, p: u[0], lambda t, u, p: u * [1.0, -E], direction=-1, name="bounce")
BALL = ds.ODE(lambda t, u, p: np.array([u[1], -G + 0 * u[0]]), 2, events=[BOUNCE])
START = np.array([5.0, -0.1])


def closed_form(times, bounces):
    """Return d(z, v)/dz(0) at each time, after as many bounces."""

    def state(z0, t, count):
        speed = np.sqrt(START[1] ** 2 + 2 * G * z0)
        if count == 0:
            return z0 + START[1] * t - G * t * t / 2, START[1] - G * t
        first = (START[1] + speed) / G
        last = first + 2 * speed / G * sum(E**k for k in range(1, count))
        up = speed * E**count
        return up * (t - last) - G * (t - last) ** 2 / 2, up - G * (t - last)

    pairs = [state(START[0] + 1e-30j, t, count) for t, count in zip(times, bounces, strict=True)]
    return np.array([[np.imag(value) / 1e-30 for value in pair] for pair in pairs])


@pytest.mark.parametrize(
    "stepping",
    [
        ds.Stepping((0.0, 4.3), "rk4", dt=0.4),
        ds.Stepping((0.0, 4.3), "cn", dt=0.3),
        ds.Stepping((0.0, 4.3), "rk5dp", rtol=1e-6, atol=1e-6),  # all times move after a bounce
    ],
)
def test_derivatives_of_the_bouncing_ball_jump_as_in_the_closed_form(stepping):
    run = ds.solve(BALL, START, None, stepping)
    along = ds.tangent(run, du0=[1.0, 0.0])
    steps = [crossing.step for crossing in run.crossings]
    bounces = [sum(step < n for step in steps) for n in range(len(run.times))]
    assert bounces[-1] == 3
    assert np.count_nonzero(along.times) >= 6
    exact = closed_form(run.times, bounces)
    np.testing.assert_allclose(at_fixed_times(along), exact, rtol=1e-9, atol=1e-10)
    assert abs(along.u - exact).max() > 0.1  # those of the states are others


def test_each_mode_has_its_own_rate():
    """It rises at speed 1 to c, at t = c, and falls as c e^(c - t)."""
    events = [ds.Event(lambda t, u, p: u[0] - p[0], mode="fall", within=["rise"], name="top")]
    modes = {
        "rise": ds.ODE(lambda t, u, p: 1.0 + 0 * u, 1, ["c"]),
        "fall": ds.ODE(lambda t, u, p: -u, 1, ["c"]),
    }
    problem = ds.hybrid(modes, "rise", events)
    run = ds.solve(problem, [0.0], [0.5], ds.Stepping((0.0, 1.0), "rk8vr", dt=0.3))
    (step,) = (crossing.step for crossing in run.crossings)
    rows = at_fixed_times(ds.tangent(run, dp=[1.0]))[:, 0]
    expected = np.where(np.arange(len(rows)) > step, 1.5 * np.exp(0.5 - run.times), 0.0)
    np.testing.assert_allclose(rows, expected, rtol=1e-10, atol=1e-13)


def test_nothing_changes_without_events():
    plain = ds.ODE(lambda t, u, p: -u, 1)
    along = ds.tangent(
        ds.solve(plain, [1.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1)), du0=[1.0]
    )
    assert (at_fixed_times(along) == along.u).all()


def test_other_forms_are_refused():
    fall = ds.DAE(lambda t, u, udot, p: udot - np.array([u[1], -G + 0 * u[0]]), 2, events=[BOUNCE])
    run = ds.solve(fall, START, None, ds.Stepping((0.0, 1.5), "cn", dt=0.2))
    with pytest.raises(ds.UnsupportedError, match="fixed times of a problem in residual form"):
        at_fixed_times(ds.tangent(run, du0=[1.0, 0.0]))


DOSE = ds.Event("time", reset=lambda t, u, p: np.array([u[0] + 1.0, u[1] + 1.0]), name="dose")
"""At p[0], to x and to y = x; where y has an equation of its own it follows x anyway."""

DECAYS = {
    "rhs": ds.ODE(lambda t, u, p: np.array([-2.0 * u[1], -2.0 * u[1]]), 2, ["time"], events=[DOSE]),
    "mass": ds.ODE(
        lambda t, u, p: np.array([-6.0 * u[1], u[0] - u[1]]),
        2,
        ["time"],
        mass=np.diag([3.0, 0.0]),
        events=[DOSE],
    ),
    "residual": ds.DAE(
        lambda t, u, udot, p: np.array([3.0 * udot[0] + 6.0 * u[1], u[1] - u[0]]),
        2,
        ["time"],
        events=[DOSE],
    ),
}


@pytest.mark.parametrize("form", DECAYS)
@pytest.mark.parametrize("method", ["cn", "beuler", "midpoint"])
@pytest.mark.parametrize("gap", [0.0, 1e-13, 1e-11])
def test_an_event_that_meets_the_end_of_another_step_has_a_derivative_by_its_time(
    form, method, gap
):
    """A step next to nothing is left between both, at whose ends the states differ by rounding."""
    dt = 0.0025
    stepping = ds.Stepping((0.0, 2.0), method, dt=dt)
    run = ds.solve(DECAYS[form], [1.0, 1.0], [1.3], stepping, [1.3 - gap] if gap else None)
    steps = run.step_sizes[run.step_sizes > 0.0]
    assert steps.min() < 1e-10
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[1]))
    exact = 2.0 * np.exp(-2.0 * 0.7)
    # the error of the method, of first or second order
    assert gradient.p[0] == pytest.approx(exact, rel=2.0 * dt if method == "beuler" else dt**2)
    # the difference of the program itself, whose step before the event is dt longer or shorter
    shifted = [
        ds.solve(DECAYS[form], [1.0, 1.0], [1.3 + shift], stepping, run.times[[1]]).final[1]
        for shift in (-0.1 * dt, 0.1 * dt)
    ]
    assert gradient.p[0] == pytest.approx((shifted[1] - shifted[0]) / (0.2 * dt), rel=2.0 * dt)


@pytest.mark.parametrize("form", DECAYS)
@pytest.mark.parametrize("method", ["cn", "midpoint"])
def test_times_that_are_large_beside_steps_leave_the_order(form, method):
    """Seconds since 1970: each step is a tiny part of the time."""
    late, dt = 2.0**30, 0.015625
    run = ds.solve(
        DECAYS[form], [1.0, 1.0], [late + 1.3], ds.Stepping((late, late + 2.0), method, dt=dt)
    )
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[1]))
    assert gradient.p[0] == pytest.approx(2.0 * np.exp(-1.4), rel=10.0 * dt**2)


@pytest.mark.parametrize("form", DECAYS)
@pytest.mark.parametrize("dt", [2.0**-6, 2.0**-10, 2.0**-12])
def test_events_are_found_where_steps_are_some_hundreds_of_roundings_of_the_time(form, dt):
    """Times next to each other are 2.4e-7 apart, and a function of them changes by as much."""
    late, span = 2.0**30, 100.0 * dt
    at = late + 0.613 * span
    run = ds.solve(DECAYS[form], [1.0, 1.0], [at], ds.Stepping((late, late + span), "cn", dt=dt))
    assert [crossing.name for crossing in run.crossings] == ["dose"]
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[1]))
    exact = 2.0 * np.exp(-2.0 * (late + span - at))
    assert gradient.p[0] == pytest.approx(exact, rel=dt**2 + 2.0**-21)


def coupled_decays():
    """Return two of the decays with a mass, [x0, y0, x1, y1], whose rows ranks share.

    The mass between them is there in the rates too, so that both follow the same solution.
    """
    entries = {
        "mass": {(0, 0): 3.0, (0, 2): 1.0, (2, 0): 1.0, (2, 2): 3.0},
        "rates": {(0, 1): -6.0, (0, 3): -2.0, (2, 1): -2.0, (2, 3): -6.0}
        | {(1, 0): 1.0, (1, 1): -1.0, (3, 2): 1.0, (3, 3): -1.0},
    }
    template = PETSc.Vec().createMPI(4, comm=PETSc.COMM_WORLD)
    places = [(i, j) for i in range(*template.getOwnershipRange()) for j in range(4)]
    mass, rates = (
        PETSc.Mat().createAIJ((template.getSizes(), template.getSizes()), nnz=(4, 4)) for _ in "ab"
    )
    for matrix, numbers in ((mass, entries["mass"]), (rates, entries["rates"])):
        for place in places:
            matrix.setValue(*place, numbers.get(place, 0.0))
        matrix.assemble()

    def nothing(t, u, p, out):
        out.zeroEntries()

    def same(t, u, p, v, out):
        v.copy(out)

    def reset(t, u, p, out):
        u.copy(out)
        out.shift(1.0)

    dose = ds.Event(
        "time",
        reset,
        reset_u=Products(same, same),
        reset_p=nothing,
        reset_t="autonomous",
        name="dose",
    )
    return ds.ODE(
        lambda t, u, p, out: rates.mult(u, out),
        state=template,
        parameters=["time"],
        jacobian=lambda t, u, p, out: rates.copy(out),
        jacobian_p=nothing,
        rhs_t="autonomous",
        jacobian_matrix=rates,
        mass=mass,
        events=[dose],
    )


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("method", ["cn", "beuler", "midpoint"])
@pytest.mark.parametrize(("start", "gap"), [(0.0, 0.0), (0.0, 1e-13), (2.0**30, 0.0)])
def test_short_steps_of_distributed_problems_with_a_mass_are_those_of_the_others(
    method, start, gap
):
    problem = coupled_decays()
    u0 = problem.create_state()
    u0.set(1.0)
    stepping = ds.Stepping((start, start + 2.0), method, dt=0.03125)
    run = ds.solve(problem, u0, [start + 1.3], stepping, [start + 1.3 - gap] if gap else None)
    assert (run.step_sizes[run.step_sizes > 0.0].min() < 1e-10) == bool(gap)
    mean = ds.Terminal(
        lambda t, u, p: u.sum() / 4.0, lambda t, u, p, out: out.set(0.25), INDEPENDENT
    )
    gradient = ds.adjoint(run, mean)
    # on one rank, where the step is short, but its ends differ by more than rounding
    at = [start + 1.3 - 1e-7] if gap else None
    alone = ds.solve(DECAYS["mass"], [1.0, 1.0], [start + 1.3], stepping, at)
    reference = ds.adjoint(alone, ds.Terminal(lambda t, u, p: u[1]))
    assert gradient.p[0] == pytest.approx(reference.p[0], rel=1e-6 if gap else 1e-12)
    along = ds.tangent(run, dp=[1.0])
    assert gradient.p[0] == pytest.approx(along.final.sum() / 4.0, rel=1e-12)
