/* A temporary folder for the files of a job whose ranks are on one machine. A program includes this once; job_folder is
 * the first test of its table, job_folder_remove the last. */
#pragma once

#include <unistd.h>

#include "dataset_files.h"
#include "ranks.h"

static char folder[256];

static inline void job_folder(void)
{
  if (world->rank == 0)
    made_folder(folder);
  world->ops->broadcast(world, folder, sizeof folder, TRM_BYTE, 0);
  CU_ASSERT_NOT_EQUAL_FATAL(folder[0], '\0');
}

static inline void job_folder_remove(void)
{
  world->ops->barrier(world);
  if (world->rank == 0)
    made_folder_remove(folder);
  CU_ASSERT(world->rank > 0 || access(folder, F_OK) != 0);
}
