/* Vocabularies of bytes: made or read (private to datasets/). What their names and merges mean is in tokenizer.h. */
#ifndef TRM_DATASETS_VOCABULARY_H
#define TRM_DATASETS_VOCABULARY_H

#include "train/dataset.h"
#include "wordset.h"

struct vocabulary {
  char **name; /* (size), each a text of its own */
  size_t size;
  struct trm_encoding encoding;
};

void vocabulary_of_bytes(struct vocabulary *vocabulary);

/* Byte pairs learned from words (wordset.h), word i of which occurs count[i] times: 256 bytes in the order of their
 * characters, as in GPT-2, then one token a merge; `size` of them, or fewer if the words have no more. */
void vocabulary_learn(struct vocabulary *vocabulary, const struct wordset *words, const int64_t *count, size_t size);

/* GPT-2's files: vocab.json, an object of names and numbers, and merges.txt, a line a merge. Errors name the file and
 * the line: numbers that are missing or twice there, merges of names or to names that the vocabulary has not. */
int vocabulary_read(struct vocabulary *vocabulary, const char *names_path, const char *merges_path);

void vocabulary_free(struct vocabulary *vocabulary);

#endif
