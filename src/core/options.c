/* Options set from text: defaults, one at a time, or a configuration file. */
#include "core/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/document.h"
#include "core/memory.h"
#include "core/options_private.h"
#include "core/status.h"

#define MAX_OPTIONS 256
#define MAX_WORD 64

/* ---- words */

/* Returns the edit distance of a and the first n letters of b: insertions, deletions, replacements, swaps of adjacent
 * letters (optimal string alignment). SIZE_MAX if it is too large. */
static size_t options_word_distance(const char *a, const char *b, size_t n)
{
  size_t row[3][MAX_WORD + 1]; /* last three rows of the dynamic programming table */
  const size_t m = strlen(a);
  if (m > MAX_WORD || n > MAX_WORD)
    return SIZE_MAX;
  for (size_t j = 0; j <= n; j++)
    row[0][j] = j;
  for (size_t i = 1; i <= m; i++) {
    size_t *now = row[i % 3];
    const size_t *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
    now[0] = i;
    for (size_t j = 1; j <= n; j++) {
      size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
      if (last[j] + 1 < best)
        best = last[j] + 1;
      if (now[j - 1] + 1 < best)
        best = now[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
        best = before[j - 2] + 1;
      now[j] = best;
    }
  }
  return row[m % 3][n] < m / 3 + 2 ? row[m % 3][n] : SIZE_MAX;
}

const char *trm_nearest_word(const char *word, const char *const *known)
{
  const char *nearest = NULL;
  for (size_t best = SIZE_MAX; *known; known++) {
    const size_t distance = options_word_distance(word, *known, strlen(*known));
    if (distance < best) {
      best = distance;
      nearest = *known;
    }
  }
  return nearest;
}

/* ---- the table */

size_t trm_section_length(const char *name)
{
  return strcspn(name, ".");
}

static const struct trm_option *options_find(const char *name)
{
  for (const struct trm_option *row = trm_option_table; row->name; row++)
    if (strcmp(row->name, name) == 0)
      return row;
  return NULL;
}

/* Returns the first row of a section, NULL if there is no such section. */
static const struct trm_option *options_find_section(const char *section)
{
  for (const struct trm_option *row = trm_option_table; row->name; row++) {
    const size_t length = trm_section_length(row->name);
    if (strlen(section) == length && memcmp(section, row->name, length) == 0)
      return row;
  }
  return NULL;
}

/* Returns the row whose section, or else whose name (of a word without a section: whose key) is nearest, NULL: none. */
static const struct trm_option *options_find_nearest(const char *word, bool section)
{
  const struct trm_option *nearest = NULL;
  size_t best = SIZE_MAX;
  for (const struct trm_option *row = trm_option_table; row->name; row++) {
    const size_t length = trm_section_length(row->name);
    const bool key = !section && !strchr(word, '.') && row->name[length];
    const char *known = row->name + (key ? length + 1 : 0);
    const size_t distance = options_word_distance(word, known, section ? length : strlen(known));
    if (distance < best) {
      best = distance;
      nearest = row;
    }
  }
  return nearest;
}

const char *trm_nearest_option(const char *name)
{
  const struct trm_option *nearest = options_find_nearest(name, false);
  return nearest ? nearest->name : NULL;
}

/* Returns the keys of the section that begins with this row: "file, test, memory". Owned by the caller. */
static char *options_section_keys(const struct trm_option *row)
{
  const size_t length = trm_section_length(row->name);
  char *keys = trm_strdup(row->name + length + 1);
  for (const struct trm_option *next = row + 1; next->name && strncmp(next->name, row->name, length + 1) == 0; next++)
    trm_append(&keys, ", %s", next->name + length + 1);
  return keys;
}

int trm_section_check(const char *section)
{
  if (options_find_section(section))
    return TRM_OK;
  const struct trm_option *nearest = options_find_nearest(section, true);
  if (!nearest)
    return trm_error(TRM_USAGE, "unknown section \"%.80s\" (trireme options lists all)", section);
  return trm_error(TRM_USAGE, "unknown section \"%.80s\"; did you mean \"%.*s\"?", section,
                   (int)trm_section_length(nearest->name), nearest->name);
}

static int options_unknown_name(const char *name)
{
  const struct trm_option *section = options_find_section(name);
  const char *nearest = section ? NULL : trm_nearest_option(name);
  if (section) {
    char *keys = options_section_keys(section);
    trm_error(TRM_USAGE, "\"%s\" is a section: an option is %s.KEY, with one of these keys: %s", name, name, keys);
    trm_free(keys);
  } else if (nearest) {
    trm_error(TRM_USAGE, "unknown option \"%.80s\"; did you mean \"%s\"?", name, nearest);
  } else {
    trm_error(TRM_USAGE, "unknown option \"%.80s\" (trireme options lists all)", name);
  }
  return TRM_USAGE;
}

/* ---- values */

static int options_check_range(const struct trm_option *row, double number, const char *text)
{
  char low[32], high[32];
  if (number >= row->low && number <= row->high)
    return TRM_OK;
  trm_number_text(row->low, low);
  trm_number_text(row->high, high);
  if (!isfinite(row->high))
    return trm_error(TRM_USAGE, "option %s: %s is too small: at least %s", row->name, text, low);
  return trm_error(TRM_USAGE, "option %s: %s is out of range: %s to %s", row->name, text, low, high);
}

/* Returns true if a decimal number starts here. strtod would also accept spaces, "nan", "inf" and hexadecimal. */
static bool options_is_number(const char *text)
{
  text += *text == '+' || *text == '-';
  text += *text == '.';
  return *text >= '0' && *text <= '9' && text[1] != 'x' && text[1] != 'X';
}

/* A number of the row's type: int64_t for whole numbers and bytes (with a suffix K, M, G or T), else double. */
static int options_parse_number(const struct trm_option *row, const char *text, void *value)
{
  static const char *const kinds[] = {[TRM_OPTION_INT] = "a whole number",
                                      [TRM_OPTION_REAL] = "a number",
                                      [TRM_OPTION_BYTES] = "a number of bytes (512M, 4G)"};
  static const char suffixes[] = "KMGT";
  char *end = (char *)text;
  int64_t whole = 0;
  double number = 0;
  errno = 0;
  if (row->type == TRM_OPTION_INT && options_is_number(text))
    number = (double)(whole = strtoll(text, &end, 10));
  else if (options_is_number(text))
    number = strtod(text, &end);
  const char *suffix = row->type == TRM_OPTION_BYTES && *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
  const bool is_number = end != text && (suffix ? end[1] : *end) == '\0';
  if (!is_number)
    return trm_error(TRM_USAGE, "option %s: \"%.80s\" is not %s", row->name, text, kinds[row->type]);
  if (suffix)
    number = ldexp(number, 10 * (int)(suffix - suffixes + 1));
  if (!isfinite(number) || (row->type == TRM_OPTION_INT && errno == ERANGE))
    return trm_error(TRM_USAGE, "option %s: %.80s is too large for %s", row->name, text, kinds[row->type]);
  if (row->type == TRM_OPTION_BYTES && number != floor(number))
    return trm_error(TRM_USAGE, "option %s: \"%.80s\" is not a whole number of bytes", row->name, text);
  TRM_CHECK(options_check_range(row, number, text));
  if (row->type == TRM_OPTION_REAL)
    *(double *)value = number;
  else
    *(int64_t *)value = row->type == TRM_OPTION_INT ? whole : (int64_t)number;
  return TRM_OK;
}

static int options_parse_bool(const struct trm_option *row, const char *text, bool *value)
{
  static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(words[i], text) == 0) {
      *value = i % 2 == 1;
      return TRM_OK;
    }
  }
  return trm_error(TRM_USAGE, "option %s: \"%.80s\" is neither yes nor no", row->name, text);
}

/* "a|b|c" */
char *trm_option_choices_text(const struct trm_option *row)
{
  char *text = trm_strdup(row->choices[0]);
  for (int i = 1; row->choices[i]; i++)
    trm_append(&text, "|%s", row->choices[i]);
  return text;
}

const char *trm_choice_text(const char *name, int value)
{
  return options_find(name)->choices[value];
}

/* value: an enum, numbered in the order of the choices */
static int options_parse_choice(const struct trm_option *row, const char *text, int *value)
{
  for (int i = 0; row->choices[i]; i++) {
    if (strcmp(row->choices[i], text) == 0) {
      *value = i;
      return TRM_OK;
    }
  }
  char *choices = trm_option_choices_text(row);
  trm_error(TRM_USAGE, "option %s: \"%.80s\" is not one of %s", row->name, text, choices);
  trm_free(choices);
  return TRM_USAGE;
}

static int options_parse_text(const struct trm_option *row, const char *text, char **value)
{
  if (!trm_text_is_utf8(text))
    return trm_error(TRM_USAGE, "option %s: the text is not UTF-8", row->name);
  char *copy = trm_strdup(text);
  trm_free(*value);
  *value = copy;
  return TRM_OK;
}

int trm_values_set(void *values, const struct trm_option *row, const char *text)
{
  void *at = (char *)values + row->offset;
  switch (row->type) {
  case TRM_OPTION_BOOL:
    return options_parse_bool(row, text, at);
  case TRM_OPTION_TEXT:
    return options_parse_text(row, text, at);
  case TRM_OPTION_CHOICE:
    return options_parse_choice(row, text, at);
  default:
    return options_parse_number(row, text, at);
  }
}

int trm_options_set(struct trm_options *options, const char *name, const char *value)
{
  const struct trm_option *row = options_find(name);
  return row ? trm_values_set(options, row, value) : options_unknown_name(name);
}

void trm_values_default(void *values, const struct trm_option *table)
{
  for (const struct trm_option *row = table; row->name; row++)
    if (row->default_text)
      trm_values_set(values, row, row->default_text);
}

void trm_values_free(void *values, const struct trm_option *table)
{
  for (const struct trm_option *row = table; row->name; row++)
    if (row->type == TRM_OPTION_TEXT)
      trm_free(*(char **)((char *)values + row->offset));
}

void trm_options_default(struct trm_options *options)
{
  memset(options, 0, sizeof *options);
  trm_values_default(options, trm_option_table);
}

void trm_options_free(struct trm_options *options)
{
  trm_values_free(options, trm_option_table);
  memset(options, 0, sizeof *options);
}

/* ---- configuration files */

/* State of reading a configuration file. */
struct source {
  struct trm_options *options;
  size_t line;            /* of the current node, for messages */
  bool seen[MAX_OPTIONS]; /* by row of the table: an option given twice is refused */
};

static int options_apply_value(struct source *source, const struct trm_option *row, const struct trm_node *node,
                               const char *text)
{
  const size_t number = (size_t)(row - trm_option_table);
  if (number >= MAX_OPTIONS)
    return trm_error(TRM_FAILED, "option %s is number %zu of the table: raise MAX_OPTIONS", row->name, number);
  bool *seen = &source->seen[number];
  source->line = node->line;
  if (*seen)
    return trm_error(TRM_USAGE, "option %s is given twice", row->name);
  *seen = true;
  return trm_values_set(source->options, row, text);
}

/* One item of a model: `linear 256`, or {linear: 256, bias: no} for `linear 256 bias=no`. */
static int options_append_item(struct source *source, const struct trm_node *item, char **text)
{
  source->line = item->line;
  if (item->kind == TRM_NODE_SCALAR) {
    trm_append(text, "%s", item->text);
    return TRM_OK;
  }
  if (item->kind == TRM_NODE_LIST || !item->first)
    return trm_error(TRM_USAGE,
                     "an item of the model is a text (linear 256) or a map ({linear: 256, bias: no})");
  for (const struct trm_node *word = item->first; word; word = word->next) {
    source->line = word->line;
    if (word->kind != TRM_NODE_SCALAR)
      return trm_error(TRM_USAGE, "model: %s takes one value", word->key);
    if (word == item->first)
      trm_append(text, "%s%s%s", word->key, *word->text ? " " : "", word->text);
    else
      trm_append(text, " %s=%s", word->key, word->text);
  }
  return TRM_OK;
}

static int options_apply_layers(struct source *source, const struct trm_option *row, const struct trm_node *node)
{
  char *text = trm_strdup("");
  int status = TRM_OK;
  for (const struct trm_node *item = node->first; item && status == TRM_OK; item = item->next) {
    trm_append(&text, "%s", item == node->first ? "" : " | ");
    status = options_append_item(source, item, &text);
  }
  if (status == TRM_OK)
    status = options_apply_value(source, row, node, text);
  trm_free(text);
  return status;
}

/* node: the value of the option of this name. */
static int options_apply_option(struct source *source, const char *name, const struct trm_node *node)
{
  const struct trm_option *row = options_find(name);
  source->line = node->line;
  if (!row)
    return options_unknown_name(name);
  if (node->kind != TRM_NODE_SCALAR)
    return trm_error(TRM_USAGE, "option %s takes one value", name);
  return options_apply_value(source, row, node, node->text);
}

static int options_apply_entry(struct source *source, const char *section, const struct trm_node *node)
{
  char *name = trm_format("%s.%s", section, node->key);
  const int status = options_apply_option(source, name, node);
  trm_free(name);
  return status;
}

/* The model: a text, a list of layers, or a map {text: one of these, init: FILE, ...}. */
static int options_apply_model(struct source *source, const struct trm_option *row, const struct trm_node *node)
{
  if (node->kind == TRM_NODE_SCALAR)
    return options_apply_value(source, row, node, node->text);
  if (node->kind == TRM_NODE_LIST)
    return options_apply_layers(source, row, node);
  for (const struct trm_node *entry = node->first; entry; entry = entry->next) {
    source->line = entry->line;
    char *name = trm_format("model.%s", entry->key);
    const bool is_option = options_find(name) != NULL;
    trm_free(name);
    if (is_option)
      TRM_CHECK(options_apply_entry(source, row->name, entry));
    else if (strcmp(entry->key, "text") == 0 && entry->kind != TRM_NODE_MAP)
      TRM_CHECK(options_apply_model(source, row, entry));
    else
      return trm_error(TRM_USAGE, "model: is a text (mlp 784-256-10 relu), a list of layers, or "
                                  "{text: one of these, init: FILE}");
  }
  return TRM_OK;
}

static int options_apply_section(struct source *source, const struct trm_node *node)
{
  source->line = node->line;
  if (strchr(node->key, '.'))
    return options_apply_option(source, node->key, node);
  TRM_CHECK(trm_section_check(node->key));
  const struct trm_option *row = options_find_section(node->key);
  if (strcmp(row->name, node->key) == 0)
    return options_apply_model(source, row, node);
  if (node->kind == TRM_NODE_SCALAR && *node->text == '\0')
    return TRM_OK; /* an empty section */
  if (node->kind == TRM_NODE_SCALAR && strcmp(node->key, "parallel") == 0)
    return options_apply_option(source, "parallel.layout", node);
  if (node->kind != TRM_NODE_MAP) {
    char *keys = options_section_keys(row);
    trm_error(TRM_USAGE, "section %s holds entries (%s: {KEY: VALUE}) with these keys: %s", node->key, node->key, keys);
    trm_free(keys);
    return TRM_USAGE;
  }
  for (const struct trm_node *entry = node->first; entry; entry = entry->next)
    TRM_CHECK(options_apply_entry(source, node->key, entry));
  return TRM_OK;
}

static int options_apply_sections(struct source *source, const struct trm_node *root)
{
  source->line = root->line;
  if (root->kind != TRM_NODE_MAP)
    return trm_error(TRM_USAGE, "a configuration is a map of sections (model, data, train, ...)");
  for (const struct trm_node *node = root->first; node; node = node->next) {
    source->line = node->line;
    for (const struct trm_node *other = root->first; other != node; other = other->next)
      if (strcmp(other->key, node->key) == 0)
        return trm_error(TRM_USAGE, "section %s is given twice (first in line %zu)", node->key, other->line);
    TRM_CHECK(options_apply_section(source, node));
  }
  return TRM_OK;
}

int trm_options_read(struct trm_options *options, const char *path)
{
  struct trm_node *root;
  TRM_CHECK(trm_document_read(path, &root));
  struct source source = {.options = options};
  const int status = options_apply_sections(&source, root);
  trm_node_free(root);
  return status == TRM_OK ? TRM_OK : trm_error_context(status, "%s:%zu", path, source.line);
}
