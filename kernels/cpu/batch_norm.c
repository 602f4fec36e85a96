/* Batch normalization of planes (batch_norm.h). Sums over a channel have one order for any number of threads: a thread
 * sums whole channels, in lanes of floats over at most CPU_BLOCK values, which may be those of several samples, and of
 * doubles beyond. It reads several channels of a sample, which are contiguous, before it goes on to the next one. */
#include "kernels/cpu/batch_norm.h"

#include <string.h>

enum { TOGETHER = 32 }; /* channels */

CPU_INLINE size_t batch_norm_end(size_t first, size_t high)
{
  return high - first < TOGETHER ? high : first + TOGETHER;
}

/* A channel's part of the normalization: (x - mean) * scale + bias. */
struct channel {
  float mean, scale, bias;
  float mean_dy, slope; /* backward: of dy, of x */
};

CPU_INLINE struct channel batch_norm_channel(const struct trm_batch_norm *bn, float mean, float square, float w,
                                             float bias)
{
  return (struct channel){.mean = mean, .scale = batch_norm_inverse_std(bn, square) * w, .bias = bias};
}

CPU_INLINE float batch_norm_value(enum trm_value_type type, const struct channel *channel, const void *x, size_t i)
{
  return (cpu_value(type, x, i) - channel->mean) * channel->scale + channel->bias;
}

/* The gradient of the norm's output: dy, with relu only where the output is positive. */
CPU_INLINE float batch_norm_gradient(enum trm_value_type type, bool relu, const struct channel *channel, const void *x,
                                     const void *dy, size_t i)
{
  const float gradient = cpu_value(type, dy, i); /* read in any case: without a branch */

  return relu && batch_norm_value(type, channel, x, i) <= 0.0f ? 0.0f : gradient;
}

/* -- sums over channels */

typedef float float_lanes __attribute__((vector_size(CPU_LANES * sizeof(float))));
typedef double double_lanes __attribute__((vector_size(CPU_LANES * sizeof(double))));
typedef int32_t mask_lanes __attribute__((vector_size(CPU_LANES * sizeof(int32_t))));
typedef uint32_t word_lanes __attribute__((vector_size(CPU_LANES * sizeof(uint32_t))));
typedef uint16_t half_lanes __attribute__((vector_size(CPU_LANES * sizeof(trm_bf16))));

/* Reads values into lanes. */
CPU_INLINE void batch_norm_load(enum trm_value_type type, const void *values, size_t at, float_lanes *to)
{
  half_lanes half;

  if (type == TRM_VALUES_F32) {
    memcpy(to, cpu_at(type, values, at), sizeof *to);
    return;
  }
  memcpy(&half, cpu_at(type, values, at), sizeof half);
  *to = (float_lanes)(__builtin_convertvector(half, word_lanes) << 16);
}

/* Two sums over a channel. */
struct sums {
  float_lanes lane[2];
  double_lanes total[2];
  size_t terms; /* values in the floats */
};

CPU_INLINE void batch_norm_flush(struct sums *sums)
{
  for (int k = 0; k < 2; k++) {
    sums->total[k] += __builtin_convertvector(sums->lane[k], double_lanes);
    sums->lane[k] = (float_lanes){0};
  }
  sums->terms = 0;
}

static double batch_norm_total(struct sums *sums, int which)
{
  double total = 0;

  batch_norm_flush(sums);
  for (int l = 0; l < CPU_LANES; l++)
    total += sums->total[which][l];
  return total;
}

/* Adds n values f of a channel, at most CPU_BLOCK, and the products (x - mean) * f. f: the gradient; without dy, x -
 * mean itself. */
CPU_INLINE void batch_norm_add(enum trm_value_type type, bool relu, const struct channel *channel, const void *x,
                               const void *dy, size_t n, struct sums *sums)
{
  if (sums->terms + n > CPU_BLOCK)
    batch_norm_flush(sums);
  float_lanes sum = sums->lane[0], products = sums->lane[1];
  size_t i = 0;

  for (; i + CPU_LANES <= n; i += CPU_LANES) {
    float_lanes difference, f;

    if (i % CPU_STEP == 0) {
      cpu_prefetch(type, x, i + CPU_AHEAD, CPU_STEP);
      if (dy)
        cpu_prefetch(type, dy, i + CPU_AHEAD, CPU_STEP);
    }
    batch_norm_load(type, x, i, &difference);
    difference -= channel->mean;
    if (dy) {
      batch_norm_load(type, dy, i, &f);
      if (relu)
        f = (float_lanes)((mask_lanes)f & ~(difference * channel->scale + channel->bias <= 0.0f));
    } else {
      f = difference;
    }
    sum += f;
    products += difference * f;
  }
  for (size_t l = 0; i + l < n; l++) {
    const float difference = cpu_value(type, x, i + l) - channel->mean;
    const float f = dy ? batch_norm_gradient(type, relu, channel, x, dy, i + l) : difference;

    sum[l] += f;
    products[l] += difference * f;
  }
  sums->lane[0] = sum;
  sums->lane[1] = products;
  sums->terms += n;
}

/* Returns the mean of a channel in the first sample, in place of its mean, which is not known yet: it is at most
 * sqrt(B - 1) standard deviations away, so that the squares of the differences lose little precision. */
CPU_INLINE float batch_norm_shift(enum trm_value_type type, const void *x, size_t size)
{
  const size_t n = size < CPU_BLOCK ? size : CPU_BLOCK;

  return cpu_lane_sum_of(type, x, n) / (float)n;
}

/* Sums of whole channels [first, end), at most TOGETHER: batch_norm_add. */
CPU_INLINE void batch_norm_sum(enum trm_value_type type, bool relu, const struct trm_batch_norm *bn, size_t b,
                               const void *x, const void *dy, const struct channel *channel, size_t first, size_t end,
                               struct sums *sums)
{
  for (size_t i = 0; i < b; i++)
    for (size_t c = first; c < end; c++)
      for (size_t s = 0; s < bn->size; s += CPU_BLOCK) {
        const size_t at = (i * bn->channels + c) * bn->size + s;
        const size_t n = bn->size - s < CPU_BLOCK ? bn->size - s : CPU_BLOCK;

        batch_norm_add(type, relu, &channel[c - first], cpu_at(type, x, at), dy ? cpu_at(type, dy, at) : NULL, n,
                       &sums[c - first]);
      }
}

CPU_INLINE void batch_norm_moments(enum trm_value_type type, const struct trm_batch_norm_moments *it, size_t low,
                                   size_t high)
{
  const size_t channels = it->bn.channels, size = it->bn.size;
  const double count = (double)it->b * (double)size;

  for (size_t first = low; first < high; first += TOGETHER) {
    const size_t end = batch_norm_end(first, high);
    struct channel channel[TOGETHER];
    struct sums sums[TOGETHER] = {{.terms = 0}};

    for (size_t c = first; c < end; c++)
      channel[c - first] = (struct channel){.mean = batch_norm_shift(type, cpu_at(type, it->x, c * size), size)};
    batch_norm_sum(type, false, &it->bn, it->b, it->x, NULL, channel, first, end, sums);
    for (size_t c = first; c < end; c++) {
      const double sum = batch_norm_total(&sums[c - first], 0), squares = batch_norm_total(&sums[c - first], 1);

      it->moments[c] = (float)((double)channel[c - first].mean + sum / count);
      it->moments[channels + c] = (float)fmax(squares - sum * sum / count, 0);
    }
  }
}

CPU_BODY_BY_TYPE(batch_norm_moments, trm_batch_norm_moments)

void cpu_batch_norm_moments(struct trm_device *device, const struct trm_batch_norm_moments *call)
{
  const struct trm_batch_norm *bn = &call->bn;
  const double b = (double)call->b;

  if (call->b == 0)
    cpu_fill(device, call->moments, 0, 2 * bn->channels);
  else if (bn->size == 1)
    batch_norm_rows_moments(device, call);
  else
    cpu_for(device, bn->channels, 1, b * (double)bn->size, batch_norm_moments_body, call);
}

/* n values of a channel. Subtracts the mean first: a large mean costs no precision. */
CPU_INLINE void batch_norm_forward_row(enum trm_value_type type, bool relu, bool streams, const struct channel *channel,
                                       const void *x, const void *addend, void *y, size_t n)
{
  struct cpu_block block;

  for (size_t low = 0; low < n; low += CPU_STEP) {
    const size_t values = n - low < CPU_STEP ? n - low : CPU_STEP;
    void *to = cpu_results(streams, type, y, low, values, &block);

    cpu_prefetch(type, x, low + CPU_AHEAD, CPU_STEP);
    if (addend)
      cpu_prefetch(type, addend, low + CPU_AHEAD, CPU_STEP);
#pragma omp simd
    for (size_t s = 0; s < values; s++) {
      float value = batch_norm_value(type, channel, x, low + s);

      if (addend)
        value = cpu_rounded(type, value) + cpu_value(type, addend, low + s);
      cpu_set(type, to, s, relu && value <= 0.0f ? 0.0f : value);
    }
    cpu_store_results(streams, type, y, low, values, &block);
  }
}

/* A call on rows, which are a channel's values of a sample, one after the other. */
struct rows {
  const void *call;
  enum trm_value_type type;
  size_t channels, size;
  struct channel *channel; /* (channels) */
};

static struct rows batch_norm_rows(struct trm_device *device, const struct trm_batch_norm *bn, enum trm_value_type type,
                                   const void *call)
{
  return (struct rows){.call = call, .type = type, .channels = bn->channels, .size = bn->size,
                       .channel = cpu_scratch(device, bn->channels * sizeof(struct channel))};
}

CPU_INLINE void batch_norm_forward(enum trm_value_type type, const struct rows *rows, size_t low, size_t high)
{
  const struct trm_batch_norm_forward *it = rows->call;
  const size_t size = rows->size;
  const bool streams = it->y != it->x && it->y != it->addend && cpu_streams(type, it->y, (high - low) * size);

  for (size_t row = low; row < high; row++) {
    const struct channel *channel = &rows->channel[row % rows->channels];
    const void *x = cpu_at(type, it->x, row * size), *addend = it->addend ? cpu_at(type, it->addend, row * size) : NULL;
    void *y = cpu_at(type, it->y, row * size);

    if (addend && it->relu)
      batch_norm_forward_row(type, true, streams, channel, x, addend, y, size);
    else if (addend)
      batch_norm_forward_row(type, false, streams, channel, x, addend, y, size);
    else if (it->relu)
      batch_norm_forward_row(type, true, streams, channel, x, NULL, y, size);
    else
      batch_norm_forward_row(type, false, streams, channel, x, NULL, y, size);
  }
  cpu_stream_end();
}

CPU_BODY_BY_TYPE(batch_norm_forward, rows)

void cpu_batch_norm_forward(struct trm_device *device, const struct trm_batch_norm_forward *call)
{
  const struct trm_batch_norm *bn = &call->bn;

  if (bn->size == 1) {
    batch_norm_rows_forward(device, call);
    return;
  }
  const struct rows rows = batch_norm_rows(device, bn, call->type, call);
  for (size_t c = 0; c < bn->channels; c++)
    rows.channel[c] = batch_norm_channel(bn, call->mean[c], call->square[c], call->w[c], call->bias[c]);
  cpu_for(device, call->b * bn->channels, 1, (double)bn->size, batch_norm_forward_body, &rows);
}

CPU_INLINE void batch_norm_sums(enum trm_value_type type, const struct trm_batch_norm_sums *it, size_t low, size_t high)
{
  const size_t channels = it->bn.channels;

  for (size_t first = low; first < high; first += TOGETHER) {
    const size_t end = batch_norm_end(first, high);
    struct channel channel[TOGETHER];
    struct sums sums[TOGETHER] = {{.terms = 0}};

    for (size_t c = first; c < end; c++)
      channel[c - first] = it->relu ? batch_norm_channel(&it->bn, it->mean[c], it->square[c], it->w[c], it->bias[c])
                                    : (struct channel){.mean = it->mean[c]};
    if (it->relu)
      batch_norm_sum(type, true, &it->bn, it->b, it->x, it->dy, channel, first, end, sums);
    else
      batch_norm_sum(type, false, &it->bn, it->b, it->x, it->dy, channel, first, end, sums);
    for (size_t c = first; c < end; c++) {
      it->sums[c] = (float)batch_norm_total(&sums[c - first], 0);
      it->sums[channels + c] = (float)(batch_norm_total(&sums[c - first], 1) *
                                       (double)batch_norm_inverse_std(&it->bn, it->square[c]));
    }
  }
}

CPU_BODY_BY_TYPE(batch_norm_sums, trm_batch_norm_sums)

void cpu_batch_norm_sums(struct trm_device *device, const struct trm_batch_norm_sums *call)
{
  if (call->bn.size == 1)
    batch_norm_rows_sums(device, call);
  else
    cpu_for(device, call->bn.channels, 1, (double)call->b * (double)call->bn.size, batch_norm_sums_body, call);
}

CPU_INLINE void batch_norm_backward_row(enum trm_value_type type, bool relu, bool streams,
                                        const struct channel *channel, const void *x, const void *dy, void *dx,
                                        size_t n)
{
  struct cpu_block block;

  for (size_t low = 0; low < n; low += CPU_STEP) {
    const size_t values = n - low < CPU_STEP ? n - low : CPU_STEP;
    void *to = cpu_results(streams, type, dx, low, values, &block);

    cpu_prefetch(type, x, low + CPU_AHEAD, CPU_STEP);
    cpu_prefetch(type, dy, low + CPU_AHEAD, CPU_STEP);
#pragma omp simd
    for (size_t s = 0; s < values; s++) {
      const float gradient = batch_norm_gradient(type, relu, channel, x, dy, low + s);

      cpu_set(type, to, s,
              channel->scale *
                (gradient - channel->mean_dy - (cpu_value(type, x, low + s) - channel->mean) * channel->slope));
    }
    cpu_store_results(streams, type, dx, low, values, &block);
  }
}

CPU_INLINE void batch_norm_backward(enum trm_value_type type, const struct rows *rows, size_t low, size_t high)
{
  const struct trm_batch_norm_backward *it = rows->call;
  const size_t size = rows->size;
  const bool streams = it->dx != it->x && it->dx != it->dy && cpu_streams(type, it->dx, (high - low) * size);

  for (size_t row = low; row < high; row++) {
    const struct channel *channel = &rows->channel[row % rows->channels];
    const void *x = cpu_at(type, it->x, row * size), *dy = cpu_at(type, it->dy, row * size);
    void *dx = cpu_at(type, it->dx, row * size);

    if (it->relu)
      batch_norm_backward_row(type, true, streams, channel, x, dy, dx, size);
    else
      batch_norm_backward_row(type, false, streams, channel, x, dy, dx, size);
  }
  cpu_stream_end();
}

CPU_BODY_BY_TYPE(batch_norm_backward, rows)

void cpu_batch_norm_backward(struct trm_device *device, const struct trm_batch_norm_backward *call)
{
  const struct trm_batch_norm *bn = &call->bn;
  const double count = batch_norm_count(bn);

  if (bn->size == 1) {
    batch_norm_rows_backward(device, call);
    return;
  }
  const struct rows rows = batch_norm_rows(device, bn, call->type, call);
  for (size_t c = 0; c < bn->channels; c++) {
    struct channel *channel = &rows.channel[c];
    const double inverse = (double)batch_norm_inverse_std(bn, call->square[c]);

    *channel = batch_norm_channel(bn, call->mean[c], call->square[c], call->w[c], call->relu ? call->bias[c] : 0);
    channel->mean_dy = (float)((double)call->sums[c] / count);
    channel->slope = (float)((double)call->sums[bn->channels + c] / count * inverse);
  }
  cpu_for(device, call->b * bn->channels, 1, (double)bn->size, batch_norm_backward_body, &rows);
}

/* to (n) = beta * to + factor * from */
CPU_INLINE void batch_norm_accumulate(float *to, const float *from, float factor, float beta, size_t n)
{
  const float rate = -factor;

#pragma omp simd
  for (size_t c = 0; c < n; c++) {
    const float old = beta == 0 ? 0 : to[c];

    to[c] = old - rate * from[c];
  }
}

CPU_CLONES static void batch_norm_gradients_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_batch_norm_gradients *it = arguments;
  const size_t n = high - low, channels = it->bn.channels;
  const double count = batch_norm_count(&it->bn), degrees = count > 1 ? count - 1 : 1;

  batch_norm_accumulate(it->db + low, it->sums + low, 1, it->beta, n);
  batch_norm_accumulate(it->dw + low, it->sums + channels + low, 1, it->beta, n);
  batch_norm_accumulate(it->dmean + low, it->moments + low, (float)it->share, it->beta, n);
  batch_norm_accumulate(it->dvariance + low, it->moments + channels + low, (float)(it->share / degrees), it->beta, n);
}

void cpu_batch_norm_gradients(struct trm_device *device, const struct trm_batch_norm_gradients *call)
{
  cpu_for(device, call->bn.channels, CPU_GRANULE, 8, batch_norm_gradients_body, call);
}
