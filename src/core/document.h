/* Structured text: YAML (and JSON, its subset) read into a tree with libyaml; JSON written piece by piece. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum trm_node_kind { TRM_NODE_SCALAR, TRM_NODE_LIST, TRM_NODE_MAP };

struct trm_node {
  enum trm_node_kind kind;
  char *key;               /* in a map: the entry's name, else NULL */
  char *text;              /* scalar: its text, else NULL */
  struct trm_node *first;  /* list, map: first child */
  struct trm_node *next;   /* next sibling */
  size_t line;             /* 1-based, for messages */
};

/* Reads a whole file or text. Errors (missing file, syntax with line and column, no libyaml in this build) name it.
 * Anchors, aliases, second documents and more than 64 levels are refused. An empty text is an empty map.
 * The tree is owned by the caller: trm_node_free. */
int trm_document_read(const char *path, struct trm_node **root);
int trm_document_parse(const char *text, size_t bytes, const char *name, struct trm_node **root);
void trm_node_free(struct trm_node *root);

/* Returns the entry of a map, NULL if absent or not a map. "a.b" is the entry with that key, or entry b of map a. */
const struct trm_node *trm_node_get(const struct trm_node *map, const char *path);
double trm_node_number(const struct trm_node *node, double fallback); /* fallback: it is no number */

/* A writer of JSON, one line to a stream. NaN and infinities become null. An object:
 *   trm_json_open(&j, stream); trm_json_object(&j, NULL); trm_json_number(&j, "loss", x); trm_json_end(&j); */
#define TRM_JSON_DEPTH 16 /* deeper levels are omitted */
struct trm_json {
  FILE *stream;
  int depth;                  /* open objects and lists */
  bool comma[TRM_JSON_DEPTH]; /* the next entry of this level needs one before it */
  bool list[TRM_JSON_DEPTH];  /* closes with ']' */
};
void trm_json_open(struct trm_json *json, FILE *stream);
void trm_json_object(struct trm_json *json, const char *key); /* key NULL inside a list and at the top */
void trm_json_list(struct trm_json *json, const char *key);
void trm_json_end(struct trm_json *json); /* closes the innermost object or list; the outermost ends the line */
void trm_json_number(struct trm_json *json, const char *key, double value); /* shortest form that reads back */
void trm_json_integer(struct trm_json *json, const char *key, int64_t value);
void trm_json_bool(struct trm_json *json, const char *key, bool value);
void trm_json_text(struct trm_json *json, const char *key, const char *value); /* NULL writes null */

bool trm_text_is_utf8(const char *text);

/* Decimal text that reads back as the same double: the fewest digits, whole numbers below 1e15 without an exponent.
 * Finite numbers only. Returns text. */
const char *trm_number_text(double value, char text[32]);
