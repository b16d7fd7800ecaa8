# cython: language_level=3
"""The log of TS's steps without Python; signatures and types in steps.pyi."""

from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.math cimport INFINITY, nextafter
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

cimport numpy as np
import numpy as np

from daeosens.petsc._kernels.sweeps.breakpoints cimport Breakpoints, breakpoints_of, piece_of_step
from daeosens.petsc._kernels.filling cimport (
    PetscInt, PetscScalar, VecGetArrayRead, VecGetLocalSize, VecRestoreArrayRead, finite_everywhere
)
from daeosens.petsc._kernels.grids.pooled cimport duplicate_to_fill, owner_of
from daeosens.petsc._kernels.ts_types.chained import CHAINED
from petsc4py.PETSc cimport (
    CHKERR, PETSC_ERR_MEM, PETSC_ERR_USER, PETSC_SUCCESS, PetscErrorCode, PetscTS, PetscVec, TS, Vec
)


np.import_array()


cdef extern from "petscts.h" nogil:
    ctypedef double PetscReal
    ctypedef int TSConvergedReason
    ctypedef PetscErrorCode (*Before)(PetscTS) noexcept nogil
    ctypedef PetscErrorCode (*After)(PetscTS, PetscInt, PetscReal, PetscVec, void *) noexcept nogil
    PetscErrorCode TSSetPreStep(PetscTS, Before)
    PetscErrorCode TSMonitorSet(PetscTS, After, void *, void *)
    PetscErrorCode TSSetApplicationContext(PetscTS, void *)
    PetscErrorCode TSGetApplicationContext(PetscTS, void *)
    PetscErrorCode TSGetTime(PetscTS, PetscReal *)
    PetscErrorCode TSGetTimeStep(PetscTS, PetscReal *)
    PetscErrorCode TSSetTimeStep(PetscTS, PetscReal)
    PetscErrorCode TSRestartStep(PetscTS)
    PetscErrorCode TSGetConvergedReason(PetscTS, TSConvergedReason *)
    PetscErrorCode TSGetStages(PetscTS, PetscInt *, PetscVec **)
    PetscErrorCode TSGetSolution(PetscTS, PetscVec *)
    PetscErrorCode TSSetSolution(PetscTS, PetscVec)
    PetscErrorCode VecCopy(PetscVec, PetscVec)
    PetscErrorCode VecDestroy(PetscVec *)
    PetscErrorCode PetscObjectReference(void *)


cdef extern from *:
    """
    #include <petsc/private/tsimpl.h>
    /* TS copies its solution before each step, to come back to it; steps that do not overwrite it
       need none (VecCopy of a vector to itself does nothing) */
    static void spare_copy(TS ts, Vec *place)
    {
        if (*place || !ts->vec_sol0) return;
        *place = ts->vec_sol0;
        ts->vec_sol0 = ts->vec_sol;
    }
    static void end_sparing(TS ts, Vec *place)
    {
        if (*place) ts->vec_sol0 = *place;
        *place = NULL;
    }
    """
    void spare_copy(PetscTS, PetscVec *) noexcept nogil
    void end_sparing(PetscTS, PetscVec *) noexcept nogil


cdef enum:
    SIGNALS = 1024  # so many steps between two looks whether the user wants to interrupt
    APART = 16      # so many between two looks at states that stay what they are, not finite


cdef struct Numbers:
    double *values
    long count, room


cdef struct Vectors:
    PetscVec *values
    long count, room


cdef struct Log:
    Numbers ends, times, sizes, prescribed
    bint fixed
    double dt, uncut, stall
    Breakpoints breakpoints
    long piece                  # between breakpoints: of the step before; -1: there was none
    int stalled, patience
    Vectors states, stages
    Numbers flat_states, flat_stages
    long n_stages, kept_stages, most_stages
    bint taking                 # the vectors of TS need not be copied
    PetscVec solution           # that TS had before it changed vectors
    PetscVec place              # of the copy that is spared while TS takes a step
    bint flat                   # those: a vector for each would cost more than they do
    bint thinned                # not all states stay: each stride-th, at most so many, or some
    long most, stride, following  # of the next one in what stays
    Numbers staying, numbers    # of states that stay, of those that are there but for the first
    int shrunk, not_finite
    double t
    long step
    void *owner


cdef int make_room(void **values, long count, long *room, size_t size) noexcept nogil:
    cdef void *larger
    # Twice as much each time, so that all copies together cost no more than the numbers
    # themselves.
    cdef long wanted = 2 * room[0] + 64
    if count <= room[0]:
        return 0
    if wanted < count:
        wanted = count
    larger = realloc(values[0], <size_t>wanted * size)
    if larger == NULL:
        return -1
    values[0], room[0] = larger, wanted
    return 0


cdef int push(Numbers *all, double value) noexcept nogil:
    if make_room(<void **>&all.values, all.count + 1, &all.room, sizeof(double)):
        return -1
    all.values[all.count] = value
    all.count += 1
    return 0


cdef PetscErrorCode push_numbers(Numbers *all, PetscVec vec) noexcept nogil:
    cdef const PetscScalar *numbers = NULL
    cdef PetscInt count = 0
    cdef PetscErrorCode code = VecGetLocalSize(vec, &count)
    if make_room(<void **>&all.values, all.count + count, &all.room, sizeof(double)):
        return PETSC_ERR_MEM
    if code == PETSC_SUCCESS:
        code = VecGetArrayRead(vec, &numbers)
    if code != PETSC_SUCCESS:
        return code
    memcpy(all.values + all.count, numbers, <size_t>count * sizeof(double))
    all.count += count
    return VecRestoreArrayRead(vec, &numbers)


cdef PetscErrorCode push_new(Vectors *all, PetscVec like) noexcept nogil:
    cdef PetscErrorCode code
    if make_room(<void **>&all.values, all.count + 1, &all.room, sizeof(PetscVec)):
        return PETSC_ERR_MEM
    code = duplicate_to_fill(like, &all.values[all.count])
    if code == PETSC_SUCCESS:
        all.count += 1
    return code


cdef PetscErrorCode push_copy(Vectors *all, PetscVec vec) noexcept nogil:
    cdef PetscErrorCode code = push_new(all, vec)
    return VecCopy(vec, all.values[all.count - 1]) if code == PETSC_SUCCESS else code


cdef PetscErrorCode push_exchanged(Vectors *all, PetscVec *vec) noexcept nogil:
    """Push a vector itself; whoever had it goes on with a new one."""
    cdef PetscVec filled = vec[0]
    cdef PetscErrorCode code = push_new(all, filled)
    if code == PETSC_SUCCESS:
        vec[0] = all.values[all.count - 1]
        all.values[all.count - 1] = filled
    return code


cdef bint stays(Log *log, long number) noexcept nogil:
    if log.stride:
        return number % log.stride == 0
    while log.following < log.staying.count and log.staying.values[log.following] < number:
        log.following += 1
    return log.following < log.staying.count and log.staying.values[log.following] == number


cdef PetscErrorCode forget(Log *log) noexcept nogil:
    """Drop the last state, unless it stays; a new one comes."""
    cdef long last = log.numbers.count - 1
    if not log.thinned or last < 0:
        return PETSC_SUCCESS
    if stays(log, <long>log.numbers.values[last]):
        if log.stride and last + 2 > log.most:  # the first one counts
            return drop_every_other(log)
        return PETSC_SUCCESS
    log.numbers.count = last
    # The first state is not numbered: there are last + 2 rows, of which the last one goes.
    if log.flat:
        log.flat_states.count -= log.flat_states.count // (last + 2)
        return PETSC_SUCCESS
    log.states.count = last
    return VecDestroy(&log.states.values[last])


cdef PetscErrorCode drop_every_other(Log *log) noexcept nogil:
    """Keep half as many of the states that stay."""
    cdef long count = log.numbers.count, left = 0, k
    # Numbers of one state; the first state is there besides the numbered ones.
    cdef long size = log.flat_states.count // (count + 1)
    cdef double *rows = log.flat_states.values
    cdef PetscErrorCode code = PETSC_SUCCESS
    log.stride *= 2
    for k in range(count):
        if <long>log.numbers.values[k] % log.stride == 0:
            log.numbers.values[left] = log.numbers.values[k]
            if log.flat:
                memmove(rows + (left + 1) * size, rows + (k + 1) * size, size * sizeof(double))
            else:
                log.states.values[left] = log.states.values[k]
            left += 1
        elif not log.flat and code == PETSC_SUCCESS:
            code = VecDestroy(&log.states.values[k])
    log.numbers.count = left
    if log.flat:
        log.flat_states.count = (left + 1) * size
    else:
        log.states.count = left
    return code


cdef double cut(double t, double dt, const double *ends, long n_ends) noexcept nogil:
    cdef long low = 0, high = n_ends, middle
    cdef double end, rest
    # The first of the ends that lies behind t.
    while low < high:
        middle = (low + high) // 2
        if t < ends[middle]:
            high = middle
        else:
            low = middle + 1
    end = ends[low] if low < n_ends else INFINITY
    rest = end - t
    if rest < 1.01 * dt:
        # Rounding must not leave t + h just before the end, from which another, tiny step would
        # follow.
        return rest if t + rest >= end else nextafter(rest, INFINITY)
    return rest / 2 if rest < 2.0 * dt else dt


cdef double wanted_size(Log *log, double t, double proposed) noexcept nogil:
    """Return the size of the next step before it is cut.

    After a step that was cut and accepted an error estimate knows of the short step only, and
    proposes too small a next one: the size before the cut is tried again.
    """
    cdef double wanted = proposed, h
    if log.fixed:
        return log.dt if log.sizes.count else proposed
    if log.uncut and log.sizes.count and log.times.count > 1:
        h = log.sizes.values[log.sizes.count - 1]
        # Whether the last trial was accepted, and has not made the proposal smaller.
        if log.times.values[log.times.count - 2] + h == t and h <= proposed:
            wanted = max(proposed, log.uncut)
    log.uncut = wanted if cut(t, wanted, log.ends.values, log.ends.count) < wanted else 0.0
    return wanted


cdef double choose(Log *log, double t, double proposed) noexcept nogil:
    cdef double first = log.times.values[0] if log.times.count else t
    cdef double h
    if log.sizes.count < log.prescribed.count:  # a run taken again: what was accepted then
        return log.prescribed.values[log.sizes.count]
    h = cut(t, wanted_size(log, t, proposed), log.ends.values, log.ends.count)
    # Relative to the time that has passed: steps are tiny at the start of many runs.
    log.stalled = log.stalled + 1 if h < log.stall * (t - first) else 0
    return h


cdef bint enters_piece(Log *log, double t, double h) noexcept nogil:
    """Whether a step lies in another piece between breakpoints than the one before it."""
    cdef long before = log.piece
    if log.breakpoints.count:
        log.piece = piece_of_step(&log.breakpoints, t, h)
    return before >= 0 and log.piece != before


cdef PetscErrorCode before_step(PetscTS ts) noexcept nogil:
    cdef Log *log = NULL
    cdef double t = 0.0, proposed = 0.0, h
    cdef PetscErrorCode code = TSGetApplicationContext(ts, <void *>&log)
    if code != PETSC_SUCCESS or log == NULL:
        return code
    code = TSGetTime(ts, &t)
    if code == PETSC_SUCCESS:
        code = TSGetTimeStep(ts, &proposed)
    if code != PETSC_SUCCESS:
        return code
    h = choose(log, t, proposed)
    if h != proposed:
        code = TSSetTimeStep(ts, h)
        if code != PETSC_SUCCESS:
            return code
    if push(&log.sizes, h):
        return PETSC_ERR_MEM
    if enters_piece(log, t, h):
        # Methods that begin with the last rate of the step before (FSAL) must not, where f has
        # jumped in between.
        code = TSRestartStep(ts)
        if code != PETSC_SUCCESS:
            return code
    # TS is stopped by an error code; Python reads the reason from the log.
    if log.stalled >= log.patience:
        log.shrunk, log.t = True, t
        return PETSC_ERR_USER
    if log.taking:
        spare_copy(ts, &log.place)
    return PETSC_SUCCESS


cdef PetscErrorCode after_step(
    PetscTS ts, PetscInt step, PetscReal t, PetscVec u, void *context
) noexcept nogil:
    cdef Log *log = NULL
    cdef TSConvergedReason reason = 0
    cdef int finite = True
    cdef PetscErrorCode code = TSGetApplicationContext(ts, <void *>&log)
    if code != PETSC_SUCCESS or log == NULL:
        return code
    end_sparing(ts, &log.place)
    if step == 1 or step % SIGNALS == 0:
        code = ask_python(log, step == 1)
        if code != PETSC_SUCCESS:
            return code
    if step:
        code = TSGetConvergedReason(ts, &reason)
        if code != PETSC_SUCCESS:
            return code
        if t == log.times.values[log.times.count - 1] and reason >= 0:  # a failed step comes by too
            log.shrunk, log.t = True, t
            return PETSC_ERR_USER
    # NaN stays NaN from state to state, so that looking now and then is enough where all of them
    # are kept: forget_since_not_finite finds the first.
    if (not log.taking or step % APART == 0 or t >= log.ends.values[log.ends.count - 1]
            or (log.thinned and not log.prescribed.count)):
        code = finite_everywhere(u, &finite)
    if not finite:
        log.not_finite, log.t, log.step = True, t, step
        return PETSC_ERR_USER
    if code == PETSC_SUCCESS and push(&log.times, t):
        return PETSC_ERR_MEM
    if code == PETSC_SUCCESS and step and not log.taking:
        code = forget(log)
        if log.thinned and push(&log.numbers, step):
            return PETSC_ERR_MEM
    if code == PETSC_SUCCESS and log.flat:
        code = push_numbers(&log.flat_states, u)
    if code != PETSC_SUCCESS or not step:
        return code
    if log.taking:
        code = take_state(log, ts, step == 1)
    elif not log.flat:
        code = push_copy(&log.states, u)
    if code == PETSC_SUCCESS and log.most_stages:
        code = keep_stages(log, ts)
    return code


cdef PetscErrorCode take_state(Log *log, PetscTS ts, bint first) noexcept nogil:
    """Take the state before the step: TS goes on with a new vector.

    Before the first step it is the solution that TS was given, a copy of the start.
    """
    cdef PetscInt count = 0
    cdef PetscVec *stages = NULL
    cdef PetscErrorCode code = TSGetStages(ts, &count, &stages)
    cdef PetscVec state
    if code != PETSC_SUCCESS:
        return code
    # stages[0] is the state that the step began with.
    if not first:
        code = forget(log)
        if log.thinned and push(&log.numbers, log.times.count - 2):
            return PETSC_ERR_MEM
        return push_exchanged(&log.states, &stages[0]) if code == PETSC_SUCCESS else code
    state = stages[0]
    code = duplicate_to_fill(state, &stages[0])
    return VecDestroy(&state) if code == PETSC_SUCCESS else code


cdef PetscErrorCode take_last_state(Log *log, PetscTS ts) noexcept nogil:
    """Take the last state of the log, and give TS the solution back that it had."""
    cdef PetscInt count = 0
    cdef PetscVec *stages = NULL
    cdef PetscVec u = NULL
    cdef PetscErrorCode code = TSGetSolution(ts, &u)
    if code == PETSC_SUCCESS:
        code = TSGetStages(ts, &count, &stages)
    if code != PETSC_SUCCESS or u == log.solution:
        return code
    code = forget(log)
    if code != PETSC_SUCCESS:
        return code
    if log.thinned and push(&log.numbers, log.times.count - 1):
        return PETSC_ERR_MEM
    if log.not_finite:
        if log.times.count > 1:
            code = push_exchanged(&log.states, &stages[0])
        if code == PETSC_SUCCESS:
            code = forget_since_not_finite(log)
    elif make_room(
            <void **>&log.states.values, log.states.count + 1, &log.states.room, sizeof(PetscVec)):
        code = PETSC_ERR_MEM
    else:
        code = PetscObjectReference(<void *>u)
        log.states.values[log.states.count] = u
        log.states.count += 1
    return TSSetSolution(ts, log.solution) if code == PETSC_SUCCESS else code


cdef PetscErrorCode forget_since_not_finite(Log *log) noexcept nogil:
    """Go back to the first step to a state that is not finite, all of which but the last are taken."""
    cdef PetscErrorCode code = PETSC_SUCCESS
    cdef int finite = True
    cdef long k
    # The last look was at most so many states ago.
    for k in range(max(0, log.states.count - APART), log.states.count):
        if code == PETSC_SUCCESS and finite:
            code = finite_everywhere(log.states.values[k], &finite)
            if not finite:
                log.step, log.t = k + 1, log.times.values[k + 1]
                log.times.count = log.sizes.count = k + 1
    while code == PETSC_SUCCESS and log.states.count >= log.times.count:
        log.states.count -= 1
        code = VecDestroy(&log.states.values[log.states.count])
    return code


cdef PetscErrorCode keep_stages(Log *log, PetscTS ts) noexcept nogil:
    """Keep all stages but the first one, which is the state before the step."""
    cdef PetscInt count = 0, k
    cdef PetscVec *stages = NULL
    cdef PetscErrorCode code = TSGetStages(ts, &count, &stages)
    if log.kept_stages + count - 1 > log.most_stages:
        return code
    log.n_stages = count - 1
    log.kept_stages += count - 1
    for k in range(1, count):
        if code == PETSC_SUCCESS and log.flat:
            code = push_numbers(&log.flat_stages, stages[k])
        elif code == PETSC_SUCCESS and log.taking:
            code = push_exchanged(&log.stages, &stages[k])
        elif code == PETSC_SUCCESS:
            code = push_copy(&log.stages, stages[k])
    return code


cdef PetscErrorCode ask_python(Log *log, bint first) noexcept with gil:
    owner = <Steps>log.owner
    try:
        PyErr_CheckSignals()
        if first:
            owner.on_first_step()
    except BaseException as error:
        owner.error = error
        return PETSC_ERR_USER
    return PETSC_SUCCESS


def count_steps(double t, double dt, ends, long most):
    """Return how many steps of a fixed size lead from ``t`` to the last of ``ends``; or ``most``.

    Examples
    --------
    >>> count_steps(0.0, 0.1, [0.55, 1.0], 1000)
    11
    """
    cdef Numbers all
    cdef long count = 0
    all.values, all.count, all.room = NULL, 0, 0
    try:
        for end in ends:
            if push(&all, end):
                raise MemoryError
        while t < all.values[all.count - 1] and count < most:
            t += cut(t, dt, all.values, all.count)
            count += 1
        return count
    finally:
        free(all.values)


def next_step(double t, double dt, ends):
    """Return the size of a step from ``t``: dt, or less to end at the next of ``ends``.

    The ends increase.  What remains is one step if at most 1 % longer than dt, two equal ones if at
    most twice as long.  This is PETSc's rule; PETSc 3.26 itself, once its first step has been cut,
    takes all others as short as that one.

    Examples
    --------
    >>> next_step(0.0, 0.1, [0.5, 1.0]), next_step(0.35, 0.1, [0.5, 1.0])
    (0.1, 0.07500000000000001)
    """
    cdef Numbers all
    all.values, all.count, all.room = NULL, 0, 0
    try:
        for end in ends:
            if push(&all, end):
                raise MemoryError
        return cut(t, dt, all.values, all.count)
    finally:
        free(all.values)


cdef class Steps:
    """Sizes and times of the steps of one run; their states and stages too if C logs them.

    Python chooses and notes step by step (``choose``, ``note``), or TS does it without Python
    between ``attach`` and ``detach``: the rules are the same functions.

    Parameters
    ----------
    ends : sequence of float
                            times that steps have to end at; the last one ends the run
    dt : float or None      size of fixed steps; None where an error estimate chooses
    stall, patience : float, int
                            so many steps in a row below such a part of the time passed
                            lead nowhere
    breakpoints : ndarray [K]
                            times at which a method has to forget the last rate
    prescribed : sequence of float
                            sizes of the steps of a run that is taken again
    """

    cdef Log log
    cdef object on_first_step, breakpoints
    cdef readonly object error

    def __cinit__(self, ends, dt, double stall, int patience, breakpoints, prescribed=()):
        self.breakpoints = breakpoints
        self.log.breakpoints, self.log.piece = breakpoints_of(breakpoints), -1
        self.log.fixed = dt is not None
        self.log.dt = 0.0 if dt is None else dt
        self.log.stall, self.log.patience = stall, patience
        self.log.owner = <void *>self
        for end in ends:
            if push(&self.log.ends, end):
                raise MemoryError
        for size in prescribed:
            if push(&self.log.prescribed, size):
                raise MemoryError

    def __dealloc__(self):
        cdef long k
        for k in range(self.log.states.count):
            VecDestroy(&self.log.states.values[k])
        for k in range(self.log.stages.count):
            VecDestroy(&self.log.stages.values[k])
        free(self.log.states.values)
        free(self.log.stages.values)
        free(self.log.flat_states.values)
        free(self.log.flat_stages.values)
        free(self.log.ends.values)
        free(self.log.prescribed.values)
        free(self.log.staying.values)
        free(self.log.numbers.values)
        free(self.log.times.values)
        free(self.log.sizes.values)

    def choose(self, double t, double proposed):
        """Return the size of the step from ``t`` that TS ``proposed`` another one for; log it."""
        cdef double h = choose(&self.log, t, proposed)
        if push(&self.log.sizes, h):
            raise MemoryError
        return h

    def enters_piece(self, double t, double h):
        """Whether a step lies in another piece between breakpoints than the one before it."""
        return enters_piece(&self.log, t, h)

    def note(self, double t):
        """Log the time after an accepted step, or the first one."""
        if push(&self.log.times, t):
            raise MemoryError

    @property
    def stalled(self):
        """Whether too many steps in a row were too small."""
        return self.log.stalled >= self.log.patience

    @property
    def stalling(self):
        """Whether the last step was too small."""
        return self.log.stalled > 0

    @property
    def last_size(self):
        """Size of the step tried last."""
        return self.log.sizes.values[self.log.sizes.count - 1]

    @property
    def last_time(self):
        """The time after the step logged last, or the first one; None before."""
        cdef long count = self.log.times.count
        return self.log.times.values[count - 1] if count else None

    def times(self):
        """Return the times [N+1]."""
        return copied(self.log.times.values, self.log.times.count)

    def sizes(self):
        """Return the sizes [N]: h with t + h the next time, that tried or else the difference."""
        cdef long k, count = max(0, self.log.times.count - 1)
        cdef double t, following
        cdef np.ndarray array = copied(self.log.sizes.values, count)
        cdef double *sizes = <double *>np.PyArray_DATA(array)
        for k in range(count):
            t, following = self.log.times.values[k], self.log.times.values[k + 1]
            # TS may have taken a shorter step than was chosen; replays need h with t + h equal to
            # the next time to the last bit.
            if t + sizes[k] != following:
                sizes[k] = following - t
        return array

    @property
    def shrunk(self):
        """Return the time at which steps that TS logged led nowhere, or None."""
        return self.log.t if self.log.shrunk else None

    @property
    def not_finite(self):
        """Return time and number of a step to a state that is not finite, or None."""
        return (self.log.t, self.log.step) if self.log.not_finite else None

    def attach(self, TS ts, on_first_step, long stages, bint flat, long most=0, staying=None):
        """Let TS log its steps without Python.

        Parameters
        ----------
        ts : TS             to whose monitors ``add_monitor`` has added
        on_first_step : callable
                            called after the first step
        stages : int        how many stages are kept at most
        flat : bool         states and stages are logged as numbers, not as vectors
        most : int          each k-th state stays, so many of them; 0: all, or those ``staying``
        staying : ndarray of int [K], optional
                            numbers of the states that stay, besides the first and the last one
        """
        cdef long number
        self.on_first_step, self.log.most_stages = on_first_step, stages
        self.log.thinned, self.log.stride = most > 0 or staying is not None, most > 0
        self.log.most = most
        if staying is not None:
            for number in staying:
                if push(&self.log.staying, number):
                    raise MemoryError
        self.log.taking, self.log.flat = ts.getType() == CHAINED, flat
        CHKERR(TSGetSolution(ts.ts, &self.log.solution))
        CHKERR(TSSetApplicationContext(ts.ts, <void *>&self.log))
        CHKERR(TSSetPreStep(ts.ts, before_step))

    def detach(self, TS ts):
        """End what ``attach`` began."""
        self.on_first_step = None
        end_sparing(ts.ts, &self.log.place)
        if self.log.taking:
            CHKERR(take_last_state(&self.log, ts.ts))
        CHKERR(TSSetApplicationContext(ts.ts, NULL))
        CHKERR(TSSetPreStep(ts.ts, NULL))

    def take_states(self):
        """List the states after each step [n], and hand them over."""
        return taken(&self.log.states)

    def numbers(self):
        """Return the numbers of the states that are there, but for the first, if not all are."""
        return copied(self.log.numbers.values, self.log.numbers.count).astype(np.int64)

    def take_stages(self):
        """List the stages of each step [n] without the first one, and hand them over."""
        vecs = taken(&self.log.stages)
        count = self.log.n_stages
        return [vecs[k : k + count] for k in range(0, len(vecs), count)] if count else []

    def note_state(self, Vec u):
        """Log a state [n] as numbers; the first one, or that after an accepted step."""
        CHKERR(push_numbers(&self.log.flat_states, u.vec))

    def note_stages(self, TS ts, long most):
        """Log the stages of the step that TS has taken as numbers, but the first; ``most`` in all."""
        self.log.flat, self.log.most_stages = True, most
        CHKERR(keep_stages(&self.log, ts.ts))

    def flat_states(self, long size):
        """Return the states [N+1, n] that are numbers by now, the first one too."""
        cdef Numbers *all = &self.log.flat_states
        return copied(all.values, all.count).reshape(-1, size)

    def take_flat_states(self, long size):
        """Hand over the states [N+1, n], the first one too, where they are numbers."""
        return handed_over(&self.log.flat_states).reshape(-1, size)

    def flat_stages(self, long size):
        """Hand over the stages [K, s-1, n] of the first steps, without the first one, as numbers."""
        if not self.log.flat_stages.count:
            return np.empty((0, 1, size))
        return handed_over(&self.log.flat_stages).reshape(-1, self.log.n_stages, size)


cdef np.ndarray handed_over(Numbers *all):
    """Return numbers as an array that owns their memory from now on: no copy."""
    cdef np.npy_intp count = all.count
    cdef double *values = all.values
    cdef double *smaller
    cdef np.ndarray array
    if not count:
        return np.empty(0)
    # What was taken to grow into goes back.
    smaller = <double *>realloc(values, <size_t>count * sizeof(double))
    if smaller != NULL:
        values = smaller
    array = np.PyArray_SimpleNewFromData(1, &count, np.NPY_DOUBLE, values)
    np.set_array_base(array, PyCapsule_New(values, NULL, free_numbers))
    all.values, all.count, all.room = NULL, 0, 0
    return array


cdef void free_numbers(object capsule) noexcept:
    free(PyCapsule_GetPointer(capsule, NULL))


cdef np.ndarray copied(const double *values, np.npy_intp count):
    """Return numbers as an array."""
    cdef np.ndarray array = np.PyArray_EMPTY(1, &count, np.NPY_DOUBLE, 0)
    if count:
        memcpy(np.PyArray_DATA(array), values, <size_t>count * sizeof(double))
    return array


cdef list taken(Vectors *all):
    cdef long k
    vecs = [owner_of(all.values[k]) for k in range(all.count)]
    all.count = 0
    return vecs


def add_monitor(TS ts):
    """Let a TS log its steps wherever ``Steps`` are attached to it; once for each TS."""
    CHKERR(TSMonitorSet(ts.ts, after_step, NULL, NULL))
