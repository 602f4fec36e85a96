/* Stochastic updates over sparse rows. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "kernels.h"
#include "kernels/kernels.h"

/* Rows of 0 to `most` entries out of K features; targets -1 and +1. */
struct rows {
  size_t rows, features;
  struct trm_sparse_row *row;
  int32_t *columns;
  float *values, *target;
};

static struct rows rows_make(size_t rows, size_t features, size_t most)
{
  struct rows x = {rows, features, trm_alloc(rows * sizeof(struct trm_sparse_row), "rows"),
                   trm_alloc((rows * most + 1) * sizeof(int32_t), "columns"), host_random(rows * most + 1, 21),
                   host_floats(rows)};
  const float *gap = host_random(rows * most + 1, 22);

  for (size_t i = 0; i < rows; i++) {
    int32_t *column = x.columns + i * most;
    struct trm_sparse_row *row = x.row + i;
    double at = 0;

    *row = (struct trm_sparse_row){column, x.values + i * most, 0};
    for (size_t e = 0; e < (i * 37) % (most + 1); e++) {
      at += 1 + (1 + gap[i * most + e]) / 2 * 2 * ((double)features / (double)most - 1);
      if (at >= (double)features + 1)
        break;
      column[row->entries++] = (int32_t)at - 1;
    }
    x.target[i] = (i * 7 + i / 5) % 3 ? 1 : -1;
  }
  return x;
}

static void rows_free(struct rows *x)
{
  trm_free(x->row);
  trm_free(x->columns);
}

struct outcome {
  double *w, bias;
  struct trm_sparse_sums sums;
};

static double want_score(const struct outcome *want, const struct trm_sparse_row *row, bool biased)
{
  double z = biased ? want->bias : 0;

  for (size_t e = 0; e < row->entries; e++)
    z += want->w[row->columns[e]] * row->values[e];
  return z;
}

/* The definition, in double precision. */
static void pass_want(const struct rows *x, const struct trm_sparse_sgd *how, bool biased, struct outcome *want)
{
  const size_t together = how->update_rows ? how->update_rows : x->rows;

  for (size_t first = 0, end; first < x->rows; first = end) {
    end = first + together < x->rows ? first + together : x->rows;
    const double rate = (double)how->rate / (double)(end - first);
    double *slope = trm_alloc((end - first) * sizeof(*slope), "slopes");
    bool changes = false;

    for (size_t i = first; i < end; i++) {
      const double z = want_score(want, x->row + i, biased), t = x->target[i], margin = t * z;
      const bool hinge = how->loss == TRM_MARGIN_HINGE;

      want->sums.correct += (z > 0) == (t > 0);
      want->sums.loss += hinge ? fmax(0, 1 - margin) : log1p(exp(-margin));
      slope[i - first] = hinge ? (margin < 1 ? -t : 0) : -t / (1 + exp(margin));
      changes = changes || slope[i - first] != 0 || how->shrink;
    }
    want->sums.updates += changes;
    for (size_t i = first; i < end; i++) {
      if (slope[i - first] == 0 && !how->shrink)
        continue;
      for (size_t e = 0; e < x->row[i].entries; e++) {
        const int32_t j = x->row[i].columns[e];

        want->w[j] -= rate * slope[i - first] * x->row[i].values[e];
        want->w[j] *= 1 - rate * (how->shrink ? how->shrink[j] : 0);
      }
      want->sums.written += x->row[i].entries;
      if (biased)
        want->bias -= rate * slope[i - first];
    }
    trm_free(slope);
  }
}

static void pass_check(struct trm_device *device, const struct rows *x, struct trm_sparse_sgd how, bool biased)
{
  const size_t k = x->features;
  const float *start = host_random(k, 23);
  struct outcome want = {.w = trm_alloc(k * sizeof(double), "want"), .bias = 0.25};
  float *w = host_floats(k), bias = 0.25f;
  uint64_t writers = 0;
  const struct trm_races races = {&writers, (uint32_t *)host_floats(k)};
  struct trm_sparse_sums sums;
  char text[96];

  snprintf(text, sizeof(text), "%zu rows, %zu features, %zu together, %s%s", x->rows, k, how.update_rows,
           how.loss == TRM_MARGIN_HINGE ? "hinge" : "logistic", how.shrink ? ", shrinking" : "");
  for (size_t j = 0; j < k; j++)
    want.w[j] = w[j] = start[j];
  pass_want(x, &how, biased, &want);
  device->ops->sparse_sgd(device, &(struct trm_sparse_sgd_rows){
    .sgd = how, .row = x->row, .target = x->target, .w = w, .bias = biased ? &bias : NULL, .sums = &sums,
    .rows = x->rows});
  check_close(text, w, want.w, k, 2e-5, 0);
  check_close(text, &bias, &want.bias, 1, 2e-5, 0);
  CU_ASSERT_DOUBLE_EQUAL(sums.loss, want.sums.loss, 2e-5 * (1 + (double)x->rows));
  CU_ASSERT_EQUAL(sums.correct, want.sums.correct);
  CU_ASSERT_EQUAL(sums.updates, want.sums.updates);
  CU_ASSERT_EQUAL(sums.written, want.sums.written);
  CU_ASSERT_EQUAL(sums.conflicts, 0);

  /* counting does not change the updates; a single writer loses none */
  float *counted = host_floats(k), other_bias = 0.25f;
  struct trm_sparse_sums again;
  uint64_t written = 0;

  memcpy(counted, start, k * sizeof(*counted));
  how.races = &races;
  device->ops->sparse_sgd(device, &(struct trm_sparse_sgd_rows){
    .sgd = how, .row = x->row, .target = x->target, .w = counted, .bias = biased ? &other_bias : NULL, .sums = &again,
    .rows = x->rows});
  check_same(text, counted, w, k);
  for (size_t j = 0; j < k; j++)
    written += races.written[j];
  CU_ASSERT_EQUAL(written, sums.written);
  CU_ASSERT_EQUAL(writers, sums.updates);
  CU_ASSERT(memcmp(&again, &sums, sizeof(sums)) == 0);
  trm_free(want.w);
}

void sparse_sgd_reference(struct trm_device *device)
{
  static const size_t shapes[][3] = {{1, 1, 1}, {7, 10, 3}, {100, 50, 20}, {300, 2000, 90}};
  static const size_t together[] = {1, 2, 7, 64, 0};

  for (size_t s = 0; s < COUNT(shapes); s++) {
    struct rows x = rows_make(shapes[s][0], shapes[s][1], shapes[s][2]);
    float *shrink = host_floats(x.features);

    for (size_t j = 0; j < x.features; j++)
      shrink[j] = 1 / (float)(1 + j % 9);
    for (size_t t = 0; t < COUNT(together); t++)
      for (int kind = 0; kind < 4; kind++) {
        const struct trm_sparse_sgd how = {.loss = kind % 2 ? TRM_MARGIN_LOGISTIC : TRM_MARGIN_HINGE, .rate = 0.1f,
                                           .update_rows = together[t], .shrink = kind / 2 ? shrink : NULL};

        pass_check(device, &x, how, t % 2 == 0);
      }
    rows_free(&x);
  }
}

void sparse_sgd_extremes(struct trm_device *device)
{
  struct trm_sparse_sgd how = {.loss = TRM_MARGIN_LOGISTIC, .rate = 1, .update_rows = 1};
  const int32_t column[] = {0, 1};
  const float value[] = {1, 1}, target[] = {1, -1, 1};
  const struct trm_sparse_row row[] = {{column, value, 2}, {NULL, NULL, 0}, {column, value, 1}};
  float w[2] = {300, -100}, bias = 0;
  struct trm_sparse_sums sums = {.updates = 7};

  device->ops->sparse_sgd(device, &(struct trm_sparse_sgd_rows){
    .sgd = how, .row = row, .target = target, .w = w, .bias = &bias, .sums = &sums, .rows = 0});
  CU_ASSERT(sums.loss == 0 && sums.correct == 0 && sums.updates == 0 && w[0] == 300 && bias == 0);
  device->ops->sparse_sgd(device, &(struct trm_sparse_sgd_rows){ /* scores 200, 0, 300 - .5 */
    .sgd = how, .row = row, .target = target, .w = w, .bias = &bias, .sums = &sums, .rows = 3});
  CU_ASSERT_DOUBLE_EQUAL(sums.loss, log(2), 1e-6);
  CU_ASSERT_EQUAL(sums.correct, 3);
  CU_ASSERT_DOUBLE_EQUAL(bias, -0.5, 1e-6); /* a row without entries moves the bias */
  w[0] = 1e6f;
  w[1] = 1e6f;
  const float wrong[] = {-1, 1, 1};

  device->ops->sparse_sgd(device, &(struct trm_sparse_sgd_rows){
    .sgd = how, .row = row, .target = wrong, .w = w, .sums = &sums, .rows = 1});
  CU_ASSERT_DOUBLE_EQUAL(sums.loss, 2e6, 1);
  CU_ASSERT_EQUAL(sums.correct, 0);
  CU_ASSERT_DOUBLE_EQUAL(w[0], 1e6 - 1, 0.1);
  for (int kind = 0; kind < 2; kind++) {
    how.loss = kind ? TRM_MARGIN_LOGISTIC : TRM_MARGIN_HINGE;
    w[0] = NAN;
    device->ops->sparse_sgd(device, &(struct trm_sparse_sgd_rows){
      .sgd = how, .row = row, .target = target, .w = w, .sums = &sums, .rows = 1});
    CU_ASSERT(isnan(sums.loss) && sums.correct == 0 && isnan(w[0]));
  }
}

/* -- two threads */

struct worker {
  const struct rows *x;
  struct trm_sparse_sgd how;
  float *w, bias;
  struct trm_sparse_sums all;
};

static void *work(void *argument)
{
  struct worker *it = argument;
  struct trm_device device;

  if (trm_device_open(&device, "cpu", "auto", TRM_MATMUL_F32, 0, 1) != TRM_OK)
    return argument;
  for (int pass = 0; pass < 20; pass++) {
    struct trm_sparse_sums sums;

    device.ops->sparse_sgd(&device, &(struct trm_sparse_sgd_rows){
      .sgd = it->how, .row = it->x->row, .target = it->x->target, .w = it->w, .sums = &sums, .rows = it->x->rows});
    it->all.updates += sums.updates;
    it->all.written += sums.written;
    it->all.conflicts += sums.conflicts;
  }
  trm_device_close(&device);
  return NULL;
}

/* Invariants of any interleaving: finite weights, no update counted that was not written, every writer counted. */
void sparse_sgd_races(void)
{
  struct rows x = rows_make(300, 40, 10);
  float *w = host_floats(x.features), *shrink = host_floats(x.features);
  uint64_t writers = 0;
  const struct trm_races races = {&writers, (uint32_t *)host_floats(x.features)};
  struct worker worker[2];
  pthread_t thread[2];
  uint64_t counted = 0;

  for (size_t j = 0; j < x.features; j++)
    shrink[j] = 0.1f;
  for (int i = 0; i < 2; i++) {
    worker[i] = (struct worker){
      .x = &x, .how = {.loss = TRM_MARGIN_HINGE, .rate = 0.01f, .update_rows = 1, .shrink = shrink, .races = &races},
      .w = w};
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread[i], NULL, work, &worker[i]), 0);
  }
  for (int i = 0; i < 2; i++) {
    void *failed;

    CU_ASSERT_EQUAL_FATAL(pthread_join(thread[i], &failed), 0);
    CU_ASSERT_PTR_NULL(failed);
    CU_ASSERT_EQUAL(worker[i].all.updates, 20 * x.rows);
    CU_ASSERT(worker[i].all.conflicts <= worker[i].all.updates);
  }
  for (size_t j = 0; j < x.features; j++) {
    CU_ASSERT(isfinite(w[j]));
    counted += races.written[j];
  }
  CU_ASSERT(counted > 0 && counted <= worker[0].all.written + worker[1].all.written);
  CU_ASSERT_EQUAL(writers, 40 * x.rows);
  rows_free(&x);
}
