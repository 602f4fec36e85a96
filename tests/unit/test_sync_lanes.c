/* Synchronous training with lanes: the same bits at any number of ranks, whatever the order of additions in
 * all-reduces. Meant for 1 to 9 ranks. */
#include <stdint.h>
#include <string.h>

#include "sync_job.h"

/* Floats of very different magnitudes. */
static float rough_gradient(uint64_t step, int lane, size_t i)
{
  const uint32_t r = mix(step + 100, (uint64_t)lane, i);
  return ((float)(r % 65536) - 32768.0f) / 3.0f * ((r >> 16) % 7 == 0 ? 1.0f : 1e-3f);
}

/* All-reduce that adds from the last rank down, as an implementation may. Lanes must not depend on it. (MPI often adds
 * in the order of the tree, and would hide a defect.) */
static struct trm_comm_ops contrary;

static struct trm_comm *contrary_split(struct trm_comm *comm, int color, int key)
{
  struct trm_comm *part = world->ops->split(comm, color, key);
  if (part)
    part->ops = &contrary;
  return part;
}

static struct trm_comm *contrary_split_node(struct trm_comm *comm, enum trm_share domain)
{
  struct trm_comm *part = world->ops->split_node(comm, domain);
  part->ops = &contrary;
  return part;
}

static void contrary_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  if (op != TRM_SUM || (type != TRM_FLOAT && type != TRM_DOUBLE)) {
    world->ops->allreduce(comm, data, count, type, op);
    return;
  }
  char *all = trm_alloc((size_t)comm->size * count * trm_type_bytes(type), "test");
  world->ops->allgather(comm, data, all, count, type);
  for (size_t i = 0; i < count; i++) {
    float f = 0;
    double d = 0;
    for (int rank = comm->size - 1; rank >= 0; rank--) {
      const size_t at = (size_t)rank * count + i;
      f += type == TRM_FLOAT ? ((float *)all)[at] : 0;
      d += type == TRM_DOUBLE ? ((double *)all)[at] : 0;
    }
    if (type == TRM_FLOAT)
      ((float *)data)[i] = f;
    else
      ((double *)data)[i] = d;
  }
  trm_free(all);
}

static void contrary_allreduce_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type,
                                     enum trm_op op, struct trm_request **request)
{
  *request = NULL;
  if (op == TRM_SUM)
    contrary_allreduce(comm, data, count, type, op);
  else
    world->ops->allreduce_begin(comm, data, count, type, op, request);
}

/* Adds this rank's lanes of V in the tree. */
static void lanes_gradient(const struct job *job, const struct setup *c, uint64_t step, float *g)
{
  const int count = (int)c->lanes / job->strategy.batch_shards, first = job->strategy.batch_shard * count;
  float *lane[16];
  for (int l = 0; l < count; l++) {
    lane[l] = trm_alloc(c->elements * sizeof(float), "test");
    for (size_t i = 0; i < c->elements; i++)
      lane[l][i] = rough_gradient(step, first + l, i);
  }
  cpu.ops->sum(&cpu, &(struct trm_sum){.to = g, .from = (const float *const *)lane, .count = count, .n = c->elements});
  for (int l = 0; l < count; l++)
    trm_free(lane[l]);
}

/* The losses of 8 lanes, added in the tree: 1 0 1 0 1 0 2^53 0. Added from the right, the ones would be rounded off. */
static double lanes_loss(int first, int count)
{
  if (count == 1)
    return first == 6 ? 0x1p53 : first % 2 ? 0 : 1;
  return lanes_loss(first, count / 2) + lanes_loss(first + count / 2, count / 2);
}

/* Returns weights and their average after 3 steps, w (2, elements), and the last sum of losses. */
static double run_lanes(const struct setup *c, struct trm_comm *comm, float *w)
{
  struct job job;
  job_start(&job, c, comm);
  struct trm_strategy *s = &job.strategy;
  strategy_restore_initial(&job.strategy, initial);
  float *g = trm_alloc(c->elements * sizeof *g, "test");
  struct trm_loss_sums tally = {0};
  for (uint64_t step = 0; step < 3; step++) {
    lanes_gradient(&job, c, step, g);
    const int count = (int)c->lanes / s->batch_shards;
    tally = (struct trm_loss_sums){.loss = lanes_loss(s->batch_shard * count, count), .rows = 1};
    submit_gradient(&job, g, &tally);
    trm_strategy_begin_step(s, rate_of(step), 0, &tally);
    CHECK(c, s->ops->step(s, rate_of(step), &tally) == TRM_OK);
  }
  s->device->ops->download(s->device, w, s->w, c->elements * sizeof *w);
  s->device->ops->download(s->device, w + c->elements, s->eval_weights, c->elements * sizeof *w);
  strategy_end(&job.arrays);
  trm_free(g);
  return tally.loss;
}

static void test_lanes(void)
{
  static const enum trm_update_rule rules[] = {TRM_UPDATE_MOMENTUM, TRM_UPDATE_ADAM, TRM_UPDATE_LARS, TRM_UPDATE_LAMB};
  for (int variant = 0; variant < 12; variant++) {
    const struct setup alone = {.rule = rules[variant % 4],
                                .clip = variant >= 4 ? 1 : 0,
                                .ema = 0.9,
                                .share = TRM_SHARE_NONE,
                                .lanes = 8,
                                .pretends = variant >= 8,
                                .bucket = 30000,
                                .elements = 60000};
    const size_t bytes = 2 * alone.elements * sizeof(float);
    float *one = trm_alloc(bytes, "test"), *many = trm_alloc(bytes, "test");
    const double loss = run_lanes(&alone, trm_comm_self(), one);
    int ranks = 1; /* the largest power of two; other rank counts test smaller ones */
    while (2 * ranks <= world->size && ranks < 8)
      ranks *= 2;
    contrary = *world->ops;
    contrary.split = contrary_split;
    contrary.split_node = contrary_split_node;
    contrary.allreduce = contrary_allreduce;
    contrary.allreduce_begin = contrary_allreduce_begin;
    struct trm_comm *comm = contrary_split(world, world->rank < ranks ? 0 : -1, 0);
    for (int node_size = 0; comm && node_size <= 4; node_size++) { /* 3: uneven nodes, so none share */
      struct setup shared = alone;
      shared.share = TRM_SHARE_NODE;
      shared.node_size = node_size;
      memset(many, 0, bytes);
      CHECK(&shared, run_lanes(&shared, comm, many) == loss);
      CHECK(&shared, memcmp(one, many, bytes) == 0);
    }
    if (comm)
      comm->ops->release(comm);
    trm_free(one);
    trm_free(many);
  }
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"bit for bit", test_lanes},
    CU_TEST_INFO_NULL,
  };
  return method_devices_run(argc, argv, "lanes of sync", tests);
}
