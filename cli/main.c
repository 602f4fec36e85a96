/* trireme: the command line. */
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/status.h"
#include "mpi/real.h"
#include "train/revision.h"

int main(int argc, char **argv)
{
  if (argc > 1 && strcmp(argv[1], "help") == 0)
    argv[1] = "--help";
  if (argc > 1 && strcmp(argv[1], "--version") == 0) {
    printf("trireme %s\n%s\n", TRM_BUILD_VERSION, trm_comm_library());
    return TRM_OK;
  }
  trm_parallel_unbind();
  const int status = command_run(&all_commands, argc, argv);
  if (status == TRM_STOPPED)
    trm_info("%s", trm_error_text());
  else if (status != TRM_OK && trm_log_rank() == 0)
    trm_log_error();
  return status;
}
