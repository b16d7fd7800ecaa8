"""Problems: what users supply in either style, as functions on PETSc vectors."""

import numpy as np
import pytest
from forms import FORMS, NAMES, P0, U0, rhs, rhs_p, rhs_u
from matrix_kinds import entries, vec
from petsc4py import PETSc
from scipy import sparse

import daeosens as ds
from daeosens import Terminal as Final
from daeosens.petsc import read, write
from daeosens.problem import AUTONOMOUS, COLORING, Products

T = 0.3
UDOT = np.array([0.4, -0.9, 0.2])
DENSE = {
    "residual_u": lambda form: form.residual_u(T, U0, UDOT, P0),
    "residual_udot": lambda form: form.residual_udot(T, U0, UDOT, P0),
    "residual_p": lambda form: form.residual_p(T, U0, UDOT, P0),
}


def state(problem, values):
    vec = problem.create_state()
    write(vec, values)
    return vec


def filled(problem, derivative, *point):
    matrix = derivative.create(*point)
    derivative.fill(*point, matrix)
    return matrix


# ---- functions and derivatives -------------------------------------------------------------------


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


def test_residual_of_every_form_is_the_users(form):
    for problem in (form.automatic, form.analytic):
        out = problem.create_state()
        problem.residual(T, state(problem, U0), state(problem, UDOT), P0, out)
        np.testing.assert_allclose(read(out), form.residual(T, U0, UDOT, P0), rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", DENSE)
def test_derivatives_of_every_form_are_the_users(form, name):
    for problem in (form.automatic, form.analytic):
        derivative = getattr(problem, name)
        if derivative is None:  # the identity
            assert name == "residual_udot"
            assert form.name in ("rhs", "parts")
            continue
        point = (T, state(problem, U0), state(problem, UDOT), P0)
        matrix = filled(problem, derivative, *point)
        np.testing.assert_allclose(entries(matrix), DENSE[name](form), rtol=0, atol=4e-15)


def test_time_derivative_of_every_form_is_the_users(form):
    for problem in (form.automatic, form.analytic):
        out = problem.create_state()
        problem.residual_t(T, state(problem, U0), state(problem, UDOT), P0, out)
        np.testing.assert_allclose(read(out), form.residual_t(T, U0, UDOT, P0), rtol=0, atol=1e-15)


def test_products_with_the_rate_derivative(form):
    problem = form.analytic
    exact = form.residual_udot(T, U0, UDOT, P0)
    point = (T, state(problem, U0), state(problem, UDOT), P0)
    v, start = np.array([1.0, -2.0, 0.5]), np.array([0.1, 0.2, 0.3])
    for transpose, matrix in ((False, exact), (True, exact.T)):
        out = state(problem, start)
        problem.add_udot_product(2.0, *point, state(problem, v), out, transpose=transpose)
        np.testing.assert_allclose(read(out), start + 2.0 * matrix @ v, rtol=1e-14)


def test_right_hand_side_alone():
    problem = FORMS["rhs"].analytic
    out = problem.create_state()
    problem.rhs(T, state(problem, U0), P0, out)
    np.testing.assert_array_equal(read(out), rhs(T, U0, P0))
    problem.rhs_t(T, state(problem, U0), P0, out)
    np.testing.assert_allclose(-read(out), FORMS["rhs"].residual_t(T, U0, UDOT, P0))


def test_an_autonomous_problem_says_so():
    for problem in (
        ds.ODE(lambda t, u, p: -u, 1, rhs_t=AUTONOMOUS),
        ds.DAE(lambda t, u, udot, p: udot + u, 1, residual_t=AUTONOMOUS),
    ):
        out = state(problem, [7.0])
        problem.residual_t(T, problem.create_state(), problem.create_state(), np.empty(0), out)
        assert read(out) == [0.0]


# ---- layouts, names ------------------------------------------------------------------------------


def test_what_a_problem_says_about_itself(form):
    for problem in (form.automatic, form.analytic):
        assert (problem.size, problem.n_parameters, problem.style) == (3, 3, "numpy")
        assert problem.comm.size == 1
        assert problem.form == {
            "rhs": "rhs",
            "parts": "rhs",
            "F": "residual",
            "F linear": "residual",
        }.get(form.name, "mass")
        assert problem.constant_mass == (form.name not in ("M(p)", "F"))
        assert problem.udot_nonlinear == (form.name == "F")
        assert not problem.coloring


def test_new_vectors_are_zero_and_of_the_right_size():
    problem = FORMS["rhs"].analytic
    problem.state.set(3.0)
    assert read(problem.create_state()).tolist() == [0.0, 0.0, 0.0]
    assert read(problem.create_parameters()).tolist() == [0.0, 0.0, 0.0]


# ---- wrong descriptions --------------------------------------------------------------------------


WRONG = {
    "rhs_t": (
        lambda: ds.ODE(rhs, 3, rhs_t="none"),
        r"rhs_t = 'none'\n  expected: a callback or \"auto",
    ),
    "rhs_t array": (
        lambda: ds.ODE(rhs, 3, rhs_t=np.zeros(3)),
        r"rhs_t = array\(\[0., 0., 0.\]\)\n  expected: a callback",
    ),
    "hessian_t": (lambda: ds.ODE(rhs, 3, hessian_t=3), r"hessian_t = 3\n  expected: a callback"),
    "hessian_t that nothing would read": (
        lambda: ds.ODE(rhs, 3, rhs_t="autonomous", hessian_t=3),
        r"hessian_t = 3\n  expected: a callback",
    ),
    "empty name": (
        lambda: ds.ODE(rhs, 3, ["a", ""]),
        r"parameters = \['a', ''\]\n  expected: a num",
    ),
    "batched": (lambda: ds.ODE(rhs, 3, batched="yes"), r"batched is str\n  expected: a bool"),
    "jacobian_matrix beside size": (
        lambda: ds.ODE(rhs, 3, jacobian_matrix=PETSc.Mat().createDense(3)),
        r"jacobian_matrix is Mat beside size\n  expected: a PETSc Mat, for PETSc-style",
    ),
    "jacobian_matrix": (
        lambda: ds.ODE(rhs, state=vec(np.ones(2)), jacobian_matrix=np.eye(2)),
        r"jacobian_matrix is ndarray\n  expected: a PETSc Mat",
    ),
    "jacobian": (
        lambda: ds.ODE(rhs, 3, jacobian="colouring"),
        r"jacobian = 'colouring'\n  expected: a callback, Products, \"differences\" or ",
    ),
    "jacobian matrix": (
        lambda: ds.ODE(rhs, 3, jacobian=np.eye(3)),
        r"jacobian = array\(\[\[1.*\n.*\n.*\n  expected: a callback",
    ),
}


@pytest.mark.parametrize(("describe", "message"), WRONG.values(), ids=WRONG)
def test_wrong_descriptions_are_named(describe, message):
    with pytest.raises(ds.InputError, match=message):
        describe()


# ---- wrong callbacks -----------------------------------------------------------------------------

STEPPING = ds.Stepping((0.0, 0.2), "cn", dt=0.1)
SHAPES = {
    "rhs": (lambda: ds.ODE(lambda t, u, p: u[:2], 3, NAMES), "rhs", r"\(2,\)", r"\(3,\)"),
    "residual": (
        lambda: ds.DAE(lambda t, u, udot, p: udot[:2], 3, NAMES),
        "residual",
        r"\(2,\)",
        r"\(3,\)",
    ),
    "jacobian": (
        lambda: ds.ODE(rhs, 3, NAMES, jacobian=lambda t, u, p: np.eye(2)),
        "jacobian",
        r"\(2, 2\)",
        r"\(3, 3\)",
    ),
    "sparse jacobian": (
        lambda: ds.ODE(rhs, 3, NAMES, jacobian=lambda t, u, p: sparse.eye_array(4, 3)),
        "jacobian",
        r"\(4, 3\)",
        r"\(3, 3\)",
    ),
    "jacobian_p": (
        lambda: ds.ODE(rhs, 3, NAMES, jacobian_p=lambda t, u, p: rhs_p(t, u, p).T[:2]),
        "jacobian_p",
        r"\(2, 3\)",
        r"\(3, 3\)",
    ),
    "jacobian_udot": (
        lambda: ds.DAE(
            lambda t, u, udot, p: udot + u, 3, NAMES, jacobian_udot=lambda t, u, udot, p: np.ones(3)
        ),
        "jacobian_udot",
        r"\(3,\)",
        r"\(3, 3\)",
    ),
    "jacobian.apply": (
        lambda: ds.ODE(rhs, 3, NAMES, jacobian=Products(lambda t, u, p, v: v[:1], None)),
        r"jacobian\.apply",
        r"\(1,\)",
        r"\(3,\)",
    ),
    "jacobian_p.apply_transpose": (
        lambda: ds.ODE(rhs, 3, NAMES, jacobian_p=Products(None, lambda t, u, p, w: w[:1])),
        r"jacobian_p\.apply_transpose",
        r"\(1,\)",
        r"\(3,\)",
    ),
}


@pytest.mark.parametrize(("describe", "name", "got", "expected"), SHAPES.values(), ids=SHAPES)
def test_callback_of_wrong_shape_is_named_with_both_shapes(describe, name, got, expected):
    problem = describe()
    message = (
        rf"callback '{name}' returned shape {got} at t = .*\(rank 0\), in <lambda>, line .*\n"
        f"  expected: shape {expected}"
    )
    with pytest.raises(ds.InputError, match=message):
        ds.adjoint(ds.solve(problem, U0, P0, STEPPING), Final(lambda t, u, p: u[0]))


def test_sparse_jacobian_that_is_not_finite_is_a_failed_solve():
    problem = ds.ODE(
        rhs, 3, NAMES, jacobian=lambda t, u, p: sparse.csr_array(np.full((3, 3), np.nan))
    )
    with pytest.raises(ds.SolveError, match=r"callback 'jacobian' returned nan in entry \[0\]"):
        ds.solve(problem, U0, P0, STEPPING)


def test_sparse_jacobian_may_gain_entries_later():
    """The first evaluation, at u = 0, sees none of them."""

    def coupled(t, u, p):
        return np.array([1.0 + u[1] * u[0], 1.0 - u[0] * u[1]])

    def jacobian(t, u, p):
        return sparse.csr_array(np.array([[u[1], u[0]], [-u[1], -u[0]]]))

    stepping = ds.Stepping((0.0, 0.5), "cn", dt=0.1)
    ours = ds.solve(ds.ODE(coupled, 2, jacobian=jacobian), [0.0, 0.0], None, stepping)
    theirs = ds.solve(ds.ODE(coupled, 2), [0.0, 0.0], None, stepping)
    np.testing.assert_allclose(ours.u, theirs.u, rtol=0, atol=1e-13)
    cost = Final(lambda t, u, p: u[0] * u[1])
    np.testing.assert_allclose(ds.adjoint(ours, cost).u0, ds.adjoint(theirs, cost).u0, rtol=1e-11)


# ---- missing derivatives -------------------------------------------------------------------------


def petsc_style(**derivatives):
    """A decay in PETSc style that reads the time, with some derivatives left out."""

    def decay(t, u, p, out):
        u.copy(out)
        out.scale(-p[0] * (1.0 + 0.0 * t))

    return ds.ODE(decay, state=vec(np.zeros(2)), parameters=["rate"], **derivatives)


def fill(value):
    def fill_matrix(t, u, p, out):
        out.zeroEntries()
        out.setDiagonal(value(u, p)) if out.size[0] == out.size[1] else None
        out.assemble()

    return fill_matrix


GRADIENT = Final(lambda t, u, p: u.sum(), lambda t, u, p, out: out.set(1.0), "independent")


@pytest.mark.parametrize(
    ("value", "method", "name"),
    [
        ({}, "cn", "jacobian"),
        ({}, "rk4", "jacobian"),
        ({"jacobian": Products(lambda t, u, p, v, out: v.copy(out), None)}, "rk4", "jacobian_p"),
    ],
)
def test_a_derivative_that_is_needed_and_missing_is_named(value, method, name):
    """In PETSc style nothing is differenced silently."""
    problem, u0 = petsc_style(**value), vec(np.ones(2))
    message = rf"'{name}' is needed and was not supplied\n  expected: {name}=callback, or Products"
    with pytest.raises(ds.UnsupportedError, match=message):
        ds.adjoint(ds.solve(problem, u0, [0.5], ds.Stepping((0.0, 0.2), method, dt=0.1)), GRADIENT)


def test_explicit_forward_runs_need_no_derivative():
    u0 = vec(np.ones(2))
    run = ds.solve(petsc_style(), u0, [0.5], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    np.testing.assert_allclose(run.u[-1], np.exp(-0.5), rtol=1e-6)


def test_a_missing_time_derivative_is_named():
    problem = petsc_style()
    out = problem.create_state()
    with pytest.raises(
        ds.UnsupportedError, match=r"'rhs_t' is needed(.|\n)*or rhs_t=\"autonomous\""
    ):
        problem.rhs_t(0.0, out, np.ones(1), out)


def test_right_hand_side_of_a_residual_does_not_exist():
    problem = FORMS["F"].analytic
    with pytest.raises(ds.UnsupportedError, match=r"'rhs' is needed(.|\n)*try: an implicit method"):
        problem.rhs_u.create(0.0, problem.create_state(), P0)


def test_coloured_jacobian_has_no_adjoint():
    dm = PETSc.DMDA().create([3], dof=1, stencil_width=1, comm=PETSc.COMM_SELF)

    def decay(t, u, p, out):
        u.copy(out)
        out.scale(-1.0)

    problem = ds.ODE(decay, state=dm, jacobian=COLORING)
    u0 = dm.createGlobalVec()
    u0.set(1.0)
    run = ds.solve(problem, u0, None, ds.Stepping((0.0, 0.2), "cn", dt=0.1))
    for act in (lambda: ds.adjoint(run, GRADIENT), lambda: ds.tangent(run, u0)):
        with pytest.raises(
            ds.UnsupportedError, match=r"'jacobian' is needed(.|\n)*analytic jacobian"
        ):
            act()


def test_what_drops_the_derivative_is_named_with_what_to_supply():
    def cut(t, u, p):
        return np.array([-float(u[0]) * p[0], -u[1]])

    run = ds.solve(ds.ODE(cut, 2, 1), [1.0, 2.0], [0.5], ds.Stepping((0.0, 0.2), "rk4", dt=0.1))
    with pytest.raises(ds.InputError, match=r"'rhs'(.|\n)*float(.|\n)*jacobian=callback"):
        ds.adjoint(run, Final(lambda t, u, p: u[0]))
    diagonal = ds.ODE(cut, 2, 1, jacobian=lambda t, u, p: np.diag([-p[0], -1.0]))
    run = ds.solve(diagonal, [1.0, 2.0], [0.5], ds.Stepping((0.0, 0.2), "rk4", dt=0.1))
    gradient = ds.adjoint(run, Final(lambda t, u, p: u[0]))
    np.testing.assert_allclose(gradient.u0, [np.exp(-0.1), 0.0], rtol=1e-6)


def test_user_jacobian_is_used_as_given():
    """A wrong one gives wrong gradients; check finds that out, not the adjoint."""
    right = FORMS["rhs"].analytic
    wrong = ds.ODE(rhs, 3, NAMES, jacobian=lambda t, u, p: 1.1 * rhs_u(t, u, p), jacobian_p=rhs_p)
    cost, stepping = Final(lambda t, u, p: u[0]), ds.Stepping((0.0, 0.5), "rk4", dt=0.1)
    ours = ds.adjoint(ds.solve(wrong, U0, P0, stepping), cost).u0
    theirs = ds.adjoint(ds.solve(right, U0, P0, stepping), cost).u0
    assert abs(ours - theirs).max() > 1e-3


def test_parameters_by_name_are_those_in_order():
    problem, stepping = FORMS["rhs"].analytic, ds.Stepping((0.0, 0.5), "rk4", dt=0.1)
    by_name = dict(zip(reversed(NAMES), reversed(P0.tolist()), strict=True))
    run, expected = (ds.solve(problem, U0, p, stepping) for p in (by_name, P0))
    np.testing.assert_array_equal(run.u, expected.u)
    np.testing.assert_array_equal(run.p, P0)


def test_blocks_of_a_traced_model_are_given_whole_or_by_entry():
    model = ds.trace(lambda t, u, p: p.rate * (p.A @ u), 2, {"A": (2, 2), "rate": ()})
    expected = model.pack(A=[[1.0, 2.0], [3.0, 4.0]], rate=5.0)
    for p in (
        {"rate": 5.0, "A": [[1.0, 2.0], [3.0, 4.0]]},
        {"rate": 5.0, "A[0,0]": 1.0, "A[0,1]": 2.0, "A[1,0]": 3.0, "A[1,1]": 4.0},
    ):
        np.testing.assert_array_equal(model.admit_parameters(p), expected)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ({"rate": 5.0}, r"A\[0\] is missing\n  - A\[1\] is missing"),
        ({"rat": 5.0, "A": [1.0, 2.0]}, r"no parameter 'rat'; try: \"rate\"\n  - rate is missing"),
        ({"rate": 5.0, "A": [1.0]}, r'p\["A"\] has shape \(1,\); expected: shape \(2,\)'),
        ({"rate": np.nan, "A": [1.0, 2.0]}, r'p\["rate"\] is nan'),
    ],
)
def test_names_that_do_not_fit_are_told(p, message):
    model = ds.trace(lambda t, u, p: p.rate * p.A * u, 2, {"A": (2,), "rate": ()})
    with pytest.raises(ds.InputError, match=message):
        model.admit_parameters(p)
