/* The modes of a run: rows of struct trainer_mode, and the choice among them. */
#include "core/memory.h"
#include "train/trainer.h"

/* Divides the rows of an evaluation among the data ranks that were not late at this quiesce point. Collective. */
static void mode_divide_punctual(struct trainer *t, size_t rows, struct trm_evaluation_part *part)
{
  struct trm_comm *data = t->grid->axis[TRM_AXIS_DATA];
  int32_t *straggler = trm_alloc((size_t)data->size * sizeof *straggler, "stragglers");
  size_t punctual = 0, before = 0;
  data->ops->allgather(data, &(int32_t){t->strategy.straggler}, straggler, 1, TRM_INT32);
  for (int rank = 0; rank < data->size; rank++) {
    punctual += !straggler[rank];
    before += rank < data->rank && !straggler[rank];
  }
  trm_free(straggler);
  trm_interval(rows, punctual, before, &part->low, &part->high);
  part->high = t->strategy.straggler ? part->low : part->high;
  part->passes = ((rows + punctual - 1) / punctual + part->batch - 1) / part->batch;
}

static int mode_evaluate(struct trainer *t, struct trm_dataset *dataset, struct trm_loss_sums *sums)
{
  struct trm_pass pass = trainer_pass(t);
  pass.training = false;
  pass.reduce = NULL;
  trainer_measure(t, &pass);
  pass.skipped = !t->options->simulate.gradients;
  pass.seconds_per_row = t->slowdown.flop_per_row / 3 * t->slowdown.seconds_per_flop * t->slowdown.slow_factor;
  struct trm_comm *data = t->grid->axis[TRM_AXIS_DATA];
  struct trm_evaluation_part part = {.batch = t->model.max_rows};
  if (t->strategy.abandons) {
    mode_divide_punctual(t, dataset->rows, &part);
    return trm_evaluate_part(&t->model, dataset, data, &part, &pass, sums);
  }
  if (!t->shares.share)
    return trm_evaluate(&t->model, dataset, data, t->model.max_rows, &pass, sums);
  part.passes = trainer_shares_passes(t, dataset->rows);
  trainer_shard(t, dataset->rows, &part.low, &part.high);
  return trm_evaluate_part(&t->model, dataset, data, &part, &pass, sums);
}

enum { PLAIN, LANES, PIPELINE, PIPELINE_WITHOUT_FLUSH, WORKERS, WORKERS_ON_ROWS };

static const struct trainer_mode modes[] = {
  [PLAIN] = {.train_batch = trainer_train_micro_batches, .advance = trainer_advance_step, .evaluate = mode_evaluate},
  [LANES] = {.create = trainer_lanes_create,
             .train_batch = trainer_train_lanes,
             .advance = trainer_advance_step,
             .evaluate = mode_evaluate},
  [PIPELINE] = {.delays_actions = true,
                .create = trainer_stages_create,
                .train_batch = trainer_stages_train,
                .advance = trainer_advance_step,
                .evaluate = trainer_stages_evaluate},
  [PIPELINE_WITHOUT_FLUSH] = {.delays_actions = true,
                              .create = trainer_stages_create,
                              .advance = trainer_advance_pipeline,
                              .evaluate = trainer_stages_evaluate,
                              .save_local_state = trainer_stages_save_local_state,
                              .resume = trainer_stages_resume},
  [WORKERS] = {.train_batch = trainer_train_micro_batches,
               .advance = trainer_advance_workers,
               .evaluate = mode_evaluate},
  [WORKERS_ON_ROWS] = {.train_batch = trainer_train_rows,
                       .advance = trainer_advance_workers,
                       .evaluate = mode_evaluate},
};

const struct trainer_mode *trainer_choose_mode(const struct trainer *t)
{
  if (t->strategy.ops->next_batch)
    return &modes[t->rows.row ? WORKERS_ON_ROWS : WORKERS];
  if (t->grid->size[TRM_AXIS_PIPELINE] > 1)
    return &modes[trm_schedule_flushes(&t->stages.pipeline.schedule) ? PIPELINE : PIPELINE_WITHOUT_FLUSH];
  return &modes[t->options->run.lanes > 0 ? LANES : PLAIN];
}
