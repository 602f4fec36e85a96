/* Recursive doubling: in round k every rank exchanges its sum with the rank whose number differs in bit k, so that
 * after it each group of 2^(k+1) ranks has the sum of the group. Both add the same two numbers, and a + b = b + a bit
 * for bit. */
#include "mpi/coll/allreduce_tree.h"

#include "core/memory.h"

#define PIECE_BYTES ((size_t)1 << 20) /* smaller ones spend their time in handshakes */
#define TAG 32000

static void add(void *to, const void *from, size_t count, enum trm_type type)
{
  if (type == TRM_FLOAT) {
    float *restrict a = to;
    const float *restrict b = from;
    for (size_t i = 0; i < count; i++)
      a[i] += b[i];
  } else {
    double *restrict a = to;
    const double *restrict b = from;
    for (size_t i = 0; i < count; i++)
      a[i] += b[i];
  }
}

/* Sends a piece to one rank, receives one from another; -1: nobody. */
static void move(struct trm_comm *comm, const void *data, int to, void *theirs, int from, size_t count,
                 enum trm_type type)
{
  struct trm_request *receive = NULL, *send = NULL;
  if (from >= 0)
    comm->ops->receive_begin(comm, theirs, count, type, from, TAG, &receive);
  if (to >= 0)
    comm->ops->send_begin(comm, data, count, type, to, TAG, &send);
  comm->ops->wait(&receive);
  comm->ops->wait(&send);
}

static void reduce_piece(struct trm_comm *comm, void *data, void *theirs, size_t count, enum trm_type type)
{
  const int rank = comm->rank;
  int power = 1;
  while (2 * power <= comm->size)
    power *= 2;
  if (rank >= power) { /* a rank beyond: hands its numbers in, waits for the sum */
    move(comm, data, rank - power, NULL, -1, count, type);
    move(comm, NULL, -1, data, rank - power, count, type);
    return;
  }
  const int beyond = rank + power < comm->size ? rank + power : -1;
  if (beyond >= 0) {
    move(comm, NULL, -1, theirs, beyond, count, type);
    add(data, theirs, count, type);
  }
  for (int bit = 1; bit < power; bit *= 2) {
    move(comm, data, rank ^ bit, theirs, rank ^ bit, count, type);
    add(data, theirs, count, type);
  }
  if (beyond >= 0)
    move(comm, data, beyond, NULL, -1, count, type);
}

void trm_allreduce_tree(struct trm_comm *comm, void *data, size_t count, enum trm_type type)
{
  if (comm->size == 1 || count == 0)
    return;
  const size_t bytes = trm_type_bytes(type), most = PIECE_BYTES / bytes, piece = count < most ? count : most;
  void *theirs = trm_alloc(piece * bytes, "a piece of a peer's array");
  for (size_t at = 0; at < count; at += piece)
    reduce_piece(comm, (char *)data + at * bytes, theirs, count - at < piece ? count - at : piece, type);
  trm_free(theirs);
}
