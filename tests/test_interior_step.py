"""The step of pdipm: inertia, shifts, damping; and TAO's multipliers."""

import numpy as np
import pytest
from petsc4py import PETSc
from scipy.linalg import lapack

from daeosens._petsc import multipliers
from daeosens.errors import InputError, SolveError
from daeosens.optimize.interior_step import Barrier, DampedStep, KktFactor, inertia


def kkt_matrix(rng, n, n_e, n_i, hessian):
    """[H, Je^T, -Ji^T, 0; Je, 0, 0, 0; -Ji, 0, 0, I; 0, 0, I, D] with D > 0."""
    rows_e, rows_i = rng.normal(size=(n_e, n)), rng.normal(size=(n_i, n))
    size = n + n_e + 2 * n_i
    matrix = np.zeros((size, size))
    matrix[:n, :n] = hessian
    matrix[n : n + n_e, :n] = rows_e
    matrix[n + n_e : n + n_e + n_i, :n] = -rows_i
    matrix[n + n_e + n_i :, n + n_e : n + n_e + n_i] = np.eye(n_i)
    lower = np.tril(matrix, -1)
    diagonal = np.diag(np.append(np.zeros(n + n_e + n_i), 10.0 ** rng.uniform(-6, 6, size=n_i)))
    matrix = lower + lower.T + diagonal
    matrix[:n, :n] = hessian
    return matrix


def signs(matrix):
    values = np.linalg.eigvalsh(matrix)
    return int((values > 0).sum()), int((values < 0).sum()), 0


def test_inertia_is_that_of_the_eigenvalues(rng):
    for n in (1, 2, 5, 12):
        matrix = rng.normal(size=(n, n))
        matrix = matrix + matrix.T
        factor, pivots, _ = lapack.dsytrf(matrix, lower=1)
        assert inertia(factor, pivots) == signs(matrix)


def test_singular_matrix_has_zeros():
    factor, pivots, _ = lapack.dsytrf(np.diag([1.0, 0.0, -2.0]), lower=1)
    assert inertia(factor, pivots) == (1, 1, 1)


@pytest.mark.parametrize("curvature", [1.0, -3.0, 0.0])
def test_factor_shifts_to_the_right_inertia(rng, curvature):
    n, n_e, n_i = 6, 2, 3
    matrix = kkt_matrix(rng, n, n_e, n_i, curvature * np.eye(n))
    factor = KktFactor(n, n_e, n_i)
    factor.factor(matrix)
    shifted = matrix.copy()
    shifted[range(n), range(n)] += factor.shift
    assert signs(shifted)[:2] == (n + n_i, n_e + n_i)
    assert (factor.shift > 0.0) == (signs(matrix)[:2] != (n + n_i, n_e + n_i))
    b = rng.normal(size=len(matrix))
    np.testing.assert_allclose(shifted @ factor.solve(b), b, rtol=1e-8, atol=1e-8)


def test_second_shift_begins_below_the_first(rng):
    matrix = kkt_matrix(rng, 4, 1, 1, -2.0 * np.eye(4))
    factor = KktFactor(4, 1, 1)
    factor.factor(matrix)
    first = factor.shift
    factor.factor(matrix)
    assert 2.0 / 8 < factor.shift <= first


def test_dependent_constraints_are_regularised(rng):
    matrix = kkt_matrix(rng, 4, 2, 0, np.eye(4))
    matrix[5] = matrix[4]
    matrix[:, 5] = matrix[:, 4]
    factor = KktFactor(4, 2, 0)
    factor.factor(matrix)
    assert np.isfinite(factor.solve(np.append(np.ones(4), [1.0, 1.0]))).all()


def test_what_no_shift_helps_is_an_error():
    with pytest.raises(SolveError, match=r'cannot be factored(.|\n)*"almm"'):
        KktFactor(1, 0, 0).factor(np.array([[np.nan]]))


def stepped(at, x=0.0):
    """Return the share of the Newton step for min (x - 1)^2 / 2, x <= 3, that is taken."""

    def barrier(point):
        return Barrier(
            *at(float(point[0])), np.zeros(0), 3.0 - point, np.zeros((0, 1)), -np.ones((1, 1))
        )

    start = np.array([x])
    z, lam, mu = 3.0 - start, np.array([1e-9]), 1e-9
    matrix = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, lam[0] / z[0]]])
    now = barrier(start)
    right = np.concatenate([now.gradient + lam, z - now.inequalities, lam - mu / z])
    step = DampedStep(
        KktFactor(1, 0, 1),
        lambda: (np.zeros(0), lam),
        lambda: (start, now),
        barrier,
        lambda answer: answer,
    )
    dense = PETSc.Mat().createDense((3, 3), array=matrix, comm=PETSc.COMM_SELF)
    pc = PETSc.PC().create(comm=PETSc.COMM_SELF)
    pc.setOperators(dense)
    step.setUp(pc)
    b, y = dense.createVecs()
    b.setArray(right)
    step.apply(pc, b, y)
    return -y.getArray()[0]


def parabola(x):
    return 0.5 * (x - 1.0) ** 2, np.array([x - 1.0])


def test_full_step_is_taken_where_it_leads_down():
    assert stepped(parabola) == pytest.approx(1.0, abs=1e-8)


def test_step_is_halved_after_failed_solves():
    def bounded(x):
        if x > 0.3:
            raise SolveError("too far")
        return parabola(x)

    assert stepped(bounded) == pytest.approx(0.25, abs=1e-8)


def test_step_is_halved_where_it_leads_up():
    def wall(x):
        return (100.0, np.array([100.0])) if x > 0.6 else parabola(x)

    assert stepped(wall) == pytest.approx(0.5, abs=1e-8)


def test_failure_of_all_shares_comes_out():
    def nowhere(x):
        if x != 0.0:
            raise SolveError("nowhere")
        return parabola(x)

    with pytest.raises(SolveError, match="nowhere"):
        stepped(nowhere)


def test_multipliers_are_those_of_pdipm_only():
    tao = PETSc.TAO().create(comm=PETSc.COMM_SELF)
    tao.setType("almm")
    with pytest.raises(InputError, match=r"of type 'almm'(.|\n)*'pdipm'"):
        multipliers(tao)
    tao.setType("pdipm")
    assert multipliers(tao) == []
    tao.destroy()
