/* The state of sharded arrays, as intervals of the whole: for checkpoints. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/zero_private.h"

static struct interval_of overlap(struct interval_of a, struct interval_of b)
{
  const size_t low = a.low > b.low ? a.low : b.low, high = a.high < b.high ? a.high : b.high;
  return (struct interval_of){low, low < high ? high : low};
}

/* Where this rank has element `low` of a state, which is in its part of the piece. */
static float *own_at(const struct trm_strategy *strategy, int state, int u, const struct piece *piece, size_t low)
{
  const struct zero *z = strategy->own;
  float *shard = state < 0 ? z->g + piece->own : zero_own(z, state, u, piece);
  return shard + (low - zero_part(piece, z->group->rank).low);
}

/* The statistics' part of a state; NULL: they have none. */
static float *rest_of(const struct trm_strategy *strategy, int state)
{
  const struct zero *z = strategy->own;
  return state == 0 ? z->w_rest : state == strategy->optimizer->states ? z->average_rest : NULL;
}

/* What rank `from` has of the piece goes to rank 0. */
static void part_bring(struct trm_strategy *strategy, int state, int u, const struct piece *piece, int from,
                       struct interval_of wanted, float *to)
{
  struct trm_comm *comm = ((struct zero *)strategy->own)->group;
  struct trm_device *device = strategy->device;
  struct trm_request *request;
  const size_t n = wanted.high - wanted.low;
  if (from == 0 && comm->rank == 0) {
    device->ops->download(device, to, own_at(strategy, state, u, piece, wanted.low), n * sizeof *to);
  } else if (comm->rank == 0) {
    comm->ops->receive_begin(comm, to, n, TRM_FLOAT, from, 0, &request);
    comm->ops->wait(&request);
  } else if (comm->rank == from) {
    float *host = trm_alloc(n * sizeof *host, "a checkpoint's arrays");
    device->ops->download(device, host, own_at(strategy, state, u, piece, wanted.low), n * sizeof *host);
    comm->ops->send_begin(comm, host, n, TRM_FLOAT, 0, 0, &request);
    comm->ops->wait(&request);
    trm_free(host);
  }
}

int zero_read(struct trm_strategy *strategy, int state, size_t low, size_t n, float *to)
{
  const struct zero *z = strategy->own;
  const struct interval_of all = {low, low + n};
  if (state < 0)
    zero_gradients_finish(strategy);
  zero_weights_rest(strategy);
  const bool first = !z->cross || z->cross->rank == 0; /* of several groups the one of rank 0 */
  for (int u = zero_unit_at(z, low); first && u < z->units && z->unit[u].low < all.high; u++)
    for (int p = z->unit[u].first; p < z->unit[u].last; p++)
      for (int rank = 0; rank < z->group->size; rank++) {
        const struct interval_of some = overlap(all, zero_part(&z->piece[p], rank));
        if (some.low < some.high)
          part_bring(strategy, state, u, &z->piece[p], rank, some, strategy->comm->rank ? NULL : to + (some.low - low));
      }
  const struct interval_of rest = overlap(all, (struct interval_of){z->trained, strategy->elements});
  if (strategy->comm->rank != 0 || rest.low == rest.high)
    return TRM_OK;
  const float *from = rest_of(strategy, state);
  const size_t bytes = (rest.high - rest.low) * sizeof *to;
  if (from)
    strategy->device->ops->download(strategy->device, to + (rest.low - low), from + (rest.low - z->trained), bytes);
  else
    memset(to + (rest.low - low), 0, bytes);
  return TRM_OK;
}

int zero_write(struct trm_strategy *strategy, int state, size_t low, size_t n, const float *from)
{
  const struct zero *z = strategy->own;
  struct trm_device *device = strategy->device;
  const struct interval_of all = {low, low + n};
  if (z->in_place)
    zero_meet(strategy); /* nobody reads them any more */
  zero_weights_rest(strategy);
  for (int u = zero_unit_at(z, low); u < z->units && z->unit[u].low < all.high; u++)
    for (int p = z->unit[u].first; p < z->unit[u].last; p++) {
      const struct interval_of some = overlap(all, zero_part(&z->piece[p], z->group->rank));
      if (some.low < some.high)
        device->ops->upload(device, own_at(strategy, state, u, &z->piece[p], some.low), from + (some.low - low),
                            (some.high - some.low) * sizeof *from);
    }
  const struct interval_of rest = overlap(all, (struct interval_of){z->trained, strategy->elements});
  float *to = rest_of(strategy, state);
  if (to && rest.low < rest.high)
    device->ops->upload(device, to + (rest.low - z->trained), from + (rest.low - low),
                        (rest.high - rest.low) * sizeof *from);
  return device->ops->sync(device);
}

int zero_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES])
{
  struct zero *z = strategy->own;
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    view[i] = NULL;
    if (i > strategy->optimizer->states)
      continue;
    if (strategy->comm->rank == 0 && !z->view[i])
      z->view[i] = trm_alloc(strategy->elements * sizeof(float), "a checkpoint's arrays");
    TRM_CHECK(zero_read(strategy, i, 0, strategy->elements, z->view[i]));
    view[i] = z->view[i];
  }
  return TRM_OK;
}

int zero_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  for (int i = 0; i <= strategy->optimizer->states; i++)
    if (from[i])
      TRM_CHECK(zero_write(strategy, i, 0, strategy->elements, from[i]));
  strategy->updates = updates;
  zero_weights_changed(strategy);
  return strategy->device->ops->sync(strategy->device);
}
