/* Batch scripts for Slurm: what one is made of. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* srun, or the mpiexec of an MPI library. */
enum sbatch_launcher { SBATCH_AUTO, SBATCH_SRUN, SBATCH_MPICH, SBATCH_OPENMPI, SBATCH_INTEL };
extern const char *const sbatch_launchers[]; /* their names in --launcher, ends with NULL */

/* no; data: data sets are copied to each node's own disk; all: the run directory, too, and back at the end. */
enum sbatch_stage { SBATCH_STAGE_NO, SBATCH_STAGE_YES, SBATCH_STAGE_ALL };

/* A component of a heterogeneous job, or the whole job. */
struct sbatch_component {
  int nodes, ranks_per_node, threads;
  char *gpus, *partition, *account; /* of --gpus-per-node=..., owned; NULL: none */
};

enum { SBATCH_COMPONENTS = 4, SBATCH_FILES = 3 };

struct sbatch {
  struct sbatch_component component[SBATCH_COMPONENTS];
  int components;
  enum sbatch_launcher launcher;
  enum sbatch_stage stage;
  const char *pmi;          /* srun --mpi=; NULL: another launcher */
  const char *time, *array; /* array NULL: none */
  int64_t notice_s;         /* before the time limit */
  bool requeue;
  char *const *words;       /* configuration and options, ends with NULL */
  const char *run_dir;
  const char *file_option[SBATCH_FILES], *file[SBATCH_FILES]; /* data sets and the options that name them; NULL: none */
};

/* Sets launcher, if it is SBATCH_AUTO, and pmi by the MPI library of this program and by what srun on this machine
 * lists. Fails if that leaves none. */
int sbatch_choose_launcher(struct sbatch *batch);
/* Returns the type of process manager interface for srun --mpi= that fits the MPI library, among those in the output of
 * `srun --mpi=list`; NULL: none does. */
const char *sbatch_find_pmi(const char *library, const char *list);
/* Returns the script; command: the words that wrote it. Owned by the caller. */
char *sbatch_script(const struct sbatch *batch, const char *command);
