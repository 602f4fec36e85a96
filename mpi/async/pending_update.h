/* An update of shared weights whose virtual time has not passed: made on a copy of the weights that it touches, and
 * stored when it has. In the real network a rank's stores are visible while it computes; here they would be visible
 * before it has computed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/choices.h"

struct pending_weight {
  size_t i;
  float before; /* when the update began */
};

struct pending_update {
  float *copy;                   /* (elements) of the weights that are touched */
  unsigned char *touched;        /* (elements) */
  struct pending_weight *weight; /* (count) those that are touched */
  size_t count, capacity;
  uint64_t stored, conflicts;    /* weights of all updates, and those among them that another update changed meanwhile */
};

void pending_update_create(struct pending_update *pending, size_t elements);
void pending_update_free(struct pending_update *pending);

/* The update begun may change element i of w. */
void pending_update_touch(struct pending_update *pending, const float *w, size_t i);

/* Stores the update and begins a new one. Where another was stored since this one began: `conflicts`. Counts both. */
void pending_update_store(struct pending_update *pending, float *w, enum trm_conflicts conflicts);
