/* Activations, element by element. */
#include <string.h>

#include "core/memory.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

/* The tanh form of gelu is x * sigmoid(GELU_SLOPE * (x + GELU_CUBE * x^3)): sqrt(8 / pi) and 0.044715. */
#define GELU_SLOPE 1.595769122f
#define GELU_CUBE 0.044715f

CPU_INLINE float activation_gelu_argument(float x)
{
  return GELU_SLOPE * (x + GELU_CUBE * x * x * x);
}

CPU_INLINE float activation_gelu_slope(float x)
{
  /* Beyond +-10 the slope is exactly 0 or 1; clamping avoids 0 * infinity. */
  x = x > 10.0f ? 10.0f : x;
  x = x < -10.0f ? -10.0f : x;
  const float e = math_exp_short(-activation_gelu_argument(x));
  const float gate = 1.0f / (1.0f + e);
  /* e * gate is 1 - gate without the cancellation */
  return gate + x * gate * (e * gate) * GELU_SLOPE * (1.0f + 3.0f * GELU_CUBE * x * x);
}

CPU_INLINE float activation_silu_slope(float x)
{
  x = x > 80.0f ? 80.0f : x; /* beyond, the slope is 0 or 1 */
  x = x < -80.0f ? -80.0f : x;
  const float e = math_exp_short(-x), gate = 1.0f / (1.0f + e);
  return gate + x * gate * (e * gate);
}

/* NaN is not > 0 and stays */
CPU_INLINE float activation_leaky_relu(float x, float slope)
{
  return x > 0.0f ? x : slope * x;
}

/* NaN is not <= 0 and stays */
CPU_INLINE float activation_relu(float x)
{
  return x <= 0.0f ? 0.0f : x;
}

/* Returns whether the gradient is computed of the input, not of the output. */
CPU_INLINE bool activation_by_input(enum trm_activation kind)
{
  return kind == TRM_GELU || kind == TRM_GELU_TANH || kind == TRM_SILU;
}

/* y (n) of x (n), parts of the call's. */
CPU_INLINE void activation_forward_step(enum trm_value_type type, const struct trm_activation_forward *it,
                                        const void *in, void *y, size_t n)
{
  switch (it->kind) {
  case TRM_RELU:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      cpu_set(type, y, i, activation_relu(cpu_value(type, in, i)));
    break;
  case TRM_TANH:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      cpu_set(type, y, i, math_tanh(cpu_value(type, in, i)));
    break;
  case TRM_SIGMOID:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      cpu_set(type, y, i, math_sigmoid(cpu_value(type, in, i)));
    break;
  case TRM_GELU:
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
      const float x = cpu_value(type, in, i);
      float density;

      cpu_set(type, y, i, x * math_normal(x, &density));
    }
    break;
  case TRM_GELU_TANH:
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
      const float x = cpu_value(type, in, i);

      cpu_set(type, y, i, x * math_sigmoid(activation_gelu_argument(x)));
    }
    break;
  case TRM_SILU:
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
      const float x = cpu_value(type, in, i);

      cpu_set(type, y, i, x * math_sigmoid(x));
    }
    break;
  case TRM_LEAKY_RELU:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      cpu_set(type, y, i, activation_leaky_relu(cpu_value(type, in, i), it->slope));
    break;
  case TRM_SCALE:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      cpu_set(type, y, i, it->slope * cpu_value(type, in, i));
    break;
  }
}

CPU_INLINE void activation_forward(enum trm_value_type type, const struct trm_activation_forward *it, size_t low,
                                   size_t high)
{
  const bool streams = it->y != it->x && cpu_streams(type, it->y, high - low);
  struct cpu_block block;

  for (size_t i = low; i < high; i += CPU_STEP) {
    const size_t n = high - i < CPU_STEP ? high - i : CPU_STEP;

    cpu_prefetch(type, it->x, i + CPU_AHEAD, CPU_STEP);
    activation_forward_step(type, it, cpu_at(type, it->x, i), cpu_results(streams, type, it->y, i, n, &block), n);
    cpu_store_results(streams, type, it->y, i, n, &block);
  }
  cpu_stream_end();
}

CPU_BODY_BY_TYPE(activation_forward, trm_activation_forward)

/* dx (n) of dy (n) and `from` (n), the input or the output, parts of the call's. */
CPU_INLINE void activation_backward_step(enum trm_value_type type, const struct trm_activation_backward *it,
                                         const void *from, const void *dy, void *dx, size_t n)
{
  switch (it->kind) {
  case TRM_RELU:
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
      const float slope = cpu_value(type, dy, i); /* read in any case: without a branch */

      cpu_set(type, dx, i, cpu_value(type, from, i) <= 0.0f ? 0.0f : slope);
    }
    break;
  case TRM_TANH:
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
      const float y = cpu_value(type, from, i);

      cpu_set(type, dx, i, cpu_value(type, dy, i) * (1.0f - y * y));
    }
    break;
  case TRM_SIGMOID:
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
      const float y = cpu_value(type, from, i);

      cpu_set(type, dx, i, cpu_value(type, dy, i) * (y * (1.0f - y)));
    }
    break;
  case TRM_GELU:
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
      const float x = cpu_value(type, from, i);
      float density;
      const float gate = math_normal(x, &density);

      cpu_set(type, dx, i, cpu_value(type, dy, i) * (gate + x * density));
    }
    break;
  case TRM_GELU_TANH:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      cpu_set(type, dx, i, cpu_value(type, dy, i) * activation_gelu_slope(cpu_value(type, from, i)));
    break;
  case TRM_SILU:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      cpu_set(type, dx, i, cpu_value(type, dy, i) * activation_silu_slope(cpu_value(type, from, i)));
    break;
  case TRM_LEAKY_RELU:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      cpu_set(type, dx, i, cpu_value(type, dy, i) * (cpu_value(type, from, i) > 0.0f ? 1.0f : it->slope));
    break;
  case TRM_SCALE:
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      cpu_set(type, dx, i, cpu_value(type, dy, i) * it->slope);
    break;
  }
}

CPU_INLINE void activation_backward(enum trm_value_type type, const struct trm_activation_backward *it, size_t low,
                                    size_t high)
{
  const void *from = activation_by_input(it->kind) ? it->x : it->y;
  const bool streams = it->dx != it->dy && it->dx != from && cpu_streams(type, it->dx, high - low);
  struct cpu_block block;

  for (size_t i = low; i < high; i += CPU_STEP) {
    const size_t n = high - i < CPU_STEP ? high - i : CPU_STEP;

    cpu_prefetch(type, from, i + CPU_AHEAD, CPU_STEP);
    cpu_prefetch(type, it->dy, i + CPU_AHEAD, CPU_STEP);
    activation_backward_step(type, it, cpu_at(type, from, i), cpu_at(type, it->dy, i),
                             cpu_results(streams, type, it->dx, i, n, &block), n);
    cpu_store_results(streams, type, it->dx, i, n, &block);
  }
  cpu_stream_end();
}

CPU_BODY_BY_TYPE(activation_backward, trm_activation_backward)

/* In bfloat16 a function of one value has 65,536 results. Calls of at least as many values read those with much
 * arithmetic from tables: the same bits in less time. */
enum { TABLE_VALUES = 1 << 16 };

/* By the bits of x. The slope is a float's bits: as integers, look-ups leave the vector registers alone. */
struct activation_table {
  trm_bf16 y[TABLE_VALUES];
  uint32_t slope[TABLE_VALUES]; /* of dy/dx */
};

struct activation_entries {
  enum trm_activation kind;
  struct activation_table *table;
};

static void activation_fill_body(const void *arguments, size_t low, size_t high)
{
  const struct activation_entries *it = arguments;
  float x[CPU_GRANULE], y[CPU_GRANULE], one[CPU_GRANULE], slope[CPU_GRANULE];

  for (size_t first = low; first < high; first += CPU_GRANULE) {
    for (size_t i = 0; i < CPU_GRANULE; i++) {
      x[i] = trm_bf16_value((trm_bf16)(first + i));
      one[i] = 1;
    }
    activation_forward_body(&(struct trm_activation_forward){.kind = it->kind, .x = x, .y = y}, 0, CPU_GRANULE);
    trm_bf16_narrow(it->table->y + first, y, CPU_GRANULE);
    activation_backward_body(&(struct trm_activation_backward){
      .kind = it->kind, .x = x, .y = y, .dy = one, .dx = slope}, 0, CPU_GRANULE);
    memcpy(it->table->slope + first, slope, sizeof(slope));
  }
}

/* Returns the table of a kind, which the first call makes. */
static const struct activation_table *activation_table(struct trm_device *device, enum trm_activation kind)
{
  struct cpu_state *state = device->impl;
  struct activation_table **table = &state->activation[kind];

  if (!*table) {
    *table = trm_alloc(sizeof(**table), "a table of an activation");
    const struct activation_entries it = {kind, *table};
    cpu_for(device, TABLE_VALUES, CPU_GRANULE, 16, activation_fill_body, &it);
  }
  return *table;
}

struct activation_lookup {
  const struct activation_table *table;
  const trm_bf16 *x, *dy; /* (n), (n) or NULL */
  trm_bf16 *to;           /* (n): y, dx */
};

static void activation_lookup_forward_body(const void *arguments, size_t low, size_t high)
{
  const struct activation_lookup *it = arguments;
  const trm_bf16 *table = it->table->y;
  const bool streams = it->to != it->x && cpu_streams(TRM_VALUES_BF16, it->to, high - low);
  struct cpu_block block;

  for (size_t first = low; first < high; first += CPU_STEP) {
    const size_t n = high - first < CPU_STEP ? high - first : CPU_STEP;
    const trm_bf16 *x = it->x + first;
    trm_bf16 *y = cpu_results(streams, TRM_VALUES_BF16, it->to, first, n, &block);

    cpu_prefetch(TRM_VALUES_BF16, x, CPU_AHEAD, CPU_STEP);
    if (n == CPU_STEP)
      CPU_UNROLL
      for (size_t i = 0; i < CPU_STEP; i++)
        y[i] = table[x[i]];
    else
      for (size_t i = 0; i < n; i++)
        y[i] = table[x[i]];
    cpu_store_results(streams, TRM_VALUES_BF16, it->to, first, n, &block);
  }
  cpu_stream_end();
}

/* Reads the slopes of x (n). A function of its own: inlined, compilers make vectors of single look-ups, in twice the
 * time. */
static __attribute__((noinline)) void activation_read_slopes(uint32_t *slope, const uint32_t *table, const trm_bf16 *x,
                                                             size_t n)
{
  size_t i = 0;

  for (; i + CPU_LANES <= n; i += CPU_LANES)
    CPU_UNROLL
    for (size_t l = 0; l < CPU_LANES; l++)
      slope[i + l] = table[x[i + l]];
  for (; i < n; i++)
    slope[i] = table[x[i]];
}

CPU_CLONES static void activation_lookup_backward_body(const void *arguments, size_t low, size_t high)
{
  enum { STEP = 4 * CPU_STEP }; /* a vector of slopes is read when the stores of its parts have left the store buffer */
  const struct activation_lookup *it = arguments;
  const bool streams = it->to != it->x && it->to != it->dy && cpu_streams(TRM_VALUES_BF16, it->to, high - low);
  struct cpu_block block;

  for (size_t first = low; first < high; first += STEP) {
    const size_t n = high - first < STEP ? high - first : STEP;
    const trm_bf16 *x = it->x + first, *dy = it->dy + first;
    trm_bf16 *dx = cpu_results(streams, TRM_VALUES_BF16, it->to, first, n, &block);
    uint32_t slope[STEP];

    cpu_prefetch(TRM_VALUES_BF16, x, CPU_AHEAD, STEP);
    cpu_prefetch(TRM_VALUES_BF16, dy, CPU_AHEAD, STEP);
    activation_read_slopes(slope, it->table->slope, x, n);
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      dx[i] = trm_bf16_round(trm_bf16_value(dy[i]) * math_float(slope[i]));
    cpu_store_results(streams, TRM_VALUES_BF16, it->to, first, n, &block);
  }
  cpu_stream_end();
}

static double activation_work(enum trm_activation kind)
{
  return kind == TRM_RELU || kind == TRM_LEAKY_RELU || kind == TRM_SCALE ? 1 : 8;
}

/* Returns whether a call of n values reads a table. */
static bool activation_is_looked_up(enum trm_activation kind, enum trm_value_type type, size_t n)
{
  return type == TRM_VALUES_BF16 && n >= TABLE_VALUES && activation_work(kind) > 1;
}

void cpu_activation_forward(struct trm_device *device, const struct trm_activation_forward *call)
{
  if (activation_is_looked_up(call->kind, call->type, call->n)) {
    const struct activation_lookup it = {
      .table = activation_table(device, call->kind), .x = call->x, .to = call->y};

    cpu_for(device, call->n, CPU_GRANULE, 2, activation_lookup_forward_body, &it);
  } else {
    cpu_for(device, call->n, CPU_GRANULE, activation_work(call->kind), activation_forward_body, call);
  }
}

void cpu_activation_backward(struct trm_device *device, const struct trm_activation_backward *call)
{
  if (activation_by_input(call->kind) && activation_is_looked_up(call->kind, call->type, call->n)) {
    const struct activation_lookup it = {
      .table = activation_table(device, call->kind), .x = call->x, .dy = call->dy, .to = call->dx};

    cpu_for(device, call->n, CPU_GRANULE, 2, activation_lookup_backward_body, &it);
  } else {
    cpu_for(device, call->n, CPU_GRANULE, activation_work(call->kind), activation_backward_body, call);
  }
}
