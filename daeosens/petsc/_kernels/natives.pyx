# cython: language_level=3
"""Calls of C functions on PETSc's own arrays; signatures and types in natives.pyi."""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
)
from libc.stdint cimport uintptr_t

from daeosens.petsc._kernels.filling cimport (
    PetscInt,
    PetscScalar,
    VecGetArrayRead,
    VecGetArrayWrite,
    VecGetLocalSize,
    VecRestoreArrayRead,
    VecRestoreArrayWrite,
    all_finite,
    put_values,
)
from petsc4py.PETSc cimport CHKERR, Mat, PetscVec, Vec


cdef extern from *:
    """
    #define P1 double *,
    #define P2 P1 P1
    #define P3 P2 P1
    #define P4 P2 P2
    #define P5 P4 P1
    #define P6 P4 P2
    #define P7 P4 P3
    #define P8 P4 P4
    #define P9 P8 P1
    #define P10 P8 P2
    #define A1 a[0],
    #define A2 A1 a[1],
    #define A3 A2 a[2],
    #define A4 A3 a[3],
    #define A5 A4 a[4],
    #define A6 A5 a[5],
    #define A7 A6 a[6],
    #define A8 A7 a[7],
    #define A9 A8 a[8],
    #define A10 A9 a[9],
    #define CALL(COUNT) case COUNT: \\
        if (returns) return ((double (*)(double, P##COUNT void *))f)(t, A##COUNT user_data); \\
        ((void (*)(double, P##COUNT void *))f)(t, A##COUNT user_data); return 0.0;
    static double call_function(
        void *f, void *user_data, int returns, double t, int count, double *const *a)
    {
        switch (count) {
            CALL(1) CALL(2) CALL(3) CALL(4) CALL(5) CALL(6) CALL(7) CALL(8) CALL(9) CALL(10)
        }
        return 0.0;
    }
    """
    double call_function(
        void *f, void *user_data, bint returns, double t, int count, double **a) noexcept nogil


cdef enum:
    LIMIT = 10


cdef struct Arguments:
    int count
    double *values[LIMIT]
    long sizes[LIMIT]           # PetscInt would be too short for matrices at many points
    PetscVec vectors[LIMIT]
    Py_buffer buffers[LIMIT]
    bint written[LIMIT]


cdef int add(Arguments *all, object argument, bint written) except -1:
    cdef int k = all.count
    cdef PetscInt size = 0
    if k == LIMIT:
        raise TypeError("a C function with more than 10 arrays")
    all.written[k] = written
    if isinstance(argument, Vec):
        all.vectors[k] = (<Vec>argument).vec
        if written:
            CHKERR(VecGetArrayWrite(all.vectors[k], &all.values[k]))
        else:
            CHKERR(VecGetArrayRead(all.vectors[k], <const PetscScalar **>&all.values[k]))
        CHKERR(VecGetLocalSize(all.vectors[k], &size))
        all.sizes[k] = size
    else:
        PyObject_GetBuffer(
            argument,
            &all.buffers[k],
            PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (PyBUF_WRITABLE if written else 0),
        )
        # The layout was asked for above; here that the entries are doubles.
        if all.buffers[k].format == NULL or all.buffers[k].format[0] != c"d":
            PyBuffer_Release(&all.buffers[k])
            raise TypeError("a C function takes arrays of double precision numbers only")
        all.vectors[k] = NULL
        all.values[k] = <double *>all.buffers[k].buf
        all.sizes[k] = all.buffers[k].len // <Py_ssize_t>sizeof(double)
    all.count = k + 1
    return 0


cdef int add_all(Arguments *all, tuple inputs, tuple outputs) except -1:
    for argument in inputs:
        add(all, argument, False)
    for argument in outputs:
        add(all, argument, True)
    return 0


cdef int release(Arguments *all) except -1:
    cdef int k
    # Backwards, also after an error half-way: what was taken is counted.
    while all.count:
        all.count -= 1
        k = all.count
        if all.vectors[k] == NULL:
            PyBuffer_Release(&all.buffers[k])
        elif all.written[k]:
            CHKERR(VecRestoreArrayWrite(all.vectors[k], &all.values[k]))
        else:
            CHKERR(VecRestoreArrayRead(all.vectors[k], <const PetscScalar **>&all.values[k]))
    return 0


def call_into(uintptr_t address, uintptr_t user_data, double t, tuple inputs, tuple outputs):
    """Call ``void f(double t, const double *..., double *..., void *user_data)``.

    Not collective.

    Parameters
    ----------
    address, user_data : int
    t : float
    inputs : tuple of Vec or contiguous ndarray
    outputs : tuple of Vec or contiguous ndarray
                            filled; with the inputs ten at most

    Returns
    -------
    bool                    all values of the outputs are finite

    Raises
    ------
    TypeError               arrays of other numbers than doubles
    """
    cdef Arguments all
    cdef bint finite = True
    cdef int k
    all.count = 0
    try:
        add_all(&all, inputs, outputs)
        call_function(<void *>address, <void *>user_data, False, t, all.count, all.values)
        for k in range(<int>len(inputs), all.count):
            finite = finite and all_finite(all.values[k], all.sizes[k])
    finally:
        release(&all)
    return finite


def call_number(uintptr_t address, uintptr_t user_data, double t, tuple inputs, tuple outputs):
    """Call ``double f(double t, const double *..., double *..., void *user_data)``.

    As ``call_into``, but returns the number; nothing is said of the outputs.
    """
    cdef Arguments all
    all.count = 0
    try:
        add_all(&all, inputs, outputs)
        return call_function(<void *>address, <void *>user_data, True, t, all.count, all.values)
    finally:
        release(&all)


def call_points(
    uintptr_t address,
    uintptr_t user_data,
    const double[::1] t,
    tuple inputs,
    tuple outputs,
):
    """Call ``void f(double t, const double *..., double *..., void *user_data)`` at K points.

    Parameters
    ----------
    address, user_data : int
    t : ndarray [K]
    inputs : tuple of contiguous ndarray
                            [K, ...] of the points, or one [...] for all, which has one axis
    outputs : tuple of contiguous ndarray [K, ...]
                            filled; with the inputs ten at most

    Returns
    -------
    bool                    all values of the outputs are finite

    Raises
    ------
    TypeError               arrays of other numbers than doubles
    """
    cdef Arguments all
    cdef long strides[LIMIT]
    cdef double *arrays[LIMIT]
    cdef bint finite = True
    cdef int j, first = <int>len(inputs)
    cdef Py_ssize_t k, count = t.shape[0]
    if not count:
        return True
    all.count = 0
    try:
        add_all(&all, inputs, outputs)
        for j in range(all.count):
            arrays[j], strides[j] = all.values[j], 0
            if j >= first or all.buffers[j].ndim > 1:
                # One axis is the same for all points (parameters): it stays where it is.
                strides[j] = all.sizes[j] // count
        for k in range(count):
            call_function(<void *>address, <void *>user_data, False, t[k], all.count, arrays)
            for j in range(all.count):
                arrays[j] += strides[j]
        for j in range(first, all.count):
            finite = finite and all_finite(all.values[j], all.sizes[j])
    finally:
        release(&all)
    return finite


def fill_matrix(
    uintptr_t address,
    uintptr_t user_data,
    double t,
    tuple inputs,
    object scratch,
    const int[::1] places,
    Mat matrix,
):
    """Fill a serial matrix: a dense one, or the values of an AIJ matrix at ``places``.

    Not collective.

    Parameters
    ----------
    address, user_data : int
    t : float
    inputs : tuple of Vec or contiguous ndarray
    scratch : ndarray       [rows, columns] or [entries]: what the C function fills
    places : ndarray [entries] or None
                            where in the values of an AIJ matrix the entries belong; its other
                            values become zero
    matrix : Mat

    Returns
    -------
    bool                    all values are finite
    """
    cdef Arguments all
    cdef const int *where = NULL
    cdef bint finite
    cdef int last
    if places is not None and places.shape[0]:
        where = &places[0]
    all.count = 0
    try:
        add_all(&all, inputs, (scratch,))
        call_function(<void *>address, <void *>user_data, False, t, all.count, all.values)
        last = all.count - 1
        finite = all_finite(all.values[last], all.sizes[last])
        CHKERR(put_values(matrix.mat, all.values[last], where, all.sizes[last]))
    finally:
        release(&all)
    return finite
