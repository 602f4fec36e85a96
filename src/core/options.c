/* Options set from text: defaults, one at a time, or a configuration file. */
#include "core/options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/document.h"
#include "core/memory.h"
#include "core/options_private.h"
#include "core/status.h"

#define MAX_OPTIONS 128
#define MAX_WORD 64

/* ---- words */

/* Edit distance: letters inserted, deleted, replaced, or two adjacent ones exchanged (optimal string alignment). */
static size_t options_word_distance(const char *a, const char *b)
{
  size_t row[3][MAX_WORD + 1]; /* the last three rows of the table over prefixes */
  const size_t m = strlen(a), n = strlen(b);
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
  return row[m % 3][n];
}

const char *trm_nearest_word(const char *word, const char *const *known)
{
  const char *nearest = NULL;
  size_t limit = strlen(word) / 3 + 2; /* distances below this are near */
  for (; *known; known++) {
    const size_t distance = options_word_distance(word, *known);
    if (distance < limit) {
      limit = distance;
      nearest = *known;
    }
  }
  return nearest;
}

static bool options_word_is(const char *word, const char *text, size_t length)
{
  return strlen(word) == length && memcmp(word, text, length) == 0;
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
  for (const struct trm_option *row = trm_option_table; row->name; row++)
    if (options_word_is(section, row->name, trm_section_length(row->name)))
      return row;
  return NULL;
}

/* Returns the keys of the section that begins with this row: "file, test, memory". Owned by the caller. */
static char *options_section_keys(const struct trm_option *row)
{
  const size_t length = trm_section_length(row->name);
  char *keys = trm_strdup(row->name + length + 1);
  for (const struct trm_option *next = row + 1; next->name && strncmp(next->name, row->name, length + 1) == 0; next++) {
    char *longer = trm_format("%s, %s", keys, next->name + length + 1);
    trm_free(keys);
    keys = longer;
  }
  return keys;
}

/* `where` is "" or "FILE:LINE: ". */
static int options_unknown_section(const char *where, const char *section)
{
  char names[MAX_OPTIONS][MAX_WORD];
  const char *known[MAX_OPTIONS + 1];
  size_t count = 0;
  for (const struct trm_option *row = trm_option_table; row->name && count < MAX_OPTIONS; row++) {
    const size_t length = trm_section_length(row->name);
    if (count > 0 && options_word_is(names[count - 1], row->name, length))
      continue;
    memcpy(names[count], row->name, length);
    names[count][length] = '\0';
    known[count] = names[count];
    count++;
  }
  known[count] = NULL;
  const char *nearest = trm_nearest_word(section, known);
  if (nearest)
    return trm_error(TRM_USAGE, "%sunknown section \"%.80s\"; did you mean \"%s\"?", where, section, nearest);
  return trm_error(TRM_USAGE, "%sunknown section \"%.80s\" (trireme options lists all)", where, section);
}

int trm_section_check(const char *section)
{
  return options_find_section(section) ? TRM_OK : options_unknown_section("", section);
}

const char *trm_nearest_option(const char *name)
{
  const bool is_key = !strchr(name, '.'); /* the section was forgotten */
  const char *known[MAX_OPTIONS + 1];
  size_t count = 0;
  for (const struct trm_option *row = trm_option_table; row->name && count < MAX_OPTIONS; row++) {
    const char *key = row->name + trm_section_length(row->name);
    known[count++] = is_key && *key ? key + 1 : row->name;
  }
  known[count] = NULL;
  const char *nearest = trm_nearest_word(name, known);
  for (size_t i = 0; i < count; i++)
    if (known[i] == nearest)
      return trm_option_table[i].name;
  return NULL;
}

static int options_unknown_name(const char *name)
{
  const struct trm_option *section = options_find_section(name);
  if (section) {
    char *keys = options_section_keys(section);
    trm_error(TRM_USAGE, "\"%s\" is a section: an option is %s.KEY, with one of these keys: %s", name, name, keys);
    trm_free(keys);
    return TRM_USAGE;
  }
  const char *nearest = trm_nearest_option(name);
  if (nearest)
    return trm_error(TRM_USAGE, "unknown option \"%.80s\"; did you mean \"%s\"?", name, nearest);
  return trm_error(TRM_USAGE, "unknown option \"%.80s\" (trireme options lists all)", name);
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

/* Whether a decimal number begins here. strtod alone also reads spaces, "nan", "inf" and hexadecimal. */
static bool options_is_number(const char *text)
{
  text += *text == '+' || *text == '-';
  text += *text == '.';
  return *text >= '0' && *text <= '9' && text[1] != 'x' && text[1] != 'X';
}

static int options_parse_int(const struct trm_option *row, const char *text, int64_t *value)
{
  char *end = NULL;
  errno = 0;
  const long long number = options_is_number(text) ? strtoll(text, &end, 10) : 0;
  if (!end || end == text || *end != '\0')
    return trm_error(TRM_USAGE, "option %s: \"%.80s\" is not a whole number", row->name, text);
  if (errno == ERANGE)
    return trm_error(TRM_USAGE, "option %s: %.80s is too large for a whole number", row->name, text);
  TRM_CHECK(options_check_range(row, (double)number, text));
  *value = number;
  return TRM_OK;
}

static int options_parse_real(const struct trm_option *row, const char *text, double *value)
{
  char *end = NULL;
  const double number = options_is_number(text) ? strtod(text, &end) : 0;
  if (!end || end == text || *end != '\0')
    return trm_error(TRM_USAGE, "option %s: \"%.80s\" is not a number", row->name, text);
  if (!isfinite(number))
    return trm_error(TRM_USAGE, "option %s: %.80s is too large for a number", row->name, text);
  TRM_CHECK(options_check_range(row, number, text));
  *value = number;
  return TRM_OK;
}

static int options_parse_bytes(const struct trm_option *row, const char *text, int64_t *value)
{
  static const char suffixes[] = "KMGT";
  char *end = NULL;
  double number = options_is_number(text) ? strtod(text, &end) : 0;
  if (!end || end == text)
    return trm_error(TRM_USAGE, "option %s: \"%.80s\" is not a number of bytes (512M, 4G)", row->name, text);
  if (*end != '\0') {
    const char letter = *end >= 'a' && *end <= 'z' ? (char)(*end - 'a' + 'A') : *end;
    const char *suffix = strchr(suffixes, letter);
    if (!suffix || end[1] != '\0')
      return trm_error(TRM_USAGE, "option %s: \"%.80s\" is not a number of bytes (512M, 4G)", row->name, text);
    number = ldexp(number, 10 * (int)(suffix - suffixes + 1));
  }
  if (!isfinite(number))
    return trm_error(TRM_USAGE, "option %s: %.80s is too large for a number", row->name, text);
  if (number != floor(number))
    return trm_error(TRM_USAGE, "option %s: \"%.80s\" is not a whole number of bytes", row->name, text);
  TRM_CHECK(options_check_range(row, number, text));
  *value = (int64_t)number;
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
  for (int i = 1; row->choices[i]; i++) {
    char *longer = trm_format("%s|%s", text, row->choices[i]);
    trm_free(text);
    text = longer;
  }
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
  case TRM_OPTION_INT:
    return options_parse_int(row, text, at);
  case TRM_OPTION_REAL:
    return options_parse_real(row, text, at);
  case TRM_OPTION_BYTES:
    return options_parse_bytes(row, text, at);
  case TRM_OPTION_TEXT:
    return options_parse_text(row, text, at);
  case TRM_OPTION_CHOICE:
    return options_parse_choice(row, text, at);
  }
  return TRM_OK;
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

/* A configuration file that is being read. */
struct source {
  struct trm_options *options;
  const char *path;
  bool seen[MAX_OPTIONS]; /* by row of the table: an option given twice is refused */
};

static int options_source_error(const struct source *source, const struct trm_node *node, const char *problem)
{
  return trm_error(TRM_USAGE, "%s:%zu: %s", source->path, node->line, problem);
}

static int options_apply_value(struct source *source, const struct trm_option *row, const struct trm_node *node,
                               const char *text)
{
  bool *seen = &source->seen[row - trm_option_table];
  if (*seen)
    return trm_error(TRM_USAGE, "%s:%zu: option %s is given twice", source->path, node->line, row->name);
  *seen = true;
  const int status = trm_values_set(source->options, row, text);
  return status == TRM_OK ? TRM_OK : trm_error_context(status, "%s:%zu", source->path, node->line);
}

/* One item of a model: `linear 256`, or {linear: 256, bias: no} for `linear 256 bias=no`. */
static int options_model_item_text(const struct source *source, const struct trm_node *item, char **text)
{
  if (item->kind == TRM_NODE_SCALAR) {
    *text = trm_strdup(item->text);
    return TRM_OK;
  }
  if (item->kind == TRM_NODE_LIST || !item->first)
    return options_source_error(source, item,
                                "an item of the model is a text (linear 256) or a map ({linear: 256, bias: no})");
  char *line = NULL;
  for (const struct trm_node *word = item->first; word; word = word->next) {
    if (word->kind != TRM_NODE_SCALAR) {
      trm_free(line);
      return trm_error(TRM_USAGE, "%s:%zu: model: %s takes one value", source->path, word->line, word->key);
    }
    char *longer = line ? trm_format("%s %s=%s", line, word->key, word->text)
                        : trm_format("%s%s%s", word->key, *word->text ? " " : "", word->text);
    trm_free(line);
    line = longer;
  }
  *text = line;
  return TRM_OK;
}

static int options_apply_layers(struct source *source, const struct trm_option *row, const struct trm_node *node)
{
  char *text = NULL;
  for (const struct trm_node *item = node->first; item; item = item->next) {
    char *line = NULL;
    const int status = options_model_item_text(source, item, &line);
    if (status != TRM_OK) {
      trm_free(text);
      return status;
    }
    char *longer = text ? trm_format("%s | %s", text, line) : trm_strdup(line);
    trm_free(line);
    trm_free(text);
    text = longer;
  }
  const int status = options_apply_value(source, row, node, text ? text : "");
  trm_free(text);
  return status;
}

/* node: the value of the option of this name. */
static int options_apply_option(struct source *source, const char *name, const struct trm_node *node)
{
  const struct trm_option *row = options_find(name);
  if (!row) {
    options_unknown_name(name);
    return trm_error_context(TRM_USAGE, "%s:%zu", source->path, node->line);
  }
  if (node->kind != TRM_NODE_SCALAR)
    return trm_error(TRM_USAGE, "%s:%zu: option %s takes one value", source->path, node->line, name);
  return options_apply_value(source, row, node, node->text);
}

static int options_apply_entry(struct source *source, const char *section, const struct trm_node *node)
{
  char *name = trm_format("%s.%s", section, node->key);
  const int status = options_apply_option(source, name, node);
  trm_free(name);
  return status;
}

/* The model: a text, a list of layers, or a map {text: one of these, init: FILE}. */
static int options_apply_model(struct source *source, const struct trm_option *row, const struct trm_node *node)
{
  if (node->kind == TRM_NODE_SCALAR)
    return options_apply_value(source, row, node, node->text);
  if (node->kind == TRM_NODE_LIST)
    return options_apply_layers(source, row, node);
  for (const struct trm_node *entry = node->first; entry; entry = entry->next) {
    if (strcmp(entry->key, "init") == 0)
      TRM_CHECK(options_apply_entry(source, row->name, entry));
    else if (strcmp(entry->key, "text") == 0 && entry->kind != TRM_NODE_MAP)
      TRM_CHECK(options_apply_model(source, row, entry));
    else
      return options_source_error(source, entry,
                                  "model: is a text (mlp 784-256-10 relu), a list of layers, or "
                                  "{text: one of these, init: FILE}");
  }
  return TRM_OK;
}

static int options_apply_section(struct source *source, const struct trm_node *node)
{
  if (strchr(node->key, '.'))
    return options_apply_option(source, node->key, node);
  const struct trm_option *row = options_find_section(node->key);
  if (!row) {
    char *where = trm_format("%s:%zu: ", source->path, node->line);
    options_unknown_section(where, node->key);
    trm_free(where);
    return TRM_USAGE;
  }
  if (strcmp(row->name, node->key) == 0)
    return options_apply_model(source, row, node);
  if (node->kind == TRM_NODE_SCALAR && *node->text == '\0')
    return TRM_OK; /* a section whose entries are all commented out */
  if (node->kind == TRM_NODE_SCALAR && strcmp(node->key, "parallel") == 0)
    return options_apply_option(source, "parallel.layout", node);
  if (node->kind != TRM_NODE_MAP) {
    char *keys = options_section_keys(row);
    trm_error(TRM_USAGE, "%s:%zu: section %s holds entries (%s: {KEY: VALUE}) with these keys: %s", source->path,
              node->line, node->key, node->key, keys);
    trm_free(keys);
    return TRM_USAGE;
  }
  for (const struct trm_node *entry = node->first; entry; entry = entry->next)
    TRM_CHECK(options_apply_entry(source, node->key, entry));
  return TRM_OK;
}

static int options_apply_sections(struct source *source, const struct trm_node *root)
{
  if (root->kind != TRM_NODE_MAP)
    return options_source_error(source, root, "a configuration is a map of sections (model, data, train, ...)");
  for (const struct trm_node *node = root->first; node; node = node->next) {
    for (const struct trm_node *other = root->first; other != node; other = other->next)
      if (strcmp(other->key, node->key) == 0)
        return trm_error(TRM_USAGE, "%s:%zu: section %s is given twice (first in line %zu)", source->path, node->line,
                         node->key, other->line);
    TRM_CHECK(options_apply_section(source, node));
  }
  return TRM_OK;
}

int trm_options_read(struct trm_options *options, const char *path)
{
  struct trm_node *root;
  TRM_CHECK(trm_document_read(path, &root));
  struct source source = {.options = options, .path = path};
  const int status = options_apply_sections(&source, root);
  trm_node_free(root);
  return status;
}
