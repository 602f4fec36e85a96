/* The cost of a stage. Communication is not overlapped with computation: on a node it needs the cores, too. */
#include "plan/stage_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"

/* -- communication */

static double stage_cost_memory_op(const struct cost_context *c, const char *name, double bytes)
{
  return bytes > 0 ? trm_machine_seconds(c->job->machine, name, 0, bytes, NULL) : 0;
}

/* The same for arrays of passes, which are in the device's memory. */
static double stage_cost_device_op(const struct cost_context *c, const char *name, double bytes)
{
  char own[48];
  snprintf(own, sizeof own, "device %s", name);
  return stage_cost_memory_op(c, c->job->machine->device_bytes > 0 ? own : name, bytes);
}

/* Seconds in which a device with memory of its own downloads and uploads so many bytes. */
static double stage_cost_staging(const struct cost_context *c, double download, double upload)
{
  return c->job->machine->device_bytes > 0
           ? stage_cost_memory_op(c, "download", download) + stage_cost_memory_op(c, "upload", upload)
           : 0;
}

/* Seconds of messages of `bytes` in all, in `rounds` one after the other. */
static double stage_cost_transfer(const struct cost_context *c, double rounds, double bytes, bool on_node)
{
  const struct trm_machine *m = c->job->machine;
  return on_node ? rounds * m->message_latency_s + bytes / m->message_bytes_per_s
                 : rounds * m->network_latency_s + bytes / m->network_bytes_per_s;
}

/* Seconds of a collective ("all sum", "all gather", "sum scatter") on a whole value of `bytes`. A measurement of two
 * ranks is scaled to R ranks, which move and add (R - 1) / R of the value in place of 1 / 2. */
static double stage_cost_collective(const struct cost_context *c, const char *name, double ranks, double bytes,
                                    bool on_node)
{
  const double others = (ranks - 1) / ranks, rounds = ceil(log2(ranks));
  const double pair = on_node ? stage_cost_memory_op(c, name, bytes) : 0;
  if (ranks == 1)
    return 0;
  if (pair > 0)
    return 2 * others * pair;
  const bool sums = strstr(name, "sum") != NULL, all = strcmp(name, "all sum") == 0;
  return stage_cost_transfer(c, (all ? 2 : 1) * rounds, (all ? 2 : 1) * others * bytes, on_node) +
         (sums ? stage_cost_memory_op(c, "sum", 3 * others * bytes) : 0);
}

/* Seconds of a collective of the tensor axis on a whole value of `bytes`: as measured, or as messages of which `packed`
 * bytes are packed and unpacked. */
static double stage_cost_axis_collective(const struct cost_context *c, const char *measured, const char *messages,
                                         double bytes, double packed)
{
  const int ranks = c->layout->size[TRM_AXIS_TENSOR];
  const bool on_node = c->job->ranks / c->job->nodes % ranks == 0;
  const double pair = on_node ? stage_cost_memory_op(c, measured, bytes) : 0;
  return pair > 0 ? 2.0 * (ranks - 1) / ranks * pair
                  : stage_cost_collective(c, messages, ranks, bytes, on_node) + stage_cost_memory_op(c, "copy", packed);
}

/* Seconds of a resharding on the tensor axis. Adds the bytes received to *traffic. */
static double stage_cost_reshard(const struct cost_context *c, enum trm_reshard reshard, double bytes, double *traffic)
{
  const double ranks = c->layout->size[TRM_AXIS_TENSOR], others = (ranks - 1) / ranks * bytes;
  const double packed = 2 * bytes + 2 * bytes / ranks;
  switch (reshard) {
  case TRM_RESHARD_NONE:
    return 0;
  case TRM_RESHARD_SLICE:
    return stage_cost_device_op(c, "copy", 2 * bytes / ranks);
  case TRM_RESHARD_ALL_REDUCE:
    *traffic += 2 * others;
    return stage_cost_axis_collective(c, "axis sum", "all sum", bytes, 0) + stage_cost_staging(c, bytes, bytes);
  case TRM_RESHARD_ALL_GATHER:
    *traffic += others;
    return stage_cost_axis_collective(c, "axis gather", "all gather", bytes, packed) +
           stage_cost_staging(c, bytes / ranks, bytes);
  case TRM_RESHARD_REDUCE_SCATTER:
    *traffic += others;
    return stage_cost_axis_collective(c, "axis scatter", "sum scatter", bytes, packed) +
           stage_cost_staging(c, bytes, bytes / ranks);
  }
  return 0;
}

/* -- a chunk */

static double stage_cost_layer_bytes(const struct cost_context *c, const struct trm_layer *layer,
                                     const struct trm_shape *shape)
{
  return (double)trm_value_bytes(layer->values) * (double)c->rows * (double)trm_shape_count(shape);
}

/* Returns by how much messages are larger than the values: sums are sent in float32. */
static double stage_cost_widening(const struct trm_layer *layer, enum trm_reshard reshard)
{
  const bool sums = reshard == TRM_RESHARD_ALL_REDUCE || reshard == TRM_RESHARD_REDUCE_SCATTER;
  return sums ? sizeof(float) / (double)trm_value_bytes(layer->values) : 1;
}

static int stage_cost_consumers(const struct trm_model *model, int i)
{
  int count = 0;
  for (int r = i + 1; r < model->layers; r++)
    count += (model->layer[r].from == i) + (model->layer[r].addend == i);
  return count;
}

static void stage_cost_layer(const struct cost_context *c, const struct trm_model *model, int i,
                             struct stage_cost *stage, int chunk)
{
  const struct trm_layer *layer = &model->layer[i];
  struct action_cost *forward = &stage->cost[0][chunk], *backward = &stage->cost[1][chunk];
  const double out = stage_cost_layer_bytes(c, layer, &layer->out);
  double seconds[2] = {0, 0}, comm[2] = {0, 0}, traffic[2] = {0, 0};
  double full_bytes = stage_cost_layer_bytes(c, layer, &layer->in);
  if (layer->addend != TRM_FROM_NONE) {
    seconds[0] = stage_cost_device_op(c, "sum", 3 * out);
  } else if (layer->ops->reshard[0] != TRM_RESHARD_NONE || layer->ops->reshard[1] != TRM_RESHARD_NONE) {
    full_bytes = full_bytes > out ? full_bytes : out;
    for (int k = 0; k < 2; k++)
      comm[k] = stage_cost_reshard(c, layer->ops->reshard[k],
                                   full_bytes * stage_cost_widening(layer, layer->ops->reshard[k]), &traffic[k]);
  } else if (layer->from != TRM_FROM_NONE) {
    const struct trm_machine_work work = trm_machine_layer_work(layer, c->rows);
    seconds[0] = trm_machine_seconds(c->job->machine, work.name, work.flop, work.bytes, &seconds[1]);
  }
  if (layer->grad_input_partial && layer->needs_dx)
    comm[1] += stage_cost_reshard(
      c, TRM_RESHARD_ALL_REDUCE,
      stage_cost_layer_bytes(c, layer, &layer->in) * stage_cost_widening(layer, TRM_RESHARD_ALL_REDUCE), &traffic[1]);
  const int extra_consumers = stage_cost_consumers(model, i) - 1;
  if (extra_consumers > 0 && layer->needs_dy) /* their gradients are added */
    seconds[1] += extra_consumers * stage_cost_device_op(c, "sum", 3 * out);
  const bool recompute = trm_model_recomputes(model, i);
  forward->compute += seconds[0];
  forward->tensor += comm[0];
  backward->compute += (layer->needs_dy ? seconds[1] : 0) + (recompute ? seconds[0] : 0);
  backward->tensor += (layer->needs_dy ? comm[1] : 0) + (recompute ? comm[0] : 0);
  stage->tensor_bytes += c->micros * (traffic[0] * (recompute ? 2 : 1) + (layer->needs_dy ? traffic[1] : 0));
}

static void stage_cost_loss(const struct cost_context *c, const struct trm_model *model, struct stage_cost *stage,
                            int chunk)
{
  const struct trm_layer *last = &model->layer[model->chunk[chunk].last - 1];
  char name[48];
  if (!last->is_output)
    return;
  trm_machine_loss_name(model, name);
  stage->cost[1][chunk].compute += stage_cost_memory_op(c, name, 2 * stage_cost_layer_bytes(c, last, &last->out));
  if (last->output_sharded) { /* a few numbers per row are gathered */
    const double words = sizeof(float) * (double)(c->rows * model->targets) * TRM_SCORES_FIELDS;
    stage->cost[1][chunk].tensor +=
      stage_cost_reshard(c, TRM_RESHARD_ALL_GATHER, words * c->layout->size[TRM_AXIS_TENSOR], &stage->tensor_bytes);
  }
}

/* -- the data axis, as in mpi/sync */

/* The ranks that sum gradients in every step: those of the axis, or of a replica. */
struct data_axis {
  double ranks;
  double node_ranks; /* that share memory */
  double groups;     /* of ranks that share memory */
  bool on_node;      /* they are on one node */
  bool in_place;     /* sharded arrays are in shared memory */
  bool sharded;      /* by parallel.zero */
  double shards;     /* ranks that an array is sharded over */
  double bytes;      /* of a flat array */
};

static struct data_axis stage_cost_data_axis(const struct cost_context *c, const struct trm_model *model,
                                             int replica_ranks)
{
  const struct trm_options *o = c->job->options;
  const bool shares = o->parallel.share != TRM_SHARE_NONE;
  const bool by_node = o->parallel.shard == TRM_SHARD_NODE;
  const int zero = c->layout->zero, of_node = trm_layout_node_ranks(c->job, c->layout);
  const int node_ranks = of_node < replica_ranks ? of_node : replica_ranks;
  struct data_axis d = {.ranks = replica_ranks,
                        .node_ranks = shares ? node_ranks : 1,
                        .bytes = sizeof(float) * (double)model->parameters};
  d.groups = d.ranks / d.node_ranks;
  d.on_node = node_ranks == d.ranks;
  d.sharded = d.ranks > 1 && (zero > 1 || (zero == 1 && d.groups > 1));
  d.in_place = d.sharded && zero > 1 && d.node_ranks > 1 && (by_node || d.groups == 1);
  d.shards = !d.sharded ? d.node_ranks : by_node ? node_ranks : d.ranks;
  return d;
}

/* True if the strategy's arrays are the host's (train/staged_arrays.h). */
static bool stage_cost_is_staged(const struct cost_context *c)
{
  return c->layout->size[TRM_AXIS_DATA] > 1 || !c->job->modules->strategy->on_device;
}

static double stage_cost_update(const struct cost_context *c, const struct trm_model *model, double bytes)
{
  struct trm_optimizer optimizer;
  if (trm_optimizer_create(&optimizer, c->job->options, model) != TRM_OK)
    return 0;
  const double norm_bytes = optimizer.clip > 0 ? bytes : 0, update_bytes = (3 + 2.0 * optimizer.states) * bytes;
  if (!stage_cost_is_staged(c))
    return stage_cost_device_op(c, "copy", norm_bytes) + stage_cost_device_op(c, "update", update_bytes);
  return stage_cost_memory_op(c, "copy", norm_bytes) + stage_cost_memory_op(c, "update", update_bytes);
}

/* Seconds of the sum between groups: each rank has 1 / node_ranks of its group's sum; a node's ranks share its link. */
static double stage_cost_between_groups(const struct cost_context *c, const struct data_axis *d)
{
  if (d->on_node)
    return stage_cost_collective(c, "all sum", d->groups, d->bytes / d->node_ranks, true);
  return d->groups > 1
           ? stage_cost_transfer(c, 2 * ceil(log2(d->groups)), 2 * (d->groups - 1) / d->groups * d->bytes, false)
           : 0;
}

/* Seconds of direct messages to the other ranks of an exchange, of which `near` share a node, this one included. A
 * node's node_ranks ranks send at the same time. */
static double stage_cost_direct_messages(const struct cost_context *c, const struct trm_exchange *exchange,
                                         double rounds, double bytes, double near, double node_ranks)
{
  const double others = exchange->ranks - 1, far = exchange->ranks - near;
  return far > 0 ? stage_cost_transfer(c, 0, (near - 1) / others * bytes, true) +
                     stage_cost_transfer(c, rounds, node_ranks * far / others * bytes, false)
                 : stage_cost_transfer(c, rounds, bytes, true);
}

/* Seconds of an exchange between nodes or replicas, by the step: of elements that d's ranks have divided. */
static double stage_cost_exchange(const struct cost_context *c, const struct data_axis *d,
                                  const struct trm_exchange *exchange)
{
  const double data = c->layout->size[TRM_AXIS_DATA], node_ranks = trm_layout_node_ranks(c->job, c->layout);
  const double owners = data / exchange->ranks, near = fmax(1, node_ranks / owners), parts = exchange->parts;
  double seconds = stage_cost_memory_op(c, "copy", sizeof(float) * exchange->floats);
  if (exchange->ranks > 1 && exchange->rounds > 0)
    seconds += parts * stage_cost_direct_messages(c, exchange, exchange->rounds, exchange->bytes / parts, near,
                                                  node_ranks);
  else if (exchange->ranks > 1)
    seconds += parts * stage_cost_between_groups(c, &(struct data_axis){.ranks = data,
                                                                        .node_ranks = owners,
                                                                        .groups = exchange->ranks,
                                                                        .on_node = node_ranks == data,
                                                                        .bytes = d->bytes / parts});
  return seconds / (double)exchange->period;
}

/* Bytes that a rank receives for it in a step. */
static double stage_cost_exchange_bytes(const struct trm_exchange *exchange)
{
  const double all = exchange->rounds > 0 ? 1 : 2 * (exchange->ranks - 1.0) / exchange->ranks;
  return exchange->ranks > 1 ? all * exchange->bytes / (double)exchange->period : 0;
}

/* Seconds in which the ranks of a replica that share no memory give one another the slices that they have exchanged. */
static double stage_cost_spread(const struct cost_context *c, const struct data_axis *d,
                                const struct trm_exchange *exchange)
{
  return d->groups > 1 ? stage_cost_collective(c, "all gather", d->groups, d->bytes, true) / (double)exchange->period
                       : 0;
}

/* Seconds of an all-gather or reduce-scatter of a sharded array, unit by unit. Between nodes of several ranks in two
 * levels: each number crosses the network once for each other node (mpi/coll/two_level.h). */
static double stage_cost_exchange_shards(const struct cost_context *c, const struct data_axis *d, const char *name)
{
  const int node_ranks = trm_layout_node_ranks(c->job, c->layout);
  if (d->shards <= node_ranks)
    return stage_cost_collective(c, name, d->shards, d->bytes, true);
  const double rounds = node_ranks > 1 ? d->shards / node_ranks - 1 : ceil(log2(d->shards));
  return stage_cost_transfer(c, rounds, (d->shards - node_ranks) / d->shards * d->bytes, false) +
         stage_cost_transfer(c, node_ranks > 1, (node_ranks - 1) / (double)node_ranks * d->bytes, true) +
         (strcmp(name, "sum scatter") == 0 ? stage_cost_memory_op(c, "sum", 3 * (d->shards - 1) / d->shards * d->bytes)
                                           : 0);
}

/* Adds the cost of parallel.zero between ranks that share no memory: all-gathers of weights and reduce-scatters of
 * gradients, at level 1 once per step, above it in each micro-batch. */
static void stage_cost_zero(const struct cost_context *c, const struct data_axis *d, struct stage_cost *stage,
                            double micro[2])
{
  const int level = c->layout->zero;
  const double part = d->bytes / d->shards;
  const double gather = stage_cost_exchange_shards(c, d, "all gather") + stage_cost_memory_op(c, "copy", 2 * part);
  const double scatter = stage_cost_exchange_shards(c, d, "sum scatter");
  if (level == 1)
    stage->update_s += scatter;
  else
    micro[1] += scatter + (c->micros > 1 ? stage_cost_memory_op(c, "sum", 3 * part) : 0);
  if (level < 3)
    stage->update_s += gather;
  else
    micro[0] += gather, micro[1] += gather;
  if (d->shards < d->ranks)
    stage->update_s += stage_cost_between_groups(c, &(struct data_axis){.ranks = d->ranks,
                                                                        .node_ranks = d->shards,
                                                                        .on_node = d->on_node,
                                                                        .groups = d->ranks / d->shards,
                                                                        .bytes = d->bytes});
}

/* Adds the cost of sums over ranks that do not share memory, of arrays that are not sharded: every step between all
 * groups or, with local steps, those of a replica, and the exchange of replicas. */
static void stage_cost_groups(const struct cost_context *c, const struct data_axis *d,
                              const struct trm_layout_data_axis *axis, struct stage_cost *stage)
{
  const struct trm_exchange *exchange = &axis->exchange;
  if (c->job->modules->strategy->local_steps)
    stage->update_s += stage_cost_between_groups(c, d) + stage_cost_spread(c, d, exchange);
  stage->update_s += stage_cost_exchange(c, d, exchange);
  stage->between_nodes = exchange->ranks > 1 ? exchange->bytes / (double)exchange->period : 0;
}

/* Bytes that a rank receives in a step, without parallel.zero. */
static double stage_cost_sum_bytes(const struct cost_context *c, const struct data_axis *d,
                                   const struct trm_exchange *exchange)
{
  const double summed = c->job->modules->strategy->local_steps ? d->ranks : d->node_ranks;
  return 2 * (summed - 1) / summed * d->bytes + stage_cost_exchange_bytes(exchange);
}

static void stage_cost_data_parallel(const struct cost_context *c, const struct trm_model *model,
                                     const struct trm_layout_data_axis *axis, struct stage_cost *stage)
{
  const struct data_axis d = stage_cost_data_axis(c, model, axis->replica_ranks);
  const double part = d.bytes / d.shards, others = (d.ranks - 1) / d.ranks * d.bytes;
  const int level = c->layout->zero, chunks = model->chunks;
  double micro[2] = {0, 0};
  stage->update_s = stage_cost_update(c, model, part) + 3 * c->job->machine->message_latency_s;
  stage->data_bytes = d.sharded ? 2 * others : stage_cost_sum_bytes(c, &d, &axis->exchange);
  if (stage_cost_is_staged(c))
    stage->update_s += stage_cost_staging(c, d.bytes, d.bytes);
  if (!d.sharded) {
    if (d.node_ranks > 1)
      stage->update_s += stage_cost_memory_op(c, "sum", (d.node_ranks + 1) * part);
    stage_cost_groups(c, &d, axis, stage);
  } else if (d.in_place) {
    micro[1] = stage_cost_memory_op(c, "sum", (d.shards + 2) * part);
    stage->update_s += stage_cost_between_groups(c, &d);
  } else {
    stage_cost_zero(c, &d, stage, micro);
  }
  if (d.sharded && level > 1)
    stage->data_bytes = others * (level == 3 && !d.in_place ? 3 * c->micros : c->micros + 1);
  for (int k = 0; k < chunks; k++)
    for (int direction = 0; direction < 2; direction++)
      stage->cost[direction][k].data += micro[direction] / chunks;
}

/* -- a stage */

/* Adds the all-reduces of partial gradients: once per batch, or per pass if a parameter provider has the arrays. */
static void stage_cost_partial_gradients(const struct cost_context *c, const struct trm_model *model,
                                         struct stage_cost *stage)
{
  const bool each = c->layout->zero > 1 && c->layout->size[TRM_AXIS_DATA] > 1;
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *p = trm_model_parameter(model, n);
    if (p->gradient_partial)
      stage->update_s +=
        (each ? c->micros : 1) *
        stage_cost_reshard(c, TRM_RESHARD_ALL_REDUCE, sizeof(float) * (double)p->count, &stage->tensor_bytes);
  }
}

/* Adds the cost of tied weights: each stage sends its gradient to the others and adds all. */
static void stage_cost_tied_weights(const struct cost_context *c, int s, struct stage_cost *stage)
{
  const double all = trm_layout_tied_bytes(c->models, s, 0), others = trm_layout_tied_bytes(c->models, s, 1);
  if (others == 0)
    return;
  const int job_ranks = c->layout->size[TRM_AXIS_DATA] * c->layout->size[TRM_AXIS_TENSOR] * c->models->stages;
  stage->pipeline_bytes += others;
  stage->update_s += stage_cost_transfer(c, 1, others, job_ranks <= c->job->ranks / c->job->nodes) +
                     stage_cost_memory_op(c, "sum", all) + stage_cost_memory_op(c, "copy", 4 * (all - others));
}

void stage_cost_compute(const struct cost_context *c, int s, struct stage_cost *stage)
{
  const struct trm_model *model = &c->models->model[s];
  for (int chunk = 0; chunk < model->chunks; chunk++) {
    for (int i = model->chunk[chunk].first; i < model->chunk[chunk].last; i++)
      stage_cost_layer(c, model, i, stage, chunk);
    stage_cost_loss(c, model, stage, chunk);
    const struct trm_layer *first = &model->layer[model->chunk[chunk].first],
                           *last = &model->layer[model->chunk[chunk].last - 1];
    if (first->from == TRM_FROM_NONE)
      stage->message_bytes[chunk] = stage_cost_layer_bytes(c, first, &first->out);
    stage->pipeline_bytes += c->micros * stage->message_bytes[chunk];
    if (!last->is_output)
      stage->pipeline_bytes += c->micros * stage_cost_layer_bytes(c, last, &last->out);
  }
  stage_cost_data_parallel(c, model, &c->models->data[s], stage);
  stage_cost_partial_gradients(c, model, stage);
  stage_cost_tied_weights(c, s, stage);
}

double stage_message_seconds(const struct cost_context *c, double bytes, bool on_node)
{
  return stage_cost_transfer(c, 1, bytes, on_node) + stage_cost_memory_op(c, "copy", 4 * bytes) +
         stage_cost_staging(c, bytes, bytes);
}

double stage_gradient_seconds(const struct trm_machine *machine, const struct trm_model *model, size_t rows)
{
  const struct trm_layout_job job = {.machine = machine, .ranks = 1, .nodes = 1};
  const struct trm_layout layout = {.size = {1, 1, 1}};
  const struct cost_context context = {.job = &job, .layout = &layout, .rows = rows, .micros = 1};
  struct stage_cost stage = {.update_s = 0};
  for (int i = 0; i < model->layers; i++)
    stage_cost_layer(&context, model, i, &stage, 0);
  stage_cost_loss(&context, model, &stage, model->chunks - 1);
  double seconds = 0;
  for (int chunk = 0; chunk < model->chunks; chunk++)
    seconds += stage.cost[0][chunk].compute + stage.cost[1][chunk].compute;
  return seconds;
}
