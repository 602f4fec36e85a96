#include "text_chunks.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "pretokenizer.h"
#include "wordset.h"

#define MIN_CHUNK ((size_t)1 << 20) /* bytes */

int text_chunks_open(struct text_chunks *chunks, const char *path, bool bytes, uint64_t split_at)
{
  *chunks = (struct text_chunks){.bytes = bytes, .split_at = split_at, .line = 1};
  return trm_reader_open(&chunks->reader, path);
}

void text_chunks_close(struct text_chunks *chunks)
{
  trm_reader_close(chunks->reader);
  trm_free(chunks->buffer);
  *chunks = (struct text_chunks){0};
}

static int text_chunks_error(const struct text_chunks *chunks, const char *what)
{
  return trm_error(TRM_FAILED, "%s:%zu: is not valid UTF-8: %s", trm_reader_path(chunks->reader), chunks->line, what);
}

/* Reads more bytes: at least as many as the buffer holds. */
static int text_chunks_read_more(struct text_chunks *chunks)
{
  const size_t want = chunks->filled > MIN_CHUNK ? chunks->filled : MIN_CHUNK;
  size_t got;
  chunks->buffer = trm_grow(chunks->buffer, &chunks->capacity, chunks->filled, chunks->filled + want, 1, "text");
  TRM_CHECK(trm_reader_read(chunks->reader, chunks->buffer + chunks->filled, want, &got));
  chunks->ended = got == 0;
  if (chunks->bytes) {
    chunks->filled += got;
    return TRM_OK;
  }
  for (size_t i = chunks->filled; i < chunks->filled + got; i++) {
    int32_t code;
    const char *wrong = utf8_decode(&chunks->state, (unsigned char)chunks->buffer[i], &code);
    if (wrong)
      return text_chunks_error(chunks, wrong);
    chunks->line += code == '\n';
  }
  if (chunks->ended && chunks->state.remaining)
    return text_chunks_error(chunks, "the last character is cut short");
  const bool first = chunks->offset == 0 && chunks->filled == 0;
  chunks->filled += got;
  if (first && chunks->filled >= 3 && !memcmp(chunks->buffer, "\xef\xbb\xbf", 3)) {
    chunks->filled -= 3;
    memmove(chunks->buffer, chunks->buffer + 3, chunks->filled);
  }
  return TRM_OK;
}

/* Finds the end of the next chunk; 0: the buffer has no boundary. */
static size_t text_chunks_end_find(const struct text_chunks *chunks)
{
  const bool split_here = chunks->offset < chunks->split_at && chunks->split_at < chunks->offset + chunks->filled;
  const size_t split_at = split_here ? (size_t)(chunks->split_at - chunks->offset) : 0;
  if (chunks->bytes)
    return split_here ? split_at : chunks->filled;
  if (split_here) {
    for (size_t i = split_at; i < chunks->filled; i++)
      if (pretokenizer_is_boundary(chunks->buffer, chunks->filled, i))
        return i;
  } else {
    for (size_t i = chunks->filled; i > 0; i--)
      if (pretokenizer_is_boundary(chunks->buffer, chunks->filled, i))
        return i;
  }
  return chunks->ended ? chunks->filled : 0;
}

int text_chunks_next(struct text_chunks *chunks, const char **text, size_t *bytes, bool *past_split)
{
  chunks->filled -= chunks->returned;
  if (chunks->filled) /* before the first reading there is no buffer */
    memmove(chunks->buffer, chunks->buffer + chunks->returned, chunks->filled);
  chunks->offset += chunks->returned;
  chunks->returned = 0;
  while (!chunks->ended && (chunks->filled < MIN_CHUNK || text_chunks_end_find(chunks) == 0))
    TRM_CHECK(text_chunks_read_more(chunks));
  chunks->returned = text_chunks_end_find(chunks);
  *text = chunks->buffer;
  *bytes = chunks->returned;
  *past_split = chunks->offset >= chunks->split_at;
  return TRM_OK;
}
