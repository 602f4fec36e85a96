/* Embedding: rows of a table by token; the gradient of a row is the sum over its token's occurrences. */
#include <math.h>

#include "kernels/cpu/cpu.h"

static bool embedding_is_known(int32_t token, size_t v)
{
  return token >= 0 && (size_t)token < v;
}

/* Returns whether the token's row is in this shard. */
static bool embedding_is_local(int32_t token, const struct trm_vocab_shard *v)
{
  return token >= 0 && (size_t)token >= v->low && (size_t)token < v->high;
}

CPU_INLINE void embedding_forward(enum trm_value_type type, const struct trm_embedding_forward *it, size_t low,
                                  size_t high)
{
  const size_t d = it->d;

  for (size_t i = low; i < high; i++) {
    void *y = cpu_at(type, it->y, i * d);

    if (embedding_is_local(it->token[i], &it->v)) {
      const float *w = it->w + ((size_t)it->token[i] - it->v.low) * d;

#pragma omp simd
      for (size_t j = 0; j < d; j++)
        cpu_set(type, y, j, w[j]);
    } else {
      const float value = embedding_is_known(it->token[i], it->v.total) ? 0 : NAN; /* the caller reports the error */

      for (size_t j = 0; j < d; j++)
        cpu_set(type, y, j, value);
    }
  }
}

CPU_BODY_BY_TYPE(embedding_forward, trm_embedding_forward)

void cpu_embedding_forward(struct trm_device *device, const struct trm_embedding_forward *call)
{
  for (size_t i = 0; i < call->r; i++)
    if (!embedding_is_known(call->token[i], call->v.total)) {
      cpu_fail(device, "embedding: token %zu is %d, but the vocabulary has %zu", i, (int)call->token[i], call->v.total);
      break;
    }
  cpu_for(device, call->r, 1, (double)call->d, embedding_forward_body, call);
}

struct embedding {
  enum trm_value_type type;
  const struct trm_embedding_backward *call;
  const int32_t *start; /* (V + 1): start of each token's rows in `row` */
  const int32_t *row;   /* rows by token, ascending for each token */
};

/* A work item is a column. A token's rows are added in blocks of SUM_ROWS in float, blocks in double, in row order: an
 * element's sum does not depend on the interval. */
#define SUM_ROWS 16
#define SUM_COLUMNS 256

CPU_INLINE void embedding_backward(enum trm_value_type type, const struct embedding *rows, size_t low, size_t high)
{
  const struct trm_embedding_backward *it = rows->call;
  const size_t d = it->d, v = it->v.high - it->v.low;
  double total[SUM_COLUMNS];
  float block[SUM_COLUMNS];

  for (size_t first = low; first < high; first += SUM_COLUMNS) {
    const size_t width = high - first < SUM_COLUMNS ? high - first : SUM_COLUMNS;

    for (size_t t = 0; t < v; t++) {
      float *dw = it->dw + t * d + first;

      if (rows->start[t] == rows->start[t + 1]) {
        for (size_t j = 0; j < width && it->beta != 1; j++)
          dw[j] = it->beta == 0 ? 0 : it->beta * dw[j];
        continue;
      }
      for (size_t j = 0; j < width; j++)
        total[j] = it->beta == 0 ? 0 : (double)it->beta * dw[j];
      for (int32_t at = rows->start[t]; at < rows->start[t + 1]; at += SUM_ROWS) {
        const int32_t end = rows->start[t + 1] - at < SUM_ROWS ? rows->start[t + 1] : at + SUM_ROWS;

        for (size_t j = 0; j < width; j++)
          block[j] = 0;
        for (int32_t i = at; i < end; i++) {
          const void *dy = cpu_at(type, it->dy, (size_t)rows->row[i] * d + first);

#pragma omp simd
          for (size_t j = 0; j < width; j++)
            block[j] += cpu_value(type, dy, j);
        }
#pragma omp simd
        for (size_t j = 0; j < width; j++)
          total[j] += block[j];
      }
      for (size_t j = 0; j < width; j++)
        dw[j] = (float)total[j];
    }
  }
}

CPU_BODY_BY_TYPE(embedding_backward, embedding)

void cpu_embedding_backward(struct trm_device *device, const struct trm_embedding_backward *call)
{
  const size_t r = call->r, v = call->v.high - call->v.low, low = call->v.low;
  const int32_t *token = call->token;
  int32_t *start = cpu_scratch(device, (v + 2 + r) * sizeof(*start)), *row = start + v + 2;

  /* counting sort: start[t + 1] is the start of t, and ends as the end of t once its rows are stored */
  for (size_t t = 0; t < v + 2; t++)
    start[t] = 0;
  for (size_t i = 0; i < r; i++)
    if (embedding_is_local(token[i], &call->v)) /* forward has reported invalid tokens */
      start[(size_t)token[i] - low + 2]++;
  for (size_t t = 0; t < v; t++)
    start[t + 2] += start[t + 1];
  for (size_t i = 0; i < r; i++)
    if (embedding_is_local(token[i], &call->v))
      row[start[(size_t)token[i] - low + 1]++] = (int32_t)i;
  const struct embedding it = {call->type, call, start, row};

  cpu_for(device, call->d, 16, (double)(r + v), embedding_backward_body, &it);
}
