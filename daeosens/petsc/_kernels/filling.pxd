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
        double sums[8] = {0.0}, sum = 0.0;  /* several: an addition need not wait for another */
        long i = 0;
        for (; i + 8 <= count; i += 8)
            for (int k = 0; k < 8; k++) sums[k] += 0.0 * values[i + k];
        for (; i < count; i++) sum += 0.0 * values[i];
        for (int k = 0; k < 8; k++) sum += sums[k];
        return sum == 0.0;  /* NaN unless all are finite */
    }
    /* the same on every rank */
    static inline PetscErrorCode finite_everywhere(Vec vec, int *finite)
    {
        const PetscScalar *values;
        PetscInt count;
        PetscMPIInt ranks;
        PetscFunctionBegin;
        PetscCall(VecGetLocalSize(vec, &count));
        PetscCall(VecGetArrayRead(vec, &values));
        *finite = all_finite(values, count);
        PetscCall(VecRestoreArrayRead(vec, &values));
        PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)vec), &ranks));
        if (ranks > 1)
            PetscCallMPI(MPI_Allreduce(
                MPI_IN_PLACE, finite, 1, MPI_INT, MPI_MIN, PetscObjectComm((PetscObject)vec)));
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    /* by rows into a serial dense matrix, or, where places are entries, into the values of an AIJ or a
       dense matrix, whose other values become zero */
    static inline PetscErrorCode put_values(
        Mat matrix, const double *entries, const int *places, long count)
    {
        PetscScalar *values;
        PetscBool filled;
        PetscFunctionBegin;
        if (places) {
            PetscCall(MatZeroEntries(matrix));
            PetscCall(PetscObjectTypeCompare((PetscObject)matrix, MATSEQDENSE, &filled));
            PetscCall((filled ? MatDenseGetArray : MatSeqAIJGetArrayWrite)(matrix, &values));
            for (long k = 0; k < count; k++) values[places[k]] = entries[k];
            PetscCall((filled ? MatDenseRestoreArray : MatSeqAIJRestoreArrayWrite)(matrix, &values));
        } else {
            PetscInt rows, columns, leading;
            PetscCall(MatGetSize(matrix, &rows, &columns));
            PetscCall(MatDenseGetLDA(matrix, &leading));
            PetscCall(MatDenseGetArrayWrite(matrix, &values));
            for (long j = 0; j < columns; j++)
                for (long i = 0; i < rows; i++)
                    values[j * leading + i] = entries[i * columns + j];
            PetscCall(MatDenseRestoreArrayWrite(matrix, &values));
        }
        PetscCall(MatAssemblyBegin(matrix, MAT_FINAL_ASSEMBLY));
        PetscCall(MatAssemblyEnd(matrix, MAT_FINAL_ASSEMBLY));
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    """
    bint all_finite(const double *values, long count) noexcept nogil
    PetscErrorCode finite_everywhere(PetscVec vec, int *finite) noexcept nogil
    PetscErrorCode put_values(
        PetscMat matrix, const double *entries, const int *places, long count) noexcept nogil
