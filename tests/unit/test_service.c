/* What the asynchronous methods stand on: words, claims, and the parameter service, called by all ranks at the same
 * time. On one node, on several (TRM_NODE_SIZE), without shared memory, and with dedicated servers. For 1 to 9 ranks
 * and more: the sums are exact, or an update was lost. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "mpi/async/claims.h"
#include "mpi/async/service.h"
#include "ranks.h"

/* The ranks that share memory: as the machine has it, k in a row, or each alone. */
static struct trm_comm *node_of(int node_size)
{
  if (node_size == 1)
    return world->ops->split(world, world->rank, 0);
  nodes_of(node_size);
  struct trm_comm *node = world->ops->split_node(world, "node");
  nodes_of(0);
  return node;
}

static const int node_sizes[] = {0, 2, 1};
enum { LAYOUTS = sizeof node_sizes / sizeof *node_sizes };

/* Returns when all ranks have come. Until then keeps MPI going, and serves. service: may be NULL. */
static void meet_serving(struct service *service)
{
  int32_t one = 1;
  struct trm_request *request;
  world->ops->allreduce_begin(world, &one, 1, TRM_INT32, TRM_SUM, &request);
  while (!world->ops->test(&request))
    if (!service || !service_work(service))
      world->ops->progress(world);
}

static void meet(void)
{
  meet_serving(NULL);
}

static void test_words(void)
{
  enum { TIMES = 200 };
  for (int layout = 0; layout < LAYOUTS; layout++) {
    struct trm_comm *node = node_of(node_sizes[layout]);
    struct words words;
    CU_ASSERT_FATAL(words_create(&words, world, node, world->size - 1, 3) == TRM_OK);
    int64_t last = -1;
    bool ascend = true;
    for (int i = 0; i < TIMES; i++) {
      const int64_t before = words_add(&words, 1, 2);
      ascend &= before > last && before % 2 == 0;
      last = before;
    }
    CU_ASSERT(ascend);
    words_add(&words, 2, -world->rank);
    meet();
    CU_ASSERT(words_read(&words, 0) == 0);
    CU_ASSERT(words_read(&words, 1) == 2 * TIMES * world->size);
    CU_ASSERT(words_read(&words, 2) == -world->size * (world->size - 1) / 2);
    meet();
    words_free(&words);
    world->ops->release(node);
  }
}

/* -- claims */

enum { BATCHES = 100 };

/* Adds up who has had which batch; true: each of [low, high) was given `times` times, no other. */
static bool given_exactly(int32_t count[BATCHES], int low, int high, int times)
{
  world->ops->allreduce(world, count, BATCHES, TRM_INT32, TRM_SUM);
  bool exact = true;
  for (int i = 0; i < BATCHES; i++)
    exact &= count[i] == (i >= low && i < high ? times : 0);
  return exact;
}

static void take_all(struct claims *claims, uint64_t end, int32_t count[BATCHES], int most)
{
  uint64_t batch;
  memset(count, 0, BATCHES * sizeof *count);
  for (int taken = 0; taken < most && claims_next(claims, end, &batch); taken++)
    count[batch]++;
  claims_finish(claims);
}

static void test_claims(void)
{
  static const enum claims_rule rules[] = {CLAIMS_DYNAMIC, CLAIMS_STATIC, CLAIMS_EACH};
  for (int layout = 0; layout < LAYOUTS; layout++)
    for (int rule = 0; rule < 3; rule++) {
      struct trm_comm *node = node_of(node_sizes[layout]);
      struct claims claims;
      const int times = rules[rule] == CLAIMS_EACH ? world->size : 1;
      CU_ASSERT_FATAL(claims_create(&claims, world, node, 0, rules[rule], world->rank, world->size, 2) == TRM_OK);
      claims_restart(&claims, world, 7, false);
      uint64_t updates = 7;
      int32_t count[BATCHES];
      take_all(&claims, 60, count, BATCHES);
      meet();
      CU_ASSERT(claims_all_finished(&claims));
      CU_ASSERT(given_exactly(count, 7, 60, times));
      claims_settle(&claims, world, true, &updates);
      CU_ASSERT(updates == 60);
      CU_ASSERT(!claims_all_finished(&claims));
      /* goes on where it was; nothing to do is no error */
      take_all(&claims, 60, count, BATCHES);
      meet();
      CU_ASSERT(given_exactly(count, 0, 0, 0));
      claims_settle(&claims, world, true, &updates);
      CU_ASSERT(updates == 60);
      take_all(&claims, BATCHES, count, BATCHES);
      meet();
      CU_ASSERT(given_exactly(count, 60, BATCHES, times));
      claims_settle(&claims, world, true, &updates);
      CU_ASSERT(updates == BATCHES);
      claims_free(&claims);
      world->ops->release(node);
    }
}

/* One rank stops the others: dynamic, at a prefix of the batches; each, all after the same one. */
static void test_halt(void)
{
  static const enum claims_rule rules[] = {CLAIMS_DYNAMIC, CLAIMS_STATIC, CLAIMS_EACH};
  for (int rule = 0; rule < 3; rule++) {
    struct trm_comm *node = node_of(0);
    struct claims claims;
    CU_ASSERT_FATAL(claims_create(&claims, world, node, 0, rules[rule], world->rank, world->size, 2) == TRM_OK);
    claims_restart(&claims, world, 0, false);
    uint64_t updates = 0, batch;
    int32_t count[BATCHES] = {0};
    world->ops->barrier(world);
    while (claims_next(&claims, BATCHES, &batch)) {
      count[batch]++;
      if (world->rank == 0 && batch >= 5)
        claims_halt(&claims);
      world->ops->barrier(node); /* nobody is far ahead */
      if (rules[rule] != CLAIMS_EACH)
        break; /* the rest on its own */
    }
    if (rules[rule] == CLAIMS_EACH)
      CU_ASSERT(given_exactly(count, 0, 5 + 1 + 2 + 3 - 1, world->size));
    if (rules[rule] == CLAIMS_DYNAMIC) {
      while (claims_next(&claims, BATCHES, &batch)) {
        count[batch]++;
        if (world->rank == 0)
          claims_halt(&claims);
      }
    }
    int32_t mine = 0;
    for (int i = 0; i < BATCHES; i++)
      mine += count[i];
    world->ops->allreduce(world, &mine, 1, TRM_INT32, TRM_SUM);
    claims_finish(&claims);
    claims_settle(&claims, world, true, &updates);
    if (rules[rule] == CLAIMS_DYNAMIC) {
      CU_ASSERT(updates == (uint64_t)mine);
      CU_ASSERT(given_exactly(count, 0, mine, 1));
    }
    /* a settling ends it */
    CU_ASSERT(claims_next(&claims, BATCHES + BATCHES, &batch));
    world->ops->barrier(world);
    claims_free(&claims);
    world->ops->release(node);
  }
}

/* -- the service */

enum kind { ADD, READ, TAKE };

static _Atomic bool lost; /* the context; the service may run in a thread */

/* Array 0 += what is sent, array 1 += 1; what array 0 has become goes back. */
static void add(void *context, const struct service_piece *piece, struct service_call *call)
{
  float *sum = service_array(piece, 0), *times = service_array(piece, 1);
  if (context != world)
    atomic_store(&lost, true);
  if (call->kind == ADD) {
    for (size_t i = 0; i < piece->n; i++) {
      sum[i] += call->in[i] * (float)call->value[2];
      times[i] += 1;
    }
    ++*piece->clock;
    piece->note[3] += call->each;
  }
  call->each = piece->note[3];
  for (size_t i = 0; call->out && i < piece->n; i++)
    call->out[i] = sum[i];
}

struct layout {
  int node_size, servers;
  bool objects;
};

static void check_service(const struct layout *l, size_t elements)
{
  const int times = 6, workers = world->size - l->servers;
  struct trm_comm *node = node_of(l->node_size);
  const struct service_plan plan = {
    .comm = world, .node = node, .elements = elements, .objects = l->objects ? world->size : 1, .arrays = 2,
    .servers = l->servers, .function = add, .context = world,
  };
  struct service *service;
  CU_ASSERT_FATAL(service_create(&service, &plan) == TRM_OK);
  const size_t pieces = service_pieces(service);
  float *in = trm_alloc(elements * sizeof *in, "test"), *out = trm_alloc(elements * sizeof *out, "test");
  int64_t *seen = trm_alloc(pieces * sizeof *seen, "test");
  double *each = trm_alloc(pieces * sizeof *each, "test");
  for (size_t i = 0; i < elements; i++)
    in[i] = (float)(i % 7 + 1);

  bool ascends = true, own_seen = true;
  for (int k = 0; k < times && world->rank < workers; k++)
    for (int object = 0; object < plan.objects; object++) {
      const float before = out[elements - 1];
      const struct service_request push = {
        .object = object, .kind = ADD, .value = {0, 0, 2}, .each = each, .in = in, .out = out, .seen = seen};
      for (size_t i = 0; i < pieces; i++)
        each[i] = 1;
      const int64_t late = service_exchange(service, &push);
      ascends &= late >= 0 || l->objects;
      if (!l->objects) { /* what came back is a multiple of what was sent, and more than the last time */
        ascends &= out[elements - 1] > before && seen[pieces - 1] > k;
        own_seen &= (int)out[0] % 2 == 0 && out[0] == 2 * (float)seen[0];
      }
    }
  CU_ASSERT(ascends);
  CU_ASSERT(own_seen);
  CU_ASSERT(!atomic_load(&lost));
  meet_serving(service);

  for (int object = 0; object < plan.objects; object++) {
    bool sums = true, counts = true;
    service_gather(service, object, 0, out);
    for (size_t i = 0; i < elements; i++)
      sums &= out[i] == (float)(2 * times * workers) * in[i];
    service_gather(service, object, 1, out);
    for (size_t i = 0; i < elements; i++)
      counts &= out[i] == (float)(times * workers);
    CU_ASSERT(sums);
    CU_ASSERT(counts);
  }
  service_scatter(service, plan.objects - 1, 1, in);
  memset(out, 0, elements * sizeof *out);
  service_gather(service, plan.objects - 1, 1, out);
  CU_ASSERT(memcmp(in, out, elements * sizeof *in) == 0);
  service_free(service);
  world->ops->release(node);
  trm_free(in);
  trm_free(out);
  trm_free(seen);
  trm_free(each);
}

static void test_service(void)
{
  static const struct layout layouts[] = {
    {0, 0, false}, {2, 0, false}, {1, 0, false}, {0, 1, false}, {0, 2, false}, {1, 1, false}, {0, 0, true},
    {2, 0, true},
  };
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    if (layouts[i].servers >= world->size)
      continue;
    check_service(&layouts[i], 17);
    check_service(&layouts[i], 3 * SERVICE_PIECE + 5);
  }
}

/* A rank computes for two seconds, as far as the others can see: it is in no call of MPI. Meanwhile everybody else
 * exchanges with all pieces, those at home with it, too. */
static void test_nobody_waits(void)
{
  static const struct layout layouts[] = {{0, 0, false}, {2, 0, false}, {1, 0, false}, {0, 1, false}};
  const size_t elements = 2 * SERVICE_PIECE;
  float *in = trm_alloc(elements * sizeof *in, "test"), *out = trm_alloc(elements * sizeof *out, "test");
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    const struct layout *l = &layouts[i];
    if (l->servers >= world->size)
      continue;
    struct trm_comm *node = node_of(l->node_size);
    const struct service_plan plan = {
      .comm = world, .node = node, .elements = elements, .objects = 1, .arrays = 2, .servers = l->servers,
      .function = add, .context = world,
    };
    struct service *service;
    CU_ASSERT_FATAL(service_create(&service, &plan) == TRM_OK);
    meet();
    const double begin = world->ops->clock(world);
    double longest = 0, done = 0;
    if (world->rank == 0) {
      nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    } else if (world->rank < world->size - l->servers) {
      for (int k = 0; k < 5; k++) {
        const struct service_request push = {.kind = ADD, .value = {0, 0, 1}, .in = in, .out = out};
        const double before = world->ops->clock(world);
        service_exchange(service, &push);
        const double took = world->ops->clock(world) - before;
        longest = took > longest ? took : longest;
      }
      done = world->ops->clock(world) - begin;
    }
    meet_serving(service);
    CU_ASSERT(longest < 1.5);
    CU_ASSERT(done < 1.8);
    service_free(service);
    world->ops->release(node);
  }
  trm_free(in);
  trm_free(out);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"words that all ranks add to", test_words},
    {"every batch is given out once", test_claims},
    {"one rank stops all", test_halt},
    {"no update of the service is lost", test_service},
    {"nobody waits for a rank that computes", test_nobody_waits},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "service", tests);
}
