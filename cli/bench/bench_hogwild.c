/* trireme bench hogwild */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/weight_copy.h"

static const char usage[] =
  "usage: [mpiexec -n N] trireme bench hogwild --data.file=FILE.h5 [--repeat=R] [--mu=M] [--fade=F] [--json]\n"
  "                       [--section.key=value...]\n"
  "\n"
  "Updates a second of a linear model with two classes on sparse rows, each from zero weights through train.epochs\n"
  "passes in the same orders:\n"
  "\n"
  "  plain    a loop in C, one row an update, one rank, rows in place, their order known before\n"
  "  copied   the kernel on one rank, batches of train.batch rows that the data set copies together\n"
  "  in place the same on rows in place\n"
  "  shared   the same on all ranks, which claim batches and share the weights without locks\n"
  "  copies   the same, but each rank changes a copy, merged every strategy.tau batches and at the end of an epoch\n"
  "\n"
  "All ranks must share memory. Then once more with the races counted: lost updates are values stored and never\n"
  "read, conflicts are updates during which another rank began to write.\n"
  "\n"
  "  --repeat=R      rounds, in each of them all five in turn (default 7): the medians of each epoch count, and the\n"
  "                  means of the test errors\n"
  "  --mu=M          weight of the regularizer, divided by the rows that have a feature (default 0)\n"
  "  --fade=F        factor on the rate after each epoch (default 0.9)\n"
  "  --strategy.rows rows of an update of the kernel (default 1; 0: a whole batch)\n"
  "  --train.loss    hinge (default) or logistic\n"
  "  --json          one JSON object\n";

enum method { PLAIN, COPIED, IN_PLACE, SHARED, COPIES, METHODS };
static const char *const names[METHODS] = {"plain", "copied", "in place", "shared", "copies"};

/* Memory shared by the ranks. */
struct shared_state {
  _Alignas(64) _Atomic uint64_t next_row; /* of the epoch, for all ranks */
  _Alignas(64) uint64_t writers;
  _Alignas(64) float weights[]; /* (K), then (K) counts of writes, uint32_t */
};

struct hogwild {
  int64_t repeat; /* the flags */
  double mu, rate_decay;
  bool json;
  struct trm_job *job;
  struct trm_comm *comm, *node;
  struct trm_sparse_sgd sgd;
  struct trm_dataset *train, *test; /* test: NULL if absent */
  size_t rows, features, batch, epochs;
  struct trm_host_batch host_batch;
  struct trm_sparse_row *row;       /* (batch); on rank 0 (rows), for a whole epoch */
  float *target, *shrink;           /* (batch) or (rows); (K) */
  float *local_w;                       /* (K) weights of one rank */
  struct trm_shared shared;
  struct weight_copy copies;             /* of the shared weights */
  struct trm_sparse_sums sums;      /* of a counted run */
  double *seconds[METHODS], error[METHODS]; /* (rounds, epochs); mean over the rounds */
  double lost, conflicts;                   /* share of the writes; share of the updates */
};
#define AT(field) offsetof(struct hogwild, field)
static const struct trm_option flags[] = {{"repeat", TRM_OPTION_INT, AT(repeat), "7", RANGE(1, 100000)},
                                          {"mu", TRM_OPTION_REAL, AT(mu), "0", RANGE(0, 1000000)},
                                          {"fade", TRM_OPTION_REAL, AT(rate_decay), "0.9", RANGE(0, 1)},
                                          {"json", TRM_OPTION_BOOL, AT(json), NULL, NO_RANGE},
                                          END_OF_FLAGS};

static struct shared_state *hog_shared(const struct hogwild *h)
{
  return h->shared.base[0];
}

/* Fetches rows [low, high) of the epoch, with targets -1 and +1. */
static int hog_fetch_rows(struct hogwild *h, bool copied, uint64_t epoch, size_t low, size_t high)
{
  struct trm_host_batch *batch = &h->host_batch;
  if (copied) {
    TRM_CHECK(h->train->ops->fetch(h->train, epoch, low, high, batch));
    for (size_t i = 0; i < batch->rows; i++)
      h->row[i] = (struct trm_sparse_row){batch->columns + batch->starts[i], batch->values + batch->starts[i],
                                          (size_t)(batch->starts[i + 1] - batch->starts[i])};
  } else {
    TRM_CHECK(h->train->ops->fetch_rows(h->train, epoch, low, high, batch, h->row));
  }
  for (size_t i = 0; i < batch->rows; i++)
    h->target[i] = batch->target_class[i] == 1 ? 1.0f : -1.0f;
  return TRM_OK;
}

/* The reference: stochastic gradient descent as a plain loop. */
static void hog_plain_epoch(const struct trm_sparse_row *row, const float *target, size_t rows, bool hinge, float rate,
                            const float *shrink, float *w)
{
  for (size_t i = 0; i < rows; i++) {
    const int32_t *column = row[i].columns;
    const float *value = row[i].values;
    const size_t entries = row[i].entries;
    float z = 0;
    for (size_t e = 0; e < entries; e++)
      z += w[column[e]] * value[e];
    const float margin = target[i] * z;
    const float slope = hinge ? (margin < 1 ? -target[i] : 0) : -target[i] / (1 + expf(margin));
    if (slope != 0)
      for (size_t e = 0; e < entries; e++)
        w[column[e]] -= rate * slope * value[e];
    if (shrink)
      for (size_t e = 0; e < entries; e++)
        w[column[e]] *= 1 - rate * shrink[column[e]];
  }
}

static bool hog_uses_all_ranks(enum method method)
{
  return method == SHARED || method == COPIES;
}

/* Trains on batches until none is left: of all ranks, or of this one only. */
static int hog_kernel_epoch(struct hogwild *h, enum method method, uint64_t epoch, const struct trm_sparse_sgd *sgd)
{
  struct trm_device *device = &h->job->device;
  const int64_t tau = h->job->options.strategy.tau;
  float *w = method == SHARED ? hog_shared(h)->weights : h->local_w;
  uint64_t next = 0;
  for (int64_t batches = 1;; batches++) {
    const uint64_t low = hog_uses_all_ranks(method) ? atomic_fetch_add(&hog_shared(h)->next_row, h->batch) : next;
    if (low >= h->rows) {
      if (method == COPIES)
        weight_copy_merge(&h->copies, h->local_w);
      return TRM_OK;
    }
    const size_t high = h->rows - low < h->batch ? h->rows : (size_t)low + h->batch;
    next = high;
    TRM_CHECK(hog_fetch_rows(h, method == COPIED, epoch, (size_t)low, high));
    struct trm_sparse_sums sums;
    device->ops->sparse_sgd(device, &(struct trm_sparse_sgd_rows){
      .sgd = *sgd, .row = h->row, .target = h->target, .w = w, .sums = &sums, .rows = high - (size_t)low});
    h->sums.updates += sums.updates;
    h->sums.written += sums.written;
    h->sums.conflicts += sums.conflicts;
    if (method == COPIES && batches % tau == 0)
      weight_copy_merge(&h->copies, h->local_w);
  }
}

/* Collective. Runs all epochs of a method from zero weights. seconds (epochs). */
static int hog_run_method(struct hogwild *h, enum method method, const struct trm_races *races, double *seconds)
{
  struct trm_comm *comm = h->comm;
  const bool works = hog_uses_all_ranks(method) || comm->rank == 0;
  struct trm_sparse_sgd sgd = h->sgd;
  int status = TRM_OK;
  sgd.races = races;
  h->sums = (struct trm_sparse_sums){0};
  memset(h->local_w, 0, h->features * sizeof *h->local_w);
  if (hog_uses_all_ranks(method) && comm->rank == 0)
    memset(hog_shared(h)->weights, 0, h->features * sizeof(float));
  if (method == COPIES) {
    comm->ops->barrier(comm);
    weight_copy_pull(&h->copies, h->local_w);
  }
  for (size_t epoch = 0; epoch < h->epochs && status == TRM_OK; epoch++) {
    if (method == PLAIN && works)
      status = hog_fetch_rows(h, false, epoch, 0, h->rows);
    if (comm->rank == 0)
      atomic_store(&hog_shared(h)->next_row, 0);
    if (hog_uses_all_ranks(method))
      comm->ops->barrier(comm);
    const double begin = comm->ops->clock(comm);
    if (method == PLAIN && works)
      hog_plain_epoch(h->row, h->target, h->rows, sgd.loss == TRM_MARGIN_HINGE, sgd.rate, sgd.shrink, h->local_w);
    else if (works)
      status = hog_kernel_epoch(h, method, epoch, &sgd);
    if (hog_uses_all_ranks(method))
      comm->ops->barrier(comm);
    seconds[epoch] = comm->ops->clock(comm) - begin;
    sgd.rate *= (float)h->rate_decay;
  }
  return trm_agree(comm, status);
}

/* *error = the share of the test rows that w classifies wrongly. */
static int hog_test_error(struct hogwild *h, const float *w, double *error)
{
  size_t wrong = 0;
  *error = NAN;
  if (!h->test)
    return TRM_OK;
  for (size_t low = 0, high; low < h->test->rows; low = high) {
    high = h->test->rows - low < h->batch ? h->test->rows : low + h->batch;
    TRM_CHECK(h->test->ops->fetch_rows(h->test, 0, low, high, &h->host_batch, h->row));
    for (size_t i = 0; i < high - low; i++) {
      double z = 0;
      for (size_t e = 0; e < h->row[i].entries; e++)
        z += (double)w[h->row[i].columns[e]] * h->row[i].values[e];
      wrong += (z > 0) != (h->host_batch.target_class[i] == 1);
    }
  }
  *error = (double)wrong / (double)h->test->rows;
  return TRM_OK;
}

/* -- the result */

/* Seconds of all epochs, each one's the median over the rounds. */
static double hog_median_seconds(const struct hogwild *h, const double *seconds, size_t rounds)
{
  double *per_round = trm_alloc(rounds * sizeof *per_round, "bench: times"), sum = 0;
  for (size_t epoch = 0; epoch < h->epochs; epoch++) {
    for (size_t k = 0; k < rounds; k++)
      per_round[k] = seconds[k * h->epochs + epoch];
    sum += bench_median(per_round, rounds);
  }
  trm_free(per_round);
  return sum;
}

static void hog_print_outcome(const struct hogwild *h)
{
  const double updates = (double)h->rows * (double)h->epochs;
  double seconds[METHODS], speed[METHODS];
  if (!h->json)
    printf("%s: %zu rows of %zu features, %zu epochs, %d rank%s\n  %-9s %12s %9s %8s %12s\n", h->train->path, h->rows,
           h->features, h->epochs, h->comm->size, h->comm->size == 1 ? "" : "s", "", "rows/s", "ns a row", "of plain",
           "test error %");
  for (int m = 0; m < METHODS; m++) {
    seconds[m] = hog_median_seconds(h, h->seconds[m], (size_t)h->repeat);
    speed[m] = updates / seconds[m];
    if (!h->json)
      printf("  %-9s %12.0f %9.1f %8.3f %12.2f\n", names[m], speed[m], 1e9 / speed[m], seconds[m] / seconds[PLAIN],
             100 * h->error[m]);
  }
  const struct figure row[] = {
    figure_text("file", NULL, h->train->path),
    figure_number("ranks", NULL, h->comm->size, 1),
    figure_number("plain_rows_per_s", NULL, speed[PLAIN], 1),
    figure_number("copied_rows_per_s", NULL, speed[COPIED], 1),
    figure_number("in_place_rows_per_s", NULL, speed[IN_PLACE], 1),
    figure_number("shared_rows_per_s", NULL, speed[SHARED], 1),
    figure_number("cost_of_plain", NULL, seconds[IN_PLACE] / seconds[PLAIN], 1),
    figure_number("copies_rows_per_s", NULL, speed[COPIES], 1),
    figure_number("shared_speedup", "  beside one rank in place: shared %.2f times as fast",
                 seconds[IN_PLACE] / seconds[SHARED], 1),
    figure_number("copies_speedup", ", copies %.2f\n", seconds[IN_PLACE] / seconds[COPIES], 1),
    figure_number("lost", "  lost updates %.4f %%", h->lost, 100),
    figure_number("conflicts", ", conflicts %.2f %%", h->conflicts, 100),
    figure_number("plain_error", NULL, h->error[PLAIN], 1), /* these are NAN without a test split */
    figure_number("in_place_error", NULL, h->error[IN_PLACE], 1),
    figure_number("shared_error", NULL, h->error[SHARED], 1),
    figure_number("copies_error", NULL, h->error[COPIES], 1),
  };
  bench_print_row("hogwild", h->json, row, sizeof row / sizeof *row);
}

/* Runs once with races counted. */
static int hog_count_races(struct hogwild *h)
{
  struct trm_comm *comm = h->comm;
  double *ignored = trm_alloc(h->epochs * sizeof *ignored, "bench: times");
  const struct trm_races races = {&hog_shared(h)->writers, (uint32_t *)(hog_shared(h)->weights + h->features)};
  const int status = hog_run_method(h, SHARED, &races, ignored);
  trm_free(ignored);
  TRM_CHECK(status);
  double sums[] = {(double)h->sums.updates, (double)h->sums.written, (double)h->sums.conflicts};
  comm->ops->allreduce(comm, sums, 3, TRM_DOUBLE, TRM_SUM);
  double seen = 0;
  for (size_t j = 0; j < h->features; j++)
    seen += races.written[j];
  h->lost = sums[1] > 0 ? (sums[1] - seen) / sums[1] : 0;
  h->conflicts = sums[0] > 0 ? sums[2] / sums[0] : 0;
  return TRM_OK;
}

static int hog_measure(struct hogwild *h)
{
  const size_t rounds = (size_t)h->repeat;
  int status = TRM_OK;
  for (int m = 0; m < METHODS; m++)
    h->seconds[m] = trm_alloc(rounds * h->epochs * sizeof(double), "bench: times");
  for (size_t k = 0; k < rounds && status == TRM_OK; k++)
    for (enum method m = PLAIN; m < METHODS && status == TRM_OK; m++) {
      double error = 0;
      status = hog_run_method(h, m, NULL, h->seconds[m] + k * h->epochs);
      if (status == TRM_OK && h->comm->rank == 0)
        status = hog_test_error(h, hog_uses_all_ranks(m) ? hog_shared(h)->weights : h->local_w, &error);
      h->error[m] += error / (double)rounds;
      status = trm_agree(h->comm, status);
    }
  if (status == TRM_OK)
    status = hog_count_races(h);
  if (status == TRM_OK && h->comm->rank == 0)
    hog_print_outcome(h);
  for (int m = 0; m < METHODS; m++)
    trm_free(h->seconds[m]);
  return status;
}

/* -- opening */

/* Sets shrink_j = mu / (rows with feature j). */
static int hog_make_shrink(struct hogwild *h)
{
  h->shrink = trm_alloc(h->features * sizeof *h->shrink, "bench: counts of features");
  for (size_t low = 0, high; low < h->rows; low = high) {
    high = h->rows - low < h->batch ? h->rows : low + h->batch;
    TRM_CHECK(hog_fetch_rows(h, false, 0, low, high));
    for (size_t i = 0; i < high - low; i++)
      for (size_t e = 0; e < h->row[i].entries; e++)
        h->shrink[h->row[i].columns[e]]++;
  }
  for (size_t j = 0; j < h->features; j++)
    h->shrink[j] = h->shrink[j] > 0 ? (float)(h->mu / (double)h->shrink[j]) : 0;
  h->sgd.shrink = h->shrink;
  return TRM_OK;
}

static int hog_check_request(const struct hogwild *h)
{
  const struct trm_input_spec *spec = &h->train->spec;
  const char *path = h->train->path;
  if (h->node->size != h->comm->size)
    return trm_error(TRM_USAGE, "bench hogwild: %d ranks, of which %d share memory here: the weights are one array",
                     h->comm->size, h->node->size);
  if (!spec->sparse || spec->target != TRM_TARGET_CLASS || spec->classes != 2)
    return trm_error(TRM_USAGE, "bench hogwild: %s must have sparse rows of two classes", path);
  return TRM_OK;
}

static int hog_open_data(struct hogwild *h)
{
  struct trm_options *o = &h->job->options;
  const struct trm_dataset_ops *ops = h->job->modules.dataset;
  if (o->data.file[0] == '\0')
    return trm_error(TRM_USAGE, "bench hogwild: no data set named (--data.file=FILE.h5)");
  TRM_CHECK(trm_options_set(o, "data.memory", "1024G")); /* in memory: each rank may fetch any rows */
  TRM_CHECK(ops->open(&h->train, o->data.file, TRM_SPLIT_TRAIN, o, h->comm));
  TRM_CHECK(trm_agree(h->comm, hog_check_request(h)));
  bool has = false;
  TRM_CHECK(trm_agree(h->comm, ops->has_split(o->data.file, TRM_SPLIT_TEST, &has)));
  return has ? ops->open(&h->test, o->data.file, TRM_SPLIT_TEST, o, h->comm) : TRM_OK;
}

static int hog_open(struct hogwild *h)
{
  const struct trm_options *o = &h->job->options;
  h->node = h->comm->ops->split_node(h->comm, TRM_SHARE_NODE);
  TRM_CHECK(hog_open_data(h));
  h->rows = h->train->rows;
  h->features = h->train->spec.shape.size[0];
  h->batch = (size_t)o->train.batch < h->rows ? (size_t)o->train.batch : h->rows;
  h->epochs = (size_t)o->train.epochs;
  h->sgd = (struct trm_sparse_sgd){
    .loss = o->train.loss == TRM_LOSS_LOGISTIC ? TRM_MARGIN_LOGISTIC : TRM_MARGIN_HINGE,
    .rate = (float)o->optim.rate,
    .update_rows = (size_t)o->strategy.rows,
  };
  const size_t max_rows = h->comm->rank == 0 ? h->rows : h->batch;
  h->row = trm_alloc(max_rows * sizeof *h->row, "bench: rows");
  h->target = trm_alloc(max_rows * sizeof *h->target, "bench: targets");
  h->local_w = trm_alloc(h->features * sizeof *h->local_w, "bench: weights");
  TRM_CHECK(trm_agree(h->comm, h->mu > 0 ? hog_make_shrink(h) : TRM_OK));
  const size_t bytes = sizeof(struct shared_state) + h->features * (sizeof(float) + sizeof(uint32_t));
  int status = h->node->ops->share(h->node, h->node->rank == 0 ? bytes : 0, TRM_MEMORY_BUFFERS, &h->shared);
  if (status == TRM_OK)
    status = weight_copy_create(&h->copies, h->node, hog_shared(h)->weights, h->features);
  return trm_agree(h->comm, status);
}

static void hog_close(struct hogwild *h)
{
  if (h->shared.base)
    h->node->ops->unshare(h->node, &h->shared);
  weight_copy_free(&h->copies);
  if (h->test)
    h->test->ops->close(h->test);
  if (h->train)
    h->train->ops->close(h->train);
  trm_host_batch_free(&h->host_batch);
  trm_free(h->row);
  trm_free(h->target);
  trm_free(h->shrink);
  trm_free(h->local_w);
  h->node->ops->release(h->node);
}

static int hog_run(const struct call *call)
{
  struct hogwild *h = call->values;
  h->job = call->job;
  h->comm = call->job->modules.comm;
  int status = hog_open(h);
  if (status == TRM_OK)
    status = hog_measure(h);
  hog_close(h);
  return status;
}

const struct command bench_hogwild = {
  .name = "bench hogwild", .help = "stochastic updates over sparse rows by all ranks at once, beside a plain loop",
  .usage = usage, .flags = flags, .bytes = sizeof(struct hogwild),
  .job = JOB_OF_RANKS, .run = hog_run,
};
