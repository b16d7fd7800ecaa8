# cython: language_level=3
"""Python callbacks as C functions; signatures and types in python_functions.pyi."""

from libc.math cimport NAN
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy

cimport numpy as np

from daeosens.errors import NotFiniteError
from daeosens.petsc._kernels.filling cimport all_finite


np.import_array()


cdef void rhs(
    double t, const double *u, const double *p, double *out, void *data
) noexcept with gil:
    cdef PythonFunctions functions = <PythonFunctions>data
    functions.fill(functions.of_rhs, t, u, out, functions.n)


cdef void jacobian(
    double t, const double *u, const double *p, double *out, void *data
) noexcept with gil:
    cdef PythonFunctions functions = <PythonFunctions>data
    functions.fill(functions.of_jacobian, t, u, out, functions.n * functions.n)


cdef class PythonFunctions:
    """f(t, u, p) and f_u of Python callbacks, with addresses for steps in C.

    What a callback gives that is not finite, or an exception of it, is kept, and NaN takes its
    place; after an exception no callback is called until ``raised`` is 0 again.

    Parameters
    ----------
    n : int                 number of unknowns
    rhs, jacobian : (callable, callable)
                            ``call(t, u, p)``, and ``check(values, t, u, p)``, which returns an array
                            of n, or n by n, doubles, or raises an error
    p : object              parameters as callbacks see them
    """

    cdef readonly object p, error, exception
    cdef tuple of_rhs, of_jacobian
    cdef long n
    cdef int has_raised

    def __cinit__(self, long n, tuple rhs, tuple jacobian, p):
        self.n, self.p = n, p
        self.of_rhs, self.of_jacobian = rhs, jacobian

    def hold(self, p):
        """Give the callbacks other parameters."""
        self.p = p

    @property
    def addresses(self):
        """Addresses of the functions and their user data, by their names."""
        cdef uintptr_t data = <uintptr_t><void *>self
        return {
            "rhs": (<uintptr_t>&rhs, data),
            "jacobian": (<uintptr_t>&jacobian, data),
        }

    @property
    def raised(self):
        """Address of the int that is 1 after an exception, or 2 if it is to end the program."""
        return <uintptr_t>&self.has_raised

    def take_exception(self):
        """Return the exception of a callback, and forget it; None if there is none."""
        taken = self.exception if self.has_raised else None
        self.exception, self.has_raised = None, 0
        return taken

    cdef void fill(self, tuple function, double t, const double *u, double *out, long count):
        cdef np.ndarray state, values
        cdef np.npy_intp size = self.n
        cdef object result
        cdef int flags
        try:
            if not self.has_raised:
                # a copy: callbacks may keep it
                state = np.PyArray_SimpleNew(1, &size, np.NPY_DOUBLE)
                memcpy(np.PyArray_DATA(state), u, <size_t>size * sizeof(double))
                np.PyArray_CLEARFLAGS(state, np.NPY_ARRAY_WRITEABLE)
                result = function[0](t, state, self.p)
                if not is_sound(result, count, self.n):
                    result = function[1](result, t, state, self.p)
                # numbers of extended precision are rounded
                flags = np.NPY_ARRAY_C_CONTIGUOUS | np.NPY_ARRAY_ALIGNED | np.NPY_ARRAY_FORCECAST
                values = np.PyArray_FROM_OTF(result, np.NPY_DOUBLE, flags)
                memcpy(out, np.PyArray_DATA(values), <size_t>count * sizeof(double))
                return
        except NotFiniteError as error:
            self.error = error
        except Exception as error:
            self.exception, self.has_raised = error, 1
        except BaseException as error:
            self.exception, self.has_raised = error, 2
        for k in range(count):
            out[k] = NAN


cdef bint is_sound(object result, long count, long n):
    """Whether there is nothing to check any more: contiguous doubles, finite, of the shape."""
    cdef np.ndarray values
    if type(result) is not np.ndarray:
        return False
    values = result
    return (
        np.PyArray_TYPE(values) == np.NPY_DOUBLE
        and np.PyArray_NDIM(values) == (1 if count == n else 2)
        and np.PyArray_SIZE(values) == count
        and np.PyArray_DIM(values, 0) == n
        and np.PyArray_IS_C_CONTIGUOUS(values)
        and all_finite(<const double *>np.PyArray_DATA(values), count)
    )
