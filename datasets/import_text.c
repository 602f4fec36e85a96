/* Import of texts by characters: each Unicode character of a UTF-8 file is a token. The vocabulary is the set of
 * characters that occur, in order of code point, stored as the data set's class names. The file is read twice: for the
 * vocabulary, then to copy it. */
#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "datasets/import.h"
#include "datasets/file_reader.h"
#include "datasets/utf8.h"

#define CHUNK 65536 /* bytes at once */
#define TEST_PART 0.1

/* State of decoding a file. */
struct text {
  struct trm_reader *reader;
  size_t line;    /* of the current byte, from 1 */
  uint64_t codes; /* characters so far */
  struct utf8 state;
};

static int text_error(const struct text *text, const char *what)
{
  return trm_error(TRM_FAILED, "%s:%zu: is not valid UTF-8: %s", trm_reader_path(text->reader), text->line, what);
}

static int text_open(struct text *text, const char *path)
{
  *text = (struct text){.line = 1};
  return trm_reader_open(&text->reader, path);
}

/* Reads the next characters, at most CHUNK; *got is 0 at the end. */
static int text_read(struct text *text, int32_t *codes, size_t *got)
{
  unsigned char bytes[CHUNK];
  size_t count;
  *got = 0;
  do {
    TRM_CHECK(trm_reader_read(text->reader, bytes, sizeof bytes, &count));
    for (size_t i = 0; i < count; i++) {
      int32_t code;
      const char *wrong = utf8_decode(&text->state, bytes[i], &code);
      if (wrong)
        return text_error(text, wrong);
      text->line += code == '\n';
      const bool is_bom = code == 0xfeff && text->codes == 0 && *got == 0; /* ignores a byte order mark */
      if (code >= 0 && !is_bom)
        codes[(*got)++] = code;
    }
    if (!count && text->state.remaining)
      return text_error(text, "the last character is cut short");
  } while (count && !*got);
  text->codes += *got;
  return TRM_OK;
}

/* First pass: counts the characters and sets token[code] to 1 for those that occur. */
static int text_characters_scan(const char *path, int32_t *codes, int32_t *token, uint64_t *count)
{
  struct text text;
  TRM_CHECK(text_open(&text, path));
  int status;
  size_t got;
  while ((status = text_read(&text, codes, &got)) == TRM_OK && got)
    for (size_t i = 0; i < got; i++)
      token[codes[i]] = 1;
  *count = text.codes;
  trm_reader_close(text.reader);
  if (status == TRM_OK && *count == 0)
    return trm_error(TRM_FAILED, "%s: the text is empty", path);
  return status;
}

/* Replaces characters by tokens, in place, and appends them. */
static int text_characters_append(struct trm_data_writer *writer, const char *path, int32_t *codes, size_t count,
                                  const int32_t *token)
{
  struct trm_data_rows rows = {.rows = count, .tokens = codes};
  for (size_t i = 0; i < count; i++) {
    rows.text_bytes += utf8_length(codes[i]);
    codes[i] = token[codes[i]];
    if (codes[i] < 0)
      return trm_error(TRM_FAILED, "%s: changes while it is read", path);
  }
  return count ? trm_data_writer_append(writer, &rows) : TRM_OK;
}

/* Second pass: copies the characters of a file to a split; those after the first train_count to the test split. */
static int text_characters_copy(struct trm_data_writer *writer, const char *path, const char *split,
                                uint64_t train_count, int32_t *codes, const int32_t *token)
{
  struct text text;
  TRM_CHECK(text_open(&text, path));
  int status = trm_data_writer_split(writer, split);
  size_t got;
  for (uint64_t done = 0; status == TRM_OK && (status = text_read(&text, codes, &got)) == TRM_OK && got; done += got) {
    const bool test_begins = done <= train_count && train_count - done < got;
    const size_t head = test_begins ? (size_t)(train_count - done) : got;
    status = text_characters_append(writer, path, codes, head, token);
    if (status == TRM_OK && test_begins)
      status = trm_data_writer_split(writer, "test");
    if (status == TRM_OK)
      status = text_characters_append(writer, path, codes + head, got - head, token);
  }
  trm_reader_close(text.reader);
  return status;
}

/* Numbers the characters that occur; token[code] of the others becomes -1. Returns their UTF-8 forms, one block, owned
 * by the caller: trm_free. */
static const char **text_vocabulary_make(int32_t *token, size_t *size)
{
  *size = 0;
  for (int32_t code = 0; code < UTF8_CODES; code++)
    token[code] = token[code] ? (int32_t)(*size)++ : -1;
  const char **names = trm_alloc(*size * (sizeof *names + 5), "vocabulary");
  char *at = (char *)(names + *size);
  for (int32_t code = 0; code < UTF8_CODES; code++)
    if (token[code] >= 0) {
      names[token[code]] = at;
      at = utf8_encode(at, code) + 1; /* followed by a NUL */
    }
  return names;
}

static int text_files_import(const struct trm_import_request *request, int32_t *codes, int32_t *token)
{
  const char *train = request->paths[0], *test = request->count == 2 ? request->paths[1] : NULL;
  uint64_t count, test_count, train_count = UINT64_MAX;
  TRM_CHECK(text_characters_scan(train, codes, token, &count));
  if (test)
    TRM_CHECK(text_characters_scan(test, codes, token, &test_count));
  else
    TRM_CHECK(trm_import_train_rows(request, TEST_PART, count, &train_count));
  size_t vocabulary;
  const char **names = text_vocabulary_make(token, &vocabulary);
  char *source = trm_format("text file %s, by characters", train);
  const struct trm_encoding encoding = {.name = (char *)"characters"};
  const struct trm_data_spec spec = {
    .kind = TRM_DATA_TOKENS,
    .target = TRM_TARGET_CLASS,
    .classes = vocabulary,
    .class_names = names,
    .vocabulary = vocabulary,
    .encoding = &encoding,
    .source = source,
    .split = train_count < count ? "last" : NULL,
  };
  struct trm_data_writer *writer;
  int status = trm_import_begin(request, spec, &writer);
  trm_free(names);
  trm_free(source);
  TRM_CHECK(status);
  status = text_characters_copy(writer, train, "train", train_count, codes, token);
  if (status == TRM_OK && test)
    status = text_characters_copy(writer, test, "test", UINT64_MAX, codes, token);
  return trm_import_end(writer, status, 0);
}

/* Checks --tokens and the flags that belong to it. */
static int text_request_check(const struct trm_import_request *request, bool *characters)
{
  const char *tokens = request->tokens;
  static const char *const known[] = {"characters", "bytes", "bpe", NULL};
  *characters = !tokens || !strcmp(tokens, "characters");
  const bool pairs = tokens && !strcmp(tokens, "bpe"), files = request->merges || request->vocabulary_file;
  if (!*characters && !pairs && strcmp(tokens, "bytes") != 0) {
    const char *near = trm_nearest_word(tokens, known);
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
  bool characters, random_split;
  TRM_CHECK(trm_import_check(request, &target, &random_split));
  if (request->split && random_split)
    return trm_error(TRM_USAGE, "--split=random: a text is not shuffled, its last part becomes the test split; leave "
                     "out --split");
  TRM_CHECK(text_request_check(request, &characters));
  if (!characters)
    return trm_import_tokens(request);
  int32_t *codes = trm_alloc(CHUNK * sizeof *codes, "characters");
  int32_t *token = trm_alloc(UTF8_CODES * sizeof *token, "the table of characters");
  const int status = text_files_import(request, codes, token);
  trm_free(codes);
  trm_free(token);
  return status;
}
