#include "train/whole.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

enum { TAG_PIECE = 32010 };
enum { NO_MORE = -1 };

/* What a rank has of a tensor. */
struct piece {
  int32_t has;
  struct trm_slice slice;
};

static const struct trm_parameter *find(const struct trm_model *part, int number)
{
  for (int i = 0; i < trm_model_parameter_count(part); i++) {
    const struct trm_parameter *p = trm_model_parameter(part, i);
    if (p->number == number && p->counted)
      return p;
  }
  return NULL;
}

static size_t largest(const struct trm_model *model)
{
  size_t most = 1;
  for (int i = 0; i < trm_model_parameter_count(model); i++)
    if (trm_model_parameter(model, i)->count > most)
      most = trm_model_parameter(model, i)->count;
  return most;
}

int trm_gathering_begin(struct trm_gathering *g, const struct trm_grid *grid, struct trm_strategy *strategy,
                        const struct trm_model *whole, const struct trm_model *part)
{
  *g = (struct trm_gathering){.grid = grid, .strategy = strategy, .whole = whole, .part = part, .open = true};
  g->alone = grid->model->size == 1 && !strategy->ops->read;
  if (!strategy->ops->read)
    TRM_CHECK(strategy->ops->collect(strategy, g->view));
  if (!g->alone && grid->all->rank == 0)
    g->tensor = trm_alloc(largest(whole) * sizeof *g->tensor, "a whole tensor");
  if (!g->alone && grid->model->size > 1 && grid->place[TRM_AXIS_DATA] == 0) {
    int64_t most = (int64_t)largest(part); /* rank 0 gets everybody's into the same room */
    grid->model->ops->allreduce(grid->model, &most, 1, TRM_INT64, TRM_MAX);
    g->piece = trm_alloc((size_t)most * sizeof *g->piece, "a tensor on its way");
  }
  return TRM_OK;
}

/* The host values of this rank's piece, on the first rank of the data axis. */
static const float *piece_read(struct trm_gathering *g, int state, const struct trm_parameter *p)
{
  struct trm_strategy *s = g->strategy;
  if (!s->ops->read)
    return g->view[state] + p->offset;
  float *to = g->piece ? g->piece : g->tensor; /* layers are whole: what is read is the tensor */
  s->ops->read(s, state, p->offset, p->count, to);
  return to;
}

static void piece_put(const struct piece *piece, const float *values, float *tensor)
{
  const struct trm_slice *s = &piece->slice;
  const size_t run = (s->high - s->low) * s->inner;
  for (size_t o = 0; o < s->outer; o++)
    memcpy(tensor + (o * s->whole + s->low) * s->inner, values + o * run, run * sizeof *tensor);
}

/* Collective: the pieces of one tensor come to rank 0. */
static void pieces_bring(struct trm_gathering *g, int state, int number)
{
  const struct trm_parameter *p = find(g->part, number);
  const float *values = p ? piece_read(g, state, p) : NULL;
  if (g->grid->place[TRM_AXIS_DATA] != 0)
    return;
  struct trm_comm *comm = g->grid->model;
  const struct piece mine = {.has = p != NULL, .slice = p ? p->slice : (struct trm_slice){0}};
  struct piece *all = trm_alloc((size_t)comm->size * sizeof *all, "pieces of a tensor");
  comm->ops->allgather(comm, &mine, all, sizeof mine, TRM_BYTE);
  struct trm_request *request;
  if (comm->rank > 0 && p) {
    comm->ops->send_begin(comm, values, p->count, TRM_FLOAT, 0, TAG_PIECE, &request);
    comm->ops->wait(&request);
  }
  for (int r = 0; r < comm->size && comm->rank == 0; r++) {
    const struct trm_slice *s = &all[r].slice;
    if (!all[r].has)
      continue;
    if (r > 0) {
      comm->ops->receive_begin(comm, g->piece, s->outer * (s->high - s->low) * s->inner, TRM_FLOAT, r, TAG_PIECE,
                               &request);
      comm->ops->wait(&request);
      piece_put(&all[r], g->piece, g->tensor);
    } else if (values != g->tensor) {
      piece_put(&mine, values, g->tensor);
    }
  }
  trm_free(all);
}

int trm_gathering_tensor(void *context, int state, int number, const float **values)
{
  struct trm_gathering *g = context;
  if (g->alone) {
    *values = g->view[state] + find(g->part, number)->offset;
    return TRM_OK;
  }
  int32_t wanted[2] = {state, number};
  g->grid->all->ops->broadcast(g->grid->all, wanted, 2, TRM_INT32, 0);
  pieces_bring(g, state, number);
  *values = g->tensor;
  return TRM_OK;
}

void trm_gathering_end(struct trm_gathering *g)
{
  struct trm_comm *all = g->grid->all;
  if (g->open && !g->alone && all->rank == 0)
    all->ops->broadcast(all, (int32_t[]){NO_MORE, 0}, 2, TRM_INT32, 0);
  while (g->open && !g->alone && all->rank > 0) {
    int32_t wanted[2];
    all->ops->broadcast(all, wanted, 2, TRM_INT32, 0);
    if (wanted[0] == NO_MORE)
      break;
    pieces_bring(g, wanted[0], wanted[1]);
  }
  g->open = false;
  trm_free(g->piece);
  trm_free(g->tensor);
  g->piece = g->tensor = NULL;
}

void trm_filling_begin(struct trm_filling *f, struct trm_strategy *strategy, int states)
{
  *f = (struct trm_filling){.strategy = strategy, .states = states};
  for (int i = 0; i < states && !strategy->ops->write; i++)
    f->array[i] = trm_alloc(strategy->elements * sizeof(float), "what a run begins with");
}

int trm_filling_give(void *context, int state, const struct trm_parameter *p, const float *values)
{
  struct trm_filling *f = context;
  if (f->strategy->ops->write)
    return f->strategy->ops->write(f->strategy, state, p->offset, p->count, values);
  memcpy(f->array[state] + p->offset, values, p->count * sizeof *values);
  return TRM_OK;
}

int trm_filling_end(struct trm_filling *f, uint64_t updates, int status)
{
  const float *const from[TRM_MAX_STATES] = {f->array[0], f->array[1], f->array[2], f->array[3]};
  if (status == TRM_OK)
    status = f->strategy->ops->restore(f->strategy, from, updates);
  for (int i = 0; i < f->states; i++)
    trm_free(f->array[i]);
  return status;
}
