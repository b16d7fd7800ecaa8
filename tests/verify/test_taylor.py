"""Taylor and duality tests, and the check of callbacks, which has to name exactly the wrong one."""

from dataclasses import dataclass

import numpy as np
import pytest
from closed_forms import cubic
from forms import (
    ANALYTIC_COST,
    DATA,
    FORMS,
    NAMES,
    OBSERVATION_TIMES,
    P0,
    SIGMA,
    U0,
    density,
    density_p,
    density_t,
    density_u,
    initial_state,
    initial_state_p,
    make_stepping,
    mass,
    mass_p,
    observe,
    observe_p,
    observe_u,
    rhs,
    rhs_p,
    rhs_t,
    rhs_u,
    terminal,
    terminal_p,
    terminal_u,
)
from petsc4py import PETSc

import daeosens as ds
from daeosens.functional import InitialState
from daeosens.petsc import read, write
from daeosens.problem import AUTONOMOUS, COLORING, INDEPENDENT, Products
from daeosens.verify.taylor import check, duality, taylor

FOLLOWING = ds.Parameters(
    {name: ds.Parameter(value, scale="log") for name, value in zip(NAMES, P0, strict=True)},
    initial_state=initial_state,
    initial_state_p=initial_state_p,
)
T = 0.3

# ---- Taylor --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
def test_right_gradient_has_order_two(name):
    functional = ds.Reduced(FORMS[name].analytic, ANALYTIC_COST, make_stepping("cn"), FOLLOWING)
    orders = taylor(functional)
    assert min(orders) > 1.99
    assert orders.passed
    np.testing.assert_allclose(orders.orders[0], 1.0, atol=0.02)


def test_noise_is_estimated(rng):
    orders = taylor(cubic(noise=lambda: 1e-7 * rng.normal()))
    assert 2e-8 < orders.noise < 4e-7
    assert np.isnan(orders.order) or orders.order > 1.9


def test_own_point_direction_and_steps():
    functional = cubic()
    x, direction = functional.start(), functional.start()
    write(x, [1.0, 2.0, 3.0])
    write(direction, [0.0, 0.0, 1.0])
    orders = taylor(functional, x, direction, [0.1, 0.05])
    assert orders.value == 38.0
    assert orders.derivative == 27.0
    np.testing.assert_allclose(orders.remainders[1], [0.091, 0.022625])  # 9 eps^2 + eps^3
    assert read(x).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("epsilons", [[0.1], [0.1, 0.2], [0.1, 0.0], [[0.1, 0.05]]])
def test_steps_have_to_decrease(epsilons):
    with pytest.raises(ds.InputError, match=r"epsilons = .*0\.1.*\n  expected: two or more"):
        taylor(cubic(), epsilons=epsilons)


def test_seed_chooses_the_direction():
    functional = cubic()
    assert taylor(functional).derivative == taylor(functional).derivative
    assert taylor(functional).derivative != taylor(functional, seed=1).derivative


def test_failing_run_is_not_hidden():
    functional = cubic(domain=lambda x: x[0] == 0.7)
    with pytest.raises(ds.SolveError, match=r"no solution at 0\.\d"):
        taylor(functional)


# ---- duality -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method"),
    [("rhs", "rk4"), ("M singular", "cn"), ("M(p)", "beuler"), ("F", "midpoint")],
)
def test_adjoint_and_tangent_are_dual(name, method):
    run = ds.solve(FORMS[name].analytic, U0, P0, make_stepping(method), OBSERVATION_TIMES)
    assert duality(run, ANALYTIC_COST) < 1e-12
    assert duality(run, ANALYTIC_COST, seed=3) < 1e-12


def test_duality_sees_a_wrong_transpose():
    wrong = Products(lambda t, u, p, v: rhs_u(t, u, p) @ v, lambda t, u, p, w: rhs_u(t, u, p) @ w)
    problem = ds.ODE(rhs, 3, NAMES, jacobian=wrong)
    run = ds.solve(problem, U0, P0, make_stepping("rk4"))
    assert duality(run, ds.Terminal(terminal)) > 1e-4


def test_duality_without_parameters():
    problem = ds.ODE(lambda t, u, p: -(u**2), 2)
    run = ds.solve(problem, [1.0, 2.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    assert duality(run, ds.Terminal(lambda t, u, p: u[0] * u[1])) < 1e-13
    assert duality(run, ds.Terminal(lambda t, u, p: 1.0 + 0 * u[0])) == 0.0


# ---- check: what is right ------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("value", ["analytic", "automatic"])
def test_right_callbacks_pass(name, value):
    verdicts = check(
        getattr(FORMS[name], value), U0, P0, T, objective=ANALYTIC_COST, control=FOLLOWING
    )
    assert verdicts.passed
    assert verdicts.passed
    assert verdicts.wrong == verdicts.unclear == ()
    assert {row.verdict for row in verdicts.rows} == {"right"}
    assert max(row.error for row in verdicts.rows) < 1e-11


def test_sources_of_the_derivatives_are_named():
    def sources(problem):
        return [row.source for row in check(problem, U0, P0, T).rows]

    assert sources(FORMS["M(p)"].analytic) == ["callback"] * 8
    assert sources(FORMS["M(p)"].automatic) == ["automatic"] * 4
    assert sources(FORMS["F"].automatic) == ["automatic"] * 4
    products = Products(
        lambda t, u, p, v: rhs_u(t, u, p) @ v, lambda t, u, p, w: rhs_u(t, u, p).T @ w
    )
    mixed = ds.ODE(rhs, 3, NAMES, jacobian=products, rhs_t=AUTONOMOUS)
    assert sources(mixed) == ["products", "products", "automatic", "autonomous"]


def test_missing_callbacks_of_costs_are_named_as_such():
    cost = ds.Terminal(terminal) + ds.Terminal(terminal, terminal_u, INDEPENDENT)
    verdicts = check(FORMS["rhs"].analytic, U0, P0, T, objective=cost)
    sources = {row.name: row.source for row in verdicts.rows}
    assert sources["terminal gradient_u"] == "automatic"
    assert sources["terminal gradient_u 2"] == "callback"
    assert sources["terminal gradient_p 2"] == "independent"
    assert verdicts.wrong == ("terminal gradient_p 2",)  # it does depend on p


# ---- check: mutations of NumPy-style callbacks ---------------------------------------------------


def entry(callback):
    """Add 1e-4 of the largest entry to one of the others."""

    def wrong(*point):
        values = np.array(callback(*point), dtype=float)
        flat = values.reshape(-1)
        flat[flat.size // 2] += 1e-4 * abs(values).max()
        return values

    return wrong


def sign(callback):
    return lambda *point: -callback(*point)


def transposed(callback):
    return lambda *point: callback(*point).T


RHS_FORM = {
    "rhs": rhs,
    "jacobian": rhs_u,
    "jacobian_p": rhs_p,
    "rhs_t": rhs_t,
    "mass": mass,
    "mass_p": mass_p,
}
RESIDUAL_FORM = {
    "residual": FORMS["F"].residual,
    "jacobian": FORMS["F"].residual_u,
    "jacobian_udot": FORMS["F"].residual_udot,
    "jacobian_p": FORMS["F"].residual_p,
    "residual_t": FORMS["F"].residual_t,
}
COST = {
    "terminal gradient_u": terminal_u,
    "terminal gradient_p": terminal_p,
    "running gradient_u": density_u,
    "running gradient_p": density_p,
    "running density_t": density_t,
    "observe_u": observe_u,
    "observe_p": observe_p,
}
SQUARE = ("jacobian", "jacobian_udot")
MUTATIONS = [
    (table, name, mutation)
    for table, names in (
        ("rhs", ["jacobian", "jacobian_p", "rhs_t", "mass_p"]),
        ("residual", ["jacobian", "jacobian_udot", "jacobian_p", "residual_t"]),
        ("cost", list(COST)),
        ("control", ["initial_state_p"]),
    )
    for name in names
    for mutation in (entry, sign, transposed)
    if mutation is not transposed or name in SQUARE
]


@pytest.mark.parametrize(("table", "name", "mutation"), MUTATIONS)
def test_exactly_the_mutated_callback_is_named(table, name, mutation):
    def changed(callbacks):
        return callbacks | ({name: mutation(callbacks[name])} if name in callbacks else {})

    problem = {
        "rhs": lambda: ds.ODE(size=3, parameters=NAMES, **changed(RHS_FORM)),
        "residual": lambda: ds.DAE(size=3, parameters=NAMES, **changed(RESIDUAL_FORM)),
    }.get(table, lambda: FORMS["rhs"].analytic)()
    c = changed(COST) if table == "cost" else COST
    objective = (
        ds.Terminal(terminal, c["terminal gradient_u"], c["terminal gradient_p"])
        + 0.5
        * ds.Running(
            density, c["running gradient_u"], c["running gradient_p"], c["running density_t"]
        )
        + ds.LeastSquares(OBSERVATION_TIMES, DATA, SIGMA, observe, c["observe_u"], c["observe_p"])
        + ds.Prior([0.1], 0.3, names=["c"], scale="log")
    )
    by_p = mutation(initial_state_p) if table == "control" else initial_state_p
    control = ds.Parameters(FOLLOWING.values, initial_state, by_p)
    verdicts = check(problem, U0, P0, T, objective=objective, control=control)
    assert verdicts.wrong == (name,)
    assert not verdicts.passed
    assert "WRONG" in str(verdicts)
    assert verdicts[name].error > 5e-5
    assert "instead of" in verdicts[name].detail


def test_wrong_entry_is_named():
    def wrong(t, u, p):
        values = rhs_p(t, u, p)
        values[2, 1] = 0.5
        return values

    verdicts = check(ds.ODE(rhs, 3, NAMES, jacobian_p=wrong), U0, P0, T)
    expected = P0[0] * U0[0] * np.exp(-T)
    assert verdicts["jacobian_p"].detail == f"entry [2, 1] is 0.5 instead of {expected:.6g}"


@pytest.mark.parametrize("kind", ["apply", "apply_transpose"])
@pytest.mark.parametrize("name", ["jacobian", "jacobian_p"])
@pytest.mark.parametrize("mutation", [entry, sign, "not transposed"])
def test_exactly_the_mutated_product_is_named(kind, name, mutation):
    matrix = {"jacobian": rhs_u, "jacobian_p": rhs_p}[name]
    products = {
        "apply": lambda t, u, p, v: matrix(t, u, p) @ v,
        "apply_transpose": lambda t, u, p, w: matrix(t, u, p).T @ w,
    }
    other = products["apply_transpose" if kind == "apply" else "apply"]
    products[kind] = other if mutation == "not transposed" else mutation(products[kind])
    verdicts = check(ds.ODE(rhs, 3, NAMES, **{name: Products(**products)}), U0, P0, T)
    assert verdicts.wrong == (f"{name}.{kind}",)


@pytest.mark.parametrize("mutation", [entry, sign])
def test_mutation_of_a_large_jacobian_is_found_along_random_directions(mutation):
    n = 40
    matrix = (
        np.diag(np.full(n, -2.0)) + np.diag(np.ones(n - 1), 1) + 3 * np.diag(np.ones(n - 1), -1)
    )
    scale = np.logspace(-3, 3, n)  # rows of very different sizes

    def f(t, u, p):
        return scale * (matrix @ u) + p[0] * u**3

    def f_u(t, u, p):
        return scale[:, None] * matrix + np.diag(3 * p[0] * u**2)

    u = 1 + 0.5 * np.sin(np.arange(n))
    right = {
        "apply": lambda t, u, p, v: f_u(t, u, p) @ v,
        "apply_transpose": lambda t, u, p, w: f_u(t, u, p).T @ w,
    }
    assert check(ds.ODE(f, n, 1, jacobian=f_u), u, [0.3]).passed
    assert check(ds.ODE(f, n, 1, jacobian=Products(**right)), u, [0.3]).passed
    verdicts = check(ds.ODE(f, n, 1, jacobian=mutation(f_u)), u, [0.3])
    assert verdicts.wrong == ("jacobian",)
    assert "random direction" in verdicts["jacobian"].detail
    for kind, product in right.items():
        wrong = right | {kind: mutation(product)}
        verdicts = check(ds.ODE(f, n, 1, jacobian=Products(**wrong)), u, [0.3])
        assert verdicts.wrong == (f"jacobian.{kind}",)
    energy = ds.Terminal(lambda t, u, p: (u**4).sum(), mutation(lambda t, u, p: 4 * u**3))
    verdicts = check(ds.ODE(f, n, 1), u, [0.3], objective=energy)
    assert verdicts.wrong == ("terminal gradient_u",)
    assert "random direction" in verdicts["terminal gradient_u"].detail


def test_false_claims_of_independence_are_named():
    verdicts = check(
        ds.ODE(rhs, 3, NAMES, rhs_t=AUTONOMOUS),
        U0,
        P0,
        T,
        objective=ds.Running(density, INDEPENDENT, density_p, AUTONOMOUS),
    )
    assert verdicts.wrong == ("rhs_t", "running gradient_u", "running density_t")


# ---- check: what cannot be judged, what fails ----------------------------------------------------


def test_callback_of_the_wrong_shape_is_named():
    verdicts = check(ds.ODE(rhs, 3, NAMES, jacobian=lambda t, u, p: np.zeros((2, 3))), U0, P0, T)
    assert verdicts.wrong == ("jacobian",)
    assert "returned shape (2, 3)" in verdicts["jacobian"].detail


def test_product_of_the_wrong_shape_is_named():
    products = Products(lambda t, u, p, v: v[:2], lambda t, u, p, w: rhs_u(t, u, p).T @ w)
    verdicts = check(ds.ODE(rhs, 3, NAMES, jacobian=products), U0, P0, T)
    assert verdicts.wrong == ("jacobian.apply",)
    assert "returned shape (2,)" in verdicts["jacobian.apply"].detail


def test_exception_of_a_product_is_not_taken_for_a_verdict():
    def broken(t, u, p, v):
        raise ZeroDivisionError("a bug")

    problem = ds.ODE(rhs, 3, NAMES, jacobian=Products(broken, broken))
    with pytest.raises(PETSc.Error) as raised:
        check(problem, U0, P0, T)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_callback_that_is_not_finite_is_named():
    verdicts = check(
        ds.ODE(rhs, 3, NAMES, jacobian_p=lambda t, u, p: np.full((3, 3), np.nan)), U0, P0, T
    )
    assert verdicts.wrong == ("jacobian_p",)


def test_rhs_that_drops_derivatives_is_named():
    verdicts = check(
        ds.ODE(lambda t, u, p: [float(u[0]) * p[0]], 1, 1, rhs_t=AUTONOMOUS), [1.0], [2.0]
    )
    assert verdicts.wrong == ("jacobian",)
    assert "cannot be differentiated" in verdicts["jacobian"].detail


def test_rhs_of_the_wrong_shape_is_an_error():
    with pytest.raises(ds.InputError, match=r"'rhs' returned shape \(2,\)"):
        check(ds.ODE(lambda t, u, p: np.zeros(2), 3), U0)


def test_rough_rhs_gives_no_verdict():
    """Rounded to three digits, it has no derivative that differences could see."""
    jacobian = np.array([[1.0]])
    problem = ds.ODE(
        lambda t, u, p: np.round(np.real(u), 3),
        1,
        jacobian=lambda t, u, p: jacobian,
        rhs_t=AUTONOMOUS,
    )
    verdicts = check(problem, [1.2345])
    assert verdicts.unclear == ("jacobian",)
    assert verdicts.passed
    assert "cannot tell" in str(verdicts)


def test_points_outside_the_domain_are_avoided():
    """The root takes steps of at most 1e-3, the first differences are not finite."""
    problem = ds.ODE(lambda t, u, p: np.sqrt(p[0] - u), 1, 1, jacobian_p=lambda t, u, p: [[0.0]])
    verdicts = check(problem, [1.0], [1.001])
    assert verdicts["jacobian"].error < 1e-8
    assert verdicts.wrong == ("jacobian_p",)


def test_domain_of_one_point_gives_no_verdict():
    def f(t, u, p):
        if u[0] != 1.0:
            raise ds.SolveError("left the domain")
        return u

    verdicts = check(ds.ODE(f, 1, jacobian=lambda t, u, p: [[1.0]], rhs_t=AUTONOMOUS), [1.0])
    assert verdicts.unclear == ("jacobian",)


def test_control_without_initial_state_adds_nothing():
    names = [row.name for row in check(FORMS["rhs"].analytic, U0, P0, T).rows]
    for control in (InitialState(U0, P0), ds.Parameters(FOLLOWING.values, U0)):
        verdicts = check(FORMS["rhs"].analytic, U0, P0, T, control=control)
        assert [row.name for row in verdicts.rows] == names


def test_observation_of_components_needs_no_check():
    cost = ds.LeastSquares([0.1], [[1.0]], observe=[0])
    names = [row.name for row in check(FORMS["rhs"].analytic, U0, P0, T, objective=cost).rows]
    assert names == ["jacobian", "jacobian_p", "rhs_t", "hessian_product du", "hessian_product dp"]


def test_problem_without_parameters():
    problem = ds.ODE(lambda t, u, p: -(u**2), 2)
    cost = ds.Terminal(lambda t, u, p: u[0] * u[1]) + ds.LeastSquares(
        [0.1], [[1.0]], observe=lambda t, u, p: u[:1] ** 2
    )
    verdicts = check(problem, [1.0, 2.0], objective=cost)
    assert [row.name for row in verdicts.rows] == [
        "jacobian",
        "rhs_t",
        "terminal gradient_u",
        "observe_u",
    ]
    assert verdicts.passed


def test_rate_can_be_given():
    form = FORMS["F"]
    at_rest = check(form.analytic, U0, P0, T, udot=np.zeros(3))
    assert at_rest.passed
    with pytest.raises(ds.InputError, match="udot has shape"):
        check(form.analytic, U0, P0, T, udot=np.zeros(2))


# ---- check: distributed problems -----------------------------------------------------------------


class Chain:
    """u_i' = p_0 (u_{i-1} - 2 u_i + u_{i+1} / 2) - p_1 u_i^3 + sin(t) on a ring, in PETSc style.

    ``products`` gives the Jacobian in u without a matrix; ``field`` makes p_1 a field
    (and p_0 = 1), with a Jacobian in p by products.  ``wrong`` names the callback that is
    corrupted.
    """

    def __init__(self, wrong="", *, n=24, products=False, field=False):
        self.wrong, self.field = wrong, field
        self.grid = PETSc.DMDA().create(
            [n], dof=1, stencil_width=1, boundary_type="periodic", comm=PETSc.COMM_WORLD
        )
        self.local = self.grid.createLocalVec()
        self.u = self.grid.createGlobalVec()
        start, end = self.u.getOwnershipRange()
        self.here = np.arange(start, end)
        write(self.u, 1 + 0.5 * np.sin(self.here))
        self.p = np.array([0.7, 0.2])
        if field:
            self.p = self.grid.createGlobalVec()
            write(self.p, 0.3 + 0.1 * np.cos(self.here))
        by_u = Products(self.apply_u, self.apply_u_transposed) if products else self.fill_u
        by_p = Products(self.apply_p, self.apply_p_transposed) if field else self.fill_p
        self.problem = ds.ODE(
            self.rhs,
            state=self.grid,
            parameters=self.p if field else ["diffusion", "rate"],
            jacobian=by_u,
            jacobian_p=by_p,
            rhs_t=self.rhs_t,
        )

    def rates(self, p):
        return (1.0, read(p)) if self.field else p

    def off(self, name):
        """A small error in one entry, on one rank."""
        return 1e-3 * (self.here == 5) if self.wrong == name else 0.0

    def neighbours(self, v):
        self.grid.globalToLocal(v, self.local)
        values = read(self.local)
        return values[:-2], values[2:]

    def rhs(self, t, u, p, out):
        d, rate = self.rates(p)
        left, right = self.neighbours(u)
        write(out, d * (left - 2 * read(u) + 0.5 * right) - rate * read(u) ** 3 + np.sin(t))

    def rhs_t(self, t, u, p, out):
        out.set(np.cos(t))
        write(out, read(out) + self.off("rhs_t"))

    def diagonal(self, u, p):
        d, rate = self.rates(p)
        return -2 * d - 3 * rate * read(u) ** 2

    def fill_u(self, t, u, p, out):
        out.zeroEntries()
        n, d = u.size, self.rates(p)[0]
        for i, value in zip(self.here, self.diagonal(u, p) + self.off("jacobian"), strict=True):
            for column, entry in (((i - 1) % n, d), (i, value), ((i + 1) % n, 0.5 * d)):
                out.setValue(i, column, entry)
        out.assemble()

    def apply_u(self, t, u, p, v, out):
        left, right = self.neighbours(v)
        d = self.rates(p)[0]
        diagonal = self.diagonal(u, p) + self.off("jacobian.apply")
        write(out, d * (left + 0.5 * right) + diagonal * read(v))

    def apply_u_transposed(self, t, u, p, w, out):
        left, right = self.neighbours(w)
        d = self.rates(p)[0]
        diagonal = self.diagonal(u, p) + self.off("jacobian.apply_transpose")
        write(out, d * (right + 0.5 * left) + diagonal * read(w))

    def fill_p(self, t, u, p, out):
        left, right = self.neighbours(u)
        columns = (left - 2 * read(u) + 0.5 * right + self.off("jacobian_p"), -(read(u) ** 3))
        out.getDenseArray()[...] = np.column_stack(columns)
        out.assemble()

    def apply_p(self, t, u, p, v, out):
        write(out, -(read(u) ** 3) * read(v) * (1 + self.off("jacobian_p.apply")))

    def apply_p_transposed(self, t, u, p, w, out):
        write(out, -(read(u) ** 3) * read(w) * (1 + self.off("jacobian_p.apply_transpose")))

    # costs and initial state

    def value(self, t, u, p):
        return 0.5 * u.dot(u) * (p.sum() if self.field else p[1])

    def value_u(self, t, u, p, out):
        u.copy(out)
        out.scale(p.sum() if self.field else p[1])
        write(out, read(out) * (1 + self.off("terminal gradient_u")))

    def value_p(self, t, u, p):
        half = 0.5 * u.dot(u)
        return np.array([1e-3 if self.wrong == "terminal gradient_p" else 0.0, half])

    def value_field(self, t, u, p, out):
        out.set(0.5 * u.dot(u))
        write(out, read(out) * (1 + self.off("terminal gradient_p")))

    def initial(self, p, out):
        write(out, p[0] * np.sin(self.here) + p[1] ** 2)

    def initial_p(self, p, w):
        weights = read(w)
        parts = [
            (np.sin(self.here) + self.off("initial_state_p")) @ weights,
            2 * p[1] * weights.sum(),
        ]
        return self.grid.comm.tompi4py().allreduce(np.array(parts))

    def check(self):
        by_p = self.value_field if self.field else self.value_p
        cost = ds.Terminal(self.value, self.value_u, by_p)
        data = self.u.duplicate()
        data.set(0.5)
        cost = cost + ds.LeastSquares([1.0], [data])
        control = None
        if not self.field:
            cost = cost + ds.Prior([0.1, 0.2], 0.5)
            control = ds.Parameters(
                {"diffusion": 0.7, "rate": ds.Parameter(0.2)}, self.initial, self.initial_p
            )
        return check(self.problem, self.u, self.p, T, objective=cost, control=control)


@pytest.mark.mpi
@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("field", [False, True])
@pytest.mark.parametrize("n", [24, 9])
def test_right_distributed_callbacks_pass(products, field, n):
    verdicts = Chain(n=n, products=products, field=field).check()
    assert verdicts.passed
    assert {row.verdict for row in verdicts.rows} == {"right"}
    assert max(row.error for row in verdicts.rows) < 1e-9


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("jacobian", {}),
        ("jacobian_p", {}),
        ("rhs_t", {}),
        ("initial_state_p", {}),
        ("terminal gradient_u", {}),
        ("terminal gradient_p", {}),
        ("jacobian.apply", {"products": True}),
        ("jacobian.apply_transpose", {"products": True}),
        ("jacobian_p.apply", {"field": True}),
        ("jacobian_p.apply_transpose", {"field": True}),
        ("terminal gradient_p", {"field": True}),
    ],
)
@pytest.mark.parametrize("n", [24, 9])
def test_mutated_distributed_callback_is_named_on_every_rank(name, options, n):
    verdicts = Chain(name, n=n, **options).check()
    assert verdicts.wrong == (name,)
    everywhere = PETSc.COMM_WORLD.tompi4py().allgather(str(verdicts))
    assert set(everywhere) == {str(verdicts)}
    if (name, n) == ("jacobian", 9):
        assert verdicts[name].detail.startswith("entry [5, 5] is ")


@pytest.mark.mpi
def test_missing_petsc_style_callbacks_are_listed():
    chain = Chain()
    problem = ds.ODE(chain.rhs, state=chain.grid, parameters=2, jacobian=COLORING)
    control = ds.Parameters({"p0": 0.7, "p1": ds.Parameter(0.2)}, chain.initial)
    verdicts = check(
        problem,
        chain.u,
        chain.p,
        objective=ds.Terminal(chain.value, chain.value_u),
        control=control,
    )
    missing = {row.name for row in verdicts.rows if row.verdict == "not supplied"}
    assert missing == {
        "jacobian",
        "jacobian_p",
        "rhs_t",
        "terminal gradient_p",
        "initial_state_p",
    }
    assert verdicts.passed
    assert "not supplied" in str(verdicts)


@pytest.mark.mpi
def test_taylor_and_duality_of_a_distributed_problem():
    chain = Chain(products=True)
    stepping = ds.Stepping((0.0, 0.5), "rk4", dt=0.05)
    cost = ds.Terminal(chain.value, chain.value_u, chain.value_p)
    functional = ds.Reduced(chain.problem, cost, stepping, InitialState(chain.u, chain.p))
    orders = taylor(functional)
    assert min(orders) > 1.99
    assert duality(ds.solve(chain.problem, chain.u, chain.p, stepping), cost) < 1e-13
    derivative = np.array(PETSc.COMM_WORLD.tompi4py().allgather(orders.derivative))
    np.testing.assert_array_equal(derivative, derivative[0])
    assert orders.derivative == pytest.approx(-0.28710134048, abs=1e-11)  # on any number of ranks


def swing(t, u, p):
    return np.array([u[1], -p[0] * np.sin(u[0]) - p[1] * u[1]])


def swinging(slope=None, events=()):
    problem = ds.ODE(swing, 2, ["stiffness", "damping"], events=events)
    control = ds.Parameters(
        {"stiffness": ds.Parameter(1.5), "damping": ds.Parameter(0.3)}, [1.0, 0.0]
    )
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2, slope)
    return lambda method: ds.Reduced(
        problem, cost, ds.Stepping((0.0, 3.0), method, rtol=1e-4), control
    )


COARSE = pytest.mark.filterwarnings("ignore::daeosens.errors.DiscretizationWarning")


@pytest.mark.slow
@COARSE
@pytest.mark.parametrize("method", ["rk3bs", "rk6vr", "esdirk4", "cn", "beuler"])
def test_adaptive_steps_are_judged_by_the_steps_that_were_taken(method):
    functional = swinging()(method)
    orders = taylor(functional, hessian=True)
    assert orders.passed
    assert orders.hessian_order == pytest.approx(3.0, abs=0.1)
    assert taylor(functional).passed


@COARSE
def test_a_wrong_gradient_of_adaptive_steps_is_wrong():
    functional = swinging(slope=lambda t, u, p: 2.002 * u * [1.0, 0.0])("rk6vr")
    orders = taylor(functional)
    assert not orders.passed
    assert "the gradient is WRONG" in str(orders)


@COARSE
def test_adaptive_steps_after_an_event_are_not_called_wrong():
    turn = ds.Event(lambda t, u, p: u[0] - 0.5, reset=lambda t, u, p: u * [1.0, 0.8], direction=-1)
    orders = taylor(swinging(events=[turn])("rk3bs"))
    assert orders.jumps
    assert not orders.passed
    assert "the gradient cannot be judged: adaptive steps through events" in str(orders)


# ---- what Newton's iterations leave --------------------------------------------------------------


def two_wells(t, x, y, p):
    return (p.height - y[0] ** 2) ** 2 - (x[0] - p.middle) * np.sin(p.pitch * y[0])


@dataclass
class Scaled:
    """A functional whose gradient is a factor times what it should be."""

    functional: ds.Reduced
    factor: float

    def __getattr__(self, name):
        return getattr(self.functional, name)

    def value_and_gradient(self, x):
        value, gradient = self.functional.value_and_gradient(x)
        return value, self.factor * gradient


@pytest.fixture(scope="module")
def tracked():
    names = {"rate": 2.0, "height": 1.0, "middle": 0.5, "pitch": np.pi / 2}

    def decay(t, x, y, p):
        return -(p.rate + y) * x + 0.1 * np.sin(3.0 * t)

    model = ds.DAEO(decay, two_wells, size=(1, 1), parameters=list(names), box=[(-6.0, 6.0)])
    control = ds.Parameters({name: ds.Parameter(value) for name, value in names.items()}, [1.0])
    cost = ds.LeastSquares([0.3, 0.77, 1.0], [[0.6], [0.4], [0.3]], observe=[0])
    return ds.Reduced(model, cost, ds.Stepping((0.0, 1.0), "beuler", dt=0.07), control)


@pytest.mark.slow
def test_what_iterations_leave_is_not_called_wrong(tracked):
    orders = taylor(tracked)
    assert orders.passed
    assert orders.order == pytest.approx(2.0, abs=0.01)
    assert 1e-15 < orders.noise < 1e-10 * orders.value  # Newton's tolerance is 1e-11


@pytest.mark.slow
def test_a_gradient_that_is_a_little_wrong_is_wrong_all_the_same(tracked):
    orders = taylor(Scaled(tracked, 1.0 + 1e-4))
    assert orders.order == pytest.approx(1.0, abs=0.1)
    assert "the gradient is WRONG" in str(orders)
