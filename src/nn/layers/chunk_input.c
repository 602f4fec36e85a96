/* Where a chunk of a cut model begins: the value that another rank computes, and its gradient on the way back. Moving
 * them is the pipeline's; here is what a model wants to know of any layer. */
#include "nn/layers/layers.h"

static struct trm_cost chunk_input_cost(const struct trm_layer *layer)
{
  (void)layer;
  return (struct trm_cost){0};
}

const struct trm_layer_ops layer_chunk_input = {
  .name = "entry",
  .usage = "entry",
  .cost = chunk_input_cost,
};
