#include "train/buddy.h"

#include <stdio.h>
#include <sys/stat.h>

#include "core/atomic_file.h"
#include "core/background.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "train/memory_files.h"

enum { CHUNK_BYTES = 4 << 20 };

int trm_buddy_partner(const int *first, int ranks)
{
  for (int rank = 1; rank < ranks; rank++)
    if (first[rank] != first[0])
      return rank;
  return -1;
}

int trm_buddy_choose(const uint64_t *found, int ranks)
{
  int newest = 0;
  for (int rank = 1; rank < ranks; rank++)
    newest = found[rank] > found[newest] ? rank : newest;
  return found[newest] > 0 ? newest : -1;
}

/* -- a file from one rank to others */

struct buddy_link {
  struct trm_comm *comm;
  int from, to; /* to -1: all ranks of comm */
  char *chunk;  /* (CHUNK_BYTES) */
};

struct buddy_wait {
  struct trm_comm *comm;
  struct trm_request *request;
};

static bool buddy_message_is_done(const void *context)
{
  struct buddy_wait *wait = *(struct buddy_wait *const *)context;
  return wait->comm->ops->test(&wait->request);
}

/* Moves bytes along the link. The ranks of a pair sleep between their looks, since training goes on. */
static void buddy_move(const struct buddy_link *link, void *data, size_t bytes)
{
  struct buddy_wait wait = {.comm = link->comm}, *context = &wait;
  if (link->to < 0) {
    link->comm->ops->broadcast(link->comm, data, bytes, TRM_BYTE, link->from);
    return;
  }
  if (link->comm->rank == link->from)
    link->comm->ops->send_begin(link->comm, data, bytes, TRM_BYTE, link->to, 0, &wait.request);
  else
    link->comm->ops->receive_begin(link->comm, data, bytes, TRM_BYTE, link->from, 0, &wait.request);
  trm_background_poll(buddy_message_is_done, &context);
}

/* Returns the number of bytes that follow; -1: the file is not there. */
static int64_t buddy_open_source(const char *path, FILE **source)
{
  struct stat about;
  *source = path ? fopen(path, "rbe") : NULL;
  return *source && fstat(fileno(*source), &about) == 0 ? (int64_t)about.st_size : -1;
}

/* Copies a file along the link, to the same path: as its bytes are, so that what is encrypted stays so. path: NULL:
 * this rank sends none, or takes what it receives to no file. *there: the source has it. Returns a failure of this
 * rank, or of the source. */
static int buddy_copy_file(const struct buddy_link *link, const char *path, bool *there)
{
  const bool sends = link->comm->rank == link->from;
  FILE *source = NULL;
  struct atomic_file file = {0};
  int64_t bytes = sends ? buddy_open_source(path, &source) : 0;
  buddy_move(link, &bytes, sizeof bytes);
  *there = bytes >= 0;
  int status = *there && !sends && path ? atomic_file_open(&file, path) : TRM_OK;
  const bool writes = status == TRM_OK && file.stream;
  int32_t whole = 1;
  bool written = writes;
  for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
    const size_t n = bytes - at < CHUNK_BYTES ? (size_t)(bytes - at) : CHUNK_BYTES;
    if (sends)
      whole &= fread(link->chunk, 1, n, source) == n;
    buddy_move(link, link->chunk, n);
    written = written && fwrite(link->chunk, 1, n, file.stream) == n;
  }
  buddy_move(link, &whole, sizeof whole);
  if (source)
    fclose(source);
  if (writes)
    status = atomic_file_close(&file, written && whole);
  if (whole == 0 && sends)
    status = trm_error(TRM_FAILED, "%s: cannot be read", path);
  return status;
}

/* Copies a checkpoint with its signature, which gets its name first (core/signature.h). Results as above. */
static int buddy_copy_checkpoint(const struct buddy_link *link, const char *path, bool *there)
{
  char *signature = path ? trm_format("%s.sig", path) : NULL;
  bool is_signed;
  const int status = buddy_copy_file(link, signature, &is_signed);
  trm_free(signature);
  const int content = buddy_copy_file(link, status == TRM_OK ? path : NULL, there);
  return status == TRM_OK ? content : status;
}

/* -- while the run goes on */

int trm_buddy_open(struct trm_buddy *buddy, struct trm_comm *comm, int first, const char *folder, uint64_t keep,
                   size_t bytes)
{
  int *of_ranks = trm_alloc((size_t)comm->size * sizeof *of_ranks, "nodes");
  comm->ops->allgather(comm, &first, of_ranks, sizeof first, TRM_BYTE);
  const int partner = trm_buddy_partner(of_ranks, comm->size);
  trm_free(of_ranks);
  *buddy = (struct trm_buddy){.files.run = folder, .writes = comm->rank == 0, .receives = comm->rank == partner};
  const bool copies = buddy->writes || buddy->receives;
  double space = 2 * (double)bytes;
  comm->ops->broadcast(comm, &space, 1, TRM_DOUBLE, 0);
  struct trm_comm *pair = comm->ops->split(comm, copies ? 0 : -1, comm->rank);
  if (copies)
    buddy->chunk = trm_alloc(CHUNK_BYTES, "messages of run.buddy");
  if (copies && partner >= 0)
    buddy->pair = pair;
  else if (pair)
    pair->ops->release(pair);
  int status = copies ? trm_memory_files_make(folder, keep) : TRM_OK;
  if (copies && status == TRM_OK)
    status = trm_memory_files_check_space(folder, space);
  status = trm_agree(comm, status);
  if (status == TRM_OK && partner < 0)
    trm_info("run.buddy: one node: copies of the state outlive the job's processes, not the node");
  else if (status == TRM_OK)
    trm_info("run.buddy: copies of the state in the memory of two nodes, those of ranks 0 and %d", partner);
  return status;
}

void trm_buddy_close(struct trm_buddy *buddy)
{
  if (buddy->pair)
    buddy->pair->ops->release(buddy->pair);
  trm_free(buddy->chunk);
  *buddy = (struct trm_buddy){0};
}

/* Warns of the error. */
static void buddy_warn(const struct trm_buddy *buddy)
{
  trm_warn("run.buddy: no copy of the state of step %llu in this node's memory: %s", (unsigned long long)buddy->step,
           trm_error_text());
}

int trm_buddy_exchange(void *context)
{
  struct trm_buddy *buddy = context;
  const struct buddy_link link = {buddy->pair, 0, 1, buddy->chunk}, back = {buddy->pair, 1, 0, buddy->chunk};
  char *path = trm_checkpoint_files_path(&buddy->files, buddy->step);
  bool there = buddy->written;
  int32_t both = 1; /* have the new one */
  int status = TRM_OK;
  if (buddy->pair) {
    status = buddy_copy_checkpoint(&link, buddy->writes && !buddy->written ? NULL : path, &there);
    if (status != TRM_OK)
      buddy_warn(buddy);
    both = status == TRM_OK && there;
    buddy_move(&back, &both, sizeof both);
  }
  if (buddy->writes ? buddy->written : status == TRM_OK && there)
    trm_checkpoint_files_saved(&buddy->files, buddy->step, both ? 1 : 2);
  trm_free(path);
  return TRM_OK;
}

/* -- a restart */

/* Copies a checkpoint from one node to all that do not have it. Collective over comm; leads: one rank of each node.
 * Returns false if that failed. */
static bool buddy_spread(struct trm_comm *comm, bool leads, int source, bool has, const char *folder, uint64_t step)
{
  int32_t missing = leads && !has, from = -1;
  comm->ops->allreduce(comm, &missing, 1, TRM_INT32, TRM_MAX);
  struct trm_comm *leaders = comm->ops->split(comm, leads ? 0 : -1, comm->rank);
  int status = TRM_OK;
  if (leaders && missing) {
    bool there;
    const struct trm_checkpoint_files files = {.run = folder};
    struct buddy_link link = {leaders, 0, -1, trm_alloc(CHUNK_BYTES, "messages of run.buddy")};
    from = comm->rank == source ? leaders->rank : -1;
    leaders->ops->allreduce(leaders, &from, 1, TRM_INT32, TRM_MAX);
    link.from = from;
    char *path = trm_checkpoint_files_path(&files, step);
    if (!has)
      status = trm_memory_files_make(folder, UINT64_MAX);
    const int copied = buddy_copy_checkpoint(&link, status == TRM_OK && (!has || comm->rank == source) ? path : NULL,
                                             &there);
    status = status == TRM_OK ? copied : status;
    trm_free(path);
    trm_free(link.chunk);
  }
  if (leaders)
    leaders->ops->release(leaders);
  status = trm_agree(comm, status);
  if (status != TRM_OK && comm->rank == 0)
    trm_warn("run.buddy: the copy of the state cannot be read by all nodes, and is not used: %s", trm_error_text());
  return status == TRM_OK;
}

bool trm_buddy_find(struct trm_comm *comm, int first, const struct trm_checkpoint_ops *ops, const char *folder,
                    uint64_t from, uint64_t *step)
{
  const bool leads = first == comm->rank;
  uint64_t mine = leads && trm_memory_files_newest(folder, ops, from, step) ? *step + 1 : 0;
  uint64_t *found = trm_alloc((size_t)comm->size * sizeof *found, "copies of the state");
  comm->ops->allgather(comm, &mine, found, sizeof mine, TRM_BYTE);
  const int source = trm_buddy_choose(found, comm->size);
  *step = source >= 0 ? found[source] - 1 : 0;
  const bool has = mine == *step + 1;
  trm_free(found);
  return source >= 0 && buddy_spread(comm, leads, source, has, folder, *step);
}
