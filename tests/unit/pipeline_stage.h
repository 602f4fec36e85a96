/* One pipeline stage and the whole model for comparison, for the tests of pipelines. A program includes this once. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/kernels.h"
#include "mpi/pipeline/pipeline.h"
#include "nn/balance.h"
#include "ranks.h"
#include "support/nn_case.h"

enum { MICROS = 8 };

/* The model and its batch, equal on all ranks. */
struct setup {
  const char *text, *loss;
  enum trm_schedule_name schedule;
  const struct trm_input_spec *spec;
  int micros, chunks;
  size_t rows;
  bool no_stash;
};

static const char *text_of(const struct setup *s)
{
  static char text[512];
  snprintf(text, sizeof text, "%s, %s, %d micro-batches of %zu rows, %d stages", s->text,
           trm_choice_text("parallel.schedule", s->schedule), s->micros, s->rows, world->size);
  return text;
}

#define CHECK(setup, condition)                                                                \
  do {                                                                                         \
    const bool holds = (condition);                                                            \
    if (!holds)                                                                                \
      printf("\n    %s, rank %d: %s (%s)\n", text_of(setup), world->rank, #condition, trm_error_text()); \
    CU_ASSERT(holds);                                                                          \
  } while (0)

/* One stage, and the whole model for comparison. */
struct stage {
  const struct setup *setup;
  struct trm_device *device;
  struct nn_case full;
  struct trm_model model;
  float *w, *g;
  struct trm_pipeline pipeline;
  size_t rows[MICROS], low[MICROS];
  struct trm_pipeline_batch batch;
  struct trm_loss_sums sums;
  size_t ready;          /* flat elements that are ready */
  bool in_order;
  void *context;             /* of the test */
};

static float *floats_alloc(struct trm_device *device, size_t n)
{
  void *memory;
  CU_ASSERT_FATAL(device->ops->alloc(device, n * sizeof(float), TRM_MEMORY_BUFFERS, &memory) == TRM_OK);
  return memory;
}

/* Returns the parameter of the whole model that a parameter of the stage corresponds to. */
static const struct trm_parameter *in_full(const struct stage *s, const struct trm_parameter *parameter)
{
  const struct trm_parameter *there = trm_model_parameter(&s->full.model, parameter->number);
  CU_ASSERT_FATAL(there->count == parameter->count && strcmp(there->name, parameter->name) == 0);
  return there;
}

static void weights_set(struct stage *s)
{
  for (int n = 0; n < trm_model_parameter_count(&s->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&s->model, n);
    s->device->ops->copy(s->device, s->w + p->offset, s->full.w + in_full(s, p)->offset, p->count * sizeof(float));
  }
}

/* Returns false if the model cannot be split into so many stages. */
static bool stage_open(struct stage *s, const struct setup *setup, struct trm_device *device)
{
  *s = (struct stage){.setup = setup, .device = device};
  struct trm_schedule schedule;
  struct trm_model_part part = {.tensor_size = 1};
  CHECK(setup, trm_schedule_create(&schedule, setup->schedule, world->size, setup->chunks, setup->micros) == TRM_OK);
  const size_t max_rows = (setup->rows + (size_t)setup->micros - 1) / (size_t)setup->micros;
  CU_ASSERT_FATAL(nn_case_open(&s->full, device, setup->text, setup->loss, setup->spec, max_rows ? max_rows : 1, 3) ==
                  TRM_OK);
  if (trm_balance_stage(&s->full.model, "auto", schedule.stages, schedule.chunks, world->rank, &part) != TRM_OK) {
    nn_case_close(&s->full);
    return false;
  }
  CU_ASSERT_FATAL(trm_model_create_part(&s->model, setup->text, setup->loss, setup->spec, &part) == TRM_OK);
  s->w = floats_alloc(device, s->model.parameters);
  s->g = floats_alloc(device, s->model.parameters);
  weights_set(s);
  s->pipeline = (struct trm_pipeline){.ops = &trm_pipeline_messages, .comm = world, .model = &s->model,
                                      .schedule = schedule, .stash = !setup->no_stash};
  CU_ASSERT_FATAL(s->pipeline.ops->create(&s->pipeline) == TRM_OK);
  CU_ASSERT_FATAL(trm_model_bind_slots(&s->model, device, s->w, s->g, max_rows, true, s->pipeline.slots) == TRM_OK);
  nn_case_draw(&s->full, setup->rows, 11);
  for (int m = 0; m < setup->micros; m++) {
    size_t high;
    trm_interval(setup->rows, (size_t)setup->micros, (size_t)m, &s->low[m], &high);
    s->rows[m] = high - s->low[m];
  }
  s->batch = (struct trm_pipeline_batch){.first_row = 100, .scale = 1.0f / (float)setup->rows, .micros = setup->micros,
                                         .rows = s->rows};
  return true;
}

static void stage_close(struct stage *s)
{
  s->pipeline.ops->destroy(&s->pipeline);
  trm_model_free(&s->model);
  s->device->ops->release(s->device, s->w);
  s->device->ops->release(s->device, s->g);
  nn_case_close(&s->full);
}

/* Returns the largest difference relative to the largest value; 0 only for equal bits. */
static double difference(const float *a, const float *b, size_t n)
{
  double max_difference = 0, largest = 0;
  if (memcmp(a, b, n * sizeof *a) == 0)
    return 0;
  for (size_t i = 0; i < n; i++) {
    max_difference = fmax(max_difference, fabs((double)a[i] - (double)b[i]));
    largest = fmax(largest, fabs((double)b[i]));
  }
  return max_difference > 0 ? max_difference / largest : 1e-30; /* 0 and -0 differ in bits */
}

static struct trm_device *current_device;
