/* Dropout: y = x * keep / (1 - rate), with a mask that depends on the element's global index only. Element (i, f)
 * draws trm_random_uniform(seed, TRM_RANDOM_DROPOUT, stream, (first_row + i) * stride + offset + f). A run is a
 * sequence of consecutive indices, of which four share a Philox block: a row if features are sharded, otherwise all
 * rows. */
#include "core/random.h"
#include "kernels/cpu/cpu.h"

struct dropout {
  enum trm_value_type type;
  const void *x; /* (n) */
  void *y;       /* (n) */
  uint64_t first; /* index of element 0 of the run */
  uint32_t key[2], stream;
  float rate, scale;
};

CPU_INLINE void dropout_words(const struct dropout *it, uint64_t block, uint32_t word[4])
{
  const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), it->stream, TRM_RANDOM_DROPOUT};

  trm_philox(counter, it->key, word);
}

/* Multiplies by 0, so that NaN and infinity stay visible. */
CPU_INLINE float dropout_apply_mask(float x, uint32_t word, float rate, float scale)
{
  return x * (trm_random_unit(word) < rate ? 0.0f : scale);
}

CPU_INLINE void dropout_one(enum trm_value_type type, const struct dropout *it, size_t e)
{
  const uint64_t index = it->first + e;
  uint32_t word[4];

  dropout_words(it, index / 4, word);
  cpu_set(type, it->y, e, dropout_apply_mask(cpu_value(type, it->x, e), word[index % 4], it->rate, it->scale));
}

/* Computes elements [low, high) of a run. */
CPU_INLINE void dropout_run(enum trm_value_type type, const struct dropout *it, size_t low, size_t high)
{
  const struct dropout copy = *it; /* a copy cannot alias y */
  const float rate = it->rate, scale = it->scale;
  size_t e = low;

  for (; e < high && (it->first + e) % 4 != 0; e++)
    dropout_one(type, it, e);
  const uint64_t first_block = (it->first + e) / 4;
  const size_t blocks = (high - e) / 4;
  const void *x = cpu_at(type, it->x, e);
  void *y = cpu_at(type, it->y, e);

  for (size_t i = 0; i < blocks; i++) {
    uint32_t word[4];

    dropout_words(&copy, first_block + i, word);
    for (size_t k = 0; k < 4; k++)
      cpu_set(type, y, 4 * i + k, dropout_apply_mask(cpu_value(type, x, 4 * i + k), word[k], rate, scale));
  }
  for (e += 4 * blocks; e < high; e++)
    dropout_one(type, it, e);
}

CPU_BODY_BY_TYPE(dropout_run, dropout)

/* Sharded features: each row is a run. */
struct dropout_rows {
  enum trm_value_type type;
  struct dropout row; /* of row 0 */
  uint64_t stride;
  size_t f;
};

CPU_INLINE void dropout_rows(enum trm_value_type type, const struct dropout_rows *it, size_t low, size_t high)
{
  for (size_t i = low; i < high; i++) {
    struct dropout row = it->row;

    row.x = cpu_at(type, row.x, i * it->f);
    row.y = cpu_at(type, row.y, i * it->f);
    row.first += i * it->stride;
    dropout_run(type, &row, 0, it->f);
  }
}

CPU_BODY_BY_TYPE(dropout_rows, dropout_rows)

void cpu_dropout(struct trm_device *device, const struct trm_dropout *call)
{
  const struct trm_mask *mask = &call->mask;
  const size_t f = call->f;
  const uint64_t stride = mask->stride ? mask->stride : f;
  const uint64_t step_row = mask->step ? mask->step->first_row * mask->row_parts : 0;
  const struct dropout it = {
    .type = call->type,
    .x = call->x,
    .y = call->y,
    .first = (step_row + mask->first_row) * stride + mask->offset,
    .key = {(uint32_t)mask->seed, (uint32_t)(mask->seed >> 32)},
    .stream = mask->stream,
    .rate = mask->rate,
    .scale = 1.0f / (1.0f - mask->rate),
  };

  if (stride == f) {
    cpu_for(device, call->b * f, CPU_GRANULE, 8, dropout_run_body, &it);
  } else {
    const struct dropout_rows rows = {call->type, it, stride, f};

    cpu_for(device, call->b, 1, 8 * (double)f, dropout_rows_body, &rows);
  }
}
