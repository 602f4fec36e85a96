/* The cores of a node, and the ranks that share them. */
#pragma once

#include <stdbool.h>

#include "core/comm.h"

TRM_BEGIN_DECLS

/* The cores of this rank. */
struct trm_cores {
  int threads;         /* of this rank */
  bool oversubscribed; /* the node has fewer cores than threads */
  bool binds;          /* trm_cores_bind binds this rank to core `own` */
  int own;
};

/* Threads of this rank: as requested, else OMP_NUM_THREADS, else the cores that it may use, divided among the ranks of
 * its node that may use the same ones. Collective over node. */
void trm_cores_choose(struct trm_cores *cores, struct trm_comm *node, int requested);

/* Binds the calling thread, and those that it starts from now on, to one core, so that each core has the same number of
 * ranks; does nothing unless the number of ranks of the node is a multiple of that of its cores, and each has one
 * thread. Left to the system, which counts a waiting rank that polls as work, three ranks may share a core for seconds
 * while the fourth has its own. */
void trm_cores_bind(const struct trm_cores *cores);

TRM_END_DECLS
