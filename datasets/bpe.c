#include "bpe.h"

#include <string.h>

#include "core/memory.h"

/* -- a table of pairs */

/* A hash table from pairs of tokens to numbers. Initialized with {0}. */
struct pairs {
  struct pairs_entry {
    int32_t left, right;
    uint32_t value; /* + 1; 0: free */
  } *entry;         /* (slots) */
  size_t slots, count;
};

static size_t bpe_pair_slot(const struct pairs *pairs, int32_t left, int32_t right)
{
  const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (pairs->slots - 1);
  while (pairs->entry[at].value && (pairs->entry[at].left != left || pairs->entry[at].right != right))
    at = (at + 1) & (pairs->slots - 1);
  return at;
}

/* Returns its value + 1; NULL: none. */
static uint32_t *bpe_pair_find(const struct pairs *pairs, int32_t left, int32_t right)
{
  if (!pairs->slots)
    return NULL;
  struct pairs_entry *entry = &pairs->entry[bpe_pair_slot(pairs, left, right)];
  return entry->value ? &entry->value : NULL;
}

/* Returns its value + 1; 0 if it is new. */
static uint32_t *bpe_pair_add(struct pairs *pairs, int32_t left, int32_t right)
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

/* -- a queue in the order of (first, second), smallest first */

struct entry {
  int64_t first;
  uint64_t second;
  uint32_t number; /* the caller's */
};

/* Initialized with {0}. */
struct queue {
  struct entry *entry; /* (count) a heap */
  size_t count, capacity;
};

static bool bpe_is_before(const struct entry *a, const struct entry *b)
{
  return a->first != b->first ? a->first < b->first : a->second < b->second;
}

static void bpe_queue_push(struct queue *queue, struct entry entry)
{
  queue->entry =
    trm_grow(queue->entry, &queue->capacity, queue->count, queue->count + 1, sizeof entry, "pairs to merge");
  size_t i = queue->count++;
  for (; i && bpe_is_before(&entry, &queue->entry[(i - 1) / 2]); i = (i - 1) / 2)
    queue->entry[i] = queue->entry[(i - 1) / 2];
  queue->entry[i] = entry;
}

static struct entry bpe_queue_pop(struct queue *queue)
{
  struct entry *heap = queue->entry;
  const struct entry best = heap[0], last = heap[--queue->count];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < queue->count; i = child) {
    if (child + 1 < queue->count && bpe_is_before(&heap[child + 1], &heap[child]))
      child++;
    if (!bpe_is_before(&heap[child], &last))
      break;
    heap[i] = heap[child];
  }
  heap[i] = last;
  return best;
}

/* -- merging */

struct bpe {
  struct pairs pairs; /* value: the merge */
  int32_t (*merge)[2], *result;
  struct queue queue; /* pairs that can be merged: merge, then position of the left token */
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
    uint32_t *value = bpe_pair_add(&bpe->pairs, merge[m][0], merge[m][1]);
    if (!*value)
      *value = (uint32_t)m + 1;
  }
  return bpe;
}

void bpe_close(struct bpe *bpe)
{
  if (!bpe)
    return;
  trm_free(bpe->pairs.entry);
  trm_free(bpe->merge);
  trm_free(bpe->result);
  trm_free(bpe->queue.entry);
  trm_free(bpe->next);
  trm_free(bpe->prev);
  trm_free(bpe);
}

#define MERGED (-1) /* merged into the previous token */

static void bpe_push_pair(struct bpe *bpe, const int32_t *token, size_t at, size_t after)
{
  const uint32_t *found = bpe_pair_find(&bpe->pairs, token[at], token[after]);
  if (found)
    bpe_queue_push(&bpe->queue, (struct entry){.first = *found - 1, .second = at});
}

size_t bpe_apply(struct bpe *bpe, int32_t *token, size_t count)
{
  bpe->next = trm_grow(bpe->next, &bpe->next_capacity, 0, count, sizeof *bpe->next, "a word");
  bpe->prev = trm_grow(bpe->prev, &bpe->prev_capacity, 0, count, sizeof *bpe->prev, "a word");
  bpe->queue.count = 0;
  for (size_t i = 0; i < count; i++) {
    bpe->next[i] = i + 1;
    bpe->prev[i] = i - 1;
    if (i + 1 < count)
      bpe_push_pair(bpe, token, i, i + 1);
  }
  while (bpe->queue.count) {
    const struct entry candidate = bpe_queue_pop(&bpe->queue);
    const size_t at = candidate.second, after = bpe->next[at];
    const int32_t *pair = bpe->merge[candidate.first];
    if (after >= count || token[at] != pair[0] || token[after] != pair[1])
      continue; /* outdated: one of the two has been merged */
    token[at] = bpe->result[candidate.first];
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

/* -- learning of merges. Pair counts are exact: when a pair is merged in a word, all pairs of the word are subtracted
 * and recounted. */

struct pair {
  int32_t left, right;
  int64_t count;
  uint32_t *word; /* (words) that contain it, or did */
  size_t words, capacity;
};

struct trainer {
  struct pair *pair;
  size_t pairs, pair_capacity;
  struct pairs table; /* value: index into pair */
  struct queue queue; /* of pairs: -count at insertion, then left and right token */
  /* words: tokens start[i] to start[i] + length[i] */
  int32_t *token;
  size_t *start;
  uint32_t *length;
  const int64_t *count;
  uint32_t *bytes; /* of each token */
};

static void bpe_train_push(struct trainer *t, uint32_t number)
{
  const struct pair *pair = &t->pair[number];
  bpe_queue_push(&t->queue, (struct entry){
    .first = -pair->count, .second = (uint64_t)(uint32_t)pair->left << 32 | (uint32_t)pair->right, .number = number});
}

static uint32_t bpe_train_pair_index(struct trainer *t, int32_t left, int32_t right)
{
  uint32_t *value = bpe_pair_add(&t->table, left, right);
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
  while (t->queue.count) {
    const struct entry best = bpe_queue_pop(&t->queue);
    const struct pair *pair = &t->pair[best.number];
    if (pair->count < 2)
      continue;
    if (pair->count != -best.first) { /* outdated count */
      bpe_train_push(t, best.number);
      continue;
    }
    if (t->bytes[pair->left] + t->bytes[pair->right] > BPE_MAX_BYTES)
      continue;
    *chosen = best.number;
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
  trm_free(t.table.entry);
  trm_free(t.queue.entry);
  trm_free(t.token);
  trm_free(t.start);
  trm_free(t.length);
  trm_free(t.bytes);
}
