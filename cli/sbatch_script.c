/* The text of a batch script. It is bash, and runs without Slurm, too, where the launcher is an mpiexec. */
#include <string.h>

#include "cli/sbatch.h"
#include "cli/script.h"
#include "core/memory.h"


/* -- what Slurm reads */

static void script_add_component(char **text, const struct sbatch_component *c)
{
  trm_append(text, "#SBATCH --nodes=%d\n#SBATCH --ntasks-per-node=%d\n#SBATCH --cpus-per-task=%d\n", c->nodes,
             c->ranks_per_node, c->threads);
  if (c->gpus)
    trm_append(text, "#SBATCH --gpus-per-node=%s\n", c->gpus);
  if (c->partition)
    trm_append(text, "#SBATCH --partition=%s\n", c->partition);
  if (c->account)
    trm_append(text, "#SBATCH --account=%s\n", c->account);
}

static void script_add_header(char **text, const struct sbatch *batch, const char *command)
{
  const char *config = strrchr(batch->words[0], '/') ? strrchr(batch->words[0], '/') + 1 : batch->words[0];
  trm_append(text, "#!/bin/bash\n# Written by\n#   %s\n", command);
  if (batch->notice_s > 0)
    trm_append(text, "# %lld s before the time limit the run stops with a checkpoint%s.\n", (long long)batch->notice_s,
               batch->requeue ? ", and Slurm queues the job again" : "; submitted again, it goes on from there");
  trm_append(text, "#SBATCH --job-name=");
  for (const char *c = config; *c && *c != '.'; c++)
    trm_append(text, "%c", strchr(" \t%\\'\"#", *c) ? '-' : *c);
  trm_append(text, "\n#SBATCH --output=%s\n#SBATCH --open-mode=append\n", batch->array ? "%x-%A-%a.log" : "%x-%j.log");
  trm_append(text, "#SBATCH --time=%s\n", batch->time);
  if (batch->notice_s > 0)
    trm_append(text, "#SBATCH --signal=B:USR1@%lld\n", (long long)batch->notice_s);
  trm_append(text, "#SBATCH --%s\n", batch->requeue ? "requeue" : "no-requeue");
  if (batch->array)
    trm_append(text, "#SBATCH --array=%s\n", batch->array);
  for (int i = 0; i < batch->components; i++) {
    if (i > 0)
      trm_append(text, "#SBATCH hetjob\n");
    script_add_component(text, &batch->component[i]);
  }
  trm_append(text, "set -u\n\n");
}

/* -- variables */

static void script_add_variables(char **text, const struct sbatch *batch)
{
  char *program = script_program();
  trm_append(text, "program=");
  script_add_word(text, program);
  trm_append(text, "\nconfig=");
  script_add_word(text, batch->words[0]);
  trm_append(text, "\nrun=");
  script_add_word(text, batch->run_dir);
  trm_append(text, "%s\n", batch->array ? "-$SLURM_ARRAY_TASK_ID" : "");
  if (batch->components == 1)
    trm_append(text, "export OMP_NUM_THREADS=%d\n", batch->component[0].threads);
  if (batch->launcher == SBATCH_INTEL)
    trm_append(text, "export I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=off\n");
  trm_free(program);
}

/* Those of all ranks. */
static void script_add_options(char **text, const struct sbatch *batch)
{
  trm_append(text, "options=(");
  for (int i = 1; batch->words[i]; i++)
    if (strncmp(batch->words[i], "--run.dir=", 10) != 0) {
      script_add_word(text, batch->words[i]);
      trm_append(text, " ");
    }
  trm_append(text, "--run.dir=\"$run\" --run.resume=auto%s",
             batch->array ? " --run.seed=\"$SLURM_ARRAY_TASK_ID\"" : "");
  for (int k = 0; k < SBATCH_FILES && batch->stage; k++)
    if (batch->file[k])
      trm_append(text, " --%s=\"$local/%d.h5\"", batch->file_option[k], k);
  trm_append(text, ")\n");
}

/* -- the launcher, in its words */

/* Appends the words that place the ranks of component i, so many on each node with so many threads. */
static void script_add_launcher(char **text, const struct sbatch *batch, int i, int ranks_per_node, int threads)
{
  const struct sbatch_component *c = &batch->component[i];
  const int ranks = c->nodes * ranks_per_node;
  switch (batch->launcher) {
  case SBATCH_OPENMPI:
    trm_append(text, "mpiexec -n %d --map-by ppr:%d:node:PE=%d --bind-to core", ranks, ranks_per_node, threads);
    break;
  case SBATCH_INTEL:
    trm_append(text, "mpiexec -n %d -ppn %d -genv I_MPI_PIN_CELL=core -genv I_MPI_PIN_DOMAIN=%d:compact", ranks,
               ranks_per_node, threads);
    break;
  case SBATCH_MPICH:
    trm_append(text, "mpiexec -n %d -ppn %d -bind-to core:%d", ranks, ranks_per_node, threads);
    break;
  default:
    trm_append(text, "--nodes=%d --ntasks=%d --ntasks-per-node=%d --cpus-per-task=%d --cpu-bind=cores", c->nodes, ranks,
               ranks_per_node, threads);
    if (batch->components > 1)
      trm_append(text, " --het-group=%d", i);
  }
}

static void script_add_command(char **text, const struct sbatch *batch)
{
  for (int i = 0; i < batch->components; i++) {
    const struct sbatch_component *c = &batch->component[i];
    if (i > 0)
      trm_append(text, " : \\\n  ");
    else if (batch->launcher == SBATCH_SRUN)
      trm_append(text, "srun --mpi=%s ", batch->pmi);
    script_add_launcher(text, batch, i, c->ranks_per_node, c->threads);
    trm_append(text, " \\\n    \"$program\" train \"$config\" \"${options[@]}\"");
    if (batch->components > 1)
      trm_append(text, " \\\n    --parallel.threads=%d --device.name=%s", c->threads, c->gpus ? "auto" : "cpu");
  }
}

/* -- staging */

static void script_add_on_nodes(char **text, const struct sbatch *batch)
{
  trm_append(text, "on_nodes() { # on_nodes COMMAND...: once on each node\n");
  for (int i = 0; i < batch->components; i++) {
    trm_append(text, "  %s", batch->launcher == SBATCH_SRUN ? "srun --mpi=none " : "");
    script_add_launcher(text, batch, i, 1, 1);
    trm_append(text, " \"$@\"%s\n", i + 1 < batch->components ? " || return" : "");
  }
  trm_append(text, "}\n");
}

/* On one node the run directory can be there as well. Otherwise all nodes need the same one. */
static void script_add_staging(char **text, const struct sbatch *batch)
{
  trm_append(text, "\n# To each node's own disk.\n"
                   "local=${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/trireme-${SLURM_JOB_ID:-$$}\n");
  script_add_on_nodes(text, batch);
  trm_append(text, "clean() { trap - EXIT; on_nodes rm -rf \"$local\"; }\ntrap clean EXIT\n"
                   "on_nodes mkdir -p \"$local\" || exit\n");
  for (int k = 0; k < SBATCH_FILES; k++)
    if (batch->file[k]) {
      trm_append(text, "on_nodes cp ");
      script_add_word(text, batch->file[k]);
      trm_append(text, " \"$local/%d.h5\" || exit\n", k);
    }
  if (batch->stage == SBATCH_STAGE_ALL)
    trm_append(text, "results=$run run=$local/run\n[ ! -d \"$results\" ] || cp -R \"$results\" \"$run\" || exit\n");
}

/* Before the job is queued again, which ends it. */
static void script_add_results(char **text, const struct sbatch *batch)
{
  trm_append(text, "\n");
  if (batch->stage == SBATCH_STAGE_ALL)
    trm_append(text, "# The results, back from the node. They stay there if that fails.\n"
                     "if ! { mkdir -p \"$results\" && cp -R \"$run/.\" \"$results\"; }; then\n"
                     "  trap - EXIT\n  exit 1\nfi\n");
  trm_append(text, "clean\n");
}

char *sbatch_script(const struct sbatch *batch, const char *command)
{
  char *text = NULL;
  script_add_header(&text, batch, command);
  script_add_variables(&text, batch);
  if (batch->stage)
    script_add_staging(&text, batch);
  script_add_options(&text, batch);
  trm_append(&text, "\n# trireme run starts a job again that crashed or stalled, and passes the signal on to the "
                    "ranks, which stop after a\n# checkpoint.\n"
                    "trap 'kill -USR1 \"${job-}\"' USR1\n\"$program\" run -- \\\n  ");
  script_add_command(&text, batch);
  trm_append(&text, " &\njob=$!\nwait $job; status=$?\n"
                    "while kill -0 $job 2> /dev/null; do wait $job; status=$?; done\n");
  if (batch->stage)
    script_add_results(&text, batch);
  if (batch->requeue)
    trm_append(&text, "\n# Stopped before the time limit: once more, from the checkpoint.\n"
                      "[ $status != 3 ] || [ -z \"${SLURM_JOB_ID-}\" ] || scontrol requeue \"$SLURM_JOB_ID\"\n");
  trm_append(&text, "exit $status\n");
  return text;
}
