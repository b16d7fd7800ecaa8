"""What problems on finite elements are used for: any mesh, checkpoints, events, fits, refusals."""

import numpy as np
import pytest
import skfem
from petsc4py import PETSc

import daeosens as ds
from daeosens.functional import FieldParameters
from daeosens.problem import AUTONOMOUS, INDEPENDENT, Products, add_events
from daeosens.problem.grids import FiniteElements
from daeosens.timestepping import Checkpoints
from daeosens.tracing import trace_weak_form
from daeosens.verify import duality

WORLD, SELF = PETSc.COMM_WORLD, PETSc.COMM_SELF
CUT = ds.Stepping((0.0, 0.2), "cn", dt=0.06)  # the last step is cut short
MESHES = {
    "line": (skfem.MeshLine().refined(3), skfem.ElementLineP2(), skfem.ElementLineP1()),
    "quadrilaterals": (skfem.MeshQuad().refined(2), skfem.ElementQuad2(), skfem.ElementQuad1()),
    "tetrahedra": (skfem.MeshTet(), skfem.ElementTetP2(), skfem.ElementTetP1()),
}


def reaction(t, u, p):
    a, b = u.value
    along = sum(slope[0] for slope in u.gradient())
    source = [
        p.g * a * b * np.cos(3.0 * t) * (1.0 + p.m**2) + p.m * u.x[-1],
        p.m * a - b**2 + along,
    ]
    return source, [-p.m * (1.0 + u.value**2) * slope for slope in u.gradient()]


def loss(t, u, p):
    return p.m * u.value**2 * (1.0 + t) * (2.0 + u.normal[0])


def density(t, u, p):
    return u.value[0] ** 3 * p.m**2 + p.g * u.value[1] * t + u.gradient()[0][0] ** 2


class Case:
    """Two fields on quadratic functions, one of them fixed at a side, and a parameter on others."""

    def __init__(self, mesh="line", *, fields=True, comm=WORLD):
        points, element, coarse = MESHES[mesh]
        # facets of one side: other ranks have none of them
        points = points.with_boundaries({"side": lambda x: x[0] == 0.0})
        space = FiniteElements(
            skfem.Basis(points, element), 2, dirichlet={"side": (0.2, None)}, comm=comm
        )
        of_field = FiniteElements(skfem.Basis(points, coarse), comm=comm)
        known = {"fields": ["m"], "field_space": of_field} if fields else {}
        names = ["g"] if fields else ["g", "m"]
        self.model = trace_weak_form(reaction, space, names, outflow={"side": loss}, **known)
        self.cost = self.model.terminal(density) + self.model.running(density)
        self.space, self.u0 = (
            space,
            space.interpolate(
                lambda x: (0.3 + 0.2 * np.cos(3.0 * x[0]), 0.4 + 0.1 * np.sin(x[-1]))
            ),
        )
        m = of_field.interpolate(lambda x: 0.1 + 0.03 * np.sin(4.0 * x[0])) if fields else 0.1
        self.p = self.model.pack(g=0.8, m=m)
        self.dp = self.model.pack(g=0.3, m=0.05)
        control = FieldParameters if fields else ds.Parameters
        self.control = control({"g": ds.Parameter(0.8), "m": ds.Parameter(m, scale="log")}, self.u0)

    def run(self, stepping=CUT, **options):
        return ds.solve(self.model, self.u0, self.p, stepping, **options)


@pytest.mark.mpi
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("method", ["cn", "esdirk3"])
def test_derivatives_on_every_mesh(mesh, method):
    case, stepping = Case(mesh), ds.Stepping((0.0, 0.2), method, dt=0.06)
    assert duality(case.run(stepping), case.cost) < 1e-12
    orders = ds.taylor(ds.Reduced(case.model, case.cost, stepping, case.control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9


@pytest.mark.mpi
@pytest.mark.parametrize("fields", [False, True], ids=["numbers", "field"])
def test_checkpoints_give_the_same_bits(fields):
    case = Case(fields=fields)
    whole, few = case.run(), case.run(checkpoint=Checkpoints(2))
    for function in (ds.adjoint, lambda *of: ds.hessian_product(*of, case.u0, case.dp)):
        ours, theirs = function(few, case.cost), function(whole, case.cost)
        np.testing.assert_array_equal(ours.p, theirs.p)
        np.testing.assert_array_equal(ours.u0, theirs.u0)


@pytest.mark.mpi
@pytest.mark.parametrize("fields", [False, True], ids=["numbers", "field"])
def test_fits_with_large_residuals(fields):
    """Exact products with the Hessian; those of Gauss and Newton are squares of tangents."""
    case, times = Case(fields=fields), [0.1, 0.15]
    run = case.run(t_eval=times)
    misfit = ds.LeastSquares(times, [1.4 * run.at(time) for time in times], 0.1)
    assert duality(run, misfit) < 1e-12
    functional = ds.Reduced(case.model, misfit, CUT, case.control)
    orders = ds.taylor(functional, hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9
    x = functional.start()
    dx = x.copy()
    dx.set(0.3)

    def states(eps):
        moved = x.copy()
        moved.axpy(eps, dx)
        _, p = case.control.unpack(case.model, moved)
        there = ds.solve(case.model, case.u0, p, CUT, t_eval=times)
        return [there.at(time) for time in times]

    h = 1e-3
    ahead, behind, further, back = (states(k * h) for k in (1, -1, 2, -2))
    squares = 0.0
    for one, other, far, near in zip(ahead, behind, further, back, strict=True):
        slope = (8.0 * (one - other) - (far - near)) * (1.0 / (12.0 * h * 0.1))
        squares += slope.dot(slope)
    product = functional.gauss_newton_product(x, dx)
    assert product.dot(dx) == pytest.approx(squares, rel=1e-9)


@pytest.mark.mpi
@pytest.mark.parametrize("fields", [False, True], ids=["numbers", "field"])
def test_an_event_of_the_state_halves_it(fields):
    case = Case(fields=fields)
    start = case.u0.sum()
    level = start + 0.5 * (case.run().final.sum() - start)

    def halved(_t, u, _p, out):
        u.copy(out)
        out.scale(0.5)

    def halved_along(_t, _u, _p, v, out):
        halved(0.0, v, None, out)

    def nothing(_t, _u, _p, _du, _dp, out, *of_field):
        out.zeroEntries()
        return of_field[0].zeroEntries() if fields else np.zeros(2)

    def nothing_in_time(_t, _u, _p, out, *of_field):
        out.zeroEntries()
        if fields:
            of_field[0].zeroEntries()
            return 0.0
        return np.zeros(2), 0.0

    event = ds.Event(
        lambda t, u, p: u.sum() - level,
        halved,
        direction=-1 if level < start else 1,
        when_u=lambda t, u, p, out: out.set(1.0),
        when_p=INDEPENDENT,
        when_t=AUTONOMOUS,
        when_hessian=nothing,
        when_hessian_t=nothing_in_time,
        reset_u=Products(halved_along, halved_along),
        reset_p=Products(
            lambda _t, _u, _p, _dp, out: out.zeroEntries(),
            lambda _t, _u, _p, _w, out: out.zeroEntries(),
        ),
        reset_t=AUTONOMOUS,
        reset_hessian=lambda t, u, p, w, *others: nothing(t, u, p, *others),
    )
    model = add_events(case.model, [event])
    assert len(ds.solve(model, case.u0, case.p, CUT).crossings) == 1
    cost = case.model.terminal(density)
    assert duality(ds.solve(model, case.u0, case.p, CUT), cost) < 1e-12
    orders = ds.taylor(ds.Reduced(model, cost, CUT, case.control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9


@pytest.mark.mpi
def test_a_start_that_follows_numbers():
    case = Case(fields=False)

    def start(p, out):
        case.u0.copy(out)
        out.scale(p[0] ** 2)

    def tangent(p, dp, out):
        case.u0.copy(out)
        out.scale(2.0 * p[0] * dp[0])

    def curvature(p, w, dp):
        return np.array([2.0 * dp[0] * case.u0.dot(w), 0.0])

    by_p = Products(tangent, lambda p, w: np.array([2.0 * p[0] * case.u0.dot(w), 0.0]))
    control = ds.Parameters(
        {"g": ds.Parameter(0.8), "m": ds.Parameter(0.1)}, start, by_p, curvature
    )
    orders = ds.taylor(ds.Reduced(case.model, case.cost, CUT, control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9


def test_adaptive_runs_have_right_derivatives_at_times_between():
    case = Case(comm=SELF)
    stepping = ds.Stepping((0.0, 0.2), "esdirk4", rtol=1e-5)
    run = case.run(stepping, t_eval=[0.07, 0.13])
    misfit = ds.LeastSquares([0.07, 0.13], [case.u0, case.u0], 0.1)
    assert duality(run, misfit) < 1e-12


def test_what_is_not_supported_is_refused():
    case = Case(comm=SELF)
    with pytest.raises(ds.UnsupportedError, match="without a mass"):
        case.run(ds.Stepping((0.0, 0.2), "rk4", dt=0.01))
    entries = {"g": ds.Parameter(0.8), "m": ds.Parameter(0.1)}
    with pytest.raises(ds.InputError, match="initial_state is a function"):
        FieldParameters(entries, lambda p, out: case.u0.copy(out))
    with pytest.raises(ds.InputError, match="parameters are fields"):
        ds.Parameters(entries, case.u0).check(case.model)
    numbers = Case(fields=False, comm=SELF)
    follows = ds.Parameters(entries, lambda p, out: numbers.u0.copy(out))
    functional = ds.Reduced(numbers.model, numbers.cost, CUT, follows)
    with pytest.raises(ds.UnsupportedError, match="initial_state_p"):
        functional.gradient(functional.start())
