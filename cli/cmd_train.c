/* trireme train */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/planning.h"
#include "core/log.h"
#include "core/status.h"

static const char usage[] =
  "usage: trireme train [CONFIG.yaml] [--section.key=value ...]\n"
  "       mpiexec -n RANKS trireme train ...\n\n"
  "Trains a model. Options are read from the file (sections of keys) and the command line,\n"
  "which takes precedence; `trireme options` lists them with their defaults. The run leaves\n"
  "config.yaml, metrics.jsonl, summary.json and checkpoints/ in run.dir.\n\n"
  "  trireme train --data.file=digits.h5 --model=\"mlp 784-256-10 relu\" --train.epochs=5\n"
  "  trireme train config.yaml --run.resume=auto      resume from the newest checkpoint\n"
  "  trireme train config.yaml --model.init=w.safetensors   begin with these weights\n\n"
  "SIGTERM, SIGINT and SIGUSR1 write a checkpoint and end the run.\n"
  "Exit status: 0 done, 1 failed, 2 wrong usage or configuration, 3 stopped by a signal\n"
  "after a checkpoint.\n";

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

int cmd_train(int argc, char **argv)
{
  const struct job_request request = {.command = "train", .usage = usage, .nargs = 1, .config = true};
  struct trm_job job;
  int nargs;
  bool help_shown;
  int status = job_open(&job, &request, argc, argv, &nargs, &help_shown);
  if (status == TRM_OK && !help_shown) {
    struct trm_result result;
    status = job.options.parallel.layout == TRM_LAYOUT_AUTO ? planning_choose(&job) : TRM_OK;
    if (status == TRM_OK)
      status = trm_job_train(&job, &result);
    if (status == TRM_OK)
      cmd_train_print_result(&result, job.options.run.dir);
  }
  trm_job_close(&job);
  return status;
}
