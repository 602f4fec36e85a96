/* One rank's memory as another one reaches it: what trireme bench rma measures, a row an operation. */
#ifndef TRM_CLI_BENCH_ACCESS_H
#define TRM_CLI_BENCH_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/comm.h"

enum { RMA_TARGET = 0, RMA_ORIGIN = 1 }; /* ranks of the pair */
#define RMA_MAX_BYTES ((size_t)4 << 20)       /* bytes */

struct rma_memory {
  struct trm_comm *pair;      /* not owned: the two ranks */
  struct trm_comm *node;      /* those of the pair that share this rank's memory */
  bool shares_memory;                /* both do */
  struct trm_window *floats;  /* the target's RMA_MAX_BYTES bytes, through the communicator */
  struct trm_window *counter; /* its one 64-bit integer */
  struct trm_shared shared;   /* where `shares`: the same two, the integer behind the floats, for loads and stores */
  float *local;                /* (RMA_MAX_BYTES / 4 of float) this rank's own, which is sent and received into */
};

/* An operation of the origin on the target's memory, complete at both when `run` returns. */
struct rma_op {
  const char *window; /* "mpi": through the communicator's windows; "shared": loads and stores */
  const char *name;
  void (*run)(struct rma_memory *memory, size_t bytes);
  bool shared;        /* only between ranks that share memory */
  bool single_element;           /* of one element of 8 bytes, whatever bytes says */
};

extern const struct rma_op rma_op_table[]; /* ends with a row whose name is NULL */

/* Collective over the pair. On failure, too, the memory must be closed. */
int rma_memory_open(struct rma_memory *memory, struct trm_comm *pair);
void rma_memory_close(struct rma_memory *memory);

/* Does each operation do what it says? The origin alone asks; the target sits in the communicator meanwhile. */
int rma_memory_verify(struct rma_memory *memory);

#endif
