/* Lanes (run.lanes): the gradient of a batch is the sum over V fixed virtual shards, added in one fixed binary tree, so
 * that its bits do not depend on the number of ranks. A rank has 2^levels adjacent lanes, a subtree; the strategy adds
 * the ranks' subtrees in the same tree. */
#pragma once

#include "core/device.h"

#define TRM_MAX_LANE_LEVELS 16

struct trm_lanes {
  struct trm_device *device;
  size_t elements;
  int count;                         /* lanes of this rank */
  int levels;                        /* log2(count) */
  float *subtree_sum[TRM_MAX_LANE_LEVELS]; /* device, (elements) each: a finished left subtree of 2^level lanes */
};

/* count: lanes of this rank, a power of two. Not collective. */
int trm_lanes_create(struct trm_lanes *lanes, struct trm_device *device, size_t elements, int count);
/* Adds lane `number` (0, 1, ... in order), with gradient g (elements), device. After the last lane g holds the sum. */
void trm_lanes_add(struct trm_lanes *lanes, int number, float *g);
void trm_lanes_free(struct trm_lanes *lanes);
