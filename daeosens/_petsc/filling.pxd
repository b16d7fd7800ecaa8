# cython: language_level=3
"""How values of C functions are judged and put into matrices; shared by the extensions."""

from petsc4py.PETSc cimport PetscErrorCode, PetscMat, PetscVec


cdef extern from "petscmat.h" nogil:
    # Typed loosely on purpose: the C compiler takes the true widths from PETSc's own header.
    ctypedef int PetscInt
    ctypedef double PetscScalar
    ctypedef enum MatAssemblyType:
        MAT_FINAL_ASSEMBLY
    PetscErrorCode VecGetLocalSize(PetscVec, PetscInt *)
    PetscErrorCode VecGetArrayRead(PetscVec, const PetscScalar **)
    PetscErrorCode VecRestoreArrayRead(PetscVec, const PetscScalar **)
    PetscErrorCode VecGetArrayWrite(PetscVec, PetscScalar **)
    PetscErrorCode VecRestoreArrayWrite(PetscVec, PetscScalar **)


cdef extern from *:
    """
    static inline int all_finite(const double *values, long count)
    {
        double sum = 0.0;
        for (long i = 0; i < count; i++) sum += 0.0 * values[i];  /* NaN unless all are finite */
        return sum == 0.0;
    }
    /* by rows into a serial dense matrix, or, where places are given, into the values of an AIJ
       matrix, whose other values become zero */
    static inline PetscErrorCode put_values(
        Mat matrix, const double *given, const int *places, long count)
    {
        PetscScalar *values;
        PetscFunctionBegin;
        if (places) {
            PetscCall(MatZeroEntries(matrix));
            PetscCall(MatSeqAIJGetArrayWrite(matrix, &values));
            for (long k = 0; k < count; k++) values[places[k]] = given[k];
            PetscCall(MatSeqAIJRestoreArrayWrite(matrix, &values));
        } else {
            PetscInt rows, columns, leading;
            PetscCall(MatGetSize(matrix, &rows, &columns));
            PetscCall(MatDenseGetLDA(matrix, &leading));
            PetscCall(MatDenseGetArrayWrite(matrix, &values));
            for (PetscInt j = 0; j < columns; j++)
                for (PetscInt i = 0; i < rows; i++)
                    values[j * leading + i] = given[i * columns + j];
            PetscCall(MatDenseRestoreArrayWrite(matrix, &values));
        }
        PetscCall(MatAssemblyBegin(matrix, MAT_FINAL_ASSEMBLY));
        PetscCall(MatAssemblyEnd(matrix, MAT_FINAL_ASSEMBLY));
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    """
    bint all_finite(const double *values, long count) noexcept nogil
    PetscErrorCode put_values(
        PetscMat matrix, const double *given, const int *places, long count) noexcept nogil
