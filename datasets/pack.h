/* Compression of blocks by several ranks (private to datasets/). A rank packs a block by HDF5's own filters, in a file
 * in memory, so that it has the bytes that the writing rank would store. (Parallel HDF5 stores compressed chunks in
 * collective calls alone, and encrypted files not at all: one rank writes.) */
#pragma once

#include "core/comm.h"
#include "datasets/blocks.h"

/* A block of an array. */
struct pack_block {
  hid_t dataset;        /* the array, of deflate level > 0; on rank 0 */
  enum block_type type;
  struct trm_shape row;
  uint64_t first;       /* its first row */
  size_t rows;          /* a chunk of the array */
  size_t bytes;
  unsigned char *data;  /* (rows, row); owned by rank 0 */
};

/* Stores rank 0's blocks; the ranks divide the compression. The dataset has the extent for them. blocks, count and
 * level are rank 0's. Collective. False on rank 0: HDF5 failed (h5_error). */
bool pack_blocks(struct trm_comm *comm, const struct pack_block *blocks, size_t count, int level);
