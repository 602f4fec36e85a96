/* Losses. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "kernels.h"

struct outcome {
  double *loss, *correct, *dz;
};

static struct outcome outcome_make(size_t b, size_t c)
{
  double *all = trm_alloc((2 * b + b * c) * sizeof(*all), "want");

  return (struct outcome){all, all + b, all + 2 * b};
}

/* Rows of scores z (B, C), and how their loss is computed. */
struct softmax_rows {
  const float *z, *weight, *class_weight; /* weights: NULL: 1 */
  const int32_t *target;
  float scale, smoothing;
  size_t b, c;
  double spread; /* of the scores */
};

static void softmax_want(const struct softmax_rows *it, struct outcome want)
{
  const size_t c = it->c;

  for (size_t i = 0; i < it->b; i++) {
    const float *z = it->z + i * c;
    const double weight = it->weight ? (double)it->weight[i] : 1;
    double maximum = -INFINITY, sum = 0, shares = 0;
    size_t best = 0;

    for (size_t j = 0; j < c; j++)
      if (z[j] > maximum) {
        maximum = z[j];
        best = j;
      }
    for (size_t j = 0; j < c; j++)
      sum += exp(z[j] - maximum);
    want.correct[i] = it->target[i] == TRM_IGNORE_INDEX ? -1 : best == (size_t)it->target[i];
    for (size_t j = 0; j < c && it->target[i] != TRM_IGNORE_INDEX; j++) {
      const double smoothing = (double)it->smoothing, of_class = it->class_weight ? (double)it->class_weight[j] : 1;
      const double share = of_class * (smoothing / (double)c + (j == (size_t)it->target[i] ? 1 - smoothing : 0));

      shares += share;
      want.loss[i] += weight * share * (log(sum) + maximum - z[j]);
      want.dz[i * c + j] = -weight * (double)it->scale * share;
    }
    for (size_t j = 0; j < c && it->target[i] != TRM_IGNORE_INDEX; j++)
      want.dz[i * c + j] += weight * (double)it->scale * shares * exp(z[j] - maximum) / sum;
  }
}

static const float *weights_on(struct trm_device *device, const float *weight, size_t n)
{
  return weight ? device_floats(device, weight, n) : NULL;
}

static void softmax_check(struct trm_device *device, const struct softmax_rows *it)
{
  const size_t b = it->b, c = it->c;
  struct outcome want = outcome_make(b, c);
  float *on_z = device_floats(device, it->z, b * c), *loss = device_nan(device, b), *correct = device_nan(device, b);
  float *dz = device_nan(device, b * c), *alone = device_nan(device, b);
  struct trm_softmax_cross_entropy call = {
    .z = on_z, .target = device_bytes(device, it->target, b * sizeof(*it->target)),
    .weight = weights_on(device, it->weight, b), .class_weight = weights_on(device, it->class_weight, c),
    .scale = it->scale, .smoothing = it->smoothing, .loss = loss, .correct = correct, .dz = dz, .b = b, .c = c,
    .ld = c};

  softmax_want(it, want);
  device->ops->softmax_cross_entropy(device, &call);
  check_close("softmax loss", read_floats(device, loss, b), want.loss, b, 2e-7 * (1 + it->spread), 4e-7);
  check_close("softmax correct", read_floats(device, correct, b), want.correct, b, 0, 0);
  check_close("softmax gradient", read_floats(device, dz, b * c), want.dz, b * c, (double)it->scale * 3e-7, 1e-6);
  /* outputs that are not requested change no others */
  call.loss = alone;
  call.correct = NULL;
  call.dz = NULL;
  device->ops->softmax_cross_entropy(device, &call);
  check_same("softmax, loss alone", read_floats(device, alone, b), read_floats(device, loss, b), b);
  call.dz = on_z;
  device->ops->softmax_cross_entropy(device, &call);
  check_same("softmax in place", read_floats(device, on_z, b * c), read_floats(device, dz, b * c), b * c);
  trm_free(want.loss);
}

/* Returns weights (c) of mean 1. */
static const float *class_weights(size_t c)
{
  float *weight = host_floats(c);

  for (size_t j = 0; j < c; j++)
    weight[j] = c == 1 ? 1 : j + 1 == c && c % 2 ? 1 : j % 2 ? 0.25f : 1.75f;
  return weight;
}

static int32_t *targets(size_t b, size_t c)
{
  int32_t *target = (int32_t *)host_floats(b);

  for (size_t i = 0; i < b; i++)
    target[i] = (int32_t)((i * 7 + i / 3) % c);
  return target;
}

void softmax_reference(struct trm_device *device)
{
  static const size_t shapes[][2] = {{0, 4}, {1, 1}, {3, 2}, {17, 10}, {1000, 10}, {5, 1000}, {40, 1001}, {2, 5000}};

  for (size_t s = 0; s < COUNT(shapes); s++) {
    const size_t b = shapes[s][0], c = shapes[s][1];
    float *z = host_random(b * c, (uint32_t)s), *weight = host_floats(b);
    struct softmax_rows it = {
      .z = z, .target = targets(b, c), .scale = 1.0f / (float)(b + 1), .b = b, .c = c, .spread = 8};

    for (size_t i = 0; i < b * c; i++)
      z[i] *= 8;
    for (size_t i = 0; i < b; i++)
      weight[i] = i % 3 ? 0.5f : 1;
    softmax_check(device, &it);
    int32_t *some = targets(b, c);
    for (size_t i = 0; i < b; i += 3)
      some[i] = TRM_IGNORE_INDEX;
    it.target = some;
    it.smoothing = s % 2 ? 0 : 0.1f;
    softmax_check(device, &it);
    it.smoothing = 0.5f;
    softmax_check(device, &it);
    it.weight = weight;
    it.class_weight = class_weights(c);
    softmax_check(device, &it);
    it.smoothing = 0;
    softmax_check(device, &it);
  }
}

void softmax_extremes(struct trm_device *device)
{
  static const float z[] = {1e4f,  -1e4f, 0,      /* confident and right */
                            -1e4f, 1e4f,  1e4f,   /* confident and wrong; in a tie the first class is the answer */
                            5,     5,     5,      /* all equal: the first is right */
                            -1e4f, -1e4f, -1e4f,  /* all very negative */
                            1e4f,  9999,  -1e30f};
  static const int32_t target[] = {0, 2, 0, 1, 1};
  static const float wild[] = {1, NAN, 2, 3, 4, 5, INFINITY, 1, 0};
  static const int32_t wild_target[] = {2, 2, 1};
  const float expected[] = {1, 0, 1, 0, 0};

  softmax_check(device, &(struct softmax_rows){.z = z, .target = target, .scale = 1, .b = 5, .c = 3, .spread = 1e4});
  float *loss = device_nan(device, 5), *correct = device_nan(device, 5), *dz = device_nan(device, 15);
  device->ops->softmax_cross_entropy(device, &(struct trm_softmax_cross_entropy){
    .z = device_floats(device, z, 15), .target = device_bytes(device, target, sizeof(target)), .scale = 1, .loss = loss,
    .correct = correct, .dz = dz, .b = 5, .c = 3, .ld = 3});
  check_same("softmax: who is right", read_floats(device, correct, 5), expected, 5);
  for (int i = 0; i < 15; i++)
    CU_ASSERT(isfinite(read_floats(device, dz, 15)[i]));

  device->ops->softmax_cross_entropy(device, &(struct trm_softmax_cross_entropy){
    .z = device_floats(device, wild, 9), .target = device_bytes(device, wild_target, sizeof(wild_target)), .scale = 1,
    .loss = loss, .correct = correct, .dz = dz, .b = 3, .c = 3, .ld = 3});
  const float *got = read_floats(device, loss, 3), *right = read_floats(device, correct, 3);
  const float *slope = read_floats(device, dz, 9);
  CU_ASSERT(isnan(got[0]) && right[0] == 0);
  CU_ASSERT(isfinite(got[1]) && right[1] == 1);
  CU_ASSERT(!isfinite(got[2]) && right[2] == 0);
  for (int j = 0; j < 3; j++) {
    CU_ASSERT(isnan(slope[j]));
    CU_ASSERT(isfinite(slope[3 + j]));
    CU_ASSERT(isnan(slope[6 + j]));
  }
}

/* Returns the columns of a shard of z (B, C), on the device. */
static const float *device_columns(struct trm_device *device, const float *z, size_t b, const struct trm_vocab_shard *v)
{
  const size_t n = v->high - v->low;
  float *own = host_floats(b * n);

  for (size_t i = 0; i < b; i++)
    memcpy(own + i * n, z + i * v->total + v->low, n * sizeof(*own));
  return device_floats(device, own, b * n);
}

/* Scores split into three shards, against the whole. */
static void parts_check(struct trm_device *device, const struct softmax_rows *it)
{
  enum { PARTS = 3 };
  const size_t b = it->b, c = it->c;
  struct outcome want = outcome_make(b, c);
  double *dgot = trm_alloc(b * c * sizeof(*dgot), "got");
  const int32_t *on_target = device_bytes(device, it->target, b * sizeof(*it->target));
  const float *weight = weights_on(device, it->weight, b), *class_weight = weights_on(device, it->class_weight, c);
  const float *part[PARTS], *on_z[PARTS];
  struct trm_vocab_shard v[PARTS];
  float *on_most = device_nan(device, b), *on_sum = device_nan(device, b);
  float *loss = device_nan(device, b), *correct = device_nan(device, b);

  softmax_want(it, want);
  for (size_t k = 0; k < PARTS; k++) {
    v[k] = (struct trm_vocab_shard){k * c / PARTS, (k + 1) * c / PARTS, c};
    float *words = device_nan(device, b * TRM_SCORES_FIELDS);

    on_z[k] = device_columns(device, it->z, b, &v[k]);
    device->ops->softmax_shard_stats(device, &(struct trm_softmax_shard_stats){
      .z = on_z[k], .target = on_target, .class_weight = class_weight, .v = v[k], .stats = words, .b = b,
      .ld = v[k].high - v[k].low});
    part[k] = read_floats(device, words, b * TRM_SCORES_FIELDS);
  }
  float *all = host_floats(PARTS * b * TRM_SCORES_FIELDS);
  for (size_t k = 0; k < PARTS; k++)
    memcpy(all + k * b * TRM_SCORES_FIELDS, part[k], b * TRM_SCORES_FIELDS * sizeof *all);
  device->ops->softmax_shard_join(device, &(struct trm_softmax_shard_join){
    .stats = device_floats(device, all, PARTS * b * TRM_SCORES_FIELDS), .target = on_target, .weight = weight,
    .class_weight = class_weight, .v = v[0], .ranks = PARTS, .smoothing = it->smoothing, .loss = loss,
    .correct = correct, .max = on_most, .sum = on_sum, .b = b});
  check_close("loss of the parts", read_floats(device, loss, b), want.loss, b, 4e-7 * (1 + it->spread), 1e-6);
  check_close("correct of the parts", read_floats(device, correct, b), want.correct, b, 0, 0);
  for (size_t k = 0; k < PARTS; k++) {
    const size_t n = v[k].high - v[k].low;
    float *dz = device_nan(device, b * n);
    device->ops->softmax_shard_gradient(device, &(struct trm_softmax_shard_gradient){
      .z = on_z[k], .target = on_target, .weight = weight, .class_weight = class_weight, .v = v[k], .max = on_most,
      .sum = on_sum, .scale = it->scale, .smoothing = it->smoothing, .dz = dz, .b = b, .ld = n});
    for (size_t i = 0; i < b; i++)
      for (size_t j = 0; j < n; j++)
        dgot[i * n + j] = want.dz[i * c + v[k].low + j];
    check_close("gradient of a part", read_floats(device, dz, b * n), dgot, b * n, (double)it->scale * 6e-7, 2e-6);
  }
  trm_free(dgot);
  trm_free(want.loss);
}

void softmax_parts(struct trm_device *device)
{
  static const float ties[] = {5, 5, 5, 5, 7, 7, 1, 7, 1e4f, -1e4f, -1e4f, 1e4f};
  static const int32_t first[] = {0, 1, 0}, later[] = {1, 3, 3};
  static const size_t shapes[][2] = {{1, 3}, {17, 10}, {40, 1001}, {3, 5000}};
  struct softmax_rows tied = {.z = ties, .target = first, .scale = 0.25f, .b = 3, .c = 4, .spread = 1e4};

  for (size_t s = 0; s < COUNT(shapes); s++) {
    const size_t b = shapes[s][0], c = shapes[s][1];
    float *z = host_random(b * c, (uint32_t)s), *weight = host_floats(b);
    int32_t *some = targets(b, c);
    struct softmax_rows it = {.z = z, .target = some, .scale = 1.0f / (float)(b + 1), .b = b, .c = c, .spread = 8};

    for (size_t i = 0; i < b * c; i++)
      z[i] *= 8;
    for (size_t i = 0; i < b; i++)
      weight[i] = i % 3 ? 0.5f : 1;
    parts_check(device, &it);
    for (size_t i = 0; i < b; i += 3)
      some[i] = TRM_IGNORE_INDEX;
    it.smoothing = 0.1f;
    parts_check(device, &it);
    it.weight = weight;
    it.class_weight = class_weights(c);
    parts_check(device, &it);
    it.smoothing = 0;
    parts_check(device, &it);
  }
  parts_check(device, &tied);
  tied.target = later;
  parts_check(device, &tied);
}

void softmax_part_bad_target(struct trm_device *device)
{
  static const int32_t bad[] = {1, 5, 4};
  static const struct trm_vocab_shard v = {2, 5, 5};
  float *part = device_nan(device, 3 * TRM_SCORES_FIELDS);

  device->ops->softmax_shard_stats(device, &(struct trm_softmax_shard_stats){
    .z = device_floats(device, host_random(9, 1), 9), .target = device_bytes(device, bad, sizeof(bad)), .v = v,
    .stats = part, .b = 3, .ld = 3});
  CU_ASSERT_EQUAL(device->ops->sync(device), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "row 1 is 5"));
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "5 classes"));
  CU_ASSERT(isfinite(read_floats(device, part, 3 * TRM_SCORES_FIELDS)[TRM_SCORES_SUM]));
  CU_ASSERT(isnan(read_floats(device, part, 3 * TRM_SCORES_FIELDS)[TRM_SCORES_FIELDS + TRM_SCORES_SUM]));
}

void softmax_bad_target(struct trm_device *device)
{
  static const int32_t bad[] = {1, 3, 0}, negative[] = {1, 0, -7};
  const float *z = device_floats(device, host_random(9, 1), 9);
  float *loss = device_nan(device, 3), *dz = device_nan(device, 9);

  CU_ASSERT_EQUAL(device->ops->sync(device), TRM_OK);
  device->ops->softmax_cross_entropy(device, &(struct trm_softmax_cross_entropy){
    .z = z, .target = device_bytes(device, bad, sizeof(bad)), .scale = 1, .loss = loss, .dz = dz, .b = 3, .c = 3, .ld = 3});
  CU_ASSERT_EQUAL(device->ops->sync(device), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "row 1 is 3"));
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "3 classes"));
  CU_ASSERT(isfinite(read_floats(device, loss, 3)[0]));
  CU_ASSERT(isnan(read_floats(device, loss, 3)[1]));
  CU_ASSERT_EQUAL(device->ops->sync(device), TRM_OK); /* reported once */
  device->ops->softmax_cross_entropy(device, &(struct trm_softmax_cross_entropy){
    .z = z, .target = device_bytes(device, negative, sizeof(negative)), .scale = 1, .loss = loss, .b = 3, .c = 3, .ld = 3});
  CU_ASSERT_EQUAL(device->ops->sync(device), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "row 2 is -7"));
}

void squares_reference(struct trm_device *device)
{
  static const size_t shapes[][2] = {{0, 4}, {1, 1}, {3, 17}, {17, 3}, {300, 257}, {2, 5000}};

  for (size_t s = 0; s < COUNT(shapes); s++) {
    const size_t b = shapes[s][0], f = shapes[s][1];
    const float *z = host_random(b * f, 1), *t = host_random(b * f, 2);
    struct outcome want = outcome_make(b, f);
    float *on_z = device_floats(device, z, b * f), *on_t = device_floats(device, t, b * f);
    float *loss = device_nan(device, b), *correct = device_nan(device, b), *dz = device_nan(device, b * f);

    for (size_t i = 0; i < b * f; i++) {
      const double d = (double)z[i] - t[i];

      want.loss[i / f] += d * d / (double)f;
      want.dz[i] = 0.25 * 2 * d / (double)f;
    }
    device->ops->mean_squared_error(device, &(struct trm_value_loss){
      .z = on_z, .target = on_t, .scale = 0.25f, .loss = loss, .correct = correct, .dz = dz, .b = b, .f = f, .ld = f});
    check_close("squares loss", read_floats(device, loss, b), want.loss, b, 0, 2e-6);
    check_close("squares correct", read_floats(device, correct, b), want.correct, b, 0, 0);
    check_close("squares gradient", read_floats(device, dz, b * f), want.dz, b * f, 1e-7 / (double)f, 4e-7);
    device->ops->mean_squared_error(device, &(struct trm_value_loss){
      .z = on_z, .target = on_t, .scale = 0.25f, .loss = loss, .b = b, .f = f, .ld = f});
    device->ops->mean_squared_error(device, &(struct trm_value_loss){
      .z = on_z, .target = on_t, .scale = 0.25f, .loss = loss, .dz = on_z, .b = b, .f = f, .ld = f});
    check_same("squares in place", read_floats(device, on_z, b * f), read_floats(device, dz, b * f), b * f);
    trm_free(want.loss);
  }
}

/* -- rows that lie apart */

enum { PADDED_B = 7, PADDED_C = 1001, PADDED_LD = 1024 };

/* Returns rows (PADDED_B, PADDED_C) on the device, ld apart, with NaN between them. */
static float *padded_rows(struct trm_device *device, const float *packed, size_t ld)
{
  float *apart = host_floats(PADDED_B * ld);

  for (size_t i = 0; i < PADDED_B * ld; i++)
    apart[i] = i % ld < PADDED_C ? packed[i / ld * PADDED_C + i % ld] : NAN;
  return device_floats(device, apart, PADDED_B * ld);
}

/* Checks the gradient against the packed one, and that what lies between its rows is NaN as before. */
static void padded_check(struct trm_device *device, const char *name, const float *packed, const float *apart)
{
  const float *want = read_floats(device, packed, PADDED_B * PADDED_C);
  const float *got = read_floats(device, apart, PADDED_B * PADDED_LD);

  for (size_t i = 0; i < PADDED_B; i++) {
    check_same(name, got + i * PADDED_LD, want + i * PADDED_C, PADDED_C);
    for (size_t j = PADDED_C; j < PADDED_LD; j++)
      CU_ASSERT(isnan(got[i * PADDED_LD + j]));
  }
}

/* A loss on rows that are ld apart: writes results (PADDED_B, 3) and the gradient in place of z. */
typedef void padded_loss(struct trm_device *device, float *z, size_t ld, float *results);

static const int32_t *padded_targets(struct trm_device *device)
{
  int32_t *target = targets(PADDED_B, PADDED_C);

  target[2] = TRM_IGNORE_INDEX;
  return device_bytes(device, target, PADDED_B * sizeof(*target));
}

static void padded_softmax(struct trm_device *device, float *z, size_t ld, float *results)
{
  device->ops->softmax_cross_entropy(device, &(struct trm_softmax_cross_entropy){
    .z = z, .target = padded_targets(device), .scale = 0.5f, .smoothing = 0.1f, .loss = results,
    .correct = results + PADDED_B, .dz = z, .b = PADDED_B, .c = PADDED_C, .ld = ld});
}

static void padded_shard(struct trm_device *device, float *z, size_t ld, float *results)
{
  static const struct trm_vocab_shard v = {100, 100 + PADDED_C, 5000};
  const float *one = device_floats(device, (const float[PADDED_B]){1, 2, 3, 4, 5, 6, 7}, PADDED_B);
  const int32_t *target = padded_targets(device);
  float *stats = device_nan(device, PADDED_B * TRM_SCORES_FIELDS);

  device->ops->softmax_shard_stats(device, &(struct trm_softmax_shard_stats){
    .z = z, .target = target, .v = v, .stats = stats, .b = PADDED_B, .ld = ld});
  device->ops->copy(device, results, stats, 3 * PADDED_B * sizeof(*stats));
  device->ops->softmax_shard_gradient(device, &(struct trm_softmax_shard_gradient){
    .z = z, .target = target, .v = v, .max = one, .sum = one, .scale = 0.5f, .smoothing = 0.1f, .dz = z, .b = PADDED_B,
    .ld = ld});
}

static void padded_squares(struct trm_device *device, float *z, size_t ld, float *results)
{
  device->ops->mean_squared_error(device, &(struct trm_value_loss){
    .z = z, .target = device_floats(device, host_random(PADDED_B * PADDED_C, 3), PADDED_B * PADDED_C), .scale = 0.5f,
    .loss = results, .correct = results + PADDED_B, .dz = z, .b = PADDED_B, .f = PADDED_C, .ld = ld});
}

void losses_padded(struct trm_device *device)
{
  static padded_loss *const losses[] = {padded_softmax, padded_shard, padded_squares};
  static const char *const names[] = {"softmax, rows apart", "sharded softmax, rows apart", "squares, rows apart"};

  for (size_t k = 0; k < COUNT(losses); k++) {
    const float *z = host_random(PADDED_B * PADDED_C, 1);
    float *packed = padded_rows(device, z, PADDED_C), *apart = padded_rows(device, z, PADDED_LD);
    float *want = device_floats(device, host_floats(3 * PADDED_B), 3 * PADDED_B);
    float *got = device_floats(device, host_floats(3 * PADDED_B), 3 * PADDED_B);

    losses[k](device, packed, PADDED_C, want);
    losses[k](device, apart, PADDED_LD, got);
    check_same(names[k], read_floats(device, got, 3 * PADDED_B), read_floats(device, want, 3 * PADDED_B), 3 * PADDED_B);
    padded_check(device, names[k], packed, apart);
  }
}

void margins_reference(struct trm_device *device)
{
  static const float edge[] = {0, -0.0f, 1, -1, 100, -100, 1e-8f, -1e-8f, 1e4f, -1e4f, 0.5f, 88, -88, 2};
  static const size_t sizes[] = {0, 1, 3, COUNT(edge) * 2, 1000, 5003};

  for (size_t s = 0; s < COUNT(sizes); s++)
    for (int kind = 0; kind < 2; kind++) {
      const size_t b = sizes[s];
      float *z = host_random(b, 1), *t = host_floats(b);
      struct outcome want = outcome_make(b, 1);

      for (size_t i = 0; i < b; i++) {
        t[i] = (i / COUNT(edge)) % 2 ? 1 : -1;
        z[i] = i < 2 * COUNT(edge) ? edge[i % COUNT(edge)] : 6 * z[i];
        const double m = (double)t[i] * z[i];
        want.loss[i] = kind ? fmax(0, 1 - m) : log1p(exp(-fabs(m))) + fmax(0, -m);
        want.correct[i] = (z[i] > 0) == (t[i] > 0);
        want.dz[i] = 0.5 * (kind ? (m < 1 ? -(double)t[i] : 0) : -t[i] / (1 + exp(m)));
      }
      float *on_z = device_floats(device, z, b), *on_t = device_floats(device, t, b);
      float *loss = device_nan(device, b), *correct = device_nan(device, b), *dz = device_nan(device, b);
      void (*const run)(struct trm_device *, const struct trm_margin_loss *) =
        kind ? device->ops->hinge : device->ops->logistic;
      run(device, &(struct trm_margin_loss){
        .z = on_z, .target = on_t, .scale = 0.5f, .loss = loss, .correct = correct, .dz = dz, .b = b});
      check_close(kind ? "hinge loss" : "logistic loss", read_floats(device, loss, b), want.loss, b, 1e-44, 4e-7);
      check_close("correct", read_floats(device, correct, b), want.correct, b, 0, 0);
      check_close("gradient", read_floats(device, dz, b), want.dz, b, 1e-38, 4e-7);
      run(device, &(struct trm_margin_loss){
        .z = on_z, .target = on_t, .scale = 0.5f, .loss = loss, .dz = on_z, .b = b});
      check_same("in place", read_floats(device, on_z, b), read_floats(device, dz, b), b);

      if (b == 3) { /* a NaN loss is visible and counts as wrong for either class */
        float *nan = device_nan(device, b);

        t[0] = -1;
        t[1] = 1;
        run(device, &(struct trm_margin_loss){
          .z = nan, .target = device_floats(device, t, b), .scale = 1, .loss = loss, .correct = correct, .dz = dz,
          .b = b});
        for (int i = 0; i < 2; i++)
          CU_ASSERT(isnan(read_floats(device, loss, b)[i]) && isnan(read_floats(device, dz, b)[i]) &&
                    read_floats(device, correct, b)[i] == 0);
      }
      trm_free(want.loss);
    }
}
