/* Writes JSON incrementally, on one line. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/document.h"

const char *trm_number_text(double value, char text[32])
{
  if (value == rint(value) && fabs(value) < 1e15) { /* 60000 rather than 6e+04 */
    snprintf(text, 32, "%.0f", value);
    return text;
  }
  /* if p digits read back then so do p + 1 */
  char wide[352]; /* gcc's bound for "%.*g" */
  int low = 1, high = 17;
  while (low < high) {
    const int digits = (low + high) / 2;
    snprintf(wide, sizeof wide, "%.*g", digits, value);
    if (strtod(wide, NULL) == value)
      high = digits;
    else
      low = digits + 1;
  }
  snprintf(wide, sizeof wide, "%.*g", low, value);
  return strcpy(text, wide); /* 17 digits, sign, point and exponent are 24 characters */
}

/* Returns the bytes of the UTF-8 character that starts here, 0 if it is not valid. */
static size_t json_utf8_length(const unsigned char *s)
{
  if (s[0] < 0x80)
    return 1;
  const size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4)
    return 0;
  for (size_t i = 1; i < length; i++) /* a NUL ends this too */
    if ((s[i] & 0xc0) != 0x80)
      return 0;
  if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90)) /* longer than needed */
    return 0;
  if ((s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f)) /* surrogates, beyond U+10FFFF */
    return 0;
  return length;
}

bool trm_text_is_utf8(const char *text)
{
  const unsigned char *s = (const unsigned char *)text;
  while (*s) {
    const size_t length = json_utf8_length(s);
    if (length == 0)
      return false;
    s += length;
  }
  return true;
}

static void json_write_string(FILE *stream, const char *text)
{
  const unsigned char *s = (const unsigned char *)text;
  fputc('"', stream);
  while (*s) {
    const size_t length = json_utf8_length(s);
    if (length == 0)
      fputs("\xef\xbf\xbd", stream); /* U+FFFD, the replacement character */
    else if (*s == '"' || *s == '\\')
      fprintf(stream, "\\%c", *s);
    else if (*s == '\n')
      fputs("\\n", stream);
    else if (*s == '\t')
      fputs("\\t", stream);
    else if (*s < 0x20 || *s == 0x7f)
      fprintf(stream, "\\u%04x", *s);
    else if (*s == 0xc2 && s[1] < 0xa0) /* the other control characters */
      fprintf(stream, "\\u%04x", s[1]);
    else
      fwrite(s, 1, length, stream);
    s += length > 0 ? length : 1;
  }
  fputc('"', stream);
}

/* Writes the comma and the key before an entry; false: the level is too deep, nothing is written. */
static bool json_begin_entry(struct trm_json *json, const char *key)
{
  if (json->depth > TRM_JSON_DEPTH)
    return false;
  if (json->depth > 0) {
    bool *comma = &json->comma[json->depth - 1];
    if (*comma)
      fputc(',', json->stream);
    *comma = true;
  }
  if (key) {
    json_write_string(json->stream, key);
    fputc(':', json->stream);
  }
  return true;
}

static void json_open_level(struct trm_json *json, const char *key, bool list)
{
  if (json->depth < TRM_JSON_DEPTH && json_begin_entry(json, key)) {
    fputc(list ? '[' : '{', json->stream);
    json->comma[json->depth] = false;
    json->list[json->depth] = list;
  }
  json->depth++;
}

void trm_json_open(struct trm_json *json, FILE *stream)
{
  *json = (struct trm_json){.stream = stream};
}

void trm_json_object(struct trm_json *json, const char *key)
{
  json_open_level(json, key, false);
}

void trm_json_list(struct trm_json *json, const char *key)
{
  json_open_level(json, key, true);
}

void trm_json_end(struct trm_json *json)
{
  if (json->depth == 0)
    return;
  json->depth--;
  if (json->depth < TRM_JSON_DEPTH)
    fputc(json->list[json->depth] ? ']' : '}', json->stream);
  if (json->depth == 0)
    fputc('\n', json->stream);
}

void trm_json_number(struct trm_json *json, const char *key, double value)
{
  char text[32];
  if (json_begin_entry(json, key))
    fputs(isfinite(value) ? trm_number_text(value, text) : "null", json->stream);
}

void trm_json_integer(struct trm_json *json, const char *key, int64_t value)
{
  if (json_begin_entry(json, key))
    fprintf(json->stream, "%" PRId64, value);
}

void trm_json_bool(struct trm_json *json, const char *key, bool value)
{
  if (json_begin_entry(json, key))
    fputs(value ? "true" : "false", json->stream);
}

void trm_json_text(struct trm_json *json, const char *key, const char *value)
{
  if (!json_begin_entry(json, key))
    return;
  if (value)
    json_write_string(json->stream, value);
  else
    fputs("null", json->stream);
}
