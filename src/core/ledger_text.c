/* Entries of the ledger in words and in files. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/ledger.h"
#include "core/memory.h"
#include "core/status.h"

static const char *const ledger_operation_name[TRM_LEDGER_OPERATIONS] = {
  [TRM_LEDGER_COMPUTE] = "compute",     [TRM_LEDGER_READ] = "read",
  [TRM_LEDGER_WRITE] = "write",         [TRM_LEDGER_SLEEP] = "sleep",
  [TRM_LEDGER_BARRIER] = "barrier",     [TRM_LEDGER_BROADCAST] = "broadcast",
  [TRM_LEDGER_ALLREDUCE] = "allreduce", [TRM_LEDGER_ALLGATHER] = "allgather",
  [TRM_LEDGER_REDUCE_SCATTER] = "reduce-scatter",
  [TRM_LEDGER_SPLIT] = "split",         [TRM_LEDGER_SHARE] = "share",
  [TRM_LEDGER_WINDOW] = "window",       [TRM_LEDGER_CALLS] = "calls",
  [TRM_LEDGER_SEND] = "send",           [TRM_LEDGER_RECEIVE] = "receive",
  [TRM_LEDGER_CALL] = "call",           [TRM_LEDGER_CHANGE] = "change",
  [TRM_LEDGER_ACCESS] = "access",
};
static const char *const ledger_role_name[TRM_COMM_ROLES] = {
  [TRM_COMM_GROUP] = "a group",         [TRM_COMM_JOB] = "the job",
  [TRM_COMM_NODE] = "the node",         [TRM_COMM_MODEL] = "one copy of the model",
  [TRM_COMM_DATA] = "the data axis",    [TRM_COMM_PIPELINE] = "the pipeline axis",
  [TRM_COMM_TENSOR] = "the tensor axis",   [TRM_COMM_ACROSS_NODES] = "one rank of each node",
};
static const char *const ledger_phase_name[TRM_LEDGER_PHASES] = {
  [TRM_LEDGER_SETUP] = "setup",           [TRM_LEDGER_STEP] = "step",
  [TRM_LEDGER_EVALUATION] = "evaluation", [TRM_LEDGER_CHECKPOINT] = "checkpoint",
  [TRM_LEDGER_END] = "end",
};
static const char *const ledger_pass_name[TRM_LEDGER_PASSES] = {
  [TRM_LEDGER_FORWARD] = "forward", [TRM_LEDGER_BACKWARD] = "backward"};

/* -- words */

const char *trm_ledger_operation_text(const struct trm_ledger_call *call, char text[160])
{
  const char *of = ledger_role_name[call->role];
  const unsigned long long bytes = call->bytes;
  switch (call->operation) {
  case TRM_LEDGER_SEND:
    snprintf(text, 160, "to send %llu bytes to rank %d of %s", bytes, call->peer, of);
    break;
  case TRM_LEDGER_RECEIVE:
    snprintf(text, 160, "for a message of rank %d of %s", call->peer, of);
    break;
  case TRM_LEDGER_CALL:
    snprintf(text, 160, "for the answer of rank %d to a call", call->peer);
    break;
  case TRM_LEDGER_CHANGE:
    snprintf(text, 160, "for a change of shared memory");
    break;
  case TRM_LEDGER_ACCESS:
    snprintf(text, 160, "for the window of rank %d", call->peer);
    break;
  default:
    snprintf(text, 160, "in %s #%llu of %s", ledger_operation_name[call->operation], (unsigned long long)call->number,
             of);
    if (bytes > 0)
      snprintf(text + strlen(text), 160 - strlen(text), " (%llu bytes)", bytes);
  }
  return text;
}

const char *trm_ledger_text(const struct trm_ledger_rank *rank, char text[256])
{
  const unsigned long long step = rank->step;
  char operation[160];
  if (trm_ledger_waits(rank->call.operation))
    snprintf(text, 256, "waits %s", trm_ledger_operation_text(&rank->call, operation));
  else if (rank->call.operation == TRM_LEDGER_READ)
    snprintf(text, 256, "reads data");
  else if (rank->call.operation == TRM_LEDGER_WRITE)
    snprintf(text, 256, "writes a file");
  else if (rank->call.operation == TRM_LEDGER_SLEEP)
    snprintf(text, 256, "sleeps");
  else if (rank->layer >= 0)
    snprintf(text, 256, "computes %s of layer %d", ledger_pass_name[rank->pass], rank->layer);
  else
    snprintf(text, 256, "computes");
  char *end = text + strlen(text);
  const size_t left = 256 - strlen(text);
  switch (rank->phase) {
  case TRM_LEDGER_STEP:
    if (step > 0)
      snprintf(end, left, " in step %llu", step);
    break;
  case TRM_LEDGER_EVALUATION:
    snprintf(end, left, " in the evaluation after step %llu", step);
    break;
  case TRM_LEDGER_CHECKPOINT:
    snprintf(end, left, " in the checkpoint of step %llu", step);
    break;
  case TRM_LEDGER_END:
    snprintf(end, left, " at the end of the run");
    break;
  default:
    snprintf(end, left, " in the set-up");
  }
  return text;
}

/* -- files. A line is written and read by one format: it needs no parser. */

static double ledger_now(void)
{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void ledger_write_line(FILE *stream, const struct trm_ledger_rank *rank, double written, uint64_t beat)
{
  const struct trm_ledger_call *call = &rank->call;
  fprintf(stream,
          "{\"rank\":%d,\"host\":\"%s\",\"pid\":%d,\"written\":%.3f,\"beat\":%" PRIu64 ",\"runs\":%d,"
          "\"state\":\"%c\",\"progress\":%" PRIu64 ",\"since_s\":%.3f,\"phase\":\"%s\",\"step\":%" PRIu64
          ",\"layer\":%d,\"pass\":\"%s\",\"operation\":\"%s\",\"of\":\"%s\",\"group\":%" PRIu64 ",\"number\":%" PRIu64
          ",\"bytes\":%" PRIu64 ",\"peer\":%d}\n",
          rank->rank, rank->host, rank->pid, written, beat, rank->runs, rank->state, rank->progress, rank->since_s,
          ledger_phase_name[rank->phase], rank->step, rank->layer, ledger_pass_name[rank->pass],
          ledger_operation_name[call->operation], ledger_role_name[call->role], call->group, call->number, call->bytes,
          call->peer);
}

/* The index of a name; 0: there is no such name. */
static int ledger_index(const char *const *names, int count, const char *name)
{
  for (int i = 0; i < count; i++)
    if (strcmp(names[i], name) == 0)
      return i;
  return 0;
}

static bool ledger_read_line(const char *line, struct trm_ledger_rank *rank, double *written, uint64_t *beat)
{
  char phase[32], pass[32], operation[32], of[32];
  int runs;
  struct trm_ledger_call *call = &rank->call;
  *rank = (struct trm_ledger_rank){0};
  const int fields =
    sscanf(line,
           "{\"rank\":%d,\"host\":\"%63[^\"]\",\"pid\":%d,\"written\":%lf,\"beat\":%" SCNu64 ",\"runs\":%d,"
           "\"state\":\"%c\",\"progress\":%" SCNu64 ",\"since_s\":%lf,\"phase\":\"%31[^\"]\",\"step\":%" SCNu64
           ",\"layer\":%d,\"pass\":\"%31[^\"]\",\"operation\":\"%31[^\"]\",\"of\":\"%31[^\"]\",\"group\":%" SCNu64
           ",\"number\":%" SCNu64 ",\"bytes\":%" SCNu64 ",\"peer\":%d}",
           &rank->rank, rank->host, &rank->pid, written, beat, &runs, &rank->state, &rank->progress, &rank->since_s,
           phase, &rank->step, &rank->layer, pass, operation, of, &call->group, &call->number, &call->bytes,
           &call->peer);
  if (fields != 19)
    return false;
  rank->runs = runs;
  rank->phase = ledger_index(ledger_phase_name, TRM_LEDGER_PHASES, phase);
  rank->pass = ledger_index(ledger_pass_name, TRM_LEDGER_PASSES, pass);
  call->operation = ledger_index(ledger_operation_name, TRM_LEDGER_OPERATIONS, operation);
  call->role = ledger_index(ledger_role_name, TRM_COMM_ROLES, of);
  return true;
}

/* Not atomic_file, which waits for the disk. Two ranks of a node may write at once: the name has the process's number.
 */
int trm_ledger_file_write(const char *folder, int node, const struct trm_ledger_rank *rank, int ranks, uint64_t beat)
{
  char *path = trm_format("%s/node-%d.jsonl", folder, node), *fresh = trm_format("%s.%d", path, (int)getpid());
  const double now = ledger_now();
  mkdir(folder, 0777);
  FILE *stream = fopen(fresh, "w");
  bool written = stream;
  for (int i = 0; i < ranks && stream; i++)
    ledger_write_line(stream, &rank[i], now, beat);
  if (stream) {
    const bool failed = ferror(stream);
    written = fclose(stream) == 0 && !failed;
  }
  if (!written || rename(fresh, path) != 0) {
    unlink(fresh);
    written = false;
  }
  trm_free(fresh);
  trm_free(path);
  return written ? TRM_OK : TRM_FAILED;
}

int trm_ledger_file_read(const char *path, struct trm_ledger_rank *rank, int ranks, uint64_t *beat, double *written_s)
{
  char line[1024];
  int count = 0;
  FILE *stream = fopen(path, "r");
  while (stream && count < ranks && fgets(line, sizeof line, stream))
    count += ledger_read_line(line, &rank[count], written_s, beat);
  if (stream)
    fclose(stream);
  return count;
}

static int ledger_compare_ranks(const void *a, const void *b)
{
  const struct trm_ledger_rank *x = a, *y = b;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Appends the ranks of a file to *rank (*count). */
static void ledger_append_file(const char *path, struct trm_ledger_rank **rank, int *count, size_t *capacity,
                               double *newest_s)
{
  int found, wanted = 128;
  double written = 0;
  uint64_t beat;
  do { /* until all fit */
    wanted *= 2;
    *rank = trm_grow(*rank, capacity, (size_t)*count, (size_t)(*count + wanted), sizeof **rank, "the ledger");
    found = trm_ledger_file_read(path, *rank + *count, wanted, &beat, &written);
  } while (found == wanted);
  const double age = ledger_now() - written;
  if (found > 0 && (*newest_s < 0 || age < *newest_s))
    *newest_s = age > 0 ? age : 0;
  *count += found;
}

/* Returns the next file of a node in a folder (NULL: none). Caller frees. */
static char *ledger_next_file(DIR *d, const char *folder)
{
  for (struct dirent *e; d && (e = readdir(d));) {
    int node, end = 0;
    if (sscanf(e->d_name, "node-%d.jsonl%n", &node, &end) == 1 && end > 0 && e->d_name[end] == '\0')
      return trm_format("%s/%s", folder, e->d_name);
  }
  return NULL;
}

void trm_ledger_folder_remove(const char *run_dir)
{
  char *folder = trm_format("%s/ledger", run_dir);
  DIR *d = opendir(folder);
  for (char *path; (path = ledger_next_file(d, folder)); trm_free(path))
    unlink(path);
  if (d)
    closedir(d);
  rmdir(folder);
  trm_free(folder);
}

int trm_ledger_folder_read(const char *run_dir, struct trm_ledger_rank **rank, double *newest_s)
{
  char *folder = trm_format("%s/ledger", run_dir);
  DIR *d = opendir(folder);
  size_t capacity = 0;
  int count = 0;
  *rank = NULL;
  *newest_s = -1;
  for (char *path; (path = ledger_next_file(d, folder)); trm_free(path))
    ledger_append_file(path, rank, &count, &capacity, newest_s);
  if (d)
    closedir(d);
  trm_free(folder);
  if (count > 0)
    qsort(*rank, (size_t)count, sizeof **rank, ledger_compare_ranks);
  return count;
}
