/* Import of texts as tokens: characters, whose vocabulary are those that occur, bytes or byte pairs (tokenizer.h). A
 * file is read in passes: for its size and its characters, for the place of the split, for the merges, which are
 * learned from the training part, and for the tokens. */
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "datasets/bpe.h"
#include "datasets/import.h"
#include "datasets/file_reader.h"
#include "datasets/pretokenizer.h"
#include "datasets/tokenizer.h"
#include "datasets/utf8.h"
#include "datasets/vocabulary.h"

#define TEST_PART 0.1
#define NO_SPLIT UINT64_MAX
#define MIN_CHUNK ((size_t)1 << 20) /* bytes */

/* -- chunks */

/* A file in chunks that can be split into tokens independently. */
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

/* Calls visit for each chunk of a file: valid UTF-8 (kind bytes: any bytes) without a byte order mark, which begins and
 * ends where `kind` allows a token to begin. A chunk ends at byte split_at, or at the next such place after it.
 * past_split: the chunk is behind it. Errors name file and line. */
static int text_chunks_visit(const char *path, enum trm_token_kind kind, uint64_t split_at,
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

struct text {
  const struct trm_import_request *request;
  enum trm_token_kind kind;
  uint64_t units, train_units;   /* characters; bytes, if those or their pairs are the tokens */
  uint64_t characters;           /* passed on the way to the split */
  uint64_t split_at;             /* byte at which the test part begins; NO_SPLIT: there is none */
  bool *seen;                    /* (UTF8_CODES) characters */
  struct pretokenizer *pretokenizer;
  struct wordset words;
  int64_t *count;                /* (words) */
  size_t count_capacity;
  struct vocabulary vocabulary;
  struct trm_tokenizer *tokenizer;
  struct trm_tokens tokens;      /* of a chunk */
  struct trm_data_writer *writer;
  bool in_test;
};

/* -- passes: called for each chunk */

static int text_measure(void *context, const char *chunk, size_t bytes, bool past_split)
{
  struct text *text = context;
  struct utf8 state = {0};
  (void)past_split;
  if (text->kind != TRM_TOKEN_CHARACTERS) {
    text->units += bytes;
    return TRM_OK;
  }
  for (size_t i = 0; i < bytes; i++) {
    int32_t code;
    utf8_decode(&state, (unsigned char)chunk[i], &code);
    if (code >= 0) {
      text->seen[code] = true;
      text->units++;
    }
  }
  return TRM_OK;
}

/* Counts the bytes of the first train_units characters. */
static int text_split_find(void *context, const char *chunk, size_t bytes, bool past_split)
{
  struct text *text = context;
  (void)past_split;
  for (size_t i = 0; i < bytes; i++) {
    text->characters += utf8_begins((unsigned char)chunk[i]);
    text->split_at += text->characters <= text->train_units;
  }
  return TRM_OK;
}

/* Counts the words of the training part. A long word is split into several, since the cost of a merge grows with word
 * length. */
static int text_words_count(void *context, const char *chunk, size_t bytes, bool past_split)
{
  struct text *text = context;
  for (size_t at = 0, end; at < bytes && !past_split; at = end) {
    TRM_CHECK(pretokenizer_next(text->pretokenizer, chunk, bytes, at, &end));
    for (size_t from = at; from < end; from += BPE_MAX_BYTES) {
      bool added;
      const size_t length = end - from < BPE_MAX_BYTES ? end - from : BPE_MAX_BYTES;
      const size_t number = wordset_add(&text->words, chunk + from, length, &added);
      text->count =
        trm_grow(text->count, &text->count_capacity, number, number + 1, sizeof *text->count, "counts of words");
      text->count[number]++;
    }
  }
  return TRM_OK;
}

static int text_tokens_append(void *context, const char *chunk, size_t bytes, bool past_split)
{
  struct text *text = context;
  if (past_split && !text->in_test) {
    TRM_CHECK(trm_data_writer_split(text->writer, "test"));
    text->in_test = true;
  }
  text->tokens.count = 0;
  TRM_CHECK(trm_tokenizer_encode(text->tokenizer, chunk, bytes, &text->tokens));
  const struct trm_data_rows rows = {.rows = text->tokens.count, .tokens = text->tokens.token, .text_bytes = bytes};
  return trm_data_writer_append(text->writer, &rows);
}

/* -- the import */

/* Measures the files, and finds where the test part of a single one begins. */
static int text_files_measure(struct text *text)
{
  const struct trm_import_request *request = text->request;
  for (int i = 0; i < request->count; i++) {
    text->units = 0;
    TRM_CHECK(text_chunks_visit(request->paths[i], text->kind, NO_SPLIT, text_measure, text));
    if (text->units == 0)
      return trm_error(TRM_FAILED, "%s: the text is empty", request->paths[i]);
  }
  text->split_at = NO_SPLIT;
  if (request->count == 2)
    return TRM_OK;
  TRM_CHECK(trm_import_train_rows(request, TEST_PART, text->units, &text->train_units));
  if (text->train_units == text->units)
    return TRM_OK;
  text->split_at = text->kind == TRM_TOKEN_CHARACTERS ? 0 : text->train_units;
  return text->split_at ? TRM_OK : text_chunks_visit(request->paths[0], text->kind, NO_SPLIT, text_split_find, text);
}

static int text_vocabulary_make(struct text *text)
{
  const struct trm_import_request *request = text->request;
  struct vocabulary *vocabulary = &text->vocabulary;
  if (text->kind == TRM_TOKEN_CHARACTERS) {
    vocabulary_of_characters(vocabulary, text->seen);
    return TRM_OK;
  }
  if (text->kind == TRM_TOKEN_BYTES) {
    vocabulary_of_bytes(vocabulary);
    return TRM_OK;
  }
  if (request->merges)
    return vocabulary_read(vocabulary, request->vocabulary_file, request->merges);
  TRM_CHECK(pretokenizer_open(&text->pretokenizer));
  TRM_CHECK(text_chunks_visit(request->paths[0], text->kind, text->split_at, text_words_count, text));
  vocabulary_learn(vocabulary, &text->words, text->count, request->vocabulary);
  if (vocabulary->size < request->vocabulary)
    trm_warn("%s: has no more pairs that occur twice: the vocabulary has %zu tokens, not %zu", request->paths[0],
             vocabulary->size, request->vocabulary);
  return TRM_OK;
}

static int text_writer_open(struct text *text)
{
  const struct trm_import_request *request = text->request;
  const struct vocabulary *vocabulary = &text->vocabulary;
  const bool pairs = text->kind == TRM_TOKEN_BPE;
  char *source = trm_format("text file %s, by %s%s", request->paths[0],
                            pairs ? "byte pairs of " : trm_token_kind_names[text->kind],
                            !pairs ? "" : request->merges ? request->merges : "its own");
  const struct trm_data_spec spec = {
    .kind = TRM_DATA_TOKENS,
    .target = TRM_TARGET_CLASS,
    .classes = vocabulary->size,
    .class_names = (const char *const *)vocabulary->name,
    .vocabulary = vocabulary->size,
    .encoding = &vocabulary->encoding,
    .source = source,
    .split = text->split_at == NO_SPLIT ? NULL : "last",
  };
  const int status = trm_import_begin(request, spec, &text->writer);
  trm_free(source);
  return status;
}

/* Copies the tokens of the files to the splits. */
static int text_tokens_copy(struct text *text)
{
  const struct trm_import_request *request = text->request;
  TRM_CHECK(trm_data_writer_split(text->writer, "train"));
  TRM_CHECK(text_chunks_visit(request->paths[0], text->kind, text->split_at, text_tokens_append, text));
  if (text->split_at != NO_SPLIT && !text->in_test)
    return trm_error(TRM_USAGE, "%s: has no white space behind byte %llu, where the test part begins; give a second "
                     "file as the test split", request->paths[0], (unsigned long long)text->split_at);
  if (request->count < 2)
    return TRM_OK;
  TRM_CHECK(trm_data_writer_split(text->writer, "test"));
  return text_chunks_visit(request->paths[1], text->kind, NO_SPLIT, text_tokens_append, text);
}

static int text_import(struct text *text)
{
  const struct trm_import_request *request = text->request;
  struct vocabulary *vocabulary = &text->vocabulary;
  TRM_CHECK(text_files_measure(text));
  TRM_CHECK(text_vocabulary_make(text));
  TRM_CHECK(trm_tokenizer_open(&text->tokenizer, request->vocabulary_file ? request->vocabulary_file
                                                                          : request->paths[0],
                               &vocabulary->encoding, vocabulary->name, vocabulary->size));
  TRM_CHECK(text_writer_open(text));
  return trm_import_end(text->writer, text_tokens_copy(text), 0);
}

/* Checks --tokens and the flags that belong to it. */
static int text_request_check(const struct trm_import_request *request, enum trm_token_kind *kind)
{
  const char *tokens = request->tokens ? request->tokens : "characters";
  int found = 0;
  while (found < TRM_TOKEN_KINDS && strcmp(tokens, trm_token_kind_names[found]) != 0)
    found++;
  *kind = (enum trm_token_kind)found;
  const bool pairs = *kind == TRM_TOKEN_BPE, files = request->merges || request->vocabulary_file;
  if (*kind == TRM_TOKEN_KINDS) {
    const char *near = trm_nearest_word(tokens, trm_token_kind_names);
    return trm_error(TRM_USAGE, "--tokens=%s: characters, bytes or bpe%s%s%s", tokens, near ? "; did you mean " : "",
                     near ? near : "", near ? "?" : "");
  }
  if (!pairs && (files || request->vocabulary))
    return trm_error(TRM_USAGE, "--vocab, --vocab-file and --merges are for --tokens=bpe");
  if (pairs && files && (!request->merges || !request->vocabulary_file))
    return trm_error(TRM_USAGE, "--vocab-file and --merges belong together: GPT-2's vocab.json and merges.txt");
  if (pairs && files == (request->vocabulary > 0))
    return trm_error(TRM_USAGE, "--tokens=bpe: --vocab=N learns N tokens from the text, --vocab-file and --merges read "
                     "them%s", files ? ": one or the other" : "; neither was given");
  if (pairs && !files && request->vocabulary <= 256)
    return trm_error(TRM_USAGE, "--vocab=%zu: byte pairs begin with the 256 bytes", request->vocabulary);
  return TRM_OK;
}

int trm_import_text(const struct trm_import_request *request)
{
  enum trm_target_kind target;
  bool random_split;
  struct text text = {.request = request};
  TRM_CHECK(trm_import_check(request, &target, &random_split));
  if (request->split && random_split)
    return trm_error(TRM_USAGE, "--split=random: a text is not shuffled, its last part becomes the test split; leave "
                     "out --split");
  TRM_CHECK(text_request_check(request, &text.kind));
  text.seen = trm_alloc(UTF8_CODES * sizeof *text.seen, "the table of characters");
  const int status = text_import(&text);
  trm_free(text.seen);
  pretokenizer_close(text.pretokenizer);
  wordset_free(&text.words);
  trm_free(text.count);
  vocabulary_free(&text.vocabulary);
  trm_tokenizer_close(text.tokenizer);
  trm_free(text.tokens.token);
  return status;
}
