/* A text cut into words, as GPT-2 does before byte pairs are merged (private to datasets/). */
#ifndef TRM_DATASETS_WORDS_H
#define TRM_DATASETS_WORDS_H

#include <stdbool.h>
#include <stddef.h>

struct words;

/* Fails in a build without PCRE2, which knows the classes of Unicode's characters. */
int words_open(struct words **words);
void words_close(struct words *words); /* NULL is allowed */

/* Where the word that begins at `at` < bytes ends. The text is valid UTF-8. Concatenated, the words are the text. */
int words_next(struct words *words, const char *text, size_t bytes, size_t at, size_t *end);

/* Whether a word begins at `at` whatever comes before and after: no white space, then white space. */
bool words_part_at(const char *text, size_t bytes, size_t at);

#endif
