"""Unknowns of a grid's points by name, and those without derivative in time."""

import numpy as np
import pytest
from fields import ENERGY, random_field
from petsc4py import PETSc

import daeosens as ds
from daeosens.problem.grids import Grid
from daeosens.verify import duality

SELF = PETSc.COMM_SELF
BOX, SHAPE = ((0.0, 1.0), (0.0, 1.0)), (9, 8)


def named(boundary="neumann", comm=None):
    return Grid(BOX, SHAPE, boundary, comm=comm or PETSc.COMM_WORLD, names=["heat", "light"])


def lit(t, u, p):
    """Light spreads at once from where it is hot, and is absorbed."""
    absorbed = p.loss * u.light.center
    return [u.heat.laplacian() + absorbed, u.light.laplacian() - absorbed + u["heat"].center ** 2]


def model_of(grid, **options):
    return ds.trace_stencil(lit, grid, ["loss"], algebraic=["light"], **options)


def start_of(model, grid, p):
    u0 = random_field(grid, 2)
    u0.shift(1.0)
    return ds.consistent_state(model, u0, p)


def test_names_are_those_of_numbers():
    def numbered(t, u, p):
        absorbed = p.loss * u.center[1]
        bend = u.laplacian()
        return [bend[0] + absorbed, bend[1] - absorbed + u.center[0] ** 2]

    conditions = {"heat": 1.0, "light": None}
    by_name = model_of(named(comm=SELF), dirichlet={"x": conditions})
    plain = Grid(BOX, SHAPE, "neumann", 2, SELF)
    by_number = ds.trace_stencil(
        numbered, plain, ["loss"], algebraic=[1], dirichlet={"x": [1.0, None]}
    )
    u, outs = random_field(plain, 1), [plain.create_vec() for _ in range(2)]
    for model, out in zip((by_name, by_number), outs, strict=True):
        model.rhs(0.0, u, np.array([0.7]), out)
    np.testing.assert_array_equal(outs[0].array, outs[1].array)
    of_t = ds.trace_stencil(
        lit, named(comm=SELF), ["loss"], dirichlet=lambda t, x, p: {"heat": t, "light": 0.0}
    )
    assert not of_t.autonomous


@pytest.mark.mpi
@pytest.mark.parametrize("jacobian", ["auto", "assembled", "products"])
def test_algebraic_unknowns_hold_and_derivatives_are_exact(jacobian):
    grid = named()
    model, p = model_of(grid, jacobian=jacobian), np.array([0.7])
    u0, out = start_of(model, grid, p), grid.create_vec()
    for method in ("cn", "esdirk3"):
        tight = {"snes_rtol": 1e-12}
        run = ds.solve(model, u0, p, ds.Stepping((0.0, 0.2), method, dt=0.05, options=tight))
        model.rhs(0.0, run.final, p, out)
        assert abs(grid.values(out)[..., 1]).max(initial=0.0) < 1e-8
        assert duality(run, ENERGY) < 1e-12


def test_what_is_eliminated_by_hand_is_the_same():
    """An unknown that its own row gives at each point may be put into the others."""
    grid = Grid(((0.0, 1.0),), (12,), "neumann", comm=SELF, names=["u", "cube"])
    pair = ds.trace_stencil(
        lambda t, u, p: [u.u.laplacian() - p.k * u.cube.center, u.u.center**3 - u.cube.center],
        grid,
        ["k"],
        algebraic=["cube"],
    )
    line = Grid(((0.0, 1.0),), (12,), "neumann", comm=SELF)
    alone = ds.trace_stencil(lambda t, u, p: u.laplacian() - p.k * u.center**3, line, ["k"])
    stepping, (x,) = (
        ds.Stepping((0.0, 0.3), "esdirk4", dt=0.03, options={"snes_rtol": 1e-13}),
        (line.coordinates()),
    )
    u0 = 1.0 + np.sin(3.0 * x)
    runs = [
        ds.solve(alone, u0, [2.0], stepping),
        ds.solve(pair, np.stack([u0, u0**3], -1).ravel(), [2.0], stepping),
    ]
    ends = [runs[0].final.array, runs[1].final.array[::2]]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-10)

    def total(stride):
        def by_u(t, u, p, out):
            out.array[:] = 0.0
            out.array[::stride] = u.array[::stride]

        return ds.Terminal(
            lambda t, u, p: 0.5 * (u.array[::stride] ** 2).sum(), by_u, "independent"
        )

    slopes = [ds.adjoint(run, total(k)).p for run, k in zip(runs, (1, 2), strict=True)]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-9)


@pytest.mark.mpi
def test_parameter_fields_go_with_algebraic_unknowns():
    grid = named()
    model = ds.trace_stencil(
        lambda t, u, p: [
            u.laplacian(p.k)[0] + u.light.center,
            u.laplacian(p.k)[1] - u.light.center,
        ],
        grid,
        fields=["k"],
        algebraic=["light"],
        dirichlet={"x-": {"light": 1.0}},
    )
    x, _ = grid.coordinates()
    p = model.pack(k=0.3 + 0.1 * np.sin(x))
    u0 = start_of(model, grid, p)
    run = ds.solve(
        model, u0, p, ds.Stepping((0.0, 0.2), "cn", dt=0.05, options={"snes_rtol": 1e-13})
    )
    assert duality(run, ENERGY) < 1e-12


def test_what_cannot_be_algebraic_is_refused():
    grid = named(comm=SELF)

    def made(grid=grid, **options):
        return ds.trace_stencil(lit, grid, ["loss"], **options)

    for algebraic, told in {
        ("lihgt",): r"no unknown 'lihgt'(.|\n)*\"light\"",
        (2,): "no unknown 2",
        ("heat", "light"): "all unknowns",
    }.items():
        with pytest.raises(ds.InputError, match=told):
            made(algebraic=algebraic)
    with pytest.raises(ds.InputError, match=r"algebraic = .light.(.|\n)*a sequence"):
        made(algebraic="light")
    with pytest.raises(ds.InputError, match=r"have no names(.|\n)*names="):
        made(Grid(BOX, SHAPE, "neumann", 2, SELF), algebraic=["light"])
    with pytest.raises(ds.InputError, match=r"no unknown 'lihgt'"):
        made(dirichlet={"x": {"lihgt": 1.0}})
    with pytest.raises(ds.InputError, match=r"u\.lihgt is not there(.|\n)*heat, light"):
        ds.trace_stencil(lambda t, u, p: u.lihgt, grid)
    with pytest.raises(ds.UnsupportedError, match=r"rk4(.|\n)*cn"):
        ds.solve(
            made(algebraic=[1]),
            random_field(grid, 1),
            [1.0],
            ds.Stepping((0.0, 1.0), "rk4", dt=0.1),
        )


@pytest.mark.parametrize(
    ("names", "dof", "told"),
    [(["a", "a"], 1, "different"), (["a", "b"], 3, "3 different"), ([1.0], 1, "names")],
)
def test_names_that_are_none_are_refused(names, dof, told):
    with pytest.raises(ds.InputError, match=told):
        Grid(BOX, SHAPE, "neumann", dof, SELF, names)


def test_constraints_that_do_not_contain_their_unknown_are_refused():
    """The divergence does not contain the pressure: that is of index 2."""
    grid = Grid(BOX, SHAPE, "periodic", comm=SELF, names=["vx", "vy", "pressure"])

    def flow(t, u, p):
        (px, py), (vx, _), (_, vy) = u.pressure.gradient(), u.vx.gradient(), u.vy.gradient()
        return [u.vx.laplacian() - px, u.vy.laplacian() - py, vx + vy]

    with pytest.raises(
        ds.InputError, match=r"row 2 of .* no algebraic unknown .pressure(.|\n)*Poisson"
    ):
        ds.trace_stencil(flow, grid, algebraic=["pressure"])
