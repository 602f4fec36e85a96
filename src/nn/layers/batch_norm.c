/* Batch normalization (Ioffe & Szegedy 2015) of images (C, H, W) or vectors (C), as torch.nn.BatchNorm2d and 1d.
 *
 * Training normalizes by the statistics of the batch: with sync=yes those of all ranks that compute parts of it at the
 * same time, otherwise of this rank's part. Evaluation takes running statistics, which training moves towards those of
 * the batch:  running += momentum * (batch - running), the variance of the batch unbiased.
 * A pass writes its moments to the statistics' gradient, weighted with its part of the global batch; they are summed as
 * gradients are, and the optimizer averages (nn/optimizer.h). All ranks so have the same running statistics, whatever
 * the division of the batch. */
#include <math.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

enum { GAIN, BIAS, MEAN, VARIANCE };
enum { MOMENTS, SUMS, PARTS }; /* in the workspace, (2, C) each; sync: then the count, two floats */

struct batch_norm {
  float epsilon, momentum;
  bool sync;
};

static int batch_norm_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  static const char *const keys[] = {"epsilon", "momentum", "sync", NULL};
  struct batch_norm *s = layer->settings;
  *s = (struct batch_norm){.epsilon = 1e-5f, .momentum = 0.1f, .sync = true};
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 0, keys));
  TRM_CHECK(trm_argument_real(layer, arguments, -1, "epsilon", 1e-12, 1, &s->epsilon));
  TRM_CHECK(trm_argument_real(layer, arguments, -1, "momentum", 0, 1, &s->momentum));
  return trm_argument_bool(layer, arguments, "sync", &s->sync);
}

static int batch_norm_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  if (layer->in.sequence || (layer->in.dims != 1 && layer->in.dims != 3))
    return trm_error(TRM_USAGE, "%s: takes images (C, H, W) or vectors (C), not samples of shape %s",
                     trm_layer_text(layer), trm_shape_text(&layer->in));
  const struct trm_shape channels = {.dims = 1, .size = {layer->in.size[0]}};
  layer->out = layer->in;
  layer->workspace_fixed = PARTS * 2 * channels.size[0] + 2;
  trm_layer_add_parameter(layer, "weight", &channels, TRM_INIT_ONE, 0);
  trm_layer_add_parameter(layer, "bias", &channels, TRM_INIT_ZERO, 0);
  trm_layer_add_parameter(layer, "running_mean", &channels, TRM_INIT_ZERO, 0);
  trm_layer_add_parameter(layer, "running_var", &channels, TRM_INIT_ONE, 0);
  for (int p = MEAN; p <= VARIANCE; p++) {
    layer->parameter[p].statistic = true;
    layer->parameter[p].momentum = ((const struct batch_norm *)layer->settings)->momentum;
  }
  return TRM_OK;
}

/* count: values per channel in the batch. */
static struct trm_batch_norm batch_norm_of(const struct trm_layer *layer, double count)
{
  const struct batch_norm *s = layer->settings;
  const size_t channels = layer->in.size[0];
  return (struct trm_batch_norm){.channels = channels,
                                 .size = trm_shape_count(&layer->in) / channels,
                                 .count = count,
                                 .epsilon = s->epsilon};
}

static float *batch_norm_workspace(const struct trm_layer *layer, float *work, int part)
{
  return work + (size_t)part * 2 * layer->in.size[0];
}

static bool batch_norm_is_synced(const struct trm_layer *layer, const struct trm_pass *pass)
{
  return ((const struct batch_norm *)layer->settings)->sync && pass->reduce;
}

/* Sums (2, C) floats of the device over the ranks: plainly, or, for moments, merged into those of all *count values. */
static void batch_norm_sum_ranks(const struct trm_layer *layer, const struct trm_pass *pass, float *on_device,
                                 double *count)
{
  const size_t c = layer->in.size[0];
  float *both = trm_alloc(2 * c * sizeof *both, "statistics");
  double *sum = trm_alloc((2 * c + 1) * sizeof *sum, "statistics");
  pass->device->ops->download(pass->device, both, on_device, 2 * c * sizeof *both);
  for (size_t k = 0; k < c; k++) {
    const double first = (double)both[k], second = (double)both[c + k];
    sum[k] = count ? *count * first : first;
    sum[c + k] = count ? second + *count * first * first : second;
  }
  sum[2 * c] = count ? *count : 0;
  pass->reduce(pass->reduce_context, sum, 2 * c + 1);
  if (count)
    *count = sum[2 * c];
  for (size_t k = 0; k < c; k++) {
    const double mean = count ? sum[k] / *count : 0;
    both[k] = (float)(count ? mean : sum[k]);
    both[c + k] = (float)(count ? fmax(sum[c + k] - *count * mean * mean, 0) : sum[c + k]);
  }
  pass->device->ops->upload(pass->device, on_device, both, 2 * c * sizeof *both);
  trm_free(both);
  trm_free(sum);
}

/* The count over all ranks, which forward writes and backward reads, in device memory. */
static double *batch_norm_ranks_count(const struct trm_layer *layer, float *work)
{
  return (double *)batch_norm_workspace(layer, work, PARTS);
}

static void batch_norm_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x /* (B, C, S) */,
                               void *y /* (B, C, S) */, float *work)
{
  const struct trm_device_ops *ops = pass->device->ops;
  const struct trm_parameter *p = layer->parameter;
  const size_t b = layer->rows;
  struct trm_batch_norm norm = batch_norm_of(layer, 1);
  const float *mean = p[MEAN].w, *square = p[VARIANCE].w;
  if (pass->training) {
    float *moments = batch_norm_workspace(layer, work, MOMENTS);
    norm.count = (double)(b * norm.size);
    ops->batch_norm_moments(pass->device, &(struct trm_batch_norm_moments){
      .bn = norm, .x = x, .moments = moments, .b = b, .type = layer->values});
    if (batch_norm_is_synced(layer, pass)) {
      batch_norm_sum_ranks(layer, pass, moments, &norm.count);
      ops->upload(pass->device, batch_norm_ranks_count(layer, work), &norm.count, sizeof norm.count);
    }
    mean = moments;
    square = moments + norm.channels;
  }
  ops->batch_norm_forward(pass->device, &(struct trm_batch_norm_forward){
    .bn = norm, .x = x, .mean = mean, .square = square, .w = p[GAIN].w, .bias = p[BIAS].w, .y = y, .b = b,
    .type = layer->values});
}

static void batch_norm_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                                const void *dy, void *dx, float *work)
{
  (void)y;
  const struct trm_device_ops *ops = pass->device->ops;
  const struct trm_parameter *p = layer->parameter;
  const size_t b = layer->rows;
  struct trm_batch_norm norm = batch_norm_of(layer, 0);
  const size_t c = norm.channels;
  if (batch_norm_is_synced(layer, pass))
    norm.counted = batch_norm_ranks_count(layer, work);
  else
    norm.count = (double)(b * norm.size);
  float *moments = batch_norm_workspace(layer, work, MOMENTS), *sums = batch_norm_workspace(layer, work, SUMS);
  ops->batch_norm_sums(pass->device, &(struct trm_batch_norm_sums){
    .bn = norm, .x = x, .mean = moments, .square = moments + c, .dy = dy, .sums = sums, .b = b, .type = layer->values});
  if (b) /* the moments count by this pass's share of the batch */
    ops->batch_norm_gradients(pass->device, &(struct trm_batch_norm_gradients){
      .bn = norm, .sums = sums, .moments = moments, .share = (double)pass->input->rows * (double)pass->scale,
      .beta = pass->beta, .dw = p[GAIN].g, .db = p[BIAS].g, .dmean = p[MEAN].g, .dvariance = p[VARIANCE].g});
  if (batch_norm_is_synced(layer, pass))
    batch_norm_sum_ranks(layer, pass, sums, NULL);
  if (dx)
    ops->batch_norm_backward(pass->device, &(struct trm_batch_norm_backward){
      .bn = norm, .x = x, .mean = moments, .square = moments + c, .w = p[GAIN].w, .dy = dy, .sums = sums,
      .dx = dx, .b = b, .type = layer->values});
}

static int batch_norm_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  int inputs[] = {x, 0, 0, 0, 0};
  for (int p = GAIN; p <= VARIANCE; p++)
    inputs[1 + p] = graph->ops->parameter(graph, &layer->parameter[p]);
  const int y = graph->ops->node(graph, "BatchNormalization", inputs, 5, 1);
  graph->ops->set_real(graph, "epsilon", ((const struct batch_norm *)layer->settings)->epsilon);
  return y;
}

/* Shards by channels. */
static int batch_norm_shard(struct trm_layer *layer, struct trm_shard_request *request)
{
  const struct trm_sharding current = request->current;
  for (int p = 0; current.kind == TRM_SHARDED_BY_FEATURE && p < layer->parameters; p++)
    trm_shard_parameter(request, &layer->parameter[p], 0, current.groups, current.units);
  TRM_CHECK(trm_shard_like_input(layer, request));
  layer->workspace_fixed = PARTS * 2 * layer->in.size[0] + 2;
  return TRM_OK;
}

const struct trm_layer_ops layer_batch_norm = {
  .name = "batch_norm",
  .takes_bf16 = true,
  .usage = "batch_norm [epsilon=E momentum=M sync=yes|no]",
  .settings_bytes = sizeof(struct batch_norm),
  .create = batch_norm_create,
  .shape = batch_norm_shape,
  .forward = batch_norm_forward,
  .backward = batch_norm_backward,
  .cost_per_value = {.flop = 6, .bytes = 3 * sizeof(float)},
  .export_graph = batch_norm_export,
  .preferred_sharding = trm_prefer_output_sharding,
  .shard = batch_norm_shard,
  .keeps_input = true,
  .in_place = true,
  .is_collective = true,
  .removes_bias = true,
};
