/* trireme doctor: checks of a node, or of all nodes of an allocation. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/doctor.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/real.h"

static const char usage[] =
  "usage: [mpiexec -n N | srun] trireme doctor [--dir=FOLDER] [--limit=S] [--json]\n\n"
  "Checks the hosts of a job before one trains there: start it as the job will be started. A line\n"
  "for each check, ok or a problem with its remedy and the hosts that it concerns:\n\n"
  "  launch         the launcher starts one job, not several jobs of one rank\n"
  "  network        ranks of all pairs of hosts reach one another\n"
  "  versions       the same program, MPI library, HDF5 and BLAS everywhere\n"
  "  binding        no core has several threads, no control group grants less than they need\n"
  "  huge-pages, shared-memory, limits    what the system grants\n"
  "  blas           old kernels of OpenBLAS, a slow BLAS, threads that compute a product\n"
  "  gpu            where there is a driver, the module can use the GPUs\n"
  "  clock          the clocks of the hosts agree within 1 s\n"
  "  folder         --dir: write, fsync and whether it has an effect, lock, rename, link, free\n"
  "                 space, shared by all hosts\n\n"
  "  --dir=FOLDER   the folder of the run, or of the data\n"
  "  --limit=S      the time of a check, after which it is a problem by itself (10)\n"
  "  --json         a JSON object for each line\n\n"
  "Exit status 0: no problem; 1: problems.\n";

struct doctor_flags {
  const char *dir;
  double limit_s;
  bool json;
};
#define AT(field) offsetof(struct doctor_flags, field)
static const struct trm_option flags[] = {
  {"dir", TRM_OPTION_TEXT, AT(dir), NULL, NO_RANGE},
  {"limit", TRM_OPTION_REAL, AT(limit_s), "10", RANGE(0.1, 3600)},
  {"json", TRM_OPTION_BOOL, AT(json), NULL, NO_RANGE},
  END_OF_FLAGS};

#define REMEDY \
  "a firewall between the hosts, or the wrong interface (MPICH: UCX_NET_DEVICES or FI_TCP_IFACE; Open MPI: " \
  "--mca btl_tcp_if_include; MPICH's mpiexec: -iface)"

struct doctor {
  double limit_s;
  struct doctor_report report;
  struct trm_comm *world;
  struct doctor_rank *all; /* (world->size) */
  char host[64];
  /* -- the watch: a thread that ends this process when a check has not ended in its time */
  pthread_t watch;
  pthread_mutex_t lock;
  const char *check; /* under way; NULL: all have ended */
  double until;      /* by doctor_now */
  int rank;
};

static double doctor_now(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* -- the watch */

/* Rank 0 says what has not ended; every rank says so whose MPI does not start, since only it can know, and rank 0 gives
 * the others 2 s for that. */
static void doctor_expire(struct doctor *d)
{
  const bool launch = strcmp(d->check, "launch") == 0;
  char *text = launch ? trm_format("MPI does not start within the time limit: rank %d waits for others: a process that "
                                   "did not start, " REMEDY, d->rank)
                      : trm_strdup("not ended within the time limit: some rank, host or file system does not answer; "
                                   "trireme doctor on fewer hosts finds which");
  if (launch || d->rank == 0) {
    doctor_add(&d->report, d->host, text);
    doctor_print(&d->report, launch ? "network" : d->check, NULL);
  }
  if (launch)
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
  _Exit(TRM_FAILED);
}

static void *doctor_watch(void *argument)
{
  struct doctor *d = argument;
  for (bool watches = true; watches;) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    pthread_mutex_lock(&d->lock);
    watches = d->check;
    if (watches && doctor_now() > d->until + (d->rank > 0 && d->world ? 2 : 0))
      doctor_expire(d);
    pthread_mutex_unlock(&d->lock);
  }
  return NULL;
}

/* Begins a check that takes so many seconds at most. NULL: the last one has ended. */
static void doctor_begin(struct doctor *d, const char *check, double seconds)
{
  pthread_mutex_lock(&d->lock);
  d->check = check;
  d->until = doctor_now() + seconds;
  pthread_mutex_unlock(&d->lock);
}

/* -- launch and network */

/* Ends this rank, which knows of messages that do not arrive: nothing can be collected. */
static void doctor_end_at_network(struct doctor *d, const char *problem)
{
  char *text = trm_format("%s: " REMEDY, problem);
  if (*problem) {
    doctor_add(&d->report, d->host, text);
    doctor_print(&d->report, "network", NULL);
  }
  nanosleep(&(struct timespec){.tv_sec = 2}, NULL); /* for what other ranks print */
  trm_log_set_rank(d->rank, 1);
  if (d->rank == 0) {
    trm_error(TRM_FAILED, "doctor: the ranks do not reach one another; the other checks need that");
    trm_log_error();
  }
  _Exit(TRM_FAILED);
}

static int doctor_start(struct doctor *d)
{
  if (trm_comm_init() != TRM_OK) {
    if (d->rank == 0) {
      doctor_add(&d->report, d->host, trm_error_text());
      doctor_print(&d->report, "launch", NULL);
    }
    d->report.problems = 1;
    trm_log_set_rank(d->rank, 1);
    return TRM_OK;
  }
  doctor_begin(d, "network", 3 * d->limit_s + 5);
  char *problem = trm_comm_probe(d->limit_s);
  if (problem)
    doctor_end_at_network(d, problem);
  return trm_comm_start(NULL, NULL, true, &d->world);
}

/* -- what all ranks find */

static void doctor_check_facts(struct doctor *d)
{
  const int n = d->world->size;
  int hosts = 0;
  doctor_begin(d, "hosts", 2 * d->limit_s + 3);
  struct doctor_rank *mine = trm_alloc(sizeof *mine, "what a rank finds");
  d->all = trm_alloc((size_t)n * sizeof *d->all, "what the ranks find");
  doctor_find(mine, d->world);
  d->world->ops->allgather(d->world, mine, d->all, sizeof *mine, TRM_BYTE);
  doctor_find_product(mine, doctor_threads(d->all, n, d->rank));
  d->world->ops->allgather(d->world, mine, d->all, sizeof *mine, TRM_BYTE);
  trm_free(mine);
  for (int i = 0; i < n; i++)
    hosts += d->all[i].node == i;
  if (d->rank > 0)
    return;
  char *well = trm_format("one job of %d rank%s", n, n == 1 ? "" : "s");
  doctor_print(&d->report, "launch", well);
  trm_free(well);
  well = hosts == 1 ? trm_strdup("1 host: none to reach") : trm_format("%d hosts: all reach one another", hosts);
  doctor_print(&d->report, "network", well);
  trm_free(well);
  for (const struct doctor_check *check = doctor_checks; check->name; check++) {
    for (int i = 0; i < n; i++) {
      char *problem = check->judge(d->all, n, i);
      if (problem)
        doctor_add(&d->report, d->all[i].host, problem);
      trm_free(problem);
    }
    well = check->describe(d->all, n);
    doctor_print(&d->report, check->name, well);
    trm_free(well);
  }
}

/* -- clocks */

enum { CLOCK_TRIES = 5, CLOCK_TAG = 1 };

static double doctor_time_of_day(void)
{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void doctor_send(struct trm_comm *comm, double value, int to)
{
  struct trm_request *request;
  comm->ops->send_begin(comm, &value, 1, TRM_DOUBLE, to, CLOCK_TAG, &request);
  comm->ops->wait(&request);
}

static double doctor_receive(struct trm_comm *comm, int from)
{
  struct trm_request *request;
  double value;
  comm->ops->receive_begin(comm, &value, 1, TRM_DOUBLE, from, CLOCK_TAG, &request);
  comm->ops->wait(&request);
  return value;
}

/* Cristian's method: the answer was sent in the middle of the shortest round trip. */
static void doctor_compare_clock(struct doctor *d, int rank)
{
  double shortest = INFINITY, ahead = 0;
  for (int i = 0; i < CLOCK_TRIES; i++) {
    const double sent = doctor_time_of_day();
    doctor_send(d->world, sent, rank);
    const double there = doctor_receive(d->world, rank), received = doctor_time_of_day();
    if (received - sent < shortest) {
      shortest = received - sent;
      ahead = there - (sent + received) / 2;
    }
  }
  char *problem = doctor_judge_clock(ahead, shortest);
  if (problem)
    doctor_add(&d->report, d->all[rank].host, problem);
  trm_free(problem);
}

static void doctor_check_clocks(struct doctor *d)
{
  doctor_begin(d, "clock", d->limit_s);
  for (int i = 1; i < d->world->size; i++) {
    if (d->all[i].node != i)
      continue;
    if (d->rank == 0)
      doctor_compare_clock(d, i);
    for (int k = 0; k < CLOCK_TRIES && d->rank == i; k++) {
      doctor_receive(d->world, 0);
      doctor_send(d->world, doctor_time_of_day(), 0);
    }
  }
  if (d->rank == 0)
    doctor_print(&d->report, "clock", "the clocks of the hosts agree");
}

/* -- the folder */

/* Rank 0 leaves a file there for the other hosts to see. */
static char *doctor_make_token(struct doctor *d, const char *folder)
{
  int64_t id = getpid();
  d->world->ops->broadcast(d->world, &id, 1, TRM_INT64, 0);
  char *token = trm_format("%s/.doctor-%lld", folder, (long long)id);
  if (d->rank == 0) {
    const int file = open(token, O_CREAT | O_WRONLY, 0666);
    if (file >= 0)
      close(file);
  }
  return token;
}

static void doctor_check_folder(struct doctor *d, const char *folder)
{
  const int n = d->world->size;
  char mine[DOCTOR_TEXT] = "", *all = trm_alloc((size_t)n * DOCTOR_TEXT, "problems"), *token = NULL;
  doctor_begin(d, "folder", 3 * d->limit_s + 3);
  if (d->rank == 0)
    doctor_try_folder(folder, NULL, d->limit_s, mine);
  int32_t good = !*mine;
  d->world->ops->broadcast(d->world, &good, 1, TRM_INT32, 0);
  if (good)
    token = doctor_make_token(d, folder);
  d->world->ops->barrier(d->world);
  if (d->rank > 0 && d->all[d->rank].node == d->rank)
    doctor_try_folder(folder, token, d->limit_s, mine);
  d->world->ops->allgather(d->world, mine, all, DOCTOR_TEXT, TRM_BYTE);
  if (token && d->rank == 0)
    unlink(token);
  for (int i = 0; i < n && d->rank == 0; i++)
    if (all[(size_t)i * DOCTOR_TEXT])
      doctor_add(&d->report, d->all[i].host, all + (size_t)i * DOCTOR_TEXT);
  char *well = trm_format("%s: files are written, brought to the disk, locked and renamed", folder);
  if (d->rank == 0)
    doctor_print(&d->report, "folder", well);
  trm_free(well);
  trm_free(token);
  trm_free(all);
}

/* -- the command */

static void doctor_check_all(struct doctor *d, const char *folder)
{
  int32_t problems;
  doctor_check_facts(d);
  doctor_check_clocks(d);
  if (folder)
    doctor_check_folder(d, folder);
  problems = d->report.problems;
  d->world->ops->broadcast(d->world, &problems, 1, TRM_INT32, 0);
  d->report.problems = problems;
  trm_free(d->all);
  doctor_begin(d, "end", d->limit_s + 3);
  trm_comm_stop(d->world);
}

static int cmd_doctor_run(const struct call *call)
{
  const struct doctor_flags *f = call->values;
  struct doctor d = {.limit_s = f->limit_s, .report = {.json = f->json}, .rank = trm_launch_rank()};
  gethostname(d.host, sizeof d.host - 1);
  pthread_mutex_init(&d.lock, NULL);
  doctor_begin(&d, "launch", d.limit_s + 1);
  if (pthread_create(&d.watch, NULL, doctor_watch, &d) != 0)
    return trm_error(TRM_FAILED, "doctor: no thread can be started");
  const int status = doctor_start(&d);
  if (status == TRM_OK && d.world) {
    d.rank = d.world->rank;
    doctor_check_all(&d, f->dir);
  }
  doctor_begin(&d, NULL, 0);
  pthread_join(d.watch, NULL);
  pthread_mutex_destroy(&d.lock);
  if (status == TRM_OK && d.report.problems > 0)
    return trm_error(TRM_FAILED, "doctor: %d problem%s", d.report.problems, d.report.problems == 1 ? "" : "s");
  return status;
}

const struct command cmd_doctor = {
  .name = "doctor", .help = "check the hosts of a job: launcher, network, versions, binding, folder",
  .usage = usage, .flags = flags, .bytes = sizeof(struct doctor_flags), .max_args = 0, .run = cmd_doctor_run,
};
