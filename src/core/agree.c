/* One failure, told to all: how a collective function gives the same status and message on every rank. */
#include <string.h>

#include "core/comm.h"
#include "core/status.h"

int trm_agree(struct trm_comm *comm, int status)
{
  if (comm->size == 1)
    return status;
  /* the lowest rank that failed speaks for all */
  int32_t speaker = status == TRM_OK ? comm->size : comm->rank;
  comm->ops->allreduce(comm, &speaker, 1, TRM_INT32, TRM_MIN);
  if (speaker == comm->size)
    return TRM_OK;
  struct {
    int32_t status, rank;
    char text[1016];
  } word = {.status = status, .rank = comm->rank};
  if (comm->rank == speaker) {
    strncpy(word.text, trm_error_text(), sizeof word.text - 1);
    word.text[sizeof word.text - 1] = '\0';
  }
  comm->ops->broadcast(comm, &word, sizeof word, TRM_BYTE, speaker);
  if (comm->rank == speaker)
    return status;
  return trm_error(word.status, "%s", word.text);
}
