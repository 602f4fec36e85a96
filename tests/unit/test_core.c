/* The core: status, log, memory, random numbers, SHA-256, documents, options, the communicator of one rank. */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "core/comm.h"
#include "core/document.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/random.h"
#include "core/sha256.h"
#include "core/status.h"
#include "suite.h"

/* The recorded error holds this part; shows it where it does not. */
static bool error_has(const char *part)
{
  const bool has = strstr(trm_error_text(), part) != NULL;
  if (!has)
    fprintf(stderr, "error \"%s\" lacks \"%s\"\n", trm_error_text(), part);
  return has;
}

/* What a stream wrote: begin, write, end; the text is the caller's to free (malloc). */
struct capture {
  FILE *stream;
  char *text;
  size_t bytes;
};
static FILE *capture_begin(struct capture *capture)
{
  *capture = (struct capture){0};
  return capture->stream = open_memstream(&capture->text, &capture->bytes);
}

/* Runs `work` in a child whose stderr is ends[1]; gives what comes out of ends[0] and its exit status. */
static int child_read(void (*work)(void), const int ends[2], char *text, size_t room)
{
  fflush(NULL);
  const pid_t child = fork();
  if (child < 0)
    return -1;
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    work();
    fflush(stderr);
    _exit(0);
  }
  close(ends[1]);
  size_t held = 0;
  for (ssize_t got; held < room - 1 && (got = read(ends[0], text + held, room - 1 - held)) > 0;)
    held += (size_t)got;
  text[held] = '\0';
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* stderr is a pipe. */
static int child_run(void (*work)(void), char *text, size_t room)
{
  int ends[2];
  return pipe(ends) == 0 ? child_read(work, ends, text, room) : -1;
}

/* stderr is a terminal of 20 columns. */
static int child_run_terminal(void (*work)(void), char *text, size_t room)
{
  const struct winsize size = {.ws_row = 10, .ws_col = 20};
  int ends[2] = {posix_openpt(O_RDWR | O_NOCTTY), -1};
  if (ends[0] < 0 || grantpt(ends[0]) != 0 || unlockpt(ends[0]) != 0)
    return -1;
  ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
  if (ends[1] < 0 || ioctl(ends[1], TIOCSWINSZ, &size) != 0)
    return -1;
  setenv("TERM", "xterm", 1);
  return child_read(work, ends, text, room);
}

/* ---- status and log */

static int failing(void)
{
  TRM_CHECK(trm_error(TRM_USAGE, "option %s: %d", "a.b", 3));
  return TRM_OK;
}

static void *other_thread(void *text)
{
  strcpy(text, trm_error_text());
  trm_error(TRM_FAILED, "elsewhere");
  return NULL;
}

static void test_status(void)
{
  CU_ASSERT_EQUAL(failing(), TRM_USAGE);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "option a.b: 3");
  CU_ASSERT_EQUAL(trm_error_context(TRM_FAILED, "%s:%d", "file", 7), TRM_FAILED);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "file:7: option a.b: 3");
  trm_error(TRM_FAILED, "again: %s", trm_error_text());
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "again: file:7: option a.b: 3");

  char text[256] = "unset";
  pthread_t thread;
  CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, other_thread, text), 0);
  pthread_join(thread, NULL);
  CU_ASSERT_STRING_EQUAL(text, "");
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "again: file:7: option a.b: 3");

  for (int i = 0; i < 20; i++) { /* grows past any buffer */
    char *twice = trm_format("%s%s", trm_error_text(), trm_error_text());
    trm_error_context(TRM_FAILED, "%s", twice);
    trm_free(twice);
  }
  const size_t length = strlen(trm_error_text());
  CU_ASSERT(length > 1000 && length < 5000);
  CU_ASSERT_STRING_EQUAL(trm_error_text() + length - 3, "...");
}

static void work_log(void)
{
  trm_log_identity(0, 4);
  trm_info("info %d", 1);
  trm_progress("step %d", 2);
  trm_warn("careful");
  trm_error(TRM_FAILED, "broken %%");
  trm_log_error();
  trm_progress_end();
  trm_log_quiet(true);
  trm_info("not this");
  trm_log_quiet(false);
  trm_log_identity(3, 4);
  if (trm_log_rank() != 3)
    _exit(9);
  trm_info("nor this");
  trm_warn("third");
  trm_log_identity(0, 1);
  trm_warn("alone");
}

static void work_abort(void)
{
  trm_alloc((size_t)1 << 62, "the impossible array");
}

static void hook(int status)
{
  fprintf(stderr, "hook %d\n", status);
  _exit(41);
}

static void work_hook(void)
{
  trm_set_abort(hook);
  trm_abort(TRM_STOPPED);
}

static void work_terminal(void)
{
  trm_progress("step %d", 1);
  trm_progress("step %d, and more than 20 columns", 2);
  trm_warn("careful");
  trm_progress_end();
  trm_progress_end();
  trm_info("done");
  trm_log_quiet(true);
  trm_progress("not this");
}

static void test_log(void)
{
  char text[4096];
  CU_ASSERT_EQUAL(child_run_terminal(work_terminal, text, sizeof text), 0);
  CU_ASSERT_STRING_EQUAL(text, "\r\033[Kstep 1\r\033[Kstep 2, and more th\r\033[Ktrireme: warning: careful\r\n"
                               "step 2, and more th\r\ndone\r\n");
  CU_ASSERT_EQUAL(child_run(work_log, text, sizeof text), 0);
  CU_ASSERT_STRING_EQUAL(text, "info 1\nstep 2\ntrireme: rank 0: warning: careful\ntrireme: rank 0: error: broken %\n"
                               "trireme: rank 3: warning: third\ntrireme: warning: alone\n");
  CU_ASSERT_EQUAL(child_run(work_abort, text, sizeof text), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "error: out of memory"));
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "the impossible array"));
  CU_ASSERT_EQUAL(child_run(work_hook, text, sizeof text), 41);
  CU_ASSERT_STRING_EQUAL(text, "hook 3\n");
}

/* ---- memory */

static void test_memory_held(void)
{
  const size_t before = trm_memory_held();
  char *small = trm_alloc(1000, "a test"), *large = trm_alloc((size_t)40 << 20, "a test");
  struct trm_comm *self = trm_comm_self();
  struct trm_shared shared;
  CU_ASSERT_EQUAL_FATAL(self->ops->share(self, 5000000, "a test", &shared), TRM_OK);
  CU_ASSERT(trm_memory_held() >= before + 1000 + ((size_t)40 << 20) + 5000000);
  const size_t resident = trm_memory_resident();
  memset(large, 1, (size_t)40 << 20);
  CU_ASSERT(trm_memory_resident() >= resident + ((size_t)39 << 20));
  CU_ASSERT(trm_memory_most() >= resident + ((size_t)39 << 20));
  self->ops->unshare(self, &shared);
  trm_free(small);
  trm_free(large);
  CU_ASSERT_EQUAL(trm_memory_held(), before);
}

static void test_memory(void)
{
  static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 2097151, 2097152, 2097153, 9000001};
  char *block[sizeof sizes / sizeof *sizes];
  const size_t count = sizeof sizes / sizeof *sizes;
  for (size_t i = 0; i < count; i++) {
    block[i] = trm_alloc(sizes[i], "a test");
    CU_ASSERT_EQUAL((uintptr_t)block[i] % TRM_ALIGNMENT, 0);
    size_t zeros = 0;
    for (size_t j = 0; j < sizes[i]; j++)
      zeros += block[i][j] == 0;
    CU_ASSERT_EQUAL(zeros, sizes[i]);
    memset(block[i], (int)i + 1, sizes[i]);
  }
  CU_ASSERT_EQUAL((uintptr_t)block[8] % ((size_t)2 << 20), 0);
  for (size_t i = 0; i < count; i++) { /* no block reaches into another */
    size_t kept = 0;
    for (size_t j = 0; j < sizes[i]; j++)
      kept += block[i][j] == (char)(i + 1);
    CU_ASSERT_EQUAL(kept, sizes[i]);
    trm_free(block[i]);
  }
  trm_free(NULL);
  trm_advise_huge(NULL, 0);
  char *text = trm_format("%d-%s", 42, "x");
  CU_ASSERT_STRING_EQUAL(text, "42-x");
  char *copy = trm_strdup(text);
  CU_ASSERT_STRING_EQUAL(copy, text);
  CU_ASSERT_PTR_NOT_EQUAL(copy, text);
  trm_free(copy);
  trm_free(text);
}

/* ---- random numbers */

/* The vectors that Random123 publishes for philox4x32, 10 rounds (kat_vectors). */
static void test_philox(void)
{
  static const struct {
    uint32_t counter[4], key[2], out[4];
  } known[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    uint32_t out[4];
    trm_philox(known[i].counter, known[i].key, out);
    CU_ASSERT_EQUAL(memcmp(out, known[i].out, sizeof out), 0);
  }
  uint32_t block[4], out[4];
  const uint32_t counter[4] = {0x55667788, 0x11223344, 9, TRM_RANDOM_BENCH}, key[2] = {0xddeeff00, 0xaabbcc};
  trm_random_block(UINT64_C(0x00aabbccddeeff00), TRM_RANDOM_BENCH, 9, UINT64_C(0x1122334455667788), block);
  trm_philox(counter, key, out);
  CU_ASSERT_EQUAL(memcmp(block, out, sizeof out), 0);
}

static void test_uniform(void)
{
  enum { N = 100000 };
  double sum = 0, squares = 0, lagged = 0;
  float last = 0;
  int bin[16] = {0};
  bool inside = true;
  for (uint64_t i = 0; i < N; i++) {
    const float u = trm_random_uniform(7, TRM_RANDOM_BENCH, 3, i);
    inside = inside && u >= 0 && u < 1;
    bin[(int)(u * 16) & 15]++;
    sum += u;
    squares += (double)u * u;
    lagged += ((double)u - 0.5) * ((double)last - 0.5);
    last = u;
  }
  CU_ASSERT(inside);
  CU_ASSERT_DOUBLE_EQUAL(sum / N, 0.5, 5 * sqrt(1.0 / 12 / N));
  CU_ASSERT_DOUBLE_EQUAL(squares / N, 1.0 / 3, 5 * sqrt(4.0 / 45 / N));
  CU_ASSERT_DOUBLE_EQUAL(lagged / N, 0, 5 * sqrt(1.0 / 144 / N));
  double chi = 0;
  for (int i = 0; i < 16; i++)
    chi += (bin[i] - N / 16.0) * (bin[i] - N / 16.0) / (N / 16.0);
  CU_ASSERT(chi < 44.3); /* 15 degrees of freedom: exceeded by chance once in 10,000 */

  /* word i % 4 of block i / 4 */
  uint32_t word[4];
  trm_random_block(7, TRM_RANDOM_BENCH, 3, 25, word);
  for (uint64_t i = 0; i < 4; i++)
    CU_ASSERT_EQUAL(trm_random_uniform(7, TRM_RANDOM_BENCH, 3, 100 + i), (float)(word[i] >> 8) / 16777216.0f);
  /* seeds, purposes and streams are apart */
  const float u = trm_random_uniform(7, TRM_RANDOM_BENCH, 3, 0);
  CU_ASSERT_NOT_EQUAL(u, trm_random_uniform(8, TRM_RANDOM_BENCH, 3, 0));
  CU_ASSERT_NOT_EQUAL(u, trm_random_uniform(7 + (UINT64_C(1) << 32), TRM_RANDOM_BENCH, 3, 0));
  CU_ASSERT_NOT_EQUAL(u, trm_random_uniform(7, TRM_RANDOM_INIT, 3, 0));
  CU_ASSERT_NOT_EQUAL(u, trm_random_uniform(7, TRM_RANDOM_BENCH, 4, 0));
  CU_ASSERT_NOT_EQUAL(u, trm_random_uniform(7, TRM_RANDOM_BENCH, 3, UINT64_C(4) << 32));
}

static void test_normal(void)
{
  enum { N = 100000 };
  double moment[5] = {0}, lagged = 0, last = 0;
  for (uint64_t i = 0; i < N; i++) {
    const double x = trm_random_normal(11, TRM_RANDOM_INIT, 1, i);
    for (int m = 1; m <= 4; m++)
      moment[m] += pow(x, m) / N;
    lagged += x * last / N;
    last = x;
  }
  CU_ASSERT_DOUBLE_EQUAL(moment[1], 0, 5 * sqrt(1.0 / N));
  CU_ASSERT_DOUBLE_EQUAL(moment[2], 1, 5 * sqrt(2.0 / N));
  CU_ASSERT_DOUBLE_EQUAL(moment[3], 0, 5 * sqrt(15.0 / N));
  CU_ASSERT_DOUBLE_EQUAL(moment[4], 3, 5 * sqrt(96.0 / N));
  CU_ASSERT_DOUBLE_EQUAL(lagged, 0, 5 * sqrt(1.0 / N));

  uint32_t word[4];
  trm_random_block(11, TRM_RANDOM_INIT, 1, 2, word);
  const double radius = sqrt(-2 * log((word[2] + 1.0) / 4294967296.0));
  CU_ASSERT_DOUBLE_EQUAL(trm_random_normal(11, TRM_RANDOM_INIT, 1, 5),
                         radius * cos(2 * 3.14159265358979323846 * word[3] / 4294967296.0), 1e-6);
}

/* Is position -> element a bijection of 0..n-1? */
static bool permutes(uint64_t n, uint32_t stream)
{
  unsigned char *hit = trm_alloc(n, "a test");
  uint64_t hits = 0;
  for (uint64_t i = 0; i < n; i++) {
    const uint64_t element = trm_random_permute(5, TRM_RANDOM_SHUFFLE, stream, n, i);
    if (element < n && !hit[element]) {
      hit[element] = 1;
      hits++;
    }
  }
  trm_free(hit);
  return hits == n;
}

static void test_permute(void)
{
  uint64_t whole = 0;
  for (uint64_t n = 1; n <= 300; n++)
    whole += permutes(n, (uint32_t)n);
  CU_ASSERT_EQUAL(whole, 300);
  CU_ASSERT(permutes(60000, 0));
  CU_ASSERT(permutes(65536, 1));
  CU_ASSERT(permutes(65537, 1));

  /* epochs and seeds differ: two random orders of 60,000 agree at 1 place on average */
  int same_stream = 0, same_seed = 0, fixed = 0, followed = 0;
  uint64_t last = 0;
  for (uint64_t i = 0; i < 60000; i++) {
    const uint64_t element = trm_random_permute(5, TRM_RANDOM_SHUFFLE, 0, 60000, i);
    same_stream += element == trm_random_permute(5, TRM_RANDOM_SHUFFLE, 1, 60000, i);
    same_seed += element == trm_random_permute(6, TRM_RANDOM_SHUFFLE, 0, 60000, i);
    fixed += element == i;
    followed += element == last + 1;
    last = element;
  }
  CU_ASSERT(same_stream < 12);
  CU_ASSERT(same_seed < 12);
  CU_ASSERT(fixed < 12);
  CU_ASSERT(followed < 12);

  /* small n: every one of the 24 orders of 4 comes up, about equally often */
  int orders[256] = {0};
  enum { DRAWS = 24000 };
  for (uint32_t stream = 0; stream < DRAWS; stream++) {
    unsigned order = 0;
    for (uint64_t i = 0; i < 4; i++)
      order = order << 2 | (unsigned)trm_random_permute(5, TRM_RANDOM_SHUFFLE, stream, 4, i);
    orders[order]++;
  }
  int seen = 0, least = DRAWS, most = 0;
  for (int i = 0; i < 256; i++) {
    if (orders[i] == 0)
      continue;
    seen++;
    least = orders[i] < least ? orders[i] : least;
    most = orders[i] > most ? orders[i] : most;
  }
  CU_ASSERT_EQUAL(seen, 24);
  CU_ASSERT(least > 800 && most < 1200);

  CU_ASSERT_EQUAL(trm_random_permute(5, TRM_RANDOM_SHUFFLE, 0, 1, 0), 0);
  const uint64_t huge = UINT64_MAX;
  CU_ASSERT_NOT_EQUAL(trm_random_permute(5, TRM_RANDOM_SHUFFLE, 0, huge, 0),
                      trm_random_permute(5, TRM_RANDOM_SHUFFLE, 0, huge, 1));
}

/* Many at a time are what they are one by one. */
static void test_permute_many(void)
{
  const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 65536, 65537, (UINT64_C(1) << 34) + 7, UINT64_MAX};
  const size_t counts[] = {0, 1, 7, 8, 9, 64, 1000};
  uint64_t many[1000];
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
    for (size_t c = 0; c < sizeof counts / sizeof counts[0] && counts[c] <= sizes[s]; c++) {
      const uint64_t n = sizes[s], seed = UINT64_C(0x123456789abcdef0) + c, last = n - counts[c];
      const uint64_t firsts[] = {0, last / 2, last};
      size_t wrong = 0;
      for (int f = 0; f < 3; f++) {
        trm_random_permute_many(seed, TRM_RANDOM_SHUFFLE, UINT32_C(0xfedcba98), n, firsts[f], counts[c], many);
        for (size_t i = 0; i < counts[c]; i++)
          wrong += many[i] != trm_random_permute(seed, TRM_RANDOM_SHUFFLE, UINT32_C(0xfedcba98), n, firsts[f] + i);
      }
      CU_ASSERT_EQUAL(wrong, 0);
    }
}

/* ---- SHA-256 */

static void test_sha256(void)
{
  char hex[65], again[65];
  struct trm_sha256 hash;
  trm_sha256_begin(&hash);
  trm_sha256_end(&hash, hex);
  CU_ASSERT_STRING_EQUAL(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  trm_sha256_begin(&hash);
  trm_sha256_add(&hash, "abc", 3);
  trm_sha256_end(&hash, hex);
  CU_ASSERT_STRING_EQUAL(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  trm_sha256_begin(&hash);
  trm_sha256_add(&hash, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56);
  trm_sha256_end(&hash, hex);
  CU_ASSERT_STRING_EQUAL(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");

  char *million = trm_alloc(1000000, "a test");
  memset(million, 'a', 1000000);
  trm_sha256_begin(&hash);
  trm_sha256_add(&hash, million, 1000000);
  trm_sha256_end(&hash, hex);
  CU_ASSERT_STRING_EQUAL(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  /* the same in pieces of every size around a block */
  trm_sha256_begin(&hash);
  size_t done = 0;
  for (size_t piece = 0; done < 1000000; piece = (piece + 1) % 131) {
    const size_t part = piece < 1000000 - done ? piece : 1000000 - done;
    trm_sha256_add(&hash, million + done, part);
    done += part;
  }
  trm_sha256_end(&hash, again);
  CU_ASSERT_STRING_EQUAL(again, hex);
  trm_free(million);
}

/* ---- documents */

static void test_json(void)
{
  struct capture capture;
  struct trm_json json;
  trm_json_open(&json, capture_begin(&capture));
  trm_json_object(&json, NULL);
  trm_json_text(&json, "text", "a\"b\\c\n\t\x01 \xc3\xa4 \xff\xc0\x80 \xed\xa0\x80!");
  trm_json_number(&json, "tenth", 0.1);
  trm_json_number(&json, "nan", NAN);
  trm_json_number(&json, "infinite", -INFINITY);
  trm_json_integer(&json, "least", INT64_MIN);
  trm_json_bool(&json, "yes", true);
  trm_json_text(&json, "null", NULL);
  trm_json_list(&json, "list");
  trm_json_number(&json, NULL, 1);
  trm_json_object(&json, NULL);
  trm_json_end(&json);
  trm_json_list(&json, NULL);
  trm_json_end(&json);
  trm_json_end(&json);
  trm_json_number(&json, "after", -2.5e-7);
  trm_json_end(&json);
  fclose(capture.stream);
  CU_ASSERT_STRING_EQUAL(capture.text,
                         "{\"text\":\"a\\\"b\\\\c\\n\\t\\u0001 \xc3\xa4 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd "
                         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd!\",\"tenth\":0.1,\"nan\":null,\"infinite\":null,"
                         "\"least\":-9223372036854775808,\"yes\":true,\"null\":null,\"list\":[1,{},[]],"
                         "\"after\":-2.5e-07}\n");
  free(capture.text);

  /* levels beyond the limit vanish, those within it stay closed */
  trm_json_open(&json, capture_begin(&capture));
  for (int i = 0; i < TRM_JSON_DEPTH + 4; i++)
    trm_json_list(&json, NULL);
  trm_json_number(&json, NULL, 1);
  for (int i = 0; i < TRM_JSON_DEPTH + 4; i++)
    trm_json_end(&json);
  fclose(capture.stream);
  CU_ASSERT_STRING_EQUAL(capture.text, "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]\n");
  free(capture.text);
}

static void test_number_text(void)
{
  char text[32];
  CU_ASSERT_STRING_EQUAL(trm_number_text(0, text), "0");
  CU_ASSERT_STRING_EQUAL(trm_number_text(0.1, text), "0.1");
  CU_ASSERT_STRING_EQUAL(trm_number_text(60000, text), "60000");
  CU_ASSERT_STRING_EQUAL(trm_number_text(-0.0, text), "-0");
  CU_ASSERT_STRING_EQUAL(trm_number_text(1e15, text), "1e+15");
  CU_ASSERT_STRING_EQUAL(trm_number_text(999999999999999, text), "999999999999999");
  CU_ASSERT_STRING_EQUAL(trm_number_text(0x1p53, text), "9007199254740992");
  CU_ASSERT_STRING_EQUAL(trm_number_text(0.1 + 0.2, text), "0.30000000000000004");
  CU_ASSERT_EQUAL(strtod(trm_number_text(DBL_MAX, text), NULL), DBL_MAX);
  CU_ASSERT_EQUAL(strtod(trm_number_text(DBL_TRUE_MIN, text), NULL), DBL_TRUE_MIN);
  int same = 0;
  for (uint64_t i = 0; i < 10000; i++) { /* doubles of all magnitudes, from their bits */
    uint32_t word[4];
    trm_random_block(1, TRM_RANDOM_BENCH, 0, i, word);
    const uint64_t bits = ((uint64_t)word[0] << 32 | word[1]) & ~(UINT64_C(1) << 62);
    double value;
    memcpy(&value, &bits, sizeof value);
    same += strtod(trm_number_text(value, text), NULL) == value;
  }
  CU_ASSERT_EQUAL(same, 10000);
}

#ifdef HAVE_LIBYAML

static int parse(const char *text, struct trm_node **root)
{
  return trm_document_parse(text, strlen(text), "test.yaml", root);
}

static void test_document(void)
{
  struct trm_node *root = NULL;
  CU_ASSERT_EQUAL_FATAL(parse("a: 1.5\nb:\n  c: {d: no, e: [x, 'y z', {f: 2}]}\n\n\"g h\": |\n  two\n  lines\n", &root),
                        TRM_OK);
  CU_ASSERT_EQUAL(root->kind, TRM_NODE_MAP);
  CU_ASSERT_EQUAL(trm_node_number(trm_node_get(root, "a"), -1), 1.5);
  CU_ASSERT_EQUAL(trm_node_number(trm_node_get(root, "b.c.d"), -1), -1);
  CU_ASSERT_EQUAL(trm_node_number(trm_node_get(root, "b"), -1), -1);
  CU_ASSERT_EQUAL(trm_node_number(NULL, -1), -1);
  CU_ASSERT_STRING_EQUAL(trm_node_get(root, "b.c.d")->text, "no");
  CU_ASSERT_PTR_NULL(trm_node_get(root, "b.d"));
  CU_ASSERT_PTR_NULL(trm_node_get(root, "b.c.d.e"));
  CU_ASSERT_PTR_NULL(trm_node_get(root, ""));
  const struct trm_node *list = trm_node_get(root, "b.c.e");
  CU_ASSERT_PTR_NOT_NULL_FATAL(list);
  CU_ASSERT_EQUAL(list->kind, TRM_NODE_LIST);
  CU_ASSERT_EQUAL(list->line, 3);
  CU_ASSERT_STRING_EQUAL(list->first->next->text, "y z");
  CU_ASSERT_EQUAL(trm_node_number(trm_node_get(list->first->next->next, "f"), 0), 2);
  CU_ASSERT_PTR_NULL(list->first->next->next->next);
  CU_ASSERT_STRING_EQUAL(trm_node_get(root, "g h")->text, "two\nlines\n");
  CU_ASSERT_EQUAL(trm_node_get(root, "g h")->line, 5);
  trm_node_free(root);

  CU_ASSERT_EQUAL(parse("# nothing\n", &root), TRM_OK);
  CU_ASSERT(root && root->kind == TRM_NODE_MAP && !root->first);
  trm_node_free(root);
  trm_node_free(NULL);

  /* what the writer writes, the reader reads */
  struct capture capture;
  struct trm_json json;
  const char *wild = "a\"b\\c\n\t\x01\x7f \xc3\xa4 {[:,#";
  trm_json_open(&json, capture_begin(&capture));
  trm_json_object(&json, NULL);
  trm_json_text(&json, wild, wild);
  trm_json_number(&json, "x", 1e-300);
  trm_json_end(&json);
  fclose(capture.stream);
  CU_ASSERT_EQUAL_FATAL(parse(capture.text, &root), TRM_OK);
  CU_ASSERT_STRING_EQUAL(root->first->key, wild);
  CU_ASSERT_STRING_EQUAL(root->first->text, wild);
  CU_ASSERT_EQUAL(trm_node_number(trm_node_get(root, "x"), 0), 1e-300);
  trm_node_free(root);
  free(capture.text);
}

static void test_document_refused(void)
{
  static const struct {
    const char *text, *error;
  } wrong[] = {
      {"a: 1\n b: [2\n", "test.yaml:2:"},
      {"a: &x 1\n", "test.yaml:1:4: anchors"},
      {"a: &x {b: 1}\n", "anchors"},
      {"a: &x [1]\n", "anchors"},
      {"a: *x\n", "test.yaml:1:4: aliases"},
      {"{a: 1, [b, c]: 2}\n", "the name of an entry"},
      {"a: 1\n? {b: c}\n: 2\n", "test.yaml:2:3: the name of an entry"},
      {"a: 1\n---\nb: 2\n", "test.yaml:2:1: a second document"},
      {"a: \"x\\0y\"\n", "NUL"},
      {"a: \x01\n", "test.yaml: byte 3"},
      {"a: \xff\n", "test.yaml: byte"},
  };
  struct trm_node *root;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    CU_ASSERT_EQUAL(parse(wrong[i].text, &root), TRM_USAGE);
    CU_ASSERT(error_has(wrong[i].error));
    CU_ASSERT_PTR_NULL(root);
  }
  enum { DEEP = 10000 };
  char *deep = trm_alloc(DEEP + 1, "a test");
  memset(deep, '[', DEEP);
  CU_ASSERT_EQUAL(parse(deep, &root), TRM_USAGE);
  CU_ASSERT(error_has("nested too deeply"));
  for (int i = 0; i + 1 < DEEP; i += 2)
    memcpy(deep + i, "- ", 2);
  CU_ASSERT_NOT_EQUAL(parse(deep, &root), TRM_OK);
  trm_free(deep);
  CU_ASSERT_EQUAL(trm_document_read("/nonexistent/x.yaml", &root), TRM_USAGE);
  CU_ASSERT(error_has("/nonexistent/x.yaml: "));
  CU_ASSERT_NOT_EQUAL(trm_document_read("/", &root), TRM_OK);
}

/* Truncated and damaged texts: a status or a tree, and nothing else (the sanitizers watch). */
static void test_document_damaged(void)
{
  static const char good[] = "a: {b: [1, \"x\\n\", {c: 'd'}], e: |\n   f\n  }\n- g: &h [*h, ? i]\n";
  uint32_t word[4];
  int read = 0;
  for (uint64_t i = 0; i < 3000; i++) {
    char text[sizeof good];
    memcpy(text, good, sizeof good);
    size_t bytes = sizeof good - 1;
    trm_random_block(3, TRM_RANDOM_BENCH, 1, i, word);
    if (i < bytes)
      bytes = i;
    else
      for (int j = 0; j < 4; j++)
        text[word[j] % bytes] = (char)(word[j] >> 16);
    struct trm_node *root = NULL;
    const int status = trm_document_parse(text, bytes, "damaged", &root);
    read += (status == TRM_OK) == (root != NULL);
    trm_node_free(root);
  }
  CU_ASSERT_EQUAL(read, 3000);
}

#else

static void test_document(void)
{
  struct trm_node *root;
  CU_ASSERT_EQUAL(trm_document_parse("a: 1\n", 5, "test.yaml", &root), TRM_USAGE);
  CU_ASSERT(error_has("libyaml"));
  CU_ASSERT_PTR_NULL(root);
}

#endif

/* ---- options */

static void test_options_default(void)
{
  struct trm_options options;
  int rows = 0;
  trm_options_default(&options);
  for (const struct trm_option *row = trm_option_table; row->name; row++, rows++) {
    if (trm_options_set(&options, row->name, row->otherwise) != TRM_OK)
      CU_FAIL("a default that its own row refuses");
    for (const struct trm_option *other = trm_option_table; other != row; other++)
      CU_ASSERT(strcmp(other->name, row->name) != 0 && other->offset != row->offset);
    CU_ASSERT(row->offset < sizeof options);
    CU_ASSERT(row->help && *row->help && !strchr(row->help, '\n'));
  }
  CU_ASSERT(rows > 40);
  CU_ASSERT_EQUAL(options.data.memory, INT64_C(1) << 30);
  CU_ASSERT_EQUAL(options.parallel.bucket, 4 << 20);
  CU_ASSERT_EQUAL(options.parallel.data, -1);
  CU_ASSERT_EQUAL(options.optim.rate, 0.1);
  CU_ASSERT_EQUAL(options.optim.epsilon, 1e-8);
  CU_ASSERT_STRING_EQUAL(options.strategy.name, "sync");
  CU_ASSERT_STRING_EQUAL(options.model, "");
  CU_ASSERT_STRING_EQUAL(options.data.shuffle, "yes");
  CU_ASSERT_FALSE(options.run.overwrite);
  trm_options_free(&options);
  CU_ASSERT_PTR_NULL(options.model);
}

static void test_options_set(void)
{
  static const struct {
    const char *name, *value, *error; /* error NULL: taken */
  } given[] = {
      {"train.batch", "12", NULL},
      {"train.batch", "+12", NULL},
      {"train.batch", "12x", "option train.batch: \"12x\" is not a whole number"},
      {"train.batch", "", "option train.batch: \"\" is not a whole number"},
      {"train.batch", " 12", "is not a whole number"},
      {"train.batch", "12 ", "is not a whole number"},
      {"train.batch", "1.5", "is not a whole number"},
      {"train.batch", "1e3", "is not a whole number"},
      {"train.batch", "0x10", "is not a whole number"},
      {"train.batch", "nan", "is not a whole number"},
      {"train.batch", "0", "option train.batch: 0 is too small: at least 1"},
      {"train.batch", "-3", "at least 1"},
      {"train.batch", "9223372036854775807", NULL},
      {"train.batch", "9223372036854775808", "too large"},
      {"parallel.data", "-1", NULL},
      {"parallel.data", "-2", "at least -1"},
      {"parallel.pipeline", "-2", "option parallel.pipeline: -2 is out of range: -1 to 4096"},
      {"parallel.zero", "4", "option parallel.zero: 4 is out of range: 0 to 3"},
      {"data.threads", "2", "option data.threads: 2 is out of range: 0 to 1"},
      {"optim.lr", "0.05", NULL},
      {"optim.lr", ".5", NULL},
      {"optim.lr", "1e-3", NULL},
      {"optim.lr", "nan", "option optim.lr: \"nan\" is not a number"},
      {"optim.lr", "inf", "is not a number"},
      {"optim.lr", "1e999", "too large"},
      {"optim.lr", "0.1f", "is not a number"},
      {"optim.lr", "0x1p-3", "is not a number"},
      {"optim.lr", "--1", "is not a number"},
      {"optim.lr", "", "is not a number"},
      {"optim.lr", "-0.1", "at least 0"},
      {"optim.momentum", "1.5", "0 to 1"},
      {"optim.beta2", "1", "out of range"},
      {"optim.name", "adam", NULL},
      {"optim.name", "ada", "option optim.name: \"ada\" is not one of sgd|momentum|nesterov|adagrad|adam|adamw"},
      {"optim.name", "sgd|momentum", "is not one of"},
      {"optim.name", "", "is not one of"},
      {"data.memory", "512M", NULL},
      {"data.memory", "1.5g", NULL},
      {"data.memory", "2097152", NULL},
      {"data.memory", "4X", "option data.memory: \"4X\" is not a number of bytes"},
      {"data.memory", "4GB", "is not a number of bytes"},
      {"data.memory", "G", "is not a number of bytes"},
      {"data.memory", "", "is not a number of bytes"},
      {"data.memory", "0.3", "is not a whole number of bytes"},
      {"data.memory", "1K", "out of range"},
      {"data.memory", "9e200T", "out of range"},
      {"data.memory", "9e300T", "too large"},
      {"data.shuffle", "no", NULL},
      {"data.shuffle", "maybe", "is not one of yes|no"},
      {"data.drop_last", "on", NULL},
      {"data.drop_last", "maybe", "option data.drop_last: \"maybe\" is neither yes nor no"},
      {"run.dir", "a \xc3\xa4 b", NULL},
      {"run.dir", "a\xff", "not UTF-8"},
      {"train.bacth", "1", "unknown option \"train.bacth\"; did you mean \"train.batch\"?"},
      {"batch", "1", "unknown option \"batch\"; did you mean \"train.batch\"?"},
      {"strategy", "sync", "\"strategy\" is a section"},
      {"xyzzy.quux", "1", "unknown option \"xyzzy.quux\" (trireme options lists all)"},
      {"", "1", "unknown option \"\""},
  };
  struct trm_options options;
  trm_options_default(&options);
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    trm_error(TRM_OK, "(no error)");
    const int status = trm_options_set(&options, given[i].name, given[i].value);
    if (status != (given[i].error ? TRM_USAGE : TRM_OK))
      fprintf(stderr, "%s=%s: status %d\n", given[i].name, given[i].value, status);
    CU_ASSERT_EQUAL(status, given[i].error ? TRM_USAGE : TRM_OK);
    CU_ASSERT(error_has(given[i].error ? given[i].error : "(no error)"));
  }
  /* the last accepted value stands; a refused one changes nothing */
  CU_ASSERT_EQUAL(options.train.batch, INT64_MAX);
  CU_ASSERT_EQUAL(options.optim.rate, 1e-3);
  CU_ASSERT_STRING_EQUAL(options.optim.name, "adam");
  CU_ASSERT_EQUAL(options.data.memory, 2097152);
  CU_ASSERT_STRING_EQUAL(options.data.shuffle, "no");
  CU_ASSERT_TRUE(options.data.drop_last);
  CU_ASSERT_STRING_EQUAL(options.run.dir, "a \xc3\xa4 b");
  CU_ASSERT_EQUAL(trm_options_set(&options, "data.memory", "1.5g"), TRM_OK);
  CU_ASSERT_EQUAL(options.data.memory, INT64_C(3) << 29);
  CU_ASSERT_EQUAL(trm_options_set(&options, "data.shuffle", "1"), TRM_OK);
  CU_ASSERT_STRING_EQUAL(options.data.shuffle, "yes");
  static const char *const truths[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
  for (int i = 0; i < 8; i++) {
    CU_ASSERT_EQUAL(trm_options_set(&options, "log.quiet", truths[i]), TRM_OK);
    CU_ASSERT_EQUAL(options.log.quiet, i % 2 == 1);
  }
  trm_options_free(&options);
}

static void test_nearest(void)
{
  static const char *const known[] = {"train", "data", "parallel", "lr", NULL};
  CU_ASSERT_PTR_EQUAL(trm_nearest("trian", known), known[0]);
  CU_ASSERT_PTR_EQUAL(trm_nearest("trai", known), known[0]);
  CU_ASSERT_PTR_EQUAL(trm_nearest("dataa", known), known[1]);
  CU_ASSERT_PTR_EQUAL(trm_nearest("paralel", known), known[2]);
  CU_ASSERT_PTR_EQUAL(trm_nearest("rl", known), known[3]); /* an exchange is one change */
  CU_ASSERT_PTR_NULL(trm_nearest("zzzzz", known));
  CU_ASSERT_PTR_NULL(trm_nearest("", known));
  char word[500];
  memset(word, 'a', sizeof word - 1);
  word[sizeof word - 1] = '\0';
  CU_ASSERT_PTR_NULL(trm_nearest(word, known));
}

static void test_options_print(void)
{
  struct capture capture;
  CU_ASSERT_EQUAL(trm_options_print(capture_begin(&capture), "run"), TRM_OK);
  fclose(capture.stream);
  int lines = 0;
  for (char *line = strtok(capture.text, "\n"); line; line = strtok(NULL, "\n"), lines++)
    CU_ASSERT_EQUAL(strncmp(line, "run.", 4), 0);
  CU_ASSERT_EQUAL(lines, 11);
  free(capture.text);

  CU_ASSERT_EQUAL(trm_options_print(capture_begin(&capture), NULL), TRM_OK);
  fclose(capture.stream);
  for (const struct trm_option *row = trm_option_table; row->name; row++)
    CU_ASSERT(strstr(capture.text, row->name) && strstr(capture.text, row->help));
  free(capture.text);

  CU_ASSERT_EQUAL(trm_options_print(capture_begin(&capture), "trian"), TRM_USAGE);
  CU_ASSERT(error_has("unknown section \"trian\"; did you mean \"train\"?"));
  fclose(capture.stream);
  CU_ASSERT_STRING_EQUAL(capture.text, "");
  free(capture.text);
}

#ifdef HAVE_LIBYAML

static char config_path[] = "test_core_XXXXXX";

/* Reads `text` as a configuration file over the defaults. */
static int options_of(const char *text, struct trm_options *options)
{
  FILE *file = fopen(config_path, "w");
  if (!file)
    return -1;
  fputs(text, file);
  fclose(file);
  trm_options_default(options);
  return trm_options_read(options, config_path);
}

static void test_options_read(void)
{
  struct trm_options options;
  const int made = mkstemp(config_path);
  CU_ASSERT_FATAL(made >= 0);
  close(made);

  CU_ASSERT_EQUAL(options_of("model: mlp 784-10 relu\ndata: {file: d.h5, shuffle: no}\noptim:\n  lr: 0.25\n  name: adam\n"
                             "strategy:\nrun:\n  overwrite: yes\n", &options), TRM_OK);
  CU_ASSERT_STRING_EQUAL(options.model, "mlp 784-10 relu");
  CU_ASSERT_STRING_EQUAL(options.data.file, "d.h5");
  CU_ASSERT_STRING_EQUAL(options.data.shuffle, "no");
  CU_ASSERT_EQUAL(options.optim.rate, 0.25);
  CU_ASSERT_STRING_EQUAL(options.optim.name, "adam");
  CU_ASSERT_STRING_EQUAL(options.strategy.name, "sync");
  CU_ASSERT_TRUE(options.run.overwrite);
  trm_options_free(&options);

  CU_ASSERT_EQUAL(options_of("model:\n  - linear 256\n  - relu\n  - dropout: 0.5\n  - {linear: 10, bias: no}\n  - relu:\n",
                             &options), TRM_OK);
  CU_ASSERT_STRING_EQUAL(options.model, "linear 256 | relu | dropout 0.5 | linear 10 bias=no | relu");
  trm_options_free(&options);
  CU_ASSERT_EQUAL(options_of("", &options), TRM_OK);
  trm_options_free(&options);
  static const char *const with_init[] = {"model: {text: gpt, init: w.safetensors}\ntrain.batch: 7\n",
                                          "model:\n  init: w.safetensors\n  text: [gpt]\ntrain: {batch: 7}\n",
                                          "model: gpt\nmodel.init: w.safetensors\ntrain.batch: 7\n"};
  for (size_t i = 0; i < sizeof with_init / sizeof *with_init; i++) {
    CU_ASSERT_EQUAL(options_of(with_init[i], &options), TRM_OK);
    CU_ASSERT_STRING_EQUAL(options.model, "gpt");
    CU_ASSERT_STRING_EQUAL(options.model_init, "w.safetensors");
    CU_ASSERT_EQUAL(options.train.batch, 7);
    trm_options_free(&options);
  }

  static const struct {
    const char *text, *error;
  } wrong[] = {
      {"data: {file: x}\ntrian: {batch: 3}\n", ":2: unknown section \"trian\"; did you mean \"train\"?"},
      {"train:\n  epochs: 1\n  bacth: 3\n", ":3: unknown option \"train.bacth\"; did you mean \"train.batch\"?"},
      {"train:\n  batch: 12x\n", ":2: option train.batch: \"12x\" is not a whole number"},
      {"train:\n  batch: 1\n  batch: 2\n", ":3: option train.batch is given twice"},
      {"train: {batch: 1}\ndata: {file: x}\ntrain: {epochs: 2}\n", ":3: section train is given twice (first in line 1)"},
      {"train: {batch: [1, 2]}\n", ":1: option train.batch takes one value"},
      {"strategy: sync\n", ":1: section strategy holds entries (strategy: {KEY: VALUE}) with these keys: name"},
      {"strategy: [name]\n", ":1: section strategy holds entries"},
      {"model: {linear: 3}\n", ":1: model: is a text"},
      {"model: {text: {linear: 3}}\n", ":1: model: is a text"},
      {"model: {text: gpt, init: [a]}\n", ":1: option model.init takes one value"},
      {"train: {batch: 1}\ntrain.batch: 2\n", ":2: option train.batch is given twice"},
      {"train.bacth: 2\n", ":1: unknown option \"train.bacth\"; did you mean \"train.batch\"?"},
      {"model: [[linear, 3]]\n", ":1: an item of the model"},
      {"model: [{}]\n", ":1: an item of the model"},
      {"model:\n  - conv: [1, 2]\n", ":2: model: conv takes one value"},
      {"- 1\n", ":1: a configuration is a map of sections"},
      {"just a text\n", ":1: a configuration is a map of sections"},
      {"data: {file: [}\n", ":1:"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    CU_ASSERT_EQUAL(options_of(wrong[i].text, &options), TRM_USAGE);
    CU_ASSERT(error_has(wrong[i].error));
    CU_ASSERT(error_has(config_path));
    trm_options_free(&options);
  }
  CU_ASSERT_EQUAL(trm_options_read(&options, "/nonexistent/c.yaml"), TRM_USAGE);
  remove(config_path);
}

/* Written and read again, every option is what it was, bit for bit. */
static void test_options_write(void)
{
  static const char *const texts[] = {"plain/path-1.h5", "", "yes", "two words | 'q' \"d\" \\ #x: {y}", " lead", "-", "...", "a..",
                                      "\xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\xa3", "tab\tline\nbell\x07\x7f\xc2\x85\xc2\xa0 \xe2\x80\xa8 x \xc2\x85 y",
                                      "\xef\xbb\xbf\xef\xbf\xbe~null", "1e5", "[a]", "&a", "*a", "!t", "%d", "@", "`", "?", "x: y"};
  static const double reals[] = {0.1, 1.0 / 3, 1e-300, 2.2250738585072014e-308, 12345678.9, 1, 0.30000000000000004};
  struct trm_options options, again;
  for (size_t round = 0; round < sizeof texts / sizeof *texts; round++) {
    trm_options_default(&options);
    trm_free(options.run.dir), trm_free(options.model), trm_free(options.optim.milestones);
    options.run.dir = trm_strdup(texts[round]);
    options.model = trm_strdup(texts[(round + 1) % (sizeof texts / sizeof *texts)]);
    CU_ASSERT_EQUAL(trm_options_set(&options, "model.init", texts[(round + 3) % (sizeof texts / sizeof *texts)]), TRM_OK);
    options.optim.milestones = trm_strdup(texts[(round + 2) % (sizeof texts / sizeof *texts)]);
    options.optim.rate = reals[round % 7];
    options.optim.l2 = reals[(round + 3) % 7];
    options.run.seed = INT64_MAX - (int64_t)round;
    options.data.memory = (INT64_C(1) << 49) + 12345 + (int64_t)round;
    options.run.overwrite = round % 2;
    CU_ASSERT_EQUAL(trm_options_set(&options, "parallel.share", round % 2 ? "numa" : "none"), TRM_OK);

    struct capture capture;
    CU_ASSERT_EQUAL(trm_options_write(&options, capture_begin(&capture), "trireme 1\nsecond line: {"), TRM_OK);
    fclose(capture.stream);
    CU_ASSERT_EQUAL(strncmp(capture.text, "# trireme 1\n# second line: {\nmodel: ", 36), 0);
    const int status = options_of(capture.text, &again);
    CU_ASSERT_EQUAL(status, TRM_OK);
    if (status != TRM_OK)
      fprintf(stderr, "%s\n%s\n", trm_error_text(), capture.text);
    for (const struct trm_option *row = trm_option_table; row->name; row++) {
      const char *a = (const char *)&options + row->offset, *b = (const char *)&again + row->offset;
      if (row->type == TRM_OPTION_TEXT || row->type == TRM_OPTION_CHOICE)
        CU_ASSERT_STRING_EQUAL(*(char *const *)a, *(char *const *)b)
      else
        CU_ASSERT_EQUAL(memcmp(a, b, row->type == TRM_OPTION_BOOL ? sizeof(bool) : 8), 0);
    }
    free(capture.text);
    trm_options_free(&options);
    trm_options_free(&again);
  }
  remove(config_path);

  trm_options_default(&options);
  FILE *full = fopen("/dev/full", "w");
  if (full) {
    setvbuf(full, NULL, _IONBF, 0);
    CU_ASSERT_EQUAL(trm_options_write(&options, full, NULL), TRM_FAILED);
    fclose(full);
  }
  trm_options_free(&options);
}

#endif

/* ---- communicator of one rank */

static void test_interval(void)
{
  size_t low, high, wrong = 0;
  for (size_t n = 0; n < 40; n++) {
    for (size_t parts = 1; parts < 20; parts++) {
      size_t end = 0;
      for (size_t i = 0; i < parts; i++) {
        trm_interval(n, parts, i, &low, &high);
        wrong += low != end || high - low < n / parts || high - low > n / parts + 1;
        end = high;
        size_t first, middle, other, last;
        trm_interval(n, 2 * parts, 2 * i, &first, &middle);
        trm_interval(n, 2 * parts, 2 * i + 1, &other, &last);
        wrong += first != low || middle != other || last != high;
      }
      wrong += end != n;
    }
  }
  CU_ASSERT_EQUAL(wrong, 0);
  trm_interval(SIZE_MAX, 4096, 4095, &low, &high);
  CU_ASSERT_EQUAL(high, SIZE_MAX);
  CU_ASSERT_EQUAL(trm_type_bytes(TRM_FLOAT), 4);
  CU_ASSERT_EQUAL(trm_type_bytes(TRM_DOUBLE), 8);
  CU_ASSERT_EQUAL(trm_type_bytes(TRM_INT32), 4);
  CU_ASSERT_EQUAL(trm_type_bytes(TRM_INT64), 8);
  CU_ASSERT_EQUAL(trm_type_bytes(TRM_BYTE), 1);
}

static void test_self_collectives(void)
{
  struct trm_comm *comm = trm_comm_self();
  const struct trm_comm_ops *ops = comm->ops;
  CU_ASSERT(comm->rank == 0 && comm->size == 1);
  float data[3] = {1, 2, 3}, all[3] = {0};
  ops->barrier(comm);
  ops->broadcast(comm, data, 3, TRM_FLOAT, 0);
  ops->allreduce(comm, data, 3, TRM_FLOAT, TRM_SUM);
  ops->allgather(comm, data, all, 3, TRM_FLOAT);
  CU_ASSERT(all[0] == 1 && all[1] == 2 && all[2] == 3);
  ops->allgather(comm, all, all, 3, TRM_FLOAT);
  CU_ASSERT(data[0] == 1 && all[2] == 3);
  struct trm_request *request = NULL;
  ops->allreduce_begin(comm, data, 3, TRM_FLOAT, TRM_MAX, &request);
  ops->progress(comm);
  ops->wait(&request);
  CU_ASSERT_PTR_NULL(request);
  CU_ASSERT_TRUE(ops->test(&request));
  CU_ASSERT_EQUAL(data[2], 3);
  CU_ASSERT_PTR_NULL(ops->split(comm, -1, 0));
  CU_ASSERT_PTR_NULL(ops->native(comm));
  struct trm_comm *part = ops->split(comm, 3, 9), *node = ops->split_node(comm, "numa");
  CU_ASSERT_FATAL(part && node && part != comm && node != comm && part != node);
  CU_ASSERT(part->rank == 0 && part->size == 1 && node->size == 1);
  ops->release(part);
  ops->release(node);
  ops->release(comm);
  const double before = ops->clock(comm);
  usleep(2000);
  const double passed = ops->clock(comm) - before;
  CU_ASSERT(passed >= 0.0019 && passed < 60);
}

static void test_self_messages(void)
{
  struct trm_comm *comm = trm_comm_self();
  const struct trm_comm_ops *ops = comm->ops;
  struct trm_request *send = NULL, *receive[3] = {NULL};
  int32_t one = 1, two = 2, three = 3, got[3] = {0};

  /* sent first, in order for equal tags, then by tag */
  ops->send_begin(comm, &one, 1, TRM_INT32, 0, 5, &send);
  ops->wait(&send);
  ops->send_begin(comm, &two, 1, TRM_INT32, 0, 5, &send);
  ops->wait(&send);
  ops->send_begin(comm, &three, 1, TRM_INT32, 0, 6, &send);
  ops->wait(&send);
  one = two = three = 0; /* a completed send has let go of its buffer */
  ops->receive_begin(comm, &got[2], 1, TRM_INT32, 0, 6, &receive[2]);
  ops->receive_begin(comm, &got[0], 1, TRM_INT32, 0, 5, &receive[0]);
  ops->receive_begin(comm, &got[1], 1, TRM_INT32, 0, 5, &receive[1]);
  for (int i = 0; i < 3; i++)
    ops->wait(&receive[i]);
  CU_ASSERT(got[0] == 1 && got[1] == 2 && got[2] == 3);

  /* received first */
  struct trm_comm *part = ops->split(comm, 0, 0);
  ops->receive_begin(comm, &got[0], 1, TRM_INT32, 0, 7, &receive[0]);
  ops->receive_begin(comm, &got[1], 1, TRM_INT32, 0, 7, &receive[1]);
  ops->receive_begin(part, &got[2], 1, TRM_INT32, 0, 7, &receive[2]);
  CU_ASSERT_FALSE(ops->test(&receive[0]));
  CU_ASSERT_PTR_NOT_NULL(receive[0]);
  one = 10, two = 20, three = 30;
  ops->send_begin(comm, &one, 1, TRM_INT32, 0, 7, &send);
  CU_ASSERT_TRUE(ops->test(&send));
  CU_ASSERT_TRUE(ops->test(&receive[0]));
  CU_ASSERT_PTR_NULL(receive[0]);
  CU_ASSERT_FALSE(ops->test(&receive[1]));
  ops->send_begin(comm, &two, 1, TRM_INT32, 0, 7, &send);
  CU_ASSERT_FALSE(ops->test(&receive[2])); /* another communicator */
  ops->send_begin(part, &three, 1, TRM_INT32, 0, 7, &send);
  ops->wait(&receive[1]);
  ops->wait(&receive[2]);
  CU_ASSERT(got[0] == 10 && got[1] == 20 && got[2] == 30);
  ops->receive_begin(part, &got[0], 1, TRM_INT32, 0, 1, &receive[0]);
  ops->receive_begin(part, &got[1], 1, TRM_INT32, 0, 2, &receive[1]);
  ops->send_begin(part, &two, 1, TRM_INT32, 0, 2, &send);
  CU_ASSERT_FALSE(ops->test(&receive[0])); /* another tag */
  ops->send_begin(part, &one, 1, TRM_INT32, 0, 1, &send);
  ops->wait(&receive[0]);
  ops->wait(&receive[1]);
  CU_ASSERT(got[0] == 10 && got[1] == 20);
  ops->send_begin(part, &three, 1, TRM_INT32, 0, 8, &send); /* never received: released with the communicator */
  ops->release(part);
}

static void work_wait(void)
{
  struct trm_comm *comm = trm_comm_self();
  struct trm_request *receive = NULL;
  char byte;
  comm->ops->receive_begin(comm, &byte, 1, TRM_BYTE, 0, 77, &receive);
  comm->ops->wait(&receive);
}

static void work_long(void)
{
  struct trm_comm *comm = trm_comm_self();
  struct trm_request *request = NULL;
  char bytes[2] = {0};
  comm->ops->send_begin(comm, bytes, 2, TRM_BYTE, 0, 78, &request);
  comm->ops->receive_begin(comm, bytes, 1, TRM_BYTE, 0, 78, &request);
}

static void work_rank(void)
{
  trm_comm_self()->ops->broadcast(trm_comm_self(), NULL, 0, TRM_BYTE, 1);
}

static void window_get(size_t count, size_t offset)
{
  struct trm_comm *comm = trm_comm_self();
  struct trm_window *window = NULL;
  void *own;
  float x[2] = {0};
  comm->ops->window_create(comm, 4, TRM_FLOAT, "a test", &window, &own);
  comm->ops->get(window, x, count, 0, offset);
}

static void work_window(void)
{
  window_get(2, 3);
}

static void work_window_beyond(void)
{
  window_get(2, 6);
}

static void work_self_abort(void)
{
  trm_comm_self()->ops->abort(trm_comm_self(), TRM_STOPPED);
}

/* Where MPI would hang or be undefined, one rank says why and ends. */
static void test_self_mistakes(void)
{
  char text[1024];
  CU_ASSERT_EQUAL(child_run(work_wait, text, sizeof text), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "tag 77"));
  CU_ASSERT_EQUAL(child_run(work_long, text, sizeof text), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "tag 78: 2 bytes sent, room for 1"));
  CU_ASSERT_EQUAL(child_run(work_rank, text, sizeof text), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "broadcast: rank 1"));
  CU_ASSERT_EQUAL(child_run(work_window, text, sizeof text), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "get: elements 3 to 5 of a window of 4"));
  CU_ASSERT_EQUAL(child_run(work_window_beyond, text, sizeof text), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "get: elements 6 to 8 of a window of 4"));
  CU_ASSERT_EQUAL(child_run(work_self_abort, text, sizeof text), TRM_STOPPED);
}

static void *adder(void *window)
{
  const float one[2] = {1, 2};
  for (int i = 0; i < 2000; i++)
    trm_comm_self_ops.accumulate(window, one, 2, 0, 1);
  return NULL;
}

static void test_self_windows(void)
{
  struct trm_comm *comm = trm_comm_self();
  const struct trm_comm_ops *ops = comm->ops;
  struct trm_window *window = NULL;
  void *own = NULL;
  CU_ASSERT_EQUAL_FATAL(ops->window_create(comm, 4, TRM_FLOAT, "a test", &window, &own), TRM_OK);
  float *mine = own, got[4] = {9, 9, 9, 9};
  ops->get(window, got, 4, 0, 0);
  CU_ASSERT(got[0] == 0 && got[3] == 0);
  ops->put(window, (float[]){5, 6}, 2, 0, 2);
  ops->flush(window, 0);
  CU_ASSERT(mine[1] == 0 && mine[2] == 5 && mine[3] == 6);
  mine[2] = mine[1] = 0;
  pthread_t thread[3]; /* atomic per element, also against threads of this process */
  for (int i = 0; i < 3; i++)
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread[i], NULL, adder, window), 0);
  for (int i = 0; i < 3; i++)
    pthread_join(thread[i], NULL);
  CU_ASSERT(mine[1] == 6000 && mine[2] == 12000 && mine[3] == 6 && mine[0] == 0);
  ops->window_free(&window);
  CU_ASSERT_PTR_NULL(window);

  CU_ASSERT_EQUAL_FATAL(ops->window_create(comm, 2, TRM_INT64, "a test", &window, &own), TRM_OK);
  CU_ASSERT_EQUAL(ops->fetch_add(window, 7, 0, 1), 0);
  CU_ASSERT_EQUAL(ops->fetch_add(window, -2, 0, 1), 7);
  CU_ASSERT_EQUAL(((int64_t *)own)[1], 5);
  ops->window_free(&window);
  CU_ASSERT_EQUAL_FATAL(ops->window_create(comm, 0, TRM_DOUBLE, "a test", &window, &own), TRM_OK);
  CU_ASSERT_PTR_NOT_NULL(own);
  ops->window_free(&window);

  struct trm_shared shared;
  static const size_t sizes[] = {0, 1, 5000, 5000000};
  for (int i = 0; i < 4; i++) {
    CU_ASSERT_EQUAL_FATAL(ops->share(comm, sizes[i], "a test", &shared), TRM_OK);
    CU_ASSERT_EQUAL((uintptr_t)shared.own % 4096, 0);
    CU_ASSERT_PTR_EQUAL(shared.base[0], shared.own);
    CU_ASSERT_EQUAL(shared.bytes, sizes[i]);
    size_t zeros = 0;
    for (size_t j = 0; j < sizes[i]; j++)
      zeros += ((char *)shared.own)[j] == 0;
    CU_ASSERT_EQUAL(zeros, sizes[i]);
    memset(shared.own, 1, sizes[i]);
    ops->unshare(comm, &shared);
    CU_ASSERT_PTR_NULL(shared.own);
  }
  CU_ASSERT_EQUAL(ops->share(comm, (size_t)1 << 62, "the impossible window", &shared), TRM_FAILED);
  CU_ASSERT(error_has("the impossible window"));
}

int main(void)
{
  CU_TestInfo tests[] = {
      {"status", test_status},
      {"log and abort", test_log},
      {"memory", test_memory},
      {"memory: what is held and what lies in it", test_memory_held},
      {"philox: published vectors", test_philox},
      {"uniform numbers", test_uniform},
      {"normal numbers", test_normal},
      {"permutations", test_permute},
      {"permutations, many elements at a time", test_permute_many},
      {"SHA-256: published vectors", test_sha256},
      {"JSON", test_json},
      {"numbers as text", test_number_text},
      {"documents", test_document},
#ifdef HAVE_LIBYAML
      {"documents refused", test_document_refused},
      {"documents damaged", test_document_damaged},
#endif
      {"options: defaults", test_options_default},
      {"options: set", test_options_set},
      {"options: nearest word", test_nearest},
      {"options: printed", test_options_print},
#ifdef HAVE_LIBYAML
      {"options: read", test_options_read},
      {"options: written and read", test_options_write},
#endif
      {"intervals", test_interval},
      {"one rank: collectives", test_self_collectives},
      {"one rank: messages", test_self_messages},
      {"one rank: mistakes", test_self_mistakes},
      {"one rank: windows and shared memory", test_self_windows},
      CU_TEST_INFO_NULL,
  };
  return suite_run("core", tests);
}
