/* The passes of a model over one batch: forward, loss, backward. */
#include "core/status.h"
#include "nn/model.h"
#include "nn/plan.h"

void trm_model_forward(struct trm_model *model, const struct trm_pass *pass)
{
  const float *x = pass->input->dense;
  for (int i = 0; i < model->layers; i++) {
    struct trm_layer *layer = &model->layer[i];
    float *y = model->arena + model->plan->value[i];
    if (pass->input->rows)
      layer->ops->forward(layer, pass, x, y, layer->workspace ? model->arena + model->plan->work[i] : NULL);
    x = y;
  }
  model->scores = x;
}

/* Backward from the gradient of the scores. Reports each layer's interval of the flat gradient as it is complete. */
static int model_backward(struct trm_model *model, const struct trm_pass *pass, trm_grad_ready *ready, void *context)
{
  const struct trm_plan *plan = model->plan;
  size_t low = 0;
  int boundary = 0;
  for (int i = model->layers - 1; i >= plan->bottom; i--) {
    struct trm_layer *layer = &model->layer[i];
    const struct trm_layer_ops *ops = layer->ops;
    if (pass->input->rows) {
      const float *x = i ? model->arena + plan->value[i - 1] : pass->input->dense;
      const float *y = model->arena + plan->value[i];
      const float *dy = model->arena + plan->gradient[i];
      float *dx = layer->needs_dx ? model->arena + plan->gradient[i - 1] : NULL;
      ops->backward(layer, pass, ops->keeps_input ? x : NULL, ops->keeps_output ? y : NULL, dy, dx,
                    layer->workspace ? model->arena + plan->work[i] : NULL);
    }
    if (layer->parameters) {
      const size_t high = model->boundary[boundary++];
      if (ready)
        TRM_CHECK(ready(context, low, high));
      low = high;
    }
  }
  return TRM_OK;
}

/* Pairwise: the error grows with the logarithm of n. */
static double sum_pairwise(const float *x, size_t n)
{
  if (n > 32)
    return sum_pairwise(x, n / 2) + sum_pairwise(x + n / 2, n - n / 2);
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += (double)x[i];
  return sum;
}

static void model_tally(struct trm_model *model, size_t rows, struct trm_tally *tally)
{
  if (!rows)
    return;
  struct trm_device *device = model->device;
  device->ops->download(device, model->host_rows, model->row_loss, (model->max_rows + rows) * sizeof(float));
  tally->loss += sum_pairwise(model->host_rows, rows);
  tally->correct += sum_pairwise(model->host_rows + model->max_rows, rows);
  tally->rows += (double)rows;
}

static int rows_check(const struct trm_model *model, size_t rows)
{
  if (!model->device || rows > model->max_rows)
    return trm_error(TRM_FAILED, "a batch of %zu rows: the model has memory for %zu", rows,
                     model->device ? model->max_rows : 0);
  return TRM_OK;
}

static void model_loss(struct trm_model *model, const struct trm_pass *pass, float scale, float *dz)
{
  if (pass->input->rows)
    model->loss->run(pass->device, pass->input, &model->layer[model->layers - 1].out, model->scores, scale,
                     model->row_loss, model->row_correct, dz);
}

int trm_model_evaluate(struct trm_model *model, const struct trm_pass *pass, struct trm_tally *tally)
{
  TRM_CHECK(rows_check(model, pass->input->rows));
  trm_model_forward(model, pass);
  model_loss(model, pass, 1, NULL);
  model_tally(model, pass->input->rows, tally);
  return pass->device->ops->sync(pass->device);
}

int trm_model_train(struct trm_model *model, const struct trm_pass *pass, float scale, struct trm_tally *tally,
                    trm_grad_ready *ready, void *context)
{
  TRM_CHECK(rows_check(model, pass->input->rows));
  if (!model->training || !model->g)
    return trm_error(TRM_FAILED, "the model has no memory for gradients: it was made ready for evaluation");
  trm_model_forward(model, pass);
  model_loss(model, pass, scale, model->arena + model->plan->gradient[model->layers - 1]);
  if (!pass->input->rows && pass->beta == 0)
    pass->device->ops->fill(pass->device, model->g, 0, model->parameters);
  TRM_CHECK(model_backward(model, pass, ready, context));
  model_tally(model, pass->input->rows, tally); /* last: the download waits for the device */
  return pass->device->ops->sync(pass->device);
}
