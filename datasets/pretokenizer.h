/* Splitting of texts into words before byte pairs are merged, as in GPT-2 (private to datasets/). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct pretokenizer;

/* Needs PCRE2 for the classes of Unicode characters: fails in a build without it. */
int pretokenizer_open(struct pretokenizer **pretokenizer);
void pretokenizer_close(struct pretokenizer *pretokenizer); /* NULL is allowed */

/* Finds the end of the word that begins at `at` < bytes. The text is valid UTF-8. Concatenated, the words are the
 * text. */
int pretokenizer_next(struct pretokenizer *pretokenizer, const char *text, size_t bytes, size_t at, size_t *end);

/* Returns true if a word begins at `at` in any context: white space after a character that is none. */
bool pretokenizer_is_boundary(const char *text, size_t bytes, size_t at);
