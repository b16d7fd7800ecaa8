# cython: language_level=3
"""Vectors whose memory is used again; signatures and types in pooled.pyi."""

from petsc4py.PETSc cimport CHKERR, PETSC_SUCCESS, PetscErrorCode, PetscVec, Vec


cdef extern from *:
    """
    #include <petscdm.h>
    #include <petsc/private/vecimpl.h>
    #include <stdlib.h>
    #include <string.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif

    #define POOL "daeosens pool"
    #define LINE 64               /* bytes: of a cache line, and the widest registers */
    #define MOST_BYTES (1 << 29)  /* that a pool keeps while they are not in use */
    #define HUGE_PAGE (1 << 21)   /* bytes: where there are such pages, looking them up is quicker */
    #define TOGETHER 64           /* blocks, at most, that are taken from the system at once */
    #define SPARE 512             /* vectors, at most, that wait for their next use */

    typedef struct {
        long users;
        int filled; /* whoever duplicates fills every number: they need not be zeros */
        size_t bytes;
        long count, made, room; /* blocks: not in use, taken from slabs, most of those */
        void **free;
        long n_slabs;
        char **slabs;
        size_t left; /* bytes of the last slab */
        int open;    /* the first vector is there */
        PetscLayout empty; /* of no entry, on several ranks */
        long n_spare;
        Vec spare[SPARE];
    } Pool;

    typedef struct {
        Pool *pool;
        void *block; /* NULL: of the first vector, which has memory of its own */
        int kept;    /* by the pool, afterwards */
    } Lease;

    typedef struct { /* how the data of PETSc's own types of vectors begin */
        VECHEADER
    } Numbers;

    static void leave(Pool *pool)
    {
        if (--pool->users) return;
        while (pool->n_slabs) free(pool->slabs[--pool->n_slabs]);
        free(pool->slabs);
        free(pool->free);
        if (pool->empty) (void)PetscLayoutDestroy(&pool->empty);
        free(pool);
    }

    static PetscErrorCode give_back(PetscCtxRt context)
    {
        Lease *lease = *(Lease **)context;
        Pool *pool = lease->pool;
        if (!lease->block) { /* the first vector */
            pool->open = 0;
            while (pool->n_spare) PetscCall(VecDestroy(&pool->spare[--pool->n_spare]));
        }
        if (lease->kept) pool->free[pool->count++] = lease->block;
        else free(lease->block);
        free(lease);
        leave(pool);
        return PETSC_SUCCESS;
    }

    static PetscErrorCode duplicate_pooled(Vec vec, Vec *out);
    static PetscErrorCode duplicate_several(Vec vec, PetscInt count, Vec **out);

    static size_t multiple(size_t bytes, size_t of) { return (bytes + of - 1) / of * of; }

    static void *new_slab(Pool *pool)
    {
        const int huge = 16 * pool->bytes >= HUGE_PAGE; /* less than that may be all that is used */
        const size_t blocks = (size_t)(pool->room < TOGETHER ? pool->room : TOGETHER);
        const size_t bytes = multiple(pool->bytes * blocks, huge ? HUGE_PAGE : LINE);
        char *slab = (char *)aligned_alloc(huge ? HUGE_PAGE : LINE, bytes);
        if (!slab) return NULL;
    #if defined(MADV_HUGEPAGE)
        if (huge) madvise(slab, bytes, MADV_HUGEPAGE);
    #endif
        pool->left = bytes;
        return pool->slabs[pool->n_slabs++] = slab;
    }

    static void *new_block(Pool *pool)
    {
        if (pool->count) return pool->free[--pool->count];
        if (pool->made == pool->room) return aligned_alloc(LINE, pool->bytes);
        if (pool->left < pool->bytes && !new_slab(pool)) return NULL;
        pool->made++;
        pool->left -= pool->bytes;
        return pool->slabs[pool->n_slabs - 1] + pool->left;
    }

    static PetscErrorCode join(Vec vec, Pool *pool, void *block, int kept)
    {
        PetscContainer container;
        Lease *lease = (Lease *)malloc(sizeof(Lease));
        PetscFunctionBegin;
        PetscCheck(lease, PETSC_COMM_SELF, PETSC_ERR_MEM, "no memory");
        lease->pool = pool;
        lease->block = block;
        lease->kept = kept;
        pool->users++;
        PetscCall(PetscContainerCreate(PetscObjectComm((PetscObject)vec), &container));
        PetscCall(PetscContainerSetPointer(container, lease));
        PetscCall(PetscContainerSetCtxDestroy(container, give_back));
        PetscCall(PetscObjectCompose((PetscObject)vec, POOL, (PetscObject)container));
        PetscCall(PetscContainerDestroy(&container));
        PetscCall(VecSetOperation(vec, VECOP_DUPLICATE, (PetscErrorCodeFn *)duplicate_pooled));
        vec->ops->duplicatevecs = duplicate_several;
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    /* Let a vector wait for its next use, if it is as it was made; NULL then.  To make one and to
       destroy it reads and writes thousands of bytes that the numbers of a grid have driven out of
       the caches.  On one rank: others might not do the same. */
    static void set_aside(Vec *vec)
    {
        const PetscObject object = (PetscObject)*vec;
        PetscContainer container = NULL;
        Lease *lease = NULL;
        PetscMPIInt ranks = 0;
        if (object->refct != 1 || object->name || object->prefix || object->python_context) return;
        if ((*vec)->lock) return;
        if (MPI_Comm_size(object->comm, &ranks) || ranks > 1) return;
        if (PetscObjectQuery(object, POOL, (PetscObject *)&container) || !container) return;
        if (PetscContainerGetPointer(container, (void **)&lease)) return;
        if (!lease->kept || !lease->pool->open || lease->pool->n_spare == SPARE) return;
        lease->pool->spare[lease->pool->n_spare++] = *vec;
        *vec = NULL;
    }

    /* VecCreateMPIWithArray would gather the sizes on all ranks, for each vector (PETSc 3.26): a
       vector of no entry, whose layout is known, is made of what the other one knows. */
    static PetscErrorCode create_distributed(Vec like, Pool *pool, void *block, Vec *out)
    {
        Numbers *numbers;
        PetscFunctionBegin;
        PetscCall(VecCreate(PetscObjectComm((PetscObject)like), out));
        PetscCall(VecSetLayout(*out, pool->empty));
        PetscCall(VecSetType(*out, VECMPI));
        numbers = (Numbers *)(*out)->data;
        PetscCall(PetscFree(numbers->array_allocated));
        numbers->array = (PetscScalar *)block;
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    static PetscErrorCode duplicate_pooled(Vec vec, Vec *out)
    {
        MPI_Comm comm = PetscObjectComm((PetscObject)vec);
        PetscContainer container;
        PetscLayout layout;
        PetscMPIInt ranks;
        PetscInt block_size, n;
        Lease *lease;
        Pool *pool;
        void *block;
        int kept;
        DM dm;
        PetscFunctionBegin;
        PetscCall(PetscObjectQuery((PetscObject)vec, POOL, (PetscObject *)&container));
        PetscCall(PetscContainerGetPointer(container, (void **)&lease));
        pool = lease->pool;
        if (pool->n_spare) {
            *out = pool->spare[--pool->n_spare];
            if (!pool->filled) PetscCall(VecSet(*out, 0.0));
            PetscFunctionReturn(PETSC_SUCCESS);
        }
        kept = pool->count || pool->made < pool->room;
        block = new_block(pool);
        PetscCheck(block, PETSC_COMM_SELF, PETSC_ERR_MEM, "no memory for a vector");
        if (!pool->filled) memset(block, 0, pool->bytes); /* PETSc 3.26 scales what it never set */
        PetscCall(VecGetBlockSize(vec, &block_size));
        PetscCall(VecGetLocalSize(vec, &n));
        PetscCallMPI(MPI_Comm_size(comm, &ranks));
        if (ranks == 1) PetscCall(VecCreateSeqWithArray(comm, block_size, n, block, out));
        else PetscCall(create_distributed(vec, pool, block, out));
        PetscCall(VecGetLayout(vec, &layout));
        PetscCall(VecSetLayout(*out, layout));
        (*out)->ops->view = vec->ops->view; /* those of a DM put the points in order */
        (*out)->ops->load = vec->ops->load;
        PetscCall(VecGetDM(vec, &dm));
        if (dm) PetscCall(VecSetDM(*out, dm));
        PetscCall(join(*out, pool, block, kept));
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    /* PETSc 3.26 would take the memory of all together from the system */
    static PetscErrorCode duplicate_several(Vec vec, PetscInt count, Vec **out)
    {
        PetscFunctionBegin;
        PetscCall(PetscMalloc1(count, out));
        for (PetscInt k = 0; k < count; k++) PetscCall(VecDuplicate(vec, *out + k));
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    static PetscErrorCode duplicate_filled(Vec vec, Vec *out)
    {
        PetscContainer container;
        Lease *lease = NULL;
        PetscFunctionBegin;
        PetscCall(PetscObjectQuery((PetscObject)vec, POOL, (PetscObject *)&container));
        if (container) PetscCall(PetscContainerGetPointer(container, (void **)&lease));
        if (lease) lease->pool->filled = 1;
        PetscCall(VecDuplicate(vec, out));
        if (lease) lease->pool->filled = 0;
        PetscFunctionReturn(PETSC_SUCCESS);
    }

    static PetscErrorCode found_pool(Vec vec)
    {
        MPI_Comm comm = PetscObjectComm((PetscObject)vec);
        PetscMPIInt ranks;
        PetscBool plain;
        PetscInt n, block_size;
        Pool *pool;
        PetscFunctionBegin;
        PetscCall(PetscObjectTypeCompareAny((PetscObject)vec, &plain, VECSEQ, VECMPI, ""));
        if (!plain) PetscFunctionReturn(PETSC_SUCCESS);
        PetscCall(VecGetLocalSize(vec, &n));
        pool = (Pool *)calloc(1, sizeof(Pool));
        PetscCheck(pool, PETSC_COMM_SELF, PETSC_ERR_MEM, "no memory");
        pool->bytes = ((size_t)n * sizeof(PetscScalar) / LINE + 1) * LINE;
        pool->open = 1;
        pool->room = (long)(MOST_BYTES / pool->bytes);
        pool->free = (void **)calloc((size_t)pool->room + 1, sizeof(void *));
        pool->slabs = (char **)calloc((size_t)pool->room / TOGETHER + 1, sizeof(char *));
        PetscCheck(pool->free && pool->slabs, PETSC_COMM_SELF, PETSC_ERR_MEM, "no memory");
        PetscCall(VecGetBlockSize(vec, &block_size));
        PetscCallMPI(MPI_Comm_size(comm, &ranks));
        if (ranks > 1) {
            PetscCall(PetscLayoutCreateFromSizes(comm, 0, 0, block_size, &pool->empty));
        }
        PetscCall(join(vec, pool, NULL, 0));
        PetscFunctionReturn(PETSC_SUCCESS);
    }
    """
    PetscErrorCode found_pool(PetscVec)
    PetscErrorCode duplicate_filled(PetscVec, PetscVec *) noexcept nogil
    void set_aside(PetscVec *) noexcept nogil
    PetscErrorCode PetscFinalized(int *) noexcept nogil


cdef PetscErrorCode duplicate_to_fill(PetscVec vec, PetscVec *out) noexcept nogil:
    """Duplicate a vector, pooled or not, for one that is filled at once."""
    return duplicate_filled(vec, out)


cdef class ReusedVec(Vec):
    """A vector that goes back to its pool as it is, where there is one."""

    def __dealloc__(self):
        cdef int ended = True
        if self.vec != NULL and PetscFinalized(&ended) == PETSC_SUCCESS and not ended:
            set_aside(&self.vec)


cdef Vec owner_of(PetscVec vec):
    cdef ReusedVec owner = ReusedVec()
    owner.vec = vec
    return owner


def vec_to_fill(Vec vec):
    """Duplicate a vector, pooled or not, for one whose every number is set before it is read."""
    cdef Vec filled = ReusedVec()
    CHKERR(duplicate_filled(vec.vec, &filled.vec))
    return filled


def pool_memory(Vec vec):
    """Let vectors that are duplicated from this one, and from those, use memory again.

    Large ones would take it from the system, page by page, and give it back with every run.  Up to
    half a gigabyte is kept, in use or not, until the last of the vectors is gone.  Does nothing for
    vectors whose memory is not the processor's own.
    """
    CHKERR(found_pool(vec.vec))
