/* A text as a row of characters: each Unicode character of a UTF-8 file is a token; the vocabulary is the set of
 * characters that occur, in order of code point, kept as the data set's class names. The file is read twice: first for
 * its characters, then to copy them. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/import.h"
#include "datasets/input.h"

#define CODES 0x110000 /* Unicode's range */
#define CHUNK 65536    /* bytes at once */
#define TEST_PART 0.1

/* A file being decoded. */
struct text {
  struct trm_reader *reader;
  size_t line;       /* of the byte at hand, from 1 */
  uint64_t codes;    /* characters so far */
  int32_t code;      /* what the bytes of an unfinished character came to */
  int left;          /* bytes it still wants */
  int32_t least;     /* the smallest code that needs so many bytes: less is an overlong form */
};

static int text_error(const struct text *text, const char *what)
{
  return trm_error(TRM_FAILED, "%s:%zu: is not valid UTF-8: %s", trm_reader_path(text->reader), text->line, what);
}

/* Takes one byte; *code becomes the character it completes, or stays -1. */
static int byte_decode(struct text *text, unsigned byte, int32_t *code)
{
  *code = -1;
  if (text->left) {
    if ((byte & 0xc0) != 0x80)
      return text_error(text, "a character is cut short");
    text->code = text->code << 6 | (int32_t)(byte & 0x3f);
    if (--text->left)
      return TRM_OK;
    if (text->code < text->least)
      return text_error(text, "a character in more bytes than it needs");
    if (text->code >= CODES || (text->code >= 0xd800 && text->code < 0xe000))
      return text_error(text, "a code outside of Unicode");
    *code = text->code;
    return TRM_OK;
  }
  if (byte < 0x80) {
    if (byte == 0)
      return text_error(text, "a NUL byte; this is not a text file");
    *code = (int32_t)byte;
    return TRM_OK;
  }
  if ((byte & 0xe0) == 0xc0)
    text->left = 1, text->code = (int32_t)(byte & 0x1f), text->least = 0x80;
  else if ((byte & 0xf0) == 0xe0)
    text->left = 2, text->code = (int32_t)(byte & 0x0f), text->least = 0x800;
  else if ((byte & 0xf8) == 0xf0)
    text->left = 3, text->code = (int32_t)(byte & 0x07), text->least = 0x10000;
  else
    return text_error(text, "a byte that begins no character");
  return TRM_OK;
}

static int text_open(struct text *text, const char *path)
{
  *text = (struct text){.line = 1};
  return trm_reader_open(&text->reader, path);
}

/* The next characters, at most CHUNK; *got 0 at the end. */
static int text_read(struct text *text, int32_t *codes, size_t *got)
{
  unsigned char bytes[CHUNK];
  size_t count;
  *got = 0;
  do {
    TRM_CHECK(trm_reader_bytes(text->reader, bytes, sizeof bytes, &count));
    for (size_t i = 0; i < count; i++) {
      int32_t code;
      TRM_CHECK(byte_decode(text, bytes[i], &code));
      text->line += code == '\n';
      const bool is_mark = code == 0xfeff && text->codes == 0 && *got == 0; /* a byte order mark is no character */
      if (code >= 0 && !is_mark)
        codes[(*got)++] = code;
    }
    if (!count && text->left)
      return text_error(text, "the last character is cut short");
  } while (count && !*got);
  text->codes += *got;
  return TRM_OK;
}

/* First pass: counts characters and marks those that occur. */
static int characters_scan(const char *path, int32_t *codes, int32_t *token, uint64_t *count)
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

static int tokens_append(struct trm_data_writer *writer, const int32_t *tokens, size_t count)
{
  const struct trm_data_rows rows = {.rows = count, .tokens = tokens};
  return count ? trm_data_writer_append(writer, &rows) : TRM_OK;
}

/* Second pass: a file's characters become a split; after `cut` of them the test split begins. */
static int characters_copy(struct trm_data_writer *writer, const char *path, const char *split, uint64_t cut,
                           int32_t *codes, const int32_t *token)
{
  struct text text;
  TRM_CHECK(text_open(&text, path));
  int status = trm_data_writer_split(writer, split);
  size_t got;
  for (uint64_t done = 0; status == TRM_OK && (status = text_read(&text, codes, &got)) == TRM_OK && got; done += got) {
    for (size_t i = 0; i < got && status == TRM_OK; i++) {
      codes[i] = token[codes[i]];
      if (codes[i] < 0)
        status = trm_error(TRM_FAILED, "%s: changes while it is read", path);
    }
    const bool test_begins = done <= cut && cut - done < got;
    const size_t head = test_begins ? (size_t)(cut - done) : got;
    if (status == TRM_OK)
      status = tokens_append(writer, codes, head);
    if (status == TRM_OK && test_begins)
      status = trm_data_writer_split(writer, "test");
    if (status == TRM_OK)
      status = tokens_append(writer, codes + head, got - head);
  }
  trm_reader_close(text.reader);
  return status;
}

/* Writes a character as UTF-8 with a NUL; returns what follows it. */
static char *code_encode(char *to, int32_t code)
{
  if (code < 0x80) {
    *to++ = (char)code;
  } else {
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int lead[4] = {0, 0xc0, 0xe0, 0xf0};
    *to++ = (char)(lead[more] | code >> (6 * more));
    for (int i = more - 1; i >= 0; i--)
      *to++ = (char)(0x80 | (code >> (6 * i) & 0x3f));
  }
  *to++ = '\0';
  return to;
}

/* Numbers the characters that occur, the others become -1; returns their UTF-8 forms, one block: trm_free. */
static const char **vocabulary_number(int32_t *token, size_t *size)
{
  *size = 0;
  for (int32_t code = 0; code < CODES; code++)
    token[code] = token[code] ? (int32_t)(*size)++ : -1;
  const char **names = trm_alloc(*size * (sizeof *names + 5), "vocabulary");
  char *at = (char *)(names + *size);
  for (int32_t code = 0; code < CODES; code++)
    if (token[code] >= 0) {
      names[token[code]] = at;
      at = code_encode(at, code);
    }
  return names;
}

static int files_import(const struct trm_import_request *request, int32_t *codes, int32_t *token)
{
  const char *train = request->paths[0], *test = request->count == 2 ? request->paths[1] : NULL;
  uint64_t count, test_count, cut = UINT64_MAX;
  TRM_CHECK(characters_scan(train, codes, token, &count));
  if (test)
    TRM_CHECK(characters_scan(test, codes, token, &test_count));
  else
    TRM_CHECK(trm_import_cut(request, TEST_PART, count, &cut));
  size_t vocabulary;
  const char **names = vocabulary_number(token, &vocabulary);
  char *source = trm_format("text file %s, by characters", train);
  const struct trm_data_spec spec = {
    .kind = TRM_DATA_TOKENS,
    .target = TRM_TARGET_CLASS,
    .classes = vocabulary,
    .class_names = names,
    .vocabulary = vocabulary,
    .source = source,
  };
  struct trm_data_writer *writer;
  int status = trm_import_begin(request, spec, &writer);
  trm_free(names);
  trm_free(source);
  TRM_CHECK(status);
  status = characters_copy(writer, train, "train", cut, codes, token);
  if (status == TRM_OK && test)
    status = characters_copy(writer, test, "test", UINT64_MAX, codes, token);
  return trm_import_end(writer, status, 0);
}

int trm_import_text(const struct trm_import_request *request)
{
  enum trm_target_kind target;
  TRM_CHECK(trm_import_check(request, &target));
  int32_t *codes = trm_alloc(CHUNK * sizeof *codes, "characters");
  int32_t *token = trm_alloc(CODES * sizeof *token, "the table of characters");
  const int status = files_import(request, codes, token);
  trm_free(codes);
  trm_free(token);
  return status;
}
