#include "train/shares.h"

#include <math.h>
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

void trm_shares_set(struct trm_shares *shares, const double *share, const int32_t *shard, int ranks)
{
  trm_shares_free(shares);
  shares->shards = ranks;
  shares->before = trm_alloc((size_t)(ranks + 1) * sizeof *shares->before, "shares of the ranks");
  for (int rank = 0; rank < ranks; rank++)
    shares->before[shard[rank] + 1] = share[rank];
  shares->before[0] = 0;
  for (int i = 0; i < ranks; i++)
    shares->before[i + 1] += shares->before[i];
}

void trm_shares_free(struct trm_shares *shares)
{
  trm_free(shares->before);
  shares->before = NULL;
}

/* The rows before a shard. Every rank computes the same bits: a product and a quotient, which no compiler contracts. */
static size_t shares_before(const struct trm_shares *shares, size_t rows, int shard)
{
  const double part = (double)rows * shares->before[shard] / shares->before[shares->shards];
  return (size_t)floor(part + 0.5);
}

void trm_shares_interval(const struct trm_shares *shares, size_t rows, int shard, size_t *low, size_t *high)
{
  if (!shares->before) {
    trm_interval(rows, (size_t)shares->shards, (size_t)shard, low, high);
    return;
  }
  *low = shares_before(shares, rows, shard);
  *high = shares_before(shares, rows, shard + 1);
}

size_t trm_shares_max_rows(const struct trm_shares *shares, size_t rows, int shard)
{
  if (!shares->before)
    return (rows + (size_t)shares->shards - 1) / (size_t)shares->shards;
  const double share = shares->before[shard + 1] - shares->before[shard], all = shares->before[shares->shards];
  const size_t bound = share > 0 ? (size_t)floor((double)rows * share / all + 1e-6) + 1 : 0;
  return bound < rows ? bound : rows;
}
