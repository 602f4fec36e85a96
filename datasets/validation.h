/* Rows cut from the training split for validation (private to datasets/).
 *
 * data.validation = f, 0 < f < 1: the split is seen as windows of one row each, of tokens of data.context targets each
 * without overlap. Of W windows round(f W) become the validation rows, at least 1 and at most W - 1: the first places
 * of trm_random_permute(run.seed, VALIDATION, 0, W). The training rows that remain share no row, and no target token,
 * with them. Both sets are functions of (run.seed, f, rows of the split after data.limit, data.context, data.stride):
 * never of ranks, threads, layout or memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Some rows of a split, in ascending order. */
struct row_subset {
  uint64_t count;   /* rows of the subset */
  uint64_t groups;  /* of 512 rows of the split */
  uint64_t *bits;   /* (groups, 8) bit r: row r is in the subset; NULL: every row is */
  uint64_t *before; /* (groups + 1) rows of the subset before each group */
};

/* Returns the row of the split that is row n < count of the subset, in about 20 ns if the subset is spread evenly. */
uint64_t row_subset_at(const struct row_subset *subset, uint64_t n);
void row_subset_free(struct row_subset *subset);

/* Geometry of the split: its rows, tokens of a row, tokens from a row to the next (1 and 1 without tokens). */
struct validation_cut {
  uint64_t seed, rows;
  double fraction;
  size_t context, stride;
};

/* Returns the number of windows; W above. */
uint64_t validation_windows(const struct validation_cut *cut);
/* validation: the subset of the windows that become validation rows. Otherwise: the subset of the rows that remain for
 * training; empty if overlapping rows leave none. At least two windows. */
void validation_subset(const struct validation_cut *cut, bool validation, struct row_subset *subset);
