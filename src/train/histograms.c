/* Histograms of the weights in TensorBoard's event files (log.tensorboard), at evaluations: of those that are
 * evaluated. */
#include <math.h>

#include "core/memory.h"
#include "core/status.h"
#include "train/trainer.h"

static int histograms_add(struct trainer *t, const struct trm_parameter *p, uint64_t step, const float *values)
{
  char *tag = trm_format("weights/%s", p->name);
  const int status = trm_event_file_add_values(&t->run_dir.events, tag, (int64_t)step, NAN, values, p->count);
  trm_free(tag);
  return status;
}

/* Rank 0, which has all weights. */
static int histograms_add_own(struct trainer *t, uint64_t step)
{
  const struct trm_strategy *s = &t->strategy;
  const struct trm_device *device = s->device;
  const float *w = s->eval_weights ? s->eval_weights : s->w;
  int status = TRM_OK;
  for (int i = 0; i < trm_model_parameter_count(&t->model) && status == TRM_OK; i++) {
    const struct trm_parameter *p = trm_model_parameter(&t->model, i);
    if (!p->primary)
      continue;
    float *copy = p->frozen || device->host_memory ? NULL : trm_alloc(p->count * sizeof *copy, "weights");
    if (copy)
      device->ops->download(s->device, copy, w + p->offset, p->count * sizeof *copy);
    status = histograms_add(t, p, step, copy ? copy : p->frozen ? p->frozen_w : w + p->offset);
    trm_free(copy);
  }
  return status;
}

/* Weights that several ranks hold parts of. Collective. */
static int histograms_add_gathered(struct trainer *t, uint64_t step)
{
  struct trm_model_gather gather;
  const int state = t->strategy.eval_weights && t->optimizer.ema > 0 ? t->optimizer.states : 0;
  TRM_CHECK(trainer_gather_begin(t, &gather));
  int status = TRM_OK;
  for (int i = 0; t->comm->rank == 0 && i < trm_model_parameter_count(&t->full_model) && status == TRM_OK; i++) {
    const float *values;
    status = trm_model_gather_tensor(&gather, state, i, &values);
    if (status == TRM_OK)
      status = histograms_add(t, trm_model_parameter(&t->full_model, i), step, values);
  }
  trm_model_gather_end(&gather);
  return status;
}

int trainer_log_weights(struct trainer *t, uint64_t step)
{
  const bool whole = t->grid->model->size == 1 && !t->strategy.provider, is_virtual = t->comm->ops->compute != NULL;
  if (!trm_run_dir_has_events(t->options) || !t->options->simulate.gradients || (!whole && is_virtual))
    return TRM_OK;
  if (!whole)
    return histograms_add_gathered(t, step);
  return t->comm->rank == 0 ? histograms_add_own(t, step) : TRM_OK;
}
