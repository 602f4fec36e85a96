/* Reads YAML into a tree, from libyaml's events. Aliases are refused, so that the tree is no larger than the text. */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "core/document.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_LIBYAML
#include <yaml.h>
#endif

#include "core/memory.h"
#include "core/status.h"

#define MAX_DEPTH 64
#define MAX_BYTES ((size_t)256 << 20)

void trm_node_free(struct trm_node *root)
{
  /* no recursion: children go to the front of the list of nodes to free */
  while (root) {
    struct trm_node *next = root->next;
    if (root->first) {
      struct trm_node *last = root->first;
      while (last->next)
        last = last->next;
      last->next = next;
      next = root->first;
    }
    trm_free(root->key);
    trm_free(root->text);
    trm_free(root);
    root = next;
  }
}

static const struct trm_node *document_find_entry(const struct trm_node *map, const char *key, size_t length)
{
  if (!map || map->kind != TRM_NODE_MAP)
    return NULL;
  for (const struct trm_node *node = map->first; node; node = node->next)
    if (strlen(node->key) == length && memcmp(node->key, key, length) == 0)
      return node;
  return NULL;
}

const struct trm_node *trm_node_get(const struct trm_node *map, const char *path)
{
  for (;;) {
    const struct trm_node *whole = document_find_entry(map, path, strlen(path));
    if (whole)
      return whole;
    const size_t length = strcspn(path, ".");
    map = document_find_entry(map, path, length);
    if (!map || path[length] == '\0')
      return map;
    path += length + 1;
  }
}

double trm_node_number(const struct trm_node *node, double fallback)
{
  if (!node || node->kind != TRM_NODE_SCALAR || node->text[0] == '\0')
    return fallback;
  char *end;
  const double value = strtod(node->text, &end);
  return *end == '\0' ? value : fallback;
}

#ifdef HAVE_LIBYAML

/* An open list or map. */
struct level {
  struct trm_node *node;
  struct trm_node **end; /* position of the next child */
  char *key;             /* of the next entry; NULL: not read yet */
};

struct reader {
  const char *name;
  struct trm_node *root;
  struct level level[MAX_DEPTH];
  int depth;
  int documents;
};

static int document_error_at(const struct reader *reader, const yaml_mark_t *mark, const char *problem)
{
  return trm_error(TRM_USAGE, "%s:%zu:%zu: %s", reader->name, mark->line + 1, mark->column + 1, problem);
}

/* Adds a new node at the reader's position. */
static int document_add_node(struct reader *reader, const yaml_event_t *event, enum trm_node_kind kind,
                             struct trm_node **added)
{
  struct level *level = reader->depth > 0 ? &reader->level[reader->depth - 1] : NULL;
  if (level && level->node->kind == TRM_NODE_MAP && !level->key)
    return document_error_at(reader, &event->start_mark, "the name of an entry must be a single word");
  struct trm_node *node = trm_alloc(sizeof *node, "a document");
  node->kind = kind;
  node->line = event->start_mark.line + 1;
  if (level) {
    node->key = level->key;
    level->key = NULL;
    *level->end = node;
    level->end = &node->next;
  } else {
    reader->root = node;
  }
  *added = node;
  return TRM_OK;
}

static int document_open_level(struct reader *reader, const yaml_event_t *event, enum trm_node_kind kind)
{
  struct trm_node *node = NULL;
  if (reader->depth == MAX_DEPTH)
    return document_error_at(reader, &event->start_mark, "nested too deeply");
  TRM_CHECK(document_add_node(reader, event, kind, &node));
  reader->level[reader->depth++] = (struct level){.node = node, .end = &node->first};
  return TRM_OK;
}

static int document_add_scalar(struct reader *reader, const yaml_event_t *event)
{
  const char *text = (const char *)event->data.scalar.value;
  if (strlen(text) != event->data.scalar.length)
    return document_error_at(reader, &event->start_mark, "a NUL character in a text");
  struct level *level = reader->depth > 0 ? &reader->level[reader->depth - 1] : NULL;
  if (level && level->node->kind == TRM_NODE_MAP && !level->key) {
    level->key = trm_strdup(text);
    return TRM_OK;
  }
  struct trm_node *node = NULL;
  TRM_CHECK(document_add_node(reader, event, TRM_NODE_SCALAR, &node));
  node->text = trm_strdup(text);
  return TRM_OK;
}

static int document_handle_event(struct reader *reader, const yaml_event_t *event)
{
  switch (event->type) {
  case YAML_ALIAS_EVENT:
    return document_error_at(reader, &event->start_mark, "aliases (*name) are not supported");
  case YAML_SCALAR_EVENT:
    if (event->data.scalar.anchor)
      return document_error_at(reader, &event->start_mark, "anchors (&name) are not supported");
    return document_add_scalar(reader, event);
  case YAML_SEQUENCE_START_EVENT:
    if (event->data.sequence_start.anchor)
      return document_error_at(reader, &event->start_mark, "anchors (&name) are not supported");
    return document_open_level(reader, event, TRM_NODE_LIST);
  case YAML_MAPPING_START_EVENT:
    if (event->data.mapping_start.anchor)
      return document_error_at(reader, &event->start_mark, "anchors (&name) are not supported");
    return document_open_level(reader, event, TRM_NODE_MAP);
  case YAML_SEQUENCE_END_EVENT:
  case YAML_MAPPING_END_EVENT:
    reader->depth--;
    return TRM_OK;
  case YAML_DOCUMENT_START_EVENT:
    if (++reader->documents > 1)
      return document_error_at(reader, &event->start_mark, "a second document in the same file");
    return TRM_OK;
  default:
    return TRM_OK;
  }
}

static int document_parser_error(const struct reader *reader, const yaml_parser_t *parser)
{
  const char *problem = parser->problem ? parser->problem : "not readable";
  switch (parser->error) {
  case YAML_READER_ERROR:
    return trm_error(TRM_USAGE, "%s: byte %zu: %s", reader->name, parser->problem_offset, problem);
  case YAML_SCANNER_ERROR:
  case YAML_PARSER_ERROR:
    return document_error_at(reader, &parser->problem_mark, problem);
  default:
    return trm_error(TRM_FAILED, "%s: %s", reader->name, problem);
  }
}

static int document_read_events(struct reader *reader, yaml_parser_t *parser)
{
  for (;;) {
    yaml_event_t event;
    if (!yaml_parser_parse(parser, &event))
      return document_parser_error(reader, parser);
    const bool last = event.type == YAML_STREAM_END_EVENT;
    const int status = document_handle_event(reader, &event);
    yaml_event_delete(&event);
    if (status != TRM_OK || last)
      return status;
  }
}

int trm_document_parse(const char *text, size_t bytes, const char *name, struct trm_node **root)
{
  yaml_parser_t parser;
  struct reader reader = {.name = name};
  *root = NULL;
  if (!yaml_parser_initialize(&parser))
    return trm_error(TRM_FAILED, "%s: libyaml cannot start", name);
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
  const int status = document_read_events(&reader, &parser);
  yaml_parser_delete(&parser);
  if (status != TRM_OK) {
    for (int i = 0; i < reader.depth; i++)
      trm_free(reader.level[i].key);
    trm_node_free(reader.root);
    return status;
  }
  if (!reader.root) {
    reader.root = trm_alloc(sizeof *reader.root, "a document");
    reader.root->kind = TRM_NODE_MAP;
    reader.root->line = 1;
  }
  *root = reader.root;
  return TRM_OK;
}

#else

int trm_document_parse(const char *text, size_t bytes, const char *name, struct trm_node **root)
{
  (void)text, (void)bytes;
  *root = NULL;
  return trm_error(TRM_USAGE, "%s: this build cannot read YAML (it has no libyaml); "
                   "options can be given on the command line: --section.key=value", name);
}

#endif

/* Reads the whole stream. *text: owned by the caller, also after an error. */
static int document_read_stream(FILE *stream, const char *path, char **text, size_t *bytes)
{
  size_t capacity = 0;
  while (*bytes == capacity) {
    if (*bytes > MAX_BYTES)
      return trm_error(TRM_USAGE, "%s: larger than %zu MiB", path, MAX_BYTES >> 20);
    *text = trm_grow(*text, &capacity, *bytes, *bytes + (1 << 14), 1, path);
    *bytes += fread(*text + *bytes, 1, capacity - *bytes, stream);
  }
  return ferror(stream) ? trm_error(TRM_FAILED, "%s: %s", path, strerror(errno)) : TRM_OK;
}

int trm_document_read(const char *path, struct trm_node **root)
{
  *root = NULL;
  FILE *stream = fopen(path, "r");
  if (!stream)
    return trm_error(TRM_USAGE, "%s: %s", path, strerror(errno));
  char *text = NULL;
  size_t bytes = 0;
  int status = document_read_stream(stream, path, &text, &bytes);
  fclose(stream);
  if (status == TRM_OK)
    status = trm_document_parse(text, bytes, path, root);
  trm_free(text);
  return status;
}
