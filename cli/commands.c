/* The table of commands. */
#include "cli/command.h"

static const struct command *const commands[] = {
  &cmd_train,   &cmd_run,    &cmd_sbatch,   &cmd_doctor, &cmd_sweep, &cmd_repeat, &cmd_plan,   &cmd_eval,
  &cmd_predict, &cmd_export, &cmd_generate, &cmd_data,   &cmd_key,   &cmd_report, &cmd_status, &cmd_bench,
  &cmd_options, NULL};

const struct command all_commands = {
  .name = "trireme",
  .usage = "usage: trireme COMMAND [ARGUMENT...]\n\n"
           "trireme COMMAND --help describes each command; man trireme has the whole manual.\n\n",
  .group = commands, .member = "command",
};
