# cython: language_level=3
"""Runge-Kutta steps in C (dense_steps.c), and back; signatures and types in dense.pyi."""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport fabs
from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc

cimport numpy as np
import numpy as np

from daeosens.petsc._kernels.sweeps.breakpoints cimport breakpoints_of
from daeosens.petsc._kernels.contiguous cimport doubles
from daeosens.petsc._kernels.filling cimport PetscScalar, all_finite
from daeosens.petsc._kernels.sweeps.running_costs cimport RunningCosts, running_costs
from petsc4py.PETSc cimport CHKERR, PETSC_SUCCESS, PetscErrorCode, PetscVec, TS, Vec


cdef extern from "petscvec.h" nogil:
    PetscErrorCode VecGetArray(PetscVec, PetscScalar **)
    PetscErrorCode VecRestoreArray(PetscVec, PetscScalar **)


np.import_array()


DENSE = "dense"

cdef enum:
    SIGNALS = 1024  # so many steps between two looks whether the user wants to interrupt


cdef double end_of(const double[:, ::1] a, const double[::1] b):
    """Return d where u + h sum b_j f_j = u + d (U_s - u), with an implicit stage U_s; else 0."""
    cdef long last = b.shape[0] - 1, j
    cdef double end = b[last] / a[last, last] if a[last, last] else 0.0
    for j in range(last):
        if fabs(end * a[last, j] - b[j]) > 1e-15:  # rounding
            return 0.0
    return end


cdef class DenseSteps:
    """Explicit or diagonally implicit Runge-Kutta steps of M u' = f(t, u, p), with f and its
    derivatives in C.

    Parameters
    ----------
    size : int              number n of unknowns
    tableau : (a, b, c, b_embedded)
                            ndarrays [s, s], [s], [s], [s]; for a TS the first stage is explicit,
                            the others are not, and the last one is the solution
    order : int             of the solution; that of the embedded one is one less
    functions : dict of str to (int, int)
                            addresses and user data of "rhs" and "jacobian", and for ``carry_back``
                            of "pull" (both products), or of "jacobian_p" [n, m]; for
                            ``LinearSteps`` "push", "pull" and "hessian_product", and "jacobian"
                            where stages are implicit
    places : ndarray or None
                            where the entries of the jacobian belong in [n, n] by rows; None: it
                            fills all
    breakpoints : ndarray [K]
                            times at which f may jump
    p : ndarray [m]         parameters; copied
    mass : ndarray [n, n] or None
                            None is the identity; otherwise for ``carry_back`` over steps that end
                            by their last stage
    python : PythonFunctions or None
                            what the functions call, if they are Python's
    guess : ndarray [s, s] or None
                            first guesses of the rates of implicit stages, as sums of those before;
                            None is the one before
    """

    def __cinit__(
        self, long size, tuple tableau, int order, dict functions, places, breakpoints, p,
        mass=None, python=None, guess=None,
    ):
        cdef double[:, ::1] a = np.ascontiguousarray(tableau[0])
        cdef double[::1] b = np.ascontiguousarray(tableau[1])
        cdef double[::1] c = np.ascontiguousarray(tableau[2])
        cdef double[::1] b_embedded = np.ascontiguousarray(tableau[3])
        cdef double[::1] view
        cdef double[:, ::1] matrix
        cdef int[::1] where
        cdef uintptr_t address, data
        self.system.n, self.system.m, self.system.s = size, len(p), c.shape[0]
        self.system.order = order
        self.system.a, self.system.b, self.system.c = &a[0, 0], &b[0], &c[0]
        self.system.b_embedded = &b_embedded[0]
        self.system.end = end_of(a, b)
        self.system.breakpoints = breakpoints_of(breakpoints)
        self.kept = [a, b, c, b_embedded, breakpoints]
        if mass is not None:
            matrix = np.ascontiguousarray(mass)
            self.kept.append(matrix)
            self.system.mass = &matrix[0, 0]
        address, data = functions["rhs"]
        self.system.rhs, self.system.rhs_data = <DenseFunction>address, <void *>data
        address, data = functions.get("jacobian", (0, 0))
        self.system.jacobian, self.system.jacobian_data = <DenseFunction>address, <void *>data
        address, data = functions.get("jacobian_p", (0, 0))
        self.system.jacobian_p, self.system.jacobian_p_data = <DenseFunction>address, <void *>data
        address, data = functions.get("pull", (0, 0))
        self.system.pull, self.system.pull_data = <DenseProduct>address, <void *>data
        address, data = functions.get("push", (0, 0))
        self.system.push, self.system.push_data = <DenseSlope>address, <void *>data
        address, data = functions.get("hessian_product", (0, 0))
        self.system.hessian, self.system.hessian_data = <DenseCurvature>address, <void *>data
        self.system.entries = size * size if "jacobian" in functions else 0
        if places is not None:
            self.system.entries = len(places)
            where = places if len(places) else np.zeros(1, dtype=np.int32)
            self.kept.append(where)
            self.system.places = &where[0]
        # one number at least: the address of an empty array cannot be taken
        self.p = np.zeros(max(1, len(p)))
        view = self.p
        self.system.p = &view[0]
        self.fault_values = np.zeros(max(size, self.system.entries))
        view = self.fault_values
        self.system.fault_values = &view[0]
        if guess is not None:
            matrix = np.ascontiguousarray(guess)
            self.kept.append(matrix)
            self.system.guess = &matrix[0, 0]
        self.python = python
        if python is not None:
            self.system.raised = <int *><uintptr_t>python.raised
        self.hold(p)

    def hold(self, p):
        """Give the functions other parameters [m]."""
        self.p[: len(p)] = p
        if self.python is not None:
            self.python.hold(p)

    def attach(self, TS ts):
        """Let a TS of type "dense" take these steps; they must live as long as it does."""
        CHKERR(DenseStepsAttach(ts.ts, &self.system))

    def carry_back(
        self,
        np.ndarray times,
        np.ndarray sizes,
        np.ndarray states,
        np.ndarray stages,
        long first,
        long last,
        list lam,
        list mu,
        tuple costs,
    ):
        """Carry adjoints back over steps; stages that were not kept are found again.

        Parameters
        ----------
        times, sizes : ndarray [N+1], ndarray [N]
        states : ndarray [N+1, n]
        stages : ndarray [K, s-1, n]
                                those of the first K steps, without their first one
        first, last : int       numbers of the states between which the steps lie
        lam, mu : list of Vec [n], list of Vec [m]
                                adjoints after the last step, overwritten with those before the first
                                one; those of the parameters, added to
        costs : tuple or None   the running costs of each row (``compiled_costs.running_costs``)

        Returns
        -------
        bool                    all values are finite, all stages are found
        """
        cdef const double *t = doubles(times)
        cdef const double *h = doubles(sizes)
        cdef const double *u = doubles(states)
        cdef const double *kept = doubles(stages)
        cdef const double *known
        cdef bint ends = self.system.end != 0.0 and self.system.s <= 2  # a state is all its stages
        cdef long n = self.system.n, n_kept = stages.shape[0], stride = stages.shape[1] * n
        cdef long rows = len(lam), k, got = 0
        cdef DenseWork work = NULL
        cdef RunningCosts densities = running_costs(costs)
        cdef PetscErrorCode code = PETSC_SUCCESS
        cdef bint finite = True
        cdef double **adjoints = <double **>malloc(<size_t>(2 * rows + 1) * sizeof(double *))
        if adjoints == NULL:
            raise MemoryError
        try:
            CHKERR(DenseWorkCreate(&self.system, rows, &work))
            for got in range(rows):
                CHKERR(VecGetArray((<Vec>lam[got]).vec, &adjoints[got]))
                CHKERR(VecGetArray((<Vec>mu[got]).vec, &adjoints[rows + got]))
            got = rows
            for k in range(last - 1, first - 1, -1):
                known = kept + k * stride if k < n_kept else NULL
                if ends:
                    known = u + (k + 1) * n
                code = DenseTransposeStep(
                    work, t[k], h[k], u + k * n, known, adjoints, adjoints + rows, &densities)
                if self.system.fault:
                    return False
                CHKERR(code)
                if k % SIGNALS == 0:
                    PyErr_CheckSignals()
            for k in range(rows):
                finite = finite and all_finite(adjoints[k], self.system.n)
                finite = finite and all_finite(adjoints[rows + k], self.system.m)
            return finite
        finally:
            for k in range(got):
                CHKERR(VecRestoreArray((<Vec>lam[k]).vec, &adjoints[k]))
                CHKERR(VecRestoreArray((<Vec>mu[k]).vec, &adjoints[rows + k]))
            DenseWorkDestroy(&work)
            free(adjoints)

    def fill_stages(
        self, const double[::1] times, const double[::1] sizes, double[:, :, ::1] stages
    ):
        """Fill the stages [S, s, n] of steps, of which the first ones are there.

        Returns
        -------
        bool                    all are found, and finite
        """
        cdef DenseWork work = NULL
        cdef bint solved = True
        cdef long k
        CHKERR(DenseWorkCreate(&self.system, 0, &work))
        for k in range(stages.shape[0]):
            solved = solved and DenseFillStages(work, times[k], sizes[k], &stages[k, 0, 0])
        DenseWorkDestroy(&work)
        self.system.fault = 0
        return solved and (not stages.size or all_finite(&stages[0, 0, 0], stages.size))

    @property
    def transposes(self):
        """Whether the functions suffice for ``carry_back``."""
        return not self.system.m or self.system.pull != NULL or self.system.jacobian_p != NULL

    def fault(self):
        """Return which function gave values that are not finite, at which t, and the values.

        Returns
        -------
        (str, float, ndarray) or None
                                "rhs" with [n] or "jacobian" with its entries
        """
        if not self.system.fault:
            return None
        if self.system.fault == 1:
            return "rhs", self.system.fault_t, self.fault_values[: self.system.n]
        return "jacobian", self.system.fault_t, self.fault_values[: self.system.entries]


CHKERR(DenseStepsRegister())
