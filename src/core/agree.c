/* Gives all ranks the same status and message, for collective functions. */
#include <string.h>

#include "core/comm.h"
#include "core/status.h"

int trm_agree(struct trm_comm *comm, int status)
{
  if (comm->size == 1)
    return status;
  /* the lowest rank that failed */
  int32_t root = status == TRM_OK ? comm->size : comm->rank;
  comm->ops->allreduce(comm, &root, 1, TRM_INT32, TRM_MIN);
  if (root == comm->size)
    return TRM_OK;
  struct {
    int32_t status, rank;
    char text[1016];
  } message = {.status = status, .rank = comm->rank};
  if (comm->rank == root) {
    strncpy(message.text, trm_error_text(), sizeof message.text - 1);
    message.text[sizeof message.text - 1] = '\0';
  }
  comm->ops->broadcast(comm, &message, sizeof message, TRM_BYTE, root);
  if (comm->rank == root)
    return status;
  return trm_error(message.status, "%s", message.text);
}
