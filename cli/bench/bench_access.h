/* One rank's memory as another one reaches it: what trireme bench rma measures, a row an operation. */
#ifndef TRM_CLI_BENCH_ACCESS_H
#define TRM_CLI_BENCH_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/comm.h"

enum { ACCESS_TARGET = 0, ACCESS_ORIGIN = 1 }; /* ranks of the pair */
#define ACCESS_LARGEST ((size_t)4 << 20)       /* bytes */

struct access_memory {
  struct trm_comm *pair;      /* not owned: the two ranks */
  struct trm_comm *node;      /* those of the pair that share this rank's memory */
  bool shares;                /* both do */
  struct trm_window *floats;  /* the target's ACCESS_LARGEST bytes, through the communicator */
  struct trm_window *counter; /* its one 64-bit integer */
  struct trm_shared shared;   /* where `shares`: the same two, the integer behind the floats, for loads and stores */
  float *mine;                /* (ACCESS_LARGEST / 4 of float) this rank's own, which is sent and received into */
};

/* An operation of the origin on the target's memory, complete at both when `run` returns. */
struct access {
  const char *window; /* "mpi": through the communicator's windows; "shared": loads and stores */
  const char *name;
  void (*run)(struct access_memory *memory, size_t bytes);
  bool shared;        /* only between ranks that share memory */
  bool one;           /* of one element of 8 bytes, whatever bytes says */
};

extern const struct access access_table[]; /* ends with a row whose name is NULL */

/* Collective over the pair. On failure, too, the memory must be closed. */
int access_open(struct access_memory *memory, struct trm_comm *pair);
void access_close(struct access_memory *memory);

/* Does each operation do what it says? The origin alone asks; the target sits in the communicator meanwhile. */
int access_verify(struct access_memory *memory);

#endif
