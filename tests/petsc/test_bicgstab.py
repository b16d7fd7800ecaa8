"""BiCGStab in passes: PETSc's own to rounding, for any grid; left alone where it does not apply."""

import numpy as np
import pytest
from fields import alone, close, own_part, random_field
from petsc4py import PETSc

from daeosens import Stepping, Terminal, adjoint, solve, tangent, trace_stencil
from daeosens.petsc._kernels import BICGSTAB, take_passes
from daeosens.problem.grids import Grid
from daeosens.verify import duality

SELF = PETSc.COMM_SELF
UNIT = (0.0, 1.0)
SHAPES = [(300, 45), (4500, 3), (700,), (40, 20, 11), (5, 3)]
KRYLOV = {"ksp_type": "bcgs", "pc_type": "none", "ksp_rtol": 1e-10}


def far_reaching(t, u, p):
    """Nonlinear in neighbours two points away along the last dimension, and unsymmetric."""
    a, b = u.center
    none = (0,) * (len(u.spacing) - 1)
    far, near = u[(*none, 2)], u[(*none, -1)]
    return [a * far[1] - p.k * a, near[0] * b - np.sin(b) + 1e-7 * u.laplacian()[1]]


def make(shape, boundary="periodic", comm=SELF):
    """Return a grid, its model, and the matrix 4 - f_u at a random state."""
    grid = Grid((UNIT,) * len(shape), shape, boundary, dof=2, comm=comm)
    model = trace_stencil(far_reaching, grid, ["k"], jacobian="products")
    state, p = random_field(grid, 3), np.array([0.7])
    matrix = model.residual_u.create(0.0, state, state, p)
    model.residual_u.fill(0.0, state, state, p, matrix)
    matrix.shift(4.0)
    return grid, model, matrix


def solver(matrix, *, passes=True, rtol=1e-10, norm=None):
    """Return BiCGStab for a matrix, with a history of residuals."""
    ksp = PETSc.KSP().create(comm=matrix.comm)
    ksp.setOperators(matrix)
    ksp.setType("bcgs")
    ksp.getPC().setType("none")
    ksp.setTolerances(rtol=rtol)
    if norm is not None:
        ksp.setNormType(norm)
    ksp.setConvergenceHistory()
    if passes:
        take_passes(ksp, matrix)
        assert ksp.getType() == BICGSTAB
    return ksp


def energy():
    return Terminal(lambda t, u, p: 0.5 * u.dot(u), lambda t, u, p, out: u.copy(out), "independent")


@pytest.mark.slow
@pytest.mark.parametrize("boundary", ["periodic", "zero"])
@pytest.mark.parametrize("shape", SHAPES)
def test_iterates_are_those_of_petsc(shape, boundary):
    grid, _, matrix = make(shape, boundary)
    right, guess = random_field(grid, 1), random_field(grid, 2)
    ours, theirs = solver(matrix), solver(matrix, passes=False)
    for transpose in (False, True):
        for nonzero in (False, True):
            values = []
            for ksp in (ours, theirs):
                x = guess.copy()
                ksp.setInitialGuessNonzero(nonzero)
                (ksp.solveTranspose if transpose else ksp.solve)(right, x)
                values.append(x)
            assert close(*values) < 1e-14
            assert ours.getIterationNumber() == theirs.getIterationNumber() > 1
            assert ours.getConvergedReason() == theirs.getConvergedReason() > 0
            mine, other = ours.getConvergenceHistory(), theirs.getConvergenceHistory()
            np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-13)
            residual = right.duplicate()
            (matrix.multTranspose if transpose else matrix.mult)(values[0], residual)
            assert close(residual, right) < 1e-9


@pytest.mark.slow
def test_what_ends_the_iterations():
    grid, _, matrix = make((20, 30))
    right, x = random_field(grid, 1), grid.create_vec()
    ksp = solver(matrix)
    seen = []
    ksp.setMonitor(lambda _ksp, number, norm: seen.append((number, norm)))
    ksp.setTolerances(rtol=0.0, max_it=3)
    ksp.solve(right, x)
    assert ksp.getConvergedReason() == PETSc.KSP.ConvergedReason.DIVERGED_MAX_IT
    assert [number for number, _ in seen] == [0, 1, 2, 3]
    assert seen[0][1] == pytest.approx(right.norm(), rel=1e-15)
    right.zeroEntries()
    ksp.solve(right, x)
    assert ksp.getConvergedReason() == PETSc.KSP.ConvergedReason.CONVERGED_ATOL
    assert x.norm() == 0.0
    right.set(np.nan)
    ksp.solve(right, x)
    assert ksp.getConvergedReason() == PETSc.KSP.ConvergedReason.DIVERGED_NANORINF


def test_a_solution_after_half_an_iteration_is_exact():
    grid, _, matrix = make((20, 30))
    matrix.scale(0.0)
    matrix.shift(4.0)
    right, x = random_field(grid, 1), grid.create_vec()
    ksp = solver(matrix)
    ksp.solve(right, x)
    assert ksp.getConvergedReason() > 0
    x.scale(4.0)
    assert close(x, right) < 1e-15


def test_a_number_of_iterations_without_norms():
    grid, _, matrix = make((20, 30))
    right = random_field(grid, 1)
    values = []
    for passes in (True, False):
        ksp = solver(matrix, passes=passes, norm=PETSc.KSP.NormType.NONE)
        ksp.setTolerances(max_it=3)
        x = grid.create_vec()
        ksp.solve(right, x)
        assert ksp.getIterationNumber() == 3
        values.append(x)
    assert close(*values) < 1e-14


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "preconditioner"), [("gmres", "none"), ("bcgs", "mat")])
def test_other_solvers_stay(kind, preconditioner):
    def taken(matrix, kind, preconditioner):
        ksp = solver(matrix, passes=False)
        ksp.setType(kind)
        ksp.getPC().setType(preconditioner)
        take_passes(ksp, matrix)
        return ksp.getType()

    _, _, matrix = make((5, 4))
    assert taken(matrix, "bcgs", "none") == BICGSTAB
    assert taken(matrix, kind, preconditioner) == kind


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("method", ["cn", "beuler"])
def test_gradients_are_the_same_on_any_ranks(method):
    grid = Grid((UNIT, UNIT), (16, 17), dof=2)
    stepping = Stepping((0.0, 1.0), method, dt=0.25, options=KRYLOV | {"ksp_rtol": 1e-14})
    values = []
    for value in (grid, alone(grid)):
        model = trace_stencil(far_reaching, value, ["k"], jacobian="products")
        run = solve(model, random_field(value, 5), [0.7], stepping)
        gradient = adjoint(run, energy())
        values.append([value.values(run.final), value.values(gradient.u0_vec), gradient.p])
    for mine, whole in zip(*values, strict=True):
        expected = whole if mine.ndim == 1 else own_part(grid, whole)
        np.testing.assert_allclose(mine, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cn", "beuler", "midpoint"])
def test_adjoint_is_transpose_of_tangent(method):
    grid, model, _ = make((30, 90))
    stepping = Stepping((0.0, 1.0), method, dt=0.25, options=KRYLOV | {"ksp_rtol": 1e-14})
    run = solve(model, random_field(grid, 5), [0.7], stepping)
    assert duality(run, energy()) < 1e-12
    du, dp = random_field(grid, 6), np.array([0.3])
    gradient = adjoint(run, energy())
    along = tangent(run, du, dp).final.dot(run.final)
    assert gradient.u0_vec.dot(du) + gradient.p @ dp == pytest.approx(along, rel=1e-12)


@pytest.mark.slow
def test_another_operator_may_follow():
    grid, _, matrix = make((20, 30))
    right, x, residual = random_field(grid, 1), grid.create_vec(), grid.create_vec()
    ksp = solver(matrix)
    ksp.solve(right, x)
    _, _, other = make((20, 30), "zero")
    for value in (other, matrix):
        ksp.setOperators(value)
        ksp.solve(right, x)
        value.mult(x, residual)
        assert close(residual, right) < 1e-9
    diagonal = PETSc.Mat().createConstantDiagonal([right.getSizes()] * 2, 1.0, comm=SELF)
    ksp.setOperators(diagonal)
    with pytest.raises(PETSc.Error):
        ksp.solve(right, x)
