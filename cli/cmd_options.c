/* trireme options */
#include "cli/commands.h"
#include "cli/flags.h"
#include "core/status.h"

static const char usage[] =
  "usage: trireme options [SECTION]\n\n"
  "Lists every option of a run, or of one section: name, type, default, range and meaning.\n"
  "A configuration file has sections of keys; on the command line an option is written\n"
  "--section.key=value.\n";

int cmd_options(int argc, char **argv)
{
  const struct flag none[] = {{.name = NULL}};
  const struct flags flags = {.command = "options", .usage = usage, .table = none};
  int nargs;
  bool help_shown;
  TRM_CHECK(flags_read(&flags, argc, argv, &nargs, &help_shown));
  if (help_shown)
    return TRM_OK;
  if (nargs > 1)
    return trm_error(TRM_USAGE, "options: one argument too many: \"%s\"", argv[1]);
  return trm_options_print(stdout, nargs ? argv[0] : NULL);
}
