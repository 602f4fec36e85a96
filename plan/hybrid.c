#include "plan/hybrid.h"

#include <math.h>
#include <string.h>

#include "core/status.h"
#include "train/compatibility.h"

/* A job of `ranks` ranks of one kind's machine that compute batches of `batch` samples. */
struct hybrid_job {
  struct trm_options options;
  struct trm_layout_job job;
  struct trm_layout layout;
};

static void hybrid_job_init(struct hybrid_job *h, const struct trm_layout_job *job, const struct trm_rank_kind *kind,
                            int ranks, int nodes, int cores, size_t batch)
{
  h->options = *job->options;
  h->options.train.batch = (int64_t)batch;
  h->job = *job;
  h->job.options = &h->options;
  h->job.machine = kind->machine;
  h->job.ranks = ranks;
  h->job.nodes = nodes;
  h->job.cores = cores;
  h->job.threads = kind->threads;
  h->layout = (struct trm_layout){
    .size = {ranks, 1, 1}, .schedule = TRM_1F1B, .chunks = 1, .zero = (int)job->options->parallel.zero};
  strcpy(h->layout.recompute, "none");
}

static int hybrid_estimate(const struct hybrid_job *h, struct trm_layout_memory *memory, struct trm_layout_time *time)
{
  struct trm_layout_models models;
  TRM_CHECK(trm_layout_models_create(&models, &h->job, &h->layout));
  const int status = trm_layout_memory(&h->job, &h->layout, &models, memory);
  if (status == TRM_OK)
    trm_layout_time(&h->job, &h->layout, &models, time);
  trm_layout_models_free(&models);
  return status;
}

/* Seconds of the passes of a kind's ranks, which compute so many samples together, and of a step without others. */
static int hybrid_passes(const struct trm_layout_job *job, const struct trm_rank_kind *kind, size_t samples,
                         double *passes_s, double *step_s)
{
  struct hybrid_job h;
  struct trm_layout_memory memory;
  struct trm_layout_time time;
  hybrid_job_init(&h, job, kind, kind->ranks, kind->nodes, kind->cores, samples);
  TRM_CHECK(hybrid_estimate(&h, &memory, &time));
  *passes_s = time.compute_s;
  *step_s = time.step_s;
  return TRM_OK;
}

/* Memory of a rank that computes so many samples, and the time of sum and update, of all ranks. Ranks of this kind that
 * share cores take turns. */
static int hybrid_update(const struct trm_layout_job *job, const struct trm_rank_kind *kind, int ranks, int nodes,
                         struct trm_hybrid_kind *to)
{
  struct hybrid_job h;
  struct trm_layout_time time;
  const int slots = kind->cores > kind->threads ? kind->cores / kind->threads : 1;
  hybrid_job_init(&h, job, kind, ranks, nodes, ranks * kind->threads, to->rows * (size_t)ranks);
  h.job.rows = h.job.rows > to->rows * (size_t)ranks ? h.job.rows : to->rows * (size_t)ranks;
  TRM_CHECK(hybrid_estimate(&h, &to->memory, &time));
  to->update_s = (time.step_s - time.compute_s) * ceil((double)kind->ranks / kind->nodes / slots);
  return TRM_OK;
}

/* Sets speeds, shares and rows of both kinds. */
static int hybrid_share(const struct trm_layout_job *job, const struct trm_rank_kind kind[TRM_KINDS], size_t batch,
                        struct trm_hybrid *hybrid)
{
  const size_t ranks = (size_t)(kind[0].ranks + kind[1].ranks);
  double all = 0;
  for (int k = 0; k < TRM_KINDS; k++) {
    const size_t equal = batch / ranks * (size_t)kind[k].ranks;
    double passes_s, step_s;
    TRM_CHECK(hybrid_passes(job, &kind[k], equal, &passes_s, &step_s));
    hybrid->kind[k].speed = (double)(batch / ranks) / passes_s;
  }
  hybrid->fast = hybrid->kind[1].speed > hybrid->kind[0].speed;
  for (int k = 0; k < TRM_KINDS; k++) {
    struct trm_hybrid_kind *to = &hybrid->kind[k];
    to->share = fmax(1, round(1000 * to->speed / hybrid->kind[hybrid->fast].speed));
    all += to->share * kind[k].ranks;
  }
  for (int k = 0; k < TRM_KINDS; k++)
    hybrid->kind[k].rows = (size_t)ceil((double)batch * hybrid->kind[k].share / all - 1e-9);
  return TRM_OK;
}

/* Fails if the method cannot have shares by speed. */
static int hybrid_check(const struct trm_layout_job *job)
{
  static char measured[] = "measured";
  struct trm_options options = *job->options;
  options.parallel.shares = measured;
  return trm_compatibility_check(&(struct trm_run_facts){.options = &options, .strategy = job->modules->strategy});
}

int trm_hybrid_plan(const struct trm_layout_job *job, const struct trm_rank_kind kind[TRM_KINDS], bool together,
                    double limit, struct trm_hybrid *hybrid)
{
  const size_t wanted = (size_t)job->options->train.batch, batch = wanted < job->rows ? wanted : job->rows;
  const int ranks = kind[0].ranks + kind[1].ranks, nodes = together ? kind[0].nodes : kind[0].nodes + kind[1].nodes;
  double passes_s = 0, update_s = 0;
  *hybrid = (struct trm_hybrid){.step_s = 0};
  TRM_CHECK(hybrid_check(job));
  if (batch < (size_t)ranks * (size_t)job->options->train.accumulate)
    return trm_error(TRM_USAGE, "train.batch: fewer samples than ranks of both kinds, times train.accumulate");
  TRM_CHECK(hybrid_share(job, kind, batch, hybrid));
  for (int k = 0; k < TRM_KINDS; k++) {
    struct trm_hybrid_kind *to = &hybrid->kind[k];
    double ignored;
    TRM_CHECK(hybrid_passes(job, &kind[k], to->rows * (size_t)kind[k].ranks, &to->passes_s, &ignored));
    TRM_CHECK(hybrid_passes(job, &kind[k], batch, &ignored, &to->alone_s));
    TRM_CHECK(hybrid_update(job, &kind[k], ranks, ranks % nodes == 0 ? nodes : ranks, to));
    to->fits = (limit <= 0 || to->memory.total <= limit) && to->memory.device <= kind[k].machine->device_bytes;
    passes_s = fmax(passes_s, to->passes_s);
    update_s = fmax(update_s, to->update_s);
  }
  hybrid->step_s = passes_s + update_s;
  hybrid->pays = hybrid->step_s < hybrid->kind[hybrid->fast].alone_s;
  return TRM_OK;
}
