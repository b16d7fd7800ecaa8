"""The same answers on 1, 2 and 3 ranks: runs, gradients and tangents of a distributed problem.

Each test computes the answer on all ranks together and on each rank alone.
"""

import numpy as np
import pytest
from distributed import N, make, make_cost
from petsc4py import PETSc

import daeosens as ds
from daeosens.derivatives import derivative_error, evaluate
from daeosens.derivatives.hessian import hessian_sweep
from daeosens.functional import FieldParameter, InitialState
from daeosens.methods import find_method
from daeosens.petsc import gather, read
from daeosens.problem import INDEPENDENT, Products

pytestmark = pytest.mark.mpi

SPAN, DT = (0.0, 0.2), 0.03  # the last step is cut
BY_TSADJOINT = ("rk4", "rk5dp", "cn", "beuler", "midpoint")
METHODS = (*BY_TSADJOINT, "esdirk4")
IMPLICIT = ("cn", "beuler", "midpoint")
CASES = [
    *(
        (style, field, "rhs", method)
        for style in ("dmda", "products")
        for field in (False, True)
        for method in METHODS
    ),
    *((style, False, "rhs", method) for style in ("vec", "dense") for method in ("rk4", "cn")),
    *(("dmda", False, form, method) for form in ("M", "M(p)", "F") for method in IMPLICIT),
    ("dmda", False, "M", "esdirk4"),
    ("vec", False, "M(p)", "cn"),
]


def each_case(test):
    names = [
        f"{style} {'field' if field else 'numbers'} {form} {method}"
        for style, field, form, method in CASES
    ]
    return pytest.mark.parametrize(("style", "field", "form", "method"), CASES, ids=names)(test)


def make_stepping(method, *, adaptive=False):
    if adaptive:
        return ds.Stepping(SPAN, method, dt=0.01, rtol=1e-3, atol=1e-3)
    return ds.Stepping(SPAN, method, dt=DT)


def difference(ours, reference):
    return abs(ours - reference).max() / abs(reference).max()


class Answers:
    """Everything about one case on one communicator, gathered to arrays."""

    def __init__(self, comm, style, field, form, method, *, adaptive=False, engine="vectors"):
        self.case = make(comm, style, field=field, form=form)
        self.cost = make_cost(self.case)
        self.run = ds.solve(
            self.case.problem,
            self.case.u0,
            self.case.p,
            make_stepping(method, adaptive=adaptive),
            self.cost.times,
        )
        self.states = np.array([gather(state) for state in self.run.states])
        gradient = ds.adjoint(self.run, self.cost, engine)
        self.value, (self.u0, self.p) = gradient.value, gradient.gather()


@each_case
def test_answers_do_not_depend_on_the_number_of_ranks(style, field, form, method):
    together = Answers(PETSc.COMM_WORLD, style, field, form, method)
    alone = Answers(PETSc.COMM_SELF, style, field, form, method)
    np.testing.assert_array_equal(together.run.times, alone.run.times)
    assert difference(together.states, alone.states) < 1e-10
    assert together.value == pytest.approx(alone.value, rel=1e-10)
    assert together.value == evaluate(together.run, together.cost)
    assert difference(together.u0, alone.u0) < 1e-10
    assert difference(together.p, alone.p) < 1e-10


@each_case
def test_tangent_and_adjoint_are_dual(style, field, form, method):
    """On all ranks, and equal to the tangent of one rank."""
    together = Answers(PETSc.COMM_WORLD, style, field, form, method)
    du, dp = together.case.direction()
    forward = ds.tangent(together.run, du, dp).derivative(together.cost)
    dp_values = gather(dp) if field else dp
    parts = np.concatenate([together.u0 * gather(du), together.p * dp_values])
    assert abs(forward - parts.sum()) < 1e-12 * abs(parts).sum()
    alone = Answers(PETSc.COMM_SELF, style, field, form, method)
    own = ds.tangent(alone.run, *alone.case.direction()).derivative(alone.cost)
    assert forward == pytest.approx(own, rel=1e-10)


def second_direction(case):
    """Another direction in u0 and in p, the same for every number of ranks."""
    du = case.ring.vec(lambda x: np.sin(2 + 25 * x))
    if case.problem.field_parameter:
        return du, case.ring.vec(lambda x: np.cos(2 + 20 * x))
    return du, np.array([-0.02, 0.3])


@each_case
def test_hessians_are_symmetric_and_do_not_depend_on_the_number_of_ranks(
    style, field, form, method
):
    answers = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        case = make(comm, style, field=field, form=form)
        cost = make_cost(case)
        run = ds.solve(case.problem, case.u0, case.p, make_stepping(method), cost.times)
        directions = [case.direction(), second_direction(case)]
        answers.append([item.gather() for item in hessian_sweep(run, cost, directions)])
        flat = [np.concatenate([gather(du), gather(dp) if field else dp]) for du, dp in directions]
        rows = [np.concatenate(answer) for answer in answers[-1]]
        parts = np.concatenate([rows[0] * flat[1], -rows[1] * flat[0]])
        assert abs(parts.sum()) < 1e-12 * abs(parts).sum()
    for together, alone in zip(*answers, strict=True):
        assert difference(together[0], alone[0]) < 1e-10
        assert difference(together[1], alone[1]) < 1e-10


@pytest.mark.parametrize(
    ("form", "field", "method"),
    [
        ("rhs", False, "rk4"),
        ("rhs", True, "rk5dp"),
        ("rhs", False, "cn"),
        ("M(p)", False, "cn"),
        ("F", False, "beuler"),
    ],
)
def test_hessian_is_the_derivative_of_the_gradient(form, field, method):
    """Richardson differences of gradients of the whole program, on all ranks."""
    case = make(PETSc.COMM_WORLD, field=field, form=form)
    cost, stepping = make_cost(case), make_stepping(method)
    du, dp = case.direction()

    def gradient(eps):
        u0 = case.u0.copy()
        u0.axpy(eps, du)
        p = case.p.copy()
        p = p + eps * dp
        result = ds.adjoint(ds.solve(case.problem, u0, p, stepping, cost.times), cost)
        return np.concatenate(result.gather())

    def central(eps):
        return (gradient(eps) - gradient(-eps)) / (2 * eps)

    expected = (64 * central(1e-3) - 20 * central(2e-3) + central(4e-3)) / 45
    run = ds.solve(case.problem, case.u0, case.p, stepping, cost.times)
    product = ds.hessian_product(run, cost, du, dp)
    assert difference(np.concatenate(product.gather()), expected) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("field", [False, True])
def test_reduced_hessians_and_residuals_on_all_ranks(field):
    answers = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        case = make(comm, field=field)
        here = {}
        for name, control in controls(case).items():
            functional = ds.Reduced(case.problem, make_cost(case), make_stepping("cn"), control)
            functional.check_second_order()
            x = functional.start()
            dx = x.duplicate()
            start, end = dx.getOwnershipRange()
            dx.setArray(np.cos(np.arange(start, end)))
            product = gather(functional.hessian_product(x, dx))
            squares = ds.Reduced(
                case.problem, make_cost(case, squares=True), make_stepping("cn"), control
            )
            r, jacobian = squares.residual(x), squares.residual_jacobian(x)
            assert 0.5 * r.dot(r) == pytest.approx(squares.value(x), rel=1e-12)
            gradient, step = x.duplicate(), r.duplicate()
            jacobian.multTranspose(r, gradient)
            assert difference(gather(gradient), gather(squares.gradient(x))) < 1e-10
            jacobian.mult(dx, step)
            jacobian.multTranspose(step, gradient)
            gauss_newton = gather(squares.gauss_newton_product(x, dx))
            assert difference(gather(gradient), gauss_newton) < 1e-10
            squares.sweep_for = lambda _rows, _columns: "adjoint"
            other = squares.residual_jacobian(x)
            other.axpy(-1.0, jacobian)
            assert other.norm() < 1e-10 * jacobian.norm()
            here[name] = (product, gauss_newton)
        answers.append(here)
    for name, both in answers[0].items():
        for together, alone in zip(both, answers[1][name], strict=True):
            assert difference(together, alone) < 1e-10, name


@pytest.mark.parametrize(("field", "method"), [(False, "rk4"), (True, "rk5dp"), (False, "cn")])
@pytest.mark.parametrize("style", ["dmda", "products"])
def test_gradient_is_the_derivative_of_the_cost(style, field, method):
    """Richardson differences of the whole program, on all ranks."""
    case = make(PETSc.COMM_WORLD, style, field=field)
    cost, stepping = make_cost(case), make_stepping(method)
    du, dp = case.direction()

    def value(eps):
        u0 = case.u0.copy()
        u0.axpy(eps, du)
        p = case.p.copy()
        p = p + eps * dp
        return evaluate(ds.solve(case.problem, u0, p, stepping, cost.times), cost)

    def central(eps):
        return (value(eps) - value(-eps)) / (2 * eps)

    expected = (64 * central(1e-3) - 20 * central(2e-3) + central(4e-3)) / 45
    run = ds.solve(case.problem, case.u0, case.p, stepping, cost.times)
    assert ds.tangent(run, du, dp).derivative(cost) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("method", BY_TSADJOINT)
@pytest.mark.parametrize("field", [False, True])
@pytest.mark.parametrize("style", ["dmda", "products"])
def test_engines_agree(style, field, method):
    steps = Answers(PETSc.COMM_WORLD, style, field, "rhs", method)
    petsc = Answers(PETSc.COMM_WORLD, style, field, "rhs", method, engine="tsadjoint")
    assert petsc.value == steps.value
    # both solve with GMRES to 1e-12 where there is no matrix to factorise
    bound = 1e-11 if style == "products" else 1e-12
    assert difference(petsc.u0, steps.u0) < bound
    assert difference(petsc.p, steps.p) < bound


@pytest.mark.parametrize("kept", ["memory", "disk"])
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_recorded_runs_on_all_ranks(method, kept):
    case = make(PETSc.COMM_WORLD)
    cost = make_cost(case)
    observations = cost.terms[1][1] if len(cost.terms) > 2 else cost
    stepping = make_stepping(method)
    run = ds.solve(case.problem, case.u0, case.p, stepping, cost.times, petsc_trajectory=kept)
    for _ in range(2):
        recorded = ds.adjoint(run, observations, "tsadjoint")
        steps = ds.adjoint(run, observations)
        assert difference(recorded.gather()[0], steps.gather()[0]) < 1e-10
        assert difference(recorded.p, steps.p) < 1e-10


@pytest.mark.parametrize("method", ["rk5dp", "cn", "beuler", "midpoint"])
def test_adaptive_steps_do_not_depend_on_the_number_of_ranks(method):
    arguments = ("dmda", False, "rhs", method)
    together = Answers(PETSc.COMM_WORLD, *arguments, adaptive=True)
    alone = Answers(PETSc.COMM_SELF, *arguments, adaptive=True)
    np.testing.assert_allclose(together.run.times, alone.run.times, rtol=1e-10)
    assert difference(together.p, alone.p) < 1e-8  # the steps themselves differ by rounding
    petsc = Answers(PETSc.COMM_WORLD, *arguments, adaptive=True, engine="tsadjoint")
    assert difference(petsc.p, together.p) < 1e-10


@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_sensitivities_on_all_ranks_are_those_of_one(method):
    """Rows belong to ranks, columns are complete."""

    def matrices(comm):
        case = make(comm)
        run = ds.solve(case.problem, case.u0, case.p, make_stepping(method), [0.1])
        result = ds.sensitivities(run, 0.1)
        return [
            np.concatenate(run.problem.comm.tompi4py().allgather(rows))
            for rows in (result.u0, result.p)
        ]

    for together, alone in zip(matrices(PETSc.COMM_WORLD), matrices(PETSc.COMM_SELF), strict=True):
        assert together.shape[0] == N
        assert difference(together, alone) < 1e-10


def controls(case):
    """What an optimiser may move, for a case with numbers and for one with a field."""
    if case.problem.field_parameter:
        return {"field": FieldParameter(case.p, case.u0, lower=0.0)}

    def initial(p, out):
        case.u0.copy(out)
        out.scale(p[1] ** 2)

    def initial_tangent(p, dp, out):
        case.u0.copy(out)
        out.scale(2 * p[1] * dp[1])

    initial_p = Products(initial_tangent, lambda p, w: np.array([0.0, 2 * p[1] * case.u0.dot(w)]))

    def initial_hessian(p, w, dp):
        return np.array([0.0, 2 * dp[1] * case.u0.dot(w)])

    values = {"a": ds.Parameter(case.p[0], scale="log"), "r": ds.Parameter(case.p[1], upper=3.0)}
    return {
        "numbers": ds.Parameters(values, case.u0),
        "u0(p)": ds.Parameters(values, initial, initial_p, initial_hessian),
        "one of two": ds.Parameters({**values, "a": float(case.p[0])}, case.u0),
        "initial state": InitialState(case.u0, case.p, upper=2.0),
    }


@pytest.mark.parametrize("engine", ["vectors", "tsadjoint"])
@pytest.mark.parametrize("field", [False, True])
def test_reduced_functionals_do_not_depend_on_the_number_of_ranks(field, engine):
    answers = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        case = make(comm, field=field)
        here = {}
        for name, control in controls(case).items():
            functional = ds.Reduced(
                case.problem, make_cost(case), make_stepping("cn"), control, engine=engine
            )
            x = functional.start()
            value, gradient = functional.value_and_gradient(x)
            assert functional.comm == x.comm
            here[name] = (value, gather(gradient), [gather(v) for v in functional.bounds() or ()])
        answers.append(here)
    for name, (value, gradient, bounds) in answers[0].items():
        reference = answers[1][name]
        assert value == pytest.approx(reference[0], rel=1e-10), name
        assert difference(gradient, reference[1]) < 1e-10, name
        np.testing.assert_array_equal(bounds, reference[2])


@pytest.mark.parametrize("field", [False, True])
def test_reduced_gradient_is_dual_to_its_tangent(field):
    case = make(PETSc.COMM_WORLD, field=field)
    for name, control in controls(case).items():
        functional = ds.Reduced(case.problem, make_cost(case), make_stepping("rk4"), control)
        x = functional.start()
        dx = x.duplicate()
        start, end = dx.getOwnershipRange()
        dx.setArray(np.cos(np.arange(start, end)))
        gradient = functional.gradient(x)
        assert functional.derivative(x, dx) == pytest.approx(gradient.dot(dx), rel=1e-9), name


# ---- input ---------------------------------------------------------------------------------------


def test_wrong_sizes_are_named_on_every_rank():
    case = make(PETSc.COMM_WORLD)
    stepping = make_stepping("rk4")
    longer = PETSc.Vec().createMPI(N + 1, comm=PETSc.COMM_WORLD)
    with pytest.raises(ds.InputError, match=rf"u0 has \(local, global\) sizes \(.*{N + 1}\)"):
        ds.solve(case.problem, longer, case.p, stepping)
    with pytest.raises(ds.InputError, match=r"p has shape \(3,\)\n  expected: shape \(2,\)"):
        ds.solve(case.problem, case.u0, [1.0, 2.0, 3.0], stepping)


def test_value_that_is_not_finite_on_one_rank_is_found_on_every_rank():
    case = make(PETSc.COMM_WORLD, field=True)
    broken = case.u0.copy()
    broken.setValue(N - 1, np.nan)
    broken.assemble()
    with pytest.raises(ds.InputError, match="u0 contains values that are not finite"):
        ds.solve(case.problem, broken, case.p, make_stepping("rk4"))
    with pytest.raises(ds.InputError, match="p contains values that are not finite"):
        ds.solve(case.problem, case.u0, broken, make_stepping("rk4"))
    with pytest.raises(ds.InputError, match=r"p is ndarray\n  expected: a Vec"):
        ds.solve(case.problem, case.u0, np.ones(N), make_stepping("rk4"))


@pytest.mark.mpi(min_size=2)
def test_array_as_state_is_refused_on_several_ranks():
    case = make(PETSc.COMM_WORLD)
    with pytest.raises(ds.InputError, match=r"u0 is ndarray\n  expected: a distributed Vec"):
        ds.solve(case.problem, np.ones(N), case.p, make_stepping("rk4"))


@pytest.mark.slow
def test_many_runs_do_not_pile_up_parallel_objects():
    """The destruction of petsc4py's parallel objects is delayed; solve collects them."""
    case = make(PETSc.COMM_WORLD)
    cost = make_cost(case)
    for _ in range(60):  # communicators hold some thousands of attributes and contexts
        run = ds.solve(case.problem, case.u0, case.p, make_stepping("cn"), cost.times)
        ds.adjoint(run, cost)
        run.destroy()


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_value_that_is_not_finite_names_callback_time_and_rank(method):
    comm = PETSc.COMM_WORLD
    last = comm.size - 1
    template = PETSc.Vec().createMPI((2, None), comm=comm)

    def rhs(t, u, p, out):
        u.copy(out)
        if t > 0.3 and comm.rank == last:
            out.getArray()[1] = np.nan

    problem = ds.ODE(
        rhs, state=template, jacobian=Products(lambda t, u, p, v, out: v.copy(out), None)
    )
    message = rf"callback 'rhs' gave nan in local entry 1 at t = 0\.\d+ \(rank {last}\)"
    with pytest.raises(ds.SolveError, match=message):
        ds.solve(problem, template, None, ds.Stepping((0.0, 1.0), method, dt=0.1))


@pytest.mark.mpi
@pytest.mark.parametrize("sweep", [ds.adjoint, ds.tangent])
@pytest.mark.parametrize("crossing", [False, True])
def test_a_jacobian_that_is_not_finite_is_named(crossing, sweep):
    """Beside an event too, which is not grazed where its rate is not a number."""
    comm = PETSc.COMM_WORLD
    last = comm.size - 1
    template = PETSc.Vec().createMPI((2, None), comm=comm)
    template.set(1.0)

    def product(t, u, p, v, out):
        v.copy(out)
        if 0.3 < t < 0.6 and comm.rank == last:
            out.getArray()[1] = np.nan

    crossed = ds.Event(
        lambda t, u, p: u.sum() - 1.6 * u.getSize(),  # at t = 0.47
        when_u=lambda t, u, p, out: out.set(1.0),
        when_p="independent",
        terminal=True,
        name="crossed",
    )
    growth = ds.ODE(
        lambda t, u, p, out: u.copy(out),
        state=template,
        jacobian=Products(product, product),
        events=[crossed] if crossing else [],
    )
    run = ds.solve(growth, template, None, ds.Stepping((0.0, 1.0), "rk4", dt=0.25))
    final = ds.Terminal(lambda t, u, p: u.sum(), lambda t, u, p, out: out.set(1.0), "independent")
    what = r'"crossed" has the rate nan at t = 0\.47.*: ' if crossing else ""
    t = r"0\.47\d*" if crossing else r"0\.5"
    message = rf"{what}callback 'jacobian' gave nan in local entry 1 at t = {t} \(rank {last}\)"
    with pytest.raises(ds.SolveError, match=message):
        sweep(run, final if sweep is ds.adjoint else template)


@pytest.mark.mpi(min_size=2)
def test_ranks_that_disagree_are_told_so():
    rank = PETSc.COMM_WORLD.rank
    template = PETSc.Vec().createMPI((2, None), comm=PETSc.COMM_WORLD)
    problem = ds.ODE(lambda t, u, p, out: u.copy(out), state=template, parameters=["k"])
    with pytest.raises(ds.InputError, match=r"p is \[1\.0\] on rank 0 and \[2\.0\] on rank 1"):
        ds.solve(problem, template, [1.0 + rank], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    with pytest.raises(ds.InputError, match=r"stepping\.dt is 0\.1 on rank 0 and 0\.05 on rank 1"):
        ds.solve(problem, template, [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1 / (1 + rank)))
    jumping = ds.ODE(
        lambda t, u, p, out: u.copy(out), state=template, breakpoints=[0.5 if rank else 0.25]
    )
    with pytest.raises(ds.InputError, match=r"breakpoints is \[0\.25\] on rank 0 and \[0\.5\] on"):
        ds.solve(jumping, template, None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))


@pytest.mark.parametrize("method", METHODS)
def test_breakpoints_of_distributed_equations(method):
    """Growth with a rate that jumps: whole number of steps on each side, no order lost."""
    template = PETSc.Vec().createMPI((2, None), comm=PETSc.COMM_WORLD)
    template.set(1.0)

    def rhs(t, u, p, out):
        u.copy(out)
        out.scale(p[0] if t < 0.25 else p[1])

    def apply(t, u, p, v, out):
        rhs(t, v, p, out)

    def jacobian_p(t, u, p, out):
        column = u.duplicate()
        u.copy(column)
        out.zeroEntries()
        out.getDenseArray()[:, int(t >= 0.25)] = column.getArray()
        out.assemble()

    problem = ds.ODE(
        rhs,
        state=template,
        parameters=["before", "after"],
        jacobian=Products(apply, apply),
        jacobian_p=jacobian_p,
        breakpoints=[0.25],
    )
    p = np.array([1.0, -2.0])
    run = ds.solve(problem, template, p, ds.Stepping((0.0, 1.0), method, dt=0.05))

    def growth(z):
        """Return the factor of one step for the equation u' = z u / dt."""
        series = {"rk4": 1 + z + z**2 / 2 + z**3 / 6 + z**4 / 24, "beuler": 1 / (1 - z)}
        series["rk5dp"] = series["rk4"] + z**5 / 120 + z**6 / 600  # Dormand and Prince
        a = find_method("esdirk4").tableau.a
        rates = np.linalg.solve(np.eye(len(a)) - z * a, np.ones(len(a)))
        series["esdirk4"] = 1 + z * a[-1] @ rates
        return series.get(method, (1 + z / 2) / (1 - z / 2))

    expected = growth(0.05 * p[0]) ** 5 * growth(-0.1) ** 15
    np.testing.assert_allclose(gather(run.final), expected, rtol=1e-11)
    total = ds.Terminal(lambda t, u, p: u.sum(), lambda t, u, p, out: out.set(1.0), INDEPENDENT)
    step = 1e-30j
    slope = (growth(0.05 * (p[0] + step)) ** 5).imag / 1e-30 * growth(-0.1) ** 15
    gradient = ds.adjoint(run, total)
    assert gradient.p[0] == pytest.approx(template.size * slope, rel=1e-10)
    change = ds.tangent(run, None, [1.0, 0.0]).final
    np.testing.assert_allclose(gather(change), slope, rtol=1e-10)


@pytest.mark.mpi
@pytest.mark.parametrize("field", [False, True])
def test_one_rank_alone_may_read_gradients_and_products(comm, field):
    """Own rows in u0, all of a few parameters, own rows of a field; ``gather`` has all of both."""
    case = make(comm, field=field)
    cost = make_cost(case)
    run = ds.solve(case.problem, case.u0, case.p, make_stepping("rk4"), cost.times)
    gradient, product = ds.adjoint(run, cost), ds.hessian_product(run, cost, *case.direction())
    error = derivative_error(run, cost)
    ranks = case.problem.comm.tompi4py()
    if ranks.rank == 0:  # others do not take part: this would never end if it were collective
        for value in (gradient, product, product.gradient, error):
            assert value.u0.shape == read(case.u0).shape
            assert value.p.shape == (read(case.p).shape if field else (2,))
    ranks.Barrier()
    for value in (gradient, product, product.gradient):
        u0, p = value.gather()
        np.testing.assert_array_equal(np.concatenate(ranks.allgather(value.u0)), u0)
        own = np.concatenate(ranks.allgather(value.p)) if field else value.p
        np.testing.assert_array_equal(own, p)
    assert product.gather()[0].shape == (N,)
