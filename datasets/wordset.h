/* A set of byte strings, numbered in order of insertion (private to datasets/). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Open-addressing hash table. Initialized with {0}. */
struct wordset {
  char *text; /* all bytes, one word after the other */
  size_t text_bytes, text_capacity;
  struct wordset_word {
    size_t at; /* in text */
    uint32_t length, hash;
  } *word; /* (count) */
  size_t count, capacity;
  uint32_t *slot; /* (slots) word number + 1; 0: free */
  size_t slots;
};

#define WORDSET_NONE SIZE_MAX
size_t wordset_find(const struct wordset *set, const char *text, size_t length); /* its number, or WORDSET_NONE */
size_t wordset_add(struct wordset *set, const char *text, size_t length, bool *added); /* its number */
void wordset_free(struct wordset *set);
