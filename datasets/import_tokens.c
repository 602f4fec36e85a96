/* Import of texts by bytes or byte pairs (tokenizer.h). The file is read in passes: for its size, for the merges, which
 * are learned from the training part, and for the tokens. */
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "datasets/bpe.h"
#include "datasets/import.h"
#include "datasets/text_chunks.h"
#include "datasets/tokenizer.h"
#include "datasets/vocabulary.h"
#include "datasets/pretokenizer.h"

#define TEST_PART 0.1

static int tokens_text_measure(const char *path, bool bytes, uint64_t *size)
{
  struct text_chunks chunks;
  *size = 0;
  int status = text_chunks_open(&chunks, path, bytes, UINT64_MAX);
  const char *text;
  size_t got = 1;
  bool past_split;
  while (status == TRM_OK && got && (status = text_chunks_next(&chunks, &text, &got, &past_split)) == TRM_OK)
    *size += got;
  text_chunks_close(&chunks);
  if (status == TRM_OK && *size == 0)
    return trm_error(TRM_FAILED, "%s: the text is empty", path);
  return status;
}

/* Words and their counts. */
struct counts {
  struct wordset set;
  int64_t *count;
  size_t capacity;
};

/* Counts a word. A long word is split into several, since the cost of a merge grows with word length. */
static void tokens_word_count(struct counts *counts, const char *word, size_t bytes)
{
  for (size_t from = 0; from < bytes; from += BPE_MAX_BYTES) {
    bool added;
    const size_t length = bytes - from < BPE_MAX_BYTES ? bytes - from : BPE_MAX_BYTES;
    const size_t number = wordset_add(&counts->set, word + from, length, &added);
    counts->count =
      trm_grow(counts->count, &counts->capacity, number, number + 1, sizeof *counts->count, "counts of words");
    counts->count[number]++;
  }
}

/* Counts the words before split_at. */
static int tokens_words_count(const char *path, uint64_t split_at, struct counts *counts)
{
  struct text_chunks chunks;
  struct pretokenizer *pretokenizer;
  TRM_CHECK(pretokenizer_open(&pretokenizer));
  int status = text_chunks_open(&chunks, path, false, split_at);
  size_t got = 1;
  bool past_split = false;
  for (const char *text; status == TRM_OK && got && !past_split;) {
    status = text_chunks_next(&chunks, &text, &got, &past_split);
    for (size_t at = 0, end; status == TRM_OK && !past_split && at < got; at = end) {
      status = pretokenizer_next(pretokenizer, text, got, at, &end);
      if (status == TRM_OK)
        tokens_word_count(counts, text + at, end - at);
    }
  }
  text_chunks_close(&chunks);
  pretokenizer_close(pretokenizer);
  return status;
}

static int tokens_vocabulary_make(const struct trm_import_request *request, uint64_t split_at,
                                  struct vocabulary *vocabulary)
{
  if (!strcmp(request->tokens, "bytes")) {
    vocabulary_of_bytes(vocabulary);
    return TRM_OK;
  }
  if (request->merges)
    return vocabulary_read(vocabulary, request->vocabulary_file, request->merges);
  struct counts counts = {0};
  const int status = tokens_words_count(request->paths[0], split_at, &counts);
  if (status == TRM_OK) {
    vocabulary_learn(vocabulary, &counts.set, counts.count, request->vocabulary);
    if (vocabulary->size < request->vocabulary)
      trm_warn("%s: has no more pairs that occur twice: the vocabulary has %zu tokens, not %zu", request->paths[0],
               vocabulary->size, request->vocabulary);
  }
  wordset_free(&counts.set);
  trm_free(counts.count);
  return status;
}

/* Copies the tokens of a file to a split, those behind split_at to the test split. */
static int tokens_copy(struct trm_data_writer *writer, const char *path, const char *split, uint64_t split_at,
                       bool bytes, struct trm_tokenizer *tokenizer)
{
  struct text_chunks chunks;
  struct trm_tokens tokens = {0};
  int status = text_chunks_open(&chunks, path, bytes, split_at);
  if (status == TRM_OK)
    status = trm_data_writer_split(writer, split);
  size_t got = 1;
  bool past_split, in_test = false;
  while (status == TRM_OK && got) {
    const char *text;
    status = text_chunks_next(&chunks, &text, &got, &past_split);
    if (status == TRM_OK && past_split && got && !in_test) {
      status = trm_data_writer_split(writer, "test");
      in_test = true;
    }
    tokens.count = 0;
    if (status == TRM_OK)
      status = trm_tokenizer_encode(tokenizer, text, got, &tokens);
    const struct trm_data_rows rows = {.rows = tokens.count, .tokens = tokens.token, .text_bytes = got};
    if (status == TRM_OK && tokens.count)
      status = trm_data_writer_append(writer, &rows);
  }
  if (status == TRM_OK && split_at < chunks.offset && !in_test)
    status = trm_error(TRM_USAGE,
                       "%s: has no white space behind byte %llu, where the test part begins; give a second file as "
                       "the test split",
                       path, (unsigned long long)split_at);
  text_chunks_close(&chunks);
  trm_free(tokens.token);
  return status;
}

static int tokens_files_import(const struct trm_import_request *request, const struct vocabulary *vocabulary,
                               uint64_t size, uint64_t split_at, struct trm_tokenizer *tokenizer)
{
  const bool bytes = !strcmp(request->tokens, "bytes");
  char *source = trm_format("text file %s, by %s%s", request->paths[0], bytes ? "bytes" : "byte pairs of ",
                            bytes ? "" : request->merges ? request->merges : "its own");
  const struct trm_data_spec spec = {
    .kind = TRM_DATA_TOKENS,
    .target = TRM_TARGET_CLASS,
    .classes = vocabulary->size,
    .class_names = (const char *const *)vocabulary->name,
    .vocabulary = vocabulary->size,
    .encoding = &vocabulary->encoding,
    .source = source,
    .split = split_at < size ? "last" : NULL,
  };
  struct trm_data_writer *writer;
  int status = trm_import_begin(request, spec, &writer);
  trm_free(source);
  TRM_CHECK(status);
  status = tokens_copy(writer, request->paths[0], "train", split_at, bytes, tokenizer);
  if (status == TRM_OK && request->count == 2)
    status = tokens_copy(writer, request->paths[1], "test", UINT64_MAX, bytes, tokenizer);
  return trm_import_end(writer, status, 0);
}

int trm_import_tokens(const struct trm_import_request *request)
{
  uint64_t size, split_at = UINT64_MAX;
  const bool bytes = !strcmp(request->tokens, "bytes");
  TRM_CHECK(tokens_text_measure(request->paths[0], bytes, &size));
  if (request->count == 2)
    TRM_CHECK(tokens_text_measure(request->paths[1], bytes, &size));
  else
    TRM_CHECK(trm_import_train_rows(request, TEST_PART, size, &split_at));
  struct vocabulary vocabulary;
  struct trm_tokenizer *tokenizer = NULL;
  TRM_CHECK(tokens_vocabulary_make(request, split_at, &vocabulary));
  int status = trm_tokenizer_open(&tokenizer, request->vocabulary_file ? request->vocabulary_file : request->paths[0],
                                  &vocabulary.encoding, vocabulary.name, vocabulary.size);
  if (status == TRM_OK)
    status = tokens_files_import(request, &vocabulary, size, split_at, tokenizer);
  trm_tokenizer_close(tokenizer);
  vocabulary_free(&vocabulary);
  return status;
}
