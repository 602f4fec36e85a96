/* The memory of a layout, by a dry run of the set-up code. */
#include <math.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "nn/balance.h"
#include "plan/layout.h"
#include "train/pipeline.h"
#include "train/staged_arrays.h"
#include "train/state_copy.h"

/* Measured bytes, with MPICH and HDF5: of MPI in a job of several ranks, and of MPI for each rank on the node; of the
 * program during its first step; of HDF5 for a checkpoint. */
#define PEERS_BYTES 3.5e6
#define PEER_BYTES 0.25e6
#define STEP_BYTES 2e6
#define FILE_BYTES 3.5e6

const char *const trm_layout_part_name[TRM_LAYOUT_PARTS] = {"parameters", "gradients", "states", "activations",
                                                            "buffers",    "data",      "program"};

/* -- the parts of the model */

/* A dry run of the device that the machine's figures are of, whatever this process has. */
static void layout_memory_open_device(const struct trm_layout_job *job, struct trm_dry_run_device *device,
                                      struct trm_dry_run_account *account)
{
  trm_dry_run_device_open(device, job->modules->device, account);
  device->base.host_memory = job->machine->device_bytes == 0;
}

static int layout_memory_stage_create(const struct trm_layout_job *job, const struct trm_layout *layout, int stage,
                                      struct trm_layout_models *models)
{
  const struct trm_options *o = job->options;
  const int tensors = layout->size[TRM_AXIS_TENSOR];
  struct trm_model_part part = {
    .tensor_rank = tensors - 1, .tensor_size = tensors, .sequence_parallel = o->parallel.sequence};
  if (models->stages > 1)
    TRM_CHECK(
      trm_balance_stage(job->full_model, o->parallel.cut, models->stages, models->schedule.chunks, stage, &part));
  TRM_CHECK(trm_model_create_part(&models->model[stage], o->model, trm_choice_text("train.loss", o->train.loss),
                                  job->spec, &part));
  return trm_model_set_values(&models->model[stage], o->train.activations);
}

/* The number of a data rank's node among those of its axis, at one place of the other axes. */
static int layout_memory_node_number(const struct trm_layout_job *job, const struct trm_layout *layout, int stage,
                                     int tensor, int data)
{
  const int node_size = job->ranks / job->nodes, tensors = layout->size[TRM_AXIS_TENSOR];
  int number = 0;
  for (int d = 1; d <= data; d++) {
    const int rank = (stage * layout->size[TRM_AXIS_DATA] + d) * tensors + tensor; /* grid.h */
    number += rank / node_size != (rank - tensors) / node_size;
  }
  return number;
}

/* Fails where the ranks of a copy of the model would be in replicas of different numbers (mpi/sync/replicas_create.c).
 */
static int layout_memory_check_replicas(const struct trm_layout_job *job, const struct trm_layout *layout)
{
  const int *size = layout->size;
  if (!job->modules->strategy->local_steps || job->options->strategy.replica != TRM_REPLICA_NODE)
    return TRM_OK;
  for (int d = 0; d < size[TRM_AXIS_DATA]; d++)
    for (int other = 0; other < size[TRM_AXIS_PIPELINE] * size[TRM_AXIS_TENSOR]; other++) {
      const int stage = other / size[TRM_AXIS_TENSOR], tensor = other % size[TRM_AXIS_TENSOR];
      if (layout_memory_node_number(job, layout, stage, tensor, d) != layout_memory_node_number(job, layout, 0, 0, d))
        return trm_error(TRM_USAGE, "strategy.replica=node: the ranks of a copy of the model are on several nodes");
    }
  return TRM_OK;
}

int trm_layout_models_create(struct trm_layout_models *models, const struct trm_layout_job *job,
                             const struct trm_layout *layout)
{
  *models = (struct trm_layout_models){.stages = layout->size[TRM_AXIS_PIPELINE]};
  models->model = trm_alloc((size_t)models->stages * sizeof *models->model, "models");
  models->data = trm_alloc((size_t)models->stages * sizeof *models->data, "models");
  layout_memory_open_device(job, &models->device, NULL);
  int status = layout_memory_check_replicas(job, layout);
  if (status == TRM_OK)
    status = trm_schedule_create(&models->schedule, layout->schedule, models->stages, layout->chunks,
                                 (int)job->options->train.accumulate);
  for (int stage = 0; stage < models->stages && status == TRM_OK; stage++)
    status = layout_memory_stage_create(job, layout, stage, models);
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
  trm_free(models->data);
  models->model = NULL;
  models->data = NULL;
}

/* -- sizes */

size_t trm_layout_micro_batch_rows(const struct trm_layout_job *job, const struct trm_layout *layout)
{
  const size_t requested = (size_t)job->options->train.batch, batch = requested < job->rows ? requested : job->rows;
  const size_t shards = (size_t)layout->size[TRM_AXIS_DATA], micro_batches = (size_t)job->options->train.accumulate;
  const size_t shard = (batch + shards - 1) / shards;
  return (shard + micro_batches - 1) / micro_batches;
}

int trm_layout_node_ranks(const struct trm_layout_job *job, const struct trm_layout *layout)
{
  const int node_size = job->ranks / job->nodes, data = layout->size[TRM_AXIS_DATA],
            tensors = layout->size[TRM_AXIS_TENSOR];
  const int stage_ranks = data * tensors; /* ranks of a stage, which follow one another (grid.h) */
  if (node_size % tensors != 0)
    return 1;
  if (stage_ranks <= node_size)
    return node_size % stage_ranks == 0 ? data : 1;
  return stage_ranks % node_size == 0 ? node_size / tensors : 1;
}

void trm_layout_apply(struct trm_options *options, const struct trm_layout *layout)
{
  struct trm_parallel_options *parallel = &options->parallel;
  parallel->data = layout->size[TRM_AXIS_DATA];
  parallel->pipeline = layout->size[TRM_AXIS_PIPELINE];
  parallel->tensor = layout->size[TRM_AXIS_TENSOR];
  parallel->zero = layout->zero;
  if (layout->size[TRM_AXIS_PIPELINE] > 1)
    parallel->schedule = layout->schedule;
  if (layout->chunks > 1)
    parallel->chunks = layout->chunks;
}

/* -- arrays */

/* What a rank allocates: in the host's memory, and in the device's own. */
struct layout_accounts {
  struct trm_dry_run_account host, device;
};

/* The account of arrays of passes. */
static struct trm_dry_run_account *layout_memory_of_device(const struct trm_layout_job *job,
                                                           struct layout_accounts *accounts)
{
  return job->machine->device_bytes > 0 ? &accounts->device : &accounts->host;
}

/* What the set-up of a strategy tells, besides its memory. */
struct layout_strategy {
  bool by_interval;         /* checkpoints read its state interval by interval */
  float *w;                 /* the weights, which are no memory; NULL: a parameter provider has them */
  double local_state_bytes; /* of this rank, in checkpoints */
};

/* Counts the arrays of the strategy, without optimizer states in files (parallel.offload). */
static int layout_memory_count_strategy(const struct trm_layout_job *job, const struct trm_layout *layout,
                                        struct trm_model *model, struct layout_accounts *accounts,
                                        struct trm_layout_data_axis *axis, struct layout_strategy *made)
{
  static char none[] = "";
  struct trm_options o = *job->options;
  trm_layout_apply(&o, layout);
  const bool offloads = o.parallel.offload[0] != '\0';
  o.parallel.offload = none;
  struct trm_optimizer optimizer;
  TRM_CHECK(trm_optimizer_create(&optimizer, &o, model));
  struct trm_dry_run_comm data;
  struct trm_dry_run_device device, host;
  trm_dry_run_comm_open(&data, layout->size[TRM_AXIS_DATA], trm_layout_node_ranks(job, layout), &accounts->host);
  trm_dry_run_device_open(&host, trm_device_host(job->modules->device), &accounts->host);
  layout_memory_open_device(job, &device, layout_memory_of_device(job, accounts));
  device.base.host = &host.base;
  struct trm_staged_arrays arrays;
  struct trm_strategy strategy = {.ops = job->modules->strategy,
                                  .comm = &data.base,
                                  .device = &device.base,
                                  .optimizer = &optimizer,
                                  .elements = model->parameters,
                                  .boundary = model->boundary,
                                  .boundaries = model->boundaries,
                                  .values = model->values};
  trm_strategy_set_options(&strategy, &o);
  strategy.snapshots = trm_strategy_snapshots(&o, job->rows);
  const size_t before = trm_memory_allocated();
  const bool quiet = trm_log_set_quiet(true);
  const int status = trm_staged_arrays_create(&arrays, &strategy);
  trm_log_set_quiet(quiet);
  TRM_CHECK(status);
  accounts->host.bytes[TRM_MEMORY_BUFFERS] += trm_memory_allocated() - before;
  *made = (struct layout_strategy){.by_interval = strategy.ops->read != NULL, .w = strategy.w};
  for (int i = 0; i < strategy.local_states; i++)
    made->local_state_bytes += (double)strategy.local_state[i].bytes;
  *axis = (struct trm_layout_data_axis){
    .replica_ranks = strategy.replica ? strategy.replica->size : data.base.size, .exchange = strategy.exchange};
  if (axis->exchange.period == 0) /* sharded arrays */
    axis->exchange = (struct trm_exchange){.ranks = 1, .period = 1, .parts = 1};
  trm_model_share_rounded(model, strategy.w, strategy.rounded);
  trm_staged_arrays_free(&arrays);
  strategy.ops->destroy(&strategy);
  if (offloads)
    accounts->host.bytes[TRM_MEMORY_STATES] = 0;
  return TRM_OK;
}

/* Counts the arrays of the passes over these weights. *batches: bytes of the batches they read. */
static int layout_memory_count_passes(const struct trm_layout_job *job, const struct trm_layout *layout,
                                      struct trm_layout_models *models, int stage, float *w,
                                      struct layout_accounts *accounts, double *batches)
{
  struct trm_model *model = &models->model[stage];
  const bool several = models->stages > 1;
  const int slots = several ? trm_schedule_slots(&models->schedule, stage) : 1;
  TRM_CHECK(trm_model_parse_recompute(layout->recompute, &model->recompute));
  TRM_CHECK(trm_model_set_loss_chunk(model, (size_t)job->options->train.loss_chunk));
  struct trm_dry_run_account *account = layout_memory_of_device(job, accounts);
  models->device.account = account;
  const size_t before = trm_memory_allocated();
  TRM_CHECK(
    trm_model_bind_slots(model, &models->device.base, w, NULL, trm_layout_micro_batch_rows(job, layout), true, slots));
  accounts->host.bytes[TRM_MEMORY_BUFFERS] += trm_memory_allocated() - before;
  struct trm_budget first = {.held = 0};
  trm_budget_first_step(&first, model);
  account->bytes[TRM_MEMORY_ACTIVATIONS] += first.part[TRM_BUDGET_ACTIVATIONS];
  const bool reads = stage == 0 || stage == models->stages - 1;
  *batches = reads ? (double)first.part[TRM_BUDGET_DATA] * slots : 0;
  return TRM_OK;
}

/* Bytes of a stage's message buffers: values and gradients at both ends of each chunk. */
static double layout_memory_message_bytes(const struct trm_layout_models *models, int stage, size_t rows)
{
  const struct trm_model *model = &models->model[stage];
  double values = 0;
  for (int c = 0; models->stages > 1 && c < model->chunks; c++) {
    const struct trm_layer *first = &model->layer[model->chunk[c].first],
                           *last = &model->layer[model->chunk[c].last - 1];
    if (first->from == TRM_FROM_NONE)
      values += (double)trm_shape_count(&first->out) * (first->needs_dy ? 2 : 1);
    if (!last->is_output)
      values += (double)trm_shape_count(&last->out) * (last->needs_dy ? 2 : 1);
  }
  return TRM_MESSAGES_IN_FLIGHT * values * (double)rows * (double)trm_value_bytes(model->values);
}

static bool layout_memory_has_parameter(const struct trm_model *model, int number)
{
  for (int n = 0; n < trm_model_parameter_count(model); n++)
    if (trm_model_parameter(model, n)->number == number)
      return true;
  return false;
}

double trm_layout_tied_bytes(const struct trm_layout_models *models, int stage, int excluded)
{
  const struct trm_model *model = &models->model[stage];
  double bytes = 0;
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *parameter = trm_model_parameter(model, n);
    int copies = 0;
    for (int s = 0; s < models->stages; s++)
      copies += layout_memory_has_parameter(&models->model[s], parameter->number);
    bytes += copies > 1 ? (copies - excluded) * (double)parameter->count * sizeof(float) : 0;
  }
  return bytes;
}

static double layout_memory_largest_tensor(const struct trm_model *model)
{
  size_t max_count = 0;
  for (int n = 0; n < trm_model_parameter_count(model); n++)
    max_count = trm_model_parameter(model, n)->count > max_count ? trm_model_parameter(model, n)->count : max_count;
  return sizeof(float) * (double)max_count;
}

/* Bytes with which rank 0 gathers the tensors of a checkpoint one by one: a whole one and another rank's slice
 * (gather.h), also where the strategy gathers those of its own ranks; then the local states of another rank
 * (local_state.h). */
static double layout_memory_gather_bytes(const struct trm_layout_job *job, const struct trm_layout *layout,
                                         const struct trm_layout_models *models, const struct layout_strategy *made)
{
  const bool divided = layout->size[TRM_AXIS_PIPELINE] * layout->size[TRM_AXIS_TENSOR] > 1;
  double slice = 0;
  for (int s = 0; s < models->stages && divided; s++)
    slice = fmax(slice, layout_memory_largest_tensor(&models->model[s]));
  if (job->options->run.checkpoint_every < 0)
    return 0;
  const double tensors = divided || made->by_interval ? layout_memory_largest_tensor(job->full_model) + slice : 0;
  return FILE_BYTES + fmax(tensors, job->ranks > 1 ? made->local_state_bytes : 0);
}

/* Bytes of rank 0's copies of the state: that from which checkpoints are written in the background (state_copy.h), and
 * those in the node's memory (buddy.h), with the local states of all ranks. */
static double layout_memory_copy_bytes(const struct trm_layout_job *job, const struct trm_layout *layout,
                                       const struct trm_model *model, const struct layout_strategy *made)
{
  const enum trm_background_saves choice = job->options->run.background;
  const bool whole = layout->size[TRM_AXIS_PIPELINE] * layout->size[TRM_AXIS_TENSOR] == 1 && !made->by_interval &&
                     made->local_state_bytes == 0;
  struct trm_optimizer optimizer;
  const bool used = choice != TRM_BACKGROUND_NO && (choice != TRM_BACKGROUND_AUTO || whole || job->nodes == 1) &&
                    trm_state_copy_is_used(job->options, job->rows);
  const int copies = used + (job->options->run.buddy > 0 ? 2 : 0);
  if (copies == 0 || trm_optimizer_create(&optimizer, job->options, model) != TRM_OK)
    return 0;
  return copies * (sizeof(float) * (double)job->full_model->parameters * (1 + optimizer.states) +
                   job->ranks * made->local_state_bytes);
}

/* Bytes that MPI takes to add the largest message of an all-reduce between nodes (mpi/sync). Messages of other
 * exchanges have buffers of the method's own. */
static double layout_memory_message_sum_bytes(const struct trm_layout_job *job, const struct trm_exchange *exchange)
{
  return exchange->rounds == 0 ? fmin((double)job->options->parallel.bucket, exchange->bytes) : 0;
}

static int layout_memory_of_stage(const struct trm_layout_job *job, const struct trm_layout *layout,
                                  struct trm_layout_models *models, int stage, struct trm_layout_memory *memory)
{
  struct layout_accounts accounts = {.host = {.peer_bytes = 0}};
  double batches;
  struct layout_strategy made;
  struct trm_layout_data_axis *axis = &models->data[stage];
  TRM_CHECK(layout_memory_count_strategy(job, layout, &models->model[stage], &accounts, axis, &made));
  TRM_CHECK(layout_memory_count_passes(job, layout, models, stage, made.w, &accounts, &batches));
  size_t bytes[TRM_MEMORY_USES];
  for (int use = 0; use < TRM_MEMORY_USES; use++)
    bytes[use] = accounts.host.bytes[use] + accounts.device.bytes[use];
  const double windows = (double)job->budget->part[TRM_BUDGET_DATA];
  *memory = (struct trm_layout_memory){
    .part = {[TRM_LAYOUT_PARAMETERS] = (double)bytes[TRM_MEMORY_WEIGHTS],
             [TRM_LAYOUT_GRADIENTS] = (double)bytes[TRM_MEMORY_GRADIENTS],
             [TRM_LAYOUT_STATES] = (double)bytes[TRM_MEMORY_STATES],
             [TRM_LAYOUT_ACTIVATIONS] = (double)bytes[TRM_MEMORY_ACTIVATIONS],
             [TRM_LAYOUT_BUFFERS] =
               (double)(bytes[TRM_MEMORY_BUFFERS] + bytes[TRM_MEMORY_UNITS]) +
               trm_layout_tied_bytes(models, stage, 0) +
               layout_memory_message_bytes(models, stage, trm_layout_micro_batch_rows(job, layout)) +
               fmax(layout_memory_message_sum_bytes(job, &axis->exchange), /* not at the same time */
                    stage ? 0 : layout_memory_gather_bytes(job, layout, models, &made)) +
               (stage ? 0 : layout_memory_copy_bytes(job, layout, &models->model[0], &made)),
             [TRM_LAYOUT_DATA] = windows * job->nodes / job->ranks + batches,
             [TRM_LAYOUT_PROGRAM] = (double)job->budget->part[TRM_BUDGET_PROGRAM] + STEP_BYTES +
                                    (job->ranks > 1 && !job->has_communicated ? PEERS_BYTES : 0) +
                                    PEER_BYTES * job->ranks / job->nodes}};
  if (job->machine->device_bytes > 0)
    memory->device = batches / 2; /* the other half is on the host */
  for (int use = 0; use < TRM_MEMORY_USES; use++)
    memory->device += (double)accounts.device.bytes[use];
  memory->total = -memory->device;
  for (int i = 0; i < TRM_LAYOUT_PARTS; i++)
    memory->total += memory->part[i];
  memory->resident = memory->total + (double)accounts.host.peer_bytes + windows - windows * job->nodes / job->ranks;
  return TRM_OK;
}

int trm_layout_memory(const struct trm_layout_job *job, const struct trm_layout *layout,
                      struct trm_layout_models *models, struct trm_layout_memory *memory)
{
  *memory = (struct trm_layout_memory){.total = 0};
  double resident = 0;
  for (int stage = 0; stage < models->stages; stage++) {
    struct trm_layout_memory one;
    TRM_CHECK(layout_memory_of_stage(job, layout, models, stage, &one));
    resident = stage == 0 ? one.resident : resident; /* that is rank 0's */
    if (one.total + one.device > memory->total + memory->device)
      *memory = one;
  }
  memory->resident = resident;
  return TRM_OK;
}
