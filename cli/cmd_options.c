/* trireme options */
#include "cli/command.h"
#include "cli/completion.h"
#include "core/status.h"
#include "train/compatibility.h"

static const char usage[] =
  "usage: trireme options [SECTION] [--combinations] [--completion=bash|zsh|fish]\n\n"
  "Lists every option of a run, or of one section: name, type, default, range and meaning.\n"
  "A configuration file has sections of keys; on the command line an option is written\n"
  "--section.key=value.\n\n"
  "  --combinations   what cannot be combined, why, and arguments that are refused for it\n"
  "  --completion=SHELL   the script that completes command lines in this shell (make install has them)\n";

struct options_flags {
  bool combinations;
  enum completion_shell completion;
};

static const struct trm_option flags[] = {
  {"combinations", TRM_OPTION_BOOL, offsetof(struct options_flags, combinations), NULL, NO_RANGE},
  {"completion", TRM_OPTION_CHOICE, offsetof(struct options_flags, completion), "none", 0, 0, completion_shells, NULL},
  END_OF_FLAGS};

static int cmd_options_run(const struct call *call)
{
  const struct options_flags *f = call->values;
  if (f->completion != COMPLETION_NONE) {
    completion_print(stdout, f->completion);
    return TRM_OK;
  }
  if (!f->combinations)
    return trm_options_print(stdout, call->args[0]);
  trm_compatibility_print(stdout);
  return TRM_OK;
}

const struct command cmd_options = {
  .name = "options", .help = "list every option of a run",
  .usage = usage, .flags = flags, .bytes = sizeof(struct options_flags), .max_args = 1,
  .run = cmd_options_run,
};
