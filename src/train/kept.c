#include "train/kept.h"

#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

/* Of messages that only rank 0 and one other rank exchange. */
enum { TAG_WANTED = 32001, TAG_NOTE, TAG_DATA };

/* What a rank will send. */
#define NAME_BYTES 56
struct trm_kept_note {
  int32_t count;
  struct {
    char name[NAME_BYTES];
    uint64_t bytes;
  } item[TRM_MAX_KEPT];
};

static void send(struct trm_comm *comm, const void *data, size_t bytes, int to, int tag)
{
  struct trm_request *request;
  comm->ops->send_begin(comm, data, bytes, TRM_BYTE, to, tag, &request);
  comm->ops->wait(&request);
}

static void receive(struct trm_comm *comm, void *data, size_t bytes, int from, int tag)
{
  struct trm_request *request;
  comm->ops->receive_begin(comm, data, bytes, TRM_BYTE, from, tag, &request);
  comm->ops->wait(&request);
}

int trm_gather_begin(struct trm_gather *gather, struct trm_comm *comm, const struct trm_kept *own, int owns)
{
  *gather = (struct trm_gather){.comm = comm, .own = own, .owns = owns};
  int32_t most = owns;
  comm->ops->allreduce(comm, &most, 1, TRM_INT32, TRM_MAX);
  if (most == 0)
    return TRM_OK;
  int status = TRM_OK;
  for (int i = 0; i < owns && status == TRM_OK; i++)
    if (strlen(own[i].name) >= NAME_BYTES)
      status = trm_error(TRM_USAGE, "rank %d keeps \"%s\": a name of at most %d bytes is needed", comm->rank,
                         own[i].name, NAME_BYTES - 1);
  TRM_CHECK(trm_agree(comm, status));
  gather->ranks = comm->size;
  gather->note = trm_alloc(sizeof *gather->note, "what a rank keeps");
  return TRM_OK;
}

/* Rank 0: brings over what another rank keeps. */
static void ask(struct trm_gather *gather, int rank)
{
  struct trm_comm *comm = gather->comm;
  const int32_t wanted = 1;
  send(comm, &wanted, sizeof wanted, rank, TAG_WANTED);
  receive(comm, gather->note, sizeof *gather->note, rank, TAG_NOTE);
  size_t bytes = 0;
  for (int i = 0; i < gather->note->count; i++)
    bytes += (gather->note->item[i].bytes + TRM_ALIGNMENT - 1) / TRM_ALIGNMENT * TRM_ALIGNMENT;
  if (bytes > gather->room_bytes) {
    trm_free(gather->room);
    gather->room = trm_alloc(bytes, "what a rank keeps, for a checkpoint");
    gather->room_bytes = bytes;
  }
  char *to = gather->room;
  for (int i = 0; i < gather->note->count; i++) {
    const size_t n = gather->note->item[i].bytes;
    gather->kept[i] = (struct trm_kept){.name = gather->note->item[i].name, .data = to, .bytes = n};
    if (n > 0)
      receive(comm, to, n, rank, TAG_DATA);
    to += (n + TRM_ALIGNMENT - 1) / TRM_ALIGNMENT * TRM_ALIGNMENT;
  }
}

int trm_gather_next(void *context, int rank, const struct trm_kept **kept, int *count)
{
  struct trm_gather *gather = context;
  gather->asked = rank + 1;
  if (rank == 0) {
    *kept = gather->own;
    *count = gather->owns;
    return TRM_OK;
  }
  ask(gather, rank);
  *kept = gather->kept;
  *count = gather->note->count;
  return TRM_OK;
}

/* The other ranks: waits to be asked. */
static void answer(struct trm_gather *gather)
{
  struct trm_comm *comm = gather->comm;
  int32_t wanted = 0;
  receive(comm, &wanted, sizeof wanted, 0, TAG_WANTED);
  if (!wanted)
    return;
  gather->note->count = gather->owns;
  for (int i = 0; i < gather->owns; i++) {
    strcpy(gather->note->item[i].name, gather->own[i].name);
    gather->note->item[i].bytes = gather->own[i].bytes;
  }
  send(comm, gather->note, sizeof *gather->note, 0, TAG_NOTE);
  for (int i = 0; i < gather->owns; i++)
    if (gather->own[i].bytes > 0)
      send(comm, gather->own[i].data, gather->own[i].bytes, 0, TAG_DATA);
}

void trm_gather_end(struct trm_gather *gather)
{
  struct trm_comm *comm = gather->comm;
  const int32_t wanted = 0;
  if (gather->ranks > 0 && comm->rank > 0)
    answer(gather);
  else /* writing ended before it came to these */
    for (int rank = gather->asked > 0 ? gather->asked : 1; rank < gather->ranks; rank++)
      send(comm, &wanted, sizeof wanted, rank, TAG_WANTED);
  trm_free(gather->note);
  trm_free(gather->room);
}

int trm_kept_give_back(struct trm_comm *comm, const struct trm_checkpoint_ops *ops, const char *path, int ranks,
                       const struct trm_kept *kept, int kepts, bool *given)
{
  *given = false;
  int32_t most = kepts;
  comm->ops->allreduce(comm, &most, 1, TRM_INT32, TRM_MAX);
  if (most == 0)
    return TRM_OK;
  if (ranks != comm->size) {
    if (ranks == 0)
      trm_info("%s has no ranks' own state: the ranks begin from the common weights", path);
    else
      trm_info("%s has the own state of each of %d rank%s, the job has %d: the ranks begin from the common weights",
               path, ranks, ranks == 1 ? "" : "s", comm->size);
    return TRM_OK;
  }
  bool fits = false;
  TRM_CHECK(trm_agree(comm, ops->kept_fits(path, comm->rank, kept, kepts, &fits)));
  int32_t all = fits;
  comm->ops->allreduce(comm, &all, 1, TRM_INT32, TRM_MIN);
  if (!all) {
    trm_info("%s has the ranks' own state for another method, or another division of it: the ranks begin from the "
             "common weights", path);
    return TRM_OK;
  }
  TRM_CHECK(trm_agree(comm, ops->kept_read(path, comm->rank, kept, kepts)));
  *given = true;
  return TRM_OK;
}
