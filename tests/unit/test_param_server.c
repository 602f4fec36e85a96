/* Shared counters and the parameter server, called concurrently by all ranks. Sums are exact unless
 * an update is lost. On one node, on several (TRM_NODE_SIZE), without shared memory, and with dedicated servers. For 1
 * to 9 ranks and more. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/counter.h"
#include "core/memory.h"
#include "mpi/async/shared_counters.h"
#include "mpi/async/param_server.h"
#include "mpi/virtual.h"
#include "ranks.h"

/* Returns the ranks that share memory: all of the machine, groups of node_size, or none. */
static struct trm_comm *node_of(int node_size)
{
  if (node_size == 1)
    return world->ops->split(world, world->rank, 0);
  set_node_size(node_size);
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  set_node_size(0);
  return node;
}

static const int node_sizes[] = {0, 2, 1};
enum { LAYOUTS = sizeof node_sizes / sizeof *node_sizes };

/* Barrier that drives MPI progress while it waits. */
static void meet(void)
{
  int32_t one = 1;
  struct trm_request *request;
  world->ops->allreduce_begin(world, &one, 1, TRM_INT32, TRM_SUM, &request);
  world->ops->wait(&request);
}

/* The same, in which the last `servers` ranks first serve the others. */
static void meet_serving(struct param_server *service, int servers)
{
  const int workers = world->size - servers;
  if (world->rank < workers)
    param_server_finish(service);
  else
    CU_ASSERT(param_server_serve(service, workers, NULL, NULL));
  meet();
}

static void test_words(void)
{
  enum { TIMES = 200 };
  for (int layout = 0; layout < LAYOUTS; layout++) {
    struct trm_comm *node = node_of(node_sizes[layout]);
    struct shared_counters words;
    CU_ASSERT_FATAL(shared_counters_create(&words, world, node, world->size - 1, 3) == TRM_OK);
    int64_t last = -1;
    bool ascend = true;
    for (int i = 0; i < TIMES; i++) {
      const int64_t before = shared_counters_add(&words, 1, 2);
      ascend &= before > last && before % 2 == 0;
      last = before;
    }
    CU_ASSERT(ascend);
    shared_counters_add(&words, 2, -world->rank);
    meet();
    CU_ASSERT(shared_counters_read(&words, 0) == 0);
    CU_ASSERT(shared_counters_read(&words, 1) == 2 * TIMES * world->size);
    CU_ASSERT(shared_counters_read(&words, 2) == -world->size * (world->size - 1) / 2);
    meet();
    shared_counters_free(&words);
    world->ops->release(node);
  }
}

/* -- the parameter server */

enum kind { ADD, READ, TAKE };
enum { STATES = 100 }; /* of the method, in each chunk */

static _Atomic bool lost; /* the handler may run in a thread */

/* Array 0 += the values sent, array 1 += 1; returns array 0. */
static bool add(void *context, const struct server_chunk *piece, struct server_call *call)
{
  float *sum = server_array(piece, 0), *times = server_array(piece, 1);
  if (context != world)
    atomic_store(&lost, true);
  if (call->kind == ADD) {
    for (size_t i = 0; i < piece->n; i++) {
      sum[i] += call->in[i] * (float)call->value[2];
      times[i] += 1;
    }
    ++*piece->clock;
    piece->method_state[STATES - 1] += call->per_chunk;
  }
  call->per_chunk = piece->method_state[STATES - 1];
  for (size_t i = 0; call->out && i < piece->n; i++)
    call->out[i] = sum[i];
  return true;
}

struct layout {
  int node_size, servers;
  bool objects;
};

static void check_service(const struct layout *l, size_t elements)
{
  const int times = 6, workers = world->size - l->servers;
  struct trm_comm *node = node_of(l->node_size);
  const struct server_plan plan = {
    .comm = world, .node = node, .elements = elements, .replicas = l->objects ? world->size : 1, .arrays = 2,
    .method_states = STATES, .servers = l->servers, .handler = add, .context = world,
  };
  struct param_server *service;
  CU_ASSERT_FATAL(param_server_create(&service, &plan) == TRM_OK);
  const size_t pieces = param_server_chunks(service);
  float *in = trm_alloc(elements * sizeof *in, "test"), *out = trm_alloc(elements * sizeof *out, "test");
  int64_t *seen = trm_alloc(pieces * sizeof *seen, "test");
  double *each = trm_alloc(pieces * sizeof *each, "test");
  for (size_t i = 0; i < elements; i++)
    in[i] = (float)(i % 7 + 1);

  bool ascends = true, own_seen = true;
  for (int k = 0; k < times && world->rank < workers; k++)
    for (int object = 0; object < plan.replicas; object++) {
      const float before = out[elements - 1];
      const struct server_request push = {
        .replica = object, .kind = ADD, .value = {0, 0, 2}, .per_chunk = each, .in = in, .out = out, .seen = seen};
      for (size_t i = 0; i < pieces; i++)
        each[i] = 1;
      const int64_t late = param_server_exchange(service, &push);
      ascends &= late >= 0 || l->objects;
      if (!l->objects) { /* the reply is a multiple of the values sent, and grows */
        ascends &= out[elements - 1] > before && seen[pieces - 1] > k;
        own_seen &= (int)out[0] % 2 == 0 && out[0] == 2 * (float)seen[0];
      }
    }
  CU_ASSERT(ascends);
  CU_ASSERT(own_seen);
  CU_ASSERT(!atomic_load(&lost));
  meet_serving(service, l->servers);

  for (int object = 0; object < plan.replicas; object++) {
    bool sums = true, counts = true;
    param_server_gather(service, object, 0, out);
    for (size_t i = 0; i < elements; i++)
      sums &= out[i] == (float)(2 * times * workers) * in[i];
    param_server_gather(service, object, 1, out);
    for (size_t i = 0; i < elements; i++)
      counts &= out[i] == (float)(times * workers);
    CU_ASSERT(sums);
    CU_ASSERT(counts);
  }
  const size_t step = elements / 3 + 1; /* intervals that end within chunks */
  for (size_t low = 0; low < elements; low += step)
    param_server_write(service, 1, low, elements - low < step ? elements - low : step, in + low);
  memset(out, 0, elements * sizeof *out);
  param_server_gather(service, plan.replicas - 1, 1, out);
  CU_ASSERT(memcmp(in, out, elements * sizeof *in) == 0);
  memset(out, 0, elements * sizeof *out);
  for (size_t low = 0; low < elements; low += step + 1)
    param_server_read(service, plan.replicas - 1, 1, low, elements - low < step + 1 ? elements - low : step + 1,
                      out + low);
  CU_ASSERT(world->rank > 0 || memcmp(in, out, elements * sizeof *in) == 0);
  param_server_free(service);
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
    check_service(&layouts[i], 3 * SERVER_CHUNK + 5);
  }
}

/* -- replies held back */

enum { TURN = TAKE + 1 }; /* held back until the chunk has had value[0] calls; then it counts */

static bool take_turn(void *context, const struct server_chunk *piece, struct server_call *call)
{
  (void)context;
  if (call->kind == TURN && *piece->clock < (int64_t)call->value[0])
    return false;
  call->value[1] = (double)*piece->clock;
  server_array(piece, 0)[0] += call->in ? call->in[0] : 0;
  ++*piece->clock;
  if (call->out)
    call->out[0] = server_array(piece, 0)[0];
  return true;
}

/* The workers take turns at every chunk, in an order that is not that in which they call. */
static void check_turns(const struct layout *l)
{
  const int workers = world->size - l->servers, times = 5;
  const size_t elements = 2 * SERVER_CHUNK + 9;
  struct trm_comm *node = node_of(l->node_size);
  const struct server_plan plan = {
    .comm = world, .node = node, .elements = elements, .replicas = 1, .arrays = 1, .servers = l->servers,
    .handler = take_turn,
  };
  struct param_server *service;
  CU_ASSERT_FATAL(param_server_create(&service, &plan) == TRM_OK);
  float *in = trm_alloc(elements * sizeof *in, "test"), *out = trm_alloc(elements * sizeof *out, "test");
  int64_t seen[3] = {0};
  for (size_t i = 0; i < elements; i++)
    in[i] = 1;
  size_t wrong = 0;
  for (int k = 0; k < times && world->rank < workers; k++) {
    const int turn = k * workers + (world->rank + k) % workers;
    const struct server_request request = {
      .kind = TURN, .value = {turn}, .in = in, .out = out, .seen = seen};
    const double before = world->ops->clock(world);
    param_server_exchange(service, &request);
    const double held = param_server_held_s(service);
    wrong += held < 0 || held > world->ops->clock(world) - before;
    for (size_t i = 0; i < 3; i++)
      wrong += seen[i] != turn + 1 || out[i * SERVER_CHUNK] != (float)(turn + 1);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  meet_serving(service, l->servers);
  param_server_free(service);
  world->ops->release(node);
  trm_free(in);
  trm_free(out);
}

static void test_turns(void)
{
  static const struct layout layouts[] = {{0, 0, false}, {2, 0, false}, {1, 0, false}, {0, 1, false}, {0, 2, false}};
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    if (layouts[i].servers < world->size)
      check_turns(&layouts[i]);
}

/* -- several owners */

/* One worker's exchange with dedicated servers, the other ranks of a virtual network. */
static int exchange_once(struct trm_comm *comm, void *context)
{
  double *seconds = context;
  struct trm_comm *alone = comm->ops->split(comm, comm->rank, 0);
  const struct server_plan plan = {
    .comm = comm, .node = alone, .elements = 12 * SERVER_CHUNK, .replicas = 1, .arrays = 2,
    .method_states = STATES, .servers = comm->size - 1, .handler = add, .context = world,
  };
  struct param_server *service;
  TRM_CHECK(param_server_create(&service, &plan));
  if (comm->rank == 0) {
    float *in = trm_alloc(plan.elements * sizeof *in, "test");
    const struct server_request push = {.kind = ADD, .value = {0, 0, 1}, .in = in};
    const double before = comm->ops->clock(comm);
    param_server_exchange(service, &push);
    *seconds = comm->ops->clock(comm) - before;
    param_server_finish(service);
    trm_free(in);
  } else {
    param_server_serve(service, 1, NULL, NULL);
  }
  param_server_free(service);
  comm->ops->release(alone);
  return TRM_OK;
}

/* All owners work at the same time. */
static void test_owners(void)
{
  double seconds[4] = {0};
  for (int servers = 1; servers <= 3 && world->rank == 0; servers++) {
    const struct trm_virtual_plan plan = {
      .ranks = servers + 1, .ranks_per_node = 1, .latency = 1e-6, .bandwidth = 1e12, .service = 1e-3};
    CU_ASSERT_EQUAL_FATAL(trm_virtual_run(&plan, exchange_once, &seconds[servers], NULL), TRM_OK);
    CU_ASSERT_DOUBLE_EQUAL(seconds[servers], 12e-3 / servers, 0.2e-3);
  }
  world->ops->barrier(world);
}

/* Waits without MPI calls, as a rank that computes, until `ranks` ranks have counted. Returns false if they have not
 * after a minute. */
static bool compute_until(struct trm_counter *counted, int ranks)
{
  for (int ms = 0; ms < 60000 && trm_counter_get(counted) < ranks; ms++)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return trm_counter_get(counted) == ranks;
}

/* One rank computes without MPI calls, until all others have exchanged with all chunks, also with those it owns. */
static void test_nobody_waits(void)
{
  static const struct layout layouts[] = {{0, 0, false}, {2, 0, false}, {1, 0, false}, {0, 1, false}};
  const size_t elements = 2 * SERVER_CHUNK;
  float *in = trm_alloc(elements * sizeof *in, "test"), *out = trm_alloc(elements * sizeof *out, "test");
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    const struct layout *l = &layouts[i];
    if (l->servers >= world->size)
      continue;
    struct trm_comm *node = node_of(l->node_size), *machine = node_of(0);
    struct trm_shared counters;
    CU_ASSERT_EQUAL_FATAL(machine->ops->share(machine, machine->rank ? 0 : sizeof(struct trm_counter),
                                              TRM_MEMORY_BUFFERS, &counters), TRM_OK);
    const struct server_plan plan = {
      .comm = world, .node = node, .elements = elements, .replicas = 1, .arrays = 2,
      .method_states = STATES, .servers = l->servers, .handler = add, .context = world,
    };
    struct param_server *service;
    CU_ASSERT_FATAL(param_server_create(&service, &plan) == TRM_OK);
    meet();
    const int workers = world->size - l->servers;
    if (world->rank == 0) {
      CU_ASSERT(compute_until(counters.base[0], workers - 1));
    } else if (world->rank < workers) {
      const struct server_request push = {.kind = ADD, .value = {0, 0, 1}, .in = in, .out = out};
      for (int k = 0; k < 5; k++)
        param_server_exchange(service, &push);
      trm_counter_add(machine, counters.base[0], 1);
    }
    meet_serving(service, l->servers);
    param_server_free(service);
    machine->ops->unshare(machine, &counters);
    machine->ops->release(machine);
    world->ops->release(node);
  }
  trm_free(in);
  trm_free(out);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"shared counters", test_words},
    {"no update on the parameter server is lost", test_service},
    {"replies held back", test_turns},
    {"several owners at once", test_owners},
    {"no waiting for a computing rank", test_nobody_waits},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "service", tests);
}
