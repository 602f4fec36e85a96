#include "utf8.h"

const char *utf8_decode(struct utf8 *state, unsigned byte, int32_t *code)
{
  *code = -1;
  if (state->remaining) {
    if (utf8_begins(byte))
      return "a character is cut short";
    state->code = state->code << 6 | (int32_t)(byte & 0x3f);
    if (--state->remaining)
      return NULL;
    if (state->code < state->min_code)
      return "a character in more bytes than it needs";
    if (state->code >= UTF8_CODES || (state->code >= 0xd800 && state->code < 0xe000))
      return "a code outside of Unicode";
    *code = state->code;
    return NULL;
  }
  if (byte < 0x80) {
    if (byte == 0)
      return "a NUL byte; this is not a text";
    *code = (int32_t)byte;
    return NULL;
  }
  if ((byte & 0xe0) == 0xc0)
    *state = (struct utf8){.remaining = 1, .code = (int32_t)(byte & 0x1f), .min_code = 0x80};
  else if ((byte & 0xf0) == 0xe0)
    *state = (struct utf8){.remaining = 2, .code = (int32_t)(byte & 0x0f), .min_code = 0x800};
  else if ((byte & 0xf8) == 0xf0)
    *state = (struct utf8){.remaining = 3, .code = (int32_t)(byte & 0x07), .min_code = 0x10000};
  else
    return "a byte that begins no character";
  return NULL;
}

const char *utf8_check(const char *text, size_t bytes)
{
  struct utf8 state = {0};
  for (size_t i = 0; i < bytes; i++) {
    int32_t code;
    const char *wrong = utf8_decode(&state, (unsigned char)text[i], &code);
    if (wrong)
      return wrong;
  }
  return state.remaining ? "the last character is cut short" : NULL;
}

size_t utf8_length(int32_t code)
{
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

char *utf8_encode(char *to, int32_t code)
{
  static const int lead[4] = {0, 0xc0, 0xe0, 0xf0};
  const int trailing = (int)utf8_length(code) - 1;
  *to++ = (char)(lead[trailing] | code >> (6 * trailing));
  for (int i = trailing - 1; i >= 0; i--)
    *to++ = (char)(0x80 | (code >> (6 * i) & 0x3f));
  return to;
}
