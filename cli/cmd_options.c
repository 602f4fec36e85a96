/* trireme options */
#include "cli/command.h"
#include "core/status.h"
#include "train/compatibility.h"

static const char usage[] =
  "usage: trireme options [SECTION] [--combinations]\n\n"
  "Lists every option of a run, or of one section: name, type, default, range and meaning.\n"
  "A configuration file has sections of keys; on the command line an option is written\n"
  "--section.key=value.\n\n"
  "  --combinations   what cannot be combined, why, and arguments that are refused for it\n";

static const struct trm_option flags[] = {{"combinations", TRM_OPTION_BOOL, 0, NULL, NO_RANGE}, END_OF_FLAGS};

static int cmd_options_run(const struct call *call)
{
  const bool *combinations = call->values;
  if (!*combinations)
    return trm_options_print(stdout, call->args[0]);
  trm_compatibility_print(stdout);
  return TRM_OK;
}

const struct command cmd_options = {
  .name = "options", .help = "list every option of a run",
  .usage = usage, .flags = flags, .bytes = sizeof(bool), .max_args = 1,
  .run = cmd_options_run,
};
