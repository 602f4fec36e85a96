/* Learning of merges. Pair counts are exact: when a pair is merged in a word, all pairs of the word are subtracted and
 * recounted. */
#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "core/memory.h"

struct pair {
  int32_t left, right;
  int64_t count;
  uint32_t *word; /* (words) that contain it, or did */
  size_t words, capacity;
};

/* A pair in the queue, with its count at insertion. */
struct queued_pair {
  int64_t count;
  uint32_t pair;
};

struct trainer {
  struct pair *pair;
  size_t pairs, pair_capacity;
  struct pairs table; /* value: index into pair */
  struct queued_pair *heap;
  size_t heap_count, heap_capacity;
  /* words: tokens start[i] to start[i] + length[i] */
  int32_t *token;
  size_t *start;
  uint32_t *length;
  const int64_t *count;
  uint32_t *bytes; /* of each token */
};

static bool bpe_train_is_before(const struct trainer *t, struct queued_pair a, struct queued_pair b)
{
  if (a.count != b.count)
    return a.count > b.count;
  const struct pair *p = &t->pair[a.pair], *q = &t->pair[b.pair];
  return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static void bpe_train_push(struct trainer *t, uint32_t pair)
{
  const struct queued_pair new = {.count = t->pair[pair].count, .pair = pair};
  t->heap = trm_grow(t->heap, &t->heap_capacity, t->heap_count, t->heap_count + 1, sizeof *t->heap, "pairs to join");
  size_t i = t->heap_count++;
  for (; i && bpe_train_is_before(t, new, t->heap[(i - 1) / 2]); i = (i - 1) / 2)
    t->heap[i] = t->heap[(i - 1) / 2];
  t->heap[i] = new;
}

static struct queued_pair bpe_train_pop(struct trainer *t)
{
  const struct queued_pair best = t->heap[0], last = t->heap[--t->heap_count];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < t->heap_count; i = child) {
    if (child + 1 < t->heap_count && bpe_train_is_before(t, t->heap[child + 1], t->heap[child]))
      child++;
    if (!bpe_train_is_before(t, t->heap[child], last))
      break;
    t->heap[i] = t->heap[child];
  }
  t->heap[i] = last;
  return best;
}

static uint32_t bpe_train_pair_index(struct trainer *t, int32_t left, int32_t right)
{
  uint32_t *value = pairs_add(&t->table, left, right);
  if (!*value) {
    t->pair = trm_grow(t->pair, &t->pair_capacity, t->pairs, t->pairs + 1, sizeof *t->pair, "pairs");
    t->pair[t->pairs] = (struct pair){.left = left, .right = right};
    *value = (uint32_t)++t->pairs;
  }
  return *value - 1;
}

/* Adds (sign 1) or subtracts (sign -1) the pairs of a word. Pairs with the token `new` (-1: all pairs) get the word
 * added to their list of words. */
static void bpe_train_word_count(struct trainer *t, uint32_t word, int sign, int32_t new)
{
  const int32_t *token = t->token + t->start[word];
  for (uint32_t i = 0; i + 1 < t->length[word]; i++) {
    const uint32_t number = bpe_train_pair_index(t, token[i], token[i + 1]); /* may reallocate the pairs */
    struct pair *pair = &t->pair[number];
    pair->count += sign * t->count[word];
    const bool index_word = sign > 0 && (new < 0 || token[i] == new || token[i + 1] == new);
    if (index_word && (!pair->words || pair->word[pair->words - 1] != word)) {
      pair->word = trm_grow(pair->word, &pair->capacity, pair->words, pair->words + 1, sizeof *pair->word, "words");
      pair->word[pair->words++] = word;
    }
  }
}

/* Merges a pair in a word from left to right. */
static void bpe_train_word_merge(struct trainer *t, uint32_t word, int32_t left, int32_t right, int32_t merged)
{
  int32_t *token = t->token + t->start[word];
  uint32_t to = 0;
  const uint32_t length = t->length[word];
  for (uint32_t i = 0; i < length; i++, to++) {
    const bool here = i + 1 < length && token[i] == left && token[i + 1] == right;
    token[to] = here ? merged : token[i];
    i += here;
  }
  t->length[word] = to;
}

static bool bpe_train_word_has(const struct trainer *t, uint32_t word, int32_t left, int32_t right)
{
  const int32_t *token = t->token + t->start[word];
  for (uint32_t i = 0; i + 1 < t->length[word]; i++)
    if (token[i] == left && token[i + 1] == right)
      return true;
  return false;
}

/* Finds the next pair to merge; false: none occurs twice. */
static bool bpe_train_best_pair(struct trainer *t, uint32_t *chosen)
{
  while (t->heap_count) {
    const struct queued_pair best = bpe_train_pop(t);
    struct pair *pair = &t->pair[best.pair];
    if (pair->count < 2)
      continue;
    if (pair->count != best.count) { /* outdated count */
      bpe_train_push(t, best.pair);
      continue;
    }
    if (t->bytes[pair->left] + t->bytes[pair->right] > BPE_MAX_BYTES)
      continue;
    *chosen = best.pair;
    return true;
  }
  return false;
}

static void bpe_train_merge_pair(struct trainer *t, uint32_t number, int32_t merged)
{
  const struct pair pair = t->pair[number];
  t->pair[number].word = NULL; /* no word contains it now */
  t->pair[number].words = t->pair[number].capacity = 0;
  t->bytes[merged] = t->bytes[pair.left] + t->bytes[pair.right];
  const size_t before = t->pairs;
  for (size_t i = 0; i < pair.words; i++) {
    const uint32_t word = pair.word[i];
    if (!bpe_train_word_has(t, word, pair.left, pair.right))
      continue;
    bpe_train_word_count(t, word, -1, merged);
    bpe_train_word_merge(t, word, pair.left, pair.right, merged);
    bpe_train_word_count(t, word, 1, merged);
  }
  trm_free(pair.word);
  for (size_t i = before; i < t->pairs; i++) /* new pairs contain the new token */
    bpe_train_push(t, (uint32_t)i);
}

static void bpe_train_words_init(struct trainer *t, const struct wordset *words, const int32_t token_of[256])
{
  t->token = trm_alloc(words->text_bytes * sizeof *t->token, "words");
  t->start = trm_alloc(words->count * sizeof *t->start, "words");
  t->length = trm_alloc(words->count * sizeof *t->length, "words");
  for (size_t i = 0; i < words->text_bytes; i++)
    t->token[i] = token_of[(unsigned char)words->text[i]];
  for (size_t i = 0; i < words->count; i++) {
    t->start[i] = words->word[i].at;
    t->length[i] = words->word[i].length;
    bpe_train_word_count(t, (uint32_t)i, 1, -1);
  }
  for (size_t i = 0; i < t->pairs; i++)
    bpe_train_push(t, (uint32_t)i);
}

void bpe_train(const struct wordset *words, const int64_t *count, const int32_t token_of[256], size_t *merges,
               int32_t (**merge)[2])
{
  struct trainer t = {.count = count};
  const size_t max_merges = *merges;
  *merge = trm_alloc(max_merges * sizeof **merge, "merges");
  t.bytes = trm_alloc((256 + max_merges) * sizeof *t.bytes, "merges");
  for (size_t i = 0; i < 256; i++)
    t.bytes[i] = 1;
  bpe_train_words_init(&t, words, token_of);
  *merges = 0;
  for (uint32_t chosen; *merges < max_merges && bpe_train_best_pair(&t, &chosen); ++*merges) {
    (*merge)[*merges][0] = t.pair[chosen].left;
    (*merge)[*merges][1] = t.pair[chosen].right;
    bpe_train_merge_pair(&t, chosen, (int32_t)(256 + *merges));
  }
  for (size_t i = 0; i < t.pairs; i++)
    trm_free(t.pair[i].word);
  trm_free(t.pair);
  pairs_free(&t.table);
  trm_free(t.heap);
  trm_free(t.token);
  trm_free(t.start);
  trm_free(t.length);
  trm_free(t.bytes);
}
