/* The losses and their table. */
#include "nn/loss.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

static const char *loss_target_text(const struct trm_input_spec *spec)
{
  return spec->target == TRM_TARGET_CLASS ? "classes" : "values a sample";
}

void trm_loss_call_shape(struct trm_loss_call *call, const struct trm_layer *last)
{
  const size_t vectors = trm_layer_output_vectors(last);
  call->rows = call->input->rows * vectors;
  call->classes = trm_shape_count(&last->out) / vectors;
  call->ld = trm_layer_output_ld(last);
}

static int loss_softmax_check(const struct trm_loss *loss, const struct trm_shape *scores,
                              const struct trm_input_spec *spec)
{
  (void)loss;
  if (spec->target != TRM_TARGET_CLASS)
    return trm_error(TRM_USAGE,
                     "loss softmax_cross_entropy is for classes, the targets are %zu %s; "
                     "mean_squared_error would suit",
                     spec->classes, loss_target_text(spec));
  if (spec->tokens) {
    const struct trm_shape expected = {.dims = 2, .size = {spec->shape.size[0], spec->classes}};
    if (!scores->sequence || scores->size[0] != expected.size[0] || scores->size[1] != expected.size[1])
      return trm_error(TRM_USAGE,
                       "loss softmax_cross_entropy: the model gives scores of shape %s, %zu tokens of a "
                       "vocabulary of %zu want %s: 'head' gives these",
                       trm_shape_text(scores), spec->shape.size[0], spec->classes, trm_shape_text(&expected));
  } else if (trm_shape_count(scores) != spec->classes) {
    return trm_error(TRM_USAGE, "loss softmax_cross_entropy: the model gives scores of shape %s, the data set has %zu "
                     "classes: the two must agree", trm_shape_text(scores), spec->classes);
  }
  return TRM_OK;
}

static void loss_softmax_run(const struct trm_loss_call *c)
{
  c->device->ops->softmax_cross_entropy(c->device, &(struct trm_softmax_cross_entropy){
    .z = c->scores, .target = c->input->target_class, .weight = c->row_weight,
    .class_weight = c->class_weight, .scale = c->scale, .smoothing = c->smoothing, .loss = c->row_loss,
    .correct = c->row_correct, .dz = c->gradient, .b = c->rows, .c = c->classes, .ld = c->ld, .type = c->type});
}

/* Vocabulary-parallel (Shoeybi et al. 2019, section 3): ranks exchange a few numbers per row instead of its scores. */
static void loss_softmax_run_sharded(const struct trm_loss_call *c)
{
  struct trm_device *device = c->device;
  const size_t ranks = (size_t)c->axis->comm->size, r = c->rows, fields = r * TRM_SCORES_FIELDS;
  const int32_t *target = c->input->target_class;
  float *max = c->scratch, *sum = max + r, *stats = sum + r, *all = stats + fields;
  device->ops->softmax_shard_stats(device, &(struct trm_softmax_shard_stats){
    .z = c->scores, .target = target, .class_weight = c->class_weight, .v = c->shard, .stats = stats, .b = r,
    .ld = c->ld, .type = c->type});
  trm_axis_allgather(c->axis, stats, all, 1, ranks * fields, 1, TRM_VALUES_F32);
  device->ops->softmax_shard_join(device, &(struct trm_softmax_shard_join){
    .stats = all, .target = target, .weight = c->row_weight, .class_weight = c->class_weight, .v = c->shard,
    .ranks = ranks, .smoothing = c->smoothing, .loss = c->row_loss, .correct = c->row_correct, .max = max, .sum = sum,
    .b = r});
  if (c->gradient)
    device->ops->softmax_shard_gradient(device, &(struct trm_softmax_shard_gradient){
      .z = c->scores, .target = target, .weight = c->row_weight, .class_weight = c->class_weight, .v = c->shard,
      .max = max, .sum = sum, .scale = c->scale, .smoothing = c->smoothing, .dz = c->gradient, .b = r, .ld = c->ld,
      .type = c->type});
}

static int loss_values_check(const struct trm_loss *loss, const struct trm_shape *scores,
                             const struct trm_input_spec *spec)
{
  if (spec->target != TRM_TARGET_VALUE)
    return trm_error(TRM_USAGE, "loss %s is for value targets, the data set has %zu %s; softmax_cross_entropy would "
                     "suit", loss->name, spec->classes, loss_target_text(spec));
  if (trm_shape_count(scores) != spec->classes)
    return trm_error(TRM_USAGE, "loss %s: the model gives scores of shape %s, the targets are %zu values a sample: the "
                     "two must agree", loss->name, trm_shape_text(scores), spec->classes);
  return TRM_OK;
}

static struct trm_value_loss loss_values_call(const struct trm_loss_call *c)
{
  return (struct trm_value_loss){
    .z = c->scores, .target = c->input->target_value, .scale = c->scale, .delta = c->delta, .loss = c->row_loss,
    .correct = c->row_correct, .dz = c->gradient, .b = c->rows, .f = c->classes, .ld = c->ld, .type = c->type};
}

static void loss_squared_run(const struct trm_loss_call *c)
{
  const struct trm_value_loss call = loss_values_call(c);
  c->device->ops->mean_squared_error(c->device, &call);
}

static void loss_huber_run(const struct trm_loss_call *c)
{
  const struct trm_value_loss call = loss_values_call(c);
  c->device->ops->huber(c->device, &call);
}

static void loss_binary_run(const struct trm_loss_call *c)
{
  const struct trm_value_loss call = loss_values_call(c);
  c->device->ops->binary_cross_entropy(c->device, &call);
}

/* Logistic and hinge: one score; two classes, or one value per sample, -1 or +1. */
static int loss_signed_check(const struct trm_loss *loss, const struct trm_shape *scores,
                             const struct trm_input_spec *spec)
{
  if (trm_shape_count(scores) != 1)
    return trm_error(TRM_USAGE, "loss %s wants one score, the model gives scores of shape %s (the data set has %zu %s)",
                     loss->name, trm_shape_text(scores), spec->classes, loss_target_text(spec));
  if (spec->classes != (spec->target == TRM_TARGET_CLASS ? 2 : 1))
    return trm_error(TRM_USAGE, "loss %s is for two classes, or one value of -1 or +1; the data set has %zu %s",
                     loss->name, spec->classes, loss_target_text(spec));
  return TRM_OK;
}

static void loss_logistic_run(const struct trm_loss_call *c)
{
  c->device->ops->logistic(c->device, &(struct trm_margin_loss){
    .z = c->scores, .target = c->input->target_value, .scale = c->scale, .loss = c->row_loss, .correct = c->row_correct,
    .dz = c->gradient, .b = c->rows, .type = c->type});
}

static void loss_hinge_run(const struct trm_loss_call *c)
{
  c->device->ops->hinge(c->device, &(struct trm_margin_loss){
    .z = c->scores, .target = c->input->target_value, .scale = c->scale, .loss = c->row_loss, .correct = c->row_correct,
    .dz = c->gradient, .b = c->rows, .type = c->type});
}

static const struct trm_loss loss_softmax_cross_entropy = {
  .name = "softmax_cross_entropy",
  .check = loss_softmax_check,
  .run = loss_softmax_run,
  .run_sharded = loss_softmax_run_sharded,
  .smooths = true,
  .counts_correct = true,
};

static const struct trm_loss loss_mean_squared_error = {
  .name = "mean_squared_error",
  .check = loss_values_check,
  .run = loss_squared_run,
};

static const struct trm_loss loss_huber = {
  .name = "huber",
  .check = loss_values_check,
  .run = loss_huber_run,
};

static const struct trm_loss loss_binary_cross_entropy = {
  .name = "binary_cross_entropy",
  .check = loss_values_check,
  .run = loss_binary_run,
  .counts_correct = true,
  .labels = true,
};

static const struct trm_loss loss_logistic = {
  .name = "logistic",
  .check = loss_signed_check,
  .run = loss_logistic_run,
  .counts_correct = true,
  .signed_target = true,
};

static const struct trm_loss loss_hinge = {
  .name = "hinge",
  .check = loss_signed_check,
  .run = loss_hinge_run,
  .counts_correct = true,
  .signed_target = true,
};

const struct trm_loss *const trm_loss_table[] = {
  &loss_softmax_cross_entropy, &loss_mean_squared_error, &loss_logistic, &loss_hinge, &loss_huber,
  &loss_binary_cross_entropy, NULL,
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
  trm_error(TRM_USAGE, "there is no loss '%s'%s", name, trm_did_you_mean(name, known));
  return NULL;
}
