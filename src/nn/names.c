/* The table of naming schemes, and what they have in common. */
#include "nn/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "nn/names_private.h"

static bool names_own(struct trm_naming *n)
{
  for (int p = 0; p < trm_model_parameter_count(n->model); p++)
    snprintf(n->of[p].text, sizeof n->of[p].text, "%s", trm_model_parameter(n->model, p)->name);
  return true;
}

static const char *const nothing[] = {NULL};
static const char *const buffers_gpt2[] = {".attn.bias", ".attn.masked_bias", "lm_head.weight", NULL};
static const char *const buffers_torch[] = {".num_batches_tracked", NULL};

static const struct scheme {
  const char *name, *prefix;
  const char *const *ignored;
  bool transposes; /* the weights of linear layers */
  bool (*assign)(struct trm_naming *n);
} schemes[] = {
  {"gpt2", "transformer.", buffers_gpt2, true, trm_names_gpt2},
  {"resnet", NULL, buffers_torch, false, trm_names_resnet},
  {"vgg", NULL, buffers_torch, false, trm_names_vgg},
  {"own", NULL, nothing, false, names_own},
};

bool trm_naming_is(const struct trm_naming *n, int ahead, const char *kind)
{
  const int layer = n->layer + ahead;
  return layer < n->model->layers && strcmp(n->model->layer[layer].ops->name, kind) == 0;
}

bool trm_naming_take(struct trm_naming *n, const char *kind, const char *name, ...)
{
  if (!trm_naming_is(n, 0, kind))
    return false;
  char text[48];
  va_list arguments;
  va_start(arguments, name);
  vsnprintf(text, sizeof text, name, arguments);
  va_end(arguments);
  const struct trm_layer *layer = &n->model->layer[n->layer++];
  for (int p = 0; p < layer->parameters; p++) {
    const char *own = strchr(layer->parameter[p].name, '.'); /* layerN.weight */
    struct trm_name *to = &n->of[n->parameter++];
    snprintf(to->text, sizeof to->text, "%s%.15s", text, own);
  }
  return true;
}

bool trm_naming_pass(struct trm_naming *n, const char *kind)
{
  const bool passes = trm_naming_is(n, 0, kind) && n->model->layer[n->layer].parameters == 0;
  n->layer += passes;
  return passes;
}

static void linear_transpose(const struct trm_model *model, struct trm_name *of)
{
  for (int i = 0, p = 0; i < model->layers; p += model->layer[i++].parameters)
    if (strcmp(model->layer[i].ops->name, "linear") == 0)
      of[p].transposed = true; /* its first parameter is the weight */
}

void trm_names_create(struct trm_names *names, const struct trm_model *model)
{
  const size_t bytes = (size_t)trm_model_parameter_count(model) * sizeof *names->of;
  *names = (struct trm_names){.of = trm_alloc(bytes, "names")};
  const struct scheme *scheme = schemes;
  for (;; scheme++) {
    struct trm_naming naming = {.model = model, .of = names->of};
    if (scheme->assign(&naming))
      break;
    memset(names->of, 0, bytes);
  }
  if (scheme->transposes)
    linear_transpose(model, names->of);
  names->scheme = scheme->name;
  names->prefix = scheme->prefix;
  names->ignored = scheme->ignored;
}

void trm_names_free(struct trm_names *names)
{
  trm_free(names->of);
  *names = (struct trm_names){0};
}

static bool ends_with(const char *text, const char *end)
{
  const size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

int trm_names_find(const struct trm_names *names, const struct trm_model *model, const char *text)
{
  const size_t prefix = names->prefix ? strlen(names->prefix) : 0;
  if (prefix && strncmp(text, names->prefix, prefix) == 0)
    text += prefix;
  for (int p = 0; p < trm_model_parameter_count(model); p++)
    if (strcmp(names->of[p].text, text) == 0)
      return p;
  for (const char *const *end = names->ignored; *end; end++)
    if (ends_with(text, *end))
      return -2;
  return -1;
}
