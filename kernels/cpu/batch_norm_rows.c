/* Batch normalization of rows of channels (batch_norm.h). A body goes through the array as it lies, a band of some rows
 * at a time: what belongs to a channel is an array (band) that repeats for each of them, so that loops are long for any
 * number of channels.
 *
 * Sums have one order for any number of threads: tasks are a fixed number of bands each, and their sums are added in
 * the order of the tasks. A task adds up to FLUSH bands in floats, and these sums in doubles. */
#include "kernels/cpu/batch_norm.h"

#include <string.h>

enum { BAND = 256, FLUSH = 64, TASKS = 64 };

/* What a body reads for each value of a band. */
enum { MEAN, SCALE, BIAS, MEAN_DY, SLOPE, CONSTANTS };

struct band {
  size_t channels, rows, values; /* of a band: rows * channels values */
  size_t total;                  /* values of the array */
  float *constant[CONSTANTS];    /* (values) each */
};

static size_t batch_norm_bands(const struct band *band)
{
  return (band->total + band->values - 1) / band->values;
}

/* Sets the sizes, and `constants` arrays in scratch memory. Returns where `more` bytes of it lie, behind them. */
static void *batch_norm_band(struct trm_device *device, const struct trm_batch_norm *bn, size_t b, int constants,
                             size_t more, struct band *band)
{
  const size_t rows = (BAND + bn->channels - 1) / bn->channels;

  *band = (struct band){
    .channels = bn->channels, .rows = rows, .values = rows * bn->channels, .total = b * bn->channels};
  float *memory = cpu_scratch(device, (size_t)constants * band->values * sizeof(float) + more);
  for (int i = 0; i < constants; i++, memory += band->values)
    band->constant[i] = memory;
  return memory;
}

/* Repeats the first row's constants for all rows. */
static void batch_norm_repeat(const struct band *band, int constants)
{
  for (int i = 0; i < constants; i++)
    for (size_t row = 1; row < band->rows; row++)
      memcpy(band->constant[i] + row * band->channels, band->constant[i], band->channels * sizeof(float));
}

/* The normalization: (x - mean) * scale + bias. */
static void batch_norm_set_constants(const struct band *band, const struct trm_batch_norm *bn, const float *mean,
                                     const float *square, const float *w, const float *bias)
{
  for (size_t c = 0; c < band->channels; c++) {
    band->constant[MEAN][c] = mean[c];
    band->constant[SCALE][c] = batch_norm_inverse_std(bn, square[c]) * w[c];
    band->constant[BIAS][c] = bias ? bias[c] : 0;
  }
}

/* -- sums over the rows */

/* Sums of the values f of each channel, and of the products (x - mean) * f. f: the gradient; without dy, x - mean. */
struct row_sums {
  struct band band;
  enum trm_value_type type;
  bool relu;
  const void *x, *dy; /* dy: NULL of the moments */
  size_t task_bands, tasks;
  double *total; /* (tasks, 2, band.values) */
  float *lanes;  /* (threads, 2, band.values) in buffers apart */
};

/* Adds n values of a band. */
CPU_INLINE void batch_norm_add_band(enum trm_value_type type, bool relu, bool gradient, const struct band *band,
                                    const void *x, const void *dy, float *restrict sum, float *restrict products,
                                    size_t n)
{
  const float *mean = band->constant[MEAN], *scale = band->constant[SCALE], *bias = band->constant[BIAS];

  for (size_t low = 0; low < n; low += CPU_STEP) {
    const size_t high = n - low < CPU_STEP ? n : low + CPU_STEP;

    cpu_prefetch(type, x, low + CPU_AHEAD, CPU_STEP);
    if (gradient)
      cpu_prefetch(type, dy, low + CPU_AHEAD, CPU_STEP);
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      const float difference = cpu_value(type, x, i) - mean[i];
      float f = gradient ? cpu_value(type, dy, i) : difference;

      if (relu)
        f = difference * scale[i] + bias[i] <= 0.0f ? 0.0f : f;
      sum[i] += f;
      products[i] += difference * f;
    }
  }
}

CPU_INLINE void batch_norm_flush(double *restrict total, float *restrict lanes, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++) {
    total[i] += (double)lanes[i];
    lanes[i] = 0;
  }
}

CPU_INLINE void batch_norm_row_sums(enum trm_value_type type, const struct row_sums *it, size_t low, size_t high)
{
  const struct band *band = &it->band;
  const size_t values = band->values, bands = batch_norm_bands(band);
  float *lanes = cpu_buffer(it->lanes, 2 * values);

  for (size_t task = low; task < high; task++) {
    const size_t end = (task + 1) * it->task_bands < bands ? (task + 1) * it->task_bands : bands;
    double *total = it->total + task * 2 * values;

    memset(total, 0, 2 * values * sizeof *total);
    memset(lanes, 0, 2 * values * sizeof *lanes);
    for (size_t i = task * it->task_bands; i < end; i++) {
      const size_t at = i * values, n = band->total - at < values ? band->total - at : values;
      const void *x = cpu_at(type, it->x, at), *dy = it->dy ? cpu_at(type, it->dy, at) : NULL;

      if (!dy)
        batch_norm_add_band(type, false, false, band, x, NULL, lanes, lanes + values, n);
      else if (it->relu)
        batch_norm_add_band(type, true, true, band, x, dy, lanes, lanes + values, n);
      else
        batch_norm_add_band(type, false, true, band, x, dy, lanes, lanes + values, n);
      if ((i + 1) % FLUSH == 0)
        batch_norm_flush(total, lanes, 2 * values);
    }
    batch_norm_flush(total, lanes, 2 * values);
  }
}

CPU_BODY_BY_TYPE(batch_norm_row_sums, row_sums)

/* Sets the band's arrays, and those of the sums. */
static void batch_norm_open_sums(struct trm_device *device, const struct trm_batch_norm *bn, size_t b,
                                 struct row_sums *it)
{
  const size_t rows = (BAND + bn->channels - 1) / bn->channels, values = rows * bn->channels;
  const size_t bands = (b + rows - 1) / rows;

  it->task_bands = (bands + TASKS - 1) / TASKS;
  it->tasks = bands ? (bands + it->task_bands - 1) / it->task_bands : 0;
  const size_t total = it->tasks * 2 * values * sizeof(double), align = sizeof(double),
               lanes = (size_t)device->threads * cpu_buffer_stride(2 * values) * sizeof(float);
  char *memory = batch_norm_band(device, bn, b, MEAN_DY, align + total + lanes, &it->band);
  it->total = (double *)(((uintptr_t)memory + align - 1) / align * align);
  it->lanes = (float *)(it->total + it->tasks * 2 * values);
}

static void batch_norm_add_rows(struct trm_device *device, struct row_sums *it)
{
  cpu_for(device, it->tasks, 1, (double)it->task_bands * (double)it->band.values, batch_norm_row_sums_body, it);
}

/* Returns a channel's sum, 0, or sum of products, 1. */
static double batch_norm_row_total(const struct row_sums *it, int which, size_t channel)
{
  const size_t values = it->band.values;
  double sum = 0;

  for (size_t task = 0; task < it->tasks; task++)
    for (size_t i = channel; i < values; i += it->band.channels)
      sum += it->total[(2 * task + (size_t)which) * values + i];
  return sum;
}

/* The mean of the first rows is taken in place of the mean, which is not known yet: the squares of differences from it
 * lose little precision. */
void batch_norm_rows_moments(struct trm_device *device, const struct trm_batch_norm_moments *call)
{
  const size_t channels = call->bn.channels;
  struct row_sums it = {.type = call->type, .x = call->x};

  batch_norm_open_sums(device, &call->bn, call->b, &it);
  const size_t first = call->b < it.band.rows ? call->b : it.band.rows;
  float *mean = it.band.constant[MEAN];
  for (size_t c = 0; c < channels; c++) {
    mean[c] = 0;
    for (size_t row = 0; row < first; row++)
      mean[c] += cpu_value(call->type, call->x, row * channels + c);
    mean[c] /= (float)first;
  }
  batch_norm_repeat(&it.band, 1);
  batch_norm_add_rows(device, &it);
  for (size_t c = 0; c < channels; c++) {
    const double sum = batch_norm_row_total(&it, 0, c), squares = batch_norm_row_total(&it, 1, c);

    call->moments[c] = (float)((double)mean[c] + sum / (double)call->b);
    call->moments[channels + c] = (float)fmax(squares - sum * sum / (double)call->b, 0);
  }
}

void batch_norm_rows_sums(struct trm_device *device, const struct trm_batch_norm_sums *call)
{
  const struct trm_batch_norm *bn = &call->bn;
  struct row_sums it = {.type = call->type, .relu = call->relu, .x = call->x, .dy = call->dy};

  batch_norm_open_sums(device, bn, call->b, &it);
  if (call->relu)
    batch_norm_set_constants(&it.band, bn, call->mean, call->square, call->w, call->bias);
  else
    memcpy(it.band.constant[MEAN], call->mean, bn->channels * sizeof(float));
  batch_norm_repeat(&it.band, call->relu ? MEAN_DY : MEAN + 1);
  batch_norm_add_rows(device, &it);
  for (size_t c = 0; c < bn->channels; c++) {
    call->sums[c] = (float)batch_norm_row_total(&it, 0, c);
    call->sums[bn->channels + c] = (float)(batch_norm_row_total(&it, 1, c) *
                                           (double)batch_norm_inverse_std(bn, call->square[c]));
  }
}

/* -- results for each value */

struct row_results {
  const struct band *band;
  const void *call;
  enum trm_value_type type;
};

/* Subtracts the mean first: a large mean costs no precision. */
CPU_INLINE void batch_norm_forward_band(enum trm_value_type type, bool relu, bool streams, const struct band *band,
                                             const void *x, const void *addend, void *y, size_t n)
{
  const float *mean = band->constant[MEAN], *scale = band->constant[SCALE], *bias = band->constant[BIAS];
  struct cpu_block block;

  for (size_t low = 0; low < n; low += CPU_STEP) {
    const size_t values = n - low < CPU_STEP ? n - low : CPU_STEP;
    void *to = cpu_results(streams, type, y, low, values, &block);

    cpu_prefetch(type, x, low + CPU_AHEAD, CPU_STEP);
    if (addend)
      cpu_prefetch(type, addend, low + CPU_AHEAD, CPU_STEP);
#pragma omp simd
    for (size_t s = 0; s < values; s++) {
      float value = (cpu_value(type, x, low + s) - mean[low + s]) * scale[low + s] + bias[low + s];

      if (addend)
        value = cpu_rounded(type, value) + cpu_value(type, addend, low + s);
      cpu_set(type, to, s, relu && value <= 0.0f ? 0.0f : value);
    }
    cpu_store_results(streams, type, y, low, values, &block);
  }
}

CPU_INLINE void batch_norm_forward_bands(enum trm_value_type type, const struct row_results *results, size_t low,
                                        size_t high)
{
  const struct trm_batch_norm_forward *it = results->call;
  const struct band *band = results->band;
  const bool streams = it->y != it->x && it->y != it->addend && cpu_streams(type, it->y, (high - low) * band->values);

  for (size_t i = low; i < high; i++) {
    const size_t at = i * band->values, n = band->total - at < band->values ? band->total - at : band->values;
    const void *x = cpu_at(type, it->x, at), *addend = it->addend ? cpu_at(type, it->addend, at) : NULL;
    void *y = cpu_at(type, it->y, at);

    if (addend && it->relu)
      batch_norm_forward_band(type, true, streams, band, x, addend, y, n);
    else if (addend)
      batch_norm_forward_band(type, false, streams, band, x, addend, y, n);
    else if (it->relu)
      batch_norm_forward_band(type, true, streams, band, x, NULL, y, n);
    else
      batch_norm_forward_band(type, false, streams, band, x, NULL, y, n);
  }
  cpu_stream_end();
}

CPU_BODY_BY_TYPE(batch_norm_forward_bands, row_results)

void batch_norm_rows_forward(struct trm_device *device, const struct trm_batch_norm_forward *call)
{
  struct band band;
  const struct row_results it = {&band, call, call->type};

  batch_norm_band(device, &call->bn, call->b, MEAN_DY, 0, &band);
  batch_norm_set_constants(&band, &call->bn, call->mean, call->square, call->w, call->bias);
  batch_norm_repeat(&band, MEAN_DY);
  cpu_for(device, batch_norm_bands(&band), 1, (double)band.values, batch_norm_forward_bands_body, &it);
}

CPU_INLINE void batch_norm_backward_band(enum trm_value_type type, bool relu, bool streams,
                                              const struct band *band, const void *x, const void *dy, void *dx,
                                              size_t n)
{
  const float *mean = band->constant[MEAN], *scale = band->constant[SCALE], *bias = band->constant[BIAS],
              *mean_dy = band->constant[MEAN_DY], *slope = band->constant[SLOPE];
  struct cpu_block block;

  for (size_t low = 0; low < n; low += CPU_STEP) {
    const size_t values = n - low < CPU_STEP ? n - low : CPU_STEP;
    void *to = cpu_results(streams, type, dx, low, values, &block);

    cpu_prefetch(type, x, low + CPU_AHEAD, CPU_STEP);
    cpu_prefetch(type, dy, low + CPU_AHEAD, CPU_STEP);
#pragma omp simd
    for (size_t s = 0; s < values; s++) {
      const size_t i = low + s;
      const float difference = cpu_value(type, x, i) - mean[i];
      float gradient = cpu_value(type, dy, i);

      if (relu)
        gradient = difference * scale[i] + bias[i] <= 0.0f ? 0.0f : gradient;
      cpu_set(type, to, s, scale[i] * (gradient - mean_dy[i] - difference * slope[i]));
    }
    cpu_store_results(streams, type, dx, low, values, &block);
  }
}

CPU_INLINE void batch_norm_backward_bands(enum trm_value_type type, const struct row_results *results, size_t low,
                                         size_t high)
{
  const struct trm_batch_norm_backward *it = results->call;
  const struct band *band = results->band;
  const bool streams = it->dx != it->x && it->dx != it->dy && cpu_streams(type, it->dx, (high - low) * band->values);

  for (size_t i = low; i < high; i++) {
    const size_t at = i * band->values, n = band->total - at < band->values ? band->total - at : band->values;
    const void *x = cpu_at(type, it->x, at), *dy = cpu_at(type, it->dy, at);
    void *dx = cpu_at(type, it->dx, at);

    if (it->relu)
      batch_norm_backward_band(type, true, streams, band, x, dy, dx, n);
    else
      batch_norm_backward_band(type, false, streams, band, x, dy, dx, n);
  }
  cpu_stream_end();
}

CPU_BODY_BY_TYPE(batch_norm_backward_bands, row_results)

void batch_norm_rows_backward(struct trm_device *device, const struct trm_batch_norm_backward *call)
{
  const struct trm_batch_norm *bn = &call->bn;
  const double count = batch_norm_count(bn);
  struct band band;
  const struct row_results it = {&band, call, call->type};

  batch_norm_band(device, bn, call->b, CONSTANTS, 0, &band);
  batch_norm_set_constants(&band, bn, call->mean, call->square, call->w, call->relu ? call->bias : NULL);
  for (size_t c = 0; c < bn->channels; c++) {
    band.constant[MEAN_DY][c] = (float)((double)call->sums[c] / count);
    band.constant[SLOPE][c] = (float)((double)call->sums[bn->channels + c] / count *
                                      (double)batch_norm_inverse_std(bn, call->square[c]));
  }
  batch_norm_repeat(&band, CONSTANTS);
  cpu_for(device, batch_norm_bands(&band), 1, (double)band.values, batch_norm_backward_bands_body, &it);
}
