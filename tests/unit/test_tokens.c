/* Tokenization: bytes and byte pairs compared with Hugging Face's tokenizers (tests/reference/make_bpe.py), GPT-2's
 * files, damaged files, and conversion back to text. */
#include "core/document.h"
#include "datasets/bpe.h"
#include "datasets/tokenizer.h"
#include "datasets/utf8.h"
#include "datasets/pretokenizer.h"
#include "import_files.h"

#ifdef HAVE_PCRE2
#define HAVE_WORDS true
#else
#define HAVE_WORDS false
#endif

#ifdef HAVE_LIBYAML
#define HAVE_JSON true
#else
#define HAVE_JSON false
#endif

static char *reference_path(const char *name)
{
  const char *source = getenv("top_srcdir");
  return trm_format("%s/tests/reference/%s", source ? source : ".", name);
}

/* Reads a whole file. The caller frees it. */
static char *file_read(const char *path, size_t *bytes)
{
  FILE *file = fopen(path, "rb");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  char *text = calloc(1 << 20, 1);
  *bytes = fread(text, 1, (1 << 20) - 1, file);
  fclose(file);
  return text;
}

/* -- the parts */

static void test_utf8(void)
{
  static const int32_t codes[] = {1, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    char text[4];
    const size_t length = (size_t)(utf8_encode(text, codes[i]) - text);
    CU_ASSERT_EQUAL(length, utf8_length(codes[i]));
    struct utf8 state = {0};
    int32_t code = -1;
    for (size_t j = 0; j < length; j++)
      CU_ASSERT_PTR_NULL(utf8_decode(&state, (unsigned char)text[j], &code));
    CU_ASSERT_EQUAL(code, codes[i]);
    CU_ASSERT_PTR_NULL(utf8_check(text, length));
    CU_ASSERT_EQUAL(utf8_check(text, length - 1) == NULL, length == 1);
  }
  static const char *const wrong[] = {"\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xff",
                                      "\xc3(", "\xe2\x82"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    CU_ASSERT_PTR_NOT_NULL(utf8_check(wrong[i], strlen(wrong[i])));
  CU_ASSERT_PTR_NOT_NULL(utf8_check("a\0b", 3));
}

/* The alphabet by its definition. */
static void test_alphabet(void)
{
  bool seen[0x200] = {false};
  for (int byte = 0; byte < 256; byte++) {
    const int32_t code = trm_byte_character((unsigned char)byte);
    CU_ASSERT(code > 32 && code < 0x144 && code != 127 && code != 0xad && !(code > 127 && code < 161) && !seen[code]);
    seen[code] = true;
  }
  CU_ASSERT_EQUAL(trm_byte_character('a'), 'a');
  CU_ASSERT_EQUAL(trm_byte_character(0), 0x100);
  CU_ASSERT_EQUAL(trm_byte_character(' '), 0x120);
  CU_ASSERT_EQUAL(trm_byte_character('\n'), 0x10a);
  CU_ASSERT_EQUAL(trm_byte_character(0xad), 0x143);
}

/* Byte pair encoding by definition: apply the earliest applicable merge, left to right, until none applies. */
static size_t join_slowly(const int32_t (*merge)[2], size_t merges, int32_t *token, size_t count)
{
  for (size_t m = 0; m < merges; m++) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
      const bool here = i + 1 < count && token[i] == merge[m][0] && token[i + 1] == merge[m][1];
      token[left++] = here ? (int32_t)(256 + m) : token[i];
      i += here;
    }
    count = left;
  }
  return count;
}

static void test_join(void)
{
  /* merges as if learned: of tokens that earlier merges made */
  enum { MERGES = 60 };
  int32_t merge[MERGES][2], result[MERGES];
  for (int m = 0; m < MERGES; m++) {
    result[m] = 256 + m;
    for (int side = 0; side < 2; side++) {
      const uint32_t any = made_mix((uint64_t)m, (uint64_t)side);
      merge[m][side] = any % 3 && m ? 256 + (int32_t)(any / 3 % (uint32_t)m) : (int32_t)(any / 3 % 3);
    }
    for (int k = 0; k < m; k++) /* no pair twice */
      if (merge[k][0] == merge[m][0] && merge[k][1] == merge[m][1]) {
        merge[m][0] = 200 + m; /* never occurs */
        break;
      }
  }
  struct bpe *bpe = bpe_open((const int32_t(*)[2])merge, result, MERGES);
  int32_t token[500], expected[500];
  size_t joined = 0;
  for (uint64_t trial = 0; trial < 300; trial++) {
    const size_t count = made_mix(trial, 1) % 500;
    for (size_t i = 0; i < count; i++)
      token[i] = expected[i] = (int32_t)(made_mix(trial, i + 2) % 3);
    const size_t left = bpe_apply(bpe, token, count);
    const size_t slow = join_slowly((const int32_t(*)[2])merge, MERGES, expected, count);
    CU_ASSERT_EQUAL(left, slow);
    CU_ASSERT_EQUAL(memcmp(token, expected, slow * sizeof *token), 0);
    joined += count - left;
  }
  CU_ASSERT(joined > 1000);
  bpe_close(bpe);
}

/* -- the reference */

static void tokens_check(const char *path)
{
  size_t bytes, count = 0;
  char *text = file_read(path, &bytes), *at = text;
  struct split split;
  split_read(&split, TRM_SPLIT_TRAIN, 100);
  size_t wrong = 0;
  for (size_t row = 0; row < split.dataset->rows; row++)
    for (int i = 0; i < 100; i++, count++)
      wrong += split.batch.tokens[row * 100 + (size_t)i] != (int32_t)strtol(at, &at, 10);
  CU_ASSERT(count >= 1000);
  CU_ASSERT_EQUAL(wrong, 0);
  split_free(&split);
  free(text);
}

/* Converts the tokens of out.h5 back to text. */
static void back_check(const char *path)
{
  size_t bytes, at = 0;
  char *text = file_read(path, &bytes);
  struct split split;
  split_read(&split, TRM_SPLIT_TRAIN, 100);
  struct trm_tokenizer *tokenizer;
  CU_ASSERT_EQUAL_FATAL(trm_tokenizer_open(&tokenizer, "out.h5", &split.dataset->encoding, split.dataset->class_names,
                                           split.dataset->spec.classes), TRM_OK);
  bool same = true;
  for (size_t i = 0; i < split.dataset->rows * 100; i++) {
    size_t length;
    const char *piece = trm_tokenizer_text(tokenizer, split.batch.tokens[i], &length);
    same = same && at + length <= bytes && !memcmp(text + at, piece, length);
    at += length;
  }
  CU_ASSERT(same && at > bytes / 2);
  struct trm_tokens tokens = {0};
  CU_ASSERT_EQUAL(trm_tokenizer_encode(tokenizer, text, bytes, &tokens), TRM_OK);
  CU_ASSERT_EQUAL(memcmp(tokens.token, split.batch.tokens, split.dataset->rows * 100 * sizeof *tokens.token), 0);
  CU_ASSERT_DOUBLE_EQUAL(split.dataset->token_bytes, (double)bytes / (double)tokens.count, 1e-9);
  trm_free(tokens.token);
  trm_tokenizer_close(tokenizer);
  split_free(&split);
  free(text);
}

static void test_reference(void)
{
  char *text = reference_path("bpe_text.txt"), *names = reference_path("bpe_vocab.json");
  char *merges = reference_path("bpe_merges.txt"), *tokens = reference_path("bpe_tokens.txt");
  char *both = trm_format("%s %s", text, text);
  struct trm_import_request request = plain;
  request.tokens = "bpe";
  request.vocabulary = 600;
  if (!HAVE_WORDS) {
    import_fails("text", both, &request, "byte pair encoding needs PCRE2");
  } else {
    for (int learned = !HAVE_JSON; learned < 2; learned++) {
      request.vocabulary = learned ? 600 : 0;
      request.vocabulary_file = learned ? NULL : names;
      request.merges = learned ? NULL : merges;
      const int status = import_run("text", both, request);
      if (status != TRM_OK)
        printf("%s\n", trm_error_text());
      CU_ASSERT_EQUAL_FATAL(status, TRM_OK);
      tokens_check(tokens);
      back_check(text);
      out_remove();
    }
  }
  trm_free(both);
  trm_free(text);
  trm_free(names);
  trm_free(merges);
  trm_free(tokens);
}

/* Words do not depend on how the text is split for reading. */
static void test_words(void)
{
  if (!HAVE_WORDS)
    return;
  static const char text[] = "It's  a\n\n  dog's 12x ,; \xc2\xa0\xe3\x80\x80z\t";
  static const char *const expected[] = {"It", "'s", " ", " a", "\n\n ", " dog", "'s", " 12",
                                       "x", " ,;", " \xc2\xa0", "\xe3\x80\x80", "z", "\t"};
  struct pretokenizer *words;
  CU_ASSERT_EQUAL_FATAL(pretokenizer_open(&words), TRM_OK);
  const size_t bytes = sizeof text - 1;
  bool begins[sizeof text] = {false};
  size_t at = 0, end, n = 0;
  for (; at < bytes; at = end, n++) {
    CU_ASSERT_EQUAL_FATAL(pretokenizer_next(words, text, bytes, at, &end), TRM_OK);
    begins[at] = true;
    CU_ASSERT_FATAL(n < sizeof expected / sizeof *expected);
    CU_ASSERT(strlen(expected[n]) == end - at && !memcmp(expected[n], text + at, end - at));
  }
  CU_ASSERT_EQUAL(n, sizeof expected / sizeof *expected);
  size_t parts = 0;
  for (at = 1; at < bytes; at++)
    if (pretokenizer_is_boundary(text, bytes, at)) {
      CU_ASSERT(begins[at]);
      parts++;
      for (size_t from = 0; from < at; from = end) /* words before a boundary do not depend on what follows */
        CU_ASSERT_EQUAL_FATAL(pretokenizer_next(words, text, at, from, &end), TRM_OK);
    }
  CU_ASSERT_EQUAL(parts, 6);
  pretokenizer_close(words);
}

/* -- bytes, and the split */

static void test_bytes(void)
{
  unsigned char all[1000];
  for (size_t i = 0; i < sizeof all; i++)
    all[i] = (unsigned char)(i * 7);
  file_write("binary", all, sizeof all);
  struct trm_import_request request = {.test_part = 0.2, .tokens = "bytes"};
  CU_ASSERT_EQUAL_FATAL(import_run("text", "binary", request), TRM_OK);
  struct split split;
  split_read(&split, TRM_SPLIT_TRAIN, 799);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 1);
  CU_ASSERT_EQUAL(split.dataset->spec.classes, 256);
  CU_ASSERT_EQUAL(split.dataset->token_bytes, 1);
  CU_ASSERT_STRING_EQUAL(split.dataset->encoding.name, "bytes");
  for (int i = 0; i < 799; i++)
    CU_ASSERT_EQUAL(split.batch.tokens[i], all[i]);
  split_free(&split);
  split_read(&split, TRM_SPLIT_TEST, 199);
  CU_ASSERT_EQUAL_FATAL(split.dataset->rows, 1);
  CU_ASSERT_EQUAL(split.batch.tokens[0], all[800]);
  split_free(&split);
  out_remove();
}

/* Byte pair data is split before the next white space; no pair is learned from the test split. */
static void test_cut(void)
{
  if (!HAVE_WORDS)
    return;
  static const char text[] = "ab ab ab ab abcd cdcdcdcdcd";
  file_write("cut", text, strlen(text));
  struct trm_import_request request = {.test_part = 0.5, .tokens = "bpe", .vocabulary = 258};
  CU_ASSERT_EQUAL_FATAL(import_run("text", "cut", request), TRM_OK);
  struct split split;
  split_read(&split, TRM_SPLIT_TRAIN, 2);
  CU_ASSERT_EQUAL(split.dataset->encoding.merges, 2);
  CU_ASSERT_STRING_EQUAL(split.dataset->class_names[256], "ab");
  CU_ASSERT_STRING_EQUAL(split.dataset->class_names[257], "\xc4\xa0""ab");
  CU_ASSERT_DOUBLE_EQUAL(split.dataset->token_bytes, 16.0 / 7, 1e-12); /* ab, 3 times " ab", " ab" "c" "d" */
  split_free(&split);
  split_read(&split, TRM_SPLIT_TEST, 10);
  CU_ASSERT_DOUBLE_EQUAL(split.dataset->token_bytes, 1, 1e-12);
  split_free(&split);
  out_remove();
  file_write("whole", "abababababababababab", 20);
  request.vocabulary = 257;
  import_fails("text", "whole", &request, "whole: has no white space behind byte 10");
}

/* -- GPT-2's files */

/* vocab.json as OpenAI writes it, with escapes; `more` follows the bytes. */
static void names_write(const char *name, const char *more)
{
  char *text = calloc(1 << 16, 1), *to = text;
  *to++ = '{';
  for (int byte = 0; byte < 256; byte++) {
    const int32_t code = trm_byte_character((unsigned char)byte);
    if (code == '"' || code == '\\')
      to += sprintf(to, "\"\\%c\": %d, ", (char)code, byte);
    else if (code < 127)
      to += sprintf(to, "\"%c\": %d, ", (char)code, byte);
    else
      to += sprintf(to, "\"\\u%04x\": %d, ", (unsigned)code, byte);
  }
  to += sprintf(to, "%s", more);
  file_write(name, text, (size_t)(to - text));
  free(text);
}

static void text_write(const char *name, const char *text)
{
  file_write(name, text, strlen(text));
}

static struct trm_import_request files_request(char **names, char **merges)
{
  *names = file_name("vocab.json");
  *merges = file_name("merges.txt");
  return (struct trm_import_request){.test_part = -1, .tokens = "bpe", .vocabulary_file = *names, .merges = *merges};
}

static void test_gpt2_files(void)
{
  if (!HAVE_WORDS || !HAVE_JSON)
    return;
  char *names, *merges;
  const struct trm_import_request request = files_request(&names, &merges);
  names_write("vocab.json", "\"he\": 257, \"\\u0120he\": 256, \"<|endoftext|>\": 258}");
  text_write("merges.txt", "#version: 0.2\nh e\n\xc4\xa0 he\n");
  text_write("text", "he he hehe");
  CU_ASSERT_EQUAL_FATAL(import_run("text", "text text", request), TRM_OK);
  struct split split;
  static const int32_t expected[] = {257, 256, 256};
  split_read(&split, TRM_SPLIT_TRAIN, 3);
  CU_ASSERT_EQUAL(memcmp(split.batch.tokens, expected, sizeof expected), 0);
  CU_ASSERT_EQUAL(split.batch.target_class[2], 257);
  struct trm_tokenizer *tokenizer;
  CU_ASSERT_EQUAL_FATAL(trm_tokenizer_open(&tokenizer, "out.h5", &split.dataset->encoding,
                                           split.dataset->class_names, 259), TRM_OK);
  size_t bytes;
  const char *text = trm_tokenizer_text(tokenizer, 258, &bytes);
  CU_ASSERT(bytes == 13 && !memcmp(text, "<|endoftext|>", 13));
  text = trm_tokenizer_text(tokenizer, 256, &bytes);
  CU_ASSERT(bytes == 3 && !memcmp(text, " he", 3));
  trm_tokenizer_close(tokenizer);
  split_free(&split);
  out_remove();
  trm_free(names);
  trm_free(merges);
}

static void test_damaged_files(void)
{
  if (!HAVE_JSON)
    return;
  char *names, *merges;
  struct trm_import_request request = files_request(&names, &merges);
  text_write("text", "he he hehe");
  static const struct {
    const char *names, *merges, *what;
  } bad[] = {
    {"\"he\": 256", "h e\n", "vocab.json:2"},
    {"\"he\": 256, \"x\"", "h e\n", "vocab.json:2"},
    {"\"he\": 257}", "h e\n", "vocab.json:1: \"he\" is token 257, but the 257 tokens are 0 to 256"},
    {"\"he\": -1}", "h e\n", "\"he\" is token -1"},
    {"\"he\": 7, \"th\": 256}", "h e\n", "\"he\" is token 7, and so is"},
    {"\"he\": two}", "h e\n", "\"he\" has no number"},
    {"\"he\": [256]}", "h e\n", "\"he\" has no number"},
    {"\"he\": 256.5}", "h e\n", "\"he\" has no number"},
    {"\"h\": 256}", "h e\n", "\"h\" is there twice"},
    {"\"he\": 256}", "h e\ne x y\n", "merges.txt:2: a merge is two names"},
    {"\"he\": 256}", "#version: 0.2\nh e\nhe\n", "merges.txt:3: a merge is two names"},
    {"\"he\": 256}", "h th\n", "merges.txt:1: the vocabulary has no \"th\""},
    {"\"he\": 256}", "h e\nt h\n", "merges.txt:2: the vocabulary has not what the merge \"t h\" makes"},
    {"\"he\": 256}", "h e\nh e\n", "merges.txt:2: the merge \"h e\" is there already"},
    {"\"he\": 256}", "#version: 0.2\n", "merges.txt: has no merges"},
    {"\"he\": 256}", "h\xff e\n", "merges.txt:1"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    names_write("vocab.json", bad[i].names);
    text_write("merges.txt", bad[i].merges);
    import_fails("text", "text text", &request, bad[i].what);
  }
  text_write("merges.txt", "h e\n");
  text_write("vocab.json", "{\"h\": 0, \"e\": 1, \"he\": 2}");
  import_fails("text", "text text", &request, "vocab.json: the vocabulary has no token \"\xc4\x80\" for the byte 0x00");
  text_write("vocab.json", "[1, 2]");
  import_fails("text", "text text", &request, "vocab.json: not an object");
  text_write("vocab.json", "");
  import_fails("text", "text text", &request, "vocab.json: not an object");
  names_write("vocab.json", "\"he\": 256}");
  request.merges = "/nowhere/merges.txt";
  import_fails("text", "text text", &request, "/nowhere/merges.txt");
  request.merges = merges;
  request.vocabulary_file = "/nowhere/vocab.json";
  import_fails("text", "text text", &request, "/nowhere/vocab.json");
  trm_free(names);
  trm_free(merges);
}

static void test_requests(void)
{
  text_write("text", "he he hehe he");
  static const struct {
    struct trm_import_request request;
    const char *what;
  } bad[] = {
    {{.test_part = -1, .tokens = "byts"}, "--tokens=byts: characters, bytes or bpe; did you mean bytes?"},
    {{.test_part = -1, .tokens = "bpe"}, "neither was given"},
    {{.test_part = -1, .tokens = "bpe", .vocabulary = 300, .merges = "m", .vocabulary_file = "v"}, "one or the other"},
    {{.test_part = -1, .tokens = "bpe", .merges = "m"}, "belong together"},
    {{.test_part = -1, .tokens = "bytes", .vocabulary = 300}, "are for --tokens=bpe"},
    {{.test_part = -1, .merges = "m", .vocabulary_file = "v"}, "are for --tokens=bpe"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    import_fails("text", "text", &bad[i].request, bad[i].what);
  struct trm_import_request request = {.test_part = -1, .tokens = "bpe", .vocabulary = 300};
  text_write("bad", "two\nlines \xc3(");
  import_fails("text", "bad", &request, "bad:2: is not valid UTF-8: a character is cut short");
  text_write("empty", "");
  import_fails("text", "empty", &request, "empty: the text is empty");
  request = (struct trm_import_request){.test_part = -1, .tokens = "bytes"};
  import_fails("text", "empty", &request, "empty: the text is empty");
}

/* -- vocabularies from a file */

static void test_open_refuses(void)
{
  char *names[300], *pairs[3] = {(char *)"a", (char *)"b", (char *)"a"};
  char letters[256][5] = {{0}};
  for (int byte = 0; byte < 256; byte++) {
    utf8_encode(letters[byte], trm_byte_character((unsigned char)byte));
    names[byte] = letters[byte];
  }
  names[256] = (char *)"ab";
  int32_t merge[2][2] = {{'a', 'b'}, {'a', 300}};
  struct trm_tokenizer *tokenizer;
  const struct {
    struct trm_encoding encoding;
    char **names;
    size_t size;
    const char *what;
  } bad[] = {
    {{.name = NULL}, names, 257, "f.h5: has no vocabulary"},
    {{.name = (char *)"bytes"}, NULL, 256, "f.h5: has no vocabulary"},
    {{.name = (char *)"words"}, names, 257, "tokens are \"words\", none of characters, bytes, bpe"},
    {{.name = (char *)"bytes"}, names, 257, "a vocabulary of bytes has 256 tokens, not 257"},
    {{.name = (char *)"characters"}, pairs, 3, "token 2 has the name of an earlier one"},
    {{.name = (char *)"bpe", .merge = merge, .merges = 1}, names, 256,
     "merge 0 makes \"ab\", which is not in the vocabulary"},
    {{.name = (char *)"bpe", .merge = merge, .merges = 2}, names, 257, "merge 1 joins tokens 97 and 300"},
    {{.name = (char *)"bpe", .merge = merge, .merges = 1}, names + 1, 256,
     "has no token \"\xc4\x80\" for the byte 0x00"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    CU_ASSERT_NOT_EQUAL(trm_tokenizer_open(&tokenizer, "f.h5", &bad[i].encoding, bad[i].names, bad[i].size), TRM_OK);
    CU_ASSERT_PTR_NULL(tokenizer);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), bad[i].what));
  }
  const struct trm_encoding characters = {.name = (char *)"characters"};
  struct trm_tokens tokens = {0};
  CU_ASSERT_EQUAL_FATAL(trm_tokenizer_open(&tokenizer, "f.h5", &characters, pairs, 2), TRM_OK);
  CU_ASSERT_EQUAL(trm_tokenizer_encode(tokenizer, "abba", 4, &tokens), TRM_OK);
  CU_ASSERT(tokens.count == 4 && tokens.token[1] == 1 && tokens.token[3] == 0);
  CU_ASSERT_EQUAL(trm_tokenizer_encode(tokenizer, "ab\xc3\xa9", 4, &tokens), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "the character \"\xc3\xa9\" (U+00E9) is not in the vocabulary"));
  CU_ASSERT_EQUAL(trm_tokenizer_encode(tokenizer, "\xc3", 1, &tokens), TRM_USAGE);
  trm_free(tokens.token);
  trm_tokenizer_close(tokenizer);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"UTF-8", test_utf8},
    {"the alphabet of bytes", test_alphabet},
    {"merging", test_join},
    {"words", test_words},
    {"byte pairs against the reference", test_reference},
    {"bytes", test_bytes},
    {"the test split", test_cut},
    {"GPT-2's files", test_gpt2_files},
    {"GPT-2's files, damaged", test_damaged_files},
    {"invalid requests", test_requests},
    {"refused vocabularies", test_open_refuses},
    CU_TEST_INFO_NULL,
  };
  return import_suite("tokens", tests);
}
