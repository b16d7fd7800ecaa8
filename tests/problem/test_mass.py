"""Mass matrices of any kind, and what those of the parameters add to derivatives."""

import numpy as np
import pytest
from forms import FORMS, MASS, NAMES, P0, U0, mass, mass_p, rhs
from matrix_kinds import ROWS, M, entries, vec
from petsc4py import PETSc
from scipy import sparse

from daeosens import ODE, InputError, Stepping, Terminal, UnsupportedError, adjoint, solve
from daeosens.petsc import read, write
from daeosens.problem import Products
from daeosens.problem.mass import mass_matrix

T = 0.3
UDOT = np.array([0.4, -0.9, 0.2])


def state(problem, values):
    vec = problem.create_state()
    write(vec, values)
    return vec


def test_a_matrix_of_any_kind_becomes_one_of_petsc():
    for kind in (np.asarray, sparse.csr_array, sparse.coo_array, lambda m: m.tolist()):
        np.testing.assert_array_equal(entries(mass_matrix(kind(M), ROWS)), M)
    value = mass_matrix(M, ROWS)
    assert mass_matrix(value, ROWS) is value
    with pytest.raises(InputError, match=r"mass has shape \(3, 3\)\n  expected: \(2, 2\)"):
        mass_matrix(value, vec(np.zeros(2)))


@pytest.mark.parametrize(
    "kind", [np.asarray, sparse.csr_array, sparse.coo_matrix, sparse.dia_array, PETSc.Mat]
)
def test_mass_matrices_of_any_kind(kind):
    value = kind(MASS) if kind is not PETSc.Mat else petsc_matrix(MASS)
    problem = ODE(rhs, 3, NAMES, mass=value)
    assert problem.form == "mass"
    out = problem.create_state()
    problem.residual(T, state(problem, U0), state(problem, UDOT), P0, out)
    np.testing.assert_allclose(read(out), MASS @ UDOT - rhs(T, U0, P0), rtol=1e-14)


def petsc_matrix(values):
    matrix = PETSc.Mat().createDense(values.shape, array=values, comm=PETSc.COMM_SELF)
    matrix.assemble()
    return matrix


def test_sparse_mass_that_depends_on_the_parameters():
    problem = ODE(rhs, 3, NAMES, mass=lambda p: sparse.csr_array(mass(p)), mass_p=mass_p)
    dense_problem = FORMS["M(p)"].analytic
    cost = Terminal(lambda t, u, p: u @ u)
    stepping = Stepping((0.0, 0.5), "cn", dt=0.1)
    ours, theirs = (
        adjoint(solve(problem, U0, P0, stepping), cost) for problem in (problem, dense_problem)
    )
    np.testing.assert_allclose(ours.p, theirs.p, rtol=1e-12)


def test_petsc_style_mass_is_assembled_if_the_callback_forgot():
    def decay(t, u, p, out):
        u.copy(out)
        out.scale(-1.0)

    def fill_mass(p, out):
        for i in range(2):
            out.setValue(i, i, p[0])

    problem = ODE(decay, state=vec(np.zeros(2)), parameters=1, mass=fill_mass)
    out, rate = problem.create_state(), problem.create_state()
    rate.set(3.0)
    problem.residual(0.0, problem.create_state(), rate, np.array([2.0]), out)
    assert read(out).tolist() == [6.0, 6.0]


@pytest.mark.parametrize("supplied", [None, mass_p], ids=["automatic", "callback"])
def test_derivative_of_a_mass_in_its_parameters(supplied, rng):
    """Of M(p) v alone, and of the residual M(p) udot - f."""
    problem = ODE(rhs, 3, NAMES, mass=mass, mass_p=supplied)
    v = rng.standard_normal(3)
    derivative = problem.mass_p
    matrix = derivative.create(T, P0, state(problem, v))
    derivative.fill(T, P0, state(problem, v), matrix)
    np.testing.assert_allclose(entries(matrix), mass_p(P0, v), rtol=1e-15, atol=1e-16)
    point = (T, state(problem, U0), state(problem, UDOT), P0)
    matrix = problem.residual_p.create(*point)
    for _ in range(2):  # filled anew, not added to
        problem.residual_p.fill(*point, matrix)
        expected = FORMS["M(p)"].residual_p(T, U0, UDOT, P0)
        np.testing.assert_allclose(entries(matrix), expected, rtol=0, atol=4e-15)


# ---- wrong ones ----------------------------------------------------------------------------------

WRONG = {
    "mass shape": (
        lambda: ODE(rhs, 3, mass=np.eye(2)),
        r"mass has shape \(2, 2\)\n  expected: shape \(3, 3\)",
    ),
    "mass Mat": (
        lambda: ODE(rhs, 3, mass=petsc_matrix(np.eye(2))),
        r"mass has shape \(2, 2\)\n  expected: \(3, 3\)",
    ),
    "mass vector": (lambda: ODE(rhs, 3, mass=np.ones(3)), r"mass has shape \(3,\)\n  expected"),
    "sparse mass": (
        lambda: ODE(rhs, 3, mass=sparse.eye_array(2)),
        r"mass has shape \(2, 2\)\n  expected: \(3, 3\)",
    ),
    "mass_p": (
        lambda: ODE(rhs, 3, ["a"], mass=lambda p: MASS * p[0], mass_p=MASS),
        r"mass_p = array(.|\n)*expected: a callback",
    ),
    "mass_p of a constant": (
        lambda: ODE(rhs, 3, ["a"], mass=MASS, mass_p=lambda p, v: v[:, None]),
        r"mass_p is given, and the mass does not depend(.|\n)*try: no mass_p",
    ),
    "mass_hessian without mass": (
        lambda: ODE(rhs, 3, ["a"], mass_hessian=lambda *_: None),
        r"mass_hessian is given, and the mass does not depend",
    ),
    "complex mass": (lambda: ODE(rhs, 3, mass=1j * MASS), "mass has complex numbers"),
}


@pytest.mark.parametrize(("describe", "message"), WRONG.values(), ids=WRONG)
def test_wrong_masses_are_named(describe, message):
    with pytest.raises(InputError, match=message):
        describe()


@pytest.mark.parametrize(
    ("name", "value", "got", "expected"),
    [
        ("mass", {"mass": lambda p: np.eye(2)}, r"\(2, 2\)", r"\(3, 3\)"),
        ("mass_p", {"mass": mass, "mass_p": lambda p, v: v}, r"\(3,\)", r"\(3, 3\)"),
    ],
)
def test_callbacks_of_wrong_shape_are_named_with_both_shapes(name, value, got, expected):
    problem = ODE(rhs, 3, NAMES, **value)
    message = (
        rf"callback '{name}' returned shape {got} at t = .*\(rank 0\)\n  expected: shape {expected}"
    )
    with pytest.raises(InputError, match=message):
        adjoint(
            solve(problem, U0, P0, Stepping((0.0, 0.2), "cn", dt=0.1)),
            Terminal(lambda t, u, p: u[0]),
        )


def test_a_missing_derivative_of_a_petsc_style_mass_is_named():
    problem = ODE(
        lambda t, u, p, out: u.copy(out),
        state=vec(np.zeros(2)),
        parameters=1,
        jacobian_p=lambda t, u, p, out: out.assemble(),
        mass=lambda p, out: out.assemble(),
    )
    u = problem.create_state()
    matrix = problem.residual_p.create(0.0, u, u, np.ones(1))
    with pytest.raises(UnsupportedError, match=r"'mass_p' is needed and was not supplied"):
        problem.residual_p.fill(0.0, u, u, np.ones(1), matrix)


def test_mass_that_is_not_finite_is_an_error():
    broken = np.diag([1.0, np.nan, 1.0])
    with pytest.raises(InputError, match=r"mass is nan at index \[1, 1\]"):
        ODE(rhs, 3, mass=broken)
    with pytest.raises(InputError, match=r"data of the sparse mass is nan at index \[1\]"):
        ODE(rhs, 3, mass=sparse.csr_array(broken))


def test_products_for_parameters_cannot_go_with_a_mass_that_depends_on_them():
    products = Products(lambda t, u, p, v: v, lambda t, u, p, w: w)
    with pytest.raises(UnsupportedError, match=r"jacobian_p is given by products(.|\n)*try: DAE"):
        ODE(rhs, 3, NAMES, mass=mass, jacobian_p=products)
