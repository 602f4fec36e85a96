/* Selection in one pass over the array: the top of a sample's histogram gives a bound, which few elements more than k
 * exceed; among these the k-th largest is found by its bits, 11, 10 and 10 of them at a time. Absolute values of floats
 * are ordered as the integers of the same bits. */
#include "mpi/compress/sparse.h"

#include <math.h>
#include <string.h>

enum { LEVELS = 3, MAX_BINS = 2048, SAMPLE_STRIDE = 16 };
static const struct {
  int shift;
  uint32_t bins;
} levels[LEVELS] = {{20, 2048}, {10, 1024}, {0, 1024}};

static uint32_t sparse_key(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits & 0x7fffffff;
}

/* Returns the highest bin from which on the bins have k elements together, and sets *above to those in higher bins. 0
 * if all have fewer. */
static uint32_t sparse_find_bin(const uint32_t *count, uint32_t bins, size_t k, size_t *above)
{
  *above = 0;
  uint32_t bin = bins - 1;
  for (; bin > 0 && *above + count[bin] < k; bin--)
    *above += count[bin];
  return bin;
}

/* A key that about k elements or a few more reach. */
static uint32_t sparse_bound(const float *x, size_t n, size_t k)
{
  uint32_t count[MAX_BINS] = {0};
  size_t above;
  for (size_t i = 0; i < n; i += SAMPLE_STRIDE)
    count[sparse_key(x[i]) >> levels[0].shift]++;
  return sparse_find_bin(count, levels[0].bins, k / SAMPLE_STRIDE + k / (4 * SAMPLE_STRIDE) + 8, &above)
         << levels[0].shift;
}

/* candidate: the indices of elements that reach the bound. Returns how many. */
static size_t sparse_find_candidates(const float *x, size_t n, uint32_t bound, uint32_t *candidate)
{
  size_t found = 0;
  for (size_t i = 0; i < n; i++) {
    candidate[found] = (uint32_t)i;
    found += sparse_key(x[i]) >= bound;
  }
  return found;
}

/* Returns the k-th largest key of the candidates, k >= 1; *equal: those among the k largest that have it. */
static uint32_t sparse_find_kth(const float *x, const uint32_t *candidate, size_t n, size_t k, size_t *equal)
{
  uint32_t prefix = 0, mask = 0;
  for (int level = 0; level < LEVELS; level++) {
    uint32_t count[MAX_BINS] = {0};
    size_t above;
    for (size_t i = 0; i < n; i++) {
      const uint32_t key = sparse_key(x[candidate[i]]);
      if ((key & mask) == prefix)
        count[key >> levels[level].shift & (levels[level].bins - 1)]++;
    }
    prefix |= sparse_find_bin(count, levels[level].bins, k, &above) << levels[level].shift;
    mask |= (levels[level].bins - 1) << levels[level].shift;
    k -= above;
  }
  *equal = k;
  return prefix;
}

void sparse_select(const float *x, size_t n, size_t k, uint32_t *scratch, struct sparse_element *to)
{
  if (k == 0)
    return;
  size_t candidates = sparse_find_candidates(x, n, k < n / 2 ? sparse_bound(x, n, k) : 0, scratch), equal;
  if (candidates < k) /* the sample was too large */
    candidates = sparse_find_candidates(x, n, 0, scratch);
  const uint32_t kth = sparse_find_kth(x, scratch, candidates, k, &equal);
  for (size_t i = 0; i < candidates; i++) {
    const uint32_t index = scratch[i], key = sparse_key(x[index]);
    if (key < kth || (key == kth && equal == 0))
      continue;
    equal -= key == kth;
    *to++ = (struct sparse_element){index, x[index]};
  }
}

size_t sparse_count(double ratio, size_t n)
{
  const double count = ceil(ratio * (double)n);
  return count < (double)n ? (size_t)count : n;
}

static void sparse_add(float *to, const struct sparse_element *from, size_t k)
{
  for (size_t i = 0; i < k; i++)
    to[from[i].index] += from[i].value;
}

void sparse_sum_measure(const struct compress_part *part, double ratio, double largest, struct compress_sizes *sizes)
{
  sizes->buffer += (size_t)part->nodes->size * sparse_count(largest, part->n) * sizeof(struct sparse_element);
  sizes->scratch += (part->n + 1) * sizeof(uint32_t);
  sizes->rounds = 1;
  sizes->sent += compress_rows_sent(part, sparse_count(ratio, part->n) * sizeof(struct sparse_element));
}

const struct sparse_element *sparse_sum_begin(struct compressor *c, struct compress_part *part, const float *x,
                                              size_t k)
{
  struct sparse_element *const rows = (struct sparse_element *)part->buffer;
  struct sparse_element *const mine = rows + (size_t)part->nodes->rank * k;
  sparse_select(x, part->n, k, c->scratch, mine);
  compress_gather_rows_begin(c, part, rows, k * sizeof *rows);
  return mine;
}

void sparse_sum_finish(const struct compress_part *part, size_t k)
{
  const struct sparse_element *const rows = (const struct sparse_element *)part->buffer;
  memset(part->data, 0, part->n * sizeof *part->data);
  for (int node = 0; node < part->nodes->size; node++)
    sparse_add(part->data, rows + (size_t)node * k, k);
}
