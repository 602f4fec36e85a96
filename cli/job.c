#include "cli/job.h"

#include <string.h>

#include "core/status.h"

static const struct flag no_flags[] = {{.name = NULL}};

/* Returns the first argument that is no flag. NULL: none, or it may be the value of a preceding option without "=". */
static const char *job_first_arg(int argc, char **argv)
{
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] != '-')
      return argv[i];
    if (strchr(argv[i], '.') && !strchr(argv[i], '='))
      return NULL;
  }
  return NULL;
}

static int job_read_arguments(struct trm_job *job, const struct job_request *request, int argc, char **argv, int *nargs,
                              bool *help_shown)
{
  const struct flags flags = {
    .command = request->command,
    .usage = request->usage,
    .table = request->flags ? request->flags : no_flags,
    .options = &job->options,
  };
  const char *config = request->config ? job_first_arg(argc, argv) : NULL;
  for (int i = 1; i < argc && config; i++) /* --help works without a file */
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
      config = NULL;
  if (config)
    TRM_CHECK(trm_options_read(&job->options, config));
  TRM_CHECK(flags_read(&flags, argc, argv, nargs, help_shown));
  if (*nargs > request->nargs)
    return trm_error(TRM_USAGE, "%s: one argument too many: \"%s\" (options are written --section.key=value)",
                     request->command, argv[request->nargs]);
  return TRM_OK;
}

int job_open(struct trm_job *job, const struct job_request *request, int argc, char **argv, int *nargs,
             bool *help_shown)
{
  trm_job_init(job);
  *nargs = 0;
  *help_shown = false;
  const int status = job_read_arguments(job, request, argc, argv, nargs, help_shown);
  if (status == TRM_OK && *help_shown)
    return TRM_OK;
  job->serial = request->serial;
  return trm_job_open(job, status);
}
