#include "bpe.h"

#include <string.h>

#include "core/memory.h"

/* -- a table of pairs */

static size_t bpe_pair_slot(const struct pairs *pairs, int32_t left, int32_t right)
{
  const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (pairs->slots - 1);
  while (pairs->entry[at].value && (pairs->entry[at].left != left || pairs->entry[at].right != right))
    at = (at + 1) & (pairs->slots - 1);
  return at;
}

uint32_t *pairs_find(const struct pairs *pairs, int32_t left, int32_t right)
{
  if (!pairs->slots)
    return NULL;
  struct pairs_entry *entry = &pairs->entry[bpe_pair_slot(pairs, left, right)];
  return entry->value ? &entry->value : NULL;
}

uint32_t *pairs_add(struct pairs *pairs, int32_t left, int32_t right)
{
  if (2 * (pairs->count + 1) > pairs->slots) { /* at most half of the slots are used */
    struct pairs larger = {.slots = pairs->slots ? 2 * pairs->slots : 1024, .count = pairs->count};
    larger.entry = trm_alloc(larger.slots * sizeof *larger.entry, "a table of pairs");
    for (size_t i = 0; i < pairs->slots; i++)
      if (pairs->entry[i].value)
        larger.entry[bpe_pair_slot(&larger, pairs->entry[i].left, pairs->entry[i].right)] = pairs->entry[i];
    trm_free(pairs->entry);
    *pairs = larger;
  }
  struct pairs_entry *entry = &pairs->entry[bpe_pair_slot(pairs, left, right)];
  if (!entry->value) {
    entry->left = left;
    entry->right = right;
    pairs->count++;
  }
  return &entry->value;
}

void pairs_free(struct pairs *pairs)
{
  trm_free(pairs->entry);
  *pairs = (struct pairs){0};
}

/* -- merging */

/* A pair that can be merged; ordered by merge, then by position. */
struct candidate {
  uint32_t merge;
  size_t at; /* of the left token */
};

struct bpe {
  struct pairs pairs; /* value: the merge */
  int32_t (*merge)[2], *result;
  struct candidate *heap;
  size_t candidates, heap_capacity;
  size_t *next, *prev; /* next and previous token */
  size_t next_capacity, prev_capacity;
};

struct bpe *bpe_open(const int32_t (*merge)[2], const int32_t *result, size_t merges)
{
  struct bpe *bpe = trm_alloc(sizeof *bpe, "merges");
  bpe->merge = trm_alloc(merges * sizeof *bpe->merge, "merges");
  bpe->result = trm_alloc(merges * sizeof *bpe->result, "merges");
  for (size_t m = 0; m < merges; m++) {
    memcpy(bpe->merge[m], merge[m], sizeof merge[m]);
    bpe->result[m] = result[m];
    uint32_t *value = pairs_add(&bpe->pairs, merge[m][0], merge[m][1]);
    if (!*value)
      *value = (uint32_t)m + 1;
  }
  return bpe;
}

void bpe_close(struct bpe *bpe)
{
  if (!bpe)
    return;
  pairs_free(&bpe->pairs);
  trm_free(bpe->merge);
  trm_free(bpe->result);
  trm_free(bpe->heap);
  trm_free(bpe->next);
  trm_free(bpe->prev);
  trm_free(bpe);
}

static bool bpe_is_before(struct candidate a, struct candidate b)
{
  return a.merge != b.merge ? a.merge < b.merge : a.at < b.at;
}

static void bpe_push(struct bpe *bpe, struct candidate candidate)
{
  bpe->heap =
    trm_grow(bpe->heap, &bpe->heap_capacity, bpe->candidates, bpe->candidates + 1, sizeof *bpe->heap, "merges");
  size_t i = bpe->candidates++;
  for (; i && bpe_is_before(candidate, bpe->heap[(i - 1) / 2]); i = (i - 1) / 2)
    bpe->heap[i] = bpe->heap[(i - 1) / 2];
  bpe->heap[i] = candidate;
}

static struct candidate bpe_pop(struct bpe *bpe)
{
  const struct candidate best = bpe->heap[0], last = bpe->heap[--bpe->candidates];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < bpe->candidates; i = child) {
    if (child + 1 < bpe->candidates && bpe_is_before(bpe->heap[child + 1], bpe->heap[child]))
      child++;
    if (!bpe_is_before(bpe->heap[child], last))
      break;
    bpe->heap[i] = bpe->heap[child];
  }
  bpe->heap[i] = last;
  return best;
}

#define MERGED (-1) /* merged into the previous token */

static void bpe_push_pair(struct bpe *bpe, const int32_t *token, size_t at, size_t after)
{
  const uint32_t *found = pairs_find(&bpe->pairs, token[at], token[after]);
  if (found)
    bpe_push(bpe, (struct candidate){.merge = *found - 1, .at = at});
}

size_t bpe_apply(struct bpe *bpe, int32_t *token, size_t count)
{
  bpe->next = trm_grow(bpe->next, &bpe->next_capacity, 0, count, sizeof *bpe->next, "a word");
  bpe->prev = trm_grow(bpe->prev, &bpe->prev_capacity, 0, count, sizeof *bpe->prev, "a word");
  bpe->candidates = 0;
  for (size_t i = 0; i < count; i++) {
    bpe->next[i] = i + 1;
    bpe->prev[i] = i - 1;
    if (i + 1 < count)
      bpe_push_pair(bpe, token, i, i + 1);
  }
  while (bpe->candidates) {
    const struct candidate candidate = bpe_pop(bpe);
    const size_t at = candidate.at, after = bpe->next[at];
    const int32_t *pair = bpe->merge[candidate.merge];
    if (after >= count || token[at] != pair[0] || token[after] != pair[1])
      continue; /* outdated: one of the two has been merged */
    token[at] = bpe->result[candidate.merge];
    token[after] = MERGED;
    const size_t after_next = bpe->next[at] = bpe->next[after];
    if (after_next < count) {
      bpe->prev[after_next] = at;
      bpe_push_pair(bpe, token, at, after_next);
    }
    if (at > 0)
      bpe_push_pair(bpe, token, bpe->prev[at], at);
  }
  size_t left = 0;
  for (size_t i = 0; i < count; i = bpe->next[i])
    token[left++] = token[i];
  return left;
}
