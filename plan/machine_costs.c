/* The costs of runs with modeled time, by the figures of a machine. */
#include <stdio.h>

#include "core/status.h"
#include "plan/machine.h"
#include "plan/stage_cost.h"

static int machine_require(const struct trm_machine *machine, const char *option, const char *name)
{
  return trm_machine_knows(machine, name)
           ? TRM_OK
           : trm_error(TRM_USAGE, "%s: the file has no figures of \"%s\"; trireme plan --calibrate=FILE "
                       "with this model and data set writes them", option, name);
}

int trm_machine_require_model(const struct trm_machine *machine, const struct trm_model *model, const char *option)
{
  char loss[48];
  trm_machine_loss_name(model, loss);
  TRM_CHECK(machine_require(machine, option, "batch"));
  for (int i = 0; i < model->layers; i++) {
    const struct trm_layer *layer = &model->layer[i];
    if (trm_machine_is_layer_work(layer))
      TRM_CHECK(machine_require(machine, option, trm_machine_layer_work(layer, 1).name));
  }
  return machine_require(machine, option, loss);
}

static int machine_gradient_seconds(const struct trm_costs *costs, const struct trm_model *model, size_t rows,
                                    double *seconds)
{
  const struct trm_machine *machine = ((const struct trm_machine_costs *)costs)->machine;
  TRM_CHECK(trm_machine_require_model(machine, model, "simulate.machine"));
  *seconds = trm_machine_seconds(machine, "batch", 0, trm_machine_batch_bytes(model, rows), NULL) +
             stage_gradient_seconds(machine, model, rows);
  return TRM_OK;
}

static int machine_array_seconds(const struct trm_costs *costs, double bytes, struct trm_array_costs *arrays)
{
  const struct trm_machine *machine = ((const struct trm_machine_costs *)costs)->machine;
  TRM_CHECK(machine_require(machine, "simulate.machine", "sum"));
  TRM_CHECK(machine_require(machine, "simulate.machine", "copy"));
  TRM_CHECK(machine_require(machine, "simulate.machine", "update"));
  *arrays = (struct trm_array_costs){.sum = trm_machine_seconds(machine, "sum", 0, bytes, NULL) / bytes,
                                     .copy = trm_machine_seconds(machine, "copy", 0, bytes, NULL) / bytes,
                                     .update = trm_machine_seconds(machine, "update", 0, bytes, NULL) / bytes};
  return TRM_OK;
}

void trm_machine_costs_create(struct trm_machine_costs *costs, const struct trm_machine *machine)
{
  *costs = (struct trm_machine_costs){
    .costs = {.gradient = machine_gradient_seconds, .arrays = machine_array_seconds}, .machine = machine};
}
