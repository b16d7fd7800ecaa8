# cython: language_level=3
"""Numbers of arrays and vectors without the views of petsc4py; types in numbers.pyi."""

from libc.string cimport memcpy

cimport numpy as np

from daeosens.petsc._kernels.filling cimport (
    MAT_FINAL_ASSEMBLY, MatAssemblyType, PetscInt, PetscScalar, VecGetArrayRead, VecGetArrayWrite,
    VecGetLocalSize, VecRestoreArrayRead, VecRestoreArrayWrite, all_finite
)
from petsc4py.PETSc cimport CHKERR, Mat, PetscErrorCode, PetscMat, Vec


cdef extern from "petscmat.h" nogil:
    ctypedef int PetscBool
    ctypedef void *PetscObject
    PetscErrorCode PetscObjectTypeCompare(PetscObject, const char *, PetscBool *)
    PetscErrorCode MatGetSize(PetscMat, PetscInt *, PetscInt *)
    PetscErrorCode MatDenseGetLDA(PetscMat, PetscInt *)
    PetscErrorCode MatDenseGetArrayWrite(PetscMat, PetscScalar **)
    PetscErrorCode MatDenseRestoreArrayWrite(PetscMat, PetscScalar **)
    PetscErrorCode MatAssemblyBegin(PetscMat, MatAssemblyType)
    PetscErrorCode MatAssemblyEnd(PetscMat, MatAssemblyType)


np.import_array()


def finite_numbers(np.ndarray values):
    """Return whether all numbers of an array of doubles, of any layout, are finite."""
    if np.PyArray_TYPE(values) != np.NPY_DOUBLE:
        raise TypeError("an array of double precision numbers is expected")
    if not np.PyArray_ISNOTSWAPPED(values):  # numbers of another kind of machine, as files have
        values = values.astype("d")
    values = np.PyArray_GETCONTIGUOUS(values)
    return bool(all_finite(<double *>np.PyArray_DATA(values), np.PyArray_SIZE(values)))


def numbers_of(Vec vec):
    """Return a copy of the local numbers [n_local] of a vector."""
    cdef const PetscScalar *numbers = NULL
    cdef PetscInt count = 0
    CHKERR(VecGetLocalSize(vec.vec, &count))
    cdef np.npy_intp size = count
    cdef np.ndarray array = np.PyArray_EMPTY(1, &size, np.NPY_DOUBLE, 0)
    CHKERR(VecGetArrayRead(vec.vec, &numbers))
    if count:  # a vector of nothing has no array
        memcpy(np.PyArray_DATA(array), numbers, <size_t>count * sizeof(double))
    CHKERR(VecRestoreArrayRead(vec.vec, &numbers))
    return array


def put_numbers(Vec vec, np.ndarray values):
    """Overwrite the local numbers [n_local] of a vector; return whether ``values`` fit."""
    cdef PetscScalar *numbers = NULL
    cdef PetscInt count = 0
    CHKERR(VecGetLocalSize(vec.vec, &count))
    if (
        np.PyArray_NDIM(values) != 1 or np.PyArray_SIZE(values) != count
        or np.PyArray_TYPE(values) != np.NPY_DOUBLE or not np.PyArray_ISNOTSWAPPED(values)
    ):
        return False
    values = np.PyArray_GETCONTIGUOUS(values)
    CHKERR(VecGetArrayWrite(vec.vec, &numbers))
    if count:
        memcpy(numbers, np.PyArray_DATA(values), <size_t>count * sizeof(double))
    CHKERR(VecRestoreArrayWrite(vec.vec, &numbers))
    return True


def put_finite_numbers(Vec vec, object values):
    """Overwrite the local numbers as ``put_numbers``, if all of ``values`` are finite as well."""
    if not np.PyArray_CheckExact(values) or np.PyArray_TYPE(values) != np.NPY_DOUBLE:
        return False
    return finite_numbers(values) and put_numbers(vec, values)


def put_finite_matrix(Mat mat, object values):
    """Overwrite a dense matrix of one rank; return whether it is one, and ``values`` fit."""
    cdef PetscBool dense = 0
    cdef PetscInt rows = 0, columns = 0, stride = 0, i, j
    cdef PetscScalar *entries = NULL
    cdef const double *numbers
    cdef np.ndarray array
    if (
        not np.PyArray_CheckExact(values) or np.PyArray_TYPE(values) != np.NPY_DOUBLE
        or np.PyArray_NDIM(values) != 2 or not np.PyArray_ISNOTSWAPPED(values)
    ):
        return False
    CHKERR(PetscObjectTypeCompare(<PetscObject>mat.mat, b"seqdense", &dense))
    CHKERR(MatGetSize(mat.mat, &rows, &columns))
    if (
        not dense or np.PyArray_DIM(values, 0) != rows or np.PyArray_DIM(values, 1) != columns
        or not finite_numbers(values)
    ):
        return False
    array = np.PyArray_GETCONTIGUOUS(values)
    numbers = <const double *>np.PyArray_DATA(array)
    CHKERR(MatDenseGetLDA(mat.mat, &stride))
    CHKERR(MatDenseGetArrayWrite(mat.mat, &entries))
    for i in range(rows):
        for j in range(columns):  # PETSc keeps columns, NumPy rows
            entries[i + j * stride] = numbers[i * columns + j]
    CHKERR(MatDenseRestoreArrayWrite(mat.mat, &entries))
    CHKERR(MatAssemblyBegin(mat.mat, MAT_FINAL_ASSEMBLY))
    CHKERR(MatAssemblyEnd(mat.mat, MAT_FINAL_ASSEMBLY))
    return True
