/* Batch assignment: every row of every batch is assigned once, with batches whole and divided, over quiesce points,
 * stops and resuming on another number of ranks. On one node, on several (TRM_NODE_SIZE), without shared memory. For 1
 * to 9 ranks. */
#include <string.h>

#include "core/memory.h"
#include "mpi/async/batch_assignment.h"
#include "ranks.h"

enum { BATCHES = 60, ROWS = 12 };

/* The ranks of a job, a part of world, and what they were assigned. */
struct job {
  struct trm_comm *comm, *node;
  struct batch_assignment a;
  int32_t count[BATCHES * ROWS]; /* times that this rank was assigned each row */
  uint64_t updates;
  struct trm_batch_part *undone; /* (undones) */
  size_t undones;
};

static const enum assignment_rule rules[] = {ASSIGN_DYNAMIC, ASSIGN_STATIC, ASSIGN_SPLIT};

/* Barrier that drives MPI progress while it waits. */
static void meet(struct trm_comm *comm)
{
  int32_t one = 1;
  struct trm_request *request;
  comm->ops->allreduce_begin(comm, &one, 1, TRM_INT32, TRM_SUM, &request);
  while (!comm->ops->test(&request))
    comm->ops->progress(comm);
}

/* The first `ranks` ranks are a job; false on the others. node_size: 0: all ranks share memory. */
static bool job_open(struct job *job, int ranks, int node_size, enum assignment_rule rule, int parts)
{
  job->comm = world->ops->split(world, world->rank < ranks ? 0 : -1, 0);
  if (!job->comm)
    return false;
  set_node_size(node_size);
  job->node = job->comm->ops->split_node(job->comm, TRM_SHARE_NODE);
  set_node_size(0);
  job->a = (struct batch_assignment){
    .rule = rule, .worker = job->comm->rank, .workers = ranks, .parts = parts, .slack = 2, .leader = true};
  CU_ASSERT_FATAL(batch_assignment_create(&job->a, job->comm, job->node, 0) == TRM_OK);
  batch_assignment_restart(&job->a, job->updates, job->undone, job->undones);
  return true;
}

static void job_close(struct job *job)
{
  batch_assignment_free(&job->a);
  job->comm->ops->release(job->node);
  job->comm->ops->release(job->comm);
}

/* Takes up to `limit` parts of batches below `end`. */
static void take(struct job *job, uint64_t end, int limit)
{
  struct trm_batch_part part;
  job->a.end = end;
  for (int i = 0; i < limit && batch_assignment_next(&job->a, &part); i++) {
    size_t low, high;
    trm_interval(ROWS, part.parts, part.part, &low, &high);
    CU_ASSERT_FATAL(part.batch < end);
    for (size_t row = low; row < high; row++)
      job->count[part.batch * ROWS + row]++;
  }
}

static void quiesce(struct job *job)
{
  meet(job->comm);
  trm_free(job->undone);
  batch_assignment_quiesce(&job->a, &job->updates, &job->undone, &job->undones);
}

/* All ranks of world together were assigned the rows of each batch below `end` `times` times, and of others
 * not at all. */
static bool exactly(const struct job *job, int end, int times)
{
  int32_t sum[BATCHES * ROWS];
  bool exact = true;
  memcpy(sum, job->count, sizeof sum);
  world->ops->allreduce(world, sum, BATCHES * ROWS, TRM_INT32, TRM_SUM);
  for (int i = 0; i < BATCHES * ROWS; i++)
    exact &= sum[i] == (i < end * ROWS ? times : 0);
  return exact;
}

static void test_once(void)
{
  static const int node_sizes[] = {0, 2, 1};
  for (int layout = 0; layout < 3; layout++)
    for (int rule = 0; rule < 3; rule++)
      for (int parts = 1; parts <= (rules[rule] == ASSIGN_SPLIT ? 1 : 5); parts += 2) {
        struct job job = {.updates = 0};
        const int times = rules[rule] == ASSIGN_SPLIT ? world->size : 1;
        job_open(&job, world->size, node_sizes[layout], rules[rule], parts);
        const uint64_t ends[] = {37, 37, BATCHES}; /* an empty range is no error */
        for (int i = 0; i < 3; i++) {
          take(&job, ends[i], BATCHES * ROWS);
          quiesce(&job);
          CU_ASSERT(job.updates == ends[i] && job.undones == 0);
          CU_ASSERT(exactly(&job, (int)ends[i], times));
        }
        job_close(&job);
      }
}

/* With split batches all ranks stop after the same one. */
static void test_halt_split(void)
{
  struct job job = {.updates = 0};
  job_open(&job, world->size, 0, ASSIGN_SPLIT, 1);
  for (int i = 0; i < 20; i++) {
    take(&job, BATCHES, 1);
    if (world->rank == 0 && i == 5)
      batch_assignment_halt(&job.a);
    meet(job.comm); /* keeps the ranks close together */
  }
  quiesce(&job);
  CU_ASSERT(job.updates == 5 + 1 + 2 + 2 && job.undones == 0);
  CU_ASSERT(exactly(&job, (int)job.updates, world->size));
  job_close(&job);
}

/* Rank r takes 3 + 2 r parts below `end`, rank 0 halts the job, and all quiesce. */
static void stop_early(struct job *job, uint64_t end)
{
  meet(job->comm);
  take(job, end, 3 + 2 * job->comm->rank);
  meet(job->comm);
  if (job->comm->rank == 0)
    batch_assignment_halt(&job->a);
  meet(job->comm);
  struct trm_batch_part part;
  CU_ASSERT(!batch_assignment_next(&job->a, &part));
  quiesce(job);
}

/* The undone parts and the position of a stopped job, from its rank 0 to all ranks of world, as a checkpoint does. */
static void carry_over(struct job *job)
{
  uint64_t position[] = {job->updates, job->undones};
  world->ops->broadcast(world, position, 2, TRM_INT64, 0);
  job->updates = position[0];
  job->undones = position[1];
  if (world->rank > 0) {
    trm_free(job->undone);
    job->undone = trm_alloc(job->undones * sizeof *job->undone, "test");
  }
  if (job->undones > 0)
    world->ops->broadcast(world, job->undone, job->undones * sizeof *job->undone, TRM_BYTE, 0);
}

/* Three runs: two are stopped, the last one completes the batches. They may differ in ranks, rule and parts. */
static void check_resumed(const int ranks[3], const enum assignment_rule rule[3], const int parts[3])
{
  struct job job = {.updates = 0};
  for (int run = 0; run < 3; run++) {
    if (job_open(&job, ranks[run] < world->size ? ranks[run] : world->size, 0, rule[run], parts[run])) {
      if (run < 2) {
        stop_early(&job, BATCHES);
      } else {
        for (uint64_t end = job.updates + 1; end < BATCHES; end += 7) {
          take(&job, end, BATCHES * ROWS);
          quiesce(&job);
          CU_ASSERT(job.updates >= end);
        }
        take(&job, BATCHES, BATCHES * ROWS);
        quiesce(&job);
        CU_ASSERT(job.updates == BATCHES && job.undones == 0);
      }
      job_close(&job);
    }
    carry_over(&job);
  }
  CU_ASSERT(exactly(&job, BATCHES, 1));
  trm_free(job.undone);
}

static void test_resumed(void)
{
  static const int ranks[][3] = {{4, 2, 3}, {2, 3, 4}, {1, 4, 1}, {3, 3, 2}, {4, 4, 4}};
  static const int parts[][3] = {{1, 1, 1}, {4, 2, 3}, {1, 3, 4}, {5, 5, 5}};
  for (int r = 0; r < 5; r++)
    for (int p = 0; p < 4; p++)
      for (int i = 0; i < 8; i++) {
        const enum assignment_rule rule[] = {rules[i & 1], rules[i >> 1 & 1], rules[i >> 2 & 1]};
        check_resumed(ranks[r], rule, parts[p]);
      }
}

/* Four static workers of which one is far ahead: the parts that the others have not done, in order. */
static void test_undone(void)
{
  struct job job = {.updates = 0};
  if (world->size >= 4 && job_open(&job, 4, 0, ASSIGN_STATIC, 1)) {
    take(&job, BATCHES, job.comm->rank == 1 ? 3 : 1); /* 0, 1, 5, 9, 2, 3 */
    meet(job.comm);
    if (job.comm->rank == 2)
      batch_assignment_halt(&job.a);
    quiesce(&job);
    CU_ASSERT(job.updates == 6);
    CU_ASSERT(job.undones == (job.comm->rank == 0 ? 4 : 0));
    static const uint64_t undone[] = {4, 6, 7, 8};
    for (size_t i = 0; i < job.undones; i++)
      CU_ASSERT(job.undone[i].batch == undone[i] && job.undone[i].part == 0 && job.undone[i].parts == 1);
    job_close(&job);
  }
  trm_free(job.undone);
  world->ops->barrier(world);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"every row is assigned once", test_once},
    {"one rank halts all, with split batches", test_halt_split},
    {"undone parts of a stopped run", test_undone},
    {"stopped and resumed on other ranks", test_resumed},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "batch assignment", tests);
}
