#include "job/watchdog.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/context.h"
#include "core/ledger.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "job/ledger_files.h"
#include "job/stall.h"
#include "train/run_dir.h"

/* Seconds that the end of the job may take: then the process ends, whatever MPI does. */
enum { END_S = 5 };

/* What was seen of a rank of this node, and when. */
struct watched {
  const struct trm_ledger_entry *entry;
  uint64_t progress, beats;
  double progress_at, beat_at;
};

/* Another node, as its file says. */
struct watched_node {
  int first;        /* its first rank */
  int size;         /* ranks; 0: no file yet */
  double longest_s; /* without progress, of its ranks, at beat_at */
  uint64_t beat;    /* of the file */
  double beat_at;
};

struct trm_watchdog {
  struct trm_comm *comm, *node; /* node: owned */
  struct trm_shared shared;     /* the entries of the node */
  const char *run_dir;
  char *folder; /* run.dir/ledger, owned */
  struct trm_ledger_files *files;
  double after_s, abort_s;   /* INFINITY: never */
  double sample_s, file_s;   /* between two looks; two files */
  double silent_s;           /* without a beat: the process does not run */
  struct watched *watched;   /* (node->size) */
  struct watched_node *other; /* (others) */
  int others, job_first;      /* job_first: the first rank of this node */
  struct trm_ledger_rank *all; /* (comm->size) this node's, then the others' that are known */
  int known;                   /* of all */
  /* times of the thread: seconds in which this process ran */
  double now, file_at, read_at, report_at, report_every_s;
  bool reported;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t stop_changed;
  bool stop; /* under lock */
};

/* -- what is seen */

static double watchdog_clock(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The third field of a file such as /proc/PID/stat, after the name in parentheses. */
static char watchdog_state_of(const char *path)
{
  char line[256] = "";
  FILE *file = fopen(path, "r");
  if (!file)
    return 'X';
  const bool read = fgets(line, sizeof line, file);
  fclose(file);
  const char *name_end = strrchr(line, ')');
  return read && name_end && name_end[1] == ' ' ? name_end[2] : '?';
}

/* The state of the process; where it sleeps and one of its threads waits for a device, as that which writes a
 * checkpoint may, of this thread. */
static char watchdog_process_state(int pid)
{
  char path[320];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  char state = watchdog_state_of(path);
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  DIR *folder = state == 'S' ? opendir(path) : NULL;
  for (const struct dirent *task; folder && state == 'S' && (task = readdir(folder));) {
    snprintf(path, sizeof path, "/proc/%d/task/%s/stat", pid, task->d_name);
    if (watchdog_state_of(path) == 'D')
      state = 'D';
  }
  if (folder)
    closedir(folder);
  return state;
}

/* Looks at the ranks of this node. */
static void watchdog_look(struct trm_watchdog *w)
{
  for (int i = 0; i < w->node->size; i++) {
    struct watched *one = &w->watched[i];
    struct trm_ledger_rank *rank = &w->all[i];
    const uint64_t beats = trm_ledger_beats(one->entry);
    trm_ledger_read(one->entry, rank);
    if (rank->progress != one->progress)
      one->progress_at = w->now;
    if (beats != one->beats)
      one->beat_at = w->now;
    one->progress = rank->progress;
    one->beats = beats;
    rank->since_s = w->now - one->progress_at;
    rank->runs = w->now - one->beat_at < w->silent_s;
    if (rank->since_s > w->silent_s)
      rank->state = watchdog_process_state(rank->pid);
  }
}

/* Of the ranks of this node that run, the first leads. */
static bool watchdog_leads(const struct trm_watchdog *w)
{
  for (int i = 0; i < w->node->rank; i++)
    if (w->all[i].runs)
      return false;
  return true;
}

static bool watchdog_node_runs(const struct trm_watchdog *w, const struct watched_node *node)
{
  return node->size > 0 && w->now - node->beat_at < fmax(3 * w->file_s, w->silent_s);
}

/* Has the files of the other nodes read from time to time. */
static void watchdog_read_others(struct trm_watchdog *w)
{
  if (w->others == 0 || w->now < w->read_at)
    return;
  w->read_at = w->now + fmax(w->file_s, 0.1 * w->others);
  trm_ledger_files_read(w->files);
}

/* Adds what is known of another node to w->all. */
static void watchdog_add_node(struct trm_watchdog *w, int i)
{
  struct watched_node *node = &w->other[i];
  struct trm_ledger_rank *rank = &w->all[w->known];
  uint64_t beat;
  const int size = trm_ledger_files_get(w->files, i, rank, w->comm->size - w->known, &beat);
  if (size > 0 && (node->size == 0 || beat != node->beat)) {
    node->beat = beat;
    node->beat_at = w->now;
  }
  node->size = size;
  node->longest_s = 0;
  for (int k = 0; k < size; k++) {
    node->longest_s = fmax(node->longest_s, rank[k].since_s);
    rank[k].since_s += w->now - node->beat_at;
    rank[k].runs &= watchdog_node_runs(w, node);
  }
  w->known += size;
}

static void watchdog_add_others(struct trm_watchdog *w)
{
  w->known = w->node->size;
  for (int i = 0; i < w->others; i++)
    watchdog_add_node(w, i);
}

/* The longest, or shortest, time without progress of the first `ranks` of w->all. */
static double watchdog_longest_s(const struct trm_watchdog *w, int ranks)
{
  double longest = 0;
  for (int i = 0; i < ranks; i++)
    longest = fmax(longest, w->all[i].since_s);
  return longest;
}

static double watchdog_shortest_s(const struct trm_watchdog *w)
{
  double shortest = INFINITY;
  for (int i = 0; i < w->known; i++)
    shortest = fmin(shortest, w->all[i].since_s);
  return shortest;
}

/* Of the nodes with a rank that makes no progress the first reports, and ends the job. */
static bool watchdog_is_reporter(const struct trm_watchdog *w)
{
  for (int i = 0; i < w->others; i++) {
    const struct watched_node *node = &w->other[i];
    if (node->first < w->job_first && watchdog_node_runs(w, node) &&
        node->longest_s + w->now - node->beat_at >= w->after_s)
      return false;
  }
  return true;
}

/* -- what is done */

/* There is a run directory once a rank has left the set-up. */
static bool watchdog_has_folder(const struct trm_watchdog *w)
{
  for (int i = 0; i < w->node->size; i++)
    if (w->all[i].phase != TRM_LEDGER_SETUP)
      return true;
  return false;
}

static void watchdog_write(struct trm_watchdog *w)
{
  if (!watchdog_has_folder(w))
    return;
  w->file_at = w->now + w->file_s;
  trm_ledger_files_write(w->files, w->all, w->node->size);
}

/* Names the ranks behind: at once, and again whenever the time since the first report has doubled. */
static void watchdog_report(struct trm_watchdog *w)
{
  char *text = watchdog_is_reporter(w) ? trm_stall_describe(w->all, w->known, w->comm->size, w->after_s) : NULL;
  if (text && w->now >= w->report_at) {
    w->report_every_s = w->reported ? 2 * w->report_every_s : w->after_s;
    w->report_at = w->now + w->report_every_s;
    w->reported = true;
    trm_warn("stalled: %s", text);
    watchdog_write(w);
  } else if (!text && w->reported && watchdog_longest_s(w, w->node->size) < w->after_s) {
    w->reported = false;
    w->report_at = w->now;
    trm_warn("no longer stalled: the ranks make progress");
  }
  trm_free(text);
}

/* In a thread of its own, which goes on to say that this process runs. */
static void *watchdog_end_process(void *context)
{
  struct trm_watchdog *w = context;
  for (int i = 0; i < 100; i++) {
    trm_ledger_beat(w->shared.local);
    nanosleep(&(struct timespec){.tv_nsec = END_S * 10000000L}, NULL);
  }
  _exit(TRM_STALLED);
  return NULL;
}

/* Ends the job, which the launcher does for all ranks, stopped ones too. A file system or MPI may not answer: then the
 * process ends by itself, and with it the job. */
static void watchdog_end_job(struct trm_watchdog *w, double quiet_s)
{
  pthread_t thread;
  uint64_t step = 0;
  trm_context_start_thread(&thread, watchdog_end_process, w);
  char *text = trm_stall_describe(w->all, w->known, w->comm->size, fmin(w->after_s, w->abort_s));
  for (int i = 0; i < w->known; i++)
    step = w->all[i].step > step ? w->all[i].step : step;
  trm_error(TRM_STALLED, "stalled: no rank has made progress for %.0f s (run.stall_abort), the job ends with status "
            "%d: %s", quiet_s, TRM_STALLED, text);
  trm_log_error();
  watchdog_write(w);
  trm_ledger_files_wait(w->files);
  if (watchdog_has_folder(w) && trm_run_dir_write_stalled(w->run_dir, text, w->comm->size, step) != TRM_OK)
    trm_log_error();
  trm_abort(TRM_STALLED);
}

static void watchdog_lead(struct trm_watchdog *w)
{
  const double limit_s = fmin(w->after_s, w->abort_s);
  if (watchdog_longest_s(w, w->node->size) >= limit_s / 2)
    watchdog_read_others(w);
  watchdog_add_others(w);
  if (w->now >= w->file_at)
    watchdog_write(w);
  if (watchdog_longest_s(w, w->node->size) >= limit_s || w->reported)
    watchdog_report(w);
  const double quiet_s = watchdog_shortest_s(w);
  if (quiet_s >= w->abort_s + (watchdog_is_reporter(w) ? 0 : END_S))
    watchdog_end_job(w, quiet_s);
}

/* Waits until the next look. Returns false if the watchdog stops. */
static bool watchdog_pause(struct trm_watchdog *w)
{
  const double when = watchdog_clock() + w->sample_s;
  const struct timespec until = {.tv_sec = (time_t)when, .tv_nsec = (long)((when - floor(when)) * 1e9)};
  pthread_mutex_lock(&w->lock);
  while (!w->stop && watchdog_clock() < when)
    pthread_cond_timedwait(&w->stop_changed, &w->lock, &until);
  const bool stop = w->stop;
  pthread_mutex_unlock(&w->lock);
  return !stop;
}

static void *watchdog_run(void *context)
{
  struct trm_watchdog *w = context;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals go to the main thread */
  for (double before = watchdog_clock(); watchdog_pause(w);) {
    const double now = watchdog_clock();
    w->now += fmin(now - before, fmax(1, 2 * w->sample_s)); /* longer if the process was stopped */
    before = now;
    trm_ledger_beat(w->shared.local);
    watchdog_look(w);
    if (watchdog_leads(w))
      watchdog_lead(w);
  }
  return NULL;
}

/* -- start and stop */

/* The first ranks of the nodes. Collective. */
static void watchdog_find_nodes(struct trm_watchdog *w)
{
  const int size = w->comm->size;
  int32_t first = w->comm->rank, *firsts = trm_alloc((size_t)size * sizeof *firsts, "the ledger");
  w->node->ops->broadcast(w->node, &first, 1, TRM_INT32, 0);
  w->comm->ops->allgather(w->comm, &first, firsts, 1, TRM_INT32);
  w->job_first = first;
  w->other = trm_alloc((size_t)size * sizeof *w->other, "the ledger");
  for (int i = 0; i < size; i++)
    if (firsts[i] == i && i != first)
      w->other[w->others++] = (struct watched_node){.first = i};
  trm_free(firsts);
}

static void watchdog_set_times(struct trm_watchdog *w, const struct trm_run_options *run)
{
  w->after_s = run->stall_after > 0 ? run->stall_after : INFINITY;
  w->abort_s = run->stall_abort > 0 ? run->stall_abort : INFINITY;
  const double limit_s = fmin(w->after_s, w->abort_s);
  w->sample_s = fmin(1, limit_s / 30);
  w->file_s = fmin(10, limit_s / 6);
  w->silent_s = limit_s / 2;
}

static int watchdog_start_files(struct trm_watchdog *w)
{
  int *first = trm_alloc((size_t)w->others * sizeof *first, "the ledger");
  for (int i = 0; i < w->others; i++)
    first[i] = w->other[i].first;
  const int status = trm_ledger_files_start(&w->files, w->folder, w->job_first, first, w->others, w->comm->size);
  trm_free(first);
  return status;
}

static int watchdog_start_thread(struct trm_watchdog *w)
{
  pthread_condattr_t monotonic;
  pthread_mutex_init(&w->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&w->stop_changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  w->watched = trm_alloc((size_t)w->node->size * sizeof *w->watched, "the ledger");
  for (int i = 0; i < w->node->size; i++)
    w->watched[i].entry = w->shared.base[i];
  w->all = trm_alloc((size_t)w->comm->size * sizeof *w->all, "the ledger");
  TRM_CHECK(watchdog_start_files(w));
  if (trm_context_start_thread(&w->thread, watchdog_run, w) == 0)
    return TRM_OK;
  return trm_error(TRM_FAILED, "the watchdog's thread cannot begin");
}

static void watchdog_free(struct trm_watchdog *w)
{
  trm_free(w->other);
  trm_free(w->watched);
  trm_free(w->all);
  trm_free(w->folder);
  w->node->ops->unshare(w->node, &w->shared);
  w->node->ops->release(w->node);
  trm_free(w);
}

void trm_watchdog_start(struct trm_watchdog **watchdog, const struct trm_options *options, struct trm_comm *comm)
{
  *watchdog = NULL;
  if (options->run.stall_after <= 0 && options->run.stall_abort <= 0)
    return;
  struct trm_watchdog *w = trm_alloc(sizeof *w, "the watchdog");
  w->comm = comm;
  w->node = comm->ops->split_node(comm, TRM_SHARE_NODE);
  w->run_dir = options->run.dir;
  w->folder = trm_format("%s/ledger", options->run.dir);
  watchdog_set_times(w, &options->run);
  watchdog_find_nodes(w);
  const int status =
    trm_agree(comm, w->node->ops->share(w->node, trm_ledger_entry_bytes(), TRM_MEMORY_BUFFERS, &w->shared));
  if (status == TRM_OK) {
    trm_ledger_open(w->shared.local, comm->rank);
    comm->ops->barrier(comm);
    trm_abort_on_error(watchdog_start_thread(w)); /* the other ranks' threads run */
    *watchdog = w;
    return;
  }
  if (comm->rank == 0)
    trm_warn("%s: no watchdog: a stalled job will not be ended", trm_error_text());
  watchdog_free(w);
}

void trm_watchdog_stop(struct trm_watchdog **watchdog)
{
  struct trm_watchdog *w = *watchdog;
  if (!w)
    return;
  pthread_mutex_lock(&w->lock);
  w->stop = true;
  pthread_cond_signal(&w->stop_changed);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  pthread_cond_destroy(&w->stop_changed);
  pthread_mutex_destroy(&w->lock);
  trm_ledger_files_stop(w->files);
  w->comm->ops->barrier(w->comm); /* nobody writes any more */
  trm_ledger_open(NULL, w->comm->rank);
  w->comm->ops->barrier(w->comm);
  if (w->comm->rank == 0)
    rmdir(w->folder);
  watchdog_free(w);
  *watchdog = NULL;
}
