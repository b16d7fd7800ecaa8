"""Equations of two parts: what IMEX methods make of them, and what all others do."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from petsc4py import PETSc

import daeosens as ds
from daeosens.petsc import read
from daeosens.problem import Doses, add_events, imex, saturated, with_doses
from daeosens.problem.grids import Grid
from daeosens.timestepping import Checkpoints
from daeosens.tracing import separate
from daeosens.verify import duality

NAMES = ["rate", "force", "speed"]
ORDERS = {"ars222": 2, "arkimex3": 3, "arkimex4": 4, "arkimex5": 5}
U0, P = [1.0, 0.5, -0.3], [0.7, 1.3, 0.4]
COST = ds.Terminal(lambda t, u, p: u[0] ** 2 * p[2] + u[1] * u[2])
SUM = COST + ds.Running(lambda t, u, p: u[0] ** 2 * p[1] + t * u[2])


def stiff(t, u, p):
    return np.array(
        [
            -p[0] * u[0] ** 3 + p[1] * np.sin(t),
            -30.0 * p[0] * (u[1] - u[0]),
            u[0] * u[1] - 2.0 * u[2],
        ]
    )


def slow(t, u, p):
    return np.array([p[1] * u[1] * u[2], -u[0] * u[2] * p[2] * np.cos(3.0 * t), p[0] * u[0] ** 2])


def whole(t, u, p):
    return stiff(t, u, p) + slow(t, u, p)


def parts(make=ds.ODE):
    return imex(implicit=make(stiff, 3, NAMES), explicit=make(slow, 3, NAMES))


@pytest.mark.parametrize(("method", "order"), ORDERS.items())
def test_the_order_of_convergence_is_the_method_s(method, order):
    exact = ds.solve(
        ds.ODE(whole, 3, NAMES), U0, P, ds.Stepping((0.0, 0.97), "rk8vr", rtol=1e-12)
    ).u[-1]
    errors = []
    for h in (0.01, 0.005):
        run = ds.solve(parts(), U0, P, ds.Stepping((0.0, 0.97), method, dt=h))
        errors.append(abs(run.u[-1] - exact).max())
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.2)


@pytest.mark.parametrize("method", ["rk4", "rk6vr", "esdirk4", "cn"])
def test_other_methods_step_the_sum(method):
    stepping = ds.Stepping((0.0, 0.5), method, dt=0.02)
    ours, theirs = (
        ds.solve(problem, U0, P, stepping) for problem in (parts(), ds.ODE(whole, 3, NAMES))
    )
    assert np.allclose(ours.u, theirs.u, rtol=1e-10, atol=1e-12)
    gradients = [ds.adjoint(run, SUM) for run in (ours, theirs)]
    assert np.allclose(gradients[0].p, gradients[1].p, rtol=1e-10)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("steps", [{"dt": 0.1}, {"rtol": 1e-6}], ids=["fixed", "adaptive"])
def test_derivatives_are_those_of_the_steps(make, steps):
    problem, stepping = parts(make), ds.Stepping((0.0, 0.97), "arkimex4", **steps)
    parameters = ds.Parameters(
        dict(zip(NAMES, map(ds.Parameter, P), strict=True)), initial_state=U0
    )
    run = ds.solve(problem, U0, P, stepping, [0.31])
    assert duality(run, SUM) < 1e-12
    if "dt" in steps:
        reduced = ds.Reduced(problem, SUM, stepping, parameters)
        assert min(ds.taylor(reduced)) > 1.9
        assert min(ds.taylor(reduced, hessian=True)) > 2.9


@pytest.mark.parametrize("method", ["ars222", "arkimex3"])
def test_checkpoints_and_kept_stages_change_no_bit(method):
    stepping = ds.Stepping((0.0, 0.97), method, dt=0.05)
    found = []
    for checkpoint in (Checkpoints(100), Checkpoints(4)):
        run = ds.solve(parts(), U0, P, stepping, checkpoint=checkpoint)
        product = ds.hessian_product(run, SUM, [0.3, -0.2, 0.1], [0.5, 0.7, -0.1])
        found.append(np.concatenate([ds.adjoint(run, SUM).p, product.u0, product.p]))
    assert np.array_equal(*found)
    kept = ds.solve(parts(), U0, P, stepping, checkpoint="stages")
    assert np.allclose(ds.adjoint(kept, SUM).p, found[0][:3], rtol=1e-12)


@pytest.mark.slow
def test_events_end_steps():
    """Against the sum with tiny explicit steps; and the adjoint is that of the tangent."""
    bounce = ds.Event(
        lambda t, u, p: u[2] - 0.1 * p[2],
        lambda t, u, p: u * np.array([1.0, p[0], 0.5]),
        direction=1,
        name="half",
    )
    ours, theirs = (
        ds.solve(add_events(problem, [bounce]), U0, P, stepping)
        for problem, stepping in (
            (parts(), ds.Stepping((0.0, 0.97), "arkimex5", dt=0.005)),
            (ds.ODE(whole, 3, NAMES), ds.Stepping((0.0, 0.97), "rk8vr", rtol=1e-12)),
        )
    )
    assert len(ours.crossings) == len(theirs.crossings) > 0
    assert np.allclose(ours.u[-1], theirs.u[-1], rtol=1e-7)
    gradients = [ds.adjoint(run, COST) for run in (ours, theirs)]
    assert np.allclose(gradients[0].p, gradients[1].p, rtol=1e-6)
    products = [ds.hessian_product(run, COST, dp=[0.3, 0.5, -0.2]) for run in (ours, theirs)]
    assert np.allclose(products[0].p, products[1].p, rtol=1e-5)
    assert duality(ours, COST) < 1e-12


def test_breakpoints_of_either_part_are_hit():
    def jumps(t, u, p):
        return slow(t, u, p) * (1.0 if t < 0.33 else 2.0)

    problem = imex(
        implicit=ds.ODE(stiff, 3, NAMES), explicit=ds.ODE(jumps, 3, NAMES, breakpoints=[0.33])
    )
    run = ds.solve(problem, U0, P, ds.Stepping((0.0, 0.6), "arkimex3", dt=0.1))
    assert 0.33 in run.times
    assert duality(run, SUM) < 1e-12


TABLE = {"time": [0.1], "amount": [2.0], "duration": [0.2], "compartment": [2]}
CHANGED = {
    "infusions": lambda problem: with_doses(problem, Doses(TABLE, bioavailability="force")),
    "limits": lambda problem: saturated(problem, 2, upper=0.0),
}


@pytest.mark.parametrize("change", CHANGED)
def test_what_changes_equations_changes_their_parts(change):
    problem = CHANGED[change](parts())
    runs = [
        ds.solve(problem, U0, P, ds.Stepping((0.0, 0.6), method, dt=0.01))
        for method in ("rk4", "arkimex4")
    ]
    assert runs[1].crossings
    np.testing.assert_allclose(runs[1].u[-1], runs[0].u[-1], rtol=1e-6, atol=1e-12)
    assert duality(runs[1], COST) < 1e-12
    gradients = [ds.adjoint(run, COST).p for run in runs]
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-5)


REFUSED = {
    "the model has two parts": lambda: separate(parts(ds.trace)),
    "explicit part has a mass": lambda: imex(
        implicit=ds.ODE(stiff, 3, NAMES), explicit=ds.ODE(slow, 3, NAMES, mass=np.eye(3))
    ),
    "implicit part has a mass or F": lambda: imex(
        implicit=ds.DAE(lambda t, u, v, p: v - stiff(t, u, p), 3, NAMES),
        explicit=ds.ODE(slow, 3, NAMES),
    ),
    "explicit part has events": lambda: imex(
        implicit=ds.ODE(stiff, 3, NAMES), explicit=ds.ODE(slow, 3, NAMES, events=[ds.Event(0.1)])
    ),
    "has parameters": lambda: imex(implicit=ds.ODE(stiff, 3, NAMES), explicit=ds.ODE(slow, 3, 3)),
    "has unknowns: 3, the explicit one 2": lambda: imex(
        implicit=ds.ODE(stiff, 3, NAMES), explicit=ds.ODE(lambda t, u, p: u, 2, NAMES)
    ),
    "has parts of its own": lambda: imex(implicit=parts(), explicit=ds.ODE(slow, 3, NAMES)),
    "explicit is function": lambda: imex(implicit=ds.ODE(stiff, 3, NAMES), explicit=slow),
}


@pytest.mark.parametrize("message", REFUSED)
def test_parts_that_do_not_fit_are_refused(message):
    with pytest.raises(ds.InputError, match=message):
        REFUSED[message]()


def test_methods_and_engines_that_do_not_go_are_refused():
    with pytest.raises(ds.UnsupportedError, match="without an explicit part"):
        ds.solve(ds.ODE(whole, 3, NAMES), U0, P, ds.Stepping((0.0, 1.0), "arkimex4", dt=0.1))
    with pytest.raises(ds.InputError, match="no error estimate"):
        ds.Stepping((0.0, 1.0), "ars222", rtol=1e-3)
    run = ds.solve(parts(), U0, P, ds.Stepping((0.0, 0.5), "arkimex4", dt=0.1))
    for engine in ("arrays", "compiled", "tsadjoint"):
        with pytest.raises(ds.UnsupportedError):
            ds.adjoint(run, COST, engine)


def test_rates_of_the_explicit_part_that_are_not_finite_are_named():
    def breaks(t, u, p):
        return np.log(0.6 - t) * slow(t, u, p)

    problem = imex(implicit=ds.ODE(stiff, 3, NAMES), explicit=ds.ODE(breaks, 3, NAMES))
    with np.errstate(invalid="ignore"), pytest.raises(ds.SolveError, match="breaks"):
        ds.solve(problem, U0, P, ds.Stepping((0.0, 1.0), "arkimex4", dt=0.1))


def advected_reactions(comm, jacobian):
    """Return two species that diffuse and react, implicitly, and are advected; start and cost."""
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (12, 12), "periodic", dof=2, comm=comm)

    def reaction(t, u, p):
        first, second = u.center[0], u.center[1]
        made = 5.0 * p.rate * first * second**2
        spread = u.laplacian()
        return [0.01 * spread[0] - made, 0.02 * spread[1] + made - p.force * second]

    def advection(t, u, p):
        along, across = u.gradient()
        return -p.speed * ((1.0 + 0.3 * np.sin(3.0 * t) + 0.2 * u.center[1]) * along + across)

    problem = imex(
        implicit=ds.trace_stencil(reaction, grid, NAMES, jacobian=jacobian),
        explicit=ds.trace_stencil(advection, grid, NAMES),
    )
    x, y = grid.coordinates()
    u0 = grid.create_vec()
    start = grid.writable(u0)
    start[..., 0] = 1.0 + 0.3 * np.sin(2.0 * np.pi * x)
    start[..., 1] = 0.5 + 0.2 * np.cos(2.0 * np.pi * y)
    cost = ds.Terminal(
        lambda t, u, p: 0.5 * u.dot(u),
        lambda t, u, p, out: u.copy(out),
        "independent",
        lambda t, u, p, du, dp, out: (du.copy(out), np.zeros(3))[1],
    )
    return problem, u0, cost


@pytest.mark.mpi
@pytest.mark.parametrize("jacobian", ["assembled", "products"])
def test_gradients_on_grids_are_the_same_on_any_number_of_ranks(jacobian):
    everywhere, alone = (
        advected_reactions(comm, jacobian) for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF)
    )
    found = []
    for problem, u0, cost in (everywhere, alone):
        run = ds.solve(problem, u0, P, ds.Stepping((0.0, 0.1), "arkimex4", dt=0.03), [0.05])
        du = u0.copy()
        du.scale(0.1)
        product = ds.hessian_product(run, cost, du, [0.1, 0.2, -0.3])
        assert duality(run, cost) < 1e-12
        found.append(np.concatenate([ds.adjoint(run, cost).p, product.p]))
    assert np.allclose(*found, rtol=1e-9)
    assert read(everywhere[1]).size <= read(alone[1]).size


def test_linear_parts_are_solved_iteratively_to_rounding_without_a_solve_too_many():
    """The second linear solve of a stage ends at rounding, and there is no third one."""
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (16, 16), "periodic", comm=PETSc.COMM_SELF)
    linear = ds.trace_stencil(lambda t, u, p: 0.02 * u.laplacian(), grid, NAMES)
    explicit = ds.trace_stencil(lambda t, u, p: -p.speed * u.gradient()[0] * u.center, grid, NAMES)
    # the same without what is known of its Jacobian
    unknown = replace(linear, residual_u=replace(linear.residual_u, constant=False))
    u0 = grid.create_vec()
    grid.writable(u0)[..., 0] = 1.0 + 0.3 * np.sin(2.0 * np.pi * grid.coordinates()[0])
    iterative = {"ksp_type": "gmres", "pc_type": "bjacobi", "sub_pc_type": "ilu", "ksp_rtol": 1e-8}
    states, solves, flops = [], [], []
    for part, options in ((linear, {}), (linear, iterative), (unknown, iterative)):
        problem = imex(implicit=part, explicit=explicit)
        stepping = ds.Stepping((0.0, 0.1), "arkimex4", dt=0.02, options=options)
        before = PETSc.Log.getFlops()
        run = ds.solve(problem, u0, P, stepping)
        flops.append(PETSc.Log.getFlops() - before)
        states.append(read(run.final))
        solves.append((run.effort.newton_iterations, run.effort.linear_iterations))
    np.testing.assert_allclose(states[1], states[0], rtol=1e-14)
    assert solves[1] == solves[2]
    # of five stages and steps: the first solve gains eight digits, the second the rest
    assert solves[1][0] == 50
    first = ds.Stepping(
        (0.0, 0.1), "arkimex4", dt=0.02, options={**iterative, "snes_type": "ksponly"}
    )
    of_first = ds.solve(imex(implicit=linear, explicit=explicit), u0, P, first).effort
    assert solves[1][1] < 1.75 * of_first.linear_iterations
    assert flops[1] < 0.75 * flops[2]


def test_parameters_may_be_fields():
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (8, 8), "periodic", comm=PETSc.COMM_SELF)
    problem = imex(
        implicit=ds.trace_stencil(lambda t, u, p: u.laplacian(p.k), grid, ["s"], fields=["k"]),
        explicit=ds.trace_stencil(
            lambda t, u, p: -p.s * u.gradient()[0] * u.center, grid, ["s"], fields=["k"]
        ),
    )
    u0 = grid.create_vec()
    grid.writable(u0)[..., 0] = 1.0 + 0.3 * np.sin(2.0 * np.pi * grid.coordinates()[0])
    p, stepping = problem.pack(s=1.0, k=0.05), ds.Stepping((0.0, 0.1), "arkimex4", dt=0.03)
    cost = ds.Terminal(
        lambda t, u, p: 0.5 * u.dot(u), lambda t, u, p, out: u.copy(out), "independent"
    )
    run = ds.solve(problem, u0, p, stepping)
    assert duality(run, cost) < 1e-12
    direction = p.copy()
    direction.setArray(np.random.default_rng(0).normal(size=p.local_size))
    values = [
        0.5 * ds.solve(problem, u0, p + eps * direction, stepping).final.norm() ** 2
        for eps in (1e-5, -1e-5)
    ]
    slope = ds.adjoint(run, cost).p.dot(direction)
    assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope, rel=1e-7)


def test_implicit_methods_factorise_the_sum_on_grids():
    problem, _, _ = advected_reactions(PETSc.COMM_SELF, "auto")
    assert problem.residual_u.assembled


@pytest.mark.parametrize("jumps", [False, True], ids=["kink", "jump"])
def test_kinks_and_jumps_of_either_part_are_told(jumps):
    def g(t, u, p):
        return p[1] * (np.where(u > 0.5, 1.0, 0.25) if jumps else np.maximum(u - 0.5, 0.0))

    names = ["a", "b"]
    parts = ds.ODE(lambda t, u, p: p[0] * (2.0 - u), 1, names), ds.ODE(g, 1, names)
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2)
    start, rates = [0.1], [0.5, 0.3]
    problem = imex(implicit=parts[0], explicit=parts[1])
    run = ds.solve(problem, start, rates, ds.Stepping((0.0, 1.0), "arkimex4", rtol=1e-7))
    told = pytest.warns(ds.errors.KinkWarning, match="equations jump near t = 0.434")
    with told if jumps else nullcontext():
        gradient = ds.adjoint(run, cost)
    with pytest.warns(ds.errors.KinkWarning, match="a jump near" if jumps else "a kink near"):
        ds.hessian_product(run, cost, [1.0], [0.0, 0.0])
    if not jumps:  # steps end at the kink
        whole = ds.ODE(lambda t, u, p: p[0] * (2.0 - u) + g(t, u, p), 1, names)
        fine = ds.solve(whole, start, rates, ds.Stepping((0.0, 1.0), "rk8vr", rtol=1e-11))
        np.testing.assert_allclose(gradient.p, ds.adjoint(fine, cost).p, rtol=3e-6)
