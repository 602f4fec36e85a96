#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "pretokenizer.h"

#include "core/memory.h"
#include "core/status.h"

#ifdef HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* The pattern of GPT-2's encoder (Radford et al. 2019): contractions; letters, digits or other signs, with one space
 * in front; white space, the last of which is left for the next word. White space is Unicode's property White_Space,
 * which is spelled out: what \s stands for differs between libraries. */
#define SPACE "\\p{Z}\\t-\\r\\x{85}"
static const char pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+"
                              "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+";

struct pretokenizer {
  pcre2_code *code;
  pcre2_match_data *match;
};

int pretokenizer_open(struct pretokenizer **pretokenizer)
{
  int reason;
  PCRE2_SIZE where;
  *pretokenizer = NULL;
  pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, &reason, &where, NULL);
  if (!code) {
    PCRE2_UCHAR text[256] = "";
    pcre2_get_error_message(reason, text, sizeof text);
    return trm_error(TRM_FAILED, "the pattern of words: %s", (char *)text);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* if it fails, matching is slower */
  *pretokenizer = trm_alloc(sizeof **pretokenizer, "the pattern of words");
  (*pretokenizer)->code = code;
  (*pretokenizer)->match = pcre2_match_data_create(1, NULL);
  return TRM_OK;
}

void pretokenizer_close(struct pretokenizer *pretokenizer)
{
  if (!pretokenizer)
    return;
  pcre2_match_data_free(pretokenizer->match);
  pcre2_code_free(pretokenizer->code);
  trm_free(pretokenizer);
}

int pretokenizer_next(struct pretokenizer *pretokenizer, const char *text, size_t bytes, size_t at, size_t *end)
{
  const int found =
    pcre2_match(pretokenizer->code, (PCRE2_SPTR)text, bytes, at, PCRE2_NO_UTF_CHECK, pretokenizer->match, NULL);
  *end = found > 0 ? pcre2_get_ovector_pointer(pretokenizer->match)[1] : at;
  if (*end > at)
    return TRM_OK;
  PCRE2_UCHAR reason[256] = "";
  pcre2_get_error_message(found, reason, sizeof reason);
  return trm_error(TRM_FAILED, "the text cannot be split into words: %s", (char *)reason);
}

#else

int pretokenizer_open(struct pretokenizer **pretokenizer)
{
  *pretokenizer = NULL;
  return trm_error(TRM_FAILED, "byte pair encoding needs PCRE2 for Unicode's classes of characters, and this build has "
                   "none (Debian: libpcre2-dev, then configure and make again)");
}

void pretokenizer_close(struct pretokenizer *pretokenizer)
{
  (void)pretokenizer;
}

int pretokenizer_next(struct pretokenizer *pretokenizer, const char *text, size_t bytes, size_t at, size_t *end)
{
  (void)pretokenizer, (void)text, (void)at;
  *end = bytes;
  return TRM_FAILED;
}
#endif

static bool pretokenizer_is_space(unsigned char c)
{
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The last byte of U+0085, U+00A0, U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F, U+205F or U+3000; and of other
 * characters, after which a place is then not used: that costs nothing but length. */
static bool pretokenizer_may_end_space(unsigned char c)
{
  return (c >= 0x80 && c <= 0x8a) || c == 0x9f || c == 0xa0 || c == 0xa8 || c == 0xa9 || c == 0xaf;
}

bool pretokenizer_is_boundary(const char *text, size_t bytes, size_t at)
{
  if (at == 0 || at >= bytes || !pretokenizer_is_space((unsigned char)text[at]))
    return false;
  const unsigned char before = (unsigned char)text[at - 1];
  return !pretokenizer_is_space(before) && !pretokenizer_may_end_space(before);
}
