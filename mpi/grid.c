#include "mpi/grid.h"

#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

static const char *const grid_axis_name[TRM_AXES] = {"data", "pipeline", "tensor"};

int trm_grid_shape(const struct trm_options *options, int ranks, int size[TRM_AXES])
{
  const int64_t requested[TRM_AXES] = {options->parallel.data, options->parallel.pipeline, options->parallel.tensor};
  int64_t product = 1;
  int inferred = -1;
  for (int a = 0; a < TRM_AXES; a++) {
    if (requested[a] == 0)
      return trm_error(TRM_USAGE, "parallel.%s: 0 ranks asked for, must be at least 1, or -1: all there are",
                       grid_axis_name[a]);
    if (requested[a] < 0 && inferred >= 0)
      return trm_error(TRM_USAGE, "parallel.%s and parallel.%s are both -1: only one can be what the others leave",
                       grid_axis_name[inferred], grid_axis_name[a]);
    if (requested[a] < 0)
      inferred = a;
    else
      product *= requested[a];
    if (product > ranks)
      break;
  }
  if (product > ranks || ranks % product != 0 || (inferred < 0 && product != ranks))
    return trm_error(TRM_USAGE,
                     "parallel: data %lld x pipeline %lld x tensor %lld does not make the %d rank%s of the "
                     "job",
                     (long long)requested[0], (long long)requested[1], (long long)requested[2], ranks,
                     ranks == 1 ? "" : "s");
  for (int a = 0; a < TRM_AXES; a++)
    size[a] = a == inferred ? ranks / (int)product : (int)requested[a];
  return TRM_OK;
}

/* A communicator of all ranks, those of a node one after the other, nodes in order of their first ranks. */
static struct trm_comm *grid_order_by_nodes(struct trm_comm *comm)
{
  struct trm_comm *node = comm->ops->split_node(comm, TRM_SHARE_NODE);
  int32_t first = comm->rank;
  node->ops->broadcast(node, &first, 1, TRM_INT32, 0);
  node->ops->release(node);
  return comm->ops->split(comm, 0, first); /* equal keys are ordered by rank */
}

int trm_grid_create(struct trm_grid *grid, const struct trm_options *options, struct trm_comm *comm)
{
  *grid = (struct trm_grid){0};
  TRM_CHECK(trm_grid_shape(options, comm->size, grid->size));
  const int *size = grid->size;
  struct trm_comm *all = grid->all = grid_order_by_nodes(comm);
  int *place = grid->coord;
  place[TRM_AXIS_TENSOR] = all->rank % size[TRM_AXIS_TENSOR];
  place[TRM_AXIS_DATA] = all->rank / size[TRM_AXIS_TENSOR] % size[TRM_AXIS_DATA];
  place[TRM_AXIS_PIPELINE] = all->rank / (size[TRM_AXIS_TENSOR] * size[TRM_AXIS_DATA]);
  const int block = size[TRM_AXIS_TENSOR] * size[TRM_AXIS_DATA]; /* ranks of a stage */
  grid->axis[TRM_AXIS_TENSOR] = all->ops->split(all, all->rank / size[TRM_AXIS_TENSOR], 0);
  grid->axis[TRM_AXIS_DATA] =
    all->ops->split(all, place[TRM_AXIS_PIPELINE] * size[TRM_AXIS_TENSOR] + place[TRM_AXIS_TENSOR], 0);
  grid->axis[TRM_AXIS_PIPELINE] = all->ops->split(all, all->rank % block, 0);
  grid->model = all->ops->split(all, place[TRM_AXIS_DATA], 0);
  all->role = TRM_COMM_JOB;
  grid->axis[TRM_AXIS_TENSOR]->role = TRM_COMM_TENSOR;
  grid->axis[TRM_AXIS_DATA]->role = TRM_COMM_DATA;
  grid->axis[TRM_AXIS_PIPELINE]->role = TRM_COMM_PIPELINE;
  grid->model->role = TRM_COMM_MODEL;
  return TRM_OK;
}

void trm_grid_free(struct trm_grid *grid)
{
  struct trm_comm *const comms[] = {grid->axis[0], grid->axis[1], grid->axis[2], grid->model, grid->all};
  for (size_t i = 0; i < sizeof comms / sizeof comms[0]; i++)
    if (comms[i])
      comms[i]->ops->release(comms[i]);
  *grid = (struct trm_grid){0};
}

void trm_grid_announce(const struct trm_grid *grid)
{
  struct trm_comm *all = grid->all;
  const int *size = grid->size;
  if (size[TRM_AXIS_PIPELINE] * size[TRM_AXIS_TENSOR] == 1)
    return;
  int32_t inside[TRM_AXES]; /* 1: the whole axis is on one node */
  for (int a = 0; a < TRM_AXES; a++) {
    struct trm_comm *node = grid->axis[a]->ops->split_node(grid->axis[a], TRM_SHARE_NODE);
    inside[a] = node->size == size[a];
    node->ops->release(node);
  }
  all->ops->allreduce(all, inside, TRM_AXES, TRM_INT32, TRM_MIN);
  char text[256] = "";
  for (int a = 0; a < TRM_AXES; a++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %d%s", a ? " x " : "", grid_axis_name[a], size[a],
             size[a] == 1 ? ""
             : inside[a]  ? " (within a node)"
                          : " (across nodes)");
  trm_info("grid: %s; rank = (stage * %d + data part) * %d + tensor slice", text, size[TRM_AXIS_DATA],
           size[TRM_AXIS_TENSOR]);
}
