/* Decoding of UTF-8 byte by byte (private to datasets/). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_CODES 0x110000 /* Unicode's range */

/* State between bytes. Initialized with {0}. */
struct utf8 {
  int32_t code;      /* bits of the unfinished character so far */
  int remaining;     /* bytes that it lacks */
  int32_t min_code;  /* smallest code of that many bytes; less is an overlong form */
};

/* Decodes one byte; *code: the character that it completes, or -1. Returns NULL, or a description of the error. NUL is
 * an error. */
const char *utf8_decode(struct utf8 *state, unsigned byte, int32_t *code);

/* Returns true if a character begins with this byte of valid UTF-8. */
static inline bool utf8_begins(unsigned byte)
{
  return (byte & 0xc0) != 0x80;
}

/* Checks a whole text. Returns NULL, or a description of the error. */
const char *utf8_check(const char *text, size_t bytes);

/* utf8_length: bytes of a character, 1 to 4. utf8_encode: writes them without a NUL and returns the end. */
size_t utf8_length(int32_t code);
char *utf8_encode(char *to, int32_t code);
