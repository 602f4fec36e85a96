/* The trace: the file against the Trace Event Format, clocks with different origins and speeds, the ring buffer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/document.h"
#include "core/memory.h"
#include "core/trace.h"
#include "ranks.h"

static char path[64];

/* Clocks of ranks other than 0 have another origin and speed. */
static struct trm_comm_ops fake_ops;
static struct trm_comm fake;

static double fake_of(double real)
{
  return real * (1 + 0.25 * world->rank) - 1000.0 * world->rank;
}

static double fake_clock(struct trm_comm *comm)
{
  (void)comm;
  return fake_of(world->ops->clock(world));
}

static void start(size_t events)
{
  fake = *world;
  fake_ops = *world->ops;
  fake_ops.clock = fake_clock;
  fake.ops = &fake_ops;
  trm_trace_start(&fake, events);
}

static struct trm_node *write_and_read(void)
{
  CU_ASSERT_EQUAL_FATAL(trm_trace_write(path), TRM_OK);
  trm_trace_stop();
  struct trm_node *root = NULL;
  if (world->rank == 0) {
    CU_ASSERT_EQUAL_FATAL(trm_document_read(path, &root), TRM_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(trm_node_get(root, "traceEvents"));
    CU_ASSERT_EQUAL(unlink(path), 0);
  }
  return root;
}

static const char *text_at(const struct trm_node *map, const char *key)
{
  const struct trm_node *node = trm_node_get(map, key);
  return node && node->text ? node->text : "";
}

static double number_at(const struct trm_node *map, const char *key)
{
  return trm_node_number(trm_node_get(map, key), NAN);
}

/* An asynchronous event is two, in this order, of equal name and id. */
static void check_flight(const struct trm_node *e)
{
  if (strcmp(text_at(e, "ph"), "e") == 0)
    return;
  CU_ASSERT_STRING_EQUAL(text_at(e, "ph"), "b");
  CU_ASSERT_PTR_NOT_NULL_FATAL(e->next);
  CU_ASSERT_STRING_EQUAL(text_at(e->next, "ph"), "e");
  CU_ASSERT_STRING_EQUAL(text_at(e->next, "name"), text_at(e, "name"));
  CU_ASSERT_EQUAL(number_at(e->next, "id"), number_at(e, "id"));
  CU_ASSERT(number_at(e->next, "ts") >= number_at(e, "ts"));
  CU_ASSERT_EQUAL(number_at(e->next, "tid"), number_at(e, "tid"));
}

/* Checks each event against the format. Returns the number of events of kind X. */
static int check_events(const struct trm_node *root)
{
  int spans = 0, rows = 0;
  const struct trm_node *events = trm_node_get(root, "traceEvents");
  CU_ASSERT_EQUAL(events->kind, TRM_NODE_LIST);
  for (const struct trm_node *e = events->first; e; e = e->next) {
    CU_ASSERT_EQUAL_FATAL(e->kind, TRM_NODE_MAP);
    CU_ASSERT_NOT_EQUAL(text_at(e, "name")[0], '\0');
    CU_ASSERT_EQUAL(number_at(e, "pid"), 0);
    const double tid = number_at(e, "tid");
    CU_ASSERT(tid >= 0 && tid < world->size && tid == rint(tid));
    if (strcmp(text_at(e, "cat"), "flight") == 0) {
      check_flight(e);
      continue;
    }
    CU_ASSERT_EQUAL(trm_node_get(e, "args")->kind, TRM_NODE_MAP);
    if (strcmp(text_at(e, "ph"), "M") == 0) {
      CU_ASSERT_STRING_EQUAL(text_at(e, "name"), "thread_name");
      CU_ASSERT_EQUAL(strncmp(text_at(e, "args.name"), "rank ", 5), 0);
      rows++;
      continue;
    }
    CU_ASSERT_STRING_EQUAL(text_at(e, "ph"), "X");
    CU_ASSERT(number_at(e, "ts") >= 0 && isfinite(number_at(e, "ts")));
    CU_ASSERT(number_at(e, "dur") >= 0 && isfinite(number_at(e, "dur")));
    const char *cat = text_at(e, "cat");
    CU_ASSERT(strcmp(cat, "compute") == 0 || strcmp(cat, "communication") == 0 || strcmp(cat, "wait") == 0);
    spans++;
  }
  CU_ASSERT_EQUAL(rows, world->size);
  return spans;
}

/* Events of one row are nested or disjoint, and ordered by start. */
static void check_nesting(const struct trm_node *root)
{
  double until[32];
  int depth = 0, row = -1;
  double before = 0;
  for (const struct trm_node *e = trm_node_get(root, "traceEvents")->first; e; e = e->next) {
    if (strcmp(text_at(e, "ph"), "X") != 0)
      continue;
    const double began = number_at(e, "ts"), ended = began + number_at(e, "dur");
    if ((int)number_at(e, "tid") != row) {
      row = (int)number_at(e, "tid");
      depth = 0;
      before = 0;
    }
    CU_ASSERT(began >= before);
    before = began;
    while (depth > 0 && began >= until[depth - 1] - 1e-4)
      depth--;
    CU_ASSERT(depth == 0 || ended <= until[depth - 1] + 1e-4);
    CU_ASSERT_FATAL(depth < 32);
    until[depth++] = ended;
  }
}

static void nap(double seconds)
{
  usleep((useconds_t)(seconds * 1e6));
}

static void test_off(void)
{
  CU_ASSERT_FALSE(trm_trace_on());
  CU_ASSERT_EQUAL(trm_trace_begin("nothing"), 0);
  trm_trace_end("nothing", TRM_TRACE_COMPUTE, 0, TRM_TRACE_NO_IDS);
  CU_ASSERT_EQUAL(trm_trace_write(path), TRM_OK);
  CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
  trm_trace_stop();
}

static void test_format(void)
{
  start(1000);
  CU_ASSERT_TRUE(trm_trace_on());
  for (int step = 5; step < 8; step++) {
    trm_trace_set_step(step);
    const double whole = trm_trace_begin("a step with a name that is far too long"), flight = whole;
    for (int micro = 0; micro < 3; micro++) {
      const double pass = trm_trace_begin("forward");
      const double wait = trm_trace_begin("wait for \"x\"");
      trm_trace_end("wait for \"x\"", TRM_TRACE_WAIT, wait, (struct trm_trace_ids){micro, 1, -1});
      nap(0.0003);
      const double sum = trm_trace_begin("sum");
      trm_trace_end("sum", TRM_TRACE_COMMUNICATION, sum, (struct trm_trace_ids){micro, 1, 7});
      trm_trace_end("forward", TRM_TRACE_COMPUTE, pass, (struct trm_trace_ids){micro, 1, -1});
      trm_trace_end("sum of bucket", TRM_TRACE_FLIGHT, micro ? pass : flight, TRM_TRACE_NO_IDS);
    }
    trm_trace_end("a step with a name that is far too long", TRM_TRACE_COMPUTE, whole, TRM_TRACE_NO_IDS);
  }
  struct trm_node *root = write_and_read();
  if (!root)
    return;
  CU_ASSERT_EQUAL(check_events(root), 30 * world->size);
  check_nesting(root);
  int steps = 0, sums = 0, flights = 0;
  for (const struct trm_node *e = trm_node_get(root, "traceEvents")->first; e; e = e->next) {
    const bool is_step = strcmp(text_at(e, "name"), "a step with a name that") == 0;
    steps += is_step;
    if (is_step) {
      CU_ASSERT_PTR_NULL(trm_node_get(e, "args.micro"));
      CU_ASSERT(number_at(e, "dur") >= 900 && number_at(e, "args.step") >= 5 && number_at(e, "args.step") < 8);
    }
    if (strcmp(text_at(e, "ph"), "b") == 0) {
      flights++;
      CU_ASSERT(number_at(e, "args.step") >= 5 && number_at(e->next, "ts") - number_at(e, "ts") >= 300);
    }
    if (strcmp(text_at(e, "name"), "sum") == 0) {
      sums++;
      CU_ASSERT_EQUAL(number_at(e, "args.layer"), 7);
      CU_ASSERT_STRING_EQUAL(text_at(e, "cat"), "communication");
    }
  }
  CU_ASSERT_EQUAL(steps, 3 * world->size);
  CU_ASSERT_EQUAL(sums, 9 * world->size);
  CU_ASSERT_EQUAL(flights, 9 * world->size);
  CU_ASSERT_STRING_EQUAL(text_at(root, "displayTimeUnit"), "ms");
  trm_node_free(root);
}

/* Events at known times, on ranks whose clocks differ by thousands of seconds. */
static void test_clocks(void)
{
  enum { MOMENTS = 4 };
  const double earliest = world->ops->clock(world);
  start(100);
  const double latest = world->ops->clock(world);
  double *real = trm_alloc((size_t)world->size * MOMENTS * sizeof *real, "test"), mine[MOMENTS];
  for (int i = 0; i < MOMENTS; i++) {
    nap(0.05 + 0.01 * world->rank);
    mine[i] = world->ops->clock(world);
    trm_trace_add("moment", TRM_TRACE_COMPUTE, fake_of(mine[i]), fake_of(mine[i] + 0.004), TRM_TRACE_NO_IDS);
  }
  world->ops->allgather(world, mine, real, MOMENTS, TRM_DOUBLE);
  struct trm_node *root = write_and_read();
  size_t at = 0;
  const double range = latest - earliest; /* the origin is between these two */
  for (const struct trm_node *e = root ? trm_node_get(root, "traceEvents")->first : NULL; e; e = e->next) {
    if (strcmp(text_at(e, "ph"), "X") != 0)
      continue;
    const double began = number_at(e, "ts") * 1e-6, duration = number_at(e, "dur") * 1e-6;
    CU_ASSERT(began >= real[at] - latest - 0.02 && began <= real[at] - earliest + 0.02);
    CU_ASSERT(fabs(duration - 0.004) < 0.001);
    at++;
  }
  CU_ASSERT(world->rank || at == (size_t)world->size * MOMENTS);
  CU_ASSERT(range < 5);
  trm_node_free(root);
  trm_free(real);
}

/* The newest are kept, dropped ones counted. */
static void test_ring(void)
{
  start(8);
  for (int i = 0; i < 20 + world->rank; i++) {
    trm_trace_set_step(i);
    trm_trace_end("short", TRM_TRACE_WAIT, trm_trace_begin("short"), TRM_TRACE_NO_IDS);
  }
  struct trm_node *root = write_and_read();
  if (!root)
    return;
  CU_ASSERT_EQUAL(check_events(root), 8 * world->size);
  int rank = 0;
  for (const struct trm_node *d = trm_node_get(root, "otherData.dropped")->first; d; d = d->next, rank++)
    CU_ASSERT_EQUAL(trm_node_number(d, -1), 12 + rank);
  CU_ASSERT_EQUAL(rank, world->size);
  for (const struct trm_node *e = trm_node_get(root, "traceEvents")->first; e; e = e->next)
    if (strcmp(text_at(e, "ph"), "X") == 0)
      CU_ASSERT(number_at(e, "args.step") >= 12 + number_at(e, "tid"));
  trm_node_free(root);
}

static void test_errors(void)
{
  start(8);
  CU_ASSERT_EQUAL(trm_trace_write("/no/such/folder/trace.json"), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "/no/such/folder/trace.json"));
  CU_ASSERT_TRUE(trm_trace_on());
  trm_trace_stop();
  CU_ASSERT_FALSE(trm_trace_on());
}

int main(int argc, char **argv)
{
  snprintf(path, sizeof path, "/tmp/trireme-trace-%ld.json", (long)getpid());
  CU_TestInfo tests[] = {
    {"off", test_off},
    {"the format", test_format},
    {"clocks", test_clocks},
    {"ring buffer", test_ring},
    {"errors", test_errors},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "trace", tests);
}
