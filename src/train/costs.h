/* Measured times of computation, for runs whose time is modeled (simulate.machine). plan/ implements it. */
#pragma once

#include "nn/model.h"

/* Seconds per byte, read or written, of the operations of a device on flat arrays. */
struct trm_array_costs {
  double sum, copy, update;
};

/* A model of the times of one machine. */
struct trm_costs {
  /* Sets *seconds to those of one core for a gradient of `rows` rows: reading them, forward, loss, backward. TRM_USAGE:
   * figures of the model's work are missing. */
  int (*gradient)(const struct trm_costs *costs, const struct trm_model *model, size_t rows, double *seconds);
  /* Sets the costs of arrays that have so many bytes together. TRM_USAGE: figures are missing. */
  int (*arrays)(const struct trm_costs *costs, double bytes, struct trm_array_costs *arrays);
};
