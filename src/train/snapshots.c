/* Evaluations of an asynchronous run without stopping it: the strategy makes snapshots of the weights while the workers
 * go on, and all ranks evaluate them at the next quiesce point (an end of epoch, a checkpoint, the end of the run).
 * Their lines in metrics.jsonl have the step, samples and times of the weights; the staleness is that at the quiesce
 * point. Early stopping and best.h5 follow when the scores are known. */
#include <math.h>

#include "core/status.h"
#include "train/trainer.h"

uint64_t trainer_snapshots_begin(struct trainer *t, uint64_t end)
{
  struct trainer_snapshots *snapshots = &t->snapshots;
  const uint64_t now = t->strategy.updates, every = (uint64_t)t->options->train.evaluate_every;
  snapshots->count = snapshots->seen = 0;
  if (t->strategy.snapshots == 0)
    return end;
  for (uint64_t at = (now / every + 1) * every; at < end; at += every) {
    if (snapshots->count == t->strategy.snapshots) {
      end = at;
      break;
    }
    snapshots->reached_s[snapshots->count] = snapshots->reached_wall_s[snapshots->count] = INFINITY;
    snapshots->at[snapshots->count++] = at;
  }
  if (snapshots->count > 0)
    t->strategy.ops->snapshot(&t->strategy, snapshots->at, snapshots->count);
  /* times begin when all ranks are here: slot snapshot ends with a barrier */
  snapshots->updates = now;
  snapshots->samples = t->samples;
  snapshots->train_s = trainer_train_s(t);
  snapshots->virtual_s = trainer_virtual(t);
  snapshots->wall_s = trainer_wall(t);
  snapshots->clock_s = trainer_clock(t);
  return end;
}

void trainer_snapshots_see(struct trainer *t, uint64_t batch)
{
  struct trainer_snapshots *snapshots = &t->snapshots;
  for (; snapshots->seen < snapshots->count && snapshots->at[snapshots->seen] <= batch; snapshots->seen++) {
    snapshots->reached_s[snapshots->seen] = trainer_clock(t) - snapshots->clock_s;
    snapshots->reached_wall_s[snapshots->seen] = trainer_wall(t) - snapshots->wall_s;
  }
}

/* The place of a snapshot in metrics.jsonl. */
static struct trm_progress_point snapshots_point(const struct trainer *t, int number)
{
  const struct trainer_snapshots *snapshots = &t->snapshots;
  const uint64_t step = snapshots->at[number];
  return (struct trm_progress_point){
    .step = step,
    .epoch = t->epoch + 1,
    .samples = snapshots->samples + (step - snapshots->updates) * (uint64_t)t->options->train.batch,
    .wall_s = snapshots->wall_s + snapshots->reached_wall_s[number],
    .train_s = snapshots->train_s + snapshots->reached_s[number],
    .virtual_s = snapshots->virtual_s + snapshots->reached_s[number],
  };
}

/* Evaluates and records one snapshot; *better: it is the best so far. Collective. */
static int snapshots_evaluate(struct trainer *t, int number, bool *better)
{
  const struct trm_progress_point at = snapshots_point(t, number);
  TRM_CHECK(trm_agree(t->comm, t->strategy.ops->snapshot_weights(&t->strategy, number)));
  return trainer_validate(t, &at, better);
}

/* The first worker beyond a snapshot's batches tells its time. It is in the interval on rank 0, which may have begun it
 * a little later. Collective. */
static void snapshots_gather_times(struct trainer *t)
{
  struct trainer_snapshots *snapshots = &t->snapshots;
  const size_t count = (size_t)snapshots->count;
  const double train_s = trainer_train_s(t) - snapshots->train_s, wall_s = trainer_wall(t) - snapshots->wall_s;
  t->comm->ops->allreduce(t->comm, snapshots->reached_s, count, TRM_DOUBLE, TRM_MIN);
  t->comm->ops->allreduce(t->comm, snapshots->reached_wall_s, count, TRM_DOUBLE, TRM_MIN);
  for (size_t i = 0; i < count; i++) {
    snapshots->reached_s[i] = fmin(snapshots->reached_s[i], train_s);
    snapshots->reached_wall_s[i] = fmin(snapshots->reached_wall_s[i], wall_s);
  }
}

int trainer_snapshots_end(struct trainer *t)
{
  struct trainer_snapshots *snapshots = &t->snapshots;
  struct trm_comm *comm = t->comm;
  int best = -1, status = TRM_OK;
  if (snapshots->count == 0)
    return TRM_OK;
  snapshots_gather_times(t);
  for (int i = 0; i < snapshots->count && snapshots->at[i] <= t->strategy.updates && !trainer_stops_early(t); i++) {
    bool better;
    TRM_CHECK(snapshots_evaluate(t, i, &better));
    best = better ? i : best;
  }
  if (best >= 0 && t->options->run.checkpoint_every >= 0) {
    const struct trm_progress_point at = snapshots_point(t, best);
    status = trm_agree(comm, t->strategy.ops->snapshot_weights(&t->strategy, best));
    if (status == TRM_OK)
      status = trainer_save_best_weights(t, &at);
  }
  snapshots->count = 0;
  TRM_CHECK(status);
  return trm_agree(comm, t->strategy.ops->snapshot_weights(&t->strategy, -1));
}
