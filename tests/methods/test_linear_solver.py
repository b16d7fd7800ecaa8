"""The library's choice of linear solvers for implicit steps."""

import pytest
from fields import random_field
from petsc4py import PETSc
from step_matrices import filled_by, upwind

from daeosens import UnsupportedError
from daeosens.methods import linear_solver as solvers
from daeosens.problem.grids import Grid


def diffusing(t, u, p):
    return p.k * u.laplacian() - u.center**3


@pytest.mark.mpi
@pytest.mark.parametrize(("boundary", "rhs"), [("periodic", diffusing), ("zero", upwind)])
@pytest.mark.parametrize("transpose", [False, True])
def test_short_steps_are_solved_by_the_finest_smoother(boundary, rhs, transpose):
    """And as by a new multigrid once they are long, whatever the steps were before."""
    grid = Grid(((0.0, 1.0),) * 2, (75, 70), boundary)
    matrix_of, right = filled_by(rhs, grid, 0.3), random_field(grid, 5)
    solver = solvers.linear_solver(matrix_of(1e-4), {}, grid.dm)
    levels = solver.getPC().getMGLevels()
    assert levels > 1
    for h, formed in ((1e-4, 1), (0.5, levels), (2e-4, levels), (0.02, levels)):
        matrix = matrix_of(h)
        solver.setOperators(matrix)
        anew = solvers.linear_solver(matrix, {}, grid.dm)
        for used in (solver, anew):
            solution, residual = right.duplicate(), right.duplicate()
            (used.solveTranspose if transpose else used.solve)(right, solution)
            (matrix.multTranspose if transpose else matrix.mult)(solution, residual)
            residual.axpy(-1.0, right)
            size = matrix.norm(PETSc.NormType.INFINITY) * solution.norm()
            assert residual.norm() < 1e-11 * size
        assert anew.getIterationNumber() == solver.getIterationNumber()
        assert solvers.levels_in_use(solver.getPC()) == formed
        assert solvers.levels_in_use(anew.getPC()) == (1 if h < 0.01 else levels)


@pytest.mark.mpi
@pytest.mark.parametrize("rhs", [diffusing, upwind])
def test_one_solver_serves_several_matrices_in_turn(rhs):
    """PCMG leaves a matrix at its finest level that is not the last one: 236 iterations.

    And residuals of the first one there: 10000.
    """
    grid = Grid(((0.0, 1.0),) * 2, (75, 70), "zero")
    right, steps = random_field(grid, 5), (1e-4, 0.5, 0.02, 5.0, 100.0)
    fills = [filled_by(rhs, grid, 0.3) for _ in steps]
    solver = solvers.linear_solver(fills[0](1e-4), {}, grid.dm)
    later = [(fills[1], 200.0), (fills[4], 0.02), (fills[0], 5.0), (fills[4], 1e-4)]
    for fill, h in (*zip(fills, steps, strict=True), *later):
        matrix = fill(h)
        solver.setOperators(matrix)
        anew = solvers.linear_solver(matrix, {}, grid.dm)
        for used in (solver, anew):
            (used.solveTranspose if h > 50.0 else used.solve)(right, right.duplicate())
        assert solver.getIterationNumber() == anew.getIterationNumber()


@pytest.mark.mpi
def test_matrices_of_blocks_have_no_coarser_grids():
    """PETSc has no products of these: multigrid ended in a crash of the process."""
    grid = Grid(((0.0, 1.0),) * 2, (75, 70), "periodic")
    matrix, right = filled_by(diffusing, grid, 0.3)(1e-3).convert("baij"), random_field(grid, 5)
    solver = solvers.linear_solver(matrix, {}, grid.dm)
    assert solver.getPC().getType() == "bjacobi"
    solution, residual = right.duplicate(), right.duplicate()
    solver.solve(right, solution)
    matrix.mult(solution, residual)
    residual.axpy(-1.0, right)
    size = matrix.norm(PETSc.NormType.INFINITY) * solution.norm()
    assert residual.norm() < 1e-11 * size
    with pytest.raises(UnsupportedError, match=r'pc_type = "mg" for a matrix of type "\w+baij"'):
        solvers.linear_solver(matrix, {"pc_type": "mg"}, grid.dm)
