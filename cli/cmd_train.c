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

static void cmd_train_print_result(const struct trm_result *result, const char *dir)
{
  if (result->tokens)
    trm_info("%s: train loss %.4f, test loss %.4f, perplexity %.3f, %.0f samples/s, %.1f s; %s", result->status,
             result->final_train_loss, result->test_loss, exp(result->test_loss), result->samples_per_s, result->wall_s,
             dir);
  else if (!isnan(result->test_accuracy))
    trm_info("%s: test accuracy %.2f%% (best %.2f%%), %.0f samples/s, %.1f s; %s", result->status,
             100 * result->test_accuracy, 100 * result->best_test_accuracy, result->samples_per_s, result->wall_s, dir);
  else
    trm_info("%s: train loss %.4g, test loss %.4g, %.0f samples/s, %.1f s; %s", result->status,
             result->final_train_loss, result->test_loss, result->samples_per_s, result->wall_s, dir);
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
