"""Parameter fields on finite elements, beside numbers: derivatives, controls, on any ranks."""

import numpy as np
import pytest
import skfem
from petsc4py import PETSc

import daeosens as ds
from daeosens.functional import FieldParameters
from daeosens.problem.grids import FiniteElements, Grid
from daeosens.tracing import trace_weak_form
from daeosens.verify import duality

SELF = PETSc.COMM_SELF
MESH = skfem.MeshTri().refined(2).with_boundaries({"left": lambda x: x[0] == 0.0})
P2 = skfem.Basis(MESH, skfem.ElementTriP2())
P1 = skfem.Basis(MESH, skfem.ElementTriP1())
STEPPING = ds.Stepping((0.0, 0.2), "cn", dt=0.05)


def reaction(t, u, p):
    source = p.growth * u.value * (1.0 - u.value) * p.rate * (1.0 + u.x[0])
    return source, [-p.k * (1.0 + u.value**2) * slope for slope in u.gradient()]


def loss(t, u, p):
    return p.h * p.k**2 * (u.value - 0.2)


def density(t, u, p):
    return p.growth * p.k**2 * u.value[0] ** 3 + u.gradient()[0][0] ** 2 * p.rate


def model_of(fields, comm=PETSc.COMM_WORLD, basis=P1):
    """Return the model with some of its parameters as fields."""
    space = FiniteElements(P2, comm=comm)
    numbers = [name for name in ("k", "rate", "growth", "h") if name not in fields]
    of_fields = FiniteElements(basis, comm=comm) if fields else None
    return trace_weak_form(
        reaction, space, numbers, outflow={"left": loss}, fields=fields, field_space=of_fields
    )


def start_of(model):
    return model.space.interpolate(lambda x: 0.3 + 0.2 * np.cos(3.0 * x[0] + x[1]))


def packed(model):
    space = model.fields.grid
    k = space.interpolate(lambda x: 0.1 + 0.05 * np.sin(4.0 * x[0] * x[1]))
    rate = space.interpolate(lambda x: 1.0 + 0.5 * x[1])
    return model.pack(k=k, rate=rate, growth=0.8, h=2.0)


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["cn", "beuler", "esdirk3"])
def test_derivatives_in_fields_and_numbers_are_right(method):
    model = model_of(["k", "rate"])
    u0, p = start_of(model), packed(model)
    stepping = ds.Stepping((0.0, 0.2), method, dt=0.05)
    cost = model.terminal(density) + model.running(density)
    assert duality(ds.solve(model, u0, p, stepping), cost) < 1e-12
    values = model.unpack(p)
    control = FieldParameters(
        {
            "k": ds.Parameter(values.k, scale="log"),
            "rate": ds.Parameter(values.rate),
            "growth": ds.Parameter(0.8),
            "h": 2.0,
        },
        u0,
    )
    orders = ds.taylor(ds.Reduced(model, cost, stepping, control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9


@pytest.mark.mpi
def test_a_constant_field_is_a_number():
    """Linear functions add up to 1: so do derivatives to that in the number."""
    plain, model = model_of([]), model_of(["k", "rate"])
    u0 = start_of(plain)
    numbers = np.array([0.1, 1.2, 0.8, 2.0])
    cost = plain.terminal(density)
    run = ds.solve(plain, u0, numbers, STEPPING)
    expected = ds.adjoint(run, cost)
    dp = np.array([0.3, -0.2, 0.5, 1.0])
    second = ds.hessian_product(run, cost, u0, dp)

    p = model.pack(k=0.1, rate=1.2, growth=0.8, h=2.0)
    of_fields = ds.solve(model, u0, p, STEPPING)
    gradient = ds.adjoint(of_fields, model.terminal(density))
    direction = model.pack(k=0.3, rate=-0.2, growth=0.5, h=1.0)
    product = ds.hessian_product(of_fields, model.terminal(density), u0, direction)
    assert np.isclose(gradient.value, expected.value, rtol=1e-12)
    for ours, reference in ((gradient, expected), (product, second)):
        named = model.unpack(ours.p_vec)
        sums = [named.k.sum(), named.rate.sum(), float(named.growth), float(named.h)]
        assert np.allclose(sums, reference.p, rtol=1e-8)
        assert np.allclose(ours.u0, reference.u0, rtol=1e-7, atol=1e-12)


@pytest.mark.mpi
def test_any_number_of_ranks_gives_the_same_gradient():
    found = []
    for comm in (PETSc.COMM_WORLD, SELF):
        model = model_of(["k", "rate"], comm)
        run = ds.solve(model, start_of(model), packed(model), STEPPING)
        gradient = model.unpack(ds.adjoint(run, model.terminal(density)).p_vec)
        space = model.fields.grid
        found.append([space.values(gradient.k), space.values(gradient.rate), gradient.h])
    for ours, alone in zip(*found, strict=True):
        assert np.allclose(ours, alone, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_a_conductivity_is_found_from_the_state_that_it_makes():
    """The state everywhere tells k of div(k grad u) = -u at rest, but for what grad u = 0 hides."""
    space, of_fields = FiniteElements(P2, comm=SELF), FiniteElements(P1, comm=SELF)
    model = trace_weak_form(
        lambda t, u, p: (5.0, [-p.k * slope for slope in u.gradient()]),
        FiniteElements(P2, dirichlet={"boundary": 0.0}, comm=SELF),
        fields=["k"],
        field_space=of_fields,
    )
    truth = model.pack(k=of_fields.interpolate(lambda x: np.exp(np.sin(3.0 * x[0]) * x[1])))
    start = model.space.interpolate(lambda x: 0.0 * x[0])
    stepping = ds.Stepping((0.0, 1.0), "beuler", dt=0.25)
    measured = ds.solve(model, start, truth, stepping).final
    # the measured state as a further field, on the same functions as the state
    with_data = trace_weak_form(
        lambda t, u, p: (5.0, [-p.k * slope for slope in u.gradient()]),
        FiniteElements(P2, dirichlet={"boundary": 0.0}, comm=SELF),
        fields=["k", "data"],
        field_space=space,
    )
    data = space.from_values(model.space.values(measured))
    misfit = with_data.terminal(lambda t, u, p: 1e6 * (u.value[0] - p.data) ** 2)
    control = FieldParameters({"k": ds.Parameter(1.0, scale="log"), "data": data}, start)
    functional = ds.Reduced(with_data, misfit, stepping, control)
    begin = functional.value(functional.start())
    result = ds.minimize(functional, relative_gradient_tolerance=1e-6)
    assert result.value < 1e-6 * begin


def test_what_is_no_field_is_refused():
    space = FiniteElements(P2, comm=SELF)
    other = FiniteElements(skfem.Basis(skfem.MeshTri().refined(2), skfem.ElementTriP1()), comm=SELF)
    fixed = FiniteElements(P1, dirichlet={"left": 0.0}, comm=SELF)
    for wrong, words in ((other, "another mesh"), (fixed, "fixed values"), (P1, "field_space")):
        with pytest.raises(ds.InputError, match=words):
            trace_weak_form(reaction, space, ["rate", "growth"], fields=["k"], field_space=wrong)
    with pytest.raises(ds.InputError, match="twice"):
        trace_weak_form(reaction, space, ["rate", "growth", "k"], fields=["k"])
    model = model_of(["k", "rate"], SELF)
    with pytest.raises(ds.InputError, match="k has shape"):
        model.pack(k=np.zeros(3), rate=1.0, growth=1.0, h=1.0)
    entries = {"k": ds.Parameter(1.0), "rate": 1.0, "growth": 1.0, "h": 1.0}
    mesh = Grid(((0.0, 1.0),) * 2, (4, 4), "neumann", comm=SELF)
    with pytest.raises(ds.InputError, match="field_space"):
        FieldParameters(entries, start_of(model), {"k": mesh}).check(model)
