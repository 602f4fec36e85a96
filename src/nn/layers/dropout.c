/* Dropout (Srivastava et al. 2014), inverted: what is kept is scaled by 1 / (1 - rate) in training, evaluation is the
 * identity. The mask is a function of seed, layer and global sample position, so backward draws it again. */
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

/* The settings are the rate. */
static int dropout_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  float *rate = layer->settings;
  *rate = 0.5f;
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 1, (const char *const[]){"rate", NULL}));
  return trm_argument_real(layer, arguments, 0, "rate", 0, 1, rate);
}

static int dropout_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  if (layer->rows_from != TRM_FROM_BATCH)
    return trm_error(TRM_USAGE, "%s: takes values with a row for each sample: its masks go by global sample",
                     trm_layer_text(layer));
  layer->out = layer->in;
  return TRM_OK;
}

/* Sharded values: each contiguous run of this rank is a row, part of one of the `outer` rows per sample of the whole
 * value. */
struct trm_dropout trm_layer_dropout_call(const struct trm_layer *layer, const struct trm_pass *pass)
{
  const struct trm_slice *slice = &layer->slice;
  const size_t outer = layer->output_sharded ? slice->outer : 1, f = trm_shape_count(&layer->in);
  return (struct trm_dropout){
    .mask = {.seed = pass->seed,
             .stream = (uint32_t)layer->number,
             .first_row = pass->first_row * outer,
             .step = pass->step,
             .row_parts = outer,
             .rate = pass->training ? *(const float *)layer->settings : 0,
             .stride = layer->output_sharded ? slice->extent * slice->inner : f,
             .offset = layer->output_sharded ? slice->low * slice->inner : 0},
    .b = layer->rows * outer, .f = f / outer, .type = layer->values};
}

/* Sets to (B, F) to from (B, F) under this pass's mask. */
static void dropout_apply(const struct trm_layer *layer, const struct trm_pass *pass, bool backward, const void *from,
                          void *to)
{
  (void)backward;
  struct trm_dropout call = trm_layer_dropout_call(layer, pass);
  call.x = from;
  call.y = to;
  if (call.mask.rate > 0)
    pass->device->ops->dropout(pass->device, &call);
  else if (to != from)
    pass->device->ops->copy(pass->device, to, from, call.b * call.f * trm_value_bytes(layer->values));
}

static int dropout_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  (void)layer, (void)graph;
  return x;
}

const struct trm_layer_ops layer_dropout = {
  .name = "dropout",
  .takes_bf16 = true,
  .usage = "dropout [RATE]",
  .settings_bytes = sizeof(float),
  .create = dropout_create,
  .shape = dropout_shape,
  .forward = trm_layer_apply_forward,
  .backward = trm_layer_apply_backward,
  .apply = dropout_apply,
  .export_graph = dropout_export,
  .preferred_sharding = trm_prefer_output_sharding,
  .shard = trm_shard_like_input,
  .in_place = true,
};
