/* A CUnit program as an MPI job: every rank runs the table. Rank 0 prints; output of other ranks appears only if a
 * check failed there. */
#pragma once

#include <stdio.h>

#include "core/log.h"
#include "core/status.h"
#include "mpi/real.h"
#include "suite.h"

static struct trm_comm *world;

/* Sets TRM_NODE_SIZE; 0 unsets it. */
static inline void set_node_size(int size)
{
  char text[16];
  snprintf(text, sizeof text, "%d", size);
  if (size)
    setenv("TRM_NODE_SIZE", text, 1);
  else
    unsetenv("TRM_NODE_SIZE");
}

/* More ranks than cores leave their cores while they wait, as in every job of the program. Not with a few ranks, so
 * that both ways of waiting are tested. */
static inline bool is_oversubscribed(void)
{
  return world->size > 4 && world->size > sysconf(_SC_NPROCESSORS_ONLN);
}

static inline int ranks_run(int argc, char **argv, const char *name, CU_TestInfo *tests)
{
  if (trm_comm_start(&argc, &argv, false, &world) != TRM_OK) {
    trm_log_error();
    return 99;
  }
  trm_log_set_quiet(true);
  if (is_oversubscribed())
    trm_comm_set_oversubscribed();
  const int rank = world->rank, screen = dup(STDOUT_FILENO);
  FILE *mine = rank > 0 ? tmpfile() : NULL;
  fflush(stdout);
  if (mine)
    dup2(fileno(mine), STDOUT_FILENO);
  const int failed = suite_run(name, tests);
  fflush(stdout);
  dup2(screen, STDOUT_FILENO);
  if (mine && failed) {
    printf("---- rank %d of %d\n", rank, world->size);
    rewind(mine);
    for (int c; (c = fgetc(mine)) != EOF;)
      putchar(c);
  }
  int32_t any = failed;
  world->ops->allreduce(world, &any, 1, TRM_INT32, TRM_MAX);
  trm_comm_stop(world);
  return any;
}
