/* Tensor parallelism, in two passes over the layers: from the last to the first, preferred shardings of all values;
 * then from the first to the last, each layer's sharding, given its input's. */
#include "nn/sharding.h"

#include "core/comm.h"
#include "core/memory.h"
#include "core/status.h"
#include "nn/layers/layers.h"
#include "nn/model.h"

const struct trm_sharding trm_sharding_replicated = {.kind = TRM_REPLICATED};

/* -- shardings */

struct trm_sharding trm_sharding_by_feature(size_t groups, size_t units, size_t width)
{
  return (struct trm_sharding){.kind = TRM_SHARDED_BY_FEATURE, .groups = groups, .units = units, .width = width};
}

struct trm_sharding trm_sharding_of_shape(const struct trm_shape *shape)
{
  if (shape->sequence)
    return trm_sharding_by_feature(1, shape->size[1], 1);
  const size_t first = shape->dims ? shape->size[0] : 1;
  return shape->dims == 3 ? trm_sharding_by_feature(1, first, shape->size[1] * shape->size[2])
                          : trm_sharding_by_feature(1, trm_shape_count(shape), 1);
}

static bool sharding_equals(const struct trm_sharding *a, const struct trm_sharding *b, int size)
{
  if (a->kind != TRM_SHARDED_BY_FEATURE || b->kind != TRM_SHARDED_BY_FEATURE)
    return a->kind == b->kind;
  const size_t n = (size_t)size;
  return a->groups == b->groups && a->units * a->width == b->units * b->width &&
         (a->units == b->units || (a->units % n == 0 && b->units % n == 0));
}

/* Returns this rank's slice of a sample of the whole shape. */
static struct trm_slice sharding_slice(const struct trm_shape *full, const struct trm_sharding *sharding, int rank,
                                       int size)
{
  struct trm_slice slice;
  if (sharding->kind == TRM_SHARDED_BY_POSITION)
    slice = (struct trm_slice){.outer = 1, .extent = full->size[0], .inner = full->size[1]};
  else
    slice = (struct trm_slice){.outer = (full->sequence ? full->size[0] : 1) * sharding->groups,
                               .extent = sharding->units,
                               .inner = sharding->width};
  trm_interval(slice.extent, (size_t)size, (size_t)rank, &slice.low, &slice.high);
  return slice;
}

static struct trm_shape sharding_shape(const struct trm_shape *full, const struct trm_sharding *sharding, int rank,
                                       int size)
{
  struct trm_shape shape = *full;
  if (sharding->kind == TRM_REPLICATED)
    return shape;
  const struct trm_slice slice = sharding_slice(full, sharding, rank, size);
  const size_t units = slice.high - slice.low;
  if (sharding->kind == TRM_SHARDED_BY_POSITION)
    shape.size[0] = units;
  else if (full->dims == 3) /* whole channels */
    shape.size[0] = sharding->groups * units * sharding->width / (full->size[1] * full->size[2]);
  else
    shape.size[full->sequence ? 1 : 0] = sharding->groups * units * sharding->width;
  return shape;
}

/* -- helpers for layers */

size_t trm_shard_units(const struct trm_shard_request *request, size_t units)
{
  size_t low, high;
  trm_interval(units, (size_t)request->size, (size_t)request->rank, &low, &high);
  return high - low;
}

void trm_shard_layer(struct trm_layer *layer, struct trm_shard_request *request, struct trm_sharding in,
                     struct trm_sharding out)
{
  request->in = in;
  request->out = out;
  layer->in = sharding_shape(&layer->in, &in, request->rank, request->size);
  layer->output_sharded = out.kind != TRM_REPLICATED;
  if (layer->output_sharded)
    layer->slice = sharding_slice(&layer->out, &out, request->rank, request->size);
  layer->out = sharding_shape(&layer->out, &out, request->rank, request->size);
}

struct trm_sharding trm_prefer_output_sharding(const struct trm_layer *layer, const struct trm_sharding *out)
{
  (void)layer;
  return *out;
}

int trm_shard_like_input(struct trm_layer *layer, struct trm_shard_request *request)
{
  trm_shard_layer(layer, request, request->current, request->current);
  return TRM_OK;
}

void trm_shard_parameter(const struct trm_shard_request *request, struct trm_parameter *parameter, int dim,
                         size_t groups, size_t units)
{
  struct trm_slice *slice = &parameter->slice;
  size_t before = 1, after = 1;
  for (int d = 0; d < parameter->shape.dims; d++)
    *(d < dim ? &before : &after) *= parameter->shape.size[d];
  *slice = (struct trm_slice){.outer = before * groups, .extent = units, .inner = after / (groups * units)};
  trm_interval(units, (size_t)request->size, (size_t)request->rank, &slice->low, &slice->high);
  parameter->shape.size[dim] = parameter->shape.size[dim] / units * (slice->high - slice->low);
  parameter->count = slice->outer * (slice->high - slice->low) * slice->inner;
}

void trm_shard_weights(struct trm_layer *layer, struct trm_shard_request *request, struct trm_weight_settings *weights,
                       size_t size)
{
  const struct trm_sharding current = request->current, replicated = trm_sharding_replicated;
  struct trm_sharding out = request->preferred;
  const size_t ranks = (size_t)request->size, values = weights->units * size;
  if (current.kind == TRM_SHARDED_BY_FEATURE && !layer->tied) {
    trm_shard_parameter(request, &layer->parameter[0], 1, current.groups, current.units);
    layer->output_partial = true;
    trm_shard_layer(layer, request, current, replicated);
    return;
  }
  if (layer->tied || out.kind != TRM_SHARDED_BY_FEATURE || out.units < ranks || out.width % size != 0 ||
      out.groups * out.units * out.width != values)
    out = trm_sharding_by_feature(1, weights->units, size);
  if (out.units < ranks) { /* not worth dividing */
    trm_shard_layer(layer, request, replicated, replicated);
    return;
  }
  for (int p = 0; p < layer->parameters; p++)
    trm_shard_parameter(request, &layer->parameter[p], 0, out.groups, out.units);
  weights->units = out.groups * trm_shard_units(request, out.units) * (out.width / size);
  layer->grad_input_partial = true;
  trm_shard_layer(layer, request, replicated, out);
}

/* -- the two passes */

/* A layer of the list that is made, and its output. */
struct sharded_value {
  struct trm_sharding sharding; /* partial sums: replicated */
  struct trm_shape full_shape;
};

/* A whole layer's counterpart in the sharded list. */
struct whole_layer {
  struct trm_sharding preferred; /* of its output */
  int layer_at, output_at;       /* index of the layer, and of its output */
};

struct sharder {
  const struct trm_model_part *part;
  const struct trm_layer *full; /* (layers) */
  struct whole_layer *whole;    /* (layers) */
  int layers;
  struct trm_layer *built;     /* (count) */
  struct sharded_value *value; /* (count) */
  int count;
};

/* Per layer: two reshards for each of two inputs, itself, one of its output; one at the end. */
enum { MAX_BUILT = 7 };

/* From the last layer to the first: a value gets the preference of its first reader that has one. */
static void sharding_find_preferred(struct sharder *s)
{
  for (int i = s->layers - 1; i >= 0; i--) {
    const struct trm_layer *layer = &s->full[i];
    const int reads[2] = {layer->from, layer->addend};
    if (!layer->ops->preferred_sharding)
      continue;
    const struct trm_sharding preferred = layer->ops->preferred_sharding(layer, &s->whole[i].preferred);
    for (int k = 0; k < 2; k++)
      if (reads[k] >= 0 && s->whole[reads[k]].preferred.kind == TRM_REPLICATED)
        s->whole[reads[k]].preferred = preferred;
  }
}

static struct trm_layer *sharding_append(struct sharder *s, const struct trm_shape *full, struct trm_sharding sharding)
{
  s->value[s->count] = (struct sharded_value){sharding, *full};
  return &s->built[s->count++];
}

/* Inserts a reshard layer after layer `from` (or the batch), shared by readers that need the same. sharded: the one of
 * the two shardings that is not replicated. */
static int sharding_add_reshard(struct sharder *s, const struct trm_layer *owner, const struct trm_layer_ops *ops,
                                int from, const struct trm_shape *full, struct trm_sharding to,
                                struct trm_sharding sharded)
{
  const int rank = s->part->tensor_rank, size = s->part->tensor_size;
  for (int i = 0; i < s->count; i++)
    if (s->built[i].ops == ops && s->built[i].from == from && sharding_equals(&s->value[i].sharding, &to, size))
      return i;
  const struct trm_shape before = from >= 0 ? s->built[from].out : *full;
  const bool needed = from >= 0 && s->built[from].needs_dy;
  struct trm_layer *layer = sharding_append(s, full, to);
  *layer = (struct trm_layer){.ops = ops,
                              .number = owner->number,
                              .global_index = owner->global_index,
                              .from = from,
                              .addend = TRM_FROM_NONE,
                              .rows_from = TRM_FROM_BATCH,
                              .in = before,
                              .out = sharding_shape(full, &to, rank, size),
                              .tensor_rank = rank,
                              .tensor_size = size,
                              .output_sharded = to.kind != TRM_REPLICATED,
                              .needs_dy = needed,
                              .needs_dx = needed};
  if (sharded.kind != TRM_REPLICATED)
    layer->slice = sharding_slice(full, &sharded, rank, size);
  return s->count - 1;
}

/* Returns the value in the reader's sharding. partial: the reader's dx is a partial sum. *reduced: the reshard layer's
 * backward reduces it. */
static int sharding_convert(struct sharder *s, const struct trm_layer *reader, int from, struct trm_sharding to,
                            bool partial, bool *reduced)
{
  const struct trm_shape full = from >= 0 ? s->value[from].full_shape : reader->in;
  const struct trm_sharding current = from >= 0 ? s->value[from].sharding : trm_sharding_replicated;
  *reduced = false;
  if (sharding_equals(&current, &to, s->part->tensor_size))
    return from;
  if (current.kind != TRM_REPLICATED) {
    *reduced = partial && to.kind == TRM_REPLICATED && current.kind == TRM_SHARDED_BY_POSITION;
    from = sharding_add_reshard(s, reader, *reduced ? &layer_all_gather_partial : &layer_all_gather, from, &full,
                                trm_sharding_replicated, current);
  }
  return to.kind == TRM_REPLICATED ? from : sharding_add_reshard(s, reader, &layer_slice, from, &full, to, to);
}

/* Returns true if sequences of this shape are sharded by position. */
static bool sharding_wants_positions(const struct sharder *s, const struct trm_shape *shape)
{
  return s->part->sequence_parallel && shape->sequence && shape->size[0] % (size_t)s->part->tensor_size == 0;
}

/* Shards both operands of an add alike: by position if one is, else by feature if one is. */
static int sharding_shard_layer(struct sharder *s, int i)
{
  struct trm_layer layer = s->full[i];
  const struct trm_shape full = layer.out;
  const int from[2] = {layer.from >= 0 ? s->whole[layer.from].output_at : layer.from,
                       layer.addend >= 0 ? s->whole[layer.addend].output_at : layer.addend};
  struct trm_shard_request request = {
    .rank = s->part->tensor_rank, .size = s->part->tensor_size, .preferred = s->whole[i].preferred};
  for (int k = 0; k < 2; k++)
    if (from[k] >= 0 && s->value[from[k]].sharding.kind > request.current.kind)
      request.current = s->value[from[k]].sharding;
  if (i + 1 < s->layers && s->full[i + 1].from == i && s->full[i + 1].addend >= 0 && s->full[i + 1].addend < i)
    request.beside = s->value[s->whole[s->full[i + 1].addend].output_at].sharding;
  bool reduced = false, addend_reduced;
  const struct trm_layer reader = layer; /* before sharding */
  layer.tensor_rank = request.rank;
  layer.tensor_size = request.size;
  for (int p = 0; p < layer.parameters; p++) /* replicated parameters count once */
    layer.parameter[p].primary = request.rank == 0;
  if (layer.tied)
    layer.tied = &s->built[s->whole[layer.tied - s->full].layer_at];
  if (layer.ops->shard)
    TRM_CHECK(layer.ops->shard(&layer, &request));
  else
    trm_shard_layer(&layer, &request, trm_sharding_replicated, trm_sharding_replicated);
  layer.from = sharding_convert(s, &reader, from[0], request.in, layer.grad_input_partial, &reduced);
  if (layer.addend != TRM_FROM_NONE)
    layer.addend = sharding_convert(s, &reader, from[1], request.in, false, &addend_reduced);
  layer.grad_input_partial = layer.grad_input_partial && !reduced;
  for (int p = 0; p < layer.parameters; p++)
    layer.parameter[p].primary = request.rank == 0 || trm_slice_is_shard(&layer.parameter[p].slice);
  s->whole[i].layer_at = s->whole[i].output_at = s->count;
  *sharding_append(s, &full, request.out) = layer;
  if (layer.output_partial) {
    const bool positions = sharding_wants_positions(s, &full);
    const struct trm_sharding sharding = {.kind = positions ? TRM_SHARDED_BY_POSITION : TRM_REPLICATED};
    s->whole[i].output_at = sharding_add_reshard(s, &layer, positions ? &layer_reduce_scatter : &layer_all_reduce,
                                                 s->whole[i].output_at, &full, sharding, sharding);
  }
  return TRM_OK;
}

/* Reshards the scores for the loss. */
static void sharding_end_scores(struct sharder *s, bool sharded_loss)
{
  int end = s->whole[s->layers - 1].output_at;
  const struct trm_sharding sharding = s->value[end].sharding;
  bool reduced;
  if (sharding.kind == TRM_SHARDED_BY_POSITION ||
      (sharding.kind == TRM_SHARDED_BY_FEATURE && (!sharded_loss || sharding.groups > 1 || sharding.width > 1)))
    end = sharding_convert(s, &s->full[s->layers - 1], end, trm_sharding_replicated, false, &reduced);
  for (int i = 0; i < s->count; i++)
    s->built[i].is_output = i == end;
}

int trm_model_shard(const struct trm_model_part *part, bool sharded_loss, struct trm_layer **layer, int *layers)
{
  const size_t n = (size_t)*layers, capacity = MAX_BUILT * n + 1;
  struct sharder s = {.part = part, .full = *layer, .layers = *layers};
  s.whole = trm_alloc(n * sizeof *s.whole, "layers");
  s.built = trm_alloc(capacity * sizeof *s.built, "layers");
  s.value = trm_alloc(capacity * sizeof *s.value, "layers");
  sharding_find_preferred(&s);
  int status = TRM_OK;
  for (int i = 0; i < s.layers && status == TRM_OK; i++)
    status = sharding_shard_layer(&s, i);
  if (status == TRM_OK)
    sharding_end_scores(&s, sharded_loss);
  trm_free(s.whole);
  trm_free(s.value);
  if (status != TRM_OK) {
    trm_free(s.built);
    return status;
  }
  trm_free(*layer);
  *layer = s.built;
  *layers = s.count;
  return TRM_OK;
}
