/* Presets: models by one word. */
#include "nn/model_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"

/* mlp INPUTS-UNITS-...-UNITS [ACTIVATION] */
static int presets_expand_mlp(const struct trm_item *item, const struct trm_input_spec *spec, char **to)
{
  static const char usage[] = "usage: mlp INPUTS-UNITS-...-UNITS [ACTIVATION], such as mlp 784-512-256-10 relu";
  static const char *const activations[] = {"relu", "leaky_relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", NULL};
  if (item->words < 2)
    return trm_error(TRM_USAGE, "layer %d (mlp): the sizes are missing; %s", item->number, usage);
  const char *activation = item->words > 2 ? item->word[2] : "relu";
  int known = 0;
  while (activations[known] && strcmp(activations[known], activation) != 0)
    known++;
  if (!activations[known])
    return trm_error(TRM_USAGE, "layer %d (mlp): there is no activation '%s'%s; %s", item->number, activation,
                     trm_did_you_mean(activation, activations), usage);

  const char *at = item->word[1];
  for (int position = 0;; position++) {
    char *end;
    errno = 0;
    const long long size = strtoll(at, &end, 10);
    if (end == at || *at < '0' || *at > '9' || errno || size < 1 || size > INT32_MAX || (*end && *end != '-') ||
        (!*end && !position))
      return trm_error(TRM_USAGE, "layer %d (mlp): '%s' is no list of two or more sizes from 1 to %d; %s", item->number,
                       item->word[1], INT32_MAX, usage);
    if (position == 0 && (size_t)size != trm_shape_count(&spec->shape))
      return trm_error(TRM_USAGE, "layer %d (mlp): the model expects samples of %lld values, the data set has samples "
                       "of shape %s", item->number, size, trm_shape_text(&spec->shape));
    if (position > 0)
      trm_append(to, "%slinear %lld", position > 1 ? " | " : "", size);
    if (!*end)
      return TRM_OK;
    if (position > 0) {
      trm_append(to, " | %s", activation);
      for (int i = 3; i < item->words; i++)
        trm_append(to, " %s", item->word[i]);
    }
    at = end + 1;
  }
}

/* -- convolutional networks. Channels, size and classes are the data set's. All but lenet5 use initial weights of
 * He et al. (2015), except in the last layer, which uses PyTorch's. */

/* Checks: no words after the name; images of at least `least` pixels per side; classes. */
static int presets_check_images(const struct trm_item *item, const struct trm_input_spec *spec, size_t min_side)
{
  const struct trm_shape *shape = &spec->shape;
  if (item->words > 1)
    return trm_error(TRM_USAGE, "layer %d (%s): '%s' is one word too many; usage: %s", item->number, item->word[0],
                     item->word[1], item->word[0]);
  if (spec->tokens || spec->sparse || shape->dims != 3 || shape->size[1] < min_side || shape->size[2] < min_side)
    return trm_error(TRM_USAGE,
                     "layer %d (%s): takes images (C, H, W) of at least %zu x %zu, the data set has samples "
                     "of shape %s",
                     item->number, item->word[0], min_side, min_side, trm_shape_text(shape));
  if (spec->target != TRM_TARGET_CLASS)
    return trm_error(TRM_USAGE, "layer %d (%s): tells classes apart, the data set has %zu values a sample",
                     item->number, item->word[0], spec->classes);
  return TRM_OK;
}

/* LeCun et al. 1998, as used today: relu and max pooling, padding of 2 for images of 28 x 28. */
static int presets_expand_lenet5(const struct trm_item *item, const struct trm_input_spec *spec, char **to)
{
  TRM_CHECK(presets_check_images(item, spec, 14));
  trm_append(to, "conv2d 6 5 pad=2 | relu | max_pool 2 | conv2d 16 5 | relu | max_pool 2 | flatten | linear 120 | "
             "relu | linear 84 | relu | linear %zu", spec->classes);
  return TRM_OK;
}

/* Two 3 x 3 convolutions, with the identity as shortcut or, if the shape changes, a 1 x 1 convolution. */
static void presets_basic_block(char **to, size_t units, int stride, bool identity)
{
  trm_append(to, " | mark %s | conv2d %zu 3 ", identity ? "a" : "in", units);
  if (stride != 1)
    trm_append(to, "stride=%d ", stride);
  trm_append(to, "pad=1 bias=no init=he | batch_norm | relu | conv2d %zu 3 pad=1 bias=no init=he | batch_norm", units);
  if (identity)
    trm_append(to, " | add a | relu");
  else
    trm_append(to, " | mark out | at in | conv2d %zu 1 stride=%d bias=no init=he | batch_norm | add out | relu", units,
            stride);
}

/* He et al. 2016, for small images (their section 4.2), 6 n + 2 layers: three stages of n blocks with 16, 32 and 64
 * channels; projections where the shape changes. */
static int presets_expand_resnet(const struct trm_item *item, const struct trm_input_spec *spec, char **to)
{
  TRM_CHECK(presets_check_images(item, spec, 4));
  const int blocks = (atoi(item->word[0] + sizeof "resnet" - 1) - 2) / 6;
  trm_append(to, "conv2d 16 3 pad=1 bias=no init=he | batch_norm | relu");
  for (int stage = 0; stage < 3; stage++)
    for (int b = 0; b < blocks; b++)
      presets_basic_block(to, (size_t)16 << stage, stage && !b ? 2 : 1, !stage || b);
  trm_append(to, " | global_avg_pool | linear %zu", spec->classes);
  return TRM_OK;
}

/* 1 x 1, 3 x 3 and 1 x 1 convolutions, the last with four times the units, and the stride in the second, as torchvision
 * has it (He et al. 2016 have it in the first); shortcuts as in basic blocks. */
static void presets_bottleneck_block(char **to, size_t units, int stride, bool identity)
{
  trm_append(to, " | mark %s | conv2d %zu 1 bias=no init=he | batch_norm | relu | conv2d %zu 3 ",
             identity ? "a" : "in", units, units);
  if (stride != 1)
    trm_append(to, "stride=%d ", stride);
  trm_append(to, "pad=1 bias=no init=he | batch_norm | relu | conv2d %zu 1 bias=no init=he | batch_norm", 4 * units);
  if (identity)
    trm_append(to, " | add a | relu");
  else
    trm_append(to, " | mark out | at in | conv2d %zu 1 stride=%d bias=no init=he | batch_norm | add out | relu",
               4 * units, stride);
}

/* He et al. 2016, for large images, as torchvision's: a 7 x 7 convolution and pooling, then four stages of blocks. */
static int presets_expand_large_resnet(const struct trm_item *item, const struct trm_input_spec *spec, char **to)
{
  static const struct {
    const char *name;
    int blocks[4];
    bool bottleneck;
  } sizes[] = {{"resnet18", {2, 2, 2, 2}, false}, {"resnet34", {3, 4, 6, 3}, false}, {"resnet50", {3, 4, 6, 3}, true}};
  int size = 0;
  TRM_CHECK(presets_check_images(item, spec, 32));
  while (strcmp(sizes[size].name, item->word[0]) != 0)
    size++;
  trm_append(to, "conv2d 64 7 stride=2 pad=3 bias=no init=he | batch_norm | relu | max_pool 3 stride=2 pad=1");
  for (int stage = 0; stage < 4; stage++)
    for (int b = 0; b < sizes[size].blocks[stage]; b++) {
      const int stride = stage && !b ? 2 : 1;
      if (sizes[size].bottleneck)
        presets_bottleneck_block(to, (size_t)64 << stage, stride, b);
      else
        presets_basic_block(to, (size_t)64 << stage, stride, !stage || b);
    }
  trm_append(to, " | global_avg_pool | linear %zu", spec->classes);
  return TRM_OK;
}

/* Simonyan & Zisserman 2015, configuration A, as torchvision's vgg11 (without batch norm). torchvision pools images of
 * any size to 7 x 7 before the first linear layer; here there is no such pooling, so 224 x 224 gives its model. */
static int presets_expand_vgg11(const struct trm_item *item, const struct trm_input_spec *spec, char **to)
{
  static const size_t units[] = {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0}; /* 0: pooling */
  TRM_CHECK(presets_check_images(item, spec, 32));
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (units[i])
      trm_append(to, "%sconv2d %zu 3 pad=1 init=he | relu", i ? " | " : "", units[i]);
    else
      trm_append(to, " | max_pool 2");
  trm_append(to, " | flatten | linear 4096 | relu | dropout 0.5 | linear 4096 | relu | dropout 0.5 | linear %zu",
          spec->classes);
  return TRM_OK;
}

/* -- transformers: the GPT of Radford et al. (2019), pre-norm blocks with learned positions and a tied head */

struct gpt {
  size_t layers, heads, dim, context;
  double dropout;
};

/* Checks the context against data.context: they differ only if both were given. */
static int presets_gpt_check(const struct trm_item *item, const struct trm_input_spec *spec, const struct gpt *gpt)
{
  if (!spec->tokens)
    return trm_error(TRM_USAGE, "layer %d (%s): takes tokens, the data set has samples of shape %s", item->number,
                     item->word[0], trm_shape_text(&spec->shape));
  if (gpt->dim % gpt->heads != 0)
    return trm_error(TRM_USAGE, "layer %d (%s): dim=%zu cannot be divided among heads=%zu", item->number, item->word[0],
                     gpt->dim, gpt->heads);
  if (gpt->context && gpt->context != trm_input_context(spec))
    return trm_error(TRM_USAGE, "layer %d (%s): the model's context is %zu, the data's (data.context) %zu: the two "
                     "must agree", item->number, item->word[0], gpt->context, trm_input_context(spec));
  return TRM_OK;
}

static void presets_gpt_write(const struct gpt *gpt, char **to)
{
  char dropout[48] = "";
  if (gpt->dropout > 0)
    snprintf(dropout, sizeof dropout, " | dropout %.9g", gpt->dropout);
  trm_append(to, "embedding %zu | position%s", gpt->dim, dropout);
  for (size_t i = 0; i < gpt->layers; i++) {
    trm_append(to, " | mark a | layer_norm | linear %zu init=gpt2 | attention heads=%zu", 3 * gpt->dim, gpt->heads);
    trm_append(to, " | linear %zu init=gpt2 residuals=%zu", gpt->dim, 2 * gpt->layers);
    trm_append(to, "%s | add a | mark b | layer_norm | linear %zu init=gpt2 | gelu tanh", dropout, 4 * gpt->dim);
    trm_append(to, " | linear %zu init=gpt2 residuals=%zu%s | add b", gpt->dim, 2 * gpt->layers, dropout);
  }
  trm_append(to, " | layer_norm | head tied");
}

static const char gpt_usage[] = "usage: gpt layers=N heads=N dim=N [context=N] [dropout=P]";

/* One word of the preset: key=value. */
static int presets_gpt_word(const struct trm_item *item, const char *word, struct gpt *gpt)
{
  const char *equals = strchr(word, '=');
  const struct {
    const char *key;
    size_t *size;
  } sizes[] = {
    {"layers", &gpt->layers}, {"heads", &gpt->heads}, {"dim", &gpt->dim}, {"context", &gpt->context},
    {"dropout", NULL}};
  const char *known[sizeof sizes / sizeof *sizes + 1] = {NULL};
  size_t found = sizeof sizes / sizeof *sizes;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    known[i] = sizes[i].key;
    if (equals && strlen(known[i]) == (size_t)(equals - word) && strncmp(known[i], word, strlen(known[i])) == 0)
      found = i;
  }
  if (!known[found])
    return trm_error(TRM_USAGE, "layer %d (%s): '%s' is not known%s; %s", item->number, item->word[0], word,
                     trm_did_you_mean(word, known), gpt_usage);
  char *end;
  errno = 0;
  const double value = strtod(equals + 1, &end);
  const bool number = end != equals + 1 && !*end && !errno;
  if (!sizes[found].size) {
    gpt->dropout = value;
    if (number && (float)value >= 0 && (float)value < 1)
      return TRM_OK;
    return trm_error(TRM_USAGE, "layer %d (%s): %s is no part from 0 to below 1; %s", item->number, item->word[0], word,
                     gpt_usage);
  }
  if (!number || !(value >= 1 && value <= INT32_MAX) || value != (double)(size_t)value)
    return trm_error(TRM_USAGE, "layer %d (%s): %s is no whole number from 1 to %d; %s", item->number, item->word[0],
                     word, INT32_MAX, gpt_usage);
  *sizes[found].size = (size_t)value;
  return TRM_OK;
}

/* Sizes of named presets; words after the name override them: gpt2-124m dropout=0.1. */
static const struct {
  const char *name;
  struct gpt gpt;
} gpt_sizes[] = {
  {"gpt", {0}},
  {"gpt2-124m", {12, 12, 768, 1024, 0}},
  {"gpt2-355m", {24, 16, 1024, 1024, 0}},
  {"gpt2-774m", {36, 20, 1280, 1024, 0}},
  {"gpt2-1558m", {48, 25, 1600, 1024, 0}},
};

static int presets_gpt_read(const struct trm_item *item, struct gpt *gpt)
{
  size_t which = 0;
  while (strcmp(gpt_sizes[which].name, item->word[0]) != 0)
    which++;
  *gpt = gpt_sizes[which].gpt;
  for (int i = 1; i < item->words; i++)
    TRM_CHECK(presets_gpt_word(item, item->word[i], gpt));
  if (!gpt->layers || !gpt->heads || !gpt->dim)
    return trm_error(TRM_USAGE, "layer %d (%s): %s is missing; %s", item->number, item->word[0],
                     !gpt->layers ? "layers" : !gpt->heads ? "heads" : "dim", gpt_usage);
  return TRM_OK;
}

static int presets_expand_gpt(const struct trm_item *item, const struct trm_input_spec *spec, char **to)
{
  struct gpt gpt;
  TRM_CHECK(presets_gpt_read(item, &gpt));
  TRM_CHECK(presets_gpt_check(item, spec, &gpt));
  presets_gpt_write(&gpt, to);
  return TRM_OK;
}

static size_t presets_gpt_context(const struct trm_item *item)
{
  struct gpt gpt;
  return presets_gpt_read(item, &gpt) == TRM_OK ? gpt.context : 0; /* errors are reported when the model is created */
}

const struct trm_preset trm_preset_table[] = {
  {"mlp", presets_expand_mlp, NULL},
  {"lenet5", presets_expand_lenet5, NULL},
  {"resnet20", presets_expand_resnet, NULL},
  {"resnet32", presets_expand_resnet, NULL},
  {"resnet44", presets_expand_resnet, NULL},
  {"resnet56", presets_expand_resnet, NULL},
  {"resnet110", presets_expand_resnet, NULL},
  {"resnet18", presets_expand_large_resnet, NULL},
  {"resnet34", presets_expand_large_resnet, NULL},
  {"resnet50", presets_expand_large_resnet, NULL},
  {"vgg11", presets_expand_vgg11, NULL},
  {"gpt", presets_expand_gpt, presets_gpt_context},
  {"gpt2-124m", presets_expand_gpt, presets_gpt_context},
  {"gpt2-355m", presets_expand_gpt, presets_gpt_context},
  {"gpt2-774m", presets_expand_gpt, presets_gpt_context},
  {"gpt2-1558m", presets_expand_gpt, presets_gpt_context},
  {NULL, NULL, NULL},
};
