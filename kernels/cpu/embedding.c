/* Embedding: rows of a table by token; the gradient of a row is the sum over its token's occurrences. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

struct embedding {
  const int32_t *token; /* (R) */
  const float *w;       /* (V, D) */
  float *y;             /* (R, D) */
  const float *dy;      /* (R, D) */
  float *dw;            /* (V, D) */
  float beta;
  size_t d, v; /* V: rows of the table on this rank */
  size_t low, total;
  const int32_t *start; /* (V + 1): start of each token's rows in `row` */
  const int32_t *row;   /* rows by token, ascending for each token */
};

static bool embedding_is_known(int32_t token, size_t v)
{
  return token >= 0 && (size_t)token < v;
}

/* Returns whether the token's row is in this shard. */
static bool embedding_is_local(int32_t token, const struct trm_vocab_shard *v)
{
  return token >= 0 && (size_t)token >= v->low && (size_t)token < v->high;
}

static void embedding_forward_body(const void *arguments, size_t low, size_t high)
{
  const struct embedding *it = arguments;
  const size_t d = it->d;

  for (size_t i = low; i < high; i++) {
    float *y = it->y + i * d;

    const struct trm_vocab_shard shard = {it->low, it->low + it->v, it->total};

    if (embedding_is_local(it->token[i], &shard)) {
      memcpy(y, it->w + ((size_t)it->token[i] - it->low) * d, d * sizeof(*y));
    } else {
      const float value = embedding_is_known(it->token[i], it->total) ? 0 : NAN; /* the caller reports the error */

      for (size_t j = 0; j < d; j++)
        y[j] = value;
    }
  }
}

void cpu_embedding_forward(struct trm_device *device, const int32_t *token, const float *w, float *y, size_t r,
                           size_t d, const struct trm_vocab_shard *v)
{
  const struct embedding it = {
    .token = token, .w = w, .y = y, .d = d, .v = v->high - v->low, .low = v->low, .total = v->total};

  for (size_t i = 0; i < r; i++)
    if (!embedding_is_known(token[i], v->total)) {
      cpu_fail(device, "embedding: token %zu is %d, but the vocabulary has %zu", i, (int)token[i], v->total);
      break;
    }
  cpu_for(device, r, 1, (double)d, embedding_forward_body, &it);
}

/* A work item is a column. A token's rows are added in blocks of SUM_ROWS in float, blocks in double, in row order: an
 * element's sum does not depend on the interval. */
#define SUM_ROWS 16
#define SUM_COLUMNS 256

CPU_CLONES static void embedding_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct embedding *it = arguments;
  const size_t d = it->d;
  double total[SUM_COLUMNS];
  float block[SUM_COLUMNS];

  for (size_t first = low; first < high; first += SUM_COLUMNS) {
    const size_t width = high - first < SUM_COLUMNS ? high - first : SUM_COLUMNS;

    for (size_t t = 0; t < it->v; t++) {
      float *dw = it->dw + t * d + first;

      if (it->start[t] == it->start[t + 1]) {
        for (size_t j = 0; j < width && it->beta != 1; j++)
          dw[j] = it->beta == 0 ? 0 : it->beta * dw[j];
        continue;
      }
      for (size_t j = 0; j < width; j++)
        total[j] = it->beta == 0 ? 0 : (double)it->beta * dw[j];
      for (int32_t at = it->start[t]; at < it->start[t + 1]; at += SUM_ROWS) {
        const int32_t end = it->start[t + 1] - at < SUM_ROWS ? it->start[t + 1] : at + SUM_ROWS;

        for (size_t j = 0; j < width; j++)
          block[j] = 0;
        for (int32_t i = at; i < end; i++) {
          const float *dy = it->dy + (size_t)it->row[i] * d + first;

#pragma omp simd
          for (size_t j = 0; j < width; j++)
            block[j] += dy[j];
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

void cpu_embedding_backward(struct trm_device *device, const int32_t *token, const float *dy, float beta, float *dw,
                            size_t r, size_t d, const struct trm_vocab_shard *vocabulary)
{
  const size_t v = vocabulary->high - vocabulary->low, low = vocabulary->low;
  int32_t *start = cpu_scratch(device, (v + 2 + r) * sizeof(*start)), *row = start + v + 2;

  /* counting sort: start[t + 1] is the start of t, and ends as the end of t once its rows are stored */
  for (size_t t = 0; t < v + 2; t++)
    start[t] = 0;
  for (size_t i = 0; i < r; i++)
    if (embedding_is_local(token[i], vocabulary)) /* forward has reported invalid tokens */
      start[(size_t)token[i] - low + 2]++;
  for (size_t t = 0; t < v; t++)
    start[t + 2] += start[t + 1];
  for (size_t i = 0; i < r; i++)
    if (embedding_is_local(token[i], vocabulary))
      row[start[(size_t)token[i] - low + 1]++] = (int32_t)i;
  const struct embedding it = {.dy = dy, .dw = dw, .beta = beta, .d = d, .v = v, .start = start, .row = row};

  cpu_for(device, d, 16, (double)(r + v), embedding_backward_body, &it);
}
