/* Recorded calls (core/device.h): replays have the bits of the calls; what cannot be recorded makes none. */
#include <CUnit/CUnit.h>

#include "core/status.h"
#include "kernels.h"

enum { M = 12, K = 9, WIDE = 40000 };

/* A product, sums over its rows, which take memory of the device's own, and an update in one run. */
struct recorded_arrays {
  float *a, *b, *c; /* (M, K), (K, M), (M, M) */
  float *sums, *w;  /* (M) */
};

static struct recorded_arrays recorded_open(struct trm_device *device)
{
  return (struct recorded_arrays){
    .a = device_floats(device, host_random(M * K, 1), M * K), .b = device_floats(device, host_random(M * K, 2), M * K),
    .c = device_floats(device, host_random(M * M, 3), M * M), .sums = device_floats(device, host_floats(M), M),
    .w = device_floats(device, host_random(M, 4), M)};
}

static void recorded_rows(struct trm_device *device, const float *x, float *sums, size_t n)
{
  device->ops->bias_backward(device, &(struct trm_bias_backward){
    .dy = x, .beta = 1, .db = sums, .b = 1, .n = n, .type = TRM_VALUES_F32});
}

static void recorded_update(struct trm_device *device, const struct recorded_arrays *it, float l2)
{
  device->ops->update(device, &(struct trm_update_arrays){
    .update = {.rule = TRM_UPDATE_SGD, .rate = 0.5f, .scale = 1, .l2 = l2}, .w = it->w, .g = it->sums, .n = M});
}

static void recorded_make(struct trm_device *device, const struct recorded_arrays *it)
{
  device->ops->gemm(device, &(struct trm_gemm){
    .m = M, .n = M, .k = K, .alpha = 1, .a = it->a, .lda = K, .b = it->b, .ldb = M, .beta = 1, .c = it->c, .ldc = M,
    .type_ab = TRM_VALUES_F32, .type_c = TRM_VALUES_F32});
  recorded_rows(device, it->c, it->sums, M);
  recorded_update(device, it, 0.25f);
  device->ops->copy(device, it->a, it->c, M * K * sizeof(float));
  device->ops->fill(device, it->b, 0.125f, K);
}

static void recorded_compare(struct trm_device *device, const struct recorded_arrays *a,
                             const struct recorded_arrays *b)
{
  check_same("products", read_floats(device, a->c, M * M), read_floats(device, b->c, M * M), M * M);
  check_same("weights", read_floats(device, a->w, M), read_floats(device, b->w, M), M);
  check_same("copies", read_floats(device, a->a, M * K), read_floats(device, b->a, M * K), M * K);
}

/* Calls, of which one cannot be recorded where the device has memory of its own for them. */
enum refusal { UPLOAD, DOWNLOAD, ALLOC, SYNC, LARGER, OTHER_RUN, REFUSALS };

static void recorded_refusal(struct trm_device *device, const struct recorded_arrays *it, enum refusal kind,
                             float *wide)
{
  float x = 5;
  void *memory = NULL;

  device->ops->fill(device, it->w, 3, M);
  if (kind == UPLOAD)
    device->ops->upload(device, it->w, &x, sizeof x);
  else if (kind == DOWNLOAD)
    device->ops->download(device, &x, it->w, sizeof x);
  else if (kind == ALLOC)
    CU_ASSERT_NOT_EQUAL(device->ops->alloc(device, sizeof x, TRM_MEMORY_BUFFERS, &memory), TRM_OK)
  else if (kind == SYNC)
    device->ops->sync(device);
  else if (kind == LARGER)
    recorded_rows(device, wide, wide + WIDE, WIDE);
  else
    recorded_update(device, it, 0.75f);
}

/* The pretend device, which has no memory of its own for calls, records the last two. */
static void recorded_refused(struct trm_device *device, const struct recorded_arrays *it, float *wide)
{
  float before[M], after[M];

  device->ops->download(device, before, it->w, sizeof before);
  for (int kind = 0; kind < (on_other_device() ? (int)REFUSALS : (int)LARGER); kind++) {
    CU_ASSERT_TRUE_FATAL(device->ops->record_begin(device));
    recorded_refusal(device, it, (enum refusal)kind, wide);
    CU_ASSERT_PTR_NULL(device->ops->record_end(device));
    CU_ASSERT_EQUAL(device->ops->sync(device), TRM_OK);
    device->ops->download(device, after, it->w, sizeof after);
    check_same("refused", after, before, M);
  }
}

/* Replays what was made and recorded once, three times, and makes it or replays it once more. */
static void recorded_replay(struct trm_device *device, const struct recorded_arrays *it,
                            struct trm_recording *recording, float *wide)
{
  for (int i = 0; i < 2; i++)
    CU_ASSERT(device->ops->replay(device, recording));
  recorded_refused(device, it, wide);
  CU_ASSERT(device->ops->replay(device, recording));
  if (on_other_device()) { /* its own memory grows, and is another */
    recorded_rows(device, wide, wide + WIDE, WIDE);
    CU_ASSERT_FALSE(device->ops->replay(device, recording));
    recorded_make(device, it);
  } else {
    CU_ASSERT(device->ops->replay(device, recording));
  }
  device->ops->recording_free(device, recording);
}

/* Returns the recorded calls; NULL: the device records none, or lacks a kernel. */
static struct trm_recording *recorded_record(struct trm_device *device, const struct recorded_arrays *it)
{
  if (!device->ops->record_begin || !device->ops->record_begin(device))
    return NULL;
  recorded_make(device, it);
  return device->ops->record_end(device);
}

void recorded_calls(struct trm_device *device)
{
  const struct recorded_arrays called = recorded_open(device), replayed = recorded_open(device);
  float *wide = device_floats(device, host_random(2 * WIDE, 5), 2 * WIDE);

  for (int i = 0; i < 5; i++)
    recorded_make(device, &called);
  recorded_make(device, &replayed);
  struct trm_recording *recording = recorded_record(device, &replayed);
  if (recording)
    recorded_replay(device, &replayed, recording, wide);
  CU_ASSERT(recording || !on_other_device());
  for (int i = 1; i < 5 && !recording; i++)
    recorded_make(device, &replayed);
  recorded_compare(device, &called, &replayed);
}
