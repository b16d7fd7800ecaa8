"""Fields and numbers in one control: scales, bounds, coarser meshes, any number of ranks."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
from fields import own_part
from petsc4py import PETSc

import daeosens as ds
from daeosens.functional import FieldParameters
from daeosens.problem import add_events
from daeosens.problem.grids import Grid
from daeosens.verify import duality
from tests.tracing.test_stencil_fields import ENERGY, NUMBERS, Case, make_grid

SELF = PETSc.COMM_SELF
CASES = [(2, "periodic", "rk4"), (1, "neumann", "cn"), (3, "zero", "beuler")]


def mesh_of(model, factor=2):
    grid = model.fields.grid
    shape = tuple(max(3, n // factor) for n in grid.shape)
    return type(grid)(grid.box, shape, grid.boundary, comm=grid.comm)


def make(case, *, coarse=True):
    grid = case.model.fields.grid
    mesh = mesh_of(case.model) if coarse else grid
    x, xc = grid.coordinates(), mesh.coordinates()
    values = {
        "a": ds.Parameter(0.7, upper=2.0),
        "eps": 0.1,
        "b": ds.Parameter(0.8, scale="log"),
        "k": ds.Parameter(0.02 * (1 + 0.3 * np.sin(3 * xc[0])), lower=1e-3, scale="log"),
        "s": ds.Parameter(1 + 0.2 * np.cos(2 * x[-1]), upper=np.full(x[0].shape, 4.0)),
    }
    meshes = {"k": mesh} if coarse else {}
    control = FieldParameters(values, case.u0, meshes)
    return ds.Reduced(case.model, ENERGY, case.stepping, control)


@pytest.mark.mpi
@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize(("dimensions", "boundary", "method"), CASES)
def test_gradients_and_hessians_are_right(dimensions, boundary, method, coarse):
    functional = make(Case(dimensions, boundary, method), coarse=coarse)
    functional.check_second_order()
    orders = ds.taylor(functional, hessian=True)
    assert orders.order == pytest.approx(2.0, abs=0.05)
    assert orders.hessian_order == pytest.approx(3.0, abs=0.1)


@pytest.mark.mpi
@pytest.mark.parametrize(("dimensions", "boundary", "method"), CASES)
def test_functionals_do_not_depend_on_the_number_of_ranks(dimensions, boundary, method):
    answers = []
    for comm in (PETSc.COMM_WORLD, SELF):
        case = Case(dimensions, boundary, method, comm)
        functional = make(case)
        x = functional.start()
        dx = x.duplicate()
        dx.set(0.1)
        vecs = [functional.gradient(x), functional.hessian_product(x, dx)]
        control = functional.control
        answers.append(
            (
                functional.value(x),
                [vec.norm() for vec in vecs],
                control.values_at(case.model, x),
                [vec.array[control.parts(case.model)["s"][0]] for vec in vecs],
            )
        )
    (value, norms, p, parts), (expected, *others) = answers
    assert value == pytest.approx(expected, rel=1e-11)
    assert norms == pytest.approx(others[0], rel=1e-10)
    grid = make_grid(dimensions, boundary)
    shape = tuple(reversed(grid.shape))
    assert np.allclose(np.array(p), np.array(others[1]))
    assert np.allclose(p.k.array, own_part(grid, others[1].k.array.reshape(shape)).ravel())
    for part, whole in zip(parts, others[2], strict=True):
        assert np.allclose(
            part, own_part(grid, whole.reshape(shape)).ravel(), rtol=1e-8, atol=1e-12
        )


@pytest.mark.mpi
def test_bounds_hold():
    """Nothing is known of s but that less of it is better: it ends at its bound everywhere."""
    case = Case(2, "neumann", "rk4")
    values = dict.fromkeys(NUMBERS, 0.1) | {"k": 0.02}
    s = ds.Parameter(1.0, lower=0.5, upper=2.0)
    control = FieldParameters({**values, "s": s}, case.u0)
    result = ds.minimize(ds.Reduced(case.model, ENERGY, case.stepping, control), method="bqnls")
    p = control.values_at(case.model, result.x)
    assert 0.5 <= p.s.min()[1] <= p.s.max()[1] <= 2.0
    assert p.s.min()[1] == 0.5


@pytest.mark.mpi
@pytest.mark.parametrize("coarse", [False, True])
def test_a_logarithm_beyond_the_largest_number_is_a_failed_solve_on_all_ranks(coarse):
    functional = make(Case(1, "neumann", "cn"), coarse=coarse)
    x = functional.start()
    array = x.getArray()
    if x.comm.rank == x.comm.size - 1:
        array[array < -3.0] = 800.0  # k, of this rank
    with pytest.raises(ds.SolveError, match=r'"k" = exp\(800\)'):
        functional.value(x)


WRONG = {
    "unknown": ({"c": 1.0}, 'there is no parameter "c"'),
    "missing": ({"k": None}, 'parameter "k" has no value'),
    "none free": ({"a": 0.7}, "no parameter is free"),
    "outside": ({"k": ds.Parameter(1.0, upper=0.5)}, 'parameter "k" is outside its bounds'),
    "crossed": ({"k": ds.Parameter(1.0, lower=2.0, upper=0.5)}, 'bounds of "k" cross'),
    "log": ({"k": ds.Parameter(-1.0, scale="log")}, "on a log scale"),
    "scale": ({"k": ds.Parameter(1.0, scale="sqrt")}, "scale = 'sqrt'"),
    "number": ({"a": ds.Parameter(1.0, upper=0.0)}, 'parameter "a": value = 1 outside its bounds'),
    "shape": ({"a": ds.Parameter([1.0, 2.0])}, 'parameter "a" has 2 values'),
    "not a number": ({"k": "thick"}, "k"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_entries_are_refused(name):
    case = Case(1, "neumann", "rk4", SELF)
    change, message = WRONG[name]
    values = {"a": ds.Parameter(0.7), "eps": 0.1, "b": 0.8, "k": 0.02, "s": 1.0, **change}
    values = {key: value for key, value in values.items() if value is not None}
    with pytest.raises(ds.InputError, match=message):
        ds.Reduced(case.model, ENERGY, case.stepping, FieldParameters(values, case.u0))


def test_wrong_meshes_and_problems_are_refused():
    case = Case(1, "neumann", "rk4", SELF)
    values = {"a": 0.7, "eps": 0.1, "b": 0.8, "k": ds.Parameter(0.02), "s": 1.0}
    other = make_grid(1, "periodic", SELF)
    mesh = type(other)(other.box, (4,), "periodic", comm=SELF)
    for meshes, message in (
        ({"k": mesh}, "as the grid"),
        ({"s": mesh}, "one of the free fields"),
        ({"k": 4}, "a Grid with dof = 1"),
    ):
        with pytest.raises(ds.InputError, match=message):
            FieldParameters(values, case.u0, meshes).check(case.model)
    decay = ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    with pytest.raises(ds.InputError, match="a model with parameter fields"):
        FieldParameters({"rate": ds.Parameter(1.0)}, [1.0]).check(decay)


def driven(t, u, p):
    """Other equations at other times."""
    return u.laplacian(p.k) + p.rate * np.cos(3 * t) * u.center**2


@pytest.mark.mpi
@pytest.mark.parametrize(("method", "size"), [("rk4", 0.021), ("cn", 0.06)])
@pytest.mark.parametrize("events", [(), (ds.Event(0.25),)], ids=["smooth", "event"])
def test_misfits_with_large_residuals_of_runs_whose_last_step_is_cut(method, size, events):
    line = Grid(((0.0, 1.0),), (9,), "neumann", comm=PETSc.COMM_WORLD)
    model = ds.trace_stencil(driven, line, ["rate"], fields=["k"])
    u0, times = line.create_vec(), [0.2, 0.33]
    u0.setArray(0.5 + 0.2 * np.cos(4 * line.coordinates()[0]))
    stepping = ds.Stepping((0.0, 0.5), method, dt=size)
    k = 0.02 * (1 + 0.3 * np.sin(3 * line.coordinates()[0]))
    problem = add_events(model, events) if events else model
    run = ds.solve(problem, u0, model.pack(rate=0.6, k=k), stepping, times)
    misfit = ds.LeastSquares(times, [1.4 * run.at(time) for time in times], 0.1)
    assert duality(run, misfit) < 1e-12
    control = FieldParameters({"rate": ds.Parameter(0.6), "k": ds.Parameter(k, scale="log")}, u0)
    orders = ds.taylor(ds.Reduced(problem, misfit, stepping, control), hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9


def test_what_fields_cannot_be_is_refused():
    case = Case(1, "neumann", "rk4", SELF)
    with pytest.raises(ds.InputError, match="initial_state is a function"):
        FieldParameters({"k": 1.0}, lambda p, out: case.u0.copy(out))
    for event in (ds.Event("a"), ds.Event(0.1, changes={"a": lambda t, u, p: 1.0})):
        with pytest.raises(ds.UnsupportedError, match="parameter is a field"):
            ds.solve(add_events(case.model, [event]), case.u0, case.p, case.stepping)


def test_field_parameters_do_not_keep_problems_and_say_what_to_send():
    def heat():
        grid = Grid(((0.0, 1.0),), (4,), comm=SELF)
        return ds.trace_stencil(lambda t, u, p: u.laplacian(p.k), grid, fields=["k"])

    field = ds.Parameter(np.array([1.0, 2.0, 3.0, 4.0]), scale="log")
    control = FieldParameters({"k": field}, np.ones(4))
    model = heat()
    start = np.log([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(control.start(model).getArray(), start)
    assert copy.deepcopy({"control": control})["control"] is control
    np.testing.assert_array_equal(copy.copy(control).start(model).getArray(), start)
    with pytest.raises(
        ds.UnsupportedError, match=r"FieldParameters cannot be pickled(.|\n)*its arrays"
    ):
        pickle.dumps(control)
    problem = weakref.ref(model)
    del model
    gc.collect()
    assert problem() is None
    # another one, perhaps at the same address, has scales of its own
    np.testing.assert_array_equal(control.start(heat()).getArray(), start)
