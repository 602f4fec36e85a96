/* Errors, the log, abort, and the contexts of several ranks in one process. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "child.h"
#include "core/context.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/printable.h"
#include "core/status.h"
#include "core/trace.h"
#include "suite.h"

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

  for (int i = 0; i < 20; i++) { /* longer than any fixed buffer */
    char *twice = trm_format("%s%s", trm_error_text(), trm_error_text());
    trm_error_context(TRM_FAILED, "%s", twice);
    trm_free(twice);
  }
  const size_t length = strlen(trm_error_text());
  CU_ASSERT(length > 1000 && length < 5000);
  CU_ASSERT_STRING_EQUAL(trm_error_text() + length - 3, "...");
}

/* -- control characters */

static void test_printable(void)
{
  static const char *const texts[][2] = {
    {"", ""}, {"plain \xc3\xa4 \xe2\x82\xac", "plain \xc3\xa4 \xe2\x82\xac"},
    {"\033[31mred\007\r", "\\x1b[31mred\\x07\\x0d"}, {"a\nb\tc\x7f", "a\\x0ab\\x09c\\x7f"},
    {"\xc2\x9b" "31m \xc2\xa0 \xc2\x80 \xc2", "\\xc2\\x9b31m \xc2\xa0 \\xc2\\x80 \xc2"}};
  char to[64];
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char *shown = trm_printable(texts[i][0]);
    CU_ASSERT_STRING_EQUAL(shown, texts[i][1]);
    trm_free(shown);
  }
  CU_ASSERT_EQUAL(trm_printable_copy(to, sizeof to, "a\n\0\033", 4, "\n"), 10);
  CU_ASSERT_STRING_EQUAL(to, "a\n\\x00\\x1b");
  CU_ASSERT_EQUAL(trm_printable_copy(to, 7, "ab\033\033", 4, ""), 6); /* whole escapes only */
  CU_ASSERT_STRING_EQUAL(to, "ab\\x1b");
  CU_ASSERT_EQUAL(trm_printable_copy(to, 6, "ab\033\033", 4, ""), 2);
}

static void printing_controls(void)
{
  trm_info("table\n\033[2J");
  trm_warn("\033]0;title\007");
  trm_error(TRM_FAILED, "class \"\xc2\x9b" "1m\"\nerror: none");
  trm_log_error();
}

static void test_log_controls(void)
{
  char text[1000];
  child_run(printing_controls, text, sizeof text);
  CU_ASSERT_STRING_EQUAL(text, "table\n\\x1b[2J\n"
                               "trireme: warning: \\x1b]0;title\\x07\n"
                               "trireme: error: class \"\\xc2\\x9b1m\"\\x0aerror: none\n");
}

/* -- several ranks in one process */

struct other_rank {
  struct trm_rank_state state;
  struct trm_context context;
};

static void *helper_thread(void *text)
{
  sprintf(text, "rank %d, error \"%s\"", trm_log_rank(), trm_error_text());
  trm_error(TRM_FAILED, "in a helper");
  return NULL;
}

static void send_to_self(int number)
{
  struct trm_comm *self = trm_comm_self();
  struct trm_request *request = NULL;
  self->ops->send_begin(self, &number, 1, TRM_INT32, 0, 7, &request);
  self->ops->wait(&request);
}

static int receive_from_self(void)
{
  struct trm_comm *self = trm_comm_self();
  struct trm_request *request = NULL;
  int32_t number = -1;
  self->ops->receive_begin(self, &number, 1, TRM_INT32, 0, 7, &request);
  self->ops->wait(&request);
  return number;
}

/* One thread switches between ranks, like a fiber scheduler: each rank keeps its state. */
static void test_contexts(void)
{
  static struct other_rank ranks[2];
  trm_error(TRM_FAILED, "outside");
  for (int r = 0; r < 2; r++) {
    trm_rank_state_init(&ranks[r].state);
    ranks[r].context.rank = &ranks[r].state;
    trm_context_set(&ranks[r].context);
    CU_ASSERT_STRING_EQUAL(trm_error_text(), "");
    CU_ASSERT_EQUAL(trm_log_rank(), 0);
    trm_log_set_rank(5 + r, 9);
    trm_error(TRM_FAILED, "rank %d", r);
    send_to_self(10 + r);
    trm_trace_start(trm_comm_self(), 4);
  }
  char *first = trm_context_text();
  strcpy(first, "a text of rank 1");
  for (int r = 0; r < 2; r++) {
    trm_context_set(&ranks[r].context);
    CU_ASSERT_EQUAL(trm_log_rank(), 5 + r);
    CU_ASSERT_STRING_EQUAL(trm_error_text(), r ? "rank 1" : "rank 0");
    CU_ASSERT_EQUAL(receive_from_self(), 10 + r);
    CU_ASSERT_TRUE(trm_trace_on());
    trm_trace_stop();
    for (int i = 0; i < 8 && r == 0; i++)
      strcpy(trm_context_text(), "a text of rank 0");
    char text[64];
    pthread_t thread;
    CU_ASSERT_EQUAL_FATAL(trm_context_start_thread(&thread, helper_thread, text), 0);
    pthread_join(thread, NULL);
    CU_ASSERT_STRING_EQUAL(text, r ? "rank 6, error \"\"" : "rank 5, error \"\"");
    CU_ASSERT_STRING_EQUAL(trm_error_text(), r ? "rank 1" : "rank 0");
  }
  CU_ASSERT_STRING_EQUAL(first, "a text of rank 1");
  trm_context_set(NULL);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "outside");
  CU_ASSERT_EQUAL(trm_log_rank(), 0);
  CU_ASSERT_FALSE(trm_trace_on());
}

static void work_log(void)
{
  trm_log_set_rank(0, 4);
  trm_info("info %d", 1);
  trm_progress("step %d", 2);
  trm_warn("careful");
  trm_error(TRM_FAILED, "broken %%");
  trm_log_error();
  trm_progress_end();
  trm_log_set_quiet(true);
  trm_info("not this");
  trm_log_set_quiet(false);
  trm_log_set_rank(3, 4);
  if (trm_log_rank() != 3)
    _exit(9);
  trm_info("nor this");
  trm_warn("third");
  trm_log_set_rank(0, 1);
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
  trm_log_set_quiet(true);
  trm_progress("not this");
}

/* The child's stderr is a terminal of 20 columns. */
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

int main(void)
{
  CU_TestInfo tests[] = {
    {"status", test_status},
    {"several ranks in a process", test_contexts},
    {"log and abort", test_log},
    {"control characters", test_printable},
    {"control characters in the log", test_log_controls},
    CU_TEST_INFO_NULL,
  };
  return suite_run("status", tests);
}
