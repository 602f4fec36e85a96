/* Results that the CPU stores past the caches: a call of many rows has the bits of calls of a few. */
#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

#include "kernels.h"

/* PART rows are few for one thread, ROWS many for each of two, in both types. */
enum { ROWS = 12000, PART = 1500, CHANNELS = 2, POSITIONS = 100, D = CHANNELS * POSITIONS, N = ROWS * D };

struct large {
  struct trm_device *device;
  enum trm_value_type type;
  const void *x, *dy; /* (ROWS, D) */
  float *mean, *scale; /* (ROWS) */
  const float *w;      /* (D) */
  float *gradients;    /* (2, D) */
};

/* Arrays of the rows of a call. */
struct rows {
  const void *x, *dy;
  void *to;
  size_t first, count;
  enum trm_activation kind;
};

static void add_rows(const struct large *it, const struct rows *rows)
{
  it->device->ops->add(it->device, &(struct trm_add){
    .a = rows->x, .b = rows->dy, .y = rows->to, .n = rows->count * D, .type = it->type});
}

static void activation_forward_rows(const struct large *it, const struct rows *rows)
{
  it->device->ops->activation_forward(it->device, &(struct trm_activation_forward){
    .kind = rows->kind, .x = rows->x, .y = rows->to, .n = rows->count * D, .type = it->type});
}

/* Of the input x or the output x. */
static void activation_backward_rows(const struct large *it, const struct rows *rows)
{
  it->device->ops->activation_backward(it->device, &(struct trm_activation_backward){
    .kind = rows->kind, .x = rows->x, .y = rows->x, .dy = rows->dy, .dx = rows->to, .n = rows->count * D,
    .type = it->type});
}

static void norm_forward_rows(const struct large *it, const struct rows *rows)
{
  it->device->ops->norm_forward(it->device, &(struct trm_norm_forward){
    .x = rows->x, .gain = it->w, .bias = it->w, .y = rows->to, .mean = it->mean + rows->first,
    .scale = it->scale + rows->first, .r = rows->count, .d = D, .epsilon = 1e-5f, .type = it->type});
}

/* After norm_forward_rows. */
static void norm_backward_rows(const struct large *it, const struct rows *rows)
{
  it->device->ops->norm_backward(it->device, &(struct trm_norm_backward){
    .x = rows->x, .gain = it->w, .dy = rows->dy, .mean = it->mean + rows->first, .scale = it->scale + rows->first,
    .dx = rows->to, .dgain = it->gradients, .dbias = it->gradients + D, .r = rows->count, .d = D, .type = it->type});
}

static const struct trm_batch_norm bn = {CHANNELS, POSITIONS, (double)ROWS * POSITIONS, 1e-5f, NULL};

static void batch_norm_forward_rows(const struct large *it, const struct rows *rows)
{
  it->device->ops->batch_norm_forward(it->device, &(struct trm_batch_norm_forward){
    .bn = bn, .x = rows->x, .mean = it->w, .square = it->w + CHANNELS, .w = it->w, .bias = it->w, .addend = rows->dy,
    .relu = true, .y = rows->to, .b = rows->count, .type = it->type});
}

static void batch_norm_backward_rows(const struct large *it, const struct rows *rows)
{
  it->device->ops->batch_norm_backward(it->device, &(struct trm_batch_norm_backward){
    .bn = bn, .x = rows->x, .dy = rows->dy, .mean = it->w, .square = it->w + CHANNELS, .w = it->w, .sums = it->w,
    .dx = rows->to, .b = rows->count, .type = it->type});
}

static const struct {
  const char *name;
  void (*run)(const struct large *it, const struct rows *rows);
  enum trm_activation kind;
} calls[] = {{"add", add_rows, 0},
             {"gelu", activation_forward_rows, TRM_GELU},
             {"gelu backward", activation_backward_rows, TRM_GELU},
             {"relu", activation_forward_rows, TRM_RELU},
             {"relu backward", activation_backward_rows, TRM_RELU},
             {"norm", norm_forward_rows, 0},
             {"norm backward", norm_backward_rows, 0},
             {"batch norm", batch_norm_forward_rows, 0},
             {"batch norm backward", batch_norm_backward_rows, 0}};

static void run_by_parts(const struct large *it, size_t call, size_t part, char *to)
{
  const size_t bytes = D * trm_value_bytes(it->type);

  for (size_t row = 0; row < ROWS; row += part)
    calls[call].run(it, &(struct rows){.x = (const char *)it->x + row * bytes, .dy = (const char *)it->dy + row * bytes,
                                       .to = to + row * bytes, .first = row, .count = part, .kind = calls[call].kind});
}

static void check_large(struct trm_device *device, enum trm_value_type type)
{
  const size_t bytes = N * trm_value_bytes(type);
  float *w = host_random(D, 3), *got = host_floats(N), *want = host_floats(N);
  void *values[2];

  for (size_t j = 0; j < D; j++)
    w[j] += 1.5f; /* sums of squares, among others */
  for (int i = 0; i < 2; i++) {
    const float *from = device_floats(device, host_random(N, 1 + (uint32_t)i), N);

    values[i] = device_nan(device, N);
    device->ops->convert(device, &(struct trm_convert){
      .from = from, .to = values[i], .n = N, .type_from = TRM_VALUES_F32, .type_to = type});
  }
  const struct large it = {.device = device, .type = type, .x = values[0], .dy = values[1],
                           .mean = device_nan(device, ROWS), .scale = device_nan(device, ROWS),
                           .w = device_floats(device, w, D), .gradients = device_nan(device, 2 * D)};
  float *whole = device_nan(device, N), *parts = device_nan(device, N);

  for (size_t c = 0; c < COUNT(calls); c++) {
    run_by_parts(&it, c, ROWS, (char *)whole);
    run_by_parts(&it, c, PART, (char *)parts);
    device->ops->download(device, got, whole, bytes);
    device->ops->download(device, want, parts, bytes);
    if (memcmp(got, want, bytes) != 0)
      printf("\n    %s, %zu bytes of a value\n", calls[c].name, trm_value_bytes(type));
    CU_ASSERT(memcmp(got, want, bytes) == 0);
  }
}

void large_calls(struct trm_device *device)
{
  check_large(device, TRM_VALUES_F32);
  check_large(device, TRM_VALUES_BF16);
}
