/* A small model and its checkpoints: first inputs of the fuzzers, and files that are edited. */
#pragma once

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "train/strategy.h"

/* Creates the model; returns its weights, which the caller frees. */
static inline float *fuzz_make_model(struct trm_model *model)
{
  const struct trm_input_spec spec = {.shape = {.dims = 1, .size = {3}}, .target = TRM_TARGET_CLASS, .classes = 2};
  if (trm_model_create(model, "mlp 3-4-2 relu", "auto", &spec) != TRM_OK)
    trm_abort(TRM_FAILED);
  float *weights = trm_alloc(model->parameters * sizeof *weights, "weights");
  trm_model_init(model, 1, weights);
  return weights;
}

static inline int fuzz_local_states_next(void *context, int rank, const struct trm_local_state **states, int *count)
{
  static char one[100] = "one", two[8] = "two";
  static const struct trm_local_state all[] = {{"test: one", one, sizeof one}, {"test: two", two, sizeof two}};
  (void)context, (void)rank;
  *states = all;
  *count = 2;
  return TRM_OK;
}

/* Writes a checkpoint with two states; an odd number has local states of two ranks. */
static inline int fuzz_make_checkpoint(const char *path, unsigned number)
{
  struct trm_model model;
  float *weights = fuzz_make_model(&model);
  const struct trm_checkpoint c = {
    .updates = 17, .model_text = model.text, .loss_name = (char *)model.loss->name, .config = (char *)"a: b\n",
    .spec = model.spec, .states = 2, .state_name = {"weights", "momentum"}, .state = {weights, weights},
    .local_state_ranks = number % 2 ? 2 : 0, .read_local_states = fuzz_local_states_next};
  const int status = trm_checkpoint_hdf5.write(path, &c, &model);
  trm_free(weights);
  trm_model_free(&model);
  return status;
}
