/* Flags of the commands that have a few of their own (data, report, bench): --name=value or --name value, checked
 * against a table. The options of a run are a table of their own, core/options.h. */
#ifndef TRM_CLI_FLAGS_H
#define TRM_CLI_FLAGS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/options.h"

enum flag_kind { FLAG_TEXT, FLAG_INTEGER, FLAG_REAL, FLAG_BOOL };

struct flag {
  const char *name; /* without the dashes */
  enum flag_kind kind;
  void *value;      /* const char **, int64_t *, double * or bool *; keeps its default when the flag is absent */
  int64_t low, high; /* range of a FLAG_INTEGER or FLAG_REAL */
};

struct flags {
  const char *command;         /* "report", "bench gemm": for messages */
  const char *usage;           /* printed by --help */
  const struct flag *table;    /* ends with a row whose name is NULL */
  struct trm_options *options; /* takes --section.key=value, NULL: refused */
};

/* Reads argv[1..]. Words that are no flags are moved to argv[0..*words). --help prints the usage, sets *helped and
 * reads no further. TRM_USAGE on unknown flags (with the nearest known one), missing and wrong values. */
int flags_read(const struct flags *flags, int argc, char **argv, int *nargs, bool *help_shown);

#endif
