/* Evaluation: every row of a split once, divided over the ranks. */
#include <string.h>

#include "core/log.h"
#include "core/status.h"
#include "train/feed.h"
#include "train/train.h"

static int evaluate_part(struct trm_model *model, struct trm_dataset *dataset, size_t low, size_t high, size_t batch,
                         size_t passes, const struct trm_pass *common, struct trm_tally *tally)
{
  struct trm_host_batch rows = {0};
  struct trm_feed feed;
  trm_feed_create(&feed, model->device, model);
  int status = TRM_OK;
  for (size_t i = 0; i < passes && status == TRM_OK; i++) {
    const size_t at = low + i * batch < high ? low + i * batch : high, end = at + batch < high ? at + batch : high;
    struct trm_input input;
    struct trm_pass pass = *common;
    pass.input = &input;
    status = dataset->ops->fetch(dataset, 0, at, end, &rows);
    if (status == TRM_OK)
      status = trm_feed_batch(&feed, &rows, &input);
    if (status == TRM_OK)
      status = trm_model_evaluate(model, &pass, tally);
  }
  trm_feed_free(&feed);
  trm_host_batch_free(&rows);
  if (status != TRM_OK && (common->tensor || common->holder)) { /* other ranks wait for this one's passes */
    trm_log_error();
    trm_abort(status);
  }
  return status;
}

void trm_tally_sum(struct trm_tally *tally, struct trm_comm *comm)
{
  double sums[3] = {tally->loss, tally->correct, tally->rows};
  comm->ops->allreduce(comm, sums, 3, TRM_DOUBLE, TRM_SUM);
  /* decisions hang on these: all ranks take rank 0's bits */
  comm->ops->broadcast(comm, sums, 3, TRM_DOUBLE, 0);
  *tally = (struct trm_tally){.loss = sums[0], .correct = sums[1], .rows = sums[2]};
}

int trm_evaluate(struct trm_model *model, struct trm_dataset *dataset, struct trm_comm *comm, size_t batch,
                 const struct trm_pass *pass, struct trm_tally *tally)
{
  size_t low, high;
  const size_t most = (dataset->rows + (size_t)comm->size - 1) / (size_t)comm->size;
  trm_interval(dataset->rows, (size_t)comm->size, (size_t)comm->rank, &low, &high);
  memset(tally, 0, sizeof *tally);
  TRM_CHECK(trm_agree(comm, evaluate_part(model, dataset, low, high, batch, (most + batch - 1) / batch, pass, tally)));
  trm_tally_sum(tally, comm);
  return TRM_OK;
}
