#include "wordset.h"

#include <string.h>

#include "core/memory.h"

/* FNV-1a (Fowler, Noll, Vo), its upper half folded in. */
static uint32_t wordset_hash(const char *text, size_t length)
{
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < length; i++)
    hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
  return (uint32_t)(hash ^ hash >> 32);
}

/* Returns the slot of a word, or the free slot for it. */
static size_t wordset_slot(const struct wordset *set, const char *text, size_t length, uint32_t hash)
{
  size_t at = hash & (set->slots - 1);
  for (; set->slot[at]; at = (at + 1) & (set->slots - 1)) {
    const struct wordset_word *word = &set->word[set->slot[at] - 1];
    if (word->hash == hash && word->length == length && !memcmp(set->text + word->at, text, length))
      break;
  }
  return at;
}

size_t wordset_find(const struct wordset *set, const char *text, size_t length)
{
  if (!set->slots)
    return WORDSET_NONE;
  const uint32_t found = set->slot[wordset_slot(set, text, length, wordset_hash(text, length))];
  return found ? found - 1 : WORDSET_NONE;
}

/* Keeps at least half of the slots free. */
static void wordset_grow(struct wordset *set)
{
  trm_free(set->slot);
  set->slots = set->slots ? 2 * set->slots : 1024;
  set->slot = trm_alloc(set->slots * sizeof *set->slot, "a set of words");
  for (size_t i = 0; i < set->count; i++) {
    size_t at = set->word[i].hash & (set->slots - 1);
    while (set->slot[at])
      at = (at + 1) & (set->slots - 1);
    set->slot[at] = (uint32_t)i + 1;
  }
}

size_t wordset_add(struct wordset *set, const char *text, size_t length, bool *added)
{
  if (2 * (set->count + 1) > set->slots)
    wordset_grow(set);
  const uint32_t hash = wordset_hash(text, length);
  const size_t at = wordset_slot(set, text, length, hash);
  *added = !set->slot[at];
  if (!*added)
    return set->slot[at] - 1;
  set->text = trm_grow(set->text, &set->text_capacity, set->text_bytes, set->text_bytes + length, 1, "words");
  memcpy(set->text + set->text_bytes, text, length);
  set->word = trm_grow(set->word, &set->capacity, set->count, set->count + 1, sizeof *set->word, "words");
  set->word[set->count] = (struct wordset_word){.at = set->text_bytes, .length = (uint32_t)length, .hash = hash};
  set->text_bytes += length;
  set->slot[at] = (uint32_t)++set->count;
  return set->count - 1;
}

void wordset_free(struct wordset *set)
{
  trm_free(set->text);
  trm_free(set->word);
  trm_free(set->slot);
  *set = (struct wordset){0};
}
