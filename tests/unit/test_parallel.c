/* Loops divided among threads: every index once, in intervals of trm_interval, by threads with different numbers. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/comm.h"
#include "core/parallel.h"
#include "suite.h"

enum { N = 1000, MAX_THREADS = 9, LOOPS = 3000, CALLERS = 3 };

struct counts {
  _Atomic int index[N], number[MAX_THREADS];
  _Atomic int calls, outside;
  size_t n;
  int threads;
};

static void counts_body(const void *context, size_t low, size_t high)
{
  struct counts *c = (struct counts *)(uintptr_t)context;
  const int number = trm_parallel_thread();
  size_t want_low, want_high;
  trm_interval(c->n, (size_t)c->threads, (size_t)number, &want_low, &want_high);
  atomic_fetch_add(&c->outside, number < 0 || number >= c->threads || low != want_low || high != want_high);
  atomic_fetch_add(&c->number[number], 1);
  atomic_fetch_add(&c->calls, 1);
  for (size_t i = low; i < high; i++)
    atomic_fetch_add(&c->index[i], 1);
}

static void test_intervals(void)
{
  for (int threads = 1; threads <= MAX_THREADS; threads++)
    for (size_t n = 0; n < N; n += n < 20 ? 1 : 97) {
      static struct counts c;
      memset(&c, 0, sizeof c);
      c.n = n;
      c.threads = n < (size_t)threads ? (n ? (int)n : 1) : threads;
      trm_parallel_for(threads, n, counts_body, &c);
      CU_ASSERT_EQUAL(c.calls, n ? c.threads : 0);
      CU_ASSERT_EQUAL(c.outside, 0);
      for (int i = 0; n > 0 && i < c.threads; i++)
        CU_ASSERT_EQUAL(c.number[i], 1);
      for (size_t i = 0; i < N; i++)
        CU_ASSERT_EQUAL_FATAL(c.index[i], i < n);
      CU_ASSERT_EQUAL(trm_parallel_thread(), 0);
    }
}

/* -- a loop in a loop */

static void inner_body(const void *context, size_t low, size_t high)
{
  _Atomic int *failures = (_Atomic int *)(uintptr_t)context;
  atomic_fetch_add(failures, low != 0 || high != N);
}

static void outer_body(const void *context, size_t low, size_t high)
{
  _Atomic int *failures = (_Atomic int *)(uintptr_t)context;
  const int number = trm_parallel_thread();
  for (size_t i = low; i < high; i++)
    trm_parallel_for(4, N, inner_body, context);
  atomic_fetch_add(failures, trm_parallel_thread() != number);
}

static void test_nested(void)
{
  _Atomic int failures = 0;
  trm_parallel_for(3, 30, outer_body, (const void *)&failures);
  CU_ASSERT_EQUAL(failures, 0);
}

/* -- many loops, of several callers at once: each has threads of its own, which end with it */

struct sums {
  long values[MAX_THREADS * 16];
};

static void sums_body(const void *context, size_t low, size_t high)
{
  struct sums *s = (struct sums *)(uintptr_t)context;
  for (size_t i = low; i < high; i++)
    s->values[trm_parallel_thread() * 16] += (long)i;
}

static void *sums_main(void *failures)
{
  struct sums s = {{0}};
  long sum = 0;
  for (int loop = 0; loop < LOOPS; loop++)
    trm_parallel_for(1 + loop % 4, 10, sums_body, &s);
  for (int i = 0; i < MAX_THREADS; i++)
    sum += s.values[i * 16];
  atomic_fetch_add((_Atomic int *)failures, sum != 45L * LOOPS);
  return NULL;
}

static void test_callers(void)
{
  _Atomic int failures = 0;
  pthread_t thread[CALLERS];
  for (int i = 0; i < CALLERS; i++)
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread[i], NULL, sums_main, (void *)&failures), 0);
  sums_main((void *)&failures);
  for (int i = 0; i < CALLERS; i++)
    pthread_join(thread[i], NULL);
  CU_ASSERT_EQUAL(failures, 0);
}

static void test_default(void)
{
  CU_ASSERT(trm_parallel_default() >= 1);
}

int main(void)
{
  CU_TestInfo tests[] = {{"every index once", test_intervals},
                         {"a loop in a loop", test_nested},
                         {"several callers", test_callers},
                         {"the default", test_default},
                         CU_TEST_INFO_NULL};
  return suite_run("parallel", tests);
}
