/* The scripts of a sweep for Slurm. */
#include "cli/script.h"
#include "cli/sweep.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

static int sweep_write_script(const char *dir, const char *name, const char *text)
{
  char *path = trm_format("%s/%s", dir, name);
  const int status = script_write(path, text);
  trm_free(path);
  return status;
}

/* Slurm's arrays have at most 1,000 tasks by default: longer ones are cut. */
int sweep_write_slurm(const struct sweep *sweep, const struct sweep_jobs *jobs)
{
  const int finals = sweep->cells * sweep->axis[sweep->axes - 1].count;
  char *program = script_program(), *task = NULL, *submit = NULL;
  trm_append(&task, "#!/bin/bash\n#SBATCH --job-name=sweep\n#SBATCH --ntasks=1\n"
                    "# A run of the sweep, or with COLLECT=1 its results. submit.sh submits it.\n"
                    "program=");
  script_add_word(&task, program);
  trm_append(&task, "\ndir=");
  script_add_word(&task, sweep->dir);
  trm_append(&task, "\n[ -z \"$COLLECT\" ] || exec \"$program\" sweep \"$dir\" --collect\n"
                    "exec \"$program\" sweep \"$dir\" --task=$((FIRST + SLURM_ARRAY_TASK_ID)) --time-limit=%g",
             jobs->limit_s);
  if (jobs->launch) {
    trm_append(&task, " --launch=");
    script_add_word(&task, jobs->launch);
  }
  trm_append(&task, "\n");
  trm_append(&submit, "#!/bin/bash\n# Submits the runs as job arrays, from the folder where the sweep was written:\n"
                      "#   bash submit.sh [option of sbatch ...]\n"
                      "# Those that tune end before the others begin; the last job collects the results.\n"
                      "here=$(cd \"$(dirname \"$0\")\" && pwd)\n"
                      "after=\n"
                      "submit() { # submit FIRST COUNT OPTION...: the jobs' numbers are in $jobs\n"
                      "  local first=$1 left=$2 n\n"
                      "  shift 2\n"
                      "  jobs=\n"
                      "  while [ \"$left\" -gt 0 ]; do\n"
                      "    n=$((left < 1000 ? left : 1000))\n"
                      "    jobs+=:$(sbatch --parsable $after --array=0-$((n - 1)) \\\n"
                      "      --export=ALL,FIRST=$first,COLLECT= --output=\"$here/slurm-%%A-%%a.log\" \\\n"
                      "      \"$@\" \"$here/task.sbatch\") || exit 1\n"
                      "    first=$((first + n)) left=$((left - n))\n"
                      "  done\n"
                      "  after=${jobs:+--dependency=afterany$jobs}\n"
                      "}\n"
                      "submit 0 %d \"$@\"\nsubmit %d %d \"$@\"\n"
                      "sbatch --parsable $after --export=ALL,COLLECT=1 --output=\"$here/slurm-collect.log\" \"$@\" "
                      "\"$here/task.sbatch\"\n",
             sweep->tune.count, sweep->tune.count, finals);
  int status = sweep_write_script(sweep->dir, "task.sbatch", task);
  if (status == TRM_OK)
    status = sweep_write_script(sweep->dir, "submit.sh", submit);
  if (status == TRM_OK)
    trm_info("sweep: %s/submit.sh submits %d runs", sweep->dir, sweep->tune.count + finals);
  trm_free(program);
  trm_free(task);
  trm_free(submit);
  return status;
}
