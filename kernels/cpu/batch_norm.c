/* Batch normalization. A thread sums whole channels, so sums have one order for any number of threads: float within at
 * most CPU_BLOCK values, double beyond. It reads several channels of a sample, which are contiguous, before it goes on
 * to the next one. */
#include <math.h>

#include "kernels/cpu/cpu.h"

enum { TOGETHER = 16 }; /* channels */

CPU_INLINE size_t batch_norm_end(size_t first, size_t high)
{
  return high - first < TOGETHER ? high : first + TOGETHER;
}

CPU_INLINE double batch_norm_count(const struct trm_batch_norm *bn)
{
  return bn->counted ? *bn->counted : bn->count;
}

CPU_INLINE float batch_norm_inverse_std(const struct trm_batch_norm *bn, float square)
{
  return (float)(1 / sqrt((double)square / batch_norm_count(bn) + (double)bn->epsilon));
}

/* A channel's part of the normalization: (x - mean) * scale + bias. */
struct channel {
  float mean, scale, bias;
};

CPU_INLINE struct channel batch_norm_channel(const struct trm_batch_norm *bn, float mean, float square, float w,
                                             float bias)
{
  return (struct channel){mean, batch_norm_inverse_std(bn, square) * w, bias};
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

/* Sums of the gradient and of it times (x - mean) in lanes: two independent chains of additions. */
CPU_INLINE void batch_norm_lane_products(enum trm_value_type type, bool relu, const struct channel *channel,
                                         const void *x, const void *dy, size_t n, double *sum, double *products)
{
  float lane[CPU_LANES] = {0}, product[CPU_LANES] = {0};
  size_t i = 0;

  for (; i + CPU_LANES <= n; i += CPU_LANES)
#pragma omp simd
    for (size_t l = 0; l < CPU_LANES; l++) {
      const float gradient = batch_norm_gradient(type, relu, channel, x, dy, i + l);

      lane[l] += gradient;
      product[l] += (cpu_value(type, x, i + l) - channel->mean) * gradient;
    }
  for (size_t l = 0; i + l < n; l++) {
    const float gradient = batch_norm_gradient(type, relu, channel, x, dy, i + l);

    lane[l] += gradient;
    product[l] += (cpu_value(type, x, i + l) - channel->mean) * gradient;
  }
  for (int width = CPU_LANES / 2; width > 0; width /= 2)
    for (int l = 0; l < width; l++) {
      lane[l] += lane[l + width];
      product[l] += product[l + width];
    }
  *sum += (double)lane[0];
  *products += (double)product[0];
}

/* Running mean and sum of squared deviations, mergeable (Chan, Golub & LeVeque 1983). */
struct moments {
  double count, mean, square;
};

CPU_INLINE void batch_norm_add_moments(struct moments *all, double count, double mean, double square)
{
  const double difference = mean - all->mean, sum = all->count + count;

  all->square += square + difference * difference * all->count * count / sum;
  all->mean += difference * count / sum;
  all->count = sum;
}

/* S > 1: a channel's values of a sample are contiguous; blocks are read twice, the second time from cache. */
CPU_INLINE void batch_norm_moments(enum trm_value_type type, const struct trm_batch_norm_moments *it, size_t low,
                                   size_t high)
{
  const size_t channels = it->bn.channels, size = it->bn.size;

  for (size_t first = low; first < high; first += TOGETHER) {
    const size_t end = batch_norm_end(first, high);
    struct moments all[TOGETHER] = {{0, 0, 0}};

    for (size_t i = 0; i < it->b; i++)
      for (size_t c = first; c < end; c++)
        for (size_t s = 0; s < size; s += CPU_BLOCK) {
          const size_t n = size - s < CPU_BLOCK ? size - s : CPU_BLOCK;
          const void *x = cpu_at(type, it->x, (i * channels + c) * size + s);
          const double sum = (double)cpu_lane_sum_of(type, x, n);
          const float mean = (float)(sum / (double)n);

          batch_norm_add_moments(&all[c - first], (double)n, sum / (double)n,
                                 (double)cpu_lane_squares(type, x, mean, n));
        }
    for (size_t c = first; c < end; c++) {
      it->moments[c] = (float)all[c - first].mean;
      it->moments[channels + c] = (float)all[c - first].square;
    }
  }
}

CPU_BODY_BY_TYPE(batch_norm_moments, trm_batch_norm_moments)

/* Vectors (S = 1): rows in blocks, CPU_LANES channels at a time. */
CPU_INLINE void batch_norm_moments_rows(enum trm_value_type type, const struct trm_batch_norm_moments *it, size_t low,
                                        size_t high)
{
  const size_t channels = it->bn.channels;

  for (size_t first = low; first < high; first += CPU_LANES) {
    const size_t lanes = high - first < CPU_LANES ? high - first : CPU_LANES;
    double mean[CPU_LANES] = {0}, square[CPU_LANES] = {0};

    for (size_t i = 0; i < it->b; i++) {
      const void *x = cpu_at(type, it->x, i * channels + first);

      for (size_t l = 0; l < lanes; l++)
        mean[l] += (double)cpu_value(type, x, l);
    }
    for (size_t l = 0; l < lanes; l++)
      mean[l] /= (double)it->b;
    for (size_t i = 0; i < it->b; i++) {
      const void *x = cpu_at(type, it->x, i * channels + first);

      for (size_t l = 0; l < lanes; l++) {
        const double d = (double)cpu_value(type, x, l) - mean[l];

        square[l] += d * d;
      }
    }
    for (size_t l = 0; l < lanes; l++) {
      it->moments[first + l] = (float)mean[l];
      it->moments[channels + first + l] = (float)square[l];
    }
  }
}

CPU_BODY_BY_TYPE(batch_norm_moments_rows, trm_batch_norm_moments)

void cpu_batch_norm_moments(struct trm_device *device, const struct trm_batch_norm_moments *call)
{
  const struct trm_batch_norm *bn = &call->bn;
  const double b = (double)call->b;

  if (call->b == 0)
    cpu_fill(device, call->moments, 0, 2 * bn->channels);
  else if (bn->size == 1)
    cpu_for(device, bn->channels, CPU_LANES, 2 * b, batch_norm_moments_rows_body, call);
  else
    cpu_for(device, bn->channels, 1, b * (double)bn->size, batch_norm_moments_body, call);
}

/* A body that works on whole channels of b samples. */
static void batch_norm_run(struct trm_device *device, const struct trm_batch_norm *bn, size_t b, cpu_body *body,
                           const void *call)
{
  cpu_for(device, bn->channels, bn->size == 1 ? CPU_LANES : 1, (double)b * (double)bn->size, body, call);
}

/* n values of a channel. Subtracts the mean first: a large mean costs no precision. */
CPU_INLINE void batch_norm_forward_channel(enum trm_value_type type, bool relu, const struct channel *channel,
                                           const void *x, const void *addend, void *y, size_t n)
{
#pragma omp simd
  for (size_t s = 0; s < n; s++) {
    float value = batch_norm_value(type, channel, x, s);

    if (addend)
      value = cpu_rounded(type, value) + cpu_value(type, addend, s);
    cpu_set(type, y, s, relu && value <= 0.0f ? 0.0f : value);
  }
}

CPU_INLINE void batch_norm_forward(enum trm_value_type type, const struct trm_batch_norm_forward *it, size_t low,
                                   size_t high)
{
  const size_t channels = it->bn.channels, size = it->bn.size;

  for (size_t first = low; first < high; first += TOGETHER) {
    const size_t end = batch_norm_end(first, high);
    struct channel channel[TOGETHER];

    for (size_t c = first; c < end; c++)
      channel[c - first] = batch_norm_channel(&it->bn, it->mean[c], it->square[c], it->w[c], it->bias[c]);
    for (size_t i = 0; i < it->b; i++)
      for (size_t c = first; c < end; c++) {
        const size_t at = (i * channels + c) * size;
        const void *x = cpu_at(type, it->x, at);
        void *y = cpu_at(type, it->y, at);

        if (it->addend && it->relu)
          batch_norm_forward_channel(type, true, &channel[c - first], x, cpu_at(type, it->addend, at), y, size);
        else if (it->addend)
          batch_norm_forward_channel(type, false, &channel[c - first], x, cpu_at(type, it->addend, at), y, size);
        else if (it->relu)
          batch_norm_forward_channel(type, true, &channel[c - first], x, NULL, y, size);
        else
          batch_norm_forward_channel(type, false, &channel[c - first], x, NULL, y, size);
      }
  }
}

CPU_BODY_BY_TYPE(batch_norm_forward, trm_batch_norm_forward)

void cpu_batch_norm_forward(struct trm_device *device, const struct trm_batch_norm_forward *call)
{
  batch_norm_run(device, &call->bn, call->b, batch_norm_forward_body, call);
}

CPU_INLINE void batch_norm_sums(enum trm_value_type type, const struct trm_batch_norm_sums *it, size_t low, size_t high)
{
  const size_t channels = it->bn.channels, size = it->bn.size;

  for (size_t first = low; first < high; first += TOGETHER) {
    const size_t end = batch_norm_end(first, high);
    double sum[TOGETHER] = {0}, products[TOGETHER] = {0};
    struct channel channel[TOGETHER];

    for (size_t c = first; c < end; c++)
      channel[c - first] = it->relu ? batch_norm_channel(&it->bn, it->mean[c], it->square[c], it->w[c], it->bias[c])
                                    : (struct channel){.mean = it->mean[c]};
    for (size_t i = 0; i < it->b; i++)
      for (size_t c = first; c < end; c++)
        for (size_t s = 0; s < size; s += CPU_BLOCK) {
          const size_t at = (i * channels + c) * size + s, n = size - s < CPU_BLOCK ? size - s : CPU_BLOCK;
          const void *x = cpu_at(type, it->x, at), *dy = cpu_at(type, it->dy, at);
          const struct channel *own = &channel[c - first];

          if (it->relu)
            batch_norm_lane_products(type, true, own, x, dy, n, &sum[c - first], &products[c - first]);
          else
            batch_norm_lane_products(type, false, own, x, dy, n, &sum[c - first], &products[c - first]);
        }
    for (size_t c = first; c < end; c++) {
      it->sums[c] = (float)sum[c - first];
      it->sums[channels + c] = (float)(products[c - first] * (double)batch_norm_inverse_std(&it->bn, it->square[c]));
    }
  }
}

CPU_BODY_BY_TYPE(batch_norm_sums, trm_batch_norm_sums)

void cpu_batch_norm_sums(struct trm_device *device, const struct trm_batch_norm_sums *call)
{
  batch_norm_run(device, &call->bn, call->b, batch_norm_sums_body, call);
}

/* n values of a channel. mean_dy, slope: of dy, and of x. */
CPU_INLINE void batch_norm_backward_channel(enum trm_value_type type, bool relu, const struct channel *channel,
                                            float mean_dy, float slope, const void *x, const void *dy, void *dx,
                                            size_t n)
{
#pragma omp simd
  for (size_t s = 0; s < n; s++) {
    const float gradient = batch_norm_gradient(type, relu, channel, x, dy, s);

    cpu_set(type, dx, s,
            channel->scale * (gradient - mean_dy - (cpu_value(type, x, s) - channel->mean) * slope));
  }
}

CPU_INLINE void batch_norm_backward(enum trm_value_type type, const struct trm_batch_norm_backward *it, size_t low,
                                    size_t high)
{
  const size_t channels = it->bn.channels, size = it->bn.size;

  for (size_t first = low; first < high; first += TOGETHER) {
    const size_t end = batch_norm_end(first, high);
    struct channel channel[TOGETHER];
    float means[TOGETHER], slopes[TOGETHER]; /* of dy, of x */

    for (size_t c = first; c < end; c++) {
      const float inverse = batch_norm_inverse_std(&it->bn, it->square[c]);

      channel[c - first] =
        batch_norm_channel(&it->bn, it->mean[c], it->square[c], it->w[c], it->relu ? it->bias[c] : 0);
      means[c - first] = (float)((double)it->sums[c] / batch_norm_count(&it->bn));
      slopes[c - first] = (float)((double)it->sums[channels + c] / batch_norm_count(&it->bn) * (double)inverse);
    }
    for (size_t i = 0; i < it->b; i++)
      for (size_t c = first; c < end; c++) {
        const float mean_dy = means[c - first], slope = slopes[c - first];
        const size_t at = (i * channels + c) * size;
        const void *x = cpu_at(type, it->x, at), *dy = cpu_at(type, it->dy, at);
        void *dx = cpu_at(type, it->dx, at);

        if (it->relu)
          batch_norm_backward_channel(type, true, &channel[c - first], mean_dy, slope, x, dy, dx, size);
        else
          batch_norm_backward_channel(type, false, &channel[c - first], mean_dy, slope, x, dy, dx, size);
      }
  }
}

CPU_BODY_BY_TYPE(batch_norm_backward, trm_batch_norm_backward)

void cpu_batch_norm_backward(struct trm_device *device, const struct trm_batch_norm_backward *call)
{
  batch_norm_run(device, &call->bn, call->b, batch_norm_backward_body, call);
}

/* to (n) = beta * to + factor * from */
CPU_INLINE void batch_norm_add(float *to, const float *from, float factor, float beta, size_t n)
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

  batch_norm_add(it->db + low, it->sums + low, 1, it->beta, n);
  batch_norm_add(it->dw + low, it->sums + channels + low, 1, it->beta, n);
  batch_norm_add(it->dmean + low, it->moments + low, (float)it->share, it->beta, n);
  batch_norm_add(it->dvariance + low, it->moments + channels + low, (float)(it->share / degrees), it->beta, n);
}

void cpu_batch_norm_gradients(struct trm_device *device, const struct trm_batch_norm_gradients *call)
{
  cpu_for(device, call->bn.channels, CPU_GRANULE, 8, batch_norm_gradients_body, call);
}
