/* A device that forwards every call to another one and records seconds, operations and bytes of each part of a step.
 * Counts the device's own work only: no messages, waiting or host work. */
#pragma once

#include "core/device.h"

enum timed_part {
  TIMED_MATMUL, /* gemm, sparse products */
  TIMED_CONVOLUTION,
  TIMED_ATTENTION,
  TIMED_NORMALIZATION, /* of rows and of batches */
  TIMED_ELEMENTWISE, /* element by element, sums of arrays or rows, pooling */
  TIMED_EMBEDDING_LOSS, /* embedding and loss */
  TIMED_OPTIMIZER,
  TIMED_MEMORY, /* copies and fills */
  TIMED_RECORDED, /* calls that are replayed together: the host's part */
  TIMED_PARTS
};
extern const char *const timed_part_name[TIMED_PARTS];

/* Totals of a part so far. bytes: each array that a call must read or write, counted once, ignoring caches. */
struct timed_sum {
  double s, flop, bytes;
};

/* The shape of a product, and the number of calls. */
struct timed_product {
  bool transpose_a, transpose_b;
  size_t m, n, k, calls;
};

enum { TIMED_MAX_PRODUCTS = 64 };
struct timed_profile {
  struct trm_device *inner; /* not owned */
  struct timed_sum sum[TIMED_PARTS];
  struct timed_product product[TIMED_MAX_PRODUCTS]; /* (products) distinct shapes; further ones are not stored */
  size_t products;
};

/* Makes `device` a device that calls `inner` and counts in `timed`. Nothing to close. */
void timed_device_open(struct trm_device *device, struct timed_profile *timed, struct trm_device *inner);
