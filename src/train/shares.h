/* Shares of the data ranks in each batch (parallel.shares; private to src/train): a batch is cut into as many intervals
 * of whole rows as there are data ranks, in proportion to their shares, by largest remainders: each gets its quota
 * rounded down, and those with the largest remainders a row more. Every row is computed once, and a gradient is scaled
 * by the rows of the whole batch, so the sum over the ranks is the gradient of the batch with any shares. All ranks
 * that hold parts of one copy of the model have the same share. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct shares_cut; /* a batch that is cut */

struct trm_shares {
  int shards;             /* ranks of the data axis */
  double *share;          /* (shards) owned; NULL: shares are equal */
  struct shares_cut *cut; /* the latest number of rows that trm_shares_interval has divided, owned; NULL: as share */
};

/* Reads numbers of at least 0, not all of them 0, such as "3,1,1": share (ranks). TRM_USAGE: the text is not that. */
int trm_shares_parse(const char *text, int ranks, double *share);
/* The text that trm_shares_parse reads. The caller frees it. */
char *trm_shares_text(const double *share, int ranks);

/* shard (ranks): the shard of each data rank, a permutation. Replaces shares that were set. */
void trm_shares_set(struct trm_shares *shares, const double *share, const int32_t *shard, int ranks);
void trm_shares_free(struct trm_shares *shares);

/* The rows [*low, *high) of so many that a shard has: of equal shares those of trm_interval. A share of 0 has none.
 * For one thread at a time. */
void trm_shares_interval(const struct trm_shares *shares, size_t rows, int shard, size_t *low, size_t *high);
/* The most rows that the shard has of any number up to `rows`. */
size_t trm_shares_max_rows(const struct trm_shares *shares, size_t rows, int shard);
