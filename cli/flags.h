/* The command line of the commands: their own flags, --name=value or --name value, and the options of a run
 * (core/options.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/options.h"

enum flag_kind { FLAG_TEXT, FLAG_INTEGER, FLAG_REAL, FLAG_BOOL };

struct flag {
  const char *name; /* without the dashes */
  enum flag_kind kind;
  void *value;      /* const char **, int64_t *, double * or bool *; unchanged when the flag is absent */
  int64_t low, high; /* range of a FLAG_INTEGER or FLAG_REAL */
};

struct flags {
  const char *command;         /* "report", "bench gemm": for messages */
  const char *usage;           /* printed by --help */
  const struct flag *table;    /* ends with a row whose name is NULL */
  struct trm_options *options; /* set by --section.key=value; NULL: refused */
};

/* Reads argv[1..]. Moves positional arguments to argv[0..*nargs). --help prints the usage, sets *help_shown and ends
 * the reading. TRM_USAGE on unknown flags (naming the nearest known one), missing values and wrong values. */
int flags_read(const struct flags *flags, int argc, char **argv, int *nargs, bool *help_shown);
