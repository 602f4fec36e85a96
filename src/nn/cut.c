/* From the chain of all layers to the chunks of one rank. */
#include "nn/cut.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/layers/layers.h"

/* Is the value that layer i computes read by a layer placed at `at` or behind? */
static bool is_read_behind(const struct trm_layer *layer, int layers, int i, int at)
{
  for (int r = i + 1; r < layers; r++)
    if (layer[r].place >= at && (layer[r].from == i || layer[r].with == i))
      return true;
  return false;
}

/* The one value that crosses the cut; TRM_FROM_NONE: there are several. */
static int crossing(const struct trm_layer *layer, int layers, int at)
{
  int value = TRM_FROM_NONE;
  for (int i = 0; i < layers; i++) {
    if (layer[i].place < at && is_read_behind(layer, layers, i, at)) {
      if (value != TRM_FROM_NONE)
        return TRM_FROM_NONE;
      value = i;
    }
    if (layer[i].place >= at && (layer[i].from == TRM_FROM_BATCH || layer[i].with == TRM_FROM_BATCH))
      return TRM_FROM_NONE;
  }
  return value;
}

bool trm_cut_allowed(const struct trm_layer *layer, int layers, int at)
{
  return crossing(layer, layers, at) != TRM_FROM_NONE;
}

/* A layer whose weight is another one's takes it as its own. */
static void tie_cut(struct trm_layer *layer)
{
  for (int p = layer->parameters; p > 0; p--)
    layer->parameter[p] = layer->parameter[p - 1];
  layer->parameters++;
  layer->parameter[0] = layer->tied->parameter[0];
  layer->parameter[0].counted = false;
  layer->tied = NULL;
}

/* Where the layers of the whole are in the part; TRM_FROM_NONE: not there. */
struct cutting {
  const struct trm_layer *whole; /* (layers) */
  int layers;
  struct trm_layer *part;
  int count;
  int *where; /* (layers) */
};

static int find(const struct cutting *c, int i)
{
  return i < 0 ? i : c->where[i];
}

/* A layer itself, not an entry in place of it; -1: it is not there. */
static int find_layer(const struct cutting *c, const struct trm_layer *whole)
{
  for (int i = 0; i < c->count; i++)
    if (c->part[i].place == whole->place && c->part[i].ops != &layer_entry)
      return i;
  return -1;
}

static void entry_add(struct cutting *c, int value)
{
  const struct trm_layer *from = &c->whole[value];
  c->part[c->count] = (struct trm_layer){.ops = &layer_entry, .number = from->number, .place = from->place,
                                         .from = TRM_FROM_NONE, .with = TRM_FROM_NONE, .in = from->out,
                                         .out = from->out, .needs_dy = from->needs_dy};
  c->where[value] = c->count++;
}

static void layer_add_cut(struct cutting *c, int i)
{
  const struct trm_layer *whole = &c->whole[i];
  struct trm_layer *layer = &c->part[c->count];
  *layer = *whole;
  layer->from = find(c, whole->from);
  layer->with = find(c, whole->with);
  if (whole->tied) {
    const int tied = find_layer(c, whole->tied);
    layer->tied = tied >= 0 ? &c->part[tied] : whole->tied;
    if (tied >= 0)
      c->part[tied].shared = true;
    else
      tie_cut(layer);
  }
  layer->shared = false; /* until the layer that is tied to it is there */
  c->where[i] = c->count++;
}

static int chunk_cut(struct cutting *c, struct trm_chunk_cut cut)
{
  if (cut.first > 0) {
    const int value = crossing(c->whole, c->layers, cut.first);
    if (value == TRM_FROM_NONE)
      return trm_error(TRM_USAGE, "the model cannot be cut before layer %d: more than one value would cross",
                       cut.first);
    entry_add(c, value);
  }
  for (int i = 0; i < c->layers; i++)
    if (c->whole[i].place >= cut.first && c->whole[i].place < cut.last)
      layer_add_cut(c, i);
  return TRM_OK;
}

int trm_cut(const struct trm_model_part *part, struct trm_layer **layer, int *layers, int *end)
{
  struct cutting c = {.whole = *layer, .layers = *layers};
  c.part = trm_alloc((size_t)(c.layers + part->chunks) * sizeof *c.part, "layers");
  c.where = trm_alloc((size_t)c.layers * sizeof *c.where, "layers");
  for (int i = 0; i < c.layers; i++)
    c.where[i] = TRM_FROM_NONE;
  int status = TRM_OK;
  for (int k = 0; k < part->chunks && status == TRM_OK; k++) {
    status = chunk_cut(&c, part->chunk[k]);
    end[k] = c.count;
  }
  trm_free(c.where);
  if (status != TRM_OK) {
    trm_free(c.part);
    return status;
  }
  trm_free(*layer);
  *layer = c.part;
  *layers = c.count;
  return TRM_OK;
}
