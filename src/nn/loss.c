/* The losses and their table. */
#include "nn/loss.h"

#include <string.h>

#include "core/options.h"
#include "core/status.h"

static const char *target_text(const struct trm_input_spec *spec)
{
  return spec->target == TRM_TARGET_CLASS ? "classes" : "values a sample";
}

static int softmax_check(const struct trm_shape *scores, const struct trm_input_spec *spec)
{
  if (spec->target != TRM_TARGET_CLASS)
    return trm_error(TRM_USAGE, "loss softmax_cross_entropy is for classes, the targets are %zu %s; "
                     "mean_squared_error would suit", spec->classes, target_text(spec));
  if (spec->tokens) {
    const struct trm_shape wanted = {.dims = 2, .size = {spec->shape.size[0], spec->classes}};
    if (!scores->sequence || scores->size[0] != wanted.size[0] || scores->size[1] != wanted.size[1])
      return trm_error(TRM_USAGE, "loss softmax_cross_entropy: the model gives scores of shape %s, %zu tokens of a "
                       "vocabulary of %zu want %s: 'head' gives these", trm_shape_text(scores), spec->shape.size[0],
                       spec->classes, trm_shape_text(&wanted));
  } else if (trm_shape_count(scores) != spec->classes) {
    return trm_error(TRM_USAGE, "loss softmax_cross_entropy: the model gives scores of shape %s, the data set has %zu "
                     "classes: the two must agree", trm_shape_text(scores), spec->classes);
  }
  return TRM_OK;
}

static void softmax_run(struct trm_device *device, const struct trm_input *input, const struct trm_shape *scores,
                        const float *z, float scale, float smoothing, float *row_loss, float *row_correct, float *dz)
{
  const size_t positions = scores->sequence ? scores->size[0] : 1;
  device->ops->softmax_cross_entropy(device, z, input->target_class, scale, smoothing, row_loss, row_correct, dz,
                                     input->rows * positions, trm_shape_count(scores) / positions);
}

static int squared_check(const struct trm_shape *scores, const struct trm_input_spec *spec)
{
  if (spec->target != TRM_TARGET_VALUE)
    return trm_error(TRM_USAGE, "loss mean_squared_error is for value targets, the data set has %zu %s; "
                     "softmax_cross_entropy would suit", spec->classes, target_text(spec));
  if (trm_shape_count(scores) != spec->classes)
    return trm_error(TRM_USAGE, "loss mean_squared_error: the model gives scores of shape %s, the targets are %zu "
                     "values a sample: the two must agree", trm_shape_text(scores), spec->classes);
  return TRM_OK;
}

static void squared_run(struct trm_device *device, const struct trm_input *input, const struct trm_shape *scores,
                        const float *z, float scale, float smoothing, float *row_loss, float *row_correct, float *dz)
{
  (void)smoothing;
  device->ops->mean_squared_error(device, z, input->target_value, scale, row_loss, row_correct, dz, input->rows,
                                  trm_shape_count(scores));
}

/* Logistic and hinge: one score; two classes, or one value a sample that is -1 or +1. */
static int signed_check(const char *name, const struct trm_shape *scores, const struct trm_input_spec *spec)
{
  if (trm_shape_count(scores) != 1)
    return trm_error(TRM_USAGE, "loss %s wants one score, the model gives scores of shape %s (the data set has %zu %s)",
                     name, trm_shape_text(scores), spec->classes, target_text(spec));
  if (spec->classes != (spec->target == TRM_TARGET_CLASS ? 2 : 1))
    return trm_error(TRM_USAGE, "loss %s is for two classes, or one value of -1 or +1; the data set has %zu %s", name,
                     spec->classes, target_text(spec));
  return TRM_OK;
}

static int logistic_check(const struct trm_shape *scores, const struct trm_input_spec *spec)
{
  return signed_check("logistic", scores, spec);
}

static void logistic_run(struct trm_device *device, const struct trm_input *input, const struct trm_shape *scores,
                         const float *z, float scale, float smoothing, float *row_loss, float *row_correct, float *dz)
{
  (void)scores, (void)smoothing;
  device->ops->logistic(device, z, input->target_value, scale, row_loss, row_correct, dz, input->rows);
}

static int hinge_check(const struct trm_shape *scores, const struct trm_input_spec *spec)
{
  return signed_check("hinge", scores, spec);
}

static void hinge_run(struct trm_device *device, const struct trm_input *input, const struct trm_shape *scores,
                      const float *z, float scale, float smoothing, float *row_loss, float *row_correct, float *dz)
{
  (void)scores, (void)smoothing;
  device->ops->hinge(device, z, input->target_value, scale, row_loss, row_correct, dz, input->rows);
}

static const struct trm_loss loss_softmax_cross_entropy = {
  .name = "softmax_cross_entropy",
  .check = softmax_check,
  .run = softmax_run,
  .counts_correct = true,
};

static const struct trm_loss loss_mean_squared_error = {
  .name = "mean_squared_error",
  .check = squared_check,
  .run = squared_run,
};

static const struct trm_loss loss_logistic = {
  .name = "logistic",
  .check = logistic_check,
  .run = logistic_run,
  .counts_correct = true,
  .signed_target = true,
};

static const struct trm_loss loss_hinge = {
  .name = "hinge",
  .check = hinge_check,
  .run = hinge_run,
  .counts_correct = true,
  .signed_target = true,
};

const struct trm_loss *const trm_loss_table[] = {
  &loss_softmax_cross_entropy, &loss_mean_squared_error, &loss_logistic, &loss_hinge, NULL,
};

const struct trm_loss *trm_loss_find(const char *name, const struct trm_shape *scores,
                                     const struct trm_input_spec *spec)
{
  if (strcmp(name, "auto") == 0) {
    if (spec->target == TRM_TARGET_VALUE)
      return &loss_mean_squared_error;
    return spec->classes == 2 && trm_shape_count(scores) == 1 ? &loss_logistic : &loss_softmax_cross_entropy;
  }
  const char *known[sizeof trm_loss_table / sizeof *trm_loss_table + 1] = {"auto"};
  for (int i = 0; trm_loss_table[i]; i++) {
    known[i + 1] = trm_loss_table[i]->name;
    if (strcmp(trm_loss_table[i]->name, name) == 0)
      return trm_loss_table[i];
  }
  const char *near = trm_nearest(name, known);
  trm_error(TRM_USAGE, "there is no loss '%s'%s%s%s", name, near ? ", did you mean '" : "", near ? near : "",
            near ? "'?" : "");
  return NULL;
}
