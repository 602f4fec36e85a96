/* Start and stop of MPI, failed MPI calls, and the check that a job was started as one job. If launcher and MPI library
 * use different protocols, each process becomes a separate job: N runs compute the same and overwrite one another's
 * files. The launcher's environment variables show it. */
#define _GNU_SOURCE
#include <config.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/real.h"
#include "mpi/real_private.h"
#ifdef HAVE_MPIX_QUERY_CUDA_SUPPORT
#include <mpi-ext.h>
#endif

/* -- errors */

enum { LAUNCHER_S = 2 }; /* in which a launcher ends the ranks of a job after one has ended */

/* Hydra, MPICH's launcher, ends the job without reading what ranks have just written: the message would be lost. */
static void launch_abort_job(int status)
{
  nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  MPI_Abort(MPI_COMM_WORLD, status == TRM_OK ? TRM_FAILED : status);
}

void real_abort(struct trm_comm *comm, int status)
{
  (void)comm;
  launch_abort_job(status);
  _Exit(TRM_FAILED); /* MPI_Abort does not return; the compiler cannot know */
}

/* When a rank has ended, calls of the others fail until the launcher has ended these, too. It names that rank; what the
 * others would say is about ranks that are well, and is said where it does not end them. */
static void launch_await_end(void)
{
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const double until = MPI_Wtime() + (size > 1 ? LAUNCHER_S : 0);
  while (MPI_Wtime() < until)
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void launch_report_error(int code)
{
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  launch_await_end();
  MPI_Error_string(code, text, &length);
  for (char *newline = text; (newline = strchr(newline, '\n'));)
    *newline = ' ';
  trm_error(TRM_FAILED, "MPI: %s", text);
  trm_log_error();
  launch_abort_job(TRM_FAILED);
}

static void launch_on_error(MPI_Comm *mpi, int *code, ...)
{
  (void)mpi;
  launch_report_error(*code);
}

static void launch_on_window_error(MPI_Win *window, int *code, ...)
{
  (void)window;
  launch_report_error(*code);
}

/* -- the launcher */

/* The nearest launcher first: mpiexec inside a Slurm job starts its own processes, and Slurm's variables then are those
 * of mpiexec itself. Slurm's are of the step (srun), which a batch script by itself is not. */
static const struct launcher {
  const char *size, *rank, *advice;
} launchers[] = {
  {"PMI_SIZE", "PMI_RANK", "use the mpiexec of the MPI library this program was built with"},
  {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "this is Open MPI's mpiexec; use the one of the library above"},
  {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "use the mpiexec of the MPI library this program was built with"},
  {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "try srun --mpi=pmi2, or see srun --mpi=list"},
};

/* The launcher that started several processes, with their number and this one's rank; NULL: this is one process. */
static const struct launcher *launch_find(const char **size, const char **rank)
{
  for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
    if ((*size = getenv(launchers[i].size)) && (*rank = getenv(launchers[i].rank)))
      return atoi(*size) > 1 ? &launchers[i] : NULL;
  return NULL;
}

int real_check_launch(int job_size)
{
  const char *size, *rank;
  const struct launcher *launcher = job_size > 1 ? NULL : launch_find(&size, &rank);
  if (!launcher)
    return TRM_OK;
  return trm_error(TRM_USAGE,
                   "this process was started as rank %s of %s (%s), but MPI sees a job of one rank: the launcher and "
                   "the MPI library do not match. The library is %s; %s. If separate runs are meant: "
                   "run.singletons=yes",
                   rank, size, launcher->size, trm_comm_library(), launcher->advice);
}

int trm_launch_require_single(const char *what)
{
  const char *size, *rank;
  const struct launcher *launcher = launch_find(&size, &rank);
  if (!launcher)
    return TRM_OK;
  trm_log_set_rank(atoi(rank), atoi(size)); /* rank 0 alone prints the message */
  return trm_error(TRM_USAGE, "%s is the work of one process, and %s were started (%s): run it by itself", what, size,
                   launcher->size);
}

int trm_launch_rank(void)
{
  const char *size, *rank;
  return launch_find(&size, &rank) ? atoi(rank) : 0;
}

/* -- start and stop */

/* The device whose memory the library takes in messages, by its own answer: libraries are built with and without. */
static const char *launch_device_memory(void)
{
  int cuda = 0;
#if defined HAVE_MPIX_GPU_QUERY_SUPPORT
  MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &cuda);
#elif defined HAVE_MPIX_QUERY_CUDA_SUPPORT
  cuda = MPIX_Query_cuda_support();
#endif
  return cuda ? "cuda" : NULL;
}

/* Loader, service and training threads call MPI at the same time. */
static int launch_check_threads(int provided)
{
  if (provided >= MPI_THREAD_MULTIPLE)
    return TRM_OK;
  return trm_error(TRM_FAILED,
                   "the MPI library (%s) lets only one thread at a time call it, but MPI_THREAD_MULTIPLE is needed: "
                   "use a library that was built with it (MPICH: --enable-threads=multiple, Open MPI before 3.0: "
                   "--enable-mpi-thread-multiple), and no setting that takes it away",
                   trm_comm_library());
}

/* Returns the lowest rank of the job on this host. */
static int launch_find_host(int rank)
{
  MPI_Comm host;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Bcast(&rank, 1, MPI_INT, 0, host);
  MPI_Comm_free(&host);
  return rank;
}

int trm_comm_start(int *argc, char ***argv, bool allow_singletons, struct trm_comm **world)
{
  int provided, size, rank, started; /* by trm_comm_init */
  MPI_Initialized(&started);
  if (started)
    MPI_Query_thread(&provided);
  else if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
    return trm_error(TRM_FAILED, "MPI did not start");
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int status = allow_singletons ? TRM_OK : real_check_launch(size);
  if (status == TRM_OK) {
    trm_log_set_rank(rank, size);
    status = launch_check_threads(provided);
  }
  if (status != TRM_OK) {
    MPI_Finalize();
    return status;
  }
  trm_set_abort(launch_abort_job);

  struct real_job *job = trm_alloc(sizeof *job, "a job");
  struct real_comm parent = {.base.ops = &real_ledger_ops, .job = job, .max_begin_bytes = REAL_MAX_BEGIN_BYTES};
  MPI_Errhandler errhandler;
  MPI_Comm_create_errhandler(launch_on_error, &errhandler);
  MPI_Win_create_errhandler(launch_on_window_error, &job->window_errhandler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, errhandler); /* inherited by derived communicators */
  MPI_Errhandler_free(&errhandler);                    /* communicators keep a reference */
  MPI_Comm duplicate;
  MPI_Comm_dup(MPI_COMM_WORLD, &duplicate);
  parent.base.device_memory = launch_device_memory();
  job->rank = rank;
  job->host = launch_find_host(rank);
  real_progress_init(&job->progress);
  *world = real_wrap(duplicate, &parent, false);
  (*world)->role = TRM_COMM_JOB;
  return TRM_OK;
}

int trm_comm_encrypt(struct trm_comm *world)
{
  return trm_agree(world, real_secure_begin(real_of(world)));
}

void trm_comm_stop(struct trm_comm *world)
{
  /* keeps ranks alive while others need their replies (see mpi/ucx_yield.c) */
  struct real_job *job = real_of(world)->job;
  real_progress_end(&job->progress);
  MPI_Barrier(real_of(world)->mpi);
  MPI_Errhandler_free(&job->window_errhandler);
  real_release(world);
  trm_free(job);
  trm_set_abort(NULL);
  MPI_Finalize();
}

const char *trm_comm_library(void)
{
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(text, &length);
  text[strcspn(text, "\n")] = '\0';
  for (char *tab = text; (tab = strchr(tab, '\t'));)
    *tab = ' ';
  return text;
}
