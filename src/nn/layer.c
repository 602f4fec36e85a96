/* The kinds of layers, and the common parts of their create and shape functions: shapes, arguments, parameters. */
#include "nn/layer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "nn/layers/layers.h"

static const struct trm_layer_ops *const layer_table[] = {
  &layer_linear,
  &layer_relu,
  &layer_leaky_relu,
  &layer_silu,
  &layer_gelu,
  &layer_gelu_tanh,
  &layer_tanh,
  &layer_sigmoid,
  &layer_dropout,
  &layer_layer_norm,
  &layer_rms_norm,
  &layer_embedding,
  &layer_position,
  &layer_rotary,
  &layer_attention,
  &layer_swiglu,
  &layer_head,
  &layer_conv2d,
  &layer_max_pool,
  &layer_avg_pool,
  &layer_global_avg_pool,
  &layer_batch_norm,
  &layer_flatten,
};

enum { KINDS = sizeof layer_table / sizeof *layer_table, MAX_REGISTERED = 64 };

/* Of the process; registered before models are created. */
static const struct trm_layer_ops *layer_registered[MAX_REGISTERED];
static int layer_registered_count;

const struct trm_layer_ops *trm_layer_kind(int i)
{
  if (i < KINDS)
    return layer_table[i];
  return i - KINDS < layer_registered_count ? layer_registered[i - KINDS] : NULL;
}

const struct trm_layer_ops *trm_layer_find(const char *name)
{
  const struct trm_layer_ops *ops;
  for (int i = 0; (ops = trm_layer_kind(i)); i++)
    if (strcmp(ops->name, name) == 0)
      return ops;
  return NULL;
}

int trm_layer_register(const struct trm_layer_ops *ops)
{
  if (!ops->name || !ops->usage || !ops->forward || !ops->backward)
    return trm_error(TRM_USAGE, "trm_layer_register: %s: needs name, usage, forward and backward",
                     ops->name ? ops->name : "a layer without a name");
  if (trm_layer_find(ops->name) || strcmp(ops->name, layer_add.name) == 0)
    return trm_error(TRM_USAGE, "trm_layer_register: there is a layer '%s' already", ops->name);
  if (layer_registered_count == MAX_REGISTERED)
    return trm_error(TRM_USAGE, "trm_layer_register: %s: at most %d layers can be added", ops->name, MAX_REGISTERED);
  layer_registered[layer_registered_count++] = ops;
  return TRM_OK;
}

void trm_layer_copy(struct trm_layer *to, const struct trm_layer *from)
{
  *to = *from;
  if (from->settings)
    to->settings = memcpy(trm_alloc(from->ops->settings_bytes, "layers"), from->settings, from->ops->settings_bytes);
}

void trm_layers_free(struct trm_layer *layer, int layers)
{
  for (int i = 0; layer && i < layers; i++)
    trm_free(layer[i].settings);
  trm_free(layer);
}

void trm_layers_set_rows(struct trm_layer *layer, int first, int last, size_t batch_rows)
{
  for (int i = first; i < last; i++) {
    struct trm_layer *l = &layer[i];
    l->rows = l->from >= first ? layer[l->from].output_rows : batch_rows;
    l->output_rows = l->ops->output_rows ? l->ops->output_rows(l, l->rows, batch_rows) : l->rows;
  }
}

struct trm_cost trm_layer_cost(const struct trm_layer *layer)
{
  const struct trm_cost *each = &layer->ops->cost_per_value;
  const double f = (double)trm_shape_count(&layer->in);
  struct trm_cost cost = {.flop = f * (each->flop > 0 ? each->flop : 1),
                          .bytes = f * (each->bytes > 0 ? each->bytes : 2 * sizeof(float))};
  if (layer->ops->cost)
    cost = layer->ops->cost(layer);
  cost.bytes *= (double)trm_value_bytes(layer->values) / sizeof(float);
  return cost;
}

struct trm_cost trm_layers_cost(const struct trm_layer *layer, int first, int last)
{
  struct trm_cost sum = {0};
  for (int i = first; i < last; i++) {
    const struct trm_cost cost = trm_layer_cost(&layer[i]);
    sum.flop += cost.flop;
    sum.bytes += cost.bytes;
  }
  return sum;
}

struct trm_cost trm_layer_cost_none(const struct trm_layer *layer)
{
  (void)layer;
  return (struct trm_cost){0};
}

void trm_layer_apply_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, void *y,
                             float *work)
{
  (void)work;
  layer->ops->apply(layer, pass, false, x, y);
}

void trm_layer_apply_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                              const void *dy, void *dx, float *work)
{
  (void)x, (void)y, (void)work;
  if (dx)
    layer->ops->apply(layer, pass, true, dy, dx);
}

void trm_layer_add_parameter(struct trm_layer *layer, const char *name, const struct trm_shape *shape,
                             enum trm_init init, float scale)
{
  struct trm_parameter *p = &layer->parameter[layer->parameters++];
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "layer%d.%s", layer->number, name);
  p->shape = *shape;
  p->count = trm_shape_count(shape);
  p->slice = (struct trm_slice){.outer = 1, .extent = p->count, .inner = 1, .high = p->count};
  p->primary = true;
  p->init = init;
  p->scale = scale;
}

void trm_layer_add_weights(struct trm_layer *layer, const struct trm_weight_settings *weights,
                           const struct trm_shape *weight, size_t k, size_t n)
{
  const double bound = 1 / sqrt((double)k);
  enum trm_init init = TRM_INIT_NORMAL;
  double scale = bound;
  switch (weights->init_rule) {
  case TRM_RULE_DEFAULT:
    init = TRM_INIT_UNIFORM;
    break;
  case TRM_RULE_HE:
    scale = sqrt(2.0) * bound;
    break;
  case TRM_RULE_XAVIER:
    init = TRM_INIT_UNIFORM;
    scale = sqrt(6.0 / (double)(k + n));
    break;
  case TRM_RULE_GPT2:
    scale = 0.02 / sqrt((double)weights->residuals);
    break;
  }
  trm_layer_add_parameter(layer, "weight", weight, init, (float)scale);
  layer->parameter[layer->parameters - 1].product = true;
  if (weights->bias)
    trm_layer_add_parameter(layer, "bias", &(struct trm_shape){.dims = 1, .size = {weight->size[0]}},
                            weights->init_rule == TRM_RULE_DEFAULT ? TRM_INIT_UNIFORM : TRM_INIT_ZERO, (float)bound);
}

bool trm_layer_remove_bias(struct trm_layer *layer)
{
  struct trm_weight_settings *weights = layer->settings;
  if (!weights->bias || weights->bias_asked)
    return false;
  weights->bias = false;
  layer->parameters--;
  return true;
}

size_t trm_input_context(const struct trm_input_spec *spec)
{
  return spec->context ? spec->context : spec->shape.size[0];
}

size_t trm_shape_count(const struct trm_shape *shape)
{
  size_t count = 1;
  for (int d = 0; d < shape->dims; d++)
    count *= shape->size[d];
  return count;
}

const char *trm_shape_text(const struct trm_shape *shape)
{
  char *text = trm_context_text();
  size_t at = (size_t)sprintf(text, "(");
  for (int d = 0; d < shape->dims; d++)
    at += (size_t)sprintf(text + at, d ? ", %zu" : "%zu", shape->size[d]);
  sprintf(text + at, ")");
  return text;
}

const char *trm_layer_text(const struct trm_layer *layer)
{
  char *text = trm_context_text();
  snprintf(text, 64, "layer %d (%s)", layer->number, layer->ops->name);
  return text;
}

int trm_layer_require_dense(const struct trm_layer *layer)
{
  if (layer->sparse_input)
    return trm_error(TRM_USAGE, "%s: takes dense values, the data set has sparse rows of %s: put a linear layer first",
                     trm_layer_text(layer), trm_shape_text(&layer->in));
  return trm_layer_require_values(layer);
}

int trm_layer_require_values(const struct trm_layer *layer)
{
  if (layer->token_input)
    return trm_error(TRM_USAGE, "%s: takes values, the data set has rows of %zu tokens: put an embedding first",
                     trm_layer_text(layer), trm_shape_count(&layer->in));
  return TRM_OK;
}

int trm_layer_require_sequence(const struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  if (!layer->in.sequence)
    return trm_error(TRM_USAGE, "%s: takes sequences, which an embedding of tokens makes, not samples of shape %s",
                     trm_layer_text(layer), trm_shape_text(&layer->in));
  return TRM_OK;
}

int trm_layer_require_image(const struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  if (layer->in.dims != 3 || layer->in.sequence)
    return trm_error(TRM_USAGE, "%s: takes images (C, H, W), not samples of shape %s", trm_layer_text(layer),
                     trm_shape_text(&layer->in));
  return TRM_OK;
}

int trm_layer_shape_window(struct trm_layer *layer, struct trm_window2d *window)
{
  TRM_CHECK(trm_layer_require_image(layer));
  layer->out = (struct trm_shape){.dims = 3, .size = {layer->in.size[0]}};
  for (int d = 0; d < 2; d++) {
    const size_t padded = layer->in.size[1 + d] + 2 * window->pad[d];
    if (padded < window->kernel[d])
      return trm_error(TRM_USAGE, "%s: a kernel of %zux%zu with pad %zux%zu does not fit images of shape %s",
                       trm_layer_text(layer), window->kernel[0], window->kernel[1], window->pad[0], window->pad[1],
                       trm_shape_text(&layer->in));
    window->in[d] = layer->in.size[1 + d];
    window->out[d] = (padded - window->kernel[d]) / window->stride[d] + 1;
    layer->out.size[1 + d] = window->out[d];
  }
  return TRM_OK;
}

size_t trm_layer_rows(const struct trm_layer *layer)
{
  return layer->rows * (layer->in.sequence ? layer->in.size[0] : 1);
}

struct trm_parameter *trm_layer_product_weight(const struct trm_layer *layer)
{
  const struct trm_layer *owner = layer->tied ? layer->tied : layer;
  const bool any = layer->tied || (layer->parameters && layer->parameter[0].product && !layer->sparse_input);
  return any ? (struct trm_parameter *)&owner->parameter[0] : NULL;
}

size_t trm_layer_width(const struct trm_layer *layer)
{
  return layer->in.sequence ? layer->in.size[1] : trm_shape_count(&layer->in);
}

size_t trm_layer_output_vectors(const struct trm_layer *layer)
{
  return layer->out.sequence ? layer->out.size[0] : 1;
}

size_t trm_layer_output_ld(const struct trm_layer *layer)
{
  return layer->ops->output_ld ? layer->ops->output_ld(layer)
                               : trm_shape_count(&layer->out) / trm_layer_output_vectors(layer);
}

size_t trm_layer_output_elements(const struct trm_layer *layer)
{
  return trm_layer_output_vectors(layer) * trm_layer_output_ld(layer);
}

const char *trm_did_you_mean(const char *word, const char *const *known)
{
  const char *near = trm_nearest_word(word, known);
  char *text = trm_context_text();
  snprintf(text, 256, "%s%s%s", near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
  return text;
}

/* Returns the argument with this key, or else the positional one; NULL: neither is given. */
static const char *layer_find_argument(const struct trm_arguments *arguments, int position, const char *key)
{
  for (int i = 0; i < arguments->count; i++) {
    if (!arguments->item[i].key && position-- == 0)
      return arguments->item[i].value;
    if (key && arguments->item[i].key && strcmp(arguments->item[i].key, key) == 0)
      return arguments->item[i].value;
  }
  return NULL;
}

static int layer_argument_error(const struct trm_layer *layer, const char *key, const char *value, const char *expected)
{
  if (!value)
    return trm_error(TRM_USAGE, "%s: %s is missing; usage: %s", trm_layer_text(layer), key, layer->ops->usage);
  return trm_error(TRM_USAGE, "%s: %s is '%s', must be %s; usage: %s", trm_layer_text(layer), key, value, expected,
                   layer->ops->usage);
}

int trm_argument_size(const struct trm_layer *layer, const struct trm_arguments *arguments, int position,
                      const char *key, size_t *value)
{
  const char *text = layer_find_argument(arguments, position, key);
  if (!text)
    return *value ? TRM_OK : layer_argument_error(layer, key, NULL, NULL);
  char *end;
  errno = 0;
  const long long number = strtoll(text, &end, 10);
  if (end == text || *end || errno || number < 1 || number > INT32_MAX)
    return layer_argument_error(layer, key, text, "a whole number from 1 to 2147483647");
  *value = (size_t)number;
  return TRM_OK;
}

int trm_argument_pair(const struct trm_layer *layer, const struct trm_arguments *arguments, int position,
                      const char *key, size_t min, size_t pair[2])
{
  const char *text = layer_find_argument(arguments, position, key), *at = text;
  if (!text)
    return pair[0] || !min ? TRM_OK : layer_argument_error(layer, key, NULL, NULL);
  for (int d = 0; d < 2; d++) {
    char *end;
    errno = 0;
    const long number = strtol(at, &end, 10);
    if (*at < '0' || *at > '9' || errno || number < (long)min || number > 32767 || (*end && (d || *end != 'x')))
      return layer_argument_error(layer, key, text, min ? "N or HxW, from 1 to 32767" : "N or HxW, from 0 to 32767");
    pair[d] = pair[1] = (size_t)number;
    at = *end ? end + 1 : at;
  }
  return TRM_OK;
}

int trm_argument_real(const struct trm_layer *layer, const struct trm_arguments *arguments, int position,
                      const char *key, double low, double high, float *value)
{
  const char *text = layer_find_argument(arguments, position, key);
  if (!text)
    return TRM_OK;
  char *end;
  const double number = strtod(text, &end);
  /* tests the float: 0.99999999999 must not round to an excluded bound */
  if (end == text || *end || !((double)(float)number >= low && (double)(float)number < high)) {
    char expected[80];
    snprintf(expected, sizeof expected, "a number in [%g, %g)", low, high);
    return layer_argument_error(layer, key, text, expected);
  }
  *value = (float)number;
  return TRM_OK;
}

int trm_argument_bool(const struct trm_layer *layer, const struct trm_arguments *arguments, const char *key,
                      bool *value)
{
  const char *text = layer_find_argument(arguments, -1, key);
  if (!text)
    return TRM_OK;
  const bool yes = strcmp(text, "yes") == 0 || strcmp(text, "true") == 0;
  if (!yes && strcmp(text, "no") != 0 && strcmp(text, "false") != 0)
    return layer_argument_error(layer, key, text, "yes or no");
  *value = yes;
  return TRM_OK;
}

int trm_argument_word(const struct trm_layer *layer, const struct trm_arguments *arguments, const char *word,
                      bool *value)
{
  const char *text = layer_find_argument(arguments, 0, NULL);
  if (text && strcmp(text, word) != 0)
    return trm_error(TRM_USAGE, "%s: '%s' is not known; usage: %s", trm_layer_text(layer), text, layer->ops->usage);
  *value = text != NULL;
  return TRM_OK;
}

int trm_argument_weights(struct trm_layer *layer, const struct trm_arguments *arguments,
                         struct trm_weight_settings *weights)
{
  static const char *const rules[] = {"default", "he", "xavier", "gpt2", NULL};
  const char *text = layer_find_argument(arguments, -1, "init");
  int rule = 0;
  while (text && rules[rule] && strcmp(rules[rule], text) != 0)
    rule++;
  if (!rules[rule])
    return layer_argument_error(layer, "init", text, "default, he, xavier or gpt2");
  weights->init_rule = (enum trm_init_rule)rule;
  weights->residuals = 1;
  if (layer_find_argument(arguments, -1, "residuals") && weights->init_rule != TRM_RULE_GPT2)
    return trm_error(TRM_USAGE, "%s: residuals belongs to init=gpt2; usage: %s", trm_layer_text(layer),
                     layer->ops->usage);
  TRM_CHECK(trm_argument_size(layer, arguments, -1, "residuals", &weights->residuals));
  TRM_CHECK(trm_argument_bool(layer, arguments, "bias", &weights->bias));
  weights->bias_asked = weights->bias && layer_find_argument(arguments, -1, "bias");
  return TRM_OK;
}

int trm_argument_reject_unknown(const struct trm_layer *layer, const struct trm_arguments *arguments, int positions,
                                const char *const *keys)
{
  static const char *const no_keys[] = {NULL};
  keys = keys ? keys : no_keys;
  for (int i = 0; i < arguments->count; i++) {
    const char *key = arguments->item[i].key, *value = arguments->item[i].value;
    if (!key && positions-- <= 0)
      return trm_error(TRM_USAGE, "%s: '%s' is one word too many; usage: %s", trm_layer_text(layer), value,
                       layer->ops->usage);
    if (!key)
      continue;
    int k = 0;
    while (keys[k] && strcmp(keys[k], key) != 0)
      k++;
    if (!keys[k])
      return trm_error(TRM_USAGE, "%s: there is no argument '%s'%s; usage: %s", trm_layer_text(layer), key,
                       trm_did_you_mean(key, keys), layer->ops->usage);
    for (int j = 0; j < i; j++)
      if (arguments->item[j].key && strcmp(arguments->item[j].key, key) == 0)
        return trm_error(TRM_USAGE, "%s: %s is given twice; usage: %s", trm_layer_text(layer), key, layer->ops->usage);
  }
  return TRM_OK;
}
