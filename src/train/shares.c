#include "train/shares.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/comm.h"
#include "core/document.h"
#include "core/memory.h"
#include "core/status.h"

static const double max_share = 1e9;

int trm_shares_parse(const char *text, int ranks, double *share)
{
  double sum = 0;
  int count = 0;
  for (const char *at = text; at; count++) {
    char *end;
    const double value = strtod(at, &end);
    if (end == at || !(value >= 0 && value <= max_share) || (*end != ',' && *end != '\0'))
      return trm_error(TRM_USAGE, "parallel.shares: \"%.80s\" is neither equal nor measured nor a list of numbers from "
                       "0 to %g, one for each data rank (3,1,1)", text, max_share);
    if (count < ranks)
      share[count] = value;
    sum += value;
    at = *end == ',' ? end + 1 : NULL;
  }
  if (count != ranks)
    return trm_error(TRM_USAGE, "parallel.shares: \"%.80s\" has %d number%s; the job has %d data rank%s", text, count,
                     count == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
  return sum > 0 ? TRM_OK : trm_error(TRM_USAGE, "parallel.shares: \"%.80s\" leaves all rows to nobody", text);
}

char *trm_shares_text(const double *share, int ranks)
{
  char *text = NULL, number[32];
  for (int i = 0; i < ranks; i++)
    trm_append(&text, "%s%s", i ? "," : "", trm_number_text(share[i], number));
  return text;
}

/* The remainder of a shard's quota; those of equal remainders are in order of their shards. */
struct shares_remainder {
  double value;
  int shard;
};

struct shares_cut {
  size_t rows;
  size_t *before;                     /* (shards + 1) rows of the shards before */
  struct shares_remainder *remainder; /* (shards) */
};

static bool shares_are_equal(const double *share, int ranks)
{
  bool equal = true;
  for (int rank = 1; rank < ranks; rank++)
    equal &= share[rank] == share[0];
  return equal;
}

void trm_shares_set(struct trm_shares *shares, const double *share, const int32_t *shard, int ranks)
{
  static const char what[] = "shares of the ranks";
  trm_shares_free(shares);
  shares->shards = ranks;
  if (shares_are_equal(share, ranks))
    return;
  shares->share = trm_alloc((size_t)ranks * sizeof *shares->share, what);
  for (int rank = 0; rank < ranks; rank++)
    shares->share[shard[rank]] = share[rank];
  shares->cut = trm_alloc(sizeof *shares->cut, what);
  shares->cut->before = trm_alloc((size_t)(ranks + 1) * sizeof *shares->cut->before, what); /* of no rows */
  shares->cut->remainder = trm_alloc((size_t)ranks * sizeof *shares->cut->remainder, what);
}

void trm_shares_free(struct trm_shares *shares)
{
  if (!shares->share)
    return;
  trm_free(shares->cut->before);
  trm_free(shares->cut->remainder);
  trm_free(shares->cut);
  trm_free(shares->share);
  shares->share = NULL;
  shares->cut = NULL;
}

static int shares_compare(const void *a, const void *b)
{
  const struct shares_remainder *x = a, *y = b;
  return x->value != y->value ? (x->value < y->value) - (x->value > y->value) : x->shard - y->shard;
}

static double shares_sum(const struct trm_shares *shares)
{
  double sum = 0;
  for (int shard = 0; shard < shares->shards; shard++)
    sum += shares->share[shard];
  return sum;
}

/* Every rank computes the same bits: a product and a quotient, which no compiler contracts. */
static void shares_divide(const struct trm_shares *shares, size_t rows)
{
  struct shares_cut *cut = shares->cut;
  const double sum = shares_sum(shares);
  size_t left = rows;
  for (int shard = 0; shard < shares->shards; shard++) {
    const double quota = (double)rows * shares->share[shard] / sum, whole = floor(quota);
    cut->before[shard + 1] = (size_t)whole;
    cut->remainder[shard] = (struct shares_remainder){shares->share[shard] > 0 ? quota - whole : -1, shard};
    left -= (size_t)whole;
  }
  qsort(cut->remainder, (size_t)shares->shards, sizeof *cut->remainder, shares_compare);
  for (size_t i = 0; i < left; i++)
    cut->before[cut->remainder[i].shard + 1]++;
  for (int shard = 0; shard < shares->shards; shard++)
    cut->before[shard + 1] += cut->before[shard];
  cut->rows = rows;
}

void trm_shares_interval(const struct trm_shares *shares, size_t rows, int shard, size_t *low, size_t *high)
{
  if (!shares->share) {
    trm_interval(rows, (size_t)shares->shards, (size_t)shard, low, high);
    return;
  }
  if (shares->cut->rows != rows)
    shares_divide(shares, rows);
  *low = shares->cut->before[shard];
  *high = shares->cut->before[shard + 1];
}

size_t trm_shares_max_rows(const struct trm_shares *shares, size_t rows, int shard)
{
  if (!shares->share)
    return (rows + (size_t)shares->shards - 1) / (size_t)shares->shards;
  const double share = shares->share[shard], sum = shares_sum(shares);
  const size_t bound = share > 0 ? (size_t)floor((double)rows * share / sum + 1e-6) + 1 : 0;
  return bound < rows ? bound : rows;
}
