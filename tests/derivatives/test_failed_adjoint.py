"""A linear solver fails in the middle of an adjoint: an error on every rank, and the run stays."""

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import ODE, SolveError, Stepping, Terminal, adjoint, solve
from daeosens.timestepping import load_run, save_run

STEP = 0.1
LAST = Terminal(lambda t, u, p: u[0] * u[1], lambda t, u, p: u[::-1].copy())


def problem(broken):
    """Decay; once ``broken`` holds something, I - J dt / 2 is singular before t = 0.5."""

    def jacobian(t, u, p):
        return np.eye(2) * (2.0 / STEP if broken and t < 0.5 else -p[0])

    return ODE(
        lambda t, u, p: -p[0] * u,
        2,
        ["rate"],
        jacobian=jacobian,
        jacobian_p=lambda t, u, p: -u[:, None],
    )


@pytest.mark.parametrize("engine", ["vectors", "arrays"])
def test_singular_matrix_halfway_is_told_and_loses_nothing(engine, tmp_path):
    broken: list[bool] = []
    run = solve(problem(broken), [1.0, 2.0], [0.5], Stepping((0.0, 1.0), "cn", dt=STEP))
    reference = adjoint(run, LAST, engine).p
    save_run(run, tmp_path / "run.h5")
    broken.append(True)
    with pytest.raises(SolveError):
        adjoint(run, LAST, engine)
    broken.clear()
    assert adjoint(run, LAST, engine).p == reference
    assert adjoint(load_run(tmp_path / "run.h5", problem([])), LAST, "vectors").p == pytest.approx(
        reference, rel=1e-12
    )


@pytest.mark.mpi
def test_krylov_solver_that_diverges_in_the_adjoint_is_told_on_all(comm):
    state = PETSc.Vec().createMPI(8, comm=PETSc.COMM_WORLD)
    state.set(1.0)
    broken: list[bool] = []

    def scaled(t, p):
        return 2.0 / STEP if broken and t < 0.5 else -p[0]

    def rhs(t, u, p, out):
        u.copy(out)
        out.scale(-p[0])

    def jacobian(t, u, p, out):
        out.zeroEntries()
        first, last = out.getOwnershipRange()
        for row in range(first, last):
            out.setValue(row, row, scaled(t, p))
        out.assemble()

    def jacobian_p(t, u, p, out):
        out.getDenseArray()[:, 0] = -u.getArray(readonly=True)
        out.assemble()

    decay = ODE(rhs, state=state, parameters=["rate"], jacobian=jacobian, jacobian_p=jacobian_p)
    total = Terminal(lambda t, u, p: u.sum(), lambda t, u, p, out: out.set(1.0), "independent")
    run = solve(decay, state, [0.5], Stepping((0.0, 1.0), "cn", dt=STEP))
    reference = adjoint(run, total).p
    broken.append(True)
    with pytest.raises(SolveError) as told:
        adjoint(run, total)
    assert len(set(comm.allgather(str(told.value)))) == 1
    broken.clear()
    np.testing.assert_allclose(adjoint(run, total).p, reference, rtol=1e-14)
