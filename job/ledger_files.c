#include "job/ledger_files.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/status.h"

/* Another node, as its file was read. */
struct node {
  int first;                    /* its first rank names the file */
  int size;                     /* ranks; 0: no file yet */
  struct trm_ledger_rank *rank; /* (capacity), owned */
  size_t capacity;
  uint64_t beat;
};

struct trm_ledger_files {
  char *folder; /* owned */
  int first, ranks;
  uint64_t beat;               /* of this node's file */
  struct trm_ledger_rank *out; /* (ranks) what the thread writes */
  struct trm_ledger_rank *in;  /* (ranks) what it reads */
  pthread_t thread;
  pthread_mutex_t lock; /* of all that follows */
  pthread_cond_t asked, done;
  bool writes, reads, stops; /* asked of the thread */
  bool busy;                 /* it writes or reads */
  struct trm_ledger_rank *next; /* (ranks) to be written, next_count of them */
  int next_count;
  struct node *other; /* (others) */
  int others;
};

static char *files_path(const struct trm_ledger_files *files, int first)
{
  return trm_format("%s/node-%d.jsonl", files->folder, first);
}

/* -- the thread; it leaves the lock while it writes or reads */

static void files_write_own(struct trm_ledger_files *files)
{
  struct trm_ledger_rank *entries = files->next;
  const int count = files->next_count;
  files->next = files->out;
  files->out = entries;
  files->writes = false;
  pthread_mutex_unlock(&files->lock);
  trm_ledger_file_write(files->folder, files->first, entries, count, ++files->beat);
  pthread_mutex_lock(&files->lock);
}

static void files_read_other(struct trm_ledger_files *files, struct node *node)
{
  double written;
  uint64_t beat = 0;
  pthread_mutex_unlock(&files->lock);
  char *path = files_path(files, node->first);
  const int size = trm_ledger_file_read(path, files->in, files->ranks, &beat, &written);
  trm_free(path);
  pthread_mutex_lock(&files->lock);
  if (size == 0)
    return;
  node->rank = trm_grow(node->rank, &node->capacity, 0, (size_t)size, sizeof *node->rank, "the ledger");
  memcpy(node->rank, files->in, (size_t)size * sizeof *node->rank);
  node->size = size;
  node->beat = beat;
}

static void *files_serve(void *context)
{
  struct trm_ledger_files *files = context;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals go to the main thread */
  pthread_mutex_lock(&files->lock);
  while (!files->stops) {
    files->busy = files->writes || files->reads;
    if (files->writes)
      files_write_own(files);
    if (files->reads)
      for (int i = 0; i < files->others; i++)
        files_read_other(files, &files->other[i]);
    files->reads &= !files->busy;
    files->busy = false;
    pthread_cond_broadcast(&files->done);
    while (!files->writes && !files->reads && !files->stops)
      pthread_cond_wait(&files->asked, &files->lock);
  }
  pthread_mutex_unlock(&files->lock);
  return NULL;
}

/* -- what others ask of it */

void trm_ledger_files_write(struct trm_ledger_files *files, const struct trm_ledger_rank *rank, int ranks)
{
  pthread_mutex_lock(&files->lock);
  memcpy(files->next, rank, (size_t)ranks * sizeof *rank);
  files->next_count = ranks;
  files->writes = true;
  pthread_cond_signal(&files->asked);
  pthread_mutex_unlock(&files->lock);
}

void trm_ledger_files_wait(struct trm_ledger_files *files)
{
  pthread_mutex_lock(&files->lock);
  while (files->writes || files->busy)
    pthread_cond_wait(&files->done, &files->lock);
  pthread_mutex_unlock(&files->lock);
}

void trm_ledger_files_read(struct trm_ledger_files *files)
{
  pthread_mutex_lock(&files->lock);
  files->reads = true;
  pthread_cond_signal(&files->asked);
  pthread_mutex_unlock(&files->lock);
}

int trm_ledger_files_get(struct trm_ledger_files *files, int i, struct trm_ledger_rank *rank, int ranks,
                         uint64_t *beat)
{
  pthread_mutex_lock(&files->lock);
  const struct node *node = &files->other[i];
  const int size = node->size < ranks ? node->size : ranks;
  if (size > 0)
    memcpy(rank, node->rank, (size_t)size * sizeof *rank);
  *beat = node->beat;
  pthread_mutex_unlock(&files->lock);
  return size;
}

/* -- start and stop */

static void files_free(struct trm_ledger_files *files)
{
  for (int i = 0; i < files->others; i++)
    trm_free(files->other[i].rank);
  trm_free(files->other);
  trm_free(files->next);
  trm_free(files->out);
  trm_free(files->in);
  trm_free(files->folder);
  pthread_cond_destroy(&files->asked);
  pthread_cond_destroy(&files->done);
  pthread_mutex_destroy(&files->lock);
  trm_free(files);
}

int trm_ledger_files_start(struct trm_ledger_files **files, const char *folder, int node, const int *other, int count,
                           int ranks)
{
  const size_t bytes = (size_t)ranks * sizeof(struct trm_ledger_rank);
  struct trm_ledger_files *it = trm_alloc(sizeof *it, "the ledger");
  *it = (struct trm_ledger_files){
    .folder = trm_strdup(folder), .first = node, .ranks = ranks, .others = count,
    .next = trm_alloc(bytes, "the ledger"), .out = trm_alloc(bytes, "the ledger"), .in = trm_alloc(bytes, "the ledger"),
    .other = trm_alloc((size_t)count * sizeof *it->other, "the ledger"),
  };
  for (int i = 0; i < count; i++)
    it->other[i].first = other[i];
  pthread_mutex_init(&it->lock, NULL);
  pthread_cond_init(&it->asked, NULL);
  pthread_cond_init(&it->done, NULL);
  if (trm_context_start_thread(&it->thread, files_serve, it) == 0) {
    *files = it;
    return TRM_OK;
  }
  files_free(it);
  *files = NULL;
  return trm_error(TRM_FAILED, "the thread of the ledger's files cannot begin");
}

void trm_ledger_files_stop(struct trm_ledger_files *files)
{
  if (!files)
    return;
  pthread_mutex_lock(&files->lock);
  files->stops = true;
  pthread_cond_signal(&files->asked);
  pthread_mutex_unlock(&files->lock);
  pthread_join(files->thread, NULL);
  char *path = files_path(files, files->first);
  unlink(path);
  trm_free(path);
  files_free(files);
}
