/* Shares of the data ranks by their speeds (parallel.shares=measured). The first steps are computed with equal shares,
 * and each rank's time in passes is measured: with injected slowdown, without waiting for other data ranks. Copies of
 * the model whose ranks wait for each other inside passes count as one. From then on the shares are in proportion to
 * speed. If there are slow ranks, some further steps measure the time of a step with them and without. */
#include <math.h>
#include <string.h>

#include "core/document.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "train/trainer.h"

enum { WARM_UP = 3, SHARE_OF_FASTEST = 1000 };
#define SLOW 0.5 /* ranks below this part of the highest speed are slow */

/* -- setting shares */

static struct trm_comm *speeds_data(const struct trainer *t)
{
  return t->grid->axis[TRM_AXIS_DATA];
}

/* Sets the shares (data ranks) in use. Collective over the data axis. */
static void speeds_set_shares(struct trainer *t, const double *share)
{
  struct trm_comm *data = speeds_data(t);
  const int32_t mine = t->strategy.batch_shard;
  int32_t *shard = trm_alloc((size_t)data->size * sizeof *shard, "shards of the ranks");
  data->ops->allgather(data, &mine, shard, 1, TRM_INT32);
  trm_shares_set(&t->shares, share, shard, data->size);
  trm_free(shard);
}

/* Binds the model for the rows of the shares in use. Collective; TRM_FAILED: a rank's memory is not enough. */
static int speeds_bind(struct trainer *t)
{
  const size_t rows = trainer_max_rows(t, t->strategy.batch_shard);
  float *w = trm_staged_arrays_load(&t->arrays, t->strategy.w);
  return trm_agree(t->comm, trm_model_bind_slots(&t->model, t->modules->device, w, t->arrays.g, rows, true, t->slots));
}

/* Reads the list in the configuration that the checkpoint was made with, if it has one for as many data ranks. */
static bool speeds_read_checkpoint(const struct trainer *t, double *share)
{
  const char *config = t->resume.checkpoint.config;
  struct trm_node *root;
  if (!config || trm_document_parse(config, strlen(config), "checkpoint", &root) != TRM_OK)
    return false;
  const struct trm_node *node = trm_node_get(root, "parallel.shares");
  const bool known = node && node->text && trm_shares_parse(node->text, speeds_data(t)->size, share) == TRM_OK;
  trm_node_free(root);
  return known;
}

int trainer_shares_create(struct trainer *t)
{
  const char *text = t->options->parallel.shares;
  const int ranks = speeds_data(t)->size;
  t->shares.shards = t->strategy.batch_shards;
  if (strcmp(text, "equal") == 0)
    return TRM_OK;
  const bool measured = strcmp(text, "measured") == 0;
  if (measured && t->options->train.batch < ranks)
    return trm_error(TRM_USAGE, "parallel.shares=measured: of %lld rows in a batch not each of %d data ranks gets one",
                     (long long)t->options->train.batch, ranks);
  double *share = trm_alloc((size_t)ranks * sizeof *share, "shares of the ranks");
  int status = TRM_OK;
  t->speeds.share = share;
  if (!measured)
    status = trm_shares_parse(text, ranks, share);
  else if (ranks > 1 && !speeds_read_checkpoint(t, share))
    t->speeds.phase = SPEEDS_EQUAL;
  if (status != TRM_OK || ranks == 1 || t->speeds.phase == SPEEDS_EQUAL)
    return status;
  speeds_set_shares(t, share);
  if (measured) {
    t->shares_text = trm_shares_text(share, ranks);
    trm_info("shares: %s, of the checkpoint", t->shares_text);
  }
  return TRM_OK;
}

void trainer_shares_free(struct trainer *t)
{
  trm_shares_free(&t->shares);
  trm_free(t->shares_text);
  trm_free(t->speeds.share);
  t->speeds.share = NULL;
  t->shares_text = NULL;
}

struct trm_options trainer_shares_options(const struct trainer *t)
{
  struct trm_options options = *t->options;
  if (t->shares_text)
    options.parallel.shares = t->shares_text;
  return options;
}

size_t trainer_shares_passes(const struct trainer *t, size_t rows)
{
  size_t passes = 0;
  for (int shard = 0; shard < t->shares.shards; shard++) {
    size_t low, high;
    const size_t max_rows = trainer_max_rows(t, shard), at_once = max_rows ? max_rows : 1;
    trm_shares_interval(&t->shares, rows, shard, &low, &high);
    const size_t own = (high - low + at_once - 1) / at_once;
    passes = own > passes ? own : passes;
  }
  return passes;
}

/* -- measuring */

void trainer_speeds_begin(struct trainer *t)
{
  struct trainer_speeds *s = &t->speeds;
  s->began_s = trainer_clock(t);
  s->comm_before_s = t->strategy.comm_s;
  s->wait_before_s = t->strategy.wait_s;
  s->reduce_before_s = t->reduce_s;
}

int trainer_speeds_passed(struct trainer *t)
{
  struct trainer_speeds *s = &t->speeds;
  const struct trm_strategy *strategy = &t->strategy;
  if (s->phase == SPEEDS_FIXED)
    return TRM_OK;
  TRM_CHECK(t->modules->device->ops->sync(t->modules->device));
  s->copy_now_s = trainer_clock(t) - s->began_s - (strategy->comm_s - s->comm_before_s) -
                  (strategy->wait_s - s->wait_before_s) - (t->reduce_s - s->reduce_before_s);
  return TRM_OK;
}

static double speeds_median(const double *seconds)
{
  double sorted[TRAINER_SPEEDS_STEPS];
  memcpy(sorted, seconds, sizeof sorted);
  for (int i = 1; i < TRAINER_SPEEDS_STEPS; i++)
    for (int j = i; j > 0 && sorted[j] < sorted[j - 1]; j--) {
      const double higher = sorted[j - 1];
      sorted[j - 1] = sorted[j];
      sorted[j] = higher;
    }
  return sorted[TRAINER_SPEEDS_STEPS / 2];
}

/* Medians of one copy of the model. */
struct speeds_figures {
  double row_s;  /* of its slowest rank, in passes */
  double comm_s, rest_s;
};
enum { FIGURES = sizeof(struct speeds_figures) / sizeof(double) };

/* Predicts the seconds of a step in which the ranks of at least this speed (rows/s) compute, in proportion, and the
 * others have left: the passes; what the slowest rank did besides them; and its communication. A sum over k ranks sends
 * (k - 1) / k of the array in each direction. *saved_s: seconds of communication less than with all ranks. */
static double speeds_predict(const struct trainer *t, const struct speeds_figures *of, double speed_limit,
                             double *saved_s)
{
  const int ranks = speeds_data(t)->size;
  int slowest = 0, count = 0;
  double speed = 0;
  for (int rank = 0; rank < ranks; rank++) {
    slowest = of[rank].row_s > of[slowest].row_s ? rank : slowest;
    count += 1 / of[rank].row_s >= speed_limit;
    speed += 1 / of[rank].row_s >= speed_limit ? 1 / of[rank].row_s : 0;
  }
  const double sent = (count - 1.0) / count * ranks / (ranks - 1.0);
  *saved_s = of[slowest].comm_s * (1 - sent);
  return (double)t->options->train.batch / speed + of[slowest].rest_s + of[slowest].comm_s * sent;
}

static bool speeds_is_slow(const struct trainer *t, int rank)
{
  return t->speeds.share[rank] < SLOW * SHARE_OF_FASTEST;
}

/* The slow ranks, as text that the caller frees; NULL: none. */
static char *speeds_slow_ranks(const struct trainer *t)
{
  const int ranks = speeds_data(t)->size;
  char *text = NULL;
  int count = 0;
  for (int rank = 0; rank < ranks; rank++)
    if (speeds_is_slow(t, rank) && ++count <= 8)
      trm_append(&text, "%s%d", count == 1 ? "" : ",", rank);
  if (count > 8)
    trm_append(&text, ",... (%d ranks)", count);
  return text;
}

/* Logs the seconds of a step with the shares, and those without the slow ranks, if there are any. */
static void speeds_log_gain(const struct trainer *t, const char *source, double with_s, double without_s)
{
  char *slow = speeds_slow_ranks(t);
  if (slow)
    trm_info("shares: %s: %.4g ms a step, without the slow data ranks %s %.4g ms: they %s", source, 1e3 * with_s, slow,
             1e3 * without_s, without_s < with_s ? "do not pay" : "pay");
  else
    trm_info("shares: %s: %.4g ms a step", source, 1e3 * with_s);
  trm_free(slow);
}

/* Chooses the shares by the times of all data ranks, and the prediction of steps with them. Collective. */
static int speeds_choose(struct trainer *t, size_t rows)
{
  struct trainer_speeds *s = &t->speeds;
  struct trm_comm *data = speeds_data(t), *model = t->grid->model;
  size_t from, to;
  trainer_shard(t, rows, &from, &to);
  struct speeds_figures mine = {speeds_median(s->copy_s) / (double)(to - from), speeds_median(s->comm_s),
                                speeds_median(s->rest_s)};
  if (model->size > 1)
    model->ops->allreduce(model, &mine, FIGURES, TRM_DOUBLE, TRM_MAX);
  struct speeds_figures *of = trm_alloc((size_t)data->size * sizeof *of, "speeds of the ranks");
  data->ops->allgather(data, &mine, of, FIGURES, TRM_DOUBLE);
  double fastest = 0;
  for (int rank = 0; rank < data->size; rank++)
    fastest = fmax(fastest, 1 / of[rank].row_s);
  for (int rank = 0; rank < data->size; rank++)
    s->share[rank] = fmax(1, round(SHARE_OF_FASTEST / (of[rank].row_s * fastest)));
  const double with_s = speeds_predict(t, of, 0, &s->saved_s),
               without_s = speeds_predict(t, of, SLOW * fastest, &s->saved_s);
  trm_free(of);
  t->shares_text = trm_shares_text(s->share, data->size);
  trm_info("shares: %s, by the speeds of %d steps of %.4g ms with equal shares", t->shares_text, TRAINER_SPEEDS_STEPS,
           1e3 * speeds_median(s->step_s));
  speeds_log_gain(t, "predicted", with_s, without_s);
  speeds_set_shares(t, s->share);
  const struct trm_options options = trainer_shares_options(t);
  TRM_CHECK(trm_agree(t->comm, t->comm->rank == 0 ? trm_run_dir_write_config(&t->run_dir, &options) : TRM_OK));
  return speeds_bind(t);
}

/* Leaves the slow ranks no rows, for the steps that measure what they gain. Not if a rank's memory is not enough for
 * what is theirs. Collective. */
static int speeds_try_without_slow(struct trainer *t)
{
  struct trainer_speeds *s = &t->speeds;
  const int ranks = speeds_data(t)->size;
  double *share = trm_alloc((size_t)ranks * sizeof *share, "shares of the ranks");
  bool any = false;
  for (int rank = 0; rank < ranks; rank++) {
    share[rank] = speeds_is_slow(t, rank) ? 0 : s->share[rank];
    any |= speeds_is_slow(t, rank);
  }
  if (any)
    speeds_set_shares(t, share);
  trm_free(share);
  if (!any)
    return TRM_OK;
  s->phase = SPEEDS_FAST;
  if (speeds_bind(t) == TRM_OK)
    return TRM_OK;
  s->phase = SPEEDS_FIXED;
  trm_info("shares: not measured without the slow ranks: the memory of the others is not enough for all rows");
  speeds_set_shares(t, s->share);
  return speeds_bind(t);
}

/* The phase's steps are measured. Collective. */
static int speeds_next_phase(struct trainer *t, size_t rows)
{
  struct trainer_speeds *s = &t->speeds;
  const enum trainer_speeds_phase phase = s->phase;
  const double step_s = speeds_median(s->step_s);
  s->steps = 0;
  s->phase = phase == SPEEDS_EQUAL ? SPEEDS_PROPORTIONAL : SPEEDS_FIXED;
  if (phase == SPEEDS_EQUAL)
    return speeds_choose(t, rows);
  if (phase == SPEEDS_PROPORTIONAL) {
    s->proportional_s = step_s;
    TRM_CHECK(speeds_try_without_slow(t));
    if (s->phase == SPEEDS_FIXED)
      trm_info("shares: measured: %.4g ms a step", 1e3 * step_s);
    return TRM_OK;
  }
  speeds_log_gain(t, "measured", s->proportional_s, step_s - s->saved_s);
  speeds_set_shares(t, s->share);
  return speeds_bind(t);
}

int trainer_speeds_end(struct trainer *t, size_t rows)
{
  struct trainer_speeds *s = &t->speeds;
  const struct trm_strategy *strategy = &t->strategy;
  if (s->phase == SPEEDS_FIXED || rows < (size_t)t->options->train.batch)
    return TRM_OK;
  const int n = s->steps++ - WARM_UP;
  if (n < 0)
    return TRM_OK;
  const double comm_s = strategy->comm_s - s->comm_before_s, reduce_s = t->reduce_s - s->reduce_before_s;
  s->step_s[n] = trainer_clock(t) - s->began_s;
  s->copy_s[n] = fmax(s->copy_now_s, 1e-9);
  s->comm_s[n] = comm_s + reduce_s;
  s->rest_s[n] = fmax(0, s->step_s[n] - s->copy_s[n] - s->comm_s[n] - (strategy->wait_s - s->wait_before_s));
  return n + 1 < TRAINER_SPEEDS_STEPS ? TRM_OK : speeds_next_phase(t, rows);
}
