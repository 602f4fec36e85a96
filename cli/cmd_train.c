/* trireme train */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/planning.h"
#include "core/log.h"
#include "core/status.h"
#include "train/compatibility.h"

static const char usage[] =
  "usage: trireme train [CONFIG.yaml] [--section.key=value ...]\n"
  "       mpiexec -n RANKS trireme train ...\n\n"
  "Trains a model. Options are read from the file (sections of keys) and the command line,\n"
  "which takes precedence; `trireme options` lists them with their defaults. The run leaves\n"
  "config.yaml, record.json, metrics.jsonl, summary.json and checkpoints/ in run.dir.\n\n"
  "  trireme train --data.file=digits.h5 --model=\"mlp 784-256-10 relu\" --train.epochs=5\n"
  "  trireme train config.yaml --run.resume=auto      resume from the newest checkpoint\n"
  "  trireme train config.yaml --model.init=w.safetensors   begin with these weights\n\n"
  "SIGTERM, SIGINT and SIGUSR1, any number of them, write a checkpoint and end the run;\n"
  "SIGQUIT (Ctrl-\\) and SIGKILL end it at once. Exit status: 0 done, 1 failed, 2 wrong usage\n"
  "or configuration, 3 stopped by a signal after a checkpoint, 4 stalled (run.stall_abort).\n"
  "Under a launcher, whose own status it may be: `trireme status RUN --exit-code`.\n";

/* Appends a score: ", test accuracy 97.50%". */
static void cmd_train_append_score(char *text, size_t bytes, const char *name, const struct trm_score *score,
                                   bool tokens)
{
  const size_t used = strlen(text);
  if (isnan(score->loss))
    return;
  if (!tokens && !isnan(score->accuracy))
    snprintf(text + used, bytes - used, ", %s accuracy %.2f%%", name, 100 * score->accuracy);
  else
    snprintf(text + used, bytes - used, ", %s loss %.4g", name, score->loss);
}

static void cmd_train_print_result(const struct trm_result *result, const char *dir)
{
  char text[256] = "";
  if (!isnan(result->final_train_loss))
    snprintf(text, sizeof text, ", train loss %.4g", result->final_train_loss);
  cmd_train_append_score(text, sizeof text, "test", &result->test, result->tokens);
  cmd_train_append_score(text, sizeof text, "best validation", &result->best_validation, result->tokens);
  const size_t used = strlen(text);
  if (!isnan(result->best_validation.loss))
    snprintf(text + used, sizeof text - used, " (step %llu)", (unsigned long long)result->best_step);
  trm_info("%s after step %llu%s, %.0f samples/s, %.1f s; %s", result->status, (unsigned long long)result->steps, text,
           result->samples_per_s, result->wall_s, dir);
}

/* Hands the figures of simulate.machine to the virtual network and the modeled time of computation. */
static int cmd_train_read_machine(struct trm_job *job, struct trm_machine *machine, struct trm_machine_costs *costs)
{
  struct trm_simulate_options *o = &job->options.simulate;
  const struct trm_run_facts facts = {.options = &job->options, .strategy = job->modules.strategy};
  TRM_CHECK(trm_compatibility_check(&facts));
  TRM_CHECK(trm_machine_read(machine, o->machine));
  o->latency = machine->network_latency_s;
  o->bandwidth = machine->network_bytes_per_s;
  o->node_latency = machine->message_latency_s;
  o->node_bandwidth = machine->message_bytes_per_s;
  if (o->cores == 0) /* ranks of one thread each */
    o->cores = machine->cores;
  trm_machine_costs_create(costs, machine);
  job->modules.costs = &costs->costs;
  return TRM_OK;
}

static int cmd_train_run(const struct call *call)
{
  struct trm_job *job = call->job;
  struct trm_result result;
  struct trm_machine machine = {.works = 0};
  struct trm_machine_costs costs;
  if (job->options.simulate.machine[0])
    TRM_CHECK(cmd_train_read_machine(job, &machine, &costs));
  if (job->options.parallel.layout == TRM_LAYOUT_AUTO) {
    const struct trm_run_facts facts = {.options = &job->options, .strategy = job->modules.strategy};
    TRM_CHECK(trm_compatibility_check(&facts));
    TRM_CHECK(planning_choose(job));
  }
  const int status = trm_job_train(job, &result);
  job->modules.costs = NULL;
  trm_machine_free(&machine);
  TRM_CHECK(status);
  if (strcmp(result.status, "finished") != 0)
    cmd_train_print_result(&result, job->options.run.dir);
  return TRM_OK;
}

static const struct trm_option no_flags[] = {END_OF_FLAGS};

const struct command cmd_train = {
  .name = "train", .help = "train a model, on one rank or under mpiexec or srun",
  .usage = usage, .flags = no_flags, .max_args = 1,
  .job = JOB_OF_RANKS, .simulates = true, .config = true, .run = cmd_train_run,
};
