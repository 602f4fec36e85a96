/* Values in bodies: the contract's arrays of float32 or bfloat16, which bodies compute with as floats. Private to
 * kernels/cpu.
 *
 * A body whose items are consecutive parts of its arrays is written for floats alone, and run by cpu_for_values. Where
 * items are columns, channels or heads, bodies read and write parts of rows with the functions below. float32 is never
 * copied by either. The element-wise bodies that a transformer spends most time in convert within their loops
 * (cpu_value, cpu_set), which are compiled once for each type (CPU_BY_TYPE). */
#pragma once

#include "core/device_arrays.h"
#include "kernels/cpu/cpu.h"

/* Floats of a thread's copies of bfloat16 values: they stay in the first cache, and are many enough to hide the cost of
 * a call. */
#define CPU_CHUNK 2048

/* Returns n values from element `at` on: in place, or widened in buffer (n). */
CPU_INLINE const float *cpu_read(enum trm_value_type type, const void *values, size_t at, size_t n, float *buffer)
{
  const trm_bf16 *from = (const trm_bf16 *)values + at;

  if (type == TRM_VALUES_F32)
    return (const float *)values + at;
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    buffer[i] = trm_bf16_value(from[i]);
  return buffer;
}

/* Returns where a body puts values that begin at element `at`: in place, or in buffer, from where cpu_write rounds. */
CPU_INLINE float *cpu_place(enum trm_value_type type, void *values, size_t at, float *buffer)
{
  return type == TRM_VALUES_F32 ? (float *)values + at : buffer;
}

CPU_INLINE void cpu_write(enum trm_value_type type, const float *place, void *values, size_t at, size_t n)
{
  trm_bf16 *to = (trm_bf16 *)values + at;

  if (type == TRM_VALUES_F32)
    return;
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] = trm_bf16_round(place[i]);
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

/* Calls an inline function, whose first argument is a constant. */
#define CPU_BY_TYPE(type, function, ...)                                     \
  do {                                                                       \
    if ((type) == TRM_VALUES_F32)                                            \
      function(TRM_VALUES_F32, __VA_ARGS__);                                 \
    else                                                                     \
      function(TRM_VALUES_BF16, __VA_ARGS__);                                \
  } while (0)

enum { CPU_VALUE_ARRAYS = 4, CPU_ARGUMENTS = 256 };

/* The arrays of values among the arguments of a body: `width` consecutive values belong to an item, `stride` from one
 * item's to the next's. */
struct cpu_values {
  enum trm_value_type type;
  size_t bytes; /* of the arguments, at most CPU_ARGUMENTS */
  struct {
    size_t field;         /* offset of the pointer in the arguments; NULL: no array */
    size_t width, stride;
    int access;           /* TRM_READS, ...; 0: not accessed */
  } array[CPU_VALUE_ARRAYS];
};
#define CPU_VALUES(type, arguments, ...) &(const struct cpu_values){type, sizeof(arguments), {__VA_ARGS__}}
#define CPU_ROWS(arguments, name, width, stride, access) \
  {offsetof(__typeof__(arguments), name), width, stride, access}
#define CPU_ACCESS(arguments, name, width, access) CPU_ROWS(arguments, name, width, width, access)
#define CPU_READS(arguments, name, width) CPU_ACCESS(arguments, name, width, TRM_READS)
#define CPU_WRITES(arguments, name, width) CPU_ACCESS(arguments, name, width, TRM_WRITES)
#define CPU_UPDATES(arguments, name, width) CPU_ACCESS(arguments, name, width, TRM_UPDATES)

/* cpu_for of a body of floats, whose arrays of values are of either type. bfloat16: the body gets chunks of its
 * intervals, and arguments in which the arrays are copies of the chunk, from which what is written is rounded. */
void cpu_for_values(struct trm_device *device, size_t n, size_t granule, double work, cpu_body *body,
                    const void *arguments, const struct cpu_values *values);
