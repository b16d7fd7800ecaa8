/* Counts what a rank sends and waits for: preloaded between a program and its MPI.

   mpicc -shared -fPIC -O2 mpi_counts.c -o libmpi_counts.so; LD_PRELOAD=./libmpi_counts.so program

   Whoever calls MPI is counted, PETSc, mpi4py or C.  Messages to the rank itself are none. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES, BYTES, REDUCTIONS, OVERLAPPED, GATHERS, LARGEST, COUNTERS };
static long long counts[COUNTERS];

void mpi_counts_read(long long *out) { memcpy(out, counts, sizeof counts); }
void mpi_counts_clear(void) { memset(counts, 0, sizeof counts); }

static long long size_of(MPI_Aint n, MPI_Datatype type)
{
  int size = 0;
  PMPI_Type_size(type, &size);
  return (long long)n * size;
}

static int ranks(MPI_Comm comm)
{
  int size = 1;
  PMPI_Comm_size(comm, &size);
  return size;
}

static int is_other(int peer, MPI_Comm comm)
{
  int rank = 0, inter = 0;
  PMPI_Comm_test_inter(comm, &inter);
  PMPI_Comm_rank(comm, &rank);
  return peer >= 0 && (inter || peer != rank);
}

static void sent(long long bytes, int peer, MPI_Comm comm)
{
  if (!is_other(peer, comm)) return;
  counts[MESSAGES]++;
  counts[BYTES] += bytes;
}

static void largest(long long bytes)
{
  if (bytes > counts[LARGEST]) counts[LARGEST] = bytes;
}

static void collected(int kind, long long bytes, MPI_Comm comm)
{
  if (ranks(comm) < 2) return;
  counts[kind]++;
  largest(bytes);
}

/* ---- messages */

#define SEND(name)                                                                                 \
  int MPI_##name(const void *b, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c)              \
  {                                                                                                \
    sent(size_of(n, t), peer, c);                                                                  \
    return PMPI_##name(b, n, t, peer, tag, c);                                                     \
  }
SEND(Send)
SEND(Ssend)

#define ISEND(name)                                                                                \
  int MPI_##name(const void *b, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c,              \
                 MPI_Request *r)                                                                   \
  {                                                                                                \
    sent(size_of(n, t), peer, c);                                                                  \
    return PMPI_##name(b, n, t, peer, tag, c, r);                                                  \
  }
ISEND(Isend)
ISEND(Issend)

int MPI_Sendrecv(const void *b, int n, MPI_Datatype t, int peer, int tag, void *rb, int rn,
                 MPI_Datatype rt, int from, int rtag, MPI_Comm c, MPI_Status *s)
{
  sent(size_of(n, t), peer, c);
  return PMPI_Sendrecv(b, n, t, peer, tag, rb, rn, rt, from, rtag, c, s);
}

/* Persistent ones are made once and started often. */
#define PERSISTENT 65536
static struct { MPI_Request request; long long bytes; } persistent[PERSISTENT];

static size_t place(MPI_Request request)
{
  size_t k = ((size_t)request >> 4) % PERSISTENT;
  for (size_t n = 0; n < PERSISTENT && persistent[k].request; n++, k = (k + 1) % PERSISTENT)
    if (persistent[k].request == request) break;
  return k;
}

int MPI_Send_init(const void *b, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c,
                  MPI_Request *r)
{
  int code = PMPI_Send_init(b, n, t, peer, tag, c, r);
  size_t k = place(*r);
  persistent[k].request = *r;
  persistent[k].bytes = is_other(peer, c) ? size_of(n, t) : -1;
  return code;
}

int MPI_Recv_init(void *b, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Request *r)
{
  int code = PMPI_Recv_init(b, n, t, peer, tag, c, r);
  size_t k = place(*r); /* the handle may be that of an earlier send */
  persistent[k].request = *r;
  persistent[k].bytes = -1;
  return code;
}

static void started(MPI_Request request)
{
  size_t k = place(request);
  if (persistent[k].request != request || persistent[k].bytes < 0) return;
  counts[MESSAGES]++;
  counts[BYTES] += persistent[k].bytes;
}

int MPI_Start(MPI_Request *r)
{
  started(*r);
  return PMPI_Start(r);
}

int MPI_Startall(int n, MPI_Request *r)
{
  for (int k = 0; k < n; k++) started(r[k]);
  return PMPI_Startall(n, r);
}

/* ---- collective calls */

int MPI_Allreduce(const void *a, void *b, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c)
{
  collected(REDUCTIONS, size_of(n, t), c);
  return PMPI_Allreduce(a, b, n, t, op, c);
}

int MPI_Iallreduce(const void *a, void *b, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c,
                   MPI_Request *r)
{
  collected(OVERLAPPED, size_of(n, t), c);
  return PMPI_Iallreduce(a, b, n, t, op, c, r);
}

int MPI_Reduce(const void *a, void *b, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c)
{
  collected(REDUCTIONS, size_of(n, t), c);
  return PMPI_Reduce(a, b, n, t, op, root, c);
}

int MPI_Barrier(MPI_Comm c)
{
  collected(REDUCTIONS, 0, c);
  return PMPI_Barrier(c);
}

int MPI_Scan(const void *a, void *b, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c)
{
  collected(REDUCTIONS, size_of(n, t), c);
  return PMPI_Scan(a, b, n, t, op, c);
}

int MPI_Bcast(void *b, int n, MPI_Datatype t, int root, MPI_Comm c)
{
  collected(GATHERS, size_of(n, t), c);
  return PMPI_Bcast(b, n, t, root, c);
}

int MPI_Allgather(const void *a, int n, MPI_Datatype t, void *b, int rn, MPI_Datatype rt,
                  MPI_Comm c)
{
  collected(GATHERS, size_of(rn, rt) * ranks(c), c);
  return PMPI_Allgather(a, n, t, b, rn, rt, c);
}

static long long total(const int *n, MPI_Datatype t, MPI_Comm c)
{
  long long sum = 0;
  for (int k = 0; k < ranks(c); k++) sum += n[k];
  return size_of(sum, t);
}

int MPI_Allgatherv(const void *a, int n, MPI_Datatype t, void *b, const int *rn, const int *at,
                   MPI_Datatype rt, MPI_Comm c)
{
  collected(GATHERS, total(rn, rt, c), c);
  return PMPI_Allgatherv(a, n, t, b, rn, at, rt, c);
}

static int is_root(int root, MPI_Comm c)
{
  int rank = 0;
  PMPI_Comm_rank(c, &rank);
  return rank == root;
}

int MPI_Gather(const void *a, int n, MPI_Datatype t, void *b, int rn, MPI_Datatype rt, int root,
               MPI_Comm c)
{
  collected(GATHERS, is_root(root, c) ? size_of(rn, rt) * ranks(c) : size_of(n, t), c);
  return PMPI_Gather(a, n, t, b, rn, rt, root, c);
}

int MPI_Gatherv(const void *a, int n, MPI_Datatype t, void *b, const int *rn, const int *at,
                MPI_Datatype rt, int root, MPI_Comm c)
{
  collected(GATHERS, is_root(root, c) ? total(rn, rt, c) : size_of(n, t), c);
  return PMPI_Gatherv(a, n, t, b, rn, at, rt, root, c);
}

int MPI_Scatterv(const void *a, const int *n, const int *at, MPI_Datatype t, void *b, int rn,
                 MPI_Datatype rt, int root, MPI_Comm c)
{
  collected(GATHERS, is_root(root, c) ? total(n, t, c) : size_of(rn, rt), c);
  return PMPI_Scatterv(a, n, at, t, b, rn, rt, root, c);
}
