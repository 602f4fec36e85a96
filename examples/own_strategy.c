/* Trains with a strategy that the library does not have: signSGD with majority vote (Bernstein et al. 2018). Each rank
 * votes, weight by weight, for the sign of its gradient, and all take the step that most ranks want:
 *
 *   w -= lr * sign(sum over the ranks of sign(g))
 *
 *   mpiexec -n 3 ./own_strategy digits.h5
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <trireme/trireme.h>

/* The state of a rank: its weights, its gradient, and the votes, (elements) each. */
struct vote {
  float *w, *g, *votes;
};

static int vote_create(struct trm_strategy *strategy)
{
  struct vote *vote = strategy->impl = trm_alloc(sizeof *vote, "vote");
  float **const array[] = {&vote->w, &vote->g, &vote->votes};
  for (int i = 0; i < 3; i++)
    *array[i] = trm_alloc(strategy->elements * sizeof(float), "vote");
  strategy->w = vote->w;
  strategy->g = vote->g;
  strategy->batch_shard = strategy->comm->rank; /* the shard of each batch that this rank computes */
  strategy->batch_shards = strategy->comm->size;
  return TRM_OK;
}

static float sign_of(float x)
{
  return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
}

/* Collective. `sums` become those of the whole batch on every rank. */
static int vote_step(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums)
{
  struct vote *vote = strategy->impl;
  struct trm_comm *comm = strategy->comm;
  trm_loss_sums_allreduce(sums, comm);
  if (!isfinite(sums->loss))
    return trm_error(TRM_FAILED, "vote: the loss is not finite");
  for (size_t i = 0; i < strategy->elements; i++)
    vote->votes[i] = sign_of(vote->g[i]);
  comm->ops->allreduce(comm, vote->votes, strategy->elements, TRM_FLOAT, TRM_SUM);
  for (size_t i = 0; i < strategy->elements; i++)
    vote->w[i] -= (float)rate * sign_of(vote->votes[i]);
  strategy->updates++;
  return TRM_OK;
}

/* For checkpoints and the final hash: state 0 is the weights; there is no other. */
static int vote_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES])
{
  view[0] = strategy->w;
  return TRM_OK;
}

static int vote_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  if (from[0])
    memcpy(strategy->w, from[0], strategy->elements * sizeof(float));
  strategy->updates = updates;
  return TRM_OK;
}

static void vote_destroy(struct trm_strategy *strategy)
{
  struct vote *vote = strategy->impl;
  if (vote) {
    trm_free(vote->w);
    trm_free(vote->g);
    trm_free(vote->votes);
  }
  trm_free(vote);
}

static const struct trm_strategy_ops vote_ops = {
  .name = "vote",
  .help = "signSGD with majority vote",
  .lockstep = true,
  .create = vote_create,
  .step = vote_step,
  .collect = vote_collect,
  .restore = vote_restore,
  .destroy = vote_destroy,
};

static int set_options(struct trm_options *options, const char *data_file)
{
  static const char *const settings[][2] = {
    {"model", "linear 64 | relu | linear 10"}, {"train.epochs", "2"}, {"train.batch", "48"},
    {"optim.lr", "0.001"}, {"run.dir", "own_strategy.run"}, {"run.overwrite", "yes"},
  };
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    TRM_CHECK(trm_options_set(options, settings[i][0], settings[i][1]));
  return trm_options_set(options, "data.file", data_file);
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    fprintf(stderr, "usage: own_strategy DATA.h5\n");
    return TRM_USAGE;
  }
  struct trm_job job;
  struct trm_result result;
  trm_job_init(&job);
  int status = trm_job_open(&job, set_options(&job.options, argv[1]));
  job.modules.strategy = &vote_ops; /* instead of strategy.name */
  if (status == TRM_OK)
    status = trm_job_train(&job, &result);
  if (status == TRM_OK && result.test.accuracy < 0.5)
    status = trm_error(TRM_FAILED, "test accuracy %.3f: the model has not learned the digits", result.test.accuracy);
  if (trm_log_rank() == 0 && status != TRM_OK)
    trm_log_error();
  else if (trm_log_rank() == 0)
    printf("own_strategy: ok: test accuracy %.3f by votes of %d ranks\n", result.test.accuracy, job.modules.comm->size);
  trm_job_close(&job);
  return status;
}
