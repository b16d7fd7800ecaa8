"""Masses whose null space is one of sums of rows and of variables: the same runs in mixed unknowns.

x' = g(t, x, y, p), 0 = h(t, x, y, p) becomes M u' = f with u = R^-1 (x, y) and f = L (g, h), where
M = L diag(1, 1, 0, 0) R couples everything.  Runge-Kutta methods do not see the difference.
"""

from __future__ import annotations

import numpy as np
import pytest
from petsc4py import PETSc
from scipy.linalg import block_diag

from daeosens import (
    ODE,
    Event,
    InputError,
    LeastSquares,
    Parameter,
    Parameters,
    Reduced,
    Running,
    Stepping,
    Terminal,
    UnsupportedError,
    adjoint,
    consistent_state,
    hessian_product,
    solve,
    taylor,
    trace,
)
from daeosens.methods.dae.null_space import basis_matrix, null_bases, projection
from daeosens.methods.esdirk.tableau import TABLEAUX
from daeosens.petsc import gather, write
from daeosens.verify import duality

RNG = np.random.default_rng(20)
LEFT, RIGHT = (np.eye(4) + 0.4 * RNG.standard_normal((4, 4)) for _ in range(2))
BACK = np.linalg.inv(RIGHT)
PLAIN = np.diag([1.0, 1.0, 0.0, 0.0])
MIXED = LEFT @ PLAIN @ RIGHT
P0 = np.array([1.3, 0.7])
METHODS = tuple(TABLEAUX)
T_END = 1.6


def rates(t, z, p):
    x, v, y, w = z
    return np.array(
        [
            v - p[0] * x + 0.2 * y,
            p[1] * w - 0.5 * v * x,
            y + y**3 - v - np.sin(t),
            w + x - p[0] * y,
        ]
    )


def mixed(t, u, p):
    return LEFT @ rates(t, RIGHT @ u, p)


def kicked(back):
    """Return the event in unknowns u = back z: x falls to a level, and v is thrown up."""
    forth = np.linalg.inv(back)

    def reset(t, u, p):
        x, v, y, w = forth @ u
        return back @ np.array([x, 0.3 + 0.1 * p[0] - 0.5 * v, y, w])

    return Event(lambda t, u, p: forth[0] @ u - 0.7, reset, direction=-1, name="kick")


def problems(*, events=False, make=ODE):
    """Return the problem in its plain and in its mixed unknowns."""
    pairs = ((rates, PLAIN, np.eye(4)), (mixed, MIXED, BACK))
    return tuple(
        make(f, 4, ["a", "b"], mass=mass, events=[kicked(back)] if events else [])
        for f, mass, back in pairs
    )


def costs(back):
    """Return a cost that sees all unknowns, at the end, on the way and at a time."""
    forth = np.linalg.inv(back)
    return (
        Terminal(lambda t, u, p: (forth @ u) @ np.array([1.0, -0.4, 0.3, 0.8]))
        + Running(lambda t, u, p: ((forth @ u) ** 2).sum())
        + LeastSquares([0.3], [0.2], observe=lambda t, u, p: (forth @ u)[2:3])
    )


Z0 = consistent_state(problems()[0], [0.9, 0.4, 0.0, 0.0], P0).array


# ---- bases ---------------------------------------------------------------------------------------


def matrix_of(values):
    matrix = PETSc.Mat().createDense(values.shape, array=values.copy(), comm=PETSc.COMM_SELF)
    matrix.assemble()
    return matrix


MATRICES = {
    "regular": MIXED + np.eye(4),
    "one block": MIXED,
    "blocks": block_diag(MIXED, [[2.0, -2.0], [-2.0, 2.0]], [[0.0]], [[3.0]]),
    "rows and columns apart": np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 2.0]]),
    "units": np.diag([1e-9, 1.0, 1e9, 1.0]) @ MIXED @ np.diag([1e6, 1.0, 1e-6, 1.0]),
    "zero": np.zeros((2, 2)),
}


SINGULAR = dict(zip(MATRICES, (0, 2, 4, 1, 2, 2), strict=True))


@pytest.mark.parametrize("name", MATRICES)
def test_bases_span_the_null_spaces_and_what_is_beside_them(name):
    values = MATRICES[name]
    bases, like = null_bases(matrix_of(values)), PETSc.Vec().createSeq(len(values))
    left, left_dual, left_rest, right, right_dual, right_rest = (
        np.array(basis_matrix(columns, like).convert("dense").getDenseArray())
        for columns in vars(bases).values()
    )
    assert (np.abs(left.T @ values) <= 2e-15 * np.abs(left.T) @ np.abs(values)).all()
    assert (np.abs(values @ right) <= 2e-15 * np.abs(values) @ np.abs(right)).all()
    for basis, dual in ((left, left_dual), (right, right_dual)):
        np.testing.assert_allclose(dual.T @ basis, np.eye(basis.shape[1]), atol=1e-14)
    assert left.shape[1] == right.shape[1] == SINGULAR[name]
    block = left_rest.T @ values @ right_rest
    np.testing.assert_allclose(block, np.diag(np.diag(block)), atol=1e-12)
    assert (np.diag(block) > 0.01).all()
    onto = projection(bases.left_dual, bases.left, like).convert("dense").getDenseArray()
    np.testing.assert_allclose(onto, left_dual @ left.T, rtol=1e-14, atol=1e-15)


# ---- consistent states ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mass",
    [
        [[1.0, 1.0], [1.0, 1.0]],
        [[0.1, 0.3], [0.2, 0.6]],
        [[1.0, 1.0], [0.0, 0.0]],
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]],
    ],
)
def test_a_consistent_state_keeps_what_has_a_rate(mass):
    """And f has nothing in the equations without rates."""
    mass = np.array(mass)
    n = len(mass)
    problem = ODE(lambda t, u, p: np.sin(np.arange(n)) - u - u**3, n, mass=mass)
    guess = np.linspace(0.5, 1.0, n)
    state = consistent_state(problem, guess, None).array
    np.testing.assert_allclose(mass @ state, mass @ guess, rtol=1e-14, atol=1e-14)
    side = np.sin(np.arange(n)) - state - state**3
    solved, *_ = np.linalg.lstsq(mass, side, rcond=None)
    np.testing.assert_allclose(mass @ solved, side, atol=1e-12)


# ---- runs ----------------------------------------------------------------------------------------


def stepping(method, dt=0.2):
    return Stepping((0.0, T_END), method, dt=dt)


def functional_of(problem, back, method, dt=0.2):
    """Return J(p), from consistent starts that follow p too."""

    def start(p):
        return back @ np.array([0.9 + 0.1 * p[0], 0.4 * p[1], 0.0, 0.0])

    values = {"a": Parameter(P0[0]), "b": Parameter(P0[1])}
    control = Parameters(values, start, consistent=True)
    return Reduced(problem, costs(back), Stepping((0.0, T_END), method, dt=dt), control)


@pytest.mark.slow
@pytest.mark.parametrize("events", [False, True], ids=["smooth", "event"])
@pytest.mark.parametrize("method", METHODS)
def test_runs_and_derivatives_are_those_in_the_plain_unknowns(method, events):
    values = []
    for problem, back in zip(problems(events=events), (np.eye(4), BACK), strict=True):
        functional = functional_of(problem, back, method)
        x = functional.start()
        run = functional.trajectory(x)
        assert len(run.crossings) == events
        assert duality(run, costs(back)) < 1e-12
        product = functional.hessian_product(x, np.array([1.0, -0.6]))
        states = run.u @ np.linalg.inv(back).T
        values.append((states, functional.value(x), functional.gradient(x), product))
    for ours, theirs in zip(values[1], values[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("make", [ODE, trace])
def test_gradients_and_hessians_are_exact_at_coarse_steps(make):
    """Through an event, and from a start that follows the parameters."""
    functional = functional_of(problems(events=True, make=make)[1], BACK, "esdirk4", 0.4)
    orders = taylor(functional, epsilons=[5e-4 * 0.5**k for k in range(4)], hessian=True)
    assert orders.order > 1.9, orders
    assert orders.hessian_order > 2.9, orders


def test_hessians_along_the_start_are_symmetric():
    problem = problems()[1]
    run = solve(problem, BACK @ Z0, P0, Stepping((0.0, 0.6), "esdirk5", dt=0.2))
    cost = Terminal(lambda t, u, p: u @ u)
    x, y = RNG.standard_normal((2, 4))
    along_x, along_y = (hessian_product(run, cost, du0=d, dp=d[:2]) for d in (x, y))
    value, other = along_x.u0 @ y + along_x.p @ y[:2], along_y.u0 @ x + along_y.p @ x[:2]
    assert abs(value - other) < 1e-12 * abs(value)


@pytest.mark.parametrize(("method", "order"), [(name, TABLEAUX[name].order) for name in METHODS])
def test_order_is_that_of_the_method(method, order):
    """Of all unknowns: no order is lost for algebraic equations of index one."""
    problem, start = problems()[1], BACK @ Z0
    exact = solve(problem, start, P0, stepping("esdirk6", 0.01)).u[-1]
    errors = [
        np.abs(solve(problem, start, P0, stepping(method, dt)).u[-1] - exact).max()
        for dt in (0.2, 0.1)
    ]
    assert np.log2(errors[0] / errors[1]) > order - 0.4


# ---- what stays refused --------------------------------------------------------------------------


def test_a_null_space_that_moves_with_parameters_is_refused_after_events():
    problem = ODE(mixed, 4, ["a", "b"], mass=lambda p: MIXED * p[0], events=[Event(0.5)])
    with pytest.raises(UnsupportedError, match=r"singular mass matrix(.|\n)*constant mass"):
        solve(problem, BACK @ Z0, P0, Stepping((0.0, 1.0), "beuler", dt=0.1))


@pytest.mark.parametrize("method", ["cn", "esdirk4"])
def test_an_inconsistent_start_is_refused_with_the_function_that_mends_it(method):
    with pytest.raises(InputError, match=r"sum of rows(.|\n)*consistent_state"):
        solve(problems()[1], BACK @ (Z0 + np.array([0.0, 0.0, 0.3, 0.0])), P0, stepping(method))


def test_jumps_of_sums_of_rows_at_breakpoints_are_refused():
    def rhs(t, u, p):
        return mixed(t, u, p) + LEFT @ [0.0, 0.0, 0.3 * (t > 0.5), 0.0]

    problem = ODE(rhs, 4, ["a", "b"], mass=MIXED, breakpoints=[0.5])
    with pytest.raises(UnsupportedError, match=r"jump at the breakpoint 0\.5"):
        solve(problem, BACK @ Z0, P0, stepping("esdirk4"))


# ---- several ranks -------------------------------------------------------------------------------
# charges x_k + y_k between two nodes each, whose difference is algebraic: with d and a the sides,
# (x_k + y_k)' = d_k + a_k = d_k - a_k; unknowns all x, then all y, on ranks of their own

N = 7


def sides(t, u, p):
    x, y = u[:N], u[N:]
    d = -x + p[0] * y + 0.1 * np.roll(y, 1)
    a = y + y**3 - 0.6 * x - p[1] * np.sin(t) * np.roll(x, -1)
    return np.concatenate([d + a, d - a])


def curvature(t, u, p, w, du, dp):
    """Return the derivatives of w^T f in u and p along (du, dp)."""
    y, dx, dy = u[N:], du[:N], du[N:]
    of_d, of_a = w[:N] + w[N:], w[:N] - w[N:]
    by_x = -np.sin(t) * dp[1] * np.roll(of_a, 1)
    by_p = [of_d @ dy, -np.sin(t) * of_a @ np.roll(dx, -1)]
    return np.concatenate([by_x, dp[0] * of_d + 6 * y * of_a * dy]), np.array(by_p)


def slopes(function, x):
    return np.column_stack([function(x + 1e-30j * unit).imag / 1e-30 for unit in np.eye(len(x))])


def distributed(comm):
    template = PETSc.Vec().createMPI(2 * N, comm=comm)
    mass = PETSc.Mat().createAIJ([template.getSizes(), template.getSizes()], nnz=2, comm=comm)
    for k in range(*template.getOwnershipRange()):
        mass.setValues([k], [k % N, N + k % N], [1.0, 1.0])
    mass.assemble()

    def own(vec):
        return slice(*vec.getOwnershipRange())

    def jacobian(t, u, p, out):
        values = slopes(lambda v: sides(t, v, p), gather(u))
        for k in range(*u.getOwnershipRange()):
            out.setValues([k], list(range(2 * N)), values[k])
        out.assemble()

    def jacobian_p(t, u, p, out):
        out.getDenseArray()[...] = slopes(lambda v: sides(t, gather(u), v), p)[own(u)]

    def hessian_product(t, u, p, w, du, dp, out):
        by_u, by_p = curvature(t, gather(u), p, gather(w), gather(du), dp)
        write(out, by_u[own(u)])
        return by_p

    return ODE(
        lambda t, u, p, out: write(out, sides(t, gather(u), p)[own(u)]),
        parameters=["a", "b"],
        state=template,
        mass=mass,
        jacobian=jacobian,
        jacobian_p=jacobian_p,
        rhs_t=lambda t, u, p, out: write(out, sides(t + 1e-30j, gather(u), p).imag[own(u)] / 1e-30),
        hessian_product=hessian_product,
    )


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("method", ["esdirk4", "esdirk5"])
def test_answers_do_not_depend_on_the_number_of_ranks(method):
    p, values = np.array([0.5, 0.3]), []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        problem = distributed(comm)
        guess = problem.create_state()
        write(guess, np.cos(np.arange(*guess.getOwnershipRange())))
        u0 = consistent_state(problem, guess, p)
        assert abs(np.subtract(*sides(0.0, gather(u0), p).reshape(2, N))).max() < 1e-12
        run = solve(problem, u0, p, Stepping((0.0, 1.2), method, dt=0.2))
        cost = Terminal(
            lambda t, u, p: (gather(u) ** 4).sum(),
            gradient_u=lambda t, u, p, out: write(out, 4 * u.array_r**3),
            gradient_p="independent",
        )
        assert duality(run, cost) < 1e-12
        gradient = adjoint(run, cost)
        values.append(np.concatenate([gather(u0), gather(run.final), *gradient.gather()]))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("method", ["esdirk4", "cn"])
def test_second_order_on_any_number_of_ranks(method):
    """Symmetric, of third order in a Taylor expansion, and the same as on one rank."""
    p, stepping, values = np.array([0.5, 0.3]), Stepping((0.0, 1.2), method, dt=0.1), []
    cost = Terminal(
        lambda t, u, p: (gather(u) ** 4).sum(),
        gradient_u=lambda t, u, p, out: write(out, 4 * u.array_r**3),
        gradient_p="independent",
        hessian_product=lambda t, u, p, du, dp, out: (
            write(out, 12 * u.array_r**2 * du.array_r) or 0 * p
        ),
    )
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        problem = distributed(comm)
        guess = problem.create_state()
        write(guess, np.cos(np.arange(*guess.getOwnershipRange())))

        def start(p, problem=problem, guess=guess):
            return consistent_state(problem, guess, p)

        def direction(dp, start=start):
            after, before = start(p + 1e-4 * dp), start(p - 1e-4 * dp)
            after.axpy(-1.0, before)
            after.scale(5e3)
            return after

        def value(p, problem=problem, start=start):
            return (gather(solve(problem, start(p), p, stepping).final) ** 4).sum()

        u0, (v, w) = start(p), np.array([[0.3, -0.2], [0.1, 0.4]])
        run = solve(problem, u0, p, stepping)
        gradient = adjoint(run, cost)
        of_u, of_p = gather(gradient.u0_vec), gather(gradient.p_vec)
        along = {}
        for name, dp in (("v", v), ("w", w)):
            du = direction(dp)
            product = hessian_product(run, cost, du, dp)
            along[name] = gather(du), dp, gather(product.u0_vec), gather(product.p_vec)

        def bilinear(item, other, along=along):
            (du, dp, *_), (_, _, by_u, by_p) = along[item], along[other]
            return du @ by_u + dp @ by_p

        assert bilinear("v", "w") == pytest.approx(bilinear("w", "v"), rel=1e-10)
        rest = []
        for size in (0.1, 0.05, 0.025):
            moved = p + size * v
            first = of_u @ (gather(start(moved)) - gather(u0)) + of_p @ (size * v)
            rest.append(value(moved) - value(p) - first - 0.5 * size**2 * bilinear("v", "v"))
        orders = np.log2(np.abs(np.divide(rest[:-1], rest[1:])))
        assert orders[-1] == pytest.approx(3.0, abs=0.15)
        values.append(np.concatenate([*along["v"][2:], *along["w"][2:]]))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-8, atol=1e-10)
