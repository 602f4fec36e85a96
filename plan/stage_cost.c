/* Nothing is taken to happen behind computation: on a node messages need the cores, too. */
#include "plan/stage_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"

/* -- moving and adding */

static double over_memory(const struct costing *c, const char *name, double bytes)
{
  return bytes > 0 ? trm_machine_seconds(c->machine, name, 0, bytes, NULL) : 0;
}

/* Messages of so many bytes in all, one after the other in `turns`, on a node or between nodes. */
static double moved(const struct costing *c, double turns, double bytes, bool on_node)
{
  const struct trm_machine *m = c->machine;
  return on_node ? turns * m->message_s + bytes / m->message_bytes_per_s
                 : turns * m->network_s + bytes / m->network_bytes_per_s;
}

/* What ranks do together with a value of so many bytes, whole: "all sum", "all gather", "sum scatter". Where it was
 * measured, with two ranks of a node, R ranks move and add (R - 1) / R in place of 1 / 2. */
static double together(const struct costing *c, const char *name, double ranks, double bytes, bool on_node)
{
  const double others = (ranks - 1) / ranks, turns = ceil(log2(ranks));
  const double pair = on_node ? over_memory(c, name, bytes) : 0;
  if (ranks == 1)
    return 0;
  if (pair > 0)
    return 2 * others * pair;
  const bool sums = strstr(name, "sum") != NULL, all = strcmp(name, "all sum") == 0;
  return moved(c, (all ? 2 : 1) * turns, (all ? 2 : 1) * others * bytes, on_node) +
         (sums ? over_memory(c, "sum", 3 * others * bytes) : 0);
}

static bool tensor_on_node(const struct costing *c)
{
  return c->job->ranks / c->job->nodes % c->layout->size[TRM_AXIS_TENSOR] == 0;
}

/* The ranks of the tensor axis with a value of so many bytes, whole: as measured, or as messages, whose parts are
 * packed and unpacked. */
static double on_axis(const struct costing *c, const char *measured, const char *messages, double bytes, double packed)
{
  const double ranks = c->layout->size[TRM_AXIS_TENSOR];
  const bool here = tensor_on_node(c);
  const double pair = here ? over_memory(c, measured, bytes) : 0;
  return pair > 0 ? 2 * (ranks - 1) / ranks * pair
                  : together(c, messages, ranks, bytes, here) + over_memory(c, "copy", packed);
}

/* What happens to such a value. *traffic grows. */
static double tensor_seconds(const struct costing *c, enum trm_move move, double bytes, double *traffic)
{
  const double ranks = c->layout->size[TRM_AXIS_TENSOR], others = (ranks - 1) / ranks * bytes;
  const double packed = 2 * bytes + 2 * bytes / ranks;
  switch (move) {
  case TRM_MOVE_NONE:
    return 0;
  case TRM_MOVE_TAKE:
    return over_memory(c, "copy", 2 * bytes / ranks);
  case TRM_MOVE_SUM:
    *traffic += 2 * others;
    return on_axis(c, "axis sum", "all sum", bytes, 0);
  case TRM_MOVE_GATHER:
    *traffic += others;
    return on_axis(c, "axis gather", "all gather", bytes, packed);
  case TRM_MOVE_SCATTER:
    *traffic += others;
    return on_axis(c, "axis scatter", "sum scatter", bytes, packed);
  }
  return 0;
}

/* -- a chunk */

static double layer_bytes(const struct costing *c, const struct trm_shape *shape)
{
  return sizeof(float) * (double)c->rows * (double)trm_shape_count(shape);
}

static int readers(const struct trm_model *model, int i)
{
  int count = 0;
  for (int r = i + 1; r < model->layers; r++)
    count += (model->layer[r].from == i) + (model->layer[r].with == i);
  return count;
}

static void layer_cost(const struct costing *c, const struct trm_model *model, int i, struct stage_cost *stage,
                       int chunk)
{
  const struct trm_layer *layer = &model->layer[i];
  struct action_cost *forward = &stage->cost[0][chunk], *backward = &stage->cost[1][chunk];
  const double out = layer_bytes(c, &layer->out);
  double seconds[2] = {0, 0}, moving[2] = {0, 0}, whole = layer_bytes(c, &layer->in), traffic[2] = {0, 0};
  if (layer->with != TRM_FROM_NONE) {
    seconds[0] = over_memory(c, "sum", 3 * out);
  } else if (layer->move[0] != TRM_MOVE_NONE || layer->move[1] != TRM_MOVE_NONE) {
    whole = whole > out ? whole : out;
    for (int k = 0; k < 2; k++)
      moving[k] = tensor_seconds(c, layer->move[k], whole, &traffic[k]);
  } else if (layer->from != TRM_FROM_NONE) {
    const struct trm_machine_work work = trm_machine_layer_work(layer, c->rows);
    seconds[0] = trm_machine_seconds(c->machine, work.name, work.flop, work.bytes, &seconds[1]);
  }
  if (layer->fans && layer->needs_dx)
    moving[1] += tensor_seconds(c, TRM_MOVE_SUM, layer_bytes(c, &layer->in), &traffic[1]);
  const int several = readers(model, i) - 1;
  if (several > 0 && layer->needs_dy) /* the gradients that they give are added */
    seconds[1] += several * over_memory(c, "sum", 3 * out);
  const bool again = trm_model_again(model, i);
  forward->compute += seconds[0];
  forward->tensor += moving[0];
  backward->compute += (layer->needs_dy ? seconds[1] : 0) + (again ? seconds[0] : 0);
  backward->tensor += (layer->needs_dy ? moving[1] : 0) + (again ? moving[0] : 0);
  stage->tensor_bytes += c->micros * (traffic[0] * (again ? 2 : 1) + (layer->needs_dy ? traffic[1] : 0));
}

static void loss_cost(const struct costing *c, const struct trm_model *model, struct stage_cost *stage, int chunk)
{
  const struct trm_layer *last = &model->layer[model->chunk[chunk].last - 1];
  char name[48];
  snprintf(name, sizeof name, "loss %.32s", model->loss->name);
  if (!last->scores)
    return;
  stage->cost[1][chunk].compute += over_memory(c, name, 2 * layer_bytes(c, &last->out));
  if (last->divided) { /* a few words of each row, of all ranks */
    const double words = sizeof(float) * (double)(c->rows * model->targets) * TRM_SCORES_WORDS;
    stage->cost[1][chunk].tensor += tensor_seconds(c, TRM_MOVE_GATHER, words * c->layout->size[TRM_AXIS_TENSOR],
                                                   &stage->tensor_bytes);
  }
}

/* -- the data axis: as the methods in mpi/sync do it */

struct data_axis {
  double ranks, near, groups; /* of the axis; that share memory; those groups */
  bool here;                  /* the axis is on one node */
  bool in_place;              /* shared memory, and sharded arrays that stand there */
  bool sharded;               /* by parallel.zero */
  double divides;             /* ranks that divide the arrays among them */
  double bytes;               /* of a flat array */
};

static struct data_axis data_axis_of(const struct costing *c, const struct trm_model *model)
{
  const struct trm_options *o = c->job->options;
  const bool shares = strcmp(o->parallel.share, "none") != 0 && c->job->parts->device->host_memory;
  const bool by_node = strcmp(o->parallel.shard, "node") == 0;
  const int zero = c->layout->zero, near = trm_layout_near(c->job, c->layout);
  struct data_axis d = {.ranks = c->layout->size[TRM_AXIS_DATA], .near = shares ? near : 1,
                        .bytes = sizeof(float) * (double)model->parameters};
  d.groups = d.ranks / d.near;
  d.here = near == d.ranks;
  d.sharded = d.ranks > 1 && (zero > 1 || (zero == 1 && d.groups > 1));
  d.in_place = d.sharded && zero > 1 && d.near > 1 && (by_node || d.groups == 1);
  d.divides = !d.sharded ? d.near : by_node ? near : d.ranks;
  return d;
}

static double update_seconds(const struct costing *c, const struct trm_model *model, double bytes)
{
  struct trm_optimizer optimizer;
  if (trm_optimizer_create(&optimizer, c->job->options, model->tensor, model->tensors) != TRM_OK)
    return 0;
  const double norm = optimizer.clip > 0 ? over_memory(c, "copy", bytes) : 0;
  return norm + over_memory(c, "update", (3 + 2.0 * optimizer.states) * bytes);
}

/* Between groups each rank has 1 / near of the sum of its own; the ranks of a node share its network. */
static double across(const struct costing *c, const struct data_axis *d)
{
  if (d->here)
    return together(c, "all sum", d->groups, d->bytes / d->near, true);
  return d->groups > 1 ? moved(c, 2 * ceil(log2(d->groups)), 2 * (d->groups - 1) / d->groups * d->bytes, false) : 0;
}

/* Of an array, unit by unit, the ranks that divide it get what they have not, or send what is not theirs. */
static double exchanged(const struct costing *c, const struct data_axis *d, const char *name)
{
  const int near = trm_layout_near(c->job, c->layout);
  if (d->divides <= near)
    return together(c, name, d->divides, d->bytes, true);
  return moved(c, ceil(log2(d->divides)), near * (d->divides - near) / d->divides * d->bytes, false) +
         (strcmp(name, "sum scatter") == 0 ? over_memory(c, "sum", 3 * (d->divides - 1) / d->divides * d->bytes) : 0);
}

/* Shards between ranks that share no memory: weights are gathered, gradients summed and scattered, with level 1 once a
 * step, above it in each micro-batch. */
static void shards_cost(const struct costing *c, const struct data_axis *d, struct stage_cost *stage, double micro[2])
{
  const int level = c->layout->zero;
  const double part = d->bytes / d->divides;
  const double gather = exchanged(c, d, "all gather") + over_memory(c, "copy", 2 * part);
  const double scatter = exchanged(c, d, "sum scatter");
  if (level == 1)
    stage->step_s += scatter;
  else
    micro[1] += scatter + (c->micros > 1 ? over_memory(c, "sum", 3 * part) : 0);
  if (level < 3)
    stage->step_s += gather;
  else
    micro[0] += gather, micro[1] += gather;
  if (d->divides < d->ranks)
    stage->step_s += across(c, &(struct data_axis){.ranks = d->ranks, .near = d->divides, .here = d->here,
                                                   .groups = d->ranks / d->divides, .bytes = d->bytes});
}

static void data_cost(const struct costing *c, const struct trm_model *model, struct stage_cost *stage)
{
  const struct data_axis d = data_axis_of(c, model);
  const double part = d.bytes / d.divides, others = (d.ranks - 1) / d.ranks * d.bytes;
  const int level = c->layout->zero, chunks = model->chunks;
  double micro[2] = {0, 0};
  stage->step_s = update_seconds(c, model, part) + 3 * c->machine->message_s;
  stage->data_bytes = d.ranks > 1 ? 2 * others : 0;
  if (!d.sharded) {
    if (d.near > 1)
      stage->step_s += over_memory(c, "sum", (d.near + 1) * part);
    stage->step_s += across(c, &d);
  } else if (d.in_place) {
    micro[1] = over_memory(c, "sum", (d.divides + 2) * part);
    stage->step_s += across(c, &d);
  } else {
    shards_cost(c, &d, stage, micro);
  }
  if (d.sharded && level > 1)
    stage->data_bytes = others * (level == 3 && !d.in_place ? 3 * c->micros : c->micros + 1);
  for (int k = 0; k < chunks; k++)
    for (int way = 0; way < 2; way++)
      stage->cost[way][k].data += micro[way] / chunks;
}

/* -- a stage */

/* Gradients that are summands, once a batch or, where a holder has the arrays, once a pass. */
static void partial_cost(const struct costing *c, const struct trm_model *model, struct stage_cost *stage)
{
  const bool each = c->layout->zero > 1 && c->layout->size[TRM_AXIS_DATA] > 1;
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *p = trm_model_parameter(model, n);
    if (p->partial)
      stage->step_s += (each ? c->micros : 1) *
                       tensor_seconds(c, TRM_MOVE_SUM, sizeof(float) * (double)p->count, &stage->tensor_bytes);
  }
}

/* Weights that several stages hold: each sends its gradient to the others, and adds all. */
static void tied_cost(const struct costing *c, int s, struct stage_cost *stage)
{
  const double all = trm_layout_tied_bytes(c->models, s, 0), others = trm_layout_tied_bytes(c->models, s, 1);
  if (others == 0)
    return;
  const int block = c->layout->size[TRM_AXIS_DATA] * c->layout->size[TRM_AXIS_TENSOR] * c->models->stages;
  stage->pipeline_bytes += others;
  stage->step_s += moved(c, 1, others, block <= c->job->ranks / c->job->nodes) + over_memory(c, "sum", all) +
                   over_memory(c, "copy", 4 * (all - others));
}

void stage_cost_make(const struct costing *c, int s, struct stage_cost *stage)
{
  const struct trm_model *model = &c->models->model[s];
  for (int chunk = 0; chunk < model->chunks; chunk++) {
    for (int i = model->chunk[chunk].first; i < model->chunk[chunk].last; i++)
      layer_cost(c, model, i, stage, chunk);
    loss_cost(c, model, stage, chunk);
    const struct trm_layer *first = &model->layer[model->chunk[chunk].first];
    if (first->from == TRM_FROM_NONE)
      stage->message[chunk] = layer_bytes(c, &first->out);
    stage->pipeline_bytes += c->micros * stage->message[chunk];
    if (!model->layer[model->chunk[chunk].last - 1].scores)
      stage->pipeline_bytes += c->micros * layer_bytes(c, &model->layer[model->chunk[chunk].last - 1].out);
  }
  data_cost(c, model, stage);
  partial_cost(c, model, stage);
  tied_cost(c, s, stage);
}

double stage_message_seconds(const struct costing *c, double bytes, bool on_node)
{
  return moved(c, 1, bytes, on_node) + over_memory(c, "copy", 4 * bytes);
}
