#include "train/state_copy.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"

/* The local states of a rank. */
struct trm_rank_states {
  struct trm_local_state item[TRM_MAX_LOCAL_STATES]; /* data in memory */
  int count;
  char *memory; /* owned */
  size_t capacity;
};

bool trm_state_copy_is_used(const struct trm_options *o, size_t rows)
{
  const uint64_t batch = (uint64_t)o->train.batch;
  const uint64_t epoch = o->data.drop_last ? rows / batch : (rows + batch - 1) / batch;
  const uint64_t steps = o->train.steps > 0 ? (uint64_t)o->train.steps : (uint64_t)o->train.epochs * epoch;
  uint64_t first = o->run.checkpoint_every > 0 ? (uint64_t)o->run.checkpoint_every : epoch;
  if (o->train.evaluate_every > 0 && (uint64_t)o->train.evaluate_every < first)
    first = (uint64_t)o->train.evaluate_every;
  if (o->run.buddy > 0 && (uint64_t)o->run.buddy < steps)
    return true;
  return o->run.checkpoint_every >= 0 && first < steps;
}

static int64_t copy_local_bytes(const struct trm_strategy *strategy)
{
  int64_t bytes = 0;
  for (int i = 0; i < strategy->local_states; i++)
    bytes += (int64_t)strategy->local_state[i].bytes;
  return bytes;
}

/* Returns true if a copy has this tensor: no optimizer state of a frozen parameter. */
static bool copy_has(const struct trm_model *local_model, int state, int number)
{
  return state == 0 || !local_model->frozen_number || !local_model->frozen_number[number];
}

size_t trm_state_copy_bytes(struct trm_comm *comm, const struct trm_model *model, const struct trm_model *local_model,
                            const struct trm_strategy *strategy)
{
  int64_t bytes = copy_local_bytes(strategy);
  comm->ops->allreduce(comm, &bytes, 1, TRM_INT64, TRM_SUM);
  size_t elements = 0;
  for (int i = 0; i <= strategy->optimizer->states; i++)
    for (int n = 0; n < trm_model_parameter_count(model); n++)
      elements += copy_has(local_model, i, n) ? trm_model_parameter(model, n)->count : 0;
  return comm->rank == 0 ? (size_t)bytes + elements * sizeof(float) : 0;
}

/* -- memory */

/* True if all ranks that have elements to copy are in the node of rank 0. Collective over comm. */
static bool copy_owners_are_near(const struct trm_state_copy *copy, struct trm_comm *comm, bool in_first_node)
{
  const struct trm_strategy *strategy = copy->strategy;
  const bool has_frozen = copy->local_model->frozen && strategy->comm->rank == 0;
  struct trm_own_elements any;
  int32_t near =
    strategy->ops->own && (in_first_node || !(has_frozen || strategy->ops->own(strategy, 0, 0, &any)));
  comm->ops->allreduce(comm, &near, 1, TRM_INT32, TRM_MIN);
  return near;
}

/* Makes the memory that the ranks of the first node share, if that can be. Collective over comm. */
static void copy_share(struct trm_state_copy *copy, struct trm_comm *comm, bool host_memory)
{
  struct trm_comm *node = comm->ops->split_node(comm, TRM_SHARE_NODE);
  int32_t first = comm->rank, own = host_memory;
  node->ops->broadcast(node, &first, 1, TRM_INT32, 0);
  own = own && copy_owners_are_near(copy, comm, first == 0);
  const size_t array = copy->model->parameters * sizeof(float);
  const size_t counters = ((size_t)node->size * sizeof *copy->copied + TRM_ALIGNMENT - 1) & -(size_t)TRM_ALIGNMENT;
  const size_t bytes = comm->rank == 0 ? counters + (size_t)copy->states * array : 0;
  const bool shared = own && first == 0 && node->ops->share(node, bytes, TRM_MEMORY_BUFFERS, &copy->shared) == TRM_OK;
  own = own && (shared || first != 0);
  comm->ops->allreduce(comm, &own, 1, TRM_INT32, TRM_MIN);
  copy->own = own;
  if (!shared) {
    node->ops->release(node);
    return;
  }
  char *base = copy->shared.base[0];
  copy->node = node;
  copy->copied = (struct trm_counter *)base;
  for (int i = 0; i < copy->states; i++)
    copy->state[i] = (float *)(base + counters + (size_t)i * array);
}

void trm_state_copy_open(struct trm_state_copy *copy, struct trm_comm *comm, const struct trm_model *model,
                         const struct trm_model *local_model, const struct trm_strategy *strategy, bool host_memory)
{
  *copy = (struct trm_state_copy){.model = model, .local_model = local_model, .strategy = strategy,
                                  .states = 1 + strategy->optimizer->states};
  const int64_t mine = copy_local_bytes(strategy);
  int64_t *bytes = trm_alloc((size_t)comm->size * sizeof *bytes, "sizes of local states");
  comm->ops->allgather(comm, &mine, bytes, sizeof mine, TRM_BYTE);
  copy_share(copy, comm, host_memory);
  if (comm->rank == 0) {
    for (int i = 0; i < copy->states && !copy->node; i++)
      copy->state[i] = trm_alloc(model->parameters * sizeof(float), "a copy of the state (run.background=no: none)");
    copy->rank_count = comm->size;
    copy->ranks = trm_alloc((size_t)comm->size * sizeof *copy->ranks, "a copy of the local states");
    for (int r = 0; r < comm->size; r++) {
      copy->ranks[r].capacity = (size_t)bytes[r];
      copy->ranks[r].memory = trm_alloc((size_t)bytes[r], "a copy of the local states (run.background=no: none)");
    }
  }
  trm_free(bytes);
}

void trm_state_copy_free(struct trm_state_copy *copy)
{
  for (int i = 0; i < copy->states && !copy->node; i++)
    trm_free(copy->state[i]);
  for (int r = 0; r < copy->rank_count; r++)
    trm_free(copy->ranks[r].memory);
  trm_free(copy->ranks);
  if (copy->node) {
    copy->node->ops->unshare(copy->node, &copy->shared);
    copy->node->ops->release(copy->node);
  }
  *copy = (struct trm_state_copy){.states = 0};
}

/* -- copies by the owners */

/* Sets elements [low, high) of this rank's part of a tensor in `whole`, the tensor. values NULL: to zeros. */
static void copy_place(const struct trm_parameter *part, size_t low, size_t high, const float *values, float *whole)
{
  const struct trm_slice *slice = &part->slice;
  const size_t run = (slice->high - slice->low) * slice->inner;
  for (size_t at = low, n; at < high; at += n) {
    n = run - at % run < high - at ? run - at % run : high - at;
    float *to = whole + (at / run * slice->extent + slice->low) * slice->inner + at % run;
    if (values)
      memcpy(to, values + (at - low), n * sizeof *to);
    else
      memset(to, 0, n * sizeof *to);
  }
}

/* Copies this rank's elements of a part of a tensor. */
static void copy_part(struct trm_state_copy *copy, int state, const struct trm_parameter *part, bool touch)
{
  const struct trm_strategy *strategy = copy->strategy;
  float *whole = copy->state[state] + trm_model_parameter(copy->model, part->number)->offset;
  const size_t end = part->offset + part->count;
  struct trm_own_elements own;
  if (part->frozen) { /* the same on all ranks of the data axis */
    if (strategy->comm->rank == 0)
      copy_place(part, 0, part->count, touch ? NULL : part->frozen_w, whole);
    return;
  }
  for (size_t at = part->offset; at < end && strategy->ops->own(strategy, state, at, &own) && own.low < end;
       at = own.high) {
    own.high = own.high < end ? own.high : end;
    copy_place(part, own.low - part->offset, own.high - part->offset, touch ? NULL : own.values, whole);
  }
}

static void copy_own(struct trm_state_copy *copy, bool touch)
{
  for (int i = 0; i < copy->states; i++)
    for (int p = 0; p < trm_model_parameter_count(copy->local_model); p++) {
      const struct trm_parameter *part = trm_model_parameter(copy->local_model, p);
      if (part->primary && copy_has(copy->local_model, i, part->number))
        copy_part(copy, i, part, touch);
    }
}

static int copy_run_own(void *context)
{
  struct trm_state_copy *copy = context;
  struct trm_counter *copied = &copy->copied[copy->node->rank];
  copy_own(copy, false);
  trm_counter_add(copy->node, copied, 1);
  return TRM_OK;
}

void trm_state_copy_begin_own(struct trm_state_copy *copy, struct trm_background *background)
{
  copy->begun++;
  trm_background_begin(background, copy_run_own, copy);
}

static bool copy_own_is_done(void *context)
{
  const struct trm_state_copy *copy = context;
  return trm_counter_get(&copy->copied[copy->node->rank]) >= copy->begun;
}

void trm_state_copy_await_own(struct trm_state_copy *copy)
{
  if (!copy->node || copy_own_is_done(copy))
    return;
  const double began = trm_trace_begin("wait for the copy");
  copy->node->ops->wait_until(copy->node, copy_own_is_done, copy);
  trm_trace_end("wait for the copy", TRM_TRACE_WAIT, began, TRM_TRACE_NO_IDS);
}

static bool copy_all_are_done(const void *context)
{
  const struct trm_state_copy *copy = context;
  for (int r = 0; r < copy->node->size; r++)
    if (trm_counter_get(&copy->copied[r]) < copy->begun)
      return false;
  return true;
}

void trm_state_copy_await_all(const struct trm_state_copy *copy)
{
  if (copy->node)
    trm_background_poll(copy_all_are_done, copy);
}

int trm_state_copy_touch(void *context)
{
  struct trm_state_copy *copy = context;
  if (copy->node)
    copy_own(copy, true);
  for (int i = 0; i < copy->states && !copy->node; i++)
    for (int n = 0; n < trm_model_parameter_count(copy->model); n++) {
      const struct trm_parameter *p = trm_model_parameter(copy->model, n);
      if (copy_has(copy->local_model, i, n))
        memset(copy->state[i] + p->offset, 0, p->count * sizeof(float));
    }
  for (int r = 0; r < copy->rank_count; r++)
    memset(copy->ranks[r].memory, 0, copy->ranks[r].capacity);
  return TRM_OK;
}

/* -- copies by rank 0 */

static void copy_rank(struct trm_rank_states *to, const struct trm_local_state *states, int count)
{
  size_t bytes = 0;
  for (int i = 0; i < count; i++)
    bytes += states[i].bytes;
  to->memory = trm_grow(to->memory, &to->capacity, 0, bytes, 1, "a copy of the local states");
  to->count = count;
  char *data = to->memory;
  for (int i = 0; i < count; i++) {
    to->item[i] = states[i];
    to->item[i].data = memcpy(data, states[i].data, states[i].bytes);
    data += states[i].bytes;
  }
}

int trm_state_copy_take(struct trm_state_copy *copy, struct trm_model_gather *tensors,
                        struct trm_local_state_gather *local_states)
{
  for (int i = 0; i < copy->states && !copy->node; i++)
    for (int n = 0; n < trm_model_parameter_count(copy->model); n++)
      if (copy_has(copy->local_model, i, n))
        trm_model_gather_copy(tensors, i, n, copy->state[i] + trm_model_parameter(copy->model, n)->offset);
  trm_model_gather_end(tensors);
  for (int r = 0; r < local_states->ranks; r++) {
    const struct trm_local_state *states;
    int count;
    TRM_CHECK(trm_local_state_gather_next(local_states, r, &states, &count));
    copy_rank(&copy->ranks[r], states, count);
  }
  return TRM_OK;
}

int trm_state_copy_local_states(void *context, int rank, const struct trm_local_state **states, int *count)
{
  const struct trm_state_copy *copy = context;
  *states = copy->ranks[rank].item;
  *count = copy->ranks[rank].count;
  return TRM_OK;
}
