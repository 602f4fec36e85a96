/* Messages between the ranks of a job before any collective, each with a time limit: a collective over a network that
 * drops packets would wait forever, and could not say where. */
#define _GNU_SOURCE
#include <config.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/real.h"
#include "mpi/real_private.h"

enum { PROBE_NAME = 64, PROBE_TAG = 32000, PROBE_PAIRS = 64, PROBE_SLACK_S = 2 };

struct probe {
  int rank, size;
  double seconds;
  char *names;      /* (size, PROBE_NAME) the hosts of the ranks */
  int *leader;      /* (hosts) the lowest rank of each host */
  int hosts, place; /* place: of this rank among leaders, or -1 */
};

/* Waits for all of them, at most for so long. Returns true if all are complete. */
static bool probe_wait(MPI_Request *request, int count, double seconds)
{
  const double until = MPI_Wtime() + seconds;
  int done = 0;
  while (MPI_Testall(count, request, &done, MPI_STATUSES_IGNORE) == MPI_SUCCESS && !done && MPI_Wtime() < until)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return done;
}

static bool probe_is_done(MPI_Request *request)
{
  int done = 0;
  return MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
}

/* -- rank 0 and every other rank */

/* Takes the names of all ranks and sends them to all; on failure, empty ones to those that are known. */
static void probe_as_first(struct probe *p, char **problem)
{
  MPI_Request *request = trm_alloc((size_t)p->size * sizeof *request, "requests");
  for (int r = 1; r < p->size; r++)
    MPI_Irecv(p->names + r * PROBE_NAME, PROBE_NAME, MPI_CHAR, r, PROBE_TAG, MPI_COMM_WORLD, &request[r - 1]);
  const bool all = probe_wait(request, p->size - 1, p->seconds);
  for (int r = 1, silent = 0; r < p->size && !all; r++)
    if (!probe_is_done(&request[r - 1]) && ++silent <= 8)
      trm_append(problem, "%s%d", *problem ? ", " : "no message within the time limit to rank 0 from rank ", r);
  char *sent = trm_alloc((size_t)p->size * PROBE_NAME, "names");
  if (all)
    memcpy(sent, p->names, (size_t)p->size * PROBE_NAME);
  for (int r = 1; r < p->size; r++)
    if (p->names[r * PROBE_NAME])
      MPI_Isend(sent, p->size * PROBE_NAME, MPI_CHAR, r, PROBE_TAG + 1, MPI_COMM_WORLD, &request[r - 1]);
    else
      request[r - 1] = MPI_REQUEST_NULL;
  if (probe_wait(request, p->size - 1, PROBE_SLACK_S)) /* else the messages are still being sent */
    trm_free(sent);
  if (all)
    trm_free(request);
}

static void probe_as_other(struct probe *p, char **problem)
{
  MPI_Request request[2];
  char mine[PROBE_NAME];
  memcpy(mine, p->names + p->rank * PROBE_NAME, PROBE_NAME);
  MPI_Isend(mine, PROBE_NAME, MPI_CHAR, 0, PROBE_TAG, MPI_COMM_WORLD, &request[0]);
  MPI_Irecv(p->names, p->size * PROBE_NAME, MPI_CHAR, 0, PROBE_TAG + 1, MPI_COMM_WORLD, &request[1]);
  if (!probe_wait(request, 2, p->seconds + PROBE_SLACK_S / 2.0))
    *problem = trm_format("rank %d on host %s gets no answer from rank 0", p->rank, mine);
  else if (!p->names[0])
    *problem = trm_strdup("");
}

/* -- hosts */

static void probe_find_leaders(struct probe *p)
{
  p->leader = trm_alloc((size_t)p->size * sizeof *p->leader, "hosts");
  p->place = -1;
  for (int r = 0; r < p->size; r++) {
    int h = 0;
    while (h < p->hosts && strcmp(p->names + p->leader[h] * PROBE_NAME, p->names + r * PROBE_NAME) != 0)
      h++;
    if (h < p->hosts)
      continue;
    p->place = r == p->rank ? h : p->place;
    p->leader[p->hosts++] = r;
  }
}

/* Sets missing to the number of hosts of which this one has no message, and those. All pairs, of more than PROBE_PAIRS
 * hosts those at distances of powers of two: the pairs of collectives. */
static void probe_pairs(struct probe *p, int *missing)
{
  MPI_Request request[2 * PROBE_PAIRS];
  int from[PROBE_PAIRS], count = 0;
  static const char word = 'x';
  char words[PROBE_PAIRS];
  for (int d = 1; d < p->hosts; d = p->hosts <= PROBE_PAIRS ? d + 1 : 2 * d) {
    from[count] = (p->place + p->hosts - d) % p->hosts;
    MPI_Irecv(&words[count], 1, MPI_CHAR, p->leader[from[count]], PROBE_TAG + 2, MPI_COMM_WORLD, &request[count]);
    count++;
  }
  for (int i = 0, d = 1; i < count; i++, d = p->hosts <= PROBE_PAIRS ? d + 1 : 2 * d)
    MPI_Isend(&word, 1, MPI_CHAR, p->leader[(p->place + d) % p->hosts], PROBE_TAG + 2, MPI_COMM_WORLD,
              &request[count + i]);
  if (probe_wait(request, 2 * count, p->seconds))
    return;
  for (int i = 0; i < count; i++)
    if (!probe_is_done(&request[i]))
      missing[++missing[0]] = from[i];
}

static void probe_say_missing(const struct probe *p, int place, const int *missing, char **problem)
{
  for (int i = 1; i <= missing[0]; i++)
    trm_append(problem, "%sfrom host %s to host %s", *problem ? ", " : "no message within the time limit ",
               p->names + p->leader[missing[i]] * PROBE_NAME, p->names + p->leader[place] * PROBE_NAME);
}

static void probe_hosts(struct probe *p, char **problem)
{
  int missing[PROBE_PAIRS + 1] = {0};
  MPI_Request request;
  if (p->place < 0 || p->hosts == 1)
    return;
  probe_pairs(p, missing);
  if (p->rank > 0) {
    MPI_Send(missing, PROBE_PAIRS + 1, MPI_INT, 0, PROBE_TAG + 3, MPI_COMM_WORLD);
    return;
  }
  probe_say_missing(p, 0, missing, problem);
  for (int h = 1; h < p->hosts; h++) {
    MPI_Irecv(missing, PROBE_PAIRS + 1, MPI_INT, p->leader[h], PROBE_TAG + 3, MPI_COMM_WORLD, &request);
    if (!probe_wait(&request, 1, p->seconds + PROBE_SLACK_S))
      trm_append(problem, "%sno answer from host %s", *problem ? ", " : "", p->names + p->leader[h] * PROBE_NAME);
    else
      probe_say_missing(p, h, missing, problem);
  }
}

int trm_comm_init(void)
{
  int provided, size, rank;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
    return trm_error(TRM_FAILED, "MPI did not start");
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int status = real_check_launch(size);
  if (status == TRM_OK)
    trm_log_set_rank(rank, size);
  else
    MPI_Finalize();
  return status;
}

char *trm_comm_probe(double seconds)
{
  struct probe p = {.seconds = seconds};
  char *problem = NULL;
  MPI_Comm_size(MPI_COMM_WORLD, &p.size);
  MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
  if (p.size == 1)
    return NULL;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  p.names = trm_alloc((size_t)p.size * PROBE_NAME, "names");
  gethostname(p.names + p.rank * PROBE_NAME, PROBE_NAME - 1);
  (p.rank == 0 ? probe_as_first : probe_as_other)(&p, &problem);
  if (!problem) {
    probe_find_leaders(&p);
    probe_hosts(&p, &problem);
    trm_free(p.leader);
    trm_free(p.names);
  }
  return problem;
}
