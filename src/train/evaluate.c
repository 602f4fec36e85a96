/* Evaluation of every row of a split once, with the rows sharded over the ranks. */
#include <string.h>

#include "core/log.h"
#include "core/status.h"
#include "core/trace.h"
#include "train/device_batch.h"
#include "train/train.h"

/* One rank's shard of an evaluation. */
struct evaluation {
  struct trm_model *model;
  struct trm_dataset *dataset;
  const struct trm_pass *pass;
  size_t low, high, batch; /* rows [low, high), `batch` rows per pass */
  size_t passes;           /* the same on all ranks */
  struct trm_loss_sums *sums;
};

static int evaluate_shard(void *context)
{
  const struct evaluation *e = context;
  if (e->pass->skipped)
    return TRM_OK;
  struct trm_host_batch host_batch = {0};
  struct trm_device_batch device_batch;
  trm_device_batch_create(&device_batch, e->model->device, e->model);
  int status = TRM_OK;
  for (size_t i = 0; i < e->passes && status == TRM_OK; i++) {
    const size_t at = e->low + i * e->batch < e->high ? e->low + i * e->batch : e->high;
    const size_t end = at + e->batch < e->high ? at + e->batch : e->high;
    struct trm_input input;
    struct trm_pass pass = *e->pass;
    pass.input = &input;
    pass.weights_kept = i > 0;
    status = e->dataset->ops->fetch(e->dataset, 0, at, end, &host_batch);
    if (status == TRM_OK)
      status = trm_device_batch_upload(&device_batch, &host_batch, &input);
    if (status == TRM_OK)
      status = trm_model_evaluate(e->model, &pass, e->sums);
  }
  trm_device_batch_free(&device_batch);
  trm_host_batch_free(&host_batch);
  if (status != TRM_OK && (e->pass->tensor_axis || e->pass->provider)) { /* other ranks wait for this one's passes */
    trm_log_error();
    trm_abort(status);
  }
  return status;
}

/* The same, in the time that it should take. */
static int evaluate_in_time(struct evaluation *e, struct trm_comm *comm)
{
  const double seconds = (double)(e->high - e->low) * e->pass->seconds_per_row, began = trm_trace_begin("evaluation");
  const bool apart = comm->ops->compute && !e->pass->tensor_axis && !e->pass->provider;
  const int status = apart ? comm->ops->compute(comm, evaluate_shard, e, seconds) : evaluate_shard(e);
  if (comm->ops->compute && !apart)
    comm->ops->sleep_until(comm, comm->ops->clock(comm) + seconds, false);
  trm_trace_end("evaluation", TRM_TRACE_COMPUTE, began, TRM_TRACE_NO_IDS);
  return status;
}

void trm_loss_sums_allreduce(struct trm_loss_sums *sums, struct trm_comm *comm)
{
  comm->ops->allreduce(comm, sums, TRM_LOSS_SUMS, TRM_DOUBLE, TRM_SUM);
  /* decisions depend on the sums, so all ranks take rank 0's bits */
  comm->ops->broadcast(comm, sums, TRM_LOSS_SUMS, TRM_DOUBLE, 0);
}

int trm_evaluate(struct trm_model *model, struct trm_dataset *dataset, struct trm_comm *comm, size_t batch,
                 const struct trm_pass *pass, struct trm_loss_sums *sums)
{
  const size_t max_rows = (dataset->rows + (size_t)comm->size - 1) / (size_t)comm->size;
  struct trm_evaluation_part part = {.batch = batch, .passes = (max_rows + batch - 1) / batch};
  trm_interval(dataset->rows, (size_t)comm->size, (size_t)comm->rank, &part.low, &part.high);
  return trm_evaluate_part(model, dataset, comm, &part, pass, sums);
}

int trm_evaluate_part(struct trm_model *model, struct trm_dataset *dataset, struct trm_comm *comm,
                      const struct trm_evaluation_part *part, const struct trm_pass *pass, struct trm_loss_sums *sums)
{
  struct evaluation e = {.model = model, .dataset = dataset, .pass = pass, .low = part->low, .high = part->high,
                         .batch = part->batch, .passes = part->passes, .sums = sums};
  memset(sums, 0, sizeof *sums);
  TRM_CHECK(trm_agree(comm, evaluate_in_time(&e, comm)));
  trm_loss_sums_allreduce(sums, comm);
  return TRM_OK;
}
