#include "mpi/coll/reduce.h"

#define REDUCE(type)                                              \
  do {                                                            \
    type *z = to;                                                 \
    const type *x = with, *y = from;                              \
    if (sum) {                                                    \
      _Pragma("omp simd") for (size_t i = 0; i < count; i++)      \
        z[i] = (type)(x[i] + y[i]);                               \
    } else {                                                      \
      for (size_t i = 0; i < count; i++)                          \
        z[i] = (op == TRM_MIN) == (y[i] < x[i]) ? y[i] : x[i];    \
    }                                                             \
  } while (0)

void coll_reduce(enum trm_type type, enum trm_op op, void *to, const void *with, const void *from, size_t count)
{
  const bool sum = op == TRM_SUM || op == TRM_TREE_SUM;
  switch (type) {
  case TRM_FLOAT:
    REDUCE(float);
    break;
  case TRM_DOUBLE:
    REDUCE(double);
    break;
  case TRM_INT32:
    if (sum)
      REDUCE(uint32_t);
    else
      REDUCE(int32_t);
    break;
  case TRM_INT64:
    if (sum)
      REDUCE(uint64_t);
    else
      REDUCE(int64_t);
    break;
  case TRM_BYTE:
    REDUCE(uint8_t);
    break;
  }
}
