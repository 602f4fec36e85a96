#include "mpi/coll/reduce.h"

#include "core/clones.h"

/* An element depends on those of its own index alone, also where z is x. min and max: of two that are equal, or not
 * ordered, x and y. */
#define REDUCE(type)                                                                                                   \
  CPU_CLONES static void reduce_##type(enum trm_op op, type *z, const type *x, const type *y, size_t count)           \
  {                                                                                                                    \
    if (op == TRM_MIN) {                                                                                               \
      _Pragma("omp simd") for (size_t i = 0; i < count; i++)                                                           \
        z[i] = y[i] < x[i] ? y[i] : x[i];                                                                              \
    } else if (op == TRM_MAX) {                                                                                        \
      _Pragma("omp simd") for (size_t i = 0; i < count; i++)                                                           \
        z[i] = y[i] < x[i] ? x[i] : y[i];                                                                              \
    } else {                                                                                                           \
      _Pragma("omp simd") for (size_t i = 0; i < count; i++)                                                           \
        z[i] = (type)(x[i] + y[i]);                                                                                    \
    }                                                                                                                  \
  }
REDUCE(float)
REDUCE(double)
REDUCE(int32_t)
REDUCE(uint32_t)
REDUCE(int64_t)
REDUCE(uint64_t)
REDUCE(uint8_t)

void coll_reduce(enum trm_type type, enum trm_op op, void *to, const void *with, const void *from, size_t count)
{
  const bool orders = op == TRM_MIN || op == TRM_MAX; /* sums of signed integers wrap around as unsigned ones */
  switch (type) {
  case TRM_FLOAT:
    reduce_float(op, to, with, from, count);
    break;
  case TRM_DOUBLE:
    reduce_double(op, to, with, from, count);
    break;
  case TRM_INT32:
    if (orders)
      reduce_int32_t(op, to, with, from, count);
    else
      reduce_uint32_t(op, to, with, from, count);
    break;
  case TRM_INT64:
    if (orders)
      reduce_int64_t(op, to, with, from, count);
    else
      reduce_uint64_t(op, to, with, from, count);
    break;
  case TRM_BYTE:
    reduce_uint8_t(op, to, with, from, count);
    break;
  }
}
