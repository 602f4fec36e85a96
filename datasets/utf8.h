/* UTF-8, one byte after the other (private to datasets/). */
#ifndef TRM_DATASETS_UTF8_H
#define TRM_DATASETS_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_CODES 0x110000 /* Unicode's range */

/* Begins as {0}. */
struct utf8 {
  int32_t code;  /* what the bytes of an unfinished character came to */
  int remaining;      /* bytes it still wants */
  int32_t min_code; /* the smallest code that needs so many bytes: less is an overlong form */
};

/* Takes one byte; *code becomes the character it completes, or -1. Returns NULL, or what is wrong with the text. NUL is
 * no character of a text. */
const char *utf8_decode(struct utf8 *state, unsigned byte, int32_t *code);

/* NULL, or what is wrong with a whole text. */
const char *utf8_check(const char *text, size_t bytes);

/* Bytes that a character takes, 1 to 4; writes them, without a NUL, and returns what follows. */
size_t utf8_length(int32_t code);
char *utf8_encode(char *to, int32_t code);

#endif
