#include "mpi/async/claims.h"

#include "core/status.h"

enum word { NEXT, HALTS, HALT, FINISHED, WORDS };
#define BEYOND ((int64_t)1 << 60) /* no batch has such a number */

int claims_create(struct claims *claims, struct trm_comm *comm, struct trm_comm *node, int home, enum claims_rule rule,
                  int worker, int workers, int slack)
{
  *claims = (struct claims){.rule = rule, .worker = worker, .workers = workers, .slack = slack};
  return words_create(&claims->words, comm, node, home, WORDS);
}

void claims_free(struct claims *claims)
{
  words_free(&claims->words);
}

static bool give(struct claims *claims, int64_t batch, uint64_t *given)
{
  claims->done++;
  *given = (uint64_t)batch;
  return true;
}

/* HALT: 0, or one more than the batch before which all stop. */
bool claims_next(struct claims *claims, uint64_t end, uint64_t *batch)
{
  if (claims->rule == CLAIMS_DYNAMIC) { /* one round trip a batch */
    const int64_t free = words_add(&claims->words, NEXT, 1);
    return free < (int64_t)end && give(claims, free, batch);
  }
  const int64_t own = claims->next, halt = words_read(&claims->words, HALT);
  if (own >= (int64_t)end || (halt > 0 && own >= halt - 1))
    return false;
  claims->next += claims->rule == CLAIMS_STATIC ? claims->workers : 1;
  return give(claims, own, batch);
}

void claims_finish(struct claims *claims)
{
  words_add(&claims->words, FINISHED, 1);
}

/* The first to say it decides. Workers of the rule `each` end at one clock: nobody computes further than slack ahead of
 * this one, and has then been given the batch after that at most. */
void claims_halt(struct claims *claims)
{
  if (words_add(&claims->words, HALTS, 1) > 0)
    return;
  if (claims->rule == CLAIMS_DYNAMIC)
    words_add(&claims->words, NEXT, BEYOND);
  else
    words_add(&claims->words, HALT, claims->rule == CLAIMS_EACH ? claims->next + claims->slack + 3 : 1);
}

bool claims_all_finished(struct claims *claims)
{
  return words_read(&claims->words, FINISHED) == claims->workers;
}

/* Brings the words to what they are before the next batch. */
static void rewind_words(struct claims *claims, struct trm_comm *comm, uint64_t updates)
{
  if (comm->rank == claims->words.home) {
    words_add(&claims->words, NEXT, (int64_t)updates - words_read(&claims->words, NEXT));
    words_add(&claims->words, HALTS, -words_read(&claims->words, HALTS));
    words_add(&claims->words, HALT, -words_read(&claims->words, HALT));
    words_add(&claims->words, FINISHED, -words_read(&claims->words, FINISHED));
  }
  claims->done = 0;
  comm->ops->barrier(comm);
}

void claims_settle(struct claims *claims, struct trm_comm *comm, bool leads, uint64_t *updates)
{
  comm->ops->barrier(comm);
  int64_t done = leads ? claims->done : 0;
  comm->ops->allreduce(comm, &done, 1, TRM_INT64, claims->rule == CLAIMS_EACH ? TRM_MAX : TRM_SUM);
  *updates += (uint64_t)done;
  rewind_words(claims, comm, *updates);
}

void claims_restart(struct claims *claims, struct trm_comm *comm, uint64_t updates, bool given)
{
  if (!given || claims->rule != CLAIMS_STATIC) {
    const int64_t first = (int64_t)updates, workers = claims->workers, own = claims->worker;
    claims->next = claims->rule == CLAIMS_STATIC ? first + ((own - first) % workers + workers) % workers : first;
  }
  comm->ops->barrier(comm);
  rewind_words(claims, comm, updates);
}
