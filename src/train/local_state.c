#include "train/local_state.h"

#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

/* Tags of the messages between rank 0 and one other rank. */
enum { TAG_REQUEST = 32001, TAG_HEADER, TAG_DATA };

/* Sizes and names of the items that a rank will send. */
struct trm_local_state_header {
  int32_t count;
  struct {
    char name[TRM_LOCAL_STATE_NAME];
    uint64_t bytes;
  } item[TRM_MAX_LOCAL_STATES];
};

static void local_state_send(struct trm_comm *comm, const void *data, size_t bytes, int to, int tag)
{
  struct trm_request *request;
  comm->ops->send_begin(comm, data, bytes, TRM_BYTE, to, tag, &request);
  comm->ops->wait(&request);
}

static void local_state_receive(struct trm_comm *comm, void *data, size_t bytes, int from, int tag)
{
  struct trm_request *request;
  comm->ops->receive_begin(comm, data, bytes, TRM_BYTE, from, tag, &request);
  comm->ops->wait(&request);
}

/* In the buffer of rank 0. */
static size_t local_state_padded(size_t bytes)
{
  return (bytes + TRM_ALIGNMENT - 1) / TRM_ALIGNMENT * TRM_ALIGNMENT;
}

size_t trm_local_state_gather_bytes(struct trm_comm *comm, const struct trm_local_state *local, int locals)
{
  int64_t bytes = 0;
  for (int i = 0; i < locals && comm->rank > 0; i++)
    bytes += (int64_t)local_state_padded(local[i].bytes);
  comm->ops->allreduce(comm, &bytes, 1, TRM_INT64, TRM_MAX);
  return comm->rank == 0 ? (size_t)bytes : 0;
}

void trm_local_state_gather_begin(struct trm_local_state_gather *gather, struct trm_comm *comm,
                                  const struct trm_local_state *local, int locals)
{
  *gather = (struct trm_local_state_gather){.comm = comm, .local = local, .locals = locals};
  int32_t max_count = locals;
  comm->ops->allreduce(comm, &max_count, 1, TRM_INT32, TRM_MAX);
  if (max_count == 0)
    return;
  gather->ranks = comm->size;
  gather->header = trm_alloc(sizeof *gather->header, "the names of local states");
}

/* Rank 0: receives the local states of another rank. */
static void local_state_request(struct trm_local_state_gather *gather, int rank)
{
  struct trm_comm *comm = gather->comm;
  const int32_t request = 1;
  local_state_send(comm, &request, sizeof request, rank, TAG_REQUEST);
  local_state_receive(comm, gather->header, sizeof *gather->header, rank, TAG_HEADER);
  size_t bytes = 0;
  for (int i = 0; i < gather->header->count; i++)
    bytes += local_state_padded(gather->header->item[i].bytes);
  if (bytes > gather->buffer_bytes) {
    trm_free(gather->buffer);
    gather->buffer = trm_alloc(bytes, "a rank's local states");
    gather->buffer_bytes = bytes;
  }
  char *to = gather->buffer;
  for (int i = 0; i < gather->header->count; i++) {
    const size_t n = gather->header->item[i].bytes;
    gather->received[i] = (struct trm_local_state){.data = to, .bytes = n};
    strcpy(gather->received[i].name, gather->header->item[i].name);
    if (n > 0)
      local_state_receive(comm, to, n, rank, TAG_DATA);
    to += local_state_padded(n);
  }
}

int trm_local_state_gather_next(void *context, int rank, const struct trm_local_state **states, int *count)
{
  struct trm_local_state_gather *gather = context;
  gather->next_rank = rank + 1;
  if (rank == 0) {
    *states = gather->local;
    *count = gather->locals;
    return TRM_OK;
  }
  local_state_request(gather, rank);
  *states = gather->received;
  *count = gather->header->count;
  return TRM_OK;
}

/* Ranks other than 0: waits for rank 0's request and replies to it. */
static void local_state_reply(struct trm_local_state_gather *gather)
{
  struct trm_comm *comm = gather->comm;
  int32_t request = 0;
  local_state_receive(comm, &request, sizeof request, 0, TAG_REQUEST);
  if (!request)
    return;
  gather->header->count = gather->locals;
  for (int i = 0; i < gather->locals; i++) {
    strcpy(gather->header->item[i].name, gather->local[i].name);
    gather->header->item[i].bytes = gather->local[i].bytes;
  }
  local_state_send(comm, gather->header, sizeof *gather->header, 0, TAG_HEADER);
  for (int i = 0; i < gather->locals; i++)
    if (gather->local[i].bytes > 0)
      local_state_send(comm, gather->local[i].data, gather->local[i].bytes, 0, TAG_DATA);
}

void trm_local_state_gather_end(struct trm_local_state_gather *gather)
{
  struct trm_comm *comm = gather->comm;
  const int32_t request = 0;
  if (gather->ranks > 0 && comm->rank > 0)
    local_state_reply(gather);
  else /* writing failed before these ranks' turn: no reply is needed */
    for (int rank = gather->next_rank > 0 ? gather->next_rank : 1; rank < gather->ranks; rank++)
      local_state_send(comm, &request, sizeof request, rank, TAG_REQUEST);
  trm_free(gather->header);
  trm_free(gather->buffer);
}

int trm_local_state_restore(struct trm_comm *comm, const struct trm_checkpoint_ops *ops, const char *path, int ranks,
                            const struct trm_local_state *states, int count, bool *restored)
{
  *restored = false;
  int32_t max_count = count;
  comm->ops->allreduce(comm, &max_count, 1, TRM_INT32, TRM_MAX);
  if (max_count == 0)
    return TRM_OK;
  if (ranks != comm->size) {
    if (ranks == 0)
      trm_info("%s: has no local state of ranks: every rank starts from the common weights", path);
    else
      trm_info("%s: has the local state of %d rank%s, the job has %d: every rank starts from the common weights", path,
               ranks, ranks == 1 ? "" : "s", comm->size);
    return TRM_OK;
  }
  bool match = false;
  TRM_CHECK(trm_agree(comm, ops->local_states_match(path, comm->rank, states, count, &match)));
  int32_t all_match = match;
  comm->ops->allreduce(comm, &all_match, 1, TRM_INT32, TRM_MIN);
  if (!all_match) {
    trm_info("%s: has local state of another method or sharding: every rank starts from the common weights", path);
    return TRM_OK;
  }
  TRM_CHECK(trm_agree(comm, ops->local_states_read(path, comm->rank, states, count)));
  *restored = true;
  return TRM_OK;
}
