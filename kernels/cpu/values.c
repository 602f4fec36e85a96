/* Values: bodies of floats on arrays of bfloat16, sums and conversions element by element. */
#include "kernels/cpu/values.h"

#include <string.h>

/* -- bodies of floats */

struct chunks {
  cpu_body *body;
  const void *arguments;
  const struct cpu_values *values;
  size_t items;                  /* of a chunk */
  size_t at[CPU_VALUE_ARRAYS]; /* of each array in a thread's copies, in floats */
  float *copies;                 /* (threads, per_thread) */
  size_t per_thread;
};

/* Returns array a, NULL if it is not accessed. */
static trm_bf16 *values_array(const struct chunks *it, int a)
{
  trm_bf16 *array = NULL;

  if (it->values->array[a].access)
    memcpy(&array, (const char *)it->arguments + it->values->array[a].field, sizeof array);
  return array;
}

/* Widens the n items of array a from `values` to `copy`, or rounds them back. */
static void values_copy(const struct chunks *it, int a, trm_bf16 *values, float *copy, size_t n, bool back)
{
  const size_t width = it->values->array[a].width, stride = it->values->array[a].stride;
  const size_t run = width == stride ? n * width : width; /* consecutive values */

  for (size_t at = 0; at < n * stride; at += width == stride ? run : stride) {
    if (back)
      trm_bf16_narrow(values + at, copy + at, run);
    else
      trm_bf16_widen(copy + at, values + at, run);
  }
}

static void values_chunks_body(const void *arguments, size_t low, size_t high)
{
  const struct chunks *it = arguments;
  float *copies = it->copies + (size_t)cpu_thread() * it->per_thread;
  _Alignas(16) char call[CPU_ARGUMENTS];
  size_t n;

  memcpy(call, it->arguments, it->values->bytes);
  for (size_t first = low; first < high; first += n) {
    n = high - first < it->items ? high - first : it->items;
    for (int a = 0; a < CPU_VALUE_ARRAYS; a++) {
      trm_bf16 *array = values_array(it, a);
      const size_t stride = it->values->array[a].stride;
      /* the address that element 0 would have */
      const uintptr_t begin = (uintptr_t)(copies + it->at[a]) - first * stride * sizeof(float);

      if (array)
        memcpy(call + it->values->array[a].field, &begin, sizeof begin);
      if (array && it->values->array[a].access & TRM_READS)
        values_copy(it, a, array + first * stride, copies + it->at[a], n, false);
    }
    it->body(call, first, first + n);
    for (int a = 0; a < CPU_VALUE_ARRAYS; a++) {
      trm_bf16 *array = values_array(it, a);

      if (array && it->values->array[a].access & TRM_WRITES)
        values_copy(it, a, array + first * it->values->array[a].stride, copies + it->at[a], n, true);
    }
  }
}

void cpu_for_values(struct trm_device *device, size_t n, size_t granule, double work, cpu_body *body,
                    const void *arguments, const struct cpu_values *values)
{
  struct chunks it = {.body = body, .arguments = arguments, .values = values};
  size_t width = 0;

  if (values->type == TRM_VALUES_F32) {
    cpu_for(device, n, granule, work, body, arguments);
    return;
  }
  for (int a = 0; a < CPU_VALUE_ARRAYS; a++)
    width += values_array(&it, a) ? values->array[a].stride : 0;
  it.items = width < CPU_CHUNK ? CPU_CHUNK / (width + !width) : 1;
  it.items = it.items > CPU_LANES ? it.items / CPU_LANES * CPU_LANES : it.items;
  for (int a = 0; a < CPU_VALUE_ARRAYS; a++) {
    it.at[a] = it.per_thread;
    if (values_array(&it, a))
      it.per_thread += (it.items * values->array[a].stride + CPU_LANES - 1) / CPU_LANES * CPU_LANES;
  }
  it.copies = cpu_copies(device, (size_t)device->threads * it.per_thread * sizeof(float));
  cpu_for(device, n, granule, work, values_chunks_body, &it);
}

/* -- the kernels */

CPU_INLINE void values_add(enum trm_value_type type, const struct trm_add *it, size_t low, size_t high)
{
  const void *a = it->a, *b = it->b;
  void *y = it->y;

#pragma omp simd
  for (size_t i = low; i < high; i++)
    cpu_set(type, y, i, cpu_value(type, a, i) + cpu_value(type, b, i));
}

CPU_CLONES static void values_add_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_add *it = arguments;

  CPU_BY_TYPE(it->type, values_add, it, low, high);
}

void cpu_add(struct trm_device *device, const struct trm_add *call)
{
  cpu_for(device, call->n, CPU_GRANULE, 2, values_add_body, call);
}

static void values_convert_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_convert *it = arguments;
  const size_t bytes = trm_value_bytes(it->type_to);

  if (it->type_from == it->type_to)
    memcpy((char *)it->to + low * bytes, (const char *)it->from + low * bytes, (high - low) * bytes);
  else if (it->type_to == TRM_VALUES_BF16)
    trm_bf16_narrow((trm_bf16 *)it->to + low, (const float *)it->from + low, high - low);
  else
    trm_bf16_widen((float *)it->to + low, (const trm_bf16 *)it->from + low, high - low);
}

void cpu_convert(struct trm_device *device, const struct trm_convert *call)
{
  cpu_for(device, call->n, CPU_GRANULE, 2, values_convert_body, call);
}
