#include "plan/planner.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/status.h"
#include "train/compatibility.h"

/* -- opening */

static int planner_check_request(const struct trm_options *o, const struct trm_modules *modules,
                                 const struct trm_planner_request *request, const struct trm_machine *machine)
{
  if (request->ranks < 1 || request->nodes < 1 || request->ranks % request->nodes != 0)
    return trm_error(TRM_USAGE, "plan: %d ranks on %d nodes: each has to have the same number of ranks, at least 1",
                     request->ranks, request->nodes);
  if (o->data.file[0] == '\0')
    return trm_error(TRM_USAGE, "data.file: no data set named; a plan needs the shape of its samples");
  if (o->model[0] == '\0')
    return trm_error(TRM_USAGE, "model: no model named (for example model: mlp 784-256-10 relu)");
  const struct trm_run_facts facts = {
    .options = o, .strategy = modules->strategy, .device_memory = machine->device_bytes > 0, .plans = true};
  return trm_compatibility_check(&facts);
}

int trm_planner_open(struct trm_planner *planner, const struct trm_options *options, const struct trm_modules *modules,
                     const struct trm_planner_request *request, struct trm_machine *machine)
{
  *planner = (struct trm_planner){.limit = request->limit, .machine = machine};
  TRM_CHECK(planner_check_request(options, modules, request, machine));
  const int cores = request->cores ? request->cores : machine->cores, each = cores / (request->ranks / request->nodes);
  const int threads = options->parallel.threads ? (int)options->parallel.threads : each > 0 ? each : 1;
  planner->job = (struct trm_layout_job){.options = options,
                                         .modules = modules,
                                         .full_model = &planner->full_model,
                                         .machine = machine,
                                         .budget = &planner->budget,
                                         .ranks = request->ranks,
                                         .nodes = request->nodes,
                                         .threads = threads,
                                         .cores = cores,
                                         .has_communicated = request->has_communicated};
  TRM_CHECK(trm_budget_begin(&planner->budget, modules->device, true));
  TRM_CHECK(trm_splits_open(&planner->splits, modules->dataset, options, trm_comm_self()));
  trm_budget_charge_data(&planner->budget);
  planner->job.spec = &planner->splits.train->spec;
  planner->job.rows = planner->splits.train->rows;
  TRM_CHECK(trm_model_create(&planner->full_model, options->model,
                             trm_choice_text("train.loss", options->train.loss), planner->job.spec));
  planner->full_model.smoothing = (float)options->train.smoothing;
  TRM_CHECK(trm_model_set_loss_chunk(&planner->full_model, (size_t)options->train.loss_chunk));
  return trm_model_set_values(&planner->full_model, options->train.activations);
}

static void planner_clear(struct trm_planner *p)
{
  for (int i = 0; i < p->refusals; i++)
    trm_free(p->refused[i].reason);
  p->refusals = p->count = 0;
}

void trm_planner_close(struct trm_planner *p)
{
  trm_device_batch_free(&p->device_batch);
  trm_host_batch_free(&p->batch);
  planner_clear(p);
  trm_free(p->refused);
  trm_free(p->planned);
  if (p->full_model.layer)
    trm_model_free(&p->full_model);
  trm_splits_close(&p->splits);
  *p = (struct trm_planner){.count = 0};
}

static void planner_add_refused(struct trm_planner *p, const struct trm_layout *layout, const char *reason)
{
  const size_t used = (size_t)p->refusals++;
  p->refused = trm_grow(p->refused, &p->refused_capacity, used, used + 1, sizeof *p->refused, "layouts");
  p->refused[used] = (struct trm_refused){.layout = *layout, .reason = trm_strdup(reason)};
}

static void planner_add_planned(struct trm_planner *p, const struct trm_planned *planned)
{
  const size_t used = (size_t)p->count++;
  p->planned = trm_grow(p->planned, &p->planned_capacity, used, used + 1, sizeof *p->planned, "layouts");
  p->planned[used] = *planned;
}

/* -- layouts */

/* Measures what is not known of models on so many rows. */
static int planner_measure(struct trm_planner *p, struct trm_machine_bench *bench, size_t rows,
                           const struct trm_model *model, int models)
{
  struct trm_input input;
  rows = rows < p->splits.train->rows ? rows : p->splits.train->rows;
  TRM_CHECK(trm_machine_measure_batches(p->machine, bench, p->splits.train, &p->full_model, rows));
  TRM_CHECK(p->splits.train->ops->fetch(p->splits.train, 0, 0, rows, &p->batch));
  TRM_CHECK(trm_device_batch_upload(&p->device_batch, &p->batch, &input));
  for (int i = 0; i < models; i++)
    TRM_CHECK(trm_machine_measure_model(p->machine, bench, &model[i], &input, rows));
  return TRM_OK;
}

/* Fails if the layout cannot be combined with the job's method and options. */
static int planner_check_layout(const struct trm_planner *p, const struct trm_layout *layout)
{
  struct trm_options options = *p->job.options;
  trm_layout_apply(&options, layout);
  const struct trm_run_facts facts = {.options = &options,
                                      .strategy = p->job.modules->strategy,
                                      .stages = layout->size[TRM_AXIS_PIPELINE],
                                      .tensor_ranks = layout->size[TRM_AXIS_TENSOR],
                                      .device_memory = p->machine->device_bytes > 0,
                                      .plans = true};
  return trm_compatibility_check(&facts);
}

/* Computes memory and time of a layout. TRM_USAGE: it is not valid. */
static int planner_estimate(struct trm_planner *p, struct trm_machine_bench *bench, struct trm_planned *planned)
{
  struct trm_layout_models models;
  TRM_CHECK(planner_check_layout(p, &planned->layout));
  TRM_CHECK(trm_layout_models_create(&models, &p->job, &planned->layout));
  int status = TRM_OK;
  if (bench)
    status = planner_measure(p, bench, trm_layout_micro_batch_rows(&p->job, &planned->layout), models.model,
                             models.stages);
  if (status == TRM_OK)
    status = trm_layout_memory(&p->job, &planned->layout, &models, &planned->memory);
  if (status == TRM_OK)
    trm_layout_time(&p->job, &planned->layout, &models, &planned->time);
  planned->fits = (p->limit <= 0 || planned->memory.total <= p->limit) &&
                  (planned->memory.device <= p->machine->device_bytes);
  trm_layout_models_free(&models);
  return status;
}

/* Returns true if a layout from `first` on has the same results: if ranks share memory, some levels of parallel.zero
 * are equal. */
static bool planner_is_duplicate(const struct trm_planner *p, int first, const struct trm_planned *planned)
{
  for (int i = first; i < p->count; i++)
    if (p->planned[i].memory.total == planned->memory.total && p->planned[i].time.step_s == planned->time.step_s)
      return true;
  return false;
}

/* Adds the layouts of all levels of parallel.zero, without and with recomputation if that saves memory. */
static int planner_add_schedule(struct trm_planner *p, struct trm_machine_bench *bench, const struct trm_layout *layout)
{
  const int levels = layout->size[TRM_AXIS_DATA] > 1 ? 4 : 1, first = p->count;
  const char *requested = p->job.options->parallel.recompute;
  const char *const modes[] = {"none", strcmp(requested, "none") == 0 ? "block" : requested};
  double without = 0; /* bytes of activations without recomputation */
  for (int i = 0; i < 2 * levels; i++) {
    struct trm_planned planned = {.layout = *layout};
    planned.layout.zero = i / 2;
    snprintf(planned.layout.recompute, sizeof planned.layout.recompute, "%s", modes[i % 2]);
    const int status = planner_estimate(p, bench, &planned);
    if (status == TRM_USAGE) {
      planner_add_refused(p, &planned.layout, trm_error_text());
      return TRM_OK;
    }
    TRM_CHECK(status);
    const double activations = planned.memory.part[TRM_LAYOUT_ACTIVATIONS];
    if (i % 2 == 0)
      without = activations;
    if (!planner_is_duplicate(p, first, &planned) && (i % 2 == 0 || activations < 0.99 * without))
      planner_add_planned(p, &planned);
  }
  return TRM_OK;
}

static int planner_add_grid(struct trm_planner *p, struct trm_machine_bench *bench, int data, int stages, int tensors)
{
  const struct trm_options *o = p->job.options;
  struct trm_layout layout = {
    .size = {[TRM_AXIS_DATA] = data, [TRM_AXIS_PIPELINE] = stages, [TRM_AXIS_TENSOR] = tensors},
    .schedule = TRM_1F1B,
    .chunks = 1,
    .recompute = "none"};
  if ((uint64_t)data * (uint64_t)o->train.accumulate > (uint64_t)o->train.batch) {
    planner_add_refused(p, &layout, "train.batch: fewer samples than ranks of the data axis, times train.accumulate");
    return TRM_OK;
  }
  TRM_CHECK(planner_add_schedule(p, bench, &layout));
  if (stages == 1 || o->train.accumulate == 1) /* with one micro-batch all schedules are equal */
    return TRM_OK;
  layout.schedule = TRM_GPIPE;
  TRM_CHECK(planner_add_schedule(p, bench, &layout));
  layout.schedule = TRM_INTERLEAVED;
  layout.chunks = o->parallel.chunks > 1 ? (int)o->parallel.chunks : 2;
  return planner_add_schedule(p, bench, &layout);
}

static int planner_compare(const void *a, const void *b)
{
  const struct trm_planned *x = a, *y = b;
  if (x->fits != y->fits)
    return x->fits ? -1 : 1;
  if (x->time.step_s != y->time.step_s)
    return x->time.step_s < y->time.step_s ? -1 : 1;
  return (x->memory.total > y->memory.total) - (x->memory.total < y->memory.total);
}

/* Fills in all layouts in order of tensor ranks, stages, schedules and levels; measures what the machine lacks. */
static int planner_fill(struct trm_planner *p, struct trm_machine_bench *bench)
{
  const int ranks = p->job.ranks;
  planner_clear(p);
  if (bench) {
    struct trm_optimizer optimizer;
    TRM_CHECK(trm_optimizer_create(&optimizer, p->job.options, &p->full_model));
    TRM_CHECK(trm_machine_measure_arrays(p->machine, bench, &optimizer));
    TRM_CHECK(planner_measure(p, bench, (size_t)p->job.options->train.batch, &p->full_model, 1));
  }
  for (int tensors = 1; tensors <= ranks; tensors++)
    for (int stages = 1; tensors * stages <= ranks; stages++)
      if (ranks % (tensors * stages) == 0)
        TRM_CHECK(planner_add_grid(p, bench, ranks / tensors / stages, stages, tensors));
  if (p->count == 0)
    return trm_error(TRM_USAGE, "plan: no layout for %d ranks: %s", ranks, p->refusals ? p->refused[0].reason : "");
  return TRM_OK;
}

static int planner_find_fastest(const struct trm_planner *p)
{
  int fastest = 0;
  for (int i = 1; i < p->count; i++)
    if (planner_compare(&p->planned[i], &p->planned[fastest]) < 0)
      fastest = i;
  return fastest;
}

/* -- measurements */

#define AGREEMENT 0.03 /* of two measurements on a machine without other work */
#define MARGIN 0.05    /* of the model; tests/bench/plan_vs_train.sh compares it with runs */

static void planner_use(struct trm_planner *p, struct trm_machine *machine)
{
  p->machine = machine;
  p->job.machine = machine;
}

/* Measures what `known` lacks, merges it into the machine, and sets *fastest_s. */
static int planner_measure_round(struct trm_planner *p, struct trm_machine_bench *bench,
                                 const struct trm_machine *known, double *fastest_s)
{
  struct trm_machine *const machine = p->machine, measured;
  trm_machine_copy(&measured, known);
  planner_use(p, &measured);
  const int status = planner_fill(p, bench);
  planner_use(p, machine);
  trm_machine_merge(machine, &measured);
  trm_machine_free(&measured);
  if (status == TRM_OK)
    *fastest_s = p->planned[planner_find_fastest(p)].time.step_s;
  return status;
}

static int planner_measure_machine(struct trm_planner *p, struct trm_machine_bench *bench)
{
  const double limit = bench->seconds;
  double seconds[TRM_PLAN_ROUNDS];
  struct trm_machine known;
  trm_machine_copy(&known, p->machine);
  int status = TRM_OK;
  p->spread = INFINITY;
  while (status == TRM_OK && p->rounds < TRM_PLAN_ROUNDS && p->spread > AGREEMENT) {
    bench->seconds = bench->spent + limit;
    status = planner_measure_round(p, bench, &known, &seconds[p->rounds]);
    if (status != TRM_OK)
      break;
    double sorted[TRM_PLAN_ROUNDS];
    p->rounds++;
    memcpy(sorted, seconds, sizeof sorted);
    trm_quantile(sorted, (size_t)p->rounds, 0); /* sorts */
    p->spread = p->rounds > 1 ? (sorted[1] - sorted[0]) / sorted[0] : INFINITY;
  }
  trm_machine_free(&known);
  return status;
}

/* Puts the first of the layouts that are as good as the fastest first, and the others in the order of their times. */
static void planner_sort(struct trm_planner *p)
{
  const struct trm_planned fastest = p->planned[planner_find_fastest(p)];
  int best = -1;
  for (int i = 0; i < p->count; i++)
    if (p->planned[i].fits == fastest.fits && p->planned[i].time.step_s <= (1 + MARGIN) * fastest.time.step_s) {
      p->equals += best >= 0;
      best = best < 0 ? i : best;
    }
  const struct trm_planned first = p->planned[best];
  p->planned[best] = p->planned[0];
  p->planned[0] = first;
  qsort(p->planned + 1, (size_t)(p->count - 1), sizeof *p->planned, planner_compare);
}

int trm_planner_run(struct trm_planner *planner, struct trm_machine_bench *bench)
{
  trm_device_batch_create(&planner->device_batch, planner->job.modules->device, &planner->full_model);
  if (bench)
    TRM_CHECK(planner_measure_machine(planner, bench));
  TRM_CHECK(planner_fill(planner, NULL));
  planner_sort(planner);
  return TRM_OK;
}

/* -- the chosen layout */

const char *trm_layout_text(const struct trm_layout *layout)
{
  enum { BYTES = 200 };
  char *text = trm_context_text();
  const int *size = layout->size;
  int used = snprintf(text, BYTES, "data %d x pipeline %d x tensor %d", size[TRM_AXIS_DATA],
                      size[TRM_AXIS_PIPELINE], size[TRM_AXIS_TENSOR]);
  if (size[TRM_AXIS_PIPELINE] > 1)
    used += snprintf(text + used, BYTES - (size_t)used, ", %s",
                     trm_choice_text("parallel.schedule", layout->schedule));
  if (layout->chunks > 1)
    used += snprintf(text + used, BYTES - (size_t)used, " of %d chunks", layout->chunks);
  if (layout->zero)
    used += snprintf(text + used, BYTES - (size_t)used, ", zero %d", layout->zero);
  if (strcmp(layout->recompute, "none") != 0)
    snprintf(text + used, BYTES - (size_t)used, ", recompute %.20s", layout->recompute);
  return text;
}
