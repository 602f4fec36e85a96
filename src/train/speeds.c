/* Shares of the data ranks by their speeds (parallel.shares=measured). The first steps are computed with equal shares,
 * and each rank's time in passes is measured: with injected slowdown, without waiting for other data ranks. Copies of
 * the model whose ranks wait for each other inside passes count as one, and ranks of a node that are alike as equal.
 * From then on the shares are in proportion to speed, if that makes the passes shorter by more than GAIN. If there are
 * slow ranks, some further steps measure the time of a step with them and without. For the rest of the run every
 * WATCH_EVERY-th step is measured, and the shares are chosen anew, by the same rule, after each TRAINER_SPEEDS_STEPS of
 * these. */
#include <math.h>
#include <string.h>

#include "core/document.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "train/trainer.h"

enum { WARM_UP = 3, WATCH_EVERY = 20, SHARE_OF_FASTEST = 1000 };
#define SLOW 0.5   /* ranks below this part of the highest speed are slow */
#define GAIN 0.05  /* of other shares, at least, in the time of passes */
#define ALIKE 0.1  /* ranks of a node whose times differ by no more from their mean have the same work */

/* -- setting shares */

static struct trm_comm *speeds_data(const struct trainer *t)
{
  return t->grid->axis[TRM_AXIS_DATA];
}

/* Sets the shares (data ranks) in use. */
static void speeds_set_shares(struct trainer *t, const double *share)
{
  trm_shares_set(&t->shares, share, t->speeds.shard, speeds_data(t)->size);
}

/* Sets the shard and the node of each data rank. Collective over the data axis. */
static void speeds_find_places(struct trainer *t)
{
  struct trm_comm *data = speeds_data(t), *node = data->ops->split_node(data, TRM_SHARE_NODE);
  int32_t mine[2] = {t->strategy.batch_shard, data->rank};
  node->ops->allreduce(node, &mine[1], 1, TRM_INT32, TRM_MIN);
  node->ops->release(node);
  t->speeds.shard = trm_alloc((size_t)data->size * sizeof *t->speeds.shard, "shards of the ranks");
  t->speeds.node = trm_alloc((size_t)data->size * sizeof *t->speeds.node, "nodes of the ranks");
  data->ops->allgather(data, &mine[0], t->speeds.shard, 1, TRM_INT32);
  data->ops->allgather(data, &mine[1], t->speeds.node, 1, TRM_INT32);
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
  else if (ranks > 1)
    t->speeds.phase = speeds_read_checkpoint(t, share) ? SPEEDS_WATCH : SPEEDS_EQUAL;
  if (status != TRM_OK || ranks == 1)
    return status;
  speeds_find_places(t);
  if (t->speeds.phase == SPEEDS_EQUAL)
    return TRM_OK;
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
  trm_free(t->speeds.shard);
  trm_free(t->speeds.node);
  t->speeds.share = NULL;
  t->speeds.shard = t->speeds.node = NULL;
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
  s->early_before_s = t->strategy.early_s;
  s->reduce_before_s = t->reduce_s;
}

/* The number of the current step among those of the phase that count; negative: it does not count. */
static int speeds_number(const struct trainer_speeds *s)
{
  if (s->phase == SPEEDS_WATCH)
    return (s->steps + 1) % WATCH_EVERY == 0 ? s->steps / WATCH_EVERY : -1;
  return s->phase == SPEEDS_FIXED ? -1 : s->steps - WARM_UP;
}

int trainer_speeds_passed(struct trainer *t)
{
  struct trainer_speeds *s = &t->speeds;
  const struct trm_strategy *strategy = &t->strategy;
  if (speeds_number(s) < 0)
    return TRM_OK;
  TRM_CHECK(t->modules->device->ops->sync(t->modules->device));
  s->copy_now_s = trainer_clock(t) - s->began_s - (strategy->comm_s - s->comm_before_s) -
                  (strategy->wait_s - s->wait_before_s) - (strategy->early_s - s->early_before_s) -
                  (t->reduce_s - s->reduce_before_s);
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
  double row_s;  /* of its slowest rank, in passes; 0: it has no rows */
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

/* The figures of all data ranks, which the caller frees. Collective. */
static struct speeds_figures *speeds_gather(const struct trainer *t, size_t rows)
{
  const struct trainer_speeds *s = &t->speeds;
  struct trm_comm *data = speeds_data(t), *model = t->grid->model;
  size_t from, to;
  trainer_shard(t, rows, &from, &to);
  struct speeds_figures mine = {from < to ? speeds_median(s->copy_s) / (double)(to - from) : 0,
                                speeds_median(s->comm_s), speeds_median(s->rest_s)};
  if (model->size > 1)
    model->ops->allreduce(model, &mine, FIGURES, TRM_DOUBLE, TRM_MAX);
  struct speeds_figures *of = trm_alloc((size_t)data->size * sizeof *of, "speeds of the ranks");
  data->ops->allgather(data, &mine, of, FIGURES, TRM_DOUBLE);
  return of;
}

/* Sets the times of a rank's row to their mean over its node, if the ranks of the node are alike. */
static void speeds_average_node(const struct trainer *t, struct speeds_figures *of, int32_t node)
{
  const int ranks = speeds_data(t)->size;
  double sum = 0;
  int count = 0;
  for (int rank = 0; rank < ranks; rank++)
    if (t->speeds.node[rank] == node) {
      sum += of[rank].row_s;
      count++;
    }
  const double mean = sum / count;
  bool alike = true;
  for (int rank = 0; rank < ranks; rank++)
    alike &= t->speeds.node[rank] != node || fabs(of[rank].row_s - mean) <= ALIKE * mean;
  for (int rank = 0; rank < ranks && alike; rank++)
    if (t->speeds.node[rank] == node)
      of[rank].row_s = mean;
}

/* Returns the seconds of the longest pass over a batch with these shares. */
static double speeds_pass_s(const struct trainer *t, const struct trm_shares *shares, const struct speeds_figures *of,
                            size_t rows)
{
  double longest = 0;
  for (int rank = 0; rank < speeds_data(t)->size; rank++) {
    size_t from, to;
    trm_shares_interval(shares, rows, t->speeds.shard[rank], &from, &to);
    longest = fmax(longest, (double)(to - from) * of[rank].row_s);
  }
  return longest;
}

/* What rank 0 has decided. */
struct speeds_decision {
  double gain; /* of the shares that are in proportion to speed: seconds of passes now / with them - 1 */
  double fastest; /* rows/s of a rank */
};

/* On rank 0: sets share (data ranks) in proportion to speed. A rank without rows has the speed that its share in use
 * says. */
static struct speeds_decision speeds_decide(const struct trainer *t, struct speeds_figures *of, size_t rows,
                                            double *share)
{
  const int ranks = speeds_data(t)->size;
  double min_s = INFINITY;
  for (int rank = 0; rank < ranks; rank++)
    min_s = of[rank].row_s > 0 ? fmin(min_s, of[rank].row_s) : min_s;
  for (int rank = 0; rank < ranks; rank++)
    if (of[rank].row_s <= 0)
      of[rank].row_s = min_s * SHARE_OF_FASTEST / fmax(1, t->speeds.share[rank]);
  for (int rank = 0; rank < ranks; rank++)
    if (t->speeds.node[rank] == rank)
      speeds_average_node(t, of, rank);
  for (int rank = 0; rank < ranks; rank++)
    min_s = rank == 0 ? of[0].row_s : fmin(min_s, of[rank].row_s);
  for (int rank = 0; rank < ranks; rank++)
    share[rank] = fmax(1, round(SHARE_OF_FASTEST * min_s / of[rank].row_s));
  struct trm_shares chosen = {0};
  trm_shares_set(&chosen, share, t->speeds.shard, ranks);
  const double gain = speeds_pass_s(t, &t->shares, of, rows) / speeds_pass_s(t, &chosen, of, rows) - 1;
  trm_shares_free(&chosen);
  return (struct speeds_decision){.gain = gain, .fastest = 1 / min_s};
}

/* The shares in s->share are chosen: sets them, and writes them to config.yaml. Collective. */
static int speeds_use(struct trainer *t)
{
  trm_free(t->shares_text);
  t->shares_text = trm_shares_text(t->speeds.share, speeds_data(t)->size);
  speeds_set_shares(t, t->speeds.share);
  const struct trm_options options = trainer_shares_options(t);
  int status = t->comm->rank == 0 ? trm_run_dir_write_config(&t->run_dir, &options) : TRM_OK;
  if (t->comm->rank == 0 && status == TRM_OK)
    status = trainer_write_record(t, &options);
  return trm_agree(t->comm, status);
}

/* Measured with equal shares: chooses the shares, and predicts steps with them. Collective. */
static int speeds_choose(struct trainer *t, size_t rows)
{
  struct trainer_speeds *s = &t->speeds;
  const int ranks = speeds_data(t)->size;
  struct speeds_figures *of = speeds_gather(t, rows);
  struct speeds_decision decision = {0};
  if (t->comm->rank == 0)
    decision = speeds_decide(t, of, rows, s->share);
  t->comm->ops->broadcast(t->comm, &decision, sizeof decision / sizeof(double), TRM_DOUBLE, 0);
  t->comm->ops->broadcast(t->comm, s->share, (size_t)ranks, TRM_DOUBLE, 0);
  const double with_s = speeds_predict(t, of, 0, &s->saved_s),
               without_s = speeds_predict(t, of, SLOW * decision.fastest, &s->saved_s);
  trm_free(of);
  const double step_ms = 1e3 * speeds_median(s->step_s);
  if (decision.gain <= GAIN) {
    for (int rank = 0; rank < ranks; rank++)
      s->share[rank] = SHARE_OF_FASTEST;
    s->phase = SPEEDS_WATCH;
    trm_info("shares: equal, by the speeds of %d steps of %.4g ms: shares in proportion would gain %.2g %%",
             TRAINER_SPEEDS_STEPS, step_ms, 100 * decision.gain);
    return speeds_use(t);
  }
  TRM_CHECK(speeds_use(t));
  trm_info("shares: %s, by the speeds of %d steps of %.4g ms with equal shares", t->shares_text, TRAINER_SPEEDS_STEPS,
           step_ms);
  speeds_log_gain(t, "predicted", with_s, without_s);
  return speeds_bind(t);
}

/* Measured in the course of the run: keeps the shares, or chooses others. Where a rank's memory is not enough for
 * these, the shares stay as they are for the rest of the run. Collective. */
static int speeds_choose_other(struct trainer *t, size_t rows)
{
  struct trainer_speeds *s = &t->speeds;
  const int ranks = speeds_data(t)->size;
  double *share = trm_alloc((size_t)ranks * sizeof *share, "shares of the ranks");
  struct speeds_figures *of = speeds_gather(t, rows);
  struct speeds_decision decision = {0};
  if (t->comm->rank == 0)
    decision = speeds_decide(t, of, rows, share);
  trm_free(of);
  t->comm->ops->broadcast(t->comm, &decision, sizeof decision / sizeof(double), TRM_DOUBLE, 0);
  t->comm->ops->broadcast(t->comm, share, (size_t)ranks, TRM_DOUBLE, 0);
  int status = TRM_OK;
  if (decision.gain > GAIN) {
    speeds_set_shares(t, share);
    if (speeds_bind(t) == TRM_OK) {
      memcpy(s->share, share, (size_t)ranks * sizeof *share);
      status = speeds_use(t);
      trm_info("shares: %s from step %llu on: passes take %.1f %% less time", t->shares_text,
               (unsigned long long)t->strategy.updates + 1, 100 * (1 - 1 / (1 + decision.gain)));
    } else {
      s->phase = SPEEDS_FIXED;
      trm_info("shares: as they are: a rank's memory is not enough for others");
      speeds_set_shares(t, s->share);
      status = speeds_bind(t);
    }
  }
  trm_free(share);
  return status;
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
  s->phase = SPEEDS_WATCH;
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
  if (phase == SPEEDS_WATCH)
    return speeds_choose_other(t, rows);
  s->phase = phase == SPEEDS_EQUAL ? SPEEDS_PROPORTIONAL : SPEEDS_WATCH;
  if (phase == SPEEDS_EQUAL)
    return speeds_choose(t, rows);
  if (phase == SPEEDS_PROPORTIONAL) {
    s->proportional_s = step_s;
    TRM_CHECK(speeds_try_without_slow(t));
    if (s->phase == SPEEDS_WATCH)
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
  const int n = speeds_number(s);
  if (s->phase == SPEEDS_FIXED || rows < (size_t)t->options->train.batch)
    return TRM_OK;
  s->steps++;
  if (n < 0)
    return TRM_OK;
  const double comm_s = strategy->comm_s - s->comm_before_s, reduce_s = t->reduce_s - s->reduce_before_s;
  s->step_s[n] = trainer_clock(t) - s->began_s;
  s->copy_s[n] = fmax(s->copy_now_s, 1e-9);
  s->comm_s[n] = comm_s + reduce_s;
  s->rest_s[n] = fmax(0, s->step_s[n] - s->copy_s[n] - s->comm_s[n] - (strategy->wait_s - s->wait_before_s));
  return n + 1 < TRAINER_SPEEDS_STEPS ? TRM_OK : speeds_next_phase(t, rows);
}
