#include "text_chunks.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "file_reader.h"
#include "pretokenizer.h"
#include "utf8.h"

#define MIN_CHUNK ((size_t)1 << 20) /* bytes */

struct text_chunks {
  struct trm_reader *reader;
  enum trm_token_kind kind;
  char *buffer;
  size_t filled, capacity;
  bool ended;
  struct utf8 state;
  size_t line;
  uint64_t offset;   /* of the buffer in the text, bytes */
  uint64_t split_at;
};

/* Reads more bytes: at least as many as the buffer holds. */
static int text_chunks_read_more(struct text_chunks *chunks)
{
  const size_t want = chunks->filled > MIN_CHUNK ? chunks->filled : MIN_CHUNK, old = chunks->filled;
  const bool first = chunks->offset == 0 && old == 0;
  size_t got;
  chunks->buffer = trm_grow(chunks->buffer, &chunks->capacity, old, old + want, 1, "text");
  TRM_CHECK(trm_reader_read(chunks->reader, chunks->buffer + old, want, &got));
  chunks->ended = got == 0;
  if (first && chunks->kind != TRM_TOKEN_BYTES && got >= 3 && !memcmp(chunks->buffer, "\xef\xbb\xbf", 3)) {
    got -= 3;
    memmove(chunks->buffer, chunks->buffer + 3, got);
  }
  chunks->filled += got;
  const char *wrong = NULL;
  for (size_t i = old; i < chunks->filled && chunks->kind != TRM_TOKEN_BYTES && !wrong; i++) {
    int32_t code;
    wrong = utf8_decode(&chunks->state, (unsigned char)chunks->buffer[i], &code);
    chunks->line += code == '\n';
  }
  if (chunks->ended && chunks->state.remaining)
    wrong = "the last character is cut short";
  return wrong ? trm_error(TRM_FAILED, "%s:%zu: is not valid UTF-8: %s", trm_reader_path(chunks->reader), chunks->line,
                           wrong)
               : TRM_OK;
}

static bool text_chunks_is_boundary(const struct text_chunks *chunks, size_t at)
{
  if (chunks->kind == TRM_TOKEN_BPE)
    return pretokenizer_is_boundary(chunks->buffer, chunks->filled, at);
  return chunks->kind == TRM_TOKEN_BYTES || (at < chunks->filled && utf8_begins((unsigned char)chunks->buffer[at]));
}

/* Finds the end of the next chunk; 0: the buffer has no boundary. */
static size_t text_chunks_end_find(const struct text_chunks *chunks)
{
  if (chunks->offset < chunks->split_at && chunks->split_at < chunks->offset + chunks->filled) {
    for (size_t i = (size_t)(chunks->split_at - chunks->offset); i < chunks->filled; i++)
      if (text_chunks_is_boundary(chunks, i))
        return i;
  } else {
    for (size_t i = chunks->filled; i > 0; i--)
      if (text_chunks_is_boundary(chunks, i))
        return i;
  }
  return chunks->ended ? chunks->filled : 0;
}

int text_chunks_visit(const char *path, enum trm_token_kind kind, uint64_t split_at,
                      int (*visit)(void *context, const char *text, size_t bytes, bool past_split), void *context)
{
  struct text_chunks chunks = {.kind = kind, .split_at = split_at, .line = 1};
  TRM_CHECK(trm_reader_open(&chunks.reader, path));
  int status = TRM_OK;
  do {
    while (status == TRM_OK && !chunks.ended && (chunks.filled < MIN_CHUNK || text_chunks_end_find(&chunks) == 0))
      status = text_chunks_read_more(&chunks);
    const size_t end = text_chunks_end_find(&chunks);
    if (status == TRM_OK && end)
      status = visit(context, chunks.buffer, end, chunks.offset >= split_at);
    chunks.filled -= end;
    chunks.offset += end;
    memmove(chunks.buffer, chunks.buffer + end, chunks.filled);
  } while (status == TRM_OK && !(chunks.ended && chunks.filled == 0));
  trm_reader_close(chunks.reader);
  trm_free(chunks.buffer);
  return status;
}
