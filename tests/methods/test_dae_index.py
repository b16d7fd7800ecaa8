"""The index of a DAE, by its structure; methods for which it is too high are refused."""

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import DAE, ODE, Event, Stepping, UnsupportedError, solve, trace
from daeosens.methods.dae.index import structural_index

SELF = PETSc.COMM_SELF
MASS = np.diag([1.0, 1.0, 1.0, 1.0, 0.0])
START = np.array([0.6, -0.8, 0.4, 0.3, 0.25 + 0.8 * 9.81])


def pendulum(index, u):
    """Return the right-hand side of a pendulum of length 1 with its force, the constraint last."""
    x, y, vx, vy, force = u
    rate = vx * vx + vy * vy - force * (x * x + y * y) - 9.81 * y
    last = {1: rate, 2: x * vx + y * vy, 3: x * x + y * y - 1.0}[index]
    return np.array([vx, vy, -force * x, -force * y - 9.81, last])


def as_mass(index, mass=MASS):
    return ODE(lambda t, u, p: pendulum(index, u), 5, mass=mass)


def as_residual(index):
    """As the mass depends on the state, F_u depends on the rates."""
    return DAE(
        lambda t, u, udot, p: MASS @ udot * (1.0 + u[0] ** 2) - pendulum(index, u) * (2 + u[1]), 5
    )


def index_of(problem, start=START):
    u = PETSc.Vec().createWithArray(np.array(start, float), comm=SELF)
    return structural_index(problem, 0.0, u, np.zeros(0)).value


@pytest.mark.parametrize("index", [1, 2, 3])
def test_index_of_a_pendulum(index):
    assert index_of(as_mass(index)) == index
    assert index_of(as_residual(index)) == index
    mixed = np.block([[np.random.default_rng(3).normal(size=(4, 4)), np.zeros((4, 1))]])
    assert index_of(as_mass(index, np.vstack([mixed, np.zeros(5)]))) == min(index, 2)


def test_what_is_of_index_one_is_not_taken_for_more():
    assert index_of(ODE(lambda t, u, p: -u, 2, mass=np.diag([1.0, 2.0])), [1.0, 1.0]) == 0
    # the derivative of the square is zero at this start only
    by_chance = ODE(lambda t, u, p: np.array([u[1], u[0] - u[1] ** 2]), 2, mass=np.diag([1.0, 0]))
    assert index_of(by_chance, [0.0, 0.0]) == 1
    # 0 = u0 - u1 holds no variable without a rate, but their difference has none
    ones = np.zeros((3, 3))
    ones[:2, :2] = 1.0
    sum_only = ODE(lambda t, u, p: np.array([-u[0], u[2] - u[1], u[0] - u[1]]), 3, mass=ones)
    assert index_of(sum_only, [1.0, 1.0, 0.0]) == 1
    # near the start the root has no value
    rooted = ODE(lambda t, u, p: np.array([np.sqrt(u[1]), u[0]]), 2, mass=np.diag([0.0, 1.0]))
    with np.errstate(invalid="ignore"):
        assert index_of(rooted, [0.0, 1e-9]) == 1


@pytest.mark.parametrize(
    ("make", "method", "index"),
    [
        *((as_mass, method, 3) for method in ("cn", "theta:0.5", "esdirk4")),  # not for F at all
        *((make, "midpoint", index) for make in (as_mass, as_residual) for index in (2, 3)),
    ],
)
def test_methods_whose_algebraic_variables_do_not_converge_are_refused(make, method, index):
    deeper = ", nor do their derivatives in time" if index > 2 else ""
    message = (
        f'method = "{method}" for a DAE of index {index}: algebraic equation 4 holds no '
        rf'algebraic variable{deeper}\n.*\(index 1\).*\n  try: the derivatives .* "beuler"'
    )
    problem = make(index)
    for _ in range(2):  # the second time it is known
        with pytest.raises(UnsupportedError, match=message):
            solve(problem, START, None, Stepping((0.0, 1.0), method, dt=0.1))


def stabilised(t, u, p):
    """Return the pendulum of Gear, Gupta and Leimkuhler: both constraints, two multipliers."""
    x, y, vx, vy, force, shift = u
    rates = [vx - shift * x, vy - shift * y, -force * x, -force * y - 9.81]
    return np.array([*rates, x * vx + y * vy, x * x + y * y - 1.0])


@pytest.mark.parametrize("make", [ODE, trace])
@pytest.mark.parametrize("method", ["auto", "esdirk3", "esdirk6", "cn", "beuler", "theta:0.7"])
def test_adaptive_steps_of_hidden_variables_are_refused_before_the_first_one(make, method):
    """Steps shrank to 1e-104, or 20000 of them came as far as t = 6e-7."""
    hidden = make(lambda t, u, p: pendulum(2, u), 5, mass=MASS)
    both = make(stabilised, 6, mass=np.diag([1.0, 1.0, 1.0, 1.0, 0.0, 0.0]))
    name = "esdirk5" if method == "auto" else method
    said = f'adaptive "{name}" for a DAE of index 2: algebraic '
    remedy = rf'\n.*\n  try: the derivatives in time(.|\n)*fixed steps, dt alone, of "{name}"'
    for problem, start, which in (
        (hidden, START, "equation 4 holds"),
        (both, [*START, 0.0], "equations 4, 5 hold"),
    ):
        for _ in range(2):
            with pytest.raises(UnsupportedError, match=said + which + " no alg.*" + remedy):
                solve(problem, start, None, Stepping((0.0, 1.0), method, rtol=1e-6))


@pytest.mark.parametrize("make", [ODE, trace])
def test_the_remedy_works(make):
    """Both constraints differentiated: adaptive steps follow the pendulum of index 1."""

    def reduced(t, u, p):
        x, y, vx, vy = u[:4]
        dx, dy, ax, ay, *_ = stabilised(t, u, p)
        return np.array([dx, dy, ax, ay, dx * vx + x * ax + dy * vy + y * ay, x * dx + y * dy])

    once = make(reduced, 6, mass=np.diag([1.0, 1.0, 1.0, 1.0, 0.0, 0.0]))
    run = solve(once, [*START, 0.0], None, Stepping((0.0, 1.0), rtol=1e-8))
    exact = solve(as_mass(1), START, None, Stepping((0.0, 1.0), "esdirk6", dt=0.005)).u[-1]
    np.testing.assert_allclose(run.u[-1][:5], exact, rtol=1e-6, atol=1e-7)
    assert run.n_steps < 200


@pytest.mark.parametrize(
    ("method", "index", "order"),
    [
        ("beuler", 2, 1),
        ("beuler", 3, 1),
        ("theta:0.6", 3, 1),
        ("cn", 2, 2),
        ("midpoint", 1, 2),
        ("esdirk3", 2, 2),
    ],
)
def test_the_others_converge_to_the_force(method, index, order):
    exact = solve(as_mass(1), START, None, Stepping((0.0, 1.0), "esdirk6", dt=0.005)).u[-1]
    errors = [
        abs(solve(as_mass(index), START, None, Stepping((0.0, 1.0), method, dt=h)).u[-1] - exact)
        for h in (0.0125, 0.00625)
    ]
    assert np.log2(errors[0][4] / errors[1][4]) > order - 0.25
    assert np.log2(errors[0][:4].max() / errors[1][:4].max()) > order - 0.25


def test_runs_with_events_are_refused_as_well():
    problem = ODE(lambda t, u, p: pendulum(2, u), 5, mass=MASS, events=[Event(0.3, terminal=True)])
    with pytest.raises(UnsupportedError, match=r'"midpoint" for a DAE of index 2'):
        solve(problem, START, None, Stepping((0.0, 1.0), "midpoint", dt=0.1))


def test_theta_that_amplifies_algebraic_errors_is_refused():
    with pytest.raises(
        UnsupportedError, match=r'"theta:0.3" for algebraic equations\n.*theta >= 0.5.*\n.*"cn"'
    ):
        solve(as_mass(1), START, None, Stepping((0.0, 1.0), "theta:0.3", dt=0.1))
    plain = ODE(lambda t, u, p: -u, 1, mass=np.eye(1))
    assert solve(plain, [1.0], None, Stepping((0.0, 1.0), "theta:0.3", dt=0.1)).times[-1] == 1.0


def layout(comm, index):
    """Return a distributed pendulum, its unknowns on any ranks, PETSc style, with its start."""
    state = PETSc.Vec().createMPI(5, comm=comm)
    start, end = state.getOwnershipRange()

    def gathered(vec):
        return np.concatenate(vec.comm.tompi4py().allgather(vec.getArray(readonly=True)))

    def rhs(t, u, p, out):
        out.setArray(pendulum(index, gathered(u))[start:end])

    def jacobian(t, u, p, matrix):
        steps = gathered(u) + 1e-30j * np.eye(5)
        columns = np.array([pendulum(index, row).imag / 1e-30 for row in steps])
        for row in range(start, end):
            matrix.setValues([row], range(5), columns[:, row])
        matrix.assemble()

    mass = PETSc.Mat().createAIJ((state.getSizes(), state.getSizes()), comm=comm)
    mass.setUp()
    for row in range(start, end):
        mass.setValue(row, row, MASS[row, row])
    mass.assemble()
    u0 = state.duplicate()
    u0.setArray(START[start:end])
    return ODE(rhs, state=state, jacobian=jacobian, mass=mass), u0


@pytest.mark.mpi
@pytest.mark.parametrize("index", [1, 2, 3])
def test_every_rank_finds_the_same_index(comm, index):
    problem, u0 = layout(comm, index)
    rows = (4,) if index > 1 else ()
    assert structural_index(problem, 0.0, u0, np.zeros(0)) == (index, rows)
    if index > 1:
        with pytest.raises(UnsupportedError, match=rf'"midpoint" for a DAE of index {index}'):
            solve(problem, u0, None, Stepping((0.0, 1.0), "midpoint", dt=0.1))
