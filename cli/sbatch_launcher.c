/* The launcher of a batch script: one that the MPI library of this program can be started by. */
#include <stdio.h>
#include <string.h>

#include "cli/sbatch.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/real.h"

const char *const sbatch_launchers[] = {"auto", "srun", "mpich", "openmpi", "intel", NULL};

/* By what the library calls itself: its own mpiexec, and the interfaces of srun that it speaks, the best one first. */
static const struct library {
  const char *name;
  enum sbatch_launcher mpiexec;
  const char *pmi[3];
} libraries[] = {
  {"Open MPI", SBATCH_OPENMPI, {"pmix", "pmi2", NULL}},
  {"CRAY MPICH", SBATCH_MPICH, {"cray_shasta", "pmi2", NULL}},
  {"Intel(R) MPI", SBATCH_INTEL, {"pmi2", NULL}},
  {"", SBATCH_MPICH, {"pmi2", "pmix", NULL}}, /* MPICH and what is derived from it */
};

static const struct library *launcher_library(const char *name)
{
  const struct library *library = libraries;
  while (!strstr(name, library->name))
    library++;
  return library;
}

const char *sbatch_find_pmi(const char *library, const char *list)
{
  for (const char *const *wanted = launcher_library(library)->pmi; *wanted; wanted++) {
    const size_t length = strlen(*wanted);
    for (const char *word = list; *(word += strspn(word, " \t\n,")); word += strcspn(word, " \t\n,"))
      if (strcspn(word, " \t\n,") == length && memcmp(word, *wanted, length) == 0)
        return *wanted;
  }
  return NULL;
}

/* Returns what srun lists, owned by the caller; empty without Slurm. */
static char *launcher_list_pmi(void)
{
  char line[256], *text = trm_strdup("");
  FILE *list = popen("timeout 20 srun --mpi=list 2>&1", "r");
  while (list && fgets(line, sizeof line, list))
    if (!strstr(line, "error:") && !strstr(line, "fatal:"))
      trm_append(&text, "%s", line);
  if (list)
    pclose(list);
  return text;
}

int sbatch_choose_launcher(struct sbatch *batch)
{
  const char *name = trm_comm_library();
  const struct library *library = launcher_library(name);
  const enum sbatch_launcher named = batch->launcher;
  if (named == SBATCH_AUTO || named == SBATCH_SRUN) {
    char *list = launcher_list_pmi();
    batch->pmi = sbatch_find_pmi(name, list);
    const bool listed = strstr(list, "none") != NULL;
    trm_free(list);
    batch->launcher = batch->pmi || named == SBATCH_SRUN ? SBATCH_SRUN : library->mpiexec;
    if (named == SBATCH_SRUN && !batch->pmi && listed)
      return trm_error(TRM_USAGE, "sbatch: --launcher=srun: srun --mpi=list has no interface that %s speaks (%s): "
                       "--launcher=%s takes its mpiexec", name, library->pmi[0], sbatch_launchers[library->mpiexec]);
    if (!batch->pmi)
      trm_info("sbatch: srun lists no interfaces here: the script uses %s", named == SBATCH_SRUN ? "the usual one"
                                                                                  : "mpiexec");
    if (!batch->pmi && named == SBATCH_SRUN)
      batch->pmi = library->pmi[0];
  } else if (named != library->mpiexec) {
    trm_warn("sbatch: --launcher=%s: this program was built with %s, which that mpiexec does not start as one job",
             sbatch_launchers[named], name);
  }
  return TRM_OK;
}
