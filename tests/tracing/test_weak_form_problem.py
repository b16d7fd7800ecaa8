"""Problems on finite elements: right-hand sides, derivatives, costs, on any ranks."""

import math

import numpy as np
import pytest
import skfem
from petsc4py import PETSc
from skfem.helpers import dot, grad

import daeosens as ds
from daeosens.problem.grids import FiniteElements
from daeosens.tracing import trace_weak_form
from daeosens.verify import duality

SELF = PETSc.COMM_SELF
TRIANGLES = (
    skfem.MeshTri()
    .refined(2)
    .with_boundaries({"left": lambda x: x[0] == 0.0, "right": lambda x: x[0] == 1.0})
)
P2 = skfem.Basis(TRIANGLES, skfem.ElementTriP2())
LINE = skfem.Basis(
    skfem.MeshLine().refined(3).with_boundaries({"left": lambda x: x[0] == 0.0}),
    skfem.ElementLineP2(),
)
P = np.array([0.05, 0.7])


def burgers(t, u, p):
    """Nonlinear in values and slopes, other at other times and places."""
    along_x, along_y = u.gradient()
    a, b = u.value
    source = -(a * along_x + b * along_y)
    source[0] = source[0] + p.push * u.x[0] * np.sin(3.0 * t) + p.push**2 * np.exp(-a * b)
    return source, [-p.viscosity * along_x, -p.viscosity * (1.0 + a * a) * along_y]


def radiation(t, u, p):
    return p.viscosity * (u.value**3 - (1.0 + t)) * (1.0 + u.normal[0])


def energy_density(t, u, p):
    along_x, along_y = u.gradient()
    return u.value[0] ** 3 * p.push + t * (along_x @ along_x) + along_y[0] * u.value[1]


def model_on(comm=PETSc.COMM_WORLD):
    space = FiniteElements(P2, ("a", "b"), dirichlet={"left": (0.5, None)}, comm=comm)
    model = trace_weak_form(burgers, space, ["viscosity", "push"], outflow={"right": radiation})
    return space, model


def start_of(space):
    return space.interpolate(
        lambda x: (0.5 + x[0] * np.cos(2.0 * x[1]), 0.3 * np.sin(3.0 * x[0] + x[1]))
    )


@pytest.mark.mpi
def test_a_linear_form_is_the_assembled_one():
    space = FiniteElements(P2)
    model = trace_weak_form(
        lambda t, u, p: (p.growth * u.value, [-p.rate * slope for slope in u.gradient()]),
        space,
        ["rate", "growth"],
    )

    @skfem.BilinearForm
    def stiffness(u, v, w):
        return -0.3 * dot(grad(u), grad(v)) + 2.0 * u * v

    matrix = stiffness.assemble(P2)
    values = np.random.default_rng(1).uniform(size=(P2.N, 1))
    u, out = space.from_values(values), space.state.duplicate()
    p = np.array([0.3, 2.0])
    model.rhs(0.0, u, p, out)
    assert np.allclose(space.values(out), matrix @ values, rtol=0.0, atol=1e-14)
    # f_u is the same everywhere: systems of steps are factorised once
    assert model.rhs_u.constant
    filled = model.rhs_u.create(0.0, u, p)
    model.rhs_u.fill(0.0, u, p, filled)
    filled.mult(u, out)
    assert np.allclose(space.values(out), matrix @ values, rtol=0.0, atol=1e-14)


def test_states_converge_with_the_order_of_the_element():
    errors = []
    for level in (2, 3):
        basis = skfem.Basis(skfem.MeshTri().refined(level), skfem.ElementTriP2())
        space = FiniteElements(basis, dirichlet={"boundary": 0.0}, comm=SELF)
        model = trace_weak_form(
            lambda t, u, p: (0.0, [-p.rate * slope for slope in u.gradient()]), space, ["rate"]
        )
        mode = space.interpolate(lambda x: np.sin(np.pi * x[0]) * np.sin(np.pi * x[1]))
        stepping = ds.Stepping((0.0, 0.1), "esdirk5", rtol=1e-10, atol=1e-13)
        run = ds.solve(model, mode, [0.5], stepping)
        decayed = math.exp(-2.0 * np.pi**2 * 0.5 * 0.1)
        errors.append((run.final - decayed * mode).norm(PETSc.NormType.INFINITY))
        total = ds.adjoint(run, model.terminal(lambda t, u, p: u.value[0]))
        # d/da of (4 / pi^2) exp(-2 pi^2 a T)
        slope = -0.2 * np.pi**2 * decayed * 4.0 / np.pi**2
        assert np.isclose(total.p[0], slope, rtol=30.0 * 16.0**-level)
    assert np.log2(errors[0] / errors[1]) > 3.5


def test_fixed_values_and_outflow_give_the_profile_in_closed_form():
    # a rod, 1 at the left, that loses h (u - c) at the right: u = 1 - s x with k s = h (1 - s - c)
    space = FiniteElements(LINE, dirichlet={"left": 1.0}, comm=SELF)
    model = trace_weak_form(
        lambda t, u, p: (0.0, [-p.k * slope for slope in u.gradient()]),
        space,
        ["k", "h", "c"],
        outflow={"boundary": lambda t, u, p: p.h * (u.value - p.c)},
    )
    k, h, c = 2.0, 3.0, 0.25
    stepping = ds.Stepping((0.0, 40.0), "beuler", dt=4.0)
    run = ds.solve(model, space.interpolate(lambda x: 1.0 + 0.0 * x[0]), [k, h, c], stepping)
    s = h * (1.0 - c) / (k + h)
    x = LINE.doflocs[0]
    assert np.allclose(space.values(run.final)[:, 0], 1.0 - s * x, atol=1e-9)
    mean = ds.adjoint(run, model.terminal(lambda t, u, p: u.value[0]))
    assert np.isclose(mean.value, 1.0 - s / 2.0)
    by_k, by_h, by_c = -s / (k + h), k * (1.0 - c) / (k + h) ** 2, -h / (k + h)
    assert np.allclose(mean.p, -0.5 * np.array([by_k, by_h, by_c]), atol=1e-8)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("method", "size"), [("cn", 0.05), ("beuler", 0.05), ("esdirk4", 0.1), ("theta:0.7", 0.05)]
)
def test_derivatives_are_right(method, size):
    space, model = model_on()
    u0 = start_of(space)
    stepping = ds.Stepping((0.0, 0.2), method, dt=size)
    cost = model.terminal(energy_density) + model.running(energy_density)
    run = ds.solve(model, u0, P, stepping)
    assert duality(run, cost) < 1e-12
    control = ds.Parameters({"viscosity": ds.Parameter(P[0]), "push": ds.Parameter(P[1])}, u0)
    orders = ds.taylor(ds.Reduced(model, cost, stepping, control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9


def test_the_gradient_in_the_state_is_that_of_differences():
    space, model = model_on(SELF)
    u0, stepping = start_of(space), ds.Stepping((0.0, 0.2), "cn", dt=0.05)
    cost = model.terminal(energy_density)
    gradient = ds.adjoint(ds.solve(model, u0, P, stepping), cost)
    direction = space.from_values(np.random.default_rng(2).normal(size=(P2.N, 2)))

    def value(step):
        return ds.adjoint(ds.solve(model, u0 + step * direction, P, stepping), cost).value

    h = 1e-4
    eighth = (8.0 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12.0 * h)
    found = np.dot(gradient.gather()[0], direction.getArray())
    assert np.isclose(found, eighth, rtol=1e-9)


@pytest.mark.mpi
def test_any_number_of_ranks_gives_the_same():
    stepping = ds.Stepping((0.0, 0.2), "cn", dt=0.05)
    results = []
    for comm in (PETSc.COMM_WORLD, SELF):
        space, model = model_on(comm)
        u0, cost = start_of(space), model.terminal(energy_density)
        run = ds.solve(model, u0, P, stepping)
        gradient = ds.adjoint(run, cost)
        product = ds.hessian_product(run, cost, u0, np.array([0.3, -1.0]))
        parts = gradient.gather(), product.gather()
        fields = [space.values(_vector(space, part[0])) for part in parts]
        results.append([gradient.value, *fields, gradient.p, product.p])
    for ours, alone in zip(*results, strict=True):
        assert np.allclose(ours, alone, rtol=1e-8, atol=1e-10 * np.abs(alone).max())


def _vector(space, numbers):
    """Return all numbers of a gradient as a vector."""
    vec = space.state.duplicate()
    first, last = vec.getOwnershipRange()
    vec.setArray(numbers[first:last])
    return vec


def test_derivatives_in_time_are_right():
    space, model = model_on(SELF)
    u, w, h = start_of(space), space.interpolate(lambda x: (x[1], x[0])), 1e-4
    out, ahead, behind = (space.state.duplicate() for _ in range(3))
    model.rhs(0.3 + h, u, P, ahead)
    model.rhs(0.3 - h, u, P, behind)
    model.rhs_t(0.3, u, P, out)
    assert np.allclose(out.getArray(), (ahead - behind).getArray() / (2 * h), atol=1e-7)
    slopes = space.state.duplicate()
    by_p = PETSc.Vec().createSeq(2)
    by_t = model.rhs_time_hessian_function(0.3, u, P, w, slopes, by_p)

    def rate(u, p, t=0.3):
        model.rhs_t(t, u, p, out)
        return out.dot(w)

    assert np.isclose(by_t, (rate(u, P, 0.3 + h) - rate(u, P, 0.3 - h)) / (2 * h), rtol=1e-6)
    for k in range(2):
        step = h * np.eye(2)[k]
        assert np.isclose(by_p[k], (rate(u, P + step) - rate(u, P - step)) / (2 * h), atol=1e-8)
    along = (rate(u + h * w, P) - rate(u - h * w, P)) / (2 * h)
    assert np.isclose(slopes.dot(w), along, atol=1e-9)


@pytest.mark.parametrize(
    ("rhs", "words"),
    [
        (lambda t, u, p: u.value, "rhs returns[^,]*source, flux"),
        (lambda t, u, p: (0.0, [0.0]), "1 fluxes"),
        (lambda t, u, p: ([0.0, 1.0], 0.0), "source has 2 entries"),
        (lambda t, u, p: (p.k, 0.0), 'no parameter "k"|k'),
        (3.0, "rhs"),
    ],
)
def test_what_is_no_form_is_refused(rhs, words):
    space = FiniteElements(P2, comm=SELF)
    with pytest.raises(ds.InputError, match=words):
        trace_weak_form(rhs, space, ["rate"])


def test_other_spaces_and_boundaries_are_refused():
    def nothing(t, u, p):
        return 0.0 * u.value, 0.0

    with pytest.raises(ds.InputError, match="FiniteElements"):
        trace_weak_form(nothing, P2)
    with pytest.raises(ds.InputError, match='no boundary "top"'):
        trace_weak_form(nothing, FiniteElements(P2, comm=SELF), outflow={"top": nothing})
