/* The communicator of one rank: collectives, messages, windows, shared memory, misuse; and trm_interval. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "child.h"
#include "core/counter.h"
#include "messages.h"
#include "suite.h"

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
  struct trm_comm *part = ops->split(comm, 3, 9), *node = ops->split_node(comm, TRM_SHARE_NUMA);
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

  /* send before receive: in order for equal tags, then by tag */
  ops->send_begin(comm, &one, 1, TRM_INT32, 0, 5, &send);
  ops->wait(&send);
  ops->send_begin(comm, &two, 1, TRM_INT32, 0, 5, &send);
  ops->wait(&send);
  ops->send_begin(comm, &three, 1, TRM_INT32, 0, 6, &send);
  ops->wait(&send);
  one = two = three = 0; /* a completed send no longer needs its buffer */
  ops->receive_begin(comm, &got[2], 1, TRM_INT32, 0, 6, &receive[2]);
  ops->receive_begin(comm, &got[0], 1, TRM_INT32, 0, 5, &receive[0]);
  ops->receive_begin(comm, &got[1], 1, TRM_INT32, 0, 5, &receive[1]);
  for (int i = 0; i < 3; i++)
    ops->wait(&receive[i]);
  CU_ASSERT(got[0] == 1 && got[1] == 2 && got[2] == 3);

  /* receive before send */
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
  ops->send_begin(part, &three, 1, TRM_INT32, 0, 8, &send); /* never received: freed with the communicator */
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

static bool counter_is_set(void *context)
{
  return trm_counter_get(context) != 0;
}

static void work_never(void)
{
  struct trm_counter counter = {0};
  trm_comm_self()->ops->wait_until(trm_comm_self(), counter_is_set, &counter);
}

static void work_call(void)
{
  struct trm_comm *comm = trm_comm_self();
  const struct trm_call_plan plan = {.head_bytes = 8, .owner = (bool[]){true}};
  struct trm_calls *calls;
  struct trm_request *request;
  int64_t head = 0;
  comm->ops->calls_create(comm, &plan, &calls);
  comm->ops->call_begin(calls, 0, &head, NULL, 0, NULL, 0, &request);
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

/* Misuse that would hang or be undefined in MPI ends the process with a message. */
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
  CU_ASSERT_EQUAL(child_run(work_never, text, sizeof text), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "waiting for a change of memory"));
  CU_ASSERT_EQUAL(child_run(work_call, text, sizeof text), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "an owner may not call itself"));
  CU_ASSERT_EQUAL(child_run(work_self_abort, text, sizeof text), TRM_STOPPED);
}

static void *set_late(void *counter)
{
  usleep(20000);
  trm_counter_set(trm_comm_self(), counter, 1);
  return NULL;
}

/* Another thread of the rank makes the change; sleep_until ends at its time. */
static void test_self_waiting(void)
{
  struct trm_comm *comm = trm_comm_self(), *alone = comm->ops->split_node(comm, TRM_SHARE_PROCESS);
  struct trm_counter counter = {0};
  struct trm_lock lock = {0};
  pthread_t thread;
  CU_ASSERT(alone && alone->size == 1);
  alone->ops->release(alone);
  CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, set_late, &counter), 0);
  comm->ops->wait_until(comm, counter_is_set, &counter);
  CU_ASSERT_EQUAL(trm_counter_get(&counter), 1);
  pthread_join(thread, NULL);
  CU_ASSERT_EQUAL(trm_counter_add(comm, &counter, 4), 1);
  int64_t expected = 4;
  CU_ASSERT_FALSE(trm_counter_swap(comm, &counter, &expected, 9));
  CU_ASSERT_EQUAL(expected, 5);
  CU_ASSERT_TRUE(trm_counter_swap(comm, &counter, &expected, 9));
  CU_ASSERT_EQUAL(trm_counter_get(&counter), 9);
  trm_lock_acquire(comm, &lock);
  CU_ASSERT_EQUAL(trm_counter_get(&lock.taken), 1);
  trm_lock_release(comm, &lock);
  trm_lock_acquire(comm, &lock);
  const double when = comm->ops->clock(comm) + 3e-3;
  comm->ops->sleep_until(comm, when, true);
  const double late = comm->ops->clock(comm) - when;
  CU_ASSERT(late >= 0 && late < 1);
  comm->ops->sleep_until(comm, when, false); /* has passed */
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
  pthread_t thread[3]; /* atomic per element, also between threads */
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
    CU_ASSERT_EQUAL_FATAL(ops->share(comm, sizes[i], TRM_MEMORY_BUFFERS, &shared), TRM_OK);
    CU_ASSERT_EQUAL((uintptr_t)shared.local % 4096, 0);
    CU_ASSERT_PTR_EQUAL(shared.base[0], shared.local);
    CU_ASSERT_EQUAL(shared.bytes, sizes[i]);
    size_t zeros = 0;
    for (size_t j = 0; j < sizes[i]; j++)
      zeros += ((char *)shared.local)[j] == 0;
    CU_ASSERT_EQUAL(zeros, sizes[i]);
    memset(shared.local, 1, sizes[i]);
    ops->unshare(comm, &shared);
    CU_ASSERT_PTR_NULL(shared.local);
  }
  CU_ASSERT_EQUAL(ops->share(comm, (size_t)1 << 62, TRM_MEMORY_ACTIVATIONS, &shared), TRM_FAILED);
  CU_ASSERT(error_has("activations"));
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"intervals", test_interval},
    {"collectives", test_self_collectives},
    {"messages", test_self_messages},
    {"misuse", test_self_mistakes},
    {"windows and shared memory", test_self_windows},
    {"counters, locks, waiting, sleep", test_self_waiting},
    CU_TEST_INFO_NULL,
  };
  return suite_run("self", tests);
}
