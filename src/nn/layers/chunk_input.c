/* The first layer of a pipeline chunk: its output is the value that another rank computes and sends (partition.h), its
 * gradient is sent back. It computes nothing. */
#include "nn/layers/layers.h"

const struct trm_layer_ops layer_chunk_input = {
  .name = "chunk_input",
  .usage = "chunk_input",
  .cost = trm_layer_cost_none,
};
