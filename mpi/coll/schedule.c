#include "mpi/coll/schedule.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/coll/reduce.h"

/* Strands in progress at a time: one is on its way while another is reduced. More would only take memory, and keep the
 * wire from older ones. */
enum { ACTIVE = 4 };

enum step_kind { SEND, RECEIVE, RECEIVE_REDUCE };

struct step {
  enum step_kind kind;
  int rank, round;
  size_t count;
  const void *from; /* what is sent, or reduced with what is received */
  void *to;
  struct trm_request *request;
};

/* A strand in progress. */
struct active {
  size_t at, next, last; /* its round has steps [at, next); the strand ends at last */
  int tag;
  char *buffer; /* (bytes) what is received to be reduced */
  size_t bytes;
};

struct coll_schedule {
  struct coll *coll;
  struct coll_schedule *next; /* of those in progress, made after this one */
  enum trm_type type;
  enum trm_op op;
  struct step *step;
  size_t steps, step_capacity;
  int round;     /* of steps that are added */
  size_t *first; /* (strands) the first step of each */
  size_t strands, strand_capacity, begun, complete;
  uint64_t first_strand; /* its number on the communicator */
  struct active active[ACTIVE];
};

/* -- making it */

struct coll_schedule *coll_schedule_make(struct coll *coll, enum trm_type type, enum trm_op op)
{
  struct coll_schedule *s = trm_alloc(sizeof *s, "a collective");
  s->coll = coll;
  s->type = type;
  s->op = op;
  s->first_strand = coll->strands;
  struct coll_schedule **end = &coll->oldest;
  while (*end)
    end = &(*end)->next;
  return *end = s;
}

struct trm_comm *coll_schedule_comm(const struct coll_schedule *s)
{
  return s->coll->comm;
}

const int *coll_schedule_nodes(const struct coll_schedule *s)
{
  return s->coll->nodes;
}

enum trm_type coll_schedule_type(const struct coll_schedule *s)
{
  return s->type;
}

void coll_strand(struct coll_schedule *s)
{
  s->first = trm_grow(s->first, &s->strand_capacity, s->strands, s->strands + 1, sizeof *s->first, "a collective");
  s->first[s->strands++] = s->steps;
  if (++s->coll->strands - s->coll->oldest->first_strand > COLL_TAGS)
    trm_abort_on_error(trm_error(TRM_FAILED, "a collective: the oldest in progress is %d strands behind, the most "
                                 "that it can be", COLL_TAGS));
  s->round = 0;
}

void coll_round(struct coll_schedule *s)
{
  s->round++;
}

static void schedule_add(struct coll_schedule *s, struct step step)
{
  if (step.count == 0)
    return;
  step.round = s->round;
  s->step = trm_grow(s->step, &s->step_capacity, s->steps, s->steps + 1, sizeof *s->step, "a collective");
  s->step[s->steps++] = step;
}

void coll_send(struct coll_schedule *s, const void *from, size_t count, int rank)
{
  schedule_add(s, (struct step){.kind = SEND, .rank = rank, .count = count, .from = from});
}

void coll_receive(struct coll_schedule *s, void *to, size_t count, int rank)
{
  schedule_add(s, (struct step){.kind = RECEIVE, .rank = rank, .count = count, .to = to});
}

void coll_receive_reduce(struct coll_schedule *s, void *to, const void *with, size_t count, int rank)
{
  schedule_add(s, (struct step){.kind = RECEIVE_REDUCE, .rank = rank, .count = count, .from = with, .to = to});
}

/* -- running it */

/* Makes the buffer large enough for what the round receives to be reduced. */
static void schedule_reserve(const struct coll_schedule *s, struct active *a)
{
  size_t bytes = 0;
  for (size_t i = a->at; i < a->next; i++)
    if (s->step[i].kind == RECEIVE_REDUCE)
      bytes += s->step[i].count * trm_type_bytes(s->type);
  if (bytes <= a->bytes)
    return;
  trm_free(a->buffer);
  a->buffer = trm_alloc(bytes, "a collective");
  a->bytes = bytes;
}

/* Begins the round at a->at: receives before sends, so that what arrives has its place. */
static void schedule_begin_round(struct coll_schedule *s, struct active *a)
{
  struct trm_comm *comm = s->coll->comm;
  for (a->next = a->at; a->next < a->last && s->step[a->next].round == s->step[a->at].round;)
    a->next++;
  schedule_reserve(s, a);
  char *received = a->buffer;
  for (size_t i = a->at; i < a->next; i++) {
    struct step *step = &s->step[i];
    if (step->kind == SEND)
      continue;
    comm->ops->receive_begin(comm, step->kind == RECEIVE ? step->to : received, step->count, s->type, step->rank,
                             a->tag, &step->request);
    if (step->kind == RECEIVE_REDUCE)
      received += step->count * trm_type_bytes(s->type);
  }
  for (size_t i = a->at; i < a->next; i++)
    if (s->step[i].kind == SEND)
      comm->ops->send_begin(comm, s->step[i].from, s->step[i].count, s->type, s->step[i].rank, a->tag,
                            &s->step[i].request);
}

static void schedule_end_round(struct coll_schedule *s, struct active *a)
{
  const char *received = a->buffer;
  for (; a->at < a->next; a->at++) {
    const struct step *step = &s->step[a->at];
    if (step->kind != RECEIVE_REDUCE)
      continue;
    coll_reduce(s->type, s->op, step->to, step->from, received, step->count);
    received += step->count * trm_type_bytes(s->type);
  }
}

/* Begins the next strand in the place of a complete one. */
static void schedule_begin_strand(struct coll_schedule *s, struct active *a)
{
  a->at = s->first[s->begun];
  a->last = s->begun + 1 < s->strands ? s->first[s->begun + 1] : s->steps;
  a->tag = COLL_TAG_LOW + (int)((s->first_strand + s->begun++) % COLL_TAGS);
  schedule_begin_round(s, a);
}

/* Takes a strand, and those that follow in its place, as far as its messages have come. */
static void schedule_advance(struct coll_schedule *s, struct active *a)
{
  while (a->at < a->last || s->begun < s->strands) {
    if (a->at == a->last) {
      schedule_begin_strand(s, a);
      continue;
    }
    bool complete = true;
    for (size_t i = a->at; i < a->next; i++)
      complete &= s->coll->comm->ops->test(&s->step[i].request);
    if (!complete)
      return;
    schedule_end_round(s, a);
    if (a->at < a->last)
      schedule_begin_round(s, a);
  }
}

static void schedule_advance_all(struct coll_schedule *s)
{
  for (int i = 0; i < ACTIVE; i++)
    schedule_advance(s, &s->active[i]);
}

/* Its strands in progress. */
static int schedule_active(const struct coll_schedule *s)
{
  int active = 0;
  for (int i = 0; i < ACTIVE; i++)
    active += s->active[i].at < s->active[i].last;
  return active;
}

static bool schedule_is_complete(const struct coll_schedule *s)
{
  return schedule_active(s) == 0 && s->begun == s->strands;
}

static void schedule_free(struct coll_schedule *s)
{
  struct coll_schedule **link = &s->coll->oldest;
  while (*link != s)
    link = &(*link)->next;
  *link = s->next;
  for (int i = 0; i < ACTIVE; i++)
    trm_free(s->active[i].buffer);
  trm_free(s->first);
  trm_free(s->step);
  trm_free(s);
}

bool coll_schedule_test(struct coll_schedule **schedule)
{
  struct coll_schedule *s = *schedule;
  if (!s)
    return true;
  coll_progress(s->coll);
  if (!schedule_is_complete(s))
    return false;
  schedule_free(s);
  *schedule = NULL;
  return true;
}

/* Blocks on the strand that began first in the oldest schedule. So does every other rank that waits: somebody gets what
 * it waits for. */
void coll_schedule_wait(struct coll_schedule **schedule)
{
  while (!coll_schedule_test(schedule)) {
    struct coll_schedule *oldest = (*schedule)->coll->oldest;
    while (schedule_is_complete(oldest))
      oldest = oldest->next;
    const struct active *first = NULL;
    for (int i = 0; i < ACTIVE; i++) {
      const struct active *a = &oldest->active[i];
      if (a->at < a->last && (!first || a->last < first->last))
        first = a;
    }
    for (size_t i = first->at; i < first->next; i++)
      oldest->coll->comm->ops->wait(&oldest->step[i].request);
  }
}

/* The oldest first, and no further ones while these have enough to do: they are probably waited for first. The oldest
 * that is incomplete at some rank is the oldest wherever it is incomplete, so it goes on. */
bool coll_progress(struct coll *coll)
{
  int active = 0;
  struct coll_schedule *s = coll->oldest;
  for (; s && active < ACTIVE; s = s->next) {
    schedule_advance_all(s);
    active += schedule_active(s);
  }
  return !s && active == 0;
}
