#include "core/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/context.h"
#include "core/ledger.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

enum { LEASE_RENEWAL_S = 5, LEASE_TEXT = 512 };

struct trm_lease {
  char *path;            /* owned */
  char *own;             /* owned: a name that no other process uses */
  char text[LEASE_TEXT]; /* of the file */
  pthread_t thread;
  bool renewed;          /* by the thread, which runs */
  pthread_mutex_t lock;  /* of `ends` */
  pthread_cond_t wake;
  bool ends;
  atomic_bool lost;
};

/* -- who has a lease: the text of its file, one line of words */

struct lease_process {
  char host[128], job[64], boot[64], space[32]; /* boot, space: ID of the machine's start, of the process IDs there */
  long pid;
  unsigned long long start; /* when the process began, in ticks since the machine's start */
};
#define LEASE_FORMAT "host %s process %ld job %s start %llu boot %s space %s\n"
#define LEASE_SCAN "host %127s process %ld job %63s start %llu boot %63s space %31s"

/* Sets text to the first line of a file of the system; "-" if there is none. */
static void lease_read_system(const char *path, char *text, int bytes)
{
  FILE *file = fopen(path, "r");
  if (!file || !fgets(text, bytes, file))
    snprintf(text, (size_t)bytes, "-");
  if (file)
    fclose(file);
  text[strcspn(text, "\n")] = '\0';
}

/* Returns when a process of this machine began; 0: there is none. */
static unsigned long long lease_process_start(long pid)
{
  char path[64], text[1024];
  unsigned long long start = 0;
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  lease_read_system(path, text, sizeof text);
  const char *field = strrchr(text, ')'); /* the second field, a name, may have spaces */
  for (int i = 2; field && i < 22; i++)
    field = strchr(field + 1, ' ');
  if (field)
    sscanf(field, "%llu", &start);
  return start;
}

static void lease_this_process(struct lease_process *process)
{
  const char *job = getenv("SLURM_JOB_ID");
  *process = (struct lease_process){.pid = (long)getpid(), .start = lease_process_start((long)getpid())};
  if (gethostname(process->host, sizeof process->host - 1) != 0 || !process->host[0])
    strcpy(process->host, "-");
  snprintf(process->job, sizeof process->job, "%s", job && job[0] && !strpbrk(job, " \n") ? job : "-");
  lease_read_system("/proc/sys/kernel/random/boot_id", process->boot, sizeof process->boot);
  const ssize_t n = readlink("/proc/self/ns/pid", process->space, sizeof process->space - 1);
  if (n <= 0)
    strcpy(process->space, "-");
}

/* Returns true if this machine can tell that the process is gone. */
static bool lease_process_gone(const struct lease_process *process)
{
  struct lease_process here;
  lease_this_process(&here);
  return strcmp(process->boot, here.boot) == 0 && strcmp(process->space, here.space) == 0 && here.start > 0 &&
         lease_process_start(process->pid) != process->start;
}

/* -- the file */

/* Reads it. Sets *renewed to its time. False, with errno: there is none, or it cannot be read. */
static bool lease_read(const char *path, char text[LEASE_TEXT], time_t *renewed)
{
  struct stat info;
  text[0] = '\0';
  const int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0)
    return false;
  const ssize_t n = read(file, text, LEASE_TEXT - 1);
  const int reason = errno;
  text[n > 0 ? n : 0] = '\0';
  if (renewed)
    *renewed = fstat(file, &info) == 0 ? info.st_mtime : 0;
  close(file);
  errno = reason;
  return n >= 0;
}

/* Writes a file of its own name. *now: its time, by the clock of the file system. Returns 0, or errno. */
static int lease_write(const struct trm_lease *lease, time_t *now)
{
  struct stat info;
  const size_t bytes = strlen(lease->text);
  unlink(lease->own);
  const int file = open(lease->own, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0)
    return errno;
  errno = EIO;
  int reason = write(file, lease->text, bytes) == (ssize_t)bytes && fstat(file, &info) == 0 ? 0 : errno;
  if (close(file) != 0 && !reason)
    reason = errno;
  *now = info.st_mtime;
  return reason;
}

/* Writes the file and gives it the lease's name if no file has it. Returns 0, or errno; EEXIST: one has it, *now is
 * set. */
static int lease_create(const struct trm_lease *lease, time_t *now)
{
  int reason = lease_write(lease, now);
  if (!reason && link(lease->own, lease->path) != 0)
    reason = errno;
  unlink(lease->own);
  return reason;
}

/* Removes a lease that has ended, whose file has this text. Of several processes that try, one renames the file; if it
 * was another lease by then, its file is put back. */
static int lease_remove_ended(const struct trm_lease *lease, const char *text)
{
  char found[LEASE_TEXT];
  int reason = rename(lease->path, lease->own) == 0 || errno == ENOENT ? 0 : errno;
  if (lease_read(lease->own, found, NULL) && strcmp(found, text) != 0 && link(lease->own, lease->path) != 0)
    reason = errno;
  unlink(lease->own);
  return reason ? trm_error(TRM_FAILED, "%s: cannot be removed: %s", lease->path, strerror(reason)) : TRM_OK;
}

/* -- renewal */

static void *lease_renew(void *argument)
{
  struct trm_lease *lease = argument;
  char text[LEASE_TEXT];
  pthread_mutex_lock(&lease->lock);
  while (!lease->ends) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LEASE_RENEWAL_S;
    if (pthread_cond_timedwait(&lease->wake, &lease->lock, &until) != ETIMEDOUT)
      continue;
    /* a file system that fails for a while loses no lease: its text alone shows that */
    if (lease_read(lease->path, text, NULL) && text[0] && strcmp(text, lease->text) != 0)
      atomic_store(&lease->lost, true);
    else
      utimensat(AT_FDCWD, lease->path, NULL, AT_SYMLINK_NOFOLLOW);
  }
  pthread_mutex_unlock(&lease->lock);
  return NULL;
}

/* Signals are the main thread's. */
static int lease_start_renewal(struct trm_lease *lease)
{
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int reason = trm_context_start_thread(&lease->thread, lease_renew, lease);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (reason)
    return trm_error(TRM_FAILED, "%s: no thread to renew it: %s", lease->path, strerror(reason));
  lease->renewed = true;
  return TRM_OK;
}

/* -- taking and returning */

/* Tries once. *taken: true with the lease; false: *other has it, renewed `age` seconds ago, or (negative) had it. */
static int lease_try(const struct trm_lease *lease, bool *taken, struct lease_process *other, double *age)
{
  char text[LEASE_TEXT];
  time_t now = 0, renewed;
  const int reason = lease_create(lease, &now);
  *taken = reason == 0;
  if (*taken)
    return TRM_OK;
  *age = -1;
  if (reason == ENOENT) /* the process that took it removed our file with those of dead processes */
    return TRM_OK;
  if (reason != EEXIST)
    return trm_error(TRM_FAILED, "%s: cannot be written: %s", lease->path, strerror(reason));
  if (!lease_read(lease->path, text, &renewed))
    return errno == ENOENT ? TRM_OK
                           : trm_error(TRM_FAILED, "%s: cannot be read: %s", lease->path, strerror(errno));
  *age = renewed < now ? difftime(now, renewed) : 0;
  *other = (struct lease_process){.host = "-", .job = "-"};
  const bool known = sscanf(text, LEASE_SCAN, other->host, &other->pid, other->job, &other->start, other->boot,
                            other->space) == 6;
  if (*age <= TRM_LEASE_S && !(known && lease_process_gone(other)))
    return TRM_OK;
  *age = -1;
  return lease_remove_ended(lease, text);
}

/* Takes it, or waits. */
static int lease_wait(const struct trm_lease *lease, double wait_s)
{
  struct lease_process other;
  double age = 0;
  bool taken;
  for (int waited = 0;;) { /* tenths of a second */
    TRM_CHECK(lease_try(lease, &taken, &other, &age));
    if (taken)
      return TRM_OK;
    if (age < 0)
      continue;
    if (waited > 10 * wait_s)
      return trm_error(TRM_FAILED, "%s: another job trains here: host %s, process %ld, Slurm job %s; renewed %.0f s "
                       "ago (one that died on another host loses it after %d s)", lease->path, other.host, other.pid,
                       other.job, age, TRM_LEASE_S);
    if (waited++ == 10)
      trm_info("%s: waiting for the job that trains here: host %s, process %ld, Slurm job %s", lease->path,
               other.host, other.pid, other.job);
    trm_ledger_add_progress(); /* it waits by right */
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  }
}

int trm_lease_take(const char *directory, double wait_s, struct trm_lease **lease)
{
  struct lease_process process;
  *lease = NULL;
  struct trm_lease *it = trm_alloc(sizeof *it, "the lease of a directory");
  *it = (struct trm_lease){.path = trm_format("%s/lease", directory), .lock = PTHREAD_MUTEX_INITIALIZER,
                               .wake = PTHREAD_COND_INITIALIZER};
  lease_this_process(&process);
  snprintf(it->text, sizeof it->text, LEASE_FORMAT, process.host, process.pid, process.job, process.start,
           process.boot, process.space);
  it->own = trm_format("%s/lease.%s.%ld.new", directory, process.host, process.pid);
  int status = lease_wait(it, wait_s);
  if (status == TRM_OK)
    status = lease_start_renewal(it);
  if (status == TRM_OK)
    *lease = it;
  else
    trm_lease_return(it);
  return status;
}

int trm_lease_check(const struct trm_lease *lease)
{
  if (!lease || !atomic_load(&lease->lost))
    return TRM_OK;
  return trm_error(TRM_FAILED, "%s: another job has taken the run directory, since this one did not renew its lease "
                   "for %d s", lease->path, TRM_LEASE_S);
}

void trm_lease_return(struct trm_lease *lease)
{
  char text[LEASE_TEXT];
  if (!lease)
    return;
  if (lease->renewed) {
    pthread_mutex_lock(&lease->lock);
    lease->ends = true;
    pthread_cond_signal(&lease->wake);
    pthread_mutex_unlock(&lease->lock);
    pthread_join(lease->thread, NULL);
  }
  if (lease_read(lease->path, text, NULL) && strcmp(text, lease->text) == 0)
    unlink(lease->path);
  trm_free(lease->own);
  trm_free(lease->path);
  trm_free(lease);
}
