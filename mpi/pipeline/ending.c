#include "mpi/pipeline/ending.h"

#include "core/memory.h"

enum { TAG_ASKED = 16003 }; /* of tallies.c: 16001, 16002 */

static bool is_last(const struct ending *ending)
{
  return ending->comm->rank == ending->comm->size - 1;
}

static void say(struct ending *ending, double asked)
{
  struct trm_comm *comm = ending->comm;
  ending->word[0] = asked;
  ending->said = true;
  comm->ops->send_begin(comm, ending->word, 1, TRM_DOUBLE, comm->size - 1, TAG_ASKED, ending->request);
}

void ending_create(struct ending *ending, struct trm_comm *comm)
{
  *ending = (struct ending){.comm = comm};
  ending->word = trm_alloc((size_t)comm->size * sizeof *ending->word, "the pipeline");
  ending->request = trm_alloc((size_t)comm->size * sizeof *ending->request, "the pipeline");
}

void ending_begin(struct ending *ending, const struct trm_pipeline_run *run)
{
  struct trm_comm *comm = ending->comm;
  ending->run = run->asked ? run : NULL;
  ending->said = false;
  for (int s = 0; s < comm->size - 1 && ending->run && is_last(ending); s++) {
    ending->word[s] = 0;
    comm->ops->receive_begin(comm, &ending->word[s], 1, TRM_DOUBLE, s, TAG_ASKED, &ending->request[s]);
  }
}

double ending_asked(struct ending *ending)
{
  if (!ending->run)
    return 0;
  const bool own = ending->run->asked(ending->run->context);
  if (!is_last(ending)) {
    if (own && !ending->said)
      say(ending, 1);
    return own;
  }
  double asked = own;
  for (int s = 0; s < ending->comm->size - 1; s++)
    if (ending->comm->ops->test(&ending->request[s]))
      asked += ending->word[s];
  return asked;
}

void ending_end(struct ending *ending)
{
  if (ending->run && !is_last(ending) && !ending->said)
    say(ending, 0);
  for (int s = 0; s < ending->comm->size; s++)
    ending->comm->ops->wait(&ending->request[s]);
  ending->run = NULL;
}

void ending_free(struct ending *ending)
{
  trm_free(ending->word);
  trm_free(ending->request);
}
