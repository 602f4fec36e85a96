/* Recursive doubling: in round k every rank exchanges its sum with the rank whose number differs in bit k, so that
 * after it each group of 2^(k+1) ranks has the sum of the group. Both add the same two numbers, and a + b = b + a bit
 * for bit. */
#include "mpi/coll/allreduce_tree.h"

#include "core/memory.h"

#define CHUNK_BYTES ((size_t)1 << 20) /* smaller chunks are dominated by latency */
#define TAG 32000

static void allreduce_tree_add(void *to, const void *from, size_t count, enum trm_type type)
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

/* Sends a chunk to one rank, receives one from another; -1: none. */
static void allreduce_tree_exchange(struct trm_comm *comm, const void *data, int to, void *received, int from,
                                    size_t count, enum trm_type type)
{
  struct trm_request *receive = NULL, *send = NULL;
  if (from >= 0)
    comm->ops->receive_begin(comm, received, count, type, from, TAG, &receive);
  if (to >= 0)
    comm->ops->send_begin(comm, data, count, type, to, TAG, &send);
  comm->ops->wait(&receive);
  comm->ops->wait(&send);
}

static void allreduce_tree_chunk(struct trm_comm *comm, void *data, void *received, size_t count, enum trm_type type)
{
  const int rank = comm->rank;
  int power = 1;
  while (2 * power <= comm->size)
    power *= 2;
  if (rank >= power) { /* a rank beyond the tree: sends its values, receives the sum */
    allreduce_tree_exchange(comm, data, rank - power, NULL, -1, count, type);
    allreduce_tree_exchange(comm, NULL, -1, data, rank - power, count, type);
    return;
  }
  const int extra = rank + power < comm->size ? rank + power : -1;
  if (extra >= 0) {
    allreduce_tree_exchange(comm, NULL, -1, received, extra, count, type);
    allreduce_tree_add(data, received, count, type);
  }
  for (int bit = 1; bit < power; bit *= 2) {
    allreduce_tree_exchange(comm, data, rank ^ bit, received, rank ^ bit, count, type);
    allreduce_tree_add(data, received, count, type);
  }
  if (extra >= 0)
    allreduce_tree_exchange(comm, data, extra, NULL, -1, count, type);
}

void trm_allreduce_tree(struct trm_comm *comm, void *data, size_t count, enum trm_type type)
{
  if (comm->size == 1 || count == 0)
    return;
  const size_t bytes = trm_type_bytes(type), max = CHUNK_BYTES / bytes, chunk = count < max ? count : max;
  void *received = trm_alloc(chunk * bytes, "a chunk of a peer's array");
  for (size_t at = 0; at < count; at += chunk)
    allreduce_tree_chunk(comm, (char *)data + at * bytes, received, count - at < chunk ? count - at : chunk, type);
  trm_free(received);
}
