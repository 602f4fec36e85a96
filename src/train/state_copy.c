#include "train/state_copy.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

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
  return o->run.checkpoint_every >= 0 && first < steps;
}

static int64_t copy_local_bytes(const struct trm_strategy *strategy)
{
  int64_t bytes = 0;
  for (int i = 0; i < strategy->local_states; i++)
    bytes += (int64_t)strategy->local_state[i].bytes;
  return bytes;
}

size_t trm_state_copy_bytes(struct trm_comm *comm, const struct trm_model *model, const struct trm_strategy *strategy)
{
  int64_t bytes = copy_local_bytes(strategy);
  comm->ops->allreduce(comm, &bytes, 1, TRM_INT64, TRM_SUM);
  const int states = 1 + strategy->optimizer->states;
  return comm->rank == 0 ? (size_t)bytes + (size_t)states * model->parameters * sizeof(float) : 0;
}

void trm_state_copy_open(struct trm_state_copy *copy, struct trm_comm *comm, const struct trm_model *model,
                         const struct trm_strategy *strategy)
{
  *copy = (struct trm_state_copy){.model = model};
  const int64_t mine = copy_local_bytes(strategy);
  int64_t *bytes = trm_alloc((size_t)comm->size * sizeof *bytes, "sizes of local states");
  comm->ops->allgather(comm, &mine, bytes, sizeof mine, TRM_BYTE);
  if (comm->rank == 0) {
    copy->states = 1 + strategy->optimizer->states;
    for (int i = 0; i < copy->states; i++)
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
  for (int i = 0; i < copy->states; i++)
    trm_free(copy->state[i]);
  for (int r = 0; r < copy->rank_count; r++)
    trm_free(copy->ranks[r].memory);
  trm_free(copy->ranks);
  *copy = (struct trm_state_copy){.states = 0};
}

int trm_state_copy_touch(void *context)
{
  const struct trm_state_copy *copy = context;
  for (int i = 0; i < copy->states; i++)
    memset(copy->state[i], 0, copy->model->parameters * sizeof(float));
  for (int r = 0; r < copy->rank_count; r++)
    memset(copy->ranks[r].memory, 0, copy->ranks[r].capacity);
  return TRM_OK;
}

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
  for (int i = 0; i < copy->states; i++)
    for (int n = 0; n < trm_model_parameter_count(copy->model); n++)
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
