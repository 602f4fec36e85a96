/* Every training method under random schedules of the virtual network (mpi/virtual.h): each seed chooses a method, its
 * options, the ranks, a schedule and in some runs outages (train/slowdown.h): pauses, late joiners, failures. The run
 * must end, do each batch once, and lose no gradient; the batch of a worker that fails is another's. Snapshots of the
 * weights must have the gradients of their step.
 *
 * TRM_TEST_SCHEDULES=N runs seeds 1 to N; TRM_TEST_SEED=K runs seed K alone, in this process, for a debugger. */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "method.h"
#include "mpi/async/worker.h"
#include "mpi/virtual.h"
#include "train/slowdown.h"

enum { SCHEDULES = 4000, MAX_RANKS = 6, MAX_BATCHES = 20, LANES = 4, MAX_FAILURES = 5 };
#define RATE 0.125
#define LATE "100" /* seconds, many more than the run of the others */

/* What is known of the weights of a method where the gradients do not depend on them (WHERE_APPLIED). */
enum promise {
  PROMISE_NOTHING, /* but that they are finite, and equal on all ranks */
  PROMISE_SUM,     /* the evaluated weights have each gradient once */
  PROMISE_SHARE,   /* the evaluated weights have one gradient in the number of workers */
  PROMISE_REPLICA, /* the evaluated weights have one gradient in the number of replicas */
  PROMISE_CENTER,  /* the weights of the workers and the center together have each gradient once */
  PROMISE_GROUPS   /* an update has the mean of some gradients; some may be left */
};

struct variant {
  const char *name, *method;
  enum promise promise;
  bool repeats;          /* no schedule changes the bits, if the batches are assigned statically */
  bool sees_own;         /* a worker's weights have all gradients that it has sent */
  int zero, lanes, tau, servers, aggregate, groups, overlap, fragments;
  bool stops, frame;
  int slack;             /* at most; drawn */
  enum trm_stale_rate rate;
};

static const struct variant variants[] = {
  {.name = "sync", .method = "sync", .promise = PROMISE_SUM, .repeats = true},
  {.name = "sync with lanes", .method = "sync", .promise = PROMISE_NOTHING, .repeats = true, .lanes = LANES},
  {.name = "ZeRO 1", .method = "sync", .promise = PROMISE_SUM, .repeats = true, .zero = 1},
  {.name = "ZeRO 2", .method = "sync", .promise = PROMISE_SUM, .repeats = true, .zero = 2},
  {.name = "ZeRO 3", .method = "sync", .promise = PROMISE_SUM, .repeats = true, .zero = 3},
  {.name = "local", .method = "local", .promise = PROMISE_REPLICA, .repeats = true, .tau = 3},
  {.name = "local, fragments", .method = "local", .promise = PROMISE_REPLICA, .repeats = true, .tau = 4,
   .fragments = 2},
  {.name = "postlocal", .method = "postlocal", .promise = PROMISE_REPLICA, .repeats = true, .tau = 2},
  {.name = "slowmo", .method = "slowmo", .promise = PROMISE_NOTHING, .repeats = true, .tau = 3},
  {.name = "bmuf", .method = "bmuf", .promise = PROMISE_NOTHING, .repeats = true, .tau = 2},
  {.name = "diloco, fragments", .method = "diloco", .promise = PROMISE_NOTHING, .repeats = true, .tau = 3,
   .fragments = 3},
  {.name = "adasum", .method = "adasum", .promise = PROMISE_NOTHING, .repeats = true, .tau = 2},
  {.name = "asgd", .method = "asgd", .promise = PROMISE_SUM, .sees_own = true},
  {.name = "asgd, tau 3", .method = "asgd", .promise = PROMISE_SUM, .tau = 3},
  {.name = "asgd, rate by delay", .method = "asgd", .promise = PROMISE_NOTHING, .rate = TRM_STALE_RATE_DELAY},
  {.name = "asgd, one message a node", .method = "asgd", .promise = PROMISE_SUM, .aggregate = true},
  {.name = "asgd, servers", .method = "asgd", .promise = PROMISE_SUM, .sees_own = true, .servers = 2},
  {.name = "asgd, servers, tau 3", .method = "asgd", .promise = PROMISE_SUM, .servers = 1, .tau = 3},
  {.name = "asgd, servers, one message a node", .method = "asgd", .promise = PROMISE_SUM, .servers = 1,
   .aggregate = true},
  {.name = "groups", .method = "groups", .promise = PROMISE_SUM, .sees_own = true, .groups = 3},
  {.name = "hogwild", .method = "hogwild", .promise = PROMISE_SUM},
  {.name = "hogwild, tau 3", .method = "hogwild", .promise = PROMISE_NOTHING, .tau = 3},
  {.name = "softsync", .method = "softsync", .promise = PROMISE_GROUPS},
  {.name = "softsync, servers", .method = "softsync", .promise = PROMISE_GROUPS, .servers = 1},
  {.name = "dcasgd", .method = "dcasgd", .promise = PROMISE_SUM, .sees_own = true},
  {.name = "dana", .method = "dana", .promise = PROMISE_NOTHING},
  {.name = "dana, servers", .method = "dana", .promise = PROMISE_NOTHING, .servers = 2},
  {.name = "ormo", .method = "ormo", .promise = PROMISE_SUM, .sees_own = true},
  {.name = "ormo, servers", .method = "ormo", .promise = PROMISE_SUM, .sees_own = true, .servers = 1},
  {.name = "ringmaster", .method = "ringmaster", .promise = PROMISE_NOTHING},
  {.name = "ringmaster with stops", .method = "ringmaster", .promise = PROMISE_NOTHING, .stops = true},
  {.name = "ringmaster with stops, servers", .method = "ringmaster", .promise = PROMISE_NOTHING, .stops = true,
   .servers = 2},
  {.name = "mindflayer", .method = "mindflayer", .promise = PROMISE_NOTHING},
  {.name = "mindflayer, frame", .method = "mindflayer", .promise = PROMISE_NOTHING, .frame = true},
  {.name = "mindflayer, frame, servers", .method = "mindflayer", .promise = PROMISE_NOTHING, .frame = true,
   .servers = 1},
  {.name = "rennala, servers", .method = "rennala", .promise = PROMISE_NOTHING, .servers = 1},
  {.name = "backup", .method = "backup", .promise = PROMISE_NOTHING},
  {.name = "backup, servers", .method = "backup", .promise = PROMISE_NOTHING, .servers = 1},
  {.name = "malenia", .method = "malenia", .promise = PROMISE_NOTHING},
  {.name = "ringleader", .method = "ringleader", .promise = PROMISE_NOTHING},
  {.name = "ringleader, servers", .method = "ringleader", .promise = PROMISE_NOTHING, .servers = 1},
  {.name = "iaasgd", .method = "iaasgd", .promise = PROMISE_NOTHING},
  {.name = "ssp", .method = "ssp", .promise = PROMISE_SUM, .sees_own = true, .slack = 3},
  {.name = "ssp, slack 0", .method = "ssp", .promise = PROMISE_SUM, .repeats = true, .sees_own = true},
  {.name = "ssp, servers", .method = "ssp", .promise = PROMISE_SUM, .sees_own = true, .slack = 2, .servers = 1},
  {.name = "essp", .method = "essp", .promise = PROMISE_SUM, .sees_own = true, .slack = 3},
  {.name = "essp, slack 0", .method = "essp", .promise = PROMISE_SUM, .repeats = true, .sees_own = true},
  {.name = "easgd", .method = "easgd", .promise = PROMISE_CENTER},
  {.name = "easgd, tau 3, servers", .method = "easgd", .promise = PROMISE_CENTER, .tau = 3, .servers = 1},
  {.name = "eamsgd", .method = "eamsgd", .promise = PROMISE_NOTHING},
  {.name = "fedasync, tau 2", .method = "fedasync", .promise = PROMISE_NOTHING, .tau = 2},
  {.name = "fedbuff", .method = "fedbuff", .promise = PROMISE_SUM, .sees_own = true},
  {.name = "fedbuff, tau 3, servers", .method = "fedbuff", .promise = PROMISE_NOTHING, .tau = 3, .servers = 1},
  {.name = "asyncdiloco, tau 2", .method = "asyncdiloco", .promise = PROMISE_NOTHING, .tau = 2, .servers = 1},
  {.name = "halos, tau 2", .method = "halos", .promise = PROMISE_NOTHING, .tau = 2, .groups = 3},
  {.name = "halos, servers", .method = "halos", .promise = PROMISE_NOTHING, .servers = 1},
  {.name = "adpsgd", .method = "adpsgd", .promise = PROMISE_SHARE},
  {.name = "adpsgd, tau 3", .method = "adpsgd", .promise = PROMISE_SHARE, .tau = 3},
  {.name = "a2cid2", .method = "a2cid2", .promise = PROMISE_NOTHING},
  {.name = "sgp", .method = "sgp", .promise = PROMISE_SHARE, .repeats = true},
  {.name = "sgp, tau 3", .method = "sgp", .promise = PROMISE_SHARE, .repeats = true, .tau = 3},
  {.name = "sgp, overlap", .method = "sgp", .promise = PROMISE_SHARE, .overlap = 1},
  {.name = "keuper", .method = "keuper", .promise = PROMISE_NOTHING},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* WHERE_APPLIED: the gradient of shard k of batch b is 1 in the elements i with i mod slots = b shards + k, else 0, so
 * that the weights show which gradients they have. PARABOLA: it depends on the weights. */
enum gradients { WHERE_APPLIED, PARABOLA };

/* A run, and what its ranks have seen; they run one at a time. */
struct trial {
  /* settings */
  uint64_t seed;
  const struct variant *variant;
  struct trm_virtual_plan plan;
  enum gradients gradients;
  enum trm_assignment assignment;
  enum trm_share share;
  enum trm_update_rule rule;
  int servers, groups, slack, splits, bucket;
  bool by_rank;             /* every rank is a replica */
  uint64_t batches, middle; /* a quiesce point */
  int slow, halts;          /* rank that is slow; that requests a stop, -1: none */
  uint64_t halts_at;        /* after so many batches of its own */
  int snapshots;            /* evaluations between quiesce points, at most */
  size_t elements;
  char outages[192];        /* run.outages */
  int failures;             /* ranks that fail */
  bool is_late;             /* some rank joins at LATE */
  /* results */
  int computed[MAX_BATCHES][MAX_RANKS]; /* (batches, shards) 1 + the rank that did; 0: none */
  int of[MAX_BATCHES];                  /* shards of the batch, which differ between groups */
  int shards;                           /* the most */
  uint64_t begun[MAX_RANKS]; /* batches of each rank whose gradient it has begun to send */
  bool stopped;              /* a stop has been requested */
  uint64_t bits;
  char failure[512];         /* the first; empty: none */
};

struct job {
  struct trial *trial;
  struct trm_comm *comm;
  struct trm_options options;
  struct trm_optimizer optimizer;
  struct trm_tensor tensor[1];
  size_t boundary[4];
  struct trm_strategy strategy;
  struct trm_slowdown slowdown;
  uint64_t batch, mine; /* that is computed; number of those computed */
  uint64_t at[2];       /* (snapshots) steps of the snapshots up to the next quiesce point */
  int snapshots;
  bool has_stopped;     /* the latest batch was abandoned, with `missed` before it: the sum of the staleness */
  uint64_t missed;
  double kept;          /* push-sum weight of a worker that had failed at the last quiesce point; 0: it has not */
};

static void __attribute__((format(printf, 3, 4))) expect(const struct job *job, bool holds, const char *format, ...)
{
  struct trial *t = job->trial;
  if (holds || t->failure[0])
    return;
  va_list arguments;
  va_start(arguments, format);
  const int n = snprintf(t->failure, sizeof t->failure, "rank %d: ", job->comm->rank);
  vsnprintf(t->failure + n, sizeof t->failure - (size_t)n, format, arguments);
  va_end(arguments);
}

static const char *text_of(const struct trial *t)
{
  static char text[512];
  snprintf(text, sizeof text, "%s; %d ranks, %d a node, %s, %s; %s, rule %d, servers %d, groups %d, slack %d, "
           "splits %d, bucket %d, %zu elements; %d batches, quiesces at %d, %d snapshots, rank %d slow, rank %d stops "
           "after %d, outages \"%s\"",
           t->variant->name, t->plan.ranks, t->plan.ranks_per_node,
           t->share == TRM_SHARE_NODE ? "shared" : "not shared",
           t->assignment == TRM_ASSIGN_STATIC ? "static" : "dynamic",
           t->gradients == PARABOLA ? "parabola" : "where applied", (int)t->rule, t->servers, t->groups, t->slack,
           t->splits, t->bucket, t->elements, (int)t->batches, (int)t->middle, t->snapshots, t->slow, t->halts,
           (int)t->halts_at, t->outages);
  return text;
}

/* -- settings */

static bool is_method(const struct trial *t, const char *method)
{
  return strcmp(t->variant->method, method) == 0;
}

static bool is_synchronous(const struct trial *t)
{
  return !trm_strategy_find(t->variant->method)->next_batch;
}

/* Nodes, or with another draw ranks. */
static int replicas_of(const struct trial *t)
{
  const int per = t->by_rank ? 1 : t->plan.ranks_per_node;
  return (t->plan.ranks + per - 1) / per;
}

static bool splits_batches(const struct trial *t)
{
  return is_method(t, "ssp") || is_method(t, "essp");
}

/* Below `bound`. */
static int draw(const struct trial *t, int what, int bound)
{
  return (int)(mix(t->seed, (uint64_t)what, 77) % (uint32_t)bound);
}

/* The others go on without a worker that fails. */
static bool survives_failures(const struct trial *t)
{
  return !is_synchronous(t) && !splits_batches(t) && t->groups == 0 && t->assignment == TRM_ASSIGN_DYNAMIC;
}

/* A time of 1e-6 to 1 s: runs take 1e-3 to 6 s. */
static double draw_seconds(const struct trial *t, int what)
{
  return 1e-6 * (1 + draw(t, what, 1 << draw(t, what + 1, 21)));
}

/* Each worker but one may fail or join late, all may pause. */
static void trial_draw_outages(struct trial *t)
{
  const int workers = t->plan.ranks - t->servers, survivor = draw(t, 30, workers);
  size_t end = 0;
  for (int rank = 0; rank < workers; rank++) {
    const bool survives = rank == survivor;
    const int what = 40 + 10 * rank;
    const double from = draw_seconds(t, what), seconds = draw_seconds(t, what + 2);
    char text[64] = "";
    switch (draw(t, what + 4, 6)) {
    case 0:
      snprintf(text, sizeof text, "%d:%.6f-%.6f", rank, from, from + seconds);
      break;
    case 1:
      snprintf(text, sizeof text, "%d:0-%.6f", rank, from);
      break;
    case 2:
      t->is_late |= !survives;
      if (!survives)
        snprintf(text, sizeof text, "%d:0-" LATE, rank);
      break;
    case 3:
    case 4:
      if (survives || !survives_failures(t))
        break;
      t->failures++;
      snprintf(text, sizeof text, "%d:0-%.6f, %d:%.6f-", rank, seconds, rank, seconds + from);
      if (draw(t, what + 5, 2))
        snprintf(text, sizeof text, "%d:%.6f-", rank, draw(t, what + 6, 10) ? from : 0);
      break;
    }
    if (text[0])
      end += (size_t)snprintf(t->outages + end, sizeof t->outages - end, "%s%s", end ? ", " : "", text);
  }
}

static void trial_draw(struct trial *t, uint64_t seed)
{
  static const enum trm_update_rule rules[] = {TRM_UPDATE_SGD, TRM_UPDATE_MOMENTUM, TRM_UPDATE_ADAM};
  memset(t, 0, sizeof *t);
  t->seed = seed;
  const struct variant *v = t->variant = &variants[draw(t, 0, VARIANTS)];
  int ranks = 1 + draw(t, 1, MAX_RANKS);
  if (v->lanes)
    ranks = 1 << draw(t, 1, 3);
  t->servers = v->servers ? 1 + draw(t, 2, v->servers) : 0;
  ranks = ranks > t->servers ? ranks : t->servers + 1;
  t->groups = v->groups ? 1 + draw(t, 3, v->groups < ranks ? v->groups : ranks) : 0;
  t->slack = v->slack ? 1 + draw(t, 4, v->slack) : 0;
  t->splits = 1 + draw(t, 5, 3);
  t->plan = (struct trm_virtual_plan){.ranks = ranks, .ranks_per_node = 1 + draw(t, 6, 3), .latency = 1e-4,
                                      .bandwidth = 1e8, .service = 1e-5, .cores = draw(t, 20, 3), .slice = 1e-4,
                                      .schedule = seed};
  t->gradients = v->lanes || (v->repeats && draw(t, 7, 2)) || draw(t, 7, 4) == 0 ? PARABOLA : WHERE_APPLIED;
  t->assignment = v->repeats || draw(t, 8, 2) ? TRM_ASSIGN_STATIC : TRM_ASSIGN_DYNAMIC;
  t->by_rank = draw(t, 24, 3) == 0;
  t->share = draw(t, 9, 4) ? TRM_SHARE_NODE : TRM_SHARE_NONE;
  const unsigned takes = trm_strategy_find(v->method)->takes;
  const bool has_rules = is_synchronous(t) || (takes & TRM_TAKES_STATES && takes & TRM_TAKES_RULES);
  t->rule = has_rules && t->gradients == PARABOLA ? rules[draw(t, 10, 3)] : TRM_UPDATE_SGD;
  t->bucket = 256 << draw(t, 11, 3);
  t->batches = 8 + (uint64_t)draw(t, 12, MAX_BATCHES - 7);
  t->middle = 1 + (uint64_t)draw(t, 13, (int)t->batches - 1);
  t->slow = draw(t, 14, 2 * ranks);
  t->halts = is_synchronous(t) || v->repeats || draw(t, 15, 8) ? -1 : draw(t, 16, ranks - t->servers);
  t->halts_at = 1 + (uint64_t)draw(t, 17, 6);
  t->elements = 128 + 64 * (size_t)draw(t, 18, 3);
  if (draw(t, 19, 40) == 0) /* a second chunk of the parameter server */
    t->elements += SERVER_CHUNK;
  t->snapshots = draw(t, 20, 2) ? 1 + draw(t, 21, 2) : 0;
  if (draw(t, 23, 3) == 0)
    trial_draw_outages(t);
}

/* -- a job */

static float initial(size_t i)
{
  return (float)(mix(9, 9, i) % 16) / 8 - 1;
}

static bool job_abandons(void *of)
{
  const struct trm_strategy *s = of;
  return s->abandons(s);
}

static int job_open(struct job *job, struct trial *t, struct trm_comm *comm)
{
  const struct variant *v = t->variant;
  memset(job, 0, sizeof *job);
  job->trial = t;
  job->comm = comm;
  struct trm_options *o = &job->options;
  o->parallel.share = t->share;
  o->parallel.bucket = t->bucket;
  o->parallel.zero = v->zero;
  o->run.lanes = v->lanes;
  o->run.seed = (int64_t)t->seed;
  o->strategy.data = t->assignment;
  o->strategy.batch = TRM_BATCH_WORKER;
  o->strategy.tau = v->tau ? v->tau : 1;
  o->strategy.servers = t->servers;
  o->strategy.groups = t->groups;
  o->strategy.slack = t->slack;
  o->strategy.splits = t->splits;
  o->strategy.overlap = v->overlap;
  o->strategy.collect = 1;
  o->strategy.global_every = 2;
  o->strategy.global_rate = 1;
  o->strategy.fragments = v->fragments;
  o->strategy.replica = t->by_rank ? TRM_REPLICA_RANK : TRM_REPLICA_NODE;
  o->strategy.outer_rate = o->strategy.outer_momentum = -1;
  o->strategy.aggregate = v->aggregate ? TRM_AGGREGATE_NODE : TRM_AGGREGATE_NONE;
  o->strategy.rate = v->rate;
  o->strategy.stops = v->stops;
  o->strategy.trials = 1 + draw(t, 26, 3);
  o->strategy.frame = v->frame ? 2e-4 * (1 << draw(t, 27, 6)) : 0;
  o->strategy.max_delay = v->stops ? 1 + draw(t, 25, 4) : 0;
  o->strategy.alpha = -1;
  o->strategy.lambda = t->gradients == PARABOLA ? 0.04 : 0;
  o->strategy.memory = 0.9;
  char slow[32] = "";
  if (t->slow < comm->size)
    snprintf(slow, sizeof slow, "%d:20", t->slow);
  o->run.slow = slow;
  o->run.jitter = (char *)"";
  o->run.outages = t->outages;
  o->device.gflops = 1;
  o->train.batch = 4000; /* a rest of 1 s */
  TRM_CHECK(trm_slowdown_create(&job->slowdown, o, comm, 0.25e6));
  o->run.slow = (char *)"";
  job->tensor[0] = (struct trm_tensor){.end = t->elements};
  job->optimizer = (struct trm_optimizer){
    .update = {.rule = t->rule, .momentum = 0.5f, .beta1 = 0.5f, .beta2 = 0.9f, .epsilon = 0.1f},
    .states = rule_states(t->rule), .tensor = job->tensor, .tensors = 1};
  for (size_t i = 0; i < 4; i++)
    job->boundary[i] = t->elements / 64 * (i + 1) / 4 * 64;
  job->boundary[0] = 32; /* a small layer */
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find(v->method), .comm = comm, .device = &cpu,
                                        .optimizer = &job->optimizer, .elements = t->elements,
                                        .boundary = job->boundary, .boundaries = 4,
                                        .snapshots = t->snapshots, .slowdown = &job->slowdown};
  trm_strategy_set_options(&job->strategy, o);
  TRM_CHECK(trm_strategy_create(&job->strategy));
  job->slowdown.abandons = job->strategy.abandons ? job_abandons : NULL;
  job->slowdown.abandons_context = &job->strategy;
  return TRM_OK;
}

/* -- gradients */

static size_t slots_of(const struct trial *t)
{
  return t->batches * (size_t)t->shards;
}

static float parabola(uint64_t batch, int shard, int shards, size_t i, double w)
{
  const double minimum = (double)(mix(batch, (uint64_t)shard, i) % 64) / 256;
  return (float)((0.5 + (double)(i % 8) / 16) * (w - minimum) / shards);
}

static float tree_sum(uint64_t batch, int first, int lanes, size_t i, float w)
{
  return lanes == 1 ? parabola(batch, first, LANES, i, (double)w)
                    : tree_sum(batch, first, lanes / 2, i, w) + tree_sum(batch, first + lanes / 2, lanes / 2, i, w);
}

/* The gradient of elements [low, high) at w, which begins with element `low`, as g. */
static void gradient(const struct job *job, const float *w, float *g, size_t low, size_t high)
{
  const struct trial *t = job->trial;
  const struct trm_strategy *s = &job->strategy;
  const int lanes = t->variant->lanes / s->batch_shards;
  const size_t slot = job->batch * (size_t)t->shards + (size_t)s->batch_shard;
  for (size_t i = low; i < high; i++)
    if (t->gradients == WHERE_APPLIED)
      g[i - low] = i % slots_of(t) == slot;
    else if (lanes)
      g[i - low] = tree_sum(job->batch, s->batch_shard * lanes, lanes, i, w[i - low]);
    else
      g[i - low] = parabola(job->batch, s->batch_shard, s->batch_shards, i, (double)w[i - low]);
}

static int compute(void *of)
{
  struct job *job = of;
  const struct trm_strategy *s = &job->strategy;
  gradient(job, s->w, s->g, 0, s->elements);
  return TRM_OK;
}

/* Runs work, NULL: none, in the time of a gradient of 1 to 8 rows, unless the rank fails. */
static void pass_time(struct job *job, int (*work)(void *of))
{
  job->slowdown.abandon_at = job->strategy.abandon_at;
  const size_t rows = 1 + mix(job->trial->seed, (uint64_t)job->comm->rank, job->batch) % 8;
  trm_slowdown_compute(&job->slowdown, rows, job->batch, work, job);
}

/* The passes of a batch over weights of which ranks have shards: layers forward, from the last of the arrays, and
 * backward. */
static void compute_sharded(struct job *job, const struct trm_loss_sums *sums)
{
  struct trm_strategy *s = &job->strategy;
  const struct trm_param_provider *p = s->provider;
  float *w, *g;
  for (int i = 3; i >= 0; i--) {
    const size_t low = i ? job->boundary[i - 1] : 0, high = job->boundary[i];
    p->acquire(p->context, low, high, TRM_ACQUIRE_FORWARD, &w, &g);
    p->release(p->context, low, high, TRM_ACQUIRE_FORWARD);
  }
  pass_time(job, NULL);
  for (int i = 0; i < 4; i++) {
    const size_t low = i ? job->boundary[i - 1] : 0, high = job->boundary[i];
    p->acquire(p->context, low, high, TRM_ACQUIRE_BACKWARD, &w, &g);
    gradient(job, w, g, low, high);
    p->release(p->context, low, high, TRM_ACQUIRE_BACKWARD);
    expect(job, s->ops->grad_ready(s, low, high, sums) == TRM_OK, "grad_ready failed");
  }
}

/* -- what a worker sees */

/* Returns how often the weights of the chunk from element `chunk` on have the gradient of this slot; -1: a part of it,
 * or different times in different elements. */
static int times_applied(const struct job *job, const float *w, size_t chunk, size_t slot, double unit)
{
  const struct trial *t = job->trial;
  const size_t slots = slots_of(t), low = chunk + (slot + slots - chunk % slots) % slots;
  double first = 0;
  for (size_t i = low; i < t->elements && i < chunk + SERVER_CHUNK; i += slots) {
    const double times = ((double)initial(i) - (double)w[i]) / unit;
    first = i == low ? times : first;
    if (!(fabs(times - first) < 1e-3) || fabs(times - round(times)) > 1e-3)
      return -1;
  }
  return (int)round(first);
}

/* Before a forward pass of a method with server weights: its own gradients, and those that the slack guarantees. */
static void check_view(const struct job *job)
{
  const struct trial *t = job->trial;
  const struct trm_strategy *s = &job->strategy;
  const int rank = job->comm->rank;
  for (int k = 0; splits_batches(t) && k < t->shards; k++)
    expect(job, t->begun[k] + (uint64_t)t->slack >= job->batch, "begins clock %d when rank %d has done %d",
           (int)job->batch, k, (int)t->begun[k]);
  if (t->gradients != WHERE_APPLIED || !t->variant->sees_own || t->elements > SERVER_CHUNK)
    return;
  for (uint64_t b = 0; b < t->batches; b++)
    for (int k = 0; k < t->shards; k++) {
      const bool mine = splits_batches(t) ? k == s->batch_shard && b < job->batch
                                          : t->computed[b][k] == 1 + rank && k == s->batch_shard;
      const bool old = splits_batches(t) && b + (uint64_t)t->slack < job->batch;
      const int times = times_applied(job, s->w, 0, b * (size_t)t->shards + (size_t)k, RATE);
      expect(job, times == 1 || (times == 0 && !mine && !old),
             "at batch %d the weights have batch %d, shard %d, %d times", (int)job->batch, (int)b, k, times);
    }
}

/* -- running */

static void count_batch(struct job *job)
{
  struct trial *t = job->trial;
  int *count = &t->computed[job->batch][job->strategy.batch_shard];
  expect(job, *count == 0, "batch %d, shard %d again", (int)job->batch, job->strategy.batch_shard);
  *count = 1 + job->comm->rank;
  t->of[job->batch] = job->strategy.batch_shards;
  job->mine++;
  t->begun[job->comm->rank] = job->batch + 1;
}

/* Snapshots at one step and the next, somewhere before `end`. Collective. */
static void request_snapshots(struct job *job, uint64_t end)
{
  struct trial *t = job->trial;
  struct trm_strategy *s = &job->strategy;
  job->snapshots = 0;
  if (end > s->updates + 1)
    for (uint64_t at = s->updates + 1 + (uint64_t)draw(t, 22, (int)(end - s->updates) - 1);
         at < end && job->snapshots < t->snapshots; at++)
      job->at[job->snapshots++] = at;
  if (job->snapshots > 0)
    s->ops->snapshot(s, job->at, job->snapshots);
}

/* A gradient is abandoned when it has missed as many updates as would have it dropped, not before. */
static void check_stop(struct job *job)
{
  const struct trm_strategy *s = &job->strategy;
  if (job->has_stopped)
    expect(job, s->staleness->sum >= job->missed + (uint64_t)s->options->max_delay, "abandons a gradient too early");
  job->has_stopped = false;
}

static int run_to(struct job *job, uint64_t end)
{
  struct trial *t = job->trial;
  struct trm_strategy *s = &job->strategy;
  int status = TRM_OK;
  request_snapshots(job, end);
  while (status == TRM_OK && next_batch(s, end, &job->batch)) {
    expect(job, job->batch < end, "batch %d of %d", (int)job->batch, (int)end);
    check_stop(job);
    expect(job, !job->slowdown.failed, "begins batch %d after it has failed", (int)job->batch);
    if (s->ops->before_forward)
      TRM_CHECK(s->ops->before_forward(s));
    check_view(job);
    pass_time(job, compute);
    s->abandoned = job->slowdown.failed || job->slowdown.abandoned;
    if (!job->slowdown.failed)
      count_batch(job); /* an abandoned one is not done again */
    job->has_stopped = job->slowdown.abandoned;
    job->missed = job->has_stopped ? s->staleness->sum : 0;
    if (s->abandoned)
      continue;
    struct trm_loss_sums sums = {.loss = 1, .rows = 1};
    status = s->ops->step(s, RATE, &sums);
    s->halt = !t->stopped && t->halts == job->comm->rank && job->mine >= t->halts_at;
    t->stopped |= s->halt;
  }
  s->halt = false;
  check_stop(job);
  TRM_CHECK(status);
  return s->ops->quiesce(s);
}

/* Reports a layer, in every third batch in parts and with time between them. */
static int report_layer(struct job *job, size_t low, size_t high, const struct trm_loss_sums *sums)
{
  struct trm_strategy *s = &job->strategy;
  if (job->batch % 3 == 0 && s->part > 0) {
    s->ops->part_ready(s, low + (high - low) / 2, sums);
    pass_time(job, NULL);
    s->ops->part_ready(s, high, sums);
    pass_time(job, NULL);
  }
  return s->ops->grad_ready(s, low, high, sums);
}

static int run_synchronous_to(struct job *job, uint64_t end)
{
  struct trm_strategy *s = &job->strategy;
  const double wanted = (double)(end - s->updates) * job->comm->size;
  double loss = 0, rows = 0;
  for (job->batch = s->updates; job->batch < end; job->batch++) {
    struct trm_loss_sums sums = {.loss = 1, .rows = 1};
    if (s->provider) {
      compute_sharded(job, &sums);
    } else {
      s->rate = job->batch % 2 ? RATE : 0; /* known before the step: updates may begin between layers */
      pass_time(job, compute);
      for (size_t i = 0, low = 0; s->ops->grad_ready && i < 4; low = job->boundary[i++])
        TRM_CHECK(report_layer(job, low, job->boundary[i], &sums));
    }
    count_batch(job);
    trm_strategy_begin_step(s, RATE, 0, &sums);
    TRM_CHECK(s->ops->step(s, RATE, &sums));
    loss += sums.loss;
    rows += sums.rows;
    expect(job, s->ops->local_steps || (sums.loss == job->comm->size && sums.rows == sums.loss),
           "the sum of losses is %g", sums.loss);
  }
  if (s->ops->quiesce) {
    TRM_CHECK(s->ops->quiesce(s));
    loss += s->unreported.loss;
    rows += s->unreported.rows;
  }
  expect(job, loss == wanted && rows == wanted, "the sum of all losses is %g of %g rows, not %g", loss, rows, wanted);
  return TRM_OK;
}

/* -- at a quiesce point */

/* FNV-1a. */
static uint64_t hash(uint64_t before, const float *values, size_t n)
{
  const unsigned char *byte = (const unsigned char *)values;
  for (size_t i = 0; i < n * sizeof *values; i++)
    before = (before ^ byte[i]) * 0x100000001b3u;
  return before;
}

/* Returns true if the batch is listed as left to do; known on rank 0. */
static bool is_undone(const struct trm_strategy *s, uint64_t batch)
{
  for (size_t i = 0; i < s->undones; i++)
    if (s->undone[i].batch == batch && s->undone[i].part == 0 && s->undone[i].parts == 1)
      return true;
  return false;
}

/* Each batch that was done was done by all shards, or (asynchronous) by one worker. Those that were not, before others
 * that were, are listed as left to do: after a stop, and one of each worker that has failed. Returns the number of
 * batches done. */
static uint64_t check_batches(const struct job *job, uint64_t end)
{
  const struct trial *t = job->trial;
  const struct trm_strategy *s = &job->strategy;
  uint64_t done = 0;
  bool gap = false;
  for (uint64_t b = 0; b < t->batches; b++) {
    int shards = 0;
    for (int k = 0; k < t->shards; k++)
      shards += t->computed[b][k] > 0;
    expect(job, shards == 0 || shards == t->of[b], "%d of %d shards of batch %d", shards, t->of[b], (int)b);
    if (s->comm->rank == 0) {
      expect(job, shards == 0 || !is_undone(s, b), "batch %d is done, and left to do", (int)b);
      expect(job, !gap || (shards == 0 && !is_undone(s, b)), "batch %d without one before", (int)b);
      gap |= shards == 0 && !is_undone(s, b);
    }
    done += shards > 0;
  }
  expect(job, done == s->updates, "%d batches of which %d count", (int)done, (int)s->updates);
  expect(job, done <= end && (t->stopped || done + (uint64_t)t->failures >= end), "%d batches of %d", (int)done,
         (int)end);
  expect(job, s->comm->rank > 0 || t->stopped || done + s->undones == end, "%d batches and %zu left to do, of %d",
         (int)done, s->undones, (int)end);
  return done;
}

/* w: the evaluated weights; of PROMISE_CENTER the sum of them and all workers'. unit: of one gradient. */
static void check_applied(const struct job *job, const float *w, double unit, double tolerance)
{
  const struct trial *t = job->trial;
  for (size_t i = 0; i < t->elements; i++) {
    const size_t slot = i % slots_of(t);
    const double wanted = t->computed[slot / (size_t)t->shards][slot % (size_t)t->shards] ? 1 : 0;
    const double times = ((double)initial(i) - (double)w[i]) / unit;
    expect(job, fabs(times - wanted) < tolerance, "element %zu has the gradient of batch %zu, shard %zu, %g times, "
           "not %g", i, slot / (size_t)t->shards, slot % (size_t)t->shards, times, wanted);
  }
}

/* A snapshot has at least as many whole batches as its step; of hogwild less those under way, and parts of these; the
 * server weights have just as many, if each gradient is an update. */
static void check_snapshot(const struct job *job, const float *w, uint64_t at)
{
  const struct trial *t = job->trial;
  const bool torn = is_method(t, "hogwild"), exact = !t->variant->tau && !t->variant->aggregate && !torn;
  for (size_t low = 0; t->variant->promise == PROMISE_SUM && low < t->elements; low += SERVER_CHUNK) {
    uint64_t applied = torn ? (uint64_t)t->plan.ranks - 1 : 0;
    for (uint64_t b = 0; b < t->batches; b++) {
      const int times = times_applied(job, w, low, b * (size_t)t->shards, RATE);
      for (int k = 1; k < t->of[b]; k++)
        expect(job, times_applied(job, w, low, b * (size_t)t->shards + (size_t)k, RATE) == times,
               "the snapshot of step %d has a part of batch %d", (int)at, (int)b);
      expect(job, times == 0 || times == 1 || (times == -1 && torn),
             "the snapshot of step %d has batch %d %d times", (int)at, (int)b, times);
      applied += times == 1;
    }
    expect(job, applied >= at && (applied == at || !exact), "the snapshot of step %d has %d batches", (int)at,
           (int)applied);
  }
}

/* Collective, at a quiesce point. */
static int check_snapshots(struct job *job)
{
  const struct trial *t = job->trial;
  struct trm_strategy *s = &job->strategy;
  for (int i = 0; i < job->snapshots && job->at[i] <= s->updates; i++) {
    TRM_CHECK(s->ops->snapshot_weights(s, i));
    const float *w = s->eval_weights ? s->eval_weights : s->w;
    for (size_t e = 0; e < t->elements; e++)
      expect(job, fabs((double)w[e]) < 100, "step %d: weight %zu is %g", (int)job->at[i], e, (double)w[e]);
    if (t->gradients == WHERE_APPLIED)
      check_snapshot(job, w, job->at[i]);
  }
  return job->snapshots > 0 ? s->ops->snapshot_weights(s, -1) : TRM_OK;
}

/* softsync: gradients that wait for others are missing, in each chunk fewer than one update's. */
static void check_groups(const struct job *job, const float *w, uint64_t done)
{
  const struct trial *t = job->trial;
  const int workers = t->plan.ranks - t->servers, count = t->splits < workers ? workers / t->splits : 1;
  for (size_t low = 0; low < t->elements; low += SERVER_CHUNK) {
    uint64_t applied = 0;
    for (size_t i = low; i < t->elements && i < low + slots_of(t); i++) {
      const double times = ((double)initial(i) - (double)w[i]) / (RATE / count);
      expect(job, fabs(times - round(times)) < 1e-3 && round(times) >= 0 && round(times) <= 1,
             "element %zu has %g gradients", i, times);
      applied += times > 0.5;
    }
    expect(job, applied == done / (uint64_t)count * (uint64_t)count, "%d gradients of %d, %d an update", (int)applied,
           (int)done, count);
  }
}

/* The mean of the center (elements) and the workers' weights, times their number less the initial weights of all but
 * one. */
static void check_center(const struct job *job, const float *center)
{
  const struct trial *t = job->trial;
  const int workers = t->plan.ranks - t->servers;
  double *sum = trm_alloc(t->elements * sizeof *sum, "test");
  float *all = trm_alloc(t->elements * sizeof *all, "test");
  for (size_t i = 0; i < t->elements; i++)
    sum[i] = job->comm->rank < workers ? (double)job->strategy.w[i] : 0;
  job->comm->ops->allreduce(job->comm, sum, t->elements, TRM_DOUBLE, TRM_SUM);
  for (size_t i = 0; i < t->elements; i++)
    all[i] = (float)(sum[i] + (double)center[i] - workers * (double)initial(i));
  check_applied(job, all, RATE, 1e-3);
  trm_free(sum);
  trm_free(all);
}

/* Push-sum: the weights of an interval add up to the number of ranks, exactly. None flow to a worker that has
 * failed. */
static void check_push_sum(struct job *job)
{
  double sum = 0;
  for (int i = 0; i < job->strategy.local_states; i++)
    if (strcmp(job->strategy.local_state[i].name, "sgp: push-sum weights") == 0)
      sum = ((const double *)job->strategy.local_state[i].data)[0];
  expect(job, job->kept == 0 || sum == job->kept, "has failed with a push-sum weight of %g, now %g", job->kept, sum);
  job->kept = job->slowdown.failed ? sum : 0;
  job->comm->ops->allreduce(job->comm, &sum, 1, TRM_DOUBLE, TRM_SUM);
  expect(job, sum == job->comm->size, "the push-sum weights add up to %g", sum);
}

static void check_staleness(struct job *job, uint64_t done)
{
  struct trial *t = job->trial;
  const struct trm_staleness *staleness = job->strategy.staleness;
  const bool counts_batches = !t->variant->tau && !t->variant->aggregate && !splits_batches(t);
  if (!staleness)
    return;
  int64_t count[2] = {(int64_t)staleness->updates, (int64_t)staleness->max};
  job->comm->ops->allreduce(job->comm, count, 1, TRM_INT64, TRM_SUM);
  expect(job, count[1] <= (splits_batches(t) ? t->slack : (int64_t)done), "a staleness of %d", (int)count[1]);
  if (splits_batches(t))
    expect(job, count[0] == (int64_t)(done * (uint64_t)t->shards), "the staleness of %d gradients", (int)count[0]);
  else if (counts_batches)
    expect(job, count[0] == (int64_t)done, "the staleness of %d gradients, not %d", (int)count[0], (int)done);
}

/* Checks the state at a quiesce point, and adds its bits to those of the trial. Collective. */
static int check_quiesced(struct job *job, uint64_t end)
{
  struct trial *t = job->trial;
  struct trm_strategy *s = &job->strategy;
  const struct trm_comm_ops *ops = job->comm->ops;
  float *state = trm_alloc(t->elements * sizeof *state, "test");
  ops->barrier(job->comm);
  const uint64_t done = check_batches(job, end);
  for (int i = job->optimizer.states; i >= 0; i--) { /* the weights last */
    TRM_CHECK(strategy_read(s, i, state));
    t->bits = job->comm->rank == 0 ? hash(t->bits, state, t->elements) : t->bits;
  }
  const float *w = s->eval_weights ? s->eval_weights : s->w ? s->w : state;
  const bool everywhere = !s->provider || job->comm->rank == 0;
  for (size_t i = 0; everywhere && i < t->elements; i++)
    expect(job, fabs((double)w[i]) < 100, "weight %zu is %g", i, (double)w[i]);
  uint64_t bits = everywhere ? hash(0xcbf29ce484222325u, w, t->elements) : 0;
  int64_t range[2] = {(int64_t)bits, -(int64_t)bits};
  ops->allreduce(job->comm, range, 2, TRM_INT64, TRM_MAX);
  expect(job, s->provider || range[0] == -range[1], "ranks have different weights");
  if (t->gradients == WHERE_APPLIED && everywhere) {
    if (t->variant->promise == PROMISE_SUM)
      check_applied(job, w, RATE, 1e-4);
    else if (t->variant->promise == PROMISE_SHARE)
      check_applied(job, w, RATE / t->plan.ranks, 1e-3);
    else if (t->variant->promise == PROMISE_REPLICA)
      check_applied(job, w, RATE / replicas_of(t), 1e-3);
    else if (t->variant->promise == PROMISE_GROUPS)
      check_groups(job, w, done);
    else if (t->variant->promise == PROMISE_CENTER)
      check_center(job, w);
  }
  if (is_method(t, "sgp"))
    check_push_sum(job);
  check_staleness(job, done);
  trm_free(state);
  ops->barrier(job->comm); /* before weights change again */
  return TRM_OK;
}

/* -- a trial */

static int job_run(struct job *job)
{
  struct trial *t = job->trial;
  struct trm_strategy *s = &job->strategy;
  strategy_restore_initial(s, initial);
  int32_t shards = s->batch_shards;
  job->comm->ops->allreduce(job->comm, &shards, 1, TRM_INT32, TRM_MAX);
  t->shards = shards;
  job->slowdown.origin_s = job->comm->ops->clock(job->comm);
  int phases = 3 + t->failures; /* at most: another after a stop, and after each failure */
  for (uint64_t end = t->middle; s->updates < t->batches && phases > 0; phases--) {
    TRM_CHECK(s->ops->next_batch ? run_to(job, end) : run_synchronous_to(job, end));
    TRM_CHECK(check_snapshots(job));
    TRM_CHECK(check_quiesced(job, end));
    end = s->updates < end ? end : t->batches;
  }
  expect(job, s->updates == t->batches, "ends after %d batches of %d", (int)s->updates, (int)t->batches);
  return TRM_OK;
}

static int trial_main(struct trm_comm *world_of_trial, void *of)
{
  struct job job;
  trm_log_set_quiet(true);
  TRM_CHECK(job_open(&job, of, world_of_trial));
  TRM_CHECK(job_run(&job));
  job.strategy.ops->destroy(&job.strategy);
  return TRM_OK;
}

/* No worker waits for one that computes nothing. */
static bool waits_for_nobody(const struct trial *t)
{
  return survives_failures(t) && !is_method(t, "sgp");
}

/* Runs the trial with another plan; false: the failure has been printed. */
static bool trial_run(struct trial *t, const char *how)
{
  struct trm_virtual_figures figures;
  memset(t->computed, 0, sizeof t->computed);
  memset(t->begun, 0, sizeof t->begun);
  t->bits = 0xcbf29ce484222325u;
  t->failure[0] = '\0';
  t->stopped = false;
  const int status = trm_virtual_run(&t->plan, trial_main, t, &figures);
  if (status == TRM_OK && t->is_late && waits_for_nobody(t) && figures.seconds > atof(LATE) / 2)
    snprintf(t->failure, sizeof t->failure, "takes %g s: it has waited for a worker that has not begun",
             figures.seconds);
  if (status == TRM_OK && !t->failure[0])
    return true;
  printf("\nseed %d%s: %s\n    %s\n", (int)t->seed, how, text_of(t), t->failure[0] ? t->failure : trm_error_text());
  return false;
}

/* Runs it again, for the same bits. */
static bool trial_repeats(struct trial *t, const char *how)
{
  const uint64_t bits = t->bits;
  if (!trial_run(t, how))
    return false;
  if (t->bits != bits)
    printf("\nseed %d: %s\n    other bits than %s\n", (int)t->seed, text_of(t), how);
  return t->bits == bits;
}

static bool seed_passes(uint64_t seed)
{
  struct trial t;
  trial_draw(&t, seed);
  if (!trial_run(&t, ""))
    return false;
  if (seed % 8 == 0 && !trial_repeats(&t, " in the second run"))
    return false;
  /* Which trials end in their frame is a matter of time, with one worker, too. */
  if (t.variant->frame || (!t.variant->repeats && t.plan.ranks - t.servers > 1))
    return true;
  t.plan.schedule = 0;
  t.outages[0] = '\0';
  t.is_late = false;
  t.plan.ranks = t.variant->lanes ? 1 : t.plan.ranks;
  return trial_repeats(&t, t.variant->lanes ? " with one rank" : " in the plain schedule");
}

/* -- all of them, in a process of their own, since a rank that fails may end it */

struct campaign {
  uint64_t seed; /* that runs, or is next */
  int failures;
};

/* Ends the process after so many seconds of computing from now: a run without end. */
static void set_limit(int seconds)
{
  setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = seconds}, NULL);
}

static void campaign_run(struct campaign *campaign, uint64_t last)
{
  for (; campaign->seed <= last && campaign->failures < MAX_FAILURES; campaign->seed++) {
    set_limit(20);
    campaign->failures += !seed_passes(campaign->seed);
    fflush(stdout);
  }
}

static void test_schedules(void)
{
  const char *count = getenv("TRM_TEST_SCHEDULES"), *one = getenv("TRM_TEST_SEED");
  const uint64_t last = count ? strtoull(count, NULL, 10) : SCHEDULES;
  if (one) {
    CU_ASSERT_TRUE(seed_passes(strtoull(one, NULL, 10)));
    return;
  }
  alarm(0); /* the suite's; each seed has its own */
  struct campaign *campaign = mmap(NULL, sizeof *campaign, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CU_ASSERT_PTR_NOT_EQUAL_FATAL(campaign, MAP_FAILED);
  campaign->seed = 1;
  while (campaign->seed <= last && campaign->failures < MAX_FAILURES) {
    int status = -1;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      campaign_run(campaign, last);
      _exit(0);
    }
    CU_ASSERT_FATAL(child > 0 && waitpid(child, &status, 0) == child);
    if (status == 0)
      break;
    struct trial t;
    trial_draw(&t, campaign->seed++);
    printf("\nseed %d: %s\n    ended its process: %s %d\n", (int)t.seed, text_of(&t),
           WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    campaign->failures++;
  }
  CU_ASSERT_EQUAL(campaign->failures, 0);
  munmap(campaign, sizeof *campaign);
}

int main(void)
{
  CU_TestInfo tests[] = {{"random schedules", test_schedules}, CU_TEST_INFO_NULL};
  trm_log_set_quiet(true);
  if (trm_device_open(&cpu, "cpu", "auto", TRM_MATMUL_F32, 0, 1) != TRM_OK) {
    trm_log_error();
    return 99;
  }
  const int status = suite_run("schedules", tests);
  trm_device_close(&cpu);
  return status;
}
