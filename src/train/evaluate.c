/* Evaluation: every row of a split once, divided over the ranks. */
#include <string.h>

#include "core/log.h"
#include "core/status.h"
#include "train/device_batch.h"
#include "train/train.h"

static int evaluate_shard(struct trm_model *model, struct trm_dataset *dataset, size_t low, size_t high, size_t batch,
                          size_t passes, const struct trm_pass *common, struct trm_loss_sums *sums)
{
  struct trm_host_batch host_batch = {0};
  struct trm_device_batch device_batch;
  trm_device_batch_create(&device_batch, model->device, model);
  int status = TRM_OK;
  for (size_t i = 0; i < passes && status == TRM_OK; i++) {
    const size_t at = low + i * batch < high ? low + i * batch : high, end = at + batch < high ? at + batch : high;
    struct trm_input input;
    struct trm_pass pass = *common;
    pass.input = &input;
    status = dataset->ops->fetch(dataset, 0, at, end, &host_batch);
    if (status == TRM_OK)
      status = trm_device_batch_upload(&device_batch, &host_batch, &input);
    if (status == TRM_OK)
      status = trm_model_evaluate(model, &pass, sums);
  }
  trm_device_batch_free(&device_batch);
  trm_host_batch_free(&host_batch);
  if (status != TRM_OK && (common->tensor_axis || common->provider)) { /* other ranks wait for this one's passes */
    trm_log_error();
    trm_abort(status);
  }
  return status;
}

void trm_loss_sums_allreduce(struct trm_loss_sums *sums, struct trm_comm *comm)
{
  double values[3] = {sums->loss, sums->correct, sums->rows};
  comm->ops->allreduce(comm, values, 3, TRM_DOUBLE, TRM_SUM);
  /* decisions hang on these: all ranks take rank 0's bits */
  comm->ops->broadcast(comm, values, 3, TRM_DOUBLE, 0);
  *sums = (struct trm_loss_sums){.loss = values[0], .correct = values[1], .rows = values[2]};
}

int trm_evaluate(struct trm_model *model, struct trm_dataset *dataset, struct trm_comm *comm, size_t batch,
                 const struct trm_pass *pass, struct trm_loss_sums *sums)
{
  size_t low, high;
  const size_t max_rows = (dataset->rows + (size_t)comm->size - 1) / (size_t)comm->size;
  trm_interval(dataset->rows, (size_t)comm->size, (size_t)comm->rank, &low, &high);
  memset(sums, 0, sizeof *sums);
  TRM_CHECK(
    trm_agree(comm, evaluate_shard(model, dataset, low, high, batch, (max_rows + batch - 1) / batch, pass, sums)));
  trm_loss_sums_allreduce(sums, comm);
  return TRM_OK;
}
