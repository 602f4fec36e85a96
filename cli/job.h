/* Opening the job of a command from its command line. */
#pragma once

#include "cli/flags.h"
#include "job/job.h"

struct job_request {
  const char *command, *usage;
  const struct flag *flags; /* the command's own; NULL: none */
  int nargs;                /* positional arguments at most */
  bool config;              /* the first positional argument is a configuration file, read before the flags */
  bool serial;              /* one rank without MPI */
};

/* Reads the command line: request->flags, options (--section.key=value, into job->options) and positional arguments,
 * which are moved to argv[0..*nargs). Then opens the job. *help_shown: --help was answered; nothing was opened.
 * Collective; on failure every rank has the message. trm_job_close follows in any case. */
int job_open(struct trm_job *job, const struct job_request *request, int argc, char **argv, int *nargs,
             bool *help_shown);
