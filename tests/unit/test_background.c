/* Calls in the background: their order, and where failures go. */
#include "core/background.h"
#include "core/counter.h"
#include "core/status.h"
#include "suite.h"

enum { CALLS = 20 };

/* A call that waits for the gate, notes its number, and fails if it is the one. */
struct call {
  int number, fails;
  const struct trm_counter *gate; /* NULL: open */
};
static int order[CALLS + 2], made;

static bool is_open(const void *gate)
{
  return trm_counter_get(gate) > 0;
}

static int note(void *context)
{
  const struct call *call = context;
  if (call->gate)
    trm_background_poll(is_open, call->gate);
  order[made++] = call->number;
  return call->number == call->fails ? trm_error(TRM_USAGE, "call %d fails", call->number) : TRM_OK;
}

static void test_order(void)
{
  struct trm_background *background = trm_background_open();
  struct trm_counter gate = {0};
  struct call calls[CALLS];
  made = 0;
  CU_ASSERT_EQUAL(trm_background_wait(background), TRM_OK); /* of none */
  for (int i = 0; i < CALLS; i++) {
    calls[i] = (struct call){i, -1, &gate};
    trm_background_begin(background, note, &calls[i]); /* returns, though no call can be made */
  }
  CU_ASSERT_EQUAL(made, 0);
  trm_counter_set(trm_comm_self(), &gate, 1);
  CU_ASSERT_EQUAL(trm_background_wait(background), TRM_OK);
  CU_ASSERT_EQUAL(made, CALLS);
  for (int i = 0; i < CALLS; i++)
    CU_ASSERT_EQUAL(order[i], i);
  trm_background_close(background);
}

/* The first failure is returned once, with its message; calls that began after it are not made. */
static void test_failure(void)
{
  struct trm_background *background = trm_background_open();
  struct call calls[5];
  made = 0;
  for (int i = 0; i < 5; i++) {
    calls[i] = (struct call){i, 2, NULL};
    trm_background_begin(background, note, &calls[i]);
  }
  while (!trm_background_failed(background))
    usleep(100);
  trm_error(TRM_FAILED, "something else");
  CU_ASSERT_EQUAL(trm_background_wait(background), TRM_USAGE);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "call 2 fails");
  CU_ASSERT(made == 3 && order[2] == 2);
  CU_ASSERT(!trm_background_failed(background));
  CU_ASSERT_EQUAL(trm_background_wait(background), TRM_OK);
  trm_background_begin(background, note, &calls[4]);
  CU_ASSERT_EQUAL(trm_background_wait(background), TRM_OK);
  CU_ASSERT(made == 4 && order[3] == 4);
  trm_background_close(background);
}

/* close waits for what has begun. */
static void test_close(void)
{
  struct trm_background *background = trm_background_open();
  struct call calls[3];
  made = 0;
  for (int i = 0; i < 3; i++) {
    calls[i] = (struct call){i, -1, NULL};
    trm_background_begin(background, note, &calls[i]);
  }
  trm_background_close(background);
  CU_ASSERT_EQUAL(made, 3);
  trm_background_close(NULL);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"order", test_order},
    {"failure", test_failure},
    {"close", test_close},
    CU_TEST_INFO_NULL,
  };
  return suite_run("calls in the background", tests);
}
