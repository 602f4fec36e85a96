/* trireme: the command line. */
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "core/log.h"
#include "core/status.h"
#include "mpi/real.h"

static const struct command *const commands[] = {
  &cmd_train,   &cmd_run,    &cmd_sbatch,   &cmd_doctor, &cmd_sweep, &cmd_repeat, &cmd_plan,  &cmd_eval,
  &cmd_predict, &cmd_export, &cmd_generate, &cmd_data,   &cmd_key,   &cmd_report, &cmd_status, &cmd_bench,
  &cmd_options, NULL};
static const struct command trireme = {
  .name = "trireme",
  .usage = "usage: trireme COMMAND [ARGUMENT...]\n\n"
           "trireme COMMAND --help describes each command; man trireme has the whole manual.\n\n",
  .group = commands, .member = "command",
};

int main(int argc, char **argv)
{
  if (argc > 1 && strcmp(argv[1], "help") == 0)
    argv[1] = "--help";
  if (argc > 1 && strcmp(argv[1], "--version") == 0) {
    printf("trireme %s\n%s\n", PACKAGE_VERSION, trm_comm_library());
    return TRM_OK;
  }
  const int status = command_run(&trireme, argc, argv);
  if (status == TRM_STOPPED)
    trm_info("%s", trm_error_text());
  else if (status != TRM_OK && trm_log_rank() == 0)
    trm_log_error();
  return status;
}
