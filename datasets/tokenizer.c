#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "core/memory.h"
#include "core/status.h"
#include "utf8.h"
#include "pretokenizer.h"

const char *const trm_token_kind_names[TRM_TOKEN_KINDS + 1] = {"characters", "bytes", "bpe", NULL};

/* Capacity of the cache of words and their tokens, bytes. */
#define CACHE_BYTES ((size_t)64 << 20)

struct trm_tokenizer {
  enum trm_token_kind kind;
  size_t size;
  char *text;    /* concatenated texts of the tokens */
  size_t *start; /* (size + 1) */
  struct wordset names; /* characters: of UTF-8 */
  /* bpe */
  int32_t byte_token[256];
  struct pretokenizer *pretokenizer;
  struct bpe *bpe;
  struct wordset cache;      /* cached words, */
  struct trm_tokens cache_tokens;  /* and their tokens: */
  size_t *cache_start;       /* (known.count + 1) */
  size_t cache_capacity;
};

/* -- the alphabet of bytes */

static bool tokenizer_is_printable(int32_t c)
{
  return (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255);
}

int32_t trm_byte_character(unsigned char byte)
{
  if (tokenizer_is_printable(byte))
    return byte;
  int32_t code = 0x100;
  for (int32_t c = 0; c < byte; c++)
    code += !tokenizer_is_printable(c);
  return code;
}

/* Decodes a name to bytes at `to`, which has the name's length; returns their number. */
static size_t tokenizer_name_decode(const char *name, const int16_t byte_of[0x200], char *to)
{
  struct utf8 state = {0};
  size_t n = 0;
  for (const char *c = name; *c; c++) {
    int32_t code;
    const char *wrong = utf8_decode(&state, (unsigned char)*c, &code);
    if (wrong || code >= 0x200 || (code >= 0 && byte_of[code] < 0)) {
      n = strlen(name);
      memcpy(to, name, n);
      return n;
    }
    if (code >= 0)
      to[n++] = (char)byte_of[code];
  }
  return n;
}

static void tokenizer_texts_make(struct trm_tokenizer *t, char *const *name)
{
  int16_t byte_of[0x200];
  memset(byte_of, -1, sizeof byte_of);
  for (int byte = 0; byte < 256; byte++)
    byte_of[trm_byte_character((unsigned char)byte)] = (int16_t)byte;
  size_t bytes = 0;
  for (size_t i = 0; i < t->size; i++)
    bytes += strlen(name[i]);
  t->text = trm_alloc(bytes + 1, "a vocabulary");
  t->start = trm_alloc((t->size + 1) * sizeof *t->start, "a vocabulary");
  for (size_t i = 0; i < t->size; i++) {
    char *to = t->text + t->start[i];
    size_t n = strlen(name[i]);
    if (t->kind == TRM_TOKEN_CHARACTERS)
      memcpy(to, name[i], n);
    else
      n = tokenizer_name_decode(name[i], byte_of, to);
    t->start[i + 1] = t->start[i] + n;
  }
}

/* -- opening */

static int tokenizer_names_add(struct trm_tokenizer *t, const char *from, char *const *name)
{
  for (size_t i = 0; i < t->size; i++) {
    bool added;
    wordset_add(&t->names, name[i], strlen(name[i]), &added);
    if (!added || !*name[i])
      return trm_error(TRM_FAILED, "%s: the vocabulary is damaged: token %zu %s", from, i,
                       *name[i] ? "has the name of an earlier one" : "has no name");
  }
  return TRM_OK;
}

static int tokenizer_merges_init(struct trm_tokenizer *t, const char *from, const struct trm_encoding *encoding,
                                 char *const *name)
{
  int status = TRM_OK;
  for (int byte = 0; byte < 256 && status == TRM_OK; byte++) {
    char letter[4];
    const char *end = utf8_encode(letter, trm_byte_character((unsigned char)byte));
    const size_t token = wordset_find(&t->names, letter, (size_t)(end - letter));
    t->byte_token[byte] = (int32_t)token;
    if (token == WORDSET_NONE)
      status = trm_error(TRM_FAILED, "%s: the vocabulary has no token \"%.*s\" for the byte 0x%02x", from,
                         (int)(end - letter), letter, (unsigned)byte);
  }
  int32_t *result = trm_alloc(encoding->merges * sizeof *result, "merges");
  for (size_t m = 0; m < encoding->merges && status == TRM_OK; m++) {
    const int32_t left = encoding->merge[m][0], right = encoding->merge[m][1];
    if (left < 0 || right < 0 || (size_t)left >= t->size || (size_t)right >= t->size) {
      status = trm_error(TRM_FAILED, "%s: merge %zu joins tokens %d and %d of a vocabulary of %zu", from, m, left,
                         right, t->size);
      break;
    }
    char *merged = trm_format("%s%s", name[left], name[right]);
    const size_t token = wordset_find(&t->names, merged, strlen(merged));
    result[m] = (int32_t)token;
    if (token == WORDSET_NONE)
      status = trm_error(TRM_FAILED, "%s: merge %zu makes \"%s\", which is not in the vocabulary", from, m, merged);
    trm_free(merged);
  }
  if (status == TRM_OK)
    t->bpe = bpe_open((const int32_t(*)[2])encoding->merge, result, encoding->merges);
  trm_free(result);
  return status;
}

static int tokenizer_init(struct trm_tokenizer *t, const char *from, const struct trm_encoding *encoding,
                          char *const *name)
{
  if (t->kind == TRM_TOKEN_BYTES && t->size != 256)
    return trm_error(TRM_FAILED, "%s: a vocabulary of bytes has 256 tokens, not %zu", from, t->size);
  TRM_CHECK(tokenizer_names_add(t, from, name));
  tokenizer_texts_make(t, name);
  t->cache_start = trm_grow(NULL, &t->cache_capacity, 0, 1, sizeof *t->cache_start, "words");
  return t->kind == TRM_TOKEN_BPE ? tokenizer_merges_init(t, from, encoding, name) : TRM_OK;
}

int trm_tokenizer_open(struct trm_tokenizer **tokenizer, const char *from, const struct trm_encoding *encoding,
                       char *const *name, size_t size)
{
  int kind = 0;
  *tokenizer = NULL;
  if (!encoding->name || !name)
    return trm_error(TRM_USAGE, "%s: has no vocabulary; its tokens cannot be converted to text", from);
  while (kind < TRM_TOKEN_KINDS && strcmp(encoding->name, trm_token_kind_names[kind]) != 0)
    kind++;
  if (kind == TRM_TOKEN_KINDS)
    return trm_error(TRM_FAILED, "%s: tokens are \"%s\", none of characters, bytes, bpe", from, encoding->name);
  struct trm_tokenizer *t = trm_alloc(sizeof *t, "a tokenizer");
  t->kind = (enum trm_token_kind)kind;
  t->size = size;
  const int status = tokenizer_init(t, from, encoding, name);
  if (status == TRM_OK)
    *tokenizer = t;
  else
    trm_tokenizer_close(t);
  return status;
}

void trm_tokenizer_close(struct trm_tokenizer *t)
{
  if (!t)
    return;
  trm_free(t->text);
  trm_free(t->start);
  wordset_free(&t->names);
  pretokenizer_close(t->pretokenizer);
  bpe_close(t->bpe);
  wordset_free(&t->cache);
  trm_free(t->cache_tokens.token);
  trm_free(t->cache_start);
  trm_free(t);
}

/* -- encoding */

static int32_t *tokenizer_tokens_reserve(struct trm_tokens *tokens, size_t more)
{
  tokens->token =
    trm_grow(tokens->token, &tokens->capacity, tokens->count, tokens->count + more, sizeof *tokens->token, "tokens");
  return tokens->token + tokens->count;
}

void trm_tokens_add(struct trm_tokens *tokens, int32_t token)
{
  *tokenizer_tokens_reserve(tokens, 1) = token;
  tokens->count++;
}

static int tokenizer_characters_encode(struct trm_tokenizer *t, const char *text, size_t bytes,
                                       struct trm_tokens *tokens)
{
  struct utf8 state = {0};
  int32_t *to = tokenizer_tokens_reserve(tokens, bytes);
  for (size_t i = 0, begin = 0; i < bytes; i++) {
    int32_t code;
    utf8_decode(&state, (unsigned char)text[i], &code);
    if (code < 0)
      continue;
    const size_t found = wordset_find(&t->names, text + begin, i + 1 - begin);
    if (found == WORDSET_NONE)
      return trm_error(TRM_USAGE, "the character \"%.*s\" (U+%04X) is not in the vocabulary", (int)(i + 1 - begin),
                       text + begin, (unsigned)code);
    *to++ = (int32_t)found;
    tokens->count++;
    begin = i + 1;
  }
  return TRM_OK;
}

static void tokenizer_word_encode(struct trm_tokenizer *t, const char *word, size_t bytes, struct trm_tokens *tokens)
{
  if (t->cache.text_bytes + bytes > CACHE_BYTES) {
    wordset_free(&t->cache);
    t->cache_tokens.count = 0;
  }
  bool added;
  const size_t number = wordset_add(&t->cache, word, bytes, &added);
  if (added) {
    int32_t *merged = tokenizer_tokens_reserve(&t->cache_tokens, bytes);
    for (size_t i = 0; i < bytes; i++)
      merged[i] = t->byte_token[(unsigned char)word[i]];
    t->cache_tokens.count += bpe_apply(t->bpe, merged, bytes);
    t->cache_start =
      trm_grow(t->cache_start, &t->cache_capacity, number + 1, number + 2, sizeof *t->cache_start, "words");
    t->cache_start[number + 1] = t->cache_tokens.count;
  }
  const size_t count = t->cache_start[number + 1] - t->cache_start[number];
  memcpy(tokenizer_tokens_reserve(tokens, count), t->cache_tokens.token + t->cache_start[number],
         count * sizeof *tokens->token);
  tokens->count += count;
}

int trm_tokenizer_encode(struct trm_tokenizer *t, const char *text, size_t bytes, struct trm_tokens *tokens)
{
  if (t->kind == TRM_TOKEN_BYTES) {
    int32_t *to = tokenizer_tokens_reserve(tokens, bytes);
    for (size_t i = 0; i < bytes; i++)
      to[i] = (unsigned char)text[i];
    tokens->count += bytes;
    return TRM_OK;
  }
  const char *wrong = utf8_check(text, bytes);
  if (wrong)
    return trm_error(TRM_USAGE, "the text is not valid UTF-8: %s", wrong);
  if (t->kind == TRM_TOKEN_CHARACTERS)
    return tokenizer_characters_encode(t, text, bytes, tokens);
  if (!t->pretokenizer)
    TRM_CHECK(pretokenizer_open(&t->pretokenizer));
  for (size_t at = 0, end; at < bytes; at = end) {
    TRM_CHECK(pretokenizer_next(t->pretokenizer, text, bytes, at, &end));
    tokenizer_word_encode(t, text + at, end - at, tokens);
  }
  return TRM_OK;
}

const char *trm_tokenizer_text(const struct trm_tokenizer *t, int32_t token, size_t *bytes)
{
  *bytes = t->start[token + 1] - t->start[token];
  return t->text + t->start[token];
}
