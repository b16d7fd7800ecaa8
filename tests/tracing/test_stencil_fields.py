"""Parameter fields of functions of a grid's points: all derivatives, any boundary, any ranks."""

import re
import warnings
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from fields import alone, close, own_part, random_field
from petsc4py import PETSc

from daeosens import (
    InputError,
    Stepping,
    Terminal,
    adjoint,
    hessian_product,
    solve,
    tangent,
    trace,
    trace_stencil,
)
from daeosens.errors import KinkWarning
from daeosens.problem import INDEPENDENT
from daeosens.problem.grids import Grid
from daeosens.timestepping import Checkpoints
from daeosens.tracing import execution
from daeosens.tracing.compilation import CompilerError

UNIT = (0.0, 1.0)
SHAPE = (11, 8, 6)
NUMBERS = ["a", "eps", "b"]
CASES = [
    (2, "periodic", "rk4"),
    (1, "neumann", "cn"),
    (2, "neumann", "rk4"),
    (2, "neumann", "esdirk4"),
    (2, "zero", "beuler"),
    (3, "zero", "rk4"),
    (3, "periodic", "cn"),
]


def excitable(t, u, p):
    """Fields inside of fluxes, nonlinear, differentiated and far away; numbers beside them."""
    v, w = u.center
    diffused = u.laplacian(p.k)
    along = u.gradient()[0]
    far = p.k[(1,) * len(u.spacing)]
    return [
        diffused[0] + p.a * v - v**3 - w + np.sin(t) * p.s**2 * v,
        p.eps * (v - p.b * w) + 0.1 * p.s * along[1] * p.k.gradient()[0] / far,
    ]


def make_grid(dimensions, boundary, comm=PETSc.COMM_WORLD):
    return Grid((UNIT,) * dimensions, SHAPE[:dimensions], boundary, dof=2, comm=comm)


class Case:
    """A model with its start, parameters, directions and cost on one grid."""

    def __init__(self, dimensions, boundary, method, comm=PETSc.COMM_WORLD):
        grid = make_grid(dimensions, boundary, comm)
        self.model = trace_stencil(excitable, grid, NUMBERS, fields=["k", "s"])
        x = grid.coordinates()
        self.u0, self.du = grid.create_vec(), grid.create_vec()
        grid.writable(self.u0)[...] = np.stack([np.cos(4 * x[0]), 0.3 * np.sin(3 * x[-1])], -1)
        grid.writable(self.du)[...] = np.stack([0.1 * np.sin(3 * x[-1]), 0.1 + 0 * x[0]], -1)
        pack = self.model.pack
        k, s = 0.02 * (1 + 0.3 * np.sin(3 * x[0] + 1)), 1 + 0.2 * np.cos(2 * x[-1])
        self.p = pack(a=0.7, eps=0.1, b=0.8, k=k, s=s)
        change = {"k": 0.004 * np.cos(5 * x[0]), "s": 0.1 * np.sin(x[0])}
        self.dp = pack(a=0.3, eps=0.02, b=-0.1, **change)
        self.stepping = Stepping((0.0, 0.3), method, dt=0.05 if method == "rk4" else 0.1)

    def solve(self, eps=0.0, **options):
        u0, p = self.u0.copy(), self.p.copy()
        u0.axpy(eps, self.du)
        p.axpy(eps, self.dp)
        return solve(self.model, u0, p, self.stepping, **options)


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk4", "rk5dp", "cn"])
def test_steps_in_c_are_those_by_callbacks(method):
    case = Case(2, "neumann", method)
    steppings = [case.stepping]
    if method == "rk5dp":
        steppings.append(Stepping((0.0, 0.3), method, rtol=1e-6))
    for stepping in steppings:
        for p in (case.p, case.p + case.dp, case.p):  # as runs on one TS may follow each other
            quick = solve(case.model, case.u0, p, stepping)
            by_callbacks = solve(replace(case.model, stencil=None), case.u0, p, stepping)
            assert quick.n_steps == by_callbacks.n_steps
            assert close(quick.final, by_callbacks.final) < 1e-13
        assert (
            close(quick.final, solve(case.model, case.u0, case.p + case.dp, stepping).final) > 1e-4
        )


def nothing(_t, u, _p, du, _dp, by_u, by_p):
    du.copy(by_u)
    by_p.zeroEntries()


ENERGY = Terminal(
    lambda t, u, p: 0.5 * u.dot(u),
    lambda t, u, p, out: u.copy(out),
    INDEPENDENT,
    hessian_product=nothing,
)


def central(function, eps):
    """Return the derivative of numbers by differences of the whole program."""

    def at(eps):
        return (function(eps) - function(-eps)) / (2 * eps)

    return (64 * at(eps) - 20 * at(2 * eps) + at(4 * eps)) / 45


def derivatives(case, eps=0.0):
    gradient = adjoint(case.solve(eps), ENERGY)
    return np.concatenate([gradient.u0, gradient.p])


@pytest.mark.mpi
@pytest.mark.parametrize(("dimensions", "boundary", "method"), CASES)
def test_derivatives_are_those_of_the_whole_program(dimensions, boundary, method):
    case = Case(dimensions, boundary, method)
    run = case.solve()
    gradient = adjoint(run, ENERGY)
    forward = tangent(run, case.du, case.dp).derivative(ENERGY)
    back = gradient.u0_vec.dot(case.du) + gradient.p_vec.dot(case.dp)
    assert forward == pytest.approx(back, rel=1e-12)
    value = central(lambda eps: adjoint(case.solve(eps), ENERGY).value, 1e-2)
    assert value == pytest.approx(back, rel=1e-11)
    product = hessian_product(run, ENERGY, case.du, case.dp)
    expected = central(lambda eps: derivatives(case, eps), 1e-2)
    ours = np.concatenate([product.u0, product.p])
    assert abs(ours - expected).max() < 1e-10 * abs(expected).max()


@pytest.mark.mpi
@pytest.mark.parametrize(("dimensions", "boundary", "method"), CASES)
def test_answers_do_not_depend_on_the_number_of_ranks(dimensions, boundary, method):
    answers = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        case = Case(dimensions, boundary, method, comm)
        run = case.solve()
        vecs = [
            adjoint(run, ENERGY).p_vec,
            hessian_product(run, ENERGY, case.du, case.dp).p_vec,
        ]
        answers.append([case.model.unpack(vec) for vec in vecs])
    grid = make_grid(dimensions, boundary)
    one = make_grid(dimensions, boundary, PETSc.COMM_SELF)
    for together, single in zip(*answers, strict=True):
        assert np.allclose(np.array(together), np.array(single), rtol=1e-10)
        for name in ("k", "s"):
            whole = single[name].array.reshape(one.owned_shape[:-1])
            mine = own_part(grid, whole).ravel()
            assert abs(together[name].array - mine).max(initial=0.0) < 1e-10 * abs(whole).max()


@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_a_field_is_as_many_numbers_as_there_are_points(method):
    """The same equations by a function of all points, whose diffusivities are plain numbers."""
    n = 9
    line = Grid((UNIT,), (n,), "neumann", comm=PETSc.COMM_SELF)
    h = line.spacing[0]

    def of_point(t, u, p):
        return u.laplacian(p.k) - p.loss * u.center**2

    def of_all(t, u, p):
        flux = 0.5 * (p.k[1:] + p.k[:-1]) * np.diff(u) / h**2
        zero = np.zeros(1)
        return np.diff(np.concatenate([zero, flux, zero])) - p.loss * u**2

    model = trace_stencil(of_point, line, ["loss"], fields=["k"])
    plain = trace(of_all, n, {"loss": (), "k": (n,)})
    (x,) = line.coordinates()
    k, dk = 0.02 + 0.01 * x, np.cos(3 * x)
    stepping = Stepping((0.0, 0.4), method, dt=0.05)
    ours = solve(model, np.cos(3 * x), model.pack(loss=0.5, k=k), stepping)
    theirs = solve(plain, np.cos(3 * x), plain.pack(loss=0.5, k=k), stepping)
    square = plain.terminal(lambda t, u, p: 0.5 * (u @ u))
    assert np.allclose(ours.u, theirs.u, rtol=1e-12, atol=1e-13)
    assert np.allclose(adjoint(ours, ENERGY).p, adjoint(theirs, square).p, rtol=1e-10)
    direction = {"loss": 0.1, "k": dk}
    product = hessian_product(ours, ENERGY, np.sin(x), model.pack(direction))
    expected = hessian_product(theirs, square, np.sin(x), plain.pack(direction))
    assert np.allclose(product.p, expected.p, rtol=1e-9)
    assert np.allclose(product.u0, expected.u0, rtol=1e-9)


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", ["periodic", "neumann"])
def test_diffusion_by_a_field_conserves(boundary):
    grid = Grid((UNIT, UNIT), (9, 7), boundary)
    model = trace_stencil(lambda t, u, p: u.laplacian(p.k), grid, fields=["k"])
    rate = grid.create_vec()
    p = model.pack(k=random_field(model.fields.grid, 1))
    model.rhs(0.0, random_field(grid, 2), p, rate)
    assert abs(rate.sum()) < 1e-12 * rate.norm(PETSc.NormType.NORM_1)


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", ["periodic", "neumann"])
def test_a_constant_field_is_a_number(boundary):
    grid = Grid((UNIT, UNIT), (9, 7), boundary)
    field = trace_stencil(lambda t, u, p: u.laplacian(p.k), grid, fields=["k"])
    number = trace_stencil(lambda t, u, p: p.k * u.laplacian(), grid, ["k"])
    u, out, expected = random_field(grid, 2), grid.create_vec(), grid.create_vec()
    field.rhs(0.0, u, field.pack(k=0.3), out)
    number.rhs(0.0, u, np.array([0.3]), expected)
    assert close(out, expected) < 1e-14
    assert not field.residual_u.one_sided


def test_advection_by_a_field_is_one_sided():
    grid = Grid((UNIT, UNIT), (9, 7), comm=PETSc.COMM_SELF)
    wind = trace_stencil(lambda t, u, p: -p.v * u.gradient()[0], grid, fields=["v"])
    assert wind.residual_u.one_sided


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_checkpoints_give_the_same_bits(method):
    case = Case(2, "neumann", method)
    whole, few = case.solve(), case.solve(checkpoint=Checkpoints(2))
    for function in (adjoint, lambda *of: hessian_product(*of, case.du, case.dp)):
        ours, theirs = function(few, ENERGY), function(whole, ENERGY)
        np.testing.assert_array_equal(ours.p, theirs.p)
        np.testing.assert_array_equal(ours.u0, theirs.u0)


@pytest.mark.mpi
@pytest.mark.parametrize(("dimensions", "boundary"), [(1, "neumann"), (2, "zero"), (3, "periodic")])
def test_without_a_compiler(dimensions, boundary):
    compiled = Case(dimensions, boundary, "rk4")
    missing = patch.object(execution, "load", side_effect=CompilerError("there is no C compiler"))
    with missing, patch.object(execution, "_warn"):
        interpreted = Case(dimensions, boundary, "rk4")
    vecs = []
    for case in (compiled, interpreted):
        run = case.solve()
        vecs.append(
            [adjoint(run, ENERGY).p_vec, hessian_product(run, ENERGY, case.du, case.dp).p_vec]
        )
    for ours, theirs in zip(*vecs, strict=True):
        assert close(ours, theirs) < 1e-12


@pytest.mark.mpi
def test_values_are_packed_and_unpacked():
    grid = make_grid(2, "neumann")
    model = trace_stencil(excitable, grid, NUMBERS, fields=["k", "s"])
    k = random_field(model.fields.grid, 3)
    p = model.unpack(model.pack(a=1.0, eps=2.0, b=3.0, k=k, s=0.5))
    assert [float(p[name]) for name in NUMBERS] == [1.0, 2.0, 3.0]
    assert p.k.equal(k)
    assert p.s.min()[1] == p.s.max()[1] == 0.5
    assert alone(model.fields.grid).dof == 1


WRONG = {
    "unknown": ({"K": 1.0}, 'there is no parameter K; try: "k"'),
    "shape": ({"k": np.ones(3)}, r"k has shape \(3,\)"),
    "not finite": ({"k": np.nan}, "not finite"),
    "another grid": (
        {"k": Grid((UNIT,), (4,), comm=PETSc.COMM_SELF).create_vec()},
        "k is a Vec of 4",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_refused(name):
    line = Grid((UNIT,), (8,), comm=PETSc.COMM_SELF)
    model = trace_stencil(lambda t, u, p: u.laplacian(p.k), line, fields=["k"])
    values, message = WRONG[name]
    with pytest.raises(InputError, match=message):
        model.pack({"k": 1.0, **values} if "k" in values else values)


def test_wrong_fields_are_refused():
    line = Grid((UNIT,), (8,), comm=PETSc.COMM_SELF)
    with pytest.raises(InputError, match='fields names "k" twice'):
        trace_stencil(lambda t, u, p: p.k * u.center, line, ["k"], fields=["k"])
    with pytest.raises(InputError, match="expected: a field of the parameters"):
        trace_stencil(lambda t, u, p: u.laplacian(p.k), line, ["k"])
    with pytest.raises(InputError, match=r"p.k\[1, 0\]"):
        trace_stencil(lambda t, u, p: p.k[1, 0] * u.center, line, fields=["k"])
    model = trace_stencil(lambda t, u, p: p.k * u.center, line, fields=["k"])
    with pytest.raises(InputError, match="the parameter is a field"):
        solve(model, np.ones(8), [1.0], Stepping((0.0, 1.0), "rk4", dt=0.1))


@pytest.mark.parametrize(("method", "rtol"), [("esdirk4", 1e-6), ("rk5dp", 1e-6)])
def test_kinks_beside_fields_are_told_of_adaptive_runs(method, rtol):
    """The gradient is compared with that of halved steps, along directions of the field too."""
    line = Grid((UNIT,), (8,), "neumann", comm=PETSc.COMM_SELF)

    def valve(t, u, p):
        return p.k * np.maximum(u.center - 0.5, 0.0) + 0.1 * u.laplacian()

    model = trace_stencil(valve, line, fields=["k"])
    u0 = 0.4 + 0.2 * line.coordinates()[0]

    def gradient(method, rtol):
        run = solve(model, u0, model.pack(k=2.0), Stepping((0.0, 0.5), method, rtol=rtol))
        return run, adjoint(run, ENERGY).p

    with pytest.warns(KinkWarning, match="derivatives are wrong by about") as told:
        run, parts = gradient(method, rtol)
    size = float(re.findall(r"wrong by about (\S+) of", str(told[0].message))[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KinkWarning)
        _, exact = gradient("rk8vr", 1e-12)
    # of each entry, or of small ones beside a hundredth of the largest
    error = np.max(abs(parts - exact) / np.maximum(abs(exact), 0.01 * abs(exact).max()))
    assert size / 3.0 < error < 3.0 * size
    back = parts.sum()
    along = tangent(run, dp=model.pack(k=1.0)).derivative(ENERGY)
    assert along == pytest.approx(back, rel=1e-12)
    with pytest.warns(KinkWarning, match="have a kink"):
        hessian_product(run, ENERGY, 0.0 * u0, model.pack(k=1.0))
