/* Batch normalisation (Ioffe & Szegedy 2015) of images (C, H, W) or vectors (C), as torch.nn.BatchNorm2d and 1d.
 *
 * Training normalises by the statistics of the batch: with sync=yes those of all ranks that compute parts of it at the
 * same time, otherwise of this rank's part. Evaluation takes running statistics, which training moves towards those of
 * the batch:  running += momentum * (batch - running), the variance of the batch unbiased.
 * What a pass would add is not added by the pass: it goes where the gradient of a parameter would go, weighted with the
 * pass's part of the global batch, and travels and is summed as gradients are; the strategy adds the sum. So all ranks
 * have the same running statistics, whatever the division of the batch. */
#include <math.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/split.h"

enum { GAIN, BIAS, MEAN, VARIANCE };
enum { MOMENTS, SUMS, PARTS }; /* of the workspace, (2, C) each */

static int batch_norm_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  static const char *const keys[] = {"epsilon", "momentum", "sync", NULL};
  layer->epsilon = 1e-5f;
  layer->rate = 0.1f;
  layer->sync = true;
  TRM_CHECK(trm_argument_done(layer, arguments, 0, keys));
  TRM_CHECK(trm_argument_real(layer, arguments, -1, "epsilon", 1e-12, 1, &layer->epsilon));
  TRM_CHECK(trm_argument_real(layer, arguments, -1, "momentum", 0, 1, &layer->rate));
  return trm_argument_bool(layer, arguments, "sync", &layer->sync);
}

static int batch_norm_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_dense(layer));
  if (layer->in.sequence || (layer->in.dims != 1 && layer->in.dims != 3))
    return trm_error(TRM_USAGE, "%s: takes images (C, H, W) or vectors (C), not samples of shape %s",
                     trm_layer_text(layer), trm_shape_text(&layer->in));
  const struct trm_shape channels = {.dims = 1, .size = {layer->in.size[0]}};
  layer->out = layer->in;
  layer->workspace_fixed = PARTS * 2 * channels.size[0];
  trm_layer_parameter(layer, "weight", &channels, TRM_INIT_ONE, 0);
  trm_layer_parameter(layer, "bias", &channels, TRM_INIT_ZERO, 0);
  trm_layer_parameter(layer, "running_mean", &channels, TRM_INIT_ZERO, 0);
  trm_layer_parameter(layer, "running_var", &channels, TRM_INIT_ONE, 0);
  layer->parameter[MEAN].statistic = layer->parameter[VARIANCE].statistic = true;
  return TRM_OK;
}

static struct trm_batch_norm batch_norm_of(const struct trm_layer *layer, double count)
{
  const size_t channels = layer->in.size[0];
  return (struct trm_batch_norm){.channels = channels,
                                 .size = trm_shape_count(&layer->in) / channels,
                                 .count = count,
                                 .epsilon = layer->epsilon};
}

static float *part_at(const struct trm_layer *layer, float *work, int part)
{
  return work + (size_t)part * 2 * layer->in.size[0];
}

static bool is_shared(const struct trm_layer *layer, const struct trm_pass *pass)
{
  return layer->sync && pass->reduce;
}

/* (2, C) floats of the device, summed over the ranks: as they are, or, moments, as those of the whole, of *count
 * values in all. */
static void ranks_add(const struct trm_layer *layer, const struct trm_pass *pass, float *on_device, double *count)
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

static void batch_norm_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x /* (B, C, S) */,
                               float *y /* (B, C, S) */, float *work)
{
  const struct trm_device_ops *ops = pass->device->ops;
  const struct trm_parameter *p = layer->parameter;
  const size_t b = pass->input->rows;
  struct trm_batch_norm how = batch_norm_of(layer, 1);
  const float *mean = p[MEAN].w, *square = p[VARIANCE].w;
  if (pass->training) {
    float *moments = part_at(layer, work, MOMENTS);
    how.count = (double)(b * how.size);
    ops->batch_norm_moments(pass->device, &how, x, moments, b);
    if (is_shared(layer, pass))
      ranks_add(layer, pass, moments, &how.count);
    layer->count = how.count;
    mean = moments;
    square = moments + how.channels;
  }
  ops->batch_norm_forward(pass->device, &how, x, mean, square, p[GAIN].w, p[BIAS].w, y, b);
}

/* to = beta * to + from, beta 0 or 1 */
static void gradient_add(const struct trm_pass *pass, struct trm_parameter *to, const float *from)
{
  const float *const both[] = {to->g, from};
  if (pass->beta == 0)
    pass->device->ops->copy(pass->device, to->g, from, to->count * sizeof *from);
  else
    pass->device->ops->sum(pass->device, to->g, both, 2, to->count);
}

/* to += factor * from */
static void scaled_add(const struct trm_pass *pass, struct trm_parameter *to, double factor, const float *from)
{
  const struct trm_update add = {.rule = TRM_UPDATE_SGD, .rate = (float)-factor, .scale = 1};
  pass->device->ops->update(pass->device, &add, to->g, from, NULL, NULL, to->count);
}

/* This pass's part of what is to be added to the running statistics. */
static void statistics_add(struct trm_layer *layer, const struct trm_pass *pass, const float *moments)
{
  const double part = (double)layer->rate * (double)pass->input->rows * (double)pass->scale;
  const double freedom = layer->count > 1 ? layer->count - 1 : 1;
  struct trm_parameter *mean = &layer->parameter[MEAN], *variance = &layer->parameter[VARIANCE];
  for (struct trm_parameter *p = mean; p <= variance; p++) {
    if (pass->beta == 0)
      pass->device->ops->fill(pass->device, p->g, 0, p->count);
    scaled_add(pass, p, -part, p->w);
  }
  scaled_add(pass, mean, part, moments);
  scaled_add(pass, variance, part / freedom, moments + mean->count);
}

static void batch_norm_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                                const float *dy, float *dx, float *work)
{
  (void)y;
  const struct trm_device_ops *ops = pass->device->ops;
  const struct trm_batch_norm how = batch_norm_of(layer, layer->count);
  const size_t b = pass->input->rows, c = how.channels;
  float *moments = part_at(layer, work, MOMENTS), *sums = part_at(layer, work, SUMS);
  ops->batch_norm_sums(pass->device, &how, x, moments, moments + c, dy, sums, b);
  if (b) {
    gradient_add(pass, &layer->parameter[BIAS], sums);
    gradient_add(pass, &layer->parameter[GAIN], sums + c);
    statistics_add(layer, pass, moments);
  }
  if (is_shared(layer, pass))
    ranks_add(layer, pass, sums, NULL);
  if (dx)
    ops->batch_norm_backward(pass->device, &how, x, moments, moments + c, layer->parameter[GAIN].w, dy, sums, dx, b);
}

static struct trm_cost batch_norm_cost(const struct trm_layer *layer)
{
  const double f = (double)trm_shape_count(&layer->in);
  return (struct trm_cost){.flop = 6 * f, .bytes = 3 * sizeof(float) * f};
}

static int batch_norm_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  int inputs[] = {x, 0, 0, 0, 0};
  for (int p = GAIN; p <= VARIANCE; p++)
    inputs[1 + p] = graph->ops->parameter(graph, &layer->parameter[p]);
  const int y = graph->ops->node(graph, "BatchNormalization", inputs, 5, 1);
  graph->ops->set_real(graph, "epsilon", layer->epsilon);
  return y;
}

/* By channels. */
static int batch_norm_divide(struct trm_layer *layer, struct trm_division *division)
{
  const struct trm_lay has = division->has;
  for (int p = 0; has.kind == TRM_FEATURES && p < layer->parameters; p++)
    trm_divide_parameter(division, &layer->parameter[p], 0, has.groups, has.units);
  TRM_CHECK(trm_divide_alike(layer, division));
  layer->workspace_fixed = PARTS * 2 * layer->in.size[0];
  return TRM_OK;
}

const struct trm_layer_ops layer_batch_norm = {
  .name = "batch_norm",
  .usage = "batch_norm [epsilon=E momentum=M sync=yes|no]",
  .create = batch_norm_create,
  .shape = batch_norm_shape,
  .forward = batch_norm_forward,
  .backward = batch_norm_backward,
  .cost = batch_norm_cost,
  .export = batch_norm_export,
  .wish = trm_wish_alike,
  .divide = batch_norm_divide,
  .keeps_input = true,
  .in_place = true,
  .meets = true,
};
