/* Batch normalization (Ioffe & Szegedy 2015) of images (C, H, W) or vectors (C), as torch.nn.BatchNorm2d and 1d.
 *
 * Training normalizes by the statistics of the batch: with sync=yes those of all ranks and lanes that compute parts
 * of it at the same time, otherwise of this rank's or lane's part. Evaluation takes running statistics, which training
 * moves towards those of the batch:  running += momentum * (batch - running), the variance of the batch unbiased.
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
/* In the workspace, (2, C) each; BATCH_SUMS: synced, those over the whole batch. Behind them its count, two floats. */
enum { MOMENTS, SUMS, BATCH_SUMS, PARTS };

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

/* True if the statistics are frozen: training, too, normalizes by them. */
static bool batch_norm_is_fixed(const struct trm_layer *layer)
{
  return layer->parameter[MEAN].frozen;
}

static void batch_norm_set_channels(struct trm_layer *layer)
{
  const size_t c = layer->in.size[0];
  layer->workspace_fixed = PARTS * 2 * c + 2;
  layer->batch_sums = ((const struct batch_norm *)layer->settings)->sync && !batch_norm_is_fixed(layer) ? 2 * c + 1 : 0;
}

static int batch_norm_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  if (layer->in.sequence || (layer->in.dims != 1 && layer->in.dims != 3))
    return trm_error(TRM_USAGE, "%s: takes images (C, H, W) or vectors (C), not samples of shape %s",
                     trm_layer_text(layer), trm_shape_text(&layer->in));
  const struct trm_shape channels = {.dims = 1, .size = {layer->in.size[0]}};
  layer->out = layer->in;
  batch_norm_set_channels(layer);
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

/* Values of a channel in a sample: S. With the channels last each position is a vector, a sample of its own. */
static size_t batch_norm_size(const struct trm_layer *layer)
{
  return trm_shape_count(&layer->in) / layer->in.size[0];
}

/* Samples that the device's calls have. */
static size_t batch_norm_samples(const struct trm_layer *layer)
{
  return layer->rows * (layer->in_last ? batch_norm_size(layer) : 1);
}

/* count: values per channel in the batch. */
static struct trm_batch_norm batch_norm_of(const struct trm_layer *layer, double count)
{
  const struct batch_norm *s = layer->settings;
  return (struct trm_batch_norm){.channels = layer->in.size[0],
                                 .size = layer->in_last ? 1 : batch_norm_size(layer),
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

/* The count over the whole batch, which forward writes and backward reads, in device memory. */
static double *batch_norm_batch_count(const struct trm_layer *layer, float *work)
{
  return (double *)batch_norm_workspace(layer, work, PARTS);
}

static void batch_norm_compute_moments(const struct trm_layer *layer, const struct trm_pass *pass, const void *x,
                                       float *work)
{
  pass->device->ops->batch_norm_moments(pass->device, &(struct trm_batch_norm_moments){
    .bn = batch_norm_of(layer, 1), .x = x, .moments = batch_norm_workspace(layer, work, MOMENTS),
    .b = batch_norm_samples(layer), .type = layer->values});
}

/* The call's constants in backward: the count is that of the moments. */
static struct trm_batch_norm batch_norm_of_backward(const struct trm_layer *layer, const struct trm_pass *pass,
                                                    float *work)
{
  struct trm_batch_norm norm = batch_norm_of(layer, 0);
  if (batch_norm_is_synced(layer, pass))
    norm.counted = batch_norm_batch_count(layer, work);
  else
    norm.count = (double)(layer->rows * batch_norm_size(layer));
  return norm;
}

/* Sums of the gradient over this pass's rows. */
static void batch_norm_compute_sums(const struct trm_layer *layer, const struct trm_pass *pass, const void *x,
                                    const void *dy, float *work)
{
  const float *moments = batch_norm_workspace(layer, work, MOMENTS);
  const struct trm_batch_norm norm = batch_norm_of_backward(layer, pass, work);
  pass->device->ops->batch_norm_sums(pass->device, &(struct trm_batch_norm_sums){
    .bn = norm, .x = x, .mean = moments, .square = moments + norm.channels, .dy = dy,
    .w = layer->parameter[GAIN].w, .bias = layer->parameter[BIAS].w, .relu = layer->fused.relu,
    .sums = batch_norm_workspace(layer, work, SUMS), .b = batch_norm_samples(layer), .type = layer->values});
}

/* Before forward sums (2 C + 1): sum and sum of squares of each channel, count. Before backward (2 C): of the
 * gradient. */
static void batch_norm_batch_sums(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *dy,
                                  float *work, double *sums)
{
  const size_t c = layer->in.size[0];
  const double count = (double)(layer->rows * batch_norm_size(layer));
  float *both = trm_alloc(2 * c * sizeof *both, "statistics");
  if (dy)
    batch_norm_compute_sums(layer, pass, x, dy, work);
  else
    batch_norm_compute_moments(layer, pass, x, work);
  pass->device->ops->download(pass->device, both, batch_norm_workspace(layer, work, dy ? SUMS : MOMENTS),
                              2 * c * sizeof *both);
  for (size_t k = 0; k < c; k++) {
    const double first = (double)both[k], second = (double)both[c + k];
    sums[k] = dy ? first : count * first;
    sums[c + k] = dy ? second : second + count * first * first;
  }
  sums[2 * c] = dy ? 0 : count;
  trm_free(both);
}

static void batch_norm_take_batch_sums(struct trm_layer *layer, const struct trm_pass *pass, bool backward,
                                       const double *sums, float *work)
{
  const size_t c = layer->in.size[0];
  const double count = sums[2 * c];
  float *both = trm_alloc(2 * c * sizeof *both, "statistics");
  for (size_t k = 0; k < c; k++) {
    const double mean = backward ? 0 : sums[k] / count;
    both[k] = (float)(backward ? sums[k] : mean);
    both[c + k] = (float)(backward ? sums[c + k] : fmax(sums[c + k] - count * mean * mean, 0));
  }
  pass->device->ops->upload(pass->device, batch_norm_workspace(layer, work, backward ? BATCH_SUMS : MOMENTS), both,
                            2 * c * sizeof *both);
  if (!backward)
    pass->device->ops->upload(pass->device, batch_norm_batch_count(layer, work), &count, sizeof count);
  trm_free(both);
}

struct trm_batch_norm_forward trm_layer_batch_norm_call(const struct trm_layer *layer)
{
  const struct trm_parameter *p = layer->parameter;
  return (struct trm_batch_norm_forward){
    .bn = batch_norm_of(layer, 1), .mean = p[MEAN].w, .square = p[VARIANCE].w, .w = p[GAIN].w, .bias = p[BIAS].w,
    .b = batch_norm_samples(layer), .type = layer->values};
}

static void batch_norm_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x /* (B, C, S) */,
                               void *y /* (B, C, S) */, float *work)
{
  struct trm_batch_norm_forward call = trm_layer_batch_norm_call(layer);
  call.x = x;
  call.y = layer->fused.relu ? layer->fused.z : y;
  call.addend = layer->fused.addend;
  call.relu = layer->fused.relu;
  if (pass->training && !batch_norm_is_fixed(layer)) {
    if (batch_norm_is_synced(layer, pass))
      call.bn.counted = batch_norm_batch_count(layer, work);
    else
      batch_norm_compute_moments(layer, pass, x, work);
    call.bn.count = (double)(call.b * call.bn.size);
    call.mean = batch_norm_workspace(layer, work, MOMENTS);
    call.square = call.mean + call.bn.channels;
  }
  pass->device->ops->batch_norm_forward(pass->device, &call);
}

/* Backward of y = z * w + bias where z is linear in x: the gradient of x has no part through the statistics. */
static void batch_norm_backward_fixed(struct trm_layer *layer, const struct trm_pass *pass, const void *x,
                                      const void *dy, void *dx, float *work)
{
  const struct trm_device_ops *ops = pass->device->ops;
  const struct trm_parameter *p = layer->parameter;
  const struct trm_batch_norm norm = batch_norm_of(layer, 1); /* the variance is a mean already */
  float *sums = batch_norm_workspace(layer, work, SUMS), *zeros = batch_norm_workspace(layer, work, BATCH_SUMS);
  ops->fill(pass->device, zeros, 0, 2 * norm.channels);
  if (!p[GAIN].frozen || !p[BIAS].frozen) {
    ops->batch_norm_sums(pass->device, &(struct trm_batch_norm_sums){
      .bn = norm, .x = x, .mean = p[MEAN].w, .square = p[VARIANCE].w, .dy = dy, .w = p[GAIN].w, .bias = p[BIAS].w,
      .relu = layer->fused.relu, .sums = sums, .b = batch_norm_samples(layer), .type = layer->values});
    ops->batch_norm_gradients(pass->device, &(struct trm_batch_norm_gradients){
      .bn = norm, .sums = sums, .moments = zeros, .share = 0, .beta = pass->beta, .dw = p[GAIN].g, .db = p[BIAS].g,
      .dmean = p[MEAN].g, .dvariance = p[VARIANCE].g});
  }
  if (dx)
    ops->batch_norm_backward(pass->device, &(struct trm_batch_norm_backward){
      .bn = norm, .x = x, .mean = p[MEAN].w, .square = p[VARIANCE].w, .w = p[GAIN].w, .bias = p[BIAS].w,
      .relu = layer->fused.relu, .dy = dy, .sums = zeros, .dx = dx, .b = batch_norm_samples(layer),
      .type = layer->values});
}

static void batch_norm_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                                const void *dy, void *dx, float *work)
{
  (void)y;
  if (batch_norm_is_fixed(layer)) {
    batch_norm_backward_fixed(layer, pass, x, dy, dx, work);
    return;
  }
  const struct trm_device_ops *ops = pass->device->ops;
  const struct trm_parameter *p = layer->parameter;
  const size_t b = batch_norm_samples(layer);
  const bool synced = batch_norm_is_synced(layer, pass);
  const struct trm_batch_norm norm = batch_norm_of_backward(layer, pass, work);
  float *const sums = batch_norm_workspace(layer, work, SUMS);
  const float *moments = batch_norm_workspace(layer, work, MOMENTS);
  if (!dy) /* the moments alone */
    ops->fill(pass->device, sums, 0, 2 * norm.channels);
  else if (!synced)
    batch_norm_compute_sums(layer, pass, x, dy, work);
  if (b) /* the moments count by this pass's share of the batch */
    ops->batch_norm_gradients(pass->device, &(struct trm_batch_norm_gradients){
      .bn = norm, .sums = sums, .moments = moments, .share = (double)pass->input->rows * (double)pass->scale,
      .beta = pass->beta, .dw = p[GAIN].g, .db = p[BIAS].g, .dmean = p[MEAN].g, .dvariance = p[VARIANCE].g});
  if (dx)
    ops->batch_norm_backward(pass->device, &(struct trm_batch_norm_backward){
      .bn = norm, .x = x, .mean = moments, .square = moments + norm.channels, .w = p[GAIN].w, .bias = p[BIAS].w,
      .relu = layer->fused.relu, .dy = dy,
      .sums = synced ? batch_norm_workspace(layer, work, BATCH_SUMS) : sums, .dx = dx, .b = b,
      .type = layer->values});
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
  batch_norm_set_channels(layer);
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
  .batch_sums = batch_norm_batch_sums,
  .take_batch_sums = batch_norm_take_batch_sums,
  .cost_per_value = {.flop = 6, .bytes = 3 * sizeof(float)},
  .export_graph = batch_norm_export,
  .preferred_sharding = trm_prefer_output_sharding,
  .shard = batch_norm_shard,
  .keeps_input = true,
  .fuses_relu = true,
  .in_place = true,
  .removes_bias = true,
};
