/* The one-sided operations that `trireme bench rma` measures, and the memory they access (private to cli). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/comm.h"

enum { RMA_TARGET = 0, RMA_ORIGIN = 1 }; /* ranks of the pair */
#define RMA_MAX_BYTES ((size_t)4 << 20)

struct rma_memory {
  struct trm_comm *pair;      /* the two ranks; not owned */
  struct trm_comm *node;      /* ranks of the pair that share memory with this one */
  bool shares_memory;         /* both do */
  struct trm_window *floats;  /* the target's RMA_MAX_BYTES bytes, through the communicator */
  struct trm_window *counter; /* its one 64-bit integer */
  struct trm_shared shared;   /* where shares_memory: the same floats, then the integer */
  float *local;               /* (RMA_MAX_BYTES / 4) this rank's own, sent from and received into */
};

/* An operation of the origin on the target's memory; complete at both when run returns. */
struct rma_op {
  const char *window; /* "mpi": a window of the communicator; "shared": loads and stores */
  const char *name;
  void (*run)(struct rma_memory *memory, size_t bytes);
  bool shared;         /* only between ranks that share memory */
  bool single_element; /* one element of 8 bytes; bytes is ignored */
};

extern const struct rma_op rma_op_table[]; /* ends with a row whose name is NULL */

/* Collective over the pair. To be closed, even if it fails. */
int rma_memory_open(struct rma_memory *memory, struct trm_comm *pair);
void rma_memory_close(struct rma_memory *memory); /* collective over the pair */

/* On the origin: runs each operation once and verifies its effect; the target waits in the communicator meanwhile. */
int rma_memory_verify(struct rma_memory *memory);
