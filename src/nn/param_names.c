/* The table of naming schemes, and shared helpers. */
#include "nn/param_names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "nn/param_names_private.h"

static bool param_names_identity(struct trm_name_cursor *n)
{
  for (int p = 0; p < trm_model_parameter_count(n->model); p++)
    snprintf(n->name[p].text, sizeof n->name[p].text, "%s", trm_model_parameter(n->model, p)->name);
  return true;
}

static const char *const no_suffixes[] = {NULL};
static const char *const buffers_gpt2[] = {".attn.bias", ".attn.masked_bias", "lm_head.weight", NULL};
static const char *const buffers_torch[] = {".num_batches_tracked", NULL};

static const struct scheme {
  const char *name, *prefix;
  const char *const *ignored_suffixes;
  bool transpose_linear; /* linear weights are (K, N) */
  bool (*assign)(struct trm_name_cursor *n);
} schemes[] = {
  {"gpt2", "transformer.", buffers_gpt2, true, trm_param_names_gpt2},
  {"resnet", NULL, buffers_torch, false, trm_param_names_resnet},
  {"vgg", NULL, buffers_torch, false, trm_param_names_vgg},
  {"own", NULL, no_suffixes, false, param_names_identity},
};

bool trm_name_is(const struct trm_name_cursor *n, int ahead, const char *kind)
{
  const int layer = n->layer + ahead;
  return layer < n->model->layers && strcmp(n->model->layer[layer].ops->name, kind) == 0;
}

bool trm_name_assign(struct trm_name_cursor *n, const char *kind, const char *name, ...)
{
  if (!trm_name_is(n, 0, kind))
    return false;
  char text[48];
  va_list arguments;
  va_start(arguments, name);
  vsnprintf(text, sizeof text, name, arguments);
  va_end(arguments);
  const struct trm_layer *layer = &n->model->layer[n->layer++];
  for (int p = 0; p < layer->parameters; p++) {
    const char *suffix = strchr(layer->parameter[p].name, '.'); /* layerN.weight */
    struct trm_param_name *target = &n->name[n->parameter++];
    snprintf(target->text, sizeof target->text, "%s%.15s", text, suffix);
  }
  return true;
}

bool trm_name_skip(struct trm_name_cursor *n, const char *kind)
{
  const bool passes = trm_name_is(n, 0, kind) && n->model->layer[n->layer].parameters == 0;
  n->layer += passes;
  return passes;
}

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
    struct trm_name_cursor naming = {.model = model, .name = names->name};
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
