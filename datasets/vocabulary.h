/* Vocabularies of bytes and byte pairs, learned or read (private to datasets/). Names and merges: see tokenizer.h. */
#pragma once

#include "train/dataset.h"
#include "wordset.h"

struct vocabulary {
  char **name; /* (size), each allocated */
  size_t size;
  struct trm_encoding encoding;
};

void vocabulary_of_bytes(struct vocabulary *vocabulary);

/* The characters that were seen, in order of code point. */
void vocabulary_of_characters(struct vocabulary *vocabulary, const bool *seen /* (UTF8_CODES) */);

/* Learns byte pairs from words, word i of which occurs count[i] times. Tokens: the 256 bytes in the order of their
 * characters, as in GPT-2, then one per merge; `size` of them, or fewer if no more pairs occur twice. */
void vocabulary_learn(struct vocabulary *vocabulary, const struct wordset *words, const int64_t *count, size_t size);

/* Reads GPT-2's files: vocab.json, an object of names and numbers, and merges.txt, one merge per line. Errors name the
 * file and the line: missing or repeated numbers, merges of or to names that are not in the vocabulary. */
int vocabulary_read(struct vocabulary *vocabulary, const char *names_path, const char *merges_path);

void vocabulary_free(struct vocabulary *vocabulary);
