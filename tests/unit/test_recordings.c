/* Calls that are recorded and replayed (core/recordings.h), on a device that is late and whose memory is its own. */
#include <CUnit/CUnit.h>
#include <string.h>

#include "blas/blas.h"
#include "core/recordings.h"
#include "core/status.h"
#include "kernels/kernels.h"
#include "suite.h"
#include "support/pretend_device.h"

enum { N = 100 };

/* Calls that add x to `to`, and what they do besides. */
struct addition {
  struct trm_device *device;
  float *x, *to; /* device, (N) */
  bool uploads, relu;
  int status;
  int made; /* how often the calls were made or recorded */
};

static int add(void *context)
{
  struct addition *it = context;
  const struct trm_device_ops *ops = it->device->ops;
  const float one = 1;

  it->made++;
  if (it->status != TRM_OK)
    return it->status;
  if (it->uploads)
    ops->upload(it->device, it->x, &one, sizeof one);
  if (it->relu)
    ops->activation_forward(it->device, &(struct trm_activation_forward){
      .kind = TRM_RELU, .x = it->x, .y = it->x, .n = N, .type = TRM_VALUES_F32});
  ops->sum(it->device, &(struct trm_sum){
    .to = it->to, .from = (const float *const[]){it->to, it->x}, .count = 2, .n = N});
  return TRM_OK;
}

static void addition_open(struct addition *it, struct trm_device *device)
{
  *it = (struct addition){.device = device};
  device->graphs = true;
  CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, N * sizeof(float), TRM_MEMORY_BUFFERS, (void **)&it->x), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, N * sizeof(float), TRM_MEMORY_BUFFERS, (void **)&it->to), TRM_OK);
  device->ops->fill(device, it->x, 1, N);
  device->ops->fill(device, it->to, 0, N);
}

static void addition_close(struct addition *it)
{
  it->device->ops->release(it->device, it->x);
  it->device->ops->release(it->device, it->to);
}

/* Returns true if all elements of the sum are `value`. */
static bool sum_is(const struct addition *it, float value)
{
  float sum[N];

  it->device->ops->download(it->device, sum, it->to, sizeof sum);
  for (int i = 0; i < N; i++)
    if (sum[i] != value)
      return false;
  return true;
}

/* Runs the calls `times` times. Returns the number of replays. */
static size_t run(struct trm_recordings *recordings, struct addition *it, int key, int times)
{
  pretend_device_record(it->device);
  for (int i = 0; i < times; i++)
    CU_ASSERT_EQUAL(trm_recordings_run(recordings, it->device, &key, sizeof key, add, it), it->status);
  return pretend_device_record(it->device).replays;
}

static void test_replays(void)
{
  struct trm_device pretend;
  struct trm_recordings recordings = {0};
  struct addition it;

  CU_ASSERT_EQUAL_FATAL(pretend_device_open(&pretend, 1), TRM_OK);
  addition_open(&it, &pretend);
  CU_ASSERT_EQUAL(run(&recordings, &it, 1, 1), 0);
  CU_ASSERT(sum_is(&it, 1) && it.made == 1);
  CU_ASSERT_EQUAL(run(&recordings, &it, 1, 4), 4);
  CU_ASSERT(sum_is(&it, 5) && it.made == 2);
  pretend.ops->fill(&pretend, it.x, 10, N); /* what the memory holds by then */
  CU_ASSERT_EQUAL(run(&recordings, &it, 1, 1), 1);
  CU_ASSERT(sum_is(&it, 15));
  CU_ASSERT_EQUAL(run(&recordings, &it, 2, 2), 1); /* another key */
  CU_ASSERT(sum_is(&it, 35) && it.made == 4);
  pretend.graphs = false;
  CU_ASSERT_EQUAL(run(&recordings, &it, 1, 2), 0);
  CU_ASSERT(sum_is(&it, 55) && it.made == 6);
  trm_recordings_free(&recordings);
  addition_close(&it);
  CU_ASSERT_EQUAL(pretend_device_bytes(&pretend), sizeof *pretend.number);
  pretend_device_close(&pretend);
}

/* Calls that cannot be recorded are made: once each time, and not also by the attempt. */
static void test_refused(void)
{
  struct trm_device device[2];
  struct trm_recordings recordings = {0};
  struct addition it;

  CU_ASSERT_EQUAL_FATAL(pretend_device_open(&device[0], 1), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_device_open_ops(&device[1], &pretend_device_few_ops, trm_blas_find("auto", TRM_MATMUL_F32),
                                            0, 1), TRM_OK);
  for (int k = 0; k < 2; k++) {
    addition_open(&it, &device[k]);
    it.uploads = k == 0;
    it.relu = k == 1; /* has its host form */
    CU_ASSERT_EQUAL(run(&recordings, &it, 1, 4), 0);
    CU_ASSERT(sum_is(&it, 4));
    CU_ASSERT_EQUAL(it.made, 5);
    CU_ASSERT_EQUAL(device[k].ops->sync(&device[k]), TRM_OK);
    trm_recordings_free(&recordings);
    addition_close(&it);
    trm_device_close(&device[k]);
  }
}

static void test_replaced(void)
{
  struct trm_device pretend;
  struct trm_recordings recordings = {0};
  struct addition it;

  CU_ASSERT_EQUAL_FATAL(pretend_device_open(&pretend, 1), TRM_OK);
  addition_open(&it, &pretend);
  CU_ASSERT_EQUAL(run(&recordings, &it, 1, 3), 2);
  pretend_device_replace_memory(&pretend);
  CU_ASSERT_EQUAL(run(&recordings, &it, 1, 1), 0);
  CU_ASSERT(sum_is(&it, 4) && it.made == 3);
  CU_ASSERT_EQUAL(run(&recordings, &it, 1, 3), 3);
  CU_ASSERT(sum_is(&it, 7) && it.made == 4);
  trm_recordings_free(&recordings);
  addition_close(&it);
  pretend_device_close(&pretend);
}

static void test_failure(void)
{
  struct trm_device pretend;
  struct trm_recordings recordings = {0};
  struct addition it;

  CU_ASSERT_EQUAL_FATAL(pretend_device_open(&pretend, 1), TRM_OK);
  addition_open(&it, &pretend);
  it.status = TRM_FAILED;
  CU_ASSERT_EQUAL(run(&recordings, &it, 1, 3), 0);
  CU_ASSERT_EQUAL(it.made, 3);
  trm_recordings_free(&recordings);
  addition_close(&it);
  pretend_device_close(&pretend);
}

/* The key that was used last the longest ago makes room. */
static void test_many_keys(void)
{
  struct trm_device pretend;
  struct trm_recordings recordings = {0};
  struct addition it;

  CU_ASSERT_EQUAL_FATAL(pretend_device_open(&pretend, 1), TRM_OK);
  addition_open(&it, &pretend);
  for (int round = 0; round < 2; round++)
    for (int key = 0; key < TRM_RECORDINGS; key++)
      CU_ASSERT_EQUAL(run(&recordings, &it, key, 1), (size_t)round);
  CU_ASSERT_EQUAL(run(&recordings, &it, 0, 1), 1);
  CU_ASSERT_EQUAL(run(&recordings, &it, -1, 2), 1); /* in place of 1 */
  CU_ASSERT_EQUAL(run(&recordings, &it, 0, 1), 1);
  CU_ASSERT_EQUAL(run(&recordings, &it, 2, 1), 1);
  CU_ASSERT_EQUAL(run(&recordings, &it, 1, 1), 0);
  CU_ASSERT(sum_is(&it, 2 * TRM_RECORDINGS + 6));
  trm_recordings_free(&recordings);
  addition_close(&it);
  pretend_device_close(&pretend);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"made, recorded, replayed", test_replays},
    {"calls that cannot be recorded", test_refused},
    {"memory of the device was replaced", test_replaced},
    {"a failure", test_failure},
    {"more keys than are kept", test_many_keys},
    CU_TEST_INFO_NULL,
  };

  return suite_run("recordings", tests);
}
