/* The grammar of a model's text: items separated by '|', each a layer's name and its arguments, or as the first item a
 * preset that stands for several. */
#include "nn/model_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"

static const char blanks[] = " \t\r\n";

/* One item, cut into words. words[0] is the name. */
struct item {
  char *storage, *word[TRM_MAX_ARGUMENTS + 1];
  int words, number;
};

/* A preset writes the text that it stands for. */
struct preset {
  const char *name;
  int (*expand)(const struct item *item, const struct trm_input_spec *spec, FILE *to);
};

/* mlp INPUTS-UNITS-...-UNITS [ACTIVATION] */
static int mlp_expand(const struct item *item, const struct trm_input_spec *spec, FILE *to)
{
  static const char usage[] = "usage: mlp INPUTS-UNITS-...-UNITS [ACTIVATION], such as mlp 784-512-256-10 relu";
  static const char *const activations[] = {"relu", "gelu", "gelu_tanh", "tanh", "sigmoid", NULL};
  if (item->words < 2)
    return trm_error(TRM_USAGE, "layer %d (mlp): the sizes are missing; %s", item->number, usage);
  int known = item->words < 3 ? 0 : -1;
  for (int i = 0; known < 0 && activations[i]; i++)
    if (strcmp(activations[i], item->word[2]) == 0)
      known = i;
  if (known < 0) {
    const char *near = trm_nearest(item->word[2], activations);
    return trm_error(TRM_USAGE, "layer %d (mlp): there is no activation '%s'%s%s%s; %s", item->number, item->word[2],
                     near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "", usage);
  }

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
      fprintf(to, "%slinear %lld", position > 1 ? " | " : "", size);
    if (!*end)
      return TRM_OK;
    if (position > 0) {
      fprintf(to, " | %s", item->words < 3 ? "relu" : item->word[2]);
      for (int i = 3; i < item->words; i++)
        fprintf(to, " %s", item->word[i]);
    }
    at = end + 1;
  }
}

static const struct preset presets[] = {{"mlp", mlp_expand}, {NULL, NULL}};

static const struct preset *preset_find(const char *name)
{
  for (const struct preset *p = presets; p->name; p++)
    if (strcmp(p->name, name) == 0)
      return p;
  return NULL;
}

static void item_free(struct item *item)
{
  trm_free(item->storage);
  item->storage = NULL;
}

/* Cuts the item at *text, up to '|' or the end, and moves *text past it (NULL: that was the last). */
static int item_next(const char **text, int number, struct item *item)
{
  const char *bar = strchr(*text, '|');
  *item = (struct item){.storage = trm_strdup(*text), .number = number};
  if (bar)
    item->storage[bar - *text] = '\0';
  *text = bar ? bar + 1 : NULL;
  char *state = NULL;
  for (char *word = strtok_r(item->storage, blanks, &state); word; word = strtok_r(NULL, blanks, &state)) {
    if (item->words > TRM_MAX_ARGUMENTS) {
      const int status = trm_error(TRM_USAGE, "layer %d (%s): more than %d arguments", number, item->word[0],
                                   TRM_MAX_ARGUMENTS);
      item_free(item);
      return status;
    }
    item->word[item->words++] = word;
  }
  if (!item->words) {
    item_free(item);
    return trm_error(TRM_USAGE, number || bar ? "model: item %d is empty" : "model: there is no layer", number);
  }
  return TRM_OK;
}

/* *expanded: the text with its preset resolved; trm_free. */
static int preset_resolve(const char *text, const struct trm_input_spec *spec, char **expanded)
{
  const char *rest = text;
  struct item item;
  TRM_CHECK(item_next(&rest, 0, &item));
  const struct preset *preset = preset_find(item.word[0]);
  int status = TRM_OK;
  if (!preset) {
    *expanded = trm_strdup(text);
  } else {
    char *head = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&head, &bytes);
    if (!stream) {
      status = trm_error(TRM_FAILED, "model: out of memory");
    } else {
      status = preset->expand(&item, spec, stream);
      if (fclose(stream) != 0 && status == TRM_OK)
        status = trm_error(TRM_FAILED, "model: out of memory");
      if (status == TRM_OK)
        *expanded = rest ? trm_format("%s |%s", head, rest) : trm_strdup(head);
      free(head);
    }
  }
  item_free(&item);
  return status;
}

static int unknown_layer(const struct item *item)
{
  const char *known[32];
  int count = 0;
  for (int i = 0; trm_layer_table[i] && count < 24; i++)
    known[count++] = trm_layer_table[i]->name;
  for (const struct preset *p = presets; p->name && count < 31; p++)
    known[count++] = p->name;
  known[count] = NULL;
  const char *near = trm_nearest(item->word[0], known);
  if (near)
    return trm_error(TRM_USAGE, "layer %d: there is no layer '%s', did you mean '%s'?", item->number, item->word[0],
                     near);
  char list[512] = "";
  for (int i = 0; i < count; i++) {
    strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
    strncat(list, known[i], sizeof list - strlen(list) - 1);
  }
  return trm_error(TRM_USAGE, "layer %d: there is no layer '%s'; there are %s", item->number, item->word[0], list);
}

/* The layer that an item asks for, its shapes inferred from layer->in. */
static int layer_read(struct item *item, struct trm_layer *layer)
{
  for (int i = 0; trm_layer_table[i] && !layer->ops; i++)
    if (strcmp(trm_layer_table[i]->name, item->word[0]) == 0)
      layer->ops = trm_layer_table[i];
  if (!layer->ops && preset_find(item->word[0]))
    return trm_error(TRM_USAGE, "layer %d (%s): a preset may only be the model's first item", item->number,
                     item->word[0]);
  if (!layer->ops)
    return unknown_layer(item);
  struct trm_arguments arguments = {.count = item->words - 1};
  for (int i = 0; i < arguments.count; i++) {
    char *word = item->word[i + 1], *equals = strchr(word, '=');
    if (equals)
      *equals = '\0';
    arguments.item[i].key = equals ? word : NULL;
    arguments.item[i].value = equals ? equals + 1 : word;
  }
  TRM_CHECK(layer->ops->create(layer, &arguments));
  return layer->ops->shape(layer);
}

static int layers_read(const char *text, const struct trm_input_spec *spec, struct trm_layer *layer, FILE *canonical)
{
  struct trm_shape in = spec->shape;
  for (int number = 0; text; number++) {
    struct item item;
    TRM_CHECK(item_next(&text, number, &item));
    layer[number] = (struct trm_layer){.number = number, .in = in, .sparse_input = number == 0 && spec->sparse};
    for (int i = 0; i < item.words; i++)
      fprintf(canonical, "%s%s", i ? " " : number ? " | " : "", item.word[i]);
    const int status = layer_read(&item, &layer[number]);
    item_free(&item);
    TRM_CHECK(status);
    in = layer[number].out;
  }
  return TRM_OK;
}

int trm_model_parse(const char *text, const struct trm_input_spec *spec, struct trm_layer **layer, int *layers,
                    char **canonical)
{
  char *expanded = NULL;
  TRM_CHECK(preset_resolve(text, spec, &expanded));
  int count = 1;
  for (const char *at = expanded; (at = strchr(at, '|')); at++)
    count++;
  struct trm_layer *read = trm_alloc((size_t)count * sizeof *read, "layers");
  char *written = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&written, &bytes);
  int status = stream ? layers_read(expanded, spec, read, stream) : TRM_FAILED;
  if (!stream || fclose(stream) != 0)
    status = trm_error(TRM_FAILED, "model: out of memory");
  if (status == TRM_OK) {
    *layer = read;
    *layers = count;
    *canonical = trm_strdup(written);
  } else {
    trm_free(read);
  }
  free(written);
  trm_free(expanded);
  return status;
}
