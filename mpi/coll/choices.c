#include "mpi/coll/choices.h"

#include <math.h>

#include "core/memory.h"

/* Typical costs, inside a node and between nodes on 10 Gbit/s: the order of algorithms depends on their ratios
 * alone. */
static const struct coll_costs typical[] = {{2e-6, 1 / 8e9, 1 / 1e10}, {20e-6, 1 / 1.2e9, 1 / 1e10}};

static const struct coll_ops *choices_cheapest(enum coll_kind kind, int ranks, enum coll_domain domain,
                                               size_t bytes)
{
  const struct coll_ops *best = domain == COLL_NODES_OF_SEVERAL ? coll_find(kind, COLL_TWO_LEVEL) : NULL;
  if (best)
    return best;
  double best_seconds = INFINITY;
  for (const struct coll_ops *ops = coll_table; ops->name; ops++) {
    const struct coll_costs *costs = &typical[domain != COLL_NODE];
    const double seconds = ops->kind == kind ? ops->seconds(costs, ranks, (double)bytes) : INFINITY;
    if (seconds < best_seconds) {
      best_seconds = seconds;
      best = ops;
    }
  }
  return best;
}

/* From so many bytes on all-reduces over messages take less time than the library's in a node, too, measured with 2 and
 * 4 ranks of MPICH (tests/bench/allreduce.sh). */
#define MESSAGES_BYTES ((size_t)1 << 24)

/* Inside a node the library copies through its memory. */
static bool choices_is_library(enum coll_kind kind, bool across_nodes, size_t bytes)
{
  return !across_nodes && kind != COLL_TREE_SUM && (kind != COLL_ALLREDUCE || bytes < MESSAGES_BYTES);
}

/* How much worse a choice fits than one of just these ranks, as a ratio: never below 1. */
static double choices_distance(const struct coll_choice *choice, int ranks)
{
  return choice->ranks > ranks ? (double)choice->ranks / ranks : (double)ranks / choice->ranks;
}

/* True if `choice` fits better than `other`, which may be NULL. */
static bool choices_is_better(const struct coll_choice *choice, const struct coll_choice *other, int ranks,
                              size_t bytes)
{
  if (!other)
    return true;
  const double distance = choices_distance(choice, ranks), other_distance = choices_distance(other, ranks);
  if (distance != other_distance)
    return distance < other_distance;
  if (choice->ranks != other->ranks)
    return choice->ranks < other->ranks;
  const bool below = choice->bytes <= bytes, other_below = other->bytes <= bytes;
  return below != other_below ? below : below ? choice->bytes > other->bytes : choice->bytes < other->bytes;
}

const struct coll_ops *coll_choose(const struct coll_choices *choices, enum coll_kind kind, int ranks,
                                   enum coll_domain domain, size_t bytes)
{
  const bool across_nodes = domain != COLL_NODE;
  const struct coll_choice *best = NULL;
  for (size_t i = 0; choices && i < choices->count; i++) {
    const struct coll_choice *choice = &choices->choice[i];
    if (choice->kind == kind && choice->across_nodes == across_nodes && choices_is_better(choice, best, ranks, bytes))
      best = choice;
  }
  if (best)
    return best->ops;
  return choices_is_library(kind, across_nodes, bytes) ? NULL : choices_cheapest(kind, ranks, domain, bytes);
}

void coll_choices_add(struct coll_choices *choices, const struct coll_choice *choice)
{
  choices->choice = trm_grow(choices->choice, &choices->capacity, choices->count, choices->count + 1,
                             sizeof *choices->choice, "choices of collectives");
  choices->choice[choices->count++] = *choice;
}

void coll_choices_free(struct coll_choices *choices)
{
  trm_free(choices->choice);
  *choices = (struct coll_choices){0};
}
