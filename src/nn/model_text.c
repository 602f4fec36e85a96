/* The grammar of a model's text: items separated by '|', each a layer's name with arguments, a branch word (mark, at,
 * add), or as the first item a preset. */
#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "nn/layers/layers.h"
#include "nn/model.h"
#include "nn/model_text.h"

static const char blanks[] = " \t\r\n";

enum { MAX_LAYERS = 5 }; /* of one item: itself, and an adapter of four */

/* A value named by mark. */
struct text_mark {
  char *name;
  int layer;  /* index of the layer whose output it is, or TRM_FROM_BATCH */
  int number; /* number of the mark item */
  bool used;
};

/* State of the parser. */
struct text_parser {
  const struct trm_input_spec *spec;
  struct trm_layer *layer; /* (layers) */
  bool *read;              /* (layers) the layer's output is used */
  int layers;
  int current; /* index of the layer whose output is the current value */
  struct text_mark *mark;
  int marks;
};

static const struct trm_preset *text_find_preset(const char *name)
{
  for (const struct trm_preset *p = trm_preset_table; p->name; p++)
    if (strcmp(p->name, name) == 0)
      return p;
  return NULL;
}

static void text_free_item(struct trm_item *item)
{
  trm_free(item->storage);
  item->storage = NULL;
}

/* Ends the item at *text at '|' or the end, and moves *text past it (NULL: it was the last). */
static int text_next_item(const char **text, int number, struct trm_item *item)
{
  const char *bar = strchr(*text, '|');
  *item = (struct trm_item){.storage = trm_strdup(*text), .number = number};
  if (bar)
    item->storage[bar - *text] = '\0';
  *text = bar ? bar + 1 : NULL;
  char *state = NULL;
  for (char *word = strtok_r(item->storage, blanks, &state); word; word = strtok_r(NULL, blanks, &state)) {
    if (item->words > TRM_MAX_ARGUMENTS) {
      const int status = trm_error(TRM_USAGE, "layer %d (%s): more than %d arguments", number, item->word[0],
                                   TRM_MAX_ARGUMENTS);
      text_free_item(item);
      return status;
    }
    item->word[item->words++] = word;
  }
  if (!item->words) {
    text_free_item(item);
    return trm_error(TRM_USAGE, number || bar ? "model: item %d is empty" : "model: there is no layer", number);
  }
  return TRM_OK;
}

/* *expanded: the text with its preset resolved; trm_free. */
static int text_expand_preset(const char *text, const struct trm_input_spec *spec, char **expanded)
{
  const char *rest = text;
  struct trm_item item;
  TRM_CHECK(text_next_item(&rest, 0, &item));
  const struct trm_preset *preset = text_find_preset(item.word[0]);
  int status = TRM_OK;
  *expanded = NULL;
  if (preset)
    status = preset->expand(&item, spec, expanded);
  if (!preset || rest)
    trm_append(expanded, "%s%s", preset ? " |" : "", preset ? rest : text);
  text_free_item(&item);
  return status;
}

size_t trm_model_context(const char *text)
{
  struct trm_item item;
  if (text_next_item(&text, 0, &item) != TRM_OK)
    return 0;
  const struct trm_preset *preset = text_find_preset(item.word[0]);
  const size_t context = preset && preset->context ? preset->context(&item) : 0;
  text_free_item(&item);
  return context;
}

static int text_unknown_layer(const struct trm_item *item)
{
  static const char *const branch_words[] = {"mark", "at", "add", NULL};
  enum { MAX_KNOWN = 160 };
  const char *known[MAX_KNOWN + 1] = {NULL};
  int count = 0;
  for (int i = 0; trm_layer_kind(i) && count < MAX_KNOWN; i++)
    known[count++] = trm_layer_kind(i)->name;
  for (int i = 0; branch_words[i] && count < MAX_KNOWN; i++)
    known[count++] = branch_words[i];
  for (const struct trm_preset *p = trm_preset_table; p->name && count < MAX_KNOWN; p++)
    known[count++] = p->name;
  const char *near = trm_nearest_word(item->word[0], known);
  if (near)
    return trm_error(TRM_USAGE, "layer %d: there is no layer '%s', did you mean '%s'?", item->number, item->word[0],
                     near);
  char *list = NULL;
  for (int i = 0; i < count; i++)
    trm_append(&list, "%s%s", i ? ", " : "", known[i]);
  trm_error(TRM_USAGE, "layer %d: there is no layer '%s'; there are %s", item->number, item->word[0], list);
  trm_free(list);
  return TRM_USAGE;
}

/* -- branches */

static int text_value_rows(const struct text_parser *r, int layer)
{
  return layer == TRM_FROM_BATCH ? TRM_FROM_BATCH : r->layer[layer].rows_from;
}

static const struct trm_shape *text_value_shape(const struct text_parser *r, int layer)
{
  return layer == TRM_FROM_BATCH ? &r->spec->shape : &r->layer[layer].out;
}

/* The one argument of mark, at and add. */
static int text_mark_name(const struct trm_item *item, const char **name)
{
  if (item->words != 2)
    return trm_error(TRM_USAGE, "layer %d (%s): takes one name; usage: %s NAME", item->number, item->word[0],
                     item->word[0]);
  *name = item->word[1];
  return TRM_OK;
}

static int text_mark_unused(const struct text_mark *mark)
{
  return trm_error(TRM_USAGE, "layer %d (mark): nothing uses '%s'", mark->number, mark->name);
}

static int text_set_mark(struct text_parser *r, const struct trm_item *item)
{
  const char *name = NULL;
  TRM_CHECK(text_mark_name(item, &name));
  int m = 0;
  while (m < r->marks && strcmp(r->mark[m].name, name) != 0)
    m++;
  if (m < r->marks && !r->mark[m].used)
    return text_mark_unused(&r->mark[m]);
  if (m < r->marks)
    trm_free(r->mark[m].name);
  else
    r->marks++;
  r->mark[m] = (struct text_mark){.name = trm_strdup(name), .layer = r->current, .number = item->number};
  return TRM_OK;
}

static int text_find_mark(struct text_parser *r, const struct trm_item *item, int *layer)
{
  const char *name = NULL;
  TRM_CHECK(text_mark_name(item, &name));
  const char **known = trm_alloc((size_t)(r->marks + 1) * sizeof *known, "marks");
  int found = 0;
  for (int m = 0; m < r->marks; m++)
    known[m] = r->mark[m].name;
  while (found < r->marks && strcmp(known[found], name) != 0)
    found++;
  const char *hint = trm_did_you_mean(name, known);
  trm_free(known);
  if (found == r->marks)
    return trm_error(TRM_USAGE, "layer %d (%s): there is no mark '%s' above%s", item->number, item->word[0], name,
                     hint);
  r->mark[found].used = true;
  *layer = r->mark[found].layer;
  return TRM_OK;
}

static void text_use_value(struct text_parser *r, int layer)
{
  if (layer >= 0)
    r->read[layer] = true;
}

/* Finds the embedding whose weight a layer shares: the nearest preceding one. */
static int text_find_tied(struct text_parser *r, struct trm_layer *layer)
{
  int i = r->layers - 1;
  while (i >= 0 && r->layer[i].ops != &layer_embedding)
    i--;
  if (i < 0)
    return trm_error(TRM_USAGE, "%s: there is no embedding above that it could be tied to", trm_layer_text(layer));
  if (r->layer[i].shared)
    return trm_error(TRM_USAGE, "%s: another layer is tied to that embedding already", trm_layer_text(layer));
  r->layer[i].shared = true;
  layer->tied = &r->layer[i];
  return TRM_OK;
}

/* Creates an item's layer; infers its shapes from layer->in. */
static int text_read_layer(struct text_parser *r, struct trm_item *item, struct trm_layer *layer)
{
  if (strcmp(item->word[0], layer_add.name) == 0) {
    layer->ops = &layer_add;
    TRM_CHECK(text_find_mark(r, item, &layer->addend));
    text_use_value(r, layer->addend);
    layer->sparse_input = layer->sparse_input || (layer->addend == TRM_FROM_BATCH && r->spec->sparse);
    layer->token_input = layer->token_input || (layer->addend == TRM_FROM_BATCH && r->spec->tokens);
    layer->out = *text_value_shape(r, layer->addend);
    if (text_value_rows(r, layer->addend) != layer->rows_from)
      return trm_error(TRM_USAGE, "%s: the two values have other numbers of rows", trm_layer_text(layer));
    return layer->ops->shape(layer);
  }
  layer->ops = trm_layer_find(item->word[0]);
  if (!layer->ops && text_find_preset(item->word[0]))
    return trm_error(TRM_USAGE, "layer %d (%s): a preset may only be the model's first item", item->number,
                     item->word[0]);
  if (!layer->ops)
    return text_unknown_layer(item);
  struct trm_arguments arguments = {.count = item->words - 1};
  for (int i = 0; i < arguments.count; i++) {
    char *word = item->word[i + 1], *equals = strchr(word, '=');
    if (equals)
      *equals = '\0';
    arguments.item[i].key = equals ? word : NULL;
    arguments.item[i].value = equals ? equals + 1 : word;
  }
  if (layer->ops->settings_bytes)
    layer->settings = trm_alloc(layer->ops->settings_bytes, "layers");
  if (layer->ops->output_rows)
    layer->rows_from = r->layers;
  TRM_CHECK(layer->ops->create ? layer->ops->create(layer, &arguments)
                               : trm_argument_reject_unknown(layer, &arguments, 0, NULL));
  if (layer->tie_weights)
    TRM_CHECK(text_find_tied(r, layer));
  layer->out = layer->in;
  return layer->ops->shape ? layer->ops->shape(layer) : trm_layer_require_dense(layer);
}

/* -- adapters: a linear layer's value y becomes y + scale (x A^T) B^T, by four layers behind it with its number */

/* Appends a layer that reads layer `from`, of `units` outputs where it has weights. */
static struct trm_layer *text_append(struct text_parser *r, const struct trm_layer_ops *ops, int from, size_t units)
{
  const struct trm_layer *linear = &r->layer[r->current];
  struct trm_layer *layer = &r->layer[r->layers++];
  *layer = (struct trm_layer){.ops = ops,
                              .number = linear->number,
                              .from = from,
                              .addend = TRM_FROM_NONE,
                              .rows_from = linear->rows_from,
                              .in = *text_value_shape(r, from),
                              .out = *text_value_shape(r, from),
                              .context = linear->context,
                              .classes = linear->classes};
  if (ops->settings_bytes)
    layer->settings = trm_alloc(ops->settings_bytes, "layers");
  if (units)
    *(struct trm_weight_settings *)layer->settings = (struct trm_weight_settings){.units = units};
  text_use_value(r, from);
  return layer;
}

/* Appends the adapter of the newest layer, whose place as the current value the sum takes. */
static int text_add_adapter(struct text_parser *r)
{
  const int y = r->current;
  const struct trm_layer *linear = &r->layer[y];
  float scale = 0;
  const size_t rank = trm_layer_adapter(linear, &scale);
  struct trm_layer *a = text_append(r, &layer_lora_a, linear->from, rank);
  a->sparse_input = linear->sparse_input;
  TRM_CHECK(a->ops->shape(a));
  *(float *)text_append(r, &layer_scale, y + 1, 0)->settings = scale;
  struct trm_layer *b = text_append(r, &layer_lora_b, y + 2, linear->out.size[linear->out.dims - 1]);
  TRM_CHECK(b->ops->shape(b));
  text_append(r, &layer_add, y + 3, 0)->addend = y;
  text_use_value(r, y);
  r->current = y + 4;
  return TRM_OK;
}

static int text_read_item(struct text_parser *r, struct trm_item *item)
{
  if (strcmp(item->word[0], "mark") == 0)
    return text_set_mark(r, item);
  if (strcmp(item->word[0], "at") == 0)
    return text_find_mark(r, item, &r->current);
  struct trm_layer *layer = &r->layer[r->layers];
  *layer = (struct trm_layer){.number = item->number,
                              .from = r->current,
                              .addend = TRM_FROM_NONE,
                              .in = *text_value_shape(r, r->current),
                              .rows_from = text_value_rows(r, r->current),
                              .sparse_input = r->current == TRM_FROM_BATCH && r->spec->sparse,
                              .token_input = r->current == TRM_FROM_BATCH && r->spec->tokens,
                              .context = r->spec->tokens ? trm_input_context(r->spec) : 0,
                              .classes = r->spec->classes};
  text_use_value(r, r->current);
  const int status = text_read_layer(r, item, layer);
  r->current = r->layers++; /* also after an error, so that settings are released */
  return status == TRM_OK && layer->adapted ? text_add_adapter(r) : status;
}

/* Refuses unused names and values. */
static int text_check(const struct text_parser *r)
{
  for (int m = 0; m < r->marks; m++)
    if (!r->mark[m].used)
      return text_mark_unused(&r->mark[m]);
  if (!r->layers)
    return trm_error(TRM_USAGE, "model: there is no layer");
  for (int i = 0; i < r->layers; i++)
    if (!r->read[i] && i != r->current)
      return trm_error(TRM_USAGE, "%s: nothing uses its output: mark it before 'at', and add it to another value",
                       trm_layer_text(&r->layer[i]));
  if (r->current != r->layers - 1)
    return trm_error(TRM_USAGE, "model: ends with 'at': its last item must be the layer that gives the scores");
  if (r->layer[r->current].rows_from != TRM_FROM_BATCH)
    return trm_error(TRM_USAGE, "%s: scores need a row for each sample", trm_layer_text(&r->layer[r->current]));
  return TRM_OK;
}

/* Returns the layer that makes the value i, of the sum with an adapter's value the adapted one. */
static int text_value_maker(const struct text_parser *r, int i)
{
  const int addend = i >= 0 ? r->layer[i].addend : TRM_FROM_NONE;
  return addend >= 0 && r->layer[addend].adapted && r->layer[addend].number == r->layer[i].number ? addend : i;
}

/* Removes biases directly before batch norm: their gradient is rounding noise, which adaptive optimizers amplify. */
static void text_remove_biases(struct text_parser *r)
{
  for (int i = 0; i < r->layers; i++) {
    const int read = r->layer[i].ops->removes_bias ? r->layer[i].from : TRM_FROM_NONE;
    int readers = 0;
    for (int k = 0; k < r->layers && read >= 0; k++)
      readers += (r->layer[k].from == read) + (r->layer[k].addend == read);
    struct trm_layer *biased = readers == 1 ? &r->layer[text_value_maker(r, read)] : NULL;
    if (biased && biased->ops->remove_bias)
      biased->bias_removed = biased->ops->remove_bias(biased);
  }
}

static int text_read_items(struct text_parser *r, const char *text, char **canonical)
{
  for (int number = 0; text; number++) {
    struct trm_item item;
    TRM_CHECK(text_next_item(&text, number, &item));
    for (int i = 0; i < item.words; i++)
      trm_append(canonical, "%s%s", i ? " " : number ? " | " : "", item.word[i]);
    const int status = text_read_item(r, &item);
    text_free_item(&item);
    TRM_CHECK(status);
  }
  TRM_CHECK(text_check(r));
  text_remove_biases(r);
  return TRM_OK;
}

int trm_model_parse(const char *text, const struct trm_input_spec *spec, struct trm_layer **layer, int *layers,
                    char **canonical)
{
  char *expanded = NULL, *written = NULL;
  int status = text_expand_preset(text, spec, &expanded);
  size_t items = 1;
  for (const char *at = expanded; at && (at = strchr(at, '|')); at++)
    items++;
  struct text_parser r = {.spec = spec, .current = TRM_FROM_BATCH};
  r.layer = trm_alloc(MAX_LAYERS * items * sizeof *r.layer, "layers");
  r.read = trm_alloc(MAX_LAYERS * items * sizeof *r.read, "layers");
  r.mark = trm_alloc(items * sizeof *r.mark, "marks");
  if (status == TRM_OK)
    status = text_read_items(&r, expanded, &written);
  if (status == TRM_OK) {
    *layer = r.layer;
    *layers = r.layers;
    *canonical = written;
  } else {
    trm_layers_free(r.layer, r.layers);
    trm_free(written);
  }
  for (int m = 0; m < r.marks; m++)
    trm_free(r.mark[m].name);
  trm_free(r.mark);
  trm_free(r.read);
  trm_free(expanded);
  return status;
}
