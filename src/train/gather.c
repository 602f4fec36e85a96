#include "train/gather.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

enum { TAG_SLICE = 32010 };
enum { NO_MORE = -1 };

/* The slice of a tensor that one rank has. */
struct tensor_slice {
  int32_t present;
  struct trm_slice slice;
};

static const struct trm_parameter *gather_find_parameter(const struct trm_model *model, int number)
{
  for (int i = 0; i < trm_model_parameter_count(model); i++) {
    const struct trm_parameter *p = trm_model_parameter(model, i);
    if (p->number == number && p->primary)
      return p;
  }
  return NULL;
}

static size_t gather_largest_tensor(const struct trm_model *model)
{
  size_t max_count = 1;
  for (int i = 0; i < trm_model_parameter_count(model); i++)
    if (trm_model_parameter(model, i)->count > max_count)
      max_count = trm_model_parameter(model, i)->count;
  return max_count;
}

/* Elements of tensor_buffer and slice_buffer on this rank; 0: not needed. */
struct gather_sizes {
  size_t tensor, slice;
};

/* Collective over grid->model. */
static struct gather_sizes gather_sizes(const struct trm_grid *grid, const struct trm_strategy *strategy,
                                        const struct trm_model *full_model, const struct trm_model *local_model)
{
  struct gather_sizes sizes = {0};
  if (grid->all->rank == 0 && (grid->model->size > 1 || strategy->ops->read))
    sizes.tensor = gather_largest_tensor(full_model);
  if (grid->model->size > 1 && grid->coord[TRM_AXIS_DATA] == 0) {
    int64_t max_elements = (int64_t)gather_largest_tensor(local_model); /* rank 0 receives every slice in this buffer */
    grid->model->ops->allreduce(grid->model, &max_elements, 1, TRM_INT64, TRM_MAX);
    sizes.slice = (size_t)max_elements;
  }
  return sizes;
}

size_t trm_model_gather_bytes(const struct trm_grid *grid, const struct trm_strategy *strategy,
                              const struct trm_model *full_model, const struct trm_model *local_model)
{
  const struct gather_sizes sizes = gather_sizes(grid, strategy, full_model, local_model);
  return (sizes.tensor + sizes.slice) * sizeof(float);
}

int trm_model_gather_begin(struct trm_model_gather *g, const struct trm_grid *grid, struct trm_strategy *strategy,
                           const struct trm_model *full_model, const struct trm_model *local_model)
{
  *g = (struct trm_model_gather){
    .grid = grid, .strategy = strategy, .full_model = full_model, .local_model = local_model, .open = true};
  g->rank0_has_all = grid->model->size == 1 && !strategy->ops->read;
  if (!strategy->ops->read)
    TRM_CHECK(strategy->ops->collect(strategy, g->view));
  const struct gather_sizes sizes = gather_sizes(grid, strategy, full_model, local_model);
  if (sizes.tensor > 0)
    g->tensor_buffer = trm_alloc(sizes.tensor * sizeof *g->tensor_buffer, "a whole tensor");
  if (sizes.slice > 0)
    g->slice_buffer = trm_alloc(sizes.slice * sizeof *g->slice_buffer, "a slice of a tensor");
  return TRM_OK;
}

/* Returns this rank's slice on the host, valid on rank 0 of the data axis. tensor: rank 0's memory for a whole one.
 * Collective over the data axis. */
static const float *gather_read_slice(struct trm_model_gather *g, int state, const struct trm_parameter *p,
                                      float *tensor)
{
  struct trm_strategy *s = g->strategy;
  if (p->frozen)
    return p->frozen_w;
  if (!s->ops->read)
    return g->view[state] + p->offset;
  float *to = g->slice_buffer ? g->slice_buffer : tensor; /* not sliced: reads the whole tensor */
  s->ops->read(s, state, p->offset, p->count, to);
  return to;
}

static void gather_place_slice(const struct tensor_slice *slice, const float *values, float *tensor)
{
  const struct trm_slice *s = &slice->slice;
  const size_t run_length = (s->high - s->low) * s->inner;
  for (size_t o = 0; o < s->outer; o++)
    memcpy(tensor + (o * s->extent + s->low) * s->inner, values + o * run_length, run_length * sizeof *tensor);
}

/* Gathers the slices of one tensor in rank 0's `tensor`. Collective over grid->all. */
static void gather_tensor(struct trm_model_gather *g, int state, int number, float *tensor)
{
  const struct trm_parameter *p = gather_find_parameter(g->local_model, number);
  const float *values = p ? gather_read_slice(g, state, p, tensor) : NULL;
  if (g->grid->coord[TRM_AXIS_DATA] != 0)
    return;
  struct trm_comm *comm = g->grid->model;
  const struct tensor_slice mine = {.present = p != NULL, .slice = p ? p->slice : (struct trm_slice){0}};
  struct tensor_slice *all = trm_alloc((size_t)comm->size * sizeof *all, "slices of a tensor");
  comm->ops->allgather(comm, &mine, all, sizeof mine, TRM_BYTE);
  struct trm_request *request;
  if (comm->rank > 0 && p) {
    comm->ops->send_begin(comm, values, p->count, TRM_FLOAT, 0, TAG_SLICE, &request);
    comm->ops->wait(&request);
  }
  for (int r = 0; r < comm->size && comm->rank == 0; r++) {
    const struct trm_slice *s = &all[r].slice;
    if (!all[r].present)
      continue;
    if (r > 0) {
      comm->ops->receive_begin(comm, g->slice_buffer, s->outer * (s->high - s->low) * s->inner, TRM_FLOAT, r, TAG_SLICE,
                               &request);
      comm->ops->wait(&request);
      gather_place_slice(&all[r], g->slice_buffer, tensor);
    } else if (values != tensor) {
      gather_place_slice(&mine, values, tensor);
    }
  }
  trm_free(all);
}

static const float *gather_whole_view(const struct trm_model_gather *g, int state, int number)
{
  const struct trm_parameter *p = gather_find_parameter(g->local_model, number);
  return p->frozen ? p->frozen_w : g->view[state] + p->offset;
}

/* Rank 0: requests a tensor of all ranks. */
static void gather_request(struct trm_model_gather *g, int state, int number, float *tensor)
{
  int32_t request[2] = {state, number};
  g->grid->all->ops->broadcast(g->grid->all, request, 2, TRM_INT32, 0);
  gather_tensor(g, state, number, tensor);
}

int trm_model_gather_tensor(void *context, int state, int number, const float **values)
{
  struct trm_model_gather *g = context;
  *values = g->rank0_has_all ? gather_whole_view(g, state, number) : g->tensor_buffer;
  if (!g->rank0_has_all)
    gather_request(g, state, number, g->tensor_buffer);
  return TRM_OK;
}

void trm_model_gather_copy(struct trm_model_gather *g, int state, int number, float *to)
{
  if (g->rank0_has_all)
    memcpy(to, gather_whole_view(g, state, number), trm_model_parameter(g->full_model, number)->count * sizeof *to);
  else
    gather_request(g, state, number, to);
}

void trm_model_gather_end(struct trm_model_gather *g)
{
  struct trm_comm *all = g->grid->all;
  if (g->open && !g->rank0_has_all && all->rank == 0)
    all->ops->broadcast(all, (int32_t[]){NO_MORE, 0}, 2, TRM_INT32, 0);
  while (g->open && !g->rank0_has_all && all->rank > 0) {
    int32_t request[2];
    all->ops->broadcast(all, request, 2, TRM_INT32, 0);
    if (request[0] == NO_MORE)
      break;
    gather_tensor(g, request[0], request[1], NULL);
  }
  g->open = false;
  trm_free(g->slice_buffer);
  trm_free(g->tensor_buffer);
  g->slice_buffer = g->tensor_buffer = NULL;
}

void trm_model_restore_begin(struct trm_model_restore *f, struct trm_strategy *strategy, int states)
{
  *f = (struct trm_model_restore){.strategy = strategy, .states = states};
  for (int i = 0; i < states && !strategy->ops->write; i++)
    f->array[i] = trm_alloc(strategy->elements * sizeof(float), "the initial state");
}

int trm_model_restore_parameter(void *context, int state, const struct trm_parameter *p, const float *values)
{
  struct trm_model_restore *f = context;
  if (p->frozen) {
    if (state == 0)
      memcpy(p->frozen_w, values, p->count * sizeof *values);
    return TRM_OK;
  }
  if (f->strategy->ops->write)
    return f->strategy->ops->write(f->strategy, state, p->offset, p->count, values);
  memcpy(f->array[state] + p->offset, values, p->count * sizeof *values);
  return TRM_OK;
}

int trm_model_restore_end(struct trm_model_restore *f, uint64_t updates, int status)
{
  const float *const from[TRM_MAX_STATES] = {f->array[0], f->array[1], f->array[2], f->array[3], f->array[4]};
  if (status == TRM_OK)
    status = f->strategy->ops->restore(f->strategy, from, updates);
  for (int i = 0; i < f->states; i++)
    trm_free(f->array[i]);
  return status;
}
