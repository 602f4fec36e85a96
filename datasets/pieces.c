#include "pieces.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "words.h"
#include "wordset.h"

#define PIECE ((size_t)1 << 20) /* bytes */

int pieces_open(struct pieces *p, const char *path, bool bytes, uint64_t cut)
{
  *p = (struct pieces){.bytes = bytes, .cut = cut, .line = 1};
  return trm_reader_open(&p->reader, path);
}

void pieces_close(struct pieces *p)
{
  trm_reader_close(p->reader);
  trm_free(p->buffer);
  *p = (struct pieces){0};
}

static int text_error(const struct pieces *p, const char *what)
{
  return trm_error(TRM_FAILED, "%s:%zu: is not valid UTF-8: %s", trm_reader_path(p->reader), p->line, what);
}

/* Reads on: at least as much as there is. */
static int more_read(struct pieces *p)
{
  const size_t want = p->filled > PIECE ? p->filled : PIECE;
  size_t got;
  p->buffer = array_grow(p->buffer, &p->room, p->filled, p->filled + want, 1, "text");
  TRM_CHECK(trm_reader_bytes(p->reader, p->buffer + p->filled, want, &got));
  p->ended = got == 0;
  if (p->bytes) {
    p->filled += got;
    return TRM_OK;
  }
  for (size_t i = p->filled; i < p->filled + got; i++) {
    int32_t code;
    const char *wrong = utf8_take(&p->state, (unsigned char)p->buffer[i], &code);
    if (wrong)
      return text_error(p, wrong);
    p->line += code == '\n';
  }
  if (p->ended && p->state.left)
    return text_error(p, "the last character is cut short");
  const bool first = p->at == 0 && p->filled == 0;
  p->filled += got;
  if (first && p->filled >= 3 && !memcmp(p->buffer, "\xef\xbb\xbf", 3)) {
    p->filled -= 3;
    memmove(p->buffer, p->buffer + 3, p->filled);
  }
  return TRM_OK;
}

/* Where the next piece may end, 0: nowhere in what was read so far. */
static size_t end_find(const struct pieces *p)
{
  const bool cut_here = p->at < p->cut && p->cut < p->at + p->filled;
  const size_t cut = cut_here ? (size_t)(p->cut - p->at) : 0;
  if (p->bytes)
    return cut_here ? cut : p->filled;
  if (cut_here) {
    for (size_t i = cut; i < p->filled; i++)
      if (words_part_at(p->buffer, p->filled, i))
        return i;
  } else {
    for (size_t i = p->filled; i > 0; i--)
      if (words_part_at(p->buffer, p->filled, i))
        return i;
  }
  return p->ended ? p->filled : 0;
}

int pieces_next(struct pieces *p, const char **text, size_t *bytes, bool *beyond)
{
  p->filled -= p->given;
  if (p->filled) /* before the first reading there is no buffer */
    memmove(p->buffer, p->buffer + p->given, p->filled);
  p->at += p->given;
  p->given = 0;
  while (!p->ended && (p->filled < PIECE || end_find(p) == 0))
    TRM_CHECK(more_read(p));
  p->given = end_find(p);
  *text = p->buffer;
  *bytes = p->given;
  *beyond = p->at >= p->cut;
  return TRM_OK;
}
