/* Arrays in a file on a disk, for values that are used once per step: the kernel writes their pages out when memory is
 * short and reads them back when they are touched. */
#pragma once

#include <stddef.h>

#include "core/comm.h"

struct trm_mapped {
  void *data;   /* zeroed, page-aligned, the same memory on all ranks; NULL: none */
  size_t bytes;
};

/* Creates one array for all ranks of comm, which share a node, in a new file in `folder`. The disk space is allocated
 * before it returns. The file is unlinked by then: it disappears with the last process that maps it. Collective. Errors
 * are the same on every rank and name the folder, `what` and the size. */
int trm_mapped_create(struct trm_comm *comm, const char *folder, size_t bytes, const char *what,
                      struct trm_mapped *mapped);
void trm_mapped_free(struct trm_mapped *mapped); /* data may be NULL */
