/* Stochastic updates of a linear model over sparse rows, on weights that others change at the same time. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* Rows lie anywhere, and the processor does not guess where the next one is: of the row that comes so many rows later,
 * columns and values are asked for, at most so many entries. The weights of the next row are asked for while this one's
 * are added up; another rank may have them. */
#define AHEAD 4
#define AHEAD_ENTRIES 512
#define LINE 16 /* entries */

struct pass {
  const struct trm_sparse_sgd *how;
  const struct trm_sparse_row *row;
  const float *target;
  float *w, *bias;
};

/* What other ranks write at the same time is read and written whole: on all processors we know this is a plain move. */
CPU_INLINE float load(const float *from)
{
  float value;

  __atomic_load(from, &value, __ATOMIC_RELAXED);
  return value;
}

CPU_INLINE void store(float *to, float value)
{
  __atomic_store(to, &value, __ATOMIC_RELAXED);
}

CPU_INLINE void prefetch_row(const struct trm_sparse_row *row)
{
  const size_t entries = row->entries < AHEAD_ENTRIES ? row->entries : AHEAD_ENTRIES;

  for (size_t e = 0; e < entries; e += LINE) {
    __builtin_prefetch(row->columns + e);
    __builtin_prefetch(row->values + e);
  }
}

/* Four sums: additions wait for one another. */
CPU_INLINE float score(const struct pass *it, const struct trm_sparse_row *row)
{
  const int32_t *column = row->columns;
  const float *value = row->values, *w = it->w;
  float sum[4] = {it->bias ? load(it->bias) : 0};
  size_t e = 0;

  for (; e + 4 <= row->entries; e += 4)
    for (size_t k = 0; k < 4; k++)
      sum[k] += load(w + column[e + k]) * value[e + k];
  for (; e < row->entries; e++)
    sum[0] += load(w + column[e]) * value[e];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The derivative of the loss by the score; loss and answer are added to the sums. */
CPU_INLINE float derivative(enum trm_margin kind, float z, float t, struct trm_sparse_sums *sums)
{
  const float margin = t * z;

  sums->correct += t > 0 ? z > 0 : z <= 0; /* 0 counts as -1 */
  if (kind == TRM_MARGIN_HINGE) {
    sums->loss += margin >= 1 ? 0 : 1 - (double)margin;
    return margin >= 1 ? 0 : -t;
  }
  const float e = expf(-fabsf(margin));

  sums->loss += (margin < 0 ? -(double)margin : 0) + log1pf(e);
  return -t * (margin < 0 ? 1 : e) / (1 + e);
}

/* w_j = (w_j + step * x_j) * (1 - rate * shrink_j) */
CPU_INLINE void change(const struct pass *it, const struct trm_sparse_row *row, float step, float rate, bool shrinks,
                       uint32_t *written)
{
  const float *shrink = it->how->shrink;

  for (size_t e = 0; e < row->entries; e++) {
    float *w = it->w + row->columns[e];
    const float changed = load(w) + step * row->values[e];

    store(w, shrinks ? changed * (1 - rate * shrink[row->columns[e]]) : changed);
    if (written) { /* loses what w loses */
      uint32_t *count = written + row->columns[e];

      __atomic_store_n(count, __atomic_load_n(count, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
    }
  }
  if (it->bias && step != 0)
    store(it->bias, load(it->bias) + step);
}

/* The updates of rows [low, high) of the pass, `together` at a time. slope: (together). */
CPU_INLINE void updates(const struct pass *it, size_t low, size_t high, size_t together, float *slope, bool shrinks,
                        struct trm_races *races, struct trm_sparse_sums *sums)
{
  const struct trm_sparse_sgd *how = it->how;

  for (size_t first = low, end; first < high; first = end) {
    end = high - first < together ? high : first + together;
    const float rate = how->rate / (float)(end - first);
    const uint64_t began = races ? __atomic_load_n(&races->writers, __ATOMIC_RELAXED) : 0;
    bool writes = shrinks;

    for (size_t i = first; i < end; i++) {
      if (i + AHEAD < high)
        prefetch_row(it->row + i + AHEAD);
      slope[i - first] = derivative(how->loss, score(it, it->row + i), it->target[i], sums);
      writes = writes || slope[i - first] != 0;
    }
    if (!writes)
      continue;
    if (races)
      __atomic_fetch_add(&races->writers, 1, __ATOMIC_RELAXED);
    for (size_t i = first; i < end; i++)
      if (shrinks || slope[i - first] != 0) {
        change(it, it->row + i, -rate * slope[i - first], rate, shrinks, races ? races->written : NULL);
        sums->written += it->row[i].entries;
      }
    sums->updates++;
    if (races)
      sums->conflicts += __atomic_load_n(&races->writers, __ATOMIC_RELAXED) != began + 1;
  }
}

CPU_CLONES static void sparse_sgd_rows(const struct pass *it, size_t rows, size_t together, float *slope,
                                       struct trm_sparse_sums *sums)
{
  const bool shrinks = it->how->shrink != NULL;
  float one;

  if (it->how->races)
    updates(it, 0, rows, together, slope, shrinks, it->how->races, sums);
  else if (together > 1)
    updates(it, 0, rows, together, slope, shrinks, NULL, sums);
  else if (shrinks)
    updates(it, 0, rows, 1, &one, true, NULL, sums);
  else
    updates(it, 0, rows, 1, &one, false, NULL, sums);
}

void cpu_sparse_sgd(struct trm_device *device, const struct trm_sparse_sgd *how, const struct trm_sparse_row *row,
                    const float *target, float *w, float *bias, struct trm_sparse_sums *sums, size_t rows)
{
  const struct pass it = {how, row, target, w, bias};
  const size_t together = how->together > 0 && how->together < rows ? how->together : rows;

  memset(sums, 0, sizeof *sums);
  if (rows > 0)
    sparse_sgd_rows(&it, rows, together, cpu_scratch(device, together * sizeof(float)), sums);
}
