/* A text cut into words, as GPT-2 does before byte pairs are merged (private to datasets/). */
#ifndef TRM_DATASETS_WORDS_H
#define TRM_DATASETS_WORDS_H

#include <stdbool.h>
#include <stddef.h>

struct pretokenizer;

/* Fails in a build without PCRE2, which knows the classes of Unicode's characters. */
int pretokenizer_open(struct pretokenizer **pretokenizer);
void pretokenizer_close(struct pretokenizer *pretokenizer); /* NULL is allowed */

/* Where the word that begins at `at` < bytes ends. The text is valid UTF-8. Concatenated, the words are the text. */
int pretokenizer_next(struct pretokenizer *pretokenizer, const char *text, size_t bytes, size_t at, size_t *end);

/* Whether a word begins at `at` whatever comes before and after: no white space, then white space. */
bool pretokenizer_is_boundary(const char *text, size_t bytes, size_t at);

#endif
