/* Declarations shared by the files of the CPU device (private to kernels/cpu).
 *
 * A kernel consists of a body that computes the half-open interval [low, high) of its items (elements, rows or
 * columns), and a function of the contract that passes it to cpu_for, with the call's arguments or a struct of more.
 * The body is compiled for several instruction sets (CPU_CLONES) and contains no parallel loop, so that the compiler
 * vectorizes it like any loop.
 *
 * The division of the interval depends on the number of threads, so results must not depend on it: element-wise bodies
 * have this property, sums are made of fixed blocks (see each). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "core/clones.h"
#include "core/device.h"

#define CPU_INLINE static inline __attribute__((always_inline))

/* Bytes of a line of the caches. */
#define CPU_LINE 64
/* Below this many units of work (about one streamed float each) waking threads costs more than it saves. */
#define CPU_PARALLEL_WORK 32768
/* Flat arrays are divided at multiples of a page of floats. */
#define CPU_GRANULE 1024
/* Sums of floats run over at most this many terms before they are added up in double. */
#define CPU_BLOCK 1024

/* In a body: returns the number of its thread, below device->threads. */
int cpu_thread(void);

/* -- values: the contract's arrays of float32 or bfloat16, which bodies compute with as floats. They are read and
 * rounded one by one, within loops that are compiled for each type: `type` is a constant there (CPU_BODY_BY_TYPE). */

/* Returns the address of a value. */
CPU_INLINE void *cpu_at(enum trm_value_type type, const void *values, size_t at)
{
  return (char *)values + at * trm_value_bytes(type);
}

/* Returns, sets one value. */
CPU_INLINE float cpu_value(enum trm_value_type type, const void *values, size_t at)
{
  return type == TRM_VALUES_F32 ? ((const float *)values)[at] : trm_bf16_value(((const trm_bf16 *)values)[at]);
}

CPU_INLINE void cpu_set(enum trm_value_type type, void *values, size_t at, float x)
{
  if (type == TRM_VALUES_F32)
    ((float *)values)[at] = x;
  else
    ((trm_bf16 *)values)[at] = trm_bf16_round(x);
}

/* Before a loop of a constant number of steps: all of them become straight code. */
#ifdef __clang__
#define CPU_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CPU_UNROLL _Pragma("GCC unroll 16")
#endif

/* x as it is after cpu_set. */
CPU_INLINE float cpu_rounded(enum trm_value_type type, float x)
{
  return type == TRM_VALUES_F32 ? x : trm_bf16_value(trm_bf16_round(x));
}

/* Returns n values as floats: themselves, or read into a buffer. */
CPU_INLINE const float *cpu_read(enum trm_value_type type, const void *values, float *buffer, size_t n)
{
  if (type == TRM_VALUES_F32)
    return values;
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    buffer[i] = cpu_value(type, values, i);
  return buffer;
}

/* Returns the thread's part of buffers (threads, n), which lie a page or more apart: processors fetch ahead within a
 * page, and would fetch what another one writes. */
CPU_INLINE size_t cpu_buffer_stride(size_t n)
{
  return (n / CPU_GRANULE + 2) * CPU_GRANULE;
}

CPU_INLINE float *cpu_buffer(float *buffers, size_t n)
{
  return buffers + (size_t)cpu_thread() * cpu_buffer_stride(n);
}

/* Results that a body adds to before they are rounded are floats until then: in place, or in the thread's buffer.
 * cpu_place returns where they are, cpu_write rounds n of them to `values`. */
CPU_INLINE float *cpu_place(enum trm_value_type type, void *values, float *buffers, size_t n)
{
  return type == TRM_VALUES_F32 ? values : cpu_buffer(buffers, n);
}

CPU_INLINE void cpu_write(enum trm_value_type type, const float *place, void *values, size_t n)
{
  trm_bf16 *to = values;

  if (type == TRM_VALUES_F32)
    return;
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] = trm_bf16_round(place[i]);
}

/* Fetches values into the caches, which may be beyond the array: to be read, or to be written. A loop with much
 * arithmetic for each value has few reads and writes in progress, and the processor's own prefetching is late for it:
 * it runs in steps of CPU_STEP values, and fetches those CPU_AHEAD further. One that only reads, with so little
 * arithmetic that memory alone limits it, fetches those CPU_STREAM_AHEAD further: the processor's own prefetching stops
 * at the end of a page. */
#define CPU_STEP 64
#define CPU_AHEAD 512
#define CPU_STREAM_AHEAD 2048
CPU_INLINE void cpu_prefetch(enum trm_value_type type, const void *values, size_t at, size_t n)
{
  const char *first = cpu_at(type, values, at);

  for (size_t i = 0; i < n * trm_value_bytes(type); i += CPU_LINE)
    __builtin_prefetch(first + i);
}

/* The same of values that are written, which a cache reads first. */
CPU_INLINE void cpu_prefetch_write(enum trm_value_type type, const void *values, size_t at, size_t n)
{
  const char *first = cpu_at(type, values, at);

  for (size_t i = 0; i < n * trm_value_bytes(type); i += CPU_LINE)
    __builtin_prefetch(first + i, 1);
}

/* -- results past the caches. A cache reads a line before a part of it is written. Bodies whose results are more than
 * the caches keep compute a block of them at a time, and store it past the caches, which read nothing (Intel's
 * optimization manual, "streaming stores"): a third of the traffic of a copy. */

/* Bytes of a thread's results that are stored past the caches: what a core's second-level cache has, or more. */
#define CPU_STREAMED_BYTES (2 << 20)

/* Results of a step of a loop. */
struct cpu_block {
  _Alignas(CPU_LINE) char values[8 * CPU_LINE];
};

/* Returns whether n results of a thread are stored past the caches. They must not be what the body reads. */
CPU_INLINE bool cpu_streams(enum trm_value_type type, const void *values, size_t n)
{
#ifdef __SSE2__
  return n * trm_value_bytes(type) >= CPU_STREAMED_BYTES && (uintptr_t)values % CPU_LINE == 0;
#else
  (void)type, (void)values, (void)n;
  return false;
#endif
}

/* Stores bytes past the caches, whole lines of them; another thread sees them after cpu_stream_end. */
CPU_INLINE void cpu_stream(void *to, const void *from, size_t bytes)
{
  size_t i = 0;

#ifdef __SSE2__
  const size_t before = -(uintptr_t)to % CPU_LINE;

  if (before != 0 && before < bytes)
    memcpy(to, from, i = before);
  for (; before < bytes && i + CPU_LINE <= bytes; i += CPU_LINE)
    CPU_UNROLL
    for (size_t j = 0; j < CPU_LINE; j += sizeof(__m128i)) {
      const __m128i part = _mm_loadu_si128((const void *)((const char *)from + i + j));

      _mm_stream_si128((void *)((char *)to + i + j), part);
    }
#endif
  if (i < bytes)
    memcpy((char *)to + i, (const char *)from + i, bytes - i);
}

CPU_INLINE void cpu_stream_end(void)
{
#ifdef __SSE2__
  _mm_sfence();
#endif
}

/* Returns where a body computes n results from `at` on, at most as many as fit a block: in place, where it fetches
 * those further on, or in the block, which cpu_store_results stores. */
CPU_INLINE void *cpu_results(bool streams, enum trm_value_type type, void *values, size_t at, size_t n,
                             struct cpu_block *block)
{
  if (streams)
    return block->values;
  cpu_prefetch_write(type, values, at + CPU_AHEAD, n);
  return cpu_at(type, values, at);
}

CPU_INLINE void cpu_store_results(bool streams, enum trm_value_type type, void *values, size_t at, size_t n,
                                  const struct cpu_block *block)
{
  if (streams)
    cpu_stream(cpu_at(type, values, at), block->values, n * trm_value_bytes(type));
}

/* Defines NAME_body of the inline function NAME (type, arguments, low, high), whose arguments have a type. */
#define CPU_BODY_BY_TYPE(name, arguments)                                       \
  CPU_CLONES static void name##_body(const void *call, size_t low, size_t high) \
  {                                                                             \
    const struct arguments *it = call;                                          \
                                                                                \
    if (it->type == TRM_VALUES_F32)                                             \
      name(TRM_VALUES_F32, it, low, high);                                      \
    else                                                                        \
      name(TRM_VALUES_BF16, it, low, high);                                     \
  }

/* Sums in CPU_LANES lanes, term i in lane i % CPU_LANES, the lanes then in a binary tree. The lanes are spelled out, so
 * that the order of additions depends on the number of terms alone: not on the width of the processor's registers, the
 * compiler, or where the terms lie. */
#define CPU_LANES 16

/* Sum of the lanes. */
CPU_INLINE float cpu_lane_tree(const float lane[CPU_LANES])
{
  float eight[8], four[4];

#pragma omp simd
  for (size_t l = 0; l < 8; l++)
    eight[l] = lane[l] + lane[l + 8];
#pragma omp simd
  for (size_t l = 0; l < 4; l++)
    four[l] = eight[l] + eight[l + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/* Sum of n terms. */
CPU_INLINE float cpu_lane_sum_of(enum trm_value_type type, const void *x, size_t n)
{
  float lane[CPU_LANES] = {0};
  size_t i = 0;

  for (; i + CPU_LANES <= n; i += CPU_LANES)
#pragma omp simd
    for (size_t l = 0; l < CPU_LANES; l++)
      lane[l] += cpu_value(type, x, i + l);
  for (size_t l = 0; i + l < n; l++)
    lane[l] += cpu_value(type, x, i + l);
  return cpu_lane_tree(lane);
}

CPU_INLINE float cpu_lane_sum(const float *x, size_t n)
{
  return cpu_lane_sum_of(TRM_VALUES_F32, x, n);
}

/* Sum of the products a * b. */
CPU_INLINE float cpu_lane_product(enum trm_value_type type_a, const void *a, enum trm_value_type type_b, const void *b,
                                  size_t n)
{
  float lane[CPU_LANES] = {0};
  size_t i = 0;

  for (; i + CPU_LANES <= n; i += CPU_LANES)
#pragma omp simd
    for (size_t l = 0; l < CPU_LANES; l++)
      lane[l] += cpu_value(type_a, a, i + l) * cpu_value(type_b, b, i + l);
  for (size_t l = 0; i + l < n; l++)
    lane[l] += cpu_value(type_a, a, i + l) * cpu_value(type_b, b, i + l);
  return cpu_lane_tree(lane);
}

/* Maximum of n >= 1 numbers; may ignore a NaN. In explicit lanes: not every compiler vectorizes a maximum. */
CPU_INLINE float cpu_lane_maximum(enum trm_value_type type, const void *x, size_t n)
{
  float maximum = cpu_value(type, x, 0), lane[CPU_LANES];
  size_t i = 0;

  if (n >= CPU_LANES) {
    for (size_t l = 0; l < CPU_LANES; l++)
      lane[l] = cpu_value(type, x, l);
    for (i = CPU_LANES; i + CPU_LANES <= n; i += CPU_LANES)
#pragma omp simd
      for (size_t l = 0; l < CPU_LANES; l++) {
        const float value = cpu_value(type, x, i + l);

        lane[l] = value > lane[l] ? value : lane[l];
      }
    for (int width = CPU_LANES / 2; width > 0; width /= 2)
      for (int l = 0; l < width; l++)
        lane[l] = lane[l + width] > lane[l] ? lane[l + width] : lane[l];
    maximum = lane[0];
  }
  for (; i < n; i++)
    maximum = cpu_value(type, x, i) > maximum ? cpu_value(type, x, i) : maximum;
  return maximum;
}

struct activation_table;
struct attention_blocks;
struct attention_kernels;
struct conv_kernels;
struct conv_library;

struct cpu_state {
  const struct attention_kernels *attention; /* for this processor (attention.h); NULL: none */
  const struct attention_blocks *attention_blocks; /* the same in bfloat16; NULL: none */
  const struct conv_kernels *conv; /* for this processor (conv.h) */
  struct conv_library *library;    /* oneDNN's convolutions (conv_onednn.h); NULL: none yet */
  struct activation_table *activation[TRM_SCALE + 1]; /* by kind (activation.c); NULL: none yet */
  void *scratch; /* grows, kept until the device is closed */
  size_t scratch_bytes;
  bool failed;
  char failure[192]; /* the first one, until sync reports it */
};

typedef void cpu_body(const void *arguments, size_t low, size_t high);

/* Calls body on intervals that together are [0, n), each once, cut at multiples of granule; on the device's threads if
 * n items of `work` units each are worth it. */
void cpu_for(const struct trm_device *device, size_t n, size_t granule, double work, cpu_body *body,
             const void *arguments);

/* Memory for the current call, not zeroed, valid until the next call of this function. Outside of parallel regions. */
void *cpu_scratch(struct trm_device *device, size_t bytes);

/* Scratch memory for cpu_place and cpu_read: n floats of each thread; NULL for float32. */
float *cpu_buffers(struct trm_device *device, enum trm_value_type type, size_t n);

/* Records a failure for the next sync. Outside parallel regions. */
void cpu_fail(struct trm_device *device, const char *format, ...) __attribute__((format(printf, 2, 3)));

void cpu_fill(struct trm_device *device, float *to, float value, size_t n);

/* The kernels of the contract (core/kernels.h): cpu_gemm, ... */
#define CPU_DECLARE(slot, type) void cpu_##slot(struct trm_device *device, const struct type *call);
TRM_KERNELS(CPU_DECLARE)
