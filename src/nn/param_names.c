/* Naming schemes, each a function over a cursor, and their table. */
#include "nn/param_names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"

/* A cursor over a model's layers, with which a scheme names their parameters. */
struct name_cursor {
  const struct trm_model *model;
  struct trm_param_name *name; /* (parameters) */
  int layer;                   /* the next one */
  int parameter;               /* its first parameter's number */
};

/* Returns true if the layer `ahead` of the next one is of that kind. */
static bool param_names_next_is(const struct name_cursor *n, int ahead, const char *kind)
{
  const int layer = n->layer + ahead;
  return layer < n->model->layers && strcmp(n->model->layer[layer].ops->name, kind) == 0;
}

/* Returns the number of the next layer's item; -1: there is none. */
static int param_names_number(const struct name_cursor *n)
{
  return n->layer < n->model->layers ? n->model->layer[n->layer].number : -1;
}

/* If the next layer is of that kind, names its parameters NAME.weight, NAME.bias, ..., those of its adapter
 * NAME.lora_A.weight and NAME.lora_B.weight, and moves on. */
__attribute__((format(printf, 3, 4)))
static bool param_names_assign(struct name_cursor *n, const char *kind, const char *name, ...)
{
  if (!param_names_next_is(n, 0, kind))
    return false;
  char text[48];
  va_list arguments;
  va_start(arguments, name);
  vsnprintf(text, sizeof text, name, arguments);
  va_end(arguments);
  for (const int number = n->model->layer[n->layer].number; param_names_number(n) == number; n->layer++) {
    const struct trm_layer *layer = &n->model->layer[n->layer];
    for (int p = 0; p < layer->parameters; p++) {
      const char *suffix = strchr(layer->parameter[p].name, '.'); /* layerN.weight */
      struct trm_param_name *target = &n->name[n->parameter++];
      snprintf(target->text, sizeof target->text, "%s%.15s", text, suffix);
    }
  }
  return true;
}

/* The same for a layer without parameters. */
static bool param_names_skip(struct name_cursor *n, const char *kind)
{
  const bool passes = param_names_next_is(n, 0, kind) && n->model->layer[n->layer].parameters == 0;
  n->layer += passes;
  return passes;
}

/* -- schemes: each names a whole model; false: the model is not of its kind */

static bool param_names_identity(struct name_cursor *n)
{
  for (int p = 0; p < trm_model_parameter_count(n->model); p++)
    snprintf(n->name[p].text, sizeof n->name[p].text, "%s", trm_model_parameter(n->model, p)->name);
  return true;
}

/* Parameter names of GPT-2 in Hugging Face's transformers. */
static bool param_names_gpt2_block(struct name_cursor *n, int block)
{
  if (!param_names_assign(n, "layer_norm", "h.%d.ln_1", block) ||
      !param_names_assign(n, "linear", "h.%d.attn.c_attn", block) || !param_names_skip(n, "attention") ||
      !param_names_assign(n, "linear", "h.%d.attn.c_proj", block))
    return false;
  param_names_skip(n, "dropout");
  if (!param_names_skip(n, "add") || !param_names_assign(n, "layer_norm", "h.%d.ln_2", block) ||
      !param_names_assign(n, "linear", "h.%d.mlp.c_fc", block) ||
      (!param_names_skip(n, "gelu") && !param_names_skip(n, "gelu_tanh")) ||
      !param_names_assign(n, "linear", "h.%d.mlp.c_proj", block))
    return false;
  param_names_skip(n, "dropout");
  return param_names_skip(n, "add");
}

static bool param_names_gpt2(struct name_cursor *n)
{
  if (!param_names_assign(n, "embedding", "wte") || !param_names_assign(n, "position", "wpe"))
    return false;
  param_names_skip(n, "dropout");
  for (int block = 0; !param_names_next_is(n, 1, "head"); block++)
    if (!param_names_gpt2_block(n, block))
      return false;
  return param_names_assign(n, "layer_norm", "ln_f") && param_names_assign(n, "head", "lm_head") &&
         n->layer == n->model->layers;
}

/* -- convolutional networks in torchvision */

/* conv batch_norm relu conv batch_norm, of a bottleneck relu conv batch_norm, with the identity or conv batch_norm as
 * shortcut; add relu */
static bool param_names_resnet_block(struct name_cursor *n, int stage, int block, int convolutions, bool projects)
{
  for (int c = 1; c <= convolutions; c++)
    if ((c > 1 && !param_names_skip(n, "relu")) ||
        !param_names_assign(n, "conv2d", "layer%d.%d.conv%d", stage, block, c) ||
        !param_names_assign(n, "batch_norm", "layer%d.%d.bn%d", stage, block, c))
      return false;
  if (projects && (!param_names_assign(n, "conv2d", "layer%d.%d.downsample.0", stage, block) ||
                   !param_names_assign(n, "batch_norm", "layer%d.%d.downsample.1", stage, block)))
    return false;
  return param_names_skip(n, "add") && param_names_skip(n, "relu");
}

/* Stages start with a projection shortcut, the first one only of bottlenecks. */
static bool param_names_resnet(struct name_cursor *n)
{
  if (!param_names_assign(n, "conv2d", "conv1") || !param_names_assign(n, "batch_norm", "bn1") ||
      !param_names_skip(n, "relu"))
    return false;
  param_names_skip(n, "max_pool");
  const bool bottlenecks = param_names_next_is(n, 5, "relu");
  const int convolutions = bottlenecks ? 3 : 2;
  for (int stage = bottlenecks ? 0 : 1, block = 0; !param_names_next_is(n, 0, "global_avg_pool"); block++) {
    const bool projects = param_names_next_is(n, 3 * convolutions - 1, "conv2d");
    if (projects) {
      stage++;
      block = 0;
    }
    if (!param_names_resnet_block(n, stage, block, convolutions, projects))
      return false;
  }
  return param_names_skip(n, "global_avg_pool") && param_names_assign(n, "linear", "fc") &&
         n->layer == n->model->layers;
}

/* A layer named by its index in a list. */
static bool param_names_listed(struct name_cursor *n, const char *list, int index, const char *const *named,
                                    const char *const *unnamed)
{
  for (; *named; named++)
    if (param_names_assign(n, *named, "%s.%d", list, index))
      return true;
  for (; *unnamed; unnamed++)
    if (param_names_skip(n, *unnamed))
      return true;
  return false;
}

static bool param_names_vgg(struct name_cursor *n)
{
  static const char *const images[] = {"conv2d", "batch_norm", NULL};
  static const char *const pools[] = {"relu", "max_pool", "avg_pool", NULL};
  static const char *const vectors[] = {"linear", NULL}, *const between[] = {"relu", "dropout", NULL};
  if (!param_names_next_is(n, 0, "conv2d"))
    return false;
  while (!param_names_next_is(n, 0, "flatten"))
    if (!param_names_listed(n, "features", n->layer, images, pools))
      return false;
  param_names_skip(n, "flatten");
  for (const int first = param_names_number(n); n->layer < n->model->layers;)
    if (!param_names_listed(n, "classifier", param_names_number(n) - first, vectors, between))
      return false;
  return true;
}

static const char *const no_suffixes[] = {NULL};
static const char *const buffers_gpt2[] = {".attn.bias", ".attn.masked_bias", "lm_head.weight", NULL};
static const char *const buffers_torch[] = {".num_batches_tracked", NULL};

static const struct scheme {
  const char *name, *prefix;
  const char *const *ignored_suffixes;
  bool transpose_linear; /* linear weights are (K, N) */
  bool (*assign)(struct name_cursor *n);
} schemes[] = {
  {"gpt2", "transformer.", buffers_gpt2, true, param_names_gpt2},
  {"resnet", NULL, buffers_torch, false, param_names_resnet},
  {"vgg", NULL, buffers_torch, false, param_names_vgg},
  {"own", NULL, no_suffixes, false, param_names_identity},
};

static void param_names_transpose_linear(const struct trm_model *model, struct trm_param_name *name)
{
  for (int i = 0, p = 0; i < model->layers; p += model->layer[i++].parameters)
    if (strcmp(model->layer[i].ops->name, "linear") == 0)
      name[p].transposed = true; /* its first parameter is the weight */
}

void trm_param_names_create(struct trm_param_names *names, const struct trm_model *model)
{
  const size_t bytes = (size_t)trm_model_parameter_count(model) * sizeof *names->name;
  *names = (struct trm_param_names){.name = trm_alloc(bytes, "names")};
  const struct scheme *scheme = schemes;
  for (;; scheme++) {
    struct name_cursor naming = {.model = model, .name = names->name};
    if (scheme->assign(&naming))
      break;
    memset(names->name, 0, bytes);
  }
  if (scheme->transpose_linear)
    param_names_transpose_linear(model, names->name);
  names->scheme = scheme->name;
  names->prefix = scheme->prefix;
  names->ignored_suffixes = scheme->ignored_suffixes;
}

void trm_param_names_free(struct trm_param_names *names)
{
  trm_free(names->name);
  *names = (struct trm_param_names){0};
}

static bool param_names_ends_with(const char *text, const char *end)
{
  const size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

int trm_param_names_find(const struct trm_param_names *names, const struct trm_model *model, const char *text)
{
  const size_t prefix = names->prefix ? strlen(names->prefix) : 0;
  if (prefix && strncmp(text, names->prefix, prefix) == 0)
    text += prefix;
  for (int p = 0; p < trm_model_parameter_count(model); p++)
    if (strcmp(names->name[p].text, text) == 0)
      return p;
  for (const char *const *end = names->ignored_suffixes; *end; end++)
    if (param_names_ends_with(text, *end))
      return -2;
  return -1;
}
