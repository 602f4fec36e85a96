/* Was the job started as one job? When the launcher and the MPI library do not speak the same protocol, each process
 * believes to be alone: N runs then compute the same thing and write over one another's files. What launchers leave in
 * the environment shows it. */
#include <stdlib.h>

#include "core/log.h"
#include "core/status.h"
#include "mpi/real.h"
#include "mpi/real_private.h"

/* The nearest launcher first: mpiexec inside a Slurm job starts its own processes, and Slurm's numbers then are those
 * of mpiexec itself. Slurm's are of the step (srun), which a batch script by itself is not. */
static const struct launcher {
  const char *size, *rank, *advice;
} launchers[] = {
  {"PMI_SIZE", "PMI_RANK", "use the mpiexec of the MPI library this program was built with"},
  {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "this is Open MPI's mpiexec; use the one of the library above"},
  {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "use the mpiexec of the MPI library this program was built with"},
  {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "try srun --mpi=pmi2, or see srun --mpi=list"},
};

int real_check_launch(int size)
{
  if (size > 1)
    return TRM_OK;
  for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
    const char *launched_size = getenv(launchers[i].size), *rank = getenv(launchers[i].rank);
    if (!launched_size || !rank)
      continue;
    if (atoi(launched_size) <= 1)
      return TRM_OK;
    return trm_error(TRM_USAGE,
                     "this process was started as rank %s of %s (%s), but MPI sees a job of one rank: the launcher and "
                     "the MPI library do not match. The library is %s; %s. If separate runs are meant: "
                     "run.singletons=yes",
                     rank, launched_size, launchers[i].size, trm_comm_library(), launchers[i].advice);
  }
  return TRM_OK;
}

int trm_launch_require_single(const char *what)
{
  for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
    const char *launched_size = getenv(launchers[i].size), *rank = getenv(launchers[i].rank);
    if (!launched_size || !rank)
      continue;
    if (atoi(launched_size) <= 1)
      return TRM_OK;
    trm_log_set_rank(atoi(rank), atoi(launched_size)); /* one of them says so */
    return trm_error(TRM_USAGE, "%s is the work of one process, and %s were started (%s): run it by itself", what,
                     launched_size, launchers[i].size);
  }
  return TRM_OK;
}
