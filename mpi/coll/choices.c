#include "mpi/coll/choices.h"

#include <math.h>

#include "core/memory.h"

/* Typical costs, inside a node and between nodes on 10 Gbit/s: the order of algorithms depends on their ratios
 * alone. */
static const struct coll_costs typical[] = {{2e-6, 1 / 8e9, 1 / 1e10}, {20e-6, 1 / 1.2e9, 1 / 1e10}};

static const struct coll_ops *choices_cheapest(enum coll_kind kind, int ranks, bool across_nodes, size_t bytes)
{
  const struct coll_ops *best = NULL;
  double best_seconds = INFINITY;
  for (const struct coll_ops *ops = coll_table; ops->name; ops++) {
    const double seconds = ops->kind == kind ? ops->seconds(&typical[across_nodes], ranks, (double)bytes) : INFINITY;
    if (seconds < best_seconds) {
      best_seconds = seconds;
      best = ops;
    }
  }
  return best;
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
                                   bool across_nodes, size_t bytes)
{
  const struct coll_choice *best = NULL;
  for (size_t i = 0; choices && i < choices->count; i++) {
    const struct coll_choice *choice = &choices->choice[i];
    if (choice->kind == kind && choice->across_nodes == across_nodes && choices_is_better(choice, best, ranks, bytes))
      best = choice;
  }
  if (best)
    return best->ops;
  const bool is_library = !across_nodes && kind != COLL_TREE_SUM; /* it copies through the node's memory */
  return is_library ? NULL : choices_cheapest(kind, ranks, across_nodes, bytes);
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
