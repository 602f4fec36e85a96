/* Rows of the training split held out for validation. */
#include "validation.h"

#include <math.h>

#include "core/memory.h"
#include "core/random.h"

enum { WORD_ROWS = 64, GROUP_WORDS = 8, GROUP_ROWS = WORD_ROWS * GROUP_WORDS };

uint64_t row_subset_at(const struct row_subset *subset, uint64_t n)
{
  uint64_t group = (uint64_t)((double)n / (double)subset->count * (double)subset->groups);
  group = group < subset->groups ? group : subset->groups - 1;
  while (subset->before[group] > n)
    group--;
  while (subset->before[group + 1] <= n)
    group++;
  uint64_t left = n - subset->before[group];
  const uint64_t *word = subset->bits + group * GROUP_WORDS;
  uint64_t row = group * GROUP_ROWS, in_word;
  for (; left >= (in_word = (uint64_t)__builtin_popcountll(*word)); word++, row += WORD_ROWS)
    left -= in_word;
  uint64_t bits = *word;
  for (; left > 0; left--)
    bits &= bits - 1;
  return row + (uint64_t)__builtin_ctzll(bits);
}

void row_subset_free(struct row_subset *subset)
{
  trm_free(subset->bits);
  trm_free(subset->before);
  *subset = (struct row_subset){0};
}

/* Adds rows [low, high) to the subset, or removes them. */
static void validation_set_row(struct row_subset *subset, uint64_t low, uint64_t high, bool in)
{
  for (uint64_t row = low; row < high; row++) {
    const uint64_t bit = UINT64_C(1) << row % WORD_ROWS;
    subset->bits[row / WORD_ROWS] = in ? subset->bits[row / WORD_ROWS] | bit : subset->bits[row / WORD_ROWS] & ~bit;
  }
}

static void validation_count_rows(struct row_subset *subset)
{
  for (uint64_t word = 0; word < subset->groups * GROUP_WORDS; word++) {
    if (word % GROUP_WORDS == 0)
      subset->before[word / GROUP_WORDS] = subset->count;
    subset->count += (uint64_t)__builtin_popcountll(subset->bits[word]);
  }
  subset->before[subset->groups] = subset->count;
}

uint64_t validation_windows(const struct validation_cut *cut)
{
  return ((cut->rows - 1) * cut->stride + cut->context) / cut->context;
}

/* Removes training rows that have a target in the window. */
static void validation_exclude(const struct validation_cut *cut, uint64_t window, struct row_subset *subset)
{
  const uint64_t begin = window * cut->context, end = begin + cut->context;
  const uint64_t low = begin < cut->context ? 0 : (begin - cut->context) / cut->stride + 1;
  const uint64_t high = (end + cut->stride - 1) / cut->stride;
  validation_set_row(subset, low, high < cut->rows ? high : cut->rows, false);
}

void validation_subset(const struct validation_cut *cut, bool validation, struct row_subset *subset)
{
  const uint64_t windows = validation_windows(cut), rows = validation ? windows : cut->rows;
  const double wanted = round(cut->fraction * (double)windows);
  const uint64_t cuts = wanted < 1 ? 1 : wanted > (double)(windows - 1) ? windows - 1 : (uint64_t)wanted;
  subset->count = 0;
  subset->groups = (rows + GROUP_ROWS - 1) / GROUP_ROWS;
  subset->bits = trm_alloc(subset->groups * GROUP_WORDS * sizeof *subset->bits, "the validation rows");
  subset->before = trm_alloc((subset->groups + 1) * sizeof *subset->before, "the validation rows");
  if (!validation)
    validation_set_row(subset, 0, rows, true);
  uint64_t window[256];
  const uint64_t at_once = sizeof window / sizeof *window;
  for (uint64_t first = 0; first < cuts; first += at_once) {
    const size_t count = (size_t)(cuts - first < at_once ? cuts - first : at_once);
    trm_random_permute_many(cut->seed, TRM_RANDOM_VALIDATION, 0, windows, first, count, window);
    for (size_t i = 0; i < count; i++)
      if (validation)
        validation_set_row(subset, window[i], window[i] + 1, true);
      else
        validation_exclude(cut, window[i], subset);
  }
  validation_count_rows(subset);
}
