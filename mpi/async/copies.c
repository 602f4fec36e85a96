#include "mpi/async/copies.h"

#include <stdatomic.h>
#include <string.h>

#include "core/clones.h"
#include "core/memory.h"

#define PIECE ((size_t)1024) /* elements: a fraction of a microsecond */

struct gate {
  _Alignas(64) _Atomic int closed; /* 1: a rank is at the piece */
};

static size_t pieces_of(const struct copies *c)
{
  return (c->elements + PIECE - 1) / PIECE;
}

int copies_create(struct copies *c, struct trm_comm *node, float *array, size_t elements)
{
  *c = (struct copies){.node = node, .array = array, .elements = elements};
  c->base = trm_alloc(elements * sizeof *c->base, "a copy of the weights");
  return node->ops->share(node, node->rank == 0 ? pieces_of(c) * sizeof(struct gate) : 0, "gates", &c->gates);
}

void copies_free(struct copies *c)
{
  if (c->gates.base)
    c->node->ops->unshare(c->node, &c->gates);
  trm_free(c->base);
}

void copies_take(struct copies *c, float *copy)
{
  memcpy(copy, c->array, c->elements * sizeof *copy);
  memcpy(c->base, copy, c->elements * sizeof *copy);
}

/* Lines are written even where nothing has changed: one that two cores have read costs whoever next writes to it ten
 * times what one costs that only the other core has (28 and 2.5 ns here). */
CPU_CLONES static void copies_merge_piece(float *restrict array, float *restrict copy, float *restrict base, float part,
                                          size_t n)
{
  for (size_t i = 0; i < n; i++) {
    const float moved = array[i] + part * (copy[i] - base[i]);
    array[i] = copy[i] = base[i] = array[i] == base[i] ? copy[i] : moved;
  }
}

void copies_merge(struct copies *c, float *copy)
{
  struct gate *gate = c->gates.base[0];
  const size_t pieces = pieces_of(c), rank = (size_t)c->node->rank, size = (size_t)c->node->size;
  for (size_t i = 0; i < pieces; i++) {
    const size_t piece = (pieces * rank / size + i) % pieces, low = piece * PIECE;
    const size_t n = c->elements - low < PIECE ? c->elements - low : PIECE;
    while (atomic_exchange_explicit(&gate[piece].closed, 1, memory_order_acquire))
      c->node->ops->progress(c->node);
    copies_merge_piece(c->array + low, copy + low, c->base + low, 1 / (float)size, n);
    atomic_store_explicit(&gate[piece].closed, 0, memory_order_release);
  }
}
