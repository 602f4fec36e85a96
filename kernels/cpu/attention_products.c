/* Products of a strip in tiles (contract: attention.h). */
#include "kernels/cpu/attention.h"

/* Keys whose values stay in the first cache while all queries of a strip are multiplied with them. */
#define KEYS 64

const struct attention_kernels *const attention_kernels_table[] = {
#ifdef __x86_64__
  &attention_avx512, &attention_avx2,
#endif
  NULL};

static size_t attention_min(size_t a, size_t b)
{
  return a < b ? a : b;
}

/* Returns the number of keys that the queries before `end` see. */
static size_t attention_seen(const struct attention_strip *strip, size_t end)
{
  return strip->causal ? strip->first + end : strip->keys;
}

static size_t attention_parts(size_t n, size_t size)
{
  return (n + size - 1) / size;
}

/* Divides the rows to fetch evenly among the tiles of a product: few reads are in progress at a time, and what is
 * computed waits for those before its own. */
static void attention_fetch_evenly(struct attention_prefetch *it, size_t tiles)
{
  it->step = attention_parts(it->rows, tiles);
}

static void attention_fetch(struct attention_prefetch *it, size_t e)
{
  enum { LINE = 16, TO_SECOND_CACHE = 2 };
  const size_t rows = attention_min(it->rows, it->step);

  for (size_t i = 0; i < rows; i++, it->first += it->ld)
    for (size_t part = 0; part < it->parts; part++)
      for (size_t j = 0; j < e; j += LINE)
        __builtin_prefetch(it->first + part * it->part + j, 0, TO_SECOND_CACHE);
  it->rows -= rows;
}

/* Computes C (rows, n) in tiles of all rows; tile: what they have in common. */
static void attention_tiles_of_rows(const struct attention_kernels *kernels, struct attention_tile *tile,
                                    const float *b, float *c, size_t n)
{
  for (size_t j = 0; j < n; j += kernels->columns) {
    tile->b = b + j;
    tile->c = c + j;
    tile->columns = attention_min(n - j, kernels->columns);
    kernels->tile(tile);
  }
}

void attention_multiply_scores(const struct attention_kernels *kernels, struct attention_strip *strip, size_t e,
                               const float *a, size_t lda, const float *b, size_t ldb, float *s)
{
  struct attention_tile tile = {.row = lda, .step = 1, .ldb = ldb, .ldc = strip->ld, .k = e};

  attention_fetch_evenly(&strip->ahead, attention_parts(strip->keys, kernels->columns) *
                                          attention_parts(strip->queries, kernels->rows));
  for (size_t j = 0; j < strip->keys; j += kernels->columns)
    for (size_t i = 0; i < strip->queries; i += kernels->rows) {
      tile.rows = attention_min(strip->queries - i, kernels->rows);
      const size_t seen = attention_seen(strip, i + tile.rows);

      tile.a = a + i * lda;
      attention_fetch(&strip->ahead, e);
      if (seen > j)
        attention_tiles_of_rows(kernels, &tile, b + j, s + i * strip->ld + j,
                                attention_min(seen - j, kernels->columns));
    }
}

void attention_multiply_keys(const struct attention_kernels *kernels, struct attention_strip *strip, size_t e,
                             const float *s, const float *b, size_t ldb, float *c, size_t ldc)
{
  struct attention_tile tile = {.row = strip->ld, .step = 1, .ldb = ldb, .ldc = ldc};

  attention_fetch_evenly(&strip->ahead, attention_parts(strip->keys, KEYS) *
                                          attention_parts(strip->queries, kernels->rows));
  for (size_t j = 0; j < strip->keys; j += KEYS)
    for (size_t i = 0; i < strip->queries; i += kernels->rows) {
      tile.rows = attention_min(strip->queries - i, kernels->rows);
      const size_t seen = attention_seen(strip, i + tile.rows);

      tile.a = s + i * strip->ld + j;
      tile.adds = j > 0;
      attention_fetch(&strip->ahead, e);
      if (seen > j) {
        tile.k = attention_min(seen - j, KEYS);
        attention_tiles_of_rows(kernels, &tile, b + j * ldb, c + i * ldc, e);
      }
    }
}

void attention_multiply_queries(const struct attention_kernels *kernels, struct attention_strip *strip, size_t e,
                                const float *s, const float *b, size_t ldb, float *c, size_t ldc, bool adds)
{
  struct attention_tile tile = {.row = 1, .step = strip->ld, .ldb = ldb, .ldc = ldc, .adds = adds};

  attention_fetch_evenly(&strip->ahead, attention_parts(strip->keys, kernels->rows));
  for (size_t j = 0; j < strip->keys; j += kernels->rows) {
    const size_t first = strip->causal && j > strip->first ? j - strip->first : 0; /* query that sees key j */

    attention_fetch(&strip->ahead, e);
    tile.rows = attention_min(strip->keys - j, kernels->rows);
    tile.a = s + first * strip->ld + j;
    tile.k = strip->queries - first;
    attention_tiles_of_rows(kernels, &tile, b + first * ldb, c + j * ldc, e);
  }
}
