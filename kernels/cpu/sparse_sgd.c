/* Stochastic updates of a linear model with sparse rows, on weights that other ranks update concurrently. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* Prefetch distance in rows, and entries prefetched per row: rows are scattered in memory, which hardware prefetchers
 * do not predict. A fixed number is faster than the exact one. */
#define AHEAD 3
#define AHEAD_ENTRIES 96
#define LINE 16 /* entries */

/* Relaxed atomic loads and stores of weights that other ranks write: as fast as plain ones. */
CPU_INLINE float sparse_sgd_load(const float *from)
{
  float value;

  __atomic_load(from, &value, __ATOMIC_RELAXED);
  return value;
}

CPU_INLINE void sparse_sgd_store(float *to, float value)
{
  __atomic_store(to, &value, __ATOMIC_RELAXED);
}

CPU_INLINE void sparse_sgd_prefetch_row(const struct trm_sparse_row *row)
{
  for (size_t e = 0; e < AHEAD_ENTRIES; e += LINE) {
    __builtin_prefetch(row->columns + e);
    __builtin_prefetch(row->values + e);
  }
}

/* Four partial sums: independent chains of additions. */
CPU_INLINE float sparse_sgd_score(const float *w, const struct trm_sparse_row *row, float bias)
{
  const int32_t *column = row->columns;
  const float *value = row->values;
  const size_t entries = row->entries;
  float a = bias, b = 0, c = 0, d = 0;
  size_t e = 0;

  for (; e + 4 <= entries; e += 4) {
    a += sparse_sgd_load(w + column[e]) * value[e];
    b += sparse_sgd_load(w + column[e + 1]) * value[e + 1];
    c += sparse_sgd_load(w + column[e + 2]) * value[e + 2];
    d += sparse_sgd_load(w + column[e + 3]) * value[e + 3];
  }
  for (; e < entries; e++)
    a += sparse_sgd_load(w + column[e]) * value[e];
  return (a + b) + (c + d);
}

/* Returns the derivative of the loss with respect to the score, and sets the loss. */
CPU_INLINE float sparse_sgd_derivative(enum trm_margin kind, float margin, float t, float *loss)
{
  if (kind == TRM_MARGIN_HINGE) {
    *loss = margin >= 1 ? 0 : 1 - margin;
    return margin >= 1 ? 0 : -t;
  }
  const float e = expf(-fabsf(margin));

  *loss = (margin < 0 ? -margin : 0) + log1pf(e);
  return -t * (margin < 0 ? 1 : e) / (1 + e);
}

/* w_j = (w_j + step * x_j) * (1 - rate * shrink_j); shrink NULL: 0 */
CPU_INLINE void sparse_sgd_update_row(float *w, const struct trm_sparse_row *row, float step, float rate,
                                      const float *shrink, uint32_t *written)
{
  const int32_t *column = row->columns;
  const float *value = row->values;
  const size_t entries = row->entries;

  for (size_t e = 0; e < entries; e++) {
    const int32_t j = column[e];
    const float changed = sparse_sgd_load(w + j) + step * value[e];

    sparse_sgd_store(w + j, shrink ? changed * (1 - rate * shrink[j]) : changed);
    if (written) /* a lost update of w is lost here, too */
      __atomic_store_n(written + j, __atomic_load_n(written + j, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
  }
}

/* Runs the updates of all rows, update_rows at a time. slope: (update_rows). */
CPU_INLINE void sparse_sgd_updates(const struct trm_sparse_sgd_rows *it, size_t update_rows, float *slope,
                                   const float *shrink, const struct trm_races *races,
                                   struct trm_sparse_sums *sums)
{
  const enum trm_margin kind = it->sgd.loss;
  const struct trm_sparse_row *row = it->row;
  const size_t rows = it->rows;
  float *w = it->w, *bias = it->bias;
  uint64_t correct = 0, changes = 0, written = 0, conflicts = 0;
  double loss = 0;

  for (size_t first = 0, end; first < rows; first = end) {
    end = rows - first < update_rows ? rows : first + update_rows;
    const float rate = it->sgd.rate / (float)(end - first);
    const uint64_t began = races ? __atomic_load_n(races->writers, __ATOMIC_RELAXED) : 0;
    bool writes = shrink;

    for (size_t i = first; i < end; i++) {
      sparse_sgd_prefetch_row(row + (i + AHEAD < rows ? i + AHEAD : i));
      const float z = sparse_sgd_score(w, row + i, bias ? sparse_sgd_load(bias) : 0), t = it->target[i];
      float row_loss;

      slope[i - first] = sparse_sgd_derivative(kind, t * z, t, &row_loss);
      writes |= slope[i - first] != 0;
      correct += t > 0 ? z > 0 : z <= 0; /* 0 counts as -1 */
      loss += row_loss;
    }
    if (!writes)
      continue;
    changes++;
    if (races)
      __atomic_fetch_add(races->writers, 1, __ATOMIC_RELAXED);
    for (size_t i = first; i < end; i++) {
      const float step = -rate * slope[i - first];

      if (!shrink && step == 0)
        continue;
      sparse_sgd_update_row(w, row + i, step, rate, shrink, races ? races->written : NULL);
      if (bias)
        sparse_sgd_store(bias, sparse_sgd_load(bias) + step);
      written += row[i].entries;
    }
    if (races)
      conflicts += __atomic_load_n(races->writers, __ATOMIC_RELAXED) != began + 1;
  }
  *sums = (struct trm_sparse_sums){loss, (double)correct, changes, written, conflicts};
}

CPU_CLONES static void sparse_sgd_rows(const struct trm_sparse_sgd_rows *it, size_t update_rows, float *slope,
                                       struct trm_sparse_sums *sums)
{
  const float *shrink = it->sgd.shrink;
  float one;

  if (it->sgd.races)
    sparse_sgd_updates(it, update_rows, slope, shrink, it->sgd.races, sums);
  else if (update_rows > 1)
    sparse_sgd_updates(it, update_rows, slope, shrink, NULL, sums);
  else if (shrink)
    sparse_sgd_updates(it, 1, &one, shrink, NULL, sums);
  else
    sparse_sgd_updates(it, 1, &one, NULL, NULL, sums);
}

void cpu_sparse_sgd(struct trm_device *device, const struct trm_sparse_sgd_rows *call)
{
  const size_t rows = call->rows, limit = call->sgd.update_rows;
  const size_t update_rows = limit > 0 && limit < rows ? limit : rows;

  memset(call->sums, 0, sizeof *call->sums);
  if (rows > 0)
    sparse_sgd_rows(call, update_rows, cpu_scratch(device, update_rows * sizeof(float)), call->sums);
}
