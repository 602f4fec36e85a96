/* The memory of a layout: the setting up of a run, rehearsed. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/balance.h"
#include "plan/layout.h"

/* Found by measurement, with MPICH and HDF5: what the library of messages takes in a job of several ranks, and for each
 * of those on the node; what the program itself first touches while it makes a step; and what the library that writes
 * files takes for a checkpoint. */
#define PEERS_BYTES 3.5e6
#define PEER_BYTES 0.25e6
#define STEP_BYTES 2e6
#define FILE_BYTES 3.5e6

const char *const trm_layout_part_name[TRM_LAYOUT_PARTS] = {"parameters", "gradients", "states", "activations",
                                                            "buffers",    "data",      "program"};

/* -- the parts of the model */

static int stage_create(const struct trm_layout_job *job, const struct trm_layout *layout, int stage,
                        struct trm_layout_models *models)
{
  const struct trm_options *o = job->options;
  const int tensors = layout->size[TRM_AXIS_TENSOR];
  struct trm_model_part part = {.tensor = tensors - 1, .tensors = tensors, .by_positions = o->parallel.sequence};
  if (models->stages > 1)
    TRM_CHECK(trm_balance_part(job->whole, o->parallel.cut, models->stages, models->schedule.chunks, stage, &part));
  return trm_model_create_part(&models->model[stage], o->model, o->train.loss, job->spec, &part);
}

int trm_layout_models_create(struct trm_layout_models *models, const struct trm_layout_job *job,
                             const struct trm_layout *layout)
{
  *models = (struct trm_layout_models){.stages = layout->size[TRM_AXIS_PIPELINE]};
  models->model = trm_alloc((size_t)models->stages * sizeof *models->model, "models");
  trm_imagined_device_open(&models->device, job->parts->device, NULL);
  int status = trm_schedule_create(&models->schedule, layout->schedule, models->stages, layout->chunks,
                                   (int)job->options->train.accumulate);
  for (int stage = 0; stage < models->stages && status == TRM_OK; stage++)
    status = stage_create(job, layout, stage, models);
  if (status != TRM_OK)
    trm_layout_models_free(models);
  return status;
}

void trm_layout_models_free(struct trm_layout_models *models)
{
  for (int stage = 0; stage < models->stages && models->model; stage++)
    if (models->model[stage].layer)
      trm_model_free(&models->model[stage]);
  trm_free(models->model);
  models->model = NULL;
}

/* -- places */

size_t trm_layout_rows(const struct trm_layout_job *job, const struct trm_layout *layout)
{
  const size_t asked = (size_t)job->options->train.batch, batch = asked < job->rows ? asked : job->rows;
  const size_t parts = (size_t)layout->size[TRM_AXIS_DATA], pieces = (size_t)job->options->train.accumulate;
  const size_t part = (batch + parts - 1) / parts;
  return (part + pieces - 1) / pieces;
}

int trm_layout_near(const struct trm_layout_job *job, const struct trm_layout *layout)
{
  const int here = job->ranks / job->nodes, data = layout->size[TRM_AXIS_DATA], tensors = layout->size[TRM_AXIS_TENSOR];
  const int block = data * tensors; /* ranks of a stage, which follow one another (grid.h) */
  if (here % tensors != 0)
    return 1;
  if (block <= here)
    return here % block == 0 ? data : 1;
  return block % here == 0 ? here / tensors : 1;
}

struct trm_options trm_layout_options(const struct trm_layout_job *job, const struct trm_layout *layout)
{
  struct trm_options o = *job->options;
  o.parallel.data = layout->size[TRM_AXIS_DATA];
  o.parallel.pipeline = layout->size[TRM_AXIS_PIPELINE];
  o.parallel.tensor = layout->size[TRM_AXIS_TENSOR];
  o.parallel.zero = layout->zero;
  o.parallel.schedule = (char *)layout->schedule;
  o.parallel.chunks = layout->chunks;
  o.parallel.recompute = (char *)layout->recompute;
  return o;
}

/* -- arrays */

/* The strategy's. Those of states that are in files are no memory. *pieces: its state is read piece by piece. */
static int count_strategy(const struct trm_layout_job *job, const struct trm_layout *layout,
                          const struct trm_model *model, struct trm_imagined_account *account, bool *pieces)
{
  static char none[] = "";
  struct trm_options o = trm_layout_options(job, layout);
  const bool offloads = o.parallel.offload[0] != '\0';
  o.parallel.offload = none;
  struct trm_optimizer optimizer;
  TRM_CHECK(trm_optimizer_create(&optimizer, &o, model->tensor, model->tensors));
  struct trm_imagined_comm data;
  struct trm_imagined_device device;
  trm_imagined_comm_open(&data, layout->size[TRM_AXIS_DATA], trm_layout_near(job, layout), account);
  trm_imagined_device_open(&device, job->parts->device, account);
  struct trm_strategy strategy = {.ops = job->parts->strategy,
                                  .comm = &data.face,
                                  .device = &device.face,
                                  .optimizer = &optimizer,
                                  .options = &o,
                                  .elements = model->parameters,
                                  .boundary = model->boundary,
                                  .boundaries = model->boundaries};
  const size_t before = trm_memory_held();
  TRM_CHECK(strategy.ops->create(&strategy));
  account->own[TRM_IMAGINED_BUFFERS] += trm_memory_held() - before;
  *pieces = strategy.ops->read != NULL;
  strategy.ops->destroy(&strategy);
  if (offloads)
    account->own[TRM_IMAGINED_STATES] = 0;
  return TRM_OK;
}

/* What the passes need, and their batches. */
static int count_passes(const struct trm_layout_job *job, const struct trm_layout *layout,
                        struct trm_layout_models *models, int stage, struct trm_imagined_account *account,
                        double *batches)
{
  struct trm_model *model = &models->model[stage];
  const bool several = models->stages > 1;
  const int slots = several ? trm_schedule_slots(&models->schedule, stage) : 1;
  TRM_CHECK(trm_model_recompute(layout->recompute, &model->recompute));
  models->device.account = account;
  const size_t before = trm_memory_held();
  TRM_CHECK(trm_model_bind_slots(model, &models->device.face, NULL, NULL, trm_layout_rows(job, layout), true, slots));
  account->own[TRM_IMAGINED_BUFFERS] += trm_memory_held() - before;
  struct trm_budget first = {.held = 0};
  trm_budget_first_step(&first, model);
  account->own[TRM_IMAGINED_ACTIVATIONS] += first.part[TRM_BUDGET_ACTIVATIONS];
  const bool reads = stage == 0 || stage == models->stages - 1;
  *batches = reads ? (double)first.part[TRM_BUDGET_DATA] * slots : 0;
  return TRM_OK;
}

/* The messages of a stage: values and gradients at both ends of each chunk. */
static double message_bytes(const struct trm_layout_models *models, int stage, size_t rows)
{
  const struct trm_model *model = &models->model[stage];
  double floats = 0;
  for (int c = 0; models->stages > 1 && c < model->chunks; c++) {
    const struct trm_layer *first = &model->layer[model->chunk[c].first],
                           *last = &model->layer[model->chunk[c].last - 1];
    if (first->from == TRM_FROM_NONE)
      floats += (double)trm_shape_count(&first->out) * (first->needs_dy ? 2 : 1);
    if (!last->scores)
      floats += (double)trm_shape_count(&last->out) * (last->needs_dy ? 2 : 1);
  }
  return TRM_MESSAGES_AHEAD * floats * (double)rows * sizeof(float);
}

static bool has_parameter(const struct trm_model *model, int number)
{
  for (int n = 0; n < trm_model_parameter_count(model); n++)
    if (trm_model_parameter(model, n)->number == number)
      return true;
  return false;
}

double trm_layout_tied_bytes(const struct trm_layout_models *models, int stage, int besides)
{
  const struct trm_model *model = &models->model[stage];
  double bytes = 0;
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *parameter = trm_model_parameter(model, n);
    int holders = 0;
    for (int s = 0; s < models->stages; s++)
      holders += has_parameter(&models->model[s], parameter->number);
    bytes += holders > 1 ? (holders - besides) * (double)parameter->count * sizeof(float) : 0;
  }
  return bytes;
}

static double largest_tensor(const struct trm_model *model)
{
  size_t most = 0;
  for (int n = 0; n < trm_model_parameter_count(model); n++)
    most = trm_model_parameter(model, n)->count > most ? trm_model_parameter(model, n)->count : most;
  return sizeof(float) * (double)most;
}

/* Rank 0 brings tensor by tensor together for checkpoints: whole, and the piece of another rank (whole.h). pieces: the
 * strategy brings those of its own ranks together, too. */
static double gathering_bytes(const struct trm_layout_job *job, const struct trm_layout *layout,
                              const struct trm_layout_models *models, bool pieces)
{
  const bool parts = layout->size[TRM_AXIS_PIPELINE] * layout->size[TRM_AXIS_TENSOR] > 1;
  double piece = 0;
  for (int s = 0; s < models->stages && parts; s++)
    piece = fmax(piece, largest_tensor(&models->model[s]));
  if (job->options->run.checkpoint_every < 0)
    return 0;
  return FILE_BYTES + (parts || pieces ? largest_tensor(job->whole) + piece : 0);
}

/* Between ranks that share no memory gradients travel in buckets, each to the end of a layer (mpi/sync): the library of
 * messages takes as much again as the largest, to add. */
static double bucket_bytes(const struct trm_layout_job *job, const struct trm_layout *layout,
                           const struct trm_model *model)
{
  const struct trm_options *o = job->options;
  const bool shares = strcmp(o->parallel.share, "none") != 0 && job->parts->device->host_memory;
  const int data = layout->size[TRM_AXIS_DATA], near = shares ? trm_layout_near(job, layout) : 1;
  const double least = (double)o->parallel.bucket / sizeof(float);
  double most = 0, low = 0;
  if (data == near || layout->zero > 0)
    return 0;
  for (int i = 0; i <= model->boundaries; i++) {
    const double high = (double)(i < model->boundaries ? model->boundary[i] : model->parameters);
    if (high - low < least && i < model->boundaries)
      continue;
    most = fmax(most, (high - low) / ceil((high - low) / (4 * least)));
    low = high;
  }
  return sizeof(float) * most / near;
}

static int stage_memory(const struct trm_layout_job *job, const struct trm_layout *layout,
                        struct trm_layout_models *models, int stage, struct trm_layout_memory *memory)
{
  struct trm_imagined_account account = {.others = 0};
  double batches;
  bool pieces;
  TRM_CHECK(count_strategy(job, layout, &models->model[stage], &account, &pieces));
  TRM_CHECK(count_passes(job, layout, models, stage, &account, &batches));
  const double windows = (double)job->budget->part[TRM_BUDGET_DATA];
  *memory = (struct trm_layout_memory){
    .part = {
      [TRM_LAYOUT_PARAMETERS] = (double)account.own[TRM_IMAGINED_WEIGHTS],
      [TRM_LAYOUT_GRADIENTS] = (double)account.own[TRM_IMAGINED_GRADIENTS],
      [TRM_LAYOUT_STATES] = (double)account.own[TRM_IMAGINED_STATES],
      [TRM_LAYOUT_ACTIVATIONS] = (double)account.own[TRM_IMAGINED_ACTIVATIONS],
      [TRM_LAYOUT_BUFFERS] = (double)account.own[TRM_IMAGINED_BUFFERS] + trm_layout_tied_bytes(models, stage, 0) +
                             message_bytes(models, stage, trm_layout_rows(job, layout)) +
                             fmax(bucket_bytes(job, layout, &models->model[stage]), /* never at the same time */
                                  stage ? 0 : gathering_bytes(job, layout, models, pieces)),
      [TRM_LAYOUT_DATA] = windows * job->nodes / job->ranks + batches,
      [TRM_LAYOUT_PROGRAM] = (double)job->budget->part[TRM_BUDGET_PROGRAM] + STEP_BYTES +
                             (job->ranks > 1 && !job->met ? PEERS_BYTES : 0) + PEER_BYTES * job->ranks / job->nodes}};
  for (int i = 0; i < TRM_LAYOUT_PARTS; i++)
    memory->total += memory->part[i];
  memory->resident = memory->total + (double)account.others + windows - windows * job->nodes / job->ranks;
  return TRM_OK;
}

int trm_layout_memory(const struct trm_layout_job *job, const struct trm_layout *layout,
                      struct trm_layout_models *models, struct trm_layout_memory *memory)
{
  *memory = (struct trm_layout_memory){.total = 0};
  double resident = 0;
  for (int stage = 0; stage < models->stages; stage++) {
    struct trm_layout_memory one;
    TRM_CHECK(stage_memory(job, layout, models, stage, &one));
    resident = stage == 0 ? one.resident : resident; /* that is rank 0's */
    if (one.total > memory->total)
      *memory = one;
  }
  memory->resident = resident;
  return TRM_OK;
}
