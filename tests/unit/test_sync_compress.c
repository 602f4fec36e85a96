/* Synchronous training with compressed gradients between nodes (TRM_NODE_SIZE): all that is sent equals no compression;
 * equal weights on all ranks; a resumed run is the undisturbed one, bit for bit; dgc clips each node's gradient as a
 * loop in double precision does. Meant for 1 to 9 ranks. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "mpi/compress/compressor_private.h"
#include "mpi/sync/sync_private.h"
#include "sync_job.h"

static const struct setup plain = {
  .rule = TRM_UPDATE_MOMENTUM, .share = TRM_SHARE_NODE, .bucket = 65536, .elements = 70000 / 16 * 16};

/* Copies a state, 0: the weights, to `to` on all ranks. */
static void read_all(struct job *job, int state, float *to)
{
  CU_ASSERT_EQUAL(strategy_read(&job->strategy, state, to), TRM_OK);
  world->ops->broadcast(world, to, job->strategy.elements, TRM_FLOAT, 0);
}

/* Returns true if all ranks have the same weights, bit for bit. */
static bool same_everywhere(const struct job *job)
{
  const uint32_t *w = (const uint32_t *)job->strategy.w;
  int64_t sum = 0;
  for (size_t i = 0; i < job->strategy.elements; i++)
    sum = (sum * 31 + w[i]) % 1000000007;
  int64_t both[2] = {sum, -sum};
  world->ops->allreduce(world, both, 2, TRM_INT64, TRM_MAX);
  return both[0] == -both[1];
}

static void steps_make(struct job *job, const struct setup *c, int steps)
{
  for (int i = 0; i < steps; i++)
    exact_step(job, c);
}

/* Ranks of a node send nothing to one another. */
static bool has_other_nodes(const struct setup *c)
{
  return world->size > 1 && c->node_size > 0 && c->node_size < world->size;
}

static void test_all_sent(void)
{
  const size_t bytes = plain.elements * sizeof(float);
  float *whole = trm_alloc(bytes, "test"), *compressed = trm_alloc(bytes, "test");
  for (int node_size = 0; node_size <= 2; node_size++) {
    struct setup c = plain;
    struct job job;
    c.node_size = node_size;
    c.clip = node_size == 2 ? 20 : 0;
    job_start(&job, &c, world);
    strategy_restore_initial(&job.strategy, initial);
    steps_make(&job, &c, 3);
    read_all(&job, 0, whole);
    strategy_end(&job.arrays);
    c.compress = TRM_COMPRESS_TOPK;
    c.ratio = 1;
    job_start(&job, &c, world);
    strategy_restore_initial(&job.strategy, initial);
    steps_make(&job, &c, 3);
    read_all(&job, 0, compressed);
    CHECK(&c, has_other_nodes(&c) == (((struct sync *)job.strategy.impl)->compressor != NULL));
    strategy_end(&job.arrays);
    CHECK(&c, memcmp(whole, compressed, bytes) == 0);
  }
  trm_free(whole);
  trm_free(compressed);
}

/* -- resuming. What a checkpoint has: weights, states, local states. */
struct saved {
  float *array[TRM_MAX_STATES];
  void *local[TRM_MAX_LOCAL_STATES];
  int locals;
};

static void save(struct saved *saved, struct job *job)
{
  struct trm_strategy *s = &job->strategy;
  for (int i = 0; i <= job->optimizer.states; i++) {
    saved->array[i] = trm_alloc(s->elements * sizeof(float), "test");
    read_all(job, i, saved->array[i]);
  }
  saved->locals = s->local_states;
  for (int i = 0; i < s->local_states; i++) {
    saved->local[i] = trm_alloc(s->local_state[i].bytes, "test");
    memcpy(saved->local[i], s->local_state[i].data, s->local_state[i].bytes);
  }
}

static void saved_free(struct saved *saved)
{
  for (int i = 0; i < TRM_MAX_STATES; i++)
    trm_free(saved->array[i]);
  for (int i = 0; i < saved->locals; i++)
    trm_free(saved->local[i]);
}

static void restore(const struct saved *saved, struct job *job, const struct setup *c)
{
  struct trm_strategy *s = &job->strategy;
  const float *const from[TRM_MAX_STATES] = {saved->array[0], saved->array[1], saved->array[2], saved->array[3]};
  CHECK(c, s->local_states == saved->locals);
  for (int i = 0; i < saved->locals; i++)
    memcpy(s->local_state[i].data, saved->local[i], s->local_state[i].bytes);
  s->local_state_restored = true;
  CHECK(c, s->ops->restore(s, from, 3) == TRM_OK);
}

static void check_resume(const struct setup *c)
{
  const size_t bytes = c->elements * sizeof(float);
  float *straight = trm_alloc(bytes, "test"), *resumed = trm_alloc(bytes, "test");
  struct saved half = {0};
  struct job job;
  job_start(&job, c, world);
  strategy_restore_initial(&job.strategy, initial);
  steps_make(&job, c, 3);
  save(&half, &job);
  steps_make(&job, c, 2);
  read_all(&job, 0, straight);
  CHECK(c, same_everywhere(&job));
  CHECK(c, (job.strategy.wire.bytes > 0) == has_other_nodes(c));
  strategy_end(&job.arrays);
  job_start(&job, c, world);
  restore(&half, &job, c);
  steps_make(&job, c, 2);
  read_all(&job, 0, resumed);
  strategy_end(&job.arrays);
  CHECK(c, memcmp(straight, resumed, bytes) == 0);
  CHECK(c, memcmp(straight, half.array[0], bytes) != 0);
  saved_free(&half);
  trm_free(straight);
  trm_free(resumed);
}

static void test_resume(void)
{
  for (enum trm_compress compress = TRM_COMPRESS_BF16; compress <= TRM_COMPRESS_POWERSGD; compress++)
    for (int node_size = 1; node_size <= 2; node_size++) {
      struct setup c = plain;
      c.compress = compress;
      c.ratio = 0.01;
      c.node_size = node_size;
      c.rule = compress == TRM_COMPRESS_DGC ? TRM_UPDATE_SGD : TRM_UPDATE_MOMENTUM;
      c.clip = compress == TRM_COMPRESS_DGC ? 40 * (node_size - 1) : 0;
      if (world->size > 4 && (int)compress % 2 == node_size - 1)
        continue;
      if (compress != TRM_COMPRESS_DGC || has_other_nodes(&c))
        check_resume(&c);
    }
}

/* -- dgc with clipping */

static const struct setup dgc = {
  .rule = TRM_UPDATE_SGD, .share = TRM_SHARE_NODE, .bucket = 65536, .elements = 70000 / 16 * 16,
  .compress = TRM_COMPRESS_DGC, .ratio = 0.01, .momentum = 0.5};

/* What a rank knows of a run, in double precision: all weights; momentum and sum of its node, in its slices. */
struct reference {
  double w[70000], u[70000], v[70000];
};

/* Sets g (elements) to this node's gradient, clipped. */
static void reference_gradient(const struct job *job, const struct setup *c, uint64_t step, double *g)
{
  const struct sync *s = job->strategy.impl;
  const size_t trained = trained_of(c);
  int32_t shard[9], mine = job->strategy.batch_shard;
  double square = 0;
  s->node->ops->allgather(s->node, &mine, shard, 1, TRM_INT32);
  for (size_t i = 0; i < c->elements; i++) {
    g[i] = 0;
    for (int rank = 0; rank < s->node->size; rank++)
      g[i] += (double)exact_gradient(step, shard[rank], i);
    square += i < trained ? g[i] * g[i] : 0;
  }
  if (c->model)
    c->model->ops->allreduce(c->model, &square, 1, TRM_DOUBLE, TRM_SUM);
  const double limit = c->clip / sqrt(s->cross[0]->size), norm = sqrt(square);
  for (size_t i = 0; i < trained && c->clip > 0 && norm > limit; i++)
    g[i] *= limit / norm;
}

/* Adds to sum what this rank sends of a slice. Which elements these are is seen from the compressor's sum, which is 0
 * there; they must be the largest, and as many as the ratio says. */
static void reference_send(struct reference *r, const struct setup *c, const struct compress_part *part,
                           const double *g, double *sum)
{
  size_t sent = 0;
  double least = INFINITY, most = 0, worst = 0;
  for (size_t i = 0; i < part->n; i++) {
    double *const u = &r->u[part->low + i], *const v = &r->v[part->low + i];
    *u = c->momentum * *u + g[part->low + i];
    *v += *u;
    if (part->state[1][i] == 0 && fabs(*v) > 1e-6) { /* a sum may also vanish by itself */
      sent++;
      least = fmin(least, fabs(*v));
      sum[part->low + i] += *v;
      *u = *v = 0;
    } else {
      most = fmax(most, fabs(*v));
    }
    worst = fmax(worst, fabs(*v - (double)part->state[1][i]) + fabs(*u - (double)part->state[0][i]));
  }
  CHECK(c, sent == (size_t)ceil(c->ratio * (double)part->n));
  CHECK(c, least >= most - 1e-6); /* four steps, a few roundings each of values below 16, whose half ulp is 5e-7 */
  CHECK(c, worst <= 1e-6);
  for (size_t i = part->n; i < part->n + part->exact; i++)
    sum[part->low + i] += g[part->low + i];
}

/* After a step of the job: the same step of the reference. */
static void reference_step(struct reference *r, const struct job *job, const struct setup *c, uint64_t step)
{
  const struct compressor *compressor = ((struct sync *)job->strategy.impl)->compressor;
  struct trm_comm *comm = job->strategy.comm;
  double *g = trm_alloc(c->elements * sizeof *g, "test"), *sum = trm_alloc(c->elements * sizeof *sum, "test");
  reference_gradient(job, c, step, g);
  for (int i = 0; i < compressor->parts; i++)
    reference_send(r, c, &compressor->part[i], g, sum);
  comm->ops->allreduce(comm, sum, c->elements, TRM_DOUBLE, TRM_SUM);
  double worst = 0;
  for (size_t i = 0; i < c->elements; i++) {
    r->w[i] -= i < trained_of(c) ? rate_of(step) * (sum[i] + (double)job->optimizer.update.l2 * r->w[i])
                                 : (double)STATISTIC_MOMENTUM * (r->w[i] - sum[i]);
    worst = fmax(worst, fabs(r->w[i] - (double)job->strategy.w[i]));
  }
  CHECK(c, worst <= 2e-6);
  trm_free(g);
  trm_free(sum);
}

static void check_clip(const struct setup *c, struct trm_comm *comm)
{
  struct reference *r = trm_alloc(sizeof *r, "test");
  struct job job;
  job_start(&job, c, comm);
  strategy_restore_initial(&job.strategy, initial);
  for (size_t i = 0; i < c->elements; i++)
    r->w[i] = (double)initial(i);
  for (uint64_t step = 0; step < 4; step++) {
    exact_step(&job, c);
    reference_step(r, &job, c, step);
  }
  strategy_end(&job.arrays);
  trm_free(r);
}

/* The norm of a rank's gradient is about 63, that of a node of m ranks sqrt(m) times as large. The thresholds, which
 * sqrt(nodes) divides, act on all nodes, on the larger ones, on none. */
static void test_clip(void)
{
  for (int node_size = 1; node_size <= 3; node_size++) {
    struct setup c = dgc;
    c.node_size = node_size;
    const double nodes = ceil((double)world->size / node_size), clips[] = {40, 75 * sqrt(nodes), 1e6};
    for (int i = 0; i < 3 && has_other_nodes(&c); i++) {
      c.clip = clips[i];
      check_clip(&c, world);
    }
  }
}

/* A threshold that is never reached changes no bit. */
static void test_no_clip(void)
{
  const size_t bytes = dgc.elements * sizeof(float);
  float *w[3];
  for (int node_size = 1; node_size <= 2; node_size++) {
    for (int i = 0; i < 3; i++) {
      struct setup c = dgc;
      struct job job;
      w[i] = trm_alloc(bytes, "test");
      c.node_size = node_size;
      if (!has_other_nodes(&c))
        continue;
      c.clip = i == 0 ? 0 : i == 1 ? 1e6 : 40;
      job_start(&job, &c, world);
      strategy_restore_initial(&job.strategy, initial);
      steps_make(&job, &c, 4);
      read_all(&job, 0, w[i]);
      CHECK(&c, same_everywhere(&job));
      strategy_end(&job.arrays);
      CHECK(&c, i == 0 || (memcmp(w[i], w[0], bytes) == 0) == (i == 1));
    }
    for (int i = 0; i < 3; i++)
      trm_free(w[i]);
  }
}

/* A model in two parts, on ranks 0 and 1, and 2 and 3: the norm is that of both parts. On nodes that divide them
 * unlike, {0, 1, 2} and {3}, there is none of a node. */
static void test_clip_parts(void)
{
  struct setup c = dgc;
  if (world->size < 4)
    return;
  const bool takes_part = world->rank < 4;
  struct trm_comm *data = world->ops->split(world, takes_part ? world->rank / 2 : -1, 0);
  c.model = world->ops->split(world, takes_part ? world->rank % 2 : -1, 0);
  c.node_size = 1;
  c.clip = 100; /* on a node of norm 63 in each part */
  if (takes_part) {
    check_clip(&c, data);
    struct job job = {.options.parallel = {.share = c.share, .bucket = c.bucket},
                      .options.strategy = {.compress = c.compress, .compress_ratio = c.ratio,
                                            .error_feedback = true},
                      .options.optim.clip = c.clip};
    tensors_make(&job, &c);
    job.strategy = (struct trm_strategy){.ops = trm_strategy_find("sync"), .comm = data, .norm_comm = c.model,
                                         .device = &cpu, .optimizer = &job.optimizer, .elements = c.elements,
                                         .boundary = &c.elements, .boundaries = 1};
    trm_strategy_set_options(&job.strategy, &job.options);
    CHECK(&c, strategy_create(&job.strategy, 3) == TRM_USAGE);
    CHECK(&c, strstr(trm_error_text(), "optim.clip: strategy.compress=dgc clips the gradient of each node"));
    data->ops->release(data);
    c.model->ops->release(c.model);
  }
}

static void test_one_node(void)
{
  struct setup c = plain;
  struct job job;
  c.compress = TRM_COMPRESS_SIGN;
  job_start(&job, &c, world); /* no effect */
  strategy_restore_initial(&job.strategy, initial);
  exact_step(&job, &c);
  CHECK(&c, job.strategy.wire.bytes == 0 && job.strategy.local_states == 0);
  job.options.strategy.compress = TRM_COMPRESS_DGC;
  struct trm_strategy other = {.ops = trm_strategy_find("sync"), .comm = world, .device = &cpu,
                               .optimizer = &job.optimizer, .elements = c.elements, .boundary = job.boundary,
                               .boundaries = 5};
  trm_strategy_set_options(&other, &job.options);
  CHECK(&c, strategy_create(&other, 0) == TRM_USAGE);
  CHECK(&c, strstr(trm_error_text(), "strategy.compress=dgc") && strstr(trm_error_text(), "one node"));
  strategy_end(&job.arrays);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"all of it sent", test_all_sent},
    {"a resumed run", test_resume},
    {"dgc clips each node's gradient", test_clip},
    {"dgc, a threshold out of reach", test_no_clip},
    {"dgc clips a model in parts", test_clip_parts},
    {"one node", test_one_node},
    CU_TEST_INFO_NULL,
  };
  return method_devices_run(argc, argv, "sync_compress", tests);
}
