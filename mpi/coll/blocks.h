/* An array in blocks, one for each rank of a communicator. */
#pragma once

#include "mpi/coll/schedule.h"

struct coll_blocks {
  char *data;
  size_t *at, *count; /* (size) the first element of each block, and how many it has */
};

/* Divides data (count) by trm_interval. For coll_blocks_free. */
struct coll_blocks coll_blocks_divide(const struct trm_comm *comm, void *data, size_t count);
/* The columns [low, high) of each row of data (size, count). For coll_blocks_free. */
struct coll_blocks coll_blocks_columns(const struct trm_comm *comm, void *data, size_t count, size_t low, size_t high);
void coll_blocks_free(struct coll_blocks *blocks);
/* The address of a block. */
void *coll_block(const struct coll_schedule *schedule, const struct coll_blocks *blocks, int block);
