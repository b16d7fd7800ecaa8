"""Differences and continuous methods: closed forms, and agreement with the discrete derivatives.

The order of agreement with the discrete adjoint is that of the method; the backsolve adjoint of a
diffusive problem has to fail visibly.
"""

from functools import cache

import numpy as np
import pytest
from petsc4py import PETSc
from scipy import sparse
from zoo import (
    ANALYTIC_COST,
    DECAY,
    FORMS,
    NAMES,
    P0,
    T_END,
    U0,
    initial_state,
    initial_state_p,
    rhs_p,
    rhs_u,
)
from zoo import rhs as zoo_rhs

from daeosens import (
    ODE,
    InputError,
    LeastSquares,
    Parameter,
    Parameters,
    Products,
    Reduced,
    Running,
    SolveError,
    Stepping,
    Terminal,
    UnsupportedError,
    adjoint,
    sensitivities,
    solve,
)
from daeosens.arrays import gather, read, write
from daeosens.compare import continuous_adjoint, continuous_forward, finite_differences

PROBLEM = FORMS["rhs"].analytic
PRODUCTS = ODE(
    zoo_rhs,
    3,
    NAMES,
    jacobian=Products(
        lambda t, u, p, v: rhs_u(t, u, p) @ v, lambda t, u, p, w: rhs_u(t, u, p).T @ w
    ),
    jacobian_p=Products(
        lambda t, u, p, v: rhs_p(t, u, p) @ v, lambda t, u, p, w: rhs_p(t, u, p).T @ w
    ),
)
BOTH = ("p", "u0")
MODES = ("backsolve", "interpolating")


def stepping(method, dt, end=T_END, **more):
    return Stepping((0.0, end), method, dt=dt, **more)


@cache
def discrete(method, dt):
    steps = stepping(method, dt)
    return adjoint(solve(PROBLEM, U0, P0, steps, ANALYTIC_COST.times), ANALYTIC_COST)


def distance(first, second):
    return max(abs(first.u0 - second.u0).max(), abs(first.p - second.p).max())


def orders(errors):
    return np.log2(np.array(errors[:-1]) / errors[1:])


# ---- finite differences --------------------------------------------------------------------------


@cache
def functional():
    control = Parameters(
        {name: Parameter(value) for name, value in zip(NAMES, P0, strict=True)},
        initial_state,
        initial_state_p,
    )
    return Reduced(PROBLEM, ANALYTIC_COST, stepping("rk4", 0.05), control)


def difference_error(scheme, step=None):
    exact = read(functional().gradient(functional().start()))
    found = finite_differences(functional(), scheme=scheme, step=step)
    return np.linalg.norm(read(found.gradient) - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize(("scheme", "order"), [("forward", 1), ("central", 2)])
def test_differences_converge_with_the_order_of_the_scheme(scheme, order):
    errors = [difference_error(scheme, step) for step in (4e-3, 2e-3, 1e-3)]
    np.testing.assert_allclose(orders(errors), order, atol=0.05)


@pytest.mark.parametrize(("scheme", "digits"), [("forward", 1e-7), ("central", 1e-9)])
def test_default_step_gives_half_or_two_thirds_of_the_digits(scheme, digits):
    assert difference_error(scheme) < digits


def test_differences_report_steps_and_evaluations():
    x = functional().start()
    eps = np.finfo(float).eps
    forward = finite_differences(functional(), x)
    np.testing.assert_allclose(read(forward.step), eps**0.5 * P0)
    assert forward.evaluations == 4
    central = finite_differences(functional(), x, "central")
    np.testing.assert_allclose(read(central.step), eps ** (1 / 3) * P0)
    assert central.evaluations == 6
    given = finite_differences(functional(), x, "central", 1e-3)
    assert read(given.step).tolist() == [1e-3] * 3
    assert str(given) == "central differences: 6 evaluations, steps 0.001 ... 0.001"
    np.testing.assert_array_equal(read(x), P0)


def test_differences_refuse_bad_input():
    with pytest.raises(InputError, match="scheme = 'backward'"):
        finite_differences(functional(), scheme="backward")
    for step in (0.0, -1e-3, np.nan):
        with pytest.raises(InputError, match=f"step = {step}"):
            finite_differences(functional(), step=step)


# ---- forward sensitivities -----------------------------------------------------------------------


@pytest.mark.parametrize(("method", "order"), [("rk4", 4), ("cn", 2), ("beuler", 1)])
def test_forward_sensitivities_converge_to_the_closed_form(method, order):
    end, errors = 2.0, []
    for dt in (0.1, 0.05, 0.025):
        found = continuous_forward(
            DECAY.problem, DECAY.u0, DECAY.p, stepping(method, dt, end), with_respect_to=BOTH
        )
        errors.append(abs(found.p[0] - DECAY.by_p(end)).max() + abs(found.u0 - DECAY.by_u0(end)))
    np.testing.assert_allclose(orders(errors).ravel(), order, atol=0.1)


@pytest.mark.parametrize("method", ["rk1fe", "rk5dp", "beuler", "cn", "theta:0.7", "midpoint"])
@pytest.mark.parametrize("problem", [PROBLEM, PRODUCTS], ids=["matrix", "products"])
def test_with_fixed_steps_forward_sensitivities_are_the_discrete_ones(method, problem):
    """Methods commute with differentiation; so the block diagonal Newton matrix converges too."""
    steps = stepping(method, 0.1)
    found = continuous_forward(problem, U0, P0, steps, with_respect_to=BOTH)
    expected = sensitivities(solve(PROBLEM, U0, P0, steps))
    np.testing.assert_allclose(found.p, expected.p, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.u0, expected.u0, rtol=1e-8, atol=1e-10)
    assert found.sensitivities().sweep == "continuous forward"


def test_forward_sensitivities_have_their_own_error_control():
    """The sensitivities need smaller steps than the state alone."""
    steps = Stepping((0.0, 2.0), "rk5dp", rtol=1e-8, atol=1e-8)
    found = continuous_forward(DECAY.problem, DECAY.u0, DECAY.p, steps)
    alone = solve(DECAY.problem, DECAY.u0, DECAY.p, steps)
    assert len(found.times) > len(alone.times)
    np.testing.assert_allclose(found.p[0], DECAY.by_p(2.0), rtol=1e-7)


def test_forward_sensitivities_at_other_times():
    found = continuous_forward(
        DECAY.problem, DECAY.u0, DECAY.p, stepping("rk4", 0.01, 2.0), t_eval=[0.505]
    )
    np.testing.assert_allclose(found.sensitivities(0.505).p[0], DECAY.by_p(0.505), rtol=1e-8)
    assert read(found.state(0.505))[0] == pytest.approx(DECAY.solution(0.505), rel=1e-8)
    assert read(found.state())[0] == pytest.approx(DECAY.solution(2.0), rel=1e-8)
    assert found.sensitivities().u0 is None
    only_u0 = continuous_forward(
        DECAY.problem, DECAY.u0, DECAY.p, stepping("rk4", 0.01, 2.0), with_respect_to=["u0"]
    )
    assert only_u0.sensitivities().p is None


def test_initial_state_that_follows_the_parameters():
    found = continuous_forward(PROBLEM, U0, P0, stepping("rk4", 0.1), initial_p=initial_state_p(P0))
    exact = sensitivities(solve(PROBLEM, U0, P0, stepping("rk4", 0.1)))
    np.testing.assert_allclose(found.p, exact.p + exact.u0 @ initial_state_p(P0), rtol=1e-12)


def test_forward_sensitivities_refuse_bad_input():
    steps = stepping("cn", 0.1)
    with pytest.raises(InputError, match=r"with_respect_to = \['q'\]"):
        continuous_forward(PROBLEM, U0, P0, steps, with_respect_to=["q"])
    with pytest.raises(InputError, match=r"initial_p has shape \(3,\)\n  expected: \(3, 3\)"):
        continuous_forward(PROBLEM, U0, P0, steps, initial_p=np.zeros(3))


@pytest.mark.parametrize("name", ["M", "F"])
def test_other_forms_are_refused_with_the_alternative(name):
    problem, steps = FORMS[name].analytic, stepping("cn", 0.1)
    with pytest.raises(UnsupportedError, match=f"{problem.form} form(.|\n)*try: tangent"):
        continuous_forward(problem, U0, P0, steps)
    with pytest.raises(UnsupportedError, match=f"{problem.form} form(.|\n)*try: adjoint"):
        continuous_adjoint(problem, U0, P0, steps, ANALYTIC_COST)


# ---- continuous adjoints -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("method", "order"), [("rk1fe", 1), ("beuler", 1), ("cn", 2), ("rk3bs", 3), ("rk4", 4)]
)
def test_continuous_adjoint_approaches_the_discrete_one_with_the_order_of_the_method(
    mode, method, order
):
    """For terminal, running and observation costs together."""
    errors = [
        distance(
            continuous_adjoint(PROBLEM, U0, P0, stepping(method, dt), ANALYTIC_COST, mode),
            discrete(method, dt),
        )
        for dt in (0.02, 0.01, 0.005)
    ]
    np.testing.assert_allclose(orders(errors), order, atol=0.1)


def test_interpolation_limits_the_order_to_four():
    errors = [
        distance(
            continuous_adjoint(
                PROBLEM, U0, P0, stepping("rk5dp", dt), ANALYTIC_COST, "interpolating"
            ),
            discrete("rk5dp", dt),
        )
        for dt in (0.02, 0.01)
    ]
    np.testing.assert_allclose(orders(errors), 4.0, atol=0.05)


@pytest.mark.parametrize("mode", MODES)
def test_continuous_adjoint_of_a_closed_form(mode):
    final = Terminal(lambda t, u, p: u[0])
    found = continuous_adjoint(
        DECAY.problem, DECAY.u0, DECAY.p, stepping("rk4", 0.02, 2.0), final, mode
    )
    assert found.value == pytest.approx(DECAY.solution(2.0), rel=1e-7)
    np.testing.assert_allclose(found.p, DECAY.by_p(2.0), rtol=1e-7)
    np.testing.assert_allclose(found.u0, DECAY.by_u0(2.0), rtol=1e-7)
    assert found.drift < 1e-7
    assert f"({mode}): 100 backward steps" in str(found)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_derivatives_given_by_products_give_the_same_adjoint(mode, method):
    steps = stepping(method, 0.05)
    matrix = continuous_adjoint(PROBLEM, U0, P0, steps, ANALYTIC_COST, mode)
    products = continuous_adjoint(PRODUCTS, U0, P0, steps, ANALYTIC_COST, mode)
    assert distance(matrix, products) < 1e-9


def test_way_back_can_have_its_own_steps():
    """Small fixed steps forward; adaptive ones back, whose tolerance then decides."""
    forward = stepping("rk4", 0.005)
    exact = discrete("rk5dp", 0.005)
    errors = []
    for tolerance in (1e-4, 1e-8):
        backward = Stepping((0.0, 1.0), "rk5dp", rtol=tolerance, atol=tolerance)
        found = continuous_adjoint(
            PROBLEM, U0, P0, forward, ANALYTIC_COST, "interpolating", backward
        )
        errors.append(distance(found, exact))
        assert found.steps < found.forward.n_steps
    assert errors[1] < 1e-6
    assert errors[1] < 1e-2 * errors[0]


def test_observations_at_both_ends():
    cost = LeastSquares([0.0, 1.0], [[0.2], [0.1]]) + Running(lambda t, u, p: p[1] * u[0])
    steps = stepping("rk4", 0.02, 1.0)
    exact = adjoint(solve(DECAY.problem, DECAY.u0, DECAY.p, steps, cost.times), cost)
    for mode in MODES:
        found = continuous_adjoint(DECAY.problem, DECAY.u0, DECAY.p, steps, cost, mode)
        assert distance(found, exact) < 1e-7


def test_problem_without_parameters():
    problem = ODE(lambda t, u, p: -(u**2), 1)
    found = continuous_adjoint(
        problem, [1.0], None, stepping("rk4", 0.01, 1.0), Terminal(lambda t, u, p: u[0])
    )
    np.testing.assert_allclose(found.u0, 0.25, rtol=1e-8)  # u(1) = u0 / (1 + u0)
    assert found.p.size == 0
    forward = continuous_forward(
        problem, [1.0], None, stepping("rk4", 0.01, 1.0), with_respect_to=["u0"]
    )
    np.testing.assert_allclose(forward.u0, 0.25, rtol=1e-8)


def test_unknown_mode_is_refused():
    with pytest.raises(InputError, match="mode = 'quadrature'\n  expected: \"backsolve\""):
        continuous_adjoint(PROBLEM, U0, P0, stepping("cn", 0.1), ANALYTIC_COST, "quadrature")


# ---- diffusion -----------------------------------------------------------------------------------

FINAL_ENERGY = Terminal(lambda t, u, p: 0.5 * (u @ u), lambda t, u, p: u, "independent")


@cache
def heat(n):
    """The five-point heat equation on n x n interior points of the unit square."""
    second = sparse.diags_array(
        [np.ones(n - 1), -2.0 * np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1]
    )
    laplace = sparse.kronsum(second, second, format="csr") * (n + 1) ** 2
    x = np.sin(np.pi * np.arange(1, n + 1) / (n + 1))
    problem = ODE(
        lambda t, u, p: p[0] * (laplace @ u),
        n * n,
        ["alpha"],
        jacobian=lambda t, u, p: p[0] * laplace,
        jacobian_p=lambda t, u, p: (laplace @ u)[:, None],
    )
    return problem, np.outer(x, x).ravel()


@pytest.mark.parametrize("method", ["rk1fe", "cn"])
def test_interpolating_adjoint_of_diffusion_is_stable(method):
    problem, u0 = heat(30)
    steps = stepping(method, 1e-4, 0.01)
    found = continuous_adjoint(problem, u0, [1.0], steps, FINAL_ENERGY, "interpolating")
    exact = adjoint(solve(problem, u0, [1.0], steps), FINAL_ENERGY)
    np.testing.assert_allclose(found.p, exact.p, rtol=5e-3)
    np.testing.assert_allclose(found.u0, exact.u0, rtol=1e-3, atol=1e-3)


def test_backsolve_of_diffusion_blows_up_with_the_resolution():
    """Rounding grows as exp(8 (n + 1)^2 T)."""
    drifts = []
    for n in (10, 30, 50):
        problem, u0 = heat(n)
        found = continuous_adjoint(problem, u0, [1.0], stepping("rk4", 5e-5, 0.01), FINAL_ENERGY)
        drifts.append(found.drift)
    assert drifts[0] < 1e-10
    assert drifts[1] > 1e10
    assert drifts[2] > 1e50
    assert abs(found.p[0]) > 1e30


def test_backsolve_that_overflows_is_a_solve_error():
    problem, u0 = heat(30)
    with pytest.raises(SolveError, match=r"not finite|entry|TS failed"):
        continuous_adjoint(problem, u0, [1.0], stepping("rk1fe", 1e-4, 0.3), FINAL_ENERGY)


# ---- distributed ---------------------------------------------------------------------------------


class Ring:
    """u_i' = d (u_{i-1} - 2 u_i + u_{i+1}) - r u_i^2 + cos(t) u_i on a ring, in PETSc style."""

    def __init__(self, *, products=False, field=False, n=11, kind=None):
        self.field = field
        self.grid = PETSc.DMDA().create(
            [n], dof=1, stencil_width=1, boundary_type="periodic", comm=PETSc.COMM_WORLD
        )
        self.local = self.grid.createLocalVec()
        self.u0 = self.grid.createGlobalVec()
        start, end = self.u0.getOwnershipRange()
        self.here = np.arange(start, end)
        write(self.u0, 1 + 0.5 * np.sin(self.here))
        self.p = np.array([0.7, 0.2])
        if field:
            self.p = self.grid.createGlobalVec()
            write(self.p, 0.3 + 0.1 * np.cos(self.here))
        by_u = Products(self.apply_u, self.apply_u) if products else self.fill_u
        by_p = Products(self.apply_p, self.apply_p) if field else self.fill_p
        template = None
        if kind is not None:
            template = self.grid.createMat().convert(kind, PETSc.Mat())
        self.problem = ODE(
            self.rhs,
            state=self.grid,
            parameters=self.p if field else 2,
            jacobian=by_u,
            jacobian_p=by_p,
            jacobian_matrix=template,
        )

    def rates(self, p):
        return (0.7, read(p)) if self.field else p

    def neighbours(self, v):
        self.grid.globalToLocal(v, self.local)
        values = read(self.local)
        return values[:-2] + values[2:]

    def rhs(self, t, u, p, out):
        d, r = self.rates(p)
        values = read(u)
        write(out, d * (self.neighbours(u) - 2 * values) - r * values**2 + np.cos(t) * values)

    def fill_u(self, t, u, p, out):
        d, r = self.rates(p)
        n, diagonal = u.size, -2 * d - 2 * r * read(u) + np.cos(t)
        out.zeroEntries()
        for i, value in zip(self.here, diagonal, strict=True):
            for column, entry in (((i - 1) % n, d), (i, value), ((i + 1) % n, d)):
                out.setValue(i, column, entry)
        out.assemble()

    def apply_u(self, t, u, p, v, out):
        d, r = self.rates(p)
        diagonal = -2 * d - 2 * r * read(u) + np.cos(t)
        write(out, d * self.neighbours(v) + diagonal * read(v))

    def fill_p(self, t, u, p, out):
        values = read(u)
        out.getDenseArray()[...] = np.column_stack([self.neighbours(u) - 2 * values, -(values**2)])
        out.assemble()

    def apply_p(self, t, u, p, v, out):
        write(out, -(read(u) ** 2) * read(v))

    def cost(self):
        """Half the squared final state, a misfit on the way, and a running cost."""

        def half(t, u, p):
            return 0.5 * u.dot(u)

        def gradient(t, u, p, out):
            u.copy(out)

        data = self.u0.duplicate()
        data.set(0.9)
        observed = LeastSquares([0.25], [data], 0.5)
        return (
            Terminal(half, gradient, "independent")
            + observed
            + Running(half, gradient, "independent")
        )


RINGS = [{}, {"products": True}, {"field": True}]


@pytest.mark.mpi
@pytest.mark.parametrize("options", RINGS, ids=str)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("method", "dt", "tolerance"), [("rk4", 0.025, 1e-6), ("cn", 0.05, 2e-3)])
def test_distributed_continuous_adjoint(options, mode, method, dt, tolerance):
    ring = Ring(**options)
    steps, cost = stepping(method, dt, 0.5), ring.cost()
    found = continuous_adjoint(ring.problem, ring.u0, ring.p, steps, cost, mode)
    exact = adjoint(solve(ring.problem, ring.u0, ring.p, steps, cost.times), cost)
    np.testing.assert_allclose(found.u0, exact.u0, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.p, exact.p, rtol=tolerance, atol=tolerance)
    assert found.drift < 1e-3


@pytest.mark.mpi
@pytest.mark.parametrize("options", RINGS, ids=str)
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_distributed_forward_sensitivities(options, method):
    ring = Ring(**options)
    steps = stepping(method, 0.05, 0.5)
    found = continuous_forward(ring.problem, ring.u0, ring.p, steps, with_respect_to=BOTH)
    exact = sensitivities(solve(ring.problem, ring.u0, ring.p, steps))
    np.testing.assert_allclose(found.p, exact.p, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.u0, exact.u0, rtol=1e-8, atol=1e-9)


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["dense", "baij"])
def test_other_kinds_of_matrices_are_understood(kind):
    ring = Ring(kind=kind)
    steps = stepping("cn", 0.05, 0.5)
    found = continuous_forward(ring.problem, ring.u0, ring.p, steps)
    expected = continuous_forward(Ring().problem, ring.u0, ring.p, steps)
    np.testing.assert_allclose(found.p, expected.p, rtol=1e-9)


@pytest.mark.mpi
def test_distributed_differences():
    """Of a quadratic: exact to rounding, every component by its owner."""

    class Quadratic:
        comm = PETSc.COMM_WORLD

        def start(self):
            x = PETSc.Vec().createMPI(7, comm=self.comm)
            start, end = x.getOwnershipRange()
            write(x, 1.0 + np.arange(start, end))
            return x

        def value(self, x):
            return 0.5 * x.dot(x) + 3.0 * x.sum()

    found = finite_differences(Quadratic(), scheme="central")
    np.testing.assert_allclose(gather(found.gradient), 4.0 + np.arange(7), rtol=1e-9)
    assert found.evaluations == 14
