/* Transformers: the GPT of Radford et al. (2019), pre-norm blocks with learned positions and a tied head. */
#include "nn/presets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/options.h"
#include "core/status.h"

struct gpt {
  size_t layers, heads, dim, context;
  double dropout;
};

/* Checks the context against data.context: they differ only if both were given. */
static int gpt_check(const struct trm_item *item, const struct trm_input_spec *spec, const struct gpt *gpt)
{
  if (!spec->tokens)
    return trm_error(TRM_USAGE, "layer %d (%s): takes tokens, the data set has samples of shape %s", item->number,
                     item->word[0], trm_shape_text(&spec->shape));
  if (gpt->dim % gpt->heads != 0)
    return trm_error(TRM_USAGE, "layer %d (%s): dim=%zu cannot be divided among heads=%zu", item->number, item->word[0],
                     gpt->dim, gpt->heads);
  if (gpt->context && gpt->context != spec->shape.size[0])
    return trm_error(TRM_USAGE, "layer %d (%s): the model's context is %zu, the data's (data.context) %zu: the two "
                     "must agree", item->number, item->word[0], gpt->context, spec->shape.size[0]);
  return TRM_OK;
}

static void gpt_write(const struct gpt *gpt, FILE *to)
{
  char dropout[48] = "";
  if (gpt->dropout > 0)
    snprintf(dropout, sizeof dropout, " | dropout %.9g", gpt->dropout);
  fprintf(to, "embedding %zu | position%s", gpt->dim, dropout);
  for (size_t i = 0; i < gpt->layers; i++) {
    fprintf(to, " | mark a | layer_norm | linear %zu init=gpt2 | attention heads=%zu", 3 * gpt->dim, gpt->heads);
    fprintf(to, " | linear %zu init=gpt2 residuals=%zu", gpt->dim, 2 * gpt->layers);
    fprintf(to, "%s | add a | mark b | layer_norm | linear %zu init=gpt2 | gelu tanh", dropout, 4 * gpt->dim);
    fprintf(to, " | linear %zu init=gpt2 residuals=%zu%s | add b", gpt->dim, 2 * gpt->layers, dropout);
  }
  fprintf(to, " | layer_norm | head tied");
}

static const char gpt_usage[] = "usage: gpt layers=N heads=N dim=N [context=N] [dropout=P]";

/* One word of the preset: key=value. */
static int gpt_word(const struct trm_item *item, const char *word, struct gpt *gpt)
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
  if (!known[found]) {
    const char *near = trm_nearest_word(word, known);
    return trm_error(TRM_USAGE, "layer %d (%s): '%s' is not known%s%s%s; %s", item->number, item->word[0], word,
                     near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "", gpt_usage);
  }
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

static int gpt_read(const struct trm_item *item, struct gpt *gpt)
{
  size_t which = 0;
  while (strcmp(gpt_sizes[which].name, item->word[0]) != 0)
    which++;
  *gpt = gpt_sizes[which].gpt;
  for (int i = 1; i < item->words; i++)
    TRM_CHECK(gpt_word(item, item->word[i], gpt));
  if (!gpt->layers || !gpt->heads || !gpt->dim)
    return trm_error(TRM_USAGE, "layer %d (%s): %s is missing; %s", item->number, item->word[0],
                     !gpt->layers ? "layers" : !gpt->heads ? "heads" : "dim", gpt_usage);
  return TRM_OK;
}

int trm_preset_gpt(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to)
{
  struct gpt gpt;
  TRM_CHECK(gpt_read(item, &gpt));
  TRM_CHECK(gpt_check(item, spec, &gpt));
  gpt_write(&gpt, to);
  return TRM_OK;
}

size_t trm_preset_gpt_context(const struct trm_item *item)
{
  struct gpt gpt;
  return gpt_read(item, &gpt) == TRM_OK ? gpt.context : 0; /* errors are reported when the model is created */
}
