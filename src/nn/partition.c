/* Reduces the chain of all layers to the chunks of one rank. */
#include "nn/partition.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/layers/layers.h"

/* True if a layer at global index `at` or later reads the value of layer i. */
static bool partition_is_read_after(const struct trm_layer *layer, int layers, int i, int at)
{
  for (int r = i + 1; r < layers; r++)
    if (layer[r].global_index >= at && (layer[r].from == i || layer[r].addend == i))
      return true;
  return false;
}

/* Returns the only value that crosses the cut; TRM_FROM_NONE: several do, or its rows are not the batch's. */
static int partition_crossing_value(const struct trm_layer *layer, int layers, int at)
{
  int value = TRM_FROM_NONE;
  for (int i = 0; i < layers; i++) {
    if (layer[i].global_index < at && partition_is_read_after(layer, layers, i, at)) {
      if (value != TRM_FROM_NONE || layer[i].rows_from != TRM_FROM_BATCH)
        return TRM_FROM_NONE;
      value = i;
    }
    if (layer[i].global_index >= at && (layer[i].from == TRM_FROM_BATCH || layer[i].addend == TRM_FROM_BATCH))
      return TRM_FROM_NONE;
  }
  return value;
}

bool trm_partition_allowed(const struct trm_layer *layer, int layers, int at)
{
  return partition_crossing_value(layer, layers, at) != TRM_FROM_NONE;
}

/* Gives the layer its own copy of a tied weight. */
static void partition_untie(struct trm_layer *layer)
{
  for (int p = layer->parameters; p > 0; p--)
    layer->parameter[p] = layer->parameter[p - 1];
  layer->parameters++;
  layer->parameter[0] = layer->tied->parameter[0];
  layer->parameter[0].primary = false;
  layer->tied = NULL;
}

/* index: of each layer of the whole model in the part; TRM_FROM_NONE: absent. */
struct partitioner {
  const struct trm_layer *full; /* (layers) */
  int layers;
  struct trm_layer *built;
  int count;
  int *index; /* (layers) */
};

static int partition_find_value(const struct partitioner *c, int i)
{
  return i < 0 ? i : c->index[i];
}

/* Returns the index of a layer, ignoring chunk inputs; -1: absent. */
static int partition_find_layer(const struct partitioner *c, const struct trm_layer *full)
{
  for (int i = 0; i < c->count; i++)
    if (c->built[i].global_index == full->global_index && c->built[i].ops != &layer_chunk_input)
      return i;
  return -1;
}

static void partition_add_input(struct partitioner *c, int value)
{
  const struct trm_layer *from = &c->full[value];
  c->built[c->count] = (struct trm_layer){.ops = &layer_chunk_input,
                                          .number = from->number,
                                          .global_index = from->global_index,
                                          .from = TRM_FROM_NONE,
                                          .addend = TRM_FROM_NONE,
                                          .rows_from = TRM_FROM_BATCH,
                                          .in = from->out,
                                          .out = from->out,
                                          .out_last_allowed = from->out_last_allowed,
                                          .needs_dy = from->needs_dy};
  c->index[value] = c->count++;
}

static void partition_add_layer(struct partitioner *c, int i)
{
  const struct trm_layer *full = &c->full[i];
  struct trm_layer *layer = &c->built[c->count];
  trm_layer_copy(layer, full);
  layer->from = partition_find_value(c, full->from);
  layer->addend = partition_find_value(c, full->addend);
  if (full->tied) {
    const int tied = partition_find_layer(c, full->tied);
    layer->tied = tied >= 0 ? &c->built[tied] : full->tied;
    if (tied >= 0)
      c->built[tied].shared = true;
    else
      partition_untie(layer);
  }
  layer->shared = false; /* set when its tied layer is added */
  c->index[i] = c->count++;
}

static int partition_add_chunk(struct partitioner *c, struct trm_layer_range range)
{
  if (range.first > 0) {
    const int value = partition_crossing_value(c->full, c->layers, range.first);
    if (value == TRM_FROM_NONE)
      return trm_error(TRM_USAGE, "the model cannot be cut before layer %d: more than one value would cross",
                       range.first);
    partition_add_input(c, value);
  }
  for (int i = 0; i < c->layers; i++)
    if (c->full[i].global_index >= range.first && c->full[i].global_index < range.last)
      partition_add_layer(c, i);
  return TRM_OK;
}

int trm_partition(const struct trm_model_part *part, struct trm_layer **layer, int *layers, int *end)
{
  struct partitioner c = {.full = *layer, .layers = *layers};
  c.built = trm_alloc((size_t)(c.layers + part->chunks) * sizeof *c.built, "layers");
  c.index = trm_alloc((size_t)c.layers * sizeof *c.index, "layers");
  for (int i = 0; i < c.layers; i++)
    c.index[i] = TRM_FROM_NONE;
  int status = TRM_OK;
  for (int k = 0; k < part->chunks && status == TRM_OK; k++) {
    status = partition_add_chunk(&c, part->chunk[k]);
    end[k] = c.count;
  }
  trm_free(c.index);
  if (status != TRM_OK) {
    trm_layers_free(c.built, c.count);
    return status;
  }
  trm_layers_free(*layer, *layers);
  *layer = c.built;
  *layers = c.count;
  return TRM_OK;
}
