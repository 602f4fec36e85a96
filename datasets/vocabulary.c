#include "vocabulary.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "core/document.h"
#include "core/memory.h"
#include "core/status.h"
#include "file_reader.h"
#include "tokenizer.h"
#include "utf8.h"

static char *vocabulary_character(int32_t code)
{
  char letter[5] = "";
  utf8_encode(letter, code);
  return trm_strdup(letter);
}

static char *vocabulary_byte_name(int byte)
{
  return vocabulary_character(trm_byte_character((unsigned char)byte));
}

void vocabulary_of_bytes(struct vocabulary *v)
{
  *v = (struct vocabulary){.size = 256, .encoding = {.name = trm_strdup("bytes")}};
  v->name = trm_alloc(256 * sizeof *v->name, "a vocabulary");
  for (int byte = 0; byte < 256; byte++)
    v->name[byte] = vocabulary_byte_name(byte);
}

void vocabulary_of_characters(struct vocabulary *v, const bool *seen)
{
  size_t capacity = 0;
  *v = (struct vocabulary){.encoding = {.name = trm_strdup("characters")}};
  for (int32_t code = 0; code < UTF8_CODES; code++)
    if (seen[code]) {
      v->name = trm_grow(v->name, &capacity, v->size, v->size + 1, sizeof *v->name, "a vocabulary");
      v->name[v->size++] = vocabulary_character(code);
    }
}

void vocabulary_free(struct vocabulary *v)
{
  for (size_t i = 0; i < v->size; i++)
    trm_free(v->name[i]);
  trm_free(v->name);
  trm_encoding_free(&v->encoding);
  *v = (struct vocabulary){0};
}

void vocabulary_learn(struct vocabulary *v, const struct wordset *words, const int64_t *count, size_t size)
{
  *v = (struct vocabulary){.encoding = {.name = trm_strdup("bpe"), .merges = size - 256}};
  v->name = trm_alloc(size * sizeof *v->name, "a vocabulary");
  int32_t token_of[256];
  for (int byte = 0; byte < 256; byte++) {
    token_of[byte] = 0;
    for (int other = 0; other < 256; other++)
      token_of[byte] += trm_byte_character((unsigned char)other) < trm_byte_character((unsigned char)byte);
    v->name[token_of[byte]] = vocabulary_byte_name(byte);
  }
  bpe_train(words, count, token_of, &v->encoding.merges, &v->encoding.merge);
  v->size = 256 + v->encoding.merges;
  for (size_t m = 0; m < v->encoding.merges; m++) {
    const int32_t *pair = v->encoding.merge[m];
    v->name[256 + m] = trm_format("%s%s", v->name[pair[0]], v->name[pair[1]]);
  }
}

/* -- GPT-2's files */

static int vocabulary_names_fill(struct vocabulary *v, const struct trm_node *root, const char *path)
{
  if (root->kind != TRM_NODE_MAP || !root->first)
    return trm_error(TRM_FAILED, "%s: not an object of names and their numbers", path);
  for (const struct trm_node *node = root->first; node; node = node->next)
    v->size++;
  v->name = trm_alloc((v->size + 1) * sizeof *v->name, "a vocabulary");
  for (const struct trm_node *node = root->first; node; node = node->next) {
    char *end = NULL;
    const long number = node->text ? strtol(node->text, &end, 10) : -1;
    if (!end || end == node->text || *end)
      return trm_error(TRM_FAILED, "%s:%zu: \"%s\" has no number", path, node->line, node->key);
    if (number < 0 || (size_t)number >= v->size)
      return trm_error(TRM_FAILED, "%s:%zu: \"%s\" is token %ld, but the %zu tokens are 0 to %zu", path, node->line,
                       node->key, number, v->size, v->size - 1);
    if (v->name[number])
      return trm_error(TRM_FAILED, "%s:%zu: \"%s\" is token %ld, and so is \"%s\"", path, node->line, node->key, number,
                       v->name[number]);
    v->name[number] = trm_strdup(node->key);
  }
  return TRM_OK;
}

static int vocabulary_names_read(struct vocabulary *v, const char *path, struct wordset *set)
{
  struct trm_node *root;
  TRM_CHECK(trm_document_read(path, &root));
  const int status = vocabulary_names_fill(v, root, path);
  trm_node_free(root);
  TRM_CHECK(status);
  for (size_t i = 0; i < v->size; i++) {
    bool added;
    wordset_add(set, v->name[i], strlen(v->name[i]), &added);
    if (!added)
      return trm_error(TRM_FAILED, "%s: \"%s\" is there twice", path, v->name[i]);
  }
  return TRM_OK;
}

/* A line "LEFT RIGHT". */
static int vocabulary_merge_read(struct vocabulary *v, const struct trm_reader *reader, const char *line,
                                 const struct wordset *set, struct wordset *lines, size_t *capacity)
{
  const size_t length = strlen(line), left = strcspn(line, " "), right = length - left;
  bool added;
  if (left == 0 || right < 2 || strchr(line + left + 1, ' '))
    return trm_reader_error(reader, "a merge is two names and a space between them");
  wordset_add(lines, line, length, &added);
  if (!added)
    return trm_reader_error(reader, "the merge \"%s\" is there already", line);
  char *merged = trm_format("%.*s%s", (int)left, line, line + left + 1);
  const size_t pair[2] = {wordset_find(set, line, left), wordset_find(set, line + left + 1, right - 1)};
  const bool makes = wordset_find(set, merged, strlen(merged)) != WORDSET_NONE;
  trm_free(merged);
  for (int i = 0; i < 2; i++)
    if (pair[i] == WORDSET_NONE)
      return trm_reader_error(reader, "the vocabulary has no \"%.*s\"", (int)(i ? right - 1 : left),
                              i ? line + left + 1 : line);
  if (!makes)
    return trm_reader_error(reader, "the vocabulary has not what the merge \"%s\" makes", line);
  v->encoding.merge = trm_grow(v->encoding.merge, capacity, v->encoding.merges, v->encoding.merges + 1,
                                 sizeof *v->encoding.merge, "merges");
  v->encoding.merge[v->encoding.merges][0] = (int32_t)pair[0];
  v->encoding.merge[v->encoding.merges++][1] = (int32_t)pair[1];
  return TRM_OK;
}

static int vocabulary_merges_read(struct vocabulary *v, const char *path, const struct wordset *set)
{
  struct trm_reader *reader;
  struct wordset lines = {0};
  TRM_CHECK(trm_reader_open(&reader, path));
  int status;
  char *line;
  size_t length, capacity = 0;
  while ((status = trm_reader_line(reader, &line, &length)) == TRM_OK && line) {
    const bool is_head = trm_reader_line_number(reader) == 1 && !strncmp(line, "#version", 8);
    if (length && !is_head && (status = vocabulary_merge_read(v, reader, line, set, &lines, &capacity)) != TRM_OK)
      break;
  }
  trm_reader_close(reader);
  wordset_free(&lines);
  if (status == TRM_OK && !v->encoding.merges)
    return trm_error(TRM_FAILED, "%s: has no merges", path);
  return status;
}

int vocabulary_read(struct vocabulary *v, const char *names_path, const char *merges_path)
{
  struct wordset set = {0};
  *v = (struct vocabulary){.encoding = {.name = trm_strdup("bpe")}};
  int status = vocabulary_names_read(v, names_path, &set);
  if (status == TRM_OK)
    status = vocabulary_merges_read(v, merges_path, &set);
  wordset_free(&set);
  if (status != TRM_OK)
    vocabulary_free(v);
  return status;
}
