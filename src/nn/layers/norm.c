/* Layer norm and RMS norm: normalizes every position of a sequence, or every sample, to variance (mean square) 1; then
 * applies a learned gain and, layer norm, a learned bias. */
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

enum { GAIN, BIAS };
enum { RMS_NORM, LAYER_NORM };

/* The settings are epsilon. */
static int norm_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  float *epsilon = layer->settings;
  *epsilon = 1e-5f; /* as torch.nn.LayerNorm */
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 0, (const char *const[]){"epsilon", NULL}));
  return trm_argument_real(layer, arguments, -1, "epsilon", 1e-12, 1, epsilon);
}

static int norm_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  layer->out = layer->in;
  const struct trm_shape width = {.dims = 1, .size = {trm_layer_width(layer)}};
  trm_layer_add_parameter(layer, "weight", &width, TRM_INIT_ONE, 0);
  if (layer->ops->variant == LAYER_NORM)
    trm_layer_add_parameter(layer, "bias", &width, TRM_INIT_ZERO, 0);
  layer->workspace = 2 * (layer->in.sequence ? layer->in.size[0] : 1); /* mean and scale of each vector */
  return TRM_OK;
}

/* Layer norm keeps mean and scale of each vector, RMS norm the scale alone. */
static void norm_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x /* (R, D) */,
                         void *y /* (R, D) */, float *work /* (2, R) */)
{
  const float epsilon = *(const float *)layer->settings;
  const size_t r = trm_layer_rows(layer), d = trm_layer_width(layer);
  const bool centered = layer->ops->variant == LAYER_NORM;
  struct trm_add_norm_forward call = layer->fused.sum;
  call.norm = (struct trm_norm_forward){
    .x = x, .gain = layer->parameter[GAIN].w, .bias = centered ? layer->parameter[BIAS].w : NULL, .epsilon = epsilon,
    .y = y, .mean = centered ? work : NULL, .scale = work + r, .r = r, .d = d, .type = layer->values};
  if (call.s)
    pass->device->ops->add_norm_forward(pass->device, &call);
  else
    pass->device->ops->norm_forward(pass->device, &call.norm);
}

static void norm_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                          const void *dy, void *dx, float *work)
{
  (void)y;
  const size_t r = trm_layer_rows(layer), d = trm_layer_width(layer);
  const bool centered = layer->ops->variant == LAYER_NORM;
  const struct trm_norm_backward norm = {
    .x = x, .gain = layer->parameter[GAIN].w, .mean = centered ? work : NULL, .scale = work + r, .dy = dy, .dx = dx,
    .beta = pass->beta, .dgain = layer->parameter[GAIN].g, .dbias = centered ? layer->parameter[BIAS].g : NULL, .r = r,
    .d = d, .type = layer->values};
  if (layer->fused.grad_sum)
    pass->device->ops->add_norm_backward(pass->device, &(struct trm_add_norm_backward){
      .norm = norm, .other = layer->fused.grad_other, .sum = layer->fused.grad_sum});
  else
    pass->device->ops->norm_backward(pass->device, &norm);
}

static int norm_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  const struct trm_graph_ops *ops = graph->ops;
  const float epsilon = *(const float *)layer->settings;
  const int gain = ops->parameter(graph, &layer->parameter[GAIN]);
  int y = trm_graph_vectors(graph, layer, x);
  if (layer->ops->variant == LAYER_NORM) {
    const int inputs[] = {y, gain, ops->parameter(graph, &layer->parameter[BIAS])};
    y = ops->node(graph, "LayerNormalization", inputs, 3, 1);
    ops->set_integer(graph, "axis", -1);
    ops->set_real(graph, "epsilon", epsilon);
  } else {
    const int mean = trm_graph_unary(graph, "ReduceMean", trm_graph_binary(graph, "Mul", y, y));
    ops->set_integers(graph, "axes", (const int64_t[]){-1}, 1);
    const int root = trm_graph_unary(graph, "Sqrt", trm_graph_scalar(graph, "Add", mean, (double)epsilon));
    y = trm_graph_binary(graph, "Mul", trm_graph_binary(graph, "Div", y, root), gain);
  }
  return layer->in.sequence || layer->in.dims == 1 ? y : trm_graph_reshape(graph, y, &layer->out);
}

/* Sharded by position, gradients are partial sums. */
static int norm_shard(struct trm_layer *layer, struct trm_shard_request *request)
{
  const bool positions = request->current.kind == TRM_SHARDED_BY_POSITION;
  const struct trm_sharding both = positions ? request->current : trm_sharding_replicated;
  trm_shard_layer(layer, request, both, both);
  if (positions)
    layer->workspace = 2 * layer->in.size[0];
  for (int p = 0; p < layer->parameters; p++)
    layer->parameter[p].gradient_partial = positions;
  return TRM_OK;
}

#define NORM                                                                                                     \
  .takes_bf16 = true, .settings_bytes = sizeof(float), .create = norm_create, .shape = norm_shape,               \
  .forward = norm_forward, .backward = norm_backward, .cost_per_value = {.flop = 7, .bytes = 2 * sizeof(float)}, \
  .export_graph = norm_export, .shard = norm_shard, .keeps_input = true, .fuses_sum = true

const struct trm_layer_ops layer_layer_norm = {
  NORM, .name = "layer_norm", .usage = "layer_norm [epsilon=1e-5]", .variant = LAYER_NORM};

const struct trm_layer_ops layer_rms_norm = {
  NORM, .name = "rms_norm", .usage = "rms_norm [epsilon=1e-5]", .variant = RMS_NORM};
