/* What is said when something fails, and how a rank ends: errors, the log, abort. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "child.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
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
    {"log and abort", test_log},
    CU_TEST_INFO_NULL,
  };
  return suite_run("status", tests);
}
