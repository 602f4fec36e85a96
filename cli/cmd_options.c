/* trireme options */
#include "cli/commands.h"
#include "cli/flags.h"
#include "core/status.h"
#include "train/compatibility.h"

static const char usage[] =
  "usage: trireme options [SECTION] [--combinations]\n\n"
  "Lists every option of a run, or of one section: name, type, default, range and meaning.\n"
  "A configuration file has sections of keys; on the command line an option is written\n"
  "--section.key=value.\n\n"
  "  --combinations   what cannot be combined, why, and arguments that are refused for it\n";

int cmd_options(int argc, char **argv)
{
  bool combinations = false;
  const struct flag table[] = {{"combinations", FLAG_BOOL, &combinations, 0, 0}, {.name = NULL}};
  const struct flags flags = {.command = "options", .usage = usage, .table = table};
  int nargs;
  bool help_shown;
  TRM_CHECK(flags_read(&flags, argc, argv, &nargs, &help_shown));
  if (help_shown)
    return TRM_OK;
  if (nargs > 1)
    return trm_error(TRM_USAGE, "options: one argument too many: \"%s\"", argv[1]);
  if (combinations) {
    trm_compatibility_print(stdout);
    return TRM_OK;
  }
  return trm_options_print(stdout, nargs ? argv[0] : NULL);
}
