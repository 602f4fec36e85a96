/* A job as the commands see it: options, ranks and a device, opened in one order and closed in the other. */
#ifndef TRM_CLI_JOB_H
#define TRM_CLI_JOB_H

#include "cli/flags.h"
#include "train/train.h"

struct job {
  struct trm_options options;
  struct trm_modules modules;
  struct trm_device device;
  bool serial; /* one rank without MPI */
};

/* Reads the command line: the command's own flags, the option table (--section.key=value, into job->options) and up to
 * `places` words, left in argv[0..*words). config: the first word is a configuration file, read before the flags. Then
 * starts MPI (alone: not) and opens the device. *helped: --help was asked for and answered; nothing was opened.
 * Collective; on failure every rank has the message. The job must be closed in any case. */
struct job_request {
  const char *command, *usage;
  const struct flag *flags; /* the command's own; NULL: none */
  int nargs;
  bool config, serial;
};
int job_open(struct job *job, const struct job_request *request, int argc, char **argv, int *nargs, bool *help_shown);
void job_close(struct job *job);

#endif
