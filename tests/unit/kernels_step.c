/* Kernels of a step in device memory: sums of losses, clipping, trust ratios, updates that read it. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

#include "kernels.h"

static struct trm_step *step_upload(struct trm_device *device, const struct trm_step *step)
{
  return device_bytes(device, step, sizeof *step);
}

/* Returns the step, and adds it to the digest. */
static struct trm_step step_read(struct trm_device *device, const struct trm_step *from)
{
  struct trm_step step;

  memcpy(&step, read_floats(device, (const float *)from, sizeof step / sizeof(float)), sizeof step);
  return step;
}

void step_loss_sums(struct trm_device *device)
{
  static const size_t sizes[] = {0, 1, 33, 1000};

  for (size_t s = 0; s < COUNT(sizes); s++) {
    const size_t rows = sizes[s];
    const float *loss = host_random(rows, 1);
    float *correct = host_floats(rows);
    long double sum = 5;
    const struct trm_step start = {.number = 7, .rate = 0.5f, .norm_squared = 4, .loss = 5, .correct = 2, .rows = 3};
    double right = 2, counted = 3;

    for (size_t i = 0; i < rows; i++) {
      correct[i] = (float)(i % 3) - 1; /* every third is ignored */
      sum += (long double)loss[i];
      right += correct[i] > 0;
      counted += correct[i] >= 0;
    }
    struct trm_step *on = step_upload(device, &start);
    device->ops->sum_losses(device, &(struct trm_sum_losses){
      .loss = device_floats(device, loss, rows), .correct = device_floats(device, correct, rows), .step = on,
      .rows = rows});
    const struct trm_step got = step_read(device, on);
    CU_ASSERT(fabsl((long double)got.loss - sum) < 1e-12L);
    CU_ASSERT_EQUAL(got.correct, right);
    CU_ASSERT_EQUAL(got.rows, counted);
    CU_ASSERT(got.number == 7 && got.norm_squared == 4 && got.rate == 0.5f);
  }
}

void step_clip(struct trm_device *device)
{
  static const struct {
    double norm_squared, limit, loss;
    float scale;
    bool skip;
  } cases[] = {{16, 2, 1, 0.5f, false}, {16, 4, 1, 1, false}, {16, 0, 1, 1, false}, {16, 8, -1, 1, false},
               {16, 2, NAN, 0.5f, true}, {0, 1, INFINITY, 1, true}};

  for (size_t i = 0; i < COUNT(cases); i++) {
    struct trm_step *on = step_upload(device, &(struct trm_step){
      .norm_squared = cases[i].norm_squared, .loss = cases[i].loss, .scale = 9, .skip = !cases[i].skip});

    device->ops->clip(device, &(struct trm_clip){.step = on, .limit = cases[i].limit});
    const struct trm_step got = step_read(device, on);
    CU_ASSERT_EQUAL(got.scale, cases[i].scale);
    CU_ASSERT_EQUAL(got.skip != 0, cases[i].skip);
  }
}

void step_ratios(struct trm_device *device)
{
  static const double norm[4][2] = {{16, 4}, {0, 4}, {16, 0}, {9, 1}}; /* |w|^2, |g|^2 */
  static const float lamb[4] = {2, 1, 1, 3};
  const struct trm_step *now = step_upload(device, &(struct trm_step){.scale = 0.5f});
  const double *on = device_bytes(device, norm, sizeof norm);
  float *ratio = device_nan(device, 4), want[4];

  device->ops->trust_ratios(device, &(struct trm_trust_ratios){
    .update = {.rule = TRM_UPDATE_LAMB}, .norm = on, .ratio = ratio, .tensors = 4});
  check_same("lamb", read_floats(device, ratio, 4), lamb, 4);
  for (int t = 0; t < 4; t++) {
    const double w = sqrt(norm[t][0]), g = sqrt(norm[t][1]);
    want[t] = w > 0 && g > 0 ? (float)(0.25 * w / (0.5 * g + 0.125 * w)) : 1;
  }
  device->ops->trust_ratios(device, &(struct trm_trust_ratios){
    .update = {.rule = TRM_UPDATE_LARS, .l2 = 0.125f, .now = now, .scale = 7}, .trust = 0.25, .norm = on,
    .ratio = ratio, .tensors = 4});
  check_same("lars", read_floats(device, ratio, 4), want, 4);
}

static struct trm_update step_rule(enum trm_update_rule rule)
{
  return (struct trm_update){.rule = rule, .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-6f};
}

/* An update with runs and a step in device memory against one call for each run with the numbers themselves. */
void step_update(struct trm_device *device)
{
  enum { N = 5003, RUNS = 4 };
  const struct trm_step now = {.number = 3, .rate = 0.25f, .average = 0.125f, .scale = 0.5f};
  const struct trm_update_run run[RUNS] = {{1, 1, 0, 0, 0}, {700, 2, 0.5f, 0.25f, 2}, {704, 1, 0, 0.125f, 1},
                                           {N, 1, 0.25f, 0, 0}};
  const float ratio[3] = {1, 4, 0.5f};

  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_LAMB; rule++)
    for (int skip = 0; skip < 2; skip++) {
      struct trm_step step = now;
      float *array[2][4]; /* w, m, v, g */

      step.skip = skip;
      for (int k = 0; k < 8; k++) {
        float *x = host_random(N, (uint32_t)(k % 4));
        for (int i = 0; i < N; i++)
          x[i] = fabsf(x[i]);
        array[k / 4][k % 4] = device_floats(device, x, N);
      }
      struct trm_update how = step_rule(rule);
      how.now = step_upload(device, &step);
      how.use = TRM_STEP_RULE;
      float **got = array[0], **want = array[1];
      if (rule == TRM_UPDATE_LAMB)
        device->ops->lamb_direction(device, &(struct trm_lamb_direction){
          .update = how, .run = run, .runs = RUNS, .w = got[0], .g = got[3], .first = got[1], .second = got[2],
          .n = N});
      else
        device->ops->update(device, &(struct trm_update_arrays){
          .update = how, .run = run, .runs = RUNS, .ratio = device_floats(device, ratio, 3), .w = got[0], .g = got[3],
          .first = got[1], .second = got[2], .n = N});
      for (size_t i = 0, low = 0; i < RUNS && !skip; low = run[i++].end) {
        struct trm_update each = step_rule(rule);
        const size_t n = run[i].end - low;
        each.rate = run[i].rate * ratio[run[i].ratio] * now.rate;
        each.l2 = run[i].l2;
        each.decay = run[i].decay;
        each.scale = now.scale;
        each.step = now.number;
        if (rule == TRM_UPDATE_LAMB)
          device->ops->lamb_direction(device, &(struct trm_lamb_direction){
            .update = each, .w = want[0] + low, .g = want[3] + low, .first = want[1] + low, .second = want[2] + low,
            .n = n});
        else
          device->ops->update(device, &(struct trm_update_arrays){
            .update = each, .w = want[0] + low, .g = want[3] + low, .first = want[1] + low, .second = want[2] + low,
            .n = n});
      }
      for (int k = 0; k < 4; k++)
        check_same("step", read_floats(device, got[k], N), read_floats(device, want[k], N), N);
    }
}

/* The other uses of a step: its rate alone, the weight of the average, and nothing but its flag. */
void step_uses(struct trm_device *device)
{
  const struct trm_step *now = step_upload(device, &(struct trm_step){.rate = 0.5f, .average = 0.25f, .scale = 8});
  static const float want[3] = {1 - 0.25f * 0.5f * 2, 1 - 0.25f * 2, 1 - 0.5f * 2};
  static const enum trm_step_use use[3] = {TRM_STEP_RATE, TRM_STEP_AVERAGE, TRM_STEP_SKIP};
  static const float rate[3] = {0.25f, 7, 0.5f}, one = 1, two = 2;

  for (int i = 0; i < 3; i++) {
    float *w = device_floats(device, &one, 1);
    device->ops->update(device, &(struct trm_update_arrays){
      .update = {.rule = TRM_UPDATE_SGD, .rate = rate[i], .scale = 1, .now = now, .use = use[i]}, .w = w,
      .g = device_floats(device, &two, 1), .n = 1});
    check_same("use", read_floats(device, w, 1), &want[i], 1);
  }
}

/* A dropout mask whose first row is the step's, and one of the same row. */
void step_mask(struct trm_device *device)
{
  enum { B = 6, F = 50 };
  const struct trm_step *now = step_upload(device, &(struct trm_step){.first_row = 40});
  const float *x = device_floats(device, host_random(B * F, 1), B * F);
  float *got = device_nan(device, B * F), *want = device_nan(device, B * F);
  struct trm_mask mask = {.seed = 3, .stream = 2, .first_row = 4, .rate = 0.5f, .step = now, .row_parts = 2};

  device->ops->dropout(device, &(struct trm_dropout){.mask = mask, .x = x, .y = got, .b = B, .f = F});
  mask.step = NULL;
  mask.first_row = 84;
  device->ops->dropout(device, &(struct trm_dropout){.mask = mask, .x = x, .y = want, .b = B, .f = F});
  check_same("mask", read_floats(device, got, B * F), read_floats(device, want, B * F), B * F);
}

/* The host's memory is free when upload returns, pinned or not, whole or in part. */
void uploads(struct trm_device *device)
{
  enum { N = 1100000, MIDDLE = 400000 };
  const struct trm_device_ops *ops = device->ops;
  const float *random = host_random(N, 1);
  float *in = host_floats(N);

  for (int pinned = 0; pinned < 3; pinned++) {
    float *to = device_nan(device, N);

    memcpy(in, random, N * sizeof *in);
    if (pinned)
      ops->pin(device, in + (pinned - 1) * MIDDLE, (N - (size_t)(pinned - 1) * MIDDLE) * sizeof *in);
    ops->upload(device, to, in, sizeof *in);
    ops->upload(device, to + 1, in + 1, (N - 1) * sizeof *in);
    memset(in, 0xff, N * sizeof *in);
    check_same("uploaded", read_floats(device, to, N), random, N);
    if (pinned)
      ops->unpin(device, in + (pinned - 1) * MIDDLE);
  }
}

/* Copies in and out come after the calls before them; the host's memory is read and written by the event at the latest,
 * and what awaits them sees them. */
void copies_beside_calls(struct trm_device *device)
{
  enum { N = 5000 };
  const struct trm_device_ops *ops = device->ops;
  const float *random = host_random(N, 1);
  float *in = host_floats(N), *out = host_floats(N), *want = host_floats(N);
  float *block = device_nan(device, N), *second = device_nan(device, N);
  struct trm_event event[2] = {{NULL}, {NULL}};

  memcpy(in, random, N * sizeof *in);
  ops->pin(device, in, N * sizeof *in);
  ops->fill(device, block, 3, N);
  ops->upload_begin(device, block, in, N * sizeof *in, &event[0]);
  ops->fill(device, second, 1, N);
  ops->await(device, &event[0]);
  ops->bias_add(device, &(struct trm_bias_add){.y = second, .bias = block, .b = 1, .n = N});
  ops->download_begin(device, out, second, N * sizeof *out, &event[1]);
  ops->bias_add(device, &(struct trm_bias_add){.y = block, .bias = second, .b = 1, .n = N});
  ops->event_wait(device, &event[0]);
  memset(in, 0xff, N * sizeof *in);
  while (!ops->event_done(device, &event[1]))
    ;
  for (int i = 0; i < N; i++)
    want[i] = 1 + random[i];
  check_same("second", out, want, N);
  for (int i = 0; i < N; i++)
    want[i] += random[i];
  check_same("block", read_floats(device, block, N), want, N);
  for (int i = 0; i < 2; i++)
    ops->event_free(device, &event[i]);
  ops->unpin(device, in);
}

/* Gradients of batch normalization from its sums, the count given or in device memory. */
void batch_norm_gradient(struct trm_device *device)
{
  enum { C = 5 };
  const double count = 3;
  const double *counted = device_bytes(device, &count, sizeof count);
  const float *host = host_random(2 * C, 1), *moments = host_random(2 * C, 2), *old = host_random(4 * C, 3);

  for (int i = 0; i < 4; i++) {
    const bool adds = i & 1;
    float *to = device_floats(device, old, 4 * C);
    double want[4 * C];

    device->ops->batch_norm_gradients(device, &(struct trm_batch_norm_gradients){
      .bn = {.channels = C, .size = 1, .count = i & 2 ? 0 : count, .counted = i & 2 ? counted : NULL},
      .sums = device_floats(device, host, 2 * C), .moments = device_floats(device, moments, 2 * C), .share = 0.5,
      .beta = adds, .db = to, .dw = to + C, .dmean = to + 2 * C, .dvariance = to + 3 * C});
    for (int k = 0; k < 4 * C; k++) {
      const double part = k < 2 * C ? (double)host[k] : (k < 3 * C ? 0.5 : 0.25) * (double)moments[k - 2 * C];
      want[k] = (adds ? (double)old[k] : 0) + part;
    }
    check_close("gradients", read_floats(device, to, 4 * C), want, 4 * C, 1e-7, 1e-6);
  }
}
