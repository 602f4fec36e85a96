/* Fully connected layers: y = x w^T + bias, for dense values and, on the batch, sparse rows. Of a sequence (T, K) each
 * position is a row, the result (T, N); all other samples are taken as one vector. K inputs, N units.
 * head gives the scores: one for each class of the data set, of tokens one for each of the vocabulary; tied, it uses
 * the embedding's weight (Press & Wolf 2017). */
#include <float.h>
#include <stdint.h>
#include <stdio.h>

#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

/* The settings of a linear layer. */
struct linear {
  struct trm_weight_settings weights;
  size_t rank; /* of its adapter; 0: none */
  float alpha;
};

static int linear_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  static const char *const keys[] = {"units", "bias", "init", "residuals", "lora", "alpha", NULL};
  struct linear *linear = layer->settings;
  struct trm_weight_settings *s = &linear->weights;
  s->bias = true;
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 1, keys));
  TRM_CHECK(trm_argument_size(layer, arguments, 0, "units", &s->units));
  TRM_CHECK(trm_argument_real(layer, arguments, -1, "alpha", (double)FLT_MIN, 1e7, &linear->alpha));
  size_t rank = SIZE_MAX; /* stays where there is no lora= */
  TRM_CHECK(trm_argument_size(layer, arguments, -1, "lora", &rank));
  layer->adapted = rank != SIZE_MAX;
  linear->rank = layer->adapted ? rank : 0;
  if (layer->adapted != (linear->alpha > 0))
    return trm_error(TRM_USAGE, "%s: lora and alpha belong together; usage: %s", trm_layer_text(layer),
                     layer->ops->usage);
  return trm_argument_weights(layer, arguments, s);
}

size_t trm_layer_adapter(const struct trm_layer *layer, float *scale)
{
  if (!layer->adapted)
    return 0;
  const struct linear *linear = layer->settings;
  *scale = linear->alpha / (float)linear->rank;
  return linear->rank;
}

static int linear_create_head(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  static const char *const keys[] = {"bias", "init", "residuals", NULL};
  struct trm_weight_settings *s = layer->settings;
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 1, keys));
  TRM_CHECK(trm_argument_word(layer, arguments, "tied", &layer->tie_weights));
  s->units = layer->classes;
  s->bias = !layer->tie_weights;
  return trm_argument_weights(layer, arguments, s);
}

static int linear_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_values(layer));
  const struct trm_weight_settings *s = layer->settings;
  const size_t k = trm_layer_width(layer), n = s->units;
  if (k < 1 || k > INT32_MAX)
    return trm_error(TRM_USAGE, "%s: an input of shape %s has %zu values, must have 1 to %d", trm_layer_text(layer),
                     trm_shape_text(&layer->in), k, INT32_MAX);
  layer->out = (struct trm_shape){.dims = 1, .size = {n}};
  if (layer->in.sequence)
    layer->out = (struct trm_shape){.dims = 2, .size = {layer->in.size[0], n}, .sequence = true};
  if (!layer->tied) {
    trm_layer_add_weights(layer, s, &(struct trm_shape){.dims = 2, .size = {n, k}}, k, n);
    return TRM_OK;
  }
  const size_t dim = layer->tied->out.size[1];
  if (!layer->in.sequence || k != dim)
    return trm_error(TRM_USAGE, "%s: is tied to an embedding of dimension %zu, but reads %s", trm_layer_text(layer),
                     dim, trm_shape_text(&layer->in));
  if (s->bias)
    trm_layer_add_parameter(layer, "bias", &(struct trm_shape){.dims = 1, .size = {n}}, TRM_INIT_ZERO, 0);
  return TRM_OK;
}

static const struct trm_parameter *linear_weight(const struct trm_layer *layer)
{
  return layer->tied ? &layer->tied->parameter[0] : &layer->parameter[0];
}

/* NULL: no bias. */
static const struct trm_parameter *linear_bias(const struct trm_layer *layer)
{
  const int bias = layer->tied ? 0 : 1;
  return bias < layer->parameters ? &layer->parameter[bias] : NULL;
}

/* N, of this rank */
static size_t linear_units(const struct trm_layer *layer)
{
  return ((const struct trm_weight_settings *)layer->settings)->units;
}

/* Scores that the product alone writes, of many classes, begin at multiples of 128 bytes (64 of bfloat16): loads of a
 * row, by the loss and by the two products behind it, are then aligned vectors, which a GPU's matrix units need
 * (GPT-2's 50,257 tokens: 50,304). Rows of at least 1,024 grow by 6% at most, and shorter ones are in caches anyway. */
enum { SCORES_UNIT = 64, MIN_SCORES = 1024 };

static size_t linear_output_ld(const struct trm_layer *layer)
{
  const size_t n = linear_units(layer);
  const bool pads = layer->is_output && !layer->sparse_input && !linear_bias(layer) && n >= MIN_SCORES;
  return pads ? (n + SCORES_UNIT - 1) / SCORES_UNIT * SCORES_UNIT : n;
}

static void linear_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x /* (R, K) */,
                           void *y /* (R, N) */, float *work)
{
  (void)work;
  struct trm_device *device = pass->device;
  const size_t r = trm_layer_rows(layer), k = trm_layer_width(layer), n = linear_units(layer);
  const struct trm_parameter *weight = linear_weight(layer) /* (N, K) */, *bias = linear_bias(layer);
  if (layer->output_partial && layer->tensor_rank)
    bias = NULL; /* of partial sums, rank 0's has the bias */
  if (!layer->sparse_input) {
    device->ops->linear_forward(device, &(struct trm_linear_forward){
      .x = x, .w = weight->values, .bias = bias ? bias->w : NULL, .y = y,
      .kind = layer->fused.activation, .z = layer->fused.z, .b = r, .n = n, .k = k, .ld = linear_output_ld(layer),
      .type = layer->values});
    return;
  }
  device->ops->csr_forward(device, &(struct trm_csr_forward){
    .x = pass->input->csr, .w = weight->w, .y = y, .n = n, .type = layer->values});
  if (bias)
    device->ops->bias_add(device, &(struct trm_bias_add){
      .y = y, .bias = bias->w, .b = r, .n = n, .type = layer->values});
}

/* Blocks of a weight gradient begin at multiples of so many rows, and have at least as many: of 12 and 16, from which
 * on libraries' products have the bits of the whole one (blas/openblas.c, blas/by_size.c). */
#define PART_ROWS 48

/* The product of a large layer's weight gradient by blocks of its rows, which can be sent while the next ones, and dx,
 * are computed. */
static void linear_backward_in_parts(const struct trm_layer *layer, const struct trm_pass *pass,
                                     struct trm_linear_backward call)
{
  const struct trm_parameter *weight = linear_weight(layer);
  const size_t rows = (pass->part / call.k / PART_ROWS + 1) * PART_ROWS, n = call.n;
  struct trm_linear_backward part = call;
  part.dx = NULL;
  part.db = NULL;
  for (size_t at = 0; at < n; at += part.n) {
    part.n = n - at < rows + PART_ROWS ? n - at : rows;
    part.dy = (const char *)call.dy + at * trm_value_bytes(call.type);
    part.dw = call.dw + at * call.k;
    pass->device->ops->linear_backward(pass->device, &part);
    if (at + part.n < n)
      pass->part_ready(pass->part_context, weight->offset + (at + part.n) * call.k);
  }
  if (call.db)
    pass->device->ops->bias_backward(pass->device, &(struct trm_bias_backward){
      .dy = call.dy, .beta = call.beta, .db = call.db, .b = call.b, .n = n, .type = call.type});
  if (!call.dx)
    return;
  pass->part_ready(pass->part_context, layer->high);
  call.dw = call.db = NULL;
  pass->device->ops->linear_backward(pass->device, &call);
}

static void linear_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                            const void *dy, void *dx, float *work)
{
  (void)y, (void)work;
  struct trm_device *device = pass->device;
  const size_t r = trm_layer_rows(layer), k = trm_layer_width(layer), n = linear_units(layer);
  const struct trm_parameter *weight = linear_weight(layer), *bias = linear_bias(layer);
  float *dw = weight->frozen ? NULL : layer->tied_gradient ? layer->tied_gradient : weight->g;
  if (bias && bias->frozen)
    bias = NULL;
  if (!layer->sparse_input && dw) {
    const struct trm_linear_backward call = {
      .x = x, .w = weight->values, .dy = dy, .beta = pass->beta, .dw = dw, .db = bias ? bias->g : NULL, .dx = dx,
      .through = layer->fused.through, .kind = layer->fused.activation, .u = layer->fused.u, .b = r, .n = n, .k = k,
      .ld = linear_output_ld(layer), .type = layer->values};
    if (pass->part_ready && !layer->tied && n * k > pass->part)
      linear_backward_in_parts(layer, pass, call);
    else
      device->ops->linear_backward(device, &call);
    return;
  }
  if (dw)
    device->ops->csr_backward(device, &(struct trm_csr_backward){
      .x = pass->input->csr, .dy = dy, .beta = pass->beta, .dw = dw, .n = n, .type = layer->values});
  else if (dx)
    device->ops->linear_backward(device, &(struct trm_linear_backward){
      .x = x, .w = weight->values, .dy = dy, .dx = dx, .through = layer->fused.through,
      .kind = layer->fused.activation, .u = layer->fused.u, .b = r, .n = n, .k = k, .ld = linear_output_ld(layer),
      .type = layer->values});
  if (bias)
    device->ops->bias_backward(device, &(struct trm_bias_backward){
      .dy = dy, .beta = pass->beta, .db = bias->g, .b = r, .n = n, .type = layer->values});
}

/* Sparse rows are counted as dense: their entries are unknown before the data is read. */
static struct trm_cost linear_cost(const struct trm_layer *layer)
{
  const double in = (double)trm_shape_count(&layer->in), out = (double)trm_shape_count(&layer->out);
  return (struct trm_cost){.flop = 2 * in * (double)linear_units(layer), .bytes = sizeof(float) * (in + out)};
}

static int linear_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  const int w = graph->ops->parameter(graph, linear_weight(layer));
  const int bias = linear_bias(layer) ? graph->ops->parameter(graph, linear_bias(layer)) : -1;
  if (layer->in.sequence) {
    const int y = trm_graph_binary(graph, "MatMul", x, trm_graph_transpose(graph, w, (const int64_t[]){1, 0}, 2));
    return bias >= 0 ? trm_graph_binary(graph, "Add", y, bias) : y;
  }
  const int inputs[] = {trm_graph_vectors(graph, layer, x), w, bias};
  const int y = graph->ops->node(graph, "Gemm", inputs, bias >= 0 ? 3 : 2, 1);
  graph->ops->set_integer(graph, "transB", 1);
  return y;
}

static struct trm_sharding linear_preferred_sharding(const struct trm_layer *layer, const struct trm_sharding *out)
{
  (void)out;
  return layer->tied ? trm_sharding_replicated : trm_sharding_of_shape(&layer->in);
}

static int linear_shard(struct trm_layer *layer, struct trm_shard_request *request)
{
  trm_shard_weights(layer, request, layer->settings, 1);
  return TRM_OK;
}

#define LINEAR                                                                                                  \
  .takes_bf16 = true, .forward = linear_forward, .backward = linear_backward, .cost = linear_cost,              \
  .export_graph = linear_export, .preferred_sharding = linear_preferred_sharding, .output_ld = linear_output_ld, \
  .by_vector = true, .keeps_input = true, .fuses_activation = true

const struct trm_layer_ops layer_linear = {
  LINEAR,
  .name = "linear",
  .usage = "linear UNITS [bias=yes|no] [init=default|he|xavier|gpt2 [residuals=N]] [lora=RANK alpha=ALPHA]",
  .settings_bytes = sizeof(struct linear),
  .shape = linear_shape,
  .shard = linear_shard,
  .create = linear_create,
  .remove_bias = trm_layer_remove_bias,
};

const struct trm_layer_ops layer_head = {
  LINEAR,
  .name = "head",
  .usage = "head [tied] [bias=yes|no] [init=default|he|xavier|gpt2 [residuals=N]]",
  .settings_bytes = sizeof(struct trm_weight_settings),
  .shape = linear_shape,
  .shard = linear_shard,
  .create = linear_create_head,
};

/* -- the matrices of an adapter: h = x A^T of R values, and h B^T, in the names and shapes of Hugging Face's peft. A
 * begins uniform in +-1/sqrt(K), as there, B at 0. */

static int linear_shape_adapter(struct trm_layer *layer)
{
  TRM_CHECK(linear_shape(layer));
  struct trm_parameter *weight = &layer->parameter[0];
  snprintf(weight->name, sizeof weight->name, "layer%d.%s.weight", layer->number, layer->ops->name);
  weight->adapter = true;
  if (layer->ops == &layer_lora_b)
    weight->init = TRM_INIT_ZERO;
  return TRM_OK;
}

static void linear_shard_alike(struct trm_layer *layer, struct trm_shard_request *request)
{
  const bool positions = request->current.kind == TRM_SHARDED_BY_POSITION;
  const struct trm_sharding both = positions ? request->current : trm_sharding_replicated;
  trm_shard_layer(layer, request, both, both);
  layer->parameter[0].gradient_partial = positions;
}

/* Features meet columns of A, as of the layer's weight; all else takes A whole: R values are few. */
static int linear_shard_a(struct trm_layer *layer, struct trm_shard_request *request)
{
  if (request->current.kind == TRM_SHARDED_BY_FEATURE)
    trm_shard_weights(layer, request, layer->settings, 1);
  else
    linear_shard_alike(layer, request);
  return TRM_OK;
}

/* As the value that its own is added to. */
static int linear_shard_b(struct trm_layer *layer, struct trm_shard_request *request)
{
  if (request->beside.kind == TRM_SHARDED_BY_FEATURE)
    trm_shard_weights(layer, request, layer->settings, 1);
  else
    linear_shard_alike(layer, request);
  return TRM_OK;
}

const struct trm_layer_ops layer_lora_a = {
  LINEAR,
  .name = "lora_A",
  .settings_bytes = sizeof(struct trm_weight_settings),
  .shape = linear_shape_adapter,
  .shard = linear_shard_a,
};

const struct trm_layer_ops layer_lora_b = {
  LINEAR,
  .name = "lora_B",
  .settings_bytes = sizeof(struct trm_weight_settings),
  .shape = linear_shape_adapter,
  .shard = linear_shard_b,
};
