/* A2CiD2: without momentum it is AD-PSGD, bit for bit; its constants; and a run of many workers against a loop in
 * double precision over the recorded events. For 1 rank and more. */
#include "mpi/async/a2cid2.h"

#include <stdlib.h>
#include <unistd.h>

#include "peers.h"

#define RATE 0.25

static void gradient(uint64_t batch, const float *w, float *g, size_t elements)
{
  for (size_t i = 0; i < elements; i++)
    g[i] = 0.5f * (w[i] - (float)cos((double)(i + 17 * batch)));
}

static int one_step(struct job *job, uint64_t batch)
{
  struct trm_strategy *s = &job->strategy;
  struct trm_loss_sums tally = {.loss = 1, .rows = 1};
  gradient(batch, s->w, s->g, s->elements);
  return s->ops->step(s, RATE, &tally);
}

static struct a2cid2 *method_of(struct job *job)
{
  return worker_of(&job->strategy)->method;
}

static enum trm_peer_graph sparse_graph(void)
{
  return world->size % 2 ? TRM_GRAPH_COMPLETE : TRM_GRAPH_RING;
}

static void start(struct job *job, const struct setup *c, const char *record)
{
  job_prepare(job, c, world);
  job->options.strategy.graph = sparse_graph();
  job->strategy.record = record;
  job->optimizer.update.l2 = 0;
  job->tensor[2].momentum = 0;
  job_create(job, c);
  strategy_restore_initial(&job->strategy, initial);
}

static void test_constants(void)
{
  struct setup c = {.method = "a2cid2", .tau = 2, .elements = 160};
  struct job job;
  start(&job, &c, NULL);
  const struct a2cid2 *a2cid2 = method_of(&job);
  const double n = world->size;
  if (world->size == 1) {
    CHECK(&c, a2cid2->h == 0 && a2cid2->a == 0.5);
  } else if (world->size % 2) { /* complete: m = (n + 1) / 2 and (n - 1) / 2 */
    const double chi1 = 2, chi2 = (n - 1) / (n + 1) * 2;
    CHECK(&c, fabs(a2cid2->h - 0.5 / sqrt(chi1 * chi2)) < 1e-9 && fabs(a2cid2->a - 0.5 * sqrt(chi1 / chi2)) < 1e-9);
  } else {
    const double chi1 = 2 / (1 - cos(2 * acos(-1) / n)), chi2 = 2 * (n - 1) / n;
    CHECK(&c, fabs(a2cid2->h - 0.5 / sqrt(chi1 * chi2)) < 1e-9 && fabs(a2cid2->a - 0.5 * sqrt(chi1 / chi2)) < 1e-9);
  }
  job_stop(&job);
}

/* The ranks compute one after the other. w (elements): the weights of this rank; mean (elements): of all. */
static void take_turns(const char *method, float *w, float *mean)
{
  struct setup c = {.method = method, .rule = TRM_UPDATE_ADAM, .clip = 3, .tau = 2, .elements = 70000 / 16 * 16};
  struct job job;
  start(&job, &c, NULL);
  struct trm_strategy *s = &job.strategy;
  if (is_method(&c, "a2cid2")) {
    method_of(&job)->h = 0;
    method_of(&job)->a = 0.5;
  }
  for (int round = 0; round < 5; round++)
    for (int rank = 0; rank < world->size; rank++) {
      if (world->rank == rank) {
        CU_ASSERT_EQUAL(s->ops->before_forward(s), TRM_OK);
        CU_ASSERT_EQUAL(one_step(&job, (uint64_t)(round * world->size + rank)), TRM_OK);
      }
      world->ops->barrier(world);
    }
  CU_ASSERT_EQUAL(s->ops->quiesce(s), TRM_OK);
  memcpy(w, s->w, c.elements * sizeof *w);
  memcpy(mean, s->eval_weights, c.elements * sizeof *mean);
  job_stop(&job);
}

static void test_without_momentum(void)
{
  enum { ELEMENTS = 70000 / 16 * 16 };
  float *value[4];
  for (int i = 0; i < 4; i++)
    value[i] = trm_alloc(ELEMENTS * sizeof(float), "test");
  take_turns("adpsgd", value[0], value[1]);
  take_turns("a2cid2", value[2], value[3]);
  CU_ASSERT(memcmp(value[0], value[2], ELEMENTS * sizeof(float)) == 0);
  CU_ASSERT(memcmp(value[1], value[3], ELEMENTS * sizeof(float)) == 0);
  for (int i = 0; i < 4; i++)
    trm_free(value[i]);
}

/* -- a recorded run, again in double precision */

enum { ELEMENTS = 32, MAX_EVENTS = 1024, MAX_WORKERS = 16 };
enum kind { READ, MIX, AVERAGE, AVERAGED, STEP };

struct event {
  int caller, kind;
  double time;
};

struct replica {
  struct event event[MAX_EVENTS];
  int events, next;
  uint64_t steps;
  double x[ELEMENTS], tilde[ELEMENTS], mean[ELEMENTS]; /* mean: of x and another's */
  float read[ELEMENTS];                                /* the weights of the gradient in progress */
  bool has_quiesced;
  double begun, last, duration;
};

static struct replica replica[MAX_WORKERS];

/* A call on a rank's chunk is run by the rank or by another of its node: every file may have events of every replica.
 * Their numbers are their order. */
static void read_record(const char *folder)
{
  memset(replica, 0, sizeof replica);
  for (int rank = 0; rank < world->size; rank++) {
    char path[256], line[256];
    snprintf(path, sizeof path, "%s/rank-%d.txt", folder, rank);
    FILE *in = fopen(path, "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(in);
    while (fgets(line, sizeof line, in)) {
      int r, chunk, number, caller, kind;
      double time;
      if (sscanf(line, "c %d %d %d %d %d %la", &r, &chunk, &number, &caller, &kind, &time) != 6)
        continue;
      CU_ASSERT_FATAL(r < MAX_WORKERS && chunk == 0 && number < MAX_EVENTS);
      replica[r].event[number] = (struct event){caller, kind, time};
      replica[r].events = number >= replica[r].events ? number + 1 : replica[r].events;
    }
    fclose(in);
  }
}

/* Returns the rank whose next event is the earliest; -1: none is left. */
static int first_of_all(void)
{
  int first = -1;
  for (int rank = 0; rank < world->size; rank++) {
    const struct replica *r = &replica[rank], *best = first < 0 ? r : &replica[first];
    if (r->next < r->events && (first < 0 || r->event[r->next].time < best->event[best->next].time))
      first = rank;
  }
  return first;
}

static void mix_until(struct replica *r, double h, double time)
{
  const double t = rint((time - r->last) / r->duration * 1024) / 1024;
  for (int i = 0; i < ELEMENTS && r->last >= 0 && r->duration > 0; i++) {
    const double x = r->x[i], tilde = r->tilde[i], same = (1 + exp(-2 * h * t)) / 2, other = (1 - exp(-2 * h * t)) / 2;
    r->x[i] = same * x + other * tilde;
    r->tilde[i] = other * x + same * tilde;
  }
  r->last = time;
}

static void average(struct replica *r, double a, const double *mean)
{
  for (int i = 0; i < ELEMENTS; i++) {
    const double other = 2 * mean[i] - r->x[i];
    r->tilde[i] += a * (other - r->x[i]);
    r->x[i] += (other - r->x[i]) / 2;
  }
}

/* Applies the rank's next event. quiesce_at: steps of a rank after which the workers synchronized. */
static void apply_next(const struct a2cid2 *of, int rank, uint64_t quiesce_at)
{
  struct replica *r = &replica[rank];
  const struct event *event = &r->event[r->next];
  const uint64_t batch = r->steps * (uint64_t)world->size + (uint64_t)rank;
  struct replica *caller = &replica[event->caller];
  switch (event->kind) {
  case READ:
    r->begun = event->time;
    r->last = r->last < 0 ? event->time : r->last;
    for (int i = 0; i < ELEMENTS; i++)
      r->read[i] = (float)r->x[i];
    if (r->steps == quiesce_at && !r->has_quiesced) { /* the quiesce point's own */
      r->last = -1;
      r->has_quiesced = true;
    }
    break;
  case MIX:
    mix_until(r, of->h, event->time);
    break;
  case AVERAGE:
    mix_until(r, of->h, event->time);
    for (int i = 0; i < ELEMENTS; i++)
      caller->mean[i] = (r->x[i] + caller->x[i]) / 2;
    average(r, of->a, caller->mean);
    break;
  case AVERAGED:
    average(r, of->a, r->mean);
    break;
  default:
    mix_until(r, of->h, event->time);
    for (int i = 0; i < ELEMENTS; i++) {
      const double g = 0.5 * ((double)r->read[i] - cos((double)((uint64_t)i + 17 * batch)));
      r->x[i] -= RATE * g;
      r->tilde[i] -= RATE * g;
    }
    r->steps++;
    r->duration = r->duration > 0 ? (r->duration + event->time - r->begun) / 2 : event->time - r->begun;
  }
  r->next++;
}

static void test_recorded(void)
{
  enum { STEPS = 12, MIDDLE = 5 };
  char folder[64] = "a2cid2-record-XXXXXX";
  if (world->rank == 0)
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
  world->ops->broadcast(world, folder, sizeof folder, TRM_BYTE, 0);
  struct setup c = {.method = "a2cid2", .layout = world->size % 2 ? NO_SHARING : PAIRS, .elements = ELEMENTS};
  struct job job;
  start(&job, &c, folder);
  job.tensor[0].end = job.tensor[1].end = job.tensor[2].end = ELEMENTS;
  struct trm_strategy *s = &job.strategy;
  const struct a2cid2 of = *method_of(&job);
  const uint64_t ranks = (uint64_t)world->size;
  uint64_t batch;
  for (uint64_t end = MIDDLE * ranks; end <= STEPS * ranks; end += (STEPS - MIDDLE) * ranks) {
    while (next_batch(s, end, &batch)) {
      CHECK(&c, s->ops->before_forward(s) == TRM_OK);
      usleep((useconds_t)(200 + 100 * (batch * 7 % 5)));
      CHECK(&c, one_step(&job, batch) == TRM_OK);
    }
    CHECK(&c, s->ops->quiesce(s) == TRM_OK);
  }
  float *w = trm_alloc(ELEMENTS * sizeof *w, "test");
  memcpy(w, s->w, ELEMENTS * sizeof *w);
  job_stop(&job);

  read_record(folder);
  for (int rank = 0; rank < world->size; rank++) {
    replica[rank].last = -1;
    for (size_t i = 0; i < ELEMENTS; i++)
      replica[rank].x[i] = replica[rank].tilde[i] = (double)initial(i);
  }
  for (int rank = first_of_all(); rank >= 0; rank = first_of_all())
    apply_next(&of, rank, MIDDLE);
  double worst = 0, momentum = 0;
  const struct replica *mine = &replica[world->rank];
  CHECK(&c, mine->next == mine->events && mine->steps == STEPS);
  for (int i = 0; i < ELEMENTS; i++) {
    worst = fmax(worst, fabs(mine->x[i] - (double)w[i]));
    for (int rank = 0; rank < world->size; rank++)
      momentum = fmax(momentum, fabs(replica[rank].x[i] - replica[rank].tilde[i]));
  }
  if (!(worst < 5e-7))
    printf("\n    rank %d: %g from the loop\n", world->rank, worst);
  CHECK(&c, worst < 5e-7);
  CHECK(&c, (momentum > 1e-4) == (world->size > 2)); /* with a = 1/2, x~ stays x */
  trm_free(w);
  world->ops->barrier(world);
  char path[128];
  snprintf(path, sizeof path, "%s/rank-%d.txt", folder, world->rank);
  unlink(path);
  world->ops->barrier(world);
  if (world->rank == 0)
    rmdir(folder);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"constants", test_constants},
    {"without momentum it is adpsgd", test_without_momentum},
    {"a recorded run in double precision", test_recorded},
    CU_TEST_INFO_NULL,
  };
  return method_run(argc, argv, "A2CiD2", tests);
}
