# cython: language_level=3
"""Functions of a grid's points on distributed vectors; signatures and types in stencils.pyi."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uintptr_t

import numpy as np

from daeosens.petsc._kernels.filling cimport (
    PetscScalar, VecGetArrayRead, VecGetArrayWrite, VecRestoreArrayRead, VecRestoreArrayWrite
)
from petsc4py.PETSc cimport CHKERR, DM, PETSC_SUCCESS, PetscDM, PetscErrorCode, PetscVec, Vec


cdef extern from "petscdm.h" nogil:
    ctypedef enum InsertMode:
        INSERT_VALUES
    PetscErrorCode DMGetLocalVector(PetscDM, PetscVec *)
    PetscErrorCode DMRestoreLocalVector(PetscDM, PetscVec *)
    PetscErrorCode DMGlobalToLocal(PetscDM, PetscVec, InsertMode, PetscVec)


cdef PetscErrorCode with_ghosts(Points *points, PetscVec vec, PetscVec *local) noexcept nogil:
    cdef PetscErrorCode code = DMGetLocalVector(points.dm, local)
    return DMGlobalToLocal(points.dm, vec, INSERT_VALUES, local[0]) if code == PETSC_SUCCESS else code


cdef Call call_of(
    const Points *points, double t, const double *p, const double *dp, Inputs inputs, Outcome result
) noexcept nogil:
    """Return a call for all points of the rank."""
    cdef Call call
    cdef int k
    call.box, call.inputs, call.result = points.box, inputs, result
    call.box.t, call.box.p, call.box.dp, call.box.sums = t, p, dp, result.sums
    call.box.alpha, call.box.addends = result.alpha, result.addends
    for k in range(result.addends):
        call.box.beta[k] = result.beta[k]
    call.box.begin, call.box.first_place, call.box.end_place = 0, 0, points.box.n[2]
    for k in range(3):
        call.locals[k] = NULL
    return call


cdef PetscErrorCode begin(Points *points, const Kernel *kernel, Call *call) noexcept nogil:
    """Give a call the arrays of its vectors.  Collective."""
    cdef PetscErrorCode code = PETSC_SUCCESS
    cdef PetscScalar *out = NULL
    cdef int k
    for k in range(kernel.vectors):
        call.box.ghosts[k] = 0
        if points.dm != NULL and kernel.around[k]:
            call.box.ghosts[k] = points.ghosts
            # A caller that has the ghost values of a vector passes them on, as of the state of a
            # matrix.
            if call.inputs.locals[k] == NULL:
                code = with_ghosts(points, call.inputs.vecs[k], &call.locals[k])
                call.inputs.locals[k] = call.locals[k]
            call.inputs.vecs[k] = call.inputs.locals[k]
        if code == PETSC_SUCCESS:
            code = VecGetArrayRead(call.inputs.vecs[k], &call.box.input[k])
        if code != PETSC_SUCCESS:
            return code
    if call.result.out != NULL:
        code = VecGetArrayWrite(call.result.out, &out)
    call.box.out = out
    for k in range(call.result.addends):
        call.box.add[k] = out
        # A vector that is read and written at once may be locked only for writing.
        if code == PETSC_SUCCESS and call.result.add[k] != call.result.out:
            code = VecGetArrayRead(call.result.add[k], &call.box.add[k])
    return code


cdef PetscErrorCode finish(Points *points, const Kernel *kernel, Call *call) noexcept nogil:
    """Give the arrays back."""
    cdef PetscErrorCode code = PETSC_SUCCESS
    cdef int k
    for k in range(call.result.addends):
        if code == PETSC_SUCCESS and call.result.add[k] != call.result.out:
            code = VecRestoreArrayRead(call.result.add[k], &call.box.add[k])
    if code == PETSC_SUCCESS and call.result.out != NULL:
        code = VecRestoreArrayWrite(call.result.out, &call.box.out)
    for k in range(kernel.vectors):
        if code == PETSC_SUCCESS:
            code = VecRestoreArrayRead(call.inputs.vecs[k], &call.box.input[k])
        if code == PETSC_SUCCESS and call.locals[k] != NULL:
            code = DMRestoreLocalVector(points.dm, &call.locals[k])
    return code


cdef PetscErrorCode evaluate(Points *points, const Kernel *kernel, Call call) noexcept nogil:
    """Call a function at all points of the rank.  Collective."""
    cdef PetscErrorCode code = begin(points, kernel, &call)
    if code != PETSC_SUCCESS:
        return code
    kernel.call(&call.box)
    return finish(points, kernel, &call)


cdef PetscErrorCode evaluate_chain(
    Points *points, const Kernel *kernel, Call *calls, int count
) noexcept nogil:
    """Call a function for the stages of a step, each of which reads what the one before it fills.

    All add what the first one reads, and the last one what the others fill, in their order.  Where
    the function of a chain is there, vectors need not be: NULL is filled, and read again, without
    memory for all points.  What the first call reads may be what the last one fills.  Collective.
    """
    cdef PetscErrorCode code = PETSC_SUCCESS
    cdef Box boxes[MOST_STAGES]
    cdef PetscScalar *out
    cdef int k, j
    # Without the function of a chain: one pass over the vectors for each stage.
    if kernel.chain == NULL:
        for k in range(count):
            if code == PETSC_SUCCESS:
                code = evaluate(points, kernel, calls[k])
        return code
    for k in range(count):
        boxes[k] = calls[k].box
        for j in range(kernel.vectors):
            # Chains are for one rank, where nothing lies beyond the box.
            boxes[k].ghosts[j] = 0
            if code == PETSC_SUCCESS and (k == 0 or j != kernel.chained):
                code = VecGetArrayRead(calls[k].inputs.vecs[j], &boxes[k].input[j])
        out = NULL
        if code == PETSC_SUCCESS and calls[k].result.out != NULL:
            code = VecGetArrayWrite(calls[k].result.out, &out)
        boxes[k].out = out
    if code != PETSC_SUCCESS:
        return code
    boxes[0].work = points.chain_work
    kernel.chain(boxes, count)
    for k in range(count):
        if code == PETSC_SUCCESS and calls[k].result.out != NULL:
            code = VecRestoreArrayWrite(calls[k].result.out, &boxes[k].out)
        for j in range(kernel.vectors):
            if code == PETSC_SUCCESS and (k == 0 or j != kernel.chained):
                code = VecRestoreArrayRead(calls[k].inputs.vecs[j], &boxes[k].input[j])
    return code


cdef Inputs inputs_of(PetscVec first, PetscVec second) noexcept nogil:
    cdef Inputs all
    all.vecs[0], all.vecs[1], all.vecs[2] = first, second, NULL
    all.locals[0], all.locals[1], all.locals[2] = NULL, NULL, NULL
    return all


cdef Outcome into(PetscVec out, double alpha, PetscVec add, double beta) noexcept nogil:
    """Return what fills ``out`` with alpha f + beta add; without ``add`` if that is NULL."""
    cdef Outcome result
    result.out, result.alpha, result.addends, result.sums = out, alpha, 0, NULL
    if add != NULL:
        also_add(&result, add, beta)
    return result


cdef void also_add(Outcome *result, PetscVec add, double beta) noexcept nogil:
    """Add one more vector; there are functions for none, one, two and four of them."""
    result.add[result.addends], result.beta[result.addends] = add, beta
    result.addends += 1


NAMES = (
    "rhs", "push", "pull", "pull_all", "push_p", "pull_p", "rhs_t", "hessian", "hessian_t",
    "jacobian", "branches",
)

cdef class Stencil:
    """The functions of the points of one rank's box of a grid.

    Parameters
    ----------
    dm : DMDA or None       wide enough for all that is read; None on one rank
    ghosts : int            its width
    n : (int, int, int)     points of the box, along the fastest, middle and slowest dimension
    first, spacing : (float, float, float)
                            coordinates of the first point, distance of neighbours
    periodic : bool         otherwise values beyond the edge are 0
    work : ndarray [numbers]
                            what the functions need
    """

    def __cinit__(self, DM dm, long ghosts, n, first, spacing, bint periodic, double[::1] work):
        cdef int k
        self.kept, self.numbers = [dm, work], {}
        self.late, self.late_chains = {}, {}
        self.points.dm = dm.dm if dm is not None else NULL
        self.points.ghosts = ghosts
        for k in range(3):
            self.points.box.n[k] = n[k]
            self.points.box.first[k] = first[k]
            self.points.box.spacing[k] = spacing[k]
        self.points.box.periodic = periodic
        self.points.box.work = &work[0]

    def add(self, str name, address, around, long reach, keeps):
        """Add a function.

        Parameters
        ----------
        name : str          one of ``NAMES``
        address : int or LateAddress
                            of a function of ``stencil.h``; a late one is asked for when the
                            function is called first
        around : sequence of bool
                            for each vector whether values around the points are read
        reach : int         how far they are, along the slowest dimension
        keeps : object      what has to stay alive
        """
        cdef Kernel *kernel = &self.kernels[NAMES.index(name)]
        kernel.vectors, kernel.reach = len(around), reach
        for k, reads in enumerate(around):
            kernel.around[k] = reads
        self.numbers[name] = NAMES.index(name)
        self.late[self.numbers[name]] = address
        self.kept.append(keeps)

    cdef Kernel *kernel(self, int number) except NULL:
        """Return a function, which is compiled now at the latest."""
        if number in self.late:
            self.kernels[number].call = <PointFunction><uintptr_t>int(self.late[number])
            del self.late[number]
        return &self.kernels[number]

    cdef Kernel *chain(self, int number) except NULL:
        """Return a function whose chain, or if there is none itself, is compiled now at the latest.
        """
        cdef Kernel *kernel = &self.kernels[number]
        if number in self.late_chains:
            kernel.chain = <ChainFunction><uintptr_t>int(self.late_chains[number])
            del self.late_chains[number]
        return kernel if kernel.chain != NULL else self.kernel(number)

    def add_chain(self, str name, address, int vector, double[::1] work):
        """Let the stages of a step be calls of a function of ``stencil_chain.h``.

        Parameters
        ----------
        name : str          of the function for one stage, added before
        address : int or LateAddress
        vector : int        which one each stage fills for the next one
        work : ndarray [numbers]
                            what it needs; all chains may share it
        """
        cdef Kernel *kernel = &self.kernels[self.numbers[name]]
        self.late_chains[self.numbers[name]], kernel.chained = address, vector
        self.points.chain_work = &work[0]
        self.kept.append(work)

    @property
    def chains(self):
        """Whether transposed stages need no vectors between them."""
        return PULL in self.late_chains or self.kernels[PULL].chain != NULL

    def add_loops(
        self, uintptr_t turn, uintptr_t weigh, uintptr_t reduce, uintptr_t compare,
        uintptr_t advance,
    ):
        """Add the loops of ``bicgstab.h`` by their addresses."""
        self.loops.turn, self.loops.weigh = <IterateLoop>turn, <IterateLoop>weigh
        self.loops.reduce, self.loops.compare = <IterateLoop>reduce, <IterateLoop>compare
        self.loops.advance = <IterateLoop>advance

    def apply(
        self, str name, double t, const double[::1] p, tuple inputs, Vec out=None,
        double alpha=1.0, Vec add=None, double beta=1.0, const double[::1] dp=None, sums=None,
    ):
        """Fill ``out`` with alpha f + beta add, and return the rank's own sums.  Collective.

        Parameters
        ----------
        name : str          of a function
        t : float
        p, dp : ndarray [m] parameters and their direction
        inputs : tuple of Vec [n]
        out, add : Vec or None
        alpha, beta : float
        sums : int or None  how many there are

        Returns
        -------
        ndarray [sums]
        """
        cdef double[::1] summed = np.zeros(max(1, sums or 0))
        cdef Inputs all = inputs_of(NULL, NULL)
        cdef Outcome result = into(
            out.vec if out is not None else NULL, alpha, add.vec if add is not None else NULL, beta)
        cdef double nothing = 0.0
        cdef const double *at = &p[0] if p.shape[0] else &nothing
        cdef const double *along = &dp[0] if dp is not None and dp.shape[0] else &nothing
        result.sums = &summed[0]
        for k, field in enumerate(inputs):
            all.vecs[k] = (<Vec?>field).vec
        cdef Call call = call_of(&self.points, t, at, along, all, result)
        CHKERR(evaluate(&self.points, self.kernel(self.numbers[name]), call))
        return np.asarray(summed)[: sums or 0]

    def pull_steps(
        self, times, sizes, const double[::1] p, stages, Vec lam, work,
        const double[::1] a, const double[::1] b, const double[::1] c, double[::1] sums,
    ):
        """Carry lam back over Runge-Kutta steps whose stages each read the one before only.

        w_i = b_i lam + a_{i+1} l_{i+1},  l_i = h f_u^T w_i,  lam += sum_i l_i; each stage is one
        pass over the vectors.  The sum is not kept beside them: the last pass knows all other l_i
        from the w_i.  Collective.

        Parameters
        ----------
        times, sizes : sequence of float
                            starts and sizes of the steps
        p : ndarray [m]
        stages : sequence of sequences of s Vec [n]
                            of each step; s is 2 or 4
        lam : Vec [n]       overwritten
        work : sequence of Vec [n]
                            s - 1 of them; none if ``chains``
        a : ndarray [s]     below the diagonal: a[i] = a_{i,i-1}, not 0; a[0] is not read
        b, c : ndarray [s]
        sums : ndarray [m] or [0]
                            h f_p^T w_i of the rank's own points is added, step by step
        """
        cdef int s = b.shape[0], i, k
        cdef double nothing = 0.0, t, h, factor, of_step, rest = 1.0
        cdef const double *at = &p[0] if p.shape[0] else &nothing
        cdef Kernel *kernel = self.chain(PULL_ALL if sums.shape[0] else PULL)
        cdef double[:, ::1] summed = np.empty((s, max(1, sums.shape[0])))
        cdef PetscVec w
        cdef PetscVec weights[MOST_STAGES]
        cdef Call calls[MOST_STAGES]
        cdef Outcome result
        for i in range(s - 1):
            weights[i] = (<Vec?>work[i]).vec if kernel.chain == NULL else NULL
            # lam + sum l_i with l_{i+1} = (w_i - b_i lam) / a_{i+1}: rest is the factor of lam in
            # it.
            rest -= b[i] / a[i + 1]
        for t, h, of_stages in zip(reversed(times), reversed(sizes), reversed(stages)):
            PyErr_CheckSignals()
            w = lam.vec
            summed[:] = 0.0
            for i in range(s - 1, -1, -1):
                # of the last stage w is b lam: the factor is taken out
                factor = h * b[i] if i == s - 1 else h
                if i:
                    # w_{i-1} = b_{i-1} lam + a_i l_i in one pass.
                    result = into(weights[i - 1], factor * a[i], lam.vec, b[i - 1])
                else:
                    result = into(lam.vec, factor, lam.vec, rest)
                    for k in range(s - 2, -1, -1):
                        also_add(&result, weights[k], 1.0 / a[k + 1])
                result.sums = &summed[i, 0]
                calls[s - 1 - i] = call_of(
                    &self.points, t + c[i] * h, at, NULL,
                    inputs_of((<Vec?>of_stages[i]).vec, w), result)
                w = result.out
            CHKERR(evaluate_chain(&self.points, kernel, calls, s))
            for k in range(sums.shape[0]):
                # The function sums f_p^T of what it is given, without the factors of the result.
                of_step = h * b[s - 1] * summed[s - 1, k]
                for i in range(s - 2, -1, -1):
                    of_step += h * summed[i, k]
                sums[k] += of_step
