/* Arrays in a file on a disk, for what is needed once a step and may leave the memory in between: the kernel writes
 * pages out when memory is short and reads them back when they are touched. */
#ifndef TRM_CORE_MAPPED_H
#define TRM_CORE_MAPPED_H

#include <stddef.h>

#include "core/comm.h"

struct trm_mapped {
  void *data;   /* zeroed, page-aligned; the same memory on all ranks; NULL: there is none */
  size_t bytes;
};

/* Collective over ranks of one node (comm_self: this rank alone): one array of all of them, in a new file in `folder`,
 * whose place on the disk is taken before it returns. The file has no name any more by then: it goes with the last
 * process that has it. Errors name the folder, what and the size, and are every rank's. */
int trm_mapped_create(struct trm_comm *comm, const char *folder, size_t bytes, const char *what,
                      struct trm_mapped *mapped);
void trm_mapped_free(struct trm_mapped *mapped); /* what is not there is allowed */

#endif
