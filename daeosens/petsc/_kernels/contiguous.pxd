# cython: language_level=3
"""Where the numbers of an array are: memory views take longer than the work of few unknowns."""

cimport numpy as np


cdef inline double *doubles(np.ndarray array) except? NULL:
    """Return where a contiguous array of doubles begins."""
    if np.PyArray_TYPE(array) != np.NPY_DOUBLE or not np.PyArray_IS_C_CONTIGUOUS(array):
        raise TypeError("a contiguous array of double precision numbers is expected")
    return <double *>np.PyArray_DATA(array)
